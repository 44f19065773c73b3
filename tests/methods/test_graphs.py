"""Recorded steps: on the CPU with a recorder that only remembers, so that all but CUDA itself is tested."""

import pytest
import torch
from tiny import tiny_nets

import cmlib as cm
from cmlib import cudagraph, loop
from cmlib.experiment import fresh
from cmlib.methods.base import METHODS

PAIRS = [(name, scenario) for name, cls in METHODS.items() for scenario in cls.scenarios]


@pytest.fixture(scope="module")
def digits(few_digits):
    """Digits with few test images, and methods with a small network."""
    with tiny_nets():
        yield few_digits


def remember(step, x, y):
    """A recorder as CUDA's: it makes steps of its own, and what it returns reads the fixed tensors."""
    for _ in range(cudagraph.WARM_UP):
        step(x, y)
    return lambda: step(x, y)


def wrong(step, x, y):
    return lambda: step(x, y) + 0.1


def fails(step, x, y):
    step(x, y)
    raise RuntimeError("operation not permitted when stream is capturing\nmore lines")


def use(monkeypatch, recorder):
    """Make the engine use a recorder as if it were on CUDA; returns the list of its steppers."""
    made = []

    def stepper(method, optimizer, task, wanted=True):
        made.append(cudagraph.Stepper(method, optimizer, task, recorder))
        return made[-1]

    monkeypatch.setattr(loop, "stepper", stepper)
    return made


@pytest.mark.parametrize(("method", "scenario"), PAIRS)
def test_recording_changes_nothing(digits, monkeypatch, method, scenario):
    """The weights are the same to the bit: the recorder's own steps and the comparison leave no trace."""
    experiment = cm.Experiment("digits", scenario, method, 1, "smoke", n_tasks=2, train_per_class=40)
    plain, one = cm.train(experiment, digits)
    made = use(monkeypatch, remember)
    recorded, two = cm.train(experiment, digits)
    assert recorded.R == plain.R
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))
    assert len(made) == 2 and all((one.replay is not None) == METHODS[method].recordable for one in made)


@pytest.mark.parametrize(("recorder", "reason"), [(wrong, "differ from"), (fails, "not permitted when stream is capturing$")])
def test_a_recording_that_cannot_be_trusted_is_dropped(digits, monkeypatch, recorder, reason):
    experiment = cm.Experiment("digits", "cil", "cm", 1, "smoke", n_tasks=2, train_per_class=40)
    plain = cm.run(experiment, digits)
    made = use(monkeypatch, recorder)
    with pytest.warns(RuntimeWarning, match="steps of cm run without CUDA graph: .*" + reason):
        assert cm.run(experiment, digits).R == plain.R
    assert all(one.replay is None and one.recorder is None for one in made)


def test_batches_of_another_size_run_as_they_are(digits):
    method = fresh(cm.Experiment("digits", "til", "naive", 0, "smoke"), digits)
    task = method.scenario.tasks[0]
    method.begin_task(task)
    method.train()
    replayed = []

    def recorder(step, x, y):
        def replay():
            replayed.append(len(x))
            return step(x, y)

        return replay

    step = cudagraph.Stepper(method, method.make_optimizer(), task, recorder)
    x, y = method.scenario.prepare(task.x[:32]), task.y[:32]
    for size in (32, 32, 32, 20, 32, 32, 20):
        step(x[:size], y[:size])
    assert replayed == [32] * (cudagraph.CHECKED + 2)  # the fifth and the sixth step


def test_nothing_is_recorded_on_a_cpu(digits):
    method = fresh(cm.Experiment("digits", "til", "naive", 0, "smoke"), digits)
    task = method.scenario.tasks[0]
    method.begin_task(task)
    assert cudagraph.stepper(method, method.make_optimizer(), task).recorder is None
