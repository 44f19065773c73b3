"""The checks of chapter 15: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from answers import line_of, not_written

Answer = Callable[..., Any]
NAMES = [True, True, False, False, True, False, False, True]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    assert line_of(capsys, f"15_{k}", not_written) == f"15.{k}: not started"
    assert line_of(capsys, f"15_{k}", None) == f"15.{k}: not started"


def impossible(R: Any, images: Any, near: float = 1e-6, low: float = 0, high: float = 100, column: bool = True) -> Any:
    """The right answer; the other arguments plant mistakes."""
    cells = [(i, j, value) for i, row in enumerate(R) for j, value in enumerate(row) if value is not None]
    counts = [(i, j, value, value * images[j if column else i] / 100) for i, j, value in cells]
    return [(i, j) for i, j, value, n in counts if abs(n - round(n)) > near or not low <= value <= high]


def train(make: Any, batches: Any, epochs: int, path: Any, lost: str = "", late: bool = False, plain: bool = False) -> Any:
    """The right answer; `lost` is not saved, `late` counts an epoch too few, `plain` writes in place."""
    model, optimizer = make()
    done = 0
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"], strict=lost != "buffers")
        if "optimizer" in saved:
            optimizer.load_state_dict(saved["optimizer"])
        done = saved.get("epochs", 0)
    for epoch in range(done, epochs):
        for x, y in batches(epoch):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        weights = dict(model.named_parameters()) if lost == "buffers" else model.state_dict()
        state = {"model": weights, "optimizer": optimizer.state_dict(), "epochs": epoch + (not late)}
        state.pop(lost, None)
        torch.save(state, path if plain else f"{path}.partial")
        if not plain:
            os.replace(f"{path}.partial", path)
    return model


def planted(**mistake: Any) -> Answer:
    return lambda *a: train(*a, **mistake)


def never_saves(make: Any, batches: Any, epochs: int, path: Any) -> Any:
    model, optimizer = make()
    for epoch in range(epochs):
        for x, y in batches(epoch):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    return model


def swallows(make: Any, batches: Any, epochs: int, path: Any) -> Any:
    try:
        return train(make, batches, epochs, path)
    except BaseException:
        return train(make, lambda epoch: [], 0, path)


def test_right_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for names in (NAMES, tuple(NAMES)):
        assert line_of(capsys, "15_1", lambda names=names: names) == "OK 15.1 (18 tests)"
    for right in (impossible, lambda R, n: [list(cell) for cell in impossible(R, n)]):
        assert line_of(capsys, "15_2", right).startswith("OK 15.2 (")
    assert line_of(capsys, "15_3", train).startswith("OK 15.3 (")


def but(k: int, value: Any) -> Answer:
    return lambda: [*NAMES[:k], value, *NAMES[k + 1 :]]


WRONG: dict[str, list[tuple[Answer, str]]] = {
    "15_1": [
        (but(0, False), "another seed: the answer is not False"),
        (but(2, True), "eight jobs: the answer is not True, for all draws come from generators"),
        (but(3, True), "a GPU: the answer is not True, for it can change last digits"),
        (but(4, False), "images exchanged: the answer is not False, for the name holds a digest"),
        (but(7, False), "Avalanche: the answer is not False"),
        (but(1, 1), "only True and False count, got 1"),
        (lambda: NAMES[:7], "must have 8 entries, got 7"),
        (lambda: True, "the answer must be a list, got bool"),
    ],
    "15_2": [
        (lambda R, n: [], "half a point: cell (1, 0)"),
        (lambda R, n: impossible(R, n, near=-1), "is possible"),
        (lambda R, n: impossible(R, n, near=0), "is possible"),
        (lambda R, n: impossible(R, n, column=False), "tasks of unequal size: cell (1, 0) of"),
        (lambda R, n: impossible(R, n, low=-1e9), "below zero and above 100: cell (0, 0)"),
        (lambda R, n: impossible(R, n, high=1e9), "below zero and above 100: cell (1, 0)"),
        (lambda R, n: impossible(R, n, near=0.6), "half a point: cell (1, 0)"),
        (lambda R, n: impossible(R, n)[::-1], "must be listed row by row"),
        (lambda R, n: impossible(R, n) * 2, "a cell is listed twice"),
        (lambda R, n: [(i, j) for i, row in enumerate(R) for j, v in enumerate(row) if v % 1], "your answer raised TypeError"),
    ],
    "15_3": [
        (planted(lost="optimizer"), "killed in epoch 2 and called again: it looks as if the optimizer's momentum was lost"),
        (planted(late=True), "it looks as if the last epoch that was saved was done once more"),
        (planted(lost="buffers"), "killed in epoch 2 and called again: the weights are others"),
        (planted(lost="epochs"), "killed in epoch 2 and called again: it looks as if the last epoch"),
        (planted(plain=True), "half a file lies at path"),
        (never_saves, "undisturbed: nothing was saved to path"),
        (swallows, "the kill was swallowed"),
        (lambda make, batches, epochs, path: None, "train must return the model, got NoneType"),
        (lambda make, batches, epochs, path: make()[0], "undisturbed: these are not the weights"),
    ],
}  # fmt: skip
HINTS = {"15_1": "Hint: the name is", "15_2": "Hint: right = ", "15_3": "Hint: save model.state_dict()"}
