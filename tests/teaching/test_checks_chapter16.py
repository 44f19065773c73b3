"""The checks of chapter 16: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from answers import line_of, not_written
from chapter16 import cosine_cm

import cmlib as cm
from cmlib.methods import METHODS
from cmlib.methods.cope import class_means

CosineCM = cosine_cm()


@pytest.mark.parametrize("k", [1, 2])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    assert line_of(capsys, f"16_{k}", not_written) == f"16.{k}: not started"
    assert line_of(capsys, f"16_{k}", None) == f"16.{k}: not started"


def scale_for(p: float, K: int) -> float:
    return math.log(p * (K - 1) / (1 - p))


def unsaved(method: Any, whole: bool = True, sort: bool = True, every: bool = False) -> list[str]:
    saved = {one.untyped_storage().data_ptr() for one in method.state_dict().values()}
    if not whole:  # addresses of the tensors themselves, so that a piece seems lost
        saved = {one.data_ptr() for one in method.state_dict().values()}
    where = (lambda one: one.untyped_storage().data_ptr()) if whole else (lambda one: one.data_ptr())
    ask = all if every else any
    names = [name for name, tensors in method.retained().items() if tensors and ask(where(one) not in saved for one in tensors)]
    return sorted(names) if sort else names


def by_value(method: Any) -> list[str]:
    """The mistake of comparing values."""
    saved = list(method.state_dict().values())

    def there(one: Any) -> bool:
        return any(one.shape == other.shape and bool((one == other).all()) for other in saved)

    return sorted(name for name, tensors in method.retained().items() if not all(map(there, tensors)))


def parameters_only(method: Any) -> list[str]:
    saved = {one.untyped_storage().data_ptr() for one in method.parameters()}
    parts = method.retained().items()
    return sorted(name for name, tensors in parts if any(one.untyped_storage().data_ptr() not in saved for one in tensors))


def buffers_too(method: Any) -> list[str]:
    saved = {one.untyped_storage().data_ptr() for one in (*method.parameters(), *method.buffers())}
    parts = method.retained().items()
    return sorted(name for name, tensors in parts if any(one.untyped_storage().data_ptr() not in saved for one in tensors))


def following(base: Any, slip: str = "") -> Any:
    """The right answer to 16.3; `slip` plants a mistake."""

    class Following(base):
        options = {**base.options, "keep": cm.Option(0.9, "share of the old centroid", float, low=0, high=1)}

        def loss(self, x: Any, y: Any, task: Any) -> Any:
            e, c, mu = self.embed(x), self.centroids, self.option["keep"]
            mu = 1 - mu if slip == "changed places" else mu
            means, counts = class_means(e.detach(), y, len(c))
            here, new = (counts > 0).unsqueeze(1), (c == 0).all(1, keepdim=True)
            if slip == "no exemplars":
                here = here & (torch.arange(len(c)) >= task.classes.start).unsqueeze(1)
            if slip == "support":
                self.fresh_centroids(task)
            moves = self.training or slip == "in eval"
            if moves and slip not in ("late", "mixed"):
                c.copy_(torch.where(here & new, means, c))
            if slip == "moves first":
                c.copy_(torch.where(here & ~new, mu * c + (1 - mu) * means, c))
            s = torch.cosine_similarity(e[:, None], c[None, : self.seen], dim=2)
            loss = self.cross_entropy(self.option["scale"] * s, y)
            if moves and slip in ("late", "mixed"):
                c.copy_(torch.where(here & new, means * ((1 - mu) if slip == "mixed" else 1), c))
            if moves and slip not in ("still", "moves first"):
                goal = mu * c + (1 - mu) * means if slip != "jumps" else means
                goal = torch.nn.functional.normalize(goal, dim=1) if slip == "length" else goal
                c.copy_(torch.where(here & ~new, goal, c))
            drift = (
                0.0
                if slip == "no drift" or not task.index
                else self.option["lam"] * sys.modules[base.__module__].turned(self, x, e)
            )
            return loss + drift

        def end_task(self, task: Any) -> None:
            if slip == "end":
                super().end_task(task)
            elif slip != "no memory":
                self.memory.add_task(task.x, task.y, self.seed, task.index)

    return Following


SLIPS = {
    "changed places": "they changed places",
    "no exemplars": "an exemplar of task 1 must move the centroid of its class too",
    "support": "no support set",
    "in eval": "in eval mode the centroids must not move",
    "late": "there before the batch is compared with it",
    "mixed": "starts at the mean embedding of its images",
    "moves first": "compared with the centroids before they move",
    "still": "the centroid did not move",
    "length": "the centroid was brought to length one",
    "jumps": "the centroid jumped to the batch's mean",
    "no drift": "the drift is missing",
    "end": "end_task must leave the centroids as they are",
    "no memory": "end_task must still store exemplars",
}


def test_right_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for right in (scale_for, lambda p, K: round(scale_for(p, K), 2), lambda p, K: torch.tensor(scale_for(p, K))):
        assert line_of(capsys, "16_1", right).startswith("OK 16.1 (")
    assert line_of(capsys, "16_2", unsaved).startswith("OK 16.2 (")


WRONG: dict[str, list[tuple[Callable[..., Any], str]]] = {
    "16_1": [
        (lambda p, K: math.log(p * K / (1 - p)), "the class itself was counted among the others"),
        (lambda p, K: math.log10(p * (K - 1) / (1 - p)), "a logarithm to the base ten"),
        (lambda p, K: scale_for(p, K) / 2, "at right angles, not opposite"),
        (lambda p, K: math.log(p / (1 - p)), "the other classes were forgotten"),
        (lambda p, K: math.log(p * (K - 1)), "the others' share is 1 - p"),
        (lambda p, K: math.exp(scale_for(p, K)), "the scale for p = 0.9 and K = 2 should be 2.197, got 9"),
        (lambda p, K: f"{scale_for(p, K)}", "must be a number, got str"),
        (lambda p, K: p / 0, "your answer raised ZeroDivisionError"),
    ],
    "16_2": [
        (lambda method: unsaved(method, whole=False), "column can be found in the state, so nothing of it would be lost"),
        (lambda method: unsaved(method, sort=False), "the list should be ['ant', 'zebra'], got ['zebra', 'ant']"),
        (lambda method: unsaved(method, every=True), "mixed would be lost, and is not in your list"),
        (by_value, "column and table can be found in the state"),
        (parameters_only, "exemplars can be found in the state"),
        (buffers_too, "hidden would be lost, and is not in your list"),
        (lambda method: tuple(unsaved(method)), "a sorted list of names is wanted, got tuple"),
        (lambda method: [], "centroids would be lost"),
        (lambda method: method.nowhere, "your answer raised AttributeError"),
    ],
    "16_3": [
        *((following(CosineCM, slip), words) for slip, words in SLIPS.items()),
        (METHODS["naive"], "the answer must be a class with CosineCM as its parent"),
        (5, "the answer must be a class with CosineCM as its parent"),
        (type("Bare", (CosineCM,), {}), "the class has no option 'keep'"),
    ],
}
HINTS = {"16_1": "Hint: p = exp(s)", "16_2": "Hint: collect untyped_storage()", "16_3": "Hint: in loss"}


def test_a_method_that_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    stub = type("Stub", (following(CosineCM),), {"loss": not_written})
    assert line_of(capsys, "16_3", stub) == "16.3: not started"
    assert line_of(capsys, "16_3", None) == "16.3: not started"


def test_a_method_that_follows(capsys: pytest.CaptureFixture[str]) -> None:
    line = line_of(capsys, "16_3", following(CosineCM))
    assert line.startswith("OK 16.3 (") and int(line.split("(")[1].split()[0]) > 20
