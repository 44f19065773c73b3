"""Looking at E-dimensional spaces on paper: one PCA basis, Voronoi cells, and how far the picture can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cmlib.errors import DataError

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Space:
    """One moment of an embedding space: points with their labels, centroids with theirs."""

    points: Array  # [n, E]
    labels: NDArray[np.int64]  # [n]
    centroids: Array  # [K, E]
    classes: NDArray[np.int64]  # [K], the label of each centroid
    title: str = ""

    @classmethod
    def of(cls, points: Any, labels: Any, centroids: Any, classes: Any = None, title: str = "") -> Space:
        """A `Space` from arrays or CPU tensors; `classes` defaults to 0..K-1. Wrong shapes raise `DataError`."""
        p, c = _matrix(points, "points"), _matrix(centroids, "centroids")
        y = np.asarray(labels, dtype=np.int64)
        k = np.arange(len(c)) if classes is None else np.asarray(classes, dtype=np.int64)
        if y.shape != (len(p),) or k.shape != (len(c),) or p.shape[1] != c.shape[1]:
            raise DataError(
                f"a space needs points [n, E], labels [n], centroids [K, E], classes [K]; "
                f"got {list(p.shape)}, {list(y.shape)}, {list(c.shape)}, {list(k.shape)}"
            )
        return cls(p, y, c, k, title)


@dataclass(frozen=True, eq=False)
class Projection:
    """Several moments of a space seen in ONE basis, that of the last moment."""

    mean: Array  # [E]
    basis: Array  # [E, 2], orthonormal columns
    explained: float  # share of the last moment's variance that the picture shows, in percent
    points: tuple[Array, ...]  # one [n, 2] a moment
    centroids: tuple[Array, ...]  # one [K, 2] a moment
    disagreement: tuple[float, ...]  # percent of points a moment
    extent: tuple[float, float, float, float]  # x0, x1, y0, y1 around everything
    right: tuple[float, ...] = ()  # percent of points nearest to the centroid of their class, in all dimensions, a moment
    place: str = "centroid"  # what a page calls a class's place: in a merged space it is an anchor, in CoPE's a prototype

    def caption(self) -> str:
        """What a reader must know before trusting the picture."""
        return (
            f"{self.cells()} The plane is that of the last picture's two principal components, for all pictures; it holds "
            f"{self.explained:.0f} % of that picture's variance."
        )

    def cells(self) -> str:
        """How many points lie nearest to their own centroid, and for how many the drawing says something else."""
        own = f"{_listed(self.right, 0)} of the points are nearest to the {self.place} of their class. " if self.right else ""
        return (
            f"{own}The cells drawn disagree with the true nearest {self.place} in {self.dimensions} dimensions "
            f"for {_listed(self.disagreement, 1)} of them."
        )

    @property
    def dimensions(self) -> int:
        return int(self.basis.shape[0])


def _listed(rates: Sequence[float], digits: int) -> str:
    """Percentages, one a picture; of more than four, which nobody reads, the lowest and the highest."""
    texts = [f"{rate:.{digits}f} %" for rate in rates]
    if len(texts) > 4 and len(set(texts)) > 1:
        return f"{min(rates):.{digits}f} to {max(rates):.{digits}f} %"
    return texts[0] if len(set(texts)) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _matrix(values: Any, name: str) -> Array:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise DataError(f"{name} must be a matrix of finite numbers, got shape {list(matrix.shape)}")
    return matrix


def pca(points: ArrayLike) -> tuple[Array, Array, float]:
    """Mean [E], first two principal axes [E, 2] and the percentage of variance they hold.

    The sign of each axis is fixed (its largest entry is positive), so the picture never flips by chance.

    Built in chapter 6.
    """
    x = _matrix(points, "points")
    mean = x.mean(axis=0)
    _, singular, axes = np.linalg.svd(x - mean, full_matrices=False)
    basis = np.zeros((x.shape[1], 2))
    kept = min(2, len(axes))
    basis[:, :kept] = axes[:kept].T
    largest = np.abs(basis).argmax(axis=0)
    signs = np.sign(basis[largest, [0, 1]])
    total = float((singular**2).sum())
    explained = 100.0 * float((singular[:2] ** 2).sum()) / total if total > 0 else 100.0
    return mean, basis * np.where(signs == 0, 1.0, signs), explained


def nearest_centroid(points: Array, centroids: Array) -> NDArray[np.int64]:
    """Index of the nearest centroid [n] by Euclidean distance.

    Built in chapter 6.
    """
    squared = ((points[:, None, :] - centroids[None, :, :]) ** 2).sum(axis=2)  # [n, K]
    return squared.argmin(axis=1)


def disagreement(points: ArrayLike, centroids: ArrayLike, basis: ArrayLike) -> float:
    """Percent of points whose nearest centroid in the plane of `basis` is not the nearest one in all dimensions.

    Built in chapter 6.
    """
    p, c, b = _matrix(points, "points"), _matrix(centroids, "centroids"), _matrix(basis, "basis")
    return 100.0 * float((nearest_centroid(p @ b, c @ b) != nearest_centroid(p, c)).mean())


def project(
    spaces: Sequence[Space], margin: float = 0.06, of: Sequence[int] = (-1,), place: str = Projection.place
) -> Projection:
    """All spaces in the PCA basis of the last one, or of several together (`of`: their positions), those being pooled."""
    if not spaces or not of:
        raise DataError("there is no space to draw")
    mean, basis, explained = pca(np.concatenate([spaces[k].points for k in of]))
    points = tuple((s.points - mean) @ basis for s in spaces)
    centroids = tuple((s.centroids - mean) @ basis for s in spaces)
    everything = np.concatenate([*points, *centroids])
    low, high = everything.min(axis=0), everything.max(axis=0)
    pad = margin * np.maximum(high - low, 1e-9)
    (x0, y0), (x1, y1) = low - pad, high + pad
    rates = tuple(disagreement(s.points - mean, s.centroids - mean, basis) for s in spaces)
    right = tuple(100.0 * float((s.classes[nearest_centroid(s.points, s.centroids)] == s.labels).mean()) for s in spaces)
    extent = (float(x0), float(x1), float(y0), float(y1))
    return Projection(mean, basis, explained, points, centroids, rates, extent, right, place)


def earlier(spaces: Sequence[Space], view: Projection, k: int) -> Array | None:
    """Where each centroid of moment k was a moment before [K, 2]; nan for classes that are new, None at the first moment."""
    if not k:
        return None
    old = dict(zip(spaces[k - 1].classes.tolist(), view.centroids[k - 1], strict=True))
    return np.array([old.get(label, np.full(2, np.nan)) for label in spaces[k].classes.tolist()])


def voronoi_cells(centroids: ArrayLike, extent: tuple[float, float, float, float]) -> list[Array]:
    """The Voronoi cell of each centroid [K, 2] inside the box x0, x1, y0, y1: a polygon [m, 2], maybe empty."""
    c = _matrix(centroids, "centroids")
    x0, x1, y0, y1 = extent
    box = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], dtype=np.float64)
    return [_cell(k, c, box) for k in range(len(c))]


def _cell(k: int, centroids: Array, box: Array) -> Array:
    polygon = box
    for j, other in enumerate(centroids):
        if j != k and len(polygon):
            normal = other - centroids[k]
            polygon = _clip(polygon, normal, float(normal @ (other + centroids[k])) / 2)
    return polygon


def _clip(polygon: Array, normal: Array, offset: float) -> Array:
    """The part of a convex polygon where ``normal . x <= offset`` (Sutherland and Hodgman)."""
    side = polygon @ normal - offset
    kept: list[Array] = []
    for a, b, sa, sb in zip(polygon, np.roll(polygon, -1, axis=0), side, np.roll(side, -1), strict=True):
        if sa <= 0:
            kept.append(a)
        if (sa < 0 < sb) or (sb < 0 < sa):
            kept.append(a + (b - a) * sa / (sa - sb))
    return np.array(kept).reshape(-1, 2)
