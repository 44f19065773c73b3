"""The README's code runs as printed, and its loss is the package's."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import cmlib as cm
from cmlib import centroids as eq
from cmlib.teaching import filled

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
LOSS, EXPERIMENT, STRATEGY = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def loss_of_the_readme():
    space = {}
    exec(LOSS, space)
    return space["centroids_matching_loss"]


def test_the_loss_is_short():
    assert len(LOSS.split('"""')[2].strip().splitlines()) <= 15


@pytest.mark.usefixtures("double")
def test_the_loss_equals_cmlib():
    loss = loss_of_the_readme()
    torch.manual_seed(0)
    nets = [torch.nn.Linear(6, 4) for _ in range(5)]
    x, support = torch.randn(8, 6), torch.randn(6, 6)
    y, support_y = torch.arange(8) % 3, torch.arange(6) % 3
    e = nets[0]
    plain = eq.centroid_loss(e(x), eq.class_centroids(e(support), support_y, 3), y)
    torch.testing.assert_close(loss(e, x, y, support, support_y, 3), plain)
    past = [(nets[1], nets[2]), (nets[3], nets[4])]
    moved = eq.drift(torch.stack([old(x) for old, _ in past]), torch.stack([new(x) for _, new in past]))
    torch.testing.assert_close(loss(e, x, y, support, support_y, 3, past, lam=0.5), plain + 0.5 * moved)


def test_the_loss_trains_in_a_loop_of_ones_own():
    loss = loss_of_the_readme()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    y = torch.arange(60) % 2
    x = torch.randn(60, 2) * 0.3 + y.unsqueeze(1)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(net, x[10:], y[10:], x[:10], y[:10], 2)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < 0.3 < losses[0]


def test_the_experiment_runs(capsys):
    exec(EXPERIMENT, {"__name__": "readme"})
    assert 'profile="smoke"' in EXPERIMENT and capsys.readouterr().out.count("[") >= 6


@pytest.mark.engines
def test_the_avalanche_example_is_short_and_learns(capsys):
    assert len([line for line in STRATEGY.splitlines() if line]) <= 20
    torch.manual_seed(0)
    exec(STRATEGY, {"__name__": "readme"})
    assert 0.6 < float(capsys.readouterr().out.splitlines()[-1]) <= 1  # chance is 0.1


def test_arrays_of_ones_own():
    torch.manual_seed(0)
    y = torch.arange(80) % 4
    x = (torch.rand(80, 8, 8) * 60 + y.view(-1, 1, 1) * 60).to(torch.uint8)
    run = cm.run(cm.Experiment("arrays", method="naive", n_tasks=2, epochs=2), data=(x, y))
    assert run.matrix.shape == (2, 2) and run.data["classes"] == 4


def test_the_picture_is_that_of_the_committed_runs(tmp_path):
    drawn = filled.readme_picture(tmp_path / "readme.png")
    stored = Path(__file__).parents[2] / "book" / "_static" / "readme.png"
    pictures = [np.asarray(Image.open(path).convert("RGBA"), dtype=float) for path in (drawn, stored)]
    assert pictures[0].shape == pictures[1].shape and np.abs(pictures[0] - pictures[1]).mean() < 1
    assert "book/_static/readme.png" in README
