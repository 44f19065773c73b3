"""Widgets: what their HTML holds before any script runs, and what they refuse. Their behaviour: test_browser_widgets.py."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from cmlib import metrics, plots
from cmlib.errors import CmlibError, DataError, OptionError
from cmlib.plots import fragment, widgets

SUPPORT = {"A": [[1, 7], [3, 8]], "B": [[7, 8], [9, 6]], "C": [[4, 2], [6, 1], [5, 3]]}
MADE: dict[str, Callable[[], Any]] = {
    "editor": widgets.matrix_editor,
    "space": lambda: widgets.draggable_space(SUPPORT),
    "scenarios": widgets.scenario_player,
}
SCRIPTED = ("editor", "space")


@pytest.fixture(autouse=True)
def nothing_shown_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragment, "_shown", {})


def ids(page: str) -> list[str]:
    return re.findall(r'\bid="([^"]+)"', page)


@pytest.mark.parametrize("name", MADE)
def test_ids_are_unique_on_a_page_and_the_same_in_every_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [MADE[name]().html for _ in range(3)]
    found = [one for page in first for one in ids(page)]
    assert len(found) == len(set(found)) == 3
    for page in first:
        assert re.findall(r'getElementById\("([^"]+)"\)', page) == ids(page)
    monkeypatch.setattr(fragment, "_shown", {})
    assert [MADE[name]().html for _ in range(3)] == first


@pytest.mark.parametrize("name", MADE)
def test_widgets_are_small_and_ask_nobody(name: str) -> None:
    page = MADE[name]().html
    assert len(page.encode()) < 40_000
    assert not re.search(r"https?:|//\w|<link|@import|url\(|\bsrc=|href=|fetch\(|XMLHttp|import\(", page)


class _Tags(HTMLParser):
    """Notes tags that are closed in another order than they were opened, and attributes that are given twice."""

    VOID = ("input", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        self.wrong += [f"{tag} has {names}"] if len(set(names)) < len(names) else []
        self.open += [] if tag in self.VOID else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")


@pytest.mark.parametrize("name", MADE)
def test_tags_are_balanced_and_attributes_stand_once(name: str) -> None:
    tags = _Tags()
    tags.feed(MADE[name]().html)
    assert tags.wrong == [] and tags.open == []


@pytest.mark.parametrize("name", SCRIPTED)
def test_nothing_moves_by_itself(name: str) -> None:
    assert not re.search(r"setInterval|requestAnimationFrame|transition|animation", MADE[name]().html)


@pytest.mark.parametrize("name", SCRIPTED)
def test_without_scripts_there_are_no_buttons_that_do_nothing(name: str) -> None:
    page = MADE[name]().html
    body = page[page.index("</style>") : page.index("<script>")]
    tools = re.findall(r'class="cm-(?:tools|slide)"( hidden)?', body)
    assert tools and all(tools)
    assert "tabindex" not in body
    assert body.count("<input") == body.count(" readonly ") + body.count('type="radio"') + body.count('type="range"')


# -- the matrix editor ---------------------------------------------------------------------------------------------------

R = np.array([[90, np.nan, np.nan], [60, 80, np.nan], [30.5, 50, 100]])


def test_the_editor_shows_every_cell_and_the_numbers_of_cmlib() -> None:
    page = widgets.matrix_editor({"by hand": R}).html
    values = re.findall(r'data-i="(\d)" data-j="(\d)" aria-label="([^"]+)" value="([\d.]+)"', page)
    assert [(i, j, value) for i, j, _, value in values] == [
        *(("0", "0", "90"), ("1", "0", "60"), ("1", "1", "80"), ("2", "0", "30.5"), ("2", "1", "50"), ("2", "2", "100")),
    ]
    assert values[1][2] == "accuracy on task 1 after task 2, percent"
    shown = dict(re.findall(r'data-measure="(\w+)".*?<output aria-live="off">([^<]+)</output>', page))
    assert {name: float(text.replace("−", "-")) for name, text in shown.items()} == {
        name: round(getattr(metrics, name)(R), 1) for name in ("accuracy", "learning_accuracy", "bwt", "bwt_final")
    }
    assert "90.0 + 2/3 · (−44.8) = 60.2" in page
    assert "<select" not in page  # nothing to choose from


def test_presets_are_choices_and_travel_with_the_page() -> None:
    page = widgets.matrix_editor().html
    assert re.findall(r'<option value="\d">([^<]+)</option>', page) == list(widgets.matrix_presets())


def test_slow_and_sudden_forgetting_differ_in_one_number_only() -> None:
    for n in (3, 5, 8):
        slow, sudden, *_ = widgets.matrix_presets(n).values()
        for name in ("accuracy", "bwt_final", "learning_accuracy"):
            assert getattr(metrics, name)(slow) == pytest.approx(getattr(metrics, name)(sudden), abs=0.5), name
        assert metrics.bwt(slow) < metrics.bwt(sudden) - 5


def test_presets_are_what_their_names_say() -> None:
    made = widgets.matrix_presets()
    numbers = {
        name: [round(getattr(metrics, m)(R)) for m in ("accuracy", "learning_accuracy", "bwt")] for name, R in made.items()
    }
    assert numbers["learns all, keeps all"] == [96, 96, 0]
    assert numbers["learns all, keeps nothing"] == [19, 96, -96]
    assert numbers["never learns, never forgets"] == [50, 50, 0]
    assert numbers["old tasks profit"][2] > 0
    for one in made.values():
        assert np.isnan(one[np.triu_indices(5, 1)]).all() and np.isfinite(one[np.tril_indices(5)]).all()


@pytest.mark.parametrize(
    ("presets", "message"),
    [
        ({}, "no matrix to start from"),
        ({"a": [[1, 2, 3]]}, r"got shape \[1, 3\]"),
        ({"a": [[50]]}, "N from 2 to 10"),
        ({"a": np.full((11, 11), 50)}, "N from 2 to 10"),
        ({"a": [[101, 0], [0, 0]]}, "numbers from 0 to 100"),
        ({"a": [[90, 0], [np.nan, 0]]}, "numbers from 0 to 100"),
        ({"a": np.full((3, 3), 5), "b": np.full((2, 2), 5)}, "the size of the first, 3 x 3"),
    ],
)
def test_the_editor_refuses_what_is_no_accuracy_matrix(presets: Any, message: str) -> None:
    with pytest.raises(CmlibError, match=message):
        widgets.matrix_editor(presets)


def test_names_are_text_and_labels_are_needed() -> None:
    page = widgets.matrix_editor({"<b>&": R, "</script>": R}, label='a "label"').html
    assert "<b>&" not in page and page.count("</script>") == 1 and 'aria-label="a &quot;label&quot;"' in page
    with pytest.raises(OptionError, match="label is empty"):
        widgets.matrix_editor({"a": R}, label=" ")
    with pytest.raises(OptionError, match="differ from 3 tasks on"):
        widgets.matrix_presets(2)


def light(colour: str) -> float:
    parts = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return float(np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])


def test_numbers_can_be_read_on_every_colour() -> None:
    for percent in range(101):
        page = widgets.matrix_editor({"a": np.full((2, 2), percent)}).html
        found = re.search(r"background:(#\w{6});color:(#\w{6})", page)
        assert found
        low, high = sorted(map(light, found.groups()))
        assert (high + 0.05) / (low + 0.05) >= 4.5, percent


# -- the space -----------------------------------------------------------------------------------------------------------


def test_the_space_shows_points_centroids_cells_and_chances() -> None:
    page = widgets.draggable_space(SUPPORT, query=(6, 6)).html
    assert page.count('class="cm-pt"') == 8  # 7 support points and the one to classify
    assert page.count('class="cm-v"') == page.count('class="cm-c"') == page.count('class="cm-l"') == 3
    centroids = np.array([np.mean(points, axis=0) for points in SUPPORT.values()])
    d = np.linalg.norm(centroids - [6, 6], axis=1)
    p = np.exp(-d) / np.exp(-d).sum()
    shown = re.findall(r'<output aria-live="off">d ([\d.]+), p ([\d.]+)</output>', page)
    assert shown == [(f"{a:.2f}", f"{b:.2f}") for a, b in zip(d, p, strict=True)]
    assert "The point ? belongs to class B." in page
    x, y = centroids[0] * 36
    assert f"translate({x:.0f} {360 - y:.0f})" in page


def test_every_handle_says_what_it_is() -> None:
    said = re.findall(r'class="cm-pt"[^>]*aria-label="([^"]+)"', widgets.draggable_space(SUPPORT).html)
    assert said[:2] == ["support point 1 of class A", "support point 2 of class A"]
    assert said[-1] == "the point to classify"


def test_pictures_are_well_formed_svg() -> None:
    pictures = [widgets.scenario_svg(kind, t + 1, 5) for kind in widgets.SCENARIOS for t in range(5)]
    pictures += re.findall(r"<svg.*?</svg>", widgets.draggable_space(SUPPORT).html, re.DOTALL)
    for picture in pictures:
        assert ET.fromstring(picture).attrib["aria-label"]


def test_radio_buttons_of_two_spaces_are_apart_and_names_stay() -> None:
    pages = [widgets.draggable_space({"NAME": [[1, 1]], "B": [[9, 9]]}).html for _ in range(2)]
    names = [re.findall(r'type="radio" name="([^"]+)"', page) for page in pages]
    assert names[0][0] == names[0][1] != names[1][0]
    assert "support point 1 of class NAME" in pages[0]


@pytest.mark.parametrize(
    ("support", "query", "message"),
    [
        ({"A": [[1, 1]]}, (5, 5), "1 classes; a space to drag has two to five"),
        ({name: [[1, 1]] for name in "ABCDEF"}, (5, 5), "6 classes"),
        ({"A": [[1, 1]], "B": []}, (5, 5), "'B': points must have shape"),
        ({"A": [[1, 1]], "B": [[1, 2, 3]]}, (5, 5), r"got \[1, 3\]"),
        ({"A": [[1, 1]], "B": [[11, 2]]}, (5, 5), "between 0 and 10"),
        ({"A": [[1, 1]], "B": [[2, 2]]}, (5, -1), "'query'"),
    ],
)
def test_the_space_refuses_what_cannot_be_drawn(support: Any, query: Any, message: str) -> None:
    with pytest.raises((DataError, OptionError), match=message):
        widgets.draggable_space(support, query)


# -- the scenarios -------------------------------------------------------------------------------------------------------


def excluded(picture: str) -> int:
    return picture.count('fill-opacity="0"')


@pytest.mark.parametrize("learned", [1, 2, 3, 4, 5])
def test_the_picture_says_which_answers_are_possible(learned: int) -> None:
    til, cil = (widgets.scenario_svg(kind, learned, 5) for kind in ("til", "cil"))
    assert (excluded(til), excluded(cil)) == (2 * learned - 2, 0)
    assert "task 1" in til and "task unknown" in cil
    assert f"It chooses among {2 * learned} classes; guessing is right in {100 / (2 * learned):.0f} % of cases" in cil
    assert "It chooses among 2 classes; guessing is right in 50 %" in til
    spaces = re.findall(r">space (\d)<", til), re.findall(r">one space for all classes<", cil)
    assert spaces == ([str(i + 1) for i in range(learned)], [">one space for all classes<"])


def test_both_scenarios_have_a_picture_after_each_task() -> None:
    page = widgets.scenario_player(4).html
    assert page.count("<figure") == 8
    assert re.findall(r'type="radio"[^>]*> ([^<]+)<', page) == list(widgets.SCENARIOS.values())


@pytest.mark.parametrize(("kind", "learned", "n"), [("dil", 1, 3), ("til", 0, 3), ("cil", 4, 3), ("cil", 1, 6)])
def test_scenarios_that_do_not_exist(kind: str, learned: int, n: int) -> None:
    with pytest.raises(OptionError):
        widgets.scenario_svg(kind, learned, n)


def test_names_are_found_through_the_package() -> None:
    assert plots.matrix_editor is widgets.matrix_editor and plots.draggable_space is widgets.draggable_space
    assert repr(plots.matrix_editor({"a": R})) == "[widget] An accuracy matrix to edit"
