"""The box "When would you use CM?": what it buys and what it costs on digits, each with a number from committed runs.

A sentence compares CM with rivals. Where all of them have been tuned alike (`reproduction.fair`) it tells their tuned runs, until
then those of the profile; the box says which. Which way a comparison goes is read from the runs, not written down.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cmlib.experiment import Experiment
from cmlib.reproduction import costs, fair
from cmlib.reproduction.fair import Outcome
from cmlib.reproduction.paper import gaps
from cmlib.store import Run, Store, committed
from cmlib.teaching.page import _Output, say

PROFILE = "digits"


@dataclass(frozen=True)
class Side:
    """Runs of one method, the same seeds for all sides of a sentence."""

    runs: Sequence[Run]

    def mean(self, metric: str) -> float:
        """The mean of a metric over the seeds, percent or points."""
        return statistics.fmean(getattr(run, metric) for run in self.runs)

    @property
    def kept(self) -> int:
        """Scalars kept between tasks beside network and heads."""
        return self.runs[0].retained_scalars

    @property
    def names(self) -> str:
        """What is kept, in words: `past batch norms and centroids`."""
        return " and ".join(self.runs[0].retained) or "nothing"

    @property
    def images(self) -> int:
        """Images kept."""
        return self.runs[0].retained.get("labels", 0)

    @property
    def cost(self) -> float:
        """Images passed through the backbone, by the cost model; NaN where there is none."""
        return costs.run_cost(Experiment.of(self.runs[0].experiment)) or float("nan")


def when_to_use(store: Store | None = None) -> _Output:
    """The box as Markdown, with its runs and values in the metadata. store: default the committed runs.

    A sentence whose runs are missing says "not run yet".
    """
    found = {one.search.label: one for one in fair.outcomes(PROFILE, [store or committed()])}
    parts = [part(found) for part in (_without_images, _what_moves, _accuracy, _memory_and_time)]
    lines: list[str] = []
    values: dict[str, Any] = {}
    runs: dict[str, Run] = {}
    tuned: list[bool] = []
    for text, said, named, alike in parts:
        lines.append(f"- {text}")
        values |= said
        runs |= {run.id: run for run in named}
        tuned += [alike] if named else []
    source = _source(tuned, found["cil cm"])
    if tuned and all(tuned):
        text, said, named, _ = _chosen(found)
        source, values = source + text, values | said
        runs |= {run.id: run for run in named}
    return say("\n".join(["**When would you use CM?**", "", *lines, "", source]), run=list(runs.values()), **values)


Sentence = tuple[str, dict[str, Any], list[Run], bool]  # its text, values and runs, and whether all its sides were tuned


def _sides(found: dict[str, Outcome], *labels: str) -> tuple[list[Side], bool]:
    """The runs of some methods, by label, and whether they are tuned; no sides where something has not run."""
    made = [found[label] for label in labels]
    tuned = all(one.complete for one in made)
    all_runs = [one.tested if tuned else one.default for one in made]
    seeds = set.intersection(*({run.seed for run in runs} for runs in all_runs))
    sides = [Side([run for run in runs if run.seed in seeds]) for runs in all_runs]
    return (sides if seeds else []), tuned


def _runs(sides: Sequence[Side]) -> list[Run]:
    return [run for side in sides for run in side.runs]


def _without_images(found: dict[str, Outcome]) -> Sentence:
    """TIL: what CM reaches without an old image."""
    sides, tuned = _sides(found, "til cm", "til naive", "til er")
    head = "**It keeps no old image, where the task is known (TIL).**"
    if not sides:
        return f"{head} Not run yet.", {}, [], tuned
    cm, naive, er = sides
    text = (
        f"{head} With {{kept:,}} numbers in their place ({cm.names}) CM reaches {{til:.1f}} %; plain training, which keeps "
        f"{naive.names}, reaches {{til_naive:.1f}} %, and ER with {{til_images}} old images {{til_er:.1f}} %."
    )
    values: dict[str, Any] = {"kept": cm.kept, "til_images": er.images}
    values |= {"til": cm.mean("accuracy"), "til_naive": naive.mean("accuracy"), "til_er": er.mean("accuracy")}
    return text, values, _runs(sides), tuned


def _what_moves(found: dict[str, Outcome]) -> Sentence:
    """CIL: backward transfer beside those of plain training and ER."""
    sides, tuned = _sides(found, "cil cm", "cil naive", "cil er")
    if not sides:
        return "**It holds what was learned (CIL).** Not run yet.", {}, [], tuned
    cm, naive, er = sides
    less = cm.mean("bwt_final") > er.mean("bwt_final")
    head = "**It forgets little (CIL).**" if less else "**It forgets less than plain training, though not less than ER (CIL).**"
    text = (
        f"{head} By the end, accuracy on a past task has changed by {{bwt:.1f}} points since it was learned (backward transfer); "
        "with plain training by {bwt_naive:.1f}, with ER, which keeps the same {images} images, by {bwt_er:.1f}."
    )
    values: dict[str, Any] = {"images": cm.images, "bwt": cm.mean("bwt_final")}
    values |= {"bwt_naive": naive.mean("bwt_final"), "bwt_er": er.mean("bwt_final")}
    return text, values, _runs(sides), tuned


def _accuracy(found: dict[str, Outcome]) -> Sentence:
    """CIL: accuracy beside ER's with the same exemplars, paired by seed."""
    sides, tuned = _sides(found, "cil cm", "cil er")
    if not sides:
        return "**Its accuracy beside ER's (CIL).** Not run yet.", {}, [], tuned
    cm, er = sides
    gap = gaps(cm.runs, er.runs)
    behind = statistics.fmean(gap) < 0
    head = "**It costs accuracy (CIL).**" if behind else "**It costs no accuracy here (CIL).**"
    text = (
        f"{head} {{cil:.1f}} % against {{cil_er:.1f}} % for ER with the same {{exemplars}} images; ER is ahead for {{ahead}} of "
        "{seeds} seeds."
    )
    values: dict[str, Any] = {"cil": cm.mean("accuracy"), "cil_er": er.mean("accuracy"), "exemplars": cm.images}
    values |= {"ahead": sum(one < 0 for one in gap), "seeds": len(gap)}
    return text, values, _runs(sides), tuned


