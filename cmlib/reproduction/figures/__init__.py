"""The paper's figures from stored runs: drawn, described, and their numbers beside them.

Figure 1 (the two scenarios), 2a and 2b (memory), 3 (the space of task 1 over tasks), 4 (the merged space over tasks). Each is
one function `draw(profile, stores) -> Drawing` in a module of this package; matplotlib is imported when one is drawn.
"""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmlib.errors import StoreError, check_name
from cmlib.profiles import PROFILES
from cmlib.reproduction import render
from cmlib.store import Store, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = {  # module of this package, function
    "1": ("fig1", "draw"),
    "2a": ("memory", "draw_2a"),
    "2b": ("memory", "draw_2b"),
    "3": ("spaces", "draw_3"),
    "4": ("spaces", "draw_4"),
}
FORMS = ("files", "json")
DPI = 200  # of the .png


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure with everything a page needs beside it.

    fig: the picture. rows: the numbers in it, one mapping of names to plain values (text, number, None) a mark; keys may differ
    from row to row. alt: what it shows, for someone who cannot see it. title: the finding. notes: what to know before trusting
    it, one sentence each (which runs, what was left out).
    """

    fig: Figure
    rows: list[dict[str, Any]]
    alt: str
    title: str
    notes: tuple[str, ...] = ()


def draw(number: str, profile: str, stores: Sequence[Store]) -> Drawing:
    """A figure of the paper from the runs of a profile; OptionError for an unknown figure or profile, StoreError without runs."""
    module, function = FIGURES[check_name("figure", str(number), FIGURES)]
    check_name("profile", profile, PROFILES)
    made: Drawing = getattr(importlib.import_module(f"{__name__}.{module}"), function)(profile, stores)
    return made


def write(drawing: Drawing, folder: str | Path, name: str) -> list[Path]:
    """Write `name`.svg, .png and .csv into a folder, each whole or not at all; the same drawing gives the same bytes.

    name: for example `figure-3-digits`. StoreError when the folder cannot be written.
    """
    contents = {"svg": _picture(drawing, "svg"), "png": _picture(drawing, "png"), "csv": render.csv(drawing.rows).encode()}
    paths = []
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write to the folder {folder}: {error.strerror}") from None
    for ending, content in contents.items():
        write_atomically(path := Path(folder) / f"{name}.{ending}", content)
        paths.append(path)
    return paths


def _picture(drawing: Drawing, form: str) -> bytes:
    """The figure on white, without dates or versions."""
    from cmlib.plots.style import styled

    about = {"Title": drawing.title, "Description": " ".join(drawing.alt.split())}
    silent: dict[str, Any] = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    content = io.BytesIO()
    with styled():  # it fixes the salt of the identifiers in an SVG
        options: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.08, "metadata": {**about, **silent}}
        drawing.fig.savefig(content, format=form, dpi=DPI, facecolor="white", transparent=False, **options)
    return content.getvalue()


def main(
    number: str, profile: str, out: str | Path, stores: Sequence[Store], form: str = "files", record: bool = False
) -> tuple[str, str]:
    """What `cmlib figure` prints: the paths written and the notes, or (json) the numbers and nothing for the notes.

    record: first make the run that figure 3 or 4 shows, with snapshots, in the first store (unless it is there).
    """
    check_name("format", form, FORMS)
    number = check_name("figure", str(number).strip().lower(), FIGURES)
    if record:
        check_name("profile", profile, PROFILES)
        importlib.import_module(f"{__name__}.spaces").record(number, profile, stores[0])
    made = draw(number, profile, stores)
    if form == "json":
        words = {"figure": number, "profile": profile, "title": made.title, "alt": made.alt, "notes": list(made.notes)}
        return json.dumps({**words, "rows": made.rows}, allow_nan=False, ensure_ascii=False), ""
    paths = write(made, out, f"figure-{number}-{profile}")
    return "\n".join(map(str, paths)), "\n".join([made.title, *made.notes])


__all__ = ["DPI", "FIGURES", "FORMS", "Drawing", "draw", "main", "write"]
