"""Does a device compute what the CPU computes? The first steps of every method on both, and recorded steps beside plain ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from cmlib import cudagraph, datasets
from cmlib.datasets import ImageData
from cmlib.experiment import ARRAYS, Experiment, fresh
from cmlib.methods import METHODS

STEPS, TASKS = 3, 2  # of a comparison
RECORDED_STEPS = 6
APART = 2e-3  # relative: losses of two devices, single precision, after a few steps


def images(per_class: int = 40) -> ImageData:
    """Seeded random images [n, 3, 32, 32] of ten classes, with a colour a class."""
    g = torch.Generator().manual_seed(20220812)
    y = torch.arange(10 * per_class) % 10
    colour = torch.randint(0, 128, (10, 3, 1, 1), generator=g)
    x = (torch.randint(0, 128, (len(y), 3, 32, 32), generator=g) + colour[y]).to(torch.uint8)
    return datasets.load(((x, y), (x[:100], y[:100])))


def small(method: str, scenario: str, per_class: int = 16) -> Experiment:
    """An experiment on these images."""
    return Experiment(ARRAYS, scenario, method, 1, "smoke", train_per_class=per_class, batch_size=8)


def losses(experiment: Experiment, data: ImageData, device: torch.device) -> list[float]:
    """Losses of the first steps of the first tasks."""
    method, found = fresh(experiment, data, device), []
    for task in method.scenario.tasks[:TASKS]:
        method.begin_task(task)
        method.train()
        optimizer = method.make_optimizer()
        found += [float(method.step(optimizer, x, y, task)) for x, y in islice(method.batches(task, 0), STEPS)]
        method.eval()
        method.end_task(task)
    return found


def judged(found: Sequence[float], wanted: Sequence[float]) -> tuple[bool, str]:
    """Whether two lists of losses agree, and how far they lie apart, relative to the larger of 1 and the loss."""
    apart = [abs(a - b) / max(1.0, abs(b)) for a, b in zip(found, wanted, strict=True)]
    worst = max(apart, key=lambda one: one if one == one else float("inf"))
    return worst <= APART, f"losses at most {worst:.1e} apart"


def beside_the_cpu(experiment: Experiment, data: ImageData, device: torch.device) -> tuple[bool, str]:
    """The same steps on the device and on the CPU, both in full single precision."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        return judged(losses(experiment, data, device), losses(experiment, data, torch.device("cpu")))
    finally:
        torch.backends.cudnn.allow_tf32 = before


def recorded(experiment: Experiment, data: ImageData, device: torch.device) -> tuple[bool, str]:
    """Steps of the first two tasks recorded as a CUDA graph, beside the steps themselves."""
    method = fresh(experiment, data, device)
    if device.type != "cuda":
        return True, "not on CUDA: nothing is recorded"
    if not method.recordable:
        return True, "steps of this kind are not recorded"
    apart, reasons = 0.0, []
    for task in method.scenario.tasks[:TASKS]:
        method.begin_task(task)
        method.train()
        made = cudagraph.stepper(method, method.make_optimizer(), task)
        apart = max([apart, *_beside_plain_steps(made, islice(method.batches(task, 0), RECORDED_STEPS))])
        reasons += [made.reason] if made.reason else []
        method.eval()
        method.end_task(task)
    text = "; ".join(reasons) or f"recorded and plain losses at most {apart:.1e} apart"
    return not reasons and apart <= cudagraph.TOLERANCE, text


def _beside_plain_steps(made: cudagraph.Stepper, batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[float]:
    """How far the loss of each step lies from that of the plain one from the same state."""
    for x, y in batches:
        before = made.state()
        kept = [tensor.clone() for tensor in before]
        wanted = float(made.step(x, y))
        if len(before) == len(made.state()):  # from the second step on, when the optimizer has its memory
            made.restore(before, kept)
            yield abs(float(made(x, y)) - wanted) / max(1.0, abs(wanted))


def comparisons(device: torch.device) -> Iterator[tuple[str, Callable[[], tuple[bool, str]]]]:
    """Every comparison by its name: each method and scenario beside the CPU, then recorded beside plain."""
    pairs, data = [(name, scenario) for name, method in METHODS.items() for scenario in method.scenarios], images()
    kinds = [(beside_the_cpu, f"{device.type} and cpu", 16), (recorded, "recorded and plain", 40)]  # enough for a recording
    for compare, words, per_class in kinds:
        for name, scenario in pairs:
            yield f"{name}-{scenario}, {words}", partial(compare, small(name, scenario, per_class), data, device)


def check(device: torch.device, seconds: float) -> Iterator[tuple[bool, str]]:
    """Compare for about so many seconds: whether each went well, and a line; what was left out is said. Errors become lines."""
    until, missed = time.monotonic() + seconds, 0
    for name, compare in comparisons(device):
        if time.monotonic() >= until:
            missed += 1
            continue
        try:
            good, text = compare()
        except Exception as error:
            good, text = False, f"{error.__class__.__name__}: {' '.join(str(error).split())[:200]}"
        yield good, f"{name}: {text}"
    if missed:
        yield True, f"the time did not suffice for {missed} more comparisons"
