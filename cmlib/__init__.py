"""cmlib: Centroids Matching, its rivals, and the experiments of the paper.

    import cmlib as cm
    run = cm.run(cm.Experiment(dataset="digits", scenario="til", method="cm"))
    run.accuracy, run.bwt_final

`import cmlib` stays light: pictures, checks and page helpers are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from cmlib import centroids, datasets, metrics, projectors
from cmlib.engine import load_or_run, run, train
from cmlib.errors import CmlibError, DataError, OptionError, StoreError
from cmlib.experiment import Experiment, fresh
from cmlib.methods import METHODS, Method, Option, register
from cmlib.scenario import Scenario, Task
from cmlib.store import Run, Store
from cmlib.version import VERSION

__version__ = VERSION

_LAZY = {
    "plots": ("cmlib.plots", None),
    "checks": ("cmlib.teaching.checks", None),
    "paper": ("cmlib.reproduction.paper", None),
    "setup": ("cmlib.teaching.page", "setup"),
    "say": ("cmlib.teaching.page", "say"),
    "show": ("cmlib.teaching.page", "show"),
    "solution": ("cmlib.teaching.solution", "solution"),
    "player": ("cmlib.plots.player", "player"),
    "when_to_use": ("cmlib.teaching.when", "when_to_use"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'cmlib' has no attribute '{name}'")
    module, attribute = _LAZY[name]
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


__all__ = [
    "METHODS",
    "CmlibError",
    "DataError",
    "Experiment",
    "Method",
    "Option",
    "OptionError",
    "Run",
    "Scenario",
    "Store",
    "StoreError",
    "Task",
    "centroids",
    "checks",
    "datasets",
    "fresh",
    "load_or_run",
    "metrics",
    "paper",
    "player",
    "plots",
    "projectors",
    "register",
    "run",
    "say",
    "setup",
    "show",
    "solution",
    "train",
    "when_to_use",
]
