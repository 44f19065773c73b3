"""Tasks, support sets, splits and batches."""

import pytest
import torch

from cmlib import datasets
from cmlib.datasets import ImageData
from cmlib.errors import OptionError
from cmlib.memory import ExemplarMemory, quota
from cmlib.methods.base import split_batch
from cmlib.scenario import PADDING, Scenario, augment, draw_crops


def numbered(classes=4, each=20, size=8, augmentation="none"):
    """A data set whose images carry their own row number, so that a batch says which rows it holds."""
    n = classes * each
    x = torch.zeros(n, 2, size, size, dtype=torch.uint8)
    x[:, 0] = (torch.arange(n) // 200).view(-1, 1, 1)
    x[:, 1] = (torch.arange(n) % 200).view(-1, 1, 1)
    y = torch.arange(n) % classes
    names = tuple(f"c{k}" for k in range(classes))
    return ImageData("arrays", x, y, x[: 4 * classes], y[: 4 * classes], names, (0.0, 0.0), (1.0, 1.0), augmentation, "0" * 12)


def rows_of(x):
    return (x[:, 0, 4, 4].round() * 200 + x[:, 1, 4, 4].round()).long().tolist()


def raw(scenario, x):
    return x * scenario.std + scenario.mean


def test_labels_follow_the_class_order():
    data = numbered()
    scenario = Scenario(data, n_tasks=2, seed=3)
    order = scenario.class_order.tolist()
    assert sorted(order) == [0, 1, 2, 3] and order != [0, 1, 2, 3]
    assert scenario.class_names == tuple(f"c{k}" for k in order)
    for task in scenario.tasks:
        assert set(task.y.tolist()) == set(task.classes) == {2 * task.index, 2 * task.index + 1}
        originals = [data.y_train[row].item() for row in rows_of(task.x.float())]
        assert [order.index(k) for k in originals] == task.y.tolist()
        originals = [data.y_test[row].item() for row in rows_of(task.test_x.float())]
        assert [order.index(k) for k in originals] == task.test_y.tolist() and set(task.test_y.tolist()) == set(task.classes)


def test_natural_order_for_seed_0():
    assert Scenario(numbered(), n_tasks=2, seed=0).class_order.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(5))
def test_support_is_stratified_disjoint_and_never_trained_on(seed):
    scenario = Scenario(numbered(), n_tasks=2, seed=seed, support_size=7)
    for task in scenario.tasks:
        support, training = set(rows_of(task.support_x.float())), set(rows_of(task.x.float()))
        counts = torch.bincount(task.support_y - task.classes.start).tolist()
        assert sorted(counts) == [3, 4] and len(support) == 7
        assert not support & training and len(support | training) == 40
        for epoch in range(3):
            seen = [
                row for x, _ in scenario.batches([(task.x, task.y, 8)], task.index, epoch) for row in rows_of(raw(scenario, x))
            ]
            assert sorted(seen) == sorted(training)  # each training image once, no support image


def test_a_class_is_never_missing_from_a_support_set():
    """20 classes, 100 images, 1,000 draws: at random one class is missing in about 11 % of the draws; here in none."""
    data = numbered(classes=20, each=30)
    scenario = Scenario(data, n_tasks=1, seed=0, support_size=100)
    task_y = torch.cat([scenario.tasks[0].y, scenario.tasks[0].support_y])
    missing_at_random = 0
    for seed in range(1000):
        scenario.seed = seed
        rows = scenario._support_rows(0, task_y, 100, True)
        assert torch.bincount(task_y[rows], minlength=20).tolist() == [5] * 20
        rows = torch.randperm(len(task_y), generator=torch.Generator().manual_seed(seed))[:100]
        missing_at_random += int(torch.bincount(task_y[rows], minlength=20).min() == 0)
    assert missing_at_random > 20


def test_all_methods_of_a_seed_share_the_split():
    first = Scenario(numbered(), n_tasks=2, seed=4, support_size=6)
    again = Scenario(numbered(), "cil", n_tasks=2, seed=4, support_size=6)
    assert all(torch.equal(a.support_x, b.support_x) for a, b in zip(first.tasks, again.tasks, strict=True))


def test_train_per_class_takes_the_first_in_file_order():
    data = numbered()
    for seed in (0, 1):
        rows = [row for task in Scenario(data, n_tasks=2, seed=seed, train_per_class=5).tasks for row in rows_of(task.x.float())]
        assert sorted(rows) == list(range(20))


