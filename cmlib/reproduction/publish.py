"""The way from a store to the committed results."""

from __future__ import annotations

from collections.abc import Iterator
from glob import escape
from pathlib import Path

from cmlib.errors import StoreError
from cmlib.experiment import Experiment
from cmlib.store import CHECKSUMS, Store, checksums, read_checksums, write_atomically, write_checksums


def publish(source: Path, target: Path, replace: bool = False) -> tuple[list[Path], list[Path]]:
    """Copy valid runs of a store (or one file), with their snapshots, to the committed results; StoreError for others.

    Returns the places written and those left as they were: a committed run of the same experiment with another outcome (another
    CPU gives one) stays, unless `replace`; snapshots are copied beside it all the same. One with accuracies after each epoch
    stays before an equal one without.
    """
    files = [source] if source.is_file() else sorted(source.rglob("seed*.json"))
    if not files:
        raise StoreError(f"{source} holds no result files")
    store = Store(target)
    places = [place_of(path, store) for path in files]  # all are checked before any is copied
    kept = [place for path, place in zip(files, places, strict=True) if _stays(path, place, store, replace)]
    written = [place for place in places if place not in kept]
    _check_published(store.folder, written)
    for path, place in zip(files, places, strict=True):
        if place not in kept:
            write_atomically(place, path.read_bytes())
        for snapshots in path.parent.glob(f"{escape(path.stem)}.*.npz"):
            write_atomically(place.with_name(snapshots.name), snapshots.read_bytes())
    write_checksums(target)
    return written, kept


def _check_published(target: Path, written: list[Path]) -> None:
    """StoreError for a file that is no more the published one: new checksums would hide that. written: places written anew."""
    for name, what in checksum_problems(target):
        if (target / name).is_file() and target / name not in written:
            raise StoreError(f"{target / name} {what.partition(':')[0]}; put it right, or remove it, first")


def checksum_problems(folder: Path) -> Iterator[tuple[str, str]]:
    """Files that are not those their checksums were taken of; nothing for a store without checksums."""
    if not (folder / CHECKSUMS).is_file():
        return
    kept, now = read_checksums(folder), checksums(folder)
    for name in sorted(kept.keys() | now.keys()):
        if name not in now:
            yield name, f"is in {CHECKSUMS}, but not there"
        elif name not in kept:
            yield name, f"is not in {CHECKSUMS}: put runs there with `cmlib publish`"
        elif kept[name] != now[name]:
            yield name, f"was changed after it was published: its checksum is not that of {CHECKSUMS}"


def lines(written: list[Path], kept: list[Path]) -> list[str]:
    """What `publish` did, a line a run."""
    left = (
        f"kept: {place} (committed with another outcome, which `cmlib publish --replace` exchanges, or after each epoch as well)"
        for place in kept
    )
    return [*map(str, written), *left]


def _stays(path: Path, place: Path, store: Store, replace: bool) -> bool:
    """Whether what is committed there already is left: it came to other accuracies, or it alone has those after each epoch."""
    if not place.is_file():
        return False
    there, new = store.read(place), store.read(path)
    if there.R != new.R:
        return not replace
    return bool(there.each_epoch) and not new.each_epoch


def place_of(path: Path, target: Store) -> Path:
    """Where a result file belongs in a store; StoreError when its content does not fit its own hash."""
    one = target.read(path)
    experiment = Experiment.of(one.experiment)
    digest = one.data["digest"]
    if experiment.hash(digest) != one.id[-8:]:
        raise StoreError(f"{path} does not fit its hash: made by an older revision, or changed by hand")
    return target.path(experiment, digest)
