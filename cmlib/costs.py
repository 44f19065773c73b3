"""What an epoch costs: how many images pass through the backbone, predicted from the settings and counted in the act.

The unit is one image passed forward and backward. A pass without gradient costs `FORWARD` of it: backward, the gradient is
computed once for the images and once for the weights, each about as dear as the way forward. Heads, projectors, penalties on
weights and the preparation of batches are left out. Built in chapter 10, beside table 2 of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cmlib.engine import Position, train_epoch
from cmlib.errors import OptionError
from cmlib.experiment import Experiment
from cmlib.methods import Method
from cmlib.methods.base import split_batch
from cmlib.scenario import Task

FORWARD = 1 / 3
KNOWN = ("naive", "cumulative", "ewc", "oewc", "er", "gem", "emr", "ssil", "cope", "cm")


@dataclass(frozen=True)
class Passes:
    """Images through the backbone: `both` forward and backward, `forward` without gradient."""

    both: int = 0
    forward: int = 0

    def __add__(self, other: Passes) -> Passes:
        return Passes(self.both + other.both, self.forward + other.forward)

    @property
    def cost(self) -> float:
        """In images passed forward and backward."""
        return self.both + FORWARD * self.forward


# -- predicted -----------------------------------------------------------------------------------------------------------


def epoch_passes(experiment: Experiment, rows: Sequence[int], task: int) -> Passes:
    """All images that pass through the backbone in an epoch of a task (0-based); see `epoch_parts`."""
    return sum(epoch_parts(experiment, rows, task).values(), Passes())


def epoch_parts(experiment: Experiment, rows: Sequence[int], task: int) -> dict[str, Passes]:
    """What passes through the backbone in an epoch of a task (0-based), by what it is for.

    rows: training images of each task, support sets left out. OptionError for a method without a cost model.
    """
    method, o = experiment.method, experiment.options
    if method not in KNOWN:
        raise OptionError(f"there is no cost model of '{method}'; there is one of: {', '.join(KNOWN)}")
    images, replayed, steps = stream(experiment, rows, task)
    parts = {"current images": Passes(images), "past images": Passes(replayed)}
    if method in ("gem", "emr"):  # all kept images of each past task, in every step
        parts["past images"] = Passes(steps * sum(min(o["memory_size"], n) for n in rows[:task]))
    if method == "ssil" and task:
        parts["past model"] = Passes(forward=images + replayed)
    if method == "cm":
        parts["support set"] = Passes(steps * o["support_size"])
    if method == "cm" and task:
        passes = (images + replayed) * (1 if o["batch_norm"] == "shared" else task)  # a pass for each norm
        parts["past model"] = Passes(forward=passes)
        parts["drift"] = Passes(passes if experiment.scenario == "til" else 0)  # CIL: the batch's own pass serves it
    return {name: part for name, part in parts.items() if part.cost}


def stream(experiment: Experiment, rows: Sequence[int], task: int) -> tuple[int, int, int]:
    """Images of the current task in an epoch, past tasks' images mixed into its batches, steps."""
    o, n, size = experiment.options, rows[task], experiment.options["batch_size"]
    split = o.get("batch_split", "")
    if experiment.method == "cope":
        n = min(n, size) if o.get("stream") == "first_batch" else n
        steps = math.ceil(n / size)
        return n, size * (steps - (task == 0)), steps  # the very first batch finds no exemplar
    if split == "union":
        n = sum(rows[: task + 1])
        return n, 0, math.ceil(n / size)
    if split == "each":
        return n, size * task * math.ceil(n / size), math.ceil(n / size)
    if not task or not split or (experiment.method, experiment.scenario) == ("cm", "til"):
        return n, 0, math.ceil(n / size)
    current, replayed = _shares(split, size, task)
    if split == "equal_steps":
        steps = math.ceil(n / size)
        return steps * current, steps * replayed, steps
    steps = math.ceil(n / current)
    return n, steps * replayed, steps


def _shares(split: str, size: int, task: int) -> tuple[int, int]:
    """Current images and exemplars of a batch from the second task on."""
    if split == "double":
        return size, size
    if split == "half":
        replayed = max(1, size // 2)
        return size - replayed, replayed
    current, *past = split_batch(size, task + 1)
    return current, sum(past)


def literal_epoch(n: int, batch_size: int, support: int, task: int, graph: bool = True) -> Passes:
    """Task-incremental CM pass by pass, as the released code computes it: an epoch of n images, `task` past tasks.

    A pass for the own head, two for each past head (current network and past model) and the support set in each step.
    graph: whether the past model takes part in the backward pass, as it does there. n / batch_size steps, the last one whole.
    """
    own = n + math.ceil(n / batch_size) * support
    return Passes(own + (2 if graph else 1) * task * n, 0 if graph else task * n)


# -- counted -------------------------------------------------------------------------------------------------------------


@contextmanager
def counting(method: Method, past: nn.ModuleDict | None = None) -> Iterator[list[Passes]]:
    """Count in the block what passes through a method's backbone and that of its past model (or of `past`): a list of calls."""
    calls: list[Passes] = []

    def count(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        x: Tensor = arguments[0]  # [B, C, H, W]
        calls.append(Passes(len(x)) if torch.is_grad_enabled() else Passes(forward=len(x)))

    before = past or method.past
    watched = [method.backbone, *([before["backbone"]] if before is not None else [])]
    hooks = [module.register_forward_pre_hook(count) for module in watched]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def counted(method: Method, work: Callable[[], object], past: nn.ModuleDict | None = None) -> Passes:
    """What passes through the backbone while a piece of work is done."""
    with counting(method, past) as calls:
        work()
    return sum(calls, Passes())


def counted_epoch(method: Method, task: Task, epoch: int = 0) -> Passes:
    """What passes through the backbone in a real epoch of a task that the method has begun; the method learns from it."""
    optimizer = method.make_optimizer()
    position = Position(seconds=[[]], steps=[0])
    return counted(method, lambda: train_epoch(method, optimizer, task, epoch, position))
