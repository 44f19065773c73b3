"""The built site and the player in Chromium (marker `browser`, after `make book`)."""

from __future__ import annotations

import functools
import http.server
import io
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from test_book import PAGES, ROOT, SITE

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1400, "height": 900}


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def serve(folder: Path) -> http.server.ThreadingHTTPServer:
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    assert (SITE / "index.html").is_file(), "the site is missing; run `make book`"
    server = serve(SITE)
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


class Tab:
    """A page for visits of one form, with what it asked for and what it complained about."""

    def __init__(self, browser: Any, context: dict[str, Any]) -> None:
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        self.page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url}"))


class Visit:
    """A page that was opened: what it asked for and what it complained about.

    Visits of one form (size, theme and so on) have one tab, one after the other: opening a chapter there takes half the time.
    fresh: in a tab of its own.
    """

    tabs: ClassVar[dict[str, Tab]] = {}

    def __init__(self, browser: Any, address: str, fresh: bool = False, **context: Any) -> None:
        form = repr((id(browser), sorted(context.items())))
        idle = None if fresh else self.tabs.pop(form, None)
        self.tab, self.fresh = idle or Tab(browser, context), fresh
        self.form, self.page, self.context = form, self.tab.page, self.tab.context
        self.page.emulate_media(
            media="screen",
            color_scheme=context.get("color_scheme", "light"),
            reduced_motion=context.get("reduced_motion", "no-preference"),
        )
        self.page.set_viewport_size(context["viewport"])
        self.asked, self.complaints = self.tab.asked, self.tab.complaints
        self.asked.clear()
        self.complaints.clear()
        self.page.goto(address, wait_until="load")
        self.page.wait_for_function("!window.MathJax || !MathJax.startup || !!MathJax.startup.document")

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *failure: Any) -> None:
        if self.fresh or any(failure):
            self.context.close()
            return
        self.page.evaluate("try { localStorage.clear() } catch {}")
        self.page.goto("about:blank")
        self.tabs[self.form] = self.tab


# --- the site ------------------------------------------------------------------------------------------------------


# The contrast of text with what lies behind it (for text of a drawing: the last opaque shape below its middle, if any),
# for every element of the article that has text of its own.
CONTRAST = """() => {
  const parse = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((s, v, k) => s + v * [.2126, .7152, .0722][k], 0);
  const behind = e => { const stack = [];
    for (let n = e; n; n = n.parentElement) { const c = parse(getComputedStyle(n).backgroundColor);
      const a = c.length > 3 ? c[3] : 1; if (a > 0) stack.push([c, a]); if (a === 1) break; }
    let out = [255, 255, 255]; for (const [c, a] of stack.reverse()) out = out.map((v, k) => v * (1 - a) + c[k] * a);
    return out; };
  const shape = e => { const box = e.getBoundingClientRect(), svg = e.closest('.cm-figure > svg') || e.ownerSVGElement;
    const middle = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2); let fill = null;
    for (const s of svg.querySelectorAll('path, rect, circle')) {
      if (!(s.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING) || s.closest('defs')) continue;
      const { fill: own, fillOpacity, opacity } = getComputedStyle(s), at = s.getScreenCTM();
      if (own === 'none' || fillOpacity * opacity < 1 || !at) continue;
      let seen = s.isPointInFill(middle.matrixTransform(at.inverse()));
      for (let box = s.parentNode.closest('svg'); seen && box !== svg; box = box.parentNode.closest('svg')) { // each cuts
        const { x, y } = middle.matrixTransform(box.parentNode.getScreenCTM().inverse());
        const [left, top, wide, high] = ['x', 'y', 'width', 'height'].map(name => box[name].baseVal.value);
        seen = left <= x && x <= left + wide && top <= y && y <= top + high;
      }
      if (seen) fill = own;
    }
    return fill && parse(fill).slice(0, 3); };
  const bad = [];
  const wanted = 'p, li, td, th, h1, h2, h3, figcaption, label, output, button, summary, a, text';
  for (const e of document.querySelectorAll(`.bd-article :is(${wanted})`)) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.matches('.headerlink')) continue;
    const style = getComputedStyle(e), back = (e.tagName === 'text' && shape(e)) || behind(e);
    const ink = parse(e.tagName === 'text' ? style.fill : style.color);
    if (e.tagName === 'text' && e.getAttribute('style')) continue; // numbers on a coloured cell
    const [low, high] = [light(ink), light(back)].sort((a, b) => a - b);
    const ratio = (high + .05) / (low + .05);
    if (ratio < 4.5) bad.push(`${ratio.toFixed(1)} ${e.tagName}: ${e.textContent.trim().slice(0, 40)}`);
  }
  return bad;
}"""


