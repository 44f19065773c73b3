"""What chapters 3 and 4 say about CM follows from the committed runs, and goes on doing so when runs are added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cmlib as cm
from cmlib.store import committed
from cmlib.teaching import notebooks

BOOK = Path(__file__).resolve().parents[2] / "book"
PAGES = {3: "03_classify_by_distance", 4: "04_task_incremental_cm"}
CM = cm.Experiment("digits", "til", "cm")
NAIVE = CM.but(method="naive")


def by_seed(experiment: cm.Experiment) -> dict[int, float]:
    return {run.seed: run.accuracy for run in cm.paper.runs_like(committed(), experiment)}


def lead(one: cm.Experiment, other: cm.Experiment, seeds: list[int] | None = None) -> float:
    """Mean difference of two settings over the seeds they share."""
    a, b = by_seed(one), by_seed(other)
    return float(np.mean([a[seed] - b[seed] for seed in (sorted(a.keys() & b.keys()) if seeds is None else seeds)]))


def shown(chapter: int) -> list[dict[str, Any]]:
    """The records of all that a chapter says with numbers."""
    cells = notebooks.read(BOOK / f"{PAGES[chapter]}.ipynb").cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return [output.metadata["cmlib"] for output in outputs if "cmlib" in output.get("metadata", {})]


def sentence(chapter: int, words: str) -> dict[str, Any]:
    """The one record whose text has these words."""
    found = [record for record in shown(chapter) if words in record["text"]]
    assert len(found) == 1, f"{len(found)} texts of chapter {chapter} say '{words}'"
    return found[0]


def prose(chapter: int) -> str:
    cells = notebooks.read(BOOK / f"{PAGES[chapter]}.ipynb").cells
    return "\n".join([*(cell.source for cell in cells), *(record["text"] for record in shown(chapter))])


SETTINGS = {
    "Naive": NAIVE,
    "Naive with CM's head": NAIVE.but(head="mlp"),
    "Naive with CM's norms": NAIVE.but(batch_norm="private"),
    "Naive with both": NAIVE.but(batch_norm="private", head="mlp"),
    "CM without its penalty": CM.but(lam=0),
    "CM": CM,
    "CM with Naive's head": CM.but(head="linear"),
    "CM with one norm for all": CM.but(batch_norm="shared"),
}


def test_cms_lead_over_naive_with_its_head_and_norms() -> None:
    common = sorted(set.intersection(*({*by_seed(one)} for one in SETTINGS.values())))
    assert len(common) >= 2
    all_of_it, fair = lead(CM, NAIVE, common), lead(CM, NAIVE.but(head="mlp"), common)
    small = lead(CM.but(head="linear"), NAIVE, common)
    both = lead(CM, NAIVE.but(head="mlp", batch_norm="private"), common)
    assert fair < all_of_it / 2, "chapter 4 says that with two layers and one norm plain training comes much closer"
    assert small > 2 * fair, "it also says that the lead is large where the head has one layer"
    assert both > 1.5 * fair, "and that plain training falls back again with norms of its own a task"
    values = sentence(4, "The head counts, and so do the norms")["values"]
    assert [values[key] for key in ("lead", "fair", "small", "both")] == pytest.approx([all_of_it, fair, small, both])
    assert sentence(4, "The penalty counts inside CM")["values"]["penalty"] == pytest.approx(lead(CM, CM.but(lam=0)))
    assert "explain nothing" not in prose(4)


def test_private_norms_do_not_decide_whether_cm_works() -> None:
    gap = lead(CM.but(batch_norm="shared"), CM)
    assert gap > -1, "chapter 4 says that CM with one norm is no worse"
    values = sentence(4, "Private norms are no condition")["values"]
    assert values["gap"] == pytest.approx(abs(gap)) and values["word"] == ("above" if gap > 0 else "below")
    assert lead(NAIVE.but(batch_norm="private"), NAIVE) < 0, "it says that plain training loses with private norms"
    assert "decide whether this works" not in prose(4)


def test_a_small_lambda_is_not_said_to_do_harm() -> None:
    change = []
    for split in ("test", "val"):
        none, tiny = (by_seed(CM.but(lam=lam, eval_split=split)) for lam in (0, 0.01))
        change += [tiny[seed] - none[seed] for seed in sorted(none.keys() & tiny.keys())]
    assert min(change) < 0 < max(change), "the sentence in chapter 4 says that the difference changes its sign"
    values = sentence(4, "Is `0.01` worse than nothing?")["values"]
    assert (values["n"], values["least"], values["most"]) == (len(change), pytest.approx(min(change)), pytest.approx(max(change)))
    assert values["worse"] == sum(one < 0 for one in change)


def test_the_squared_distance_costs_in_til_and_gains_in_cil() -> None:
    values = sentence(4, "the squared distance loses")["values"]
    til, cil = (lead(CM.but(scenario=kind, distance="squared"), CM.but(scenario=kind)) for kind in ("til", "cil"))
    assert til < 0 < cil, "the sentence in chapter 4 says so"
    assert (values["til"], values["cil"]) == (pytest.approx(-til), pytest.approx(cil))
    assert values["squared"] > values["plain"], "it says that images are dragged farther"


def test_how_hard_the_two_losses_pull() -> None:
    draws = torch.Generator().manual_seed(0)
    for _ in range(20):
        c = torch.randn(2, 5, generator=draws, dtype=torch.double)
        e = torch.randn(1, 5, generator=draws, dtype=torch.double).requires_grad_()
        gap = (c[0] - c[1]).norm()
        for kind in ("euclidean", "squared"):
            log_p = cm.centroids.log_probabilities(e, c, kind)[0, 0]
            (slope,) = torch.autograd.grad(-log_p, e)
            most = 2 * (1 - log_p.exp())
            assert slope.norm() <= most * (1 + 1e-9) if kind == "euclidean" else torch.isclose(slope.norm(), most * gap)


def test_where_one_run_is_shown_it_is_the_median() -> None:
    runs = [run for run in cm.paper.runs_like(committed(), CM) if run.seed < 5]
    middle = cm.paper.median_run(runs)
    record = sentence(4, "trained here just now")
    assert record["values"]["seed"] == middle.seed and record["runs"] == [middle.id]
    assert record["values"]["stored"] == pytest.approx(middle.accuracy)
    assert middle.id in sentence(4, "1. Task 1 loses")["runs"]


def test_the_accuracies_of_the_two_chapters_are_the_same() -> None:
    runs = by_seed(CM)
    table = sentence(3, "nearest mean on pixels")["values"]
    assert table["cm_til"] == pytest.approx(np.mean([runs[seed] for seed in range(5)]))


@pytest.mark.parametrize("chapter", PAGES)
def test_a_chapter_opens_with_the_map(chapter: int) -> None:
    cells = notebooks.read(BOOK / f"{PAGES[chapter]}.ipynb").cells
    place = next(k for k, cell in enumerate(cells) if f"cm.plots.story_map({chapter})" in cell.source)
    before = [cell for cell in cells[:place] if cell.cell_type == "markdown"]
    assert len(before) == 2 and "camera" in before[1].source
    assert "hide-input" in cells[place].metadata["tags"] and cells[place].outputs
