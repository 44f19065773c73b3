"""Fifty tasks in a row: what a method takes more with each is what it says that it keeps, and nothing else.

Counted are all bytes that the C library has handed out and not got back (torch's tensors among them), not pages of the system,
which rise and fall with the allocator's habits. `python tests/test_memory_growth.py FOLDER` makes the figure and its numbers.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterable, Iterator
from typing import Any

from tiny import arrays

from cmlib import engine
from cmlib.engine import Position
from cmlib.experiment import Experiment
from cmlib.methods import METHODS
from cmlib.methods.base import Method

PAIRS = [(name, scenario) for name, cls in METHODS.items() for scenario in cls.scenarios]
TASKS = 50
PARTS = ("network", "kept", "past network", "gradients", "other state")


class Use(ctypes.Structure):
    """`struct mallinfo2` of glibc, in bytes."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]
    ]


def in_use() -> int:
    """Bytes that are handed out: small ones and, apart from them, large ones."""
    gc.collect()
    ask = ctypes.CDLL("libc.so.6").mallinfo2
    ask.restype = Use
    found = ask()
    return int(found.uordblks + found.hblkhd)


def bytes_of(tensors: Iterable[Any], known: set[int]) -> int:
    """Bytes of the storages of some tensors, each storage once over all calls with the same `known`."""
    total = 0
    for tensor in tensors:
        if tensor is not None and tensor.untyped_storage().data_ptr() not in known:
            known.add(tensor.untyped_storage().data_ptr())
            total += tensor.untyped_storage().nbytes()
    return total


def parts(method: Method) -> dict[str, int]:
    """Bytes of what a method holds between two tasks, by PARTS."""
    known: set[int] = set()
    net = [one for module in (method.backbone, method.trunk, method.heads) for one in module.state_dict(keep_vars=True).values()]
    kept = [one for tensors in method.retained().values() for one in tensors]
    past = [] if method.past is None else method.past.state_dict(keep_vars=True).values()
    gradients = [one.grad for one in method.parameters()]
    groups = (net, kept, past, gradients, method.state_dict(keep_vars=True).values())
    return {name: bytes_of(group, known) for name, group in zip(PARTS, groups, strict=True)}


def fifty(name: str, scenario: str) -> Iterator[tuple[int, int, dict[str, int]]]:
    """Train on 50 tasks of two classes, one step each. -> after each: tasks so far, bytes in use, bytes of the parts"""
    known = METHODS[name].options
    sizes = {one: n for one, n in {"memory_size": 100, "support_size": 4, "exemplars_per_class": 50}.items() if one in known}
    per_task = {"gem": {"memory_size": 40}, "emr": {"memory_size": 40}}.get(name, {})
    options = {"n_tasks": TASKS, "epochs": 1, "batch_size": 32, **sizes, **per_task}
    experiment = Experiment("arrays", scenario, name, profile="paper", **options)
    method = engine.fresh(experiment, arrays(2 * TASKS, 24))
    gc.freeze()  # what is there already need not be looked through again
    position = Position()
    for task in method.scenario.tasks:
        method.begin_task(task)
        position.seconds.append([])
        position.steps.append(0)
        engine.train_epoch(method, method.make_optimizer(), task, 0, position)
        method.eval()
        method.end_task(task)
        method.zero_grad(set_to_none=True)
        if task.index % 10 == 9:
            yield task.index + 1, in_use(), parts(method)


def growth(rows: list[tuple[int, int, dict[str, int]]]) -> tuple[int, int]:
    """What is in use more at the end than after the first tasks, and what of it is declared: bytes."""
    (_, first, before), (_, last, after) = rows[0], rows[-1]
    return last - first, sum(after.values()) - sum(before.values())


def linux() -> bool:
    try:
        return hasattr(ctypes.CDLL("libc.so.6"), "mallinfo2")
    except OSError:
        return False
