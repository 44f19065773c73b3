"""What chapter 12 says of support sets: the chances, the jitter, Table 4, and a run whose third task lacks a class."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cmlib as cm
from cmlib.store import Run, committed
from cmlib.teaching.checks.chapter12 import chance_of_missing

PAGE = Path(__file__).resolve().parents[2] / "book" / "12_support_set.ipynb"
USUAL = cm.Experiment("digits", "til", "cm")


def runs(scenario: str, **change: Any) -> dict[int, Run]:
    found = cm.paper.runs_like(committed(), USUAL.but(scenario=scenario, **change))
    return {run.seed: run for run in found if run.seed < 5}


def gains(scenario: str, size: int) -> Any:
    usual = runs(scenario)
    return np.array([run.accuracy - usual[seed].accuracy for seed, run in runs(scenario, support_size=size).items()])


def outputs() -> list[dict[str, Any]]:
    cells = json.loads(PAGE.read_text(encoding="utf-8"))["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]


def texts() -> str:
    shown = ["".join(one.get("text", "")) + "".join(one.get("data", {}).get("text/plain", "")) for one in outputs()]
    cells = json.loads(PAGE.read_text(encoding="utf-8"))["cells"]
    return "\n".join([*shown, *("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")])


def said(*names: str) -> dict[str, Any]:
    """The values of the one text that has all of these."""
    records = [one["metadata"]["cmlib"]["values"] for one in outputs() if "cmlib" in one.get("metadata", {})]
    found = [values for values in records if set(names) <= set(values)]
    assert len(found) == 1, f"{len(found)} texts have {names}"
    return found[0]


# -- the chances --------------------------------------------------------------------------------------------------------------


def test_eleven_percent_of_tasks_and_sixty_nine_of_runs() -> None:
    tiny = chance_of_missing_alike(20, 500, 100)
    assert f"{100 * tiny:.0f} {100 * (1 - (1 - tiny) ** 10):.0f}" == "11 69"
    draws = np.random.default_rng(0)
    lacking = [len(np.unique(draws.choice(10_000, 100, replace=False) // 500)) < 20 for _ in range(4000)]
    assert abs(np.mean(lacking) - tiny) < 0.02
    page = texts()
    assert "11 % of TinyImageNet's tasks and in 69 % of its runs" in page and "69.05 %" in page and "11.07 %" in page


def chance_of_missing_alike(K: int, n: int, size: int) -> float:
    """Inclusion and exclusion for classes of one size."""
    terms = ((-1) ** (j + 1) * math.comb(K, j) * math.comb((K - j) * n, size) for j in range(1, K + 1))
    return sum(terms) / math.comb(K * n, size)


@pytest.mark.parametrize(("K", "n", "size"), [(2, 3, 2), (3, 2, 3), (3, 4, 5), (5, 2, 7)])
def test_the_formula_counts(K: int, n: int, size: int) -> None:
    labels = [k for k in range(K) for _ in range(n)]
    draws = list(itertools.combinations(labels, size))
    counted = sum(len(set(one)) < K for one in draws) / len(draws)
    assert math.isclose(chance_of_missing_alike(K, n, size), counted)
    assert math.isclose(chance_of_missing([n] * K, size), counted)


def test_no_run_behind_the_printed_number_was_dead() -> None:
    values, printed = said("whole", "two", "five"), cm.paper.table1()["tiny-imagenet", "til", "cm", "accuracy"]
    whole = (1 - chance_of_missing_alike(20, 500, 100)) ** 10
    assert values["whole"] == pytest.approx(whole) and values["five"] == pytest.approx(whole**5)
    assert printed.mean > 5 + 3 * (printed.std or 0)  # one dead run of five would show


# -- jitter --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [1, 2, 3, 5])
def test_the_variance_of_a_mean_drawn_without_putting_back(s: int) -> None:
    e = torch.randn(6, 3, generator=torch.Generator().manual_seed(s), dtype=torch.float64)
    means = torch.stack([e[list(rows)].mean(0) for rows in itertools.combinations(range(6), s)])
    counted = (means - e.mean(0)).square().sum(1).mean()
    spread = (e - e.mean(0)).square().sum(1).mean()
    torch.testing.assert_close(counted, spread / s * (6 - s) / 5)


def test_the_page_measures_what_the_formula_says() -> None:
    found = [one for one in texts().splitlines() if "The formula holds, within" in one]
    assert found and int(found[0].split("within ")[1].split(" %")[0]) <= 15


def test_fresh_support_sets_cost_little() -> None:
    values = said("m1", "w1", "m20")
    assert values["m20"] - values["m1"] < 5 and values["m20"] > 90


# -- a class that is absent ----------------------------------------------------------------------------------------------------


def test_a_dead_run_is_at_chance_to_the_last_decimal() -> None:
    page = texts()
    assert "after task 3, every task: [50.0]" in page and "exactly the share of each task's first class: True" in page


# -- Table 4 -------------------------------------------------------------------------------------------------------------------


def test_every_printed_number_of_table_4_is_on_the_page() -> None:
    page = texts()
    for place, one in cm.paper.printed_table(4).items():
        assert f"{one.mean:.2f}" in page, place


def test_what_the_page_says_of_the_largest_differences() -> None:
    values = said("m_til", "e_til", "m_cil", "e_cil")
    for scenario in ("til", "cil"):
        every = {size: gains(scenario, size) for size in (4, 10, 40, 80)}
        size = max(every, key=lambda s: abs(every[s].mean()))
        one = every[size]
        assert values[f"m_{scenario}"] == pytest.approx(one.mean())
        assert values[f"e_{scenario}"] == pytest.approx(one.std(ddof=1) / math.sqrt(len(one)))


def test_setting_a_quarter_of_the_images_aside_does_no_harm() -> None:
    values = said("share", "most", "til", "cil")
    assert values["most"] == 80 and 24 < values["share"] < 32
    for scenario in ("til", "cil"):
        gain = gains(scenario, 80)
        assert values[scenario] == pytest.approx(gain.mean())
        assert gain.mean() > -1


def test_three_sizes_of_the_paper_cannot_be_told_apart() -> None:
    again = [one.mean for _, _, one in cm.paper.same_setting("cifar10", "cil")]
    printed = cm.paper.printed_table(4)
    inside = [
        size
        for size in (10, 50, 100, 200, 500)
        if min(again) <= printed[cm.paper.Place("cifar10", "cil", "cm", f"support_size={size}", "accuracy")].mean <= max(again)
    ]
    assert inside == [50, 100, 200] and said("sizes")["sizes"] == "50, 100, 200"
