"""The checks of chapter 5: right answers in several forms, and the wrong ones that tests/teaching/test_exercises.py plants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from answers import line_of

import cmlib as cm
from cmlib.projectors import merge, merge_centroids, merged_log_probabilities

# -- 5.1 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("right", [[25, 12, 8, 6, 5], (25, 12, 8, 6, 5), torch.tensor([25, 12, 8, 6, 5])])
def test_shares_of_a_memory_of_50(capsys: pytest.CaptureFixture[str], right: Any) -> None:
    assert line_of(capsys, "05_1", lambda: right) == "OK 5.1 (10 tests)"


def always(answer: Any) -> Callable[[], Any]:
    return lambda: answer


WRONG_SHARES = [
    (always([50, 25, 16, 12, 10]), "counts exemplars a task, not a class"),
    (always([25, 25, 25, 25, 25]), "25 after every task: the share of a class shrinks"),
    (always([5, 5, 5, 5, 5]), "5 after every task"),
    (always([25, 12.5, 8.3, 6.25, 5]), "whole images"),
    (always([25, 13, 9, 7, 5]), "after task 2 4 classes are known, and 13 is not their share"),
    (always([25, 12, 8]), "must have 5 numbers"),
    (always(25), "must be a list, got int"),
    (always(["a"] * 5), "whole images"),
    (always([None] * 5), "whole images"),
]

# -- 5.2 --------------------------------------------------------------------------------------------------------------


def test_prediction_by_distance(capsys: pytest.CaptureFixture[str]) -> None:
    def by_distance(embeddings: Any, centroids: Any, projectors: Any) -> torch.Tensor:
        return torch.cdist(merge(embeddings, projectors), merge_centroids(centroids, projectors)).argmin(1)

    assert line_of(capsys, "05_2", by_distance) == "OK 5.2 (21 tests)"
    by_probability = lambda *given: merged_log_probabilities(*given).argmax(1)  # noqa: E731
    assert line_of(capsys, "05_2", by_probability) == "OK 5.2 (21 tests)"


WRONG_PREDICTIONS = {
    "the farthest centroid was chosen": lambda e, c, p: torch.cdist(merge(e, p), merge_centroids(c, p)).argmax(1),
    "the centroids were not projected": lambda e, c, p: torch.cdist(merge(e, p), torch.cat(c)).argmin(1),
    "the embeddings were not projected": lambda e, c, p: torch.cdist(sum(e) / len(e), merge_centroids(c, p)).argmin(1),
    "were added up, not averaged": lambda e, c, p: torch.cdist(len(c) * merge(e, p), merge_centroids(c, p)).argmin(1),
    "only the last head was asked": lambda e, c, p: torch.cdist(p[-1](e[-1]), merge_centroids(c, p)).argmin(1),
    "must have shape [40], got [40, 6]": lambda e, c, p: torch.cdist(merge(e, p), merge_centroids(c, p)),
    "must be a tensor, got list": lambda e, c, p: [0] * len(e[0]),
    "labels are whole numbers, got float32": lambda e, c, p: torch.zeros(len(e[0])),
    "40 labels are wrong for three tasks": lambda e, c, p: torch.full((40,), 6),
    "have labels [0, 1], got [1, 0]": lambda e, c, p: (
        merged_log_probabilities(e, c, p).argmax(1) if len(c) == 3 else torch.tensor([1, 0])
    ),
    "your answer raised ZeroDivisionError": lambda e, c, p: 1 // 0,
}


# -- 5.3 --------------------------------------------------------------------------------------------------------------


def offset(build: Callable[[Any, int], None] | None = None, forward: Callable[[Any, Any], Any] | None = None) -> type:
    """A projector class with one vector, but for what is done otherwise."""

    class Made(torch.nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            (build or (lambda self, size: setattr(self, "offset", torch.nn.Parameter(torch.randn(size)))))(self, size)

        def forward(self, e: Any) -> Any:
            return forward(self, e) if forward else e + self.offset

    return Made


def parameter(make: Callable[[int], torch.Tensor]) -> Callable[[Any, int], None]:
    return lambda self, size: setattr(self, "offset", torch.nn.Parameter(make(size)))


ONE_FOR_ALL = torch.nn.Parameter(torch.randn(6))


def test_a_projector_that_cannot_look(capsys: pytest.CaptureFixture[str]) -> None:
    for right in (offset(), offset(parameter(lambda size: 0.1 * torch.randn(size))), cm.projectors.Offset):
        assert line_of(capsys, "05_3", right) == "OK 5.3 (14 tests)"


WRONG_OFFSETS: list[tuple[Any, str]] = [
    (cm.projectors.ScaleTranslate, "depends on the embedding"),
    (cm.projectors.OffsetLinear, "depends on the embedding"),
    (offset(lambda self, size: setattr(self, "offset", torch.randn(size))), "a plain tensor is not learned"),
    (offset(lambda self, size: self.register_buffer("offset", torch.randn(size))), "a plain tensor is not learned"),
    (cm.projectors.Identity, "the optimizer finds no weights"),
    (offset(forward=lambda self, e: e * self.offset), "depends on the embedding"),
    (offset(forward=lambda self, e: e + self.offset.detach()), "has no gradient: is something detached?"),
    (offset(forward=lambda self, e: self.offset), "must have shape [4, 6], got [6]"),
    (offset(parameter(lambda size: torch.randn(1))), "all features get the same number"),
    (offset(parameter(torch.zeros)), "begins at exactly 0"),
    (offset(lambda self, size: setattr(self, "offset", ONE_FOR_ALL)), "two projectors share one offset"),
    (offset(parameter(lambda size: torch.randn(1, size))), "a single embedding [E] must stay one"),
    (lambda size: torch.randn(size), "a projector is an nn.Module, got Tensor"),
    (lambda: None, "your answer raised TypeError"),
]

WRONG: dict[str, list[tuple[Callable[..., Any], str]]] = {  # tests/teaching/test_exercises.py gives them to the checks
    "05_1": WRONG_SHARES,
    "05_2": [(answer, words) for words, answer in WRONG_PREDICTIONS.items()],
    "05_3": WRONG_OFFSETS,
}
