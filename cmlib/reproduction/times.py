"""How long runs take: as others like them took, else by the cost model and this machine's speed."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from cmlib import datasets, machine
from cmlib.errors import StoreError
from cmlib.experiment import Experiment, key
from cmlib.reproduction import costs
from cmlib.store import FINISHED, Store

Table = dict[str, list[float]]  # seconds by experiment whatever its seed (`key`), seconds an epoch by kind (`_near`)


class Times:
    """Seconds that runs take here: as measured on this CPU with as many threads, else by the cost model, else as on another CPU.

    threads, device: of a worker. Earlier stores win over later ones, what this sweep measures over all.
    """

    def __init__(self, stores: Sequence[Store], threads: int = 1, device: str = "auto") -> None:
        self.device = machine.choose_device(device)
        self.threads, self.name = threads, machine.device_name(self.device)
        self.cpu = machine.cpu_model() if self.device.type == "cpu" else ""  # beside a GPU it does not matter
        self.here: Table = defaultdict(list)  # measured in this sweep
        self.speeds: dict[str, list[float]] = defaultdict(list)  # images a second of this sweep's runs, by data set
        found = [self._read(store) for store in stores]
        self.alike, self.others = [alike for alike, _ in found], [others for _, others in found]

    def _read(self, store: Store) -> tuple[Table, Table]:
        """What finished runs on this kind of device took: those on this CPU with as many threads, and the others."""
        tables: tuple[Table, Table] = (defaultdict(list), defaultdict(list))
        for path in sorted(store.folder.rglob("seed*.json")):
            with suppress(StoreError, KeyError):  # a damaged file is no measurement; where it matters it is named
                run = store.read(path)
                if run.status == FINISHED and not run.other_data and run.machine.get("device") == self.name:
                    wanted = (self.cpu, self.threads_of(run.experiment["dataset"])) if self.cpu else (None, None)
                    alike = not self.cpu or (run.machine.get("cpu"), run.machine.get("threads")) == wanted
                    _keep(tables[0 if alike else 1], run.experiment, sum(map(sum, run.seconds_per_epoch)))
        return tables

    def threads_of(self, dataset: str) -> int:
        """Threads of a run on this data set (see `machine.threads_for`)."""
        known = datasets.KNOWN.get(dataset)
        return 1 if known and int(known.size.split("x")[0]) < 16 else self.threads

    def add(self, experiment: Experiment, seconds: float) -> None:
        """Keep what a run of this sweep took, evaluation and all."""
        _keep(self.here, experiment.to_dict(), seconds)
        if cost := costs.run_cost(experiment):
            self.speeds[experiment.dataset].append(cost / seconds)

    def of(self, experiment: Experiment) -> float | None:
        """The seconds to expect (median of similar runs, or predicted), or None when nothing is known."""
        content = experiment.to_dict()
        measured = _look_up((self.here, *self.alike), content)
        return measured or self.predicted(experiment) or _look_up(self.others, content)

    def predicted(self, experiment: Experiment) -> float | None:
        """Cost by images a second: those of this sweep's runs so far, else measured now. None without a cost model."""
        cost = costs.run_cost(experiment)
        if cost is None:
            return None
        seen, threads = self.speeds.get(experiment.dataset), self.threads_of(experiment.dataset)
        return cost / (statistics.median(seen) if seen else costs.images_a_second(experiment.dataset, threads, str(self.device)))

    def left(self, waiting: Iterable[Experiment]) -> float | None:
        """Seconds of all these, one after the other; the unknown count as the mean of the known ones."""
        guesses = [self.of(one) for one in waiting]
        known = [guess for guess in guesses if guess is not None]
        return sum(known) / len(known) * len(guesses) if known else (None if guesses else 0.0)


def _look_up(tables: Iterable[Table], content: dict[str, Any]) -> float | None:
    """The median of the same run's seconds with any seed; else that of its kind's seconds an epoch, by its epochs."""
    sources = list(tables)
    for kind, factor in ((key(content, seed=False), 1), (_near(content), content["options"]["epochs"])):
        for source in sources:
            if kind in source:
                return statistics.median(source[kind]) * factor
    return None


def _keep(table: Table, content: dict[str, Any], seconds: float) -> None:
    table[key(content, seed=False)].append(seconds)
    table[_near(content)].append(seconds / content["options"]["epochs"])


def _near(content: dict[str, Any]) -> str:
    options = [content["options"].get(name) for name in ("n_tasks", "train_per_class", "batch_size", "batch_norm")]
    return json.dumps([content[name] for name in ("dataset", "scenario", "method", "engine")] + options)


def duration(seconds: float) -> str:
    """`12 s`, `3 min`, `1.5 h`."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
