"""What chapter 11 says of the paper's Tables 3 and 5 and of the committed runs, where numbers can decide it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cmlib as cm
from cmlib.projectors import PROJECTORS, make_projector, merged_log_probabilities
from cmlib.store import Run, committed

PAGE = Path(__file__).resolve().parents[2] / "book" / "11_merging.ipynb"
CIL = cm.Experiment("digits", "cil", "cm")
KINDS = ("scale_translate", "mlp", "offset", "none")


def runs(**change: Any) -> dict[int, Run]:
    found = cm.paper.runs_like(committed(), CIL.but(**change))
    return {run.seed: run for run in found if run.seed < 5}


def gains(number: Any, **change: Any) -> Any:
    base = runs()
    return np.array([number(run) - number(base[seed]) for seed, run in runs(**change).items()])


def cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(PAGE.read_text(encoding="utf-8"))["cells"]
    return found


def said(*names: str) -> dict[str, Any]:
    """The values of the one text that has all of these."""
    outputs = [output for cell in cells() for output in cell.get("outputs", [])]
    records = [output["metadata"]["cmlib"]["values"] for output in outputs if "cmlib" in output.get("metadata", {})]
    found = [values for values in records if set(names) <= set(values)]
    assert len(found) == 1, f"{len(found)} texts have {names}"
    return found[0]


def table5() -> Any:
    printed = cm.paper.printed_table(5)
    places = [[f"centroids_merging={c},merging={m}" for m in KINDS] for c in KINDS]
    return np.array([[printed[cm.paper.Place("cifar10", "cil", "cm", v, "accuracy")].mean for v in row] for row in places])


# -- what a projector can do ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PROJECTORS)
def test_affine_kinds_keep_midpoints_and_the_others_bend(kind: str) -> None:
    torch.manual_seed(0)
    project, (x, y) = make_projector(kind, 8), torch.randn(2, 200, 8)
    bent = (project((x + y) / 2) - (project(x) + project(y)) / 2).abs().max()
    assert bool(bent > 0.01) == (kind in ("mlp", "scale_translate"))


def test_offsets_for_both_are_offsets_for_the_centroids_alone() -> None:
    torch.manual_seed(0)
    e, c = torch.randn(3, 40, 8), [torch.randn(2, 8) for _ in range(3)]
    both: list[Any] = [make_projector("offset", 8) for _ in range(3)]
    mean = torch.stack([one.offset for one in both]).mean(0)
    alone: list[Any] = [make_projector("offset", 8) for _ in range(3)]
    for new, old in zip(alone, both, strict=True):
        new.offset.data.copy_(old.offset - mean)
    none = [make_projector("none", 8) for _ in range(3)]
    torch.testing.assert_close(merged_log_probabilities(e, c, both), merged_log_probabilities(e, c, none, alone))


# -- Table 5, printed -------------------------------------------------------------------------------------------------------


def test_the_noise_of_the_printed_table() -> None:
    values, table = said("noise", "twice", "chance"), table5()
    again = [one.mean for _, _, one in cm.paper.same_setting("cifar10", "cil")]
    assert (values["k"], values["low"], values["high"]) == (len(again), min(again), max(again)) == (5, 62.32, 64.64)
    assert math.isclose(values["noise"], math.sqrt(table.var(axis=0, ddof=1).mean()))
    assert math.isclose(values["twice"], abs(58.37 - 61.82))
    assert values["twice"] > values["noise"] and 3 < values["twice"] < 4  # "three points for no reason"


def test_the_columns_of_the_printed_table_are_hardly_more_than_noise() -> None:
    values, table = said("noise", "twice", "chance"), table5()
    draws, flat = np.random.default_rng(1), table.ravel()

    def ratio(one: Any) -> float:
        return float(len(one) * one.mean(0).var(ddof=1) / one.var(axis=0, ddof=1).mean())

    chance = np.mean([ratio(draws.permutation(flat).reshape(4, 4)) >= ratio(table) for _ in range(4000)])
    assert abs(values["chance"] - 100 * chance) < 2 and 5 < values["chance"] < 15
    assert math.isclose(values["rest"], ratio(table[:, 1:])) and values["rest"] < 1
    assert table.mean(0).argmax() == 0  # the hint that remains


# -- the digits ----------------------------------------------------------------------------------------------------------------


def test_the_digits_have_effects_of_rows_and_columns_and_none_of_pairs() -> None:
    values = said("col", "row", "rem")
    every = {(c, m): runs(centroids_merging=c, merging=m) for c in KINDS for m in KINDS}
    common = sorted(set.intersection(*map(set, every.values())))
    a = np.array([[[every[c, m][s].accuracy for m in KINDS] for c in KINDS] for s in common])
    assert values["n"] == len(common) >= 3
    mean = a.mean(0)
    rows, columns = mean.mean(1) - mean.mean(), mean.mean(0) - mean.mean()
    error = a - mean - (a.mean((1, 2)) - a.mean())[:, None, None]
    unit = (error**2).sum() / (15 * (len(common) - 1))
    rest = mean - mean.mean() - rows[:, None] - columns
    strength = [len(common) * 4 * (side**2).sum() / 3 / unit for side in (columns, rows)]
    strength.append(len(common) * (rest**2).sum() / 9 / unit)
    assert [values[name] for name in ("col", "row", "rem")] == pytest.approx(strength)
    assert strength[0] > strength[1] > 3 > strength[2]


def test_the_order_of_table_3_does_not_carry_over() -> None:
    for kind in ("none", "offset"):
        assert gains(lambda run: run.accuracy, merging=kind).min() > 0
    assert gains(lambda run: run.accuracy, merging="linear").max() < 0


def test_trained_projectors_lose_later_and_not_at_first() -> None:
    values = said("learned", "later", "low", "high")
    learned = gains(lambda run: run.learning_accuracy, projectors="frozen")
    later = gains(lambda run: run.accuracy - run.learning_accuracy, projectors="frozen")
    assert values["n"] == len(later) == 5
    assert values["later"] == pytest.approx(later.mean()) and values["learned"] == pytest.approx(learned.mean())
    assert later.min() > 0 > learned.mean()


def test_the_page_shows_all_printed_numbers_of_both_tables() -> None:
    outputs = [output for cell in cells() for output in cell.get("outputs", [])]
    text = "\n".join("".join(output.get("data", {}).get("text/plain", "")) for output in outputs)
    for place, one in cm.paper.printed_table(3).items():
        assert f"{one.mean:.2f}" in text, place
    assert set(KINDS) | {"linear"} == {
        place.variant.split("=")[-1] for place in [*cm.paper.printed_table(3), *cm.paper.printed_table(5)]
    }
    pictures = "\n".join("".join(output.get("data", {}).get("text/html", "")) for output in outputs)
    for value in table5().ravel():
        assert f"{value:.1f}" in pictures, value


def test_a_frozen_network_needs_exemplars_to_learn_its_projectors_from() -> None:
    values = said("stands", "bare", "seen", "test", "gain")
    assert values["seen"] > 99 > values["test"] + 5  # by heart
    assert values["bare"] < values["stands"] - 20 and values["gain"] > values["stands"] + 2
