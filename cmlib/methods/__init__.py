"""Every method of the paper, one file each; importing this package registers them all."""

from cmlib.methods import cm, cm_readings, cope, cumulative, emr, er, ewc, gem, naive, oewc, ssil
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
    "register",
    "ssil",
]
