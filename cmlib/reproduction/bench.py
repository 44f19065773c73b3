"""How long things take: steps, epochs and batches of every method, and the same work done by others beside it.

    cmlib bench step       seconds per gradient step of each method and task; for CM also of the literal step
    cmlib bench epoch      one epoch of plain training: cmlib, a bare loop, Avalanche, Avalanche fed from the device
    cmlib bench pipeline   preparing batches alone: cmlib, PIL images one by one
    cmlib bench methods    seconds per epoch and gradient steps of each method and task
    cmlib bench ratios     the few ratios that sum it up, and the share of the peak that plain training reaches

The peak is that of float32 numbers in a large matrix product, `torch.mm`, in the same process with the same threads.

What is compared takes turns in one process, in short blocks, each round in the opposite order of the one before, and a ratio is
the median of the rounds' ratios: a machine that is busy with something else disturbs all sides alike. On a CPU with one thread,
seconds are the CPU time of this process, which other programs hardly change; otherwise they are wall-clock time.

The literal step is Centroids Matching word for word, as the released code computes it: a pass of the backbone for every head, two
more for every past head, the past model inside the graph, the support set in chunks. It is kept as the slow reference that the
method's own step must agree with. The chapter on time prints what is measured here.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode

from cmlib import datasets, machine
from cmlib.cudagraph import Step, stepper
from cmlib.datasets import ImageData
from cmlib.errors import CmlibError, OptionError, check_name
from cmlib.experiment import ARRAYS, Experiment, fresh
from cmlib.methods import METHODS, Method
from cmlib.methods.base import Option
from cmlib.methods.cm import CentroidsMatching
from cmlib.nets import make_backbone, make_head
from cmlib.profiles import PROFILES
from cmlib.reproduction import costs, paper, render
from cmlib.reproduction.costs import Epochs
from cmlib.reproduction.literal import LiteralStep
from cmlib.scenario import KINDS, PADDING, Scenario, Task

IMAGES = {"32x32": (3, 32, 32), "8x8": (1, 8, 8)}  # channels, height, width of made-up images
CLASSES = 10
PER_CLASS = 100  # made-up training images of each class, where nothing else is said
REPEATS = {"step": 10, "epoch": 10, "pipeline": 10, "methods": 3, "ratios": 20}
SQUARE = 1536  # rows of the two matrices whose product stands for the machine's peak
ALWAYS = ("repeats", "device", "threads")
SINGLE = (*ALWAYS, "dataset", "images", "data_root", "profile", "train_per_class", "batch_size")
HEEDED = {"epoch": (*SINGLE, "graphs"), "pipeline": SINGLE, "ratios": ALWAYS}  # settings by bench; the others heed all
WORTH = {"step": "seconds_per_step", "methods": "seconds_per_epoch"}  # what a row of these two holds

# What the ratios should be: ("at least" or "at most", value).
GOALS = {
    "epoch_vs_avalanche": ("at least", 4.0),
    "pipeline_vs_pil": ("at least", 15.0),
    "overhead_vs_bare_32": ("at most", 1.05),
    "overhead_vs_bare_8": ("at most", 1.15),
    "cil_step_growth": ("at most", 1.2),
    "cil_step_vs_literal": ("at least", 3.0),
    "til_passes": ("at most", 4),
}
# Training images of each class behind a ratio: 2 batches of 32 an epoch for large images, 8 for small ones, 10 for a pipeline.
# The shorter a block, the more alike the conditions of the sides; epochs so short get twice the rounds.
BLOCKS = {"epoch 32x32": 32, "epoch 8x8": 128, "pipeline": 160, "cm": 120}


@dataclass(frozen=True)
class Settings:
    """What is measured, on what. OptionError, in one line, for what is impossible.

    dataset: a name or a folder; None for made-up images of a size (`images`), 10 classes. methods: all by default. scenario:
    `til`, `cil` or `both`. profile: the methods' options. train_per_class: images a class. repeats: rounds, or timed epochs or
    steps. graphs: on CUDA, replay recorded steps. The ratios have sizes of their own and heed repeats, device and threads only.
    """

    dataset: str | None = None
    images: str | None = None
    data_root: str | None = None
    methods: Sequence[str] = ()
    scenario: str = "both"
    profile: str | None = None
    train_per_class: int | None = None
    batch_size: int = 32
    repeats: int | None = None
    device: str = "auto"
    threads: int = 1
    graphs: bool = True

    def __post_init__(self) -> None:
        if self.dataset is not None and self.images is not None:
            raise OptionError("--dataset and --images exclude each other: give one of them")
        if self.data_root is not None and self.dataset is None:
            raise OptionError("--data-root is for --dataset: made-up images lie nowhere")
        check_name("size of images", self.size, IMAGES)
        check_name("scenario", self.scenario, (*KINDS, "both"))
        for method in self.methods:
            check_name("method", method, METHODS)
        if not self.pairs():
            allowed = ", ".join(name for name, method in METHODS.items() if self.scenario in method.scenarios)
            raise OptionError(f"{', '.join(self.methods)}: does not work in scenario {self.scenario}; allowed: {allowed}")
        if self.profile is not None:
            check_name("profile", self.profile, PROFILES)
        for name, most in (("repeats", 1_000_000), ("threads", os.cpu_count() or 1)):
            Option(1, "", int, low=1, high=most, optional=True).parse(name, getattr(self, name))

    @property
    def size(self) -> str:
        """The size of made-up images."""
        return self.images or "32x32"

    def pairs(self) -> list[tuple[str, str]]:
        """The methods and scenarios asked for, in the order of the paper's table."""
        kinds = KINDS if self.scenario == "both" else (self.scenario,)
        return [(m, s) for m, s in paper.cells(kinds) if m in (self.methods or METHODS)]

    def data(self) -> ImageData:
        """The images."""
        if self.dataset is None:
            return made_up(self.size, self.train_per_class or PER_CLASS)
        return datasets.load(self.dataset, self.data_root)

    def experiment(self, method: str = "naive", scenario: str = "til") -> Experiment:
        """The experiment of a method."""
        profile = self.profile or ("digits" if self.dataset == "digits" or self.images == "8x8" else "mini")
        options: dict[str, Any] = (
            {"train_per_class": self.train_per_class} if self.train_per_class or self.dataset is None else {}
        )
        return Experiment(self.dataset or ARRAYS, scenario, method, profile=profile, batch_size=self.batch_size, **options)


