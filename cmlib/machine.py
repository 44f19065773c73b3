"""What a run is made on: device and threads, chosen here; CPU, versions and state of the code, recorded in its file."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from cmlib.datasets import ImageData
from cmlib.errors import OptionError
from cmlib.version import VERSION


def choose_device(device: str) -> torch.device:
    """`auto`, `cpu`, `cuda`, `cuda:1`, ...; OptionError when it is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise OptionError(f"unknown device '{device}'; allowed: auto, cpu, cuda, cuda:0, ...") from None
    if chosen.type not in ("cpu", "cuda") or (chosen.type == "cpu" and chosen.index):
        raise OptionError(f"unknown device '{device}'; allowed: auto, cpu, cuda, cuda:0, ...")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        here = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        raise OptionError(f"device '{device}' is not present on this machine; allowed: {', '.join(['auto', 'cpu', *here])}")
    return chosen


@contextmanager
def threads_for(data: ImageData) -> Iterator[int]:
    """Torch's threads while a run lasts: one for vectors and small images, else two; never more than OMP_NUM_THREADS."""
    wanted = 1 if data.vectors or data.x_train.shape[-1] < 16 else 2
    limit = os.environ.get("OMP_NUM_THREADS", "")
    with threads(max(1, min(wanted, int(limit) if limit.isdigit() else wanted, os.cpu_count() or 1))):
        yield torch.get_num_threads()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads of torch for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def versions() -> dict[str, str]:
    """Versions of what produced the numbers."""
    return {"cmlib": VERSION, "torch": torch.__version__, "python": platform.python_version()}


def device_name(device: torch.device) -> str:
    """`cpu`, or the name of the card."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def machine(device: torch.device, threads: int) -> dict[str, Any]:
    """What a run was made on, and with which state of the code; `changed`: the code was not that of the commit.

    Recorded, never hashed: on another CPU the same experiment rounds otherwise, and its accuracies differ as another seed's do.
    """
    changed = bool(_git("status", "--porcelain", "--", "."))
    where = {"device": device_name(device), "cpu": cpu_model(), "instructions": instructions(), "threads": threads}
    return {**where, "commit": commit(), "changed": changed}


def commit() -> str:
    """The short commit of the checkout cmlib runs from; empty outside one."""
    return _git("rev-parse", "--short=10", "HEAD")


def cpu_model() -> str:
    """The name of this machine's processor, as its maker gives it; `unknown` where the system does not say."""
    listed = Path("/proc/cpuinfo")
    if listed.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", listed.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        if found:
            return " ".join(found[1].split())
    return platform.processor() or platform.machine() or "unknown"


def instructions() -> str:
    """The CPU instruction set that torch computes with, as `AVX2`; oneDNN's own where a variable limits it."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    return torch.backends.cpu.get_cpu_capability() + (f", oneDNN {limit}" if limit else "")


def _git(*words: str) -> str:
    """What git says about the checkout cmlib runs from; empty outside one."""
    here = Path(__file__).resolve().parent
    if not (here.parent / ".git").exists():
        return ""
    try:
        return subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # a checkout on a machine without git
        return ""
