"""`cmlib grade FOLDER`: the result files of students (`cmlib.teaching.handin`) as one table, and those that cannot be trusted by
name.

A row is a file. The table to read has a column a chapter with a sign an exercise: `+` passed, `o` tried, `.` not begun. The CSV
file and the JSON object hold the tries of each exercise. Every `.json` file in the folder and below it is looked at, because
platforms for teaching put each student's file into a folder of its own and may change its name.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmlib.errors import DataError, OptionError
from cmlib.reproduction import render
from cmlib.teaching import checks, handin
from cmlib.teaching.handin import HandIn, Outcome

FORMATS = ("text", "md", "csv", "json")
PASSED, TRIED, OPEN = "+", "o", "."
LEGEND = f"{PASSED} passed, {TRIED} tried, {OPEN} not begun; stars: one for N.1, two for N.2, three for N.3 of what passed"


@dataclass(frozen=True)
class Row:
    """A file of a student; notes: what a teacher should know of it."""

    file: str
    made: HandIn
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """All files of a folder: the readable ones, the others as (file, what is wrong), and the exercises that are looked at."""

    rows: list[Row]
    refused: list[tuple[str, str]]
    exercises: list[str]


def exercises(chapters: Sequence[int] = ()) -> list[str]:
    """The exercises of some chapters, all without numbers, as the package's checks have them; OptionError for an unknown one."""
    (folder,) = checks.__path__
    sources = [path.read_text(encoding="utf-8") for path in sorted(Path(folder).glob("chapter[0-9][0-9].py"))]
    found = [re.findall(r"^def ch(\d\d)_(\d)\(", source, re.MULTILINE) for source in sources]
    known = {int(of[0][0]): [f"{int(chapter)}.{k}" for chapter, k in sorted(of)] for of in found}
    for number in chapters:
        if number not in known:
            raise OptionError(f"no chapter {number} with exercises; there are: {', '.join(map(str, known))}")
    return [name for number in chapters or known for name in known[number]]


def numbers(text: str | None) -> list[int]:
    """`"1,3,4"` as numbers of chapters, none for None; OptionError for anything else."""
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 3 for part in parts):
        raise OptionError(f"--chapters {text}: expected numbers of chapters separated by commas, as in 1,3,4")
    return list(dict.fromkeys(int(part) for part in parts))


