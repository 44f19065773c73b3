"""`cmlib claims`: the rules on numbers made by hand, the sentences, the paper's own numbers, and runs made by hand."""

import inspect
import json
import math

import numpy as np
import pytest
from handmade import completed

import cmlib as cm
from cmlib import cli, nets
from cmlib.datasets import KNOWN
from cmlib.methods import METHODS
from cmlib.profiles import PROFILES
from cmlib.reproduction import claim_rules, claims, paper, snapshots
from cmlib.reproduction.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, Claim, Measure, View
from cmlib.reproduction.tables import TOO_FEW
from cmlib.store import DIVERGED, Run, Store, run_id

BY_NAME = {claim.name: claim for claim in claims.load()}
FULL = {"digits": 1437, "cifar10": 50_000, "cifar100": 50_000, "tiny-imagenet": 100_000}


def view_of(numbers, metric="accuracy", claim=None):
    """A view of numbers made by hand: {label: mean}, {(label, metric): mean} or {label: a Measure}."""

    def source(claim, dataset, scenario, label, metric):
        value = numbers.get((label, metric), numbers.get(label, math.nan))
        return value if isinstance(value, Measure) else Measure(label, metric, value, None, 5)

    return View(claim or Claim("x", "", "", "best", {}, 1, ["cil"], metric), "digits", "cil", source)


def seeds(label, *values):
    """A measure of runs with seeds 0, 1, ..."""
    return Measure(label, "accuracy", float(np.mean(values)), float(np.std(values)), len(values), dict(enumerate(values)))


# --- rules -------------------------------------------------------------------------------------------------------------

ENDS = {"low": "naive", "high": "cumulative"}
SPAN = {"naive": 20.0, "cumulative": 80.0}  # half of the way: 50
TASKS = {"first": "cm", "others": ["er"], "tasks": 2, "task": 2}


def tasks_of(first, second, lost=(-6, -5)):
    """Accuracies of CM and ER on two tasks, and their bwt_final on the second."""
    pairs = {"accuracy_task1": first, "accuracy_task2": second, "bwt_final_task2": lost}
    return {(method, metric): pair[i] for metric, pair in pairs.items() for i, method in enumerate(("cm", "er"))}


BOTH_WAYS = [
    ("best", {"first": "cm", "others": ["er", "gem"]}, {"cm": 5, "er": 4, "gem": 4.9}, {"cm": 5, "er": 4, "gem": 5.1}),
    ("lowest", {"first": "cm", "others": ["er", "gem"]}, {"cm": 3, "er": 4, "gem": 9}, {"cm": 4, "er": 4, "gem": 9}),
    ("close_to", {"first": "cm", "to": "er", "within": 5}, {"cm": 90, "er": 95}, {"cm": 90, "er": 95.1}),
    ("alike", {"labels": ["cm", "er", "gem"], "within": 2}, {"cm": 1, "er": 3, "gem": 2}, {"cm": 1, "er": 3.1, "gem": 2}),
    ("falls", {"labels": ["cm", "er", "gem"]}, {"cm": 3, "er": 2, "gem": 2}, {"cm": 3, "er": 2, "gem": 2.5}),
    ("falls", {"labels": ["cm", "er"]}, {"cm": 3, "er": 2.9}, {"cm": 3, "er": 3}),
    ("poor", {"methods": ["er", "gem"], **ENDS}, {**SPAN, "er": 10, "gem": 49}, {**SPAN, "er": 10, "gem": 51}),
    ("good", {"methods": ["er", "gem"], **ENDS}, {**SPAN, "er": 90, "gem": 50}, {**SPAN, "er": 90, "gem": 49}),
    ("only_good", {"methods": ["er", "gem"], "others": ["ewc"], **ENDS},
     {**SPAN, "er": 51, "gem": 30, "ewc": 49}, {**SPAN, "er": 51, "gem": 30, "ewc": 52}),
    ("only_good", {"methods": ["er"], "others": ["ewc"], **ENDS}, {**SPAN, "er": 60, "ewc": 0}, {**SPAN, "er": 40, "ewc": 0}),
    ("fails", {"label": "cm", "low": "naive"}, {"cm": 18, "naive": 18}, {"cm": 18.1, "naive": 18}),
    ("stiff", {"strong": "cm", "usual": "er"},
     {("cm", "bwt_final"): -1, ("er", "bwt_final"): -5, "cm": 50, "er": 90},
     {("cm", "bwt_final"): -6, ("er", "bwt_final"): -5, "cm": 50, "er": 90}),
    ("stiff", {"strong": "cm", "usual": "er"},
     {("cm", "bwt_final"): 2, ("er", "bwt_final"): 1, "cm": 50, "er": 51},
     {("cm", "bwt_final"): -1, ("er", "bwt_final"): -5, "cm": 91, "er": 90}),
    ("best_but_in", TASKS, tasks_of((9, 8), (1, 2)), tasks_of((9, 8), (3, 2))),
    ("best_but_in", TASKS, tasks_of((9, 8), (1, 2)), tasks_of((7, 8), (1, 2))),
    ("best_but_in", TASKS, tasks_of((9, 8), (1, 2)), tasks_of((9, 8), (1, 2), lost=(-5, -6))),
    ("best_group", {"first": ["cm", "er"], "others": [["gem", "ewc"]]},
     {"cm": 1, "er": 6, "gem": 3, "ewc": 3.9}, {"cm": 1, "er": 6, "gem": 3, "ewc": 4.1}),
    ("nearer_to_others", {"first": "cm cil", "second": "cm til", "others": ["er", "gem"]},
     {"cm cil": 5, "cm til": 9, "er": 4, "gem": 8}, {"cm cil": 9, "cm til": 5, "er": 4, "gem": 8}),
    ("same_size", {"first": "cm", "others": ["er", "gem"], "share": 0.2},
     {"cm": 100, "er": 84, "gem": 124}, {"cm": 100, "er": 83, "gem": 124}),
    ("below", {"label": "cm", "limit": 0.25}, {"cm": 0.24}, {"cm": 0.25}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "arguments", "yes", "no"), BOTH_WAYS)
