"""Small SVG pictures for players: rounded coordinates, a few bytes a point, no identifiers, no outside references."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cmlib.errors import DataError
from cmlib.plots.geometry import Array, voronoi_cells
from cmlib.plots.style import accuracy_colours, class_colour, class_marker

Extent = tuple[float, float, float, float]


def svg_scatter(
    points: ArrayLike,
    labels: ArrayLike,
    centroids: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    *,
    extent: Extent | None = None,
    cells: bool = True,
    trails: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    classes_per_task: int = 2,
    size: int = 360,
) -> str:
    """Points [n, 2] by class, centroids [K, 2] with their Voronoi cells, as an SVG of `size` x `size` units.

    `classes` [K] are the centroids' labels (0..K-1 when left out), `names` is indexed by label and written beside the
    centroids, `trails` [K, 2] are the centroids' earlier places (a line leads from there; nan draws none).
    """
    p = _plane(points, "points")
    y = np.asarray(labels, dtype=np.int64)
    c = _plane(centroids if centroids is not None else np.zeros((0, 2)), "centroids")
    k = np.arange(len(c)) if classes is None else np.asarray(classes, dtype=np.int64)
    if len(y) != len(p) or len(k) != len(c):
        raise DataError(f"{len(p)} points need as many labels, {len(c)} centroids as many classes")
    box = extent or _box(np.concatenate([p, c]))
    parts = [_cells(c, k, box, size, classes_per_task)] if cells and len(c) else []
    parts += [_dots(to_units(p[y == label], box, size), int(label), classes_per_task) for label in np.unique(y)]
    if trails is not None:
        parts.append(_trails(to_units(np.asarray(trails, dtype=np.float64), box, size), to_units(c, box, size)))
    places = to_units(c, box, size)
    parts += [_cross(at, int(n), classes_per_task) for at, n in zip(places, k, strict=True)]
    parts += _labels(places, [html.escape(str(names[n])) for n in k], size) if names is not None else []
    return f'<svg viewBox="0 0 {size} {size}">{"".join(parts)}</svg>'


def _plane(values: ArrayLike, name: str) -> Array:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] != 2:
        raise DataError(f"{name} must have shape [n, 2], got {list(matrix.shape)}")
    return matrix


def _box(points: Array) -> Extent:
    low, high = points.min(axis=0), points.max(axis=0)
    pad = 0.06 * np.maximum(high - low, 1e-9)
    return float(low[0] - pad[0]), float(high[0] + pad[0]), float(low[1] - pad[1]), float(high[1] + pad[1])


def to_units(points: Array, extent: Extent, size: int) -> Array:
    """Data [n, 2] to SVG units: x to the right, y downward."""
    x0, x1, y0, y1 = extent
    placed: Array = (points - [x0, y1]) / [x1 - x0, y0 - y1] * size
    return placed


def number(value: float) -> str:
    """A coordinate with one decimal, without a zero there."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def path(points: Array) -> str:
    """The data of a line through points [n, 2], without its first letter."""
    return "L".join(f"{number(x)} {number(y)}" for x, y in points)


def _cells(centroids: Array, classes: NDArray[np.int64], extent: Extent, size: int, per_task: int) -> str:
    out = []
    for label, cell in zip(classes, voronoi_cells(centroids, extent), strict=True):
        if len(cell):
            colour = class_colour(int(label), per_task)
            out.append(f'<path class="cm-v" fill="{colour}" d="M{path(to_units(cell, extent, size))}Z"/>')
    return "".join(out)


def _dots(at: Array, label: int, per_task: int) -> str:
    """One path for all points of a class: lines of no length, whose round or square caps are the dots."""
    kind = "cm-p" if class_marker(label, per_task) == "o" else "cm-q"
    moves = "".join(f"M{number(x)} {number(y)}h0" for x, y in at)
    return f'<path class="{kind}" stroke="{class_colour(label, per_task)}" d="{moves}"/>'


