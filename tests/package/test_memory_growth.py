"""Many tasks in a row: what a method takes more with each is what it says that it keeps, and nothing else.

Two counts: the bytes of all tensors that are alive, exactly; and all bytes that the C library has handed out and not got back,
which finds what no Python object holds. Pages of the system (RSS) tell neither: they follow the allocator's habits.
`PYTHONPATH=tests python tests/package/test_memory_growth.py FOLDER` makes the figure and its numbers.
"""

from __future__ import annotations

import csv
import ctypes
import gc
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import arrays, tiny_nets

from cmlib import loop
from cmlib.checkpoint import Position
from cmlib.experiment import Experiment, fresh
from cmlib.methods import METHODS
from cmlib.methods.base import Method

PAIRS = [(name, scenario) for name, cls in METHODS.items() for scenario in cls.scenarios]
PARTS = ("network", "kept", "past network", "other state", "last scores")
PER_MODULE = 12_000  # bytes of the dictionaries and the like of one `nn.Module`, a generous bound


@dataclass
class Look:
    """After a task: bytes of all living tensors, of all that is handed out, of the parts of the method; its modules."""

    tasks: int
    tensors: int
    in_use: int
    parts: dict[str, int]
    modules: int


class Use(ctypes.Structure):
    """`struct mallinfo2` of glibc, in bytes."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]
    ]


def in_use() -> int:
    """Bytes that are handed out: small ones and, apart from them, large ones."""
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


def living() -> int:
    """Bytes of all tensors that a Python object holds, without those that were there before `gc.freeze`."""
    gc.collect()
    return bytes_of([one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)], set())


def parts(method: Method) -> dict[str, int]:
    """Bytes of what a method holds between two tasks, by PARTS, without the training images, which Cumulative keeps."""
    known: set[int] = set()
    bytes_of([images for task in method.scenario.tasks for images in (task.x, task.y)], known)
    net = [one for module in (method.backbone, method.trunk, method.heads) for one in module.state_dict(keep_vars=True).values()]
    first, again = ([one for tensors in method.retained().values() for one in tensors] for _ in range(2))
    held = {one.untyped_storage().data_ptr() for one in first} & {one.untyped_storage().data_ptr() for one in again}
    kept = [one for one in first if one.untyped_storage().data_ptr() in held]  # CoPE's are copied when somebody asks for them
    past = [] if method.past is None else method.past.state_dict(keep_vars=True).values()
    groups = (net, kept, past, method.state_dict(keep_vars=True).values(), [method.batch_scores])
    return {name: bytes_of(group, known) for name, group in zip(PARTS, groups, strict=True)}


def looks_at(name: str, scenario: str, tasks: int = 50) -> Iterator[Look]:
    """Train on so many tasks of two classes, one step each, and look at the memory five times."""
    known = METHODS[name].options
    sizes = {one: n for one, n in {"memory_size": 100, "support_size": 4, "exemplars_per_class": 20}.items() if one in known}
    per_task = {"memory_size": 40} if name in ("gem", "emr") else {}
    options = {"n_tasks": tasks, "epochs": 1, "batch_size": 64, **sizes, **per_task}
    method = fresh(Experiment("arrays", scenario, name, profile="paper", **options), arrays(2 * tasks, 24))
    gc.collect()
    gc.freeze()  # what is there already need not be looked through again
    try:
        for task in method.scenario.tasks:
            one_task(method, task)
            if (task.index + 1) % (tasks // 5) == 0:
                count = sum(1 for _ in method.modules())
                yield Look(task.index + 1, living(), in_use(), parts(method), count)
    finally:
        gc.unfreeze()


def one_task(method: Method, task: Any) -> None:
    """As the engine does it, without measuring accuracies."""
    method.begin_task(task)
    loop.train_epoch(method, method.make_optimizer(), task, 0, Position(seconds=[[]], steps=[0]))
    method.eval()
    method.end_task(task)
    method.zero_grad(set_to_none=True)


def linux() -> bool:
    try:
        return hasattr(ctypes.CDLL("libc.so.6"), "mallinfo2")
    except OSError:
        return False


@pytest.fixture
def plain_convolutions() -> Iterator[None]:
    """oneDNN keeps a program for each shape it has met, up to 1,024 of them: that grows, too, but is no method's doing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.backends.mkldnn, "enabled", False)
        yield


