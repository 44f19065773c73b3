"""Pictures as values: geometry by hand, fixed bytes, players that stay small and unique."""

from __future__ import annotations

import html
import itertools
import json
import math
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from cmlib import plots
from cmlib.errors import DataError, OptionError
from cmlib.plots import figures, fragment, geometry, png, style, svg
from cmlib.plots import player as players
from cmlib.plots.geometry import Space
from cmlib.teaching import page, traced

# --- colours -------------------------------------------------------------------------------------------------------

BOOK = Path(__file__).resolve().parents[2] / "book"
WHITE, DARK = "#ffffff", "#14181e"
BLINDNESS = {  # Machado et al. 2009, full severity, on linear RGB
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(colour: str) -> Any:
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: Any) -> Any:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_ten_colours_two_shades_a_task() -> None:
    assert len(set(style.PALETTE)) == 10
    assert [style.class_colour(k) for k in range(10)] == list(style.PALETTE)
    assert [style.task_colour(i) for i in (0, 4, 5)] == [style.PALETTE[0], style.PALETTE[8], style.PALETTE[0]]
    assert [style.class_marker(k) for k in range(4)] == ["o", "s", "o", "s"]


@pytest.mark.parametrize("palette", [style.PALETTE, style.DARK_PALETTE], ids=["light", "dark"])
@pytest.mark.parametrize("kind", BLINDNESS)
def test_colours_stay_apart_for_colour_blind_readers(kind: str, palette: tuple[str, ...]) -> None:
    seen = [lab(np.array(BLINDNESS[kind]) @ linear(colour)) for colour in palette]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 20


@pytest.mark.parametrize("name", style.THEME)
def test_every_colour_is_readable_on_white_and_on_the_dark_theme(name: str) -> None:
    """Marks have a contrast of 3, what is written as text 4.5, each in the value of its theme."""
    if name == "ground":  # the inside of an open mark
        assert contrast(style.THEME[name][0], WHITE) < 1.05 and style.THEME[name][1] == DARK
        return
    if name in ("firm", "weak"):  # fills: what is written on them is what has to be read
        letters = style.THEME["ground" if name == "firm" else "strong"]
        assert all(contrast(fill, on) >= 4.5 for fill, on in zip(style.THEME[name], letters, strict=True))
        return
    least = 4.5 if name in style.TEXTS else 3
    for colour, ground in zip(style.THEME[name], (WHITE, DARK), strict=True):
        assert contrast(colour, ground) >= least, (name, colour)


def test_names_of_the_theme_are_those_of_all_colours() -> None:
    light = [values[0] for values in style.THEME.values()]
    assert len(set(light)) == len(light)
    assert {*style.PALETTE, style.INK, style.GREY, style.STRONG, style.GROUND} <= set(light)
    assert {look.colour for look in style.METHOD_LOOKS.values()} <= set(light)


# --- methods -------------------------------------------------------------------------------------------------------


def test_methods_have_colours_that_no_task_has() -> None:
    for k, palette in enumerate((style.PALETTE, style.DARK_PALETTE)):
        methods = [look[k] for look in style.METHOD_LOOKS.values()]
        assert len(set(methods)) == 10
        seen = [lab(linear(colour)) for colour in methods]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 18
        assert min(np.linalg.norm(lab(linear(task)) - one) for task in palette for one in seen) > 18


def test_methods_are_told_apart_without_colour() -> None:
    looks = list(style.METHOD_LOOKS.values())
    assert len({look.marker for look in looks}) == 10
    lines = [str(look.line) for look in looks if look.line != "-"]
    assert len(set(lines)) == len(lines)


def test_a_method_is_found_by_its_name_and_by_its_title() -> None:
    from cmlib.methods import METHODS

    for name in style.METHOD_LOOKS:
        assert plots.method_colour(name) == plots.method_colour(METHODS[name].title) == style.METHOD_LOOKS[name].colour
    assert set(style.METHOD_LOOKS) <= set(METHODS)
    with pytest.raises(OptionError, match=r"unknown method 'gme'.*Did you mean 'gem'"):
        plots.method_colour("gme")


def test_a_method_of_a_reader_has_a_colour_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from cmlib.methods import METHODS

    monkeypatch.setitem(METHODS, "mine", METHODS["naive"])
    assert plots.method_colour("mine") == style.OTHER.colour


