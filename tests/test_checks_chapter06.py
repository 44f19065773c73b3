"""The checks of chapter 6: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import cmlib as cm
from cmlib.plots.drift import drift_by_class, shift_by_class
from cmlib.teaching.checks import chapter06


def said(capsys: pytest.CaptureFixture[str], number: int, answer: Any) -> str:
    getattr(cm.checks, f"ch06_{number}")(answer)
    return capsys.readouterr().out.strip()


def not_written(*_: Any) -> Any:
    raise NotImplementedError


def steps_of_classes(first: Any, now: Any, labels: Any) -> Any:
    return [(now - first)[labels == k].mean(0) for k in np.unique(labels)]


def cells(frame: Any) -> Any:
    near = ((frame.points[:, None] - frame.centroids[None]) ** 2).sum(2).argmin(1)
    return frame.centroid_labels[near]


def interference(load: Any, kinds: Any) -> dict[str, float]:
    out = {}
    for kind in kinds:
        *_, before, last = load(kind)
        old = np.isin(last.labels, before.centroid_labels)
        out[kind] = 100 * float(np.mean([k not in before.centroid_labels for k in cells(last)[old]]))
    return out


def each(share: Callable[[Any, Any], float]) -> Callable[..., dict[str, float]]:
    """A wrong answer to 6.3 from what it computes of the last two moments."""
    return lambda load, kinds: {kind: share(*load(kind)[-2:]) for kind in kinds}


def by_row(before: Any, last: Any) -> float:
    near = ((last.points[:, None] - last.centroids[None]) ** 2).sum(2).argmin(1)
    return 100 * float((~np.isin(near, before.centroid_labels))[np.isin(last.labels, before.centroid_labels)].mean())


def new_cells(before: Any, last: Any, rows: Any) -> float:
    return 100 * float((~np.isin(cells(last), before.centroid_labels))[rows].mean())


WRONG: dict[str, list[tuple[Any, str]]] = {
    "06_1": [
        (lambda: 100 * 40 / 58, "is what the old plane keeps; PCA would turn the plane"),
        (lambda: 100 * 40 / 42, "is the value with the pair at height 1"),
        (lambda: 50 / 58, "in percent, please"),
        (lambda: 100 * (32**0.5 + 18**0.5) / (32**0.5 + 8**0.5 + 18**0.5), "adds lengths; variance adds squares"),
        (lambda: 120.0, "a share lies between 0 and 100 percent, got 120"),
        (lambda: 50.0, "the explained variance should be 86.21, got 50"),
        (lambda: "most of it", "must be one number, got str"),
        (lambda: 1 / 0, "your answer raised ZeroDivisionError"),
    ],
    "06_2": [
        (drift_by_class, "this is the mean of the lengths, the drift itself"),
        (lambda a, b, y: shift_by_class(a, b, y) ** 2, "this is the square of the length"),
        (lambda a, b, y: [np.linalg.norm((b - a).mean(0))] * len(np.unique(y)), "all classes get the same value"),
        (lambda a, b, y: shift_by_class(a, b, y)[::-1], "the classes are in the wrong order"),
        (
            lambda a, b, y: [abs(np.linalg.norm(b[y == k].mean(0)) - np.linalg.norm(a[y == k].mean(0))) for k in np.unique(y)],
            "difference of two distances from the origin",
        ),
        (lambda a, b, y: np.stack(steps_of_classes(a, b, y)), "must have shape [K] = [2], got [2, 2]"),
        (lambda a, b, y: shift_by_class(a, b, y) * 1.1, "the shifts of the toy case should be [5, 0], got [5.5, 0]"),
        (lambda a, b, y: None, "your function returns nothing"),
        (lambda a, b, y: "far", "must be numbers, one a class, got str"),
    ],
    "06_3": [
        (each(lambda b, a: new_cells(b, a, slice(None))), "the images of the new classes are counted too"),
        (
            each(lambda b, a: 100 * float((cells(a) != a.labels)[np.isin(a.labels, b.centroid_labels)].mean())),
            "every image in a wrong cell is counted",
        ),
        (each(lambda b, a: new_cells(b, a, np.isin(a.labels, b.centroid_labels)) / 100), "share of one; return percent"),
        (each(by_row), "the row of the nearest centroid is not its label"),
        (lambda load, kinds: [load(kind) for kind in kinds], "must be a dictionary, got list"),
        (lambda load, kinds: {"none": load("none")}, "the keys must be ['scale_translate', 'none'], got ['none']"),
        (lambda load, kinds: {kind: 0.0 for kind in kinds}, "load must be called with ['scale_translate', 'none']"),
        (each(lambda b, a: "some"), "must be a number, got str"),
        (lambda load, kinds: None, "returns nothing; return a dictionary"),
    ],
}
RIGHT = {1: [lambda: 100 * 50 / 58, lambda: torch.tensor(86.207), 86.2], 2: [shift_by_class], 3: [interference]}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], number: int) -> None:
    assert said(capsys, number, not_written) == f"6.{number}: not started"
    assert said(capsys, number, None) == f"6.{number}: not started"


@pytest.mark.parametrize(("number", "answer"), [(number, answer) for number, ones in RIGHT.items() for answer in ones])
def test_right_answers_pass(capsys: pytest.CaptureFixture[str], number: int, answer: Any) -> None:
    line = said(capsys, number, answer)
    assert line.startswith(f"OK 6.{number} (") and int(line.split("(")[1].split()[0]) >= 6


def test_tensors_and_lists_are_numbers_too(capsys: pytest.CaptureFixture[str]) -> None:
    as_tensor = lambda a, b, y: torch.stack([torch.as_tensor(step).norm() for step in steps_of_classes(a, b, y)])  # noqa: E731
    assert said(capsys, 2, as_tensor).startswith("OK 6.2")
    assert said(capsys, 2, lambda a, b, y: shift_by_class(a, b, y).tolist()).startswith("OK 6.2")


@pytest.mark.parametrize(("name", "answer", "words"), [(name, *one) for name, ones in WRONG.items() for one in ones])
def test_wrong_answers_get_their_words(capsys: pytest.CaptureFixture[str], name: str, answer: Any, words: str) -> None:
    number = int(name[-1])
    line = said(capsys, number, answer)
    assert line.startswith(f"Not yet 6.{number}: ") and "Hint: " in line and line.count("\n") == 0
    assert words in line, line


def test_since_the_first_moment_is_another_share(capsys: pytest.CaptureFixture[str]) -> None:
    """With two moments the two shares are the same; the third kind of the check has four, and tells them apart."""

    def since_first(load: Any, kinds: Any) -> dict[str, float]:
        out = {}
        for kind in kinds:
            first, *_, last = load(kind)
            out[kind] = new_cells(first, last, np.isin(last.labels, first.centroid_labels))
        return out

    assert "not since the first" in said(capsys, 3, since_first)


def test_the_toy_of_6_1_is_the_chapters() -> None:
    points = np.array([[4, 0, 0], [-4, 0, 0], [0, 2, 0], [0, -2, 0], [0, 0, 3], [0, 0, -3]], dtype=float)
    assert (points**2).sum(0).tolist() == list(chapter06.SQUARES.values())


def test_the_drift_splits_as_the_chapter_says() -> None:
    """The mean's shift never exceeds the drift, and equals it when all images of a class take the same step."""
    draws = np.random.default_rng(0)
    first, labels = draws.normal(size=(30, 6)), np.repeat([0, 1, 2], 10)
    steps = draws.normal(size=(30, 6))
    assert (shift_by_class(first, first + steps, labels) < drift_by_class(first, first + steps, labels)).all()
    same = draws.normal(size=(3, 6))[labels]
    np.testing.assert_allclose(shift_by_class(first, first + same, labels), drift_by_class(first, first + same, labels))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(cm.DataError, match="the same images twice"):
        drift_by_class(np.zeros((3, 2)), np.zeros((4, 2)), np.zeros(3))
    with pytest.raises(cm.DataError, match="the same images twice"):
        shift_by_class(np.zeros((3, 2)), np.zeros((3, 2)), np.zeros(4))
