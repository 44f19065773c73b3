"""`cmlib chapters`: parameters checked before anything runs and again inside the notebook, a report, nothing half-written."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest
from handmade import chapter_file

from cmlib import cli
from cmlib.errors import CmlibError, OptionError
from cmlib.teaching import chapters, notebooks, page

PARAMETERS = (
    'profile: str = "digits"  # settings\nseeds: list[int] = [0, 1]  # seeds\n'
    "recompute: bool = False  # train again\nlam: float = 0.5\nlimit = 3\ntop: int | None = None"
)
KNOWN = {"profile": "str", "seeds": "list[int]", "recompute": "bool", "lam": "float", "limit": "int", "top": "int|none"}
ROOT = Path(__file__).resolve().parents[2]
SETUP = "import cmlib as cm\n\ncm.setup(profile)"


def chapter(folder: Path, *cells: str, name: str = "98_tiny", parameters: str = PARAMETERS) -> Path:
    made: list[tuple[Any, ...]] = [("md", "# 98 Tiny"), ("code", parameters, ["parameters"]), *(("code", cell) for cell in cells)]
    return chapter_file(folder / f"{name}.ipynb", made)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- parameters -----------------------------------------------------------------------------------------------------------


def test_parameters_that_a_cell_declares() -> None:
    assert page.declared(PARAMETERS) == KNOWN
    assert page.declared("import sys\nif sys:\n    a = 1\n") == page.declared("%pip install x") == page.declared("") == {}
    assert page.declared("a = b = f(1)\nc: 'int' = 1") == {"a": "str", "b": "str", "c": "int"}


@pytest.mark.parametrize(
    ("value", "kind", "well"),
    [
        (True, "bool", True), ("false", "bool", False), (1, "bool", False),
        (1, "int", True), (True, "int", False), (1.5, "int", False), ("1", "int", False),
        (1, "float", True), (0.5, "float", True), (False, "float", False), ("a", "str", True), (1, "str", False),
        ([0, 1], "list[int]", True), ((0, 1), "sequence[int]", True), ("[0, 1]", "list[int]", False), (["a"], "list[int]", False),
        ([], "list[int]", True), (["a", 1], "list", True), (None, "int|none", True), ("a", "int|none", False),
        ({}, "dict[str,int]", True),
    ],
)  # fmt: skip
def test_values_that_fit_a_type(value: Any, kind: str, well: bool) -> None:
    assert page.fits(value, kind) is well


def test_parameters_get_the_types_that_the_chapter_declares(tmp_path: Path) -> None:
    given = {"profile": "smoke", "seeds": "[3, 4]", "recompute": "false", "lam": "1e-2", "limit": "7", "top": "none"}
    typed = chapters.typed_parameters(chapter(tmp_path), given)
    assert typed == {"profile": "smoke", "seeds": [3, 4], "recompute": False, "lam": 0.01, "limit": 7, "top": None}
    assert all(page.fits(value, KNOWN[name]) for name, value in typed.items())
    assert chapters.typed_parameters(chapter(tmp_path), {"recompute": "True", "top": "2"}) == {"recompute": True, "top": 2}
    assert chapters.typed_parameters(chapter(tmp_path), {}) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("recomputed=true", "no parameter 'recomputed'; it has: profile, seeds.*Did you mean 'recompute'"),
        ("recompute=yes", "'recompute' takes true or false, not 'yes'"),
        ("recompute=1", "'recompute' takes true or false, not '1'"),
        ("seeds=3", r"'seeds' takes a list such as \[0, 1\], not '3'"),
        ("seeds=[a]", "'seeds' takes a value of type int, not 'a'"),
        ("lam=much", "'lam' takes a value of type float, not 'much'"),
        ("limit=2.5", "'limit' takes a value of type int, not '2.5'"),
        ("top=a", "'top' takes a value of type int, not 'a'"),
        ("profile=digit", "unknown profile 'digit'.*Did you mean 'digits'"),
        ("profile=", "unknown profile ''; allowed: "),
        ("seeds=[]", r"parameter 'seeds' is \[\]; allowed: at least one seed, none below 0$"),
        ("seeds=[0, -1]", r"parameter 'seeds' is \[0, -1\]; allowed: at least one seed, none below 0$"),
        ("lam=nan", "parameter 'lam' is nan; allowed: a finite number$"),
        ("lam=inf", "parameter 'lam' is inf; allowed: a finite number$"),
    ],
)
def test_wrong_parameters_are_refused(tmp_path: Path, given: str, message: str) -> None:
    path = chapter(tmp_path)
    with pytest.raises(OptionError, match=message) as error:
        chapters.execute([str(path)], chapters.given_parameters([given]), tmp_path / "out")
    assert "\n" not in str(error.value) and names(tmp_path) == [path.name]


@pytest.mark.parametrize("seeds", ["0", "-1"])
def test_no_seeds_are_refused_by_each_chapter_of_the_book(tmp_path: Path, seeds: str) -> None:
    """Before anything runs; the chapters that have no seeds say so."""
    for path in notebooks.chapters():
        with pytest.raises(
            OptionError, match=rf"'seeds' is {seeds}; allowed: a whole number of at least 1$|no parameter 'seeds'"
        ):
            chapters.execute([str(path)], {"seeds": seeds}, tmp_path / "out")
    assert chapters.typed_parameters(notebooks.chapters()[0], {"seeds": "1"}) == {"seeds": 1} and names(tmp_path) == []


def test_parameters_as_they_are_typed() -> None:
    assert chapters.given_parameters(["a = 1", "b=x=y"], "smoke", True) == {
        "a": "1", "b": "x=y", "profile": "smoke", "recompute": "true",
    }  # fmt: skip
    for bad in (["recompute"], ["=1"]):
        with pytest.raises(OptionError, match=re.escape(f"'-p {bad[0]}' is not of the form name=value")):
            chapters.given_parameters(bad)
    with pytest.raises(OptionError, match="parameter 'profile' is given twice"):
        chapters.given_parameters(["profile=digits"], "smoke")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-p", "lam=1"], "02_second.ipynb has no parameter 'lam'; it has: other."),
        (["-p", "lam"], "'-p lam' is not of the form name=value"),
        (["--only", "1,3"], "no chapter '3'; there are: 01_first, 02_second."),
        (["--only", "1,,2"], "--only 1,,2: expected chapters separated by commas, as in 4,5"),
        (["--jobs", "0"], "--jobs 0: expected a number above 0"),
        (["--out", "book"], "--out book: the chapters themselves lie there"),
        (["--out", "book/01_first.ipynb"], "cannot write to --out book/01_first.ipynb: File exists"),
    ],
)
def test_nothing_runs_after_a_bad_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    """The first of the two chapters has the parameter; all are checked before anything runs."""
    chapter(tmp_path / "book", name="01_first")
    chapter(tmp_path / "book", name="02_second", parameters="other: int = 1")
    monkeypatch.chdir(tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "book").iterdir()}
    assert cli.main(["chapters", *arguments]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"cmlib: {words}\n")
    assert names(tmp_path) == ["book"] and {path: path.read_bytes() for path in (tmp_path / "book").iterdir()} == before


def test_without_chapters_and_with_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no chapters here"):
        chapters.execute(folder=tmp_path)
    (tmp_path / "01_bad.ipynb").write_text("{}")
    with pytest.raises(CmlibError, match=r"01_bad\.ipynb is not a readable notebook"):
        chapters.execute(given={"profile": "smoke"}, out=tmp_path / "out", folder=tmp_path)


def test_without_the_repository_it_is_said_where_the_chapters_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As from a wheel: no `book` beside the package. A folder that is named is taken."""
    monkeypatch.setattr(notebooks, "__file__", str(tmp_path / "site-packages" / "cmlib" / "teaching" / "notebooks.py"))
    monkeypatch.chdir(tmp_path)
    address = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    for arguments in ([], ["--only", "4"], ["--only", "04_cm"]):
        assert cli.main(["chapters", *arguments]) == 2
        error = capsys.readouterr().err
        assert error.startswith("cmlib: there are no chapters here: they come with the repository, not with the package;")
        assert f"git clone {address} " in error and "--only DIR/" in error and error.count("\n") == 1
    chapter(tmp_path / "mine", name="01_a")
    chapter(tmp_path / "mine", name="02_b")
    assert [path.name for path in notebooks.chapters(["mine/"])] == ["01_a.ipynb", "02_b.ipynb"]
    assert cli.main(["chapters", "--only", "mine/", "-p", "seeds=[]"]) == 2
    assert "parameter 'seeds' is []" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    with pytest.raises(OptionError, match=r"\./empty holds no chapters, which are called \[0-9\]\[0-9\]_\*\.ipynb"):
        notebooks.chapters(["./empty"])


