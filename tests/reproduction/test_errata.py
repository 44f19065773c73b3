"""The points where paper and released code part: what is said of each, and the effects that are measured."""

import dataclasses
import json
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from handmade import completed

import cmlib as cm
from cmlib import cli
from cmlib.errors import OptionError, StoreError
from cmlib.experiment import Experiment, allowed_options
from cmlib.methods import METHODS
from cmlib.reproduction import errata, grids
from cmlib.store import Store, committed, run_id
from cmlib.teaching import filled

POINTS = errata.load()
BOOK = Path(__file__).parents[2] / "book"


# -- what is said ------------------------------------------------------------------------------------------------------------


def test_there_is_one_point_a_number_and_each_says_everything():
    assert [point.id for point in POINTS] == list(range(1, 60))
    assert {point.kind for point in POINTS} == set(errata.CLASSES)
    for point in POINTS:
        assert point.title and point.text and point.code and point.ours
        assert bool(point.cells) != bool(point.why), f"{point.id}: measured, or why not"
        assert not point.options or point.cells or point.why
    assert len({point.title for point in POINTS}) == len(POINTS)


def test_every_option_can_be_set():
    for point in POINTS:
        for text in point.options:
            method, setting = text.split(" ")
            name, value = setting.split("=")
            only = allowed_options(METHODS[method])[name].only
            made = Experiment("cifar10", only or METHODS[method].scenarios[0], method, **{name: value})
            assert str(made.options[name]).lower() == value or float(made.options[name]) == float(value)


@pytest.mark.parametrize("profile", ["smoke", "digits", "paper"])
def test_every_cell_is_found_and_every_switch_of_the_grid_belongs_to_a_point(profile):
    labels = [(point.id, label) for point in POINTS for label in point.cells] + [(0, errata.TOGETHER)]
    found = {key: errata.experiments(key[1], profile) for key in labels}
    assert all(found.values()), [key for key, cells in found.items() if not cells]
    listed = [one.but(seed=0) for cells in found.values() for one, _ in cells]
    for one in grids.load("switches").experiments(profile, [0]):
        assert not one.variant or one in listed, f"no point has {one.method} {one.variant}"


def test_an_effect_is_measured_against_another_setting():
    for point in POINTS:
        for label in point.cells:
            for one, _ in errata.experiments(label, "digits"):
                assert dict(one.options) != dict(errata.default(one).options)
                assert not errata.default(one).variant


# -- effects ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real():
    return cm.run(Experiment("digits", "til", "naive", 0, "smoke", train_per_class=16, n_tasks=2))


def widened(R, n):
    """R of n tasks that all end alike, with the accuracy and bwt_final of R of two."""
    if R[1][1] is None:
        return [[None] * n] * n
    end, lost = (R[1][0] + R[1][1]) / 2, R[1][0] - R[0][0]
    return [[end if i == n - 1 else end - lost for _ in range(n)] for i in range(n)]


def place(store, real, experiment, R, status="finished", digest=None):
    """Put a run into a store that has the accuracy and bwt_final of R, [2][2], over as many tasks as the experiment has."""
    digest = digest or real.data["digest"]
    one = dataclasses.replace(
        real,
        id=run_id(experiment, digest),
        experiment=experiment.to_dict(),
        R=widened(R, experiment.n_tasks),
        seconds_per_epoch=[[1.0]] * experiment.n_tasks,
        gradient_steps=[],
        status=status,
        data={**real.data, "digest": digest},
    )
    store.save(completed(one), experiment, digest)


def naive(seed, **options):
    return Experiment("digits", "til", "naive", seed, "smoke", **options)


def effects_of(number, store, profile="smoke"):
    return {(one.scenario, one.method, one.variant): one for one in errata.measure(profile, [store])[number]}


