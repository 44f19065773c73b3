"""The checks of chapter 12: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from answers import line_of, not_written

from cmlib.centroids import class_centroids
from cmlib.methods.cm_readings import Readings
from cmlib.teaching.checks.chapter12 import chance_of_missing


class Stub(Readings):
    keep_centroids = not_written  # type: ignore[assignment]


@pytest.mark.parametrize(("k", "stub"), [(1, not_written), (2, not_written), (3, Stub)])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int, stub: Any) -> None:
    assert line_of(capsys, f"12_{k}", stub) == f"12.{k}: not started"
    assert line_of(capsys, f"12_{k}", None) == f"12.{k}: not started"


@pytest.mark.parametrize(("counts", "size"), [((3, 3), 2), ((1, 3), 2), ((2, 3, 2), 3), ((4, 1, 2), 2), ((2, 2, 2, 1), 4)])
def test_the_chance_is_what_counting_gives(counts: tuple[int, ...], size: int) -> None:
    labels = [k for k, count in enumerate(counts) for _ in range(count)]
    draws = list(itertools.combinations(labels, size))
    assert math.isclose(chance_of_missing(counts, size), sum(len(set(one)) < len(counts) for one in draws) / len(draws))


def by_classes(counts: list[int], S: int) -> float:
    """Another right answer, class by class: in how many ways each got at least one of the images so far."""
    ways = [1] + [0] * S
    for count in counts:
        ways = [sum(ways[n - m] * math.comb(count, m) for m in range(1, min(n, count) + 1)) for n in range(S + 1)]
    return 1 - ways[S] / math.comb(sum(counts), S)


def whole(x: str = "all", **slip: Any) -> type:
    """The right answer, and what `slip` makes a mistake of it."""

    class WholeCM(Readings):
        @torch.no_grad()
        def keep_centroids(self, task: Any) -> None:
            if slip.get("training"):
                self.train()
            images = {"all": [task.x, task.support_x], "rest": [task.x], "support": [task.support_x]}[x]
            labels = {"all": [task.y, task.support_y], "rest": [task.y], "support": [task.support_y]}[x]
            pixels = torch.cat(images)
            e = self.embed(pixels.float() if slip.get("raw") else self.scenario.prepare(pixels), task.index)
            y = torch.cat(labels) - (0 if slip.get("labels") else task.classes.start)
            c = e.mean(0).expand(2, -1) if slip.get("one") else class_centroids(e, y, len(task.classes))
            if not slip.get("nowhere"):
                self.centroids[task.index].copy_(c)

    return WholeCM


class Averaged(Readings):
    @torch.no_grad()
    def keep_centroids(self, task: Any) -> None:
        parts = []
        for x, y in ((task.x, task.y), (task.support_x, task.support_y)):
            parts.append(class_centroids(self.embed(self.scenario.prepare(x), task.index), y - task.classes.start, 2))
        self.centroids[task.index].copy_((parts[0] + parts[1]) / 2)


class AlsoInTraining(whole()):  # type: ignore[misc]
    def current_centroids(self, task: Any) -> Any:
        x, y = torch.cat([task.x, task.support_x]), torch.cat([task.y, task.support_y])
        return class_centroids(self.embed(self.scenario.prepare(x), task.index), y - task.classes.start, 2)


def test_right_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for right in ([4, 25, 100], (4, 25, 100), torch.tensor([4, 25, 100])):
        assert line_of(capsys, "12_1", lambda right=right: right) == "OK 12.1 (10 tests)"
    for fine in (chance_of_missing, by_classes, lambda counts, S: round(by_classes(counts, S), 5)):
        assert line_of(capsys, "12_2", fine).startswith("OK 12.2 (")
    assert line_of(capsys, "12_3", whole()).startswith("OK 12.3 (")


def product(counts: list[int], S: int) -> float:
    total = sum(counts)
    return 1 - math.prod(1 - math.comb(total - count, S) / math.comb(total, S) for count in counts)


def put_back(counts: list[int], S: int) -> float:
    sets = [one for j in range(1, len(counts) + 1) for one in itertools.combinations(counts, j)]
    return sum((-1) ** (len(one) + 1) * (1 - sum(one) / sum(counts)) ** S for one in sets)


def union(counts: list[int], S: int) -> float:
    return sum(math.comb(sum(counts) - count, S) for count in counts) / math.comb(sum(counts), S)


def equal(counts: list[int], S: int) -> float:
    return chance_of_missing([round(sum(counts) / len(counts))] * len(counts), S)


def spoiled(counts: list[int], S: int) -> float:
    result = chance_of_missing(counts, S)
    counts.clear()
    return result


def answered(value: Any) -> Callable[..., Any]:
    return lambda *_: value


WRONG: dict[str, list[tuple[Any, str]]] = {
    "12_1": [
        (answered([2, 5, 10]), "jitter fell in proportion to the images"),
        (answered([2, 3, 4]), "the root was taken where the square is wanted"),
        (answered([5, 26, 101]), "at most allows equality"),
        (answered([8, 50, 200]), "the question is about one class"),
        (answered([4, 25, 99]), "with 99 images the jitter is not first at most sigma / 10"),
        (answered([4, 25]), "the list must have 3 numbers, got 2"),
        (answered([4.5, 25, 100]), "images come whole"),
        (answered(4), "must be a list, got int"),
        (answered(["x"] * 3), "images come whole"),
    ],
    "12_2": [
        (lambda counts, S: 1 - chance_of_missing(counts, S), "no class is missing"),
        (union, "counted twice"),
        (equal, "of one size"),
        (put_back, "put back after each draw"),
        (product, "independent of one another"),
        (lambda counts, S: 100 * chance_of_missing(counts, S), "it is in percent"),
        (lambda counts, S: chance_of_missing(counts, S) + 0.01, "the chance is 0.4000, got 0.4100"),
        (answered("0.4"), "a chance is a number, got str"),
        (spoiled, "the list that was given must stay as it is"),
        (lambda counts: 0.4, "your answer raised TypeError"),
    ],
    "12_3": [
        (whole("support"), "the support set alone was averaged"),
        (whole("rest"), "the support set was left out"),
        (whole(raw=True), "the images were not normalised"),
        (whole(one=True), "all images went into one mean"),
        (whole(nowhere=True), "nothing was kept"),
        (whole(training=True), "its batch norm must stay in evaluation mode"),
        (Averaged, "the two means were averaged"),
        (AlsoInTraining, "the centroids of a training step"),
        (whole(labels=True), "your answer raised"),
        (lambda self, task: None, 'must be a class of cm.METHODS["cm"]'),
    ],
}  # fmt: skip
HINTS = {"12_1": "Hint: jitter is sigma / sqrt(s)", "12_2": "Hint: for every set of absent classes", "12_3": "Hint: join task.x"}
