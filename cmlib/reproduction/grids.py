"""Grids: which experiments a table of the paper needs. Declarative files, one a table, in the folder `grids`; no code there.
A figure has one too when it needs runs that no table has.

A grid gives the experiments to run, `load("table4").experiments("digits", range(3))`, and the cells a table shows, each with
the variant that the paper prints in the same place: `support_size=20` of the digits stands where the paper has 100.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from cmlib.errors import DataError, check_name, nearest
from cmlib.experiment import FIELDS, Experiment, key
from cmlib.methods import METHODS
from cmlib.methods.base import OTHERS
from cmlib.profiles import PROFILES

FOLDER = Path(__file__).with_name("grids")

# What a grid file must look like: a type, [a list of it], {keys: ...}; a key that ends in ? may be absent.
_VALUE = (str, int, float, bool)
_BY_PROFILE = {name: [_VALUE] for name in PROFILES}
_AXIS = {"option": str, "values": (_BY_PROFILE, [_VALUE]), "printed?": [_VALUE]}
_ROW = {
    **{"methods": [str], "scenarios": [str], "datasets?": [str], "also?": bool, "pooled?": bool, "axes?": [_AXIS]},
    **{"options?": {f"{name}?": dict for name in PROFILES}, "other?": dict},
}
_FILE = {
    **{"title": str, "unit": str, "metrics": [str], "notes?": [str], "rows": [_ROW]},
    "datasets": {name: [str] for name in PROFILES},
}


@dataclass(frozen=True)
class Cell:
    """One place of a table: what is run there. Several scenarios stand for one place that holds the runs of all of them.

    variant: the options that are ours in this place, `name=value,...`; printed: those that the paper prints there.
    also: a place the paper does not have as such; it is set beside a number that stands in another place.
    other: with which other settings the paper's number was made, where ours are not those.
    """

    dataset: str
    scenarios: tuple[str, ...]
    method: str
    options: Mapping[str, Any]
    variant: str = ""
    printed: str = ""
    also: bool = False
    other: str = ""

    @property
    def scenario(self) -> str:
        """`til`, `cil`, or `til-cil` for both in one place."""
        return "-".join(self.scenarios)

    def experiments(self, profile: str, seed: int = 0) -> list[Experiment]:
        """The experiments of one seed: one a scenario."""
        return [Experiment(self.dataset, one, self.method, seed, profile, **self.options) for one in self.scenarios]


@dataclass(frozen=True)
class Grid:
    """The rows of one table, as read from its file.

    metrics: what every cell is measured by; a name that ends in `_task` stands for one value a task.
    """

    name: str
    title: str
    unit: str
    metrics: Sequence[str]
    datasets: Mapping[str, Sequence[str]]  # by profile
    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = field(default=())

    def cells(self, profile: str) -> list[Cell]:
        """Every cell of the table in one profile, data set by data set in the order of the file; OptionError if unknown."""
        names = self.datasets[check_name("profile", profile, PROFILES)]
        rows = [row for row in self.rows if not row.get("also")] + [row for row in self.rows if row.get("also")]
        named = {method for row in rows for method in row["methods"]}
        return [cell for name in names for row in rows for cell in _cells(row, name, profile, named)]

    def experiments(self, profile: str, seeds: int | Iterable[int]) -> list[Experiment]:
        """What has to be run, each experiment once: seed by seed, so that a part of it already fills every row.

        seeds: their number (from 0 on) or the seeds themselves.
        """
        chosen = range(seeds) if isinstance(seeds, int) else list(seeds)
        wanted = [one for seed in chosen for cell in self.cells(profile) for one in cell.experiments(profile, seed)]
        return once(wanted)

    def exchanged(self, profile: str) -> list[str]:
        """A line for each option whose values are not the paper's in this profile."""
        axes = [axis for row in self.rows if not row.get("also") for axis in row.get("axes", ())]
        return [
            f"{axis['option']}: {_listed(ours)} in place of the paper's {_listed(axis['printed'])}"
            for axis in axes
            if (ours := _for_profile(axis["values"], profile)) != axis.get("printed", ours)
        ]


def once(experiments: Iterable[Experiment]) -> list[Experiment]:
    """The experiments without those that would be the same run."""
    return list({key(one.to_dict()): one for one in experiments}.values())


