"""An experiment: what is run, with every option settled. Frozen, comparable, hashable by content."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from cmlib import datasets
from cmlib.datasets import ARRAYS, ImageData, Named, named
from cmlib.errors import OptionError, check_name, nearest
from cmlib.methods import METHODS, own
from cmlib.methods.base import LARGEST, Method, Option, Sizes, sizes_in
from cmlib.nets import BACKBONES, BATCH_NORMS, DEFAULT, HEADS
from cmlib.profiles import PRESETS, PROFILES, preset_options, profile_options
from cmlib.scenario import AUGMENTATIONS, CLASS_ORDERS, EVAL_SPLITS, KINDS, Scenario

COMMON: dict[str, Option] = {
    "epochs": Option(10, "epochs a task", int, low=1),
    "batch_size": Option(32, "samples a batch", int, low=2),
    "lr": Option(0.01, "learning rate of SGD", float, low=0, above_low=True),
    "momentum": Option(0.9, "momentum of SGD", float, low=0, high=1),
    "weight_decay": Option(0.0, "weight decay of SGD", float, low=0),
    "n_tasks": Option(5, "tasks; must divide the number of classes", int, low=1),
    "task_sizes": Sizes(
        None, "classes of each task, for tasks of unequal sizes: 4,3,3; in place of n_tasks", low=1, optional=True
    ),
    "backbone": Option(DEFAULT, "the network: resnet20, a small one, or (vectors too) mlp", choices=tuple(BACKBONES)),
    "train_per_class": Option(None, "only the first so many training images a class", int, low=2, optional=True),
    "eval_split": Option("test", "what accuracies are measured on", choices=EVAL_SPLITS),
    "augmentation": Option("dataset", "random crops and flips; dataset: as fits the images", choices=AUGMENTATIONS),
    "head": Option("linear", "one linear layer, or two with a ReLU between", choices=HEADS),
    "batch_norm": Option("shared", "one batch norm, one per task, or statistics per task", choices=BATCH_NORMS),
    "class_order": Option("paper", "paper: classes in natural order for seed 0; shuffled: for no seed", choices=CLASS_ORDERS),
}
ENGINES = ("cmlib", "avalanche")  # what makes the run; `cmlib` is the default
FIELDS = ("dataset", "scenario", "method", "seed", "profile", "engine")


@dataclass(frozen=True, init=False)
class Experiment:
    """One run to be made: data set, scenario, method, seed, and every option of the method.

    - dataset: a data set's name, which wins over a folder of that name, or a folder of images or a file of feature vectors. As an
      attribute it is the name that enters ids and files; `source` is what `datasets.load` takes, a full path, which enters none.
    - method: a method's name, or a file that registers one (`methods.own`).
    - profile: where unsaid options come from (`smoke`, `digits`, `mini`, `paper`; default `digits` for digits, else `paper`).
    - engine: `cmlib`, or `avalanche`: the same experiment through the Avalanche library.
    - preset: options that belong together, over the profile's: `default`; `text`, the paper's text to the letter; `july22` and
      `head`, two states of its released code.
    - task_sizes: classes of each task as a sequence or a text, `(4, 3, 3)` or `"4,3,3"`, in place of n_tasks; kept as the text.

    Options are given by name and read as attributes: `Experiment(lam=0.5).lam`. OptionError for an unknown name, a wrong
    type or an impossible value.
    """

    dataset: str
    scenario: str
    method: str
    seed: int
    profile: str
    engine: str
    options: Mapping[str, Any]
    given: Mapping[str, Any] = field(compare=False)
    preset: str = field(compare=False)
    source: str = field(compare=False, repr=False)

    def __init__(
        self,
        dataset: str | os.PathLike[str] | Named = "digits",
        scenario: str = "til",
        method: str = "cm",
        seed: int | str = 0,
        profile: str | None = None,
        engine: str = "cmlib",
        preset: str = "default",
        **options: Any,
    ) -> None:
        where = named(dataset)
        method = own.known(method)
        check_name("scenario", scenario, KINDS)
        cls = METHODS[method]
        if scenario not in cls.scenarios:
            raise OptionError(f"{method} does not work in scenario {scenario}; allowed: {', '.join(cls.scenarios)}")
        profile = check_name("profile", usual_profile(where.name) if profile is None else profile, PROFILES)
        check_name("engine", engine, ENGINES)
        given = parse_options(cls, options)
        usual = profile_defaults(cls, profile, where.name, scenario)
        check_scenario(cls, given, scenario, usual)
        over = {**preset_values(cls, check_name("preset", preset, PRESETS), profile, where.name, scenario), **given}
        settled = {**usual, **over}
        if settled["task_sizes"]:
            settled["n_tasks"] = _one_number_of_tasks(over, engine)
        norm = settled["batch_norm"]
        if norm != "shared" and scenario == "cil":
            raise OptionError(f"batch_norm={norm} needs to know the task: only scenario til has it; allowed in cil: shared")
        if norm not in cls.batch_norms:
            raise OptionError(f"batch_norm={norm} does not work with {method}; allowed: {', '.join(cls.batch_norms)}")
        if norm != "shared" and settled.get("batch_norm_batches") == "by_task":
            raise OptionError(f"batch_norm_batches=by_task is for a norm that all tasks share; not for batch_norm={norm}")
        values = (where.name, scenario, method, Option(0, "", int, low=0, high=LARGEST).parse("seed", seed), profile, engine)
        for name, value in zip(FIELDS, values, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "source", where.source)
        object.__setattr__(self, "preset", preset)
        object.__setattr__(self, "options", MappingProxyType(settled))
        object.__setattr__(self, "given", MappingProxyType(given))

    def __getattr__(self, name: str) -> Any:
        options = self.__dict__.get("options", {})
        if name in options:
            return options[name]
        raise AttributeError(f"this experiment has no option '{name}'.{nearest(name, options)}")

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict(), sort_keys=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, ({**self._fields(), **self.given},)

    def _fields(self) -> dict[str, Any]:
        """What makes the same experiment again, without a look at the file system; options aside."""
        fields = {name: getattr(self, name) for name in FIELDS}
        return fields | {"dataset": Named(self.dataset, self.source), "preset": self.preset}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Experiment:
        """The experiment that a result file holds, wherever one stands; OptionError when it is impossible.

        Of a folder of images only the name is known then: the experiment can be looked up, not run.
        """
        name = content["dataset"]
        where = Named(name, name if name in (*datasets.names(), ARRAYS) else "")
        return cls(**{**content["options"], **{key: content[key] for key in FIELDS}, "dataset": where})

    def but(self, **changes: Any) -> Experiment:
        """The same experiment with some fields or options changed; unsaid options follow profile and preset anew."""
        fields = self._fields()
        if "dataset" in changes and "profile" not in changes and self.profile == usual_profile(self.dataset):
            fields["profile"] = None
        cls = METHODS[own.known(changes.get("method", self.method))]
        known, scenario = allowed_options(cls), changes.get("scenario", self.scenario)
        fitting = [name for name in known if name not in cls.ignores and known[name].fits(scenario)]
        given = {name: value for name, value in self.given.items() if name in fitting}
        return Experiment(**{**fields, **given, **changes})

    def to_dict(self) -> dict[str, Any]:
        """Everything that defines the run, as plain values."""
        fields = {name: getattr(self, name) for name in FIELDS}
        return {**fields, "revision": METHODS[self.method].revision, "options": dict(self.options)}

    @property
    def variant(self) -> str:
        """The options (and the engine) that differ from the usual, as `name=value,...`; empty when none does."""
        usual = profile_defaults(METHODS[self.method], self.profile, self.dataset, self.scenario)
        changed = {"engine": self.engine} if self.engine != ENGINES[0] else {}
        changed |= {name: value for name, value in sorted(self.options.items()) if value != usual[name]}
        if "task_sizes" in changed:
            changed.pop("n_tasks", None)  # it is said already
        return ",".join(f"{name}={str(value).lower()}" for name, value in changed.items())

    def hash(self, digest: str, revision: int | None = None) -> str:
        """8 hex digits over everything that can change the numbers: options, engine, data digest, revision (unsaid: today's)."""
        content = self.to_dict() | ({} if revision is None else {"revision": revision})
        text = json.dumps({**identity(content), "data": digest}, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def identity(content: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a run the run it is, its data aside: no profile, and only the options that differ from their own default.

    Folders of images are all called "folder" (the digest of the data says which). An option added later, whose default changes
    nothing, leaves the runs made before it valid. An option's default is never changed; profiles and methods set other values
    over it.
    """
    method = METHODS.get(content["method"])
    known = allowed_options(method) if method else {}
    neutral = {name: option.default for name, option in known.items()}
    options = {name: value for name, value in content["options"].items() if name not in neutral or value != neutral[name]}
    dataset = content["dataset"] if content["dataset"] in (*datasets.names(), ARRAYS) else "folder"
    rest = {key: value for key, value in content.items() if key not in ("profile", "options")}
    return {**rest, "dataset": dataset, "options": options}


def key(content: Mapping[str, Any], seed: bool = True) -> str:
    """`identity` as a text, equal for equal runs under whatever profile. seed: False for runs that differ in nothing else."""
    return json.dumps(identity({**content, **({} if seed else {"seed": None})}), sort_keys=True)


def usual_profile(dataset: str) -> str:
    """The profile of an experiment that names none."""
    return "digits" if dataset == "digits" else "paper"


def _remake(arguments: dict[str, Any]) -> Experiment:
    """An experiment from a pickle."""
    return Experiment(**arguments)


def allowed_options(cls: type[Method]) -> dict[str, Option]:
    """Every option an experiment with this method has."""
    return {**COMMON, **cls.options}


def parse_options(cls: type[Method], options: Mapping[str, Any]) -> dict[str, Any]:
    """Check names and values; OptionError names the nearest match or what is allowed."""
    allowed = allowed_options(cls)
    for name in options:
        if name not in allowed:
            raise OptionError(f"{cls.name} has no option '{name}'; allowed: {', '.join(allowed)}.{nearest(name, allowed)}")
    return {name: allowed[name].parse(name, value) for name, value in options.items()}


def check_scenario(cls: type[Method], given: Mapping[str, Any], scenario: str, usual: Mapping[str, Any]) -> None:
    """OptionError for an option that would make another run and change no number, as it is for other methods or scenarios."""
    options = allowed_options(cls)
    for name, value in given.items():
        if name in cls.ignores and value != usual[name]:
            raise OptionError(f"{name}={value} does nothing with {cls.name}")
        if not options[name].fits(scenario) and value != usual[name]:
            only = options[name].only
            raise OptionError(f"{name}={value} does nothing with {cls.name} in scenario {scenario}; allowed in scenario: {only}")


def preset_values(cls: type[Method], preset: str, profile: str, dataset: str, scenario: str) -> dict[str, Any]:
    """Every option that a preset gives a value of its own."""
    allowed = allowed_options(cls)
    chosen = preset_options(preset, profile, dataset, scenario, cls.name)
    known = allowed.keys() - set(cls.ignores)
    return {name: allowed[name].parse(name, value) for name, value in chosen.items() if name in known}


def profile_defaults(cls: type[Method], profile: str, dataset: str, scenario: str) -> dict[str, Any]:
    """Every option's value where the experiment says nothing: the option's default, then the profile's, then the method's.

    A profile speaks of the package's options alone: an option that a reader's method defines is not CM's of the same name.
    """
    allowed = allowed_options(cls)
    values = {name: option.default for name, option in allowed.items()}
    chosen = profile_options(profile, dataset, scenario, cls.name)
    meant = {name: value for name, value in chosen.items() if name in allowed and not (cls.own and _is_own(name, allowed[name]))}
    values.update({name: allowed[name].parse(name, value) for name, value in meant.items()})
    values.update(parse_options(cls, cls.defaults.get(scenario, {})))
    return values


def _is_own(name: str, option: Option) -> bool:
    """Whether no method of cmlib has this option: a reader's method brought it."""
    return all(allowed_options(method).get(name) != option for method in METHODS.values() if not method.own)


def _one_number_of_tasks(given: Mapping[str, Any], engine: str) -> int:
    """The number of tasks that task_sizes gives; OptionError where n_tasks says another or the engine has none of the kind."""
    text, n = given["task_sizes"], len(sizes_in(given["task_sizes"]))
    if engine != ENGINES[0]:
        raise OptionError(f"task_sizes={text} does not work with engine {engine}; allowed: {ENGINES[0]}")
    if given.get("n_tasks", n) != n:
        raise OptionError(f"task_sizes={text} are {n} tasks, but n_tasks={given['n_tasks']}; give one of the two")
    return n


def fresh(experiment: Experiment, data: ImageData, device: str | torch.device = "cpu") -> Method:
    """The untrained method of an experiment, with its scenario."""
    options = experiment.options
    scenario = Scenario(
        data,
        experiment.scenario,
        options["n_tasks"],
        experiment.seed,
        options.get("support_size", 0),
        options.get("stratified", True),
        options["train_per_class"],
        options["eval_split"],
        options["augmentation"],
        device,
        options["class_order"],
        sizes_in(options["task_sizes"]) if options["task_sizes"] else None,
    )
    return METHODS[experiment.method](options, scenario).to(device)
