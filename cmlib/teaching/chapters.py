"""Chapters with other parameters: `cmlib chapters --profile smoke --only 4,5 -p recompute=true`.

papermill runs each chapter in a kernel of its own; the executed notebooks and a report of the whole lie in one folder. All
parameters are checked for all chapters before anything runs: papermill itself lets an unknown one pass. A chapter that fails
does not stop the others. Nothing half-written stays behind, also after Ctrl-C.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cmlib.errors import CmlibError, OptionError, StoreError
from cmlib.reproduction import render
from cmlib.reproduction.sweep import Slot, one_line
from cmlib.signals import handling
from cmlib.store import write_atomically
from cmlib.teaching.notebooks import ABSENT, chapters, read
from cmlib.teaching.notebooks import execute as execute_notebook
from cmlib.teaching.page import check_known, check_meaning, declared, takes

OUT = "_build/executed"
PASSED, FAILED, STOPPED = "passed", "failed", "interrupted"  # interrupted: by Ctrl-C, begun or not
REPORT = ("report.json", "report.md")


@dataclass(frozen=True)
class Outcome:
    """How one chapter went. seconds: from the start of its kernel to the end; error: the failing cell and why, in one line."""

    chapter: str
    status: str
    seconds: float = 0.0
    error: str = ""


# -- parameters -----------------------------------------------------------------------------------------------------------


def given_parameters(settings: Sequence[str], profile: str | None = None, recompute: bool = False) -> dict[str, str]:
    """`["seeds=3"]` and the two parameters with options of their own as texts by name; OptionError for anything else."""
    pairs = [*settings, *([f"profile={profile}"] if profile is not None else []), *(["recompute=true"] if recompute else [])]
    given: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise OptionError(f"'-p {pair}' is not of the form name=value")
        if name in given:
            raise OptionError(f"parameter '{name}' is given twice")
        given[name] = value
    return given


def typed_parameters(path: Path, given: Mapping[str, str]) -> dict[str, Any]:
    """The given texts as values of the types that the chapter's parameters cell declares.

    An unknown name, a value of the wrong type or without a meaning raises `OptionError`, which names the chapter.
    """
    if not given:
        return {}
    tagged = (cell.source for cell in read(path).cells if "parameters" in cell.metadata.get("tags", []))
    known = declared(next(tagged, ""))
    check_known(given, known, path.name)
    values = {name: _convert(path, name, text, known[name]) for name, text in given.items()}
    for name, value in values.items():
        check_meaning(name, value)
    return values


def _convert(path: Path, name: str, text: str, kind: str) -> Any:
    outer, _, inner = kind.partition("[")
    if outer in ("list", "tuple", "sequence"):
        return [_convert(path, name, one, inner.rstrip("]").split(",")[0] or "str") for one in _items(path, name, text, kind)]
    if "none" in outer.split("|") and text.lower() == "none":
        return None
    outer = next((one for one in outer.split("|") if one != "none"), "str")
    try:
        if outer == "bool":
            return {"true": True, "false": False}[text.lower()]
        return {"int": int, "float": float}.get(outer, str)(text)
    except (KeyError, ValueError):
        raise OptionError(f"{path.name}: parameter '{name}' takes {takes(outer)}, not '{text}'") from None


def _items(path: Path, name: str, text: str, kind: str) -> list[str]:
    import yaml

    try:
        items = yaml.safe_load(text)
    except yaml.YAMLError:
        items = None
    if not isinstance(items, list):
        raise OptionError(f"{path.name}: parameter '{name}' takes {takes(kind)}, not '{text}'")
    return [str(item).lower() if isinstance(item, bool) else str(item) for item in items]


# -- one chapter, in a worker ---------------------------------------------------------------------------------------------


def execute_one(source: str, target: str, values: Mapping[str, Any]) -> tuple[str, str]:
    """Run a chapter and write the executed notebook, whole or not at all: how it ended, and why in one line when it failed."""
    part, ended = _part(Path(target)), (PASSED, "")
    try:
        execute_notebook(Path(source), part, values)
    except CmlibError as error:
        ended = FAILED, one_line(str(error))
    if part.is_file():
        os.replace(part, target)
    return ended


def _part(target: Path) -> Path:
    """Where a notebook is written first; whoever interrupts its writer knows the name."""
    return target.with_name(f".{target.stem}.partial.ipynb")


# -- all chapters ---------------------------------------------------------------------------------------------------------


class Report:
    """What has become of the chapters so far: `report.json` and `report.md` in the folder, written anew as each one ends."""

    def __init__(self, folder: Path, paths: Sequence[Path], given: Mapping[str, str], jobs: int) -> None:
        self.folder, self.names, self.given, self.jobs = folder, [path.stem for path in paths], dict(given), jobs
        self.outcomes: dict[str, Outcome] = {}
        self.date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.started = time.monotonic()

    def add(self, outcome: Outcome) -> None:
        """Keep how a chapter went, and write both files."""
        self.outcomes[outcome.chapter] = outcome
        self.write()

    def write(self) -> None:
        """Write both files; StoreError when that is impossible."""
        content = self.content()
        write_atomically(self.folder / REPORT[0], (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
        write_atomically(self.folder / REPORT[1], self.markdown(content).encode())

    def content(self) -> dict[str, Any]:
        """Parameters, counts, and every chapter that has ended, in the order of the book."""
        done = [self.outcomes[name] for name in self.names if name in self.outcomes]
        seconds = round(time.monotonic() - self.started, 1)
        head = {"date": self.date, "parameters": self.given, "jobs": self.jobs, "seconds": seconds}
        return head | {"counts": self.counts(), "chapters": [asdict(one) for one in done]}

    def counts(self) -> dict[str, int]:
        """Chapters by status, and how many there are."""
        statuses = [one.status for one in self.outcomes.values()]
        return {"chapters": len(self.names), **{word: statuses.count(word) for word in (PASSED, FAILED, STOPPED)}}

    def summary(self) -> str:
        """`3 chapters: 2 passed, 1 failed`."""
        counts = self.counts()
        total = counts.pop("chapters")
        said = [f"{n} {word}" for word, n in counts.items() if n or word == PASSED]
        return f"{total} chapter{'s' * (total != 1)}: {', '.join(said)}"

    def markdown(self, content: Mapping[str, Any]) -> str:
        """The report to read."""
        given = ", ".join(f"{name}={value}" for name, value in self.given.items()) or "as the chapters set them"
        rows = [[one["chapter"], one["status"], f"{one['seconds']:.1f}", one["error"]] for one in content["chapters"]]
        table = render.markdown(("chapter", "status", "seconds", "what failed"), rows)
        head = f"{self.summary()}, {content['seconds']:.0f} s. {content['date']}, {self.jobs} at a time."
        return "\n".join(["# Executed chapters", "", head, f"Parameters: {given}.", "", table, ""])


def execute(
    names: Sequence[str] = (),
    given: Mapping[str, str] | None = None,
    out: str | Path = OUT,
    jobs: int | None = None,
    folder: Path | None = None,
) -> Report:
    """Run chapters (all without names) into the folder `out`, several side by side, and report on them.

    given: parameters as texts, checked and converted for every chapter before anything runs. jobs: chapters side by side
    (default: one a core). Errors: OptionError, StoreError; what goes wrong in a chapter is in the report. Ctrl-C raises
    KeyboardInterrupt, after the report has been written.
    """
    if jobs is not None and jobs <= 0:
        raise OptionError(f"--jobs {jobs}: expected a number above 0")
    paths = list(dict.fromkeys(chapters(names, folder)))
    if not paths:
        raise OptionError(ABSENT)
    for package in ("papermill", "ipykernel"):
        if find_spec(package) is None:
            raise OptionError(f"chapters need the package {package}: pip install {package}")
    values = {path: typed_parameters(path, given or {}) for path in paths}
    target = _fresh_folder(Path(out), paths)
    from joblib import cpu_count

    jobs = min(jobs or cpu_count(), len(paths))  # a chapter takes one core
    report = Report(target, paths, given or {}, jobs)
    with handling({signal.SIGTERM: signal.default_int_handler}):
        try:
            _run_all(paths, values, report)
        finally:
            for path in paths:
                _part(target / path.name).unlink(missing_ok=True)
            for name in set(report.names) - set(report.outcomes):
                report.outcomes[name] = Outcome(name, STOPPED)
            report.write()
    return report


def _fresh_folder(target: Path, paths: Sequence[Path]) -> Path:
    """The folder, without what an earlier call left of these chapters; one that holds the chapters themselves is refused."""
    if target.resolve() in {path.resolve().parent for path in paths}:
        raise OptionError(f"--out {target}: the chapters themselves lie there")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in [*(path.name for path in paths), *REPORT]:
            (target / name).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write to --out {target}: {error.strerror}") from None
    return target


def _run_all(paths: Sequence[Path], values: Mapping[Path, Mapping[str, Any]], report: Report) -> None:
    """Feed processes until every chapter has ended; they end with this function, and their kernels with them."""
    waiting, slots = deque(paths), [Slot() for _ in range(report.jobs)]
    try:
        while waiting or any(slot.item for slot in slots):
            for slot in slots:
                if waiting and not slot.item:
                    path = waiting.popleft()
                    slot.give(path, execute_one, str(path), str(report.folder / path.name), values[path])
                    print(f"{path.stem}: started ({len(paths) - len(waiting)} of {len(paths)})", file=sys.stderr, flush=True)
            wait([slot.future for slot in slots if slot.future], return_when=FIRST_COMPLETED)
            for slot in slots:
                if slot.future and slot.future.done():
                    path, how, why, seconds = slot.take()
                    _tell(report, Outcome(path.stem, how if how == PASSED else FAILED, round(seconds, 1), why))
    finally:
        with handling({signal.SIGTERM: signal.SIG_IGN, signal.SIGINT: signal.SIG_IGN}):
            for slot in slots:
                slot.end()


def _tell(report: Report, outcome: Outcome) -> None:
    report.add(outcome)
    print(f"{outcome.chapter}: {outcome.status} ({outcome.seconds:.1f} s){outcome.error and ': '}{outcome.error}", flush=True)


def main(
    profile: str | None = None,
    only: str | None = None,
    parameters: Sequence[str] = (),
    jobs: int | None = None,
    out: str = OUT,
    recompute: bool = False,
) -> int:
    """`cmlib chapters`: returns the exit code, 1 when a chapter failed."""
    names = [name.strip() for name in only.split(",")] if only is not None else []
    if only is not None and not all(names):
        raise OptionError(f"--only {only}: expected chapters separated by commas, as in 4,5")
    try:
        report = execute(names, given_parameters(parameters, profile, recompute), out, jobs)
    except KeyboardInterrupt:
        print(f"cmlib: interrupted; what has ended is in {Path(out) / REPORT[1]}", file=sys.stderr)
        return 1
    print(f"{report.summary()}; see {Path(out) / REPORT[1]}")
    return int(report.counts()[PASSED] < len(report.names))
