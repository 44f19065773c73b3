"""CM, EmR and SS-IL as Avalanche strategies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import torch
from avalanche.models.dynamic_optimizers import update_optimizer
from avalanche.training.plugins.evaluation import default_evaluator
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cmlib.avalanche.loaders import Loader, eval_loader, origin_of
from cmlib.avalanche.streams import LOW, ExperienceStream, Labels, labels_of
from cmlib.errors import OptionError
from cmlib.experiment import COMMON, check_scenario, parse_options
from cmlib.methods import METHODS, Method
from cmlib.nets import Backbone, TaskBatchNorm2d
from cmlib.scenario import Scenario, Task


class AnyBackbone(Backbone):
    """Any module that maps images to features, as a backbone whose 2-D batch norms know tasks."""

    def __init__(self, module: nn.Module, norm: str) -> None:
        super().__init__()
        self.module = module
        _know_tasks(module, norm)

    def measure(self, x: Tensor) -> None:
        """Find the number of features with a batch of images."""
        training = self.training
        with torch.no_grad():
            self.out_features = int(self.eval()(x).shape[1])
        self.train(training)

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x).flatten(1)


class _GrownBatchNorm2d(TaskBatchNorm2d):
    """Task batch norm grown from an ordinary one, which becomes the first task's."""

    def __init__(self, first: nn.BatchNorm2d, kind: str) -> None:
        super().__init__(first.num_features, kind)
        self.norms[0] = first

    def add_task(self) -> None:
        super().add_task()
        first, last = self.norm_of(0), self.norm_of(len(self.norms) - 1)
        last.eps, last.momentum = first.eps, first.momentum


def _know_tasks(module: nn.Module, kind: str) -> None:
    """Replace the 2-D batch norms inside a module, which keep their weights."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, _GrownBatchNorm2d(child, kind))
        elif not isinstance(child, TaskBatchNorm2d):
            _know_tasks(child, kind)


class Learner(nn.Module):
    """The model of our strategies: a backbone and, from the first experience on, the method around it."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.method: Method | None = None


