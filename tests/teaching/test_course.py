"""`make course`: no solution in what students get, links that lead somewhere, slides without a network, minutes that add up."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from cmlib import cli
from cmlib.errors import OptionError
from cmlib.teaching import course, dryrun, edition, filled, notebooks, slides, solution

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
CHAPTERS = notebooks.chapters(folder=BOOK)
SITE = ROOT / "_build" / "html"
BARE_SITE = ROOT / "_build" / "html_without_solutions"
TELLING = edition.telling_lines(ROOT)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "course"
    course.make(folder, ROOT)
    return folder


# --- no solutions -----------------------------------------------------------------------------------------------------------


def test_every_solution_can_be_recognised() -> None:
    keys = {path.stem for path in (ROOT / "cmlib" / "teaching" / "solutions").glob("*.md")}
    assert set(TELLING) == keys and len(keys) >= 30
    assert [key for key, lines in TELLING.items() if not lines] == []


def test_what_students_get_holds_no_solution(made: Path) -> None:
    assert edition.traces(made / "student", TELLING) == []
    assert edition.traces(made / "slides", TELLING) == []
    names = [path.name for path in (made / "student").rglob("*")]
    assert [name for name in names if "solution" in name.lower()] == []


def test_the_archive_for_rooms_holds_no_solution_and_no_teachers_page(made: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(made / course.ARCHIVE) as archive:
        archive.extractall(tmp_path)
    assert edition.traces(tmp_path, TELLING) == []
    inside = {path.relative_to(tmp_path / "cmlib-course").parts[0] for path in (tmp_path / "cmlib-course").rglob("*")}
    assert inside == {"START_HERE.html", "student", "slides"}


def test_the_instructor_gets_every_solution(made: Path) -> None:
    found = edition.traces(made / "instructor", TELLING)
    for name in ("solutions.html", ".ipynb"):
        assert {re.search(r"solution (\d\d_\d)", one)[1] for one in found if name in one.split(": ")[0]} == set(TELLING)  # type: ignore[index]


@pytest.mark.parametrize("place", ["notebook", "page", "wheel", "plain"])
def test_a_solution_that_slipped_in_is_found(tmp_path: Path, place: str) -> None:
    line = sorted(TELLING["04_2"])[0]
    folder = tmp_path / "student"
    folder.mkdir()
    if place == "notebook":
        cell = {"cell_type": "code", "source": ["x = 1\n", f"  {line}\n"]}
        (folder / "a.ipynb").write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    elif place == "page":
        words = "".join(f"<span>{word}</span> " for word in line.replace("<", "&lt;").split())
        (folder / "a.html").write_text(f"<pre>{words}</pre>", encoding="utf-8")
    elif place == "wheel":
        with zipfile.ZipFile(folder / "a.whl", "w") as archive:
            archive.writestr("cmlib/teaching/solutions/04_2.md", solution.source("04_2"))
    else:
        (folder / "a.md").write_text(f"See:\n\n    {line}\n", encoding="utf-8")
    found = edition.traces(folder, TELLING)
    assert found and all("solution 04_2" in one for one in found)


def test_sources_of_the_site_without_solutions_have_none_and_nothing_else_is_lost(tmp_path: Path) -> None:
    target = edition.sources(ROOT, tmp_path / "sources")
    assert edition.traces(target, TELLING) == []
    assert {path.name for path in target.iterdir()} == {"book", "_config.yml", "_toc.yml"}
    for path in CHAPTERS:
        whole = json.loads(path.read_text(encoding="utf-8"))["cells"]
        bare = json.loads((target / "book" / path.name).read_text(encoding="utf-8"))["cells"]
        assert bare == [cell for cell in whole if "cm.solution(" not in "".join(cell["source"])]
    assert ":::{admonition} Answer" not in (target / "book" / "quiz.md").read_text(encoding="utf-8")
    assert ":::{admonition} Answer" in (BOOK / "quiz.md").read_text(encoding="utf-8")


def test_the_book_itself_is_never_cleared() -> None:
    for place in (ROOT, ROOT.parent):
        with pytest.raises(OptionError, match="the book itself lies there"):
            edition.sources(ROOT, place)
    for place in (ROOT, BOOK):
        with pytest.raises(OptionError, match="the book itself lies there"):
            course.make(place, ROOT)
    assert (BOOK / "index.md").is_file()


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    assert cli.main(["course", "--out", str(tmp_path)]) == 2
    assert "holds other things than a course" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    for folder in ("student", "exam"):  # a teacher's own, with a name of ours among them
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "notes.md").write_text("mine", encoding="utf-8")
    (tmp_path / "thesis.txt").unlink()
    assert cli.main(["course", "--out", str(tmp_path)]) == 2
    assert (tmp_path / "student" / "notes.md").is_file() and (tmp_path / "exam" / "notes.md").is_file()
    course._clear(tmp_path / "new", ROOT)
    (tmp_path / "new" / "student" / "half.ipynb").write_text("{", encoding="utf-8")
    course._clear(tmp_path / "new", ROOT)  # what was cut short is made anew
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["START_HERE.html", "instructor", "student"]


def test_in_code_no_formula_and_no_link_is_replaced() -> None:
    made = slides.rendered("Text $x$.\n\n```python\na = heads[i](x)  # $y$\n```\n\nMore $z$.")
    assert "heads[i](x)  # $y$" in made and r"\(x\)" in made and r"\(z\)" in made


@pytest.mark.site
def test_a_site_built_without_solutions_has_none(tmp_path: Path) -> None:
    """A few pages, built from the sources that `make book SOLUTIONS=no` builds all from."""
    sources = edition.sources(ROOT, tmp_path / "sources")
    names = [path.stem for path in CHAPTERS if path.name[:2] in ("01", "03", "04")]
    pages = "\n".join(f"  - file: book/{name}" for name in [*names, "quiz"])
    (sources / "_toc.yml").write_text(f"format: jb-book\nroot: book/glossary\nchapters:\n{pages}\n", encoding="utf-8")
    line = [Path(sys.executable).parent / "jupyter-book", "build", sources, "--quiet"]
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True, check=False, env=_with_this_package())
    site = sources / "_build" / "html"
    assert all((site / "book" / f"{name}.html").is_file() for name in names), done.stderr[-2000:]
    assert edition.traces(site, TELLING) == [] and "cm-solution" not in (site / "book" / f"{names[0]}.html").read_text()
    text = (site / "book" / "quiz.html").read_text(encoding="utf-8")
    assert "Ten misconceptions" in text and "and why the others are wrong" not in text


def _with_this_package() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.site
def test_in_the_ordinary_site_every_solution_is_found() -> None:
    """So the lines by which one is recognised can be found in pages as Sphinx writes them."""
    found = edition.traces(SITE / "book", TELLING)
    assert {re.search(r"solution (\d\d_\d)", one)[1] for one in found} == set(TELLING)  # type: ignore[index]


@pytest.mark.site
@pytest.mark.skipif(not BARE_SITE.is_dir(), reason="made by `make book SOLUTIONS=no`")
def test_the_whole_site_without_solutions_has_none() -> None:
    assert edition.traces(BARE_SITE, TELLING) == []


# --- the student's folder ---------------------------------------------------------------------------------------------------


def test_every_chapter_of_the_contents_is_there(made: Path) -> None:
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    entries = [entry for part in contents["parts"] for entry in part["chapters"]]
    names = [Path(one["file"]).name for entry in entries for one in (entry, *entry.get("sections", []))]
    wanted = {f"{name}.ipynb" for name in names if re.match(r"\d\d_", name)}
    for part in ("student", "instructor"):
        assert {path.name for path in (made / part).glob("*.ipynb")} == wanted


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_students_chapter_is_empty_of_outputs_and_can_record(made: Path, path: Path) -> None:
    book = notebooks.read(made / "student" / path.name)  # raises for a notebook that is not valid
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell for cell in code if cell.outputs or cell.execution_count] == []
    text = "\n".join(cell.source for cell in book.cells)
    assert "Open in Colab" not in text, "it would lead to the solutions"
    exercises = "cm.checks.ch" in path.read_text(encoding="utf-8")
    assert text.count('cm.checks.record("")') == int(exercises)
    stubs = [cell.source for cell in notebooks.read(path).cells if "raise NotImplementedError" in cell.source]
    assert [stub for stub in stubs if stub not in text] == [] and bool(stubs) == exercises
    if exercises:
        first = next(k for k, cell in enumerate(code) if "cm.setup(" in cell.source)
        assert "checks.record" in code[first + 1].source


def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(made: Path) -> None:
    assert course.dead_links(made) == []
    start = (made / "START_HERE.html").read_text(encoding="utf-8")
    links = re.findall(r'href="([^"]+)"', start)
    assert {"student/INSTALL.html", "student/lab_sheet.html", "student/quiz.html", "slides/lesson.html"} <= set(links)
    assert [place for place in links if not (made / place).is_file()] == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    links = '<h2 id="t"></h2><a href="#t">t</a><a href="#u">u</a><a href="b.html#x">b</a><a href="a.html">a</a>'
    (tmp_path / "a.html").write_text(links + '<img src="https://x.example/y.png">')
    cell = {"cell_type": "markdown", "source": ["see [c](c.ipynb) and [d](d.md#e)"]}
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": [cell]}))
    assert course.dead_links(tmp_path) == [
        "a.html: #u has no such anchor",
        "a.html: b.html#x leads nowhere",
        "a.html: https://x.example/y.png is loaded from another server",
        "n.ipynb: c.ipynb leads nowhere",
        "n.ipynb: d.md leads nowhere",
    ]


def test_the_quiz_is_handed_out_without_its_answers(made: Path) -> None:
    whole, bare = ((made / part / "quiz.html").read_text(encoding="utf-8") for part in ("instructor", "student"))
    assert whole.count("<summary>Answer, and why") == 10 and "Answer" not in bare
    assert bare.count("<h2 ") == whole.count("<h2 ") == 10 and bare.count("<strong>(d)</strong>") == 10


def test_the_same_course_is_the_same_bytes(made: Path, tmp_path: Path) -> None:
    first, second = (course.pack(tmp_path / f"{k}" / "x.zip", made, ["slides"]) for k in _folders(tmp_path))
    assert first.read_bytes() == second.read_bytes()


def _folders(place: Path) -> list[str]:
    for name in ("a", "b"):
        (place / name).mkdir()
    return ["a", "b"]


# --- the package --------------------------------------------------------------------------------------------------------------


def test_the_students_package_is_whole_but_for_the_solutions(made: Path, tmp_path: Path) -> None:
    (wheel,) = (made / "student").glob("*.whl")
    (full,) = (made / "instructor").glob("*.whl")
    assert wheel.name == full.name.replace("-py3", "-0student-py3")
    names = {path: set(zipfile.ZipFile(path).namelist()) for path in (wheel, full)}
    gone = names[full] - names[wheel]
    assert names[wheel] < names[full] and gone == {f"cmlib/teaching/solutions/{key}.md" for key in TELLING}
    line = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--no-deps",
        "--no-index",
        "--target",
        str(tmp_path),
        str(wheel),
    ]
    done = subprocess.run([*line, "--disable-pip-version-check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr  # pip has compared each file with the list
    code = """
