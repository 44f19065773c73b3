"""The audit: what it must find, what it must let pass; and the runs as one table."""

import csv
import hashlib
import io
import json
import math
import os
import random
import re
import shutil
from pathlib import Path

import pandas
import pytest

import cmlib as cm
from cmlib import datasets
from cmlib.experiment import fresh
from cmlib.methods import METHODS
from cmlib.methods.naive import Naive
from cmlib.reproduction import audit, costs, publish
from cmlib.reproduction import export as exports
from cmlib.store import Store, committed, write_checksums
from cmlib.teaching import traced

STORE, BOOK = committed().folder, Path(__file__).resolve().parents[2] / "book"
NAIVE = "digits/digits-cil/naive/seed0-b781ac71.json"
STOPPED = "digits/digits-cil/oewc/"
ON_GRID = {"digits": 72, "cifar10": 2000}  # test images of a task


def one_file_store(folder, place, change=None):
    """A store that holds one committed run, changed by `change(content)`."""
    content = json.loads((STORE / place).read_text())
    if change is not None:
        change(content)
    path = folder / "store" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    (folder / "book").mkdir(exist_ok=True)
    return path


def problems(folder):
    """Problems of a small store and book, as `file: problem`."""
    return [f"{where}: {what}" for where, what in traced.audit(folder / "store", folder / "book").problems]


def test_the_committed_book_and_its_runs_pass():
    found = traced.audit(STORE, BOOK)
    assert found.problems == []
    files = [*STORE.rglob("seed*.json"), *(STORE.parent / "repeats").rglob("seed*.json")]
    assert found.checked["result files"] == len(files) > 100
    assert found.checked["shown texts"] >= 30 and found.checked["pages with tables"] >= 1
    assert found.checked["values traced to runs"] + found.checked["numbers in texts traced to runs"] > 100


# -- any number changed by hand -------------------------------------------------------------------------------------------


def typo(rng, number):
    """A number with one digit (of its first eight) replaced by another."""
    while True:
        text = repr(number)
        at = rng.choice([i for i, letter in enumerate(text[:9]) if letter.isdigit()])
        new = text[:at] + rng.choice([d for d in "0123456789" if d != text[at]]) + text[at + 1 :]
        if not re.match(r"-?0\d", new) and float(new) != number:
            return type(number)(new)


def change_in_file(rng, content, kind):
    """Put a typo into one number of a result file; False when there is none of this kind."""
    if kind in ("R", "R_task_known"):
        cells = [(i, j) for i, row in enumerate(content[kind] or []) for j, value in enumerate(row) if value is not None]
        if not cells:
            return False
        i, j = rng.choice(cells)
        content[kind][i][j] = typo(rng, content[kind][i][j])
        right = content[kind][i][j] * ON_GRID[content["experiment"]["dataset"]] / 100
        return abs(right - round(right)) > 1e-6 or content[kind][i][j] > 100  # another possible accuracy: see the next test
    holder = {"gradient_steps": content["gradient_steps"], "options": content["experiment"]["options"]}.get(kind)
    holder = content.get(kind.split(".")[0], {}) if holder is None else holder
    keys = range(len(holder)) if isinstance(holder, list) else [kind.split(".")[1]] if "." in kind else [*holder]
    keys = [key for key in keys if type(holder[key]) in (int, float)]
    if not keys:
        return False
    key = rng.choice(keys)
    holder[key] = typo(rng, holder[key])
    return True


IN_FILES = ("R", "R", "R", "R_task_known", "options", "options", "gradient_steps", "retained", "formula", "experiment.seed")
IN_FILES += ("data.train_rows_used", "hash")
IN_PAGES = ("value", "value", "text/markdown", "text/plain", "template", "run", "table", "table")


