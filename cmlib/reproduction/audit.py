"""The audit of a store: does every result file fit its own description?

Form, place, hash, data, gradient steps, memory, and accuracies that some number of right answers gives. What it cannot see:
seconds, dates, versions, thread counts and devices are facts of a machine, so only their form is checked; where a store has
checksums (`cmlib publish` writes them), every file must be the published one, to the bit; without them an accuracy changed into
another one that is possible shows only where a page or a table uses it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from cmlib import datasets, formulas, nets, projectors, runfile
from cmlib.datasets import ImageData
from cmlib.errors import CmlibError
from cmlib.experiment import Experiment
from cmlib.memory import quota
from cmlib.methods import METHODS
from cmlib.methods.base import sizes_in
from cmlib.methods.cm import CentroidsMatching
from cmlib.randomness import seeded
from cmlib.reproduction import costs
from cmlib.reproduction.publish import checksum_problems
from cmlib.runfile import STOPPED
from cmlib.scenario import Scenario
from cmlib.store import FINISHED, Run, Store

SHAPING = ("n_tasks", "task_sizes", "support_size", "stratified", "train_per_class", "eval_split", "class_order")  # the tasks


@dataclass
class Audit:
    """What was found: problems as (file, what is wrong), how much was checked, and repeated runs that may explain a number."""

    problems: list[tuple[str, str]] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    repeats: dict[str, Run] = field(default_factory=dict)


# -- what a run's experiment implies --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """Numbers of images: by task and class to train on, support sets by task, to test on by task; scalars an image."""

    train: tuple[tuple[int, ...], ...]
    support: tuple[int, ...]
    test: tuple[int, ...]
    image: int
    channels: int

    @property
    def rows(self) -> list[int]:
        """Training images of each task, support set left out."""
        return [sum(task) for task in self.train]


@cache
def stand_in(name: str) -> ImageData:
    """A data set with the right labels: the digits themselves, else one black pixel an image (all classes equally large)."""
    if name == "digits":
        return datasets.load_digits()
    known = datasets.KNOWN[name]
    classes = len(known.class_names)
    y, y_test = (torch.arange(n) % classes for n in (known.train, known.test))
    x, x_test = (torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8) for labels in (y, y_test))
    return ImageData(name, x, y, x_test, y_test, known.class_names, (0.5,), (0.5,), "none", "")


@cache
def _sizes(name: str, seed: int, shaped_by: tuple[tuple[str, Any], ...]) -> Sizes:
    settings = dict(shaped_by)
    settings["task_sizes"] = sizes_in(settings["task_sizes"]) if settings["task_sizes"] else None
    scenario = Scenario(stand_in(name), "til", seed=seed, **settings)
    train = tuple(tuple(torch.bincount(t.y - t.classes.start, minlength=len(t.classes)).tolist()) for t in scenario.tasks)
    side, _, channels = map(int, datasets.KNOWN[name].size.split("x"))
    held, test = (tuple(len(one) for one in ys) for ys in zip(*((t.support_y, t.test_y) for t in scenario.tasks)))
    return Sizes(train, held, test, side * side * channels, channels)


def sizes_of(experiment: Experiment) -> Sizes | None:
    """The numbers of images in an experiment's tasks; None when its data set is not one whose labels are known."""
    if experiment.dataset not in datasets.KNOWN:
        return None
    options = experiment.options
    return _sizes(experiment.dataset, experiment.seed, tuple((name, options[name]) for name in SHAPING if name in options))


@cache
def _parameters(kind: str, inputs: int, norm: str, head: str, outputs: tuple[int, ...], shared_layer: bool) -> tuple[int, int]:
    """Parameters of backbone and heads, and those among them that are batch norms private to a task. outputs: of each head"""
    backbone = nets.make_backbone(inputs, norm, 0, kind)
    width = backbone.out_features
    for _ in outputs[1:]:
        backbone.add_task()
    private = {id(p): p.numel() for one in backbone.task_norms() if one.kind == "private" for p in one.parameters()}
    trunk = nets.make_head("linear", width, 0, 0, width) if shared_layer else torch.nn.Identity()
    layers = "linear" if shared_layer else head
    parts = [backbone, trunk, *(nets.make_head(layers, size, 0, i, width) for i, size in enumerate(outputs))]
    return sum(p.numel() for part in parts for p in part.parameters()), sum(private.values())


