"""The `cmlib` command: run, sweep, chapters, methods, datasets, doctor, bench, report, table, claims, errata, audit, export,
publish.

Bad input ends with exit code 2 and one line on stderr. `--json` prints one object on stdout and nothing else.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cmlib.errors import CmlibError, OptionError

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Centroids Matching: runs, tables, book.")

DataRoot = Annotated[str | None, typer.Option(help="Folder with the data sets (or set CMLIB_DATA).")]


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


@app.command()
def run(
    dataset: Annotated[str, typer.Option(help="digits, cifar10, cifar100, tiny-imagenet, or a folder of images.")] = "digits",
    scenario: Annotated[str, typer.Option(help="til (task known at test time) or cil.")] = "til",
    method: Annotated[str, typer.Option(help="A method of `cmlib methods`.")] = "cm",
    seed: Annotated[str, typer.Option(help="A whole number; 0: classes in natural order.")] = "0",
    profile: Annotated[str | None, typer.Option(help="smoke, digits, mini or paper.")] = None,
    preset: Annotated[str, typer.Option(help="default; text: the paper's to the letter; july22, head: its code.")] = "default",
    set_: Annotated[list[str] | None, typer.Option("--set", help="An option of the experiment, name=value; repeatable.")] = None,
    data_root: DataRoot = None,
    store: Annotated[str | None, typer.Option(help="Folder for results (default ./runs, or CMLIB_STORE).")] = None,
    engine: Annotated[str, typer.Option(help="cmlib, or avalanche: the same run through the Avalanche library.")] = "cmlib",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda.")] = "auto",
    graphs: Annotated[bool, typer.Option(help="On CUDA: replay recorded steps.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
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
    progress = False if as_json else None
    made = engines.run(experiment, None, data_root, folder, device, progress, graphs)
    if as_json:
        print(json.dumps(made.summary(), allow_nan=False))
        return
    print(_describe(made))


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


@app.command()
def methods(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """List the methods: scenarios, source, options with their defaults."""
    from cmlib.experiment import COMMON
    from cmlib.methods import METHODS

    def options(table: dict[str, Any]) -> dict[str, Any]:
        return {name: {"default": o.default, "allowed": o.allowed(), "help": o.help} for name, o in table.items()}

    if as_json:
        listed = {
            name: {"title": m.title, "summary": m.summary, "source": m.source, "scenarios": m.scenarios}
            | {"options": options(m.options), "defaults": m.defaults}
            for name, m in METHODS.items()
        }
        print(json.dumps({"methods": listed, "common": options(COMMON)}))
        return
    for name, m in METHODS.items():
        print(f"{name:<11} {', '.join(m.scenarios):<9} {m.summary} [{m.source}]")
        for option, o in m.options.items():
            print(f"    {option}={str(o.default).lower():<16} {o.help} ({o.allowed()})")
        for scenario, changed in m.defaults.items():
            print(f"    in {scenario}: " + ", ".join(f"{key}={value}" for key, value in changed.items()))
    print("every method:")
    for option, o in COMMON.items():
        print(f"    {option}={str(o.default).lower():<16} {o.help} ({o.allowed()})")


@app.command()
def datasets(data_root: DataRoot = None, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """List the data sets and where each was found."""
    from cmlib import datasets as data

    rows = data.describe(data_root)
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print("  ".join(f"{key}: {value}" for key, value in row.items()))


@app.command()
def doctor(data_root: DataRoot = None, store: Annotated[str | None, typer.Option()] = None) -> None:
    """Say whether this machine is fit: versions, device, data, store, and a short training."""
    import torch

    from cmlib import datasets as data
    from cmlib import engine
    from cmlib import store as stores
    from cmlib.experiment import Experiment

    for name, version in engine.versions().items():
        print(f"ok    {name} {version}")
    device = engine.device_name(engine.choose_device("auto"))
    print(f"ok    device {device}, {os.cpu_count()} cores, {torch.get_num_threads()} threads")
    cores = os.cpu_count() or 1
    if torch.get_num_threads() == 1 and cores > 2:
        cause = "OMP_NUM_THREADS=1 is set; unset it or " if os.environ.get("OMP_NUM_THREADS") == "1" else ""
        side = f"more cores serve runs side by side, as in cmlib sweep table1 --jobs {cores}"
        print(f"warn  one thread on {cores} cores: {cause}set OMP_NUM_THREADS=2, the most that a run takes; {side}")
    for row in data.describe(data_root):
        found = row["where"] != "not found"
        print(f"{'ok  ' if found else 'none'}  data set {row['name']}: {row['where']}")
    folder = Path(store) if store else stores.default_folder()
    stores.Store(folder).check_writable()
    print(f"ok    store {folder} can be written")
    made = engine.run(Experiment(profile="smoke", method="naive"), progress=False)
    speed = made.data["train_rows_used"] / sum(sum(task) for task in made.seconds_per_epoch)
    print(f"ok    training: {speed:.0f} digits images a second")


@app.command()
def bench(
    what: Annotated[str, typer.Argument(help="step, epoch, pipeline, methods or ratios.")],
    dataset: Annotated[str | None, typer.Option(help="A data set or a folder; default: made-up images.")] = None,
    images: Annotated[str | None, typer.Option(help="Size of made-up images: 32x32 or 8x8.")] = None,
    methods: Annotated[str | None, typer.Option(help="Methods, separated by commas; default: all.")] = None,
    scenario: Annotated[str, typer.Option(help="til, cil or both.")] = "both",
    profile: Annotated[str | None, typer.Option(help="smoke, digits, mini or paper.")] = None,
    train_per_class: Annotated[int | None, typer.Option(min=2, help="Training images a class.")] = None,
    batch_size: Annotated[int, typer.Option(min=2, help="Samples a batch.")] = 32,
    repeats: Annotated[int | None, typer.Option(help="Rounds, or timed epochs or steps.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 1,
    graphs: Annotated[bool, typer.Option(help="On CUDA, replay recorded steps.")] = True,
    data_root: DataRoot = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure how long steps, epochs and batches take, beside Avalanche, a bare loop and a literal CM step."""
    from cmlib import bench as benches

    names = tuple(name.strip() for name in methods.split(",") if name.strip()) if methods else ()
    benches.main(
        what, as_json, dataset=dataset, images=images, data_root=data_root, methods=names, scenario=scenario, profile=profile,
        train_per_class=train_per_class, batch_size=batch_size, repeats=repeats, device=device, threads=threads, graphs=graphs,
    )  # fmt: skip