def _memory_and_time(found: dict[str, Outcome]) -> Sentence:
    """What it keeps in CIL, and what it passes through the backbone in both scenarios."""
    sides, tuned = _sides(found, "cil cm", "cil er", "til cm", "til er")
    if not sides:
        return "**It costs memory and time.** Not run yet.", {}, [], tuned
    cm, er, til_cm, til_er = sides
    why = ", most of them in projectors," if cm.runs[0].retained.get("projectors", 0) > cm.kept / 2 else ""
    text = (
        f"**It costs memory and time.** In CIL it keeps {{cil_kept:,}} numbers{why} where ER keeps {{er_kept:,}}. It passes "
        "{cost:.1f} times as many images through the network, in TIL {til_cost:.1f} times (by the cost model of chapter 10)."
    )
    values: dict[str, Any] = {"cil_kept": cm.kept, "er_kept": er.kept}
    values |= {"cost": cm.cost / er.cost, "til_cost": til_cm.cost / til_er.cost}
    return text, values, _runs(sides), tuned


def _chosen(found: dict[str, Outcome]) -> Sentence:
    """CIL: what CM chose, and what it is with the profile's setting; nothing where that is what it chose."""
    cm = found["cil cm"]
    if not (cm.chosen and cm.default):
        return "", {}, [], True
    profile = Side(cm.default)
    text = (
        f" In CIL CM has chosen `{cm.setting}` (chapter 5); with the profile's setting, which the tables show, it ends at "
        "{profile:.1f} % and keeps {profile_kept:,} numbers."
    )
    return text, {"profile": profile.mean("accuracy"), "profile_kept": profile.kept}, _runs([profile]), True


def _source(tuned: Sequence[bool], cm: Outcome) -> str:
    """Which runs the box tells of, in a sentence or two."""
    if not tuned:
        return "Nothing of this has been run yet."
    start, settings = "Digits, means over seeds on test images.", len(cm.search.settings)
    alike = f"each method has the best of {settings} settings on validation images, chosen alike"
    plain = (
        "epochs, support set and lambda were tried out on validation images with CM (chapter 4); its rivals have the same "
        "epochs, and nothing of their own was tuned"
    )
    if all(tuned):
        return f"{start} In every point {alike}."
    if any(tuned):
        words = ("first", "second", "third", "fourth")
        which = " and ".join(word for word, one in zip(words, tuned, strict=False) if one)
        return f"{start} In the {which} point {alike}; in the others {plain}."
    return f"{start} Settings: {plain}."
