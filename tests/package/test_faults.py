"""Faults of every kind, one after the other, while a run is made: no finished run is lost, no result is wrong, no traceback.

Each fault hits a run beside which a finished one lies. Afterwards the finished one is as it was, whatever is left half-written
is removed by a sweep, and the same command again ends with the same accuracies. The counts are printed after the tests.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny_nets

import cmlib as cm
from cmlib import cli, imagefiles, loop, machine, nets
from cmlib.checkpoint import Checkpoint
from cmlib.methods import base
from cmlib.methods.cm import CentroidsMatching
from cmlib.reproduction import sweep
from cmlib.store import Store

pytestmark = pytest.mark.faults

OPTIONS = {"epochs": 2, "train_per_class": 16, "n_tasks": 2}
WANTED = cm.Experiment("digits", "cil", "cm", 0, "smoke", **OPTIONS)
COMMAND = ["run", "--scenario", "cil", "--profile", "smoke", *[f"--set={name}={value}" for name, value in OPTIONS.items()]]
PHASES = (
    "write of a checkpoint",
    "after a checkpoint",
    "end_task",
    "evaluation",
    "write of the result",
    "before the checkpoint goes",
)
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")


@dataclass
class Case:
    """A store with a finished run in it, and what a fault did there."""

    folder: Path
    said: Path  # stderr of a child
    counted: Callable[..., None]
    undisturbed: cm.Run
    before: dict[Path, bytes] = field(default_factory=dict)

    def start(self) -> None:
        other = WANTED.but(method="naive", seed=5)
        cm.run(other, store=self.folder, progress=False)
        self.before = {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        assert len(self.before) == 1

    @property
    def place(self) -> Path:
        """Where the result of the run belongs."""
        return Store(self.folder).path(WANTED, cm.datasets.load("digits").digest)

    @property
    def checkpoint(self) -> Path:
        return self.place.with_suffix(".ckpt")

    def command(self) -> int:
        """The command, in this process."""
        return cli.main([*COMMAND, "--store", str(self.folder)])

    def interrupted(self, prepare: Callable[[], None]) -> tuple[int, str]:
        """The command in a child, which `prepare` has been called in. -> its exit code and what it wrote to stderr"""
        child = self.child(prepare, self.said)
        child.join(120)
        child.kill()  # it has ended, or never would
        assert child.exitcode is not None, "it hangs"
        return child.exitcode, self.said.read_text()

    def child(self, prepare: Callable[[], None], said: Path) -> Any:
        """The command in a process of its own, which has begun."""

        def work() -> None:
            sys.stderr = said.open("w", buffering=1)
            os.dup2(sys.stderr.fileno(), 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            prepare()
            sys.exit(self.command())

        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        return child

    def check(self, said: str, again: bool = True) -> None:
        """Count the fault, run the command again, and look at everything."""
        lost = sum(not path.is_file() or path.read_bytes() != content for path, content in self.before.items())
        sweep.tidy([self.place])
        names = [path.name for path in self.folder.rglob("*") if path.is_file()]
        code = self.command() if again else 0
        made = Store(self.folder).read(self.place) if self.place.is_file() else None
        right = made is not None and (made.R, made.R_task_known, made.gradient_steps) == self.kept
        self.counted("faults injected")
        self.counted("runs lost", lost)
        self.counted("wrong results", int(made is not None and not right))
        self.counted("tracebacks", int("Traceback" in said))
        assert not lost and right and code == 0 and "Traceback" not in said, (lost, right, code, said[-2000:])
        assert all(name.startswith("seed") and name.endswith((".json", ".ckpt")) for name in names), names
        assert not self.checkpoint.exists() and not [*self.folder.rglob(".*")]

    @property
    def kept(self) -> Any:
        run = self.undisturbed
        return run.R, run.R_task_known, run.gradient_steps


@pytest.fixture(scope="module")
def small() -> Iterator[cm.Run]:
    """All nets are small while these tests run; the run as it is made without a fault."""
    with tiny_nets() as patch:
        patch.setattr(machine, "_git", lambda *_: "")  # asked once a run, and slow
        yield cm.run(WANTED, progress=False)


@pytest.fixture
def case(small: cm.Run, tmp_path: Path, counted: Callable[..., None]) -> Case:
    made = Case(tmp_path / "store", tmp_path / "stderr", counted, small)
    made.start()
    return made


def at(phase: str, act: Callable[[], None]) -> None:
    """Do something in this process when a run comes to a phase for the second time, or the first where there is no second."""
    replace, save, end_task = os.replace, Checkpoint.save, CentroidsMatching.end_task
    measure, remove = loop.measure, Checkpoint.remove
    passed: list[str] = []

    def point(name: str, turn: int = 2) -> None:
        passed.append(name)
        if name == phase and passed.count(name) == turn:
            act()

    def replaced(source: Any, target: Any) -> None:
        writes_result = str(target).endswith(".json")
        point("write of the result" if writes_result else "write of a checkpoint", 1 if writes_result else 2)
        replace(source, target)

    def saved(*arguments: Any) -> None:
        save(*arguments)
        point("after a checkpoint")

    def ended(self: Any, task: Any) -> None:
        end_task(self, task)
        point("end_task")

    def measured(*arguments: Any) -> bool:
        good = measure(*arguments)
        point("evaluation")
        return good

    def removed(self: Any) -> None:
        point("before the checkpoint goes", 1)
        remove(self)

    os.replace, Checkpoint.save, CentroidsMatching.end_task = replaced, saved, ended  # type: ignore[method-assign]
    loop.measure, Checkpoint.remove = measured, removed  # type: ignore[method-assign]


# -- signals in each phase --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_in_each_phase(case: Case, name: str, phase: str) -> None:
    number = signal.Signals[name]
    code, said = case.interrupted(lambda: at(phase, lambda: os.kill(os.getpid(), number)))
    assert code != 0, said
    case.check(said)


# -- the disk ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mounted(case: Case, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Mount a small disk over the store, or mount it anew with other options; where root may not, skip."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(options: str) -> None:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(disk)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"mount is not allowed here: {' '.join(done.stderr.split())}")

    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root can mount a small disk")
    yield mount
    subprocess.run(["umount", str(disk)], capture_output=True)


def moved(case: Case, folder: Path) -> None:
    """The store lies in another folder."""
    shutil.copytree(case.folder, folder, dirs_exist_ok=True)
    case.before = {folder / path.relative_to(case.folder): content for path, content in case.before.items()}
    case.folder = folder


@pytest.mark.parametrize("phase", ["write of a checkpoint", "write of the result"])
def test_a_full_disk(case: Case, mounted: Callable[[str], None], tmp_path: Path, phase: str, capsys: Any) -> None:
    """The disk is full from some moment on; there is room again later."""
    mounted("size=16m")
    moved(case, tmp_path / "disk" / "store")
    rest = tmp_path / "disk" / "filler"

    def fill() -> None:
        with suppress_full(), rest.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    part = imagefiles.part

    def full(path: Path) -> Path:
        if (path.suffix == ".json") == (phase == "write of the result"):
            fill()
        return part(path)

    code, said = case.interrupted(lambda: setattr(imagefiles, "part", full))
    assert code == 2 and said.count("\n") == 1 and "No space left on device" in said, said
    assert not [path for path in case.folder.rglob("*") if path.name.startswith(".")]
    rest.unlink()
    case.check(said)


class suppress_full:
    """Nothing but a full disk is passed over."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return isinstance(error, OSError) and error.errno == errno.ENOSPC


