"""Centroids Matching word for word, as the released code computes it: the slow reference that the method's own step agrees with.

A pass of the backbone for every head, two more for every past head, the past model inside the graph, the support set in chunks.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cmlib.methods.cm import CentroidsMatching
from cmlib.scenario import Task

SUPPORT_CHUNK = 32  # images of the support set that pass at a time


class LiteralStep:
    """A gradient step of CM at a task it has begun, pass by pass (Euclidean distance, shared projectors).

    chunk: images of the support set a pass; None takes all at once, as `CentroidsMatching` does: then both losses are equal.
    The past model takes part in the graph, and its gradients are thrown away.
    """

    def __init__(self, method: CentroidsMatching, task: Task, chunk: int | None = SUPPORT_CHUNK) -> None:
        self.method, self.task, self.chunk = method, task, chunk or len(task.support_y)
        self.past: Any = copy.deepcopy(method.past)
        if self.past is not None:
            self.past.requires_grad_(True)
        self.optimizer = method.make_optimizer()

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """One step. x [B, C, H, W], y [B] -> scalar, detached"""
        self.optimizer.zero_grad()
        if self.past is not None:
            self.past.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss (eqs 3, 5 and 9). -> scalar"""
        cm, t, own = self.method, self.task.index, self.centroids()
        if cm.kind == "til" or not t:
            loss = F.cross_entropy(-_apart(cm.embed(x, t), own), y - self.task.classes.start)
        else:
            projected = [pi(cm.embed(x, i)) for i, pi in enumerate(cm.projectors)]  # a pass of the backbone for every head
            anchors = [pi(c) for pi, c in zip(cm.projectors, [*cm.centroids[:-1], own], strict=True)]
            loss = F.cross_entropy(-_apart(sum(projected) / len(projected), torch.cat(anchors)), y)
        return loss + cm.option["lam"] * self.drift(x) if t else loss

    def drift(self, x: Tensor) -> Tensor:
        """The drift (eq. 4), two passes for every past head. -> scalar"""
        total = torch.zeros((), device=x.device)
        for i in range(self.task.index):
            before = self.past["heads"][i](self.past["backbone"].features(x, i))  # [B, E]
            total = total + torch.linalg.vector_norm(before - self.method.embed(x, i), dim=1).mean()
        return total / self.task.index

    def centroids(self) -> Tensor:
        """The current centroids (eq. 1), chunk by chunk. -> [K, E]"""
        chunks = [self.method.embed(chunk, self.task.index) for chunk in self.method.support.split(self.chunk)]
        e, y = torch.cat(chunks), self.task.support_y
        return torch.stack([e[y == label].mean(0) for label in self.task.classes])


def _apart(e: Tensor, c: Tensor) -> Tensor:
    """Euclidean distances. [B, E], [K, E] -> [B, K]"""
    return torch.linalg.vector_norm(e.unsqueeze(1) - c.unsqueeze(0), dim=2)
