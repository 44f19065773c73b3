"""The checks of chapter 4: right answers in several forms, and the wrong ones that tests/teaching/test_exercises.py plants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from answers import line_of
from torch import Tensor

from cmlib.centroids import safe_norm
from cmlib.teaching.checks import chapter04


def by_index(e: Tensor, y: Tensor, classes: int) -> Tensor:
    sums = torch.zeros(classes, e.shape[1]).index_add(0, y, e)
    return sums / torch.bincount(y, minlength=classes).unsqueeze(1)


def by_loop(e: Tensor, y: Tensor, classes: int) -> Tensor:
    return torch.stack([e[y == k].mean(0) for k in range(classes)])


def logits(e: Tensor, kept: Tensor) -> Tensor:
    return -safe_norm(e.unsqueeze(2) - kept.unsqueeze(1))


def answers(past: Tensor, current: Tensor, kept: Tensor) -> Tensor:
    return (logits(past, kept) - logits(current, kept)).square().sum(-1).mean()


@pytest.mark.parametrize(
    ("answer", "tests"),
    [
        (lambda: 0.8808, 5),
        (lambda: 1 / (1 + np.exp(-2.0)), 5),
        (0.881, 5),
        (lambda: torch.sigmoid(torch.tensor(2.0)), 6),  # one more: it is a single number
    ],
)
def test_4_1_accepts_the_probability(capsys: pytest.CaptureFixture[str], answer: Any, tests: int) -> None:
    assert line_of(capsys, "04_1", answer) == f"OK 4.1 ({tests} tests)"


def always(answer: Any) -> Callable[[], Any]:
    return lambda: answer


WRONG_NUMBERS = [
    (always(0.7311), "value before doubling"),
    (always(0.9991), "squared distances"),
    (always(0.1192), "class 1"),
    (always(88.08), "between 0 and 1"),
    (always(0.6), "should be 0.8808, got 0.6"),
    (always(torch.tensor([0.88, 0.12])), "one number"),
    (always("more"), "must be a number, got str"),
]


@pytest.mark.parametrize("answer", [by_index, by_loop])
def test_4_2_accepts_two_ways_to_write_it(capsys: pytest.CaptureFixture[str], answer: Any) -> None:
    assert line_of(capsys, "04_2", answer) == "OK 4.2 (26 tests)"


WRONG_CENTROIDS: list[tuple[Callable[..., Any], str]] = [
    (lambda e, y, k: by_index(e, y, k).T.contiguous() if e.shape[1] != k else by_index(e, y, k), "must have shape"),
    (lambda e, y, k: torch.zeros(k, e.shape[1]).index_add(0, y, e), "centroids of the toy case should be"),
    (lambda e, y, k: by_index(e, y, k) * torch.bincount(y, minlength=k)[:, None] / len(y), "toy case should be"),
    (lambda e, y, k: by_index(e.detach(), y, k), "has no gradient: is something detached?"),
    (lambda e, y, k: by_index(e, y.sort().values, k), "in mixed order should be"),
    (lambda e, y, k: e.mean(), "must have shape [2, 2], got []"),
    (lambda e, y, k: None, "must be a tensor, got NoneType"),
    (lambda e, y, k: e[k + 100], "raised IndexError"),
]


def test_4_3_accepts_the_squared_change_of_the_logits(capsys: pytest.CaptureFixture[str]) -> None:
    assert line_of(capsys, "04_3", answers) == "OK 4.3 (44 tests)"


def comparing(change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """An answer that makes something else of the differences of the logits, [t, B, K]."""
    return lambda past, current, kept: change(logits(past, kept) - logits(current, kept))


def rooted(past: Tensor, current: Tensor, kept: Tensor) -> Tensor:
    apart = [(e.unsqueeze(2) - kept.unsqueeze(1)).square().sum(-1).sqrt() for e in (past, current)]
    return (apart[0] - apart[1]).square().sum(-1).mean()


def probabilities(past: Tensor, current: Tensor, kept: Tensor) -> Tensor:
    return (logits(past, kept).softmax(-1) - logits(current, kept).softmax(-1)).square().sum(-1).mean()


WRONG_ANSWERS: list[tuple[Callable[..., Any], str]] = [
    (comparing(lambda d: d.square().mean()), "the sum over the classes is missing"),
    (comparing(lambda d: d.square().sum()), "the mean over images and past tasks is missing"),
    (comparing(lambda d: d.abs().sum(-1).mean()), "must be squared"),
    (comparing(lambda d: d.norm(dim=-1).mean()), "distances between logits, not their squares"),
    (comparing(lambda d: d.square().sum(-1)), "must have shape []"),
    (comparing(lambda d: d.detach().square().sum(-1).mean()), "is something detached?"),
    (probabilities, "this compares probabilities"),
    (lambda past, current, kept: safe_norm(past - current).mean(), "this is the drift"),
    (lambda past, current, kept: (past - current).square().sum(-1).mean(), "this compares embeddings, squared"),
    (lambda past, current, kept: answers(past, current.detach(), kept), "is something detached?"),
    (rooted, "is not finite"),
    (lambda past, current, kept: None, "must be a tensor, got NoneType"),
]

WRONG = {
    "04_1": WRONG_NUMBERS,
    "04_2": WRONG_CENTROIDS,
    "04_3": WRONG_ANSWERS,
}  # tests/teaching/test_exercises.py gives them to the checks


def test_the_numbers_behind_4_1() -> None:
    def first(distances: tuple[float, float]) -> float:
        return float(torch.softmax(-torch.tensor(distances, dtype=torch.float32), 0)[0])

    assert first((3, 4)) == pytest.approx(chapter04.BEFORE, abs=5e-5)
    assert first((6, 8)) == pytest.approx(chapter04.AFTER, abs=5e-5)
    assert first((9, 16)) == pytest.approx(chapter04.SQUARED, abs=5e-5)
