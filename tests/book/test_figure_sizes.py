"""One of every figure, player and widget in Chromium, on a phone and in the dark: letters, colours, which drawing is shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_browser import DESK, FILTERS, LEAST, PHONE, SHOWN, SMALL, Visit, serve

from cmlib import plots
from cmlib.plots import fragment
from cmlib.plots.player import player
from cmlib.teaching import page

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def pieces() -> str:
    """One of everything that the package draws, with long names and full panels."""
    R = np.tril(np.full((5, 5), 88.8))
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(6, 8)) * 4
    frames = []
    for t in (1, 2, 3):
        labels = rng.integers(0, 2 * t, 60)
        frames.append((centroids[labels] + rng.normal(size=(60, 8)), labels, centroids[: 2 * t], f"after task {t}"))
    methods = ["Naive", "Cumulative", "EWC", "OEWC", "ER", "GEM", "SS-IL", "CM"]
    rows = [{"name": name, "ours": [80.0 + k, 84.0], "paper": 70.0, "paper_sd": 2.0} for k, name in enumerate(methods)]
    bars = {
        name: [{"current images": 1.0, "past images": 0.5 * t, "drift": 0.2 * t} for t in range(1, 6)] for name in methods[:4]
    }
    gaps = rng.normal(size=(8, 8)) * 20
    spots = {f"{name}, TIL": ([1.0, 2.0], [1.1, 2.4]) for name in methods}
    figures = {
        "a matrix": plots.accuracy_matrix(R),
        "two matrices": plots.accuracy_matrix(
            {"Naive, CIL": R, "Naive, TIL": R}, title="Two matrices side by side, with a long title"
        ),
        "ten tasks": plots.accuracy_matrix({"Naive, CIL": np.tril(np.full((10, 10), 88.8)), "other": R}),
        "curves": plots.forgetting_curves({name: R for name in methods}, title="Curves", columns=3),
        "spaces": plots.embedding_space(frames, class_names=[f"a long name {k}" for k in range(6)], columns=3),
        "whiskers": plots.whiskers(
            {"TIL, accuracy": rows, "TIL, bwt_final": rows, "CIL, accuracy": rows, "CIL, bwt_final": rows}
        ),
        "pairs": plots.pairwise(methods, gaps, [[0] * 8] * 8, title="Pairs of methods"),
        "diagonal": plots.diagonal(spots, "predicted cost", "measured, fastest epoch", title="Costs"),
        "bars": plots.cost_bars(bars, title="What an epoch costs, part by part", ylabel="cost"),
        "arrows": plots.gem_arrows({"one": ((2, 1), [(0, 2)]), "two": ((2, -1), [(0, 2), (1, 1)]), "three": ((2, -2), [(1, 2)])}),
        "drift": plots.drift_figure([frames[0], frames[0]], title="It moves"),
    }
    shown = [page.show(fig, alt=name).data["text/html"] for name, fig in figures.items()]
    film = player([plots.accuracy_matrix(R), plots.accuracy_matrix(R)], label="Matrices", alt=["one", "two"])
    squares = player([plots.svg_matrix(R, upto=k) for k in range(5)], label="Rows", alt=list("abcde"), captions=list("abcde"))
    widgets = [
        film, squares, plots.space_player(frames, label="A space"), plots.scenario_player(), plots.matrix_editor(),
        plots.draggable_space({"A": [[1, 1], [2, 2]], "B": [[8, 8], [9, 7]]}), plots.gem_widget(), plots.memory_calculator(),
        plots.story_map(4),
    ]  # fmt: skip
    return "".join(f"<section>{piece}</section>" for piece in [*shown, *(one.html for one in widgets)])


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page with all pieces in a column that is as wide as that of the book."""
    fragment._shown.clear()
    folder = tmp_path_factory.mktemp("pieces")
    head = '<!doctype html><html data-theme="light"><meta charset="utf-8"><link rel="icon" href="data:,">'
    look = "<style>body{margin:0 auto;padding:0 16px;max-width:46rem;font-family:sans-serif}</style>"
    (folder / "index.html").write_text(f"{head}{look}<body>{pieces()}</body></html>")
    server = serve(folder)
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()


@pytest.mark.parametrize("window", [PHONE, DESK], ids=["phone", "desk"])
def test_letters_of_every_piece_can_be_read(browser: Any, stage: str, window: dict[str, int]) -> None:
    with Visit(browser, stage, viewport=window) as visit:
        assert visit.page.evaluate(SMALL, LEAST) == []
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= window["width"]
        assert visit.complaints == []


def test_a_page_shows_the_drawing_that_fits_and_paper_the_wide_one(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=DESK) as visit:
        kinds = visit.page.evaluate(SHOWN)
        assert set(kinds) == {"cm-wide", "cm-any"}
        visit.page.set_viewport_size(PHONE)
        assert visit.page.evaluate(SHOWN) == [kind.replace("wide", "narrow") for kind in kinds]
        visit.page.emulate_media(media="print")
        assert visit.page.evaluate(SHOWN) == kinds


def test_one_description_is_read_out(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=PHONE) as visit:
        assert visit.page.get_by_role("img", name="two matrices").count() == 1


def test_the_dark_page_has_colours_of_its_own(browser: Any, stage: str) -> None:
    with Visit(browser, stage, viewport=DESK) as visit:
        stroke = "getComputedStyle(document.querySelector('.cm-figure [stroke=\"var(--cm-t1a)\"]')).stroke"
        ink = "getComputedStyle(document.querySelector('.cm-figure text:not([fill])')).fill"
        light = [visit.page.evaluate(which) for which in (stroke, ink)]
        visit.page.evaluate("document.documentElement.dataset.theme = 'dark'")
        dark = [visit.page.evaluate(which) for which in (stroke, ink)]
        assert light == [rgb(plots.style.THEME[name][0]) for name in ("t1a", "ink")]
        assert dark == [rgb(plots.style.THEME[name][1]) for name in ("t1a", "ink")]
        assert visit.page.evaluate(FILTERS) == 0
        visit.page.emulate_media(media="print")
        assert [visit.page.evaluate(which) for which in (stroke, ink)] == light, "paper is white"


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[k : k + 2], 16)) for k in (1, 3, 5))})"