def test_colours_become_variables_and_the_rules_hold_those_that_are_used() -> None:
    shown = style.themed(f'<path fill="{style.PALETTE[0]}" stroke="{style.INK}"/><b style="color:#123456">')
    assert shown == '<path fill="var(--cm-t1a)" stroke="var(--cm-ink)"/><b style="color:#123456">'
    rules = style.palette_css(".cm-x", shown)
    assert rules.startswith(f".cm-x{{--cm-ink:{style.INK};--cm-t1a:{style.PALETTE[0]}}}@media screen{{")
    assert rules.count("--cm-t1a") == 2 and "t1b" not in rules
    assert "html[data-theme=dark] .cm-x,html[theme=dark] .cm-x,body[data-jp-theme-light=false] .cm-x" in rules
    assert style.palette_css(".cm-x", "<p>") == ""


def test_drawings_in_the_text_have_the_colours_of_the_tasks_on_light_and_dark_pages() -> None:
    tasks = {name: pair for name, pair in style.THEME.items() if re.fullmatch(r"t\d[ab]", name)}
    css = (BOOK / "_static" / "custom.css").read_text(encoding="utf-8")
    rules = dict.fromkeys(tasks, ())
    for name, colour in re.findall(r"--cm-(t\d[ab]): (#[0-9a-f]{6});", css):
        rules[name] = (*rules[name], colour)
    assert rules == tasks
    names = {light: name for name, (light, _) in tasks.items()}
    for path in BOOK.glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        for tag in re.findall(r"<[^>]+>", "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))):
            for what, colour in re.findall(r'(fill|stroke)="(#[^"]*)"', tag):
                assert f"{what}:var(--cm-{names.get(colour)},{colour})" in tag, (path.stem, tag)


def test_numbers_in_the_matrix_are_readable() -> None:
    for percent in range(0, 101):
        fill, ink = style.accuracy_colours(percent)
        assert contrast(fill, ink) >= 4.5, percent
    assert style.accuracy_colours(0)[0] == style.ACCURACY_STOPS[0]
    assert style.accuracy_colours(100)[0] == style.ACCURACY_STOPS[-1]


# --- geometry ------------------------------------------------------------------------------------------------------


def test_disagreement_by_hand() -> None:
    points = [[0, 0, 0], [1, 0, 0], [1, 0, 5], [0, 0, 5]]
    centroids = [[0, 0, 0], [1, 0, 5]]
    first_two = [[1, 0], [0, 1], [0, 0]]
    assert geometry.disagreement(points, centroids, first_two) == 50.0  # the second and the fourth point
    assert geometry.disagreement(points[:1], centroids, first_two) == 0.0


def spread(axes: dict[int, float]) -> Any:
    rows = []
    for axis, size in axes.items():
        for sign in (1, -1):
            row = np.zeros(4)
            row[axis] = sign * size
            rows.append(row)
    return np.array(rows)


def test_the_basis_is_that_of_the_last_frame() -> None:
    early, last = spread({0: 9.0, 1: 8.0}), spread({2: 3.0, 3: 2.0, 0: 1.0})
    spaces = [Space.of(p, np.zeros(len(p)), p[:1]) for p in (early, last)]
    view = geometry.project(spaces)
    assert np.allclose(np.abs(view.basis), [[0, 0], [0, 0], [1, 0], [0, 1]])
    assert view.explained == pytest.approx(100 * 13 / 14)
    assert np.allclose(view.points[0], 0)  # the early frame varies along directions that the picture does not show
    assert np.allclose(np.abs(view.points[1][:4]), [[3, 0], [3, 0], [0, 2], [0, 2]])
    assert "93 %" in view.caption() and "4 dimensions" in view.caption()


def test_signs_of_the_axes_are_fixed() -> None:
    points = np.random.default_rng(0).normal(size=(40, 5)) * [5, 4, 1, 1, 1]
    first, second = geometry.pca(points)[1], geometry.pca(-points)[1]
    assert np.allclose(first, second)
    assert (first[np.abs(first).argmax(axis=0), [0, 1]] > 0).all()


def test_voronoi_cells_by_hand() -> None:
    left, right = geometry.voronoi_cells([[0, 0], [2, 0]], (-1, 3, -1, 1))
    assert sorted(map(tuple, left)) == [(-1, -1), (-1, 1), (1, -1), (1, 1)]
    assert sorted(map(tuple, right)) == [(1, -1), (1, 1), (3, -1), (3, 1)]


def test_voronoi_cells_fill_the_box_and_hold_their_points() -> None:
    from matplotlib.path import Path

    rng = np.random.default_rng(1)
    centroids, points = rng.uniform(0, 1, (7, 2)), rng.uniform(0, 1, (300, 2))
    cells = geometry.voronoi_cells(centroids, (0, 1, 0, 1))
    x, y = zip(*[(c[:, 0], c[:, 1]) for c in cells], strict=True)
    area = sum(0.5 * abs(np.dot(a, np.roll(b, 1)) - np.dot(b, np.roll(a, 1))) for a, b in zip(x, y, strict=True))
    assert area == pytest.approx(1.0)
    owner = geometry.nearest_centroid(points, centroids)
    assert all(Path(cells[k]).contains_point(p, radius=1e-9) for k, p in zip(owner, points, strict=True))


def test_spaces_of_wrong_shape_are_refused() -> None:
    with pytest.raises(DataError, match=r"points \[n, E\]"):
        Space.of(np.zeros((3, 2)), np.zeros(4), np.zeros((1, 2)))
    with pytest.raises(DataError, match="finite"):
        Space.of([[np.nan, 0.0]], [0], [[0.0, 0.0]])


# --- figures -------------------------------------------------------------------------------------------------------

R3 = np.array([[90.0, np.nan, np.nan], [50.0, 91.0, np.nan], [20.0, 60.0, 92.0]])


def texts(fig: Figure) -> list[str]:
    return [text.get_text() for ax in fig.axes for text in ax.texts]


def space_frames() -> list[tuple[Any, Any, Any, str]]:
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(6, 8)) * 4
    made = []
    for t in (1, 2, 3):
        labels = rng.integers(0, 2 * t, 60)
        points = centroids[labels] + rng.normal(size=(60, 8))
        made.append((points, labels, centroids[: 2 * t], f"after task {t}"))
    return made


