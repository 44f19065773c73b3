"""`make course`: what a teacher hands out, in one folder and in one archive for rooms without a network.

    student/      the chapters with stubs and checks, no solutions, no outputs; the pages they link to; the package, too
    slides/       a deck a chapter with tagged cells, and lesson.html for the fifty minutes; they open from the disk
    instructor/   the chapters with solutions and outputs, all solutions on one page, the teachers' pages, the whole package
    cmlib-course.zip   student, slides and START_HERE.html

The chapters are those of the contents, the teachers' pages those of its part for teachers, the lesson's chapters those that its
table links to. Nothing is run.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

from cmlib.errors import CmlibError, OptionError, StoreError
from cmlib.teaching import edition, myst, notebooks, slides, solution

OUT = "_build/course"
FOLDERS, START = ("student", "instructor", "slides"), "START_HERE.html"
ARCHIVE = "cmlib-course.zip"
PART = "For teachers"  # of the contents
LESSON, SHEET = "lesson.md", "lab_sheet.md"
HANDED_OUT = (SHEET, edition.QUIZ)  # of the teachers' pages, the last without its answers
EXTRA = ("playground.html",)  # of book/_static, which chapters link to
NOT_ALONE = ("index.md", "playground.md")  # pages that are nothing without the site around them
ROOM = ("jupyterlab",)  # what a room needs besides the package
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)([^)]*)\)")  # words, place
DATE = (2022, 8, 3, 0, 0, 0)  # of every file in an archive, so that the same course is the same bytes


def root_folder() -> Path:
    """The checkout of the book; OptionError outside of one."""
    root = notebooks.book_folder().parent
    if not (root / "_toc.yml").is_file() or not notebooks.chapters(folder=root / "book"):
        raise OptionError(notebooks.ABSENT.partition(", or name")[0])
    return root


def teachers_pages(root: Path) -> list[Path]:
    """The pages of the contents' part for teachers, in order."""
    import yaml

    contents = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    entries = [entry for part in contents["parts"] if part.get("caption") == PART for entry in part["chapters"]]
    names = [one["file"] for entry in entries for one in (entry, *entry.get("sections", []))]
    return [root / f"{name}.md" for name in names]


def lesson_chapters(root: Path) -> list[Path]:
    """The chapters that the tables of the lesson's page link to, in their order."""
    rows = [line for line in (root / "book" / LESSON).read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    names = dict.fromkeys(re.findall(r"\]\((\d\d_\w+\.ipynb)[#)]", "\n".join(rows)))
    return notebooks.chapters(list(names), root / "book")


# --- pages --------------------------------------------------------------------------------------------------------------

STYLE = """body{font:17px/1.55 "DejaVu Sans",Verdana,"Segoe UI",sans-serif;
max-width:50em;margin:2em auto;padding:0 1em;color:#1d2733}
h1{line-height:1.2}h2{margin-top:1.8em}code{font-family:"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:.9em}
pre{background:#f4f6f8;padding:.7em 1em;overflow:auto}table{border-collapse:collapse}
td,th{border:1px solid #d5d9de;padding:.3em .7em;text-align:left;vertical-align:top}
details,aside{border-left:4px solid #3a4eff;background:#f4f6ff;padding:.4em 1em;margin:.7em 0}summary{cursor:pointer}
a{color:#2a3bd6}@media print{body{margin:0;font-size:11pt}h2{break-after:avoid}tr{break-inside:avoid}}"""


def page(text: str, known: Iterable[str] = (), mathjax: str = "../slides/mathjax/tex-svg.js") -> str:
    """A page of Markdown as one HTML file. known: names of the files beside it; a link to another one becomes plain words."""
    names = set(known)

    def link(place: str) -> str | None:
        address, anchor = urldefrag(place)
        as_page = re.sub(r"\.md$", ".html", address)
        target = address if address in names else as_page if as_page in names else ""
        return f"{target}{anchor and '#'}{anchor}" if address and target else None

    body = myst.linked(myst.rendered(text), link)
    body = re.sub(r"<h([23])>(.*?)</h\1>", lambda found: f'<h{found[1]} id="{_anchor(found[2])}">{found[2]}</h{found[1]}>', body)
    title = re.search(r"^# (.*)", text, re.MULTILINE)
    formulas = f'<script defer src="{mathjax}"></script>' if r"\(" in body or r"\[" in body else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title[1] if title else "")}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style>{formulas}</head>\n'
        f"<body>\n{body}</body></html>\n"
    )


