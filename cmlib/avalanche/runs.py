"""The engine `avalanche`: runs of an experiment through Avalanche, by our strategies or by its own on cmlib's network."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from typing import Any

import torch
from avalanche.benchmarks import split_online_stream
from avalanche.models import MultiTaskModule
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin, SupervisedPlugin
from avalanche.training.supervised import EWC, GEM, CoPE, Cumulative, Naive
from torch import Tensor, nn

from cmlib import experiment as experiments
from cmlib import loop
from cmlib.avalanche.loaders import DeviceBatches, benchmark, origin_of
from cmlib.avalanche.strategies import SSIL, CentroidsMatching, EmbeddingRegularization, MethodStrategy
from cmlib.avalanche.streams import labels_of
from cmlib.checkpoint import Checkpoint, Position
from cmlib.datasets import ImageData
from cmlib.errors import OptionError
from cmlib.experiment import Experiment
from cmlib.loop import AfterTask
from cmlib.methods import METHODS, Method
from cmlib.methods.base import split_batch
from cmlib.randomness import seed_of
from cmlib.scenario import Part, Scenario, Task
from cmlib.store import FINISHED

EVAL_BATCH = loop.EVAL_BATCH


class TaskModel(MultiTaskModule):
    """cmlib's network for Avalanche's strategies: the backbone once for the whole batch, then the heads.

    method: brings the initial backbone and, as tasks begin, the initial heads, which come last in the order of parameters.
    mixes_tasks: batches may hold several tasks, so every head takes part in each (TIL).
    """

    def __init__(self, method: Method, mixes_tasks: bool = False) -> None:
        super().__init__()
        self.mixes_tasks = mixes_tasks
        self.backbone, self.trunk, self.heads = method.backbone, method.trunk, method.heads
        self._source = [method]  # in a list: no submodule, or its parameters would be listed twice

    def adaptation(self, experience: Any) -> None:
        """In training, add the head of a new task; in evaluation, nothing."""
        task = origin_of(experience)[1]
        if self.training and task.index == len(self.heads):
            Method.begin_task(self._source[0], task)

    def forward(self, x: Tensor, task_labels: Tensor) -> Tensor:
        """TIL: logits of each sample's own task. CIL: of all classes seen. [B, C, H, W], [B] -> [B, K]"""
        hidden = self.trunk(self.backbone.features(x))
        method = self._source[0]
        if method.kind == "cil":
            return torch.cat([head(hidden) for head in self.heads], dim=1)
        labels = torch.as_tensor(task_labels, device=x.device)
        tasks = [] if self.mixes_tasks else labels.unique().tolist()
        if len(tasks) == 1:
            return self.heads[tasks[0]](hidden)
        logits = torch.stack([head(hidden) for head in self.heads], dim=1)  # [B, t, K]
        return logits[torch.arange(len(x), device=x.device), labels]


class _LastLayer(nn.Linear):
    """Hands its input on. Avalanche's CoPE puts its normalisation behind the last linear layer, so there must be one."""

    def __init__(self) -> None:
        with torch.random.fork_rng(devices=[]):  # its weights are never used
            super().__init__(1, 1)
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return x


class PrototypeModel(nn.Module):
    """cmlib's backbone for Avalanche's CoPE: its features are the embedding."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.backbone, self.last = method.backbone, _LastLayer()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.backbone.features(x))


class _Naive(DeviceBatches, Naive):
    """Avalanche's Naive."""


class _EWC(DeviceBatches, EWC):
    """Avalanche's EWC."""


class _GEM(DeviceBatches, GEM):
    """Avalanche's GEM."""


class _Cumulative(DeviceBatches, Cumulative):
    """Avalanche's Cumulative, whose batches come from the shuffled union."""

    def device_part(self, scenario: Scenario, task: Task) -> Part:
        seen = scenario.tasks[: task.index + 1]
        return torch.cat([one.x for one in seen]), torch.cat([one.y for one in seen]), self.train_mb_size


