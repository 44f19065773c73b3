"""Figure 2: accuracy against the size of the exemplar memory (a), and what each method keeps against the number of tasks (b).

The paper prints neither figure's numbers. 2a is drawn from the runs of the grid `figure2a`, beside the bounds of table 1; 2b
from `cmlib.footprint`, by the paper's formulas and by every scalar kept, with what stored runs really kept as marks.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cmlib import footprint
from cmlib.experiment import Experiment
from cmlib.footprint import Setting
from cmlib.methods import METHODS
from cmlib.plots.calculator import COLOURS
from cmlib.plots.style import METHOD_LOOKS
from cmlib.reproduction import grids, render
from cmlib.reproduction.figures import Drawing
from cmlib.reproduction.tables import Found
from cmlib.store import Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = {name: METHOD_LOOKS[name].marker for name in ("cm", "er", "gem", "ssil", "emr", "cope", "ewc", "oewc")}
LINES = {name: METHOD_LOOKS[name].line for name in MARKERS}
BOUNDS = ("naive", "cumulative")
Row = dict[str, Any]

# -- 2a: accuracy against the size of the memory ---------------------------------------------------------------------------


def draw_2a(profile: str, stores: Sequence[Store]) -> Drawing:
    """Accuracy in CIL against the exemplars of all tasks, one line a method; whiskers from the lowest run to the highest.

    rows: of kind `point`, method, exemplars (in all), option (memory_size of the runs), n runs, stopped, and of the accuracies in
    percent the mean, the population's sd, lowest and highest (None where nothing has run); of kind `run`, one run, with its seed.
    """
    found = Found(stores, profile)
    cells = grids.load("figure2a").cells(profile)
    rows = [row for cell in cells for row in _measured(found, cell.experiments(profile)[0])]
    bounds = [row for name in BOUNDS for row in _measured(found, Experiment(cells[0].dataset, "cil", name, profile=profile))]
    title = _title_2a(rows)
    fig = _figure_2a(points(rows), points(bounds), title)
    notes = _notes_2a(points(rows), points(bounds), profile, cells[0].dataset)
    return Drawing(fig, rows, _alt_2a(points(rows), title), title, tuple(notes))


def _measured(found: Found, experiment: Experiment) -> list[Row]:
    """What the runs of one place say, whatever their seed: the point, then each run."""
    runs, stopped, _ = found.of(experiment)
    values = [run.accuracy for run in runs]
    size = experiment.options.get("memory_size", 0)
    in_all = size if experiment.method in footprint.SHARED else size * experiment.n_tasks
    place = {"method": experiment.method, "exemplars": in_all, "option": size}
    point = {
        **{"kind": "point", **place, "n": len(values), "stopped": stopped},
        "accuracy": render.mean(values),
        "sd": render.deviation(values),
        "lowest": min(values, default=None),
        "highest": max(values, default=None),
    }
    return [point, *({"kind": "run", **place, "seed": run.seed, "accuracy": run.accuracy, "run": run.id} for run in runs)]


def points(rows: Sequence[Row]) -> list[Row]:
    """The rows of 2a that are points."""
    return [row for row in rows if row["kind"] == "point"]


def _by_method(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of each method that have runs, in the order of the memory's size; methods without any are left out."""
    lines: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["exemplars"]):
        if row["n"]:
            lines.setdefault(row["method"], []).append(row)
    return lines


def compared(rows: Sequence[Row]) -> dict[int, dict[str, float]]:
    """Sizes of the memory at which CM and another method have a seed in common: the mean accuracies over the common seeds.

    rows: of `draw_2a`. Methods stand from the most accurate to the least.
    """
    sizes = {}
    for size in sorted({row["exemplars"] for row in rows}):
        ran: dict[str, dict[int, float]] = {}
        for row in rows:
            if row["kind"] == "run" and row["exemplars"] == size:
                ran.setdefault(row["method"], {})[row["seed"]] = row["accuracy"]
        common = set.intersection(*map(set, ran.values())) if "cm" in ran and len(ran) > 1 else set()
        if common:
            means = {method: statistics.fmean(values[seed] for seed in common) for method, values in ran.items()}
            sizes[size] = dict(sorted(means.items(), key=lambda pair: -pair[1]))
    return sizes


