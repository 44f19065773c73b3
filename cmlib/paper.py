"""The numbers the paper prints, and ours beside them.

`printed/table1.csv` holds table 1 as printed: dataset, scenario, method, metric, mean_percent, std_percent. Its BWT is
`bwt_final`, not the formula the paper gives (see `metrics`).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cmlib.experiment import Experiment
from cmlib.methods import METHODS
from cmlib.store import FINISHED, Run, Store

NOT_RUN = "not run yet"


@dataclass(frozen=True)
class Printed:
    """One printed value in percent: mean and standard deviation over the paper's runs (None where it prints none)."""

    mean: float
    std: float | None


@cache
def table1() -> dict[tuple[str, str, str, str], Printed]:
    """Table 1 by (data set, scenario, method, metric); metric is `accuracy` or `bwt`."""
    path = Path(__file__).with_name("printed") / "table1.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        (row["dataset"], row["scenario"], row["method"], row["metric"]): Printed(
            float(row["mean_percent"]), float(row["std_percent"]) if row["std_percent"] else None
        )
        for row in rows
    }


def mean_and_spread(values: Sequence[float], stopped: int = 0) -> str:
    """`mean ± standard deviation` (n - 1) and the number of runs, or `not run yet`; stopped: runs whose loss was not finite."""
    halted = f"{stopped} stopped" if stopped else ""
    if not values:
        return halted or NOT_RUN
    mean = sum(values) / len(values)
    count = ", ".join(word for word in (f"{len(values)} run{'s' * (len(values) > 1)}", halted) if word)
    if len(values) == 1:
        return f"{mean:.2f} ({count})"
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return f"{mean:.2f} ± {spread:.2f} ({count})"


def printed(value: Printed | None) -> str:
    """A printed value as text; `-` where the paper prints none."""
    if value is None:
        return "-"
    return f"{value.mean:.2f}" + (f" ± {value.std:.2f}" if value.std is not None else "")


def finished(runs: Iterable[Run]) -> list[Run]:
    """The runs that came to their end, by seed."""
    return sorted((run for run in runs if run.status == FINISHED), key=lambda run: run.seed)


def runs_like(store: Store, experiment: Experiment) -> list[Run]:
    """All finished runs of an experiment in a store, whatever their seed."""
    return finished(store.find(experiment, any_seed=True))


def cells(scenarios: Sequence[str] = ("til", "cil")) -> list[tuple[str, str]]:
    """Every (method, scenario) that cmlib can run, in the order of the paper's table."""
    order = {method: rank for rank, method in enumerate(dict.fromkeys(key[2] for key in table1()))}
    names = sorted(METHODS, key=lambda name: order.get(name, len(order)))
    return [(name, scenario) for scenario in scenarios for name in names if scenario in METHODS[name].scenarios]


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of plain text, two spaces apart."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(value.ljust(width) for value, width in zip(line, widths, strict=True)).rstrip() for line in [header, *rows]
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
