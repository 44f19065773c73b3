"""The script that makes a grid of runs on one GPU, rehearsed on the CPU."""

import importlib.util
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tarfile
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import cmlib as cm
from cmlib import cudagraph
from cmlib.checkpoint import Checkpoint
from cmlib.experiment import identity
from cmlib.store import Store, committed

CI = Path(__file__).parents[1] / ".ci"
SCRIPT = CI / "gpu"
LONG = '[long]\nprofile = "smoke"\ndatasets = ["digits"]\nseeds = [0]\ncells = ["naive-til epochs=400 train_per_class=16"]\n'
TINY = {"train_per_class": 16}


@pytest.fixture(scope="module")
def gpu():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(CI))
        loader = SourceFileLoader("ci_gpu", str(SCRIPT))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader("ci_gpu", loader))
        patch.setitem(sys.modules, "ci_gpu", module)
        loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def work(gpu):
    sys.path.insert(0, str(CI))
    try:
        return importlib.import_module("gpu_work")
    finally:
        sys.path.remove(str(CI))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A store with one real run."""
    store = tmp_path_factory.mktemp("finished")
    cm.run(cm.Experiment("digits", "til", "naive", 0, "smoke", **TINY), store=store)
    return store


def folders(tmp_path):
    return ["--store", tmp_path / "store", "--results", tmp_path / "results", "--out", tmp_path / "out"]


def line(tmp_path, *arguments):
    return list(map(str, [sys.executable, SCRIPT, *folders(tmp_path), *arguments]))


def call(tmp_path, *arguments):
    return subprocess.run(line(tmp_path, *arguments), capture_output=True, text=True, check=False, timeout=300)


def toy(tmp_path, text=LONG):
    """Arguments for a grid file with the grid `long`, one process, no self-check."""
    (tmp_path / "grids.toml").write_text(text)
    return ["--grid-file", tmp_path / "grids.toml", "--datasets", "digits", "--grids", "long", "--device", "cpu", "--jobs", "1"]


@pytest.fixture
def inside(gpu, monkeypatch, capsys):
    """The script in this process, which spares an import of torch: arguments -> exit code, output, errors."""
    handlers = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gpu", *map(str, arguments)])
        monkeypatch.setattr(gpu, "START", time.monotonic())
        try:
            return gpu.entry(), *capsys.readouterr()
        finally:
            for name, handler in handlers.items():
                signal.signal(name, handler)

    return run


def checkpoint(path, task, epoch, size=0):
    """A file that stands where a checkpoint does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(size))
    torch.save({"position": {"task": task, "epoch": epoch}, "noise": noise}, path)
    return path


def members(archive):
    with tarfile.open(archive) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar.getmembers()}


# --- the grid ------------------------------------------------------------------------------------------------------


def labels(cells, grid):
    return [cell.label for cell in cells if cell.grid == grid]


def test_the_grid_is_in_order_of_value(gpu):
    grids = gpu.read_grids(CI / "grids.toml")
    names = [name for name in grids if name != "rehearsal"]
    cells = gpu.all_cells(grids, names, list(gpu.DATASETS))
    first = "cm-til cm-cil naive-til naive-cil er-til er-cil cumulative-til cumulative-cil emr-til ewc-til ewc-cil"
    pairs = [word.split("-") for word in f"{first} oewc-til oewc-cil cope-cil".split()]
    assert labels(cells, "first")[:14] == [f"cifar10-{scenario}/{method} seed 0" for method, scenario in pairs]
    repeats = [(m, s, seed) for seed in (1, 2, 3, 4) for m in ("cm", "naive", "er") for s in ("til", "cil")]
    assert labels(cells, "repeats")[:24] == [f"cifar10-{s}/{m} seed {seed}" for m, s, seed in repeats]
    assert labels(cells, "gem")[:2] == ["cifar10-til/gem seed 0", "cifar10-cil/gem seed 0"]
    assert labels(cells, "ssil")[:2] == ["cifar10-cil/ssil seed 0", "cifar10-cil/ssil-epochs=100 seed 0"]
    rest = len(pairs) - 6 + 2 + 2  # pairs of `first` without CM, Naive and ER, then GEM and SS-IL
    sizes = {"first": 14, "repeats": 24, "gem": 2, "ssil": 2, "rest": 4 * rest, "ablations": 17, "small-support": 2}
    sizes |= {"ablations-rest": 4 * 17, "small-support-rest": 4 * 2}
    blocks = []
    for cell in cells:
        block = (cell.experiment.dataset, cell.grid)
        blocks += [block] if block not in blocks else []
        assert blocks[-1] == block, "a grid of one data set is in one piece"
    assert blocks == [(d, g) for d in gpu.DATASETS for g in sizes if d != "tiny-imagenet" or "small" not in g]
    assert all(sum(c.grid == g and c.experiment.dataset == "cifar10" for c in cells) == n for g, n in sizes.items())
    assert {cell.experiment.profile for cell in cells} == {"paper"}


