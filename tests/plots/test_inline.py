"""Figures as SVG inside a page: small, the same bytes every time, and laid out anew for a phone."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from cmlib import plots
from cmlib.plots import inline, narrow, style
from cmlib.teaching import lint, page, traced


def drawing(fig: Figure) -> Any:
    """The wide drawing as a tree."""
    return ElementTree.fromstring(inline.svg(fig, "words", "cm-any"))


def blank(width: float = 3.0, height: float = 2.0) -> tuple[Figure, Any]:
    with style.styled():
        fig = Figure(figsize=(width, height), layout="constrained")
        ax = fig.subplots()
    ax.set(xlim=(0, 10), ylim=(0, 10))
    return fig, ax


def row(panels: int = 3, names: bool = False) -> Figure:
    with style.styled():
        fig = Figure(figsize=(6.4, 2.6), layout="constrained")
        for k, ax in enumerate(fig.subplots(1, panels, sharey=not names)):
            ax.plot([1, 2, 3], [1, 3, 2], label="a line of some length")
            ax.set(title=f"panel {k + 1}", xlabel="steps")
            if names:
                ax.set_yticks([1, 2, 3], ["one", "two", "three"] if k == 0 else [""] * 3)
        fig.axes[0].set_ylabel("loss")
        fig.suptitle("A title that says the finding in more words than a phone has room for", x=0.01, ha="left")
    return fig


# -- what is drawn --------------------------------------------------------------------------------------------------------


def test_text_stays_text_and_colours_are_variables() -> None:
    fig, ax = blank()
    ax.text(2, 2, "a < b & c")
    ax.text(5, 5, "5 %", color="white")
    ax.text(2, 8, "task 1", color=plots.class_colour(1))
    ax.plot([1, 9], [1, 9], color=plots.task_colour(1))
    texts = {"".join(t.itertext()): t for t in drawing(fig).iter("text")}
    assert "a < b & c" in texts and "fill" not in texts["a < b & c"].attrib  # the ink is that of the whole picture
    assert texts["5 %"].get("style") == "fill:#ffffff"
    assert texts["task 1"].get("fill") == "var(--cm-t1a)"  # the second shade would be too light for letters
    assert 'stroke="var(--cm-t2a)"' in inline.svg(fig, "words", "cm-any")


def test_dots_cost_a_few_bytes_each() -> None:
    fig, ax = blank()
    few = len(inline.svg(fig, "words", "cm-any"))
    points = np.random.default_rng(0).uniform(1, 9, (500, 2))
    ax.scatter(*points.T, s=11, color=plots.task_colour(0), linewidths=0)
    made = inline.svg(fig, "words", "cm-any")
    assert (len(made) - few) / 500 < 16
    (path,) = re.findall(r'<path fill="none" stroke="var\(--cm-t1a\)" stroke-width="([\d.]+)" stroke-linecap="round" d="', made)
    assert float(path) == pytest.approx(np.sqrt(11), abs=0.01)


def test_the_ticks_of_an_axis_are_one_path() -> None:
    fig, ax = blank()
    ax.set_xticks([1, 3, 5, 7, 9])
    ax.set_yticks([])
    ticks = [
        path.get("d") for path in drawing(fig).iter("path") if re.fullmatch(r"(M[\d.]+ [\d.]+l0 3\.5){5}", path.get("d", ""))
    ]
    assert len(ticks) == 1


def test_very_many_dots_become_pixels() -> None:
    fig, ax = blank()
    points = np.random.default_rng(0).uniform(1, 9, (inline.MANY + 1, 2))
    dots = ax.scatter(*points.T, s=4, linewidths=0)
    made = drawing(fig)
    assert sum(1 for _ in made.iter("image")) == 1
    assert not dots.get_rasterized()  # as before


def test_a_mark_keeps_its_place() -> None:
    """The middle of the axes is the middle of their frame."""
    fig, ax = blank()
    ax.scatter([5], [5], s=100, color="#123456", linewidths=0)
    ax.spines[:].set_visible(False)
    ax.axis("off")
    made = inline.svg(fig, "words", "cm-any")
    x, y = map(float, re.findall(r'stroke="#123456".*?d="M([\d.]+) ([\d.]+)h0"', made)[0])
    box = ax.get_window_extent()
    dpi = fig.get_dpi()
    assert (x, y) == pytest.approx(((box.x0 + box.x1) / 2 * 72 / dpi, 2 * 72 - (box.y0 + box.y1) / 2 * 72 / dpi), abs=1)


def test_relative_steps_end_where_the_line_ends() -> None:
    fig, ax = blank()
    x = np.linspace(0.5, 9.5, 60)
    ax.plot(x, 5 + 3 * np.sin(x), color="#123456", marker="")
    data = re.findall(r'stroke="#123456"[^>]* d="([^"]+)"', inline.svg(fig, "words", "cm-any"))[0]
    numbers = [float(v) for v in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", data)]
    steps = np.array(numbers).reshape(-1, 2)
    fig.set_dpi(72)
    start, end = ax.transData.transform([[x[0], 5 + 3 * np.sin(x[0])], [x[-1], 5 + 3 * np.sin(x[-1])]])
    assert steps[0] == pytest.approx([start[0], 144 - start[1]], abs=0.11)
    assert steps.sum(axis=0) == pytest.approx([end[0], 144 - end[1]], abs=0.11)


def test_lines_of_many_steps_keep_their_shape_with_fewer_points() -> None:
    x = np.linspace(0, 400, 900)
    points = np.stack([x, 50 + 40 * np.sin(x / 30)], axis=1)
    kept = inline._needed(points)
    assert kept[0] and kept[-1] and kept.sum() < 250
    between = np.interp(x, x[kept], points[kept, 1])
    assert np.abs(between - points[:, 1]).max() < 0.2
    assert inline._needed(np.stack([x, 2 * x], axis=1)).sum() == 2


def test_small_pictures_keep_their_pixels_the_right_way_up() -> None:
    fig, ax = blank()
    pixels = np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    ax.imshow(pixels, cmap="gray", extent=(1, 9, 1, 9), aspect="auto")
    (image,) = drawing(fig).iter("image")
    stored = Image.open(io.BytesIO(base64.b64decode(image.get("href").partition(",")[2]))).convert("L")
    assert np.array_equal(np.asarray(stored) / 255, pixels)
    assert "pixelated" in image.get("style")


@pytest.mark.parametrize("origin", ["upper", "lower"])
def test_large_pictures_stand_the_right_way_up(origin: str) -> None:
    fig, ax = blank()
    pixels = np.zeros((300, 400))
    pixels[:150] = 1.0
    ax.imshow(pixels, cmap="gray", extent=(1, 9, 1, 9), aspect="auto", origin=origin)
    (image,) = drawing(fig).iter("image")
    stored = np.asarray(Image.open(io.BytesIO(base64.b64decode(image.get("href").partition(",")[2]))).convert("L"))
    assert (stored[5, 20] > 200) == (origin == "upper") and (stored[-5, 20] > 200) == (origin == "lower")


def test_what_leaves_the_axes_is_cut_there() -> None:
    fig, ax = blank()
    ax.plot([2, 5], [5, 30], color="#123456")
    ax.plot([2, 5], [5, 6], color="#654321")
    made = drawing(fig)
    (frame,) = list(made.iter("svg"))[1:]
    inside = [path.get("stroke") for path in frame]
    assert inside == ["#123456"]
    assert frame.get("viewBox").split() == [frame.get(name) for name in ("x", "y", "width", "height")]


def test_formulas_are_letters_too() -> None:
    fig, ax = blank()
    ax.set_xlabel(r"$\lambda = 10^{-2}$")
    letters = "".join(next(t for t in drawing(fig).iter("text") if t.find("tspan") is not None).itertext())
    assert letters.replace("\xa0", "") == "λ=10−2"


def test_nothing_has_an_id_and_nothing_comes_from_outside() -> None:
    fig, ax = blank()
    ax.plot([2, 5], [5, 30])
    ax.imshow(np.eye(3), extent=(1, 4, 1, 4))
    made = page.show(fig, alt="words").data["text/html"]
    assert " id=" not in made and "http" not in made and "url(" not in made and "<script" not in made


def test_the_same_figure_gives_the_same_bytes_however_often() -> None:
    fig = row()
    first = page.show(fig, alt="words").data["text/html"]
    assert page.show(fig, alt="words").data["text/html"] == first
    assert page.show(row(), alt="words").data["text/html"] == first


def test_the_rules_for_pages_hold_for_drawings() -> None:
    """A drawing without words is found, and one whose words are not those of the plain text; frames inside it need none."""
    fig, ax = blank(6.4)
    ax.plot([2, 5], [5, 30])
    shown = page.show(fig, alt='A "line"')
    made = shown.data["text/html"]
    assert "<svg x=" in made
    assert lint._pictures(made) == ([], [])
    assert lint._pictures(made.replace(" aria-label=", " title="))[0] != []
    assert list(traced._alt_problems(shown.data)) == []
    for text in (made.replace("&quot;line", "&quot;lime"), made.replace("&quot;line", "&quot;lime", 1)):
        assert "differs" in next(traced._alt_problems({**shown.data, "text/html": text}))
    assert "has no alternative text" in next(traced._alt_problems({**shown.data, "text/html": "<svg></svg>"}))


# -- for a phone ----------------------------------------------------------------------------------------------------------


def pen(fig: Figure) -> inline.Pen:
    fig.set_dpi(72)
    return inline.Pen(*(v * 72 for v in fig.get_size_inches()))


def places(fig: Figure) -> list[tuple[int, int]]:
    fig.draw(pen(fig))
    return [(round(ax.get_position().x0 * 20), round(ax.get_position().y0 * 20)) for ax in fig.axes]


def test_a_row_becomes_a_column_and_comes_back() -> None:
    fig = row(2)
    before = places(fig)
    with narrow.narrowed(fig, pen(fig)):
        assert fig.get_size_inches()[0] == narrow.WIDTH
        columns, rows = zip(*places(fig), strict=True)
        assert len(set(columns)) == 1 and len(set(rows)) == 2
        assert [ax.get_ylabel() for ax in fig.axes] == ["loss", "loss"]
        assert all(any(t.get_visible() and t.get_text() for t in ax.get_yticklabels()) for ax in fig.axes)
        assert "\n" in fig.get_suptitle()
    assert places(fig) == before and fig.get_size_inches().tolist() == [6.4, 2.6]
    assert [ax.get_ylabel() for ax in fig.axes] == ["loss", ""] and "\n" not in fig.get_suptitle()


def test_panels_that_read_names_off_their_neighbour_get_them() -> None:
    fig = row(2, names=True)
    with narrow.narrowed(fig, pen(fig)):
        assert [t.get_text() for t in fig.axes[1].get_yticklabels()] == ["one", "two", "three"]
    assert [t.get_text() for t in fig.axes[1].get_yticklabels()] == ["", "", ""]


def test_many_small_panels_stay_side_by_side_as_far_as_they_fit() -> None:
    with style.styled():
        fig = Figure(figsize=(6.4, 1.5), layout="constrained")
        for ax in fig.subplots(1, 10):
            ax.imshow(np.eye(8))
            ax.set(xticks=(), yticks=())
    with narrow.narrowed(fig, pen(fig)):
        columns, rows = zip(*places(fig), strict=True)
        assert (len(set(columns)), len(set(rows))) == (5, 2)


def test_a_legend_that_is_too_wide_gets_fewer_columns() -> None:
    fig = row(2)
    handles, labels = fig.axes[0].get_legend_handles_labels()
    legend = fig.legend(handles * 4, labels * 4, loc="outside lower left", ncols=4)
    fig.draw(pen(fig))
    wide = legend.get_window_extent(pen(fig)).width
    with narrow.narrowed(fig, pen(fig)):
        fig.draw(pen(fig))
        assert legend.get_window_extent(pen(fig)).width <= narrow.WIDTH * 72
    fig.draw(pen(fig))
    assert legend.get_window_extent(pen(fig)).width == pytest.approx(wide)


def test_no_letter_of_the_narrow_drawing_is_small() -> None:
    fig, ax = blank(6.4, 3.0)
    ax.text(2, 2, "small", fontsize=6)
    ax.set_xlabel("$a_b$")
    made = page.show(fig, alt="words").data["text/html"]
    phone = made[made.index('class="cm-narrow"') :]
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', phone)]
    assert sizes and min(sizes) >= narrow.LEAST


def test_a_figure_that_fits_a_phone_is_drawn_once() -> None:
    made = page.show(plots.accuracy_matrix([[90.0]]), alt="words").data["text/html"]
    assert made.count("<svg") == 1 and 'class="cm-any"' in made
