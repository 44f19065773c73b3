"""The command line: what it prints, that bad input is one line, exit code 2, and nothing written, and what Ctrl-C says."""

import contextlib
import importlib
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import typer
from tiny import tiny_nets

import cmlib as cm
from cmlib import cli, engine, loop, store, version
from cmlib.reproduction import report

ROOT = Path(__file__).parents[2]

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


def test_report_prints_two_tables(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # in this process, where the network is small
    with tiny_nets():
        code, out, _ = call(capsys, "report", "--profile", "smoke", "--store", tmp_path)
    assert code == 0 and "Digits, measured on this machine" in out and "CIFAR-10" in out
    cm_til = [line for line in out.splitlines() if line.startswith("til") and " CM " in line]
    assert "92.72 ± 1.33" in cm_til[1] and "-2.09 ± 0.71" in cm_til[1]


@pytest.mark.faults
def test_exit_code_of_the_process_and_no_traceback():
    command = [sys.executable, "-m", "cmlib.cli", "run", "--set", "lam=-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stdout == ""


# -- interruptions --------------------------------------------------------------------------------------------------------

MOMENTS = {  # the epoch in which a run of two epochs a task is interrupted, and what is said
    1: "interrupted in the first epoch; nothing was kept, the same command begins anew",
    2: "interrupted after task 1, epoch 1 of 2; the same command continues",
    3: "interrupted after task 1, epoch 2 of 2; the same command continues",
    6: "interrupted after task 3, epoch 1 of 2; the same command continues",
}
SMALL = [*QUICK, "--set", "backbone=convnet", "--set", "epochs=2", "--set", "train_per_class=4"]


def interrupting(function, number, after):
    """A function that is interrupted: the call of this number, when it is done or half done."""
    calls = []

    def half_done(*arguments, **named):
        calls.append(1)
        if len(calls) < after:
            return function(*arguments, **named)
        os.kill(os.getpid(), number)
        time.sleep(10)
        os._exit(99)  # the signal was ignored

    return half_done


def in_child(folder, arguments, prepare=lambda: None):
    """Exit code, stdout and stderr of a command in a child process that has the default handlers, whoever started us."""

    def body():
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.stdout, sys.stderr = ((folder / name).open("w", encoding="utf-8") for name in ("out", "err"))
        prepare()
        code = cli.main([str(argument) for argument in arguments])
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)

    child = multiprocessing.get_context("fork").Process(target=body)
    child.start()
    child.join(120)
    return child.exitcode, (folder / "out").read_text(encoding="utf-8"), (folder / "err").read_text(encoding="utf-8")


@pytest.mark.faults
@pytest.mark.parametrize(
    ("epoch", "number"), list(zip(MOMENTS, [signal.SIGINT, signal.SIGTERM] * 2, strict=True)), ids=lambda one: str(int(one))
)
def test_an_interrupted_run_says_where_it_stands_and_goes_on(tmp_path, epoch, number):
    arguments = [*SMALL, "--store", tmp_path / "store", "--json"]

    def prepare():
        loop.train_epoch = interrupting(loop.train_epoch, number, epoch)

    code, out, err = in_child(tmp_path, arguments, prepare)
    assert (code, out, err) == (1, "", f"cmlib: {MOMENTS[epoch]}\n")
    kept = [path.suffix for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert kept == ([".ckpt"] if epoch > 1 else [])


@pytest.mark.faults
def test_the_same_command_after_an_interruption_ends_as_if_undisturbed(tmp_path, capsys):
    def prepare():
        loop.train_epoch = interrupting(loop.train_epoch, signal.SIGINT, 4)

    in_child(tmp_path, [*SMALL, "--store", tmp_path / "cut"], prepare)
    results = [json.loads(call(capsys, *SMALL, "--store", tmp_path / name, "--json")[1]) for name in ("cut", "whole")]
    assert results[0]["R"] == results[1]["R"] and not list(tmp_path.rglob("*.ckpt"))


INTERRUPTED = {  # where each of the other commands is interrupted, and what it says
    "methods": (["methods"], "cmlib.cli", "chosen", "nothing was kept"),
    "datasets": (["datasets"], "cmlib.datasets", "describe", "nothing was kept"),
    "doctor": (["doctor", "--json"], "cmlib.engine", "run", "nothing was kept"),
    "bench": (["bench", "ratios"], "cmlib.machine", "choose_device", "nothing was kept"),
    "report": (["report", "--profile", "smoke"], "cmlib.reproduction.report", "Parallel", "what is finished is kept"),
    "table": (["table", "1"], "cmlib.reproduction.grids", "load", "nothing was kept"),
    "figure": (["figure", "1"], "cmlib.reproduction.figures", "draw", "the same command continues"),
    "claims": (["claims"], "cmlib.reproduction.claims", "judge", "nothing was kept"),
    "errata": (["errata"], "cmlib.reproduction.errata", "measure", "nothing was kept"),
    "sweep": (["sweep", "table1", "--profile", "smoke"], "cmlib.reproduction.sweep", "tidy", "what is finished is kept"),
    "chapters": (["chapters", "--only", "1"], "cmlib.teaching.chapters", "_run_all", "what has ended is in"),
    "publish": (["publish", "store", "--target", "."], "cmlib.reproduction.publish", "publish", "begins anew"),
    "audit": (["audit"], "cmlib.teaching.traced", "audit", "nothing was kept"),
    "export": (["export"], "cmlib.reproduction.export", "export", "nothing was kept"),
}


@pytest.mark.faults
@pytest.mark.parametrize("name", INTERRUPTED)
def test_every_command_says_that_it_was_interrupted(tmp_path, name):
    arguments, module, function, words = INTERRUPTED[name]
    place = importlib.import_module(module)

    def prepare():
        os.environ["CMLIB_STORE"] = str(tmp_path / "store")
        setattr(place, function, interrupting(getattr(place, function), signal.SIGTERM if name == "sweep" else signal.SIGINT, 1))

    code, out, err = in_child(tmp_path, arguments, prepare)
    assert (code, out) == (1, "") and err.count("\n") == 1 and err.startswith("cmlib: interrupted; ") and words in err


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_an_interruption_that_an_import_turns_into_another_error_is_one(tmp_path, number):
    """torch, interrupted while it imports NumPy, goes on and ends with "module 'numpy' has no attribute ..."."""

    def half_imported(*_, **__):
        with contextlib.suppress(KeyboardInterrupt):
            interrupting(print, number, 1)()
        raise AttributeError("module 'numpy' has no attribute 'nonzero'")

    def prepare():
        loop.train_epoch = half_imported

    code, out, err = in_child(tmp_path, [*SMALL, "--store", tmp_path / "store"], prepare)
    assert (code, err) == (
        1,
        "cmlib: interrupted; the training had not begun; the same command begins it\n",
    ) and "Trace" not in out
    code, _, err = in_child(tmp_path, [*SMALL, "--store", tmp_path / "store"], lambda: setattr(loop, "train_epoch", None))
    assert code and "interrupted" not in err  # an error without an interruption stays what it is


# -- one command line -----------------------------------------------------------------------------------------------------


def commands():
    """Every command of the command line, by name, hidden ones too."""
    return typer.main.get_command(cli.app).commands


def test_the_version(capsys):
    assert call(capsys, "--version") == (0, f"cmlib {cm.__version__}\n", "")
    assert metadata()["tool"]["setuptools"]["dynamic"]["version"]["attr"] == "cmlib.version.VERSION"
    assert cm.__version__ == version.VERSION


def metadata():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_completion_of_commands_and_options(capsys, monkeypatch):
    """What the shell asks for when the tabulator is pressed."""
    for words, wanted in [("cmlib ", {"run", "sweep", "table"}), ("cmlib run --da", {"--dataset", "--data-root"})]:
        monkeypatch.setenv("_CMLIB_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        with pytest.raises(SystemExit) as ended:
            cli.main([])
        assert ended.value.code in (0, None) and wanted <= set(capsys.readouterr().out.split())
    options = {text for param in typer.main.get_command(cli.app).params for text in param.opts}
    assert {"--install-completion", "--show-completion", "--version"} <= options


def test_every_option_and_argument_has_a_help_text():
    silent = [(name, param.name) for name, one in commands().items() for param in one.params if not (param.help or "").strip()]
    assert silent == [] and all((one.help or "").strip() for one in commands().values())


@pytest.mark.parametrize("name", commands())
def test_every_command_has_both_ways_to_ask_for_json(name):
    options = {text: param for param in commands()[name].params for text in param.opts}
    assert "json" in options["--format"].help and options["--json"].is_flag
    assert "text" in options["--format"].help or name in ("figure", "export")


JSON = {  # what is printed quickly, and a key of its object
    "methods": ("methods",),
    "datasets": ("datasets",),
    "table 6": ("rows", "tau"),
    "claims": ("claims",),
    "errata": ("errata",),
    "figure 1": ("rows", "alt"),
    "export": ("rows",),
    "sweep table6 --dry-run": ("lines",),
    "doctor": ("lines",),
}


@pytest.mark.parametrize("line", JSON)
def test_json_is_one_object_whichever_way_it_is_asked_for(capsys, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CMLIB_STORE", str(store.committed().folder if line == "export" else tmp_path / "runs"))
    monkeypatch.setattr(engine, "run", lambda *_, **__: Quick)
    for words in (["--json"], ["--format", "json"]):
        code, out, err = call(capsys, *line.split(), *words)
        made = json.loads(out)
        assert code == 0 and err == "" and out.count("\n") == 1 and set(JSON[line]) <= set(made)


class Quick:
    """As much of a run as `doctor` looks at."""

    data, seconds_per_epoch = {"train_rows_used": 30}, [[1.0]]


def test_seeds_are_a_list(capsys, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(report, "digits_rows", lambda shelf, seeds, profile: asked.append(seeds) or [])
    for text, seeds in [("0-2", [0, 1, 2]), ("0,3", [0, 3]), ("3", [3])]:
        code, out, _ = call(capsys, "report", "--seeds", text, "--store", tmp_path, "--json")
        assert code == 0 and asked.pop() == seeds and set(json.loads(out)) == {"digits", "cifar10"}


def test_the_end_of_a_file_decides_what_export_writes(capsys, tmp_path):
    folder = store.committed().folder
    for name, first in [("runs.csv", b"id,dataset"), ("runs.parquet", b"PAR1"), ("runs.json", b'{"rows": [{"id"')]:
        code, out, _ = call(capsys, "export", "--store", folder, "--out", tmp_path / name)
        assert code == 0 and "rows" in out and (tmp_path / name).read_bytes().startswith(first)
    assert json.loads(call(capsys, "export", "--store", folder, "--json")[1]) == json.loads((tmp_path / "runs.json").read_text())


# -- the console ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_any_console_can_show_a_table(monkeypatch, tmp_path, encoding):
    """`±` and `→` are escaped as JSON does where they cannot be shown, so that an object stays one."""
    monkeypatch.setenv("CMLIB_STORE", str(tmp_path))
    for words in (["report", "--profile", "smoke", "--store", tmp_path], ["claims", "--json"], ["table", "1", "--format", "x→"]):
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2))
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        monkeypatch.setattr(report, "digits_rows", lambda *_: [])
        code = cli.main([str(word) for word in words])
        out.flush(), err.flush()
        text = [stream.buffer.getvalue().decode(encoding) for stream in (out, err)]
        if words[0] == "claims":
            assert code == 0 and json.loads(text[0])["claims"]
        elif words[0] == "report":
            assert code == 0 and ("92.72 \\u00b1 1.33" if encoding == "ascii" else "92.72 ± 1.33") in text[0]
        else:
            assert code == 2 and ("x→" if encoding == "utf-8" else "x\\u2192") in text[1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_under_the_output_is_one_line(monkeypatch, capsys):
    with open("/dev/full", "w") as full:
        kept = os.dup(full.fileno())
        monkeypatch.setattr(sys, "stdout", full)
        code = cli.main(["methods", "--json"])
        os.close(kept)
    assert code == 2 and capsys.readouterr().err == "cmlib: cannot write the output: No space left on device\n"


# -- what stays, and what is said of it -----------------------------------------------------------------------------------------


METHOD = '''
import cmlib as cm

print("a word from the file")

@cm.register("quiet")
class Quiet(cm.Method):
    """Trains nothing."""
    scenarios = ("cil",)

    def batches(self, task, epoch):
        print("a word from the run")
        return iter(())
'''


def test_a_method_that_trains_nothing_and_prints_leaves_a_store_that_can_be_read(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = dict(cm.METHODS)
    (tmp_path / "quiet.py").write_text(METHOD)
    try:
        again = ["run", "--method", "quiet.py", "--scenario", "cil", "--profile", "smoke", "--store", "a", "--json"]
        first, second = call(capsys, *again), call(capsys, *again)
    finally:
        cm.METHODS.clear()
        cm.METHODS.update(before)
    assert (first[0], second[0]) == (0, 0), (first, second)
    assert "a word from the run" in first[2] and "a word from the file" in first[2]
    assert json.loads(first[1]) == json.loads(second[1]) and json.loads(first[1])["gradient_steps"] == [0] * 5


def test_accuracies_after_each_epoch_are_not_lost(capsys, tmp_path):
    quick = [*QUICK, "--set", "n_tasks=2"]
    (tmp_path / "results").mkdir()
    call(capsys, *quick, "--store", tmp_path / "a", "--each-epoch")
    call(capsys, "publish", tmp_path / "a", "--target", tmp_path / "results")
    call(capsys, *quick, "--store", tmp_path / "b")
    code, out, _ = call(capsys, "publish", tmp_path / "b", "--target", tmp_path / "results", "--replace")
    (kept,) = store.Store(tmp_path / "results")
    assert code == 0 and "kept: " in out and kept.each_epoch
    cm.train(cm.Experiment("digits", "til", "naive", 0, "smoke", n_tasks=2), store=tmp_path / "a", progress=False)
    (kept,) = store.Store(tmp_path / "a")
    assert kept.each_epoch


def test_ctrl_c_says_what_the_same_command_does_where_a_plain_run_is_stored(capsys, tmp_path, monkeypatch):
    quick = [*QUICK, "--set", "n_tasks=2", "--store", tmp_path]
    call(capsys, *quick)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "measure_epoch", stop)
        code, _, err = call(capsys, *quick, "--each-epoch")
    assert code == 1 and "interrupted in the first epoch" in err and "prints it" not in err
    (left,) = list(tmp_path.rglob("*.json"))
    left.with_suffix(".ckpt").write_bytes(b"of the plain run")
    assert call(capsys, *quick, "--each-epoch")[0] == 0 and not list(tmp_path.rglob("*.ckpt"))


OF_CIL = ["memory_size=7", "merging=offset", "cil_loss=both", "projectors=frozen", "drift_samples=current"]


@pytest.mark.parametrize("text", OF_CIL)
def test_an_option_of_the_other_scenario_is_no_other_run(capsys, tmp_path, text):
    code, out, err = call(capsys, "run", "--profile", "smoke", "--store", tmp_path, "--set", text)
    assert (code, out, list(tmp_path.iterdir())) == (2, "", [])
    assert err == f"cmlib: {text} does nothing with cm in scenario til; allowed in scenario: cil\n"
    here = cm.Experiment("digits", "cil", "cm", profile="smoke", **dict([text.split("=")]))
    assert here.variant == text and here.but(scenario="til") == cm.Experiment("digits", "til", "cm", profile="smoke")
    cm.Experiment("digits", "til", "cm", profile="smoke", memory_size=20)  # as the profile has it: no other run


def test_what_no_memory_holds_is_one_line(capsys, tmp_path):
    quick = ["run", "--profile", "smoke", "--store", tmp_path]
    code, out, err = call(capsys, *quick, "--set", "embedding_size=1000000000")
    assert (code, out, err.count("\n")) == (2, "", 1) and "not enough memory for this: " in err
    code, _, err = call(capsys, *quick, "--set", "memory_size=9223372036854775807", "--method", "er")
    assert code == 2 and "whole numbers up to 1000000000" in err
    code, _, err = call(capsys, *quick, "--method", "ssil", "--scenario", "cil", "--set", "temperature=1e155")
    assert code == 2 and "temperature=1e155 is impossible" in err
    assert not list(tmp_path.rglob("*.json")) and cm.Experiment(seed=2**62).seed == 2**62


def test_a_folder_at_home_is_the_one_at_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store.Store("~/runs").folder == tmp_path / "runs"
    monkeypatch.setenv("CMLIB_STORE", "~/mine")
    assert store.default_folder() == tmp_path / "mine"