def _title_2a(rows: Sequence[Row]) -> str:
    sizes = compared(rows)
    if not sizes:
        return "Accuracy against the size of the memory: not run yet"
    leaders = [next(iter(means)) for means in sizes.values()]
    first = leaders.count("cm")
    if len(sizes) == 1:
        return f"{METHODS[leaders[0]].title} is the most accurate at the one size where several ran"
    if first == len(sizes):
        return f"CM is the most accurate at all {len(sizes)} sizes of the memory"
    others = " or ".join(sorted({METHODS[one].title for one in leaders} - {"CM"}))
    if not first:
        return f"{others} is the most accurate at each of {len(sizes)} sizes, CM at none"
    return f"CM is the most accurate at {first} of {len(sizes)} sizes, {others} at the others"


def _figure_2a(rows: Sequence[Row], bounds: Sequence[Row], title: str) -> Figure:
    from cmlib.plots.style import small_panels

    lines, sizes = _by_method(rows), sorted({row["exemplars"] for row in rows})
    with small_panels(1, 1, 4.2, 0, title) as (fig, (ax,)):
        ax.set(xscale="log", xlabel="exemplars of all tasks together", ylabel="accuracy, %", ylim=(0, 100))
        ax.set_xlim(sizes[0] / 1.25, sizes[-1] * 1.25)
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
        ax.minorticks_off()
        ax.grid(axis="y")
        for row in bounds:
            _bound(ax, row)
        for method, line in lines.items():
            _line(ax, method, line)
        name_lines(ax, [(line[-1]["exemplars"], line[-1]["accuracy"], method) for method, line in lines.items()])
        if not lines:
            ax.text(0.5, 0.5, "not run yet", transform=ax.transAxes, ha="center")
    return fig


