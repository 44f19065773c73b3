"""The store: what a look-up answers, what a data set is called, and what becomes of damaged files."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from handmade import completed
from PIL import Image

import cmlib as cm
from cmlib import cli, datasets, engine, imagefiles, runfile
from cmlib.checkpoint import Checkpoint, unsealed
from cmlib.datasets import KNOWN
from cmlib.errors import DataError, OptionError, StoreError
from cmlib.reproduction import audit, board, publish, report, snapshots, sweep, tables
from cmlib.store import Run, Store, committed, one_copy
from cmlib.teaching import traced

TINY = {"profile": "smoke", "n_tasks": 2, "epochs": 2, "train_per_class": 4, "batch_size": 4}


def save(store, experiment, accuracy, **data):
    """A run made by hand whose accuracies are all the same; data: what its data were."""
    n = experiment.n_tasks
    run = Run("", experiment.to_dict(), [[accuracy] * n] * n, None, [[1.0]] * n, [], {}, data=data)
    run = completed(run)
    store.save(run, experiment, run.data["digest"])
    return run


def arrays(seed, classes=4, each=6):
    """Random grey images 8x8 of some classes, as a data set."""
    x = np.random.default_rng(seed).integers(0, 256, (classes * each, 8, 8), dtype=np.uint8)
    return datasets.load((x, np.arange(classes * each) % classes))


def write_folder(folder, seed=0, classes=4, each=6):
    """A folder of random pictures 8x8, one folder a class."""
    rng = np.random.default_rng(seed)
    for label in range(classes):
        (folder / f"class{label}").mkdir(parents=True, exist_ok=True)
        for k in range(each):
            Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"class{label}" / f"{k}.png")
    return folder


def naive_accuracy(profile, store):
    """The row of table 1 for Naive in TIL on the profile's first data set."""
    rows = tables.table(1, profile, [store]).rows
    return next(row for row in rows if (row.scenario, row.method, row.metric) == ("til", "naive", "accuracy"))


def error_of(kind, call):
    """The text of an error, which must be one line."""
    with pytest.raises(kind) as caught:
        call()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
    return str(caught.value)


# -- the run that was asked for, and no other -----------------------------------------------------------------------------


def test_load_or_run_returns_the_run_on_the_data_given(tmp_path, monkeypatch):
    experiment, a, b, c = cm.Experiment("arrays", method="naive", **TINY), arrays(1), arrays(2), arrays(3)
    for data, accuracy in ((a, 25.0), (b, 50.0)):
        save(Store(tmp_path), experiment, accuracy, digest=data.digest)
    assert cm.load_or_run(experiment, tmp_path, data=a).accuracy == 25.0
    assert cm.load_or_run(experiment, tmp_path, data=b).accuracy == 50.0
    asked = []
    monkeypatch.setattr(engine, "run", lambda *arguments, **_: asked.append(arguments[1].digest))
    cm.load_or_run(experiment, tmp_path, data=c)
    assert asked == [c.digest], "a run on other data must be made"


def test_data_under_another_name_are_not_the_data_set(tmp_path, monkeypatch):
    """A run of `digits` that was made on arrays is found with these arrays and never as a run on the digits."""
    store, experiment, other = Store(tmp_path), cm.Experiment("digits", "til", "naive"), arrays(1)
    save(store, experiment, 25.0, digest=other.digest, rows=len(other.y_train))
    permuted = save(store, experiment.but(seed=1), 30.0, digest="0" * 12)  # as many images as the digits
    assert [run.accuracy for run in store.find(experiment, other.digest)] == [25.0]
    assert store.find(experiment) == [] and store.find(experiment, any_seed=True) == []
    assert store.find(experiment.but(seed=1)) == [] and permuted.other_data == "other data"
    row = naive_accuracy("digits", store)
    assert (row.n, row.verdict) == (0, "not run yet")
    assert row.note == "1 more on a part of the data, not counted; 1 more on other data, not counted"
    save(store, experiment, 90.0)
    assert [run.accuracy for run in store.find(experiment, any_seed=True)] == [90.0]