def test_an_effect_by_hand(tmp_path, real):
    """Seeds 0 and 1 have both runs; seed 2 lacks the default one, seed 3 stopped, seed 4 is on other data."""
    store = Store(tmp_path)
    place(store, real, naive(0), [[90.0, None], [60.0, 80.0]])  # accuracy 70, bwt_final -30
    place(store, real, naive(1), [[80.0, None], [70.0, 90.0]])  # 80, -10
    place(store, real, naive(3), [[80.0, None], [70.0, 90.0]])
    place(store, real, naive(4), [[80.0, None], [70.0, 90.0]])
    place(store, real, naive(0, head="mlp"), [[90.0, None], [70.0, 80.0]])  # 75, -20: +5, +10
    place(store, real, naive(1, head="mlp"), [[80.0, None], [60.0, 90.0]])  # 75, -20: -5, -10
    place(store, real, naive(2, head="mlp"), [[0.0, None], [0.0, 0.0]])
    place(store, real, naive(3, head="mlp"), [[None, None], [None, None]], "stopped: the loss is not finite")
    place(store, real, naive(4, head="mlp"), [[0.0, None], [0.0, 0.0]], digest="0" * 16)
    made = effects_of(9, store)["til", "naive", "head=mlp"]
    assert made.seeds == [0, 1] and made.values == {"accuracy": [5.0, -5.0], "bwt_final": [10.0, -10.0]}
    assert (made.mean("accuracy"), made.sd("accuracy"), made.sd("bwt_final")) == (0.0, 5.0, 10.0)
    assert (made.n, made.stopped, made.unpaired) == (2, 1, 1)
    assert made.numbers == "accuracy +0.00 ± 5.00, bwt_final +0.00 ± 10.00 (2 runs, 1 stopped, 1 without a default run)"
    assert made.name == "Naive TIL head=mlp"
    others = effects_of(9, store)
    assert others["cil", "naive", "head=mlp"].numbers == "not run yet"


def test_one_run_has_no_spread_and_only_the_seeds_that_can_differ_count(tmp_path, real):
    store = Store(tmp_path)
    for seed in (0, 1):
        usual = Experiment("digits", "til", "cm", seed, "smoke")
        place(store, real, usual, [[90.0, None], [60.0, 80.0]])
        place(store, real, usual.but(class_order="shuffled"), [[91.0, None], [63.5, 80.0]])
    made = effects_of(33, store)["til", "cm", "class_order=shuffled"]
    assert made.numbers == "accuracy +1.75, bwt_final +2.50 (1 run)" and made.seeds == [0]


def test_effects_of_the_committed_runs_from_their_files():
    """Item 3, projectors that are not trained, straight from the result files."""
    folder = committed().folder / "digits" / "digits-cil"
    last = {
        name: {
            int(re.search(r"seed(\d+)-", path.name)[1]): np.array(json.loads(path.read_text())["R"][-1], float)
            for path in (folder / name).glob("seed*.json")
        }
        for name in ("cm", "cm-projectors=frozen")
    }
    seeds = sorted(set(last["cm"]) & set(last["cm-projectors=frozen"]))
    wanted = [last["cm-projectors=frozen"][seed].mean() - last["cm"][seed].mean() for seed in seeds]
    (made,) = errata.measure("digits", [committed()])[3]
    assert seeds and list(made.seeds) == seeds and made.values["accuracy"] == pytest.approx(wanted)
    assert made.mean("accuracy") == pytest.approx(statistics.fmean(wanted))


# -- printing -------------------------------------------------------------------------------------------------------------------


def test_text_lists_every_point_and_marks_what_is_not_there(tmp_path):
    text = errata.show("digits", "text", tmp_path)
    assert [int(n) for n in re.findall(r"^(\d+)\. ", text, flags=re.MULTILINE)] == list(range(1, 60))
    assert "effect: CM TIL drift_weight=one: not run yet" in text and "effect: none: paper and code agree" in text
    assert "effect: no such runs in this profile" in errata.show("mini", "text", tmp_path)
    assert not re.search(r"[+-]\d+\.\d\d", text.split("\n\n", 1)[1].replace("-12.03", "").replace("-12.01", ""))


def test_markdown_is_headings_and_definitions(tmp_path):
    text = errata._markdown("digits", errata.measure("digits", [Store(tmp_path)]))
    headings = re.findall(r"^### (\d+)\. ", text, flags=re.MULTILINE)
    assert sorted(map(int, headings)) == list(range(1, 60)) and "|" not in text
    assert [h for h in re.findall(r"^## (.*)$", text, flags=re.MULTILINE)] == [*errata.CLASSES.values(), "Many at once"]
    for block in text.split("\n\n"):
        assert not re.match(r"\d+\. ", block), "would be a numbered list"
    assert text.count("\nMeasured\n: ") == 60


