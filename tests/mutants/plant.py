"""Plant one defect after the other in a copy of cmlib and see that the unit tests find each: plant.py [name ...]

`defects.toml` lists them: a file of cmlib, the text that stands there exactly once, what is put in its place, what a reader would
get wrong, and the unit tests that have to find it. A defect is found when a test fails by an assertion; a copy that cannot be
imported, or a test that breaks in another way, is not a find. The copy without a defect must pass the same tests.
Each copy is tried in a child process that is forked after torch was imported, so a defect costs about as much as its tests.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shlex
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("defects.toml")
LARGE = ("torch", "torch._dynamo", "scipy.optimize", "scipy.stats", "pandas", "sklearn.datasets", "typer")
LIMIT = 900  # seconds, for the tests of one defect, or of all on the copy without one
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "--rootdir", str(ROOT)]
QUICK = {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "CUDA_VISIBLE_DEVICES": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
FOUND, MISSED, BROKEN = "found", "NOT FOUND", "BROKEN"


@dataclass(frozen=True)
class Defect:
    """One defect. file: below cmlib. wrong: what a reader would get wrong. tests: files, with `::name` or `-k words`."""

    name: str
    file: str
    old: str
    new: str
    wrong: str
    tests: Sequence[str]

    def planted(self, text: str) -> str:
        """A file's text with the defect in it; ValueError unless the old text stands there exactly once."""
        if text.count(self.old) != 1 or self.old == self.new:
            times = f"{text.count(self.old)} times" if text.count(self.old) != 1 else "unchanged"
            raise ValueError(f"defect '{self.name}': its old text stands {times} in cmlib/{self.file}; it must stand there once")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Verdict:
    """found, NOT FOUND or BROKEN; the test that found it, or what happened instead; seconds."""

    word: str
    by: str
    seconds: float


def prepare() -> None:
    """Import what is large before children are forked, and let them run with one thread and without pytest's plugins."""
    os.environ |= QUICK
    for name in LARGE:
        importlib.import_module(name)


def load() -> list[Defect]:
    """Every defect, in the order of the file."""
    entries = tomllib.loads(LIST.read_text(encoding="utf-8"))["defects"]
    return [Defect(**entry) for entry in entries]


@contextmanager
def copy_of_cmlib(defect: Defect | None = None) -> Iterator[Path]:
    """A temporary folder with cmlib in it, with a defect or as it is; the book beside it is the real one."""
    with tempfile.TemporaryDirectory(prefix="cmlib-defect-") as name:
        folder = Path(name)
        shutil.copytree(ROOT / "cmlib", folder / "cmlib")  # with what Python compiled: it fits as long as the times do
        (folder / "book").symlink_to(ROOT / "book")
        if defect is not None:
            path = folder / "cmlib" / defect.file
            path.write_text(defect.planted(path.read_text(encoding="utf-8")), encoding="utf-8")
        yield folder


class Watch:
    """A pytest plugin that notes which tests passed, which failed by an assertion, and what else went wrong."""

    def __init__(self) -> None:
        self.passed, self.failed, self.broken = 0, "", ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        if call.excinfo is None:
            self.passed += call.when == "call"
        elif call.excinfo.errisinstance((AssertionError, pytest.fail.Exception)):
            self.failed = self.failed or item.nodeid
        elif not call.excinfo.errisinstance(pytest.skip.Exception):
            self.broken = self.broken or f"{call.excinfo.typename} in {item.nodeid}"
        return (yield)


def run_tests(folder: Path, tests: Sequence[str], units: str, answer: Any) -> None:
    """In a child process: run unit tests on the cmlib of a folder and send (passed, failed, broken) back."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)
    import cmlib

    assert Path(cmlib.__file__).is_relative_to(folder)
    watch = Watch()
    for line in tests:
        file, *chosen = shlex.split(line)
        code = pytest.main([str(ROOT / "tests" / file), *chosen, *OPTIONS, "-m", units], plugins=[watch])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            watch.broken = watch.broken or f"pytest ended with '{pytest.ExitCode(code).name}' on {line}"
        if watch.failed or watch.broken:
            break
    answer.send((watch.passed, watch.failed.removeprefix("tests/"), watch.broken))


def ask(folder: Path, tests: Sequence[str], units: str) -> tuple[int, str, str]:
    """Run tests in a child process; (passed, failed, broken)."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=run_tests, args=(folder, tests, units, there))
    child.start()
    there.close()
    try:
        return here.recv() if here.poll(LIMIT) else (0, "", f"no answer in {LIMIT} seconds")
    except EOFError:
        return 0, "", "the copy cannot be imported, or the tests ended by themselves"
    finally:
        child.kill()
        child.join()


def trial(defect: Defect, units: str) -> Verdict:
    """Plant one defect and look for it."""
    started = time.perf_counter()
    with copy_of_cmlib(defect) as folder:
        _, failed, broken = ask(folder, defect.tests, units)
    seconds = time.perf_counter() - started
    if broken:
        return Verdict(BROKEN, broken, seconds)
    return Verdict(FOUND, failed, seconds) if failed else Verdict(MISSED, f"passed: {', '.join(defect.tests)}", seconds)


def sound(defects: Sequence[Defect], units: str) -> Verdict:
    """Whether the copy without a defect passes the same tests."""
    started = time.perf_counter()
    tests = sorted({line for defect in defects for line in defect.tests})
    with copy_of_cmlib() as folder:
        passed, failed, broken = ask(folder, tests, units)
    word = BROKEN if failed or broken else "passes"
    return Verdict(word, failed or broken or f"{passed} tests", time.perf_counter() - started)


def line(name: str, verdict: Verdict) -> str:
    """One line of the table."""
    return f"{name:<34}  {verdict.word:<9}  {verdict.seconds:>5.1f} s  {verdict.by}"


def main(names: Sequence[str]) -> int:
    """Try the named defects, or all; the exit code is 0 only when each is found and the copy without one passes."""
    sys.path.insert(0, str(ROOT / ".ci"))
    from parts import UNITS  # what the unit part runs

    known = {defect.name: defect for defect in load()}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"unknown defect '{unknown[0]}'; allowed: {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in names] if names else list(known.values())
    prepare()
    started = time.perf_counter()
    whole = sound(chosen, UNITS)
    print(line("(no defect)", whole), flush=True)
    words = [whole.word]
    for defect in chosen:
        verdict = trial(defect, UNITS)
        words.append(verdict.word)
        print(line(defect.name, verdict), flush=True)
    found = words.count(FOUND)
    print(f"{found} of {len(chosen)} defects found in {time.perf_counter() - started:.0f} s")
    return int(found < len(chosen) or whole.word == BROKEN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
