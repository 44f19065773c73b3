"""The checks of chapter 6: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from answers import line_of, not_written

import cmlib as cm
from cmlib.plots.drift import drift_by_class, shift_by_class
from cmlib.teaching.checks import chapter06


def steps_of_classes(first: Any, now: Any, labels: Any) -> Any:
    return [(now - first)[labels == k].mean(0) for k in np.unique(labels)]


def careful_step(method: Any, optimizer: Any, x: Any, y: Any, task: Any, most: float = 1.0) -> Any:
    optimizer.zero_grad(set_to_none=True)
    loss = method.loss(x, y, task)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(method.parameters(), most)
    optimizer.step()
    return loss.detach()


def stepping(shorten: Callable[[Any, float], Any], clear: bool = True, give: Callable[[Any], Any] = torch.Tensor.detach) -> Any:
    """A wrong answer to 6.3 from what it does with the gradients of a list of parameters."""

    def step(method: Any, optimizer: Any, x: Any, y: Any, task: Any, most: float = 1.0) -> Any:
        if clear:
            optimizer.zero_grad()
        loss = method.loss(x, y, task)
        loss.backward()
        shorten([p for p in method.parameters() if p.grad is not None], most)
        optimizer.step()
        return give(loss)

    return step


def whole(weights: Any, most: float) -> None:
    torch.nn.utils.clip_grad_norm_(weights, most)


def always(weights: Any, most: float) -> None:
    length = torch.cat([p.grad for p in weights]).norm()
    for p in weights:
        p.grad *= most / length


def each_tensor(weights: Any, most: float) -> None:
    for p in weights:
        torch.nn.utils.clip_grad_norm_([p], most)


def after_the_step(method: Any, optimizer: Any, x: Any, y: Any, task: Any, most: float = 1.0) -> Any:
    loss = stepping(lambda weights, most: None)(method, optimizer, x, y, task)
    whole(method.parameters(), most)
    return loss


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
        (stepping(each_tensor), "each tensor was shortened by itself"),
        (stepping(lambda w, most: torch.nn.utils.clip_grad_value_(w, most)), "every number was cut by itself"),
        (stepping(always), "a gradient that was short enough was made longer"),
        (stepping(whole, clear=False), "the gradient of an earlier step is still in it"),
        (after_the_step, "the gradient is as long as before"),
        (stepping(whole, give=lambda loss: loss), "still carries its graph"),
        (stepping(whole, give=lambda loss: None), "returns nothing; return the loss"),
        (stepping(whole, give=lambda loss: loss.detach() + 1), "the loss before the step is 2, got 3"),
        (lambda method, optimizer, x, y, task, most=1.0: method.loss(x, y, task).detach(), "nothing moved"),
        (lambda *_: 2.0, "the loss was never asked for"),
    ],
}
RIGHT = {
    1: [lambda: 100 * 50 / 58, lambda: torch.tensor(86.207), 86.2],
    2: [shift_by_class],
    3: [careful_step, stepping(whole), stepping(whole, give=lambda loss: loss.item())],
}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], number: int) -> None:
    assert line_of(capsys, f"06_{number}", not_written) == f"6.{number}: not started"
    assert line_of(capsys, f"06_{number}", None) == f"6.{number}: not started"


@pytest.mark.parametrize(("number", "answer"), [(number, answer) for number, ones in RIGHT.items() for answer in ones])
def test_right_answers_pass(capsys: pytest.CaptureFixture[str], number: int, answer: Any) -> None:
    line = line_of(capsys, f"06_{number}", answer)
    assert line.startswith(f"OK 6.{number} (") and int(line.split("(")[1].split()[0]) >= 6


def test_tensors_and_lists_are_numbers_too(capsys: pytest.CaptureFixture[str]) -> None:
    as_tensor = lambda a, b, y: torch.stack([torch.as_tensor(step).norm() for step in steps_of_classes(a, b, y)])  # noqa: E731
    assert line_of(capsys, "06_2", as_tensor).startswith("OK 6.2")
    assert line_of(capsys, "06_2", lambda a, b, y: shift_by_class(a, b, y).tolist()).startswith("OK 6.2")


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
