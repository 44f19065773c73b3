"""The numbers the paper prints, whether they can belong together, and ours beside them.

`printed/table1.csv` holds table 1 as printed: dataset, scenario, method, metric, mean_percent, std_percent. Its BWT is
`bwt_final`, not the formula the paper gives (see `metrics`). `printed/table2.csv` to `table6.csv` hold the others, one row a
printed value: dataset, scenario, method, variant (the options that the place stands for), metric, mean, std.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cmlib.datasets import KNOWN
from cmlib.errors import StoreError
from cmlib.experiment import Experiment
from cmlib.methods import METHODS
from cmlib.reproduction import render
from cmlib.reproduction.render import NOT_RUN as NOT_RUN
from cmlib.reproduction.render import mean_and_spread as mean_and_spread
from cmlib.store import FINISHED, Run, Store

RUNS = {1: 5, 3: 2, 4: 2, 6: 2}  # behind each printed table; the captions of 2 and 5 do not say
TASKS = {"cifar10": 5, "cifar100": 10, "tiny-imagenet": 10}
USUAL = {  # the places of tables 3 to 6 that hold the setting of CM in table 1
    "merging=scale_translate",
    "support_size=100",
    "centroids_merging=scale_translate,merging=scale_translate",
    "lam=0.1",
}
APART = 5.0  # points by which mean just-learned accuracies of one setting may differ from table to table


@dataclass(frozen=True)
class Printed:
    """One printed value in percent: mean and standard deviation over the paper's runs (None where it prints none)."""

    mean: float
    std: float | None


@cache
def table1() -> dict[tuple[str, str, str, str], Printed]:
    """Table 1 by (data set, scenario, method, metric); metric is `accuracy` or `bwt`."""
    return {(row["dataset"], row["scenario"], row["method"], row["metric"]): value for row, value in _read(1, "_percent")}


def _read(number: int, unit: str = "") -> list[tuple[dict[str, str], Printed]]:
    """The rows of a table's file, with the value of each. unit: how the names of its columns of numbers end."""
    path = Path(__file__).with_name("printed") / f"table{number}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = [(float(row[f"mean{unit}"]), row[f"std{unit}"]) for row in rows]
    return [(row, Printed(mean, float(std) if std else None)) for row, (mean, std) in zip(rows, numbers, strict=True)]


class Place(NamedTuple):
    """Where a value is printed. metric: `accuracy`, `bwt_final`, or with a task: `seconds_task1`, `accuracy_task1`, ..."""

    dataset: str
    scenario: str
    method: str
    variant: str
    metric: str


@cache
def printed_table(number: int) -> dict[Place, Printed]:
    """Everything that a table prints, by place, in its order. Table 2: seconds an epoch; the others: percent."""
    if number == 1:
        metric = {"accuracy": "accuracy", "bwt": "bwt_final"}
        return {Place(*key[:3], "", metric[key[3]]): value for key, value in table1().items()}
    return {Place(*(row[name] for name in Place._fields)): value for row, value in _read(number)}


# -- numbers that cannot belong together ---------------------------------------------------------------------------------


def just_learned(accuracy: float, bwt_final: float, n_tasks: int) -> float:
    """Mean accuracy on each task right after it was learned, from what is left in the end: accuracy - bwt_final (N - 1) / N."""
    return accuracy - bwt_final * (n_tasks - 1) / n_tasks


def can_be_counted(value: float, runs: int, images: int) -> bool:
    """Whether a percentage printed with two decimals can be a mean of `runs` accuracies on `images` test images each.

    Such a mean (and a difference of two) is a multiple of 100 / (runs x images).
    """
    step = 100 / (runs * images)
    return abs(value - round(value / step) * step) <= 0.005 + 1e-9


def is_chance(accuracy: float, classes: int) -> bool:
    """Whether an accuracy is, to its two decimals, that of a model which always names the same one of the classes."""
    return abs(accuracy - 100 / classes) < 0.005


@cache
def inconsistencies(number: int) -> Mapping[Place, str]:
    """The printed values of a table that cannot belong together with others, and why in a few words."""
    table = printed_table(number)
    reasons = {**_not_the_mean_of_their_cells(table), **_not_counted(table, number), **_of_runs_that_stopped(table)}
    return {**_unlike_the_same_setting(table), **reasons}


def _pairs(table: Mapping[Place, Printed]) -> list[tuple[Place, Place]]:
    """The places of every accuracy that has a BWT beside it."""
    accuracies = [place for place in table if place.metric == "accuracy"]
    both = [(place, place._replace(metric="bwt_final")) for place in accuracies]
    return [(accuracy, bwt) for accuracy, bwt in both if bwt in table]


def _of_runs_that_stopped(table: Mapping[Place, Printed]) -> dict[Place, str]:
    """Chance to the last decimal, after tasks that were learned: scores that are not numbers make class 0 win every time."""
    found: dict[Place, str] = {}
    for accuracy, bwt in _pairs(table):
        mean, lost = table[accuracy].mean, table[bwt].mean
        classes = len(KNOWN[accuracy.dataset].class_names)
        among = classes // TASKS[accuracy.dataset] if accuracy.scenario == "til" else classes
        if is_chance(mean, among) and lost < 0 and not table[accuracy].std:
            text = f"accuracy {mean:.2f} is exactly chance, with BWT {lost:.2f}: runs whose loss was not a number"
            found |= {accuracy: text, bwt: text}
    return found