def test_a_rule_both_ways(rule, arguments, yes, no):
    assert claim_rules.RULES[rule](view_of(yes), **arguments).holds is True
    assert claim_rules.RULES[rule](view_of(no), **arguments).holds is False


def test_every_rule_is_tried():
    elsewhere = {"clearly_best", "good_then_poor", "fastest_of_the_best"}
    assert {rule for rule, *_ in BOTH_WAYS} | elsewhere == set(claim_rules.RULES)


def test_a_rule_that_fails_where_all_methods_work():
    """ER works in TIL and still in CIL (0.6 of the way), so it did not fail; GEM never worked and does not count."""
    numbers = {f"{name} {kind}": value for kind in ("til", "cil") for name, value in SPAN.items()}
    numbers |= {"er til": 70, "gem til": 30, "gem cil": 75}
    wanted = {"methods": ["er", "gem"]}
    assert claim_rules.good_then_poor(view_of({**numbers, "er cil": 49}), **wanted).holds
    assert not claim_rules.good_then_poor(view_of({**numbers, "er cil": 56}), **wanted).holds
    assert not claim_rules.good_then_poor(view_of({**numbers, "er til": 40, "er cil": 10}), **wanted).holds  # none worked


def test_the_fastest_of_the_best():
    """GEM is fastest but 6 points below the best; ER is within 5 points and slower, then faster."""
    accuracy = {("cm @1", "accuracy"): 90, ("er @1", "accuracy"): 88, ("gem @1", "accuracy"): 84}
    times = {("cm @2", "time"): 3, ("er @2", "time"): 4, ("gem @2", "time"): 1}
    wanted = {"first": "cm", "others": ["er", "gem"], "within": 5}
    assert claim_rules.fastest_of_the_best(view_of({**accuracy, **times}), **wanted).holds
    assert not claim_rules.fastest_of_the_best(view_of({**accuracy, **times, ("er @2", "time"): 2}), **wanted).holds
    assert not claim_rules.fastest_of_the_best(view_of({**accuracy, **times, ("gem @1", "accuracy"): 85}), **wanted).holds
    assert not claim_rules.fastest_of_the_best(view_of({**accuracy, **times, ("cm @1", "accuracy"): 80}), **wanted).holds