def test_a_folder_whose_images_changed_is_run_again(tmp_path, monkeypatch):
    folder, store = write_folder(tmp_path / "photos"), Store(tmp_path / "runs")
    experiment = cm.Experiment(str(folder), method="naive", **TINY)
    save(store, experiment, 25.0, digest=datasets.load(folder).digest)
    assert cm.load_or_run(experiment, store.folder).accuracy == 25.0 and len(store.find(experiment)) == 1
    write_folder(folder, seed=1)
    monkeypatch.setattr(engine, "run", lambda *arguments, **_: arguments[1].digest)
    assert cm.load_or_run(experiment, store.folder) == datasets.load(folder).digest
    assert store.find(experiment) == [] and store.find(experiment, any_seed=True) == []


def test_arrays_cannot_be_looked_up_without_their_digest(tmp_path):
    experiment = cm.Experiment("arrays", method="naive", **TINY)
    assert Store(tmp_path).find(experiment) == []
    save(Store(tmp_path), experiment, 25.0, digest="a" * 12)
    assert "which data are 'arrays'? pass their digest" in error_of(OptionError, lambda: Store(tmp_path).find(experiment))
    assert "data=(x, y)" in error_of(OptionError, lambda: cm.load_or_run(experiment, tmp_path))


PART = {"digest": "b" * 12, "rows": 25_000, "train_rows_used": 5_000}


def test_a_sweep_makes_what_a_table_misses(tmp_path, monkeypatch):
    """After a run on half of the data: the table misses it, so does the preview, so does the sweep on the whole data."""
    store, whole = Store(tmp_path), KNOWN["cifar10"].digest
    experiment = cm.Experiment("cifar10", "til", "naive", profile="mini")
    save(store, experiment, 25.0, **PART)
    monkeypatch.setattr(sweep, "committed", lambda: Store(tmp_path / "none"))
    row = naive_accuracy("mini", store)
    assert (row.n, row.note) == (0, "1 more on a part of the data, not counted")
    assert sweep.preview([experiment], store, 1).startswith("to make   naive til cifar10 seed 0")
    times = sweep.Times([store])
    for digest, waiting in ((whole, 1), (PART["digest"], 0)):
        item = sweep.Item(experiment, store.path(experiment, digest), digest)
        assert len(sweep.Sweep([item], store, None, 1, "").waiting) == waiting
    assert not any(map(any, (times.alike, times.others))), "half of the data takes half of the time"


def test_boards_count_and_name_the_data(tmp_path):
    store = Store(tmp_path)
    save(store, cm.Experiment("cifar10", "til", "naive", profile="mini"), 25.0, **PART)
    rows = [line for line in board.coverage(store).splitlines() if line.startswith("| `table1`")]
    assert " | 0 of " in rows[0] and "1 of" not in rows[0].replace("1 of 1", "")
    assert "### `mini`: cifar10, a part of the data (25,000 of 50,000 training images), TIL" in board.runs_board(store)
    text = report.cifar10_table(report.cifar10_rows([store]))
    assert "not run yet" in text and "25.00" not in text


def test_snapshots_are_those_of_the_data(tmp_path):
    store, experiment = Store(tmp_path), cm.Experiment("cifar10", "til", "cm", profile="mini")
    run = save(store, experiment, 25.0, **PART)
    store.path(experiment, run.data["digest"]).with_suffix(".task1.npz").write_bytes(snapshots.pack([]))
    assert snapshots.find(experiment, "task1", [store]) is None


