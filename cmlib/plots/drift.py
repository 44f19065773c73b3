"""Drift of an embedding space over tasks: as numbers (in all dimensions) and as arrows (in one plane for all pictures).

A training is a list of `Space`, one a moment, with the SAME images in the same order; its first is where arrows begin.
Several trainings, by name, are drawn in one plane, so that their pictures can be compared. Built in chapter 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from cmlib.errors import DataError
from cmlib.plots import figures, geometry, player
from cmlib.plots.geometry import Array, Projection, Space
from cmlib.plots.style import INK, class_colour
from cmlib.plots.svg import svg_scatter, to_units

if TYPE_CHECKING:
    from cmlib.reproduction.snapshots import Snapshot

Trainings = Mapping[str, Sequence[Space]]
SIZE = 360  # units of a player's picture


def spaces_of(taken: Iterable[Snapshot]) -> list[Space]:
    """The snapshots of one training as spaces to draw, titled by their moment."""
    return [Space.of(s.points, s.labels, s.centroids, s.centroid_labels, f"after task {s.after}") for s in taken]


# -- numbers, in all dimensions -------------------------------------------------------------------------------------------


def drift_by_class(first: ArrayLike, now: ArrayLike, labels: ArrayLike) -> Array:
    """Mean distance of each class's images from their first places. [n, E], [n, E], [n] -> [K], labels ascending

    The per-image drift of eq. 4, measured on images of the old task itself. DataError for shapes that do not fit.

    Built in chapter 6.
    """
    before, after, y = _pair(first, now, labels)
    distance = np.sqrt(((after - before) ** 2).sum(axis=1))  # [n]
    return np.array([distance[y == label].mean() for label in np.unique(y)])


def shift_by_class(first: ArrayLike, now: ArrayLike, labels: ArrayLike) -> Array:
    """How far each class's mean has moved. [n, E], [n, E], [n] -> [K]; never more than `drift_by_class`."""
    before, after, y = _pair(first, now, labels)
    moves = np.array([(after - before)[y == label].mean(axis=0) for label in np.unique(y)])  # [K, E]
    return np.sqrt((moves**2).sum(axis=1))


def _pair(first: ArrayLike, now: ArrayLike, labels: ArrayLike) -> tuple[Array, Array, Any]:
    before, after, y = np.asarray(first, dtype=np.float64), np.asarray(now, dtype=np.float64), np.asarray(labels)
    if before.ndim != 2 or before.shape != after.shape or y.shape != (len(before),):
        raise DataError(
            f"drift needs the same images twice, [n, E], [n, E] and labels [n]; "
            f"got {list(before.shape)}, {list(after.shape)}, {list(y.shape)}"
        )
    return before, after, y


# -- one plane for several trainings --------------------------------------------------------------------------------------


def together(trainings: Trainings) -> Projection:
    """Every space of several trainings, one training after the other, in the basis of their last spaces pooled."""
    spaces = [space for moments in trainings.values() for space in moments]
    ends = np.cumsum([len(moments) for moments in trainings.values()])
    return geometry.project(spaces, of=[int(end) - 1 for end in ends])


def _caption(view: Projection, trainings: int) -> str:
    if trainings == 1:
        return view.caption()
    return (
        f"{view.cells()} The plane is one for all pictures, that of the two principal components of the {trainings} last "
        f"pictures together; it holds {view.explained:.0f} % of their variance."
    )


# -- static ---------------------------------------------------------------------------------------------------------------


