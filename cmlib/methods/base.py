"""What every method is made of: options, a registry, and five hooks.

    begin_task(task)      new head, snapshot of the past model, projectors
    loss(x, y, task)      scalar; x [B, C, H, W], y [B] labels over all classes seen
    end_task(task)        centroids, exemplars, importances; the net is in eval mode
    scores(x, task)       [B, classes seen], or [B, classes of the task] when the task is known
    retained()            the tensors kept between tasks, by name; `keeps` declares the same as arithmetic

A method that changes the stream overrides `batches`, one that changes the step overrides `step`. Everything kept must be a
parameter, a buffer or a submodule registered by `begin_task`, so that `state_dict()` is complete: an interrupted run is rebuilt
by calling `begin_task` for each task so far and loading the state over it. Chapter 16 writes a method of one's own.
"""

from __future__ import annotations

import copy
import inspect
import math
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cmlib import formulas
from cmlib.errors import OptionError, check_name
from cmlib.nets import DEFAULT, Backbone, inputs_of, make_backbone, make_head
from cmlib.scenario import pick

if TYPE_CHECKING:
    from cmlib.scenario import Part, Scenario, Task


LARGEST = 2**63 - 1  # what torch takes as a whole number
MOST = 10**9  # of anything that is counted, unless an option says more


