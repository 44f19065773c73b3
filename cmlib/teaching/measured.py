"""What the pages of chapter 7 share: the stored runs of every method, and the strip in which a page shows those of its own.

    shelf = Measured("digits", seeds=5)
    shelf.runs("til", "ewc")                    # a run a seed, in the order of the seeds; [] where none has been made
    shelf.matrices("ewc"); shelf.line("ewc"); shelf.keeps("ewc")   # what a page shows of them

Nothing is trained here, unless `recompute` asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmlib.engine import load_or_run
from cmlib.experiment import Experiment
from cmlib.methods import METHODS
from cmlib.plots import figures
from cmlib.reproduction import paper
from cmlib.reproduction.paper import finished
from cmlib.store import Run, Store, committed, default_folder
from cmlib.teaching.page import say, show

SCENARIOS = ("til", "cil")


class Measured:
    """Stored runs of a profile, looked up once each: in the reader's own store first, then in the book's."""

    def __init__(self, profile: str = "digits", seeds: int = 5, recompute: bool = False) -> None:
        self.profile, self.seeds, self.recompute = profile, seeds, recompute
        self.dataset = "digits" if profile in ("digits", "smoke") else "cifar10"
        self._found: dict[tuple[Any, ...], list[Run]] = {}

    def find(self, experiment: Experiment) -> Run | None:
        """The stored run of an experiment, or None. Trains only if `recompute` is True."""
        if self.recompute:
            return load_or_run(experiment, recompute=True)
        shelves = (Store(default_folder()), committed())
        return next((found[-1] for shelf in shelves if (found := shelf.find(experiment))), None)

    def runs(self, kind: str, name: str, **change: Any) -> list[Run]:
        """The runs of a method in a scenario, a run a seed; [] where it does not exist or has not run. change: other options."""
        asked = (kind, name, *sorted(change.items()))
        if asked not in self._found:
            self._found[asked] = [*self._look_up(kind, name, change)] if kind in METHODS[name].scenarios else []
        return self._found[asked]

    def _look_up(self, kind: str, name: str, change: dict[str, Any]) -> Iterable[Run]:
        for seed in range(self.seeds):
            run = self.find(Experiment(self.dataset, kind, name, seed=seed, profile=self.profile, **change))
            if run is not None:
                yield run

    def done(self, kind: str, name: str, **change: Any) -> list[Run]:
        """Those of the runs that ended as planned."""
        return finished(self.runs(kind, name, **change))

    # -- what a page shows ------------------------------------------------------------------------------------------------

    def matrices(self, name: str) -> Any:
        """The accuracy matrices of a method, mean over seeds, TIL and CIL beside each other; None where nothing was run."""
        means = {kind: np.mean([run.matrix for run in good], axis=0) for kind in SCENARIOS if (good := self.done(kind, name))}
        if not means:
            return None
        title = METHODS[name].title
        last = "; ".join(f"{kind.upper()}: {R[-1].mean():.0f} % at the end" for kind, R in means.items())
        alt = f"Accuracy matrices of {title} on {self.dataset}, mean over seeds: rows after a task, columns on a task. {last}."
        return show(
            figures.accuracy_matrix({f"{title}, {kind.upper()}": R for kind, R in means.items()}),
            alt,
            "Percent: each number is the mean over the seeds that finished.",
        )

    def line(self, name: str) -> Any:
        """Accuracy and final BWT of a method in both scenarios, as one line of Markdown."""
        parts = [self._score(kind, name) for kind in SCENARIOS]
        everything = [run for kind in SCENARIOS for run in self.runs(kind, name)]
        text = f"**{METHODS[name].title}** on {self.dataset}. {' · '.join(text for text, _ in parts)}."
        return say(text, run=everything, **parts[0][1], **parts[1][1])

    def _score(self, kind: str, name: str) -> tuple[str, dict[str, float]]:
        found, good = self.runs(kind, name), self.done(kind, name)
        if not good:
            missing = "not run yet" if kind in METHODS[name].scenarios else "does not exist"
            return f"{kind.upper()}: {'no run finished' if found else missing}", {}
        text, values = mean_sd(f"{kind}_acc", [run.accuracy for run in good])
        values |= {f"{kind}_bwt": float(np.mean([run.bwt_final for run in good])), f"{kind}_n": len(good)}
        many = "s" * (len(good) != 1)
        text = f"{kind.upper()} **{text} %**, final BWT {{{kind}_bwt:.1f}} ({{{kind}_n}} seed{many})"
        if len(found) > len(good):
            values[f"{kind}_lost"] = len(found) - len(good)
            text += f" and {{{kind}_lost}} more that stopped, because its loss was not finite"
        return text, values

    def keeps(self, name: str) -> Any:
        """What a method kept after the last task beside backbone and heads, part by part, as one line of Markdown."""
        text = ""
        values: dict[str, int] = {}
        named: list[Run] = []
        for kind in SCENARIOS:
            if run := next(iter(self.runs(kind, name)), None):
                parts = {f"{kind}{k}": count for k, count in enumerate(run.retained.values())}
                said = [f"{what} {{{kind}{k}:,}}" for k, what in enumerate(run.retained)]
                text += f"{kind.upper()}: {', '.join(said) or 'nothing'}. "
                values, named = values | parts, [*named, run]
        if not named:
            return say("**Keeps**: not run yet.")
        return say(f"**Keeps**, in scalars after the last task. {text.strip()}", run=named, **values)


def gaps(first: Sequence[Run], second: Sequence[Run]) -> NDArray[np.float64]:
    """Differences in accuracy, seed by seed, where both finished."""
    return np.array(paper.gaps(finished(first), finished(second)))


def mean_sd(name: str, values: Sequence[float]) -> tuple[str, dict[str, float]]:
    """A field with mean and standard deviation (divided by n) over seeds for `cm.say`, and its values."""
    text, numbers = f"{{{name}:.1f}}", {name: float(np.mean(values))}
    if len(values) > 1:
        text, numbers[f"{name}_sd"] = text + f" ± {{{name}_sd:.1f}}", float(np.std(values))
    return text, numbers
