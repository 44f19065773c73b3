"""The `cmlib` command: run, sweep, chapters, features, methods, datasets, doctor, bench, report, table, claims, errata, audit,
export, publish, pack, unpack, course, grade.

Bad input ends with exit code 2 and one line on stderr; an interruption with exit code 1 and one line on how to go on.
`--format json`, or `--json` for short, prints one object on stdout and nothing else.
"""

from __future__ import annotations

import codecs
import errno
import inspect
import io
import json
import math
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from cmlib.errors import CmlibError, OptionError, check_name
from cmlib.signals import handling

LONGEST = 1000  # letters of a message: what was typed may be of any length
ANEW = "the same command begins anew"
GOES_ON = {  # after an interruption, by command; the others have kept nothing
    "features": "parts that are whole are kept, the same command continues",
    "run": "the training had not begun; the same command begins it",
    "sweep": "what is finished is kept, the same command continues",
    "report": "what is finished is kept, the same command continues",
    "figure": "a run under way is kept, the same command continues",
    **dict.fromkeys(("chapters", "publish", "pack", "unpack", "course", "tables"), ANEW),
}


class Interrupted(Exception):
    """Ctrl-C or SIGTERM, with what was kept and how to go on."""


class Asked:
    """Whether Ctrl-C or SIGTERM came: a library that is just being imported may turn them into any other error."""

    to_end = False


class Commands(TyperGroup):
    """All commands. A KeyboardInterrupt is caught here: the parser around it would end in silence."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for; Interrupted after Ctrl-C."""
        try:
            return super().invoke(ctx)
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, Interrupted) or not (Asked.to_end or isinstance(error, KeyboardInterrupt)):
                raise
            what = GOES_ON.get(ctx.invoked_subcommand, f"nothing was kept, {ANEW}")
            raise Interrupted(f"interrupted; {what}") from None


class Command(TyperCommand):
    """A command that takes an option once, no empty text, nothing that cannot be printed, and no option as a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after a command; OptionError for what no command can mean."""
        order = self.make_parser(ctx).parse_args(list(args))[2]
        for param in order:
            if order.count(param) > 1 and not getattr(param, "multiple", False):
                raise OptionError(f"{_name_of(param)} is given twice")
        rest = super().parse_args(ctx, args)
        for param in self.params:
            given = ctx.params.get(param.name)
            for text in given if isinstance(given, list | tuple) else [given]:
                if isinstance(text, str):
                    _check_text(param, text)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command, with the reader's own methods, unless the folder with the data is none."""
        root = ctx.params.get("data_root")
        if root is not None and not Path(root).is_dir():
            raise OptionError(f"--data-root {root} is no folder; name the one that holds the data sets, as in DIR/cifar10/")
        if not self.hidden:  # those make the book's pages
            from cmlib.methods import own

            own.load()
        return super().invoke(ctx)


def _name_of(param: Any) -> str:
    """`--seed` of an option, `NUMBER` of an argument."""
    return str(param.opts[0] if param.param_type_name == "option" else param.metavar or param.name)


def _check_text(param: Any, text: str) -> None:
    name = _name_of(param)
    if not text.strip():
        raise OptionError(f"{name} is empty; expected: {param.help}")
    if text.startswith("--"):
        raise OptionError(f"{name} needs a value before {text}; expected: {param.help}")
    if not text.isprintable():
        raise OptionError(f"{name} {text!r}: line breaks and other control characters are not allowed")


app = typer.Typer(cls=Commands, no_args_is_help=True)
DataRoot = Annotated[str | None, typer.Option(help="Folder with the data sets (or set CMLIB_DATA).")]
OutStore = Annotated[str | None, typer.Option("--store", help="Folder for results (default ./runs, or CMLIB_STORE).")]
InStore = Annotated[str | None, typer.Option("--store", help="This store alone (default: ./runs and the committed runs).")]
AsJson = Annotated[bool | None, typer.Option("--json", help="Short for --format json: one JSON object.")]


