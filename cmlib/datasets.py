"""Data sets: a name, two arrays, a folder or a file of feature vectors becomes an `ImageData` of tensors.

`digits` ships inside scikit-learn and needs nothing. CIFAR-10, CIFAR-100 and TinyImageNet are read from a folder
(`data_root` or the variable CMLIB_DATA); decoded images are kept in a cache folder (CMLIB_CACHE).
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import re
import unicodedata
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from cmlib import imagefiles
from cmlib.errors import DataError, OptionError, check_name
from cmlib.imagefiles import KEYS, Arrays, Known, Source, one_line

log = logging.getLogger("cmlib")

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100 = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can "
    "castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin "
    "elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster "
    "man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck "
    "pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk "
    "skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger "
    "tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"
)
CIFAR100_CLASSES = tuple(_CIFAR100.split())


@dataclass(frozen=True, eq=False)
class ImageData:
    """Images and labels, ready to be cut into tasks. Feature vectors are float32 [n, D], with a mean and std for each feature."""

    name: str
    x_train: Tensor  # uint8 [n, C, H, W]
    y_train: Tensor  # int64 [n], 0..classes-1
    x_test: Tensor  # uint8 [m, C, H, W]
    y_test: Tensor  # int64 [m]
    class_names: tuple[str, ...]
    mean: tuple[float, ...]  # per channel, of x / 255 on the training set; published constants for the known sets
    std: tuple[float, ...]
    augmentation: str  # "crop-flip" (4-pixel pad, crop, flip), "flip" or "none"
    digest: str  # 12 hex digits of blake2b over the four arrays; another one where what follows from `load` was changed
    loaded: tuple[object, ...] = field(default=(), repr=False)  # mean, std and augmentation as `load` has set them

    def __post_init__(self) -> None:
        """A copy with another mean, std or augmentation is other data, and has another digest."""
        now = (tuple(self.mean), tuple(self.std), self.augmentation)
        if self.loaded and now != self.loaded:
            changed = hashlib.blake2b(f"{self.digest} {now}".encode(), digest_size=6).hexdigest()
            object.__setattr__(self, "digest", changed)
        object.__setattr__(self, "loaded", now)

    @property
    def vectors(self) -> bool:
        """Whether its samples are feature vectors, not images."""
        return self.x_train.ndim == 2

    @property
    def part(self) -> str:
        """Say how much is missing ("25,000 of 100,000 training images"), or nothing when the data set is whole."""
        full = KNOWN[self.name].train if self.name in KNOWN else len(self.y_train)
        return f"{len(self.y_train):,} of {full:,} training images" if len(self.y_train) < full else ""


_BATCHES = (tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",))
_CIFAR10_MOMENTS = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_SETS = (
    Known("digits", 1437, 360, "8x8x1", (0.3048,), (0.3756,), tuple("0123456789"), "none", digest="5e318f648358"),
    Known(
        "cifar10", 50_000, 10_000, "32x32x3", *_CIFAR10_MOMENTS, CIFAR10_CLASSES, digest="adeb2446939d", label="label",
        official="cifar-10-batches-py", pickles=_BATCHES, pickle_label="labels", download="CIFAR10",
    ),
    Known(
        "cifar100", 50_000, 10_000, "32x32x3", (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), CIFAR100_CLASSES,
        label="fine_label", official="cifar-100-python", pickles=(("train",), ("test",)), pickle_label="fine_labels",
        download="CIFAR100",
    ),
    Known(  # flips alone and CIFAR-10's constants, as the released code
        "tiny-imagenet", 100_000, 10_000, "64x64x3", *_CIFAR10_MOMENTS, tuple(map(str, range(200))), "flip",
        label="label", official="tiny-imagenet-200", test_words=("valid", "validation", "val", "test"),
    ),
)  # fmt: skip
KNOWN = {known.name: known for known in _SETS}


ARRAYS = "arrays"  # the name of a caller's own arrays
RESERVED = (*KNOWN, ARRAYS, "con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(1, 10)))
LONGEST = 40  # letters of a folder's name that enter ids and paths


@dataclass(frozen=True)
class Named:
    """What a data set is called in ids, paths and files, and what `load` takes to read it; empty: not known.

    For a known set both are its name; for a folder of images, or a file of vectors, its cleaned name and its full path, which
    enters no file.
    """

    name: str
    source: str


def names() -> tuple[str, ...]:
    """Return the names `load` knows."""
    return tuple(KNOWN)


def named(source: str | os.PathLike[str] | Named) -> Named:
    """Return what `source` is called; a data set's name wins over a folder of that name (`./digits` is the folder).

    Raises `OptionError` for what is neither a data set nor a folder and `DataError` for a folder that is not there.
    """
    if isinstance(source, Named):
        return source
    path = _as_folder(source)
    if path is not None:
        return Named(folder_name(path), str(path.resolve()))
    name = check_name("data set", one_line(source), (*KNOWN, ARRAYS), "or a folder of images")
    return Named(name, name)


def folder_name(path: Path) -> str:
    """Return a folder's name as ids and files of any system bear it: a-z, 0-9 and hyphens, no data set's name, not too long.

    Of a file of vectors the name without its ending.
    """
    full = path.resolve()
    name = full.stem if full.suffix in imagefiles.VECTOR_ENDINGS else full.name
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "-", plain)[:LONGEST].strip("-") or "images"
    return f"folder-{name}" if name in RESERVED else name


def load(
    source: Any = "digits",
    data_root: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | Literal[False] | None = None,
    size: int | None = None,
) -> ImageData:
    """Load a data set.

    - source: a name (see `names`); a folder with one sub-folder of images a class, or with train/ and test/ of that kind;
      `(x, y)` or `((x, y), (x_test, y_test))`: x uint8 or floats in 0..1, [n, H, W], [n, C, H, W] or [n, H, W, C], or feature
      vectors, any numbers [n, D]; a .npz or .parquet file of such vectors (see `imagefiles.read_vectors`).
    - data_root: the folder that holds the data sets; default: the variable CMLIB_DATA.
    - cache: the folder for decoded images; default: CMLIB_CACHE, then the user's cache folder; False keeps nothing.
    - size: for a folder of images, fit every image to size x size pixels.

    Raises `OptionError` for what was typed and `DataError` for data that are absent, damaged or unfit.
    """
    if isinstance(source, ImageData):
        return source
    path = _as_folder(source)
    if size is not None:
        if path is None:
            raise OptionError(f"size={one_line(repr(size))} is for folders of images, not for {_kind(source)}")
        if path.is_file():
            raise OptionError(f"size={one_line(repr(size))} is for folders of images, not for feature vectors")
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 1024:
            raise OptionError(f"size must be a whole number of pixels from 1 to 1024, not {one_line(repr(size))}")
    if path is not None:
        return _load_vectors(path) if path.is_file() else _load_folder(path, cache, size)
    if isinstance(source, tuple | list) and len(source) == 2:
        return load_arrays(source)
    if not isinstance(source, str):
        raise OptionError(f"a data set is a name, a folder, (x, y) or ((x, y), (x_test, y_test)), not {_kind(source)}")
    name = check_name("data set", one_line(source), names(), "or a folder of images")
    return load_digits() if name == "digits" else _load_known(KNOWN[name], data_root, cache)


def _as_folder(source: Any) -> Path | None:
    """Return the folder (or file of feature vectors) `source` means, or None when it is a name or arrays."""
    if (isinstance(source, str) and source in (*KNOWN, ARRAYS)) or not isinstance(source, str | os.PathLike):
        return None
    try:
        path = Path(source).expanduser()
        found = (path.is_dir() and bool(str(source)), path.is_file())
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, no such user's home, a null byte
        raise DataError(f"no folder {one_line(repr(source))}: {one_line(getattr(error, 'strerror', None) or error)}") from None
    if found[0] or (found[1] and path.suffix in imagefiles.VECTOR_ENDINGS):
        return path
    if found[1]:
        endings = " or ".join(imagefiles.VECTOR_ENDINGS)
        raise DataError(
            f"{one_line(path)} is a file; give the folder that holds the class folders, or a {endings} file of vectors"
        )
    if not isinstance(source, str) or "/" in source or os.sep in source:
        raise DataError(f"no folder {one_line(path)}; a data set is a folder of images or one of: {', '.join(names())}")
    return None


def _kind(value: Any) -> str:
    """Name a value in an error."""
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"'{one_line(value)}'" if isinstance(value, str) else type(value).__name__


# ---------------------------------------------------------------- digits


def load_digits() -> ImageData:
    """Return scikit-learn's 1,797 real digits: uint8 [n, 1, 8, 8], a fixed test split of 36 images a class."""
    pixels, y = _sklearn_digits()
    x = ((pixels.reshape(-1, 1, 8, 8) * 255 + 8) // 16).astype(np.uint8)  # 0..16 -> 0..255
    train, test = stratified_split(y, [36] * 10)
    known = KNOWN["digits"]
    arrays = {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}
    return _finish("digits", arrays, known.class_names, known)


def _sklearn_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the digits as scikit-learn keeps them: pixels from 0 to 16, int64 [n, 64], and labels, int64 [n].

    Read from its file where that lies as usual: to import all of scikit-learn takes as long as to import torch.
    """
    spec = find_spec("sklearn")
    file = Path(spec.origin if spec and spec.origin else "").parent / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():
        table = np.loadtxt(file, dtype=np.int64, delimiter=",")
        return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_digits as bunch

    pixels, y = bunch(return_X_y=True)
    return pixels.astype(np.int64), y.astype(np.int64)


def stratified_split(y: np.ndarray, n_test: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted indices of a fixed training and test split with `n_test[k]` test images of class k.

    The generator is its own, of a kind whose numbers never change between versions; no seed moves this split.
    """
    generator = np.random.RandomState(20220812)
    test = np.zeros(len(y), bool)
    for label, count in enumerate(n_test):
        test[generator.permutation(np.flatnonzero(y == label))[:count]] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


def _fifth(y: np.ndarray, class_names: tuple[str, ...]) -> list[int]:
    """Return a fifth of each class (at least one image) as test counts; a class of one image cannot be split."""
    counts = np.bincount(y, minlength=len(class_names))
    if counts.min() < 2:
        few = f"class '{class_names[int(counts.argmin())]}' has {counts.min()} image: too few for a test split"
        raise DataError(f"{few}; give every class two or more, or bring a test set of your own")
    return [max(1, round(int(count) / 5)) for count in counts]


# ---------------------------------------------------------------- arrays and folders


def load_arrays(source: Any) -> ImageData:
    """Return the data set "arrays" from `(x, y)` (a fixed 80/20 split) or `((x, y), (x_test, y_test))`."""
    paired = all(isinstance(part, tuple | list) and len(part) == 2 and hasattr(part[0], "shape") for part in source)
    (x, y), *test = source if paired else (source,)
    x, y = _images(x, "x"), _labels(y, "y", len(x))
    values = np.unique(y)
    class_names = tuple(one_line(value) for value in values.tolist())
    if len(values) < 2:
        raise DataError(f"y has the one class '{class_names[0]}'; needed: two or more")
    y = np.searchsorted(values, y)
    if not test:
        train, held = stratified_split(y, _fifth(y, class_names))
        arrays = {"x_train": x[train], "y_train": y[train], "x_test": x[held], "y_test": y[held]}
    else:
        x_test = _images(test[0][0], "x_test")
        y_test = _labels(test[0][1], "y_test", len(x_test))
        if y_test.dtype.kind != values.dtype.kind and "U" in (y_test.dtype.kind, values.dtype.kind):
            raise DataError(f"y and y_test differ in kind: {values.dtype} and {y_test.dtype}")
        strange = np.setdiff1d(y_test, values)
        if len(strange):
            raise DataError(f"y_test holds the class '{one_line(strange[0])}', which y does not")
        arrays = {"x_train": x, "y_train": y, "x_test": x_test, "y_test": np.searchsorted(values, y_test)}
    return _finish(ARRAYS, arrays, class_names)


def _array(value: Any, what: str) -> np.ndarray:
    """Return a numpy array of a torch tensor (any device) or of anything numpy understands."""
    try:
        if isinstance(value, Tensor):
            value = value.detach().cpu()
            return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"{what} is no array: {one_line(error)}") from None