def made_up(size: str, per_class: int) -> ImageData:
    """Random uint8 images of 10 classes, always the same ones."""
    return costs.made_up(IMAGES[size], CLASSES * per_class, CLASSES)


# -- measuring ------------------------------------------------------------------------------------------------------------


class Timer:
    """Seconds that a piece of work takes, on a device; `clock` is chosen as the module's docstring says."""

    def __init__(self, device: torch.device, clock: Callable[[], float] | None = None) -> None:
        self.device, alone = device, device.type == "cpu" and torch.get_num_threads() == 1
        self.clock = clock or (time.process_time if alone else time.perf_counter)
        self.kind = "cpu time" if alone else "wall clock"

    def __call__(self, work: Callable[[], object]) -> float:
        """Do the work once and wait until the device is through with it."""
        self.wait()
        started = self.clock()
        work()
        self.wait()
        return self.clock() - started

    def wait(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


Side = Callable[[], float]  # does a block of work and returns its seconds
Times = dict[str, list[float]]


def interleave(sides: Mapping[str, Side], rounds: int, warm_up: int = 1) -> Times:
    """Seconds of each side in each round. All sides take turns, in reverse order every other round."""
    times: Times = {name: [] for name in sides}
    for turn in range(warm_up + rounds):
        for name in list(sides) if turn % 2 == 0 else list(sides)[::-1]:
            seconds = sides[name]()
            if turn >= warm_up:
                times[name].append(seconds)
    return times


def ratio(times: Times, above: str, below: str) -> float:
    """Median over the rounds of one side's seconds by another's."""
    return statistics.median(a / b for a, b in zip(times[above], times[below], strict=True))


def medians(times: Times) -> dict[str, float]:
    """Median seconds of each side."""
    return {name: statistics.median(values) for name, values in times.items()}


def note(text: str) -> None:
    """Progress, on stderr: stdout is for the result."""
    print(text, file=sys.stderr, flush=True)


# -- passes ---------------------------------------------------------------------------------------------------------------


def backbone_passes(method: Method, work: Callable[[], object], past: nn.ModuleDict | None = None) -> dict[str, int]:
    """How many times a piece of work calls the backbone, and that of the past model. past: another one than the method's"""
    with costs.counting(method, past) as calls:
        work()
    return {name: len(made) for name, made in calls.items()}


# -- what is timed --------------------------------------------------------------------------------------------------------


def engine_epoch(method: Method, task: Task, timer: Timer, graphs: bool = True) -> Side:
    """An epoch of the engine, on a task the method has begun."""
    epoch = Epochs(method, task, graphs)
    return lambda: timer(epoch)


def plain_net(scenario: Scenario, memory_format: torch.memory_format) -> nn.Module:
    """ResNet20 and a linear head for the first task, with the initial weights every method has."""
    channels = scenario.data.x_train.shape[1]
    net = nn.Sequential(make_backbone(channels, "shared", 0), make_head("linear", scenario.classes_per_task, 0, 0))
    return net.to(scenario.device).to(memory_format=memory_format)


def sgd(net: nn.Module, fused: bool | None = None) -> torch.optim.Optimizer:
    """The optimizer of all sides."""
    return torch.optim.SGD(net.parameters(), 0.01, 0.9, fused=fused)


def bare_epoch(scenario: Scenario, size: int, timer: Timer) -> Side:
    """A bare loop on the first task: batches that lie ready, one step each."""
    task, net = scenario.tasks[0], plain_net(scenario, torch.channels_last)
    optimizer = sgd(net, fused=True)
    batches = zip(task.x.split(size), task.y.split(size), strict=True)
    ready = [(scenario.prepare(x), y) for x, y in batches]

    def epoch() -> None:
        net.train()
        for x, y in ready:
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()

    return lambda: timer(epoch)


class PILImages(Dataset[Any]):
    """Images as torchvision's data sets hand them out: one PIL image and its label at a time."""

    def __init__(self, x: Tensor, y: Tensor, transform: Callable[[Any], Any] | None = None) -> None:
        self.images, self.transform = x.permute(0, 2, 3, 1).contiguous().cpu().numpy(), transform
        self.targets: list[int] = y.tolist()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        from PIL import Image

        pixels = self.images[row]
        image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        return (self.transform(image) if self.transform else image), self.targets[row]


def pil_transforms(data: ImageData, augmented: bool = True) -> Callable[[Any], Tensor]:
    """The usual transforms of PIL images: crop and flip (where the data set has them), to tensor, normalise."""
    from torchvision import transforms as T

    crop = data.augmentation == "crop-flip" and augmented
    first = [T.RandomCrop(data.x_train.shape[-1], padding=PADDING), T.RandomHorizontalFlip()] if crop else []
    return T.Compose([*first, T.ToTensor(), T.Normalize(data.mean, data.std)])


def avalanche_epoch(scenario: Scenario, size: int, timer: Timer, on_device: bool) -> Side:
    """An epoch of Avalanche's Naive on the first task: with its usual PIL transforms, or fed from the device by cmlib.

    ImportError or OptionError where Avalanche is not installed.
    """
    strategy = avalanche_naive(scenario, size, timer, on_device)
    benchmark = import_module("cmlib.avalanche").benchmark if on_device else pil_benchmark
    experience = benchmark(scenario).train_stream[0]

    def epoch() -> float:
        strategy.train(experience)
        return float(strategy.seconds)

    return epoch


def avalanche_naive(scenario: Scenario, size: int, timer: Timer, on_device: bool) -> Any:
    """Avalanche's Naive, which keeps the `seconds` of its last epoch.

    With PIL transforms it is Avalanche as it comes, the network in torch's own memory format, but without metrics and loggers.
    """
    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Avalanche's many dependencies, and that nothing is logged
        from avalanche.training.plugins import EvaluationPlugin
        from avalanche.training.supervised import Naive

        bases = (import_module("cmlib.avalanche").DeviceBatches, Naive) if on_device else (Naive,)

        def training_epoch(self: Any, **rest: Any) -> None:
            self.seconds = timer(partial(super(timed, self).training_epoch, **rest))

        timed: Any = type("TimedNaive", bases, {"training_epoch": training_epoch})
        net = plain_net(scenario, torch.channels_last if on_device else torch.contiguous_format)
        settings = {"train_mb_size": size, "train_epochs": 1, "eval_mb_size": size, "device": scenario.device}
        return timed(model=net, optimizer=sgd(net), evaluator=EvaluationPlugin(), **settings)


def pil_benchmark(scenario: Scenario) -> Any:
    """Avalanche's benchmark of the first task, made as its classic benchmarks are."""
    from avalanche.benchmarks import nc_benchmark

    task, data = scenario.tasks[0], scenario.data
    train, test = PILImages(task.x, task.y), PILImages(task.test_x, task.test_y)
    transforms = {"train_transform": pil_transforms(data), "eval_transform": pil_transforms(data, augmented=False)}
    return nc_benchmark(train, test, n_experiences=1, task_labels=False, shuffle=False, **transforms)


def pipelines(scenario: Scenario, size: int, timer: Timer) -> dict[str, Side]:
    """The batches of an epoch of the first task, prepared and on the device, and nothing else."""
    task, epochs = scenario.tasks[0], itertools.count()
    loader = DataLoader(PILImages(task.x, task.y, pil_transforms(scenario.data)), size, shuffle=True, num_workers=0)

    def ours() -> None:
        for _ in scenario.batches([(task.x, task.y, size)], 0, next(epochs)):
            pass

    def pil() -> None:
        for x, y in loader:
            x.to(scenario.device), y.to(scenario.device)

    return {"cmlib": lambda: timer(ours), "pil": lambda: timer(pil)}


def epoch_sides(experiment: Experiment, data: ImageData, timer: Timer, names: Sequence[str], graphs: bool) -> dict[str, Side]:
    """An epoch of plain training on the first task, as each of the named sides does it; those that are missing are left out."""
    method, size = fresh(experiment, data, timer.device), experiment.batch_size
    scenario, task = method.scenario, method.scenario.tasks[0]
    method.begin_task(task)
    makers: dict[str, Callable[[], Side]] = {
        "cmlib": lambda: engine_epoch(method, task, timer, graphs),
        "bare": lambda: bare_epoch(scenario, size, timer),
        "avalanche": lambda: avalanche_epoch(scenario, size, timer, on_device=False),
        "avalanche_device": lambda: avalanche_epoch(scenario, size, timer, on_device=True),
    }
    sides = {}
    for name in names:
        try:
            sides[name] = makers[name]()
        except (ImportError, CmlibError) as error:
            note(f"without {name}: {error}")
    return sides


def advanced(experiment: Experiment, data: ImageData, device: torch.device, tasks: int) -> tuple[Method, Task]:
    """A method at the start of its task number `tasks`, after one step on each task before it."""
    method = fresh(experiment, data, device)
    for task in method.scenario.tasks[: tasks - 1]:
        method.begin_task(task)
        method.train()
        method.step(method.make_optimizer(), *next(iter(method.batches(task, 0))), task)
        method.eval()
        method.end_task(task)
    task = method.scenario.tasks[tasks - 1]
    method.begin_task(task)
    method.train()
    return method, task


def one_step(method: Method, task: Task, timer: Timer, step: Step | None = None) -> Side:
    """A gradient step of a method on one batch, always the same; `step` is another than the engine's."""
    step = step or stepper(method, method.make_optimizer(), task, True)
    x, y = next(iter(method.batches(task, 0)))
    return lambda: timer(lambda: step(x, y))


# -- the benches ----------------------------------------------------------------------------------------------------------


def measure(bench: str, asked: Settings) -> dict[str, Any]:
    """Run one of `TABLE`; returns plain values, ready for JSON. OptionError or DataError, in one line."""
    check_heeded(bench, asked)
    device, repeats = machine.choose_device(asked.device), asked.repeats or REPEATS[bench]
    with machine.threads(asked.threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # Avalanche and the PIL transforms draw from the global generator
        timer = Timer(device)
        found = TABLE[bench](asked, timer, repeats)
    where = {"device": machine.device_name(device), "threads": asked.threads, "clock": timer.kind}
    return {"bench": bench, "repeats": repeats, **where, "versions": machine.versions(), **found}


def check_heeded(bench: str, asked: Settings) -> None:
    """OptionError for an unknown bench, and for settings that have no say in this one."""
    heeded = HEEDED.get(check_name("bench", bench, REPEATS))
    usual = Settings()
    for one in fields(asked):
        if heeded is not None and one.name not in heeded and getattr(asked, one.name) != getattr(usual, one.name):
            named = ", ".join(f"--{name.replace('_', '-')}" for name in heeded)
            raise OptionError(f"bench {bench} does not heed --{one.name.replace('_', '-')}; it heeds: {named}")


def describe_data(data: ImageData) -> dict[str, Any]:
    """The images in a result: their name, shape [C, H, W] and number."""
    return {"data": data.name, "shape": list(data.x_train.shape[1:]), "train_images": len(data.y_train)}


def bench_epoch(asked: Settings, timer: Timer, repeats: int) -> dict[str, Any]:
    """Plain training, side by side."""
    data, experiment = asked.data(), asked.experiment()
    sides = epoch_sides(experiment, data, timer, ("cmlib", "bare", "avalanche", "avalanche_device"), asked.graphs)
    note(f"epoch: {', '.join(sides)}, {repeats} rounds")
    times = interleave(sides, repeats)
    by_ours = {name: ratio(times, name, "cmlib") for name in times}
    return describe_data(data) | {"seconds_per_epoch": medians(times), "ratio_to_cmlib": by_ours}


def bench_pipeline(asked: Settings, timer: Timer, repeats: int) -> dict[str, Any]:
    """Preparing batches, side by side."""
    data, experiment = asked.data(), asked.experiment()
    scenario = fresh(experiment, data, timer.device).scenario
    note(f"pipeline: {repeats} rounds")
    times = interleave(pipelines(scenario, experiment.batch_size, timer), repeats)
    batches = -(-len(scenario.tasks[0].y) // experiment.batch_size)
    per_batch = {name: seconds / batches for name, seconds in medians(times).items()}
    return describe_data(data) | {"seconds_per_batch": per_batch, "ratio_to_cmlib": {"pil": ratio(times, "pil", "cmlib")}}


def bench_rows(measured: Callable[..., dict[str, Any]], asked: Settings, timer: Timer, repeats: int) -> dict[str, Any]:
    """A row for each method, scenario and task."""
    experiments = [asked.experiment(*pair) for pair in asked.pairs()]
    data, rows = asked.data(), []
    for experiment in experiments:
        note(f"{experiment.method} {experiment.scenario}")
        method = fresh(experiment, data, timer.device)
        for task in method.scenario.tasks:
            method.begin_task(task)
            row = {"method": experiment.method, "scenario": experiment.scenario, "task": task.index + 1}
            rows.append(row | measured(method, task, timer, repeats, asked.graphs))
            method.eval()
            method.end_task(task)
    return describe_data(data) | {"rows": rows}


def time_epochs(method: Method, task: Task, timer: Timer, repeats: int, graphs: bool) -> dict[str, Any]:
    """Median seconds of an epoch after a first one, and its gradient steps."""
    epoch = Epochs(method, task, graphs)
    seconds = [timer(epoch) for _ in range(repeats + 1)]
    return {"steps": epoch.position.steps[-1] // (repeats + 1), "seconds_per_epoch": statistics.median(seconds[1:])}


def time_steps(method: Method, task: Task, timer: Timer, repeats: int, graphs: bool) -> dict[str, Any]:
    """Median seconds of a gradient step after a first epoch; for CM also of the literal step, in turns with it."""
    epoch = Epochs(method, task, graphs)
    epoch()
    steps: dict[str, Step] = {"own": epoch.step} | (
        {"literal": LiteralStep(method, task)} if isinstance(method, CentroidsMatching) else {}
    )
    full: int | None = None
    times: Times = {name: [] for name in steps}
    for x, y in itertools.chain.from_iterable(method.batches(task, number) for number in epoch.numbers):
        full = full or len(y)
        if len(y) < full:  # the last batch of an epoch
            continue
        for name, one in steps.items():
            times[name].append(timer(partial(one, x, y)))
        if len(times["own"]) > repeats:
            break
    found = medians({name: values[1:] for name, values in times.items()})
    row = {"samples": full, "seconds_per_step": found["own"]}
    return row | ({"seconds_per_literal_step": found["literal"]} if "literal" in found else {})


def large_product(timer: Timer) -> tuple[Side, int]:
    """A product of two large float32 matrices, and its floating-point operations."""
    draws = torch.Generator().manual_seed(0)
    a, b = (torch.randn(SQUARE, SQUARE, generator=draws).to(timer.device) for _ in range(2))
    return lambda: timer(lambda: torch.mm(a, b)), 2 * SQUARE**3


def epoch_operations(experiment: Experiment, data: ImageData) -> int:
    """Floating-point operations of the first epoch: convolutions and matrix products, forward and backward."""
    method = fresh(experiment, data)
    task = method.scenario.tasks[0]
    method.begin_task(task)
    epoch = Epochs(method, task)
    with FlopCounterMode(display=False) as counter:
        epoch()
    return counter.get_total_flops()


def bench_ratios(asked: Settings, timer: Timer, repeats: int) -> dict[str, Any]:
    """The ratios of `GOALS`, each from its own small piece of work."""
    found: dict[str, Any] = {}
    seconds: dict[str, dict[str, float]] = {}
    for name, piece in PIECES.items():
        note(f"ratios: {name}, {repeats} rounds")
        values, times = piece(timer, repeats)
        found |= values
        seconds[name] = medians(times)
    goals = {name: {"goal": f"{word} {value:g}", "met": met(found[name], word, value)} for name, (word, value) in GOALS.items()}
    return {"ratios": found, "seconds": seconds, "goals": goals}


def met(value: Any, word: str, goal: float) -> bool | None:
    """Whether a ratio, or each of several, reaches its goal; None when it could not be measured."""
    if value is None:
        return None
    values = value if isinstance(value, list) else [value]
    return all(one >= goal if word == "at least" else one <= goal for one in values)


Piece = tuple[dict[str, Any], Times]


def _naive(block: str) -> tuple[Experiment, ImageData]:
    return Experiment(ARRAYS, "til", "naive"), made_up(block.split()[-1], BLOCKS[block])


def large_epochs(timer: Timer, repeats: int) -> Piece:
    """32x32 images: the engine, a bare loop and Avalanche; the first two also beside a large matrix product."""
    plain = _naive("epoch 32x32")
    product, operations = large_product(timer)
    sides = epoch_sides(*plain, timer, ("cmlib", "bare", "avalanche"), True) | {"product": product}
    times = interleave(sides, 2 * repeats)
    share = epoch_operations(*plain) / operations
    found = {f"{name}_vs_peak": share * ratio(times, "product", side) for name, side in (("step", "cmlib"), ("bare", "bare"))}
    stock = ratio(times, "avalanche", "cmlib") if "avalanche" in times else None
    return {"epoch_vs_avalanche": stock, "overhead_vs_bare_32": ratio(times, "cmlib", "bare")} | found, times


def small_epochs(timer: Timer, repeats: int) -> Piece:
    """8x8 images: the engine and a bare loop."""
    times = interleave(epoch_sides(*_naive("epoch 8x8"), timer, ("cmlib", "bare"), True), 2 * repeats)
    return {"overhead_vs_bare_8": ratio(times, "cmlib", "bare")}, times


def batches_alone(timer: Timer, repeats: int) -> Piece:
    """32x32 images: preparing batches."""
    scenario = Scenario(made_up("32x32", BLOCKS["pipeline"]), device=timer.device)
    times = interleave(pipelines(scenario, 32, timer), repeats)
    return {"pipeline_vs_pil": ratio(times, "pil", "cmlib")}, times


def cil_steps(timer: Timer, repeats: int) -> Piece:
    """32x32 images: a step of class-incremental CM at task 2, at task 5, and the literal one at task 5."""
    experiment, data = Experiment(ARRAYS, "cil", "cm"), made_up("32x32", BLOCKS["cm"])
    early, second = advanced(experiment, data, timer.device, 2)
    late, fifth = advanced(experiment, data, timer.device, 5)
    assert isinstance(late, CentroidsMatching)
    literal = LiteralStep(late, fifth)
    sides = {"task 2": one_step(early, second, timer), "task 5": one_step(late, fifth, timer)}
    times = interleave(sides | {"literal, task 5": one_step(late, fifth, timer, literal)}, repeats)
    growth, slower = ratio(times, "task 5", "task 2"), ratio(times, "literal, task 5", "task 5")
    return {"cil_step_growth": growth, "cil_step_vs_literal": slower}, times


def til_passes(timer: Timer, repeats: int) -> Piece:
    """Passes of the backbone, past model included, in a step of task-incremental CM at each task from the second on."""
    experiment, data = Experiment(ARRAYS, "til", "cm"), made_up("8x8", BLOCKS["cm"])
    counts = []
    for number in range(2, experiment.n_tasks + 1):
        method, task = advanced(experiment, data, timer.device, number)
        x, y = next(iter(method.batches(task, 0)))
        counts.append(sum(backbone_passes(method, partial(method.step, method.make_optimizer(), x, y, task)).values()))
    return {"til_passes": counts}, {}


PIECES: dict[str, Callable[[Timer, int], Piece]] = {
    "epoch, 32x32": large_epochs,
    "epoch, 8x8": small_epochs,
    "pipeline": batches_alone,
    "CM in CIL": cil_steps,
    "CM in TIL": til_passes,
}
TABLE: dict[str, Callable[[Settings, Timer, int], dict[str, Any]]] = {
    "step": partial(bench_rows, time_steps),
    "epoch": bench_epoch,
    "pipeline": bench_pipeline,
    "methods": partial(bench_rows, time_epochs),
    "ratios": bench_ratios,
}


# -- in words -------------------------------------------------------------------------------------------------------------


def in_words(result: Mapping[str, Any]) -> str:
    """A result as text for the terminal."""
    head = f"{result['bench']}: {result['device']}, {result['threads']} thread(s), {result['clock']}"
    if "data" in result:
        head += f"; {result['data']} {'x'.join(map(str, result['shape']))}"
    if "rows" in result:
        return f"{head}\n{_task_table(result)}"
    if result["bench"] == "ratios":
        header: tuple[str, ...] = ("ratio", "measured", "goal", "met")
        lines = [(name, _number(value), *_goal(result["goals"].get(name))) for name, value in result["ratios"].items()]
        return f"{head}\n{render.text(header, lines)}"
    key = "seconds_per_epoch" if result["bench"] == "epoch" else "seconds_per_batch"
    others = result["ratio_to_cmlib"]
    sides = [(name, _number(value), _number(others.get(name, 1.0))) for name, value in result[key].items()]
    return f"{head}\n{render.text(('side', key.replace('_', ' '), 'ratio to cmlib'), sides)}"


def _task_table(result: Mapping[str, Any]) -> str:
    """Methods down, tasks across."""
    key = WORTH[result["bench"]]
    tasks = sorted({row["task"] for row in result["rows"]})
    lines: dict[tuple[str, str, str], dict[int, str]] = {}
    for row in result["rows"]:
        for name, what in ((key, ""), ("steps", "steps"), ("seconds_per_literal_step", "literal step")):
            if name in row:
                text = str(row[name]) if name == "steps" else _number(row[name])
                lines.setdefault((row["scenario"], METHODS[row["method"]].title, what), {})[row["task"]] = text
    rows = [(*start, *(cells.get(task, "-") for task in tasks)) for start, cells in lines.items()]
    return render.text(("scenario", "method", key.replace("_", " "), *(f"task {task}" for task in tasks)), rows)


def _goal(goal: Mapping[str, Any] | None) -> tuple[str, str]:
    if goal is None:
        return "-", "-"
    return goal["goal"], {True: "yes", False: "no", None: "not measured"}[goal["met"]]


def _number(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "-" if value is None else f"{value:.4g}"


def main(bench: str, as_json: bool = False, **settings: Any) -> None:
    """Measure and print: one JSON object, or text. settings: those of `Settings`."""
    result = measure(bench, Settings(**settings))
    print(json.dumps(result, allow_nan=False) if as_json else in_words(result))