def drift_figure(
    trainings: Trainings | Sequence[Space],
    classes_per_task: int = 2,
    class_names: Sequence[str] | None = None,
    title: str = "",
    columns: int | None = None,
) -> Figure:
    """Small multiples, a row of pictures a training: cells, images, thin lines from their first places, arrows of the means.

    `columns` breaks the pictures of a single training into several rows. The caption in `fig.cm_caption` says what the plane
    leaves out.
    """
    groups = _groups(trainings)
    named = ((name, space) for name, moments in groups.items() for space in moments)
    frames = [replace(space, title=f"{name},\n{space.title}") if name else space for name, space in named]
    starts = [moments[0] for moments in groups.values() for _ in moments]
    view = together(groups)
    per_row = columns or max(len(moments) for moments in groups.values())
    fig = figures.embedding_space(frames, classes_per_task, class_names, title, per_row, view)
    for ax, frame, start, points in zip(fig.axes, frames, starts, view.points, strict=False):
        if frame is not start:
            _arrows(ax, (start.points - view.mean) @ view.basis, points, frame.labels, classes_per_task)
    fig.cm_caption = f"Arrows: from where a class's mean was in the first picture. {_caption(view, len(groups))}"
    return fig


def _groups(trainings: Any) -> dict[str, list[Space]]:
    groups = dict(trainings) if isinstance(trainings, Mapping) else {"": trainings}
    spaces = {str(name): [figures.as_space(moment) for moment in moments] for name, moments in groups.items()}
    if not spaces or not all(spaces.values()):
        raise DataError("there is no space to draw")
    for moments in spaces.values():
        for moment in moments:
            _pair(moments[0].points, moment.points, moments[0].labels)
            if not np.array_equal(moments[0].labels, moment.labels):
                raise DataError("drift needs the same images at every moment; their labels differ")
    return spaces


