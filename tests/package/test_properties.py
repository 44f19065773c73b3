"""What holds for every experiment, tried on random ones: an interrupted run ends as an undisturbed one, bit for bit.

Toy experiments of every method and both scenarios, with random options, are interrupted at random points: between two epochs,
within a write, before and after a checkpoint or a result is written, while exemplars or centroids are kept, while accuracies
are measured; up to three times each. More of them, and new ones, with `make stress`.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, currently_in_test_context, given, note, settings
from hypothesis import strategies as st
from tiny import arrays, tiny_nets

import cmlib as cm
from cmlib import engine, loop, machine
from cmlib.checkpoint import Checkpoint
from cmlib.errors import OptionError
from cmlib.experiment import COMMON, Experiment, fresh
from cmlib.methods import METHODS
from cmlib.methods.base import Option
from cmlib.store import Store

PAIRS = [(name, scenario) for name, cls in METHODS.items() for scenario in cls.scenarios]
QUICK = settings(
    max_examples=3,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
LONG = settings(QUICK, max_examples=60, derandomize=False, print_blob=True, phases=[Phase.generate, Phase.shrink])
FREE = ("epochs", "n_tasks", "train_per_class", "eval_split")  # chosen here, the same way for all methods
WHOLE = {"batch_size": (2, 5), "support_size": (3, 6), "memory_size": (6, 12), "embedding_size": (2, 6), "support_chunk": (1, 4)}
DATA = arrays(6, 7)


class Cut(BaseException):
    """The process dies here."""


class Tape:
    """Counts the points of a run at which it can be cut, and cuts it at one of them."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.end = -1

    def point(self, name: str) -> None:
        if len(self.passed) == self.end:
            raise Cut(name)
        self.passed.append(name)

    def around(self, patch: pytest.MonkeyPatch, holder: Any, name: str) -> None:
        """Points before and after a function."""
        inner = getattr(holder, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            self.point(f"before {name}")
            result = inner(*arguments, **named)
            self.point(f"after {name}")
            return result

        patch.setattr(holder, name, watched)

    def play(self, experiment: Experiment, data: Any, folder: Path, end: int = -1) -> tuple[cm.Run, Any] | None:
        """Make the run, or what is left of it, up to a point; None when it was cut."""
        self.passed, self.end = [], end
        try:
            return engine.train(experiment, data, store=folder, progress=False)
        except Cut as point:
            if currently_in_test_context():
                note(f"cut {point}, point {end}")
            return None


def values_of(option: Option, name: str) -> st.SearchStrategy[Any]:
    """Possible values of an option, small ones."""
    if option.choices:
        return st.sampled_from(option.choices)
    if option.kind is bool:
        return st.booleans()
    if option.kind is int:
        found: st.SearchStrategy[Any] = st.integers(*WHOLE.get(name, (max(1, int(option.low)), max(1, int(option.low)) + 4)))
    else:
        found = st.sampled_from([one for one in (0.0, 0.03, 0.5, 1.0) if one > option.low or not option.above_low])
    return st.none() | found if option.optional else found


@st.composite
def toys(draw: Any, method: str, scenario: str) -> Experiment | None:
    """A toy experiment with some options of its own; None where they do not fit together."""
    known = {**COMMON, **METHODS[method].options}
    chosen = {name: draw(values_of(known[name], name)) for name in draw(st.sets(st.sampled_from(sorted(set(known) - {*FREE}))))}
    small = {name: value for name, (_, value) in WHOLE.items() if name in known and name != "support_chunk"}
    fixed = {"n_tasks": draw(st.integers(2, 3)), "epochs": draw(st.integers(1, 3)), "seed": draw(st.integers(0, 3))}
    try:
        made = Experiment("arrays", scenario, method, **{**small, "lr": 0.01, **chosen, **fixed})
        fresh(made, DATA)
        return made
    except OptionError:
        return None


def check(experiment: Experiment | None, cuts: list[float]) -> None:
    """Cut a run at these points (as shares of its points) and go on each time: it ends as the undisturbed one."""
    if experiment is None:
        return
    data, tape = DATA, Tape()
    folder = Path(tempfile.mkdtemp())
    try:
        with tiny_nets() as patch:
            patch.setattr(machine, "_git", lambda *_: "")  # asked once a run, and slow
            for holder, name in [(loop, "train_epoch"), (Checkpoint, "save"), (METHODS[experiment.method], "end_task")]:
                tape.around(patch, holder, name)
            for holder, name in [(loop, "measure"), (os, "replace"), (Store, "save"), (Checkpoint, "remove")]:
                tape.around(patch, holder, name)
            whole, trained = tape.play(experiment, data, folder / "whole") or (None, None)
            points = len(tape.passed)
            for share in cuts:
                if done := tape.play(experiment, data, folder / "cut", int(share * points)):
                    break
            else:
                done = tape.play(experiment, data, folder / "cut")
            assert whole and done
            same_run(whole, done[0])
            same_state(trained.state_dict(), done[1].state_dict())
            (path,) = (folder / "cut").rglob("seed*.json")
            same_run(Store(folder).read(path), whole)
            left = [one.name for one in path.parent.iterdir() if not one.name.startswith(f".{path.stem}.")]
            assert left == [path.name]  # beside what a cut write has left, which a sweep removes
    finally:
        shutil.rmtree(folder)


def same_run(a: cm.Run, b: cm.Run) -> None:
    for name in ("R", "R_task_known", "gradient_steps", "retained", "status", "experiment", "data", "id"):
        assert json.dumps(getattr(a, name)) == json.dumps(getattr(b, name)), name
    assert [len(task) for task in a.seconds_per_epoch] == [len(task) for task in b.seconds_per_epoch]


def same_state(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for name, x in a.items():
        y = b[name]
        assert (x.dtype, x.shape) == (y.dtype, y.shape) and x.numpy().tobytes() == y.numpy().tobytes(), name


CUTS = st.lists(st.floats(0, 0.999), min_size=1, max_size=3)


@pytest.mark.faults
@pytest.mark.parametrize(("method", "scenario"), PAIRS)
def test_an_interrupted_run_ends_as_an_undisturbed_one(method: str, scenario: str) -> None:
    tried(method, scenario, QUICK)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("method", "scenario"), PAIRS)
def test_many_interrupted_runs_end_as_undisturbed_ones(method: str, scenario: str) -> None:
    tried(method, scenario, LONG)


def tried(method: str, scenario: str, how: settings) -> None:
    @how
    @given(toys(method, scenario), CUTS)
    def inner(experiment: Experiment | None, cuts: list[float]) -> None:
        check(experiment, cuts)

    inner()


FEW = [("cm", "cil"), ("gem", "til"), ("cope", "cil"), ("emr", "til")]


def cut_at_each(method: str, scenario: str, points: int) -> None:
    """Two tasks of two epochs, cut at each of so many points in turn."""
    options = {name: value for name, (_, value) in WHOLE.items() if name in METHODS[method].options and name != "support_chunk"}
    experiment = Experiment("arrays", scenario, method, n_tasks=2, epochs=2, batch_size=4, **options)
    for point in range(points):
        check(experiment, [(point + 0.5) / points])


@pytest.mark.faults
@pytest.mark.parametrize(("method", "scenario"), FEW)
def test_some_points_of_a_run(method: str, scenario: str) -> None:
    cut_at_each(method, scenario, 6)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "scenario"), FEW)
def test_every_point_of_a_run(method: str, scenario: str) -> None:
    cut_at_each(method, scenario, 40)
