"""The reproduction record: complete against the store and the printed numbers, and no number in it can be changed by hand."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
import re
from pathlib import Path

import numpy as np
import pytest
from handmade import completed
from scipy import stats

import cmlib as cm
from cmlib.datasets import KNOWN
from cmlib.experiment import Experiment, key
from cmlib.reproduction import audit, claims, errata, grids, paper, record, tables
from cmlib.store import Store, committed, run_id
from cmlib.teaching import filled, traced

BOOK = Path(__file__).parents[2] / "book"
CHAPTER = BOOK / "14_reproducibility_report.ipynb"


@pytest.fixture(scope="module")
def stores():
    return record.read([committed()])


@pytest.fixture(scope="module")
def checked():
    return audit.check_store(committed().folder, audit.Audit())


def shown():
    """Every value that the stored chapter shows by a name of the record, with its name."""
    cells = json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
    records = [
        out["metadata"]["cmlib"] for cell in cells for out in cell.get("outputs", []) if "cmlib" in out.get("metadata", {})
    ]
    return [(name, value) for one in records for name, value in one["values"].items() if filled.is_recorded(name)]


# -- complete ---------------------------------------------------------------------------------------------------------------


def slowly(store):
    """(table, printed place) of everything that was run at the paper's scale: run by run, without the package's tables."""
    found = set()
    for number in record.TABLES:
        for cell in grids.load(f"table{number}").cells("paper"):
            wanted = [json.dumps(dict(one.options), sort_keys=True) for one in cell.experiments("paper")]
            for run in store:
                e = run.experiment
                same = (e["dataset"], e["method"], e["engine"]) == (cell.dataset, cell.method, "cmlib")
                whole = e["dataset"] in KNOWN and run.data["train_rows_used"] == KNOWN[e["dataset"]].train
                if not (same and whole and e["scenario"] in cell.scenarios):
                    continue
                if number == 2 and not (beside_naive(run, store) and e["scenario"] in ("til", cell.scenarios[0])):
                    continue  # times are those of TIL, where there is TIL
                if json.dumps(dict(Experiment.of(e).options), sort_keys=True) in wanted:
                    found |= {(number, place) for place in paper.printed_table(number) if of_cell(place, cell)}
    return found


def machine(run):
    return [run.machine.get(name) for name in ("device", "threads", "cpu", "instructions")]


def beside_naive(run, store):
    """Whether a run of Naive of the same scenario was made at the paper's scale on the same kind of machine."""
    naive = key(Experiment("cifar10", run.experiment["scenario"], "naive", profile="paper").to_dict(), seed=False)
    return any(machine(one) == machine(run) and key(one.experiment, seed=False) == naive for one in store)


def of_cell(place, cell):
    return place[:4] == (cell.dataset, cell.scenario, cell.method, cell.printed)


def test_every_printed_number_that_was_run_is_listed(stores):
    listed = {(row.table, row.place) for row in record.numbers(stores)}
    assert listed == slowly(stores[0]) and len(listed) >= 26
    for number, place in listed:
        assert place in paper.printed_table(number)
    text = record.printed_numbers(stores)
    rows = [line for line in text.splitlines() if re.match(r"\| \d \|", line)]
    assert len(rows) == len(record.numbers(stores))
    for row in record.numbers(stores):
        if row.table != 2:  # those of table 2 are ratios of what is printed
            value = paper.printed_table(row.table)[row.place]
            assert any(f"| {value.mean:.2f}" in line and f"| {row.ours:.2f}" in line for line in rows)


