"""cmlib: Centroids Matching, its rivals, and the experiments of the paper.

    import cmlib as cm
    run = cm.run(cm.Experiment(dataset="digits", scenario="til", method="cm"))
    run.accuracy, run.bwt_final

`import cmlib` is light: every name below is loaded when it is first used, torch included.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from cmlib.errors import CmlibError, DataError, OptionError, StoreError
from cmlib.version import VERSION

if TYPE_CHECKING:
    from cmlib import centroids, datasets, metrics, plots, projectors
    from cmlib.engine import load_or_run, run, train
    from cmlib.experiment import Experiment, fresh
    from cmlib.methods import METHODS, Method, Option, register
    from cmlib.plots.player import player
    from cmlib.reproduction import paper
    from cmlib.scenario import Scenario, Task
    from cmlib.store import Run, Store
    from cmlib.teaching import checks
    from cmlib.teaching.page import say, setup, show
    from cmlib.teaching.solution import solution
    from cmlib.teaching.when import when_to_use

__version__ = VERSION

_HOME = {  # module or package -> the names that it gives
    "cmlib.reproduction": ("paper",),
    "cmlib.teaching": ("checks",),
    "cmlib.engine": ("load_or_run", "run", "train"),
    "cmlib.experiment": ("Experiment", "fresh"),
    "cmlib.methods": ("METHODS", "Method", "Option", "register"),
    "cmlib.plots.player": ("player",),
    "cmlib.scenario": ("Scenario", "Task"),
    "cmlib.store": ("Run", "Store"),
    "cmlib.teaching.page": ("say", "setup", "show"),
    "cmlib.teaching.solution": ("solution",),
    "cmlib.teaching.when": ("when_to_use",),
}


def __getattr__(name: str) -> Any:
    """A name of the package, from the module that gives it; or a module."""
    for home, names in _HOME.items():
        if name in names:
            globals()[name] = found = getattr(__import__(home, fromlist=[name]), name)  # from home import name
            return found
    if importlib.util.find_spec(f"cmlib.{name}"):
        return importlib.import_module(f"cmlib.{name}")
    raise AttributeError(f"module 'cmlib' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