def _images(value: Any, what: str) -> np.ndarray:
    """Return images as uint8 [n, C, H, W], C = 1 or 3, or feature vectors as float32 [n, D]."""
    x = _array(value, what)
    if x.ndim == 2:
        return _vectors(x, what)
    if x.dtype.kind == "f":
        low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
        if not (low >= 0 and high <= 1):
            raise DataError(f"{what} holds floats from {low:g} to {high:g}; needed: 0..1, or uint8 in 0..255")
        x = np.rint(x * 255).astype(np.uint8)
    if x.dtype != np.uint8:
        raise DataError(f"{what} has the type {x.dtype}; needed: uint8 in 0..255, or floats in 0..1")
    if x.ndim == 3:
        x = x[:, None]
    shape = "[" + ", ".join(map(str, x.shape)) + "]"
    if x.ndim != 4 or not x.size:
        need = "[n, H, W], [n, C, H, W] or [n, H, W, C], or feature vectors [n, D], nothing empty"
        raise DataError(f"{what} has the shape {shape}; needed: {need}")
    front, back = x.shape[1] in (1, 3), x.shape[3] in (1, 3)
    if front == back:
        why = "either end could be the channels" if front else "no 1 or 3 channels"
        need = "sides of neither 1 nor 3 pixels" if front else "[n, C, H, W] or [n, H, W, C] with C = 1 or 3"
        raise DataError(f"{what} has the shape {shape}: {why}; needed: {need}")
    return np.ascontiguousarray(x if front else x.transpose(0, 3, 1, 2))


