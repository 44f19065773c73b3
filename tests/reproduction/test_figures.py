"""The paper's figures: files that are the same each time, numbers that follow from the snapshots, errors in one line."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import cmlib as cm
from cmlib import cli
from cmlib.reproduction import figures, snapshots
from cmlib.reproduction.figures import Drawing, fig1, spaces
from cmlib.store import Store, committed

SPACES = ("3", "4")


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def drawn() -> dict[str, Drawing]:
    return {number: figures.draw(number, "digits", [committed()]) for number in ("1", *SPACES)}


def small() -> Drawing:
    from matplotlib.figure import Figure

    fig = Figure(figsize=(2, 1))
    fig.subplots().plot([0, 1], [1, 0])
    return Drawing(fig, [{"a": 1, "b": 0.5}, {"b": None, "c": "x, y"}], "A line that\nfalls.", "It falls")


# -- the frame ------------------------------------------------------------------------------------------------------------


def test_three_files_with_header_and_white_ground(tmp_path: Path) -> None:
    paths = figures.write(small(), tmp_path / "new", "figure-0-toy")
    assert [path.name for path in paths] == [f"figure-0-toy.{ending}" for ending in ("svg", "png", "csv")]
    assert paths[2].read_text() == 'a,b,c\n1,0.5,\n,,"x, y"\n'
    assert Image.open(paths[1]).convert("RGBA").getpixel((1, 1)) == (255, 255, 255, 255)
    svg = paths[0].read_text()
    assert "It falls" in svg and "A line that falls." in svg
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(path.name for path in paths)


def test_the_same_bytes_each_time_and_nothing_of_this_machine(drawn: dict[str, Drawing], tmp_path: Path) -> None:
    for number in ("1", *SPACES):
        first = figures.write(drawn[number], tmp_path / "a", f"figure-{number}")
        again = figures.write(figures.draw(number, "digits", [committed()]), tmp_path / "b", f"figure-{number}")
        for one, other in zip(first, again, strict=True):
            content = one.read_bytes()
            assert content == other.read_bytes(), one.name
            assert b"dc:date" not in content and str(Path.home()).encode() + b"/" not in content
            assert str(Path(figures.__file__).parents[2]).encode() not in content


def test_a_folder_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(cm.StoreError, match="cannot write"):
        figures.write(small(), tmp_path / "file", "figure-0")
    assert (tmp_path / "file").read_text() == "x"


def test_every_figure_has_a_function() -> None:
    for module, function in figures.FIGURES.values():
        path = Path(figures.__file__).with_name(f"{module}.py")
        assert f"def {function}(" in path.read_text(), f"{module}.{function}"


def test_no_matplotlib_until_one_is_drawn() -> None:
    code = "import sys, cmlib, cmlib.reproduction.figures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- figures 3 and 4 ------------------------------------------------------------------------------------------------------


def taken(number: str) -> list[snapshots.Snapshot]:
    found = snapshots.find(spaces.experiment_of(number, "digits"), spaces.NEEDS[number][1], [committed()])
    assert found is not None
    return found[1]


@pytest.mark.parametrize("number", SPACES)
def test_panels_follow_from_the_snapshots(drawn: dict[str, Drawing], number: str) -> None:
    """Variance by the eigenvalues of the covariance, cells and neighbours by slow loops."""
    ones = taken(number)
    last = ones[-1].points.astype(np.float64)
    values, vectors = np.linalg.eigh(np.cov(last.T))
    axes = vectors[:, ::-1][:, :2]  # [E, 2]
    panels = [row for row in drawn[number].rows if row["kind"] == "panel"]
    assert [row["panel"] for row in panels] == [f"after task {one.after}" for one in ones]
    for one, row in zip(ones, panels, strict=True):
        own = wrong = 0
        for point, label in zip(one.points.astype(np.float64), one.labels, strict=True):
            centroids = one.centroids.astype(np.float64)
            true = min(range(len(centroids)), key=lambda k: float(np.linalg.norm(centroids[k] - point)))
            plane = min(range(len(centroids)), key=lambda k: float(np.linalg.norm((centroids[k] - point) @ axes)))
            own += int(one.centroid_labels[true] == label)
            wrong += int(true != plane)
        assert row["explained_percent"] == pytest.approx(100 * values[-2:].sum() / values.sum())
        assert row["in_own_cell_percent"] == pytest.approx(100 * own / len(one.labels))
        assert row["disagreement_percent"] == pytest.approx(100 * wrong / len(one.labels))


@pytest.mark.parametrize("number", SPACES)
def test_rows_are_the_marks_that_are_drawn(drawn: dict[str, Drawing], number: str) -> None:
    made = drawn[number]
    panels = list(dict.fromkeys(row["panel"] for row in made.rows))
    for ax, panel in zip(made.fig.axes, panels, strict=False):
        for kind in ("image", "centroid"):
            rows = {(row["x"], row["y"]) for row in made.rows if row["panel"] == panel and row["kind"] == kind}
            marks = {tuple(np.round(at, 4)) for path in ax.collections for at in np.asarray(path.get_offsets())}
            assert rows and rows <= marks, f"{panel}: {kind}"
        assert ax.get_title(loc="left") == panel


def test_figure_3_says_how_far_task_1_has_drifted(drawn: dict[str, Drawing]) -> None:
    ones = taken("3")
    moved = np.mean([np.linalg.norm(a - b) for a, b in zip(ones[0].points, ones[-1].points, strict=True)])
    gap = np.linalg.norm(ones[0].centroids[0] - ones[0].centroids[1])
    assert f"drift by {100 * moved / gap:.0f} %" in drawn["3"].title
    assert drawn["3"].title in drawn["3"].alt


def test_notes_say_which_run_and_what_the_plane_leaves_out(drawn: dict[str, Drawing]) -> None:
    for number in SPACES:
        words = " ".join(drawn[number].notes)
        scenario = spaces.NEEDS[number][0]
        assert f"cm-{scenario}-digits-seed0-" in words and "128 dimensions" in words and "variance" in words


def test_a_moved_snapshot_moves_the_figure(tmp_path: Path) -> None:
    """The figure reads what lies in the store: one image carried to the other centroid changes its row and the rate."""
    experiment = spaces.experiment_of("3", "digits")
    run = committed().find(experiment)[-1]
    store = Store(tmp_path)
    path = store.save(run, experiment, run.data["digest"])
    ones = taken("3")
    ones[-1].points[0] = ones[-1].centroids[1]
    path.with_suffix(".task1.npz").write_bytes(snapshots.pack(ones))
    rows = figures.draw("3", "digits", [store]).rows
    last = [row for row in rows if row["panel"] == "after task 5"]
    assert last[0]["in_own_cell_percent"] == pytest.approx(100 * 29 / 30)
    (first_image, *_) = (row for row in last if row["kind"] == "image")
    assert (first_image["class"], first_image["nearest"]) == ("0", "1")


# -- figure 1 -------------------------------------------------------------------------------------------------------------


def test_figure_1_has_every_class_once_in_each_scenario(drawn: dict[str, Drawing]) -> None:
    rows = drawn["1"].rows
    for scenario in ("til", "cil"):
        mine = [row for row in rows if row["scenario"] == scenario]
        assert [row["label"] for row in mine] == list(range(10))
        assert [row["task"] for row in mine] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
        assert [row["class"] for row in mine] == [str(k) for k in range(10)]
    right = np.array([[row["x"], row["y"]] for row in rows if row["scenario"] == "cil"])
    apart = np.linalg.norm(right[:, None] - right[None], axis=2)[np.triu_indices(10, 1)]
    assert apart.min() > 0.5  # inches: no two classes on one another
    images = [im for im in drawn["1"].fig.axes[0].images]
    assert len(images) == 20
    shown = np.asarray(images[0].get_array()).squeeze()
    data = cm.datasets.load("digits")
    assert any(np.array_equal(shown, image) for image in data.x_train[data.y_train == 0][:, 0].numpy())


def test_places_stay_in_the_box_for_other_numbers_of_classes() -> None:
    for n in (2, 6, 9, 10, 12):
        places = fig1._places(n)
        assert len({tuple(at) for at in places.round(3).tolist()}) == n
        assert (places[:, 0] > fig1.RIGHT[0]).all() and (places[:, 0] < fig1.RIGHT[1]).all()
        assert (places[:, 1] > 0).all() and (places[:, 1] < fig1.HEIGHT).all()


# -- the command ----------------------------------------------------------------------------------------------------------


def test_the_command_writes_and_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["figure", "3", "--out", str(tmp_path), "--store", str(committed().folder)]) == 0
    said = capsys.readouterr()
    assert said.out.split() == [str(tmp_path / f"figure-3-digits.{ending}") for ending in ("svg", "png", "csv")]
    assert all(Path(path).is_file() for path in said.out.split())
    assert "variance" in said.err and said.err.startswith("Images of task 1 drift by")
    rows = read((tmp_path / "figure-3-digits.csv").read_text())
    assert [row["panel"] for row in rows if row["kind"] == "panel"] == [f"after task {k}" for k in range(1, 6)]


def test_json_prints_the_rows_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["figure", "1", "--format", "json"]) == 0
    said = capsys.readouterr()
    content = json.loads(said.out)
    assert said.err == "" and (content["figure"], content["profile"], len(content["rows"])) == ("1", "digits", 20)
    assert content["alt"] and content["title"] and content["notes"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", SPACES)
def test_what_has_not_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str], number: str) -> None:
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out"
    assert cli.main(["figure", number, "--profile", "paper", "--store", str(tmp_path / "empty"), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "not run yet" in said and f"`cmlib figure {number} --profile paper --record`" in said and said.count("\n") == 1
    assert not out.exists()


def test_record_makes_what_is_missing_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    store.mkdir()
    command = ["figure", "3", "--profile", "smoke", "--store", str(store), "--out", str(tmp_path), "--record"]
    assert cli.main(command) == 0
    kept = {path.name: path.stat().st_mtime_ns for path in store.rglob("seed0-*")}
    assert len(kept) == 2 and sorted(Path(name).suffix for name in kept) == [".json", ".npz"]
    assert len(list(store.rglob("*.json"))) == 1  # the run itself, as `cmlib run` would keep it
    assert cli.main(command) == 0
    assert {path.name: path.stat().st_mtime_ns for path in store.rglob("seed0-*")} == kept
    capsys.readouterr()
    (run,) = list(Store(store))
    assert run.matrix.shape == (5, 5) and run.experiment["profile"] == "smoke"
