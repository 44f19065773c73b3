"""Backbone, heads and batch norm per task."""

import copy

import pytest
import torch
import torch.nn.functional as F

from cmlib.nets import Block, ResNet20, TaskBatchNorm2d, make_backbone, make_head
from cmlib.randomness import class_order, generator, seeded


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameter_counts():
    assert count(ResNet20(3)) == 269_072  # ResNet20 of 269,722 parameters less its last layer, 64 x 10 + 10
    assert count(ResNet20(1)) == 269_072 - 2 * 16 * 9
    assert sum(norm.features for norm in ResNet20(3).task_norms()) == 688
    assert count(make_head("linear", 2, 0, 0)) == 64 * 2 + 2
    assert count(make_head("mlp", 128, 0, 0)) == 64 * 64 + 64 + 64 * 128 + 128


def test_shapes_and_global_average():
    net = ResNet20(3).eval()
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 64)
    assert net(torch.zeros(2, 3, 8, 8)).shape == (2, 64)
    assert [block.conv1.stride[0] for block in net.blocks] == [1, 1, 1, 2, 1, 1, 2, 1, 1]


def test_option_a_shortcut_by_hand():
    block = Block(2, 4, 2, "shared").eval()
    for conv in (block.conv1, block.conv2):
        torch.nn.init.zeros_(conv.weight)
    x = torch.rand(1, 2, 4, 4)
    y = block(x)  # the convolutions give 0, so the shortcut alone is left
    assert y.shape == (1, 4, 2, 2)
    torch.testing.assert_close(y[:, 1:3], x[:, :, ::2, ::2])
    assert y[:, 0].abs().max() == 0 and y[:, 3].abs().max() == 0


def test_one_seed_gives_one_backbone_whatever_the_norm():
    first, second = make_backbone(3, "shared", 7), make_backbone(3, "private", 7)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.conv.weight, make_backbone(3, "shared", 8).conv.weight)


@pytest.mark.usefixtures("double")
def test_private_norms_are_frozen_and_restored():
    norm = TaskBatchNorm2d(3, "private")
    norm(torch.randn(16, 3, 4, 4) * 3 + 1)
    before = copy.deepcopy(norm.norms[0].state_dict())
    x = torch.randn(4, 3, 2, 2)
    norm.eval()
    wanted = norm(x)
    norm.train()
    norm.add_task()
    assert norm.task == 1 and torch.equal(norm.norms[1].weight, torch.ones(3))  # fresh, not a copy
    norm(torch.randn(16, 3, 4, 4) * 9)
    norm.task = 0
    torch.testing.assert_close(norm(x), wanted)  # in train mode too
    assert all(torch.equal(value, norm.norms[0].state_dict()[key]) for key, value in before.items())
    assert not any(parameter.requires_grad for parameter in norm.norms[0].parameters())


def test_shared_norm_stays_one_and_stats_share_the_affine_map():
    shared, stats = TaskBatchNorm2d(3, "shared"), TaskBatchNorm2d(3, "stats")
    shared.add_task()
    stats.add_task()
    assert len(shared.norms) == 1 and len(stats.norms) == 2
    assert stats.norms[0].weight is stats.norms[1].weight and stats.norms[0].weight.requires_grad


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kind", ["private", "stats"])
def test_past_tasks_as_one_batch_equal_one_pass_each(kind):
    net = ResNet20(1, kind)
    for _ in range(3):
        net.features(torch.randn(16, 1, 8, 8))
        net.add_task()
    x = torch.randn(5, 1, 8, 8)
    together = net.past_features(x, 3)
    for task in range(3):
        torch.testing.assert_close(together[task], net.features(x, task), rtol=1e-9, atol=1e-11)
    parameters = [net.conv.weight, net.blocks[4].conv2.weight]
    weights = torch.linspace(0.1, 1, together.numel()).view(together.shape)
    got = torch.autograd.grad((together * weights).sum(), parameters)
    single = torch.stack([net.features(x, task) for task in range(3)])
    for a, b in zip(got, torch.autograd.grad((single * weights).sum(), parameters), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.usefixtures("double")
def test_folded_norm_is_batch_norm_in_eval_mode():
    norm = TaskBatchNorm2d(3, "private")
    norm(torch.randn(16, 3, 4, 4) * 2 + 1)
    x = torch.randn(4, 3, 2, 2)
    scale, shift = norm.folded(1)
    inner = norm.norms[0]
    wanted = F.batch_norm(x, inner.running_mean, inner.running_var, inner.weight, inner.bias, False, 0.0, inner.eps)
    torch.testing.assert_close(x * scale.view(1, 3, 1, 1) + shift.view(1, 3, 1, 1), wanted)


def test_class_orders():
    assert class_order(10, 0).tolist() == list(range(10))
    assert class_order(10, 1).tolist() == [5, 6, 1, 2, 0, 8, 9, 3, 7, 4]  # torch.manual_seed(1); torch.randperm(10)
    assert class_order(10, 2).tolist() == [8, 7, 1, 5, 6, 9, 0, 4, 2, 3]


def test_named_generators():
    def draw(*name):
        return torch.randint(0, 2**31, (4,), generator=generator(*name)).tolist()

    assert draw(1, 2, 3, "a") == draw(1, 2, 3, "a")
    names = [(1, 2, 3, "a"), (1, 2, 3, "b"), (1, 2, 4, "a"), (1, 3, 3, "a"), (2, 2, 3, "a")]
    assert len({tuple(draw(*name)) for name in names}) == len(names)
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    with seeded(1, 2, "x"):
        torch.rand(100)
    assert torch.equal(torch.rand(3), wanted)
