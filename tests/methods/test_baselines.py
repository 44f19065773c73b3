"""The baselines against slow references: loops over samples, subsets and parameters, written from the equations.

All in double precision: what differs by more than a rounding error is wrong.
"""

import copy
import functools
import itertools
import math

import numpy as np
import pytest
import small
import torch
import torch.nn.functional as F
from torch import nn

import cmlib as cm
from cmlib import cli, datasets
from cmlib.checkpoint import Position
from cmlib.errors import OptionError
from cmlib.experiment import fresh
from cmlib.loop import train_epoch
from cmlib.memory import StreamMemory
from cmlib.methods import METHODS, gem
from cmlib.methods.cope import moved_prototypes, pseudo_prototypical_loss
from cmlib.methods.ssil import separated_cross_entropy, task_distillation
from cmlib.nets import ResNet20, TaskBatchNorm2d
from cmlib.randomness import seeded

PAIRS = [(name, scenario) for name, cls in METHODS.items() for scenario in cls.scenarios]
close = functools.partial(torch.testing.assert_close, rtol=1e-9, atol=1e-11)
pytestmark = pytest.mark.usefixtures("double")


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


class Tiny(small.Tiny):
    """With a ReLU, which is easily done by hand."""

    def forward(self, x):
        return F.relu(self.norm(self.conv(x))).mean((2, 3))


def experiment(method, scenario, seed=0, **options):
    return cm.Experiment("digits", scenario, method, seed, "smoke", **options)


def tiny(digits, method, kind, seed=0, batch_size=None, **options):
    """A fresh method on the tiny backbone; batch_size goes past the option's own limits."""
    full = experiment(method, kind, seed, **options)
    settled = {**full.options, **({"batch_size": batch_size} if batch_size else {})}
    return METHODS[method](settled, fresh(full, digits).scenario, Tiny(settled["batch_norm"], seed))


def learn(made, tasks, epochs=1):
    """Train the next tasks as the engine does."""
    first = getattr(made, "learned", 0)
    made.learned = first + tasks
    for task in made.scenario.tasks[first : first + tasks]:
        made.begin_task(task)
        optimizer = made.make_optimizer()
        for epoch in range(epochs):
            train_epoch(made, optimizer, task, epoch, Position(seconds=[[]], steps=[0]))
        made.eval()
        made.end_task(task)
    return made


def start(made):
    """Begin the task after those learned."""
    task = made.scenario.tasks[getattr(made, "learned", 0)]
    made.begin_task(task)
    return task


def batch(made, task, n=16):
    rows = torch.linspace(0, len(task.y) - 1, n).long()  # of all its classes
    return made.scenario.prepare(task.x[rows]), task.y[rows]


def perturb(module, size=0.05, seed=0):
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=draws))


def by_hand(net, x, task, train):
    """Features of the tiny backbone through the norm of one task, frozen (train=False) or with the batch's statistics."""
    z = F.conv2d(x, net.conv.weight, net.conv.bias, padding=1)
    norm = net.norm.norms[0 if net.norm.kind == "shared" else task]
    shape = (1, -1, 1, 1)
    mean, var = norm.running_mean.view(shape), norm.running_var.view(shape)
    if train:
        mean = z.mean((0, 2, 3), keepdim=True)
        var = ((z - mean) ** 2).mean((0, 2, 3), keepdim=True)
    z = (z - mean) / (var + 1e-5).sqrt() * norm.weight.view(shape) + norm.bias.view(shape)
    return z.clamp(min=0).mean((2, 3))


def plain_loss(made, features, y, task):
    """Cross-entropy by a loop over samples. TIL: over the classes of the task; CIL: over all classes seen."""
    total = 0.0
    for f, label in zip(features, y.tolist(), strict=True):
        if made.kind == "til":
            logits, place = made.heads[task](f), label - 2 * task
        else:
            logits, place = torch.cat([head(made.trunk(f)) for head in made.heads]), label
        total = total - (logits[place] - logits.exp().sum().log())
    return total / len(y)


# -- EWC and Online EWC ---------------------------------------------------------------------------------------------------


def names_of(made, leave_out=()):
    return [name for name, _ in made.named_parameters() if not any(part in name for part in leave_out)]


def squared_gradients(made, x, y, task, names):
    """Squared gradient of the mean cross-entropy, by parameter name, in eval mode."""
    features = made.backbone.features(x, task.index)
    if made.kind == "til":
        loss = F.cross_entropy(made.heads[task.index](features), y - task.classes.start)
    else:
        loss = F.cross_entropy(torch.cat([head(made.trunk(features)) for head in made.heads], 1), y)
    table = dict(made.named_parameters())
    found = torch.autograd.grad(loss, [table[name] for name in names], allow_unused=True)
    return {n: torch.zeros_like(table[n]) if g is None else g**2 for n, g in zip(names, found, strict=True)}


def slow_fisher(made, task, names, per_sample):
    """Mean of squared gradients over mini-batches, or over single samples."""
    if per_sample:
        parts = [(made.scenario.prepare(task.x[i : i + 1]), task.y[i : i + 1]) for i in range(len(task.y))]
    else:  # the draws after the last epoch of training
        part = [(task.x, task.y, made.option["batch_size"])]
        parts = list(made.scenario.batches(part, task.index, made.option["epochs"]))
    rows = [squared_gradients(made, x, y, task, names) for x, y in parts]
    return {name: sum(row[name] for row in rows) / len(rows) for name in names}


def learn_and_watch(made, tasks, per_sample=False, leave_out=()):
    """Train tasks; return after each the weights and the slow Fisher, by parameter name."""
    seen = []
    for _ in range(tasks):
        learn(made, 1)
        made.eval()
        names = names_of(made, leave_out)
        weights = {name: p.detach().clone() for name, p in made.named_parameters() if name in names}
        task = made.scenario.tasks[made.learned - 1]
        seen.append((weights, slow_fisher(made, task, names, per_sample)))
    return seen


def slow_penalty(made, weights, importance):
    now = dict(made.named_parameters())
    return sum(float((importance[n] * (now[n].detach() - weights[n]) ** 2).sum()) for n in weights)


def penalty_of(made, x, y, task):
    """What the method adds to the cross-entropy, divided by its strength."""
    return (made.loss(x, y, task) - plain_loss_net(made, x, y, task)).detach() / made.option["strength"]


def plain_loss_net(made, x, y, task):
    return plain_loss(made, made.backbone.features(x, task.index if made.kind == "til" else None), y, task.index)


@pytest.mark.parametrize(("scenario", "head"), [("til", "linear"), ("cil", "linear"), ("cil", "mlp")])
def test_ewc_loss_by_a_loop_over_parameters_and_past_tasks(digits, scenario, head):
    made = fresh(experiment("ewc", scenario, strength=30, head=head), digits)
    seen = learn_and_watch(made, 2)
    task = start(made)
    perturb(made, 0.01)
    made.eval()
    x, y = batch(made, task)
    penalties = [slow_penalty(made, weights, importance) for weights, importance in seen]
    plain = plain_loss_net(made, x, y, task).item()
    assert 30 * min(penalties) > 0.01 * plain  # both past tasks are there to be seen
    assert made.loss(x, y, task).item() == pytest.approx(plain + 30 * sum(penalties), rel=1e-9)


