"""The book without its solutions: what students get in a course, and the sources of a site without them.

A solution stands in the cell `cm.solution("4_2", globals())` with its outputs, and in the Markdown files of `solutions`, which a
wheel carries (`course.build_wheel` leaves them out of the students'). The quiz folds its answers. `without_solutions` takes the
first out of a notebook, `without_answers` the last out of a page, and `traces` says whether anything was overlooked.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cmlib.errors import OptionError
from cmlib.teaching import notebooks, solution

SOLUTION_CELL = re.compile(r"^cm\.solution\(", re.MULTILINE)
COLAB = re.compile(r"(?:\*\*\[Open in Colab\]|\[\*\*Open in Colab\*\*\])\([^)]*\)(?:\*\*)?\s*·\s*")
ANSWER = re.compile(r"^(`{3,}|:{3,})\{admonition\} Answer[^\n]*\n.*?^\1 *\n?", re.MULTILINE | re.DOTALL)
QUIZ = "quiz.md"
RECORD = """\
# If your teacher collects results, write a name between the quotes. Nothing else about you is noted.
cm.checks.record("")"""
SHORTEST = 24  # letters of a line that says where it comes from


# --- notebooks and pages ----------------------------------------------------------------------------------------------


def is_solution(cell: Any) -> bool:
    """Whether a cell unfolds the solution of an exercise."""
    return cell["cell_type"] == "code" and SOLUTION_CELL.search(source_of(cell)) is not None


def source_of(cell: Mapping[str, Any]) -> str:
    """The text of a cell, which a notebook may hold in lines."""
    return "".join(cell["source"])


def read(path: Path) -> dict[str, Any]:
    """A notebook as JSON."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def without_solutions(book: Mapping[str, Any]) -> dict[str, Any]:
    """A notebook, as JSON, without the cells of its solutions; everything else, outputs included, as it was."""
    made = copy.deepcopy(dict(book))
    made["cells"] = [cell for cell in made["cells"] if not is_solution(cell)]
    return made


def for_students(book: Mapping[str, Any]) -> dict[str, Any]:
    """A notebook to work in: no solutions, no outputs, no link to a copy that has both, and a cell that records on request."""
    made = without_solutions(book)
    setups = [cell for cell in made["cells"] if cell["cell_type"] == "code" and "cm.setup(" in source_of(cell)]
    asks = any("cm.checks.ch" in source_of(cell) for cell in made["cells"])
    cells = []
    for cell in made["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        elif cell["cell_type"] == "markdown":
            cell["source"] = COLAB.sub("", source_of(cell))
        cells.append(cell)
        if cell in setups[:1] and asks:
            empty: dict[str, Any] = {"metadata": {}, "outputs": [], "execution_count": None}
            cells.append({"cell_type": "code", "id": "record", "source": RECORD, **empty})
    made["cells"] = cells
    return made


def without_answers(text: str) -> str:
    """A page without its folded answers: admonitions whose title begins with the word Answer."""
    return ANSWER.sub("", text)


def write_notebook(path: Path, book: Mapping[str, Any]) -> None:
    """Write a notebook as the book's own are written."""
    path.write_bytes(notebooks.dump(book))


def sources(root: Path, target: Path) -> Path:
    """Copy what Sphinx reads (`book`, `_config.yml`, `_toc.yml`) into a fresh folder, without solutions and answers."""
    if target.resolve() in {root.resolve(), *root.resolve().parents}:
        raise OptionError(f"{target}: the book itself lies there")
    shutil.rmtree(target, ignore_errors=True)
    left_out = shutil.ignore_patterns("results", "repeats", ".ipynb_checkpoints", "*.ipynb", "__pycache__")
    shutil.copytree(root / "book", target / "book", ignore=left_out)
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy2(root / name, target)
    for path in notebooks.chapters(folder=root / "book"):
        write_notebook(target / "book" / path.name, without_solutions(read(path)))
    for path in (target / "book").glob("*.md"):
        path.write_text(without_answers(path.read_text(encoding="utf-8")), encoding="utf-8")
    return target


# --- what was overlooked ----------------------------------------------------------------------------------------------


def telling_lines(root: Path) -> dict[str, set[str]]:
    """Lines by which a solution is recognised: by its name, as "04_2", those of its file that stand nowhere else.

    White space counts as one blank. What a chapter's own cells or the package say, whose checks students need, tells nothing.
    """
    cells = [cell for path in notebooks.chapters(folder=root / "book") for cell in read(path)["cells"]]
    texts = [source_of(cell) for cell in cells if not is_solution(cell)]
    texts += [path.read_text(encoding="utf-8") for path in sorted((root / "cmlib").rglob("*.py"))]
    said = " ".join(" ".join(texts).split())
    short = {key: {" ".join(line.split()) for line in text.splitlines()} for key, text in solution.texts().items()}
    return {key: {line for line in found if len(line) >= SHORTEST and line not in said} for key, found in short.items()}


def traces(folder: Path, telling: Mapping[str, Iterable[str]]) -> list[str]:
    """Where a solution shows in a folder, inside notebooks, pages and archives too: `file: solution 04_2: the line`."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for where, text in _texts(path.relative_to(folder).as_posix(), path.name, path.read_bytes()):
            flat = " ".join(text.split())
            found += [f"{where}: solution {key}: {line}" for key, lines in telling.items() for line in lines if line in flat]
    return found


def _texts(where: str, name: str, content: bytes) -> Iterator[tuple[str, str]]:
    """The text of a file as it is, and as its reader sees it."""
    if name.endswith((".zip", ".whl")):
        import io

        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for inner in archive.namelist():
                yield from _texts(f"{where}/{inner}", inner, archive.read(inner))
        return
    if name.endswith((".png", ".npz", ".ico", ".woff", ".woff2", ".ttf", ".inv")):
        return
    text = content.decode("utf-8", errors="replace")
    yield where, text
    if name.endswith((".ipynb", ".json")):
        yield from ((where, piece) for piece in _strings(json.loads(text)))
    if name.endswith((".html", ".svg")):
        import html

        yield where, html.unescape(re.sub(r"<[^>]*>", "", text))


def _strings(value: Any) -> Iterator[str]:
    """All texts inside a JSON value; those of a list of texts are one, as a notebook writes a source."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and all(isinstance(one, str) for one in value):
        yield "".join(value)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)


def main(root: Path, folder: Path, check: Path | None = None) -> None:
    """Write sources without solutions into a folder; with a third argument only look whether a folder holds a solution."""
    if check is None:
        sources(root, folder)
        return
    if found := traces(folder, telling_lines(root)):
        raise OptionError(f"{len(found)} traces of solutions, the first: {found[0]}")
