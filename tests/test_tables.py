"""Tables that stand in pages are those of the committed runs."""

import math
from pathlib import Path

import pytest

import cmlib as cm
from cmlib import report
from cmlib.store import Store

BOOK = Path(__file__).parents[1] / "book"


@pytest.mark.parametrize("page", sorted(BOOK.glob("*.md")), ids=lambda page: page.name)
def test_pages_hold_the_tables_of_the_committed_runs(page):
    text = page.read_text(encoding="utf-8")
    assert report.with_tables(text) == text, "make it anew with `python -m cmlib.cli tables`"


def test_both_engines_ran_every_pair():
    """Three seeds of all 17 pairs and of one variant; and both engines are set beside each other in one row a pair."""
    rows = report.TABLES["engines"]().splitlines()[2:]
    whole = ("(3 runs)", "(2 runs, 1 stopped)", "(1 run, 2 stopped)")
    assert len(rows) == 18 and all(sum(map(row.count, whole)) == 4 for row in rows)


def test_distance_in_pooled_standard_deviations_by_hand():
    first, second = [90.0, 92.0, 94.0], [95.0, 96.0, 97.0]  # variances 4 and 1
    assert report.pooled_distance(first, second) == f"{4 / math.sqrt(2.5):+.1f}" == "+2.5"
    assert report.pooled_distance(second, first) == "-2.5"
    assert report.pooled_distance(first, first) == "0" and report.pooled_distance([1.0], second) == "-"
    assert report.pooled_distance([1.0, 1.0], [3.0, 3.0]) == "+2.0 points, no spread"


def test_the_table_of_a_store(tmp_path):
    """Only seeds below the number asked for count, and only runs with the profile's own options."""
    runs = [cm.run(cm.Experiment("digits", "til", "naive", seed, "smoke"), store=tmp_path) for seed in (0, 1, 5)]
    cm.run(cm.Experiment("digits", "til", "naive", 2, "smoke", lr=0.02), store=tmp_path)
    row = next(line for line in report.engines_table(Store(tmp_path), "smoke").splitlines() if "| TIL | Naive |" in line)
    mean = (runs[0].accuracy + runs[1].accuracy) / 2
    assert f"| {mean:.2f} ± " in row and row.count("(2 runs)") == 2 and row.count("not run yet") == 2


def test_runs_that_stopped_are_counted(tmp_path):
    bad = {"lr": 1e30, "momentum": 0, "train_per_class": 16}
    run = cm.run(cm.Experiment("digits", "til", "naive", 0, "smoke", **bad), store=tmp_path)
    assert run.status != "finished"
    assert cm.paper.mean_and_spread([], 1) == "1 stopped" and cm.paper.mean_and_spread([2.0], 2) == "2.00 (1 run, 2 stopped)"
    assert cm.paper.mean_and_spread([1.0, 3.0], 1) == "2.00 ± 1.41 (2 runs, 1 stopped)"


def test_blocks_are_filled_and_unknown_ones_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "TABLES", {"one": lambda: "| a |"})
    page = tmp_path / "page.md"
    page.write_text("before\n\n% begin one\nold\n% end one\n\nafter\n", encoding="utf-8")
    (tmp_path / "plain.md").write_text("no block\n", encoding="utf-8")
    assert report.refresh_tables(tmp_path) == [page]
    assert page.read_text(encoding="utf-8") == "before\n\n% begin one\n\n| a |\n\n% end one\n\nafter\n"
    with pytest.raises(cm.StoreError, match="asks for the table 'two'; allowed: one"):
        report.with_tables("% begin two\n% end two")