def test_runs_are_compared_seed_by_seed():
    """Seeds 0 to 2 have both: 1, 2 and -1 apart, 2/3 on average, though the mean of all four CM runs is far below."""
    ours, theirs = seeds("cm", 90.0, 80.0, 70.0, 0.0), seeds("er", 89.0, 78.0, 71.0)
    found = claim_rules.gap(ours, theirs)
    differences = [1.0, 2.0, -1.0]
    assert found.mean == pytest.approx(2 / 3) and found.error == pytest.approx(np.std(differences, ddof=1) / math.sqrt(3))
    assert found.text == "+0.67 (above on 2 of 3 seeds)"
    assert claim_rules.best(view_of({"cm": ours, "er": theirs}), "cm", ["er"]).holds
    assert claim_rules.gap(seeds("cm", 9.0, 1.0), seeds("er", 4.0, 2.0)).mean == 2.0  # two seeds: the means


def test_clearly_above_takes_the_spread_into_account():
    """Paired differences 1, 2, 3: error 1 / sqrt 3, so 2 is above twice that; with 0, 2, 4 it is below."""
    base = seeds("er", 10.0, 20.0, 30.0)
    for differences, clear in (((1.0, 2.0, 3.0), True), ((0.0, 2.0, 4.0), False)):
        ours = seeds("cm", *(value + more for value, more in zip((10.0, 20.0, 30.0), differences, strict=True)))
        error = np.std(differences, ddof=1) / math.sqrt(3)
        assert bool(2 * error < 2) is clear
        assert claim_rules.clearly_best(view_of({"cm": ours, "er": base}), "cm", ["er"]).holds is clear
    # Printed numbers: 12.04 points against standard errors of 12.78 / 2 and 1.38 / 2 (5 runs, divided by n).
    one, two = Measure("cm", "accuracy", 64.64, 12.78, 5), Measure("er", "accuracy", 52.60, 1.38, 5)
    assert claim_rules.gap(one, two).error == pytest.approx(math.sqrt(6.39**2 + 0.69**2))
    assert not claim_rules.clearly_best(view_of({"cm": one, "er": two}), "cm", ["er"]).holds
    assert claim_rules.best(view_of({"cm": one, "er": two}), "cm", ["er"]).holds


def test_a_run_that_stopped_has_failed():
    stopped = Measure("cm", "accuracy", n=0, stopped=3)
    assert claim_rules.fails(view_of({"cm": stopped, "naive": 20}), "cm", "naive").holds
    assert not claim_rules.fails(view_of({"naive": 20}), "cm", "naive").holds


def snapshot(after, points, centroids, labels):
    points, centroids = np.array(points, np.float32), np.array(centroids, np.float32)
    return snapshots.Snapshot(after, points, np.zeros(len(points), np.int64), centroids, np.array(labels))


def test_how_far_a_space_moved():
    first = snapshot(1, [[0, 0], [1, 0]], [[0, 0], [0, 10]], [0, 1])
    last = snapshot(3, [[3, 4], [1, 1]], [[0, 0], [9, 9]], [0, 1])
    assert claims.moved([first, snapshot(2, [[9, 9], [9, 9]], [[1, 1], [2, 2]], [0, 1]), last]) == pytest.approx(3 / 10)
    # Merged: old centroids move 2 and 0 (1 on average, of a distance of 10); a third class joins, first in the list.
    merged = snapshot(2, [], [[7, 7], [0, 2], [0, 10]], [5, 0, 1])
    assert claims.moved([first, merged], centroids=True) == pytest.approx(1 / 10)


# --- the sentences -----------------------------------------------------------------------------------------------------


def test_the_sentences_are_well_formed():
    assert len(BY_NAME) == len(claims.load()) >= 20
    for claim in BY_NAME.values():
        assert 3 < len(claim.quote.split()) <= 25, claim.name
        assert claim.where.startswith(("abstract", "section ")) and claim.table in range(1, 7)
        inspect.signature(claim_rules.RULES[claim.rule]).bind(None, **claim.with_)
        sentence = claims.rule_text(claim)
        assert sentence.endswith(".") and not any(word in sentence for word in ("WITHIN", "SHARE", "LIMIT"))


@pytest.mark.parametrize("profile", PROFILES)
def test_every_sentence_names_places_that_exist(profile, tmp_path):
    """With an empty store nothing is missing but the runs; every label of every column is an experiment of the profile."""
    for one in claims.judge(profile, [Store(tmp_path)]):
        assert one.ours.verdict in (NOT_RUN, UNDECIDED)
        assert (one.ours.verdict == UNDECIDED) == (bool(one.claim.own_data) and profile in ("smoke", "digits"))
        labels = {number.label.split()[0] for column in one.ours.columns for number in column.numbers}
        assert labels <= set(METHODS) and (labels or one.ours.reason)


