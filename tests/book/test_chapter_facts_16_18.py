"""What chapters 16 and 18 say: limits of angles, what a hook costs, and a page that reads without Avalanche."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from chapter16 import cells

import cmlib as cm
from cmlib.methods.base import Method, split_batch

BOOK = Path(__file__).resolve().parents[2] / "book"


def words(chapter: str) -> str:
    content = json.loads((BOOK / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in content if cell["cell_type"] == "markdown")
    return re.sub(r"\s+", " ", text)


def test_five_hooks_are_what_the_parent_calls_so() -> None:
    """The hooks of the page are those of `base`, each with an answer of the parent's."""
    (cell,) = [cell for cell in cells() if cell.startswith("HOOKS = ")]
    hooks = re.findall(r'"(\w+)"', cell.splitlines()[0])
    assert hooks == ["begin_task", "loss", "end_task", "scores", "retained"]
    assert all(name in vars(Method) for name in (*hooks, "batches", "step"))
    assert all(f"| `{name}` |" in words("16_your_own_method") for name in hooks)


def test_how_sure_an_angle_can_be() -> None:
    assert math.e / (math.e + 1) < 0.75 and math.e / (math.e + 9) < 0.25
    assert "less than three quarters" in words("16_your_own_method") and "less than a quarter" in words("16_your_own_method")
    assert math.exp(10) / (math.exp(10) + 9) > 0.999
    assert cm.METHODS["cope"].options["temperature"].default == 0.1


def test_steps_of_an_epoch_as_exercise_18_1_counts_them() -> None:
    """The share of the current task is the largest piece of a batch."""
    for B in (8, 16, 20, 32, 33):
        for t in range(1, 6):
            assert split_batch(B, t)[0] == math.ceil(B / t)


WITHOUT = """\
import json, sys
sys.modules["avalanche"] = None
names = {}
content = json.load(open(sys.argv[1], encoding="utf-8"))["cells"]
for cell in content:
    source = "".join(cell["source"])
    if cell["cell_type"] == "code" and "%pip" not in source and "cm.solution(" not in source:
        exec(compile(source, "cell", "exec"), names)
assert names["bridge"] is None
print("pairs:", len(names["pairs"]), "alike:", len(names["equal"]))
"""


@pytest.mark.engines
def test_chapter_18_reads_without_avalanche(tmp_path: Path) -> None:
    """One line says how to get it, and the numbers of both engines are there all the same."""
    here = {**os.environ, "PYTHONPATH": str(BOOK.parent), "CMLIB_STORE": str(tmp_path)}
    command = [sys.executable, "-c", WITHOUT, str(BOOK / "18_cm_inside_avalanche.ipynb")]
    done = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("pip install 'cmlib[avalanche]'") == 1
    pairs, alike = map(int, re.search(r"pairs: (\d+) alike: (\d+)", done.stdout).groups())  # type: ignore[union-attr]
    assert pairs == 9 and alike >= 4
