"""The checks of chapter 18: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from answers import line_of, not_written


class NotWritten:
    def before_training_exp(self, strategy: Any, **_: Any) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(("k", "stub"), [(1, not_written), (2, not_written), (3, NotWritten)])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int, stub: Any) -> None:
    assert line_of(capsys, f"18_{k}", stub) == f"18.{k}: not started"
    assert line_of(capsys, f"18_{k}", None) == f"18.{k}: not started"


def steps(n: int, B: int, t: int) -> int:
    return math.ceil(n / math.ceil(B / t))


def with_task_labels(y: Any, order: list[int], k: int) -> Any:
    place = torch.tensor([order.index(one) for one in y.tolist()])
    return place // k, place % k


def whole(y: Any, order: list[int], k: int) -> Any:
    place = torch.tensor([order.index(one) for one in y.tolist()])
    return place // k, place


def plugin(
    hold: bool = True, norms: bool = True, after: int = 1, all_of_it: bool = False, once: bool = False, head: bool = False
) -> Any:
    """A plugin of 18.3; the switches plant mistakes."""

    class Plugin:
        def before_training_exp(self, strategy: Any, **_: Any) -> None:
            if strategy.clock.train_exp_counter >= after:
                if hold:
                    strategy.model.backbone.requires_grad_(False)
                if head:
                    strategy.model.requires_grad_(False)
                if once:
                    strategy.model.backbone.eval()

        def before_training_iteration(self, strategy: Any, **_: Any) -> None:
            if strategy.clock.train_exp_counter >= after and norms and not once:
                (strategy.model if all_of_it else strategy.model.backbone).eval()

    return Plugin


def test_right_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for right in (steps, lambda n, B, t: float(steps(n, B, t))):
        assert line_of(capsys, "18_1", right).startswith("OK 18.1 (")
    for answer in (with_task_labels, lambda y, order, k: [one.int() for one in with_task_labels(y, order, k)]):
        assert line_of(capsys, "18_2", answer).startswith("OK 18.2 (")
    for one in (plugin(), plugin()()):
        assert line_of(capsys, "18_3", one).startswith("OK 18.3 (")


def spoiled(y: Any, order: list[int], k: int) -> Any:
    answer = with_task_labels(y, order, k)
    y += 1
    return answer


WRONG: dict[str, list[tuple[Any, str]]] = {
    "18_1": [
        (lambda n, B, t: math.ceil(n / B), "batches are shared by the tasks"),
        (lambda n, B, t: n // math.ceil(B / t), "the last batch, which is not full, was left out"),
        (lambda n, B, t: math.ceil(n / (B // t)), "goes to the current task first: round up"),
        (lambda n, B, t: math.ceil(n * t / math.ceil(B / t)), "every task's share was added up"),
        (lambda n, B, t: n / math.ceil(B / t), "must be a whole number"),
        (lambda n, B, t: str(steps(n, B, t)), "must be a whole number"),
        (lambda n, B, t: steps(n, B, t) + 1, "steps(267, 32, 1) should be 9, got 10"),
        (lambda n, B, t: n // 0, "your answer raised ZeroDivisionError"),
    ],
    "18_2": [
        (lambda y, order, k: with_task_labels(y, order, k)[::-1], "task and label changed places"),
        (lambda y, order, k: (y // k, y % k), "the order in which classes arrive was left out"),
        (whole, "labels must start at 0 in every task"),
        (lambda y, order, k: with_task_labels(y, order, k)[0], "two tensors are wanted"),
        (lambda y, order, k: [one.tolist() for one in with_task_labels(y, order, k)], "must be a tensor, got list"),
        (lambda y, order, k: [one.float() for one in with_task_labels(y, order, k)], "labels are whole numbers"),
        (lambda y, order, k: [one + 1 for one in with_task_labels(y, order, k)], "class 5 arrives in task 1, got 2"),
        (lambda y, order, k: (with_task_labels(y, order, k)[0], y % k), "in its task, got"),
        (spoiled, "the labels that were given must stay as they are"),
        (lambda y, order, k: y.nowhere, "your answer raised AttributeError"),
    ],
    "18_3": [
        (plugin(hold=False), "experience 2: the backbone's 0.weight"),
        (plugin(norms=False), "the batch norms must be in eval mode"),
        (plugin(once=True), "the batch norms must be in eval mode"),
        (plugin(after=0), "in the first experience the backbone must learn"),
        (plugin(after=2), "experience 2: the backbone's 0.weight"),
        (plugin(all_of_it=True), "only the backbone is put into eval mode"),
        (plugin(head=True), "experience 2: the head must go on learning"),
        (object, "experience 2: the backbone's 0.weight"),
        (lambda: 1 // 0, "your answer raised"),
    ],
}
HINTS = {"18_1": "Hint: the current task has", "18_2": "Hint: place =", "18_3": "Hint: requires_grad_(False)"}
