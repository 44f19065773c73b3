"""The command line: what it prints, and that bad input is one line, exit code 2, and nothing written."""

import json
import subprocess
import sys

import pytest

from cmlib import cli

QUICK = ["run", "--profile", "smoke", "--method", "naive"]


def call(capsys, *arguments):
    code = cli.main([str(argument) for argument in arguments])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_run_json_is_one_object(capsys, tmp_path):
    code, out, _ = call(capsys, *QUICK, "--store", tmp_path, "--json")
    result = json.loads(out)
    assert code == 0 and len(result["R"]) == 5 and result["experiment"]["profile"] == "smoke"
    assert len(list(tmp_path.rglob("*.json"))) == 1
    code, again, _ = call(capsys, *QUICK, "--store", tmp_path, "--json")
    assert again == out


def test_run_in_words(capsys, tmp_path):
    code, out, err = call(capsys, *QUICK, "--set", "n_tasks=2", "--store", tmp_path)
    lines = out.splitlines()
    assert code == 0 and err == "" and lines[0].startswith("naive-til-digits-seed0-")
    assert lines[1].endswith("a column: on task 1, 2") and lines[2].startswith("after task 1")
    assert "accuracy" in lines[4] and "scalars retained" in lines[5]


def test_methods_and_datasets(capsys):
    code, out, _ = call(capsys, "methods")
    assert code == 0 and all(name in out for name in ("naive", "cumulative", "er", "cm", "lam=0.1", "batch_norm"))
    listed = json.loads(call(capsys, "methods", "--json")[1])
    assert listed["methods"]["cm"]["options"]["support_size"]["default"] == 100
    code, out, _ = call(capsys, "datasets")
    assert code == 0 and all(name in out for name in ("digits", "cifar10", "cifar100", "tiny-imagenet"))


def test_doctor_says_what_is_there(capsys, tmp_path):
    code, out, _ = call(capsys, "doctor", "--store", tmp_path)
    assert code == 0 and "torch" in out and "digits images a second" in out and "can be written" in out


def test_report_prints_two_tables(capsys, tmp_path):
    code, out, _ = call(capsys, "report", "--profile", "smoke", "--store", tmp_path)
    assert code == 0 and "Digits, measured on this machine" in out and "CIFAR-10" in out
    cm_til = [line for line in out.splitlines() if line.startswith("til") and " CM " in line]
    assert "92.72 ± 1.33" in cm_til[1] and "-2.09 ± 0.71" in cm_til[1]


@pytest.fixture
def damaged(tmp_path):
    folder = tmp_path / "data" / "cifar10"
    folder.mkdir(parents=True)
    for name in ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet"):
        (folder / name).write_bytes(b"PAR1 this is no parquet file PAR1")
    return tmp_path / "data"


def bad_inputs():
    """Arguments, and words that the one line must hold."""
    real = "--set"
    return {
        "unknown method": (["--method", "cmm"], ["cmm", "Did you mean 'cm'"]),
        "unknown data set": (["--dataset", "digit"], ["digit", "Did you mean 'digits'"]),
        "unknown scenario": (["--scenario", "dil"], ["dil", "til, cil"]),
        "unknown profile": (["--profile", "smok"], ["smok", "Did you mean 'smoke'"]),
        "unknown option": ([real, "lamda=0.1"], ["lamda", "Did you mean 'lam'"]),
        "option of another method": (["--method", "naive", real, "lam=0.1"], ["naive has no option 'lam'"]),
        "not a pair": ([real, "lam"], ["expected name=value"]),
        "said twice": ([real, "lam=0.1", real, "lam=0.2"], ["given twice"]),
        "negative lambda": ([real, "lam=-0.1"], ["lam=-0.1", "at least 0"]),
        "lambda not a number": ([real, "lam=nan"], ["lam=nan", "at least 0"]),
        "lambda in words": ([real, "lam=much"], ["lam=much", "a number"]),
        "no epochs": ([real, "epochs=0"], ["epochs=0", "at least 1"]),
        "half an epoch": ([real, "epochs=1.5"], ["epochs=1.5", "a whole number"]),
        "batch of one": ([real, "batch_size=1"], ["batch_size=1", "at least 2"]),
        "learning rate zero": ([real, "lr=0"], ["lr=0", "above 0"]),
        "tasks that do not divide": ([real, "n_tasks=3"], ["n_tasks=3 does not divide the 10 classes", "1, 2, 5, 10"]),
        "support larger than the task": ([real, "support_size=5000"], ["support_size=5000", "task 1"]),
        "support smaller than the classes": ([real, "support_size=1"], ["support_size=1", "2 classes"]),
        "memory too small": (["--scenario", "cil", real, "memory_size=5"], ["memory_size=5", "10 classes"]),
        "unknown merging": ([real, "merging=offsett"], ["offsett", "Did you mean 'offset'"]),
        "more images than there are": ([real, "train_per_class=9999"], ["train_per_class=9999", "images"]),
        "unknown split": ([real, "eval_split=train"], ["train", "test, val"]),
        "negative seed": (["--seed", "-1"], ["seed=-1"]),
        "seed in words": (["--seed", "one"], ["seed=one", "a whole number"]),
        "private norm in CIL": (["--scenario", "cil", real, "batch_norm=private"], ["only scenario til"]),
        "an option of its own": ([real, "seed=3"], ["--seed"]),
        "no such device": (["--device", "tpu"], ["tpu", "auto, cpu"]),
        "unknown flag": (["--sed", "1"], ["--sed"]),
    }


@pytest.mark.faults
@pytest.mark.parametrize("case", bad_inputs())
def test_bad_input_is_one_line_and_writes_nothing(capsys, tmp_path, case):
    arguments, words = bad_inputs()[case]
    code, out, err = call(capsys, "run", "--store", tmp_path / "store", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("cmlib: ") and err.count("\n") == 1 and "Traceback" not in err
    assert all(word in err for word in words), err
    assert not (tmp_path / "store").exists()


@pytest.mark.faults
def test_data_that_are_absent_or_damaged(capsys, tmp_path, damaged):
    (tmp_path / "empty").mkdir()
    code, _, err = call(capsys, "run", "--dataset", "cifar10", "--data-root", tmp_path / "empty", "--store", tmp_path / "store")
    assert code == 2 and err.count("\n") == 1 and "--data-root" in err and "CMLIB_DATA" in err
    code, _, err = call(capsys, "run", "--dataset", "cifar10", "--data-root", tmp_path / "none", "--store", tmp_path / "store")
    assert code == 2 and err.count("\n") == 1 and "is no folder" in err
    code, _, err = call(capsys, "run", "--dataset", "cifar10", "--data-root", damaged, "--store", tmp_path / "store")
    assert code == 2 and err.count("\n") == 1 and ".parquet" in err
    assert not (tmp_path / "store").exists()


@pytest.mark.faults
def test_a_store_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    code, _, err = call(capsys, *QUICK, "--store", tmp_path / "file" / "store")
    assert code == 2 and err.count("\n") == 1 and "cannot write to the store" in err


@pytest.mark.faults
def test_exit_code_of_the_process_and_no_traceback():
    command = [sys.executable, "-m", "cmlib.cli", "run", "--set", "lam=-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stdout == ""