def test_without_papermill_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chapters, "find_spec", lambda name: None if name == "papermill" else name)
    with pytest.raises(OptionError, match=r"^chapters need the package papermill: pip install papermill$"):
        chapters.execute([str(chapter(tmp_path))], out=tmp_path / "out")


# -- running --------------------------------------------------------------------------------------------------------------


def test_a_failing_chapter_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other one gets its values, with cm.setup looking at them; both notebooks are whole; one report on both."""
    monkeypatch.chdir(tmp_path)
    bad = chapter(tmp_path / "book", "1", "# no\n{}['key|']\n", name="01_bad")
    good = chapter(tmp_path / "book", SETUP, "(profile, seeds, recompute, lam, limit)", name="02_good")
    before = good.read_bytes()
    out = tmp_path / "deep" / "out"
    out.mkdir(parents=True)
    (out / good.name).write_text("of an earlier call")
    arguments = ["--profile", "smoke", "-p", "seeds=[5]", "--recompute", "--out", str(out), "--jobs", "1"]
    assert cli.main(["chapters", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["01_bad: started (1 of 2)", "02_good: started (2 of 2)"]
    said = captured.out.splitlines()
    assert re.fullmatch(r"01_bad: failed \([\d.]+ s\): cell 3 \(# no\) raised KeyError: 'key\|'", said[0])
    assert re.fullmatch(r"02_good: passed \([\d.]+ s\)", said[1])
    assert said[2] == f"2 chapters: 1 passed, 1 failed; see {out / 'report.md'}"
    assert good.read_bytes() == before and names(out) == [bad.name, good.name, "report.json", "report.md"]
    outputs = [output for cell in read(out / good.name).cells for output in cell.get("outputs", [])]
    assert outputs[0].text.startswith("Profile smoke") and outputs[1].data["text/plain"] == "('smoke', [5], True, 0.5, 3)"
    assert any(output.output_type == "error" for cell in read(out / bad.name).cells for output in cell.get("outputs", []))
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert report["parameters"] == {"seeds": "[5]", "profile": "smoke", "recompute": "true"}
    assert report["counts"] == {"chapters": 2, "passed": 1, "failed": 1, "interrupted": 0}
    assert [(one["chapter"], one["status"]) for one in report["chapters"]] == [("01_bad", "failed"), ("02_good", "passed")]
    assert all(one["seconds"] > 0 for one in report["chapters"])
    text = (out / "report.md").read_text(encoding="utf-8")
    assert "| 01_bad | failed |" in text and r"raised KeyError: 'key\|' |" in text and "seeds=[5], profile=smoke" in text


def call(path: Path, out: Path) -> None:
    """In a process of its own: run one chapter; the exit code tells how it ended."""
    os.setsid()
    sys.exit(chapters.main(None, str(path), out=str(out)))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interruption_leaves_no_half_written_notebook(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C reaches the whole process group. The kernel ends too, and the report says what was not done."""
    seen, out = tmp_path / "pid", tmp_path / "out"
    path = chapter(tmp_path, f"import os, time\nopen({str(seen)!r}, 'w').write(str(os.getpid()))", "time.sleep(60)")
    child = multiprocessing.get_context("fork").Process(target=call, args=(path, out))
    child.start()
    end = time.monotonic() + 120
    while not (seen.is_file() and seen.read_text()):
        assert time.monotonic() < end and child.is_alive()
        time.sleep(0.05)
    kernel = int(seen.read_text())
    assert alive(kernel)
    (os.killpg if number == signal.SIGINT else os.kill)(child.pid or 0, number)
    child.join(60)
    assert child.exitcode == 1 and names(out) == ["report.json", "report.md"]
    (one,) = json.loads((out / "report.json").read_text(encoding="utf-8"))["chapters"]
    assert one["status"] == "interrupted"
    end = time.monotonic() + 10
    while alive(kernel):
        assert time.monotonic() < end, "the kernel goes on"
        time.sleep(0.05)


