"""Methods: what they learn, keep and see."""

import math

import pytest
import torch
import torch.nn.functional as F
from tiny import tiny_nets

import cmlib as cm
from cmlib import datasets
from cmlib.checkpoint import Position
from cmlib.errors import OptionError
from cmlib.experiment import fresh
from cmlib.loop import train_epoch
from cmlib.methods.base import METHODS, Option

EXACT = {"rtol": 1e-9, "atol": 1e-11}  # of values in double precision
PAIRS = [(name, scenario) for name, cls in METHODS.items() for scenario in cls.scenarios]


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


@pytest.fixture(scope="module")
def run_of(few_digits):
    """A function that makes a short run of a method."""

    def run(method, scenario, **options):
        return cm.run(experiment(method, scenario, **{"seed": 1, "train_per_class": 16, **options}), few_digits)

    return run


def experiment(method, scenario, seed=0, **options):
    return cm.Experiment("digits", scenario, method, seed, "smoke", **options)


def trained(digits, method, scenario, tasks=2, seed=0, **options):
    """A method after some tasks of one epoch each."""
    made = fresh(experiment(method, scenario, seed, **options), digits)
    for task in made.scenario.tasks[:tasks]:
        made.begin_task(task)
        train_epoch(made, made.make_optimizer(), task, 0, Position(seconds=[[]], steps=[0]))
        made.eval()
        made.end_task(task)
    return made


def batch(made, task, n=16):
    return made.scenario.prepare(task.x[:n]), task.y[:n]


@pytest.mark.parametrize(("method", "scenario"), PAIRS)
def test_every_method_runs_and_says_what_it_keeps(run_of, method, scenario):
    with tiny_nets():
        run = run_of(method, scenario)
    assert run.status == "finished" and run.matrix.shape == (5, 5)
    R = run.matrix
    assert all(0 <= R[i, j] <= 100 for i in range(5) for j in range(i + 1))
    assert all(math.isnan(R[i, j]) for i in range(5) for j in range(i + 1, 5))
    assert (run.R_task_known is None) == (scenario == "til")
    assert len(run.gradient_steps) == 5 and run.retained_scalars == sum(run.retained.values())


@pytest.mark.parametrize(("method", "scenario"), PAIRS)
def test_a_run_leaves_the_global_generator_alone_and_is_reproducible(run_of, method, scenario):
    with tiny_nets():
        first = run_of(method, scenario)
        torch.manual_seed(11)
        before = torch.random.get_rng_state()
        assert run_of(method, scenario).R == first.R
    assert torch.equal(before, torch.random.get_rng_state())


def test_runs_of_one_seed_are_paired(digits):
    made = [fresh(experiment(method, scenario, seed=2), digits) for method, scenario in PAIRS]
    for one in made[1:]:
        assert one.scenario.class_order.tolist() == made[0].scenario.class_order.tolist()
        assert torch.equal(one.backbone.conv.weight, made[0].backbone.conv.weight)
        assert torch.equal(one.backbone.blocks[8].conv2.weight, made[0].backbone.blocks[8].conv2.weight)


def test_with_norms_that_tasks_share_a_batch_passes_once(digits):
    """In TIL as in CIL: its running statistics move by the batch and by the support set, and the drift is that of one pass."""
    made = trained(digits, "cm", "til", batch_norm="shared")
    task = made.scenario.tasks[2]
    made.begin_task(task)
    made.train()
    x, y = batch(made, task)
    norm = made.backbone.task_norms()[0].norm_of(0)
    before = int(norm.num_batches_tracked)
    made.loss(x, y, task)
    assert int(norm.num_batches_tracked) == before + 2
    features = made.backbone.features(x)
    torch.testing.assert_close(made.til_drift(x, 2, features), made.til_drift(x, 2))


def test_hidden_and_output_layers_begin_with_other_weights(digits):
    made = trained(digits, "naive", "cil", tasks=1, head="mlp")
    hidden = made.trunk[0].weight
    assert all(not torch.equal(hidden[: len(head.weight)], head.weight) for head in made.heads)


@pytest.mark.usefixtures("double")
def test_til_drift_is_zero_at_the_first_step_of_a_task(digits):
    """Past batch norms are frozen, so nothing has moved yet; and past outputs never depend on the batch."""
    made = trained(digits, "cm", "til")
    task = made.scenario.tasks[2]
    made.begin_task(task)
    made.train()
    x, _ = batch(made, task)
    assert float(made.til_drift(x, 2).detach()) == 0.0


