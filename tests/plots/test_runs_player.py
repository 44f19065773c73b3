"""The slider over runs: what each stop shows and says, spaces in one plane, stops without a run, wrong input."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cmlib import metrics
from cmlib.errors import DataError, OptionError
from cmlib.plots import Space, Stop, runs_player

NAN = float("nan")
GOOD = np.array([[100, NAN, NAN], [90, 100, NAN], [80, 85, 95]])
WORSE = np.array([[100, NAN, NAN], [70, 98, NAN], [50, 60, 95]])
BROKEN = np.array([[100, NAN, NAN], [NAN] * 3, [NAN] * 3])


def space(shift: float) -> list[Space]:
    rng = np.random.default_rng(1)
    first = rng.normal(size=(8, 4))
    labels, centroids = np.arange(8) % 2, rng.normal(size=(2, 4))
    return [Space.of(first + step * shift, labels, centroids, title=f"after task {1 + step}") for step in (0, 1)]


def frames(page: str) -> list[str]:
    return re.findall(r'<figure class="cm-frame".*?</figure>', page, re.DOTALL)


def test_each_stop_is_four_pictures_with_its_numbers() -> None:
    shown = runs_player({"a": [Stop("λ = 1", GOOD, spaces=space(0.1)), Stop("λ = 10", WORSE, spaces=space(3.0))]}, label="runs")
    both = frames(shown.html)
    assert len(both) == 2 and all(one.count("<svg") == 4 for one in both)
    for one, R in zip(both, (GOOD, WORSE), strict=True):
        for value in R[np.isfinite(R)]:
            assert f">{value:.0f}</tspan>" in one
        words = f"Accuracy {metrics.accuracy(R):.1f} %, learning accuracy {metrics.learning_accuracy(R):.1f} %"
        assert one.count(words) == 3  # said, described, below
        assert f"final BWT {metrics.bwt_final(R):+.1f}" in one


def test_the_present_stop_is_filled_in_the_plane() -> None:
    shown = runs_player({"": [Stop("a", GOOD), Stop("b", WORSE), Stop("c", BROKEN, note="stopped")]}, label="runs")
    places = [re.findall(r'<circle cx="(\d+)" cy="(\d+)" ([a-z]+="[^"]*")', one) for one in frames(shown.html)]
    assert [[paint.startswith('fill="none"') for *_, paint in one] for one in places] == [
        [False, True],
        [True, False],
        [True, True],
    ]
    assert {tuple(p[:2] for p in one) for one in places} == {tuple(p[:2] for p in places[0])}
    good, worse = ([float(v) for v in p[:2]] for p in places[0])
    assert good[0] > worse[0] and good[1] < worse[1]  # more learned: right; less forgotten: above


def test_stops_without_a_run_or_a_space_say_so() -> None:
    stops = [Stop("a", GOOD), Stop("b", note="not run yet"), Stop("c", BROKEN, note="stopped: the loss is not finite")]
    first, missing, broken = frames(runs_player({"": stops}, label="runs").html)
    assert "no snapshot" in first
    assert "b: not run yet." in missing and "no run" in missing and "no point" in missing
    assert broken.count('class="cm-e"') == 5 and "c: stopped: the loss is not finite." in broken


def test_with_the_task_given_the_second_matrix_takes_the_place_of_the_space() -> None:
    one = frames(runs_player({"": [Stop("a", GOOD, known=GOOD + 1)]}, label="runs").html)[0]
    assert "task given, %" in one and ">91</tspan>" in one and "no snapshot" not in one


def test_spaces_of_a_group_lie_in_one_plane() -> None:
    same = [Stop("a", GOOD, spaces=space(0.5)), Stop("b", WORSE, spaces=space(0.5))]
    dots = [re.findall(r'<path class="cm-[pq]"[^>]*/>', one) for one in frames(runs_player({"": same}, label="runs").html)]
    assert dots[0] == dots[1] and len(dots[0]) == 2


def test_wrong_input() -> None:
    with pytest.raises(OptionError, match="every group needs the same number of stops"):
        runs_player({"a": [Stop("x", GOOD)], "b": [Stop("x", GOOD)] * 2}, label="runs")
    with pytest.raises(DataError, match=r"square, got shape \[2, 3\]"):
        runs_player({"": [Stop("x", GOOD[:2])]}, label="runs")
    with pytest.raises(OptionError, match="label is empty"):
        runs_player({"": [Stop("x", GOOD)]}, label=" ")
