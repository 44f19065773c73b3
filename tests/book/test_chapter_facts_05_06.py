"""What chapters 5 and 6 say of the committed runs, where a run can decide it; and that the pages show it.

An error that was once on a page has a test here: the memory of CM and ER, the run that stands for all, a certainty of 100 %, and
what the squared distance does in CIL.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

import cmlib as cm
from cmlib.reproduction import snapshots
from cmlib.store import Run, committed

BOOK = Path(__file__).resolve().parents[2] / "book"
MERGING, INSIDE = "05_class_incremental_cm", "06_inside_the_space"
CIL, TIL = cm.Experiment("digits", "cil", "cm"), cm.Experiment("digits", "til", "cm")
MINI = cm.Experiment("cifar10", "cil", "cm", profile="mini")
SEEDS = range(5)


def runs(experiment: cm.Experiment, seeds: Any = SEEDS) -> dict[int, Run]:
    found = cm.paper.runs_like(committed(), experiment)
    return {run.seed: run for run in sorted(found, key=lambda run: run.seed) if run.seed in seeds}


def gains(**change: Any) -> dict[int, float]:
    """Accuracy in CIL with one thing changed, minus the default's with the same seed."""
    default = runs(CIL)
    return {seed: run.accuracy - default[seed].accuracy for seed, run in runs(CIL.but(**change)).items()}


