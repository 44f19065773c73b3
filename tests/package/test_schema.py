"""The published schema of result files says what the reader says."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest

import cmlib as cm
from cmlib import runfile
from cmlib.store import committed

SCHEMA = json.loads((Path(cm.__file__).parent / "run.schema.json").read_text(encoding="utf-8"))
RUN = next(committed().folder.rglob("digits-cil/cm/seed0-*.json"))
WRONG = {
    "id": ["x", 3],
    "experiment.dataset": ["Digits", "/a/b", None],
    "experiment.scenario": ["dil"],
    "experiment.seed": [-1, 2**63, "0"],
    "experiment.revision": [0],
    "experiment.options": [{"epochs": 1}, {"epochs": 1, "n_tasks": 0}, {"epochs": 1, "n_tasks": 5, "lr": [1]}],
    "R": [[[101.0]], [["a"]], {}],
    "R_task_known": [[[-1]], 3],
    "seconds_per_epoch": [[[-1]], [1.0]],
    "gradient_steps": [[-1], [1.5]],
    "retained": [{"x": -1}, []],
    "status": ["done", "stopped: the loss is not finite (task one, epoch 2)"],
    "formula": [{"text": "P"}, {"text": "P", "scalars": -1}],
    "data.rows": [0, None],
    "versions.torch": ["new", "2"],
    "machine.threads": [0],
    "machine.commit": ["main"],
    "machine.changed": ["yes"],
    "date": ["2026-13-01", "yesterday"],
    "classes": [["0"], [[0]]],
    "notes": ["one", [1]],
}


def test_every_entry_is_described():
    names = {
        f"{name}.{inner}" if name in runfile.PARENTS else name
        for name, entry in SCHEMA["properties"].items()
        for inner in (entry["properties"] if name in runfile.PARENTS else [""])
    }
    assert names == set(runfile.SCHEMA)
    required = set(SCHEMA["required"]) - runfile.PARENTS
    required |= {f"{name}.{inner}" for name in runfile.PARENTS for inner in SCHEMA["properties"][name]["required"]}
    assert required == set(runfile.SCHEMA) - set(runfile.OPTIONAL)


def test_all_committed_runs_fit():
    check = jsonschema.Draft202012Validator(SCHEMA)
    paths = [*committed().folder.rglob("seed*.json"), *committed().folder.parent.joinpath("repeats").rglob("seed*.json")]
    assert len(paths) > 600 and all(check.is_valid(json.loads(path.read_bytes())) for path in paths)


@pytest.mark.parametrize(("entry", "value"), [(entry, value) for entry, values in WRONG.items() for value in values], ids=repr)
def test_both_refuse(entry, value):
    content = copy.deepcopy(json.loads(RUN.read_bytes()))
    *parents, name = entry.split(".")
    place = content[parents[0]] if parents else content
    place[name] = value
    wrong = runfile.read(json.dumps(content))[1]
    assert any(line.startswith(f"{entry} is ") for line in wrong)
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(content)


def test_both_refuse_what_is_not_there_and_what_is_unknown():
    for entry in runfile.SCHEMA:
        content = json.loads(RUN.read_bytes())
        *parents, name = entry.split(".")
        (content[parents[0]] if parents else content).pop(name, None)
        fits = jsonschema.Draft202012Validator(SCHEMA).is_valid(content)
        assert fits == (entry in runfile.OPTIONAL) == (not list(runfile.form_problems(content))), entry
    content = json.loads(RUN.read_bytes()) | {"more": 1}
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(content) and list(runfile.form_problems(content))
