"""The results store: one small JSON file a run, written atomically.

A run lies at `<store>/<profile>/<dataset>-<scenario>/<method>[-<variant>]/seed<k>-<hash>.json`. The hash covers every option,
the engine, the method's revision and the data used, so a changed option is another run and a rerun is found. No look-up ignores
the data: runs that one answer holds were all made from one copy of a data set.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmlib import datasets, imagefiles, metrics, runfile
from cmlib.errors import OptionError, StoreError
from cmlib.experiment import Experiment, key
from cmlib.runfile import DIVERGED as DIVERGED
from cmlib.runfile import FINISHED as FINISHED

CHECKSUMS = "SHA256SUMS"  # of the published files of a store, as `sha256sum` writes them
REPEATS = "repeats"  # beside the committed runs, in the repository alone: the same experiments, made again on another CPU


@dataclass(frozen=True)
class Run:
    """A run that was really made: its experiment, its accuracy matrices and what they cost.

    R: accuracies in percent, [N][N], None above the diagonal. R_task_known: the same with the task given (CIL only).
    seconds_per_epoch: one list a task. gradient_steps: one number a task. retained: scalars kept between tasks, by what
    they are. formula: the paper's for the same memory, with its value. status: `finished`, or why and where it stopped.
    each_epoch: accuracies in percent on the tasks so far after each epoch, a list a task of a list an epoch; empty where
    nobody asked (CIL: with no task given). classes: the names of each task's classes, in their order of arrival.
    notes: what a reader of the numbers must know.
    """

    id: str
    experiment: dict[str, Any]
    R: list[list[float | None]]
    R_task_known: list[list[float | None]] | None
    seconds_per_epoch: list[list[float]]
    gradient_steps: list[int]
    retained: dict[str, int]
    status: str = FINISHED
    formula: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    date: str = ""
    each_epoch: list[list[list[float]]] = field(default_factory=list)
    classes: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def matrix(self) -> NDArray[np.float64]:
        """R as an array [N, N] in percent, NaN where nothing was measured."""
        return np.array([[np.nan if value is None else value for value in row] for row in self.R])

    @property
    def curve(self) -> NDArray[np.float64]:
        """`each_epoch` as an array [epochs of all tasks, N] in percent: the classic curve; NaN where nothing was measured."""
        rows = [row for task in self.each_epoch for row in task]
        return np.array([row + [np.nan] * (len(self.R) - len(row)) for row in rows]).reshape(-1, len(self.R))

    @property
    def accuracy(self) -> float:
        """Mean accuracy after the last task, percent (NaN for a run that stopped)."""
        return metrics.accuracy(self.matrix)

    @property
    def bwt(self) -> float:
        """Backward transfer by the paper's formula, percentage points."""
        return metrics.bwt(self.matrix)

    @property
    def bwt_final(self) -> float:
        """Backward transfer after the last task, percentage points (what the paper's tables hold)."""
        return metrics.bwt_final(self.matrix)

    @property
    def learning_accuracy(self) -> float:
        """Mean accuracy on each task right after it was learned, percent."""
        return metrics.learning_accuracy(self.matrix)

    @property
    def retained_scalars(self) -> int:
        """Scalars kept between tasks beside backbone and heads."""
        return sum(self.retained.values())

    @cached_property
    def setting(self) -> str:
        """What it has in common with runs that differ from it in the seed only, as a text."""
        return f"{key(self.experiment, seed=False)} on {self.data['digest']}"

    @property
    def seed(self) -> int:
        """The seed of the experiment."""
        return int(self.experiment["seed"])

    def summary(self) -> dict[str, Any]:
        """What `cmlib run --json` prints: the metrics beside everything in the file."""
        values = {name: getattr(self, name) for name in ("accuracy", "bwt", "bwt_final", "learning_accuracy")}
        known = {name: None if np.isnan(value) else value for name, value in values.items()}
        return {**known, "retained_scalars": self.retained_scalars, **asdict(self)}

    def to_json(self) -> str:
        """The run as JSON text."""
        text = json.dumps(asdict(self), indent=1, allow_nan=False)
        return re.sub(r"\[[^\[\]{}]*\]", lambda found: re.sub(r"\n\s*", " ", found[0]), text) + "\n"  # one line a row

    @property
    def other_data(self) -> str:
        """How its data differ from the data set they are named after, in words; empty where they do not, and for folders."""
        name = str(self.experiment["dataset"])
        known, rows = datasets.KNOWN.get(name), self.data["rows"]
        if known is None:
            return ""
        if rows < known.train:
            return f"a part of the data ({rows:,} of {known.train:,} training images)"
        only = not known.official  # there are no other copies of what ships inside a library
        return "other data" if rows > known.train or (only and self.data["digest"] != known.digest) else ""

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "this text") -> Run:
        """Read a run back; StoreError naming `where` and what is wrong when it is not one."""
        try:
            return _parsed(text)
        except ValueError as error:
            raise StoreError(f"{where} is not a result file of cmlib ({error}); remove or repair it") from None


@lru_cache(maxsize=4096)  # commands and pages read the committed runs many times
def _parsed(text: str | bytes) -> Run:
    """The run of a result file's content: the same content gives the same object, which nobody changes."""
    return Run(**runfile.parse(text))


