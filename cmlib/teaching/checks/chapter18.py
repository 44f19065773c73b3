"""Checks of chapter 18: the steps of an epoch, labels for a benchmark with known tasks, a plugin. None needs Avalanche."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from cmlib.teaching.checks.base import NotYet, Test, exercise


@exercise("18.1", hint="the current task has ceil(B / t) images of a batch, and an epoch takes ceil(n / that) steps: math.ceil")
def ch18_1(answer: Any, test: Test) -> None:
    """Gradient steps of an epoch whose batches are shared by the tasks so far."""
    for n, B, t in ((267, 32, 1), (267, 32, 2), (267, 32, 3), (267, 32, 5), (9900, 32, 5), (100, 20, 4), (7, 8, 3), (64, 16, 2)):
        got, share = answer(n, B, t), math.ceil(B / t)
        if isinstance(got, bool) or not isinstance(got, int | float) or got != int(got):
            raise NotYet(f"steps({n}, {B}, {t}) must be a whole number, got {got!r}")
        right = math.ceil(n / share)
        slips = {
            "batches are shared by the tasks; this is an epoch of whole batches": math.ceil(n / B),
            "the last batch, which is not full, was left out": n // share,
            "what is left over of a batch goes to the current task first: round up": math.ceil(n / (B // t)) if t <= B else -1,
            "every task's share was added up: an epoch ends with the current task's images": math.ceil(n * t / share),
        }
        for words, slip in slips.items():
            test.true(got != slip or slip == right, f"{words} (n = {n}, B = {B}, t = {t})")
        test.true(got == right, f"steps({n}, {B}, {t}) should be {right}, got {got:g}")


@exercise("18.2", hint="place = order.index(c) for each class c; task = place // k, label = place % k")
def ch18_2(answer: Any, test: Test) -> None:
    """Task labels and labels within a task."""
    g = torch.Generator().manual_seed(18)
    cases = [([4, 2, 0, 5], 2, torch.tensor([5, 4, 4, 0, 2]))]
    for classes, k in ((6, 3), (10, 2), (10, 5), (8, 1)):
        cases.append((torch.randperm(classes, generator=g).tolist(), k, torch.randint(classes, (40,), generator=g)))
    for order, k, y in cases:
        place = torch.tensor([order.index(one) for one in y.tolist()])
        task, label = place // k, place % k
        given, where = y.clone(), f"order {order}, k = {k}"
        got = answer(given, list(order), k)
        test.true(isinstance(got, tuple | list) and len(got) == 2, f"{where}: two tensors are wanted, task and label")
        mine = test.shape(f"{where}: the tasks", got[0], (len(y),)), test.shape(f"{where}: the labels", got[1], (len(y),))
        test.true(not any(one.is_floating_point() for one in mine), f"{where}: labels are whole numbers, not {mine[0].dtype}")
        swapped = torch.equal(mine[0], label) and torch.equal(mine[1], task) and not torch.equal(task, label)
        test.true(not swapped, f"{where}: task and label changed places")
        test.true(
            not torch.equal(mine[0], y // k) or torch.equal(task, y // k),
            f"{where}: the order in which classes arrive was left out",
        )
        i = _first_wrong(mine[0], task)
        test.true(torch.equal(mine[0], task), f"{where}: class {int(y[i])} arrives in task {int(task[i])}, got {int(mine[0][i])}")
        whole = torch.equal(mine[1], place) and not torch.equal(place, label)
        test.true(not whole, f"{where}: labels must start at 0 in every task; these are numbers over all classes")
        i = _first_wrong(mine[1], label)
        test.true(
            torch.equal(mine[1], label),
            f"{where}: class {int(y[i])} has the label {int(label[i])} in its task, got {int(mine[1][i])}",
        )
        test.true(torch.equal(given, y), f"{where}: the labels that were given must stay as they are")


def _first_wrong(got: Tensor, wanted: Tensor) -> int:
    """The first place where they differ; 0 where they do not."""
    return int((got != wanted).int().argmax())


# -- a plugin ---------------------------------------------------------------------------------------------------------------


class _Strategy:
    """As much of an Avalanche strategy as a plugin needs: a model with a backbone and a head, experiences, epochs, steps."""

    def __init__(self, plugin: Any) -> None:
        torch.manual_seed(0)
        self.model: Any = nn.Module()
        self.model.backbone = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.0))
        self.model.head = nn.Linear(4, 2)
        self.clock = SimpleNamespace(train_exp_counter=0)
        self.plugin = plugin

    def train(self) -> None:
        """An experience of two epochs with two steps each, as Avalanche calls its plugins."""
        model = self.model
        self._call("before_training_exp")
        optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
        for _ in range(2):
            model.train()
            for _ in range(2):
                self._call("before_training_iteration")
                optimizer.zero_grad()
                x = (torch.randn(6, 3, generator=torch.Generator().manual_seed(1)) + 1).requires_grad_()
                model.head(model.backbone(x)).square().mean().backward()
                optimizer.step()
        self._call("after_training_exp")
        self.clock.train_exp_counter += 1

    def _call(self, name: str) -> None:
        if hasattr(self.plugin, name):
            getattr(self.plugin, name)(self)

    def state(self, part: str) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in getattr(self.model, part).state_dict().items()}


def _changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> list[str]:
    return [name for name, value in before.items() if not torch.equal(value, after[name])]


@exercise("18.3", hint="requires_grad_(False) on strategy.model.backbone once, and .eval() on it before each step")
def ch18_3(answer: Any, test: Test) -> None:
    """From the second experience on the backbone stays as it is."""
    plugin = answer() if callable(answer) else answer
    strategy = _Strategy(plugin)
    before = strategy.state("backbone"), strategy.state("head")
    strategy.train()
    first = strategy.state("backbone"), strategy.state("head")
    moved = _changed(before[0], first[0])
    test.true("0.weight" in moved, "in the first experience the backbone must learn, and its weights did not move")
    test.true("1.running_mean" in moved, "in the first experience the batch norms must learn too: leave training mode on")
    test.true("weight" in _changed(before[1], first[1]), "the head must learn in the first experience")
    for number in (2, 3):
        held, head = strategy.state("backbone"), strategy.state("head")
        strategy.train()
        moved = _changed(held, strategy.state("backbone"))
        weights = [name for name in moved if "running" not in name and "num" not in name]
        test.true(not weights, f"experience {number}: the backbone's {', '.join(weights)} moved; switch its gradient off")
        test.true(
            not moved, f"experience {number}: {', '.join(moved)} moved without a gradient: the batch norms must be in eval mode"
        )
        test.true("weight" in _changed(head, strategy.state("head")), f"experience {number}: the head must go on learning")
    test.true(strategy.model.head.training, "only the backbone is put into eval mode; the rest of the model stays in training")
    if callable(answer):
        fresh = _Strategy(answer())
        fresh.train()
        learned = all(one.requires_grad for one in fresh.model.backbone.parameters())
        test.true(learned, "after the first experience alone the backbone must still be free to learn")