def chosen(form: str | None, as_json: bool | None, allowed: Sequence[str]) -> dict[str, str]:
    """The format that --format or --json asks for, if any does; OptionError for another, or for two."""
    if as_json and form not in (None, "json"):
        raise OptionError(f"--json and --format {form} exclude each other: give one of them")
    form = "json" if as_json else form
    return {} if form is None else {"form": check_name("format", form, allowed)}


def command(*forms: str, words: str = "", hidden: bool = False) -> Callable[[Any], Any]:
    """Make a function a command with --format (what it prints: one of `forms`, of which `words` is the help) and --json.

    The function gets the format as `form`, if one is asked for.
    """
    forms = forms or ("text", "json")
    words = words or f"{', '.join(forms[:-1])} or {forms[-1]} (default: {forms[0]})."

    def register(function: Any) -> Any:
        def carried_out(form: str | None, as_json: bool | None, **settings: Any) -> Any:
            return function(**settings, **chosen(form, as_json, forms))

        made: Any = wraps(function)(carried_out)
        shown = dict(inspect.signature(function, eval_str=True).parameters)
        for name, kind in (("form", Annotated[str | None, typer.Option("--format", help=words)]), ("as_json", AsJson)):
            shown[name] = inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=kind)
        made.__signature__ = inspect.Signature(list(shown.values()))
        return app.command(cls=Command, hidden=hidden)(made)

    return register


def spoken(function: Any) -> Any:
    """Let a function that prints text alone have a form: its JSON object holds the lines."""

    @wraps(function)
    def carried_out(form: str = "text", **settings: Any) -> Any:
        with redirect_stdout(io.StringIO()) if form == "json" else nullcontext() as said:
            code = function(**settings)
        if said:
            print(json.dumps({"lines": said.getvalue().splitlines()}))
        return code

    return carried_out


def say(text: str, form: str, **content: Any) -> None:
    """Print a text, unless it is empty, or (json) the content as one object."""
    if form == "json" or text:
        print(json.dumps(content, allow_nan=False) if form == "json" else text)


@app.callback(invoke_without_command=True)
def start(version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False) -> None:
    """Centroids Matching: runs, tables, book."""
    if version:
        from cmlib import __version__

        print(f"cmlib {__version__}")
        raise typer.Exit


def parse_settings(settings: list[str]) -> dict[str, str]:
    """`["lam=0.1", ...]` -> `{"lam": "0.1", ...}`; OptionError for anything else."""
    pairs: dict[str, str] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise OptionError(f"--set {text}: expected name=value, for example --set lam=0.1")
        if name.strip() in pairs:
            raise OptionError(f"--set {name.strip()} is given twice")
        pairs[name.strip()] = value.strip()
    return pairs


@command()
def run(
    dataset: Annotated[
        str, typer.Option(help="digits, cifar10, cifar100, tiny-imagenet, a folder of images or a file of vectors.")
    ] = "digits",
    scenario: Annotated[str, typer.Option(help="til (task known at test time) or cil.")] = "til",
    method: Annotated[str, typer.Option(help="A method of `cmlib methods`, or a file with one of your own.")] = "cm",
    seed: Annotated[str, typer.Option(help="A whole number; 0: classes in natural order.")] = "0",
    profile: Annotated[str | None, typer.Option(help="smoke, digits, mini or paper.")] = None,
    preset: Annotated[str, typer.Option(help="default; text: the paper's to the letter; july22, head: its code.")] = "default",
    set_: Annotated[list[str] | None, typer.Option("--set", help="An option of the experiment, name=value; repeatable.")] = None,
    data_root: DataRoot = None,
    store: OutStore = None,
    engine: Annotated[str, typer.Option(help="cmlib, or avalanche: the same run through the Avalanche library.")] = "cmlib",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda.")] = "auto",
    graphs: Annotated[bool, typer.Option(help="On CUDA: replay recorded steps.")] = True,
    each_epoch: Annotated[bool, typer.Option("--each-epoch", help="Measure after each epoch as well.")] = False,
    form: str = "text",
) -> None:
    """Make one run, load it when the store has it, continue it when it was interrupted."""
    from cmlib import engine as engines
    from cmlib import store as stores
    from cmlib.experiment import FIELDS, Experiment

    settings = parse_settings(set_ or [])
    for name in (*FIELDS, "preset"):
        if name in settings:
            raise OptionError(f"--set {name}=...: this is an option of its own, --{name}")
    experiment = Experiment(dataset, scenario, method, seed, profile, engine, preset, **settings)
    folder = Path(store) if store else stores.default_folder()
    progress = False if form == "json" else None
    images = engines.load_data(experiment, None, data_root)
    try:
        with redirect_stdout(sys.stderr) if form == "json" else nullcontext():
            made = engines.run(experiment, images, None, folder, device, progress, graphs, each_epoch)
    except KeyboardInterrupt:
        raise Interrupted(_standing(experiment, images, folder, each_epoch)) from None
    say(_describe(made), form, **made.summary())


