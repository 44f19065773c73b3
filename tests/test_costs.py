"""The cost model: what it predicts is what a real epoch does, image for image."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

import cmlib as cm
from cmlib import bench, costs, paper
from cmlib.costs import Passes

DATA = cm.datasets.load("digits")
VARIANTS = [
    *(("cm", "cil", {"batch_split": split}) for split in ("half", "equal_steps", "double")),
    *(("cm", "til", {"batch_norm": norm}) for norm in ("shared", "stats")),
    *(("er", "til", {"batch_norm": "private", "batch_split": split}) for split in ("tasks", "equal_steps")),
    ("gem", "til", {"memory_size": 200, "exemplars": "first"}),
    ("emr", "til", {"memory_size": 6}),
    *(("cumulative", scenario, {"batch_split": "each"}) for scenario in ("til", "cil")),
    ("cope", "cil", {"stream": "first_batch"}),
]


def every_epoch(experiment: cm.Experiment) -> list[tuple[Passes, Passes]]:
    """Predicted and counted in the first three tasks; the first epoch of each is really made."""
    method = cm.fresh(experiment, DATA)
    rows = [len(task.y) for task in method.scenario.tasks]
    found = []
    for task in method.scenario.tasks[:3]:
        method.begin_task(task)
        found.append((costs.epoch_passes(experiment, rows, task.index), costs.counted_epoch(method, task)))
        method.eval()
        method.end_task(task)
    return found


@pytest.mark.parametrize(("name", "scenario", "options"), [*((*cell, {}) for cell in paper.cells()), *VARIANTS])
def test_the_prediction_is_what_an_epoch_does(name: str, scenario: str, options: dict[str, Any]) -> None:
    experiment = cm.Experiment("digits", scenario, name, profile="smoke", batch_size=16, **options)
    pairs = every_epoch(experiment)
    assert len(pairs) == 3 and pairs[-1][1].both > 0
    for predicted, counted in pairs:
        assert predicted == counted


def test_every_method_has_a_model() -> None:
    assert {name for name, _ in paper.cells()} == set(costs.KNOWN)


def test_a_method_without_a_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "KNOWN", ("cm",))
    with pytest.raises(cm.OptionError, match="there is no cost model of 'naive'; there is one of: cm"):
        costs.epoch_passes(cm.Experiment("digits", "til", "naive"), [10], 0)


def test_a_pass_without_gradient_costs_a_third() -> None:
    assert Passes(3, 6).cost == pytest.approx(5)
    assert Passes(1, 2) + Passes(10, 20) == Passes(11, 22)


def test_parts_sum_to_the_whole_and_are_named() -> None:
    experiment = cm.Experiment("digits", "til", "cm")
    parts = costs.epoch_parts(experiment, [280] * 5, 2)
    assert list(parts) == ["current images", "support set", "past model", "drift"]
    assert parts["drift"] == Passes(2 * 280) and parts["past model"] == Passes(0, 2 * 280)
    assert sum(parts.values(), Passes()) == costs.epoch_passes(experiment, [280] * 5, 2)


def test_the_literal_structure_by_hand() -> None:
    """(1 + t) n + t n / 3 + (n / B) S with n = 9,600, B = 32, S = 100: the ratios to the first task."""
    costs_of = [costs.literal_epoch(9600, 32, 100, t, graph=False).cost for t in range(5)]
    assert [round(one / costs_of[0], 2) for one in costs_of] == [1.0, 1.32, 1.65, 1.97, 2.29]
    assert costs.literal_epoch(9600, 32, 100, 4) == Passes(9 * 9600 + 300 * 100)


@pytest.mark.parametrize("scenario", ["til", "cil"])
def test_the_literal_step_is_counted_too(scenario: str) -> None:
    experiment = cm.Experiment("digits", scenario, "cm", profile="smoke", batch_size=16)
    method, task = bench.advanced(experiment, DATA, torch.device("cpu"), 3)
    literal = bench.LiteralStep(method, task)  # type: ignore[arg-type]
    x, y = next(iter(method.batches(task, 0)))
    found = costs.counted(method, partial(literal, x, y), literal.past)
    passes = {"til": 1 + 2 * 2, "cil": 3 + 2 * 2}[scenario]  # own head or all heads, then two for each past head
    assert found == Passes(passes * len(y) + experiment.support_size)


def test_counting_leaves_nothing_behind() -> None:
    method = cm.fresh(cm.Experiment("digits", "til", "naive", profile="smoke"), DATA)
    with pytest.raises(ZeroDivisionError), costs.counting(method):
        1 // 0  # noqa: B018
    assert not method.backbone._forward_pre_hooks
