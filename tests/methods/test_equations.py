"""Each numbered equation of the paper against a slow reference written with loops: values and gradients.

First the pure functions, then what the method itself computes: it builds eqs 3, 5, 6 and 9 from the others and calls neither
`centroid_loss` nor `predict`, which are there for the chapters.
"""

import math

import pytest
import torch
from small import arrays, tiny_method

from cmlib import centroids as eq
from cmlib import metrics
from cmlib.errors import CmlibError, OptionError
from cmlib.experiment import Experiment
from cmlib.loop import task_accuracy
from cmlib.projectors import PROJECTORS, ScaleTranslate, make_projector, merge, merge_centroids, merged_log_probabilities

CASES = range(10)


def draw(seed, *shapes):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_() for shape in shapes]


def same(ours, reference, *inputs, tolerance=1e-9):
    """Equal values, and equal gradients of a fixed weighted sum of them."""
    assert ours.shape == reference.shape
    torch.testing.assert_close(ours, reference, rtol=tolerance, atol=tolerance)
    weights = torch.linspace(0.5, 1.5, ours.numel(), dtype=ours.dtype).view(ours.shape)
    got = torch.autograd.grad((ours * weights).sum(), inputs, retain_graph=True)
    wanted = torch.autograd.grad((reference * weights).sum(), inputs, retain_graph=True)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def slow_distance(a, b):
    return sum((a[m] - b[m]) ** 2 for m in range(len(a))).sqrt()


def slow_log_probability(e, c):
    """Eq. 2 as printed, sample by sample and class by class."""
    rows = []
    for sample in e:
        weights = [torch.exp(-slow_distance(centroid, sample)) for centroid in c]
        rows.append(torch.stack([torch.log(weight / sum(weights)) for weight in weights]))
    return torch.stack(rows)


@pytest.mark.parametrize("seed", CASES)
def test_eq1_centroids(seed):
    (e,) = draw(seed, (12, 5))
    y = torch.arange(12) % 3
    slow = torch.stack([sum(e[n] for n in range(12) if y[n] == k) / 4 for k in range(3)])
    same(eq.class_centroids(e, y, 3), slow, e)


@pytest.mark.parametrize("seed", CASES)
def test_eq2_probabilities(seed):
    e, c = draw(seed, (6, 4), (3, 4))
    same(eq.log_probabilities(e, c), slow_log_probability(e, c), e, c)
    torch.testing.assert_close(eq.log_probabilities(e, c).exp().sum(1), torch.ones(6, dtype=torch.float64))


@pytest.mark.parametrize("seed", CASES)
def test_eq3_loss(seed):
    e, c = draw(seed, (6, 4), (3, 4))
    y = torch.tensor([0, 2, 1, 1, 0, 2])
    slow = -sum(slow_log_probability(e, c)[n, y[n]] for n in range(6)) / 6
    same(eq.centroid_loss(e, c, y), slow, e, c)


@pytest.mark.parametrize("seed", CASES)
def test_eq4_drift(seed):
    past, current = draw(seed, (3, 5, 4), (3, 5, 4))
    slow = sum(sum(slow_distance(past[i, n], current[i, n]) for n in range(5)) / 5 for i in range(3)) / 3
    same(eq.drift(past, current), slow, past, current)


@pytest.mark.parametrize("seed", CASES)
def test_eq6_prediction(seed):
    e, c = (x.detach() for x in draw(seed, (20, 4), (5, 4)))
    slow = [min(range(5), key=lambda k: float(slow_distance(sample, c[k]))) for sample in e]
    assert eq.predict(e, c).tolist() == slow
    assert eq.predict(e, c).tolist() == eq.log_probabilities(e, c).argmax(1).tolist()


@pytest.mark.parametrize("seed", CASES)
def test_eq7_merged_probabilities(seed):
    embeddings = draw(seed, (6, 4), (6, 4), (6, 4))
    centroids = draw(seed + 100, (2, 4), (2, 4), (2, 4))
    torch.manual_seed(seed)
    maps = [ScaleTranslate(4).double() for _ in range(3)]
    merged = torch.stack([sum(maps[j](embeddings[j][n]) for j in range(3)) / 3 for n in range(6)])
    anchors = torch.stack([maps[j](centroids[j][k]) for j in range(3) for k in range(2)])
    same(merged_log_probabilities(embeddings, centroids, maps), slow_log_probability(merged, anchors), *embeddings, *centroids)
    same(merge(embeddings, maps), merged, *embeddings)
    same(merge_centroids(centroids, maps), anchors, *centroids)