def _standing(experiment: Any, images: Any, folder: Path, each_epoch: bool) -> str:
    """Where an interrupted run stands, and how to go on."""
    from cmlib.checkpoint import EPOCHS, Checkpoint
    from cmlib.store import Store

    shelf = Store(folder)
    stored = shelf.load(experiment, images.digest)
    if stored is not None and (stored.each_epoch or not each_epoch):
        return "interrupted after the run was stored; the same command prints it"
    position = Checkpoint.of(shelf, experiment, images, EPOCHS if each_epoch else "").position()
    if position is None:
        return f"interrupted in the first epoch; nothing was kept, {ANEW}"
    done = f"task {position.task + 1}, epoch {position.epoch} of {experiment.epochs}"
    return f"interrupted after {done}; the same command continues"


def _describe(made: Any) -> str:
    lines = [made.id]
    if made.status != "finished":
        lines.append(made.status)
    tasks = ", ".join(str(j + 1) for j in range(len(made.R)))
    lines.append(f"accuracy in percent; a row: after that task, a column: on task {tasks}")
    for i, row in enumerate(made.R):
        cells = "  ".join("     -" if value is None else f"{value:6.2f}" for value in row)
        lines.append(f"after task {i + 1}  {cells}")
    shown = {name: getattr(made, name) for name in ("accuracy", "bwt", "bwt_final")}
    said = (f"{name} {'-' if math.isnan(value) else f'{value:.2f}'}" for name, value in shown.items())  # - was not measured
    lines.append(f"{'  '.join(said)}  (percent)")
    seconds = sum(sum(task) for task in made.seconds_per_epoch)
    lines.append(f"{seconds:.1f} s, {sum(made.gradient_steps)} gradient steps, {made.retained_scalars} scalars retained")
    lines += [f"classes of task {i + 1}: {', '.join(names)}" for i, names in enumerate(made.classes)]
    return "\n".join(lines + [f"note: {note}" for note in made.notes])


@command()
def features(
    out: Annotated[str, typer.Argument(metavar="FILE", help="The .npz file to write.")],
    dataset: Annotated[str, typer.Option(help="cifar10, cifar100, tiny-imagenet, or a folder of images.")] = "cifar100",
    size: Annotated[int, typer.Option(min=32, help="Pixels a side that the network is given.")] = 96,
    train: Annotated[int | None, typer.Option(min=2, help="Only so many training images a class.")] = None,
    test: Annotated[int | None, typer.Option(min=1, help="Only so many test images a class.")] = None,
    data_root: DataRoot = None,
    form: str = "text",
) -> None:
    """Write feature vectors of a pre-trained network, a data set for `cmlib run --dataset FILE --set backbone=mlp`."""
    from cmlib import datasets
    from cmlib import features as extraction

    extraction.check_target(out)
    network = extraction.efficientnet_lite0()
    data = datasets.load(dataset, data_root)
    written = extraction.write_features(data, out, network, size, train, test)
    shown = datasets.load(written)
    counts = {"train": len(shown.y_train), "test": len(shown.y_test), "features": shown.x_train.shape[1]}
    text = "{train:,} training and {test:,} test vectors of {features:,} features".format(**counts)
    say(f"{written}: {text}, digest {shown.digest}", form, file=str(written), digest=shown.digest, **counts)