@cache
def _norm_channels(kind: str) -> int:
    return sum(norm.features for norm in nets.make_backbone(1, "shared", 0, kind).task_norms())


@cache
def _projector(kind: str, size: int) -> int:
    with seeded(0, 0, "projector"):  # the draws of others stay as they are
        return sum(p.numel() for p in projectors.make_projector(kind, size).parameters())


@dataclass(frozen=True)
class Kept:
    """What an experiment keeps in memory after `heads` tasks began and `done` ended."""

    experiment: Experiment
    sizes: Sizes
    heads: int
    done: int

    def network(self, heads: int | None = None) -> tuple[int, int]:
        """Parameters of the network with so many heads (all), and those in norms private to a task."""
        e, o = self.experiment, self.experiment.options
        cls, tasks = METHODS[e.method], self.sizes.train[: heads or self.heads]
        outputs = tuple(o.get("embedding_size", len(task)) for task in tasks)
        shared = e.scenario == "cil" and o["head"] == "mlp" and cls.shares_hidden_layer
        flat = nets.BACKBONES[o["backbone"]].flat
        inputs = self.sizes.image if flat else self.sizes.channels
        return _parameters(o["backbone"], inputs, o["batch_norm"], o["head"], outputs, shared)

    def consolidated(self, heads: int) -> int:
        """Weights that EWC holds once so many heads are there; private norms are left out, and stay with all their tasks."""
        total, private = self.network(heads)
        return total - private

    def exemplars(self) -> int:
        """Images in the exemplar memory: each class has its share, or all the images there are."""
        o, tasks = self.experiment.options, self.sizes.train[: self.done]
        if self.experiment.method == "gem" and o["exemplars"] == "first":
            return sum(min(o["memory_size"], sum(task)) for task in tasks)
        if o.get("memory_kind", "per_task") == "total":
            tasks = (tuple(n for task in tasks for n in task),)
        shares = [(quota(o["memory_size"], list(range(len(task)))), task) for task in tasks if task]
        return sum(min(share[label], n) for share, task in shares for label, n in enumerate(task))

    def images(self) -> int:
        """Images kept: all training images so far, or the exemplars."""
        if "exemplars" not in METHODS[self.experiment.method].keeps[self.experiment.scenario]:  # Cumulative keeps them all
            return sum(self.sizes.rows[: self.heads])
        if self.experiment.method == "cope":
            a_class = self.experiment.options["exemplars_per_class"]
            return sum(min(a_class, rows) for task in self.sizes.train for rows in task)
        return self.exemplars()

    def letters(self) -> dict[str, int]:
        """The values of the letters of `formulas`."""
        o, classes = self.experiment.options, sum(map(len, self.sizes.train[: self.heads]))
        kind, own = o["batch_norm"], o.get("centroids_merging", "shared")
        width = nets.BACKBONES[o["backbone"]].out_features
        kinds = [o["merging"], *({"shared": [], "own": [o["merging"]]}.get(own, [own]))] if "merging" in o else []
        weights = [self.consolidated(heads) for heads in range(1, self.heads + 1)]
        return {
            **{"N": self.heads, "I": self.sizes.image, "D": width, "E": o.get("embedding_size", 0)},
            **{"T": classes, "k": classes // self.heads},  # k has no meaning where tasks differ
            "X": self.images(),
            "W": weights[-1],
            "A": sum(weights),
            "Q": sum(_projector(one, o["embedding_size"]) for one in kinds),
            "V": _norm_channels(o["backbone"])
            * (2 if kind == "stats" else 4),  # mean and variance, and with private norms scale and shift
        }

    def scalars(self) -> dict[str, int] | None:
        """Scalars by what they are, as in the result file; None for a method that does not declare what it keeps."""
        cls, e = METHODS[self.experiment.method], self.experiment
        if e.scenario not in cls.keeps:
            return None
        letters = self.letters()
        return {part: formulas.value(text, letters) for part, text in cls.declared(e.scenario, e.options["batch_norm"]).items()}

    def formula(self) -> dict[str, Any]:
        """The paper's formula with its value, as in the result file; nothing where the paper gives none."""
        e, o, classes = self.experiment, self.experiment.options, sum(map(len, self.sizes.train))
        printed = METHODS[e.method].paper_memory.get(e.scenario)
        if not printed:
            return {}
        letters = {"N": e.n_tasks, "T": classes, "P": self.network()[0], "I": self.sizes.image}
        letters |= {"D": nets.BACKBONES[o["backbone"]].out_features, "E": o.get("embedding_size", 0)}
        letters |= {"M": o.get("memory_size", o.get("exemplars_per_class", 0) * classes // e.n_tasks)}
        return {"text": printed, "scalars": formulas.value(formulas.as_expression(printed), letters)}


# -- result files ---------------------------------------------------------------------------------------------------------


def check_store(folder: Path, found: Audit) -> dict[str, Run]:
    """Check every file of a store; returns the readable runs by id."""
    runs: dict[str, Run] = {}
    data: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))  # data set -> its facts -> files
    found.problems += checksum_problems(folder)
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder).as_posix()
        found.checked["result files"] += 1
        run = read_run(path, name, found)
        if run is not None:
            found.problems += [(name, what) for what in run_problems(run, name)]
            runs[run.id] = run
            facts = {key: run.data[key] for key in ("digest", "classes", "rows")}
            if run.experiment["dataset"] in datasets.KNOWN:  # a folder's name says little
                data[run.experiment["dataset"]][json.dumps(facts)].append(name)
    for facts_of in data.values():
        usual = max(facts_of, key=lambda facts: len(facts_of[facts]))
        odd = [(name, facts) for facts, names in facts_of.items() if facts != usual for name in names]
        found.problems += [(name, f"its data {facts} differ from those of the other runs, {usual}") for name, facts in odd]
    return runs