def test_accuracy_matrix_shows_the_lower_triangle_only() -> None:
    fig = plots.accuracy_matrix(np.nan_to_num(R3, nan=77.0))
    assert texts(fig) == ["90", "50", "91", "20", "60", "92"]
    assert np.ma.getmaskarray(fig.axes[0].images[0].get_array()).sum() == 3


def test_accuracy_matrices_side_by_side() -> None:
    fig = plots.accuracy_matrix({"Naive": R3, "CM": R3}, title="Two")
    assert [ax.get_title(loc="left") for ax in fig.axes] == ["Naive", "CM"]
    with pytest.raises(DataError, match="square"):
        plots.accuracy_matrix(np.zeros((2, 3)))


def test_forgetting_curves_start_where_a_task_is_learned() -> None:
    fig = plots.forgetting_curves({"Naive": R3})
    assert fig.axes[0].get_title(loc="left") == "Naive"
    lines = [line.get_xydata().tolist() for line in fig.axes[0].lines]
    assert lines == [[[1, 90], [2, 50], [3, 20]], [[2, 91], [3, 60]], [[3, 92]]]


def test_forgetting_curves_of_seeds_show_mean_and_range() -> None:
    fig = plots.forgetting_curves({"Naive": np.stack([R3, R3 - 10])})
    assert fig.axes[0].lines[0].get_ydata().tolist() == [85, 45, 15]
    box = fig.axes[0].collections[0].get_paths()[0].get_extents()
    assert (box.y0, box.y1) == (10, 90)


def test_embedding_space_has_a_caption_that_says_what_is_hidden() -> None:
    frames = space_frames()
    fig = plots.embedding_space(frames)
    view = fig.cm_projection  # type: ignore[attr-defined]
    expected = [geometry.disagreement(p - view.mean, c - view.mean, view.basis) for p, _, c, _ in frames]
    assert list(view.disagreement) == expected
    assert f"{expected[-1]:.1f} %" in fig.cm_caption  # type: ignore[attr-defined]
    assert [ax.get_title(loc="left") for ax in fig.axes] == ["after task 1", "after task 2", "after task 3", ""]


def test_moons_decision_colours_the_regions() -> None:
    panel = {"regions": [[0, 1], [2, 3]], "points": [[0.1, 0.1]], "labels": [3], "title": "after task 2"}
    fig = plots.moons_decision([panel], (0, 1, 0, 1))
    image = np.asarray(fig.axes[0].images[0].get_array())[..., :3].reshape(4, 3)
    shown = ["#" + "".join(f"{round(255 * v):02x}" for v in pixel) for pixel in image]
    assert shown == list(style.PALETTE[:4])


# --- show ----------------------------------------------------------------------------------------------------------