@pytest.mark.parametrize("seed", CASES)
def test_eq8_scale_translate(seed):
    (e,) = draw(seed, (6, 4))
    torch.manual_seed(seed)
    project = ScaleTranslate(4).double()
    a, b = project.scale[1], project.shift[1]
    rows = []
    for sample in e:
        hidden = [torch.clamp(sample[m], min=0) for m in range(4)]
        scale = [1 / (1 + torch.exp(-(sum(a.weight[m, n] * hidden[n] for n in range(4)) + a.bias[m]))) for m in range(4)]
        shift = [sum(b.weight[m, n] * hidden[n] for n in range(4)) + b.bias[m] for m in range(4)]
        rows.append(torch.stack([sample[m] * scale[m] + shift[m] for m in range(4)]))
    same(project(e), torch.stack(rows), e)


# -- the same equations where the method computes them ------------------------------------------------------------------------

DATA = arrays(size=6, each=12)
LAM = 0.7


def in_task(scenario, index, seed=0, **options):
    """CM on the tiny network in double precision, in one of two tasks of two classes, away from the snapshot: with a batch."""
    settings = {"lam": LAM, "support_size": 4, "embedding_size": 3, "n_tasks": 2, "batch_size": 8}
    settings |= {"memory_size": 8} if scenario == "cil" else {}
    made = tiny_method(Experiment("arrays", scenario, "cm", seed, **{**settings, **options}), DATA)
    for task in made.scenario.tasks[: index + 1]:
        made.begin_task(task)
        made.double().eval()
        made.support = made.support.double()
        draws = torch.Generator().manual_seed(seed + task.index)
        with torch.no_grad():
            for parameter in (p for p in made.parameters() if p.requires_grad):
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=draws, dtype=torch.float64))
        if task.index < index:
            made.end_task(task)
    x, y = made.scenario.tasks[index].x[::3], made.scenario.tasks[index].y[::3]
    if scenario == "cil" and index:
        x, y = torch.cat([x, made.memory.x[::2]]), torch.cat([y, made.memory.y[::2]])
    return made, made.scenario.prepare(x).double(), y, made.scenario.tasks[index]


def slow_centroids(made, task):
    """Eq. 1 from the support images as they are, in the space of the task."""
    e = made.embed(made.scenario.prepare(task.support_x).double(), task.index)
    rows = [[e[n] for n in range(len(e)) if task.support_y[n] == label] for label in task.classes]
    return torch.stack([sum(row) / len(row) for row in rows])


def slow_drift(made, x, tasks):
    """Eq. 4 between the snapshot and the network."""
    pairs = [(made.past["heads"][i](made.past["backbone"].features(x, i)).detach(), made.embed(x, i)) for i in range(tasks)]
    return sum(sum(slow_distance(a, b) for a, b in zip(*pair, strict=True)) / len(x) for pair in pairs) / tasks


def slow_merged(made, x, centroids):
    """Eq. 7: merged embeddings of a batch and the projected centroids of all tasks."""
    spaces = [made.embed(x, i) for i in range(len(made.heads))]
    merged = torch.stack(
        [sum(pi(e[n]) for pi, e in zip(made.projectors, spaces, strict=True)) / len(spaces) for n in range(len(x))]
    )
    return merged, torch.stack([pi(one) for pi, c in zip(made.projectors, centroids, strict=True) for one in c])


def slow_nll(e, c, labels):
    """Eq. 3, minus the log it means, over a batch."""
    return -sum(row[label] for row, label in zip(slow_log_probability(e, c), labels, strict=True)) / len(e)


SITUATIONS = [("til", 0), ("cil", 0), ("til", 1), ("cil", 1)]


