"""The map of the book: four pictures, one for each step of the method, with the one of the moment lit.

The same four clusters stand in all of them: a class is a place (chapter 3), old places are held (4), the places of all tasks
come into one space (5), and the drift that is left is measured (6).
"""

from __future__ import annotations

from typing import NamedTuple

from cmlib.errors import OptionError
from cmlib.plots.fragment import Fragment, asset
from cmlib.plots.style import PALETTE, palette_css, themed

FIRST, SECOND, THIRD, FOURTH = PALETTE[0], PALETTE[1], PALETTE[2], PALETTE[3]  # two classes of task 1, two of task 2
CLUSTER = ((-9, -7), (7, -10), (-12, 5), (9, 6), (0, 12), (1, -14))  # points around a centroid


class Step(NamedTuple):
    """One card: the chapter, what it says, and what the picture shows."""

    chapter: int
    title: str
    text: str
    picture: str


def _cluster(x: float, y: float, colour: str, faint: bool = False) -> str:
    """Points around a cross."""
    dots = "".join(f"M{x + a:g} {y + b:g}h0" for a, b in CLUSTER)
    style = ' class="cm-g"' if faint else ""
    return f'<g{style}><path class="cm-d" stroke="{colour}" d="{dots}"/>{_cross(x, y, colour)}</g>'


def _cross(x: float, y: float, colour: str) -> str:
    return f'<path class="cm-x" stroke="{colour}" d="M{x:g} {y:g}m-6 0h12m-6-6v12"/>'


def _frame(x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="cm-i" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'


def _line(*moves: str, dashed: bool = False) -> str:
    return f'<path class="cm-i"{" stroke-dasharray=" + chr(34) + "4 4" + chr(34) if dashed else ""} d="{" ".join(moves)}"/>'


STEPS = (
    Step(
        3,
        "A class is a place",
        "An image belongs to the nearest centroid.",
        _frame(2, 2, 156, 106)
        + _cluster(42, 66, FIRST)
        + _cluster(122, 42, SECOND)
        + _line("M80 28L48 60M80 28L114 40")
        + '<circle class="cm-q" cx="80" cy="28" r="5"/>',
    ),
    Step(
        4,
        "Old places are held",
        "While a new task is learned, a penalty keeps the old embeddings where they were.",
        _frame(2, 2, 156, 106)
        + _cluster(42, 66, FIRST, faint=True)
        + _cluster(64, 54, FIRST)
        + _cluster(122, 44, SECOND)
        + _line("M84 88L52 100M52 100l9-8M52 100l12 2"),
    ),
    Step(
        5,
        "One space for all",
        "Projectors bring the spaces of all tasks together, so that no task has to be named.",
        _frame(2, 8, 48, 40)
        + _frame(2, 62, 48, 40)
        + _cross(17, 34, FIRST)
        + _cross(36, 22, SECOND)
        + _cross(16, 76, THIRD)
        + _cross(36, 88, FOURTH)
        + _line("M54 28L68 44M68 44l-1-8M68 44l-8-2M54 82L68 66M68 66l-8 1M68 66l-2 8")
        + _frame(76, 8, 82, 94)
        + _cross(95, 80, FIRST)
        + _cross(138, 28, SECOND)
        + _cross(95, 28, THIRD)
        + _cross(138, 80, FOURTH)
        + _line("M117 8V102M76 55H158", dashed=True),
    ),
    Step(
        6,
        "Does it hold?",
        "What drift is left is measured, class by class.",
        _frame(2, 2, 156, 106)
        + _cluster(40, 60, FIRST, faint=True)
        + _cluster(58, 52, FIRST)
        + _cluster(112, 54, SECOND, faint=True)
        + _cluster(124, 62, SECOND)
        + _line("M40 96v8M58 96v8M40 100H58M112 96v8M124 96v8M112 100H124"),
    ),
)


def story_map(chapter: int | None = None) -> Fragment:
    """The four steps of the method side by side (two by two on a phone), that of `chapter` (3 to 6) lit; none when left out."""
    known = [step.chapter for step in STEPS]
    if chapter is not None and chapter not in known:
        raise OptionError(f"the map has no chapter {chapter}; it has: {', '.join(map(str, known))}")
    cards = "".join(
        f"<li{' aria-current=' + chr(34) + 'step' + chr(34) if step.chapter == chapter else ''}>"
        f'<svg viewBox="0 0 160 110" aria-hidden="true">{step.picture}</svg>'
        f"<span>Chapter {step.chapter}</span><b>{step.title}</b><span>{step.text}</span></li>"
        for step in STEPS
    )
    shown = themed(cards)
    css = asset("story.css") + palette_css(".cm-story", shown)
    return Fragment(f'<style>{css}</style><ol class="cm-story">{shown}</ol>', "the four steps of the method")
