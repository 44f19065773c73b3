"""Checks of chapter 4: task-incremental Centroids Matching."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from cmlib.centroids import class_centroids
from cmlib.teaching.checks.base import Test, exercise

BEFORE, AFTER, SQUARED = 0.7311, 0.8808, 0.9991  # softmax of minus (3, 4), (6, 8) and (9, 16), first class


def _number(test: Test, what: str, value: Any) -> float:
    """One number, whatever type it has."""
    if isinstance(value, Tensor):
        test.true(value.numel() == 1, f"{what} must be one number, got a tensor of shape {list(value.shape)}")
        value = value.detach()
    try:
        return float(value)
    except (TypeError, ValueError):
        test.true(False, f"{what} must be a number, got {type(value).__name__}")
        raise


@exercise(
    "4.1", hint="twice the coordinates means twice every distance: 3 and 4 become 6 and 8; now take the softmax of minus those"
)
def ch04_1(answer: Any, test: Test) -> None:
    """The probability of class 0 at (4, 0) after every embedding and centroid has been doubled."""
    p = _number(test, "the probability", answer() if callable(answer) else answer)
    test.true(0 <= p <= 1, f"a probability lies between 0 and 1, got {p:.4g}")
    test.true(abs(p - BEFORE) > 0.005, f"{p:.4g} is the value before doubling: the softmax does notice the scale")
    test.true(abs(p - (1 - AFTER)) > 0.005, f"{p:.4g} is the probability of class 1, asked is class 0")
    test.true(abs(p - SQUARED) > 0.0005, f"{p:.4g} belongs to squared distances; CM uses plain ones")
    test.close("the probability of class 0", p, AFTER, tolerance=0.003)


@exercise(
    "4.2", hint="add up the embeddings of each class, count its samples, divide; index_add_ or a loop over the classes will do"
)
def ch04_2(answer: Any, test: Test) -> None:
    """Centroids of eq. 1 without one-hot vectors: answer(e, y, classes) -> [K, E]."""
    e = torch.tensor([[0.0, 0.0], [2.0, 0.0], [4.0, 4.0]])
    toy = test.shape("centroids of the toy case", answer(e, torch.tensor([0, 0, 1]), 2), (2, 2))
    test.close("centroids of the toy case", toy, [[1.0, 0.0], [4.0, 4.0]])
    draws = torch.Generator().manual_seed(4)
    for classes, size in ((3, 5), (2, 1), (5, 16), (4, 3)):
        y = torch.cat([torch.arange(classes), torch.randint(0, classes, (2 * classes,), generator=draws)])
        y = y[torch.randperm(len(y), generator=draws)]  # unsorted, classes of different size
        e = torch.randn(len(y), size, generator=draws, requires_grad=True)
        given = e.detach().clone()
        centroids = test.shape(f"centroids of {classes} classes", answer(e, y, classes), (classes, size))
        test.close(f"centroids of {classes} classes in mixed order", centroids, class_centroids(e, y, classes).detach())
        weights = torch.randn(classes, size, generator=draws)
        gradient = test.gradient("the centroids", centroids * weights, e)
        (expected,) = torch.autograd.grad((class_centroids(e, y, classes) * weights).sum(), e)
        test.close("the gradient of the centroids", gradient, expected)
        test.true(torch.equal(e.detach(), given), "the embeddings given to the function were changed")


def _fake(lam: float, moves: tuple[float, ...]) -> list[SimpleNamespace]:
    """Snapshots of four points that moved by `moves` times (3, 4), the half of them, and less for a larger lam."""
    start = torch.tensor([[0.0, 0.0], [1.0, 1.0], [5.0, 0.0], [0.0, 2.0]])
    mask, y = torch.tensor([[1.0], [0.0], [1.0], [0.0]]), torch.tensor([0, 0, 1, 1])
    step = torch.tensor([3.0, 4.0]) / (1 + lam)
    spaces = []
    for after, move in enumerate(moves, start=1):
        points = (start + move * mask * step).numpy()
        spaces.append(SimpleNamespace(after=after, points=points, labels=y.numpy(), centroids=points[:2], centroid_labels=y[:2]))
    return spaces


@exercise("4.3", hint="for each lam: the norm of (last points - first points) along the features, then the mean over the points")
def ch04_3(answer: Any, test: Test) -> None:
    """Drift against lam: answer(record, lams) -> {lam: mean distance between the first and the last snapshot's points}."""
    for moves, lams in (((0.0, 1.0), (0.0, 1.0)), ((0.0, 7.0, 1.0), (0.0, 0.1, 1.0)), ((2.0, 1.0, 4.0, 3.0), (0.5,))):
        asked: list[float] = []

        def record(lam: float, moves: tuple[float, ...] = moves, asked: list[float] = asked) -> list[SimpleNamespace]:
            asked.append(lam)
            return _fake(lam, moves)

        found = answer(record, lams)
        test.true(isinstance(found, dict), f"the result must be a dictionary from lam to drift, got {type(found).__name__}")
        test.true(set(found) == set(lams), f"the keys must be {list(lams)}, got {list(found)}")
        test.true(set(asked) == set(lams), f"record must be called with {list(lams)}, it was called with {asked}")
        for lam in lams:
            drift = _number(test, f"the drift at lam={lam:g}", found[lam])
            expected = 2.5 * abs(moves[-1] - moves[0]) / (1 + lam)
            test.close(f"the drift at lam={lam:g} over {len(moves)} snapshots", drift, expected)
