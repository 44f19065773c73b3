"""The audit of the book: does every number come from a run that fits its own description?

`cmlib audit` checks the result files (`reproduction.audit`), the numbers that pages show through `cm.say` (recomputed from the
runs they name) and the generated tables (those of the committed runs). A number that a page computes from a network of its own is
in no result file: ON_PAGE lists these, and of them only the rendering is checked.
"""

from __future__ import annotations

import html
import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from cmlib.errors import CmlibError, OptionError, StoreError
from cmlib.experiment import Experiment
from cmlib.reproduction import paper
from cmlib.reproduction.audit import Audit, check_store, sizes_of
from cmlib.runfile import is_number
from cmlib.store import REPEATS, Run
from cmlib.teaching import filled, page
from cmlib.teaching.solution import unfolded

# Values that a page computes from a network it trains itself, beside runs that it names: a pattern of their names, by chapter.
ON_PAGE = {
    "02_scenarios_and_metrics": "most",  # forgetting beyond minus final BWT, of one run
    "03_classify_by_distance": "pixels_(til|cil)",  # accuracy of the nearest mean on raw pixels, beside that of methods
    "04_task_incremental_cm": (
        "(til_)?cost"  # by the cost model, in the box "When would you use CM?"; in two more chapters, too
        "|ours|theirs|largest"  # the accuracy of the loop that the chapter writes, and how far the package's is from it
        "|mine|b|plain|squared"  # accuracy of the run that the chapter makes itself; drift of task 1, and in two small runs
    ),
    "05_class_incremental_cm": (
        "(til_)?cost|diff|memorised|unseen|on|own|bare"  # of the run that the chapter makes itself, and its spaces
        "|share"  # mistakes that name a class of another task
        "|acc1|sd1|gain1|with_task|without"  # one exemplar a class: the files of its seeds list different options
    ),
    "06_inside_the_space": (  # from the snapshots beside the runs: drift, variance, cells, anchors, in percent
        r"(held|free|early|plain|moved)\d|[dco]_(held|free|large)|end|loose|stay|leave|flat|deep|before|after|one"
        "|wrong_on|wrong_off|far|worst|lost|lost_off|own|own_free|shared|with_it|without_it"
        "|first|second|part"  # two features; a share of what is allowed
        "|digits|digits_worst|held|last|wrong"  # CIFAR-10
    ),
    "08_main_table": (
        r"(til_)?cost|t|p|flips|floor"  # tests of gaps between two methods; the smallest p that so many seeds allow
        r"|[abc]sd\d+|(tau|chance|rank)\d+"  # standard deviations of the population; of rankings of methods
    ),
    "09_memory": "share",  # how far GEM is on the way from Naive to Cumulative, percent
    "10_time": r"most|mean|median|[cmp]\d+",  # epochs by the fastest one; costs by the cost model; growth of fastest epochs
    "11_merging": (
        r"o_(scale_translate|linear|offset|none)_(accuracy|bwt_final)_task\d"  # means of single tasks
        r"|(col|row)(_span)?|rem|noise|later|low|high|c\d"  # effects
        "|stands|bare|seen|test|many|gain|apart|left"  # projectors fitted on the page; of the printed table
    ),
    "12_support_set": "e_(til|cil)|share",  # standard errors; a share of a task's images
    "13_lambda": r"pl\d",  # learning accuracy that follows from two printed numbers
    "16_your_own_method": "mine|kept",  # of the run that the chapter makes itself
}


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
        found.repeats = check_store(pages / REPEATS, found)
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


# -- numbers that follow from runs ----------------------------------------------------------------------------------------

Rows = Sequence[Sequence[float | None]]


