"""A matplotlib figure as a piece of SVG inside the page: small, the same bytes every time, text as text, no identifiers.

Colours of the book's style are CSS variables (`style.THEME`), so a page in a dark theme has a palette of its own. Coordinates are
points (72 an inch), rounded to a tenth. Marks of one look become one path: a dot costs about ten bytes. Pictures stay PNG; small
ones keep their own pixels. Hatches and clip paths that are no rectangles are not drawn.
"""

from __future__ import annotations

import base64
import html
import io
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.font_manager import ttfFontProperty, weight_dict
from matplotlib.image import AxesImage
from matplotlib.path import Path
from matplotlib.transforms import Affine2D

from cmlib.plots import narrow
from cmlib.plots.fragment import asset
from cmlib.plots.style import FONT_SIZE, PALETTE, palette_css, themed

DPI = 130  # of what is stored as pixels
MANY = 1500  # a collection of more marks than this is stored as pixels
PAD = 3  # points around everything
LARGEST = 1.55  # CSS pixels a point: figures of all widths have letters of one size on a large screen
NEAR = 0.08  # points: a line of many steps may pass so far from where they were
FINE = 24  # a shape smaller than so many points gets a second decimal

Box = tuple[float, float, float, float]  # x0, y0, x1, y1 in points, y downward


@dataclass
class Mark:
    """One element: `head` its tag with all but the data of the path, `data` that data, `clip` the box it is cut to."""

    head: str
    data: list[str] = field(default_factory=list)
    clip: Box | None = None
    tail: str = ""
    grows: bool = False  # whether more of the same look may join it

    def __str__(self) -> str:
        return f'{self.head} d="{"".join(self.data)}"/>' if self.data else f"{self.head}{self.tail}"


def number(value: float, digits: int = 1) -> str:
    """A coordinate without the zeros that say nothing: 0.50 -> .5, 3.0 -> 3."""
    text = f"{value:.{digits}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    text = "-" + text[2:] if text.startswith("-0.") else text[1:] if text.startswith("0.") else text
    return "0" if text in ("-0", "", "-") else text


