"""What students hand in, and `cmlib grade`: three made-up submissions, damage of every kind, and nothing without a name."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from cmlib import cli
from cmlib.errors import DataError, OptionError
from cmlib.teaching import checks, grade, handin, solution
from cmlib.teaching.checks.base import exercise
from cmlib.teaching.handin import HandIn, Outcome


@pytest.fixture(autouse=True)
def nothing_recorded() -> Any:
    yield
    handin.recording.path = None


@exercise("1.1", hint="it is one")
def one(answer: Any, test: Any) -> None:
    test.true(answer() == 1, "it is not one")
    test.true(True, "")


@exercise("10.2", hint="it is two")
def two(answer: Any, test: Any) -> None:
    test.true(answer() == 2, "it is not two")


def submit(folder: Path, name: str, answers: list[tuple[Any, Any]]) -> Path:
    """A file as a student's checks write it."""
    checks.record(name, folder)
    for check, answer in answers:
        check(answer)
    assert handin.recording.path is not None
    return handin.recording.path


def wrong() -> int:
    return 7


def right_one() -> int:
    return 1


def right_two() -> int:
    return 2


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Ada passes both, one of them at the third try; Bo tries one and leaves one; Cleo begins nothing."""
    (tmp_path / "group").mkdir()
    submit(tmp_path, "Ada", [(one, wrong), (one, wrong), (one, right_one), (two, right_two)])
    submit(tmp_path / "group", "Bo", [(one, wrong), (two, None)])
    submit(tmp_path, "Cleo Ö", [])
    handin._write(tmp_path / "cleo.results.json", HandIn("Cleo Ö", "0.1.0", {}))
    return tmp_path


# --- recording ----------------------------------------------------------------------------------------------------------


def test_without_a_name_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    one(right_one)
    checks.record("  ")
    one(right_one)
    assert "nothing is recorded" in capsys.readouterr().out and list(tmp_path.iterdir()) == []


def test_the_file_holds_what_was_promised_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = submit(tmp_path, "Ada", [(one, wrong), (one, right_one), (one, wrong), (two, wrong)])
    said = capsys.readouterr().out
    assert "Ada.results.json" in said and "nothing else" in said
    content = json.loads(path.read_text(encoding="utf-8"))
    assert set(content) == {"format", "name", "cmlib", "exercises", "seal"}
    digest = handin.digest_of_checks("1.1")
    assert len(digest) == 8
    assert content["exercises"] == {
        "1.1": {"passed": True, "tests": 2, "tries": 2, "checks": digest},
        "10.2": {"passed": False, "tests": 0, "tries": 1, "checks": handin.digest_of_checks("10.2")},
    }, "what has passed stays passed, and its tries end there"


def test_chapters_of_one_folder_share_a_file(tmp_path: Path) -> None:
    submit(tmp_path, "Ada", [(one, right_one)])
    handin.recording.path = None  # another notebook
    path = submit(tmp_path, "Ada", [(two, right_two)])
    assert set(handin.read(path).exercises) == {"1.1", "10.2"} and len(list(tmp_path.iterdir())) == 1


def test_a_solution_that_is_unfolded_is_not_the_students_work(tmp_path: Path) -> None:
    path = submit(tmp_path, "Ada", [(one, wrong)])
    namespace = {"one": one, "right_one": right_one}
    text = "```python\none(right_one)\n```\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solution, "source", lambda number: text)
        solution.solution("1_1", namespace)
    assert handin.read(path).exercises["1.1"].passed is False
    one(right_one)
    assert handin.read(path).exercises["1.1"] == Outcome(True, 2, 2, handin.digest_of_checks("1.1"))


@pytest.mark.parametrize("name", ["///", "a" * 81, "a\x00b"])
def test_a_name_that_can_be_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError, match="cannot be a name here"):
        checks.record(name, tmp_path)


def test_a_name_stays_inside_its_folder(tmp_path: Path) -> None:
    path = submit(tmp_path, "../../etc/Ada", [(one, right_one)])
    assert path.parent == tmp_path and handin.read(path).name == "../../etc/Ada"


@pytest.mark.parametrize("name", ["محمد\u200cرضا", "नीता", "मोहित", "José", "Cleo Ö"])
def test_names_of_all_scripts_are_kept(tmp_path: Path, name: str) -> None:
    path = submit(tmp_path, name, [(one, right_one)])
    assert handin.read(path).name == name and len(path.name) > len(handin.SUFFIX) + 3
    assert path.name == unicodedata.normalize("NFC", name.replace("\u200c", "").replace(" ", "-")) + handin.SUFFIX


def test_names_that_differ_in_a_vowel_have_files_of_their_own_and_stored_forms_do_not_matter(tmp_path: Path) -> None:
    assert submit(tmp_path, "नीता", [(one, right_one)]) != submit(tmp_path, "नेता", [(one, right_one)])
    composed, apart = (unicodedata.normalize(form, "José") for form in ("NFC", "NFD"))
    assert submit(tmp_path, composed, [(one, right_one)]) == submit(tmp_path, apart, [(one, right_one)])
    handin._write(tmp_path / "other.results.json", HandIn(apart, "0.1.0", {}))
    notes = {row.file: row.notes for row in grade.collect(tmp_path).rows}
    assert notes["other.results.json"] == ("the same name in José.results.json",)


def test_what_a_forged_file_holds_does_not_reach_the_terminal(tmp_path: Path) -> None:
    outcome = {"passed": True, "tests": 1, "tries": 1, "checks": "00000000"}
    content = {"format": handin.FORMAT, "name": "Eve", "cmlib": "0.1.0", "exercises": {"\x1b[2J\n+ ": outcome}}
    (tmp_path / "<img src=x>.json").write_text(json.dumps({**content, "seal": handin.seal(content)}), encoding="utf-8")
    submit(tmp_path, "Ada", [(one, right_one)])
    report = grade.collect(tmp_path)
    text, page = grade.show(report, "text"), grade.show(report, "md")
    assert "\x1b" not in text and "exercise '\\x1b[2J\\n+ '" in text
    assert r"- \<img src=x\>.json" in page and not re.search(r"(?<!\\)<img", page)


def test_two_names_do_not_share_a_file(tmp_path: Path) -> None:
    submit(tmp_path, "Ada L", [(one, right_one)])
    with pytest.raises(OptionError, match="holds the results of 'Ada L'"):
        checks.record("Ada/L", tmp_path)


def test_a_check_does_not_fail_because_the_file_was_damaged(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = submit(tmp_path, "Ada", [(one, wrong)])
    path.write_text("{", encoding="utf-8")
    capsys.readouterr()
    one(right_one)
    assert capsys.readouterr().out.splitlines() == [
        "(not recorded: Ada.results.json is damaged: its text is not JSON)",
        "OK 1.1 (2 tests)",
    ]
    assert path.read_text(encoding="utf-8") == "{"
    with pytest.raises(DataError, match="is damaged"):
        checks.record("Ada", tmp_path)


# --- files that cannot be trusted -----------------------------------------------------------------------------------------


def sealed(**changes: Any) -> str:
    """A file of another content whose seal fits."""
    outcome = {"passed": True, "tests": 2, "tries": 1, "checks": ""}
    content = {"format": handin.FORMAT, "name": "Ada", "cmlib": "0.1.0", "exercises": {"1.1": outcome}, **changes}
    return json.dumps({**content, "seal": handin.seal(content)})


GOOD = sealed()
BAD = {
    "was changed after it was written": [
        GOOD.replace("true", "false"),
        GOOD.replace("Ada", "Bob"),
        GOOD.replace('"seal": "', '"seal": "0'),
    ],
    "is damaged: its text is not JSON": ["", "{", GOOD[:-9], "\x00\x01", GOOD.replace("2", "NaN", 1), "[" * 100_000],
    "is no result file": ["[]", "7", "{}", '{"format": "other"}', " " * 200_000],
    "is damaged: a field": [sealed(name=3), sealed(name=""), sealed(name="x" * 81), sealed(cmlib=None), sealed(exercises=[])],
    "is not as a check writes it": [
        sealed(exercises={"1.1": 1}),
        sealed(exercises={"x": {}}),
        sealed(exercises={"1.1": {"passed": 1, "tests": 2, "tries": 1, "checks": ""}}),
    ],
    "has impossible numbers": [
        sealed(exercises={"1.1": {"passed": True, "tests": -2, "tries": 1, "checks": ""}}),
        sealed(exercises={"1.1": {"passed": True, "tests": 2, "tries": 0, "checks": ""}}),
        sealed(exercises={"1.1": {"passed": True, "tests": 2, "tries": 1, "checks": "<b>"}}),
    ],
}
CASES = [(words, text) for words, texts in BAD.items() for text in texts]


@pytest.mark.parametrize(("words", "text"), CASES, ids=[f"{words[:20]}-{k}" for k, (words, _) in enumerate(CASES)])
def test_a_bad_file_is_named_with_the_reason(tmp_path: Path, words: str, text: str) -> None:
    (tmp_path / "good.json").write_text(GOOD, encoding="utf-8")
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    report = grade.collect(tmp_path)
    assert [row.file for row in report.rows] == ["good.json"]
    ((file, why),) = report.refused
    assert file == "bad.json" and words in why and "\n" not in why


def test_random_damage_is_refused_in_one_line_or_harms_nothing(tmp_path: Path, counted: Any) -> None:
    path = submit(tmp_path, "Ada", [(one, right_one), (two, wrong)])
    good, whole = path.read_bytes(), handin.read(path)
    refused = 0
    for seed in range(400):
        rng = random.Random(seed)
        a, b = sorted(rng.sample(range(len(good)), 2))
        ways = [good[:a], good[:a] + good[b:], good[:a] + good[a:b] * 2 + good[b:], good[:a] + rng.randbytes(3) + good[a:]]
        flipped = bytearray(good)
        flipped[a] ^= 1 << rng.randrange(8)
        path.write_bytes(rng.choice([*ways, bytes(flipped)]))
        try:
            assert handin.read(path) == whole, "only white space was changed"
        except DataError as error:
            refused += 1
            assert "\n" not in str(error) and path.name in str(error)
    counted("inputs fuzzed", 400)
    assert refused > 300


@pytest.mark.parametrize("kind", ["folder", "loop", "gone"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.json"
    path.mkdir() if kind == "folder" else path.symlink_to(path) if kind == "loop" else None
    with pytest.raises(DataError, match=r"a\.json cannot be read: "):
        handin.read(path)


def test_the_table_does_not_count_what_was_changed_by_hand(three: Path, capsys: pytest.CaptureFixture) -> None:
    path = three / "group" / "Bo.results.json"
    path.write_text(path.read_text(encoding="utf-8").replace("false", "true"), encoding="utf-8")
    capsys.readouterr()
    assert cli.main(["grade", str(three)]) == 1
    out = capsys.readouterr().out
    assert "group/Bo.results.json was not counted: it was changed after it was written: its seal does not fit." in out
    assert not any(line.startswith("Bo ") for line in out.splitlines())


# --- the table --------------------------------------------------------------------------------------------------------------


def test_three_submissions_give_the_right_table(three: Path, capsys: pytest.CaptureFixture) -> None:
    capsys.readouterr()
    assert cli.main(["grade", str(three)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines[:5]] == [
        "name passed stars ch. 1 ch. 10",
        "------ ------ ----- ----- ------",
        "Ada 2/6 3/12 +.. .+.",
        "Bo 0/6 0/12 o.. ...",
        "Cleo Ö 0/6 0/12 ... ...",
    ]
    assert lines[6] == grade.LEGEND + "."


def test_the_csv_file_has_the_tries_and_no_formula(three: Path, capsys: pytest.CaptureFixture) -> None:
    submit(three, "=1+1", [(one, right_one)])
    capsys.readouterr()
    assert cli.main(["grade", str(three), "--format", "csv", "--chapters", "1"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["name"], row["1.1"], row["1.1 tries"], row["passed"]) for row in rows] == [
        ("'=1+1", "1", "1", "1"),
        ("Ada", "1", "3", "1"),
        ("Bo", "0", "1", "0"),
        ("Cleo Ö", "", "", "0"),
    ]
    assert "10.2" not in rows[0]


def test_json_is_one_object(three: Path, capsys: pytest.CaptureFixture) -> None:
    (three / "holiday.json").write_text("{}", encoding="utf-8")
    capsys.readouterr()
    assert cli.main(["grade", str(three), "--json"]) == 1
    made = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["passed"], row["stars"]) for row in made["rows"]] == [("Ada", 2, 3), ("Bo", 0, 0), ("Cleo Ö", 0, 0)]
    assert made["rows"][0]["exercises"]["1.1"] == {"passed": True, "tests": 2, "tries": 3}
    assert made["refused"] == [
        {"file": "holiday.json", "why": 'it is no result file of cmlib: "format" is not "cmlib results 1"'}
    ]


def test_markdown_shows_a_name_as_it_was_typed(three: Path) -> None:
    submit(three, "A | b *c* <d>", [(one, right_one)])
    assert r"| A \| b \*c\* \<d\> | 1/6 |" in grade.show(grade.collect(three), "md")


def test_twins_copies_and_other_versions_are_pointed_out(three: Path) -> None:
    text = (three / "Ada.results.json").read_text(encoding="utf-8")
    (three / "group" / "copy (1).json").write_text(text, encoding="utf-8")
    submit(three / "group", "ada", [(one, right_one)])
    outcome = Outcome(True, 4, 1, "00000000")
    handin._write(three / "old.results.json", HandIn("Old", "0.0.9", {"1.1": outcome}))
    notes = {row.file: row.notes for row in grade.collect(three).rows}
    assert notes["Ada.results.json"] == ("the same file as group/copy (1).json",)
    assert notes["group/ada.results.json"][0].startswith("the same name in Ada.results.json")
    assert notes["old.results.json"] == ("1.1 checked by another version (0.0.9)",)
    assert notes["group/Bo.results.json"] == ()


def test_the_exercises_are_those_of_the_book() -> None:
    from cmlib.teaching import notebooks

    book = Path(__file__).resolve().parents[2] / "book"
    numbers = sorted({int(path.name[:2]) for path in notebooks.chapters(folder=book)})
    assert grade.exercises() == [f"{number}.{k}" for number in numbers for k in (1, 2, 3)]
    assert grade.exercises([3, 1]) == ["3.1", "3.2", "3.3", "1.1", "1.2", "1.3"] and grade.stars(grade.exercises([3])) == 6
