"""Ours beside the paper's, methods against each other, predicted against measured: the pictures of chapters 8 and 10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import ArrayLike, NDArray

from cmlib.errors import DataError, OptionError
from cmlib.plots.style import (
    FIRM,
    GREY,
    GROUND,
    INK,
    METHOD_LOOKS,
    STRONG,
    WEAK,
    WIDTH,
    Look,
    method_look,
    named_lines,
    small_panels,
    styled,
)

OURS, PAPER = STRONG, GREY
SHADES = (FIRM, WEAK, "none")  # of a pair: settled, settled only if it were the one pair tested, open
TEXT_ON = (GROUND, STRONG, INK)  # letters on each of them
PAIR_WORDS = ("settled", "only if it were the one pair tested", "open")
PARTS = {  # of an epoch's cost (`costs.epoch_parts`): the same colours in every figure, none of them a task's
    "current images": "#6b6b6b",
    "past images": "#0479ac",
    "support set": "#996852",
    "drift": "#d0003f",
    "past model": STRONG,
}
REST = tuple(look.colour for look in METHOD_LOOKS.values())  # for parts that have no colour of their own


def look_of(name: str, k: int) -> Look:
    """How a series is drawn: as the method that its name begins with (`CM`, `CM, TIL`), else as the k-th of those there are."""
    try:
        return method_look(name.split(",")[0].split(" ")[0])
    except OptionError:
        return list(METHOD_LOOKS.values())[k % len(METHOD_LOOKS)]


# -- ours and the paper's ------------------------------------------------------------------------------------------------


TEXTS = ("ours: mean ± sd, small dots: runs", "paper: mean ± sd")


def whiskers(
    panels: Mapping[str, Sequence[Mapping[str, Any]]],
    title: str = "",
    columns: int = 2,
    xlabel: str = "%",
    texts: tuple[str, str] = TEXTS,
) -> Figure:
    """Panels with a line a method: a dot at our mean with a whisker of one standard deviation, a diamond for the paper.

    A row is a mapping with "name", "ours" (a number a run, maybe empty: "not run yet"), maybe "stopped" (their number), "paper"
    and "paper_sd". The standard deviation is that of the population, as in the paper. Panels of one line of the figure share
    their methods' names when these are the same. texts: what the legend says of the dots and of the diamonds. DataError without
    a row.
    """
    if not panels or not all(panels.values()):
        raise DataError("whiskers needs at least one panel, and a row in each")
    columns = min(columns, len(panels))
    lines = [list(panels.items())[i : i + columns] for i in range(0, len(panels), columns)]
    heights = [max(len(rows) for _, rows in line) for line in lines]
    with styled():
        size = (WIDTH, 0.32 * sum(heights) + 0.85 * len(lines) + 0.5)
        fig = Figure(figsize=size, layout="constrained")
        axes = fig.subplots(len(lines), columns, squeeze=False, height_ratios=heights)
        for line, row_axes in zip(lines, axes, strict=True):
            shown: list[str] = []
            for (name, rows), ax in zip(line, row_axes, strict=False):
                names = [str(row["name"]) for row in rows]
                _whisker_panel(ax, name, rows, names if names != shown else [], xlabel)
                shown = names
            for ax in row_axes[len(line) :]:
                ax.set_axis_off()
        _whisker_legend(fig, any(row.get("paper") is not None for rows in panels.values() for row in rows), texts)
        if title:
            fig.suptitle(title, x=0.01, ha="left")
    return fig


def _whisker_panel(ax: Axes, name: str, rows: Sequence[Mapping[str, Any]], labels: Sequence[str], xlabel: str) -> None:
    for k, row in enumerate(rows):
        _whisker_row(ax, k, row)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    named_lines(ax, labels or [""] * len(rows), name, xlabel)


def _whisker_row(ax: Axes, k: int, row: Mapping[str, Any]) -> None:
    ours = np.asarray(list(row.get("ours") or []), dtype=np.float64)
    printed, spread = row.get("paper"), row.get("paper_sd") or 0.0
    colour = look_of(str(row["name"]), k).colour
    low = k + (0.16 if printed is not None else 0.0)  # ours a little below the paper's
    if printed is not None:
        ax.plot([printed - spread, printed + spread], [k - 0.16] * 2, color=PAPER, linewidth=1.5)
        ax.scatter([printed], [k - 0.16], marker="D", s=34, facecolor=GROUND, edgecolor=PAPER, linewidth=1.6, zorder=4)
    if len(ours):
        mean, sd = ours.mean(), ours.std()
        ax.plot([mean - sd, mean + sd], [low] * 2, color=colour, linewidth=2.2)
        ax.scatter(ours, np.full(len(ours), low), s=12, color=colour, alpha=0.45, linewidths=0, zorder=3)
        ax.scatter([mean], [low], s=38, color=colour, linewidths=0, zorder=4)
        return
    words = "stopped" if row.get("stopped") else "not run yet"
    ax.annotate(words, (0.03, low), xycoords=("axes fraction", "data"), va="center", fontsize=10, color=INK)


def _whisker_legend(fig: Figure, printed: bool, texts: tuple[str, str]) -> None:
    mine = {"color": OURS, "linewidth": 2.2}
    paper = {"color": PAPER, "linewidth": 1.5, "markerfacecolor": GROUND, "markeredgecolor": PAPER}
    marks = [Line2D([], [], marker="o", markersize=6, **mine), Line2D([], [], marker="D", markersize=6, **paper)]
    fig.legend(marks[: 1 + printed], texts[: 1 + printed], loc="outside lower left", ncols=2, columnspacing=1.0)


# -- every pair of methods -----------------------------------------------------------------------------------------------


def pairwise(names: Sequence[str], gaps: ArrayLike, verdicts: Sequence[Sequence[int | None]], title: str = "") -> Figure:
    """Every pair of methods: by how many points the row is ahead of the column, shaded by what a test says.

    gaps [M, M]: row minus column, NaN where unknown; verdicts [M][M]: 0 settled, 1 settled only if it were the one pair tested,
    2 open, None where unknown. Only pairs below the diagonal are drawn. DataError when the sizes differ.
    """
    values = np.asarray(gaps, dtype=np.float64)
    n = len(names)
    if values.shape != (n, n) or len(verdicts) != n or any(len(row) != n for row in verdicts):
        raise DataError(f"pairwise needs {n} x {n} gaps and verdicts for {n} names, got {list(values.shape)}")
    with small_panels(1, 1, 0.46 * n, 1.3, title) as (fig, (ax,)):
        known = np.array([[verdict is not None for verdict in row] for row in verdicts]) & np.isfinite(values)
        shades = np.where(known, np.array(verdicts, dtype=np.float64), PAIR_WORDS.index("open"))
        _pairs(ax, names, shades, np.vectorize(_gap)(np.where(known, values, np.nan)))
        marks = [Patch(facecolor=shade, edgecolor=INK, linewidth=0.8) for shade in SHADES]
        fig.legend(marks, PAIR_WORDS, loc="outside lower left", ncols=3, columnspacing=0.9, handletextpad=0.4)
    return fig


def _gap(points: float) -> str:
    """A gap in a cell: three digits do not fit a phone."""
    return f"{points:+.{1 if abs(points) < 9.95 else 0}f}" if np.isfinite(points) else "?"


def _pairs(ax: Axes, names: Sequence[str], shades: NDArray[np.float64], texts: NDArray[np.str_]) -> None:
    """The cells below the diagonal: shades [M, M], positions in `SHADES`; texts [M, M]."""
    import pandas
    import seaborn

    above = np.triu(np.ones_like(shades, dtype=bool))[1:, :-1]
    cells = pandas.DataFrame(shades, names, names).iloc[1:, :-1]
    seaborn.heatmap(
        cells, mask=above, annot=texts[1:, :-1], fmt="", annot_kws={"size": 11}, linewidths=0.8,
        cmap=ListedColormap(SHADES), vmin=0, vmax=len(SHADES) - 1, cbar=False, ax=ax,
    )  # fmt: skip
    ax.collections[0].set_edgecolor(["none" if hidden else INK for hidden in above.flat])
    for text, shade in zip(ax.texts, cells.to_numpy()[~above], strict=True):  # row by row, both
        text.set_color(TEXT_ON[int(shade)])
    ax.set_xticks(ax.get_xticks(), names[:-1], rotation=35, ha="right", rotation_mode="anchor")
    ax.tick_params(length=0)


# -- what is predicted, what is measured ----------------------------------------------------------------------------------


def diagonal(series: Mapping[str, tuple[ArrayLike, ArrayLike]], xlabel: str, ylabel: str, title: str = "") -> Figure:
    """Measured against predicted on logarithmic axes of one scale: what is predicted right lies on the diagonal.

    series: name -> (predicted [n], measured [n]), all above 0; one that ends in CIL has hollow marks. DataError without a point.
    """
    pairs = {name: (np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)) for name, (x, y) in series.items()}
    every = np.concatenate([np.concatenate(pair) for pair in pairs.values()]) if pairs else np.empty(0)
    if not len(every) or not (every > 0).all():
        raise DataError("diagonal needs points with coordinates above 0")
    low, high = every.min() / 1.25, every.max() * 1.25
    with small_panels(1, 1, 5.0, 0.25 * -(-len(pairs) // 3), title) as (fig, (ax,)):
        ax.plot([low, high], [low, high], color=INK, linewidth=1.2)
        ax.fill_between([low, high], [low / 1.25, high / 1.25], [low * 1.25, high * 1.25], color=INK, alpha=0.15, linewidth=0)
        for k, (name, (x, y)) in enumerate(pairs.items()):
            look = look_of(name, k)
            hollow = name.endswith("CIL")  # a method's marks in TIL are full
            edge = {"edgecolor": look.colour, "linewidths": 1.6 if hollow else 0}
            ax.scatter(
                x, y, s=46, marker=look.marker, alpha=0.85, label=name, facecolor="none" if hollow else look.colour, **edge
            )
        _log_axes(ax, low, high)
        ax.set(xlabel=xlabel, ylabel=ylabel)
        ax.grid()
        fig.legend(loc="outside lower left", ncols=3, handletextpad=0.1, columnspacing=1.0)
    return fig


def _log_axes(ax: Axes, low: float, high: float) -> None:
    marks = [mark for mark in (0.25, 0.5, 1, 2, 3, 5, 10, 20, 50, 100) if low <= mark <= high]
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(marks, [f"{mark:g}" for mark in marks])
        axis.set_ticks([], minor=True)


def cost_bars(panels: Mapping[str, Sequence[Mapping[str, float]]], title: str = "", columns: int = 3, ylabel: str = "") -> Figure:
    """Stacked bars, a panel a method, a bar a task: what an epoch costs, part by part. DataError without a panel."""
    if not panels:
        raise DataError("cost_bars needs at least one panel")
    parts = list(dict.fromkeys(part for bars in panels.values() for bar in bars for part in bar))
    parts = sorted(parts, key=lambda part: list(PARTS).index(part) if part in PARTS else len(PARTS))
    colours = {part: PARTS.get(part, REST[k % len(REST)]) for k, part in enumerate(parts)}
    columns = min(columns, len(panels))
    with small_panels(len(panels), columns, 1.9, 0.9, title, sharex=True, sharey=True) as (fig, axes):
        for k, (ax, (name, bars)) in enumerate(zip(axes, panels.items(), strict=True)):
            _stack(ax, bars, colours)
            ax.set_title(name)
            ax.set_xticks(range(1, len(bars) + 1))
            if k >= len(panels) - columns:
                ax.set_xlabel("task")
                ax.tick_params(labelbottom=True)
            if k % columns == 0 and ylabel:
                ax.set_ylabel(ylabel)
        marks = [Patch(facecolor=colours[part]) for part in parts]
        fig.legend(marks, parts, loc="outside lower left", ncols=3, columnspacing=1.0, handletextpad=0.4)
    return fig


def _stack(ax: Axes, bars: Sequence[Mapping[str, float]], colours: Mapping[str, str]) -> None:
    for task, bar in enumerate(bars, start=1):
        bottom = 0.0
        for part, colour in colours.items():
            if value := bar.get(part, 0.0):
                ax.bar(task, value, 0.72, bottom, color=colour)
                bottom += value
    ax.grid(axis="y")
