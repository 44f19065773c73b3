"""Sweeps: what is made, what is passed over, and that no death on the way changes a result."""

import errno
import fcntl
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import joblib
import pytest
import torch
from handmade import completed

import cmlib as cm
from cmlib import cli, engine, imagefiles, machine
from cmlib.checkpoint import Checkpoint, sealed, unsealed
from cmlib.experiment import key
from cmlib.reproduction import grids, sweep
from cmlib.store import Store

DIGEST = cm.datasets.load("digits").digest
HERE = {"device": "cpu", "cpu": machine.cpu_model(), "threads": 1}
TINY = {"profile": "smoke", "train_per_class": 16, "epochs": 2, "n_tasks": 2}
PATIENCE = 120  # seconds, for a busy machine


@pytest.fixture(autouse=True)
def speed(monkeypatch):
    """This machine passes 100 images a second, where it is not measured on purpose."""
    monkeypatch.setattr(sweep.costs, "images_a_second", lambda dataset, threads, device: 100.0 * threads)


def wanted(epochs=2):
    return [cm.Experiment("digits", "til", m, s, **{**TINY, "epochs": epochs}) for s in (0, 1) for m in ("naive", "er")]


@pytest.fixture(scope="module")
def undisturbed():
    """R and steps of every wanted run, made one after the other without a store."""
    data = cm.datasets.load("digits")
    return content_of([cm.run(one, data) for one in wanted()])


def content_of(runs):
    return {(run.experiment["method"], run.seed): (run.R, run.gradient_steps, run.status) for run in runs}


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def is_clean(folder):
    """No lock and no half-written file: every name is that of a result or of a checkpoint."""
    return all(re.fullmatch(r"seed\d+-[0-9a-f]{8}\.(json|ckpt)", path.name) for path in files(folder))


class Child:
    """The sweep of all wanted runs in a process (and process group) of its own, forked: torch is imported already."""

    def __init__(self, folder, epochs, out, jobs=1):
        self.out = out
        self.process = multiprocessing.get_context("fork").Process(target=self.work, args=(folder, epochs, jobs))
        self.process.start()
        self.pid = self.process.pid

    def work(self, folder, epochs, jobs):
        os.setsid()
        sys.stderr = self.out.with_suffix(".err").open("w", buffering=1)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
        try:
            report = sweep.sweep(wanted(epochs), folder, jobs=jobs)
        except KeyboardInterrupt:
            sys.exit(1)
        self.out.write_text(report.text())
        sys.exit(bool(report.failed))

    def code(self):
        """Wait for the end; the exit code."""
        self.process.join(5 * PATIENCE)
        return self.process.exitcode


def until(condition):
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
    return value


