"""From a data set to a sequence of tasks, and from a task to batches.

Labels are renumbered in the order in which classes arrive: task i (0-based) owns the labels i*k ... (i+1)*k - 1, with k classes
a task (tasks of unequal sizes own as many as they have, one after the other). Images stay on the device as uint8; a batch is cut
out, augmented and normalised in one operation each. Feature vectors are float32 [n, D] where images are uint8 [n, C, H, W].
Built in chapter 2; unequal tasks and vectors in chapter 17.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from cmlib.datasets import KNOWN, ImageData
from cmlib.errors import OptionError, check_name, setting
from cmlib.randomness import class_order as natural_first
from cmlib.randomness import generator

KINDS = ("til", "cil")
EVAL_SPLITS = ("test", "val")
AUGMENTATIONS = ("dataset", "crop-flip", "flip", "resized-crop", "none")
CLASS_ORDERS = ("paper", "shuffled")
VALIDATION_SHARE = 0.2  # of each class's training images
PADDING = 4  # pixels, for random crops
SMALLEST = 0.08  # of an image's area, for resized crops


@dataclass(frozen=True, eq=False)
class Task:
    """One task: its training, support and evaluation images (uint8 [n, C, H, W], on the device) with their labels [n]."""

    index: int
    classes: range  # the labels it owns
    x: Tensor
    y: Tensor
    support_x: Tensor
    support_y: Tensor
    test_x: Tensor
    test_y: Tensor


Part = tuple[Tensor, Tensor, int]  # images [n, C, H, W], labels [n], samples a batch


class Scenario:
    """N disjoint tasks made from one data set.

    kind: `til` or `cil`. seed: class order (natural for 0, as the paper says; also shuffled with class_order=`shuffled`),
    support set, validation split, shuffling, crops and flips.
    support_size: images a task set apart for centroids, the same number of each class if `stratified`; never trained on.
    train_per_class: only the first so many training images of each class, in file order. eval_split: `test`, or `val`, a
    fifth of the training images, set apart. task_sizes: classes of each task, where they differ; n_tasks is then their number.
    """

    task_sizes: tuple[int, ...]  # classes of each task
    owner: Tensor  # int64 [classes], on the device: the task of each label

    def __init__(
        self,
        data: ImageData,
        kind: str = "til",
        n_tasks: int = 5,
        seed: int = 0,
        support_size: int = 0,
        stratified: bool = True,
        train_per_class: int | None = None,
        eval_split: str = "test",
        augmentation: str = "dataset",
        device: str | torch.device = "cpu",
        class_order: str = "paper",
        task_sizes: Sequence[int] | None = None,
    ) -> None:
        self.kind = check_name("scenario", kind, KINDS)
        check_name("eval_split", eval_split, EVAL_SPLITS)
        check_name("class_order", class_order, CLASS_ORDERS)
        check_name("augmentation", augmentation, AUGMENTATIONS)
        _check_whole(n_tasks=(n_tasks, 1), seed=(seed, 0), support_size=(support_size, 0), train_per_class=(train_per_class, 1))
        n_classes = len(data.class_names)
        if task_sizes is None:
            _check_tasks(n_tasks, n_classes, data.name not in KNOWN)
        elif sum(task_sizes) != n_classes or min(task_sizes) < 1:
            raise OptionError(_wrong_sizes(task_sizes, n_classes))
        if data.vectors and augmentation not in ("dataset", "none"):
            raise OptionError(f"augmentation={augmentation} is for images; feature vectors have none; allowed: dataset, none")
        self.data, self.n_tasks, self.seed, self.device = data, n_tasks, seed, torch.device(device)
        self.stratified = stratified
        self.divide(task_sizes or (n_classes // n_tasks,) * n_tasks)
        self.augmentation = data.augmentation if augmentation == "dataset" else augmentation
        self.class_order = arrival(n_classes, seed, class_order)  # [classes]
        self.class_names = tuple(data.class_names[k] for k in self.class_order.tolist())
        self.mean, self.std = (_as_image(value, data.x_train, self.device) for value in (data.mean, data.std))  # [1, C, H, W]
        train, test = self._splits(data, train_per_class, eval_split)
        labels = {i: train.labels(self._classes(i)) for i in range(self.n_tasks)}
        self._check_support(labels, support_size, stratified)
        self.tasks = [self._task(i, train, test, support_size, stratified) for i in range(self.n_tasks)]

    # -- tasks ------------------------------------------------------------------------------------------------------------

    def divide(self, sizes: Sequence[int]) -> None:
        """Give each task its number of classes."""
        self.task_sizes, self.n_tasks = tuple(sizes), len(sizes)
        owners = [task for task, size in enumerate(sizes) for _ in range(size)]
        self.owner = torch.tensor(owners, device=self.device)

    @property
    def classes_per_task(self) -> int:
        """Classes of each task; OptionError where tasks differ in it."""
        if len(set(self.task_sizes)) > 1:
            raise OptionError(f"tasks of {', '.join(map(str, self.task_sizes))} classes have no one number of classes a task")
        return self.task_sizes[0]

    def _classes(self, index: int) -> range:
        ends = [0, *accumulate(self.task_sizes)]
        return range(ends[index], ends[index + 1])

    def _splits(self, data: ImageData, train_per_class: int | None, eval_split: str) -> tuple[_Split, _Split]:
        rows = [(data.y_train == k).nonzero().squeeze(1) for k in self.class_order.tolist()]
        if train_per_class is not None:
            few = min(range(len(rows)), key=lambda k: len(rows[k]))
            if len(rows[few]) < train_per_class:
                name, found = self.class_names[few], len(rows[few])
                lacks = f"class '{name}' has only {found} image{'s' * (found > 1)}"
                works = (
                    f"the largest that works: {setting('train_per_class', found)}"
                    if found > 1
                    else f"take {setting('train_per_class', 'none')}"
                )
                raise OptionError(f"train_per_class={train_per_class}, but {lacks}; {works}")
            rows = [row[:train_per_class] for row in rows]
        if eval_split == "test":
            return _Split(data.x_train, rows), _Split(data.x_test, self._test_rows(data))
        alone = next((name for name, row in zip(self.class_names, rows, strict=True) if len(row) < 2), None)
        if alone is not None:
            advice = f"give it two or more, or take {setting('eval_split', 'test')}"
            raise OptionError(f"eval_split=val leaves no training image of class '{alone}', which has one; {advice}")
        shuffled = [row[self._permutation(len(row), k, "validation")] for k, row in enumerate(rows)]
        cuts = [max(1, round(len(row) * VALIDATION_SHARE)) for row in rows]
        train = [row[cut:].sort().values for row, cut in zip(shuffled, cuts, strict=True)]
        val = [row[:cut].sort().values for row, cut in zip(shuffled, cuts, strict=True)]
        return _Split(data.x_train, train), _Split(data.x_train, val)

    def _test_rows(self, data: ImageData) -> list[Tensor]:
        return [(data.y_test == k).nonzero().squeeze(1) for k in self.class_order.tolist()]

    def _permutation(self, n: int, task: int, purpose: str) -> Tensor:
        return torch.randperm(n, generator=generator(self.seed, task, 0, purpose))

    def _task(self, index: int, train: _Split, test: _Split, support_size: int, stratified: bool) -> Task:
        classes = self._classes(index)
        x, y = train.of(classes)
        support = self._support_rows(index, y, support_size, stratified)
        rest = torch.ones(len(y), dtype=torch.bool)
        rest[support] = False
        test_x, test_y = test.of(classes)
        images = x[rest].contiguous(memory_format=layout_of(x))
        arrays = (images, y[rest], x[support], y[support], test_x, test_y)
        return Task(index, classes, *(array.to(self.device) for array in arrays))

    def _support_rows(self, index: int, y: Tensor, size: int, stratified: bool) -> Tensor:
        """Rows of a task's training images that become its support set."""
        self._check_support({index: y}, size, stratified)
        order = self._permutation(len(y), index, "support")
        if not stratified or not size:
            return order[:size]
        share, extra = divmod(size, self.task_sizes[index])
        of_class = [order[y[order] == label] for label in self._classes(index)]
        return torch.cat([row[: share + (rank < extra)] for rank, row in enumerate(of_class)])

    def _check_support(self, labels: Mapping[int, Tensor], size: int, stratified: bool) -> None:
        """Raise OptionError unless every class of these tasks keeps a support and a training image; says which sizes work."""
        if not size:
            return
        ranges = {index: self._support_range(index, y, stratified) for index, y in labels.items()}
        smallest, largest = max(low for low, _ in ranges.values()), min(high for _, high in ranges.values())
        if smallest <= size <= largest:
            return
        small = size < smallest
        works = setting("support_size", smallest if small else largest)
        advice = f"the {'smallest' if small else 'largest'} that works: {works}"
        if smallest > largest:
            few = any(int(y.unique(return_counts=True)[1].min()) < 2 for y in labels.values())
            other = "more training images a class, or tasks of more equal sizes" if stratified else setting("stratified", "true")
            advice = "every class needs two training images" if few else f"take {other}"
            advice = f"no size works: {advice}"
        task = next(index for index, (low, high) in ranges.items() if not low <= size <= high) + 1
        if size > largest:
            raise OptionError(f"support_size={size} leaves no training image of some class in task {task}; {advice}")
        what = (
            f"smaller than the {self.task_sizes[task - 1]} classes of a task" if stratified else f"without a class of task {task}"
        )
        raise OptionError(f"support_size={size} is {what}; {advice}")

    def _support_range(self, index: int, y: Tensor, stratified: bool) -> tuple[int, int]:
        """The smallest and the largest support set of a task that leave every class an image on either side."""
        k, first = self.task_sizes[index], self._classes(index).start
        if stratified:
            counts = torch.bincount(y - first, minlength=k).tolist()
            return k, min((count - 1) * k + rank for rank, count in enumerate(counts))
        drawn = y[self._permutation(len(y), index, "support")]
        places = [(drawn == label).nonzero().squeeze(1).tolist() for label in self._classes(index)]
        return max(place[0] for place in places) + 1, min(place[-1] for place in places)

    # -- batches ----------------------------------------------------------------------------------------------------------

    def prepare(self, x: Tensor) -> Tensor:
        """Normalise raw images, or vectors. uint8 [B, C, H, W] -> float32 [B, C, H, W], channels last"""
        return (x.to(memory_format=layout_of(x)) - self.mean).div_(self.std)

    def batches(
        self, parts: Sequence[Part], task: int, epoch: int, steps: int | None = None, one_order: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of one epoch: normalised images [B, C, H, W] and labels [B].

        parts: (images, labels, samples a batch); the first is the current task's and sets the number of steps unless `steps`
        does; smaller ones are gone through again and again, each time in a new order. Every draw is made here, at the start.
        one_order: every epoch goes through the images in the order of the first one.
        """
        first = parts[0]
        n_steps = steps or math.ceil(len(first[1]) / first[2])
        orders = []
        for rank, (_, y, share) in enumerate(parts):
            draws = generator(self.seed, task, 0 if one_order else epoch, f"shuffle {rank}")
            length = len(y) if rank == 0 and steps is None else n_steps * share
            orders.append(_rounds(len(y), length, draws).to(self.device))
        total = n_steps * sum(share for *_, share in parts)
        crops = draw_crops(total, generator(self.seed, task, epoch, "augmentation"), self.augmentation).to(self.device)
        done = 0
        for step in range(n_steps):
            rows = [order[step * share : (step + 1) * share] for order, (*_, share) in zip(orders, parts, strict=True)]
            x = torch.cat([pick(images, row) for (images, *_), row in zip(parts, rows, strict=True)])
            y = torch.cat([labels[row] for (_, labels, _), row in zip(parts, rows, strict=True)])
            yield self.prepare(augment(x, crops[done : done + len(y)], self.augmentation)), y
            done += len(y)


@dataclass(frozen=True, eq=False)
class _Split:
    images: Tensor
    rows: list[Tensor]  # rows of each label, in file order

    def of(self, classes: range) -> tuple[Tensor, Tensor]:
        return self.images[torch.cat([self.rows[label] for label in classes])], self.labels(classes)

    def labels(self, classes: range) -> Tensor:
        return torch.cat([torch.full((len(self.rows[label]),), label) for label in classes])


def _check_whole(**numbers: tuple[Any, int]) -> None:
    """OptionError unless these are whole numbers, each at least as large as what stands beside it, or None."""
    for name, (value, least) in numbers.items():
        if value is not None and (not isinstance(value, Integral) or value < least):
            raise OptionError(f"{name}={value} is impossible; allowed: a whole number of at least {least}")


def _check_tasks(n_tasks: int, n_classes: int, own: bool) -> None:
    """Raise OptionError unless the tasks share the classes evenly. own: the images are the caller's, who may leave some out."""
    if n_tasks >= 1 and n_classes % n_tasks == 0:
        return
    divisors = [n for n in range(1, n_classes + 1) if n_classes % n == 0]
    advice = setting("n_tasks", min(divisors, key=lambda n: (abs(n - n_tasks), -n)))
    if own and 1 < n_tasks < n_classes:
        advice += f", or leave {n_classes % n_tasks} of the classes out"
    allowed = ", ".join(map(str, divisors))
    raise OptionError(f"n_tasks={n_tasks} does not divide the {n_classes} classes; allowed: {allowed}; take {advice}")


def _wrong_sizes(sizes: Sequence[int], n_classes: int) -> str:
    """What is wrong with sizes of tasks that do not add up, and which ones would."""
    text, n = ",".join(map(str, sizes)), len(sizes)
    if min(sizes) < 1 or n > n_classes:
        return f"task_sizes={text} is impossible: {n} tasks need at least one class each, of {n_classes}"
    share, rest = divmod(n_classes, n)
    works = ",".join(str(share + (task < rest)) for task in range(n))
    return f"task_sizes={text} adds up to {sum(sizes)}, but there are {n_classes} classes; one that works: {works}"


def arrival(n_classes: int, seed: int, order: str = "paper") -> Tensor:
    """The order in which classes arrive: original classes by label. -> int64 [classes]

    paper: natural for seed 0, shuffled for every other seed; shuffled: for every seed, by the same rule.
    """
    if order == "paper" or seed:
        return natural_first(n_classes, seed)
    return torch.randperm(n_classes, generator=torch.Generator().manual_seed(seed))


def _rounds(n: int, length: int, draws: torch.Generator) -> Tensor:
    """`length` positions out of n: whole shuffled rounds, the last one cut short."""
    return torch.cat([torch.randperm(n, generator=draws) for _ in range(math.ceil(length / n))])[:length]


def draw_crops(n: int, draws: torch.Generator, augmentation: str) -> Tensor:
    """Random row shift, column shift (0 ... 2 * PADDING) and flip (0 or 1) of n samples. -> int64 [n, 3]

    `resized-crop`: top, left, height and width as shares of the image, and flip. -> float32 [n, 5]
    """
    if augmentation == "resized-crop":
        return _draw_resized_crops(n, draws)
    shifts = torch.randint(0, 2 * PADDING + 1, (n, 2), generator=draws)
    flips = torch.randint(0, 2, (n, 1), generator=draws)
    if augmentation != "crop-flip":
        shifts.fill_(PADDING)
    return torch.cat([shifts, flips], 1)


def _draw_resized_crops(n: int, draws: torch.Generator) -> Tensor:
    """8 to 100 % of the area, sides 3:4 to 4:3, anywhere; a side longer than the image's is cut to it. -> [n, 5]"""
    area, ratio, top, left, flip = torch.rand(5, n, generator=draws)
    area, ratio = SMALLEST + (1 - SMALLEST) * area, torch.exp((2 * ratio - 1) * math.log(4 / 3))
    height, width = (area / ratio).sqrt().clamp(max=1), (area * ratio).sqrt().clamp(max=1)
    return torch.stack([top * (1 - height), left * (1 - width), height, width, (flip < 0.5).float()], 1)


def pick(images: Tensor, rows: Tensor) -> Tensor:
    """Some of the images, channels last: much faster than `images[rows]`. [n, C, H, W], [B] -> [B, C, H, W]; [n, D] -> [B, D]"""
    if images.ndim != 4:
        return images[rows]
    return images.permute(0, 2, 3, 1).index_select(0, rows).permute(0, 3, 1, 2)


def augment(x: Tensor, crops: Tensor, augmentation: str) -> Tensor:
    """Pad by 4 black pixels, crop back to size, flip half of the images; one operation for the whole batch.

    x uint8 [B, C, H, W], crops [B, 3] as drawn by `draw_crops` -> uint8 [B, C, H, W], channels last
    Each row of a crop is W pixels that lie together in the padded image (or in its mirror image), so whole rows are copied.
    """
    if augmentation == "none":
        return x
    if augmentation == "resized-crop":
        return _resize_crops(x, crops)
    pixels = x.permute(0, 2, 3, 1)  # [B, H, W, C]
    B, H, W, C = pixels.shape
    up, left, flipped = crops.unbind(1)
    padded = torch.cat([pixels, pixels.flip(2)])  # the mirror images behind the images
    padded = torch.nn.functional.pad(padded, (0, 0, *(PADDING,) * 4)).contiguous()  # [2 B, H + 8, W + 8, C]
    height, width = padded.shape[1:3]
    left = torch.where(flipped == 1, 2 * PADDING - left, left)  # the same place in the mirror image
    first = (torch.arange(B, device=x.device) + B * flipped) * height + up  # [B]: the crop's first row
    starts = (first[:, None] + torch.arange(H, device=x.device)) * width + left[:, None]  # [B, H]: first pixel of each row
    runs = padded.as_strided((2 * B * height * width - W + 1, W * C), (C, 1))  # the W pixels from every pixel on
    return runs.index_select(0, starts.flatten()).view(B, H, W, C).permute(0, 3, 1, 2)


def _resize_crops(x: Tensor, crops: Tensor) -> Tensor:
    """Cut out, resize to the full size (bilinear), flip. uint8 [B, C, H, W], crops [B, 5] -> uint8 [B, C, H, W]"""
    top, left, height, width, flip = crops.unbind(1)
    zero = torch.zeros_like(top)
    across = torch.stack([torch.where(flip == 1, -width, width), zero, 2 * left + width - 1], 1)
    down = torch.stack([zero, height, 2 * top + height - 1], 1)
    grid = torch.nn.functional.affine_grid(torch.stack([across, down], 1), list(x.shape), align_corners=False)
    resized = torch.nn.functional.grid_sample(x.float(), grid, padding_mode="border", align_corners=False)
    return resized.round().clamp(0, 255).to(torch.uint8)


def layout_of(x: Tensor) -> torch.memory_format:
    """How a batch lies in memory: images channels last, vectors row by row."""
    return torch.channels_last if x.ndim == 4 else torch.contiguous_format


def _as_image(values: Sequence[float], images: Tensor, device: torch.device) -> Tensor:
    """One value a channel, 0 ... 1, as an image 0 ... 255 of the size of the others, channels last. -> float32 [1, C, H, W]

    Of vectors one value a feature, as it is. -> float32 [1, D]
    """
    if images.ndim == 2:
        return torch.tensor(values, device=device).unsqueeze(0)
    column = torch.tensor(values, device=device).view(1, -1, 1, 1) * 255
    return column.expand(1, *images.shape[1:]).contiguous(memory_format=torch.channels_last)
