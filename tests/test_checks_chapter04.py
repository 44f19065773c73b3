"""The checks of chapter 4: right answers in several forms, and the wrong ones that tests/test_exercises.py plants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cmlib.teaching import checks
from cmlib.teaching.checks import chapter04


def said(capsys: pytest.CaptureFixture[str], check: str, answer: Any) -> str:
    assert getattr(checks, check)(answer) is None
    return capsys.readouterr().out.strip()


def by_index(e: Tensor, y: Tensor, classes: int) -> Tensor:
    sums = torch.zeros(classes, e.shape[1]).index_add(0, y, e)
    return sums / torch.bincount(y, minlength=classes).unsqueeze(1)


def by_loop(e: Tensor, y: Tensor, classes: int) -> Tensor:
    return torch.stack([e[y == k].mean(0) for k in range(classes)])


def moved(record: Callable[[float], Any], lams: Any) -> dict[float, float]:
    spaces = {lam: record(lam) for lam in lams}
    return {lam: np.linalg.norm(s[-1].points - s[0].points, axis=1).mean() for lam, s in spaces.items()}


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
    assert said(capsys, "ch04_1", answer) == f"OK 4.1 ({tests} tests)"


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
    assert said(capsys, "ch04_2", answer) == "OK 4.2 (26 tests)"


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


def test_4_3_accepts_the_mean_distance(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "ch04_3", moved) == "OK 4.3 (15 tests)"


def measuring(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """An answer that measures something else for each lam."""
    return lambda record, lams: {lam: change(record(lam)) for lam in lams}


WRONG_DRIFTS: list[tuple[Callable[..., Any], str]] = [
    (measuring(lambda s: ((s[-1].points - s[0].points) ** 2).sum(1).mean()), "at lam=0 over 2 snapshots should be 2.5, got 12.5"),
    (measuring(lambda s: np.linalg.norm((s[-1].points - s[0].points).mean(0)) / 2), "should be 2.5, got 1.25"),
    (measuring(lambda s: np.linalg.norm(s[-1].points - s[-2].points, axis=1).mean()), "over 3 snapshots should be 2.5, got 15"),
    (measuring(lambda s: np.linalg.norm(s[-1].points - s[0].points, axis=1)), "must be a number, got ndarray"),
    (measuring(lambda s: -1.0), "should be 2.5, got -1"),
    (lambda record, lams: list(moved(record, lams).values()), "must be a dictionary"),
    (lambda record, lams: moved(record, lams[:1]), "the keys must be"),
    (lambda record, lams: dict.fromkeys(lams, moved(record, (0.0,))[0.0]), "record must be called with"),
]

WRONG = {"04_1": WRONG_NUMBERS, "04_2": WRONG_CENTROIDS, "04_3": WRONG_DRIFTS}  # tests/test_exercises.py gives them to the checks


def test_the_numbers_behind_4_1() -> None:
    def first(distances: tuple[float, float]) -> float:
        return float(torch.softmax(-torch.tensor(distances, dtype=torch.float32), 0)[0])

    assert first((3, 4)) == pytest.approx(chapter04.BEFORE, abs=5e-5)
    assert first((6, 8)) == pytest.approx(chapter04.AFTER, abs=5e-5)
    assert first((9, 16)) == pytest.approx(chapter04.SQUARED, abs=5e-5)
