"""The form of a result file, and the one strict reader that the store, the audit and everything above them share."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from cmlib.methods import METHODS

FINISHED, DIVERGED = "finished", "stopped: the loss is not finite"
STOPPED = re.compile(re.escape(DIVERGED) + r" \(task (\d+), epoch (\d+)\)")
LARGEST = 2**63  # whole numbers stay below it

Form = tuple[str, Callable[[Any], bool]]  # in words, and as a test


def is_number(value: Any) -> bool:
    """Whether a value is a finite number (and no truth value)."""
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def _lists(value: Any, inner: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(isinstance(row, list) and all(map(inner, row)) for row in value)


def _percent(value: Any) -> bool:
    return value is None or (is_number(value) and 0 <= value <= 100)


def _measured(value: Any) -> bool:
    return value is not None and _percent(value)


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool) or is_number(value)


def _matching(pattern: str) -> Callable[[Any], bool]:
    fits = re.compile(pattern).fullmatch
    return lambda value: isinstance(value, str) and fits(value) is not None


def _options(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_plain, value.values())) and _positive(value.get("n_tasks"), value.get("epochs"))


def _positive(*values: Any) -> bool:
    return all(_whole(value) and value > 0 for value in values)


WORD: Form = ("a text on one line", lambda value: isinstance(value, str) and bool(value) and value.isprintable())
WHOLE: Form = ("a whole number from 0 on", _whole)
POSITIVE: Form = ("a whole number from 1 on", _positive)
MATRIX: Form = ("rows of numbers from 0 to 100 or null", lambda value: _lists(value, _percent))
VERSION: Form = ("a version", _matching(r"\d+(\.\d+)+[\w.+-]*"))

SCHEMA: dict[str, Form] = {  # every entry of a result file, by its path
    "id": ("method-scenario-dataset-seed-hash", _matching(r"[^\s/\\]+-(til|cil)-[^\s/\\]+-seed\d+-[0-9a-f]{8}")),
    "experiment.dataset": ("a data set's name, no path", _matching(r"[a-z0-9][a-z0-9-]*")),
    "experiment.scenario": ("til or cil", _matching("til|cil")),
    "experiment.method": WORD,
    "experiment.seed": WHOLE,
    "experiment.profile": WORD,
    "experiment.engine": WORD,
    "experiment.revision": POSITIVE,
    "experiment.options": ("plain values by name, n_tasks and epochs among them", _options),
    "R": MATRIX,
    "R_task_known": ("null or " + MATRIX[0], lambda value: value is None or MATRIX[1](value)),
    "each_epoch": (
        "a list a task of rows of numbers from 0 to 100",
        lambda value: _lists([value], lambda t: _lists(t, _measured)),
    ),
    "seconds_per_epoch": ("one list of numbers from 0 on a task", lambda value: _lists(value, lambda s: is_number(s) and s >= 0)),
    "gradient_steps": ("whole numbers", lambda value: isinstance(value, list) and all(map(_whole, value))),
    "retained": ("whole numbers by name", lambda value: isinstance(value, dict) and all(map(_whole, value.values()))),
    "status": (f"'{FINISHED}' or '{DIVERGED} (task t, epoch e)'", _matching(f"{FINISHED}|{STOPPED.pattern}")),
    "formula": (
        "text and scalars, or nothing",
        lambda value: value == {} or (isinstance(value, dict) and set(value) == {"text", "scalars"} and _whole(value["scalars"])),
    ),
    "data.digest": WORD,
    "data.classes": POSITIVE,
    "data.rows": POSITIVE,
    "data.train_rows_used": POSITIVE,
    "versions.cmlib": VERSION,
    "versions.torch": VERSION,
    "versions.python": VERSION,
    "machine.device": WORD,
    "machine.threads": POSITIVE,
    "machine.cpu": WORD,
    "machine.instructions": WORD,
    "machine.changed": ("true or false", lambda value: isinstance(value, bool)),
    "machine.commit": ("hexadecimal digits, or empty", _matching("[0-9a-f]{0,40}")),
    "date": ("YYYY-MM-DD", _matching(r"20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")),
    "classes": ("lists of class names, one a task", lambda value: _lists(value, lambda name: isinstance(name, str))),
    "notes": ("sentences", lambda value: _lists([value], lambda one: isinstance(one, str))),
}
OPTIONAL = (
    "each_epoch",
    "classes",
    "notes",
    "formula",
    "machine.cpu",
    "machine.instructions",
    "machine.changed",
)  # not in old files
PARENTS = {path.split(".")[0] for path in SCHEMA if "." in path}


def parse(raw: bytes | str) -> dict[str, Any]:
    """The content of a result file; ValueError with the first thing that is wrong with it."""
    content, wrong = read(raw)
    if wrong:
        raise ValueError(wrong[0])
    return content


def read(raw: bytes | str) -> tuple[dict[str, Any], list[str]]:
    """The content of a result file and all that is wrong with its form; ValueError when it is no JSON."""
    try:
        content = json.loads(raw.decode() if isinstance(raw, bytes) else raw, object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 text, from byte {error.start} on") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not readable JSON ({error})") from None
    return content, list(form_problems(content))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no name stands twice."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"holds {next(name for name in names if names.count(name) > 1)[:60]!r} twice")
    return content


def form_problems(content: Any) -> Iterator[str]:
    """Everything in which a result file's content differs from SCHEMA; from one of that form, what does not fit its tasks."""
    if not isinstance(content, dict):
        yield "is no JSON object"
        return
    wrong = list(_entry_problems(content))
    yield from wrong or _task_problems(content)