@pytest.mark.parametrize(("scenario", "index"), SITUATIONS)
def test_the_loss_of_the_method(scenario, index):
    """Eq. 3 in the first task, eq. 5 (TIL) and eq. 9 (CIL) in the second: the value, and the gradient of every weight.

    The gradient goes through the centroids too: with centroids that are constants it is another one.
    """
    made, x, y, task = in_task(scenario, index)
    learning = [parameter for parameter in made.parameters() if parameter.requires_grad]
    own, first = slow_centroids(made, task), task.classes.start
    if index and scenario == "cil":
        merged, anchors = slow_merged(made, x, [made.centroids[0], own])
        fit, labels = slow_nll(merged, anchors, y.tolist()), set(y.tolist())
        assert labels == {0, 1, 2, 3}
    else:
        fit = slow_nll(made.embed(x, index), own, (y - first).tolist())
    moved = slow_drift(made, x, index) if index else 0.0
    loss = made.loss(x, y, task)
    assert not index or moved.item() > 0.1
    torch.testing.assert_close(loss, fit + LAM * moved, rtol=1e-9, atol=1e-9)
    got = torch.autograd.grad(loss, learning, retain_graph=True, allow_unused=True)
    wanted = torch.autograd.grad(fit + LAM * moved, learning, retain_graph=True, allow_unused=True)
    for a, b in zip(got, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("scenario", ["til", "cil"])
def test_the_centroids_of_a_step_have_a_gradient(scenario):
    """What `loss` takes as centroids: the means of the whole support set, each support image with a gradient of its own."""
    made, _, _, task = in_task(scenario, 1)
    made.support.requires_grad_(True)
    c = made.current_centroids(task)
    torch.testing.assert_close(c, slow_centroids(made, task), rtol=1e-9, atol=1e-9)
    (gradient,) = torch.autograd.grad(c.square().sum(), made.support)
    assert bool((gradient.flatten(1).norm(dim=1) > 0).all()) and len(gradient) == len(task.support_y)


@pytest.mark.parametrize("scenario", ["til", "cil"])
def test_the_past_model_takes_no_part_in_learning(scenario):
    made, x, y, task = in_task(scenario, 1)
    past = made.past_embeddings(x, 1)
    assert not past.requires_grad and not any(parameter.requires_grad for parameter in made.past.parameters())
    torch.testing.assert_close(past[0], made.past["heads"][0](made.past["backbone"].features(x, 0)))
    before = {name: value.clone() for name, value in made.past.state_dict().items()}
    made.train()
    made.step(made.make_optimizer(), x, y, task)
    assert all(torch.equal(value, before[name]) for name, value in made.past.state_dict().items())
    assert all(parameter.grad is None for parameter in made.past.parameters())


@pytest.mark.parametrize("scenario", ["til", "cil"])
def test_the_answer_of_the_method(scenario):
    """Eq. 6, as the engine asks it: the nearest of the task's centroids, or (CIL) of all projected ones."""
    made, *_ = in_task(scenario, 1)
    x = made.scenario.prepare(DATA.x_test).double()
    with torch.no_grad():
        for i, c in enumerate(made.centroids):
            e = made.embed(x, i)
            c.copy_(e[[int(e[:, 0].argmin()), int(e[:, 0].argmax())]])  # far apart, so that answers differ
            apart = torch.stack([torch.stack([slow_distance(centroid, one) for centroid in c]) for one in e])
            nearest = [min(range(2), key=row.__getitem__) for row in apart.tolist()]
            scores = made.scores(x, made.scenario.tasks[i])
            torch.testing.assert_close(scores, -apart, rtol=1e-9, atol=1e-9)
            assert scores.argmax(1).tolist() == nearest and len(set(nearest)) == 2
        if scenario == "cil":
            merged, anchors = slow_merged(made, x, made.centroids)
            apart = torch.stack([torch.stack([slow_distance(anchor, one) for anchor in anchors]) for one in merged])
            torch.testing.assert_close(made.scores(x), -apart, rtol=1e-9, atol=1e-9)
            assert made.scores(x).argmax(1).tolist() == [min(range(4), key=row.__getitem__) for row in apart.tolist()]


@pytest.mark.parametrize("index", [0, 1])
def test_kept_centroids_are_the_last_ones(index):
    """Eq. 1 at the end of a task, with the network as it then is; those of earlier tasks stay as they were."""
    made, _, _, task = in_task("cil", index)
    before = [c.clone() for c in made.centroids]
    made.end_task(task)
    torch.testing.assert_close(made.centroids[index], slow_centroids(made, task).detach(), rtol=1e-9, atol=1e-9)
    assert all(torch.equal(a, b) for a, b in zip(before[:index], made.centroids, strict=False))
    assert 0 <= task_accuracy(made.float(), task, known=True) <= 100


# -- corners ------------------------------------------------------------------------------------------------------------------


def test_distance_at_zero_has_gradient_zero():
    e = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    c = torch.tensor([[1.0, 2.0], [0.0, 0.0]], requires_grad=True)
    d = eq.distances(e, c)
    assert d.tolist()[0][0] == 0.0 and d.tolist()[1][1] == 5.0
    d.sum().backward()
    assert torch.isfinite(e.grad).all() and torch.isfinite(c.grad).all()
    torch.testing.assert_close(c.grad[0], -torch.tensor([2.0, 2.0]) / 8**0.5)  # only the second sample pulls
    still = torch.ones(1, 2, 3, requires_grad=True)
    eq.drift(torch.ones(1, 2, 3), still).backward()
    assert still.grad.abs().max() == 0


def test_other_distances_by_hand():
    e, c = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 0.0], [4.0, 3.0]])
    assert eq.distances(e, c, "squared").tolist() == [[25.0, 2.0]]
    assert float(eq.distances(e, c, "cosine")[0, 1]) == pytest.approx(1 - 24 / 25, abs=1e-6)


