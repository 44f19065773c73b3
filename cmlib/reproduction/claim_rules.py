"""The rules that decide the paper's sentences, and the numbers they look at.

A rule asks a `View` for numbers by their labels and says whether it is met. The first line of its docstring is what a reader
gets.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cmlib.methods import METHODS
from cmlib.reproduction.tables import ENOUGH

SPACES = ("moved_task1", "moved_merged")  # from snapshots

# -- numbers -------------------------------------------------------------------------------------------------------------


def title(label: str) -> str:
    """A label as a reader gets it: `CM merging=none`; the table is left out."""
    method, *words = label.split()
    shown = [word.upper() if word in ("til", "cil") else word.lstrip("~") for word in words if not word.startswith("@")]
    return " ".join([METHODS[method].title, *shown])


@dataclass(frozen=True)
class Measure:
    """A number a verdict rests on. mean is NaN where there is none; values by seed are ours alone, n None where unsaid.

    doubt: why the printed number cannot be what it says it is. ours: the label with our options, where these are not the paper's.
    """

    label: str
    metric: str
    mean: float = math.nan
    sd: float | None = None
    n: int | None = 0
    values: Mapping[int, float] = field(default_factory=dict)
    stopped: int = 0
    doubt: str = ""
    ours: str = ""

    @property
    def name(self) -> str:
        """The label as a reader gets it."""
        return self.ours or title(self.label)

    @property
    def absent(self) -> bool:
        """Whether there is no number."""
        return math.isnan(self.mean)


Source = Callable[[Any, str, str, str, str], Measure]  # claim, data set, scenario of the column, label, metric


class View:
    """The numbers of one column, as a rule asks for them; what it asked for stands in `used`."""

    def __init__(self, claim: Any, dataset: str, scenario: str, source: Source) -> None:
        self.claim, self.dataset, self.scenario, self.source = claim, dataset, scenario, source
        self.used: dict[tuple[str, str], Measure] = {}

    def __call__(self, label: str, metric: str = "") -> Measure:
        key = (label, metric or self.claim.metric)
        if key not in self.used:
            self.used[key] = self.source(self.claim, self.dataset, self.scenario, *key)
        return self.used[key]


def mean_text(one: Measure) -> str:
    """A mean with two decimals; scalars as whole numbers."""
    return f"{one.mean:,.0f}" if one.metric == "retained" else f"{one.mean:.2f}"


# -- rules -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Whether a rule is met, and by how much in a few words."""

    holds: bool
    why: str


@dataclass(frozen=True)
class Gap:
    """First minus second: by seed where three seeds or more have both, else of the means; error: of this difference."""

    mean: float
    error: float | None
    seeds: Sequence[float] = ()

    @property
    def text(self) -> str:
        """`+1.20 (above on 3 of 3 seeds)`."""
        ahead = f" (above on {sum(one > 0 for one in self.seeds)} of {len(self.seeds)} seeds)" if self.seeds else ""
        return f"{self.mean:+.2f}{ahead}"


def gap(first: Measure, second: Measure) -> Gap:
    """The difference of two numbers. Its standard error is None where a spread or a number of runs is unknown."""
    both = sorted(first.values.keys() & second.values.keys())
    if len(both) >= ENOUGH:
        differences = [first.values[seed] - second.values[seed] for seed in both]
        error = statistics.pstdev(differences) / math.sqrt(len(both) - 1)
        return Gap(statistics.fmean(differences), error, differences)
    errors = [one.sd / math.sqrt(one.n - 1) for one in (first, second) if one.sd is not None and one.n and one.n > 1]
    return Gap(first.mean - second.mean, math.hypot(*errors) if len(errors) == 2 else None)


def _gaps(view: View, first: str, others: Sequence[str]) -> list[tuple[str, Gap]]:
    return [(other, gap(view(first), view(other))) for other in others]


def best(view: View, first: str, others: Sequence[str]) -> Outcome:
    """The mean is above that of every other (seed by seed where three seeds have both)."""
    other, least = min(_gaps(view, first, others), key=lambda pair: pair[1].mean)
    return Outcome(least.mean > 0, f"{least.text} against {view(other).name}")


