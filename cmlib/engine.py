"""The engine: one readable loop from an experiment to a run.

A checkpoint after every epoch holds everything registered on the method, the optimizer and the position; an interrupted run
continues from it and ends, on a CPU, with the same bits as an undisturbed one.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import platform
import re
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from cmlib import datasets
from cmlib.datasets import ImageData
from cmlib.errors import OptionError, StoreError
from cmlib.experiment import Experiment
from cmlib.graphs import Step, stepper
from cmlib.imagefiles import one_line
from cmlib.memory import ExemplarMemory, shortages
from cmlib.methods import METHODS
from cmlib.methods.base import Method
from cmlib.scenario import Scenario, Task
from cmlib.store import DIVERGED, FINISHED, Run, Store, clear_parts, committed, default_folder, run_id, write_atomically

AfterTask = Callable[[Method, Task], None]
EVAL_BATCH = 500  # images
VERSION = "0.1.0"


@dataclass
class Position:
    """Where a run stands, and what it has measured so far."""

    task: int = 0
    epoch: int = 0  # epochs of `task` that are done
    R: list[list[float]] = field(default_factory=list)
    R_task_known: list[list[float]] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    status: str = FINISHED


def run(
    experiment: Experiment,
    data: Any = None,
    data_root: str | Path | None = None,
    store: str | Path | Store | None = None,
    device: str = "auto",
    progress: bool | None = None,
    graphs: bool = True,
) -> Run:
    """Make the run of an experiment, or load it when the store has it; continue it when it was interrupted.

    data: a data set (ImageData, or arrays as in `datasets.load`) instead of the experiment's by name. store: a folder; None
    keeps nothing. device: `auto` takes CUDA when present (float32, with TF32 convolutions). progress: a bar; None shows it on a
    terminal only. graphs: on CUDA, replay recorded steps (see `graphs`).
    Errors: OptionError, DataError, StoreError.
    """
    images = load_data(experiment, data, data_root)
    shelf = as_store(store)
    choose_device(device)  # a device that is not there is an error even when nothing is left to do
    done = shelf.load(experiment, images.digest) if shelf else None
    return done or train(experiment, images, None, shelf, device, progress, graphs=graphs)[0]


def train(
    experiment: Experiment,
    data: Any = None,
    data_root: str | Path | None = None,
    store: str | Path | Store | None = None,
    device: str = "auto",
    progress: bool | None = None,
    after_task: AfterTask | None = None,
    graphs: bool = True,
) -> tuple[Run, Method]:
    """As `run`, but always trains, and also returns the trained method, for a look inside.

    `after_task(method, task)` is called after each task.
    """
    images = load_data(experiment, data, data_root)
    target, shelf = choose_device(device), as_store(store)
    checkpoint = Checkpoint.of(shelf, experiment, images)
    if experiment.engine == "avalanche":
        other = importlib.import_module("cmlib.avalanche")  # by name: an optional part, which is built on this module
        method = other.fresh(experiment, images, target)
        loop: Callable[..., Position] = other.loop
    else:
        method, loop = fresh(experiment, images, target), partial(_loop, graphs=graphs)
    if shelf is not None:
        shelf.check_writable()
        clear_parts(shelf.path(experiment, images.digest))
    with threads_for(images) as threads, tqdm(**_bar(experiment, progress)) as bar:
        position = loop(experiment, method, checkpoint, bar, after_task)
    made = _result(experiment, method, images, position, target, threads)
    if shelf is not None:
        shelf.save(made, experiment, images.digest)
        checkpoint.remove()
    return made, method


def as_store(store: str | Path | Store | None) -> Store | None:
    """A store from a folder; None stays None."""
    return store if isinstance(store, Store) or store is None else Store(store)


def _loop(
    experiment: Experiment,
    method: Method,
    checkpoint: Checkpoint,
    bar: Any,
    after_task: AfterTask | None = None,
    graphs: bool = False,
) -> Position:
    """All tasks, all epochs: the heart of every run."""
    position, optimizer = checkpoint.resume(method)
    bar.update(position.task * experiment.epochs + position.epoch)
    tasks = method.scenario.tasks
    for task in tasks[position.task :]:
        if optimizer is None:
            method.begin_task(task)
            optimizer = method.make_optimizer()
            position.seconds.append([])
            position.steps.append(0)
        step = stepper(method, optimizer, task, graphs)
        for epoch in range(position.epoch, experiment.epochs):
            if not train_epoch(method, optimizer, task, epoch, position, step):
                position.status = f"{DIVERGED} (task {task.index + 1}, epoch {epoch + 1})"
                return position
            position.epoch = epoch + 1
            checkpoint.save(method, optimizer, position)
            bar.update(1)
        method.eval()
        method.end_task(task)
        _measure(method, tasks[: task.index + 1], position)
        if after_task is not None:
            after_task(method, task)
        position.task, position.epoch, optimizer = task.index + 1, 0, None
    return position


def train_epoch(method: Method, optimizer: Any, task: Task, epoch: int, position: Position, step: Step | None = None) -> bool:
    """One epoch, by the method's own step unless another is given; returns whether every loss was finite (read at the end)."""
    step = step or stepper(method, optimizer, task, False)
    method.train()
    started, steps = time.perf_counter(), 0
    finite = torch.ones((), dtype=torch.bool, device=method.scenario.device)
    for x, y in method.batches(task, epoch):
        finite &= torch.isfinite(step(x, y))
        steps += 1
    good = bool(finite)
    position.seconds[-1].append(round(time.perf_counter() - started, 4))
    position.steps[-1] += steps
    return good