def workers_of(pid):
    """Numbers of a process's children that make runs."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = place.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            command = place.joinpath("cmdline").read_text()
        except OSError:
            continue
        if parent == str(pid) and "popen_loky" in command:
            found.append(int(place.name))
    return found


def stored(folder, experiment, seconds, **changes):
    """A result file with known times: `seconds` in all."""
    epochs, tasks = experiment.epochs, experiment.n_tasks
    run = cm.Run("x", experiment.to_dict(), [[50.0] * tasks] * tasks, None, [[seconds / tasks / epochs] * epochs] * tasks, [], {})
    run = completed(replace(run, **{"machine": HERE, "data": {"digest": DIGEST}, **changes}))
    return Store(folder).save(run, experiment, run.data["digest"])


# -- what is asked for ----------------------------------------------------------------------------------------------------


def test_seeds():
    assert sweep.parse_seeds("0-4") == [0, 1, 2, 3, 4]
    assert sweep.parse_seeds("0,2") == [0, 2]
    assert sweep.parse_seeds(" 7, 1-3 ,2") == [7, 1, 2, 3]
    for text in ("", "a", "1-", "-1", "0..4", "1,,2", "1.5", "3-1", "0-99999999", "٣", "0-999,1000", "1e3", "0-1-2", "0x1", ","):
        with pytest.raises(cm.OptionError, match=f"--seeds {re.escape(text)}: ") as error:
            sweep.parse_seeds(text)
        assert "\n" not in str(error.value)


def test_several_grids_and_some_data_sets():
    """Each run once, seed by seed; a data set may be asked for alone."""
    both = sweep.of_grids(["table4", "table6"], "smoke", "0,1", "grid")
    parts = [grids.load(name).experiments("smoke", [0, 1]) for name in ("table4", "table6")]
    names = [key(one.to_dict()) for one in both]
    assert len(names) == len(set(names)) < sum(map(len, parts)) and set(names) == {
        key(e.to_dict()) for part in parts for e in part
    }
    whole, half = (sweep.of_grids(["table1"], "paper", "0", "grid", only) for only in (None, "cifar10, cifar100"))
    assert {one.dataset for one in whole} > {one.dataset for one in half} == {"cifar10", "cifar100"}
    assert half == [one for one in whole if one.dataset != "tiny-imagenet"]


BAD_REQUESTS = [
    ({"names": ["tabel1"]}, "Did you mean 'table1'"),
    ({"names": []}, "which grid? allowed: table1, "),
    ({"only": "cifar10"}, "unknown data set 'cifar10'; allowed: digits"),
    ({"device": "tpu"}, "unknown device 'tpu'; allowed: auto, cpu, cuda"),
    ({"profile": "digit"}, "Did you mean 'digits'"),
    ({"backend": "locky"}, "Did you mean 'loky'"),
    ({"order": "cheapest"}, "unknown order 'cheapest'; allowed: value, grid"),
    ({"seeds": "one"}, "--seeds one: expected whole numbers"),
    ({"jobs": 0}, "--jobs 0: expected a whole number from 1 to "),
    ({"jobs": -2}, "--jobs -2: expected a whole number from 1 to "),
    ({"jobs": 10**6}, "--jobs 1000000: expected a whole number from 1 to "),
    *(
        ({"budget": float(text)}, f"--budget {float(text):g}: expected a number of seconds above 0")
        for text in ("nan", "inf", "-inf", "1e400", "-1", "0")
    ),
    ({"budget": 5.0, "backend": "threading"}, "--budget works with --backend loky only"),
    ({"profile": "mini", "data_root": "/nowhere"}, "/nowhere"),
    ({"store": "FILE"}, "cannot write to the store FILE: Not a directory"),
    ({"store": "FILE/below"}, "cannot write to the store FILE/below: Not a directory"),
    ({"store": "n" * 300}, "File name too long"),
]


@pytest.mark.faults
@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(("arguments", "words"), BAD_REQUESTS)
def test_bad_requests_are_one_line_and_write_nothing(tmp_path, monkeypatch, arguments, words, dry_run):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sweep.BACKENDS, "threading", "")
    Path("FILE").write_text("no folder")
    with pytest.raises(cm.CmlibError, match=re.escape(words)) as error:
        sweep.main(**{"names": ["table1"], "profile": "smoke", "seeds": "0", "store": "new", "dry_run": dry_run, **arguments})
    assert "\n" not in str(error.value) and os.listdir(tmp_path) == ["FILE"]


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_backend_that_is_not_installed_is_named(monkeypatch, backend, package):
    monkeypatch.setattr(sweep.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(cm.OptionError, match=f"--backend {backend} needs the package {package}: pip install {package}"):
        sweep.main(["table1"], "smoke", "0", backend=backend)


def test_times_of_similar_runs(tmp_path):
    """Measured on this CPU: the median of the same run's other seeds, else the seconds an epoch of its kind; own store first."""
    naive = cm.Experiment("digits", "til", "naive", 0, **TINY)
    for seed, seconds in [(0, 10.0), (1, 20.0), (2, 60.0)]:
        stored(tmp_path / "own", naive.but(seed=seed), seconds)
    stored(tmp_path / "own", naive.but(seed=3), 5000.0, machine={"device": "another"})
    stored(tmp_path / "own", naive.but(seed=4), 5000.0, status="stopped: the loss is not finite (task 1, epoch 1)")
    stored(tmp_path / "other", naive, 1000.0)
    stored(tmp_path / "other", naive.but(method="er"), 8.0)
    (tmp_path / "own" / "seed9-damaged.json").write_text("{")
    times = sweep.Times((Store(tmp_path / "own"), Store(tmp_path / "other")))
    assert times.of(naive.but(seed=7)) == pytest.approx(20)
    assert times.of(naive.but(epochs=6)) == pytest.approx(6 * 20 / 2)
    assert times.of(naive.but(method="er")) == pytest.approx(8)
    times.add(naive, 30.0)
    assert times.of(naive) == pytest.approx(30)


