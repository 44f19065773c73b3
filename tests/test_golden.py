"""Five losses of each method, in double precision: numbers never change unnoticed, whatever CPU they are computed on.

A change that alters them on purpose raises the method's `revision` and rewrites the file with `python tests/test_golden.py`.
In single precision rounding grows a thousandfold in five steps: the fifth loss of `naive` differs by 6e-3 between two CPUs.
"""

import json
from itertools import islice
from pathlib import Path

import pytest
from precision import in_double

import cmlib as cm
from cmlib import datasets
from cmlib.engine import fresh
from cmlib.methods.base import METHODS

pytestmark = [pytest.mark.engines, pytest.mark.numbers]
GOLDEN = Path(__file__).with_name("golden.json")
PRECISION = "double"
TOLERANCE = 1e-9  # of a loss; CPUs, instruction sets and numbers of threads differ by less than a hundredth of it
NAMES = [f"{name}-{scenario}-revision{cls.revision}" for name, cls in METHODS.items() for scenario in cls.scenarios]


def five_losses(name):
    """The loss of the second step of each of the five tasks, two steps a task."""
    method, scenario, _ = name.split("-")
    made = in_double(fresh(cm.Experiment("digits", scenario, method, 1, "smoke"), datasets.load("digits")))
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


if __name__ == "__main__":
    content = {"precision": PRECISION, "losses": {name: five_losses(name) for name in NAMES}}
    GOLDEN.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