def test_the_ablations_change_one_option(gpu):
    grids = gpu.read_grids(CI / "grids.toml")
    cells = gpu.all_cells(grids, ["ablations", "small-support"], ["cifar10"])
    changed = [(c.experiment.method, c.experiment.scenario, *c.experiment.given.items()) for c in cells]
    wanted = [("cm", "cil", ("projectors", "frozen")), ("cm", "cil", ("merging", "none"))]
    wanted += [("cm", s, ("lam", value)) for value in (0.0, 0.01, 1.0, 10.0) for s in ("til", "cil")]
    wanted += [("cm", s, ("support_size", value)) for value in (10, 50, 200) for s in ("til", "cil")]
    wanted += [(m, "til", ("batch_norm", "private")) for m in ("naive", "er", "ewc")]
    assert sorted(map(str, changed)) == sorted(map(str, wanted))


def test_the_rehearsal_holds_every_method_and_scenario(gpu):
    cells = gpu.all_cells(gpu.read_grids(CI / "grids.toml"), ["rehearsal"], ["digits"])
    pairs = {(name, scenario) for name, method in cm.METHODS.items() for scenario in method.scenarios}
    assert {(cell.experiment.method, cell.experiment.scenario) for cell in cells} == pairs and len(cells) == 2 * len(pairs)


def options(gpu, tmp_path, **changes):
    usual = {"budget": 60.0, "jobs": 1, "check": 0.0, "device": "cpu", "data_root": None, "lines": []}
    folders = {name: tmp_path / name for name in ("store", "results", "out")}
    return gpu.argparse.Namespace(**{**usual, **folders, **changes})


def test_what_the_store_or_the_results_hold_is_not_made_again(gpu, tmp_path, finished):
    cells = gpu.all_cells(gpu.read_grids(CI / "grids.toml"), ["rehearsal"], ["digits"])
    seen = []
    for store, results in (("x", "x"), (finished, "x"), ("x", finished)):
        asked = options(gpu, tmp_path, store=tmp_path / store, results=tmp_path / results)
        seen.append([job.cell.label for job in gpu.Session(asked, cells, None).waiting])
    assert len(seen[0]) == 34 and seen[1] == seen[2]
    assert [name for name in seen[0] if name not in seen[1]] == ["digits-til/naive-train_per_class=16 seed 0"]
    of_the_book = gpu.held([committed().folder])
    assert cm.Experiment("digits", "til", "cm", 0) in {run_of(path) for path in committed().folder.rglob("seed0-*.json")}
    assert gpu.Cell("", cm.Experiment("digits", "til", "cm", 0)).key in of_the_book
    assert gpu.Cell("", cm.Experiment("digits", "til", "cm", 99)).key not in of_the_book


def run_of(path):
    content = json.loads(path.read_text())["experiment"]
    fields = {name: content[name] for name in ("dataset", "scenario", "method", "seed", "profile", "engine")}
    made = cm.Experiment(**fields)
    return made if identity(made.to_dict()) == identity(content) else None


# --- runs ----------------------------------------------------------------------------------------------------------