def _vectors(x: np.ndarray, what: str) -> np.ndarray:
    """Return feature vectors as float32 [n, D], D of at least 1."""
    if x.dtype.kind not in "fiu" or not x.size:
        raise DataError(f"{what} is {list(x.shape)} of {x.dtype}; needed: feature vectors, numbers [n, D], nothing empty")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is told below
        vectors = np.ascontiguousarray(x, dtype=np.float32)
    strange = np.argwhere(~np.isfinite(vectors))
    if len(strange):
        row, column = strange[0].tolist()
        raise DataError(f"{what} holds {x[row, column]} (row {row}, feature {column}); needed: finite numbers")
    return vectors


def _labels(value: Any, what: str, n: int) -> np.ndarray:
    """Return labels as integers or strings [n]."""
    y = _array(value, what)
    if y.dtype.kind == "O" and all(isinstance(label, str) for label in y.ravel()):
        y = y.astype(str)
    if y.dtype.kind not in "iubUT":
        raise DataError(f"{what} has the type {y.dtype}; needed: whole numbers or strings")
    if y.shape != (n,):
        raise DataError(f"{what} has the shape {list(y.shape)}; needed: [{n}], one label an image")
    return y.astype(str) if y.dtype.kind in "UT" else y


def _load_vectors(path: Path) -> ImageData:
    """Return a file of feature vectors as a data set that bears the file's name."""
    source, class_names = imagefiles.read_vectors(path)
    try:
        data = load_arrays(source)
    except DataError as error:
        raise DataError(f"{one_line(path)}: {error}") from None
    if class_names and len(class_names) != len(data.class_names):
        raise DataError(f"{one_line(path)} names {len(class_names)} classes; its labels are {len(data.class_names)}")
    return replace(data, name=folder_name(path), class_names=class_names or data.class_names)