def test_every_point_has_an_anchor_that_does_not_hang_on_its_title(tmp_path):
    text = errata._markdown("digits", errata.measure("digits", [Store(tmp_path)]))
    for point in POINTS:
        assert f"\n(erratum-{point.id})=\n### {point.id}. {point.title}\n" in text


def test_the_page_opens_with_the_effects_the_largest_first():
    table, rest = errata.effects_table("digits").split("\n::::\n")
    rows = [line.split(" | ") for line in table.splitlines() if "](#" in line]
    listed = [int(n) for n in re.findall(r"\(#erratum-(\d+)\)", table)]
    left_out = [int(n) for n in re.findall(r"\(#erratum-(\d+)\)", rest)]
    assert sorted(listed + left_out) == list(range(1, 60)) and not set(listed) & set(left_out)
    sizes = [max(abs(float(n)) for n in re.findall(r"[+-]\d+\.\d\d", " ".join(row[2:]))) for row in rows]
    assert sizes == sorted(sizes, reverse=True) and len(rows) == len(listed) + 1  # and the presets
    measured = errata.measure("digits", [committed()])
    one = max((one for one in measured[45] if one.scenario == "cil"), key=lambda one: abs(one.mean("accuracy")))
    row = next(row for row in rows if "#erratum-45" in row[1])
    assert f"GEM {one.mean('accuracy'):+.2f} ± {one.sd('accuracy'):.2f} ({one.n} runs)" in row[2].split("CIL: ")[1]
    text = (BOOK / "errata.md").read_text(encoding="utf-8")
    assert text.index("% begin errata_effects") < text.index("## ") < text.index("% begin errata\n")


def test_more_effects_than_a_few_stand_in_a_table():
    measured = errata.measure("digits", [committed()])
    block = errata.markdown("digits").split("\n(erratum-9)=\n")[1].split("\n(erratum-")[0]
    rows = re.findall(r"^  \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", block, flags=re.MULTILINE)
    wanted = [(f"{one.who} `{one.variant}`", one.told("accuracy"), one.told("bwt_final"), one.runs) for one in measured[9]]
    assert [row for row in rows if "`" in row[0]] == wanted and len(wanted) == 8
    assert measured[9][0].told("accuracy") == f"{measured[9][0].mean('accuracy'):+.2f} ± {measured[9][0].sd('accuracy'):.2f}"


def test_json_is_plain_and_complete(tmp_path, real):
    store = Store(tmp_path)
    place(store, real, naive(0), [[90.0, None], [60.0, 80.0]])
    place(store, real, naive(0, head="mlp"), [[90.0, None], [70.0, 80.0]])
    content = json.loads(errata.show("smoke", "json", tmp_path))
    assert content["profile"] == "smoke" and len(content["errata"]) == 59 and len(content["presets"]) == 6
    point = content["errata"][8]
    assert point["class"] == "undocumented choice" and {"id", "where", "text", "code", "file", "ours", "options"} <= set(point)
    told = next(one for one in point["effects"] if (one["method"], one["scenario"]) == ("naive", "til"))
    assert told["accuracy"] == {"mean": 5.0, "sd": None, "n": 1} and told["seeds"] == [0]
    assert content["errata"][0]["effects"][0]["accuracy"] == {"mean": None, "sd": None, "n": 0}


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(OptionError, match=r"unknown profile 'digit'; allowed: .*Did you mean 'digits'"):
        errata.show("digit")
    with pytest.raises(OptionError, match="unknown format 'html'; allowed: text, md, json"):
        errata.show("digits", "html")
    with pytest.raises(StoreError, match="there is no store at"):
        errata.show("digits", "text", tmp_path / "none")


def test_the_command(tmp_path, capsys):
    assert cli.main(["errata", "--profile", "mini", "--format", "json", "--store", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["profile"] == "mini"


def test_the_page_has_the_blocks(tmp_path):
    text = (BOOK / "errata.md").read_text(encoding="utf-8")
    assert filled.with_tables(text) == text, "make it anew with `python -m cmlib.cli tables`"
    assert [name for name in ("errata_effects", "errata", "errata_mini") if f"% begin {name}\n" in text][1:] == [
        "errata",
        "errata_mini",
    ]
    assert all(line.startswith(":") for line in errata.effects_alone("mini").splitlines() if "bwt_final" in line)