@pytest.mark.parametrize(("number", "kind"), [*enumerate(IN_FILES)])
def test_a_number_changed_in_a_result_file_is_named(tmp_path, number, kind):
    rng = random.Random(number)
    files = sorted(path.relative_to(STORE).as_posix() for path in STORE.rglob("seed*.json"))
    while True:
        place = rng.choice(files)
        content = json.loads((STORE / place).read_text())
        old = json.dumps(content)
        if "eval_split=val" in place and kind.startswith("R"):
            continue
        if kind == "hash":
            content["id"] = content["id"][:-8] + f"{int(content['id'][-8:], 16) ^ (1 << rng.randrange(32)):08x}"
            break
        if change_in_file(rng, content, kind):
            break
    assert json.dumps(content) != old
    one_file_store(tmp_path, place)
    assert problems(tmp_path) == []
    one_file_store(tmp_path, place, lambda file: file.update(content))
    found = problems(tmp_path)
    assert found and all(line.startswith(f"{place}: ") for line in found)


def change_in_notebook(rng, path, kind):
    """Put a typo into one number that a notebook shows through `say`."""
    book = json.loads(path.read_text())
    outputs = [output for cell in book["cells"] for output in cell.get("outputs", []) if "cmlib" in output.get("metadata", {})]
    while True:
        output = rng.choice(outputs)
        record = output["metadata"]["cmlib"]
        names = [name for name, value in record["values"].items() if type(value) in (int, float)]
        own = re.compile(traced.ON_PAGE.get(path.stem, ""))
        if kind == "value" and record["runs"] and (names := [name for name in names if not own.fullmatch(name)]):
            name = rng.choice(names)
            record["values"][name] = typo(rng, record["values"][name])
        elif kind in output["data"] or (kind == "template" and re.search(r"\d", record["text"])):
            holder, key = (record, "text") if kind == "template" else (output["data"], kind)
            digits = [match.start() for match in re.finditer(r"\d", holder[key])]
            at = rng.choice(digits or [None])
            if at is None:
                continue
            holder[key] = holder[key][:at] + str((int(holder[key][at]) + rng.randint(1, 9)) % 10) + holder[key][at + 1 :]
        elif kind == "run" and record["runs"]:
            at = rng.randrange(len(record["runs"]))
            record["runs"][at] = record["runs"][at][:-1] + ("0" if record["runs"][at][-1] != "0" else "1")
        else:
            continue
        break
    path.write_text(json.dumps(book, ensure_ascii=False))


@pytest.fixture(scope="module")
def committed_runs():
    return audit.check_store(STORE, audit.Audit())


def page_problems(folder, runs):
    """Problems of the pages of a folder, as a set of (file, problem)."""
    found = audit.Audit()
    found.repeats = audit.check_store(BOOK / "repeats", audit.Audit())
    traced.check_pages(folder, runs, found)
    return set(found.problems)


def change_in_table(rng, path):
    """Put a typo into one number of the generated parts of a page."""
    text = path.read_text()
    blocks = re.finditer(r"% begin \w+\n(.*?)% end", text, re.DOTALL)
    numbers = [block.start(1) + match.start() for block in blocks for match in re.finditer(r"\d", block[1])]
    at = rng.choice(numbers)
    path.write_text(text[:at] + str((int(text[at]) + rng.randint(1, 9)) % 10) + text[at + 1 :])


@pytest.mark.parametrize(("number", "kind"), [*enumerate(IN_PAGES)])
def test_a_number_changed_on_a_page_is_named(tmp_path, committed_runs, number, kind):
    rng = random.Random(100 + number)
    pages = (
        sorted(BOOK.glob("*.ipynb")) if kind != "table" else sorted(p for p in BOOK.glob("*.md") if "% begin " in p.read_text())
    )
    page = Path(shutil.copy(rng.choice(pages), tmp_path))
    before = page_problems(tmp_path, committed_runs)
    change_in_table(rng, page) if kind == "table" else change_in_notebook(rng, page, kind)
    found = page_problems(tmp_path, committed_runs) - before
    assert found and {where for where, _ in found} == {page.name}


