"""The fair fight: validation images alone choose, a search that is not complete chooses nothing, and the box tells its runs."""

import json
import math
import statistics

import pytest
from handmade import completed
from tiny import tiny_nets

import cmlib as cm
from cmlib import cli, footprint
from cmlib.datasets import KNOWN
from cmlib.experiment import key
from cmlib.methods import METHODS
from cmlib.reproduction import fair, sweep
from cmlib.reproduction.audit import Audit
from cmlib.reproduction.tables import Found
from cmlib.runfile import DIVERGED
from cmlib.store import Run, Store, committed, run_id
from cmlib.teaching import filled, traced, when

SETTINGS = ({}, {"lr": 0.03}, {"epochs": 2})


def search(scenario="til", method="naive", settings=SETTINGS, choose=(0, 1), test=(0, 1, 2), **memory):
    return fair.Search("smoke", "digits", scenario, method, settings, memory, choose, test)


def save(folder, experiment, accuracy, bwt=0.0):
    """A run made by hand: every task ends with this accuracy; None for one that stopped."""
    n, value = experiment.n_tasks, accuracy or 0.0
    R = [[value if i == n - 1 else value - bwt if j <= i else None for j in range(n)] for i in range(n)]
    digest = KNOWN["digits"].digest
    status = {"status": f"{DIVERGED} (task 1, epoch 1)"} if accuracy is None else {}
    made = Run(run_id(experiment, digest), experiment.to_dict(), R, None, [[1.0]] * n, [1] * n, {}, **status)
    made = completed(made)
    Store(folder).save(made, experiment, digest)
    return made


def fill(folder, one, accuracies, split="val", seeds=None):
    """The runs of a search, a list a setting."""
    for setting, values in zip(one.settings, accuracies, strict=True):
        for seed, value in zip(one.choose if seeds is None else seeds, values, strict=False):
            save(folder, one.experiment(setting, seed, split), value)


def outcome(folder, one):
    return fair.Outcome(one, Found([Store(folder)], "smoke"))


# --- the file ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["digits", "mini", "smoke"])
def test_every_method_has_as_many_settings_all_of_them_different_and_the_profile_s_first(profile):
    found = fair.searches(profile)
    assert len({len(one.settings) for one in found}) == 1
    for one in found:
        assert one.settings[0] == {}
        assert len({key(run.to_dict()) for run in one.choosing}) == len(one.settings) * len(one.choose)
        assert {run.eval_split for run in one.choosing} == {"val"}
        assert all({"memory_size", "exemplars_per_class"}.isdisjoint(setting) for setting in one.settings)


def test_digits_tune_every_pair_and_mini_those_that_matter():
    digits, mini = fair.searches("digits"), fair.searches("mini")
    assert {(one.method, one.scenario) for one in digits} == {
        cell for cell in cm.paper.cells() if cell[0] in {*footprint.ORDER, "cm"}
    }
    assert all((len(one.settings), len(one.choose), len(one.test)) == (12, 3, 5) for one in digits)
    assert {one.method for one in mini} == {"er", "ssil", "gem", "cm"}
    assert all((len(one.settings), len(one.choose), len(one.test)) == (4, 1, 3) for one in mini)
    (ours,) = (one for one in digits if one.label == "cil cm")
    kinds = {setting.get("merging", "scale_translate") for setting in ours.settings}
    assert kinds == set(METHODS["cm"].options["merging"].choices)
    assert {"head", "lam", "epochs"} <= {name for setting in ours.settings for name in setting}


@pytest.mark.parametrize("profile", ["digits", "mini"])
def test_memories_hold_as_many_images_in_all(profile):
    """In all: that of ER; a method that keeps some a task or a class reaches the same number after the last one."""
    in_all = set()
    for one in fair.searches(profile):
        options = one.choosing[0].options
        if "exemplars_per_class" in options:
            in_all.add(10 * options["exemplars_per_class"])
        elif "memory_size" in options and (one.scenario, one.method) != ("til", "cm"):
            in_all.add(options["memory_size"] * (options["n_tasks"] if one.method in ("gem", "emr") else 1))
    assert len(in_all) == 1


