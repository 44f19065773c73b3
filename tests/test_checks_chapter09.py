"""The checks of chapter 9: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import cmlib as cm
from cmlib import footprint
from cmlib.teaching.checks import chapter09

Answer = Callable[..., Any]
START = cm.Experiment("digits", "cil", "cm", profile="smoke")


def said(capsys: pytest.CaptureFixture[str], exercise: str, answer: Any) -> str:
    getattr(cm.checks, f"ch{exercise}")(answer)
    return capsys.readouterr().out.strip()


def not_written(*_: Any) -> Any:
    raise NotImplementedError


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    assert said(capsys, f"09_{k}", not_written) == f"9.{k}: not started"
    assert said(capsys, f"09_{k}", None) == f"9.{k}: not started"


def by_hand(N: int, k: int, E: int, pixels: int, M: int) -> int:
    projectors = N * 2 * (E * E + E) if N > 1 else 0
    return 4 * (N * k * E + projectors) + M * (pixels + 8)


def fight(sizes: list[int], pixels: int, most: int, run: Any, **change: Any) -> list[tuple[int, float]]:
    """The right answer; `change` plants a mistake."""
    pairs = []
    for size in sizes:
        ours = run(START.but(method="cm", memory_size=size))
        count = footprint.in_bytes(change.get("kept", lambda one: one.retained)(ours))
        fits = change.get("fits", lambda count: min(most, count // (pixels + 8)))(count)
        theirs = run(START.but(method="er", memory_size=fits, **change.get("options", {})))
        pairs.append((fits, change.get("sign", 1) * (theirs.accuracy - ours.accuracy)))
    return pairs


def test_right_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for right in ([4, 8, 18], (4, 8, 18), torch.tensor([4, 8, 18])):
        assert said(capsys, "09_1", lambda right=right: right) == "OK 9.1 (10 tests)"
    assert said(capsys, "09_2", by_hand).startswith("OK 9.2 (")
    assert said(capsys, "09_3", fight).startswith("OK 9.3 (")


def test_the_stand_in_tells_the_sizes_apart() -> None:
    """Bytes by hand: 4 * 420 + 640 + 80, 4 * 1020 + 1280 + 160 and 4 * 30120 + 3200 + 400, an exemplar 72."""
    assert [chapter09.er_size(size) for size in chapter09.SIZES] == [2400 // 72, 5520 // 72, 1000]


def wrong_list(values: Any) -> Answer:
    return lambda: values


WRONG: dict[str, list[tuple[Answer, str]]] = {
    "09_1": [
        (wrong_list([0, 0, 1]), "the batch norms were forgotten"),
        (wrong_list([3, 8, 17]), "the centroids were forgotten"),
        (wrong_list([4, 9, 19]), "it was rounded up, or the norms of the last task were counted"),
        (wrong_list([4, 9, 19.5]), "only whole images count"),
        (wrong_list([4, 9, 19, 30]), "must have 3 numbers"),
        (wrong_list([12, 26, 56]), "a pixel has one colour"),
        (wrong_list([4, 7, 18]), "after 10 tasks 7 is not the number of images"),
        (wrong_list(4), "must be a list, got int"),
        (wrong_list(["a", "b", "c"]), "only whole images count"),
    ],
    "09_2": [
        (lambda N, k, E, p, M: 4 * (by_hand(N, k, E, 0, 0) // 4 + M * (p + 1)), "every scalar was counted as four bytes"),
        (lambda N, k, E, p, M: by_hand(N, k, E, 0, 0) // 4 + M * (p + 1), "scalars were counted, not bytes"),
        (lambda N, k, E, p, M: by_hand(N, k, E, p, M) - 8 * M, "the labels were forgotten"),
        (lambda N, k, E, p, M: by_hand(N, k, E, p, M) - 7 * M, "a label was counted as one byte"),
        (lambda N, k, E, p, M: 4 * N * k * E + M * (p + 8), "the projectors were forgotten"),
        (lambda N, k, E, p, M: 4 * (N * k * E + N * 2 * E * E) + M * (p + 8), "shifts b were forgotten"),
        (lambda N, k, E, p, M: 4 * (N * k * E + 2 * E * (E + 1)) + M * (p + 8), "there was one projector for all tasks"),
        (lambda N, k, E, p, M: 4 * (N * k * E + N * 2 * E * (E + 1)) + M * (p + 8), "after the first task already"),
        (lambda N, k, E, p, M: by_hand(N, k, E, p, M * N), "every task has a memory of its own"),
        (lambda N, k, E, p, M: by_hand(N, 1, E, p, M), "there was one centroid a task"),
        (lambda N, k, E, p, M: by_hand(N, k, E, p, M) + 1, "148 bytes are kept, got 149"),
        (lambda N, k, E, p, M: f"{by_hand(N, k, E, p, M)}", "bytes are a number, got str"),
        (lambda N, k, E, p, M: M // 0, "your answer raised ZeroDivisionError"),
    ],
    "09_3": [
        (lambda *given: fight(*given, kept=lambda one: {"exemplars": 72 * one.experiment.memory_size}), "only CM's exemplars"),
        (lambda *given: fight(*given, fits=lambda count: count // 72), "ER may have more images than there are"),
        (lambda *given: fight(*given, fits=lambda count: min(1000, count // 64)), "ER's labels were forgotten"),
        (lambda *given: fight(*given, fits=lambda count: count // (4 * 64 + 8)), "a pixel was counted as four bytes"),
        (lambda *given: fight(*given, fits=lambda count: min(1000, -(-count // 72))), "it was rounded up"),
        (lambda *given: fight(*given, fits=lambda count: 30), "cost as many bytes as CM"),
        (lambda *given: fight(*given, sign=-1), "the sign of the difference is wrong"),
        (lambda *given: fight(*given, options={"seed": 3}), "something besides method and memory_size changes"),
        (lambda *given: fight(*given, options={"scenario": "til"}), "got er in til"),
        (lambda *given: [size for size, _ in fight(*given)], "a pair is wanted"),
        (lambda *given: [(size, given[-1](START)) for size, _ in fight(*given)], "cm must be run 3 times, got 6"),
        (lambda *given: [(size, str(ahead)) for size, ahead in fight(*given)], "must hold two numbers"),
        (lambda *given: fight(*given)[:2], "a pair for each size"),
        (lambda *given: [(size + 1, ahead) for size, ahead in fight(*given)], "the pair must begin with ER's 33, got 34"),
        (lambda *given: [(size, ahead / 2) for size, ahead in fight(*given)], "points from CM"),
        (lambda *given: fight(*given).clear(), "must be a list, got NoneType"),
    ],
}  # fmt: skip
HINTS = {"09_1": "Hint: add N k E", "09_2": "Hint: centroids and projectors", "09_3": "Hint: bytes of run.retained"}


@pytest.mark.parametrize(("exercise", "answer", "words"), [(one, *pair) for one, pairs in WRONG.items() for pair in pairs])
def test_wrong_answers(capsys: pytest.CaptureFixture[str], exercise: str, answer: Answer, words: str) -> None:
    line = said(capsys, exercise, answer)
    assert line.startswith(f"Not yet {exercise[1]}.{exercise[3]}: ")
    assert words in line
    assert HINTS[exercise] in line
