"""What a method's batches hold: crops and flips of exemplars as of current images, shares, other draws for other seeds."""

import math
from functools import lru_cache

import pytest
import torch
from small import arrays, tiny_method

from cmlib.experiment import Experiment, allowed_options
from cmlib.memory import ExemplarMemory
from cmlib.methods import METHODS
from cmlib.nets import make_head
from cmlib.scenario import PADDING, augment

REPLAYING = [("er", "til"), ("er", "cil"), ("cm", "cil"), ("ssil", "cil"), ("cope", "cil"), ("cumulative", "til")]
CROPS = torch.tensor(
    [[up, left, flip] for up in range(2 * PADDING + 1) for left in range(2 * PADDING + 1) for flip in (0, 1)]
)  # the 162 that can be drawn
AS_IT_IS = CROPS.tolist().index([PADDING, PADDING, 0])


@pytest.fixture(scope="module")
def images():
    """32 x 32, the size for which crops and flips are meant; no two images, and no two crops of one, are alike."""
    return arrays(each=12, size=32, augmentation="crop-flip")


def made_for(images, method, scenario, seed=0, **options):
    """A method on the tiny network, its first task done: exemplars are kept, nothing was trained."""
    settings = {"n_tasks": 2, "batch_size": 8, "memory_size": 8, "support_size": 4, "exemplars_per_class": 4, "epochs": 1}
    here = {name for name, option in allowed_options(METHODS[method]).items() if option.fits(scenario)}
    known = {name: value for name, value in settings.items() if name in here}
    made = tiny_method(Experiment("arrays", scenario, method, seed, **{**known, **options}), images)
    first, second = made.scenario.tasks
    made.begin_task(first)
    if method == "cope":  # its memory fills along the stream
        list(made.batches(first, 0))
    made.eval()
    made.end_task(first)
    made.begin_task(second)
    return made


@lru_cache(maxsize=4)
def crops_by_image(task):
    """All crops of all training images of a task: {(label, pixels): place in CROPS}."""
    found = {}
    for original, label in zip(task.x, task.y.tolist(), strict=True):
        crops = augment(original.expand(len(CROPS), -1, -1, -1), CROPS, "crop-flip").numpy()
        found |= {(label, crop.tobytes()): place for place, crop in enumerate(crops)}
    assert len(found) == len(task.y) * len(CROPS)
    return found


