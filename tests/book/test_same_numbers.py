"""The same cell is the same number on every page: what the notebooks' records and the pages' tables show is compared.

Two looks at the pages, neither of which runs anything. *Tables*: a row that names a method, under a head that names a metric, is
read as a reader would; wherever a page shows the same data, scenario, method, metric and number of runs, it must show the same
number. *Records*: a value that is the mean over the runs a text names is traced to its setting; a mean over fewer seeds than the
store has must stand in a text that speaks of its seeds or runs, so that nobody takes it for the other one.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cmlib.methods import METHODS
from cmlib.reproduction import paper
from cmlib.store import FINISHED, Run, Store
from cmlib.teaching.solution import unfolded

BOOK = Path(__file__).resolve().parents[2] / "book"
TITLES = {cls.title: name for name, cls in METHODS.items()}
METRICS = ("accuracy", "bwt_final", "bwt")
MOST = 5  # seeds of a setting, as the chapters' parameter says
NUMBER = re.compile(r"[-+]?\d+\.\d+")
FEW = re.compile(r"\b(seeds?|runs?)\b")
PLACES = (("paper's scale", "paper"), ("full scale", "paper"), ("`paper`:", "paper"), ("mini", "mini"), ("digits", "digits"))


# -- what a reader sees in a table ---------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """One number of a table, and all that a reader needs to know what it is."""

    profile: str
    scenario: str
    method: str
    metric: str
    runs: int
    page: str
    number: str

    @property
    def what(self) -> tuple[str, str, str, str, int]:
        return self[:5]


def split(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def tables(text: str) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """The Markdown tables of a text: what stands before each (its caption), its head, its rows."""
    lines, caption = text.splitlines(), ""
    k = 0
    while k < len(lines):
        if lines[k].startswith("|") and k + 1 < len(lines) and re.fullmatch(r"\|[\s:|-]+\|?", lines[k + 1]):
            rows = []
            head, k = split(lines[k]), k + 2
            while k < len(lines) and lines[k].startswith("|"):
                rows.append(split(lines[k]))
                k += 1
            yield caption, head, rows
            continue
        caption = lines[k] if lines[k].strip() and not lines[k].startswith((":::", "%")) else caption
        k += 1


def first(words: tuple[tuple[str, str], ...], *texts: str) -> str:
    return next((value for text in texts for word, value in words if word in text), "")


def scenario_in(*texts: str) -> str:
    found = [set(re.findall(r"\b(TIL|CIL)\b", text)) for text in texts]
    return next((next(iter(one)).lower() for one in found if len(one) == 1), "")


def cells_of(text: str, page: str, usual: str = "") -> Iterator[Cell]:
    """The numbers of a text's tables whose row names a method in its usual setting and says how many runs are behind it."""
    for caption, head, rows in tables(text):
        names = [one.lower() for one in head]
        ours = [k for k, one in enumerate(names) if one == "ours" or one.endswith(": cmlib")]
        for row in rows:
            labels = [re.sub(r"\b(TIL|CIL)\b,?|\*\*|,$", "", cell).strip(" ,") for cell in row]
            method = next((TITLES[one] for one in labels[:2] if one in TITLES), "")
            profile = first(PLACES, head[0], caption) or usual
            scenario = scenario_in(" ".join(row[:2]), head[0], caption)
            if not (method and profile and scenario and len(row) == len(head)):
                continue
            metric = ""
            for k, name in enumerate(names):
                metric = next((m for m in METRICS if re.match(rf"{m}\b(?!_)", name)), metric if name.startswith("ours") else "")
                plain = re.sub(r":.*", "", name) in METRICS and not ours
                shown = NUMBER.match(row[k])
                runs = re.search(r"\((\d+) runs?", row[k]) or re.search(
                    r"\d+", row[names.index("runs")] if "runs" in names else ""
                )
                if metric and shown and runs and (plain or k in ours):
                    yield Cell(profile, scenario, method, metric, int(runs[1] if runs.groups() else runs[0]), page, shown[0])


@cache
def every_cell() -> list[Cell]:
    found: list[Cell] = []
    for path in sorted(BOOK.glob("*.ipynb")):
        for record, _ in records(path):
            found += cells_of(record["shown"], path.stem)
    for name, profile in (("two_engines", "digits"), ("results_board", "")):
        path = BOOK / f"{name}.md"
        found += cells_of(path.read_text(encoding="utf-8"), name, profile) if path.exists() else []
    return found


def same(numbers: list[str]) -> bool:
    """Whether numbers are one, read to the decimals of the shortest."""
    places = min(len(one.split(".")[1]) for one in numbers)
    values = [float(one) for one in numbers]
    return max(values) - min(values) <= (0 if len(set(numbers)) == 1 else 0.5000001 * 10**-places)


# -- what the records say ------------------------------------------------------------------------------------------------


@cache
def store() -> dict[str, Run]:
    return {run.id: run for run in Store(BOOK / "results")}


