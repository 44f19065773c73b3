"""Avalanche against cmlib's own loop, our strategies on ordinary benchmarks, and the engine made of both."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from cmlib import datasets, engine, loop
from cmlib.checkpoint import Checkpoint
from cmlib.errors import CmlibError, OptionError
from cmlib.experiment import Experiment, fresh
from cmlib.methods import METHODS
from cmlib.methods.cope import moved_prototypes, pseudo_prototypical_loss
from cmlib.nets import make_backbone
from cmlib.scenario import Scenario

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(importlib.util.find_spec("avalanche") is None, reason="avalanche-lib is not installed"),
]

EXACT = 1e-9  # relative, of losses in double precision; what the tests look for moves them by 1e-3 and more
OURS = [("cm", "til"), ("cm", "cil"), ("emr", "til"), ("ssil", "cil")]
PAIRS = [(name, kind) for name, method in METHODS.items() if method.__module__.startswith("cmlib.") for kind in method.scenarios]


@pytest.fixture(scope="module")
def av() -> Any:
    """cmlib.avalanche, imported only when a test of this file runs: it takes seconds."""
    return importlib.import_module("cmlib.avalanche")


@pytest.fixture(scope="module")
def digits() -> Any:
    return datasets.load("digits")


def smoke(method: str, scenario: str, **options: Any) -> Experiment:
    return Experiment(method=method, scenario=scenario, profile="smoke", **{"train_per_class": 16, **options})


# -- the same losses ------------------------------------------------------------------------------------------------------


def own_losses(
    experiment: Experiment, data: Any, prepare: Callable[[Any], None] = lambda method: None
) -> tuple[list[float], Any]:
    """The losses of cmlib's own loop and the rows of R."""
    method = fresh(experiment, data)
    prepare(method)
    losses: list[float] = []
    step = method.step

    def recorded(*arguments: Any) -> Tensor:
        loss = step(*arguments)
        losses.append(float(loss))
        return loss

    method.step = recorded  # type: ignore[method-assign]
    position = loop.learn(experiment, method, Checkpoint(None), SimpleNamespace(update=lambda n: None))
    return losses, position


def after_each_step(av: Any, monkeypatch: pytest.MonkeyPatch, look: Callable[[Any], Any]) -> list[Any]:
    """What `look` sees in the strategy after each training step; the list fills while runs are made."""
    seen: list[Any] = []
    count = av.Progress.after_training_iteration

    def recorded(self: Any, strategy: Any, **named: Any) -> None:
        seen.append(look(strategy))
        count(self, strategy, **named)

    monkeypatch.setattr(av.Progress, "after_training_iteration", recorded)
    return seen


def avalanche_losses(av: Any, experiment: Experiment, data: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], Any, Any]:
    """The losses through Avalanche, the rows of R and what was trained."""
    losses = after_each_step(av, monkeypatch, lambda strategy: float(strategy.loss))
    made = av.fresh(experiment, data)
    position = av.learn(experiment, made, Checkpoint(None), SimpleNamespace(update=lambda n: None))
    return losses, position, made