def test_copies_of_a_data_set_are_not_mixed(tmp_path):
    """The copy with more runs counts, the committed one among equals."""
    store, experiment = Store(tmp_path), cm.Experiment("cifar10", "til", "naive", profile="mini")
    for seed, digest in enumerate(["a" * 12, "c" * 12, "c" * 12]):
        save(store, experiment.but(seed=seed), 10.0 + seed, digest=digest)
    assert [run.seed for run in store.find(experiment, any_seed=True)] == [1, 2]
    assert [run.seed for run in store.find(experiment)] == [0], "alone it is the data set"
    for seed in range(3, 5):
        save(store, experiment.but(seed=seed), 20.0)
    mine, others = one_copy(store)
    assert [run.seed for run in mine] == [3, 4] and len(others) == 3


def test_a_file_in_the_place_of_another_is_not_returned(tmp_path):
    store, digest = Store(tmp_path), KNOWN["digits"].digest
    one = cm.Experiment("digits", "til", "naive")
    save(store, one, 25.0)
    other = one.but(lr=0.02)
    place = store.path(other, digest)
    place.parent.mkdir(parents=True)
    shutil.copy(store.path(one, digest), place)
    text = error_of(StoreError, lambda: cm.run(other, store=store))
    assert str(place) in text and "holds another run than its name says" in text and store.find(other) == []
    assert store.load(one, digest).accuracy == 25.0


def test_runs_on_other_data_are_another_group_of_the_audit(tmp_path):
    runs = [save(Store(tmp_path), cm.Experiment("digits", "til", "naive"), 25.0, digest=one) for one in ("a" * 12, "b" * 12)]
    assert runs[0].setting != runs[1].setting


# -- one experiment, one name ---------------------------------------------------------------------------------------------


def test_names_of_data_sets_win_over_folders(tmp_path, monkeypatch):
    usual = {name: cm.Experiment(name).hash("d") for name in (*datasets.names(), "arrays")}
    for name in usual:
        write_folder(tmp_path / name)
    (path, *_) = sorted(committed().folder.rglob("digits-til/cm/seed0-*.json"))
    monkeypatch.chdir(tmp_path)
    assert {name: cm.Experiment(name).hash("d") for name in usual} == usual
    assert datasets.load("digits").digest == KNOWN["digits"].digest
    assert publish.place_of(path, committed()) == path
    for folder in ("./digits", "digits/", Path("digits"), tmp_path / "digits"):
        experiment = cm.Experiment(folder)
        assert (experiment.dataset, experiment.source, experiment.profile) == ("folder-digits", str(tmp_path / "digits"), "paper")
        assert datasets.load(folder).name == "folder-digits"
    assert cm.Experiment("./arrays").dataset == "folder-arrays"
    assert len(committed().find(cm.Experiment("digits", "til", "cm", profile="digits"))) == 1


NAMES = [
    ("My Photos", "my-photos"),
    ("a\nb", "a-b"),
    ("pets[1]*?", "pets-1"),
    ("x" * 250, "x" * 40),
    ("日本", "images"),
    ("Müller", "muller"),
    ("***", "images"),
    ("con", "folder-con"),
    ("Lpt1", "folder-lpt1"),
    ("cifar10", "folder-cifar10"),
    ("a.b_c", "a-b-c"),
    ("..x..", "x"),
    ("~", "images"),
]


@pytest.mark.parametrize(("given", "name"), NAMES, ids=[name[:12] for _, name in NAMES])
def test_names_of_folders_are_cleaned(tmp_path, monkeypatch, given, name):
    (tmp_path / given).mkdir()
    experiment = cm.Experiment(str(tmp_path / given), "cil", "naive", **TINY)
    assert experiment.dataset == name
    store = Store(tmp_path / "runs")
    run = save(store, experiment, 25.0, digest="a" * 12)
    assert run.id == f"naive-cil-{name}-seed0-{experiment.hash('a' * 12)}"
    assert store.path(experiment, "a" * 12).parts[-3] == f"{name}-cil"
    assert [one.id for one in store.find(experiment, "a" * 12)] == [run.id]
    monkeypatch.chdir(tmp_path / given)
    assert cm.Experiment(".", "cil", "naive", **TINY) == experiment and cm.Experiment("./").dataset == name


