"""Images in files: where they are, how they are read, and what is wrong with them.

Four layouts become the same four arrays: Hugging Face parquet files, CIFAR's own pickles, the TinyImageNet folder, and
any folder with one sub-folder a class. Whatever is damaged, incomplete or unfit is a `DataError` that names the file;
nothing is half used. Decoded arrays are cached, checked against the source files and a stored checksum.
torchvision downloads CIFAR and checks its archive, but does not read here: its CIFAR10 says of a damaged copy not which file it
is and refuses smaller ones, its ImageFolder takes hidden folders for classes, and neither names an image that cannot be decoded.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import pickle
import platform
import re
import secrets
import shutil
import sys
import threading
import time
import urllib.request
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from tqdm import tqdm

from cmlib.errors import DataError, OptionError

log = logging.getLogger("cmlib")

FORMAT = 1  # raise it when the meaning of a cache file changes
KEYS = ("x_train", "y_train", "x_test", "y_test")
Arrays = dict[str, np.ndarray]
IMAGE_COLUMNS = ("img", "image")
VECTOR_ENDINGS = (".npz", ".parquet")  # of a file of feature vectors
VECTOR_COLUMNS = ("features", "embedding", "x")  # of lists of numbers, in such a parquet file
LABEL_COLUMNS = ("label", "y", "fine_label")
IMAGE_ENDINGS = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
TEST_FOLDERS = ("test", "val", "valid", "validation")
FIT = "fit them in Python: cmlib.run(experiment, data=cmlib.datasets.load(folder, size=32))"
AGAIN = "copy or download the data set again"
TINY_CLASSES = 200
LARGEST = 8 * 2**30  # bytes of decoded images that are still accepted
PROBE_SECONDS = 10  # patience with a host before a download is given up
SHARD = re.compile(r"(?P<split>[a-z]+)(-(?P<index>\d+)-of-(?P<total>\d+).*|[-_.].*)?\.parquet")


@dataclass(frozen=True)
class Known:
    """The published facts of a data set, and how it lies on a disk."""

    name: str
    train: int
    test: int
    size: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...]
    augmentation: str = "crop-flip"
    digest: str = ""  # of the copy that the committed runs were made from; another copy may have its images in another order
    label: str = ""  # the label column of its parquet files
    official: str = ""  # the folder inside its official archive; empty for what ships inside a library
    test_words: tuple[str, ...] = ("test", "valid", "validation", "val")  # names of the test split, best first
    pickles: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # CIFAR's own train and test files
    pickle_label: str = ""
    download: str = ""  # the torchvision class that can fetch it


@dataclass(frozen=True)
class Source:
    """Files that hold a data set. `labels` belongs to kind "images" alone: one label a file, train and test."""

    kind: str  # "parquet", "pickles" or "images"
    folder: Path
    train: tuple[Path, ...]
    test: tuple[Path, ...]
    labels: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    class_names: tuple[str, ...] = ()
    note: str = ""

    def fingerprint(self) -> list[tuple[str, int, int]]:
        """Name, size in bytes and time in ns of every file: what a cache file is checked against."""
        with readable():
            stats = [(path, path.stat()) for path in (*self.train, *self.test)]
        start = len(str(self.folder)) + 1
        return [(str(path)[start:], stat.st_size, stat.st_mtime_ns) for path, stat in stats]


def one_line(text: object) -> str:
    """Return `text` on one line, at most 160 characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= 160 else line[:157] + "..."


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Turn what the operating system refuses into a `DataError` that names the file."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot read {error.filename}: {one_line(error.strerror or error)}") from None


# ---------------------------------------------------------------- looking for a known data set


def find(known: Known, root: Path) -> Source | None:
    """Return where `known` lies below `root`, or None. The data set's own folder comes before anything else.

    Raises `DataError` when a folder is meant for this data set but is incomplete, damaged or holds other columns.
    """
    own = root / known.name
    source = look(own, known, strict=True)
    for folder in (own / known.official, root / known.official):
        source = source or look_official(folder, known)
    return source or _look_variants(known, root) or look(root, known, strict=False, below=False)


