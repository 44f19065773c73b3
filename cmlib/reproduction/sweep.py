"""Sweeps: the runs of a grid, several side by side, each made once, whatever dies on the way.

A sweep is a list of experiments and a store. Runs that the store or the committed results hold are passed over; interrupted
ones go on from their checkpoints. Every run that is being made is locked by the process that makes it, with a lock of the
kernel's on the file `.<name>.lock` beside its place, so two sweeps on one store share the work and a lock ends with its holder.
Each worker is a process of its own: when one is killed, only its run is hit, and that run is tried once more.
While a sweep works it keeps a file `.sweep-<number of its process>.status` in the store, for `cmlib sweep --status`.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import math
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import joblib
from joblib.externals.loky import ProcessPoolExecutor
from tqdm import tqdm

from cmlib import datasets, engine, machine
from cmlib.checkpoint import Checkpoint
from cmlib.datasets import ImageData
from cmlib.errors import CmlibError, OptionError, StoreError, check_name
from cmlib.experiment import Experiment
from cmlib.imagefiles import is_alive
from cmlib.reproduction import costs, grids
from cmlib.reproduction.times import Times, duration
from cmlib.signals import handling
from cmlib.store import FINISHED, Run, Store, clear_parts, committed, default_folder, write_atomically

BACKENDS = {"loky": "", "dask": "distributed", "ray": "ray"}  # and the package each needs beside joblib
MADE, FOUND, HELD, FAILED, BROKEN = "made", "found", "held", "failed", "broken"  # how an attempt at a run ends
TRIES = 2
CLOSING = 4.0  # seconds before the end of the budget in which workers are ended and the store is tidied
POLL = 1.0  # seconds between two looks at the runs another sweep is making
SEEDS = 1000  # at most
# For glibc: large pages where the kernel has them, and keep what is freed, which the next step needs again. Other C libraries
# ignore it.
ALLOCATION = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4000000000:glibc.malloc.trim_threshold=8000000000"
ORDERS = ("value", "grid")
STATUS = ".sweep-*.status"


# -- locks ----------------------------------------------------------------------------------------------------------------


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Hold the lock of the run whose place is `path`; gives False at once when another process holds it."""
    place = path.with_name(f".{path.name}.lock")
    handle = _lock(place)
    if handle is None:
        yield False
        return
    try:
        yield True
    finally:
        place.unlink(missing_ok=True)  # while it is still held: whoever opened it meanwhile sees that it is gone
        os.close(handle)


