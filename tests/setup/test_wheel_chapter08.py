"""The wheel alone is enough for chapter 8: it carries the committed runs, so the tables stand in a plain installation."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_exercises import answered, cells_of, exercises, needed
from test_setup import ROOT, shell

CHAPTER = ROOT / "book" / "08_main_table.ipynb"
SCRIPT = """\
import ast, json, sys

for source in json.load(open(sys.argv[1], encoding="utf-8")):
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), globals())
    if last is not None:  # what a notebook shows
        shown = eval(compile(ast.Expression(last.value), "cell", "eval"), globals())
        if shown is not None:
            print(shown)
import cmlib
print("cmlib of", cmlib.__file__)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the unpacked wheel, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "cmlib", source / "cmlib", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "book" / "results", source / "book" / "results")
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet"]
    done = shell(sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", folder, source)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("cmlib-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    shutil.rmtree(source)
    return folder / "site"


def tables_and_solutions() -> list[str]:
    """The chapter's code as far as its tables, and its solutions with what they need."""
    cells = cells_of(CHAPTER)
    end = next(k for k, cell in enumerate(cells) if "cm.show(" in cell.source)  # the first figure
    wanted = set(range(end)).union(*(needed(answered(one), one.solution) for one in exercises(CHAPTER)))
    return code([cell for k, cell in enumerate(cells) if k in wanted])


def all_cells() -> list[str]:
    return code(cells_of(CHAPTER))


def code(cells: list[Any]) -> list[str]:
    """The code of cells, but for the one that installs in Colab."""
    return [cell.source for cell in cells if cell.cell_type == "code" and "install" not in cell.metadata.get("tags", [])]


def committed_accuracy(method: str, scenario: str, n_seeds: int) -> float:
    """Mean accuracy of a method on digits, by a plain reading of the committed files."""
    files = (ROOT / "book" / "results" / "digits" / f"digits-{scenario}" / method).glob("seed*.json")
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    rows = [row for row in rows if row["experiment"]["seed"] < n_seeds]
    return statistics.fmean(statistics.fmean(row["R"][-1]) for row in rows)


@pytest.mark.parametrize("cells", [tables_and_solutions, pytest.param(all_cells, marks=pytest.mark.slow)])
def test_chapter_8_shows_its_tables_from_the_wheel_alone(installed: Path, tmp_path: Path, cells: Callable[[], list[str]]) -> None:
    (tmp_path / "cells.json").write_text(json.dumps(cells()), encoding="utf-8")
    (tmp_path / "chapter.py").write_text(SCRIPT, encoding="utf-8")
    empty = {"CMLIB_STORE": str(tmp_path / "runs"), "CMLIB_CACHE": str(tmp_path / "cache"), "PYTHONSAFEPATH": "1"}
    done = shell(
        sys.executable, "chapter.py", "cells.json", cwd=tmp_path, PYTHONPATH=str(installed), OMP_NUM_THREADS="1", **empty
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"cmlib of {installed / 'cmlib' / '__init__.py'}" in done.stdout
    assert not (tmp_path / "runs").exists()  # nothing was trained into a store
    for method, scenario in (("cm", "til"), ("cm", "cil"), ("er", "cil")):
        title = {"cm": "CM", "er": "ER"}[method]
        assert f"| {title} | {committed_accuracy(method, scenario, 5):.1f} ± " in done.stdout
    assert all(f"[solution 8.{k}]" in done.stdout for k in (1, 2, 3))  # shown only when they pass their checks
