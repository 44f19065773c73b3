"""The widgets in Chromium (marker `browser`): they follow what a reader does, on pages made here; no built book is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_browser import DESK, PHONE, Visit, serve

from cmlib import metrics
from cmlib.plots import widgets

pytestmark = pytest.mark.browser

SUPPORT = {"A": [[1, 7], [3, 8]], "B": [[7, 8], [9, 6]], "C": [[4, 2], [6, 1], [5, 3]]}
START = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
NAMES = ("accuracy", "learning_accuracy", "bwt", "bwt_final")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page with each widget twice, one of them in a hidden tab, and a sandboxed frame with both."""
    folder: Path = tmp_path_factory.mktemp("widgets")
    editors = [widgets.matrix_editor().html for _ in range(2)]
    spaces = [widgets.draggable_space(SUPPORT, (6, 6)).html for _ in range(2)]
    pieces = f'<div id="e0">{editors[0]}</div><div id="s0">{spaces[0]}</div>'
    tab = f'<div id="tab" style="display:none"><div id="e1">{editors[1]}</div><div id="s1">{spaces[1]}</div></div>'
    frame = '<iframe sandbox="allow-scripts" src="frame.html" width="390" height="1500"></iframe>'
    for theme in ("light", "dark"):
        back = "#fff" if theme == "light" else "#14181e"
        look = f"<style>html{{background:{back};color:#888}}</style>"
        look += f'<script>document.documentElement.dataset.theme="{theme}"</script>'
        (folder / f"{theme}.html").write_text(f"{START}{look}<body>{pieces}{tab}{frame}</body>")
    (folder / "frame.html").write_text(f"{START}<body>{pieces}</body>")
    server = serve(folder)
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def numbers(editor: Any) -> list[str]:
    return [editor.locator(f'[data-measure="{name}"] output').inner_text() for name in NAMES]


def expected(editor: Any) -> list[str]:
    """What cmlib says about the cells that can be seen."""
    R = np.full((5, 5), np.nan)
    for cell in editor.locator("td input").all():
        R[int(cell.get_attribute("data-i")), int(cell.get_attribute("data-j"))] = float(cell.input_value())
    return [f"{getattr(metrics, name)(R):.1f}".replace("-", "−") for name in NAMES]


def cell(editor: Any, i: int, j: int) -> Any:
    return editor.locator(f'input[data-i="{i}"][data-j="{j}"]')


# -- the matrix editor ---------------------------------------------------------------------------------------------------


def test_numbers_follow_the_cells_of_one_editor_only(browser: Any, stage: str) -> None:
    with Visit(browser, f"{stage}/light.html", viewport=DESK) as visit:
        one, two = visit.page.locator("#e0"), visit.page.locator("#e1")
        before = numbers(one)
        assert before == expected(one)
        cell(one, 4, 0).fill("7.5")
        assert numbers(one) == expected(one) != before
        assert cell(two, 4, 0).input_value() == "36"
        cell(one, 2, 1).press("ArrowUp")  # the keyboard of a number field
        assert cell(one, 2, 1).input_value() == "77" and numbers(one) == expected(one)
        learned, final, accuracy = re.findall(r"[−\d.]+(?![/\d])", one.locator(".cm-sum output").inner_text().replace("4/5", ""))
        assert [accuracy, learned, final] == [numbers(one)[k] for k in (0, 1, 3)]
        assert visit.complaints == [] and all(address.startswith((stage, "data:")) for address in visit.asked)


def test_every_preset_gives_the_numbers_of_cmlib(browser: Any, stage: str) -> None:
    with Visit(browser, f"{stage}/light.html", viewport=DESK) as visit:
        editor = visit.page.locator("#e0")
        shown = []
        for name, R in widgets.matrix_presets().items():
            editor.locator("select").select_option(label=name)
            assert [float(cell(editor, i, j).input_value()) for i in range(5) for j in range(i + 1)] == R[
                np.tril_indices(5)
            ].tolist()
            assert numbers(editor) == [text.replace("−0.0", "0.0") for text in expected(editor)]
            shown.append(numbers(editor))
        assert shown[0][::3] == shown[1][::3] and shown[0][2] != shown[1][2]  # slow and sudden forgetting


