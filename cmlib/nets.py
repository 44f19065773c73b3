"""ResNet20 and two smaller backbones, task heads, and batch norm with one set of statistics per task.

The backbone psi maps images [B, C, H, W] to features [B, D], D = 64; `mlp` images or vectors [B, n], with D = 128. A head f_i
maps features to logits or to an embedding. Initial weights are drawn by torch's own rules inside `randomness.seeded`, so one seed
gives all methods the same backbone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cmlib.errors import OptionError, check_name, setting
from cmlib.randomness import seeded

FEATURES = 64  # D
BATCH_NORMS = ("shared", "private", "stats", "unfrozen")
HEADS = ("linear", "mlp")
# ResNet20 halves the sides twice: of 4x4 pixels or fewer one place is left, and one image alone has no deviation to divide by.
ALONE = (
    "batch norm cannot train on one vector, or image of 4x4 pixels or fewer, that is alone in its batch: choose a batch_size "
    "(or memory_size, support_size) that leaves none alone, or take larger images"
)


class TaskBatchNorm2d(nn.Module):
    """Batch norm for a sequence of tasks.

    kind `shared`: one norm for all tasks. `private`: one norm per task (statistics and affine weights), trained with its
    task and frozen afterwards. `stats`: private statistics, one shared affine map. `unfrozen`: as private, but never frozen.
    The layout of the next batch is set from outside: `task` is the norm in use; with `past = t > 0` the batch is t blocks of
    equal size and block i goes through the frozen norm of task i, all in one operation; with `owners` [B] each sample goes
    through the norm of its own task.
    """

    owners: Tensor | None

    def __init__(self, features: int, kind: str = "shared") -> None:
        super().__init__()
        self.features, self.kind = features, kind
        self.task, self.past, self.owners = 0, 0, None
        self.norms = nn.ModuleList()
        self.add_task()

    def add_task(self) -> None:
        """Append the norm of a new task; the kinds `private` and `stats` freeze those before it."""
        if self.kind == "shared" and len(self.norms):
            return
        norm = nn.BatchNorm2d(self.features)
        if self.kind == "stats" and len(self.norms):
            norm.weight, norm.bias = self.norm_of(0).weight, self.norm_of(0).bias  # one affine map for all tasks
        elif self.kind == "private" and len(self.norms):
            for parameter in self.norms[-1].parameters():
                parameter.requires_grad_(False)
        self.norms.append(norm)
        self.task = len(self.norms) - 1

    def norm_of(self, task: int) -> nn.BatchNorm2d:
        """The norm of one task."""
        norm = self.norms[task]
        assert isinstance(norm, nn.BatchNorm2d)
        return norm

    def forward(self, x: Tensor) -> Tensor:
        if self.past:
            return self._past_blocks(x)
        if self.owners is not None:
            return self._by_owner(x, self.owners)
        norm = self.norm_of(self.task)
        frozen = self.kind in ("private", "stats") and self.task < len(self.norms) - 1
        if not frozen:
            if self.training and x.numel() == self.features:
                raise OptionError(ALONE)
            return norm(x)
        return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps)

    def folded(self, tasks: int) -> tuple[Tensor, Tensor]:
        """The frozen norms of the first tasks as affine maps: scale and shift, each [t, C]."""
        norms = [self.norm_of(i) for i in range(tasks)]
        mean = torch.stack([norm.get_buffer("running_mean") for norm in norms])
        deviation = torch.stack([norm.get_buffer("running_var") + norm.eps for norm in norms]).sqrt()
        scale = torch.stack([norm.weight for norm in norms]) / deviation
        return scale, torch.stack([norm.bias for norm in norms]) - mean * scale

    def _past_blocks(self, x: Tensor) -> Tensor:
        scale, shift = self.folded(self.past)  # [t, C]
        blocks = x.unflatten(0, (self.past, -1))  # [t, B, C, H, W]
        shape = (self.past, 1, -1, 1, 1)
        return torch.addcmul(shift.view(shape), blocks, scale.view(shape)).flatten(0, 1)

    def _by_owner(self, x: Tensor, owners: Tensor) -> Tensor:
        """Past tasks' samples through their frozen norm, the latest task's through its own with the statistics of these only."""
        latest = len(self.norms) - 1
        if not self.training:
            scale, shift = self.folded(latest + 1)
        else:
            new_scale, new_shift = self._statistics_of(x, (owners == latest).to(x.dtype))
            scale, shift = self.folded(latest) if latest else (new_scale[None][:0], new_shift[None][:0])
            scale, shift = torch.cat([scale, new_scale[None]]), torch.cat([shift, new_shift[None]])
        return torch.addcmul(shift[owners, :, None, None], x, scale[owners, :, None, None])

    def _statistics_of(self, x: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift [C] of the latest norm in training, from the chosen samples only; moves its running statistics."""
        norm, weight = self.norm_of(len(self.norms) - 1), chosen.view(-1, 1, 1, 1)
        n = (chosen.sum() * x.shape[2] * x.shape[3]).clamp(min=1)
        mean = (x * weight).sum((0, 2, 3)) / n
        var = ((x - mean.view(1, -1, 1, 1)).square() * weight).sum((0, 2, 3)) / n
        with torch.no_grad():
            momentum = float(norm.momentum or 0.1) * (chosen.sum() > 0)
            norm.get_buffer("running_mean").lerp_(mean, momentum)
            norm.get_buffer("running_var").lerp_(var * n / (n - 1).clamp(min=1), momentum)
            norm.get_buffer("num_batches_tracked").add_(1)
        scale = norm.weight / (var + norm.eps).sqrt()
        return scale, norm.bias - mean * scale


