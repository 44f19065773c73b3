"""Checks of chapter 9: images in the place of CM's memory, the bytes of CM in CIL, a projector of lower rank."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cmlib import footprint
from cmlib.footprint import Setting
from cmlib.teaching.checks.base import Test, exercise, plain

# -- 9.1 --------------------------------------------------------------------------------------------------------------

TASKS = (5, 10, 20)


@exercise("9.1", hint="add N k E for the centroids and (N - 1) V for the batch norms, divide by I, and round down")
def ch09_1(answer: Callable[[], Sequence[int]], test: Test) -> None:
    """Whole CIFAR-10 images in as many scalars as CM keeps in TIL after 5, 10 and 20 tasks."""
    numbers = test.whole(answer(), len(TASKS), "only whole images count", "numbers, for 5, 10 and 20 tasks")
    test.no_slip(_slips_of_images(), lambda slip: numbers == slip, f"{numbers}: it looks as if ")
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
        "the centroids were forgotten, or one a task was counted, not one a class": [
            part["past batch norms"] // image for part in parts
        ],
        "it was rounded up, or the norms of the last task were counted, which are still in the network": [
            (sum(part.values()) + one) // image for part in parts
        ],
        "a pixel has one colour": [3 * sum(part.values()) // image for part in parts],
    }


# -- 9.2 --------------------------------------------------------------------------------------------------------------


@exercise(
    "9.2",
    hint="centroids and projectors (none before the second task, then one for each) are float32, pixels uint8, labels int64",
)
def ch09_2(answer: Callable[..., int], test: Test) -> None:
    """cm_bytes(N, k, E, pixels, M) -> the bytes that class-incremental CM keeps after N tasks."""
    toy = (3, 2, 4, 5, 7)
    _bytes(answer, toy, test, "three tasks, two classes each, E = 4, seven images of five pixels")
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
    got = plain(answer(*sizes))
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
        "a projector has one linear layer; it has two": right - 2 * parts["projectors"],
        "the first task has no projector; it gets its own when the second begins": right - 4 * parts["projectors"] // tasks,
        "a pixel was counted as four bytes": right + 3 * parts["exemplars"],
        "the projectors' shifts b were forgotten": right - 4 * tasks * embedding * 2 if parts["projectors"] else -1,
        "there was one projector for all tasks": right - 4 * parts["projectors"] * (tasks - 1) // tasks,
        "there are projectors after the first task already": right + 8 * embedding * (embedding + 1) if tasks == 1 else -1,
        "every task has a memory of its own": right + (image + 8) * memory * (tasks - 1),
        "there was one centroid a task": right - 4 * (classes - 1) * tasks * embedding,
    }
    test.no_slip(slips, lambda slip: got == slip != right, f"{what}: {got:,} bytes; it looks as if ")
    test.true(got == right, f"{what}: {right:,} bytes are kept, got {got:,}")


# -- 9.3 --------------------------------------------------------------------------------------------------------------

Factors = Callable[[Tensor, int], tuple[Tensor, Tensor]]


@exercise(
    "9.3", hint="U, s, Vh = torch.linalg.svd(weight, full_matrices=False); the first r columns of U * s, the first r rows of Vh"
)
def ch09_3(answer: Factors, test: Test) -> None:
    """low_rank(weight [out, in], r) -> left [out, r] and right [r, in], whose product is the nearest matrix of rank r."""
    g = torch.Generator().manual_seed(9)
    for rows, columns, rank in ((3, 3, 1), (6, 6, 2), (6, 6, 6), (8, 5, 3), (4, 9, 2)):
        weight = torch.randn(rows, columns, generator=g)
        given = weight.clone()
        _factors(answer(given, rank), weight, rank, test, f"a {rows} by {columns} matrix, r = {rank}")
        test.true(torch.equal(given, weight), "the weight that was given must stay as it is")


def _factors(got: Any, weight: Tensor, rank: int, test: Test, what: str) -> None:
    pair = isinstance(got, list | tuple) and len(got) == 2
    test.true(pair, f"{what}: two factors are wanted, left [out, r] and right [r, in], got {type(got).__name__}")
    left = test.shape(f"{what}: the left factor", got[0], (len(weight), rank))
    right = test.shape(f"{what}: the right factor", got[1], (rank, weight.shape[1]))
    product = (left @ right).detach()
    U, s, Vh = torch.linalg.svd(weight, full_matrices=False)
    best = (U[:, :rank] * s[:rank]) @ Vh[:rank]
    slips = {
        "the singular values were left out": U[:, :rank] @ Vh[:rank],
        "the singular values were put into both factors": (U[:, :rank] * s[:rank] ** 2) @ Vh[:rank],
        "the smallest singular values were kept, not the largest": (U[:, -rank:] * s[-rank:]) @ Vh[-rank:],
        "the left factor is Vh and the right one U: they changed places": (Vh.T[:, :rank] * s[:rank]) @ U.T[:rank]
        if weight.shape[0] == weight.shape[1]
        else torch.full_like(weight, torch.nan),
    }
    near = partial(torch.allclose, atol=1e-4)
    test.no_slip(slips, lambda slip: near(product, slip) and not near(slip, best), f"{what}: it looks as if ")
    least, error = ((weight - one).square().sum().item() for one in (best, product))
    test.true(error <= least + 1e-3, f"{what}: the squared error is {error:.3g}, and {least:.3g} can be reached")
