"""All randomness of an experiment comes from named generators on the CPU.

A generator is seeded by (seed, task, epoch, purpose) and by nothing else, so a result does not depend on the order in which
things are drawn, on the device, on an interruption or on how many jobs run side by side. Nothing here touches torch's global
generator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def seed_of(seed: int, task: int = 0, epoch: int = 0, purpose: str = "") -> int:
    """Return the 63-bit seed that belongs to one name."""
    name = f"{seed}/{task}/{epoch}/{purpose}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") >> 1


def generator(seed: int, task: int = 0, epoch: int = 0, purpose: str = "") -> torch.Generator:
    """Return a fresh CPU generator for one purpose of one epoch of one task."""
    return torch.Generator().manual_seed(seed_of(seed, task, epoch, purpose))


@contextmanager
def seeded(seed: int, task: int = 0, purpose: str = "") -> Iterator[None]:
    """Seed torch's default CPU generator inside the block and restore it afterwards.

    Used where torch's own constructors draw initial weights: they take no generator.
    """
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed_of(seed, task, 0, purpose))
        yield


def class_order(n_classes: int, seed: int) -> torch.Tensor:
    """Order of the classes: natural for seed 0, otherwise that of `torch.manual_seed(seed); torch.randperm(n)`.

    Returns int64 [n_classes]; entry k is the original class that becomes label k.
    """
    if seed == 0:
        return torch.arange(n_classes)
    return torch.randperm(n_classes, generator=torch.Generator().manual_seed(seed))
