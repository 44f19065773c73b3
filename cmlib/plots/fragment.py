"""A piece of HTML that a notebook shows: what players and widgets are, their styles and scripts, ids unique on a page."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_shown: dict[str, int] = {}  # how often each content was shown by this process


class Fragment:
    """Shows itself in a notebook; `html` is the page fragment, `label` says what it is for, `kind` what it is."""

    kind = "fragment"

    def __init__(self, page: str, label: str) -> None:
        self.html = page
        self.label = label

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return f"[{self.kind}] {self.label}"


@cache
def asset(name: str) -> str:
    """A style or a script from the folder `assets`, without the comment at its head."""
    text = Path(__file__).with_name("assets").joinpath(name).read_text(encoding="utf-8")
    return (text.partition("\n")[2] if text.startswith("//") else text).strip()


def unique_id(content: str, prefix: str = "cm-") -> str:
    """The id of an element: the same content has the same id in every process, with a number from its second showing on."""
    key = hashlib.blake2b(content.encode(), digest_size=5).hexdigest()
    _shown[key] = _shown.get(key, 0) + 1
    return f"{prefix}{key}" + (f"-{_shown[key]}" if _shown[key] > 1 else "")
