"""A reader's own method: one file in a folder, a file that is named, a package, a notebook; and a new method of cmlib itself."""

from __future__ import annotations

import json
import linecache
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chapter16
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import cmlib as cm
from cmlib import cli, loop
from cmlib.errors import OptionError, StoreError
from cmlib.methods import METHODS, own
from cmlib.methods.base import Method
from cmlib.reproduction import audit, grids, paper, tables
from cmlib.store import Store

PLAIN = '''\
import cmlib as cm


@cm.register("{name}")
class Mine(cm.METHODS["naive"]):
    """Plain training under another name. More words."""

    scenarios = ("cil",)
    options = {{"warmth": cm.Option({default}, "how warm", float, low=0)}}
'''
SMOKE = {"profile": "smoke", "train_per_class": 16}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place to work in with a folder for methods; what a test registers is gone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CMLIB_METHODS", raising=False)
    monkeypatch.setenv("CMLIB_STORE", str(tmp_path / "runs"))
    before = dict(METHODS)
    (tmp_path / own.FOLDER).mkdir()
    yield tmp_path / own.FOLDER
    METHODS.clear()
    METHODS.update(before)
    own._texts.clear()


def write(path: Path, name: str = "mine", default: float = 1.0, text: str = PLAIN) -> Path:
    path.write_text(text.format(name=name, default=default), encoding="utf-8")
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_one_file_is_in_the_list_in_a_run_and_in_table_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder / "anything.py")
    code, out, _ = said(capsys, "methods")
    assert code == 0 and "mine        cil       Plain training under another name. More words [your own]" in out
    assert "warmth=1.0" in out
    code, out, err = said(capsys, "table", "1", "--profile", "smoke", "--format", "json")
    rows = [row for row in json.loads(out)["rows"] if row["method"] == "mine"]
    assert {(row["scenario"], row["n"], row["verdict"]) for row in rows} == {("cil", 0, "not run yet")}
    arguments = ("run", "--method", "mine", "--scenario", "cil", "--profile", "smoke", "--json")
    code, out, err = said(capsys, *arguments)
    assert code == 0, err
    found = json.loads(out)
    _, out, _ = said(capsys, "table", "1", "--profile", "smoke", "--format", "json")
    rows = [row for row in json.loads(out)["rows"] if row["method"] == "mine" and row["metric"] == "accuracy"]
    assert [(row["n"], row["ours"], row["paper"]) for row in rows] == [(1, found["accuracy"], None)]
    _, out, _ = said(capsys, "table", "1", "--profile", "smoke")
    assert any(line.split()[:3] == ["digits", "CIL", "mine"] for line in out.splitlines())
    assert cm.plots.method_colour("mine") == cm.plots.style.OTHER.colour
    code, out, err = said(capsys, "audit", "--store", "runs", "--book", str(folder))
    assert code == 0, out


def test_a_file_that_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(folder.parent / "elsewhere.py", "elsewhere")
    experiment = cm.Experiment("digits", "cil", str(path), profile="smoke")
    assert experiment.method == "elsewhere" and experiment.warmth == 1.0
    code, _, _ = said(capsys, "run", "--method", "elsewhere.py", "--scenario", "cil", "--profile", "smoke", "--json")
    assert code == 0
    (run,) = Store("runs")
    assert run.id.startswith("elsewhere-cil-digits-seed0-") and run.experiment["method"] == "elsewhere"


def test_a_worker_finds_it_too(folder: Path) -> None:
    """Another process, which is only told the experiment."""
    write(folder / "mine.py")
    code = "import cmlib as cm; print(cm.Experiment('digits', 'cil', 'mine', profile='smoke').warmth)"
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=here, check=False)
    assert done.stdout == "1.0\n", done.stderr