@pytest.mark.parametrize(("method", "scenario"), OURS)
@pytest.mark.usefixtures("double")
def test_our_strategies_give_the_losses_of_cmlibs_loop(
    av: Any, few_digits: Any, method: str, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = smoke(method, scenario, batch_size=16, epochs=2)
    theirs, position, _ = avalanche_losses(av, experiment, few_digits, monkeypatch)
    ours, expected = own_losses(experiment, few_digits)
    assert len(ours) == len(theirs) >= 2 * 2 * 3  # steps an epoch, epochs, and at least three tasks
    assert theirs == pytest.approx(ours, rel=EXACT)
    assert position.R == expected.R
    assert position.R_task_known == expected.R_task_known
    assert position.steps == expected.steps
    assert [len(task) for task in position.seconds] == [2] * 5


def in_file_order(monkeypatch: pytest.MonkeyPatch, epoch_of_fisher: int) -> None:
    """cmlib draws the batches of the Fisher information anew, shuffled; Avalanche goes through the data in file order.

    The two estimates differ by the batches alone, so both get Avalanche's here.
    """
    drawn = Scenario.batches

    def batches(self: Scenario, parts: Any, task: int, epoch: int, steps: int | None = None) -> Any:
        if epoch != epoch_of_fisher:
            yield from drawn(self, parts, task, epoch, steps)
            return
        ((x, y, size),) = parts
        for start in range(0, len(y), size):
            yield self.prepare(x[start : start + size]), y[start : start + size]

    monkeypatch.setattr(Scenario, "batches", batches)


def keep_gradients(av: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero gradients instead of dropping them.

    Avalanche's GEM writes the projected gradient only where the current loss left one. torch drops gradients by default, so
    in TIL past heads get none and stand still, though the projection, as the paper writes it, moves them too.
    """
    runs = importlib.import_module("cmlib.avalanche.runs")
    make = runs._sgd

    def sgd(*arguments: Any) -> Any:
        optimizer = make(*arguments)
        monkeypatch.setattr(optimizer, "zero_grad", lambda: type(optimizer).zero_grad(optimizer, set_to_none=False))
        return optimizer

    monkeypatch.setattr(runs, "_sgd", sgd)


@pytest.mark.parametrize("scenario", ["til", "cil"])
@pytest.mark.parametrize("method", ["naive", "ewc", "oewc", "gem"])
@pytest.mark.usefixtures("double")
def test_avalanches_own_strategies_give_the_same_losses(
    av: Any, few_digits: Any, method: str, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strength = {"strength": 10} if method in ("ewc", "oewc") else {}
    experiment = smoke(method, scenario, batch_size=8, **strength)  # 4 steps a task
    if strength:
        in_file_order(monkeypatch, experiment.epochs)
    if method == "gem":
        keep_gradients(av, monkeypatch)
    theirs, _, made = avalanche_losses(av, experiment, few_digits, monkeypatch)

    def same_exemplars(gem: Any) -> None:
        """GEM's two memories are drawn differently (Avalanche: from the whole task, kept normalised): give cmlib Avalanche's."""
        if method != "gem":
            return
        plugin = made._plugin("memory_x")
        first = [task.classes.start if scenario == "til" else 0 for task in gem.scenario.tasks]
        gem._exemplars = lambda task: [(plugin.memory_x[i], plugin.memory_y[i] + first[i]) for i in range(task.index)]

    ours, _ = own_losses(experiment, few_digits, same_exemplars)
    assert len(ours) == len(theirs) == 20
    assert theirs == pytest.approx(ours, rel=EXACT)
    if method != "naive":  # the penalty or the projection is at work: plain training goes another way
        plain, _ = own_losses(experiment.but(method="naive"), few_digits)
        assert ours[:5] == pytest.approx(plain[:5], rel=EXACT)  # nothing differs before the second task's first update
        assert ours[6:] != pytest.approx(plain[6:], rel=1e-3)


@pytest.mark.usefixtures("double")
def test_replay_and_cumulative_share_network_and_first_task(av: Any, few_digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("er", "cumulative"):
        experiment = smoke(method, "til", batch_size=8)
        theirs, _, _ = avalanche_losses(av, experiment, few_digits, monkeypatch)
        ours, _ = own_losses(experiment, few_digits)
        assert len(theirs) == len(ours)
        assert theirs[:4] == pytest.approx(ours[:4], rel=EXACT)  # the first task; its replay is drawn by either in its own way
        if method == "cumulative":  # the batches of the union are cmlib's, so all of it is the same
            assert theirs[:20] == pytest.approx(ours[:20], rel=EXACT)


# -- CoPE -----------------------------------------------------------------------------------------------------------------


def sphere(*shape: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=1)


@pytest.mark.usefixtures("double")
def test_copes_loss_is_avalanches(av: Any) -> None:
    from avalanche.training.plugins.cope import PPPloss

    for seed in range(5):
        labels = torch.randint(0, 4, (12,), generator=torch.Generator().manual_seed(seed))
        prototypes = sphere(5, 8, seed=100 + seed)
        ours, theirs = (sphere(12, 8, seed=200 + seed).requires_grad_() for _ in range(2))
        loss = pseudo_prototypical_loss(ours, labels, prototypes, torch.ones(5, dtype=torch.bool), 0.1)
        expected = PPPloss({c: prototypes[c : c + 1] for c in range(5)}, T=0.1)(theirs, labels)
        assert float(loss) == pytest.approx(float(expected), rel=EXACT)
        loss.backward()
        expected.backward()
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=EXACT, atol=1e-11)


def avalanches_prototypes(prototypes: Tensor, e: Tensor, y: Tensor, momentum: float) -> Tensor:
    from avalanche.training.plugins import CoPEPlugin

    plugin = CoPEPlugin(n_classes=len(prototypes), p_size=prototypes.shape[1], alpha=momentum)
    plugin.p_mem.update({c: prototypes[c : c + 1].clone() for c in range(len(prototypes))})
    plugin._update_running_prototypes(SimpleNamespace(mb_y=y, mb_output=e, device="cpu"))
    plugin._update_prototypes()
    return torch.cat([plugin.p_mem[c] for c in range(len(prototypes))])


@pytest.mark.usefixtures("double")
def test_copes_prototypes_move_as_avalanches_do(av: Any) -> None:
    prototypes, e = sphere(5, 8, seed=1), sphere(12, 8, seed=2)
    alone = torch.tensor([3, 0, 4])
    expected = avalanches_prototypes(prototypes, e[:3], alone, 0.9)
    torch.testing.assert_close(moved_prototypes(prototypes, e[:3], alone, 0.9), expected, rtol=0, atol=EXACT)
    # With several images of a class Avalanche brings their mean to length 1 before it moves the prototype; the paper's
    # equation 2, and cmlib, take the mean as it is. Given the normalised means as images, both do the same.
    y = torch.tensor([0, 0, 0, 1, 1, 1, 1, 3, 3, 3, 3, 3])
    means = torch.stack([F.normalize(e[y == int(c)].mean(0), dim=0) for c in y])
    expected = avalanches_prototypes(prototypes, e, y, 0.9)
    torch.testing.assert_close(moved_prototypes(prototypes, means, y, 0.9), expected, rtol=0, atol=EXACT)
    torch.testing.assert_close(expected[[2, 4]], prototypes[[2, 4]], rtol=0, atol=0)


# -- the engine -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "scenario"), PAIRS)
def test_every_pair_runs_through_avalanche(av: Any, few_digits: Any, method: str, scenario: str) -> None:
    experiment = smoke(method, scenario, batch_size=16).but(engine="avalanche")
    before = torch.get_rng_state()
    run = engine.run(experiment, few_digits, progress=False)
    assert torch.equal(torch.get_rng_state(), before), "torch's global generator was moved"
    assert run.experiment["engine"] == "avalanche"
    assert [[value is not None for value in row] for row in run.R] == [[j <= i for j in range(5)] for i in range(5)]
    assert all(0 <= value <= 100 for row in run.R for value in row if value is not None)
    assert run.status == "finished"
    assert len(run.gradient_steps) == len(run.seconds_per_epoch) == 5
    counterpart = engine.run(experiment.but(engine="cmlib"), few_digits, progress=False)
    assert run.gradient_steps == counterpart.gradient_steps
    assert run.formula == counterpart.formula
    assert run.retained == counterpart.retained  # both keep as much, counted in their own tensors
    if (method, scenario) in (("er", "til"), ("cope", "cil")):
        again = engine.run(experiment, few_digits, progress=False)
        assert (again.R, again.retained) == (run.R, run.retained)


def test_seeds_and_a_loss_that_is_not_finite(av: Any, few_digits: Any) -> None:
    experiment = smoke("gem", "til", batch_size=16, lr=1e6).but(engine="avalanche")
    run = engine.run(experiment, few_digits, progress=False)
    assert run.status.startswith("stopped: the loss is not finite (task ")
    assert run.R[-1] == [None] * 5
    assert run.to_json()  # no NaN in it
    one_step = smoke("naive", "til", batch_size=512, epochs=1, lr=1e30).but(engine="avalanche")
    last = engine.run(one_step, few_digits, progress=False)  # whose only loss is a number, and whose scores then are none
    assert last.gradient_steps == [1] and last.status == "stopped: the loss is not finite (task 1, epoch 1)"
    runs = [engine.run(smoke("naive", "til", seed=s).but(engine="avalanche"), few_digits, progress=False) for s in (1, 2)]
    assert runs[0].R != runs[1].R


@pytest.mark.parametrize(
    ("method", "scenario", "option"),
    [
        ("ewc", "til", {"fisher": "empirical"}),
        ("gem", "cil", {"exemplars": "first"}),
        ("er", "til", {"batch_split": "equal_steps"}),
        ("er", "cil", {"batch_split": "tasks"}),
        ("er", "cil", {"memory_kind": "per_task", "memory_size": 20}),
        ("naive", "til", {"batch_norm": "private"}),
        ("cope", "cil", {"prototype_init": "first_batch"}),
        ("cope", "cil", {"prototype_init": "random"}),
        ("cope", "cil", {"epochs": 2}),
    ],
)
def test_an_option_avalanche_lacks_is_refused(av: Any, digits: Any, method: str, scenario: str, option: dict[str, Any]) -> None:
    experiment = smoke(method, scenario, **option).but(engine="avalanche")
    with pytest.raises(OptionError, match=r"Avalanche's .* has no .*take engine cmlib") as error:
        engine.run(experiment, digits, progress=False)
    assert "\n" not in str(error.value)
    name, value = next(iter(option.items()))
    assert f"{name}={value}" in str(error.value)


def test_batch_splits_of_replay_reach_avalanche(av: Any, few_digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = after_each_step(av, monkeypatch, lambda strategy: len(strategy.mb_y))
    for split, size in (("half", 16), ("double", 32)):
        sizes.clear()
        engine.run(smoke("er", "cil", batch_size=16, batch_split=split).but(engine="avalanche"), few_digits, progress=False)
        assert sizes[2] == size  # the first batch of the second task


# -- ordinary benchmarks --------------------------------------------------------------------------------------------------


class Pictures(TensorDataset):
    """Images and labels as Avalanche wants them."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__(x, y)
        self.targets = y.tolist()


def numbered(x: Tensor, first: int) -> Tensor:
    """Images in 0 ... 1 whose upper left pixel is a number of their own, so that each can be told apart."""
    x = x.float() / 255
    x[:, 0, 0, 0] = (torch.arange(len(x)) + first) / 4096
    return x


@pytest.fixture(scope="module")
def pictures(digits: Any) -> tuple[Pictures, Pictures]:
    kept = torch.cat([(digits.y_train == k).nonzero().squeeze(1)[:40] for k in range(6)])
    tested = torch.cat([(digits.y_test == k).nonzero().squeeze(1)[:20] for k in range(6)])
    train = Pictures(numbered(digits.x_train[kept], 0), digits.y_train[kept])
    return train, Pictures(numbered(digits.x_test[tested], 2048), digits.y_test[tested])


def network() -> nn.Module:
    torch.manual_seed(3)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1)]
    return nn.Sequential(*layers, nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


def ordinary(pictures: tuple[Pictures, Pictures], til: bool, **named: Any) -> Any:
    from avalanche.benchmarks import nc_benchmark

    order = [4, 2, 0, 5, 1, 3]
    named = {"n_experiences": 3, "task_labels": til, "class_ids_from_zero_in_each_exp": til, "fixed_class_order": order} | named
    return nc_benchmark(*pictures, shuffle=False, **named)


class Watch:
    """A plugin that keeps what was trained on; built late, for its parent is Avalanche's."""

    def __new__(cls) -> Any:
        from avalanche.training.plugins import SupervisedPlugin

        class _Watch(SupervisedPlugin):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.batches: list[tuple[int, Tensor, Tensor, Tensor]] = []
                self.outputs: list[Tensor] = []

            def after_forward(self, strategy: Any, **_: Any) -> None:
                task = strategy.clock.train_exp_counter
                self.batches.append((task, strategy.mb_x.clone(), strategy.mb_y.clone(), strategy.mb_task_id.clone()))
                self.outputs.append(strategy.mb_output.clone())

        return _Watch()


OPTIONS: dict[str, dict[str, Any]] = {
    "cm": {"support_size": 8, "memory_size": 24, "embedding_size": 16},
    "emr": {"memory_size": 12},
    "ssil": {"memory_size": 24},
}


def make(av: Any, method: str, kind: str, watch: Any = None, metrics: bool = True, **named: Any) -> Any:
    from avalanche.evaluation.metrics import accuracy_metrics, forgetting_metrics, loss_metrics
    from avalanche.training.plugins import EvaluationPlugin

    kinds = {"minibatch": True, "epoch": True, "experience": True, "stream": True}
    wanted = (
        accuracy_metrics(**kinds),
        loss_metrics(epoch=True, experience=True),
        forgetting_metrics(experience=True, stream=True),
    )
    settings = {
        "train_mb_size": 16,
        "train_epochs": 8,
        "eval_mb_size": 50,
        "evaluator": EvaluationPlugin(*wanted) if metrics else None,
    }
    plugins = [watch] if watch is not None else None
    options = {name: value for name, value in OPTIONS[method].items() if METHODS[method].options[name].fits(kind)}
    return av.STRATEGIES[method](model=network(), scenario=kind, plugins=plugins, **{**settings, **options, **named})


@pytest.fixture(scope="module", params=OURS, ids="-".join)
def trained(request: pytest.FixtureRequest, av: Any, pictures: tuple[Pictures, Pictures]) -> Any:
    """A strategy after three ordinary experiences, with what happened on the way."""
    method, kind = request.param
    watch = Watch()
    strategy, bench = make(av, method, kind, watch), ordinary(pictures, kind == "til")
    untrained = strategy.eval(bench.test_stream)  # nothing is learned yet, and nothing may break
    rows, projectors = [], []
    for experience in bench.train_stream:
        strategy.train(experience)
        rows.append(strategy.eval(bench.test_stream))
        projectors.append([one.detach().clone() for one in getattr(strategy.method, "projectors", nn.ModuleList()).parameters()])
    found = {"method": method, "kind": kind, "strategy": strategy, "bench": bench, "watch": watch, "rows": rows}
    return SimpleNamespace(**found, untrained=untrained, projectors=projectors)


def exp_key(kind: str, i: int, what: str = "Top1_Acc_Exp") -> str:
    return f"{what}/eval_phase/test_stream/Task{i if kind == 'til' else 0:03d}/Exp{i:03d}"


def by_hand(run: Any, i: int) -> float:
    """Accuracy on a test experience from the method's own scores."""
    method, labels = run.strategy.method.eval(), run.strategy.labels
    data = run.bench.test_stream[i].dataset
    x = torch.stack([data[row][0] for row in range(len(data))])
    y = torch.tensor(list(data.targets))
    task = run.strategy.stream.tasks[i] if run.kind == "til" else None
    with torch.no_grad():
        best = method.scores(x, task).argmax(1) + (task.classes.start if task else 0)
    label_of = torch.tensor([label for _, label in labels.pairs])
    return float((label_of[best] == y).float().mean())


def test_strategies_learn_and_avalanches_metrics_are_right(trained: Any) -> None:
    last = trained.rows[-1]
    accuracies = [by_hand(trained, i) for i in range(3)]
    for i, accuracy in enumerate(accuracies):
        assert last[exp_key(trained.kind, i)] == pytest.approx(accuracy, abs=1e-6)
        assert 0 < last[exp_key(trained.kind, i, "Loss_Exp")] < 100
    streams = [name for name in last if name.startswith("Top1_Acc_Stream/eval_phase/test_stream")]
    assert last[streams[-1]] == pytest.approx(sum(accuracies) / 3, abs=1e-6)  # TIL: named after the last task, over all
    chance = 1 / 2 if trained.kind == "til" else 1 / 6
    assert sum(accuracies) / 3 > chance + 0.2
    first = [row[exp_key(trained.kind, 0)] for row in trained.rows]
    assert first[0] > 0.8
    forgotten = last[exp_key(trained.kind, 0, "ExperienceForgetting")]
    assert forgotten == pytest.approx(first[0] - first[2], abs=1e-6)
    assert any("Top1_Acc_Epoch" in name for name in last)
    assert any("Top1_Acc_MB" in name for name in last)


def test_what_is_not_learned_counts_as_wrong_and_makes_no_head(trained: Any) -> None:
    for i in range(3):
        assert trained.untrained[exp_key(trained.kind, i)] == 0
    for learned, row in enumerate(trained.rows[:-1], start=1):
        for i in range(learned, 3):
            assert row[exp_key(trained.kind, i)] == 0
    assert len(trained.strategy.method.heads) == 3
    assert len(trained.strategy.stream.tasks) == 3


def test_batches_are_mapped_and_hold_what_they_should(trained: Any, pictures: tuple[Pictures, Pictures]) -> None:
    strategy, classes = trained.strategy, [[4, 2], [0, 5], [1, 3]]
    supports = []
    for i, (task, x, y, t) in enumerate(trained.watch.batches):
        numbers = (x[:, 0, 0, 0] * 4096).round().long()
        true = torch.tensor(pictures[0].targets)[numbers]  # the digit each image shows
        if trained.kind == "til":
            assert set(t.tolist()) == {task}
            assert torch.equal(torch.tensor(classes[task])[y], true) or torch.equal(torch.tensor(sorted(classes[task]))[y], true)
            assert set(true.tolist()) <= set(classes[task])
        else:
            assert torch.equal(y, true)
            assert set(true.tolist()) <= {label for seen in classes[: task + 1] for label in seen}
        assert trained.watch.outputs[i].argmax(1).max() <= y.max().clamp(min=5)
    if trained.kind == "cil":
        replayed = {int(label) for task, _, y, _ in trained.watch.batches if task == 2 for label in y}
        assert replayed == {0, 1, 2, 3, 4, 5}, "replay does not hold all past classes"
    for task in strategy.stream.tasks:
        supports += strategy.stream.prepare(task.support_x)[:, 0, 0, 0].tolist() if len(task.support_x) else []
    used = {round(float(v) * 4096) for _, x, _, _ in trained.watch.batches for v in x[:, 0, 0, 0]}
    set_apart = {round(v * 4096) for v in supports}
    assert len(set_apart) == (3 * 8 if trained.method == "cm" else 0)
    assert not used & set_apart, "a support image was trained on"
    assert len(used) == 240 - len(set_apart), "an image was never trained on"


def test_projectors_learn_and_everything_that_learns_is_optimised(trained: Any) -> None:
    strategy = trained.strategy
    optimised = {id(one) for group in strategy.optimizer.param_groups for one in group["params"]}
    learning = {id(one) for one in strategy.model.parameters() if one.requires_grad}
    assert optimised == learning
    if (trained.method, trained.kind) != ("cm", "cil"):
        return
    for before, after in zip(trained.projectors[1], trained.projectors[2][: len(trained.projectors[1])], strict=True):
        assert not torch.equal(before, after), "a projector stood still through an experience"


def test_batch_norms_keep_their_weights_and_their_optimizer(av: Any) -> None:
    module = network()
    norms = [one for one in module if isinstance(one, nn.BatchNorm2d)]
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    strategy = av.CentroidsMatching(model=module, optimizer=optimizer, scenario="til", evaluator=None)
    replaced = strategy.model.backbone.task_norms()
    assert [norm.kind for norm in replaced] == ["private", "private"]
    assert [norm.norms[0] is old for norm, old in zip(replaced, norms, strict=True)] == [True, True]
    assert {id(p) for p in optimizer.param_groups[0]["params"]} == {id(p) for p in strategy.model.parameters()}


def test_evaluation_in_the_middle_of_a_task_changes_nothing(av: Any, pictures: tuple[Pictures, Pictures]) -> None:
    bench, found = ordinary(pictures, False), []
    for every in (-1, 1):
        strategy = make(av, "cm", "cil", metrics=False, train_epochs=2, eval_every=every)
        for experience in bench.train_stream[:2]:
            strategy.train(experience, eval_streams=[bench.test_stream])
        found.append(torch.cat([one.detach().reshape(-1) for one in strategy.model.parameters()]))
    assert torch.equal(*found)


def test_workers_load_the_same_batches(av: Any, pictures: tuple[Pictures, Pictures]) -> None:
    bench, found = ordinary(pictures, False), []
    for workers in (0, 1):
        watch = Watch()
        strategy = make(av, "cm", "cil", watch, metrics=False, train_epochs=1)
        for experience in bench.train_stream[:2]:
            strategy.train(experience, num_workers=workers)
        found.append(torch.cat([x for _, x, _, _ in watch.batches]))
    assert torch.equal(*found)


def test_a_benchmark_that_does_not_fit_gives_one_line(av: Any, pictures: tuple[Pictures, Pictures]) -> None:
    uneven = ordinary(pictures, False, n_experiences=2, per_exp_classes={0: 4, 1: 2})
    strategy = make(av, "ssil", "cil", metrics=False, train_epochs=1)
    strategy.train(uneven.train_stream[0])
    with pytest.raises(OptionError, match="experience 2 brings 2 classes, those before 4: all must bring as many"):
        strategy.train(uneven.train_stream[1])
    again = make(av, "ssil", "cil", metrics=False, train_epochs=1)
    again.train(uneven.train_stream[0])
    with pytest.raises(OptionError, match=r"experience 2 brings class . again"):
        again.train(uneven.train_stream[0])
    unlabelled = make(av, "cm", "til", metrics=False, train_epochs=1)
    bench = ordinary(pictures, False)
    unlabelled.train(bench.train_stream[0])
    with pytest.raises(OptionError, match="has no task label of its own, which scenario til needs"):
        unlabelled.train(bench.train_stream[1])


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("CentroidsMatching", {"lamda": 1}, "cm has no option 'lamda'.*Did you mean 'lam'"),
        ("CentroidsMatching", {"lam": -1}, "lam=-1 is impossible"),
        ("CentroidsMatching", {"epochs": 3}, "epochs is no option of this strategy"),
        ("EmbeddingRegularization", {"scenario": "cil"}, "emr does not work in scenario cil; allowed: til"),
        ("SSIL", {"scenario": "til"}, "ssil does not work in scenario til; allowed: cil"),
        ("CentroidsMatching", {"scenario": "til", "memory_size": 7}, "memory_size=7 does nothing with cm in scenario til"),
        (
            "CentroidsMatching",
            {"scenario": "cil", "batch_norm": "private"},
            "batch_norm=private does not work with cm in scenario cil",
        ),
    ],
)
def test_options_of_strategies_are_checked(av: Any, strategy: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message) as error:
        getattr(av, strategy)(model=network(), **options)
    assert "\n" not in str(error.value)


