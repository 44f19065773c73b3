"""The state of an unfinished run, beside its place in the store: all that is registered on the method, optimizer, position.

Written after every epoch, sealed by a checksum. A run that goes on from it ends, on a CPU, with the bits of an undisturbed one.
"""

from __future__ import annotations

import hashlib
import io
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from cmlib.datasets import ImageData
from cmlib.errors import StoreError
from cmlib.experiment import Experiment
from cmlib.imagefiles import one_line
from cmlib.methods.base import Method
from cmlib.store import FINISHED, Store, write_atomically

EPOCHS = "epochs"  # the own checkpoint of a run that is measured after each epoch


@dataclass
class Position:
    """Where a run stands, and what it has measured so far."""

    task: int = 0
    epoch: int = 0  # epochs of `task` that are done
    R: list[list[float]] = field(default_factory=list)
    R_task_known: list[list[float]] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    status: str = FINISHED
    each_epoch: list[list[list[float]]] = field(default_factory=list)


@dataclass
class Checkpoint:
    """The state of an unfinished run, beside its place in the store; does nothing without a store."""

    path: Path | None

    @classmethod
    def of(cls, store: Store | None, experiment: Experiment, data: ImageData, own: str = "") -> Checkpoint:
        """The checkpoint of an experiment in a store.

        own: the name of one of its own, for a run that keeps more than others, as EPOCHS is.
        """
        return cls(store.path(experiment, data.digest).with_suffix(f".{own}.ckpt" if own else ".ckpt") if store else None)

    def save(self, method: Method, optimizer: Any, position: Position) -> None:
        """Write the state atomically."""
        if self.path is None:
            return
        state = {"method": method.state_dict(), "optimizer": optimizer.state_dict(), "position": vars(position)}
        write_atomically(self.path, sealed({**state, "run": self.path.stem}))

    def position(self) -> Position | None:
        """How far the run came that this checkpoint holds; None when there is none. StoreError when it is damaged."""
        if self.path is None or not self.path.is_file():
            return None
        try:
            return Position(**unsealed(self.path.read_bytes(), torch.device("cpu"))["position"])
        except Exception as error:
            raise self._damaged(error) from None

    def resume(self, method: Method) -> tuple[Position, Any]:
        """Put a method, its optimizer and the position where the checkpoint stands; (start, None) when there is none."""
        if self.path is None or not self.path.is_file():
            return Position(), None
        try:
            raw = self.path.read_bytes()
        except OSError as error:
            raise StoreError(f"cannot read the checkpoint {self.path}: {error.strerror}") from None
        try:
            state = unsealed(raw, method.scenario.device)
            if state.get("run", self.path.stem) != self.path.stem:
                raise ValueError(f"it is of the run {state['run']}")
            position, kept, steps = Position(**state["position"]), state["method"], state["optimizer"]
        except torch.OutOfMemoryError:  # of the device: no fault of the file
            raise
        except Exception as error:
            raise self._damaged(error) from None
        for task in method.scenario.tasks[: position.task + 1]:
            method.begin_task(task)
        self._fill(method, kept)
        optimizer = method.make_optimizer()
        optimizer.load_state_dict(steps)
        return position, optimizer

    def _fill(self, method: Method, kept: dict[str, Any]) -> None:
        """Put a method's tensors in; StoreError where it has others, or of other shapes, than when the checkpoint was written."""
        try:
            other = [name for names in method.load_state_dict(kept, strict=False) for name in names]
        except RuntimeError as error:
            other = re.findall(r"size mismatch for (\S+):", str(error)) or [one_line(error)]
        if other:
            why = f"does not fit the method as it is now: {', '.join(other[:3])}{', ...' * (len(other) > 3)}"
            raise StoreError(
                f"the checkpoint {self.path} {why}. What a method keeps is registered in begin_task; or remove it to start anew"
            )

    def _damaged(self, error: Exception) -> StoreError:
        reason = one_line(error) if type(error) is ValueError else error.__class__.__name__
        return StoreError(f"the checkpoint {self.path} is damaged ({reason}); remove it to start this run anew")

    def remove(self) -> None:
        """Delete the checkpoint of a finished run."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


SEAL = b"cmlib-ck"  # stands before the checksum
CHECKSUM = 32  # bytes


def sealed(state: dict[str, Any]) -> bytes:
    """A checkpoint's bytes: as torch writes it, then SEAL and the checksum (BLAKE2b) of all that comes before it."""
    content = io.BytesIO()
    torch.save(state, content)
    raw = content.getvalue() + SEAL
    return raw + hashlib.blake2b(raw, digest_size=CHECKSUM).digest()


def unsealed(raw: bytes, device: torch.device) -> dict[str, Any]:
    """The state in a checkpoint's bytes; ValueError unless every bit is as it was written."""
    body, checksum = raw[:-CHECKSUM], raw[-CHECKSUM:]
    if not body.endswith(SEAL) or hashlib.blake2b(body, digest_size=CHECKSUM).digest() != checksum:
        raise ValueError("its checksum does not match")
    state = torch.load(io.BytesIO(raw), map_location=device, weights_only=True)
    return dict(state)
