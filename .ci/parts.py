"""Run parts of the test suite one after the other, all of them, and print the time of each: parts.py lint units ...

The exit code is 0 only when every part passed. Chromium may be absent: the browser part then says that it was skipped,
which is a failure where CMLIB_NEED_BROWSER is set. pytest's "no tests collected" counts as success ("none").
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).absolute().parent
SOURCES = ["cmlib", "tests", "book", ".ci"]
SCRIPTS = ["cmlib/plots/assets", "book/_static", "book/_static/playground", "tests"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = "browser tests skipped: no Chromium"
NONE_COLLECTED = 5

UNITS = "not slow and not browser and not faults and not engines and not site"
# Plugins of pytest that take two seconds of every process's start, where a part has no use for them.
SPARED = ["-p", "no:hypothesispytest", "-p", "no:anyio"]
BY_FILE = ["-n", "2", "--dist", "loadfile", *SPARED]
SPREAD = ["-n", "2", "--dist", "worksteal", *SPARED, "-p", "no:nbval"]  # tests of one file on both cores
NBVAL = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=300", "--timeout=330"]
COUNTS = ("passed", "failed", "skipped")
KEPT = ("executed", "course", "release", "html_without_solutions")  # in _build, when the site is built anew

# What other CPUs do, as far as this one can be told to do it: most are upper limits, so they work on every CPU.
CONFIGURATIONS = {
    "oneDNN SSE4.1": {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "oneDNN AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "oneDNN AVX-512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "ATen default": {"ATEN_CPU_CAPABILITY": "default"},
    "ATen AVX2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "one thread": {"CMLIB_TEST_THREADS": "1"},
    "two threads": {"CMLIB_TEST_THREADS": "2"},
}
SHORT = ("ATen default", "two threads")  # of the numbers alone, in every `make test`
LEVELS = ("DEFAULT", "AVX2", "AVX512")  # of instruction sets, as torch names what this CPU has
LIMITS = {"oneDNN AVX2": "AVX2", "oneDNN AVX-512": "AVX512", "ATen AVX2": "AVX2"}  # change nothing where the CPU has no more


@dataclass
class Result:
    """What a part came to: `word` is passed, FAILED, none or skipped; `counts` are pytest's passed, failed, skipped."""

    word: str = "none"
    counts: tuple[int, int, int] = (0, 0, 0)
    seconds: float = 0.0

    def add(self, other: Result) -> None:
        """Take in a further command of the same part; the worst word stays."""
        order = ("none", "passed", "skipped", "FAILED")
        self.word = max(self.word, other.word, key=order.index)
        first, second, third = (a + b for a, b in zip(self.counts, other.counts, strict=True))
        self.counts = (first, second, third)


# --- commands ------------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """The environment of every part: the programs of this Python first, one thread, no progress bars.

    The tests set their threads themselves (CMLIB_TEST_THREADS). What Python and pytest compile is kept for the next process,
    or each of a hundred would compile the package anew.
    """
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "PYTHONDONTWRITEBYTECODE": ""}


def command(*words: str, **extra: str) -> Result:
    """Run one command that either works or fails."""
    print("$", Path(words[0]).name, *words[1:], flush=True)
    done = subprocess.run(words, cwd=ROOT, env={**environment(), **extra}, check=False)
    return Result("passed" if done.returncode == 0 else "FAILED")


def pytest(*words: str, **extra: str) -> Result:
    """Run pytest; its counts come from the JUnit file that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        line = [sys.executable, "-m", "pytest", "-q", *words]
        print("$ pytest", " ".join(words), flush=True)
        store = {"CMLIB_STORE": f"{folder}/runs"}  # a local store of runs must not decide a test
        full = {**environment(), **store, **extra}
        code = subprocess.run([*line, f"--junitxml={report}"], cwd=ROOT, env=full, check=False).returncode
        counts = read_counts(report)
    return Result({0: "passed", NONE_COLLECTED: "none"}.get(code, "FAILED"), counts)


