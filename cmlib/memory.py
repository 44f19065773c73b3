"""The exemplar memory: training images of past tasks, class-balanced, of fixed total size or fixed size per task."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cmlib.randomness import generator

KINDS = ("total", "per_task")  # of a method's exemplar memory


class ExemplarMemory(nn.Module):
    """Exemplars as raw uint8 images and labels, kept in buffers so that a checkpoint holds them.

    `kind="total"`: `size` exemplars in all, shared evenly by the classes seen and resized at each new task by dropping each
    class's last ones. `kind="per_task"`: `size` exemplars for every task. `features` is for a method that keeps some of each.
    """

    x: Tensor  # uint8 [n, C, H, W]
    y: Tensor  # int64 [n]
    features: Tensor  # float [n, D], or empty

    def __init__(self, size: int, kind: str = "total") -> None:
        super().__init__()
        self.size, self.kind = size, kind
        self.register_buffer("x", torch.empty(0, dtype=torch.uint8))
        self.register_buffer("y", torch.empty(0, dtype=torch.int64))
        self.register_buffer("features", torch.empty(0))

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

    def append(self, x: Tensor, y: Tensor) -> None:
        """Store these images as they are."""
        self.x, self.y = (torch.cat([self.x, x]), torch.cat([self.y, y])) if len(self) else (x.clone(), y.clone())

    def of_classes(self, first: int, last: int) -> Tensor:
        """Positions of the exemplars with labels first <= y < last."""
        return ((self.y >= first) & (self.y < last)).nonzero().squeeze(1)

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:  # type: ignore[no-untyped-def]
        for name in ("x", "y", "features"):  # buffers grow with the tasks: take the size found
            setattr(self, name, torch.empty_like(state_dict[prefix + name], device=getattr(self, name).device))
        super()._load_from_state_dict(state_dict, prefix, *args)


class StreamMemory(ExemplarMemory):
    """Exemplars of a stream: at most `size` of each class, every image so far equally likely to be among them (reservoir).

    The exemplars of class c have the places c * size ... (c + 1) * size - 1; the label of an empty place is -1.
    """

    seen: Tensor  # int64 [classes]

    def __init__(self, size: int, classes: int) -> None:
        super().__init__(size, "per_class")
        self.register_buffer("seen", torch.zeros(classes, dtype=torch.int64))
        self.counts: list[int] = []  # of `seen`, here for speed; read by `make_room`, written by `store_counts`

    def make_room(self, like: Tensor, classes: int) -> None:
        """Empty places for all classes below `classes`. like: images [n, C, H, W]"""
        self.counts = self.seen.tolist()
        n = classes * self.size - len(self)
        empty = torch.zeros(n, *like.shape[1:], dtype=like.dtype, device=like.device)
        self.append(empty, torch.full((n,), -1, device=like.device))

    def pick(self, n: int, draws: torch.Generator) -> Tensor:
        """Places of n exemplars: a class of those seen, then one of its exemplars, at random; none while there are none."""
        counts = self.counts = self.counts or self.seen.tolist()
        stored = torch.tensor([(c, min(count, self.size)) for c, count in enumerate(counts) if count], dtype=torch.int64)
        if not len(stored):
            return torch.zeros(0, dtype=torch.int64, device=self.x.device)
        classes, filled = stored[torch.randint(len(stored), (n,), generator=draws)].T
        rank = (torch.rand(n, generator=draws) * filled).long().clamp(max=filled - 1)
        return (classes * self.size + rank).to(self.x.device)

    def observe(self, x: Tensor, labels: list[int], draws: torch.Generator) -> None:
        """Images of the stream pass by. x [n, C, H, W]"""
        places: dict[int, int] = {}
        for row, (label, u) in enumerate(zip(labels, torch.rand(len(labels), generator=draws).tolist(), strict=True)):
            count = self.counts[label]
            rank = count if count < self.size else int(u * (count + 1))
            self.counts[label] += 1
            if rank < self.size:
                places[label * self.size + rank] = row
        slots, rows = torch.tensor([*places.items()], dtype=torch.int64).reshape(-1, 2).T.to(x.device)
        self.x[slots], self.y[slots] = x[rows], slots // self.size

    def store_counts(self) -> None:
        """Put the counts where a checkpoint finds them."""
        self.seen.copy_(torch.tensor(self.counts))


def quota(size: int, classes: list[int]) -> dict[int, int]:
    """Share `size` evenly over the classes; the first ones get what is left over.

    Built in chapter 5 (paper, section 4.2).
    """
    share, rest = divmod(size, len(classes))
    return {label: share + (rank < rest) for rank, label in enumerate(classes)}


def shortages(memory: ExemplarMemory, counts: Sequence[Sequence[int]]) -> dict[int, tuple[int, int]]:
    """Classes with fewer images than places in the memory when they arrive: both numbers by label.

    counts: training images of each class, a row a task [N][classes of the task]
    """
    found: dict[int, tuple[int, int]] = {}
    for task, row in enumerate(counts):
        first = sum(map(len, counts[:task]))
        new = list(range(first, first + len(row)))
        sharing = list(range(new[-1] + 1)) if memory.kind == "total" else new
        shares = dict.fromkeys(new, memory.size) if memory.kind == "per_class" else quota(memory.size, sharing)
        found |= {label: (n, shares[label]) for label, n in zip(new, row, strict=True) if n < shares[label]}
    return found


def _first_of_each(y: Tensor, shares: dict[int, int], classes: list[int]) -> Tensor:
    return torch.cat([(y == label).nonzero().squeeze(1)[: shares[label]] for label in classes])