class _Shares(ReplayPlugin):
    """Avalanche's replay, with the shares of a batch that `batch_split` names."""

    def __init__(self, split: str, size: int, memory_size: int) -> None:
        super().__init__(memory_size, task_balanced_dataloader=split == "tasks")
        self.split, self.size = split, size

    def before_training_exp(self, strategy: Any, **named: Any) -> None:
        tasks = len(self.storage_policy.buffer_groups)
        if self.split == "tasks":
            current = split_batch(self.size, tasks + 1)[0]
            self.batch_size, self.batch_size_mem = current, max(tasks, self.size - current)
        elif self.split == "half":
            replayed = max(1, self.size // 2)
            self.batch_size, self.batch_size_mem = self.size - replayed, replayed
        super().before_training_exp(strategy, **named)


# -- the engine -----------------------------------------------------------------------------------------------------------

MIXING = ("er", "cumulative")  # methods whose batches hold several tasks
STRATEGIES: dict[str, type[MethodStrategy]] = {"cm": CentroidsMatching, "emr": EmbeddingRegularization, "ssil": SSIL}
THEIRS = ("naive", "cumulative", "ewc", "oewc", "gem", "er", "cope")  # Avalanche's own code; every other method is ours


def strategy_of(method: str) -> type[MethodStrategy]:
    """The strategy of one of our methods; any that has no class of its own, a reader's too, gets one here."""
    return STRATEGIES.get(method) or type(METHODS[method].__name__, (MethodStrategy,), {"method_name": method})


def refuse(experiment: Experiment) -> None:
    """OptionError for an option that Avalanche's own strategy cannot honour."""
    options, given, method = experiment.options, experiment.given, experiment.method
    if method not in THEIRS:
        return
    impossible = {
        "fisher=empirical": options.get("fisher") == "empirical",
        "exemplars=first": options.get("exemplars") == "first",
        "memory_kind=per_task": options.get("memory_kind") == "per_task",
        "batch_split=equal_steps": options.get("batch_split") == "equal_steps",
        "batch_split=tasks in scenario cil": options.get("batch_split") == "tasks" and experiment.scenario == "cil",
        "batch_split=each": options.get("batch_split") == "each",
        "batch_norm_batches=by_task": options.get("batch_norm_batches") == "by_task",
        "prototype_update=first_task": options.get("prototype_update") == "first_task",
        "stream=first_batch": options.get("stream") == "first_batch",
        f"prototype_init={options.get('prototype_init')}, its prototypes always begin at random": "prototype_init" in given,
        f"epochs={options['epochs']}": method == "cope" and options["epochs"] != 1,
        f"batch_norm={options['batch_norm']}": options["batch_norm"] != "shared",
    }
    for text, asked in impossible.items():
        if asked:
            raise OptionError(f"Avalanche's {METHODS[method].title} has no {text}; leave it out, or take engine cmlib")


class OwnRun:
    """A run of one of Avalanche's own strategies, with what the engine asks of a method.

    scenario, kind, `scores`, `eval`, `retained` and `formula` as a cmlib method has them.
    """

    def __init__(self, method: Method, experiment: Experiment) -> None:
        self.method, self.experiment, self.name = method, experiment, experiment.method
        self.scenario, self.kind = method.scenario, method.kind
        self.model: nn.Module = PrototypeModel(method) if self.name == "cope" else TaskModel(method, self.name in MIXING)
        self.model.to(self.scenario.device)
        self.strategy: Any = None  # made by `loop`

    def eval(self) -> OwnRun:
        """Put the network in evaluation mode."""
        self.model.eval()
        return self

    def scores(self, x: Tensor, task: Task | None = None) -> Tensor:
        """Scores of a batch. -> [B, classes], or [B, classes of the task] when it is known"""
        if self.name != "cope":
            return Method.scores(self.method, x, task)
        prototypes = torch.cat([one for _, one in sorted(self._plugin("p_mem").p_mem.items())])  # [classes, D]
        scores = self.model(x) @ prototypes.T
        return scores[:, task.classes.start : task.classes.stop] if task else scores

    def formula(self) -> tuple[str, int] | None:
        """The paper's formula for the memory, as for cmlib's own method."""
        return self.method.formula()

    def _plugin(self, attribute: str) -> Any:
        """The strategy's plugin that has an attribute."""
        return next(plugin for plugin in self.strategy.plugins if hasattr(plugin, attribute))

    def retained(self) -> dict[str, list[Tensor]]:
        """What the strategy really keeps between tasks."""
        name = self.name
        if name in ("ewc", "oewc"):
            plugin = self._plugin("importances")
            kept = {"past weights": plugin.saved_params, "importances": plugin.importances}
            return {what: [one.data for task in tasks.values() for one in task.values()] for what, tasks in kept.items()}
        if name == "gem":
            plugin = self._plugin("memory_x")
            return {"exemplars": list(plugin.memory_x.values()), "labels": list(plugin.memory_y.values())}
        if name in ("er", "cope"):
            plugin = self._plugin("storage_policy")
            kept = {"prototypes": list(plugin.p_mem.values())} if name == "cope" else {}
            return {**kept, **_kept(plugin.storage_policy.buffer)}
        seen = self.scenario.tasks[: len(self.method.heads)] if name == "cumulative" else []
        return {"training images": [one.x for one in seen], "labels": [one.y for one in seen]} if seen else {}


def _kept(buffer: Any) -> dict[str, list[Tensor]]:
    """Images and labels in one of Avalanche's buffers."""
    plain = buffer.eval()  # un-augmented: counting draws nothing
    images = [plain[row][0] for row in range(len(plain))]
    return {"exemplars": images, "labels": [torch.tensor(list(buffer.targets))]}


def fresh(experiment: Experiment, data: ImageData, device: str | torch.device = "cpu") -> Any:
    """What is trained: our method, or an `OwnRun` of theirs; OptionError for options that Avalanche cannot honour."""
    refuse(experiment)
    method = experiments.fresh(experiment, data, device)
    return OwnRun(method, experiment) if experiment.method in THEIRS else method


class Progress(SupervisedPlugin):
    """Counts steps, times epochs, and stops a run whose loss is not finite."""

    def __init__(self, position: Position, bar: Any, device: torch.device) -> None:
        super().__init__()
        self.position, self.bar, self.started = position, bar, 0.0
        self.finite = torch.ones((), dtype=torch.bool, device=device)
        self.one_pass = False  # CoPE: many small experiences make one epoch

    def before_training_epoch(self, strategy: Any, **_: Any) -> None:
        if not self.one_pass:
            self.started = time.perf_counter()

    def after_training_iteration(self, strategy: Any, **_: Any) -> None:
        self.finite &= torch.isfinite(strategy.loss.detach()).all()
        self.position.steps[-1] += 1

    def after_training_epoch(self, strategy: Any, **_: Any) -> None:
        if not self.one_pass:
            self.end_epoch()

    def end_epoch(self) -> None:
        """Note the time, read the flag; FloatingPointError when a loss was not finite."""
        good = bool(self.finite)
        self.position.seconds[-1].append(round(time.perf_counter() - self.started, 4))
        if not good:
            raise FloatingPointError
        self.position.epoch += 1
        self.bar.update(1)


def learn(experiment: Experiment, made: Any, checkpoint: Checkpoint, bar: Any, after_task: AfterTask | None = None) -> Position:
    """All tasks through Avalanche. `made` is from `fresh`. There are no checkpoints: an interrupted run starts anew."""
    position, device = Position(), made.scenario.device
    progress = Progress(position, bar, device)
    forked = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=forked), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(record=True):
        torch.manual_seed(seed_of(experiment.seed, 0, 0, "avalanche"))
        strategy = build(experiment, made, progress)
        for task, experience in zip(made.scenario.tasks, benchmark(made.scenario).train_stream, strict=True):
            position.seconds.append([])
            position.steps.append(0)
            if not _train_task(strategy, experience, progress, experiment):
                return loop.stopped(position, task, position.epoch + 1)
            made.eval()
            if not loop.measure(made, made.scenario.tasks[: task.index + 1], position):
                return loop.stopped(position, task, position.epoch)
            if after_task is not None:
                after_task(made, task)
            position.task, position.epoch = task.index + 1, 0
    assert position.status == FINISHED
    return position