def test_another_possible_accuracy_shows_where_a_page_uses_it(tmp_path, committed_runs):
    """One right answer less in the last row: the file is as good as before, but pages show another accuracy."""
    place = next(STORE.glob("digits/digits-til/naive/seed0-*.json")).relative_to(STORE)

    def change(content):
        content["R"][4][4] -= 100 / 72

    path = one_file_store(tmp_path, place, change)
    assert problems(tmp_path) == []
    changed = Store(tmp_path / "store").read(path)
    pages = [page for page in sorted(BOOK.glob("*.ipynb")) if changed.id in page.read_text()]
    assert pages
    for page in pages:
        shutil.copy(page, tmp_path / "book")
    found = page_problems(tmp_path / "book", {**committed_runs, changed.id: changed})
    assert any(where.endswith(".ipynb") and changed.id in what for where, what in found)


@pytest.mark.parametrize("number", range(5))
def test_another_possible_accuracy_is_caught_by_the_checksum(tmp_path, number):
    """One right answer more or less, which no other check can see, in any run; and files that came or went unseen."""
    shutil.copytree(STORE, tmp_path / "store")
    rng = random.Random(200 + number)
    path = rng.choice(sorted((tmp_path / "store").rglob("seed*.json")))
    path.write_text(re.sub(r"(\d)(\d)\.0\b|(\d\.\d)", lambda found: found[0][:-1] + "7", path.read_text(), count=1))
    gone, came = sorted((tmp_path / "store").rglob("*.npz"))[0], path.with_name("seed77-00000000.npz")
    gone.rename(came)
    found = dict(audit.checksum_problems(tmp_path / "store"))
    names = [one.relative_to(tmp_path / "store").as_posix() for one in (path, gone, came)]
    assert found.keys() == set(names)
    assert "was changed" in found[names[0]] and "not there" in found[names[1]] and "cmlib publish" in found[names[2]]


def test_publishing_writes_the_checksums(tmp_path):
    publish.publish(STORE / NAIVE, tmp_path / "results")
    lines = (tmp_path / "results" / "SHA256SUMS").read_text().splitlines()
    assert lines == [f"{hashlib.sha256((STORE / NAIVE).read_bytes()).hexdigest()}  {NAIVE}"]
    assert not [*audit.checksum_problems(tmp_path / "results")]
    (tmp_path / "results" / "SHA256SUMS").write_text("nonsense")
    with pytest.raises(cm.StoreError, match="SHA256SUMS cannot be read; take the published one again, or remove it"):
        [*audit.checksum_problems(tmp_path / "results")]


def test_publishing_another_run_does_not_hide_a_change(tmp_path):
    results = tmp_path / "results"
    publish.publish(STORE / NAIVE, results)
    (results / NAIVE).write_text((STORE / NAIVE).read_text().replace('"threads": 1', '"threads": 2'))
    other = next(path for path in sorted((STORE / "digits" / "digits-til" / "naive").glob("seed*.json")))
    with pytest.raises(cm.StoreError, match="was changed after it was published; put it right"):
        publish.publish(other, results)
    assert [*audit.checksum_problems(results)] and len([*results.rglob("seed*.json")]) == 1
    publish.publish(STORE / NAIVE, results, replace=True)  # the published one again
    content = json.loads((STORE / NAIVE).read_text())
    content["R"][0][0] = 0.0
    (results / NAIVE).write_text(json.dumps(content))
    with pytest.raises(cm.StoreError, match="was changed after it was published; put it right"):
        publish.publish(STORE / NAIVE, results)  # another outcome stays, but not unseen
    publish.publish(STORE / NAIVE, results, replace=True)
    publish.publish(other, results)
    assert not [*audit.checksum_problems(results)] and len([*results.rglob("seed*.json")]) == 2