def _look_variants(known: Known, root: Path) -> Source | None:
    """Return the first fitting folder `<name>-*` of `root`, with a note: it may be a part of the data set."""
    for folder in sorted(root.glob(f"{known.name}-*/")):
        if source := look(folder, known, strict=False):
            return replace(source, note=f"{known.name}: using the folder {folder.name}, which may be a part of the data set")
    return None


def look(folder: Path, known: Known, strict: bool, below: bool = True) -> Source | None:
    """Return the source in `folder`, or None. `strict`: wrong columns are an error; `below`: sub-folders count too."""
    if not folder.is_dir():
        return None
    for place in [folder, *(sorted(path for path in folder.iterdir() if path.is_dir()) if below else ())]:
        files = [path for path in sorted(place.glob("*.parquet")) if _split_of(path) in ("train", *known.test_words)]
        if files and _fits(files, known, strict and place == folder):
            return Source("parquet", folder, *_splits(place, files, known))
    return look_official(folder, known)


def look_official(folder: Path, known: Known) -> Source | None:
    """Return the source in the extracted official archive `folder`, or None."""
    train, test = known.pickles
    missing = [name for name in (*train, *test) if not (folder / name).is_file()]
    if train and not missing:
        return Source("pickles", folder, tuple(folder / name for name in train), tuple(folder / name for name in test))
    own = folder.is_dir() and folder.name.startswith((known.name, known.official))  # it is meant for this data set
    if train and own and (folder.name == known.official or len(missing) < len(train) + len(test)):
        raise DataError(f"{known.name}: {folder} is incomplete, {missing[0]} is missing; copy it again")
    if train or (folder / "wnids.txt").is_file():
        return None if train else list_tiny(folder)
    if own and any((folder / sub).is_dir() for sub in ("train", "val")) and not any(folder.glob("*/*.parquet")):
        raise DataError(f"{known.name}: {folder} is incomplete, wnids.txt is missing; extract the archive again")
    return None


def lacking(known: Known, root: Path) -> str:
    """Say what the folders of `root` that are meant for `known` lack, where they hold nothing that can be read."""
    folders = [path for path in (root / known.name, *sorted(root.glob(f"{known.name}-*"))) if path.is_dir()]
    words = [f"{path} is there, but {'without train-*.parquet' if any(path.iterdir()) else 'empty'}" for path in folders]
    return "".join(f"; {word}" for word in words)


def _fits(files: list[Path], known: Known, strict: bool) -> bool:
    """Say whether the parquet `files` have the columns and the classes of `known`."""
    tops = []
    for path in files:
        columns, highest = parquet_columns(path, known.label)
        if known.label not in columns or not set(columns) & set(IMAGE_COLUMNS):
            if not strict:
                return False
            need = f"{' or '.join(IMAGE_COLUMNS)}, and {known.label}"
            raise DataError(f"{known.name}: {path} has the columns {', '.join(columns)}; needed: {need}")
        tops.append(highest)
    # Another data set may have the same columns: its highest label tells.
    return strict or max((len(known.class_names) - 1 if top is None else top) for top in tops) == len(known.class_names) - 1


def parquet_columns(path: Path, label: str) -> tuple[list[str], int | None]:
    """Return the columns of a parquet file and its highest label (None: its metadata do not say). Reads no rows."""
    metadata = _parquet(path).metadata
    names = list(metadata.schema.to_arrow_schema().names)
    leaves = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    if label not in leaves:
        return names, None
    groups = [metadata.row_group(g).column(leaves.index(label)).statistics for g in range(metadata.num_row_groups)]
    known = groups and all(group is not None and group.has_min_max for group in groups)
    return names, max(int(group.max) for group in groups) if known else None


def _split_of(path: Path) -> str:
    """Return the first word of a parquet file's name ("train" of train-00000-of-00003.parquet), or nothing."""
    match = SHARD.fullmatch(path.name.lower())
    return match["split"] if match else ""


