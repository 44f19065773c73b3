"""The audit: does every number of the book come from a run that fits its own description?

`cmlib audit` checks the result files (form, place, hash, data, gradient steps, memory, accuracies that some number of right
answers gives), the numbers that pages show through `cm.say` (recomputed from the runs they name) and the generated tables (those
of the committed runs).

What it cannot see: seconds, dates, versions, thread counts and devices are facts of a machine, so only their form is checked;
where a store has checksums (`cmlib publish` writes them), every file must be the published one, to the bit; without them an
accuracy changed into another one that is possible shows only where a page or a table uses it. A number that a page computes
from a network of its own is in no result file: ON_PAGE lists these, and of them only the rendering is checked.
"""

from __future__ import annotations

import csv
import html
import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from cmlib import costs, datasets, nets, paper, projectors, report, runfile
from cmlib.datasets import ImageData
from cmlib.errors import CmlibError, OptionError, StoreError
from cmlib.experiment import Experiment
from cmlib.memory import quota
from cmlib.methods import METHODS
from cmlib.plots import page
from cmlib.randomness import seeded
from cmlib.runfile import STOPPED, is_number
from cmlib.scenario import Scenario
from cmlib.store import CHECKSUMS, FINISHED, REPEATS, Run, Store, checksums, read_checksums

# Values that a page computes from a network it trains itself, beside runs that it names: (chapter, name of the value).
ON_PAGE: set[tuple[str, str]] = {
    ("03_classify_by_distance", "pixels_til"),  # accuracy of the nearest mean on raw pixels, beside that of methods
    ("03_classify_by_distance", "pixels_cil"),
    ("04_task_incremental_cm", "ours"),  # the accuracy of the loop that the chapter writes, and how far the package's is from it
    ("04_task_incremental_cm", "largest"),
    ("04_task_incremental_cm", "b"),  # drift of task 1
    ("07_baselines", "price"),  # accuracy with the task given minus without
    ("05_class_incremental_cm", "share"),  # mistakes that name a class of another task
    # from the snapshots beside the runs: drift, variance, cells, anchors, in percent
    *(("06_inside_the_space", f"{name}{k}") for name in ("held", "free", "early", "plain", "moved") for k in range(10)),
    *(("06_inside_the_space", name) for name in ("end", "loose", "stay", "leave", "flat", "deep")),
    *(("06_inside_the_space", f"{what}_{name}") for what in "dc" for name in ("held", "free", "large")),
    *(("06_inside_the_space", name) for name in ("wrong_on", "wrong_off", "far", "worst", "before", "after", "one", "none")),
    *(("06_inside_the_space", name) for name in ("own", "own_free", "shared", "with_it", "without_it", "trained")),
    *(("06_inside_the_space", name) for name in ("first", "second")),  # two features
    ("08_main_table", "t"),  # tests of gaps between two methods, from runs that are named
    ("08_main_table", "p"),
    ("08_main_table", "flips"),
    ("08_main_table", "floor"),  # the smallest p that so many seeds allow
    ("08_main_table", "largest"),  # importance of a weight, in a run that is trained again up to where it stopped
    *(("08_main_table", f"{name}sd{i}") for name in "abc" for i in range(12)),  # standard deviations of the population
    *(("08_main_table", f"{name}{i}") for name in ("tau", "chance", "rank") for i in range(12)),  # of rankings of methods
    *(("10_time", name) for name in ("most", "mean", "median")),  # seconds of a run's epochs, by its fastest
    *(("10_time", f"{name}{i}") for name in "cmp" for i in range(20)),  # costs by the cost model; growth of fastest epochs
    ("09_memory", "share"),  # how far GEM is on the way from Naive to Cumulative, percent
}


@dataclass
class Audit:
    """What was found: problems as (file, what is wrong), and how much was checked."""

    problems: list[tuple[str, str]] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def audit(store: str | Path = "book/results", book: str | Path = "book") -> Audit:
    """Check a store of runs and the pages of a book. StoreError or OptionError when there is no such folder."""
    shelf, pages = Path(store), Path(book)
    if not shelf.is_dir():
        raise StoreError(f"there is no store {shelf}")
    if not pages.is_dir():
        raise OptionError(f"there is no folder {pages} with the book's pages")
    found = Audit()
    runs = check_store(shelf, found)
    if (pages / REPEATS).is_dir():
        check_store(pages / REPEATS, found)
    check_pages(pages, runs, found)
    return found


