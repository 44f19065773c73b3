"""The book's Markdown, parsed as the site parses it: as HTML for slides and pages, as text for the rules of `lint`."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

CODE = ("code", "code-block", "code-cell", "sourcecode", "literalinclude", "raw", "bibliography", "eval-rst")  # no text inside
DIRECTIVE = re.compile(r"\{([\w-]+)\} *(.*)")  # name, title
OPTIONS = r"(?: *:[\w-]+:[^\n]*\n)*"
ROLE = re.compile(r"\s*\{cite[:\w]*\}`[^`]*`")


@cache
def parser() -> Any:
    """The parser of the site, whose own renderer writes plain HTML."""
    from markdown_it.renderer import RendererHTML
    from myst_parser.config.main import MdParserConfig
    from myst_parser.parsers.mdit import create_md_parser

    return create_md_parser(MdParserConfig(enable_extensions={"amsmath", "colon_fence", "dollarmath"}), RendererHTML)


def directive(token: Any) -> tuple[str, str, str, str]:
    """Name, title, options and body of a directive; of anything else its content as the body."""
    found = DIRECTIVE.match(token.info.strip()) if token.type.endswith("fence") else None
    if found is None:
        return "", "", "", token.content
    options = re.match(OPTIONS, token.content)[0]  # type: ignore[index]  # it matches nothing, too
    return found[1], found[2], options, token.content.removeprefix(options)


def tokens(text: str) -> Iterator[Any]:
    """The tokens of a text, with those of the text inside its directives."""
    for token in parser().parse(text):
        name, *_, body = directive(token)
        yield from tokens(body) if name not in ("", "math", *CODE) else [token]


def rendered(text: str) -> str:
    """Markdown as HTML: formulas for MathJax, boxes, tables; neither comments nor citations."""
    made = parser().parse(ROLE.sub("", text))
    for token in (one for block in made for one in (block, *(block.children or []))):
        if (shown := _html(token)) is not None:
            token.type, token.content = "html_inline", shown
    return str(parser().renderer.render(made, parser().options, {}))


def _html(token: Any) -> str | None:
    """What a token shows in place of the parser's own HTML; None: that."""
    name, title, options, body = directive(token)
    if token.type == "math_inline":
        return rf"\({html.escape(body)}\)"
    if name == "math" or "math" in token.type:
        return rf"<div class='formula'>\[{html.escape(body.strip())}\]</div>"
    if token.type.startswith("myst_"):  # comments, labels, roles
        return html.escape(re.sub(r"\s*<.*>", "", body)) if token.type == "myst_role" else ""
    if name in ("", *CODE):
        return None
    inside, title = rendered(body), html.escape(title)
    if name in ("figure", "image"):
        alt = re.search(r":alt: *([^\n]*)", options)
        return f'<img src="{title}" alt="{html.escape(alt[1] if alt else "")}">{inside}'
    if "dropdown" in (name + options):
        return f"<details><summary>{title}</summary>{inside}</details>"
    return f'<aside class="box"><p><strong>{title}</strong></p>{inside}</aside>' if title else inside


def linked(page: str, link: Callable[[str], str | None]) -> str:
    """HTML whose links inside the book lead where `link` says; where it says nothing their words alone are left."""

    def one(found: re.Match[str]) -> str:
        target, words = link(html.unescape(found[1])), found[2] or found[1]
        return f'<a href="{html.escape(target)}">{words}</a>' if target else words

    return re.sub(r'<a href="(?!https?:)([^"]*)">(.*?)</a>', one, page, flags=re.DOTALL)
