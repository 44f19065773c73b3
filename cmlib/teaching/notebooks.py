"""The chapters as files: refresh stored outputs, check them. `cmlib chapters` runs them with other parameters.

    python -m cmlib.teaching.notebooks refresh [chapter ...]     run in place; two runs store the same bytes
    python -m cmlib.teaching.notebooks check [chapter ...]       metadata, and the rules of cmlib.teaching.lint

A chapter is named by its file or by its number (``04``); without names all of ``book/NN_*.ipynb`` are meant. A chapter may have
pages of its own, which carry its number in their file's name and none in their title: its number means all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from cmlib.errors import CmlibError, OptionError, nearest
from cmlib.teaching import lint
from cmlib.teaching.lint import MAX_BYTES

CHAPTERS = "[0-9][0-9]_*.ipynb"
ABSENT = (
    f"there are no chapters here: they come with the repository, not with the package; git clone {lint.REPOSITORY} "
    "and run this in it, or name a folder of them: cmlib chapters --only DIR/"
)
QUIET = "--log-level=CRITICAL"  # of a kernel: it may keep its remarks on its own connection to itself
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}  # of every notebook


# --- writing -----------------------------------------------------------------------------------------------------


def dump(book: Any) -> bytes:
    """A notebook as the book's own are stored."""
    return (json.dumps(book, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode("utf-8")


# --- finding -----------------------------------------------------------------------------------------------------


def book_folder() -> Path:
    """``book/`` of the current folder, or of the checkout this module lies in."""
    here = Path.cwd() / "book"
    return here if here.is_dir() else Path(__file__).resolve().parents[2] / "book"


def chapters(names: Sequence[str] = (), folder: Path | None = None) -> list[Path]:
    """The chapter notebooks, all or those named by file, stem, number or folder; an unknown name raises `OptionError`."""
    found = sorted((folder or book_folder()).glob(CHAPTERS))
    return [path for name in names for path in _named(name, found)] if names else found


def _named(name: str, found: Sequence[Path]) -> list[Path]:
    if ("/" not in name and os.sep not in name) or not Path(name).is_dir():
        return _one_chapter(name, found)
    inside = sorted(Path(name).glob(CHAPTERS))
    if not inside:
        raise OptionError(f"{name} holds no chapters, which are called {CHAPTERS}")
    return inside


def _one_chapter(name: str, found: Sequence[Path]) -> list[Path]:
    """The chapter of a file or a stem; by its number a chapter with all of its pages."""
    if name.endswith(".ipynb") and Path(name).is_file():
        return [Path(name)]
    numbered = f"{int(name):02d}_" if name.isdecimal() and len(name) < 3 else None
    if meant := [path for path in found if name in (path.name, path.stem) or (numbered and path.name.startswith(numbered))]:
        return meant
    if not found:
        raise OptionError(ABSENT)
    known = [path.stem for path in found]
    raise OptionError(f"no chapter '{name}'; there are: {', '.join(known)}.{nearest(name, known)}")


def read(path: Path) -> Any:
    """A notebook; CmlibError when it cannot be read."""
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise CmlibError(f"{path.name} is not a readable notebook: {str(error).splitlines()[0]}") from None


# --- refresh -----------------------------------------------------------------------------------------------------


def refresh(names: Sequence[str] = (), folder: Path | None = None) -> int:
    """Run chapters in place and store their outputs; two runs write the same bytes. Returns the number of changes."""
    from cmlib.store import write_atomically

    changed = 0
    for path in chapters(names, folder):
        start = time.perf_counter()
        before = path.read_bytes()
        book = _executed(path)
        problems = [p for k, cell in enumerate(book.cells) for p in lint.bad_outputs(cell, k)]
        if problems:
            raise CmlibError(f"{path.name} not stored: {problems[0]}")
        after = dump(book)
        if after != before:
            write_atomically(path, after)
        changed += after != before
        print(f"{path.name}: {'changed' if after != before else 'unchanged'} ({time.perf_counter() - start:.1f} s)")
    return changed


def _executed(path: Path) -> Any:
    """A chapter after a run, with clean metadata; CmlibError when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / path.name
        try:  # a reader's own runs must not enter the stored outputs: hence a store of its own
            execute(path, target, seconds=900, CMLIB_STORE=str(target.with_name("runs")))
        except CmlibError as error:
            raise CmlibError(f"{path.name} not stored: {str(error).splitlines()[0]}") from None
        book = read(target)
    _clean(book)
    return book


def _clean(book: Any) -> None:
    book.metadata = METADATA
    book.nbformat, book.nbformat_minor = 4, 5
    for k, cell in enumerate(book.cells):
        tags = cell.metadata.get("tags")
        cell.metadata = {"tags": list(tags)} if tags else {}
        cell["id"] = cell.get("id") or f"cell-{k:03d}"
    for number, cell in enumerate((cell for cell in book.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = number
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number


# --- running -----------------------------------------------------------------------------------------------------


def execute(
    source: Path, target: Path, values: Mapping[str, Any] | None = None, seconds: int | None = None, **variables: str
) -> None:
    """Run a notebook in a kernel of its own, through papermill, and write it with its outputs, also where a cell fails.

    values: of its parameters. seconds: patience with a cell. variables: of the kernel's environment. CmlibError names the cell
    that failed and says why.
    """
    import papermill

    try:
        with mock.patch.dict(os.environ, {**kernel_environment(), **variables}):  # a kernel inherits them
            papermill.execute_notebook(
                str(source),
                str(target),
                parameters=dict(values or {}),
                kernel_name="python3",
                progress_bar=False,
                request_save_on_cell_execute=False,
                execution_timeout=seconds,
                cwd=str(source.resolve().parent),
                extra_arguments=[QUIET],
                coalesce_streams=True,
            )
    except papermill.PapermillExecutionError as error:
        line = error.source.strip().splitlines()[0] if error.source.strip() else ""
        number = error.cell_index
        if values and any("parameters" in cell.metadata.get("tags", []) for cell in read(source).cells[:number]):
            number -= 1  # papermill has put a cell more after the parameters cell
        raise CmlibError(f"cell {number} ({line[:60]}) raised {error.ename}: {error.evalue}") from None
    except Exception as error:  # a dead kernel, a full disk
        raise CmlibError(f"{type(error).__name__}: {error}") from None


def kernel_environment() -> dict[str, str]:
    """What a chapter's kernel gets: one thread, no progress bars, this package, the checkout's store unless one is named."""
    root = Path(__file__).resolve().parents[2]
    keep = {**os.environ, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "PYTHONHASHSEED": "0"}
    keep["PYTHONPATH"] = os.pathsep.join(p for p in (str(root), os.environ.get("PYTHONPATH", "")) if p)
    keep.setdefault("CMLIB_STORE", str(root / "runs"))
    keep.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    return keep


# --- check -------------------------------------------------------------------------------------------------------


def check(names: Sequence[str] = (), folder: Path | None = None) -> list[str]:
    """Everything that is wrong with the stored chapters, one line each; an empty list when all is well."""
    return [f"{path.name}: {problem}" for path in chapters(names, folder) for problem in _check_one(path)]


def _check_one(path: Path) -> Iterator[str]:
    book = read(path)
    size = path.stat().st_size
    if size > MAX_BYTES:
        yield f"{size / 1000:.0f} kB; at most {MAX_BYTES // 1000} kB"
    if dict(book.metadata) != METADATA:
        yield "notebook metadata are not clean; run refresh"
    for k, cell in enumerate(book.cells):
        if set(cell.metadata) - {"tags"}:
            yield f"cell {k} has metadata besides tags: {', '.join(sorted(set(cell.metadata) - {'tags'}))}"
        yield from lint.cell_problems(cell, k)
    yield from lint.notebook_problems(book)


# --- command line ------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 well, 1 a chapter failed or a check found something, 2 a request that makes no sense."""
    parser = argparse.ArgumentParser(prog="python -m cmlib.teaching.notebooks", description="The book's chapters as files.")
    what = "refresh: run chapters in place and store their outputs; check: look for what may not be stored"
    parser.add_argument("command", choices=("refresh", "check"), help=what)
    parser.add_argument("chapters", nargs="*", metavar="chapter", help="file, name or number; all when left out")
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "check":
            return _report(check(arguments.chapters), len(chapters(arguments.chapters)))
        refresh(arguments.chapters)
    except CmlibError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, OptionError) else 1
    return 0


def _report(problems: Sequence[str], count: int) -> int:
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{count} {'chapter' if count == 1 else 'chapters'}: nothing to complain about")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
