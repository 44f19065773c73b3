"""Checks of chapter 6: what a plane holds, the part of drift that a class shares, old images in the cells of new classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cmlib.teaching.checks.base import NotYet, Test, exercise

# -- 6.1 --------------------------------------------------------------------------------------------------------------

SQUARES = {"x": 32.0, "y": 8.0, "z": 18.0}  # sums of squares of the six points of the toy, the third pair at height 3


@exercise("6.1", hint="add up the squares on each axis; the plane takes the two largest sums, whichever axes they are")
def ch06_1(answer: Any, test: Test) -> None:
    """Percent of the variance in the plane when the third pair of points lies at height 3 instead of 1."""
    value = answer() if callable(answer) else answer
    if value is None:
        raise NotImplementedError
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
    if value is None:
        raise NotYet("your function returns nothing")
    try:
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
    if not np.allclose(got, right, rtol=1e-6, atol=1e-9):
        for words, slip in _slips(first, now, labels).items():
            if np.allclose(got, slip, rtol=1e-6, atol=1e-9):
                raise NotYet(words)
    test.close(f"the shifts {where}", torch.as_tensor(got), torch.as_tensor(right), tolerance=1e-6)


# -- 6.3 --------------------------------------------------------------------------------------------------------------


def _frames(seed: int, moments: int = 3) -> list[SimpleNamespace]:
    """Made-up snapshots of a merged space that grows by two classes a moment; classes in no particular order."""
    draws = np.random.default_rng(seed)
    spots = 4 * draws.normal(size=(2 * moments + 2, 3))
    frames = []
    for k in range(moments):
        classes = draws.permutation(2 * k + 4)
        labels = draws.integers(0, 2 * k + 4, 60)
        points = spots[labels] + 3.5 * draws.normal(size=(60, 3))
        frames.append(
            SimpleNamespace(after=k + 2, points=points, labels=labels, centroids=spots[classes], centroid_labels=classes)
        )
    return frames


def _cells(frame: Any) -> Any:
    near = np.linalg.norm(frame.points[:, None] - frame.centroids[None], axis=2).argmin(1)
    return frame.centroid_labels[near]


def _interference(frames: Sequence[Any]) -> float:
    last = frames[-1]
    old = np.isin(last.labels, frames[-2].centroid_labels)
    return 100 * float((~np.isin(_cells(last)[old], frames[-2].centroid_labels)).mean())


def _other_shares(frames: Sequence[Any]) -> dict[str, float]:
    last, before = frames[-1], frames[-2].centroid_labels
    cells, old = _cells(last), np.isin(last.labels, before)
    new_cell = ~np.isin(cells, before)
    index = np.linalg.norm(last.points[:, None] - last.centroids[None], axis=2).argmin(1)
    first = frames[0].centroid_labels
    return {
        "the images of the new classes are counted too; only old classes can be disturbed": 100 * float(new_cell.mean()),
        "every image in a wrong cell is counted; only the cells of the new classes are meant": 100
        * float((cells != last.labels)[old].mean()),
        "that is a share of one; return percent": float(new_cell[old].mean()),
        "the row of the nearest centroid is not its label; look it up in centroid_labels": 100
        * float((~np.isin(index, before))[old].mean()),
        "new means since the moment before the last, not since the first": 100
        * float((~np.isin(cells, first))[np.isin(last.labels, first)].mean()),
    }


@exercise("6.3", hint="old = labels that frames[-2] has centroids for; which of these lie nearest to a centroid it had not?")
def ch06_3(answer: Callable[..., Mapping[str, float]], test: Test) -> None:
    """interference(load, kinds) -> {kind: percent of old images in cells of the newest classes}; `load` stands in."""
    for kinds, base in ((("scale_translate", "none"), 0), (("none",), 20), (("linear", "mlp", "offset"), 40)):
        made = {kind: _frames(base + rank, 2 + rank) for rank, kind in enumerate(kinds)}
        asked: list[str] = []

        def load(kind: str, made: Any = made, asked: list[str] = asked) -> list[SimpleNamespace]:
            asked.append(kind)
            return list(made[kind])

        found = answer(load, list(kinds))
        if found is None:
            raise NotYet("your function returns nothing; return a dictionary")
        test.true(isinstance(found, Mapping), f"the answer must be a dictionary, got {type(found).__name__}")
        test.true(set(found) == set(kinds), f"the keys must be {list(kinds)}, got {list(found)}")
        test.true(set(asked) == set(kinds), f"load must be called with {list(kinds)}, it was called with {asked}")
        for kind in kinds:
            _one_kind(found[kind], made[kind], kind, test)


def _one_kind(value: Any, frames: Sequence[Any], kind: str, test: Test) -> None:
    try:
        got = float(value)
    except (TypeError, ValueError):
        raise NotYet(f"the value of '{kind}' must be a number, got {type(value).__name__}") from None
    right = _interference(frames)
    if abs(got - right) > 1e-6:
        for words, slip in _other_shares(frames).items():
            if abs(got - slip) < 1e-6:
                raise NotYet(words)
    test.close(f"the share for '{kind}'", got, right, tolerance=1e-6)
