"""The checks of chapter 7: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from answers import not_written, said

import cmlib as cm

# -- right answers ------------------------------------------------------------------------------------------------------------

PAIRS = [(2, 0), (2.0, 0.0), (2, 0.5), (2, 0.5)]


def agem(g: torch.Tensor, G: torch.Tensor) -> torch.Tensor:
    mean = G.mean(0)
    return g if g @ mean >= 0 else g - (g @ mean) / (mean @ mean) * mean


def price_of(run: Any) -> float:
    return float(np.mean(run.R_task_known[-1])) - run.accuracy


def prices(names: Any, find: Any, of: Any = price_of, **change: Any) -> Any:
    """A right answer to 7.3, unless `of` or `change` spoil it."""
    found = {}
    for name in names:
        settings = {"dataset": "digits", "scenario": "cil", "method": name, "profile": "digits", **change}
        runs = [run for seed in change.get("seeds", range(3)) if (run := find(cm.Experiment(**settings, seed=seed)))]
        runs = [run for run in runs if run.status == "finished"]
        if runs:
            found[name] = float(np.mean([of(run) for run in runs]))
    return found


RIGHT = {
    "07_1": [
        (lambda: PAIRS, 10),
        (lambda: torch.tensor([[2, 0], [2, 0], [2, 0.5], [2, 0.5]]), 10),
        (lambda: [[2.0, -0.001], [2.0, 0.0], [2.0, 0.499], [2.0, 0.5]], 10),  # as read off the widget
    ],
    "07_2": [
        (agem, None),
        (lambda g, G: g - (g @ G.mean(0)).clamp(max=0) / G.mean(0).square().sum().clamp(min=1e-9) * G.mean(0), None),
    ],
    "07_3": [(prices, None)],
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_pass(capsys: pytest.CaptureFixture[str], name: str) -> None:
    for answer, tests in RIGHT[name]:
        line = said(capsys, getattr(cm.checks, f"ch{name}"), answer)
        count = int(line.split("(")[1].split()[0]) if "(" in line else 0
        assert line == f"OK 7.{name[-1]} ({tests or count} tests)"
        assert count >= 10


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    check = getattr(cm.checks, f"ch07_{k}")
    assert said(capsys, check, not_written) == f"7.{k}: not started"
    assert said(capsys, check, None) == f"7.{k}: not started"


# -- wrong answers ------------------------------------------------------------------------------------------------------------


def one_after_the_other(g: torch.Tensor, G: torch.Tensor) -> torch.Tensor:
    for row in G:
        if g @ row < 0:
            g = g - (g @ row) / (row @ row) * row
    return g


def without_a_seed_count(names: Any, find: Any) -> Any:
    """Divides by three, whatever was found."""
    total = prices(names, find)
    return {name: value * 2 / 3 if name == "er" else value for name, value in total.items()}


def with_stopped_runs(names: Any, find: Any) -> Any:
    """Takes whatever the store has."""
    asked = {name: [find(cm.Experiment("digits", "cil", name, seed=seed)) for seed in range(3)] for name in names}
    return {name: np.mean([price_of(run) for run in runs if run]) for name, runs in asked.items() if any(runs)}


WRONG: dict[str, list[tuple[Callable[..., Any], str]]] = {
    "07_1": [
        (lambda: [(2, -0.5), (2, 0), (2, 0.5), (2, 0.5)], "case a: that is g itself, which points against g1"),
        (lambda: [(2, 0.5), (2, 0), (2, 0.5), (2, 0.5)], "case a: that is g with its sign changed"),
        (lambda: [(2, 0), (2, 0.25), (2, 0.5), (2, 0.5)], "case b: the margin comes on top of the projection there"),
        (lambda: [(2, 0), (2, -0.25), (2, 0.5), (2, 0.5)], "case b: only the margin was added"),
        (lambda: [(2, 0), (2, 0), (2, 1), (2, 0.5)], "case c: the margin comes on top of the projection there"),
        (lambda: [(2, 0), (2, 0), (2, 0.5), (2, 1.5)], "case d: the margin was added although g does not point against g1"),
        (lambda: [(2, 0), (2, 0), (2, 0.5), (2, 0)], "case d: g points with g1 here"),
        (lambda: [(0, 0), (2, 0), (2, 0.5), (2, 0.5)], "case a: g1 points up"),
        (lambda: [(2, 9), (2, 0), (2, 0.5), (2, 0.5)], "case a: [2, 9] is not what GEM steps along"),
        (lambda: [(2, 0)], "must have 4 pairs, one for each case, got 1"),
        (lambda: [2, 0, 2, 0], "case a must be a pair of numbers, got 2"),
        (lambda: 2, "must be a list, got int"),
        (lambda: [(2, "0")] * 4, "case a must be a pair of numbers"),
    ],
    "07_2": [
        (lambda g, G: g, "it looks as if g comes back unchanged"),
        (lambda g, G: g - (g @ G.mean(0)) * G.mean(0), "the mean is not divided by its squared length"),
        (lambda g, G: g - (g @ G.mean(0)) / G.mean(0).norm() * G.mean(0), "divided by its length, not by its squared length"),
        (lambda g, G: g + (g @ G.mean(0)) / G.mean(0).square().sum() * G.mean(0), "was added, not taken away"),
        (lambda g, G: g - (g @ G.mean(0)) / G.mean(0).square().sum() * G.mean(0), "must come back as it is"),
        (lambda g, G: g - (g @ G[-1]).clamp(max=0) / G[-1].square().sum() * G[-1], "only the last past gradient was used"),
        (one_after_the_other, "the rows of G were used one after the other"),
        (lambda g, G: (g @ G.mean(0)) / G.mean(0).square().sum() * G.mean(0), "the part that should be taken away"),
        (lambda g, G: G, "must have shape [2], got [2, 2]"),
        (lambda g, G: [0.0, 0.0], "must be a tensor, got list"),
        (lambda g, G: g - (g @ G.mean(0)).clamp(max=0) / G.mean(0).square().sum() * G.mean(0), "past gradients of zero"),
        (lambda g, G: g.reshape(9), "your answer raised RuntimeError"),
    ],
    "07_3": [
        (lambda names, find: prices(names, find, scenario="til"), "only runs of CIL know both answers; naive in til"),
        (lambda names, find: prices(names, lambda e: find(e.but(seed=0))), "ask for the seeds 0, 1 and 2 of each method"),
        (lambda names, find: prices(names, find, lambda run: run.accuracy - np.mean(run.R_task_known[-1])), "has the wrong sign"),
        (lambda names, find: prices(names, find, lambda run: price_of(run) - 3 * run.seed), "seed 0 alone"),
        (lambda names, find: prices(names, find, lambda run: np.mean(run.R_task_known[-1])), "the price of naive should be"),
        (without_a_seed_count, "er has 2 finished runs: divide by as many"),
        (lambda names, find: {}, "find was never called"),
        (lambda names, find: list(prices(names, find)), "must be a dictionary, got list"),
        (lambda names, find: {**prices(names, find), "cumulative": 0.0}, "cumulative has no run in this store"),
        (lambda names, find: {"naive": prices(names, find)["naive"]}, "the answer must name naive, er, ewc; it names naive"),
        (lambda names, find: prices(names[:1], find), "no run of er was asked for"),
        (lambda names, find: prices(names, lambda e: find(e).R and find(e)), "your answer raised AttributeError"),
        (lambda names, find: {**prices(names, find), "er": float("nan")}, "the price of er is nan: a run that broke off"),
        (with_stopped_runs, "your answer raised TypeError"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "k"), [(name, k) for name in WRONG for k in range(len(WRONG[name]))])
def test_wrong_answers_get_a_hint(capsys: pytest.CaptureFixture[str], name: str, k: int) -> None:
    answer, words = WRONG[name][k]
    line = said(capsys, getattr(cm.checks, f"ch{name}"), answer)
    assert line.startswith(f"Not yet 7.{name[-1]}: ")
    assert words in line and " Hint: " in line and "\n" not in line
