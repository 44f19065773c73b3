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


def right_3(y: Any, order: Any, n_tasks: int) -> Any:
    new, k = torch.argsort(order)[y], len(order) // n_tasks
    rows = [(new // k == i).nonzero().flatten() for i in range(n_tasks)]
    return [(r, new[r] % k) for r in rows]


def relabelled(label: Callable[..., Any]) -> Callable[..., Any]:
    """The right tasks, with labels made by label(y of the rows, new labels, k, i)."""

    def answer(y: Any, order: Any, n_tasks: int) -> Any:
        new, k = torch.argsort(order)[y], len(order) // n_tasks
        return [(r, label(y[r], new[r], k, i)) for i, (r, _) in enumerate(right_3(y, order, n_tasks))]

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
        (lambda: (60, -29, -45, 90, 46.5), "these are the new values"),
        (lambda: (0, -11, 0, 0, 1.5), "BWT cannot fall"),
        (lambda: (11, 11, 0, 0, 1.5), "Accuracy does not contain that cell"),
        (lambda: (0, 0, 0, 0, 1.5), "BWT contains that cell"),
        (lambda: (0, 33, 0, 0, 1.5), "one cell among three changes by 33"),
        (lambda: (0, 16.5, 0, 0, 1.5), "BWT does not change by 16.5"),
        (lambda: (0, 11, 16.5, 0, 1.5), "final BWT does not contain that cell"),
        (lambda: (0, 11, 0, 11, 1.5), "learning accuracy does not contain that cell"),
        (lambda: (0, 11, 0, 0, 0), "forgetting does change"),
        (lambda: (0, 11, 0, 0, -1.5), "forgetting rises"),
        (lambda: (0, 11, 0, 0, 3), "a mean over two old tasks"),
        (lambda: (0, 11, 0, 0, 16.5), "was the 90 on the diagonal"),
        (lambda: (0, 11, 0, 0, 1), "forgetting does not change by 1"),
        (lambda: (0, 11, 0, 0), "must be 5 numbers, got 4"),
        (lambda: 5, "must be 5 numbers, got int"),
        (lambda: (0, float("nan"), 0, 0, 0), "must be finite"),
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
        (relabelled(lambda y, new, k, i: new), "has labels of its own"),
        (relabelled(lambda y, new, k, i: y % k), "must follow the order in which the classes arrive"),
        (relabelled(lambda y, new, k, i: k - 1 - new % k), "comes first, so it is label 0"),
        (relabelled(lambda y, new, k, i: new % k + 1), "must run from 0 to"),
        (relabelled(lambda y, new, k, i: new[:-1] % k), "one label for each row"),
        (lambda y, order, n: right_3(y, torch.arange(len(order)), n), "should hold the images of the classes"),
        (lambda y, order, n: [(torch.cat([r, r]), torch.cat([c, c])) for r, c in right_3(y, order, n)], "holds an image twice"),
        (lambda y, order, n: right_3(y, order, n)[:1], "return a list of 2 tasks"),
        (lambda y, order, n: [r for r, _ in right_3(y, order, n)], "must be a pair of tensors"),
        (lambda y, order, n: None, "returns nothing"),
        (lambda y, order: None, "your answer raised TypeError"),
    ],
}


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    check = getattr(checks, f"ch02_{k}")
    assert said(capsys, check, not_written) == f"2.{k}: not started"
    assert said(capsys, check, None) == f"2.{k}: not started"


@pytest.mark.parametrize(
    "right", [(0, 11, 0, 0, 1.5), [0.0, 11.0, 0.0, 0.0, 1.5], np.array([0, 11, 0, 0, 1.5]), torch.tensor([0, 11, 0, 0, 1.5])]
)
def test_one_cell(capsys: pytest.CaptureFixture[str], right: Any) -> None:
    assert said(capsys, checks.ch02_1, lambda: right) == "OK 2.1 (13 tests)"


def test_told_and_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, checks.ch02_2, right_2) == "OK 2.2 (7 tests)"
    assert said(capsys, checks.ch02_2, lambda *given: torch.tensor(right_2(*given))) == "OK 2.2 (7 tests)"


def test_a_third_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, checks.ch02_3, right_3) == "OK 2.3 (80 tests)"
    assert said(capsys, checks.ch02_3, lambda *given: tuple(map(list, right_3(*given)))) == "OK 2.3 (80 tests)"


def test_the_words_do_not_give_the_answer_away(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (
        (60, -29, -45, 90, 46.5),
        (0, -10, 0, 0, 2),
        (0, 0, 0, 0, 0),
        (0, 33, 0, 0, 0),
        (0, 11, 0, 0, 3),
        (0, 11, 0, 0, 9),
    ):
        line = said(capsys, checks.ch02_1, lambda wrong=wrong: wrong)
        assert "by 11" not in line and "1.5" not in line
