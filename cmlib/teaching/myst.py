"""The book's Markdown, parsed as the site parses it: as HTML for slides and pages, as text for the rules of `lint`."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

CODE = ("code", "code-block", "code-cell", "sourcecode", "literalinclude", "raw", "bibliography", "eval-rst")  # no text inside
DIRECTIVE = re.compile(r"\{([\w-]+)\} *(.*)")  # name, title
OPTIONS = re.compile(r"(?: *:[\w-]+:[^\n]*\n)*")
ROLE = re.compile(r"\s*\{cite[:\w]*\}`[^`]*`")


@cache
def parser() -> Any:
    """The parser of the site, whose own renderer writes plain HTML."""
    from markdown_it.renderer import RendererHTML
    from myst_parser.config.main import MdParserConfig
    from myst_parser.parsers.mdit import create_md_parser

    return create_md_parser(MdParserConfig(enable_extensions={"amsmath", "colon_fence", "dollarmath"}), RendererHTML)


def directive(token: Any) -> tuple[str, str, str, str] | None:
    """Name, title, options and body of a directive; None for anything else."""
    found = DIRECTIVE.match(token.info.strip()) if token.type.endswith("fence") else None
    options = OPTIONS.match(token.content)
    return (found[1], found[2], options[0], token.content[options.end() :]) if found and options else None


def tokens(text: str) -> Iterator[Any]:
    """The tokens of a text, with those of the text inside its directives."""
    for token in parser().parse(text):
        found = directive(token)
        yield from tokens(found[3]) if found and found[0] not in (*CODE, "math") else [token]


def rendered(text: str, link: Callable[[str], str | None] | None = None) -> str:
    """Markdown as HTML: formulas for MathJax, boxes, tables; neither comments nor citations.

    link: where a link to this place in the book leads; without it, and where it gives none, the words alone.
    """
    made = parser().parse(ROLE.sub("", text))
    for block in made:
        _relink(block.children or [], link)
        for token in (block, *(block.children or [])):
            shown = _html(token, link)
            if shown is not None:
                token.type, token.content = "html_inline", shown
    return str(parser().renderer.render(made, parser().options, {}))


def _relink(inside: list[Any], link: Callable[[str], str | None] | None) -> None:
    """Links inside the book as HTML; one without words shows its place."""
    for k, token in enumerate(inside):
        place = str(token.attrs.get("href", ""))
        if token.type == "link_open" and not re.match(r"https?:", place):
            end = next(one for one in inside[k:] if one.type == "link_close")
            target = link(place) if link else None
            words = html.escape(place) if inside[k + 1] is end else ""
            token.content, end.content = (f'<a href="{html.escape(target)}">{words}', "</a>") if target else (words, "")
            token.type = end.type = "html_inline"


def _html(token: Any, link: Callable[[str], str | None] | None) -> str | None:
    """What a token shows in place of the parser's own HTML; None: that."""
    name, title, options, body = directive(token) or ("", "", "", token.content)
    if token.type == "math_inline":
        return rf"\({html.escape(body)}\)"
    if name == "math" or token.type in ("math_inline_double", "math_block", "math_block_label", "amsmath"):
        return rf"<div class='formula'>\[{html.escape(body.strip())}\]</div>" + "\n" * bool(token.block)
    if token.type.startswith("myst_"):  # comments, labels, roles
        return html.escape(re.sub(r"\s*<.*>", "", body)) if token.type == "myst_role" else ""
    if not name or name in CODE:
        return None
    inside = rendered(body, link)
    if name in ("figure", "image"):
        alt = re.search(r":alt: *([^\n]*)", options)
        return f'<figure><img src="{html.escape(title)}" alt="{html.escape(alt[1] if alt else "")}">{inside}</figure>\n'
    if name == "dropdown" or "dropdown" in options:
        return f"<details><summary>{html.escape(title)}</summary>{inside}</details>\n"
    return f'<aside class="box"><p><strong>{html.escape(title)}</strong></p>{inside}</aside>\n' if title else inside
