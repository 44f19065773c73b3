"""Runs brought home from another machine: the archive and the way back, the comparison of devices, the script."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import cmlib as cm
from cmlib import cli
from cmlib.checkpoint import sealed
from cmlib.reproduction import grids, pack, selfcheck, sweep
from cmlib.store import Store

ROOT = Path(__file__).resolve().parents[2]
TINY = {"train_per_class": 16}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A store with one real run."""
    store = tmp_path_factory.mktemp("finished")
    cm.run(cm.Experiment("digits", "til", "naive", 0, "smoke", **TINY), store=store)
    return store


def checkpoint(path, task, epoch, size=0):
    """A file that stands where a checkpoint does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(size))
    path.write_bytes(sealed({"position": {"task": task, "epoch": epoch}, "noise": noise, "run": path.stem}))
    return path


def copied(finished, store):
    """The finished run in another store."""
    (path,) = finished.rglob("seed*.json")
    copy = store / path.relative_to(finished)
    copy.parent.mkdir(parents=True)
    shutil.copy(path, copy)
    return copy


def members(archive):
    with tarfile.open(archive) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar.getmembers()}


# -- the archive ----------------------------------------------------------------------------------------------------------


def test_the_archive_stays_small_and_leaves_out_the_largest(tmp_path, finished):
    store, archive, place = tmp_path / "store", tmp_path / "runs.tar.gz", "smoke/digits-til/er"
    sizes = {1: 9 * 2**20, 2: 5 * 2**20, 3: 2**20}  # 9 and 5 do not fit together
    for seed, size in sizes.items():
        checkpoint(store / place / f"seed{seed}-0000000{seed}.ckpt", 2, 1, size)
    copy = copied(finished, store)
    text = pack.pack(store, archive, tmp_path / "results", "a log")
    names = ["summary.md", copy.relative_to(store).as_posix(), f"{place}/seed3-00000003.ckpt", f"{place}/seed2-00000002.ckpt"]
    assert list(members(archive)) == names and archive.stat().st_size < 15 * 2**20
    assert members(archive)["summary.md"].decode() == text and text.endswith("## Notes\n\n```\na log\n```\n")
    assert "| digits-til/er seed 1 | task 3, 1 epoch of it | 9.0 MiB, LEFT OUT: the archive is full |" in text
    assert "| digits-til/er seed 2 | task 3, 1 epoch of it | 5.0 MiB, packed |" in text
    run = Store(finished).read(next(finished.rglob("seed*.json")))
    seconds = f"{sum(map(sum, run.seconds_per_epoch)):.1f}"
    numbers = f"{sum(run.R[-1]) / 5:.2f} | {sum(run.R[-1][j] - run.R[j][j] for j in range(4)) / 4:.2f} | {seconds}"
    assert f"| digits-til/naive-train_per_class=16 seed 0 | {numbers} | finished |" in text
    pack.pack(store, archive, tmp_path / "results", limit=1.2)
    assert list(members(archive)) == names[:3] and archive.stat().st_size <= 1.2 * 2**20


def test_what_the_results_hold_is_not_packed(tmp_path, finished):
    pack.pack(finished, tmp_path / "runs.tar.gz", finished)
    assert list(members(tmp_path / "runs.tar.gz")) == ["summary.md"]


def test_what_is_damaged_is_named_and_not_packed(tmp_path, finished):
    """One damaged file would make the whole archive be refused, when the lent machine is gone."""
    store, archive = tmp_path / "store", tmp_path / "runs.tar.gz"
    copy = copied(finished, store)
    copy.with_name("seed5-00000005.json").write_text("{")
    good = checkpoint(copy.with_name("seed1-00000001.ckpt"), 2, 1)
    copy.with_name("seed2-00000002.ckpt").write_bytes(good.read_bytes()[:-9])
    text = pack.pack(store, archive, tmp_path / "none")
    assert sorted(name.rpartition("/")[2] for name in members(archive)) == ["seed0-" + copy.name[6:], good.name, "summary.md"]
    assert "seed 5 | - | - | - | not a result file, left out |" in text and "| damaged | 0.0 MiB, LEFT OUT |" in text
    assert "the archive is full" not in text
    assert pack.unpack(archive, tmp_path / "new", tmp_path / "results")[-1].startswith("1 runs, 1 of 1 checkpoints put in place")


def test_a_run_of_an_older_revision_does_not_hold_up_the_others(tmp_path, finished, monkeypatch):
    store, archive = tmp_path / "store", tmp_path / "runs.tar.gz"
    copied(finished, store)
    monkeypatch.setattr(cm.METHODS["naive"], "revision", 2)
    cm.run(cm.Experiment("digits", "til", "naive", 1, "smoke", **TINY), store=store, progress=False)
    text = pack.pack(store, archive, tmp_path / "none")
    assert text.count("of an older revision or an unknown method, left out") == 1
    (tmp_path / "results").mkdir()
    assert pack.unpack(archive, tmp_path / "new", tmp_path / "results")[-1].startswith("1 runs, ")


def test_unpack_writes_nothing_when_the_store_takes_nothing(tmp_path, finished):
    archive, *_ = packed(tmp_path, finished)
    (tmp_path / "a file").write_text("x")
    with pytest.raises(cm.StoreError, match="cannot write to the store"):
        pack.unpack(archive, tmp_path / "a file", tmp_path / "results")
    assert not (tmp_path / "results").exists()


def packed(tmp_path, finished):
    """An archive with a run and two checkpoints."""
    store, archive = tmp_path / "from", tmp_path / "runs.tar.gz"
    copy = copied(finished, store)
    cut = checkpoint(copy.with_name("seed1-00000001.ckpt"), 2, 1), checkpoint(copy.with_name("seed2-00000002.ckpt"), 2, 1)
    pack.pack(store, archive, tmp_path / "none")
    return archive, store, copy, cut


def test_unpack_puts_everything_in_place(tmp_path, finished):
    archive, source, run, (first, second) = packed(tmp_path, finished)
    store, results = tmp_path / "store", tmp_path / "results"
    further = checkpoint(store / first.relative_to(source), 3, 0)
    before = checkpoint(store / second.relative_to(source), 2, 0)
    kept = further.read_bytes()
    lines = pack.unpack(archive, store, results)
    assert (results / run.relative_to(source)).read_bytes() == run.read_bytes()
    assert further.read_bytes() == kept and before.read_bytes() == second.read_bytes()
    assert lines[-1] == "1 runs, 1 of 2 checkpoints put in place"
    assert sorted(path.name for path in [*store.rglob("*"), *results.rglob("*")] if path.is_file()) == sorted(
        ["SHA256SUMS", run.name, first.name, second.name]
    )


def test_unpack_leaves_out_checkpoints_of_finished_runs(tmp_path, finished):
    archive, source, _, (first, _) = packed(tmp_path, finished)
    done = tmp_path / "results" / first.relative_to(source).with_suffix(".json")
    done.parent.mkdir(parents=True)
    done.write_text("{}")
    assert pack.unpack(archive, tmp_path / "store", tmp_path / "results")[-1].startswith("1 runs, 1 of 2 checkpoints")


@pytest.mark.parametrize("damage", ["cut", "text", "other", "changed", "poor"])
def test_a_damaged_archive_is_one_line_and_changes_nothing(tmp_path, finished, capsys, damage):
    archive, source, run, _ = packed(tmp_path, finished)
    results, store = tmp_path / "results", tmp_path / "store"
    results.mkdir()
    if damage == "cut":
        archive.write_bytes(archive.read_bytes()[:-2000])
    elif damage == "text":
        archive.write_text("no archive")
    elif damage == "other":
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(ROOT / "LICENSE", "LICENSE")
    else:
        content = json.loads(run.read_text())
        if damage == "changed":
            content["experiment"]["options"]["lr"] = 0.5
        else:
            del content["experiment"]["seed"]
        run.write_text(json.dumps(content))
        archive.write_bytes(pack._archive("as an older `pack` made it", source, sorted(source.rglob("seed*.*"))))
    words = {"other": "neither runs nor checkpoints", "changed": "does not fit its hash", "poor": "no entry 'experiment.seed'"}
    code = cli.main(["unpack", str(archive), "--store", str(store), "--target", str(results)])
    error = capsys.readouterr().err
    assert code == 2 and words.get(damage, "or damaged") in error and error.count("\n") == 1
    assert not store.exists() and not list(results.iterdir())


# -- the comparison of devices --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("double")
def test_the_check_makes_real_steps():
    data = selfcheck.images()
    assert data.x_train.shape == (400, 3, 32, 32) and torch.equal(data.x_train, selfcheck.images().x_train)
    method = cm.fresh(selfcheck.small("naive", "til"), data)
    wanted = []
    for task in method.scenario.tasks[:2]:
        method.begin_task(task)
        method.train()
        velocity = {name: 0 for name, _ in method.named_parameters()}
        for step, (x, y) in enumerate(method.batches(task, 0)):
            if step == 3:
                break
            loss = F.cross_entropy(method.heads[task.index](method.backbone.features(x, task.index)), y - 2 * task.index)
            method.zero_grad()
            loss.backward()
            for name, parameter in method.named_parameters():
                if parameter.grad is not None:
                    velocity[name] = 0.9 * velocity[name] + parameter.grad
                    parameter.data -= 0.01 * velocity[name]
            wanted.append(float(loss.detach()))
    assert selfcheck.losses(selfcheck.small("naive", "til"), data, CPU) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(
    ("found", "good", "text"),
    [
        ([1.0, 8.0], True, "losses at most 0.0e+00 apart"),
        ([1.0, 8.008], True, "losses at most 1.0e-03 apart"),
        ([1.0, 8.08], False, "losses at most 1.0e-02 apart"),
        ([float("nan"), 8.0], False, "losses at most nan apart"),
    ],
)
def test_losses_are_compared(found, good, text):
    assert selfcheck.judged(found, [1.0, 8.0]) == (good, text)


def test_every_method_is_compared_and_what_fails_is_said(monkeypatch):
    gpu = torch.device("cuda")

    def losses(experiment, data, device):
        if experiment.method == "gem":
            raise RuntimeError("no\nkernel")
        return [float(experiment.method == "er" and device == CPU)]

    monkeypatch.setattr(selfcheck, "losses", losses)
    monkeypatch.setattr(selfcheck, "recorded", lambda *_: (True, "recorded and plain losses at most 0.0e+00 apart"))
    found = list(selfcheck.check(gpu, 600))
    assert len(found) == 2 * 17 and {text.split(":")[0] for _, text in found} >= {
        "cm-cil, cuda and cpu",
        "cm-cil, recorded and plain",
    }
    assert sorted(text for good, text in found if not good) == [
        *(f"er-{kind}, cuda and cpu: losses at most 1.0e+00 apart" for kind in ("cil", "til")),
        *(f"gem-{kind}, cuda and cpu: RuntimeError: no kernel" for kind in ("cil", "til")),
    ]
    assert list(selfcheck.check(gpu, 0)) == [(True, "the time did not suffice for 34 more comparisons")]


def test_on_a_cpu_nothing_is_recorded_and_the_steps_agree_with_themselves():
    data = selfcheck.images()
    assert selfcheck.recorded(selfcheck.small("naive", "til"), data, CPU) == (True, "not on CUDA: nothing is recorded")
    assert selfcheck.beside_the_cpu(selfcheck.small("er", "cil"), data, CPU) == (True, "losses at most 0.0e+00 apart")


# -- the script -----------------------------------------------------------------------------------------------------------


def rehearse(tmp_path, **variables):
    folders = {"STORE": str(tmp_path / "store"), "OUT": str(tmp_path / "out"), "PYTHON": sys.executable}
    return subprocess.run(
        [ROOT / ".ci" / "gpu", "--rehearse"],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, **folders, **variables},
    )


@pytest.mark.faults
def test_the_script_ends_within_its_budget_and_brings_home_what_is_there(tmp_path, finished):
    """However little a slow machine makes in so short a time: one run and one checkpoint lie in the store from before."""
    copied(finished, tmp_path / "store")
    checkpoint(tmp_path / "store/smoke/digits-til/er-lr=0.5/seed7-00000007.ckpt", 2, 1)
    done = rehearse(tmp_path, BUDGET="40")
    assert done.returncode == 0, done.stdout + done.stderr
    seconds = int(done.stdout.splitlines()[-1].split(" after ")[1].split()[0])
    assert seconds <= 45, "packing alone comes after the budget"
    there = {path.name for path in (tmp_path / "store").rglob("seed*.*")}
    # a worker that is stopped just after it wrote its run leaves a checkpoint that nobody needs
    there -= {name for name in there if name.endswith(".ckpt") and name.replace(".ckpt", ".json") in there}
    inside = members(tmp_path / "out" / "runs.tar.gz")
    assert {Path(name).name for name in inside} == there | {"summary.md"} and len(there) >= 2
    assert "ok    training: " in inside["summary.md"].decode() and "er-lr=0.5 seed 7 | task 3, 1 epoch of it" in done.stdout
    assert not list((tmp_path / "store").rglob(".seed*"))


@pytest.mark.slow
def test_a_whole_rehearsal(tmp_path):
    done = rehearse(tmp_path, BUDGET="400")
    wanted = grids.load("table1").experiments("smoke", [0]) + grids.load("table6").experiments("smoke", [0])
    made = {(run.experiment["method"], run.experiment["scenario"]) for run in Store(tmp_path / "store")}
    assert done.returncode == 0 and made == {(one.method, one.scenario) for one in wanted}, done.stdout + done.stderr
    (tmp_path / "results").mkdir()
    code = cli.main(
        ["unpack", str(tmp_path / "out/runs.tar.gz"), "--store", str(tmp_path / "s"), "--target", str(tmp_path / "results")]
    )
    assert code == 0 and {run.id: run.R for run in Store(tmp_path / "results")} == {
        run.id: run.R for run in Store(tmp_path / "store")
    }


def asked_of(tmp_path, *arguments, **variables):
    """What the script asks cmlib for, as a Python that only takes notes was told; its exit code and errors."""
    notes, stub = tmp_path / "notes", tmp_path / "python"
    stub.write_text(f'#!/bin/sh\nshift 2\necho "$*" >> {notes}\n')
    stub.chmod(0o755)
    given = {"PYTHON": str(stub), "OUT": str(tmp_path / "out"), "STORE": str(tmp_path / "store"), **variables}
    line = [ROOT / ".ci" / "gpu", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, env={**os.environ, **given}, cwd=tmp_path)
    return [text.split() for text in notes.read_text().splitlines()] if notes.exists() else [], done.returncode, done.stderr


def sweeps(calls):
    """The grids, seeds and data set of each sweep among the calls, by the sweep's own reading."""
    found = []
    for words in (words for words in calls if words[0] == "sweep"):
        value = {name: words[words.index(f"--{name}") + 1] for name in ("seeds", "datasets", "profile")}
        names = words[1 : words.index("--seeds")]
        assert sweep.of_grids(names, value["profile"], value["seeds"], "value", value["datasets"]), "there is nothing to run"
        found.append((*names, value["seeds"], value["datasets"]))
    return found


