"""The checks of chapter 8: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from answers import not_written, said
from scipy.stats import rankdata

import cmlib as cm

Answer = Callable[..., Any]


def ranks(scores: Any) -> Any:
    return rankdata(-np.asarray(scores), axis=0).mean(1)


def ranks_by_counting(scores: Any) -> Any:
    above = (scores[None] > scores[:, None]).sum(1)  # [M, seeds]: methods ahead of this one
    ties = (scores[None] == scores[:, None]).sum(1) - 1
    return (1 + above + ties / 2).mean(1).tolist()


def readout(features: Any, labels: Any, queries: Any, of: Any = lambda part: part.mean(0)) -> Any:
    return -torch.cdist(queries, torch.stack([of(features[labels == k]) for k in range(int(labels.max()) + 1)]))


def by_loops(features: Any, labels: Any, queries: Any) -> Any:
    """The same, one number at a time."""
    classes = sorted(set(labels.tolist()))
    rows = [[-float((q - features[labels == k].mean(0)).square().sum().sqrt()) for k in classes] for q in queries]
    return torch.tensor(rows)


def parts(features: Any, labels: Any, queries: Any, of: Any) -> Any:
    """Something else of the distances to each class's exemplars."""
    return -torch.stack([of(torch.cdist(queries, features[labels == k])) for k in range(int(labels.max()) + 1)], 1)


SMALLEST = [0.5, 0.25, 0.125, 0.0625, 0.03125]
RIGHT: dict[str, list[tuple[Answer, int]]] = {
    "08_1": [
        (lambda: SMALLEST, 11),
        (lambda: np.array(SMALLEST), 11),
        (lambda: tuple(2.0 ** (1 - n) for n in range(2, 7)), 11),
        (lambda: [0.5, 0.25, 0.125, 0.063, 0.031], 11),
    ],
    "08_2": [(ranks, 30), (ranks_by_counting, 30)],
    "08_3": [(readout, 56), (by_loops, 56)],
}
WRONG: dict[str, list[tuple[Answer, str]]] = {
    "08_1": [
        (lambda: [p / 2 for p in SMALLEST], "counts one side alone"),
        (lambda: [0.05] * 5, "each further seed makes the smallest p smaller"),
        (lambda: [1 / n for n in range(2, 7)], "the smallest p with 3 seeds should be 0.25, got 0.3333"),
        (lambda: SMALLEST[:3], "must have 5 numbers, got 3"),
        (lambda: 0.25, "must be a list, got float"),
        (lambda: ["a"] * 5, "must hold numbers"),
        (lambda: [0.5, 0.25, 0.125, 0.0625, 0.0], "above 0 and is at most 1"),
    ],
    "08_2": [
        (lambda scores: rankdata(scores, axis=0).mean(1), "rank 1 went to the lowest score"),
        (lambda scores: rankdata(-scores.mean(1)), "the mean scores were ranked"),
        (lambda scores: rankdata(-scores, method="min", axis=0).mean(1), "tied methods got the best of their ranks"),
        (lambda scores: rankdata(-scores, method="ordinal", axis=0).mean(1), "tied methods got different ranks"),
        (lambda scores: ranks(scores) - 1, "ranks were counted from 0"),
        (lambda scores: rankdata(-scores, axis=0).sum(1), "added up, not averaged"),
        (lambda scores: rankdata(-scores, axis=0).mean(0), "must have shape [4], one a method"),
        (lambda scores: scores.mean(1), "the mean ranks should be"),
        (lambda scores: [None] * len(scores), "the mean ranks should be"),
        (lambda scores: {"a": 1}, "must hold numbers, got dict"),
        (lambda scores: np.sort(scores.T, axis=1).cumsum() * 0, "must have shape [4]"),
        (lambda scores: scores.sort(0) or ranks(scores), "must stay as they are"),
    ],
    "08_3": [
        (lambda f, y, q: -readout(f, y, q), "the distances lack their minus"),
        (lambda f, y, q: readout(f, y, q, lambda part: part.sum(0)), "added up, not averaged"),
        (lambda f, y, q: parts(f, y, q, lambda d: d.min(1)[0]), "the nearest exemplar was taken"),
        (lambda f, y, q: parts(f, y, q, lambda d: d.mean(1)), "the distances to a class's exemplars were averaged"),
        (lambda f, y, q: -(readout(f, y, q) ** 2), "the distances are squared"),
        (lambda f, y, q: readout(f, y, q)[:, list(dict.fromkeys(y.tolist()))], "the order in which they appear"),
        (lambda f, y, q: readout(f, y, q).T.contiguous()[:, :1], "the scores must have shape [2, 2], got [2, 1]"),
        (lambda f, y, q: readout(f, y, q).argmax(1), "must have shape [2, 2], got [2]"),
        (lambda f, y, q: readout(f, y, q).tolist(), "must be a tensor, got list"),
        (lambda f, y, q: readout(f, y, q) / 2, "the toy case: the scores should be"),
        (lambda f, y, q: f[99], "your answer raised IndexError"),
    ],
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], name: str) -> None:
    number = f"{int(name[:2])}.{name[-1]}"
    for nothing in (not_written, None):
        assert said(capsys, getattr(cm.checks, f"ch{name}"), nothing) == f"{number}: not started"


@pytest.mark.parametrize(("name", "k"), [(name, k) for name, answers in RIGHT.items() for k in range(len(answers))])
def test_right_answers(capsys: pytest.CaptureFixture[str], name: str, k: int) -> None:
    answer, count = RIGHT[name][k]
    assert said(capsys, getattr(cm.checks, f"ch{name}"), answer) == f"OK {int(name[:2])}.{name[-1]} ({count} tests)"