def _measure(method: Method, seen: list[Task], position: Position) -> None:
    """Append a row to R, and in CIL one to R_task_known."""
    if method.kind == "til":
        position.R.append([task_accuracy(method, task, known=True) for task in seen])
        return
    position.R.append([task_accuracy(method, task, known=False) for task in seen])
    position.R_task_known.append([task_accuracy(method, task, known=True) for task in seen])


@torch.no_grad()
def task_accuracy(method: Method, task: Task, known: bool) -> float:
    """Accuracy on a task's evaluation images in percent, with the task given or not."""
    method.eval()
    right = 0
    for start in range(0, len(task.test_y), EVAL_BATCH):
        x = method.scenario.prepare(task.test_x[start : start + EVAL_BATCH])
        best = method.scores(x, task if known else None).argmax(1) + (task.classes.start if known else 0)
        right += int((best == task.test_y[start : start + EVAL_BATCH]).sum())
    return 100 * right / len(task.test_y)


# -- checkpoints ----------------------------------------------------------------------------------------------------------


@dataclass
class Checkpoint:
    """The state of an unfinished run, beside its place in the store; does nothing without a store."""

    path: Path | None

    @classmethod
    def of(cls, store: Store | None, experiment: Experiment, data: ImageData) -> Checkpoint:
        """The checkpoint of an experiment in a store."""
        return cls(store.path(experiment, data.digest).with_suffix(".ckpt") if store else None)

    def save(self, method: Method, optimizer: Any, position: Position) -> None:
        """Write the state atomically."""
        if self.path is None:
            return
        state = {"method": method.state_dict(), "optimizer": optimizer.state_dict(), "position": vars(position)}
        write_atomically(self.path, sealed({**state, "run": self.path.stem}))

    def position(self) -> Position | None:
        """How far the run came that this checkpoint holds; None when there is none."""
        if self.path is None or not self.path.is_file():
            return None
        return Position(**unsealed(self.path.read_bytes(), torch.device("cpu"))["position"])

    def resume(self, method: Method) -> tuple[Position, Any]:
        """Put a method, its optimizer and the position where the checkpoint stands; (start, None) when there is none."""
        if self.path is None or not self.path.is_file():
            return Position(), None
        try:
            raw = self.path.read_bytes()
        except OSError as error:
            raise StoreError(f"cannot read the checkpoint {self.path}: {error.strerror}") from None
        try:
            state = unsealed(raw, method.scenario.device)
            if state.get("run", self.path.stem) != self.path.stem:
                raise ValueError(f"it is of the run {state['run']}")
            position = Position(**state["position"])
            for task in method.scenario.tasks[: position.task + 1]:
                method.begin_task(task)
            method.load_state_dict(state["method"])
            optimizer = method.make_optimizer()
            optimizer.load_state_dict(state["optimizer"])
        except Exception as error:
            reason = one_line(error) if type(error) is ValueError else error.__class__.__name__
            raise StoreError(f"the checkpoint {self.path} is damaged ({reason}); remove it to start this run anew") from None
        return position, optimizer

    def remove(self) -> None:
        """Delete the checkpoint of a finished run."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


SEAL = b"cmlib-ck"  # stands before the checksum
CHECKSUM = 32  # bytes


def sealed(state: dict[str, Any]) -> bytes:
    """A checkpoint's bytes: as torch writes it, then SEAL and the checksum (BLAKE2b) of all that comes before it."""
    content = io.BytesIO()
    torch.save(state, content)
    raw = content.getvalue() + SEAL
    return raw + hashlib.blake2b(raw, digest_size=CHECKSUM).digest()


