"""The chapters as files: write one, refresh stored outputs, run all with other parameters, check them.

    python -m cmlib.notebooks refresh [chapter ...]     run in place; two runs store the same bytes
    python -m cmlib.notebooks execute [--profile P] [-p name=value] [--out DIR] [chapter ...]    run into a folder
    python -m cmlib.notebooks check [chapter ...]       metadata, sizes, alt texts, tags

A chapter is named by its file or by its number (``04``); without names all of ``book/NN_*.ipynb`` are meant.
Chapters are written as Python scripts with `new_chapter` and then refreshed::

    from cmlib.notebooks import new_chapter

    new_chapter(
        "book/04_task_incremental_cm.ipynb",
        [
            ("md", "# 4 Task-incremental CM"),
            ("install",),                                                   # the one canonical install cell
            ("code", 'profile: str = "digits"  # settings', ["parameters"]),
            ("code", "import cmlib as cm\\n\\ncm.setup(profile, chapter=4)"),
            ("code", "1 + 1", ["nbval-check-output"]),
        ],
    )
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from cmlib.errors import CmlibError, OptionError, check_name, nearest
from cmlib.plots.page import PROFILES

REPOSITORY = "https://github.com/centroids-matching/centroids-matching-book"
INSTALL = f"""\
# Only in Colab: install the book's package. Anywhere else this cell does nothing.
import sys