def collect(folder: str | Path, chapters: Sequence[int] = ()) -> Report:
    """Read all files below a folder; OptionError when there is no such folder, or no file in it.

    chapters: only these count; without them, those of which some file has an exercise.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise OptionError(f"there is no folder {folder}; name the one with the students' files, unpacked")
    asked = exercises(chapters)
    paths = sorted(path for path in folder.rglob("*.json") if path.is_file() and not path.name.startswith("."))
    if not paths:
        raise OptionError(f"{folder} holds no result files; they end with .json and come from cm.checks.record in the notebooks")
    found: list[tuple[str, HandIn]] = []
    refused: list[tuple[str, str]] = []
    for path in paths:
        name = path.relative_to(folder).as_posix()
        try:
            found.append((name, handin.read(path)))
        except DataError as error:
            refused.append((name, str(error).removeprefix(f"{path.name} ")))
    if not chapters:
        begun = {number.partition(".")[0] for _, made in found for number in made.exercises}
        asked = [number for number in asked if number.partition(".")[0] in begun]
    found.sort(key=lambda pair: (pair[1].name.casefold(), pair[0]))
    return Report([Row(name, made, _notes(name, made, found)) for name, made in found], refused, asked)


def _notes(file: str, made: HandIn, found: Sequence[tuple[str, HandIn]]) -> tuple[str, ...]:
    same = [other for other, one in found if other != file and _folded(one.name) == _folded(made.name)]
    copies = [other for other, one in found if other != file and one.exercises and one == made]
    unlike = [number for number, one in made.exercises.items() if one.checks != handin.digest_of_checks(number)]
    notes = [f"the same name in {', '.join(same)}"] if same and not copies else []
    notes += [f"the same file as {', '.join(copies)}"] if copies else []
    notes += [f"{', '.join(unlike)} checked by another version ({made.version})"] if unlike else []
    return tuple(notes)


def _folded(name: str) -> str:
    """A name however its letters are stored, and in whatever case."""
    return unicodedata.normalize("NFC", name).casefold()


def passed(row: Row, asked: Sequence[str]) -> list[str]:
    """The exercises of a row that passed, of those that are looked at."""
    return [number for number in asked if number in row.made.exercises and row.made.exercises[number].passed]


def stars(numbers: Sequence[str]) -> int:
    """N.1 has one star, N.2 two, N.3 three."""
    return sum(handin.order(number)[1] for number in numbers)


def show(report: Report, form: str) -> str:
    """The table as text, md, csv or json."""
    if form == "json":
        return json.dumps(content(report), ensure_ascii=False)
    if form == "csv":
        return _csv(report)
    header, rows = _table(report)
    lines = [render.text(header, rows) if form == "text" else render.markdown(header, [[_plain(c) for c in row] for row in rows])]
    lines += ["", LEGEND + "."]
    noted = [f"{row.file}: {note}." for row in report.rows for note in row.notes]
    refused = [f"{file} was not counted: it {why}." for file, why in report.refused]
    said = ["".join(one if one.isprintable() else repr(one)[1:-1] for one in line) for line in [*noted, *refused]]
    said = [f"- {_plain(line)}" for line in said] if form == "md" else said
    return "\n".join([*lines, *([""] if said else []), *said])


def _plain(cell: str) -> str:
    """A student's name is text, whatever signs it holds."""
    return re.sub(r"([\\`*_<>\[\]#~])", r"\\\1", cell)


def _table(report: Report) -> tuple[list[str], list[list[str]]]:
    chapters = list(dict.fromkeys(number.partition(".")[0] for number in report.exercises))
    of = {chapter: [number for number in report.exercises if number.startswith(f"{chapter}.")] for chapter in chapters}
    most = stars(report.exercises)
    rows = []
    for row in report.rows:
        done = passed(row, report.exercises)
        signs = ["".join(_sign(row.made.exercises.get(number)) for number in of[chapter]) for chapter in chapters]
        rows.append([row.made.name, f"{len(done)}/{len(report.exercises)}", f"{stars(done)}/{most}", *signs])
    return ["name", "passed", "stars", *(f"ch. {chapter}" for chapter in chapters)], rows


def _sign(outcome: Outcome | None) -> str:
    return OPEN if outcome is None else PASSED if outcome.passed else TRIED


def _csv(report: Report) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = [word for number in report.exercises for word in (number, f"{number} tries")]
    writer.writerow(["name", "file", "passed", "stars", *columns, "note"])
    for row in report.rows:
        done, cells = passed(row, report.exercises), list[Any]()
        for number in report.exercises:
            one = row.made.exercises.get(number)
            cells += ["", ""] if one is None else [int(one.passed), one.tries]
        writer.writerow([_inert(row.made.name), _inert(row.file), len(done), stars(done), *cells, _inert("; ".join(row.notes))])
    blank = [""] * len(columns)
    for file, why in report.refused:
        writer.writerow(["", _inert(file), "", "", *blank, f"not counted: it {why}"])
    return out.getvalue().rstrip("\n")


def _inert(cell: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def content(report: Report) -> dict[str, Any]:
    """What the JSON object holds."""
    rows = []
    for row in report.rows:
        done = passed(row, report.exercises)
        tried = {n: {"passed": o.passed, "tests": o.tests, "tries": o.tries} for n, o in row.made.exercises.items()}
        counts = {"passed": len(done), "stars": stars(done)}
        rows.append({"name": row.made.name, "file": row.file, **counts, "exercises": tried, "notes": list(row.notes)})
    refused = [{"file": file, "why": f"it {why}"} for file, why in report.refused]
    return {"exercises": report.exercises, "rows": rows, "refused": refused}