# -- papermill itself -----------------------------------------------------------------------------------------------------


def inject(monkeypatch: pytest.MonkeyPatch, cell: str, **values: Any) -> None:
    history = ["", "import sys", PARAMETERS, cell, "import cmlib"]
    monkeypatch.setattr(page, "_history", lambda: (history, values))


def test_setup_looks_at_what_papermill_has_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    page._check_injected()  # in no notebook
    inject(monkeypatch, "# Parameters\nseeds = [3]\nlam = 1\n", seeds=[3], lam=1)
    page._check_injected()
    inject(monkeypatch, "anything = 1")
    page._check_injected()
    inject(monkeypatch, '# Parameters\nseeds = "[3]"\n', seeds="[3]")
    with pytest.raises(OptionError, match=r"""'seeds' takes a list such as \[0, 1\], not '\[3\]'; .* -y "seeds: \[0, 1\]"$"""):
        page.setup("digits")
    inject(monkeypatch, '# Parameters\nlimit = "3"\n', limit="3")
    with pytest.raises(OptionError, match=r"'limit' takes a value of type int, not '3'$"):
        page.setup("digits")


def test_setup_refuses_values_without_a_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    for cell, words in {"limit = 3\nseeds = []": "'seeds' is []", "profile = 'smok'": "unknown profile 'smok'"}.items():
        values: dict[str, Any] = {}
        exec(cell, values)
        inject(monkeypatch, f"# Parameters\n{cell}\n", **{name: one for name, one in values.items() if name[0] != "_"})
        with pytest.raises(OptionError) as error:
            page.setup("digits")
        assert words in str(error.value)


