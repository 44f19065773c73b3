"""Checks are fair: a right answer in another style passes, a likely wrong one does not, and the reason that is given is true."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from answers import line_of
from torch import Tensor, nn

import cmlib as cm
from cmlib.centroids import class_centroids
from cmlib.methods.cm import CentroidsMatching

Answer = Callable[..., Any]


def linear(c: Tensor) -> tuple[Tensor, Tensor]:
    weight, bias = torch.zeros(c.shape), torch.zeros(len(c))  # float32, whatever c is
    for k in range(len(c)):
        weight[k] = 2 * c[k]
        bias[k] = -(c[k] ** 2).sum()
    return weight, bias


def own_units(e: Tensor, c: Tensor, x: Tensor, y: Tensor) -> Tensor:
    spread = (x - c[y]).square().mean(0).sqrt()
    kept = spread > 0
    e, c = e[:, kept] / spread[kept], c[:, kept] / spread[kept]
    found = torch.zeros(len(e), len(c))
    for k in range(len(c)):
        squared = (e - c[k]).square().sum(1)
        found[:, k] = torch.where(squared > 0, torch.where(squared > 0, squared, 1.0).sqrt(), 0.0)
    return found


class Typo(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.offset = nn.Parameter(0.1 * torch.randn(size))

    def foward(self, e: Tensor) -> Tensor:
        return e + self.offset


class Offset(Typo):
    forward = Typo.foward


GEM = [(2, 0), (2, 0), (2, 0.5), (2, 0.5)]

STYLES: list[tuple[str, Answer]] = [
    ("03_2", linear),
    ("03_3", own_units),
    ("05_1", lambda: [50 // n for n in np.arange(2, 12, 2)]),
    ("05_3", Offset),
    ("07_1", lambda: [np.array(one) for one in GEM]),
    ("07_1", lambda: [torch.tensor(one, dtype=torch.float64) for one in GEM]),
    ("12_1", lambda: [k**2 for k in np.array([2, 5, 10])]),
    ("15_1", lambda: list(np.array([True, True, False, False, True, False, False, True]))),
]


@pytest.mark.parametrize(("number", "answer"), STYLES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(STYLES)])
def test_a_right_answer_in_another_style_passes(capsys: pytest.CaptureFixture[str], number: str, answer: Answer) -> None:
    assert (line := line_of(capsys, number, answer)).startswith("OK "), line


class InPlace(Offset):
    def forward(self, e: Tensor) -> Tensor:
        e += self.offset
        return e


class Resting(CentroidsMatching):
    """Support images that rest, in three wrong ways."""

    every, way = 4, ""

    def begin_task(self, task: Any) -> None:
        super().begin_task(task)
        self.steps = 0

    def current_centroids(self, task: Any) -> Tensor:
        if not self.training:
            return super().current_centroids(task)
        fresh = self.steps % self.every == 0
        self.steps += 1
        if fresh:
            self.rest = super().current_centroids(task)
            if self.way == "detached":
                self.rest = self.rest.detach()
            return self.rest
        return torch.zeros_like(self.rest) if self.way == "zeros" else self.rest.detach()


def resting(way: str) -> type:
    return type("Wrong", (Resting,), {"way": way})


def cm_bytes(projectors: Callable[[int, int], int], pixel: int = 1) -> Answer:
    return lambda N, k, E, pixels, M: 4 * (N * k * E + (N > 1) * projectors(N, E)) + M * (pixels * pixel + 8)


def within_the_task(y: Tensor, order: list[int], k: int) -> tuple[Tensor, Tensor]:
    place = torch.tensor([order.index(one) for one in y.tolist()])
    numbers = [sorted(order[i * k : (i + 1) * k]).index(c) for i, c in zip((place // k).tolist(), y.tolist(), strict=True)]
    return place // k, torch.tensor(numbers)


def units(spread_of: Callable[[Tensor], Tensor]) -> Answer:
    def answer(e: Tensor, c: Tensor, x: Tensor, y: Tensor) -> Tensor:
        spread = spread_of((x - c[y]).square().mean(0).sqrt())
        return torch.cdist(e / spread, c / spread)

    return answer


def train(make: Answer, batches: Answer, epochs: int, path: Path) -> nn.Module:
    """Saved beside the file, and then copied onto it, which is not done at once."""
    model, optimizer = make()
    start = 0
    if Path(path).exists():
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"]
    for epoch in range(start, epochs):
        for x, y in batches(epoch):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        beside = Path(path).with_suffix(".new")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, beside)
        shutil.copy(beside, path)
    return model  # type: ignore[no-any-return]


LIKELY: list[tuple[str, Answer, str]] = [
    ("05_3", Typo, 'your answer raised NotImplementedError: Module [Typo] is missing the required "forward" function'),
    ("04_1", lambda: (-torch.tensor([6, 8])).softmax(0)[0], "your answer raised NotImplementedError"),
    ("01_1", lambda: None, "your function returns nothing; is `return` missing?"),
    ("15_2", lambda R, images: None, "None is what a function without `return` gives"),
    ("09_2", cm_bytes(lambda N, E: (N - 1) * 2 * (E * E + E)), "the first task has no projector; it gets its own"),
    ("09_2", cm_bytes(lambda N, E: N * (E * E + E)), "a projector has one linear layer; it has two"),
    ("09_2", cm_bytes(lambda N, E: N * 2 * (E * E + E), pixel=4), "a pixel was counted as four bytes"),
    ("10_3", resting("detached"), "fresh centroids have no gradient"),
    ("10_3", resting("zeros"), "the centroids that rest are not those of the last pass"),
    ("18_2", within_the_task, "class 4 has the label 0 in its task, got 1"),
    ("07_1", lambda: [(2, 0), (2, 0), (2, 1), (2, 0.5)], "case c: you added the margin on top of the projection"),
    ("07_1", lambda: [(2, 0), (2, 0), (2, 0), (2, 0.5)], "case c: that is the projection; the margin is larger"),
    ("03_2", lambda c: (2 * c.detach(), -c.square().sum(1)), "the weight has no gradient"),
    ("03_2", lambda c: (2 * c, -c.detach().square().sum(1)), "the bias has no gradient"),
    ("03_3", units(lambda s: s.clamp(min=1e-8)), "changes the distances: leave it out"),
    ("03_3", units(lambda s: torch.where(s > 0, s, 1.0)), "changes the distances: leave it out"),
    ("04_2", class_centroids, "this calls F.one_hot, itself or in class_centroids"),
    ("13_1", lambda: [98.12, 98.04, -50.0], "is what task 1 loses; divide by the four past tasks"),
    ("09_1", lambda: [(N * 128 + (N - 1) * 2752) // 3072 for N in (5, 10, 20)], "or one a task was counted"),
    ("05_3", InPlace, "your projector changes the embeddings that it is given"),
    ("15_3", train, "killed while it copied: half a file lies at path, since a copy is not made at once"),
]


@pytest.mark.parametrize(("number", "answer", "words"), LIKELY, ids=[f"{name}-{i}" for i, (name, *_) in enumerate(LIKELY)])
def test_a_likely_wrong_answer_gets_a_true_reason(
    capsys: pytest.CaptureFixture[str], number: str, answer: Answer, words: str
) -> None:
    line = line_of(capsys, number, answer)
    assert line.startswith("Not yet") and words in line, line


def test_labels_of_another_type_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    def floats(y: Tensor, order: Tensor, n_tasks: int) -> list[tuple[Tensor, Tensor]]:
        new, k = torch.argsort(order)[y], len(order) // n_tasks
        rows = [(new // k == i).nonzero().flatten() for i in range(n_tasks)]
        return [(row, (new[row] % k).float()) for row in rows]

    assert "labels are of type int64, as cross-entropy wants them, got torch.float32" in line_of(capsys, "02_3", floats)


def test_the_hand_in_counts_a_try_with_torchs_own_not_implemented(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = line_of(capsys, "11_3", Typo), line_of(capsys, "11_3", Typo)
    assert first.startswith("Not yet") and "Hint:" in second and cm.checks is not None
