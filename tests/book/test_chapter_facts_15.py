"""What chapter 15 says can be typed as it stands: its commands exist, its toy numbers are right, its run is the one it kills."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from cmlib import cli
from cmlib.reproduction import claims, figures, grids
from cmlib.store import committed

BOOK = Path(__file__).resolve().parents[2] / "book"
CELLS = json.loads((BOOK / "15_reproduce_it_all.ipynb").read_text(encoding="utf-8"))["cells"]
TEXT = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")
CODE = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code")
COMMANDS = sorted(set(re.findall(r"`cmlib ([^`]+)`", TEXT)))
KNOWN = {one.name or getattr(one.callback, "__name__", "") for one in cli.app.registered_commands}


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 15


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_exists(line: str) -> None:
    name, *words = line.split()
    assert name in KNOWN
    plain = [word for word in words if not word.startswith("-")]
    if name == "sweep":
        named = [word for word in plain if word[0].isalpha() and word not in ("paper", "cuda", "digits")]
        assert named and set(named) <= set(grids.names())
    if name == "table":
        assert plain[0] in {"1", "2", "3", "4", "5", "6"}
    if name == "figure":
        assert plain[0] in figures.FIGURES


def test_every_table_and_figure_is_in_the_list() -> None:
    for number in range(1, 7):
        assert re.search(rf"\| .*Tables? (\d and )?{number}\b", TEXT), number
    for figure in ("2a", "2b", "1", "3"):
        assert f"`cmlib figure {figure}" in TEXT
    assert f"its {len(claims.load())} sentences" in TEXT


def test_the_steps_by_hand() -> None:
    w, v, seen = 1.0, 0.0, []
    for _ in range(4):
        v = 0.9 * v + w
        w = w - 0.1 * v
        seen.append(round(w, 4))
    assert seen[:2] == [0.9, 0.72] and "the first two steps give $0.9$ and $0.72$" in TEXT
    shown = "".join("".join(output.get("text", "")) for cell in CELLS for output in cell.get("outputs", []))
    assert f"undisturbed              {seen[3]:.4f}" in shown


def test_the_board_counts_the_committed_runs() -> None:
    (cell,) = [cell for cell in CELLS if "Committed with the book" in "".join(cell["source"])]
    (page,) = ["".join(output["data"]["text/markdown"]) for output in cell["outputs"]]
    shown = {
        name: (int(runs), int(stopped)) for name, runs, stopped in re.findall(r"\| `(\w+)` \| (\d+) \| \d+ \| (\d+) \|", page)
    }
    runs = list(committed())
    made = Counter(run.experiment["profile"] for run in runs)
    stopped = Counter(run.experiment["profile"] for run in runs if run.status != "finished")
    assert shown == {name: (n, stopped[name]) for name, n in made.items()}


def test_the_program_that_is_killed_makes_the_run_that_is_compared() -> None:
    settings = re.findall(r"cm\.Experiment\(\s*\"digits\", \"til\", \"cm\", (train_per_class=[^)]*?)\s*\)", CODE)
    assert len(settings) >= 2 and len({re.sub(r"\s+", " ", one).rstrip(",") for one in settings}) == 1


def test_forgeries_are_found_in_the_stored_page() -> None:
    shown = "".join("".join(output.get("text", "")) for cell in CELLS for output in cell.get("outputs", []))
    for line in ("half a point:  1", "one image:     1", "on the page:   1", "all put right: 0"):
        assert line in shown
    for line in (
        "every cell of R equal: True",
        "the same bytes at home: True",
        "first sweep may make it: True | second sweep: False",
    ):
        assert line in shown
