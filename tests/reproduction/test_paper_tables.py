"""`cmlib table`: the printed numbers, those among them that cannot be, the grids, and the verdicts on runs made by hand."""

import csv
import io
import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from handmade import completed

import cmlib as cm
from cmlib import cli
from cmlib.datasets import KNOWN
from cmlib.profiles import PROFILES
from cmlib.reproduction import grids, paper, tables
from cmlib.reproduction.paper import Place, Printed
from cmlib.store import DIVERGED, Run, Store, run_id

FULL = {"digits": 1437, "cifar10": 50_000, "cifar100": 50_000, "tiny-imagenet": 100_000}


def matrix(last, learned):
    """R of tasks that keep what they had until the last one: diagonal `learned`, last row `last`, else in between."""
    n = len(last)
    rows = [[learned[j] if j <= i else None for j in range(n)] for i in range(n)]
    return [*rows[:-1], list(last)]


def save(folder, experiment, R, **changes):
    """A run made by hand, on all the data unless said otherwise."""
    used = FULL[experiment.dataset]
    data = {"digest": KNOWN[experiment.dataset].digest, "rows": used, "train_rows_used": used, **changes.pop("data", {})}
    made = Run(
        run_id(experiment, data["digest"]), experiment.to_dict(), R, None, changes.pop("seconds", [[1.0]] * len(R)),
        [1] * len(R), {}, data=data, machine={"device": "cpu", "threads": 1}, **changes,
    )  # fmt: skip
    made = completed(made)
    Store(folder).save(made, experiment, made.data["digest"])
    return made


def rows_of(folder, number, profile="paper", **wanted):
    made = tables.table(number, profile, [Store(folder)]).rows
    return [row for row in made if all(getattr(row, name) == value for name, value in wanted.items())]


def row_of(folder, number, profile="paper", **wanted):
    (row,) = rows_of(folder, number, profile, **{"also": False, **wanted})
    return row


# --- the printed numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "values", "with_spread"), [(1, 99, 97), (2, 50, 50), (3, 44, 0), (4, 10, 0), (5, 16, 0), (6, 20, 0)]
)
def test_every_printed_value_is_there_once(number, values, with_spread):
    table = paper.printed_table(number)
    assert len(table) == values and sum(value.std is not None for value in table.values()) == with_spread


@pytest.mark.parametrize(
    ("number", "place", "mean", "std"),
    [
        (1, ("cifar10", "til", "cm", "", "accuracy"), 92.72, 1.33),
        (1, ("cifar100", "cil", "cm", "", "bwt_final"), -62.0, 1.23),
        (1, ("tiny-imagenet", "cil", "oewc", "", "accuracy"), 0.5, None),
        (2, ("cifar10", "til-cil", "ewc", "", "seconds_task1"), 13.61, 0.02),
        (2, ("cifar10", "cil", "cm", "", "seconds_task5"), 68.08, 0.27),
        (3, ("cifar10", "cil", "cm", "merging=linear", "bwt_final_task4"), -24.95, None),
        (3, ("cifar10", "cil", "cm", "merging=none", "accuracy"), 56.01, None),
        (4, ("cifar10", "cil", "cm", "support_size=500", "accuracy"), 61.04, None),
        (5, ("cifar10", "cil", "cm", "centroids_merging=offset,merging=mlp", "accuracy"), 60.94, None),
        (5, ("cifar10", "cil", "cm", "centroids_merging=mlp,merging=offset", "accuracy"), 59.25, None),
        (6, ("cifar10", "til", "cm", "lam=0.1", "bwt_final"), -8.94, None),
    ],
)
def test_values_as_printed(number, place, mean, std):
    assert paper.printed_table(number)[Place(*place)] == Printed(mean, std)


