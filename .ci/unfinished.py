"""Unfinished runs that are longer than the time a machine can be had for, kept in the repository until they are done.

    unfinished.py keep STORE DATA_ROOT        the store's checkpoints -> .ci/unfinished; what has ended is removed there
    unfinished.py restore STORE DATA_ROOT     and back into the store, where it has neither the run nor a checkpoint of it

A checkpoint holds exemplars, and images are not committed: here their positions in the training set stand in their place. One
from the end of a task is smaller still: what the next task makes anew, momentum and the past model, is left out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from cmlib import datasets
from cmlib.checkpoint import sealed, unsealed
from cmlib.datasets import ImageData
from cmlib.errors import CmlibError, StoreError
from cmlib.store import committed, write_atomically

KEPT = Path(__file__).resolve().parent / "unfinished"
POSITIONS = "positions of "  # before the name of a tensor of images
PAST, DROPPED = "past.", "made anew"  # names of the past model's tensors; where those left out are listed


def is_images(value: Any) -> bool:
    """Whether a part of a method's state holds pictures: uint8 [n, C, H, W]."""
    return isinstance(value, torch.Tensor) and value.dtype == torch.uint8 and value.ndim == 4


def without_images(method: dict[str, Any], data: ImageData) -> dict[str, Any]:
    """A method's state with positions in the training images, int64 [n], for all images; StoreError for one not among them."""
    where = {image.numpy().tobytes(): k for k, image in enumerate(data.x_train.contiguous())}
    kept = {}
    for name, value in method.items():
        if is_images(value):
            found = [where.get(image.numpy().tobytes(), -1) for image in value.contiguous()]
            if -1 in found:
                raise StoreError(f"{name} holds an image that is not among the training images of {data.name}")
            name, value = POSITIONS + name, torch.tensor(found, dtype=torch.int64)
        kept[name] = value
    return kept


def smaller(state: dict[str, Any], data: ImageData) -> dict[str, Any]:
    """A checkpoint's content without images and, where the last task has had all its epochs, without what the next one makes."""
    method, first, last = without_images(state["method"], data), *(len(state["position"]["seconds"][i]) for i in (0, -1))
    state = {**state, "method": method}
    if len(state["position"]["seconds"]) > 1 and last == first:  # each task has as many
        state[DROPPED] = [name for name in method if name.startswith(PAST)]
        state["method"] = {name: value for name, value in method.items() if name not in state[DROPPED]}
        state["optimizer"] = {**state["optimizer"], "state": {}}
    return state


def whole(state: dict[str, Any], data: ImageData) -> dict[str, Any]:
    """The content as it was, or as good: the past model, which nothing looks at any more, is the network as it is now."""
    method = {
        name.removeprefix(POSITIONS): data.x_train[value] if name.startswith(POSITIONS) else value
        for name, value in state["method"].items()
    }
    method |= {name: method[name.removeprefix(PAST)] for name in state.pop(DROPPED, [])}
    return {**state, "method": method}


def rewritten(source: Path, place: Path, data_root: str, change: Any) -> bytes:
    """A checkpoint's bytes with its content changed. The folder above the method's names data set and scenario."""
    state = unsealed(source.read_bytes(), torch.device("cpu"))
    return sealed(change(state, datasets.load(place.parts[-3].rpartition("-")[0], data_root)))


def keep(store: Path, data_root: str, kept: Path = KEPT) -> list[str]:
    """Copy the store's checkpoints, made smaller, and remove those of runs that have ended; says what was done."""
    said = []
    for path in sorted(kept.rglob("seed*.pt")):
        run = path.relative_to(kept).with_suffix(".json")
        if (store / run).is_file() or (committed().folder / run).is_file():
            path.unlink()
            said.append(f"removed {path.relative_to(kept)}")
    for path in sorted(store.rglob("seed*.ckpt")):
        place = path.relative_to(store).with_suffix(".pt")
        write_atomically(kept / place, rewritten(path, place, data_root, smaller))
        said.append(f"kept {place}")
    return said


def restore(store: Path, data_root: str, kept: Path = KEPT) -> list[str]:
    """Put checkpoints with their images into a store that has neither them nor their runs; says what was done."""
    said = []
    for path in sorted(kept.rglob("seed*.pt")):
        place = path.relative_to(kept)
        if not any((store / place.with_suffix(suffix)).exists() for suffix in (".ckpt", ".json")):
            write_atomically(store / place.with_suffix(".ckpt"), rewritten(path, place, data_root, whole))
            said.append(f"restored {place}")
    return said


def main(arguments: list[str]) -> int:
    """The command line; the exit code is 2 for a bad one, 1 where something cannot be read or written."""
    tasks = {"keep": keep, "restore": restore}
    if len(arguments) != 3 or arguments[0] not in tasks:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(*tasks[arguments[0]](Path(arguments[1]), arguments[2]), sep="\n")
    except (CmlibError, ValueError, OSError) as error:
        print(f"unfinished: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