def test_an_installed_package_brings_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder.parent / "site"
    (package / "brought-1.0.dist-info").mkdir(parents=True)
    (package / "brought-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    (package / "brought-1.0.dist-info" / "entry_points.txt").write_text(f"[{own.GROUP}]\nbrought = brought_methods\n")
    write(package / "brought_methods.py", "brought")
    monkeypatch.syspath_prepend(str(package))
    assert cm.Experiment("digits", "cil", "brought").warmth == 1.0
    (package / "brought_methods.py").unlink()
    sys.modules.pop("brought_methods")
    with pytest.raises(OptionError, match=r"entry point brought = brought_methods of cmlib\.methods fails: ModuleNotFound"):
        own.load()


def test_import_alone_runs_nothing(folder: Path) -> None:
    write(folder / "loud.py", text="raise SystemExit(3)")
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run([sys.executable, "-c", "import cmlib"], env=here, check=False)
    assert done.returncode == 0


# -- a changed method is another method --------------------------------------------------------------------------------------


def test_a_changed_file_is_another_revision(folder: Path, few_digits: Any) -> None:
    path = write(folder / "mine.py")
    own.load()
    first, run = METHODS["mine"], cm.Experiment("digits", "cil", "mine", **SMOKE)
    assert first.revision > 1 and run.to_dict()["revision"] == first.revision
    own.load()
    assert METHODS["mine"] is first  # read once
    write(path, default=2.0)
    own.load()
    assert METHODS["mine"].revision != first.revision and cm.Experiment("digits", "cil", "mine", **SMOKE).warmth == 2.0
    assert cm.Experiment("digits", "cil", "mine", **SMOKE).hash("d") != run.hash("d")
    write(path, "other")
    own.load()
    assert "mine" not in METHODS and "other" in METHODS


def test_a_revision_of_ones_own_stays(folder: Path) -> None:
    write(folder / "mine.py", text=PLAIN + "    revision = 7\n")
    own.load()
    assert METHODS["mine"].revision == 7


def test_a_run_of_a_method_that_is_gone_hurts_nobody(folder: Path, capsys: pytest.CaptureFixture[str], few_digits: Any) -> None:
    path = write(folder / "mine.py")
    cm.run(cm.Experiment("digits", "cil", "mine", **SMOKE), few_digits, store="runs", progress=False)
    path.unlink()
    del METHODS["mine"]
    for arguments in (("table", "1", "--profile", "smoke"), ("export", "--store", "runs"), ("claims",)):
        code, _, err = said(capsys, *arguments)
        assert code == 0, err
    assert "mine" in said(capsys, "export", "--store", "runs")[1]
    problems = list(audit.check_store(Path("runs"), found := audit.Audit()) and found.problems)
    assert [what for _, what in problems if "unknown method 'mine'" in what]


def test_in_a_notebook_the_decorator_is_enough() -> None:
    def cell(default: float) -> type[Method]:
        class Mine(METHODS["naive"]):  # type: ignore[misc, name-defined]
            options = {"warmth": cm.Option(default, "how warm", float)}

        Mine.__module__ = "__main__"
        return cm.register("cell")(Mine)

    cell(1.0)
    assert cm.Experiment("digits", "til", "cell").warmth == 1.0
    cell(2.0)  # the cell is run again
    assert cm.Experiment("digits", "til", "cell").warmth == 2.0 and METHODS["cell"].own


def test_those_of_the_paper_are_not_a_readers_own() -> None:
    assert not any(method.own for method in METHODS.values())
    assert {cell.method for cell in grids.load("table1").cells("digits")} == {method for method, _ in paper.cells()}
    assert tables.table(1, "smoke", []).rows


# -- the method of chapter 16 ----------------------------------------------------------------------------------------------------


def test_the_pages_method_with_no_other_file_touched(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the list, in a run, in table 1 and in the chapter's plot."""
    (folder / "cosine_cm.py").write_text(chapter16.file_of_the_page(), encoding="utf-8")
    assert "cosine_cm   cil       Match centroids by angle, in one space for all tasks" in said(capsys, "methods")[1]
    run = ("run", "--method", "cosine_cm", "--scenario", "cil", "--profile", "smoke", "--json")
    found = json.loads(said(capsys, *run)[1])
    lines = [line for line in said(capsys, "table", "1", "--profile", "smoke")[1].splitlines() if "cosine CM" in line]
    assert len(lines) == 3 and f"{found['accuracy']:.2f}" in lines[0]
    names: dict[str, Any] = {"cm": cm, "tables": tables, "np": np, "Figure": Figure}
    names |= {"dataset": "digits", "profile": "smoke", "seeds": 1}
    exec(chapter16.drawing(), names)
    (axis,) = names["fig"].axes
    assert "cosine CM" in [label.get_text() for label in axis.get_yticklabels()]
    assert [path.name for path in folder.iterdir() if path.suffix] == ["cosine_cm.py"]


@pytest.mark.engines
def test_the_pages_method_through_both_engines(folder: Path, few_digits: Any) -> None:
    pytest.importorskip("avalanche")
    (folder / "cosine_cm.py").write_text(chapter16.file_of_the_page(), encoding="utf-8")
    experiment = cm.Experiment("digits", "cil", "cosine_cm", **SMOKE)
    plain, other = (cm.run(experiment.but(engine=one), few_digits, progress=False) for one in ("cmlib", "avalanche"))
    assert plain.R == other.R and plain.retained == other.retained


# -- errors for people ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", 'registers no method; put @cm.register("name") above its class'),
        ("import cmlib as cm\n\n1 / 0\n", "cannot be loaded: ZeroDivisionError in line 3: division by zero"),
        ("def half(:\n", "cannot be loaded: SyntaxError in line 1: "),
        ("import nowhere_at_all\n", "cannot be loaded: ModuleNotFoundError in line 1: No module named"),
        (PLAIN.format(name="cm", default=1), "there is a method 'cm' already, in cmlib.methods.cm_readings; choose another name"),
        (PLAIN.format(name="My Method", default=1), "'My Method' cannot be the name of a method; allowed: small letters"),
        (PLAIN.format(name="others", default=1), "'others' cannot be the name of a method"),
        ('import cmlib as cm\n\n@cm.register("x")\nclass X:\n    pass\n', "'x' is no method: its class must have cm.Method"),
        (PLAIN.format(name="x", default=1).replace('"cil"', '"dil"'), "unknown scenario 'dil'; allowed: til, cil"),
    ],
)
def test_a_file_that_does_not_work(folder: Path, capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    (folder / "mine.py").write_text(text, encoding="utf-8")
    before = set(METHODS)
    code, out, err = said(capsys, "methods")
    assert code == 2 and not out and err.count("\n") == 1 and words in err and "mine.py" in err
    assert set(METHODS) == before
    (folder / "mine.py").write_text(PLAIN.format(name="mended", default=1), encoding="utf-8")
    assert said(capsys, "methods")[0] == 0


def test_names_that_lead_nowhere(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "mine.py")
    code, _, err = said(capsys, "run", "--method", "min")
    assert code == 2 and "unknown method 'min'" in err and "or a file, path/to/method.py. Did you mean 'mine'?" in err
    code, _, err = said(capsys, "run", "--method", "absent.py")
    assert code == 2 and "cannot read the method absent.py: No such file or directory" in err
    both = folder.parent / "both.py"
    both.write_text(PLAIN.format(name="one", default=1) + PLAIN.format(name="two", default=1), encoding="utf-8")
    code, _, err = said(capsys, "run", "--method", "both.py")
    assert code == 2 and "both.py registers one and two; put it into the folder cmlib_methods and name one of them" in err
    monkeypatch.setenv("CMLIB_METHODS", str(both))
    assert said(capsys, "methods")[0] == 0
    monkeypatch.setenv("CMLIB_METHODS", "nowhere")
    code, _, err = said(capsys, "methods")
    assert code == 2 and "CMLIB_METHODS=nowhere is neither a folder nor a file" in err
    monkeypatch.setenv("CMLIB_METHODS", "")
    assert own.files() == []


def test_two_files_with_one_name(folder: Path) -> None:
    write(folder / "a.py"), write(folder / "b.py")
    with pytest.raises(OptionError, match=r"b\.py cannot be loaded: there is a method 'mine' already, in .*a\.py"):
        own.load()


def test_files_of_one_name_in_two_folders_are_two(tmp_path: Path, folder: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "mine.py")
    first = own.load_file(tmp_path / "a" / "mine.py")
    with pytest.raises(OptionError, match=r"there is a method 'mine' already, in .*a/mine\.py"):
        own.load_file(tmp_path / "b" / "mine.py")
    assert first == own.load_file(tmp_path / "a" / "mine.py") == ["mine"]


@pytest.mark.engines
def test_avalanche_runs_it_with_the_same_end(folder: Path, few_digits: Any) -> None:
    pytest.importorskip("avalanche")
    write(folder / "mine.py")
    experiment = cm.Experiment("digits", "cil", "mine", **SMOKE)
    plain, other = (cm.run(experiment.but(engine=one), few_digits, progress=False) for one in ("cmlib", "avalanche"))
    assert plain.R == other.R and other.id != plain.id


@pytest.mark.engines
def test_avalanche_needs_the_scores_of_a_batch(folder: Path, few_digits: Any) -> None:
    pytest.importorskip("avalanche")
    text = PLAIN + "\n    def loss(self, x, y, task):\n        return self.backbone.features(x).square().mean()\n"
    write(folder / "mine.py", text=text)
    experiment = cm.Experiment("digits", "cil", "mine", engine="avalanche", **SMOKE)
    with pytest.raises(OptionError, match=r"mine keeps no scores of a batch: take self\.cross_entropy"):
        cm.run(experiment, few_digits, progress=False)


NOTEBOOK = """
import cmlib as cm

import torch

def doubled(value):
    return {factor} * value

def listed(value):
    return {listed} * value

class Scale(torch.nn.Module):
    def forward(self, value):
        return {scale} * value

class Cell(cm.METHODS["naive"]):
    options = {{"warmth": cm.Option({warmth}, "how warm", float)}}
    share = {share}
    places = {places}

    @property
    def weight(self):
        return {weight}

    def loss(self, x, y, task):
        return self.weight * sum([listed(one) for one in [doubled(super().loss(x, y, task))]])

    @torch.no_grad()
    def end_task(self, task):
        Scale()(task.x)
"""


def test_in_a_notebook_whatever_the_class_says_makes_its_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hooks, the helpers that they call, its constants and its options; the same cell again is the same method."""

    def revision(**parts: Any) -> int:
        usual = {"factor": 2, "listed": 1, "scale": 1, "warmth": 1.0, "share": 0.5, "places": {"b", "a"}, "weight": 1}
        text = NOTEBOOK.format(**usual | parts)
        name = f"<cell {hash(text)}>"
        monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(keepends=True), name))
        page = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", page)
        exec(compile(text, name, "exec"), page.__dict__)
        return cm.register("cell")(page.Cell).revision

    first = revision()
    assert first > 1 and revision() == first
    changes = [{"factor": 3}, {"listed": 2}, {"scale": 2}, {"warmth": 2.0}, {"share": 0.1}, {"places": {"c"}}, {"weight": 2}]
    assert len({first, *(revision(**change) for change in changes)}) == 1 + len(changes)
    assert revision(places='{"b", "a"}') == revision(places='{"a", "b"}')


def test_what_a_method_says_of_its_options_holds_in_every_profile() -> None:
    @cm.register("warm")
    class Warm(Method):
        """An own lam, which is not CM's, and another step."""

        options = {"lam": cm.Option(5.0, "weight", float), "memory_size": METHODS["er"].options["memory_size"]}
        defaults = {"til": {"lr": 0.1, "batch_size": 128}}

    one = cm.Experiment("cifar100", "til", "warm")
    assert (one.lam, one.lr, one.batch_size, one.n_tasks, one.variant) == (5.0, 0.1, 128, 10, "")
    assert cm.Experiment("cifar100", "cil", "warm").lr == 0.01 and cm.Experiment("cifar100", "til", "cm").lam == 0.75
    assert cm.Experiment("digits", "til", "warm").memory_size == 50  # an option of the package: the profile's
    Warm.defaults = {"til": {"learning_rate": 0.1}}
    with pytest.raises(OptionError, match="warm has no option 'learning_rate'"):
        cm.Experiment("digits", "til", "warm")


def test_options_may_leave_out_their_type() -> None:
    assert cm.Option(0.5, "weight").parse("w", "0.7") == 0.7 and cm.Option(3, "images").parse("n", 4.0) == 4
    assert cm.Option("soft", "how").parse("how", "hard") == "hard" and cm.Option("soft", "how").allowed() == "a text"
    with pytest.raises(OptionError, match=r"w=warm is impossible; allowed: a number"):
        cm.Option(0.5, "weight").parse("w", "warm")


def test_a_method_that_changes_its_answers_at_the_end_of_a_task_is_measured_after_each_epoch(few_digits: Any) -> None:
    @cm.register("aligned")
    class Aligned(METHODS["er"]):  # type: ignore[misc, name-defined]
        """ER whose heads are cut down to one length."""

        def end_task(self, task: Any) -> None:
            super().end_task(task)
            for head in self.heads:
                head.weight.data.zero_()
                head.bias.data.copy_(-task.index * torch.ones_like(head.bias))

    one = cm.Experiment("digits", "cil", "aligned", **SMOKE, n_tasks=2)
    made = cm.run(one, few_digits, store="runs", progress=False, each_epoch=True)
    assert made.each_epoch[-1][-1] != made.R[-1]
    assert [run.id for run in Store("runs")] == [made.id]


def test_what_a_method_registers_too_late_is_named(few_digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @cm.register("late")
    class Late(METHODS["naive"]):  # type: ignore[misc, name-defined]
        """Registers a buffer when a task ends."""

        def end_task(self, task: Any) -> None:
            self.register_buffer("seen", torch.ones(2))

    one = cm.Experiment("digits", "cil", "late", **SMOKE, n_tasks=2)

    def stopped(_: Any, seen: list[Any], position: Any) -> bool:
        if len(seen) == 2:
            raise KeyboardInterrupt
        position.R.append([50.0])
        return True

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "measure", stopped)
        cm.run(one, few_digits, store="runs", progress=False)
    (kept,) = Path("runs").rglob("*.ckpt")
    why = r"does not fit the method as it is now: seen\. What a method keeps is registered in begin_task"
    with pytest.raises(StoreError, match=why):
        cm.run(one, few_digits, store="runs", progress=False)

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("the card is full")

    monkeypatch.setattr(Late, "begin_task", full)
    with pytest.raises(torch.OutOfMemoryError, match="the card is full"):  # no word of a damaged file
        cm.run(one, few_digits, store="runs", progress=False)
    assert kept.is_file()
