"""Checks of chapter 9: images in the place of CM's memory, the bytes of CM in CIL, ER with as many bytes as CM."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from cmlib import footprint
from cmlib.footprint import Setting
from cmlib.teaching.checks.base import Test, exercise

# -- 9.1 --------------------------------------------------------------------------------------------------------------

TASKS = (5, 10, 20)


@exercise("9.1", hint="add N k E for the centroids and (N - 1) V for the batch norms, divide by I, and round down")
def ch09_1(answer: Callable[[], Sequence[int]], test: Test) -> None:
    """Whole CIFAR-10 images in as many scalars as CM keeps in TIL after 5, 10 and 20 tasks."""
    given = answer()
    values = given.tolist() if hasattr(given, "tolist") else given
    test.true(isinstance(values, list | tuple), f"the answer must be a list, got {type(given).__name__}")
    test.true(len(values) == len(TASKS), f"the list must have {len(TASKS)} numbers, for 5, 10 and 20 tasks, got {len(values)}")
    whole = all(isinstance(value, int | float) and float(value).is_integer() for value in values)
    test.true(whole, f"only whole images count, got {list(values)}")
    numbers = [int(value) for value in values]
    for words, slip in _slips_of_images().items():
        test.true(numbers != slip, f"{numbers}: it looks as if {words}")
    for tasks, number in zip(TASKS, numbers, strict=True):
        kept, image = sum(_cm(tasks).values()), Setting().image
        test.true(number == kept // image, f"after {tasks} tasks {number} is not the number of images of {image:,} scalars")


def _cm(tasks: int) -> dict[str, int]:
    return footprint.kept("cm", "til", Setting(n_tasks=tasks))


def _slips_of_images() -> dict[str, list[int]]:
    """What typical mistakes give; none of them is right."""
    image = Setting().image
    parts = [_cm(tasks) for tasks in TASKS]
    one = parts[0]["past batch norms"] // (TASKS[0] - 1)
    return {
        "the batch norms were forgotten": [part["centroids"] // image for part in parts],
        "the centroids were forgotten": [part["past batch norms"] // image for part in parts],
        "it was rounded up, or the norms of the last task were counted, which are still in the network": [
            (sum(part.values()) + one) // image for part in parts
        ],
        "a pixel has one colour": [3 * sum(part.values()) // image for part in parts],
    }


# -- 9.2 --------------------------------------------------------------------------------------------------------------


@exercise("9.2", hint="centroids and projectors (none before the second task) are float32, pixels uint8, labels int64")
def ch09_2(answer: Callable[..., int], test: Test) -> None:
    """cm_bytes(N, k, E, pixels, M) -> the bytes that class-incremental CM keeps after N tasks."""
    toy = (2, 1, 2, 4, 3)
    _bytes(answer, toy, test, "two tasks, one class each, E = 2, three images of four pixels")
    draws = random.Random(9)
    for _ in range(6):
        sizes = (
            draws.randint(2, 12),
            draws.randint(1, 9),
            2 ** draws.randint(1, 8),
            draws.choice((64, 3072)),
            draws.randint(1, 900),
        )
        _bytes(answer, sizes, test, "N, k, E, pixels, M = " + ", ".join(map(str, sizes)))
    _bytes(answer, (1, 2, 128, 64, 50), test, "one task only")


def _bytes(answer: Callable[..., int], sizes: tuple[int, ...], test: Test, what: str) -> None:
    got = answer(*sizes)
    got = got.item() if hasattr(got, "item") else got
    test.true(isinstance(got, int | float), f"bytes are a number, got {type(got).__name__}")
    tasks, classes, embedding, image, memory = sizes
    parts = footprint.kept("cm", "cil", Setting(tasks, classes, embedding, image, memory))
    right = footprint.in_bytes(parts)
    slips = {
        "every scalar was counted as four bytes": 4 * sum(parts.values()),
        "scalars were counted, not bytes": sum(parts.values()),
        "a label was counted as one byte": right - 7 * parts["labels"],
        "the labels were forgotten": right - 8 * parts["labels"],
        "the projectors were forgotten": right - 4 * parts["projectors"],
        "the projectors' shifts b were forgotten": right - 4 * tasks * embedding * 2 if parts["projectors"] else -1,
        "there was one projector for all tasks": right - 4 * parts["projectors"] * (tasks - 1) // tasks,
        "there are projectors after the first task already": right + 8 * embedding * (embedding + 1) if tasks == 1 else -1,
        "every task has a memory of its own": right + (image + 8) * memory * (tasks - 1),
        "there was one centroid a task": right - 4 * (classes - 1) * tasks * embedding,
    }
    for words, slip in slips.items():
        test.true(got != slip or slip == right, f"{what}: {got:,} bytes; it looks as if {words}")
    test.true(got == right, f"{what}: {right:,} bytes are kept, got {got:,}")


# -- 9.3 --------------------------------------------------------------------------------------------------------------

SIZES = (10, 20, 50)
MOST = 1000
PIXELS = 64
Kept = dict[str, int]
KEPT: dict[int, Kept] = {  # what the stand-in's CM runs keep: small, so that the sizes of ER differ
    10: {"centroids": 120, "projectors": 300, "exemplars": 640, "labels": 10},
    20: {"centroids": 120, "projectors": 900, "exemplars": 1280, "labels": 20},
    50: {"centroids": 120, "projectors": 30_000, "exemplars": 3200, "labels": 50},
}


@exercise("9.3", hint="bytes of run.retained by footprint.in_bytes; an exemplar of ER is its pixels and a label of 8 bytes")
def ch09_3(answer: Callable[..., Sequence[tuple[int, float]]], test: Test) -> None:
    """fair_fight(sizes, pixels, most, run) -> for each memory of CM, ER's with as many bytes, and how far ER is ahead."""
    for order in (SIZES, SIZES[::-1]):
        asked: list[Any] = []
        result = answer(list(order), PIXELS, MOST, _stand_in(asked))
        test.true(isinstance(result, list | tuple), f"the answer must be a list, got {type(result).__name__}")
        test.true(len(result) == len(order), f"the list must have a pair for each size, {len(order)} in all, got {len(result)}")
        _asked(asked, order, test)
        for size, pair in zip(order, result, strict=True):
            whole = isinstance(pair, list | tuple) and len(pair) == 2
            test.true(whole, f"for {size} exemplars a pair is wanted: ER's size and the difference, got {pair}")
            _pair(size, pair, test)


