"""What chapters 1 and 2 say as a fact, where printed tables, committed runs or a stored run decide it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import cmlib as cm
from cmlib import metrics
from cmlib.store import committed

BOOK = Path(__file__).resolve().parents[2] / "book"
FORGETTING, SCENARIOS = (
    json.loads((BOOK / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    for name in ("01_forgetting", "02_scenarios_and_metrics")
)
PLAIN = [  # all digits runs of the default settings in the committed store
    run
    for method in ("naive", "cumulative", "er", "cm")
    for scenario in ("til", "cil")
    for run in cm.paper.runs_like(committed(), cm.Experiment("digits", scenario, method, 0, "digits"))
]


def prose(cells: list[dict[str, Any]]) -> str:
    """The Markdown of a chapter, on one line."""
    return " ".join(" ".join("".join(cell["source"]).split()) for cell in cells if cell["cell_type"] == "markdown")


def said(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of what a chapter shows by cm.say."""
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return [record for output in outputs if (record := output.get("metadata", {}).get("cmlib"))]


def the_one(cells: list[dict[str, Any]], words: str) -> dict[str, Any]:
    (record,) = [one for one in said(cells) if words in one["text"]]
    return record


# -- Naive is no lower bound --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "scenario", "method"), [("cifar10", "cil", "ewc"), ("cifar10", "cil", "oewc"), ("tiny-imagenet", "til", "gem")]
)
def test_the_paper_prints_methods_below_naive(data: str, scenario: str, method: str) -> None:
    table = cm.paper.table1()
    assert table[data, scenario, method, "accuracy"].mean < table[data, scenario, "naive", "accuracy"].mean


def test_the_page_counts_the_columns_where_that_is_so() -> None:
    table = cm.paper.table1()
    accuracy = {key[:3]: one.mean for key, one in table.items() if key[3] == "accuracy"}
    columns = {key[:2] for key in accuracy}
    undercut = {key[:2] for key, mean in accuracy.items() if mean < accuracy[(*key[:2], "naive")]}
    record = the_one(FORGETTING, "no lower bound")
    assert (record["values"]["k"], record["values"]["n"]) == (len(undercut), len(columns)) == (4, 6)
    assert "lower bound" not in prose(FORGETTING) + prose(SCENARIOS)  # the page does not say otherwise elsewhere


# -- what counts is the gap ---------------------------------------------------------------------------------------------


def test_a_step_lowers_old_logits_on_the_images_of_the_batch() -> None:
    z = torch.randn(8, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (slope,) = torch.autograd.grad(F.cross_entropy(z, 4 + torch.arange(8) % 2), z)
    assert (slope[:, :4] > 0).all()


def test_on_old_images_the_old_logits_rise_again_and_the_gap_stays() -> None:
    """The run behind the page's figure: the outputs of task 1 on the images of task 1."""
    record = the_one(FORGETTING, "The own outputs of task 1 stand at")
    values = record["values"]
    assert values["end"] > values["low"] + 1 and "rose" in values["so"]
    assert values["mean"] > values["least"] > 0  # above for every image: the accuracy is exactly 0


def test_no_page_says_that_every_step_pushes_old_logits_down_everywhere() -> None:
    for cells in (FORGETTING, SCENARIOS):
        assert not re.search(r"nothing (ever pushes|works against)|every old output down|every old logit \*\*down", prose(cells))


# -- forgetting is not minus BWT ----------------------------------------------------------------------------------------


def test_forgetting_and_final_transfer_differ_in_committed_runs() -> None:
    extra = [metrics.forgetting(run.matrix) + run.bwt_final for run in PLAIN]
    assert min(extra) > -1e-9  # never less than minus the final transfer
    assert max(extra) > 1
    values = the_one(SCENARIOS, "forgetting is minus final BWT")["values"]
    assert values["n"] == len(PLAIN) and values["same"] == sum(one < 1e-9 for one in extra) < len(PLAIN)
    assert values["most"] == pytest.approx(max(extra))


def test_no_page_takes_forgetting_for_minus_bwt() -> None:
    for cells in (FORGETTING, SCENARIOS):
        assert not re.search(r"forgetting\*?, which (is minus BWT|has the other sign)", prose(cells))


# -- the run that is shown, and how chapter 1 begins --------------------------------------------------------------------


def test_one_run_is_the_run_of_median_accuracy() -> None:
    for method, scenario in (("naive", "cil"), ("naive", "til"), ("cumulative", "cil"), ("cumulative", "til")):
        like = cm.paper.runs_like(committed(), cm.Experiment("digits", scenario, method, 0, "digits"))
        middle = cm.paper.median_run(like)
        record = the_one(FORGETTING, "the one of median accuracy")
        assert f"{method.capitalize()}, {scenario.upper()}: seed {middle.seed}" in record["values"]["median"]
        assert middle.id in record["runs"]
    riddle = the_one(SCENARIOS, "Neither has made a mistake")
    like = cm.paper.runs_like(committed(), cm.Experiment("digits", "cil", "er", 0, "digits"))
    assert riddle["runs"] == [cm.paper.median_run(like).id]


def test_the_story_comes_first_and_is_short() -> None:
    first = "".join(FORGETTING[0]["source"])
    story = first.split("\n\n")[2]
    assert story.startswith("A doorbell camera")
    assert len(re.findall(r"[.!?](?:\s|$)", story)) <= 5
    assert "".join(FORGETTING[4]["source"]).startswith("## The picture")


def test_chapter_1_is_short() -> None:
    assert len(prose(FORGETTING).split()) < 1700
