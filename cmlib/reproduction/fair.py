"""The fair fight: every method chooses among as many settings on the validation split; the chosen one alone is then tested.

What a method may choose from, and in how many runs, is the file `fair.toml`; a method's place in it is a `Search`. The setting
with the highest mean accuracy on validation images wins, the earlier one of two that are equal; one of whose runs stopped loses.
Until all runs of a search are there it chooses nothing. So a setting that was not chosen is never tested here, and what it has
reached on test images elsewhere, in a table of the paper, is not looked at. `make` makes what is missing, `table` shows it.
"""

from __future__ import annotations

import json
import statistics
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from cmlib.errors import check_name
from cmlib.experiment import Experiment, key
from cmlib.methods import METHODS
from cmlib.reproduction import grids, render, sweep
from cmlib.reproduction.paper import gaps
from cmlib.reproduction.render import NOT_RUN
from cmlib.reproduction.sweep import Report
from cmlib.reproduction.tables import FORMATS, Found
from cmlib.store import FINISHED, Run, Store, committed, default_folder, one_copy

NAME = "fair"  # among the grids of `cmlib sweep` and the tables of `cmlib table`
FILE = Path(__file__).with_name("fair.toml")
SHOWN = ("digits", "mini")  # the profiles whose tables the book has
BASIS = "cm"  # the method that the others are set beside
DEFAULT = "the profile's"  # the first setting of every method, in a table

Setting = Mapping[str, Any]


@dataclass(frozen=True)
class Search:
    """What one method in one scenario may choose from, and the seeds that choose and test.

    memory: options that give it as many exemplars as the others have; they hold for every setting.
    """

    profile: str
    dataset: str
    scenario: str
    method: str
    settings: Sequence[Setting]
    memory: Setting
    choose: Sequence[int]
    test: Sequence[int]

    @property
    def label(self) -> str:
        """`cil er`, as the file and the command line call it."""
        return f"{self.scenario} {self.method}"

    def experiment(self, setting: Setting, seed: int, split: str) -> Experiment:
        """One run of a setting; split: `val` or `test`."""
        options = {**self.memory, **setting, "eval_split": split}
        return Experiment(self.dataset, self.scenario, self.method, seed, self.profile, **options)

    @property
    def choosing(self) -> list[Experiment]:
        """The runs on validation images, setting by setting."""
        return [self.experiment(setting, seed, "val") for setting in self.settings for seed in self.choose]

    def testing(self, setting: Setting) -> list[Experiment]:
        """The runs on test images of the setting that was chosen."""
        return [self.experiment(setting, seed, "test") for seed in self.test]

    @property
    def default(self) -> list[Experiment]:
        """The profile's own runs, which this is set beside: on test images, with the profile's own exemplars."""
        return [Experiment(self.dataset, self.scenario, self.method, seed, self.profile) for seed in self.test]


@cache
def searches(profile: str) -> tuple[Search, ...]:
    """Every method's search in one profile, in the order in which they are made; OptionError for a profile without any."""
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    plan = content["profiles"][check_name("profile", profile, content["profiles"])]
    made = []
    for label in plan["order"]:
        scenario, method = label.split()
        settings = content["settings"][scenario][method][: plan["settings"]]
        memory = plan.get("memory", {}).get(label, {})
        made.append(Search(profile, plan["dataset"], scenario, method, settings, memory, plan["choose"], plan["test"]))
    return tuple(made)