class Block(nn.Module):
    """Two 3x3 convolutions with an option-A shortcut: every second pixel, new channels zero."""

    def __init__(self, channels_in: int, channels: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm1 = TaskBatchNorm2d(channels, norm)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = TaskBatchNorm2d(channels, norm)
        self.stride, self.new_channels = stride, channels - channels_in

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu_(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.stride > 1 or self.new_channels:
            side = self.new_channels // 2
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, side, self.new_channels - side))
        return F.relu_(y.add_(x))


class Backbone(nn.Module):
    """A network psi from images to features, whose batch norms know tasks: [B, C, H, W] -> [B, D], D = `out_features`.

    flat: it takes samples as vectors of so many numbers, so feature vectors [B, n] will do as well as images.
    """

    out_features: int
    flat = False

    def task_norms(self) -> list[TaskBatchNorm2d]:
        """All batch norm layers, in order."""
        return [module for module in self.modules() if isinstance(module, TaskBatchNorm2d)]

    def add_task(self) -> None:
        """Give every batch norm layer the norm of a new task."""
        for norm in self.task_norms():
            norm.add_task()

    def features(self, x: Tensor, task: int | None = None) -> Tensor:
        """Features of a batch through the norms of one task (None: the latest). [B, C, H, W] -> [B, D]"""
        for norm in self.task_norms():
            norm.task = len(norm.norms) - 1 if task is None or norm.kind == "shared" else task
        return self(x)

    def shares_norms(self) -> bool:
        """Whether one pass serves all tasks: they share their batch norms, or there are none."""
        return all(norm.kind == "shared" for norm in self.task_norms())

    def past_features(self, x: Tensor, tasks: int) -> Tensor:
        """Features of one batch through the frozen norms of the first t tasks, as ONE batch. -> [t, B, D]"""
        if self.shares_norms():
            return self(x).expand(tasks, -1, -1)
        layout = torch.channels_last if x.ndim == 4 else torch.contiguous_format
        repeated = x.expand(tasks, *x.shape).flatten(0, 1).contiguous(memory_format=layout)
        return self._with("past", tasks, repeated).unflatten(0, (tasks, -1))

    def features_by_task(self, x: Tensor, owners: Tensor) -> Tensor:
        """Features of a batch of several tasks, each sample through its own task's norms. owners int64 [B] -> [B, D]"""
        if self.shares_norms():
            return self.features(x)
        return self._with("owners", owners, x)

    def _with(self, layout: str, value: int | Tensor, x: Tensor) -> Tensor:
        """The network's output while every norm has a layout set."""
        norms = self.task_norms()
        for norm in norms:
            setattr(norm, layout, value)
        try:
            return self(x)
        finally:
            for norm in norms:
                setattr(norm, layout, 0 if layout == "past" else None)


