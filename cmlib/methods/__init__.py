"""Every method of the paper, one file each; importing this package registers them all. `own` finds those of a reader."""

from cmlib.methods import cm, cm_readings, cope, cumulative, emr, er, ewc, gem, naive, oewc, own, ssil
from cmlib.methods.base import METHODS, Method, Option, register

__all__ = [
    "METHODS",
    "Method",
    "Option",
    "cm",
    "cm_readings",
    "cope",
    "cumulative",
    "emr",
    "er",
    "ewc",
    "gem",
    "naive",
    "oewc",
    "own",
    "register",
    "ssil",
]
