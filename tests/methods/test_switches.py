"""Switches: each point where the paper and its released code differ is an option that does what it says, and nothing else.

The losses are held against slow ones written here in loops, in double precision, values and gradients.
"""

import copy
import itertools
import math

import pytest
import torch
from tiny import tiny_nets

import cmlib as cm
from cmlib import datasets
from cmlib.checkpoint import Position
from cmlib.errors import OptionError
from cmlib.experiment import COMMON, allowed_options, fresh, identity
from cmlib.loop import train_epoch
from cmlib.methods.base import METHODS
from cmlib.profiles import PRESETS, PROFILES
from cmlib.randomness import class_order
from cmlib.reproduction import grids, sweep
from cmlib.scenario import Scenario, arrival
from cmlib.store import Store, committed

PAIRS = [(name, scenario) for name, cls in METHODS.items() for scenario in cls.scenarios]
NEW = {  # the options that came with the switches, and their neutral values
    "class_order": "paper",
    "drift_weight": "lam",
    "drift_sum": "mean",
    "drift_space": "own",
    "drift_samples": "batch",
    "past_batch_norm": "running",
    "kept_centroids": "task_end",
    "support_chunk": None,
    "shuffle": "epoch",
    "batch_norm_batches": "whole",
    "prototype_update": "always",
    "stream": "whole",
    "scale_start": "random",
}


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


def experiment(method, scenario, seed=0, **options):
    return cm.Experiment("digits", scenario, method, seed, "smoke", **{"train_per_class": 14, **options})


def few_steps(made, task, steps=2, epoch=0):
    """Begin a task and make some steps of it."""
    made.begin_task(task)
    made.train()
    optimizer = made.make_optimizer()
    for x, y in itertools.islice(made.batches(task, epoch), steps):
        made.step(optimizer, x, y, task)
    return made


def in_third_task(digits, method, scenario, **options):
    """A method two steps into its third task, in double precision, with a batch of it."""
    made = fresh(experiment(method, scenario, **options), digits)
    for task in made.scenario.tasks[:3]:
        few_steps(made, task)
        if task.index < 2:
            made.eval()
            made.end_task(task)
    x, y = next(iter(made.batches(task, 1)))
    made.double().train()
    if method == "cm":
        made.support = made.support.double()
    return made, x.double(), y, task


def gradients(loss, parameters):
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters, strict=True)]


# -- CM: a slow loss, written from the description -------------------------------------------------------------------------


def apart(a, b, kind="euclidean"):
    if kind == "squared":
        return ((a - b) ** 2).sum()
    return 1 - (a @ b) / (a.norm() * b.norm()) if kind == "cosine" else (a - b).norm()


def slow_centroids(net, task):
    """Mean embedding of each class; each chunk of the support set goes through the network alone."""
    size = net.option["support_chunk"] or len(net.support)
    embedded = [
        net.heads[task.index](f)
        for start in range(0, len(net.support), size)
        for f in net.backbone.features(net.support[start : start + size])
    ]
    labels = net.support_y.tolist()
    return [sum(e for e, y in zip(embedded, labels, strict=True) if y == k) / labels.count(k) for k in task.classes]


def slow_drift(net, x, y, t, past_features, features_of):
    """Mean (or sum) over the past tasks of the mean distance, a sample at a time."""
    means = []
    for i in range(t):
        before, now = net.past["heads"][i](past_features[i]), net.heads[i](features_of[i])
        if net.option["drift_space"] == "shared" and t >= 2:
            before, now = net.past["projectors"][i](before), net.projectors[i](now)
        counted = [b for b in range(len(x)) if net.option["drift_samples"] == "batch" or int(y[b]) >= 2 * t]
        means.append(sum(apart(before[b].detach(), now[b]) for b in counted) / len(counted))
    return sum(means) / {"sum": 1, "mean": t, "over_t": t + 1}[net.option["drift_sum"]]


