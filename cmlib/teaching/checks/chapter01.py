"""Checks for chapter 1: the order of tasks, the three numbers of an accuracy matrix, the learning rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmlib import metrics
from cmlib.teaching.checks.base import NotYet, Test, exercise, numbers

Matrix = NDArray[np.float64]


def _near(a: float, b: float, tolerance: float = 1e-6) -> bool:
    return abs(a - b) <= tolerance


@exercise("1.1", hint="columns of R follow the order of training, and Naive keeps only what it trained on last")
def ch01_1(answer: Callable[[], Any], test: Test) -> None:
    """`answer()` returns the last row of R (2 numbers), the final accuracy on A and that on B, when B is trained first."""
    given = answer()
    if given is None:
        raise NotImplementedError
    if not isinstance(given, tuple | list) or len(given) != 3:
        raise NotYet("return three things: the last row of R, the accuracy on A, the accuracy on B")
    first, last = numbers("the last row of R", given[0], 2)
    on_a, on_b = numbers("the accuracies on A and B", given[1:], 2)
    test.true(all(0 <= value <= 100 for value in (first, last, on_a, on_b)), "accuracies are between 0 and 100 percent")
    test.true(on_a > on_b, f"A is trained last now, so A is remembered, not B; you have {on_a:g} on A and {on_b:g} on B")
    test.true(first < last, "column 1 of R is the task trained first, and that is B now")
    test.true(first <= 20 and on_b <= 20, "the task trained first ends near 0 in CIL")
    test.true(last >= 80 and on_a >= 80, "the task trained last ends near 100")


def random_matrix(draws: np.random.Generator, n: int) -> Matrix:
    """An accuracy matrix with NaN above the diagonal."""
    R = draws.uniform(0, 100, (n, n)).round(1)
    R[np.triu_indices(n, 1)] = np.nan
    return R


def _slips(R: Matrix) -> dict[str, dict[float, str]]:
    """Wrong values that are easy to get, for each number, and what went wrong."""
    n = len(R)
    i, j = np.tril_indices(n, -1)
    diagonal = np.diag(R)
    lost = float((R[i, j] - diagonal[j]).sum())
    back = {
        -metrics.bwt(R): "its sign is turned round: forgetting makes BWT negative",
        float((R[i, j] - diagonal[i]).mean()): "subtract R[j, j], the accuracy right after task j, not R[i, i]",
        lost: "divide the sum by the number of its terms, N (N - 1) / 2",
        lost / n: "divide by the number of terms, N (N - 1) / 2, not by N",
        lost / (n - 1): "divide by the number of terms, N (N - 1) / 2, not by N - 1",
        metrics.bwt_final(R): "this is the final BWT: the paper's formula takes all rows below the first",
    }
    final = {
        -metrics.bwt_final(R): "its sign is turned round: forgetting makes BWT negative",
        metrics.bwt_final(R) * (n - 1) / n: "leave out the last task: divide by N - 1, not by N",
        metrics.bwt(R): "this is BWT by the paper's formula: the final one takes the last row only",
    }
    mean = {
        float(np.nanmean(R)): "take the last row only, not all of R",
        metrics.learning_accuracy(R): "this is the mean of the diagonal; take the last row",
        metrics.accuracy(R) / 100: "R is in percent already",
    }
    return {"accuracy": mean, "bwt": back, "bwt_final": final}


def _compare(name: str, got: float, R: Matrix, test: Test) -> None:
    wanted = float(getattr(metrics, name)(R))
    if not _near(got, wanted):
        if np.isnan(got):
            raise NotYet(f"{name} is NaN: cells above the diagonal were never measured and must stay out")
        for value, why in _slips(R)[name].items():
            if _near(got, value):
                raise NotYet(f"{name} should be {wanted:.4g}, got {got:.4g}: {why}")
    test.true(_near(got, wanted), f"{name} of a matrix with N = {len(R)} should be {wanted:.4g}, got {got:.4g}")


@exercise("1.2", hint="np.tril_indices(N, k=-1) gives the rows i and columns j of all cells below the diagonal")
def ch01_2(answer: Callable[[Matrix], Any], test: Test) -> None:
    """`answer(R)` returns (accuracy, bwt, bwt_final) of R [N, N] with NaN above the diagonal."""
    draws = np.random.default_rng(1)
    for n in (3, 2, 4, 5, 5, 10):
        R = random_matrix(draws, n)
        before = R.copy()
        given = answer(R)
        if given is None:
            raise NotYet("your function returns nothing; return accuracy, bwt, bwt_final")
        values = numbers("the answer", given, 3)
        for name, got in zip(("accuracy", "bwt", "bwt_final"), values, strict=True):
            _compare(name, got, R, test)
        test.true(np.array_equal(R, before, equal_nan=True), "your function changes R; work on a copy")


def _fake_training(asked: list[float]) -> Callable[[float], Matrix]:
    """A training that only notes the learning rates it is asked for; its matrix belongs to the rate."""

    def train(lr: float) -> Matrix:
        asked.append(float(lr))
        return random_matrix(np.random.default_rng(round(float(lr) * 1e6)), 4)

    return train


@exercise("1.3", hint="one row a rate: cm.metrics.learning_accuracy(R), cm.metrics.bwt_final(R), with R = train(lr)")
def ch01_3(answer: Callable[[Callable[[float], Matrix], Sequence[float]], Any], test: Test) -> None:
    """`answer(train, rates)` returns [rates, 2]: learning accuracy and final BWT of `train(lr)`, one row a rate."""
    for rates in ([0.1, 0.01, 0.001], [0.2, 0.05, 0.001, 0.01]):
        asked: list[float] = []
        given = answer(_fake_training(asked), rates)
        if given is None:
            raise NotYet("your function returns nothing; return an array with one row a rate")
        test.true(set(asked) == set(rates), f"train must be called with the rates {rates}, it was called with {asked}")
        test.true(len(asked) == len(rates), f"train each rate once: {len(rates)} trainings, not {len(asked)}")
        table = np.asarray(given, dtype=np.float64)
        shape = (len(rates), 2)
        test.true(table.shape == shape, f"the answer must have shape {list(shape)}, got {list(table.shape)}")
        for row, lr in zip(table, rates, strict=True):
            _compare_rate(row, _fake_training([])(lr), lr, test)


def _compare_rate(row: Matrix, R: Matrix, lr: float, test: Test) -> None:
    plastic, stable = metrics.learning_accuracy(R), metrics.bwt_final(R)
    if _near(row[0], stable) and _near(row[1], plastic):
        raise NotYet("the columns are swapped: learning accuracy first, final BWT second")
    if _near(row[0], metrics.accuracy(R)):
        raise NotYet("plasticity is the learning accuracy (mean of the diagonal), not the final accuracy")
    if _near(row[1], metrics.bwt(R)):
        raise NotYet("use the final BWT (last row only), not the one of the paper's formula")
    good = _near(row[0], plastic) and _near(row[1], stable)
    wanted = f"{plastic:.4g} and {stable:.4g}"
    test.true(good, f"the row of lr = {lr:g} should be {wanted}, got {row[0]:.4g} and {row[1]:.4g}")