# -- batches from the device ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["til", "cil"])
def test_device_batches_feed_any_strategy(av: Any, digits: Any, kind: str) -> None:
    from avalanche.training.supervised import Naive

    class FastNaive(av.DeviceBatches, Naive):  # type: ignore[misc, name-defined]
        pass

    scenario = Scenario(digits, kind, train_per_class=16, seed=2)
    bench, watch = av.benchmark(scenario), Watch()
    model = nn.Sequential(network(), nn.Linear(128, 10))
    fast = FastNaive(
        model=model, optimizer=torch.optim.SGD(model.parameters(), 0.05, 0.9), criterion=nn.CrossEntropyLoss(),
        train_mb_size=8, train_epochs=3, eval_mb_size=100, plugins=[watch], evaluator=None,
    )  # fmt: skip
    before = [one.detach().clone() for one in model.parameters()]
    fast.train(bench.train_stream[0], eval_streams=[])
    fast.train(bench.train_stream[1], eval_streams=[])
    expected = [
        (x, y - task.classes.start if kind == "til" else y, task.index if kind == "til" else 0)
        for task in scenario.tasks[:2]
        for epoch in range(3)
        for x, y in scenario.batches([(task.x, task.y, 8)], task.index, epoch)
    ]
    assert len(expected) == len(watch.batches) == 24
    for (x, y, t), (_, got_x, got_y, got_t) in zip(expected, watch.batches, strict=True):
        assert torch.equal(x, got_x)
        assert torch.equal(y, got_y)
        assert got_t.tolist() == [t] * len(y)
    assert not torch.equal(watch.batches[0][1], watch.batches[4][1])  # another order in the second epoch
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_the_benchmark_holds_the_scenarios_images(av: Any, digits: Any) -> None:
    scenario = Scenario(digits, "til", seed=4, support_size=10)
    for i, (train, test) in enumerate(zip(*(av.benchmark(scenario).streams[s] for s in ("train", "test")), strict=True)):
        task = scenario.tasks[i]
        assert (len(train.dataset), len(test.dataset)) == (len(task.y), len(task.test_y))
        x, y, t = test.dataset.eval()[7]
        torch.testing.assert_close(x, scenario.prepare(task.test_x[7:8])[0], rtol=0, atol=0)
        assert (y, t) == (int(task.test_y[7]) - task.classes.start, i)
        assert set(train.classes_in_this_experience) == {0, 1}
        assert list(train.task_labels) == [i]


