"""Static figures: each takes plain arrays and returns a matplotlib Figure (pass it to `show` with an alt text)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from cmlib.errors import DataError
from cmlib.plots import geometry
from cmlib.plots.geometry import Array, Projection, Space
from cmlib.plots.style import (
    ACCURACY_STOPS,
    GROUND,
    INK,
    STRONG,
    WIDTH,
    accuracy_colours,
    class_colour,
    class_marker,
    small_panels,
    task_colour,
)
from cmlib.plots.svg import square

ACCURACY_MAP = LinearSegmentedColormap.from_list("accuracy", ACCURACY_STOPS)


def _matrices(matrix: Any) -> list[tuple[str, Array]]:
    items = matrix.items() if isinstance(matrix, Mapping) else [("", matrix)]
    return [(str(name), square(values)) for name, values in items]


def accuracy_matrix(R: Any, title: str = "", columns: int = 2) -> Figure:
    """Heat map of an accuracy matrix [N, N] in percent, or of several (a mapping of name to matrix) side by side.

    Row: after which task. Column: on which task. Cells above the diagonal stay blank.
    """
    matrices = _matrices(R)
    columns = min(columns, len(matrices))
    side = WIDTH / columns if columns > 1 else 4.4
    with small_panels(len(matrices), columns, side * 0.96 + 0.1, title=title, width=side * columns) as (fig, axes):
        for k, (ax, (name, r)) in enumerate(zip(axes, matrices, strict=True)):
            _matrix_panel(ax, r, name, left=k % columns == 0)
    return fig


def _matrix_panel(ax: Axes, r: Array, name: str, left: bool) -> None:
    n = len(r)
    lower = np.where(np.tril(np.ones_like(r)) > 0, r, np.nan)
    ax.imshow(np.ma.masked_invalid(lower), cmap=ACCURACY_MAP, vmin=0, vmax=100)
    size = 14 if n <= 5 else 10
    for i in range(n):
        for j in range(i + 1):
            if np.isfinite(r[i, j]):
                ink = accuracy_colours(r[i, j])[1]
                ax.text(j, i, f"{r[i, j]:.0f}", ha="center", va="center", color=ink, fontsize=size)
    ax.set_xticks(range(n), [str(j + 1) for j in range(n)])
    ax.set_yticks(range(n), [str(i + 1) for i in range(n)])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("accuracy on task")
    if left:
        ax.set_ylabel("after task")
    if name:
        ax.set_title(name)


def forgetting_curves(runs: Mapping[str, ArrayLike], title: str = "", columns: int = 2) -> Figure:
    """One panel a method: the accuracy on each task, from the moment it is learned, against the tasks learned so far.

    `runs` maps a method's name to R [N, N] in percent, or [seeds, N, N]: then the mean is drawn in a band from the
    lowest to the highest seed.
    """
    if not runs:
        raise DataError("forgetting_curves needs at least one run")
    columns = min(columns, len(runs))
    with small_panels(len(runs), columns, 2.7, title=title, sharex=True, sharey=True) as (fig, axes):
        for k, (ax, (name, r)) in enumerate(zip(axes, runs.items(), strict=True)):
            place = {"left": k % columns == 0, "low": k >= len(runs) - columns, "roomy": columns < 3}
            _curves_panel(ax, np.asarray(r, dtype=np.float64), name, **place)
    return fig


def _curves_panel(ax: Axes, r: Array, name: str, left: bool, low: bool, roomy: bool) -> None:
    r = r[None] if r.ndim == 2 else r  # [seeds, N, N]
    n = r.shape[-1]
    after = np.arange(1, n + 1)
    for j in range(n):
        lines = r[:, j:, j]  # [seeds, N - j]
        colour = task_colour(j)
        ax.plot(after[j:], lines.mean(axis=0), color=colour, marker="o", markersize=6)
        if len(r) > 1:
            ax.fill_between(after[j:], lines.min(axis=0), lines.max(axis=0), color=colour, alpha=0.2, linewidth=0)
        mark = f"task {j + 1}" if j == 0 and roomy else str(j + 1)
        at = (j + 1, lines[:, 0].mean())
        ax.annotate(mark, at, xytext=(-4, 7), textcoords="offset points", ha="left", color=colour, fontsize=11)
    ax.set(ylim=(-3, 113), xlim=(0.6, n + 0.4), xticks=after, yticks=(0, 50, 100))
    ax.grid(axis="y")
    ax.set_title(name)
    if low:
        ax.set_xlabel("tasks learned")
        ax.tick_params(labelbottom=True)
    if left:
        ax.set_ylabel("accuracy, %")


def as_space(frame: Any) -> Space:
    """A `Space` from a `Space`, a mapping of its fields, or a tuple as in `embedding_space`."""
    if isinstance(frame, Space):
        return frame
    if isinstance(frame, Mapping):
        return Space.of(**frame)
    points, labels, centroids, *rest = frame
    if rest and isinstance(rest[0], str):
        return Space.of(points, labels, centroids, title=rest[0])
    return Space.of(points, labels, centroids, *rest)


def embedding_space(
    frames: Sequence[Any],
    classes_per_task: int = 2,
    class_names: Sequence[str] | None = None,
    title: str = "",
    columns: int = 2,
    view: Projection | None = None,
    place: str = Projection.place,
) -> Figure:
    """Small multiples of an embedding space: points, centroids, Voronoi cells, all in the PCA basis of the last frame.

    A frame is a `Space` or a tuple ``(points [n, E], labels [n], centroids [K, E][, classes [K]][, title])``. What the
    picture cannot show (variance left out, cells that are wrong) is in ``fig.cm_caption``, which `show` prints.
    `view`: the frames in another basis. place: what the caption calls a class's place.
    """
    spaces = [as_space(frame) for frame in frames]
    view = view or geometry.project(spaces, place=place)
    columns = min(columns, len(spaces))
    with small_panels(len(spaces), columns, WIDTH / columns, 0.7, title) as (fig, axes):
        for k, (ax, space) in enumerate(zip(axes, spaces, strict=True)):
            _space_panel(ax, space, view, k, classes_per_task)
        _class_legend(fig, spaces, classes_per_task, class_names)
    fig.cm_caption = view.caption()
    fig.cm_projection = view
    return fig


def _space_panel(ax: Axes, space: Space, view: Projection, k: int, per_task: int) -> None:
    for label, cell in zip(space.classes, geometry.voronoi_cells(view.centroids[k], view.extent), strict=True):
        if len(cell):
            ax.fill(*cell.T, color=class_colour(label, per_task), alpha=0.14, linewidth=0)
            ax.plot(*np.vstack([cell, cell[:1]]).T, color=INK, alpha=0.5, linewidth=0.7)
    for label in np.unique(space.labels):
        at = view.points[k][space.labels == label]
        ax.scatter(
            at[:, 0],
            at[:, 1],
            s=11,
            color=class_colour(label, per_task),
            marker=class_marker(label, per_task),
            linewidths=0,
        )
    for at in view.centroids[k]:
        ax.scatter(at[0], at[1], s=150, marker="P", facecolor=GROUND, edgecolor=STRONG, linewidth=1.6, zorder=4)
    x0, x1, y0, y1 = view.extent
    ax.set(xlim=(x0, x1), ylim=(y0, y1), xticks=(), yticks=())
    ax.spines[:].set_visible(False)
    ax.set_title(space.title)


def _class_legend(fig: Figure, spaces: Sequence[Space], per_task: int, names: Sequence[str] | None) -> None:
    from matplotlib.lines import Line2D

    labels = sorted({int(label) for space in spaces for label in [*space.labels, *space.classes]})
    if len(labels) > 10:
        return
    marks = [
        Line2D([], [], linestyle="", marker=class_marker(k, per_task), color=class_colour(k, per_task), markersize=8)
        for k in labels
    ]
    texts = [str(names[k]) if names is not None else f"class {k}" for k in labels]
    wide = max(len(t) for t in texts) > 8
    fig.legend(marks, texts, loc="outside lower left", ncols=3 if wide else 5, handletextpad=0.1, columnspacing=1.0)


def moons_decision(
    panels: Sequence[Mapping[str, Any]],
    extent: tuple[float, float, float, float],
    title: str = "",
    columns: int = 3,
    classes_per_task: int = 2,
) -> Figure:
    """Decision regions of a classifier on a plane, one small panel a moment.

    A panel is a mapping with "regions" [h, w] of labels (row 0 at the bottom of `extent` = x0, x1, y0, y1), "points"
    [n, 2], "labels" [n] and maybe "title" and "faded" [n] (True: a point of a task that is over).
    """
    columns = min(columns, len(panels))
    with small_panels(len(panels), columns, WIDTH / columns * 0.82 + 0.3, title=title) as (fig, axes):
        for ax, panel in zip(axes, panels, strict=True):
            _moons_panel(ax, panel, extent, classes_per_task)
    return fig


def _moons_panel(ax: Axes, panel: Mapping[str, Any], extent: tuple[float, float, float, float], per_task: int) -> None:
    regions = np.asarray(panel["regions"], dtype=np.int64)  # [h, w]
    points, labels = np.asarray(panel["points"], dtype=np.float64), np.asarray(panel["labels"], dtype=np.int64)
    faded = np.asarray(panel.get("faded", np.zeros(len(points))), dtype=bool)
    colours = np.array([to_rgb(class_colour(k, per_task)) for k in range(int(max(regions.max(), labels.max())) + 1)])
    image = np.concatenate([colours[regions], np.full((*regions.shape, 1), 0.28)], axis=2)  # [h, w, 4]
    ax.imshow(image, origin="lower", extent=extent, aspect="auto", interpolation="nearest")
    for label in np.unique(labels):
        for dim in (True, False):
            at = points[(labels == label) & (faded == dim)]
            colour, marker = class_colour(label, per_task), class_marker(label, per_task)
            ax.scatter(at[:, 0], at[:, 1], s=16, color=colour, marker=marker, alpha=0.45 if dim else 1.0, linewidths=0)
    ax.set(xlim=extent[:2], ylim=extent[2:], xticks=(), yticks=())
    ax.spines[:].set_visible(False)
    ax.set_title(str(panel.get("title", "")))
