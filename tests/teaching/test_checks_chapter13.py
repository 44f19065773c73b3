"""The checks of chapter 13: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from answers import line_of, not_written
from torch import Tensor

import cmlib as cm

Answer = Callable[..., Any]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    assert line_of(capsys, f"13_{k}", not_written) == f"13.{k}: not started"
    assert line_of(capsys, f"13_{k}", None) == f"13.{k}: not started"


def rest(past: Tensor, goal: Tensor, k: float, lam: float) -> Tensor:
    way = goal - past
    length = way.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return past + way * (1 - lam / (k * length)).clamp(min=0)


def descended(past: Tensor, goal: Tensor, k: float, lam: float) -> Tensor:
    """By another way: the least of the loss along the straight line from past to goal, found on a fine grid."""
    share = torch.linspace(0, 1, 200_001, dtype=torch.float64)[None]  # [1, n]
    length = (goal - past).double().norm(dim=1, keepdim=True)  # [B, 1]
    loss = k / 2 * ((1 - share) * length) ** 2 + lam * share * length  # [B, n]
    best = share[0, loss.argmin(1)][:, None].float()
    return past + best * (goal - past)


def soft(past: Tensor, current: Tensor, delta: float) -> Tensor:
    square = (past - current).square().sum(-1)
    far = square.clamp(min=delta**2).sqrt() - delta / 2
    return torch.where(square < delta**2, square / (2 * delta), far).mean()


def by_torch(past: Tensor, current: Tensor, delta: float) -> Tensor:
    r = cm.centroids.safe_norm(past - current)
    return torch.nn.functional.huber_loss(r, torch.zeros_like(r), delta=delta) / delta


def unsafe(past: Tensor, current: Tensor, delta: float) -> Tensor:
    r = (past - current).square().sum(-1).sqrt()
    return (torch.where(r < delta, r / (2 * delta), 1 - delta / (2 * r)) * r).mean()


def test_right_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for values in ([98.12, 98.04, -12.5], (98.12, 98.04, -12.50), torch.tensor([98.12, 98.04, -12.5])):
        assert line_of(capsys, "13_1", giving(values)).startswith("OK 13.1 (")
    for place in (rest, descended):
        assert line_of(capsys, "13_2", place).startswith("OK 13.2 (")
    for drift in (soft, by_torch):
        assert line_of(capsys, "13_3", drift).startswith("OK 13.3 (")


def giving(values: Any) -> Answer:
    return lambda: values


def plain(p: Tensor, c: Tensor, d: float) -> Tensor:
    return cm.centroids.safe_norm(p - c).mean()


WRONG: dict[str, list[tuple[Answer, str]]] = {
    "13_1": [
        (giving([110.15, 110.05, -10.0]), "a mean over all five tasks"),
        (giving([62.03, 62.01, -50.0]), "task 1 alone made the whole BWT"),
        (giving([1.88, 1.96, 12.5]), "the BWT had the other sign"),
        (giving([98.12, 98.04, 12.5]), "the perfect start had a BWT above 0"),
        (giving([98.04, 98.12, -12.5]), "task 1 with lambda 10: 98.04 does not give"),
        (giving([98.12, 98.04]), "must be 3 numbers, got 2"),
        (giving(98.12), "must be 3 numbers, got float"),
        (giving(["a", 1, 2]), "must be 3 numbers, got list"),
        (lambda: 1 / 0, "your answer raised ZeroDivisionError"),
    ],
    "13_2": [
        (lambda p, g, k, lam: p + (g - p) * k / (k + lam), "the drift were a spring"),
        (lambda p, g, k, lam: p + (g - p) * (1 - lam / (k * (g - p).norm(dim=1, keepdim=True).clamp(min=1e-12))),
         "it went past it, to the other side"),
        (lambda p, g, k, lam: p + (g - p).sign() * ((g - p).abs() - lam / k).clamp(min=0), "each feature balanced by itself"),
        (lambda p, g, k, lam: rest(torch.zeros_like(p), g, k, lam), "counted from 0, not from the old place"),
        (lambda p, g, k, lam: p + (g - p) * (1 - lam / (k * (g - p).norm(dim=1, keepdim=True))).clamp(min=0),
         "whose goal is its old place must stay there"),
        (lambda p, g, k, lam: rest(p, g, 1.0, lam), "it looks as if k were 1"),
        (lambda p, g, k, lam: rest(p, g, k, lam)[0], "must have shape [1, 1], got [1]"),
        (lambda p, g, k, lam: rest(p, g, k, lam).tolist(), "must be a tensor, got list"),
        (lambda p, g, k, lam: p[9], "your answer raised IndexError"),
    ],
    "13_3": [
        (plain, "it were the plain distance"),
        (lambda p, c, d: soft(p, c, d) * p.shape[0], "past tasks were summed, not averaged"),
        (lambda p, c, d: soft(p, c, d) * (p.shape[0] * p.shape[1]), "images were summed, not averaged"),
        (lambda p, c, d: ((p - c).square().sum(-1) / (2 * d)).mean(), "the spring went on beyond delta"),
        (lambda p, c, d: soft(p, c.detach(), d), "has no gradient: is something detached?"),
        (unsafe, "the gradient of soft_drift at distance 0 is not finite"),
        (lambda p, c, d: soft(p, c, d).expand(2), "must have shape [], got [2]"),
        (lambda p, c, d: soft(p, c, d).item(), "must be a tensor, got float"),
    ],
}  # fmt: skip
HINTS = {"13_1": "Hint: only task 1 was measured", "13_2": "Hint: e = goal - ", "13_3": "Hint: square = "}
