"""What an epoch costs: how many images pass through the backbone, predicted from the settings and counted in the act.

The unit is one image passed forward and backward. A pass without gradient costs `FORWARD` of it: backward, the gradient is
computed once for the images and once for the weights, each about as dear as the way forward. Heads, projectors, penalties on
weights and the preparation of batches are left out. Built in chapter 10, beside table 2 of the paper.

With the images a second that this machine passes through the backbone (`images_a_second`) a cost becomes hours.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from cmlib import datasets, machine
from cmlib.checkpoint import Position
from cmlib.cudagraph import stepper
from cmlib.errors import OptionError
from cmlib.experiment import ARRAYS, ENGINES, Experiment, fresh
from cmlib.loop import train_epoch
from cmlib.methods import Method
from cmlib.methods.base import split_batch
from cmlib.scenario import VALIDATION_SHARE, Task

FORWARD = 1 / 3
MEASURED = 96  # images of an epoch that measures this machine: three batches
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
    if method == "cm" and task and o["lam"]:  # a drift of weight 0 is not computed
        shared = o["batch_norm"] == "shared"
        passes = (images + replayed) * (1 if shared else task)  # a pass for each norm
        parts["past model"] = Passes(forward=passes)
        parts["drift"] = Passes(0 if shared else passes)  # with shared norms the batch's own pass serves it
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


def run_cost(experiment: Experiment) -> float | None:
    """A whole run, in images passed forward and backward, on the data set as published; evaluation is left out.

    None where there is no model: another engine, a method or a data set that is not known here.
    """
    known = datasets.KNOWN.get(experiment.dataset)
    if known is None or experiment.method not in KNOWN or experiment.engine != ENGINES[0]:
        return None
    o = experiment.options
    images = min(known.train, (o["train_per_class"] or known.train) * len(known.class_names))
    images -= round(VALIDATION_SHARE * images) if o["eval_split"] == "val" else 0
    rows = [images // o["n_tasks"] - o.get("support_size", 0)] * o["n_tasks"]
    return o["epochs"] * sum(epoch_passes(experiment, rows, task).cost for task in range(o["n_tasks"]))


def literal_epoch(n: int, batch_size: int, support: int, task: int, graph: bool = True) -> Passes:
    """Task-incremental CM pass by pass, as the released code computes it: an epoch of n images, `task` past tasks.

    A pass for the own head, two for each past head (current network and past model) and the support set in each step.
    graph: whether the past model takes part in the backward pass, as it does there. n / batch_size steps, the last one whole.
    """
    own = n + math.ceil(n / batch_size) * support
    return Passes(own + (2 if graph else 1) * task * n, 0 if graph else task * n)


# -- counted -------------------------------------------------------------------------------------------------------------


@contextmanager
def counting(method: Method, past: nn.ModuleDict | None = None) -> Iterator[dict[str, list[Passes]]]:
    """Count in the block what passes through the backbone, a list of calls: `current`, and `past` of the past model.

    past: another past model than the method's.
    """
    calls: dict[str, list[Passes]] = {"current": [], "past": []}

    def count(name: str, _: nn.Module, arguments: tuple[Any, ...]) -> None:
        x: Tensor = arguments[0]  # [B, C, H, W]
        calls[name].append(Passes(len(x)) if torch.is_grad_enabled() else Passes(forward=len(x)))

    before = past or method.past
    watched = {"current": method.backbone} | ({"past": before["backbone"]} if before is not None else {})
    hooks = [module.register_forward_pre_hook(partial(count, name)) for name, module in watched.items()]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def counted(method: Method, work: Callable[[], object], past: nn.ModuleDict | None = None) -> Passes:
    """What passes through the backbone while a piece of work is done."""
    with counting(method, past) as calls:
        work()
    return sum(calls["current"] + calls["past"], Passes())


def counted_epoch(method: Method, task: Task) -> Passes:
    """What passes through the backbone in a real epoch of a task that the method has begun; the method learns from it."""
    return counted(method, Epochs(method, task))


# -- measured ------------------------------------------------------------------------------------------------------------


class Epochs:
    """Each call is another epoch of training on a task that the method has begun; nothing is kept but the method.

    graphs: on CUDA, replay recorded steps.
    """

    def __init__(self, method: Method, task: Task, graphs: bool = False) -> None:
        self.method, self.task, self.optimizer = method, task, method.make_optimizer()
        self.step = stepper(method, self.optimizer, task, graphs)
        self.position, self.numbers = Position(seconds=[[]], steps=[0]), itertools.count()

    def __call__(self) -> None:
        train_epoch(self.method, self.optimizer, self.task, next(self.numbers), self.position, self.step)


def images_a_second(dataset: str, threads: int, device: str = "auto", seconds: float = 5.0) -> float:
    """Images of this data set's size that plain training passes forward and backward in a second on this machine.

    Measured on made-up images for about so many seconds, once in a process; CPU time with one thread, so that other programs
    hardly matter, else the time of the wall.
    """
    return _images_a_second(datasets.KNOWN[dataset].size, threads, device, seconds)


@lru_cache
def _images_a_second(size: str, threads: int, name: str, seconds: float) -> float:
    device = machine.choose_device(name)
    clock = time.process_time if device.type == "cpu" and threads == 1 else time.perf_counter
    height, width, channels = map(int, size.split("x"))
    data = made_up((channels, height, width), MEASURED, 2)
    method = fresh(Experiment(ARRAYS, "til", "naive", profile="paper", n_tasks=1), data, device)
    method.begin_task(method.scenario.tasks[0])
    epoch, done = Epochs(method, method.scenario.tasks[0]), 0
    with machine.threads(threads):
        epoch()  # allocates memory, picks algorithms
        started = clock()
        while not done or clock() - started < seconds:
            epoch()
            done += 1
        return done * MEASURED / (clock() - started)


def made_up(shape: tuple[int, int, int], rows: int, classes: int) -> datasets.ImageData:
    """Random uint8 images [rows, *shape], always the same ones; the first one of each class is there to test on, too."""
    draws = torch.Generator().manual_seed(0)
    x, y = torch.randint(0, 256, (rows, *shape), generator=draws, dtype=torch.uint8), torch.arange(rows) % classes
    return datasets.load(((x, y), (x[:classes], y[:classes])))
