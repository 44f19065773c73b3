"""Checks for the exercises: `cm.checks.ch04_2(my_function)` prints `OK 4.2 (6 tests)` or `Not yet 4.2: ...`, then with a hint.

A wrong answer never raises: the reader gets one line that says what was expected and what came. Each chapter's checks are in a
module of their own, next to this one. `cm.checks.record("Ada")` notes what they say in a file to hand in.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from cmlib.errors import OptionError
from cmlib.teaching.handin import record

__all__ = ["record"]


def __getattr__(name: str) -> Any:
    found = re.fullmatch(r"ch(\d\d)_(\d)", name)
    if not found:
        raise AttributeError(f"module 'cmlib.teaching.checks' has no attribute '{name}'")
    try:
        module = importlib.import_module(f"cmlib.teaching.checks.chapter{found[1]}")
        return getattr(module, name)
    except (ModuleNotFoundError, AttributeError):
        raise OptionError(f"there is no exercise {int(found[1])}.{found[2]}") from None