def test_a_store_and_a_method_may_have_odd_names(tmp_path, monkeypatch):
    """Characters that mean something in patterns of file names mean nothing in look-ups."""
    monkeypatch.setitem(cm.METHODS, "na[i]*ve", cm.METHODS["naive"])
    store = Store(tmp_path / "runs[a-z]*")
    for name in ("na[i]*ve", "naive"):
        save(store, cm.Experiment("digits", "til", name, **TINY), 25.0)
    assert [run.experiment["method"] for run in store.find(cm.Experiment("digits", "til", "na[i]*ve", **TINY))] == ["na[i]*ve"]
    path = tmp_path / "one[1].json"
    shutil.copy(next(committed().folder.rglob("digits-til/naive/seed0-*.json")), path)
    path.with_name("one[1].merged.npz").write_bytes(b"pictures")
    ((place,), _) = publish.publish(path, tmp_path / "results")
    assert place.is_file()


def test_the_home_folder_and_folders_that_are_not_there(tmp_path, monkeypatch):
    write_folder(tmp_path / "photos")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cm.Experiment("~/photos") == cm.Experiment(str(tmp_path / "photos"))
    assert "no folder" in error_of(DataError, lambda: cm.Experiment("~/none"))
    assert "unknown data set" in error_of(OptionError, lambda: cm.Experiment("cifar11"))
    assert "unknown data set 'a b'" in error_of(OptionError, lambda: cm.Experiment("a\nb"))
    assert "File name too long" in error_of(DataError, lambda: cm.Experiment("x" * 300))
    assert "no folder" in error_of(DataError, lambda: cm.Experiment("~nobody-of-this-name/x"))
    (tmp_path / "file").write_text("x")
    assert "is a file" in error_of(DataError, lambda: cm.Experiment(str(tmp_path / "file")))


def test_a_folder_by_any_path_is_one_experiment_and_its_path_enters_no_file(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "secret" / "Photos")
    experiment = cm.Experiment(str(folder), "cil", "naive", **TINY)
    run = cm.run(experiment, store=tmp_path / "runs")
    (path,) = (tmp_path / "runs").rglob("seed*.json")
    assert not re.search("secret|Photos", path.read_text() + str(path.relative_to(tmp_path)))
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr(engine, "train", None)  # it must not train again
    for given in ("Photos", "./Photos/", Path("../secret/Photos"), folder):
        again = cm.Experiment(given, "cil", "naive", **TINY)
        assert again == experiment and hash(again) == hash(experiment)
        assert cm.run(again, store=tmp_path / "runs") == run == cm.load_or_run(again, tmp_path / "runs")
    there = pickle.loads(pickle.dumps(cm.Experiment("Photos")))
    monkeypatch.chdir(tmp_path)
    assert there.source == str(folder) and there.but(seed=1).source == str(folder)
    shutil.rmtree(folder)
    known = cm.Experiment.of(json.loads(path.read_text())["experiment"])
    assert (
        known.to_dict() == experiment.to_dict()
        and known.hash(run.data["digest"]) == run.id[-8:]
        and known.but(seed=1).dataset == "photos"
    )
    assert pickle.loads(pickle.dumps(known)) == known
    assert "keeps only a folder's name" in error_of(OptionError, lambda: cm.run(known))
    (tmp_path / "book").mkdir()
    ((place,), _) = publish.publish(path, tmp_path / "results")
    assert place.relative_to(tmp_path / "results") == path.relative_to(tmp_path / "runs") and "secret" not in place.read_text()
    assert traced.audit(tmp_path / "results", tmp_path / "book").problems == []


# -- damaged result files -------------------------------------------------------------------------------------------------

GOOD = next(committed().folder.rglob("digits/digits-cil/naive/seed0-*.json"))