class Pen(RendererBase):
    """Takes what matplotlib draws and keeps it as marks. `least`: the smallest letters, in points."""

    def __init__(self, width: float, height: float, least: float = 0.0) -> None:
        super().__init__()
        self.width, self.height, self.least = width, height, least
        self.marks: list[Mark] = []
        self._axis = -1  # where the marks of the axis begin that is being drawn

    # -- what matplotlib asks ---------------------------------------------------------------------------------------

    def get_canvas_width_height(self) -> tuple[float, float]:
        return self.width, self.height

    def get_image_magnification(self) -> float:
        return DPI / 72

    def option_image_nocomposite(self) -> bool:
        return True

    def option_scale_image(self) -> bool:
        return True

    def get_text_width_height_descent(self, s: str, prop: Any, ismath: Any) -> tuple[float, float, float]:
        return self._text2path.get_text_width_height_descent(s, prop, ismath)

    def open_group(self, s: str, gid: str | None = None) -> None:
        if s.startswith("matplotlib.axis"):
            self._axis = len(self.marks)

    def close_group(self, s: str) -> None:
        if s.startswith("matplotlib.axis"):
            self._axis = -1

    # -- lines and areas ---------------------------------------------------------------------------------------------

    def draw_path(self, gc: Any, path: Any, transform: Any, rgbFace: Any = None) -> None:
        to_page = transform + Affine2D().scale(1, -1).translate(0, self.height)
        area = rgbFace if len(path.vertices) > 2 else None  # a tick has two points, and nothing to fill
        ink, fill = _paint(gc, rgbFace, fill=False), _paint(gc, area, fill=True)
        if not (ink or fill) or not len(path.vertices):
            return
        wide = gc.get_linewidth() if ink else 0.0
        dot = _circle(path, to_page)
        if dot and fill and (not ink or ink == fill):
            self._dot(gc, *dot, fill, wide)
            return
        data, box = _round_data(*dot) if dot else _data(path, to_page, plain=fill is None)
        if not data:
            return
        look = [f' fill="{fill[0]}"' if fill else ' fill="none"']
        look += [f' fill-opacity="{fill[1]}"'] if fill and fill[1] else []
        look += _line_look(gc, ink, wide) if ink else []
        turns = ("+" if _area(path, to_page) > 0 else "-") if fill and not ink else ""
        mark = Mark(f"<path{''.join(look)}", [data], self._clip(gc, box, wide), turns, bool(ink) != bool(fill))
        self._keep(mark, simple=len(path.vertices) <= 30)

    def _dot(self, gc: Any, x: float, y: float, radius: float, fill: tuple[str, str], wide: float) -> None:
        """A filled circle: a line of no length with a round end."""
        faint = f' stroke-opacity="{fill[1]}"' if fill[1] else ""
        head = f'<path fill="none" stroke="{fill[0]}"{faint} stroke-width="{number(2 * radius + wide, 2)}" stroke-linecap="round"'
        reach = radius + wide / 2
        clip = self._clip(gc, (x - reach, y - reach, x + reach, y + reach), 0)
        self._keep(Mark(head, [f"M{number(x)} {number(y)}h0"], clip, grows=True))

    def _keep(self, mark: Mark, simple: bool = True) -> None:
        """Add a mark, or let it join one of the same look: the one before, texts between them aside, or any of one axis."""
        if mark.grows and simple:
            first = self._axis if self._axis >= 0 else 0
            for k in range(len(self.marks) - 1, first - 1, -1):
                other = self.marks[k]
                if other.grows and (other.head, other.clip, other.tail) == (mark.head, mark.clip, mark.tail):
                    other.data += mark.data
                    return
                if (other.data and self._axis < 0) or other.head.startswith("<image"):
                    break
        self.marks.append(mark)

    def _clip(self, gc: Any, box: Box, wide: float) -> Box | None:
        """The box a mark is cut to; None when it lies inside (a little beyond the border is inside)."""
        given = gc.get_clip_rectangle()
        if given is None and gc.get_clip_path()[0] is not None:
            path, transform = gc.get_clip_path()
            given = path.get_extents(transform)
        if given is None:
            return None
        x0, y0, x1, y1 = given.x0, self.height - given.y1, given.x1, self.height - given.y0
        slack = 3 + wide
        if box[0] >= x0 - slack and box[1] >= y0 - slack and box[2] <= x1 + slack and box[3] <= y1 + slack:
            return None
        return round(x0, 1), round(y0, 1), round(x1, 1), round(y1, 1)

    # -- letters -----------------------------------------------------------------------------------------------------

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False, mtext: Any = None
    ) -> None:
        size = max(prop.get_size_in_points(), self.least)
        look = self._letters(gc, size, prop)
        if ismath:
            spans, bars = self._formula(s, prop)
            place = _turned(x, y, angle) if angle else f' transform="translate({number(x)} {number(y)})"'
            self.marks.append(Mark(f"<text{look}{place}>", tail=f"{spans}</text>"))
            self.marks += [Mark(f'<path fill="currentColor"{place}', [bar]) for bar in bars]
            return
        wide = self.get_text_width_height_descent(s, prop, False)[0]
        upright = angle == 0 or (mtext is not None and mtext.get_rotation_mode() == "anchor")
        side = {"left": 0.0, "right": 1.0}.get(mtext.get_ha() if mtext is not None else "left", 0.5) if upright else 0.5
        turn = math.radians(angle)
        x, y = x + side * wide * math.cos(turn), y - side * wide * math.sin(turn)
        anchor = {0.0: "", 0.5: ' text-anchor="middle"', 1.0: ' text-anchor="end"'}[side]
        self.marks.append(Mark(f"<text{look}{anchor}{_turned(x, y, angle)}>", tail=f"{html.escape(s, quote=False)}</text>"))

    def _letters(self, gc: Any, size: float, prop: Any) -> str:
        colour, faint = _paint(gc, None, fill=False, letters=True) or ("none", "")
        if colour in PALETTE:  # the second shade of a hue is too light to be read
            colour = PALETTE[PALETTE.index(colour) // 2 * 2]
        weight = prop.get_weight()
        bold = weight_dict.get(weight, weight) >= 600
        shade = themed(colour)
        look = "" if shade == themed_ink() else f' fill="{colour}"' if shade != colour else f' style="fill:{colour}"'
        look += f' fill-opacity="{faint}"' if faint else ""
        look += f' font-size="{number(size)}"' if abs(size - FONT_SIZE) > 0.05 else ""
        return look + ' font-weight="bold"' * bold + ' font-style="italic"' * (prop.get_style() != "normal")

    def _formula(self, s: str, prop: Any) -> tuple[str, list[str]]:
        """A formula, its letters one by one in their places; and its bars."""
        *_, glyphs, rects = self._text2path.mathtext_parser.parse(s, 72, prop)
        runs: list[tuple[str, list[str], str, list[str]]] = []  # look, x, y, letters
        for font, size, code, *_, x, y in sorted(glyphs, key=lambda glyph: glyph[-2]):
            entry = ttfFontProperty(font)
            look = f' font-size="{number(max(size, self.least))}"' + ' font-style="italic"' * (entry.style != "normal")
            look += ' font-weight="bold"' * (weight_dict.get(entry.weight, entry.weight) >= 600)
            letter, at = html.escape(chr(0xA0 if code == 32 else code), quote=False), number(-y)
            if not runs or (runs[-1][0], runs[-1][2]) != (look, at):
                runs.append((look, [], at, []))
            runs[-1][1].append(number(x))
            runs[-1][3].append(letter)
        spans = [f'<tspan{look} x="{" ".join(xs)}" y="{y}">{"".join(letters)}</tspan>' for look, xs, y, letters in runs]
        bars = [f"M{number(x)} {number(-y)}h{number(w)}v{number(-h, 2)}h{number(-w)}z" for x, y, w, h in rects]
        return "".join(spans), bars

    # -- pictures ----------------------------------------------------------------------------------------------------

    def draw_image(self, gc: Any, x: float, y: float, im: Any, transform: Any = None) -> None:
        rows, columns = im.shape[:2]
        if not rows or not columns:
            return
        if transform is None:
            corners = np.array([[x, y], [x + columns * 72 / DPI, y + rows * 72 / DPI]])
        else:
            corners = transform.transform([[0, 0], [1, 1]]) + np.array([x, y])
        corners[:, 1] = self.height - corners[:, 1]
        (xa, ya), (xb, yb) = corners  # of the first pixel of the first row, of the last one of the last
        pixels = np.ascontiguousarray(im[:: 1 if ya < yb else -1, :: 1 if xa < xb else -1])
        x0, x1, y0, y1 = min(xa, xb), max(xa, xb), min(ya, yb), max(ya, yb)
        place = f'x="{number(x0)}" y="{number(y0)}" width="{number(x1 - x0)}" height="{number(y1 - y0)}"'
        look = "" if transform is None else ' style="image-rendering:pixelated"'
        alpha = gc.get_alpha() if transform is not None and gc.get_alpha() not in (None, 1) else None
        look += f' opacity="{number(alpha, 2)}"' if alpha is not None else ""
        data = base64.b64encode(pixel_png(pixels)).decode("ascii")
        head = f'<image {place} preserveAspectRatio="none"{look} href="data:image/png;base64,{data}"/>'
        self.marks.append(Mark(head, clip=self._clip(gc, (x0, y0, x1, y1), 0)))

    # -- the whole ---------------------------------------------------------------------------------------------------

    def body(self) -> str:
        """All marks; those that are cut lie in a frame of their own, which hides what is outside."""
        parts: list[str] = []
        clip: Box | None = None
        for mark in [*self.marks, Mark("")]:
            if mark.clip != clip:
                parts += ["</svg>"] if clip else []
                clip = mark.clip
                if clip:
                    x, y, w, h = (number(v) for v in (clip[0], clip[1], clip[2] - clip[0], clip[3] - clip[1]))
                    parts.append(f'<svg x="{x}" y="{y}" width="{w}" height="{h}" viewBox="{x} {y} {w} {h}">')
            parts.append(str(mark) if mark.data or not mark.grows else "")
        return "".join(parts)


# -- looks and shapes ----------------------------------------------------------------------------------------------------


def themed_ink() -> str:
    return "var(--cm-ink)"


def _paint(gc: Any, face: Any, fill: bool, letters: bool = False) -> tuple[str, str] | None:
    """Colour and opacity (empty: 1) of an area or a line; None where nothing is painted."""
    rgba = face if fill else gc.get_rgb()
    if rgba is None or (not fill and not letters and gc.get_linewidth() <= 0):
        return None
    alpha = gc.get_alpha() if gc.get_forced_alpha() else (rgba[3] if len(rgba) > 3 else 1.0)
    if not alpha or (len(rgba) > 3 and not rgba[3]):
        return None
    return to_hex(rgba[:3]), "" if alpha >= 0.995 else number(alpha, 2)


def _line_look(gc: Any, ink: tuple[str, str], wide: float) -> list[str]:
    look = [f' stroke="{ink[0]}"']
    look += [f' stroke-opacity="{ink[1]}"'] if ink[1] else []
    look += [f' stroke-width="{number(wide, 2)}"'] if abs(wide - 1) > 0.005 else []
    offset, dashes = gc.get_dashes()
    if dashes is not None:
        look.append(f' stroke-dasharray="{" ".join(number(v) for v in dashes)}"')
        look += [f' stroke-dashoffset="{number(offset)}"'] if offset else []
    cap, join = {"projecting": "square"}.get(gc.get_capstyle(), gc.get_capstyle()), gc.get_joinstyle()
    look += [f' stroke-linecap="{cap}"'] if cap != "butt" else []
    return look + ([f' stroke-linejoin="{join}"'] if join != "round" else [])


def _circle(path: Any, to_page: Any) -> tuple[float, float, float] | None:
    """Middle and radius of a path that is a circle."""
    if path.codes is None or len(path.vertices) != 26 or not (path.codes[1:25] == Path.CURVE4).all():
        return None
    at = to_page.transform(path.vertices[:25])
    (x0, y0), (x1, y1) = at.min(axis=0), at.max(axis=0)
    wide, high = x1 - x0, y1 - y0
    return ((x0 + x1) / 2, (y0 + y1) / 2, wide / 2) if abs(wide - high) < 0.05 else None


def _round_data(x: float, y: float, r: float) -> tuple[str, Box]:
    radius, two = number(r, 2), number(2 * r, 2)
    arc = f"a{radius} {radius} 0 1 0 {two} 0a{radius} {radius} 0 1 0-{two} 0z"
    return f"M{number(x - r, 2)} {number(y)}{arc}", (x - r, y - r, x + r, y + r)


_LETTERS = {Path.MOVETO: "M", Path.LINETO: "l", Path.CURVE3: "q", Path.CURVE4: "c", Path.CLOSEPOLY: "z"}


def _data(path: Any, to_page: Any, plain: bool) -> tuple[str, Box]:
    """A path's data, relative from point to point, and the box around it; `plain`: a line, whose points may be thinned out."""
    segments = _thinned(list(path.iter_segments(to_page, remove_nans=True, simplify=plain and path.should_simplify)))
    points = [v.reshape(-1, 2) for v, code in segments if code != Path.CLOSEPOLY and len(v)]
    if not points:
        return "", (0.0, 0.0, 0.0, 0.0)
    every = np.concatenate(points)
    (x0, y0), (x1, y1) = every.min(axis=0), every.max(axis=0)
    digits = 2 if max(x1 - x0, y1 - y0) < FINE else 1
    unit, out, here, last = 10**digits, [], np.zeros(2, dtype=np.int64), ""
    for vertices, code in segments:
        letter = _LETTERS[code]
        if letter == "z":
            out.append("z")
            last = "z"
            continue
        at = np.rint(vertices.reshape(-1, 2) * unit).astype(np.int64)
        steps = at if letter == "M" else at - here
        texts = [number(v / unit, digits) for v in steps.ravel().tolist()]
        flat = "".join(t if k == 0 or t.startswith("-") else f" {t}" for k, t in enumerate(texts))
        same = letter == last and letter != "M"
        out.append((("" if flat.startswith("-") else " ") if same else letter) + flat)
        here, last = at[-1], letter
    return "".join(out), (float(x0), float(y0), float(x1), float(y1))


def _thinned(segments: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The segments without the points of long runs of straight steps that nobody would miss."""
    out: list[tuple[Any, Any]] = []
    k = 0
    while k < len(segments):
        end = k
        while end < len(segments) and segments[end][1] == Path.LINETO:
            end += 1
        if end - k > 8 and k and segments[k - 1][1] != Path.CLOSEPOLY:
            points = np.array([segments[k - 1][0][-2:], *(vertices for vertices, _ in segments[k:end])])
            kept = _needed(points)[1:]
            out += [segments[k + j] for j in range(end - k) if kept[j]]
            k = end
        else:
            out += segments[k : max(end, k + 1)]
            k = max(end, k + 1)
    return out


def _needed(points: Any) -> Any:
    """Which points [n, 2] a line needs so that it passes within `NEAR` of all (Ramer, Douglas and Peucker). -> bool [n]"""
    kept = np.zeros(len(points), dtype=bool)
    kept[[0, -1]] = True
    spans = [(0, len(points) - 1)]
    while spans:
        a, b = spans.pop()
        if b - a < 2:
            continue
        step, inner = points[b] - points[a], points[a + 1 : b] - points[a]
        length = float(np.hypot(*step))
        if length > NEAR:
            along = np.clip(inner @ step / length**2, 0, 1)
            off = np.hypot(*(inner - along[:, None] * step).T)
        else:
            off = np.hypot(*inner.T)
        worst = int(off.argmax())
        if off[worst] > NEAR:
            kept[a + 1 + worst] = True
            spans += [(a, a + 1 + worst), (a + 1 + worst, b)]
    return kept


def _area(path: Any, to_page: Any) -> float:
    """Twice the signed area of a path's points: which way round it goes."""
    x, y = to_page.transform(path.vertices).T
    return float(np.nansum(x * np.roll(y, -1) - y * np.roll(x, -1)))


def _turned(x: float, y: float, angle: float) -> str:
    if not angle:
        return f' x="{number(x)}" y="{number(y)}"'
    return f' transform="translate({number(x)} {number(y)})rotate({number(-angle)})"'


def pixel_png(pixels: Any) -> bytes:
    """Pixels [h, w, 4] of bytes as a PNG, with a palette where 256 colours do; the nearest 256 else."""
    from PIL import Image

    colours, index = np.unique(pixels.reshape(-1, 4), axis=0, return_inverse=True)
    out = io.BytesIO()
    if len(colours) > 256:
        image = Image.fromarray(pixels, "RGBA").quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        image.save(out, "png", optimize=True)
        return out.getvalue()
    image = Image.fromarray(index.reshape(pixels.shape[:2]).astype(np.uint8), "P")
    image.putpalette(colours[:, :3].astype(np.uint8).tobytes(), "RGB")
    opaque = bool((colours[:, 3] == 255).all())
    image.save(out, "png", optimize=True, **({} if opaque else {"transparency": colours[:, 3].astype(np.uint8).tobytes()}))
    return out.getvalue()


# -- a figure ------------------------------------------------------------------------------------------------------------


@contextmanager
def _prepared(fig: Any) -> Iterator[None]:
    """72 dots an inch, small pictures with their own pixels, collections of very many marks as pixels; all as before after."""
    undo: list[Any] = [(fig.set_dpi, fig.get_dpi())]
    fig.set_dpi(72)
    for artist in fig.findobj(lambda one: isinstance(one, AxesImage | Collection)):
        if isinstance(artist, AxesImage):
            kind, shape = artist.get_interpolation(), artist.get_size()
            if kind in ("auto", "antialiased", "nearest") and max(shape) <= 240:
                undo.append((artist.set_interpolation, kind))
                artist.set_interpolation("none")
        elif len(artist.get_offsets()) > MANY:
            undo.append((artist.set_rasterized, artist.get_rasterized()))
            artist.set_rasterized(True)
    try:
        yield
    finally:
        for setter, value in reversed(undo):
            setter(value)


def drawn(fig: Any, least: float = 0.0) -> tuple[str, Box]:
    """What a figure holds as SVG elements, and the box of the picture in points: as wide as the figure, as high as is drawn."""
    with _prepared(fig):
        width, height = (float(v) * 72 for v in fig.get_size_inches())
        pen = Pen(width, height, least)
        fig.draw(MixedModeRenderer(fig, width, height, DPI, pen))
        tight = fig.get_tightbbox(pen)
    x0, x1 = min(0.0, tight.x0 * 72 - 1), max(width, tight.x1 * 72 + 1)
    return themed(pen.body()), (x0, height - tight.y1 * 72 - PAD, x1, height - tight.y0 * 72 + PAD)


def svg(fig: Any, alt: str, kind: str, least: float = 0.0) -> str:
    """A figure as one `<svg>` with its alternative text and a class."""
    body, (x0, y0, x1, y1) = drawn(fig, least)
    view = " ".join(number(v) for v in (x0, y0, x1 - x0, y1 - y0))
    most = number((x1 - x0) * LARGEST, 0)
    start = f'<svg class="{kind}" role="img" aria-label="{html.escape(alt)}" viewBox="{view}" style="max-width:{most}px">'
    return f"{start}{body}</svg>"


def frame(fig: Any) -> str:
    """A figure as a frame of a player: all of its area, so that frames of one size stay in their places."""
    body, _ = drawn(fig, narrow.LEAST)
    width, height = (number(float(v) * 72) for v in fig.get_size_inches())
    return f'<svg class="cm-frame-svg" viewBox="0 0 {width} {height}">{body}</svg>'


def page(fig: Any, alt: str, below: str = "") -> str:
    """A figure for a page: wide and narrow drawing, of which the page's width shows one, and the styles of both.

    below: HTML under the drawings. A pyplot figure is closed, otherwise a notebook would draw it a second time.
    """
    if float(fig.get_size_inches()[0]) <= narrow.FITS:
        drawings = svg(fig, alt, "cm-any", narrow.LEAST)
    else:
        drawings = svg(fig, alt, "cm-wide")
        dpi = fig.get_dpi()
        fig.set_dpi(72)
        with narrow.narrowed(fig, Pen(*(float(v) * 72 for v in fig.get_size_inches()))):
            drawings += svg(fig, alt, "cm-narrow", narrow.LEAST)
        fig.set_dpi(dpi)
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(fig)
    css = asset("figure.css") + palette_css(".cm-figure", f"var(--cm-ink){drawings}")
    return f'<style>{css}</style><figure class="cm-figure">{drawings}{below}</figure>'