@app.command()
def report(
    store: Annotated[str | None, typer.Option(help="Folder with results (default ./runs, or CMLIB_STORE).")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of the digits table, from 0 on.")] = 1,
    profile: Annotated[str, typer.Option(help="Profile of the digits table: digits or smoke.")] = "digits",
) -> None:
    """Print two tables: digits, measured on this machine; CIFAR-10, the paper's values beside the committed runs."""
    from cmlib import report as reports
    from cmlib import store as stores

    folder = Path(store) if store else stores.default_folder()
    print(reports.digits_table(stores.Store(folder), seeds, profile))
    print()
    print(reports.cifar10_table([stores.Store(folder), stores.committed()]))


@app.command()
def table(
    number: Annotated[str, typer.Argument(help="1 to 6, as in the paper.")],
    profile: Annotated[str, typer.Option(help="smoke, digits, mini or paper.")] = "digits",
    form: Annotated[str, typer.Option("--format", help="text, md, csv, latex or json.")] = "text",
    store: Annotated[str | None, typer.Option(help="This store alone (default: ./runs and the committed runs)")] = None,
) -> None:
    """Print a table of the paper, ours beside its values: mean, deviation, number of runs, verdict."""
    from cmlib import tables as paper_tables

    print(paper_tables.render(paper_tables.table(number, profile, paper_tables.stores_of(store)), form))


@app.command()
def figure(
    number: Annotated[str, typer.Argument(help="1, 2a, 2b, 3 or 4, as in the paper.")],
    profile: Annotated[str, typer.Option(help="smoke, digits, mini or paper.")] = "digits",
    out: Annotated[str, typer.Option(help="Folder for the picture (.svg, .png) and its numbers (.csv).")] = "figures",
    form: Annotated[str, typer.Option("--format", help="files, or json: print the numbers and write nothing.")] = "files",
    store: Annotated[str | None, typer.Option(help="This store alone (default: ./runs and the committed runs)")] = None,
    record: Annotated[bool, typer.Option("--record", help="Figures 3, 4: make the run they show when it is missing.")] = False,
) -> None:
    """Draw a figure of the paper from stored runs; its paths go to stdout, what to know about it to stderr."""
    from cmlib import figures
    from cmlib import tables as paper_tables

    printed, notes = figures.main(number, profile, out, paper_tables.stores_of(store), form, record)
    print(printed)
    if notes:
        print(notes, file=sys.stderr)


@app.command()
def claims(
    profile: Annotated[str, typer.Option(help="smoke, digits, mini or paper.")] = "digits",
    form: Annotated[str, typer.Option("--format", help="text, md or json.")] = "text",
    store: Annotated[str | None, typer.Option(help="This store alone (default: ./runs and the committed runs)")] = None,
) -> None:
    """Print the paper's empirical sentences, each with a test that decides it: on the paper's own numbers, and on the runs."""
    from cmlib import claims as sentences

    print(sentences.show(profile, form, store))


@app.command()
def errata(
    profile: Annotated[str, typer.Option(help="smoke, digits, mini or paper.")] = "digits",
    form: Annotated[str, typer.Option("--format", help="text, md or json.")] = "text",
    store: Annotated[str | None, typer.Option(help="This store alone (default: ./runs and the committed runs)")] = None,
) -> None:
    """Print where the paper and its released code part, what is done here, and what the other reading changes: measured."""
    from cmlib import errata as points

    print(points.show(profile, form, store))


@app.command()
def sweep(
    grid: Annotated[str | None, typer.Argument(help="table1 to table6, or another grid, as figure2a.")] = None,
    profile: Annotated[str, typer.Option(help="smoke, digits, mini or paper.")] = "digits",
    seeds: Annotated[str, typer.Option(help="As in 0-4 or 0,2.")] = "0-4",
    jobs: Annotated[int | None, typer.Option(help="Runs side by side (default: one a core).")] = None,
    backend: Annotated[str, typer.Option(help="loky: this machine; dask, ray: a cluster, when installed.")] = "loky",
    budget: Annotated[float | None, typer.Option(help="Seconds after which everything stops, to be continued later.")] = None,
    store: Annotated[str | None, typer.Option(help="Folder for results (default ./runs, or CMLIB_STORE).")] = None,
    data_root: DataRoot = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs and the hours they may take.")] = False,
    order: Annotated[str, typer.Option(help="value: of each seed the cheapest first; grid: as the table lists them.")] = "value",
    status: Annotated[bool, typer.Option("--status", help="Only say how far the sweeps on the store are.")] = False,
) -> int:
    """Make all runs of a table that are missing, several side by side; exit code 1 when one failed.

    To leave the machine to other work: nice -n 19 cmlib sweep ...
    """
    from cmlib import sweep as sweeps

    return sweeps.main(grid, profile, seeds, jobs, backend, budget, store, data_root, dry_run, order, status)


@app.command()
def chapters(
    profile: Annotated[str | None, typer.Option(help="smoke, digits, mini or paper (default: as each chapter sets it).")] = None,
    only: Annotated[str | None, typer.Option(help="Chapters by number, as in 4,5 (default: all).")] = None,
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="A parameter of the chapters, name=value; repeatable.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Chapters side by side (default: one a core).")] = None,
    out: Annotated[str, typer.Option(help="Folder for the executed notebooks and the report.")] = "_build/executed",
    recompute: Annotated[bool, typer.Option("--recompute", help="Make stored runs again: -p recompute=true.")] = False,
) -> int:
    """Run chapters of the book with other parameters, through papermill; exit code 1 when one failed."""
    from cmlib import chapters as book

    return book.main(profile, only, parameter or [], jobs, out, recompute)


