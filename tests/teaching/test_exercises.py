"""Every exercise of every chapter: the stub is not started, the solution passes, planted wrong answers get their hint.

The wrong answers of chapter NN stand in tests/test_checks_chapterNN.py, as WRONG = {"NN_k": [(answer, words of the hint), ...]}.
The notebooks part runs stubs and solutions in their chapters, where a solution that does not pass is an error. The slow tests
run each together with those earlier cells that define the names it uses, and no others.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest

from cmlib.errors import OptionError
from cmlib.teaching import checks, lint, notebooks, page, solution
from cmlib.teaching.checks import base
from cmlib.teaching.solution import BLOCK, source

BOOK = Path(__file__).resolve().parents[2] / "book"
PAGES = notebooks.chapters(folder=BOOK)
CHAPTERS = [path for path in PAGES if re.match(r"# \d+ ", lint.title(notebooks.read(path)))]  # their pages ask nothing
STARS = {1: "★", 2: "★★", 3: "★★★"}


@dataclass(frozen=True)
class Exercise:
    """Exercise k of a chapter; the numbers are those of its cells."""

    path: Path
    k: int
    title: str
    stub: int  # the cell that calls the check of the stub
    solution: int  # the cell that unfolds the solution

    @property
    def key(self) -> str:
        return f"{self.path.name[:2]}_{self.k}"

    @property
    def number(self) -> str:
        return f"{int(self.path.name[:2])}.{self.k}"


def cells_of(path: Path) -> list[Any]:
    return list(notebooks.read(path).cells)


def exercises(path: Path) -> Iterator[Exercise]:
    """The exercises of a chapter, each from its heading to the cell of its solution."""
    cells, chapter = cells_of(path), path.name[:2]
    for start, cell in enumerate(cells):
        for k, title in re.findall(rf"^### Exercise {int(chapter)}\.(\d) (.*)$", cell.source, re.MULTILINE):
            fold = place(cells, start, f'cm.solution("{int(chapter)}_{k}", globals())')
            stub = place(cells[:fold], start, f"cm.checks.ch{chapter}_{k}(")
            yield Exercise(path, int(k), title, stub, fold)


def place(cells: list[Any], after: int, text: str) -> int:
    found = [k for k, cell in enumerate(cells) if k > after and text in cell.source]
    assert found, f"after cell {after} no cell holds {text}"
    return found[0]


FOUND = [(path, list(exercises(path))) for path in CHAPTERS]
ALL = [one for _, found in FOUND for one in found]


# --- running a cell with what it needs -----------------------------------------------------------------------------


def parse(cell: Any) -> ast.Module | None:
    try:
        return ast.parse(cell.source) if cell.cell_type == "code" else None
    except SyntaxError:  # the install cell has a magic inside a block
        return None


SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Names:
    """What a cell defines, what it needs from others while it runs, all it uses then, and what its functions need when called."""

    bound: set[str]
    now: set[str]
    used: set[str]
    later: dict[str, set[str]]  # by the function's name; lambdas have none and count as used


def names_of(tree: ast.Module) -> Names:
    found = Names(set(), set(), set(), {})
    for statement in tree.body:
        read(statement, found)
    return found


def read(node: ast.AST, found: Names) -> None:
    """Take in a node as Python runs it: what an assignment reads comes before what it writes."""
    if isinstance(node, SCOPES):
        arguments = getattr(node, "args", None)
        defaults = [*arguments.defaults, *arguments.kw_defaults] if isinstance(arguments, ast.arguments) else []
        for part in [*getattr(node, "decorator_list", []), *getattr(node, "bases", []), *defaults]:
            if part is not None:
                read(part, found)
        name = getattr(node, "name", "")
        found.later[name] = found.later.get(name, set()) | (loads(node) - stores(node))
        found.bound |= {name} - {""}
    elif isinstance(node, COMPREHENSIONS):
        use(loads(node) - stores(node), found)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        found.bound |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            found.bound.add(node.id)
        else:
            use({node.id}, found)
    else:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            use({node.target.id}, found)
        parts = list(ast.iter_child_nodes(node))
        first = [part for part in parts if part is getattr(node, "value", None) or part is getattr(node, "iter", None)]
        for part in [*first, *(part for part in parts if part not in first)]:
            read(part, found)


def use(names: set[str], found: Names) -> None:
    found.used |= names
    found.now |= names - found.bound


def loads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def stores(node: ast.AST) -> set[str]:
    inner = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    inner |= {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    return inner | {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.ClassDef) and n is not node}


def needed(cells: list[Any], last: int) -> list[int]:
    """The cells to run, in order: `last`, and for each name that is used the nearest cell above that defines it.

    A name used inside a function is looked up when the function is called, so for it every cell up to `last` counts.
    """
    names = {k: names_of(tree) for k, cell in enumerate(cells[: last + 1]) if (tree := parse(cell)) is not None}
    wanted: set[int] = set()
    todo: list[tuple[str, int]] = []  # a name, and the cell above which it is looked for
    called: set[tuple[str, int]] = set()

    def run(k: int) -> None:
        wanted.add(k)
        todo.extend((name, k) for name in names[k].now)
        for name in names[k].later.keys() & {"", *names[k].used}:
            call(name, k)

    def call(name: str, k: int) -> None:
        if (name, k) not in called:
            called.add((name, k))
            todo.extend((inner, last + 1) for inner in names[k].later[name])

    run(last)
    while todo:
        name, limit = todo.pop()
        above = [k for k in names if k < limit and name in names[k].bound]
        if name not in dir(builtins) and above:
            if above[-1] not in wanted:
                run(above[-1])
            if name in names[above[-1]].later:
                call(name, above[-1])
    return sorted(wanted)


def names_for(cells: list[Any], cell: int) -> dict[str, Any]:
    """The chapter's names after a cell and all that it needs has run."""
    space: dict[str, Any] = {"__name__": "__main__"}
    for k in needed(cells, cell):
        exec(compile(cells[k].source, f"cell {k}", "exec"), space)
    return space


