"""`python -m cmlib.teaching.notebooks`: stored outputs that never change by chance, checked parameters, a strict check."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from handmade import chapter_file

from cmlib.errors import CmlibError, OptionError
from cmlib.teaching import lint, notebooks

PARAMETERS = (
    'profile: str = "digits"  # settings\nseeds: list[int] = [0, 1]  # seeds\n'
    "recompute: bool = False  # train again\nlam: float = 0.5\nlimit = 3"
)
SHOW = 'HTML(\'<img alt="A dot." src="data:image/png;base64,AAAA">\')'
CELLS: list[tuple[Any, ...]] = [
    ("md", "# 98 Tiny"),
    ("code", lint.INSTALL, lint.INSTALL_TAGS),
    ("code", PARAMETERS, ["parameters"]),
    ("code", "from IPython.display import HTML"),
    ("code", "limit + 1", ["nbval-check-output"]),
    ("code", "(profile, seeds, recompute, lam, limit)", ["nbval-check-output"]),
    ("code", "print('one')\nprint('two')", ["nbval-check-output"]),
    ("code", "limit", ["nbval-check-output"]),
    ("code", SHOW),
]


def chapter(folder: Path, cells: list[tuple[Any, ...]] = CELLS, name: str = "98_tiny") -> Path:
    return chapter_file(folder / f"{name}.ipynb", cells)


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


# --- the install cell --------------------------------------------------------------------------------------------


def test_the_install_cell_does_nothing_outside_colab() -> None:
    lines = lint.INSTALL.splitlines()
    assert [line for line in lines if not line.startswith(("#", "import", " ", "if"))] == [""]
    assert lines[-1] == f"    %pip install -q git+{lint.REPOSITORY}"
    assert "google.colab" in lines[-2] and "google.colab" not in sys.modules


def test_the_address_is_that_of_the_package() -> None:
    import tomllib

    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())["project"]
    assert project["urls"]["Repository"] == lint.REPOSITORY


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


def display(kind: str, data: Any) -> Any:
    return nbformat.v4.new_output("display_data", data={kind: data})


def html(text: str) -> Any:
    return display("text/html", text)


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
        (display("image/png", "AAAA"), "a bare figure"),
        (display("application/vnd.jupyter.widget-view+json", {"model_id": "x"}), "needs scripts of others"),
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


def many_lines(book: Any) -> None:
    book.cells[4].source = "\n".join(["limit + 1"] * 26)


def wide_line(book: Any) -> None:
    book.cells[4].source = f"limit  # {'x' * 80}"


def many_folded_lines(book: Any) -> None:
    book.cells[4].metadata["tags"] = [*book.cells[4].metadata.get("tags", []), "hide-input"]
    book.cells[4].source = "\n".join([f"limit + 1  # {'x' * 120}"] * 61)


def other_tags(book: Any) -> None:
    book.cells[1].metadata = {"tags": ["install"]}


def two_installs(book: Any) -> None:
    book.cells[3].source = lint.INSTALL


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
        (many_lines, "cell 4 has 26 lines; at most 25"),
        (wide_line, "cell 4, line 1: 89 columns; at most 88"),
        (many_folded_lines, "cell 4 has 61 lines; at most 60"),
        (other_tags, "the install cell is missing or differs"),
        (two_installs, "the install cell is missing or differs"),
    ],
)
def test_check_finds_what_is_not_clean(stored: Path, change: Callable[[Any], None], message: str) -> None:
    edit(stored, change)
    assert [message in line for line in notebooks.check([str(stored)])] == [True]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ('<script src="https://cdn.example.org/x.js"></script>', "loads from another server: https://cdn.example.org/x.js"),
        ("<script>import('https://cdn.example.org/x.js')</script>", "loads from another server: https://cdn.example.org"),
        ('<link rel="stylesheet" href="//cdn.example.org/x.css">', "loads from another server: //cdn.example.org/x.css"),
        ("<style>@import 'https://cdn.example.org/x.css';</style>", "loads from another server: @import"),
        ("<p style=\"background:url('https://cdn.example.org/x.png')\">x</p>", "loads from another server: url("),
        ('<img alt="A cat." src="http://example.org/cat.png">', "loads from another server: http://example.org/cat.png"),
        ('<iframe src="https://example.org"></iframe>', "loads from another server: https://example.org"),
        ('<svg aria-label="A cat."><image href="https://example.org/cat.png"/></svg>', "loads from another server"),
        ('<svg viewBox="0 0 9 9"><path d="M0 0h9"/></svg>', "has an <svg> without alt text"),
        ('<div aria-label="A player"></div><svg viewBox="0 0 9 9"></svg>', "has an <svg> without alt text"),
        ("<canvas></canvas>", "has an <canvas> without alt text"),
    ],
)
def test_check_finds_strangers_and_bare_pictures(stored: Path, page: str, message: str) -> None:
    edit(stored, lambda book: book.cells[4].outputs.append(html(page)))
    found = notebooks.check([str(stored)])
    assert len(found) == 1 and message in found[0]
    edit(stored, lambda book: book.cells[4].outputs.pop())
    edit(stored, lambda book: book.cells[0].update(source=f"# 98 Tiny\n\n{page}"))
    found = notebooks.check([str(stored)])
    assert len(found) == 1 and message in found[0]


NUMBER = "cell 0 types a number: '"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("![](cat.png)", "has an image without alt text"),
        ("![A cat](https://example.org/cat.png)", "loads from another server"),
        ("```{figure} cat.png\nA cat.\n```", "has an image without alt text"),
        (":::{figure} https://example.org/cat.png\n:alt: A cat.\n:::", "loads from another server"),
        ("CM ends at 64.7 %.", NUMBER),
        ("It is **0.5** points better.", NUMBER),
        ("The rate is .5 here.", NUMBER),
        ("- BWT: -21.4 points", NUMBER),
        ("| CM | 64.7 |\n|---|---|\n| ER | 3 |", NUMBER),
        ("```{admonition} Note\nCM ends at 64.7 %.\n```", NUMBER),
        (":::{tip}\nCM ends at 64.7 %.\n:::", NUMBER),
        ("The paper says more. We measured 64.7 %.", NUMBER),
        ("Section 4.2 is long. It took 3.5 s.", NUMBER),
        ("<b>64.7</b>", NUMBER),
        ("CM is ahead by 3.5 points.", NUMBER),
        ("A quotation: “it is so”. We got 64.7 %.", NUMBER),
    ],
)
def test_check_finds_bad_pictures_and_typed_numbers_in_the_text(stored: Path, text: str, message: str) -> None:
    edit(stored, lambda book: book.cells[0].update(source=f"# 98 Tiny\n\n{text}"))
    found = notebooks.check([str(stored)])
    assert len(found) == 1 and message in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "![A cat](cat.png) and [a link](https://example.org/cat.png) and `![](https://example.org/x.png)`",
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="A cat."><path d="M0 0h9"/></svg>',
        '<div role="img" aria-label="A cat."><svg viewBox="0 0 9 9"><path d="M.5 1.5h9"/></svg></div>',
        '<svg aria-hidden="true"></svg><a href="https://example.org">x</a>',
        "```{figure} cat.png\n:alt: A cat.\nA cat.\n```",
        '```html\n<img src="https://example.org/x.png">\n```',
        "Drift is $2.5$, and $$x = 0.5$$ and\n\n\\begin{align*}\nx &= 0.5\n\\end{align*}",
        "```{math}\n:label: x\nx = 0.5\n```",
        "We set `lam=0.1` and ``tol = 0.5``.\n\n```python\nlam = 0.1\n```",
        "The paper's Table 6 prints\n50.00 there.",
        "| paper: accuracy |\n|---|\n| 64.6 ± 12.8 |",
        "| | CM |\n|---|---|\n| as printed | 64.6 |",
        'Their words: "about 0.5 points", and “0.7 more”.',
        "> it ends at 64.7 %",
        "## 4.2 Section\n\nSee section 4.2, sections 5.1 and 5.2, exercise 1.3, Figure 2.1, Python 3.11, §4.1 and torch 2.14.1.",
        "### Exercise 4.2 ★★ A title\n\nWrite it.",
        "See [arXiv](https://arxiv.org/abs/2208.02048), <https://doi.org/10.1/3.4> and version 1.0.",
        '<svg aria-label="x" viewBox="0 0 1.5 1.5"><path d="M.5 1.5h.01"/></svg>',
        "The text is under CC BY 4.0. There are 1,000 images, 3 tasks and release 0.11.0.",
    ],
)
def test_check_lets_described_pictures_links_equations_settings_and_the_paper_pass(stored: Path, text: str) -> None:
    edit(stored, lambda book: book.cells[0].update(source=f"# 98 Tiny\n\n{text}"))
    assert notebooks.check([str(stored)]) == []


# --- command line --------------------------------------------------------------------------------------------------


def test_a_bad_request_ends_with_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "book").mkdir()
    monkeypatch.chdir(tmp_path)
    assert notebooks.main(["check", "77"]) == 2
    assert capsys.readouterr().err.startswith("error: there are no chapters here: they come with the repository")


def test_check_reports_on_the_command_line(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert notebooks.main(["check", str(stored)]) == 0
    stored.write_text(json.dumps({"not": "a notebook"}))
    assert notebooks.main(["check", str(stored)]) == 1
    assert "98_tiny.ipynb is not a readable notebook" in capsys.readouterr().err
