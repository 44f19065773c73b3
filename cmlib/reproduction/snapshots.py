"""Embedding spaces as they were after each task, for pictures: recorded during a run, kept in a small .npz beside it.

A snapshot has `points` [n, E], `labels` [n] (over all classes), `centroids` [K, E] and `centroid_labels` [K].
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cmlib.checkpoint import Checkpoint
from cmlib.engine import load_data, train
from cmlib.errors import OptionError, StoreError
from cmlib.experiment import Experiment
from cmlib.loop import AfterTask
from cmlib.methods.base import Method
from cmlib.methods.cm import CentroidsMatching
from cmlib.scenario import Task
from cmlib.store import Run, Store, committed, default_folder, write_atomically

PER_CLASS = 15  # evaluation images of each class in a snapshot
FIRST = {"task1": 1, "merged": 2}  # the first task after which there is something to see


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One space at one moment; `after` is the 1-based number of the task just learned."""

    after: int
    points: NDArray[np.float32]  # [n, E]
    labels: NDArray[np.int64]  # [n]
    centroids: NDArray[np.float32]  # [K, E]
    centroid_labels: NDArray[np.int64]  # [K]


def sample(task: Task, per_class: int = PER_CLASS) -> tuple[torch.Tensor, torch.Tensor]:
    """The first evaluation images of each class of a task. -> uint8 [n, C, H, W], [n]"""
    rows = torch.cat([(task.test_y == label).nonzero().squeeze(1)[:per_class] for label in task.classes])
    return task.test_x[rows], task.test_y[rows]


@torch.no_grad()
def task_space(method: CentroidsMatching, after: int, index: int = 0) -> Snapshot:
    """The space of one task (0-based `index`), with that task's images."""
    task = method.scenario.tasks[index]
    x, y = sample(task)
    e = method.embed(method.scenario.prepare(x), index)
    return _snapshot(after, e, y, method.centroids[index], torch.tensor(list(task.classes)))


@torch.no_grad()
def merged_space(method: CentroidsMatching, after: int) -> Snapshot:
    """The space shared by all tasks so far (from the second task on), with images of all classes seen."""
    seen = [sample(task) for task in method.scenario.tasks[:after]]
    x, y = torch.cat([pair[0] for pair in seen]), torch.cat([pair[1] for pair in seen])
    e = method.merge(method.backbone.features(method.scenario.prepare(x)))
    anchors = method.anchors()
    return _snapshot(after, e, y, anchors, torch.arange(len(anchors)))


def _snapshot(after: int, e: torch.Tensor, y: torch.Tensor, c: torch.Tensor, labels: torch.Tensor) -> Snapshot:
    return Snapshot(after, e.cpu().numpy(), y.cpu().numpy(), c.cpu().numpy(), labels.cpu().numpy())


def record(experiment: Experiment, space: str, data: Any = None) -> list[Snapshot]:
    """Train and take a snapshot after each task. space: `task1` (TIL or CIL), or `merged` (CIL, from the second task on)."""
    taken: list[Snapshot] = []
    train(experiment, data, after_task=_looking(experiment, space, taken), progress=False)
    return taken


def _looking(experiment: Experiment, space: str, taken: list[Snapshot], unfinished: Path | None = None) -> AfterTask:
    """What takes a snapshot after each task, and writes all of them to `unfinished`."""
    if space not in FIRST or experiment.method != "cm" or (space == "merged" and experiment.scenario == "til"):
        raise OptionError(
            f"space={space} of a {experiment.method} {experiment.scenario} run; allowed: task1, or merged for cm in cil"
        )

    def look(method: Method, task: Task) -> None:
        assert isinstance(method, CentroidsMatching)
        after = task.index + 1
        if after < FIRST[space]:
            return
        one = task_space(method, after) if space == "task1" else merged_space(method, after)
        taken[:] = [*(old for old in taken if old.after < after), one]
        if unfinished is not None:
            write_atomically(unfinished, pack(taken))

    return look


def keep(experiment: Experiment, space: str, store: Store, data: Any = None) -> list[Snapshot]:
    """Train, and write the run with its snapshots beside it; they are also returned. Interrupted, it goes on where it stood.

    A run that the store has without snapshots is made again, so that both are of one training.
    """
    store.check_writable()
    images = load_data(experiment, data)
    file = store.path(experiment, images.digest).with_suffix(f".{space}.npz")
    unfinished = file.with_suffix(".part")
    checkpoint = Checkpoint.of(store, experiment, images, space)
    position = checkpoint.position()
    saved = experiment.n_tasks if store.find(experiment, images.digest) else 0
    taken = _taken(unfinished, space, position.task if position else saved)
    if taken is None:
        checkpoint.remove()
        taken = []
    if position or not taken:  # otherwise the run was saved, and nothing but the snapshots' last name is missing
        train(experiment, images, None, store, after_task=_looking(experiment, space, taken, unfinished), own_checkpoint=space)
    write_atomically(file, pack(taken))
    unfinished.unlink(missing_ok=True)
    return taken


