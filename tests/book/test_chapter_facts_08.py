"""What chapter 8 shows of the fair fight, against the committed runs, looked up one by one."""

import itertools
import json
import re
import statistics
from pathlib import Path

import pytest

from cmlib.experiment import Experiment
from cmlib.methods import METHODS
from cmlib.reproduction import fair, paper
from cmlib.store import Store, committed

CHAPTER = Path(__file__).parents[2] / "book" / "08_main_table.ipynb"
CELLS = {cell["id"]: cell for cell in json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]}


def outputs(cell):
    """(text, values by name) of each sentence or table that a cell says."""
    data = [(out.get("data", {}), out.get("metadata", {}).get("cmlib", {})) for out in CELLS[cell]["outputs"]]
    return [("".join(one["text/plain"]), record.get("values", {})) for one, record in data if "text/markdown" in one]


@pytest.fixture(scope="module")
def searches():
    """Of each data set, the searches that are complete, TIL before CIL."""
    found = {name: [one for one in fair.outcomes(name, [committed()]) if one.complete] for name in ("digits", "mini")}
    return {name: sorted(ones, key=lambda one: one.search.scenario != "til") for name, ones in found.items() if ones}


def by_seed(runs):
    return {run.seed: run.accuracy for run in runs}


def test_the_board_holds_every_complete_search_with_its_choice(searches):
    board = (CHAPTER.parent / "results_board.md").read_text(encoding="utf-8")
    board = board[board.index("% begin fair") : board.index("% end fair")]
    shown, place = {}, ("", "")
    for line in board.splitlines():
        if heading := re.fullmatch(r"\*\*(TIL|CIL), (.+)\*\*", line):
            place = heading[1], {"digits": "digits", "cifar10, profile mini": "mini"}[heading[2]]
        elif line.startswith("|"):
            method, *rest = [cell.strip() for cell in line.split("|")[1:-1]]
            shown[*place, method] = rest
    complete = [(name, one) for name, found in searches.items() for one in found]
    assert len(complete) == sum(len(fair.searches(name)) for name in searches)
    for name, one in complete:
        kind = one.search.scenario
        setting, validated, tested, _, gap, *_ = shown[kind.upper(), name, METHODS[one.search.method].title]
        assert setting == one.setting
        assert float(validated.split()[0]) == pytest.approx(statistics.fmean(by_seed(one.validated).values()), abs=0.0051)
        assert float(tested.split()[0]) == pytest.approx(statistics.fmean(by_seed(one.tested).values()), abs=0.0051)
        if one.search.method == "cm":
            assert gap == "-"
            continue
        cm = next(x for x in searches[name] if (x.search.scenario, x.search.method) == (kind, "cm"))
        mine, its = by_seed(cm.tested), by_seed(one.tested)
        gaps = [mine[seed] - its[seed] for seed in mine.keys() & its.keys()]
        assert float(gap.split()[0]) == pytest.approx(statistics.fmean(gaps), abs=0.0051) and gap.endswith(f"({len(gaps)})")


def test_the_verdict_is_about_the_best_rival(searches):
    said = {text.split(",")[0].strip("*"): (text, values) for text, values in outputs("tuned-verdict") if "CM against" in text}
    for name, found in searches.items():
        for kind in ("til", "cil"):
            means = {
                one.search.method: statistics.fmean(by_seed(one.tested).values())
                for one in found
                if one.search.scenario == kind and one.search.method not in ("naive", "cumulative")
            }
            if "cm" not in means or len(means) < 2:
                assert f"{name} {kind.upper()}" not in said
                continue
            best = max((method for method in means if method != "cm"), key=means.get)
            text, values = said[f"{name} {kind.upper()}"]
            assert f"CM against {METHODS[best].title}" in text
            if values["n"] == len(searches[name][0].tested):
                assert values["gap"] == pytest.approx(means["cm"] - means[best])


def test_the_orders_are_those_of_the_means(searches):
    ((text, values),) = outputs("tuned-reading")
    shown = 0
    for (name, found), kind in itertools.product(searches.items(), ("til", "cil")):
        ranked = [
            (statistics.fmean(by_seed(one.tested).values()), METHODS[one.search.method].title)
            for one in found
            if one.search.scenario == kind and one.search.method not in ("naive", "cumulative")
        ]
        names = [name for _, name in sorted(ranked, reverse=True)]
        if "CM" in names and len(names) > 1:
            shown += 1
            below = " below Cumulative" if name == "digits" else ""
            place = f"The order{below} is {', '.join(names)}: CM is number {names.index('CM') + 1} of {len(names)}"
            assert place in text
            choices = {METHODS[one.search.method].title: one for one in found if one.search.scenario == kind}
            part = next(part for part in text.split("\n\n") if place in part)
            assert f"Its own choice, `{choices['CM'].setting}`, moves CM by" in part
            kept = [title for title, one in choices.items() if title in names and title != "CM" and not one.chosen]
            assert ("the profile's)" in part) == bool(kept) and all(title in part.split(" moves CM by")[1] for title in kept)
    assert shown == text.count("tuned alike.**") == values.get("orders", shown)


def test_another_cpu_does_to_cm_in_til_what_its_choice_does(searches):
    again = [run for run in Store(CHAPTER.parent / "repeats") if run.experiment["scenario"] == "til"]
    repeated = {}
    for run in again:
        if run.experiment["profile"] == "digits":
            repeated.setdefault(run.experiment["method"], []).append(run.accuracy)
    means = {method: statistics.fmean(ones) for method, ones in repeated.items() if method not in ("naive", "cumulative")}
    cm = next(one for one in searches["digits"] if (one.search.scenario, one.search.method) == ("til", "cm"))
    first, chosen = (statistics.fmean(by_seed(runs).values()) for runs in (cm.default, cm.tested))
    assert len(repeated["cm"]) == len(cm.default) and means["cm"] - first > chosen - first > 0  # "by more than its choice"
    assert len(means) >= 6 and max(means, key=means.get) == "cm"  # "and to the first place as well"