if "google.colab" in sys.modules:
    %pip install -q git+{REPOSITORY}"""
INSTALL_TAGS = ("install", "hide-cell")

MAX_BYTES = 500_000
MIN_CHECKED = 4
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_PATH = re.compile(r"(?<![\w./:-])/(?:home|root|Users|tmp|work|opt|usr|private|mnt|content|var|srv)/[\w.-]+|[A-Z]:\\Users")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}")
_BASE64 = re.compile(r"base64,[A-Za-z0-9+/=]+")
_IMG = re.compile(r"<img\b[^>]*>")
_ALT = re.compile(r"\balt=(\"[^\"]*[^\"\s][^\"]*\"|'[^']*[^'\s][^']*')")


# --- writing -----------------------------------------------------------------------------------------------------


def new_chapter(path: str | Path, cells: Iterable[Sequence[Any]]) -> Path:
    """Write a clean notebook without outputs from ``(kind, source, tags)``; tags may be left out.

    kind is "md", "code" or "install" (the canonical install cell; no source). Sources are dedented and stripped.
    Run ``python -m cmlib.notebooks refresh <path>`` afterwards to store the outputs.
    """
    import nbformat

    made = [_new_cell(k, *cell) for k, cell in enumerate(cells)]
    book = nbformat.v4.new_notebook(cells=made, metadata=_notebook_metadata())
    _write(Path(path), _dump(book))
    return Path(path)


def _new_cell(number: int, kind: str, source: str | None = None, tags: Sequence[str] = ()) -> Any:
    import nbformat

    if kind == "install":
        source, tags = INSTALL, INSTALL_TAGS
    if kind not in ("md", "code", "install") or source is None:
        raise OptionError(f"cell {number}: kind '{kind}' needs a source; kinds: md, code, install")
    make = nbformat.v4.new_markdown_cell if kind == "md" else nbformat.v4.new_code_cell
    text = textwrap.dedent(source).strip()
    return make(text, id=f"cell-{number:03d}", metadata={"tags": list(tags)} if tags else {})


def _notebook_metadata() -> dict[str, Any]:
    return {"kernelspec": dict(_KERNEL), "language_info": {"name": "python"}}


def _dump(book: Any) -> bytes:
    return (json.dumps(book, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode("utf-8")


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)


# --- finding -----------------------------------------------------------------------------------------------------


def book_folder() -> Path:
    """``book/`` of the current folder, or of the checkout this module lies in."""
    here = Path.cwd() / "book"
    return here if here.is_dir() else Path(__file__).resolve().parents[1] / "book"


def chapters(names: Sequence[str] = (), folder: Path | None = None) -> list[Path]:
    """The chapter notebooks, all or those named by file, stem or number; an unknown name raises `OptionError`."""
    found = sorted((folder or book_folder()).glob("[0-9][0-9]_*.ipynb"))
    return [_one_chapter(name, found) for name in names] if names else found


def _one_chapter(name: str, found: Sequence[Path]) -> Path:
    if name.endswith(".ipynb") and Path(name).is_file():
        return Path(name)
    for path in found:
        if name in (path.name, path.stem) or (name.isdigit() and path.name.startswith(f"{int(name):02d}_")):
            return path
    known = [path.stem for path in found]
    raise OptionError(f"no chapter '{name}'; there are: {', '.join(known) or 'none'}.{nearest(name, known)}")


def _read(path: Path) -> Any:
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise CmlibError(f"{path.name} is not a readable notebook: {str(error).splitlines()[0]}") from None


# --- refresh -----------------------------------------------------------------------------------------------------


def refresh(names: Sequence[str] = (), folder: Path | None = None) -> int:
    """Run chapters in place and store their outputs; two runs write the same bytes. Returns the number of changes."""
    changed = 0
    for path in chapters(names, folder):
        start = time.perf_counter()
        before = path.read_bytes()
        book = _read(path)
        _clean(book)
        _run_in_place(book, path)
        problems = [p for k, cell in enumerate(book.cells) for p in _bad_outputs(cell, k)]
        if problems:
            raise CmlibError(f"{path.name} not stored: {problems[0]}")
        after = _dump(book)
        if after != before:
            _write(path, after)
        changed += after != before
        print(f"{path.name}: {'changed' if after != before else 'unchanged'} ({time.perf_counter() - start:.1f} s)")
    return changed


def _clean(book: Any) -> None:
    book.metadata = _notebook_metadata()
    book.nbformat, book.nbformat_minor = 4, 5
    for k, cell in enumerate(book.cells):
        tags = cell.metadata.get("tags")
        cell.metadata = {"tags": list(tags)} if tags else {}
        cell["id"] = cell.get("id") or f"cell-{k:03d}"
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def _run_in_place(book: Any, path: Path) -> None:
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    client = NotebookClient(
        book,
        timeout=900,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.resolve().parent)}},
    )
    try:
        client.execute(env=_kernel_environment())
    except CellExecutionError as error:
        raise CmlibError(f"{path.name} not stored: {_failed_cell(book)} raised {error.ename}: {error.evalue}") from None
    except (CellTimeoutError, DeadKernelError) as error:
        raise CmlibError(f"{path.name} not stored: {str(error).splitlines()[0]}") from None
    finally:
        _clean_after_run(book)


def _clean_after_run(book: Any) -> None:
    book.metadata = _notebook_metadata()
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        cell.execution_count = number
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
    for cell in book.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = {"tags": list(tags)} if tags else {}


def _failed_cell(book: Any) -> str:
    for k, cell in enumerate(book.cells):
        if any(output.output_type == "error" for output in cell.get("outputs", [])):
            return f"cell {k} ({cell.source.strip().splitlines()[0][:60]})"
    return "a cell"


def _kernel_environment() -> dict[str, str]:
    root = Path(__file__).resolve().parents[1]
    keep = {**os.environ, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "PYTHONHASHSEED": "0"}
    keep["PYTHONPATH"] = os.pathsep.join(p for p in (str(root), os.environ.get("PYTHONPATH", "")) if p)
    keep.setdefault("CMLIB_STORE", str(root / "runs"))
    keep.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    return keep


# --- what may not be stored --------------------------------------------------------------------------------------


def _bad_outputs(cell: Any, number: int) -> Iterator[str]:
    for output in cell.get("outputs", []):
        if output.output_type == "error":
            yield f"cell {number} has an error output ({output.get('ename', 'error')})"
        elif output.output_type == "stream" and output.get("name") == "stderr":
            yield f"cell {number} writes to stderr: {output.text.strip().splitlines()[0][:120]}"
        text = _BASE64.sub("base64,", _text_of(output))
        for pattern, what in ((_PATH, "a path of this machine"), (_ADDRESS, "a memory address")):
            match = pattern.search(text)
            if match:
                yield f"cell {number} shows {what}: {match.group(0)}"


def _text_of(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return "\n".join(output.get("traceback", []))
    data = output.get("data", {})
    shown = [v for kind, v in data.items() if not kind.startswith("image/")]
    return "\n".join(v if isinstance(v, str) else json.dumps(v) for v in [*shown, output.get("metadata", {})])


def _without_alt(cell: Any, number: int) -> Iterator[str]:
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if any(kind.startswith("image/") for kind in data):
            yield f"cell {number} shows a bare figure; use cm.show(fig, alt=...)"
        for image in _IMG.findall(_BASE64.sub("base64,", data.get("text/html", ""))):
            if not _ALT.search(image):
                yield f"cell {number} has an image without alt text"


def check(names: Sequence[str] = (), folder: Path | None = None) -> list[str]:
    """Everything that is wrong with the stored chapters, one line each; an empty list when all is well."""
    return [f"{path.name}: {problem}" for path in chapters(names, folder) for problem in _check_one(path)]


def _check_one(path: Path) -> Iterator[str]:
    book = _read(path)
    size = path.stat().st_size
    if size > MAX_BYTES:
        yield f"{size / 1000:.0f} kB; at most {MAX_BYTES // 1000} kB"
    if dict(book.metadata) != _notebook_metadata():
        yield "notebook metadata are not clean; run refresh"
    for k, cell in enumerate(book.cells):
        if set(cell.metadata) - {"tags"}:
            yield f"cell {k} has metadata besides tags: {', '.join(sorted(set(cell.metadata) - {'tags'}))}"
        yield from _bad_outputs(cell, k)
        yield from _without_alt(cell, k)
    yield from _check_cells(book)


def _check_cells(book: Any) -> Iterator[str]:
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        yield "execution counts are not 1..n; run refresh"
    tags = [set(cell.metadata.get("tags", [])) for cell in code]
    checked = sum("nbval-check-output" in t for t in tags)
    if checked < MIN_CHECKED:
        yield f"{checked} cells are tagged nbval-check-output; at least {MIN_CHECKED}"
    if sum("parameters" in t for t in tags) != 1:
        yield "there must be exactly one cell tagged parameters"
    if sum(cell.source == INSTALL for cell in code) != 1:
        yield "the install cell is missing or differs from cmlib.notebooks.INSTALL"


# --- execute -----------------------------------------------------------------------------------------------------


def execute(
    names: Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
    out: str | Path = "_build/executed",
    folder: Path | None = None,
) -> list[Path]:
    """Run chapters into the folder `out`; parameters are text, checked and converted before anything runs."""
    paths = chapters(names, folder)
    values = {path: typed_parameters(path, parameters or {}) for path in paths}
    target = Path(out)
    target.mkdir(parents=True, exist_ok=True)
    jobs = min(len(paths), os.cpu_count() or 1)  # a chapter takes one core
    return list(Parallel(jobs)(delayed(_execute_one)(path, target / path.name, values[path]) for path in paths))


def _execute_one(path: Path, target: Path, values: Mapping[str, Any]) -> Path:
    import papermill

    start = time.perf_counter()
    old = dict(os.environ)
    os.environ.update(_kernel_environment())
    try:
        papermill.execute_notebook(
            str(path),
            str(target),
            parameters=dict(values),
            kernel_name="python3",
            progress_bar=False,
            cwd=str(path.parent),
        )
    except papermill.PapermillExecutionError as error:
        raise RuntimeError(f"{path.name}: cell {error.cell_index} raised {error.ename}: {error.evalue}") from None
    finally:
        os.environ.clear()
        os.environ.update(old)
    print(f"{path.name}: executed ({time.perf_counter() - start:.1f} s) -> {target}")
    return target


def typed_parameters(path: Path, given: Mapping[str, str]) -> dict[str, Any]:
    """The given texts as values of the types that the chapter's parameters cell declares.

    An unknown name or a value of the wrong type raises `OptionError`.
    """
    import papermill

    known = papermill.inspect_notebook(str(path)) if given else {}
    values = {}
    for name, text in given.items():
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise OptionError(f"{path.name} has no parameter '{name}'; it has: {allowed}.{nearest(name, known)}")
        values[name] = _convert(name, text, _type_name(known[name]))
    if "profile" in values:
        check_name("profile", values["profile"], PROFILES)
    return values


def _type_name(parameter: Mapping[str, str]) -> str:
    declared = str(parameter["inferred_type_name"]).strip()
    if declared not in ("", "None"):
        return declared.lower().replace(" ", "")
    try:
        return type(ast.literal_eval(parameter["default"])).__name__
    except (ValueError, SyntaxError):
        return "str"


def _convert(name: str, text: str, kind: str) -> Any:
    outer, _, inner = kind.partition("[")
    if outer in ("list", "tuple", "sequence"):
        return _convert_list(name, text, inner.rstrip("]").split(",")[0] or "str")
    try:
        if outer == "bool":
            return {"true": True, "false": False}[text.lower()]
        return {"int": int, "float": float}.get(outer, str)(text)
    except (KeyError, ValueError):
        allowed = "true or false" if outer == "bool" else f"a value of type {outer}"
        raise OptionError(f"parameter '{name}' takes {allowed}, not '{text}'") from None


def _convert_list(name: str, text: str, inner: str) -> list[Any]:
    import yaml

    try:
        items = yaml.safe_load(text)
    except yaml.YAMLError:
        items = None
    if not isinstance(items, list):
        raise OptionError(f"parameter '{name}' takes a list such as [0, 1], not '{text}'")
    return [_convert(name, str(item).lower() if isinstance(item, bool) else str(item), inner) for item in items]


# --- command line ------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cmlib.notebooks", description="The book's chapters as files.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_text in (
        ("refresh", "run chapters in place and store their outputs"),
        ("execute", "run chapters with other parameters into another folder"),
        ("check", "look for what may not be stored"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("chapters", nargs="*", metavar="chapter", help="file, name or number; all when left out")
        if name == "execute":
            command.add_argument("--profile", help="value of the parameter 'profile'")
            command.add_argument("-p", "--parameter", action="append", default=[], metavar="name=value")
            command.add_argument("--out", default="_build/executed", help="folder of the executed notebooks")
    return parser


def _given_parameters(arguments: argparse.Namespace) -> dict[str, str]:
    given = {}
    for item in arguments.parameter:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise OptionError(f"'-p {item}' is not of the form name=value")
        given[name.strip()] = value.strip()
    if arguments.profile is not None:
        given["profile"] = arguments.profile
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 well, 1 a chapter failed or a check found something, 2 a request that makes no sense."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "refresh":
            refresh(arguments.chapters)
        elif arguments.command == "execute":
            execute(arguments.chapters, _given_parameters(arguments), arguments.out)
        else:
            return _report(check(arguments.chapters), len(chapters(arguments.chapters)))
    except OptionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (CmlibError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _report(problems: Sequence[str], count: int) -> int:
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{count} {'chapter' if count == 1 else 'chapters'}: nothing to complain about")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
