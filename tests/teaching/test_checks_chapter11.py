"""The checks of chapter 11: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import pytest
import torch
from answers import line_of, not_written
from torch import nn


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    assert line_of(capsys, f"11_{k}", not_written) == f"11.{k}: not started"
    assert line_of(capsys, f"11_{k}", None) == f"11.{k}: not started"


KEEPS = [True, True, False, True, True, False]


def fold(head: Any, projector: Any, weight: Any = None, bias: Any = None) -> nn.Sequential:
    """The right answer; `weight` and `bias` make a mistake of it."""
    P, b, V, v = projector.weight, projector.bias, head[2].weight, head[2].bias
    new = copy.deepcopy(head)
    with torch.no_grad():
        new[2].weight.copy_(P @ V if weight is None else weight(P, V))
        new[2].bias.copy_(P @ v + b if bias is None else bias(P, b, v))
    return new


def fold_into_new_layers(head: Any, projector: Any) -> nn.Sequential:
    first, last = nn.Linear(*reversed(head[0].weight.shape)), nn.Linear(head[2].in_features, projector.out_features)
    first.load_state_dict(head[0].state_dict())
    weights = {"weight": projector.weight @ head[2].weight, "bias": projector.weight @ head[2].bias + projector.bias}
    last.load_state_dict(weights)
    return nn.Sequential(first, nn.ReLU(), last)


class LowRank(nn.Module):
    """The right answer, and what its children make a mistake of."""

    spread = 1.0

    def __init__(self, size: int, r: int) -> None:
        super().__init__()
        self.R: Any = nn.Parameter(self.spread * torch.randn(r, size) / size**0.5)
        self.L: Any = nn.Parameter(torch.zeros(size, r))

    def forward(self, e: Any) -> Any:
        return e + self.added(e)

    def added(self, e: Any) -> Any:
        return (e @ self.R.T).relu() @ self.L.T


class AsLayers(nn.Module):
    def __init__(self, size: int, r: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(size, r, bias=False), nn.Linear(r, size, bias=False)
        nn.init.normal_(self.down.weight, std=size**-0.5)
        nn.init.zeros_(self.up.weight)

    def forward(self, e: Any) -> Any:
        return e + self.up(self.down(e).relu())


class Transposed(LowRank):
    def __init__(self, size: int, r: int) -> None:
        nn.Module.__init__(self)
        self.A, self.B = nn.Parameter(torch.randn(size, r) / size**0.5), nn.Parameter(torch.zeros(r, size))

    def added(self, e: Any) -> Any:
        return (e @ self.A).relu() @ self.B


def test_right_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for right in (KEEPS, tuple(KEEPS), [1, 1, 0, 1, 1, 0], torch.tensor(KEEPS)):
        assert line_of(capsys, "11_1", lambda right=right: right) == "OK 11.1 (10 tests)"
    for fine in (fold, fold_into_new_layers):
        assert line_of(capsys, "11_2", fine).startswith("OK 11.2 (")
    for made in (LowRank, AsLayers, Transposed):
        assert line_of(capsys, "11_3", made).startswith("OK 11.3 (")


def changed(k: int) -> list[bool]:
    return [value != (i == k) for i, value in enumerate(KEEPS)]


class BothRandom(LowRank):
    def __init__(self, size: int, r: int) -> None:
        super().__init__(size, r)
        self.L = nn.Parameter(torch.randn(size, r))


class BothZero(LowRank):
    spread = 0.0


class Biased(AsLayers):
    def __init__(self, size: int, r: int) -> None:
        super().__init__(size, r)
        self.up = nn.Linear(r, size)


class Plain(LowRank):
    def __init__(self, size: int, r: int) -> None:
        nn.Module.__init__(self)
        self.R, self.L = torch.randn(r, size), torch.zeros(size, r)


class Shared(LowRank):
    one: ClassVar[dict[tuple[int, int], nn.Parameter]] = {}

    def __init__(self, size: int, r: int) -> None:
        super().__init__(size, r)
        self.R = self.one.setdefault((size, r), self.R)


class Wide(LowRank):
    spread = 4.0


class NoRelu(LowRank):
    def added(self, e: Any) -> Any:
        return e @ self.R.T @ self.L.T


class ReluFirst(LowRank):
    def added(self, e: Any) -> Any:
        return e.relu() @ self.R.T @ self.L.T


class ReluLast(LowRank):
    def added(self, e: Any) -> Any:
        return (e @ self.R.T @ self.L.T).relu()


class Alone(LowRank):
    def forward(self, e: Any) -> Any:
        return self.added(e)


class Detached(LowRank):
    def added(self, e: Any) -> Any:
        return (e @ self.R.T).relu() @ self.L.T.detach()


class Flat(LowRank):
    def forward(self, e: Any) -> Any:
        return super().forward(e).reshape(-1, e.shape[-1])


class Full(LowRank):
    def __init__(self, size: int, r: int) -> None:
        super().__init__(size, size)


def same_layers(head: Any, projector: Any) -> nn.Sequential:
    return nn.Sequential(head[0], head[1], fold(head, projector)[2])


def in_place(head: Any, projector: Any) -> nn.Sequential:
    new = copy.deepcopy(fold(head, projector))
    head.load_state_dict(new.state_dict())
    return new


WRONG: dict[str, list[tuple[Any, str]]] = {
    "11_1": [
        *((lambda k=k: changed(k), words) for k, words in enumerate((
            "e + b keeps midpoints: the same b", "W e + b keeps midpoints", "the ReLU of a middle is not the middle",
            "it is (I + W) e + b", "multiplied by the same number", "how much a feature shrinks depends on e",
        ))),
        (lambda: [not value for value in KEEPS], "all six are the other way round"),
        (lambda: KEEPS[:5], "must have 6 booleans"),
        (lambda: ["yes"] * 6, "each of the six is True or False"),
        (lambda: True, "must be a list, got bool"),
        (lambda: 1 / 0, "your answer raised ZeroDivisionError"),
    ],
    "11_2": [
        (lambda head, projector: copy.deepcopy(head), "it is the head, without the projector"),
        (lambda head, projector: fold(head, projector, bias=lambda P, b, v: v + b), "did not go through the projector"),
        (lambda head, projector: fold(head, projector, bias=lambda P, b, v: b), "the head's bias is missing"),
        (lambda head, projector: fold(head, projector, bias=lambda P, b, v: P @ v), "the projector's bias is missing"),
        (lambda head, projector: fold(head, projector, lambda P, V: P.T @ V, lambda P, b, v: P.T @ v + b), "wrong way round"),
        (lambda head, projector: fold(head, projector, lambda P, V: 2 * P @ V), "what the new head gives should be"),
        (lambda head, projector: nn.Sequential(*head, projector), "must be Linear, ReLU, Linear, got Linear, ReLU, Linear,"),
        (lambda head, projector: projector, "must be an nn.Sequential, got Linear"),
        (same_layers, "shares weights with what was given"),
        (in_place, "the head or the projector that was given has changed"),
        (lambda head, projector: fold(head, projector, lambda P, V: V @ P), "your answer raised RuntimeError"),
    ],
    "11_3": [
        (BothRandom, "neither matrix begins at zero"),
        (BothZero, "L and R both begin at zero"),
        (Biased, "a bias, perhaps?"),
        (Plain, "the optimizer finds no weights"),
        (Shared, "begin with the same R"),
        (Wide, "must have the variance 1 / E"),
        (NoRelu, "the ReLU is missing"),
        (ReluFirst, "the ReLU acts on e and not on R e"),
        (ReluLast, "no feature can shrink"),
        (Alone, "it must begin as pi(e) = e"),
        (Detached, "no gradient"),
        (Flat, "a single embedding [E] must stay one"),
        (Full, "weights for E = 6, r = 2, got 72"),
        (lambda size, r: lambda e: e, "a projector is an nn.Module, got function"),
        (lambda size: None, "your answer raised TypeError"),
    ],
}  # fmt: skip
HINTS = {"11_1": "Hint: a map that is a fixed matrix", "11_2": "Hint: copy.deepcopy(head)", "11_3": "Hint: R = nn.Parameter"}
