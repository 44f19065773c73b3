"""The checks of chapter 17: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from answers import line_of, not_written

import cmlib as cm

Answer = Callable[..., Any]


@pytest.mark.parametrize("k", [1, 2])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    assert line_of(capsys, f"17_{k}", not_written) == f"17.{k}: not started"
    assert line_of(capsys, f"17_{k}", None) == f"17.{k}: not started"


def deal(y: Any, order: Any, sizes: Any, start: int | None = None, flip: bool = False, old: bool = False) -> Any:
    """The right answer; the options plant mistakes."""
    new, tasks, first = torch.argsort(order)[y], [], 0
    for k in sizes:
        rows = ((new >= first) & (new < first + k)).nonzero().squeeze(1)
        rows = rows.flip(0) if flip else rows
        tasks.append((rows, y[rows] if old else new[rows] - (first if start == 0 else 0)))
        first += k
    return tasks


def as_they_were(y: Any, order: Any, sizes: Any) -> Any:
    return deal(y, torch.arange(len(order)), sizes)


class NearestMean(cm.Method):
    """The right answer; the class attributes plant mistakes."""

    power, sign, raw, every_class, known = 1, -1, False, True, True

    def begin_task(self, task: Any) -> None:
        if task.index == 0:
            self.means = torch.zeros(0, self.scenario.data.x_train[0].numel())

    def end_task(self, task: Any) -> None:
        x = task.x if self.raw else self.scenario.prepare(task.x)
        labels = task.classes if self.every_class else task.classes[:1]
        self.means = torch.cat([self.means, torch.stack([x[task.y == label].mean(0) for label in labels])])

    def scores(self, x: Any, task: Any = None) -> Any:
        far = self.sign * torch.cdist(x, self.means) ** self.power
        return far if task is None or not self.known else far[:, task.classes.start : task.classes.stop]


def with_mistake(**changes: Any) -> type[NearestMean]:
    return type("Mine", (NearestMean,), changes)


class NotBegun(cm.Method):
    def begin_task(self, task: Any) -> None:
        raise NotImplementedError


def test_right_answers(capsys: pytest.CaptureFixture[str]) -> None:
    weighted = [
        lambda row, counts: float((row * counts).sum() / counts.sum()),
        lambda row, counts: (row * counts).sum() / counts.sum(),
        lambda row, counts: round(np.average(row, weights=counts), 1),
    ]
    for right in weighted:
        assert line_of(capsys, "17_1", right).startswith("OK 17.1 (")
    assert line_of(capsys, "17_2", deal).startswith("OK 17.2 (")
    assert line_of(capsys, "17_2", lambda *a: tuple(list(pair) for pair in deal(*a))).startswith("OK 17.2 (")
    assert line_of(capsys, "17_3", NearestMean).startswith("OK 17.3 (")
    assert line_of(capsys, "17_3", NotBegun) == "17.3: not started"


WRONG: dict[str, list[tuple[Any, str]]] = {
    "17_1": [
        (lambda row, counts: row.mean(), "every task was weighed alike"),
        (lambda row, counts: (row * counts).sum() / len(row), "divided by the number of tasks"),
        (lambda row, counts: (row * counts).sum(), "not divided by anything"),
        (lambda row, counts: (row * counts).sum() / counts.sum() / 100, "a share and not in percent"),
        (lambda row, counts: (row / counts).sum() / (1 / counts).sum(), "tasks with few images weigh more"),
        (lambda row, counts: 81.0, "80 percent of the images are right, got 81"),
        (lambda row, counts: "80", "the accuracy is a number, got str"),
        (lambda row, counts: row[99], "your answer raised IndexError"),
    ],
    "17_2": [
        (as_they_were, "as they were, not as they arrive"),
        (lambda *a: deal(*a, start=0), "the labels begin at 0 again"),
        (lambda *a: deal(*a, flip=True), "the positions must ascend"),
        (lambda *a: deal(*a, old=True), "these are the original labels"),
        (lambda y, order, sizes: deal(y, order, sizes)[:-1], "return a list of 2 pairs"),
        (lambda *a: [pair[0] for pair in deal(*a)], "task 1 must be a pair of tensors"),
        (lambda *a: [(rows[:1], labels[:1]) for rows, labels in deal(*a)], "2 samples are of it, got 1 or others"),
        (lambda *a: [(rows, labels + 1) for rows, labels in deal(*a)], "the places of the classes in order"),
        (lambda y, order, sizes: deal(y, torch.argsort(order), sizes), "17.2"),
    ],
    "17_3": [
        (with_mistake(power=2), "the distances are squared"),
        (with_mistake(sign=1), "not taken with a minus"),
        (with_mistake(raw=True), "vectors that were not normalised"),
        (with_mistake(every_class=False), "must have shape"),
        (with_mistake(known=False), "task 1) must have shape"),
        (with_mistake(scores=lambda self, x, task=None: torch.cdist(x, self.means * 2).neg()), "minus the distances"),
        (lambda: NearestMean, "must be a class derived from cm.Method"),
        (with_mistake(end_task=lambda self, task: 1 / 0), "your answer raised ZeroDivisionError"),
    ],
}  # fmt: skip
HINTS = {"17_1": "Hint: a task with twice", "17_2": "Hint: new = torch", "17_3": "Hint: x = self.scenario"}