def test_a_store_that_cannot_be_written(case: Case, mounted: Callable[[str], None], tmp_path: Path) -> None:
    """A disk mounted for reading only: one line, at once, and what it holds can still be read."""
    mounted("size=16m")
    moved(case, tmp_path / "disk" / "store")
    mounted("remount,ro")
    code, said = case.interrupted(lambda: None)
    assert code == 2 and said.count("\n") == 1 and "Read-only file system" in said, said
    assert cm.run(WANTED.but(method="naive", seed=5), store=case.folder).seed == 5
    mounted("remount,rw")
    case.check(said)


def test_a_file_that_must_not_grow(case: Case) -> None:
    """A limit on the size of files: the checkpoint does not fit."""
    code, said = case.interrupted(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    assert code == 2 and said.count("\n") == 1 and "File too large" in said, said
    case.check(said)


def test_a_file_in_place_of_a_folder(case: Case) -> None:
    blocked = case.place.parent
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("not a folder")
    code, said = case.interrupted(lambda: None)
    assert code == 2 and said.count("\n") == 1 and f"cannot write {case.place.with_suffix('')}" in said, said
    blocked.unlink()
    case.check(said)


@pytest.mark.parametrize("phase", ["after a checkpoint", "evaluation"])
def test_the_store_is_removed_meanwhile(case: Case, phase: str) -> None:
    """What was finished is gone with the folder, by the hand that removed it; the run itself is written."""
    kept = case.folder.with_name("kept")
    code, said = case.interrupted(lambda: at(phase, lambda: case.folder.rename(kept)))
    assert code == 0 and not case.checkpoint.exists(), said
    case.before = {kept / path.relative_to(case.folder): content for path, content in case.before.items()}
    case.check(said)


# -- what lies there is not what was written -----------------------------------------------------------------------------------


def cut_short(case: Case) -> bytes:
    """Leave a checkpoint behind; its bytes."""
    case.interrupted(lambda: at("after a checkpoint", lambda: os.kill(os.getpid(), signal.SIGKILL)))
    return case.checkpoint.read_bytes()


@pytest.mark.parametrize("left", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("what", ["result", "checkpoint"])
def test_a_torn_write(case: Case, what: str, left: float, capsys: Any) -> None:
    """Only the first part of a file is on the disk, as after a power cut: it is named, never used."""
    if what == "checkpoint":
        content, path = cut_short(case), case.checkpoint
    else:
        assert case.command() == 0
        content, path = case.place.read_bytes(), case.place
    path.write_bytes(content[: int(left * len(content))])
    capsys.readouterr()
    assert case.command() == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and path.name in said, said
    path.unlink()
    case.check(said)


def old_layout(state: dict[str, Any]) -> dict[str, Any]:
    return {"model": state["method"], "optim": state["optimizer"], "task": 0}


def other_network(state: dict[str, Any]) -> dict[str, Any]:
    return {
        **state,
        "method": {name.replace("backbone.conv1", "backbone.stem"): value for name, value in state["method"].items()},
    }


def other_place(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "position": {**state["position"], "learned": 3}}


@pytest.mark.parametrize("change", [old_layout, other_network, other_place])
def test_a_checkpoint_of_another_version(case: Case, change: Callable[..., Any], capsys: Any) -> None:
    cut_short(case)
    state = torch.load(case.checkpoint, weights_only=True)
    state.pop("run")  # a layout in which the run was not named, and which had no checksum of its own
    torch.save(change(state), case.checkpoint)
    refused(case, capsys)


def test_a_checkpoint_that_is_a_program(case: Case, tmp_path: Path, capsys: Any) -> None:
    """A pickle that would run a command is not even opened."""
    cut_short(case)
    case.checkpoint.write_bytes(pickle.dumps(Evil(tmp_path / "was-run")))
    refused(case, capsys)
    assert not (tmp_path / "was-run").exists()


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_checkpoint_of_another_run(case: Case, capsys: Any) -> None:
    """Copied to the place of this one by hand."""
    cut_short(case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "remove", lambda self: None)
        cm.run(WANTED.but(seed=1), store=case.folder, progress=False)
    other = Store(case.folder).path(WANTED.but(seed=1), cm.datasets.load("digits").digest)
    shutil.copy(other.with_suffix(".ckpt"), case.checkpoint)
    other.with_suffix(".ckpt").unlink()
    refused(case, capsys, f"it is of the run {other.stem}")


def refused(case: Case, capsys: Any, why: str = "") -> None:
    """One line that names the checkpoint, and says why; without it the run is made anew."""
    capsys.readouterr()
    code = case.command()
    said = capsys.readouterr().err
    assert code == 2 and said.count("\n") == 1 and case.checkpoint.name in said and why in said, said
    case.checkpoint.unlink()
    case.check(said)


# -- clocks, locks, others ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", ["set back", "in the future"])
def test_a_wrong_clock(case: Case, clock: str) -> None:
    """The clock is set back in the middle of a run; files bear times of next year."""
    if clock == "set back":
        started = time.time()
        code, said = case.interrupted(lambda: at("after a checkpoint", lambda: setattr(time, "time", lambda: started - 4e8)))
        assert code == 0
    else:
        said = ""
        cut_short(case)
        for path in (case.checkpoint, *case.before):
            os.utime(path, (time.time() + 4e7,) * 2)
    case.check(said)


def test_a_lock_left_by_a_dead_process(case: Case) -> None:
    """Its holder was killed while it made the run; a file with the name of a lock is no lock."""

    def hold() -> None:
        with sweep.claimed(case.place):
            os.kill(os.getpid(), signal.SIGKILL)

    code, said = case.interrupted(hold)
    assert code == -signal.SIGKILL and len([*case.folder.rglob(".*.lock")]) == 1
    assert sweep.attempt(WANTED, str(case.folder)) == (sweep.MADE, "")
    case.check(said)


def test_two_writers(case: Case, tmp_path: Path) -> None:
    """Two commands make the same run in the same store at the same time, without a sweep's locks."""
    said = [tmp_path / name for name in ("first", "second")]
    writers = [case.child(lambda: None, path) for path in said]
    for one in writers:
        one.join(120)
    assert [one.exitcode for one in writers] == [0, 0], [path.read_text() for path in said]
    case.check("".join(path.read_text() for path in said))


@pytest.mark.timeout(600)
def test_a_worker_killed_in_a_sweep(tmp_path: Path, counted: Callable[..., None]) -> None:
    """Full-size net: a worker is a new process. Its first death costs nothing."""
    wanted, folder = cm.Experiment("digits", "til", "naive", 0, "smoke", **OPTIONS), tmp_path / "store"
    with pytest.MonkeyPatch.context() as patch:  # the small nets of the other tests do not reach a new process
        patch.setattr(base, "make_backbone", nets.make_backbone)
        whole = cm.run(wanted, progress=False)
    make, started = sweep.Slot.give, []

    def give(self: sweep.Slot, item: Any, *rest: Any) -> None:
        make(self, item, *rest)
        started.append(item)
        if len(started) == 1:
            os.kill(next(iter(self.pool._processes)), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep.Slot, "give", give)
        report = sweep.sweep([wanted], folder, jobs=1)
    (made,) = Store(folder)
    counted("faults injected")
    counted("wrong results", int(made.R != whole.R))
    assert (report.made, report.failed, len(started)) == (1, {}, 2) and made.R == whole.R
    assert [path.suffix for path in folder.rglob("*") if path.is_file()] == [".json"]
