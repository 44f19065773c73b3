"""Runs, checkpoints, the store: kill, resume, damage."""

import copy
import json
import multiprocessing
import os
import pickle
import shutil
import signal
from dataclasses import replace

import pytest
import torch
from tiny import tiny_nets

import cmlib as cm
from cmlib import datasets, engine, loop, machine, metrics
from cmlib import store as stores
from cmlib.checkpoint import Checkpoint
from cmlib.methods.base import METHODS, Option
from cmlib.methods.naive import Naive
from cmlib.reproduction import publish, snapshots
from cmlib.store import Store, checksums, read_checksums

PAIRS = [(name, scenario) for name, cls in METHODS.items() for scenario in cls.scenarios]
TINY = {"profile": "smoke", "epochs": 2, "train_per_class": 16}


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


@pytest.fixture(scope="module")
def finished(digits, tmp_path_factory):
    """A run of naive, and the store that holds it."""
    folder = tmp_path_factory.mktemp("finished")
    return cm.run(cm.Experiment(method="naive", **TINY), digits, store=folder), folder


@pytest.fixture(scope="module")
def recorded(digits, tmp_path_factory):
    """A run of CM with its snapshots, and the store that holds both."""
    folder = tmp_path_factory.mktemp("recorded")
    experiment = cm.Experiment("digits", "cil", "cm", 3, **TINY)
    taken = snapshots.load_or_record(experiment, "merged", folder, digits)
    return cm.run(experiment, digits, store=folder), taken, folder


def copied(folder, target):
    """A copy of a store, which a test may damage."""
    return shutil.copytree(folder, target, dirs_exist_ok=True)


def run_and_die(experiment, data, folder, epoch, written):
    """Run until the n-th checkpoint, then die by SIGKILL, before or after it is written."""
    save, count = Checkpoint.save, iter(range(1, 1000))

    def deadly(self, method, optimizer, position):
        last = next(count) == epoch
        if written or not last:
            save(self, method, optimizer, position)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    Checkpoint.save = deadly
    cm.run(experiment, data, store=folder)


def killed(*arguments):
    """Run `run_and_die` in a child process; a real kill -9."""
    child = multiprocessing.get_context("fork").Process(target=run_and_die, args=arguments)
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL


@pytest.mark.faults
@pytest.mark.parametrize(
    ("method", "scenario", "options"),
    [
        *((*pair, {}) for pair in PAIRS),
        ("cm", "til", {"preset": "head"}),
        ("cm", "cil", {"preset": "head", "past_batch_norm": "batch"}),
    ],
)
def test_kill_9_and_the_same_bits(few_digits, tmp_path, method, scenario, options):
    """Killed in the first task and, in another store, at the end of the third: the same bits as an undisturbed run.

    Nothing is lost either of what the switches of the released code keep.
    """
    experiment = cm.Experiment("digits", scenario, method, 1, **TINY, **options)
    with tiny_nets():
        whole, trained = cm.train(experiment, few_digits)
    wanted = trained.state_dict()
    for epoch, written in [(2, False), (6, True)]:
        folder = tmp_path / str(epoch)
        with tiny_nets():
            killed(experiment, few_digits, folder, epoch, written)
            assert len(list(folder.rglob("*.ckpt"))) == 1 and not list(folder.rglob("*.json"))
            torch.rand(3)
            continued, again = cm.train(experiment, few_digits, store=folder)
        assert continued.R == whole.R and continued.R_task_known == whole.R_task_known
        assert continued.gradient_steps == whole.gradient_steps and continued.retained == whole.retained
        state = again.state_dict()
        assert state.keys() == wanted.keys() and all(torch.equal(state[key], wanted[key]) for key in wanted)
        assert not list(folder.rglob("*.ckpt"))


def test_a_finished_run_is_loaded_and_a_changed_option_is_another_run(digits, finished, monkeypatch):
    experiment = cm.Experiment(method="naive", **TINY)
    first, tmp_path = finished
    (path,) = tmp_path.rglob("*.json")
    assert (
        path.relative_to(tmp_path).as_posix() == f"smoke/digits-til/naive-epochs=2,train_per_class=16/seed0-{first.id[-8:]}.json"
    )
    monkeypatch.setattr(loop, "train_epoch", None)  # it must not train again
    assert cm.run(experiment, digits, store=tmp_path) == first
    other = experiment.but(lr=0.02)
    assert other.hash(digits.digest) != experiment.hash(digits.digest)
    assert Store(tmp_path).load(other, digits.digest) is None
    assert experiment.hash("other data") != experiment.hash(digits.digest)
    assert cm.Experiment(method="naive", **TINY).hash("x") == experiment.hash("x")


