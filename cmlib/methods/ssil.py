"""SS-IL (separated softmax for incremental learning): new and old classes never compete in one softmax.

With one softmax over all classes, the many new images push the scores of old classes down. Here a current image is classified
among the current task's classes only, a replayed one among the past classes only; and a copy of the network from before the
task teaches each past task's scores, softened by a temperature, one task at a time. A batch holds batch_size current images and
as many replayed ones (batch_split=double), from a class-balanced memory. temperature 2, memory_size 500 for CIFAR-10 and
CIFAR-100, 1,000 for TinyImageNet (the released code's). epochs as all methods have; the paper gave SS-IL alone 100.
CIL only. Keeps the exemplars. Source: Ahn et al. (2021), "SS-IL: separated softmax for incremental learning", eqs 4 to 6.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cmlib.methods.base import NORM_OPTIONS, Option, register
from cmlib.methods.rehearsal import IMAGES, MEMORY_OPTIONS, PAPER_MEMORY, Rehearsal
from cmlib.scenario import Task


@register("ssil")
class SeparatedSoftmax(Rehearsal):
    """Rehearsal with separated softmax and distillation task by task."""

    title = "SS-IL"
    summary = "rehearsal in which new and old classes never compete in one softmax"
    source = "Ahn et al. (2021)"
    keeps, paper_memory = {"cil": IMAGES}, {"cil": PAPER_MEMORY}
    scenarios = ("cil",)
    options = {
        **MEMORY_OPTIONS,
        **NORM_OPTIONS,
        "temperature": Option(2.0, "softens the scores that are distilled", float, low=0, high=1000, above_low=True),
    }
    defaults = {"cil": {"batch_split": "double"}}

    def begin_task(self, task: Task) -> None:
        """Keep a copy of the network, the teacher, and add the new head."""
        if task.index:
            self.take_snapshot()
        super().begin_task(task)

    def loss(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """Separated softmax plus, from the second task on, distillation task by task. -> scalar"""
        if self.past is None:
            return super().loss(x, y, task)
        logits = self.all_logits(self.features_by_task(x, y))  # [B, classes seen]
        self.batch_scores = logits.detach()
        taught = task_distillation(logits, self.past_logits(x), self.past_sizes(task), self.option["temperature"])
        return separated_cross_entropy(logits, y, task.classes.start) + taught

    def past_sizes(self, task: Task) -> int | list[int]:
        """Classes of each past task: one number where all tasks have as many."""
        sizes = self.scenario.task_sizes
        return sizes[0] if len(set(sizes)) == 1 else list(sizes[: task.index])

    def past_logits(self, x: Tensor) -> Tensor:
        """The teacher's scores, without gradient. -> [B, past classes]"""
        assert self.past is not None
        with torch.no_grad():
            hidden = self.past["trunk"](self.past["backbone"](x))
            return torch.cat([head(hidden) for head in self.past["heads"].children()], dim=1)


def separated_cross_entropy(logits: Tensor, y: Tensor, first_new: int) -> Tensor:
    """Cross-entropy in which labels >= first_new compete among themselves, and so do those below. [B, K], [B] -> scalar

    Built in chapter 7.
    """
    new_class = torch.arange(logits.shape[1], device=y.device) >= first_new  # [K]
    foreign = new_class != (y >= first_new).unsqueeze(1)  # [B, K]
    return F.cross_entropy(logits.masked_fill(foreign, -math.inf), y)


def task_distillation(logits: Tensor, taught: Tensor, classes_per_task: int | list[int], temperature: float) -> Tensor:
    """Divergence of softened scores from the teacher's, a softmax a past task, summed over them. [B, K], [B, past] -> scalar

    classes_per_task: of every past task, or one number each.

    Built in chapter 7.
    """
    size, T = len(logits), temperature
    if not isinstance(classes_per_task, int):  # blocks of unequal widths, one after the other
        blocks = zip(logits[:, : taught.shape[1]].split(classes_per_task, 1), taught.split(classes_per_task, 1), strict=True)
        return torch.stack([task_distillation(one, other, other.shape[1], T) for one, other in blocks]).sum()
    ours = (logits[:, : taught.shape[1]] / T).reshape(size, -1, classes_per_task)  # [B, t, k]
    theirs = (taught / T).reshape(size, -1, classes_per_task)
    divergence = F.kl_div(ours.log_softmax(-1), theirs.log_softmax(-1), reduction="sum", log_target=True)
    return divergence / size * T**2
