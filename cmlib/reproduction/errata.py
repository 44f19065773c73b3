"""Where the paper and its released code part, what is done here, and what the other reading changes: measured.

The points stand in `printed/errata.toml`. `measure("digits", stores)` sets the runs of each point's grid cells beside the default
runs of the same seeds; `show` prints all of it. An effect is a difference, other reading minus default, run by run: accuracy and
`bwt_final` in percentage points, their mean and their standard deviation of the population (divided by n).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cmlib.errors import check_name
from cmlib.experiment import Experiment
from cmlib.methods import METHODS
from cmlib.profiles import PROFILES
from cmlib.reproduction import grids, render, tables
from cmlib.reproduction.render import NOT_RUN
from cmlib.reproduction.tables import Found
from cmlib.store import Run, Store, committed

FILE = Path(__file__).with_name("printed") / "errata.toml"
CLASSES = {  # of points, with a page's heading
    "bug": "Mistakes in the code",
    "undocumented choice": "Choices the text leaves open, or the code makes otherwise",
    "typo": "Slips of the pen",
    "unknown": "What cannot be settled",
}
TOGETHER = "cm preset"  # the cells that set many options at once
METRICS = ("accuracy", "bwt_final")
LACKING = "no such runs in this profile"
FEW = 2  # effects of one point that are told in lines; more make a table
MANY = 5  # effects of one point that are not listed singly while none of them has a run


@dataclass(frozen=True)
class Point:
    """One point: where it stands, what text and code say, what is done here.

    kind: one of `CLASSES`. options: other readings, `method name=value`. cells: `method option [@grid]`, the cells of a grid
    (`switches` unless named) that set this option, or these (`a,b`), and no other. seeds: the only ones that can differ.
    why: why nothing is measured, where there are no cells.
    """

    id: int
    title: str
    where: str
    text: str
    code: str
    file: str
    kind: str
    ours: str
    options: Sequence[str] = ()
    cells: Sequence[str] = ()
    seeds: Sequence[int] = ()
    why: str = ""


@cache
def load() -> tuple[Point, ...]:
    """Every point, by number."""
    entries = tomllib.loads(FILE.read_text(encoding="utf-8"))["errata"]
    return tuple(Point(**{"kind" if key == "class" else key: value for key, value in entry.items()}) for entry in entries)


# -- measuring ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """What one other reading changes against the default, a value a seed that has both runs; points of a percent.

    variant: the options, `name=value,...`. stopped: runs of the other reading whose loss was not finite; they are not in the
    values. unpaired: finished ones whose default run is missing.
    """

    dataset: str
    scenario: str
    method: str
    variant: str
    seeds: Sequence[int] = ()
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by metric
    stopped: int = 0
    unpaired: int = 0

    @property
    def n(self) -> int:
        """Pairs of runs."""
        return len(self.seeds)

    def mean(self, metric: str) -> float | None:
        """Mean difference; None without runs."""
        return render.mean(self.values[metric]) if self.n else None

    def sd(self, metric: str) -> float | None:
        """Standard deviation of the population of the differences; None with fewer than two."""
        return render.deviation(self.values[metric])

    @property
    def size(self) -> float:
        """How large the effect on accuracy is, whichever way it goes."""
        return abs(self.mean("accuracy") or 0.0)

    @property
    def who(self) -> str:
        """`CM TIL`."""
        return f"{METHODS[self.method].title} {self.scenario.upper()}"

    @property
    def name(self) -> str:
        """`CM TIL head=linear`."""
        return f"{self.who} {self.variant}"

    def told(self, metric: str) -> str:
        """`+1.20 ± 0.30`; a dash without runs."""
        return render.number(self.mean(metric), self.sd(metric), "+") if self.n else "-"

    @property
    def runs(self) -> str:
        """`3 runs, 1 stopped`, or why there are none."""
        rest = [f"{self.n} run" if self.n == 1 else f"{self.n} runs"] if self.n else []
        rest += [f"{self.stopped} stopped"] if self.stopped else []
        rest += [f"{self.unpaired} without a default run"] if self.unpaired else []
        return ", ".join(rest) or NOT_RUN

    @property
    def numbers(self) -> str:
        """`accuracy +1.20 ± 0.30, bwt_final -0.10 ± 0.05 (3 runs)`, or why there are none."""
        told = ", ".join(f"{metric} {self.told(metric)}" for metric in METRICS)
        return f"{told} ({self.runs})" if self.n else self.runs


def measure(profile: str, stores: Iterable[Store]) -> dict[int, list[Effect]]:
    """The effects of each point by its number, and under 0 those of the presets; OptionError for an unknown profile."""
    found = Found(stores, check_name("profile", profile, PROFILES))
    wanted = {0: ([TOGETHER], ()), **{point.id: (point.cells, point.seeds) for point in load()}}
    return {
        number: [effect(one, found, seeds) for label in labels for one in experiments(label, profile)]
        for number, (labels, seeds) in wanted.items()
    }


def experiments(label: str, profile: str) -> list[tuple[Experiment, str]]:
    """The other readings of a label, seed 0, with their options in words: the grid's cells that set its options alone."""
    label, _, grid = label.partition(" @")
    method, names = label.split(" ")
    cells = [
        cell
        for cell in grids.load(grid or "switches").cells(profile)
        if cell.method == method and set(cell.options) == set(names.split(","))
    ]
    pairs = [(one, cell.variant.lower()) for cell in cells for one in cell.experiments(profile)]
    return [(one, variant) for one, variant in pairs if one.options != default(one).options]