def test_every_setting_of_the_store_with_a_default_run_of_the_same_seed_is_listed(stores):
    """Run by run: finished or stopped, on the test images, by the engine of this package."""
    done = [run for run in stores[0] if run.experiment["engine"] == "cmlib" and run.status == "finished"]
    experiments = {run.id: Experiment.of(run.experiment) for run in done}
    usual = {where(e) for e in experiments.values() if not e.variant}
    for profile in record.PROFILES:
        found = record.settings(profile, stores)
        keys = [(one.effect.scenario, one.effect.method, one.effect.variant) for one in found]
        assert len(set(keys)) == len(keys)
        changed = [e for e in experiments.values() if e.profile == profile and e.variant and e.eval_split == "test"]
        changed = [e for e in changed if e.variant != "class_order=shuffled" or not e.seed]  # others are shuffled anyway
        paired = [e for e in changed if where(e) in usual]
        same = twins(done, paired)
        assert sum(one.effect.n for one in found) == len(paired) - sum(n for names in same for _, n in names[1:]) > 0
        listed = {json.dumps(dict(one.options)) for label in labels() for one, _ in errata.experiments(label, profile)}
        named = {*keys, *(name for names in same for name, _ in names)}
        for e in paired:
            assert json.dumps(dict(e.options)) in listed or (e.scenario, e.method, e.variant) in named, e


def twins(done, paired):
    """Names of settings that are one by another name, in groups: the same matrices for every seed, and not the default's."""
    R = {(where(e), e.variant): run.R for run in done for e in [Experiment.of(run.experiment)]}
    settings, groups = {}, {}
    for e in paired:
        settings.setdefault((e.dataset, e.scenario, e.method, e.variant), []).append(
            (e.seed, R[where(e), e.variant], R[where(e), ""])
        )
    for name, runs in settings.items():
        if any(mine != usual for _, mine, usual in runs):
            groups.setdefault(json.dumps((name[:3], sorted(runs))), []).append((name[1:], len(runs)))
    return [names for names in groups.values() if len(names) > 1]


def where(e):
    return e.profile, e.dataset, e.scenario, e.method, e.seed


def labels():
    return [errata.TOGETHER, *(label for point in errata.load() for label in point.cells)]


def test_every_switch_of_the_grid_that_was_run_is_listed(stores):
    found = {(one.effect.scenario, one.effect.method, one.effect.variant): one for one in record.settings("digits", stores)}
    of_errata = {(e.scenario, e.method, e.variant) for es in errata.measure("digits", stores).values() for e in es if e.n}
    assert of_errata <= found.keys() and len(of_errata) > 75
    text = record.switches(stores)
    for _, method, variant in found:
        assert f"| {cm.METHODS[method].title} `{variant.replace(',', ', ')}` |" in text


def test_every_point_and_every_sentence_is_listed_once(stores):
    text = record.discrepancies(stores)
    for point in errata.load():
        assert text.count(f"- {point.id}: [{point.title}](#erratum-{point.id})") == 1
    told = record.sentences(stores)
    assert len(re.findall(r'^\| "', told, re.MULTILINE)) == len(claims.load()) == 37
    assert all(f'"{claim.quote}"' in told for claim in claims.load())


# -- a run more ---------------------------------------------------------------------------------------------------------------


def put(store, experiment, accuracy, **data):
    """A finished run whose tasks all end at one accuracy."""
    real = next(iter(committed()))
    digest = KNOWN[experiment.dataset].digest
    R = [[accuracy if j <= i else None for j in range(experiment.n_tasks)] for i in range(experiment.n_tasks)]
    one = dataclasses.replace(
        real,
        id=run_id(experiment, digest),
        experiment=experiment.to_dict(),
        R=R,
        R_task_known=None,
        seconds_per_epoch=[[1.0] * experiment.epochs] * experiment.n_tasks,
        gradient_steps=[],
        status="finished",
        data={"digest": digest, "classes": 10, "rows": KNOWN[experiment.dataset].train} | data,
    )
    store.save(completed(one), experiment, digest)