@command()
def methods(form: str = "text") -> None:
    """List the methods: scenarios, source, options with their defaults; your own too (files in ./cmlib_methods)."""
    from cmlib.experiment import COMMON
    from cmlib.methods import METHODS

    def options(table: dict[str, Any]) -> dict[str, Any]:
        return {name: {"default": o.default, "allowed": o.allowed(), "help": o.help} for name, o in table.items()}

    def told(table: dict[str, Any]) -> list[str]:
        return [f"    {name}={str(o.default).lower():<16} {o.help} ({o.allowed()})" for name, o in table.items()]

    lines, listed = [], {}
    for name, m in METHODS.items():
        lines += [f"{name:<11} {', '.join(m.scenarios):<9} {m.summary} [{m.source}]", *told(m.options)]
        for scenario, changed in m.defaults.items():
            lines.append(f"    in {scenario}: " + ", ".join(f"{key}={value}" for key, value in changed.items()))
        facts = {"title": m.title, "summary": m.summary, "source": m.source, "scenarios": m.scenarios}
        listed[name] = facts | {"options": options(m.options), "defaults": m.defaults}
    say("\n".join([*lines, "every method:", *told(COMMON)]), form, methods=listed, common=options(COMMON))


@command()
def datasets(data_root: DataRoot = None, form: str = "text") -> None:
    """List the data sets and where each was found."""
    from cmlib import datasets as data

    rows = data.describe(data_root)
    text = "\n".join("  ".join(f"{key}: {value}" for key, value in row.items()) for row in rows)
    say(text, form, datasets=rows)


@command()
@spoken
def doctor(
    data_root: DataRoot = None,
    store: OutStore = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda.")] = "auto",
    seconds: Annotated[float, typer.Option(min=0, help="For the comparison of a GPU with the CPU, method by method.")] = 60.0,
) -> int:
    """Say whether this machine is fit: versions, device, data, store, a short training; on a GPU whether it computes rightly.

    Exit code 1 when it does not.
    """
    import torch

    from cmlib import datasets as data
    from cmlib import engine, machine
    from cmlib import store as stores
    from cmlib.experiment import Experiment

    target = machine.choose_device(device)
    folder = Path(store) if store else stores.default_folder()
    stores.Store(folder).check_writable()
    for name, version in machine.versions().items():
        print(f"ok    {name} {version}")
    print(f"ok    device {machine.device_name(target)}, {os.cpu_count()} cores, {torch.get_num_threads()} threads")
    cores = os.cpu_count() or 1
    if torch.get_num_threads() == 1 and cores > 2:
        cause = "OMP_NUM_THREADS=1 is set; unset it or " if os.environ.get("OMP_NUM_THREADS") == "1" else ""
        side = f"more cores serve runs side by side, as in cmlib sweep table1 --jobs {cores}"
        print(f"warn  one thread on {cores} cores: {cause}set OMP_NUM_THREADS=2, the most that a run takes; {side}")
    for row in data.describe(data_root):
        found = row["where"] != "not found"
        print(f"{'ok  ' if found else 'none'}  data set {row['name']}: {row['where']}")
    print(f"ok    store {folder} can be written")
    made = engine.run(Experiment(profile="smoke", method="naive"), device=device, progress=False)
    speed = made.data["train_rows_used"] / sum(sum(task) for task in made.seconds_per_epoch)
    print(f"ok    training: {speed:.0f} digits images a second")
    return _compare_devices(target, seconds) if target.type != "cpu" else 0


def _compare_devices(device: Any, seconds: float) -> int:
    """A line for each method on a device and on the CPU; 1 when one differs."""
    from cmlib.reproduction import selfcheck

    found = []
    for good, text in selfcheck.check(device, seconds):
        found.append(good)
        print(f"{'ok  ' if good else 'FAIL'}  {text}", flush=True)
    return 0 if all(found) else 1


