"""Checks of chapter 3: a support point that moves, a linear layer from centroids, accuracy against support size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from cmlib.centroids import class_centroids, distances
from cmlib.teaching.checks.base import NotYet, Test, exercise

# -- 3.1 --------------------------------------------------------------------------------------------------------------

SUPPORT = ((0.0, 0.0), (2.0, 0.0), (4.0, 3.0), (4.0, 5.0), (-3.0, 4.0), (-1.0, 4.0))  # of the chapter
LABELS = (0, 0, 1, 1, 2, 2)
MOVED = (8.0, 0.0)  # where the second support point goes
QUERY = (0.0, 1.0)


@exercise("3.1", hint="a centroid is a mean of two points, so it moves half as far; then compare three distances")
def ch03_1(answer: Callable[[], Any], test: Test) -> None:
    """The new centroid of class 0 (x, y), and the class of the query before and after."""
    given = answer()
    if given is None:
        raise NotImplementedError
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
    test.true(centroid != old[0].tolist(), "the centroid did not move: it is the mean, so every support point counts")
    test.true(centroid == new[0].tolist(), f"the mean of the two support points of class 0 is not {centroid}")
    for when, got, centroids in (("before", before, old), ("after", after, new)):
        test.true(got in range(3), f"there are the classes 0, 1 and 2, got {got}")
        test.true(
            got == int(distances(query, centroids).argmin()), f"{when} the move another centroid is nearer than that of {got}"
        )


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
        test.true(torch.allclose(got, wanted, atol=1e-6), _why(weight, bias, c, e))
    c = torch.randn(3, 4, generator=draws, dtype=torch.double, requires_grad=True)
    weight, bias = _layer(answer(c), 3, 4, test)
    test.gradient("the layer", (weight.sum() + bias.sum()), c)


def _layer(given: Any, k: int, features: int, test: Test) -> tuple[Tensor, Tensor]:
    if given is None:
        raise NotYet("your function returns nothing; return weight and bias")
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise NotYet("return two tensors: weight [K, E] and bias [K]")
    return test.shape("weight", given[0], (k, features)), test.shape("bias", given[1], (k,))


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

SIZES, SEEDS = (4, 20, 80), (0, 1, 2)


@exercise("3.3", hint="exp.but(support_size=size, seed=seed); leave out what find does not know; the mean of .accuracy, or None")
def ch03_3(answer: Callable[..., Any], test: Test) -> None:
    """support_curve(sizes, seeds, find) -> for each size the mean accuracy over the runs found, None without any."""
    asked: list[Any] = []
    missing = {(20, 1), (80, 0), (80, 1), (80, 2)}

    def stand_in(experiment: Any) -> SimpleNamespace | None:
        asked.append(experiment)
        place = (experiment.support_size, experiment.seed)
        return None if place in missing else SimpleNamespace(accuracy=_accuracy(*place), bwt_final=-3.0, learning_accuracy=99.0)

    for sizes in (SIZES, SIZES[::-1]):
        asked.clear()
        curve = answer(list(sizes), list(SEEDS), stand_in)
        values = curve.tolist() if hasattr(curve, "tolist") else curve
        test.true(isinstance(values, list | tuple), f"the answer must be a list, got {type(curve).__name__}")
        test.true(len(values) == len(sizes), f"the list must have {len(sizes)} entries, one for each size, got {len(values)}")
        _experiments(asked, sizes, test)
        for size, value in zip(sizes, values, strict=True):
            _entry(size, value, [seed for seed in SEEDS if (size, seed) not in missing], test)


def _accuracy(size: int, seed: int) -> float:
    return 60.0 + size / 4 + 3.0 * seed


def _experiments(asked: Sequence[Any], sizes: Sequence[int], test: Test) -> None:
    places = {(one.support_size, one.seed) for one in asked}
    wanted = {(size, seed) for size in sizes for seed in SEEDS}
    test.true(
        not wanted - places, f"find was never asked for support_size={min(wanted - places, default=(0, 0))[0]} and every seed"
    )
    test.true(not places - wanted, f"find was asked for {sorted(places - wanted)[:1]}, which is not among sizes and seeds")
    same = len({one.but(support_size=SIZES[0], seed=0) for one in asked}) == 1
    test.true(same, "something besides support_size and seed changes from run to run")


def _entry(size: int, value: Any, seeds: Sequence[int], test: Test) -> None:
    if not seeds:
        test.true(value is None, f"no run of size {size} was found, so its entry is None, got {value}")
        return
    if not isinstance(value, int | float):
        raise NotYet(f"the entry of size {size} must be a number, got {type(value).__name__}")
    found = [_accuracy(size, seed) for seed in seeds]
    if len(seeds) < len(SEEDS) and abs(value - sum(found) / len(SEEDS)) < 1e-9:
        raise NotYet(f"size {size}: a missing run counts as 0; divide by the number of runs found")
    good = abs(value - sum(found) / len(found)) < 1e-9
    test.true(
        good, f"the mean accuracy of the {len(found)} runs of size {size} is {sum(found) / len(found):.4g}, got {value:.4g}"
    )