def test_new_runs_appear_by_themselves(tmp_path):
    store = Store(tmp_path)
    usual = Experiment("cifar10", "cil", "cm")
    for seed in range(3):
        put(store, usual.but(seed=seed, lam=1.0), 49.6 + seed / 10)
    put(store, Experiment("cifar10", "til", "er", 0, "paper", train_per_class=1000), 80.0, train_rows_used=10_000)
    rows = record.numbers([store])
    assert {(row.table, row.metric, row.verdict) for row in rows} == {
        (6, "accuracy", tables.AGREES),
        (6, "bwt_final", tables.DIFFERS),
    }
    assert "| 6 | CM, CIL, accuracy, `lam=1` | 49.57 | 49.70 ± 0.08 | 3 | agrees |" in record.printed_numbers([store])
    counted = record.counts([store])
    assert (counted["all_run"], counted["all_runs"], counted["all_agree"], counted["all_differ"]) == (2, 3, 1, 1)


def test_other_settings_are_measured_without_a_word_in_the_errata(tmp_path):
    store = Store(tmp_path)
    usual = Experiment("digits", "til", "cm")
    for seed in range(3):
        put(store, usual.but(seed=seed), 90.0)
        put(store, usual.but(seed=seed, momentum=0.5), 80.0 - seed)
        put(store, usual.but(seed=seed, momentum=0.6, eval_split="val"), 10.0)
    put(store, usual.but(seed=7, momentum=0.7), 80.0)  # no default run of this seed
    (one,) = record.settings("digits", [store])
    assert (one.effect.variant, one.points, one.settled) == ("momentum=0.5", [], True)
    assert one.effect.values["accuracy"] == [-10.0, -11.0, -12.0]
    assert "| CM `momentum=0.5` |  | **-11.00 ± 0.82** (3) |  |" in record.switches([store])


def test_an_empty_store_says_not_run_yet(tmp_path):
    nothing = [Store(tmp_path)]
    assert record.printed_numbers(nothing) == "Percent: not run yet."
    assert record.switches(nothing) == "`digits`: not run yet.\n\n`mini`: not run yet."
    assert {sign.verdict for sign in record.signs("digits", nothing)} == {"not run yet"}
    counted = record.counts(nothing)
    assert counted["all_run"] == counted["all_settings"] == counted["all_signs"] == counted["all_store"] == 0


# -- settled, and signs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_settled_is_a_paired_t_test(seed):
    draws = random.Random(seed)
    values = [draws.gauss(1, 1) for _ in range(2 + seed % 5)]
    p = stats.ttest_1samp(values, 0).pvalue
    assert record.settled(values) == (len(values) >= 3 and p < 0.05)


def test_settled_by_hand():
    assert record.settled([2, 3, 4]) and not record.settled([1, 2, 3]) and not record.settled([9, 9])
    assert record.settled([1.0, 1.0, 1.0]) and not record.settled([0.0, 0.0, 0.0]) and not record.settled([])


def test_signs_by_hand(stores):
    signs = {(sign.table, sign.scenario, sign.label): sign for sign in record.signs("digits", stores)}
    one = signs[1, "cil", "CM minus ER"]
    printed = paper.table1()
    both = [printed["cifar10", "cil", name, "accuracy"].mean for name in ("cm", "er")]
    assert one.paper == pytest.approx(both[0] - both[1]) and one.paper > 0
    runs = [paper.runs_like(committed(), Experiment("digits", "cil", name)) for name in ("cm", "er")]
    assert one.ours == paper.gaps(*runs) and len(one.ours) == 5
    assert (one.verdict == record.OPEN) == (stats.ttest_1samp(one.ours, 0).pvalue >= 0.05)
    assert signs[3, "cil", "merging=none"].paper < 0
    assert not any("lam=10" in label and kind == "til" for _, kind, label in signs)  # printed exactly at chance
    assert record.Sign(1, "til", "", -2.0, [-1.0, -1.1, -0.9]).verdict == record.SAME
    assert record.Sign(1, "til", "", 2.0, [-1.0, -1.1, -0.9]).verdict == record.OPPOSITE
    assert record.Sign(1, "til", "", 2.0, [-1.0, 1.1, 0.9]).verdict == record.OPEN
    assert record.Sign(1, "til", "", 2.0, [-1.0, -1.1, -0.9], 2.5).verdict == record.OPEN  # within the paper's own noise
    repeated = {"til": [92.72, 91.70, 91.39], "cil": [64.64, 64.10, 63.55, 62.40, 62.32]}  # CM's usual setting, table by table
    for kind, means in repeated.items():
        assert paper.noise("cifar10", kind) == pytest.approx(2 * math.sqrt(2 * np.var(means, ddof=1)))
        assert {sign.noise for (_, scenario, _), sign in signs.items() if scenario == kind} == {paper.noise("cifar10", kind)}