def test_the_slider_belongs_to_the_cell_that_was_chosen(browser: Any, stage: str) -> None:
    with Visit(browser, f"{stage}/light.html", viewport=PHONE, has_touch=True) as visit:
        editor = visit.page.locator("#e0")
        cell(editor, 3, 1).tap()
        slider = editor.locator("input[type=range]")
        assert editor.locator(".cm-slide span").inner_text() == "task 2, after task 4"
        assert slider.get_attribute("aria-label") == "accuracy on task 2 after task 4, percent"
        slider.fill("12")
        assert cell(editor, 3, 1).input_value() == "12" and numbers(editor) == expected(editor)


@pytest.mark.parametrize("value", ["", "101", "-3"])
def test_what_is_no_accuracy_gives_no_number(browser: Any, stage: str, value: str) -> None:
    with Visit(browser, f"{stage}/light.html", viewport=DESK) as visit:
        editor = visit.page.locator("#e0")
        cell(editor, 4, 4).fill(value)
        assert cell(editor, 4, 4).get_attribute("aria-invalid") == "true"
        accuracy, learned, bwt, _ = numbers(editor)
        assert (accuracy, learned) == ("–", "–") and bwt != "–"  # the last diagonal cell is in no BWT
        cell(editor, 4, 4).fill("50")
        assert cell(editor, 4, 4).get_attribute("aria-invalid") is None and numbers(editor) == expected(editor)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("accuracy", 5),
        ("bwt_final", 8),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("learning_accuracy", 5), ("bwt", 14))),
    ],
)
def test_a_number_shows_the_cells_it_is_made_of(browser: Any, stage: str, name: str, count: int) -> None:
    with Visit(browser, f"{stage}/light.html", viewport=DESK) as visit:
        editor = visit.page.locator("#e0")
        button = editor.locator(f'[data-measure="{name}"]')
        button.click()
        used = editor.locator(".cm-used").all()
        assert len(used) == count and button.get_attribute("aria-pressed") == "true"
        before = numbers(editor)[NAMES.index(name)]
        for one in editor.locator("td input").all():  # a cell matters exactly when it is marked
            value, marked = one.input_value(), "cm-used" in (one.get_attribute("class") or "")
            one.fill("1")
            assert (numbers(editor)[NAMES.index(name)] != before) == marked
            one.fill(value)
        button.click()
        assert editor.locator(".cm-used").count() == 0


# -- the space -----------------------------------------------------------------------------------------------------------


def centre(support: dict[str, Any]) -> np.ndarray:
    return np.array([np.mean(points, axis=0) for points in support.values()])


def drawn_centroids(space: Any) -> np.ndarray:
    places = [re.findall(r"[\d.]+", one.get_attribute("transform")) for one in space.locator(".cm-c").all()]
    x, y = np.array(places, dtype=float).T
    return np.stack([x / 36, 10 - y / 36], axis=1)


def handle(space: Any, which: str) -> Any:
    return space.locator(f'.cm-pt[data-which="{which}"]')


def drag(visit: Any, grip: Any, dx: float, dy: float) -> None:
    """Drag by so many units to the right and upward."""
    grip.scroll_into_view_if_needed()
    unit = grip.evaluate("e => e.ownerSVGElement.getBoundingClientRect().width / 10")
    box = grip.locator("circle").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    visit.page.mouse.move(x, y)
    visit.page.mouse.down()
    visit.page.mouse.move(x + dx * unit / 2, y - dy * unit / 2)
    visit.page.mouse.move(x + dx * unit, y - dy * unit)
    visit.page.mouse.up()


def test_a_dragged_point_takes_centroid_and_cells_along(browser: Any, stage: str) -> None:
    with Visit(browser, f"{stage}/light.html", viewport=DESK) as visit:
        one = visit.page.locator("#s0")
        assert np.abs(drawn_centroids(one) - centre(SUPPORT)).max() < 0.01
        cells = [path.get_attribute("d") for path in one.locator(".cm-v").all()]
        drag(visit, handle(one, "0,1"), 2, -1)
        wanted = centre({**SUPPORT, "A": [[1, 7], [5, 7]]})
        assert np.abs(drawn_centroids(one) - wanted).max() < 0.06
        assert [path.get_attribute("d") for path in one.locator(".cm-v").all()] != cells
        one.get_by_role("button", name="Reset").click()
        assert [path.get_attribute("d") for path in one.locator(".cm-v").all()] == cells
        assert visit.complaints == []


