"""The chapters' stored outputs are really checked: change one, and nbval fails."""

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BOOK = Path(__file__).parents[2] / "book"
CHAPTERS = sorted(BOOK.glob("[0-9][0-9]_*.ipynb"))
NBVAL = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=300", "-p", "no:cacheprovider", "-q", "-rA"]


def up_to_the_first_checked_output(path):
    """The chapter as far as its first checked cell that printed something."""
    book = json.loads(path.read_text(encoding="utf-8"))
    checked = [
        k
        for k, cell in enumerate(book["cells"])
        if "nbval-check-output" in cell["metadata"].get("tags", []) and stream(cell) and stream(cell)["text"]
    ]
    book["cells"] = book["cells"][: checked[0] + 1]
    return book


def marked(path):
    """Two chapters in `make test`, all of them in `make stress`."""
    return pytest.mark.faults if path.stem[:2] in ("01", "08") else pytest.mark.slow


def stream(cell):
    return next((output for output in cell["outputs"] if output["output_type"] == "stream"), None)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem, marks=marked(path)) for path in CHAPTERS])
def test_a_changed_output_is_seen(path, tmp_path):
    same = up_to_the_first_checked_output(path)
    changed = copy.deepcopy(same)
    output = stream(changed["cells"][-1])
    text = "".join(output["text"])
    output["text"] = (
        re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), text, count=1) if re.search(r"\d", text) else text + "x"
    )
    assert output["text"] != text
    for name, book in (("same", same), ("changed", changed)):
        (tmp_path / f"{name}.ipynb").write_text(json.dumps(book), encoding="utf-8")
    code = [cell for cell in same["cells"] if cell["cell_type"] == "code"]
    environment = {**os.environ, "PYTHONPATH": str(BOOK.parent)}
    line = [sys.executable, "-m", "pytest", *NBVAL, str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    failed = re.findall(r"^FAILED (\S+?)\.ipynb::(.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    assert [name for name, _ in failed] == ["changed"], done.stdout[-2000:]
    assert f"{2 * len(code) - 1} passed" in done.stdout