def test_a_class_without_support_is_an_error_in_words():
    with pytest.raises(CmlibError, match="no sample of class 1"):
        eq.class_centroids(torch.ones(2, 3), torch.tensor([0, 2]), 3)


def test_gradient_flows_through_the_centroids():
    support = torch.randn(4, 3, requires_grad=True)
    c = eq.class_centroids(support, torch.tensor([0, 0, 1, 1]), 2)
    eq.centroid_loss(torch.randn(2, 3), c, torch.tensor([0, 1])).backward()
    assert (support.grad.norm(dim=1) > 0).all()


@pytest.mark.parametrize("kind", PROJECTORS)
def test_projectors_keep_the_shape(kind):
    torch.manual_seed(0)
    project = make_projector(kind, 7)
    e = torch.randn(3, 7)
    assert project(e).shape == (3, 7)
    by_hand = {
        "none": lambda: e,
        "linear": lambda: e @ project.weight.T + project.bias,
        "mlp": lambda: e.clamp(min=0) @ project[1].weight.T + project[1].bias,
        "offset": lambda: e + project.offset,
        "offset_linear": lambda: e + e @ project.offset.weight.T + project.offset.bias,
        "scale_translate": lambda: e * project.scale(e) + project.shift(e),
    }
    torch.testing.assert_close(project(e), by_hand[kind]())


def test_unknown_projector_names_the_nearest():
    with pytest.raises(OptionError, match="Did you mean 'scale_translate'"):
        make_projector("scale-translate", 3)


R = [[90, math.nan, math.nan], [70, 80, math.nan], [50, 60, 95]]


def test_metrics_of_a_matrix_by_hand():
    assert metrics.accuracy(R) == pytest.approx((50 + 60 + 95) / 3)
    assert metrics.bwt(R) == pytest.approx(((70 - 90) + (50 - 90) + (60 - 80)) / 3)
    assert metrics.bwt_final(R) == pytest.approx(((50 - 90) + (60 - 80)) / 2)
    assert metrics.learning_accuracy(R) == pytest.approx((90 + 80 + 95) / 3)


def test_accuracy_is_learning_accuracy_plus_what_was_lost():
    n = 3
    assert metrics.accuracy(R) == pytest.approx(metrics.learning_accuracy(R) + metrics.bwt_final(R) * (n - 1) / n)


def test_metrics_of_one_task_and_of_nonsense():
    assert metrics.accuracy([[80.0]]) == 80.0
    assert math.isnan(metrics.bwt([[80.0]])) and math.isnan(metrics.bwt_final([[80.0]]))  # nothing was learned before
    with pytest.raises(ValueError, match="square"):
        metrics.accuracy([[1, 2, 3]])
