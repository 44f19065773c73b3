"""One style for every picture of the book: hue says the task, shade and marker say the class within the task.

`THEME` is the one table of colours: each has a value for light and one for dark pages. Drawings are made in the light ones; what
a page shows names them as CSS variables (`themed`), which `palette_css` sets for both themes. The ten colours of the tasks stay
apart under the three common kinds of colour blindness; methods have colours of their own (`method_colour`), told apart by marker
and line style as well. Backgrounds are transparent. Sizes are made for a column of text; `cm.show` draws anew for a phone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from cmlib.errors import check_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE: tuple[str, ...] = (
    *("#3f48f3", "#8091b9"),  # task 1: blue
    *("#a13800", "#c08650"),  # task 2: orange
    *("#00696a", "#00a582"),  # task 3: green
    *("#912aa5", "#e151ef"),  # task 4: purple
    *("#605236", "#9f9500"),  # task 5: olive
)
DARK_PALETTE: tuple[str, ...] = (
    *("#7a85f7", "#c2e1ff"),
    *("#e5873d", "#f5c688"),
    *("#28ad99", "#5ef2c9"),
    *("#ae69b3", "#c2aaff"),
    *("#8b8959", "#ffff80"),
)
INK = "#5b6066"  # text and axes
GREY = "#757575"  # what stands in the background: lines of reference, what a page has no better colour for
STRONG = "#33373c"  # edges, and marks of ours beside the paper's
GROUND = "#fefefe"  # the inside of an open mark: white, or as dark as the page
DARK_GROUND = "#14181e"
FIRM, WEAK = "#56636f", "#c3cad1"  # fills of what stands out, and of what does so a little


class Look(NamedTuple):
    """How a method is drawn: its colour on a light and on a dark page, its marker, its line."""

    colour: str
    dark: str
    marker: str
    line: str | tuple[int, tuple[int, ...]]


METHOD_LOOKS: dict[str, Look] = {
    "naive": Look("#6b6b6b", "#a0a0a0", "<", (0, (1, 1))),
    "cumulative": Look("#262626", "#f0f0f0", ">", (0, (5, 2))),
    "ewc": Look("#6b380d", "#ad7d66", "^", "-"),
    "oewc": Look("#996852", "#eab6b1", "v", (0, (4, 1, 1, 1))),
    "er": Look("#0479ac", "#45bdf5", "s", "-"),
    "gem": Look("#2e7d32", "#7ee07a", "D", (0, (6, 2))),
    "emr": Look("#2b4966", "#a5d1bd", "X", (0, (3, 1, 1, 1))),
    "ssil": Look("#7a0045", "#e06aa0", "P", (0, (4, 2))),
    "cope": Look("#806000", "#d8a800", "p", (0, (2, 1))),
    "cm": Look("#d0003f", "#ff6470", "o", "-"),
}
OTHER = Look("#4f5b66", "#b4bfca", "h", (0, (3, 2)))  # a method that the paper does not have: a reader's own

THEME: dict[str, tuple[str, str]] = {  # name of the variable: value on a light and on a dark page
    "ink": (INK, "#b4b8be"),
    "grey": (GREY, "#9a9a9a"),
    "strong": (STRONG, "#dfe2e6"),
    "ground": (GROUND, DARK_GROUND),
    "firm": (FIRM, "#c3cad2"),
    "weak": (WEAK, "#3d464f"),
    **{f"t{k // 2 + 1}{'ab'[k % 2]}": pair for k, pair in enumerate(zip(PALETTE, DARK_PALETTE, strict=True))},
    **{f"m-{name}": (look.colour, look.dark) for name, look in METHOD_LOOKS.items()},
    "m-other": (OTHER.colour, OTHER.dark),
}
TEXTS = ("ink", "grey", "strong", *(f"t{k}a" for k in range(1, 6)), *(name for name in THEME if name.startswith("m-")))
_VARIABLE = {light: name for name, (light, _) in THEME.items()}
_HEX = re.compile("|".join(_VARIABLE))
_NAMED = re.compile(r"var\(--cm-([\w-]+)\)")
DARK_PAGES = ("html[data-theme=dark]", "html[theme=dark]", "body[data-jp-theme-light=false]")  # the book, Colab, JupyterLab

ACCURACY_STOPS = ("#efe3c8", "#9fb6d6", "#3a4eff", "#20278a")  # 0 % pale sand .. 100 % deep blue, evenly spaced
INK_FROM = 58.9  # percent; numbers are white on darker cells than this, black on others: a contrast of 4.5 and more
MARKERS = ("o", "s")
WIDTH = 6.4  # inches
FONT_SIZE = 13

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": FONT_SIZE,
    "axes.titlesize": FONT_SIZE,
    "axes.labelsize": FONT_SIZE,
    "xtick.labelsize": FONT_SIZE - 1,
    "ytick.labelsize": FONT_SIZE - 1,
    "legend.fontsize": FONT_SIZE - 1,
    "figure.titlesize": FONT_SIZE + 1,
    "axes.titlelocation": "left",
    "figure.figsize": (WIDTH, 3.8),
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "savefig.transparent": True,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.linewidth": 2.2,
    "lines.markersize": 7,
    "svg.hashsalt": "cmlib",
    "figure.constrained_layout.use": True,
}


def task_colour(i: int) -> str:
    """The colour of task `i` (0-based); after five tasks the hues come round again."""
    return PALETTE[2 * (i % 5)]


def class_colour(label: int, classes_per_task: int = 2) -> str:
    """The colour of a class by its renumbered label: hue from the task, shade from the place in the task."""
    task, place = divmod(int(label), classes_per_task)
    return PALETTE[2 * (task % 5) + place % 2]


def class_marker(label: int, classes_per_task: int = 2) -> str:
    """Circle for the first class of a task, square for the second, and so on in turn."""
    return MARKERS[int(label) % classes_per_task % 2]


def method_colour(name: str) -> str:
    """The colour of a method by its name in `METHODS` or as tables write it (`CM`, `SS-IL`); never that of a task.

    A reader's own method has one neutral colour. An unknown name raises `OptionError`.
    """
    return method_look(name).colour


def method_look(name: str) -> Look:
    """Colour, marker and line of a method, so that it is told apart without its colour as well; names as in `method_colour`."""
    key = re.sub(r"[^a-z0-9]", "", str(name).lower())
    if key in METHOD_LOOKS:
        return METHOD_LOOKS[key]
    from cmlib.methods import METHODS

    titles = {re.sub(r"[^a-z0-9]", "", text.lower()) for one, kind in METHODS.items() for text in (one, kind.title)}
    if key not in titles:
        check_name("method", str(name), METHODS)
    return OTHER


def themed(text: str) -> str:
    """A piece of HTML or SVG whose colours of the book's style are named as CSS variables."""
    return _HEX.sub(lambda found: f"var(--cm-{_VARIABLE[found[0]]})", text)


