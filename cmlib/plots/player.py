"""A small player of pictures: range input, play button, arrow keys; one piece of HTML, nothing from outside."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cmlib.errors import OptionError, check_name
from cmlib.plots import geometry
from cmlib.plots.fragment import Fragment, asset, unique_id
from cmlib.plots.style import palette_css, themed
from cmlib.plots.svg import svg_scatter

MAX_BYTES = 150_000
CONTROLS = {"seconds": 1.1, "start": "last", "toggle": ""}


class Player(Fragment):
    """What `player` returns: shows itself in a notebook; `html` is the page fragment."""

    kind = "player"


def player(
    frames: Any,
    controls: Mapping[str, Any] | None = None,
    *,
    label: str = "",
    captions: Any = None,
    alt: Any = None,
) -> Player:
    """Pictures one steps through: `frames` is a list, or a mapping of names to lists that a reader switches between.

    A frame is an SVG text, PNG bytes or a matplotlib Figure. `alt` (required) and `captions` hold a text for each
    frame, in the same shape as `frames`; one plain list serves every group. `controls`: "seconds" a frame, "start"
    ("first", "last" or a number), "toggle" (what the groups are). More than 150 kB or a missing alt text raise
    `OptionError`.
    """
    options = {**CONTROLS, **(controls or {})}
    for name in options:
        check_name("control", name, CONTROLS)
    if not label.strip():
        raise OptionError("player: label is empty; say what the player shows")
    groups = _groups(frames)
    alts, notes = _texts(alt, groups, "alt", required=True), _texts(captions, groups, "captions", required=False)
    start = _start(options["start"], len(next(iter(groups.values()))))
    body = "".join(
        _frame(picture, g, k, alts[g][k], notes[g][k], name if len(groups) > 1 else "", (g, k) == (0, start))
        for g, (name, pictures) in enumerate(groups.items())
        for k, picture in enumerate(pictures)
    )
    page = _page(body, list(groups), label, options, start)
    if len(page.encode()) > MAX_BYTES:
        raise OptionError(f"player: {len(page.encode()) / 1000:.0f} kB; at most {MAX_BYTES // 1000} kB (fewer points?)")
    return Player(page, label)


def _groups(frames: Any) -> dict[str, list[Any]]:
    groups = {str(k): list(v) for k, v in frames.items()} if isinstance(frames, Mapping) else {"": list(frames)}
    if not groups or any(not pictures for pictures in groups.values()):
        raise OptionError("player: there are no frames")
    return groups


def _texts(given: Any, groups: Mapping[str, Sequence[Any]], name: str, required: bool) -> list[list[str]]:
    out = []
    for key, pictures in groups.items():
        texts = given[key] if isinstance(given, Mapping) else given
        texts = [""] * len(pictures) if texts is None else [str(t) for t in texts]
        if len(texts) != len(pictures):
            raise OptionError(f"player: {len(pictures)} frames need as many {name}, got {len(texts)}")
        if required and not all(text.strip() for text in texts):
            raise OptionError(f"player: {name} is empty for a frame; say what each frame shows")
        out.append(texts)
    return out


def _start(where: Any, count: int) -> int:
    if where in ("first", "last"):
        return 0 if where == "first" else count - 1
    if isinstance(where, int) and 0 <= where < count:
        return where
    raise OptionError(f"player: start is 'first', 'last' or a number below {count}, not {where!r}")


def _frame(picture: Any, group: int, k: int, alt: str, caption: str, name: str, visible: bool) -> str:
    said = html.escape(caption or alt)
    note = f"<strong>{html.escape(name)}.</strong> " if name else ""
    below = f"<figcaption>{note}{html.escape(caption)}</figcaption>" if caption or name else ""
    hidden = "" if visible else " hidden"
    where = f'data-group="{group}" data-say="{said}"'
    return f'<figure class="cm-frame" {where}{hidden}>{_picture(picture, html.escape(alt))}{below}</figure>'


def _picture(picture: Any, alt: str) -> str:
    if isinstance(picture, str):
        if not picture.lstrip().startswith("<svg") or re.search(r"<script|(?:href|src)\s*=\s*[\"']?(?:https?:)?//", picture):
            raise OptionError("player: a text frame must be an <svg> without scripts or outside references")
        return f'<div role="img" aria-label="{alt}">{themed(picture)}</div>'
    if not isinstance(picture, bytes):
        from cmlib.plots import inline

        return f'<div role="img" aria-label="{alt}">{inline.frame(picture)}</div>'
    return f'<img class="dark-light" alt="{alt}" src="data:image/png;base64,{base64.b64encode(picture).decode("ascii")}">'


def _page(body: str, names: Sequence[str], label: str, options: Mapping[str, Any], start: int) -> str:
    name = unique_id("".join([label, body, repr(sorted(options.items()))]))
    said = html.escape(label)
    toggle = _toggle(name, names, html.escape(str(options["toggle"]) or label)) if len(names) > 1 else ""
    last = body.count('data-group="0"') - 1
    bar = (
        f'<div class="cm-bar" hidden><button type="button">Play</button>'
        f'<input type="range" min="0" max="{last}" step="1" value="{start}" aria-label="{said}"><output></output></div>'
    )
    pace = round(1000 * float(options["seconds"]))
    script = asset("player.js").replace("ID", json.dumps(name), 1).replace("START", str(start), 1).replace("PACE", str(pace), 1)
    css = asset("player.css") + palette_css(".cm-player", body)
    stage = f'<div class="cm-stage" role="group" aria-label="{said}" tabindex="0">{body}</div>'
    return (
        f'<div class="cm-player" id="{name}" role="group" aria-label="{said}"><style>{css}</style>'
        f"{toggle}{stage}{bar}<script>{script}</script></div>"
    )


def _toggle(name: str, names: Sequence[str], said: str) -> str:
    choices = "".join(
        f'<label><input type="radio" name="{name}-group" value="{g}"{" checked" * (g == 0)}> {html.escape(n)}</label>'
        for g, n in enumerate(names)
    )
    return f'<div class="cm-toggle" role="radiogroup" aria-label="{said}" hidden>{choices}</div>'


# --- the embedding space over tasks ------------------------------------------------------------------------------


def space_player(
    frames: Any,
    *,
    label: str,
    class_names: Sequence[str] | None = None,
    classes_per_task: int = 2,
    controls: Mapping[str, Any] | None = None,
    max_points: int = 400,
    place: str = geometry.Projection.place,
) -> Player:
    """An embedding space over tasks: a list of `Space` (or tuples as in `embedding_space`), or named lists of them.

    Each list has ONE basis, that of its last frame. Captions and alt texts say the variance shown and how often the
    drawn cells are wrong. At most `max_points` points a frame are drawn (the first ones); the rates count all of them.
    place: what a class's place is called.
    """
    groups = frames if isinstance(frames, Mapping) else {"": frames}
    pictures: dict[str, list[str]] = {}
    captions: dict[str, list[str]] = {}
    for name, moments in groups.items():
        pictures[name], captions[name] = _space_frames(moments, class_names, classes_per_task, max_points, place)
    if not isinstance(frames, Mapping):
        return player(pictures[""], controls, label=label, captions=captions[""], alt=captions[""])
    return player(pictures, controls, label=label, captions=captions, alt=captions)


def _space_frames(moments: Any, names: Any, per_task: int, limit: int, place: str) -> tuple[list[str], list[str]]:
    from cmlib.plots.figures import as_space

    spaces = [as_space(moment) for moment in moments]
    view = geometry.project(spaces, place=place)
    pictures, captions = [], []
    for k, space in enumerate(spaces):
        pictures.append(
            svg_scatter(
                view.points[k][:limit], space.labels[:limit], view.centroids[k], space.classes,
                extent=view.extent, trails=geometry.earlier(spaces, view, k), names=names, classes_per_task=per_task,
            )
        )  # fmt: skip
        title = space.title or f"Picture {k + 1}"
        captions.append(
            f"{title[:1].upper()}{title[1:]}: {len(space.classes)} classes; {view.right[k]:.0f} % of the points are nearest to "
            f"the {place} of their class. The cells drawn are wrong for {view.disagreement[k]:.1f} % of the points; the plane "
            f"holds {view.explained:.0f} % of the last picture's variance."
        )
    return pictures, captions
