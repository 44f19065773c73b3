"""Checks of chapter 2: what one cell of R changes, accuracy with and without the task, a table of stored runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cmlib import metrics
from cmlib.teaching.checks.base import NotYet, Test, exercise, numbers

Matrix = NDArray[np.float64]
NAMES = ("Accuracy", "BWT", "final BWT", "learning accuracy")
BY_HAND = ((90.0, np.nan, np.nan), (60.0, 80.0, np.nan), (30.0, 50.0, 100.0))  # the matrix of the chapter


def _finite(what: str, value: Any, count: int) -> list[float]:
    """A tuple, list, array or tensor of `count` finite numbers."""
    found = numbers(what, value, count)
    if not np.isfinite(found).all():
        raise NotYet(f"{what} must be finite numbers, got {found}")
    return found


# -- 2.1 --------------------------------------------------------------------------------------------------------------


@exercise("2.1", hint="write down which cells each number is made of, then ask whether the changed cell is among them")
def ch02_1(answer: Callable[[], Sequence[float]], test: Test) -> None:
    """The changes of the four numbers when the accuracy on task 1 after task 2 falls from 60 to 30."""
    given = answer()
    if given is None:
        raise NotImplementedError
    got = _finite("the changes", given, 4)
    before = np.array(BY_HAND)
    after = before.copy()
    after[1, 0] = 30.0
    measures = (metrics.accuracy, metrics.bwt, metrics.bwt_final, metrics.learning_accuracy)
    wanted = [measure(after) - measure(before) for measure in measures]
    new = [measure(after) for measure in measures]
    test.true(not np.allclose(got, new), "these are the new values; the changes are asked for")
    test.true(not np.allclose(got, [-w for w in wanted]), "the sign is wrong: the cell falls, so what contains it falls")
    for name, value, right in zip(NAMES, got, wanted, strict=True):
        if right == 0:
            test.true(abs(value) < 1e-6, f"{name} does not contain that cell, so it cannot change; you have {value:g}")
        else:
            test.true(abs(value) > 1e-6, f"{name} contains that cell, so it does change")
            test.true(abs(value + 30) > 1e-6, f"{name} is a mean: one cell among three changes by 30")
            test.true(abs(value - right) < 1e-6, f"{name} does not change by {value:g}")


# -- 2.2 --------------------------------------------------------------------------------------------------------------

Accuracies = Callable[[Tensor, Tensor, int, int, int], Any]


@exercise("2.2", hint="cut out the columns that may answer, take the argmax, and add the label of the first of them")
def ch02_2(answer: Accuracies, test: Test) -> None:
    """two_accuracies(scores, y, i, t, k) -> accuracy in percent in TIL and in CIL."""
    draws = torch.Generator().manual_seed(2)
    for i, t, k in ((0, 2, 2), (1, 3, 2), (2, 3, 3), (0, 4, 5), (3, 4, 1), (1, 2, 4)):
        scores = torch.randn(60, (t + 1) * k, generator=draws)  # the classes of one more task are not learned yet
        y = torch.randint(i * k, (i + 1) * k, (60,), generator=draws)
        scores[torch.arange(60), y] += 1.0
        got = _finite("the answer", answer(scores.clone(), y.clone(), i, t, k), 2)
        wanted = [_accuracy(scores, y, range(i * k, (i + 1) * k)), _accuracy(scores, y, range(t * k))]
        _compare(got, wanted, scores, y, (i, t, k))
        test.true(got[0] >= got[1], "being told the task never hurts: the same scores, fewer wrong answers")
    scores = torch.tensor([[1.0, 3.0, 5.0, 2.0]])
    toy = _finite("the answer", answer(scores, torch.tensor([1]), 0, 2, 2), 2)
    test.true(toy == [100, 0], f"the image of the toy case is right in TIL and wrong in CIL: [100, 0], got {toy}")


def _accuracy(scores: Tensor, y: Tensor, labels: Sequence[int]) -> float:
    """Percent of right answers when only these labels may answer."""
    best = scores[:, list(labels)].argmax(1)
    return 100 * float((torch.tensor(list(labels))[best] == y).double().mean())


def _compare(got: list[float], wanted: list[float], scores: Tensor, y: Tensor, sizes: tuple[int, int, int]) -> None:
    i, t, k = sizes
    if np.allclose(got, wanted, atol=1e-3):
        return
    case = f"with images of task index {i}, {t} tasks learned, {k} classes a task"
    every = _accuracy(scores, y, range(scores.shape[1]))
    local = 100 * float((scores[:, i * k : (i + 1) * k].argmax(1) == y).double().mean())
    slips = {
        "the two are swapped: TIL first, CIL second": wanted[::-1],
        "percent are asked for, not shares": [w / 100 for w in wanted],
        "in CIL a class that is not learned yet cannot be the answer": [wanted[0], every],
        "in TIL the argmax counts from 0 inside the task; labels do not": [local, wanted[1]],
        "both are CIL: in TIL only the task's own classes may answer": [wanted[1], wanted[1]],
        "both are TIL: in CIL all classes learned so far may answer": [wanted[0], wanted[0]],
    }
    for words, slip in slips.items():
        if np.allclose(got, slip, atol=1e-3):
            raise NotYet(words)
    which, k_ = ("TIL", 0) if abs(got[0] - wanted[0]) > 1e-3 else ("CIL", 1)
    raise NotYet(f"{which} should be {wanted[k_]:.4g} %, got {got[k_]:.4g}, {case}")


# -- 2.3 --------------------------------------------------------------------------------------------------------------


class StandIn:
    """A run that was never made: two random matrices of the right form."""

    def __init__(self, draws: np.random.Generator, n: int = 4) -> None:
        upper = np.triu_indices(n, 1)
        self.matrix, self._known = draws.uniform(0, 60, (n, n)), draws.uniform(60, 100, (n, n))
        self.matrix[upper] = self._known[upper] = np.nan
        self.R, self.R_task_known = (
            [[None if np.isnan(v) else float(v) for v in row] for row in values] for values in (self.matrix, self._known)
        )
        self.accuracy, self.bwt = metrics.accuracy(self.matrix), metrics.bwt(self.matrix)
        self.bwt_final, self.learning_accuracy = metrics.bwt_final(self.matrix), metrics.learning_accuracy(self.matrix)

    @property
    def known(self) -> Matrix:
        return self._known


@exercise(
    "2.3", hint="run.accuracy, and the mean of run.R_task_known[-1]; average both over runs_of(method); None if it is empty"
)
def ch02_3(answer: Callable[..., Any], test: Test) -> None:
    """told(methods, runs_of) -> {method: (accuracy, accuracy with the task known) or None}, means over the runs."""
    draws = np.random.default_rng(3)
    shelf = {
        "naive": [StandIn(draws) for _ in range(3)],
        "er": [StandIn(draws)],
        "cm": [],
        "gem": [StandIn(draws, 6), StandIn(draws, 6)],
    }
    for methods in (list(shelf), ["er", "gem"], ["cm"]):
        given = answer(methods, lambda method: list(shelf[method]))
        if given is None:
            raise NotYet("your function returns nothing; return a dictionary")
        test.true(isinstance(given, Mapping), f"the answer must be a dictionary, got {type(given).__name__}")
        test.true(set(given) == set(methods), f"its keys must be the methods {methods}, got {list(given)}")
        for method in methods:
            _compare_runs(method, given[method], shelf[method], test)


def _compare_runs(method: str, value: Any, runs: Sequence[StandIn], test: Test) -> None:
    if not runs:
        test.true(value is None, f"'{method}' was not run yet, so its entry is None, got {value}")
        return
    if value is None:
        raise NotYet(f"'{method}' has {len(runs)} runs, but its entry is None")
    got = _finite(f"the entry of '{method}'", value, 2)
    hidden, told = (float(np.mean([f(run) for run in runs])) for f in (lambda r: r.accuracy, lambda r: r.known[-1].mean()))
    slips = {
        "the two are swapped: not told first, told second": [told, hidden],
        "only the first run was used; average over all": [runs[0].accuracy, float(runs[0].known[-1].mean())],
        "the second is the mean of the whole matrix; take its last row": [hidden, _mean_of(runs, np.nanmean)],
        "the second is the mean of the diagonal; take the last row": [hidden, _mean_of(runs, metrics.learning_accuracy)],
    }
    for words, slip in slips.items():
        if np.allclose(got, slip) and not np.allclose(slip, [hidden, told]):
            raise NotYet(words)
    test.true(
        np.allclose(got, [hidden, told]), f"'{method}' should be ({hidden:.4g}, {told:.4g}), got ({got[0]:.4g}, {got[1]:.4g})"
    )


def _mean_of(runs: Sequence[StandIn], measure: Callable[[Matrix], Any]) -> float:
    return float(np.mean([measure(run.known) for run in runs]))
