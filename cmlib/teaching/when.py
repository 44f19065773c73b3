"""The box "When would you use CM?": what it buys and what it costs on digits, each with a number from committed runs.

A sentence compares CM with rivals. Where all of them have been tuned alike (`reproduction.fair`) it tells their tuned runs, until
then those of the profile; the box says which. Which way a comparison goes is read from the runs, not written down.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
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
    lines: list[str] = []
    values: dict[str, Any] = {}
    shown: list[Side] = []
    tuned: dict[str, bool] = {}
    for place, (labels, unknown, tell) in POINTS.items():
        if sides := _sides([found[label] for label in labels]):
            text, said = tell(*sides)
            values, shown, tuned[place] = values | said, shown + sides, all(found[label].complete for label in labels)
        lines.append(f"- {text if sides else f'**{unknown}** Not run yet.'}")
    cm = found["cil cm"]
    source = _source(tuned, cm)
    if tuned and all(tuned.values()) and cm.chosen and cm.default:
        text, said = _chosen(cm, profile := Side(cm.default))
        source, values, shown = source + text, values | said, [*shown, profile]
    runs = {run.id: run for side in shown for run in side.runs}
    return say("\n".join(["**When would you use CM?**", "", *lines, "", source]), run=list(runs.values()), **values)


Sentence = tuple[str, dict[str, Any]]  # its text and its values


def _sides(made: Sequence[Outcome]) -> list[Side]:
    """The runs of some methods, of the seeds that all have, tuned where all are; no sides where something has not run."""
    all_runs = [one.tested if all(one.complete for one in made) else one.default for one in made]
    seeds = set.intersection(*({run.seed for run in runs} for runs in all_runs))
    return [Side([run for run in runs if run.seed in seeds]) for runs in all_runs] if seeds else []


def _without_images(cm: Side, naive: Side, er: Side) -> Sentence:
    """TIL: what CM reaches without an old image."""
    text = (
        f"**It keeps no old image, where the task is known (TIL).** With {{kept:,}} numbers in their place ({cm.names}) CM "
        f"reaches {{til:.1f}} %; plain training, which keeps {naive.names}, reaches {{til_naive:.1f}} %, and ER with "
        "{til_images} old images {til_er:.1f} %."
    )
    values: dict[str, Any] = {"kept": cm.kept, "til_images": er.images}
    return text, values | {"til": cm.mean("accuracy"), "til_naive": naive.mean("accuracy"), "til_er": er.mean("accuracy")}


def _what_moves(cm: Side, naive: Side, er: Side) -> Sentence:
    """CIL: backward transfer beside those of plain training and ER."""
    less = cm.mean("bwt_final") > er.mean("bwt_final")
    head = "**It forgets little (CIL).**" if less else "**It forgets less than plain training, though not less than ER (CIL).**"
    text = (
        f"{head} By the end, accuracy on a past task has changed by {{bwt:.1f}} points since it was learned (backward transfer); "
        "with plain training by {bwt_naive:.1f}, with ER, which keeps the same {images} images, by {bwt_er:.1f}."
    )
    values: dict[str, Any] = {"images": cm.images, "bwt": cm.mean("bwt_final")}
    return text, values | {"bwt_naive": naive.mean("bwt_final"), "bwt_er": er.mean("bwt_final")}


def _accuracy(cm: Side, er: Side) -> Sentence:
    """CIL: accuracy beside ER's with the same exemplars, paired by seed."""
    gap = gaps(cm.runs, er.runs)
    head = "**It costs accuracy (CIL).**" if statistics.fmean(gap) < 0 else "**It costs no accuracy here (CIL).**"
    text = (
        f"{head} {{cil:.1f}} % against {{cil_er:.1f}} % for ER with the same {{exemplars}} images; ER is ahead for {{ahead}} of "
        "{seeds} seeds."
    )
    values: dict[str, Any] = {"cil": cm.mean("accuracy"), "cil_er": er.mean("accuracy"), "exemplars": cm.images}
    return text, values | {"ahead": sum(one < 0 for one in gap), "seeds": len(gap)}


def _memory_and_time(cm: Side, er: Side, til_cm: Side, til_er: Side) -> Sentence:
    """What it keeps in CIL, and what it passes through the backbone in both scenarios."""
    why = ", most of them in projectors," if cm.runs[0].retained.get("projectors", 0) > cm.kept / 2 else ""
    text = (
        f"**It costs memory and time.** In CIL it keeps {{cil_kept:,}} numbers{why} where ER keeps {{er_kept:,}}. It passes "
        "{cost:.1f} times as many images through the network, in TIL {til_cost:.1f} times (by the cost model of chapter 10)."
    )
    values: dict[str, Any] = {"cil_kept": cm.kept, "er_kept": er.kept}
    return text, values | {"cost": cm.cost / er.cost, "til_cost": til_cm.cost / til_er.cost}


POINTS: dict[str, tuple[tuple[str, ...], str, Callable[..., Sentence]]] = {  # whose runs; what is asked; how it is told
    "first": (("til cm", "til naive", "til er"), "It keeps no old image, where the task is known (TIL).", _without_images),
    "second": (("cil cm", "cil naive", "cil er"), "It holds what was learned (CIL).", _what_moves),
    "third": (("cil cm", "cil er"), "Its accuracy beside ER's (CIL).", _accuracy),
    "fourth": (("cil cm", "cil er", "til cm", "til er"), "It costs memory and time.", _memory_and_time),
}


def _chosen(cm: Outcome, profile: Side) -> Sentence:
    """CIL: what CM chose, and what it is with the profile's setting."""
    text = (
        f" In CIL CM has chosen `{cm.setting}` (chapter 5); with the profile's setting, which the tables show, it ends at "
        "{profile:.1f} % and keeps {profile_kept:,} numbers."
    )
    return text, {"profile": profile.mean("accuracy"), "profile_kept": profile.kept}


def _source(tuned: Mapping[str, bool], cm: Outcome) -> str:
    """Which runs the box tells of, in a sentence or two. tuned: of each point that has runs, whether they are tuned."""
    if not tuned:
        return "Nothing of this has been run yet."
    start, settings = "Digits, means over seeds on test images.", len(cm.search.settings)
    alike = f"each method has the best of {settings} settings on validation images, chosen alike"
    plain = (
        "epochs, support set and lambda were tried out on validation images with CM (chapter 4); its rivals have the same "
        "epochs, and nothing of their own was tuned"
    )
    if all(tuned.values()):
        return f"{start} In every point {alike}."
    if which := " and ".join(place for place, one in tuned.items() if one):
        return f"{start} In the {which} point {alike}; in the others {plain}."
    return f"{start} Settings: {plain}."