def test_a_new_option_leaves_runs_valid(digits, finished, monkeypatch):
    run, tmp_path = finished
    monkeypatch.setattr(Naive, "options", {"warm_up": Option(0, "a new option", int, low=0)})
    assert cm.Experiment(method="naive", **TINY).hash(digits.digest) == run.id[-8:]
    assert Store(tmp_path).find(cm.Experiment(method="naive", **TINY)) == [run]
    assert Store(tmp_path).find(cm.Experiment(method="naive", warm_up=3, **TINY)) == []


def test_a_raised_revision_is_another_run(digits, monkeypatch):
    experiment = cm.Experiment(method="naive", **TINY)
    before = experiment.hash("x")
    monkeypatch.setattr(Naive, "revision", 2)
    assert experiment.hash("x") != before


def test_the_file_holds_everything(digits, recorded):
    run, _, tmp_path = recorded
    (path,) = tmp_path.rglob("*.json")
    content = json.loads(path.read_text())
    assert content["experiment"]["options"]["lam"] == 0.1 and content["experiment"]["seed"] == 3
    assert set(content["experiment"]["options"]) >= {"memory_size", "support_size", "merging", "epochs", "n_tasks"}
    assert content["data"] == {"digest": digits.digest, "classes": 10, "rows": 1437, "train_rows_used": 160}
    assert {"torch", "cmlib", "python"} <= set(content["versions"]) and content["machine"]["threads"] == 1
    assert [len(task) for task in content["seconds_per_epoch"]] == [2] * 5
    assert content["R"][0][1:] == [None] * 4 and path.stat().st_size < 6000
    assert Store(tmp_path).read(path) == run


def test_summary_has_the_promised_keys(finished):
    run, _ = finished
    summary = run.summary()
    promised = {
        "accuracy",
        "bwt",
        "bwt_final",
        "R",
        "seconds_per_epoch",
        "gradient_steps",
        "retained_scalars",
        "experiment",
        "versions",
    }
    assert promised <= set(summary)
    assert summary["accuracy"] == pytest.approx(metrics.accuracy(run.matrix))
    assert summary["bwt"] == pytest.approx(metrics.bwt(run.matrix))
    json.dumps(summary, allow_nan=False)


def test_a_loss_that_is_not_finite_stops_and_marks_the_run(digits, tmp_path):
    run = cm.run(cm.Experiment(method="naive", lr=1e30, momentum=0, **TINY), digits, store=tmp_path)
    assert run.status.startswith("stopped: the loss is not finite (task 1, epoch")
    assert run.summary()["accuracy"] is None and run.R == [[None] * 5] * 5
    (path,) = tmp_path.rglob("*.json")
    assert Store(tmp_path).read(path).status == run.status


def test_a_named_profile_stays_with_another_data_set():
    assert cm.Experiment("cifar10", profile="mini").but(dataset="cifar100").profile == "mini"
    assert cm.Experiment("digits").but(dataset="cifar10").profile == "paper"


def test_no_threads_means_one(digits, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "0")
    with machine.threads_for(digits) as count:
        assert count == 1


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(cm.StoreError, match="No space left"):
        stores.write_atomically(tmp_path / "a" / "run.json", b"{}")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_load_or_run_finds_stored_and_committed_runs(digits, tmp_path, monkeypatch):
    experiment = cm.Experiment(method="naive", **TINY)
    made = cm.load_or_run(experiment, store=tmp_path / "mine", data=digits)
    monkeypatch.setattr(engine, "committed", lambda: Store(tmp_path / "mine"))
    monkeypatch.setattr(engine, "run", None)
    assert cm.load_or_run(experiment, store=tmp_path / "empty") == made


def test_recompute_trains_once_in_a_process(digits, tmp_path, monkeypatch):
    experiment, trained = cm.Experiment(method="naive", **TINY), []
    train = engine.train
    monkeypatch.setattr(engine, "_REMADE", set())
    monkeypatch.setattr(engine, "train", lambda *a, **named: trained.append(a[0]) or train(*a, **named))
    first = cm.load_or_run(experiment, tmp_path, digits)
    again = [cm.load_or_run(experiment, tmp_path, digits, recompute=True) for _ in range(2)]
    assert trained == [experiment, experiment] and again[0] == again[1] and again[0].R == first.R
    assert again[0].seconds_per_epoch != first.seconds_per_epoch


def test_a_stored_run_has_the_names_that_its_classes_have_now(digits, tmp_path):
    """A renamed folder of images is the same data and the same run; seed 1 has an order of its own."""
    experiment = cm.Experiment(method="er", scenario="cil", seed=1, **TINY, memory_size=350)
    first = cm.run(experiment, digits, store=tmp_path)
    renamed = replace(digits, class_names=tuple(f"digit {name}" for name in digits.class_names))
    for again in (cm.run(experiment, renamed, store=tmp_path), cm.load_or_run(experiment, tmp_path, renamed)):
        assert again.classes == [[f"digit {name}" for name in task] for task in first.classes] and again.R == first.R
        assert first.notes and again.notes == [note.replace(": '", ": 'digit ") for note in first.notes]
    assert cm.run(experiment, digits, store=tmp_path) == first


