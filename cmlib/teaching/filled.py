"""What pages hold of the committed runs: tables between `% begin NAME` and `% end NAME`, and the README's picture."""

from __future__ import annotations

import re
from pathlib import Path

from cmlib.errors import StoreError
from cmlib.experiment import Experiment
from cmlib.methods import METHODS
from cmlib.plots import figures, png
from cmlib.reproduction import board, errata, fair, paper, report
from cmlib.store import REPEATS, Store, committed, write_atomically
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