# What lies behind figures in the dark theme: transparent, or as dark as the boxes of that theme.
FIGURES = """() => [...document.querySelectorAll('.cm-figure svg, .cm-figure img, .cm-player svg, .cm-player img')].map(image => {
  const shades = []; for (let n = image; n && !n.matches('.bd-article'); n = n.parentElement)
    shades.push(getComputedStyle(n).backgroundColor);
  const dark = shade => { const [r, g, b, a = 1] = shade.match(/[\\d.]+/g).map(Number); return a * Math.max(r, g, b) < 64; };
  return shades.every(shade => shade === 'transparent' || dark(shade)) ? '' : shades.join(' ');
}).filter(Boolean)"""


LEAST = 11  # CSS pixels

# Letters that can be seen in figures and everything that moves, smaller than so many pixels; indices of formulas as well.
SMALL = """least => {
  const bad = [], roots = '.cm-figure, .cm-player, .cm-widget, .cm-gem, .cm-calc, .cm-story';
  for (const root of document.querySelectorAll(roots)) for (const e of root.querySelectorAll('*')) {
    if (e.closest('.cm-frame[hidden]') || e.matches('style, script, option, mjx-container *')) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || !e.checkVisibility()) continue;
    const m = e.ownerSVGElement ? e.getScreenCTM() : null;
    const size = parseFloat(getComputedStyle(e).fontSize) * (m ? Math.hypot(m.a, m.b) : 1);
    if (size < least - 0.05) bad.push(`${size.toFixed(1)} px: ${e.textContent.trim().slice(0, 30)} (${root.className})`);
  }
  return bad;
}"""
SHOWN = """() => [...document.querySelectorAll('.cm-figure')].filter(f => f.checkVisibility()).map(
  f => [...f.querySelectorAll(':scope > svg')].filter(s => s.checkVisibility()).map(s => s.getAttribute('class')).join())"""
FILTERS = """() => [...document.querySelectorAll('.cm-figure *, .cm-player *, .cm-widget *, .cm-gem *')].filter(
  e => getComputedStyle(e).filter.includes('brightness')).length"""

WIDTH = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"

CHECKS = (ROOT / "tests" / "page_checks.js").read_text(encoding="utf-8")
AXE = (ROOT / "tests" / "axe" / "axe.min.js").read_text(encoding="utf-8")
COLOURS = ["color-contrast", "link-in-text-block"]  # what another theme can change
FORMS = ((DESK, "light", None), (PHONE, "dark", None), (DESK, "dark", COLOURS), (PHONE, "light", COLOURS))
STILL = "* { transition: none !important }"  # no colour is looked at half way to that of another theme
A4 = {"width": 680, "height": 960}  # inside the margins


def in_theme(page: Any, theme: str) -> None:
    page.emulate_media(color_scheme=theme)
    page.wait_for_function(f"document.documentElement.dataset.theme === '{theme}'")


def visit_page(browser: Any, name: str) -> Visit:
    """A page of the book, from a folder and without a network."""
    assert (SITE / f"{name}.html").is_file(), "the site is missing; run `make book`"
    return Visit(browser, f"{SITE.as_uri()}/{name}.html", viewport=DESK, color_scheme="light", offline=True)