@pytest.mark.parametrize("name, cell", [("digits", "chosen-projector"), ("mini", "chosen-on-photos")])
def test_chapter_5_tells_what_cm_chose_in_cil(searches, name, cell):
    page = json.loads((CHAPTER.parent / "05_class_incremental_cm.ipynb").read_text(encoding="utf-8"))
    ((output,),) = [one["outputs"] for one in page["cells"] if one["id"] == cell]
    text, values = output["data"]["text/plain"], output["metadata"]["cmlib"]["values"]
    cm, er = (
        next(one for one in searches[name] if (one.search.scenario, one.search.method) == ("cil", method))
        for method in ("cm", "er")
    )
    gaps = [by_seed(cm.tested)[seed] - by_seed(er.tested)[seed] for seed in by_seed(er.tested)]
    assert (f"it chooses `{cm.setting}`" if cm.chosen else "it chooses the default") in text
    assert name == "mini" or ("cannot look" in text) == (cm.chosen == {"merging": "offset"})
    assert values["acc"] == pytest.approx(statistics.fmean(by_seed(cm.tested).values()))
    assert values["gap"] == pytest.approx(abs(statistics.fmean(gaps))) and values["wins"] == sum(gap > 0 for gap in gaps)
    if cm.chosen:
        assert values["usual"] == pytest.approx(statistics.fmean(by_seed(cm.default).values()))


def test_what_cm_chooses_from_in_cil_is_what_chapter_5_says():
    many, few = (
        next(one.settings for one in fair.searches(name) if (one.scenario, one.method) == ("cil", "cm"))
        for name in ("digits", "mini")
    )
    assert len(many) == 12 and len({one["merging"] for one in many if "merging" in one}) == 5  # and the default's
    assert few == [{}, {"merging": "none"}, {"cil_loss": "both", "scale_start": "near_one"}, {"lam": 1.0}]
    assert Experiment("cifar10", "cil", "cm", profile="mini").lam == 0.1


def test_the_report_says_that_the_profile_has_another_order(searches):
    page = (CHAPTER.parent / "14_reproducibility_report.ipynb").read_text(encoding="utf-8")
    assert "With the settings of the profile the order is another one" in page
    for kind in ("til", "cil"):
        cm, er = (
            next(one for one in searches["digits"] if (one.search.scenario, one.search.method) == (kind, name))
            for name in ("cm", "er")
        )
        usual, tuned = (
            [statistics.fmean(by_seed(runs).values()) for runs in pair]
            for pair in ((cm.default, er.default), (cm.tested, er.tested))
        )
        assert usual[0] < usual[1] and tuned[0] > tuned[1]


def test_the_report_sets_cm_beside_its_best_rival_wherever_all_are_tuned(searches):
    page = json.loads((CHAPTER.parent / "14_reproducibility_report.ipynb").read_text(encoding="utf-8"))
    ((output,),) = [one["outputs"] for one in page["cells"] if one["id"] == "tuned-alike"]
    text, values = output["data"]["text/plain"], output["metadata"]["cmlib"]["values"]
    wanted = {}
    for name, kind in itertools.product(("digits", "mini"), ("til", "cil")):
        complete = {one.search.method: by_seed(one.tested) for one in searches.get(name, []) if one.search.scenario == kind}
        if len(complete) < sum(one.scenario == kind for one in fair.searches(name)):
            continue
        means = {
            method: statistics.fmean(runs.values()) for method, runs in complete.items() if method not in ("cm", "cumulative")
        }
        best = max(means, key=means.get)
        gaps = [value - complete[best][seed] for seed, value in complete["cm"].items()]
        choice = next(one.setting for one in searches[name] if (one.search.scenario, one.search.method) == (kind, "cm"))
        assert (
            f"in {kind.upper()} CM reaches" in text
            and f"with its choice, `{choice}`, and its best rival, {METHODS[best].title}," in text
        )
        wanted |= {f"{name}_{kind}": statistics.fmean(complete["cm"].values()), f"{name}_{kind}_rival": means[best]}
        wanted |= {f"{name}_{kind}_gap": statistics.fmean(gaps), f"{name}_{kind}_n": len(gaps)}
        wanted[f"{name}_{kind}_wins"] = sum(gap > 0 for gap in gaps)
    assert values == pytest.approx(wanted) and ("not run yet" in text) == (not any("mini" in name for name in wanted))


def test_the_place_of_cm_at_the_papers_settings_is_that_of_its_means():
    ((said, _),) = outputs("paper-place")
    for scenario in ("til", "cil"):
        here = [name for name, method in METHODS.items() if scenario in method.scenarios]
        usual = {name: Experiment("cifar10", scenario, name, profile="paper") for name in here}
        found = {METHODS[name].title: paper.runs_like(committed(), one) for name, one in usual.items()}
        means = {title: statistics.fmean(run.accuracy for run in runs) for title, runs in found.items() if runs}
        order = sorted(means, key=means.get, reverse=True)
        listed = ", ".join(f"{title} {means[title]:.1f}" for title in order)
        assert f"- {scenario.upper()}, CM place {order.index('CM') + 1} of {len(order)}: {listed}" in said
