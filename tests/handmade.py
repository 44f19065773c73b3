"""Runs made by hand for tests, completed to what the strict reader asks for; and chapters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat

from cmlib.datasets import KNOWN
from cmlib.experiment import Experiment
from cmlib.runfile import DIVERGED, FINISHED, STOPPED
from cmlib.store import Run, run_id
from cmlib.teaching import notebooks


def completed(run: Run) -> Run:
    """The run with all entries: its own where it has them, else those of a run on the whole data set, as it was committed.

    R loses what a run cannot have measured; seconds keep their mean for each task.
    """
    experiment = Experiment.of(run.experiment)
    known, n = KNOWN.get(experiment.dataset), experiment.n_tasks
    rows = known.train if known else 100
    data = {
        "digest": (known and known.digest) or "0123456789ab",
        "classes": 10,
        "rows": rows,
        "train_rows_used": rows,
        **run.data,
    }
    status = run.status if run.status == FINISHED or STOPPED.fullmatch(run.status) else f"{DIVERGED} (task 1, epoch 1)"
    stop = STOPPED.fullmatch(status)
    task, epoch = (int(stop[1]), int(stop[2])) if stop else (n, experiment.epochs)
    R = [[value if j <= i < task - bool(stop) else None for j, value in enumerate(row)] for i, row in enumerate(run.R)]
    lengths = [experiment.epochs] * (task - 1) + [epoch]
    seconds = [one if len(one) == k else [sum(one) / len(one)] * k for one, k in zip(run.seconds_per_epoch, lengths)]
    return replace(
        run,
        id=run_id(experiment, data["digest"]),
        R=R,
        R_task_known=(run.R_task_known or R) if experiment.scenario == "cil" else None,
        seconds_per_epoch=seconds,
        gradient_steps=(run.gradient_steps or [1] * n)[:task],
        status=status,
        data=data,
        versions={"cmlib": "0.1.0", "torch": "2.9.0", "python": "3.12.0", **run.versions},
        machine={"device": "cpu", "threads": 1, "commit": "", **run.machine},
        date=run.date or "2026-01-31",
    )


def chapter_file(path: Path, cells: Iterable[tuple[Any, ...]]) -> Path:
    """Write a notebook without outputs from `(kind, source, tags)`; kind: md or code. Tags may be left out."""
    makers = {"md": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    made = [
        makers[kind](source, id=f"cell-{k:03d}", metadata={"tags": list(*tags)} if tags else {})
        for k, (kind, source, *tags) in enumerate(cells)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=made, metadata=notebooks.METADATA), path)
    return path