def main(store: str | Path, book: str | Path, as_json: bool = False) -> int:
    """Print the audit, one line a problem and one of what was checked; 1 when there is a problem, else 0."""
    found = audit(store, book)
    if not found.checked and not found.problems:
        raise StoreError(f"{store} holds no result files and {book} no pages: there is nothing to audit")
    if as_json:
        rows = [{"file": where, "problem": what} for where, what in found.problems]
        print(json.dumps({"problems": rows, "checked": dict(found.checked)}))
        return 1 if rows else 0
    for where, what in found.problems:
        print(f"{where}: {' '.join(what.split())}")
    counts = ", ".join(f"{count} {what}" for what, count in found.checked.items())
    print(f"checked: {counts}; {len(found.problems) or 'no'} problem{'s' * (len(found.problems) != 1)}")
    return 1 if found.problems else 0


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
def _sizes(
    name: str, n_tasks: int, seed: int, support: int, stratified: bool, per_class: int | None, split: str, order: str
) -> Sizes:
    data = stand_in(name)
    scenario = Scenario(data, "til", n_tasks, seed, support, stratified, per_class, split, class_order=order)
    k = scenario.classes_per_task
    train = tuple(tuple(torch.bincount(t.y - t.classes.start, minlength=k).tolist()) for t in scenario.tasks)
    side, _, channels = map(int, datasets.KNOWN[name].size.split("x"))
    held, test = (tuple(len(one) for one in ys) for ys in zip(*((t.support_y, t.test_y) for t in scenario.tasks)))
    return Sizes(train, held, test, side * side * channels, channels)


def sizes_of(experiment: Experiment) -> Sizes | None:
    """The numbers of images in an experiment's tasks; None when its data set is not one whose labels are known."""
    if experiment.dataset not in datasets.KNOWN:
        return None
    o = experiment.options
    support = (o.get("support_size", 0), o.get("stratified", True))
    shown = (o["train_per_class"], o["eval_split"], o["class_order"])
    return _sizes(experiment.dataset, o["n_tasks"], experiment.seed, *support, *shown)


@cache
def _parameters(channels: int, norm: str, head: str, outputs: int, heads: int, shared_layer: bool) -> tuple[int, int]:
    """Parameters of backbone and heads, and those among them that are batch norms private to a task."""
    backbone = nets.make_backbone(channels, norm, 0)
    for _ in range(heads - 1):
        backbone.add_task()
    private = {id(p): p.numel() for one in backbone.task_norms() if one.kind == "private" for p in one.parameters()}
    trunk = nets.make_head("linear", nets.FEATURES, 0, 0) if shared_layer else torch.nn.Identity()
    kind = "linear" if shared_layer else head
    parts = [backbone, trunk, *(nets.make_head(kind, outputs, 0, i) for i in range(heads))]
    return sum(p.numel() for part in parts for p in part.parameters()), sum(private.values())


