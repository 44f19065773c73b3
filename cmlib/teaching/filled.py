"""Tables that pages hold between `% begin NAME` and `% end NAME`, most of them of the committed runs, and the README picture."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from cmlib.errors import StoreError
from cmlib.experiment import Experiment
from cmlib.methods import METHODS
from cmlib.plots import figures, png
from cmlib.reproduction import board, errata, fair, paper, record, report
from cmlib.store import REPEATS, Store, committed, write_atomically
from cmlib.teaching import dryrun, playground
from cmlib.teaching.when import when_to_use

TABLES = {  # by the name of its block
    "engines": lambda: report.engines_table(committed()),
    "coverage": lambda: board.coverage(committed()),
    "board": lambda: board.runs_board(committed()),
    "another_cpu": lambda: board.another_cpu(committed(), Store(committed().folder.parent / REPEATS)),
    "table1": lambda: board.beside_the_paper(committed()),
    "verdicts": lambda: board.verdicts(committed()),
    "fair": lambda: fair.block(committed()),
    "when_to_use": lambda: when_to_use(committed()).data["text/markdown"],
    "errata_effects": lambda: errata.effects_table("digits"),
    "errata": lambda: errata.markdown("digits"),
    "errata_mini": lambda: errata.effects_alone("mini"),
    "playground": playground.table,
}

LISTS = {  # what a chapter shows whole, by the name of its value in `cm.say`, as `{printed_numbers:markdown}`
    "printed_numbers": record.printed_numbers,
    "switches": record.switches,
    "discrepancies": record.discrepancies,
    "sentences": record.sentences,
}


def is_recorded(name: str) -> bool:
    """Whether a value of `cm.say` bears the name of a list or of a count of the reproduction record."""
    return name in LISTS or name.startswith(record.COUNTED)


@cache
def of_record(name: str) -> Any:
    """What the committed runs give for such a name; None for a count that does not exist."""
    return LISTS[name]([committed()]) if name in LISTS else _counts().get(name)


@cache
def _counts() -> dict[str, int]:
    return record.counts([committed()])


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
    """A page's text with all its blocks filled anew; StoreError for a name that is no table. Only the lesson has a dry run."""
    tables = {**TABLES, "dry_run": lambda: dryrun.table(text)}

    def fill(block: re.Match[str]) -> str:
        name = block[1]
        if name not in tables:
            raise StoreError(f"a page asks for the table '{name}'; allowed: {', '.join(tables)}")
        return f"% begin {name}\n\n{tables[name]()}\n\n% end {name}"

    return re.sub(r"% begin (\w+)\n.*?% end \1", fill, text, flags=re.DOTALL)


def readme_picture(path: Path) -> Path:
    """Draw the README's picture from the median digits runs: R of Naive beside R of CM, task known."""
    matrices = {}
    for method in ("naive", "cm"):
        found = paper.runs_like(committed(), Experiment("digits", "til", method))
        if not found:
            raise StoreError("the committed results hold no digits runs of naive and cm")
        run = paper.median_run(found)
        matrices[f"{METHODS[method].title}: {run.accuracy:.0f} % in the end"] = run.matrix
    write_atomically(path, png.png_bytes(figures.accuracy_matrix(matrices)))
    return path
