"""Checks of chapter 10: an epoch's cost by hand, a fair ratio of times, how an epoch grows from the first task to the last."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from cmlib.reproduction.costs import literal_epoch
from cmlib.store import DIVERGED, FINISHED
from cmlib.teaching.checks.base import Test, exercise

# -- 10.1 -------------------------------------------------------------------------------------------------------------

N, BATCH, SUPPORT, TASKS = 1000, 50, 100, 5


@exercise(
    "10.1", hint="count images: the batch once, the support set in each of n / B steps, t passes at full price, t at a third"
)
def ch10_1(answer: Callable[[], Sequence[float]], test: Test) -> None:
    """Costs of an epoch of task-incremental CM in tasks 1 to 5, in epochs of plain training: n = 1,000, B = 50, S = 100."""
    given = answer()
    values = given.tolist() if hasattr(given, "tolist") else given
    test.true(isinstance(values, list | tuple), f"the answer must be a list, got {type(given).__name__}")
    test.true(len(values) == TASKS, f"the list must have {TASKS} numbers, one for each task, got {len(values)}")
    plain = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    test.true(plain, f"the list must hold numbers, got {list(values)}")
    got = [float(value) for value in values]
    wanted = [literal_epoch(N, BATCH, SUPPORT, t, graph=False).cost / N for t in range(TASKS)]
    slips = {
        "the support set is missing": [value - 2 for value in wanted],
        "the support set was counted once an epoch, not in every step": [value - 2 + SUPPORT / N for value in wanted],
        "the past model was counted at full price, though it has no backward pass": [3.0 + 2 * t for t in range(TASKS)],
        "the past model is missing": [3.0 + t for t in range(TASKS)],
        "task 1 already has a past task": [value + 4 / 3 for value in wanted],
        "the numbers are images, not epochs of plain training": [N * value for value in wanted],
        "the numbers are ratios to CM's own first task, not to plain training": [value / 3 for value in wanted],
    }
    for words, slip in slips.items():
        test.true(not np.allclose(got, slip), f"it looks as if {words}")
    for t, (mine, right) in enumerate(zip(got, wanted, strict=True)):
        test.close(f"the cost of task {t + 1}", mine, right)


# -- 10.2 -------------------------------------------------------------------------------------------------------------

Fair = Callable[..., float]


@exercise("10.2", hint="leave out the first warm_up rounds, divide within each round, and take the median of these ratios")
def ch10_2(answer: Fair, test: Test) -> None:
    """fair_ratio(a, b, warm_up) -> median over the rounds of a / b, the warm-up left out."""
    draws = np.random.default_rng(10)
    for round_ in range(8):
        rounds, warm_up = 7 + round_, 1 + round_ % 3
        speed = np.exp(draws.normal(0, 0.8, rounds))  # the machine is slower in some rounds than in others
        b = speed * np.exp(draws.normal(0, 0.05, rounds))
        a = 3 * speed * np.exp(draws.normal(0, 0.05, rounds))
        a[:warm_up] *= 20  # the first rounds are slow
        first, second = a.tolist(), b.tolist()
        got = answer(list(first), list(second), warm_up)
        wanted = statistics.median(x / y for x, y in zip(first[warm_up:], second[warm_up:], strict=True))
        test.true(isinstance(got, int | float | np.floating), f"the answer must be a number, got {type(got).__name__}")
        test.true(math.isclose(got, wanted, rel_tol=1e-9), _why(float(got), first, second, warm_up))
    test.close("the ratio of the toy case", answer([9.0, 2.0, 4.0, 6.0], [1.0, 1.0, 2.0, 2.0], 1), 2.0)
    test.close("the ratio without a warm-up", answer([2.0, 8.0], [1.0, 2.0], 0), 3.0)


def _why(got: float, a: Sequence[float], b: Sequence[float], warm_up: int) -> str:
    """What a wrong ratio looks like."""
    x, y = a[warm_up:], b[warm_up:]
    ratios = [one / other for one, other in zip(x, y, strict=True)]
    every = [one / other for one, other in zip(a, b, strict=True)]
    slips = {
        "the warm-up was not left out": statistics.median(every),
        "the last rounds were left out, not the first": statistics.median(every[:-warm_up]),
        "the means were divided": statistics.fmean(x) / statistics.fmean(y),
        "the medians were divided, though a slow round disturbs both sides alike": statistics.median(x) / statistics.median(y),
        "the mean of the ratios was taken, not the median": statistics.fmean(ratios),
        "b was divided by a": statistics.median(1 / one for one in ratios),
        "the fastest times were divided": min(x) / min(y),
    }
    for words, slip in slips.items():
        if math.isclose(got, slip, rel_tol=1e-9):
            return f"it looks as if {words}"
    return f"the median ratio should be {statistics.median(ratios):.4g}, got {got:.4g}"


# -- 10.3 -------------------------------------------------------------------------------------------------------------

RUNS: tuple[tuple[tuple[float, ...], ...], ...] = (
    ((2.0, 1.0, 5.0), (3.0, 2.5, 9.0), (4.0, 3.0, 30.0)),  # seconds of each epoch, one line a task: 3.0
    ((1.5, 1.0), (4.0, 4.0), (9.0, 2.0)),  # 2.0
    ((4.0, 2.0), (2.0, 3.0), (22.0, 14.0)),  # 7.0
)


@exercise("10.3", hint="the fastest epoch of the last task over that of the first, for each finished run; then the median")
def ch10_3(answer: Callable[..., float], test: Test) -> None:
    """growth(runs) -> median over the finished runs of min(seconds of the last task) / min(seconds of the first)."""
    for chosen, wanted in ((RUNS, 3.0), (RUNS[:1], 3.0), (RUNS[1:], 4.5), (RUNS[::-1], 3.0)):
        for stopped in (False, True):
            runs = [_run(seconds) for seconds in chosen] + ([_run(((1.0,), (90.0,)), False)] if stopped else [])
            got = answer(runs)
            test.true(isinstance(got, int | float | np.floating), f"the answer must be a number, got {type(got).__name__}")
            test.true(math.isclose(got, wanted, rel_tol=1e-9), _growth_slip(float(got), chosen, wanted, stopped))


def _growth_slip(got: float, chosen: Sequence[Any], wanted: float, stopped: bool) -> str:
    fastest = [min(run[-1]) / min(run[0]) for run in chosen]
    slips = {
        "the run that stopped was counted": statistics.median([*fastest, 90.0]) if stopped else math.nan,
        "the mean over the runs was taken": statistics.fmean(fastest),
        "the mean epoch was taken, not the fastest": statistics.median(
            statistics.fmean(run[-1]) / statistics.fmean(run[0]) for run in chosen
        ),
        "the first epoch was taken, not the fastest": statistics.median(run[-1][0] / run[0][0] for run in chosen),
        "the slowest epoch was taken, not the fastest": statistics.median(max(run[-1]) / max(run[0]) for run in chosen),
        "the first task was divided by the last": statistics.median(1 / one for one in fastest),
        "the second task stands in for the last": statistics.median(min(run[1]) / min(run[0]) for run in chosen),
    }
    for words, slip in slips.items():
        if math.isclose(got, slip, rel_tol=1e-9):
            return f"it looks as if {words}"
    return f"the growth of {len(chosen)} runs should be {wanted:g}, got {got:.4g}"


def _run(seconds: Sequence[Sequence[float]], ended: bool = True) -> SimpleNamespace:
    status = FINISHED if ended else f"{DIVERGED} (task 2, epoch 1)"
    return SimpleNamespace(seconds_per_epoch=[list(task) for task in seconds], status=status, gradient_steps=[10] * len(seconds))
