"""Checks of chapter 5: exemplars a class, prediction in the merged space, accuracy against the size of the memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from cmlib.memory import quota
from cmlib.projectors import Identity, Linear, ScaleTranslate, merge, merged_log_probabilities
from cmlib.teaching.checks.base import Test, exercise

# -- 5.1 --------------------------------------------------------------------------------------------------------------

MEMORY, TASKS, CLASSES_A_TASK = 50, 5, 2


@exercise("5.1", hint="the memory is shared by all classes seen so far: divide, and round down")
def ch05_1(answer: Callable[[], Sequence[int]], test: Test) -> None:
    """The smallest number of exemplars of a class after each of five tasks, with 50 in all and two classes a task."""
    given = answer()
    values = given.tolist() if hasattr(given, "tolist") else given
    test.true(isinstance(values, list | tuple), f"the answer must be a list, got {type(given).__name__}")
    test.true(len(values) == TASKS, f"the list must have {TASKS} numbers, one for each task, got {len(values)}")
    whole = all(isinstance(value, int | float) and float(value).is_integer() for value in values)
    test.true(whole, f"exemplars are whole images, got {list(values)}")
    numbers = [int(value) for value in values]
    seen = [CLASSES_A_TASK * (i + 1) for i in range(TASKS)]
    test.true(numbers != [MEMORY // (i + 1) for i in range(TASKS)], f"{numbers} counts exemplars a task, not a class")
    test.true(len(set(numbers)) > 1, f"{numbers[0]} after every task: the share of a class shrinks as classes arrive")
    for i, count in enumerate(seen):
        right = min(quota(MEMORY, list(range(count))).values())
        test.true(numbers[i] == right, f"after task {i + 1} {count} classes are known, and {numbers[i]} is not their share")


# -- 5.2 --------------------------------------------------------------------------------------------------------------

Predict = Callable[[Any, Any, Any], Tensor]


@exercise("5.2", hint="project every embedding and average; project every centroid and concatenate; then the nearest one")
def ch05_2(answer: Predict, test: Test) -> None:
    """merged_predict(embeddings, centroids, projectors) -> labels over all classes seen, [B]."""
    draws = torch.Generator().manual_seed(5)
    for round_ in range(6):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(round_)
            projectors = nn.ModuleList([ScaleTranslate(4), Linear(4), ScaleTranslate(4)])
        embeddings = 3 * torch.randn(3, 40, 4, generator=draws)
        centroids = [2 * torch.randn(k, 4, generator=draws) for k in (2, 3, 1)]
        given: Any = embeddings if round_ % 2 else list(embeddings)
        predicted = _labels(answer(given, centroids, projectors), 40, test)
        wanted = merged_log_probabilities(embeddings, centroids, projectors).argmax(1)
        test.true(bool((predicted == wanted).all()), _why(predicted, wanted, embeddings, centroids, projectors))
    _toy(answer, test)


def _labels(predicted: Any, count: int, test: Test) -> Tensor:
    labels = test.shape("the prediction", predicted, (count,))
    whole = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    test.true(whole, f"labels are whole numbers, got {str(labels.dtype).removeprefix('torch.')}")
    return labels


def _toy(answer: Predict, test: Test) -> None:
    """Two tasks with one class each: the toy case of the chapter, whose projector of task 2 turns by a right angle."""
    turn = Linear(2)
    turn.load_state_dict({"weight": torch.tensor([[0.0, 0.0], [1.0, 0.0]]), "bias": torch.zeros(2)})
    embeddings = torch.tensor([[[2.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]]])  # [t, B, E]
    centroids = [torch.tensor([[2.0, 0.0]]), torch.tensor([[2.0, 0.0]])]
    got = _labels(answer(embeddings, centroids, [Identity(2), turn]), 2, test).tolist()
    test.true(got == [0, 1], f"images a and b of the toy case have labels [0, 1], got {got}")


def _why(predicted: Tensor, wanted: Tensor, embeddings: Tensor, centroids: list[Tensor], projectors: Any) -> str:
    """What a wrong prediction looks like."""
    with torch.no_grad():
        anchors = torch.cat([project(c) for project, c in zip(projectors, centroids, strict=True)])
        merged = merge(embeddings, projectors)
        slips = {
            "the farthest centroid was chosen": torch.cdist(merged, anchors).argmax(1),
            "the centroids were not projected": torch.cdist(merged, torch.cat(centroids)).argmin(1),
            "the embeddings were not projected": torch.cdist(embeddings.mean(0), anchors).argmin(1),
            "the embeddings were added up, not averaged": torch.cdist(len(centroids) * merged, anchors).argmin(1),
            "only the last head was asked": torch.cdist(projectors[-1](embeddings[-1]), anchors).argmin(1),
        }
    for words, slip in slips.items():
        if bool((predicted == slip).all()):
            return f"it looks as if {words}"
    wrong = int((predicted != wanted).sum())
    return f"{wrong} of {len(wanted)} labels are wrong for three tasks with 2, 3 and 1 classes"


# -- 5.3 --------------------------------------------------------------------------------------------------------------

SIZES = (10, 20, 40)


@exercise("5.3", hint="change memory_size and nothing else, call run once for each size, and return run.accuracy")
def ch05_3(answer: Callable[..., Sequence[float]], test: Test) -> None:
    """memory_curve(sizes, run) -> the accuracy for each size; `run` stands in for cm.run, so nothing is trained here."""
    asked: list[Any] = []

    def stand_in(experiment: Any, *_: Any, **__: Any) -> SimpleNamespace:
        asked.append(experiment)
        size = getattr(experiment, "memory_size", 0)
        accuracy = 50.0 + 10.0 * SIZES.index(size) if size in SIZES else -1.0
        return SimpleNamespace(accuracy=accuracy, bwt=-5.0, bwt_final=-6.0, learning_accuracy=99.0, id="stand-in")

    for order in (SIZES, SIZES[::-1]):
        asked.clear()
        curve = answer(list(order), stand_in)
        test.true(len(asked) == len(order), f"run must be called {len(order)} times for {len(order)} sizes, got {len(asked)}")
        _experiments(asked, order, test)
        values = curve.tolist() if hasattr(curve, "tolist") else curve
        test.true(isinstance(values, list | tuple), f"the answer must be a list, got {type(curve).__name__}")
        numbers = all(isinstance(value, int | float) for value in values)
        test.true(numbers, "the list must hold numbers: run returns a Run, whose .accuracy is wanted")
        wanted = [50.0 + 10.0 * SIZES.index(size) for size in order]
        test.true([float(v) for v in values] == wanted, "the list must hold run.accuracy for each size, in the order asked")


def _experiments(asked: list[Any], sizes: Sequence[int], test: Test) -> None:
    for experiment, size in zip(asked, sizes, strict=True):
        method, scenario = getattr(experiment, "method", "?"), getattr(experiment, "scenario", "?")
        test.true((method, scenario) == ("cm", "cil"), f"cm in cil was asked for, got {method} in {scenario}")
        got = experiment.memory_size
        test.true(got == size, f"the run for size {size} has memory_size={got}")
    same = len({one.but(memory_size=SIZES[0]) for one in asked}) == 1
    test.true(same, "something besides memory_size changes from run to run (the seed?)")
