"""The exercise checks of chapter 1: right answers in several forms, and the wrong ones that test_exercises.py plants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from answers import line_of

from cmlib.teaching import checks


def always(answer: Any) -> Callable[[], Any]:
    """An answer that does not depend on anything."""
    return lambda: answer


def test_unknown_exercise() -> None:
    with pytest.raises(checks.OptionError, match=r"there is no exercise 1\.4"):
        _ = checks.ch01_4


# -- 1.1 ------------------------------------------------------------------------------------------------------------------


def test_swapped_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert line_of(capsys, "01_1", lambda: ([0, 100], 100, 0)) == "OK 1.1 (5 tests)"
    assert line_of(capsys, "01_1", lambda: (np.array([0.0, 97.2]), 97.2, 0.0)) == "OK 1.1 (5 tests)"


WRONG_ORDERS = [
    (always(([0, 100], 0, 100)), "A is trained last now"),
    (always(([100, 0], 100, 0)), "column 1 of R is the task trained first"),
    (always(([50, 100], 100, 50)), "ends near 0 in CIL"),
    (always(([0, 50], 50, 0)), "ends near 100"),
    (always(([0, 1], 1, -5)), "between 0 and 100"),
    (always(([0, 100],)), "return three things"),
    (always((5, 100, 0)), "must be 2 numbers, got int"),
    (always(([0, 50, 100], 100, 0)), "must be 2 numbers, got 3"),
]


# -- 1.2 ------------------------------------------------------------------------------------------------------------------


def right(z: Any, y: Any) -> Any:
    return (z.softmax(1) - F.one_hot(y, z.shape[1])) / len(y)


def test_push_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert line_of(capsys, "01_2", right) == "OK 1.2 (13 tests)"
    assert line_of(capsys, "01_2", lambda z, y: right(z.double(), y)) == "OK 1.2 (13 tests)"
    rounded = lambda z, y: (right(z, y) * 10000).round() / 10000  # noqa: E731
    assert line_of(capsys, "01_2", rounded).startswith("OK 1.2")


def in_place(z: Any, y: Any) -> Any:
    gradient = right(z, y)
    z += 1
    return gradient


def naive_softmax(z: Any, y: Any) -> Any:
    p = z.exp() / z.exp().sum(1, keepdim=True)
    return (p - F.one_hot(y, z.shape[1])) / len(y)


WRONG_PUSHES: list[tuple[Callable[..., Any], str]] = [
    (lambda z, y: -right(z, y), "its sign is turned round"),
    (lambda z, y: right(z, y) * len(y), "the loss is their mean"),
    (lambda z, y: z.softmax(1) / len(y), "the label's own column is missing"),
    (lambda z, y: (z.softmax(0) - F.one_hot(y, z.shape[1])) / len(y), "the softmax runs over the images"),
    (lambda z, y: (z.log_softmax(1) - F.one_hot(y, z.shape[1])) / len(y), "these are log probabilities"),
    (lambda z, y: (z - F.one_hot(y, z.shape[1])) / len(y), "these are the logits"),
    (naive_softmax, "not finite for large logits"),
    (lambda z, y: right(z, y) * 0.5, "is off by up to"),
    (in_place, "your function changes z"),
    (lambda z, y: right(z, y).T, "must have shape [1, 4], got [4, 1]"),
    (lambda z, y: right(z, y).tolist(), "must be a tensor, got list"),
    (lambda z, y: None, "returns nothing"),
    (lambda z: z, "raised TypeError"),
]


# -- 1.3 ------------------------------------------------------------------------------------------------------------------


def memory(train: Any, kept: int, pick: Callable[[Any], Any] | None = None) -> Any:
    """The right answer; pick: which images of a class are kept, instead of the first ones."""
    pick = pick or (lambda images: images[:kept])
    tasks, old = [], []
    for x, y in train:
        tasks.append((torch.cat([x, *(a for a, _ in old)]), torch.cat([y, *(b for _, b in old)])))
        for c in y.unique():
            old.append((chosen := pick(x[y == c]), c.repeat(len(chosen))))
    return tasks


def on_task(change: Callable[[Any, Any], Any], k: int = 1) -> Callable[..., Any]:
    """The right answer with change(x, y) instead of one of its tasks."""

    def answer(train: Any, kept: int) -> Any:
        tasks = memory(train, kept)
        tasks[k] = change(*tasks[k])
        return tasks

    return answer


def test_memory_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert line_of(capsys, "01_3", memory) == "OK 1.3 (57 tests)"
    turned = on_task(lambda x, y: (x.flip(0), y.flip(0)))
    assert line_of(capsys, "01_3", turned) == "OK 1.3 (57 tests)"


WRONG_MEMORIES: list[tuple[Callable[..., Any], str]] = [
    (lambda train, kept: train, "task 2 should hold 2 images of class 0, it holds 0"),
    (lambda train, kept: memory(train, kept, lambda images: images[len(images) - kept :]), "than its first 2"),
    (lambda train, kept: memory(train, kept, lambda images: images), "should hold 2 images of class 0, it holds 6"),
    (lambda train, kept: memory(train, kept, lambda images: images[[0] * kept]), "images of class 0 twice"),
    (lambda train, kept: memory(train[::-1], kept)[::-1], "which come later"),
    (on_task(lambda x, y: (x[1:], y[1:])), "has lost images of its own"),
    (on_task(lambda x, y: (x, y.roll(1))), "images and labels are not in step"),
    (on_task(lambda x, y: (x + 1, y)), "images that are in no task"),
    (on_task(lambda x, y: (x, y[1:])), "one label for each image"),
    (on_task(lambda x, y: x), "task 2 must be a pair of tensors"),
    (lambda train, kept: memory(train, kept)[1:], "return a list of 3 tasks"),
    (lambda train, kept: None, "returns nothing"),
    (lambda train: train, "raised TypeError"),
]

# tests/teaching/test_exercises.py gives them to the checks
WRONG = {"01_1": WRONG_ORDERS, "01_2": WRONG_PUSHES, "01_3": WRONG_MEMORIES}
