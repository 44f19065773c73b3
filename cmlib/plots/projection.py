"""GEM's projection in the plane: a static figure, and a widget whose gradients one drags.

Both show the same thing: a gradient g, one or two gradients g1, g2 of past tasks, the half planes in which a past task's loss
would rise, and the gradient that GEM steps along (`methods.gem.project`). Built for chapter 7.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cmlib.errors import OptionError
from cmlib.plots.fragment import asset, unique_id
from cmlib.plots.player import Player
from cmlib.plots.style import INK, STRONG, WIDTH, palette_css, small_panels, task_colour, themed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Vector = Sequence[float]
REACH = 3.0  # both coordinates of a gradient lie in -REACH .. REACH
HALF, UNIT = 180, 54  # the widget's middle, and SVG units a step


def projected(g: Vector, past: Sequence[Vector], margin: float = 0.0) -> tuple[float, float]:
    """The gradient GEM steps along, in the plane: `methods.gem.project` of g [2] and past [t, 2]."""
    import torch

    from cmlib.methods.gem import project

    new = project(torch.tensor(g, dtype=torch.float64), torch.tensor(past, dtype=torch.float64).reshape(-1, 2), margin)
    return float(new[0]), float(new[1])


def _checked(g: Vector, past: Sequence[Vector], margin: float) -> None:
    """OptionError unless the gradients are one and one or two pairs of numbers in reach, and margin a number from 0 to 1."""
    if not 1 <= len(past) <= 2:
        raise OptionError(f"past has {len(past)} gradients; one or two can be drawn")
    for vector in (g, *past):
        if len(vector) != 2 or not all(math.isfinite(v) and abs(v) <= REACH for v in vector):
            raise OptionError(f"{list(vector)} is no gradient here; it must be two numbers from {-REACH:g} to {REACH:g}")
    if not 0 <= margin <= 1:
        raise OptionError(f"margin={margin} is impossible; allowed: a number from 0 to 1")


# -- the figure -------------------------------------------------------------------------------------------------------------


def gem_arrows(cases: Mapping[str, tuple[Vector, Sequence[Vector]]], margin: float = 0.0, title: str = "") -> Figure:
    """One small plane a case: its name, g, the past gradients, and the projected gradient as a thick arrow.

    cases: name -> (g [2], past [t, 2]) with t of 1 or 2. Shaded: where a past task's loss would rise. Errors: OptionError.
    """
    if not cases:
        raise OptionError("gem_arrows needs at least one case")
    for g, past in cases.values():
        _checked(g, past, margin)
    columns = min(3, len(cases))
    with small_panels(len(cases), columns, WIDTH / columns + 0.35, title=title) as (fig, axes):
        for ax, (name, (g, past)) in zip(axes, cases.items(), strict=True):
            _plane(ax, np.asarray(g, dtype=np.float64), np.asarray(past, dtype=np.float64), margin)
            ax.set_title(name, fontsize=12)
    return fig


def _plane(ax: Axes, g: Any, past: Any, margin: float) -> None:
    for i, one in enumerate(past):
        ax.fill(*_forbidden(one).T, color=task_colour(i), alpha=0.13, linewidth=0)
    new = np.array(projected(g.tolist(), past.tolist(), margin))
    _arrow(ax, new, STRONG, 4.0, "-")
    _arrow(ax, g, INK, 2.0, (0, (4, 2)))
    for i, one in enumerate(past):
        _arrow(ax, one, task_colour(i), 2.4, "-")
        _name(ax, one, f"$g_{i + 1}$", task_colour(i))
    _name(ax, g, "$g$", INK)
    ax.scatter(0, 0, s=26, color=INK, zorder=4)
    ax.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), xticks=(), yticks=(), aspect="equal")
    ax.spines[:].set_visible(True)
    ax.spines[:].set_alpha(0.4)


def _arrow(ax: Axes, to: Any, colour: str, width: float, dashes: Any) -> None:
    """From the origin; `dashes` styles the shaft only."""
    ax.plot([0, to[0]], [0, to[1]], color=colour, linewidth=width, linestyle=dashes, solid_capstyle="round", zorder=3)
    if np.hypot(*to) > 0.2:
        (x0, y0), (x1, y1), (x2, y2) = _tip(to, 0.3)
        ax.plot([x0, x1, x2], [y0, y1, y2], color=colour, linewidth=width, solid_capstyle="round", zorder=3)


def _name(ax: Axes, at: Any, text: str, colour: str) -> None:
    away = np.asarray(at) / max(float(np.hypot(*at)), 1e-9) * 13
    ax.annotate(text, at, xytext=away, textcoords="offset points", ha="center", va="center", color=colour)


def _tip(to: Any, size: float) -> list[tuple[float, float]]:
    """Three points of an arrow's head: one side, the end, the other side."""
    length = max(math.hypot(*to), 1e-9)
    bx, by = to[0] / length * size, to[1] / length * size
    sides = [(to[0] - bx + s * by * 0.6, to[1] - by - s * bx * 0.6) for s in (1, -1)]
    return [sides[0], (float(to[0]), float(to[1])), sides[1]]