@pytest.mark.parametrize(("scenario", "head"), [("til", "linear"), ("cil", "linear"), ("cil", "mlp")])
@pytest.mark.parametrize("kind", ["batch", "empirical"])
def test_fisher_by_a_loop(digits, kind, scenario, head):
    made = tiny(digits, "ewc", scenario, fisher=kind, head=head)
    for i, (weights, importance) in enumerate(learn_and_watch(made, 2, per_sample=kind == "empirical")):
        kept, found = made.kept(i)
        order = [n for part in ("backbone", "trunk", "heads") for n in importance if n.startswith(part)]
        assert len(order) == len(importance)
        close(found, torch.cat([importance[n].flatten() for n in order]))
        assert torch.equal(kept, torch.cat([weights[n].flatten() for n in order])) and found.max() > 1e-4


def test_batch_and_empirical_fisher_agree_when_a_batch_is_one_sample(digits):
    found = {}
    for kind, size in [("batch", 1), ("empirical", 1), ("batch", 60), ("empirical", 60)]:
        made = learn(tiny(digits, "ewc", "til", batch_size=60), 1)
        made.option["batch_size"], made.option["fisher"] = size, kind
        made.end_task(made.scenario.tasks[0])
        found[kind, size] = made.kept(0)[1].clone()
    close(found["batch", 1], found["empirical", 1])
    close(found["empirical", 60], found["empirical", 1])
    assert found["batch", 60].sum() < found["empirical", 60].sum() / 3  # the square of a mean, not the mean of squares


@pytest.mark.parametrize("method", ["ewc", "oewc"])
@pytest.mark.parametrize("scenario", ["til", "cil"])
def test_heads_of_later_tasks_are_free(digits, method, scenario):
    made = learn(tiny(digits, method, scenario), 2)
    task = start(made)
    perturb(made.backbone)
    made.eval()
    x, y = batch(made, task)
    before = penalty_of(made, x, y, task)
    perturb(made.heads[2], 3.0)
    close(penalty_of(made, x, y, task), before)
    difference = made.loss(x, y, task) - plain_loss_net(made, x, y, task)
    own = torch.autograd.grad(difference, made.heads[2].parameters(), retain_graph=True)
    assert max(float(g.abs().max()) for g in own) < 1e-5
    perturb(made.heads[0], 0.5)
    assert float(penalty_of(made, x, y, task)) > float(before) + 1e-4  # those of past tasks are not


@pytest.mark.parametrize("method", ["ewc", "oewc"])
def test_private_norms_are_not_consolidated(digits, method):
    made = tiny(digits, method, "til", batch_norm="private")
    seen = learn_and_watch(made, 2, leave_out=("norm",))
    sizes = [len(getattr(made, name)) for name in (("weights_0", "weights_1") if method == "ewc" else ("weights",))]
    assert sizes == ([50 + 12, 50 + 24] if method == "ewc" else [50 + 24])  # convolution 5 * 9 + 5, a head 2 * 5 + 2
    task = start(made)
    perturb(made)
    made.eval()
    x, y = batch(made, task)
    if method == "ewc":
        wanted = sum(slow_penalty(made, weights, importance) for weights, importance in seen)
    else:
        (_, first), (weights, second) = seen
        wanted = slow_penalty(made, weights, {n: v + first.get(n, 0) for n, v in second.items()})
    assert float(penalty_of(made, x, y, task)) == pytest.approx(wanted, rel=1e-9) and wanted > 1e-4
    perturb(made.backbone.norm.norms[2], 0.5)
    assert float(penalty_of(made, x, y, task)) == pytest.approx(wanted, rel=1e-9)


def test_affine_weights_that_all_tasks_share_are_consolidated(digits):
    made = tiny(digits, "ewc", "til", batch_norm="stats")
    seen = learn_and_watch(made, 2)
    assert [len(made.kept(i)[0]) for i in range(2)] == [60 + 12, 60 + 24]
    task = start(made)
    made.eval()
    x, y = batch(made, task)
    perturb(made.backbone.norm, 0.5)  # nothing else moves
    wanted = sum(slow_penalty(made, weights, importance) for weights, importance in seen)
    assert wanted > 1e-4 and float(penalty_of(made, x, y, task)) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("scenario", ["til", "cil"])
@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_online_ewc_adds_importances_up(digits, scenario, decay):
    made = tiny(digits, "oewc", scenario, decay=decay, strength=100)
    seen = learn_and_watch(made, 3)
    weights = seen[-1][0]  # those after the last task
    importance = {name: torch.zeros_like(value) for name, value in weights.items()}
    for age, (_, found) in enumerate(reversed(seen)):
        for name, value in found.items():  # a layer that came later has no entry: padded with zeros
            importance[name] += decay**age * value
    assert float(made.importance.sum()) == pytest.approx(sum(float(v.sum()) for v in importance.values()), rel=1e-9)
    task = start(made)
    assert len(made.importance) == len(made.weights) == 60 + 4 * 12 and float(made.importance[-12:].abs().max()) == 0
    made.eval()
    x, y = batch(made, task)
    for seed in range(3):
        perturb(made, 0.1, seed)
        wanted = plain_loss_net(made, x, y, task).item() + 100 * slow_penalty(made, weights, importance)
        assert made.loss(x, y, task).item() == pytest.approx(wanted, rel=1e-9)


# -- GEM ------------------------------------------------------------------------------------------------------------------


def slow_dual(P, along, margin):
    """Minimise 1/2 v' P v + along' v over v >= margin: try every set of coordinates that are free, keep what fulfils KKT."""
    t, best = len(P), None
    for free in itertools.product([False, True], repeat=t):
        S = [i for i in range(t) if free[i]]
        v = np.full(t, margin, dtype=float)
        if S:
            rest = [i for i in range(t) if not free[i]]
            v[S] = np.linalg.solve(P[np.ix_(S, S)], -(along[S] + P[np.ix_(S, rest)] @ v[rest]))
        slope = P @ v + along
        if (v >= margin - 1e-9).all() and all(slope[i] >= -1e-7 for i in range(t) if not free[i]):
            value = 0.5 * v @ P @ v + along @ v
            best = (value, v) if best is None or value < best[0] else best
    return best[1]


def slow_projection(g, G):
    """Nearest point to g with G z >= 0: try every set of constraints that hold with equality."""
    best = None
    for active in itertools.product([False, True], repeat=len(G)):
        A = G[list(active)]
        z = g - A.T @ np.linalg.solve(A @ A.T, A @ g) if len(A) else g
        if (G @ z >= -1e-8).all() and (best is None or np.linalg.norm(z - g) < np.linalg.norm(best - g)):
            best = z
    return best


def cases(n, seed=0, size=8):
    draws = np.random.default_rng(seed)
    for k in range(n):
        t = 1 + k % 4
        common = draws.normal(size=size)
        G = draws.normal(size=(t, size)) + draws.choice([0, 1]) * common  # some of them alike
        yield draws.normal(size=size) - draws.choice([0, 1]) * common, G, draws


