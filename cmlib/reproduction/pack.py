"""One archive of a store, to bring runs home from another machine: new results, checkpoints of unfinished runs, a summary."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cmlib.checkpoint import Checkpoint
from cmlib.errors import CmlibError, OptionError, StoreError
from cmlib.reproduction import publish, render
from cmlib.store import Run, Store, write_atomically

DAMAGED = "damaged"
LIMIT = 15.0  # MiB of an archive
MIB = 2**20
SUMMARY = "summary.md"


def label(path: Path) -> str:
    """A run by its place in a store: `cifar10-cil/cm-lam=1.0 seed 0`."""
    return f"{path.parent.parent.name}/{path.parent.name} {path.stem.partition('-')[0].replace('seed', 'seed ')}"


# -- there ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A file of the store as the archive sees it, read once."""

    path: Path
    size: int  # bytes
    cells: tuple[str, ...]  # its line of the summary
    is_whole: bool  # it can be put in place again: one that cannot would make the archive be refused


def pack(store: Path, out: Path, results: Path, notes: str = "", limit: float = LIMIT) -> str:
    """Write the archive, of at most `limit` MiB: summary, results, then checkpoints, the smallest first; returns the summary.

    What `results` holds is left out, and what is damaged. notes: a text for the summary. StoreError when there is no store or
    nothing can be written.
    """
    if not store.is_dir():
        raise StoreError(f"there is no store {store}")
    if not 0.1 <= limit < float("inf"):
        raise OptionError(f"--limit {limit:g}: expected a number of MiB, at least 0.1")
    made, cut = new_files(store, results)
    runs, checkpoints = [_run_entry(Store(store), path) for path in made], [_checkpoint_entry(path) for path in cut]
    room = limit * MIB - 2**16  # for the summary
    while True:
        inside = fitting(runs, room)
        inside += fitting(checkpoints, room - sum(entry.size for entry in inside))
        text = summary(runs, checkpoints, inside, notes)
        content = _archive(text, store, [entry.path for entry in inside])
        if len(content) <= limit * MIB or not inside:
            write_atomically(out, content)
            return text
        room -= len(content) - limit * MIB + 1


def new_files(store: Path, results: Path) -> tuple[list[Path], list[Path]]:
    """Result files that `results` does not hold, and checkpoints of runs that neither folder holds."""
    known = {path.relative_to(results) for path in results.rglob("seed*.json")}
    mine = {path.relative_to(store): path for path in sorted(store.rglob("seed*.json"))}
    cut = {path.relative_to(store): path for path in sorted(store.rglob("seed*.ckpt"))}
    unfinished = [path for place, path in cut.items() if place.with_suffix(".json") not in known | set(mine)]
    return [path for place, path in mine.items() if place not in known], unfinished


def _run_entry(store: Store, path: Path) -> Entry:
    """A result file: accuracy and bwt_final in percent, seconds of training."""
    size = path.stat().st_size
    try:
        run: Run = store.read(path)
    except StoreError:
        return Entry(path, size, (label(path), "-", "-", "-", "not a result file, left out"), False)
    try:
        publish.place_of(path, store)
    except CmlibError:
        return Entry(path, size, (label(path), "-", "-", "-", "of an older revision or an unknown method, left out"), False)
    values = run.summary()
    numbers = render.number(values["accuracy"]), render.number(values["bwt_final"]), f"{sum(map(sum, run.seconds_per_epoch)):.1f}"
    return Entry(path, size, (label(path), *numbers, run.status), True)


def _checkpoint_entry(path: Path) -> Entry:
    """A checkpoint: how far its run came."""
    size = path.stat().st_size
    try:
        task, epoch = _position(path)
    except StoreError:
        return Entry(path, size, (label(path), DAMAGED), False)
    return Entry(path, size, (label(path), f"task {task + 1}, {epoch} epoch{'s' * (epoch != 1)} of it"), True)


def fitting(entries: Sequence[Entry], room: float) -> list[Entry]:
    """The whole ones, the smallest first, as long as they fit: it is the largest that are left out."""
    chosen: list[Entry] = []
    for entry in sorted((entry for entry in entries if entry.is_whole), key=lambda entry: entry.size):
        room -= entry.size
        if room < 0:
            break
        chosen.append(entry)
    return chosen


