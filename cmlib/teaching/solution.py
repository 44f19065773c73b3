"""What the cell `cm.solution("4_2", globals())` unfolds: the answer to an exercise, run in the chapter that asks.

The solutions are the Markdown files in the folder `solutions`. A block ```` ```python ```` is shown and run; one that begins with
```` ```python quiet ```` is run only. They run in a copy of the chapter's names, so that nothing of the reader's is overwritten,
and the check of the exercise must say OK. What a block shows is folded too: its last expression, as in a notebook, or a list.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from cmlib.errors import OptionError, nearest
from cmlib.teaching.handin import paused

BLOCK = re.compile(r"^```python( quiet)?\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
FOLDED = re.compile(r"<details[^>]*><summary>[^<]*</summary>(\n\n|)(.*)\1</details>", re.DOTALL)


class Folded:
    """A solution in a notebook: one folded text, and after it whatever its blocks show, each folded too."""

    def __init__(self, number: str, bundles: list[tuple[dict[str, str], dict[str, Any]]]) -> None:
        self.number, self.bundles = number, bundles

    def _ipython_display_(self) -> None:
        from IPython.display import display

        for data, metadata in self.bundles:
            display(data, metadata=metadata, raw=True)

    def __repr__(self) -> str:
        return "\n".join(data["text/plain"] for data, _ in self.bundles)


def solution(number: str, namespace: Mapping[str, Any] | None = None) -> Folded:
    """The solution of exercise `number`, such as "4_2" (a full stop will do), folded.

    namespace: the names of the chapter, `globals()`; with them its code is run, without them only shown. An exercise that does
    not exist raises `OptionError`, a solution that does not pass its own check AssertionError.
    """
    text = source(number)
    number = number.replace("_", ".")
    said, shown = _run(text, number, namespace) if namespace is not None else ("", [])
    visible = BLOCK.sub(lambda block: "" if block[1] else block[0], text).strip()
    if said:
        visible += f"\n\n```text\n{said}\n```"
    first = {"text/markdown": _fold(f"Solution {number}", visible, gap="\n\n"), "text/plain": f"[solution {number}]"}
    return Folded(number, [(first, {}), *(_folded(value, number) for value in shown)])


def source(number: str) -> str:
    """The Markdown text of a solution; OptionError for an exercise that does not exist."""
    known = texts()
    if not known:
        raise OptionError("this is the students' package, which comes without solutions; your teacher has them")
    found = re.fullmatch(r"0?(\d{1,2})[_.](\d)", str(number))
    key = f"{int(found[1]):02d}_{found[2]}" if found else str(number)
    if key not in known:
        raise OptionError(f"there is no solution '{number}'; it is written as in \"4_2\".{nearest(key, known)}")
    return known[key]


def texts() -> dict[str, str]:
    """The Markdown texts of all solutions, by names such as "04_2", in order; none in the students' package."""
    folder = files("cmlib.teaching") / "solutions"
    found = sorted(folder.iterdir(), key=lambda path: path.name) if folder.is_dir() else []
    return {path.name.removesuffix(".md"): path.read_text(encoding="utf-8") for path in found}


def _run(text: str, number: str, namespace: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Run the blocks one after the other: what they print, and the values of their last expressions."""
    names, shown, printed = dict(namespace), [], io.StringIO()
    with contextlib.redirect_stdout(printed), paused():
        for block in BLOCK.finditer(text):
            for value in _values(block[2], names, f"<solution {number}>"):
                shown += value if isinstance(value, list) else [] if value is None else [value]
    said = printed.getvalue().strip()
    passed = re.search(rf"^OK {re.escape(number)} \(\d+ tests\)$", said, re.MULTILINE)
    assert passed, f"the solution of {number} does not pass its check: {said or 'it printed nothing'}"
    return said, shown


def _values(block: str, names: dict[str, Any], where: str) -> Iterator[Any]:
    """Run a block as a notebook runs a cell; its last expression's value, where it ends with one."""
    tree = ast.parse(block)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        exec(compile(ast.Module(tree.body[:-1], []), where, "exec"), names)
        yield eval(compile(ast.Expression(last.value), where, "eval"), names)
    else:
        exec(compile(tree, where, "exec"), names)


def _folded(value: Any, number: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Something that a block shows as a bundle of its own: Markdown keeps the record of its numbers, a figure its description."""
    title = f"Solution {number}: what it gives"
    if not hasattr(value, "_repr_mimebundle_"):
        html = value._repr_html_() if hasattr(value, "_repr_html_") else f"<pre>{value!r}</pre>"
        return {"text/html": _fold(title, html), "text/plain": repr(value)}, {}
    data, metadata = value._repr_mimebundle_()
    kind, gap = ("text/html", "") if "text/html" in data else ("text/markdown", "\n\n")
    return {**data, kind: _fold(title, data[kind], gap)}, metadata


def _fold(title: str, content: str, gap: str = "") -> str:
    return f'<details class="cm-solution"><summary>{title}</summary>{gap}{content}{gap}</details>'


def unfolded(text: str) -> str:
    """What lies inside a folded output; a text that is not folded as it is."""
    found = FOLDED.fullmatch(text)
    return found[2] if found else text