def answered(exercise: Exercise) -> list[Any]:
    """The chapter's cells up to the solution, and in its place the solution's blocks up to its check.

    What it tries out after that, trainings among it, is run where the chapter is.
    """
    cells = cells_of(exercise.path)[: exercise.solution]
    blocks = [block[2] for block in BLOCK.finditer(source(exercise.key))]
    asks = next(k for k, block in enumerate(blocks) if f"cm.checks.ch{exercise.key}(" in block)
    return [*cells, nbformat.v4.new_code_cell("\n".join(blocks[: asks + 1]))]


# --- the tests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "found"), FOUND, ids=[path.stem for path in CHAPTERS])
def test_a_chapter_has_three_exercises_of_rising_difficulty(path: Path, found: list[Exercise]) -> None:
    assert [one.k for one in found] == [1, 2, 3]
    for one in found:
        assert re.findall("★+", one.title) == [STARS[one.k]], one.title


@pytest.mark.slow
@pytest.mark.parametrize("exercise", ALL, ids=lambda one: one.key)
def test_stub_and_solution_need_no_other_cells(
    exercise: Exercise, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the cells that they name and no others. The notebooks part runs both where they stand."""
    monkeypatch.chdir(BOOK)  # where notebooks run
    names_for(cells_of(exercise.path), exercise.stub)
    assert capsys.readouterr().out.strip().splitlines()[-1] == f"{exercise.number}: not started"
    printed = (names_for(answered(exercise), exercise.solution), capsys.readouterr().out)[1]
    assert passed_tests(exercise, printed) >= 5


def passed_tests(exercise: Exercise, text: str) -> int:
    """How many tests a text says that a solution passed; 0 when it says nothing of the kind."""
    passed = re.search(rf"^OK {re.escape(exercise.number)} \((\d+) tests\)$", text, re.MULTILINE)
    return int(passed[1]) if passed else 0


@pytest.mark.parametrize("exercise", ALL, ids=lambda one: one.key)
def test_wrong_answers_get_their_hint(exercise: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    number, (wrong, hint) = exercise.number, wrong_answers(exercise)
    assert len(wrong) >= 3, f"WRONG[{exercise.key!r}] needs at least three answers"
    check = getattr(checks, f"ch{exercise.key}")
    for k, (answer, words) in enumerate(wrong):
        lines = told(check, answer, number, capsys, tries=1 if k else 2)
        assert words in lines[-1] and hint in lines[-1] and lines[-1].startswith(lines[0].removesuffix(base.LATER).rstrip())


def told(check: Any, answer: Any, number: str, capsys: pytest.CaptureFixture[str], tries: int) -> list[str]:
    """What a wrong answer is told at its last tries, of two: one line each, the hint in the second only."""
    base.failures.clear()
    base.failures[number] = 2 - tries
    lines = [(check(answer), capsys.readouterr().out.strip())[1] for _ in range(tries)]
    assert all(line.startswith(f"Not yet {number}: ") and "\n" not in line for line in lines)
    assert ["Hint: " in line for line in lines] == [False, True][-tries:]
    assert tries == 1 or lines[0].endswith(base.LATER)
    return lines


def wrong_answers(exercise: Exercise) -> tuple[list[tuple[Any, str]], str]:
    """The planted answers, each with words of what it is told, and how the exercise's hint begins."""
    name = f"test_checks_chapter{exercise.key[:2]}"
    assert importlib.util.find_spec(name), f"tests/{name}.py is missing"
    module = importlib.import_module(name)
    table = getattr(module, "WRONG", {})
    assert exercise.key in table, f"tests/{name}.py has no WRONG[{exercise.key!r}]"
    return list(table[exercise.key]), getattr(module, "HINTS", {}).get(exercise.key, "Hint: ")


@pytest.mark.parametrize("exercise", ALL, ids=lambda one: one.key)
def test_what_the_page_shows(exercise: Exercise) -> None:
    cells = cells_of(exercise.path)
    stub, fold = cells[exercise.stub], cells[exercise.solution]
    assert f"{exercise.number}: not started" in "".join(output.get("text", "") for output in stub.outputs)
    assert "nbval-check-output" in stub.metadata.get("tags", [])
    assert "remove-input" in fold.metadata.get("tags", [])
    shown = fold.outputs[0].data["text/markdown"]
    assert shown.startswith('<details class="cm-solution">')
    assert passed_tests(exercise, shown) >= 5, "a solution passes at least five tests"
    visible = [block[2] for block in BLOCK.finditer(source(exercise.key)) if not block[1]]
    assert visible and all(block in shown for block in visible)
    assert all(output.output_type == "display_data" for output in fold.outputs)


def test_pages_of_a_chapter_have_no_exercises() -> None:
    pages = [path for path in notebooks.chapters(folder=BOOK) if path not in CHAPTERS]
    assert len(pages) >= 8
    assert [path.name for path in pages if list(exercises(path)) or "cm.checks" in path.read_text(encoding="utf-8")] == []


def test_no_solution_stands_outside_its_fold() -> None:
    for path in CHAPTERS:
        text = "\n".join(cell.source for cell in cells_of(path))
        keys = [one.key for one in ALL if one.path == path]
        blocks = [block[2].strip() for key in keys for block in BLOCK.finditer(source(key)) if not block[1]]
        assert blocks and not [block for block in blocks if block in text], path.name


def test_solutions_are_run_in_a_copy_and_must_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"answer": "mine"}
    text = "Why.\n\n```python\nanswer = 7\nprint('OK 1.1 (5 tests)')\n```\n\n```python quiet\ncm_say(answer)\n```\n"
    monkeypatch.setattr(solution, "source", lambda number: text)
    made = solution.solution("1_1", {**own, "cm_say": lambda value: page.say("Seven: {n}.", n=value)})
    (first, _), (second, record) = made.bundles
    assert first["text/markdown"].count("```") == 4 and "quiet" not in first["text/markdown"] and "Why." in first["text/markdown"]
    assert solution.unfolded(second["text/markdown"]) == "Seven: 7." and record["cmlib"]["values"] == {"n": 7}
    assert own == {"answer": "mine"}
    assert "OK" not in solution.solution("1_1").bundles[0][0]["text/markdown"].replace("print('OK 1.1", "")
    monkeypatch.setattr(solution, "source", lambda number: "```python\nprint('Not yet 1.1: no')\n```\n")
    with pytest.raises(AssertionError, match=r"does not pass its check: Not yet 1\.1"):
        solution.solution("1_1", {})


