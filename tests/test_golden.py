"""Five losses of each method, to the last digit that one machine shares with another: numbers never change unnoticed.

A change that alters them on purpose raises the method's `revision` and rewrites the file with `python tests/test_golden.py`.
"""

import json
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
    """The first loss of each of the five tasks, one step a task."""
    method, scenario, _ = name.split("-")
    made = fresh(cm.Experiment("digits", scenario, method, 1, "smoke"), datasets.load("digits"))
    losses = []
    for task in made.scenario.tasks:
        made.begin_task(task)
        made.train()
        x, y = next(iter(made.batches(task, 0)))
        losses.append(float(made.step(made.make_optimizer(), x, y, task)))
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
