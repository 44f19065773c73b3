"""A figure laid out anew for a phone: narrower, its panels below each other, long titles on two lines, no small letters.

`narrowed` changes a figure for the length of a `with` block and puts everything back afterwards.
"""

# ruff: noqa: SLF001
# matplotlib has no public way to a figure's title, to the three titles of axes, and to a legend's layout after its making.

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from matplotlib.gridspec import GridSpec
from matplotlib.text import Text

WIDTH = 4.2  # inches; 390 CSS pixels of a phone leave 358 for it, so that a point is 1.18 pixels
FITS = 4.6  # a figure no wider than this needs no second drawing
LEAST = 10.0  # points: letters of a figure on a phone have at least 11.8 pixels
TINY = 1.3  # inches: smaller panels in several rows, such as rows of images, keep their rows
GAP = 0.16  # inches between rows of panels whose shape is fixed
SHRINKS = 0.93  # a panel may lose so much of its width before it moves below its neighbour

Undo = list[Callable[[], Any]]


@contextmanager
def narrowed(fig: Any, pen: Any) -> Iterator[None]:
    """The figure as a phone shows it; pen: what measures texts, at 72 dots an inch."""
    undo: Undo = []
    try:
        _relayout(fig, pen, undo)
        yield
    finally:
        for step in reversed(undo):
            step()


def _relayout(fig: Any, pen: Any, undo: Undo) -> None:
    width, height = (float(v) for v in fig.get_size_inches())
    undo.append(lambda: fig.set_size_inches(width, height))
    for text in fig.findobj(Text):
        if 0 < text.get_fontsize() < LEAST:
            _set(text, "fontsize", LEAST, undo)
    grid = _grid(fig)
    extra = _extra(fig, pen)
    panels, rows, columns = grid if grid else ([], 1, 1)
    fit = max(1, min(columns, int(WIDTH / (width / columns * SHRINKS))))
    across = math.ceil(columns / math.ceil(columns / fit)) if rows == 1 or width / columns >= TINY else columns
    scale = (WIDTH / across) / (width / columns)
    shapes = any(ax.get_aspect() != "auto" for ax in fig.axes)
    if grid and across < columns:
        down = math.ceil(len(panels) / across)
        _stack(fig, panels, columns, down, across, undo)
    else:
        down = rows
    body = (height - extra) / rows * down * (scale if shapes else max(0.9, min(1.0, scale)))
    fig.set_size_inches(WIDTH, body + extra)
    _wrap_titles(fig, pen, WIDTH * 72, WIDTH * 72 / across, undo)
    _narrow_legends(fig, pen, undo)
    lines = max((ax.get_title(loc="left").count("\n") for ax in fig.axes), default=0) * down
    whole = body + _extra(fig, pen) + 0.2 * lines
    fig.set_size_inches(WIDTH, whole)
    if shapes:
        fig.set_size_inches(WIDTH, whole - _slack(fig, pen))


def _set(artist: Any, name: str, value: Any, undo: Undo) -> None:
    before = getattr(artist, f"get_{name}")()
    undo.append(lambda: getattr(artist, f"set_{name}")(before))
    getattr(artist, f"set_{name}")(value)


def _grid(fig: Any) -> tuple[list[Any], int, int] | None:
    """The panels of a figure in reading order, each a list of axes on one cell of one grid; None for another layout."""
    cells: dict[tuple[int, int], list[Any]] = {}
    grid = None
    for ax in fig.axes:
        place = ax.get_subplotspec()
        if place is None:
            return None
        if grid is not None and place.get_gridspec() is not grid:
            return None
        grid = place.get_gridspec()
        if len(place.rowspan) != 1 or len(place.colspan) != 1 or not isinstance(grid, GridSpec):
            return None
        cells.setdefault((place.rowspan[0], place.colspan[0]), []).append(ax)
    if grid is None:
        return None
    shown = [cells[key] for key in sorted(cells) if any(ax.axison or ax.has_data() for ax in cells[key])]
    return shown, grid.nrows, grid.ncols


