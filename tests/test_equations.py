"""Each numbered equation of the paper against a slow reference written with loops: values and gradients."""

import math

import pytest
import torch

from cmlib import centroids as eq
from cmlib import metrics
from cmlib.errors import CmlibError, OptionError
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
