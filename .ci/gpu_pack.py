"""What .ci/gpu brings home: the archive of new runs and of checkpoints, its summary, and the way back into a store."""

from __future__ import annotations

import io
import math
import os
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LIMIT = 15 * 2**20  # bytes of the archive; where it travels to, 16 MiB are the most
NAME = "grid.tar.gz"


@dataclass
class Report:
    """What happened, beside what the files say."""

    title: str = ""  # machine, versions, time
    ending: str = ""  # why it ended
    failed: dict[str, str] = field(default_factory=dict)  # the last line of the error, by run
    left: list[str] = field(default_factory=list)  # runs not yet made, in words
    notes: list[str] = field(default_factory=list)  # lines of the self-check and the bench


# --- what goes into an archive -------------------------------------------------------------------------------------


def label(path: Path) -> str:
    """A run by its place in a store: `cifar10-cil/cm-lam=1.0 seed 0`."""
    return f"{path.parent.parent.name}/{path.parent.name} {path.stem.partition('-')[0].replace('seed', 'seed ')}"


def new_files(store: Path, results: Path) -> tuple[list[Path], list[Path]]:
    """Result files that `results` does not hold, and checkpoints of runs that neither folder holds."""
    known = {path.relative_to(results) for path in results.rglob("seed*.json")}
    mine = {path.relative_to(store): path for path in sorted(store.rglob("seed*.json"))}
    cut = {path.relative_to(store): path for path in sorted(store.rglob("seed*.ckpt"))}
    open_ends = [path for place, path in cut.items() if place.with_suffix(".json") not in known | set(mine)]
    return [path for place, path in mine.items() if place not in known], open_ends


def fitting(files: Sequence[Path], limit: int) -> list[Path]:
    """The files, the smallest first, as long as they fit: it is the largest that are left out."""
    chosen: list[Path] = []
    for path in sorted(files, key=lambda path: path.stat().st_size):
        limit -= path.stat().st_size
        if limit < 0:
            break
        chosen.append(path)
    return chosen


def pack(store: Path, results: Path, out: Path, report: Report, limit: int = LIMIT) -> tuple[Path, str]:
    """Write the archive, of at most `limit` bytes: summary, results, then checkpoints. Returns its path and the summary."""
    runs, checkpoints = new_files(store, results)
    out.mkdir(parents=True, exist_ok=True)
    room = limit - 2**16  # for the summary
    while True:
        inside = fitting(runs, room)
        inside += fitting(checkpoints, room - sum(path.stat().st_size for path in inside))
        text = summary(runs, checkpoints, inside, report)
        write_archive(out / NAME, text, store, inside)
        size = (out / NAME).stat().st_size
        if size <= limit or not inside:
            return out / NAME, text
        room -= size - limit + 1


def write_archive(archive: Path, text: str, store: Path, files: Iterable[Path]) -> None:
    """Write the archive; either the whole file is there or the one before."""
    temporary = archive.with_name(f".{archive.name}.{os.getpid()}")
    with tarfile.open(temporary, "w:gz", compresslevel=5) as tar:
        page = tarfile.TarInfo("summary.md")
        page.size, page.mtime = len(text.encode()), int(time.time())
        tar.addfile(page, io.BytesIO(text.encode()))
        for path in files:
            tar.add(path, path.relative_to(store).as_posix())
    os.replace(temporary, archive)


# --- summary -------------------------------------------------------------------------------------------------------