def _splits(place: Path, files: list[Path], known: Known) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the training and the test files, all shards present, or raise `DataError`."""
    found: dict[str, list[Path]] = {}
    for path in files:
        found.setdefault(_split_of(path), []).append(path)
    test = next((word for word in known.test_words if word in found), None)
    if "train" not in found or test is None:
        lacks = "a test-*, valid-* or validation-*" if "train" in found else "a train-*"
        raise DataError(f"{known.name}: {place} is incomplete, it lacks {lacks} parquet file")
    for split in ("train", test):
        _check_shards(place, split, found[split], known.name)
    return tuple(found["train"]), tuple(found[test])


def _check_shards(place: Path, split: str, files: list[Path], name: str) -> None:
    """Raise `DataError` unless the files `00000-of-0000N` of one split are all there, once."""
    shards = [match for path in files if (match := SHARD.fullmatch(path.name.lower())) and match["total"]]
    if not shards:
        return
    totals = {int(shard["total"]) for shard in shards}
    if len(totals) > 1 or len({shard["index"] for shard in shards}) < len(files):
        raise DataError(f"{name}: {place} mixes two sets of {split} parquet files; keep one of them")
    missing = sorted(set(range(max(totals))) - {int(shard["index"]) for shard in shards})
    if missing:
        lost = f"{split}-{missing[0]:05d}-of-{max(totals):05d}"
        raise DataError(f"{name}: {place} is incomplete, {lost} is missing; copy or download it")


# ---------------------------------------------------------------- folders with one file an image


def list_folder(path: Path) -> Source:
    """List a folder with one sub-folder a class, or with train/ and test/ (or val/) of that kind; test may be empty."""
    train = path / "train"
    if train.is_dir() and any(_folders(train)):
        test = next((path / name for name in TEST_FOLDERS if (path / name).is_dir()), None)
        if test is None:
            raise DataError(f"{path} has a train/ folder but none called test/ or val/")
        names = _class_names(train)
        other = _class_names(test)
        if names != other:
            odd = sorted(set(names) ^ set(other))[0]
            raise DataError(f"{path}: class '{odd}' is in only one of train/ and {test.name}/")
        (files, labels), (files_t, labels_t) = _class_files(train, names), _class_files(test, names)
        return Source("images", path, files, files_t, (labels, labels_t), names)
    names = _class_names(path)
    files, labels = _class_files(path, names)
    return Source("images", path, files, (), (labels, ()), names)


def _folders(path: Path) -> Iterator[Path]:
    """Yield the visible sub-folders of `path`."""
    return (sub for sub in path.iterdir() if sub.is_dir() and not sub.name.startswith((".", "__")))


def _class_names(path: Path) -> tuple[str, ...]:
    """Return the names of the class folders, sorted; at least two are needed."""
    names = tuple(sorted(sub.name for sub in _folders(path)))
    if len(names) < 2:
        raise DataError(f"{path} holds {len(names)} class folders; needed: two or more, each full of images of one class")
    return names


def _class_files(path: Path, names: tuple[str, ...]) -> tuple[tuple[Path, ...], tuple[int, ...]]:
    """Return all image files and their labels, class by class, sorted by name."""
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        found = image_files(path / name)
        if not found:
            raise DataError(f"class folder {path / name} holds no image (png, jpg, webp, bmp, gif, tif, ppm)")
        files += found
        labels += [label] * len(found)
    return tuple(files), tuple(labels)


def image_files(folder: Path) -> list[Path]:
    """Return the image files in `folder` and below, sorted; hidden files are left out."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        found += [
            Path(place, name) for name in names if not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_ENDINGS
        ]
    return sorted(found)