def edit(change):
    """Damage done to the content."""

    def harm(raw):
        content = json.loads(raw)
        change(content)
        return json.dumps(content).encode()

    return harm


def put(path, value):
    def change(content):
        *parents, last = path.split(".")
        for name in parents:
            content = content[name]
        if value is ...:
            del content[last]
        else:
            content[last] = value

    return edit(change)


R = json.loads(GOOD.read_text())["R"]
BAD = {
    "empty": (lambda raw: b"", "not readable JSON"),
    "cut": (lambda raw: raw[:700], "not readable JSON"),
    "zeros": (lambda raw: raw[:300] + bytes(300) + raw[600:], "not readable JSON"),
    "not utf-8": (lambda raw: raw.replace(b'"cpu"', b'"\xff\xfe"', 1), "not UTF-8 text, from byte"),
    "utf-16": (lambda raw: raw.decode().encode("utf-16"), "not UTF-8 text"),
    "a list": (lambda raw: b"[]", "no JSON object"),
    "a number": (lambda raw: b"7", "no JSON object"),
    "an empty object": (lambda raw: b"{}", "no entry 'id'"),
    "too deep": (lambda raw: b"[" * 100_000, "nested too deeply"),
    "NaN": (lambda raw: raw.replace(str(R[0][0]).encode(), b"NaN", 1), "rows of numbers from 0 to 100"),
    "infinity": (lambda raw: raw.replace(str(R[0][0]).encode(), b"1e999", 1), "rows of numbers from 0 to 100"),
    "a name twice": (lambda raw: raw.replace(b'"R":', b'"R": null, "R":', 1), "holds 'R' twice"),
    "an option twice": (lambda raw: raw.replace(b'"lr":', b'"lr": 1, "lr":', 1), "holds 'lr' twice"),
    "R null": (put("R", None), "R is null"),
    "R text": (put("R", "good"), 'R is "good"'),
    "R holds text": (put("R", [["95"] * 5] * 5), "rows of numbers"),
    "R holds true": (put("R", [[True] * 5] * 5), "rows of numbers"),
    "R ragged": (put("R", [row[: i + 1] for i, row in enumerate(R)]), "R must be 5 by 5"),
    "R 1x1": (put("R", [[1.0]]), "R must be 5 by 5"),
    "R empty": (put("R", []), "R must be 5 by 5"),
    "R with a hole": (put("R", [*R[:4], [None, *R[4][1:]]]), "R after task 5 on task 1 is None; a number is expected"),
    "R above the diagonal": (put("R", [[50.0] * 5, *R[1:]]), "R after task 1 on task 2 is 50.0; null is expected"),
    "over 100": (put("R", [[100.5, *R[0][1:]], *R[1:]]), "rows of numbers from 0 to 100"),
    "below 0": (put("R", [[-0.5, *R[0][1:]], *R[1:]]), "rows of numbers from 0 to 100"),
    "huge": (put("R", [[10**400, *R[0][1:]], *R[1:]]), "rows of numbers from 0 to 100"),
    "no R_task_known in CIL": (put("R_task_known", None), "null in TIL and a matrix in CIL"),
    "R_task_known 1x1": (put("R_task_known", [[1.0]]), "R_task_known must be 5 by 5"),
    "empty experiment": (put("experiment", {}), "no entry 'experiment.dataset'"),
    "experiment null": (put("experiment", None), "unknown entry 'experiment'"),
    "no options": (put("experiment.options", {}), "n_tasks and epochs among them"),
    "n_tasks text": (put("experiment.options.n_tasks", "5"), "n_tasks and epochs among them"),
    "n_tasks 0": (put("experiment.options.n_tasks", 0), "n_tasks and epochs among them"),
    "options nested": (put("experiment.options.lr", [1]), "plain values by name"),
    "no method": (put("experiment.method", ...), "no entry 'experiment.method'"),
    "scenario unknown": (put("experiment.scenario", "dil"), "til or cil"),
    "seed text": (put("experiment.seed", "0"), "experiment.seed is"),
    "seed huge": (put("experiment.seed", 10**30), "experiment.seed is"),
    "a name of two lines": (put("a\nb", 1), r"unknown entry 'a\nb'"),
    "a path as data set": (put("experiment.dataset", "/media/me/photos"), "a data set's name, no path"),
    "no status": (put("status", ...), "no entry 'status'"),
    "stopped after the end": (put("status", "stopped: the loss is not finite (task 9, epoch 1)"), "there are 5 tasks"),
    "stopped, but measured": (put("status", "stopped: the loss is not finite (task 2, epoch 1)"), "null is expected"),
    "no seconds": (put("seconds_per_epoch", []), "seconds_per_epoch must hold"),
    "seconds negative": (put("seconds_per_epoch", [[-1.0] * 5] * 5), "numbers from 0 on"),
    "too few steps": (put("gradient_steps", [1]), "gradient_steps must hold 5 numbers"),
    "retained text": (put("retained", {"exemplars": "many"}), "whole numbers by name"),
    "data null": (put("data", None), "unknown entry 'data'"),
    "no digest": (put("data.digest", ...), "no entry 'data.digest'"),
    "id on two lines": (put("id", "naive-cil-digits-seed0-\n12345678"), "id is"),
    "half a character": (put("experiment.method", "\ud800"), "a text on one line"),
    "an unknown entry": (put("accuracy", 99.0), "unknown entry 'accuracy'"),
}


