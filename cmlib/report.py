"""Tables in plain text for the command line, and the way from a store to the committed results."""

from __future__ import annotations

import math
import os
import re
import signal
import statistics
import threading
from collections.abc import Sequence
from dataclasses import asdict
from glob import escape
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from tqdm import tqdm

from cmlib import board, errata, paper
from cmlib.engine import run
from cmlib.errors import StoreError
from cmlib.experiment import ENGINES, Experiment
from cmlib.methods import METHODS
from cmlib.paper import Printed
from cmlib.store import REPEATS, Run, Store, committed, one_copy, write_atomically, write_checksums

NAMES = ("accuracy", "bwt_final")
Row = dict[str, Any]  # plain values, ready for JSON


def digits_rows(store: Store, seeds: Sequence[int], profile: str = "digits") -> list[Row]:
    """Every method on the digits images, run now unless the store has it: a row each, with one value a seed."""
    cells = paper.cells()
    wanted = [Experiment("digits", scenario, method, seed, profile) for method, scenario in cells for seed in seeds]
    store.check_writable()
    jobs = min(len(wanted), os.cpu_count() or 1)  # digits take one core a run
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
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        tqdm.set_lock(threading.RLock())  # its usual one is shared between processes and outlives a killed one, with a warning
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
    table = paper.text_table(("scenario", "method", *NAMES, "seconds"), lines)
    return f"Digits, measured on this machine (percent)\n{table}"


def _mean(values: Sequence[float | None]) -> str:
    finite = [value for value in values if value is not None]
    return paper.mean_and_spread(finite, len(values) - len(finite))


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
    return f"CIFAR-10 (percent)\n{paper.text_table(header, lines)}\n{note}"


def _found(stores: Sequence[Store], experiment: Experiment) -> list[Run]:
    by_id = {one.id: one for store in stores for one in paper.runs_like(store, experiment)}
    return one_copy(by_id.values())[0]


def engines_table(store: Store, profile: str = "digits", seeds: int = 3) -> str:
    """The digits runs of both engines beside each other, as a Markdown table; CoPE also with prototypes that start at random.

    The last column of each pair is the difference of the means in pooled standard deviations (n - 1).
    """
    head = ["scenario", "method", "accuracy: cmlib", "Avalanche", "apart", "bwt_final: cmlib", "Avalanche", "apart"]
    lines = ["| " + " | ".join(head) + " |", "|---|---|---:|---:|---:|---:|---:|---:|"]
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
            cells += [*map(paper.mean_and_spread, values, stopped), pooled_distance(*values)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def pooled_distance(first: Sequence[float], second: Sequence[float]) -> str:
    """Difference of two means in pooled standard deviations (n - 1), `0` for equal values; `-` with fewer than two of each."""
    if min(len(first), len(second)) < 2:
        return "-"
    if list(first) == list(second):
        return "0"
    gap = statistics.mean(second) - statistics.mean(first)
    pooled = math.sqrt((statistics.variance(first) + statistics.variance(second)) / 2)
    return f"{gap / pooled:+.1f}" if pooled else f"{gap:+.1f} points, no spread"


TABLES = {  # by the name of its block
    "engines": lambda: engines_table(committed()),
    "coverage": lambda: board.coverage(committed()),
    "board": lambda: board.runs_board(committed()),
    "another_cpu": lambda: board.another_cpu(committed(), Store(committed().folder.parent / REPEATS)),
    "table1": lambda: board.beside_the_paper(committed()),
    "verdicts": lambda: board.verdicts(committed()),
    "errata": lambda: errata.markdown("digits"),
    "errata_mini": lambda: errata.effects_alone("mini"),
}


def refresh_tables(folder: Path) -> list[Path]:
    """Write the tables into the pages that hold a block for them (`% begin NAME` ... `% end NAME`); returns these pages."""
    pages = []
    for page in sorted(folder.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (filled := with_tables(text)) != text:
            write_atomically(page, filled.encode())
        pages += [page] if "% begin " in text else []
    return pages


def with_tables(text: str) -> str:
    """A page's text with all its blocks filled anew; StoreError for a name that is no table."""

    def fill(block: re.Match[str]) -> str:
        name = block[1]
        if name not in TABLES:
            raise StoreError(f"a page asks for the table '{name}'; allowed: {', '.join(TABLES)}")
        return f"% begin {name}\n\n{TABLES[name]()}\n\n% end {name}"

    return re.sub(r"% begin (\w+)\n.*?% end \1", fill, text, flags=re.DOTALL)


def publish(source: Path, target: Path) -> list[Path]:
    """Copy valid runs of a store (or one file), with their snapshots, to the committed results; StoreError for others."""
    files = [source] if source.is_file() else sorted(source.rglob("seed*.json"))
    if not files:
        raise StoreError(f"{source} holds no result files")
    places = [_place(path, Store(target)) for path in files]  # all are checked before any is copied
    for path, place in zip(files, places, strict=True):
        write_atomically(place, path.read_bytes())
        for snapshots in path.parent.glob(f"{escape(path.stem)}.*.npz"):
            write_atomically(place.with_name(snapshots.name), snapshots.read_bytes())
    write_checksums(target)
    return places


def _place(path: Path, target: Store) -> Path:
    """Where a result file belongs in a store; StoreError when its content does not fit its own hash."""
    one = target.read(path)
    experiment = Experiment.of(one.experiment)
    digest = one.data["digest"]
    if experiment.hash(digest) != one.id[-8:]:
        raise StoreError(f"{path} does not fit its hash: made by an older revision, or changed by hand")
    return target.path(experiment, digest)


def readme_picture(path: Path) -> Path:
    """Draw the README's picture from the committed digits runs of seed 0: R of Naive beside R of CM, task known."""
    from cmlib.plots import figures, page

    experiments = [Experiment("digits", "til", method, 0) for method in ("naive", "cm")]
    runs = [paper.runs_like(committed(), experiment) for experiment in experiments]
    if not all(runs):
        raise StoreError("the committed results hold no digits runs of naive and cm")
    titles = [f"{METHODS[one[0].experiment['method']].title}: {one[0].accuracy:.0f} % in the end" for one in runs]
    picture = figures.accuracy_matrix({title: one[0].matrix for title, one in zip(titles, runs, strict=True)})
    write_atomically(path, page.png_bytes(picture))
    return path
