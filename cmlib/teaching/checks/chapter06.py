"""Checks of chapter 6: what a plane holds, the part of drift that a class shares, a step that cannot leap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cmlib.teaching.checks.base import NotYet, Test, exercise, returned, slip_in

# -- 6.1 --------------------------------------------------------------------------------------------------------------

SQUARES = {"x": 32.0, "y": 8.0, "z": 18.0}  # sums of squares of the six points of the toy, the third pair at height 3


@exercise("6.1", hint="add up the squares on each axis; the plane takes the two largest sums, whichever axes they are")
def ch06_1(answer: Any, test: Test) -> None:
    """Percent of the variance in the plane when the third pair of points lies at height 3 instead of 1."""
    value = returned(answer() if callable(answer) else answer)
    try:
        percent = float(value)
    except (TypeError, ValueError):
        raise NotYet(f"the answer must be one number, got {type(value).__name__}") from None
    x, y, z = SQUARES.values()
    total = x + y + z
    test.true(0 <= percent <= 100, f"a share lies between 0 and 100 percent, got {percent:g}")
    test.true(percent > 1, f"in percent, please: {percent:g} looks like a share of one")
    before = 100 * (x + y) / (x + y + 2)
    test.true(abs(percent - before) > 0.3, f"{percent:.4g} is the value with the pair at height 1")
    stuck = 100 * (x + y) / total
    test.true(abs(percent - stuck) > 0.3, f"{percent:.4g} is what the old plane keeps; PCA would turn the plane")
    roots = 100 * (x**0.5 + z**0.5) / (x**0.5 + y**0.5 + z**0.5)
    test.true(abs(percent - roots) > 0.3, f"{percent:.4g} adds lengths; variance adds squares")
    test.close("the explained variance", percent, 100 * (x + z) / total, tolerance=0.005)


# -- 6.2 --------------------------------------------------------------------------------------------------------------

Numbers = NDArray[np.float64]


def _vector(value: Any, count: int, test: Test) -> Numbers:
    """The answer as `count` numbers: an array, a tensor or a list."""
    try:
        value = returned(value)
        numbers = np.asarray(value.detach() if isinstance(value, torch.Tensor) else value, dtype=np.float64)
    except (TypeError, ValueError):
        raise NotYet(f"the answer must be numbers, one a class, got {type(value).__name__}") from None
    test.true(numbers.shape == (count,), f"the answer must have shape [K] = [{count}], got {list(numbers.shape)}")
    return numbers


def _shift(first: Numbers, now: Numbers, labels: Any) -> Numbers:
    return np.array([np.linalg.norm((now - first)[labels == k].mean(0)) for k in np.unique(labels)])


def _slips(first: Numbers, now: Numbers, labels: Any) -> dict[str, Numbers]:
    """Wrong answers that are easy to give, by what went wrong."""
    steps, classes = now - first, np.unique(labels)
    lengths = np.linalg.norm(steps, axis=1)
    right = _shift(first, now, labels)
    by_norm = [abs(np.linalg.norm(now[labels == k].mean(0)) - np.linalg.norm(first[labels == k].mean(0))) for k in classes]
    return {
        "this is the mean of the lengths, the drift itself: average the steps first, then take the length": np.array(
            [lengths[labels == k].mean() for k in classes]
        ),
        "this is the square of the length": right**2,
        "all classes get the same value: average over the rows of each class alone": np.full(
            len(classes), np.linalg.norm(steps.mean(0))
        ),
        "this is the difference of two distances from the origin; a class can turn without changing it": np.array(by_norm),
        "the classes are in the wrong order: labels ascending": right[::-1],
    }


@exercise("6.2", hint="step = now - first; for each label the mean of its rows, [E]; then the length of that mean")
def ch06_2(answer: Callable[..., Any], test: Test) -> None:
    """shift_by_class(first, now, labels) -> [K]: how far the mean of each class has moved, labels ascending."""
    first, labels = np.zeros((4, 2)), np.array([0, 0, 1, 1])
    now = np.array([[3.0, 4.0], [3.0, 4.0], [1.0, 0.0], [-1.0, 0.0]])
    got = _vector(answer(first.copy(), now.copy(), labels.copy()), 2, test)
    _compare(got, np.array([5.0, 0.0]), first, now, labels, "of the toy case", test)
    draws = np.random.default_rng(6)
    for classes, features in ((2, 3), (3, 8), (5, 128), (1, 2), (4, 5), (2, 2)):
        labels = np.concatenate([np.arange(classes), draws.integers(0, classes, 4 * classes)]) + 3
        labels = labels[draws.permutation(len(labels))]
        first, steps = draws.normal(size=(2, len(labels), features))
        now = first + steps + labels[:, None] * draws.normal(size=features)
        a, b = first.copy(), now.copy()
        got = _vector(answer(a, b, labels.copy()), classes, test)
        _compare(got, _shift(first, now, labels), first, now, labels, f"of {classes} classes", test)
        test.true(np.array_equal(a, first) and np.array_equal(b, now), "your function changes its arguments; work on a copy")


def _compare(got: Numbers, right: Numbers, first: Numbers, now: Numbers, labels: Any, where: str, test: Test) -> None:
    same = partial(np.allclose, got, rtol=1e-6, atol=1e-9)
    if not same(right) and (words := slip_in(_slips(first, now, labels), same)):
        raise NotYet(words)
    test.close(f"the shifts {where}", torch.as_tensor(got), torch.as_tensor(right), tolerance=1e-6)


# -- 6.3 --------------------------------------------------------------------------------------------------------------

Step = Callable[..., Any]
RATE = 0.1


class _Pull(nn.Module):
    """A stand-in for a method: two tensors of weights with known gradients, and a third that has none."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3))
        self.idle = nn.Parameter(torch.ones(1))
        self.scale, self.asked = scale, 0

    def loss(self, x: Tensor, y: Tensor, task: Any) -> Tensor:
        """Linear in the weights: the gradient is scale * x, its first two entries on a, the others on b."""
        self.asked += 1
        return self.scale * (torch.cat([self.a, self.b]) * x).sum() + y.sum()

    def moved(self) -> Tensor:
        return -torch.cat([self.a, self.b]).detach() / RATE


