"""What chapter 17 says of the committed runs on features of CIFAR-100: whole, alike, and the winner it names."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmlib.methods import METHODS
from cmlib.reproduction import paper
from cmlib.runfile import FINISHED
from cmlib.store import Run, Store, committed

PAGE = Path(__file__).parents[2] / "book" / "17_your_own_data.ipynb"
CIL = {name for name, method in METHODS.items() if "cil" in method.scenarios and method.__module__.startswith("cmlib.")}
SEEDS = 5
OWN = {"epochs": {"cope": 1}, "head": {"cm": "mlp"}}  # by an option that all have: the methods that differ in it


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in Store(committed().folder / "paper" / "cifar100-lite0-cil"):
        found[run.experiment["method"]].append(run)
    return found


@pytest.fixture(scope="module")
def outputs() -> list[dict[str, Any]]:
    cells = json.loads(PAGE.read_text(encoding="utf-8"))["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]


def said(outputs: list[dict[str, Any]], words: str) -> dict[str, Any]:
    """The record of the one text of `cm.say` with these words."""
    (record,) = [o["metadata"]["cmlib"] for o in outputs if words in o.get("metadata", {}).get("cmlib", {}).get("text", "")]
    return dict(record)


def test_all_methods_ran_with_the_same_seeds(runs: dict[str, list[Run]]) -> None:
    assert runs.keys() == CIL
    for group in runs.values():
        assert sorted(run.seed for run in group) == [*range(SEEDS)] and {run.status for run in group} == {FINISHED}
    data = {tuple(sorted(run.data.items())) for group in runs.values() for run in group if run.experiment["method"] != "cm"}
    assert len(data) == 1
    (facts,) = map(dict, data)
    assert (facts["rows"], facts["classes"]) == (100 * 100, 100)  # the first 100 training images of each class


def test_settings_are_alike(runs: dict[str, list[Run]]) -> None:
    common = set.intersection(*(set(group[0].experiment["options"]) for group in runs.values()))
    for name in common:
        values = {method: group[0].experiment["options"][name] for method, group in runs.items()}
        usual = values["naive"]
        assert {m: v for m, v in values.items() if v != usual} == OWN.get(name, {}), name
    options = runs["cm"][0].experiment["options"]
    assert (options["n_tasks"], options["epochs"], options["batch_size"], options["lam"]) == (10, 2, 32, 0.75)


def test_whoever_keeps_vectors_keeps_500(runs: dict[str, list[Run]]) -> None:
    keeping = {method for method, group in runs.items() if "exemplars" in group[0].retained}
    assert keeping == {"cm", "er", "ssil", "gem", "cope"}
    assert all(run.retained["exemplars"] == 500 * 1280 for method in keeping for run in runs[method])


def test_the_page_names_the_winner(runs: dict[str, list[Run]], outputs: list[dict[str, Any]]) -> None:
    means = {method: np.mean([run.accuracy for run in group]) for method, group in runs.items() if method != "cumulative"}
    first, second = sorted(means, key=lambda method: -means[method])[:2]
    values = said(outputs, "wins:")["values"]
    gaps = paper.gaps(sorted(runs[first], key=lambda run: run.seed), runs[second])
    assert (values["best"], values["second"], values["n"]) == (METHODS[first].title, METHODS[second].title, SEEDS)
    assert values["gap"] == pytest.approx(np.mean(gaps)) and values["won"] == sum(gap > 0 for gap in gaps)


def test_the_table_has_a_row_for_each_method(outputs: list[dict[str, Any]]) -> None:
    record = said(outputs, "just learned | CM minus it")
    assert len(record["runs"]) == SEEDS * len(CIL)
    assert all(f"| {METHODS[name].title} | {SEEDS} |" in record["text"] for name in CIL)
