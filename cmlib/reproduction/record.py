"""The record a reviewer is shown: every printed number that was run, every setting that was measured, what other data can say.

`numbers([store])` sets runs at the paper's scale beside printed values, `settings("digits", [store])` sets every other setting
beside the default one of the same seeds, `signs("digits", [store])` compares directions alone. `printed_numbers`, `switches`,
`discrepancies` and `sentences` write them as Markdown, `counts` counts them. All of it comes from runs; nothing is typed.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cmlib.experiment import ENGINES, Experiment, key
from cmlib.methods import METHODS
from cmlib.reproduction import claims, errata, grids, paper, render, tables
from cmlib.reproduction.errata import Effect, Point
from cmlib.reproduction.paper import Place
from cmlib.reproduction.tables import ENOUGH, Found, Row
from cmlib.store import Run, Store

TABLES = (1, 2, 3, 4, 5, 6)
PROFILES = ("digits", "mini")  # other data, and the paper's data on another scale
COUNTED = "all_"  # how the names of counts begin
LEVEL = 0.05  # of the paired t test that calls a difference settled
REPOSITORY = "https://github.com/jaryP/CentroidsMatching/blob"
COMMITS = {  # states of the released code that the errata name
    "4e923eb": "4e923eb319f5a9ffa108f272a15f6f480d3e5df3",
    "a1650fd": "a1650fd5bcfb34959d4667801a60ca2b86a1cf89",
    "7ff4d90": "7ff4d90e15ea4ccd5257eef3b576a5f15d2dcbad",
}
FOLDERS = {"strategies.py": "methods/", "cml_utils.py": "methods/plugins/", "cope_utils.py": "methods/plugins/"}
FOLDERS |= {"er.py": "methods/plugins/"}  # where the errata name a file without its folder


class Read(Store):
    """A store whose files are read once: everything here asks for all runs several times."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.folder)
        self._runs = list(store)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)


def read(stores: Iterable[Store]) -> list[Store]:
    """The same stores, each read once."""
    return [store if isinstance(store, Read) else Read(store) for store in stores]


# -- printed numbers that were run ----------------------------------------------------------------------------------------


def numbers(stores: Iterable[Store]) -> list[Row]:
    """The rows of tables 1 to 6 that have a printed value and runs with the paper's data and settings beside it."""
    shelves = read(stores)
    rows = [row for number in TABLES for row in tables.table(number, "paper", shelves).rows]
    return [row for row in rows if row.paper is not None and (row.n or row.stopped)]


def runs(stores: Iterable[Store]) -> list[Run]:
    """The finished runs behind `numbers`, each once."""
    found = Found(stores, "paper")
    cells = [cell for number in TABLES for cell in grids.load(f"table{number}").cells("paper")]
    made = [run for cell in cells for one in cell.experiments("paper") for run in found.of(one)[0]]
    return list({run.id: run for run in made}.values())


# -- settings beside the default one --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A setting that was measured beside the default one. points: the errata it belongs to, 0 for a preset, none for others."""

    profile: str
    effect: Effect
    points: Sequence[int]

    @property
    def settled(self) -> bool:
        """Whether its effect on accuracy is more than the chance of a seed; see `settled`."""
        return settled(self.effect.values.get("accuracy", []))


def settings(profile: str, stores: Iterable[Store]) -> list[Setting]:
    """Every setting with runs of its own beside default runs of the same seeds: those of the errata first, then the others.

    Two that are one by another name, as lambda 1 and a drift of weight one are, count once.
    """
    shelves = read(stores)
    found: dict[tuple[str, ...], tuple[Effect, list[int]]] = {}
    for number, effects in errata.measure(profile, shelves).items():
        for one in effects:
            if one.n or one.stopped:
                found.setdefault(_of(one), (one, []))[1].append(number)
    for one in _others(profile, shelves):
        found.setdefault(_of(one), (one, []))
    apart: dict[tuple[Any, ...], tuple[Effect, list[int]]] = {}
    for name, (one, points) in found.items():
        apart.setdefault((*name[:3], _twin(one) or name), (one, []))[1].extend(points)
    return [Setting(profile, one, points) for one, points in apart.values()]


def _twin(one: Effect) -> tuple[Any, ...]:
    """What two names of one setting have in common: the same differences, seed by seed; nothing where nothing changes."""
    return (*one.seeds, *map(tuple, one.values.values())) if any(map(any, one.values.values())) else ()


def _of(one: Effect) -> tuple[str, ...]:
    return one.dataset, one.scenario, one.method, one.variant


