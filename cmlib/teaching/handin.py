"""What a student hands in: `cm.checks.record("Ada")` lets every check note its outcome in a small file that a teacher collects.

Nothing is written unless a name is given. The file, `Ada.results.json` in the folder of the notebook, holds that name, the
version of the package, and of each exercise whether it passed, with how many tests and at which try; no date, no machine, no
answer. Its seal is a keyed hash of the content: it finds damage and changes by hand, and no more than that, because whoever
reads this module can make one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from cmlib.errors import CmlibError, DataError, OptionError, StoreError
from cmlib.store import write_atomically
from cmlib.version import VERSION

FORMAT = "cmlib results 1"
SUFFIX = ".results.json"
LONGEST_NAME, LARGEST = 80, 100_000  # letters, bytes
JOINERS = "\u200c\u200d"  # within words of Persian and of scripts of India
NUMBER = re.compile(r"[1-9]\d?\.[1-9]")
DIGEST = re.compile(r"[0-9a-f]{8}|")


@dataclass(frozen=True)
class Outcome:
    """How an exercise stands. tests: passed ones; tries: up to the one that passed; checks: digest of the checks that looked."""

    passed: bool
    tests: int
    tries: int
    checks: str


@dataclass(frozen=True)
class HandIn:
    """The content of a file: the name that was given, the package's version, outcomes by exercise such as "4.2"."""

    name: str
    version: str
    exercises: Mapping[str, Outcome]


class _Recording:
    """Where this notebook's checks write; nowhere until `record` was called with a name."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.name = ""


recording = _Recording()


@contextmanager
def paused() -> Iterator[None]:
    """Checks that run meanwhile are not noted: those of the book's own solutions."""
    path, recording.path = recording.path, None
    try:
        yield
    finally:
        recording.path = path


def record(name: str = "", folder: str | Path = ".") -> None:
    """Note the outcome of every check from now on in `folder`, under a name; without a name nothing is noted.

    One file holds all chapters of a folder: what it says already stays. A name that cannot be one raises `OptionError`, a file
    of that name that is damaged `DataError`.
    """
    name = unicodedata.normalize("NFC", " ".join(str(name).split()))
    if not name:
        recording.path = None
        print("No name, so nothing is recorded.")
        return
    path = Path(folder) / (_file_name(name) + SUFFIX)
    if path.exists() and (other := read(path).name) != name:
        raise OptionError(f"{path.name} holds the results of '{other}'; write your name as there, or move that file away")
    recording.path, recording.name = path, name
    print(f"Checks are noted in {path.name}: this name, and of each exercise whether it passed, tests and tries; nothing else.")


def _file_name(name: str) -> str:
    letters = (one if unicodedata.category(one)[0] in "LMN" or one == "_" else "-" for one in name if one not in JOINERS)
    slug = re.sub("-+", "-", "".join(letters)).strip("-")
    if not slug or len(name) > LONGEST_NAME or not _is_text(name, LONGEST_NAME):
        raise OptionError(f"'{name[:40]}' cannot be a name here: it takes letters or digits, at most {LONGEST_NAME} characters")
    return slug


def note(number: str, passed: bool, tests: int) -> None:
    """Add a try at an exercise to the file; a check never fails because of it."""
    if recording.path is None:
        return
    try:
        known = dict(read(recording.path).exercises) if recording.path.exists() else {}
        before = known.get(number, Outcome(False, 0, 0, ""))
        if not before.passed:
            known[number] = Outcome(passed, tests if passed else 0, min(before.tries + 1, 9999), digest_of_checks(number))
            _write(recording.path, HandIn(recording.name, VERSION, known))
    except (CmlibError, OSError) as error:
        print(f"(not recorded: {error})")


@cache
def digest_of_checks(number: str) -> str:
    """Eight hexadecimal digits of the checks of an exercise's chapter, as installed here; empty when there are none."""
    place = files("cmlib.teaching") / "checks" / f"chapter{int(number.partition('.')[0]):02d}.py"
    if not place.is_file():
        return ""
    return hashlib.sha256(place.read_text(encoding="utf-8").encode()).hexdigest()[:8]


def order(number: str) -> tuple[int, ...]:
    """Exercises in the order of the book: 4.2 before 10.1."""
    return tuple(int(part) for part in number.split("."))


def seal(content: Mapping[str, Any]) -> str:
    """The keyed hash of everything in a file but the seal itself."""
    plain = json.dumps({key: value for key, value in content.items() if key != "seal"}, sort_keys=True, ensure_ascii=True)
    return hmac.new(FORMAT.encode(), plain.encode(), hashlib.sha256).hexdigest()[:32]


def _write(path: Path, made: HandIn) -> None:
    exercises = {number: vars(one) for number, one in sorted(made.exercises.items(), key=lambda pair: order(pair[0]))}
    content = {"format": FORMAT, "name": made.name, "cmlib": made.version, "exercises": exercises}
    text = json.dumps({**content, "seal": seal(content)}, indent=1, ensure_ascii=False) + "\n"
    try:
        write_atomically(path, text.encode("utf-8"))
    except StoreError as error:
        raise StoreError(f"cannot write {path.name}: {error}") from None


def read(path: Path) -> HandIn:
    """A file as it was written; DataError, which says what is wrong, for any other."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
        content = None if len(raw) > LARGEST else json.loads(raw.decode("utf-8-sig"), parse_constant=_no_number)
    except OSError as error:
        raise DataError(f"{path.name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path.name} is damaged: its text is not JSON") from None
    if len(raw) > LARGEST:
        raise DataError(f"{path.name} is no result file of cmlib: it has more than {LARGEST:,} bytes")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError(f'{path.name} is no result file of cmlib: "format" is not "{FORMAT}"')
    if content.get("seal") != seal(content):
        raise DataError(f"{path.name} was changed after it was written: its seal does not fit")
    return _checked(content, path.name)


def _no_number(word: str) -> float:
    raise ValueError(word)


def _checked(content: Mapping[str, Any], where: str) -> HandIn:
    """A content whose seal fits, field by field: a seal can be forged, and a field of another kind must not travel on."""
    name, version, exercises = (content.get(key) for key in ("name", "cmlib", "exercises"))
    if not (_is_text(name, LONGEST_NAME) and _is_text(version, 40) and isinstance(exercises, dict)):
        raise DataError(f"{where} is damaged: a field is missing or of another kind")
    assert isinstance(name, str) and isinstance(version, str)
    return HandIn(name, version, {number: _outcome(number, one, where) for number, one in exercises.items()})


def _is_text(value: Any, most: int) -> bool:
    return isinstance(value, str) and value.translate(dict.fromkeys(map(ord, JOINERS))).isprintable() and 0 < len(value) <= most


def _outcome(number: str, fields: Any, where: str) -> Outcome:
    kinds = {"passed": bool, "tests": int, "tries": int, "checks": str}
    good = NUMBER.fullmatch(number) and isinstance(fields, dict) and fields.keys() == kinds.keys()
    if not good or not all(type(fields[key]) is kind for key, kind in kinds.items()):
        raise DataError(f"{where} is damaged: exercise {number[:10]!r} is not as a check writes it")
    made = Outcome(**fields)
    if not (0 <= made.tests <= 9999 and 1 <= made.tries <= 9999 and DIGEST.fullmatch(made.checks)):
        raise DataError(f"{where} is damaged: exercise '{number}' has impossible numbers")
    return made