def test_it_ends_within_fifteen_seconds_before_the_budget(inside, tmp_path, monkeypatch):
    interrupted_run(tmp_path / "store", monkeypatch)
    started, before = time.monotonic(), children(os.getpid())
    code, output, error = inside(*folders(tmp_path), *toy(tmp_path), "--budget", 25, "--check", 0)
    assert 25 - 15 <= time.monotonic() - started <= 25, output + error
    assert code == 0 and "0 runs ended, 0 failed, 1 of 1 are left: the budget is spent" in output
    packed = members(tmp_path / "out" / "grid.tar.gz")
    (kept,) = (tmp_path / "store").rglob("*.ckpt")
    assert list(packed) == ["summary.md", kept.relative_to(tmp_path / "store").as_posix()]
    assert packed["summary.md"].decode() in output
    where = torch.load(kept, weights_only=True)["position"]
    assert f"| task {where['task'] + 1}, {where['epoch']} epoch" in output and 0 < where["epoch"] < 400
    assert set(children(os.getpid())) <= set(before), "no process is left"


def interrupted_run(store, monkeypatch):
    """The run of the grid `long` up to its first checkpoint."""
    save = Checkpoint.save

    def save_and_stop(self, *state):
        save(self, *state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Checkpoint, "save", save_and_stop)
        cm.run(cm.Experiment("digits", "til", "naive", 0, "smoke", epochs=400, **TINY), store=store)


def wait_for(condition, process, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.faults
def test_a_killed_run_is_tried_once_more_and_an_interruption_packs(inside, tmp_path):
    before = children(os.getpid())
    process = subprocess.Popen(line(tmp_path, *toy(tmp_path), "--check", "0"), stdout=subprocess.PIPE, text=True)
    wait_for(lambda: list((tmp_path / "store").rglob("seed*.ckpt")), process)
    (worker,) = children(process.pid)
    code, _, error = inside(*folders(tmp_path), *toy(tmp_path))  # a second start
    assert code == 2 and f"is in use by process {process.pid}:" in error
    os.kill(worker, signal.SIGKILL)
    (path,) = (tmp_path / "store").rglob("seed*.ckpt")
    stamp = path.stat().st_mtime_ns
    wait_for(lambda: path.stat().st_mtime_ns > stamp, process)  # it goes on
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and "failed, is tried once more: killed by signal 9" in output
    assert "1 of 1 are left: interrupted" in output and len(members(tmp_path / "out" / "grid.tar.gz")) == 2
    assert set(children(os.getpid())) <= set(before), "no process is left"


def test_a_failing_run_is_listed_and_the_others_are_made(inside, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # processes work elsewhere; a folder is meant from here
    text = LONG.replace("naive-til epochs=400 train_per_class=16", 'cm-til support_size=5000", "naive-til train_per_class=16')
    code, output, error = inside(*folders(tmp_path), *toy(tmp_path, text), "--check", 0, "--budget", 120, "--store", "store")
    words = "OptionError: support_size=5000 leaves no training image of some class in task 1"
    assert code == 1 and f"| digits-til/cm-support_size=5000 seed 0 | {words}; the largest that works: " in output, error
    assert output.count("failed, is tried once more") == 1 and output.count("FAILED") == 1
    assert "1 runs ended, 1 failed, 1 of 2 are left: nothing is left but what failed" in output
    (path,) = (tmp_path / "store").rglob("seed*.json")
    run = Store(tmp_path / "store").read(path)
    seconds = f"{sum(sum(task) for task in run.seconds_per_epoch):.1f}"
    numbers = f"{sum(run.R[-1]) / 5:.2f} | {sum(run.R[-1][j] - run.R[j][j] for j in range(4)) / 4:.2f} | {seconds}"
    assert f"| digits-til/naive-train_per_class=16 seed 0 | {numbers} | finished |" in output
    assert "- digits long: 1 of 2 runs" in output


def test_one_start_at_a_time_has_a_store(gpu, tmp_path):
    half = tmp_path / "smoke" / ".seed0-0.json.999999999"  # what a killed process left
    half.parent.mkdir()
    half.touch()
    holder = gpu.lock(tmp_path)
    assert not half.exists() and (tmp_path / ".lock").read_text() == str(os.getpid())
    with pytest.raises(gpu.Refusal, match=f"in use by process {os.getpid()}:"):
        gpu.lock(tmp_path)
    holder.close()
    gpu.lock(tmp_path).close()


# --- self-check and bench ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("double")
def test_the_check_makes_real_steps(work):
    data = work.synthetic()
    assert data.x_train.shape == (400, 3, 32, 32) and torch.equal(data.x_train, work.synthetic().x_train)
    method = cm.fresh(work.small("naive", "til"), data)
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
    assert work.losses(work.small("naive", "til"), data, "cpu") == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ([1.0, 8.0], "ok: losses at most 0.0e+00 apart"),
        ([1.0, 8.008], "ok: losses at most 1.0e-03 apart"),
        ([1.0, 8.08], "FAILED: losses at most 1.0e-02 apart"),
        ([float("nan"), 8.0], "FAILED: losses at most nan apart"),
    ],
)
def test_losses_are_compared(work, found, word):
    assert work.compared(found, [1.0, 8.0]) == word