def test_validation_split_is_a_fifth_of_the_training_images():
    scenario = Scenario(numbered(), n_tasks=2, seed=0, eval_split="val")
    for task in scenario.tasks:
        held, training = set(rows_of(task.test_x.float())), set(rows_of(task.x.float()))
        assert len(held) == 8 and len(training) == 32 and not held & training
        assert torch.bincount(task.test_y - task.classes.start).tolist() == [4, 4]


def test_epochs_are_shuffled_anew_and_reproducibly():
    """An order of its own for every epoch, task and seed, though two seeds may have the same images in a task."""
    data = numbered()

    def order(epoch, seed=1, index=0):
        scenario = Scenario(data, n_tasks=1, seed=seed)
        task = scenario.tasks[0]
        return [row for x, _ in scenario.batches([(task.x, task.y, 16)], index, epoch) for row in rows_of(raw(scenario, x))]

    orders = [order(0), order(1), order(0, index=1)]
    scenario = Scenario(data, n_tasks=1, seed=1)
    scenario.seed = 2  # the same images in the same places, so that the order alone can differ
    task = scenario.tasks[0]
    orders.append([row for x, _ in scenario.batches([(task.x, task.y, 16)], 0, 0) for row in rows_of(raw(scenario, x))])
    assert order(0) == orders[0] and len({tuple(one) for one in orders}) == 4
    assert all(sorted(one) == sorted(orders[0]) for one in orders)


def test_several_parts_fill_each_batch_in_their_shares():
    scenario = Scenario(numbered(), "cil", n_tasks=2, seed=0)
    now, past = scenario.tasks[1], scenario.tasks[0]
    few_x, few_y = past.x[:6], past.y[:6]
    batches = list(scenario.batches([(now.x, now.y, 12), (few_x, few_y, 4)], 1, 0))
    assert [len(y) for _, y in batches] == [16, 16, 16, 8]  # 40 images in steps of 12, and 4 exemplars each time
    for x, y in batches:
        assert (y[-4:] < 2).all() and (y[:-4] >= 2).all()
        assert set(rows_of(raw(scenario, x[-4:]))) <= set(rows_of(few_x.float()))
    replayed = [row for x, _ in batches for row in rows_of(raw(scenario, x[-4:]))]
    assert sorted(replayed[:6]) == sorted(rows_of(few_x.float()))  # one whole round before the next
    assert len(list(scenario.batches([(now.x, now.y, 12), (few_x, few_y, 4)], 1, 0, steps=2))) == 2


def test_batches_are_normalised_and_channels_last():
    data = datasets.load("digits")
    scenario = Scenario(data, seed=0)
    task = scenario.tasks[0]
    x, _ = next(iter(scenario.batches([(task.x, task.y, 32)], 0, 0)))
    assert x.dtype == torch.float32 and x.is_contiguous(memory_format=torch.channels_last)
    everything = scenario.prepare(data.x_train)
    assert abs(float(everything.mean())) < 0.02 and abs(float(everything.std()) - 1) < 0.02


def slow_crop(image, row, column, flip):
    height, width = image.shape[1:]
    out = torch.zeros_like(image)
    for i in range(height):
        for j in range(width):
            source_j = (width - 1 - j if flip else j) + column - PADDING
            source_i = i + row - PADDING
            if 0 <= source_i < height and 0 <= source_j < width:
                out[:, i, j] = image[:, source_i, source_j]
    return out


def test_augmentation_against_pixel_loops():
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (9, 3, 6, 7), generator=g, dtype=torch.uint8)
    crops = draw_crops(9, g, "crop-flip")
    wanted = torch.stack([slow_crop(image, *crop) for image, crop in zip(x, crops.tolist(), strict=True)])
    assert torch.equal(augment(x, crops, "crop-flip"), wanted)
    assert augment(x, crops, "none") is x
    assert set(draw_crops(500, g, "crop-flip")[:, 0].tolist()) == set(range(2 * PADDING + 1))
    flips = draw_crops(500, g, "flip")
    assert set(flips[:, 0].tolist()) == {PADDING} and 200 < int(flips[:, 2].sum()) < 300


def test_impossible_requests_say_what_is_allowed():
    data = numbered()
    with pytest.raises(OptionError, match=r"n_tasks=3 does not divide the 4 classes; allowed: 1, 2, 4"):
        Scenario(data, n_tasks=3)
    with pytest.raises(OptionError, match="support_size=40 leaves no training image"):
        Scenario(data, n_tasks=2, support_size=40)
    with pytest.raises(OptionError, match="support_size=1 is smaller than the 2 classes"):
        Scenario(data, n_tasks=2, support_size=1)
    with pytest.raises(OptionError, match="class 'c0' has only 20 images"):
        Scenario(data, n_tasks=2, train_per_class=21)


