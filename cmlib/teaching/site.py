"""What this book adds to Sphinx, an extension listed in `_config.yml`: a search that answers, buttons named as they are seen,
numbers that no line parts from what belongs to them.

Search: the terms of the glossary, and the words of its section "Where is it?", lead to the page that answers them. They go into
`_static/search_words.js`, which `book/_static/search.js` reads on the search page. Names: a button whose hidden name differs from
the words on it cannot be pressed by voice; `named_as_seen` mends those that the theme writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

GLOSSARY = "book/glossary"
LINK = re.compile(r"\[([^\]]*)\]\(([\w./-]+?)(?:\.ipynb|\.md)(#[\w-]+)?\)")
ENTRY = re.compile(r"^((?:\S[^\n]*\n)+)((?:  [^\n]*\n)+)", re.MULTILINE)  # names, then what they mean
PLACE = re.compile(r"^(\S[^\n]*)\n: ([^\n]*(?:\n  [^\n]*)*)", re.MULTILINE)  # a definition list
TOGETHER = re.compile(r" ± |(?<=\d) (?=%|runs?\b|seeds?\b)")  # the blanks in `75.9 ± 7.5 (3 runs)`, `90 %`
UNREAD = ("literal", "literal_block", "math", "math_block", "raw")
SCRIPTS = ("search_words.js", "search.js")
NAMES = (  # written by the theme and its extensions; each says another thing than what is there
    ('<summary aria-label="Toggle hidden content">', "<summary>"),
    ('<summary><span class="toctree-toggle"', '<summary aria-label="pages of this chapter"><span class="toctree-toggle"'),
    ('<div role="list" class="citation-list">', '<div class="citation-list">'),  # its children are no list items
    (re.compile(r'(<button class="btn search-button-field[^>]*?) aria-label="Search"'), r"\1"),
    (re.compile(r'(<i class="theme-switch [^>]*?) +title="[^"]*"'), r"\1"),
)


def words(text: str, pages: Collection[str] = ()) -> list[dict[str, Any]]:
    """The glossary page as answers: `{"words": [...], "page": "book/07_baselines", "anchor": "", "text": what is shown}`.

    The first link of an entry is its answer; but a page that is named after a term, such as `book/07_ewc` among `pages`, answers
    for it, and an entry without a link is answered by the glossary.
    """
    terms, _, rest = text.partition("{glossary}\n")[2].partition("\n```")
    entries = [(entry[1].splitlines(), entry[2]) for entry in ENTRY.finditer(f"{terms}\n")]
    entries += [(re.split(r",\s+", entry[1]), entry[2]) for entry in PLACE.finditer(rest)]
    named = {re.sub(r"^book/\d\d_", "", page): page for page in pages if re.match(r"book/\d\d_", page)}
    return [_answer(names, meaning, named) for names, meaning in entries]


def _answer(names: list[str], meaning: str, named: Mapping[str, str]) -> dict[str, Any]:
    link = LINK.search(meaning)
    page, anchor = (f"book/{link[2]}", link[3] or "") if link else (GLOSSARY, "#term-" + names[0].replace(" ", "-"))
    own = next((named[slug] for name in names if (slug := re.sub(r"\W", "", name).lower()) in named), page)
    page, anchor = (page, anchor) if own == page else (own, "")
    plain = re.sub(r"\$([^$]+)\$", r"\\(\1\\)", re.sub(r"[*`]", "", LINK.sub(r"\1", meaning)))
    return {"words": names, "page": page, "anchor": anchor, "text": " ".join(plain.split())}


def unbroken(text: str) -> str:
    """A text with no-break spaces where a line must not end: a mean stays with its deviation, a number with its unit."""
    return TOGETHER.sub(lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), text)


def _keep_together(_app: Any, doctree: Any, _pagename: str) -> None:
    """Words alone: code and formulas stay as they are, and so does what a cell wrote as HTML."""
    for text in list(doctree.findall(lambda node: node.tagname == "#text" and node.parent.tagname not in UNREAD)):
        text.parent.replace(text, type(text)(unbroken(text)))


def named_as_seen(html: str) -> str:
    """A page whose buttons have no name beside the words on them."""
    for wrong, right in NAMES:
        html = html.replace(wrong, right) if isinstance(wrong, str) else wrong.sub(right, html)
    return html


def _add_scripts(app: Any, pagename: str, _template: str, _context: dict[str, Any], _doctree: Any) -> None:
    if pagename == "search":
        for name in SCRIPTS:
            app.add_js_file(name, loading_method="defer", priority=900)


def _finish(app: Any, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    text = (Path(app.srcdir) / f"{GLOSSARY}.md").read_text(encoding="utf-8")
    made = json.dumps(words(text, app.env.found_docs), ensure_ascii=False)
    (Path(app.outdir) / "_static" / SCRIPTS[0]).write_text(f"const SEARCH_WORDS = {made};\n", encoding="utf-8")
    for path in _pages(Path(app.outdir)):
        path.write_text(named_as_seen(path.read_text(encoding="utf-8")), encoding="utf-8")


def _pages(site: Path) -> Iterator[Path]:
    yield from (path for path in site.rglob("*.html") if "_static" not in path.parts)


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("doctree-resolved", _keep_together)
    app.connect("html-page-context", _add_scripts)
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
