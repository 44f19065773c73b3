"""Drift as numbers and arrows, and the player that marks what a plane draws wrong."""

from __future__ import annotations

import re

import numpy as np
import pytest

import cmlib as cm
from cmlib.plots import drift, geometry
from cmlib.plots.geometry import Space


def training(seed: int, moments: int = 3, features: int = 6, step: float = 1.0) -> list[Space]:
    """Two classes of ten images that walk along a direction of their own; the centroids stay."""
    draws = np.random.default_rng(seed)
    labels = np.repeat([0, 1], 10)
    centroids = 5 * draws.normal(size=(2, features))
    first = centroids[labels] + draws.normal(size=(20, features))
    ways = step * draws.normal(size=(2, features))[labels]
    return [Space.of(first + k * ways, labels, centroids, title=f"after task {k + 1}") for k in range(moments)]


def growing(seed: int) -> list[Space]:
    """A space that gains two classes a moment, in five dimensions."""
    draws = np.random.default_rng(seed)
    spots = 3 * draws.normal(size=(8, 5))
    out = []
    for k in (4, 6, 8):
        labels = np.repeat(np.arange(k), 6)
        out.append(
            Space.of(spots[labels] + draws.normal(size=(6 * k, 5)), labels, spots[:k] + 0.2 * k, title=f"after task {k // 2}")
        )
    return out


# -- numbers --------------------------------------------------------------------------------------------------------------


def test_drift_and_shift_by_slow_loops() -> None:
    for seed in range(20):
        draws = np.random.default_rng(seed)
        first, now = draws.normal(size=(2, 15, 4))
        labels = draws.permutation(np.arange(15) % 3) + 4
        for place, label in enumerate((4, 5, 6)):
            rows = [i for i in range(15) if labels[i] == label]
            lengths = [sum((now[i, f] - first[i, f]) ** 2 for f in range(4)) ** 0.5 for i in rows]
            mean = [sum(now[i, f] - first[i, f] for i in rows) / len(rows) for f in range(4)]
            assert drift.drift_by_class(first, now, labels)[place] == pytest.approx(sum(lengths) / len(rows))
            assert drift.shift_by_class(first, now, labels)[place] == pytest.approx(sum(v * v for v in mean) ** 0.5)


def test_one_plane_of_a_single_last_space_is_project() -> None:
    spaces = training(1)
    ours, theirs = drift.together({"": spaces}), geometry.project(spaces)
    np.testing.assert_allclose(ours.basis, theirs.basis)
    assert ours.disagreement == theirs.disagreement and ours.explained == theirs.explained
    assert ours.extent == theirs.extent


def test_trainings_share_the_plane_of_their_last_spaces() -> None:
    a, b = training(1), training(2)
    view = drift.together({"a": a, "b": b})
    mean, basis, explained = geometry.pca(np.concatenate([a[-1].points, b[-1].points]))
    np.testing.assert_allclose(view.basis, basis)
    assert view.explained == explained and len(view.points) == 6
    np.testing.assert_allclose(view.points[4], (b[1].points - mean) @ basis)


def test_what_is_misdrawn_is_the_rate() -> None:
    spaces = growing(3)
    view = geometry.project(spaces)
    for k, space in enumerate(spaces):
        assert 100 * drift.misdrawn(space, view, k).mean() == pytest.approx(view.disagreement[k])
    assert drift.misdrawn(spaces[-1], view, 2).any()  # the example is worth something


@pytest.mark.parametrize("trainings", [{}, {"a": []}, []])
def test_nothing_to_draw(trainings: object) -> None:
    with pytest.raises(cm.DataError, match="no space to draw"):
        drift.drift_figure(trainings)  # type: ignore[arg-type]


