"""The calculator of memory: what it says without a script; in Chromium (marker `browser`) the numbers of `cmlib.footprint`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_browser import DESK, PHONE, Visit, serve

import cmlib as cm
from cmlib import footprint
from cmlib.footprint import Setting
from cmlib.methods import METHODS
from cmlib.plots import calculator, memory_calculator

ROW = re.compile(r'<li data-method="(\w+)"( hidden)?>.*?width:([\d.]+)%.*?<span class="cm-value">([\d,]+)</span>', re.DOTALL)
START = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'


# -- without a browser --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["til", "cil"])
def test_the_page_says_the_formulas_without_a_script(scenario):
    page = memory_calculator(scenario=scenario, n_tasks=10, image=784).html
    setting = calculator.setting_of(n_tasks=10, image=784)
    rows = {name: (not hidden, float(width), text) for name, hidden, width, text in ROW.findall(page)}
    assert rows.keys() == calculator.COLOURS.keys()
    shown = {name: text for name, (visible, _, text) in rows.items() if visible}
    assert shown == {name: f"{footprint.formula(name, scenario, setting):,}" for name in footprint.methods(scenario)}
    assert all(0 < width < 100 for visible, width, _ in rows.values() if visible)
    assert '<div class="cm-in" hidden>' in page, "what does nothing without a script is hidden"


def test_bars_stand_on_a_log_axis():
    page = memory_calculator(shared=1000, image=3072).html
    width = {name: float(w) for name, _, w, _ in ROW.findall(page)}
    assert width["er"] == pytest.approx(100 * (6.48742 - 2) / 8, abs=0.01), "log10 of 3,072,000 on an axis from 2 to 10"


def test_the_finding_is_a_sentence():
    assert "CM keeps the least: 1,280; the next is OEWC with 269,722." in memory_calculator().html
    assert "ER keeps the least: 640; CM keeps 1,280." in memory_calculator(image=64, shared=10).html
    ties = memory_calculator(scenario="cil", image=64, shared=10, a_task=200).html
    assert "CM keeps the least: 640; the next is ER with 640." in ties


def test_it_is_small_asks_nobody_and_can_stand_twice_on_a_page():
    pages = [memory_calculator("Twice").html for _ in range(2)]
    names = [re.search(r'id="(cm-[\w-]+)"', page)[1] for page in pages]
    assert len(set(names)) == 2 and all(page.count(name) >= 5 for page, name in zip(pages, names, strict=True))
    assert max(len(page.encode()) for page in pages) < 20_000
    assert not re.search(r"https?://|(?:src|href)\s*=|\bfetch\(|\bimport\(", pages[0])
    assert not re.search(r"\b(ID|FUNCTIONS|VALUES|CONSTANTS|TITLES|LOW|HIGH)\b", pages[0]), "every place was filled in"


def test_every_control_has_a_name():
    page = memory_calculator("A < B").html
    assert 'aria-label="A &lt; B"' in page and repr(memory_calculator("A < B")) == "[calculator] A < B"
    for slider in re.findall(r'<input type="range"[^>]*>', page):
        assert re.search(r'aria-label="[^"]+"', slider) and re.search(r'aria-valuetext="[^"]+"', slider)
    assert page.count('type="range"') == len(calculator.SLIDERS)


def test_the_script_has_the_texts_of_the_formulas():
    script = calculator._functions()
    for place, (_, text) in footprint.FORMULAS.items():
        assert f'"{":".join(place)}":' in script and f"return[{text}," in script


def size_text(count: int) -> str:
    """Bytes in words, with three digits: `12.3 kB`; as the script writes them."""
    if count < 1000:
        return f"{count} B"
    value, unit = float(count), -1
    while value >= 1000 and unit < 3:
        value, unit = value / 1000, unit + 1
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{math.floor(value * 10**digits + 0.5) / 10**digits:.{digits}f} {('kB', 'MB', 'GB', 'TB')[unit]}"


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (12_345, "12.3 kB"), (999_499, "999 kB"),
                         (49_152, "49.2 kB"), (2_155_472, "2.16 MB"), (3 * 10**12, "3.00 TB")]
)  # fmt: skip
def test_bytes_in_words(count, words):
    assert size_text(count) == words


def test_refusals_say_what_is_allowed():
    with pytest.raises(cm.OptionError, match=r"image=100 is not on its slider; allowed: 64, 784"):
        memory_calculator(image=100)
    with pytest.raises(cm.OptionError, match=r"unknown slider 'images'; allowed: n_tasks.*Did you mean 'image'"):
        memory_calculator(images=64)
    with pytest.raises(cm.OptionError, match="unknown scenario 'both'"):
        memory_calculator(scenario="both")


# -- in Chromium --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page with the calculator twice, and a sandboxed frame."""
    folder: Path = tmp_path_factory.mktemp("calculator")
    one, two = (memory_calculator("Stage").html for _ in range(2))
    frame = '<iframe sandbox="allow-scripts" src="frame.html" width="390" height="900"></iframe>'
    (folder / "index.html").write_text(f'{START}<body><div id="a">{one}</div><div id="b">{two}</div>{frame}</body>')
    (folder / "frame.html").write_text(f"{START}<body>{one}</body>")
    server = serve(folder)
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()