def test_a_profile_without_a_search_is_refused():
    with pytest.raises(cm.OptionError, match="paper"):
        fair.searches("paper")


# --- the choice ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accuracies", "chosen"),
    [
        ([[80.0, 82.0], [70.0, 99.0], [84.0, 83.0]], 1),
        ([[80.0, 82.0], [82.0, 80.0], [81.0, 81.0]], 0),  # equal: the first, so the default where it is among them
        ([[80.0, 82.0], [None, 100.0], [81.0, 83.0]], 2),  # stopped runs lose
        ([[None, 82.0], [0.0, 0.0]], 1),
        ([[None, None], [None, 1.0]], None),
        ([], None),
    ],
)
def test_the_choice_by_hand(accuracies, chosen):
    assert fair.choose(accuracies) == chosen


def test_validation_images_choose_whatever_the_test_images_say(tmp_path):
    one = search()
    fill(tmp_path, one, [[70, 72], [80, 80], [75, 75]])
    fill(tmp_path, one, [[99, 99, 99], [60, 61, 62], [98, 98, 98]], "test", one.test)
    made = outcome(tmp_path, one)
    assert made.chosen == {"lr": 0.03} and made.setting == "lr=0.03"
    assert [run.accuracy for run in made.validated] == [80, 80]
    assert [run.accuracy for run in made.tested] == pytest.approx([60, 61, 62]) and made.complete


class Watched(dict):
    """The runs of a store; asking for one on test images is an error, but for those that are allowed."""

    def __init__(self, runs, allowed):
        super().__init__(runs)
        self.allowed = allowed

    def get(self, name, default=None):
        options = json.loads(name)["options"]
        assert options.get("eval_split") == "val" or name in self.allowed, "looks at the test images of a setting not chosen"
        return super().get(name, default)


def test_test_numbers_of_settings_that_were_not_chosen_are_not_looked_at(tmp_path):
    one = search()
    fill(tmp_path, one, [[70, 72], [80, 80], [75, 75]])
    fill(tmp_path, one, [[99, 99, 99], [60, 61, 62], [98, 98, 98]], "test", one.test)
    found = Found([Store(tmp_path)], "smoke")
    allowed = {key(run.to_dict(), seed=False) for run in one.testing({"lr": 0.03}) + one.default}
    found.runs = Watched(found.runs, allowed)
    made = fair.Outcome(one, found)
    row = fair._row(made, made)
    assert (row.setting, row.flat()["tuned"], row.flat()["usual"]) == ("lr=0.03", 61, 99)
    found.runs.allowed = set()  # and the watch itself works
    with pytest.raises(AssertionError, match="not chosen"):
        print(fair.Outcome(one, found).tested)


def test_a_search_that_is_not_complete_chooses_nothing_and_asks_for_no_test(tmp_path):
    one = search()
    fill(tmp_path, one, [[70, 72], [80, 80], [75]])
    made = outcome(tmp_path, one)
    assert (made.done, made.wanted, made.choice, made.setting, made.validated, made.tested) == (5, 6, None, None, [], [])
    assert not made.complete and fair.testing(one, [Store(tmp_path)]) == []
    save(tmp_path, one.experiment(SETTINGS[2], 1, "val"), None)  # stopped: it is there, and loses
    assert outcome(tmp_path, one).chosen == {"lr": 0.03}
    wanted = fair.testing(one, [Store(tmp_path)])
    assert [(run.lr, run.seed, run.eval_split) for run in wanted] == [
        *((0.03, seed, "test") for seed in one.test), *((0.01, seed, "test") for seed in one.test),
    ]  # fmt: skip


def test_the_profile_s_setting_is_tested_once_when_it_wins(tmp_path):
    one = search()
    fill(tmp_path, one, [[80, 82], [80, 80], [75, 75]])
    assert outcome(tmp_path, one).setting == "the profile's"
    assert len(fair.testing(one, [Store(tmp_path)])) == len(one.test)


