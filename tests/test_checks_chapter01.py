"""The exercise checks of chapter 1: right answers in several forms, and the wrong ones that tests/test_exercises.py plants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cmlib import metrics
from cmlib.teaching import checks


def said(check: Callable[[Any], None], answer: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line a check prints."""
    check(answer)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    return lines[0]


def always(answer: Any) -> Callable[[], Any]:
    """An answer that does not depend on anything."""
    return lambda: answer


def test_unknown_exercise() -> None:
    with pytest.raises(checks.OptionError, match=r"there is no exercise 1\.4"):
        _ = checks.ch01_4


# -- 1.1 ------------------------------------------------------------------------------------------------------------------


def test_swapped_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(checks.ch01_1, lambda: ([0, 100], 100, 0), capsys) == "OK 1.1 (5 tests)"
    assert said(checks.ch01_1, lambda: (np.array([0.0, 97.2]), 97.2, 0.0), capsys) == "OK 1.1 (5 tests)"


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


def right(R: Any) -> tuple[float, float, float]:
    n = len(R)
    i, j = np.tril_indices(n, -1)
    return R[-1].mean(), (R[i, j] - R[j, j]).mean(), (R[-1, :-1] - np.diag(R)[:-1]).mean()


def test_metrics_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(checks.ch01_2, right, capsys) == "OK 1.2 (24 tests)"


def changed(R: Any, place: int, value: float) -> list[float]:
    values = list(right(R))
    values[place] = value
    return values


def below(R: Any) -> Any:
    return np.tril_indices(len(R), -1)


WRONG_METRICS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda R: changed(R, 0, R.mean()), "accuracy is NaN: cells above the diagonal"),
    (lambda R: changed(R, 0, float(np.nanmean(R))), "last row only, not all of R"),
    (lambda R: changed(R, 0, np.diag(R).mean()), "mean of the diagonal"),
    (lambda R: changed(R, 0, R[-1].mean() / 100), "in percent already"),
    (lambda R: changed(R, 1, -right(R)[1]), "sign is turned round"),
    (lambda R: changed(R, 1, right(R)[2]), "this is the final BWT"),
    (lambda R: changed(R, 1, (R[below(R)] - np.diag(R)[below(R)[0]]).mean()), "subtract R[j, j]"),
    (lambda R: changed(R, 1, (R[below(R)] - np.diag(R)[below(R)[1]]).sum()), "divide the sum"),
    (lambda R: changed(R, 1, (R[below(R)] - np.diag(R)[below(R)[1]]).sum() / (len(R) - 1)), "not by N - 1"),
    (lambda R: changed(R, 2, right(R)[1]), "this is BWT by the paper's formula"),
    (lambda R: changed(R, 2, -right(R)[2]), "sign is turned round"),
    (lambda R: changed(R, 2, (R[-1] - np.diag(R)).mean()), "divide by N - 1, not by N"),
    (lambda R: changed(R, 2, 1.25), "should be"),
    (lambda R: None, "returns nothing"),
    (lambda R: right(R)[:2], "must be 3 numbers, got 2"),
    (lambda R: 3.0, "must be 3 numbers, got float"),
    (lambda R: R[7, 7], "raised IndexError"),
]


def in_place(R: Any) -> Any:
    values = right(R)
    R[np.isnan(R)] = 0
    return values


WRONG_METRICS.append((in_place, "your function changes R"))


# -- 1.3 ------------------------------------------------------------------------------------------------------------------


def table(train: Any, rates: Any) -> Any:
    made = [train(lr) for lr in rates]
    return np.array([[metrics.learning_accuracy(R), metrics.bwt_final(R)] for R in made])


def test_rates_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(checks.ch01_3, table, capsys) == "OK 1.3 (13 tests)"
    assert said(checks.ch01_3, lambda train, rates: table(train, rates).tolist(), capsys) == "OK 1.3 (13 tests)"


WRONG_RATES: list[tuple[Callable[..., Any], str]] = [
    (lambda train, rates: table(train, rates)[:, ::-1], "the columns are swapped"),
    (lambda train, rates: table(train, rates).T, "shape"),
    (lambda train, rates: table(train, [0.1, 0.01]), "it was called with"),
    (lambda train, rates: np.array([[table(train, [lr])[0, k] for k in (0, 1)] for lr in rates]), "train each rate once"),
    (lambda train, rates: [[metrics.accuracy(R), metrics.bwt_final(R)] for R in map(train, rates)], "not the final accuracy"),
    (lambda train, rates: [[metrics.learning_accuracy(R), metrics.bwt(R)] for R in map(train, rates)], "use the final BWT"),
    (lambda train, rates: table(train, rates) * 0.5, "the row of lr = 0.1"),
    (lambda train, rates: None, "returns nothing"),
    (lambda train: None, "raised TypeError"),
]

WRONG = {"01_1": WRONG_ORDERS, "01_2": WRONG_METRICS, "01_3": WRONG_RATES}  # tests/test_exercises.py gives them to the checks