def test_rows_of_tables_as_printed():
    """Whole rows and columns, in the order of the page."""

    def row(number, **where):
        return [value.mean for place, value in paper.printed_table(number).items() if where.items() <= place._asdict().items()]

    assert row(2, method="emr") == [9.88, 18.97, 43.08, 72.49, 102.2]
    assert row(2, method="cm", scenario="til") == [24.07, 28.62, 35.27, 41.76, 48.9]
    both = [58.9, -33.99, 34.35, -50.75, 58.6, -26.25, 75.05, -20.3, 93.6, 64.1, -33.99]
    assert row(3, variant="merging=scale_translate") == both
    assert row(4, scenario="til") == [90.86, 90.86, 91.7, 89.79, 90.7]
    assert row(5)[::5] == [62.4, 56.55, 58.37, 59.05] and row(5)[:4] == [62.4, 56.92, 60.91, 60.67]
    assert row(6, scenario="cil", metric="accuracy") == [59.75, 62.32, 49.57, 42.19, 15.95]
    assert row(6, scenario="til", metric="bwt_final") == [-6.08, -8.94, -10.94, -12.03, -12.01]


# --- numbers that cannot belong together -------------------------------------------------------------------------------


def test_just_learned_accuracy_is_the_mean_diagonal():
    R = [[90.0, math.nan, math.nan], [70.0, 80.0, math.nan], [60.0, 65.0, 94.0]]
    diagonal = (90 + 80 + 94) / 3
    assert paper.just_learned(cm.metrics.accuracy(R), cm.metrics.bwt_final(R), 3) == pytest.approx(diagonal)
    assert paper.just_learned(64.64, -18.71, 5) == pytest.approx(79.608)
    assert paper.just_learned(64.10, -33.99, 5) == pytest.approx(91.292)
    assert paper.just_learned(62.32, -39.51, 5) == pytest.approx(93.928)


def test_means_of_counts_by_trying_all():
    """Two decimals of a mean of 2 runs on 2,000 images: what trying every number of right answers gives, and nothing else."""
    possible = {
        half // 2 for right in range(4001) for half in (5 * right, 5 * right + 1)
    }  # 2.5 hundredths an image; halves go either way
    for hundredths in range(10_001):
        assert paper.can_be_counted(hundredths / 100, 2, 2000) == (hundredths in possible), hundredths
    assert not paper.can_be_counted(-33.99, 2, 2000) and paper.can_be_counted(-50.75, 2, 2000)


def test_the_values_no_two_runs_can_give():
    found = {(place.variant, place.metric): text for place, text in paper.inconsistencies(3).items()}
    uncounted = {key for key, text in found.items() if "test images" in text}
    slip, none = "merging=scale_translate", "merging=none"
    assert uncounted == {
        (slip, "bwt_final_task1"),
        (none, "bwt_final_task3"),
        (none, "accuracy_task4"),
        (none, "bwt_final_task4"),
    }
    assert {key for key in found if key not in uncounted} == {(none, "accuracy"), (none, "bwt_final")}
    cells = (-53.90 - 46.95 - 50.06 - 21.74) / 4
    assert f"{cells:.2f}" in found[none, "bwt_final"]


def test_runs_that_were_no_numbers():
    """50.00 with a BWT of about -12 is one task learned to 98 % and chance from then on; 0.5 is one of 200 classes."""
    for lam, bwt in (("10", -12.03), ("100", -12.01)):
        first = 50 - 4 * bwt  # (50 - R11) / 4 = BWT, all other tasks were at chance from the start
        assert 98 < first < 98.2
        for metric in ("accuracy", "bwt_final"):
            assert "not a number" in paper.inconsistencies(6)[Place("cifar10", "til", "cm", f"lam={lam}", metric)]
    assert len(paper.inconsistencies(6)) == 4
    tiny = {(place.method, place.metric) for place in paper.inconsistencies(1) if place.dataset == "tiny-imagenet"}
    assert tiny == set(itertools.product(("ewc", "oewc"), ("accuracy", "bwt_final")))
    assert paper.is_chance(50.0, 2) and paper.is_chance(33.33, 3) and not paper.is_chance(50.02, 2) and not paper.is_chance(20, 2)


