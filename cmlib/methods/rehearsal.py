"""What rehearsal methods share: options of the exemplar memory and batches that mix it with the current task."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from cmlib.errors import OptionError, setting
from cmlib.memory import KINDS, ExemplarMemory
from cmlib.methods.base import Method, Option, parts_by_task
from cmlib.nets import Backbone
from cmlib.scenario import Scenario, Task

IMAGES = {"exemplars": "I * X", "labels": "X"}  # what a memory of exemplars keeps, as `kept_exemplars` gives it
PAPER_MEMORY = "I x M x N"
SPLITS = ("tasks", "half", "equal_steps", "double")

MEMORY_OPTIONS = {
    "memory_size": Option(500, "exemplars in the memory (in all, or per task)", int, low=1),
    "memory_kind": Option("total", "whether memory_size is for all tasks together or for each", choices=KINDS),
    "batch_split": Option(
        "tasks",
        "tasks: a batch is shared evenly by the tasks seen; half: half current, half memory; "
        "equal_steps: as tasks, with as many steps as plain training has; double: a whole batch of each",
        choices=SPLITS,
    ),
}


def make_memory(options: dict[str, Any], task_sizes: Sequence[int]) -> ExemplarMemory:
    """The exemplar memory of an experiment; OptionError when it could not hold one exemplar of each class.

    task_sizes: classes of each task
    """
    size, kind = options["memory_size"], options["memory_kind"]
    classes = sum(task_sizes) if kind == "total" else max(task_sizes)
    if size < classes:
        which = f"{classes} classes{'' if kind == 'total' else ' of a task'}"
        works = f"the smallest that works: {setting('memory_size', classes)}"
        raise OptionError(f"memory_size={size} cannot hold one exemplar of each of the {which}; {works}")
    return ExemplarMemory(size, kind)


def rehearsal_batches(method: Method, memory: ExemplarMemory, task: Task, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of one epoch that mix the current task with the memory, as `batch_split` says."""
    size, split = method.option["batch_size"], method.option["batch_split"]
    scenario = method.scenario
    if not len(memory):
        return scenario.batches([(task.x, task.y, size)], task.index, epoch)
    if split in ("half", "double"):
        replayed = max(1, size // 2) if split == "half" else size
        current = size - replayed if split == "half" else size
        return scenario.batches([(task.x, task.y, current), (memory.x, memory.y, replayed)], task.index, epoch)
    parts = parts_by_task(task, [(memory.x[row], memory.y[row]) for row in rows_by_task(method, memory, task)], size)
    steps = math.ceil(len(task.y) / size) if split == "equal_steps" else None
    return scenario.batches(parts, task.index, epoch, steps)


def rows_by_task(method: Method, memory: ExemplarMemory, task: Task) -> list[Tensor]:
    """Positions of each past task's exemplars in the memory."""
    past = [one.classes for one in method.scenario.tasks[: task.index]]
    return [memory.of_classes(classes.start, classes.stop) for classes in past]


def kept_exemplars(memory: ExemplarMemory) -> dict[str, list[Tensor]]:
    """What a memory of exemplars keeps, for `retained`."""
    return {"exemplars": [memory.x], "labels": [memory.y]}


def make_task_memory(method: Method) -> ExemplarMemory:
    """A memory of `memory_size` exemplars for every task."""
    return make_memory({**method.option, "memory_kind": "per_task"}, method.scenario.task_sizes)


class Rehearsal(Method):
    """A method with one exemplar memory for all tasks, mixed into its batches."""

    def __init__(self, options: Mapping[str, Any], scenario: Scenario, backbone: Backbone | None = None) -> None:
        super().__init__(options, scenario, backbone)
        self.memory = make_memory(self.option, scenario.task_sizes)

    def batches(self, task: Task, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches that mix the current task with the memory."""
        return rehearsal_batches(self, self.memory, task, epoch)

    def end_task(self, task: Task) -> None:
        """Store exemplars of the task just learned."""
        self.memory.add_task(task.x, task.y, self.seed, task.index)

    def retained(self) -> dict[str, list[Tensor]]:
        """The exemplars and their labels."""
        return super().retained() | kept_exemplars(self.memory)