def _load_folder(path: Path, cache: Any, size: int | None) -> ImageData:
    """Return a folder of images as a data set that bears the folder's name."""
    with imagefiles.readable():
        source = imagefiles.list_folder(path)
    if not source.test:
        y = np.array(source.labels[0])
        train, test = stratified_split(y, _fifth(y, source.class_names))
        files = [tuple(source.train[i] for i in part) for part in (train, test)]
        labels = tuple(y[train].tolist()), tuple(y[test].tolist())
        source = replace(source, train=files[0], test=files[1], labels=labels)
    name = folder_name(path)
    arrays, digest = imagefiles.cached(name, source, None, cache, size)
    return _finish(name, arrays, source.class_names, digest=digest)


# ---------------------------------------------------------------- the known sets


def _root(data_root: Any) -> Path | None:
    """Return the data root: the argument, else CMLIB_DATA, else None. It must be a folder."""
    given = data_root if data_root is not None else os.environ.get("CMLIB_DATA") or None
    if given is None:
        return None
    if not isinstance(given, str | os.PathLike):
        raise OptionError(f"data_root must be a folder, not {_kind(given)}")
    root = Path(given).expanduser()
    if not root.is_dir():
        what = "the data root" if data_root is not None else "CMLIB_DATA:"
        raise DataError(f"{what} {one_line(root)} is no folder; name the one that holds the data sets, as in DIR/cifar10/")
    return root


