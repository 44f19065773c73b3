"""Memory as arithmetic in single letters, written so that Python and a script on a page read the same text.

A method declares its memory in these letters (`Method.keeps`); the values come from a few numbers (`footprint`) or from an
experiment (the audit). The paper's formula is declared as it is printed (`Method.paper_memory`): `I x M x N`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import CodeType
from typing import TypeVar

LETTERS = {
    "N": "tasks so far",
    "k": "classes a task",
    "T": "classes so far, k * N where every task has k",
    "E": "features of an embedding of CM",
    "I": "scalars of an image",
    "D": "features of the backbone",
    "X": "images kept",
    "W": "weights of the network, batch norms of single tasks aside",
    "A": "the same after each task so far, added up: the heads arrive one by one",
    "Q": "parameters of the projectors of a task",
    "V": "scalars of the batch norms of one task",
}
BOTH = ("til", "cil")
Declaration = TypeVar("Declaration")


def in_both(what: Declaration) -> dict[str, Declaration]:
    """The same declaration for both scenarios."""
    return dict.fromkeys(BOTH, what)


def value(text: str, letters: Mapping[str, int]) -> int:
    """The value of an expression in letters."""
    return int(eval(_compiled(text), {"__builtins__": {}}, dict(letters)))


@cache
def _compiled(text: str) -> CodeType:
    return compile(text, "a formula", "eval")


def as_expression(printed: str) -> str:
    """`I x M x N` -> `I * M * N`."""
    return printed.replace(" x ", " * ")