def _train_task(strategy: Any, experience: Any, progress: Progress, experiment: Experiment) -> bool:
    """One experience; returns whether every loss was finite."""
    try:
        if experiment.method == "cope":
            _train_stream(strategy, experience, progress, experiment)
        else:
            strategy.train(experience, eval_streams=[], reset_optimizer_state=True)
    except Exception:
        if bool(progress.finite):
            raise
        return False
    return True


def _train_stream(strategy: Any, experience: Any, progress: Progress, experiment: Experiment) -> None:
    """One pass over an experience in mini-batches, each an experience of its own, as Avalanche's CoPE wants it."""
    progress.one_pass, progress.started = True, time.perf_counter()
    task = origin_of(experience)[1]
    seed = seed_of(experiment.seed, task.index, 0, "stream")
    for number, batch in enumerate(split_online_stream([experience], experiment.batch_size, seed=seed)):
        batch.origin = experience.origin
        strategy.train(batch, eval_streams=[], reset_optimizer_state=number == 0)
    progress.end_epoch()


def build(experiment: Experiment, made: Any, progress: Progress) -> Any:
    """The strategy of an experiment around what `fresh` made."""
    named: dict[str, Any] = {
        "train_mb_size": experiment.batch_size,
        "train_epochs": experiment.epochs,
        "eval_mb_size": EVAL_BATCH,
        "device": made.scenario.device,
        "plugins": [progress],
        "evaluator": EvaluationPlugin(),
    }
    if experiment.method not in THEIRS:
        return _around(experiment, made, named)
    named |= {"model": made.model, "optimizer": _sgd(experiment, made.model), "criterion": nn.CrossEntropyLoss()}
    made.strategy = _own(experiment, made, named)
    return made.strategy


