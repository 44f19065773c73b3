"""The fair fight: every method chooses among as many settings on the validation split; the chosen one alone is then tested.

What a method may choose from, and in how many runs, is the file `fair.toml`; a method's place in it is a `Search`. The setting
with the highest mean accuracy on validation images wins, the earlier one of two that are equal; one of whose runs stopped loses.
Until all runs of a search are there it chooses nothing, so no run on test images exists but those of chosen settings and those
of the profile's own. `make` makes what is missing, `table` shows it.
"""

from __future__ import annotations

import statistics
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from cmlib.errors import check_name
from cmlib.experiment import Experiment
from cmlib.reproduction import sweep
from cmlib.reproduction.sweep import Report
from cmlib.reproduction.tables import Found
from cmlib.store import FINISHED, Run, Store, committed, default_folder, one_copy
from cmlib.experiment import key

NAME = "fair"  # among the grids of `cmlib sweep` and `cmlib table`
FILE = Path(__file__).with_name("fair.toml")
METRICS = ("accuracy", "bwt_final")

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
        """How many of `of` runs on validation images are there; stopped ones count."""
        return sum(run is not None for runs in self.tried for run in runs)

    @property
    def of(self) -> int:
        """How many runs on validation images there are to be."""
        return len(self.search.settings) * len(self.search.choose)

    @cached_property
    def choice(self) -> int | None:
        """The place of the chosen setting in its list; None while runs are missing, and where every setting stopped."""
        return choose([[_accuracy(run) for run in runs] for runs in self.tried]) if self.done == self.of else None

    @property
    def chosen(self) -> Setting | None:
        """The chosen setting."""
        return None if self.choice is None else self.search.settings[self.choice]

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
    means = [-1.0 if None in values else statistics.fmean(value for value in values if value is not None) for values in accuracies]
    best = max(means, default=-1.0)
    return means.index(best) if best >= 0 else None


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
    for search in searches(profile):
        for wanted in (search.choosing, None):
            if wanted is None:
                chosen = Outcome(search, Found([Store(folder), committed()], profile)).chosen
                if chosen is None:
                    break
                wanted = search.testing(chosen)
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= sweep.CLOSING:
                total.left, total.why = total.left + len(wanted), "the budget is spent"
                continue
            part = sweep.sweep(wanted, folder, data_root, jobs, backend, left, f"{NAME} {profile} {search.label}", device)
            total = _sum(total, part)
    return total


def _sum(a: Report, b: Report) -> Report:
    """Two reports as one."""
    return Report(
        a.found + b.found, a.made + b.made, a.elsewhere + b.elsewhere, a.left + b.left,
        {**a.failed, **b.failed}, {**a.stopped, **b.stopped}, a.why or b.why,
    )  # fmt: skip


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
        wanted = [run for one in outcomes(profile, (shelf, committed())) for run in _wanted(one)]
        print(sweep.preview(wanted, shelf, jobs, device))
        return 0
    report = make(profile, shelf.folder, data_root, jobs, backend, budget, device)
    print(report.text())
    return int(bool(report.failed))


def _wanted(outcome: Outcome) -> list[Experiment]:
    """What a search asks for, as far as that is known by now."""
    return outcome.search.choosing + (outcome.search.testing(outcome.chosen) if outcome.chosen is not None else [])