@cache
def _norm_channels() -> int:
    return sum(norm.features for norm in nets.make_backbone(1, "shared", 0).task_norms())


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
        cls, outputs = METHODS[e.method], o.get("embedding_size", len(self.sizes.train[0]))
        shared = e.scenario == "cil" and o["head"] == "mlp" and cls.shares_hidden_layer
        return _parameters(self.sizes.channels, o["batch_norm"], o["head"], outputs, heads or self.heads, shared)

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

    def norms(self) -> dict[str, int]:
        """Scalars of past tasks' batch norms: mean and variance of each channel, and scale and shift where these are private."""
        kind = self.experiment.options["batch_norm"]
        if kind == "shared":
            return {}
        return {"past batch norms": (self.heads - 1) * _norm_channels() * (2 if kind == "stats" else 4)}

    def scalars(self) -> dict[str, int] | None:
        """Scalars by what they are, as in the result file; None for a method that is not known here."""
        o, method, image = self.experiment.options, self.experiment.method, self.sizes.image
        if method in ("naive", "cumulative", "ewc", "oewc"):
            return {**self.norms(), **self._weights()}
        if method == "cope":
            n = sum(min(o["exemplars_per_class"], rows) for task in self.sizes.train for rows in task)
            classes = sum(map(len, self.sizes.train))
            return {"prototypes": classes * nets.FEATURES, "exemplars": n * image, "labels": n}
        if method not in ("cm", "er", "ssil", "gem", "emr"):
            return None
        kept = self._centroids() if method == "cm" else {}
        if method != "cm" or self.experiment.scenario == "cil":
            kept |= {"exemplars": self.exemplars() * image, "labels": self.exemplars()}
        return {**self.norms(), **kept, **({"features": self.exemplars() * nets.FEATURES} if method == "emr" else {})}

    def _weights(self) -> dict[str, int]:
        method, rows = self.experiment.method, sum(self.sizes.rows[: self.heads])
        if method == "cumulative":
            return {"training images": rows * self.sizes.image, "labels": rows}
        if method == "naive":
            return {}
        kept = range(1, self.heads + 1) if method == "ewc" else [self.heads]
        n = sum(map(self.consolidated, kept))
        return {"past weights": n, "importances": n}

    def _centroids(self) -> dict[str, int]:
        o = self.experiment.options
        kept = {"centroids": sum(map(len, self.sizes.train[: self.heads])) * o["embedding_size"]}
        if self.experiment.scenario == "til":
            return kept
        own = {"shared": [], "own": [o["merging"]]}.get(o["centroids_merging"], [o["centroids_merging"]])
        kinds = [o["merging"], *own]
        sizes = [_projector(kind, o["embedding_size"]) for kind in kinds] if self.heads > 1 else []
        return {**kept, "projectors": self.heads * sum(sizes)}

    def formula(self) -> dict[str, Any] | None:
        """The paper's formula with its value, as in the result file; None for a method that is not known here."""
        e, o, image, N = self.experiment, self.experiment.options, self.sizes.image, self.experiment.n_tasks
        P, k = self.network()[0], len(self.sizes.train[0])
        rehearsal = ("I x M x N", image * o.get("memory_size", 0) * N)
        table: dict[str, tuple[str, int] | None] = {
            "naive": None,
            "cumulative": None,
            "ewc": ("N x P", N * P),
            "oewc": ("P", P),
            "emr": ("(D + I) x M x N", (nets.FEATURES + image) * o.get("memory_size", 0) * N),
            "cope": ("I x M x N", image * o.get("exemplars_per_class", 0) * k * N),
            "cm": rehearsal if e.scenario == "cil" else ("E x T", o.get("embedding_size", 0) * k * N),
            **dict.fromkeys(("er", "ssil", "gem"), rehearsal),
        }
        value = table.get(e.method)
        return None if e.method not in table else {"text": value[0], "scalars": value[1]} if value else {}


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


def checksum_problems(folder: Path) -> Iterator[tuple[str, str]]:
    """Files that are not those their checksums were taken of; nothing for a store without checksums."""
    if not (folder / CHECKSUMS).is_file():
        return
    kept, now = read_checksums(folder), checksums(folder)
    for name in sorted(kept.keys() | now.keys()):
        if name not in now:
            yield name, f"is in {CHECKSUMS}, but not there"
        elif name not in kept:
            yield name, f"is not in {CHECKSUMS}: put runs there with `cmlib publish`"
        elif kept[name] != now[name]:
            yield name, f"was changed after it was published: its checksum is not that of {CHECKSUMS}"


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
    if e["method"] == "cm":  # its own spaces and the merged one are different scores
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
    for i, steps in enumerate(run.gradient_steps[: kept.heads]):
        epochs = epoch if i == kept.heads - 1 else e.epochs
        one = costs.stream(e, sizes.rows, i)[2]
        if steps != epochs * one and not (i == kept.heads - 1 and _cut_short(run)):
            yield f"gradient_steps of task {i + 1} is {steps}; {epochs} epochs of {one} steps are expected"
    if not _cut_short(run):
        yield from _memory_problems(run, kept)


