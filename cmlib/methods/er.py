"""ER (experience replay): mix exemplars of past tasks into every batch.

A memory of fixed total size holds class-balanced exemplars of all tasks so far. TIL: a batch is shared evenly by the tasks
seen, each replayed sample through its own task's head. CIL: half of a batch is current, half comes from the memory.
Options: memory_size 500 for CIFAR-10 and CIFAR-100, 1,000 for TinyImageNet in CIL (the released code's values);
batch_norm_batches=by_task takes batch statistics of each task apart, as the released code did.
Keeps the exemplars. Source: Chaudhry et al. (2019), "On tiny episodic memories in continual learning".
"""

from __future__ import annotations

from torch import Tensor

from cmlib.formulas import in_both
from cmlib.methods.base import NORM_OPTIONS, register
from cmlib.methods.rehearsal import IMAGES, MEMORY_OPTIONS, PAPER_MEMORY, Rehearsal
from cmlib.scenario import Task


@register("er")
class ExperienceReplay(Rehearsal):
    """Plain training on batches that hold exemplars of past tasks."""

    title = "ER"
    summary = "mix exemplars of past tasks into every batch"
    source = "Chaudhry et al. (2019)"
    keeps, paper_memory = in_both(IMAGES), in_both(PAPER_MEMORY)
    options = {**MEMORY_OPTIONS, **NORM_OPTIONS}
    defaults = {"cil": {"batch_split": "half"}}

    def loss(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """Cross-entropy; TIL: each sample over its own task's classes. -> scalar"""
        if self.kind == "cil":
            return super().loss(x, y, task)
        return self.own_task_loss(self.features_by_task(x, y), y)