def test_where_every_setting_stopped_nothing_is_chosen(tmp_path):
    one = search()
    fill(tmp_path, one, [[None, 72], [80, None], [None, None]])
    made = outcome(tmp_path, one)
    assert made.done == made.wanted and made.choice is None and fair.testing(one, [Store(tmp_path)]) == []
    assert "all settings stopped" in fair._line(fair._row(made, made))


# --- making it -----------------------------------------------------------------------------------------------------------


def test_all_is_made_in_order_and_no_test_before_its_choice(tmp_path, monkeypatch):
    """Small networks in this process, in place of the workers of a sweep."""
    one = search(settings=({"n_tasks": 2}, {"n_tasks": 2, "lr": 0.03}), choose=(0,), test=(0, 1))
    monkeypatch.setattr(fair, "searches", lambda profile: (one,))
    monkeypatch.setattr(fair.Search, "default", property(lambda self: self.testing(self.settings[0])))
    made = []

    def work(wanted, folder, *_):
        made.extend(wanted)
        for experiment in wanted:
            cm.run(experiment, cm.datasets.load("digits"), store=folder, progress=False)
        return sweep.Report(made=len(wanted))

    monkeypatch.setattr(sweep, "sweep", work)
    with tiny_nets():
        report = fair.make("smoke", tmp_path)
    chosen = outcome(tmp_path, one)
    assert [run.eval_split for run in made[:2]] == ["val", "val"] and {run.eval_split for run in made[2:]} == {"test"}
    assert chosen.complete and report.made == len(made) and made[2:4] == one.testing(chosen.chosen)


def test_reports_are_added():
    a = sweep.Report(1, 2, 3, 4, {"a": "x"}, {"b": "y"}, "")
    b = sweep.Report(10, 20, 30, 40, {"c": "z"}, {}, "why")
    assert fair._sum(a, b) == sweep.Report(11, 22, 33, 44, {"a": "x", "c": "z"}, {"b": "y"}, "why")


def test_from_the_command_line(tmp_path, capsys):
    store = ["--store", str(tmp_path)]
    assert cli.main(["sweep", "fair", "--profile", "smoke", "--dry-run", *store]) == 0
    said = capsys.readouterr().out
    assert "8 of 8 runs to make" in said and said.count("eval_split=val") == 8
    assert cli.main(["sweep", "fair", "--profile", "paper", *store]) == 2
    assert "allowed: digits, mini, smoke" in capsys.readouterr().err
    for more in (["table1"], ["--seeds", "0"], ["--datasets", "digits"]):
        assert cli.main(["sweep", "fair", *more, *store]) == 2
        assert "is made alone" in capsys.readouterr().err
    for form in ("text", "md", "csv", "latex"):
        assert cli.main(["table", "fair", "--profile", "smoke", "--format", form, *store]) == 0
        assert form == "csv" or "not run yet (0 of 4 runs)" in capsys.readouterr().out
    capsys.readouterr()
    assert cli.main(["table", "fair", "--profile", "smoke", "--json", *store]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["method"], row["done"], row["wanted"], row["tuned"], row["tuned_n"]) for row in rows] == [
        ("cm", 0, 4, None, 0), ("er", 0, 4, None, 0),
    ]  # fmt: skip


# --- the table -----------------------------------------------------------------------------------------------------------