class _OwnNames:
    """Leaves out Avalanche's check of keyword names: a strategy below checks its options itself, and says which are allowed."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        cls.__init__ = getattr(cls.__init__, "__wrapped__", cls.__init__)  # type: ignore[method-assign]


class MethodStrategy(_OwnNames, SupervisedTemplate):
    """A cmlib method as an Avalanche strategy: the parent of the three below.

    model: any module that maps images [B, ...] to features [B, D], so a network without its last layer; its BatchNorm2d are
    replaced, keeping their weights. Heads are added as tasks arrive. optimizer: over the model's parameters; None for SGD with
    learning rate 0.01 and momentum 0.9; its state starts anew with each experience unless
    `train(..., reset_optimizer_state=False)`. scenario: `til`, which needs task labels, or `cil`. seed: heads, support sets,
    exemplars and shuffling; None: 0, or that of the scenario which the benchmark was made from. The method's options are given
    by name; `cmlib methods` lists them. OptionError for an unknown or impossible option, and for experiences that bring unequal
    numbers of classes.
    """

    method_name: ClassVar[str] = ""
    optimized_param_id: Any  # Avalanche's: the parameters in the optimizer, by name

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        scenario: str | None = None,
        train_mb_size: int = 32,
        train_epochs: int = 1,
        eval_mb_size: int | None = None,
        device: str | torch.device = "cpu",
        plugins: Sequence[Any] | None = None,
        evaluator: Any = default_evaluator,
        eval_every: int = -1,
        peval_mode: str = "epoch",
        seed: int | None = None,
        **options: Any,
    ) -> None:
        cls = METHODS[self.method_name]
        self.kind, self.seed = scenario or cls.scenarios[0], seed
        self.option = settled_options(cls, self.kind, options)
        backbone = model if isinstance(model, Backbone) else AnyBackbone(model, self.option["batch_norm"])
        if kinds := {one.kind for one in backbone.task_norms()} - {self.option["batch_norm"]}:
            raise OptionError(
                f"batch_norm={self.option['batch_norm']}, but the model's batch norms are {kinds.pop()}; "
                "give both the same, or a model with torch's own batch norms"
            )
        self.stream: Scenario | None = None
        self.labels: Labels | None = None
        self.task: Task | None = None  # the one being learned
        self.learned = 0  # tasks
        self._own_loss: Tensor | None = None
        super().__init__(
            model=Learner(backbone),
            optimizer=optimizer or torch.optim.SGD(backbone.parameters(), 0.01, 0.9),
            criterion=nn.CrossEntropyLoss(),
            train_mb_size=train_mb_size,
            train_epochs=train_epochs,
            eval_mb_size=eval_mb_size or train_mb_size,
            device=device,
            plugins=plugins,
            evaluator=evaluator,
            eval_every=eval_every,
            peval_mode=peval_mode,
        )

    @property
    def method(self) -> Method:
        """The cmlib method; there is none before the first experience."""
        found = self.model.method
        if found is None:
            raise OptionError(f"{type(self).__name__} has not been trained yet; call its train(experience) first")
        return found

    # -- training -------------------------------------------------------------------------------------------------------------

    def make_train_dataloader(self, num_workers: int = 0, pin_memory: bool | None = None, **_: Any) -> None:
        """The method's own batches, with its exemplars; they are always shuffled and whole."""
        task = self.task = self._arrive(num_workers, pin_memory)
        stream, labels = self.stream, self.labels

        def draw(epoch: int) -> Iterator[list[Tensor]]:
            for x, y in self.method.batches(task, epoch):
                yield [x, *labels.theirs(y)]  # type: ignore[union-attr]

        @cache
        def steps() -> int:  # the same in each epoch of a task
            stream.counting = True  # type: ignore[union-attr]
            count = sum(1 for _ in self.method.batches(task, 0))
            stream.counting = False  # type: ignore[union-attr]
            return count

        self.dataloader = Loader(draw, steps)

    def _arrive(self, num_workers: int, pin_memory: bool | None) -> Task:
        """The task of the current experience; the first one also brings the method to life."""
        origin = getattr(self.experience, "origin", None)
        if self.stream is None:
            self._begin_stream(origin)
        stream = self.stream
        if not isinstance(stream, ExperienceStream):
            task, learned = origin_of(self.experience)[1], self.learned
            if task.index != learned:
                again = "was learned already" if task.index < learned else "comes too early"
                raise OptionError(
                    f"experience {task.index + 1} {again}; the next one is {learned + 1}: each is learned once, in order"
                )
            return task
        task = stream.add(self.experience)
        pin = self.device.type == "cuda" if pin_memory is None else pin_memory
        stream.loading = {"num_workers": num_workers, "pin_memory": pin}
        if self.model.method is None:
            self._begin_method()
        return task

    def _begin_stream(self, origin: tuple[Scenario, Task, str] | None) -> None:
        """Take a scenario as it is where the benchmark was made from one; else follow the experiences as they come."""
        wanted = self.option.get("support_size", 0)
        if origin is not None and origin[0].device.type != self.device.type:
            there, here = origin[0].device.type, self.device.type
            raise OptionError(
                f"the scenario lies on {there}, the strategy on {here}; make both for one: cm.Scenario(..., device='{here}')"
            )
        asked = (self.kind, self.option.get("stratified", True), wanted)
        if origin is not None and (origin[0].kind, origin[0].stratified, len(origin[1].support_y)) == asked:
            if self.seed is not None and self.seed != origin[0].seed:
                raise OptionError(f"seed={self.seed}, but the scenario has seed {origin[0].seed}; give it to cm.Scenario alone")
            self.stream = origin[0]
            self.labels = labels_of(origin[0])
            self._begin_method()
            return
        source = getattr(self.experience, "origin_stream", None)
        n_tasks = len(source) if source is not None and hasattr(source, "__len__") else 1
        seed = self.seed if self.seed is not None else origin[0].seed if origin else 0
        self.stream = ExperienceStream(self.kind, n_tasks, seed, wanted, self.option.get("stratified", True), self.device)
        self.labels = self.stream.labels

    def _begin_method(self) -> None:
        stream, backbone = self.stream, self.model.backbone
        if isinstance(backbone, AnyBackbone):
            backbone.measure(stream.prepare(stream.tasks[0].x[:2]))  # type: ignore[union-attr]
        self.model.method = METHODS[self.method_name](self.option, stream, backbone).to(self.device)  # type: ignore[arg-type]

    def model_adaptation(self, model: nn.Module | None = None) -> nn.Module:
        """In training, begin the task; evaluation changes nothing."""
        if self.is_training:
            assert self.task is not None
            self.method.option["batch_size"] = self.train_mb_size
            self.method.begin_task(self.task)
            self.model.train()
        return self.model.to(self.device)

    def check_model_and_optimizer(self, reset_optimizer_state: bool = True, **named: Any) -> None:
        """As Avalanche's, but the optimizer's state starts anew by default."""
        super().check_model_and_optimizer(reset_optimizer_state=reset_optimizer_state, **named)

    def make_optimizer(self, reset_optimizer_state: bool = False, verbose_optimizer: bool = False, **_: Any) -> None:
        """Put everything that learns, new heads and projectors too, into the optimizer, and what is frozen out of it."""
        learning = {name: one for name, one in self.model.named_parameters() if one.requires_grad}
        groups = self.optimizer.param_groups
        if len(groups) > 1:  # what is new goes into the first of several
            held = {id(one) for group in groups for one in group["params"]}
            groups[0]["params"] += [one for one in learning.values() if id(one) not in held]
        self.optimized_param_id = update_optimizer(
            self.optimizer, learning, self.optimized_param_id, reset_optimizer_state, True, verbose_optimizer
        )

    def _after_training_exp(self, **named: Any) -> None:
        """End the task before plugins evaluate it."""
        assert self.task is not None
        self.model.eval()
        self.method.end_task(self.task)
        self.model.train()
        self.task = self._own_loss = None
        self.learned += 1
        super()._after_training_exp(**named)

    # -- forward and loss -----------------------------------------------------------------------------------------------------

    def forward(self) -> Tensor:
        """Scores over the benchmark's labels [B, labels]; in training the method's loss is computed on the way."""
        if not self.is_training:
            return self.scores(self.mb_x, self.mb_y, self.mb_task_id)
        assert self.task is not None and self.labels is not None
        self._own_loss = self.method.loss(self.mb_x, self.labels.ours(self.mb_y, self.mb_task_id), self.task)
        first = self.task.classes.start if self.kind == "til" else 0
        if self.method.batch_scores is None:
            raise OptionError(f"{self.method_name} keeps no scores of a batch: take self.cross_entropy, or set self.batch_scores")
        return self.labels.spread(self.method.batch_scores, first, self.labels.columns)

    def criterion(self) -> Tensor:
        """The method's loss in training; the cross-entropy of the scores in evaluation. -> scalar"""
        if self.is_training:
            assert self._own_loss is not None
            return self._own_loss
        return self._criterion(self.mb_output, self.mb_y)

    def scores(self, x: Tensor, y: Tensor, t: Tensor) -> Tensor:
        """Scores of images in evaluation: a class not learned yet is out of the question.

        Images of a task that is not learned yet get a last column of their own, so that they count as wrong.
        y, t [B]: labels, for the number of columns, and task labels, for the heads in TIL. -> [B, columns]
        """
        labels, method = self.labels, self.model.method
        columns = max(labels.columns if labels else 0, int(y.max()) + 1)
        wide = torch.full((len(x), columns), LOW, device=x.device)
        learned = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        for rows, task in self._groups(t):
            scores, first = method.scores(x[rows], task), task.classes.start if task else 0
            wide[rows] = labels.spread(scores, first, columns)  # type: ignore[union-attr]
            learned[rows] = True
        if bool(learned.all()):
            return wide
        return torch.cat([wide, torch.where(learned, LOW, 0.0).unsqueeze(1)], dim=1)

    def _groups(self, t: Tensor) -> list[tuple[Tensor, Task | None]]:
        """Which rows of a batch are to be scored for which task (None: all classes seen); nothing for tasks not learned."""
        method = self.model.method
        if method is None or not len(method.heads):
            return []
        if self.kind == "cil":
            return [(torch.arange(len(t), device=t.device), None)]
        known = [(label, self.labels.task_of.get(label, -1)) for label in t.unique().tolist()]  # type: ignore[union-attr]
        tasks = self.stream.tasks  # type: ignore[union-attr]
        return [((t == label).nonzero().squeeze(1), tasks[i]) for label, i in known if 0 <= i < len(method.heads)]

    def make_eval_dataloader(self, **named: Any) -> None:
        """From the device where the benchmark was made from a scenario; else Avalanche's."""
        if getattr(self.experience, "origin", None) is not None:
            self.dataloader = eval_loader(self.experience, self.eval_mb_size)
        else:
            super().make_eval_dataloader(**named)


