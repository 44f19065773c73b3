"""Figure 1: the two scenarios as Centroids Matching sees them. A drawing, no measurement: places are made up.

Real are the tasks, their classes in the order of arrival, and one training image of each class. Left, task-incremental: a space
for every task. Right, class-incremental: the projectors send all of them into one space, with a cell for every class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from cmlib import datasets
from cmlib.experiment import Experiment
from cmlib.plots.geometry import Array, voronoi_cells
from cmlib.plots.style import INK, WIDTH, class_colour, styled, task_colour
from cmlib.reproduction.figures import Drawing
from cmlib.scenario import Scenario
from cmlib.store import Store

LEFT, RIGHT = (0.0, 2.75), (3.65, 6.4)  # inches: the column of small boxes, the large box
HEIGHT, GAP = 4.4, 0.14
SAMPLES = 6  # small circles a class


def draw(profile: str, stores: Sequence[Store] = ()) -> Drawing:
    """Figure 1 for the data set of a profile; it needs the images, and no runs. DataError when they are not on this machine."""
    dataset = "digits" if profile in ("digits", "smoke") else "cifar10"
    experiment = Experiment(dataset, "cil", "cm", 0, profile)
    scenario = Scenario(datasets.load(dataset), "cil", experiment.n_tasks, experiment.seed)
    k, n = scenario.classes_per_task, len(scenario.class_names)
    title = "One space a task when the task is known, one space for all when it is not"
    with styled():
        fig = Figure(figsize=(WIDTH, HEIGHT + 0.75), layout="constrained")
        ax = fig.subplots()
        rows = _left(ax, scenario) + _right(ax, scenario)
        for at, text in ((LEFT, "task-incremental: task given"), (RIGHT, "class-incremental: not given")):
            ax.text(np.mean(at), HEIGHT + 0.1, text, ha="center", va="bottom", color=INK, fontsize=12)
        ax.set(xlim=(-0.05, WIDTH + 0.05), ylim=(-0.05, HEIGHT + 0.35), aspect="equal")
        ax.set_axis_off()
        fig.suptitle(title, x=0.01, ha="left", fontsize=12.5)
    alt = (
        f"Left, {scenario.n_tasks} boxes, one a task, each with {k} classes: a large circle, the centroid, among small ones, the "
        f"samples, and an image of the class. Lines lead from all of them into one large box on the right, where each of the "
        f"{n} classes has a cell of its own."
    )
    notes = (
        "Large circles: centroids; small ones: samples. Places are made up; tasks, classes and images are those of the data.",
        f"{dataset}, seed 0: classes in natural order, {k} a task.",
    )
    return Drawing(fig, rows, alt, title, notes)


def _left(ax: Axes, scenario: Scenario) -> list[dict[str, Any]]:
    """A box for every task, the first one on top, and a line from it to the merged space."""
    n = scenario.n_tasks
    side = (HEIGHT + GAP) / n
    rows = []
    for task in scenario.tasks:
        bottom, middle = HEIGHT - (task.index + 1) * side + GAP, HEIGHT - (task.index + 0.5) * side + GAP / 2
        _box(ax, LEFT[0], bottom, LEFT[1] - LEFT[0], side - GAP)
        ax.text(0.1, bottom + side - GAP - 0.08, f"{task.index + 1}", color=task_colour(task.index), va="top", fontsize=11)
        places = np.linspace(LEFT[0], LEFT[1], 2 * len(task.classes) + 1)[1::2]
        for label, x in zip(task.classes, places, strict=True):
            at = np.array([x - 0.12, middle])
            rows.append(_one_class(ax, scenario, label, at, 0.4 * (side - GAP), "til"))
        curve = np.linspace(0, 1, 40)
        rise = middle + (HEIGHT / 2 - middle) * (3 * curve**2 - 2 * curve**3)
        ax.plot(LEFT[1] + 0.04 + curve * (RIGHT[0] - LEFT[1] - 0.2), rise, color=task_colour(task.index), linewidth=1.6)
    tip = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", (RIGHT[0] - 0.02, HEIGHT / 2), (RIGHT[0] - 0.18, HEIGHT / 2), arrowprops=tip)
    ax.text(RIGHT[0] - 0.08, HEIGHT / 2 + 1.45, "merge", ha="right", color=INK, fontsize=11)
    return rows


def _right(ax: Axes, scenario: Scenario) -> list[dict[str, Any]]:
    """All classes in one box, each in its Voronoi cell."""
    n, k = len(scenario.class_names), scenario.classes_per_task
    extent = (RIGHT[0], RIGHT[1], 0.0, HEIGHT)
    centroids = _places(n)
    for label, cell in enumerate(voronoi_cells(centroids, extent)):
        ax.fill(*cell.T, color=class_colour(label, k), alpha=0.14, linewidth=0)
        ax.plot(*np.vstack([cell, cell[:1]]).T, color=INK, alpha=0.5, linewidth=0.7)
    _box(ax, RIGHT[0], 0.0, RIGHT[1] - RIGHT[0], HEIGHT)
    return [_one_class(ax, scenario, label, at, 0.24, "cil") for label, at in enumerate(centroids)]


def _places(n: int) -> Array:
    """n places spread over the large box, in two staggered columns, neighbours of different tasks. -> [n, 2]"""
    rows = -(-n // 2)
    draws = np.random.default_rng(6)
    place = np.array([(label * 3) % n if n % 3 else label for label in range(n)])
    row, column = np.divmod(place, 2)
    width, side = RIGHT[1] - RIGHT[0], HEIGHT / rows
    x = RIGHT[0] + width * (0.2 + 0.5 * column) + draws.uniform(-0.05, 0.09, n)
    y = side * (row + 0.4 + 0.22 * column) + draws.uniform(-0.05, 0.05, n)
    return np.stack([x, y], axis=1)


def _one_class(ax: Axes, scenario: Scenario, label: int, at: Array, reach: float, space: str) -> dict[str, Any]:
    """Samples around a centroid, and an image of the class beside it; returns its row of the table."""
    k = scenario.classes_per_task
    task = scenario.tasks[label // k]
    draws = np.random.default_rng(label)
    angle = np.arange(SAMPLES) * 2 * np.pi / SAMPLES + draws.uniform(0, 2 * np.pi)
    distance = reach * draws.uniform(0.6, 1.0, SAMPLES)
    dots = at + distance[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    colour = class_colour(label, k)
    ax.scatter(dots[:, 0], dots[:, 1], s=13, color=colour, linewidths=0, zorder=3)
    ax.scatter(*at, s=95, color=colour, edgecolor="white", linewidth=1.2, zorder=4)
    image = task.x[task.y == label][0].permute(1, 2, 0).cpu().numpy()  # [H, W, C]
    half, x, y = 0.15, at[0] + reach + 0.13, at[1]
    box = (x - half, x + half, y - half, y + half)
    ax.imshow(image, cmap="gray_r", extent=box, zorder=5, interpolation="nearest")
    ax.plot(np.array(box)[[0, 1, 1, 0, 0]], np.array(box)[[2, 2, 3, 3, 2]], color=colour, linewidth=1.6, zorder=6)
    name = scenario.class_names[label]
    return {"scenario": space, "task": label // k + 1, "label": label, "class": name, "x": round(at[0], 4), "y": round(at[1], 4)}


def _box(ax: Axes, x: float, y: float, width: float, height: float) -> None:
    style = "round,pad=0,rounding_size=0.08"
    ax.add_patch(FancyBboxPatch((x, y), width, height, style, facecolor="none", edgecolor=INK, alpha=0.6, linewidth=1))
