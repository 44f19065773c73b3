"""The engine: from an experiment to a run, made now or found in a store."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from cmlib import datasets, loop
from cmlib.checkpoint import EPOCHS, Checkpoint, Position
from cmlib.datasets import ImageData
from cmlib.errors import OptionError, StoreError
from cmlib.experiment import Experiment, fresh
from cmlib.loop import AfterTask
from cmlib.machine import choose_device, machine, threads_for, versions
from cmlib.memory import ExemplarMemory, shortages
from cmlib.methods import Method
from cmlib.scenario import arrival
from cmlib.store import Run, Store, clear_parts, committed, default_folder, run_id


def run(
    experiment: Experiment,
    data: Any = None,
    data_root: str | Path | None = None,
    store: str | Path | Store | None = None,
    device: str = "auto",
    progress: bool | None = None,
    graphs: bool = True,
    each_epoch: bool = False,
) -> Run:
    """Make the run of an experiment, or load it when the store has it; continue it when it was interrupted.

    data: a data set (ImageData, or arrays as in `datasets.load`) instead of the experiment's by name. store: a folder; None
    keeps nothing. device: `auto` takes CUDA when present (float32, with TF32 convolutions). progress: a bar; None shows it on a
    terminal only. graphs: on CUDA, replay recorded steps (see `cudagraph`). each_epoch: also measure the tasks so far after each
    epoch (`Run.each_epoch`); no other number changes, so it enters no hash, and a stored run without it is made again.
    Errors: OptionError, DataError, StoreError.
    """
    images = load_data(experiment, data, data_root)
    shelf = as_store(store)
    choose_device(device)  # a device that is not there is an error even when nothing is left to do
    done = shelf.load(experiment, images.digest) if shelf else None
    if done is not None and (done.each_epoch or not each_epoch):
        return _as_named_now(done, images)
    return train(experiment, images, None, shelf, device, progress, graphs=graphs, each_epoch=each_epoch)[0]


def train(
    experiment: Experiment,
    data: Any = None,
    data_root: str | Path | None = None,
    store: str | Path | Store | None = None,
    device: str = "auto",
    progress: bool | None = None,
    after_task: AfterTask | None = None,
    graphs: bool = True,
    each_epoch: bool = False,
    own_checkpoint: str = "",
) -> tuple[Run, Method]:
    """As `run`, but always trains, and also returns the trained method, for a look inside.

    `after_task(method, task)` is called after each task. own_checkpoint: a name for the checkpoint of someone who keeps what
    they see there, so that no run made without them is continued.
    """
    images = load_data(experiment, data, data_root)
    target, shelf = choose_device(device), as_store(store)
    checkpoint = Checkpoint.of(shelf, experiment, images, EPOCHS if each_epoch else own_checkpoint)
    if experiment.engine == "avalanche":
        _check_avalanche(images, each_epoch)
        other = importlib.import_module("cmlib.avalanche")  # by name: an optional part, whose libraries take seconds to load
        method = other.fresh(experiment, images, target)
        learn: Callable[..., Position] = other.learn
    else:
        method, learn = fresh(experiment, images, target), partial(loop.learn, graphs=graphs, each_epoch=each_epoch)
    if shelf is not None:
        shelf.check_writable()
        clear_parts(shelf.path(experiment, images.digest))
    with threads_for(images) as threads, tqdm(**_bar(experiment, progress)) as bar:
        position = learn(experiment, method, checkpoint, bar, after_task)
    made = _result(experiment, method, images, position, target, threads)
    if shelf is not None:
        made = _with_epochs(made, shelf, experiment, images.digest)
        shelf.save(made, experiment, images.digest)
        checkpoint.remove()
        Checkpoint.of(shelf, experiment, images, "").remove()
    return made, method


def _with_epochs(made: Run, shelf: Store, experiment: Experiment, digest: str) -> Run:
    """A run with the accuracies after each epoch that the store holds of the same run, where it has none itself."""
    try:
        before = shelf.load(experiment, digest)
    except StoreError:  # damaged: it is written anew
        return made
    same = before is not None and before.R == made.R and not made.each_epoch
    return replace(made, each_epoch=before.each_epoch) if before is not None and same else made


def _as_named_now(stored: Run, data: ImageData) -> Run:
    """A stored run with the names that its classes have now: in a renamed folder the images, and so the run, are the same."""
    order = arrival(len(data.class_names), stored.seed, stored.experiment["options"]["class_order"])
    now = [data.class_names[k] for k in order.tolist()]
    before = list(chain.from_iterable(stored.classes))
    if before == now or len(before) != len(now):  # runs of old hold no names
        return stored
    name = dict(zip(before, now, strict=True))
    notes = [re.sub("'([^']*)'", lambda found: f"'{name.get(found[1], found[1])}'", note) for note in stored.notes]
    return replace(stored, classes=[[name[one] for one in task] for task in stored.classes], notes=notes)


def _check_avalanche(data: ImageData, each_epoch: bool) -> None:
    """OptionError for what the engine avalanche cannot do."""
    if each_epoch:
        raise OptionError("accuracies after each epoch need engine cmlib; avalanche measures after each task")
    if data.vectors:
        raise OptionError(f"{data.name} holds feature vectors, which need engine cmlib; avalanche takes images")


def as_store(store: str | Path | Store | None) -> Store | None:
    """A store from a folder; None stays None."""
    return store if isinstance(store, Store) or store is None else Store(store)


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
        each_epoch=position.each_epoch,
        classes=[[method.scenario.class_names[label] for label in task.classes] for task in method.scenario.tasks],
        notes=_notes(method),
    )


def _notes(method: Method) -> list[str]:
    """What a reader of a run's numbers must know and would not see: one sentence each."""
    scenario, memory = method.scenario, getattr(method, "memory", None)
    trivial = "one class a task, and the task is known: every accuracy is 100, whatever was learned"
    notes = [trivial] if scenario.kind == "til" and max(scenario.task_sizes) == 1 else []
    if scenario.kind == "til" and not notes and 1 in scenario.task_sizes:
        one = scenario.task_sizes.index(1) + 1
        notes.append(f"task {one} has one class, and the task is known: accuracies on it are 100, whatever was learned")
    if not isinstance(memory, ExemplarMemory) or method.option.get("exemplars") == "first":  # which are shared out by no class
        return notes
    counts = [torch.bincount(task.y.cpu() - task.classes.start, minlength=len(task.classes)).tolist() for task in scenario.tasks]
    short = shortages(memory, counts)
    for label, (images, places) in list(short.items())[:1]:
        who = f"{len(short)} of {len(scenario.class_names)} classes {'have' if len(short) > 1 else 'has'}"
        what = f"'{scenario.class_names[label]}' has {images} for {places}"
        notes.append(f"{who} fewer training images than places in the memory: {what}")
    return notes


