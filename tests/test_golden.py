"""Five losses of each method, to the last digit that one machine shares with another: numbers never change unnoticed.

A change that alters them on purpose raises the method's `revision` and rewrites the file with `python tests/test_golden.py`.
"""

import json
from itertools import islice
from pathlib import Path

import pytest

import cmlib as cm
from cmlib import datasets
from cmlib.engine import fresh
from cmlib.methods.base import METHODS

pytestmark = pytest.mark.engines
GOLDEN = Path(__file__).with_name("golden.json")
NAMES = [f"{name}-{scenario}-revision{cls.revision}" for name, cls in METHODS.items() for scenario in cls.scenarios]


def five_losses(name):
    """The loss of the second step of each of the five tasks, two steps a task."""
    method, scenario, _ = name.split("-")
    made = fresh(cm.Experiment("digits", scenario, method, 1, "smoke"), datasets.load("digits"))
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


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_those_of_the_file(name):
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert name in golden, f"no losses for {name}: was a revision raised without rewriting the file?"
    assert five_losses(name) == pytest.approx(golden[name], rel=1e-4)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: five_losses(name) for name in NAMES}, indent=1) + "\n", encoding="utf-8")