def shown(box: Any) -> dict[str, str]:
    """What can be seen: method -> number."""
    return box.evaluate("""b => Object.fromEntries([...b.querySelectorAll('li')].filter(r => !r.hidden)
        .map(r => [r.dataset.method, r.querySelector('.cm-value').textContent]))""")


def expected(scenario: str, setting: Setting, count: str, heads: bool = False) -> dict[str, str]:
    found = {name: calculator.counts(name, scenario, setting) for name in footprint.methods(scenario)}
    if count == "bytes":
        return {name: size_text(one["bytes"] + 4 * heads * one["heads"]) for name, one in found.items()}
    return {name: f"{one[count] + heads * one['heads']:,}" for name, one in found.items()}


def put(box: Any, **values: int) -> None:
    for name, value in values.items():
        box.locator(f'input[name="{name}"]').fill(str(calculator.SLIDERS[name][1].index(value)))


@pytest.mark.browser
def test_every_count_is_that_of_the_package(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=DESK) as visit:
        box = visit.page.locator("#a")
        assert shown(box) == expected("til", Setting(), "formula"), "the script changes nothing at first"
        values = [
            {"n_tasks": 1},
            {"n_tasks": 20, "classes": 10, "embedding": 8, "image": 784, "shared": 5000, "a_task": 10},
            {"n_tasks": 10, "classes": 20, "embedding": 512, "image": 150_528, "shared": 200, "a_task": 1000},
        ]
        for change in values:
            put(box, **change)
            for scenario in ("til", "cil"):
                box.get_by_label(scenario.upper(), exact=True).check()
                for count, words in calculator.COUNTS.items():
                    box.get_by_label(words, exact=True).check()
                    assert shown(box) == expected(scenario, calculator.setting_of(**change), count), (change, scenario, count)
            box.get_by_label("with hidden costs", exact=True).check()
            box.locator("input[type=checkbox]").check()
            assert shown(box) == expected("cil", calculator.setting_of(**change), "kept", heads=True)
            box.get_by_label("with hidden costs, in bytes", exact=True).check()
            assert shown(box) == expected("cil", calculator.setting_of(**change), "bytes", heads=True)
            box.locator("input[type=checkbox]").uncheck()
        assert shown(visit.page.locator("#b")) == expected("til", Setting(), "formula"), "the other one stays as it was"
        assert visit.complaints == []


@pytest.mark.browser
def test_keyboard_sentence_marks_and_sandbox(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=DESK) as visit:
        box = visit.page.locator("#a")
        slider = box.locator('input[name="n_tasks"]')
        slider.press("ArrowRight")
        assert box.locator('output[data-of="n_tasks"]').inner_text() == "6" == slider.get_attribute("aria-valuetext")
        assert shown(box) == expected("til", calculator.setting_of(n_tasks=6), "formula")
        assert box.locator(".cm-said").inner_text() == "CM keeps the least: 1,536; the next is OEWC with 269,852."
        assert box.locator("input[type=checkbox]").is_disabled() and not box.locator(".cm-mark").last.is_visible()
        box.get_by_label("with hidden costs", exact=True).check()
        assert box.locator('li[data-method="cm"] .cm-mark').is_visible() and "thin marks" in box.locator(".cm-said").inner_text()
        assert METHODS["oewc"].title in box.locator(".cm-said").inner_text()
        frame = visit.page.frame_locator("iframe")
        frame.locator('input[name="n_tasks"]').press("End")
        assert frame.locator('output[data-of="n_tasks"]').inner_text() == "20"
        assert visit.complaints == []


@pytest.mark.browser
def test_a_phone_and_no_script(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=PHONE) as visit:
        for box in visit.page.locator("#a input[type=range]").all():
            place = box.bounding_box()
            assert place["height"] >= 30 and place["width"] >= 200
        assert visit.page.evaluate("document.querySelector('#a').scrollWidth") <= PHONE["width"]
    with Visit(browser, stage, viewport=DESK, java_script_enabled=False) as visit:
        box = visit.page.locator("#a")
        assert not box.locator(".cm-in").is_visible() and box.locator("li:visible").count() == 6
        assert "CM keeps the least" in box.inner_text()
