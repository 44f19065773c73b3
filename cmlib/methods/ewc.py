"""EWC (elastic weight consolidation): hold each weight where it was, the more so the more a past task needed it.

After each task the weights are kept, with their importance: squared gradients at the true labels, in the place of the Fisher
information's diagonal, whose labels would be drawn from the model (Kunstner et al., 2019). While later tasks are learned, the
squared distance of every weight from where it was, weighted by its importance, is added to the loss, once for each past task.
strength 100 (the paper's); fisher=batch is what was measured in the paper: the squared gradient of the mean loss of a mini-batch,
in eval mode, averaged over batches, smaller than the per-sample (`empirical`) one about by the batch size.
Keeps weights and importances of each past task (the paper counts N x P, a set a task; the importances come on top).
Source: Kirkpatrick et al. (2017), "Overcoming catastrophic forgetting in neural networks", eq. 3, without its factor 1/2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from cmlib.formulas import in_both
from cmlib.methods.base import Method, Option, flat, flat_gradient, register
from cmlib.scenario import Task

FISHERS = ("batch", "empirical")
EWC_OPTIONS = {
    "strength": Option(100.0, "weight of the penalty", float, low=0),
    "fisher": Option("batch", "squared gradients of mini-batches, or of single samples (empirical)", choices=FISHERS),
}


@register("ewc")
class EWC(Method):
    """Elastic weight consolidation, one penalty for each past task."""

    title = "EWC"
    summary = "hold each weight where it was, by its importance for each past task"
    source = "Kirkpatrick et al. (2017)"
    keeps = in_both({"past weights": "A", "importances": "A"})
    paper_memory = in_both("N x P")
    options = EWC_OPTIONS

    def begin_task(self, task: Task) -> None:
        """Add the head, and room for the task's weights and importances."""
        super().begin_task(task)
        size = sum(parameter.numel() for parameter in consolidated(self))
        for name in ("weights", "importance"):
            self.register_buffer(f"{name}_{task.index}", torch.zeros(size, device=self.scenario.device))

    def loss(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """Cross-entropy plus the penalty of each past task. -> scalar"""
        loss = super().loss(x, y, task)
        if not task.index:
            return loss
        now = flat(consolidated(self))  # [P]
        return loss + self.option["strength"] * sum(penalty(now, *self.kept(i)) for i in range(task.index))

    def kept(self, task: int) -> tuple[Tensor, Tensor]:
        """Weights and importances after a task, each [P]."""
        return getattr(self, f"weights_{task}"), getattr(self, f"importance_{task}")

    def end_task(self, task: Task) -> None:
        """Keep the weights and their importance for the task."""
        weights, importance = self.kept(task.index)
        weights.copy_(flat(consolidated(self)).detach())
        importance.copy_(fisher(self, task))

    def retained(self) -> dict[str, list[Tensor]]:
        """Weights and importances of each past task."""
        kept = [self.kept(i) for i in range(len(self.heads))]
        return {**super().retained(), "past weights": [w for w, _ in kept], "importances": [f for _, f in kept]}


def consolidated(method: Method) -> list[nn.Parameter]:
    """The parameters that can be forgotten: the network's, heads last, without batch norms that belong to one task only."""
    private = {id(one) for norm in method.backbone.task_norms() if norm.kind == "private" for one in norm.parameters()}
    parts = (method.backbone, method.trunk, method.heads)
    return [one for part in parts for one in part.parameters() if id(one) not in private]


def penalty(now: Tensor, weights: Tensor, importance: Tensor) -> Tensor:
    """Squared distance of the weights from kept ones, by importance; later weights are free. [P], [Q], [Q], Q <= P -> scalar

    Built in chapter 7.
    """
    return (importance * (now[: len(weights)] - weights).square()).sum()


def fisher(method: Method, task: Task) -> Tensor:
    """Importance of every consolidated weight for a task: squared gradients at its true labels, in eval mode. -> [P]"""
    squares = sample_squares if method.option["fisher"] == "empirical" else batch_square
    total, n = torch.zeros_like(flat(consolidated(method))), 0
    part = [(task.x, task.y, method.option["batch_size"])]
    for x, y in method.scenario.batches(part, task.index, epoch=method.option["epochs"]):  # draws that training never makes
        total += squares(method, x, y, task)
        n += len(y) if squares is sample_squares else 1
    return total / n


def batch_square(method: Method, x: Tensor, y: Tensor, task: Task) -> Tensor:
    """Squared gradient of the mean loss of a batch. -> [P]"""
    return flat_gradient(Method.loss(method, x, y, task), consolidated(method)).square()


def sample_squares(method: Method, x: Tensor, y: Tensor, task: Task) -> Tensor:
    """Sum over the batch of the squared gradient of each sample's loss. -> [P]"""
    names = {id(one): f"method.{name}" for name, one in method.named_parameters()}
    parameters = {names[id(one)]: one.detach() for one in consolidated(method)}
    net = _PlainLoss(method, task)

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return functional_call(net, values, (x.unsqueeze(0), y.unsqueeze(0)))

    found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)  # a gradient a sample, [B, ...] each
    method.batch_scores = None  # a tensor of vmap's own, of no use outside
    return flat([one.square().sum(0) for one in found.values()])


class _PlainLoss(nn.Module):
    """The cross-entropy of a method as a module, so that it can be called with other weights."""

    def __init__(self, method: Method, task: Task) -> None:
        super().__init__()
        self.method, self.task = method, task

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return Method.loss(self.method, x, y, self.task)