def er_size(size: int) -> int:
    """Exemplars of ER with as many bytes as the stand-in's CM keeps."""
    return min(MOST, footprint.in_bytes(KEPT[size]) // (PIXELS + footprint.BYTES["labels"]))


def _stand_in(asked: list[Any]) -> Callable[..., SimpleNamespace]:
    """In place of cm.load_or_run: made-up accuracies and memories, so nothing is trained."""

    def run(experiment: Any, *_: Any, **__: Any) -> SimpleNamespace:
        asked.append(experiment)
        size = getattr(experiment, "memory_size", 0)
        if getattr(experiment, "method", "") == "cm":
            kept, accuracy = KEPT.get(size, {}), 40.0 + size / 4
        else:
            kept, accuracy = {"exemplars": size * PIXELS, "labels": size}, 50.0 + size / 32
        total = sum(kept.values())
        return SimpleNamespace(accuracy=accuracy, bwt_final=-5.0, retained=kept, retained_scalars=total, experiment=experiment)

    return run


def _asked(asked: list[Any], sizes: Sequence[int], test: Test) -> None:
    for experiment in asked:
        place = (getattr(experiment, "method", "?"), getattr(experiment, "scenario", "?"))
        test.true(place in (("cm", "cil"), ("er", "cil")), f"cm and er in cil were asked for, got {place[0]} in {place[1]}")
    test.true(
        len({one.but(method="er", memory_size=10) for one in asked}) == 1, "something besides method and memory_size changes"
    )
    for method in ("cm", "er"):
        wanted = list(sizes) if method == "cm" else [er_size(size) for size in sizes]
        got = [one.memory_size for one in asked if one.method == method]
        test.true(len(got) == len(sizes), f"{method} must be run {len(sizes)} times, got {len(got)}")
        test.true(got == wanted, f"the runs of {method} have memory_size {got}" + ("" if method == "cm" else _why(got, sizes)))


def _why(got: Sequence[int], sizes: Sequence[int]) -> str:
    """What wrong sizes of ER look like."""
    runs = [KEPT[size] for size in sizes]
    full = [footprint.in_bytes(one) // (PIXELS + 8) for one in runs]
    slips = {
        "only CM's exemplars were counted": list(sizes),
        "scalars were counted, not bytes": [sum(one.values()) // (PIXELS + 1) for one in runs],
        "a pixel was counted as four bytes": [footprint.in_bytes(one) // (4 * PIXELS + 8) for one in runs],
        "ER's labels were forgotten": [min(MOST, footprint.in_bytes(one) // PIXELS) for one in runs],
        "ER may have more images than there are": full,
        "it was rounded up": [min(MOST, -(-footprint.in_bytes(one) // (PIXELS + 8))) for one in runs],
    }
    found = next((words for words, slip in slips.items() if list(got) == slip), "")
    return f"; it looks as if {found}" if found else f", where {[er_size(size) for size in sizes]} cost as many bytes as CM"


def _pair(size: int, pair: Sequence[Any], test: Test) -> None:
    count, ahead = pair
    numbers = all(isinstance(value, int | float) for value in pair)
    test.true(numbers, f"for {size} exemplars the pair must hold two numbers: run.accuracy is one, the run itself is none")
    test.true(count == er_size(size), f"for {size} exemplars of CM the pair must begin with ER's {er_size(size)}, got {count}")
    wanted = 50.0 + er_size(size) / 32 - (40.0 + size / 4)
    test.true(abs(ahead + wanted) > 1e-9, f"for {size} exemplars the sign of the difference is wrong: ER minus CM")
    test.true(abs(ahead - wanted) < 1e-9, f"for {size} exemplars ER is {wanted:+.2f} points from CM, got {ahead:+.2f}")