def _others(profile: str, stores: Sequence[Store]) -> list[Effect]:
    """Effects of the settings that no point of the errata names.

    Left out are runs that chose a setting, other engines, and methods whose file is not at hand.
    """
    found = Found(stores, profile)
    labels = [errata.TOGETHER, *(label for point in errata.load() for label in point.cells)]
    named = {key(one.to_dict(), seed=False) for label in labels for one, _ in errata.experiments(label, profile)}
    first = [next(iter(made.values())).experiment for name, made in found.runs.items() if name not in named]
    known = [content for content in first if content["profile"] == profile and content["method"] in METHODS]
    experiments = [Experiment.of(content).but(seed=0) for content in known]
    chosen = [one for one in experiments if one.variant and one.engine == ENGINES[0] and one.eval_split == "test"]
    effects = [errata.effect((one, one.variant), found) for one in chosen]
    return sorted((one for one in effects if one.n or one.stopped), key=_of)


def settled(differences: Sequence[float]) -> bool:
    """Whether a paired t test of at least three differences, one a seed, stays below five percent (two-sided, tested alone)."""
    from scipy.stats import t as student

    n = len(differences)
    if n < ENOUGH:
        return False
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(n)
    if error == 0:
        return mean != 0
    return bool(2 * student.sf(abs(mean) / error, n - 1) < LEVEL)


# -- signs: what other data can say ---------------------------------------------------------------------------------------

SAME, OPPOSITE, OPEN = "same sign", "opposite sign", "open"


@dataclass(frozen=True)
class Sign:
    """A difference that the paper prints, and ours on other data: one value a seed. label: first minus second, in words.

    noise: what a printed difference of this scenario must exceed to mean anything; see `paper.noise`.
    """

    table: int
    scenario: str
    label: str
    paper: float
    ours: Sequence[float]
    noise: float = 0.0

    @property
    def verdict(self) -> str:
        """`same sign` or `opposite sign` where both differences are more than noise, `open` elsewhere, or `not run yet`."""
        if not self.ours:
            return render.NOT_RUN
        if not settled(self.ours) or abs(self.paper) <= self.noise:
            return OPEN
        return SAME if statistics.fmean(self.ours) * self.paper > 0 else OPPOSITE


def signs(profile: str, stores: Iterable[Store]) -> list[Sign]:
    """Accuracy on CIFAR-10: CM minus each other method (table 1), each variant minus the usual one (tables 3 to 6)."""
    found = Found(stores, profile)
    return [sign for number in TABLES if number != 2 for sign in _signs_of(number, profile, found)]


def _signs_of(number: int, profile: str, found: Found) -> list[Sign]:
    printed, made = {}, {}
    for cell in grids.load(f"table{number}").cells(profile):
        place = Place("cifar10", cell.scenario, cell.method, cell.printed, "accuracy")
        value = paper.printed_table(number).get(place)
        classes = 2 if cell.scenario == "til" else 10
        if value is not None and not cell.also and not paper.is_chance(value.mean, classes):  # those runs had stopped
            printed[place], made[place] = value.mean, found.of(cell.experiments(profile)[0])[0]
    noise = {scenario: paper.noise("cifar10", scenario) for scenario in ("til", "cil")}
    return [
        Sign(
            number, other.scenario, _told(first, other), printed[first] - printed[other],
            paper.gaps(made[first], made[other]), noise[other.scenario],
        )
        for first, other in _compared(number, list(printed))
        if printed[first] != printed[other]
    ]  # fmt: skip


def _compared(number: int, places: Sequence[Place]) -> list[tuple[Place, Place]]:
    """(First, second) of every difference of a table."""
    if number == 1:
        mine = [place for place in places if place.method == "cm"]
        return [(one, other) for one in mine for other in places if other.scenario == one.scenario and other != one]
    usual = [place for place in places if place.variant in paper.USUAL]
    return [(other, one) for one in usual for other in places if other.scenario == one.scenario and other != one]


def _told(first: Place, second: Place) -> str:
    if first.method != second.method:
        return f"{METHODS[first.method].title} minus {METHODS[second.method].title}"
    return first.variant.replace(",", ", ")


# -- counts ---------------------------------------------------------------------------------------------------------------


def counts(stores: Iterable[Store]) -> dict[str, int]:
    """Everything that is counted in the report, by a name that begins with `all_`."""
    shelves = read(stores)
    return {**_runs_counted(shelves), **_settings_counted(shelves), **_sentences_counted(shelves)}


