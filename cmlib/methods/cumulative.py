"""Cumulative: train on the union of all tasks so far. The mark to reach; it keeps all data.

Batches are drawn from the plain shuffled union; batch_split=each takes a whole batch of every task instead, so that batches grow
with the tasks, and batch_norm_batches=by_task takes their batch statistics apart: both are what the released code did.
Source: the paper, section 5.1, "Baselines".
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from cmlib.formulas import in_both
from cmlib.methods.base import NORM_OPTIONS, Method, Option, register
from cmlib.scenario import Task


@register("cumulative")
class Cumulative(Method):
    """Plain training on all tasks so far at once."""

    title = "Cumulative"
    summary = "train on all tasks so far at once"
    source = "paper, section 5.1"
    keeps = in_both({"training images": "I * X", "labels": "X"})
    options = {
        "batch_split": Option(
            "union", "union: batches of the shuffled union; each: a whole batch of every task", choices=("union", "each")
        ),
        **NORM_OPTIONS,
    }

    def _seen(self, task: Task) -> list[Task]:
        return self.scenario.tasks[: task.index + 1]

    def batches(self, task: Task, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The shuffled union of all tasks so far, or a whole batch of each of them."""
        seen, size = self._seen(task), self.option["batch_size"]
        if self.option["batch_split"] == "each":
            parts = [(one.x, one.y, size) for one in reversed(seen)]  # the current task first: its images make the epoch
            return self.scenario.batches(parts, task.index, epoch)
        x, y = torch.cat([one.x for one in seen]), torch.cat([one.y for one in seen])
        return self.scenario.batches([(x, y, size)], task.index, epoch)

    def loss(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """Cross-entropy; TIL: each sample over its own task's classes. -> scalar"""
        if self.kind == "cil":
            return super().loss(x, y, task)
        return self.own_task_loss(self.features_by_task(x, y), y)

    def retained(self) -> dict[str, list[Tensor]]:
        """All training images of the tasks so far."""
        seen = self.scenario.tasks[: len(self.heads)]
        return {**super().retained(), "training images": [one.x for one in seen], "labels": [one.y for one in seen]}