def test_an_unknown_method_in_a_label_is_refused():
    with pytest.raises(cm.OptionError, match=r"unknown method 'cmm'.*Did you mean 'cm'"):
        claims.parse("cmm til", 1)
    assert claims.parse("cm til merging=none @3 ~small", 1) == claims.Label("cm", "til", "merging=none", 3, "small")
    assert claim_rules.title("er til") == "ER TIL" and claim_rules.title("cm merging=none @3") == "CM merging=none"


# --- the paper's own numbers -------------------------------------------------------------------------------------------

ON_PAPER = {
    "faster-than-baselines": FAILS, "better-in-both": HOLDS, "significant-til": FAILS, "significant-everywhere": FAILS,
    "close-to-cumulative": FAILS, "better-in-cil": HOLDS, "better-than-ssil-and-cope": HOLDS, "er-good": FAILS,
    "er-beaten": HOLDS, "til-good-cil-poor": FAILS, "memory-needed": FAILS, "regularization-not-enough": HOLDS,
    "gem-poor": HOLDS, "better-with-less-memory": UNDECIDED, "least-memory-in-til": HOLDS, "same-memory-in-cil": FAILS,
    "lowest-time-of-the-best": HOLDS, "slow-first-task": HOLDS, "slow-growth": HOLDS, "time-in-cil": HOLDS,
    "space-unchanged": UNDECIDED, "centroids-stay": UNDECIDED, "separable-late": HOLDS, "scale-translate-best": HOLDS,
    "but-for-task-2": HOLDS, "none-worst": HOLDS, "none-decent": HOLDS, "small-support-alike": FAILS,
    "large-support-hurts": HOLDS, "scale-translate-for-embeddings": HOLDS, "one-layer-for-both": HOLDS,
    "high-weight-fails-in-cil": HOLDS, "high-weight-stiff-in-til": FAILS, "more-weight-worse": HOLDS,
    "low-weight-forgets": FAILS, "weight-below-1-best": HOLDS, "less-forgetting": FAILS,
}  # fmt: skip


def test_the_papers_own_numbers():
    assert {name: claims.on_paper(claim).verdict for name, claim in BY_NAME.items()} == ON_PAPER


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("close-to-cumulative", [(HOLDS, 92.72 - 93.83), (HOLDS, 74.76 - 75.05), (FAILS, 47.80 - 63.03)]),
        ("better-in-cil", [(HOLDS, 64.64 - 52.60), (HOLDS, 27.91 - 25.09), (HOLDS, 12.04 - 9.59)]),  # ER, ER, SS-IL
        ("better-in-both", [(HOLDS, 92.72 - 91.39), (HOLDS, 74.76 - 72.03), (HOLDS, 47.80 - 46.88)]),  # EmR
        ("significant-til", [(FAILS, 92.72 - 91.39), (HOLDS, 74.76 - 72.03), (FAILS, 47.80 - 46.88)]),
        ("scale-translate-best", [(HOLDS, 64.10 - 58.68)]),
        ("large-support-hurts", [(HOLDS, 91.70 - 90.70), (HOLDS, 63.55 - 63.16)]),
        ("one-layer-for-both", [(HOLDS, 64.10 - 62.84)]),
        ("high-weight-fails-in-cil", [(HOLDS, 15.95 - 18.00)]),
        ("low-weight-forgets", [(FAILS, -8.94 + 6.08), (HOLDS, -39.51 + 42.75)]),
        ("weight-below-1-best", [(HOLDS, 91.39 - 89.25), (HOLDS, 62.32 - 59.75)]),
        ("slow-first-task", [(HOLDS, (24.07 - 13.61) / 9.74)]),
    ],
)
def test_differences_of_the_papers_own_numbers(name, columns):
    """Verdict and difference of every column, worked out from the printed values."""
    found = claims.on_paper(BY_NAME[name]).columns
    assert [(one.verdict, one.why.split()[0]) for one in found] == [(word, f"{apart:+.2f}") for word, apart in columns]