import cmlib as cm
assert len(list(cm.store.committed())) > 50, cm.__file__
cm.checks.record("Ada")
cm.checks.ch01_1(lambda: 1)
try:
    cm.solution("1_1")
except cm.OptionError as error:
    print(error)
"""
    (tmp_path / "work").mkdir()
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "", "HOME": str(tmp_path)}
    words = {"cwd": tmp_path / "work", "env": environment, "capture_output": True, "text": True, "check": False}
    done = subprocess.run([sys.executable, "-c", code], **words)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "this is the students' package, which comes without solutions; your teacher has them"
    assert (tmp_path / "work" / "Ada.results.json").is_file()


# --- slides -------------------------------------------------------------------------------------------------------------------


def cell(kind: str, source: str, *tags: str, outputs: Any = ()) -> dict[str, Any]:
    made = {"cell_type": kind, "source": source, "metadata": {"tags": list(tags)} if tags else {}}
    return made | ({"outputs": list(outputs)} if kind == "code" else {})


FIGURE = {"output_type": "execute_result", "data": {"text/html": ["<figure>", "picture</figure>"]}}
SAID = {"output_type": "stream", "text": "7 < 8\n"}
TITLE = cell("markdown", "# 9 A title\n\n**[Open in Colab](https://x)** · a minute\n\nOnce upon a time. Then.")


def test_no_tag_no_slides() -> None:
    assert slides.slides_of({"cells": [TITLE, cell("markdown", "## A\n\nb")]}) == []


def test_a_text_gives_a_slide_a_heading_and_a_figure_below_joins_it() -> None:
    long = "First sentence here. A " + "word " * 60 + "end. **Is it so?** Last one."
    cells = [
        TITLE,
        cell("markdown", f"## A\n\n{long}\n\n## Next\n\ngone", "slide"),
        cell("code", "fig", "slide", outputs=[FIGURE]),
    ]
    first, second = slides.slides_of({"cells": cells})
    assert "<h1>9 A title</h1>" in first and "Colab" not in first
    seen, notes = second.split(slides.END)
    assert "<h2>A</h2>" in seen and "First sentence here." in seen and "Is it so?" in seen and "picture" in seen
    assert "word word" not in seen and "Last one" not in seen and "word word" in notes and "Last one" in notes
    assert "gone" not in second


def test_code_is_shown_where_it_makes_no_picture_and_is_not_hidden() -> None:
    cells = [TITLE, cell("code", "a < b", "slide", outputs=[SAID]), cell("code", "a < b", "slide", "hide-input", outputs=[SAID])]
    _, shown, hidden = slides.slides_of({"cells": cells})
    assert "<code>a &lt; b</code>" in shown and "7 &lt; 8" in shown
    assert "<code>" not in hidden and "7 &lt; 8" in hidden
    with pytest.raises(OptionError, match="shows nothing"):
        slides.slides_of({"cells": [TITLE, cell("code", "a", "slide", "hide-input")]})


def test_a_solution_is_no_slide_and_answers_are_on_none() -> None:
    with pytest.raises(OptionError, match="the cell of a solution"):
        slides.slides_of({"cells": [TITLE, cell("code", 'cm.solution("1_1", globals())', "slide", outputs=[SAID])]})
    text = "## Take-away\n\n1. Why? Because of what?\n\n:::{admonition} Answers\n:class: dropdown\n\nseven\n:::"
    seen = slides.slides_of({"cells": [TITLE, cell("markdown", text, "slide")]})[1].split(slides.END)[0]
    assert "Why? Because of what?" in seen and "seven" not in seen


def test_formulas_roles_and_links_of_the_book() -> None:
    text = "In $a_1 < b$ {cite:p}`x2020` see [chapter 4](04_x.ipynb), `$no$`.\n\n```{math}\nx^2 < 3\n```\n\n$$\ny_1\n$$"
    made = slides.rendered(text)
    assert r"\(a_1 &lt; b\)" in made and r"\[x^2 &lt; 3\]" in made and r"\[y_1\]" in made
    assert "cite" not in made and "chapter 4," in made and "04_x" not in made
    assert slides.rendered("`heads[i](x)` $x$") == "<p><code>heads[i](x)</code> \\(x\\)</p>\n"


def test_comments_and_labels_of_a_page_are_not_seen() -> None:
    made = course.page("(lesson)=\n# A\n\n% begin table\n\nb, see [](c.md) and [d](e.md#f)\n\n% end table\n", ["c.html"])
    assert '<h1>A</h1>\n<p>b, see <a href="c.html">c.md</a> and d</p>\n</body>' in made


def test_decks_of_the_book(made: Path) -> None:
    lesson = (made / "slides" / "lesson.html").read_text(encoding="utf-8")
    for deck in (made / "slides").glob("*.html"):
        text = deck.read_text(encoding="utf-8")
        assert text.count("<section>") == text.count("</section>") > 5 and "Open in Colab" not in text
        assert re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//', text) == []
        outside = re.sub(r'href="https?://[^"]+"|http://www\.w3\.org/\S+', "", text)
        assert re.findall(r"(?:src|url)[=(]['\"]?https?://", outside) == []
    titles = [edition.read(path)["cells"][0]["source"] for path in course.lesson_chapters(ROOT)]
    places = [lesson.index(f"<h1>{''.join(title).splitlines()[0].lstrip('# ').strip()}</h1>") for title in titles]
    assert places == sorted(places) and len(places) == 3


def test_reveal_is_four_files_with_their_licence() -> None:
    folder = BOOK / "_static" / "reveal"
    assert sorted(path.name for path in folder.iterdir()) == ["LICENSE", "notes.js", "reveal.css", "reveal.js"]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 300_000
    assert "sourceMappingURL" not in (folder / "reveal.js").read_text(encoding="utf-8")


@pytest.mark.browser
@pytest.mark.parametrize("name", ["lesson.html", "03_classify_by_distance.html"])
def test_slides_open_from_the_disk_and_fit(browser: Any, made: Path, name: str) -> None:
    tab, wrong, asked = browser.new_page(viewport={"width": 1280, "height": 720}), [], []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    tab.on("request", lambda one: asked.append(one.url) if not one.url.startswith(("file:", "data:", "blob:")) else None)
    tab.goto((made / "slides" / name).as_uri())
    tab.wait_for_function("window.MathJax && MathJax.startup && document.querySelector('mjx-container')")
    count = tab.evaluate("Reveal.getTotalSlides()")
    high = []
    for k in range(count):
        tab.evaluate(f"Reveal.slide({k})")
        height = tab.evaluate("Reveal.getCurrentSlide().scrollHeight")
        high += [(k, height)] if height > 725 else []
    tab.close()
    assert (wrong, asked, high) == ([], [], []) and count > 8


# --- the lesson and the quiz ---------------------------------------------------------------------------------------------------

LESSON = (BOOK / "lesson.md").read_text(encoding="utf-8")


def test_the_lesson_has_fifty_minutes_and_a_reserve_in_each_part() -> None:
    parts = dryrun.parts(LESSON)
    assert parts[0][1] == 0 and parts[-1][2] == 50
    assert [last for _, _, last, *_ in parts[:-1]] == [first for _, first, *_ in parts[1:]]
    for name, first, last, spoken, other in parts:
        assert spoken + other <= last - first, f"{name}: {spoken + other:.1f} of {last - first} minutes"
    planned = re.findall(r"^\| (\d+) to (\d+) \|", LESSON, re.MULTILINE)
    assert [(int(a), int(b)) for a, b in planned] == [(first, last) for _, first, last, *_ in parts]


def test_the_table_of_the_dry_run_is_that_of_the_text() -> None:
    assert filled.with_tables(LESSON) == LESSON, "run `cmlib tables`"


def test_the_dry_run_counts_words_and_times() -> None:
    text = (
        "# L\n\n## 0 to 4: one\n\n> "
        + "word " * 120
        + "\n\nWait (30 seconds), vote (2 minutes).\n\nShow it.\n\n- a\n- b\n\n## End\n"
    )
    assert dryrun.parts(text) == [("one", 0, 4, 1.0, 3.0)]
    with pytest.raises(OptionError, match="no parts"):
        dryrun.parts("# L\n")


def test_the_slides_that_the_lesson_names_exist(made: Path) -> None:
    deck = (made / "slides" / "lesson.html").read_text(encoding="utf-8")
    rows = [line for line in LESSON.splitlines() if re.match(r"\| \d", line)]
    named = [title for row in rows for title in re.findall(r"\*([^*|]+)\*", row.split("|")[-2])]
    assert len(named) >= 10
    assert [title for title in named if title not in re.sub(r"<[^>]+>", "", deck)] == []


@pytest.mark.parametrize("name", ["lab.md", "lab_sheet.md"])
def test_the_minutes_of_the_lab_follow_each_other(name: str) -> None:
    text = (BOOK / name).read_text(encoding="utf-8")
    spans = [(int(a), int(b)) for a, b in re.findall(r"^(?:\| |## )(\d+) to (\d+)", text, re.MULTILINE)]
    whole = [(int(a), int(b)) for a, b in re.findall(r"^## (\d+) to (\d+)", text, re.MULTILINE)] or spans
    assert whole[0][0] == 0 and whole[-1][1] == 180
    assert [b for _, b in whole[:-1]] == [a for a, _ in whole[1:]]
    for first, last in whole:
        inner = [(a, b) for a, b in spans if first <= a and b <= last and (a, b) != (first, last)]
        assert not inner or (
            inner[0][0] == first and inner[-1][1] == last and [b for _, b in inner[:-1]] == [a for a, _ in inner[1:]]
        )


def test_the_rubric_adds_up_to_a_hundred() -> None:
    text = (BOOK / "module.md").read_text(encoding="utf-8")
    points = [int(row.split("|")[2]) for row in text.splitlines() if row.count("|") == 6 and row.split("|")[2].strip().isdigit()]
    assert len(points) == 8 and sum(points) == 100


def test_each_question_has_four_answers_one_right_and_a_reason_for_each_wrong_one() -> None:
    text = (BOOK / "quiz.md").read_text(encoding="utf-8")
    questions = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert [question.split(".")[0] for question in questions] == [str(k) for k in range(1, 11)]
    rights = []
    for question in questions:
        asked, _, answer = question.partition(":::{admonition} Answer")
        assert re.findall(r"^- \*\*\((\w)\)\*\*", asked, re.MULTILINE) == list("abcd")
        right = re.search(r"^:class: dropdown\n\n\*\*\((\w)\)\*\* ", answer, re.MULTILINE)
        assert right, question[:40]
        rights.append(right[1])
        reasons = [
            letter
            for group in re.findall(r"^- \*\*([^*]+)\*\*", answer, re.MULTILINE)
            for letter in re.findall(r"\((\w)\)", group)
        ]
        assert sorted([*reasons, right[1]]) == list("abcd"), question[:40]
        assert re.search(r"\]\(\d\d_\w+\.ipynb\)", answer), "where the book shows it"
    assert len(set(rights)) > 1


def test_the_teachers_pages_are_those_of_the_contents() -> None:
    names = [path.name for path in course.teachers_pages(ROOT)]
    assert names == ["teachers.md", "lesson.md", "lab.md", "lab_sheet.md", "module.md", "quiz.md"]
    assert all((BOOK / name).is_file() for name in (*names, *course.HANDED_OUT))


# --- the command ---------------------------------------------------------------------------------------------------------------


def test_outside_a_checkout_the_command_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(notebooks, "book_folder", lambda: tmp_path / "book")
    assert cli.main(["course", "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("cmlib: there are no chapters here") and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_command_prints_one_object(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    content = {"folder": "f", "archive": "a", "chapters": 18, "decks": 4}
    monkeypatch.setattr(course, "make", lambda out: content)
    assert cli.main(["course", "--json"]) == 0 and json.loads(capsys.readouterr().out) == content
    assert cli.main(["course"]) == 0 and capsys.readouterr().out == "18 chapters and 4 decks in f; for rooms: a\n"