def _not_counted(table: Mapping[Place, Printed], number: int) -> dict[Place, str]:
    """Values of single tasks that no whole number of test images gives."""
    if number not in RUNS:
        return {}
    found = {}
    for place, value in table.items():
        images = KNOWN[place.dataset].test // TASKS[place.dataset]
        if "_task" in place.metric and not can_be_counted(value.mean, RUNS[number], images):
            found[place] = f"{value.mean:.2f} is no mean of {RUNS[number]} runs on {images:,} test images"
    return found


def _not_the_mean_of_their_cells(table: Mapping[Place, Printed]) -> dict[Place, str]:
    """Averages that are not the mean of the values of the single tasks, unless one of these repeats the average by mistake."""
    found = {}
    for place, value in table.items():
        tasks = [(other, one) for other, one in table.items() if other.metric.startswith(f"{place.metric}_task")]
        cells = [one.mean for other, one in tasks if other[:-1] == place[:-1]]
        if cells and value.mean not in cells and abs(statistics.fmean(cells) - value.mean) > 0.01:
            found[place] = f"{value.mean:.2f} is not the mean of its cells, {statistics.fmean(cells):.2f}"
    return found


def same_setting(dataset: str, scenario: str) -> list[tuple[int, Place, Printed]]:
    """Every place (table, place, accuracy) that holds the accuracy of CM in its usual setting."""
    return [
        (number, place, value)
        for number in (1, 3, 4, 5, 6)
        for place, value in printed_table(number).items()
        if place[:3] == (dataset, scenario, "cm") and place.metric == "accuracy" and place.variant in {"", *USUAL}
    ]


def noise(dataset: str, scenario: str) -> float:
    """What two printed accuracies must be apart to mean anything: twice the deviation of a difference, in points.

    From the numbers that the paper prints for CM's usual setting in several tables, which should be one and the same.
    """
    means = [value.mean for _, _, value in same_setting(dataset, scenario)]
    return 2 * 2**0.5 * statistics.stdev(means)


def _unlike_the_same_setting(table: Mapping[Place, Printed]) -> dict[Place, str]:
    """BWT whose just-learned accuracy is far from what other tables print for the same setting.

    The accuracies of one setting agree well, so it is the BWT that is held to be the odd one.
    """
    found: dict[Place, str] = {}
    for accuracy, bwt in _pairs(table):
        learned = just_learned(table[accuracy].mean, table[bwt].mean, TASKS[accuracy.dataset])
        if not 0 <= learned <= 100:
            found |= dict.fromkeys((accuracy, bwt), f"they make a just-learned accuracy of {learned:.1f}")
        others = _just_learned_elsewhere(accuracy)
        if len(others) > 2 and abs(learned - statistics.median(others)) > APART:
            texts = ", ".join(f"{one:.1f}" for one in sorted(others))
            found[bwt] = f"with it the mean just-learned accuracy is {learned:.1f}; the tables print {texts} for this setting"
    return found


def _just_learned_elsewhere(accuracy: Place) -> list[float]:
    """Just-learned accuracies of all places (this one too) with the setting of this one; empty for another setting."""
    places = same_setting(accuracy.dataset, accuracy.scenario)
    if accuracy not in {place for _, place, _ in places}:
        return []
    found = []
    for number, place, value in places:
        lost = printed_table(number).get(place._replace(metric="bwt_final"))
        found += [just_learned(value.mean, lost.mean, TASKS[place.dataset])] if lost else []
    return found


# -- ours beside them ----------------------------------------------------------------------------------------------------


def printed(value: Printed | None) -> str:
    """A printed value as text; `-` where the paper prints none."""
    return render.number(value.mean, value.std) if value else "-"


def finished(runs: Iterable[Run]) -> list[Run]:
    """The runs that came to their end, by seed."""
    return sorted((run for run in runs if run.status == FINISHED), key=lambda run: run.seed)


def median_run(runs: Iterable[Run]) -> Run:
    """The run a page shows where it shows one: the finished run of median accuracy, the lower one of two; StoreError for none."""
    done = sorted(finished(runs), key=lambda run: (run.accuracy, run.seed))
    if not done:
        raise StoreError("none of these runs is finished, so none is the median")
    return done[(len(done) - 1) // 2]


def gaps(first: Iterable[Run], second: Iterable[Run]) -> list[float]:
    """Accuracy of the first minus that of the second for each seed that both have."""
    theirs = {run.seed: run.accuracy for run in second}
    return [run.accuracy - theirs[run.seed] for run in first if run.seed in theirs]


def runs_like(store: Store, experiment: Experiment) -> list[Run]:
    """All finished runs of an experiment in a store, whatever their seed."""
    return finished(store.find(experiment, any_seed=True))


def cells(scenarios: Sequence[str] = ("til", "cil")) -> list[tuple[str, str]]:
    """Every (method, scenario) that cmlib can run, in the order of the paper's table."""
    order = {method: rank for rank, method in enumerate(dict.fromkeys(key[2] for key in table1()))}
    names = sorted(METHODS, key=lambda name: order.get(name, len(order)))
    return [(name, scenario) for scenario in scenarios for name in names if scenario in METHODS[name].scenarios]