def _anchor(heading: str) -> str:
    """The name that the site gives a heading, too."""
    return re.sub(r"[^\w -]", "", re.sub(r"<[^>]+>", "", heading).lower()).replace(" ", "-")


def all_solutions(root: Path) -> str:
    """Every solution, with the title of its exercise, as one page of Markdown."""
    titles = {}
    for path in notebooks.chapters(folder=root / "book"):
        for cell in edition.read(path)["cells"]:
            for number, title in re.findall(r"^### Exercise (\d+\.\d) ([^\n]*)", edition.source_of(cell), re.MULTILINE):
                titles[f"{int(number.split('.')[0]):02d}_{number.split('.')[1]}"] = f"{number} {title}"
    parts = ["# All solutions"]
    for key, text in solution.texts().items():
        parts.append(f"## {titles.get(key, key)}\n\n{text.strip().replace('```python quiet', '```python')}")
    return "\n\n".join(parts) + "\n"


# --- the package --------------------------------------------------------------------------------------------------------


def build_wheel(root: Path, target: Path, students: bool = False) -> Path:
    """Build the package's wheel from a copy, without a network and without a trace in the checkout; CmlibError when it fails.

    students: without the solutions, under a name that says so.
    """
    left_out = ("__pycache__", *(["solutions"] if students else []))
    build = ["--config-settings=--build-option=--build-number=0student"] if students else []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        source.mkdir()
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy2(root / name, source)
        shutil.copytree(root / "cmlib", source / "cmlib", ignore=shutil.ignore_patterns(*left_out))
        shutil.copytree(root / "book" / "results", source / "book" / "results")
        offline = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
        line = [sys.executable, "-m", "pip", "wheel", *offline, *build, "--wheel-dir", str(target), str(source)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CmlibError(f"the wheel could not be built: {(done.stderr.strip().splitlines() or ['pip failed'])[-1]}")
    return max(target.glob("cmlib-*.whl"), key=lambda path: path.stat().st_mtime)


INSTALL = """# Before the course

You need Python 3.11 or newer. The chapters are notebooks; this folder holds them, and `{wheel}`, the package that they use.

## With a network

```bash
python3 -m venv course
source course/bin/activate
python -m pip install {wheel} {room}
cmlib doctor
jupyter lab
```

On Windows the second line is `course\\Scripts\\activate`. PyTorch comes along and is large, so do this at home.

## For a room without a network

Somebody with a network does this once, on the same system and with the same version of Python as in the room:

```bash
python3 -m pip download --dest wheels --requirement requirements.txt --constraint constraints.txt {room}
```

Copy the folder `wheels` beside this page. In the room:

```bash
python3 -m venv course
source course/bin/activate
python -m pip install --no-index --find-links wheels {wheel} {room}
cmlib doctor
jupyter lab
```

After that nothing is fetched: the images are inside scikit-learn, the stored runs inside the package.

## While you work

Open a chapter in JupyterLab and run its cells from the top. Below an exercise, write your answer into the stub and run the check.
It says what is wrong, and from the second try on how to go on. If your teacher collects results, put your name into the cell

```python
cm.checks.record("")
```

near the top of each chapter. The checks then write a small file that ends with `.results.json` beside the chapters: your name,
and of each exercise whether it passed, its tests and tries. Without a name nothing is written. Hand that file in.
"""


# --- the folders ----------------------------------------------------------------------------------------------------------


def make(out: str | Path = OUT, root: Path | None = None) -> dict[str, Any]:
    """Write the course anew into a folder; where it lies and how much it is. Errors: OptionError, StoreError, CmlibError."""
    root, target = root or root_folder(), Path(out)
    _clear(target, root)
    teachers = teachers_pages(root)
    _student(root, target / "student", teachers)
    _instructor(root, target / "instructor", teachers)
    decks = slides.write(root, target / "slides", lesson_chapters(root))
    (target / START).write_text(_start(target, decks), encoding="utf-8")
    telling = edition.telling_lines(root)
    wrong = [trace for name in ("student", "slides") for trace in edition.traces(target / name, telling)]
    wrong += dead_links(target)
    if wrong:
        raise CmlibError(f"the course is not fit to be handed out: {wrong[0]}")
    archive = pack(target / ARCHIVE, target, [START, "student", "slides"])
    count = len(notebooks.chapters(folder=root / "book"))
    return {"folder": str(target), "archive": str(archive), "chapters": count, "decks": len(decks)}


def _clear(target: Path, root: Path) -> None:
    """An empty folder; only one that holds a course, and nothing beside it, is emptied."""
    if target.resolve() in {root.resolve(), *root.resolve().parents, (root / "book").resolve()}:
        raise OptionError(f"--out {target}: the book itself lies there")
    inside = {path.name for path in target.iterdir()} if target.is_dir() else set()
    if inside and not (START in inside and inside <= {*FOLDERS, START, ARCHIVE}):
        raise OptionError(f"--out {target} holds other things than a course; name a new folder")
    try:
        shutil.rmtree(target, ignore_errors=True)
        for name in FOLDERS[:2]:
            (target / name).mkdir(parents=True)
        (target / START).touch()  # what is cut short is a course, too
    except OSError as error:
        raise StoreError(f"cannot write to --out {target}: {error.strerror}") from None


def _student(root: Path, target: Path, teachers: Sequence[Path]) -> None:
    for path in notebooks.chapters(folder=root / "book"):
        edition.write_notebook(target / path.name, edition.for_students(edition.read(path)))
    for path in sorted((root / "book").glob("*.md")):
        if path not in teachers and path.name not in NOT_ALONE:
            text = edition.without_answers(path.read_text(encoding="utf-8"))
            (target / path.name).write_text(_plain_links(text, target, root), encoding="utf-8")
    for name in EXTRA:
        shutil.copy2(root / "book" / "_static" / name, target)
    shutil.copy2(root / "constraints.txt", target)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (target / "requirements.txt").write_text("\n".join(project["dependencies"]) + "\n", encoding="utf-8")
    wheel = build_wheel(root, target, students=True)
    _write_page(target / "INSTALL.html", INSTALL.format(wheel=wheel.name, room=" ".join(ROOM)))
    for name in HANDED_OUT:
        text = edition.without_answers((root / "book" / name).read_text(encoding="utf-8"))
        _write_page(target / f"{Path(name).stem}.html", text)


def _plain_links(text: str, target: Path, root: Path) -> str:
    """A page whose links to pages that students do not get are plain words."""
    there = {path.name for path in (root / "book").glob("*.md")} | {path.name for path in target.iterdir()}
    keep = there - {path.name for path in teachers_pages(root)} - set(NOT_ALONE)

    def link(found: re.Match[str]) -> str:
        place = urldefrag(found[2])[0]
        return found[0] if not place or place in keep else (found[1] or place)

    return LINK.sub(link, text.replace("](playground.md)", "](playground.html)"))


def _write_page(path: Path, text: str) -> None:
    path.write_text(page(text, [one.name for one in path.parent.iterdir()]), encoding="utf-8")


def _instructor(root: Path, target: Path, teachers: Sequence[Path]) -> None:
    build_wheel(root, target)
    pages = [path for path in (root / "book").glob("*.md") if path not in teachers and path.name not in NOT_ALONE]
    for path in [*notebooks.chapters(folder=root / "book"), *pages, *(root / "book" / "_static" / name for name in EXTRA)]:
        shutil.copy2(path, target)
    names = [*(path.name for path in target.iterdir()), *(f"{path.stem}.html" for path in teachers), "solutions.html"]
    for path in teachers:
        (target / f"{path.stem}.html").write_text(page(path.read_text(encoding="utf-8"), names), encoding="utf-8")
    (target / "solutions.html").write_text(page(all_solutions(root), names), encoding="utf-8")


def _start(target: Path, decks: Sequence[Path]) -> str:
    links = [("student/INSTALL.html", "Install, and how to work"), ("student/lab_sheet.html", "The lab sheet")]
    links += [("student/quiz.html", "Ten questions"), ("student/playground.html", "The playground, in your browser")]
    links += [(f"slides/{path.name}", f"Slides: {path.stem.replace('_', ' ')}") for path in decks]
    rows = "\n".join(f"- [{words}](https://x/{place})" for place, words in links if (target / place).is_file())
    text = f"# Centroids Matching: the course\n\nEverything here works without a network.\n\n{rows}\n"
    return page(text, mathjax="").replace("https://x/", "")


# --- links and archives -----------------------------------------------------------------------------------------------------


Seen = tuple[list[tuple[str, str]], set[str]]  # of a page: its links, each after its attribute, and the anchors that it has


def dead_links(root: Path) -> list[str]:
    """Links in the pages and notebooks of a folder that a disk cannot follow, as `page.html: place why`; none in vendored pages.

    They lead to no file, to no such anchor, to a folder, out of `root`, to the root of a server, to a file of this machine; and
    scripts, styles and pictures of other servers.
    """
    root, seen, found = root.resolve(), cache(_seen), []
    for path in sorted((*root.rglob("*.html"), *root.rglob("*.ipynb"))):
        name = path.relative_to(root)
        if not {"_static", "_sources"} & set(name.parts):
            whys = [(place, _problem(root, path, kind, place, seen)) for kind, place in seen(path)[0]]
            found += [f"{name.as_posix()}: {place} {why}" for place, why in whys if why]
    return found


def _seen(path: Path) -> Seen:
    from bs4 import BeautifulSoup

    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        places = re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s:#]+\.(?:ipynb|html|md))(?:#[^)]*)?\)", text)
        return [("href", place) for place in places], set()
    tags = BeautifulSoup(text, "html.parser", multi_valued_attributes=None).find_all()
    given = [(name, str(value)) for tag in tags for name, value in tag.attrs.items()]
    links = [(name, value) for name, value in given if name.endswith(("href", "src"))]  # xlink:href, data-src
    return links, {value for name, value in given if name in ("id", "name")}


def _problem(root: Path, page: Path, kind: str, place: str, seen: Callable[[Path], Seen]) -> str | None:
    if place.startswith("file:"):
        return "is a file of one machine"
    if re.match(r"[a-z][a-z+.-]*:|//", place, re.IGNORECASE):
        return "is loaded from another server" if kind.endswith("src") and not place.startswith("data:") else None
    if place.startswith("/"):
        return "begins at the root of a server"
    address, anchor = urldefrag(place)
    address = unquote(address.partition("?")[0])
    target = (page.parent / address).resolve() if address else page
    if target.is_dir():
        return "is a folder, which a disk does not open"
    if not target.is_file() or root not in target.parents:
        return "leads nowhere"
    setting = target.name in EXTRA and "=" in anchor
    if anchor and target.suffix == ".html" and not setting and unquote(anchor) not in seen(target)[1]:
        return "has no such anchor"
    return None


def pack(archive: Path, folder: Path, names: Sequence[str]) -> Path:
    """Files and folders of a folder as one zip file; the same content gives the same bytes."""
    paths = [path for name in names for path in (folder / name, *sorted((folder / name).rglob("*"))) if path.is_file()]
    inside = archive.stem
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for path in paths:
            info = zipfile.ZipInfo(f"{inside}/{path.relative_to(folder).as_posix()}", DATE)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            made.writestr(info, path.read_bytes())
    return archive
