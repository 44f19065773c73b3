"""Bad input over all commands: one line on stderr, exit code 2, nothing printed, nothing written, nothing trained."""

import io
import time

import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from cmlib import cli, loop
from cmlib.reproduction import bench, costs, report, sweep
from cmlib.teaching import chapters

pytestmark = pytest.mark.faults

HUGE, VAST = "9" * 30, "9" * 5000
RUN = ["run", "--profile", "smoke", "--method", "naive"]
BUDGET = ["sweep", "table4", "--profile", "smoke", "--budget"]
PROFILES = "; allowed: paper, digits, mini, smoke."

# Arguments, and words that the one line must hold. {file}: a file; {folder}: an empty folder; {gone}: nothing is there;
# {damaged}: a folder in which the files of CIFAR-10 are none.
TABLE: list[tuple[list[str], list[str]]] = [
    # a command, or none
    (["rum"], ["rum", "run"]),
    (["table"], ["NUMBER"]),
    (["bench"], ["argument", "WHAT"]),
    (["--verson"], ["--verson", "--version"]),
    (["methods", "cm"], ["cm"]),
    (["run", "table1"], ["table1"]),
    (["run", "--sed", "1"], ["--sed"]),
    # empty texts
    (["run", "--profile", ""], ["--profile is empty", "smoke, digits, mini or paper"]),
    (["run", "--store", ""], ["--store is empty", "./runs"]),
    (["run", "--data-root", ""], ["--data-root is empty"]),
    (["run", "--dataset", "  "], ["--dataset is empty", "cifar10"]),
    (["run", "--seed", ""], ["--seed is empty"]),
    (["run", "--device", ""], ["--device is empty", "cuda"]),
    (["run", "--set", ""], ["--set is empty", "name=value"]),
    (["datasets", "--data-root", ""], ["--data-root is empty"]),
    (["doctor", "--store", ""], ["--store is empty"]),
    (["bench", "step", "--profile", ""], ["--profile is empty"]),
    (["bench", "", "--threads", "1"], ["WHAT is empty", "step, epoch"]),
    (["report", "--store", ""], ["--store is empty"]),
    (["report", "--seeds", ""], ["--seeds is empty", "0-4"]),
    (["table", ""], ["NUMBER is empty", "1 to 6"]),
    (["table", "1", "--store", ""], ["--store is empty"]),
    (["figure", "1", "--out", ""], ["--out is empty"]),
    (["claims", "--profile", ""], ["--profile is empty"]),
    (["errata", "--format", ""], ["--format is empty"]),
    (["sweep", "table1", "--store", ""], ["--store is empty"]),
    (["sweep", "table1", "--seeds", ""], ["--seeds is empty"]),
    (["chapters", "--out", ""], ["--out is empty"]),
    (["chapters", "--only", ""], ["--only is empty"]),
    (["publish", ""], ["SOURCE is empty"]),
    (["audit", "--book", ""], ["--book is empty"]),
    (["features"], ["FILE"]),
    (["features", ""], ["FILE is empty"]),
    (["features", "{folder}/x.txt"], [".npz"]),
    (["features", "{folder}/x.npz", "--size", "0"], ["--size", "32"]),
    (["features", "{folder}/x.npz", "--train", "1"], ["--train", "2"]),
    (["course", "--out", ""], ["--out is empty"]),
    (["course", "--out", "{file}"], ["--out", "is a file, not a folder"]),
    (["course", "student"], ["student"]),
    (["grade"], ["FOLDER"]),
    (["grade", ""], ["FOLDER is empty"]),
    (["grade", "{gone}"], ["there is no folder"]),
    (["grade", "{file}"], ["there is no folder"]),
    (["grade", "{folder}"], ["holds no result files"]),
    (["grade", "{folder}", "--chapters", "1,x"], ["--chapters 1,x: expected numbers of chapters separated by commas", "1,3,4"]),
    (["grade", "{folder}", "--chapters", "99"], ["no chapter 99 with exercises; there are: 1, 2"]),
    (["grade", "{folder}", "--format", "xls"], ["unknown format 'xls'; allowed: text, md, csv, json"]),
    (["export", "--out", ""], ["--out is empty"]),
    # an option where its value is missing, given twice, or against another
    (["run", "--store", "--json"], ["--store needs a value", "--json"]),
    (["run", "--seed", "1", "--seed", "2"], ["--seed is given twice"]),
    (["run", "--graphs", "--no-graphs"], ["--graphs is given twice"]),
    (["table", "1", "--format", "md", "--format", "csv"], ["--format is given twice"]),
    (["export", "--store", "{folder}", "--store", "{folder}"], ["--store is given twice"]),
    (["claims", "--format", "md", "--json"], ["--json and --format md exclude each other"]),
    (["run", "--format", "text", "--json"], ["--json and --format text exclude each other"]),
    (["table", "1"] * 2, ["table"]),
    # letters that no name has
    (["run", "--store", "a\nb"], ["--store", "line breaks"]),
    (["run", "--dataset", "digits\n"], ["--dataset", "line breaks"]),
    (["run", "--set", "lam=0.1\nlr=1"], ["--set", "line breaks"]),
    (["table", "1\n"], ["NUMBER", "line breaks"]),
    (["figure", "1", "--out", "a\0b"], ["--out", "control characters"]),
    (["export", "--out", "\x1b[31m.csv"], ["--out", "\\x1b"]),
    (["run", "--dataset", "\udcff"], ["--dataset", "control characters"]),
    (["run", "--dataset", "ｄｉｇｉｔｓ"], ["ｄｉｇｉｔｓ", "allowed: digits"]),
    (["run", "--profile", "smöke"], ["smöke", "Did you mean 'smoke'"]),
    (["bench", "step", "--methods", "cm，er"], ["cm，er"]),
    # numbers
    (["run", "--seed", "nan"], ["seed=nan", "whole number"]),
    (["run", "--seed", "inf"], ["seed=inf"]),
    (["run", "--seed", "1e400"], ["seed=1e400"]),
    (["run", "--seed", "1.5"], ["seed=1.5"]),
    (["run", "--seed", HUGE], [f"seed={HUGE}", "up to 9223372036854775807"]),
    (["run", "--seed", str(2**64)], ["seed=18446744073709551616", "up to 9223372036854775807"]),
    (["run", "--seed", VAST], ["seed=999", "..."]),
    ([*RUN, "--set", f"epochs={HUGE}"], ["epochs=", "up to 1000000000"]),
    ([*RUN, "--set", "epochs=inf"], ["epochs=inf"]),
    ([*RUN, "--set", "lr=1e400"], ["lr=1e400"]),
    ([*RUN, "--set", f"n_tasks={HUGE}"], ["n_tasks="]),
    ([*RUN, "--set", f"train_per_class={HUGE}"], ["train_per_class="]),
    (["bench", "step", "--repeats", "-1"], ["repeats=-1"]),
    (["bench", "step", "--repeats", HUGE], ["repeats="]),
    (["bench", "step", "--threads", "0"], ["threads=0"]),
    (["bench", "step", "--threads", "99999"], ["threads=99999"]),
    (["bench", "step", "--train-per-class", "-1"], ["--train-per-class"]),
    (["bench", "step", "--train-per-class", HUGE], ["--train-per-class"]),
    (["bench", "step", "--batch-size", "nan"], ["--batch-size"]),
    (["bench", "step", "--batch-size", HUGE], ["--batch-size"]),
    (["report", "--seeds", "-1"], ["--seeds -1", "0-4"]),
    (["report", "--seeds", "4-0"], ["--seeds 4-0", "backwards"]),
    (["report", "--seeds", "nan"], ["--seeds nan"]),
    (["report", "--seeds", HUGE], ["--seeds"]),
    (["sweep", "table1", "--seeds", "0;1"], ["--seeds 0;1"]),
    (["sweep", "table1", "--jobs", "0"], ["--jobs 0"]),
    (["sweep", "table1", "--jobs", "few"], ["--jobs"]),
    (["chapters", "--jobs", "0"], ["--jobs 0"]),
    (["chapters", "--only", "99"], ["no chapter '99'"]),
    (["chapters", "--only", VAST], ["no chapter"]),
    (["chapters", "--only", "4,,5"], ["--only 4,,5"]),
    (["table", "0"], ["unknown table '0'"]),
    (["table", "--", "-1"], ["unknown table '-1'"]),
    (["table", "7"], ["cmlib: unknown table '7'; allowed: 1, 2, 3, 4, 5, 6, fair.\n"]),
    (["figure", "2"], ["unknown figure '2'; allowed: 1, 2a, 2b, 3, 4."]),
    (["figure", "5"], ["unknown figure '5'"]),
    *[([*BUDGET, value], ["--budget"]) for value in ("nan", "inf", "-1", "1e400", "soon")],
    (["bench", "step", "--repeats", "0"], ["repeats=0"]),
    (["bench", "step", "--repeats", "few"], ["--repeats"]),
    # options of a run
    (["run", "--method", "naive", "--set", "lam=0.1"], ["naive has no option 'lam'"]),
    (["run", "--set", "lamda=0.1"], ["lamda", "Did you mean 'lam'"]),
    (["run", "--set", "LAM=1"], ["Did you mean 'lam'?"]),
    (["run", "--set", "lam"], ["expected name=value"]),
    (["run", "--set", "lam=0.1", "--set", "lam=0.2"], ["given twice"]),
    (["run", "--set", "lam=-0.1"], ["lam=-0.1", "at least 0"]),
    (["run", "--set", "lam=nan"], ["lam=nan", "at least 0"]),
    (["run", "--set", "lam=much"], ["lam=much", "a number"]),
    (["run", "--set", "epochs=0"], ["epochs=0", "at least 1"]),
    (["run", "--set", "epochs=1.5"], ["epochs=1.5", "a whole number"]),
    (["run", "--set", "batch_size=1"], ["batch_size=1", "at least 2"]),
    (["run", "--set", "lr=0"], ["lr=0", "above 0"]),
    (["run", "--set", "n_tasks=3"], ["n_tasks=3 does not divide the 10 classes", "1, 2, 5, 10"]),
    (["run", "--set", "support_size=5000"], ["support_size=5000", "task 1"]),
    (["run", "--set", "support_size=1"], ["support_size=1", "2 classes"]),
    (["run", "--scenario", "cil", "--set", "memory_size=5"], ["memory_size=5", "10 classes"]),
    (["run", "--set", "merging=offsett"], ["offsett", "Did you mean 'offset'"]),
    (["run", "--set", "train_per_class=9999"], ["train_per_class=9999", "images"]),
    (["run", "--set", "eval_split=train"], ["train", "test, val"]),
    (["run", "--scenario", "cil", "--set", "batch_norm=private"], ["only scenario til"]),
    (
        ["run", "--method", "er", "--set", "batch_norm=private", "--set", "batch_norm_batches=by_task"],
        ["is for a norm that all tasks share", "batch_norm=private"],
    ),
    (["run", "--set", "seed=3"], ["--seed"]),
    (["run", "--seed", "-1"], ["seed=-1"]),
    (["run", "--seed", "one"], ["seed=one", "a whole number"]),
    # names
    (["run", "--method", "cmm"], ["cmm", "Did you mean 'cm'"]),
    (["run", "--method", "CM"], ["Did you mean 'cm'?"]),
    (["run", "--dataset", "digit"], ["digit", "Did you mean 'digits'"]),
    (["run", "--scenario", "dil"], ["dil", "til, cil"]),
    (["run", "--scenario", "CIL"], ["Did you mean 'cil'?"]),
    (["run", "--profile", "smok"], ["smok", "Did you mean 'smoke'"]),
    (["run", "--device", "tpu"], ["tpu", "auto, cpu"]),
    (["run", "--device", "cpu:7"], ["cpu:7", "auto, cpu"]),
    (["run", "--device", "cuda:-1"], ["cuda:-1"]),
    (["run", "--engine", "torch"], ["torch", "cmlib, avalanche"]),
    (["run", "--preset", "july"], ["july", "Did you mean 'july22'"]),
    (["run", "--format", "csv"], ["csv", "text, json"]),
    (["methods", "--format", "md"], ["md", "text, json"]),
    (["bench", "stepp"], ["Did you mean 'step'"]),
    (["bench", "step", "--profile", "smok"], ["Did you mean 'smoke'"]),
    (["bench", "methods", "--dataset", "digit"], ["Did you mean 'digits'"]),
    (["bench", "step", "--methods", "cmm"], ["Did you mean 'cm'"]),
    (["bench", "step", "--methods", ","], ["unknown method ''"]),
    (["bench", "step", "--methods", "cm,,er"], ["unknown method ''"]),
    (["bench", "step", "--device", "cpu:7"], ["cpu:7"]),
    (["bench", "ratios", "--methods", "cm"], ["bench ratios does not heed --methods"]),
    (["bench", "epoch", "--scenario", "cil"], ["bench epoch does not heed --scenario"]),
    (["bench", "step", "--data-root", "{folder}"], ["--data-root is for --dataset"]),
    (["report", "--profile", "paper"], ["paper", "digits, smoke"]),
    (["table", "one"], ["cmlib: unknown table 'one'; allowed: 1, 2, 3, 4, 5, 6, fair.\n"]),
    (["table", "fairr"], ["allowed: 1, 2, 3, 4, 5, 6, fair. Did you mean 'fair'?"]),
    (["table", "1", "--profile", "Paper"], ["Paper", "Did you mean 'paper'"]),
    (["table", "1", "--profile", "papers"], [f"cmlib: unknown profile 'papers'{PROFILES} Did you mean 'paper'?\n"]),
    (["table", "1", "--format", "xml"], ["cmlib: unknown format 'xml'; allowed: text, md, csv, latex, json.\n"]),
    (["figure", "3", "--profile", "papers"], ["Did you mean 'paper'?"]),
    (["figure", "1", "--format", "svg"], ["unknown format 'svg'; allowed: files, json."]),
    (["figure", "1", "--record"], ["figure with snapshots '1'; allowed: 3, 4."]),
    (["claims", "--profile", "papr"], [f"cmlib: unknown profile 'papr'{PROFILES} Did you mean 'paper'?"]),
    (["claims", "--format", "csv"], ["cmlib: unknown format 'csv'; allowed: text, md, json."]),
    (["errata", "--profile", "head"], ["head"]),
    (["errata", "--profile", "digit"], ["Did you mean 'digits'"]),
    (["sweep", "tabel1"], ["tabel1", "Did you mean 'table1'"]),
    (["sweep", "fairr"], ["switches, fair. Did you mean 'fair'?"]),
    (["sweep", "table1", "--backend", "slurm"], ["slurm", "loky"]),
    (["chapters", "--profile", "nan"], ["nan", "smoke"]),
    (["chapters", "--only", "4", "-p", "seed"], ["-p seed", "name=value"]),
    (["export", "--format", "xlsx"], ["xlsx", "csv, parquet, json"]),
    (["export", "--format", "parquet"], ["--out"]),
    (["export", "--out", "x.xlsx"], ["x.xlsx", ".csv, .parquet, .json", "--format"]),
    (["export", "--out", "x.parquet", "--format", "csv"], ["x.parquet", ".csv"]),
    # files and folders
    (["run", "--dataset", "{file}"], ["work/file"]),
    (["run", "--data-root", "{file}"], ["--data-root", "is no folder"]),
    (["run", "--data-root", "{gone}"], ["--data-root", "is no folder"]),
    (["run", "--dataset", "cifar10", "--data-root", "{gone}"], ["--data-root", "is no folder"]),
    (["run", "--dataset", "cifar10", "--data-root", "{folder}"], ["--data-root", "CMLIB_DATA"]),
    (["run", "--dataset", "cifar10", "--data-root", "{damaged}"], [".parquet"]),
    ([*RUN, "--store", "{file}"], ["cannot write to the store"]),
    ([*RUN, "--store", "{file}/store"], ["cannot write to the store"]),
    ([*RUN, "--store", "a" * 5000], ["name too long"]),
    (["datasets", "--data-root", "{gone}"], ["is no folder"]),
    (["doctor", "--data-root", "{file}"], ["is no folder"]),
    (["doctor", "--store", "{file}"], ["cannot write to the store"]),
    (["bench", "step", "--dataset", "{file}"], ["work/file"]),
    (["report", "--profile", "smoke", "--store", "{file}"], ["cannot write to the store"]),
    (["table", "1", "--store", "{file}"], ["there is no store"]),
    (["table", "1", "--store", "no/such/folder"], ["cmlib: there is no store at no/such/folder\n"]),
    (["table", "1", "--store", "a" * 5000], ["name too long"]),
    (["figure", "3", "--store", "{gone}", "--out", "{folder}/new"], ["there is no store"]),
    (["figure", "4", "--store", "no/such/store"], ["there is no store at no/such/store"]),
    (["figure", "3", "--record", "--profile", "smoke", "--store", "{folder}", "--out", "{file}"], ["--out", "is a file"]),
    (["figure", "1", "--out", "{file}/x"], ["--out", "is a file"]),
    (["claims", "--store", "{file}"], ["there is no store"]),
    (["claims", "--store", "nowhere"], ["cmlib: there is no store at nowhere"]),
    (["errata", "--store", "{gone}"], ["there is no store"]),
    (["chapters", "--only", "1", "--out", "{file}"], ["--out", "exists"]),
    (["publish", "{folder}"], ["--target book/results is no folder", "checkout"]),
    (["publish", "{folder}", "--target", "{folder}"], ["holds no result files"]),
    (["publish", "{gone}", "--target", "{folder}"], ["holds no result files"]),
    (["publish", "{file}", "--target", "{folder}"], ["is not a result file"]),
    (["pack", "{gone}"], ["there is no store"]),
    (["pack", "{file}"], ["there is no store"]),
    (["pack", "{folder}", "--limit", "0"], ["--limit 0", "at least 0.1"]),
    (["pack", "{folder}", "--limit", "nan"], ["--limit nan"]),
    (["pack", "{folder}", "--notes", "{gone}"], ["No such file"]),
    (["pack", "{folder}", "--out", "{file}/x"], ["cannot write"]),
    (["unpack"], ["FILE"]),
    (["unpack", "{file}"], ["--target book/results is no folder", "checkout"]),
    (["unpack", "{gone}", "--target", "{folder}"], ["no file"]),
    (["unpack", "{file}", "--target", "{folder}"], ["no archive", "damaged"]),
    (["sweep", "table1", "table9"], ["table9", "Did you mean"]),
    (["sweep", "table1", "--datasets", "cifar10"], ["cifar10", "digits"]),
    (["sweep", "table1", "--device", "tpu", "--dry-run"], ["tpu", "auto, cpu"]),
    (["doctor", "--device", "tpu"], ["tpu"]),
    (["doctor", "--seconds", "-1"], ["--seconds"]),
    (["audit"], ["there is no store book/results"]),
    (["audit", "--store", "{folder}", "--book", "{file}"], ["no folder"]),
    (["audit", "--store", "{folder}", "--book", "{folder}"], ["nothing to audit"]),
    (["export", "--store", "{file}"], ["there is no store"]),
    (["export", "--store", "{folder}"], ["holds no result files"]),
    (["export", "--store", "{folder}", "--out", "{folder}"], ["is a folder", "runs.csv"]),
    (["tables", "{gone}"], ["no folder"]),
    (["picture", "{folder}"], [".png"]),
]  # fmt: skip


