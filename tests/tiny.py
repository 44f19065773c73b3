"""A small network and small data for tests that are about anything else: a step takes a thousandth of a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cmlib import datasets, nets
from cmlib.methods import base
from cmlib.nets import Backbone, TaskBatchNorm2d
from cmlib.randomness import seeded


class TinyNet(Backbone):
    """Two convolutions, each with the batch norm that knows tasks. [B, C, H, W] -> [B, 8]"""

    out_features = 8

    def __init__(self, channels: int, norm: str) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, 4, 3, 2, 1, bias=False), TaskBatchNorm2d(4, norm)
        self.conv2, self.norm2 = nn.Conv2d(4, 8, 3, 2, 1, bias=False), TaskBatchNorm2d(8, norm)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))).mean((2, 3))


def tiny_backbone(channels: int, norm: str, seed: int, kind: str = nets.DEFAULT) -> Backbone:
    """In place of `make_backbone`; the backbones that are asked for by name are small themselves."""
    if kind != nets.DEFAULT:
        return nets.make_backbone(channels, norm, seed, kind)
    with seeded(seed, 0, "backbone"):
        return TinyNet(channels, norm).to(memory_format=torch.channels_last)


@contextmanager
def tiny_nets() -> Iterator[pytest.MonkeyPatch]:
    """All methods have the small network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "make_backbone", tiny_backbone)
        yield patch


def arrays(classes: int, each: int, seed: int = 0, size: int = 8) -> datasets.ImageData:
    """Images that differ by class: a class is a shade, with noise; a fifth as many for the test."""
    rng = np.random.default_rng(seed)

    def images(count: int) -> Any:
        y = np.repeat(np.arange(classes), count)
        shade = 255 * (y[:, None, None] + 0.5) / classes
        return np.clip(shade + 30 * rng.standard_normal((len(y), size, size)), 0, 255).astype(np.uint8), y

    return datasets.load((images(each), images(max(2, each // 5))))