def chunks(png: bytes) -> list[str]:
    names, at = [], 8
    while at < len(png):
        size, name = struct.unpack(">I4s", png[at : at + 8])
        names.append(name.decode())
        at += 12 + size
    return names


def test_png_bytes_are_the_same_and_carry_no_text() -> None:
    first, second = (png.png_bytes(plots.accuracy_matrix(R3)) for _ in range(2))
    assert first == second
    assert not {"tEXt", "iTXt", "zTXt", "tIME"} & set(chunks(first))


def test_show_writes_alt_text_and_caption() -> None:
    shown = page.show(plots.embedding_space(space_frames()), alt='A "space" <b>')
    data, _ = shown._repr_mimebundle_()
    assert data["text/html"].count('role="img" aria-label="A &quot;space&quot; &lt;b&gt;"') == 2  # wide and narrow
    assert re.search(r"<figcaption>\d+ %.* of the points are nearest to the centroid", data["text/html"])
    assert data["text/plain"] == '[figure] A "space" <b>'


@pytest.mark.parametrize("alt", ["", "  \n"])
def test_show_refuses_an_empty_alt(alt: str) -> None:
    with pytest.raises(OptionError, match="alt is empty"):
        page.show(Figure(), alt=alt)


def test_show_closes_a_pyplot_figure() -> None:
    import matplotlib.pyplot as plt

    fig, _ = plt.subplots()
    page.show(fig, alt="nothing")
    assert fig.number not in plt.get_fignums()


# --- say and setup -------------------------------------------------------------------------------------------------


class FakeRun:
    id = "cm-til-digits-seed0-1a2b3c4d"


def test_say_fills_fields_and_keeps_the_raw_values() -> None:
    said = page.say("Got **{acc:.1f} %**, $\\frac{1}{2}$.", run=[FakeRun(), "b"], acc=np.float64(91.25))
    data, metadata = said._repr_mimebundle_()
    assert data["text/markdown"] == "Got **91.2 %**, $\\frac{1}{2}$."
    record = metadata["cmlib"]
    assert record["values"] == {"acc": 91.25} and type(record["values"]["acc"]) is float
    assert record["runs"] == [FakeRun.id, "b"]
    assert record["text"] == "Got **{acc:.1f} %**, $\\frac{1}{2}$."


def test_say_fills_fields_inside_formulas_and_writes_nan_as_null() -> None:
    said = page.say("$x_{n} = {x:.2f}$ and {y}", run=FakeRun(), x=0.5, y=math.nan)
    assert said.data["text/markdown"] == "$x_{n} = 0.50$ and nan"
    assert said.metadata["cmlib"]["values"] == {"x": 0.5, "y": None}
    assert said.metadata["cmlib"]["runs"] == [FakeRun.id]


