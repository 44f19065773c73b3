"""The checks of chapter 9: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from answers import line_of, not_written

Answer = Callable[..., Any]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    assert line_of(capsys, f"09_{k}", not_written) == f"9.{k}: not started"
    assert line_of(capsys, f"09_{k}", None) == f"9.{k}: not started"


def by_hand(N: int, k: int, E: int, pixels: int, M: int) -> int:
    projectors = N * 2 * (E * E + E) if N > 1 else 0
    return 4 * (N * k * E + projectors) + M * (pixels + 8)


def factors(weight: Any, r: int, lowest: bool = False, power: float = 1.0) -> Any:
    """The right answer; `lowest` and `power` plant mistakes."""
    U, s, Vh = torch.linalg.svd(weight, full_matrices=False)
    keep = slice(len(s) - r, None) if lowest else slice(0, r)
    return U[:, keep] * s[keep] ** power, Vh[keep]


def shared_out(weight: Any, r: int) -> Any:
    """Another right answer: the root of each singular value in either factor, and a list."""
    U, s, Vh = torch.linalg.svd(weight, full_matrices=False)
    return [U[:, :r] * s[:r].sqrt(), s[:r, None].sqrt() * Vh[:r]]


def test_right_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for right in ([4, 8, 18], (4, 8, 18), torch.tensor([4, 8, 18])):
        assert line_of(capsys, "09_1", lambda right=right: right) == "OK 9.1 (10 tests)"
    assert line_of(capsys, "09_2", by_hand).startswith("OK 9.2 (")
    for right in (factors, shared_out):
        assert line_of(capsys, "09_3", right).startswith("OK 9.3 (")


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
        (lambda N, k, E, p, M: by_hand(N, k, E, p, M) + 1, "667 bytes are kept, got 668"),
        (lambda N, k, E, p, M: f"{by_hand(N, k, E, p, M)}", "bytes are a number, got str"),
        (lambda N, k, E, p, M: M // 0, "your answer raised ZeroDivisionError"),
    ],
    "09_3": [
        (lambda w, r: factors(w, r, power=0.0), "the singular values were left out"),
        (lambda w, r: factors(w, r, power=2.0), "put into both factors"),
        (lambda w, r: factors(w, r, lowest=True), "the smallest singular values were kept"),
        (lambda w, r: factors(w.T, r)[::-1], "the left factor must have shape [3, 1], got [1, 3]"),
        (lambda w, r: factors(w.T.contiguous(), r), "they changed places"),
        (lambda w, r: (w[:, :r], torch.eye(w.shape[1])[:r]), "the squared error is"),
        (lambda w, r: (w, torch.eye(w.shape[1])), "the left factor must have shape [3, 1], got [3, 3]"),
        (lambda w, r: factors(w, r)[0] @ factors(w, r)[1], "two factors are wanted"),
        (lambda w, r: tuple(one.tolist() for one in factors(w, r)), "must be a tensor, got list"),
        (lambda w, r: factors(w.mul_(2), r), "the squared error is"),
        (lambda w, r: [w[99], w], "your answer raised IndexError"),
    ],
}  # fmt: skip
HINTS = {"09_1": "Hint: add N k E", "09_2": "Hint: centroids and projectors", "09_3": "Hint: U, s, Vh"}
