"""The pictures of chapters 8 and 10: what stands in them is what was given, and nothing given is an error in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

import cmlib as cm
from cmlib.plots import comparison

ROWS = [
    {"name": "ER", "ours": [80.0, 84.0], "paper": 90.0, "paper_sd": 2.0},
    {"name": "CM", "ours": [], "paper": 92.7, "paper_sd": None},
    {"name": "OEWC", "ours": [], "stopped": 3},
    {"name": "Naive", "ours": [20.0]},
]


def words(fig: Figure) -> set[str]:
    """Every text of a figure."""
    found = {text.get_text() for ax in fig.axes for text in ax.texts}
    found |= {label.get_text() for ax in fig.axes for label in (*ax.get_xticklabels(), *ax.get_yticklabels())}
    found |= {text.get_text() for legend in fig.legends for text in legend.get_texts()}
    return found | {ax.get_title(loc="left") for ax in fig.axes} | {fig.get_suptitle()}


def spans(ax: Any) -> list[tuple[float, float]]:
    """From where to where each line of an axes goes, by its x."""
    return [(min(line.get_xdata()), max(line.get_xdata())) for line in ax.lines]


def test_names_are_found_in_plots() -> None:
    for name in ("whiskers", "pairwise", "diagonal", "cost_bars"):
        assert getattr(cm.plots, name) is getattr(comparison, name)


def test_whiskers_are_one_standard_deviation_of_the_population() -> None:
    fig = cm.plots.whiskers({"TIL": ROWS, "CIL": ROWS[:1]}, title="ours below")
    left, right = fig.axes
    assert spans(left)[:2] == [(88.0, 92.0), (80.0, 84.0)]  # the paper's, then 82 ± 2 with n = 2
    assert {"ER", "CM", "OEWC", "Naive", "TIL", "CIL", "not run yet", "stopped", "paper: mean ± sd", "ours below"} <= words(fig)
    assert len(right.lines) == 2


def test_the_same_names_stand_once_a_line() -> None:
    fig = cm.plots.whiskers({"accuracy": ROWS, "BWT": ROWS})
    left, right = ([label.get_text() for label in ax.get_yticklabels()] for ax in fig.axes)
    assert left == ["ER", "CM", "OEWC", "Naive"] and right == [""] * 4


def test_without_the_paper_its_mark_is_left_out() -> None:
    fig = cm.plots.whiskers({"digits": [{"name": "ER", "ours": [1.0, 2.0]}]})
    assert "paper: mean ± sd" not in words(fig)


def test_the_legend_can_name_other_sides() -> None:
    fig = cm.plots.whiskers({"TIL": ROWS}, texts=("tuned", "untuned"))
    assert {"tuned", "untuned"} <= words(fig) and "paper: mean ± sd" not in words(fig)


@pytest.mark.parametrize("panels", [{}, {"TIL": []}])
def test_whiskers_need_rows(panels: dict[str, list[Any]]) -> None:
    with pytest.raises(cm.DataError, match="at least one panel"):
        cm.plots.whiskers(panels)


def test_pairs_show_gaps_and_verdicts() -> None:
    gaps = [[0, -5.04, 0], [5.04, 0, 0], [-1.0, np.nan, 0]]
    fig = cm.plots.pairwise(["a", "b", "c"], gaps, [[None] * 3, [0, None, None], [2, None, None]], title="one settled")
    (ax,) = fig.axes
    assert [text.get_text() for text in ax.texts] == ["+5.0", "-1.0", "?"]
    fig.draw_without_rendering()
    fills = [tuple(fill) for fill in ax.collections[0].get_facecolor()]  # rows b and c, columns a and b
    assert fills == [to_rgba(comparison.SHADES[0]), to_rgba("none"), to_rgba("none"), to_rgba("none")]
    edges = [edge[3] for edge in ax.collections[0].get_edgecolor()]
    assert edges == [1, 0, 1, 1]  # nothing is drawn above the diagonal
    assert {"a", "b", "c", "one settled", *comparison.PAIR_WORDS} <= words(fig)


def test_pairs_of_another_size_are_refused() -> None:
    with pytest.raises(cm.DataError, match=r"needs 2 x 2 gaps .* got \[3, 3\]"):
        cm.plots.pairwise(["a", "b"], np.zeros((3, 3)), [[None] * 2] * 2)


def test_the_diagonal_has_one_scale_on_both_axes() -> None:
    fig = cm.plots.diagonal({"Naive": ([1, 1], [1.1, 0.9]), "GEM": ([2, 8], [3, 7])}, "predicted", "measured")
    (ax,) = fig.axes
    assert ax.get_xlim() == ax.get_ylim() and ax.get_xlim()[0] < 0.9 and ax.get_xlim()[1] > 8
    assert {"Naive", "GEM", "1", "5"} <= words(fig)
    offsets = np.concatenate([np.asarray(points.get_offsets()) for points in ax.collections[1:]])
    assert sorted(map(tuple, offsets.tolist())) == [(1, 0.9), (1, 1.1), (2, 3), (8, 7)]


@pytest.mark.parametrize("series", [{}, {"a": ([], [])}, {"a": ([1.0], [0.0])}])
def test_the_diagonal_needs_points_above_zero(series: dict[str, Any]) -> None:
    with pytest.raises(cm.DataError, match="above 0"):
        cm.plots.diagonal(series, "x", "y")


def test_bars_are_stacked() -> None:
    fig = cm.plots.cost_bars(
        {"CM": [{"current images": 1.0}, {"current images": 1.0, "drift": 2.0}], "ER": [{"odd": 1.0}] * 2}, ylabel="cost"
    )
    first = fig.axes[0].patches
    assert [(bar.get_y(), bar.get_height()) for bar in first] == [(0, 1), (0, 1), (1, 2)]
    assert {"CM", "ER", "current images", "drift", "odd"} <= words(fig)
    with pytest.raises(cm.DataError, match="at least one panel"):
        cm.plots.cost_bars({})