@command()
def bench(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="step, epoch, pipeline, methods or ratios.")],
    dataset: Annotated[str | None, typer.Option(help="A data set or a folder; default: made-up images.")] = None,
    images: Annotated[str | None, typer.Option(help="Size of made-up images: 32x32 or 8x8.")] = None,
    methods: Annotated[str | None, typer.Option(help="Methods, separated by commas; default: all.")] = None,
    scenario: Annotated[str, typer.Option(help="til, cil or both.")] = "both",
    profile: Annotated[str | None, typer.Option(help="smoke, digits, mini or paper.")] = None,
    train_per_class: Annotated[int | None, typer.Option(min=2, max=10_000, help="Training images a class.")] = None,
    batch_size: Annotated[int, typer.Option(min=2, max=100_000, help="Samples a batch.")] = 32,
    repeats: Annotated[int | None, typer.Option(help="Rounds, or timed epochs or steps.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 1,
    graphs: Annotated[bool, typer.Option(help="On CUDA, replay recorded steps.")] = True,
    data_root: DataRoot = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda.")] = "auto",
    form: str = "text",
) -> None:
    """Measure how long steps, epochs and batches take, beside Avalanche, a bare loop and a literal CM step."""
    from cmlib.reproduction import bench as benches

    names = tuple(name.strip() for name in methods.split(",")) if methods else ()
    benches.main(
        what, form == "json", dataset=dataset, images=images, data_root=data_root, methods=names, scenario=scenario,
        profile=profile, train_per_class=train_per_class, batch_size=batch_size, repeats=repeats, device=device,
        threads=threads, graphs=graphs,
    )  # fmt: skip


@command()
def report(
    store: OutStore = None,
    seeds: Annotated[str, typer.Option(help="Seeds of the digits table, as in 0-4 or 0,2.")] = "0",
    profile: Annotated[str, typer.Option(help="Profile of the digits table: digits or smoke.")] = "digits",
    form: str = "text",
) -> None:
    """Print two tables: digits, measured on this machine; CIFAR-10, the paper's values beside the committed runs."""
    from cmlib import store as stores
    from cmlib.reproduction import report as reports
    from cmlib.reproduction import sweep as sweeps

    shelf = stores.Store(store or stores.default_folder())
    digits = reports.digits_rows(shelf, sweeps.parse_seeds(seeds), check_name("profile", profile, ("digits", "smoke")))
    cifar10 = reports.cifar10_rows([shelf, stores.committed()])
    say(f"{reports.digits_table(digits)}\n\n{reports.cifar10_table(cifar10)}", form, digits=digits, cifar10=cifar10)


@command("text", "md", "csv", "latex", "json")
def table(
    number: Annotated[str, typer.Argument(metavar="NUMBER", help="1 to 6, as in the paper, or fair: all tuned alike.")],
    profile: Annotated[str, typer.Option(help="smoke, digits, mini or paper.")] = "digits",
    form: str = "text",
    store: InStore = None,
) -> None:
    """Print a table of the paper, ours beside its values: mean, deviation, number of runs, verdict."""
    from cmlib.reproduction import fair
    from cmlib.reproduction import tables as paper_tables

    if number == fair.NAME:
        print(fair.show(fair.table(profile, paper_tables.stores_of(store)), form))
        return
    print(paper_tables.show(paper_tables.table(number, profile, paper_tables.stores_of(store)), form))


@command("files", "json", words="files, or json: print the numbers and write nothing (default: files).")
def figure(
    number: Annotated[str, typer.Argument(metavar="NUMBER", help="1, 2a, 2b, 3 or 4, as in the paper.")],
    profile: Annotated[str, typer.Option(help="smoke, digits, mini or paper.")] = "digits",
    out: Annotated[str, typer.Option(help="Folder for the picture (.svg, .png) and its numbers (.csv).")] = "figures",
    form: str = "files",
    store: InStore = None,
    record: Annotated[bool, typer.Option("--record", help="Figures 3, 4: make the run they show when it is missing.")] = False,
) -> None:
    """Draw a figure of the paper from stored runs; its paths go to stdout, what to know about it to stderr."""
    from cmlib import store as stores
    from cmlib.reproduction import figures
    from cmlib.reproduction import tables as paper_tables

    check_folder("--out", out)
    if record and store:
        stores.Store(store).check_writable()
    printed, notes = figures.main(number, profile, out, paper_tables.stores_of(store), form, record)
    print(printed)
    if notes:
        print(notes, file=sys.stderr)


@command("text", "md", "json")
def claims(
    profile: Annotated[str, typer.Option(help="smoke, digits, mini or paper.")] = "digits",
    form: str = "text",
    store: InStore = None,
) -> None:
    """Print the paper's empirical sentences, each with a test that decides it: on the paper's own numbers, and on the runs."""
    from cmlib.reproduction import claims as sentences

    print(sentences.show(profile, form, store))


@command("text", "md", "json")
def errata(
    profile: Annotated[str, typer.Option(help="smoke, digits, mini or paper.")] = "digits",
    form: str = "text",
    store: InStore = None,
) -> None:
    """Print where the paper and its released code part, what is done here, and what the other reading changes: measured."""
    from cmlib.reproduction import errata as points

    print(points.show(profile, form, store))


@command()
@spoken
def sweep(
    grids: Annotated[list[str] | None, typer.Argument(metavar="GRID...", help="table1 to table6, figure2a, fair, ...")] = None,
    profile: Annotated[str, typer.Option(help="smoke, digits, mini or paper.")] = "digits",
    seeds: Annotated[str, typer.Option(help="As in 0-4 or 0,2.")] = "0-4",
    jobs: Annotated[int | None, typer.Option(help="Runs side by side (default: one a core).")] = None,
    backend: Annotated[str, typer.Option(help="loky: this machine; dask, ray: a cluster, when installed.")] = "loky",
    budget: Annotated[float | None, typer.Option(help="Seconds after which everything stops, to be continued later.")] = None,
    store: OutStore = None,
    data_root: DataRoot = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda.")] = "auto",
    only: Annotated[str | None, typer.Option("--datasets", help="Only runs on these data sets, by comma.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs and the hours they may take.")] = False,
    order: Annotated[str, typer.Option(help="value: of each seed the cheapest first; grid: as the table lists them.")] = "value",
    status: Annotated[bool, typer.Option("--status", help="Only say how far the sweeps on the store are.")] = False,
) -> int:
    """Make all runs of one or more tables that are missing, several side by side; exit code 1 when one failed.

    To leave the machine to other work: nice -n 19 cmlib sweep ...
    """
    from cmlib.reproduction import fair
    from cmlib.reproduction import sweep as sweeps

    if fair.NAME in (grids or []) and not status:
        if grids != [fair.NAME] or seeds != "0-4" or only:
            raise OptionError(f"{fair.NAME} is made alone, with the seeds of its file: cmlib sweep fair --profile digits")
        return fair.main(profile, jobs, backend, budget, store, data_root, dry_run, device)
    return sweeps.main(
        grids or [], profile, seeds, jobs, backend, budget, store, data_root, dry_run, order, status, only, device
    )  # fmt: skip


@command()
def chapters(
    profile: Annotated[str | None, typer.Option(help="smoke, digits, mini or paper (default: as each chapter sets it).")] = None,
    only: Annotated[str | None, typer.Option(help="Chapters by number, as in 4,5 (default: all).")] = None,
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="A parameter of the chapters, name=value; repeatable.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Chapters side by side (default: one a core).")] = None,
    out: Annotated[str, typer.Option(help="Folder for the executed notebooks and the report.")] = "_build/executed",
    recompute: Annotated[bool, typer.Option("--recompute", help="Make stored runs again: -p recompute=true.")] = False,
    form: str = "text",
) -> int:
    """Run chapters of the book with other parameters, through papermill; exit code 1 when one failed."""
    from cmlib.teaching import chapters as book

    if form == "text":
        return book.main(profile, only, parameter or [], jobs, out, recompute)
    with redirect_stdout(sys.stderr):
        code = book.main(profile, only, parameter or [], jobs, out, recompute)
    print(json.dumps(json.loads((Path(out) / book.REPORT[0]).read_text(encoding="utf-8"))))
    return code


