"""Checks of chapter 2: what one cell of R changes, accuracy with and without the task, a third scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cmlib import metrics
from cmlib.teaching.checks.base import NotYet, Test, exercise, numbers, returned, slip_in

NAMES = ("Accuracy", "BWT", "final BWT", "learning accuracy", "forgetting")
BY_HAND = ((90.0, np.nan, np.nan), (60.0, 80.0, np.nan), (30.0, 50.0, 100.0))  # the matrix of the chapter


def _finite(what: str, value: Any, count: int) -> list[float]:
    """A tuple, list, array or tensor of `count` finite numbers."""
    found = numbers(what, value, count)
    if not np.isfinite(found).all():
        raise NotYet(f"{what} must be finite numbers, got {found}")
    return found


# -- 2.1 --------------------------------------------------------------------------------------------------------------


RISEN = 93.0  # the accuracy on task 1 after task 2, which was 60


@exercise("2.1", hint="write down which cells each number is made of, then ask whether the changed cell is among them")
def ch02_1(answer: Callable[[], Sequence[float]], test: Test) -> None:
    """The changes of the five numbers when the accuracy on task 1 after task 2 rises from 60 to 93."""
    got = _finite("the changes", returned(answer()), 5)
    before = np.array(BY_HAND)
    after = before.copy()
    after[1, 0] = RISEN
    measures = (metrics.accuracy, metrics.bwt, metrics.bwt_final, metrics.learning_accuracy, metrics.forgetting)
    wanted = [measure(after) - measure(before) for measure in measures]
    test.true(
        not np.allclose(got, [measure(after) for measure in measures]), "these are the new values; the changes are asked for"
    )
    test.true(got[1] >= 0, "BWT contains the cell, and the cell rises, so BWT cannot fall")
    for name, value, right in list(zip(NAMES, got, wanted, strict=True))[:4]:
        if right == 0:
            test.true(abs(value) < 1e-6, f"{name} does not contain that cell, so it cannot change; you have {value:g}")
        else:
            test.true(abs(value) > 1e-6, f"{name} contains that cell, so it does change")
            test.true(abs(value - (RISEN - 60)) > 1e-6, f"{name} is a mean: one cell among three changes by {RISEN - 60:g}")
            test.true(abs(value - right) < 0.01, f"{name} does not change by {value:g}")
    _forgotten(got[4], wanted[4], test)


def _forgotten(value: float, right: float, test: Test) -> None:
    test.true(abs(value) > 1e-6, "forgetting does change: task 1 is now at its best after task 2, not right after it was learned")
    test.true(
        value > 0, "the best earlier value of task 1 is higher than before, so there is more to fall from: forgetting rises"
    )
    test.true(abs(value - 2 * right) > 1e-6, "forgetting is a mean over two old tasks, and only one of them falls deeper")
    test.true(
        abs(value - (RISEN - 60) / 2) > 1e-6, "before the change the best value of task 1 was the 90 on the diagonal, not the 60"
    )
    test.true(abs(value - right) < 0.01, f"forgetting does not change by {value:g}")


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
    if words := slip_in(slips, lambda slip: np.allclose(got, slip, atol=1e-3)):
        raise NotYet(words)
    which, k_ = ("TIL", 0) if abs(got[0] - wanted[0]) > 1e-3 else ("CIL", 1)
    raise NotYet(f"{which} should be {wanted[k_]:.4g} %, got {got[k_]:.4g}, {case}")


# -- 2.3 --------------------------------------------------------------------------------------------------------------


@exercise("2.3", hint="take the rows of make_tasks(y, order, n_tasks), and of its labels what is left after whole tasks: % k")
def ch02_3(answer: Callable[[Tensor, Tensor, int], Any], test: Test) -> None:
    """domain_tasks(y, order, n_tasks) -> (rows, labels) of each task, labels from 0 to k - 1 in every task."""
    draws = torch.Generator().manual_seed(3)
    for classes, n_tasks in ((4, 2), (10, 5), (12, 3), (6, 6)):
        order = torch.randperm(classes, generator=draws)
        y = torch.cat([torch.arange(classes), torch.randint(classes, (40,), generator=draws)])
        given = returned(answer(y.clone(), order.clone(), n_tasks), "return the tasks")
        if not isinstance(given, list | tuple) or len(given) != n_tasks:
            raise NotYet(f"return a list of {n_tasks} tasks")
        for i, task in enumerate(given):
            _compare_domain(task, y, torch.argsort(order)[y], order, i, classes // n_tasks, test)


def _compare_domain(task: Any, y: Tensor, new: Tensor, order: Tensor, i: int, k: int, test: Test) -> None:
    if not isinstance(task, list | tuple) or len(task) != 2 or not all(isinstance(part, Tensor) for part in task):
        raise NotYet(f"task {i + 1} must be a pair of tensors (rows, labels)")
    rows, labels = task
    test.true(labels.dtype == torch.int64, f"labels are of type int64, as cross-entropy wants them, got {labels.dtype}")
    if rows.shape != labels.shape or rows.ndim != 1:
        raise NotYet(f"task {i + 1} has rows {list(rows.shape)} and labels {list(labels.shape)}: one label for each row")
    arrive = order[i * k : (i + 1) * k].tolist()
    mine = (new // k == i).nonzero().flatten()
    test.true(
        set(rows.tolist()) == set(mine.tolist()), f"task {i + 1} should hold the images of the classes {arrive}, which come then"
    )
    test.true(len(rows) == len(mine), f"task {i + 1} holds an image twice")
    if torch.equal(labels, new[rows]) and i:
        raise NotYet(f"task {i + 1} has labels of its own, {sorted(set(labels.tolist()))}: the network has only {k} outputs")
    inside = set(labels.tolist()) <= set(range(k))
    test.true(inside, f"the labels of task {i + 1} are {sorted(set(labels.tolist()))}; they must run from 0 to {k - 1}")
    if torch.equal(labels, y[rows] % k) and not torch.equal(labels, new[rows] % k):
        raise NotYet("the labels follow the class numbers; they must follow the order in which the classes arrive")
    test.true(torch.equal(labels, new[rows] % k), f"in task {i + 1} class {arrive[0]} comes first, so it is label 0")