def slow_loss(net, x, y, task):
    """The loss of CM in its third task, from its options alone."""
    option, t = net.option, task.index
    features, centroids = net.backbone.features(x), slow_centroids(net, task)
    past = net.past["backbone"]
    past.train(option["past_batch_norm"] == "batch")
    if net.kind == "til":
        past_features, features_of = zip(*[(past.features(x, i), net.backbone.features(x, i)) for i in range(t)], strict=True)
        terms = [[(net.heads[t](f), centroids, int(k) - task.classes.start) for f, k in zip(features, y, strict=True)]]
    else:
        past_features, features_of = [past.features(x)] * t, [features] * t
        own = net.centroid_projectors if option["centroids_merging"] != "shared" else net.projectors
        kept = [*(getattr(net, f"centroids_{i}") for i in range(t)), centroids]
        anchors = [own[i](c) for i, cs in enumerate(kept) for c in cs]
        merged = [sum(p(h(f)) for p, h in zip(net.projectors, net.heads, strict=True)) / (t + 1) for f in features]
        terms = [[(e, anchors, int(k)) for e, k in zip(merged, y, strict=True)]]
        if option["cil_loss"] == "both":  # each sample in the space of its own task too
            terms.append([(net.heads[k // 2](f), kept[k // 2], k % 2) for f, k in zip(features, y.tolist(), strict=True)])
    loss = 0.0
    for e, near, k in itertools.chain(*terms):
        scores = torch.stack([-apart(e, c, option["distance"]) for c in near])
        loss = loss - (scores[k] - scores.logsumexp(0)) / len(y)
    weight = option["lam"] if option["drift_weight"] == "lam" else 1.0
    return loss + weight * slow_drift(net, x, y, t, past_features, features_of)


BOTH = [
    {},
    {"drift_weight": "one"},
    {"drift_sum": "sum"},
    {"drift_sum": "over_t"},
    {"support_chunk": 4},
    {"drift_weight": "one", "drift_sum": "sum", "support_chunk": 3, "distance": "squared"},
]
CIL = [
    {"drift_space": "shared"},
    {"drift_samples": "current"},
    {"past_batch_norm": "batch"},
    {"centroids_merging": "own"},
    {"cil_loss": "both"},
    {"drift_weight": "one", "drift_sum": "sum", "drift_space": "shared", "drift_samples": "current", "past_batch_norm": "batch"},
    {"preset": "july22"},
    {"preset": "head"},
]


@pytest.mark.parametrize(("scenario", "options"), [(s, o) for s in ("til", "cil") for o in BOTH] + [("cil", o) for o in CIL])
def test_the_loss_and_its_gradient_are_those_of_a_slow_one(digits, scenario, options):
    with tiny_nets():
        made, x, y, task = in_third_task(digits, "cm", scenario, lam=0.3, batch_size=9, **options)
    slow = copy.deepcopy(made)
    names, parameters = zip(*[(n, p) for n, p in made.named_parameters() if p.requires_grad], strict=True)
    others = dict(slow.named_parameters())
    loss, wanted = made.loss(x, y, task), slow_loss(slow, x, y, task)
    torch.testing.assert_close(loss, wanted, rtol=1e-9, atol=1e-9)
    found, expected = gradients(loss, parameters), gradients(wanted, [others[name] for name in names])
    for name, one, other in zip(names, found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}")
    assert sum(float(one.abs().sum()) for one in found) > 1


def test_no_drift_without_lambda(digits):
    made, *_ = in_third_task(digits, "cm", "cil", lam=0, drift_weight="one")
    assert made.drift_weight(2) == 0
    made.option.update(lam=1e-9)
    assert made.drift_weight(2) == 1


def test_drift_space_is_shared_only_from_the_third_task_on(digits):
    made = fresh(experiment("cm", "cil", drift_space="shared"), digits)
    first, second = made.scenario.tasks[:2]
    few_steps(made, first).eval()
    made.end_task(first)
    made.begin_task(second)
    x, y = next(iter(made.batches(second, 0)))
    shared = made.train().loss(x, y, second)
    made.option["drift_space"] = "own"
    assert torch.equal(shared, made.loss(x, y, second))


# -- CM: centroids that are kept, the support set, the order of images --------------------------------------------------------


@pytest.mark.parametrize("scenario", ["til", "cil"])
@pytest.mark.parametrize("chunk", [None, 3])
def test_kept_centroids_are_those_of_the_last_step(digits, scenario, chunk):
    """In train mode, before the optimizer's step; an evaluation in between leaves them alone."""
    made = fresh(experiment("cm", scenario, kept_centroids="last_step", support_chunk=chunk), digits)
    for task in made.scenario.tasks[:2]:
        made.begin_task(task)
        made.train()
        optimizer = made.make_optimizer()
        for x, y in made.batches(task, 0):
            before = copy.deepcopy(made)
            made.step(optimizer, x, y, task)
        before.backbone.features(x)  # the batch goes first
        wanted = before.current_centroids(task)
        made.eval()
        made.end_task(task)
        made.loss(x, y, task)
        assert torch.equal(made.centroids[task.index], wanted)
        assert not torch.allclose(made.centroids[task.index], made.current_centroids(task), rtol=1e-2)


def test_chunks_of_the_support_set_are_mixed_and_move_the_running_statistics_each(digits):
    made = fresh(experiment("cm", "til", support_chunk=4), digits)
    task = made.scenario.tasks[0]
    made.begin_task(task)
    made.train()
    assert sorted(made.support_y.tolist()) == sorted(task.support_y.tolist())
    assert all(len(set(chunk.tolist())) == 2 for chunk in made.support_y.split(4)[:2])
    sizes = []
    made.backbone.register_forward_hook(lambda module, inputs, output: sizes.append(len(inputs[0])))
    made.current_centroids(task)
    assert sizes == [4, 4, 2] and int(made.backbone.norm.norms[0].num_batches_tracked) == 3


def test_a_scale_that_begins_near_one(digits):
    """The scale is sigmoid(5) whatever the embedding, learns like any other, and the shift starts as without the option."""
    usual, changed = (in_third_task(digits, "cm", "cil", scale_start=start, lr=1e-12)[0] for start in ("random", "near_one"))
    e = torch.randn(5, usual.size, dtype=torch.float64)
    for before, after in zip(usual.projectors, changed.projectors, strict=True):
        torch.testing.assert_close(after.scale(e), torch.full_like(e, 1 / (1 + math.exp(-5))), rtol=0, atol=1e-6)
        torch.testing.assert_close(after.shift(e), before.shift(e), rtol=0, atol=1e-6)
        after(e).sum().backward()
        assert after.scale[1].weight.grad.abs().max() > 1e-3


def test_options_that_would_change_nothing_are_refused(digits):
    with pytest.raises(OptionError, match="past_batch_norm=batch needs a batch norm that all tasks share"):
        fresh(experiment("cm", "til", past_batch_norm="batch"), digits)
    fresh(experiment("cm", "til", past_batch_norm="batch", batch_norm="shared"), digits)
    with pytest.raises(OptionError, match="head=mlp does nothing with cope"):
        experiment("cope", "cil", head="mlp")
    assert cm.Experiment("digits", "cil", "cope", preset="text").head == "linear"
    assert experiment("er", "cil", head="mlp").but(method="cope").head == "linear"


@pytest.mark.parametrize("merging", ["none", "offset"])
def test_projectors_without_a_scale_cannot_begin_near_one(digits, merging):
    with pytest.raises(OptionError, match=f"scale_start=near_one needs a scale; merging={merging} has none"):
        fresh(experiment("cm", "cil", merging=merging, scale_start="near_one"), digits)


def test_one_order_for_all_epochs(digits):
    """TIL: in every task; CIL: in the first one, which has no memory. Every image once an epoch, mixed."""
    for scenario in ("til", "cil"):
        made = fresh(experiment("cm", scenario, shuffle="once", batch_size=8), digits)
        for task in made.scenario.tasks[:2]:
            few_steps(made, task)
            images, again = (torch.cat([x for x, _ in made.batches(task, epoch)]) for epoch in (0, 1))
            assert torch.equal(images, again) == (scenario == "til" or not task.index)
            labels = torch.cat([y for _, y in made.batches(task, 1)])
            assert len(set(labels[:8].tolist())) > 1
            made.eval()
            made.end_task(task)
        usual = fresh(experiment("cm", scenario, batch_size=8), digits)
        task = usual.scenario.tasks[0]
        first, second = (torch.cat([x for x, _ in usual.batches(task, epoch)]) for epoch in (0, 1))
        assert not torch.equal(first, second)


# -- classes, tasks and batches ----------------------------------------------------------------------------------------------


def test_class_order_shuffled_for_every_seed(digits):
    assert arrival(10, 0, "shuffled").tolist() == [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]  # torch.manual_seed(0); torch.randperm(10)
    assert all(torch.equal(arrival(10, seed, "shuffled"), class_order(10, seed)) for seed in (1, 2, 3, 4))
    made = fresh(experiment("naive", "til", class_order="shuffled"), digits)
    assert made.scenario.class_order.tolist() == arrival(10, 0, "shuffled").tolist()
    assert Scenario(digits).class_order.tolist() == list(range(10))
    with pytest.raises(OptionError, match="unknown class_order 'none'; allowed: paper, shuffled"):
        Scenario(digits, class_order="none")


@pytest.mark.parametrize(("method", "scenario"), [(m, s) for m, s in PAIRS if m in ("er", "cumulative", "ssil")])
def test_batch_statistics_of_each_task_apart(digits, method, scenario):
    """Each task's samples are a batch of their own for the shared norm; in evaluation there is no difference."""
    made, x, y, task = in_third_task(digits, method, scenario, batch_norm_batches="by_task", batch_size=16)
    assert set((y // 2).tolist()) == {0, 1, 2} and not made.recordable
    slow = copy.deepcopy(made)
    parts = {i: slow.backbone(x[y // 2 == i]) for i in range(3)}
    rows = {i: iter(part) for i, part in parts.items()}
    wanted = torch.stack([next(rows[int(i)]) for i in y // 2])
    torch.testing.assert_close(made.features_by_task(x, y), wanted, rtol=1e-9, atol=1e-9)
    ours, theirs = (dict(one.backbone.named_buffers()) for one in (made, slow))
    assert all(torch.allclose(ours[name], theirs[name]) for name in theirs)
    whole = copy.deepcopy(made)
    whole.option["batch_norm_batches"] = "whole"
    assert torch.equal(made.eval().features_by_task(x, y), whole.eval().features_by_task(x, y))
    loss, other = (one.train().loss(x, y, task) for one in (made, whole))
    assert bool(torch.isfinite(loss)) and not torch.allclose(loss, other)


@pytest.mark.parametrize("scenario", ["til", "cil"])
def test_cumulative_with_a_whole_batch_of_every_task(digits, scenario):
    made = fresh(experiment("cumulative", scenario, batch_split="each", batch_size=10), digits)
    for task in made.scenario.tasks[:3]:
        drawn = [y for _, y in made.batches(task, 0)]
        assert len(drawn) == math.ceil(len(task.y) / 10)  # as many steps as the current task has batches
        counts = [torch.bincount(y // 2, minlength=3).tolist() for y in drawn]
        assert counts[:-1] == [[10] * (task.index + 1) + [0] * (2 - task.index)] * (len(drawn) - 1)
        assert sorted(torch.cat([y[y >= task.classes.start] for y in drawn]).tolist()) == task.y.tolist()


def test_prototypes_that_stay_after_the_first_task(digits):
    made = fresh(experiment("cope", "cil", prototype_update="first_task", prototype_init="random"), digits)
    start, (first, second) = made.prototypes.clone(), made.scenario.tasks[:2]
    few_steps(made, first)
    after = made.prototypes.clone()
    assert not torch.equal(after[:2], start[:2]) and torch.equal(after[2:], start[2:])
    few_steps(made, second)
    assert torch.equal(made.prototypes, after)


def test_a_stream_of_one_mini_batch(digits):
    made = fresh(experiment("cope", "cil", stream="first_batch", batch_size=10), digits)
    for task in made.scenario.tasks[:2]:
        made.begin_task(task)
        drawn = list(made.batches(task, 0))
        assert len(drawn) == 1 and len(drawn[0][1]) == (10 if not task.index else 20)
    assert int(made.memory.seen.sum()) == 20


# -- presets -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_fits_every_method(preset, profile):
    for name in {"paper": ("cifar10", "cifar100", "tiny-imagenet"), "mini": ("cifar10",)}.get(profile, ("digits",)):
        for method, scenario in PAIRS:
            made = cm.Experiment(name, scenario, method, 0, profile, preset=preset)
            for option, value in made.options.items():
                known = allowed_options(METHODS[method])[option]
                assert known.parse(option, value) == value, "a value that the option itself would refuse"


def test_every_rule_of_a_preset_is_an_option_somewhere():
    for rules in PRESETS.values():
        for where, values in rules:
            methods = [where["method"]] if "method" in where else list(METHODS)
            assert all(any(name in allowed_options(METHODS[m]) for m in methods) for name in values), (where, values)


def test_the_states_of_the_released_code():
    july, head = (cm.Experiment("cifar10", "cil", "cm", preset=name) for name in ("july22", "head"))
    common = {"projectors": "frozen", "centroids_merging": "own", "kept_centroids": "last_step", "stratified": False}
    assert all(one.options[name] == value for one in (july, head) for name, value in common.items())
    assert (july.drift_weight, july.drift_sum, july.drift_space, july.class_order) == ("lam", "mean", "own", "paper")
    assert (head.drift_weight, head.drift_sum, head.drift_space, head.class_order) == ("one", "sum", "shared", "shuffled")
    er = [cm.Experiment("cifar10", s, "er", preset=p) for p in ("july22", "head") for s in ("til", "cil")]
    assert [one.batch_norm_batches for one in er] == ["by_task", "whole", "by_task", "by_task"]
    assert [one.batch_split for one in er] == ["tasks", "half", "tasks", "tasks"]
    assert cm.Experiment("cifar10", "til", "cm", preset="july22").epochs == 20 and july.epochs == 10
    gem = [cm.Experiment(name, "til", "gem", preset="july22").exemplars for name in ("cifar10", "cifar100", "tiny-imagenet")]
    assert gem == ["random", "random", "first"]  # the first patterns of CIFAR's files are a mix of classes
    chunks = [cm.Experiment(name, "til", "cm", preset="head") for name in ("cifar10", "cifar100", "tiny-imagenet")]
    assert [(one.support_chunk, one.batch_size, one.lam) for one in chunks] == [(32, 32, 0.1), (16, 16, 0.1), (32, 32, 0.1)]
    assert cm.Experiment("cifar100", "cil", "ssil", preset="head").batch_size == 32


def after_two_tasks(digits, **options):
    """CM in CIL after two tasks of one epoch each, and its projectors as they were made."""
    made = fresh(experiment("cm", "cil", **options), digits)
    for task in made.scenario.tasks[:2]:
        made.begin_task(task)
        if task.index:
            start = [p.clone() for p in (*made.projectors.parameters(), *made.centroid_projectors.parameters())]
        train_epoch(made, made.make_optimizer(), task, 0, Position(seconds=[[]], steps=[0]))
        made.eval()
        made.end_task(task)
    return made, start


def test_the_head_of_the_released_code_on_toy_data(digits):
    """Projectors stay, lambda has no effect; in the code of July it has one, and the drift is averaged."""
    made, start = after_two_tasks(digits, preset="head", lam=0.1)
    other, _ = after_two_tasks(digits, preset="head", lam=0.9)
    kept = [*made.projectors.parameters(), *made.centroid_projectors.parameters()]
    assert len(start) == 16 and all(torch.equal(a, b) for a, b in zip(start, kept, strict=True))
    states = made.state_dict(), other.state_dict()
    assert states[0].keys() == states[1].keys() and all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    weak, strong = (after_two_tasks(digits, preset="july22", lam=lam)[0] for lam in (0.1, 0.9))
    assert not torch.equal(weak.backbone.conv.weight, strong.backbone.conv.weight)
    assert [weak.drift_weight(t) for t in (1, 2, 4)] == [0.1] * 3 and [made.drift_weight(t) for t in (1, 2, 4)] == [1, 2, 4]


def test_batches_of_the_released_code(digits):
    """A batch of 32: 32, then 16/16, 11/11/10, 8 x 4 and 7/7/6/6/6 samples a task, the current one first."""
    made = fresh(experiment("cm", "cil", preset="head", batch_size=32, train_per_class=32), digits)
    found = []
    for task in made.scenario.tasks:
        few_steps(made, task, steps=0).eval()
        _, y = next(iter(made.batches(task, 0)))
        counts = torch.bincount(y // 2, minlength=5).tolist()
        found.append([counts[task.index], *counts[: task.index]])
        made.end_task(task)
    assert found == [[32], [16, 16], [11, 11, 10], [8] * 4, [7, 7, 6, 6, 6]]


# -- nothing changes where nothing is said -------------------------------------------------------------------------------------


def test_neutral_defaults():
    options = {**COMMON, **{name: one for cls in METHODS.values() for name, one in cls.options.items()}}
    assert {name: options[name].default for name in NEW} == NEW
    for method, scenario in PAIRS:
        for profile in ("smoke", "digits"):
            made = cm.Experiment("digits", scenario, method, 0, profile)
            assert not set(identity(made.to_dict())["options"]) & set(NEW)


def test_committed_runs_keep_their_hashes():
    """Runs made before an option existed are found by today's experiments, at the same place, with it or without."""
    runs = list(committed())
    for run in runs:
        today = cm.Experiment.of(run.experiment)
        assert today.hash(run.data["digest"]) == run.id[-8:]
        assert committed().path(today, run.data["digest"]).is_file()
    assert runs


# -- the grid, and the other engine ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_the_grid_sets_each_switch_alone_beside_a_default_run(profile, tmp_path, capsys):
    experiments = grids.load("switches").experiments(profile, [0])
    usual = {(one.method, one.scenario) for one in experiments if not one.variant}
    for one in experiments:
        assert (one.method, one.scenario) in usual, "an effect needs its default run"
        several = one.variant.count("=") > 1
        presets = [cm.Experiment(one.dataset, one.scenario, one.method, 0, profile, preset=name) for name in PRESETS]
        assert not several or one in presets
    if profile == "mini":
        assert len(experiments) == 17 and {one.dataset for one in experiments} == {"cifar10"}
    assert sweep.main(["switches"], profile, "0", store=str(tmp_path), dry_run=True) == 0
    *listed, summary = capsys.readouterr().out.splitlines()
    assert len(listed) == len(experiments) and f" of {len(experiments)} runs to make" in summary


@pytest.mark.engines
@pytest.mark.parametrize(
    ("method", "scenario", "option"),
    [
        ("cumulative", "cil", {"batch_split": "each"}),
        ("er", "til", {"batch_norm_batches": "by_task"}),
        ("cope", "cil", {"prototype_update": "first_task", "prototype_init": "random"}),
        ("cope", "cil", {"stream": "first_batch", "prototype_init": "random"}),
    ],
)
def test_avalanches_own_strategies_refuse_what_they_cannot(digits, method, scenario, option):
    pytest.importorskip("avalanche")
    one = experiment(method, scenario, **option).but(engine="avalanche")
    name, value = next(iter(option.items()))
    with pytest.raises(OptionError, match=f"Avalanche's .* has no {name}={value}; leave it out, or take engine cmlib"):
        cm.run(one, digits)


@pytest.mark.engines
@pytest.mark.parametrize("scenario", ["til", "cil"])
def test_the_other_engine_honours_the_switches_of_cm(digits, tmp_path, scenario):
    """The preset head through Avalanche gives the accuracies of our own loop."""
    pytest.importorskip("avalanche")
    one = experiment("cm", scenario, 1, preset="head")
    ours, theirs = cm.run(one, digits, store=tmp_path), cm.run(one.but(engine="avalanche"), digits, store=tmp_path)
    assert theirs.R == ours.R and theirs.gradient_steps == ours.gradient_steps and len(list(Store(tmp_path))) == 2