def names() -> list[str]:
    """Every grid there is, the tables first."""
    return sorted((path.stem for path in FOLDER.glob("*.toml")), key=lambda name: (not name.startswith("table"), name))


@cache
def load(name: str) -> Grid:
    """Read a grid by its name, `table1` to `table6` or another one of `names()`; OptionError for an unknown name."""
    return read(FOLDER / f"{check_name('grid', name, names(), 'fair')}.toml")


def read(path: Path) -> Grid:
    """Read a grid file; DataError that names the file when it is no grid or asks for an experiment that cannot be."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        _check(content, _FILE, "it")
        grid = Grid(name=path.stem, **content)
        for profile in PROFILES:
            grid.cells(profile)
        return grid
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DataError(f"{path} is no grid: {' '.join(str(reason).split())[:160]}") from None


def _check(content: Any, wanted: Any, where: str) -> None:
    """Raise ValueError unless a value read from a file has the wanted shape. where: what the message calls it."""
    if isinstance(wanted, tuple) and isinstance(wanted[0], dict):  # either of two shapes
        wanted = wanted[0] if isinstance(content, dict) else wanted[1]
    kind: Any = list if isinstance(wanted, list) else dict if isinstance(wanted, dict) else wanted
    if not isinstance(content, kind) or (isinstance(content, bool) and kind not in (bool, _VALUE)):
        names = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise ValueError(f"{where} must be {names}, not {content!r}")
    if isinstance(content, int) and abs(content) >= 2**63:
        raise ValueError(f"{where} must be below 2 to the power of 63")
    if isinstance(wanted, list):
        for one in content:
            _check(one, wanted[0], f"an entry of {where}")
    if isinstance(wanted, dict):
        _check_keys(content, {key.rstrip("?"): (key, value) for key, value in wanted.items()}, where)


def _check_keys(content: Mapping[str, Any], known: Mapping[str, tuple[str, Any]], where: str) -> None:
    for name, (spelled, wanted) in known.items():
        if name in content:
            _check(content[name], wanted, name)
        elif not spelled.endswith("?"):
            raise ValueError(f"{where} lacks {name}")
    for name in content:
        if name not in known:
            raise ValueError(f"{where} has an unknown key {name!r}; allowed: {', '.join(known)}.{nearest(name, known)}")


def _cells(row: Mapping[str, Any], dataset: str, profile: str, named: Set[str]) -> list[Cell]:
    """All cells that one block of rows stands for on one data set. named: the methods that the grid names."""
    if dataset not in row.get("datasets", [dataset]):
        return []
    scenarios = [tuple(row["scenarios"])] if row.get("pooled") else [(one,) for one in row["scenarios"]]
    fixed = row.get("options", {}).get(profile, {})
    axes = [[(axis["option"], ours, printed) for ours, printed in _pairs(axis, profile)] for axis in row.get("axes", ())]
    cells = []
    for method, kinds, place in product(_methods(row, named), scenarios, list(product(*axes))):
        if method not in named and not set(kinds) <= set(METHODS[method].scenarios):
            continue
        options = {**fixed, **{name: ours for name, ours, _ in place}}
        for name in set(FIELDS) & options.keys():
            raise ValueError(f"{name} is no option")
        printed = _variant({name: value for name, _, value in place if value is not None})
        also, other = bool(row.get("also")), row.get("other", {}).get(method, "")
        cells.append(Cell(dataset, kinds, method, options, _variant(options), printed, also, other))
    return cells


def _methods(row: Mapping[str, Any], named: Set[str]) -> list[str]:
    """The methods of a block of rows; `others` stands for all that the grid does not name: new ones, a reader's own."""
    others = [name for name in METHODS if name not in named]
    return [name for method in row["methods"] for name in (others if method == OTHERS else [method])]


def _pairs(axis: Mapping[str, Any], profile: str) -> list[tuple[Any, Any]]:
    """(Our value, the paper's) of one option; the paper's is None where it prints none."""
    ours = _for_profile(axis["values"], profile)
    printed = axis.get("printed", [None] * len(ours))
    if len(printed) != len(ours):
        raise ValueError(f"{axis['option']} has {len(ours)} values in {profile} beside {len(printed)} printed ones")
    return list(zip(ours, printed, strict=True))


def _for_profile(values: Any, profile: str) -> list[Any]:
    return list(values[profile] if isinstance(values, Mapping) else values)


def _variant(options: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in options.items())


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))