# Pages that together have all that a page of the book is made of: on paper and by axe these are looked at in `make test` too.
OF_EACH_KIND = [
    f"book/{name}"
    for name in (
        "index",  # the hero, cards
        "playground",
        "07_gem",  # a widget, formulas, quotations
        "07_cope",  # a player, figures, code
        "16_your_own_method",  # exercises, solutions, boxes
        "results_board",  # large tables
        "glossary",
    )
]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_holds_on_a_screen_and_a_phone(browser: Any, name: str) -> None:
    """One visit: all is there, both themes can be read, it fits a phone, and one control of each kind moves something.

    On some pages paper is looked at, and axe looks for what is serious, at one form: light on a screen or dark on a phone.
    """
    address = SITE.as_uri()
    with visit_page(browser, name) as visit:
        page, wrong = visit.page, {}
        page.evaluate(CHECKS)
        page.add_style_tag(content=STILL)
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        page.wait_for_load_state("networkidle")
        assert len(visit.asked) > 5
        assert [asked for asked in visit.asked if not asked.startswith((address, "data:"))] == []
        assert page.locator("mjx-merror").count() == 0
        wrong["on paper"] = on_paper(page) if name in OF_EACH_KIND else []
        for theme in ("light", "dark"):
            in_theme(page, theme)
            wrong[f"contrast, {theme}"] = page.evaluate(CONTRAST)
            wrong[f"figures, {theme}"] = page.evaluate(FIGURES) if theme == "dark" else []
        react_everywhere(page, most=1)
        page.evaluate("checks.unfold()")
        for size in (DESK, PHONE):
            page.set_viewport_size(size)
            page.wait_for_timeout(100)  # formulas are set anew
            wrong[f"wide, {size['width']}"] = page.evaluate("checks.unseen()")
        assert page.evaluate(WIDTH) <= PHONE["width"], "it scrolls sideways on a phone"
        wrong["letters"] = page.evaluate(SMALL, LEAST)
        assert all(kinds in ("cm-narrow", "cm-any") for kinds in page.evaluate(SHOWN))
        assert page.evaluate(FILTERS) == 0
        assert visit.complaints == []
        wrong |= axe_findings(page, FORMS[PAGES.index(name) % 2]) if name in OF_EACH_KIND else {}
        assert {what: found for what, found in wrong.items() if found} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_on_paper_every_control_works_and_axe_finds_nothing_serious(browser: Any, name: str) -> None:
    with visit_page(browser, name) as visit:
        visit.page.evaluate(CHECKS)
        visit.page.add_style_tag(content=STILL)
        assert on_paper(visit.page) == []
        react_everywhere(visit.page)
        visit.page.evaluate("checks.unfold()")
        found = axe_findings(visit.page, *FORMS)
        assert {what: wrong for what, wrong in found.items() if wrong} == {}


def on_paper(page: Any) -> list[str]:
    page.set_viewport_size(A4)
    page.emulate_media(media="print")
    found = page.evaluate("checks.paper()")
    page.emulate_media(media="screen")
    page.set_viewport_size(DESK)
    return found


Form = tuple[dict[str, int], str, list[str] | None]  # size, theme, rules of axe (None: all)


def axe_findings(page: Any, *forms: Form) -> dict[str, list[str]]:
    """What axe-core calls serious or critical, by form. All rules for two forms, those about colours for the other two."""
    page.evaluate("checks.thin()")
    page.evaluate(AXE)
    found = {}
    for size, theme, rules in forms:
        page.set_viewport_size(size)
        in_theme(page, theme)
        page.wait_for_timeout(450)  # colours change slowly
        page.evaluate("checks.settled()")
        found[f"axe, {theme}, {size['width']}"] = page.evaluate("rules => checks.axeFinds(rules)", rules)
    return found