def _lock(place: Path) -> int | None:
    """The open, locked file, or None when another process has it; StoreError when it cannot be made.

    Not `filelock`, which leaves its files in the store, and on machines that share one only some of its versions see that a file
    they have locked was removed.
    """
    import fcntl  # Windows has none, and there all but a sweep works

    while True:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(place, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"cannot write {place}: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_ino == os.stat(place).st_ino:
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except FileNotFoundError:
            pass  # its holder has just removed it: the lock we got is on no file any more
        except OSError as error:
            place.unlink(missing_ok=True)
            os.close(handle)
            raise StoreError(f"cannot lock {place}: {error.strerror}; a store needs a file system with locks (flock)") from None
        os.close(handle)


def clear(path: Path) -> None:
    """Remove what dead processes have left half-written beside a run's place; only whoever holds its lock may do so."""
    clear_parts(path)
    if path.is_file():
        path.with_suffix(".ckpt").unlink(missing_ok=True)  # its writer died between the result and this


def tidy(paths: Iterable[Path]) -> None:
    """Clear the places of these runs, except where a living process holds the lock."""
    for path in paths:
        done_but_open = path.is_file() and path.with_suffix(".ckpt").is_file()
        if done_but_open or any(path.parent.glob(f".{path.stem}.*")):
            with claimed(path) as mine:
                if mine:
                    clear(path)


# -- in a worker ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _images(source: str, data_root: str | None) -> ImageData:
    return datasets.load(source, data_root)


def attempt(experiment: Experiment, store: str, data_root: str | None = None, device: str = "auto") -> tuple[str, str]:
    """Make one run, or say why not: how it ended and, when it failed, the reason in one line."""
    try:
        data = _images(experiment.source, data_root)
        path = Store(store).path(experiment, data.digest)
        with claimed(path) as mine:
            if not mine:
                return HELD, ""
            clear(path)
            if path.is_file():
                return FOUND, ""
            made = engine.run(experiment, data, store=store, device=device, progress=False)
            return MADE, "" if made.status == FINISHED else made.status
    except CmlibError as error:
        return FAILED, one_line(str(error))
    except Exception as error:
        return BROKEN, one_line(f"{error.__class__.__name__}: {error}")


def leave_interrupts() -> None:
    """In a worker: leave Ctrl-C to the owner."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tqdm.set_lock(threading.RLock())  # its usual lock is shared between processes and outlives a killed one, with a warning


def _begin_worker(owner: int) -> None:
    """A worker leaves Ctrl-C to the sweep, and ends with it however that ends."""
    leave_interrupts()

    def watch() -> None:
        while os.getppid() == owner:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def one_line(text: str) -> str:
    """A message of any length as one line of at most 300 characters."""
    return " ".join(text.split())[:300]


# -- the sweep ------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Item:
    """A run to be made and its place in the store."""

    experiment: Experiment
    path: Path
    digest: str  # of its data
    tries: int = 0
    held: bool = False  # it was with another sweep when it was looked at
    begun: bool = False  # a part of it was made before, so that what is left does not tell how long it takes

    @property
    def label(self) -> str:
        """As in messages."""
        return label(self.experiment)


class Slot:
    """A worker: one process that does one thing after the other (here: makes runs), replaced when it dies.

    variables: of its environment, beside those of this process.
    """

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self.variables = dict(variables or {})
        self.item: Any = None  # what it is busy with
        self.future: Future[tuple[str, str]] | None = None
        self.started = 0.0
        self.start()

    def start(self) -> None:
        """A process, which starts with its first task."""
        self.pool = ProcessPoolExecutor(1, initializer=_begin_worker, initargs=(os.getpid(),), env=self.variables)

    def give(self, item: Any, task: Callable[..., tuple[str, str]], *arguments: Any) -> None:
        """Begin `task(*arguments)` for an item; it returns how it ended and why."""
        self.item, self.started = item, time.monotonic()
        try:
            self.future = self.pool.submit(task, *arguments)
        except BrokenProcessPool:  # it died while it had nothing to do
            self.end()
            self.start()
            self.future = self.pool.submit(task, *arguments)

    def take(self) -> tuple[Any, str, str, float]:
        """The item whose task has ended, how, why, and after how many seconds; a dead process gets a successor."""
        assert self.item and self.future
        item, future, seconds = self.item, self.future, time.monotonic() - self.started
        self.item = self.future = None
        try:
            return (item, *future.result(), seconds)
        except Exception as error:  # the process was killed, or could not start
            self.end()
            self.start()
            killed = re.search(r"SIG[A-Z]+", str(error))
            return item, BROKEN, f"its process was ended by {killed[0]}" if killed else one_line(repr(error)), seconds

    def end(self) -> None:
        """End the process now, and what it has started; what a run has not put into a checkpoint is lost."""
        self.pool.shutdown(wait=True, kill_workers=True)


@dataclass
class Report:
    """How a sweep ended: numbers of runs, and reasons of the failed ones by label."""

    found: int = 0
    made: int = 0
    elsewhere: int = 0  # made by another sweep meanwhile
    left: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)  # of those made: their loss was not finite
    why: str = ""

    def text(self) -> str:
        """The last lines of a sweep."""
        total = self.found + self.made + self.elsewhere + self.left + len(self.failed)
        parts = [f"{self.made} made", f"{self.found} already there"]
        parts += [f"{self.elsewhere} made by another sweep"] if self.elsewhere else []
        parts += [f"{len(self.failed)} failed"] if self.failed else []
        parts += [f"{self.left} left ({self.why}; the same command continues)"] if self.left else []
        lines = [f"failed: {name}: {why}" for name, why in self.failed.items()]
        lines += [f"{name}: {why}" for name, why in self.stopped.items()]
        return "\n".join([f"{total} runs: {', '.join(parts)}", *lines])


class Sweep:
    """The runs of one sweep, from a queue to a report."""

    def __init__(
        self, items: Sequence[Item], store: Store, data_root: str | None, jobs: int | None, title: str, device: str = "auto"
    ) -> None:
        self.items, self.store, self.title = items, store, title
        root = str(Path(data_root).absolute()) if data_root else None
        self.told = (str(store.folder.absolute()), root, device)  # to workers, whose working folder may be another one
        self.report, self.deadline, self.looked = Report(), float("inf"), 0.0
        self.waiting: deque[Item] = deque()
        self.held: list[Item] = []  # being made by another sweep
        self.slots: list[Slot] = []
        for item in items:
            if find(item.experiment, (store, committed()), item.digest):
                self.report.found += 1
            else:
                self.waiting.append(item)
        self.jobs = jobs or usual_jobs(len(self.waiting), device)
        self.threads = usual_threads(min(self.jobs, len(self.waiting)))
        self.times = Times((store, committed()), self.threads, device)
        self.board = store.folder / STATUS.replace("*", str(os.getpid()))

    @property
    def running(self) -> list[Slot]:
        """Workers that have a run."""
        return [slot for slot in self.slots if slot.item]

    def work(self, backend: str, deadline: float = float("inf")) -> Report:
        """Make what is missing; the store is tidy afterwards, also after Ctrl-C and SIGTERM (KeyboardInterrupt)."""
        self.deadline = deadline
        tidy(item.path for item in self.items)
        with handling({signal.SIGTERM: _terminated}):
            try:
                self._seconds_left()  # measures this machine, where it must, before the workers disturb that
                self._locally() if backend == "loky" else self._through_joblib(backend)
            except KeyboardInterrupt as stop:
                self.report.why = f"ended by {stop}" if str(stop) else "interrupted"
                raise
            finally:
                with handling({signal.SIGTERM: signal.SIG_IGN, signal.SIGINT: signal.SIG_IGN}):
                    self._close()
        return self.report

    def _close(self) -> None:
        """End all workers, take the locks and half-written files of those that had a run out of the store."""
        self.report.left = len(self.waiting) + len(self.held) + len(self.running)
        for slot in self.slots:
            slot.end()
        tidy(item.path for item in self.items)
        self.board.unlink(missing_ok=True)
        if sys.stderr.isatty():
            print(file=sys.stderr)
        if sys.exc_info()[0] is KeyboardInterrupt:  # else whoever called prints it
            print(f"{self.title}: {self.report.text()}", file=sys.stderr)

    def _locally(self) -> None:
        """Feed processes on this machine until nothing is left or the budget ends."""
        while self.waiting or self.held or self.running:
            if time.monotonic() >= self.deadline:
                self.report.why = "the budget is spent"
                return
            if self._hand_out() or sys.stderr.isatty():
                self._tell()
            futures = [slot.future for slot in self.slots if slot.future]
            patience = max(0.0, min(POLL / 2, self.deadline - time.monotonic()))
            if futures:
                wait(futures, patience, FIRST_COMPLETED)
            else:
                time.sleep(patience)
            for slot in self.running:
                if slot.future and slot.future.done():
                    self._ended(*slot.take())

    def _hand_out(self) -> bool:
        """Give runs to idle workers; those of another sweep are looked at again when there is nothing else to begin.

        Returns whether something new has begun.
        """
        begun = False
        if not self.waiting and time.monotonic() - self.looked > POLL:
            self.looked = time.monotonic()
            self._look_at_held()
        while self.waiting and len(self.running) < self.jobs:
            idle = next((slot for slot in self.slots if not slot.item), None)
            if idle is None:
                self.slots.append(idle := Slot(surroundings(self.threads)))
            item = self.waiting.popleft()
            item.begun = item.path.with_suffix(".ckpt").is_file()
            idle.give(item, attempt, item.experiment, *self.told)
            begun |= not item.held
        return begun

    def _look_at_held(self) -> None:
        """Count the runs that another sweep has finished; try to begin the others, in case it has died."""
        held, self.held = self.held, []
        for item in held:
            if item.path.is_file():
                self._ended(item, FOUND, "", 0.0)
            else:
                self.waiting.append(item)

    def _through_joblib(self, backend: str) -> None:
        """Leave the spreading to a backend of joblib's. A dead worker is its affair; what it gives up is tried once more."""
        self._tell()
        while self.waiting or self.held:
            batch = [*self.waiting]
            self.waiting.clear()
            jobs = [joblib.delayed(attempt)(item.experiment, *self.told) for item in batch]
            try:
                with joblib.parallel_config(backend=backend, n_jobs=self.jobs):
                    # all at once and one a task: workers that a cluster grants later find something to do
                    for how, why in joblib.Parallel(return_as="generator", pre_dispatch="all", batch_size=1)(jobs):
                        self._ended(batch.pop(0), how, why, 0.0)
            except KeyboardInterrupt:
                self.waiting.extend(batch)  # these are left
                raise
            except Exception as error:
                for item in batch:
                    self._ended(item, BROKEN, one_line(f"{error.__class__.__name__}: {error}"), 0.0)
            if not self.waiting and self.held:
                time.sleep(POLL)
                self._look_at_held()

    def _ended(self, item: Item, how: str, why: str, seconds: float) -> None:
        """Count what has become of a run."""
        if how == HELD:
            item.held = True
            self.held.append(item)
            return
        if how == MADE:
            self.report.made += 1
            if why:
                self.report.stopped[item.label] = why
            elif seconds and not item.begun:
                self.times.add(item.experiment, seconds)
        elif how == FOUND:
            self.report.elsewhere += 1
        elif how == BROKEN and item.tries + 1 < TRIES:
            item.tries += 1
            self.waiting.appendleft(item)
            self._say(f"{item.label}: {why}; it is tried once more", keep=True)
        else:
            self.report.failed[item.label] = why
            self._say(f"{item.label}: failed: {why}", keep=True)
        if not self.waiting:  # else the next one begins now, and that is told
            self._tell()

    def _tell(self) -> None:
        """Say how far the sweep is, here and in the store for `--status`."""
        now, running = time.time(), []
        for slot in self.running:
            one, spent = slot.item.experiment, time.monotonic() - slot.started
            running.append(
                {"label": slot.item.label, "path": str(slot.item.path.absolute()), "started": now - spent}
                | {"tasks": one.n_tasks, "epochs": one.epochs, "expected": self.times.of(one)}
            )
        state = {"title": self.title, "process": os.getpid(), "host": socket.gethostname(), "written": now}
        state |= {"done": self._done, "total": len(self.items), "failed": len(self.report.failed), "held": len(self.held)}
        state |= {"left": self._seconds_left(), "running": running}
        with suppress(StoreError):  # runs matter more; where they cannot be written either, they say so
            write_atomically(self.board, json.dumps(state).encode())
        self._say(progress(state))

    @property
    def _done(self) -> int:
        return self.report.found + self.report.made + self.report.elsewhere

    def _seconds_left(self) -> float | None:
        """Seconds until everything is made, with so many runs side by side; None when nothing is known."""
        waiting = self.times.left([item.experiment for item in self.waiting])
        running = self.times.left([slot.item.experiment for slot in self.running])
        if waiting is None or running is None:
            return None
        spent = sum(time.monotonic() - slot.started for slot in self.running)
        return (waiting + max(0.0, running - spent)) / max(1, min(self.jobs, len(self.waiting) + len(self.running)))

    def _say(self, text: str, keep: bool = False) -> None:
        """One line on a terminal, written over; elsewhere a line each time."""
        if sys.stderr.isatty():
            if not keep:
                text = text[: shutil.get_terminal_size().columns - 1]  # a line that wraps cannot be written over
            print(f"\r\033[K{text}", end="\n" if keep else "", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)


def _terminated(*_: Any) -> None:
    raise KeyboardInterrupt("SIGTERM")


# -- how far it is --------------------------------------------------------------------------------------------------------


def progress(state: Mapping[str, Any], positions: Mapping[str, str] | None = None) -> str:
    """A sweep's state as one line. positions: where the runs that are being made stand, by their path."""
    text = f"{state['title']}: {state['done']} of {state['total']} runs"
    text += f", {state['failed']} failed" if state["failed"] else ""
    text += f", {state['held']} with another sweep" if state["held"] else ""
    if state["done"] + state["failed"] < state["total"]:
        text += ", time left not known" if state["left"] is None else f", about {duration(state['left'])} left"
    now = []
    for one in state["running"]:
        details = [(positions or {}).get(one["path"]), None if one["expected"] is None else f"takes {duration(one['expected'])}"]
        said = ", ".join(filter(None, details))
        now.append(f"{one['label']} ({said})" if said else one["label"])
    return text + (f"; now: {'; '.join(now)}" if now else "")


def status(store: Store) -> str:
    """A line for each sweep that works on a store, from the files they keep there; those of the dead are removed."""
    lines = []
    for path in sorted(store.folder.glob(STATUS)):
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            if state["host"] == socket.gethostname() and not is_alive(state["process"]):
                lines.append(f"{state['title']}: its process has died; the same command continues")
                path.unlink(missing_ok=True)
                continue
            if state["left"] is not None:
                state["left"] = max(0.0, state["left"] - (time.time() - state["written"]))
            lines.append(progress(state, {one["path"]: _position(one) for one in state["running"]}))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it has just ended
    return "\n".join(lines) or f"no sweep works on the store {store.folder}"


def _position(run: Mapping[str, Any]) -> str:
    """`task 2 of 5, epoch 3 of 10`, after the last checkpoint of a run."""
    try:
        found = Checkpoint(Path(run["path"]).with_suffix(".ckpt")).position()
    except Exception:  # the run has just ended, or begun
        found = None
    task, epoch = (found.task, found.epoch) if found else (0, 0)
    task, epoch = (task, epoch) if epoch < run["epochs"] else (task + 1, 0)
    return f"task {min(task + 1, run['tasks'])} of {run['tasks']}, epoch {epoch + 1} of {run['epochs']}"


# -- from the command line ------------------------------------------------------------------------------------------------


def parse_seeds(text: str) -> list[int]:
    """`0-4`, `0,2`, `0-2,7` -> the seeds in this order, each once; OptionError for anything else."""
    seeds: dict[int, None] = {}
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?", part)
        if not found:
            raise OptionError(f"--seeds {text}: expected whole numbers, as in 0-4 or 0,2")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise OptionError(f"--seeds {text}: {part.strip()} runs backwards; write {last}-{first}")
        seeds.update(dict.fromkeys(range(first, min(last, first + SEEDS) + 1)))
        if len(seeds) > SEEDS:
            raise OptionError(f"--seeds {text}: more than {SEEDS} seeds")
    return list(seeds)


def check_backend(name: str) -> str:
    """The backend's name; OptionError when it is unknown or its package is not installed."""
    package = BACKENDS[check_name("backend", name, BACKENDS)]
    if package and importlib.util.find_spec(package) is None:
        raise OptionError(f"--backend {name} needs the package {package}: pip install {package}")
    return name


@contextmanager
def _connected(backend: str, jobs: int) -> Iterator[None]:
    """Whatever a backend needs around the work: Dask a client (its configuration names the scheduler), Ray its registration."""
    if backend == "dask":
        address = importlib.import_module("dask").config.get("scheduler-address", None)
        local = {} if address else {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        with importlib.import_module("distributed").Client(address, **local):
            yield
        return
    if backend == "ray":
        importlib.import_module("ray.util.joblib").register_ray()
    yield


def find(experiment: Experiment, stores: Iterable[Store], digest: str | None = None) -> Run | None:
    """The run of an experiment on these data (None: as `Store.find`), from the first store that has it."""
    return next((found[-1] for store in stores if (found := store.find(experiment, digest))), None)


def label(experiment: Experiment) -> str:
    """`cm til digits seed 0 lam=0.5`."""
    e = experiment
    return f"{e.method} {e.scenario} {Path(e.dataset).name} seed {e.seed} {e.variant}".strip()


def usual_jobs(runs: int, device: str = "auto") -> int:
    """Of so many runs those side by side: one a core, which makes more images a second than two cores a run; on a GPU one."""
    most = 1 if machine.choose_device(device).type == "cuda" else joblib.cpu_count()
    return max(1, min(most, runs))


def usual_threads(jobs: int) -> int:
    """Threads of each of so many workers: 2 where the cores allow (more are no use), and not more than OMP_NUM_THREADS."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(2, joblib.cpu_count() // max(1, jobs), int(limit) if limit.isdigit() else 2))


def surroundings(threads: int) -> dict[str, str]:
    """Variables a worker starts with. None of them changes a bit of a result, but for the threads."""
    memory = {"GLIBC_TUNABLES": ALLOCATION} if sys.platform == "linux" and "GLIBC_TUNABLES" not in os.environ else {}
    return {"OMP_NUM_THREADS": str(threads), **memory}


def ordered(experiments: Sequence[Experiment], order: str) -> list[Experiment]:
    """`grid`: as the table lists them. `value`: seed by seed too, and of each seed the cheapest first."""
    if check_name("order", order, ORDERS) == "grid":
        return list(experiments)
    seeds = list(dict.fromkeys(one.seed for one in experiments))

    def cost(one: Experiment) -> float:
        images = costs.run_cost(one)
        pixels = math.prod(map(int, datasets.KNOWN[one.dataset].size.split("x")[:2])) if images else 1
        return math.inf if images is None else images * pixels

    return sorted(experiments, key=lambda one: (seeds.index(one.seed), cost(one)))


def check(store: Store, data_root: str | None, jobs: int | None, backend: str, budget: float | None) -> None:
    """What no sweep can do is an OptionError, DataError or StoreError, before anything is done or written."""
    check_backend(backend)
    if importlib.util.find_spec("fcntl") is None:
        raise OptionError("a sweep needs locks of the kernel (flock), which this system does not have; on Windows use WSL")
    if budget is not None and backend != "loky":
        raise OptionError(f"--budget works with --backend loky only: runs on other machines cannot be stopped by {backend}")
    if budget is not None and not 0 < budget < float("inf"):
        raise OptionError(f"--budget {budget:g}: expected a number of seconds above 0")
    most = 4 * joblib.cpu_count() if backend == "loky" else 10_000
    if jobs is not None and not 1 <= jobs <= most:
        raise OptionError(f"--jobs {jobs}: expected a whole number from 1 to {most}")
    datasets.describe(data_root)
    try:
        place = next(one for one in (store.folder, *store.folder.absolute().parents) if one.exists())
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise StoreError(f"cannot write to the store {store.folder}: {error.strerror}") from None


def preview(experiments: Sequence[Experiment], store: Store, jobs: int | None = None, device: str = "auto") -> str:
    """What a sweep would do: a line a run, and the hours it may take."""
    found = {one: find(one, (store, committed())) for one in experiments}
    missing = [one for one, run in found.items() if not run]
    jobs = min(jobs or usual_jobs(len(missing), device), max(1, len(missing)))
    times = Times((store, committed()), usual_threads(jobs), device)
    guesses = {one: times.of(one) for one in missing}
    lines = []
    for one, run in found.items():
        if run and run.status == FINISHED:
            lines.append(f"finished  {label(one)}")
        elif run:
            lines.append(f"stopped   {label(one)}  {run.status.removeprefix('stopped: ')}")
        else:
            seconds = guesses[one]
            lines.append(f"to make   {label(one)}  {'time unknown' if seconds is None else duration(seconds)}")
    return "\n".join([*lines, _summary(list(guesses.values()), len(experiments), jobs, times.threads)])


def _summary(guesses: Sequence[float | None], runs: int, jobs: int, threads: int) -> str:
    """The last line of a preview."""
    known = [guess for guess in guesses if guess is not None]
    text = f"{len(guesses)} of {runs} runs to make"
    if known:
        each = f"{threads} thread{'s' * (threads > 1)} each"
        text += f": about {duration(sum(known))} one after the other"
        text += f", {duration(sum(known) / jobs)} with {jobs} side by side, {each}" if jobs > 1 else f", {each}"
    if len(known) < len(guesses):
        text += f"; time unknown for {len(guesses) - len(known)}: no similar run was measured"
    return text


def sweep(
    experiments: Sequence[Experiment],
    store: str | Path | None = None,
    data_root: str | None = None,
    jobs: int | None = None,
    backend: str = "loky",
    budget: float | None = None,
    title: str = "sweep",
    device: str = "auto",
) -> Report:
    """Make the runs of these experiments, in this order, that neither the store nor the committed results hold.

    jobs: runs side by side (default: one a core). budget: seconds after which everything is stopped, to be
    continued later. Errors: OptionError, DataError, StoreError; what goes wrong in a run is in the report.
    """
    deadline = time.monotonic() + budget - CLOSING if budget is not None else float("inf")
    shelf = Store(store or default_folder())
    machine.choose_device(device)  # an error when it is not there
    check(shelf, data_root, jobs, backend, budget)
    shelf.check_writable()
    status(shelf)  # removes what dead sweeps have left
    sources = {one.source: one for one in experiments}
    digests = {source: engine.load_data(one, None, data_root).digest for source, one in sources.items()}
    items = [Item(one, shelf.path(one, digests[one.source]), digests[one.source]) for one in experiments]
    made = Sweep(items, shelf, data_root, jobs, title, device)
    with _connected(backend, made.jobs):
        return made.work(backend, deadline)


def of_grids(names: Sequence[str], profile: str, seeds: str, order: str, only: str | None = None) -> list[Experiment]:
    """The experiments of some grids, each once, in order; only: names of data sets, by comma. OptionError."""
    if not names:
        raise OptionError(f"which grid? allowed: {', '.join(grids.names())}")
    wanted = [one for name in names for one in grids.load(name).experiments(profile, parse_seeds(seeds))]
    known = dict.fromkeys(one.dataset for one in wanted)
    chosen = [check_name("data set", name.strip(), known) for name in only.split(",")] if only else list(known)
    return ordered(grids.once(one for one in wanted if one.dataset in chosen), order)


def main(
    names: Sequence[str] = (),
    profile: str = "digits",
    seeds: str = "0-4",
    jobs: int | None = None,
    backend: str = "loky",
    budget: float | None = None,
    store: str | None = None,
    data_root: str | None = None,
    dry_run: bool = False,
    order: str = "value",
    show_status: bool = False,
    only: str | None = None,
    device: str = "auto",
) -> int:
    """`cmlib sweep`: returns the exit code, 1 when a run failed. Runs left by the budget are no failure."""
    shelf = Store(store or default_folder())
    if show_status:
        print(status(shelf))
        return 0
    experiments = of_grids(names, profile, seeds, order, only)
    if dry_run:
        check(shelf, data_root, jobs, backend, budget)
        print(preview(experiments, shelf, jobs, device))
        return 0
    report = sweep(experiments, store, data_root, jobs, backend, budget, f"{' '.join(names)} {profile}", device)
    print(report.text())
    return int(bool(report.failed))