@app.command()
def publish(
    source: Annotated[str, typer.Argument(help="A store, or one result file.")] = "runs",
    target: Annotated[str, typer.Option(help="Where the committed results lie.")] = "book/results",
) -> None:
    """Validate results and copy them to the committed ones."""
    from cmlib import report as reports

    for path in reports.publish(Path(source), Path(target)):
        print(path)


@app.command()
def audit(
    store: Annotated[str, typer.Option(help="Folder with results.")] = "book/results",
    book: Annotated[str, typer.Option(help="Folder with the book's pages.")] = "book",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Check that every number of the book comes from a run that fits its own description; exit code 1 when one does not."""
    from cmlib import audit as audits

    return audits.main(store, book, as_json)


@app.command()
def export(
    form: Annotated[str | None, typer.Option("--format", help="csv or parquet (default: by the end of --out, else csv).")] = None,
    out: Annotated[str | None, typer.Option(help="The file to write; without it CSV goes to stdout.")] = None,
    store: Annotated[str | None, typer.Option(help="Folder with results (default ./runs, or CMLIB_STORE).")] = None,
    cells: Annotated[bool, typer.Option("--cells", help="One row a measured accuracy instead of one a run.")] = False,
) -> None:
    """Write all runs of a store as one tidy table."""
    from cmlib import export as exports
    from cmlib import store as stores

    print(exports.export(store or stores.default_folder(), out, form, cells), end="")


@app.command(hidden=True)
def tables(folder: Annotated[str, typer.Argument()] = "book") -> None:
    """Fill the tables in the book's pages from the committed runs."""
    from cmlib import report as reports

    for page in reports.refresh_tables(Path(folder)):
        print(page)


@app.command(hidden=True)
def picture(target: Annotated[str, typer.Argument()] = "book/_static/readme.png") -> None:
    """Draw the README's picture from the committed runs."""
    from cmlib import report as reports

    print(reports.readme_picture(Path(target)))


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code: 0, 1 for an interruption, 2 for bad input."""
    try:
        result = app(arguments, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except CmlibError as error:
        message = str(error)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted; the same command continues", file=sys.stderr)
        return 1
    except Exception as error:
        if not hasattr(error, "format_message"):  # what the parser of the command line raises
            raise
        message = error.format_message()
    if message:  # empty when the help was asked for by giving no arguments
        print("cmlib: " + " ".join(message.split()), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