def list_tiny(folder: Path) -> Source:
    """List the official `tiny-imagenet-200` folder; labels number the sorted wnids. The test split is val/."""
    wnids = tuple(sorted((folder / "wnids.txt").read_text(encoding="utf-8", errors="replace").split()))
    if len(wnids) != TINY_CLASSES:
        raise DataError(f"{folder / 'wnids.txt'} names {len(wnids)} classes; tiny-imagenet has {TINY_CLASSES}")
    if not (folder / "train").is_dir() or not (folder / "val").is_dir():
        raise DataError(f"tiny-imagenet: {folder} is incomplete, it lacks train/ or val/; extract the archive again")
    train, labels = _class_files(folder / "train", wnids)
    notes = folder / "val" / "val_annotations.txt"
    if notes.is_file() and (folder / "val" / "images").is_dir():
        number = {wnid: label for label, wnid in enumerate(wnids)}
        rows = [line.split("\t") for line in notes.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        strange = next((row for row in rows if len(row) < 2 or row[1] not in number or not row[0].isprintable()), None)
        if strange is not None:
            raise DataError(f"tiny-imagenet: {notes} has a line that names no image and class: '{one_line(strange)}'")
        test = tuple(folder / "val" / "images" / row[0] for row in rows)
        return Source("images", folder, train, test, (labels, tuple(number[row[1]] for row in rows)), wnids)
    test, labels_test = _class_files(folder / "val", wnids)
    return Source("images", folder, train, test, (labels, labels_test), wnids)


# ---------------------------------------------------------------- reading


def read(source: Source, known: Known | None = None, size: int | None = None) -> Arrays:
    """Read all images: x_train, x_test uint8 [n, 3, H, W] and y_train, y_test int64 [n]. Raises `DataError`."""
    arrays: Arrays = {}
    for split, files, labels in zip(("train", "test"), (source.train, source.test), source.labels, strict=True):
        title, advice = f"{known.name if known else source.folder.name} {split}", AGAIN if known else FIT
        if known is None or source.kind == "images":
            x, y = gather(_file_rows(files, labels), len(files), title, advice, size)
        elif source.kind == "pickles":
            x, y = read_pickles(files, known.pickle_label)
        else:
            x, y = gather(_parquet_rows(files, known.label), _rows_in(files), title, advice)
        arrays[f"x_{split}"], arrays[f"y_{split}"] = x, y
    return arrays


def gather(
    rows: Iterable[tuple[str, bytes, int]], count: int, title: str, advice: str = AGAIN, size: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Decode `count` rows (what it is called, its bytes, its label) into x uint8 [n, 3, H, W] and y int64 [n].

    advice: what to do about images of unlike or too large sizes.
    """
    x = np.empty((0, 3, 0, 0), np.uint8)
    y = np.empty(count, np.int64)
    first, done = "", 0
    for what, raw, label in tqdm(rows, total=count, desc=f"decoding {title}", disable=None, leave=False):
        picture = decode(raw, what, size).transpose(2, 0, 1)  # [3, H, W]
        if not done:
            first, x = what, _room(count, picture.shape, title, advice)
        if picture.shape != x.shape[1:]:
            sizes = [f"{shape[2]}x{shape[1]}" for shape in (x.shape[1:], picture.shape)]
            raise DataError(f"images differ in size: {first} is {sizes[0]}, {what} is {sizes[1]}; {advice}")
        x[done], y[done] = picture, label
        done += 1
    if done != count or not count:
        raise DataError(f"{title}: {done} images where {count} were announced" if count else f"{title}: no images")
    return x, y


def _room(count: int, shape: tuple[int, ...], title: str, advice: str) -> np.ndarray:
    """Return an empty array for `count` images, or raise `DataError` when they are too many or too large."""
    total = count * int(np.prod(shape))
    if total > LARGEST:
        raise DataError(f"{title}: {count} images of {shape[2]}x{shape[1]} fill {total / 2**30:.0f} GiB; {advice}")
    return np.empty((count, *shape), np.uint8)


def decode(raw: bytes, what: str, size: int | None = None) -> np.ndarray:
    """Return one picture as RGB, uint8 [H, W, 3]; with `size` fitted to size x size (centre crop, turned upright)."""
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(raw)) as image:
            if image.mode.startswith(("I", "F")):
                raise ValueError(f"mode {image.mode}, more than 8 bits a channel; save it as an 8-bit image")
            if size is not None:
                return np.asarray(ImageOps.fit(ImageOps.exif_transpose(image).convert("RGB"), (size, size)))
            return np.asarray(image.convert("RGB"))
    except Exception as error:  # Pillow raises many kinds for damaged files
        reason = one_line(error)
        reason = "this is no image, or in a format unknown here" if "cannot identify" in reason else reason
        raise DataError(f"cannot decode {what}: {reason}") from None


def _file_rows(files: tuple[Path, ...], labels: tuple[int, ...]) -> Iterator[tuple[str, bytes, int]]:
    for path, label in zip(files, labels, strict=True):
        with readable():
            raw = path.read_bytes()
        yield str(path), raw, label


def _parquet(path: Path) -> Any:
    """Open a parquet file (its metadata alone are read), or raise a `DataError` that names it."""
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except Exception as error:
        raise _damaged(path, error) from None


def _rows_in(files: tuple[Path, ...]) -> int:
    return sum(_parquet(path).metadata.num_rows for path in files)


def _damaged(path: Path, error: object) -> DataError:
    return DataError(f"cannot read {path}: damaged or incomplete ({one_line(error)}); copy or download it again")


def _parquet_rows(files: tuple[Path, ...], label: str) -> Iterator[tuple[str, bytes, int]]:
    """Yield the rows of parquet files in order, a thousand at a time in memory."""
    import pyarrow as pa

    for path in files:
        file = _parquet(path)
        image = next(name for name in IMAGE_COLUMNS if name in file.schema_arrow.names)
        kind, number = (file.schema_arrow.field(name).type for name in (image, label))
        if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0 or not pa.types.is_integer(number):
            raise DataError(f"{path}: {image} is {kind} and {label} is {number}; needed: struct<bytes, path> and integers")
        try:
            rows = (row for batch in file.iter_batches(1000, columns=[image, label]) for row in batch.to_pylist())
            for k, row in enumerate(rows):
                what, raw = f"row {k} of {path}", (row[image] or {}).get("bytes")
                if raw is None or row[label] is None:
                    raise DataError(f"{what} has no {'image bytes' if raw is None else 'label'}")
                yield what, raw, row[label]
        except DataError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(path, error) from None


class _SafeUnpickler(pickle.Unpickler):
    """Builds numpy arrays and plain containers and nothing else, so that a forged file cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return lambda text, encoding="latin1": text.encode("latin1")
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a file of images")


def read_pickles(files: tuple[Path, ...], label: str) -> tuple[np.ndarray, np.ndarray]:
    """Read CIFAR's own files: x uint8 [n, 3, 32, 32] and y int64 [n]. No code in them is ever run."""
    images, labels = [], []
    for path in files:
        try:
            content = _SafeUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
            x, y = np.asarray(content["data"]), np.asarray(content[label])
            if x.dtype != np.uint8 or x.shape != (len(y), 3 * 32 * 32) or y.dtype.kind not in "iu":
                raise ValueError(f"data {x.dtype} {x.shape} and {label} {y.dtype} {y.shape}")
        except Exception as error:  # a damaged pickle can raise almost anything
            raise _damaged(path, f"{type(error).__name__}: {error}") from None
        images.append(x.reshape(-1, 3, 32, 32))
        labels.append(y.astype(np.int64))
    return np.concatenate(images), np.concatenate(labels)


def count_images(source: Source) -> tuple[int, int] | None:
    """Return the training and test images of a source without reading any; None for CIFAR's own pickles."""
    if source.kind == "pickles":
        return None
    if source.kind == "images":
        return len(source.train), len(source.test)
    return _rows_in(source.train), _rows_in(source.test)


# ---------------------------------------------------------------- feature vectors


def read_vectors(path: Path) -> tuple[Any, tuple[str, ...]]:
    """Return what a file of feature vectors holds, `(x, y)` or with a test split `((x, y), (x_test, y_test))`, and class names.

    `.npz`: x [n, D] and y [n], or x_train, y_train, x_test and y_test; class_names, where it is there. `.parquet`: a column of
    labels (label, y or fine_label) and one of lists of numbers (features, embedding or x), all of one length.
    Raises `DataError` for a file that cannot be read or holds something else.
    """
    return _npz_vectors(path) if path.suffix == ".npz" else (_parquet_vectors(path), ())


def _npz_vectors(path: Path) -> tuple[Any, tuple[str, ...]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # a damaged archive raises almost anything
        raise _damaged(path, error) from None
    names = tuple(map(str, arrays.get("class_names", np.array([])).ravel().tolist()))
    if arrays.keys() >= set(KEYS):
        return ((arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])), names
    if arrays.keys() >= {"x", "y"}:
        return (arrays["x"], arrays["y"]), names
    raise DataError(f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; needed: x and y, or {', '.join(KEYS)}")


def _parquet_vectors(path: Path) -> Any:
    columns = _parquet(path).schema_arrow.names
    chosen = [next((name for name in wanted if name in columns), "") for wanted in (VECTOR_COLUMNS, LABEL_COLUMNS)]
    if not all(chosen):
        need = f"one of {', '.join(VECTOR_COLUMNS)}, and one of {', '.join(LABEL_COLUMNS)}"
        raise DataError(f"{path} has the columns {', '.join(columns)}; needed: {need}")
    try:
        table = _parquet(path).read(columns=chosen)
        x, y = (np.asarray(table.column(name).to_pylist()) for name in chosen)
    except Exception as error:  # lists of several lengths, or a damaged page
        raise _damaged(path, error) from None
    return x, y


# ---------------------------------------------------------------- class names


def tiny_names(source: Source) -> tuple[str, ...]:
    """Return TinyImageNet's class names: words from classes.json or words.txt, else wnids, else nothing."""
    file = next((p for p in (source.folder / "classes.json", source.train[0].parent / "classes.json") if p.is_file()), None)
    if file is not None:
        try:
            words = json.loads(file.read_text(encoding="utf-8"))["words"]
            if not isinstance(words, list):
                raise ValueError("words is no list")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"cannot read {file}: {one_line(error)}; mend or remove it") from None
        return _short(words)
    words_file = source.folder / "words.txt"
    if source.class_names and words_file.is_file():
        lines = (
            line.split("\t", 1) for line in words_file.read_text(encoding="utf-8", errors="replace").splitlines() if "\t" in line
        )
        table = {wnid: text for wnid, text in lines}
        return _short([table.get(wnid, wnid) for wnid in source.class_names])
    return source.class_names


def _short(words: list[str]) -> tuple[str, ...]:
    """Keep the first synonym of each class where that tells the classes apart."""
    first = [str(word).split(",")[0].strip() for word in words]
    return tuple(word if first.count(word) == 1 else str(full) for word, full in zip(first, words, strict=True))


# ---------------------------------------------------------------- half-written files, the store's too

STALE = 24 * 3600  # seconds after which what another machine's process left half-written is taken for dead


def part(path: Path) -> Path:
    """Return a hidden name beside `path` to write under, which says whose it is: `.<name>.<random>.<machine>.<process>.part`."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{_node()}.{os.getpid()}.part")


@contextlib.contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which appears under its name whole or not at all; its folder is made first. Raises `OSError`."""
    written = part(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(written, "wb") as file:
            yield file
        os.replace(written, path)
    finally:
        with contextlib.suppress(OSError):  # the folder itself may be the trouble
            written.unlink()


def clear_parts(folder: Path, *patterns: str) -> None:
    """Remove what dead processes have left half-written in `folder` under names of these forms; what cannot be removed stays."""
    for path in [path for pattern in patterns for path in folder.glob(pattern)]:
        _, node, number = path.stem.rsplit(".", 2) if path.suffix == ".part" else ("", "", "")
        with contextlib.suppress(OSError):
            ours = node == _node() and number.isdigit()
            if not is_alive(int(number)) if ours else time.time() - path.stat().st_mtime > STALE:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def clear_downloads(root: Path) -> None:
    """Remove the parts of downloads that were killed."""
    clear_parts(root, ".download.*.part", ".download-????????")  # the second is an older name


def _node() -> str:
    """Return this machine's name without the characters that `part` gives a meaning."""
    return re.sub(r"[^\w-]", "-", platform.node()) or "here"


def is_alive(pid: int) -> bool:
    """Say whether a process of this machine lives (one that has ended, but is not yet buried, does not)."""
    if sys.platform == "win32":
        return True  # signal 0 is Ctrl-C there
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # another user's, or no /proc here


# ---------------------------------------------------------------- download


def download(known: Known, root: Path, note: str = "") -> Source:
    """Fetch a CIFAR archive with torchvision (checksum included) into `root`; it appears whole or not at all.

    note: what to say before, once its host has answered.

    Raises `DataError` (the reason alone) when there is no network, no space or a wrong checksum.
    """
    from torchvision import datasets
    from torchvision.datasets.utils import download_and_extract_archive

    theirs = getattr(datasets, known.download)
    work = part(root / "download")
    try:
        clear_downloads(root)
        probe(theirs.url)
        log.warning(note)
        work.mkdir(parents=True)
        download_and_extract_archive(theirs.url, str(work), filename=theirs.filename, md5=theirs.tgz_md5)
        os.replace(work / known.official, root / known.official)
    except Exception as error:  # urllib, ssl, tarfile and torchvision each raise their own kinds
        raise DataError(one_line(getattr(error, "reason", None) or error)) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    source = look_official(root / known.official, known)
    if source is None:
        raise DataError(f"{root / known.official} is not what was expected")
    return source


def probe(url: str) -> None:
    """Return when `url` answers; raise `OSError` within seconds otherwise (name servers may hang: hence a thread)."""
    outcome: Future[None] = Future()

    def ask() -> None:
        request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": "cmlib"})
        try:
            outcome.set_result(urllib.request.urlopen(request, timeout=PROBE_SECONDS).close())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        outcome.result(PROBE_SECONDS + 2)
    except TimeoutError:  # the host's own, too
        raise OSError(f"no answer within {PROBE_SECONDS} seconds") from None


# ---------------------------------------------------------------- cache


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """Return the cache folder: the argument, CMLIB_CACHE, or the user's own (~/.cache)."""
    if cache is not None and not isinstance(cache, str | os.PathLike):
        raise OptionError(f"cache must be a folder, or False to keep nothing, not {one_line(repr(cache))}")
    given = cache or os.environ.get("CMLIB_CACHE")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "cmlib"


def cached(name: str, source: Source, known: Known | None, cache: Any, size: int | None = None) -> tuple[Arrays, str]:
    """Return the four arrays and their digest, from the cache file when it fits the source files."""
    if cache is False:
        arrays = read(source, known, size)
        return arrays, digest_of(arrays)
    files = [*source.fingerprint(), str(source.folder.resolve()), source.class_names, size, FORMAT]
    key = hashlib.blake2b(json.dumps(files).encode(), digest_size=16).hexdigest()
    place = hashlib.blake2b(f"{source.folder.resolve()} {size}".encode(), digest_size=4).hexdigest()
    path = cache_folder(cache) / f"{name}-{place}.npz"  # one file a folder: changed sources replace it
    stored = read_cache(path, key)
    if stored is not None:
        return stored
    arrays = read(source, known, size)
    digest = digest_of(arrays)
    write_cache(path, key, arrays, digest)
    return arrays, digest


def read_cache(path: Path, key: str) -> tuple[Arrays, str] | None:
    """Return arrays and digest of a cache file; None when it is absent, out of date or (with a warning) damaged."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            meta = json.loads(str(file["meta"]))
            if meta["key"] != key:
                return None
            arrays = {name: file[name] for name in KEYS}
        if meta["checksum"] != _checksum(arrays):
            raise ValueError("its checksum does not match")
        return arrays, str(meta["digest"])
    except Exception as error:  # a damaged archive raises almost anything
        log.warning("the cache file %s is damaged (%s); it is made again", path, one_line(error))
        return None


def write_cache(path: Path, key: str, arrays: Arrays, digest: str) -> None:
    """Write a cache file that appears whole or not at all; a folder that cannot be written only warns."""
    meta = json.dumps({"key": key, "format": FORMAT, "digest": digest, "checksum": _checksum(arrays)})
    clear_parts(path.parent, ".*.npz.*.part", ".*.npz.*.tmp")  # the second is an older name
    try:
        with whole(path) as file:
            np.savez(file, meta=np.array(meta), **arrays)  # type: ignore[arg-type]
    except OSError as error:
        log.warning("decoded images are not kept: cannot write %s (%s)", path.parent, one_line(error.strerror or error))


def _checksum(arrays: Arrays) -> dict[str, list[Any]]:
    """Return type, shape and CRC-32 of every array (fast: it runs at every load)."""
    found: dict[str, list[Any]] = {}
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        found[name] = [str(array.dtype), list(array.shape), zlib.crc32(raw.data)]
    return found


def digest_of(arrays: Arrays) -> str:
    """Return 12 hex digits of blake2b over the four arrays, shapes included: "the data used"."""
    total = hashlib.blake2b(digest_size=6)
    for name in KEYS:
        kind = "<i8" if name.startswith("y") else "<f4" if arrays[name].ndim == 2 else np.uint8
        array = np.ascontiguousarray(arrays[name], dtype=kind)
        total.update(f"{name}{array.shape}".encode())
        total.update(array.reshape(-1).view(np.uint8).data)
    return total.hexdigest()
