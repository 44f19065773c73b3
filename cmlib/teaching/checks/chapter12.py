"""Checks of chapter 12: images for a steady mean, classes of unequal size, centroids of all images of a task."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from cmlib import datasets
from cmlib.centroids import class_centroids
from cmlib.experiment import Experiment, fresh
from cmlib.methods.cm import CentroidsMatching
from cmlib.scenario import Task
from cmlib.teaching.checks.base import Test, exercise, plain, slip_in

# -- 12.1 -------------------------------------------------------------------------------------------------------------

PARTS = (2, 5, 10)


@exercise("12.1", hint="jitter is sigma / sqrt(s) for a very large class: set it equal to sigma / 2 and solve for s")
def ch12_1(answer: Callable[[], Sequence[int]], test: Test) -> None:
    """Support images for which the jitter of a centroid is at most a half, a fifth and a tenth of sigma."""
    numbers = test.whole(answer(), len(PARTS), "images come whole")
    slips = {
        "jitter fell in proportion to the images; it falls with their root": list(PARTS),
        "the root was taken where the square is wanted": [math.ceil(math.sqrt(part)) for part in PARTS],
        "one image more than needed was taken: at most allows equality": [part**2 + 1 for part in PARTS],
        "the numbers are for a task of two classes; the question is about one class": [2 * part**2 for part in PARTS],
    }
    test.no_slip(slips, lambda slip: numbers == slip, f"{numbers}: it looks as if ")
    for part, number in zip(PARTS, numbers, strict=True):
        test.true(number == part**2, f"with {number} images the jitter is not first at most sigma / {part}")


# -- 12.2 -------------------------------------------------------------------------------------------------------------

Missing = Callable[[list[int], int], float]


def chance_of_missing(counts: Sequence[int], size: int) -> float:
    """The chance that `size` images drawn from classes of these sizes lack at least one of them."""
    sets = (one for j in range(1, len(counts) + 1) for one in itertools.combinations(counts, j))
    total = sum(counts)
    return sum((-1) ** (len(one) + 1) * math.comb(total - sum(one), size) for one in sets) / math.comb(total, size)


@exercise(
    "12.2",
    hint="for every set of absent classes (itertools.combinations): plus or minus math.comb(images of the others, S)",
)
def ch12_2(answer: Missing, test: Test) -> None:
    """missing_any(counts, S) -> the chance that some class gets none of S images drawn at random."""
    cases = (
        ([3, 3], 2),
        ([1, 3], 2),
        ([2, 3, 4], 3),
        ([5, 1, 2, 6], 4),
        ([500, 20, 5], 40),
        ([50] * 6, 12),
        ([7, 2], 9),
        ([4, 4, 4], 2),
    )
    for counts, size in cases:
        given = list(counts)
        got = plain(answer(given, size))
        test.true(isinstance(got, int | float), f"a chance is a number, got {type(got).__name__}")
        test.true(given == list(counts), "the list that was given must stay as it is")
        wanted = chance_of_missing(counts, size)
        test.true(abs(got - wanted) < 1e-4, f"counts {list(counts)}, S = {size}: {_why(float(got), counts, size, wanted)}")


def _why(got: float, counts: Sequence[int], size: int, wanted: float) -> str:
    """What a wrong chance looks like."""
    total, K = sum(counts), len(counts)
    draws = math.comb(total, size)
    alone = [math.comb(total - count, size) / draws for count in counts]
    equal = chance_of_missing([round(total / K)] * K, size) if K * round(total / K) >= size else math.nan
    put_back = sum(
        (-1) ** (j + 1) * (1 - sum(one) / total) ** size for j in range(1, K + 1) for one in itertools.combinations(counts, j)
    )
    product = 1 - math.prod(1 - one for one in alone)
    slips = {
        "it is the chance that no class is missing: take it from 1": 1 - wanted,
        "draws that lack two classes were counted twice": sum(alone),
        "the classes were taken to be of one size": equal,
        "images were put back after each draw": put_back,
        "the classes were taken to be independent of one another": product,
        "it is the chance for the smallest class alone": max(alone),
        "it is in percent": 100 * wanted,
    }
    words = slip_in(slips, lambda slip: math.isclose(got, slip, rel_tol=1e-6, abs_tol=1e-9), "it looks as if ")
    return words or f"the chance is {wanted:.4f}, got {got:.4f}"


# -- 12.3 -------------------------------------------------------------------------------------------------------------


@exercise(
    "12.3",
    hint="join task.x and task.support_x, embed(prepare(x), task.index) without gradient, class_centroids, then .copy_()",
)
def ch12_3(answer: Any, test: Test) -> None:
    """A kind of CM that keeps, at the end of a task, the mean embedding of all images of each class."""
    kind = isinstance(answer, type) and issubclass(answer, CentroidsMatching)
    test.true(kind, 'the answer must be a class of cm.METHODS["cm"]')
    images = datasets.load("digits")
    for scenario in ("til", "cil"):
        experiment = Experiment("digits", scenario, "cm", profile="smoke")
        method = answer(experiment.options, fresh(experiment, images).scenario)
        for task in method.scenario.tasks[:2]:
            method.begin_task(task)
            _training_is_as_before(method, task, test)
            method.eval()
            before = copy.deepcopy(method.backbone.state_dict())
            method.end_task(task)
            same = all(torch.equal(before[name], value) for name, value in method.backbone.state_dict().items())
            test.true(same, "the backbone changed while centroids were kept: its batch norm must stay in evaluation mode")
            _kept(method, task, f"{scenario.upper()}, task {task.index + 1}", test)


def _training_is_as_before(method: Any, task: Task, test: Test) -> None:
    method.train()
    optimizer = method.make_optimizer()
    x, y = next(iter(method.batches(task, 0)))
    method.step(optimizer, x, y, task)
    with torch.no_grad():
        method.eval()
        wanted = CentroidsMatching.current_centroids(method, task)
        test.close("the centroids of a training step, from the support set,", method.current_centroids(task), wanted)


def _means(method: Any, x: Tensor, y: Tensor, task: Task, raw: bool = False) -> Tensor:
    e = method.embed(x.float() if raw else method.scenario.prepare(x), task.index)
    return class_centroids(e, y - task.classes.start, len(task.classes))


@torch.no_grad()
def _kept(method: Any, task: Task, where: str, test: Test) -> None:
    x, y = torch.cat([task.x, task.support_x]), torch.cat([task.y, task.support_y])
    wanted = _means(method, x, y, task)
    got = test.shape(f"{where}: the kept centroids", method.centroids[task.index], tuple(wanted.shape))
    test.true(not got.requires_grad, f"{where}: what is kept must have no gradient")
    slips = {
        "nothing was kept: fill the buffer with .copy_()": torch.zeros_like(wanted),
        "the support set alone was averaged, as CM does": _means(method, task.support_x, task.support_y, task),
        "the support set was left out": _means(method, task.x, task.y, task),
        "the images were not normalised": _means(method, x, y, task, raw=True),
        "the two means were averaged, whatever their numbers of images": (
            _means(method, task.x, task.y, task) + _means(method, task.support_x, task.support_y, task)
        )
        / 2,
        "all images went into one mean": method.embed(method.scenario.prepare(x), task.index).mean(0).expand_as(wanted),
    }
    test.no_slip(slips, lambda slip: torch.allclose(got, slip, atol=1e-6), f"{where}: it looks as if ")
    test.close(f"{where}: the kept centroids", got, wanted)