@pytest.mark.parametrize(("harm", "words"), BAD.values(), ids=BAD)
def test_a_damaged_result_file_is_named_with_its_fault(tmp_path, harm, words):
    path = tmp_path / GOOD.relative_to(committed().folder)
    path.parent.mkdir(parents=True)
    path.write_bytes(harm(GOOD.read_bytes()))
    text = error_of(StoreError, lambda: list(Store(tmp_path)))
    assert str(path) in text and words in text and text.endswith("; remove or repair it")
    text.encode()
    found = audit.Audit()
    assert audit.read_run(path, "f", found) is None and any(words in what for _, what in found.problems)


def test_what_is_no_file_is_named(tmp_path):
    (tmp_path / "seed0-00000000.json").mkdir()
    assert "no file at all" in error_of(StoreError, lambda: list(Store(tmp_path)))
    (tmp_path / "seed0-00000000.json").rmdir()
    os.mkfifo(tmp_path / "seed0-00000000.json")  # reading it would wait for ever
    assert "no file at all" in error_of(StoreError, lambda: list(Store(tmp_path)))
    (tmp_path / "seed0-00000000.json").unlink()
    (tmp_path / "seed0-00000000.json").symlink_to(tmp_path / "gone")
    assert "cannot read" in error_of(StoreError, lambda: list(Store(tmp_path)))


