"""The loop: all tasks, all epochs, and what is measured after each task. The heart of every run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from cmlib.checkpoint import Checkpoint, Position
from cmlib.cudagraph import Step, stepper
from cmlib.experiment import Experiment
from cmlib.methods.base import Method
from cmlib.scenario import Task
from cmlib.store import DIVERGED

AfterTask = Callable[[Method, Task], None]
EVAL_BATCH = 500  # images


def learn(
    experiment: Experiment,
    method: Method,
    checkpoint: Checkpoint,
    bar: Any,
    after_task: AfterTask | None = None,
    graphs: bool = False,
    each_epoch: bool = False,
) -> Position:
    """Learn all tasks, from where the checkpoint stands; returns the position at the end, with everything measured.

    each_epoch: measure the tasks so far after every epoch as well. It draws nothing and trains nothing, so no number changes.
    """
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
            good = train_epoch(method, optimizer, task, epoch, position, step)
            if not good or (each_epoch and not measure_epoch(method, tasks[: task.index + 1], position)):
                return stopped(position, task, epoch + 1)
            position.epoch = epoch + 1
            checkpoint.save(method, optimizer, position)
            bar.update(1)
        method.eval()
        method.end_task(task)
        if not measure(method, tasks[: task.index + 1], position):
            return stopped(position, task, position.epoch)
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


def stopped(position: Position, task: Task, epoch: int) -> Position:
    """The position of a run whose loss or scores became infinite or no numbers in an epoch (from 1), of which nothing is kept."""
    position.status = f"{DIVERGED} (task {task.index + 1}, epoch {epoch})"
    before, now = position.each_epoch[: task.index], position.each_epoch[task.index :]
    position.each_epoch = [*before, *(rows[: epoch - 1] for rows in now if epoch > 1)]
    return position


def measure(method: Method, seen: list[Task], position: Position) -> bool:
    """Append a row to R, and in CIL one to R_task_known; False, and nothing is appended, where scores are not finite."""
    rows = [row(method, seen, known) for known in ((True,) if method.kind == "til" else (False, True))]
    if not all(rows):
        return False
    position.R.append(rows[0])
    position.R_task_known += rows[1:]
    return True


def measure_epoch(method: Method, seen: list[Task], position: Position) -> bool:
    """Append the accuracies on the tasks so far to those of the last task's epochs, in CIL with no task given; as `measure`."""
    method.eval()
    method.before_measuring(seen[-1])
    now = row(method, seen, method.kind == "til")
    if not now:
        return False
    if len(position.each_epoch) < len(seen):
        position.each_epoch.append([])
    position.each_epoch[-1].append(now)
    return True


def row(method: Method, seen: list[Task], known: bool) -> list[float]:
    """Accuracies on tasks; empty where an image has no finite best score, since the best of NaN would be the first class."""
    told = [answers(method, task, known) for task in seen]
    return [accuracy for accuracy, _ in told] if all(finite for _, finite in told) else []


def task_accuracy(method: Method, task: Task, known: bool) -> float:
    """Accuracy on a task's evaluation images in percent, with the task given or not."""
    return answers(method, task, known)[0]


@torch.no_grad()
def answers(method: Method, task: Task, known: bool) -> tuple[float, bool]:
    """Accuracy in percent, and whether every image has a best score that is finite."""
    method.eval()
    right = 0
    finite = True
    for start in range(0, len(task.test_y), EVAL_BATCH):
        x = method.scenario.prepare(task.test_x[start : start + EVAL_BATCH])
        scores = method.scores(x, task if known else None)
        finite &= bool(torch.isfinite(scores.amax(1)).all())
        best = scores.argmax(1) + (task.classes.start if known else 0)
        right += int((best == task.test_y[start : start + EVAL_BATCH]).sum())
    return 100 * right / len(task.test_y), finite
