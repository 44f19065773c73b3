"""The board of results: what the committed runs hold, as Markdown for the book's page of results.

`coverage` counts runs of every grid, `runs_board` lists every setting that was run, `beside_the_paper` sets table 1 beside the
printed values, `verdicts` says what has become of the paper's sentences. Means and standard deviations as `render`
writes them; accuracies in percent, BWT in percentage points.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from cmlib.experiment import Experiment, key
from cmlib.methods import METHODS
from cmlib.reproduction import claims, grids, paper, render, tables
from cmlib.reproduction.render import DENSE, NOT_RUN, dense
from cmlib.reproduction.tables import Row
from cmlib.store import FINISHED, Run, Store

SEEDS = {"digits": 3, "mini": 2, "paper": 5}  # runs of every place that the book wants, by profile: seeds 0, 1, ...
METRICS = ("accuracy", "bwt_final")


def folded(title: str, table: str) -> str:
    """A table in small print that a reader unfolds."""
    return f"::::{{dropdown}} {title}\n:class-container: {DENSE}\n\n{table}\n::::"


def seeds_text(seeds: Iterable[int]) -> str:
    """`[0, 1, 2, 5]` -> `0-2, 5`."""
    runs = groupby(enumerate(sorted(seeds)), lambda pair: pair[1] - pair[0])
    ends = [[seed for _, seed in group] for _, group in runs]
    return ", ".join(f"{one[0]}-{one[-1]}" if len(one) > 1 else f"{one[0]}" for one in ends)


# -- how much has been run ------------------------------------------------------------------------------------------------


def coverage(store: Store) -> str:
    """A row a grid: in each profile how many of its runs there are, of how many."""
    made = {key(run.experiment): run for run in store if not run.other_data}
    seeds = {profile: seeds_text(range(n)).replace("-", "\N{NON-BREAKING HYPHEN}") for profile, n in SEEDS.items()}
    header = ["grid", "what it is for", *(f"`{profile}` {text}" for profile, text in seeds.items())]
    rows = []
    for name in grids.names():
        grid = grids.load(name)
        counts = [_count(made, grid.experiments(profile, n)) for profile, n in SEEDS.items()]
        rows.append([f"`{name}`", grid.title, *counts])
    return dense(render.markdown(header, rows, numbers=len(SEEDS)))


def _count(made: Mapping[str, Run], wanted: Sequence[Experiment]) -> str:
    found = [made[name] for one in wanted if (name := key(one.to_dict())) in made]
    stopped = sum(run.status != FINISHED for run in found)
    return f"{len(found)} of {len(wanted)}" + (f" ({stopped} stopped)" if stopped else "") if wanted else "-"


# -- every setting that was run -------------------------------------------------------------------------------------------


def runs_board(store: Store) -> str:
    """For each profile, data set and scenario a table of the methods, and one of every other setting, folded away."""
    groups: dict[tuple[str, str, str], dict[tuple[str, str], list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in store:
        e = Experiment.of(run.experiment)
        data = ", ".join(word for word in (e.dataset, run.other_data) if word)
        groups[e.profile, data, e.scenario][e.method, e.variant].append(run)
    made_with = _made_with(store)
    places = sorted(groups, key=lambda place: (_rank(SEEDS, place[0]), place[1], place[2] == "cil"))
    blocks = [block for place in places for block in _place(place, groups[place], made_with)]
    return "\n\n".join([*blocks, *_legend(made_with)]) if blocks else f"Nothing: {NOT_RUN}."


def _rank(names: Iterable[str], name: str) -> int:
    order = list(names)
    return order.index(name) if name in order else len(order)


def _place(place: tuple[str, str, str], settings: Mapping[tuple[str, str], list[Run]], made_with: Mapping[str, int]) -> list[str]:
    profile, dataset, scenario = place
    methods = [method for method, _ in paper.cells((scenario,))]
    order = sorted(settings, key=lambda setting: (_rank(methods, setting[0]), setting[1]))
    plain = [setting for setting in order if not setting[1]]
    other = [setting for setting in order if setting[1]]
    blocks = [f"### `{profile}`: {dataset}, {scenario.upper()}"]
    if plain:
        blocks.append(dense(_settings_table(plain, settings, made_with)))
    if other:
        runs = sum(len(settings[one]) for one in other)
        title = f"{len(other)} other setting{'s' * (len(other) > 1)} ({runs} run{'s' * (runs > 1)})"
        blocks.append(folded(title, _settings_table(other, settings, made_with)))
    return blocks


def _settings_table(
    chosen: Sequence[tuple[str, str]], settings: Mapping[tuple[str, str], list[Run]], made_with: Mapping[str, int]
) -> str:
    varied, several = any(variant for _, variant in chosen), len(made_with) > 1
    header = ["method", *(["options"] if varied else []), *(["made with"] if several else []), "seeds", *METRICS]
    rows = []
    for method, variant in chosen:
        runs = settings[method, variant]
        ended = paper.finished(runs)
        stopped = len(runs) - len(ended)
        seeds = seeds_text(run.seed for run in ended) + (f"{' and ' if ended else ''}{stopped} stopped" if stopped else "")
        numbers = [render.spread([getattr(run, metric) for run in ended]) for metric in METRICS]
        options = [variant.replace(",", ", ")] if varied else []
        letters = sorted({made_with[_made(run)] for run in runs})
        made = [", ".join(map(_letter, letters))] if several else []
        rows.append([METHODS[method].title, *options, *made, seeds, *numbers])
    return render.markdown(header, rows, numbers=len(METRICS))


def _made(run: Run) -> str:
    """Versions, device, CPU and threads of a run in one line."""
    threads = run.machine.get("threads", "?")
    machine = f"{run.machine.get('device', 'device unknown')}, {cpu_of(run)}, {threads} thread{'s' * (threads != 1)}"
    return ", ".join([*(f"{name} {version}" for name, version in run.versions.items()), machine])


def _made_with(store: Store) -> dict[str, int]:
    """What runs were made with, the most frequent first, numbered."""
    counts = Counter(_made(run) for run in store)
    return {made: k for k, made in enumerate(sorted(counts, key=lambda one: (-counts[one], one)))}


def _letter(rank: int) -> str:
    return chr(ord("A") + rank) if rank < 26 else f"A{rank}"


def _legend(made_with: Mapping[str, int]) -> Iterator[str]:
    if len(made_with) == 1:
        yield f"All runs were made with {next(iter(made_with))}."
    else:
        yield "\n".join(["Made with:", "", *(f"- {_letter(rank)}: {made}" for made, rank in made_with.items())])


# -- the same experiments on another CPU ------------------------------------------------------------------------------------


def another_cpu(store: Store, repeats: Store) -> str:
    """Runs of `repeats`, made on another CPU, beside the same experiments of `store`: what rounding alone changes.

    A row a method and scenario: accuracy in percent, its difference (repeated minus first, paired by seed) in percentage points.
    """
    first = {run.id: run for run in store}
    pairs: dict[tuple[str, str], list[tuple[Run, Run]]] = defaultdict(list)
    for again in repeats:
        if again.id in first:  # the same experiment on the same data
            pairs[again.experiment["scenario"], again.experiment["method"]].append((first[again.id], again))
    if not pairs:
        return f"Nothing: {NOT_RUN}."
    header = ["", "method", "seeds", "first", "repeated", "difference", "largest", "same R"]
    rows = [_repeated(s, method, pairs[s, method]) for method, s in paper.cells() if (s, method) in pairs]
    return "\n\n".join(
        [dense(render.markdown(header, rows, numbers=5)), _repeats_in_words([p for ps in pairs.values() for p in ps])]
    )


def _repeated(scenario: str, method: str, runs: Sequence[tuple[Run, Run]]) -> list[str]:
    both = [(a, b) for a, b in runs if a.status == b.status == FINISHED]
    moved = [b.accuracy - a.accuracy for a, b in both]
    texts = [render.spread([run.accuracy for run in side]) for side in zip(*both, strict=True)]
    same = sum(a.R == b.R for a, b in runs)
    seeds = seeds_text(a.seed for a, _ in both)
    if not both:
        return [scenario.upper(), METHODS[method].title, "stopped", *["-"] * 4, f"{same} of {len(runs)}"]
    largest = f"{max(moved, key=abs):+.2f}"
    return [scenario.upper(), METHODS[method].title, seeds, *texts, render.spread(moved), largest, f"{same} of {len(runs)}"]


def _repeats_in_words(runs: Sequence[tuple[Run, Run]]) -> str:
    both = [(a, b) for a, b in runs if a.status == b.status == FINISHED]
    moved = [abs(b.accuracy - a.accuracy) for a, b in both]
    made = sorted({cpu_of(b) for _, b in runs})
    stopped = [f"{a.id} {a.status} first, {b.status} again" for a, b in runs if a.status != b.status]
    return (
        f"{len(runs)} runs, repeated on {' and '.join(made)}: {sum(a.R == b.R for a, b in runs)} give the same R. "
        f"Accuracy moves by {statistics.fmean(moved):.2f} points on average (median {statistics.median(moved):.2f}, "
        f"at most {max(moved):.2f})."
    ) + "".join(f" {line}." for line in stopped)


def cpu_of(run: Run) -> str:
    """CPU model and instruction set of a run, as far as its file says."""
    return f"{run.machine['cpu']} ({run.machine['instructions']})" if "cpu" in run.machine else "CPU not recorded"


# -- table 1 beside the paper's -------------------------------------------------------------------------------------------


def beside_the_paper(store: Store) -> str:
    """Table 1 of every profile whose data set is in the paper: printed and ours, accuracy and BWT after the last task.

    A row without any run is folded away: its printed numbers stand there, and what has been run stays in sight.
    """
    blocks = []
    for profile in ("mini", "paper"):
        rows = tables.table(1, profile, [store]).rows
        for dataset in dict.fromkeys(row.dataset for row in rows):
            here = [row for row in rows if row.dataset == dataset]
            blocks += [f"### `{profile}`: {dataset}", *_beside(here), _verdict_counts(here)]
    return "\n\n".join(blocks)


def _beside(rows: Sequence[Row]) -> Iterator[str]:
    """The table of what has been run, and the folded one of what has not."""
    header = ["", "method", "accuracy: paper", "ours", "bwt_final: paper", "ours", "runs"]
    cells: dict[tuple[str, str, str], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        cells[row.scenario, row.method, row.variant or ""][row.metric] = row
    ordered = sorted(cells.items(), key=lambda item: item[0][0] == "cil")  # rows with other options beside their scenario
    made: list[list[str]] = []
    missing: list[list[str]] = []
    for (scenario, method, variant), by_metric in ordered:
        pairs = [text for metric in METRICS for text in _pair(by_metric[metric])]
        one = by_metric[METRICS[0]]
        runs = f"{one.n}" + (f", {one.stopped} stopped" if one.stopped else "")
        line = [scenario.upper(), " ".join([METHODS[method].title, variant]).strip(), *pairs, runs]
        (made if one.n or one.stopped else missing).append(line)
    if made:
        yield dense(render.markdown(header, made, numbers=5))
    if missing:
        table = render.markdown([*header[:3], header[4]], [[*line[:3], line[4]] for line in missing], numbers=2)
        yield folded(f"{len(missing)} {'row' if len(missing) == 1 else 'rows'} {NOT_RUN}: the paper's numbers alone", table)


def _pair(row: Row) -> list[str]:
    """The printed value, with ! where it cannot be what it says, and ours."""
    theirs = render.number(row.paper, row.paper_sd) + (" !" if row.place in paper.inconsistencies(1) else "")
    ours = render.number(row.ours, row.ours_sd) if row.n else "stopped" if row.stopped else NOT_RUN
    return [theirs, ours]


def _verdict_counts(rows: Sequence[Row]) -> str:
    """How many places agree, differ, and so on."""
    counts = Counter(row.verdict for row in rows if row.metric in METRICS)
    return "Verdicts: " + ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items(), key=lambda pair: -pair[1])) + "."


# -- the paper's sentences ------------------------------------------------------------------------------------------------


def verdicts(store: Store) -> str:
    """Counts, then a row a sentence: the verdict of the paper's own numbers, and of the runs of each profile that has any."""
    judged = {profile: claims.judge(profile, [store]) for profile in SEEDS}
    sides = [[j.paper.verdict for j in next(iter(judged.values()))], *([j.ours.verdict for j in js] for js in judged.values())]
    heads = ["paper's own numbers", *(f"`{profile}`" for profile in SEEDS)]
    counts = [
        f"{who}: {', '.join(f'*{word}* {n}' for word in reversed(claims.VERDICTS) if (n := column.count(word)))}."
        for who, column in zip(["The paper's own numbers", *heads[1:]], sides, strict=True)
    ]
    shown = [(who, column) for who, column in zip(heads, sides, strict=True) if set(column) != {claims.NOT_RUN}]
    header = ["sentence", *(who for who, _ in shown)]
    columns = (column for _, column in shown)
    rows = [[f'"{one.quote}" ({one.where})', *words] for one, *words in zip(claims.load(), *columns, strict=True)]
    return "\n\n".join(["\n".join(f"- {line}" for line in counts), dense(render.markdown(header, rows))])
