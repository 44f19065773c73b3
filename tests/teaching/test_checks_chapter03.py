"""The checks of chapter 3: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from answers import not_written, said

from cmlib.centroids import distances
from cmlib.teaching import checks


def layer(c: Any) -> Any:
    return 2 * c, -c.square().sum(1)


def units(e: Any, c: Any, x: Any, y: Any, spread: Any = None) -> Any:
    spread = (x - c[y]).square().mean(0).sqrt() if spread is None else spread
    alive = spread > 0
    return distances(e[:, alive] / spread[alive], c[:, alive] / spread[alive])


def careless(e: Any, c: Any, x: Any, y: Any) -> Any:
    spread = (x - c[y]).square().mean(0).sqrt()
    return distances(e / spread, c / spread)


def rooted(e: Any, c: Any, x: Any, y: Any) -> Any:
    spread = (x - c[y]).square().mean(0).sqrt()
    apart = (e.unsqueeze(1) - c)[..., spread > 0] / spread[spread > 0]
    return apart.square().sum(-1).sqrt()


WRONG: dict[str, list[tuple[Any, str]]] = {
    "03_1": [
        (lambda: ((8, 0), 0, 0), "that is the point that moved"),
        (lambda: ((1, 0), 0, 0), "the centroid did not move"),
        (lambda: ((5, 0), 0, 0), "the mean of the two support points of class 0 is not [5.0, 0.0]"),
        (lambda: ((4, 0), 1, 2), "before the move another centroid is nearer than that of 1"),
        (lambda: ((4, 0), 0, 0), "after the move another centroid is nearer than that of 0"),
        (lambda: ((4, 0), 0, 3), "there are the classes 0, 1 and 2, got 3"),
        (lambda: ((4, 0, 0), 0, 2), "the centroid has two coordinates, got 3"),
        (lambda: (4, 0), "return three things"),
        (lambda: ("x", 0, 2), "the centroid must be two numbers"),
        (lambda: 1 // 0, "your answer raised ZeroDivisionError"),
    ],
    "03_2": [
        (lambda c: (2 * c, torch.zeros(len(c))), "there is no bias"),
        (lambda c: (2 * c, c.square().sum(1)), "the bias has the wrong sign"),
        (lambda c: (2 * c, -c.norm(dim=1)), "not the length"),
        (lambda c: (-2 * c, -c.square().sum(1)), "the weight has the wrong sign"),
        (lambda c: (c, -c.square().sum(1)), "the factor 2 of the middle term is missing"),
        (lambda c: (c, -c.square().sum(1) / 2), "the nearest class wins, but the probabilities differ"),
        (lambda c: (torch.ones_like(c), torch.arange(len(c)).double()), "the probabilities are not those"),
        (lambda c: (2 * c.T, -c.square().sum(1)), "weight must have shape"),
        (lambda c: (2 * c, -c.square()), "bias must have shape"),
        (lambda c: (2 * c.detach(), -c.detach().square().sum(1)), "the weight has no gradient"),
        (lambda c: 2 * c, "return two tensors"),
        (lambda c: None, "returns nothing"),
    ],
    "03_3": [
        (lambda e, c, x, y: distances(e, c), "before the features were divided"),
        (lambda e, c, x, y: units(e, c, x, y).square(), "these are squared distances"),
        (
            lambda e, c, x, y: units(e, c, x, y, (x - x.mean(0)).square().mean(0).sqrt()),
            "around the centroid of each image's own class",
        ),
        (lambda e, c, x, y: units(e, c, x, y, (x - c[y]).square().mean(0)), "the spread is its root"),
        (lambda e, c, x, y: units(e, c, x, y, (x - c[y]).abs().mean(0)), "the mean of the absolute differences"),
        (lambda e, c, x, y: units(e, c, x, y, 1 / (x - c[y]).square().mean(0).sqrt()), "multiplied by the spread"),
        (lambda e, c, x, y: distances(e / (x - c[y]).square().mean(0).sqrt(), c), "not the centroids"),
        (careless, "gives NaN or infinity: leave it out"),
        (rooted, "is not finite"),
        (lambda e, c, x, y: units(e, c, x, y).detach(), "is something detached?"),
        (lambda e, c, x, y: units(e, c, x, y).T, "must have shape"),
        (lambda e, c, x, y: None, "must be a tensor, got NoneType"),
        (lambda e, c, x, y: units(e, c, x, y) + 1, "are not those between points and centroids"),
    ],
}


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    check = getattr(checks, f"ch03_{k}")
    assert said(capsys, check, not_written) == f"3.{k}: not started"
    assert said(capsys, check, None) == f"3.{k}: not started"


@pytest.mark.parametrize(
    "right",
    [((4, 0), 0, 2), [[4.0, 0.0], 0, 2], ((3.9999999, 1e-9), 0, 2), (np.array([4, 0]), 0, 2), (torch.tensor([4.0, 0]), 0, 2)],
)
def test_a_point_that_moves(capsys: pytest.CaptureFixture[str], right: Any) -> None:
    assert said(capsys, checks.ch03_1, lambda: right) == "OK 3.1 (8 tests)"


def test_a_linear_layer(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, checks.ch03_2, layer) == "OK 3.2 (24 tests)"
    shifted = lambda c: (2 * (c - c.mean(0)), -c.square().sum(1) + 7)  # noqa: E731  # a term common to all classes is free
    assert said(capsys, checks.ch03_2, shifted) == "OK 3.2 (24 tests)"


def test_a_distance_in_own_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, checks.ch03_3, units) == "OK 3.3 (19 tests)"
