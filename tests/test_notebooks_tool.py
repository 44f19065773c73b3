"""`python -m cmlib.notebooks`: stored outputs that never change by chance, checked parameters, a strict check."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from cmlib import notebooks
from cmlib.errors import CmlibError, OptionError

PARAMETERS = (
    'profile: str = "digits"  # settings\nseeds: list[int] = [0, 1]  # seeds\n'
    "recompute: bool = False  # train again\nlam: float = 0.5\nlimit = 3"
)
SHOW = 'HTML(\'<img alt="A dot." src="data:image/png;base64,AAAA">\')'
CELLS: list[tuple[Any, ...]] = [
    ("md", "# 98 Tiny"),
    ("install",),
    ("code", PARAMETERS, ["parameters"]),
    ("code", "from IPython.display import HTML"),
    ("code", "limit + 1", ["nbval-check-output"]),
    ("code", "(profile, seeds, recompute, lam, limit)", ["nbval-check-output"]),
    ("code", "print('one')\nprint('two')", ["nbval-check-output"]),
    ("code", "limit", ["nbval-check-output"]),
    ("code", SHOW),
]


def chapter(folder: Path, cells: list[tuple[Any, ...]] = CELLS, name: str = "98_tiny") -> Path:
    return notebooks.new_chapter(folder / f"{name}.ipynb", cells)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def edit(path: Path, change: Callable[[Any], None]) -> None:
    book = read(path)
    change(book)
    nbformat.write(book, path)


@pytest.fixture(scope="module")
def refreshed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = chapter(tmp_path_factory.mktemp("book"))
    notebooks.refresh([str(path)])
    return path


@pytest.fixture
def stored(refreshed: Path, tmp_path: Path) -> Path:
    path = tmp_path / refreshed.name
    path.write_bytes(refreshed.read_bytes())
    return path


# --- writing -------------------------------------------------------------------------------------------------------


def test_new_chapter_writes_a_clean_notebook(tmp_path: Path) -> None:
    path = chapter(tmp_path, [("md", "\n    # Title\n    text\n"), ("install",), ("code", "1", ["a"]), ("code", "2")])
    book = read(path)
    nbformat.validate(book)
    assert [cell.source for cell in book.cells] == ["# Title\ntext", notebooks.INSTALL, "1", "2"]
    assert [cell.metadata for cell in book.cells] == [{}, {"tags": ["install", "hide-cell"]}, {"tags": ["a"]}, {}]
    assert book.metadata.kernelspec.name == "python3"
    before = path.read_bytes()
    chapter(tmp_path, [("md", "# Title\ntext"), ("install",), ("code", "1", ["a"]), ("code", "2")])
    assert path.read_bytes() == before


def test_new_chapter_refuses_unknown_kinds(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cell 1: kind 'text'"):
        chapter(tmp_path, [("md", "# T"), ("text", "x")])


def test_the_install_cell_does_nothing_outside_colab() -> None:
    lines = notebooks.INSTALL.splitlines()
    assert [line for line in lines if not line.startswith(("#", "import", " ", "if"))] == [""]
    assert lines[-1] == f"    %pip install -q git+{notebooks.REPOSITORY}"
    assert "google.colab" in lines[-2] and "google.colab" not in sys.modules


def test_the_address_is_that_of_the_package() -> None:
    import tomllib

    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]
    assert project["urls"]["Repository"] == notebooks.REPOSITORY


# --- finding -------------------------------------------------------------------------------------------------------


def test_chapters_are_found_by_number_stem_and_file(tmp_path: Path) -> None:
    first, second = (chapter(tmp_path, name=name) for name in ("01_first", "12_last"))
    chapter(tmp_path, name="draft")
    assert notebooks.chapters(folder=tmp_path) == [first, second]
    for name in ("1", "01", "01_first", "01_first.ipynb", str(first)):
        assert notebooks.chapters([name], tmp_path) == [first]
    with pytest.raises(OptionError, match=r"no chapter '01_frist'.*Did you mean '01_first'"):
        notebooks.chapters(["01_frist"], tmp_path)


# --- refresh -------------------------------------------------------------------------------------------------------


def test_refreshing_twice_gives_the_same_bytes(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = stored.read_bytes()
    assert notebooks.refresh([str(stored)]) == 0
    assert stored.read_bytes() == before
    assert capsys.readouterr().out.startswith("98_tiny.ipynb: unchanged (")


def test_refreshed_notebooks_hold_outputs_and_nothing_else(refreshed: Path) -> None:
    book = read(refreshed)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, 9))
    assert [set(cell.metadata) for cell in book.cells if set(cell.metadata) - {"tags"}] == []
    assert code[3].outputs[0].data == {"text/plain": "4"}
    assert code[5].outputs == [{"name": "stdout", "output_type": "stream", "text": "one\ntwo\n"}]
    assert book.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 / 0", "cell 1 .1 / 0. raised ZeroDivisionError: division by zero"),
        ("import warnings\n\nwarnings.warn('careful')", "cell 1 writes to stderr"),
    ],
)
def test_refresh_leaves_a_bad_notebook_alone(tmp_path: Path, source: str, message: str) -> None:
    path = chapter(tmp_path, [("md", "# T"), ("code", source)])
    before = path.read_bytes()
    with pytest.raises(CmlibError, match=f"98_tiny.ipynb not stored: {message}"):
        notebooks.refresh([str(path)])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# --- check ---------------------------------------------------------------------------------------------------------


def test_a_refreshed_notebook_passes(refreshed: Path) -> None:
    assert notebooks.check([str(refreshed)]) == []


def show(text: str) -> Any:
    return nbformat.v4.new_output("stream", text=text)


def html(text: str) -> Any:
    return nbformat.v4.new_output("display_data", data={"text/html": text})


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (show("read /home/me/data.bin"), "a path of this machine: /home/me"),
        (show("in C:\\Users\\me"), "a path of this machine"),
        (show("<Thing at 0x7f12ab34cd56>"), "a memory address: at 0x7f12ab34cd56"),
        (nbformat.v4.new_output("stream", name="stderr", text="careful"), "writes to stderr: careful"),
        (nbformat.v4.new_output("error", ename="KeyError", evalue="", traceback=[]), "an error output (KeyError)"),
        (html('<img src="data:image/png;base64,AAAA">'), "an image without alt text"),
        (html('<img alt=" " src="data:image/png;base64,AAAA">'), "an image without alt text"),
        (nbformat.v4.new_output("display_data", data={"image/png": "AAAA"}), "a bare figure"),
    ],
)
def test_check_finds_bad_outputs(stored: Path, output: Any, message: str) -> None:
    edit(stored, lambda book: book.cells[4].outputs.append(output))
    assert [message in line for line in notebooks.check([str(stored)])] == [True]


@pytest.mark.parametrize(
    "output",
    [
        show("see https://example.org/home/me and docs/home/page, 3/tmp"),
        html('<img alt="A line." src="data:image/png;base64,/home/root/AAAA">'),
        html("<img alt='A line.' src='a.png'>"),
    ],
)
def test_check_lets_good_outputs_pass(stored: Path, output: Any) -> None:
    edit(stored, lambda book: book.cells[4].outputs.append(output))
    assert notebooks.check([str(stored)]) == []


def without_tag(book: Any) -> None:
    book.cells[4].metadata = {}


def other_install(book: Any) -> None:
    book.cells[1].source += " "


def timing(book: Any) -> None:
    book.cells[3].metadata["execution"] = {"started": "now"}


def count(book: Any) -> None:
    book.cells[3].execution_count = 17


def no_parameters(book: Any) -> None:
    book.cells[2].metadata = {}


def other_kernel(book: Any) -> None:
    book.metadata.kernelspec.display_name = "my env"


def too_big(book: Any) -> None:
    book.cells[4].outputs.append(show("x" * 500_000))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_tag, "3 cells are tagged nbval-check-output; at least 4"),
        (other_install, "the install cell is missing or differs"),
        (timing, "cell 3 has metadata besides tags: execution"),
        (count, "execution counts are not 1..n"),
        (no_parameters, "exactly one cell tagged parameters"),
        (other_kernel, "notebook metadata are not clean"),
        (too_big, "kB; at most 500 kB"),
    ],
)
def test_check_finds_what_is_not_clean(stored: Path, change: Callable[[Any], None], message: str) -> None:
    edit(stored, change)
    assert [message in line for line in notebooks.check([str(stored)])] == [True]


# --- execute -------------------------------------------------------------------------------------------------------


def test_parameters_get_the_types_that_the_chapter_declares(tmp_path: Path) -> None:
    given = {"profile": "smoke", "seeds": "[3, 4]", "recompute": "false", "lam": "1e-2", "limit": "7"}
    typed = notebooks.typed_parameters(chapter(tmp_path), given)
    assert typed == {"profile": "smoke", "seeds": [3, 4], "recompute": False, "lam": 0.01, "limit": 7}
    assert notebooks.typed_parameters(chapter(tmp_path), {"recompute": "True"}) == {"recompute": True}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"recomputed": "true"}, "no parameter 'recomputed'; it has: profile, seeds.*Did you mean 'recompute'"),
        ({"recompute": "yes"}, "'recompute' takes true or false, not 'yes'"),
        ({"recompute": "1"}, "'recompute' takes true or false, not '1'"),
        ({"seeds": "3"}, r"'seeds' takes a list such as \[0, 1\], not '3'"),
        ({"seeds": "[a]"}, "'seeds' takes a value of type int, not 'a'"),
        ({"lam": "much"}, "'lam' takes a value of type float"),
        ({"limit": "2.5"}, "'limit' takes a value of type int"),
        ({"profile": "digit"}, "unknown profile 'digit'.*Did you mean 'digits'"),
    ],
)
def test_wrong_parameters_are_refused(tmp_path: Path, given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        notebooks.typed_parameters(chapter(tmp_path), given)


def test_execute_runs_with_the_given_values_into_another_folder(stored: Path, tmp_path: Path) -> None:
    before, out = stored.read_bytes(), tmp_path / "deep" / "out"
    arguments = ["execute", str(stored), "--profile", "smoke", "-p", "recompute=true", "-p", "seeds=[5]"]
    assert notebooks.main([*arguments, "--out", str(out)]) == 0
    assert stored.read_bytes() == before
    shown = [o.data["text/plain"] for c in read(out / stored.name).cells for o in c.get("outputs", []) if "data" in o]
    assert "('smoke', [5], True, 0.5, 3)" in shown


def test_nothing_runs_when_one_chapter_lacks_the_parameter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    chapter(tmp_path / "book", name="01_first")
    chapter(tmp_path / "book", [("code", "other: int = 1", ["parameters"])], name="02_second")
    assert notebooks.main(["execute", "-p", "lam=1"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "error: 02_second.ipynb has no parameter 'lam'; it has: other.\n"
    assert captured.out == "" and not (tmp_path / "_build").exists()


def test_a_failing_cell_ends_with_exit_code_1_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = chapter(tmp_path, [("md", "# T"), ("code", "1"), ("code", "{}['key']")])
    assert notebooks.main(["execute", str(path), "--out", str(tmp_path / "out")]) == 1
    assert "error: 98_tiny.ipynb: cell 2 raised KeyError: 'key'" in capsys.readouterr().err
    assert (tmp_path / "out" / path.name).is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["execute", "-p", "recompute"], "error: '-p recompute' is not of the form name=value\n"),
        (["check", "77"], "error: no chapter '77'; there are: none.\n"),
    ],
)
def test_bad_requests_end_with_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    (tmp_path / "book").mkdir()
    monkeypatch.chdir(tmp_path)
    assert notebooks.main(arguments) == 2
    assert capsys.readouterr().err == message


def test_check_reports_on_the_command_line(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert notebooks.main(["check", str(stored)]) == 0
    stored.write_text(json.dumps({"not": "a notebook"}))
    assert notebooks.main(["check", str(stored)]) == 1
    assert "98_tiny.ipynb is not a readable notebook" in capsys.readouterr().err