# -- result files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("R", [[100.5]], "R is [[100.5]]; it must be rows of numbers from 0 to 100"),
        ("gradient_steps", [45, 45, "x", 45, 45], "gradient_steps is"),
        ("seconds_per_epoch", [[1.0, -0.1]], "one list of numbers from 0 on a task"),
        ("status", "finishd", "status is"),
        ("date", "2026-13-01", "YYYY-MM-DD"),
        ("machine.threads", 0, "machine.threads is 0; it must be a whole number from 1 on"),
        ("versions.torch", "", "it must be a version"),
        ("machine.commit", "xyz", "hexadecimal digits"),
        ("experiment.seed", True, "experiment.seed is true"),
        ("retained", {"exemplars": 1.5}, "whole numbers by name"),
        ("experiment.note", 1, "unknown entry 'experiment.note'"),
        ("formula", {"text": "P"}, "formula is"),
        ("R_task_known", None, "R_task_known must be null in TIL and a matrix in CIL"),
        ("R", [[100.0]], "R must be 5 by 5"),
        ("seconds_per_epoch", [[1.0] * 5] * 4, "seconds_per_epoch must hold [5, 5, 5, 5, 5] numbers"),
        ("gradient_steps", [45] * 4, "gradient_steps must hold 5 numbers"),
        ("status", "stopped: the loss is not finite (task 6, epoch 1)", "there are 5 tasks of 5 epochs"),
        ("data.rows", 1436, "data.rows is 1436; it must be 1437"),
        ("data.digest", "000000000000", "does not fit its hash"),
        ("experiment.method", "niave", "its experiment is impossible: unknown method 'niave'"),
        ("experiment.revision", 7, "revision 7 of naive does not exist yet"),
        ("id", "er-cil-digits-seed0-b781ac71", "does not begin with naive-cil-digits-seed0"),
    ],
)
def test_a_fault_of_a_file_is_said(tmp_path, path, value, words):
    def change(content):
        *parents, last = path.split(".")
        for name in parents:
            content = content[name]
        content[last] = value

    one_file_store(tmp_path, NAIVE, change)
    found = problems(tmp_path)
    assert any(line.startswith(f"{NAIVE}: ") and words in line for line in found), found


def test_missing_entries_and_broken_json_are_said(tmp_path):
    path = one_file_store(tmp_path, NAIVE, lambda content: content.pop("status"))
    assert problems(tmp_path) == [f"{NAIVE}: no entry 'status'"]
    path.write_text(path.read_text()[:100])
    assert len(problems(tmp_path)) == 1 and f"{NAIVE}: is not readable JSON" in problems(tmp_path)[0]
    path.write_text("[1]")
    assert problems(tmp_path) == [f"{NAIVE}: is no JSON object"]


def test_a_file_in_the_wrong_place_is_said(tmp_path):
    path = one_file_store(tmp_path, NAIVE)
    moved = path.parents[2] / "naive-epochs=10" / path.name
    moved.parent.mkdir()
    path.rename(moved)
    (line,) = problems(tmp_path)
    assert line.endswith(f"lies in the wrong place; it belongs to {NAIVE}")


def test_a_profile_changed_by_hand_is_said(tmp_path):
    """The hash leaves the profile out; the place does not."""
    one_file_store(tmp_path, NAIVE, lambda content: content["experiment"].update(profile="mini"))
    assert any("it belongs to mini/digits-cil/naive-" in line for line in problems(tmp_path))


def test_runs_of_an_older_revision_are_stale(tmp_path, monkeypatch):
    one_file_store(tmp_path, NAIVE)
    monkeypatch.setattr(Naive, "revision", 3)
    assert problems(tmp_path) == [f"{NAIVE}: stale: made by revision 1 of naive, which is now at 3; make it anew"]


def test_accuracies_that_contradict_each_other_are_said(tmp_path):
    def change(content):
        content["R"][0][0] -= 100 / 72
        content["R"][2][1] = content["R_task_known"][2][1] + 100 / 72

    def holes(content):
        content["R"][1][3] = 50.0
        content["R"][3][2] = None

    one_file_store(tmp_path, NAIVE, change)
    found = "\n".join(problems(tmp_path))
    assert "there is only one task" in found and "after task 3 on task 2:" in found and "that cannot be" in found
    one_file_store(tmp_path, NAIVE, holes)
    found = "\n".join(problems(tmp_path))
    assert "R after task 2 on task 4 is 50.0; null is expected" in found
    assert "R after task 4 on task 3 is None; a number is expected" in found