def test_one_setting_printed_in_several_tables():
    cil = [(number, value.mean) for number, _, value in paper.same_setting("cifar10", "cil")]
    til = [(number, value.mean) for number, _, value in paper.same_setting("cifar10", "til")]
    assert cil == [(1, 64.64), (3, 64.10), (4, 63.55), (5, 62.40), (6, 62.32)]
    assert til == [(1, 92.72), (4, 91.70), (6, 91.39)]
    odd = paper.inconsistencies(1)[Place("cifar10", "cil", "cm", "", "bwt_final")]
    assert "79.6, 91.3, 93.9" in odd
    assert not any(place.method == "cm" and place.metric == "accuracy" for place in paper.inconsistencies(1))
    assert [len(paper.inconsistencies(number)) for number in (1, 2, 3, 4, 5, 6)] == [5, 0, 6, 0, 0, 4]


# --- grids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_every_printed_value_has_one_row(number, tmp_path):
    """In the profile `paper`, row by row; what stands in none is only what the paper does not print."""
    rows = rows_of(tmp_path, number, also=False)
    shown = [
        (row.dataset, row.scenario, row.method, row.printed_variant or "", row.metric.replace("ratio", "seconds"))
        for row in rows
        if row.paper is not None
    ]
    assert sorted(shown) == sorted(map(tuple, paper.printed_table(number)))
    assert all(row.verdict == "not run yet" and row.n == 0 and row.ours is None for row in rows)
    assert all(row.variant == row.printed_variant for row in rows)
    unprinted = {(row.method, row.metric) for row in rows if row.paper is None and row.metric != "bwt"}
    assert unprinted == ({("cope", "bwt_final")} if number == 1 else set())


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_have_the_same_places(profile):
    """Only the data sets and the values of an option differ from profile to profile."""
    for name in grids.names():
        grid = grids.load(name)
        places = [(cell.scenario, cell.method, cell.printed) for cell in grid.cells(profile) if not cell.also]
        assert places == [
            (c.scenario, c.method, c.printed) for c in grid.cells("paper") if not c.also and c.dataset == "cifar10"
        ] * (3 if (name, profile) == ("table1", "paper") else 1)


def test_values_of_a_profile_stand_where_the_papers_do():
    cells = [cell for cell in grids.load("table4").cells("digits") if cell.scenario == "cil"]
    sizes = [(cell.options["support_size"], cell.printed) for cell in cells]
    assert sizes == [
        (ours, f"support_size={theirs}") for ours, theirs in zip((4, 10, 20, 40, 80), (10, 50, 100, 200, 500), strict=True)
    ]
    shares = {cell.options["support_size"] / int(cell.printed.partition("=")[2]) for cell in grids.load("table4").cells("mini")}
    assert shares == {0.5}, "1,000 images a task instead of 10,000, and half the support set, as in the profile"


def test_experiments_seed_by_seed_and_each_once():
    grid = grids.load("table1")
    made = grid.experiments("digits", 2)
    assert len(made) == 2 * 20 and [one.seed for one in made] == [0] * 20 + [1] * 20
    assert made[:17] == [cm.Experiment("digits", scenario, method, 0) for method, scenario in place_order(grid)]
    assert made[17].epochs == 10 and made[18].epochs == 50 and made[19].batch_split == "equal_steps"
    assert grid.experiments("digits", [4])[0].seed == 4
    full = grid.experiments("paper", [0])
    assert len(full) == 3 * 17 + 1 + 3 + 3 and {one.profile for one in full} == {"paper"}
    pooled = grids.load("table2").experiments("mini", 1)
    assert len(pooled) == 16 == len({(one.method, one.scenario) for one in pooled})
    mixed = grids.load("table5").experiments("paper", 1)
    assert {(one.centroids_merging, one.merging) for one in mixed} == set(
        itertools.product(("scale_translate", "mlp", "offset", "none"), repeat=2)
    )
    assert {one.lam for one in grids.load("table6").experiments("smoke", 1)} == {0.01, 0.1, 1.0, 10.0, 100.0}


def place_order(grid):
    return [(cell.method, cell.scenario) for cell in grid.cells("digits") if not cell.also]


def test_the_main_table_has_every_method_and_scenario():
    assert sorted(place_order(grids.load("table1"))) == sorted(paper.cells())
    with pytest.raises(cm.OptionError, match=r"unknown grid 'table7'; allowed: table1, .*table6"):
        grids.load("table7")