def test_experiments_are_values():
    a = cm.Experiment(lam=0.5)
    assert a == cm.Experiment(lam="0.5") and hash(a) == hash(cm.Experiment(lam=0.5)) and a != cm.Experiment(lam=0.4)
    assert a.but(seed=2).lam == 0.5 and a.but(seed=2).seed == 2 and a.but(method="naive").method == "naive"
    head = cm.Experiment("cifar10", "til", "cm", preset="head", lam=0.3)
    assert head.but(scenario="cil") == cm.Experiment("cifar10", "cil", "cm", preset="head", lam=0.3)
    assert head.but(profile="mini").epochs == 5 and head.but(preset="default").drift_sum == "mean"
    assert cm.Experiment("cifar10", lam=0.1) == cm.Experiment("cifar10")  # whoever says it
    assert (
        pickle.loads(pickle.dumps(head)) == head and pickle.loads(pickle.dumps(head)).but(scenario="cil").projectors == "frozen"
    )
    assert pickle.loads(pickle.dumps(a)) == copy.deepcopy(a) == a
    assert a.variant == "lam=0.5" and cm.Experiment().variant == ""
    with pytest.raises(AttributeError, match="Did you mean 'epochs'"):
        a.epoch  # noqa: B018


def test_paper_settings_per_data_set():
    for dataset, lam, size, epochs, tasks in [
        ("cifar10", 0.1, 32, 10, 5),
        ("cifar100", 0.75, 16, 10, 10),
        ("tiny-imagenet", 0.75, 32, 30, 10),
    ]:
        e = cm.Experiment(dataset, "cil", "cm")
        assert (e.profile, e.lam, e.batch_size, e.epochs, e.n_tasks) == ("paper", lam, size, epochs, tasks)
        assert (e.support_size, e.memory_size, e.lr, e.momentum, e.embedding_size, e.head) == (100, 500, 0.01, 0.9, 128, "mlp")
        assert cm.Experiment(dataset, "til", "cm").batch_norm == "private" and e.batch_norm == "shared"
    assert cm.Experiment("tiny-imagenet", "cil", "er").memory_size == 1000
    assert cm.Experiment("cifar10", "cil", "er").memory_size == 500 and cm.Experiment("cifar10", "til", "naive").head == "linear"


def test_snapshots_are_recorded_kept_and_read(digits, recorded, tmp_path):
    _, taken, folder = recorded
    experiment = cm.Experiment("digits", "cil", "cm", 3, **TINY)
    copied(folder, tmp_path)
    assert [one.after for one in taken] == [2, 3, 4, 5]
    assert [one.points.shape for one in taken] == [(30 * t, 128) for t in (2, 3, 4, 5)]
    assert taken[-1].centroid_labels.tolist() == list(range(10))
    (path,) = tmp_path.rglob("*.npz")
    again = snapshots.load_or_record(experiment, "merged", tmp_path, digits)
    torch.testing.assert_close(torch.tensor(again[3].points), torch.tensor(taken[3].points), rtol=1e-2, atol=1e-2)
    path.write_bytes(b"no")
    with pytest.raises(cm.StoreError, match="damaged"):
        snapshots.load_or_record(experiment, "merged", tmp_path, digits)
    with pytest.raises(cm.OptionError, match="merged for cm in cil"):
        snapshots.record(cm.Experiment("digits", "til", "cm"), "merged")


def interrupted_recording(monkeypatch, experiment, space, folder, data, epochs):
    """Record until so many epochs are done, then Ctrl-C; afterwards training is counted. -> the epochs trained from then on"""
    real, trained, patience = loop.train_epoch, [], [epochs]

    def counted(*given):
        if patience and len(trained) == patience[0]:
            raise KeyboardInterrupt
        trained.append(given)
        return real(*given)

    monkeypatch.setattr(loop, "train_epoch", counted)
    with pytest.raises(KeyboardInterrupt):
        snapshots.keep(experiment, space, Store(folder), data)
    trained.clear(), patience.clear()
    return trained


