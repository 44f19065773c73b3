"""Checks of chapter 17: accuracy over images, classes dealt to unequal tasks, the nearest class mean as a method."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from cmlib import datasets
from cmlib.experiment import COMMON
from cmlib.methods.base import Method
from cmlib.scenario import Scenario, Task
from cmlib.teaching.checks.base import NotYet, Test, exercise, plain

# -- 17.1 -------------------------------------------------------------------------------------------------------------


@exercise(
    "17.1", hint="a task with twice as many test images counts twice: sum of row times counts, divided by the sum of counts"
)
def ch17_1(answer: Callable[..., float], test: Test) -> None:
    """over_images(row, counts) -> the accuracy over all test images, percent."""
    _weighed(answer, [50.0, 100.0, 100.0], [40, 30, 30], test)
    draws = random.Random(17)
    for n in (1, 2, 5, 7):
        row = [round(draws.uniform(0, 100), 1) for _ in range(n)]
        _weighed(answer, row, [draws.randint(1, 90) for _ in range(n)], test)
    _weighed(answer, [20.0, 80.0], [30, 30], test)


def _weighed(answer: Callable[..., float], row: list[float], counts: list[int], test: Test) -> None:
    got = plain(answer(torch.tensor(row), torch.tensor(counts)))
    right = sum(a * n for a, n in zip(row, counts, strict=True)) / sum(counts)
    what = f"row {row}, counts {counts}"
    test.true(isinstance(got, int | float), f"{what}: the accuracy is a number, got {type(got).__name__}")
    slips = {
        "every task was weighed alike": sum(row) / len(row),
        "it was divided by the number of tasks": right * sum(counts) / len(row),
        "it was not divided by anything": right * sum(counts),
        "it is a share and not in percent": right / 100,
        "tasks with few images weigh more": sum(a / n for a, n in zip(row, counts, strict=True)) / sum(1 / n for n in counts),
    }
    slipped = f"{what}: {got:.4g}; it looks as if "
    test.no_slip(slips, lambda slip: abs(got - slip) <= 0.06 and abs(slip - right) >= 0.2, slipped)
    test.true(abs(got - right) <= 0.051, f"{what}: {right:.4g} percent of the images are right, got {got:.4g}")


# -- 17.2 -------------------------------------------------------------------------------------------------------------

Deal = Callable[[Tensor, Tensor, Sequence[int]], Sequence[tuple[Tensor, Tensor]]]


@exercise(
    "17.2", hint="new = torch.argsort(order)[y] gives every sample its new label; task i has those from o_i to o_i + k_i - 1"
)
def ch17_2(answer: Deal, test: Test) -> None:
    """deal(y, order, sizes) -> positions and new labels of each task's samples."""
    _deal(answer, torch.tensor([2, 0, 1, 2, 0]), torch.tensor([2, 0, 1]), (1, 2), test)
    g = torch.Generator().manual_seed(17)
    for sizes in ((4, 3, 3), (1, 5), (2, 2, 2), (3, 1, 1, 4)):
        classes = sum(sizes)
        y = torch.randint(0, classes, (4 * classes,), generator=g)
        _deal(answer, y, torch.randperm(classes, generator=g), sizes, test)


def _deal(answer: Deal, y: Tensor, order: Tensor, sizes: Sequence[int], test: Test) -> None:
    given = answer(y.clone(), order.clone(), tuple(sizes))
    what = f"sizes {tuple(sizes)}"
    if not isinstance(given, list | tuple) or len(given) != len(sizes):
        raise NotYet(f"{what}: return a list of {len(sizes)} pairs, one a task")
    new, first = torch.argsort(order)[y], 0
    for i, (pair, k) in enumerate(zip(given, sizes, strict=True)):
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(one, Tensor) for one in pair):
            raise NotYet(f"{what}: task {i + 1} must be a pair of tensors, rows and labels")
        rows, labels = (one.long() for one in pair)
        mine = (new >= first) & (new < first + k)
        old = (y >= first) & (y < first + k)
        where = f"{what}, task {i + 1}"
        wanted = mine.nonzero().squeeze(1)
        unordered = torch.equal(rows, old.nonzero().squeeze(1)) and not torch.equal(mine, old)
        test.true(not unordered, f"{where}: these are the classes {first} to {first + k - 1} as they were, not as they arrive")
        test.true(
            sorted(rows.tolist()) == wanted.tolist(), f"{where}: {len(wanted)} samples are of it, got {len(rows)} or others"
        )
        test.true(torch.equal(rows, wanted), f"{where}: the positions must ascend")
        restart = first > 0 and labels.shape == rows.shape and torch.equal(labels, new[wanted] - first)
        test.true(not restart or not len(rows), f"{where}: the labels begin at 0 again; they must run on from {first}")
        same = labels.shape == rows.shape and torch.equal(labels, y[wanted]) and not torch.equal(y[wanted], new[wanted])
        test.true(not same, f"{where}: these are the original labels, not the new ones")
        test.true(torch.equal(labels, new[wanted]), f"{where}: the labels must be the places of the classes in order")
        first += k