def test_device_batches_leave_a_strategy_its_own_data(av: Any, digits: Any) -> None:
    """Cumulative trains on all that came so far, however its batches are made."""
    from avalanche.training.supervised import Cumulative

    class FastCumulative(av.DeviceBatches, Cumulative):  # type: ignore[misc, name-defined]
        pass

    bench, watch = av.benchmark(Scenario(digits, "cil", train_per_class=16)), Watch()
    model = nn.Sequential(network(), nn.Linear(128, 10))
    fast = FastCumulative(
        model=model, optimizer=torch.optim.SGD(model.parameters(), 0.05), criterion=nn.CrossEntropyLoss(), train_mb_size=16,
        plugins=[watch], evaluator=None,
    )  # fmt: skip
    for one in bench.train_stream[:2]:
        watch.batches.clear()
        fast.train(one)
    assert sorted(torch.cat([y for _, _, y, _ in watch.batches]).tolist()) == sorted([0, 1, 2, 3] * 16)


@pytest.mark.parametrize("strategy", ["CentroidsMatching", "SSIL"])
def test_an_experience_is_learned_once_and_in_order(av: Any, digits: Any, strategy: str) -> None:
    scenario = Scenario(digits, "cil", train_per_class=16, support_size=4 if strategy == "CentroidsMatching" else 0)
    bench = av.benchmark(scenario)
    options = {"support_size": 4} if strategy == "CentroidsMatching" else {}
    made = getattr(av, strategy)(model=network(), scenario="cil", memory_size=20, evaluator=None, **options)
    made.train(bench.train_stream[0])
    for i, words in ((0, "experience 1 was learned already; the next one is 2"), (2, "experience 3 comes too early")):
        with pytest.raises(OptionError, match=words):
            made.train(bench.train_stream[i])
    made.train(bench.train_stream[1])
    assert len(made.method.heads) == 2


