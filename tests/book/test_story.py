"""The map of the book, and the rule for which run a page shows."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

import cmlib as cm
from cmlib.errors import OptionError, StoreError
from cmlib.plots.story import STEPS


def test_the_map_has_the_four_chapters_of_the_method_in_order() -> None:
    page = cm.plots.story_map().html
    assert re.findall(r"<span>Chapter (\d)</span>", page) == ["3", "4", "5", "6"]
    assert "aria-current" not in re.sub(r"(?s)<style>.*?</style>", "", page)
    assert page.count('aria-hidden="true"') == 4 and "http" not in page and " id=" not in page


@pytest.mark.parametrize("chapter", [step.chapter for step in STEPS])
def test_one_card_is_lit(chapter: int) -> None:
    cards = re.findall(r"<li(.*?)>.*?<span>Chapter (\d)</span>", cm.plots.story_map(chapter).html)
    assert [number for lit, number in cards if lit] == [str(chapter)]


@pytest.mark.parametrize("chapter", [2, 7, 0, "4"])
def test_a_chapter_without_a_card_is_refused(chapter: object) -> None:
    with pytest.raises(OptionError, match=rf"^the map has no chapter {chapter}; it has: 3, 4, 5, 6$"):
        cm.plots.story_map(chapter)


def run(seed: int, accuracy: float, status: str = "finished") -> SimpleNamespace:
    return SimpleNamespace(seed=seed, accuracy=accuracy, status=status)


@pytest.mark.parametrize(
    ("accuracies", "seed"),
    [
        ([64.7, 81.7, 78.9, 84.7, 69.7], 2),
        ([97.5, 98.1, 94.4, 99.2, 99.4], 1),
        ([3.0, 1.0], 1),
        ([1.0, 3.0, 2.0, 4.0], 2),
        ([5.0, 5.0, 5.0], 1),
    ],
)
def test_the_median_run_is_shown(accuracies: list[float], seed: int) -> None:
    runs = [run(k, value) for k, value in enumerate(accuracies)]
    assert cm.paper.median_run(runs).seed == cm.paper.median_run(runs[::-1]).seed == seed


def test_a_run_that_stopped_is_no_median() -> None:
    assert cm.paper.median_run([run(0, float("nan"), "stopped"), run(1, 50.0)]).seed == 1
    with pytest.raises(StoreError, match="none of these runs is finished"):
        cm.paper.median_run([run(0, float("nan"), "stopped")])