def check(name: str, scenario: str, tasks: int) -> None:
    with tiny_nets():
        looks = list(looks_at(name, scenario, tasks))
    first, last = looks[0], looks[-1]
    declared = sum(last.parts.values()) - sum(first.parts.values())
    assert last.tensors - first.tensors == declared, (last.tensors - first.tensors, declared, first.parts, last.parts)
    if linux():
        more = last.in_use - first.in_use - declared
        assert more < PER_MODULE * (last.modules - first.modules) + 200_000, (more, last.modules - first.modules)


@pytest.mark.usefixtures("plain_convolutions")
@pytest.mark.parametrize(("name", "scenario"), [("cm", "cil"), ("gem", "til"), ("emr", "til")])
def test_twenty_tasks_take_what_is_kept_and_no_more(name: str, scenario: str) -> None:
    check(name, scenario, 20)


@pytest.mark.slow
@pytest.mark.usefixtures("plain_convolutions")
@pytest.mark.parametrize(("name", "scenario"), PAIRS)
def test_fifty_tasks_of_every_method(name: str, scenario: str) -> None:
    check(name, scenario, 50)


# -- the figure ---------------------------------------------------------------------------------------------------------------


def measure(path: Path) -> None:
    """ResNet20, CIL: the growth since the tenth task with and without oneDNN, in bytes, row by row into a CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["method", "onednn", "tasks", "declared_bytes", "tensor_bytes", "in_use_bytes", *PARTS])
        for with_onednn in (True, False):
            torch.backends.mkldnn.enabled = with_onednn
            for name in ("er", "gem", "cm"):
                for look in looks_at(name, "cil"):
                    counts = [look.parts[one] for one in PARTS]
                    writer.writerow([name, int(with_onednn), look.tasks, sum(counts), look.tensors, look.in_use, *counts])
                    file.flush()


def draw(numbers: Path, picture: Path) -> None:
    """A panel a method: what it declares, its tensors, and all bytes in use, as growth since the tenth task."""
    import matplotlib.pyplot as plt

    from cmlib.plots import style

    rows = [
        {key: value if key == "method" else int(value) for key, value in row.items()} for row in csv.DictReader(numbers.open())
    ]
    with style.styled():
        figure, axes = plt.subplots(1, 3, figsize=(style.WIDTH, 3.4), sharey=True)
        for axis, name in zip(axes, ("er", "gem", "cm"), strict=True):
            lines = [
                ("in use, oneDNN on", 1, "in_use_bytes", style.task_colour(1), "-", "s"),
                ("in use, oneDNN off", 0, "in_use_bytes", style.task_colour(2), "-", "o"),
                ("tensors", 1, "tensor_bytes", style.task_colour(0), "-", ""),
                ("declared", 1, "declared_bytes", style.INK, ":", ""),
            ]
            for label, onednn, key, colour, dash, marker in lines:
                mine = [row for row in rows if row["method"] == name and row["onednn"] == onednn]
                x, y = [row["tasks"] for row in mine], [(row[key] - mine[0][key]) / 1e6 for row in mine]
                axis.plot(x, y, dash, color=colour, marker=marker, markersize=5, label=label)
            axis.set_title(METHODS[name].title)
            axis.set_xlabel("tasks")
            axis.set_xticks([10, 30, 50])
            axis.grid(True)
        axes[0].set_ylabel("more than after task 10, MB")
        axes[0].legend(loc="upper left", fontsize=9)
        figure.savefig(picture)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    measure(place / "memory_50_tasks.csv")
    draw(place / "memory_50_tasks.csv", place / "memory_50_tasks.svg")