def read_counts(report: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped tests of a JUnit file; zeros when pytest did not get so far."""
    if not report.is_file():
        return 0, 0, 0
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    total = failed = skipped = 0
    for suite in suites:
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    return max(0, total - failed - skipped), failed, skipped


def chromium() -> str | None:
    """The first Chromium on the PATH, or None."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


# --- parts ---------------------------------------------------------------------------------------------------------


def lint() -> list[Result]:
    python = sys.executable
    sources = [name for name in SOURCES if (ROOT / name).exists()]
    notebooks = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "book").glob("*.ipynb"))
    done = [
        command(python, "-m", "ruff", "check", *sources),
        command(python, "-m", "ruff", "format", "--check", *sources),
        command(python, "-m", "mypy"),
        command(str(BIN / "lint-imports")),
    ]
    if shutil.which("node"):
        scripts = sorted(str(path.relative_to(ROOT)) for folder in SCRIPTS for path in (ROOT / folder).glob("*.js"))
        done += [command("node", "--check", script) for script in scripts]
    else:
        print("scripts of pages not checked: no node", flush=True)
    if notebooks:
        clean = ["-o", "-c", "--preserve-cell-metadata-field", "tags"]
        done += [command(str(BIN / "nb-clean"), "check", *clean, *notebooks)]
        done += [command(python, "-m", "cmlib.teaching.notebooks", "check")]
    return done


def units() -> list[Result]:
    return [pytest("tests", "-m", UNITS, *SPREAD)]


def stress() -> list[Result]:
    defects = command(sys.executable, "tests/mutants/plant.py")
    return [pytest(*marked("slow")), defects, command(sys.executable, "-m", "cmlib.cli", "bench", "ratios", "--json")]


def notebooks() -> list[Result]:
    return [pytest(*NBVAL, *BY_FILE, "book")]


def engines() -> list[Result]:
    return [pytest(*marked("engines", *SPREAD))]


def numbers() -> list[Result]:
    """The short form of `cpus`: only the tests whose numbers another CPU could change."""
    return configurations(SHORT, marked("numbers", *SPREAD))


def cpus() -> list[Result]:
    """Units and engines in every configuration that is another one than `make test` runs them in, on this CPU."""
    level = highest_level()
    others = [name for name in CONFIGURATIONS if name != "one thread" and not is_no_limit(name, level)]
    print(f"this CPU: {level}; as in `make test`: {', '.join(name for name in CONFIGURATIONS if name not in others)}", flush=True)
    return configurations(others, ("tests", "-m", UNITS, *SPREAD), marked("engines", *SPREAD))


def highest_level() -> str:
    """The instruction set that torch would use on this CPU."""
    code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    clean = {name: value for name, value in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    return subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True).stdout.strip()


def is_no_limit(name: str, level: str) -> bool:
    """Whether a configuration allows all that a CPU of this level has."""
    if name not in LIMITS or level not in LEVELS:
        return False
    return LEVELS.index(level) <= LEVELS.index(LIMITS[name])


def marked(marker: str, *options: str) -> tuple[str, ...]:
    """Words for pytest: the tests of one kind, from the files that hold some, so that the others need not be read."""
    holds = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if f"mark.{marker}" in path.read_text(encoding="utf-8")]
    return (*(str(path.relative_to(ROOT)) for path in holds), "-m", marker, *options)


def configurations(names: Iterable[str], *runs: tuple[str, ...]) -> list[Result]:
    """Tests under other instruction sets and numbers of threads; a table of them. runs: words for pytest."""
    found = {}
    for name in names:
        variables = CONFIGURATIONS[name]
        print(f"\n--- {name}: {' '.join(f'{key}={value}' for key, value in variables.items())}", flush=True)
        lines = [partial(pytest, *line, **variables) for line in runs]
        found[name] = timed(lambda lines=lines: [line() for line in lines])
    print(f"\n{table(found, counted=True)}", flush=True)
    return list(found.values())


