"""The paper's empirical sentences, each with a test that decides it: on the paper's printed numbers, and on our runs.

`judge("digits", stores)` judges, `written(judged, "digits")` prints. The sentences stand in `printed/claims.toml`, each with the
rule of `claim_rules` that decides it and the numbers the rule looks at. A number is named by a label, `method [scenario]
[variant] [@table] [~options]`: `cm`, `er til`, `naive @1`, `cm merging=none`. The variant is the paper's, whatever stands in its
place in our profile.
"""

from __future__ import annotations

import json
import math
import statistics
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from cmlib.errors import check_name
from cmlib.experiment import Experiment
from cmlib.methods import METHODS
from cmlib.profiles import PROFILES
from cmlib.reproduction import grids, paper, render, snapshots, tables
from cmlib.reproduction.claim_rules import NARROWED, RULES, SPACES, Measure, Outcome, View, mean_text, title
from cmlib.reproduction.paper import Place
from cmlib.reproduction.snapshots import moved
from cmlib.reproduction.tables import ENOUGH, TOO_FEW, Found
from cmlib.store import Run, Store

FILE = Path(__file__).with_name("printed") / "claims.toml"
HOLDS, FAILS, UNDECIDED, NOT_RUN = "holds", "does not hold", "cannot be decided here", render.NOT_RUN
VERDICTS = (FAILS, UNDECIDED, NOT_RUN, TOO_FEW, HOLDS)  # the first that one column gives is that of the sentence
LISTED = 5  # missing numbers named in a line
TIMES = ("time", "growth")  # mean over the tasks of the ratios of table 2; that of the last task over that of the first