# -- permalinks ----------------------------------------------------------------------------------------------------------------


def test_permalinks_name_a_commit_and_lines():
    links = {point.id: record.permalinks(point) for point in errata.load()}
    assert links[3] == [f"[cml.py:292-299]({record.REPOSITORY}/{record.COMMITS['a1650fd']}/methods/plugins/cml.py#L292-L299)"]
    assert [link.split("]")[0] for link in links[8]] == ["[cml_utils.py:352-428", "[strategies.py:69-72"]
    assert "/methods/strategies.py#L173)" in links[12][0] and record.COMMITS["4e923eb"] in links[2][0]
    assert links[45] == links[56] == []  # another library; printed numbers alone
    pattern = r"\[[\w.]+(:\d+(-\d+)?)?\]\(https://github.com/jaryP/CentroidsMatching/blob/[0-9a-f]{40}/[\w/]+\.(py|sh|yaml)(#L\d+(-L\d+)?)?\)"
    for link in itertools.chain(*links.values()):
        assert re.fullmatch(pattern, link), link


# -- in the chapter ------------------------------------------------------------------------------------------------------------


def test_the_chapter_shows_all_of_it():
    names = [name for name, _ in shown()]
    for name in filled.LISTS:
        assert names.count(name) == 1, f"{name} must stand in the chapter once"
    for name in ("all_printed", "all_run", "all_inside", "all_outside", "all_points", "all_settled", "all_signs", "all_claims"):
        assert name in names


def test_what_the_chapter_shows_is_what_the_runs_give(stores):
    counted = record.counts(stores)
    for name, value in shown():
        assert value == (filled.LISTS[name](stores) if name in filled.LISTS else counted[name]), name


@pytest.mark.parametrize("number", range(12))
def test_a_digit_changed_by_hand_is_named_by_the_audit(tmp_path, checked, number):
    """In a list or in a count, with its Markdown, its plain text and its record all changed alike, as a forger would."""
    book, rng = json.loads(CHAPTER.read_text(encoding="utf-8")), random.Random(number)
    outputs = [out for cell in book["cells"] for out in cell.get("outputs", []) if "cmlib" in out.get("metadata", {})]
    outputs = [out for out in outputs if any(filled.is_recorded(name) for name in out["metadata"]["cmlib"]["values"])]
    output = rng.choice(outputs)
    made = output["metadata"]["cmlib"]
    name = rng.choice([name for name in made["values"] if filled.is_recorded(name)])
    value = made["values"][name]
    if isinstance(value, str):
        at = rng.choice([match.start() for match in re.finditer(r"\d", value)])
        made["values"][name] = value[:at] + str((int(value[at]) + rng.randint(1, 9)) % 10) + value[at + 1 :]
    else:
        made["values"][name] = value + rng.randint(1, 9)
    again = cm.say(made["text"], None, **made["values"])
    output["data"] |= again.data
    (tmp_path / CHAPTER.name).write_text(json.dumps(book), encoding="utf-8")
    found = audit.Audit()
    traced.check_pages(tmp_path, checked, found)
    assert any(f"{name} is not what the committed runs give" in what for _, what in found.problems)
