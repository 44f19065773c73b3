"""The cost model: what it predicts is what a real epoch does, image for image."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import pytest
import torch
from tiny import tiny_nets

import cmlib as cm
from cmlib import footprint
from cmlib.experiment import FIELDS
from cmlib.reproduction import bench, costs, paper
from cmlib.reproduction.costs import Passes
from cmlib.reproduction.literal import LiteralStep
from cmlib.store import committed

DATA = cm.datasets.load("digits")
VARIANTS = [
    *(("cm", "cil", {"batch_split": split}) for split in ("half", "equal_steps", "double")),
    *(("cm", "til", {"batch_norm": norm}) for norm in ("shared", "stats")),
    *(("cm", scenario, {"lam": 0.0}) for scenario in ("til", "cil")),
    *(("er", "til", {"batch_norm": "private", "batch_split": split}) for split in ("tasks", "equal_steps")),
    ("gem", "til", {"memory_size": 200, "exemplars": "first"}),
    ("emr", "til", {"memory_size": 6}),
    *(("cumulative", scenario, {"batch_split": "each"}) for scenario in ("til", "cil")),
    ("cope", "cil", {"stream": "first_batch"}),
]


CELLS = [cell for cell in paper.cells() if cell[0] in costs.KNOWN]  # a new method has no cost model


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


@pytest.mark.parametrize(("name", "scenario", "options"), [*((*cell, {}) for cell in CELLS), *VARIANTS])
def test_the_prediction_is_what_an_epoch_does(name: str, scenario: str, options: dict[str, Any]) -> None:
    experiment = cm.Experiment("digits", scenario, name, profile="smoke", batch_size=16, **options)
    with tiny_nets():
        pairs = every_epoch(experiment)
    assert len(pairs) == 3 and pairs[-1][1].both > 0
    for predicted, counted in pairs:
        assert predicted == counted


def test_every_method_of_the_paper_has_a_model() -> None:
    assert {*footprint.ORDER, "cm"} == set(costs.KNOWN)


def test_a_method_without_a_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "KNOWN", ("cm",))
    with pytest.raises(cm.OptionError, match="there is no cost model of 'naive'; there is one of: cm"):
        costs.epoch_passes(cm.Experiment("digits", "til", "naive"), [10], 0)


def test_a_pass_without_gradient_costs_a_third() -> None:
    assert Passes(3, 6).cost == pytest.approx(5)
    assert Passes(1, 2) + Passes(10, 20) == Passes(11, 22)


@pytest.mark.parametrize(("name", "scenario"), CELLS)
def test_the_cost_of_a_run_is_that_of_its_epochs(name: str, scenario: str) -> None:
    experiment = cm.Experiment("digits", scenario, name, profile="smoke", epochs=3)
    rows = [len(task.y) for task in cm.fresh(experiment, DATA).scenario.tasks]  # 2 classes of 30 each, support sets left out
    assert costs.run_cost(experiment) == pytest.approx(3 * sum(costs.epoch_passes(experiment, rows, t).cost for t in range(5)))


def test_the_costs_of_the_papers_runs() -> None:
    """CIFAR-10, one seed, in epochs of all 50,000 images; CM: a support set of 100 in each of 307 steps, 4/3 more a past task."""
    cost = {cell: costs.run_cost(cm.Experiment("cifar10", cell[1], cell[0])) for cell in CELLS}
    assert cost["naive", "til"] == cost["ewc", "cil"] == 10 * 50_000
    assert cost["cumulative", "cil"] == 10 * 10_000 * (1 + 2 + 3 + 4 + 5)
    steps = 310  # 9,900 images, 32 a batch
    assert cost["cm", "til"] == pytest.approx(10 * sum(9900 * (1 + 4 / 3 * t) + 100 * steps for t in range(5)))
    assert costs.run_cost(cm.Experiment("cifar10", "til", "naive", eval_split="val")) == 10 * 40_000
    assert costs.run_cost(cm.Experiment("cifar10", "til", "naive", train_per_class=100)) == 10 * 1000
    assert costs.run_cost(cm.Experiment("cifar10", "til", "naive", engine="avalanche")) is None
    assert costs.run_cost(cm.Experiment("arrays", "til", "naive")) is None


def test_the_model_fits_the_papers_runs_that_were_made() -> None:
    """The first committed runs at the paper's settings, all of one CPU: their fastest epochs make as many images a second."""
    speeds = []
    for run in committed():
        e = run.experiment
        if e["profile"] == "paper" and not e["options"]["train_per_class"] and "cpu" not in run.machine:
            cost = costs.run_cost(cm.Experiment(**{**e["options"], **{name: e[name] for name in FIELDS}}))
            speeds.append(cost / sum(min(task) * len(task) for task in run.seconds_per_epoch))
    assert len(speeds) >= 4 and max(speeds) / statistics.median(speeds) < 1.5 and sum(speed > 200 for speed in speeds) >= 3


def test_this_machine_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many images as epochs were begun, by the seconds a clock says; threads are set and set back."""
    before, epochs, threads = torch.get_num_threads(), [], []

    def epoch(*_: object) -> bool:
        epochs.append(len(epochs))
        threads.append(torch.get_num_threads())
        return True

    monkeypatch.setattr(costs, "train_epoch", epoch)
    monkeypatch.setattr(costs.time, "process_time", lambda: 2.0 * len(epochs))  # an epoch takes 2 s
    monkeypatch.setattr(costs.time, "perf_counter", lambda: 0.5 * len(epochs))
    costs._images_a_second.cache_clear()
    assert costs.images_a_second("digits", 1) == pytest.approx(costs.MEASURED / 2)
    assert len(epochs) == 1 + 3 and set(threads) == {1}  # one to warm up; 5 seconds are over after three
    assert costs.images_a_second("digits", 1) == pytest.approx(costs.MEASURED / 2) and len(epochs) == 4
    assert costs.images_a_second("cifar10", 2) == pytest.approx(costs.MEASURED / 0.5) and set(threads[4:]) == {2}
    assert torch.get_num_threads() == before
    costs._images_a_second.cache_clear()


def test_measuring_really() -> None:
    found = costs.images_a_second("digits", 1, seconds=0.1)
    assert 20 < found < 1e6
    assert costs.images_a_second("digits", 1, seconds=0.1) == found


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
    literal = LiteralStep(method, task)  # type: ignore[arg-type]
    x, y = next(iter(method.batches(task, 0)))
    found = costs.counted(method, partial(literal, x, y), literal.past)
    passes = {"til": 1 + 2 * 2, "cil": 3 + 2 * 2}[scenario]  # own head or all heads, then two for each past head
    assert found == Passes(passes * len(y) + experiment.support_size)


def test_counting_leaves_nothing_behind() -> None:
    method = cm.fresh(cm.Experiment("digits", "til", "naive", profile="smoke"), DATA)
    with pytest.raises(ZeroDivisionError), costs.counting(method):
        1 // 0  # noqa: B018
    assert not method.backbone._forward_pre_hooks