def _runs_counted(stores: Sequence[Store]) -> dict[str, int]:
    """Runs, hours of training, printed values; `inside` and so on are verdicts on accuracies and BWTs."""
    rows = numbers(stores)
    verdicts = Counter(row.verdict for row in rows if row.table != 2)
    every = {run.id: run for store in stores for run in store}.values()
    return {
        "all_store": len(every),
        "all_hours": round(sum(sum(map(sum, run.seconds_per_epoch)) for run in every) / 3600),
        "all_printed": sum(len(paper.printed_table(number)) for number in TABLES),
        "all_doubtful": sum(len(paper.inconsistencies(number)) for number in TABLES),
        "all_run": len({(row.table, row.place) for row in rows}),
        "all_runs": len(runs(stores)),
        "all_times": len({row.place for row in rows if row.table == 2}),
        "all_inside": verdicts[tables.INSIDE],
        "all_outside": verdicts[tables.OUTSIDE],
        "all_agree": verdicts[tables.AGREES],
        "all_differ": verdicts[tables.DIFFERS],
        "all_other": verdicts[tables.OTHER_SETTINGS],
    }


def _settings_counted(stores: Sequence[Store]) -> dict[str, int]:
    """Points of the errata by kind, settings beside the default one, signs on the digits."""
    made = [one for profile in PROFILES for one in settings(profile, stores)]
    kinds = Counter(point.kind.rpartition(" ")[2] for point in errata.load())
    verdicts = Counter(sign.verdict for sign in signs(PROFILES[0], stores))
    return {
        "all_settings": len(made),
        "all_tested": sum(one.effect.n >= ENOUGH for one in made),
        "all_settled": sum(one.settled for one in made),
        "all_points": kinds.total(),
        **{f"all_{kind}": count for kind, count in kinds.items()},
        "all_signs": verdicts.total() - verdicts[render.NOT_RUN],
        **{f"all_{word.split(' ')[0]}": verdicts[word] for word in (SAME, OPPOSITE, OPEN)},
    }


def _sentences_counted(stores: Sequence[Store]) -> dict[str, int]:
    """The paper's sentences: how many hold and how many do not, by its own numbers and by our runs of each profile."""
    judged = {profile: claims.judge(profile, stores) for profile in (*PROFILES, "paper")}
    sides = {name: Counter(one.ours.verdict for one in found) for name, found in judged.items()}
    sides["theirs"] = Counter(one.paper.verdict for one in judged["paper"])
    said = {"hold": claims.HOLDS, "fail": claims.FAILS}
    verdicts = {f"all_{name}_{word}": found[verdict] for name, found in sides.items() for word, verdict in said.items()}
    return {"all_claims": len(claims.load()), **verdicts}


# -- as Markdown ----------------------------------------------------------------------------------------------------------


def printed_numbers(stores: Iterable[Store]) -> str:
    """`numbers` as two tables: percent in sight, ratios of times folded away."""
    rows = numbers(stores)
    percent, times = ([row for row in rows if (row.table == 2) == timed] for timed in (False, True))
    parts = [_number_table(percent) if percent else f"Percent: {render.NOT_RUN}."]
    if times:
        title = f"{len(times)} times of table 2, as ratios to the first task of Naive"
        parts.append(folded(title, _number_table(times)))
    return "\n\n".join(parts)


def _number_table(rows: Sequence[Row]) -> str:
    header = ["table", "number", "paper", "ours", "runs", "verdict"]
    return render.markdown(header, [_number_line(row) for row in rows])


def _number_line(row: Row) -> list[str]:
    scenario = row.scenario.upper().replace("-", " and ")
    who = f"{METHODS[row.method].title}, {scenario}, {row.metric.replace('_task', ', task ')}"
    who += f", `{row.variant}`" if row.variant else ""
    who = who if row.dataset == "cifar10" else f"{row.dataset}: {who}"
    ours = render.number(row.ours, row.ours_sd) if row.n else tables.STOPPED
    n = f"{row.n}" + (f" ({row.stopped} stopped)" if row.stopped else "")
    return [f"{row.table}", who, render.number(row.paper, row.paper_sd), ours, n, row.verdict]


def switches(stores: Iterable[Store]) -> str:
    """`settings` of every profile, a folded table each: effects on accuracy in points, settled ones in bold."""
    shelves = read(stores)
    return "\n\n".join(_switch_table(profile, settings(profile, shelves)) for profile in PROFILES)


def _switch_table(profile: str, made: Sequence[Setting]) -> str:
    if not made:
        return f"`{profile}`: {render.NOT_RUN}."
    lines: dict[tuple[str, str], dict[str, Setting]] = {}
    for one in made:
        lines.setdefault((one.effect.method, one.effect.variant), {})[one.effect.scenario] = one
    rows = [
        [f"{METHODS[method].title} `{variant.replace(',', ', ')}`", _links(line), *(_effect(line.get(s)) for s in ("til", "cil"))]
        for (method, variant), line in lines.items()
    ]
    header = ["setting", "errata", "TIL", "CIL"]
    return folded(f"`{profile}`: {len(made)} settings beside the default one", render.markdown(header, rows, numbers=2))