def _cut_short(run: Run) -> bool:
    return runfile.cut_short({"experiment": run.experiment, "status": run.status})


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
    if run.formula and formula is not None and run.formula != formula:
        yield f"formula is {run.formula}; {formula} is expected"


# -- numbers that follow from runs ----------------------------------------------------------------------------------------

Rows = Sequence[Sequence[float | None]]


def metrics_of(R: Rows) -> dict[str, float]:
    """Accuracy, both backward transfers and learning accuracy, by slow loops over R; empty for a run that stopped."""
    n = len(R)
    cells = {(i, j): value for i, row in enumerate(R) for j, value in enumerate(row) if value is not None}
    if len(cells) < n * (n + 1) / 2:
        return {}
    losses = {(i, j): cells[i, j] - cells[j, j] for i in range(n) for j in range(i)}
    final = [loss for (i, _), loss in losses.items() if i == n - 1]
    return {
        "accuracy": sum(cells[n - 1, j] for j in range(n)) / n,
        "bwt": sum(losses.values()) / len(losses) if losses else 0.0,
        "bwt_final": sum(final) / len(final) if final else 0.0,
        "learning_accuracy": sum(cells[j, j] for j in range(n)) / n,
    }


def features_of(run: Run) -> dict[str, float]:
    """The numbers of one run that are compared between runs, by name."""
    known = {f"known {name}": value for name, value in metrics_of(run.R_task_known or []).items()} if run.R_task_known else {}
    seconds = sum(map(sum, run.seconds_per_epoch))
    return {**metrics_of(run.R), **known, "steps": float(sum(run.gradient_steps)), "seconds": seconds}


def _summary(values: Sequence[float]) -> list[float]:
    """Mean, smallest, largest, and both standard deviations (divided by n - 1 and by n)."""
    if not values:
        return []
    mean = statistics.fmean(values)
    squares = math.fsum((value - mean) ** 2 for value in values)  # `statistics` has them exactly, but a hundred times slower
    spread = [math.sqrt(squares / n) for n in (len(values) - 1, len(values))] if len(values) > 1 else []
    return [mean, min(values), max(values), *spread]


def plain_values(runs: Sequence[Run]) -> set[float]:
    """What a table of these runs can hold: metrics of each, mean and spread over seeds, differences of two with one seed."""
    groups: dict[str, dict[int, dict[str, float]]] = defaultdict(dict)
    for run in runs:
        groups[run.setting][run.seed] = features_of(run)
    values = {value for group in groups.values() for one in group.values() for value in one.values()}
    for group in groups.values():
        values.update(_over_seeds(list(group.values())))
    for first in groups.values():
        for second in groups.values():
            if first is not second:
                values.update(_between(first, second))
    return values


def _over_seeds(features: Sequence[dict[str, float]]) -> Iterator[float]:
    for name in {name for one in features for name in one}:
        yield from _summary([one[name] for one in features if name in one])


def _between(first: dict[int, dict[str, float]], second: dict[int, dict[str, float]]) -> Iterator[float]:
    names = {name for one in (*first.values(), *second.values()) for name in one}
    for name in names:
        a, b = ({seed: one[name] for seed, one in group.items() if name in one} for group in (first, second))
        paired = [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]
        yield from (*paired, *_summary(paired))
        if a and b:
            ours, theirs = statistics.fmean(a.values()), statistics.fmean(b.values())
            yield ours - theirs
            yield from [ours / theirs] if theirs else []


def detail_values(runs: Sequence[Run], store: Iterable[Run]) -> set[float]:
    """What else a sentence can hold: cells, losses of a task, counts, options, and spreads over all seeds of the store."""
    values = {value for run in runs for value in _details(run)}
    settings = {run.setting for run in runs}
    of_setting: dict[str, list[Run]] = defaultdict(list)
    for run in store:
        if run.setting in settings:
            of_setting[run.setting].append(run)
    for seeds in of_setting.values():
        features = [features_of(run) for run in sorted(seeds, key=lambda run: run.seed)]
        for last in range(2, len(seeds) + 1):
            values.update(_over_seeds(features[:last]))
    return values


