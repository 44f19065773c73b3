"""GEM's projection: the figure, the widget's page fragment, and (marker `browser`) what dragging it does."""

from __future__ import annotations

import html.parser
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import cmlib as cm
from cmlib.methods.gem import project
from cmlib.plots.projection import projected

START = {"g": (2.0, -1.4), "g1": (0.5, 1.9), "g2": (2.0, 0.6)}


# -- the projection -----------------------------------------------------------------------------------------------------------


def test_without_a_margin_it_is_the_nearest_gradient_that_points_against_no_past_one() -> None:
    draws = np.random.default_rng(0)
    for _ in range(20):
        g, past = draws.normal(size=2), draws.normal(size=(1 + int(draws.integers(2)), 2))
        allowed = [{"type": "ineq", "fun": lambda x, one=one: one @ x} for one in past]
        best = minimize(lambda x, g=g: ((x - g) ** 2).sum(), g, constraints=allowed, tol=1e-12).x
        assert np.allclose(projected(g.tolist(), past.tolist()), best, atol=0.02)  # GEM's ridge moves it a little


# -- the figure ---------------------------------------------------------------------------------------------------------------


def test_the_figure_draws_the_projection_of_each_case() -> None:
    cases = {"agrees": ((1.0, 1.0), [(0.5, 1.0)]), "against": ((1.0, -1.0), [(0.0, 2.0), (-0.5, 1.0)])}
    fig = cm.plots.gem_arrows(cases, title="GEM")
    assert [ax.get_title(loc="left") for ax in fig.axes] == list(cases)
    for ax, (g, past) in zip(fig.axes, cases.values(), strict=True):
        ends = [(line.get_xdata()[-1], line.get_ydata()[-1]) for line in ax.lines if tuple(line.get_xydata()[0]) == (0, 0)]
        new = project(torch.tensor(g, dtype=torch.float64), torch.tensor(past, dtype=torch.float64), 0.0)
        assert np.allclose(ends[0], new, atol=1e-6)
        assert np.allclose(ends[1:], [g, *past])
        assert len(ax.patches) == len(past)
    assert cm.show(fig, alt="two planes").data["text/html"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"past": ()}, "past has 0 gradients"),
        ({"past": ((1, 1), (1, 2), (2, 1))}, "past has 3 gradients"),
        ({"g": (4, 0)}, "must be two numbers from -3 to 3"),
        ({"g": (float("nan"), 0)}, "must be two numbers"),
        ({"margin": 2}, "a number from 0 to 1"),
    ],
)
def test_impossible_planes_are_refused_in_one_line(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(cm.OptionError, match=words) as caught:
        cm.plots.gem_widget(**arguments)
    assert "\n" not in str(caught.value)
    if "margin" not in arguments:
        with pytest.raises(cm.OptionError, match=words):
            cm.plots.gem_arrows({"one": (arguments.get("g", (1, 1)), arguments.get("past", [(1, 1)]))})
    with pytest.raises(cm.OptionError, match="at least one case"):
        cm.plots.gem_arrows({})


# -- the widget's page fragment -----------------------------------------------------------------------------------------------


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(text)
    return parser.found


def test_the_widget_is_small_names_its_handles_and_asks_nobody() -> None:
    text = cm.plots.gem_widget()._repr_html_()
    assert len(text.encode()) < 20_000
    assert not re.search(r"https?://|src=|href=|@import|url\(", text)
    handles = {one["data-v"]: one for _, one in tags(text) if one.get("role") == "slider"}
    assert list(handles) == ["g", "g1", "g2"]
    for name, one in handles.items():
        assert one["aria-label"] and one["aria-valuetext"] == f"x {START[name][0]:.2f}, y {START[name][1]:.2f}"
        assert -180 <= int(one["aria-valuenow"] or "") <= 180
    rows = [one for _, one in tags(text) if one.get("class") == "cm-row"]
    assert len(rows) == 2 and all("hidden" in one for one in rows)  # controls without scripts would do nothing


def test_two_widgets_on_a_page_have_different_ids() -> None:
    ids = [one["id"] for made in (cm.plots.gem_widget(), cm.plots.gem_widget()) for _, one in tags(made.html) if "id" in one]
    assert len(ids) == len(set(ids)) == 2


def test_the_drawing_starts_at_the_projection() -> None:
    text = cm.plots.gem_widget(g=(1.0, -1.0), past=((0.0, 2.0),)).html
    assert [one["data-v"] for _, one in tags(text) if one.get("role") == "slider"] == ["g", "g1"]
    assert "second past task" not in text
    (step,) = (one["d"] for _, one in tags(text) if one.get("data-v") == "step")
    assert (step or "").startswith("M180 180L234.0 180.0")  # (1, -1) without what points against (0, 2)


# -- in a browser -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def stage(tmp_path: Path) -> str:
    """A page with two widgets of the same content and a sandboxed frame with one."""
    start = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><body>'
    one, two, framed = (cm.plots.gem_widget().html for _ in range(3))
    frame = '<iframe sandbox="allow-scripts" src="frame.html" width="390" height="640"></iframe>'
    (tmp_path / "index.html").write_text(f'{start}<section id="s0">{one}</section><section id="s1">{two}</section>{frame}')
    (tmp_path / "frame.html").write_text(start + framed)
    return (tmp_path / "index.html").as_uri()


def result(place: Any) -> list[float]:
    return [float(value) for value in place.locator(".cm-gem").get_attribute("data-result").split(",")]


def wanted(g: tuple[float, float], *past: tuple[float, float], margin: float = 0.0) -> Any:
    return pytest.approx(projected(g, past, margin), abs=1e-6)


@pytest.mark.browser
def test_arrows_follow_pointer_keyboard_and_margin(browser: Any, stage: str) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 1400})
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(stage)
    one, two = page.locator("#s0"), page.locator("#s1")
    g, g1, g2 = START.values()
    assert result(one) == result(two) == wanted(g, g1, g2)
    fills = [path.evaluate("e => getComputedStyle(e).fill") for path in one.locator("path").all()]
    assert fills.count("none") == len(fills) - 2  # the forbidden half planes are seen
    widths = [one.locator(f".cm-{kind}").evaluate("e => getComputedStyle(e).strokeWidth") for kind in ("step", "dash")]
    assert widths == ["8px", "2px"]

    handle = one.locator('[data-v="g"]')
    handle.press("ArrowUp")
    handle.press("Shift+ArrowLeft")
    assert handle.get_attribute("aria-valuetext") == "x 1.50, y \N{MINUS SIGN}1.30"
    assert result(one) == wanted((1.5, -1.3), g1, g2) and result(two) == wanted(g, g1, g2)

    slide = one.locator("input[type=range]")
    slide.fill("0.5")
    assert one.locator("output").inner_text() == "0.50"
    assert result(one) == wanted((1.5, -1.3), g1, g2, margin=0.5)
    one.get_by_label("second past task").uncheck()
    assert result(one) == wanted((1.5, -1.3), g1, margin=0.5)
    assert not one.locator('[data-v="g2"]').is_visible()
    one.locator("button").click()
    assert result(one) == wanted(g, g1, g2) and slide.input_value() == "0"

    plane, dot = one.locator("svg").bounding_box(), one.locator('[data-v="g1"] .cm-dot').bounding_box()
    page.mouse.move(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
    page.mouse.down()
    page.mouse.move(plane["x"] + plane["width"] * (0.5 + 54 / 360), plane["y"] + plane["height"] * (0.5 - 108 / 360))
    page.mouse.up()
    page.mouse.move(plane["x"] + 3, plane["y"] + 3)  # let go: nothing follows any more
    x, y = (float(v) for v in re.findall(r"[\d.]+", one.locator('[data-v="g1"]').get_attribute("aria-valuetext")))
    assert (x, y) == pytest.approx((1, 2), abs=0.05)
    assert result(one) == pytest.approx(projected(g, [(x, y), g2]), abs=0.02)

    framed = page.frame_locator("iframe").locator("body")
    framed.locator('[data-v="g"]').press("Shift+ArrowUp")
    assert result(framed) == wanted((2.0, -0.9), g1, g2)
    assert complaints == []
    page.close()


@pytest.mark.browser
def test_the_scripted_projection_equals_the_package_s(browser: Any, stage: str) -> None:
    page = browser.new_page()
    page.goto(stage)
    draws = np.random.default_rng(1)
    one = page.locator("#s0")
    handles = {name: one.locator(f'[data-v="{name}"]') for name in START}
    at = {name: np.array(value) for name, value in START.items()}
    for _ in range(12):
        for name, handle in handles.items():
            key = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"][draws.integers(4)]
            press = "e.dispatchEvent(new KeyboardEvent('keydown', {key, shiftKey: true}))"
            handle.evaluate(f"(e, key) => {{ for (let k = 0; k < 5; k++) {press} }}", key)
            step = {"ArrowLeft": (-2.5, 0), "ArrowRight": (2.5, 0), "ArrowUp": (0, 2.5), "ArrowDown": (0, -2.5)}[key]
            at[name] = np.clip(at[name] + step, -3, 3)
        margin = float(draws.integers(0, 21)) / 20
        one.locator("input[type=range]").fill(str(margin))
        g, g1, g2 = (tuple(value.tolist()) for value in at.values())
        assert result(one) == pytest.approx(projected(g, [g1, g2], margin), abs=1e-5)
    page.close()


@pytest.mark.browser
def test_without_scripts_the_plane_is_seen_and_no_dead_controls(browser: Any, stage: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(stage)
    one = page.locator("#s0")
    assert one.locator('[data-v="step"]').is_visible()
    assert not one.locator("button").is_visible() and not one.locator("input[type=range]").is_visible()
    context.close()