@command()
def course(
    out: Annotated[str, typer.Option(help="Folder for the course; one that holds a course is written anew.")] = "_build/course",
    form: str = "text",
) -> None:
    """Write what a teacher hands out: students' chapters without solutions, slides, the teachers' pages, one archive."""
    from cmlib.teaching import course as courses

    check_folder("--out", out)
    made = courses.make(out)
    say(f"{made['chapters']} chapters and {made['decks']} decks in {made['folder']}; for rooms: {made['archive']}", form, **made)


@command("text", "md", "csv", "json")
def grade(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder with the students' result files, unpacked.")],
    only: Annotated[str | None, typer.Option("--chapters", help="Only these count, as in 1,3,4 (default: those begun).")] = None,
    form: str = "text",
) -> int:
    """Tabulate the result files that students' checks wrote; exit code 1 when a file is damaged or was changed."""
    from cmlib.teaching import grade as grading

    report = grading.collect(folder, grading.numbers(only))
    print(grading.show(report, form))
    return int(bool(report.refused))


@command()
def publish(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A store, or one result file.")] = "runs",
    target: Annotated[str, typer.Option(help="Where the committed results lie.")] = "book/results",
    replace: Annotated[bool, typer.Option("--replace", help="Also where another outcome is committed.")] = False,
    form: str = "text",
) -> None:
    """Validate results and copy them to the committed ones; a committed run with another outcome stays."""
    from cmlib.reproduction import publish as publishing

    check_results(target)
    written, kept = publishing.publish(Path(source), Path(target), replace)
    said = "\n".join(publishing.lines(written, kept))
    say(said, form, published=[str(path) for path in written], kept=[str(path) for path in kept])