def test_other_images_at_another_moment_are_refused() -> None:
    spaces = training(1)
    other = Space.of(spaces[1].points, 1 - spaces[1].labels, spaces[1].centroids)
    with pytest.raises(cm.DataError, match="labels differ"):
        drift.drift_figure([spaces[0], other])
    with pytest.raises(cm.DataError, match="the same images twice"):
        drift.drift_figure([spaces[0], Space.of(spaces[1].points[:5], spaces[1].labels[:5], spaces[1].centroids)])


# -- pictures -------------------------------------------------------------------------------------------------------------


def test_arrows_lead_from_first_to_present_means() -> None:
    spaces = training(4)
    fig = drift.drift_figure(spaces, title="It moves", columns=3)
    view = fig.cm_projection
    assert [len(ax.texts) for ax in fig.axes] == [0, 2, 2]  # annotations are the arrows
    for k, ax in enumerate(fig.axes[1:], start=1):
        for label, arrow in enumerate(ax.texts):
            rows = spaces[0].labels == label
            np.testing.assert_allclose(arrow.xy, view.points[k][rows].mean(axis=0))
            np.testing.assert_allclose(arrow.xyann, view.points[0][rows].mean(axis=0))
    assert "Arrows" in fig.cm_caption and fig.cm_caption.endswith("% of that picture's variance.")


def test_two_trainings_two_rows_one_caption() -> None:
    fig = drift.drift_figure({"penalty": training(1), "no penalty": training(1, step=3)})
    assert [ax.get_title(loc="left") for ax in fig.axes[:1]] == ["penalty,\nafter task 1"]
    assert len(fig.axes) == 6 and "2 last pictures together" in fig.cm_caption


def arrows(html: str, group: int) -> list[int]:
    frames = re.findall(rf'<figure class="cm-frame" data-group="{group}".*?</figure>', html, re.DOTALL)
    return [frame.count('stroke-width="2.6"') for frame in frames]


def test_the_drift_player_draws_arrows_in_one_plane() -> None:
    made = drift.drift_player({"on": training(1), "off": training(1, step=4)}, label="Drift", class_names=["a", "b"])
    assert arrows(made.html, 0) == [0, 2, 2] and arrows(made.html, 1) == [0, 2, 2]
    first = re.findall(r'<figure class="cm-frame" data-group="(\d)".*?(<svg.*?</svg>)', made.html, re.DOTALL)
    assert first[0][1] == first[3][1]  # the same first moment, the same plane: the same drawing
    moved = drift.drift_by_class(training(1)[0].points, training(1)[2].points, training(1)[0].labels)
    assert " and ".join(f"{value:.1f}" for value in moved) in made.html
    assert "http" not in made.html and len(made.html.encode()) < 150_000


def test_an_arrow_too_short_to_see_is_left_out() -> None:
    made = drift.drift_player({"": training(1, step=1e-9)}, label="Nothing")
    assert arrows(made.html, 0) == [0, 0, 0]


def test_rings_mark_what_is_drawn_wrong() -> None:
    spaces = growing(3)
    made = drift.cells_player({"one": spaces, "two": growing(5)}, label="Cells", class_names=list("abcdefgh"))
    view = geometry.project(spaces)
    frames = re.findall(r'<figure class="cm-frame" data-group="0".*?</figure>', made.html, re.DOTALL)
    for k, frame in enumerate(frames):
        wrong = int(drift.misdrawn(spaces[k], view, k).sum())
        assert frame.count("a6 6 0 1 0 12 0") == wrong
        assert f"The plane draws {wrong} of {len(spaces[k].labels)} images (ringed)" in frame
    assert 'class="cm-l"' not in frames[0] and 'class="cm-l"' in frames[1]  # dashed: where anchors were


def test_the_same_html_twice_has_other_ids() -> None:
    one, two = (drift.cells_player({"": growing(7)}, label="Twice").html for _ in range(2))
    ids = [re.search(r'id="([^"]+)"', html) for html in (one, two)]
    assert ids[0] and ids[1] and ids[0][1] != ids[1][1]