def test_a_run_that_stopped_ends_where_it_says(tmp_path):
    (path,) = [one for one in STORE.joinpath(STOPPED).glob("*.json") if "stopped" in one.read_text()]
    place = path.relative_to(STORE).as_posix()
    one_file_store(tmp_path, place)
    assert problems(tmp_path) == []
    one_file_store(tmp_path, place, lambda content: content.update(status=content["status"].replace("task 4", "task 3")))
    found = "\n".join(problems(tmp_path))
    assert "R after task 3 on task 1" in found and "seconds_per_epoch must hold [5, 5, 2] numbers" in found


def test_data_that_differ_between_runs_are_said(tmp_path):
    places = [path.relative_to(STORE).as_posix() for path in sorted(STORE.glob("mini/cifar10-til/*/*.json"))[:3]]
    for place in places:
        one_file_store(tmp_path, place)
    assert problems(tmp_path) == []
    one_file_store(tmp_path, places[1], lambda content: content["data"].update(rows=49_000))
    (line,) = problems(tmp_path)
    assert line.startswith(f"{places[1]}: its data") and "49000" in line


VARIANTS = [
    ("til", "naive", {"batch_norm": "stats"}),
    ("cil", "cumulative", {}),
    ("cil", "cumulative", {"batch_split": "each"}),
    ("til", "cm", {}),
    ("cil", "cm", {"merging": "mlp", "centroids_merging": "offset", "embedding_size": 16}),
    ("cil", "cm", {"batch_split": "half"}),
    ("cil", "cm", {"centroids_merging": "own", "class_order": "shuffled"}),
    ("til", "er", {"batch_norm": "private"}),
    ("cil", "er", {"memory_size": 33}),
    ("cil", "er", {"memory_kind": "per_task", "memory_size": 70}),
    ("cil", "er", {"batch_split": "equal_steps", "head": "mlp"}),
    ("cil", "ssil", {}),
    ("til", "gem", {"exemplars": "first", "memory_size": 25}),
    ("cil", "gem", {"memory_size": 24}),
    ("til", "ewc", {"batch_norm": "private"}),
    ("cil", "ewc", {"head": "mlp"}),
    ("til", "oewc", {"batch_norm": "stats"}),
    ("til", "emr", {"batch_norm": "private"}),
    ("cil", "cope", {}),
]
LISTED = {method for _, method, _ in VARIANTS}
VARIANTS += [  # a method added later is counted as it is by default
    (kind, name, {}) for name, cls in METHODS.items() for kind in cls.scenarios if name not in LISTED and kind in cls.keeps
]


@pytest.mark.parametrize(("scenario", "method", "options"), VARIANTS)
def test_steps_and_memory_follow_from_the_experiment(scenario, method, options):
    """Counted from the experiment as the methods themselves do it: batches drawn one by one, tensors really kept; untrained."""
    kinds = cm.methods.cm.CentroidsMatching.options["merging"].choices if method == "cm" else ()
    options = {name: value if value != "offset" else kinds[-1] for name, value in options.items()}
    experiment = cm.Experiment("digits", scenario, method, 2, profile="smoke", **options)
    made, sizes = fresh(experiment, datasets.load("digits")), audit.sizes_of(experiment)
    for task in made.scenario.tasks:
        made.begin_task(task)
        drawn = sum(1 for _ in made.batches(task, 0))
        assert costs.stream(experiment, sizes.rows, task.index)[2] == drawn
        made.eval()
        made.end_task(task)
        assert len(task.y) == sizes.rows[task.index] and len(task.test_y) == sizes.test[task.index]
    kept = {name: sum(one.numel() for one in tensors) for name, tensors in made.retained().items()}
    count = audit.Kept(experiment, sizes, experiment.n_tasks, experiment.n_tasks)
    wanted = count.scalars()
    if method == "cope":  # prototypes begin with the first step
        kept["prototypes"] = len(made.prototypes) * made.prototypes.shape[1]
    assert wanted == kept
    assert count.formula() == (dict(zip(("text", "scalars"), made.formula())) if made.formula() else {})


def test_every_method_of_cmlib_declares_what_it_keeps():
    for cls in METHODS.values():
        assert set(cls.scenarios) <= set(cls.keeps) or cls.own