def test_times_of_the_papers_own_numbers():
    """Sums of the printed seconds: CM 178.62, OEWC 79.03; growth: 48.90 / 24.07 against GEM's 70.47 / 11.79."""
    cm_seconds, naive = [24.07, 28.62, 35.27, 41.76, 48.90], 9.74
    oewc = [11.87, 16.73, 16.42, 16.72, 17.29]
    (faster,) = claims.on_paper(BY_NAME["faster-than-baselines"]).columns
    assert faster.why == f"{sum(cm_seconds) / 5 / naive:.2f} against OEWC's {sum(oewc) / 5 / naive:.2f}"
    (growth,) = claims.on_paper(BY_NAME["slow-growth"]).columns
    assert growth.why == f"{48.90 / 24.07:.2f} against GEM's {70.47 / 11.79:.2f}"


def test_shares_of_the_way_from_naive_to_cumulative():
    """GEM on CIFAR-10 in CIL: (22.86 - 18.00) / (86.42 - 18.00) = 0.07; ER on CIFAR-100: 0.33; ER on CIFAR-10: just good."""
    assert "GEM 0.07" in claims.on_paper(BY_NAME["gem-poor"]).columns[0].why
    er = {(one.dataset, one.scenario): one for one in claims.on_paper(BY_NAME["er-good"]).columns}
    assert f"ER {(25.09 - 8.34) / (59.86 - 8.34):.2f}" in er["cifar100", "cil"].why
    assert er["cifar10", "cil"].verdict == HOLDS and er["cifar100", "cil"].verdict == FAILS
    assert [one.verdict for one in er.values()] == [HOLDS, HOLDS, HOLDS, FAILS, HOLDS, FAILS]


def test_memory_by_the_papers_formulas():
    said, image = BY_NAME["least-memory-in-til"].said, 3 * 32 * 32
    parameters = sum(one.numel() for one in nets.ResNet20().parameters())
    assert said["ewc"] == 5 * parameters and said["oewc"] == parameters and said["cm"] == 128 * 10
    assert said["emr"] == (64 + image) * 200 * 5 and said["gem"] == image * 500 * 5 and said["er"] == image * 1000
    cil = BY_NAME["same-memory-in-cil"].said
    assert [cil[name] / image for name in ("cm", "er", "ssil", "gem")] == [500, 1000, 1000, 2500]


def test_printed_numbers_that_cannot_be_are_marked():
    side = claims.on_paper(BY_NAME["high-weight-stiff-in-til"])
    doubts = [one for one in side.columns[0].numbers if one.doubt]
    assert {(one.label, one.metric) for one in doubts} == {("cm lam=100", "accuracy"), ("cm lam=100", "bwt_final")}
    assert paper.printed_table(6)["cifar10", "til", "cm", "lam=100", "bwt_final"].mean == -12.01


# --- runs made by hand -------------------------------------------------------------------------------------------------


def save(folder, scenario, method, seed, accuracy, profile="digits", status=None, learned=95.0, **options):
    """A run whose tasks were learned to `learned` percent and are at `accuracy` in the end, on the whole data set."""
    dataset = "cifar10" if profile == "mini" else "digits"
    experiment = cm.Experiment(dataset, scenario, method, seed, profile, **options)
    n = experiment.n_tasks
    R = [[learned if j <= i else None for j in range(n)] for i in range(n - 1)] + [[accuracy] * n]
    data = {"digest": KNOWN[dataset].digest, "rows": FULL[dataset], "train_rows_used": FULL[dataset]}
    made = Run(run_id(experiment, data["digest"]), experiment.to_dict(), R, None, [[1.0]] * n, [1] * n, {"x": 7},
               data=data, machine={"device": "cpu", "threads": 1}, **({"status": status} if status else {}))  # fmt: skip
    made = completed(made)
    return Store(folder).save(made, experiment, made.data["digest"])


def ours(folder, name, profile="digits"):
    return claims.on_runs(BY_NAME[name], claims.OurRuns([Store(folder)], profile))


def test_verdicts_of_our_runs(tmp_path):
    """Nothing, too few, then decided seed by seed: ER is above on average of all runs, CM on the seeds both have."""
    assert ours(tmp_path, "er-beaten").verdict == NOT_RUN
    for scenario in ("til", "cil"):
        for seed, accuracy in enumerate((90.0, 80.0)):
            save(tmp_path, scenario, "cm", seed, accuracy + 1)
            save(tmp_path, scenario, "er", seed, accuracy)
    few = ours(tmp_path, "er-beaten")
    assert few.verdict == TOO_FEW and [one.so_far for one in few.columns] == [True, True]
    for scenario in ("til", "cil"):
        save(tmp_path, scenario, "cm", 2, 61.0)
        save(tmp_path, scenario, "er", 2, 60.0)
        save(tmp_path, scenario, "er", 3, 100.0)
    whole = ours(tmp_path, "er-beaten")
    assert whole.verdict == HOLDS and whole.columns[0].why == "+1.00 (above on 3 of 3 seeds) against ER"
    assert [(one.name, one.mean, one.n) for one in whole.columns[1].numbers] == [
        ("CM", pytest.approx((91 + 81 + 61) / 3), 3), ("ER", pytest.approx((90 + 80 + 60 + 100) / 4), 4)
    ]  # fmt: skip


