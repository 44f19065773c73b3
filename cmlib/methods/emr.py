"""EmR (embedding regularization): keep the features of past images where they were.

After each task some of its images are kept with their features, the backbone's outputs. While later tasks are learned, the
distance of these images' features from the kept ones is added to the loss, averaged over the past tasks; past heads are frozen.
memory_size 200 a task, strength 1 (the released code's); all kept images take part in every step, un-augmented. Each task has
its own batch norm, which the released code does not freeze: replaying a task goes on moving its statistics
(batch_norm=unfrozen); batch_norm=private freezes them. TIL only. Keeps images, labels, features and batch norms.
Source: Pomponi et al. (2020), "Efficient continual learning in neural networks with embedding regularization".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cmlib.centroids import safe_norm
from cmlib.methods.base import Method, Option, register
from cmlib.methods.rehearsal import IMAGES, kept_exemplars, make_task_memory, rows_by_task
from cmlib.nets import BATCH_NORMS, Backbone
from cmlib.scenario import Scenario, Task


@register("emr")
class EmbeddingRegularization(Method):
    """Plain training that keeps the features of past images in place."""

    title = "EmR"
    summary = "keep the backbone's features of past tasks' images where they were"
    source = "Pomponi et al. (2020)"
    keeps, paper_memory = {"til": {**IMAGES, "features": "D * X"}}, {"til": "(D + I) x M x N"}
    scenarios = ("til",)
    options = {
        "memory_size": Option(200, "images kept a task", int, low=1),
        "strength": Option(1.0, "weight of the distance between features", float, low=0),
    }
    defaults = {"til": {"head": "mlp", "batch_norm": "unfrozen"}}
    batch_norms = BATCH_NORMS

    def __init__(self, options: Mapping[str, Any], scenario: Scenario, backbone: Backbone | None = None) -> None:
        super().__init__(options, scenario, backbone)
        self.memory = make_task_memory(self)
        self.replayed: list[tuple[Tensor, Tensor]] = []  # images, normalised, and kept features of each past task

    def begin_task(self, task: Task) -> None:
        """Freeze the heads so far and add the new one."""
        self.heads.requires_grad_(False)
        super().begin_task(task)

    def loss(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """Cross-entropy plus the distance of past features from the kept ones, averaged over the past tasks. -> scalar"""
        moved = [feature_distance(self.backbone.features(old, i), kept) for i, (old, kept) in enumerate(self._past(task))]
        loss = super().loss(x, y, task)
        return loss + self.option["strength"] * torch.stack(moved).mean() if moved else loss

    def _past(self, task: Task) -> list[tuple[Tensor, Tensor]]:
        """Images and kept features of each past task."""
        if len(self.replayed) < task.index:
            rows = rows_by_task(self, self.memory, task)
            self.replayed = [(self.scenario.prepare(self.memory.x[row]), self.memory.features[row]) for row in rows]
        return self.replayed

    def end_task(self, task: Task) -> None:
        """Keep images of the task just learned and their features, in eval mode; what was replayed as floats is let go."""
        self.replayed = []
        self.memory.add_task(task.x, task.y, self.seed, task.index)
        new = self.memory.of_classes(task.classes.start, task.classes.stop)
        with torch.no_grad():
            features = self.backbone.features(self.scenario.prepare(self.memory.x[new]), task.index)
        self.memory.features = torch.cat([self.memory.features, features]) if task.index else features

    def retained(self) -> dict[str, list[Tensor]]:
        """Images, labels and features."""
        return super().retained() | kept_exemplars(self.memory) | {"features": [self.memory.features]}


def feature_distance(features: Tensor, kept: Tensor) -> Tensor:
    """Mean Euclidean distance of features from kept ones. [n, D], [n, D] -> scalar

    Built in chapter 7.
    """
    return safe_norm(features - kept).mean()