# --- verdicts ----------------------------------------------------------------------------------------------------------

ACCURACY = {"dataset": "cifar10", "scenario": "til", "method": "naive", "metric": "accuracy"}


def test_mean_population_deviation_and_number(tmp_path):
    """Against plain sums; the printed BWT (-34.60) is compared with the BWT after the last task, `bwt` has its own row."""
    learned = [95.0, 90.0, 90.0, 90.0, 95.0]
    last = [[62.0 + seed, 60.0, 61.0, 59.0, 95.0] for seed in (0, 3, 6)]
    for seed, values in enumerate(last):
        save(tmp_path, cm.Experiment("cifar10", "til", "naive", seed), matrix(values, learned))
    accuracies = [sum(values) / 5 for values in last]
    mean = sum(accuracies) / 3
    spread = math.sqrt(sum((value - mean) ** 2 for value in accuracies) / 3)
    row = row_of(tmp_path, 1, **ACCURACY)
    assert (row.ours, row.ours_sd) == pytest.approx((mean, spread)) and (row.n, row.stopped) == (3, 0)
    assert (row.paper, row.paper_sd, row.paper_n, row.verdict) == (67.0, 4.98, 5, "agrees")
    final = [sum(values[j] - learned[j] for j in range(4)) / 4 for values in last]
    row = row_of(tmp_path, 1, **{**ACCURACY, "metric": "bwt_final"})
    assert row.ours == pytest.approx(sum(final) / 3) and row.paper == -34.6 and row.verdict == "agrees"
    row = row_of(tmp_path, 1, **{**ACCURACY, "metric": "bwt"})  # nothing was lost before the last task: 4 of 10 pairs count
    assert row.ours == pytest.approx(0.4 * sum(final) / 3) and (row.paper, row.verdict) == (None, "not printed")


@pytest.mark.parametrize(
    ("printed", "values", "expected"),
    [
        (Printed(50.0, 0.1), [50.9, 51.0, 51.1], "agrees"),  # one point is always allowed
        (Printed(50.0, 0.1), [51.3, 51.4, 51.5], "differs"),
        (Printed(50.0, 3.0), [52.9] * 3, "agrees"),  # two standard errors of a mean of five: 2 x 3 / sqrt(4)
        (Printed(50.0, 3.0), [53.1] * 3, "differs"),
        (Printed(50.0, 3.0), [51.4, 57.4, 63.4], "agrees"),  # 7.4 apart; 2 sqrt(9 / 4 + 24 / 2) = 7.55
        (Printed(50.0, 3.0), [51.7, 57.7, 63.7], "differs"),
        (Printed(50.0, None), [53.0] * 3, "agrees"),  # three points without a printed deviation
        (Printed(50.0, None), [40.0, 53.1, 66.2], "differs"),
        (Printed(50.0, 3.0), [50.0] * 2, "too few runs"),
        (Printed(50.0, 3.0), [56.0], "inside (one run)"),
        (Printed(50.0, 3.0), [43.9], "outside (one run)"),
        (Printed(50.0, 0.1), [50.9], "inside (one run)"),  # a point
        (Printed(50.0, None), [50.0], "too few runs"),
        (Printed(50.0, 3.0), [], "not run yet"),
        (None, [50.0] * 3, "not printed"),
    ],
)
def test_verdicts(printed, values, expected):
    assert tables.verdict(printed, values, 0, "cifar10", "paper") == expected


def test_verdicts_before_the_numbers_are_looked_at():
    good, exact = Printed(50.0, 1.0), [50.0] * 3
    assert tables.verdict(good, exact, 0, "cifar10", "paper", inconsistent=True) == "paper inconsistent"
    assert tables.verdict(good, exact, 0, "cifar10", "paper", other=True) == "other settings"
    assert tables.verdict(good, [], 0, "cifar10", "paper", other=True) == "not run yet"
    assert tables.verdict(good, exact, 0, "cifar10", "mini") == "other scale"
    assert tables.verdict(None, exact, 0, "digits", "digits") == tables.verdict(None, exact, 0, "digits", "smoke") == "other data"
    assert tables.verdict(good, [], 2, "cifar10", "paper") == "stopped"
    assert tables.verdict(Printed(2.0, 0.01), [2.19] * 3, 0, "cifar10", "paper", ratio=True) == "agrees"  # a tenth
    assert tables.verdict(Printed(2.0, 0.01), [2.21] * 3, 0, "cifar10", "paper", ratio=True) == "differs"