def test_a_failing_check_is_a_line_and_the_rest_goes_on(work, monkeypatch):
    said = []
    monkeypatch.setattr(work, "bench", lambda *_: "plain 1.00 ms a step")
    monkeypatch.setattr(work, "losses", lambda experiment, data, device: [float(experiment.method == "er" and device == "cpu")])
    monkeypatch.setattr(work, "comparisons", comparisons_on_a_device(work))
    work.check(60, "cpu", said.append)
    assert said[:3] == [f"bench: {name}: plain 1.00 ms a step" for name in ("naive-til", "cm-til", "cm-cil")]
    failed = [text for text in said if "FAILED" in text]
    assert len(said) == 3 + 17 and all("losses at most 1.0e+00 apart" in text for text in failed)
    assert [text.split(":")[1].strip() for text in failed] == ["er-til, device and cpu", "er-cil, device and cpu"]


def comparisons_on_a_device(work):
    """The comparisons as they are on a device that is no CPU, without recordings."""
    real = work.comparisons

    def made(data, device):
        names = ((name, compare) for name, compare in real(data, "device") if "graph" not in name)
        return names

    return made


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("recorded and plain losses at most 1.0e-06 apart", "ok"),
        ("recorded and plain losses at most 1.0e-01 apart", "FAILED"),
        ("steps of this kind are not recorded", "ok"),
        ("recorded losses [1.0] differ from [2.0]", "FAILED"),
    ],
)
def test_recordings_are_judged(work, monkeypatch, text, word):
    monkeypatch.setattr(cudagraph, "check", lambda method: text)
    assert work.against_graph(work.small("naive", "til"), work.synthetic(), "cpu") == f"{word}: {text}"


def test_without_time_the_check_says_what_it_left_out(work, monkeypatch):
    said = []
    monkeypatch.setattr(work, "bench", lambda *_: 1 / 0)
    work.check(0, "cpu", said.append)
    assert said[0] == "bench: naive-til: FAILED: ZeroDivisionError: division by zero"
    assert said[-1].startswith("check: the time did not suffice for 17: ") and said[-1].count("; ") == 16


# --- archive -------------------------------------------------------------------------------------------------------


def test_the_archive_stays_small_and_leaves_out_the_largest(gpu, tmp_path, finished):
    store = tmp_path / "store"
    sizes = {1: 9 * 2**20, 2: 5 * 2**20, 3: 2**20}  # 9 and 5 do not fit together
    for seed, size in sizes.items():
        checkpoint(store / "smoke/digits-til/er" / f"seed{seed}-0000000{seed}.ckpt", 2, 1, size)
    (path,) = finished.rglob("seed*.json")
    copy = store / path.relative_to(finished)
    copy.parent.mkdir(parents=True)
    copy.write_bytes(path.read_bytes())
    archive, text = gpu.gpu_pack.pack(store, tmp_path / "results", tmp_path / "out", gpu.gpu_pack.Report())
    place = "smoke/digits-til/er"
    names = ["summary.md", copy.relative_to(store).as_posix(), f"{place}/seed3-00000003.ckpt", f"{place}/seed2-00000002.ckpt"]
    assert list(members(archive)) == names and archive.stat().st_size < 15 * 2**20
    assert "| digits-til/er seed 1 | task 3, 1 epoch of it | 9.0 MiB, LEFT OUT: the archive is full |" in text
    assert "| digits-til/er seed 2 | task 3, 1 epoch of it | 5.0 MiB, packed |" in text
    archive, text = gpu.gpu_pack.pack(store, tmp_path / "results", tmp_path / "out", gpu.gpu_pack.Report(), limit=2**20 + 2**17)
    assert list(members(archive)) == names[:3] and archive.stat().st_size <= 2**20 + 2**17


