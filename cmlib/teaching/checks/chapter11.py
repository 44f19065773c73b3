"""Checks of chapter 11: which projectors keep midpoints, one folded into a head, a projector with few directions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cmlib.teaching.checks.base import Test, exercise

# -- 11.1 -------------------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[bool, str]] = {  # formula -> whether it keeps midpoints, and why
    "e + b": (True, "the same b is added to both points and to their middle"),
    "W e + b": (True, "W of a middle is the middle of W's results"),
    "W ReLU(e) + b": (False, "the ReLU of a middle is not the middle of two ReLUs: try 2 and -2"),
    "e + W e + b": (True, "it is (I + W) e + b, which is affine"),
    "e s, with one learned vector s": (True, "each feature is multiplied by the same number, whatever e is"),
    "e sigmoid(W e)": (False, "how much a feature shrinks depends on e"),
}


@exercise("11.1", hint="a map that is a fixed matrix times e plus a fixed vector keeps midpoints; try two points for the others")
def ch11_1(answer: Callable[[], Sequence[bool]], test: Test) -> None:
    """For each of six projectors: whether the middle of two points goes to the middle of their images."""
    values = test.listed(answer(), len(KINDS), "booleans, one for each projector")
    plain = all(isinstance(value, bool) or value in (0, 1) for value in values)
    test.true(plain, f"each of the six is True or False, got {values}")
    got, wanted = [bool(value) for value in values], [keeps for keeps, _ in KINDS.values()]
    test.true(got != [not keeps for keeps in wanted], "all six are the other way round: True is for those that keep midpoints")
    for (formula, (keeps, why)), value in zip(KINDS.items(), got, strict=True):
        test.true(value == keeps, f"{formula} {'keeps' if keeps else 'does not keep'} midpoints: {why}")


# -- 11.2 -------------------------------------------------------------------------------------------------------------

Fold = Callable[[nn.Sequential, nn.Linear], nn.Sequential]


@exercise("11.2", hint="copy.deepcopy(head), then the last layer gets weight P V and bias P v + b, under torch.no_grad()")
def ch11_2(answer: Fold, test: Test) -> None:
    """folded(head, projector) -> a new head that gives projector(head(x))."""
    for round_, (features, size) in enumerate(((3, 2), (5, 4), (6, 7), (4, 4))):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(round_)
            head = nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, size))
            projector, x = nn.Linear(size, size), torch.randn(9, features)
        before = copy.deepcopy(nn.ModuleList([head, projector])).state_dict()
        new = answer(head, projector)
        _form(new, head, projector, test)
        after = nn.ModuleList([head, projector]).state_dict()
        same = all(torch.equal(before[name], after[name]) for name in before)
        test.true(same, "the head or the projector that was given has changed")
        with torch.no_grad():
            _value(new(x), x, head, projector, test)


def _form(new: Any, head: nn.Module, projector: nn.Module, test: Test) -> None:
    """Whether the new head has the form of the old one, and weights of its own."""
    test.true(isinstance(new, nn.Sequential), f"the new head must be an nn.Sequential, got {type(new).__name__}")
    kinds = [type(layer).__name__ for layer in new]
    test.true(kinds == ["Linear", "ReLU", "Linear"], f"the new head must be Linear, ReLU, Linear, got {', '.join(kinds)}")
    mine = {weight.data_ptr() for weight in new.parameters()}
    theirs = {weight.data_ptr() for module in (head, projector) for weight in module.parameters()}
    test.true(not mine & theirs, "the new head shares weights with what was given; copy them")


def _value(got: Tensor, x: Tensor, head: Any, projector: Any, test: Test) -> None:
    P, b, V, v = projector.weight, projector.bias, head[2].weight, head[2].bias
    inner, wanted = head[1](head[0](x)), projector(head(x))  # what the head's last layer sees; what the new head should give
    test.shape("what the new head gives", got, (len(x), len(b)))
    slips = {
        "it is the head, without the projector": head(x),
        "the head's bias did not go through the projector": inner @ (P @ V).T + v + b,
        "the head's bias is missing": inner @ (P @ V).T + b,
        "the projector's bias is missing": projector(head(x)) - b,
        "the projector's matrix is the wrong way round": inner @ (P.T @ V).T + P.T @ v + b,
        "the product of the matrices is in the wrong order": inner @ (V @ P).T + P @ v + b if V.shape == P.shape else wanted,
    }
    test.equals("what the new head gives", got, wanted, slips)


# -- 11.3 -------------------------------------------------------------------------------------------------------------


@exercise(
    "11.3",
    hint="R = nn.Parameter(torch.randn(r, size) / size**0.5), L = nn.Parameter(torch.zeros(size, r)); e + (e @ R.T).relu() @ L.T",
)
def ch11_3(answer: Any, test: Test) -> None:
    """LowRank(size, r): e + L ReLU(R e), which begins as the identity and acts in r directions."""
    for size, r in ((6, 2), (8, 3), (5, 1)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(size)
            one, other, e = answer(size, r), answer(size, r), 2 * torch.randn(30, size)
        test.true(isinstance(one, nn.Module), f"a projector is an nn.Module, got {type(one).__name__}")
        test.shape(f"the projection of [30, {size}]", one(e), (30, size))
        left, right = _two_factors(one, size, r, test)
        start = (one(e) - e).detach().abs().max()
        test.true(bool(start < 1e-6), "it must begin as pi(e) = e: the first values of L are zero")
        _random(right, _two_factors(other, size, r, test)[1], test)
        _acts(one, e, left, right, test)
        _gradients(one, e, left, test)
        test.true(tuple(one(e[0]).shape) == (size,), "a single embedding [E] must stay one, as centroids may come alone")
        test.true(tuple(one(e[None]).shape) == (1, 30, size), "embeddings of several heads [t, B, E] must keep their shape")
    _variance(answer, test)


def _two_factors(one: nn.Module, size: int, r: int, test: Test) -> tuple[nn.Parameter, nn.Parameter]:
    """L and R among the weights: L is the one that begins at zero."""
    weights = list(one.parameters())
    test.true(bool(weights), "the optimizer finds no weights: a plain tensor is not learned")
    count = sum(weight.numel() for weight in weights)
    test.true(
        count == 2 * r * size, f"L and R have {2 * r * size} weights for E = {size}, r = {r}, got {count} (a bias, perhaps?)"
    )
    two = len(weights) == 2 and all(weight.numel() == r * size for weight in weights)
    test.true(two, f"two matrices of {r * size} weights are wanted, got {[list(weight.shape) for weight in weights]}")
    zero = [not weight.detach().any() for weight in weights]
    test.true(not all(zero), "L and R both begin at zero, so that no gradient reaches either; R is random")
    test.true(any(zero), "neither matrix begins at zero; L must, or it does not begin as pi(e) = e")
    return (weights[0], weights[1]) if zero[0] else (weights[1], weights[0])


def _random(right: Tensor, other: Tensor, test: Test) -> None:
    test.true(not torch.equal(right, other), "two projectors begin with the same R; draw it anew in each __init__")
    test.true(right.data_ptr() != other.data_ptr(), "two projectors share their R; each task needs its own")


def _gradients(one: nn.Module, e: Tensor, left: nn.Parameter, test: Test) -> None:
    slope = test.gradient("the projection", one(e), left)
    test.true(bool(slope.abs().max() > 0), "no gradient reaches L, so that it never leaves zero")


def _acts(one: nn.Module, e: Tensor, left: nn.Parameter, right: nn.Parameter, test: Test) -> None:
    """With an L that has moved: whether the projector is the formula, or one of its slips."""
    with torch.no_grad():
        left.copy_(torch.linspace(-1, 1, left.numel()).reshape(left.shape))
        size, r = e.shape[1], left.numel() // e.shape[1]
        L = left if tuple(left.shape) == (size, r) else left.T  # [E, r]
        R = right if tuple(right.shape) == (r, size) else right.T  # [r, E]
        added = one(e) - e
        slips = {
            "the ReLU is missing, so that it keeps midpoints": (e @ R.T) @ L.T,
            "the ReLU acts on e and not on R e": (e.relu() @ R.T) @ L.T,
            "the ReLU acts on what is added, so that no feature can shrink": ((e @ R.T) @ L.T).relu(),
            "e itself was left out": (e @ R.T).relu() @ L.T - e,
        }
        test.no_slip(slips, lambda slip: torch.allclose(added, slip, atol=1e-4))
        test.close("what is added to e once L has moved", added, (e @ R.T).relu() @ L.T)


def _variance(answer: Any, test: Test) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        weights = list(answer(400, 50).parameters())
    spread = max(float(weight.detach().std()) for weight in weights) * 400**0.5
    test.true(0.8 < spread < 1.25, f"R's first values must have the variance 1 / E; theirs is {spread**2:.2g} / E")