def _bound(ax: Axes, row: Row) -> None:
    """A dashed line at the accuracy of a method that needs no size."""
    from cmlib.plots.style import INK

    if not row["n"]:
        return
    ax.axhline(row["accuracy"], color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
    where = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points", "fontsize": 10, "color": INK}
    ax.annotate(METHODS[row["method"]].title, (0, row["accuracy"]), (3, -4), va="top", **where)  # clear of the grid


def _line(ax: Axes, method: str, line: Sequence[Row]) -> None:
    colour, marker = COLOURS[method], MARKERS[method]
    apart = 1.03 ** (list(MARKERS).index(method) - 1)  # whiskers of one size side by side
    x, y = [row["exemplars"] * apart for row in line], [row["accuracy"] for row in line]
    ends = [[row["accuracy"] - row["lowest"] for row in line], [row["highest"] - row["accuracy"] for row in line]]
    width = 3.0 if method == "cm" else 1.8
    ax.errorbar(
        x, y, ends, color=colour, marker=marker, linestyle=LINES[method], linewidth=width, elinewidth=1.4, capsize=3, zorder=3
    )


def name_lines(ax: Axes, ends: Sequence[tuple[float, float, str]], gap: float = 0.062) -> None:
    """Write the names of methods to the right of the axes, at the height of their line's end, moved apart where they meet.

    ends: (x, y, method) in data. gap: the least distance of two names, as a share of the height.
    """
    scale = math.log if ax.get_yscale() == "log" else float
    low, high = map(scale, ax.get_ylim())
    heights = [(scale(y) - low) / (high - low) for _, y, _ in ends]
    for height, (_, _, method) in zip(spread_out(heights, gap), ends, strict=True):
        ax.annotate(METHODS[method].title, (1.02, height), xycoords="axes fraction", va="center", color=COLOURS[method],
                    fontsize=11, annotation_clip=False)  # fmt: skip


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """The same heights moved so that no two are closer than `gap`, as little as that takes; their order stays."""
    from sklearn.isotonic import isotonic_regression

    order, apart = np.argsort(heights, kind="stable"), gap * np.arange(len(heights))
    placed = np.empty(len(heights))
    placed[order] = isotonic_regression(np.asarray(heights)[order] - apart) + apart if len(heights) else []
    return placed.tolist()


def _alt_2a(rows: Sequence[Row], title: str) -> str:
    lines = _by_method(rows)
    said = [
        f"{METHODS[method].title} from {points[0]['accuracy']:.0f} % with {points[0]['exemplars']:,} exemplars "
        f"to {points[-1]['accuracy']:.0f} % with {points[-1]['exemplars']:,}"
        if len(points) > 1
        else f"{METHODS[method].title} {points[0]['accuracy']:.0f} % with {points[0]['exemplars']:,}"
        for method, points in lines.items()
    ]
    body = "; ".join(said) or "no run yet"
    return f"{title}. Accuracy in the class-incremental scenario against the exemplars of all tasks, on a log axis: {body}."


def _notes_2a(rows: Sequence[Row], bounds: Sequence[Row], profile: str, dataset: str) -> list[str]:
    counts = sorted({row["n"] for row in rows if row["n"]})
    runs = " to ".join(str(one) for one in dict.fromkeys((counts[0], counts[-1]))) if counts else "no"
    notes = [
        f"Profile {profile}, {dataset}, CIL: {runs} runs a point; a whisker goes from the lowest run to the highest.",
        "GEM counts exemplars a task; its points stand at the number of all tasks together.",
        "The paper's figure prints no numbers, so there are none to compare.",
    ]
    missing = [f"{METHODS[row['method']].title} {row['exemplars']:,}" for row in rows if not row["n"] and not row["stopped"]]
    missing += [METHODS[row["method"]].title for row in bounds if not row["n"] and not row["stopped"]]
    ended = [f"{METHODS[row['method']].title} {row['exemplars']:,} ({row['stopped']})" for row in rows if row["stopped"]]
    notes += [f"Not run yet: {', '.join(missing)}."] if missing else []
    return notes + ([f"Left out, the loss was not finite: {', '.join(ended)}."] if ended else [])


# -- 2b: what is kept against the number of tasks ----------------------------------------------------------------------------


def draw_2b(profile: str, stores: Sequence[Store]) -> Drawing:
    """Scalars kept between tasks against the number of tasks, by the paper's formulas and in full; marks are stored runs.

    rows: scenario, method, tasks, formula (text), by_formula and in_full (scalars), bytes, measured: the scalars that stored
    runs of so many tasks kept (None without one; the whole runs of the profile alone).
    """
    found = Found(stores, profile)
    dataset = grids.load("figure2a").cells(profile)[0].dataset
    rows = [row for scenario in ("til", "cil") for method in footprint.methods(scenario)
            for row in _growth(found, Experiment(dataset, scenario, method, profile=profile))]  # fmt: skip
    title = _title_2b(rows)
    fig = _figure_2b(rows, title)
    return Drawing(fig, rows, _alt_2b(rows, title), title, tuple(_notes_2b(rows, profile, dataset)))


def _growth(found: Found, experiment: Experiment) -> list[Row]:
    """The memory of one method after 1, 2, ... tasks, up to twice as many as the experiment has."""
    runs, _, _ = found.of(experiment)
    scenario, method = experiment.scenario, experiment.method
    rows = []
    for tasks in range(1, 2 * experiment.n_tasks + 1):
        setting = Setting.of(experiment, tasks)
        parts = footprint.kept(method, scenario, setting)
        rows.append(
            {
                "scenario": scenario,
                "method": method,
                "tasks": tasks,
                "formula": footprint.FORMULAS[method, scenario][0],
                "by_formula": footprint.formula(method, scenario, setting),
                "in_full": sum(parts.values()),
                "bytes": footprint.in_bytes(parts),
                "measured": runs[0].retained_scalars if runs and tasks == experiment.n_tasks else None,
            }
        )
    return rows


def after(rows: Sequence[Row], tasks: int, scenario: str) -> dict[str, Row]:
    """The rows of 2b after so many tasks, by method."""
    return {row["method"]: row for row in rows if row["tasks"] == tasks and row["scenario"] == scenario}


def _middle(rows: Sequence[Row]) -> int:
    """The number of tasks of the profile's experiments: half of what is drawn."""
    return int(max(row["tasks"] for row in rows)) // 2


def _title_2b(rows: Sequence[Row]) -> str:
    now = after(rows, _middle(rows), "til")
    ours, least = now["cm"], min(now.values(), key=lambda row: row["in_full"])
    times = ours["in_full"] / ours["by_formula"]
    rank = "the least" if least is ours else f"more than {METHODS[least['method']].title}"
    return f"TIL: CM keeps {times:.1f} times what its formula says, {rank}"


def _figure_2b(rows: Sequence[Row], title: str) -> Figure:
    from cmlib.plots.style import small_panels

    with small_panels(4, 2, 3.3, 0, title, sharex=True, sharey=True) as (fig, axes):
        axes = axes.reshape(2, 2)
        values = [row[key] for row in rows for key in ("by_formula", "in_full")]
        axes[0, 0].set(yscale="log", ylim=(min(values) / 2, max(values) * 2))
        for line, scenario in zip(axes, ("til", "cil"), strict=True):
            for ax, (key, head) in zip(
                line, (("by_formula", "the paper's formula"), ("in_full", "all that is kept")), strict=True
            ):
                _panel_2b(ax, [row for row in rows if row["scenario"] == scenario], key)
                ax.set_title(f"{scenario.upper()}: {head}", fontsize=12)
            line[0].set_ylabel("scalars")
        for ax in axes[1]:
            ax.set_xlabel("tasks")
    return fig


def _panel_2b(ax: Axes, rows: Sequence[Row], key: str) -> None:
    ends = []
    for method, points in itertools.groupby(rows, key=lambda row: row["method"]):
        line = list(points)
        x, y = [row["tasks"] for row in line], [row[key] for row in line]
        colour, marker = COLOURS[method], MARKERS[method]
        ax.plot(x, y, color=colour, linestyle=LINES[method], linewidth=3.0 if method == "cm" else 1.6)
        real = [(row["tasks"], row["measured"]) for row in line if row["measured"]]
        if key == "in_full" and real:
            ax.plot(*zip(*real, strict=True), color=colour, marker=marker, linestyle="", zorder=4)
        ends.append((x[-1], y[-1], method))
    ax.grid(axis="y")
    ax.set_xticks([tasks for tasks in (1, 5, 10, 15, 20) if tasks <= max(row["tasks"] for row in rows)])
    ax.tick_params(axis="y", which="minor", length=0)
    name_lines(ax, ends, 0.085)


def _alt_2b(rows: Sequence[Row], title: str) -> str:
    tasks, said = _middle(rows), []
    for scenario in ("til", "cil"):
        parts = [f"{METHODS[method].title} {row['by_formula']:,} and {row['in_full']:,}"
                 for method, row in after(rows, tasks, scenario).items()]  # fmt: skip
        said.append(f"{scenario.upper()}, after {tasks} tasks, by the formula and in full: {', '.join(parts)}")
    return f"{title}. Scalars kept between tasks against the number of tasks, on a log axis. {'. '.join(said)}."


def _notes_2b(rows: Sequence[Row], profile: str, dataset: str) -> list[str]:
    missing = [f"{METHODS[row['method']].title} {row['scenario'].upper()}" for row in rows
               if row["tasks"] == _middle(rows) and row["measured"] is None]  # fmt: skip
    notes = [
        f"Sizes of profile {profile}, {dataset}: memories, image and heads are its own; a mark is what a stored run kept.",
        "In the formulas M is read as images a task, so a memory that all tasks share counts once.",
        "The paper's figure prints no numbers, so there are none to compare.",
    ]
    return notes + ([f"Not run yet: {', '.join(missing)}."] if missing else [])