def clearly_best(view: View, first: str, others: Sequence[str]) -> Outcome:
    """The mean is above that of every other by more than twice the standard error of the difference (where spreads are known)."""
    other, least = min(_gaps(view, first, others), key=lambda pair: pair[1].mean - 2 * (pair[1].error or 0.0))
    error = "" if least.error is None else f", standard error {least.error:.2f}"
    return Outcome(least.mean > 2 * (least.error or 0.0), f"{least.text} against {view(other).name}{error}")


def lowest(view: View, first: str, others: Sequence[str]) -> Outcome:
    """The mean is below that of every other."""
    one, least = view(first), min((view(label) for label in others), key=lambda other: other.mean)
    return Outcome(one.mean < least.mean, f"{mean_text(one)} against {least.name}'s {mean_text(least)}")


def close_to(view: View, first: str, to: str, within: float) -> Outcome:
    """The mean is at most WITHIN points below the other's."""
    found = gap(view(first), view(to))
    return Outcome(found.mean >= -within, f"{found.text} against {view(to).name}")


def alike(view: View, labels: Sequence[str], within: float) -> Outcome:
    """The highest and the lowest of the means are at most WITHIN points apart."""
    means = [view(label).mean for label in labels]
    return Outcome(max(means) - min(means) <= within, f"{max(means) - min(means):.2f} points apart")


def falls(view: View, labels: Sequence[str]) -> Outcome:
    """Along the grid no mean is above the one before it, and the last is below the first."""
    means = [view(label).mean for label in labels]
    down = all(after <= before for before, after in itertools.pairwise(means))
    return Outcome(down and means[-1] < means[0], " > ".join(f"{mean:.2f}" for mean in means))


def _share(view: View, label: str, low: str, high: str) -> float:
    """Where a mean lies between two others: 0 at the low one, 1 at the high one."""
    bottom, top = view(low).mean, view(high).mean
    return (view(label).mean - bottom) / (top - bottom) if top != bottom else math.nan


def _shares(view: View, methods: Sequence[str], low: str, high: str) -> dict[str, float]:
    return {label: _share(view, label, low, high) for label in methods}


def _told(view: View, shares: Mapping[str, float]) -> str:
    texts = [f"{view(label).name} {round(share, 2) + 0:.2f}" for label, share in shares.items()]
    return f"on the way from Naive (0) to Cumulative (1): {', '.join(texts)}"


def poor(view: View, methods: Sequence[str], low: str, high: str) -> Outcome:
    """Each mean is nearer to Naive's than to Cumulative's."""
    shares = _shares(view, methods, low, high)
    return Outcome(all(share < 0.5 for share in shares.values()), _told(view, shares))


def good(view: View, methods: Sequence[str], low: str, high: str) -> Outcome:
    """Each mean is at least as near to Cumulative's as to Naive's."""
    shares = _shares(view, methods, low, high)
    return Outcome(all(share >= 0.5 for share in shares.values()), _told(view, shares))


def only_good(view: View, methods: Sequence[str], others: Sequence[str], low: str, high: str) -> Outcome:
    """At least one of the methods is nearer to Cumulative than to Naive, and none of the others is."""
    these, those = _shares(view, methods, low, high), _shares(view, others, low, high)
    return Outcome(max(these.values()) >= 0.5 and all(share < 0.5 for share in those.values()), _told(view, {**these, **those}))


def good_then_poor(view: View, methods: Sequence[str]) -> Outcome:
    """Some methods are nearer to Cumulative than to Naive in TIL, and every one of these is nearer to Naive in CIL."""
    able = [one for one in methods if _share(view, f"{one} til", "naive til", "cumulative til") >= 0.5]
    shares = _shares(view, [f"{one} cil" for one in methods], "naive cil", "cumulative cil")
    kept = {label: share for label, share in shares.items() if label.split()[0] in able}
    return Outcome(bool(kept) and all(share < 0.5 for share in kept.values()), "good in TIL, in CIL " + _told(view, kept))


def fails(view: View, label: str, low: str) -> Outcome:
    """The accuracy is no better than Naive's, or every run stopped because its loss was not finite."""
    one, naive = view(label), view(low)
    if one.absent:
        return Outcome(one.stopped > 0, f"{one.stopped} runs stopped")
    return Outcome(one.mean <= naive.mean, f"{gap(one, naive).text} against {view(low).name}")


