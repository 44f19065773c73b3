"""A new method of cmlib itself is one file, its line in the registry and its golden value: the tests of methods find it there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engines
ROOT = Path(__file__).resolve().parents[2]
METHOD = '''\
"""Echo: rehearsal that also remembers how often it was asked to learn. A method that no paper has.

Keeps the exemplars and one number a task. Source: a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from cmlib.methods.base import Method, register
from cmlib.methods.rehearsal import IMAGES, MEMORY_OPTIONS, kept_exemplars, make_memory, rehearsal_batches
from cmlib.scenario import Task


@register("echo")
class Echo(Method):
    """Plain training on batches that hold exemplars."""

    title = "Echo"
    summary = "rehearsal with a counter"
    source = "a test"
    scenarios = ("cil",)
    keeps = {"cil": {**IMAGES, "counts": "N"}}
    options = {**MEMORY_OPTIONS}

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        if not task.index:
            self.register_buffer("counts", torch.zeros(self.scenario.n_tasks))
            self.memory: Any = make_memory(self.option, self.scenario.task_sizes)

    def batches(self, task: Task, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        return rehearsal_batches(self, self.memory, task, epoch)

    def end_task(self, task: Task) -> None:
        self.memory.add_task(task.x, task.y, self.seed, task.index)
        self.counts[task.index] += 1

    def retained(self) -> dict[str, list[Tensor]]:
        return {**super().retained(), **kept_exemplars(self.memory), "counts": [self.counts]}
'''
GOLDEN = """\
import json, sys
sys.path[:0] = ["tests", "tests/methods"]
import test_golden as golden
content = json.loads(golden.GOLDEN.read_text())
content["losses"]["echo-cil-revision1"] = golden.five_losses("echo-cil-revision1")
golden.GOLDEN.write_text(json.dumps(content, indent=1))
"""
COMMANDS = """\
import json, sys
from cmlib import cli
for line in json.loads(sys.argv[1]):
    code = cli.main(line.split())
    print(f"--- {code}", flush=True)
"""
FILES = (
    "golden",
    "methods",
    "measuring",
    "audit",
    "costs",
    "memory_growth",
    "own_methods",
    "paper_tables",
    "api",
    "fair",
    "memory_figures",
)
WHOLE = (  # tests that look at all methods at once
    "file_is_in_double or runs_of_one_seed or known_tasks_take or declares_what or those_of_the_paper or has_a_model "
    "or tune_every_pair or letter_is_explained"
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with one method more."""
    folder = tmp_path_factory.mktemp("copy") / "project"
    skipped = shutil.ignore_patterns("__pycache__", "*.ipynb_checkpoints", "results", "repeats")
    for part in ("cmlib", "tests", "book"):
        shutil.copytree(ROOT / part, folder / part, ignore=skipped)
    shutil.copytree(ROOT / "book" / "results" / "digits", folder / "book" / "results" / "digits")
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "cmlib" / "methods" / "echo.py").write_text(METHOD, encoding="utf-8")
    registry = folder / "cmlib" / "methods" / "__init__.py"
    text = registry.read_text(encoding="utf-8")
    registry.write_text(
        text.replace("cumulative, emr,", "cumulative, echo, emr,").replace('    "emr",', '    "echo",\n    "emr",')
    )
    return folder


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    here = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{folder / 'tests'}", "CMLIB_METHODS": ""}
    here["CMLIB_STORE"] = str(folder / "runs")
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=here, capture_output=True, text=True, check=False)


def test_the_tests_of_methods_take_it_in_and_pass(copy: Path) -> None:
    files = [str(path.relative_to(copy)) for name in FILES for path in (copy / "tests").rglob(f"test_{name}.py")]
    assert python(copy, "-c", GOLDEN).returncode == 0
    marks = "not slow and not browser and not faults and not site"
    done = python(copy, "-m", "pytest", "-q", "-rN", *files, "-m", marks, "-k", f"echo or {WHOLE}", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout[-4000:]
    counted = int(done.stdout.split(" passed")[0].split()[-1])
    assert counted >= 10, done.stdout


def test_it_is_in_the_list_and_in_table_1(copy: Path) -> None:
    lines = (
        "methods",
        "run --method echo --scenario cil --profile smoke",
        "table 1 --profile smoke",
        "audit --store runs --book runs",
    )
    done = python(copy, "-c", COMMANDS, json.dumps(lines))
    assert done.returncode == 0 and done.stdout.count("--- 0\n") == len(lines), done.stdout + done.stderr
    listed, _, table, _, rest = done.stdout.split("--- 0\n")
    assert not rest
    assert "echo        cil       rehearsal with a counter [a test]" in listed
    rows = [row for row in table.splitlines() if row.split()[:3] == ["digits", "CIL", "Echo"]]
    assert len(rows) == 3 and not any("not run yet" in row for row in rows)