def summary(runs: Sequence[Path], checkpoints: Sequence[Path], inside: Sequence[Path], report: Report) -> str:
    """The page that travels with the runs (Markdown)."""
    cut = [(label(path), reached(path), size_note(path, path in inside)) for path in checkpoints]
    blocks = [
        f"# Grid of runs\n\n{report.title}\n{report.ending}",
        table(f"New runs ({len(runs)})", ("run", "accuracy", "bwt_final", "seconds", "status"), [run_row(p) for p in runs]),
        table(f"Unfinished runs ({len(cut)})", ("run", "done", "checkpoint"), cut),
        table(f"Failed ({len(report.failed)})", ("run", "last line of the error"), list(report.failed.items())),
        "## Left\n\n" + ("\n".join(f"- {line}" for line in report.left) or "nothing"),
        "## Self-check and bench\n\n" + ("\n".join(f"- {line}" for line in report.notes) or "not asked for"),
    ]
    lost = [label(path) for path in runs if path not in inside]
    blocks += [f"Left out, the archive is full: {', '.join(lost)}"] if lost else []
    return "\n\n".join(blocks) + "\n"


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A heading and a Markdown table; the word `none` without rows."""
    if not rows:
        return f"## {title}\n\nnone"
    lines = [header, ["---"] * len(header), *([cell.replace("|", "/") for cell in row] for row in rows)]
    return f"## {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def run_row(path: Path) -> tuple[str, str, str, str, str]:
    """The line of a run: accuracy and bwt_final in percent, seconds of training."""
    from cmlib.errors import StoreError
    from cmlib.store import Run

    try:
        run = Run.from_json(path.read_text(encoding="utf-8"))
    except (StoreError, OSError):
        return label(path), "-", "-", "-", "not a result file"
    numbers = ["-" if math.isnan(value) else f"{value:.2f}" for value in (run.accuracy, run.bwt_final)]
    return label(path), numbers[0], numbers[1], f"{sum(map(sum, run.seconds_per_epoch)):.1f}", run.status


def position(path: Path) -> tuple[int, int]:
    """Tasks that a checkpoint has behind it, and epochs of the one it is in; StoreError when it cannot be read."""
    import torch

    from cmlib.errors import StoreError

    try:
        where = torch.load(path, map_location="cpu", weights_only=True)["position"]
        return int(where["task"]), int(where["epoch"])
    except Exception as error:
        raise StoreError(f"{path.name} is no checkpoint of cmlib, or damaged ({error.__class__.__name__})") from None


def reached(path: Path) -> str:
    """How far a checkpoint is, in words."""
    try:
        task, epoch = position(path)
        return f"task {task + 1}, {epoch} epoch{'s' * (epoch != 1)} of it"
    except ValueError:
        return "damaged"


def size_note(path: Path, packed: bool) -> str:
    """A checkpoint's size, and whether it travels."""
    return f"{path.stat().st_size / 2**20:.1f} MiB, {'packed' if packed else 'LEFT OUT: the archive is full'}"


# --- the way back --------------------------------------------------------------------------------------------------


def unpack(archive: Path, store: Path, results: Path) -> list[str]:
    """Put results, validated as `cmlib publish` does, into `results` and checkpoints into `store`; says what was done.

    Everything is checked before anything is written. A checkpoint does not replace one that is further on. StoreError for a
    file that is no such archive, or damaged.
    """
    from cmlib.errors import StoreError
    from cmlib.store import write_atomically

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        extract(archive, folder)
        runs = len(list(folder.rglob("seed*.json")))
        checkpoints = {path.relative_to(folder): position(path) for path in sorted(folder.rglob("seed*.ckpt"))}
        if not runs and not checkpoints and not (folder / "summary.md").is_file():
            raise StoreError(f"{archive} holds neither runs nor checkpoints: it is no archive of .ci/gpu")
        put = publish(folder, results) if runs else []
        for place, where in checkpoints.items():
            if is_wanted(place, where, store, results):
                write_atomically(store / place, (folder / place).read_bytes())
                put.append(store / place)
    return [*map(str, put), f"{runs} runs, {len(put) - runs} of {len(checkpoints)} checkpoints put in place"]


def extract(archive: Path, folder: Path) -> None:
    """Unpack into a folder; StoreError when that does not work."""
    from cmlib.errors import StoreError

    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        if not archive.is_file():
            raise StoreError(f"no file {archive}") from None
        raise StoreError(f"{archive} is no archive of .ci/gpu, or damaged ({error.__class__.__name__}); fetch it again") from None


def publish(folder: Path, results: Path) -> list[Path]:
    """As `cmlib publish`; errors name places in the archive."""
    from cmlib.errors import StoreError
    from cmlib.reproduction import publish as publishing

    try:
        return publishing.publish(folder, results)
    except (ValueError, KeyError, TypeError) as error:
        words = str(error).replace(f"{folder}{os.sep}", "") if isinstance(error, ValueError) else f"a result lacks {error}"
        raise StoreError(f"nothing was put in place: {words}") from None


def is_wanted(place: Path, where: tuple[int, int], store: Path, results: Path) -> bool:
    """Whether a checkpoint is of use: its run is not finished, and what the store has is not as far."""
    if any((folder / place.with_suffix(".json")).exists() for folder in (store, results)):
        return False
    try:
        return not (store / place).exists() or position(store / place) < where
    except ValueError:
        return True  # a damaged one gives way