@cache
def cells(chapter: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((BOOK / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    return found


def text(value: Any) -> str:
    return value if isinstance(value, str) else "".join(value)


def shown(chapter: str) -> Iterator[str]:
    """All that a chapter says: its Markdown and the plain text of its outputs."""
    for cell in cells(chapter):
        if cell["cell_type"] == "markdown":
            yield text(cell["source"])
        for output in cell.get("outputs", []):
            yield text(output.get("text", "")) + text(output.get("data", {}).get("text/plain", ""))


def said(chapter: str) -> Iterator[dict[str, Any]]:
    """What `cm.say` recorded of each of its texts."""
    for cell in cells(chapter):
        for output in cell.get("outputs", []):
            if "cmlib" in output.get("metadata", {}):
                yield output["metadata"]["cmlib"]


def record(chapter: str, *names: str) -> dict[str, Any]:
    """The values of the one text that has all of these."""
    found = [one["values"] for one in said(chapter) if set(names) <= set(one["values"])]
    assert len(found) == 1, f"{len(found)} texts of {chapter} have {names}"
    return found[0]


# -- the run that stands for all ------------------------------------------------------------------------------------------


def test_one_run_is_the_median_run() -> None:
    median = {name: cm.paper.median_run(runs(one).values()) for name, one in (("til", TIL), ("cil", CIL))}
    values = record(MERGING, "seed", "low", "high")
    assert (values["seed"], values["acc"]) == (median["cil"].seed, median["cil"].accuracy)
    assert values["low"] < values["acc"] < values["high"]
    values = record(INSIDE, "t", "til", "c", "cil")
    assert (values["t"], values["c"]) == (median["til"].seed, median["cil"].seed)
    assert (values["til"], values["cil"]) == (median["til"].accuracy, median["cil"].accuracy)


@pytest.mark.parametrize("chapter", [MERGING, INSIDE])
def test_no_page_shows_the_worst_seed_alone(chapter: str) -> None:
    worst = min(runs(CIL).values(), key=lambda run: run.accuracy)
    assert not [one["text"] for one in said(chapter) if one["runs"] == [worst.id]]


def test_the_spaces_of_the_median_runs_lie_beside_them() -> None:
    seeds = {"cil": cm.paper.median_run(runs(CIL).values()).seed, "til": cm.paper.median_run(runs(TIL).values()).seed}
    for space, one in (("merged", CIL), ("merged", CIL.but(merging="none")), ("task1", TIL), ("task1", TIL.but(lam=0.0))):
        assert snapshots.find(one.but(seed=seeds[one.scenario]), space, [committed()]), one


@pytest.mark.parametrize(("chapter", "label"), [(MERGING, "Merged space after tasks"), (INSIDE, "rings mark images")])
def test_the_classes_of_the_merged_space_bear_the_names_of_its_own_seed(chapter: str, label: str) -> None:
    """Each seed has an order of its own, and chapter 6 shows spaces of two seeds."""
    one = CIL.but(seed=cm.paper.median_run(runs(CIL).values()).seed)
    order = list(cm.fresh(one, cm.datasets.load("digits")).scenario.class_names)
    pages = ["".join(out.get("data", {}).get("text/html", "")) for cell in cells(chapter) for out in cell.get("outputs", [])]
    (player,) = [page for page in pages if label in page and "<input" in page]
    drawn = [re.findall(r"<text[^>]*>(\d)</text>", frame) for frame in re.findall(r"<svg.*?</svg>", player, re.DOTALL)]
    full = [names for names in drawn if len(names) == len(order)]
    assert full and all(names == order for names in full)


# -- the same exemplars are not the same memory -----------------------------------------------------------------------------


def test_cm_keeps_as_many_exemplars_as_er_and_many_more_scalars() -> None:
    ours, er = runs(CIL)[0], runs(CIL.but(method="er"))[0]
    assert ours.experiment["options"]["memory_size"] == er.experiment["options"]["memory_size"]
    assert ours.retained["exemplars"] == er.retained["exemplars"]
    assert (ours.retained_scalars, er.retained_scalars) == (169_650, 3_250)
    values = record(MERGING, "cm_kept", "er_kept")
    assert (values["cm_kept"], values["er_kept"]) == (ours.retained_scalars, er.retained_scalars)
    assert values["ratio"] == round(ours.retained_scalars / er.retained_scalars)
    page = "\n".join(shown(MERGING))
    assert "not the same memory" in page
    assert not re.search(r"(?<!not )the same memory", page), "the same exemplars, and not the same memory"


# -- no certainty of 100 % --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [0.5, 2.0, 8.4, 12.7])
def test_the_odds_of_a_class_are_bounded_by_the_distance_of_the_centroids(gap: float) -> None:
    """Log odds are the difference of two distances, which the triangle inequality bounds; behind a centroid they reach it."""
    draws = np.random.default_rng(0)
    centroids = np.array([[0.0, 0.0], [gap, 0.0]])
    points = np.concatenate([30 * draws.normal(size=(200, 2)), [[-50.0, 0.0], [50.0, 0.0]]])
    odds = np.diff(np.linalg.norm(points[:, None] - centroids, axis=2), axis=1)[:, 0]
    assert (np.abs(odds) <= gap + 1e-9).all()
    assert np.allclose(np.abs(odds[-2:]), gap)


def test_no_certainty_is_rounded_up_to_100_percent() -> None:
    page = "\n".join(shown(INSIDE))
    assert not re.search(r"certain\w* (?:than|of) 100", page)
    assert math.isclose(100 / (1 + math.exp(-2)), 88, abs_tol=0.1) and "at most 88 %" in page  # what the text works out by hand
    title = re.search(r"Centroids ([\d.]+) apart: odds of at most ([\d,]+) to 1", page)
    assert title, "the figure gives the odds"
    seed = cm.paper.median_run(runs(TIL).values()).seed
    found = snapshots.find(TIL.but(embedding_size=2, seed=seed), "task1", [committed()])
    assert found
    gap = float(np.linalg.norm(np.diff(found[1][0].centroids, axis=0)))
    assert float(title[1]) == pytest.approx(gap, abs=0.06)
    assert float(title[2].replace(",", "")) == pytest.approx(math.exp(gap), rel=0.06)


# -- trained projectors on the digits -----------------------------------------------------------------------------------------


def test_projectors_that_are_absent_or_not_trained_are_better_on_every_seed() -> None:
    for change in ({"merging": "none"}, {"projectors": "frozen"}):
        better = gains(**change)
        assert list(better) == list(SEEDS) and min(better.values()) > 0, change


def test_an_offset_that_cannot_look_is_above_every_projector_that_looks() -> None:
    blind = [run.accuracy for run in runs(CIL.but(merging="offset")).values()]
    looks = [run.accuracy for kind in ("linear", "mlp", "offset_linear") for run in runs(CIL.but(merging=kind)).values()]
    assert len(blind) >= 3 and len(looks) >= 9
    assert min(blind) > max(looks)


def test_the_exception_of_the_rule_starts_from_the_embedding() -> None:
    means = {kind: np.mean(list(gains(merging=kind).values())) for kind in ("linear", "mlp", "offset_linear")}
    assert max(means, key=means.__getitem__) == "offset_linear" and means["offset_linear"] > 0


BOTH_MENDS = {"cil_loss": "both", "scale_start": "near_one"}


def test_what_mends_them_does_so_on_average() -> None:
    for change in ({"cil_loss": "both"}, {"scale_start": "near_one"}, BOTH_MENDS, {"memory_size": 200}):
        assert list(gains(**change)) == list(SEEDS) and np.mean(list(gains(**change).values())) > 0, change
    values = record(MERGING, "least", "most", "low", "high")
    better = gains(cil_loss="both")
    assert values["k"] == len(better) and math.isclose(values["low"], min(better.values()), abs_tol=1e-9)


def test_with_both_mends_cm_stands_beside_er() -> None:
    mended, er = runs(CIL.but(**BOTH_MENDS)), runs(CIL.but(method="er"))
    ahead = [mended[seed].accuracy - er[seed].accuracy for seed in SEEDS]
    values = record(MERGING, "mended", "er", "ahead", "wins")
    assert math.isclose(values["ahead"], np.mean(ahead), abs_tol=1e-9) and values["seeds"] == len(ahead)
    assert values["wins"] == sum(gap > 0 for gap in ahead)
    assert math.isclose(values["mended"] - values["er"], values["ahead"], abs_tol=1e-9)
    plain = runs(CIL.but(merging="none"))
    assert min(np.mean(ahead), np.mean([mended[seed].accuracy - plain[seed].accuracy for seed in SEEDS])) > 0  # "Take away"


def test_the_photographs_are_compared_on_the_same_seeds() -> None:
    default = runs(MINI)
    changes: dict[str, dict[str, str]] = {"frozen": {"projectors": "frozen"}, "none": {"merging": "none"}}
    mends: dict[str, dict[str, str]] = {"kept": {"cil_loss": "both"}, "near": {"scale_start": "near_one"}}
    mends["both"] = mends["kept"] | mends["near"]
    (table,) = [one["values"] for one in said(MERGING) if one["text"].startswith("*CIFAR-10, `mini`, CIL")]
    gaps = {}
    for i, (name, change) in enumerate((changes | mends).items(), start=1):
        changed = runs(MINI.but(**change))
        assert len(changed) >= (3 if name in mends else 1) and set(changed) <= set(default)
        gaps[name] = np.mean([run.accuracy - default[seed].accuracy for seed, run in changed.items()])
        assert math.isclose(table[f"gain{i}"], gaps[name], abs_tol=1e-9), name
    read = record(MERGING, "frozen", "none", "worst")
    assert read == pytest.approx({name: gaps[name] for name in changes} | {"worst": min(gaps[name] for name in mends)})
    assert read["frozen"] < 0 > read["none"] and read["worst"] < 0  # as the page says it


# -- the squared distance -----------------------------------------------------------------------------------------------------


def pairs(experiment: cm.Experiment) -> list[tuple[Run, Run]]:
    plain, squared = runs(experiment), runs(experiment.but(distance="squared"))
    return [(plain[seed], run) for seed, run in squared.items()]


def test_the_squared_distance_gains_in_cil_by_telling_the_tasks_apart() -> None:
    both = pairs(CIL)
    known = [np.mean(b.R_task_known[-1]) - np.mean(a.R_task_known[-1]) for a, b in both]  # type: ignore[index]
    gain = np.mean([b.accuracy - a.accuracy for a, b in both])
    assert len(both) >= 2 and gain > 5 and abs(np.mean(known)) < 1.5
    values = record(MERGING, "gain", "til", "known", "learned")
    assert math.isclose(values["gain"], gain) and math.isclose(values["known"], np.mean(known), abs_tol=1e-9)
    assert values["n"] == len(both)


def test_the_squared_distance_loses_in_til_by_forgetting() -> None:
    both = pairs(TIL)
    assert np.mean([b.accuracy - a.accuracy for a, b in both]) < -5
    assert np.mean([b.learning_accuracy - a.learning_accuracy for a, b in both]) > -1
    assert np.mean([b.bwt_final - a.bwt_final for a, b in both]) < -5


def test_the_merged_space_of_the_papers_data_is_read_as_it_was_recorded() -> None:
    found = snapshots.find(cm.Experiment("cifar10", "cil", "cm", profile="paper"), "merged", [committed()])
    assert found is not None
    run, taken = found
    moves = []
    for before, after in pairwise(taken):
        c = before.centroids
        moves.append(100 * np.linalg.norm(after.centroids[: len(c)] - c, axis=1).mean() / pdist(c).mean())
    nearest = [one.centroid_labels[cdist(one.points, one.centroids).argmin(axis=1)] for one in taken]
    early = [100 * np.mean((named == one.labels)[one.labels < 4]) for named, one in zip(nearest, taken, strict=True)]
    lost = 100 * np.mean(nearest[-1][taken[-1].labels < 8] >= 8)
    values = record(INSIDE, "far", "digits", "lost")
    last = 100 * np.mean(nearest[-1][taken[-1].labels >= 8] >= 8)
    read = {name: values[name] for name in ("far", "worst", "before", "after", "lost", "last", "accuracy")}
    ours = {"far": np.mean(moves), "worst": max(moves), "before": early[0], "after": early[-1], "lost": lost, "last": last}
    assert read == pytest.approx({**ours, "accuracy": run.accuracy}, rel=1e-5)
    assert [len(one.centroids) for one in taken] == [4, 6, 8, 10]
    assert any("so they do not stand still" in words for words in shown(INSIDE)) == (max(moves) >= 10)


def test_at_the_papers_settings_cm_and_er_differ_in_what_they_lose_and_not_in_their_spaces() -> None:
    both = {
        name: cm.paper.runs_like(committed(), cm.Experiment("cifar10", "cil", name, profile="paper")) for name in ("cm", "er")
    }
    mean = {name: np.mean([run.accuracy for run in ones]) for name, ones in both.items()}
    told = {name: np.mean([run.R_task_known[-1] for run in ones]) for name, ones in both.items()}
    learned = {name: np.mean([run.learning_accuracy for run in ones]) for name, ones in both.items()}
    bwt = {name: np.mean([run.bwt_final for run in ones]) for name, ones in both.items()}
    values = record(MERGING, "told", "told_er")
    for name, numbers in (("accuracy", mean), ("told", told), ("learned", learned), ("bwt", bwt)):
        assert [values[name], values[f"{name}_er"]] == pytest.approx([numbers["cm"], numbers["er"]])
    words = "\n".join(shown(MERGING))
    assert ("not the spaces of CM" in words) == (abs(told["cm"] - told["er"]) < 2 < abs(mean["cm"] - mean["er"]))
    slow = learned["cm"] < learned["er"] - 10 and bwt["cm"] > bwt["er"] + 10
    assert ("CM lets new classes in too little, ER gives up old ones" in words) == slow