def crops_of(made, x, y):
    """The crop of each image of a batch: its place in CROPS."""
    raw = (x * made.scenario.std + made.scenario.mean).round().to(torch.uint8).contiguous().numpy()
    keys = [(label, image.tobytes()) for image, label in zip(raw, y.tolist(), strict=True)]
    places = [crops_by_image(made.scenario.tasks[label // 2]).get((label, pixels)) for label, pixels in keys]
    assert None not in places, "an image that is no crop of a training image of its class"
    return places


def epoch_of(made, epoch=0):
    """Batches of the second task: [(crops, labels), ...]."""
    return [(crops_of(made, x, y), y.tolist()) for x, y in made.batches(made.scenario.tasks[1], epoch)]


@pytest.mark.parametrize(("method", "scenario"), REPLAYING)
def test_replayed_images_are_cropped_and_flipped_as_current_ones(images, method, scenario):
    batches = epoch_of(made_for(images, method, scenario))
    for past in (True, False):
        crops = [crop for found, labels in batches for crop, label in zip(found, labels, strict=True) if (label < 2) == past]
        ups, lefts, flips = CROPS[crops].T.tolist()
        assert len(crops) >= 8 and crops.count(AS_IT_IS) <= 2  # one in 162 stays as it is by chance
        assert len(set(ups)) > 3 and len(set(lefts)) > 3 and set(flips) == {0, 1}


@pytest.mark.parametrize(("method", "scenario"), [("naive", "til"), ("er", "cil"), ("cope", "cil")])
def test_crops_are_drawn_anew_for_each_batch_epoch_and_seed(images, method, scenario):
    (first, _), (second, _), *_ = epoch_of(made_for(images, method, scenario))
    again = epoch_of(made_for(images, method, scenario))[0][0]
    later = epoch_of(made_for(images, method, scenario), epoch=1)[0][0]
    other = epoch_of(made_for(images, method, scenario, seed=1))[0][0]
    assert first == again and all(first != crops for crops in (second, later, other))


def test_no_augmentation_leaves_images_as_they_are(images):
    made = made_for(images, "er", "cil", augmentation="none")
    assert {crop for crops, _ in epoch_of(made) for crop in crops} == {AS_IT_IS}


@pytest.mark.parametrize("scenario", ["til", "cil"])
@pytest.mark.parametrize("chunk", [None, 2])
def test_support_images_are_not_augmented(images, scenario, chunk):
    """The support images and their labels, in chunks in another order, neither cropped nor flipped."""
    made = made_for(images, "cm", scenario, support_chunk=chunk)
    task = made.scenario.tasks[1]
    as_they_are = zip(made.scenario.prepare(task.support_x).flatten(1).tolist(), task.support_y.tolist(), strict=True)
    assert sorted(zip(made.support.flatten(1).tolist(), made.support_y.tolist(), strict=True)) == sorted(as_they_are)


def test_exemplars_kept_for_gem_and_emr_go_through_the_net_as_they_are(images):
    gem, emr = made_for(images, "gem", "til"), made_for(images, "emr", "til", head="linear")
    second = gem.scenario.tasks[1]
    for made, ((x, *_),) in ((gem, gem._exemplars(second)), (emr, emr._past(second))):
        assert torch.equal(x, made.scenario.prepare(made.memory.x)) and len(x) == 8


def test_shares_of_replay_in_a_batch(images):
    """Of 8 samples: tasks 4 and 4, half 4 and 4, double 8 and 8; the last batch of an epoch has fewer current images."""
    for split, current, replayed in (("tasks", 4, 4), ("half", 4, 4), ("double", 8, 8)):
        batches = [labels for _, labels in epoch_of(made_for(images, "er", "cil", batch_split=split))]
        counts = [(sum(label >= 2 for label in labels), sum(label < 2 for label in labels)) for labels in batches]
        assert counts == [(current, replayed)] * (24 // current), split
    odd = [labels for _, labels in epoch_of(made_for(images, "er", "cil", batch_size=7, batch_split="half"))]
    assert [sum(label < 2 for label in labels) for labels in odd] == [3] * math.ceil(24 / 4)


def test_exemplars_are_drawn_at_random_by_seed_and_task(images):
    x, y = images.x_train, images.y_train
    kept = {}
    for seed, task in ((0, 0), (0, 1), (1, 0)):
        memory = ExemplarMemory(8)
        memory.add_task(x, y, seed, task)
        kept[seed, task] = {tuple(image) for image in memory.x.flatten(1).tolist()}
        assert len(kept[seed, task]) == 8
    first = {tuple(x[(y == k).nonzero()[i]].flatten().tolist()) for k in range(4) for i in range(2)}
    assert len({frozenset(one) for one in (*kept.values(), first)}) == 4


def test_emr_freezes_past_heads_and_learns_with_the_rest(images):
    made = made_for(images, "emr", "til")
    learning = {id(one) for group in made.make_optimizer().param_groups for one in group["params"]}
    assert not any(id(one) in learning or one.requires_grad for one in made.heads[0].parameters())
    assert all(id(one) in learning for part in (made.heads[1], made.backbone.conv) for one in part.parameters())


@pytest.mark.parametrize("method", ["naive", "er"])
def test_naive_learns_the_labels_of_its_images(images, method):
    """The loss of a batch in TIL, sample by sample over the task's own classes."""
    made = made_for(images, method, "til").eval()
    task = made.scenario.tasks[1]
    with torch.no_grad():
        made.heads[1].weight.mul_(50)  # so that the images' losses come apart
    x, y = made.scenario.prepare(task.x[:6]), torch.tensor([2, 3, 3, 2, 3, 2])
    logits = made.heads[1](made.backbone.features(x, 1))
    wanted = sum(-float(row.detach().log_softmax(0)[label - 2]) for row, label in zip(logits, y.tolist(), strict=True)) / 6
    assert float(made.loss(x, y, task).detach()) == pytest.approx(wanted, rel=1e-5)
    swapped = float(made.loss(x, y.flip(0), task).detach())
    assert abs(swapped - wanted) > 1e-3 * wanted


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_heads_start_from_weights_of_their_own(kind):
    """Each task's head from other first weights, the same ones for every method of a seed."""
    weights = [make_head(kind, 2, seed, task).state_dict() for seed, task in ((0, 0), (0, 1), (1, 0), (0, 0))]
    for name in weights[0]:
        first, second, other, again = (one[name] for one in weights)
        assert torch.equal(first, again) and not torch.equal(first, second) and not torch.equal(first, other)
