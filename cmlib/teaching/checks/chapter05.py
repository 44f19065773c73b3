"""Checks of chapter 5: exemplars a class, prediction in the merged space, a projector of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cmlib.memory import quota
from cmlib.projectors import Identity, Linear, ScaleTranslate, merge, merged_log_probabilities
from cmlib.teaching.checks.base import Test, exercise, slip_in

# -- 5.1 --------------------------------------------------------------------------------------------------------------

MEMORY, TASKS, CLASSES_A_TASK = 50, 5, 2


@exercise("5.1", hint="the memory is shared by all classes seen so far: divide, and round down")
def ch05_1(answer: Callable[[], Sequence[int]], test: Test) -> None:
    """The smallest number of exemplars of a class after each of five tasks, with 50 in all and two classes a task."""
    numbers = test.whole(answer(), TASKS, "exemplars are whole images", "numbers, one for each task")
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
    wrong = int((predicted != wanted).sum())
    words = slip_in(slips, lambda slip: (predicted == slip).all(), "it looks as if ")
    return words or f"{wrong} of {len(wanted)} labels are wrong for three tasks with 2, 3 and 1 classes"


# -- 5.3 --------------------------------------------------------------------------------------------------------------

SIZE = 6


@exercise("5.3", hint="self.offset = nn.Parameter(0.1 * torch.randn(size)) in __init__, after super(); return e + self.offset")
def ch05_3(answer: Any, test: Test) -> None:
    """OwnOffset(size): a projector that adds one learned vector, the same whatever the embedding is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        one, other = answer(SIZE), answer(SIZE)
        e = 3 * torch.randn(4, SIZE)
    test.true(isinstance(one, nn.Module), f"a projector is an nn.Module, got {type(one).__name__}")
    weights = list(one.parameters())
    test.true(bool(weights), "the optimizer finds no weights: a plain tensor is not learned")
    given = e.clone()
    moved = test.shape("the projection of [4, 6]", one(e), (4, SIZE))
    test.true(torch.equal(e, given), "your projector changes the embeddings that it is given; return a new tensor")
    offset = (moved - e).detach()
    _only_adds(offset, test)
    count = sum(weight.numel() for weight in weights)
    test.true(count == SIZE, f"one vector of {SIZE} features has {SIZE} weights, got {count}")
    gradient = test.gradient("the projection", moved, weights[0])
    test.close("the gradient of the sum over 4 images", gradient.reshape(-1), torch.full((SIZE,), 4.0))
    test.true(tuple(one(e[0]).shape) == (SIZE,), "a single embedding [E] must stay one, as centroids may come alone")
    test.true(tuple(one(e[None]).shape) == (1, 4, SIZE), "embeddings of several heads [t, B, E] must keep their shape")
    test.true(bool(offset[0].abs().max() > 0), "the offset begins at exactly 0; begin with small random numbers")
    shared = {id(weight) for weight in weights} & {id(weight) for weight in other.parameters()}
    test.true(not shared, "two projectors share one offset; each task needs its own: make it in __init__")


def _only_adds(offset: Tensor, test: Test) -> None:
    """Every row of `offset` [4, E], what was added to four embeddings, is the same vector."""
    same = torch.allclose(offset, offset[:1].expand_as(offset), atol=1e-4)
    test.true(same, "what is added depends on the embedding: it is another vector for another image")
    flat = bool((offset[0] - offset[0, 0]).abs().max() < 1e-6) and bool(offset[0].abs().max() > 0)
    test.true(not flat, "all features get the same number; the vector needs one for each feature")