_REMADE: set[Path] = set()  # places of the runs that this process has made again


def load_or_run(
    experiment: Experiment,
    store: str | Path | None = None,
    data: Any = None,
    data_root: str | Path | None = None,
    device: str = "auto",
    recompute: bool = False,
    each_epoch: bool = False,
) -> Run:
    """The run of an experiment from the store, else from the committed results, else made now and stored.

    recompute: make it again where it is there, once in a process. each_epoch: a run with accuracies after each epoch (see `run`).

    With data or data_root it is the run on exactly these data. Else it is the one on the data set as published, whose images
    are not read where the run is there, or on the folder as it now is.
    """
    shelf = Store(store or default_folder())
    named = data is None and data_root is None and experiment.dataset in datasets.KNOWN
    images = None if named else load_data(experiment, data, data_root)
    if recompute:
        images = images or load_data(experiment, data, data_root)
        place = shelf.path(experiment, images.digest)
        if place not in _REMADE:
            made = train(experiment, images, None, shelf, device, each_epoch=each_epoch)[0]
            _REMADE.add(place)
            return made
    else:
        for source in (shelf, committed()):
            stored = source.find(experiment, images.digest if images else None)
            found = [one for one in stored if one.each_epoch or not each_epoch]
            if found:
                return _as_named_now(found[-1], images) if images else found[-1]
    return run(experiment, images, data_root, shelf, device, each_epoch=each_epoch)