def test_one_column_that_fails_is_enough(tmp_path):
    for seed in range(3):
        for scenario, accuracy in (("til", 90.0), ("cil", 40.0)):
            save(tmp_path, scenario, "cm", seed, accuracy)
            save(tmp_path, scenario, "er", seed, 60.0)
    assert [one.verdict for one in ours(tmp_path, "er-beaten").columns] == [HOLDS, FAILS]
    assert ours(tmp_path, "er-beaten").verdict == FAILS


def test_what_fails_with_the_runs_there_are_fails(tmp_path):
    """CM is below ER on three seeds: no run of another method can make it the best; above ER it is not yet."""
    for seed in range(3):
        save(tmp_path, "cil", "cm", seed, 50.0)
        save(tmp_path, "cil", "er", seed, 55.0)
    side = ours(tmp_path, "better-in-cil")
    assert side.verdict == FAILS and side.columns[0].why == "-5.00 (above on 0 of 3 seeds) against ER"
    for seed in range(3):
        save(tmp_path, "cil", "er", seed, 45.0)
    missing = ours(tmp_path, "better-in-cil")
    assert missing.verdict == NOT_RUN and missing.columns[0].why.startswith("missing: Naive, EWC, OEWC, GEM, SS-IL")


def test_runs_that_stopped(tmp_path):
    """Stopped runs are no accuracy, except where failing is what the sentence says."""
    for seed in range(3):
        save(tmp_path, "cil", "naive", seed, 18.0)
        for scenario in ("til", "cil"):
            save(tmp_path, scenario, "cm", seed, 18.0, status=DIVERGED, lam=100)
    assert ours(tmp_path, "high-weight-fails-in-cil").verdict == HOLDS
    for seed in range(3):
        save(tmp_path, "til", "cm", seed, 90.0)
    side = ours(tmp_path, "high-weight-stiff-in-til")
    assert side.verdict == UNDECIDED and side.columns[0].why == "every run of CM lam=100 stopped: its loss was not finite"


def test_other_places_in_our_profile(tmp_path):
    """The paper's 100 images are 20 here, its memory half of ours; what is about its data alone is not decided on digits."""
    for seed in range(3):
        for size, accuracy in ((20, 80.0), (40, 78.0), (80, 79.0)):
            for scenario in ("til", "cil"):
                save(tmp_path, scenario, "cm", seed, accuracy, support_size=size)
    side = ours(tmp_path, "large-support-hurts")
    assert side.verdict == HOLDS and side.columns[0].numbers[1].name == "CM support_size=40"
    assert side.columns[0].why == "+1.00 (above on 3 of 3 seeds) against CM support_size=80"
    save(tmp_path, "cil", "cm", 0, 70.0, memory_size=25)
    assert ours(tmp_path, "better-with-less-memory").columns[0].numbers[0].mean == 70.0
    assert ours(tmp_path, "but-for-task-2").reason.startswith("other data set than cifar10")


def test_seconds_of_different_processors_are_not_compared(tmp_path):
    """Naive on two processors, EWC on one of them, CM on a third one: CM has no unit."""

    def growth(name):
        return claims.OurRuns([Store(tmp_path)], "digits")(BY_NAME["slow-growth"], "digits", "til", name, "growth").mean

    for method, cpu in (("naive", "one"), ("ewc", "one"), ("cm", "third")):
        path = save(tmp_path, "til", method, 0, 90.0)
        content = json.loads(path.read_text())
        content["machine"] |= {"cpu": cpu, "instructions": "AVX512"}
        path.write_text(json.dumps(content))
    save(tmp_path, "cil", "naive", 0, 90.0)
    assert growth("ewc") == 1.0 and math.isnan(growth("cm"))


