"""A slider over runs of one setting after another: accuracy matrix, curves, space and the place between learning and forgetting.

Each stop of the slider is one run, drawn as four small pictures that move together. Built in chapter 13.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cmlib import metrics
from cmlib.errors import OptionError
from cmlib.plots import drift, player
from cmlib.plots.geometry import Projection, Space
from cmlib.plots.style import GREY, INK, accuracy_colours, task_colour
from cmlib.plots.svg import square, svg_scatter, to_units

SIDE = 200  # units of a picture's sides
EDGE = 34  # units left for the numbers of an axis
_TEXT = f'fill="{INK}" font-size="12" text-anchor="middle"'
_STYLE = 'style="display:inline-block;width:50%;vertical-align:top"'

Place = tuple[float, float]  # learning accuracy and final BWT


@dataclass(frozen=True, eq=False)
class Stop:
    """One stop of the slider: a run, or None with a note that says why there is none.

    R: accuracies in percent [N, N], NaN where nothing was measured. known: the same with the task given. spaces: one space at
    several moments, with the same images.
    """

    name: str
    R: ArrayLike | None = None
    known: ArrayLike | None = None
    spaces: Sequence[Space] | None = None
    note: str = ""


def runs_player(
    groups: Mapping[str, Sequence[Stop]],
    *,
    label: str,
    classes_per_task: int = 2,
    controls: Mapping[str, Any] | None = None,
) -> player.Player:
    """A slider over the stops of each group; all spaces of a group are drawn in one plane.

    Four pictures a stop: the accuracy matrix; each task's accuracy as tasks arrive; the space at its last moment with lines
    from its first one, or the matrix with the task given; learning accuracy against final BWT, this stop's mark filled.
    """
    pictures: dict[str, list[str]] = {}
    captions: dict[str, list[str]] = {}
    for name, stops in groups.items():
        drawn = _spaces(stops, classes_per_task)
        places = [_place_of(stop) for stop in stops]
        pictures[name] = [_frame(stops, k, drawn[k], places) for k in range(len(stops))]
        captions[name] = [_said(stop, place) for stop, place in zip(stops, places, strict=True)]
    if len({len(stops) for stops in pictures.values()}) > 1:
        raise OptionError("runs_player: every group needs the same number of stops; say in a note where no run is")
    return player.player(pictures, controls, label=label, captions=captions, alt=captions)


def _place_of(stop: Stop) -> Place | None:
    """Where a run lies in the plane; None where it has no last row."""
    if stop.R is None or not np.isfinite(square(stop.R)[-1]).all():
        return None
    return metrics.learning_accuracy(stop.R), metrics.bwt_final(stop.R)


def _said(stop: Stop, place: Place | None) -> str:
    """Caption and alternative text of a stop."""
    if place is None or stop.R is None:
        return f"{stop.name}: {stop.note or 'no run that came to its end'}."
    numbers = f"Accuracy {metrics.accuracy(stop.R):.1f} %, learning accuracy {place[0]:.1f} %, final BWT {place[1]:+.1f}"
    return f"{stop.name}: {numbers}." + (f" {stop.note}." if stop.note else "")


def _frame(stops: Sequence[Stop], k: int, space: str, places: Sequence[Place | None]) -> str:
    """The four pictures of a stop, two by two."""
    stop = stops[k]
    grid = _cells(stop.R, "accuracy, %") if stop.R is not None else _blank("no run")
    lines = _curves(stop.R) if stop.R is not None else _blank("")
    third = _cells(stop.known, "task given, %") if stop.known is not None else space
    four = (grid, lines, third, _plane(places, k))
    return "".join(f'<svg viewBox="0 0 {SIDE} {SIDE + 8}" {_STYLE}>{one}</svg>' for one in four)


def _blank(text: str) -> str:
    return f'<text x="100" y="100" {_TEXT}>{text}</text>'


# -- the matrix and the curves --------------------------------------------------------------------------------------------


def _cells(R: ArrayLike | None, title: str) -> str:
    """An accuracy matrix with its numbers; dashed cells were not measured."""
    r = square(R if R is not None else [[np.nan]])
    n = len(r)
    side = (SIDE - EDGE) / n
    boxes, texts = [], []
    for i in range(n):
        for j in range(i + 1):
            x, y = EDGE + j * side, 16 + i * side
            if not np.isfinite(r[i, j]):
                boxes.append(f'<rect class="cm-e" x="{x:.0f}" y="{y:.0f}" width="{side:.0f}" height="{side:.0f}"/>')
                continue
            fill, ink = accuracy_colours(float(r[i, j]))
            boxes.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="{side:.0f}" height="{side:.0f}" fill="{fill}"/>')
            texts.append(f'<tspan x="{x + side / 2:.0f}" y="{y + side / 2 + 4:.0f}" style="fill:{ink}">{r[i, j]:.0f}</tspan>')
    texts += [f'<tspan x="24" y="{16 + (i + 0.5) * side + 4:.0f}">{i + 1}</tspan>' for i in range(n)]
    axis = f'<text transform="translate(10 100)rotate(-90)" {_TEXT}>after task</text>'
    return f'{"".join(boxes)}<text {_TEXT}>{"".join(texts)}</text>{axis}<text x="117" y="11" {_TEXT}>{title}</text>'


def _curves(R: ArrayLike) -> str:
    """The accuracy on each task, from when it is learned on, in the colour of the task."""
    r = square(R)
    step = (SIDE - EDGE - 16) / max(len(r) - 1, 1)
    out = [_axes("after task", [str(k + 1) for k in range(len(r))], step)]
    for j in range(len(r)):
        known = [i for i in range(j, len(r)) if np.isfinite(r[i, j])]
        if not known:
            continue
        at = [f"{EDGE + 4 + i * step:.0f} {_height(r[i, j]):.0f}" for i in known]
        colour = task_colour(j)
        out.append(f'<path d="M{"L".join(at)}" fill="none" stroke="{colour}" stroke-width="2.4"/>')
        out.append(f'<path d="M{at[0]}h0" stroke="{colour}" stroke-width="8" stroke-linecap="round"/>')
    return "".join(out)


def _height(percent: float) -> float:
    return 164 - 1.44 * percent


def _axes(name: str, numbers: Sequence[str], step: float) -> str:
    """The frame of the curves: 0 to 100 % upward, tasks to the right."""
    ticks = "".join(f'<tspan x="{EDGE + 4 + k * step:.0f}" y="180">{text}</tspan>' for k, text in enumerate(numbers))
    rule = f'<path d="M{EDGE} 20V164H194M{EDGE} 92H194" fill="none" stroke="{GREY}" stroke-width=".7"/>'
    marks = "".join(f'<tspan x="18" y="{_height(p) + 4:.0f}">{p}</tspan>' for p in (0, 50, 100))
    names = f'<tspan x="114" y="196">{name}</tspan><tspan x="117" y="11">each task, %</tspan>'
    return f"{rule}<text {_TEXT}>{ticks}{marks}{names}</text>"


# -- the space ------------------------------------------------------------------------------------------------------------


def _spaces(stops: Sequence[Stop], per_task: int) -> list[str]:
    """For each stop its space at the last moment, with a line from each image's first place; all in one plane."""
    trainings = {str(k): list(stop.spaces) for k, stop in enumerate(stops) if stop.spaces}
    blank = _blank("no snapshot")
    if not trainings:
        return [blank] * len(stops)
    view, drawn, last = drift.together(trainings), [blank] * len(stops), -1
    for key, moments in trainings.items():
        first, last = last + 1, last + len(moments)
        drawn[int(key)] = _space(view, first, last, moments[-1], per_task)
    return drawn


