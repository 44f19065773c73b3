"""The checks of chapter 2: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from answers import not_written, said

from cmlib.teaching import checks


def right_2(scores: Any, y: Any, i: int, t: int, k: int) -> Any:
    own = scores[:, i * k : (i + 1) * k].argmax(1) + i * k
    best = scores[:, : t * k].argmax(1)
    return tuple(100 * (guess == y).double().mean().item() for guess in (own, best))


def right_3(methods: Any, runs_of: Any) -> Any:
    table: dict[str, Any] = {}
    for method in methods:
        runs = runs_of(method)
        hidden, told = [run.accuracy for run in runs], [np.mean(run.R_task_known[-1]) for run in runs]
        table[method] = (np.mean(hidden), np.mean(told)) if runs else None
    return table


def only_first(methods: Any, runs_of: Any) -> Any:
    return {m: (runs[0].accuracy, np.mean(runs[0].R_task_known[-1])) if (runs := runs_of(m)) else None for m in methods}


def with_told(measure: Callable[[Any], float]) -> Callable[..., Any]:
    """Like the right answer, but with another second number: `measure` of the known matrix."""

    def answer(methods: Any, runs_of: Any) -> Any:
        table: dict[str, Any] = {}
        for method in methods:
            runs = runs_of(method)
            second = [measure(np.array(run.R_task_known, dtype=float)) for run in runs]
            table[method] = (np.mean([run.accuracy for run in runs]), np.mean(second)) if runs else None
        return table

    return answer


def changed(**parts: Any) -> Callable[..., Any]:
    """The right answer of 2.2 with TIL or CIL replaced."""

    def answer(*given: Any) -> Any:
        til, cil = right_2(*given)
        return parts.get("til", lambda *_: til)(*given), parts.get("cil", lambda *_: cil)(*given)

    return answer


def share(guess: Any, y: Any) -> float:
    return 100 * float((guess == y).double().mean())


WRONG: dict[str, list[tuple[Any, str]]] = {
    "02_1": [
        (lambda: (60, -50, -45, 90), "these are the new values"),
        (lambda: (0, 10, 0, 0), "the sign is wrong"),
        (lambda: (-10, -10, 0, 0), "Accuracy does not contain that cell"),
        (lambda: (0, 0, 0, 0), "BWT contains that cell"),
        (lambda: (0, -30, 0, 0), "one cell among three changes by 30"),
        (lambda: (0, -15, 0, 0), "BWT does not change by -15"),
        (lambda: (0, -10, -15, 0), "final BWT does not contain that cell"),
        (lambda: (0, -10, 0, -10), "learning accuracy does not contain that cell"),
        (lambda: (0, -10, 0), "must be 4 numbers, got 3"),
        (lambda: 5, "must be 4 numbers, got int"),
        (lambda: (0, float("nan"), 0, 0), "must be finite"),
        (lambda: 1 // 0, "your answer raised ZeroDivisionError"),
    ],
    "02_2": [
        (lambda *given: right_2(*given)[::-1], "the two are swapped"),
        (lambda *given: [value / 100 for value in right_2(*given)], "percent are asked for"),
        (changed(cil=lambda s, y, i, t, k: share(s.argmax(1), y)), "not learned yet cannot be the answer"),
        (
            changed(til=lambda s, y, i, t, k: share(s[:, i * k : (i + 1) * k].argmax(1), y)),
            "the argmax counts from 0 inside the task",
        ),
        (lambda *given: (right_2(*given)[1],) * 2, "both are CIL"),
        (lambda *given: (right_2(*given)[0],) * 2, "both are TIL"),
        (changed(cil=lambda *_: 0.0), "CIL should be"),
        (lambda *_: 50.0, "must be 2 numbers, got float"),
        (lambda *_: None, "must be 2 numbers, got NoneType"),
        (lambda s, *_: s[:, 999], "your answer raised IndexError"),
    ],
    "02_3": [
        (lambda m, r: {k: v if v is None else v[::-1] for k, v in right_3(m, r).items()}, "the two are swapped"),
        (only_first, "only the first run was used"),
        (with_told(np.nanmean), "the mean of the whole matrix"),
        (with_told(lambda R: R.diagonal().mean()), "the mean of the diagonal"),
        (lambda m, r: {k: v or (0, 0) for k, v in right_3(m, r).items()}, "'cm' was not run yet, so its entry is None"),
        (lambda m, r: {k: None for k in m}, "'naive' has 3 runs, but its entry is None"),
        (lambda m, r: {k: v for k, v in right_3(m, r).items() if v}, "its keys must be the methods"),
        (lambda m, r: list(right_3(m, r).values()), "must be a dictionary, got list"),
        (lambda m, r: {k: v and (v[0], 1.0) for k, v in right_3(m, r).items()}, "'naive' should be ("),
        (lambda m, r: None, "returns nothing"),
        (lambda m, r: {k: v and v[0] for k, v in right_3(m, r).items()}, "must be 2 numbers, got float"),
    ],
}
PLANTED = [(key, answer, words) for key, rows in WRONG.items() for answer, words in rows]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    check = getattr(checks, f"ch02_{k}")
    assert said(capsys, check, not_written) == f"2.{k}: not started"
    assert said(capsys, check, None) == f"2.{k}: not started"


@pytest.mark.parametrize(
    "right", [(0, -10, 0, 0), [0.0, -10.0, 0.0, 0.0], np.array([0, -10, 0, 0]), torch.tensor([0, -10, 0, 0])]
)
def test_one_cell(capsys: pytest.CaptureFixture[str], right: Any) -> None:
    assert said(capsys, checks.ch02_1, lambda: right) == "OK 2.1 (8 tests)"


def test_told_and_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, checks.ch02_2, right_2) == "OK 2.2 (7 tests)"
    assert said(capsys, checks.ch02_2, lambda *given: torch.tensor(right_2(*given))) == "OK 2.2 (7 tests)"


def test_a_table_of_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, checks.ch02_3, right_3) == "OK 2.3 (13 tests)"


@pytest.mark.parametrize(("key", "answer", "words"), PLANTED, ids=lambda value: value if isinstance(value, str) else "")
def test_wrong_answers(capsys: pytest.CaptureFixture[str], key: str, answer: Any, words: str) -> None:
    line = said(capsys, getattr(checks, f"ch{key}"), answer)
    assert line.startswith(f"Not yet 2.{key[-1]}: ") and "Hint: " in line
    assert words in line


def test_the_words_do_not_give_the_answer_away(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ((60, -50, -45, 90), (0, 10, 0, 0), (0, 0, 0, 0), (0, -30, 0, 0), (0, -15, 0, 0), (1, 2, 3, 4)):
        assert "-10" not in said(capsys, checks.ch02_1, lambda wrong=wrong: wrong)
