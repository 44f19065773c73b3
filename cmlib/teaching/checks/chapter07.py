"""Checks of chapter 7: GEM's projection by hand, A-GEM's projection, the loss of dark experience replay."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cmlib.methods.gem import project
from cmlib.teaching.checks.base import Test, exercise, slip_in

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
    pairs = test.listed(answer(), len(CASES), "pairs, one for each case")
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
        slips = {
            "that is g itself, which points against g1": g[1],
            "you added the margin on top of the projection; v is the larger of the two": margin,
        }
        slips |= {"that is the projection; the margin is larger than what it adds": 0.0} if g[1] + margin > 0 else {}
        slips |= {"that is g with its sign changed": -g[1], "only the margin was added": g[1] + margin}
    else:
        slips = {"the margin was added although g does not point against g1": g[1] + margin, "g points with g1 here": 0.0}
    return slip_in(slips, lambda second: abs(pair[1] - second) <= NEAR) or f"{list(pair)} is not what GEM steps along"


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
        test.true(
            torch.equal(kept.to(along.dtype), along), "a gradient that does not point against the mean must come back as it is"
        )
        if len(G) == 1:
            test.close("with one past task, GEM's projection", new, project(against, G, 0.0, 0.0))
    zero = answer(toy_g.clone(), torch.zeros(2, 2))
    test.true(
        torch.equal(test.shape("the result", zero, (2,)).to(toy_g.dtype), toy_g), "past gradients of zero must leave g as it is"
    )


def _right(answer: Projection, g: Tensor, G: Tensor, what: str, test: Test) -> Tensor:
    mean = G.mean(0)
    wanted = g - (g @ mean) / (mean @ mean) * mean
    got = test.shape("the result", answer(g.clone(), G.clone()), tuple(g.shape)).to(g.dtype)
    slips = {
        "g comes back unchanged": g,
        "the mean is not divided by its squared length": g - (g @ mean) * mean,
        "the mean is divided by its length, not by its squared length": g - (g @ mean) / mean.norm() * mean,
        "the part along the mean was added, not taken away": g + (g @ mean) / (mean @ mean) * mean,
        "only the last past gradient was used": g - (g @ G[-1]) / (G[-1] @ G[-1]) * G[-1],
        "the rows of G were used one after the other": _in_turn(g, G),
        "that is the part that should be taken away": (g @ mean) / (mean @ mean) * mean,
    }
    test.equals(f"the result for {what}", got, wanted, slips, f"{what}: ")
    return got


def _in_turn(g: Tensor, G: Tensor) -> Tensor:
    for row in G:
        g = g - (g @ row).clamp(max=0) / (row @ row) * row
    return g


# -- 7.3 --------------------------------------------------------------------------------------------------------------

DarkLoss = Callable[..., Tensor]


@exercise(
    "7.3",
    hint="add up three terms; there = ~kept.isnan() picks the scores that exist, before they are subtracted and squared; "
    "without replayed images only the first term is left",
)
def ch07_3(answer: DarkLoss, test: Test) -> None:
    """dark_loss(z, y, z_old, y_old, kept, alpha, beta) -> the loss of DER (beta = 0) or DER++."""
    draws = torch.Generator().manual_seed(73)
    nothing = torch.full((1, 3), math.nan)
    nothing[0, 0] = 1.0
    toy = (torch.zeros(1, 3), torch.tensor([2]), torch.tensor([[3.0, 5.0, 9.0]]), torch.tensor([0]), nothing)
    got = _scalar(answer(*toy, 0.5, 0.0), test)
    _dark_right(got, toy, 0.5, 0.0, test)
    test.close("the toy case, log 3 + 0.5 x (3 - 1)^2", got, math.log(3) + 2.0)
    for round_ in range(4):
        old, classes = 3 + round_, 4 + round_
        z, z_old, kept = (torch.randn(n, classes, generator=draws) for n in (5, old, old))
        y, y_old = (torch.randint(classes, (n,), generator=draws) for n in (5, old))
        kept[: 1 + round_, 2:] = math.nan  # stored when there were two classes only
        for alpha, beta in ((0.5, 0.0), (1.0, 0.7)):
            given = (z, y, z_old, y_old, kept)
            got = _scalar(answer(*(one.clone() for one in given), alpha, beta), test)
            _dark_right(got, given, alpha, beta, test)
        leaves = [one.clone().requires_grad_() for one in (z, z_old)]
        loss = answer(leaves[0], y, leaves[1], y_old, kept.clone(), 0.5, 0.0)
        for leaf in leaves:
            (slope,) = torch.autograd.grad(loss, leaf, retain_graph=True, allow_unused=True)
            test.true(slope is not None, "no gradient reaches the scores: is something detached?")
            finite = slope is not None and bool(torch.isfinite(slope).all())
            test.true(finite, "the gradient is NaN: NaN times zero is NaN, so pick the scores that exist before you square")
    none, wide = torch.empty(0, dtype=torch.int64), torch.empty(0, 4)
    alone = _scalar(answer(z[:, :4], y % 4, wide, none, wide.clone(), 0.5, 0.5), test)
    test.true(bool(torch.isfinite(alone)), "without replayed images the loss is NaN: the mean of nothing")
    test.close("the loss without replayed images", alone, F.cross_entropy(z[:, :4], y % 4))


def _scalar(value: Any, test: Test) -> Tensor:
    return test.shape("the loss", value, ())


def _dark_right(got: Tensor, given: tuple[Tensor, ...], alpha: float, beta: float, test: Test) -> None:
    z, y, z_old, y_old, kept = given
    there = ~kept.isnan()
    now, labels = F.cross_entropy(z, y), F.cross_entropy(z_old, y_old)
    square = (z_old[there] - kept[there]).square()
    wanted = now + alpha * square.mean() + beta * labels
    zeroed = (z_old - kept.nan_to_num(0.0)).square()
    soft = (z_old.softmax(1)[there] - kept.masked_fill(~there, -math.inf).softmax(1)[there]).square().mean()
    slips = {
        "the scores that did not exist were taken for zeros": now + alpha * zeroed.mean() + beta * labels,
        "the squares were divided by all scores, not by those that exist": now
        + alpha * square.sum() / kept.numel()
        + beta * labels,
        "the squares were added up and not averaged": now + alpha * square.sum() + beta * labels,
        "distances were averaged, not their squares": now + alpha * square.sqrt().mean() + beta * labels,
        "probabilities were compared, not scores": now + alpha * soft + beta * labels,
        "the cross-entropy of the current images is missing": wanted - now,
        "the current images are counted twice": wanted + now,
    }
    if beta:
        slips["the labels of the replayed images were left out (beta)"] = wanted - beta * labels
    else:
        slips["the labels of the replayed images were used although beta is 0"] = wanted + labels
    if bool(got.isnan()):
        test.true(False, "the loss is NaN: a class that did not exist has no kept score")
    test.equals("the loss", got, wanted, slips)