DEFECTS = {  # what a visit must find: the page, a change of it, and the form that it shows in
    "a picture without a name": ("references", "document.querySelector('.bd-article').append(new Image(9, 9))", "axe"),
    "grey on white": ("references", "document.querySelector('.bd-article section').style.color = '#bbb'", "axe"),
    "a wide box without a shadow": (
        "two_engines",
        """for (const pre of document.querySelectorAll('.bd-article pre')) {
          pre.textContent = 'x'.repeat(999); pre.style.backgroundImage = 'none'; }""",
        "wide",
    ),
    "a formula whose end comes first": (
        "17_your_own_data",
        """for (const { style } of document.querySelectorAll('.bd-article div.math')) {
          style.width = '9em'; style.flexDirection = 'row-reverse'; }""",
        "wide",
    ),
    "a second frame on paper": ("01_forgetting", "document.querySelector('.cm-frame[hidden]').hidden = false", "paper"),
    "a solution that stays folded": (
        "01_forgetting",
        "document.head.insertAdjacentHTML('beforeend', '<style>.cm-solution > * { display: none !important }</style>')",
        "paper",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_a_page_is_found(browser: Any, defect: str) -> None:
    name, change, form = DEFECTS[defect]
    with Visit(browser, f"{SITE.as_uri()}/book/{name}.html", viewport=DESK, color_scheme="light", offline=True) as visit:
        visit.page.evaluate(CHECKS)
        visit.page.evaluate(change)
        if form == "paper":
            assert on_paper(visit.page)
        elif form == "wide":
            assert visit.page.evaluate("checks.unseen()")
        else:
            assert axe_findings(visit.page, FORMS[0])["axe, light, 1400"]


def test_the_shadow_of_a_wide_table_goes_away_at_its_end(browser: Any) -> None:
    """On a phone, in both themes: the strip at the right edge is shaded, and no longer when the end is reached."""
    from PIL import Image

    def shade(box: Any) -> int:
        picture = Image.open(io.BytesIO(box.screenshot())).convert("L")
        inside = picture.getpixel((picture.width // 2, picture.height // 2))
        return abs(picture.getpixel((picture.width - 2, picture.height // 2)) - inside)

    with Visit(browser, f"{SITE.as_uri()}/book/two_engines.html", viewport=PHONE, offline=True) as visit:
        box = visit.page.locator(".pst-scrollable-table-container").first
        box.evaluate("e => { e.innerHTML = '<div style=\"width: 900px; height: 80px\"></div>'; }")
        for theme in ("light", "dark"):
            in_theme(visit.page, theme)
            found = []
            for place in ("0", "e.scrollWidth"):
                box.evaluate(f"e => {{ e.scrollLeft = {place}; }}")
                visit.page.wait_for_timeout(300)
                found.append(shade(box))
            assert found[0] > 25 and found[1] < 4, (theme, found)


# --- the search ----------------------------------------------------------------------------------------------------

QUESTIONS = {  # what a reader types -> the page that answers
    "replay": "07_",
    "class incremental": "02_scenarios_and_metrics",
    "task-incremental learning": "02_scenarios_and_metrics",
    "install": "start#on-your-machine",
    "how do I install it": "start#on-your-machine",
    "Colab": "start#in-colab",
    "BWT": "02_scenarios_and_metrics",
    "backward transfer": "02_scenarios_and_metrics",
    "exercise": "start#how-exercises-are-checked",
    "centroid": "03_classify_by_distance",
    "what is a prototype": "03_classify_by_distance",
    "Voronoi": "03_classify_by_distance",
    "drift": "04_task_incremental_cm",
    "lambda": "13_lambda",
    "loss": "04_task_incremental_cm",
    "past model": "04_task_incremental_cm",
    "forgetting": "01_forgetting",
    "catastrophic forgetting": "01_forgetting",
    "GPU": "start#profiles",
    "memory": "09_memory",
    "exemplar": "05_class_incremental_cm",
    "projector": "05_class_incremental_cm",
    "EWC": "07_",
    "GEM": "07_",
    "PCA": "06_inside_the_space",
    "time": "10_time",
    "errata": "errata",
    "not run yet": "results_board",
    "Slurm": "cluster",
    "symbols": "notation",
}
DONE = "() => /^Search finished|did not match/.test(document.querySelector('.search-summary')?.innerText || '')"
ASK = "question => { document.querySelector('#search-results').replaceChildren(); Search.performSearch(question); }"
TEX = r"\\(?:frac|tfrac|sum|left|right|mathbf|mathcal|text|lambda|quad|begin|overline)"


def test_a_search_leads_to_the_page_that_answers(browser: Any, site: str) -> None:
    found = {}
    with Visit(browser, f"{site}/search.html", viewport=DESK) as visit:
        visit.page.wait_for_function("Search.hasIndex()")
        visit.page.evaluate("() => { window.fetch = () => new Promise(() => {}); }")  # no summaries here
        for question in QUESTIONS:
            visit.page.evaluate(ASK, question)
            visit.page.wait_for_function(DONE)
            found[question] = visit.page.locator("ul.search > li a").first.get_attribute("href")
        wanted = {question: f"book/{page.replace('#', '.html#')}" for question, page in QUESTIONS.items()}
        missed = {question: page for question, page in found.items() if not page.startswith(wanted[question])}
        assert missed == {}
        for address in sorted(set(found.values())):  # the place in the page is there
            name, _, anchor = address.partition("#")
            text = (SITE / name).read_text(encoding="utf-8")
            assert not anchor or f'id="{anchor}"' in text, address
        assert visit.complaints == []


SLOW = {"marks": pytest.mark.slow}


@pytest.mark.parametrize(
    "question", ["softmax", *(pytest.param(word, **SLOW) for word in ("gradient", "mean", "distance", "penalty"))]
)
def test_results_show_words_and_no_latex(browser: Any, site: str, question: str) -> None:
    with Visit(browser, f"{site}/search.html?q={question}", viewport=DESK) as visit:
        visit.page.wait_for_function(DONE)
        visit.page.wait_for_load_state("networkidle")
        visit.page.wait_for_timeout(300)  # the summaries come one after the other
        texts = visit.page.locator("ul.search p.context").all_inner_texts()
        assert len(texts) > 4 and [text for text in texts if re.search(TEX, text)] == []


FORMULAS = {
    r"\(\frac{1}{2} \lambda\)": "1 / 2 λ",
    r"\[\mathbf{c}_i^k = \frac{1}{|S|} \sum_{x \in S} e_i(x)\]": "c i k = 1 / |S| Σ x ∈ S e i(x)",
    r"\begin{aligned}a &= b \\ c &\le \tfrac12\end{aligned}": "a = b c ≤ 1 / 2",
    r"\overline{p}(y \mid x)": "overline p (y | x)",
}


def test_formulas_in_words(browser: Any, site: str) -> None:
    with Visit(browser, f"{site}/search.html", viewport=DESK) as visit:
        said = {tex: visit.page.evaluate("tex => cmInWords(tex)", tex) for tex in FORMULAS}
        assert {tex: " ".join(text.split()) for tex, text in said.items()} == FORMULAS


# --- everything that moves, moves ----------------------------------------------------------------------------------

ROOTS = '.bd-article [id^="cm-"][role="group"]'  # players and widgets
DRAGGED = '[role="slider"], [data-cm-drag], svg [tabindex="0"]'
KINDS = {
    "range": "input[type=range]",
    "number": "input[type=number]",
    "choice": "select",
    "checkbox": "input[type=checkbox]",
    "radio": "input[type=radio]",
    "dragged": DRAGGED,
    "button": "button",  # last: a reset button has something to do then
}

# What can be seen in a widget, but for the control itself and the words beside it: text, drawing, values of other fields.
LOOK = """(root, control) => {
  const own = control && (control.matches('input, select') ? control.parentElement : control), seen = [];
  for (const e of root.querySelectorAll('*')) {
    if (own && own.contains(e) || e.matches('style, script') || !e.checkVisibility()) continue;
    const text = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.textContent.trim()).join('');
    const shape = [...e.attributes].filter(a => !/^(aria-|id$|name$|value$)/.test(a.name)).map(a => a.value).join();
    const state = e.type === 'radio' ? '' : e.type === 'checkbox' ? e.checked : e.matches('input, select') ? e.value : '';
    seen.push(e.tagName + text + shape + state);
  }
  return seen.join('|');
}"""


def react_everywhere(page: Any, most: int | None = None) -> int:
    """Use every control of every player and widget of a page; AssertionError when one changes nothing. -> how many

    most: so many of each kind in each of them; those of a kind are made by the same lines.
    """
    return sum(react(root, most) for root in page.locator(ROOTS).all())


def react(root: Any, most: int | None = None) -> int:
    root.evaluate("e => { for (let n = e; n; n = n.parentElement) if (n.matches('details')) n.open = true }")
    label, count = root.get_attribute("aria-label"), 0
    for kind, selector in KINDS.items():
        for control in root.locator(selector).all()[:most]:
            assert control.is_visible(), f"{label}: a {kind} cannot be seen"
            if control.is_enabled():
                control.scroll_into_view_if_needed()
                USES[kind](root, control, f"{label}: the {kind} {control.get_attribute('aria-label') or ''} changes nothing")
                count += 1
    assert count, f"{label}: there is nothing to use"
    return count


def look(root: Any, control: Any) -> str:
    return str(root.evaluate(LOOK, control.element_handle()))


def changes(root: Any, control: Any, action: Callable[[], Any], wait: int = 300) -> bool:
    """Does an action change what can be seen, within some milliseconds?"""
    before = look(root, control)
    action()
    for _ in range(wait // 50):
        if look(root, control) != before:
            return True
        root.page.wait_for_timeout(50)
    return False


def use_range(root: Any, control: Any, otherwise: str) -> None:
    """By moving it and by the keyboard."""
    low, high = (control.get_attribute(name) for name in ("min", "max"))
    control.fill(low)
    assert changes(root, control, lambda: control.fill(high)), otherwise
    assert changes(root, control, lambda: control.press("Home")), f"{otherwise} (keys)"
    assert control.input_value() == low, f"{otherwise} (keys)"


def use_number(root: Any, control: Any, otherwise: str) -> None:
    value, low = float(control.input_value()), float(control.get_attribute("min") or "-inf")
    other = value - 5 if value - 5 >= low else value + 5
    assert changes(root, control, lambda: control.fill(f"{other:g}")), otherwise


def use_choice(root: Any, control: Any, otherwise: str) -> None:
    values = control.evaluate("e => [...e.options].map(o => o.value)")
    for value in [*(v for v in values if v != control.input_value()), values[0]]:
        assert changes(root, control, lambda value=value: control.select_option(value)), otherwise


def use_checkbox(root: Any, control: Any, otherwise: str) -> None:
    for _ in range(2):
        assert changes(root, control, control.click), otherwise


def use_radio(root: Any, control: Any, otherwise: str) -> None:
    assert control.is_checked() or changes(root, control, control.check), otherwise


def use_dragged(root: Any, control: Any, otherwise: str) -> None:
    """By arrow keys and by the pointer; a place at the edge may only go one way."""
    keys = ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown")
    assert any(changes(root, control, lambda key=key: control.press(key)) for key in keys), f"{otherwise} (keys)"
    assert any(changes(root, control, lambda s=side: drag(control, s)) for side in (1, -1)), f"{otherwise} (pointer)"


def drag(control: Any, side: int) -> None:
    box, mouse = control.bounding_box(), control.page.mouse
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + side * 32, y - side * 24, steps=4)
    mouse.up()


def use_button(root: Any, control: Any, otherwise: str) -> None:
    """A button that shows what is shown already has to do something after another one was pressed."""
    if not changes(root, control, control.click, wait=2500):
        others = [other for other in root.locator("button").all() if other.element_handle() != control.element_handle()]
        assert others, otherwise
        others[0].click()
        assert changes(root, control, control.click, wait=2500), otherwise


USES: dict[str, Callable[[Any, Any, str], None]] = {
    "range": use_range,
    "number": use_number,
    "choice": use_choice,
    "checkbox": use_checkbox,
    "radio": use_radio,
    "dragged": use_dragged,
    "button": use_button,
}


BREAKS = {
    "a slider that nobody listens to": ('range.addEventListener("input"', 'range.addEventListener("inptu"'),
    "a toggle that nobody listens to": ('r.addEventListener("change"', 'r.addEventListener("chnage"'),
    "a button that nobody listens to": ('button.addEventListener("click"', 'button.addEventListener("clik"'),
    "a script that does not start": ("(function(){var box=", "(function({var box="),
    "controls that stay hidden": ("b.hidden=false", "b.hidden=true"),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Copies of chapter 1 as it was built, each with one thing broken in the script of its player; `whole` is as it was."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "_static").symlink_to(SITE / "_static")
    (folder / "book").mkdir()
    page = (SITE / "book" / "01_forgetting.html").read_text(encoding="utf-8")
    for k, (right, wrong) in enumerate([("", ""), *BREAKS.values()]):
        assert right in page
        (folder / "book" / f"{k}.html").write_text(page.replace(right, wrong) if right else page, encoding="utf-8")
    server = serve(folder)
    yield f"http://127.0.0.1:{server.server_port}/book"
    server.shutdown()


def test_a_page_that_works_is_not_complained_about(browser: Any, broken: str) -> None:
    with Visit(browser, f"{broken}/0.html", viewport=DESK) as visit:
        assert react_everywhere(visit.page) >= 6  # a slider, a button and four choices


@pytest.mark.parametrize("k", [*range(2), *(pytest.param(k, **SLOW) for k in range(2, len(BREAKS)))], ids=list(BREAKS))
def test_a_broken_script_is_found(browser: Any, broken: str, k: int) -> None:
    with Visit(browser, f"{broken}/{k + 1}.html", viewport=DESK) as visit, pytest.raises(AssertionError):
        react_everywhere(visit.page)


# --- the player ----------------------------------------------------------------------------------------------------


def dot(x: int) -> str:
    return f'<svg viewBox="0 0 90 90"><path class="cm-p" stroke="#3a4eff" d="M{x} 9h0"/><text x="9" y="60">{x}</text></svg>'


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page with three players: two with one content, one with groups inside a hidden tab; and a sandboxed frame."""
    from cmlib.plots.player import player

    notes = ["first", "second", "third"]
    same = [player([dot(1), dot(2), dot(3)], label="Dots", alt=notes, captions=notes) for _ in range(2)]
    groups = {"with penalty": [dot(4), dot(5), dot(6)], "without": [dot(7), dot(8)]}
    other = player(groups, {"seconds": 0.05}, label="Groups", alt={"with penalty": notes, "without": notes[:2]})
    folder = tmp_path_factory.mktemp("stage")
    pieces = "".join(f'<section id="s{k}">{made.html}</section>' for k, made in enumerate(same))
    tab = f'<div id="tab" style="display:none">{other.html}</div>'
    start = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
    frame = '<iframe sandbox="allow-scripts" src="frame.html" width="390" height="500"></iframe>'
    (folder / "index.html").write_text(f"{start}<body>{pieces}{tab}{frame}</body>")
    (folder / "frame.html").write_text(f"{start}<body>{same[0].html}</body>")
    server = serve(folder)
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()


def seen(place: Any) -> list[str]:
    """The captions or alt texts of the frames that can be seen."""
    frames = place.locator(".cm-frame").all()
    return [frame.get_attribute("data-say") for frame in frames if frame.is_visible()]


def test_the_range_input_moves_one_player_only(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=DESK) as visit:
        one, two = visit.page.locator("#s0"), visit.page.locator("#s1")
        assert (seen(one), seen(two)) == (["third"], ["third"])
        one.locator("input[type=range]").fill("0")
        assert (seen(one), seen(two)) == (["first"], ["third"])
        assert one.locator("input[type=range]").get_attribute("aria-valuetext") == "first"
        assert one.locator("output").inner_text() == "1 / 3"
        assert visit.complaints == []


def test_the_keyboard_moves_the_player(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=DESK) as visit:
        one = visit.page.locator("#s0")
        steps = {"ArrowLeft": "second", "Home": "first", "ArrowRight": "second", "End": "third"}
        for key, expected in steps.items():
            one.locator(".cm-stage").press(key)
            assert seen(one) == [expected], key
        one.locator("input[type=range]").press("ArrowLeft")
        assert seen(one) == ["second"]
        one.locator(".cm-stage").press("Home")
        one.locator(".cm-stage").press("ArrowLeft")
        assert seen(one) == ["first"]


def test_play_runs_to_the_end_and_stops(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=DESK) as visit:
        visit.page.evaluate("document.getElementById('tab').style.display = ''")
        tab = visit.page.locator("#tab")
        button = tab.locator("button")
        button.click()
        visit.page.wait_for_function("document.querySelector('#tab output').textContent === '3 / 3'", timeout=5000)
        visit.page.wait_for_function("document.querySelector('#tab button').textContent === 'Play'", timeout=5000)
        assert seen(tab) == ["third"]


def test_groups_inside_a_tab_that_was_hidden(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=DESK) as visit:
        tab = visit.page.locator("#tab")
        assert seen(tab) == []
        visit.page.evaluate("document.getElementById('tab').style.display = ''")
        assert seen(tab) == ["third"]
        tab.get_by_label("without").check()
        assert tab.locator("output").inner_text() == "2 / 2"
        assert "without" in tab.locator(".cm-frame:visible").inner_text()
        assert tab.locator(".cm-frame:visible").bounding_box()["height"] > 100


def test_reduced_motion_goes_one_step_at_a_time(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=DESK, reduced_motion="reduce") as visit:
        one = visit.page.locator("#s0")
        button = one.locator("button")
        assert button.inner_text() == "Next"
        button.click()
        assert seen(one) == ["first"]
        button.click()
        visit.page.wait_for_timeout(1500)
        assert seen(one) == ["second"]


def test_the_player_works_in_a_sandboxed_frame(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=DESK) as visit:
        frame = visit.page.frame_locator("iframe")
        frame.locator(".cm-stage").press("Home")
        assert seen(frame) == ["first"]


def test_without_scripts_the_last_frame_is_seen(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=DESK, java_script_enabled=False) as visit:
        one = visit.page.locator("#s0")
        assert seen(one) == ["third"]
        assert not one.locator(".cm-bar").is_visible()


def test_paper_shows_all_frames_and_no_buttons(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=DESK) as visit:
        visit.page.emulate_media(media="print")
        one = visit.page.locator("#s0")
        assert seen(one) == ["first", "second", "third"]
        assert not one.locator("button").is_visible()


def test_buttons_are_large_enough_for_a_finger(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=PHONE) as visit:
        for kind in ("button", "input[type=range]"):
            box = visit.page.locator("#s0").locator(kind).bounding_box()
            assert box["height"] >= 30 and box["width"] >= 44, kind
        assert visit.page.evaluate("document.querySelector('#s0 .cm-player').scrollWidth") <= PHONE["width"]
