"""A scenario as an Avalanche benchmark, and loaders that read batches straight from its tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from avalanche.benchmarks import benchmark_from_datasets, with_classes_timeline, with_task_labels
from avalanche.benchmarks.utils import DataAttribute, TransformGroups
from avalanche.benchmarks.utils.classification_dataset import TaskAwareSupervisedClassificationDataset
from torch import Tensor
from torch.utils.data import Dataset

from cmlib.avalanche.streams import Labels, labels_of
from cmlib.errors import OptionError
from cmlib.scenario import Part, Scenario, Task, augment, draw_crops


def benchmark(scenario: Scenario) -> Any:
    """A cmlib scenario as an Avalanche benchmark with a train_stream and a test_stream.

    TIL: labels from zero in each experience, with task labels; CIL: cmlib's labels, task label 0. Its experiences know their
    scenario and task, for `DeviceBatches`. The support sets are in no stream.
    """
    labels = labels_of(scenario)
    train = [_dataset(scenario, labels, task.x, task.y) for task in scenario.tasks]
    test = [_dataset(scenario, labels, task.test_x, task.test_y) for task in scenario.tasks]
    made = with_classes_timeline(with_task_labels(benchmark_from_datasets(train=train, test=test)))
    for part in ("train", "test"):
        for task, experience in zip(scenario.tasks, made.streams[part], strict=True):
            experience.origin = (scenario, task, part)
    return made


class _RawImages(Dataset):
    """Raw images and labels of a task."""

    def __init__(self, x: Tensor, y: list[int]) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.x[row], self.y[row]


def _dataset(scenario: Scenario, labels: Labels, x: Tensor, y: Tensor) -> Any:
    """Images of a task as Avalanche's data set, with a scenario's augmentation and normalisation as its transforms."""

    def plain(image: Tensor) -> Tensor:
        return scenario.prepare(image.unsqueeze(0)).squeeze(0)

    def augmented(image: Tensor) -> Tensor:
        crops = draw_crops(1, torch.default_generator, scenario.augmentation).to(image.device)
        return plain(augment(image.unsqueeze(0), crops, scenario.augmentation).squeeze(0))

    targets, tasks = (one.tolist() for one in labels.theirs(y))
    return TaskAwareSupervisedClassificationDataset(
        [_RawImages(x, targets)],
        data_attributes=[DataAttribute(targets, "targets"), DataAttribute(tasks, "targets_task_labels", use_in_getitem=True)],
        transform_groups=TransformGroups({"train": (augmented, None), "eval": (plain, None)}),
    )


def origin_of(experience: Any) -> tuple[Scenario, Task, str]:
    """The scenario, the task and the stream of an experience of `benchmark`; OptionError for another one."""
    found = getattr(experience, "origin", None)
    if found is None:
        raise OptionError("this experience is not of cmlib.avalanche.benchmark(scenario), which batches on the device need")
    return found


class Loader:
    """What a strategy reads batches [x, y, t] from; `draw(epoch)` yields those of an epoch, drawn anew each time."""

    def __init__(self, draw: Callable[[int], Iterator[list[Tensor]]], steps: Callable[[], int]) -> None:
        self.draw, self.steps, self.epoch = draw, steps, 0

    def __len__(self) -> int:
        return self.steps()

    def __iter__(self) -> Iterator[list[Tensor]]:
        self.epoch += 1
        yield from self.draw(self.epoch - 1)


def eval_loader(experience: Any, size: int) -> Loader:
    """The images of an experience of `benchmark`, un-augmented, in order."""
    scenario, task, part = origin_of(experience)
    images, y = (task.x, task.y) if part == "train" else (task.test_x, task.test_y)
    labels = labels_of(scenario)

    def draw(epoch: int) -> Iterator[list[Tensor]]:
        for start in range(0, len(y), size):
            rows = slice(start, start + size)
            yield [scenario.prepare(images[rows]), *labels.theirs(y[rows])]

    return Loader(draw, lambda: math.ceil(len(y) / size))


class DeviceBatches:
    """Batches straight from a scenario's tensors for an Avalanche strategy on `benchmark(scenario)`.

    Put it before the strategy's class: `class FastNaive(DeviceBatches, Naive): ...`. A strategy that trains on other data than
    the experience's, as Cumulative and GDumb do, or makes a loader of its own, as Replay does from its second experience on,
    keeps those.
    """

    experience: Any
    adapted_dataset: Any  # what the strategy, or one of its plugins, trains on
    train_mb_size: int
    eval_mb_size: int
    dataloader: Any

    def device_part(self, scenario: Scenario, task: Task) -> Part:
        """What is trained on: images, labels, samples a batch."""
        return task.x, task.y, self.train_mb_size

    def make_train_dataloader(self, **named: Any) -> None:
        """The batches `scenario.batches` draws, shuffled anew in each epoch."""
        changed = len(self.adapted_dataset) != len(self.experience.dataset)
        if changed and type(self).device_part is DeviceBatches.device_part:
            super().make_train_dataloader(**named)  # type: ignore[misc]
            return
        scenario, task = origin_of(self.experience)[:2]
        labels, part = labels_of(scenario), self.device_part(scenario, task)

        def draw(epoch: int) -> Iterator[list[Tensor]]:
            for x, y in scenario.batches([part], task.index, epoch):
                yield [x, *labels.theirs(y)]

        self.dataloader = Loader(draw, lambda: math.ceil(len(part[1]) / part[2]))

    def make_eval_dataloader(self, **_: Any) -> None:
        """The images un-augmented, in order."""
        self.dataloader = eval_loader(self.experience, self.eval_mb_size)
