"""Checks of chapter 7: GEM's projection by hand, A-GEM's projection, what the missing task costs each method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from cmlib.methods import METHODS
from cmlib.methods.gem import project
from cmlib.teaching.checks.base import Test, exercise

# -- 7.1 --------------------------------------------------------------------------------------------------------------

PAST = (0.0, 1.0)  # the past gradient g1
CASES = (((2.0, -0.5), 0.0), ((2.0, -0.5), 0.25), ((2.0, -0.5), 1.0), ((2.0, 0.5), 1.0))  # g and the margin
NEAR = 0.02  # an answer read off the widget may be so far away


@exercise(
    "7.1",
    hint="g is changed only when g times g1 is negative; then v g1 is added, v as small as it can be but at least the margin",
)
def ch07_1(answer: Callable[[], Sequence[Sequence[float]]], test: Test) -> None:
    """The gradients GEM steps along in four cases: four pairs of numbers."""
    given = answer()
    pairs = given.tolist() if hasattr(given, "tolist") else given
    test.true(isinstance(pairs, list | tuple), f"the answer must be a list, got {type(given).__name__}")
    test.true(len(pairs) == len(CASES), f"the list must have {len(CASES)} pairs, one for each case, got {len(pairs)}")
    for case, pair in zip("abcd", pairs, strict=True):
        whole = isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(value, int | float) for value in pair)
        test.true(whole, f"case {case} must be a pair of numbers, got {pair}")
    for case, pair, (g, margin) in zip("abcd", pairs, CASES, strict=True):
        test.true(_near(pair, _gem(g, margin)), f"case {case}: {_why_not(pair, g, margin)}")


def _gem(g: Sequence[float], margin: float) -> list[float]:
    past = torch.tensor([PAST], dtype=torch.float64)
    found: list[float] = project(torch.tensor(g, dtype=torch.float64), past, margin, ridge=0.0).tolist()
    return found


def _near(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(abs(x - y) <= NEAR for x, y in zip(a, b, strict=True))


def _why_not(pair: Sequence[float], g: Sequence[float], margin: float) -> str:
    """What a wrong pair looks like; g1 is (0, 1), so a multiple of it changes the second number only."""
    if not _near(pair[:1], g[:1]):
        return "g1 points up, so adding a multiple of it cannot change the first number"
    if g[1] < 0:
        slips = {"that is g itself, which points against g1": g[1], "the margin comes on top of the projection there": margin}
        slips |= {"that is g with its sign changed": -g[1], "only the margin was added": g[1] + margin}
    else:
        slips = {"the margin was added although g does not point against g1": g[1] + margin, "g points with g1 here": 0.0}
    for words, second in slips.items():
        if abs(pair[1] - second) <= NEAR:
            return words
    return f"{list(pair)} is not what GEM steps along"


# -- 7.2 --------------------------------------------------------------------------------------------------------------

Projection = Callable[[Tensor, Tensor], Tensor]


@exercise("7.2", hint="take the mean of the rows of G; if g times it is negative, take away g's part along it")
def ch07_2(answer: Projection, test: Test) -> None:
    """agem(g, G) -> g, or g without its part along the mean past gradient. [P], [t, P] -> [P]"""
    draws = torch.Generator().manual_seed(7)
    toy_g, toy_G = torch.tensor([1.0, -2.0]), torch.tensor([[0.0, 1.0], [0.0, 3.0]])
    _right(answer, toy_g, toy_G, "the toy case", test)
    for round_ in range(6):
        G = torch.randn(1 + round_ % 3, 8, generator=draws)
        mean = G.mean(0)
        across = torch.randn(8, generator=draws)
        across = across - (across @ mean) / (mean @ mean) * mean
        against, along = across - (0.5 + round_) * mean, across + 0.5 * mean
        new = _right(answer, against, G, "a gradient that points against the mean", test)
        test.close("the product of the result with the mean past gradient", new @ mean, 0.0)
        kept = test.shape("the result", answer(along.clone(), G.clone()), (8,))
        test.true(torch.equal(kept, along), "a gradient that does not point against the mean must come back as it is")
        if len(G) == 1:
            test.close("with one past task, GEM's projection", new, project(against, G, 0.0, 0.0))
    zero = answer(toy_g.clone(), torch.zeros(2, 2))
    test.true(torch.equal(test.shape("the result", zero, (2,)), toy_g), "past gradients of zero must leave g as it is")


def _right(answer: Projection, g: Tensor, G: Tensor, what: str, test: Test) -> Tensor:
    mean = G.mean(0)
    wanted = g - (g @ mean) / (mean @ mean) * mean
    got = test.shape("the result", answer(g.clone(), G.clone()), tuple(g.shape))
    slips = {
        "g comes back unchanged": g,
        "the mean is not divided by its squared length": g - (g @ mean) * mean,
        "the mean is divided by its length, not by its squared length": g - (g @ mean) / mean.norm() * mean,
        "the part along the mean was added, not taken away": g + (g @ mean) / (mean @ mean) * mean,
        "only the last past gradient was used": g - (g @ G[-1]) / (G[-1] @ G[-1]) * G[-1],
        "the rows of G were used one after the other": _in_turn(g, G),
        "that is the part that should be taken away": (g @ mean) / (mean @ mean) * mean,
    }
    for words, slip in slips.items():
        clear = not torch.allclose(slip, wanted, atol=1e-4)
        test.true(not (clear and torch.allclose(got, slip, atol=1e-5)), f"{what}: it looks as if {words}")
    test.close(f"the result for {what}", got, wanted)
    return got


def _in_turn(g: Tensor, G: Tensor) -> Tensor:
    for row in G:
        g = g - (g @ row).clamp(max=0) / (row @ row) * row
    return g


# -- 7.3 --------------------------------------------------------------------------------------------------------------

KNOWN = {"naive": 82.0, "er": 95.0, "ewc": 84.0}  # the last row's mean with the task given, of seed 0
UNKNOWN = {"naive": 20.0, "er": 85.0, "ewc": 21.0}


@exercise(
    "7.3", hint="ask find for each name and seed; skip what is None or not finished; R_task_known[-1] is the last row, task given"
)
def ch07_3(answer: Callable[..., Mapping[str, float]], test: Test) -> None:
    """task_price(names, find) -> {name: mean accuracy with the task minus without}; find stands in for the store."""
    asked: list[Any] = []

    def stand_in(experiment: Any) -> SimpleNamespace | None:
        asked.append(experiment)
        return _stored(experiment)

    for names in (["naive", "er", "ewc"], ["ewc", "naive"], ["cumulative", "er"]):
        asked.clear()
        prices = answer(list(names), stand_in)
        test.true(bool(asked), "find was never called")
        _asked_rightly(asked, names, test)
        test.true(isinstance(prices, Mapping), f"the answer must be a dictionary, got {type(prices).__name__}")
        test.true("cumulative" not in prices, "cumulative has no run in this store, so it must not be in the answer")
        wanted = [name for name in names if name in KNOWN]
        test.true(list(prices) == wanted, f"the answer must name {', '.join(wanted)}; it names {', '.join(map(str, prices))}")
        for name in wanted:
            _price_right(name, prices[name], test)


def _stored(experiment: Any) -> SimpleNamespace | None:
    """A run as the store has it. Seed 2 of ER broke off after its first task; other methods are not there."""
    name, seed = getattr(experiment, "method", "?"), getattr(experiment, "seed", 0)
    if name not in KNOWN or seed > 2:
        return None
    known, unknown = KNOWN[name] + seed, UNKNOWN[name] - 2 * seed
    last: tuple[list[Any], list[Any]] = ([known - 3, known + 3], [unknown - 3, unknown + 3])
    status = "finished"
    if name == "er" and seed == 2:
        unknown, last, status = math.nan, ([None, None], [None, None]), "stopped: the loss is not finite"
    rows, id_ = {"R_task_known": [[99.0, None], last[0]], "R": [[99.0, None], last[1]]}, f"{name}-stand-in"
    return SimpleNamespace(accuracy=unknown, status=status, seed=seed, id=id_, **rows)


def _asked_rightly(asked: Sequence[Any], names: Sequence[str], test: Test) -> None:
    for experiment in asked:
        method, scenario = getattr(experiment, "method", "?"), getattr(experiment, "scenario", "?")
        test.true(
            method in METHODS and scenario == "cil", f"only runs of CIL know both answers; {method} in {scenario} was asked for"
        )
    missing = [name for name in names if name not in {experiment.method for experiment in asked}]
    test.true(not missing, f"no run of {missing[0] if missing else ''} was asked for")
    few = [name for name in names if len({one.seed for one in asked if one.method == name}) < 3]
    test.true(not few, f"ask for the seeds 0, 1 and 2 of each method; {few[0] if few else ''} was asked for fewer")


def _price_right(name: str, price: Any, test: Test) -> None:
    runs = [KNOWN[name] - UNKNOWN[name] + 3 * seed for seed in range(2 if name == "er" else 3)]
    test.true(isinstance(price, int | float) or hasattr(price, "item"), f"the price of {name} must be a number, got {price!r}")
    value, right = float(price), sum(runs) / len(runs)
    test.true(math.isfinite(value), f"the price of {name} is {value}: a run that broke off has no accuracy")
    test.true(abs(value + right) > 1e-6, f"the price of {name} has the wrong sign: with the task minus without")
    test.true(len(runs) == 3 or abs(value - sum(runs) / 3) > 1e-6, f"{name} has {len(runs)} finished runs: divide by as many")
    test.true(
        abs(value - runs[0]) > 1e-6, f"the price of {name} is that of seed 0 alone; take the mean over its {len(runs)} runs"
    )
    test.close(f"the price of {name}", value, right)
