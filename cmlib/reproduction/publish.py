"""The way from a store to the committed results."""

from __future__ import annotations

from glob import escape
from pathlib import Path

from cmlib.errors import StoreError
from cmlib.experiment import Experiment
from cmlib.store import Store, write_atomically, write_checksums


def publish(source: Path, target: Path) -> list[Path]:
    """Copy valid runs of a store (or one file), with their snapshots, to the committed results; StoreError for others."""
    files = [source] if source.is_file() else sorted(source.rglob("seed*.json"))
    if not files:
        raise StoreError(f"{source} holds no result files")
    places = [_place(path, Store(target)) for path in files]  # all are checked before any is copied
    for path, place in zip(files, places, strict=True):
        write_atomically(place, path.read_bytes())
        for snapshots in path.parent.glob(f"{escape(path.stem)}.*.npz"):
            write_atomically(place.with_name(snapshots.name), snapshots.read_bytes())
    write_checksums(target)
    return places


def _place(path: Path, target: Store) -> Path:
    """Where a result file belongs in a store; StoreError when its content does not fit its own hash."""
    one = target.read(path)
    experiment = Experiment.of(one.experiment)
    digest = one.data["digest"]
    if experiment.hash(digest) != one.id[-8:]:
        raise StoreError(f"{path} does not fit its hash: made by an older revision, or changed by hand")
    return target.path(experiment, digest)