def test_of_equal_programs_one_run_in_six_is_outside_and_one_mean_in_ten_differs():
    """What the words are worth, by simulation: five printed runs and one, or three, of one and the same distribution."""
    draws = np.random.default_rng(0).normal(50, 10, (4000, 8))
    printed = [Printed(float(five.mean()), float(five.std())) for five in draws[:, :5]]
    words = [tables.verdict(one, [float(v)], 0, "cifar10", "paper") for one, v in zip(printed, draws[:, 5], strict=True)]
    assert words.count("outside (one run)") / len(words) == pytest.approx(0.18, abs=0.02)  # as the tables' footnote says
    words = [tables.verdict(one, list(v), 0, "cifar10", "paper") for one, v in zip(printed, draws[:, 5:], strict=True)]
    assert 0.05 < words.count("differs") / len(words) < 0.15


def test_ss_il_and_cope_of_table_1_were_made_with_other_settings(tmp_path):
    R = matrix([37.0] * 5, [90.0] * 5)
    for method, options in (("ssil", {}), ("ssil", {"epochs": 100}), ("cope", {}), ("er", {})):
        save(tmp_path, cm.Experiment("cifar10", "cil", method, 0, **options), R)
    rows = [row for row in tables.table(1, "paper", [Store(tmp_path)]).rows if row.n and row.metric == "accuracy"]
    found = {(row.method, row.variant): (row.verdict, row.note or "") for row in rows}
    assert found["er", None][0] == "outside (one run)" and found["ssil", "epochs=100"][0] == "inside (one run)"
    assert found["ssil", None][0] == found["cope", None][0] == "other settings"
    assert "ten times as long" in found["ssil", None][1] and "another program" in found["cope", None][1]
    assert all(row.note is None for row in tables.table(1, "digits", [Store(tmp_path)]).rows)


def test_runs_that_stopped_are_counted_and_shown(tmp_path):
    for seed in range(3):
        save(tmp_path, cm.Experiment("cifar10", "til", "cm", seed, lam=1), matrix([79.0] * 5, [90.0] * 5))
    half = [[98.0, *[None] * 4], *[[None] * 5] * 4]
    for seed in (3, 4):
        save(tmp_path, cm.Experiment("cifar10", "til", "cm", seed, lam=1), half, status=f"{DIVERGED} (task 2, epoch 1)")
    save(tmp_path, cm.Experiment("cifar10", "til", "cm", 0, lam=0.01), half, status=f"{DIVERGED} (task 2, epoch 1)")
    where = {"scenario": "til", "metric": "accuracy"}
    row = row_of(tmp_path, 6, variant="lam=1", **where)
    assert (row.n, row.stopped, row.ours, row.verdict) == (3, 2, 79.0, "agrees")
    row = row_of(tmp_path, 6, variant="lam=0.01", **where)
    assert (row.n, row.stopped, row.ours, row.verdict) == (0, 1, None, "stopped")
    text = tables.show(tables.table(6, "paper", [Store(tmp_path)]))
    assert "3 (2 stopped)" in text and "0 (1 stopped)" in text


def test_inconsistent_numbers_of_the_paper_get_no_verdict(tmp_path):
    for seed in range(3):
        save(tmp_path, cm.Experiment("cifar10", "til", "cm", seed, lam=10), matrix([50.0] * 5, [98.12, 50, 50, 50, 50]))
    row = row_of(tmp_path, 6, scenario="til", variant="lam=10", metric="accuracy")
    assert row.verdict == "paper inconsistent" and "not a number" in row.note and row.ours == row.paper == 50.0