def test_what_was_not_measured_here_is_predicted(tmp_path):
    """The cost model wins over other CPUs and other numbers of threads; where there is none, those are better than nothing."""
    naive, images = cm.Experiment("digits", "til", "naive", 0, **TINY), 2 * 10 * 16  # 2 epochs, 10 classes of 16 images
    stored(tmp_path, naive, 5000.0, machine={**HERE, "cpu": "another"})
    stored(tmp_path, naive.but(seed=1), 5000.0, machine={**HERE, "threads": 2})
    stored(tmp_path, naive.but(seed=2), 5000.0, machine={"device": "cpu"})  # from before the CPU was recorded
    foreign = naive.but(engine="avalanche")
    stored(tmp_path, foreign, 70.0, machine={"device": "cpu"})
    times = sweep.Times((Store(tmp_path),), threads=2)
    assert times.of(naive) == pytest.approx(images / 100)  # small images: one thread, whatever the others have
    assert times.of(cm.Experiment("cifar10", "til", "naive", profile="paper")) == pytest.approx(10 * 50_000 / 200)
    assert times.of(foreign) == pytest.approx(70) and times.of(foreign.but(scenario="cil")) is None
    assert times.left([naive, naive, foreign.but(scenario="cil")]) == pytest.approx(3 * images / 100)
    times.add(naive.but(method="cumulative"), 48.0)  # 480 images + 320 of the first task, at half the speed: 10 a second
    assert times.of(naive) == pytest.approx(images / 10)


def test_dry_run_lists_runs_and_hours(tmp_path, monkeypatch, capsys):
    runs = [*wanted(), cm.Experiment("digits", "til", "naive", 0, engine="avalanche", **TINY)]
    monkeypatch.setattr(sweep.grids, "load", lambda name: SimpleNamespace(experiments=lambda profile, seeds: runs))
    monkeypatch.setattr(sweep, "committed", lambda: Store(tmp_path / "committed"))
    stored(tmp_path / "own", runs[0], 3600.0)
    stored(tmp_path / "own", runs[1], 60.0, status="stopped: the loss is not finite (task 1, epoch 2)")
    before = files(tmp_path)
    assert sweep.main(["any"], "smoke", "0,1", jobs=2, store=str(tmp_path / "own"), dry_run=True, order="grid") == 0
    tail = "epochs=2,n_tasks=2,train_per_class=16"
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"finished  naive til digits seed 0 {tail}",
        f"stopped   er til digits seed 0 {tail}  the loss is not finite (task 1, epoch 2)",
        f"to make   naive til digits seed 1 {tail}  60 min",
        f"to make   er til digits seed 1 {tail}  5 s",
        f"to make   naive til digits seed 0 engine=avalanche,{tail}  time unknown",
        "3 of 5 runs to make: about 60 min one after the other, 30 min with 2 side by side, 1 thread each; "
        "time unknown for 1: no similar run was measured",
    ]
    assert files(tmp_path) == before


def test_every_run_of_table_1_has_hours(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sweep, "committed", lambda: Store(tmp_path / "none"))
    assert sweep.main(["table1"], "paper", "0", jobs=2, store=str(tmp_path), dry_run=True) == 0
    *runs, last = capsys.readouterr().out.splitlines()
    assert len(runs) == 58 and all(re.search(r"  [\d.]+ (s|min|h)$", line) for line in runs), runs
    assert re.fullmatch(
        r"58 of 58 runs to make: about \d+.\d h one after the other, \d+.\d h with 2 side by side, 1 thread each", last
    )
    hours = {line.split("  ")[1].strip(): line.split("  ")[-1] for line in runs}
    assert hours["naive til cifar10 seed 0"] == "83 min"  # 10 epochs of 50,000 images, 100 a second
    assert hours["cope cil cifar10 seed 0"] == "17 min"


def test_the_cheapest_of_each_seed_comes_first():
    runs = [
        cm.Experiment(data, "cil", method, seed, "paper")
        for seed in (3, 1)
        for data, method in [("cifar10", "gem"), ("tiny-imagenet", "cope"), ("cifar10", "cope"), ("cifar10", "naive")]
    ]
    runs.insert(0, cm.Experiment("cifar10", "cil", "naive", 3, "paper", engine="avalanche"))
    found = [(one.seed, one.dataset, one.method, one.engine) for one in sweep.ordered(runs, "value")]
    wanted = [("cifar10", "cope"), ("cifar10", "naive"), ("tiny-imagenet", "cope"), ("cifar10", "gem")]
    assert found[:4] == [(3, *one, "cmlib") for one in wanted] and found[5:] == [(1, *one, "cmlib") for one in wanted]
    assert found[4] == (3, "cifar10", "naive", "avalanche")  # nobody knows
    assert sweep.ordered(runs, "grid") == runs


