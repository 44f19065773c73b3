"""Links of the book's pages, without a network: inner ones lead to a page and a place in it, outer ones have the right form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

import pytest
from bs4 import BeautifulSoup

from cmlib.teaching import lint, myst, notebooks

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
PAGES = [*sorted(BOOK.glob("*.md")), *notebooks.chapters(folder=BOOK)]
COLAB = "https://colab.research.google.com/github/" + lint.REPOSITORY.removeprefix("https://github.com/")


def texts(path: Path) -> Iterator[str]:
    """What a page shows: its Markdown, and of a notebook the Markdown of its outputs."""
    if path.suffix == ".md":
        yield path.read_text(encoding="utf-8")
        return
    for cell in notebooks.read(path).cells:
        if cell.cell_type == "markdown":
            yield cell.source
        yield from (out["data"]["text/markdown"] for out in cell.get("outputs", []) if "text/markdown" in out.get("data", {}))


def links(path: Path) -> list[str]:
    page = "\n".join(myst.rendered(text) for text in texts(path))
    return list(dict.fromkeys(str(tag["href"]) for tag in BeautifulSoup(page, "html.parser").select("a[href]")))


def places(path: Path) -> set[str]:
    """Names that a link to a page may end in: its labels, and its headings as Sphinx spells them."""
    text = "\n".join(texts(path))
    headings = re.findall(r"^#{1,6} +(.*)$", text, flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w-]+", "-", re.sub(r"[`*]", "", one).strip().lower()).strip("-") for one in headings}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, flags=re.MULTILINE))


def wrong_form(link: str) -> str:
    """What is wrong with an address of another site; empty when nothing is."""
    parts = urlsplit(link)
    if parts.scheme not in ("https", "mailto"):
        return f"{parts.scheme or 'no scheme'}; https is asked for"
    if parts.scheme == "https" and not re.fullmatch(r"(?:[a-z\d-]+\.)+[a-z]{2,}", parts.netloc):
        return f"'{parts.netloc}' is no host"
    return "it ends in a punctuation mark" if re.search(r"[.,;:!?'\"]$", link) else ""


LABELS = {
    label for path in PAGES if path.suffix == ".md" for label in re.findall(r"^\(([\w-]+)\)=$", path.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_outer_links_have_the_right_form(path: Path) -> None:
    outer = [link for link in links(path) if re.match(r"[a-z]+:", link)]
    assert {link: why for link in outer if (why := wrong_form(link))} == {}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_into_the_repository_name_what_is_there(path: Path) -> None:
    inside = [link for link in links(path) if link.startswith((f"{lint.REPOSITORY}/", f"{COLAB}/"))]
    named = {link: re.fullmatch(r".*?/(?:blob|tree)/main/([^#]*)(?:#.*)?", link) for link in inside}
    assert [link for link, found in named.items() if found and not (ROOT / found[1]).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_inner_links_lead_to_a_page_and_a_place(path: Path) -> None:
    broken = []
    for link in links(path):
        if re.match(r"[a-z]+:", link) or not link:
            continue
        address, anchor = urldefrag(link)
        if address == "playground.html":  # as the site has it; what follows is a setting
            address, anchor = "playground.md", ""
        if not address and anchor in LABELS:  # a label of any page
            continue
        target = (path.parent / address).resolve() if address else path
        if not target.exists() or (anchor and target.suffix in (".md", ".ipynb") and anchor not in places(target)):
            broken.append(link)
    assert broken == []


def test_what_is_wrong_would_be_found() -> None:
    assert wrong_form("http://a.org") and wrong_form("https://localhost/x") and wrong_form("https://a.org/x.")
    assert not wrong_form("https://a.org/x_(y)") and not wrong_form("https://gitlab.com/a/b/blob/0f/x.py#L1-L2")


def test_there_are_links_to_look_at() -> None:
    assert sum(len(links(path)) for path in PAGES) > 200
