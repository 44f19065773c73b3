"""Tables 1 to 6 of the paper with ours beside them: mean, population standard deviation, number of runs, verdict.

`table(4, "digits", [store])` collects, `show(table, "text")` prints. What stands in a table is a grid (`grids`), what the
paper prints there is `paper.printed_table`. A printed BWT is compared with `bwt_final`; `bwt` stands in a row of its own.
Standard deviations are those of the population (divided by n, not n - 1), as the released code computes them.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cmlib.datasets import KNOWN
from cmlib.errors import StoreError, check_name
from cmlib.experiment import Experiment, key
from cmlib.methods import METHODS
from cmlib.reproduction import grids, paper, render
from cmlib.reproduction.grids import Cell, Grid
from cmlib.reproduction.paper import Place, Printed
from cmlib.reproduction.render import NOT_RUN
from cmlib.store import Run, Store, committed, default_folder, one_copy

AGREES, DIFFERS, TOO_FEW, STOPPED = "agrees", "differs", "too few runs", "stopped"
INCONSISTENT, NOT_PRINTED = "paper inconsistent", "not printed"
OTHER_DATA, OTHER_SCALE, OTHER_SETTINGS = "other data", "other scale", "other settings"
INSIDE, OUTSIDE = "inside (one run)", "outside (one run)"  # the paper's mean ± 2 standard deviations, or 1 point
ENOUGH = 3  # runs, for a verdict on the numbers
POINT, POINTS_WITHOUT_SPREAD = 1.0, 3.0  # percentage points
RATIO_SHARE = 0.1  # of the paper's ratio, for times

UNITS = {"percent": "percent", "ratio": "ratios to the first task of Naive"}
HOW = {
    "percent": "agrees: the means are within 1 point or 2 standard errors of their difference; within 3 points where the paper "
    "prints no deviation. One run decides nothing; it is inside or outside the paper's mean ± 2 standard deviations (at least 1 "
    "point), and of equal runs 18 in 100 are outside.",
    "ratio": "ours: the fastest of n runs over the fastest of Naive. agrees: within a tenth of the paper's ratio or 2 of its "
    "standard deviations.",
}
WHAT = "Ours: mean ± standard deviation of the population (divided by n), as the released code computes it; n: runs."
BWT = "A printed BWT is bwt_final, after the last task; bwt is the paper's formula, over all tasks."


@dataclass(frozen=True)
class Row:
    """One value of a table. None where there is none; `ours_sd` needs two runs.

    variant: our options in this place; printed_variant: the paper's. also: the paper has no such place, the value beside it
    stands in another one. stopped: runs whose loss was not finite; they are not in n.
    Table 2 holds ratios; paper_seconds and ours_seconds are the seconds an epoch behind them.
    """

    table: int
    dataset: str
    scenario: str
    method: str
    metric: str
    variant: str | None
    paper: float | None
    paper_sd: float | None
    paper_n: int | None
    ours: float | None
    ours_sd: float | None
    n: int
    verdict: str
    stopped: int = 0
    printed_variant: str | None = None
    also: bool = False
    paper_seconds: float | None = None
    ours_seconds: float | None = None
    note: str | None = None

    @property
    def place(self) -> Place:
        """Where the paper prints its value."""
        metric = self.metric.replace("ratio", "seconds")
        return Place(self.dataset, self.scenario, self.method, self.printed_variant or "", metric)


@dataclass(frozen=True)
class Table:
    """One table in one profile. tau: Kendall's tau between the paper's and our order of methods, by column."""

    table: int
    title: str
    profile: str
    unit: str
    notes: list[str]
    rows: list[Row]
    tau: list[dict[str, Any]]


# -- collecting ----------------------------------------------------------------------------------------------------------


def stores_of(folder: str | Path | None = None) -> list[Store]:
    """The store named, alone; by default the folder `runs` and the committed runs. StoreError when the folder is absent."""
    if folder is None:
        return [Store(default_folder()), committed()]
    if not Path(folder).is_dir():
        raise StoreError(f"there is no store at {folder}")
    return [Store(folder)]


def table(number: int | str, profile: str, stores: Iterable[Store]) -> Table:
    """Everything one table holds in one profile; OptionError for an unknown number or profile."""
    known = [name.removeprefix("table") for name in grids.names() if name.startswith("table")]
    number = int(check_name("table", str(number), known, "fair"))
    grid = grids.load(f"table{number}")
    cells = grid.cells(profile)
    found = Found(stores, profile)
    rows = [row for cell in cells for row in _rows(number, grid, cell, found)]
    notes = [f"In this profile {line}." for line in grid.exchanged(profile)] + list(grid.notes)
    return Table(number, grid.title, profile, grid.unit, notes, rows, _tau(rows) if number == 1 else [])


class Found:
    """The runs of some stores by setting, whatever their seed: those that count, and those that do not."""

    def __init__(self, stores: Iterable[Store], profile: str) -> None:
        self.profile = profile
        self.runs: dict[str, dict[str, Run]] = defaultdict(dict)
        for run in (run for store in stores for run in store):
            self.runs[key(run.experiment, seed=False)].setdefault(run.id, run)

    def of(self, experiment: Experiment) -> tuple[list[Run], int, list[Run]]:
        """Finished runs by seed, the number that stopped, and those left out for being on a part of the data or another copy."""
        made = self.runs.get(key(experiment.to_dict(), seed=False), {}).values()
        whole, others = one_copy(run for run in made if uses_all(run, self.profile))
        ended = paper.finished(whole)
        return ended, len(whole) - len(ended), others + [run for run in made if not uses_all(run, self.profile)]


def uses_all(run: Run, profile: str) -> bool:
    """Whether a run used all that its data set has, where the profile asks for that: in `paper`."""
    return profile != "paper" or run.data["train_rows_used"] == KNOWN[run.experiment["dataset"]].train


def measured(run: Run, metric: str) -> float:
    """A metric of a run: `accuracy`, `bwt`, `bwt_final`, or with `_task1`, ... of one task in the end (percent)."""
    name, of_task, task = metric.partition("_task")
    if not of_task:
        return float(getattr(run, name))
    j = int(task) - 1
    last, learned = run.matrix[-1, j], run.matrix[j, j]
    return float(last if name == "accuracy" else last - learned)


def _rows(number: int, grid: Grid, cell: Cell, found: Found) -> list[Row]:
    """The rows of one cell, one a metric."""
    experiments = cell.experiments(found.profile)
    n_tasks = experiments[0].n_tasks
    metrics = [one for metric in grid.metrics for one in _spelled_out(metric, n_tasks)]
    return [_row(number, cell, metric, found, experiments) for metric in metrics]


def _spelled_out(metric: str, n_tasks: int) -> list[str]:
    """`accuracy_task` -> one metric a task. The last task has no BWT."""
    last = n_tasks - 1 if metric.startswith("bwt") else n_tasks
    return [f"{metric}{task}" for task in range(1, last + 1)] if metric.endswith("_task") else [metric]


def _row(number: int, cell: Cell, metric: str, found: Found, experiments: Sequence[Experiment]) -> Row:
    place = Place(cell.dataset, cell.scenario, cell.method, cell.printed, metric.replace("ratio", "seconds"))
    printed = paper.printed_table(number).get(place)
    reason = paper.inconsistencies(number).get(place)
    timed, n = metric.startswith("ratio"), paper.RUNS.get(number)
    other = cell.other if printed and found.profile == "paper" else ""
    theirs = _as_ratio(number, place, printed) if timed else printed
    ours = _ours(found, experiments, metric)
    return Row(
        table=number,
        dataset=cell.dataset,
        scenario=cell.scenario,
        method=cell.method,
        metric=metric,
        variant=cell.variant or None,
        paper=theirs.mean if theirs else None,
        paper_sd=theirs.std if theirs else None,
        paper_n=n if theirs else None,
        ours=render.mean(ours.values),
        ours_sd=None if timed else render.deviation(ours.values),
        n=len(ours.values),
        verdict=verdict(theirs, ours.values, ours.stopped, cell.dataset, found.profile, bool(reason), timed, bool(other), n),
        stopped=ours.stopped,
        printed_variant=cell.printed or None,
        also=cell.also,
        paper_seconds=printed.mean if printed and timed else None,
        ours_seconds=render.mean(ours.seconds),
        note="; ".join([*(one for one in (reason, other) if one), *ours.remarks]) or None,
    )


@dataclass(frozen=True)
class Ours:
    """What our runs give for one place: a value a run (with its seconds, for times), and what a reader has to know."""

    values: list[float]
    seconds: list[float]
    stopped: int
    remarks: list[str]


def _ours(found: Found, experiments: Sequence[Experiment], metric: str) -> Ours:
    """The runs of all experiments together, measured by one metric; of times the fastest run, in TIL where there is TIL."""
    if timed := metric.startswith("ratio"):
        experiments = [one for one in experiments if one.scenario == "til"] or experiments
    parts = [found.of(one) for one in experiments]
    runs = [run for ended, _, _ in parts for run in ended]
    left_out = [run for *_, others in parts for run in others]
    copies = [run for run in left_out if not run.other_data and uses_all(run, found.profile)]
    other = [run for run in left_out if run.other_data == "other data"]
    pairs = _timed(runs, found, metric) if timed else []
    fastest = min(pairs, default=(math.nan, math.nan))  # ratio, seconds
    values = [fastest[0]] * len(pairs) if timed else [measured(run, metric) for run in runs]
    usual = {KNOWN[one.dataset].digest for one in experiments}
    counts = {
        "on a part of the data": len(left_out) - len(copies) - len(other),
        "on other data": len(other),
        "on another copy of the data": len(copies),
        "without a Naive run on the same machine": len(runs) - len(values),
    }
    remarks = [f"{count} more {why}, not counted" for why, count in counts.items() if count]
    if runs and "" not in usual and not usual & {run.data["digest"] for run in runs}:
        remarks.append("on another copy of the data than the committed runs")
    return Ours(values, [fastest[1]] * bool(pairs), sum(stopped for _, stopped, _ in parts), remarks)


# -- times ---------------------------------------------------------------------------------------------------------------


def _as_ratio(number: int, place: Place, printed: Printed | None) -> Printed | None:
    """A printed time as a ratio to Naive's first task, its standard deviation carried through the division."""
    if printed is None:
        return None
    naive = paper.printed_table(number)[Place(place.dataset, "til-cil", "naive", "", "seconds_task1")]
    ratio = printed.mean / naive.mean
    spread = ratio * math.hypot((printed.std or 0) / printed.mean, (naive.std or 0) / naive.mean)
    return Printed(ratio, spread)