@pytest.mark.parametrize(
    ("cores", "limit", "runs", "jobs", "threads"),
    [
        (2, "", 58, 2, 1),
        (2, "", 1, 1, 2),
        (2, "1", 1, 1, 1),
        (4, "", 3, 3, 1),
        (8, "", 3, 3, 2),
        (8, "8", 20, 8, 1),
        (1, "", 3, 1, 1),
    ],
)
def test_as_many_runs_as_cores_have_one_thread_each(monkeypatch, cores, limit, runs, jobs, threads):
    monkeypatch.setattr(sweep.joblib, "cpu_count", lambda: cores)
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert (sweep.usual_jobs(runs), sweep.usual_threads(jobs)) == (jobs, threads)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_workers_get_their_threads_and_memory_settings_and_the_sweeps_niceness(monkeypatch):
    """The runs of the other tests are made in such workers, and are bit for bit those made without."""
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    slot = sweep.Slot(sweep.surroundings(2))
    names = ("OMP_NUM_THREADS", "GLIBC_TUNABLES")
    slot.give("x", lambda: (json.dumps([os.environ.get(name) for name in names]), str(os.nice(0))))
    _, found, nice, _ = slot.future.result() and slot.take()
    slot.end()
    assert json.loads(found) == ["2", sweep.ALLOCATION] and int(nice) == os.nice(0)
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0")
    assert sweep.surroundings(1) == {"OMP_NUM_THREADS": "1"}  # whoever sets it knows better


def test_every_grid_can_be_previewed(tmp_path, capsys):
    for name in sweep.grids.names():
        assert sweep.main([name], "paper", "0", store=str(tmp_path / "new"), dry_run=True) == 0
    assert " runs to make" in capsys.readouterr().out and not files(tmp_path)


# -- locks ----------------------------------------------------------------------------------------------------------------


def test_a_lock_has_one_holder_and_goes_with_it(tmp_path):
    path = tmp_path / "deep" / "seed0-00000000.json"
    with sweep.claimed(path) as mine, sweep.claimed(path) as second:
        assert mine and not second
        assert [one.name for one in files(tmp_path)] == [".seed0-00000000.json.lock"]
        assert not list(Store(tmp_path))  # a lock is no result
    assert not files(tmp_path)
    with sweep.claimed(path) as mine:
        assert mine


def test_a_lock_on_a_removed_file_is_none(tmp_path, monkeypatch):
    """A process that opened the file just before its holder removed it must not believe that it holds the lock."""
    path, opened, real = tmp_path / "seed0-00000000.json", [], os.open

    def slow(place, *rest):
        handle = real(place, *rest)
        if not opened:
            os.unlink(place)  # the holder ends between our opening and our locking
        opened.append(handle)
        return handle

    monkeypatch.setattr(os, "open", slow)
    with sweep.claimed(path) as mine:
        lock = path.with_name(f".{path.name}.lock")
        assert mine and len(opened) == 2 and os.fstat(opened[1]).st_ino == lock.stat().st_ino


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    how, why = sweep.attempt(wanted()[0], str(tmp_path))
    assert how == "failed" and why.startswith("cannot lock ") and "needs a file system with locks" in why and "\n" not in why
    assert not files(tmp_path)


