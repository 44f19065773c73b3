"""What a stored chapter may hold: clean outputs, described figures, nothing from other servers, no number typed into the text.

Each rule looks at a notebook or at one cell and yields one line a problem; `python -m cmlib.teaching.notebooks check` prints
them. A number with decimals belongs into the output of `cm.say`. In the text of a chapter it may stand

- in an equation (dollars, `{math}`, `align`) or in code (backticks, fences): a setting is written in backticks;
- in a quotation ("..." or a block quote), or in a sentence, a table row or a table whose head speaks of the paper;
- as a number of order or of version: in a heading, after section, exercise, chapter, table, figure, eq., version, Python, ...
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from cmlib.teaching import myst

REPOSITORY = "https://github.com/centroids-matching/centroids-matching-book"
INSTALL = f"""\
# Only in Colab: install the book's package. Anywhere else this cell does nothing.
import sys

if "google.colab" in sys.modules:
    %pip install -q git+{REPOSITORY}"""
INSTALL_TAGS = ("install", "hide-cell")

MAX_BYTES = 500_000
MAX_LINES, MAX_FOLDED = 25, 60  # of a code cell that is seen, and of one that is folded
MAX_COLUMNS = 88  # of a code cell that is seen
HIDDEN = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
MIN_CHECKED, MIN_CHECKED_PAGE = 4, 2  # outputs that nbval compares; a page of one method is a quarter of a chapter

_NUMBERED = re.compile(r"# \d+ |(?!# )")  # the title of a chapter; a page of a chapter has a title without a number
_PATH = re.compile(r"(?<![\w./:-])/(?:home|root|Users|tmp|work|opt|usr|private|mnt|content|var|srv)/[\w.-]+|[A-Z]:\\Users")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}")
_BASE64 = re.compile(r"base64,[A-Za-z0-9+/=]+")


def cell_problems(cell: Any, number: int) -> Iterator[str]:
    """Everything that is wrong with one cell."""
    yield from bad_outputs(cell, number)
    yield from unfit_pictures(cell, number)
    if cell.cell_type == "code":
        yield from too_large(cell, number)
    if cell.cell_type == "markdown":
        for typed in typed_decimals(cell.source):
            yield f"cell {number} types a number: '{typed}'; show it with cm.say, or write a setting in backticks"


def too_large(cell: Any, number: int) -> Iterator[str]:
    """Code of more lines than one reads, or wider than the column of a page."""
    folded = bool(HIDDEN & set(cell.metadata.get("tags", [])))
    lines, most = cell.source.splitlines(), MAX_FOLDED if folded else MAX_LINES
    if len(lines) > most:
        yield f"cell {number} has {len(lines)} lines; at most {most}"
    for k, line in enumerate(lines, start=1):
        if len(line) > MAX_COLUMNS and not folded:
            yield f"cell {number}, line {k}: {len(line)} columns; at most {MAX_COLUMNS}"


def title(book: Any) -> str:
    """The text that a notebook begins with; empty where it has none."""
    return next((str(cell.source) for cell in book.cells if cell.cell_type == "markdown"), "")


def notebook_problems(book: Any) -> Iterator[str]:
    """What is wrong with a notebook as a whole: run in order, tagged, one install cell, one parameters cell."""
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        yield "execution counts are not 1..n; run refresh"
    tags = [set(cell.metadata.get("tags", [])) for cell in code]
    checked = sum("nbval-check-output" in t for t in tags)
    least = MIN_CHECKED if _NUMBERED.match(title(book)) else MIN_CHECKED_PAGE
    if checked < least:
        yield f"{checked} cells are tagged nbval-check-output; at least {least}"
    if sum("parameters" in t for t in tags) != 1:
        yield "there must be exactly one cell tagged parameters"
    install = [t for cell, t in zip(code, tags, strict=True) if cell.source == INSTALL]
    if install != [set(INSTALL_TAGS)]:
        yield "the install cell is missing or differs from cmlib.teaching.lint.INSTALL"


# --- outputs -----------------------------------------------------------------------------------------------------


def bad_outputs(cell: Any, number: int) -> Iterator[str]:
    """Errors, warnings, and what differs from machine to machine."""
    for output in cell.get("outputs", []):
        if output.output_type == "error":
            yield f"cell {number} has an error output ({output.get('ename', 'error')})"
        elif output.output_type == "stream" and output.get("name") == "stderr":
            yield f"cell {number} writes to stderr: {output.text.strip().splitlines()[0][:120]}"
        text = _BASE64.sub("base64,", _text_of(output))
        for pattern, what in ((_PATH, "a path of this machine"), (_ADDRESS, "a memory address")):
            match = pattern.search(text)
            if match:
                yield f"cell {number} shows {what}: {match.group(0)}"


def _text_of(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return "\n".join(output.get("traceback", []))
    data = output.get("data", {})
    shown = [v for kind, v in data.items() if not kind.startswith("image/")]
    return "\n".join(v if isinstance(v, str) else json.dumps(v) for v in [*shown, output.get("metadata", {})])


# --- pictures and what a page loads ------------------------------------------------------------------------------

_OUTSIDE = re.compile(r"^\s*(?:https?:|ftp:)?//", re.IGNORECASE)
_STYLE_OUTSIDE = re.compile(r"(?:url\(\s*['\"]?|@import\s+(?:url\()?['\"]?)\s*(?:https?:)?//[^)'\"\s]+", re.IGNORECASE)
_SCRIPT_OUTSIDE = re.compile(r"https?://(?!www\.w3\.org/)[^\s'\"]+")
_ASSETS = {"href": ("link", "use", "image", "base"), "xlink:href": ("use", "image")}  # elsewhere a href is a link, not a load
_LOADS = ("src", "srcset", "data", "poster")
_WITHIN = {"style": _STYLE_OUTSIDE, "script": _SCRIPT_OUTSIDE}


def _pictures(page: str) -> tuple[list[str], list[str]]:
    """Pictures without a description, and addresses of other servers that a page would load from."""
    from bs4 import BeautifulSoup

    bare, outside = [], []
    markup = "<body>" + _BASE64.sub("base64,", page)  # bs4 warns of text without a tag: it might be the name of a file
    for tag in BeautifulSoup(markup, "html.parser", multi_valued_attributes=None).find_all():
        given = {name: str(value).strip() for name, value in tag.attrs.items()}
        if tag.name == "img" and not given.get("alt"):
            bare.append("an image")
        if tag.name in ("svg", "canvas") and not any(_described(one) for one in (tag, *tag.parents)):
            bare.append(f"an <{tag.name}>")
        loads = [value for name, value in given.items() if name in _LOADS or tag.name in _ASSETS.get(name, ())]
        outside += [value for value in loads if _OUTSIDE.match(value)]
        outside += _STYLE_OUTSIDE.findall(given.get("style", ""))
        if tag.name in _WITHIN:
            outside += _WITHIN[tag.name].findall(tag.string or "")
    return bare, outside


def _described(tag: Any) -> bool:
    return any(tag.get(name, "").strip() for name in ("aria-label", "aria-labelledby")) or tag.get("aria-hidden") == "true"


def _pages(cell: Any) -> Iterator[str]:
    """The HTML of a cell: that of its outputs, and that written into its text."""
    if cell.cell_type == "markdown":
        yield myst.rendered(cell.source)
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        yield from (data[kind] for kind in ("text/html", "image/svg+xml", "text/markdown") if kind in data)


def unfit_pictures(cell: Any, number: int) -> Iterator[str]:
    """Pictures that someone who cannot see them would know nothing about, and what would come from another server (links may)."""
    for output in cell.get("outputs", []):
        kinds = output.get("data", {}).keys() - {"application/json"}
        if any(kind.startswith("image/") for kind in kinds):
            yield f"cell {number} shows a bare figure; use cm.show(fig, alt=...)"
        foreign = sorted(kind for kind in kinds if kind.startswith("application/"))
        yield from (f"cell {number}: an output of type {kind} needs scripts of others" for kind in foreign)
    for page in _pages(cell):
        bare, outside = _pictures(page)
        yield from (f"cell {number} has {what} without alt text" for what in bare)
        yield from (f"cell {number} loads from another server: {address[:80]}" for address in outside)


# --- numbers in the text -----------------------------------------------------------------------------------------

_LINK = re.compile(r"https?://[^\s>)]*")
_TAG = re.compile(r"<!--.*?-->|</?[A-Za-z][^<>]*>", re.DOTALL)
_QUOTE = re.compile(r"“[^”]{1,600}”|\"[^\"]{1,600}\"", re.DOTALL)
_ORDER = re.compile(
    r"(?:\b(?:sections?|exercises?|chapters?|tables?|figures?|figs?\.|equations?|eqs?\.|items?|versions?|python|(?:py)?torch"
    r"|torchvision|numpy|scikit-learn|avalanche|jupyter[ -]book|cc by|v)|§)"
    r"[ ~\n]*\d+(?:\.\d+)+(?:(?:,| and| to| or|-|–) *\d+(?:\.\d+)+)*",
    re.IGNORECASE,
)
_DECIMAL = re.compile(r"(?<![\w.,])[-+−]?\d*\.\d+(?![\w]|\.\d)")
_PAPER = re.compile(r"\b(?:paper|printed|prints|authors|released code)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?:;])[\")*_]*\s+(?=[^a-z\s])")


def typed_decimals(source: str) -> list[str]:
    """Numbers with decimals that a Markdown text states by itself, each with the words before it; see the module's text."""
    return [found for block in _blocks(source) for found in _typed(block)]