@exercise("6.3", hint="after loss.backward(): torch.nn.utils.clip_grad_norm_(method.parameters(), most); then optimizer.step()")
def ch06_3(answer: Step, test: Test) -> None:
    """careful_step(method, optimizer, x, y, task, most=1.0): a step whose whole gradient has at most the length `most`."""
    x, y = torch.tensor([1.0, 2.0, 2.0, 0.0, 4.0]), torch.tensor([2.0])  # of length 5
    for scale, most in ((0.1, 1.0), (2.0, 1.0), (2.0, 3.0), (0.1, 0.25), (0.01, 3.0)):
        method = _Pull(scale)
        optimizer = torch.optim.SGD(method.parameters(), lr=RATE)
        method.a.grad = torch.full((2,), 100.0)  # what an earlier step has left
        given = answer(method, optimizer, x, y, None, most)
        test.true(method.asked > 0, "the loss was never asked for: call method.loss(x, y, task)")
        right = scale * x * min(1.0, most / (5 * scale))
        _direction(method.moved(), scale * x, right, most, test)
        _the_loss(given, test)
    method = _Pull(1.0)
    answer(method, torch.optim.SGD(method.parameters(), lr=RATE), x, y, None)
    test.close("the length of the step when `most` is not given", method.moved().norm().item(), 1.0)
    test.true(method.idle.item() == 1.0, "a weight without a gradient must stay where it is")


def _direction(moved: Tensor, gradient: Tensor, right: Tensor, most: float, test: Test) -> None:
    """The gradient that the optimizer was given, against the right one; typical slips get their words."""
    if not torch.allclose(moved, right, atol=1e-4):
        length = gradient.norm().item()
        each = torch.cat([part * min(1.0, most / part.norm().item()) for part in gradient.split((2, 3))])
        left = gradient + torch.tensor([100.0, 100.0, 0.0, 0.0, 0.0])
        left = left * min(1.0, most / left.norm().item())
        slips = {
            "nothing moved: does the optimizer take a step, and after backward?": torch.zeros(5),
            "the gradient of an earlier step is still in it: set gradients to zero first": left,
            "the gradient is as long as before: shorten it before the optimizer steps": gradient if length > most else right,
            "a gradient that was short enough was made longer": gradient * most / length if length < most else right,
            "every number was cut by itself, which turns the direction: shorten the whole vector": gradient.clamp(-most, most),
            "each tensor was shortened by itself; the length is that of all of them together": each,
        }
        if words := slip_in(slips, lambda slip: torch.allclose(moved, slip, atol=1e-3)):
            raise NotYet(words)
    cosine = torch.nn.functional.cosine_similarity(moved, gradient, dim=0).item()
    test.true(cosine > 0.999 or not right.any(), "the direction of the step is not that of the gradient")
    test.close(f"the length of the gradient (most = {most:g})", moved.norm().item(), right.norm().item(), tolerance=1e-3)


def _the_loss(given: Any, test: Test) -> None:
    returned(given, "return the loss, detached")
    value = given.item() if isinstance(given, Tensor) and given.numel() == 1 else given
    test.true(isinstance(value, int | float), f"the loss must be one number, got {type(given).__name__}")
    test.true(abs(value - 2.0) < 1e-4, f"the loss before the step is 2, got {value:g}; return that one")
    attached = isinstance(given, Tensor) and given.requires_grad
    test.true(not attached, "the loss still carries its graph: return loss.detach()")
