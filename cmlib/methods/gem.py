"""GEM (gradient episodic memory): step only where the loss on past tasks' exemplars does not rise.

Each past task's exemplars give a gradient; where the current gradient points against one of them, it is replaced by the sum of
itself and a combination of these gradients that points against none (a quadratic program in as many unknowns as past tasks).
memory_size 500 a task for CIFAR-10, 1,000 otherwise; margin 0.5, the memory strength of the authors: with a margin above 0 the
combination is at least `margin` of every past gradient. exemplars=first takes the first ones in class order: what the released
code did on TinyImageNet, whose files are sorted by class. A past task's exemplars go through the net as one batch, in train mode.
Keeps the exemplars. Source: Lopez-Paz and Ranzato (2017), "Gradient episodic memory for continual learning", eqs 8 to 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cmlib.formulas import in_both
from cmlib.methods.base import Method, Option, flat, flat_gradient, register, zero_or
from cmlib.methods.rehearsal import IMAGES, PAPER_MEMORY, kept_exemplars, make_task_memory, rows_by_task
from cmlib.nets import Backbone
from cmlib.scenario import Scenario, Task

RIDGE = 1e-3  # added to the diagonal of the quadratic program, as the authors do


@register("gem")
class GradientEpisodicMemory(Method):
    """Plain training with gradients projected so that no past task's loss rises."""

    title = "GEM"
    summary = "project each gradient so that no past task's loss rises on its exemplars"
    source = "Lopez-Paz and Ranzato (2017)"
    keeps, paper_memory = in_both(IMAGES), in_both(PAPER_MEMORY)
    recordable = False  # whether a gradient is projected depends on its value
    options = {
        "memory_size": Option(500, "exemplars a task", int, low=1),
        "margin": Option(0.5, "least share of each past gradient that is added to a violating one", float, low=0),
        "exemplars": Option(
            "random", "random, the same number a class; or the first in class order", choices=("random", "first")
        ),
    }

    def __init__(self, options: Mapping[str, Any], scenario: Scenario, backbone: Backbone | None = None) -> None:
        super().__init__(options, scenario, backbone)
        self.memory = make_task_memory(self)
        self.references: list[tuple[Tensor, Tensor]] = []  # the past tasks' exemplars, normalised; filled at the first step

    def begin_task(self, task: Task) -> None:
        """Add the head."""
        super().begin_task(task)
        self.references = []

    def step(self, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """One step along the projected gradient; returns the loss, detached."""
        learning = [parameter for parameter in self.parameters() if parameter.requires_grad]
        past = [self._gradient(learning, *exemplars, self.scenario.tasks[i]) for i, exemplars in enumerate(self._exemplars(task))]
        optimizer.zero_grad(set_to_none=True)
        loss = self.loss(x, y, task)
        loss.backward()
        if past:
            g = flat([zero_or(p.grad, p) for p in learning])  # [P]
            new = project(g, torch.stack(past), self.option["margin"])
            for parameter, part in zip(learning, new.split([p.numel() for p in learning]), strict=True):
                parameter.grad = torch.empty_like(parameter).copy_(part.view_as(parameter))  # as the fused SGD lays it out
        optimizer.step()
        return loss.detach()

    def _exemplars(self, task: Task) -> list[tuple[Tensor, Tensor]]:
        """Images and labels of each past task's exemplars."""
        if len(self.references) < task.index:
            rows = rows_by_task(self, self.memory, task)
            self.references = [(self.scenario.prepare(self.memory.x[row]), self.memory.y[row]) for row in rows]
        return self.references

    def _gradient(self, learning: list[nn.Parameter], x: Tensor, y: Tensor, past: Task) -> Tensor:
        """Gradient of the loss on a past task's exemplars. -> [P]"""
        return flat_gradient(self.loss(x, y, past), learning)

    def end_task(self, task: Task) -> None:
        """Store exemplars of the task just learned."""
        if self.option["exemplars"] == "random":
            self.memory.add_task(task.x, task.y, self.seed, task.index)
        else:
            self.memory.append(task.x[: self.memory.size], task.y[: self.memory.size])
        self.references = []  # as floats they take four times the room of the exemplars

    def retained(self) -> dict[str, list[Tensor]]:
        """The exemplars and their labels."""
        return super().retained() | kept_exemplars(self.memory)


def project(g: Tensor, G: Tensor, margin: float = 0.5, ridge: float = RIDGE) -> Tensor:
    """The gradient to step along (eqs 11 and 12). g [P], G [t, P], the past tasks' gradients -> [P]

    g itself where it points against none of them, else g + v G with v from `dual`. What is not finite passes as it is.

    Built in chapter 7.
    """
    rows = torch.cat([G, g.unsqueeze(0)]).double()
    products = (rows[:-1] @ rows.T).cpu().numpy()  # [t, t + 1]: the one synchronisation of a step
    gram, along = products[:, :-1], products[:, -1]
    if not np.isfinite(products).all() or (along >= 0).all():
        return g
    v = torch.from_numpy(dual(gram, along, margin, ridge)).to(g.device)
    return (rows[-1] + v @ rows[:-1]).to(g.dtype)


def dual(gram: NDArray[np.float64], along: NDArray[np.float64], margin: float, ridge: float = RIDGE) -> NDArray[np.float64]:
    """Minimise 1/2 v' P v + along' v over v >= margin, P = gram + ridge I. gram [t, t] = G G', along [t] = G g -> v [t]

    With P = L L' this is non-negative least squares in v - margin. Where that fails, coordinates are minimised in turn.
    """
    from scipy.linalg import cholesky, solve_triangular  # here: half a second that only GEM needs
    from scipy.optimize import nnls

    P = gram + ridge * np.eye(len(gram))
    q = along + margin * P.sum(1)
    try:
        L = cholesky(P, lower=True)
        return margin + nnls(L.T, -solve_triangular(L, q, lower=True))[0]
    except (np.linalg.LinAlgError, RuntimeError, ValueError):
        return margin + coordinate_descent(P, q)


def coordinate_descent(P: NDArray[np.float64], q: NDArray[np.float64], rounds: int = 1000) -> NDArray[np.float64]:
    """Minimise 1/2 u' P u + q' u over u >= 0, one coordinate after the other. -> u [t]"""
    u = np.zeros(len(q))
    for _ in range(rounds):
        for i in range(len(q)):
            if P[i, i] > 0:
                u[i] = max(0.0, u[i] - (P[i] @ u + q[i]) / P[i, i])
    return u
