"""What a chapter calls: `setup` once, `say` for every measured number in the text, `show` for every figure."""

from __future__ import annotations

import ast
import html
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cmlib.errors import OptionError, check_name, nearest

PROFILES: dict[str, str] = {
    "smoke": "tiny settings for tests; the numbers mean nothing",
    "digits": "8x8 digits that ship inside scikit-learn; no download, no GPU",
    "mini": "CIFAR-10 with 500 images a class; the data must be on this machine",
    "paper": "the paper's settings; made for a GPU",
}
_THREADS = {"smoke": 1, "digits": 1, "mini": 2, "paper": 2}  # 8x8 images gain nothing from a second thread


def setup(profile: str = "digits", chapter: int | str | None = None) -> None:
    """Prepare a chapter: check its parameters, set threads, quiet progress bars, use the book's style.

    Prints one line that is the same on every machine. Raises `OptionError` for an unknown profile, and for a parameter of
    papermill's that the chapter does not have or that has the wrong type; a notebook shows it in one line.
    """
    try:
        _check_injected()
        check_meaning("profile", profile)
    except OptionError as error:
        line = f"{type(error).__name__}: {error}"
        vars(error)["_render_traceback_"] = lambda: [line]  # what IPython shows instead of a traceback
        raise
    _set_threads(_THREADS[profile])
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    from cmlib.plots.style import use_style

    use_style()
    start = f"Chapter {int(chapter)}, profile" if chapter is not None else "Profile"
    print(f"{start} {profile}: {PROFILES[profile]}.")


def _set_threads(count: int) -> None:
    count = min(count, os.cpu_count() or 1)
    os.environ.setdefault("OMP_NUM_THREADS", str(count))
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(min(count, torch.get_num_threads()))


# --- parameters --------------------------------------------------------------------------------------------------

_LISTS = ("list", "tuple", "sequence")
_KINDS: dict[str, Any] = {"bool": bool, "int": int, "float": (int, float), "str": str, "none": type(None)}


def declared(source: str) -> dict[str, str]:
    """The names that a parameters cell sets, in its order, and their types in small letters: `int`, `list[int]`, `int|none`.

    Without an annotation the type is that of the value. A source that is no Python sets nothing.
    """
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return {}
    found: dict[str, str] = {}
    for line in statements:
        targets = [line.target] if isinstance(line, ast.AnnAssign) else line.targets if isinstance(line, ast.Assign) else []
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        found |= {name: _kind(line) for name in names}
    return found


def _kind(line: Any) -> str:
    if isinstance(line, ast.AnnAssign):
        return ast.unparse(line.annotation).lower().replace(" ", "").strip("'")
    try:
        return type(ast.literal_eval(line.value)).__name__
    except (ValueError, TypeError):
        return "str"


def fits(value: Any, kind: str) -> bool:
    """Whether a value has the type that a parameters cell declares; a type that is none of the plain ones takes anything."""
    outer, _, inner = kind.partition("[")
    if outer in _LISTS:
        inner = inner.rstrip("]").split(",")[0]
        return isinstance(value, list | tuple) and all(fits(one, inner) for one in value)
    kinds = kind.split("|")
    if not set(kinds) <= set(_KINDS):
        return True
    return any(isinstance(value, _KINDS[one]) and (one == "bool" or not isinstance(value, bool)) for one in kinds)


def check_meaning(name: str, value: Any) -> None:
    """Raise `OptionError` for a chapter's parameter whose value has the right type, but that no chapter could work with."""
    if name == "profile":
        check_name("profile", value, PROFILES)
    if name == "seeds" and isinstance(value, list | tuple):
        if not value or any(isinstance(seed, int) and seed < 0 for seed in value):
            raise OptionError(f"parameter 'seeds' is {value}; allowed: at least one seed, none below 0")
    elif name == "seeds" and value < 1:
        raise OptionError(f"parameter 'seeds' is {value}; allowed: a whole number of at least 1")
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionError(f"parameter '{name}' is {value}; allowed: a finite number")