def test_papermill_with_an_unknown_parameter_fails_in_one_line(tmp_path: Path) -> None:
    path, out = chapter(tmp_path, SETUP, "1"), tmp_path / "out.ipynb"
    command = [sys.executable, "-m", "papermill", str(path), str(out), "-p", "sedes", "3", "--no-progress-bar"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=notebooks.kernel_environment())
    message = (
        "OptionError: this chapter has no parameter 'sedes'; it has: profile, seeds, recompute, lam, limit, top."
        " Did you mean 'seeds'?"
    )
    assert done.returncode != 0 and message in done.stderr
    (error,) = [o for cell in read(out).cells for o in cell.get("outputs", []) if o.output_type == "error"]
    assert error.traceback == [message]


def test_papermill_with_a_text_for_a_truth_fails(tmp_path: Path) -> None:
    """`papermill -p recompute false` passes the text 'false', which is true."""
    how, why = chapters.execute_one(str(chapter(tmp_path, SETUP)), str(tmp_path / "out.ipynb"), {"recompute": "false"})
    assert how == "failed" and "raised OptionError: parameter 'recompute' takes true or false, not 'false'" in why
    assert why.startswith("cell 2 (import cmlib as cm)") and names(tmp_path) == ["98_tiny.ipynb", "out.ipynb"]