@pytest.mark.parametrize(
    ("text", "values", "message"),
    [
        ("{acuracy:.1f}", {"accuracy": 1.0}, "no value for the field {acuracy}.*Did you mean 'accuracy'"),
        ("{acuracy}", {}, "no value for the field"),
        ("fixed", {"accuracy": 1.0}, "'accuracy' was given but"),
        ("{a:.1f}", {"a": "text"}, "does not fit the format"),
    ],
)
def test_say_refuses_what_does_not_fit(text: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        page.say(text, **values)


NASTY = [
    "<script>alert(1)</script>",
    "a < b > c & d &lt; e",
    "*not* **bold** and _not_ __this__ ~~or~~ this",
    "R|{table}|cell",
    "$x_1$ costs 5 $ and $$y$$",
    "`code` ``and`` {doc}`more`",
    "[link](http://example.org) ![image](x.png) [^1] <http://example.org>",
    "back\\slash \\* \\_ \\",
    "# heading",
    "- item",
    "+ item",
    "1. first",
    "--- ===",
    "> quoted",
    "% comment",
    ":::{note}",
    "train_per_class",
    "\u202e\u0645\u0631 😀 é",
]


@pytest.fixture(scope="module")
def as_html() -> Any:
    """Markdown as the book reads it: tables, formulas between dollars, raw HTML. -> what a reader sees, and the HTML"""
    from markdown_it import MarkdownIt
    from mdit_py_plugins.colon_fence import colon_fence_plugin
    from mdit_py_plugins.dollarmath import dollarmath_plugin
    from mdit_py_plugins.myst_blocks import myst_block_plugin
    from mdit_py_plugins.myst_role import myst_role_plugin

    book = MarkdownIt("gfm-like", {"linkify": False})
    for plugin in (dollarmath_plugin, myst_role_plugin, myst_block_plugin, colon_fence_plugin):
        book.use(plugin)
    return book.render


@pytest.mark.parametrize("value", NASTY)
def test_say_shows_a_text_letter_by_letter(as_html: Any, value: str) -> None:
    """In a sentence, at the start of a line, in bold letters, in a table, inside HTML: the same letters, no markup of theirs."""
    shown = html.escape(value, quote=False)
    for text, wanted in [
        ("Best: {v}; {n:.1f}.", f"<p>Best: {shown}; 0.5.</p>"),
        ("{v}", f"<p>{shown}</p>"),
        ("**{v}**, {n}", f"<p><strong>{shown}</strong>, 0.5</p>"),
        ("| a | b |\n|---|---|\n| {v} | {n} |", f"<td>{shown}</td>\n<td>0.5</td>"),
        ("<b>{v}</b> {n}", f"<p><b>{shown}</b> 0.5</p>"),
    ]:
        values = {"v": value, "n": 0.5} if "{n" in text else {"v": value}
        said = page.say(text, **values)
        assert wanted in as_html(said.data["text/markdown"]).replace("&quot;", '"')
        assert said.data["text/plain"] == text.replace("{v}", value).replace("{n:.1f}", "0.5").replace("{n}", "0.5")
        assert said.metadata["cmlib"] == {"text": text, "values": values, "runs": []}
        assert {*said.data.items()} <= traced.renderings(text, values)


def test_say_leaves_numbers_and_markdown_of_the_page_alone(as_html: Any) -> None:
    said = page.say("{a:.2f} {b} {c:,} {d} {e:markdown} {f}", a=-1.5, b=[1, 2], c=12000, d=True, e="*so*", f=["a_b", "*"])
    assert said.data["text/markdown"] == "-1.50 [1, 2] 12,000 True *so* &#91;'a&#95;b', '&#42;'&#93;"
    assert said.data["text/plain"] == "-1.50 [1, 2] 12,000 True *so* ['a_b', '*']"
    assert "<em>so</em> ['a_b', '*']" in as_html(said.data["text/markdown"])


def test_say_in_code_and_in_formulas(as_html: Any) -> None:
    """Nothing can be escaped between backticks; in a formula LaTeX's own characters can."""
    said = page.say("`lam={v}` and $x = {w}$", v="a_b`*c*\n<d>", w="a_b < 5 % $")
    assert said.data["text/markdown"] == "`lam=a_b'*c* <d>` and $x = a\\_b \\lt  5 \\% \\$$"
    assert "<code>lam=a_b'*c* &lt;d&gt;</code>" in as_html(said.data["text/markdown"])
    assert 'math inline">x = a\\_b \\lt  5 \\% \\$<' in as_html(said.data["text/markdown"])


def test_say_keeps_a_value_on_its_line(as_html: Any) -> None:
    said = page.say("| a |\n|---|\n| {v} |\n", v="one\n\n# two\r\nthree\u2028four")
    assert as_html(said.data["text/markdown"]).count("<td>") == 1 and "<h1" not in as_html(said.data["text/markdown"])


def test_setup_prints_one_line_that_is_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    page.setup("digits", chapter=4)
    assert capsys.readouterr().out == (
        "Chapter 4, profile digits: 8x8 digits that ship inside scikit-learn; no download, no GPU.\n"
    )
    with pytest.raises(OptionError, match=r"unknown profile 'digit'.*Did you mean 'digits'"):
        page.setup("digit")


def test_profiles_are_those_of_the_experiments() -> None:
    from cmlib.profiles import PROFILES

    assert set(page.PROFILES) == set(PROFILES)


def test_importing_cmlib_or_the_page_helpers_imports_no_pyplot() -> None:
    code = "import sys, cmlib, cmlib.teaching.page, cmlib.plots.player; print([m for m in sys.modules if 'matplotlib' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- svg and players -----------------------------------------------------------------------------------------------


def test_svg_scatter_draws_every_point_and_places_it() -> None:
    made = svg.svg_scatter([[0, 10], [10, 0], [5, 5]], [0, 1, 1], [[0, 0], [10, 10]], extent=(0, 10, 0, 10), size=100)
    root = ElementTree.fromstring(made)
    dots = {p.get("stroke"): p.get("d") for p in root if p.get("class") in ("cm-p", "cm-q")}
    assert dots == {style.PALETTE[0]: "M0 0h0", style.PALETTE[1]: "M100 100h0M50 50h0"}
    assert sum(p.get("class") == "cm-v" for p in root) == 2
    assert 'id="' not in made and "http" not in made


def test_svg_matrix_fills_rows_up_to_the_one_asked_for() -> None:
    root = ElementTree.fromstring(svg.svg_matrix(R3, upto=1))
    assert sum(r.get("class") == "cm-e" for r in root) == 3
    written = [t.text for t in root if t.tag == "text" and t.get("style")]
    assert written == ["90", "50", "91"]


DOT = '<svg viewBox="0 0 9 9"><path d="M1 1h0"/></svg>'


@pytest.fixture(autouse=True)
def nothing_shown_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragment, "_shown", {})


