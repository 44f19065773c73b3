"""Online EWC: elastic weight consolidation with one set of weights and one accumulated importance for all past tasks.

Only the weights after the last task are kept, and the importances of all tasks are added up; decay < 1 lets old ones fade.
Its memory does not grow with the tasks. Heads that came later enter with importance 0. strength 100, decay 1 (as in
the released code). Keeps one set of weights and one of importances (the paper counts P, one set).
Source: Schwarz et al. (2018), "Progress and compress", section 4.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cmlib.formulas import in_both
from cmlib.methods.base import Method, Option, flat, register
from cmlib.methods.ewc import EWC_OPTIONS, consolidated, fisher, penalty
from cmlib.scenario import Task


@register("oewc")
class OnlineEWC(Method):
    """Elastic weight consolidation with one running importance."""

    title = "OEWC"
    summary = "as EWC, with one running importance for all past tasks"
    source = "Schwarz et al. (2018)"
    keeps = in_both({"past weights": "W", "importances": "W"})
    paper_memory = in_both("P")
    options = {**EWC_OPTIONS, "decay": Option(1.0, "how much of the importance so far a new task leaves", float, low=0, high=1)}

    weights: Tensor  # [P], after the last task
    importance: Tensor  # [P], of all past tasks

    def begin_task(self, task: Task) -> None:
        """Add the head; its weights enter with importance 0."""
        super().begin_task(task)
        size, device = sum(parameter.numel() for parameter in consolidated(self)), self.scenario.device
        for name in ("weights", "importance"):
            before = getattr(self, name) if task.index else torch.zeros(0, device=device)
            self.register_buffer(name, torch.cat([before, torch.zeros(size - len(before), device=device)]))

    def loss(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """Cross-entropy plus one penalty. -> scalar"""
        loss = super().loss(x, y, task)
        if not task.index:
            return loss
        return loss + self.option["strength"] * penalty(flat(consolidated(self)), self.weights, self.importance)

    def end_task(self, task: Task) -> None:
        """Keep the weights; add the task's importances to those so far."""
        self.weights.copy_(flat(consolidated(self)).detach())
        self.importance.mul_(self.option["decay"]).add_(fisher(self, task))

    def retained(self) -> dict[str, list[Tensor]]:
        """One set of weights and importances."""
        return {**super().retained(), "past weights": [self.weights], "importances": [self.importance]}
