"""Every method of the paper, one file each; importing this package registers them all."""

from cmlib.methods import cm, cumulative, er, naive
from cmlib.methods.base import METHODS, Method, Option, register

__all__ = ["METHODS", "Method", "Option", "cm", "cumulative", "er", "naive", "register"]