@pytest.mark.parametrize(("scenario", "lam", "passes"), [("cil", 0.1, 2), ("cil", 0.0, 1), ("til", 0.0, 1)])
def test_one_backbone_pass_feeds_all_heads_and_a_drift_without_weight_none(digits, scenario, lam, passes):
    made = trained(digits, "cm", scenario, lam=lam)
    task = made.scenario.tasks[2]
    made.begin_task(task)
    made.train()
    x, y = next(iter(made.batches(task, 0)))
    calls = []
    made.backbone.register_forward_hook(lambda module, inputs, output: calls.append(len(inputs[0])))
    made.past["backbone"].register_forward_hook(lambda module, inputs, output: calls.append(-len(inputs[0])))
    made.loss(x, y, task)
    assert calls == [len(x), len(task.support_y), -len(x)][: passes + 1]


@pytest.mark.parametrize(("kind", "moves"), [("trained", True), ("frozen", False)])
def test_projectors_are_trained_unless_frozen(digits, kind, moves):
    made = trained(digits, "cm", "cil", projectors=kind, tasks=1)
    task = made.scenario.tasks[1]
    made.begin_task(task)
    assert len(made.projectors) == 2  # two at the second task, then one each
    before = [parameter.clone() for parameter in made.projectors.parameters()]
    train_epoch(made, made.make_optimizer(), task, 0, Position(seconds=[[]], steps=[0]))
    changed = [not torch.equal(a, b) for a, b in zip(before, made.projectors.parameters(), strict=True)]
    assert all(changed) if moves else not any(changed)


def test_the_preset_text_follows_the_text():
    til, cil = (cm.Experiment("cifar10", scenario, "cm", preset="text") for scenario in ("til", "cil"))
    assert (til.batch_norm, til.augmentation, til.head) == ("stats", "resized-crop", "mlp") and cil.cil_loss == "both"
    assert cm.Experiment("cifar10", "til", "naive", preset="text").head == "mlp"
    sizes = [cm.Experiment(data, "cil", "er", preset="text").memory_size for data in ("cifar10", "cifar100", "tiny-imagenet")]
    ssil = [cm.Experiment(data, "cil", "ssil", preset="text") for data in ("cifar10", "cifar100", "tiny-imagenet")]
    assert sizes == [one.memory_size for one in ssil] == [1000, 500, 1000] and {one.epochs for one in ssil} == {100}
    assert cm.Experiment("cifar10", "cil", "er", profile="mini", preset="text").memory_size == 50  # of its own scale
    assert cm.Experiment("cifar10", preset="text", head="linear").head == "linear"
    assert til.variant == "augmentation=resized-crop,batch_norm=stats,drift_sum=over_t" and til.but(seed=3).batch_norm == "stats"
    assert cm.Experiment("cifar10", preset="default") == cm.Experiment("cifar10")
    with pytest.raises(OptionError, match="unknown preset 'txt'; allowed: default, text"):
        cm.Experiment(preset="txt")


@pytest.mark.parametrize(("method", "scenario"), PAIRS)
def test_every_method_runs_with_the_preset_text(run_of, method, scenario):
    with tiny_nets():
        run = run_of(method, scenario, preset="text")
    assert run.status == "finished" and run.matrix.shape == (5, 5)


@pytest.mark.usefixtures("double")
def test_own_projectors_for_the_centroids(digits):
    made = trained(digits, "cm", "cil", centroids_merging="linear")
    assert [type(p).__name__ for p in made.centroid_projectors] == ["Linear", "Linear"]
    wanted = torch.cat([p(c) for p, c in zip(made.centroid_projectors, made.centroids, strict=True)])
    torch.testing.assert_close(made.anchors(), wanted, **EXACT)


@pytest.mark.usefixtures("double")
def test_final_centroids_are_those_of_eval_mode(digits):
    made = trained(digits, "cm", "til", tasks=1)
    task = made.scenario.tasks[0]
    made.eval()
    e = made.embed(made.scenario.prepare(task.support_x), 0)
    wanted = torch.stack([e[task.support_y == k].mean(0) for k in task.classes])
    torch.testing.assert_close(made.centroids[0], wanted, **EXACT)


def test_support_images_never_occur_in_training_batches(digits):
    for scenario in ("til", "cil"):
        made = trained(digits, "cm", scenario)
        task = made.scenario.tasks[2]
        made.begin_task(task)
        kept = [one for past in made.scenario.tasks[:3] for one in past.support_x]
        support = {tuple(image.flatten().tolist()) for image in torch.stack(kept)}
        twins = {tuple(image.flatten().tolist()) for one in made.scenario.tasks for image in one.x} & support
        mean, std = made.scenario.mean, made.scenario.std
        for x, _ in made.batches(task, 0):
            images = (x * std + mean).round().to(torch.uint8)
            assert not ({tuple(image.flatten().tolist()) for image in images} & (support - twins))