def test_arrow_keys_move_a_point_and_it_stays_inside(browser: Any, stage: str) -> None:
    with Visit(browser, f"{stage}/light.html", viewport=DESK) as visit:
        one = visit.page.locator("#s0")
        grip = handle(one, "1,0")
        grip.focus()
        for key in ("ArrowRight", "ArrowUp", "Shift+ArrowLeft", "Shift+ArrowDown"):
            grip.press(key)
        assert grip.get_attribute("aria-label") == "support point 1 of class B at 6.2, 7.2"
        for _ in range(12):
            grip.press("Shift+ArrowLeft")
        assert grip.get_attribute("aria-label").endswith("at 0.0, 7.2")
        assert np.abs(drawn_centroids(one)[1] - [4.5, 6.6]).max() < 0.01


@pytest.mark.parametrize("kind", ["euclidean", "squared"])
def test_chances_are_those_of_cmlib(browser: Any, stage: str, kind: str) -> None:
    import torch

    from cmlib.centroids import distances, log_probabilities

    with Visit(browser, f"{stage}/light.html", viewport=DESK) as visit:
        one = visit.page.locator("#s0")
        one.locator(f'input[value="{kind}"]').check()
        query, c = torch.tensor([[6.0, 6.2]], dtype=torch.double), torch.tensor(centre(SUPPORT))
        handle(one, "q").press("ArrowUp")
        d, p = distances(query, c, kind)[0], log_probabilities(query, c, kind)[0].exp()
        sign = "d" if kind == "euclidean" else "d²"
        shown = [bar.locator("output").inner_text() for bar in one.locator(".cm-bar").all()]
        assert shown == [f"{sign} {a:.2f}, p {b:.2f}" for a, b in zip(d.tolist(), p.tolist(), strict=True)]
        assert one.locator(".cm-status").inner_text() == "The point ? belongs to class B."


def test_a_point_on_the_border_belongs_to_both(browser: Any, tmp_path: Path) -> None:
    page = widgets.draggable_space({"A": [[2, 5]], "B": [[8, 5]]}, (5, 3)).html
    (tmp_path / "index.html").write_text(f"{START}<body>{page}</body>")
    server = serve(tmp_path)
    with Visit(browser, f"http://127.0.0.1:{server.server_port}/index.html", viewport=DESK) as visit:
        assert visit.page.locator(".cm-status").inner_text() == "The point ? lies on the border of class A and B."
    server.shutdown()


def test_a_finger_drags_a_point(browser: Any, stage: str) -> None:
    with Visit(browser, f"{stage}/light.html", viewport=PHONE, has_touch=True, device_scale_factor=2) as visit:
        grip = handle(visit.page.locator("#s0"), "2,0")
        grip.scroll_into_view_if_needed()
        box = grip.locator("circle").bounding_box()
        assert min(box["width"], box["height"]) >= 30
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        touch = visit.context.new_cdp_session(visit.page)
        unit = grip.evaluate("e => e.ownerSVGElement.getBoundingClientRect().width / 10")
        for kind, points in (
            ("touchStart", [{"x": x, "y": y}]),
            ("touchMove", [{"x": x + unit, "y": y}]),
            ("touchMove", [{"x": x + 2 * unit, "y": y}]),
            ("touchEnd", []),
        ):
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        visit.page.wait_for_function("e => /at 6\\.0, 2\\.0/.test(e.getAttribute('aria-label'))", arg=grip.element_handle())


# -- both ----------------------------------------------------------------------------------------------------------------