# -- the choice ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What is there of one search. Looked up as it is made: runs on validation images first, then those of the choice."""

    search: Search
    found: Found

    @cached_property
    def tried(self) -> list[list[Run | None]]:
        """The runs on validation images: a list a setting, a run a seed, None where it is missing."""
        search = self.search
        return [[self._run(search.experiment(one, seed, "val")) for seed in search.choose] for one in search.settings]

    @property
    def done(self) -> int:
        """How many of `wanted` runs on validation images are there; stopped ones count."""
        return sum(run is not None for runs in self.tried for run in runs)

    @property
    def wanted(self) -> int:
        """How many runs on validation images there are to be."""
        return len(self.search.settings) * len(self.search.choose)

    @cached_property
    def choice(self) -> int | None:
        """The place of the chosen setting in its list; None while runs are missing, and where every setting stopped."""
        return choose([[_accuracy(run) for run in runs] for runs in self.tried]) if self.done == self.wanted else None

    @property
    def chosen(self) -> Setting | None:
        """The chosen setting."""
        return None if self.choice is None else self.search.settings[self.choice]

    @property
    def setting(self) -> str | None:
        """The chosen setting in words: `lam=1.0, head=linear`."""
        words = ", ".join(f"{name}={str(value).lower()}" for name, value in (self.chosen or {}).items())
        return None if self.chosen is None else words or DEFAULT

    @property
    def validated(self) -> list[Run]:
        """The runs on validation images of the chosen setting."""
        return [] if self.choice is None else [run for run in self.tried[self.choice] if run]

    @cached_property
    def tested(self) -> list[Run]:
        """The runs on test images of the chosen setting, by seed."""
        return [] if self.chosen is None else self._runs(self.search.testing(self.chosen))

    @cached_property
    def default(self) -> list[Run]:
        """The runs on test images of the profile's own setting, by seed."""
        return self._runs(self.search.default)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be made."""
        return len(self.tested) == len(self.search.test)

    def _runs(self, experiments: Iterable[Experiment]) -> list[Run]:
        return [run for one in experiments if (run := self._run(one)) and run.status == FINISHED]

    def _run(self, experiment: Experiment) -> Run | None:
        made = self.found.runs.get(key(experiment.to_dict(), seed=False), {}).values()
        return next((run for run in one_copy(made)[0] if run.seed == experiment.seed), None)


def _accuracy(run: Run | None) -> float | None:
    return run.accuracy if run and run.status == FINISHED else None


def choose(accuracies: Sequence[Sequence[float | None]]) -> int | None:
    """The setting with the highest mean accuracy, the first of several; None in it is a run that stopped, and it loses."""
    whole = {i: statistics.fmean(v for v in values if v is not None) for i, values in enumerate(accuracies) if None not in values}
    return max(whole, key=lambda i: whole[i], default=None)  # of equal ones the first


def outcomes(profile: str, stores: Iterable[Store]) -> list[Outcome]:
    """What is there of every search of a profile."""
    found = Found(stores, profile)
    return [Outcome(search, found) for search in searches(profile)]


# -- making it -----------------------------------------------------------------------------------------------------------


def make(
    profile: str,
    store: str | Path | None = None,
    data_root: str | None = None,
    jobs: int | None = None,
    backend: str = "loky",
    budget: float | None = None,
    device: str = "auto",
) -> Report:
    """Make what is missing, search by search: its runs on validation images, then the chosen setting's on test images.

    The arguments are those of `sweep.sweep`; what is already there is passed over, so the same call continues.
    """
    folder, total = Path(store or default_folder()), Report()
    end = None if budget is None else time.monotonic() + budget

    def part(search: Search, wanted: Sequence[Experiment]) -> Report:
        left = None if end is None else max(1e-3, end - time.monotonic())
        return sweep.sweep(wanted, folder, data_root, jobs, backend, left, f"{NAME} {profile} {search.label}", device)

    for search in searches(profile):
        total = _sum(total, part(search, search.choosing))
        total = _sum(total, part(search, testing(search, (Store(folder), committed()))))
    return total


def testing(search: Search, stores: Iterable[Store]) -> list[Experiment]:
    """The runs on test images that a search asks for by now: of the chosen setting, then of the profile's; none before that."""
    chosen = Outcome(search, Found(stores, search.profile)).chosen
    return [] if chosen is None else grids.once(search.testing(chosen) + search.default)


def _sum(a: Report, b: Report) -> Report:
    """Two reports as one."""
    return Report(
        a.found + b.found, a.made + b.made, a.elsewhere + b.elsewhere, a.left + b.left,
        {**a.failed, **b.failed}, {**a.stopped, **b.stopped}, a.why or b.why,
    )  # fmt: skip