def stiff(view: View, strong: str, usual: str) -> Outcome:
    """With the greater weight less is forgotten (bwt_final is nearer to 0 or above) and the accuracy is lower."""
    lost, worse = gap(view(strong, "bwt_final"), view(usual, "bwt_final")), gap(view(strong), view(usual))
    return Outcome(lost.mean > 0 and worse.mean < 0, f"bwt_final {lost.text}, accuracy {worse.text}")


def best_but_in(view: View, first: str, others: Sequence[str], tasks: int, task: int) -> Outcome:
    """The accuracy is above every other's on each task but one; on that it is not, and its bwt_final there is the lowest."""
    gaps = {j: _least(view, first, others, f"accuracy_task{j}") for j in range(1, tasks + 1)}
    lost = [view(other, f"bwt_final_task{task}").mean for other in others]
    elsewhere = all(least > 0 for j, least in gaps.items() if j != task)
    there = gaps[task] <= 0 and view(first, f"bwt_final_task{task}").mean < min(lost)
    texts = ", ".join(f"{least:+.2f}" for least in gaps.values())
    return Outcome(elsewhere and there, f"against the best other, task by task: {texts}")


def _least(view: View, first: str, others: Sequence[str], metric: str) -> float:
    return min(gap(view(first, metric), view(other, metric)).mean for other in others)


def best_group(view: View, first: Sequence[str], others: Sequence[Sequence[str]]) -> Outcome:
    """The average of the first group's means is above that of every other group."""
    averages = [statistics.fmean(view(label).mean for label in group) for group in (first, *others)]
    return Outcome(
        averages[0] > max(averages[1:]), f"{averages[0]:.2f} against {', '.join(f'{one:.2f}' for one in averages[1:])}"
    )


def fastest_of_the_best(view: View, first: str, others: Sequence[str], within: float) -> Outcome:
    """Among those whose accuracy is within WITHIN points of the highest it needs the least time, and is one of them."""
    accuracies = {label: view(f"{label} @1", "accuracy").mean for label in (first, *others)}
    times = {label: view(f"{label} @2", "time").mean for label in (first, *others)}
    able = [label for label, value in accuracies.items() if value >= max(accuracies.values()) - within]
    texts = ", ".join(f"{title(label)} {times[label]:.2f}" for label in able)
    quickest = all(times[first] < times[label] for label in able if label != first)
    return Outcome(first in able and quickest, f"times of the best: {texts}")


def nearer_to_others(view: View, first: str, second: str, others: Sequence[str]) -> Outcome:
    """The first is nearer to the average of the others than the second is."""
    middle = statistics.fmean(view(label).mean for label in others)
    one, two = (abs(view(label).mean - middle) for label in (first, second))
    return Outcome(one < two, f"{one:.2f} from the others' average {middle:.2f}, against {two:.2f}")


def same_size(view: View, first: str, others: Sequence[str], share: float) -> Outcome:
    """It differs from each of the others by at most SHARE of the other."""
    ratios = {label: view(first).mean / view(label).mean if view(label).mean else math.inf for label in others}
    texts = ", ".join(f"{ratio:.2f} times {view(label).name}'s" for label, ratio in ratios.items())
    return Outcome(all(abs(ratio - 1) <= share for ratio in ratios.values()), texts)


def below(view: View, label: str, limit: float) -> Outcome:
    """The mean is below LIMIT."""
    return Outcome(view(label).mean < limit, f"{view(label).mean:.2f} against {limit:g}")


RULES: dict[str, Callable[..., Outcome]] = {
    rule.__name__: rule
    for rule in (
        best, clearly_best, lowest, close_to, alike, falls, poor, good, only_good, good_then_poor, fails, stiff, best_but_in,
        best_group, fastest_of_the_best, nearer_to_others, same_size, below,
    )
}  # fmt: skip


NARROWED = {  # rules of which each part must hold, by the argument that lists the parts
    "best": "others", "clearly_best": "others", "lowest": "others", "poor": "methods", "good": "methods", "alike": "labels",
}  # fmt: skip
