"""Avalanche: our methods as its strategies, its strategies on our data, and the engine `avalanche` made of both.

For Avalanche's users: `CentroidsMatching`, `EmbeddingRegularization` and `SSIL` are strategies like any other; they work on
ordinary benchmarks, with Avalanche's loggers, metrics and such plugins as do not call the model themselves.
`benchmark(scenario)` turns a cmlib scenario into a benchmark, and `DeviceBatches`, put before a strategy class, feeds it batches
straight from the scenario's tensors.

The engine (`cmlib run --engine avalanche`) makes a run through Avalanche 0.6: CM, EmR and SS-IL are the strategies below, so
their losses are those of cmlib's own loop; Naive, Cumulative, EWC, OEWC, GEM, ER and CoPE are Avalanche's own, on the same
tasks, batches, backbone and heads. What Avalanche does in its own way stays its own:
    EWC, OEWC  the Fisher information comes from batches in file order, cmlib's from shuffled ones
    GEM        exemplars are drawn at random from the whole task, and kept augmented; in TIL past heads stand still
    ER         exemplars are balanced over tasks, not over classes
    CoPE       all prototypes start at random, and those of classes yet to come take part in the loss and the prediction
Avalanche's checkpoints do not work on this stack (PicklingError), so an interrupted run starts anew.
Needs avalanche-lib, on Python 3.11 or 3.12. Its import takes seconds: `import cmlib` leaves it alone. Built in chapter 18.
"""

from __future__ import annotations

import warnings

from cmlib.errors import OptionError

MISSING = "engine avalanche needs the package avalanche-lib (Python 3.11 or 3.12): pip install 'cmlib[avalanche]'"

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its many dependencies
        import avalanche.training  # noqa: F401
except ImportError:
    raise OptionError(MISSING) from None
else:
    from cmlib.avalanche.loaders import DeviceBatches, benchmark
    from cmlib.avalanche.runs import STRATEGIES, Progress, fresh, learn
    from cmlib.avalanche.strategies import SSIL, CentroidsMatching, EmbeddingRegularization
    from cmlib.avalanche.streams import ExperienceStream

__all__ = [
    "SSIL",
    "STRATEGIES",
    "CentroidsMatching",
    "DeviceBatches",
    "EmbeddingRegularization",
    "ExperienceStream",
    "Progress",
    "benchmark",
    "fresh",
    "learn",
]