@command()
def pack(
    store: Annotated[str, typer.Argument(metavar="STORE", help="The store, as a sweep filled it.")] = "runs",
    out: Annotated[str, typer.Option(help="The archive to write.")] = "runs.tar.gz",
    results: Annotated[str, typer.Option(help="Runs to leave out: those that are published.")] = "book/results",
    notes: Annotated[str | None, typer.Option(help="A text file for the summary, as a log.")] = None,
    limit: Annotated[float, typer.Option(help="MiB of the archive at most.")] = 15.0,
    form: str = "text",
) -> None:
    """Put new runs, checkpoints of unfinished ones and a summary into one archive, to bring them home from another machine."""
    from cmlib.reproduction import pack as packing

    said = Path(notes).read_text(encoding="utf-8", errors="replace") if notes else ""
    text = packing.pack(Path(store), Path(out), Path(results), said, limit)
    say(text, form, archive=out, summary=text)


@command()
def unpack(
    archive: Annotated[str, typer.Argument(metavar="FILE", help="An archive of `cmlib pack`.")],
    store: OutStore = None,
    target: Annotated[str, typer.Option(help="Where the committed results lie.")] = "book/results",
    form: str = "text",
) -> None:
    """Put the runs of an archive, validated, into the committed results, and its checkpoints into the store."""
    from cmlib import store as stores
    from cmlib.reproduction import pack as packing

    check_results(target)
    lines = packing.unpack(Path(archive), Path(store) if store else stores.default_folder(), Path(target))
    say("\n".join(lines), form, lines=lines)


@command()
def audit(
    store: Annotated[str, typer.Option(help="Folder with results.")] = "book/results",
    book: Annotated[str, typer.Option(help="Folder with the book's pages.")] = "book",
    form: str = "text",
) -> int:
    """Check that every number of the book comes from a run that fits its own description; exit code 1 when one does not."""
    from cmlib.teaching import traced

    return traced.main(store, book, form == "json")


@command("csv", "parquet", "json", words="csv, parquet or json (default: by the end of --out, else csv).")
def export(
    form: str | None = None,
    out: Annotated[str | None, typer.Option(help="The file to write, .csv, .parquet or .json; without it stdout.")] = None,
    store: Annotated[str | None, typer.Option(help="Folder with results (default ./runs, or CMLIB_STORE).")] = None,
    cells: Annotated[bool, typer.Option("--cells", help="One row a measured accuracy instead of one a run.")] = False,
) -> None:
    """Write all runs of a store as one tidy table: options, metrics (forgetting and average incremental accuracy too), cost."""
    from cmlib import store as stores
    from cmlib.reproduction import export as exports

    print(exports.export(store or stores.default_folder(), out, form, cells), end="")