def unsealed(raw: bytes, device: torch.device) -> dict[str, Any]:
    """The state in a checkpoint's bytes; ValueError unless every bit is as it was written.

    Checkpoints from before there was a checksum are read when the CRC-32 of each of their parts, which torch writes, is right.
    """
    body, checksum = raw[:-CHECKSUM], raw[-CHECKSUM:]
    marked = body.endswith(SEAL)
    if marked and hashlib.blake2b(body, digest_size=CHECKSUM).digest() != checksum:
        raise ValueError("its checksum does not match")
    if not marked:
        with zipfile.ZipFile(io.BytesIO(raw)) as parts:
            if parts.testzip() is not None:
                raise ValueError("its checksum does not match")
    state = torch.load(io.BytesIO(raw), map_location=device, weights_only=True)
    if "run" in state and not marked:
        raise ValueError("its checksum is missing")
    return dict(state)


# -- around the loop ------------------------------------------------------------------------------------------------------


def fresh(experiment: Experiment, data: ImageData, device: str | torch.device = "cpu") -> Method:
    """The untrained method of an experiment, with its scenario."""
    options = experiment.options
    scenario = Scenario(
        data,
        experiment.scenario,
        options["n_tasks"],
        experiment.seed,
        options.get("support_size", 0),
        options.get("stratified", True),
        options["train_per_class"],
        options["eval_split"],
        options["augmentation"],
        device,
        options["class_order"],
    )
    return METHODS[experiment.method](options, scenario).to(device)


def load_data(experiment: Experiment, data: Any = None, data_root: str | Path | None = None) -> ImageData:
    """The images of an experiment: those given, or the data set it names."""
    if isinstance(data, ImageData):
        return data
    if data is None and experiment.source == datasets.ARRAYS:
        where = "on the command line name a folder of images or a data set of `cmlib datasets`"
        raise OptionError(f"dataset=arrays is for Python, as in cmlib.run(experiment, data=(x, y)); {where}")
    if data is None and not experiment.source:
        raise OptionError(f"dataset={experiment.dataset} needs data=, or its folder: a result file keeps only a folder's name")
    return datasets.load(experiment.source if data is None else data, data_root)


def choose_device(device: str) -> torch.device:
    """`auto`, `cpu`, `cuda`, `cuda:1`, ...; OptionError when it is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise OptionError(f"unknown device '{device}'; allowed: auto, cpu, cuda, cuda:0, ...") from None
    if chosen.type not in ("cpu", "cuda") or (chosen.type == "cpu" and chosen.index):
        raise OptionError(f"unknown device '{device}'; allowed: auto, cpu, cuda, cuda:0, ...")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise OptionError(f"device '{device}' is not present on this machine; allowed: auto, cpu")
    return chosen


@contextmanager
def threads_for(data: ImageData) -> Iterator[int]:
    """Torch's threads while a run lasts: one for images under 16 pixels, else two; never more than OMP_NUM_THREADS."""
    before = torch.get_num_threads()
    wanted = 1 if data.x_train.shape[-1] < 16 else 2
    limit = os.environ.get("OMP_NUM_THREADS", "")
    torch.set_num_threads(min(wanted, int(limit) if limit.isdigit() else wanted, os.cpu_count() or 1))
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def _bar(experiment: Experiment, progress: bool | None) -> dict[str, Any]:
    total = experiment.n_tasks * experiment.epochs
    text = f"{experiment.method} {experiment.scenario} {experiment.dataset} seed {experiment.seed}"
    return {"total": total, "desc": text, "unit": "epoch", "disable": None if progress is None else not progress}