def test_a_seed_beside_a_scenarios_is_refused(av: Any, digits: Any) -> None:
    bench = av.benchmark(Scenario(digits, "cil", seed=3, train_per_class=16, support_size=4))
    options = {"scenario": "cil", "support_size": 4, "memory_size": 20, "evaluator": None}
    with pytest.raises(OptionError, match="seed=7, but the scenario has seed 3; give it to"):
        av.CentroidsMatching(model=network(), seed=7, **options).train(bench.train_stream[0])
    made = av.CentroidsMatching(model=network(), **options)
    made.train(bench.train_stream[0])
    assert made.method.seed == 3
    for other in ({"support_size": 6}, {"stratified": False}):  # a support set of its own, but the scenario's seed
        made = av.CentroidsMatching(model=network(), **options | other)
        made.train(bench.train_stream[0])
        assert made.method.seed == 3 and type(made.stream).__name__ == "ExperienceStream"


def test_batch_norms_of_a_backbone_are_those_of_the_option(av: Any) -> None:
    backbone = make_backbone(1, "shared", 0, "convnet")
    with pytest.raises(OptionError, match="batch_norm=private, but the model's batch norms are shared; give both the same"):
        av.CentroidsMatching(model=backbone, scenario="til", evaluator=None)
    assert (
        av.CentroidsMatching(model=backbone, scenario="til", batch_norm="shared", evaluator=None).option["batch_norm"] == "shared"
    )


