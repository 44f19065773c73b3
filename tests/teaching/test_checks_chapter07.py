"""The checks of chapter 7: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from answers import not_written, said

import cmlib as cm

# -- right answers ------------------------------------------------------------------------------------------------------------

PAIRS = [(2, 0), (2.0, 0.0), (2, 0.5), (2, 0.5)]


def agem(g: torch.Tensor, G: torch.Tensor) -> torch.Tensor:
    mean = G.mean(0)
    return g if g @ mean >= 0 else g - (g @ mean) / (mean @ mean) * mean


def dark(z: Any, y: Any, z_old: Any, y_old: Any, kept: Any, alpha: float = 0.5, beta: float = 0.0, **slip: Any) -> Any:
    """A right answer to 7.3, unless a slip spoils one of its parts."""
    parts = {"now": F.cross_entropy(z, y), "moved": z.new_zeros(()), "labels": z.new_zeros(())}
    if len(z_old):
        there = ~kept.isnan()
        parts["moved"] = (z_old[there] - kept[there]).square().mean()
        parts["labels"] = F.cross_entropy(z_old, y_old)
    for name, change in slip.items():
        parts[name] = change(**parts, z=z, z_old=z_old, kept=kept)
    return parts["now"] + alpha * parts["moved"] + beta * parts["labels"]


def spoiled(**slip: Any) -> Any:
    return lambda *given: dark(*given, **slip)


RIGHT = {
    "07_1": [
        (lambda: PAIRS, 10),
        (lambda: torch.tensor([[2, 0], [2, 0], [2, 0.5], [2, 0.5]]), 10),
        (lambda: [[2.0, -0.001], [2.0, 0.0], [2.0, 0.499], [2.0, 0.5]], 10),  # as read off the widget
    ],
    "07_2": [
        (agem, None),
        (lambda g, G: g - (g @ G.mean(0)).clamp(max=0) / G.mean(0).square().sum().clamp(min=1e-9) * G.mean(0), None),
    ],
    "07_3": [
        (dark, None),
        (
            lambda z, y, o, l, k, alpha, beta: (  # noqa: E741
                F.cross_entropy(z, y)
                + (alpha * torch.where(k.isnan(), o.detach(), k).sub(o).square().sum() / (~k.isnan()).sum() if len(o) else 0)
                + (beta * F.cross_entropy(o, l) if len(o) else 0)
            ),
            None,
        ),
    ],
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_pass(capsys: pytest.CaptureFixture[str], name: str) -> None:
    for answer, tests in RIGHT[name]:
        line = said(capsys, getattr(cm.checks, f"ch{name}"), answer)
        count = int(line.split("(")[1].split()[0]) if "(" in line else 0
        assert line == f"OK 7.{name[-1]} ({tests or count} tests)"
        assert count >= 10


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    check = getattr(cm.checks, f"ch07_{k}")
    assert said(capsys, check, not_written) == f"7.{k}: not started"
    assert said(capsys, check, None) == f"7.{k}: not started"


# -- wrong answers ------------------------------------------------------------------------------------------------------------


def one_after_the_other(g: torch.Tensor, G: torch.Tensor) -> torch.Tensor:
    for row in G:
        if g @ row < 0:
            g = g - (g @ row) / (row @ row) * row
    return g


WRONG: dict[str, list[tuple[Callable[..., Any], str]]] = {
    "07_1": [
        (lambda: [(2, -0.5), (2, 0), (2, 0.5), (2, 0.5)], "case a: that is g itself, which points against g1"),
        (lambda: [(2, 0.5), (2, 0), (2, 0.5), (2, 0.5)], "case a: that is g with its sign changed"),
        (lambda: [(2, 0), (2, 0.25), (2, 0.5), (2, 0.5)], "case b: you added the margin on top of the projection"),
        (lambda: [(2, 0), (2, -0.25), (2, 0.5), (2, 0.5)], "case b: only the margin was added"),
        (lambda: [(2, 0), (2, 0), (2, 1), (2, 0.5)], "case c: you added the margin on top of the projection"),
        (lambda: [(2, 0), (2, 0), (2, 0.5), (2, 1.5)], "case d: the margin was added although g does not point against g1"),
        (lambda: [(2, 0), (2, 0), (2, 0.5), (2, 0)], "case d: g points with g1 here"),
        (lambda: [(0, 0), (2, 0), (2, 0.5), (2, 0.5)], "case a: g1 points up"),
        (lambda: [(2, 9), (2, 0), (2, 0.5), (2, 0.5)], "case a: [2, 9] is not what GEM steps along"),
        (lambda: [(2, 0)], "must have 4 pairs, one for each case, got 1"),
        (lambda: [2, 0, 2, 0], "case a must be a pair of numbers, got 2"),
        (lambda: 2, "must be a list, got int"),
        (lambda: [(2, "0")] * 4, "case a must be a pair of numbers"),
    ],
    "07_2": [
        (lambda g, G: g, "it looks as if g comes back unchanged"),
        (lambda g, G: g - (g @ G.mean(0)) * G.mean(0), "the mean is not divided by its squared length"),
        (lambda g, G: g - (g @ G.mean(0)) / G.mean(0).norm() * G.mean(0), "divided by its length, not by its squared length"),
        (lambda g, G: g + (g @ G.mean(0)) / G.mean(0).square().sum() * G.mean(0), "was added, not taken away"),
        (lambda g, G: g - (g @ G.mean(0)) / G.mean(0).square().sum() * G.mean(0), "must come back as it is"),
        (lambda g, G: g - (g @ G[-1]).clamp(max=0) / G[-1].square().sum() * G[-1], "only the last past gradient was used"),
        (one_after_the_other, "the rows of G were used one after the other"),
        (lambda g, G: (g @ G.mean(0)) / G.mean(0).square().sum() * G.mean(0), "the part that should be taken away"),
        (lambda g, G: G, "must have shape [2], got [2, 2]"),
        (lambda g, G: [0.0, 0.0], "must be a tensor, got list"),
        (lambda g, G: g - (g @ G.mean(0)).clamp(max=0) / G.mean(0).square().sum() * G.mean(0), "past gradients of zero"),
        (lambda g, G: g.reshape(9), "your answer raised RuntimeError"),
    ],
    "07_3": [
        (spoiled(moved=lambda z_old, kept, **_: (z_old - kept.nan_to_num(0)).square().mean()), "were taken for zeros"),
        (spoiled(moved=lambda z_old, kept, **_: (z_old - kept).square().mean()), "the loss is NaN: a class that did not exist"),
        (spoiled(moved=lambda moved, kept, **_: moved * (~kept.isnan()).sum()), "were added up and not averaged"),
        (spoiled(moved=lambda moved, kept, **_: moved * (~kept.isnan()).float().mean()), "not by those that exist"),
        (lambda *given: dark(*given[:6], 0.0), "were left out (beta)"),
        (lambda *given: dark(*given[:6], given[6] or 1.0), "were used although beta is 0"),
        (spoiled(now=lambda now, **_: now * 0), "the cross-entropy of the current images is missing"),
        (lambda *given: dark(given[0].detach(), *given[1:]), "no gradient reaches"),
        (
            lambda z, y, o, l, k, alpha, beta: (  # noqa: E741
                F.cross_entropy(z, y)
                + alpha * torch.where(k.isnan(), 0.0, (o - k).square()).sum() / (~k.isnan()).sum().clamp(min=1)
                + (beta * F.cross_entropy(o, l) if len(o) else 0)
            ),
            "the gradient is NaN: NaN times zero is NaN",
        ),
        (
            lambda z, y, o, l, k, alpha, beta: (  # noqa: E741
                F.cross_entropy(z, y)
                + alpha * (o[~k.isnan()] - k[~k.isnan()]).square().mean()
                + (beta * F.cross_entropy(o, l) if len(o) else 0)
            ),
            "without replayed images the loss is NaN",
        ),
        (lambda *given: [1.0], "the loss must be a tensor, got list"),
        (lambda z, *given: z.mean(1), "must have shape [], got [1]"),
        (lambda z: z, "your answer raised TypeError"),
    ],
}  # fmt: skip
