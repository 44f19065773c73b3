"""All runs of a store as one tidy table: a row a run, or a row a measured accuracy; CSV, Parquet or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from cmlib import metrics
from cmlib.errors import OptionError, StoreError, check_name
from cmlib.experiment import Experiment
from cmlib.store import Run, Store, write_atomically

FORMATS = ("csv", "parquet", "json")
WHO = ("id", "dataset", "scenario", "method", "engine", "profile", "seed")


def export(store: str | Path, out: str | Path | None = None, kind: str | None = None, cells: bool = False) -> str:
    """Write all runs of a store as one table: `csv`, `parquet` or `json`, an object whose `rows` have values only where there
    are some. Unsaid, the end of `out` decides, which must not name another one; without `out` it is csv.

    One row a run: who it is, every option, accuracy, bwt, bwt_final, learning_accuracy, forgetting (from the best earlier value),
    incremental_accuracy (the average incremental accuracy; all in percent and empty for a run that stopped, transfers and
    forgetting also for a single task), steps, seconds, retained (scalars, in all and by what they are), formula, status, data,
    versions, date.
    cells: one row a measured accuracy instead: the options that are not the usual ones (variant), after_task, on_task (from 1
    on), accuracy, task_known (told at test time).
    Returns the CSV or JSON when there is no `out`, else a line on what was written. Errors: StoreError, OptionError.
    """
    path = Path(out) if out else None
    kind = _kind(path, kind)
    if not Path(store).is_dir():
        raise StoreError(f"there is no store {store}")
    runs = list(Store(store))
    if not runs:
        raise StoreError(f"{store} holds no result files")
    rows = [row for run in runs for row in (cell_rows(run) if cells else [run_row(run)])]
    content = _table_bytes(rows, kind)
    if path is None:
        return content.decode()
    write_atomically(path, content)
    return f"{path}: {len(rows)} rows, {len(runs)} runs\n"


def _kind(path: Path | None, kind: str | None) -> str:
    """The format, from its name and that of the file; OptionError when they part, or for neither."""
    ending = path.suffix.removeprefix(".").lower() if path else ""
    if path is not None and path.is_dir():
        raise OptionError(f"--out {path} is a folder; name a file in it, as {path / 'runs.csv'}")
    if path is not None and (ending not in FORMATS if kind is None else ending in FORMATS and ending != kind):
        wanted = f".{kind}" if kind in FORMATS else ", ".join(f".{name}" for name in FORMATS)
        raise OptionError(f"--out {path}: expected a name that ends in {wanted}" + ("" if kind else ", or --format"))
    kind = check_name("format", kind or ending or FORMATS[0], FORMATS)
    if path is None and kind == "parquet":
        raise OptionError("--format parquet needs --out FILE: it is not text")
    return kind


def _who(run: Run) -> dict[str, Any]:
    return {"id": run.id} | {name: run.experiment[name] for name in WHO[1:]}


def run_row(run: Run) -> dict[str, Any]:
    """A run as one row of the table."""
    measured = run.summary()
    options = run.experiment["options"]
    row = {**_who(run), "revision": run.experiment["revision"], **options}
    row |= {name: measured[name] for name in ("accuracy", "bwt", "bwt_final", "learning_accuracy")}
    more = {function.__name__: function(run.matrix) for function in (metrics.forgetting, metrics.incremental_accuracy)}
    row |= {name: value if math.isfinite(value) else None for name, value in more.items()}
    row |= {"steps": sum(run.gradient_steps), "seconds": float(sum(map(sum, run.seconds_per_epoch)))}
    row["retained"] = sum(run.retained.values())
    row |= {f"retained_{what.replace(' ', '_')}": scalars for what, scalars in run.retained.items()}
    row |= {"formula": run.formula.get("text"), "formula_scalars": run.formula.get("scalars"), "status": run.status}
    row |= {key: run.data[key] for key in ("digest", "classes", "rows", "train_rows_used")}
    row |= {f"version_{name}": version for name, version in run.versions.items()}
    return row | run.machine | {"date": run.date}


def _variant(run: Run) -> str:
    """The options that differ from the usual; empty where none does, or where the method is not at hand."""
    try:
        return Experiment.of(run.experiment).variant
    except OptionError:
        return ""


def cell_rows(run: Run) -> Iterator[dict[str, Any]]:
    """A run's measured accuracies, one row each: those of R, then in CIL those with the task known."""
    told, variant = run.experiment["scenario"] == "til", _variant(run)
    for R, known in ((run.R, told), (run.R_task_known or [], True)):
        for i, row in enumerate(R):
            for j, value in enumerate(row):
                if value is not None:
                    yield {
                        **_who(run),
                        "variant": variant,
                        "after_task": i + 1,
                        "on_task": j + 1,
                        "accuracy": float(value),
                        "task_known": known,
                    }


def _table_bytes(rows: Sequence[dict[str, Any]], kind: str) -> bytes:
    """A table as a file: a column for every name, empty where a row has none; whole numbers stay whole."""
    import pandas

    if kind == "json":
        return (json.dumps({"rows": rows}, allow_nan=False) + "\n").encode()
    columns = {}
    for name in dict.fromkeys(_in_order(rows)):
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        dtype = {frozenset({int}): "Int64", frozenset({bool}): "boolean"}.get(frozenset(kinds))
        dtype = dtype or ("Float64" if kinds and kinds <= {int, float} else "string")
        columns[name] = pandas.array(values, dtype=dtype)
    table, buffer = pandas.DataFrame(columns), BytesIO()
    if kind == "csv":
        return str(table.to_csv(index=False, lineterminator="\n")).encode()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _in_order(rows: Sequence[dict[str, Any]]) -> list[str]:
    """All column names: options that only some methods have come before the metrics, as in a row that has them."""
    order: list[str] = []
    for row in rows:
        before = 0
        for name in row:
            if name not in order:
                order.insert(before, name)
            before = order.index(name) + 1
    return order