def test_rows_by_hand(tmp_path, monkeypatch):
    ours, rival = search("til", "cm"), search("til", "er")
    monkeypatch.setattr(fair, "searches", lambda profile: (rival, ours))
    fill(tmp_path, ours, [[70, 72], [80, 90], [75, 75]])
    fill(tmp_path, rival, [[90, 92], [80, 90], [75, 75]])
    for seed, (mine, theirs) in enumerate([(85, 90), (80, 86), (90, None)]):
        save(tmp_path, ours.experiment({"lr": 0.03}, seed, "test"), mine, bwt=-4.0)
        save(tmp_path, rival.experiment({}, seed, "test"), theirs, bwt=-2.0)
    first, second = fair.table("smoke", [Store(tmp_path)])
    assert (first.method, first.setting, second.method, second.setting) == ("cm", "lr=0.03", "er", "the profile's")
    assert first.validated == [80, 90] and first.gap == first.usual == []
    flat = first.flat()
    assert [flat[name] for name in ("tuned", "tuned_sd", "tuned_n")] == pytest.approx([85, math.sqrt(50 / 3), 3])
    assert [flat[name] for name in ("gap", "gap_sd", "gap_n")] == [None, None, 0]
    assert first.tuned_bwt == pytest.approx([-4, -4, -4])
    assert second.gap == pytest.approx([-5, -6])  # paired: 85 - 90 and 80 - 86
    assert second.usual == second.tuned and second.usual_gap == []
    assert fair._line(second)[1:6] == [
        "the profile's",
        "91.00 ± 1.00 (2)",
        "88.00 ± 2.00 (2)",
        "-2.00 ± 0.00",
        "-5.50 ± 0.50 (2)",
    ]


# --- the box -------------------------------------------------------------------------------------------------------------


def audited(shown, chapter="04_task_incremental_cm"):
    """Problems that the audit has with the box in a chapter."""
    cell = {"outputs": [{"data": shown.data, "metadata": shown.metadata}]}
    return list(traced.cell_problems(cell, chapter, {run.id: run for run in committed()}, Audit()))


@pytest.mark.parametrize("chapter", ["04_task_incremental_cm", "05_class_incremental_cm", "08_main_table"])
def test_every_number_of_the_box_follows_from_committed_runs(chapter):
    shown = cm.when_to_use()
    assert shown.data["text/markdown"].startswith("**When would you use CM?**\n\n- **") and audited(shown, chapter) == []
    values = shown.metadata["cmlib"]["values"]
    assert {"til", "bwt", "cil", "cost"} <= values.keys() and len(shown.metadata["cmlib"]["runs"]) >= 20
    cm_cil = next(one for one in fair.outcomes("digits", [committed()]) if one.search.label == "cil cm")
    assert f"In CIL CM has chosen `{cm_cil.setting}`" in shown.data["text/markdown"]  # not what the tables show
    assert values["profile"] == pytest.approx(statistics.fmean(run.accuracy for run in cm_cil.default))
    assert values["profile_kept"] == cm_cil.default[0].retained_scalars != values["cil_kept"]
    shown.metadata["cmlib"]["values"] = {**values, "cil": values["cil"] + 0.1}
    assert audited(shown, chapter)
    assert filled.TABLES["when_to_use"]() == cm.when_to_use().data["text/markdown"]


def test_the_box_says_what_has_not_run(tmp_path):
    shown = when.when_to_use(Store(tmp_path)).data["text/markdown"]
    assert shown.count("Not run yet.") == 4 and shown.endswith("Nothing of this has been run yet.")


@pytest.mark.parametrize("til", [True, False], ids=["TIL has run", "TIL has not run"])
def test_the_box_tells_tuned_runs_where_both_sides_have_them(tmp_path, til):
    """CIL tuned with CM ahead of ER, TIL with the profile's runs: each sentence says its own, the last one which are which."""
    for one in fair.searches("digits"):
        level = {"cm": 90.0, "er": 80.0}.get(one.method, 20.0)
        if one.label in ("cil cm", "cil er"):
            fill(tmp_path, one, [[50] * 3] + [[60] * 3] + [[55] * 3] * 10)
            for run in one.testing(one.settings[1]):
                save(tmp_path, run, level + run.seed, bwt=-5.0 if one.method == "cm" else -15.0)
        if one.method in ("cm", "er", "naive") and (til or one.label.startswith("cil")):
            for run in one.default:
                save(tmp_path, run, 70.0, bwt=-30.0)
    shown = when.when_to_use(Store(tmp_path)).data["text/plain"]
    assert "**It costs no accuracy here (CIL).** 92.0 % against 82.0 % for ER" in shown and "ahead for 0 of 5 seeds" in shown
    assert ("CM reaches 70.0 %" in shown) == til and "In the third point each method has the best of 12" in shown
    assert "changed by -30.0 points" in shown  # Naive in CIL is not tuned yet
