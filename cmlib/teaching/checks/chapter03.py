"""Checks of chapter 3: a support point that moves, a linear layer from centroids, a distance that does not mind the units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cmlib.centroids import class_centroids, distances
from cmlib.teaching.checks.base import NotYet, Test, exercise, returned, slip_in

# -- 3.1 --------------------------------------------------------------------------------------------------------------

SUPPORT = ((0.0, 0.0), (2.0, 0.0), (4.0, 3.0), (4.0, 5.0), (-3.0, 4.0), (-1.0, 4.0))  # of the chapter
LABELS = (0, 0, 1, 1, 2, 2)
MOVED = (8.0, 0.0)  # where the second support point goes
QUERY = (0.0, 1.0)


@exercise("3.1", hint="a centroid is a mean of two points, so it moves half as far; then compare three distances")
def ch03_1(answer: Callable[[], Any], test: Test) -> None:
    """The new centroid of class 0 (x, y), and the class of the query before and after."""
    given = returned(answer())
    if not isinstance(given, tuple | list) or len(given) != 3:
        raise NotYet("return three things: the new centroid (x, y), the class before, the class after")
    try:
        centroid = [float(value) for value in given[0]]
        before, after = int(given[1]), int(given[2])
    except (TypeError, ValueError):
        raise NotYet("the centroid must be two numbers, each class one whole number") from None
    support, y = torch.tensor(SUPPORT, dtype=torch.double), torch.tensor(LABELS)
    moved = support.clone()
    moved[1] = torch.tensor(MOVED)
    query = torch.tensor([QUERY], dtype=torch.double)
    old, new = class_centroids(support, y, 3), class_centroids(moved, y, 3)
    test.true(len(centroid) == 2, f"the centroid has two coordinates, got {len(centroid)}")
    test.true(centroid != list(MOVED), "that is the point that moved, not the mean of the class")
    test.true(not _near(centroid, old[0]), "the centroid did not move: it is the mean, so every support point counts")
    test.true(_near(centroid, new[0]), f"the mean of the two support points of class 0 is not {centroid}")
    for when, got, centroids in (("before", before, old), ("after", after, new)):
        test.true(got in range(3), f"there are the classes 0, 1 and 2, got {got}")
        test.true(
            got == int(distances(query, centroids).argmin()), f"{when} the move another centroid is nearer than that of {got}"
        )


def _near(centroid: list[float], wanted: Tensor) -> bool:
    return all(abs(got - value) < 1e-6 for got, value in zip(centroid, wanted.tolist(), strict=True))


# -- 3.2 --------------------------------------------------------------------------------------------------------------

Layer = Callable[[Tensor], Any]


@exercise("3.2", hint="write out the square: three terms, of which one is the same for all classes and may go")
def ch03_2(answer: Layer, test: Test) -> None:
    """to_linear(c) -> weight [K, E], bias [K]: a linear layer with the probabilities of the squared distance."""
    draws = torch.Generator().manual_seed(3)
    for k, features in ((3, 2), (2, 2), (5, 8), (10, 3), (4, 16), (1, 4)):
        c = torch.randn(k, features, generator=draws, dtype=torch.double)
        e = torch.randn(20, features, generator=draws, dtype=torch.double)
        weight, bias = _layer(answer(c.clone()), k, features, test)
        got, wanted = (e @ weight.T + bias).softmax(1), (-distances(e, c, "squared")).softmax(1)
        test.true(torch.allclose(got, wanted, atol=1e-5), _why(weight, bias, c, e))
    c = torch.randn(3, 4, generator=draws, dtype=torch.double, requires_grad=True)
    weight, bias = _layer(answer(c), 3, 4, test)
    test.gradient("the weight", weight, c)
    test.gradient("the bias", bias, c)


def _layer(given: Any, k: int, features: int, test: Test) -> tuple[Tensor, Tensor]:
    if not isinstance(returned(given, "return weight and bias"), tuple | list) or len(given) != 2:
        raise NotYet("return two tensors: weight [K, E] and bias [K]")
    return test.shape("weight", given[0], (k, features)).double(), test.shape("bias", given[1], (k,)).double()


def _why(weight: Tensor, bias: Tensor, c: Tensor, e: Tensor) -> str:
    """What a wrong layer looks like."""
    norms = c.square().sum(1)
    same_weight = bool(torch.allclose(weight, 2 * c))
    if same_weight and bool(torch.allclose(bias, torch.zeros_like(bias))):
        return "there is no bias: centroids far from the origin would win too often"
    if same_weight and bool(torch.allclose(bias, norms)):
        return "the bias has the wrong sign: the logits are MINUS the squared distances"
    if same_weight and bool(torch.allclose(bias, -norms.sqrt())):
        return "the bias needs the squared length of a centroid, not the length"
    if bool(torch.allclose(weight, -2 * c)):
        return "the weight has the wrong sign: the logits are MINUS the squared distances"
    if bool(torch.allclose(weight, c)) and bool(torch.allclose(bias, -norms)):
        return "the factor 2 of the middle term is missing"
    if bool(((e @ weight.T + bias).argmax(1) == distances(e, c).argmin(1)).all()):
        return "the nearest class wins, but the probabilities differ: is everything scaled by one factor?"
    return "the probabilities are not those of the squared distance"


# -- 3.3 --------------------------------------------------------------------------------------------------------------


@exercise("3.3", hint="spread = (x - c[y]).square().mean(0).sqrt(); keep the features where it is above 0; divide e and c by it")
def ch03_3(answer: Callable[..., Any], test: Test) -> None:
    """own_units(e, c, x, y) -> plain distances [B, K] after each feature was divided by its spread within classes."""
    c = torch.tensor([[0.0, 0.0], [4.0, 30.0]], dtype=torch.double)
    x = torch.tensor([[-1.0, -10.0], [1.0, 10.0], [3.0, 20.0], [5.0, 40.0]], dtype=torch.double)
    y, e = torch.tensor([0, 0, 1, 1]), torch.tensor([[3.0, 40.0], [0.0, 0.0], [2.0, 5.0]], dtype=torch.double)
    toy = test.shape("distances of the toy case", answer(e, c, x, y), (3, 2)).double()  # spreads 1 and 10
    test.true(_alike(toy, _in_own_units(e, c, x, y)), _why_units(toy, e, c, x, y))
    draws = torch.Generator().manual_seed(3)
    for k, features, n in ((3, 4, 30), (2, 6, 12), (4, 1, 16)):
        x = torch.randn(n, features, generator=draws, dtype=torch.double)
        y = torch.arange(n) % k
        x += 3 * torch.randn(k, features, generator=draws, dtype=torch.double)[y]
        e, c = torch.randn(5, features, generator=draws, dtype=torch.double), class_centroids(x, y, k)
        got = test.shape(f"distances to {k} centroids", answer(e.clone(), c, x, y), (5, k)).double()
        test.true(_alike(got, _in_own_units(e, c, x, y)), _why_units(got, e, c, x, y))
        units = torch.rand(features, generator=draws, dtype=torch.double) * 50 + 0.1
        other = answer(e * units, c * units, x * units, y).double()
        test.true(_alike(got, other), "in other units of the features the distances are no longer the same")
        values = ((e, 3.0), (c, 2.0), (x, 2.0))  # a new image may have another value there
        dead = [torch.cat([part, torch.full((len(part), 1), value, dtype=torch.double)], 1) for part, value in values]
        same = answer(*dead, y).double()
        test.true(
            bool(torch.isfinite(same).all()), "a feature that is the same in all images gives NaN or infinity: leave it out"
        )
        test.true(_alike(got, same), "a feature that is the same in all training images changes the distances: leave it out")
    e[0] = c[0]
    test.gradient("the distances, one of which is 0,", answer(e.requires_grad_(), c, x, y), e)


def _alike(got: Tensor, wanted: Tensor) -> bool:
    return bool(torch.allclose(got, wanted, atol=1e-5, rtol=1e-5))


def _in_own_units(e: Tensor, c: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return _divided(e, c, (x - c[y]).square().mean(0).sqrt())


def _divided(e: Tensor, c: Tensor, spread: Tensor) -> Tensor:
    return distances(e / spread, c / spread)


def _why_units(got: Tensor, e: Tensor, c: Tensor, x: Tensor, y: Tensor) -> str:
    """What a wrong distance looks like."""
    spread = (x - c[y]).square().mean(0).sqrt()
    looks = {
        "these are the distances before the features were divided": distances(e, c),
        "these are squared distances": distances(e / spread, c / spread, "squared"),
        "only the points were divided by the spread, not the centroids": distances(e / spread, c),
        "the spread must be taken around the centroid of each image's own class, not around the mean of all images": _divided(
            e, c, (x - x.mean(0)).square().mean(0).sqrt()
        ),
        "the features were divided by the mean squared difference; the spread is its root": _divided(e, c, spread.square()),
        "the features were divided by the mean of the absolute differences, not by the root of the mean square": _divided(
            e, c, (x - c[y]).abs().mean(0)
        ),
        "the features were multiplied by the spread": _divided(e, c, 1 / spread),
    }
    return (
        slip_in(looks, lambda wrong: torch.allclose(got.detach().to(wrong.dtype), wrong, atol=1e-6))
        or "the distances are not those between points and centroids whose features were divided by their spread"
    )
