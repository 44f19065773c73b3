"""What holds for every test: known threads, stores and caches of its own, no network, and Ctrl-C as a terminal sends it.

Tests that compare losses, gradients or engines compute in double precision, by the fixture `double`: in single precision another
CPU changes the third digit of a loss after ten steps.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

THREADS = os.environ.get("CMLIB_TEST_THREADS", "1")
os.environ["OMP_NUM_THREADS"] = THREADS  # read when torch is first imported, so it is set before anything else
os.environ["MKL_NUM_THREADS"] = THREADS
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait leave the cores to the other tests
os.environ["MPLBACKEND"] = "agg"
os.environ["TQDM_DISABLE"] = "1"

_FOLDER = Path(tempfile.mkdtemp(prefix="cmlib-tests-"))
os.environ["CMLIB_STORE"] = str(_FOLDER / "runs")
os.environ["CMLIB_CACHE"] = str(_FOLDER / "cache")
os.environ["CMLIB_METHODS"] = ""  # whatever lies in cmlib_methods here

# A shell that starts the tests in the background lets them ignore Ctrl-C, and every program that a test starts would too.
signal.signal(signal.SIGINT, signal.default_int_handler)

LIMITS = {"engines": 600, "faults": 600, "browser": 300, "slow": 1800}  # seconds a test
LOCAL = ("localhost", "::1", "", None)


def pytest_unconfigure() -> None:
    shutil.rmtree(_FOLDER, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """More time than the usual limit for the kinds of tests that start programs or train longer."""
    for item in items:
        limit = max((seconds for kind, seconds in LIMITS.items() if item.get_closest_marker(kind)), default=None)
        if limit and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(limit))


def pytest_collection_finish() -> None:
    _set_threads()


def _set_threads() -> None:
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(THREADS))


@pytest.fixture(autouse=True)
def known_threads() -> Iterator[None]:
    """A test that changes torch's threads, as the first cell of a chapter does, changes them for itself alone."""
    yield
    _set_threads()


@pytest.fixture(autouse=True)
def the_papers_methods_alone() -> Iterator[None]:
    """A method that a test registers, as a chapter's cells do, is gone when the test ends."""
    yield
    registry = sys.modules.get("cmlib.methods.base")
    for name in [name for name, method in registry.METHODS.items() if method.own] if registry else []:
        del registry.METHODS[name]


@pytest.fixture(autouse=True)
def second_try(request: pytest.FixtureRequest) -> None:
    """Tests of wrong answers begin at the second try, whose line has the hint too."""
    if request.path.name.startswith("test_checks_chapter"):
        from cmlib.teaching.checks import base

        base.failures.update({f"{chapter}.{k}": 1 for chapter in range(1, 19) for k in range(1, 10)})


def _is_local(address: Any) -> bool:
    if not isinstance(address, tuple):
        return True  # the path of a Unix socket
    return address[0] in LOCAL or str(address[0]).startswith("127.")


@pytest.fixture
def counted(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Count what is summed over all tests and printed at the end: `counted("faults injected")`, `counted("runs lost", 0)`."""

    def count(what: str, number: int = 1) -> None:
        record_property(f"counted {what}", number)

    return count


def pytest_terminal_summary(terminalreporter: Any) -> None:
    totals: dict[str, int] = {}
    for report in [one for kind in ("passed", "failed") for one in terminalreporter.getreports(kind) if one.when == "call"]:
        for name, number in report.user_properties:
            if name.startswith("counted "):
                what = name.removeprefix("counted ")
                totals[what] = totals.get(what, 0) + number
    if totals:
        terminalreporter.write_line("counted: " + ", ".join(f"{number:,} {what}" for what, number in sorted(totals.items())))


def _guard(call: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: socket.socket, address: Any) -> Any:
        if not _is_local(address):
            raise RuntimeError(f"a test tried to reach {address[0]}; tests use no network")
        return call(self, address)

    return guarded


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """Refuse connections and name look-ups that leave this machine."""
    look_up = socket.getaddrinfo

    def local_look_up(host: Any, *rest: Any, **named: Any) -> Any:
        if not _is_local((host.decode() if isinstance(host, bytes) else host,)):
            raise RuntimeError(f"a test tried to look up {host}; tests use no network")
        return look_up(host, *rest, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", _guard(socket.socket.connect))
        patch.setattr(socket.socket, "connect_ex", _guard(socket.socket.connect_ex))
        patch.setattr(socket, "getaddrinfo", local_look_up)
        yield


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, one for all tests of a process."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((path for path in map(shutil.which, names) if path), None)
    if program is None:
        pytest.skip("no Chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield started
        started.close()


@pytest.fixture(scope="session")
def few_digits() -> Any:
    """The digits with five test images a class: in a short run most of the time goes into measuring."""
    import torch

    from cmlib import datasets

    digits = datasets.load("digits")
    rows = torch.cat([(digits.y_test == k).nonzero().squeeze(1)[:5] for k in range(10)])
    return replace(digits, x_test=digits.x_test[rows], y_test=digits.y_test[rows], digest="0123456789ab")


@pytest.fixture
def double() -> Iterator[None]:
    """All that would be drawn or computed in single precision is so in double precision."""
    from precision import double_precision

    with double_precision():
        yield