def _load_known(known: Known, data_root: Any, cache: Any) -> ImageData:
    """Find, read (or fetch) and check one of the known sets."""
    root = _root(data_root)
    for place in (root, _downloads(cache)):
        if place is not None:
            imagefiles.clear_downloads(place)
    source = _find(known, root, cache)
    if source is None:
        lost, place = f"{known.name} was not found{_tried(known, root)}", root or _downloads(cache)
        if data_root is not None or not known.download:
            raise DataError(f"{lost}: {_how(known)}")
        try:
            note = f"{lost}: torchvision downloads its archive to {place}, which may take long; the quick way is to {_put(known)}"
            source = imagefiles.download(known, place, note)
        except DataError as error:
            raise DataError(f"{lost} and could not be downloaded ({error}): {_how(known)}") from None
    if source.note:
        log.warning(source.note)
    arrays, digest = imagefiles.cached(known.name, source, known, cache)
    height, width = arrays["x_train"].shape[2:]
    if max(height, width) > int(known.size.split("x")[0]):  # smaller ones stand in for the real ones in rehearsals
        raise DataError(f"{source.folder} holds images of {height}x{width}; those of {known.name} are {known.size}")
    class_names = known.class_names
    if known.name == "tiny-imagenet":
        class_names = imagefiles.tiny_names(source) or class_names
    if len(class_names) != len(known.class_names):
        raise DataError(f"{source.folder} names {len(class_names)} classes; {known.name} has {len(known.class_names)}")
    data = _finish(known.name, arrays, class_names, known, digest)
    if data.part and not source.note:
        log.warning("%s: %s; tables do not count runs on a part of the data", known.name, data.part)
    return data


def _find(known: Known, root: Path | None, cache: Any) -> Source | None:
    """Look in the data root, then among earlier downloads."""
    with imagefiles.readable():
        places = [place for place in (root, _downloads(cache)) if place and place.is_dir()]
        return next((source for place in places if (source := imagefiles.find(known, place))), None)


def _downloads(cache: Any) -> Path:
    return imagefiles.cache_folder(None if cache is False else cache) / "downloads"


def _tried(known: Known, root: Path | None) -> str:
    if root is None:
        return " (no data root was given)"
    places = f"{known.name}/, {known.name}-*/, {known.official}/ and parquet files in the folder itself"
    with imagefiles.readable():
        return f" in {root} (tried: {places}{imagefiles.lacking(known, root)})"


def _put(known: Known) -> str:
    """Say where the parquet files of a data set belong."""
    test = "valid" if known.test_words[0] == "valid" else "test"
    files = f"its Hugging Face files train-*.parquet and {test}-*.parquet"
    return f"put {files} in DIR/{known.name}/ and pass --data-root DIR (in Python data_root=DIR) or set CMLIB_DATA=DIR"


def _how(known: Known) -> str:
    """Say how to get a data set."""
    if not known.download:
        return f"{_put(known)} (a folder {known.official}/ from the official archive does as well)"
    return f"{_put(known)}; or, with internet, leave out the data root and torchvision downloads it"