def default(experiment: Experiment) -> Experiment:
    """The experiment without its options."""
    e = experiment
    return Experiment(e.dataset, e.scenario, e.method, e.seed, e.profile)


def effect(reading: tuple[Experiment, str], found: Found, seeds: Sequence[int] = ()) -> Effect:
    """Runs of another reading beside the default runs of the same seeds and data."""
    experiment, variant = reading
    ended, stopped, _ = found.of(experiment)
    usual = {_pair(run): run for run in found.of(default(experiment))[0]}
    counted = [run for run in ended if not seeds or run.seed in seeds]
    pairs = [(run, usual[_pair(run)]) for run in counted if _pair(run) in usual]
    values = {metric: [tables.measured(a, metric) - tables.measured(b, metric) for a, b in pairs] for metric in METRICS}
    place = (experiment.dataset, experiment.scenario, experiment.method, variant)
    return Effect(*place, [run.seed for run, _ in pairs], values, stopped, len(counted) - len(pairs))


def _pair(run: Run) -> tuple[int, Any]:
    return run.seed, run.data.get("digest")


# -- printing -------------------------------------------------------------------------------------------------------------

HOW = (
    "Effects: other reading minus default, runs of one seed beside each other; accuracy and bwt_final in percentage points, "
    "mean ± standard deviation of the population."
)


def show(profile: str, form: str = "text", folder: str | Path | None = None) -> str:
    """All points with their effects as `text`, `md` or `json`; OptionError for an unknown profile or format."""
    check_name("format", form, FORMATS)
    return FORMATS[form](profile, measure(profile, tables.stores_of(folder)))


def markdown(profile: str) -> str:
    """The points with the effects of the committed runs, for a page of the book."""
    return _markdown(profile, measure(profile, [committed()]))


def effects_table(profile: str) -> str:
    """The page's first table: a row a point whose other readings were run, the largest effect on accuracy first.

    Its last cell holds the effect on accuracy in each scenario; where several readings of a point were run, the largest one and
    how many. The points without a number stand below it, each with a link, because each says why.
    """
    found = measure(profile, [committed()])
    points = {0: ("many at once", "[Presets: many points at once](#many-at-once)")}
    points |= {point.id: (f"{point.id}", f"[{point.title}](#{anchor(point)})") for point in load()}
    made = {number: effects for number in points if (effects := [one for one in found[number] if one.n])}
    order = sorted(made, key=lambda number: -max(one.size for one in made[number]))
    told = {n: [text for side in ("til", "cil") if (text := _largest(made[n], side))] for n in order}
    table = render.markdown(["point", "", "accuracy"], [[*points[number], "<br>".join(told[number])] for number in order])
    none = ", ".join(f"[{point.id}](#{anchor(point)})" for point in load() if not any(one.n for one in found[point.id]))
    return f"{render.dense(table)}\n\nWithout a number, each with the reason: {none}."


def anchor(point: Point) -> str:
    """Where a point stands on the page; it stays when the title changes."""
    return f"erratum-{point.id}"


def _largest(effects: Sequence[Effect], scenario: str) -> str:
    here = [one for one in effects if one.scenario == scenario]
    if not here:
        return ""
    one = max(here, key=lambda one: one.size)
    who = "" if one.method == "cm" else f"{METHODS[one.method].title} "
    several = f"<br>{_setting(one)}, largest of {len(here)}" if len(here) > 1 else ""
    return f"{scenario.upper()}: {who}{one.told('accuracy')} ({one.runs}){several}"


def _setting(one: Effect) -> str:
    return " ".join(f"`{option}`" for option in one.variant.split(","))