def _details(run: Run) -> Iterator[float]:
    for R in (run.R, run.R_task_known or []):
        cells = {(i, j): value for i, row in enumerate(R) for j, value in enumerate(row) if value is not None}
        yield from cells.values()
        below = [value for (i, j), value in cells.items() if j < i]
        yield from _summary(below)
        for i, j in cells:
            yield cells[i, j] - cells[j, j]
            yield cells[j, j] - cells[i, j]
        for i in range(1, len(R)):
            old = [cells[i, j] for j in range(i) if (i, j) in cells]
            yield from [statistics.fmean(old)] if old else []
    options = run.experiment["options"]
    yield from (float(value) for value in options.values() if is_number(value))
    yield from map(float, (*run.retained.values(), sum(run.retained.values()), *run.gradient_steps))
    yield 100 * options["n_tasks"] / run.data["classes"]  # guessing within a task
    yield 100 / run.data["classes"]
    yield from _one_image(run)


def _one_image(run: Run) -> list[float]:
    """What one test image of each task counts, in percent; nothing where that is not known."""
    try:
        sizes = sizes_of(Experiment.of(run.experiment))
    except CmlibError:  # which has been said already
        return []
    return [100 / n for n in sizes.test] if sizes else []


@cache
def printed_values() -> frozenset[float]:
    """The numbers of the paper's tables; from table 1 also the learning accuracies that follow, and gaps between methods."""
    table, values = paper.table1(), set()
    for path in sorted(Path(paper.__file__).with_name("printed").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            names = ("mean", "mean_percent", "std", "std_percent")
            values |= {float(row[name]) for row in csv.DictReader(file) for name in names if row.get(name)}
    for (data, scenario, method, metric), one in table.items():
        forgotten = table.get((data, scenario, method, "bwt"))
        n = Experiment(data, scenario, "naive").n_tasks
        if metric == "accuracy" and forgotten is not None:
            values.add(one.mean - forgotten.mean * (n - 1) / n)
        values.update(one.mean - other.mean for key, other in table.items() if key[:2] + key[3:] == (data, scenario, metric))
    return frozenset(values)


# -- pages ----------------------------------------------------------------------------------------------------------------

RUN_ID = re.compile(r"(?<![\w-])[a-z_]+-(?:til|cil)-[\w.-]+?-seed\d+-[0-9a-f]{8}(?![\w-])")
DECIMAL = re.compile(r"(?<![\w.])\d+(?:,\d{3})*\.\d+(?![\w.]*\w)")
FIELD = re.compile(r"\{[A-Za-z_]\w*(?::[^{}]*)?\}")


def check_pages(folder: Path, runs: dict[str, Run], found: Audit) -> None:
    """Check the notebooks and Markdown pages of a folder against the runs of a store."""
    for path in sorted(folder.glob("*.ipynb")):
        found.checked["notebooks"] += 1
        try:
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            found.problems.append((path.name, f"is not a readable notebook ({error.__class__.__name__})"))
            continue
        for number, cell in enumerate(cells):
            problems = cell_problems(cell, path.stem, runs, found)
            found.problems += [(path.name, f"cell {number}: {what}") for what in problems]
    for path in sorted(folder.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        found.problems += [(path.name, what) for what in _unknown_runs(text, runs)]
        if "% begin " in text:
            found.checked["pages with tables"] += 1
            found.problems += [(path.name, what) for what in table_problems(text)]


def table_problems(text: str) -> Iterator[str]:
    """Lines of a page's generated tables that are not what the committed runs give."""
    try:
        wanted = report.with_tables(text)
    except CmlibError as error:
        yield str(error)
        return
    lines, right = text.splitlines(), wanted.splitlines()
    yield from (f"table line '{is_}' must be '{must}'" for is_, must in zip(lines, right) if is_ != must)
    if len(lines) != len(right):
        yield f"its tables have {len(lines) - len(right):+d} lines; fill them anew"


def cell_problems(cell: dict[str, Any], chapter: str, runs: dict[str, Run], found: Audit) -> Iterator[str]:
    """Problems of one cell: run ids, texts that say another thing than their values, values that no run gives."""
    yield from _unknown_runs(_text(cell.get("source", "")), runs)
    for output in cell.get("outputs", []):
        data = {kind: _text(value) for kind, value in output.get("data", {}).items() if kind.startswith("text/")}
        yield from _unknown_runs("\n".join([_text(output.get("text", "")), data.get("text/plain", "")]), runs)
        yield from _alt_problems(data)
        record = output.get("metadata", {}).get("cmlib")
        if record is not None:
            found.checked["shown texts"] += 1
            yield from say_problems(record, data, chapter, runs, found)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "".join(value)


def _unknown_runs(text: str, runs: dict[str, Run]) -> Iterator[str]:
    yield from (f"names the run {one}, which the store does not hold" for one in sorted({*RUN_ID.findall(text)} - runs.keys()))


def _alt_problems(data: dict[str, str]) -> Iterator[str]:
    """A figure's words stand in the page twice: as alternative text and as plain text."""
    image = re.search(r'<img\b[^>]*?\balt="([^"]*)"', data.get("text/html", ""))
    plain = data.get("text/plain", "")
    if image and plain.startswith("[figure] ") and html.unescape(image[1]) != plain.removeprefix("[figure] "):
        yield f"the figure's alternative text differs from its plain text '{plain[:60]}'"


def say_problems(record: Any, data: dict[str, str], chapter: str, runs: dict[str, Run], found: Audit) -> Iterator[str]:
    """Problems of one output of `say`: record is its metadata (text, values, runs), data its texts by MIME type."""
    if not isinstance(record, dict) or set(record) != {"text", "values", "runs"}:
        yield "metadata of a shown text must hold text, values and runs"
        return
    rendered = renderings(record["text"], record["values"])
    for kind in ("text/markdown", "text/plain"):
        if (kind, data.get(kind)) not in rendered:
            yield f"{kind} is not what its values give: '{data.get(kind, '')[:80]}'"
    missing = sorted(set(record["runs"]) - runs.keys())
    yield from (f"names the run {one}, which the store does not hold" for one in missing)
    if record["runs"] and not missing:
        named = [runs[one] for one in dict.fromkeys(record["runs"])]
        yield from value_problems(record, named, chapter, runs, found)


def renderings(text: str, values: dict[str, Any]) -> set[tuple[str, str]]:
    """What a text can look like with these values, by MIME type; null stands for a value that is not finite."""
    results: set[tuple[str, str]] = set()
    for gap in (math.nan, math.inf, -math.inf):
        filled = {name: gap if value is None else value for name, value in values.items()}
        try:
            results |= set(page.say(text, None, **filled).data.items())
        except (CmlibError, TypeError):
            continue
    return results


def value_problems(
    record: dict[str, Any], named: Sequence[Run], chapter: str, runs: dict[str, Run], found: Audit
) -> Iterator[str]:
    """Values, and decimal numbers written into the text, that do not follow from the runs named."""
    plain = plain_values(named) | printed_values()
    pool = plain | detail_values(named, runs.values())
    for name, value in record["values"].items():
        if type(value) is not float:  # whole numbers are shown in full, so the rendering tells
            continue
        if any(math.isclose(abs(value), abs(one), rel_tol=1e-12, abs_tol=1e-11) for one in pool):
            found.checked["values traced to runs"] += 1
        elif (chapter, name) in ON_PAGE:
            found.checked["values computed on a page"] += 1
        else:
            yield f"{name} = {value} follows from none of the runs it names ({_some(record['runs'])}), nor is it in audit.ON_PAGE"
    for literal in DECIMAL.findall(FIELD.sub("", record["text"])):
        places = len(literal.split(".")[1])
        if literal.replace(",", "") in {f"{abs(one):.{places}f}" for one in plain}:
            found.checked["numbers in texts traced to runs"] += 1
        else:
            yield f"the number {literal} follows from none of the runs it names ({_some(record['runs'])})"


def _some(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