def describe(data_root: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """Return one row a data set: name, classes, train, test, size, where, how, note. Reads no images.

    `where` is the folder found, "inside scikit-learn", "not found", or "unusable: ..." with the reason. The counts are
    those found, or the published ones; `note` says which part of the data set is there when it is not whole.
    """
    root = _root(data_root)
    return [_row(known, root) for known in KNOWN.values()]


def _row(known: Known, root: Path | None) -> dict[str, Any]:
    name = known.name
    row: dict[str, Any] = {"name": name, "classes": len(known.class_names), "train": known.train, "test": known.test}
    row |= {"size": known.size, "where": "not found", "how": _how(known), "note": ""}
    if name == "digits":
        return row | {"where": "inside scikit-learn", "how": "nothing to do"}
    try:
        source = _find(known, root, None)
        counts = imagefiles.count_images(source) if source else None
    except DataError as error:
        return row | {"where": f"unusable: {error}"}
    if source is None:
        return row
    row |= {"where": str(source.folder), "how": "nothing to do"}
    if counts:
        row |= {"train": counts[0], "test": counts[1]}
        if counts[0] < known.train:
            row["note"] = f"a part: {counts[0]:,} of {known.train:,} training images"
    return row


# ---------------------------------------------------------------- checks and constants


def mean_std(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of x / 255 per channel; x uint8 [n, C, H, W]. A constant channel gets std 1.

    Of vectors, float32 [n, D], those of each feature as it is.
    """
    if x.ndim == 2:
        deviations = x.std(0, dtype=np.float64)
        return tuple(x.mean(0, dtype=np.float64).tolist()), tuple(np.where(deviations > 1e-6, deviations, 1.0).tolist())
    levels = np.arange(256) / 255
    means, stds = [], []
    for channel in range(x.shape[1]):
        share = np.bincount(x[:, channel].ravel(), minlength=256) / x[:, channel].size
        mean = float(share @ levels)
        std = math.sqrt(float(share @ (levels - mean) ** 2))
        means.append(round(mean, 6))
        stds.append(round(std, 6) if std > 1e-6 else 1.0)
    return tuple(means), tuple(stds)


def check(name: str, arrays: Arrays, class_names: tuple[str, ...]) -> None:
    """Raise `DataError` unless labels are in range, every class is in both splits and all images have one shape."""
    shapes = [arrays[key].shape[1:] for key in ("x_train", "x_test")]
    if shapes[0] != shapes[1]:
        kinds = f"{list(shapes[0])} and test images {list(shapes[1])} (C, H, W; vectors have one number, D)"
        raise DataError(f"{name}: training images are {kinds}")
    for split in ("train", "test"):
        y = arrays[f"y_{split}"]
        wrong = np.flatnonzero((y < 0) | (y >= len(class_names)))
        if len(wrong):
            raise DataError(f"{name}: {split} label {y[wrong[0]]} (image {wrong[0]}) is not in 0..{len(class_names) - 1}")
        empty = np.flatnonzero(np.bincount(y, minlength=len(class_names)) == 0)
        if len(empty):
            more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
            raise DataError(f"{name}: the {split} split has no image of class {empty[0]} '{class_names[empty[0]]}'{more}")


def _finish(
    name: str, arrays: Arrays, class_names: tuple[str, ...], known: Known | None = None, digest: str | None = None
) -> ImageData:
    """Check the arrays and make the data set; what is not known of it is computed."""
    check(name, arrays, class_names)
    if known is not None:
        mean, std, augmentation = known.mean, known.std, known.augmentation
    else:
        mean, std = mean_std(arrays["x_train"])
        augmentation = "none" if arrays["x_train"].ndim == 2 or arrays["x_train"].shape[2] < 16 else "crop-flip"
    tensors: dict[str, Any] = {key: torch.from_numpy(np.ascontiguousarray(arrays[key])) for key in KEYS}
    return ImageData(
        name, **tensors, class_names=class_names, mean=mean, std=std, augmentation=augmentation,
        digest=digest or imagefiles.digest_of(arrays),
    )  # fmt: skip