def _timed(runs: Sequence[Run], found: Found, metric: str) -> list[tuple[float, float]]:
    """(Ratio, seconds an epoch) of each run that has Naive runs of its scenario from the same kind of machine beside it."""
    task = int(metric.removeprefix("ratio_task")) - 1
    pairs = []
    for run in runs:
        content = run.experiment
        naive = Experiment(content["dataset"], content["scenario"], "naive", profile=found.profile)
        least = min((_seconds(one, 0) for one in found.of(naive)[0] if _machine(one) == _machine(run)), default=0.0)
        if least:
            seconds = _seconds(run, task)
            pairs.append((seconds / least, seconds))
    return pairs


def _seconds(run: Run, task: int) -> float:
    """The seconds of the fastest epoch of a task: what else a machine does can only add to them."""
    return min(run.seconds_per_epoch[task])


def _machine(run: Run) -> tuple[Any, ...]:
    return tuple(run.machine.get(name) for name in ("device", "threads", "cpu", "instructions"))


# -- verdicts ------------------------------------------------------------------------------------------------------------


def verdict(
    printed: Printed | None,
    values: Sequence[float],
    stopped: int,
    dataset: str,
    profile: str,
    inconsistent: bool = False,
    ratio: bool = False,
    other: bool = False,
    n: int | None = paper.RUNS[1],
) -> str:
    """What can be said of the paper's value and our runs, in one or two words.

    inconsistent: the paper's own numbers speak against it. other: it was made with other settings. n: the paper's runs.
    """
    if not values:
        return STOPPED if stopped else NOT_RUN
    if dataset not in paper.TASKS:
        return OTHER_DATA
    if profile != "paper":
        return OTHER_SCALE
    if printed is None:
        return NOT_PRINTED
    if inconsistent:
        return INCONSISTENT
    if other:
        return OTHER_SETTINGS
    if len(values) == 1 and printed.std is not None:
        least = 0.0 if ratio else POINT
        return INSIDE if abs(values[0] - printed.mean) <= max(least, 2 * printed.std) + 1e-9 else OUTSIDE
    if len(values) < ENOUGH:
        return TOO_FEW
    apart = abs(statistics.fmean(values) - printed.mean)
    return AGREES if apart <= allowed(printed, values, ratio, n) + 1e-9 else DIFFERS