def test_classes_of_the_stand_ins():
    """Labels without images: as many images a class as the data sets have."""
    sizes = audit.sizes_of(cm.Experiment("cifar100", "til", "naive", 1))
    assert sizes.rows == [5000] * 10 and sizes.test == (1000,) * 10 and sizes.image == 3072
    sizes = audit.sizes_of(cm.Experiment("tiny-imagenet", "cil", "cm", 1, eval_split="val"))
    assert sizes.rows == [20 * 400 - 100] * 10 and sizes.support == (100,) * 10 and sizes.test == (2000,) * 10
    assert sizes.image == 64 * 64 * 3


# -- pages ----------------------------------------------------------------------------------------------------------------

R = [[90.0, None, None], [60.0, 80.0, None], [30.0, 50.0, 100.0]]


def test_metrics_by_hand():
    values = traced.metrics_of(R)
    assert values["accuracy"] == pytest.approx(60) and values["learning_accuracy"] == pytest.approx(90)
    assert values["accuracy_old"] == pytest.approx(40)
    assert values["bwt"] == pytest.approx((-30 - 60 - 30) / 3) and values["bwt_final"] == pytest.approx((-60 - 30) / 2)
    assert traced.metrics_of([[90.0, None], [None, None]]) == {}


def page_with(folder, *outputs, name="07_test.ipynb"):
    path = folder / "book" / name
    path.parent.mkdir(exist_ok=True)
    found = [{"output_type": "execute_result", "data": one.data, "metadata": one.metadata} for one in outputs]
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": "", "outputs": found}]}))


@pytest.fixture
def two_seeds(tmp_path):
    """A small store with two seeds of Naive, and these runs."""
    places = [path.relative_to(STORE).as_posix() for path in sorted(STORE.glob("digits/digits-cil/naive/seed[01]-*.json"))]
    for place in places:
        one_file_store(tmp_path, place)
    return [committed().read(STORE / place) for place in places]


def test_values_that_follow_from_the_runs_pass(tmp_path, two_seeds):
    last = [run.R[-1] for run in two_seeds]
    accuracy = [sum(row) / 5 for row in last]
    mean = sum(accuracy) / 2
    spread = math.sqrt(sum((one - mean) ** 2 for one in accuracy))
    values = {
        "acc": accuracy[0],
        "mean": mean,
        "spread": spread,
        "cell": last[1][4],
        "lost": two_seeds[0].R[0][0] - last[0][0],
        "told": sum(two_seeds[0].R_task_known[-1]) / 5,
        "lr": 0.01,
        "n": 2,
        "none": math.nan,
    }
    fields = " ".join(f"{{{name}:.3g}}" for name in values)
    page_with(tmp_path, cm.say(f"Accuracy {accuracy[1]:.2f}, {mean:.1f} ± {spread:.1f}: {fields}", two_seeds, **values))
    assert problems(tmp_path) == []


@pytest.mark.parametrize("shift", [1e-6, 0.01, 3.0])
def test_a_value_that_no_run_gives_is_said(tmp_path, two_seeds, shift, monkeypatch):
    page_with(tmp_path, cm.say("{acc:.1f} %", two_seeds, acc=two_seeds[0].accuracy + shift))
    (line,) = problems(tmp_path)
    assert line.startswith("07_test.ipynb: cell 0: acc = ") and "naive-cil-digits-seed0-b781ac71 and 1 more" in line
    monkeypatch.setattr(traced, "ON_PAGE", {"07_test": "acc"})
    assert problems(tmp_path) == []


def test_a_run_that_a_page_makes_anew_may_be_that_of_another_cpu(tmp_path, two_seeds):
    again = sorted((BOOK / "repeats/digits/digits-cil/naive").glob("seed1-*.json"))[0]
    accuracy = committed().read(again).accuracy
    assert abs(accuracy - two_seeds[1].accuracy) > 0.1
    page_with(tmp_path, cm.say("{acc:.1f} %", two_seeds, acc=accuracy))
    assert len(problems(tmp_path)) == 1
    place = tmp_path / "book" / "repeats" / again.relative_to(BOOK / "repeats")
    place.parent.mkdir(parents=True)
    place.write_bytes(again.read_bytes())
    write_checksums(tmp_path / "book" / "repeats")
    assert problems(tmp_path) == []
    page_with(tmp_path, cm.say("{acc:.1f} %", two_seeds[:1], acc=accuracy))
    assert len(problems(tmp_path)) == 1


