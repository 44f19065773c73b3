"""Checks of chapter 8: the smallest p of a sign-flip test, average ranks over seeds, a nearest-mean read-out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from cmlib.teaching.checks.base import Test, exercise, slip_in

# -- 8.1 --------------------------------------------------------------------------------------------------------------

SEEDS = (2, 3, 4, 5, 6)


@exercise("8.1", hint="n seeds have 2 ** n patterns of signs, and two of them are as extreme as all gaps on one side")
def ch08_1(answer: Callable[[], Sequence[float]], test: Test) -> None:
    """The smallest two-sided p of a sign-flip test with 2, 3, 4, 5 and 6 seeds."""
    values = test.numbers(answer(), len(SEEDS))
    one_sided = [1 / 2**n for n in SEEDS]
    test.true(
        not np.allclose(values, one_sided, atol=0.001),
        f"{values[0]:g} for two seeds counts one side alone: a gap can go either way",
    )
    test.true(all(0 < value <= 1 for value in values), "a p value lies above 0 and is at most 1")
    test.true(all(a > b for a, b in itertools.pairwise(values)), "each further seed makes the smallest p smaller")
    for n, value in zip(SEEDS, values, strict=True):
        test.close(f"the smallest p with {n} seeds", value, 2 / 2**n, tolerance=0.0006)  # three decimals do


# -- 8.2 --------------------------------------------------------------------------------------------------------------

Ranks = Callable[[Any], Any]


@exercise("8.2", hint="rank the methods anew for each seed, best first, share tied ranks evenly, then average over the seeds")
def ch08_2(answer: Ranks, test: Test) -> None:
    """average_ranks(scores [methods, seeds]) -> the mean rank of each method; rank 1 is the highest score."""
    draws = np.random.default_rng(8)
    for round_ in range(6):
        scores = draws.normal(80, 5, (4, 3 + round_)) + 10 * draws.normal(size=(1, 3 + round_))  # seeds differ more than methods
        scores = scores.round(-1) if round_ % 2 else scores  # every other time with ties
        _ranks(answer, scores, test)
    _ranks(answer, np.array([[90.0, 70.0], [80.0, 80.0], [70.0, 70.0]]), test)
    test.close("the ranks of the toy case", _array(answer(np.array([[90.0, 70.0], [80.0, 80.0]])), 2, test).tolist()[0], 1.5)


def _array(given: Any, count: int, test: Test) -> np.ndarray[Any, Any]:
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        test.true(False, f"the answer must hold numbers, got {type(given).__name__}")
        raise
    test.true(values.shape == (count,), f"the ranks must have shape [{count}], one a method, got {list(values.shape)}")
    return values


def _ranks(answer: Ranks, scores: np.ndarray[Any, Any], test: Test) -> None:
    before = scores.copy()
    got = _array(answer(scores), len(scores), test)
    test.true(bool((scores == before).all()), "the scores that were given must stay as they are")
    wanted = rankdata(-scores, axis=0).mean(1)
    test.true(bool(np.allclose(got, wanted)), _why(got, wanted, scores))
    M = len(scores)
    test.true(bool(np.isclose(got.sum(), M * (M + 1) / 2)), f"the ranks of {M} methods must sum to {M * (M + 1) // 2}")


def _why(got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], scores: np.ndarray[Any, Any]) -> str:
    """What wrong ranks look like."""
    slips = {
        "rank 1 went to the lowest score": rankdata(scores, axis=0).mean(1),
        "the mean scores were ranked, not each seed's": rankdata(-scores.mean(1)),
        "tied methods got the best of their ranks, not its mean": rankdata(-scores, method="min", axis=0).mean(1),
        "tied methods got different ranks": rankdata(-scores, method="ordinal", axis=0).mean(1),
        "ranks were counted from 0": wanted - 1,
        "the ranks were added up, not averaged": wanted * scores.shape[1],
    }
    words = slip_in(slips, lambda slip: np.allclose(got, slip), "it looks as if ")
    return words or f"the mean ranks should be {wanted.round(2).tolist()}, got {got.round(2).tolist()}"


# -- 8.3 --------------------------------------------------------------------------------------------------------------

Readout = Callable[[Tensor, Tensor, Tensor], Tensor]


@exercise(
    "8.3", hint="stack the mean feature of each class, take torch.cdist from the queries to these means, and put a minus before"
)
def ch08_3(answer: Readout, test: Test) -> None:
    """nearest_mean(features [M, D], labels [M], queries [B, D]) -> minus the distance to the mean of each class [B, K]."""
    toy = torch.tensor([[0.0, 0.0], [2.0, 2.0], [0.0, 4.0]]), torch.tensor([0, 0, 1]), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    _readout(answer, *toy, test, "the toy case")
    g = torch.Generator().manual_seed(8)
    for round_ in range(6):
        classes, size = 2 + round_, 3 + round_
        labels = torch.cat([torch.arange(classes), torch.randint(0, classes, (7,), generator=g)])  # of unequal numbers
        labels = labels[torch.randperm(len(labels), generator=g)]
        features, queries = (torch.randn(n, size, generator=g) for n in (len(labels), 4))
        _readout(answer, features, labels, queries, test, f"{classes} classes, {size} features")


def _readout(answer: Readout, features: Tensor, labels: Tensor, queries: Tensor, test: Test, what: str) -> None:
    classes = int(labels.max()) + 1
    got = test.shape(f"{what}: the scores", answer(features.clone(), labels.clone(), queries.clone()), (len(queries), classes))
    parts = [features[labels == k] for k in range(classes)]
    right = -torch.cdist(queries, torch.stack([part.mean(0) for part in parts]))
    shown = list(dict.fromkeys(labels.tolist()))
    slips = {
        "the distances lack their minus: the nearest mean must have the highest score": -right,
        "the features of a class were added up, not averaged": -torch.cdist(queries, torch.stack([p.sum(0) for p in parts])),
        "the nearest exemplar was taken, not the mean of its class": -torch.stack(
            [torch.cdist(queries, part).min(1)[0] for part in parts], 1
        ),
        "the distances to a class's exemplars were averaged, not its exemplars": -torch.stack(
            [torch.cdist(queries, part).mean(1) for part in parts], 1
        ),
        "the distances are squared: they name the same class, but minus the plain distance is asked for": -(right**2),
        "the classes stand in the order in which they appear, not in that of their labels": right[:, shown],
    }
    test.equals(f"{what}: the scores", got, right, slips, f"{what}: ")