@pytest.mark.parametrize("margin", [0.0, 0.5, 1.0])
def test_gem_program_against_all_active_sets(margin):
    bound = 0
    for g, G, _ in cases(1000 if margin == 0.5 else 300, seed=int(2 * margin)):
        wanted = slow_dual(G @ G.T + 1e-3 * np.eye(len(G)), G @ g, margin)
        got = gem.dual(G @ G.T, G @ g, margin)
        assert got.shape == wanted.shape and (got >= margin - 1e-12).all()
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)
        bound += int((wanted <= margin + 1e-9).sum())
    assert bound > 50  # both kinds of coordinates occur


@pytest.mark.parametrize("margin", [0.0, 0.5, 1.0])
def test_gem_step_points_against_no_past_gradient(margin):
    for g, G, _ in cases(200, seed=7):
        new = gem.project(torch.from_numpy(g), torch.from_numpy(G), margin, ridge=1e-9).numpy()
        assert (G @ new).min() >= -1e-7
        if (G @ g).min() < 0:
            wanted = g + slow_dual(G @ G.T + 1e-9 * np.eye(len(G)), G @ g, margin) @ G
            np.testing.assert_allclose(new, wanted, rtol=1e-5, atol=1e-6)


def test_gem_without_margin_is_the_nearest_feasible_point():
    moved = 0
    for g, G, draws in cases(200, seed=3):
        new = gem.project(torch.from_numpy(g), torch.from_numpy(G), 0.0, ridge=1e-10).numpy()
        np.testing.assert_allclose(new, slow_projection(g, G), rtol=1e-5, atol=1e-6)
        points = np.concatenate([new + 0.3 * draws.normal(size=(100, 8)), draws.normal(size=(100, 8))])
        feasible = points[(points @ G.T >= 0).all(1)]
        assert (np.linalg.norm(feasible - g, axis=1) >= np.linalg.norm(new - g) - 1e-6).all()
        moved += not np.allclose(new, g)
    assert 50 < moved < 200


def test_gem_leaves_a_gradient_alone_that_hurts_no_task():
    g, G = torch.tensor([1.0, 0.3, -0.2]), torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, -3.0], [0.2, -0.1, 0.0]])
    assert bool((G @ g >= 0).all()) and gem.project(g, G, 0.5) is g
    assert gem.project(g, G[:1] * 0, 0.5) is g  # a past gradient of 0 forbids nothing
    zero = torch.zeros(3)
    assert torch.equal(gem.project(zero, G, 0.5), zero)


