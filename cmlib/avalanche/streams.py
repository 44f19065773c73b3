"""Labels and streams: what Avalanche's experiences are to a method, and a scenario's labels to Avalanche."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset

from cmlib.errors import OptionError, check_name
from cmlib.randomness import seed_of
from cmlib.scenario import Part, Scenario, Task

LOW = -1e6  # the score of a class that is out of the question; finite, so that Avalanche's loss metrics stay finite


class Labels:
    """A benchmark's labels and cmlib's, which are numbered in the order of arrival.

    A class is a pair (task label, label) where `by_task`, because labels may start again in each experience; else a label.
    """

    def __init__(self, by_task: bool, device: str | torch.device = "cpu") -> None:
        self.by_task, self.device = by_task, torch.device(device)
        self.pairs: list[tuple[int, int]] = []  # (task label, label) by cmlib's label
        self.task_of: dict[int, int] = {}  # cmlib's task by task label (where by_task)
        self.y, self.t = torch.zeros(2, 0, dtype=torch.int64, device=self.device)
        self.numbers = torch.zeros(0, 0, dtype=torch.int64, device=self.device)  # [task labels, labels], -1: unknown

    def add(self, pairs: Sequence[tuple[int, int]]) -> None:
        """The classes of a new task, in the order of their new labels."""
        if self.by_task:
            self.task_of[pairs[0][0]] = len(self.task_of)
        self.pairs += pairs
        self.t, self.y = torch.tensor(self.pairs, device=self.device).T
        rows = int(self.t.max()) + 1 if self.by_task else 1
        self.numbers = torch.full((rows, self.columns), -1, device=self.device)
        self.numbers[self.t if self.by_task else 0, self.y] = torch.arange(len(self.pairs), device=self.device)

    @property
    def columns(self) -> int:
        """Columns of a score matrix over the benchmark's labels so far."""
        return max((label for _, label in self.pairs), default=-1) + 1

    def ours(self, y: Tensor, t: Tensor) -> Tensor:
        """cmlib's labels. y [B], t [B] -> [B]"""
        return self.numbers[t if self.by_task else 0, y]

    def theirs(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The benchmark's labels and task labels. [B] -> [B], [B]"""
        return self.y[labels], self.t[labels]

    def spread(self, scores: Tensor, first: int, columns: int) -> Tensor:
        """Scores of the classes first, first + 1, ... at the columns of the benchmark's labels. [B, K] -> [B, columns]"""
        wide = scores.new_full((len(scores), columns), LOW)
        wide[:, self.y[first : first + scores.shape[1]]] = scores
        return wide


def labels_of(scenario: Scenario) -> Labels:
    """The labels of `benchmark(scenario)`: from zero in each task with task labels in TIL; cmlib's own in CIL."""
    labels = Labels(scenario.kind == "til", scenario.device)
    for task in scenario.tasks:
        til = scenario.kind == "til"
        labels.add([(task.index, y - task.classes.start) if til else (0, y) for y in task.classes])
    return labels


class _RowNumbers(Scenario):
    """Draws batches of row numbers: a scenario whose images are numbers and stay as they are."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed, self.device, self.augmentation = seed, device, "none"

    def prepare(self, x: Tensor) -> Tensor:
        return x


class _Images(Dataset):
    """The images alone of some data sets, one after the other."""

    def __init__(self, sets: Sequence[Any]) -> None:
        self.all: Any = ConcatDataset(sets)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, row: int) -> Tensor:
        image = self.all[row][0]
        if not isinstance(image, Tensor):
            name = type(image).__name__
            raise OptionError(f"images must come as tensors, not as {name}: give the benchmark a transform that ends in one")
        return image


class ExperienceStream(Scenario):
    """Avalanche's experiences, as they arrive, in the shape of a scenario.

    The `x` of its tasks are row numbers into the data sets so far, so the exemplar memory keeps rows, as Avalanche's own
    buffers do. `prepare` fetches images with the evaluation transforms, `batches` with the training transforms.
    """

    def __init__(
        self,
        kind: str,
        n_tasks: int,
        seed: int = 0,
        support_size: int = 0,
        stratified: bool = True,
        device: str | torch.device = "cpu",
    ) -> None:
        self.kind, self.n_tasks, self.seed, self.device = (
            check_name("scenario", kind, ("til", "cil")),
            n_tasks,
            seed,
            torch.device(device),
        )
        self.support_size, self.stratified, self.augmentation = support_size, stratified, "none"
        self.tasks: list[Task] = []
        self.labels = Labels(kind == "til", device)
        self.numbers = _RowNumbers(seed, self.device)
        self.loading: dict[str, Any] = {}  # options of the data loader
        self.counting = False  # batches of row numbers only, to count them
        self._sets: list[Any] = []

    def add(self, experience: Any) -> Task:
        """A new task from the training data of an experience; OptionError for one that does not fit."""
        data = experience.dataset
        y = torch.as_tensor(list(data.targets))
        t = torch.as_tensor(list(getattr(data, "targets_task_labels", [0] * len(y))))
        pairs = self._new_classes(y.tolist(), t.tolist())
        if not self.tasks:
            self.divide((len(pairs),) * self.n_tasks)
        elif len(self.tasks) == self.n_tasks:  # more than announced, as by a stream without a length
            self.divide((*self.task_sizes, len(pairs)))
        self.class_names = tuple(map(str, range(sum(self.task_sizes))))
        self.labels.add(pairs)
        first = sum(len(one) for one in self._sets)
        self._sets.append(data)
        ours = self.labels.ours(y.to(self.device), t.to(self.device)).cpu()
        order = ours.sort(stable=True).indices
        task = self._cut(ours[order], first + order)
        self.tasks.append(task)
        return task

    def _new_classes(self, y: list[int], t: list[int]) -> list[tuple[int, int]]:
        """The classes an experience brings, sorted; OptionError for those that cannot be a task."""
        number, til = len(self.tasks) + 1, self.kind == "til"
        pairs = sorted(set(zip(t, y, strict=True)) if til else {(t[y.index(label)], label) for label in set(y)})
        if til and (len({task for task, _ in pairs}) > 1 or pairs[0][0] in self.labels.task_of):
            raise OptionError(
                f"experience {number} has no task label of its own, which scenario til needs: "
                "make the benchmark with task labels (task_labels=True), or take scenario='cil'"
            )
        known = {label for _, label in self.labels.pairs}
        again = [label for _, label in pairs if not til and label in known]
        if again:
            raise OptionError(f"experience {number} brings class {again[0]} again; every class must come in one experience only")
        if self.tasks and len(pairs) != self.classes_per_task:
            k = self.classes_per_task
            raise OptionError(f"experience {number} brings {len(pairs)} classes, those before {k}: all must bring as many")
        return pairs

    def _cut(self, y: Tensor, rows: Tensor) -> Task:
        """The task of sorted labels and their rows, with its support set apart."""
        index, k = len(self.tasks), self.classes_per_task
        support = self._support_rows(index, y, self.support_size, self.stratified)
        rest = torch.ones(len(y), dtype=torch.bool)
        rest[support] = False
        parts = (rows[rest], y[rest], rows[support], y[support], rows[:0], y[:0])
        return Task(index, range(index * k, (index + 1) * k), *(part.to(self.device) for part in parts))

    def prepare(self, x: Tensor) -> Tensor:
        """The images of some rows. int64 [B] -> [B, C, H, W]"""
        images = _Images([one.eval() for one in self._sets])
        return self._on_device(torch.stack([images[row] for row in x.tolist()]))

    def _on_device(self, x: Tensor) -> Tensor:
        layout = torch.channels_last if x.ndim == 4 else torch.contiguous_format
        return x.to(self.device, memory_format=layout, non_blocking=True)

    def batches(
        self, parts: Sequence[Part], task: int, epoch: int, steps: int | None = None, one_order: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """As a scenario's: the same draws, the images through the training transforms."""
        drawn = list(self.numbers.batches(parts, task, epoch, steps, one_order))  # row numbers [B] and labels [B]
        if self.counting:
            yield from drawn
            return
        rows = [row.tolist() for row, _ in drawn]
        own_draws = torch.Generator().manual_seed(seed_of(self.seed, task, epoch, "workers"))
        images = _Images([one.train() for one in self._sets])
        loader = DataLoader(images, batch_sampler=rows, generator=own_draws, **self.loading)
        for x, (_, y) in zip(loader, drawn, strict=True):
            yield self._on_device(x), y