@dataclass(frozen=True)
class Option:
    """One option of an experiment: its default, what it means, and which values are possible.

    A run's hash leaves out options at their default. So a new option's default must be what was done before it existed, and
    no default is ever changed: a method's `defaults` or a profile sets another value over it.
    """

    default: Any
    help: str
    kind: type = str
    choices: tuple[str, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    above_low: bool = False  # the value must be greater than `low`
    optional: bool = False  # None ("none" on the command line) is allowed
    only: str = ""  # the scenario in which alone it does something; for both: empty

    def __post_init__(self) -> None:
        """Where no type is said, it is that of the default."""
        if self.kind is str and isinstance(self.default, bool | int | float):
            object.__setattr__(self, "kind", type(self.default))

    def parse(self, name: str, value: object) -> Any:
        """Return the value in its type; raise OptionError saying what is allowed."""
        if self.optional and is_none(value):
            return None
        if self.choices:
            return check_name(name, value, self.choices)
        parsed = self._typed(value)
        most = int(self.high) if math.isfinite(self.high) else MOST
        if self.kind is int and parsed is not None and abs(parsed) > most:
            raise OptionError(f"{name}={value} is impossible; allowed: whole numbers up to {most}")
        if parsed is None or (self.kind in (int, float) and not self._in_range(parsed)):
            raise OptionError(f"{name}={value} is impossible; allowed: {self.allowed()}")
        return parsed

    def _typed(self, value: object) -> Any:
        if self.kind is bool:
            text = str(value).lower()
            return {"true": True, "false": False}.get(text)
        if isinstance(value, bool) or (self.kind is int and isinstance(value, float) and not value.is_integer()):
            return None
        try:
            return self.kind(value)
        except (TypeError, ValueError, OverflowError):
            return None

    def _in_range(self, value: float) -> bool:
        enough = value > self.low if self.above_low else value >= self.low
        return enough and value <= self.high and math.isfinite(value)

    def fits(self, scenario: str) -> bool:
        """Whether it does something in a scenario."""
        return self.only in ("", scenario)

    def allowed(self) -> str:
        """The possible values in words."""
        if self.choices or self.kind is bool:
            words = ", ".join(self.choices) if self.choices else "true, false"
        else:
            words = {int: "a whole number", float: "a number"}.get(self.kind, "a text")
            if self.low > -math.inf:
                words += f" {'above' if self.above_low else 'of at least'} {self.low:g}"
            if self.high < math.inf:
                words += f"{' and' if self.low > -math.inf else ''} up to {self.high:g}"
        return words + (", or none" if self.optional else "") + (f"; {self.only} alone" if self.only else "")


def is_none(value: object) -> bool:
    """Whether a value says none, in Python or on the command line."""
    return value is None or (isinstance(value, str) and value == "none")


@dataclass(frozen=True)
class Sizes(Option):
    """An option that holds whole numbers above 0, given as a sequence or as a text, kept as the text `4,3,3`."""

    kind: type = int

    def parse(self, name: str, value: object) -> str | None:
        """Return the text; raise OptionError for anything else."""
        if is_none(value):
            return None
        value = value.tolist() if isinstance(value, np.ndarray | Tensor) else value
        parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
        counts = [self._typed(part) for part in parts]
        if not counts or any(count is None or not 1 <= count <= LARGEST for count in counts):
            raise OptionError(f"{name}={value} is impossible; allowed: {self.allowed()}")
        return ",".join(map(str, counts))

    def allowed(self) -> str:
        """The possible values in words."""
        return "whole numbers of at least 1, as 4,3,3, or none"


def sizes_in(text: str) -> tuple[int, ...]:
    """The numbers in the text of such an option: `"4,3,3"` -> `(4, 3, 3)`."""
    return tuple(map(int, text.split(",")))


NORM_OPTIONS = {
    "batch_norm_batches": Option(
        "whole",
        "statistics of a batch norm that all tasks share, in training: of the whole batch, or of each task's samples apart",
        choices=("whole", "by_task"),
    ),
}
METHODS: dict[str, type[Method]] = {}
OTHERS = "others"  # what a grid writes for the methods that it does not name; so it is no method's name


def register(name: str) -> Callable[[type[Method]], type[Method]]:
    """Make a method known by its name, to `Experiment`, to the command line and to the tests.

    A method outside cmlib needs no more than this: its title is its name, its summary the first line of its docstring, and
    without a `revision` of its own it gets one from its source, so that a changed method never finds the runs of the old one.
    OptionError for a name that is taken or has other signs than small letters, digits and _, and for what is no method.
    """

    def add(cls: type[Method]) -> type[Method]:
        cls.own = not cls.__module__.startswith("cmlib.")
        if cls.own:
            _join(name, cls)
        cls.name = name
        METHODS[name] = cls
        return cls

    return add


def _join(name: str, cls: type[Method]) -> None:
    """Check a method of a reader's own, and fill in what it leaves out."""
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise OptionError(f"'{name}' is no method: its class must have cm.Method, or a method, as its parent")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == OTHERS:
        raise OptionError(f"'{name}' cannot be the name of a method; allowed: small letters, digits and _, as in my_method")
    other = METHODS.get(name)
    if other is not None and (not other.own or len({"__main__", cls.__module__, other.__module__}) == 3):
        where = getattr(sys.modules.get(other.__module__), "__file__", None) if other.own else None
        raise OptionError(f"there is a method '{name}' already, in {where or other.__module__}; choose another name")
    for one in cls.scenarios:
        check_name("scenario", one, formulas.BOTH)
    cls.title = vars(cls).get("title") or name
    cls.summary = vars(cls).get("summary") or (cls.__doc__ or "no description").strip().splitlines()[0].rstrip(".")
    cls.source = vars(cls).get("source") or "your own"
    cls.keeps, cls.paper_memory = (vars(cls).get(part, {}) for part in ("keeps", "paper_memory"))  # not those of a parent
    if "revision" not in vars(cls):
        cls.revision = _revision(cls)


def _revision(cls: type[Method]) -> int:
    """A number that changes with the source: of the whole file; in a notebook of the class, its parents and helpers there."""
    module = sys.modules.get(cls.__module__)
    try:
        whole = module is not None and getattr(module, "__file__", None)
        text = inspect.getsource(module) if module and whole else _source(cls)
    except (OSError, TypeError):  # no source that could be read
        return 1
    return 1 + zlib.crc32(text.encode())


def _source(cls: type[Method]) -> str:
    """What a method written in a notebook does: its hooks, the functions there that they call, and its plain values."""
    family = [kind for kind in cls.__mro__ if issubclass(kind, Method) and not kind.__module__.startswith("cmlib.")]
    inside = [(name, value) for kind in family for name, value in vars(kind).items()]
    functions = [one for _, value in inside for one in _functions(value)]
    for one in functions:  # grows while it is gone through
        named = [one.__globals__.get(name) for name in _names(one.__code__)]
        here = [value for value in named if getattr(value, "__module__", None) == cls.__module__]
        parts = [part for value in here for part in (vars(value).values() if inspect.isclass(value) else [value])]
        functions += [f for f in dict.fromkeys(f for part in parts for f in _functions(part)) if f not in functions]
    values = [f"{name} = {_in_order(value)!r}" for name, value in inside if not (name.startswith("__") or callable(value))]
    return "".join([*map(inspect.getsource, functions), *(one for one in values if " at 0x" not in one)])


def _functions(value: Any) -> list[Callable[..., Any]]:
    """The functions behind an attribute: itself, what it decorates, or those of a property."""
    parts = (value.fget, value.fset, value.fdel) if isinstance(value, property) else (getattr(value, "__func__", value),)
    return [inner for part in parts if inspect.isfunction(part) and inspect.isfunction(inner := inspect.unwrap(part))]


def _names(code: CodeType) -> Iterator[str]:
    """The names that a function looks up, in its comprehensions and inner functions, too."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _in_order(value: Any) -> Any:
    """A set as a list that is the same in every process."""
    return sorted(value, key=repr) if isinstance(value, set | frozenset) else value


class Method(nn.Module):
    """A backbone, one head per task, plain training: the parent of every method.

    options: the experiment's resolved options by name. scenario: the tasks. backbone: another one than ResNet20.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""  # as the paper's tables write it
    summary: ClassVar[str] = ""  # one line
    source: ClassVar[str] = ""  # where it comes from
    scenarios: ClassVar[tuple[str, ...]] = ("til", "cil")
    options: ClassVar[dict[str, Option]] = {}  # its own options
    defaults: ClassVar[dict[str, dict[str, Any]]] = {}  # by scenario: other defaults of common options
    batch_norms: ClassVar[tuple[str, ...]] = ("shared", "private", "stats")  # the kinds it works with (TIL)
    ignores: ClassVar[tuple[str, ...]] = ()  # common options that change nothing here
    keeps: ClassVar[dict[str, Mapping[str, str]]] = {}  # by scenario: what `retained` holds, counted in the letters of `formulas`
    paper_memory: ClassVar[dict[str, str]] = {}  # by scenario: the paper's formula, as printed
    recordable: bool = True  # a step is the same sequence of operations each time, without a look at a value
    revision: ClassVar[int] = 1  # raised when its numbers change
    own: ClassVar[bool] = False  # a reader's, from outside cmlib

    def __init__(self, options: Mapping[str, Any], scenario: Scenario, backbone: Backbone | None = None) -> None:
        super().__init__()
        self.option, self.scenario, self.kind = dict(options), scenario, scenario.kind
        self.recordable = self.recordable and self.option.get("batch_norm_batches") != "by_task"  # which looks at the labels
        if backbone is None:
            kind = self.option.get("backbone", DEFAULT)
            chosen = () if kind == DEFAULT else (kind,)
            backbone = make_backbone(
                inputs_of(scenario.data.x_train.shape[1:], kind), self.option["batch_norm"], scenario.seed, *chosen
            )
        self.backbone, size = backbone, backbone.out_features
        self.heads = nn.ModuleList()
        self.past: nn.ModuleDict | None = None  # the network as it was before the current task, where a method needs it
        self.batch_scores: Tensor | None = None  # the class scores behind the last loss, for progress meters
        self.trunk: nn.Module = nn.Identity()  # CIL with head=mlp: the hidden layer that all outputs share
        if self.kind == "cil" and self.option["head"] == "mlp" and self.shares_hidden_layer:
            self.trunk = nn.Sequential(make_head("linear", size, scenario.seed, 0, size, "trunk"), nn.ReLU())

    shares_hidden_layer: ClassVar[bool] = True

    @property
    def seed(self) -> int:
        """The seed of the experiment."""
        return self.scenario.seed

    def head_kind(self) -> str:
        """The kind of the next head."""
        return "linear" if isinstance(self.trunk, nn.Sequential) else str(self.option["head"])

    # -- the five hooks ---------------------------------------------------------------------------------------------------

    def begin_task(self, task: Task) -> None:
        """Add the head (and, with private batch norm, the norms) of a new task."""
        if task.index:
            self.backbone.add_task()
        kind, size = self.head_kind(), self.backbone.out_features
        self.heads.append(make_head(kind, len(task.classes), self.seed, task.index, size))
        self.to(self.scenario.device)

    def loss(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """Cross-entropy of samples of one task: TIL, over its own classes; CIL, over all classes seen. -> scalar"""
        if self.kind == "til":
            logits = self.heads[task.index](self.backbone.features(x, task.index))
            return self.cross_entropy(logits, y - task.classes.start)
        return self.cross_entropy(self.all_logits(self.features_by_task(x, y)), y)

    def before_measuring(self, task: Task) -> None:
        """What `scores` needs of a task that has not ended, in eval mode, for accuracies after each epoch: nothing."""

    def end_task(self, task: Task) -> None:
        """Nothing to keep."""

    def scores(self, x: Tensor, task: Task | None = None) -> Tensor:
        """Logits of a batch. [B, C, H, W] -> [B, classes seen], or [B, classes of the task] when it is known"""
        features = self.backbone.features(x, task.index if task else None)
        if task is None:
            return self.all_logits(features)
        if self.kind == "til":
            return self.heads[task.index](features)
        return self.all_logits(features)[:, task.classes.start : task.classes.stop]

    def retained(self) -> dict[str, list[Tensor]]:
        """Tensors that must be kept between tasks beside the network (backbone and heads), by what they are."""
        norms = self.backbone.task_norms()
        if not norms or norms[0].kind == "shared":
            return {}
        names = ("running_mean", "running_var") + (() if norms[0].kind == "stats" else ("weight", "bias"))
        past = [norm for layer in norms for norm in layer.norms[:-1]]
        return {"past batch norms": [getattr(norm, name) for norm in past for name in names]}

    @classmethod
    def declared(cls, scenario: str, batch_norm: str) -> dict[str, str]:
        """What `retained` holds with this kind of batch norm, part by part, counted in the letters of `formulas`."""
        own_norms = {} if batch_norm == "shared" else {"past batch norms": "(N - 1) * V"}
        return {**own_norms, **cls.keeps[scenario]}

    def formula(self) -> tuple[str, int] | None:
        """The paper's formula for the memory (section 5.1) and its value in scalars; None where it gives none."""
        printed = self.paper_memory.get(self.kind)
        return (printed, formulas.value(formulas.as_expression(printed), self.sizes())) if printed else None

    # -- what a method may change -----------------------------------------------------------------------------------------

    def batches(self, task: Task, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of one epoch: by default the current task's images, shuffled."""
        return self.scenario.batches([(task.x, task.y, self.option["batch_size"])], task.index, epoch)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """SGD over everything that learns, made anew for each task (the optimizer's state is not carried over)."""
        learning = [parameter for parameter in self.parameters() if parameter.requires_grad]
        option = self.option
        return torch.optim.SGD(learning, option["lr"], option["momentum"], weight_decay=option["weight_decay"], fused=True)

    def step(self, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """One gradient step; returns the loss, detached, on the device."""
        optimizer.zero_grad(set_to_none=True)
        loss = self.loss(x, y, task)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def train(self, mode: bool = True) -> Method:
        """As usual, but the past model stays in eval mode."""
        super().train(mode)
        if self.past is not None:
            self.past.eval()
        return self

    # -- shared pieces ----------------------------------------------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Keep a frozen copy of the network as the past model."""
        parts = nn.ModuleDict({"backbone": self.backbone, "trunk": self.trunk, "heads": self.heads})
        self.past = copy.deepcopy(parts).eval().requires_grad_(False)

    def sizes(self) -> dict[str, int]:
        """The paper's letters: N tasks, T classes, P parameters, I scalars an image, D and E features, M exemplars."""
        network = [*self.backbone.parameters(), *self.trunk.parameters(), *self.heads.parameters()]
        sizes = {"N": self.scenario.n_tasks, "T": len(self.scenario.class_names), "P": sum(one.numel() for one in network)}
        sizes |= {"I": self.scenario.tasks[0].x[0].numel(), "D": self.backbone.out_features}
        a_task = self.option.get("exemplars_per_class", 0) * sizes["T"] // sizes["N"]  # on average
        return sizes | {"E": self.option.get("embedding_size", 0), "M": self.option.get("memory_size", a_task)}

    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy, whose logits are kept as `batch_scores`. [B, K], [B] -> scalar"""
        self.batch_scores = logits.detach()
        return F.cross_entropy(logits, y)

    def all_logits(self, features: Tensor) -> Tensor:
        """Logits over all classes seen: one layer that grows with the tasks. [B, D] -> [B, classes seen]"""
        hidden = self.trunk(features)
        return torch.cat([head(hidden) for head in self.heads], dim=1)

    def features_by_task(self, x: Tensor, y: Tensor) -> Tensor:
        """Features of a batch of several tasks, each sample through its own task's batch norms (TIL). -> [B, D]

        With batch_norm_batches=by_task, in training, each task's samples go through a shared batch norm as a batch of their own.
        """
        owners = self.scenario.owner[y]
        apart = self.training and self.option.get("batch_norm_batches") == "by_task"
        if not apart or not self.backbone.task_norms() or not self.backbone.shares_norms():
            return self.backbone.features_by_task(x, owners)
        rows = [(owners == task).nonzero().squeeze(1) for task in owners.unique().tolist()]
        features = torch.cat([self.backbone.features(pick(x, row)) for row in rows])
        return features[torch.cat(rows).argsort()]

    def own_task_loss(self, features: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of a batch of several tasks, each sample over its own task's classes (TIL). -> scalar"""
        return self.cross_entropy(self.own_task_only(self.all_logits(features), y), y)

    def own_task_only(self, logits: Tensor, y: Tensor) -> Tensor:
        """Logits with minus infinity for the classes of other tasks than the sample's. [B, classes seen] -> the same"""
        owner = self.scenario.owner
        foreign = owner[: logits.shape[1]] != owner[y].unsqueeze(1)  # [B, classes seen]
        return logits.masked_fill(foreign, -math.inf)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """One vector of many tensors. -> [P]"""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def zero_or(gradient: Tensor | None, parameter: Tensor) -> Tensor:
    """A gradient; zero where the loss does not depend on the parameter."""
    return torch.zeros_like(parameter) if gradient is None else gradient


def flat_gradient(loss: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Gradient of a loss as one vector, zero where it does not depend on a parameter. -> [P]"""
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return flat([zero_or(g, p) for g, p in zip(found, parameters, strict=True)])


def split_batch(size: int, parts: int) -> list[int]:
    """Share a batch over parts as evenly as possible, the first ones taking what is left over; at least one each.

    Built in chapter 5 (paper, section 4.2).
    """
    share, rest = divmod(size, parts)
    return [max(1, share + (rank < rest)) for rank in range(parts)]


def parts_by_task(task: Task, memory_parts: list[tuple[Tensor, Tensor]], batch_size: int) -> list[Part]:
    """Parts of a batch: the current task first, then each past task's exemplars, in equal shares."""
    shares = split_batch(batch_size, 1 + len(memory_parts))
    images = [(task.x, task.y), *memory_parts]
    return [(x, y, share) for (x, y), share in zip(images, shares, strict=True)]