def takes(kind: str) -> str:
    """What a parameter of this type takes, in words."""
    if kind.partition("[")[0] in _LISTS:
        return "a list such as [0, 1]"
    return "true or false" if kind == "bool" else f"a value of type {kind}"


def _hint(kind: str, name: str) -> str:
    """How papermill's command line is told such a value; its `-p` makes texts of lists and of `false`."""
    example = "[0, 1]" if kind.partition("[")[0] in _LISTS else "false" if kind == "bool" else ""
    return f'; for papermill write -y "{name}: {example}"' if example else ""


def check_known(names: Iterable[str], known: Mapping[str, str], where: str) -> None:
    """Raise `OptionError` unless the chapter has all these parameters; where: the chapter, as the message names it."""
    for name in names:
        if name not in known:
            raise OptionError(f"{where} has no parameter '{name}'; it has: {', '.join(known) or 'none'}.{nearest(name, known)}")


def _check_injected() -> None:
    """Raise `OptionError` when papermill was given a parameter that the running notebook does not have, or of another type."""
    cells, values = _history()
    for k in range(len(cells) - 1, 0, -1):
        known = declared(cells[k - 1])
        if known and cells[k].startswith("# Parameters\n"):  # the cell that papermill puts after the parameters cell
            given = declared(cells[k])
            check_known(given, known, "this chapter")
            for name in given:
                if not fits(values.get(name), known[name]):
                    raise OptionError(
                        f"parameter '{name}' takes {takes(known[name])}, not {values.get(name)!r}{_hint(known[name], name)}"
                    )
                check_meaning(name, values.get(name))
            return