def test_paper_counts_runs_on_all_the_data_only(tmp_path):
    R = matrix([67.0] * 5, [90.0] * 5)
    for seed in range(3):
        save(tmp_path, cm.Experiment("cifar10", "til", "naive", seed), R)
    save(
        tmp_path,
        cm.Experiment("cifar10", "til", "naive", 3),
        R,
        data={"rows": 25_000, "train_rows_used": 25_000, "digest": "b" * 12},
    )
    save(tmp_path, cm.Experiment("cifar10", "til", "naive", 4), R, data={"train_rows_used": 10_000, "digest": "c" * 12})
    save(tmp_path, cm.Experiment("cifar10", "til", "naive", 5, train_per_class=1000), R, data={"train_rows_used": 10_000})
    save(tmp_path, cm.Experiment("cifar10", "til", "naive", 6, epochs=5), R)
    save(tmp_path, cm.Experiment("cifar10", "til", "naive", 7, engine="avalanche"), R)
    row = row_of(tmp_path, 1, **ACCURACY)
    assert row.n == 3 and row.note == "2 more on a part of the data, not counted"


def test_copies_of_the_data_are_not_mixed(tmp_path):
    """Of two whole copies the one with more runs counts; the committed one of two with as many."""
    for seed, digest in enumerate(("a" * 12, "b" * 12, "b" * 12)):
        save(tmp_path, cm.Experiment("cifar10", "til", "naive", seed), matrix([67.0] * 5, [90.0] * 5), data={"digest": digest})
    row = row_of(tmp_path, 1, **ACCURACY)
    other = "on another copy of the data"
    assert row.n == 2 and row.note == f"1 more {other}, not counted; {other} than the committed runs"
    for seed in range(2):
        save(tmp_path, cm.Experiment("cifar10", "til", "naive", seed), matrix([50.0] * 5, [90.0] * 5))
    row = row_of(tmp_path, 1, **ACCURACY)
    assert (row.n, row.ours, row.note) == (2, 50.0, f"3 more {other}, not counted")


def test_profiles_of_other_data_and_other_scale(tmp_path):
    R = matrix([67.0] * 5, [90.0] * 5)
    for seed in range(3):
        save(tmp_path, cm.Experiment("cifar10", "til", "naive", seed, "mini"), R, data={"train_rows_used": 5000})
        save(tmp_path, cm.Experiment("digits", "cil", "cm", seed, support_size=40), R)
    row = row_of(tmp_path, 1, "mini", **ACCURACY)
    assert (row.n, row.paper, row.verdict) == (3, 67.0, "other scale")
    row = row_of(tmp_path, 4, "digits", scenario="cil", variant="support_size=40")
    assert (row.paper, row.paper_sd, row.paper_n, row.n, row.verdict) == (None, None, None, 3, "other data")
    assert row.printed_variant == "support_size=200"
    for number in range(1, 7):
        assert all(row.paper is None and row.dataset == "digits" for row in rows_of(tmp_path, number, "smoke"))
    assert all(row.n == 0 for row in rows_of(tmp_path, 1, "paper")), "smaller runs never stand for the paper's"


def test_values_of_single_tasks(tmp_path):
    """Table 3: what is left of each task in the end, and what it lost since it was learned."""
    last, learned = [58.9, 34.35, 58.6, 75.05, 93.6], [97.55, 85.1, 84.85, 95.35, 93.6]
    for seed in range(3):
        save(tmp_path, cm.Experiment("cifar10", "cil", "cm", seed), matrix(last, learned))
    rows = {row.metric: row for row in rows_of(tmp_path, 3, variant="merging=scale_translate")}
    for j in range(5):
        assert rows[f"accuracy_task{j + 1}"].ours == pytest.approx(last[j])
    for j in range(4):
        assert rows[f"bwt_final_task{j + 1}"].ours == pytest.approx(last[j] - learned[j])
    assert "bwt_final_task5" not in rows and rows["accuracy"].verdict == "agrees"
    assert rows["bwt_final_task1"].verdict == "paper inconsistent" and rows["bwt_final_task2"].verdict == "agrees"


