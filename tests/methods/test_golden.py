"""Five losses of each method, in double precision: numbers never change unnoticed, whatever CPU they are computed on.

A change that alters them on purpose raises the method's `revision` and rewrites the file with
`PYTHONPATH=tests python tests/methods/test_golden.py`. In single precision rounding grows a thousandfold in five steps: the fifth
loss of `naive` differs by 6e-3 between two CPUs. So the weights too are drawn in double precision; those that runs really start
from stand beside the losses.
"""

import json
from itertools import islice
from pathlib import Path

import pytest
from precision import double_precision

import cmlib as cm
from cmlib import datasets
from cmlib.experiment import fresh
from cmlib.methods.base import METHODS

pytestmark = [pytest.mark.engines, pytest.mark.numbers]
GOLDEN = Path(__file__).with_name("golden.json")
PRECISION = "double"
TOLERANCE = 1e-9  # of a loss; CPUs, instruction sets and numbers of threads differ by less than a hundredth of it
NAMES = [f"{name}-{scenario}-revision{cls.revision}" for name, cls in METHODS.items() for scenario in cls.scenarios]


def five_losses(name):
    """The loss of the second step of each of the five tasks, two steps a task, in double precision."""
    method, scenario, _ = name.split("-")
    with double_precision():
        return train_a_little(fresh(cm.Experiment("digits", scenario, method, 1, "smoke"), datasets.load("digits")))


def train_a_little(made):
    losses = []
    for task in made.scenario.tasks:
        made.begin_task(task)
        made.train()
        optimizer = made.make_optimizer()
        steps = [float(made.step(optimizer, x, y, task)) for x, y in islice(made.batches(task, 0), 2)]
        losses.append(steps[-1])
        made.eval()
        made.end_task(task)
    return losses


def first_weights():
    """Of the backbone, a head and a projector, as runs of seed 1 start from them: in single precision."""
    made = fresh(cm.Experiment("digits", "cil", "cm", 1, "smoke"), datasets.load("digits"))
    for task in made.scenario.tasks[:2]:
        made.begin_task(task)
    parts = {"backbone": made.backbone, "head": made.heads[1], "projector": made.projectors[1]}
    return {name: [float(p.detach().flatten()[0]) for p in part.parameters() if p.ndim > 1][:5] for name, part in parts.items()}


@pytest.fixture(scope="module")
def golden():
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_the_file_is_in_double_precision_and_complete(golden):
    assert golden["precision"] == PRECISION
    assert sorted(golden["losses"]) == sorted(NAMES), "was a revision raised without rewriting the file?"
    assert {len(losses) for losses in golden["losses"].values()} == {5}


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_those_of_the_file(golden, name):
    assert five_losses(name) == pytest.approx(golden["losses"].get(name), rel=TOLERANCE)


def test_first_weights_are_those_of_the_file(golden):
    found = first_weights()
    assert found.keys() == golden["first weights"].keys()
    assert all(found[name] == pytest.approx(golden["first weights"][name], rel=1e-5) for name in found)


if __name__ == "__main__":
    losses = {name: five_losses(name) for name in NAMES}
    content = {"precision": PRECISION, "first weights": first_weights(), "losses": losses}
    GOLDEN.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
