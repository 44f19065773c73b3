"""Naive: train on each task in turn and do nothing against forgetting. The lower bound of every table.

Keeps nothing. Source: the paper, section 5.1, "Baselines".
"""

from __future__ import annotations

from cmlib.formulas import in_both
from cmlib.methods.base import Method, register


@register("naive")
class Naive(Method):
    """Plain training, one task after the other."""

    title = "Naive"
    summary = "train on each task in turn, nothing against forgetting: the lower bound"
    source = "paper, section 5.1"
    keeps = in_both({})
