"""ER (experience replay): mix exemplars of past tasks into every batch.

A memory of fixed total size holds class-balanced exemplars of all tasks so far. TIL: a batch is shared evenly by the tasks
seen, each replayed sample through its own task's head. CIL: half of a batch is current, half comes from the memory.
Options: memory_size 500 for CIFAR-10 and CIFAR-100, 1,000 for TinyImageNet in CIL (the released code's values);
batch_norm_batches=by_task takes batch statistics of each task apart, as the released code did.
Keeps the exemplars. Source: Chaudhry et al. (2019), "On tiny episodic memories in continual learning".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from cmlib.formulas import in_both
from cmlib.methods.base import NORM_OPTIONS, Method, register
from cmlib.methods.rehearsal import IMAGES, MEMORY_OPTIONS, PAPER_MEMORY, kept_exemplars, make_memory, rehearsal_batches
from cmlib.nets import Backbone
from cmlib.scenario import Scenario, Task


@register("er")
class ExperienceReplay(Method):
    """Plain training on batches that hold exemplars of past tasks."""

    title = "ER"
    summary = "mix exemplars of past tasks into every batch"
    source = "Chaudhry et al. (2019)"
    keeps, paper_memory = in_both(IMAGES), in_both(PAPER_MEMORY)
    options = {**MEMORY_OPTIONS, **NORM_OPTIONS}
    defaults = {"cil": {"batch_split": "half"}}

    def __init__(self, options: Mapping[str, Any], scenario: Scenario, backbone: Backbone | None = None) -> None:
        super().__init__(options, scenario, backbone)
        self.memory = make_memory(self.option, scenario.task_sizes)

    def batches(self, task: Task, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches that mix the current task with the memory."""
        return rehearsal_batches(self, self.memory, task, epoch)

    def loss(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """Cross-entropy; TIL: each sample over its own task's classes. -> scalar"""
        if self.kind == "cil":
            return super().loss(x, y, task)
        return self.own_task_loss(self.features_by_task(x, y), y)

    def end_task(self, task: Task) -> None:
        """Store exemplars of the task just learned."""
        self.memory.add_task(task.x, task.y, self.seed, task.index)

    def retained(self) -> dict[str, list[Tensor]]:
        """The exemplars and their labels."""
        return super().retained() | kept_exemplars(self.memory)
