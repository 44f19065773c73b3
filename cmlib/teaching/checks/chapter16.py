"""Checks of chapter 16: the scale of cosines, what a checkpoint would lose, prototypes that follow with momentum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cmlib import datasets
from cmlib.experiment import allowed_options, profile_defaults
from cmlib.memory import ExemplarMemory
from cmlib.methods.base import Method
from cmlib.scenario import Scenario, Task
from cmlib.teaching.checks.base import NotYet, Test, exercise


@exercise("16.1", hint="p = exp(s) / (exp(s) + K - 1); solve it for s with math.log")
def ch16_1(answer: Any, test: Test) -> None:
    """The scale that makes a class as probable as wished."""
    for p, K in ((0.9, 2), (0.8, 10), (0.5, 2), (0.99, 10), (0.99, 100), (0.2, 10), (0.6, 37)):
        got, right = _number(answer(p, K), p, K), math.log(p * (K - 1) / (1 - p))
        slips = {
            "the class itself was counted among the others": math.log(p * K / (1 - p)),
            "this is a logarithm to the base ten": right / math.log(10),
            "the other centroids are at right angles, not opposite": right / 2,
            "the other classes were forgotten, or there was one": math.log(p / (1 - p)),
            "the others' share is 1 - p, which was left out": math.log(p * (K - 1)),
        }
        for words, slip in slips.items():
            near = math.isclose(got, slip, abs_tol=6e-3) and not math.isclose(slip, right, abs_tol=2e-2)
            test.true(not near, f"{words} (p = {p}, K = {K})")
        test.close(f"the scale for p = {p} and K = {K}", got, right, 6e-3)


def _number(value: Any, p: float, K: int) -> float:
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotYet(f"the scale for p = {p} and K = {K} must be a number, got {type(value).__name__}")
    return float(value)


# -- what a checkpoint would lose -------------------------------------------------------------------------------------------


class _Keeps(nn.Module):
    """Something that retains tensors, some of which its state does not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.saved = nn.Linear(3, 2)
        self.memory = ExemplarMemory(4)
        self.memory.append(torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1]))
        self.register_buffer("table", torch.arange(12.0).reshape(4, 3))
        self.register_buffer("hidden", torch.zeros(3), persistent=False)
        self.lost = torch.zeros(4, 3)
        self.parts: dict[str, list[Tensor]] = {}

    def retained(self) -> dict[str, list[Tensor]]:
        return self.parts


@exercise(
    "16.2", hint="collect untyped_storage().data_ptr() of all values of state_dict(), and look each retained tensor up there"
)
def ch16_2(answer: Any, test: Test) -> None:
    """Names of what is retained but not saved."""
    one = _Keeps()
    table = one.state_dict()["table"]
    cases: list[tuple[str, dict[str, list[Tensor]], list[str]]] = [
        ("everything is saved", {"weights": [one.saved.weight], "exemplars": [one.memory.x]}, []),
        ("nothing is retained", {}, []),
        ("a piece of a saved tensor", {"table": [table[:2]], "column": [table[:, 1]]}, []),
        ("an ordinary attribute", {"centroids": [one.lost]}, ["centroids"]),
        ("an attribute with the values of a saved tensor", {"copy": [table.clone()]}, ["copy"]),
        ("two lost ones, out of order", {"zebra": [one.lost], "ant": [torch.zeros(1)]}, ["ant", "zebra"]),
        ("one lost tensor among saved ones", {"mixed": [one.saved.bias, one.lost[0]]}, ["mixed"]),
        ("a buffer that is not persistent", {"hidden": [dict(one.named_buffers())["hidden"]]}, ["hidden"]),
    ]
    for what, parts, wanted in cases:
        one.parts = parts
        got = answer(one)
        test.true(isinstance(got, list), f"{what}: a sorted list of names is wanted, got {type(got).__name__}")
        missing, extra = [name for name in wanted if name not in got], [name for name in got if name not in wanted]
        test.true(not extra, f"{what}: {' and '.join(map(str, extra))} can be found in the state, so nothing of it would be lost")
        test.true(not missing, f"{what}: {', '.join(missing)} would be lost, and is not in your list")
        test.true(got == wanted, f"{what}: the list should be {wanted}, got {got}")


# -- prototypes with momentum -------------------------------------------------------------------------------------------------

HINT_3 = "in loss, while self.training: class means of e.detach(); new rows first, then compare, then move"


@exercise("16.3", hint=HINT_3)
def ch16_3(answer: Any, test: Test) -> None:
    """Centroids that follow the embedding of their classes."""
    if not (isinstance(answer, type) and issubclass(answer, Method) and answer.name == "cosine_cm"):
        raise NotYet("the answer must be a class with CosineCM as its parent")
    for keep in (0.9, 0.25):
        method = _begun(answer, test, keep)
        _first_task(method, test, keep)
        _second_task(method, test, keep)


def _begun(answer: type[Method], test: Test, keep: float) -> Method:
    """The reader's method before its first task, on a few digits."""
    test.true("keep" in answer.options, "the class has no option 'keep'")
    options = {**profile_defaults(answer, "smoke", "digits", "cil"), "keep": keep}
    allowed = allowed_options(answer)
    options = {name: allowed[name].parse(name, value) for name, value in options.items()}
    scenario = Scenario(datasets.load("digits"), "cil", 5, 0, options["support_size"], True, 16, "test", "none")
    return answer(options, scenario)


