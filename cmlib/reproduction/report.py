"""Tables in plain text for the command line: digits measured here, CIFAR-10 beside the paper, both engines."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from joblib import Parallel, cpu_count, delayed

from cmlib.engine import run
from cmlib.experiment import ENGINES, Experiment
from cmlib.methods import METHODS
from cmlib.reproduction import paper, render
from cmlib.reproduction.paper import Printed
from cmlib.reproduction.sweep import leave_interrupts
from cmlib.store import Run, Store, one_copy

NAMES = ("accuracy", "bwt_final")
Row = dict[str, Any]  # plain values, ready for JSON


def digits_rows(store: Store, seeds: Sequence[int], profile: str = "digits") -> list[Row]:
    """Every method on the digits images, run now unless the store has it: a row each, with one value a seed."""
    cells = paper.cells()
    wanted = [Experiment("digits", scenario, method, seed, profile) for method, scenario in cells for seed in seeds]
    store.check_writable()
    jobs = min(len(wanted), cpu_count())  # digits take one core a run
    runs = Parallel(jobs)(delayed(_run)(one, store, os.getpid()) for one in wanted)
    rows = []
    for i, (method, scenario) in enumerate(cells):
        own = runs[len(seeds) * i : len(seeds) * (i + 1)]
        seconds = [sum(map(sum, one.seconds_per_epoch)) for one in own]
        rows.append({"scenario": scenario, "method": METHODS[method].title, **_values(own), "seconds": seconds})
    return rows


def _run(experiment: Experiment, store: Store, owner: int) -> Run:
    """A run in a worker, which leaves Ctrl-C to its owner and may be killed at any time."""
    if os.getpid() != owner:
        leave_interrupts()
    return run(experiment, store=store)


def _values(runs: Sequence[Run]) -> dict[str, list[float | None]]:
    """Accuracy and bwt_final of each run; None for a run that stopped."""
    summaries = [one.summary() for one in runs]
    return {name: [summary[name] for summary in summaries] for name in NAMES}


def digits_table(rows: Sequence[Row]) -> str:
    """The rows of `digits_rows` as text."""
    lines = [
        (row["scenario"], row["method"], *(_mean(row[name]) for name in NAMES), f"{statistics.fmean(row['seconds']):.1f}")
        for row in rows
    ]
    table = render.text(("scenario", "method", *NAMES, "seconds"), lines)
    return f"Digits, measured on this machine (percent)\n{table}"


def _mean(values: Sequence[float | None]) -> str:
    finite = [value for value in values if value is not None]
    return render.mean_and_spread(finite, len(values) - len(finite))


def cifar10_rows(stores: Sequence[Store]) -> list[Row]:
    """CIFAR-10: the paper's printed values, runs with the paper's settings, and smaller runs (`mini`), one row a method."""
    rows = []
    for method, scenario in paper.cells():
        printed = [paper.table1().get(("cifar10", scenario, method, metric)) for metric in ("accuracy", "bwt")]
        stated = {name: asdict(one) if one else None for name, one in zip(("accuracy", "bwt"), printed, strict=True)}
        full = Experiment("cifar10", scenario, method)
        ours, mini = (_values(_found(stores, one)) for one in (full, full.but(profile="mini")))
        rows.append({"scenario": scenario, "method": METHODS[method].title, "paper": stated, "ours": ours, "mini": mini})
    return rows


def cifar10_table(rows: Sequence[Row]) -> str:
    """The rows of `cifar10_rows` as text, the smaller runs labelled as such."""
    lines = []
    for row in rows:
        printed = [paper.printed(Printed(**one) if one else None) for one in row["paper"].values()]
        ours = [_mean(row[part][name]) for part in ("ours", "mini") for name in NAMES]
        lines.append((row["scenario"], row["method"], *printed, *ours))
    header = ["scenario", "method", "accuracy: paper", "bwt: paper", "accuracy: ours", "bwt_final: ours"]
    header += ["accuracy: ours, mini", "bwt_final: ours, mini"]
    note = "ours, mini: 500 training images a class and 5 epochs instead of 5,000 and 10; not comparable with the paper"
    return f"CIFAR-10 (percent)\n{render.text(header, lines)}\n{note}"


def _found(stores: Sequence[Store], experiment: Experiment) -> list[Run]:
    by_id = {one.id: one for store in stores for one in paper.runs_like(store, experiment)}
    return one_copy(by_id.values())[0]


def engines_table(store: Store, profile: str = "digits", seeds: int = 3) -> str:
    """The digits runs of both engines beside each other, as a Markdown table; CoPE also with prototypes that start at random.

    The last column of each pair is the difference of the means in pooled standard deviations.
    """
    head = ["scenario", "method", "accuracy: cmlib", "Avalanche", "apart", "bwt_final: cmlib", "Avalanche", "apart"]
    lines = []
    rows: list[tuple[str, str, dict[str, Any]]] = [(method, scenario, {}) for method, scenario in paper.cells()]
    for method, scenario, ours in [*rows, ("cope", "cil", {"prototype_init": "random"})]:
        pair = [
            Experiment("digits", scenario, method, 0, profile, **ours),
            Experiment("digits", scenario, method, 0, profile, ENGINES[1]),
        ]
        made = [[one for one in store.find(experiment, any_seed=True) if one.seed < seeds] for experiment in pair]
        ended = [paper.finished(runs) for runs in made]
        stopped = [len(runs) - len(good) for runs, good in zip(made, ended, strict=True)]
        said = "".join(f", {name}={value}" for name, value in ours.items())
        cells = [scenario.upper(), METHODS[method].title + said]
        for name in NAMES:
            values = [[getattr(one, name) for one in runs] for runs in ended]
            cells += [*map(render.mean_and_spread, values, stopped), pooled_distance(*values)]
        lines.append(cells)
    return render.markdown(head, lines, numbers=6)


def pooled_distance(first: Sequence[float], second: Sequence[float]) -> str:
    """Difference of two means in pooled standard deviations, `0` for equal values; `-` with fewer than two of each."""
    if min(len(first), len(second)) < 2:
        return "-"
    if list(first) == list(second):
        return "0"
    gap = statistics.mean(second) - statistics.mean(first)
    pooled = math.sqrt((statistics.pvariance(first) + statistics.pvariance(second)) / 2)
    return f"{gap / pooled:+.1f}" if pooled else f"{gap:+.1f} points, no spread"