def _history() -> tuple[list[str], dict[str, Any]]:
    """The cells that this notebook's kernel has run, and its variables; nothing outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return (list(shell.user_ns.get("In", [])), shell.user_ns) if shell else ([], {})


class _Output:
    """Something a notebook shows: a bundle of MIME types and metadata."""

    def __init__(self, data: dict[str, str], metadata: dict[str, Any] | None = None) -> None:
        self.data = data
        self.metadata = metadata or {}

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        return self.data, self.metadata

    def __repr__(self) -> str:
        return self.data["text/plain"]


# --- say ---------------------------------------------------------------------------------------------------------

_FIELD = re.compile(r"\{([A-Za-z_]\w*)(?::([^{}]*))?\}")
_PLACES = re.compile(r"(?P<code>(?P<ticks>`+)[^`].*?(?P=ticks)(?!`))|(?P<math>\$\$.*?\$\$|\$[^$]*\$)", re.DOTALL)
_SPECIAL = re.compile(r"[\\`*_|$<>&\[\]{}~#^]|^\s*[-+=%:](?=[-+=:\s]|$)|^\s*\d+[.)](?=\s)")  # the last two begin a block
_LATEX = {"\\": r"\backslash ", "<": r"\lt ", ">": r"\gt ", "~": r"\sim ", "^": r"\wedge "}
MARKDOWN = "markdown"  # the format of a value that the page itself writes as Markdown


def say(text: str, run: Any = None, **values: Any) -> _Output:
    """Markdown whose numbers come from `values`: ``say("Accuracy is **{acc:.1f} %**.", run=run, acc=run.accuracy)``.

    Fields look like ``{name}`` or ``{name:.1f}``; braces of LaTeX between dollars stay as they are. A value that is a text is
    shown as it is, whatever characters it has; one that the page writes in Markdown itself is asked for by
    ``{name:markdown}``. `run` is a run, a run id, or a list of them. The raw values and the run ids go into the output's
    metadata under "cmlib", so that an audit can compute them again. An unknown or an unused name raises `OptionError`.
    """
    used: set[str] = set()
    filled = [_fill(place, part, values, used) for place, part in _places(text)]
    unused = sorted(set(values) - used)
    if unused:
        raise OptionError(f"say: '{unused[0]}' was given but the text has no field {{{unused[0]}}}")
    shown, plain = ("".join(parts) for parts in zip(("", ""), *filled))
    record = {"text": text, "values": {k: _plain(v) for k, v in sorted(values.items())}, "runs": _run_ids(run)}
    return _Output({"text/markdown": shown, "text/plain": plain}, {"cmlib": record})


def _places(text: str) -> Iterator[tuple[str, str]]:
    """The parts of a text, each with what it is: `text`, `code` between backticks or `math` between dollars."""
    end = 0
    for match in _PLACES.finditer(text):
        yield "text", text[end : match.start()]
        yield "code" if match["code"] else "math", match[0]
        end = match.end()
    yield "text", text[end:]


def _fill(place: str, part: str, values: Mapping[str, Any], used: set[str]) -> tuple[str, str]:
    """A part with its values in it, as Markdown and as plain text."""

    def one(match: re.Match[str], escaped: bool) -> str:
        name, spec = match.group(1), match.group(2)
        if name not in values:
            if place == "math" and spec is None:
                return match.group(0)
            raise OptionError(f"say: no value for the field {{{name}}}.{nearest(name, values)}")
        used.add(name)
        value = _plain(values[name], keep_nan=True)
        try:
            shown = str(value) if spec == MARKDOWN else format(value, spec or "")
        except (TypeError, ValueError) as error:
            raise OptionError(f"say: {name}={values[name]!r} does not fit the format '{spec}' ({error})") from None
        return escape(shown, place) if escaped and spec != MARKDOWN and _has_text(value) else shown

    return _FIELD.sub(lambda match: one(match, True), part), _FIELD.sub(lambda match: one(match, False), part)


def _has_text(value: Any) -> bool:
    return any(map(_has_text, value)) if isinstance(value, list) else isinstance(value, str)


def escape(value: str, place: str = "text") -> str:
    """A text as Markdown that shows it letter by letter on one line, also in a table and inside HTML.

    place: `text`, `code` (between backticks, where nothing can be escaped: a backtick becomes an apostrophe) or `math`.
    """
    value = re.sub(r"\s*[\n\r\f\v\x85\u2028\u2029]\s*", " ", value)
    if place == "code":
        return value.replace("`", "'").replace("|", "¦")  # a bar ends a cell even there
    if place == "math":
        return re.sub(r"[\\<>~^]|[{}_$%&#]", lambda match: _LATEX.get(match[0], f"\\{match[0]}"), value).replace("`", "'")
    return _SPECIAL.sub(lambda match: match[0][:-1] + f"&#{ord(match[0][-1])};", value)


def _plain(value: Any, keep_nan: bool = False) -> Any:
    """Numbers and nested lists of numbers that JSON can hold (nan and infinities become null)."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(v, keep_nan) for v in value]
    if isinstance(value, float) and not math.isfinite(value) and not keep_nan:
        return None
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def _run_ids(run: Any) -> list[str]:
    if run is None:
        return []
    if isinstance(run, str) or not isinstance(run, Iterable):
        run = [run]
    return [r if isinstance(r, str) else str(r.id) for r in run]


# --- show --------------------------------------------------------------------------------------------------------


def show(fig: Any, alt: str, caption: str | None = None) -> _Output:
    """A matplotlib figure as HTML with alternative text; the same figure gives the same bytes every time.

    The figure is an `<svg>` inside the page whose colours follow the page's theme, and a second one for narrow screens, with its
    panels below each other. `alt` says what the picture shows to someone who cannot see it; an empty one raises `OptionError`.
    Without `caption` a caption that the figure function wrote (explained variance, for example) is used.
    """
    if not isinstance(alt, str) or not alt.strip():
        raise OptionError("show: alt is empty; say in one or two sentences what the figure shows")
    from cmlib.plots import inline

    alt = " ".join(alt.split())
    caption = caption if caption is not None else getattr(fig, "cm_caption", None)
    below = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return _Output({"text/html": inline.page(fig, alt, below), "text/plain": f"[figure] {alt}"})
