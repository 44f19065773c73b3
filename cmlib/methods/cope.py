"""CoPE (continual prototype evolution): nearest prototype, where each class's prototype follows the moving embedding.

An image is embedded on the unit sphere (the normalised features, no head) and belongs to the class whose prototype has the
largest product with it. After each step a class's prototype moves a little towards the mean embedding of its images in the batch;
the pseudo-prototypical loss pulls an image to its prototype and to its class's other images, and pushes other classes' images
away. One pass over a stream of mini-batches, each joined by a batch of exemplars. prototype_momentum 0.99, temperature 0.1,
exemplars_per_class 300, epochs 1. prototype_init: first_batch starts a prototype at the class's mean in its first batch, random
anywhere (as the authors' code does). prototype_update=first_task and stream=first_batch repeat two mistakes of the code released
with the paper: prototypes that stay where they are after the first task, and one mini-batch a task. CIL only. Keeps prototypes
and exemplars.
Source: De Lange and Tuytelaars (2021), "Continual prototype evolution", eqs 1 to 7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cmlib.memory import StreamMemory
from cmlib.methods.base import Method, Option, register
from cmlib.methods.rehearsal import IMAGES, PAPER_MEMORY
from cmlib.nets import Backbone
from cmlib.randomness import generator
from cmlib.scenario import Scenario, Task, augment, draw_crops


@register("cope")
class PrototypeEvolution(Method):
    """Nearest moving prototype, learned from a stream."""

    title = "CoPE"
    summary = "classify by the nearest prototype; prototypes follow the embedding along one pass over a stream"
    source = "De Lange and Tuytelaars (2021)"
    keeps, paper_memory = {"cil": {"prototypes": "D * T", **IMAGES}}, {"cil": PAPER_MEMORY}
    scenarios = ("cil",)
    options = {
        "exemplars_per_class": Option(300, "most exemplars of a class", int, low=1),
        "prototype_momentum": Option(0.99, "share of the old prototype that a step keeps", float, low=0, high=1),
        "temperature": Option(0.1, "divides the products of embeddings and prototypes", float, low=0, high=1000, above_low=True),
        "prototype_init": Option("first_batch", "where a prototype starts", choices=("first_batch", "random")),
        "prototype_update": Option("always", "when prototypes move", choices=("always", "first_task")),
        "stream": Option("whole", "the images of a task, or its first mini-batch alone", choices=("whole", "first_batch")),
    }
    shares_hidden_layer = False
    ignores = ("head",)

    prototypes: Tensor  # [classes, D], rows of norm 1
    known: Tensor  # bool [classes]: the class has a prototype

    def __init__(self, options: Mapping[str, Any], scenario: Scenario, backbone: Backbone | None = None) -> None:
        super().__init__(options, scenario, backbone)
        classes, size = len(scenario.class_names), self.backbone.out_features
        start = F.normalize(torch.rand(classes, size, generator=generator(self.seed, 0, 0, "prototypes")) * 2 - 1, dim=1)
        self.register_buffer("prototypes", start)
        self.register_buffer("known", torch.zeros(classes, dtype=torch.bool))
        self.memory = StreamMemory(self.option["exemplars_per_class"], classes)
        self.classes_seen = 0

    # -- hooks ------------------------------------------------------------------------------------------------------------

    def begin_task(self, task: Task) -> None:
        """No head: the features are the embedding."""
        self.classes_seen = task.classes.stop
        self.to(self.scenario.device)

    def embed(self, x: Tensor) -> Tensor:
        """Embedding on the unit sphere. [B, C, H, W] -> [B, D]"""
        return F.normalize(self.backbone.features(x), dim=1)

    def loss(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """The pseudo-prototypical loss. -> scalar"""
        return self._loss(self.embed(x), y)

    def _loss(self, e: Tensor, y: Tensor) -> Tensor:
        self.start_prototypes(e.detach(), y)
        self.batch_scores = (e @ self.prototypes[: self.classes_seen].T).detach()
        return pseudo_prototypical_loss(e, y, self.prototypes, self.known, self.option["temperature"])

    def step(self, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """One gradient step, then the prototypes of the batch's classes move."""
        optimizer.zero_grad(set_to_none=True)
        e = self.embed(x)
        loss = self._loss(e, y)
        loss.backward()
        optimizer.step()
        if self.option["prototype_update"] == "always" or not task.index:
            self.prototypes.copy_(moved_prototypes(self.prototypes, e.detach(), y, self.option["prototype_momentum"]))
        return loss.detach()

    def start_prototypes(self, e: Tensor, y: Tensor) -> None:
        """Give classes that occur for the first time their prototype."""
        means, counts = class_means(e, y, len(self.known))
        new = (counts > 0) & ~self.known
        if self.option["prototype_init"] == "first_batch":
            self.prototypes.copy_(torch.where(new.unsqueeze(1), F.normalize(means, dim=1), self.prototypes))
        self.known |= new

    def scores(self, x: Tensor, task: Task | None = None) -> Tensor:
        """Products with the prototypes. -> [B, classes seen], or [B, classes of the task] when it is known"""
        scores = self.embed(x) @ self.prototypes[: self.classes_seen].T
        return scores[:, task.classes.start : task.classes.stop] if task else scores

    def retained(self) -> dict[str, list[Tensor]]:
        """Prototypes, exemplars and their labels."""
        filled = self.memory.y >= 0
        kept = {"exemplars": [self.memory.x[filled]], "labels": [self.memory.y[filled]]}
        return {"prototypes": [self.prototypes[self.known]], **kept}

    # -- the stream -------------------------------------------------------------------------------------------------------

    def batches(self, task: Task, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The stream: each mini-batch is joined by a batch of exemplars, then its images enter the memory (in the first pass)."""
        scenario, size, memory = self.scenario, self.option["batch_size"], self.memory
        order = torch.randperm(len(task.y), generator=generator(self.seed, task.index, epoch, "stream"))
        order = order[:size] if self.option["stream"] == "first_batch" else order
        most = 2 * size * math.ceil(len(order) / size)  # images of an epoch, exemplars included
        crops = draw_crops(most, generator(self.seed, task.index, epoch, "augmentation"), scenario.augmentation)
        draws, labels = generator(self.seed, task.index, epoch, "exemplars"), task.y.cpu()
        crops, on_device = crops.to(scenario.device), order.to(scenario.device)
        if epoch == 0:
            memory.make_room(task.x, task.classes.stop)
        for start in range(0, len(order), size):
            rows, slots = on_device[start : start + size], memory.pick(size, draws)
            x, y = torch.cat([task.x[rows], memory.x[slots]]), torch.cat([task.y[rows], memory.y[slots]])
            yield scenario.prepare(augment(x, crops[2 * start : 2 * start + len(y)], scenario.augmentation)), y
            if epoch == 0:
                memory.observe(task.x[rows], labels[order[start : start + size]].tolist(), draws)
        memory.store_counts()


def class_means(e: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Mean embedding of each class in a batch (0 where it has none) and its samples. [B, D], [B] -> [K, D], [K]

    Built in chapter 7.
    """
    one_hot = F.one_hot(y, classes).to(e.dtype)  # [B, K]
    counts = one_hot.sum(0)
    return one_hot.T @ e / counts.clamp(min=1).unsqueeze(1), counts


def moved_prototypes(prototypes: Tensor, e: Tensor, y: Tensor, momentum: float) -> Tensor:
    """Prototypes after a batch: those of its classes move towards the mean embedding (eq. 2), back on the sphere. -> [K, D]

    Built in chapter 7.
    """
    means, counts = class_means(e, y, len(prototypes))
    moved = F.normalize(momentum * prototypes + (1 - momentum) * means, dim=1)
    return torch.where((counts > 0).unsqueeze(1), moved, prototypes)


def pseudo_prototypical_loss(e: Tensor, y: Tensor, prototypes: Tensor, known: Tensor, temperature: float = 0.1) -> Tensor:
    """The pseudo-prototypical proxy loss (eqs 3 to 7). e [B, D], y [B], prototypes [K, D], known bool [K] -> scalar

    Attractor: the probability that sample i is of its class c against the other classes' prototypes, averaged over c's
    prototype and the batch's other samples of c. Repellor: that a sample j of another class is not of class c, against the mean
    over c's prototype and sample i. The other samples serve as they are: no gradient flows through them.

    Built in chapter 7.
    """
    to_prototypes = (e @ prototypes.T / temperature).masked_fill(~known, -math.inf)  # [B, K]
    to_samples = e @ e.detach().T / temperature  # [B, B]: row = the sample that learns
    own = F.one_hot(y, len(known)).bool()  # [B, K]
    same = y.unsqueeze(1) == y.unsqueeze(0)  # [B, B]
    rest = _rest(to_prototypes)[:, y]  # [B, B]: row j, column i: all prototypes but that of i's class
    by_sample, by_prototype = to_samples - rest, to_prototypes[:, y] - rest  # log odds, [B, B] each
    others = same & ~torch.eye(len(y), dtype=torch.bool, device=y.device)
    proxies = torch.cat([by_sample.masked_fill(~others, -math.inf), by_prototype.diagonal().unsqueeze(1)], dim=1)
    attractor = F.logsigmoid(proxies).logsumexp(1) - own[:, y].sum(1).log()  # [B]
    odds = torch.stack([by_sample, by_prototype]).masked_fill(same, 0.0)  # [2, B, B]
    repellor = (F.logsigmoid(-odds).logsumexp(0) - math.log(2)).masked_fill(same, 0.0)  # [B, B]
    return -(attractor.sum() + repellor.sum()) / len(y)


def _rest(scores: Tensor) -> Tensor:
    """Log of the sum of exponentials over all columns but one. [B, K] -> [B, K], one value for each column left out"""
    K = scores.shape[1]
    left_out = torch.eye(K, dtype=torch.bool, device=scores.device)
    return scores.unsqueeze(1).masked_fill(left_out, -math.inf).logsumexp(2)