@pytest.mark.usefixtures("double")
def test_a_replayed_sample_reaches_its_own_head_only(digits):
    made = trained(digits, "er", "til")
    task = made.scenario.tasks[2]
    made.begin_task(task)
    past = made.scenario.tasks[0]
    x, y = batch(made, past)
    made.zero_grad()
    made.own_task_loss(made.backbone.features(x), y).backward()
    moved = [float(head.weight.grad.abs().max()) for head in made.heads]  # masked scores have gradient 0
    assert moved[0] > 0 and moved[1:] == [0.0, 0.0]
    logits = made.heads[0](made.backbone.features(x))
    torch.testing.assert_close(made.own_task_loss(made.backbone.features(x), y), F.cross_entropy(logits, y), **EXACT)


def test_batches_of_rehearsal(digits):
    counts = {}
    for method, scenario, split in [("er", "til", "tasks"), ("er", "cil", "half"), ("cm", "cil", "equal_steps")]:
        made = trained(digits, method, scenario, batch_split=split)
        task = made.scenario.tasks[2]
        made.begin_task(task)
        _, y = next(iter(made.batches(task, 0)))
        counts[split] = torch.bincount(y // 2).tolist(), len(list(made.batches(task, 0))), len(task.y)
    assert counts["tasks"][0] == [11, 10, 11] and counts["tasks"][1] == math.ceil(counts["tasks"][2] / 11)
    assert counts["half"][0][2] == 16 and counts["half"][1] == math.ceil(counts["half"][2] / 16)
    assert counts["equal_steps"][0] == [11, 10, 11] and counts["equal_steps"][1] == math.ceil(counts["equal_steps"][2] / 32)


@pytest.mark.parametrize(("method", "scenario"), PAIRS)
def test_every_batch_is_whole_with_crops_and_flips(digits, method, scenario):
    """Also the last one of an epoch, which holds fewer current images."""
    with tiny_nets():
        made = trained(digits, method, scenario, augmentation="crop-flip")
    task = made.scenario.tasks[2]
    made.begin_task(task)
    sizes = [(len(x), len(y)) for x, y in made.batches(task, 0)]
    assert all(images == labels for images, labels in sizes) and len(sizes) > 1
    assert sum(labels for _, labels in sizes) >= len(task.y) and sizes[-1] <= sizes[0]


def test_cumulative_trains_on_all_tasks_so_far(digits):
    made = trained(digits, "cumulative", "til")
    task = made.scenario.tasks[2]
    made.begin_task(task)
    seen = torch.cat([y for _, y in made.batches(task, 0)])
    assert torch.bincount(seen).tolist() == [30] * 6


def test_naive_cil_pushes_old_classes_to_zero(digits):
    run = cm.run(cm.Experiment("digits", "cil", "naive", epochs=3), digits)
    assert max(run.matrix[-1, :-1]) < 5 < 50 < run.matrix[-1, -1]


def test_retained_is_counted_on_the_tensors(digits):
    til, cil = trained(digits, "cm", "til"), trained(digits, "cm", "cil")
    counts = {name: sum(t.numel() for t in tensors) for name, tensors in til.retained().items()}
    assert counts == {"past batch norms": 4 * 688, "centroids": 2 * 2 * 128}  # two tasks: one past norm
    counts = {name: sum(t.numel() for t in tensors) for name, tensors in cil.retained().items()}
    assert counts["exemplars"] == 20 * 64 and counts["labels"] == 20 and counts["centroids"] == 512
    assert counts["projectors"] == 2 * 2 * (128 * 128 + 128)
    assert trained(digits, "naive", "cil").retained() == {}


def test_head_and_batch_norm_options(digits):
    wide = trained(digits, "naive", "cil", head="mlp")
    assert isinstance(wide.trunk, torch.nn.Sequential) and isinstance(wide.heads[0], torch.nn.Linear)
    private = trained(digits, "naive", "til", batch_norm="private")
    assert len(private.backbone.norm.norms) == 2
    with pytest.raises(OptionError, match="only scenario til"):
        experiment("cm", "cil", batch_norm="private")
    with pytest.raises(OptionError, match="batch_norm=unfrozen does not work with er; allowed: shared, private, stats"):
        experiment("er", "til", batch_norm="unfrozen")


def test_a_random_support_set_that_misses_a_class_is_said_in_words(digits):
    with pytest.raises(cm.CmlibError, match="support_size=2 is without a class of task 1; the smallest that works"):
        for seed in range(40):
            trained(digits, "cm", "til", tasks=1, seed=seed, stratified=False, support_size=2)


def test_options_parse_and_refuse():
    number = Option(0.1, "", float, low=0)
    assert number.parse("lam", "0.5") == 0.5 and Option(3, "", int, low=1).parse("epochs", "7") == 7
    assert Option(True, "", bool).parse("stratified", "false") is False
    assert Option(None, "", int, low=1, optional=True).parse("train_per_class", "none") is None
    for bad in ("nan", "-1", "x", "inf", None, True):
        with pytest.raises(OptionError, match=r"lam=.* is impossible; allowed: a number of at least 0"):
            number.parse("lam", bad)