def _entry_problems(content: dict[str, Any]) -> Iterator[str]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        inside = name in PARENTS and isinstance(value, dict)
        flat.update({f"{name}.{key}": one for key, one in value.items()} if inside else {name: value})
    yield from (f"unknown entry {name[:60]!r}" for name in flat if name not in SCHEMA)
    for name, (words, fits) in SCHEMA.items():
        if name not in flat:
            if name not in OPTIONAL:
                yield f"no entry '{name}'"
        elif not fits(flat[name]):
            yield f"{name} is {json.dumps(flat[name])[:60]}; it must be {words}"


def _task_problems(content: dict[str, Any]) -> Iterator[str]:
    """Whether matrices and lists are as large as the experiment's tasks and the status say, and filled exactly up to there."""
    options, stop = content["experiment"]["options"], STOPPED.fullmatch(content["status"])
    n, epochs = options["n_tasks"], options["epochs"]
    task, epoch = (int(stop[1]), int(stop[2])) if stop else (n, epochs)  # reached; measured too, unless stopped
    if not (1 <= task <= n and 1 <= epoch <= epochs):
        yield f"status '{content['status']}', but there are {n} tasks of {epochs} epochs"
        return
    told = content["R_task_known"]
    if (told is None) != (content["experiment"]["scenario"] == "til"):
        yield "R_task_known must be null in TIL and a matrix in CIL"
    for label, R in (("R", content["R"]), *([("R_task_known", told)] if told is not None else [])):
        yield from _matrix_problems(label, R, n, task - 1 if stop else n)
    yield from _epoch_problems(content, stop is not None, task, epoch)
    if len(content["gradient_steps"]) != task:
        yield f"gradient_steps must hold {task} numbers, one a task"
    wanted, found = [epochs] * (task - 1) + [epoch], [len(one) for one in content["seconds_per_epoch"]]
    if found != wanted and not (cut_short(content) and found[:-1] == wanted[:-1] and len(found) == task):
        yield f"seconds_per_epoch must hold {wanted} numbers"


def _epoch_problems(content: dict[str, Any], stopped: bool, task: int, epoch: int) -> Iterator[str]:
    """Accuracies after each epoch: on the tasks so far, up to where the run came, those of a task's last epoch as in R."""
    found, epochs = content.get("each_epoch") or [], content["experiment"]["options"]["epochs"]
    if not found:
        return
    wanted = [epochs] * (task - 1) + [epoch - stopped]
    wanted = wanted if wanted[-1] else wanted[:-1]  # the loss of a task's first epoch was not finite
    if [len(one) for one in found] != wanted or any(len(row) != i + 1 for i, one in enumerate(found) for row in one):
        yield f"each_epoch must hold {wanted} rows, of as many numbers as tasks so far"
        return
    method = METHODS.get(content["experiment"]["method"])
    if method is None or method.own:  # whose end_task may change what it answers
        return
    for i, one in enumerate(found[: task - stopped]):
        if one[-1] != content["R"][i][: i + 1]:
            yield f"each_epoch after the last epoch of task {i + 1} is {one[-1]}; R has {content['R'][i][: i + 1]}"


def cut_short(content: dict[str, Any]) -> bool:
    """Whether a run may have ended within an epoch and a task: through Avalanche, some methods fail at the first bad loss."""
    return content["experiment"]["engine"] == "avalanche" and content["status"] != FINISHED


def _matrix_problems(label: str, R: list[list[float | None]], n: int, rows: int) -> Iterator[str]:
    """A matrix must be n by n, with numbers up to the diagonal of its first `rows` rows and null elsewhere."""
    if len(R) != n or any(len(row) != n for row in R):
        yield f"{label} must be {n} by {n}"
        return
    for i, row in enumerate(R):
        for j, value in enumerate(row):
            if (value is None) == (j <= i < rows):
                wanted = "a number" if value is None else "null"
                yield f"{label} after task {i + 1} on task {j + 1} is {value}; {wanted} is expected"
