"""The API page names what is public, and says of each function of a chapter where the book builds it."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_chapter_functions import CHAPTERS

import cmlib as cm

BOOK = Path(__file__).resolve().parents[2] / "book"
PAGE = (BOOK / "api.md").read_text(encoding="utf-8")
DIRECTIVE = re.compile(r"^\.\. auto(function|class|module):: ([\w.]+)\n((?:   .*\n)*)", re.MULTILINE)
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
FIRST = {id(thing): chapter for chapter in sorted(CHAPTERS, reverse=True) for thing in CHAPTERS[chapter].values()}
BUILT = [  # the package's functions, each with the first chapter that shows it; a lambda only brings two signatures together
    (chapter, name, thing)
    for chapter, things in CHAPTERS.items()
    for name, thing in things.items()
    if FIRST[id(thing)] == chapter and thing.__name__ != "<lambda>"
]
IN_WORDS = {"METHODS", "centroids", "checks", "datasets", "metrics", "paper", "plots", "projectors"}  # modules and a mapping


def find(path: str) -> Any:
    """What a dotted name stands for; attributes of classes too."""
    parts = path.split(".")
    for k in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        for name in parts[k:]:
            thing = inspect.getattr_static(thing, name) if inspect.isclass(thing) else getattr(thing, name)
        return thing
    raise AssertionError(f"the API page names {path}, which is not there")


def listed(text: str) -> Iterator[str]:
    """The dotted names that a piece of the page describes, members included."""
    for _, path, options in DIRECTIVE.findall(text):
        yield path
        members = re.search(r":members: (.*)", options)
        yield from (f"{path}.{name.strip()}" for name in (members[1].split(",") if members else []))


NAMES = list(listed(PAGE))


@pytest.mark.parametrize("path", NAMES)
def test_what_the_page_names_is_there_and_described(path: str) -> None:
    thing = find(path)
    described = thing.fget if isinstance(thing, property) else thing
    assert (described.__doc__ or "").strip()
    assert path.split(".")[0] == "cmlib" and not any(part.startswith("_") for part in path.split("."))


def test_nothing_is_named_twice() -> None:
    assert sorted(NAMES) == sorted(set(NAMES))


def test_every_public_name_of_the_package_is_on_the_page() -> None:
    things = [id(find(path)) for path in NAMES]
    missing = [name for name in cm.__all__ if name not in IN_WORDS and id(getattr(cm, name)) not in things]
    assert missing == []
    assert [name for name in IN_WORDS if f"cm.{name}" not in PAGE] == []


def test_every_function_of_cm_plots_is_on_the_page() -> None:
    names = [path.split(".")[-1] for path in NAMES]
    missing = [name for name in cm.plots.__all__ if callable(getattr(cm.plots, name)) and name not in names]
    assert missing == []
    constants = [name for name in cm.plots.__all__ if not callable(getattr(cm.plots, name))]
    assert [name for name in constants if f"cm.plots.{name}" not in PAGE] == []


@pytest.mark.parametrize(("chapter", "name", "thing"), BUILT, ids=[f"{chapter[:2]}-{name}" for chapter, name, _ in BUILT])
def test_a_function_of_a_chapter_says_where_the_book_builds_it(chapter: str, name: str, thing: Any) -> None:
    assert re.search(rf"Built in chapter {int(chapter[:2])}\b", thing.__doc__ or ""), f"docstring of {thing.__module__}.{name}"
    homes = [section for section in SECTIONS if any(find(path) is thing for path in listed(section))]
    assert len(homes) == 1, f"{thing.__module__}.{thing.__qualname__} is not on the API page"
    assert f"({chapter}.ipynb)" in homes[0], f"the section of {name} does not link to {chapter}"


@pytest.mark.parametrize("path", [path for path in NAMES if "Built in chapter" in (find(path).__doc__ or "")])
def test_the_chapter_that_a_docstring_names_shows_the_function(path: str) -> None:
    chapter = re.search(r"Built in chapter (\d+)", find(path).__doc__)[1]  # type: ignore[index]
    pages = [page.read_text(encoding="utf-8") for page in BOOK.glob(f"{int(chapter):02d}_*.ipynb")]
    assert any(re.search(rf"\b{path.split('.')[-1]}\b", page) for page in pages)