def test_the_command_line_names_the_file(tmp_path, capsys):
    path = tmp_path / "seed0-00000000.json"
    path.write_bytes(put("R", [[1.0]])(GOOD.read_bytes()))
    for words in (["table", "1"], ["export"], ["claims"]):
        assert cli.main([*words, "--store", str(tmp_path)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and f"{path} is not a result file of cmlib (R must be 5 by 5)" in err


def test_every_committed_file_is_read_the_same_way():
    """Whole files come back with what stands in them; the oldest lack entries that are optional."""
    lacking = set()
    for path in sorted(committed().folder.rglob("seed*.json")):
        content = json.loads(path.read_text())
        run = committed().read(path)
        assert content["R"] == run.R and run.id == content["id"] and run.other_data == ""
        lacking |= {name for name in runfile.OPTIONAL if "." in name and name.split(".")[1] not in content["machine"]}
    assert lacking == {"machine.cpu", "machine.instructions", "machine.changed"}


# -- damaged checkpoints --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """An experiment that was cut after its third epoch, its data, its checkpoint's bytes, and what it ends with."""
    experiment, data = cm.Experiment("arrays", "cil", "er", **TINY, memory_size=8), arrays(1)
    folder, save_, count = tmp_path_factory.mktemp("cut"), Checkpoint.save, iter(range(1, 100))

    def cut(self, *state):
        save_(self, *state)
        if next(count) == 3:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", cut)
        with pytest.raises(KeyboardInterrupt):
            cm.run(experiment, data, store=folder)
    (path,) = folder.rglob("*.ckpt")
    return experiment, data, path.read_bytes(), cm.run(experiment, data).R


def resumed(interrupted, raw, folder):
    """What a run ends with that goes on from these bytes."""
    experiment, data, *_ = interrupted
    path = Store(folder).path(experiment, data.digest).with_suffix(".ckpt")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return cm.run(experiment, data, store=folder).R


def test_a_whole_checkpoint_goes_on(tmp_path, interrupted):
    *_, raw, R = interrupted
    assert resumed(interrupted, raw, tmp_path) == R and not list(tmp_path.rglob("*.ckpt"))


BLOCKS = [
    *((f"zeros at {share} %", lambda raw, at=share: zeros(raw, len(raw) * at // 100)) for share in (0, 10, 30, 50, 70, 90, 98)),
    ("zeros at the end", lambda raw: zeros(raw, len(raw) - 40)),
    ("tail cut", lambda raw: raw[:-1]),
    ("checksum cut", lambda raw: raw[:-40]),
    ("half", lambda raw: raw[: len(raw) // 2]),
    ("empty", lambda raw: b""),
    ("text", lambda raw: b"no checkpoint at all"),
    ("longer", lambda raw: raw + b"\0"),
]


def zeros(raw, at):
    return raw[:at] + bytes(len(raw[at : at + 4096])) + raw[at + 4096 :]


@pytest.mark.parametrize("harm", [harm for _, harm in BLOCKS], ids=[name for name, _ in BLOCKS])
def test_a_damaged_checkpoint_never_goes_on(tmp_path, interrupted, harm):
    raw = interrupted[2]
    text = error_of(StoreError, lambda: resumed(interrupted, harm(raw), tmp_path))
    (path,) = tmp_path.rglob("*.ckpt")
    assert f"the checkpoint {path} is damaged" in text and text.endswith("remove it to start this run anew")
    assert not list(tmp_path.rglob("*.json"))


def test_no_flipped_bit_of_a_checkpoint_passes(interrupted):
    raw, device = interrupted[2], torch.device("cpu")
    assert unsealed(raw, device)["position"]["task"] == 1
    draw = random.Random(0)
    for at in [*draw.sample(range(len(raw)), 60), *range(len(raw) - 40, len(raw))]:
        flipped = bytearray(raw)
        flipped[at] ^= 1 << draw.randrange(8)
        with pytest.raises(Exception, match="checksum"):
            unsealed(bytes(flipped), device)


def test_a_run_removes_what_a_killed_one_left(tmp_path, interrupted):
    """Not what a living process is writing, here or on another machine that shares the store."""
    experiment, data, *_ = interrupted
    path = Store(tmp_path).path(experiment, data.digest)
    path.parent.mkdir(parents=True)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    parts = [(imagefiles._node(), dead.pid), (imagefiles._node(), os.getppid()), ("elsewhere", dead.pid)]
    left, living, theirs = (path.with_name(f".{path.stem}.ckpt.0a1b2c3d.{node}.{pid}.part") for node, pid in parts)
    old = path.with_name(f".{path.name}.{dead.pid}")  # as parts were once called
    for one in (left, living, theirs, old):
        one.write_bytes(b"half")
    os.utime(old, (0, 0))
    cm.run(experiment, data, store=tmp_path)
    assert sorted(one.name for one in path.parent.iterdir()) == sorted([living.name, theirs.name, path.name])