class ResNet20(Backbone):
    """ResNet20 without its last layer: [B, C, H, W] -> [B, 64]. 269,072 parameters for C = 3.

    He et al. (2016): a 3x3 convolution, three stages of three blocks (16, 32, 64 channels), global average pooling.
    """

    out_features = FEATURES

    def __init__(self, channels: int = 3, norm: str = "shared") -> None:
        super().__init__()
        check_name("batch_norm", norm, BATCH_NORMS)
        self.conv = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        self.norm = TaskBatchNorm2d(16, norm)
        stages = ((16, 16, 1), (16, 32, 2), (32, 64, 2))
        shapes = (shape for a, b, stride in stages for shape in ((a, b, stride), (b, b, 1), (b, b, 1)))
        self.blocks = nn.Sequential(*(Block(a, b, stride, norm) for a, b, stride in shapes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu_(self.norm(self.conv(x)))
        return self.blocks(x).mean((2, 3))  # [B, 64]


class ConvNet(Backbone):
    """Three 3x3 convolutions with batch norm, each but the first behind a halving of the sides: [B, C, H, W] -> [B, 64].

    56,096 parameters for C = 3, a fifth of ResNet20's.
    """

    out_features = FEATURES

    def __init__(self, channels: int = 3, norm: str = "shared") -> None:
        super().__init__()
        check_name("batch_norm", norm, BATCH_NORMS)
        widths = (channels, 32, 64, FEATURES)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, 1, 1, bias=False) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(TaskBatchNorm2d(width, norm) for width in widths[1:])

    def forward(self, x: Tensor) -> Tensor:
        for depth, (convolve, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            x = F.relu(norm(convolve(F.max_pool2d(x, 2, ceil_mode=True) if depth else x)))
        return x.mean((2, 3))  # [B, 64]


class MLP(Backbone):
    """Two linear layers with batch norm and ReLU, n -> 128 -> 128: vectors [B, n], or images pixel by pixel. -> [B, 128]"""

    out_features = 128
    flat = True

    def __init__(self, inputs: int, norm: str = "shared") -> None:
        super().__init__()
        check_name("batch_norm", norm, BATCH_NORMS)
        widths = (inputs, self.out_features, self.out_features)
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(TaskBatchNorm2d(width, norm) for width in widths[1:])

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)  # [B, n]
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.relu(norm(layer(x)[:, :, None, None])).flatten(1)  # to a norm, a vector is an image of one pixel
        return x


BACKBONES: dict[str, type[Backbone]] = {"resnet20": ResNet20, "convnet": ConvNet, "mlp": MLP}
DEFAULT = "resnet20"


def make_backbone(inputs: int, norm: str, seed: int, kind: str = DEFAULT) -> Backbone:
    """A backbone with the initial weights of a seed: the same for every method and kind of batch norm.

    inputs: channels of the images, or numbers a sample for one that is flat. kind: one of `BACKBONES`
    """
    with seeded(seed, 0, "backbone"):
        make: Any = BACKBONES[check_name("backbone", kind, BACKBONES)]
        return make(inputs, norm).to(memory_format=torch.channels_last)


def inputs_of(shape: Sequence[int], kind: str) -> int:
    """What a kind of backbone is made for, with samples of a shape [C, H, W] or [n]; OptionError when it cannot take them."""
    if BACKBONES[kind].flat:
        return math.prod(shape)
    if len(shape) == 1:
        raise OptionError(f"backbone={kind} is for images; for vectors of {shape[0]} features take {setting('backbone', 'mlp')}")
    return shape[0]


def make_head(kind: str, outputs: int, seed: int, task: int, features: int = FEATURES, purpose: str = "head") -> nn.Module:
    """Head of one task: `linear` D -> outputs, or `mlp` D -> D -> ReLU -> outputs (the paper's). D = features

    purpose: names the draws of its first weights; two layers of one size must not begin with the same.
    """
    check_name("head", kind, HEADS)
    with seeded(seed, task, purpose):
        last = nn.Linear(features, outputs)
        if kind == "linear":
            return last
        return nn.Sequential(nn.Linear(features, features), nn.ReLU(), last)