def _links(line: Mapping[str, Setting]) -> str:
    points = sorted({point for one in line.values() for point in one.points})
    return ", ".join(f"[{point}](#erratum-{point})" if point else "[preset](errata.md#many-at-once)" for point in points)


def _effect(one: Setting | None) -> str:
    """`+1.20 ± 0.30 (3)`; bold when settled, runs that stopped counted."""
    if one is None:
        return ""
    effect = one.effect
    if not effect.n:
        return f"{effect.stopped} stopped"
    text = effect.told("accuracy")
    stopped = f", {effect.stopped} stopped" if effect.stopped else ""
    return (f"**{text}**" if one.settled else text) + f" ({effect.n}{stopped})"


def discrepancies(stores: Iterable[Store]) -> str:
    """The points where paper and code part, a folded list a kind: title, largest measured effect or why there is none, code."""
    made = settings("digits", stores)
    return "\n\n".join(_kind(kind, heading, made) for kind, heading in errata.CLASSES.items())


def _kind(kind: str, heading: str, made: Sequence[Setting]) -> str:
    points = [point for point in errata.load() if point.kind == kind]
    measured = {point.id: [one for one in made if point.id in one.points] for point in points}
    lines = [_point_line(point, measured[point.id]) for point in points]
    count = sum(bool(found) for found in measured.values())
    return folded(f"{heading}: {len(points)} points, {count} measured", "\n".join(lines))


def _point_line(point: Point, found: Sequence[Setting]) -> str:
    parts = [f"- {point.id}: [{point.title}](#erratum-{point.id})"]
    if found:
        one = max(found, key=lambda one: abs(one.effect.mean("accuracy") or 0.0))
        most = f", the largest of {len(found)}" if len(found) > 1 else ""
        who = f"{METHODS[one.effect.method].title} {one.effect.scenario.upper()}"
        parts.append(f"{who} `{one.effect.variant.replace(',', ', ')}` {_effect(one)}{most}")
    else:
        parts.append(f"not measured: {point.why}" if point.why else render.NOT_RUN)
    links = permalinks(point)
    return "; ".join(parts) + (f"; code: {', '.join(links)}" if links else "") + "."


def permalinks(point: Point) -> list[str]:
    """Links to the lines of the released code that a point names, in the commit it names; none where either is not known."""
    found = []
    for part in point.file.split(";"):
        if commit := re.search(rf"\(({'|'.join(COMMITS)})", part):
            named = re.findall(r"([\w/]+\.(?:py|sh|yaml))(?::(\d+(?:-\d+)?))?", part)
            found += [_permalink(FOLDERS.get(path, "") + path, lines, COMMITS[commit[1]]) for path, lines in named]
    return [link for link in found if link]


def _permalink(path: str, lines: str, commit: str) -> str:
    if "/" not in path and path != "training.py":
        return ""
    first, _, last = lines.partition("-")
    anchor = f"#L{first}" + (f"-L{last}" if last else "") if lines else ""
    return f"[{path.rpartition('/')[2]}{':' + lines if lines else ''}]({REPOSITORY}/{commit}/{path}{anchor})"


def sentences(stores: Iterable[Store]) -> str:
    """The paper's sentences with their verdicts, a folded list for each verdict of the paper's own numbers."""
    shelves = read(stores)
    judged = {profile: claims.judge(profile, shelves) for profile in (*PROFILES, "paper")}
    theirs = [one.paper.verdict for one in judged["paper"]]
    rows: dict[str, list[list[str]]] = {}
    for k, claim in enumerate(claims.load()):
        ours = [judged[profile][k].ours.verdict for profile in judged]
        rows.setdefault(theirs[k], []).append([f'"{claim.quote}" ({claim.where.rpartition("; ")[2]})', *ours])
    header = ["sentence", *(f"`{profile}`" for profile in judged)]
    return "\n\n".join(
        folded(f"{len(rows[word])} sentences; by the paper's own numbers: {word}", render.markdown(header, rows[word]))
        for word in reversed(claims.VERDICTS)
        if word in rows
    )


def folded(title: str, content: str) -> str:
    """Markdown that a reader unfolds, on the site, in JupyterLab and in Colab."""
    return f"<details><summary>{title.replace('`', '')}</summary>\n\n{content}\n\n</details>"