def test_a_number_written_into_a_text_must_follow_too(tmp_path, two_seeds):
    page_with(tmp_path, cm.say("It ends at 21.37 %.", two_seeds))
    (line,) = problems(tmp_path)
    assert "the number 21.37 follows from none of the runs" in line
    page_with(tmp_path, cm.say("The paper has 67.00 ± 4.98.", two_seeds))
    assert problems(tmp_path) == []


def test_unknown_runs_and_spoiled_metadata_are_said(tmp_path, two_seeds):
    page_with(tmp_path, cm.say("nothing", "naive-cil-digits-seed0-00000000"))
    assert problems(tmp_path) == [
        "07_test.ipynb: cell 0: names the run naive-cil-digits-seed0-00000000, which the store does not hold"
    ]
    spoiled = cm.say("nothing")
    spoiled.metadata = {"cmlib": {"text": "nothing"}}
    page_with(tmp_path, spoiled)
    assert problems(tmp_path) == ["07_test.ipynb: cell 0: metadata of a shown text must hold text, values and runs"]
    (tmp_path / "book" / "07_test.ipynb").write_text("no")
    assert problems(tmp_path) == ["07_test.ipynb: is not a readable notebook (JSONDecodeError)"]


def test_run_ids_anywhere_on_a_page_must_exist(tmp_path, two_seeds):
    path = tmp_path / "book" / "more.md"
    path.write_text(f"See {two_seeds[0].id} and `cm-til-digits-seed0-12345678`.")
    assert problems(tmp_path) == ["more.md: names the run cm-til-digits-seed0-12345678, which the store does not hold"]


def test_a_table_nobody_makes_is_said(tmp_path, two_seeds):
    (tmp_path / "book" / "more.md").write_text("% begin nonsense\n\n% end nonsense\n")
    (line,) = problems(tmp_path)
    assert "asks for the table 'nonsense'" in line


# -- the command ----------------------------------------------------------------------------------------------------------


def test_what_is_printed_and_the_exit_code(tmp_path, capsys):
    one_file_store(tmp_path, NAIVE)
    assert traced.main(tmp_path / "store", tmp_path / "book") == 0
    assert capsys.readouterr().out == "checked: 1 result files; no problems\n"
    one_file_store(tmp_path, NAIVE, lambda content: content.update(date="today"))
    assert traced.main(tmp_path / "store", tmp_path / "book") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f'{NAIVE}: date is "today"; it must be YYYY-MM-DD', "checked: 1 result files; 1 problem"]
    assert traced.main(tmp_path / "store", tmp_path / "book", as_json=True) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["checked"] == {"result files": 1} and [one["file"] for one in printed["problems"]] == [NAIVE]


def test_folders_that_are_not_there(tmp_path):
    with pytest.raises(cm.StoreError, match="there is no store"):
        traced.audit(tmp_path / "none", BOOK)
    with pytest.raises(cm.OptionError, match=r"there is no folder .* pages"):
        traced.audit(STORE, tmp_path / "none")


# -- export ---------------------------------------------------------------------------------------------------------------


