"""The checks of chapter 3: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from answers import not_written, said

import cmlib as cm
from cmlib.teaching import checks

SMALL = cm.Experiment("digits", "til", "cm", profile="smoke")


def layer(c: Any) -> Any:
    return 2 * c, -c.square().sum(1)


def curve(sizes: Any, seeds: Any, find: Any, base: Any = SMALL, name: str = "accuracy") -> list[Any]:
    means = []
    for size in sizes:
        runs = [find(base.but(support_size=size, seed=seed)) for seed in seeds]
        values = [getattr(run, name) for run in runs if run]
        means.append(float(np.mean(values)) if values else None)
    return means


def zeros(sizes: Any, seeds: Any, find: Any) -> list[Any]:
    runs = [[find(SMALL.but(support_size=size, seed=seed)) for seed in seeds] for size in sizes]
    return [sum(run.accuracy if run else 0 for run in row) / len(seeds) if any(row) else None for row in runs]


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
        (lambda c: (2 * c.detach(), -c.detach().square().sum(1)), "the layer has no gradient"),
        (lambda c: 2 * c, "return two tensors"),
        (lambda c: None, "returns nothing"),
    ],
    "03_3": [
        (zeros, "a missing run counts as 0"),
        (lambda s, k, f: [v or 0.0 for v in curve(s, k, f)], "no run of size 80 was found, so its entry is None"),
        (lambda s, k, f: curve(s, k[:1], f), "find was never asked for support_size=4 and every seed"),
        (lambda s, k, f: curve(s, [*k, 3], f), "which is not among sizes and seeds"),
        (lambda s, k, f: [curve([n], k, f, SMALL.but(lam=n / 100))[0] for n in s], "something besides support_size and seed"),
        (lambda s, k, f: curve(s, k, f, name="learning_accuracy"), "the mean accuracy of the 3 runs of size 4"),
        (lambda s, k, f: curve(s, k, f)[:2], "must have 3 entries, one for each size, got 2"),
        (lambda s, k, f: dict(zip(s, curve(s, k, f), strict=True)), "must be a list, got dict"),
        (lambda s, k, f: [str(v) for v in curve(s, k, f)], "must be a number, got str"),
        (
            lambda s, k, f: [f(SMALL.but(support_size=n, seed=j)).accuracy for n in s for j in k],
            "your answer raised AttributeError",
        ),
    ],
}
PLANTED = [(key, answer, words) for key, rows in WRONG.items() for answer, words in rows]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    check = getattr(checks, f"ch03_{k}")
    assert said(capsys, check, not_written) == f"3.{k}: not started"
    assert said(capsys, check, None) == f"3.{k}: not started"


@pytest.mark.parametrize("right", [((4, 0), 0, 2), [[4.0, 0.0], 0, 2], (np.array([4, 0]), 0, 2), (torch.tensor([4.0, 0]), 0, 2)])
def test_a_point_that_moves(capsys: pytest.CaptureFixture[str], right: Any) -> None:
    assert said(capsys, checks.ch03_1, lambda: right) == "OK 3.1 (8 tests)"


def test_a_linear_layer(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, checks.ch03_2, layer) == "OK 3.2 (22 tests)"
    shifted = lambda c: (2 * (c - c.mean(0)), -c.square().sum(1) + 7)  # noqa: E731  # a term common to all classes is free
    assert said(capsys, checks.ch03_2, shifted) == "OK 3.2 (22 tests)"


def test_a_curve_with_gaps(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, checks.ch03_3, curve) == "OK 3.3 (16 tests)"
    other = SMALL.but(scenario="cil", lam=0.5)
    assert said(capsys, checks.ch03_3, lambda s, k, f: curve(s, k, f, other)) == "OK 3.3 (16 tests)"


@pytest.mark.parametrize(("key", "answer", "words"), PLANTED, ids=lambda value: value if isinstance(value, str) else "")
def test_wrong_answers(capsys: pytest.CaptureFixture[str], key: str, answer: Any, words: str) -> None:
    line = said(capsys, getattr(checks, f"ch{key}"), answer)
    assert line.startswith(f"Not yet 3.{key[-1]}: ") and "Hint: " in line
    assert words in line
