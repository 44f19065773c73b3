"""Checks for chapter 1: the order of tasks, the gradient of cross-entropy, a memory of old images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cmlib.teaching.checks.base import NotYet, Test, exercise, numbers, returned, slip_in

Tasks = list[tuple[Tensor, Tensor]]


@exercise("1.1", hint="columns of R follow the order of training, and Naive keeps only what it trained on last")
def ch01_1(answer: Callable[[], Any], test: Test) -> None:
    """`answer()` returns the last row of R (2 numbers), the final accuracy on A and that on B, when B is trained first."""
    given = returned(answer())
    if not isinstance(given, tuple | list) or len(given) != 3:
        raise NotYet("return three things: the last row of R, the accuracy on A, the accuracy on B")
    first, last = numbers("the last row of R", given[0], 2)
    on_a, on_b = numbers("the accuracies on A and B", given[1:], 2)
    test.true(all(0 <= value <= 100 for value in (first, last, on_a, on_b)), "accuracies are between 0 and 100 percent")
    test.true(on_a > on_b, f"A is trained last now, so A is remembered, not B; you have {on_a:g} on A and {on_b:g} on B")
    test.true(first < last, "column 1 of R is the task trained first, and that is B now")
    test.true(first <= 20 and on_b <= 20, "the task trained first ends near 0 in CIL")
    test.true(last >= 80 and on_a >= 80, "the task trained last ends near 100")


# -- 1.2 --------------------------------------------------------------------------------------------------------------


@exercise("1.2", hint="z.softmax(1), minus 1 in the column of each image's own label, divided by the number of images")
def ch01_2(answer: Callable[[Tensor, Tensor], Any], test: Test) -> None:
    """`answer(z, y)` returns the gradient [B, K] of the mean cross-entropy of logits z [B, K] with labels y [B]."""
    draws = torch.Generator().manual_seed(1)
    _compare(answer, torch.tensor([[4.0, 2.0, 1.0, 1.0]]).log(), torch.tensor([2]), test)  # the example of the chapter
    for images, classes in ((5, 3), (32, 10), (4, 4)):
        z = 2 * torch.randn(images, classes, generator=draws)
        _compare(answer, z, torch.randint(classes, (images,), generator=draws), test)
    z, y = torch.randn(16, 6, generator=draws), 4 + torch.arange(16) % 2  # a batch of the newest two of six classes
    got = _compare(answer, z, y, test)
    test.true(bool((got[:, :4] > 0).all()), "no image shows an old class, so the push on every old logit is above 0")
    _compare(answer, torch.tensor([[1000.0, 0.0, -1000.0], [0.0, 5.0, 1.0]]), torch.tensor([1, 2]), test)


def _compare(answer: Callable[[Tensor, Tensor], Any], z: Tensor, y: Tensor, test: Test) -> Tensor:
    leaf = z.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(F.cross_entropy(leaf, y), leaf)
    before = z.clone()
    got = test.shape("the gradient", returned(answer(z, y), "return the gradient"), tuple(z.shape)).detach().to(wanted.dtype)
    test.true(torch.equal(z, before), "your function changes z; work on a copy")
    if torch.allclose(got, wanted, rtol=1e-3, atol=1e-4):
        return got
    if not torch.isfinite(got).all():
        raise NotYet("the gradient is not finite for large logits: use z.softmax(1), which subtracts the largest one itself")
    p, one = z.softmax(1), F.one_hot(y, z.shape[1]).to(z.dtype)
    slips = {
        "its sign is turned round: this is the way that a step goes, against the gradient": -wanted,
        "this is the gradient of the sum over the images; the loss is their mean": wanted * len(z),
        "the label's own column is missing: there 1 is subtracted from the probability": p / len(z),
        "the softmax runs over the images; it must run over the classes of one image": (z.softmax(0) - one) / len(z),
        "these are log probabilities; the gradient has the probabilities": (p.log() - one) / len(z),
        "these are the logits; take their softmax first": (z - one) / len(z),
    }
    if words := slip_in(slips, lambda slip: any(torch.allclose(got, way, atol=1e-4) for way in (slip, slip * len(z)))):
        raise NotYet(words)
    off = int((got - wanted).abs().amax(0).argmax())
    raise NotYet(f"for {len(z)} images and {z.shape[1]} classes column {off} is off by up to {_largest(got, wanted):.2g}")


def _largest(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).abs().max())


# -- 1.3 --------------------------------------------------------------------------------------------------------------


def stream(sizes: Sequence[Sequence[int]], seed: int = 0) -> Tasks:
    """Tasks of two classes each, with so many images of each; an image [2] is its class, a little blurred."""
    draws, tasks = torch.Generator().manual_seed(seed), []
    for i, task in enumerate(sizes):
        y = torch.cat([torch.full((n,), 2 * i + k) for k, n in enumerate(task)])
        y = y[torch.randperm(len(y), generator=draws)]
        angle = y.double() * torch.pi / len(sizes)
        x = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(len(y), 2, generator=draws, dtype=torch.float64)
        tasks.append((x, y))
    return tasks


@exercise("1.3", hint="x[y == c][:kept] are the images to keep of class c; collect them while you go through the tasks")
def ch01_3(answer: Callable[[Tasks, int], Any], test: Test) -> None:
    """`answer(train, kept)` returns the tasks, each with the first `kept` images of every earlier class beside its own."""
    for sizes, kept in (([(6, 5), (4, 7), (5, 5)], 2), ([(3, 9), (8, 2), (6, 6), (7, 4)], 3), ([(5, 5), (5, 5)], 0)):
        train = stream(sizes)
        given = returned(answer([(x.clone(), y.clone()) for x, y in train], kept), "return the tasks")
        if not isinstance(given, list | tuple) or len(given) != len(train):
            raise NotYet(f"return a list of {len(train)} tasks, one for each of `train`")
        for i, task in enumerate(given):
            _compare_task(task, train, i, kept, test)
    before, after = (_old_accuracy(answer(stream([(40, 40)] * 3), kept)) for kept in (0, 10))
    test.true(after > before + 30, f"ten images a class lift old classes only from {before:.0f} to {after:.0f} % in a training")


def _compare_task(task: Any, train: Tasks, i: int, kept: int, test: Test) -> None:
    if not isinstance(task, list | tuple) or len(task) != 2 or not all(isinstance(part, Tensor) for part in task):
        raise NotYet(f"task {i + 1} must be a pair of tensors (x, y)")
    x, y = task
    if len(x) != len(y) or x.shape[1:] != train[i][0].shape[1:]:
        raise NotYet(f"task {i + 1} has x of shape {list(x.shape)} and y of shape {list(y.shape)}: one label for each image")
    label = {tuple(image.tolist()): int(c) for images, labels in train for image, c in zip(images, labels, strict=True)}
    got = [tuple(image.tolist()) for image in x]
    test.true(all(image in label for image in got), f"task {i + 1} holds images that are in no task")
    right = all(label[image] == int(c) for image, c in zip(got, y, strict=True))
    test.true(right, f"in task {i + 1} images and labels are not in step: an image has another image's label")
    later = sorted({label[image] for image in got if label[image] >= 2 * i + 2})
    test.true(not later, f"task {i + 1} holds images of the classes {later}, which come later")
    own = {tuple(image.tolist()) for image in train[i][0]}
    test.true(own <= set(got), f"task {i + 1} has lost images of its own")
    for c in range(2 * i):
        images, labels = train[c // 2]
        first = [tuple(image.tolist()) for image in images[labels == c][:kept]]
        found = [image for image in got if label[image] == c]
        if len(found) > len(set(found)):
            raise NotYet(f"task {i + 1} holds images of class {c} twice")
        if len(found) != len(first):
            raise NotYet(f"task {i + 1} should hold {len(first)} images of class {c}, it holds {len(found)}")
        test.true(set(found) == set(first), f"task {i + 1} holds other images of class {c} than its first {kept}: they are gone")


def _old_accuracy(tasks: Tasks) -> float:
    """Train a linear softmax on one task after the other; the accuracy on all but the last, of fresh images, in percent."""
    net = torch.nn.Linear(2, 2 * len(tasks), dtype=torch.float64)
    torch.nn.init.zeros_(net.weight)
    torch.nn.init.zeros_(net.bias)
    optimizer = torch.optim.SGD(net.parameters(), lr=2.0)
    for x, y in tasks:
        for _ in range(300):
            optimizer.zero_grad()
            F.cross_entropy(net(x.double()), y).backward()
            optimizer.step()
    fresh = stream([(40, 40)] * len(tasks), seed=1)[:-1]
    with torch.no_grad():
        right = torch.cat([net(x).argmax(1) == y for x, y in fresh])
    return 100 * float(right.double().mean())