@pytest.mark.parametrize("name", ["4.2", "4_2", "04_2"])
def test_a_solution_is_named_like_its_exercise(name: str) -> None:
    assert source(name) == source("04_2")


def test_an_unknown_solution_is_refused_in_one_line() -> None:
    with pytest.raises(OptionError, match=r"^there is no solution '04_9'; it is written as in \"4_2\"\. Did you mean '04_\d'\?$"):
        source("04_9")


@pytest.mark.parametrize(
    ("sources", "cells"),
    [
        (["import numpy as np", "a = 1", "a = 2", "np.sqrt(a)"], [0, 2, 3]),
        (["def f(x):\n    return g(x)", "x = 9", "def g(x):\n    b = 3\n    return x + b", "b = 7", "f(1)"], [0, 2, 4]),
        (["R = 1", "R = R + 1", "x = 5", "[x for x in range(R)]"], [0, 1, 3]),
        (["R = 1", "R = 2\nR += 1", "for R in range(3):\n    print(R)", "print(R)"], [2, 3]),
        (["R = 1", "R += 1", "print(R)"], [0, 1, 2]),
        (["%matplotlib", "a = 1", "lambda: a"], [1, 2]),
        (["a = 1", "b = 2", "def f():\n    return a\ndef g():\n    return b", "f()"], [0, 2, 3]),
        (["a = 1", "def f():\n    return a\nf()", "def g():\n    return f()", "g"], [0, 1, 2, 3]),
        (["a = 1", "b = 2", "def f(a=a, *, b=b):\n    return a + b", "f"], [0, 1, 2, 3]),
    ],
)
def test_the_cells_are_found_that_define_what_a_cell_uses(sources: list[str], cells: list[int]) -> None:
    assert needed([nbformat.v4.new_code_cell(source) for source in sources], len(sources) - 1) == cells