def _trails(before: Array, now: Array) -> str:
    lines = [f"M{path(np.stack(pair))}" for pair in zip(before, now, strict=True) if np.isfinite(pair).all()]
    return f'<path class="cm-l" d="{"".join(lines)}"/>' if lines else ""


def _cross(at: Array, label: int, per_task: int) -> str:
    x, y = number(float(at[0])), number(float(at[1]))
    mark = f"M{x} {y}m-6 0h12m-6-6v12"
    colour = class_colour(label, per_task)
    return f'<path class="cm-h" d="{mark}"/><path class="cm-c" stroke="{colour}" d="{mark}"/>'


def _labels(crosses: Array, names: Sequence[str], size: int) -> list[str]:
    """Names beside crosses [K, 2]: each in the first corner where no other cross or name is near, or else the freest one."""
    taken, texts = crosses.tolist(), []
    for at, name in zip(crosses, names, strict=True):
        half = 4.5 * len(name)  # of a name's width
        corners = [np.array([x * (9 + half), y]) for y in (-12, 12) for x in (1, -1)]
        inside = [step for step in corners if half <= at[0] + step[0] <= size - half and 12 <= at[1] + step[1] <= size - 12]
        corners = inside or corners
        others = np.array([other for other in taken if other != at.tolist()] or [[np.inf, np.inf]])
        free = [float(np.hypot(*(others - (at + step)).T).min()) for step in corners]
        best = next((k for k, room in enumerate(free) if room > 9 + half), int(np.argmax(free)))
        x, y = at + corners[best]
        taken.append([x, y])
        texts.append(f'<text class="cm-t" text-anchor="middle" x="{number(float(x))}" y="{number(float(y) + 5)}">{name}</text>')
    return texts


def square(R: ArrayLike) -> Array:
    """An accuracy matrix as floats [N, N]; DataError for another shape."""
    r = np.asarray(R, dtype=np.float64)
    if r.ndim != 2 or r.shape[0] != r.shape[1]:
        raise DataError(f"an accuracy matrix is square, got shape {list(r.shape)}")
    return r


def svg_matrix(R: ArrayLike, upto: int | None = None) -> str:
    """The accuracy matrix R [N, N] in percent, rows 0..`upto` filled (all when left out), the newest row outlined."""
    r = square(R)
    n = len(r)
    last = n - 1 if upto is None else upto
    side, left, top = 300 / n, 52, 8
    parts = [_matrix_cell(r[i, j], i, j, side, left, top, i <= last) for i in range(n) for j in range(i + 1)]
    middle = [(k + 0.5) * side for k in range(n)]
    parts += [f'<text class="cm-n" x="{left + m:.0f}" y="326">{k + 1}</text>' for k, m in enumerate(middle)]
    parts += [f'<text class="cm-n" x="40" y="{top + m + 5:.0f}">{k + 1}</text>' for k, m in enumerate(middle)]
    parts.append(f'<text class="cm-n" x="{left + 150}" y="348">accuracy on task</text>')
    parts.append('<text class="cm-n" transform="translate(18 158)rotate(-90)">after task</text>')
    width = side * (last + 1)
    parts.append(f'<rect class="cm-o" x="{left}" y="{top + last * side:.1f}" width="{width:.1f}" height="{side:.1f}"/>')
    return f'<svg viewBox="0 0 360 360">{"".join(parts)}</svg>'


def _matrix_cell(value: float, i: int, j: int, side: float, left: int, top: int, filled: bool) -> str:
    x, y = left + j * side, top + i * side
    place = f'x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}"'
    if not filled or not np.isfinite(value):
        return f'<rect class="cm-e" {place}/>'
    fill, ink = accuracy_colours(float(value))
    at = f'x="{x + side / 2:.1f}" y="{y + side / 2 + 5:.1f}"'
    return f'<rect fill="{fill}" {place}/><text class="cm-n" style="fill:{ink}" {at}>{value:.0f}</text>'