# -- sentences -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """One sentence: at most 25 words of it, where it stands, and what decides it.

    It is tested on data sets (all of the table's when `datasets` is empty) x `scenarios`. own_data: why no other data set
    decides it. seeds: whether three runs of everything are needed. options: ours, by name and profile, for a label with `~`.
    said: the paper's numbers when it gives them in no table. paper_cannot: why the paper's numbers do not decide it.
    """

    name: str
    quote: str
    where: str
    rule: str
    with_: Mapping[str, Any]
    table: int
    scenarios: Sequence[str]
    metric: str = "accuracy"
    datasets: Sequence[str] = ()
    own_data: str = ""
    seeds: bool = True
    options: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    said: Mapping[str, float] = field(default_factory=dict)
    paper_cannot: str = ""
    note: str = ""


def load() -> list[Claim]:
    """Every sentence, in the order of the paper."""
    entries = tomllib.loads(FILE.read_text(encoding="utf-8"))["claims"]
    return [Claim(**{"with_" if key == "with" else key: value for key, value in entry.items()}) for entry in entries]


@dataclass(frozen=True)
class Label:
    """What a label names: a method, in which scenario (None: the column's), table, the paper's variant, options of ours."""

    method: str
    scenario: str | None
    variant: str
    table: int
    extra: str


def parse(label: str, table: int) -> Label:
    """`er til`, `cm merging=none @3` -> its parts; OptionError for an unknown method."""
    method, *words = label.split()
    check_name("method", method, METHODS)
    scenario = next((word for word in words if word in ("til", "cil")), None)
    variant = next((word for word in words if "=" in word), "")
    number = next((int(word[1:]) for word in words if word.startswith("@")), table)
    return Label(method, scenario, variant, number, next((word[1:] for word in words if word.startswith("~")), ""))


# -- numbers -------------------------------------------------------------------------------------------------------------


def printed(claim: Claim, dataset: str, scenario: str, label: str, metric: str) -> Measure:
    """What the paper prints for a label; without a mean where it prints nothing."""
    if claim.said:
        return Measure(label, metric, claim.said.get(label, math.nan), n=None)
    what = parse(label, claim.table)
    kind = what.scenario or scenario
    if metric in TIMES or metric.startswith("ratio_task"):
        return _time(_printed_times(), "paper", label, metric, dataset, what.method, kind)
    place = Place(dataset, kind, what.method, what.variant, metric)
    value = paper.printed_table(what.table).get(place)
    if value is None:
        return Measure(label, metric)
    doubt = paper.inconsistencies(what.table).get(place, "")
    return Measure(label, metric, value.mean, value.std, paper.RUNS.get(what.table), doubt=doubt)


@cache
def _printed_times() -> list[tables.Row]:
    return [row for row in tables.table(2, "paper", []).rows if row.paper is not None]


def _time(times: Iterable[tables.Row], side: str, label: str, metric: str, dataset: str, method: str, scenario: str) -> Measure:
    """A time of table 2 as ratios to Naive's first task. side: whose, `paper` or `ours`"""
    rows = [row for row in times if (row.dataset, row.method) == (dataset, method) and row.scenario in (scenario, "til-cil")]
    ratios = [ratio for row in rows if (ratio := getattr(row, side)) is not None]
    if not ratios or len(ratios) < len(rows):
        return Measure(label, metric)
    return Measure(label, metric, _of_times(ratios, metric), n=None if side == "paper" else min(row.n for row in rows))


def _of_times(ratios: Sequence[float], metric: str) -> float:
    """`time`, `growth` or `ratio_task1`, ... from the ratios task by task."""
    if metric == "time":
        return statistics.fmean(ratios)
    return ratios[-1] / ratios[0] if metric == "growth" else ratios[int(metric.removeprefix("ratio_task")) - 1]


class OurRuns:
    """The same numbers from the runs of some stores, in one profile."""

    def __init__(self, stores: Iterable[Store], profile: str) -> None:
        self.stores, self.profile = list(stores), profile
        self.found = Found(self.stores, profile)

    def __call__(self, claim: Claim, dataset: str, scenario: str, label: str, metric: str) -> Measure:
        what = parse(label, claim.table)
        kind = what.scenario or scenario
        if metric in TIMES or metric.startswith("ratio_task"):
            return _time(self._times, "ours", label, metric, dataset, what.method, kind)
        experiment, variant = self.place(claim, dataset, kind, what)
        ours = title(f"{what.method} {variant}") if variant != what.variant else ""
        ended, stopped, _ = self.found.of(experiment)
        measured = {run.seed: self._value(run, metric) for run in ended}
        values = {seed: value for seed, value in measured.items() if value is not None}
        if not values:
            return Measure(label, metric, stopped=stopped, ours=ours)
        sd = render.deviation(list(values.values()))
        return Measure(label, metric, statistics.fmean(values.values()), sd, len(values), values, stopped, ours=ours)

    def place(self, claim: Claim, dataset: str, scenario: str, what: Label) -> tuple[Experiment, str]:
        """What is run for a label in this profile (seed 0), and our variant there."""
        if what.extra:
            options = claim.options[what.extra][self.profile]
            variant = ",".join(f"{name}={value}" for name, value in options.items())
            return Experiment(dataset, scenario, what.method, 0, self.profile, **options), variant
        for cell in grids.load(f"table{what.table}").cells(self.profile):
            place = (cell.dataset, cell.scenario, cell.method, cell.printed)
            if not cell.also and place == (dataset, scenario, what.method, what.variant):
                return cell.experiments(self.profile)[0], cell.variant
        raise ValueError(f"{claim.name}: table {what.table} has no place for {what} on {dataset} {scenario}")

    def _value(self, run: Run, metric: str) -> float | None:
        if metric in SPACES:
            return self._moved(run, metric)
        return float(run.retained_scalars) if metric == "retained" else tables.measured(run, metric)

    def _moved(self, run: Run, metric: str) -> float | None:
        """From the snapshots beside a run, if it has some."""
        experiment = Experiment.of(run.experiment)
        for store in self.stores:
            path = store.path(experiment, run.data["digest"]).with_suffix(f".{metric.removeprefix('moved_')}.npz")
            if path.is_file():
                return moved(snapshots.read(path), metric == "moved_merged")
        return None

    @cached_property
    def _times(self) -> list[tables.Row]:
        return tables.table(2, self.profile, self.stores).rows


def rule_text(claim: Claim) -> str:
    """A claim's rule in one sentence, its limits filled in."""
    text = (RULES[claim.rule].__doc__ or "").strip().splitlines()[0]
    for name in ("within", "share", "limit"):
        text = text.replace(name.upper(), f"{claim.with_.get(name, 0):g}")
    return text


# -- judging -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A rule on one data set and scenario. so_far: what it would be whatever the number of runs; None where nothing is said."""

    dataset: str
    scenario: str
    verdict: str
    so_far: bool | None
    why: str
    numbers: Sequence[Measure]


@dataclass(frozen=True)
class Side:
    """A sentence on the paper's numbers, or on ours."""

    verdict: str
    reason: str
    columns: Sequence[Column]


@dataclass(frozen=True)
class Judged:
    """A sentence with both verdicts."""

    claim: Claim
    paper: Side
    ours: Side


def judge(profile: str, stores: Iterable[Store]) -> list[Judged]:
    """Every sentence on the paper's own numbers and on the runs of one profile; OptionError for an unknown profile."""
    check_name("profile", profile, PROFILES)
    ours = OurRuns(stores, profile)
    return [Judged(claim, on_paper(claim), on_runs(claim, ours)) for claim in load()]


def show(profile: str, form: str = "text", folder: str | Path | None = None) -> str:
    """What `cmlib claims` prints; OptionError for an unknown profile or format, StoreError for a folder that is no store."""
    check_name("format", form, FORMATS)
    return written(judge(profile, tables.stores_of(folder)), profile, form)


def datasets_of(claim: Claim, profile: str) -> list[str]:
    """The data sets on which a sentence is tested in a profile: those of its table, in `paper` those it is about."""
    names = grids.load(f"table{claim.table}").datasets[profile]
    return [name for name in names if profile != "paper" or not claim.datasets or name in claim.datasets]


def on_paper(claim: Claim) -> Side:
    """The verdict of the paper's own numbers."""
    if claim.paper_cannot:
        return Side(UNDECIDED, claim.paper_cannot, ())
    views = [View(claim, dataset, kind, printed) for dataset in datasets_of(claim, "paper") for kind in claim.scenarios]
    return _side([_column(view, True) for view in views])


def on_runs(claim: Claim, ours: OurRuns) -> Side:
    """The verdict of our runs."""
    names = datasets_of(claim, ours.profile)
    if claim.own_data and not set(names) & set(claim.datasets):
        return Side(UNDECIDED, f"other data set than {', '.join(claim.datasets)}: {claim.own_data}", ())
    views = [View(claim, dataset, kind, ours) for dataset in names for kind in claim.scenarios]
    return _side([_column(view, False) for view in views])


def _side(columns: Sequence[Column]) -> Side:
    verdicts = {column.verdict for column in columns}
    return Side(next(one for one in VERDICTS if one in verdicts), "", columns)


def _column(view: View, of_paper: bool) -> Column:
    """A claim on one data set and scenario. What fails with the runs there are fails, whatever else is missing."""
    claim, place = view.claim, (view.dataset, view.scenario)
    outcome = RULES[claim.rule](view, **claim.with_)
    used = list(view.used.values())
    settled = not any(_short(claim, one, of_paper) for one in used)
    if not settled and (narrow := _narrowed(view, of_paper)) and not narrow.holds:
        settled, outcome = True, narrow
    absent = [one for one in used if one.absent and not (claim.rule == "fails" and one.stopped)]
    if settled or not absent:
        verdict = (HOLDS if outcome.holds else FAILS) if settled else TOO_FEW
        return Column(*place, verdict, outcome.holds, outcome.why, used)
    verdict, why = _absence(absent, of_paper)
    return Column(*place, verdict, None, why, used)


def _short(claim: Claim, one: Measure, of_paper: bool) -> bool:
    """Whether a number is absent or comes from too few runs."""
    halted = one.stopped if claim.rule == "fails" else 0
    if one.absent and not halted:
        return True
    return not of_paper and claim.seeds and one.n is not None and one.n + halted < ENOUGH


def _narrowed(view: View, of_paper: bool) -> Outcome | None:
    """The rule on those parts alone that have enough runs; None where that cannot be said or nothing is left."""
    claim = view.claim
    if claim.rule not in NARROWED:
        return None
    name = NARROWED[claim.rule]
    parts = [label for label in claim.with_[name] if not _short(claim, view(label), of_paper)]
    fixed = [view(claim.with_[key]) for key in ("first", "low", "high") if key in claim.with_]
    if not parts or any(_short(claim, one, of_paper) for one in fixed):
        return None
    return RULES[claim.rule](view, **{**claim.with_, name: parts})


def _absence(absent: Sequence[Measure], of_paper: bool) -> tuple[str, str]:
    """Verdict of a column without some of its numbers, and why."""
    if of_paper:
        return UNDECIDED, f"the paper prints no {absent[0].metric} of {absent[0].name}"
    halted = [one for one in absent if one.stopped]
    if halted:
        return UNDECIDED, f"every run of {halted[0].name} stopped: its loss was not finite"
    names = list(dict.fromkeys(one.name + (f" ({one.metric})" if one.metric in SPACES else "") for one in absent))
    rest = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return NOT_RUN, f"missing: {', '.join(names[:LISTED])}{rest}"


# -- printing ------------------------------------------------------------------------------------------------------------


def written(judged: Sequence[Judged], profile: str, form: str = "text") -> str:
    """All sentences as `text`, `md` or `json`; OptionError for another format."""
    return FORMATS[check_name("format", form, FORMATS)](judged, profile)


def number_text(one: Measure, usual: str) -> str:
    """`CM 92.72 ± 1.33 (n 5)`, with the metric where it is not the claim's usual one."""
    metric = f" {one.metric}" if one.metric != usual else ""
    if one.absent:
        return f"{one.name}{metric} -" + (f" ({one.stopped} stopped)" if one.stopped else "")
    spread = f" ± {one.sd:.2f}" if one.sd else ""
    said = [*([f"n {one.n}"] if one.n is not None else []), *([f"{one.stopped} stopped"] if one.stopped else [])]
    doubt = "!" if one.doubt else ""
    return f"{one.name}{metric} {mean_text(one)}{doubt}{spread}" + (f" ({', '.join(said)})" if said else "")


def _lines(side: Side, usual: str) -> list[str]:
    """A line a column: its verdict, why, and the numbers it rests on."""
    lines = []
    for column in side.columns:
        so_far = "" if column.verdict != TOO_FEW else f", so far it {HOLDS if column.so_far else FAILS}"
        numbers = ", ".join(number_text(one, usual) for one in column.numbers if one.stopped or not one.absent)
        lines.append(f"{column.dataset} {column.scenario.upper()}: {column.verdict}{so_far}; {column.why}. {numbers}".rstrip())
    return lines


def _doubts(side: Side) -> list[str]:
    """What is wrong with printed numbers the verdict rests on."""
    return list(dict.fromkeys(one.doubt for column in side.columns for one in column.numbers if one.doubt))


def _verdict(side: Side) -> str:
    return f"{side.verdict}: {side.reason}" if side.reason else side.verdict


def _head(judged: Sequence[Judged], profile: str) -> list[str]:
    data = sorted({name for one in judged for name in datasets_of(one.claim, profile)})
    counts = [
        f"{who}: " + ", ".join(f"{n} {word}" for word in reversed(VERDICTS) if (n := sum(side.verdict == word for side in sides)))
        for who, sides in (("The paper's own numbers", [j.paper for j in judged]), ("Our runs", [j.ours for j in judged]))
    ]
    scale = "" if profile == "paper" else "; data or scale are not the paper's, so a verdict is about these runs alone"
    return [f"{len(judged)} sentences of the paper. Profile {profile}, {', '.join(data)}{scale}.", *(f"{one}." for one in counts)]


def _text(judged: Sequence[Judged], profile: str) -> str:
    blocks = ["\n".join([*_head(judged, profile), NUMBERS])]
    for claim, theirs, ours in ((one.claim, one.paper, one.ours) for one in judged):
        lines = [f'{claim.name}: "{claim.quote}" ({claim.where})', f"  test, {claim.metric}: {rule_text(claim)}"]
        for who, side in (("paper's own numbers", theirs), (f"ours, {profile}", ours)):
            lines += [f"  {who}: {_verdict(side)}", *(f"    {line}" for line in _lines(side, claim.metric))]
            lines += [f"    ! {doubt}" for doubt in _doubts(side)]
        blocks.append("\n".join([*lines, *([f"  note: {claim.note}"] if claim.note else [])]))
    return "\n\n".join(blocks)


NUMBERS = "n: runs; ±: standard deviation of the population. !: a printed number that cannot be what it says."


def _markdown(judged: Sequence[Judged], profile: str) -> str:
    header = ["sentence", "where", "test", "paper's own numbers", f"ours, {profile}", "the numbers"]
    rows = []
    for claim, theirs, ours in ((one.claim, one.paper, one.ours) for one in judged):
        numbers = [f"paper, {line}" for line in _lines(theirs, claim.metric)]
        numbers += [f"! {doubt}" for doubt in _doubts(theirs)] + [f"ours, {line}" for line in _lines(ours, claim.metric)]
        numbers += [claim.note] if claim.note else []
        test = f"{claim.metric}: {rule_text(claim)}"
        quote = f'"{claim.quote}"'
        rows.append([quote, claim.where, test, _verdict(theirs), _verdict(ours), "<br>".join(numbers)])
    return "\n\n".join([*_head(judged, profile), render.markdown(header, rows), NUMBERS])


def _json(judged: Sequence[Judged], profile: str) -> str:
    """{profile, claims: [...]}; a number that is not there is null."""
    claims = []
    for one in judged:
        claim = {name: getattr(one.claim, name) for name in ("name", "quote", "where", "rule", "metric", "note")}
        sides = {"paper": asdict(one.paper), "ours": asdict(one.ours)}
        claims.append({**claim, "test": rule_text(one.claim), **sides})
    return json.dumps(_finite({"profile": profile, "claims": claims}), allow_nan=False, ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


FORMATS: dict[str, Callable[[Sequence[Judged], str], str]] = {"text": _text, "md": _markdown, "json": _json}