def test_also_rows_stand_beside_the_same_number(tmp_path):
    for seed in range(3):
        save(tmp_path, cm.Experiment("cifar10", "til", "cm", seed, epochs=20), matrix([92.7] * 5, [94.0] * 5))
    also, usual = rows_of(tmp_path, 1, dataset="cifar10", scenario="til", method="cm", metric="accuracy")[::-1]
    assert (also.also, also.variant, also.paper, also.n, also.verdict) == (True, "epochs=20", 92.72, 3, "agrees")
    assert (usual.also, usual.variant, usual.n) == (False, None, 0)


# --- times -------------------------------------------------------------------------------------------------------------


def test_times_are_ratios_to_naive_on_the_same_machine(tmp_path):
    """Naive 2 s in TIL, 4 s in CIL, ER 5 s and 8 s in its second task: 2.5 times, by the fastest epoch of the fastest run in TIL.

    A busy machine can only add: neither a slower run of ER nor one of Naive changes that.
    """
    R = matrix([60.0] * 5, [90.0] * 5)
    for scenario, naive, er in (("til", 2.0, 5.0), ("cil", 4.0, 8.0)):
        save(tmp_path, cm.Experiment("cifar10", scenario, "naive", 0), R, seconds=[[naive + 7] * 9 + [naive]] * 5)
        for seed in range(2):
            save(
                tmp_path,
                cm.Experiment("cifar10", scenario, "er", seed),
                R,
                seconds=[[naive], [er] + [9.0] * 9, [1.0], [1.0], [1.0]],
            )
    save(tmp_path, cm.Experiment("cifar10", "til", "naive", 1), R, seconds=[[30.0]] * 5)
    save(tmp_path, cm.Experiment("cifar10", "til", "er", 2), R, seconds=[[30.0]] * 5)
    row = row_of(tmp_path, 2, scenario="til-cil", method="er", metric="ratio_task2")
    assert (row.ours, row.ours_sd, row.n) == (2.5, None, 3)
    assert row.ours_seconds == 5.0 and row.paper_seconds == 34.0 and row.paper == pytest.approx(34.0 / 9.74)
    relative = math.sqrt((0.72 / 34) ** 2 + (0.26 / 9.74) ** 2)
    assert row.paper_sd == pytest.approx(34.0 / 9.74 * relative) and row.verdict == "differs"
    row = row_of(tmp_path, 2, scenario="til-cil", method="naive", metric="ratio_task1")
    assert (row.ours, row.n, row.verdict) == (1.0, 2, "too few runs")


@pytest.mark.parametrize("what", [{"threads": 2}, {"device": "cuda"}, {"cpu": "another"}, {"instructions": "AVX2"}])
def test_times_of_another_machine_are_not_mixed(tmp_path, what):
    R = matrix([60.0] * 5, [90.0] * 5)
    save(tmp_path, cm.Experiment("cifar10", "til", "naive", 0), R, seconds=[[2.0]] * 5)
    made = save(tmp_path, cm.Experiment("cifar10", "til", "emr", 0), R, seconds=[[3.0]] * 5)
    other = replace(made, machine={**made.machine, **what})
    Store(tmp_path).save(other, cm.Experiment("cifar10", "til", "emr", 0), made.data["digest"])
    row = row_of(tmp_path, 2, method="emr", metric="ratio_task1")
    assert (row.n, row.ours, row.verdict) == (0, None, "not run yet")
    assert row.note == "1 more without a Naive run on the same machine, not counted"


# --- the order of methods ----------------------------------------------------------------------------------------------