def _archive(text: str, store: Path, files: Iterable[Path]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=5) as tar:
        page = tarfile.TarInfo(SUMMARY)
        page.size, page.mtime = len(text.encode()), int(time.time())
        tar.addfile(page, io.BytesIO(text.encode()))
        for path in files:
            tar.add(path, path.relative_to(store).as_posix())
    return content.getvalue()


def summary(runs: Sequence[Entry], checkpoints: Sequence[Entry], inside: Sequence[Entry], notes: str = "") -> str:
    """The page that travels with the runs (Markdown)."""
    made = [entry.cells for entry in runs]
    cut = [(*entry.cells, _size(entry, entry in inside)) for entry in checkpoints]
    lost = [label(entry.path) for entry in runs if entry.is_whole and entry not in inside]
    blocks = [
        "# Runs",
        _section(f"New runs ({len(made)})", ("run", "accuracy", "bwt_final", "seconds", "status"), made),
        _section(f"Unfinished runs ({len(cut)})", ("run", "done", "checkpoint"), cut),
        *([f"Left out, the archive is full: {', '.join(lost)}"] if lost else []),
        *([f"## Notes\n\n```\n{notes.strip()}\n```"] if notes.strip() else []),
    ]
    return "\n\n".join(blocks) + "\n"


def _section(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"## {title}\n\n" + (render.markdown(header, rows) if rows else "none")


def _size(entry: Entry, packed: bool) -> str:
    why = "packed" if packed else "LEFT OUT: the archive is full" if entry.is_whole else "LEFT OUT"
    return f"{entry.size / MIB:.1f} MiB, {why}"


def _position(path: Path) -> tuple[int, int]:
    """Tasks that a checkpoint has behind it, and epochs of the one it is in; StoreError when it cannot be read."""
    try:
        found = Checkpoint(path).position()
        assert found is not None
        return found.task, found.epoch
    except Exception as error:
        raise StoreError(f"{path.name} is no checkpoint of cmlib, or damaged ({error.__class__.__name__})") from None


# -- and back -------------------------------------------------------------------------------------------------------------


def unpack(archive: Path, store: Path, results: Path) -> list[str]:
    """Put results, validated as `cmlib publish` does, into `results` and checkpoints into `store`; says what was done.

    Everything is checked before anything is written. A checkpoint does not replace one that is further on. StoreError for a
    file that is no such archive, or damaged.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _extract(archive, folder)
        runs = len(list(folder.rglob("seed*.json")))
        checkpoints = {path.relative_to(folder): _position(path) for path in sorted(folder.rglob("seed*.ckpt"))}
        if not runs and not checkpoints and not (folder / SUMMARY).is_file():
            raise StoreError(f"{archive} holds neither runs nor checkpoints: `cmlib pack` did not write it")
        if checkpoints and store.exists() and not store.is_dir():
            raise StoreError(f"cannot write to the store {store}: it is no folder")
        written, kept = _publish(folder, results) if runs else ([], [])
        put = publish.lines(written, kept)
        wanted = [place for place, where in checkpoints.items() if _is_wanted(place, where, store, results)]
        for place in wanted:
            write_atomically(store / place, (folder / place).read_bytes())
        put += [str(store / place) for place in wanted]
    return [*put, f"{len(written)} runs, {len(wanted)} of {len(checkpoints)} checkpoints put in place"]


def _extract(archive: Path, folder: Path) -> None:
    """Unpack into a folder; StoreError when that does not work."""
    if not archive.is_file():
        raise StoreError(f"no file {archive}")
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise StoreError(f"{archive} is no archive of `cmlib pack`, or damaged ({error.__class__.__name__})") from None


def _publish(folder: Path, results: Path) -> tuple[list[Path], list[Path]]:
    """As `cmlib publish`; errors name places in the archive."""
    try:
        return publish.publish(folder, results)
    except StoreError as error:
        raise StoreError(f"nothing was put in place: {str(error).replace(f'{folder}{os.sep}', '')}") from None


def _is_wanted(place: Path, where: tuple[int, int], store: Path, results: Path) -> bool:
    """Whether a checkpoint is of use: its run is not finished, and what the store has is not as far."""
    if any((folder / place.with_suffix(".json")).exists() for folder in (store, results)):
        return False
    try:
        return not (store / place).exists() or _position(store / place) < where
    except StoreError:
        return True  # a damaged one gives way
