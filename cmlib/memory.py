"""The exemplar memory: training images of past tasks, class-balanced, of fixed total size or fixed size per task."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cmlib.randomness import generator

KINDS = ("total", "per_task")


class ExemplarMemory(nn.Module):
    """Exemplars as raw uint8 images and labels, kept in buffers so that a checkpoint holds them.

    `kind="total"`: `size` exemplars in all, shared evenly by the classes seen and resized at each new task by dropping each
    class's last ones. `kind="per_task"`: `size` exemplars for every task.
    """

    x: Tensor  # uint8 [n, C, H, W]
    y: Tensor  # int64 [n]

    def __init__(self, size: int, kind: str = "total") -> None:
        super().__init__()
        self.size, self.kind = size, kind
        self.register_buffer("x", torch.empty(0, dtype=torch.uint8))
        self.register_buffer("y", torch.empty(0, dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.y)

    def add_task(self, x: Tensor, y: Tensor, seed: int, task: int) -> None:
        """Store exemplars of a task just learned. x uint8 [n, C, H, W], y [n]; what is kept is drawn at random per class."""
        order = torch.randperm(len(y), generator=generator(seed, task, 0, "exemplars")).to(y.device)
        x, y = x[order], y[order]
        old, new = sorted(set(self.y.tolist())), sorted(set(y.tolist()))
        shares = quota(self.size, old + new if self.kind == "total" else new)
        chosen = _first_of_each(y, shares, new)
        if not old:
            self.x, self.y = x[chosen], y[chosen]
            return
        kept = _first_of_each(self.y, shares, old) if self.kind == "total" else slice(None)
        self.x, self.y = torch.cat([self.x[kept], x[chosen]]), torch.cat([self.y[kept], y[chosen]])

    def of_classes(self, first: int, last: int) -> Tensor:
        """Positions of the exemplars with labels first <= y < last."""
        return ((self.y >= first) & (self.y < last)).nonzero().squeeze(1)

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:  # type: ignore[no-untyped-def]
        for name in ("x", "y"):  # buffers grow with the tasks: take the size found
            setattr(self, name, torch.empty_like(state_dict[prefix + name], device=getattr(self, name).device))
        super()._load_from_state_dict(state_dict, prefix, *args)


def quota(size: int, classes: list[int]) -> dict[int, int]:
    """Share `size` evenly over the classes; the first ones get what is left over."""
    share, rest = divmod(size, len(classes))
    return {label: share + (rank < rest) for rank, label in enumerate(classes)}


def _first_of_each(y: Tensor, shares: dict[int, int], classes: list[int]) -> Tensor:
    return torch.cat([(y == label).nonzero().squeeze(1)[: shares[label]] for label in classes])