@pytest.mark.parametrize("ridge", [1e-3, 0.0])
def test_gem_with_the_same_past_gradient_twice(ridge):
    g, a = torch.tensor([-2.0, 1.0, 0.5], dtype=torch.float64), torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    g = g - a
    along, square = float(g @ a), float(a @ a)
    assert along < 0
    v = -along / (2 * square + ridge)  # by symmetry; with ridge 0 only the sum is determined
    new = gem.project(g, torch.stack([a, a]), 0.0, ridge)
    close(new, g + 2 * v * a)
    new = gem.project(g, torch.stack([a, a * 0]), 0.0, ridge)
    close(new, g - along / (square + ridge) * a)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_gem_passes_on_what_is_not_finite(bad):
    g, G = torch.tensor([-1.0, 1.0]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    broken = g.clone()
    broken[1] = bad
    assert gem.project(broken, G, 0.5) is broken  # the loss tells: it is not finite either
    worse = G.clone()
    worse[1, 1] = bad
    assert gem.project(g, worse, 0.5) is g


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_gem_falls_back_when_its_solver_fails(monkeypatch, margin):
    several = [(G @ G.T, G @ g) for g, G, _ in cases(40, seed=5)]
    wanted = [gem.dual(gram, along, margin) for gram, along in several]

    def fail(*_):
        raise RuntimeError("too many iterations")

    monkeypatch.setattr("scipy.optimize.nnls", fail)
    for (gram, along), v in zip(several, wanted, strict=True):
        np.testing.assert_allclose(gem.dual(gram, along, margin), v, rtol=1e-6, atol=1e-6)


def gem_references(made, learning):
    """Gradient of the loss on each past task's exemplars, through the net as one batch. TIL: own head, own norm."""
    rows, latest = [], len(made.heads) - 1
    for i in range(latest):
        mine = torch.tensor([label // 2 == i for label in made.memory.y.tolist()])
        x, y = made.scenario.prepare(made.memory.x[mine]), made.memory.y[mine]
        assert torch.bincount(y).tolist()[2 * i :] == [10, 10]
        frozen = made.backbone.norm.kind == "private"  # past ones; the latest is in train mode
        loss = plain_loss(made, by_hand(made.backbone, x, i, not frozen), y, i)
        found = torch.autograd.grad(loss, learning, allow_unused=True)
        rows.append(
            torch.cat([(torch.zeros_like(p) if f is None else f).flatten() for f, p in zip(found, learning, strict=True)])
        )
    return torch.stack(rows)


@pytest.mark.parametrize(("scenario", "norm"), [("til", "shared"), ("til", "private"), ("cil", "shared")])
def test_gem_step_by_hand(digits, scenario, norm):
    made = learn(tiny(digits, "gem", scenario, batch_norm=norm), 2, epochs=5)
    task = start(made)
    made.train()
    learning = [p for p in made.parameters() if p.requires_grad]
    violated = 0
    for seed in range(6):
        perturb(nn.ParameterList(learning), 0.3, seed)
        x, y = batch(made, task, 6)
        G = gem_references(made, learning).double().numpy()
        loss = plain_loss(made, by_hand(made.backbone, x, 2, True), y, 2)
        found = torch.autograd.grad(loss, learning, allow_unused=True)
        parts = [torch.zeros_like(p) if f is None else f for f, p in zip(found, learning, strict=True)]
        g = torch.cat([part.flatten() for part in parts]).double().numpy()
        if (G @ g).min() < 0:
            g = g + slow_dual(G @ G.T + 1e-3 * np.eye(2), G @ g, 0.5) @ G
            violated += 1
        wanted = torch.cat([p.detach().flatten() for p in learning]).double().numpy() - 0.01 * g
        returned = made.step(made.make_optimizer(), x, y, task)  # an optimizer\'s first step has no momentum
        close(returned, loss.detach())
        got = torch.cat([p.detach().flatten() for p in learning]).double().numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)
    assert violated > 0


@pytest.mark.parametrize("scenario", ["til", "cil"])
def test_gem_memory(digits, scenario):
    made = learn(tiny(digits, "gem", scenario), 3)
    assert torch.bincount(made.memory.y).tolist() == [10] * 6
    first = learn(tiny(digits, "gem", scenario, exemplars="first"), 3)
    tasks = first.scenario.tasks[:3]
    assert torch.equal(first.memory.x, torch.cat([task.x[:20] for task in tasks]))
    assert torch.bincount(first.memory.y, minlength=6).tolist() == [20, 0, 20, 0, 20, 0]  # the files are sorted by class
    images = {tuple(x.flatten().tolist()) for task in tasks for x in task.x}
    exemplars = [tuple(x.flatten().tolist()) for x in made.memory.x]
    assert set(exemplars) <= images and len(set(exemplars)) > 50


# -- EmR ------------------------------------------------------------------------------------------------------------------


def test_emr_keeps_images_and_their_features_as_they_were(digits):
    made = fresh(experiment("emr", "til"), digits)
    learn(made, 1)
    x, targets = made.memory.x.clone(), made.memory.features.clone()
    assert torch.bincount(made.memory.y).tolist() == [10, 10]
    made.eval()
    with torch.no_grad():
        close(made.backbone.features(made.scenario.prepare(x), 0), targets)
    learn(made, 2)
    assert torch.equal(made.memory.features[:20], targets) and torch.equal(made.memory.x[:20], x)
    assert torch.bincount(made.memory.y).tolist() == [10] * 6 and made.memory.features.shape == (60, 64)
    with torch.no_grad():
        close(made.backbone.features(made.scenario.prepare(made.memory.x[40:]), 2), made.memory.features[40:])
        moved = made.backbone.features(made.scenario.prepare(x), 0)
    assert float((moved - targets).norm(dim=1).mean()) > 1e-3  # the network has moved, the targets have not


@pytest.mark.parametrize("norm", ["unfrozen", "private", "shared"])
def test_emr_loss_by_hand(digits, norm):
    made = learn(tiny(digits, "emr", "til", strength=0.7, batch_norm=norm, head="linear"), 2)
    task = start(made)
    perturb(made.backbone.conv, 0.1)
    made.train()
    x, y = batch(made, task)
    apart = []
    for i in range(2):
        mine = [row for row, label in enumerate(made.memory.y.tolist()) if label // 2 == i]
        f = by_hand(made.backbone, made.scenario.prepare(made.memory.x[mine]), i, train=norm != "private")
        distances = [(a - b).square().sum().sqrt() for a, b in zip(f, made.memory.features[mine], strict=True)]
        assert len(distances) == 20
        apart.append(sum(distances) / 20)
    wanted = plain_loss(made, by_hand(made.backbone, x, 2, True), y, 2) + 0.7 * (apart[0] + apart[1]) / 2
    assert min(apart) > 1e-3
    learning = [made.backbone.conv.weight, *made.heads[2].parameters()]
    gradients = torch.autograd.grad(wanted, learning)
    loss = made.loss(x, y, task)
    close(loss, wanted)
    for a, b in zip(torch.autograd.grad(loss, learning), gradients, strict=True):
        close(a, b)


def test_emr_freezes_past_heads(digits):
    made = learn(fresh(experiment("emr", "til"), digits), 1)
    before = copy.deepcopy(made.heads[0].state_dict())
    learn(made, 1)
    assert all(torch.equal(before[key], value) for key, value in made.heads[0].state_dict().items())
    task = start(made)
    made.train()
    x, y = batch(made, task)
    made.zero_grad()
    made.loss(x, y, task).backward()
    gradients = [[p.grad for p in head.parameters()] for head in made.heads]
    assert not any(p.requires_grad for head in made.heads[:2] for p in head.parameters())
    assert all(g is None for g in gradients[0] + gradients[1])
    assert all(float(g.abs().max()) > 0 for g in gradients[2])


@pytest.mark.parametrize(("norm", "moves"), [("unfrozen", True), ("private", False)])
def test_emr_replay_moves_past_statistics_only_when_unfrozen(digits, norm, moves):
    made = learn(fresh(experiment("emr", "til", batch_norm=norm), digits), 1)
    layers = [layer.norms[0] for layer in made.backbone.task_norms()]
    before = [copy.deepcopy(layer.state_dict()) for layer in layers]
    learn(made, 1)
    for name in ("running_mean", "running_var", "weight", "bias"):
        changed = [not torch.equal(old[name], layer.state_dict()[name]) for old, layer in zip(before, layers, strict=True)]
        assert all(changed) if moves else not any(changed), name


def test_emr_is_for_known_tasks():
    with pytest.raises(OptionError, match="emr does not work in scenario cil; allowed: til"):
        experiment("emr", "cil")


# -- SS-IL ----------------------------------------------------------------------------------------------------------------


def test_separated_softmax_by_a_loop():
    logits = torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y = torch.tensor([0, 1, 2, 3, 4, 5, 5, 1, 4])
    total = 0.0
    for row, label in zip(logits.tolist(), y.tolist(), strict=True):
        rivals = row[4:] if label >= 4 else row[:4]
        total += -math.log(math.exp(row[label]) / sum(math.exp(value) for value in rivals))
    loss = separated_cross_entropy(logits, y, 4)
    assert loss.item() == pytest.approx(total / 9, abs=1e-12)
    loss.backward()
    new = y >= 4
    assert float(logits.grad[new][:, :4].abs().max()) == 0.0 and float(logits.grad[~new][:, 4:].abs().max()) == 0.0
    assert float(logits.grad[new][:, 4:].abs().min()) > 0 and float(logits.grad[~new][:, :4].abs().min()) > 0


def slow_distillation(logits, taught, T=2.0):
    total = 0.0
    for ours, theirs in zip(logits.tolist(), taught.tolist(), strict=True):
        for first in range(0, len(theirs), 2):  # one softmax a past task of two classes
            p = [math.exp(v / T) for v in theirs[first : first + 2]]
            q = [math.exp(v / T) for v in ours[first : first + 2]]
            p, q = [v / sum(p) for v in p], [v / sum(q) for v in q]
            total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    return T**2 * total / len(logits)


def test_distillation_by_a_loop():
    draws = torch.Generator().manual_seed(1)
    logits = torch.randn(7, 6, dtype=torch.float64, generator=draws) * 3
    taught = torch.randn(7, 4, dtype=torch.float64, generator=draws) * 3
    for T in (2.0, 0.7):
        assert float(task_distillation(logits, taught, 2, T)) == pytest.approx(slow_distillation(logits, taught, T), rel=1e-10)
    assert float(task_distillation(logits, logits[:, :4], 2, 2.0)) == pytest.approx(0, abs=1e-12)
    shifted = logits[:, :4] + torch.tensor([5.0, 5.0, -3.0, -3.0])  # a constant a task changes no softmax
    assert float(task_distillation(logits, shifted, 2, 2.0)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_ssil_loss_by_hand(digits, head):
    made = learn(tiny(digits, "ssil", "cil", head=head), 2)
    frozen = copy.deepcopy(made)
    task = start(made)
    perturb(made.backbone.conv, 0.2)
    perturb(made.heads, 0.5)
    made.train()
    x, y = next(iter(made.batches(task, 0)))
    logits, taught = [
        torch.cat([head(net.trunk(by_hand(net.backbone, x, 0, train))) for head in net.heads], 1).detach()
        for net, train in ((made, True), (frozen, False))
    ]
    separated = 0.0
    for row, label in zip(logits.tolist(), y.tolist(), strict=True):
        rivals = row[4:] if label >= 4 else row[:4]
        separated -= row[label] - math.log(sum(math.exp(v) for v in rivals))
    taught_loss = slow_distillation(logits, taught)
    loss = made.loss(x, y, task)
    assert taught_loss > 1e-3 and loss.item() == pytest.approx(separated / len(y) + taught_loss, rel=1e-9)
    loss.backward()
    assert not made.past_logits(x).requires_grad and all(p.grad is None for p in made.past.parameters())


def test_ssil_first_task_is_plain(digits):
    made = tiny(digits, "ssil", "cil")
    task = start(made)
    x, y = batch(made, task)
    made.eval()
    wanted = plain_loss(made, by_hand(made.backbone, x, 0, train=False), y, 0)
    close(made.loss(x, y, task), wanted)


def test_ssil_teacher_is_the_network_before_the_task(digits):
    made = learn(fresh(experiment("ssil", "cil"), digits), 1)
    before = {"backbone": copy.deepcopy(made.backbone.state_dict()), "heads": copy.deepcopy(made.heads.state_dict())}
    learn(made, 1)
    for part, state in before.items():
        kept = made.past[part].state_dict()
        assert kept.keys() == state.keys() and all(torch.equal(kept[key], state[key]) for key in state)
    made.train()
    assert not any(module.training for module in made.past.modules())
    assert not any(parameter.requires_grad for parameter in made.past.parameters())
    assert not torch.equal(made.past["backbone"].conv.weight, made.backbone.conv.weight)


def test_ssil_batches_and_memory(digits):
    made = learn(tiny(digits, "ssil", "cil"), 1)
    assert torch.bincount(made.memory.y).tolist() == [10, 10]
    earlier = {tuple(x.flatten().tolist()) for x in made.memory.x}
    learn(made, 1)
    assert torch.bincount(made.memory.y).tolist() == [5] * 4
    assert {tuple(x.flatten().tolist()) for x in made.memory.x[made.memory.y < 2]} <= earlier
    task = start(made)
    made.end_task(task)
    assert torch.bincount(made.memory.y).tolist() == [4, 4, 3, 3, 3, 3]
    made = learn(tiny(digits, "ssil", "cil"), 2)
    task = start(made)
    batches = list(made.batches(task, 0))
    counts = [(int((y >= 4).sum()), int((y < 4).sum())) for _, y in batches]
    assert counts[0] == (32, 32) and sum(new for new, _ in counts) == len(task.y) == 60
    replayed = torch.cat([y[y < 4] for _, y in batches])
    shares = torch.bincount(replayed, minlength=4).tolist()  # whole rounds of the memory, 20 images each: 60 of 64
    assert all(15 <= share <= 19 for share in shares)


# -- CoPE -----------------------------------------------------------------------------------------------------------------


def slow_cope_loss(e, y, prototypes, known, T):
    """Eqs 3 to 7 by loops; only the sample whose probability is taken learns."""
    total = e.new_zeros(())
    labels = y.tolist()

    def probability(f, c, proxy):  # that the sample with embedding f is of class c, whose prototype is replaced by `proxy`
        rivals = sum(((f @ prototypes[k] / T).exp() for k in range(len(known)) if known[k] and k != c), f.new_zeros(()))
        mine = (f @ proxy / T).exp()
        return mine / (mine + rivals)

    for i, c in enumerate(labels):
        proxies = [prototypes[c]] + [e[j].detach() for j, label in enumerate(labels) if label == c and j != i]
        attractor = sum(probability(e[i], c, proxy) for proxy in proxies) / len(proxies)
        total = total + attractor.log()
        for j, label in enumerate(labels):
            if label != c:
                repellor = sum(probability(e[j], c, proxy) for proxy in (prototypes[c], e[i].detach())) / 2
                total = total + (1 - repellor).log()
    return -total / len(labels)


COPE_BATCHES = {
    "several": [0, 1, 1, 2, 0, 2, 2, 4],
    "one sample a class": [0, 1, 2, 4],
    "one class": [1, 1, 1],
    "one sample": [2],
}


@pytest.mark.parametrize("labels", COPE_BATCHES.values(), ids=COPE_BATCHES.keys())
@pytest.mark.parametrize("T", [0.1, 1.0])
def test_cope_loss_by_loops(labels, T):
    draws = torch.Generator().manual_seed(len(labels))
    raw = torch.randn(len(labels), 12, dtype=torch.float64, generator=draws, requires_grad=True)
    prototypes = F.normalize(torch.randn(6, 12, dtype=torch.float64, generator=draws), dim=1)
    known = torch.tensor([True, True, True, False, True, False])
    e, y = F.normalize(raw, dim=1), torch.tensor(labels)
    wanted = slow_cope_loss(e, y, prototypes, known, T)
    (gradient,) = torch.autograd.grad(wanted, raw, retain_graph=True)
    got = pseudo_prototypical_loss(e, y, prototypes, known, T)
    close(got, wanted)
    close(torch.autograd.grad(got, raw, retain_graph=True)[0], gradient)
    far = prototypes.clone()
    far[~known] *= -50  # classes without a prototype take no part
    close(pseudo_prototypical_loss(e, y, far, known, T), wanted)


def test_cope_loss_when_only_one_class_is_known():
    raw = torch.randn(4, 6, generator=torch.Generator().manual_seed(2), requires_grad=True)
    prototypes, known = F.normalize(torch.ones(3, 6), dim=1), torch.tensor([True, False, False])
    loss = pseudo_prototypical_loss(F.normalize(raw, dim=1), torch.zeros(4, dtype=torch.int64), prototypes, known)
    loss.backward()
    assert loss.item() == 0.0 and float(raw.grad.abs().max()) == 0.0  # no rival: every probability is 1


@pytest.mark.parametrize("T", [0.1, 0.05, 0.01])
def test_cope_loss_is_finite_for_samples_in_the_wrong_place(T):
    """Two samples on each other's prototypes, two classes in one place: probabilities near 0 and 1, finite logarithms."""
    y, known = torch.tensor([0, 1, 0, 2]), torch.ones(3, dtype=torch.bool)
    for precision in (torch.float32, torch.float64):
        axes = torch.eye(4, dtype=precision)
        prototypes, raw = axes[:3], axes[[1, 0, 0, 2]].requires_grad_()
        loss = pseudo_prototypical_loss(raw, y, prototypes, known, T)
        (gradient,) = torch.autograd.grad(loss, raw)
        assert math.isfinite(loss.item()) and bool(gradient.isfinite().all())
    if T > 0.01:  # the loops take probabilities near 1 from 1, which costs digits; beyond, all of them
        exact = slow_cope_loss(raw, y, prototypes, known, T)
        close(loss, exact, rtol=1e-6)
        close(gradient, torch.autograd.grad(exact, raw)[0], rtol=1e-6)


def test_cope_prototypes_move_by_hand():
    draws = torch.Generator().manual_seed(4)
    prototypes = F.normalize(torch.randn(5, 7, generator=draws), dim=1)
    e, y = F.normalize(torch.randn(6, 7, generator=draws), dim=1), torch.tensor([1, 3, 1, 1, 3, 0])
    got = moved_prototypes(prototypes, e, y, 0.9)
    for k in range(5):
        mine = [e[i] for i in range(6) if int(y[i]) == k]
        if not mine:
            assert torch.equal(got[k], prototypes[k])
            continue
        moved = 0.9 * prototypes[k] + 0.1 * sum(mine) / len(mine)
        close(got[k], moved / moved.square().sum().sqrt())


@pytest.mark.parametrize("init", ["first_batch", "random"])
def test_cope_step_by_hand(digits, init):
    made = tiny(digits, "cope", "cil", prototype_init=init)
    task = start(made)
    made.train()
    first = made.prototypes.clone()
    x, y = batch(made, task, 12)
    e = by_hand(made.backbone, x, 0, train=True)
    e = e / e.square().sum(1, keepdim=True).sqrt()
    prototypes = first.clone()
    for k in (0, 1):
        if init == "first_batch":
            mean = sum(f.detach() for f, label in zip(e, y.tolist(), strict=True) if label == k)
            prototypes[k] = mean / mean.norm()
    wanted = slow_cope_loss(e, y, prototypes, [True, True] + 8 * [False], 0.1)
    weight = made.backbone.conv.weight
    (gradient,) = torch.autograd.grad(wanted, weight)
    before = weight.detach().clone()
    close(made.step(made.make_optimizer(), x, y, task), wanted.detach())
    close(weight.detach(), before - 0.01 * gradient)
    assert made.known.tolist() == [True, True] + 8 * [False] and torch.equal(made.prototypes[2:], first[2:])
    for k in (0, 1):
        mine = [f.detach() for f, label in zip(e, y.tolist(), strict=True) if label == k]
        moved = 0.99 * prototypes[k] + 0.01 * sum(mine) / len(mine)
        close(made.prototypes[k], moved / moved.norm())


@pytest.mark.parametrize("init", ["first_batch", "random"])
def test_cope_prototypes_of_every_task_move_and_stay_on_the_sphere(digits, init):
    made = fresh(experiment("cope", "cil", prototype_init=init), digits)
    start_points = made.prototypes.clone()
    seen = []
    for _ in range(3):
        learn(made, 1)
        seen.append(made.prototypes.clone())
    close(made.prototypes.norm(dim=1), torch.ones(10))
    moved = [(after - before).norm(dim=1) > 1e-6 for before, after in itertools.pairwise([start_points, *seen])]
    assert [m.tolist() for m in moved] == [[True] * (2 * i) + [False] * (10 - 2 * i) for i in (1, 2, 3)]
    assert made.known.tolist() == [True] * 6 + [False] * 4


def test_cope_makes_one_pass_over_the_stream(digits):
    made = learn(tiny(digits, "cope", "cil"), 1)
    task = start(made)
    assert made.option["epochs"] == 1
    images, sizes = [], []
    for x, y in made.batches(task, 0):
        new = 32 if not images else len(task.y) - 32
        sizes.append((new, len(y) - new))
        images += x[:new]
        assert set(y[:new].tolist()) <= {2, 3}
    assert sizes[0] == (32, 32) and [new for new, _ in sizes] == [32, 28]
    stream, all_of_task = torch.stack(images).flatten(1), made.scenario.prepare(task.x).flatten(1)
    assert sorted(stream.tolist()) == sorted(all_of_task.tolist())


def test_cope_scores_are_products_with_the_prototypes(digits):
    made = learn(tiny(digits, "cope", "cil"), 2)
    made.eval()
    task = made.scenario.tasks[1]
    x, _ = batch(made, task, 5)
    f = by_hand(made.backbone, x, 0, train=False)
    wanted = torch.stack([torch.stack([(one / one.norm()) @ made.prototypes[k] for k in range(4)]) for one in f])
    close(made.scores(x), wanted)
    close(made.scores(x, task), wanted[:, 2:])


# -- the memory of a stream -----------------------------------------------------------------------------------------------


def stream(n, label=0, first=0):
    """n images of one pixel, whose value is their number, and their labels."""
    return torch.arange(first, first + n, dtype=torch.uint8).view(n, 1, 1, 1), [label] * n


def passed(memory, x, labels, draws, size=5):
    for begin in range(0, len(x), size):
        memory.observe(x[begin : begin + size], labels[begin : begin + size], draws)


def test_a_reservoir_keeps_every_image_equally_often():
    draws, repeats, kept = torch.Generator().manual_seed(6), 2000, torch.zeros(12)
    x, labels = stream(12)
    for _ in range(repeats):
        memory = StreamMemory(3, 1)
        memory.make_room(x, 1)
        passed(memory, x, labels, draws)
        assert len(memory) == 3
        numbers = memory.x.flatten().tolist()
        assert len(set(numbers)) == 3
        kept[numbers] += 1
    spread = math.sqrt(0.25 * 0.75 / repeats)
    assert float((kept / repeats - 0.25).abs().max()) < 5 * spread  # about 0.05


def test_stream_memory_places_and_labels():
    memory, draws = StreamMemory(4, 6), torch.Generator().manual_seed(0)
    x = torch.cat([stream(20)[0], stream(3, first=100)[0]])
    labels = [0] * 20 + [1] * 3
    order = torch.randperm(23, generator=draws).tolist()
    memory.make_room(x, 2)
    passed(memory, x[order], [labels[i] for i in order], draws)
    assert memory.y.tolist() == [0, 0, 0, 0, 1, 1, 1, -1]
    numbers = memory.x.flatten().tolist()
    assert all(n < 20 for n in numbers[:4]) and sorted(numbers[4:7]) == [100, 101, 102]
    memory.store_counts()
    assert memory.seen.tolist() == [20, 3, 0, 0, 0, 0]
    memory.make_room(x, 4)  # the next task's classes
    memory.observe(*stream(2, 3, 200), draws)
    assert memory.y.tolist() == [0, 0, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1, 3, 3, -1, -1]
    assert memory.x.flatten().tolist()[:7] == numbers[:7] and sorted(memory.x.flatten().tolist()[12:14]) == [200, 201]


def test_stream_memory_picks_classes_evenly_and_then_images():
    memory, draws = StreamMemory(4, 3), torch.Generator().manual_seed(1)
    memory.make_room(stream(1)[0], 3)
    assert len(memory.pick(8, draws)) == 0
    for n, label in [(30, 0), (1, 2)]:
        passed(memory, *stream(n, label), draws)
    slots = memory.pick(4000, draws)
    counts = torch.bincount(slots, minlength=12).tolist()
    assert set(memory.y[slots].tolist()) == {0, 2}  # never an empty place
    spread = math.sqrt(0.5 * 0.5 * 4000)
    assert abs(counts[8] - 2000) < 5 * spread and all(abs(count - 500) < 5 * math.sqrt(4000 / 8) for count in counts[:4])
    assert sum(counts[:4]) + counts[8] == 4000


def test_stream_memory_survives_a_round_trip():
    memory, draws = StreamMemory(4, 4), torch.Generator().manual_seed(2)
    memory.make_room(stream(1)[0], 2)
    passed(memory, *stream(30, 0), draws)
    passed(memory, *stream(2, 1, 50), draws)
    memory.store_counts()
    other = StreamMemory(4, 4)
    other.load_state_dict(copy.deepcopy(memory.state_dict()))
    assert torch.equal(other.x, memory.x) and torch.equal(other.y, memory.y) and torch.equal(other.seen, memory.seen)
    for each in (memory, other):
        again = torch.Generator().manual_seed(3)
        each.picked = each.pick(50, again)
        each.make_room(stream(1)[0], 4)
        passed(each, *stream(40, 0, 100), again)
        passed(each, *stream(7, 3, 150), again)
        each.store_counts()
    assert torch.equal(other.picked, memory.picked) and torch.equal(other.x, memory.x) and torch.equal(other.y, memory.y)
    assert other.seen.tolist() == [70, 2, 0, 7]


# -- batch norm that knows each sample's task -----------------------------------------------------------------------------

OWNERS = torch.tensor([2, 0, 1, 2, 0, 2, 2, 1, 0, 2])


def three_norms(kind):
    norm = TaskBatchNorm2d(3, kind)
    draws = torch.Generator().manual_seed(8)
    for task in range(3):
        if task:
            norm.add_task()
        norm.train()
        norm(torch.randn(16, 3, 4, 4, generator=draws) * (task + 1) + task)
        with torch.no_grad():
            norm.norms[task].weight.copy_(torch.rand(3, generator=draws) + 0.5)
            norm.norms[task].bias.copy_(torch.randn(3, generator=draws))
    return norm


def own_norm(norm, x, task, train):
    """Samples of one task through torch's own batch norm: past ones in eval mode, the latest's as the net is."""
    inner = norm.norms[task]
    inner.train(train and task == 2)
    return inner(x)


@pytest.mark.parametrize("kind", ["private", "stats"])
@pytest.mark.parametrize("train", [True, False])
def test_norm_by_owner_equals_each_task_by_itself(kind, train):
    together = three_norms(kind)
    apart = copy.deepcopy(together)
    if kind == "stats":
        assert apart.norms[0].weight is apart.norms[2].weight
    x = torch.randn(10, 3, 4, 4, generator=torch.Generator().manual_seed(9))
    slope = torch.randn(10, 3, 4, 4, generator=torch.Generator().manual_seed(10))
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    together.train(train)
    together.owners = OWNERS
    got = together(mine)
    wanted = torch.zeros_like(x)
    for task in range(3):
        rows = (OWNERS - task == 0).nonzero().squeeze(1)
        wanted = wanted.index_copy(0, rows, own_norm(apart, theirs[rows], task, train))
    close(got, wanted)
    (got * slope).sum().backward()
    (wanted * slope).sum().backward()
    close(mine.grad, theirs.grad)
    for task in range(3):
        a, b = together.norms[task], apart.norms[task]
        close(a.running_mean, b.running_mean)
        close(a.running_var, b.running_var)
        for name in ("weight", "bias"):
            learned = getattr(a, name)
            assert learned.requires_grad == (kind == "stats" or task == 2)
            if learned.requires_grad:
                close(learned.grad, getattr(b, name).grad)


@pytest.mark.parametrize("kind", ["private", "stats"])
def test_a_batch_of_past_samples_moves_no_statistics(kind):
    norm = three_norms(kind)
    before = copy.deepcopy(norm.state_dict())
    norm.train()
    norm.owners = torch.tensor([0, 1, 1, 0])
    x = torch.randn(4, 3, 4, 4, generator=torch.Generator().manual_seed(11))
    y = norm(x)
    for key, value in norm.state_dict().items():
        assert "running" not in key or torch.equal(value, before[key]), key
    close(y[0], own_norm(norm, x[:1], 0, False)[0])
    close(y[1:3], own_norm(norm, x[1:3], 1, False))


@pytest.mark.parametrize("kind", ["private", "stats", "shared"])
@pytest.mark.parametrize("train", [True, False])
def test_features_by_task_equal_each_task_by_itself(kind, train):
    with seeded(3, 0, "net"):
        net = ResNet20(1, kind)
    draws = torch.Generator().manual_seed(12)
    for task in range(3):
        if task:
            net.add_task()
        net.features(torch.randn(16, 1, 8, 8, generator=draws) * (task + 1))
    net.train(train)
    other = copy.deepcopy(net)
    x = torch.randn(10, 1, 8, 8, generator=draws)
    got = net.features_by_task(x, OWNERS)
    if kind == "shared":
        wanted = other(x)
    else:
        wanted = torch.zeros(10, 64)
        for task in range(3):
            rows = (OWNERS - task == 0).nonzero().squeeze(1)
            wanted = wanted.index_copy(0, rows, other.features(x[rows], task))
    close(got, wanted)
    slope = torch.randn(10, 64, generator=draws)
    weights = [(one.conv.weight, one.blocks[4].conv2.weight) for one in (net, other)]
    gradients = [torch.autograd.grad((f * slope).sum(), w) for f, w in zip((got, wanted), weights, strict=True)]
    for a, b in zip(*gradients, strict=True):
        close(a, b, atol=1e-10 * float(b.abs().max()))
    for (key, a), b in zip(net.state_dict().items(), other.state_dict().values(), strict=True):
        if "running" in key:
            close(a, b)
    assert all(norm.owners is None for norm in net.task_norms())


@pytest.mark.parametrize("method", ["er", "cumulative"])
def test_replay_goes_through_each_sample_s_own_norm_and_head(digits, method):
    made = learn(tiny(digits, method, "til", batch_norm="private"), 2)
    task = start(made)
    made.train()
    parts = [batch(made, one, 6) for one in made.scenario.tasks[:3]]
    x, y = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
    losses = [plain_loss(made, by_hand(made.backbone, x_i, i, i == 2), y_i, i) for i, (x_i, y_i) in enumerate(parts)]
    wanted = sum(losses) / 3  # six samples each
    order = torch.randperm(18, generator=torch.Generator().manual_seed(0))
    learning = [p for p in made.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(wanted, learning)
    loss = made.loss(x[order], y[order], task)
    close(loss, wanted)
    for a, b in zip(torch.autograd.grad(loss, learning), gradients, strict=True):
        close(a, b)


@pytest.mark.parametrize("method", ["er", "cumulative"])
def test_a_replayed_sample_reaches_no_other_task_s_head_or_norm(digits, method):
    made = learn(tiny(digits, method, "til", batch_norm="private"), 2)
    task = start(made)
    made.train()
    x, y = batch(made, made.scenario.tasks[0])
    (wanted,) = torch.autograd.grad(plain_loss(made, by_hand(made.backbone, x, 0, False), y, 0), made.backbone.conv.weight)
    made.zero_grad()
    made.loss(x, y, task).backward()
    assert [float(head.weight.grad.abs().max()) > 0 for head in made.heads] == [True, False, False]
    close(made.backbone.conv.weight.grad, wanted)
    norms = made.backbone.norm.norms
    assert norms[0].weight.grad is None and norms[1].weight.grad is None
    assert all(p.grad is None or float(p.grad.abs().max()) == 0 for p in norms[2].parameters())


# -- memory figures, scenarios, settings ----------------------------------------------------------------------------------

# Digits in the smoke profile: 5 tasks of 2 classes, 30 images a class, 64 scalars an image, 64 features, memory 20.
BACKBONE = 16 * 9 + 6 * 16 * 16 * 9 + (16 + 5 * 32) * 32 * 9 + (32 + 5 * 64) * 64 * 9 + 2 * 688
HEAD, NORM, PROJECTOR = 64 * 2 + 2, 4 * 688, 2 * (128 * 128 + 128)
P = BACKBONE + 5 * HEAD
GROWING = 5 * BACKBONE + (1 + 2 + 3 + 4 + 5) * HEAD
REPLAY = {"exemplars": 20 * 64, "labels": 20}
PER_TASK = {"exemplars": 100 * 64, "labels": 100}
FIGURES = {
    ("naive", "til"): (None, {}),
    ("naive", "cil"): (None, {}),
    ("cumulative", "til"): (None, {"training images": 300 * 64, "labels": 300}),
    ("cumulative", "cil"): (None, {"training images": 300 * 64, "labels": 300}),
    ("cm", "til"): (("E x T", 128 * 10), {"past batch norms": 4 * NORM, "centroids": 10 * 128}),
    ("cm", "cil"): (("I x M x N", 64 * 20 * 5), {"centroids": 10 * 128, "projectors": 5 * PROJECTOR, **REPLAY}),
    ("ewc", "til"): (("N x P", 5 * P), {"past weights": GROWING, "importances": GROWING}),
    ("ewc", "cil"): (("N x P", 5 * P), {"past weights": GROWING, "importances": GROWING}),
    ("oewc", "til"): (("P", P), {"past weights": P, "importances": P}),
    ("oewc", "cil"): (("P", P), {"past weights": P, "importances": P}),
    ("er", "til"): (("I x M x N", 64 * 20 * 5), REPLAY),
    ("er", "cil"): (("I x M x N", 64 * 20 * 5), REPLAY),
    ("gem", "til"): (("I x M x N", 64 * 20 * 5), PER_TASK),
    ("gem", "cil"): (("I x M x N", 64 * 20 * 5), PER_TASK),
    ("emr", "til"): (("(D + I) x M x N", 128 * 20 * 5), {"past batch norms": 4 * NORM, **PER_TASK, "features": 100 * 64}),
    ("ssil", "cil"): (("I x M x N", 64 * 20 * 5), REPLAY),
    ("cope", "cil"): (("I x M x N", 64 * 20 * 5), {"prototypes": 10 * 64, **PER_TASK}),
}


def test_the_figures_by_hand_are_for_every_method():
    assert BACKBONE == 268_784 and P == 269_434
    assert set(FIGURES) == {pair for pair in PAIRS if METHODS[pair[0]].__module__.startswith("cmlib.")}


@pytest.mark.parametrize(("method", "scenario"), FIGURES)
def test_memory_by_hand(digits, method, scenario):
    made = fresh(experiment(method, scenario), digits)
    for task in made.scenario.tasks:
        made.begin_task(task)
        made.eval()
        if method == "cope":  # its memory fills along the stream
            for x, y in made.batches(task, 0):
                made.loss(x, y, task)
        made.end_task(task)
    formula, retained = FIGURES[method, scenario]
    assert made.formula() == formula
    assert {name: sum(one.numel() for one in tensors) for name, tensors in made.retained().items()} == retained


WRONG = [(name, scenario) for name, cls in METHODS.items() for scenario in ("til", "cil") if scenario not in cls.scenarios]


def test_methods_for_one_scenario_only():
    assert {("emr", "cil"), ("ssil", "til"), ("cope", "til")} <= set(WRONG)


@pytest.mark.parametrize(("method", "scenario"), WRONG)
def test_the_wrong_scenario_is_said_in_one_line(capsys, tmp_path, method, scenario):
    code = cli.main(["run", "--method", method, "--scenario", scenario, "--profile", "smoke", "--store", str(tmp_path)])
    out, err = capsys.readouterr()
    other = "cil" if scenario == "til" else "til"
    assert code == 2 and out == "" and not list(tmp_path.iterdir())
    assert err == f"cmlib: {method} does not work in scenario {scenario}; allowed: {other}\n"


SETTINGS = [  # data set, profile, method, scenario, options
    (
        "cifar10",
        "paper",
        "gem",
        "til",
        {"memory_size": 500, "margin": 0.5, "exemplars": "random", "batch_size": 32, "epochs": 10},
    ),
    ("cifar100", "paper", "gem", "cil", {"memory_size": 1000, "margin": 0.5, "batch_size": 16, "n_tasks": 10}),
    ("tiny-imagenet", "paper", "gem", "til", {"memory_size": 1000, "margin": 0.5, "epochs": 30, "n_tasks": 10}),
    ("cifar10", "paper", "ewc", "til", {"strength": 100, "fisher": "batch", "head": "linear", "batch_norm": "shared"}),
    ("cifar100", "paper", "ewc", "cil", {"strength": 100, "fisher": "batch"}),
    ("cifar10", "paper", "oewc", "cil", {"strength": 100, "decay": 1, "fisher": "batch"}),
    ("cifar10", "paper", "emr", "til", {"memory_size": 200, "strength": 1, "head": "mlp", "batch_norm": "unfrozen"}),
    ("cifar100", "paper", "emr", "til", {"memory_size": 200}),
    ("tiny-imagenet", "paper", "emr", "til", {"memory_size": 200}),
    (
        "cifar10",
        "paper",
        "cope",
        "cil",
        {"exemplars_per_class": 300, "epochs": 1, "prototype_momentum": 0.99, "temperature": 0.1},
    ),
    ("cifar100", "paper", "cope", "cil", {"exemplars_per_class": 300, "epochs": 1}),
    ("tiny-imagenet", "paper", "cope", "cil", {"exemplars_per_class": 300, "epochs": 1}),
    ("cifar10", "paper", "ssil", "cil", {"memory_size": 500, "temperature": 2, "batch_split": "double", "epochs": 10}),
    ("cifar100", "paper", "ssil", "cil", {"memory_size": 500}),
    ("tiny-imagenet", "paper", "ssil", "cil", {"memory_size": 1000, "epochs": 30}),
    ("cifar10", "paper", "er", "cil", {"memory_size": 500, "batch_split": "half"}),
    ("cifar100", "paper", "er", "til", {"memory_size": 500, "batch_split": "tasks"}),
    ("tiny-imagenet", "paper", "er", "cil", {"memory_size": 1000}),
    ("tiny-imagenet", "paper", "er", "til", {"memory_size": 500}),
    ("cifar10", "mini", "gem", "cil", {"memory_size": 50, "margin": 0.5, "epochs": 5, "train_per_class": 500}),
    ("cifar10", "mini", "emr", "til", {"memory_size": 20, "epochs": 5}),
    ("cifar10", "mini", "ssil", "cil", {"memory_size": 50}),
    ("cifar10", "mini", "er", "cil", {"memory_size": 50}),
    ("cifar10", "mini", "ewc", "cil", {"strength": 100}),
    ("cifar10", "mini", "oewc", "til", {"strength": 100, "decay": 1}),
    ("cifar10", "mini", "cope", "cil", {"exemplars_per_class": 30, "epochs": 1}),
    ("digits", "digits", "cope", "cil", {"epochs": 1}),
    ("digits", "digits", "emr", "til", {"memory_size": 20}),
    ("digits", "smoke", "cope", "cil", {"epochs": 1, "exemplars_per_class": 10}),
]


@pytest.mark.parametrize(("dataset", "profile", "method", "scenario", "wanted"), SETTINGS)
def test_settings_of_the_profiles(dataset, profile, method, scenario, wanted):
    settled = cm.Experiment(dataset, scenario, method, 0, profile).options
    assert {name: settled[name] for name in wanted} == wanted