def _blocks(source: str) -> Iterator[list[str]]:
    """Paragraphs and items as one text each, tables as one a row; headings and block quotes are left out."""
    rows: list[str] = []
    left_out = 0  # how many of these are open
    for token in myst.tokens(source):
        left_out += token.nesting * token.type.startswith(("heading", "blockquote"))
        if token.type == "tr_open":
            rows.append("")
        elif token.type == "table_close":
            yield rows
            rows = []
        elif token.type in ("inline", "html_block") and not left_out:
            if not rows:
                yield [_words(token)]
            else:
                rows[-1] += f" {_words(token)}"


def _words(token: Any) -> str:
    """The text of a block, without code, equations, tags, links, quotations and numbers of order."""
    text = token.content if token.type == "html_block" else "".join(map(_word, token.children))
    for pattern in (_TAG, _LINK, _QUOTE, _ORDER):
        text = pattern.sub(" ", text)
    return str(text)


def _word(token: Any) -> str:
    return token.content if token.type == "text" else "" if token.nesting else " "


def _typed(block: list[str]) -> Iterator[str]:
    if len(block) > 1 and _PAPER.search(block[0]):
        return
    for part in block if len(block) > 1 else _SENTENCE.split(" ".join(block[0].split())):
        if not _PAPER.search(part):
            yield from (" ".join(part[: match.end()].split()[-6:]) for match in _DECIMAL.finditer(part))