def test_tidy_removes_what_the_dead_left_and_nothing_else(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    done, open_ = tmp_path / "seed0-00000000.json", tmp_path / "seed1-00000000.json"
    mine = imagefiles.part(open_)
    left = mine.with_name(mine.name.replace(f".{os.getpid()}.", f".{child.pid}."))
    keep = [done, open_.with_suffix(".ckpt"), mine, tmp_path / ".seed2-00000000.json.lock"]
    drop = [done.with_suffix(".ckpt"), tmp_path / f".{done.name}.lock", left]
    for path in keep + drop:
        path.write_text("x")
    sweep.tidy([done, open_])
    assert files(tmp_path) == sorted(keep)


# -- sweeping -------------------------------------------------------------------------------------------------------------


@pytest.mark.faults
def test_only_what_is_missing_is_made_and_interrupted_runs_go_on(tmp_path, monkeypatch, undisturbed, capsys):
    own, other, runs = tmp_path / "own", tmp_path / "committed", wanted()
    monkeypatch.setattr(sweep, "committed", lambda: Store(other))
    monkeypatch.setattr(sweep.grids, "load", lambda name: SimpleNamespace(experiments=lambda profile, seeds: runs))
    cm.run(runs[0], store=own)
    cm.run(runs[1], store=other)
    interrupt(runs[2], own)
    before = {path: path.stat().st_mtime_ns for path in own.rglob("*.json")}
    assert sweep.main(["any"], "smoke", "0", jobs=1, store=str(own)) == 0
    out, err = capsys.readouterr()
    assert out == "4 runs: 2 made, 2 already there\n"
    tail = "epochs=2,n_tasks=2,train_per_class=16"
    said = [re.sub(r"\d+ s", "N s", line) for line in err.splitlines()]
    assert said == [
        f"any smoke: 2 of 4 runs, about N s left; now: naive til digits seed 1 {tail} (takes N s)",
        f"any smoke: 3 of 4 runs, about N s left; now: er til digits seed 1 {tail} (takes N s)",
        "any smoke: 4 of 4 runs",
    ]
    assert {path: path.stat().st_mtime_ns for path in before} == before and len(files(own)) == 3 and is_clean(own)
    made = {(run.experiment["method"], run.seed): run for run in Store(own)}
    assert made["naive", 1].seconds_per_epoch[0] == [777.0, 777.0]  # the mark in the checkpoint
    assert made["naive", 1].machine["threads"] == 1
    expected = {key: value for key, value in undisturbed.items() if key != ("er", 0)}
    assert content_of(made.values()) == expected
    assert sweep.main(["any"], "smoke", "0", jobs=1, store=str(own)) == 0
    assert capsys.readouterr().out == "4 runs: 0 made, 4 already there\n"


def interrupt(experiment, folder):
    """Leave a checkpoint after two epochs, with a mark in its times."""
    save, count = Checkpoint.save, iter(range(1, 100))

    def cut(self, method, optimizer, position):
        save(self, method, optimizer, position)
        if next(count) == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", cut)
        with pytest.raises(KeyboardInterrupt):
            cm.run(experiment, store=folder)
    (path,) = folder.rglob("*.ckpt")
    state = unsealed(path.read_bytes(), torch.device("cpu"))
    state["position"]["seconds"][0] = [777.0, 777.0]
    path.write_bytes(sealed(state))


@pytest.mark.faults
def test_a_killed_worker_costs_nothing_and_one_killed_twice_fails_alone(tmp_path, monkeypatch, undisturbed, capsys):
    """The first run's worker dies once in the middle; the second run's worker dies twice; the others are done."""
    runs = wanted()
    monkeypatch.setattr(sweep.grids, "load", lambda name: SimpleNamespace(experiments=lambda profile, seeds: runs))
    killed = []

    def kill(condition):
        until(condition)
        new = until(lambda: [pid for pid in workers_of(os.getpid()) if pid not in killed])
        killed.append(new[0])
        os.kill(new[0], signal.SIGKILL)

    def murder():
        kill(lambda: list(tmp_path.rglob("naive*/seed0*.ckpt")))
        for _ in range(2):
            kill(lambda: list(tmp_path.rglob("naive*/seed0*.json")))

    thread = threading.Thread(target=murder)
    thread.start()
    code = sweep.main(["any"], "smoke", "0", jobs=1, store=str(tmp_path))
    thread.join()
    out, err = capsys.readouterr()
    name = "er til digits seed 0 epochs=2,n_tasks=2,train_per_class=16"
    assert code == 1 and out.splitlines() == [
        "4 runs: 3 made, 0 already there, 1 failed",
        f"failed: {name}: its process was ended by SIGKILL",
    ]
    assert err.count("it is tried once more") == 2 and len(killed) == 3
    assert content_of(Store(tmp_path)) == {key: value for key, value in undisturbed.items() if key != ("er", 0)}
    assert is_clean(tmp_path) and not [path for path in files(tmp_path) if path.suffix == ".ckpt" and "er" not in str(path)]
    assert not workers_of(os.getpid())


@pytest.mark.faults
def test_a_sweep_killed_at_a_random_moment_and_run_again(tmp_path, undisturbed):
    store, out = tmp_path / "store", tmp_path / "out"
    first = Child(store, 2, out)
    until(lambda: list(store.rglob("*.ckpt")))
    moment = random.SystemRandom().uniform(0, 1.5)
    time.sleep(moment)
    workers = workers_of(first.pid)
    os.kill(first.pid, signal.SIGKILL)
    assert first.code() == -signal.SIGKILL
    assert Child(store, 2, out).code() == 0, moment
    assert content_of(Store(store)) == undisturbed, moment
    assert is_clean(store) and {path.suffix for path in files(store)} == {".json"}, (moment, files(store))
    assert out.read_text().startswith("4 runs: ") and len(workers) == 1 and not any(map(sweep.is_alive, workers))


def under_fire(folder, out, epochs, kills, seed, epoch_time):
    """Sweep with two workers until all runs are there, with so many `kill -9` on the way, to workers or to the sweep itself.

    The moments: some checkpoint writes and up to two epochs after a worker has appeared, both drawn; with 0 writes it is hit
    while it starts. A sweep that was killed, or in which a run failed because its worker was killed twice, is begun again.
    """
    draw, kinds = random.Random(seed), ["sweep"] * (kills // 3) + ["worker"] * (kills - kills // 3)
    draw.shuffle(kinds)
    child = Child(folder, epochs, out, jobs=2)
    while kinds:
        until(lambda pid=child.pid, alive=child.process.is_alive: workers_of(pid) or not alive())
        for _ in range(draw.choice((0, 1, 1, 2, 3))):
            before = writes(folder)
            until(lambda before=before, alive=child.process.is_alive: writes(folder) != before or not alive())
        time.sleep(draw.uniform(0, 2 * epoch_time))
        if not child.process.is_alive():
            assert child.code() == 1, f"the runs were done before {len(kinds)} of the kills: too little work"
            child = Child(folder, epochs, out, jobs=2)
            continue
        victims = sorted(workers_of(child.pid)) if kinds[0] == "worker" else [child.pid]
        if victims:
            with suppress(ProcessLookupError):
                os.kill(draw.choice(victims), signal.SIGKILL)
                if kinds.pop(0) == "sweep":
                    assert child.code() == -signal.SIGKILL
                    child = Child(folder, epochs, out, jobs=2)
    for _ in range(3):  # in the last one nothing was killed
        if child.code() == 0:
            return
        child = Child(folder, epochs, out, jobs=2)
    raise AssertionError("the sweep does not come to an end")


def writes(folder):
    """What changes whenever a checkpoint or a result is written."""
    found = []
    for path in folder.rglob("seed*"):
        with suppress(FileNotFoundError):
            found.append((path, path.stat().st_ino))
    return sorted(found)


def check_under_fire(tmp_path, epochs, kills, seed):
    data, store = cm.datasets.load("digits"), tmp_path / "store"
    undisturbed = [cm.run(one, data) for one in wanted(epochs)]
    epoch_time = max(seconds for run in undisturbed for task in run.seconds_per_epoch for seconds in task)
    under_fire(store, tmp_path / "out", epochs, kills, seed, epoch_time)
    assert content_of(Store(store)) == content_of(undisturbed)
    assert is_clean(store) and {path.suffix for path in files(store)} == {".json"}


@pytest.mark.faults
def test_three_kills_change_no_result(tmp_path):
    check_under_fire(tmp_path, epochs=4, kills=3, seed=3)


@pytest.mark.slow
def test_twenty_kills_change_no_result(tmp_path):
    check_under_fire(tmp_path, epochs=25, kills=20, seed=20)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("number", "send", "why"),
    [(signal.SIGTERM, os.kill, "ended by SIGTERM"), (signal.SIGINT, os.killpg, "interrupted")],
    ids=["SIGTERM", "Ctrl-C, which all get"],
)
def test_a_signal_leaves_a_clean_store_and_says_how_to_go_on(tmp_path, number, send, why):
    """One run is finished before, one is in the middle; what is said before the first one ends, here and by --status."""
    store, out = tmp_path / "store", tmp_path / "out"
    stored(store, wanted(900)[1], 1.0)
    before = files(store)
    child = Child(store, 900, out)
    until(lambda: list(store.rglob("*.ckpt")))
    workers, told = workers_of(child.pid), sweep.status(Store(store))
    send(child.pid, number)
    assert child.code() == 1 and not out.exists() and len(workers) == 1 and not any(map(sweep.is_alive, workers))
    (checkpoint,) = store.rglob("*.ckpt")
    assert files(store) == sorted([*before, checkpoint])
    assert torch.load(checkpoint, weights_only=True)["position"]["epoch"] >= 1
    name = "naive til digits seed 0 epochs=900,n_tasks=2,train_per_class=16"
    first, *_, last = out.with_suffix(".err").read_text().splitlines()
    assert re.fullmatch(rf"sweep: 1 of 4 runs, about \d+ min left; now: {name} \(takes \d+ min\)", first)
    assert re.fullmatch(
        rf"sweep: 1 of 4 runs, about \d+ min left; now: {name} \(task 1 of 2, epoch \d+ of 900, takes \d+ min\)", told
    )
    assert last == f"sweep: 4 runs: 0 made, 1 already there, 3 left ({why}; the same command continues)"
    assert sweep.status(Store(store)) == f"no sweep works on the store {store}"


def test_status_of_a_dead_sweep(tmp_path, capsys):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    state = {"title": "table1 paper", "process": child.pid, "host": sweep.socket.gethostname()}
    dead, odd = tmp_path / f".sweep-{child.pid}.status", tmp_path / ".sweep-1.status"
    dead.write_text(json.dumps(state))
    odd.write_text("half")
    assert cli.main(["sweep", "--status", "--store", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "table1 paper: its process has died; the same command continues\n" and files(tmp_path) == [
        odd
    ]
    assert cli.main(["sweep", "--status", "--store", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out == f"no sweep works on the store {tmp_path / 'none'}\n"


def test_on_a_terminal_progress_is_one_line_that_fits(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    made = sweep.Sweep([], Store("nowhere"), None, 1, "any")
    made._say("x" * 100)
    made._say("short")
    made._say("failed: " + "y" * 50, keep=True)
    assert capsys.readouterr().err == f"\r\x1b[K{'x' * 39}\r\x1b[Kshort\r\x1b[Kfailed: {'y' * 50}\n"


def test_ctrl_c_leaves_no_run_out_of_the_account(tmp_path, monkeypatch, capsys):
    """Also where a backend of joblib's spreads the runs: one is made, three are left."""

    def results(jobs):
        yield sweep.MADE, ""
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep.joblib, "Parallel", lambda **_: results)
    monkeypatch.setitem(sweep.BACKENDS, "threading", "")
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(wanted(), tmp_path, jobs=1, backend="threading")
    assert "4 runs: 1 made, 0 already there, 3 left (interrupted; the same command continues)" in capsys.readouterr().err


def test_what_was_left_of_a_run_does_not_tell_how_long_it_takes(tmp_path):
    (one,) = wanted()[:1]
    made = sweep.Sweep([], Store(tmp_path), None, 1, "any")
    item = sweep.Item(one, tmp_path / "seed0-0.json", DIGEST, begun=True)
    made._ended(item, sweep.MADE, "", 7.0)
    assert not made.times.here
    item.begun = False
    made._ended(item, sweep.MADE, "", 7.0)
    assert made.times.of(one) == 7.0 and made.report.made == 2


def test_a_run_on_other_data_is_none(tmp_path, monkeypatch):
    """A run on a part of the data: the sweep makes the one on all of it, which the table says is missing."""
    (one,) = wanted()[:1]
    stored(tmp_path, one, 1.0, data={"digest": "apart", "rows": 700})
    monkeypatch.setitem(sweep.BACKENDS, "threading", "")  # no process of its own: quicker
    report = sweep.sweep([one], tmp_path, jobs=1, backend="threading")
    assert (report.made, report.found) == (1, 0)
    assert [run.data["digest"] for run in Store(tmp_path)] != ["apart"] and len(files(tmp_path)) == 2


def test_a_run_that_stopped_is_said(tmp_path, monkeypatch):
    one = wanted()[0].but(lr=1e30)
    monkeypatch.setitem(sweep.BACKENDS, "threading", "")
    report = sweep.sweep([one], tmp_path, jobs=1, backend="threading")
    assert report.text().splitlines()[1].startswith("naive til digits seed 0 ") and report.made == 1
    assert ": stopped: the loss is not finite (task 1, epoch 1)" in report.text()


@pytest.mark.faults
def test_two_sweeps_at_once_make_every_run_once(tmp_path, undisturbed):
    """Every result file is written once: it never changes its inode, and the two sweeps made four together."""
    store = tmp_path / "store"
    both, seen = [Child(store, 2, tmp_path / name) for name in ("a", "b")], set()
    while any(one.process.is_alive() for one in both):
        seen |= {(path.name, path.parent.name, path.stat().st_ino) for path in store.rglob("seed*.json")}
        time.sleep(0.05)
    assert [one.code() for one in both] == [0, 0]
    texts = [one.out.read_text() for one in both]
    counts = [re.fullmatch(r"4 runs: (\d) made, (\d) already there(?:, (\d) made by another sweep)?", text) for text in texts]
    numbers = [[int(value or 0) for value in found.groups()] for found in counts]
    assert sum(made for made, _, _ in numbers) == 4 and all(sum(row) == 4 for row in numbers), texts
    assert len(seen) == 4 and content_of(Store(store)) == undisturbed and is_clean(store)


@pytest.mark.faults
def test_the_budget_ends_a_sweep_in_time(tmp_path):
    started = time.monotonic()
    report = sweep.sweep(wanted(900), tmp_path, jobs=1, budget=11)
    assert time.monotonic() - started < 11
    assert (report.made, report.left, report.failed) == (0, 4, {}) and is_clean(tmp_path)
    assert report.text() == "4 runs: 0 made, 0 already there, 4 left (the budget is spent; the same command continues)"
    assert {path.suffix for path in files(tmp_path)} <= {".ckpt"}
    assert sweep.sweep(wanted(900), tmp_path, jobs=1, budget=0.1).left == 4


def test_a_run_that_cannot_be_made_is_listed(tmp_path, monkeypatch):
    """A damaged checkpoint: said in its own words, not tried again; and what another sweep holds is waited for."""
    data, (first, second) = cm.datasets.load("digits"), wanted()[:2]
    shelf = Store(tmp_path)
    path = shelf.path(first, data.digest).with_suffix(".ckpt")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no checkpoint")
    how, why = sweep.attempt(first, str(tmp_path))
    assert how == "failed" and "is damaged" in why and "\n" not in why
    with sweep.claimed(shelf.path(second, data.digest)):
        assert sweep.attempt(second, str(tmp_path)) == ("held", "")
    monkeypatch.setattr(engine, "run", lambda *_, **__: 1 / 0)
    assert sweep.attempt(second, str(tmp_path)) == ("broken", "ZeroDivisionError: division by zero")
    assert files(tmp_path) == [path]


def test_other_backends_of_joblib(tmp_path, monkeypatch, undisturbed):
    """The way through joblib, with a backend that is always there; the first attempt at every run comes to grief."""
    real, calls = sweep.attempt, []

    def once_bad(experiment, *rest):
        calls.append(experiment)
        if len(calls) == 1:
            raise MemoryError("no room")  # ends the whole round, as a lost worker does
        return real(experiment, *rest)

    monkeypatch.setattr(sweep, "attempt", once_bad)
    monkeypatch.setitem(sweep.BACKENDS, "threading", "")
    assert "threading" in joblib.parallel.BACKENDS
    report = sweep.sweep(wanted(), tmp_path, jobs=1, backend="threading")
    assert (report.made, report.failed, report.left) == (4, {}, 0) and len(calls) == 5
    assert content_of(Store(tmp_path)) == undisturbed and is_clean(tmp_path)
    with pytest.raises(cm.OptionError, match="--budget works with --backend loky only"):
        sweep.sweep(wanted(), tmp_path, jobs=1, backend="threading", budget=20)


def test_the_slurm_script_of_the_cluster_page_sweeps_the_grid_it_is_given(monkeypatch):
    """The script as printed, with Slurm and Dask in name only: it asks for the grid, and its exit code is the sweep's."""

    class Stage(MagicMock):  # a context manager, and whatever attribute is asked for
        scheduler_address = "tcp://here:1"

    for name in ("dask", "dask.distributed", "dask_jobqueue"):
        monkeypatch.setitem(sys.modules, name, Stage())
    page = (Path(__file__).parents[2] / "book" / "cluster.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    asked = []
    monkeypatch.setattr(sweep, "sweep", lambda experiments, *_, **more: asked.append((list(experiments), more)) or sweep.Report())
    monkeypatch.setattr(sys, "argv", ["slurm_sweep.py", "table1", "digits", "0-1"])
    with pytest.raises(SystemExit) as ended:
        exec(script, {"__name__": "__main__"})
    ((experiments, _),) = asked
    assert not ended.value.code and experiments == sweep.of_grids(["table1"], "digits", "0-1", "value") and len(experiments) > 20


@pytest.mark.engines
def test_dask_makes_the_same_runs(tmp_path, monkeypatch, undisturbed):
    """Two workers, processes of their own that start in another folder, of a scheduler that Dask's configuration names."""
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)  # the store is named relative to it
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(tmp_path / "dask")
        ) as cluster,
        dask.config.set({"scheduler-address": cluster.scheduler_address}),
    ):
        monkeypatch.chdir("/")
        report = sweep.sweep(wanted(), os.path.relpath(tmp_path / "store"), jobs=2, backend="dask")
    assert report.text() == "4 runs: 4 made, 0 already there"
    store = tmp_path / "store"
    assert content_of(Store(store)) == undisturbed and is_clean(store)


def test_the_exit_code_comes_from_the_command_line(tmp_path, capsys):
    code = cli.main(["sweep", "tabel4", "--profile", "smoke", "--store", str(tmp_path)])
    err = capsys.readouterr().err
    assert code == 2 and err.count("\n") == 1 and "Did you mean 'table4'" in err
    assert json.dumps(files(tmp_path)) == "[]"