# -- the table -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One method in one scenario: accuracies in percent, BWT after the last task in points, a value a run.

    done, wanted: runs on validation images. setting: the chosen one. validated, tuned: it on validation and on test images.
    usual: the profile's own setting on test images. gap, usual_gap: CM's accuracy minus this one's, for the seeds of both.
    """

    profile: str
    scenario: str
    method: str
    done: int
    wanted: int
    setting: str | None
    validated: list[float]
    tuned: list[float]
    tuned_bwt: list[float]
    gap: list[float]
    usual: list[float]
    usual_bwt: list[float]
    usual_gap: list[float]

    def flat(self) -> dict[str, Any]:
        """Its fields; of values their mean as `tuned`, population standard deviation as `tuned_sd`, number as `tuned_n`."""
        content: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, list):
                content |= {name: render.mean(value), f"{name}_sd": render.deviation(value), f"{name}_n": len(value)}
            else:
                content[name] = value
        return content


def table(profile: str, stores: Iterable[Store]) -> list[Row]:
    """The rows of one profile, TIL before CIL, each with CM on top; OptionError for a profile without a search."""
    made = outcomes(profile, stores)
    basis = {one.search.scenario: one for one in made if one.search.method == BASIS}
    made = sorted(made, key=lambda one: (one.search.scenario == "cil", one.search.method != BASIS))
    return [_row(one, basis[one.search.scenario]) for one in made]


def _row(one: Outcome, basis: Outcome) -> Row:
    search, itself = one.search, one is basis
    return Row(
        profile=search.profile,
        scenario=search.scenario,
        method=search.method,
        done=one.done,
        wanted=one.wanted,
        setting=one.setting,
        validated=[run.accuracy for run in one.validated],
        tuned=[run.accuracy for run in one.tested],
        tuned_bwt=[run.bwt_final for run in one.tested],
        gap=[] if itself else gaps(basis.tested, one.tested),
        usual=[run.accuracy for run in one.default],
        usual_bwt=[run.bwt_final for run in one.default],
        usual_gap=[] if itself else gaps(basis.default, one.default),
    )


# -- printing ------------------------------------------------------------------------------------------------------------

HEADER = (
    *("method", "chosen setting", "on validation images", "tuned alike", "BWT", "CM minus it"),
    *("profile's setting", "BWT", "CM minus it"),
)


def show(rows: Sequence[Row], form: str = "text") -> str:
    """A table as `text`, `md`, `csv`, `latex` or `json`; OptionError for another format."""
    check_name("format", form, FORMATS)
    title, notes, flat = _title(rows), _notes(rows), [row.flat() for row in rows]
    if form == "json":
        return json.dumps({"table": NAME, "title": title, "notes": notes, "rows": flat}, allow_nan=False, ensure_ascii=False)
    if form == "csv":
        return render.csv(flat).rstrip("\n")
    if form == "md":
        return "\n\n".join([title, *by_scenario(rows), *notes])
    return render.page(form, [title], (["", *HEADER], [[row.scenario.upper(), *_line(row)] for row in rows]), notes)


def block(store: Store) -> str:
    """For a page: of each profile one table a scenario and what it rests on; in a line, where no search is complete."""
    blocks = []
    for profile in SHOWN:
        rows = table(profile, [store])
        if any(row.done == row.wanted for row in rows):
            blocks += [render.dense(one) if one[0] == "|" else one for one in by_scenario(rows)] + _notes(rows)
        else:
            blocks.append(f"Profile `{profile}`: 0 of {len(rows)} searches are complete ({NOT_RUN}).")
    return "\n\n".join(blocks)


def by_scenario(rows: Sequence[Row]) -> list[str]:
    """A heading and a Markdown table for each scenario."""
    blocks, dataset = [], searches(rows[0].profile)[0].dataset
    where = dataset if dataset == rows[0].profile else f"{dataset}, profile {rows[0].profile}"
    for scenario in dict.fromkeys(row.scenario for row in rows):
        lines = [_line(row) for row in rows if row.scenario == scenario]
        blocks += [f"**{scenario.upper()}, {where}**", render.markdown(HEADER, lines, numbers=len(HEADER) - 2)]
    return blocks


def _line(row: Row) -> list[str]:
    open_ = f"{NOT_RUN} ({row.done} of {row.wanted} runs)" if row.done < row.wanted else "all settings stopped"
    absent = NOT_RUN if row.setting or row.done < row.wanted else "-"
    return [
        METHODS[row.method].title,
        row.setting or open_,
        _said(row.validated),
        _said(row.tuned, absent),
        _said(row.tuned_bwt, count=False),
        _said(row.gap),
        _said(row.usual, NOT_RUN),
        _said(row.usual_bwt, count=False),
        _said(row.usual_gap),
    ]


def _said(values: Sequence[float], absent: str = "-", count: bool = True) -> str:
    """`75.90 ± 7.50 (5)`."""
    return render.spread(values) + (f" ({len(values)})" if count else "") if values else absent


def _title(rows: Sequence[Row]) -> str:
    search = searches(rows[0].profile)[0]
    return f"The fair fight: {search.dataset}, profile {search.profile}. Accuracy in percent, BWT in percentage points."


def _notes(rows: Sequence[Row]) -> list[str]:
    """What a reader has to know, a paragraph each."""
    first, done = searches(rows[0].profile)[0], sum(row.done == row.wanted for row in rows)
    seeds = "1 seed" if len(first.choose) == 1 else f"{len(first.choose)} seeds"
    return [
        f"Every method chooses among {len(first.settings)} settings by its mean accuracy on validation images ({seeds}), a fifth "
        f"of the training images that is put aside; the chosen setting alone is tested ({len(first.test)} seeds). "
        "Methods with a memory all hold as many images in it when they are tuned; with the profile's settings some hold more.",
        f"{done} of {len(rows)} searches are complete. Mean ± standard deviation of the population (runs); BWT is `bwt_final`; "
        "differences to CM are paired by seed.",
    ]


# -- from the command line ------------------------------------------------------------------------------------------------


def main(
    profile: str,
    jobs: int | None,
    backend: str,
    budget: float | None,
    store: str | None,
    data_root: str | None,
    dry_run: bool,
    device: str,
) -> int:
    """`cmlib sweep fair`: returns the exit code, 1 when a run failed."""
    shelf = Store(store or default_folder())
    if dry_run:
        sweep.check(shelf, data_root, jobs, backend, budget)
        wanted = [run for one in searches(profile) for run in one.choosing + testing(one, (shelf, committed()))]
        print(sweep.preview(wanted, shelf, jobs, device))
        return 0
    report = make(profile, shelf.folder, data_root, jobs, backend, budget, device)
    print(report.text())
    return int(bool(report.failed))