def _arrows(ax: Axes, first: Array, now: Array, labels: Any, per_task: int) -> None:
    """Thin lines for the images, one arrow a class for the mean; first, now [n, 2]."""
    for label in np.unique(labels):
        rows, colour = labels == label, class_colour(label, per_task)
        steps = np.stack([first[rows], now[rows]])  # [2, n, 2]
        ax.plot(steps[..., 0], steps[..., 1], color=colour, alpha=0.35, linewidth=0.7, zorder=1)
        start, end = first[rows].mean(axis=0), now[rows].mean(axis=0)
        look = {"arrowstyle": "-|>,head_width=.3,head_length=.5", "color": INK, "linewidth": 2.2, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", end, start, arrowprops=look, zorder=5)


# -- moving ---------------------------------------------------------------------------------------------------------------


def drift_player(
    trainings: Trainings,
    *,
    label: str,
    class_names: Sequence[str] | None = None,
    classes_per_task: int = 2,
    controls: Mapping[str, Any] | None = None,
) -> player.Player:
    """The trainings as films one toggles between, all in one plane; arrows lead from the first picture to the present one."""
    groups = _groups(trainings)
    view = together(groups)
    pictures: dict[str, list[str]] = {}
    captions: dict[str, list[str]] = {}
    k = 0
    for name, moments in groups.items():
        pictures[name], captions[name] = [], []
        first = view.points[k]
        for space in moments:
            drawing = svg_scatter(
                view.points[k], space.labels, view.centroids[k], space.classes,
                extent=view.extent, names=class_names, classes_per_task=classes_per_task, size=SIZE,
            )  # fmt: skip
            pictures[name].append(_with_arrows(drawing, first, view.points[k], space.labels, view.extent, classes_per_task))
            captions[name].append(_said(space, moments[0], view.disagreement[k]))
            k += 1
    return player.player(pictures, controls, label=label, captions=captions, alt=captions)


def _said(space: Space, first: Space, wrong: float) -> str:
    """A frame's caption and alternative text: drift of each class as a number."""
    title = f"{space.title[:1].upper()}{space.title[1:]}" or "Now"
    if space is first:
        return f"{title}: where the arrows begin. Cells drawn are wrong for {wrong:.1f} % of the points."
    moved = drift_by_class(first.points, space.points, space.labels)
    parts = " and ".join(f"{value:.1f}" for value in moved)
    return (
        f"{title}: the classes' images are {parts} away from their first places, on average, in {space.points.shape[1]} "
        f"dimensions. Cells drawn are wrong for {wrong:.1f} % of the points."
    )


def _with_arrows(drawing: str, first: Array, now: Array, labels: Any, extent: Any, per_task: int) -> str:
    """The SVG text with thin lines and an arrow a class, under the centroids."""
    if np.array_equal(first, now):
        return drawing
    a, b = (to_units(points, extent, SIZE) for points in (first, now))
    parts = []
    for label in np.unique(labels):
        rows, colour = labels == label, class_colour(int(label), per_task)
        lines = "".join(f"M{_xy(p)}L{_xy(q)}" for p, q in zip(a[rows], b[rows], strict=True))
        parts.append(f'<path d="{lines}" fill="none" stroke="{colour}" stroke-opacity=".35"/>')
        parts.append(_arrow(a[rows].mean(axis=0), b[rows].mean(axis=0)))
    return drawing.removesuffix("</svg>") + "".join(parts) + "</svg>"


def _xy(at: Array) -> str:
    return f"{at[0]:.1f} {at[1]:.1f}"


def _arrow(start: Array, end: Array) -> str:
    """A thick line with a head of two strokes; nothing for a move that cannot be seen."""
    step = end - start
    length = float(np.hypot(*step))
    if length < 1:
        return ""
    back, side = step / length * min(11.0, length / 2), np.array([-step[1], step[0]]) / length * 5
    head = f"M{_xy(end - back + side)}L{_xy(end)}L{_xy(end - back - side)}"
    return f'<path d="M{_xy(start)}L{_xy(end)}{head}" fill="none" stroke="currentColor" stroke-width="2.6"/>'


# -- where the plane is wrong ---------------------------------------------------------------------------------------------


def cells_player(
    trainings: Trainings,
    *,
    label: str,
    class_names: Sequence[str] | None = None,
    classes_per_task: int = 2,
    controls: Mapping[str, Any] | None = None,
    place: str = Projection.place,
) -> player.Player:
    """Spaces that gain classes, each training in the plane of its last picture.

    A ring marks every image drawn in a cell that is not the one of its true nearest centroid; a dashed line leads from where a
    centroid was one picture earlier. place: what a class's place is called.
    """
    pictures: dict[str, list[str]] = {}
    captions: dict[str, list[str]] = {}
    for name, moments in trainings.items():
        spaces = [figures.as_space(moment) for moment in moments]
        view = geometry.project(spaces, place=place)
        pictures[name], captions[name] = [], []
        for k, space in enumerate(spaces):
            wrong = misdrawn(space, view, k)
            drawing = svg_scatter(
                view.points[k], space.labels, view.centroids[k], space.classes, extent=view.extent,
                trails=geometry.earlier(spaces, view, k), names=class_names, classes_per_task=classes_per_task, size=SIZE,
            )  # fmt: skip
            pictures[name].append(drawing.removesuffix("</svg>") + _rings(view.points[k][wrong], view.extent) + "</svg>")
            captions[name].append(_cells_said(space, view, int(wrong.sum())))
    return player.player(pictures, controls, label=label, captions=captions, alt=captions)


def misdrawn(space: Space, view: Projection, k: int) -> Any:
    """Which images of moment k are drawn in another cell than that of their true nearest centroid. -> bool [n]"""
    true = geometry.nearest_centroid(space.points, space.centroids)
    return geometry.nearest_centroid(view.points[k], view.centroids[k]) != true


def _rings(points: Array, extent: Any) -> str:
    rings = "".join(f"M{_xy(at - [6, 0])}a6 6 0 1 0 12 0a6 6 0 1 0-12 0" for at in to_units(points, extent, SIZE))
    return f'<path d="{rings}" fill="none" stroke="currentColor" stroke-width="1.6"/>' if rings else ""


def _cells_said(space: Space, view: Projection, wrong: int) -> str:
    own = space.classes[geometry.nearest_centroid(space.points, space.centroids)] == space.labels
    title = f"{space.title[:1].upper()}{space.title[1:]}" or "Now"
    return (
        f"{title}: {len(space.classes)} classes, {100 * own.mean():.0f} % of the images nearest to their own {view.place}. The "
        f"plane draws {wrong} of {len(own)} images (ringed) in a wrong cell; it holds {view.explained:.0f} % of the last "
        "picture's variance."
    )
