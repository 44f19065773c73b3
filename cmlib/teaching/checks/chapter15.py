"""Checks of chapter 15: what makes another run, accuracies that cannot be, a training that a kill does not hurt."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from cmlib.experiment import Experiment
from cmlib.teaching.checks.base import NotYet, Test, exercise

# -- 15.1 -------------------------------------------------------------------------------------------------------------

CHANGES = (
    "another seed",
    "another lambda",
    "eight jobs",
    "a GPU",
    "images exchanged",
    "another folder",
    "a newer PyTorch",
    "Avalanche",
)
RECORDED = "it can change last digits, so it is recorded in the file, but it is not part of the name"
WHY = {
    "another seed": "a seed changes every draw",
    "another lambda": "an option changes the loss",
    "eight jobs": "all draws come from generators named by the run, whatever runs beside it",
    "a GPU": RECORDED,
    "images exchanged": "the name holds a digest of the images, in their order",
    "another folder": "where files lie changes no number",
    "a newer PyTorch": RECORDED,
    "Avalanche": "another engine is another program",
}


def _names() -> list[bool]:
    """Whether each change gives another name; those that are no part of an experiment do not."""
    one = Experiment("digits", "til", "cm")
    seed, lam, engine = one.but(seed=1), one.but(lam=0.2), one.but(engine="avalanche")
    usual = one.hash("digest")
    other = [seed.hash("digest"), lam.hash("digest"), usual, usual, one.hash("another"), usual, usual, engine.hash("digest")]
    return [name != usual for name in other]


@exercise("15.1", hint="the name is Experiment(...).hash(digest): is what changes an argument of Experiment, or in the digest?")
def ch15_1(answer: Callable[[], Sequence[bool]], test: Test) -> None:
    """Whether each of eight changes gives another run."""
    given = test.listed(answer(), len(CHANGES), "entries")
    for value in given:
        test.true(isinstance(value, bool), f"only True and False count, got {value!r}")
    for change, value, right in zip(CHANGES, given, _names(), strict=True):
        test.true(value == right, f"{change}: the answer is not {value}, for {WHY[change]}")


# -- 15.2 -------------------------------------------------------------------------------------------------------------

Matrix = list[list[float | None]]


@exercise("15.2", hint="right = value * images[j] / 100 must be near a whole number: abs(right - round(right)) < 1e-6")
def ch15_2(answer: Callable[[Matrix, list[int]], Any], test: Test) -> None:
    """impossible(R, images) -> the cells (i, j) that no whole number of right answers gives."""
    cases: list[tuple[str, Matrix, list[int], list[tuple[int, int]]]] = [
        ("all possible", [[100.0, None], [50.0, 75.0]], [4, 4], []),
        ("half a point", [[100.0, None], [50.5, 75.0]], [4, 4], [(1, 0)]),
        ("thirds", [[100 * 2 / 3, None], [100 / 3, 100 * 35 / 90]], [3, 90], []),
        ("tasks of unequal size", [[25.0, None], [25.0, 25.0]], [4, 6], [(1, 1)]),
        ("below zero and above 100", [[-25.0, None], [125.0, 50.0]], [4, 4], [(0, 0), (1, 0)]),
        ("a run that stopped", [[97.5, None, None], [None] * 3, [None] * 3], [40, 40, 40], []),
        ("large tasks", [[100 * 6127 / 7001, None], [100 * 6127.5 / 7001, 0.0]], [7001, 7001], [(1, 0)]),
    ]
    for what, R, images, right in cases:
        got = [tuple(cell) for cell in answer([row[:] for row in R], images[:])]
        test.true(len(set(got)) == len(got), f"{what}: a cell is listed twice: {got}")
        more, fewer = [cell for cell in got if cell not in right], [cell for cell in right if cell not in got]
        test.true(not more, f"{what}: cell {_first(more)} of {R} with {images} images is possible")
        test.true(not fewer, f"{what}: cell {_first(fewer)} of {R} with {images} images cannot be")
        test.true(got == right, f"{what}: the cells must be listed row by row, {right}, got {got}")


def _first(cells: Sequence[Any]) -> Any:
    return cells[0] if cells else ""


# -- 15.3 -------------------------------------------------------------------------------------------------------------

Batch = tuple[Tensor, Tensor]
Train = Callable[[Callable[[], Any], Callable[[int], Iterable[Batch]], int, Path], Any]
EPOCHS, BATCHES = 4, 3


class Killed(BaseException):
    """Ends a training where it stands; no `except Exception` catches it."""


class Stage:
    """A small training whose every batch can be the last one before a kill; it counts what is asked of it."""

    def __init__(self, kill: tuple[int, int] | None = None) -> None:
        self.kill = kill  # epoch, batch
        self.asked: list[int] = []

    @staticmethod
    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(15)
            model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def batches(self, epoch: int) -> Iterator[Batch]:
        self.asked.append(epoch)
        g = torch.Generator().manual_seed(100 + epoch)
        for k in range(BATCHES):
            if self.kill == (epoch, k):
                raise Killed
            yield torch.randn(8, 3, generator=g), torch.randn(8, 1, generator=g)


def state(model: Any) -> dict[str, Tensor]:
    """All numbers of a model; NotYet where it is none."""
    if not isinstance(model, nn.Module):
        raise NotYet(f"train must return the model, got {type(model).__name__}")
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def reference(epochs: int, forget_momentum: int | None = None, twice: int | None = None) -> dict[str, Tensor]:
    """The undisturbed training; or one that lost its momentum before an epoch, or did an epoch twice."""
    (model, optimizer), stage = Stage.make(), Stage()
    plan = sorted([*range(epochs), *([twice] if twice is not None else [])])
    for done, epoch in enumerate(plan):
        if done == forget_momentum:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for x, y in stage.batches(epoch):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    return state(model)


@exercise(
    "15.3",
    hint="save model.state_dict(), optimizer.state_dict() and the epochs done to a file beside path, then os.replace it",
)
def ch15_3(answer: Train, test: Test) -> None:
    """train(make, batches, epochs, path) -> model: undisturbed, killed in every epoch, killed while it writes."""
    right = reference(EPOCHS)
    with tempfile.TemporaryDirectory() as folder:
        plain, stage = Path(folder) / "plain.pt", Stage()
        test.true(same(state(answer(stage.make, stage.batches, EPOCHS, plain)), right), "undisturbed: these are not the weights")
        test.true(plain.is_file(), "undisturbed: nothing was saved to path")
        for epoch in range(EPOCHS):
            _resumed(answer, (epoch, 1), Path(folder) / f"{epoch}.pt", right, test)
        _many_kills(answer, Path(folder) / "many.pt", right, test)
        _while_writing(answer, Path(folder) / "writing.pt", right, test)
        _while_copying(answer, Path(folder) / "copying.pt", right, test)


def _until_killed(answer: Train, kill: tuple[int, int], path: Path) -> bool:
    stage = Stage(kill)
    try:
        answer(stage.make, stage.batches, EPOCHS, path)
    except Killed:
        return True
    return False


def _resumed(answer: Train, kill: tuple[int, int], path: Path, right: dict[str, Tensor], test: Test) -> None:
    """Killed once, called again: the weights, and how much was done anew."""
    what, epoch = f"killed in epoch {kill[0] + 1}", kill[0]
    test.true(
        _until_killed(answer, kill, path), f"{what}: the kill was swallowed; a `finally` or a bare `except` must not do that"
    )
    test.true(path.is_file() or not epoch, f"{what}: there is no file at path, though {epoch} epochs were done")
    stage = Stage()
    got = state(answer(stage.make, stage.batches, EPOCHS, path))
    if epoch and not same(got, right):
        test.no_slip(_slips_of_resuming(epoch), lambda slip: same(got, slip), f"{what} and called again: it looks as if ")
    test.true(same(got, right), f"{what} and called again: the weights are others than undisturbed")
    test.true(0 not in stage.asked or not epoch, f"{what} and called again: it began at the first epoch once more")


def _slips_of_resuming(epoch: int) -> dict[str, dict[str, Tensor]]:
    return {
        "the optimizer's momentum was lost": reference(EPOCHS, forget_momentum=epoch),
        "the last epoch that was saved was done once more": reference(EPOCHS, twice=epoch - 1),
    }


def _many_kills(answer: Train, path: Path, right: dict[str, Tensor], test: Test) -> None:
    for epoch in range(EPOCHS):
        _until_killed(answer, (epoch, BATCHES - 1), path)
    stage = Stage()
    test.true(same(state(answer(stage.make, stage.batches, EPOCHS, path)), right), "killed four times: the weights are others")


def _while_writing(answer: Train, path: Path, right: dict[str, Tensor], test: Test) -> None:
    """The second save dies half-way: what lies at path must be the first one still."""
    real, saves = torch.save, []

    def dying(content: Any, where: Any, *more: Any, **options: Any) -> None:
        saves.append(where)
        if len(saves) < 2:
            real(content, where, *more, **options)
            return
        if isinstance(where, str | Path):
            Path(where).write_bytes(b"half a file")
        raise Killed

    stage = Stage()
    with mock.patch.object(torch, "save", dying), suppress(Killed):
        answer(stage.make, stage.batches, EPOCHS, path)
    test.true(len(saves) == 2, f"torch.save must be called once an epoch, after {EPOCHS} epochs it was {len(saves)} times")
    _goes_on(answer, path, right, test, "killed while it wrote", "half a file lies at path")


def _while_copying(answer: Train, path: Path, right: dict[str, Tensor], test: Test) -> None:
    """The same where a file that was saved elsewhere is copied to path."""
    copies = 0

    def dying(real: Callable[..., Any], content: Any, where: Any, *more: Any, **options: Any) -> Any:
        nonlocal copies
        copies += Path(where) == path
        if copies < 2:
            return real(content, where, *more, **options)
        Path(where).write_bytes(b"half a file")
        raise Killed

    stage = Stage()
    with mock.patch.object(shutil, "copyfile", partial(dying, shutil.copyfile)), suppress(Killed):  # all others call it
        answer(stage.make, stage.batches, EPOCHS, path)
    if copies == 2:
        _goes_on(
            answer, path, right, test, "killed while it copied", "half a file lies at path, since a copy is not made at once"
        )


def _goes_on(answer: Train, path: Path, right: dict[str, Tensor], test: Test, when: str, half: str) -> None:
    stage = Stage()
    try:
        got = state(answer(stage.make, stage.batches, EPOCHS, path))
    except Exception as error:
        raise NotYet(f"{when}: {half} ({type(error).__name__}); write beside it, rename") from None
    test.true(same(got, right), f"{when} and called again: the weights are others than undisturbed")
    test.true(stage.asked == [*range(1, EPOCHS)], f"{when}: epochs {_listed(stage.asked)} were done anew, not 2 to 4")


def _listed(epochs: Sequence[int]) -> str:
    return ", ".join(str(epoch + 1) for epoch in epochs) or "none"