def read_run(path: Path, name: str, found: Audit) -> Run | None:
    """A result file as a run; None, with the problems noted, when it is none."""
    try:
        content, wrong = runfile.read(path.read_bytes())
    except (OSError, ValueError) as error:
        content, wrong = {}, [str(error)]
    found.problems += [(name, what) for what in wrong]
    return None if wrong else Run(**content)


def run_problems(run: Run, name: str) -> Iterator[str]:
    """Everything in which a run does not fit itself. name: where the file lies in its store."""
    content, cls = run.experiment, METHODS.get(run.experiment["method"])
    if cls is not None and content["revision"] < cls.revision:
        yield f"stale: made by revision {content['revision']} of {cls.name}, which is now at {cls.revision}; make it anew"
    try:
        experiment = Experiment.of(content)
    except CmlibError as error:
        yield f"its experiment is impossible: {error}"
        return
    if content["revision"] > METHODS[experiment.method].revision:
        yield f"revision {content['revision']} of {experiment.method} does not exist yet"
    misplaced = list(_place_problems(run, experiment, name))
    yield from misplaced
    if not misplaced:  # else what it must hold is not known
        yield from _content_problems(run, experiment)


def _content_problems(run: Run, experiment: Experiment) -> Iterator[str]:
    """Everything in which a run differs from what its experiment implies."""
    n, stop = experiment.n_tasks, STOPPED.fullmatch(run.status)
    task, epoch = (int(stop[1]), int(stop[2])) if stop else (n, experiment.epochs)
    try:
        sizes = sizes_of(experiment) if _whole_data(run, experiment) else None
    except CmlibError as error:
        yield f"its experiment is impossible: {error}"
        return
    yield from _matrix_problems(run, sizes, task - 1 if stop else n)
    if sizes is not None:
        yield from _count_problems(run, Kept(experiment, sizes, task, task - 1 if stop else n), epoch)


def _place_problems(run: Run, experiment: Experiment, name: str) -> Iterator[str]:
    """Hash, id and place, with the revision the file names (a stale file may fit itself)."""
    revision = run.experiment["revision"]
    wanted = experiment.hash(run.data["digest"], revision)
    shown, e = run.id[-8:], experiment
    if shown != wanted:
        yield f"does not fit its hash {shown} (now {wanted}): options, seed, data or revision were changed by hand"
    if run.id[:-9] != (label := f"{e.method}-{e.scenario}-{e.dataset}-seed{e.seed}"):
        yield f"its id {run.id} does not begin with {label}"
    place = Store("").path(e, run.data["digest"]).with_name(f"seed{e.seed}-{shown}.json").as_posix()
    if name != place:
        yield f"lies in the wrong place; it belongs to {place}"