def metrics_of(R: Rows) -> dict[str, float]:
    """Accuracy, both backward transfers, forgetting and so on, by slow loops over R; empty for a run that stopped."""
    n = len(R)
    cells = {(i, j): value for i, row in enumerate(R) for j, value in enumerate(row) if value is not None}
    if len(cells) < n * (n + 1) / 2:
        return {}
    losses = {(i, j): cells[i, j] - cells[j, j] for i in range(n) for j in range(i)}
    final = [loss for (i, _), loss in losses.items() if i == n - 1]
    fallen = [max(cells[i, j] for i in range(j, n - 1)) - cells[n - 1, j] for j in range(n - 1)]
    return {
        "accuracy": sum(cells[n - 1, j] for j in range(n)) / n,
        "accuracy_old": sum(cells[n - 1, j] for j in range(n - 1)) / (n - 1) if n > 1 else 0.0,
        "bwt": sum(losses.values()) / len(losses) if losses else 0.0,
        "bwt_final": sum(final) / len(final) if final else 0.0,
        "learning_accuracy": sum(cells[j, j] for j in range(n)) / n,
        "forgetting": sum(fallen) / len(fallen) if fallen else 0.0,
        "incremental_accuracy": sum(sum(cells[i, j] for j in range(i + 1)) / (i + 1) for i in range(n)) / n,
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
    table, printed = paper.table1(), [one for number in range(1, 7) for one in paper.printed_table(number).values()]
    values = {value for one in printed for value in (one.mean, one.std) if value is not None}
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
        wanted = filled.with_tables(text)
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
    plain = data.get("text/plain", "")
    if not plain.startswith("[figure] "):
        return
    said = re.findall(r'<img\b[^>]*?\balt="([^"]*)"|<svg\b[^>]*?\brole="img" aria-label="([^"]*)"', data.get("text/html", ""))
    if not said:
        yield f"the figure has no alternative text; its plain text is '{plain[:60]}'"
    if any(html.unescape(image or drawing) != plain.removeprefix("[figure] ") for image, drawing in said):
        yield f"the figure's alternative text differs from its plain text '{plain[:60]}'"


def say_problems(record: Any, data: dict[str, str], chapter: str, runs: dict[str, Run], found: Audit) -> Iterator[str]:
    """Problems of one output of `say`: record is its metadata (text, values, runs), data its texts by MIME type."""
    if not isinstance(record, dict) or set(record) != {"text", "values", "runs"}:
        yield "metadata of a shown text must hold text, values and runs"
        return
    rendered = renderings(record["text"], record["values"])
    for kind in ("text/markdown", "text/plain"):
        if (kind, unfolded(data.get(kind, ""))) not in rendered:
            yield f"{kind} is not what its values give: '{data.get(kind, '')[:80]}'"
    yield from record_problems(record["values"])
    missing = sorted(set(record["runs"]) - runs.keys())
    yield from (f"names the run {one}, which the store does not hold" for one in missing)
    if record["runs"] and not missing:
        named = [runs[one] for one in dict.fromkeys(record["runs"])]
        yield from value_problems(record, named, chapter, runs, found)


def record_problems(values: dict[str, Any]) -> Iterator[str]:
    """Lists and counts of the reproduction record that are not what the committed runs give."""
    for name, value in values.items():
        if filled.is_recorded(name):
            wanted = filled.of_record(name)
            pairs = zip(str(value).splitlines(), str(wanted).splitlines(), strict=False)
            line = next((f": '{is_[:80]}' must be '{must[:80]}'" for is_, must in pairs if is_ != must), "")
            if value != wanted:
                yield f"{name} is not what the committed runs give{line}"


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
    """Values, and decimal numbers written into the text, that do not follow from the runs named.

    A page that makes a run anew has the outcome of the CPU it was written on: the repeated runs are looked at as well.
    """
    plain = plain_values(named) | printed_values()
    if any(run.id in found.repeats for run in named):
        plain |= plain_values([found.repeats.get(run.id, run) for run in named])
    pool = plain | detail_values(named, runs.values())
    for name, value in record["values"].items():
        if type(value) is not float:  # whole numbers are shown in full, so the rendering tells
            continue
        if any(math.isclose(abs(value), abs(one), rel_tol=1e-12, abs_tol=1e-11) for one in pool):
            found.checked["values traced to runs"] += 1
        elif re.fullmatch(ON_PAGE.get(chapter, ""), name):
            found.checked["values computed on a page"] += 1
        else:
            yield f"{name} = {value} follows from none of the runs it names ({_some(record['runs'])}), nor is it in ON_PAGE"
    options = {float(value) for run in named for value in run.experiment["options"].values() if is_number(value)}
    for literal in DECIMAL.findall(FIELD.sub("", record["text"])):
        places = len(literal.split(".")[1])
        if literal.replace(",", "") in {f"{abs(one):.{places}f}" for one in plain | options}:
            found.checked["numbers in texts traced to runs"] += 1
        else:
            yield f"the number {literal} follows from none of the runs it names ({_some(record['runs'])})"


def _some(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