def test_scalars_need_no_seeds_and_seconds_are_ratios(tmp_path):
    for method in ("cm", "ewc", "oewc", "er", "gem", "emr", "naive", "cumulative"):
        save(tmp_path, "til", method, 0, 90.0, "mini")
    side = ours(tmp_path, "least-memory-in-til", "mini")
    assert side.verdict == FAILS and side.columns[0].why.startswith("7 against")  # all keep 7 scalars
    first = ours(tmp_path, "slow-first-task", "mini")
    assert first.verdict == FAILS and {one.mean for one in first.columns[0].numbers} == {1.0}


@pytest.mark.parametrize(("moves", "verdict"), [(1.0, HOLDS), (3.0, FAILS)])
def test_spaces_from_snapshots(tmp_path, moves, verdict):
    """Points move 1, then 3, of a distance of 10 between the centroids; a run without snapshots does not count."""
    save(tmp_path, "til", "cm", 9, 90.0)
    assert ours(tmp_path, "space-unchanged").columns[0].why == "missing: CM (moved_task1)"
    taken = [snapshot(after, [[shift, 0]], [[0, 0], [10, 0]], [0, 1]) for after, shift in ((1, 0.0), (5, moves))]
    for seed in range(3):
        save(tmp_path, "til", "cm", seed, 90.0).with_suffix(".task1.npz").write_bytes(snapshots.pack(taken))
    side = ours(tmp_path, "space-unchanged")
    assert side.verdict == verdict and side.columns[0].numbers[0].n == 3
    assert side.columns[0].numbers[0].mean == pytest.approx(moves / 10)


# --- printing ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def judged(tmp_path):
    for seed in range(3):
        for scenario in ("til", "cil"):
            save(tmp_path, scenario, "cm", seed, 90.0 + seed)
            save(tmp_path, scenario, "er", seed, 80.0)
    return claims.judge("digits", [Store(tmp_path)])


def test_text(judged):
    text = claims.written(judged, "digits")
    block = next(one for one in text.split("\n\n") if one.startswith("er-beaten"))
    assert "  paper's own numbers: holds\n" in block and "  ours, digits: holds\n" in block
    assert "    digits TIL: holds; +11.00 (above on 3 of 3 seeds) against ER. CM 91.00 ± 0.82 (n 3), ER 80.00 (n 3)" in block
    assert "CM 64.64 ± 12.78 (n 5), ER 52.60 ± 1.38 (n 5)" in block
    assert "The paper's own numbers: 22 holds, 3 cannot be decided here, 12 does not hold." in text
    assert "CM lam=100 50.00! (n 2)" in text and "runs whose loss was not a number" in text


def test_markdown(judged):
    table = [line for line in claims.written(judged, "digits", "md").splitlines() if line.startswith("|")]
    assert len(table) == len(BY_NAME) + 2 and len({line.replace(r"\|", "").count("|") for line in table}) == 1
    row = next(line for line in table if BY_NAME["er-beaten"].quote in line)
    assert "| holds | holds |" in row and BY_NAME["er-beaten"].where in row


def test_json(judged):
    made = json.loads(claims.written(judged, "digits", "json"), parse_constant=lambda word: pytest.fail(word))
    assert made["profile"] == "digits" and [one["name"] for one in made["claims"]] == list(BY_NAME)
    one = made["claims"][list(BY_NAME).index("er-beaten")]
    assert (one["paper"]["verdict"], one["ours"]["verdict"]) == (HOLDS, HOLDS)
    number = one["ours"]["columns"][0]["numbers"][0]
    assert number["values"] == {"0": 90.0, "1": 91.0, "2": 92.0} and number["n"] == 3 and number["mean"] == 91.0
    absent = made["claims"][list(BY_NAME).index("better-in-cil")]["ours"]["columns"][0]["numbers"]
    assert {one["label"]: one["mean"] for one in absent}["gem"] is None


def test_what_is_wrong_is_said(judged, tmp_path):
    with pytest.raises(cm.OptionError, match="unknown format 'html'; allowed: text, md, json"):
        claims.written(judged, "digits", "html")
    with pytest.raises(cm.OptionError, match=r"unknown profile 'digit'.*Did you mean 'digits'"):
        claims.judge("digit", [Store(tmp_path)])


def test_the_command(judged, tmp_path, capsys):
    assert cli.main(["claims", "--store", str(tmp_path), "--format", "json"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == claims.written(judged, "digits", "json")