def test_a_stream_may_have_no_length(av: Any, pictures: tuple[Pictures, Pictures]) -> None:
    """Its experiences come one by one, and nobody says how many there will be."""
    from avalanche.benchmarks.scenarios.generic_scenario import CLStream

    bench = ordinary(pictures, til=False)
    made = av.SSIL(model=network(), memory_size=20, evaluator=None)
    for one in CLStream("train", iter(bench.train_stream), bench):
        made.train(one)
    assert len(made.stream.tasks) == len(bench.train_stream) == made.stream.n_tasks
    assert made.stream.task_sizes == (2,) * len(bench.train_stream)


def test_the_steps_of_an_epoch_are_counted_once(av: Any, digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Avalanche's progress bar asks in each epoch how many there are."""
    bench = av.benchmark(Scenario(digits, "cil", train_per_class=16, support_size=4))
    made = av.CentroidsMatching(
        model=network(), scenario="cil", support_size=4, memory_size=20, train_epochs=3, evaluator=None, train_mb_size=8
    )
    drawn: list[int] = []
    batches = METHODS["cm"].batches
    monkeypatch.setattr(METHODS["cm"], "batches", lambda self, task, epoch: drawn.append(epoch) or batches(self, task, epoch))
    plugin = Watch()
    plugin.before_training_epoch = lambda strategy, **_: len(strategy.dataloader)  # type: ignore[attr-defined]
    made.plugins.append(plugin)
    made.train(bench.train_stream[0])
    assert drawn == [0, 0, 1, 2]


def test_an_optimizer_may_have_groups_and_a_trained_strategy_can_be_copied(av: Any, digits: Any) -> None:
    scenario, model = Scenario(digits, "cil", train_per_class=16, support_size=4), network()
    norms = [one for module in model.modules() if isinstance(module, nn.BatchNorm2d) for one in module.parameters()]
    rest = [one for one in model.parameters() if not any(one is norm for norm in norms)]
    first, second = (rest, norms) if norms else (rest[:1], rest[1:])
    groups = [{"params": first, "weight_decay": 1e-4}, {"params": second}]
    made = av.CentroidsMatching(
        model=model, optimizer=torch.optim.SGD(groups, 0.01), scenario="cil", support_size=4, memory_size=20, evaluator=None
    )
    for one in av.benchmark(scenario).train_stream[:3]:
        made.train(one)
    held = {id(one) for group in made.optimizer.param_groups for one in group["params"]}
    assert held == {id(one) for one in made.model.parameters() if one.requires_grad}
    assert [len(group["params"]) for group in made.optimizer.param_groups][1] == len(second)
    assert len(copy.deepcopy(made).method.heads) == 3


def test_scenario_and_strategy_lie_on_one_device(av: Any, digits: Any) -> None:
    scenario = Scenario(digits, "cil", train_per_class=16, support_size=4)
    bench, scenario.device = av.benchmark(scenario), torch.device("meta")
    made = av.CentroidsMatching(model=network(), scenario="cil", support_size=4, memory_size=20, evaluator=None)
    with pytest.raises(OptionError, match="the scenario lies on meta, the strategy on cpu; make both for one"):
        made.train(bench.train_stream[0])


def test_device_batches_need_the_benchmark_of_a_scenario(av: Any, pictures: tuple[Pictures, Pictures]) -> None:
    from avalanche.training.supervised import Naive

    class FastNaive(av.DeviceBatches, Naive):  # type: ignore[misc, name-defined]
        pass

    model = nn.Sequential(network(), nn.Linear(128, 10))
    fast = FastNaive(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), evaluator=None)
    with pytest.raises(OptionError, match=r"not of cmlib.avalanche.benchmark\(scenario\)"):
        fast.train(ordinary(pictures, False).train_stream[0])


# -- absent ---------------------------------------------------------------------------------------------------------------

BLOCKED = "import sys; sys.modules['avalanche'] = None; "


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_importing_cmlib_leaves_avalanche_alone() -> None:
    done = python("import sys, cmlib, cmlib.engine, cmlib.cli; print('avalanche' in sys.modules)")
    assert (done.stdout.strip(), done.returncode) == ("False", 0), done.stderr


def test_without_avalanche_there_is_one_clear_line() -> None:
    code = (
        "from cmlib.cli import main; sys.exit(main(['run', '--engine', 'avalanche', '--profile', 'smoke', '--method', 'naive']))"
    )
    done = python(BLOCKED + code)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "cmlib: engine avalanche needs the package avalanche-lib (Python 3.11 or 3.12): pip install 'cmlib[avalanche]'"
    )
    code = (
        "from cmlib.errors import CmlibError\n"
        "try: import cmlib.avalanche\n"
        "except CmlibError as error: print(type(error).__name__)"
    )
    assert python(BLOCKED + "\n" + code).stdout.strip() == "OptionError"
    assert issubclass(OptionError, CmlibError)