def identity(made: players.Player) -> str:
    return re.findall(r'<div class="cm-player" id="([^"]+)"', made.html)[0]


def test_players_have_unique_and_repeatable_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    def some() -> list[players.Player]:
        same = [players.player([DOT, DOT], label="A", alt=["one", "two"]) for _ in range(2)]
        return [*same, players.player([DOT], label="B", alt=["one"])]

    first = some()
    assert len({identity(made) for made in first}) == 3
    monkeypatch.setattr(fragment, "_shown", {})
    assert [made.html for made in some()] == [made.html for made in first]


def test_a_player_shows_its_last_frame_without_scripts() -> None:
    made = players.player([DOT, DOT, DOT], label="A", alt=["one", "two", "three"], captions=["1", "2", "3"])
    shown = re.findall(r'<figure class="cm-frame"[^>]*data-say="(\w)"( hidden)?>', made._repr_html_())
    assert shown == [("1", " hidden"), ("2", " hidden"), ("3", "")]
    assert made.html.count('role="img"') == 3 and 'aria-label="two"' in made.html


def test_a_player_with_groups_has_a_radio_button_for_each() -> None:
    made = players.player({"with": [DOT, DOT], "without": [DOT]}, label="A", alt={"with": "ab", "without": "c"})
    assert re.findall(r'type="radio"[^>]*value="(\d)"( checked)?> (\w+)', made.html) == [
        ("0", " checked", "with"),
        ("1", "", "without"),
    ]
    assert re.findall(r'max="(\d)" step="1" value="(\d)"', made.html) == [("1", "1")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"frames": [DOT], "alt": [""], "label": "A"}, "alt is empty"),
        ({"frames": [DOT], "label": "A"}, "alt is empty"),
        ({"frames": [DOT], "alt": ["a"], "label": " "}, "label is empty"),
        ({"frames": [DOT], "alt": ["a", "b"], "label": "A"}, "1 frames need as many alt, got 2"),
        ({"frames": [], "alt": [], "label": "A"}, "no frames"),
        ({"frames": [DOT], "alt": ["a"], "label": "A", "controls": {"second": 1}}, "Did you mean 'seconds'"),
        ({"frames": [DOT], "alt": ["a"], "label": "A", "controls": {"start": 1}}, "number below 1"),
        ({"frames": ["<p>"], "alt": ["a"], "label": "A"}, "must be an <svg>"),
        ({"frames": ['<svg><image href="https://x.org/a.png"/></svg>'], "alt": ["a"], "label": "A"}, "outside"),
        ({"frames": ["<svg>" + "x" * 150_000 + "</svg>"], "alt": ["a"], "label": "A"}, "15[0-9] kB; at most 150 kB"),
    ],
)
def test_players_refuse_what_cannot_be_shown(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        players.player(arguments.pop("frames"), **arguments)


def test_space_player_is_small_and_says_what_is_hidden() -> None:
    frames = space_frames()
    made = plots.space_player({"with drift penalty": frames, "without": frames[:2]}, label="The space over tasks")
    view = geometry.project([figures.as_space(frame) for frame in frames])
    assert f"The cells drawn are wrong for {view.disagreement[1]:.1f} % of the points" in made.html
    assert made.html.count("<figure") == 5
    assert made.html.count('class="cm-l"') == 3  # trails: two frames of the first group, one of the second
    assert len(made.html) < 40_000


def test_figures_can_be_frames() -> None:
    made = players.player([plots.accuracy_matrix(R3)], label="A", alt=["a matrix"])
    assert made.html.count('<div role="img" aria-label="a matrix"><svg class="cm-frame-svg"') == 1 and "<img" not in made.html