def _stack(fig: Any, panels: list[list[Any]], columns: int, down: int, across: int, undo: Undo) -> None:
    """Panels into a grid of fewer columns; what they had read off their neighbours they now say themselves."""
    grid = GridSpec(down, across, figure=fig, height_ratios=_heights(panels, down, across))
    first: dict[int, Any] = {}
    for k, panel in enumerate(panels):
        for ax in panel:
            undo.append(partial(ax.set_subplotspec, ax.get_subplotspec()))
            row = ax.get_subplotspec().rowspan[0]
            first.setdefault(row, ax)
            if k % across == 0 and ax is not first[row]:
                _say_y(ax, first[row], undo)
            elif k % across and ax is first[row] and _shares(ax, panels[k - 1][0], "y"):
                _hush_y(ax, undo)
            if across == 1 or k >= len(panels) - across:
                _say_x(ax, undo)
    for k, panel in enumerate(panels):
        for ax in panel:
            ax.set_subplotspec(grid[k // across, k % across])
    hidden = [ax for ax in fig.axes if all(ax not in panel for panel in panels)]
    for ax in hidden:
        _set(ax, "visible", False, undo)
        undo.append(partial(ax.set_subplotspec, ax.get_subplotspec()))
        ax.set_subplotspec(grid[0, 0])


def _heights(panels: list[list[Any]], down: int, across: int) -> list[float]:
    """Of each new row, the largest share that one of its panels had before."""
    shares = [1.0] * down
    for k, panel in enumerate(panels):
        place = panel[0].get_subplotspec()
        ratios = place.get_gridspec().get_height_ratios() or [1.0]
        share = float(ratios[place.rowspan[0]]) if len(ratios) > place.rowspan[0] else 1.0
        shares[k // across] = share if k % across == 0 else max(share, shares[k // across])
    return shares


def _say_y(ax: Any, left: Any, undo: Undo) -> None:
    """Marks and name of the y axis, as the leftmost panel of the old row has them."""
    if not ax.get_ylabel() and left.get_ylabel():
        label = left.yaxis.label
        before = ax.yaxis.label.get_rotation(), ax.yaxis.label.get_horizontalalignment(), ax.yaxis.label.get_verticalalignment()
        undo.append(lambda: (ax.set_ylabel(""), ax.yaxis.label.set(rotation=before[0], ha=before[1], va=before[2])))
        ax.set_ylabel(left.get_ylabel(), rotation=label.get_rotation(), ha=label.get_ha(), va=label.get_va())
    texts = [text.get_text() for text in left.get_yticklabels()]
    mine = [text.get_text() for text in ax.get_yticklabels()]
    if any(texts) and not any(mine) and len(texts) == len(mine) and not _shares(ax, left, "y"):
        ticks = ax.get_yticks()
        undo.append(lambda: ax.set_yticks(ticks, mine))
        ax.set_yticks(ticks, texts)
    elif _shares(ax, left, "y") and left.yaxis.get_tick_params().get("labelleft", True):
        shown = ax.yaxis.get_tick_params().get("labelleft", True)
        undo.append(lambda: ax.tick_params(labelleft=shown))
        ax.tick_params(labelleft=True)


def _hush_y(ax: Any, undo: Undo) -> None:
    """A panel that is no longer the leftmost leaves the y axis to its neighbour."""
    shown, name = ax.yaxis.get_tick_params().get("labelleft", True), ax.get_ylabel()
    undo.append(lambda: (ax.tick_params(labelleft=shown), ax.set_ylabel(name)))
    ax.tick_params(labelleft=False)
    ax.set_ylabel("")


def _say_x(ax: Any, undo: Undo) -> None:
    shown = ax.xaxis.get_tick_params().get("labelbottom", True)
    if not shown and len(ax.get_shared_x_axes().get_siblings(ax)) > 1:
        undo.append(lambda: ax.tick_params(labelbottom=shown))
        ax.tick_params(labelbottom=True)


def _shares(ax: Any, other: Any, axis: str) -> bool:
    return bool(getattr(ax, f"get_shared_{axis}_axes")().joined(ax, other))


def _slack(fig: Any, pen: Any) -> float:
    """Inches that stay empty between rows of panels, beyond a gap."""
    fig.draw(pen)
    boxes = sorted((-box.y1, -box.y0) for box in (ax.get_tightbbox(pen) for ax in fig.axes if ax.get_visible()) if box)
    title = fig._suptitle.get_window_extent(pen) if fig.get_suptitle() else None
    empty, low = 0.0, -title.y0 if title is not None else boxes[0][0]
    for top, bottom in boxes:
        empty += max(0.0, (top - low) / 72 - GAP)
        low = max(low, bottom)
    return empty


# -- words ---------------------------------------------------------------------------------------------------------------


def _extra(fig: Any, pen: Any) -> float:
    """Inches that the title and the legends of a whole figure take."""
    total = 0.0
    if fig.get_suptitle():
        title = fig._suptitle
        lines = title.get_text().count("\n") + 1
        total += lines * title.get_fontsize() * 1.2 / 72 + 0.08
    for legend in fig.legends:
        total += legend.get_window_extent(pen).height / 72 + 0.08
    return total


def _wrap_titles(fig: Any, pen: Any, whole: float, panel: float, undo: Undo) -> None:
    if fig.get_suptitle():
        _wrap(fig._suptitle, pen, whole * 0.97, undo)
    for ax in fig.axes:
        for loc in ("left", "center", "right"):
            title = {"left": ax._left_title, "center": ax.title, "right": ax._right_title}[loc]
            if title.get_text():
                _wrap(title, pen, panel * 0.94, undo)
        for label in (ax.xaxis.label, ax.yaxis.label):
            if label.get_text() and label.get_rotation() % 180 == 0:
                _wrap(label, pen, panel * 0.94, undo)


def _wrap(text: Any, pen: Any, room: float, undo: Undo) -> None:
    """Break a text's lines between words where they are wider than so many points; formulas stay whole."""
    lines = [broken for line in text.get_text().split("\n") for broken in _broken(line, text, pen, room)]
    if lines != text.get_text().split("\n"):
        _set(text, "text", "\n".join(lines), undo)


def _broken(line: str, text: Any, pen: Any, room: float) -> list[str]:
    def wide(words: str) -> float:
        return float(pen.get_text_width_height_descent(words, text.get_fontproperties(), "$" in words)[0])

    if line.count("$") % 2 or (line.count("$") and " " in line.split("$")[1]) or wide(line) <= room:
        return [line]
    words, lines = re.split(" (?!%)", line), []  # a number keeps its percent sign
    while words:
        k = len(words)
        while k > 1 and wide(" ".join(words[:k])) > room:
            k -= 1
        lines.append(" ".join(words[:k]))
        words = words[k:]
    return lines


def _narrow_legends(fig: Any, pen: Any, undo: Undo) -> None:
    """Fewer columns for legends that are too wide."""
    for legend in [*fig.legends, *(ax.get_legend() for ax in fig.axes if ax.get_legend())]:
        while legend._ncols > 1 and legend.get_window_extent(pen).width > WIDTH * 72 * 0.98:
            _columns(legend, legend._ncols - 1, undo)


def _columns(legend: Any, count: int, undo: Undo) -> None:
    """Lay a legend out again: matplotlib does so at its making only."""
    kept = {name: getattr(legend, name) for name in ("_ncols", "_legend_box", "_legend_handle_box", "_legend_title_box",
                                                     "texts", "legend_handles")}  # fmt: skip
    undo.append(lambda: vars(legend).update(kept))
    looks = [(text.get_color(), text.get_fontsize()) for text in legend.texts]
    title = legend.get_title().get_text()
    legend.set_ncols(count)
    legend._init_legend_box(legend.legend_handles, [text.get_text() for text in legend.texts])
    legend._legend_box.set_offset(legend._findoffset)
    for text, (colour, size) in zip(legend.texts, looks, strict=True):
        text.set(color=colour, fontsize=size)
    if title:
        legend.set_title(title)