def test_widgets_work_in_a_hidden_tab_once_it_is_shown(browser: Any, stage: str) -> None:
    with Visit(browser, f"{stage}/light.html", viewport=DESK) as visit:
        visit.page.evaluate("document.getElementById('tab').style.display = ''")
        drag(visit, handle(visit.page.locator("#s1"), "0,0"), 1, 1)
        assert np.abs(drawn_centroids(visit.page.locator("#s1"))[0] - [2.5, 8]).max() < 0.06
        assert np.abs(drawn_centroids(visit.page.locator("#s0")) - centre(SUPPORT)).max() < 0.01
        cell(visit.page.locator("#e1"), 4, 0).fill("0")
        assert numbers(visit.page.locator("#e1")) == expected(visit.page.locator("#e1"))


def test_widgets_work_in_a_sandboxed_frame(browser: Any, stage: str) -> None:
    with Visit(browser, f"{stage}/light.html", viewport=DESK) as visit:
        frame = visit.page.frame_locator("iframe")
        cell(frame.locator("#e0"), 4, 0).fill("0")
        assert numbers(frame.locator("#e0")) == expected(frame.locator("#e0"))
        handle(frame.locator("#s0"), "q").press("ArrowDown")
        assert handle(frame.locator("#s0"), "q").get_attribute("aria-label").endswith("at 6.0, 5.8")


def test_without_scripts_the_picture_stays_and_no_tool_is_offered(browser: Any, stage: str) -> None:
    with Visit(browser, f"{stage}/light.html", viewport=DESK, java_script_enabled=False) as visit:
        for name in ("#e0", "#s0"):
            tools = visit.page.locator(f"{name} :is(.cm-tools, .cm-slide)").all()
            assert tools and not any(tool.is_visible() for tool in tools)
        assert cell(visit.page.locator("#e0"), 4, 4).is_visible()
        assert cell(visit.page.locator("#e0"), 4, 4).get_attribute("readonly") is not None
        assert visit.page.locator("#s0 .cm-v").first.is_visible()


def test_nothing_scrolls_sideways_on_a_phone_and_fields_fit_a_finger(browser: Any, stage: str) -> None:
    with Visit(browser, f"{stage}/light.html", viewport=PHONE, device_scale_factor=2) as visit:
        wide = (
            "[...document.querySelectorAll('.cm-widget, .cm-widget *')].filter(e => e.getBoundingClientRect().right > 391).length"
        )
        assert visit.page.evaluate(wide) == 0
        box = cell(visit.page.locator("#e0"), 4, 2).bounding_box()
        assert box["width"] >= 44 and box["height"] >= 38
        assert visit.page.evaluate("document.querySelector('#e0 .cm-widget').scrollWidth") <= PHONE["width"]


# Contrast of every text of a widget with the page behind it (fields and cards have their own backgrounds).
CONTRAST = """([ink, back]) => [...document.querySelectorAll(ink)].filter(e => e.checkVisibility()).map(e => {
  const light = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((s, v, k) => s + v * [.2126, .7152, .0722][k], 0);
  const style = getComputedStyle(e), own = style.backgroundColor;
  const behind = /, 0\\)|transparent/.test(own) ? back : own;
  const [low, high] = [light(e.tagName === 'text' ? style.fill : style.color), light(behind)].sort((a, b) => a - b);
  return (high + .05) / (low + .05);
}).filter(ratio => ratio < 4.5)"""


@pytest.mark.parametrize(("theme", "back"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 24, 30)")])
def test_texts_can_be_read_in_both_themes(browser: Any, stage: str, theme: str, back: str) -> None:
    with Visit(browser, f"{stage}/{theme}.html", viewport=DESK) as visit:
        inks = ".cm-widget :is(text, label, th, output, small, p, td input, button span, .cm-bar span, select)"
        assert visit.page.evaluate(CONTRAST, [inks, back]) == []


def test_paper_shows_no_tools(browser: Any, stage: str) -> None:
    with Visit(browser, f"{stage}/light.html", viewport=DESK) as visit:
        visit.page.emulate_media(media="print")
        assert not any(tool.is_visible() for tool in visit.page.locator("#e0 .cm-tools, #e0 .cm-slide, #s0 .cm-tools").all())
        assert visit.page.locator("#s0 svg").is_visible()
