"""Tables in plain text for the command line, and the way from a store to the committed results."""

from __future__ import annotations

import math
import os
import re
import statistics
from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from cmlib import board, errata, paper
from cmlib.engine import run
from cmlib.errors import StoreError
from cmlib.experiment import ENGINES, Experiment
from cmlib.methods import METHODS
from cmlib.store import Run, Store, committed, one_copy, write_atomically, write_checksums


def digits_table(store: Store, seeds: int = 1, profile: str = "digits") -> str:
    """Every method on the digits images, run now unless the store has it."""
    cells = paper.cells()
    wanted = [Experiment("digits", scenario, method, seed, profile) for method, scenario in cells for seed in range(seeds)]
    jobs = min(len(wanted), os.cpu_count() or 1)  # digits take one core a run
    runs = Parallel(jobs)(delayed(run)(one, store=store) for one in wanted)
    rows = [
        (scenario, METHODS[method].title, *_columns(runs[seeds * i : seeds * (i + 1)]))
        for i, (method, scenario) in enumerate(cells)
    ]
    table = paper.text_table(("scenario", "method", "accuracy", "bwt_final", "seconds"), rows)
    return f"Digits, measured on this machine (percent)\n{table}"


def _columns(runs: Sequence[Run]) -> tuple[str, str, str]:
    seconds = [sum(sum(task) for task in one.seconds_per_epoch) for one in runs]
    return (
        paper.mean_and_spread([one.accuracy for one in runs]),
        paper.mean_and_spread([one.bwt_final for one in runs]),
        f"{sum(seconds) / len(seconds):.1f}",
    )


def cifar10_table(stores: Sequence[Store]) -> str:
    """CIFAR-10: the paper's printed values, runs with the paper's settings, and smaller runs, labelled as such."""
    rows = []
    for method, scenario in paper.cells():
        printed = [paper.table1().get(("cifar10", scenario, method, metric)) for metric in ("accuracy", "bwt")]
        full = Experiment("cifar10", scenario, method)
        small = Experiment("cifar10", scenario, method, profile="mini")
        ours, smaller = _found(stores, full), _found(stores, small)
        texts = [paper.mean_and_spread([getattr(one, name) for one in runs]) for runs in (ours, smaller) for name in NAMES]
        rows.append((scenario, METHODS[method].title, *(paper.printed(value) for value in printed), *texts))
    header = ["scenario", "method", "accuracy: paper", "bwt: paper", "accuracy: ours", "bwt_final: ours"]
    header += ["accuracy: ours, mini", "bwt_final: ours, mini"]
    note = "ours, mini: 500 training images a class and 5 epochs instead of 5,000 and 10; not comparable with the paper"
    return f"CIFAR-10 (percent)\n{paper.text_table(header, rows)}\n{note}"


NAMES = ("accuracy", "bwt_final")


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