def trained(*_, **__):
    raise AssertionError("something is trained")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder of the call, which holds what the table names; whatever would train raises."""
    work = tmp_path / "work"
    (work / "folder").mkdir(parents=True)
    (work / "file").write_text("no result, no folder, no images")
    (work / "damaged" / "cifar10").mkdir(parents=True)
    for split in ("train", "test"):
        (work / "damaged" / "cifar10" / f"{split}-00000-of-00001.parquet").write_bytes(b"PAR1 this is no parquet file PAR1")
    monkeypatch.chdir(work)
    monkeypatch.setenv("CMLIB_STORE", str(work / "store"))
    monkeypatch.setenv("CMLIB_CACHE", str(work / "cache"))
    monkeypatch.setattr(loop, "train_epoch", trained)
    monkeypatch.setattr(report, "Parallel", trained)
    monkeypatch.setattr(bench, "interleave", trained)
    monkeypatch.setattr(costs, "train_epoch", trained)
    monkeypatch.setattr(chapters, "_run_all", trained)
    monkeypatch.setattr(sweep.Sweep, "work", trained)
    return work


@pytest.mark.parametrize(("arguments", "words"), TABLE, ids=[" ".join(arguments)[:60] for arguments, _ in TABLE])
def test_bad_input_is_one_line_and_nothing_else(arguments, words, folder, capsys, counted):
    for name in ("file", "folder", "gone", "damaged"):
        arguments = [text.replace(f"{{{name}}}", str(folder / name)) for text in arguments]
    before, started = sorted(folder.rglob("*")), time.process_time()
    code = cli.main(arguments)
    seconds = time.process_time() - started
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert err.startswith("cmlib: ") and err.endswith("\n") and err[:-1].isprintable(), err
    assert [word for word in words if word not in err] == [], err
    assert "Traceback" not in err and len(err) < 1100
    assert sorted(folder.rglob("*")) == before
    counted("bad inputs tried"), counted("tracebacks", 0)
    assert seconds < 3  # with the imports of a command; nothing is done besides


def test_images_too_large_for_the_name_of_their_data_set(folder, capsys):
    """64x64 images under the name cifar10: they would be trained on as if they were CIFAR-10's."""
    for split in ("train", "test"):
        content = io.BytesIO()
        Image.new("RGB", (64, 64)).save(content, "PNG")
        images = pyarrow.array([{"bytes": content.getvalue(), "path": None}] * 10)
        table = pyarrow.table({"img": images, "label": pyarrow.array(range(10), pyarrow.int64())})
        parquet.write_table(table, folder / "folder" / f"{split}-00000-of-00001.parquet")
    code = cli.main(["run", "--dataset", "cifar10", "--data-root", str(folder / "folder")])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "") and "holds images of 64x64; those of cifar10 are 32x32x3" in err
    assert err.count("\n") == 1 and not (folder / "store").exists()


def test_every_command_is_tried():
    commands = {arguments[0] for arguments, _ in TABLE}
    assert len(TABLE) >= 60 and len({str(row) for row in TABLE}) == len(TABLE)
    assert {one.callback.__name__ for one in cli.app.registered_commands} <= commands