def palette_css(selector: str, text: str) -> str:
    """The rules that give the variables in `text` their values below `selector`: light, and dark on the screen's dark pages."""
    names = sorted(set(_NAMED.findall(text)) & set(THEME), key=list(THEME).index)
    if not names:
        return ""
    light, dark = ("".join(f"--cm-{name}:{THEME[name][k]};" for name in names) for k in (0, 1))
    pages = ",".join(f"{page} {selector}" for page in DARK_PAGES)
    return f"{selector}{{{light[:-1]}}}@media screen{{{pages}{{{dark[:-1]}}}}}"


def accuracy_colours(percent: float) -> tuple[str, str]:
    """Fill and text colour of an accuracy in percent."""
    place = min(max(percent, 0.0), 100.0) / 100.0 * (len(ACCURACY_STOPS) - 1)
    low = min(int(place), len(ACCURACY_STOPS) - 2)
    ends = [[int(ACCURACY_STOPS[k][i : i + 2], 16) for i in (1, 3, 5)] for k in (low, low + 1)]
    mixed = [round(a + (b - a) * (place - low)) for a, b in zip(*ends, strict=True)]
    return "#" + "".join(f"{v:02x}" for v in mixed), "#ffffff" if percent > INK_FROM else "#000000"


def use_style() -> None:
    """Make the book's style the default of every figure drawn from now on."""
    import matplotlib
    from cycler import cycler

    matplotlib.rcParams.update({**RC, "axes.prop_cycle": cycler(color=PALETTE[::2])})


@contextmanager
def styled() -> Iterator[None]:
    """The book's style for the block only."""
    import matplotlib
    from cycler import cycler

    with matplotlib.rc_context({**RC, "axes.prop_cycle": cycler(color=PALETTE[::2])}):
        yield


@contextmanager
def small_panels(
    count: int, columns: int, row: float, rest: float | None = None, title: str = "", width: float = WIDTH, **shared: Any
) -> Iterator[tuple[Figure, Any]]:
    """A figure of `count` panels in the book's style, and their axes in reading order; the title is put over it in the end.

    row, rest: inches of height for each row of panels, and for all else (unsaid: what a title needs). shared: what
    `Figure.subplots` takes.
    """
    from matplotlib.figure import Figure

    rows = -(-count // columns)
    room = (0.35 if title else 0.0) if rest is None else rest
    with styled():
        fig = Figure(figsize=(width, row * rows + room), layout="constrained")
        axes = fig.subplots(rows, columns, squeeze=False, **shared).ravel()
        for ax in axes[count:]:
            ax.set_axis_off()
        yield fig, axes[:count]
        if title:
            fig.suptitle(title, x=0.01, ha="left")


def named_lines(ax: Axes, names: Sequence[str], title: str, xlabel: str) -> None:
    """Axes with a name in place of a number for each line, the first on top."""
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    ax.set(xlabel=xlabel, title=title)