def _result(
    experiment: Experiment, method: Method, data: ImageData, position: Position, device: torch.device, threads: int
) -> Run:
    def square(rows: list[list[float]]) -> list[list[float | None]]:
        n = experiment.n_tasks
        filled: list[list[float | None]] = [[*row, *[None] * (n - len(row))] for row in rows]
        return filled + [[None] * n for _ in range(n - len(rows))]

    used = sum(len(task.y) + len(task.support_y) for task in method.scenario.tasks)
    info = {"digest": data.digest, "classes": len(data.class_names), "rows": len(data.y_train), "train_rows_used": used}
    return Run(
        id=run_id(experiment, data.digest),
        experiment=experiment.to_dict(),
        R=square(position.R),
        R_task_known=square(position.R_task_known) if experiment.scenario == "cil" else None,
        seconds_per_epoch=position.seconds,
        gradient_steps=position.steps,
        retained={name: sum(t.numel() for t in tensors) for name, tensors in method.retained().items()},
        formula=dict(zip(("text", "scalars"), method.formula() or (), strict=False)),
        status=position.status,
        data=info,
        versions=versions(),
        machine=machine(device, threads),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        classes=[[method.scenario.class_names[label] for label in task.classes] for task in method.scenario.tasks],
        notes=_notes(method),
    )


def _notes(method: Method) -> list[str]:
    """What a reader of a run's numbers must know and would not see: one sentence each."""
    scenario, memory = method.scenario, getattr(method, "memory", None)
    trivial = "one class a task, and the task is known: every accuracy is 100, whatever was learned"
    notes = [trivial] if scenario.kind == "til" and scenario.classes_per_task == 1 else []
    if not isinstance(memory, ExemplarMemory) or method.option.get("exemplars") == "first":  # which are shared out by no class
        return notes
    counts = [torch.bincount(task.y.cpu() - task.classes.start, minlength=len(task.classes)).tolist() for task in scenario.tasks]
    short = shortages(memory, counts)
    for label, (images, places) in list(short.items())[:1]:
        who = f"{len(short)} of {len(scenario.class_names)} classes {'have' if len(short) > 1 else 'has'}"
        what = f"'{scenario.class_names[label]}' has {images} for {places}"
        notes.append(f"{who} fewer training images than places in the memory: {what}")
    return notes


def versions() -> dict[str, str]:
    """Versions of what produced the numbers."""
    return {"cmlib": VERSION, "torch": torch.__version__, "python": platform.python_version()}


def device_name(device: torch.device) -> str:
    """`cpu`, or the name of the card."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def machine(device: torch.device, threads: int) -> dict[str, Any]:
    """What a run was made on, and with which state of the code; `changed`: the code was not that of the commit.

    Recorded, never hashed: on another CPU the same experiment rounds otherwise, and its accuracies differ as another seed's do.
    """
    changed = bool(_git("status", "--porcelain", "--", "."))
    where = {"device": device_name(device), "cpu": cpu_model(), "instructions": instructions(), "threads": threads}
    return {**where, "commit": commit(), "changed": changed}


def commit() -> str:
    """The short commit of the checkout cmlib runs from; empty outside one."""
    return _git("rev-parse", "--short=10", "HEAD")


def cpu_model() -> str:
    """The name of this machine's processor, as its maker gives it; `unknown` where the system does not say."""
    listed = Path("/proc/cpuinfo")
    if listed.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", listed.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        if found:
            return " ".join(found[1].split())
    return platform.processor() or platform.machine() or "unknown"


def instructions() -> str:
    """The CPU instruction set that torch computes with, as `AVX2`; oneDNN's own where a variable limits it."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    return torch.backends.cpu.get_cpu_capability() + (f", oneDNN {limit}" if limit else "")


def _git(*words: str) -> str:
    """What git says about the checkout cmlib runs from; empty outside one."""
    here = Path(__file__).resolve().parent
    if not (here.parent / ".git").exists():
        return ""
    return subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=False).stdout.strip()


def load_or_run(
    experiment: Experiment,
    store: str | Path | None = None,
    data: Any = None,
    data_root: str | Path | None = None,
    device: str = "auto",
    recompute: bool = False,
) -> Run:
    """The run of an experiment from the store, else from the committed results, else made now and stored.

    With data or data_root it is the run on exactly these data. Else it is the one on the data set as published, whose images
    are not read where the run is there, or on the folder as it now is.
    """
    shelf = Store(store or default_folder())
    named = data is None and data_root is None and experiment.dataset in datasets.KNOWN
    images = None if named else load_data(experiment, data, data_root)
    if not recompute:
        for place in (shelf, committed()):
            found = place.find(experiment, images.digest if images else None)
            if found:
                return found[-1]
    return run(experiment, images, data_root, shelf, device)