def records(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """The records of `say` in a notebook, each with what it shows, and the text of the cells just before it."""
    before: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            record = output.get("metadata", {}).get("cmlib")
            if isinstance(record, dict) and set(record) == {"text", "values", "runs"}:
                shown = output["data"].get("text/markdown", "")
                text = shown if isinstance(shown, str) else "".join(shown)
                yield {**record, "shown": unfolded(text)}, "\n".join(before[-2:])
        if cell["cell_type"] == "markdown":
            before.append("".join(cell["source"]))


def means(record: dict[str, Any]) -> Iterator[tuple[str, str, float, list[int]]]:
    """Values of a record that are a mean over all the runs it names of one setting: setting, metric, value, seeds."""
    named: dict[str, dict[int, Run]] = defaultdict(dict)
    for one in record["runs"]:
        if one in store() and store()[one].status == FINISHED:
            named[store()[one].setting][store()[one].seed] = store()[one]
    for value in record["values"].values():
        if type(value) is not float:
            continue
        hits = {
            (setting, metric)
            for setting, runs in named.items()
            for metric in METRICS
            if math.isclose(statistics.fmean(getattr(run, metric) for run in runs.values()), value, abs_tol=1e-9)
        }
        if len(hits) == 1:
            ((setting, metric),) = hits
            yield setting, metric, value, sorted(named[setting])


@cache
def seeds_of() -> dict[str, set[int]]:
    """The finished seeds that the store has of each setting, up to as many as the chapters read."""
    found: dict[str, set[int]] = defaultdict(set)
    for run in store().values():
        if run.status == FINISHED and run.seed < MOST:
            found[run.setting].add(run.seed)
    return found


# -- the tests -----------------------------------------------------------------------------------------------------------


def test_the_same_cell_is_the_same_number_on_every_page() -> None:
    pages: dict[tuple[str, str, str, str, int], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for cell in every_cell():
        pages[cell.what][cell.page].append(cell.number)
    wrong = {what: dict(shown) for what, shown in pages.items() if not same([n for one in shown.values() for n in one])}
    assert not wrong
    assert sum(len(shown) > 1 for shown in pages.values()) >= 10  # the pages are read: many numbers stand on several


def test_a_cell_is_the_number_that_the_committed_runs_give() -> None:
    for cell in every_cell():
        runs = [run for run in store().values() if usual(run, cell) and run.seed < MOST]
        made = statistics.fmean(getattr(run, cell.metric) for run in sorted(runs, key=lambda run: run.seed)[: cell.runs])
        assert len(runs) >= cell.runs and same([cell.number, f"{made:.9f}"]), (cell, made)


def usual(run: Run, cell: Cell) -> bool:
    """Whether a run is one of a cell's: by the folder's name, a setting without options of its own."""
    content = run.experiment
    place = (content["profile"], content["scenario"], content["method"], content["engine"])
    return run.status == FINISHED and place == (*cell[:3], "cmlib") and plain_setting(run)


@cache
def plain_ids() -> frozenset[str]:
    """The runs in folders without a variant: `digits-til/cm`, not `digits-til/cm-lam=0`."""
    files = (BOOK / "results").glob("*/*/*/seed*.json")
    plain = [path for path in files if path.parent.name in METHODS]
    return frozenset(json.loads(path.read_text(encoding="utf-8"))["id"] for path in plain)


def plain_setting(run: Run) -> bool:
    return run.id in plain_ids()


@pytest.mark.parametrize("path", sorted(BOOK.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_mean_over_fewer_seeds_than_there_are_says_so(path: Path) -> None:
    silent = []
    for record, before in records(path):
        for setting, metric, value, seeds in means(record):
            if len(seeds) > 1 and set(seeds) < seeds_of()[setting] and not FEW.search(record["shown"] + before):
                silent.append((store()[record["runs"][0]].id, metric, round(value, 2), seeds, record["shown"][:120]))
    assert not silent


@pytest.mark.parametrize(
    ("numbers", "one"),
    [
        (["97.7", "97.72"], True), (["97.7", "97.7"], True), (["97.7", "97.6"], False), (["97.7", "97.78"], False),
        (["-0.8", "-0.81", "-0.84"], True),
    ],
)  # fmt: skip
def test_numbers_are_read_to_the_decimals_of_the_shortest(numbers: list[str], one: bool) -> None:
    assert same(numbers) is one


def test_a_table_is_read_as_a_reader_does() -> None:
    text = (
        "*digits, TIL, percent.*\n\n| method | accuracy | bwt_final | runs |\n|---|---|---|---|\n"
        "| CM | 97.7 ± 1.8 | -1.9 ± 2.6 | 5 |\n| CM, `lam=0` | 90.0 | -8.0 | 3 |\n| SS-IL | not run yet | | 0 |\n\n"
        "| mini, CIL | accuracy | cost | runs |\n|---|---|---|---|\n| **ER** | 32.7 | 1.81 | 2 |\n\n"
        "| scenario | method | accuracy: cmlib | Avalanche |\n|---|---|---:|---:|\n| TIL | ER | 98.61 ± 0.2 (3 runs) | 1.0 |\n"
    )
    assert list(cells_of(text, "page", "digits")) == [
        Cell("digits", "til", "cm", "accuracy", 5, "page", "97.7"),
        Cell("digits", "til", "cm", "bwt_final", 5, "page", "-1.9"),
        Cell("mini", "cil", "er", "accuracy", 2, "page", "32.7"),
        Cell("digits", "til", "er", "accuracy", 3, "page", "98.61"),
    ]


def test_chapter_8_says_what_the_paper_prints_below_naive() -> None:
    """Naive is no lower bound: the table that says so holds every method that the paper prints below it, and no other."""
    printed = paper.table1()
    lower = {
        (key[0], key[1].upper(), METHODS[key[2]].title, f"{value.mean:.1f}")
        for key, value in printed.items()
        if key[3] == "accuracy" and value.mean < printed[*key[:2], "naive", "accuracy"].mean
    }
    assert {
        ("cifar10", "CIL", "EWC", "17.1"),
        ("cifar10", "CIL", "OEWC", "15.8"),
        ("tiny-imagenet", "TIL", "GEM", "14.1"),
    } <= lower
    texts = [record["shown"] for record, _ in records(BOOK / "08_main_table.ipynb") if "| below it |" in record["shown"]]
    (_, _, rows), *_ = tables(texts[0])
    shown = {(*row[0].split(", "), *cell.rsplit(" ", 1)) for row in rows for cell in row[2].split(", ") if cell != "nothing"}
    assert shown == lower