@pytest.mark.parametrize("numbers", [{"train_per_class": 0}, {"n_tasks": "5"}, {"seed": -1}, {"support_size": 2.5}])
def test_numbers_of_a_scenario_are_whole_and_large_enough(numbers):
    ((name, value),) = numbers.items()
    with pytest.raises(OptionError, match=f"{name}={value} is impossible; allowed: a whole number of at least"):
        Scenario(numbered(), **{"n_tasks": 2, **numbers})


def test_memory_is_balanced_and_shrinks():
    memory = ExemplarMemory(10)
    x = torch.arange(80, dtype=torch.uint8).view(80, 1, 1, 1)
    memory.add_task(x[:40], torch.arange(40) % 2, 0, 0)
    first = set(memory.x.flatten().tolist())
    assert torch.bincount(memory.y).tolist() == [5, 5]
    memory.add_task(x[40:], torch.arange(40) % 2 + 2, 0, 1)
    assert torch.bincount(memory.y).tolist() == [3, 3, 2, 2]
    kept = set(memory.x[memory.y < 2].flatten().tolist())
    assert kept < first and all(int(row) % 2 == int(label) % 2 for row, label in zip(memory.x.flatten(), memory.y, strict=True))
    assert memory.y[memory.of_classes(2, 4)].tolist() == [2, 2, 3, 3]


def test_memory_per_task_and_from_a_checkpoint():
    memory = ExemplarMemory(6, "per_task")
    x = torch.arange(80, dtype=torch.uint8).view(80, 1, 1, 1)
    for task in range(2):
        memory.add_task(x[40 * task : 40 * task + 40], torch.arange(40) % 2 + 2 * task, 0, task)
    assert torch.bincount(memory.y).tolist() == [3, 3, 3, 3]
    other = ExemplarMemory(6, "per_task")
    other.load_state_dict(memory.state_dict())
    assert torch.equal(other.x, memory.x) and torch.equal(other.y, memory.y)


def test_shares():
    assert [split_batch(32, n) for n in (1, 2, 3, 4, 5)] == [[32], [16, 16], [11, 11, 10], [8] * 4, [7, 7, 6, 6, 6]]
    assert split_batch(2, 4) == [1, 1, 1, 1]
    assert quota(50, [4, 7, 9]) == {4: 17, 7: 17, 9: 16}


def test_resized_crops():
    x = torch.randint(0, 256, (3, 3, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    whole = torch.tensor([[0.0, 0.0, 1.0, 1.0, 0.0]] * 2 + [[0.0, 0.0, 1.0, 1.0, 1.0]])
    same = augment(x, whole, "resized-crop")
    assert torch.equal(same[:2], x[:2]) and torch.equal(same[2], x[2].flip(2))
    part = torch.tensor([[0.5, 0.25, 0.5, 0.5, 0.0]] * 3)  # rows 4 to 8, columns 2 to 6
    wanted = torch.nn.functional.interpolate(x[:, :, 4:, 2:6].float(), size=8, mode="bilinear", align_corners=False)
    inside = slice(1, -1)  # at its edge a crop sees the pixels beside it
    got = augment(x, part, "resized-crop").float()
    assert (got - wanted)[:, :, inside, inside].abs().max() <= 0.5


def test_draws_of_resized_crops():
    crops = draw_crops(4000, torch.Generator().manual_seed(0), "resized-crop")
    top, left, height, width, flip = crops.unbind(1)
    assert crops.shape == (4000, 5) and bool((top + height <= 1 + 1e-6).all()) and bool((left + width <= 1 + 1e-6).all())
    area, free = height * width, (height < 1) & (width < 1)
    ratio = (width / height)[free]
    assert 0.079 < float(area.min()) < 0.1 and bool((ratio > 0.749).all()) and bool((ratio < 1.334).all())
    assert abs(float(flip.mean()) - 0.5) < 0.03 and abs(float(area.mean()) - 0.53) < 0.02


def test_task_sizes_alone_say_how_many_tasks_there_are():
    for sizes in ((4, 3, 3), (1, 1, 1, 1, 1, 1, 4)):
        made = Scenario(datasets.load("digits"), task_sizes=sizes)
        assert made.n_tasks == len(made.tasks) == len(sizes) and [len(task.classes) for task in made.tasks] == list(sizes)