def _forbidden(one: Any) -> Any:
    """A polygon [4, 2] over the half plane in which products with this gradient are negative."""
    nx, ny = np.asarray(one, dtype=np.float64) / max(float(np.hypot(*one)), 1e-9) * 3 * REACH
    return np.array([[-ny, nx], [ny, -nx], [ny - nx, -nx - ny], [-ny - nx, nx - ny]])


# -- the widget -------------------------------------------------------------------------------------------------------------


def gem_widget(
    g: Vector = (2.0, -1.4),
    past: Sequence[Vector] = ((0.5, 1.9), (2.0, 0.6)),
    margin: float = 0.0,
    label: str = "GEM's projection in the plane",
) -> Player:
    """A plane with draggable gradients (pointer, or arrow keys on a focused one) and a slider for the margin.

    g [2], past [t, 2] with t of 1 or 2: where the gradients are at first; without scripts they stay there. Errors: OptionError.
    """
    _checked(g, past, margin)
    vectors = {"g": list(map(float, g)), **{f"g{i + 1}": list(map(float, one)) for i, one in enumerate(past)}}
    name = unique_id(repr((vectors, margin, label)), "cm-gem-")
    said = html.escape(label)
    body = themed(_drawing(vectors, projected(g, past, margin), said)) + _controls(len(past), margin)
    css = asset("projection.css") + palette_css(".cm-gem", body)
    return Player(
        f'<div class="cm-gem" id="{name}" role="group" aria-label="{said}"><style>{css}</style>{body}'
        f"<script>{_script(name, vectors, margin)}</script></div>",
        label,
    )


def _script(name: str, vectors: Mapping[str, Vector], margin: float) -> str:
    from cmlib.methods.gem import RIDGE

    values = {"ID": name, "START": vectors, "REACH": REACH, "HALF": HALF, "UNIT": UNIT, "RIDGE": RIDGE, "MARGIN": margin}
    return re.sub(rf"\b({'|'.join(values)})\b", lambda found: json.dumps(values[found[0]]), asset("projection.js"))


def _drawing(vectors: Mapping[str, Vector], step: Vector, said: str) -> str:
    """The plane at its start, as it also stays without scripts."""
    parts = [f'<path class="cm-no" data-v="{k}-ban" fill="{_colour(k)}" d="{_ban(v)}"/>' for k, v in vectors.items() if k != "g"]
    parts.append(f'<path class="cm-step" fill="none" data-v="step" stroke="{STRONG}" d="{_shaft(step, 0.36)}"/>')
    for k, v in vectors.items():
        kind = 'class="cm-dash"' if k == "g" else f'stroke="{_colour(k)}"'
        parts.append(f'<path {kind} fill="none" data-v="{k}-arrow" d="{_shaft(v, 0.28)}"/>')
    parts += [_handle(k, v) for k, v in vectors.items()]
    return f'<svg viewBox="0 0 {2 * HALF} {2 * HALF}" role="group" aria-label="{said}">{"".join(parts)}</svg>'


def _colour(name: str) -> str:
    return task_colour(int(name[1:]) - 1)


def _handle(name: str, at: Vector) -> str:
    what = "gradient of the current task, g" if name == "g" else f"gradient of past task {name[1:]}, {name}"
    ring = 'class="cm-dot cm-now"' if name == "g" else f'class="cm-dot" stroke="{_colour(name)}"'
    angle = round(math.degrees(math.atan2(at[1], at[0])))
    return (
        f'<g data-v="{name}" role="slider" aria-label="{what}" aria-valuemin="-180" aria-valuemax="180" aria-valuenow="{angle}" '
        f'aria-valuetext="x {at[0]:.2f}, y {at[1]:.2f}" transform="translate({_place(at)})"><circle class="cm-hit" r="22"/>'
        f'<circle {ring} r="9"/><text x="13" y="-9">{name}</text></g>'
    )


def _controls(tasks: int, margin: float) -> str:
    second = '<label><input type="checkbox" checked> second past task</label>' if tasks > 1 else ""
    return (
        '<p role="status">Dashed: the gradient g. Coloured: gradients of past tasks, each with the half plane that it forbids. '
        "Thick: the gradient GEM steps along.</p>"
        f'<div class="cm-row" hidden><label>margin <input type="range" min="0" max="1" step="0.05" value="{margin:g}" '
        f'aria-label="margin"><output>{margin:.2f}</output></label></div>'
        f'<div class="cm-row" hidden>{second}<button type="button">Reset</button></div>'
    )


def _place(p: Vector) -> str:
    return f"{HALF + UNIT * p[0]:.1f} {HALF - UNIT * p[1]:.1f}"


def _shaft(p: Vector, size: float) -> str:
    line = f"M{HALF} {HALF}L{_place(p)}"
    if math.hypot(*p) < size:
        return line
    return f"{line}M{'L'.join(_place(point) for point in _tip(p, size))}"


def _ban(p: Vector) -> str:
    return f"M{'L'.join(_place(point) for point in _forbidden(p))}Z"