def test_the_script_runs_what_there_are_images_for(tmp_path):
    for name in ("cifar10", "cifar100", "other"):
        (tmp_path / "data" / name).mkdir(parents=True)
    calls, code, _ = asked_of(tmp_path, "data")
    ablations = ("table3", "table4", "table5", "table6", "switches", "0", "cifar10")
    wanted = [("table1", "0", "cifar10"), ("table1", "1,2", "cifar10"), ablations, ("table1", "3,4", "cifar10")]
    wanted += [("table1", seeds, "cifar100") for seeds in ("0", "1,2", "3,4")]
    assert code == 0 and sweeps(calls) == wanted and [calls[0][0], calls[1][0], calls[-1][0]] == ["doctor", "bench", "pack"]
    assert all(words[words.index("--data-root") + 1] == str(tmp_path / "data") for words in calls if words[0] == "sweep")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [], "what is brought home is the archive alone"


def test_the_script_takes_the_data_sets_named_and_says_when_there_are_none(tmp_path):
    (tmp_path / "data").mkdir()
    calls, code, error = asked_of(tmp_path, tmp_path / "data")
    assert (calls, code) == ([], 2) and error.count("\n") == 1 and "holds none of cifar10/" in error
    calls, code, _ = asked_of(tmp_path, tmp_path / "data", "tiny-imagenet")
    assert code == 0 and {last for *_, last in sweeps(calls)} == {"tiny-imagenet"}
    calls, code, _ = asked_of(tmp_path, tmp_path / "data", "cifar10", BUDGET="20")
    assert [words[0] for words in calls[-3:]] == ["doctor", "bench", "pack"], "a budget too short for a sweep is none"


def test_the_script_explains_itself():
    done = subprocess.run([ROOT / ".ci" / "gpu"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and ".ci/gpu DATA_ROOT [DATASET ...]" in done.stderr and "BUDGET" in done.stderr