@command(hidden=True)
def tables(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder with the book's pages.")] = "book",
    form: str = "text",
) -> None:
    """Fill the tables in the book's pages from the committed runs."""
    from cmlib.teaching import filled

    if not Path(folder).is_dir():
        raise OptionError(f"there is no folder {folder} with the book's pages")
    pages = [str(page) for page in filled.refresh_tables(Path(folder))]
    say("\n".join(pages), form, pages=pages)


@command(hidden=True)
def picture(
    target: Annotated[str, typer.Argument(metavar="FILE", help="The .png to write.")] = "book/_static/readme.png",
    form: str = "text",
) -> None:
    """Draw the README's picture from the committed runs."""
    from cmlib.teaching import filled

    if Path(target).is_dir() or Path(target).suffix != ".png":
        raise OptionError(f"{target}: expected the name of a .png file")
    drawn = str(filled.readme_picture(Path(target)))
    say(drawn, form, picture=drawn)


# -- around every command ---------------------------------------------------------------------------------------------------


def check_results(target: str) -> None:
    """OptionError when there are no committed results to put runs into."""
    if not Path(target).is_dir():
        raise OptionError(f"--target {target} is no folder; run this in a checkout of the book, or name its results")


def check_folder(name: str, folder: str) -> None:
    """OptionError when a folder to be written can be none, before any work is done for it."""
    path = Path(folder).absolute()
    standing = next(one for one in (path, *path.parents) if one.exists())
    if not standing.is_dir():
        raise OptionError(f"{name} {folder}: {'this' if standing == path else standing} is a file, not a folder")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """What a console cannot show as JSON writes it: then an object stays one."""
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _fit_console() -> None:
    """Let nothing that is printed fail on a console that is not UTF-8."""
    codecs.register_error("cmlib", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="cmlib")


def _stoppable() -> AbstractContextManager[None]:
    """SIGTERM ends a command as Ctrl-C does, which stays ignored where it was."""

    def end(*_: Any) -> None:
        Asked.to_end = True
        raise KeyboardInterrupt

    Asked.to_end = False
    heard = [signal.SIGINT] if signal.getsignal(signal.SIGINT) is signal.default_int_handler else []
    return handling(dict.fromkeys([signal.SIGTERM, *heard], end))


def _carry_out(arguments: list[str] | None) -> int:
    """Do what the arguments say; the exit code."""
    with _stoppable():
        try:
            result = app(arguments, prog_name="cmlib", standalone_mode=False)
            sys.stdout.flush()
            return result if isinstance(result, int) else 0
        except OSError as error:
            if error.filename is None and error.errno in (errno.ENOSPC, errno.EPIPE, errno.EIO):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or what is left fails again at the end
                raise CmlibError(f"cannot write the output: {error.strerror}") from None
            raise


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code: 0, 1 for an interruption, 2 for bad input."""
    _fit_console()
    code = 2
    try:
        return _carry_out(arguments)
    except CmlibError as error:
        message = str(error)
    except (Interrupted, KeyboardInterrupt, typer.Abort) as error:
        code, message = 1, str(error) or f"interrupted; {ANEW}"
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or re.search("allocate|out of memory", str(error))):
            raise
        message = f"not enough memory for this: {_one_line(str(error) or 'MemoryError')[:160]}; take smaller sizes"
    except Exception as error:
        if not hasattr(error, "format_message"):  # what the parser of the command line raises
            raise
        message = error.format_message()
    if message:  # empty when the help was asked for by giving no arguments
        print("cmlib: " + _one_line(message), file=sys.stderr)
    return code


def _one_line(message: str) -> str:
    """A message as one line that can be printed, however long or strange what was typed."""
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(message.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"


if __name__ == "__main__":
    sys.exit(main())