def _sgd(experiment: Experiment, module: nn.Module) -> torch.optim.Optimizer:
    e = experiment
    return torch.optim.SGD(module.parameters(), e.lr, e.momentum, weight_decay=e.weight_decay, fused=True)


def _around(experiment: Experiment, method: Method, named: dict[str, Any]) -> MethodStrategy:
    """Our strategy around a method that is there already."""
    kind, model, options = experiment.scenario, method.backbone, METHODS[method.name].options
    here = [name for name, option in options.items() if option.fits(kind)]
    own = {name: experiment.options[name] for name in (*here, "head", "batch_norm")}
    optimizer = _sgd(experiment, method.backbone)
    strategy = strategy_of(method.name)(model=model, optimizer=optimizer, scenario=kind, seed=experiment.seed, **named, **own)
    strategy.model.method, strategy.stream, strategy.labels = method, method.scenario, labels_of(method.scenario)
    return strategy


def _own(experiment: Experiment, made: OwnRun, named: dict[str, Any]) -> Any:
    """Avalanche's own strategy of the same name."""
    option, name = experiment.options, experiment.method
    if name in ("naive", "cumulative"):
        return (_Naive if name == "naive" else _Cumulative)(**named)
    if name == "ewc":
        return _EWC(ewc_lambda=option["strength"], **named)
    if name == "oewc":
        return _EWC(ewc_lambda=option["strength"], mode="online", decay_factor=option["decay"], **named)
    if name == "gem":
        return _GEM(patterns_per_exp=option["memory_size"], memory_strength=option["margin"], **named)
    if name == "er":
        named["plugins"].append(_Shares(option["batch_split"], option["batch_size"], option["memory_size"]))
        return _Naive(**named)
    classes = len(made.scenario.class_names)
    size = {
        "mem_size": option["exemplars_per_class"] * classes,
        "n_classes": classes,
        "p_size": made.method.backbone.out_features,
    }
    return CoPE(alpha=option["prototype_momentum"], T=option["temperature"], **size, **named)