def one_copy(runs: Iterable[Run]) -> tuple[list[Run], list[Run]]:
    """Runs on all of their data set, from one copy of it, and the others; of copies the one with most runs, then the committed.

    Copies of a data set differ in the order of the images, so runs from two of them are no more the same than two seeds.
    """
    made = list(runs)
    counts = Counter(run.data["digest"] for run in made if not run.other_data)
    usual = {known.digest for known in datasets.KNOWN.values()}
    chosen = max(counts, key=lambda digest: (counts[digest], digest in usual), default="")
    mine = [run for run in made if not run.other_data and run.data["digest"] == chosen]
    return mine, [run for run in made if run not in mine]


def run_id(experiment: Experiment, digest: str) -> str:
    """The name of a run in texts and files: `cm-til-digits-seed0-1a2b3c4d`."""
    e = experiment
    return f"{e.method}-{e.scenario}-{e.dataset}-seed{e.seed}-{e.hash(digest)}"


class Store:
    """A folder of runs."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()

    def path(self, experiment: Experiment, digest: str) -> Path:
        """Where the run of an experiment lies."""
        e = experiment
        variant = re.sub(r"[^\w=.,+-]", "_", e.variant)[:120]
        method = f"{e.method}-{variant}" if variant else e.method
        place = self.folder / e.profile / f"{e.dataset}-{e.scenario}" / method
        return place / f"seed{e.seed}-{e.hash(digest)}.json"

    def check_writable(self) -> None:
        """Raise StoreError unless files can be made in the folder."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise StoreError(f"cannot write to the store {self.folder}: {error.strerror}") from None

    def load(self, experiment: Experiment, digest: str) -> Run | None:
        """The run of an experiment, or None; StoreError when the file in its place holds another one."""
        path = self.path(experiment, digest)
        if not path.is_file():
            return None
        run = self.read(path)
        if key(run.experiment) != key(experiment.to_dict()) or run.data["digest"] != digest:
            raise StoreError(f"{path} holds another run than its name says: it was changed or moved by hand; remove it")
        return run

    def save(self, run: Run, experiment: Experiment, digest: str) -> Path:
        """Write a run; either the whole file is there or none."""
        path = self.path(experiment, digest)
        write_atomically(path, run.to_json().encode())
        return path

    def read(self, path: Path) -> Run:
        """Read one result file; StoreError when it cannot be read or is none."""
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise StoreError(f"{path} is not a result file of cmlib: it is no file at all; remove it")
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from None
        return Run.from_json(raw, str(path))

    def __iter__(self) -> Iterator[Run]:
        for path in sorted(self.folder.rglob("seed*.json")):
            yield self.read(path)

    def find(self, experiment: Experiment, digest: str | None = None, any_seed: bool = False) -> list[Run]:
        """Runs of exactly this experiment (or of it with any seed) on exactly this data.

        digest: of the data. None: of the data set as published, in one copy (see `one_copy`), or of the folder as it now is.
        OptionError for arrays and unknown folders without a digest.
        """
        e = experiment
        seed = "*" if any_seed else str(e.seed)
        pattern = f"*/{e.dataset}-{e.scenario}/{glob.escape(e.method)}*/seed{seed}-*.json"
        wanted = key(e.to_dict(), not any_seed)
        read = map(self.read, sorted(self.folder.glob(pattern)))
        runs = [run for run in read if key(run.experiment, not any_seed) == wanted]
        if digest is None and e.dataset in datasets.KNOWN:
            return one_copy(runs)[0]
        return [run for run in runs if run.data["digest"] == (digest or _digest_of(e))] if runs else []


def _digest_of(experiment: Experiment) -> str:
    """The digest of a folder of images as it now is."""
    if experiment.source in ("", datasets.ARRAYS):
        raise OptionError(f"which data are '{experiment.dataset}'? pass their digest")
    return datasets.load(experiment.source).digest


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old one or the whole new one; StoreError when it cannot be written."""
    try:
        with imagefiles.whole(path) as file:
            file.write(content)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from None


def clear_parts(path: Path) -> None:
    """Remove what dead processes have left half-written beside a run's place."""
    name = f".{glob.escape(path.stem)}"
    imagefiles.clear_parts(path.parent, f"{name}.*.part", f"{name}.*[0-9]")  # the second is an older name


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every result file and snapshot of a store, by its name inside the store."""
    files = [path for pattern in ("seed*.json", "seed*.npz") for path in folder.rglob(pattern)]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def write_checksums(folder: Path) -> None:
    """Keep the checksums of a store's files in the store."""
    lines = [f"{digest}  {name}\n" for name, digest in checksums(folder).items()]
    write_atomically(folder / CHECKSUMS, "".join(lines).encode())


def read_checksums(folder: Path) -> dict[str, str]:
    """The checksums kept in a store, by file; StoreError when they cannot be read."""
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
        return {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}
    except (OSError, ValueError):
        raise StoreError(
            f"{folder / CHECKSUMS} cannot be read; take the published one again, or remove it: `cmlib publish` writes it anew"
        ) from None


def default_folder() -> Path:
    """Where runs are written unless a store is named: CMLIB_STORE, or `runs` here."""
    return Path(os.environ.get("CMLIB_STORE") or "runs").expanduser()


def committed() -> Store:
    """The runs that come with cmlib (in the repository `book/results`)."""
    here = Path(__file__).resolve().parent
    inside = here / "results"
    return Store(inside if inside.is_dir() else here.parent / "book" / "results")
