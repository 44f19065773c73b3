"""Tables that stand in pages are those of the committed runs."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from handmade import completed

import cmlib as cm
from cmlib.reproduction import board, claims, grids, render, report
from cmlib.store import Store
from cmlib.teaching import filled

BOOK = Path(__file__).parents[2] / "book"


@pytest.mark.parametrize("page", sorted(BOOK.glob("*.md")), ids=lambda page: page.name)
def test_pages_hold_the_tables_of_the_committed_runs(page):
    text = page.read_text(encoding="utf-8")
    assert filled.with_tables(text) == text, "make it anew with `python -m cmlib.cli tables`"


def test_both_engines_ran_every_pair():
    """Three seeds of all 17 pairs and of one variant; and both engines are set beside each other in one row a pair."""
    rows = filled.TABLES["engines"]().splitlines()[2:]
    whole = ("(3 runs)", "(2 runs, 1 stopped)", "(1 run, 2 stopped)")
    assert len(rows) == 18 and all(sum(map(row.count, whole)) == 4 for row in rows)


def test_distance_in_pooled_standard_deviations_by_hand():
    first, second = [90.0, 92.0, 94.0], [95.0, 96.0, 97.0]  # variances 8/3 and 2/3
    assert report.pooled_distance(first, second) == f"{4 / math.sqrt(5 / 3):+.1f}" == "+3.1"
    assert report.pooled_distance(second, first) == "-3.1"
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
    assert cm.paper.mean_and_spread([1.0, 3.0], 1) == "2.00 ± 1.00 (2 runs, 1 stopped)"


def stored(store, run, last_row, cpu):
    """A run with other accuracies after its last task, put into a store as if it had been made on a CPU."""
    changed = replace(run, R=[*run.R[:-1], last_row], machine={**run.machine, "cpu": cpu, "instructions": "AVX2"})
    store.save(changed, cm.Experiment("digits", "til", "naive", run.seed, "smoke", epochs=run.experiment["options"]["epochs"]),
               run.data["digest"])  # fmt: skip


def test_the_same_experiments_on_another_cpu(tmp_path):
    """Differences are paired by seed; a repeat without a first run, and a first run without a repeat, do not count."""
    first, repeats = Store(tmp_path / "first"), Store(tmp_path / "repeats")
    for seed, before, after in [(0, 80.0, 83.0), (1, 90.0, 89.0), (2, 70.0, None), (3, None, 10.0)]:
        run = cm.run(cm.Experiment("digits", "til", "naive", seed, "smoke", epochs=1))
        for store, value, cpu in ((first, before, "One"), (repeats, after, "Other")):
            if value is not None:
                stored(store, run, [value] * 5, cpu)
    text = board.another_cpu(first, repeats)
    assert "| TIL | Naive | 0-1 | 85.00 ± 5.00 | 86.00 ± 3.00 | 1.00 ± 2.00 | +3.00 | 0 of 2 |" in text
    assert "2 runs, repeated on Other (AVX2): 0 give the same R. Accuracy moves by 2.00 points on average" in text
    assert board.another_cpu(first, first).count("2 of 2") == 0 and "3 of 3" in board.another_cpu(first, first)
    assert board.another_cpu(first, Store(tmp_path / "none")) == "Nothing: not run yet."


def test_blocks_are_filled_and_unknown_ones_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(filled, "TABLES", {"one": lambda: "| a |"})
    page = tmp_path / "page.md"
    page.write_text("before\n\n% begin one\nold\n% end one\n\nafter\n", encoding="utf-8")
    (tmp_path / "plain.md").write_text("no block\n", encoding="utf-8")
    assert filled.refresh_tables(tmp_path) == [page]
    assert page.read_text(encoding="utf-8") == "before\n\n% begin one\n\n| a |\n\n% end one\n\nafter\n"
    with pytest.raises(cm.StoreError, match="asks for the table 'two'; allowed: one, dry_run"):
        filled.with_tables("% begin two\n% end two")


# -- the board ------------------------------------------------------------------------------------------------------------


def keep(folder, method, seed, accuracy, profile="digits", dataset="digits", **more):
    """A result file of a run in TIL whose accuracies are all the same; more: status, machine, or options."""
    changes = {name: more.pop(name) for name in ("status", "machine") if name in more}
    experiment = cm.Experiment(dataset, "til", method, seed, profile, **more)
    R = [[accuracy if j <= i else None for j in range(5)] for i in range(5)]
    run = cm.Run("x", experiment.to_dict(), R, None, [[1.0]] * 5, [1] * 5, {})
    run = replace(run, **{"machine": {"device": "cpu", "threads": 1}, **changes})
    run = completed(run)
    return Store(folder).save(run, experiment, run.data["digest"])


def test_seeds_and_spreads_by_hand():
    assert board.seeds_text([2, 0, 1, 5, 7, 8]) == "0-2, 5, 7-8" and board.seeds_text([]) == ""
    assert render.spread([1.0, 3.0]) == "2.00 ± 1.00" and render.spread([1.0]) == "1.00" and render.spread([]) == "-"
    assert render.markdown(["a|b", "c"], [["1", "2"]], 1) == "| a\\|b | c |\n|---|---:|\n| 1 | 2 |"


def test_the_board_shows_every_run_once(tmp_path):
    """A setting of the profile in the open table, others folded away; stopped runs apart; what made them when it differs."""
    for seed, accuracy in enumerate((90.0, 92.0, 94.0)):
        keep(tmp_path, "cm", seed, accuracy)
    keep(tmp_path, "cm", 3, 10.0, status="stopped: the loss is not finite (task 1, epoch 1)")
    keep(tmp_path, "naive", 0, 50.0, machine={"device": "a card", "threads": 2})
    keep(tmp_path, "cm", 1, 93.0, lam=0.5)
    keep(tmp_path, "cm", 0, 40.0, "mini", "cifar10")
    text = board.runs_board(Store(tmp_path))
    assert re.findall(r"### (.*)", text) == ["`digits`: digits, TIL", "`mini`: cifar10, TIL"]
    rows = [line for line in text.splitlines() if re.match(r"\| [A-Z]", line)]
    assert rows == [
        "| Naive | B | 0 | 50.00 | 0.00 |",
        "| CM | A | 0-2 and 1 stopped | 92.00 ± 1.63 | 0.00 ± 0.00 |",
        "| CM | lam=0.5 | A | 1 | 93.00 | 0.00 |",
        "| CM | A | 0 | 40.00 | 0.00 |",
    ]
    assert "{dropdown} 1 other setting (1 run)" in text
    versions = "cmlib 0.1.0, torch 2.9.0, python 3.12.0"
    assert f"- A: {versions}, cpu, CPU not recorded, 1 thread\n" in text
    assert f"- B: {versions}, a card, CPU not recorded, 2 threads" in text


def test_coverage_counts_the_runs_of_the_grids(tmp_path):
    """lam=0.1 of table 6 is the setting of table 1: one run counts in both."""
    keep(tmp_path, "cm", 0, 90.0)
    keep(tmp_path, "cm", 1, 90.0, status="stopped: the loss is not finite (task 1, epoch 1)")
    keep(tmp_path, "cm", 7, 90.0)  # of no seed that is wanted
    rows = {line.split(" | ")[0]: line for line in board.coverage(Store(tmp_path)).splitlines() if line.startswith("| `")}
    assert list(rows) == [f"| `{name}`" for name in grids.names()]
    assert "| 2 of 30 (1 stopped) | 0 of 20 | 0 of 50 |" in rows["| `table6`"] and "| 0 of 48 |" in rows["| `table5`"]
    assert re.search(r"\| 2 of \d+ \(1 stopped\) \| 0 of \d+ \| 0 of \d+ \|$", rows["| `table1`"])


def test_table_1_stands_beside_the_printed_one(tmp_path):
    keep(tmp_path, "cm", 0, 40.0, "mini", "cifar10")
    keep(tmp_path, "cm", 1, 42.0, "mini", "cifar10")
    keep(tmp_path, "er", 0, 0.0, "mini", "cifar10", status="stopped: the loss is not finite (task 1, epoch 1)")
    text = board.beside_the_paper(Store(tmp_path))
    mini = text.split("### ")[1]
    assert "| TIL | CM | 92.72 ± 1.33 | 41.00 ± 1.00 | -2.09 ± 0.71 | 0.00 ± 0.00 | 2 |" in mini
    assert "| TIL | ER | 90.56 ± 0.64 | stopped | -2.95 ± 0.67 | stopped | 0, 1 stopped |" in mini
    seen, folded = mini.split("::::{dropdown} 18 rows not run yet: the paper's numbers alone\n")
    assert "not run yet" not in seen and "| TIL | Naive | 67.00 ± 4.98 | -34.60 ± 7.39 |" in folded
    assert "2 other scale" in folded and "| CIL | CM | 64.64 ± 12.78 | -18.71 ± 10.84 ! |" in folded
    assert re.findall(r"### (.*)", text) == [
        "`mini`: cifar10",
        *(f"`paper`: {d}" for d in ("cifar10", "cifar100", "tiny-imagenet")),
    ]


def test_verdicts_are_those_of_the_claims(tmp_path):
    text = board.verdicts(Store(tmp_path))
    rows = [line for line in text.splitlines() if line.startswith('| "')]
    assert len(rows) == len(claims.load())
    expected = [(one.paper.verdict, one.ours.verdict) for one in claims.judge("digits", [Store(tmp_path)])]
    assert [tuple(row.removesuffix(" |").split(" | ")[1:3]) for row in rows] == expected
    held = sum(paper == "holds" for paper, _ in expected)
    assert f"- The paper's own numbers: *holds* {held}," in text


def test_an_empty_store_has_a_board(tmp_path):
    assert board.runs_board(Store(tmp_path)) == "Nothing: not run yet."