def settled_options(cls: type[Method], scenario: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of a method in a strategy: what is given, else the method's default; OptionError as in `Experiment`."""
    if scenario not in cls.scenarios:
        raise OptionError(f"{cls.name} does not work in scenario {scenario}; allowed: {', '.join(cls.scenarios)}")
    own = {**{name: COMMON[name] for name in ("head", "batch_norm")}, **cls.options}
    for name in options:
        if name in COMMON and name not in own:
            raise OptionError(f"{name} is no option of this strategy: it is the benchmark's, the optimizer's or the trainer's")
    given = parse_options(cls, options)
    values = {name: option.default for name, option in {**COMMON, **cls.options}.items()} | cls.defaults.get(scenario, {})
    check_scenario(cls, given, scenario, values)
    values |= given
    norm = values["batch_norm"]
    if (norm != "shared" and scenario == "cil") or norm not in cls.batch_norms:
        allowed = ", ".join(cls.batch_norms if scenario == "til" else ("shared",))
        raise OptionError(f"batch_norm={norm} does not work with {cls.name} in scenario {scenario}; allowed: {allowed}")
    return values


class CentroidsMatching(MethodStrategy):
    """CM as an Avalanche strategy, `scenario="til"` or `"cil"`. Options: lam, support_size, memory_size, merging, ...

    The support set is taken from each experience's training data, by class, and never trained on.
    """

    method_name = "cm"

    def _before_eval(self, **named: Any) -> None:
        """In the middle of a task, take its centroids as they are now: they are kept only when the task ends."""
        if self.task is not None and self.model.method is not None and len(self.method.heads) > self.task.index:
            method: Any = self.method
            if self.option["kept_centroids"] == "task_end":
                method.centroids[self.task.index].copy_(method.current_centroids(self.task))
        super()._before_eval(**named)


class EmbeddingRegularization(MethodStrategy):
    """EmR as an Avalanche strategy, `scenario="til"`. Options: memory_size (images a task), strength, ..."""

    method_name = "emr"


class SSIL(MethodStrategy):
    """SS-IL as an Avalanche strategy, `scenario="cil"`. Options: memory_size, temperature, ..."""

    method_name = "ssil"