@pytest.mark.parametrize("space", ["task1", "merged"])
@pytest.mark.parametrize("epochs", [1, 2, 5])  # in the first task, after its last epoch, in the third task
def test_recording_goes_on_where_it_was_interrupted(digits, tmp_path, monkeypatch, space, epochs):
    experiment = cm.Experiment("digits", "cil", "cm", 3, **TINY)
    trained = interrupted_recording(monkeypatch, experiment, space, tmp_path, digits, epochs)
    assert list(tmp_path.rglob(f"*.{space}.ckpt")) and not list(tmp_path.rglob("*.npz"))
    taken = snapshots.keep(experiment, space, Store(tmp_path), digits)
    assert len(trained) == 10 - epochs
    assert sorted(path.suffix for path in tmp_path.rglob("seed*")) == [".json", ".npz"]
    whole = snapshots.record(experiment, space, digits)
    assert [one.after for one in taken] == [one.after for one in whole] == list(range(snapshots.FIRST[space], 6))
    for one, other in zip(taken, whole, strict=True):  # some were read back, in half precision
        torch.testing.assert_close(torch.tensor(one.points), torch.tensor(other.points), rtol=1e-3, atol=1e-3)
    assert cm.load_or_run(experiment, tmp_path, digits).R == cm.run(experiment, digits).R


def test_recording_begins_anew_without_the_snapshots_of_its_first_tasks(digits, tmp_path, monkeypatch):
    experiment = cm.Experiment("digits", "til", "cm", 3, **TINY)
    trained = interrupted_recording(monkeypatch, experiment, "task1", tmp_path, digits, 5)
    (part,), (checkpoint,) = tmp_path.rglob("*.part"), tmp_path.rglob("*.task1.ckpt")
    good = checkpoint.read_bytes()
    checkpoint.write_bytes(good[:-9] + b"x" + good[-8:])
    with pytest.raises(cm.StoreError, match=r"task1\.ckpt is damaged .*; remove it"):
        snapshots.keep(experiment, "task1", Store(tmp_path), digits)
    checkpoint.write_bytes(good)
    part.unlink()
    assert [one.after for one in snapshots.keep(experiment, "task1", Store(tmp_path), digits)] == [1, 2, 3, 4, 5]
    assert len(trained) == 10


def test_recording_interrupted_after_its_run_was_saved_trains_no_more(digits, tmp_path, monkeypatch):
    experiment = cm.Experiment("digits", "til", "cm", 3, **TINY)

    def interrupted(*given, **more):
        engine.train(*given, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            snapshots.keep(experiment, "task1", Store(tmp_path), digits)
    assert sorted(path.suffix for path in tmp_path.rglob("seed*")) == [".json", ".part"]
    monkeypatch.setattr(snapshots, "train", lambda *given, **more: pytest.fail("trained again"))
    assert [one.after for one in snapshots.keep(experiment, "task1", Store(tmp_path), digits)] == [1, 2, 3, 4, 5]
    assert sorted(path.suffix for path in tmp_path.rglob("seed*")) == [".json", ".npz"]


def test_publish_checks_and_copies(digits, recorded, tmp_path):
    experiment = cm.Experiment("digits", "cil", "cm", 3, **TINY)
    copied(recorded[2], tmp_path / "runs")
    ((path,), _) = publish.publish(tmp_path / "runs", tmp_path / "results")
    assert path == Store(tmp_path / "results").path(experiment, digits.digest)
    assert path.with_suffix(".merged.npz").is_file()
    before = path.read_bytes()
    mine = next((tmp_path / "runs").rglob("seed*.json"))
    content = json.loads(mine.read_text())
    content["R"][0][0] = 12.5  # as another CPU might have it
    mine.write_text(json.dumps(content))
    assert publish.publish(tmp_path / "runs", tmp_path / "results") == ([], [path]) and path.read_bytes() == before
    assert publish.publish(tmp_path / "runs", tmp_path / "results", replace=True) == ([path], [])
    assert path.read_bytes() == mine.read_bytes() and read_checksums(tmp_path / "results") == checksums(tmp_path / "results")
    path.write_text(path.read_text().replace('"lam": 0.1', '"lam": 0.2'))
    with pytest.raises(cm.StoreError, match="does not fit its hash"):
        publish.publish(path, tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(cm.StoreError, match="holds no result files"):
        publish.publish(tmp_path / "none", tmp_path / "results")


def test_committed_runs_are_valid_and_current():
    """Every committed file fits its hash and its place, is whole or says where it stopped, and the folder stays small."""
    shelf = stores.committed()
    files = sorted(shelf.folder.rglob("seed*.json"))
    assert files
    for path in files:
        assert publish.place_of(path, shelf) == path
        run = shelf.read(path)
        n = run.experiment["options"]["n_tasks"]
        assert len(run.R) == n
        if run.status.startswith(stores.DIVERGED):
            assert run.R[-1] == [None] * n and f"(task {len(run.gradient_steps)}, epoch" in run.status
            continue
        assert run.status == "finished" and all(value is not None for value in run.R[-1])
        assert 0 <= run.accuracy <= 100 and len(run.gradient_steps) == n
    assert sum(path.stat().st_size for path in shelf.folder.rglob("*") if path.is_file()) < 5 * 2**20
    assert {path.suffix for path in shelf.folder.rglob("*") if path.is_file()} <= {".json", ".npz", ""}
