"""Naive: train on each task in turn and do nothing against forgetting. The mark that every other method is read against.

It is no strict lower bound: the paper prints EWC, OEWC and GEM below it in some columns. Keeps nothing.
Source: the paper, section 5.1, "Baselines".
"""

from __future__ import annotations

from cmlib.formulas import in_both
from cmlib.methods.base import Method, register


@register("naive")
class Naive(Method):
    """Plain training, one task after the other."""

    title = "Naive"
    summary = "train on each task in turn, nothing against forgetting"
    source = "paper, section 5.1"
    keeps = in_both({})
