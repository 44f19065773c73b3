"""Figures 3 and 4: embedding spaces over tasks, from the snapshots beside stored runs (seed 0), with the numbers behind them.

All pictures of a figure have ONE basis, the two principal components of the last picture. What the plane leaves out, and how
often its cells name another class than the true nearest centroid, stands in the notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cmlib.datasets import KNOWN
from cmlib.errors import StoreError, check_name
from cmlib.experiment import Experiment
from cmlib.plots import drift, figures, geometry
from cmlib.plots.geometry import Projection, Space
from cmlib.randomness import class_order
from cmlib.reproduction import snapshots
from cmlib.reproduction.figures import Drawing
from cmlib.store import Run, Store

NEEDS = {"3": ("til", "task1"), "4": ("cil", "merged")}  # scenario, kind of snapshot


def experiment_of(number: str, profile: str) -> Experiment:
    """The run that a figure shows: CM, seed 0, in the scenario of the figure."""
    scenario = NEEDS[check_name("figure with snapshots", number, NEEDS)][0]
    dataset = "digits" if profile in ("digits", "smoke") else "cifar10"
    return Experiment(dataset, scenario, "cm", 0, profile)


def record(number: str, profile: str, store: Store) -> None:
    """Make the run of a figure and keep it in a store, with its snapshots; nothing is done when the store holds both."""
    experiment = experiment_of(number, profile)
    space = NEEDS[number][1]
    if snapshots.find(experiment, space, [store]) is None:
        snapshots.keep(experiment, space, store)


def draw_3(profile: str, stores: Sequence[Store]) -> Drawing:
    """Figure 3: the space of task 1 after each task (TIL, drift penalty on). StoreError when it has not been run."""
    run, taken, names = _stored("3", profile, stores)
    spaces = drift.spaces_of(taken)
    title = f"Images of task 1 drift by {100 * snapshots.moved(taken):.0f} % of the distance between its centroids"
    fig = drift.drift_figure(spaces, len(taken[0].centroid_labels), names, title, columns=3)
    alt = (
        f"The embedding space of task 1 after {_counted(taken)}: the same test images of two classes, each class with its "
        f"centroid and its cell, and arrows from where the class's mean was after task 1. {title}."
    )
    view = fig.cm_projection
    notes = (
        f"Drift is the distance in all {view.dimensions} dimensions, in percent of the distance between the two centroids.",
        "The paper shows three moments (after the first, the third and the last task); here are all.",
        *_notes(run, profile, view, taken),
    )
    return Drawing(fig, list(_rows(spaces, view, names)), alt, title, notes)


def draw_4(profile: str, stores: Sequence[Store]) -> Drawing:
    """Figure 4: the space of all classes after each task from the second on (CIL). StoreError when it has not been run."""
    run, taken, names = _stored("4", profile, stores)
    spaces = drift.spaces_of(taken)
    view = geometry.project(spaces, place="anchor")
    title = f"Images in the cell of their class: {view.right[0]:.0f} % after task 2, {view.right[-1]:.0f} % at the end"
    fig = figures.embedding_space(spaces, len(names) // len(run.R), names, title, view=view)
    alt = (
        f"The merged embedding space after {_counted(taken)}: {len(spaces[0].classes)} to {len(spaces[-1].classes)} "
        f"anchors, each with its Voronoi cell, and test images. {title}."
    )
    notes = (
        "The paper leaves the images out; here they are drawn: test images of all classes seen.",
        *_notes(run, profile, view, taken),
    )
    return Drawing(fig, list(_rows(spaces, view, names)), alt, title, notes)


def _stored(number: str, profile: str, stores: Sequence[Store]) -> tuple[Run, list[snapshots.Snapshot], list[str]]:
    experiment = experiment_of(number, profile)
    found = snapshots.find(experiment, NEEDS[number][1], stores)
    if found is None:
        what = f"CM on {experiment.dataset} in {experiment.scenario}, seed 0, with snapshots"
        raise StoreError(
            f"figure {number} in profile {profile} is not run yet: it needs {what}; "
            f"`cmlib figure {number} --profile {profile} --record` makes the run and keeps them"
        )
    known = KNOWN[experiment.dataset].class_names
    return *found, [known[k] for k in class_order(len(known), experiment.seed).tolist()]


def _counted(taken: Sequence[snapshots.Snapshot]) -> str:
    return f"tasks {', '.join(str(one.after) for one in taken[:-1])} and {taken[-1].after}"


def _notes(run: Run, profile: str, view: Projection, taken: Sequence[snapshots.Snapshot]) -> tuple[str, ...]:
    per_class = len(taken[0].labels) // len(np.unique(taken[0].labels))
    return (
        view.caption(),
        f"One run, seed 0, profile {profile}: {run.id}; the first {per_class} test images of each class.",
    )


def _rows(spaces: Sequence[Space], view: Projection, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What is drawn, as rows: a panel (its variance and rate), its centroids, its images with both nearest centroids."""
    for k, space in enumerate(spaces):
        panel = {"panel": space.title}
        rates = {"explained_percent": view.explained, "disagreement_percent": view.disagreement[k]}
        yield {**panel, "kind": "panel", "in_own_cell_percent": view.right[k], **rates}
        for label, at in zip(space.classes.tolist(), view.centroids[k].tolist(), strict=True):
            yield {**panel, "kind": "centroid", **_mark(label, at, names)}
        near = space.classes[geometry.nearest_centroid(space.points, space.centroids)].tolist()
        drawn = space.classes[geometry.nearest_centroid(view.points[k], view.centroids[k])].tolist()
        marks = zip(space.labels.tolist(), view.points[k].tolist(), near, drawn, strict=True)
        for label, at, true, plane in marks:
            yield {**panel, "kind": "image", **_mark(label, at, names), "nearest": names[true], "nearest_drawn": names[plane]}


def _mark(label: int, at: Sequence[float], names: Sequence[str]) -> dict[str, Any]:
    return {"label": label, "class": names[label], "x": round(at[0], 4), "y": round(at[1], 4)}
