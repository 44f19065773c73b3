"""Checks of chapter 10: an epoch's cost by hand, a fair ratio of times, a CM whose support set passes more seldom."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cmlib import datasets
from cmlib.experiment import Experiment, fresh
from cmlib.methods.cm import CentroidsMatching
from cmlib.reproduction.costs import literal_epoch
from cmlib.teaching.checks.base import Test, exercise, slip_in

# -- 10.1 -------------------------------------------------------------------------------------------------------------

N, BATCH, SUPPORT, TASKS = 1000, 50, 100, 5


@exercise(
    "10.1", hint="count images: the batch once, the support set in each of n / B steps, t passes at full price, t at a third"
)
def ch10_1(answer: Callable[[], Sequence[float]], test: Test) -> None:
    """Costs of an epoch of task-incremental CM in tasks 1 to 5, in epochs of plain training: n = 1,000, B = 50, S = 100."""
    got = test.numbers(answer(), TASKS, "numbers, one for each task")
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
    test.no_slip(slips, lambda slip: np.allclose(got, slip, atol=0.006))
    for t, (mine, right) in enumerate(zip(got, wanted, strict=True)):
        test.close(f"the cost of task {t + 1}", mine, right, tolerance=0.002)  # two decimals do


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
    words = slip_in(slips, lambda slip: math.isclose(got, slip, rel_tol=1e-9), "it looks as if ")
    return words or f"the median ratio should be {statistics.median(ratios):.4g}, got {got:.4g}"


# -- 10.3 -------------------------------------------------------------------------------------------------------------

SECOND = "second time"  # what torch says when a graph is gone through again


@exercise(
    "10.3",
    hint="count the steps since begin_task; in every self.every-th one keep the fresh centroids, detached, for the next ones",
)
def ch10_3(answer: Any, test: Test) -> None:
    """A kind of CM whose support set passes in every `every`-th training step alone; in between its centroids rest, detached."""
    test.true(
        isinstance(answer, type) and issubclass(answer, CentroidsMatching), 'the answer must be a class of cm.METHODS["cm"]'
    )
    experiment = Experiment("digits", "til", "cm", profile="smoke", batch_size=8)
    images = datasets.load("digits")
    for every in (3, 1):
        method = answer(experiment.options, fresh(experiment, images).scenario)
        method.every = every
        for task in method.scenario.tasks[:2]:
            method.begin_task(task)
            _steps(method, task, every, test)
            method.eval()
            with torch.no_grad():
                wanted = CentroidsMatching.current_centroids(method, task)
                test.close("the centroids in eval mode, which end_task keeps,", method.current_centroids(task), wanted)
            method.end_task(task)


def _steps(method: Any, task: Any, every: int, test: Test) -> None:
    """Some training steps of a task: whether the support set passes in those where it should, and in no other."""
    seen: list[bool] = []
    hook = method.backbone.register_forward_pre_hook(
        lambda _, given: seen.append(len(given[0]) == len(method.support))
    )  # 10 images, a batch 8
    optimizer = method.make_optimizer()
    used: list[Tensor] = []
    own = method.current_centroids

    def noted(given: Any) -> Tensor:
        used.append(own(given))
        return used[-1]

    method.current_centroids = noted
    method.train()
    fresh_ones = None
    for k, (x, y) in zip(range(2 * every + 1), itertools.cycle(method.batches(task, 0))):
        seen.clear()
        used.clear()
        try:
            loss = method.step(optimizer, x, y, task)
        except RuntimeError as error:
            test.true(SECOND not in str(error), "a step between goes back through an old graph: keep the centroids detached")
            raise
        test.true(bool(torch.isfinite(loss)), f"the loss of step {k} is not finite")
        where = f"every = {every}, task {task.index + 1}, step {k} (counted from 0)"
        if k == 0:
            test.true(any(seen), f"{where}: a task begins with centroids of its own, so its support set must pass")
        elif k % every == 0:
            test.true(any(seen), f"{where}: the support set must pass again, and did not")
        else:
            test.true(not any(seen), f"{where}: the support set must rest, and passed")
        if used:
            fresh_ones = _centroids(used[-1], fresh_ones if k % every else None, where, test)
    del method.current_centroids
    hook.remove()


def _centroids(now: Tensor, before: Tensor | None, where: str, test: Test) -> Tensor:
    """Those of a step: fresh ones have a gradient; resting ones are the last fresh ones, without. Returns the fresh ones."""
    if before is None:
        test.true(now.requires_grad, f"{where}: fresh centroids have no gradient; detach only the copy that is kept")
        return now.detach().clone()
    test.true(torch.equal(now, before), f"{where}: the centroids that rest are not those of the last pass")
    test.true(not now.requires_grad, f"{where}: the centroids that rest must be detached")
    return before