def effects_alone(profile: str) -> str:
    """The effects of the committed runs of one profile as a Markdown list; what has not run is left out."""
    found = measure(profile, [committed()])
    titles = {0: "Many at once", **{point.id: f"{point.title} ({point.id})" for point in load()}}
    lines = [
        _measured(title, made, [f"{one.name}: {one.numbers}" for one in made])
        for number, title in titles.items()
        if (made := [one for one in found[number] if one.n or one.stopped])
    ]
    return "\n\n".join(lines) or NOT_RUN


def _effect_lines(point: Point, effects: Sequence[Effect]) -> list[str]:
    """A line an effect; or why there is none."""
    if not point.cells:
        return [f"none: {point.why}"]  # no number, and the reason
    if len(effects) > MANY and all(one.numbers == NOT_RUN for one in effects):
        return [f"{len(effects)} settings: {NOT_RUN}"]
    return [f"{one.name}: {one.numbers}" for one in effects] or [LACKING]


def _at(who: str, where: str) -> str:
    return f"{who} ({where})" if where else who


def _text(profile: str, found: Mapping[int, Sequence[Effect]]) -> str:
    blocks = [f"{len(load())} points where paper and released code part. Profile {profile}.\n{HOW}"]
    for point in load():
        lines = [
            f"{point.id}. {point.title} [{point.kind}]",
            f"  {_at('paper', point.where)}: {point.text}",
            f"  {_at('code', point.file)}: {point.code}",
            f"  here: {point.ours}",
            *(f"  option: {option}" for option in point.options),
            *(f"  effect: {line}" for line in _effect_lines(point, found[point.id])),
        ]
        blocks.append("\n".join(lines))
    together = [f"  effect: {one.name}: {one.numbers}" for one in found[0]] or [f"  effect: {LACKING}"]
    return "\n\n".join([*blocks, "\n".join(["Many at once: the presets", *together])])


def _markdown(profile: str, found: Mapping[int, Sequence[Effect]]) -> str:
    """A section a class, a definition list a point: nothing wider than a phone."""
    parts = [f"{HOW} Profile `{profile}`."]
    for kind, heading in CLASSES.items():
        parts.append(f"## {heading}")
        parts += [_section(point, found[point.id]) for point in load() if point.kind == kind]
    together = [f"{one.name}: {one.numbers}" for one in found[0]] or [LACKING]
    return "\n\n".join([*parts, "## Many at once", _measured("Measured", found[0], together)])


def _section(point: Point, effects: Sequence[Effect]) -> str:
    readings = ", ".join(f"`{option}`" for option in point.options)
    entries = [
        _defined(_at("The paper", point.where), [point.text]),
        _defined(_at("The code", point.file.replace("*", r"\*")), [point.code]),
        _defined("Here", [point.ours]),
        *([_defined("Other readings", [readings])] if readings else []),
        _measured("Measured", effects, _effect_lines(point, effects)),
    ]
    return "\n\n".join([f"({anchor(point)})=\n### {point.id}. {point.title}", *entries])


def _measured(term: str, effects: Sequence[Effect], lines: Sequence[str]) -> str:
    """The effects of a point on a page: a few in lines, more in a table."""
    if sum(one.n > 0 for one in effects) <= FEW:
        return _defined(term, lines)
    rows = [[f"{one.who} {_setting(one)}", *map(one.told, METRICS), one.runs] for one in effects]
    table = render.dense(render.markdown(["", *METRICS, "runs"], rows, numbers=3))
    return f"{term}\n: " + table.replace("\n", "\n  ")


def _defined(term: str, definitions: Sequence[str]) -> str:
    return f"{term}\n" + "\n".join(f": {one}\n" for one in definitions).rstrip("\n")


def _json(profile: str, found: Mapping[int, Sequence[Effect]]) -> str:
    """{profile, errata: [...], presets: [...]}; a number that is not there is null."""

    def plain(one: Effect) -> dict[str, Any]:
        told = {metric: {"mean": one.mean(metric), "sd": one.sd(metric), "n": one.n} for metric in METRICS}
        place = {name: getattr(one, name) for name in ("dataset", "scenario", "method", "variant")}
        return {**place, "seeds": list(one.seeds), **told, "stopped": one.stopped, "unpaired": one.unpaired}

    listed = []
    for point in load():
        content = {"class" if name == "kind" else name: value for name, value in asdict(point).items()}
        listed.append({**content, "effects": [plain(one) for one in found[point.id]]})
    whole = {"profile": profile, "errata": listed, "presets": [plain(one) for one in found[0]]}
    return json.dumps(whole, allow_nan=False, ensure_ascii=False)


FORMATS: dict[str, Callable[[str, Mapping[int, Sequence[Effect]]], str]] = {"text": _text, "md": _markdown, "json": _json}