def allowed(printed: Printed, values: Sequence[float], ratio: bool = False, n: int | None = paper.RUNS[1]) -> float:
    """How far our mean may be from the paper's: points, or a share of it for ratios of times; or 2 standard errors.

    The standard error of a mean is the population's deviation over the root of n - 1. Of times the paper does not say n: there
    both deviations count whole.
    """
    if printed.std is None:
        return POINTS_WITHOUT_SPREAD
    spread = statistics.pstdev(values)
    if ratio:
        return max(RATIO_SHARE * printed.mean, 2 * math.hypot(printed.std, spread))
    theirs = printed.std / math.sqrt(n - 1) if n and n > 1 else printed.std
    return max(POINT, 2 * math.hypot(theirs, spread / math.sqrt(len(values) - 1)))


def _tau(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Kendall's tau of every column of table 1 where at least 3 methods have both values; rows with a variant stay out."""
    from scipy.stats import kendalltau

    columns: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        if row.paper is not None and row.ours is not None and row.variant is None:
            columns[row.dataset, row.scenario, row.metric].append((row.paper, row.ours))
    found = []
    for (dataset, scenario, metric), pairs in columns.items():
        if len(pairs) >= 3:
            tau = float(kendalltau(*zip(*pairs, strict=True)).statistic)
            place = {"dataset": dataset, "scenario": scenario, "metric": metric, "methods": len(pairs)}
            found.append({**place, "tau": None if math.isnan(tau) else tau})
    return found


# -- printing ------------------------------------------------------------------------------------------------------------


FORMATS = ("text", "md", "csv", "latex", "json")


def show(made: Table, form: str = "text") -> str:
    """A table as `text`, `md`, `csv`, `latex` or `json`; OptionError for another format."""
    check_name("format", form, FORMATS)
    if form == "json":
        return json.dumps(asdict(made), allow_nan=False, ensure_ascii=False)
    if form == "csv":
        return render.csv([asdict(row) for row in made.rows]).rstrip("\n")
    header, lines, footnotes = _columns(made)
    return render.page(form, _head(made), (header, lines), _foot(made, footnotes))


def _head(made: Table) -> list[str]:
    data = sorted({row.dataset for row in made.rows}, key=list(KNOWN).index)
    scale = {"paper": "full data", "mini": "500 training images a class and 5 epochs, other scale than the paper's"}
    why = scale.get(made.profile, "other data than the paper's, so its values are not set beside them")
    return [f"Table {made.table}: {made.title} ({UNITS[made.unit]}). Profile {made.profile}, {', '.join(data)}: {why}."]


def _foot(made: Table, footnotes: Sequence[str]) -> list[str]:
    columns = [f"{tau['dataset']} {tau['scenario'].upper()} {tau['metric']} {_tau_text(tau)}" for tau in made.tau]
    order = [f"Kendall's tau between the paper's order of methods and ours: {'; '.join(columns)}."] if columns else []
    bwt = [BWT] if any(row.metric == "bwt" for row in made.rows) else []
    how = [HOW[made.unit]] if made.profile == "paper" else []
    return [*(f"[{i}] {text}." for i, text in enumerate(footnotes, 1)), WHAT, *bwt, *how, *order, *made.notes]


def _tau_text(tau: dict[str, Any]) -> str:
    return f"{'-' if tau['tau'] is None else format(tau['tau'], '.2f')} ({tau['methods']} methods)"


def _columns(made: Table) -> tuple[list[str], list[list[str]], list[str]]:
    """Header, lines and footnotes of the printed forms. Columns in which nothing stands are left out."""
    footnotes = list(dict.fromkeys(row.note for row in made.rows if row.note))
    columns: dict[str, list[str]] = {
        "data": [row.dataset for row in made.rows],
        "scenario": [row.scenario.upper() for row in made.rows],
        "method": [METHODS[row.method].title for row in made.rows],
        "variant": [row.variant or "" for row in made.rows],
        "paper's variant": [row.printed_variant or "" if row.printed_variant != row.variant else "" for row in made.rows],
        "metric": [row.metric for row in made.rows],
        "paper": [render.number(row.paper, row.paper_sd) for row in made.rows],
        "ours": [render.number(row.ours, row.ours_sd) for row in made.rows],
        "n": [f"{row.n}" + (f" ({row.stopped} stopped)" if row.stopped else "") for row in made.rows],
        "paper, s": [render.number(row.paper_seconds) for row in made.rows],
        "ours, s": [render.number(row.ours_seconds) for row in made.rows],
        "verdict": [row.verdict + (f" [{footnotes.index(row.note) + 1}]" if row.note else "") for row in made.rows],
    }
    always = ("paper", "ours")
    shown = {name: texts for name, texts in columns.items() if name in always or set(texts) - {"", "-"}}
    return list(shown), [list(line) for line in zip(*shown.values(), strict=True)], footnotes