def test_what_the_results_hold_is_not_packed(gpu, tmp_path, finished):
    archive, _ = gpu.gpu_pack.pack(finished, finished, tmp_path, gpu.gpu_pack.Report())
    assert list(members(archive)) == ["summary.md"]


def packed(gpu, tmp_path, finished):
    """An archive with a run and two checkpoints."""
    store = tmp_path / "from"
    (path,) = finished.rglob("seed*.json")
    copy = store / path.relative_to(finished)
    copy.parent.mkdir(parents=True)
    copy.write_bytes(path.read_bytes())
    cut = checkpoint(copy.with_name("seed1-00000001.ckpt"), 2, 1), checkpoint(copy.with_name("seed2-00000002.ckpt"), 2, 1)
    archive, _ = gpu.gpu_pack.pack(store, tmp_path / "none", tmp_path / "out", gpu.gpu_pack.Report())
    return archive, store, copy, cut


def test_unpack_puts_everything_in_place(gpu, tmp_path, finished):
    archive, source, run, (first, second) = packed(gpu, tmp_path, finished)
    store, results = tmp_path / "store", tmp_path / "results"
    further = checkpoint(store / first.relative_to(source), 3, 0)
    before = checkpoint(store / second.relative_to(source), 2, 0)
    kept = further.read_bytes()
    lines = gpu.gpu_pack.unpack(archive, store, results)
    assert (results / run.relative_to(source)).read_bytes() == run.read_bytes()
    assert further.read_bytes() == kept and before.read_bytes() == second.read_bytes()
    assert lines[-1] == "1 runs, 1 of 2 checkpoints put in place"
    assert sorted(path.name for path in [*store.rglob("*"), *results.rglob("*")] if path.is_file()) == sorted(
        ["SHA256SUMS", run.name, first.name, second.name]
    )


def test_unpack_leaves_out_checkpoints_of_finished_runs(gpu, tmp_path, finished):
    archive, source, _, (first, _) = packed(gpu, tmp_path, finished)
    done = tmp_path / "results" / first.relative_to(source).with_suffix(".json")
    done.parent.mkdir(parents=True)
    done.write_text("{}")
    assert gpu.gpu_pack.unpack(archive, tmp_path / "store", tmp_path / "results")[-1].startswith("1 runs, 1 of 2 checkpoints")


