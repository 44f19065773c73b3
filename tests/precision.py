"""A method in double precision, whose numbers are those of a run: what is drawn at random is drawn in single precision."""

from __future__ import annotations

from typing import TypeVar

from cmlib.methods.base import Method
from cmlib.scenario import Task

AMethod = TypeVar("AMethod", bound=Method)


def in_double(method: AMethod) -> AMethod:
    """Turn a fresh method to double precision: its weights and images, and all that later tasks add.

    A run's weights, crops and reservoirs come from draws in single precision. The fixture `double` draws in double precision,
    which is another network; here it is the same one, and only what is computed from it is more exact.
    """
    begin = method.begin_task

    def begin_task(task: Task) -> None:
        begin(task)
        method.double()

    method.begin_task = begin_task  # type: ignore[method-assign]
    method.scenario.mean, method.scenario.std = method.scenario.mean.double(), method.scenario.std.double()
    return method.double()