def _batch(method: Method, task: Task, wanted: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Four images of each of the wanted labels of a task."""
    rows = torch.cat([(task.y == label).nonzero().squeeze(1)[:4] for label in wanted])
    return method.scenario.prepare(task.x[rows]), task.y[rows]


def _embedded(method: Any, x: Tensor) -> Tensor:
    """Embeddings of a batch in training mode, which leave the running statistics of the batch norms as they are."""
    state = {name: value.clone() for name, value in method.state_dict().items()}
    with torch.no_grad():
        e = method.embed(x)
    method.load_state_dict(state)
    return e


def _means(e: Tensor, y: Tensor) -> Mapping[int, Tensor]:
    return {label: e[y == label].mean(0) for label in y.unique().tolist()}


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-3, atol=1e-5)


def _first_task(method: Any, test: Test, keep: float) -> None:
    task = method.scenario.tasks[0]
    method.begin_task(task)
    method.train()
    x, y = _batch(method, task, (0,))
    means = _means(_embedded(method, x), y)
    passed: list[int] = []
    watch = method.backbone.register_forward_pre_hook(lambda _, given: passed.append(len(given[0])))
    loss = method.loss(x, y, task)
    watch.remove()
    test.true(isinstance(loss, Tensor) and loss.ndim == 0, "loss must return a scalar tensor")
    test.true(sum(passed) == len(x), f"{sum(passed)} images went through the network, not the batch's {len(x)}: no support set")
    c = method.centroids
    test.true(not c.requires_grad, "gradient flows through the centroids; take the mean of e.detach()")
    test.true(not bool((c[0] == 0).all()), "class 0 was in the batch and has no centroid yet: it starts at its mean")
    test.true(_same(c[0], means[0]), "a class without a centroid starts at the mean embedding of its images in the batch")
    test.true(bool((c[1:] == 0).all()), "only classes of the batch get a centroid; the others stay rows of zeros")
    test.true(loss.item() < 0.6, "a new centroid must be there before the batch is compared with it")
    test.gradient("the loss", method.loss(x, y, task), method.heads[0][0].weight)
    before = method.centroids.clone()
    x, y = _batch(method, task, (0, 1))
    with torch.no_grad():
        method.heads[0][-1].bias.add_(0.5)  # the embedding has moved
    e = _embedded(method, x)
    means = _means(e, y)
    loss = method.loss(x, y, task)
    _moved(test, before, method.centroids, means, keep)
    compared = torch.stack([before[0], means[1]])
    right = F.cross_entropy(method.option["scale"] * torch.cosine_similarity(e[:, None], compared[None], dim=2), y)
    test.close("the loss, compared with the centroids before they move,", loss, right.item(), 2e-3)
    before = method.centroids.clone()
    method.eval()
    method.loss(x, y, task)
    test.true(torch.equal(before, method.centroids), "in eval mode the centroids must not move: ask self.training")
    method.end_task(task)
    test.true(torch.equal(before, method.centroids), "end_task must leave the centroids as they are, and store exemplars")
    test.true(len(method.memory) > 0, "end_task must still store exemplars in self.memory")
    test.true("centroids" in method.state_dict(), "centroids are no longer in the state: write into the buffer")


def _moved(test: Test, before: Tensor, after: Tensor, means: Mapping[int, Tensor], keep: float) -> None:
    """Class 0 had a centroid and follows; class 1 is new."""
    right = keep * before[0] + (1 - keep) * means[0]
    slips = {
        "the old centroid has the share 1 - keep, and the new mean keep: they changed places": (1 - keep) * before[0]
        + keep * means[0],
        "the centroid jumped to the batch's mean: its old place has the share keep": means[0],
        "the centroid did not move": before[0],
        "the mean was added, but the old centroid kept its whole weight": before[0] + (1 - keep) * means[0],
        "the centroid was brought to length one; the formula does not": F.normalize(right, dim=0),
        "the centroid moved twice": keep * right + (1 - keep) * means[0],
    }
    test.no_slip(slips, lambda slip: _same(after[0], slip) and not _same(slip, right), "")
    test.true(_same(after[0], right), "a class with a centroid should move to keep * old + (1 - keep) * mean")
    mixed = (1 - keep) * means[1]
    test.true(not _same(after[1], mixed), "a new class was mixed with a row of zeros; it starts at its mean")
    test.true(_same(after[1], means[1]), "a new class beside an old one starts at its mean too")


def _second_task(method: Any, test: Test, keep: float) -> None:
    """Exemplars of the first task move its centroids, and the drift is still in the loss."""
    first, task = method.scenario.tasks[:2]
    method.begin_task(task)
    method.train()
    new, old = _batch(method, task, (2, 3)), _batch(method, first, (0,))
    x, y = torch.cat([new[0], old[0]]), torch.cat([new[1], old[1]])
    before, means = method.centroids.clone(), _means(_embedded(method, x), y)
    method.loss(x, y, task)
    after = method.centroids
    right = keep * before[0] + (1 - keep) * means[0]
    test.true(not torch.equal(after[0], before[0]), "an exemplar of task 1 must move the centroid of its class too")
    test.true(_same(after[0], right), "an old class should move to keep * old + (1 - keep) * mean")
    test.true(torch.equal(after[1], before[1]), "a class that is not in the batch must stay where it is")
    test.true(all(_same(after[k], means[k]) for k in (2, 3)), "the classes of the second task start at their means")
    method.eval()
    with torch.no_grad():
        method.backbone.conv.weight.add_(0.05)
        plain, method.option["lam"] = method.loss(x, y, task).item(), 0.0
        test.true(method.loss(x, y, task).item() < plain, "the drift is missing from the loss of the second task")