# --- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data-root", "absent"], "the data root absent is no folder"),
        (["--budget", "-1"], "--budget and --check are 0 or more"),
        (["--budget", "soon"], "argument --budget: invalid float value: 'soon'"),
        (["--jobs", "3", "--rehearse"], "in a rehearsal at most 2"),
        (["--speed", "1"], "unrecognized arguments: --speed 1"),
        (["--rehearse", "--grids", "frist"], "unknown grid 'frist'; allowed: first, repeats, gem"),
        (["--datasets", "cifar11"], "unknown data set 'cifar11'; allowed: digits, cifar10"),
        (["--grid-file", "absent.toml"], "cannot read the grids in absent.toml"),
        (["--data-root", ".", "--datasets", "cifar100"], "no data: data set cifar100: not found"),
        (["--unpack", "absent.tar.gz"], "no file absent.tar.gz"),
    ],
)
def test_bad_input_is_one_line(inside, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, _, error = inside(*arguments)
    assert code == 2 and words in error and error.count("\n") == 1 and error.startswith("gpu: ")


def test_absent_modules_are_named_at_once(inside, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("tqdm", "PIL") else real(name))
    code, _, error = inside("--datasets", "cifar10")
    assert code == 2 and error == f"gpu: {sys.executable} lacks tqdm, PIL (for images)\n"
    code, _, error = inside("--rehearse")
    assert code == 2 and error == f"gpu: {sys.executable} lacks tqdm\n"


@pytest.mark.parametrize("damage", ["cut", "text", "other", "changed", "poor"])
def test_a_damaged_archive_is_one_line_and_changes_nothing(gpu, inside, tmp_path, finished, damage):
    archive, source, run, _ = packed(gpu, tmp_path, finished)
    if damage == "cut":
        archive.write_bytes(archive.read_bytes()[:-2000])
    elif damage == "text":
        archive.write_text("no archive")
    elif damage == "other":
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(CI / "grids.toml", "grids.toml")
    else:
        content = json.loads(run.read_text())
        if damage == "changed":
            content["experiment"]["options"]["lr"] = 0.5
        else:
            del content["experiment"]["seed"]
        run.write_text(json.dumps(content))
        gpu.gpu_pack.write_archive(archive, "", source, [run, *source.rglob("*.ckpt")])
    words = {"other": "neither runs nor checkpoints", "changed": "does not fit its hash", "poor": "no entry 'experiment.seed'"}
    code, _, error = inside("--unpack", archive, *folders(tmp_path))
    assert code == 2 and words.get(damage, "or damaged") in error and error.count("\n") == 1
    assert not (tmp_path / "store").exists() and not (tmp_path / "results").exists()


# --- the rehearsal -------------------------------------------------------------------------------------------------


def matrices(store):
    return {run.id: (run.R, run.R_task_known, run.gradient_steps, run.retained, run.status) for run in Store(store)}


def killed_after(tmp_path, lines, seconds):
    """Start a rehearsal, kill it a while after it has printed so many lines about runs; returns what it printed."""
    process = subprocess.Popen(line(tmp_path, "--rehearse", "--check", "0"), stdout=subprocess.PIPE, text=True)
    printed = "".join(process.stdout.readline() for _ in range(1 + lines))  # the first: "... runs to make"
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    return printed + process.communicate(timeout=60)[0]


@pytest.mark.slow
def test_a_rehearsal_killed_five_times_ends_as_an_undisturbed_one(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    first = call(whole, "--rehearse", "--budget", "280", "--check", "20")  # enough for a machine that has other work
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert first.returncode == 0 and used.ru_utime + used.ru_stime < 100, first.stdout + first.stderr
    assert "34 runs ended, 0 failed, 0 of 34 are left: nothing is left" in first.stdout
    assert first.stdout.splitlines()[0] == "34 of 34 runs to make"
    assert "FAILED" not in first.stdout
    assert re.search(r"^- bench: naive-til: plain \d+\.\d\d ms a step$", first.stdout, re.MULTILINE)
    draws, cut, printed = random.Random(20220812), 0, ""
    for _ in range(5):
        printed += killed_after(broken, draws.randint(0, 6), draws.uniform(0, 1))
        cut += bool(list((broken / "store").rglob("seed*.ckpt")))
    last = call(broken, "--rehearse", "--check", "0", "--budget", "280")
    assert last.returncode == 0 and "0 failed, 0 of 34 are left: nothing is left" in last.stdout, last.stdout + last.stderr
    assert cut >= 1, "no kill fell into a run"
    made = re.findall(r"^(\S+ seed \d): accuracy", printed + last.stdout, re.MULTILINE)
    assert len(made) == len(set(made)), "a run was made twice"
    assert len(matrices(whole / "store")) == 34 and matrices(broken / "store") == matrices(whole / "store")
    assert not list((broken / "store").rglob("*.ckpt")) and not list((broken / "store").rglob(".seed*"))
    put = call(tmp_path, "--unpack", broken / "out" / "grid.tar.gz")
    assert put.returncode == 0 and matrices(tmp_path / "results") == matrices(whole / "store")
    again = call(broken, "--rehearse", "--results", tmp_path / "results", "--store", tmp_path / "empty", "--check", "0")
    assert again.stdout.startswith("0 of 34 runs to make")