def _whole_data(run: Run, experiment: Experiment) -> bool:
    known = datasets.KNOWN.get(experiment.dataset)
    if known is None:
        return False
    return run.data["rows"] == known.train or experiment.dataset == "digits"


def _matrix_problems(run: Run, sizes: Sizes | None, rows: int) -> Iterator[str]:
    for label, R in (("R", run.R), ("R_task_known", run.R_task_known or [])):
        for i, row in enumerate(R):
            for j, value in enumerate(row):
                if value is not None and sizes and abs(value * sizes.test[j] / 100 - round(value * sizes.test[j] / 100)) > 1e-6:
                    where = f"{label} after task {i + 1} on task {j + 1}"
                    yield f"{where} is {value}, which no number of right answers among {sizes.test[j]} images gives"
    yield from _known_problems(run, rows)


def _known_problems(run: Run, rows: int) -> Iterator[str]:
    """With one task there is nothing to be told; later, being told never hurts where both answers come from the same scores."""
    if run.R_task_known is None or not rows:
        return
    e = run.experiment
    later_classes = e["engine"] == "avalanche" and e["method"] == "cope"  # there they have prototypes from the start
    if run.R[0][0] != run.R_task_known[0][0] and not later_classes:
        yield f"R after task 1 is {run.R[0][0]}, but {run.R_task_known[0][0]} with the task known; there is only one task"
    method = METHODS[e["method"]]
    if method.own or issubclass(method, CentroidsMatching):  # its own spaces and the merged one are different scores
        return
    for i in range(rows):
        for j in range(i + 1):
            told, untold = run.R_task_known[i][j], run.R[i][j]
            if told is not None and untold is not None and told < untold:
                yield f"after task {i + 1} on task {j + 1}: {told} with the task known, {untold} without; that cannot be"


def _count_problems(run: Run, kept: Kept, epoch: int) -> Iterator[str]:
    """Images, gradient steps and memory, counted from the experiment alone."""
    e, sizes = kept.experiment, kept.sizes
    data = stand_in(e.dataset)
    facts: dict[str, Any] = {"classes": len(data.class_names)}
    facts |= {"rows": len(data.y_train), "train_rows_used": sum(sizes.rows) + sum(sizes.support)}
    facts |= {"digest": data.digest} if data.digest else {}
    yield from (f"data.{key} is {run.data[key]}; it must be {fact}" for key, fact in facts.items() if run.data[key] != fact)
    steps_of_task = () if METHODS[e.method].own else run.gradient_steps[: kept.heads]  # what its `batches` give is not known
    for i, steps in enumerate(steps_of_task):
        epochs = epoch if i == kept.heads - 1 else e.epochs
        one = costs.stream(e, sizes.rows, i)[2]
        if steps != epochs * one and not (i == kept.heads - 1 and runfile.cut_short(vars(run))):
            yield f"gradient_steps of task {i + 1} is {steps}; {epochs} epochs of {one} steps are expected"
    if not runfile.cut_short(vars(run)):
        yield from _memory_problems(run, kept)


def _memory_problems(run: Run, kept: Kept) -> Iterator[str]:
    e, held = kept.experiment, run.retained
    midway = e.method == "cope" and (run.status != FINISHED or e.stream == "first_batch")  # the draw says how many of a class
    uneven = e.engine == "avalanche" and e.method == "er" and e.memory_size % run.data["classes"]  # it rounds in its own way
    wanted = None if midway or uneven else kept.scalars()
    if wanted is not None and held != wanted:
        yield f"retained is {held}; {wanted} is expected"
    if "exemplars" in held and held["exemplars"] != held.get("labels", 0) * kept.sizes.image:
        yield f"retained: {held['exemplars']} scalars of exemplars are not {held.get('labels', 0)} images"
    formula = kept.formula()
    if run.formula and run.formula != formula:
        yield f"formula is {run.formula}; {formula} is expected"