def _taken(unfinished: Path, space: str, tasks: int) -> list[Snapshot] | None:
    """The snapshots after so many tasks that an interrupted recording left; None when they are not whole."""
    wanted = range(FIRST[space], tasks + 1)
    taken = [one for one in read(unfinished) if one.after in wanted] if unfinished.is_file() else []
    return taken if [one.after for one in taken] == list(wanted) else None


def find(experiment: Experiment, space: str, stores: Iterable[Store]) -> tuple[Run, list[Snapshot]] | None:
    """A run and the snapshots beside it, from the first store that holds both; None when none does. Trains nothing."""
    for store in stores:
        for run in reversed(store.find(experiment)):
            path = store.path(experiment, run.data["digest"]).with_suffix(f".{space}.npz")
            if path.is_file():
                return run, read(path)
    return None


def load_or_record(experiment: Experiment, space: str, store: str | Path | None = None, data: Any = None) -> list[Snapshot]:
    """Snapshots from the store, else from the committed results, else recorded now and kept in the store, with their run."""
    images = load_data(experiment, data)
    shelves = [Store(store or default_folder()), committed()]
    for shelf in shelves:
        path = shelf.path(experiment, images.digest).with_suffix(f".{space}.npz")
        if path.is_file():
            return read(path)
    return keep(experiment, space, shelves[0], images)


def moved(taken: Sequence[Snapshot], centroids: bool = False) -> float:
    """How far a space moved, in mean distances between its centroids.

    Points of task 1: from the first snapshot to the last. Centroids (of a merged space): from each snapshot to the next, those
    present in both, on average.
    """
    from scipy.spatial.distance import pdist

    if not centroids:
        first, last = taken[0], taken[-1]
        return float(np.linalg.norm(last.points - first.points, axis=1).mean() / pdist(first.centroids).mean())
    steps = []
    for before, after in pairwise(taken):
        where = {int(label): c for label, c in zip(after.centroid_labels, after.centroids, strict=True)}
        gone = [np.linalg.norm(where[int(k)] - c) for k, c in zip(before.centroid_labels, before.centroids, strict=True)]
        steps.append(np.mean(gone) / pdist(before.centroids).mean())
    return float(np.mean(steps))


def pack(snapshots: list[Snapshot]) -> bytes:
    """Snapshots as the bytes of an .npz file that `read` reads.

    Embeddings are in half precision, all their first bytes before all their second ones: with LZMA that takes a fifth less than
    numpy's own compression.
    """
    arrays: dict[str, NDArray[Any]] = {"after": np.array([one.after for one in snapshots])}
    values: list[NDArray[np.float16]] = []
    for one in snapshots:
        arrays[f"labels{one.after}"] = one.labels.astype(np.uint8 if one.labels.max() < 256 else np.int64)
        arrays[f"centroid_labels{one.after}"] = one.centroid_labels.astype(np.int64)
        values += [one.points.astype(np.float16).ravel(), one.centroids.astype(np.float16).ravel()]
    every = np.concatenate([np.empty(0, np.float16), *values])
    arrays["bytes"] = np.ascontiguousarray(every.view(np.uint8).reshape(-1, 2).T)  # [2, values]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_LZMA) as file:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue(), zipfile.ZIP_LZMA)  # without the time of day
    return content.getvalue()


def read(path: Path) -> list[Snapshot]:
    """Read snapshots back; StoreError when the file is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return list(_unpacked(file))
    except Exception as error:
        raise StoreError(f"the snapshots {path} are damaged ({error.__class__.__name__}); remove the file") from None


def _unpacked(file: Mapping[str, NDArray[Any]]) -> Iterator[Snapshot]:
    """The snapshots of a file, each cut from the values of all."""
    labels = {k: (file[f"labels{k}"].astype(np.int64), file[f"centroid_labels{k}"].astype(np.int64)) for k in file["after"]}
    rows = sum(len(one) for pair in labels.values() for one in pair)
    if not rows:
        return
    values = np.ascontiguousarray(file["bytes"].T).view(np.float16).astype(np.float32).reshape(rows, -1)
    start = 0
    for k, (of_points, of_centroids) in labels.items():
        middle, end = start + len(of_points), start + len(of_points) + len(of_centroids)
        yield Snapshot(int(k), values[start:middle], of_points, values[middle:end], of_centroids)
        start = end