def _space(view: Projection, first: int, last: int, space: Space, per_task: int) -> str:
    inner = svg_scatter(
        view.points[last], space.labels, view.centroids[last], space.classes,
        extent=view.extent, classes_per_task=per_task, size=SIDE - 20,
    )  # fmt: skip
    inside = inner.partition(">")[2].removesuffix("</svg>")
    a, b = (to_units(view.points[k], view.extent, SIDE - 20) for k in (first, last))
    lines = "".join(f"M{p[0]:.0f} {p[1]:.0f}L{q[0]:.0f} {q[1]:.0f}" for p, q in zip(a, b, strict=True))
    trail = f'<path d="{lines}" fill="none" stroke="{GREY}" stroke-opacity=".6"/>'
    return f'<g transform="translate(10 18)">{trail}{inside}</g><text x="100" y="11" {_TEXT}>space of task 1, at the end</text>'


# -- between learning and forgetting --------------------------------------------------------------------------------------


def _plane(places: Sequence[Place | None], here: int) -> str:
    """Learning accuracy to the right, final BWT upward, a ring a stop, the present one filled."""
    known = [place for place in places if place]
    if not known:
        return _blank("no run that ended")
    low, high = min(min(y for _, y in known), -10.0), max(max(y for _, y in known), 5.0)
    left = min(min(x for x, _ in known), 90.0)
    across, up = 148 / max(100 - left, 1e-9), 136 / (high - low)
    out = [f'<path d="M{EDGE} 20V164H194M{EDGE} {24 + high * up:.0f}H194" fill="none" stroke="{GREY}" stroke-width=".7"/>']
    for k, place in enumerate(places):
        if place:
            x, y = EDGE + 6 + (place[0] - left) * across, 24 + (high - place[1]) * up
            paint = f'fill="{INK}" r="7"' if k == here else f'fill="none" stroke="{INK}" r="4"'
            out.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" {paint}/>')
    gone = "" if places[here] else '<tspan x="114" y="100">no point</tspan>'
    marks = f'<tspan x="16" y="{28 + high * up:.0f}">0</tspan><tspan x="16" y="164">{low:.0f}</tspan>'
    below = f'<tspan x="{EDGE + 6:.0f}" y="180">{left:.0f}</tspan><tspan x="184" y="180">100</tspan>'
    names = '<tspan x="114" y="196">learning accuracy, %</tspan><tspan x="114" y="11">final BWT</tspan>'
    return f"{''.join(out)}<text {_TEXT}>{marks}{below}{names}{gone}</text>"
