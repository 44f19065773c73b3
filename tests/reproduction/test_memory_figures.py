"""What methods keep, counted from letters and from real tensors; the grid and the figures about memory."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from test_paper_tables import matrix, save  # a stored run with given accuracies

import cmlib as cm
from cmlib import footprint
from cmlib.footprint import Setting
from cmlib.methods import METHODS
from cmlib.reproduction import figures, grids, tables
from cmlib.reproduction.figures import memory
from cmlib.store import Store, committed

PLACES = [*footprint.FORMULAS]
SMALL = {"train_per_class": 40}


def lead_through(experiment, data):
    """A method that went through all tasks, and what it keeps after each; CoPE stores while its stream passes."""
    method, history = cm.fresh(experiment, data), []
    for task in method.scenario.tasks:
        method.begin_task(task)
        for x, y in method.batches(task, 0) if experiment.method == "cope" else ():
            method.start_prototypes(method.embed(x).detach(), y)
        method.eval()
        with torch.no_grad() if experiment.method not in ("ewc", "oewc") else torch.enable_grad():
            method.end_task(task)
        history.append(method.retained())
    return method, history


# -- counts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "scenario"), PLACES)
def test_counts_and_bytes_are_those_of_the_real_tensors_after_every_task(method, scenario):
    options = {"exemplars_per_class": 7} if method == "cope" else {"memory_size": 20} if method not in ("ewc", "oewc") else {}
    if (method, scenario) == ("cm", "til"):
        options = {}
    experiment = cm.Experiment("digits", scenario, method, profile="smoke", **SMALL, **options)
    net, history = lead_through(experiment, cm.datasets.load("digits"))
    for tasks, tensors in enumerate(history, 1):
        parts = footprint.kept(method, scenario, Setting.of(experiment, tasks))
        assert parts == {name: sum(one.numel() for one in some) for name, some in tensors.items()}, tasks
        real = sum(one.numel() * one.element_size() for some in tensors.values() for one in some)
        assert footprint.in_bytes(parts) == real, tasks
    assert footprint.heads(method, Setting.of(experiment)) == sum(one.numel() for one in net.heads.parameters())
    text, count = net.formula()
    literal = experiment.n_tasks if method == "er" or (method in footprint.SHARED and scenario == "cil") else 1
    ours = footprint.FORMULAS[method, scenario][0], footprint.formula(method, scenario, Setting.of(experiment))
    assert (text, count) == (ours[0], ours[1] * literal), "the package's formula puts the whole shared memory for M"


def test_naive_and_cumulative():
    experiment = cm.Experiment("digits", "til", "cumulative", profile="smoke", **SMALL)
    _, history = lead_through(experiment, cm.datasets.load("digits"))
    kept = {name: sum(one.numel() for one in some) for name, some in history[-1].items()}
    assert footprint.kept("cumulative", "til", Setting.of(experiment)) == kept
    assert footprint.kept("naive", "cil", Setting()) == {} and footprint.in_bytes({}) == 0


HARMLESS = {"epochs", "eval_split", "lam", "memory_size", "support_size", "train_per_class", "batch_split", "prototype_init"}


def test_counts_are_those_of_every_committed_run_with_usual_norms_and_projectors():
    checked = set()
    for run in committed():
        experiment = cm.Experiment.of(run.experiment)
        changed = {one.partition("=")[0] for one in experiment.variant.split(",") if one}
        place = experiment.method, experiment.scenario
        if place in PLACES and changed <= HARMLESS and run.status == "finished":
            assert footprint.kept(*place, Setting.of(experiment)) == run.retained, run.id
            checked.add((*place, experiment.dataset))
    assert {place[:2] for place in checked} == {*PLACES} and len(checked) > 20


def test_the_papers_numbers_by_hand():
    """CIFAR-10, five tasks: 269,072 parameters of the backbone, 65 x 2 of a head, 3,072 scalars an image, 688 channels."""
    s, P = Setting(), 269_072 + 5 * 130
    wanted = {"ewc": 5 * P, "oewc": P, "er": 500 * 3072, "gem": 2500 * 3072, "emr": 2500 * (3072 + 64), "cm": 128 * 10}
    assert {name: footprint.formula(name, "til", s) for name in wanted} == wanted
    assert footprint.kept("cm", "til", s) == {"past batch norms": 4 * 4 * 688, "centroids": 1280}
    assert footprint.kept("cm", "cil", s)["projectors"] == 5 * 2 * (128 * 128 + 128)
    assert footprint.kept("cm", "cil", dataclasses.replace(s, n_tasks=1))["projectors"] == 0
    assert footprint.heads("cm", s) == 5 * 12_480 and footprint.heads("naive", s) == 5 * 130 and footprint.heads("cope", s) == 0
    assert footprint.in_bytes({"exemplars": 10, "labels": 3, "centroids": 2}) == 10 + 24 + 8


def test_every_letter_is_explained_and_every_part_has_the_package_s_name():
    texts = [text for _, text in footprint.FORMULAS.values()] + [t for parts in footprint.KEPT.values() for t in parts.values()]
    used = {letter for text in [*texts, *footprint.HEADS.values(), footprint.LINEAR] for letter in text if letter.isalpha()}
    assert used == set(footprint.LETTERS) == set(Setting().letters())
    assert {*footprint.KEPT} == {(name, kind) for name, cls in METHODS.items() for kind in cls.scenarios}


def test_refusals_say_what_is_allowed():
    with pytest.raises(cm.OptionError, match="unknown method 'naive'; allowed: ewc"):
        footprint.formula("naive", "til", Setting())
    with pytest.raises(cm.OptionError, match="unknown method 'emr'"):
        footprint.kept("emr", "cil", Setting())
    with pytest.raises(cm.OptionError, match="unknown scenario 'dil'; allowed: til, cil"):
        footprint.methods("dil")
    with pytest.raises(cm.OptionError, match="n_tasks=0 is impossible"):
        Setting(n_tasks=0)


# -- the grid -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["smoke", "digits", "mini", "paper"])
def test_the_grid_has_every_method_at_the_same_numbers_of_images(profile):
    grid = grids.load("figure2a")
    sizes = {}
    for cell in grid.cells(profile):
        (experiment,) = cell.experiments(profile)
        share = experiment.n_tasks if experiment.method == "gem" else 1
        sizes.setdefault(experiment.method, []).append(experiment.memory_size * share)
        assert experiment.scenario == "cil" and not cell.printed
    assert sizes.keys() == {"cm", "er", "ssil", "gem"} and len({tuple(one) for one in sizes.values()}) == 1
    assert len(sizes["cm"]) == 5 and sizes["cm"] == sorted(sizes["cm"])
    usual = [cm.Experiment(cell.dataset, "cil", cell.method, profile=profile) for cell in grid.cells(profile)]
    made = {one.hash("") for one in grid.experiments(profile, 1)}
    missed = {one.method for one in usual if one.hash("") not in made}
    assert missed == ({"gem"} if profile in ("smoke", "digits") else set()), "runs of table 1 are used again"
    assert grid.exchanged(profile) == []


def test_no_table_is_made_of_it():
    with pytest.raises(cm.OptionError, match="unknown table 'figure2a'; allowed: 1, 2, 3, 4, 5, 6"):
        tables.table("figure2a", "digits", [])
    assert grids.names()[:6] == [f"table{k}" for k in range(1, 7)]


# -- figure 2a ----------------------------------------------------------------------------------------------------------


def stored(folder, accuracies):
    """Runs of the digits with these accuracies: (method, memory_size) -> one a seed."""
    for (method, size), values in accuracies.items():
        for seed, value in enumerate(values):
            options = {"memory_size": size} if size else {}
            save(folder, cm.Experiment("digits", "cil", method, seed, **options), matrix([value] * 5, [99.0] * 5))
    return [Store(folder)]


def test_figure_2a_holds_the_runs(tmp_path):
    ran = {("cm", 20): [40, 50], ("cm", 200): [80], ("er", 20): [60], ("gem", 4): [30, 34], ("naive", 0): [20]}
    drawn = figures.draw("2a", "digits", stored(tmp_path, ran))
    points = {(row["method"], row["exemplars"]): row for row in memory.points(drawn.rows)}
    assert len(points) == 20
    one = points["cm", 20]
    assert (one["n"], one["accuracy"], one["sd"], one["lowest"], one["highest"]) == (2, 45, 5, 40, 50)
    assert points["gem", 20]["accuracy"] == 32 and points["gem", 20]["option"] == 4, "4 images for each of 5 tasks"
    assert points["ssil", 50]["n"] == 0 and points["ssil", 50]["accuracy"] is None
    runs = [(row["method"], row["seed"], row["accuracy"]) for row in drawn.rows if row["kind"] == "run"]
    assert sorted(runs) == [("cm", 0, 40), ("cm", 0, 80), ("cm", 1, 50), ("er", 0, 60), ("gem", 0, 30), ("gem", 1, 34)]
    assert memory.compared(drawn.rows) == {20: {"er": 60, "cm": 40, "gem": 30}}, "over the one seed that all three have"
    assert drawn.title == "ER is the most accurate at the one size where several ran"
    assert "CM from 45 % with 20 exemplars to 80 % with 200" in drawn.alt
    assert any(note.startswith("Not run yet: CM 10") and "Cumulative" in note for note in drawn.notes)
    (ax,) = drawn.fig.axes
    line = next(c for c in ax.containers if c.lines[0].get_marker() == memory.MARKERS["cm"])
    assert line.lines[0].get_ydata().tolist() == [45, 80] and ax.get_xscale() == "log"
    ends = sorted(line.lines[2][0].get_segments()[0][:, 1].tolist())
    assert ends == [40, 50], "the whisker goes from the lowest run to the highest"
    assert {text.get_text() for text in ax.texts} == {"Naive", "CM", "ER", "GEM"}


@pytest.mark.parametrize(
    ("ran", "title"),
    [
        ({}, "Accuracy against the size of the memory: not run yet"),
        ({("cm", 10): [50], ("er", 20): [40]}, "Accuracy against the size of the memory: not run yet"),
        ({(m, s): [70 - s - 5 * (m == "er")] for m in ("cm", "er") for s in (10, 20)},
         "CM is the most accurate at all 2 sizes of the memory"),
        ({("cm", 10): [50], ("er", 10): [40], ("cm", 20): [50], ("ssil", 20): [60], ("cm", 50): [50], ("gem", 10): [55]},
         "CM is the most accurate at 1 of 3 sizes, GEM or SS-IL at the others"),
        ({("cm", 10): [50], ("er", 10): [60], ("cm", 20): [50], ("er", 20): [60]},
         "ER is the most accurate at each of 2 sizes, CM at none"),
    ],
)  # fmt: skip
def test_the_title_says_who_leads(tmp_path, ran, title):
    drawn = figures.draw("2a", "digits", stored(tmp_path, ran))
    assert drawn.title == title and drawn.alt.startswith(title)


def test_stopped_runs_are_said_and_left_out(tmp_path):
    wanted = cm.Experiment("digits", "cil", "er", 0, memory_size=10)
    save(tmp_path, wanted, [[None] * 5] * 5, status="stopped: the loss is not finite (task 1, epoch 1)")
    drawn = figures.draw("2a", "digits", [Store(tmp_path)])
    (row,) = [row for row in memory.points(drawn.rows) if row["stopped"]]
    assert (row["method"], row["exemplars"], row["n"]) == ("er", 10, 0)
    assert drawn.notes[-1] == "Left out, the loss was not finite: ER 10 (1)."


# -- figure 2b ----------------------------------------------------------------------------------------------------------


def test_figure_2b_by_formula_and_in_full(tmp_path):
    drawn = figures.draw("2b", "mini", [Store(tmp_path)])
    now = memory.after(drawn.rows, 5, "til")
    assert now["cm"]["by_formula"] == 1280 and now["cm"]["in_full"] == 12_288 and now["cm"]["bytes"] == 49_152
    assert now["er"]["in_full"] == 50 * 3073 and now["gem"]["by_formula"] == 250 * 3072, "the memories of the profile"
    assert memory.after(drawn.rows, 10, "cil")["ssil"]["in_full"] == memory.after(drawn.rows, 1, "cil")["ssil"]["in_full"]
    assert all(row["measured"] is None for row in drawn.rows) and any("Not run yet: EWC TIL" in one for one in drawn.notes)
    assert drawn.title == "TIL: CM keeps 9.6 times what its formula says, the least"
    assert [len(ax.lines) for ax in drawn.fig.axes] == [6, 6, 7, 7]


def test_marks_are_what_stored_runs_kept():
    drawn = figures.draw("2b", "digits", [committed()])
    marks = {(row["scenario"], row["method"]): row for row in drawn.rows if row["measured"] is not None}
    assert len(marks) >= 10
    assert all(row["measured"] == row["in_full"] and row["tasks"] == 5 for row in marks.values())
    assert drawn.title.endswith("more than ER"), "an image of 64 pixels is cheaper than a centroid"


def test_names_are_moved_apart_in_their_order():
    draws = torch.Generator().manual_seed(0)
    for _ in range(50):
        heights = torch.rand(7, generator=draws).tolist()
        placed = memory.spread_out(heights, 0.1)
        order = sorted(range(7), key=lambda k: heights[k])
        assert all(placed[b] - placed[a] >= 0.1 - 1e-9 for a, b in itertools.pairwise(order))
    assert memory.spread_out([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9]), "nothing moves without need"
    assert memory.spread_out([0.5, 0.5], 0.2) == pytest.approx([0.4, 0.6])
    assert memory.spread_out([], 0.1) == []
