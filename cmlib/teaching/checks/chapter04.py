"""Checks of chapter 4: task-incremental Centroids Matching."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

from cmlib.centroids import class_centroids, distances
from cmlib.teaching.checks.base import NotYet, Test, exercise

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


def without_one_hot(answer: Any) -> Any:
    """The answer, in which `F.one_hot` is out of reach, by whatever way it is called."""

    def refused(*_: Any, **__: Any) -> Tensor:
        raise NotYet("this calls F.one_hot, itself or in class_centroids; do without")

    def asked(*given: Any) -> Any:
        with mock.patch.object(F, "one_hot", refused):
            return answer(*given)

    return asked


@exercise(
    "4.2", hint="add up the embeddings of each class, count its samples, divide; index_add_ or a loop over the classes will do"
)
def ch04_2(answer: Any, test: Test) -> None:
    """Centroids of eq. 1 without one-hot vectors: answer(e, y, classes) -> [K, E]."""
    answer = without_one_hot(answer)
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


@exercise("4.3", hint="logits = -safe_norm(e.unsqueeze(2) - kept.unsqueeze(1)), of past and current; square, sum over K, mean")
def ch04_3(answer: Any, test: Test) -> None:
    """Squared change of the logits: answer(past, current, kept) -> scalar."""
    kept = torch.tensor([[[1.0, 0.0], [4.0, 4.0]]])  # [t, K, E] = [1, 2, 2]
    past, current = torch.tensor([[[4.0, 0.0], [1.0, 4.0]]]), torch.tensor([[[1.0, 0.0], [1.0, 4.0]]])
    _answers(test, "the toy case", answer, past, current, kept)  # distances (3, 4) become (0, 5); the other image stays
    test.close("the penalty when nothing moves", answer(past, past.clone(), kept), 0.0)
    mirror = torch.tensor([[[4.0, 0.0, 0.0]]]), torch.tensor([[[4.0, 0.0, 0.0]]]) - 2 * _off_line()
    flat = torch.tensor([[[1.0, 0.0, 0.0], [4.0, 4.0, 0.0]]])
    test.close("the penalty of a step that keeps both distances", answer(*mirror, flat), 0.0)
    draws = torch.Generator().manual_seed(4)
    for tasks, batch, classes, size in ((1, 3, 2, 4), (3, 2, 2, 5), (2, 4, 3, 2)):
        past, current = (torch.randn(tasks, batch, size, generator=draws) * 3 for _ in range(2))
        kept = torch.randn(tasks, classes, size, generator=draws) * 3
        _answers(test, f"{tasks} past tasks with {classes} classes", answer, past, current, kept)
    current[0, 0] = kept[0, 0]
    test.gradient("the penalty, with an embedding on its centroid,", answer(past, current.requires_grad_(), kept), current)


def _off_line() -> Tensor:
    """From the line through (1, 0) and (4, 4) to the point (4, 0), in three dimensions."""
    along = torch.tensor([3.0, 4.0, 0.0]) / 5
    step = torch.tensor([3.0, 0.0, 0.0])
    return step - (step @ along) * along


def _answers(test: Test, what: str, answer: Any, past: Tensor, current: Tensor, kept: Tensor) -> None:
    before, after = (torch.stack([distances(e, c) for e, c in zip(x, kept, strict=True)]) for x in (past, current))
    given = test.shape(f"the penalty of {what}", answer(past, current, kept), ())
    move = before - after  # [t, B, K]
    looks = {
        "the sum over the classes is missing: this is the mean": move.square().mean(),
        "the mean over images and past tasks is missing: this is the sum": move.square().sum(),
        "the differences of the logits must be squared": move.abs().sum(-1).mean(),
        "these are distances between logits, not their squares": move.norm(dim=-1).mean(),
        "this compares probabilities; DER compares logits, before the softmax": (before.softmax(-1) - after.softmax(-1))
        .square()
        .sum(-1)
        .mean(),
        "the logits are minus the distances, not minus their squares": (before.square() - after.square()).square().sum(-1).mean(),
        "this is the drift: it compares embeddings, not the answers": (past - current).norm(dim=-1).mean(),
        "this compares embeddings, squared; asked are the logits": (past - current).square().sum(-1).mean(),
    }
    wanted = move.square().sum(-1).mean()
    near = partial(torch.allclose, given.detach(), rtol=1e-4)
    test.no_slip(looks, lambda wrong: near(wrong) and not torch.allclose(wanted, wrong, rtol=1e-3), "")
    test.close(f"the penalty of {what}", given, wanted)