# -- 17.3 -------------------------------------------------------------------------------------------------------------


@exercise(
    "17.3",
    hint="x = self.scenario.prepare(task.x); the mean of x[task.y == label] for every label; -torch.cdist(x, self.means)",
)
def ch17_3(answer: type[Method], test: Test) -> None:
    """NearestMean: class means of the normalised vectors, nearest mean, nothing trained."""
    test.true(isinstance(answer, type) and issubclass(answer, Method), "NearestMean must be a class derived from cm.Method")
    for kind, sizes in (("cil", (2, 1, 2)), ("til", (3, 2)), ("cil", (5,))):
        scenario = Scenario(_vectors(), kind, len(sizes), 2, task_sizes=sizes)
        options = {name: option.default for name, option in COMMON.items()} | {"backbone": "mlp"}
        method = answer(options, scenario)
        for task in scenario.tasks:
            method.begin_task(task)
            method.eval()
            method.end_task(task)
            _scores(method, scenario, task, test)


def _vectors() -> datasets.ImageData:
    """Vectors of five classes, of unlike sizes, scales and numbers, so that typical mistakes show."""
    g = torch.Generator().manual_seed(3)
    y = torch.arange(60) % 5
    centres = torch.randn(5, 3, generator=g) * torch.tensor([1.0, 40.0, 0.1]) + torch.tensor([5.0, 0.0, 1.0])
    x = centres[y] + 0.6 * torch.randn(60, 3, generator=g) * torch.tensor([1.0, 40.0, 0.1])
    return datasets.load(((x[:40], y[:40]), (x[40:], y[40:])))


def _scores(method: Any, scenario: Scenario, task: Task, test: Test) -> None:
    """Scores after a task, over all classes so far and over each task's own."""
    seen = scenario.tasks[: task.index + 1]
    means, plain = [], []
    for one in seen:
        x = scenario.prepare(one.x)
        means += [x[one.y == label].mean(0) for label in one.classes]
        plain += [one.x[one.y == label].mean(0) for label in one.classes]
    right, raw = torch.stack(means), torch.stack(plain)
    x = scenario.prepare(torch.cat([one.test_x for one in seen]))
    where = f"after task {task.index + 1}"
    whole = test.shape(f"{where}: scores(x)", method.scores(x), (len(x), len(right)))
    wanted = -torch.cdist(x, right)
    near = {
        "the means are of vectors that were not normalised": -torch.cdist(x, raw),
        "the distances are not taken with a minus": -wanted,
    }
    test.no_slip(near, lambda slip: torch.allclose(whole, slip, atol=1e-4), f"{where}: it looks as if ")
    squared = torch.allclose(whole, -wanted.square(), atol=1e-3)
    test.true(not squared, f"{where}: the distances are squared; the nearest mean is the same, but give the distances themselves")
    test.true(torch.allclose(whole, wanted, atol=1e-3), f"{where}: scores(x) must be minus the distances to the class means")
    for one in seen:
        got = method.scores(x, one)
        test.shape(f"{where}: scores(x, task {one.index + 1})", got, (len(x), len(one.classes)))
        own = wanted[:, one.classes.start : one.classes.stop]
        test.true(torch.allclose(got, own, atol=1e-3), f"{where}: with task {one.index + 1} known, only its own classes count")
