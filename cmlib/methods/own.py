"""A reader's own methods: where their files are looked for, and how they join those of cmlib.

A method of one's own is one Python file whose class wears `@cm.register("name")`. It is found in the folder `cmlib_methods`
where one works, or in what CMLIB_METHODS names (a folder or a file); as a file, `cmlib run --method path/to/file.py`; or in an
installed package with an entry point of the group `cmlib.methods`. In a notebook the decorator alone is enough. `import cmlib`
runs none of these files: a command does, and an experiment whose method is not known yet. Built in chapter 16.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
import zlib
from contextlib import redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from cmlib.errors import OptionError, check_name
from cmlib.methods.base import METHODS

FOLDER = "cmlib_methods"
GROUP = "cmlib.methods"  # of entry points
A_FILE = "or a file, path/to/method.py"
_texts: dict[str, str] = {}  # of the files that were loaded, by path


def known(name: object) -> str:
    """The name of a method: of a registered one, of a reader's own, or of the one that a file brings.

    OptionError for a name that nobody registers, and for a file that cannot be loaded.
    """
    if isinstance(name, str) and name.endswith(".py"):
        return _only_method(Path(name))
    if not isinstance(name, str) or name not in METHODS:
        load()
    return check_name("method", name, METHODS, A_FILE)


def load() -> None:
    """Register all methods of the reader's own that are new or were changed; OptionError for a file that does not do that."""
    for path in files():
        load_file(path)
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            raise OptionError(f"the entry point {entry.name} = {entry.value} of {GROUP} fails: {_why(error, '')}") from None


def files() -> list[Path]:
    """The reader's own files; none where the folder is absent or CMLIB_METHODS is empty."""
    named = os.environ.get("CMLIB_METHODS")
    if named == "":
        return []
    place = Path(FOLDER if named is None else named)
    if place.is_file():
        return [place]
    if place.is_dir():
        return sorted(path for path in place.glob("*.py") if not path.name.startswith(("_", ".")))
    if named:
        raise OptionError(f"CMLIB_METHODS={named} is neither a folder nor a file; name the folder that holds your methods")
    return []


def load_file(path: Path) -> list[str]:
    """Run a file, unless this text of it was run before; the names of the methods that it registers. OptionError if none."""
    where = str(path.resolve())
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read the method {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    module = f"{FOLDER}.{path.stem}_{zlib.crc32(where.encode()):08x}"  # two files may have one name
    if _texts.get(where) != text or not _names(module):
        for name in _names(module):  # an older text of the same file
            del METHODS[name]
        _run(path, module)
        _texts[where] = text
    if not _names(module):
        raise OptionError(f'{path} registers no method; put @cm.register("name") above its class')
    return _names(module)


def _only_method(path: Path) -> str:
    names = load_file(path)
    if len(names) > 1:
        raise OptionError(f"{path} registers {' and '.join(names)}; put it into the folder {FOLDER} and name one of them")
    return names[0]


def _names(module: str) -> list[str]:
    return [name for name, cls in METHODS.items() if cls.__module__ == module]


def _run(path: Path, name: str) -> None:
    """Run a file as a module of this name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where `inspect` finds the text of its classes
    try:
        # From the text itself: what Python keeps compiled is taken for current when a file changes twice in one second.
        with redirect_stdout(sys.stderr):  # what the file prints is no answer of a command
            exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        for left in _names(name):
            del METHODS[left]
        raise OptionError(f"the method {path} cannot be loaded: {_why(error, str(path))}") from None


def _why(error: Exception, file: str) -> str:
    """What went wrong, and in which line of the file."""
    if isinstance(error, OptionError):
        return str(error)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if file and frame.filename.endswith(file)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    reason = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}{f' in line {line}' if line else ''}: {reason}"