def test_a_row_a_run():
    rows = list(csv.DictReader(io.StringIO(exports.export(STORE))))
    files = {content["id"]: content for path in STORE.rglob("seed*.json") if (content := json.loads(path.read_text()))}
    assert [row["id"] for row in rows] == list(dict.fromkeys(row["id"] for row in rows)) and {r["id"] for r in rows} == set(files)
    for row in rows:
        content = files[row["id"]]
        for name, value in content["experiment"]["options"].items():
            assert row[name] == ("" if value is None else str(value))
        assert (row["dataset"], row["seed"], row["status"]) == (
            content["experiment"]["dataset"],
            str(content["experiment"]["seed"]),
            content["status"],
        )
        if content["status"] != "finished":
            assert row["accuracy"] == row["bwt_final"] == row["forgetting"] == row["incremental_accuracy"] == ""
            continue
        last, n = content["R"][-1], len(content["R"])
        assert float(row["accuracy"]) == pytest.approx(sum(last) / n)
        lost = [last[j] - content["R"][j][j] for j in range(n - 1)]
        assert float(row["bwt_final"]) == pytest.approx(sum(lost) / len(lost))
        fallen = [max(earlier[j] for earlier in content["R"][j : n - 1]) - last[j] for j in range(n - 1)]
        assert float(row["forgetting"]) == pytest.approx(sum(fallen) / len(fallen))
        moments = [sum(values[: i + 1]) / (i + 1) for i, values in enumerate(content["R"])]
        assert float(row["incremental_accuracy"]) == pytest.approx(sum(moments) / n)
        assert int(row["steps"]) == sum(content["gradient_steps"]) and int(row["retained"]) == sum(content["retained"].values())
        assert float(row["seconds"]) == pytest.approx(sum(s for task in content["seconds_per_epoch"] for s in task))
        assert row["digest"] == content["data"]["digest"] and row["version_torch"] == content["versions"]["torch"]
    assert any(row["accuracy"] == "" for row in rows)  # a run that stopped


def test_of_a_single_task_there_is_no_forgetting():
    row = exports.run_row(cm.run(cm.Experiment("digits", "til", "naive", 0, "smoke", n_tasks=1, train_per_class=16)))
    assert row["forgetting"] is row["bwt_final"] is None and row["incremental_accuracy"] == row["accuracy"]


def test_a_row_a_cell(tmp_path):
    one_file_store(tmp_path, NAIVE)
    content = json.loads((STORE / NAIVE).read_text())
    rows = list(csv.DictReader(io.StringIO(exports.export(tmp_path / "store", cells=True))))
    assert len(rows) == 2 * 15
    for row in rows:
        matrix = content["R_task_known"] if row["task_known"] == "True" else content["R"]
        assert float(row["accuracy"]) == matrix[int(row["after_task"]) - 1][int(row["on_task"]) - 1]
    assert len({(row["after_task"], row["on_task"], row["task_known"]) for row in rows}) == 30


def test_in_til_the_task_is_known():
    table = pandas.read_csv(io.StringIO(exports.export(STORE, cells=True)))
    assert table[table.scenario == "til"].task_known.all()
    assert table[table.scenario == "cil"].task_known.mean() == 0.5


def test_parquet_holds_the_same(tmp_path):
    line = exports.export(STORE, tmp_path / "runs.parquet")
    table = pandas.read_parquet(tmp_path / "runs.parquet")
    assert line == f"{tmp_path / 'runs.parquet'}: {len(table)} rows, {len(table)} runs\n"
    exports.export(STORE, tmp_path / "runs.csv")
    assert (tmp_path / "runs.csv").read_text() == table.to_csv(index=False, lineterminator="\n") == exports.export(STORE)
    assert str(table.dtypes["train_per_class"]) == "Int64" and str(table.dtypes["stratified"]) == "boolean"


def test_export_says_what_is_wrong(tmp_path, monkeypatch):
    with pytest.raises(cm.OptionError, match="unknown format 'excel'; allowed: csv, parquet"):
        exports.export(STORE, tmp_path / "x", "excel")
    with pytest.raises(cm.OptionError, match="needs --out FILE"):
        exports.export(STORE, None, "parquet")
    with pytest.raises(cm.StoreError, match="holds no result files"):
        exports.export(tmp_path)
    path = one_file_store(tmp_path, NAIVE)
    path.write_text(path.read_text()[:50])
    with pytest.raises(cm.StoreError, match=f"{path.name} is not a result file of cmlib .is not readable JSON"):
        exports.export(tmp_path / "store")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(cm.StoreError, match="No space left"):
        exports.export(STORE, tmp_path / "out" / "runs.csv")
    assert not list((tmp_path / "out").iterdir())
