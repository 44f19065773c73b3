"""Cumulative: train on the union of all tasks so far. The upper bound of every table; it keeps all data.

Batches are drawn from the plain shuffled union (the released code draws one batch per task instead).
Source: the paper, section 5.1, "Baselines".
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from cmlib.methods.base import Method, register
from cmlib.scenario import Task


@register("cumulative")
class Cumulative(Method):
    """Plain training on all tasks so far at once."""

    title = "Cumulative"
    summary = "train on all tasks so far at once: the upper bound"
    source = "paper, section 5.1"

    def _seen(self, task: Task) -> list[Task]:
        return self.scenario.tasks[: task.index + 1]

    def batches(self, task: Task, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The shuffled union of all tasks so far."""
        seen = self._seen(task)
        x, y = torch.cat([one.x for one in seen]), torch.cat([one.y for one in seen])
        return self.scenario.batches([(x, y, self.option["batch_size"])], task.index, epoch)

    def loss(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """Cross-entropy; TIL: each sample over its own task's classes. -> scalar"""
        if self.kind == "cil":
            return super().loss(x, y, task)
        return self.own_task_loss(self.features_by_task(x, y), y)

    def retained(self) -> dict[str, list[Tensor]]:
        """All training images of the tasks so far."""
        seen = self.scenario.tasks[: len(self.heads)]
        return {**super().retained(), "training images": [one.x for one in seen], "labels": [one.y for one in seen]}
