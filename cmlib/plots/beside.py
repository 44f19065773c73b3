"""The pictures of the report: a printed number and ours joined by a line, effects with their spread, shares of verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cmlib.errors import DataError
from cmlib.plots.style import GREY, GROUND, INK, STRONG, named_lines, small_panels

NARROW = 0.12  # a share of a bar below this has no number in it


def dumbbell(panels: Mapping[str, Sequence[Mapping[str, Any]]], title: str = "", xlabel: str = "%", log: bool = False) -> Figure:
    """Panels with a line a number: a diamond for the printed mean with a band of two standard deviations, a dot for ours.

    A row is a mapping with "name", "paper", "paper_sd" (maybe None), "ours", and "inside": whether ours lies in the band; None
    where nothing may be said. The line that joins the two is thick where ours is outside. DataError without a row.
    """
    if not panels or not all(panels.values()):
        raise DataError("dumbbell needs at least one panel, and a row in each")
    most = max(map(len, panels.values()))
    with small_panels(len(panels), len(panels), 0.36 * most, 1.5, title) as (fig, axes):
        shown: list[str] = []
        for ax, (name, rows) in zip(axes, panels.items(), strict=True):
            for k, row in enumerate(rows):
                _pair(ax, k, row)
            names = [str(row["name"]) for row in rows]
            _lines(ax, names if names != shown else [""] * len(names), name, xlabel)
            shown = names
            if log:
                _log(ax, [value for row in rows for value in (row["paper"], row["ours"])])
        fig.legend(*_legend(), loc="outside lower left", ncols=2, columnspacing=1.0)
    return fig


def _pair(ax: Axes, k: int, row: Mapping[str, Any]) -> None:
    mean, ours, reach = float(row["paper"]), float(row["ours"]), 2 * float(row.get("paper_sd") or 0.0)
    if reach:
        ax.plot([mean - reach, mean + reach], [k, k], color=GREY, linewidth=9, alpha=0.3, solid_capstyle="butt")
    outside = row.get("inside") is False
    ax.plot([mean, ours], [k, k], color=STRONG, linewidth=2.6 if outside else 1.0)
    ax.scatter([mean], [k], marker="D", s=34, facecolor=GROUND, edgecolor=GREY, linewidth=1.6, zorder=4)
    ax.scatter([ours], [k], s=42, color=STRONG, linewidths=0, zorder=5)


def _lines(ax: Axes, names: Sequence[str], title: str, xlabel: str) -> None:
    named_lines(ax, names, title, xlabel)
    ax.set_ylim(len(names) - 0.4, -0.6)


def _log(ax: Axes, values: Sequence[float]) -> None:
    low, high = min(values) / 1.2, max(values) * 1.2
    marks = [mark for mark in (0.25, 0.5, 1, 2, 5, 10, 20, 50) if low <= mark <= high]
    if len(marks) < 3:  # a narrow range
        marks = [mark for mark in (0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2) if low <= mark <= high]
    ax.set(xscale="log", xlim=(low, high))
    ax.xaxis.set_ticks(marks, [f"{mark:g}" for mark in marks])
    ax.xaxis.set_ticks([], minor=True)


def _legend() -> tuple[list[Line2D], list[str]]:
    band = Line2D([], [], color=GREY, linewidth=9, alpha=0.3)
    paper = Line2D([], [], marker="D", linestyle="", markerfacecolor=GROUND, markeredgecolor=GREY, markersize=6)
    ours = Line2D([], [], marker="o", linestyle="", color=STRONG, markersize=6)
    thick = Line2D([], [], color=STRONG, linewidth=2.6)
    return [paper, band, ours, thick], ["printed mean", "± 2 printed sd", "ours", "outside"]


def effect_dots(rows: Sequence[Mapping[str, Any]], title: str = "", xlabel: str = "accuracy, points") -> Figure:
    """A line an effect: its mean with a whisker of one standard deviation, a small dot a seed. DataError without a row.

    A row is a mapping with "name" and "values", a number a seed.
    """
    if not rows or not all(len(row["values"]) for row in rows):
        raise DataError("effect_dots needs at least one row, and a value in each")
    with small_panels(1, 1, 0.48 * len(rows), 1.2, title) as (fig, (ax,)):
        for k, row in enumerate(rows):
            ax.text(0, k - 0.44, str(row["name"]), transform=ax.get_yaxis_transform(), va="center", fontsize=11)
            values = [float(value) for value in row["values"]]
            mean = sum(values) / len(values)
            sd = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
            ax.plot([mean - sd, mean + sd], [k, k], color=STRONG, linewidth=2.2)
            ax.scatter(values, [k] * len(values), s=12, color=STRONG, alpha=0.45, linewidths=0, zorder=3)
            ax.scatter([mean], [k], s=38, color=STRONG, linewidths=0, zorder=4)
        ax.axvline(0, color=INK, linewidth=1)
        _lines(ax, [""] * len(rows), "", xlabel)
        ax.set_ylim(len(rows) - 0.5, -0.9)
    return fig


def verdict_bars(rows: Mapping[str, Mapping[str, int]], title: str = "", xlabel: str = "") -> Figure:
    """A stacked bar a row: how many of each kind, three kinds at most (full, half, empty). DataError without a row."""
    kinds = list(dict.fromkeys(kind for row in rows.values() for kind in row))
    if not rows or not 0 < len(kinds) <= 3:
        raise DataError(f"verdict_bars needs rows of one to three kinds, got {len(rows)} rows and {len(kinds)} kinds")
    most = max(sum(row.values()) for row in rows.values()) or 1
    with small_panels(1, 1, 0.46 * len(rows), 1.5, title) as (fig, (ax,)):
        for k, row in enumerate(rows.values()):
            left = 0
            for kind, shade, ink in zip(kinds, (STRONG, GREY, GROUND), (GROUND, GROUND, INK), strict=False):
                count = row.get(kind, 0)
                ax.barh(k, count, 0.72, left, facecolor=shade, edgecolor=INK, linewidth=0.8)
                if count / most >= NARROW / 3:
                    ax.text(left + count / 2, k, f"{count}", ha="center", va="center", fontsize=11, color=ink)
                left += count
        _lines(ax, list(rows), "", xlabel)
        ax.grid(visible=False)
        marks = [Line2D([], [], marker="s", linestyle="", markersize=11, markerfacecolor=shade, markeredgecolor=INK)
                 for shade in (STRONG, GREY, GROUND)]  # fmt: skip
        fig.legend(marks[: len(kinds)], kinds, loc="outside lower left", ncols=3, columnspacing=1.0, handletextpad=0.1)
    return fig
