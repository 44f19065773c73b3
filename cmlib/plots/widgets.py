"""Pictures one can change: an accuracy matrix to edit, support points to drag, two scenarios to switch between.

Each is one piece of HTML with an inline script and nothing from outside. It is complete without scripts, in the state it starts
in: the script only unlocks it. Nothing moves by itself, so there is nothing to switch off for readers who want less motion.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cmlib import metrics
from cmlib.errors import DataError, OptionError, check_name
from cmlib.plots.fragment import Fragment, asset, unique_id
from cmlib.plots.geometry import Array, voronoi_cells
from cmlib.plots.player import MAX_BYTES, Player, player
from cmlib.plots.style import INK_FROM, accuracy_colours, class_colour, palette_css, themed
from cmlib.plots.svg import number, path, to_units

SIZE = 360  # units of a picture's sides
SCENARIOS = {"til": "TIL: the task is given", "cil": "CIL: the task is not given"}
MEASURES = {  # name in cmlib.metrics: heading and explanation; the order in which they are shown
    "accuracy": ("Accuracy", "mean of the last row"),
    "learning_accuracy": ("learning accuracy", "mean of the diagonal"),
    "bwt": ("BWT, paper's formula", "all cells below the diagonal"),
    "bwt_final": ("final BWT", "the last row only"),
}
_MARKS = ("M-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0z", "M-5.5-5.5h11v11h-11z", "M0-7.5L7.5 0L0 7.5L-7.5 0z")  # circle, square, diamond


class Widget(Fragment):
    """What the functions below return: shows itself in a notebook; `html` is the page fragment."""

    kind = "widget"


def _widget(kind: str, label: str, body: str, script: str, data: Mapping[str, Any]) -> Widget:
    """Body and script under an id of their own; ID and DATA in the script are filled in."""
    if not label.strip():
        raise OptionError("the label is empty; say what the widget is for")
    facts = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    name = unique_id("".join([kind, label, body, facts]))
    filled = asset(script).replace("ID", json.dumps(name), 1).replace("DATA", facts, 1)
    start = f'<div class="cm-widget cm-{kind}" id="{name}" role="group" aria-label="{html.escape(label)}">'
    inside = themed(body).replace('name="NAME-', f'name="{name}-')  # radio buttons of one widget belong together
    page = (
        f"{start}<style>{asset('widgets.css')}{palette_css('.cm-widget', inside)}</style>{inside}<script>{filled}</script></div>"
    )
    if len(page.encode()) > MAX_BYTES:
        raise OptionError(f"a widget of {len(page.encode()) / 1000:.0f} kB; at most {MAX_BYTES // 1000} kB")
    return Widget(page, label)


# -- an accuracy matrix to edit ------------------------------------------------------------------------------------------


def matrix_presets(n_tasks: int = 5) -> dict[str, Array]:
    """Made-up accuracy matrices [N, N] in percent that are worth comparing; NaN above the diagonal.

    The first two end alike and have one final BWT, but not one BWT: forgetting that is slow, and forgetting that is sudden.
    """
    if n_tasks < 3:
        raise OptionError(f"n_tasks={n_tasks}; slow and sudden forgetting differ from 3 tasks on")
    n, last = n_tasks, n_tasks - 1
    i, j = np.indices((n, n))
    slow = np.where(j < last, 96 - 60 * (i - j) / np.maximum(last - j, 1), 96.0)
    late = np.where((i == last) & (j < last), 36.0, 96.0)
    made = {
        "forgets little by little": slow.round(),
        "forgets all at once, at the end": late,
        "learns all, keeps all": np.full((n, n), 96.0),
        "learns all, keeps nothing": np.where(i == j, 96.0, 0.0),
        "never learns, never forgets": np.full((n, n), 50.0),
        "old tasks profit": np.minimum(99.0, 70.0 + 7 * (i - j)),
    }
    return {name: np.where(j <= i, R, np.nan) for name, R in made.items()}


def matrix_editor(presets: Mapping[str, ArrayLike] | None = None, label: str = "An accuracy matrix to edit") -> Widget:
    """An accuracy matrix with a number field for each cell; Accuracy, both BWTs and learning accuracy follow.

    presets: names to matrices [N, N] in percent, all of one size from 2 to 10; cells above the diagonal are ignored. The first
    one is shown at the start; `matrix_presets` when left out. DataError for another shape or values outside 0 to 100.
    """
    given = matrix_presets() if presets is None else presets
    matrices = {str(name): _percentages(name, R) for name, R in given.items()}
    if not matrices:
        raise OptionError("there is no matrix to start from")
    R = next(iter(matrices.values()))
    n = len(R)
    if any(len(other) != n for other in matrices.values()):
        raise DataError(f"all matrices must have the size of the first, {n} x {n}")
    choices = "".join(f'<option value="{k}">{html.escape(name)}</option>' for k, name in enumerate(matrices))
    tools = (
        f'<div class="cm-tools" hidden><label>Start from <select>{choices}</select></label></div>' if len(matrices) > 1 else ""
    )
    slide = '<label class="cm-slide" hidden><span></span><input type="range" min="0" max="100" step="1"></label>'
    lower = [[[round(v, 1) for v in row[: i + 1]] for i, row in enumerate(one.tolist())] for one in matrices.values()]
    body = f"{tools}{_grid(R)}{slide}{_measures(R)}{_identity(R)}"
    return _widget("edit", label, body, "editor.js", {"start": lower, "n": n, "ink": INK_FROM})


def _percentages(name: str, values: ArrayLike) -> Array:
    R = np.asarray(values, dtype=np.float64)
    if R.ndim != 2 or R.shape[0] != R.shape[1] or not 2 <= len(R) <= 10:
        raise DataError(f"'{name}': an accuracy matrix to edit is [N, N] with N from 2 to 10, got shape {list(R.shape)}")
    lower = R[np.tril_indices(len(R))]
    if not np.isfinite(lower).all() or lower.min() < 0 or lower.max() > 100:
        raise DataError(f"'{name}': accuracies on and below the diagonal are numbers from 0 to 100")
    return R


def _grid(R: Array) -> str:
    n = len(R)
    heads = "".join(f'<th scope="col">{j + 1}</th>' for j in range(n))
    rows = "".join(
        f'<tr><th scope="row">{i + 1}</th>'
        + "".join(f"<td>{_cell(R[i, j], i, j)}</td>" if j <= i else "<td></td>" for j in range(n))
        + "</tr>"
        for i in range(n)
    )
    first = f'<tr><th scope="row"><span aria-hidden="true">after</span></th><th colspan="{n}">accuracy on task, %</th></tr>'
    return f"<table><thead>{first}<tr><td></td>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(value: float, i: int, j: int) -> str:
    fill, ink = accuracy_colours(float(value))
    said = f"accuracy on task {j + 1} after task {i + 1}, percent"
    return (
        f'<input type="number" min="0" max="100" step="1" inputmode="decimal" readonly data-i="{i}" data-j="{j}" '
        f'aria-label="{said}" value="{_short(value)}" style="background:{fill};color:{ink}">'
    )


def _short(value: float) -> str:
    return f"{value + 0.0:.1f}".removesuffix(".0")


def _signed(value: float) -> str:
    text = f"{value:.1f}"
    return "0.0" if text == "-0.0" else text.replace("-", "−")


def _measures(R: Array) -> str:
    cards = "".join(
        f'<button type="button" class="cm-card" data-measure="{name}" aria-pressed="false"><span>{title}</span>'
        f'<output aria-live="off">{_signed(getattr(metrics, name)(R))}</output><small>{why}</small></button>'
        for name, (title, why) in MEASURES.items()
    )
    return f'<div class="cm-cards">{cards}</div>'


def _identity(R: Array) -> str:
    n, learned, final = len(R), metrics.learning_accuracy(R), metrics.bwt_final(R)
    sum_ = f"{_signed(learned)} + {n - 1}/{n} · ({_signed(final)}) = {_signed(metrics.accuracy(R))}"
    return (
        f'<p class="cm-sum">learning accuracy + (N−1)/N · final BWT = Accuracy:<br><output aria-live="polite">{sum_}</output></p>'
    )


# -- support points to drag ----------------------------------------------------------------------------------------------


def draggable_space(
    support: Mapping[str, ArrayLike],
    query: Sequence[float] = (5.0, 5.0),
    side: float = 10.0,
    label: str = "Support points to drag",
) -> Widget:
    """Support points [n, 2] of two to five classes, their centroids, Voronoi cells, and a point to classify; all follow a drag.

    Coordinates run from 0 to `side` to the right and upward. Points are moved with a pointer, a finger, or the arrow keys.
    DataError for points of another shape or outside the square; OptionError for another number of classes.
    """
    groups = {str(name): _points(name, points, side) for name, points in support.items()}
    if not 2 <= len(groups) <= 5:
        raise OptionError(f"{len(groups)} classes; a space to drag has two to five")
    at = _points("query", [query], side)[0]
    names = list(groups)
    centroids = np.stack([points.mean(0) for points in groups.values()])  # [K, 2]
    body = (
        f"{_space_svg(groups, centroids, at, side)}{_space_tools()}{_bars(names, centroids, at)}{_status(names, centroids, at)}"
    )
    facts = {
        "points": [points.tolist() for points in groups.values()],
        "names": names,
        "query": at.tolist(),
        "side": side,
        "size": SIZE,
    }
    return _widget("drag", label, body, "space.js", facts)


def _points(name: str, values: Any, side: float) -> Array:
    points = np.asarray(values, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2 or not len(points):
        raise DataError(f"'{name}': points must have shape [n, 2] with n from 1 on, got {list(points.shape)}")
    if not np.isfinite(points).all() or points.min() < 0 or points.max() > side:
        raise DataError(f"'{name}': points must lie between 0 and {side:g}")
    return points


def _to_svg(points: Array, side: float) -> Array:
    return to_units(points, (0, side, 0, side), SIZE)


def _space_svg(groups: Mapping[str, Array], centroids: Array, query: Array, side: float) -> str:
    cells = "".join(
        f'<path class="cm-v" fill="{class_colour(k, 1)}" d="M{path(cell)}Z"/>'
        for k, cell in enumerate(_to_svg(cell, side) for cell in voronoi_cells(centroids, (0, side, 0, side)))
    )
    q = _to_svg(query[None], side)[0]
    lines, crosses = "", ""
    for k, (x, y) in enumerate(_to_svg(centroids, side)):
        lines += f'<path class="cm-l" d="M{number(q[0])} {number(q[1])}L{number(x)} {number(y)}"/>'
        crosses += f'<g class="cm-c" stroke="{class_colour(k, 1)}" transform="translate({number(x)} {number(y)})">'
        crosses += '<path class="cm-h" d="M-9 0h18M0-9v18"/><path d="M-9 0h18M0-9v18"/></g>'
    handles = "".join(
        _handle(at, f"support point {s + 1} of class {name}", _MARKS[k % 3], f'fill="{class_colour(k, 1)}"', f"{k},{s}")
        for k, (name, points) in enumerate(groups.items())
        for s, at in enumerate(_to_svg(points, side))
    )
    handles += _handle(q, "the point to classify", "M-8-8h16v16h-16z", 'class="cm-q"', "q", "?")
    return (
        f'<svg viewBox="0 0 {SIZE} {SIZE}" role="group" aria-label="The plane with support points, centroids and cells">'
        f'<rect class="cm-frame" width="{SIZE}" height="{SIZE}"/>{cells}{lines}{handles}<g class="cm-on">{crosses}</g></svg>'
    )


def _handle(at: Array, said: str, mark: str, paint: str, which: str, text: str = "") -> str:
    """A point one can take hold of: its mark in a circle large enough for a finger."""
    inner = f'<text y="4.5">{text}</text>' if text else ""
    return (
        f'<g class="cm-pt" data-which="{which}" data-said="{html.escape(said)}" role="img" aria-label="{html.escape(said)}" '
        f'transform="translate({number(at[0])} {number(at[1])})"><circle r="17"/><path d="{mark}" {paint}/>{inner}</g>'
    )


def _space_tools() -> str:
    kinds = {"euclidean": "distance", "squared": "squared distance"}
    radios = "".join(
        f'<label><input type="radio" name="NAME-kind" value="{kind}"{" checked" * (kind == "euclidean")}> {words}</label>'
        for kind, words in kinds.items()
    )
    start = '<div class="cm-tools" hidden role="group" aria-label="What the softmax sees">'
    return f'{start}{radios}<button type="button">Reset</button></div>'


def _bars(names: Sequence[str], centroids: Array, query: Array) -> str:
    d, p = _chances(centroids, query)
    rows = "".join(
        f'<div class="cm-bar"><span>{html.escape(name)}</span><i><b style="width:{100 * p[k]:.1f}%;'
        f'background:{class_colour(k, 1)}"></b></i><output aria-live="off">d {d[k]:.2f}, p {p[k]:.2f}</output></div>'
        for k, name in enumerate(names)
    )
    return f'<div class="cm-bars">{rows}</div>'


def _chances(centroids: Array, query: Array) -> tuple[Array, Array]:
    """Distances of a point to the centroids [K], and the softmax of minus these [K]."""
    d = np.linalg.norm(centroids - query, axis=1)
    p = np.exp(d.min() - d)
    return d, p / p.sum()


def _status(names: Sequence[str], centroids: Array, query: Array) -> str:
    nearest = names[int(_chances(centroids, query)[0].argmin())]
    return f'<p class="cm-status" aria-live="polite">The point ? belongs to class {html.escape(nearest)}.</p>'


# -- two scenarios to switch between -------------------------------------------------------------------------------------


def scenario_svg(kind: str, learned: int, n_tasks: int = 3) -> str:
    """Figure 1 of the paper, drawn anew: one image of task 1, the answers that are possible, and the space they lie in.

    kind: `til` or `cil`. learned: how many of the `n_tasks` tasks (two classes each; at most 5) have been learned.
    """
    check_name("scenario", kind, SCENARIOS)
    if not 1 <= learned <= n_tasks <= 5:
        raise OptionError(f"learned={learned} of n_tasks={n_tasks}; both are from 1 to 5, learned not above n_tasks")
    parts = [_test_image(kind), _answers(kind, learned, n_tasks)]
    parts += [_separate(learned, n_tasks)] if kind == "til" else [_merged(learned)]
    said = html.escape(scenario_caption(kind, learned))
    return f'<svg viewBox="0 0 {SIZE} 346" fill="none" role="img" aria-label="{said}">{"".join(parts)}</svg>'


def scenario_caption(kind: str, learned: int) -> str:
    """What the picture of a scenario after so many tasks (two classes each) says, in words."""
    answers = 2 if kind == "til" else 2 * learned
    told = "told that it is of task 1" if kind == "til" else "not told its task"
    spaces = {"til": "Each task keeps a space of its own", "cil": "All classes share one space"}[kind]
    tasks = "task 1" if learned == 1 else f"{learned} tasks"
    return (
        f"After {tasks}, {kind.upper()}: an image of class 1 comes, and the network is {told}. "
        f"It chooses among {answers} classes; guessing is right in {100 / answers:.0f} % of cases. {spaces}."
    )


def scenario_player(n_tasks: int = 3, label: str = "What is known at test time, task by task") -> Player:
    """The pictures of both scenarios after each task: a reader switches between TIL and CIL and steps through the tasks."""
    frames = {words: [scenario_svg(kind, t + 1, n_tasks) for t in range(n_tasks)] for kind, words in SCENARIOS.items()}
    texts = {words: [scenario_caption(kind, t + 1) for t in range(n_tasks)] for kind, words in SCENARIOS.items()}
    return player(frames, {"toggle": "Scenario"}, label=label, captions=texts, alt=texts)


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 14) -> str:
    place = f'x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"'
    return f'<text {place} fill="currentColor" font-size="{size}" font-family="sans-serif">{words}</text>'


def _test_image(kind: str) -> str:
    """A one, handwritten, and what comes with it."""
    box = '<rect x="8" y="6" width="54" height="54" rx="4" stroke="currentColor" stroke-opacity=".6"/>'
    one = '<path d="M28 23L37 15V51M28 51H46" stroke="currentColor" stroke-width="5" stroke-linecap="round"/>'
    dash = "" if kind == "til" else ' stroke-dasharray="5 5" stroke-opacity=".6"'
    colour = class_colour(0) if kind == "til" else "currentColor"
    tag = f'<rect x="78" y="32" width="120" height="28" rx="14" stroke="{colour}" stroke-width="2.5"{dash}/>'
    words = "task 1" if kind == "til" else "task unknown"
    return box + one + tag + _text(78, 21, "a test image, and with it:") + _text(138, 51, words, "middle")


def _answers(kind: str, learned: int, n_tasks: int) -> str:
    """One chip a class: filled if it can be the answer, dashed if it is known but excluded, absent if it is not yet learned."""
    step = (SIZE - 16 + 6) / (2 * n_tasks)
    out = _text(8, 88, "possible answers:")
    for label in range(2 * learned):
        x, can = 8 + step * label, kind == "cil" or label < 2
        look = 'fill-opacity=".25"' if can else 'fill-opacity="0" stroke-dasharray="3 4" stroke-opacity=".55"'
        colour = class_colour(label) if can else "currentColor"
        out += f'<rect x="{number(x)}" y="98" width="{number(step - 6)}" height="30" rx="6" fill="{colour}" stroke="{colour}" '
        out += f'stroke-width="2.5" {look}/>' + _text(x + (step - 6) / 2, 118, str(label), "middle")
    return out


def _cloud(x: float, y: float, label: int, spread: float) -> str:
    """Nine samples of a class around its centroid, always the same ones."""
    draws = np.random.default_rng(label).normal((x, y), spread, (9, 2))
    dots = "".join(f"M{number(a)} {number(b)}h.01" for a, b in draws)
    cap, colour = ("round", "square")[label % 2], class_colour(label)
    cross = f'<path d="M{number(x - 7)} {number(y)}h14M{number(x)} {number(y - 7)}v14" stroke="{colour}" stroke-width="3.5"/>'
    return f'<path d="{dots}" stroke="{colour}" stroke-width="5" stroke-linecap="{cap}" stroke-opacity=".75"/>{cross}'


def _separate(learned: int, n_tasks: int) -> str:
    """A box a task, with the two classes in it; the box of the task that was named is the one that counts."""
    width = (SIZE - 16 - 10 * (n_tasks - 1)) / n_tasks
    out = ""
    for i in range(learned):
        x, here = 8 + i * (width + 10), i == 0
        edge = f'stroke="{class_colour(0)}" stroke-width="3"' if here else 'stroke="currentColor" stroke-opacity=".4"'
        out += f'<g opacity="{1 if here else 0.45}"><rect x="{number(x)}" y="150" width="{number(width)}" height="166" '
        out += f'rx="8" {edge}/>'
        out += (
            _cloud(x + width * 0.36, 190, 2 * i, width * 0.08) + _cloud(x + width * 0.64, 274, 2 * i + 1, width * 0.08) + "</g>"
        )
        out += _text(x + width / 2, 338, f"space {i + 1}", "middle")
    return out


def _merged(learned: int) -> str:
    """One box for all classes seen, divided into their Voronoi cells."""
    places = [(70, 190), (170, 262), (286, 184), (80, 276), (268, 282), (178, 176), (320, 236), (30, 232), (226, 222), (128, 222)]
    at = np.array(places[: 2 * learned], dtype=np.float64)
    cells = "".join(
        f'<path d="M{path(cell)}Z" fill="{class_colour(k)}" fill-opacity=".14" stroke="currentColor" stroke-opacity=".35"/>'
        for k, cell in enumerate(voronoi_cells(at, (8, SIZE - 8, 150, 316)))
    )
    clouds = "".join(_cloud(x, y, k, 9) for k, (x, y) in enumerate(at))
    return cells + clouds + _text(SIZE / 2, 338, "one space for all classes", "middle")
