"""Errors for people: one line, what was wrong, what is allowed, the nearest match.

Everything that can go wrong because of what a user typed or owns is a `CmlibError`; the command line prints its text on one
line and ends with exit code 2. Anything else that escapes is a defect of cmlib.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CmlibError(ValueError):
    """A request that cannot be carried out, said in one line."""


class OptionError(CmlibError):
    """An unknown name, a value of the wrong type or an impossible value."""


class DataError(CmlibError):
    """Data that are absent, damaged or unfit for the request."""


class StoreError(CmlibError):
    """A results store that cannot be read or written."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest allowed name, in whatever case, or an empty string."""
    names = {one.lower(): one for one in allowed}
    close = difflib.get_close_matches(str(name).lower(), list(names), n=1, cutoff=0.5)
    return f" Did you mean '{names[close[0]]}'?" if close else ""


def setting(name: str, value: object) -> str:
    """How an option of an experiment is given, for advice that both kinds of readers can follow."""
    return f"--set {name}={value} (in Python {name}={value})"


def check_name(kind: str, name: object, allowed: Iterable[str], other: str = "") -> str:
    """Return `name` when it is one of `allowed`; raise `OptionError` naming the choices otherwise, and what else would do."""
    names = list(allowed)
    if isinstance(name, str) and name in names:
        return name
    choices = [*names, *([other] if other else [])]
    near = nearest(str(name), [one for one in choices if " " not in one])
    raise OptionError(f"unknown {kind} '{name}'; allowed: {', '.join(choices)}.{near}")
