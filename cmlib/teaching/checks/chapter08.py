"""Checks of chapter 8: the smallest p of a sign-flip test, average ranks over seeds, gaps paired by seed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.stats import rankdata

from cmlib.store import DIVERGED, FINISHED
from cmlib.teaching.checks.base import Test, exercise

# -- 8.1 --------------------------------------------------------------------------------------------------------------

SEEDS = (2, 3, 4, 5, 6)


@exercise("8.1", hint="n seeds have 2 ** n patterns of signs, and two of them are as extreme as all gaps on one side")
def ch08_1(answer: Callable[[], Sequence[float]], test: Test) -> None:
    """The smallest two-sided p of a sign-flip test with 2, 3, 4, 5 and 6 seeds."""
    values = _numbers(answer(), len(SEEDS), test)
    one_sided = [1 / 2**n for n in SEEDS]
    test.true(not np.allclose(values, one_sided), f"{values[0]:g} for two seeds counts one side alone: a gap can go either way")
    test.true(all(0 < value <= 1 for value in values), "a p value lies above 0 and is at most 1")
    test.true(all(a > b for a, b in itertools.pairwise(values)), "each further seed makes the smallest p smaller")
    for n, value in zip(SEEDS, values, strict=True):
        test.close(f"the smallest p with {n} seeds", value, 2 / 2**n)


def _numbers(given: Any, count: int, test: Test) -> list[float]:
    values = given.tolist() if hasattr(given, "tolist") else given
    test.true(isinstance(values, list | tuple), f"the answer must be a list, got {type(given).__name__}")
    test.true(len(values) == count, f"the list must have {count} numbers, got {len(values)}")
    plain = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    test.true(plain, f"the list must hold numbers, got {values}")
    return [float(value) for value in values]


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
    for words, slip in slips.items():
        if np.allclose(got, slip):
            return f"it looks as if {words}"
    return f"the mean ranks should be {wanted.round(2).tolist()}, got {got.round(2).tolist()}"


# -- 8.3 --------------------------------------------------------------------------------------------------------------

Gaps = Callable[..., Mapping[int, float]]
CASES: tuple[tuple[dict[int, float], dict[int, float], tuple[int, ...]], ...] = (
    ({0: 80.0, 1: 82.0, 2: 90.0}, {0: 78.0, 1: 85.0, 2: 81.0}, ()),
    ({4: 70.0, 1: 60.0, 0: 50.0}, {1: 59.0, 4: 75.0, 9: 99.0}, ()),
    ({0: 40.0, 1: 41.0, 3: 42.0}, {0: 39.0, 1: 30.0, 3: 20.0}, (1,)),
    ({0: 10.0}, {1: 20.0}, ()),
    ({2: 55.0, 3: 60.0}, {3: 60.0, 2: 54.0}, ()),
)


@exercise("8.3", hint="ask find for both, keep runs whose status is 'finished', and subtract within the same seed only")
def ch08_3(answer: Gaps, test: Test) -> None:
    """paired_gaps(first, second, find) -> {seed: accuracy of first - of second}; `find` stands in for a store's."""
    for first, second, stopped in CASES:
        asked: list[Any] = []
        found = answer("first", "second", _finder(first, second, stopped, asked))
        test.true({"first", "second"} == set(asked), f"find must be asked for both experiments, was asked for {asked}")
        test.true(isinstance(found, Mapping), f"the answer must be a mapping of seeds to gaps, got {type(found).__name__}")
        seeds = sorted((first.keys() & second.keys()) - set(stopped))
        _seeds(found, seeds, stopped, test)
        for seed in seeds:
            wanted, got = first[seed] - second[seed], found[seed]
            test.true(isinstance(got, int | float), f"a gap must be a number, got {type(got).__name__}")
            test.true(got != -wanted or not wanted, f"the gap of seed {seed} has the wrong sign: first minus second")
            test.close(f"the gap of seed {seed}", float(got), wanted)


def _seeds(found: Mapping[int, float], seeds: Sequence[int], stopped: Sequence[int], test: Test) -> None:
    bad = sorted(set(found) & set(stopped))
    test.true(not bad, f"seed {bad[0] if bad else ''} stopped: its loss was not finite, and it has no accuracy")
    test.true(sorted(found) == list(seeds), f"the seeds that both have finished are {list(seeds)}, got {sorted(found)}")


def _finder(first: Mapping[int, float], second: Mapping[int, float], stopped: Sequence[int], asked: list[Any]) -> Any:
    """A stand-in for `find`: runs in the order of the mappings; the stopped seeds of the second have no accuracy."""

    def find(experiment: Any, *_: Any, **__: Any) -> list[SimpleNamespace]:
        asked.append(experiment)
        values = first if experiment == "first" else second
        halted = stopped if experiment == "second" else ()
        return [_run(seed, value, seed in halted) for seed, value in values.items()]

    return find


def _run(seed: int, accuracy: float, stopped: bool) -> SimpleNamespace:
    status = f"{DIVERGED} (task 2, epoch 1)" if stopped else FINISHED
    return SimpleNamespace(
        seed=seed, accuracy=float("nan") if stopped else accuracy, bwt_final=-1.0, status=status, id=f"s{seed}"
    )
