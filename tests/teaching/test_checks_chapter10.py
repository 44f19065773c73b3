"""The checks of chapter 10: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from answers import not_written, said

import cmlib as cm

Answer = Callable[..., Any]


def costs(t: int) -> float:
    return 3 + 4 * t / 3


def ratio(a: Any, b: Any, warm_up: int) -> float:
    return statistics.median(x / y for x, y in list(zip(a, b, strict=True))[warm_up:])


class Resting(cm.METHODS["cm"]):  # type: ignore[misc, name-defined]
    """The right answer, with switches that plant mistakes."""

    every = 4
    detached, renewed, counts, in_eval, first = True, True, True, False, 0

    def begin_task(self, task: Any) -> None:
        super().begin_task(task)
        if self.renewed or not task.index:
            self.steps = self.first

    def current_centroids(self, task: Any) -> Any:
        if not self.training and not self.in_eval:
            return super().current_centroids(task)
        if self.steps % self.every == 0:
            fresh = super().current_centroids(task)
            self.kept = fresh.detach() if self.detached else fresh
            used = fresh
        else:
            used = self.kept
        self.steps += self.counts
        return used


def but(**switches: Any) -> Any:
    return type("Wrong", (Resting,), switches)


class NotWritten(cm.METHODS["cm"]):  # type: ignore[misc, name-defined]
    every = 4

    def current_centroids(self, task: Any) -> Any:
        raise NotImplementedError


RIGHT: dict[str, list[tuple[Answer, int]]] = {
    "10_1": [
        (lambda: [costs(t) for t in range(5)], 15),
        (lambda: np.array([costs(t) for t in range(5)]), 15),
        (lambda: [3, 4.33, 5.67, 7, 8.33], 15),
    ],
    "10_2": [(ratio, 18), (lambda a, b, w: np.median(np.array(a[w:]) / np.array(b[w:])), 18)],
    "10_3": [(Resting, 73)],
}
WRONG: dict[str, list[tuple[Answer, str]]] = {
    "10_1": [
        (lambda: [costs(t) - 2 for t in range(5)], "the support set is missing"),
        (lambda: [costs(t) - 2 + 0.1 for t in range(5)], "counted once an epoch"),
        (lambda: [3 + 2 * t for t in range(5)], "the past model was counted at full price"),
        (lambda: [3 + t for t in range(5)], "the past model is missing"),
        (lambda: [costs(t + 1) for t in range(5)], "task 1 already has a past task"),
        (lambda: [1000 * costs(t) for t in range(5)], "images, not epochs"),
        (lambda: [costs(t) / 3 for t in range(5)], "ratios to CM's own first task"),
        (lambda: [3, 4, 5, 6, 8], "the cost of task 2 should be 4.333, got 4"),
        (lambda: [3.0] * 4, "must have 5 numbers"),
        (lambda: 3.0, "must be a list, got float"),
        (lambda: ["3"] * 5, "must hold numbers"),
    ],
    "10_2": [
        (lambda a, b, w: ratio(a, b, 0), "the warm-up was not left out"),
        (lambda a, b, w: ratio(a[:-w], b[:-w], 0), "the last rounds were left out"),
        (lambda a, b, w: sum(a[w:]) / sum(b[w:]), "the means were divided"),
        (lambda a, b, w: statistics.median(a[w:]) / statistics.median(b[w:]), "the medians were divided"),
        (lambda a, b, w: statistics.fmean(x / y for x, y in zip(a[w:], b[w:], strict=True)), "the mean of the ratios"),
        (lambda a, b, w: ratio(b, a, w), "b was divided by a"),
        (lambda a, b, w: min(a[w:]) / min(b[w:]), "the fastest times were divided"),
        (lambda a, b, w: 3.0, "the median ratio should be"),
        (lambda a, b, w: [ratio(a, b, w)], "must be a number, got list"),
    ],
    "10_3": [
        (but(detached=False), "a step between goes back through an old graph"),
        (but(counts=False), "the support set must rest, and passed"),
        (but(renewed=False), "a task begins with centroids of its own"),
        (but(every=property(lambda self: 5, lambda self, value: None)), "the support set must pass again, and did not"),
        (but(in_eval=True), "the centroids in eval mode"),
        (cm.METHODS["cm"], "step 1 (counted from 0): the support set must rest, and passed"),
        (lambda task: None, "must be a class of"),
        (cm.METHODS["er"], "must be a class of"),
        (but(first=1), "your answer raised AttributeError"),
    ],
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], name: str) -> None:
    number = f"{int(name[:2])}.{name[-1]}"
    for nothing in (NotWritten if name == "10_3" else not_written, None):
        assert said(capsys, getattr(cm.checks, f"ch{name}"), nothing) == f"{number}: not started"


@pytest.mark.parametrize(("name", "k"), [(name, k) for name, answers in RIGHT.items() for k in range(len(answers))])
def test_right_answers(capsys: pytest.CaptureFixture[str], name: str, k: int) -> None:
    answer, count = RIGHT[name][k]
    assert said(capsys, getattr(cm.checks, f"ch{name}"), answer) == f"OK {int(name[:2])}.{name[-1]} ({count} tests)"
