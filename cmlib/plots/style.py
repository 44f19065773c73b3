"""One style for every picture of the book: hue says the task, shade and marker say the class within the task.

The ten colours stay apart under the three common kinds of colour blindness and keep a contrast on white and on the
dark theme alike. Backgrounds are transparent. Sizes are made for a phone, where a figure of 6.4 inches shrinks to half.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PALETTE: tuple[str, ...] = (
    *("#3a4eff", "#96a4c5"),  # task 1: blue
    *("#b8440b", "#e9a465"),  # task 2: orange
    *("#217f78", "#18caa1"),  # task 3: green
    *("#a33ba7", "#f752f7"),  # task 4: purple
    *("#6d6744", "#bfb61b"),  # task 5: olive
)
HUES = ("blue", "orange", "green", "purple", "olive")
INK = "#757575"  # text and axes: readable on white; the page brightens figures in its dark theme
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