def faults() -> list[Result]:
    return [pytest(*marked("faults", *SPREAD))]


def build() -> list[Result]:
    """The site from nothing (a second build on a broken source would pass); executed chapters and what is handed out stay."""
    for path in (ROOT / "_build").glob("*"):
        if path.name not in KEPT:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return [command(str(BIN / "jupyter-book"), "build", ".", "-W", "-n", "--keep-going")]


def build_without_solutions() -> list[Result]:
    """The same site from sources without solutions and answers, in a folder of its own; nothing of them may be left."""
    source = ROOT / "_build" / "without_solutions"
    target = ROOT / "_build" / "html_without_solutions"
    code = "import sys; from pathlib import Path; from cmlib.teaching import edition; edition.main(*map(Path, sys.argv[1:]))"
    done = [command(sys.executable, "-c", code, str(ROOT), str(source))]
    if done[-1].word == "passed":
        done += [command(str(BIN / "jupyter-book"), "build", str(source), "-W", "-n", "--keep-going")]
    if done[-1].word == "passed":
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(source / "_build" / "html", target)
        shutil.rmtree(source)
        done += [command(sys.executable, "-c", code, str(ROOT), str(target), "check")]
    return done


def book() -> list[Result]:
    return [*build(), pytest(*marked("site", *SPREAD))]


def browser(which: str = "browser") -> list[Result]:
    """Every page in every form, and all that moves. which: pytest's expression of markers."""
    needed = bool(os.environ.get("CMLIB_NEED_BROWSER"))
    if chromium() is None:
        print(NO_BROWSER, flush=True)
        return [Result("FAILED" if needed else "skipped")]
    result = pytest(*marked("browser", "-rs", *SPREAD), "-m", which)
    if needed and result.counts[2]:
        print(f"{result.counts[2]} browser tests were skipped though Chromium is there", flush=True)
        result.word = "FAILED"
    return [result]


def glance() -> list[Result]:
    """The short form of `browser`: every page once, and the quick tests of what moves."""
    return browser("browser and not slow")


EVERY = (lint, units, notebooks, book, engines, numbers, faults, browser, glance, stress, build, build_without_solutions, cpus)
PARTS = {part.__name__: part for part in EVERY}


# --- all together --------------------------------------------------------------------------------------------------


def timed(part: Callable[[], list[Result]]) -> Result:
    """Run the commands of a part, sum them up and time them."""
    start = time.perf_counter()
    total = Result()
    for result in part():
        total.add(result)
    total.seconds = time.perf_counter() - start
    return total


def table(results: dict[str, Result], counted: bool = False) -> str:
    """A line a part, the total, pytest's counts over all parts, and the names of the parts that failed.

    counted: each line says how many tests passed.
    """
    width = max(10, *(len(name) for name in results))
    tests = {name: f"{result.counts[0]:>6} tests" if counted else "" for name, result in results.items()}
    rows = [f"{name:<{width}}  {result.word:<8}{tests[name]}{result.seconds:>7.0f} s" for name, result in results.items()]
    rows.append(f"{'all':<{width}}  {'':<{20 if counted else 8}}{sum(result.seconds for result in results.values()):>7.0f} s")
    sums = (sum(result.counts[k] for result in results.values()) for k in range(3))
    rows.append("tests: " + ", ".join(f"{count} {word}" for count, word in zip(sums, COUNTS, strict=True)))
    failed = [name for name, result in results.items() if result.word == "FAILED"]
    return "\n".join([*rows, f"FAILED: {', '.join(failed)}"] if failed else rows)


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in PARTS]
    if unknown or not names:
        print(f"unknown part '{' '.join(unknown)}'; allowed: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    results = {}
    for name in names:
        print(f"\n=== {name} ===", flush=True)
        results[name] = timed(PARTS[name])
    print(f"\n{table(results)}", flush=True)
    return int(any(result.word == "FAILED" for result in results.values()))


if __name__ == "__main__":
    # A shell that starts this in the background lets it ignore Ctrl-C, and every program started here would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