def test_kendalls_tau_by_counting_pairs(tmp_path):
    """Of the paper's TIL order on CIFAR-10, one pair of four methods stands the other way round here."""
    ours = {"naive": 60.0, "ewc": 80.0, "er": 91.0, "cm": 90.0}
    for method, accuracy in ours.items():
        save(tmp_path, cm.Experiment("cifar10", "til", method, 0), matrix([accuracy] * 5, [95.0] * 5))
    for method in ("naive", "er"):
        save(tmp_path, cm.Experiment("cifar10", "cil", method, 0), matrix([20.0] * 5, [95.0] * 5))
    theirs = {"naive": 67.0, "ewc": 77.06, "er": 90.56, "cm": 92.72}
    signs = [(ours[a] - ours[b]) * (theirs[a] - theirs[b]) > 0 for a, b in itertools.combinations(ours, 2)]
    expected = (sum(signs) - sum(not sign for sign in signs)) / len(signs)
    tau = {(one["dataset"], one["scenario"], one["metric"]): one for one in tables.table(1, "paper", [Store(tmp_path)]).tau}
    assert set(tau) == {("cifar10", "til", "accuracy"), ("cifar10", "til", "bwt_final")}, "two methods make no order"
    one = tau["cifar10", "til", "accuracy"]
    assert one["tau"] == pytest.approx(expected) == pytest.approx(4 / 6) and one["methods"] == 4
    assert tables.table(6, "paper", [Store(tmp_path)]).tau == []


# --- formats and the command -------------------------------------------------------------------------------------------


def test_formats_hold_the_same_numbers(tmp_path):
    for seed in range(3):
        save(tmp_path, cm.Experiment("cifar10", "cil", "cm", seed), matrix([64.0 + seed] * 5, [90.0] * 5))
    made = tables.table(6, "paper", [Store(tmp_path)])
    rows = json.loads(tables.show(made, "json"))["rows"]
    named = [
        "table",
        "dataset",
        "scenario",
        "method",
        "metric",
        "variant",
        "paper",
        "paper_sd",
        "paper_n",
        "ours",
        "ours_sd",
        "n",
        "verdict",
    ]
    assert list(rows[0])[:13] == named and len(rows) == len(made.rows) == 30
    read = list(csv.DictReader(io.StringIO(tables.show(made, "csv"))))
    assert [row["variant"] for row in read] == [row["variant"] for row in rows] and read[0]["ours"] == ""
    spread = math.sqrt(2 / 3)
    for form, sign in (("text", "±"), ("md", "±"), ("latex", r"$\pm$")):
        text = tables.show(made, form)
        assert f"65.00 {sign} {spread:.2f}" in text and "divided by n" in text and "released code" in text
    lines = [line for line in tables.show(made, "latex").splitlines() if line.endswith(r"\\")]
    assert len(lines) == 31 and len({line.replace(r"\&", "").count("&") for line in lines}) == 1
    assert r"bwt\_final" in lines[2] and "bwt_final &" not in "".join(lines)
    table = [line for line in tables.show(made, "md").splitlines() if line.startswith("|")]
    assert len(table) == 32 and len({line.count("|") for line in table}) == 1


def test_the_header_prints_the_values_used(tmp_path):
    text = tables.show(tables.table(4, "digits", [Store(tmp_path)]))
    assert "support_size: 4, 10, 20, 40, 80 in place of the paper's 10, 50, 100, 200, 500" in text
    assert "in place of" not in tables.show(tables.table(4, "paper", [Store(tmp_path)]))


def test_a_run_that_was_made_stands_in_the_table(tmp_path, capsys):
    made = cm.run(cm.Experiment("digits", "cil", "naive", 0, "smoke"), store=tmp_path)
    assert cli.main(["table", "1", "--profile", "smoke", "--format", "json", "--store", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    found = {row["metric"]: row for row in rows if (row["method"], row["scenario"]) == ("naive", "cil")}
    assert all(found[name]["ours"] == pytest.approx(getattr(made, name)) for name in ("accuracy", "bwt_final", "bwt"))
    assert all((row["n"], row["ours_sd"], row["verdict"]) == (1, None, "other data") for row in found.values())
    assert all(row["verdict"] == "not run yet" for row in rows if row not in found.values())


def test_a_result_file_that_says_nothing_is_named(tmp_path):
    path = tmp_path / "seed0-0.json"
    keys = ("id", "experiment", "R", "R_task_known", "seconds_per_epoch", "gradient_steps", "retained")
    path.write_text(json.dumps(dict.fromkeys(keys) | {"id": "odd", "experiment": {}}), encoding="utf-8")
    with pytest.raises(cm.StoreError, match=r"seed0-0\.json is not a result file of cmlib"):
        tables.table(1, "digits", [Store(tmp_path)])
