"""A process of .ci/gpu that makes runs: it reads one request a line, in JSON, and answers each with lines in JSON.

Requests: {"load": data set}, {"check": seconds}, {"cell": fields and options of an experiment}. Answers: `say` with a line of
text, any number of them, then `done` or `failed` (with the last line of the error). After an error that is not one of cmlib's
own the process ends, since the state of the device is unknown. It also ends as soon as nobody writes requests any more, so that
none outlives a killed start.
"""

from __future__ import annotations

import json
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

STEPS, TASKS = 3, 2  # of a comparison
APART = 2e-3  # relative: losses of two devices, single precision, after a few steps
BENCH = (("naive", "til"), ("cm", "til"), ("cm", "cil"))
Say = Callable[[str], None]


# --- data ----------------------------------------------------------------------------------------------------------


def synthetic(images: int = 40) -> Any:
    """Seeded random images [n, 3, 32, 32] of ten classes, so many a class, with a colour a class."""
    import torch

    from cmlib import datasets

    g = torch.Generator().manual_seed(20220812)
    y = torch.arange(10 * images) % 10
    colour = torch.randint(0, 128, (10, 3, 1, 1), generator=g)
    x = (torch.randint(0, 128, (len(y), 3, 32, 32), generator=g) + colour[y]).to(torch.uint8)
    return datasets.load(((x, y), (x[:100], y[:100])))


# --- self-check ----------------------------------------------------------------------------------------------------


def small(method: str, scenario: str, **options: Any) -> Any:
    """An experiment on the synthetic images."""
    from cmlib.experiment import Experiment

    return Experiment("arrays", scenario, method, 1, "smoke", **{"train_per_class": 16, "batch_size": 8, **options})


def losses(experiment: Any, data: Any, device: str) -> list[float]:
    """Losses of the first steps of the first tasks."""
    from cmlib.experiment import fresh

    method, found = fresh(experiment, data, device), []
    for task in method.scenario.tasks[:TASKS]:
        method.begin_task(task)
        method.train()
        optimizer = method.make_optimizer()
        found += [float(method.step(optimizer, x, y, task)) for x, y in islice(method.batches(task, 0), STEPS)]
        method.eval()
        method.end_task(task)
    return found


def compared(found: list[float], wanted: list[float]) -> str:
    """`ok` or `FAILED`, and how far two lists of losses lie apart, relative to the larger of 1 and the loss."""
    apart = [abs(a - b) / max(1.0, abs(b)) for a, b in zip(found, wanted, strict=True)]
    worst = max(apart, key=lambda one: one if one == one else float("inf"))
    return f"{'ok' if worst <= APART else 'FAILED'}: losses at most {worst:.1e} apart"


def against_cpu(experiment: Any, data: Any, device: str) -> str:
    """The same steps on the device and on the CPU, both in full single precision."""
    import torch

    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        return compared(losses(experiment, data, device), losses(experiment, data, "cpu"))
    finally:
        torch.backends.cudnn.allow_tf32 = before


def against_graph(experiment: Any, data: Any, device: str) -> str:
    """Recorded steps against the steps themselves, where cmlib can record steps."""
    from cmlib import cudagraph
    from cmlib.experiment import fresh

    text = cudagraph.check(fresh(experiment, data, device))
    apart = re.search(r"most (\S+) apart", text)
    good = float(apart[1]) <= cudagraph.TOLERANCE if apart else "not recorded" in text or "nothing is recorded" in text
    return f"{'ok' if good else 'FAILED'}: {text}"


def comparisons(data: Any, device: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """Every comparison by its name: each method and scenario on the device and on the CPU, then recorded and plain."""
    from cmlib.methods import METHODS

    pairs = [(name, scenario) for name, method in METHODS.items() for scenario in method.scenarios]
    kinds = [(against_cpu, f"{device} and cpu", 16)]
    if device != "cpu" and has_graphs():
        kinds.append((against_graph, "graph and plain", 40))  # enough batches for a recording
    for compare, words, images in kinds:
        for name, scenario in pairs:
            yield f"{name}-{scenario}, {words}", partial(compare, small(name, scenario, train_per_class=images), data, device)


def has_graphs() -> bool:
    """Whether this cmlib can record steps."""
    try:
        from cmlib import cudagraph
    except ImportError:
        return False
    return hasattr(cudagraph, "check") and hasattr(cudagraph, "stepper")


def check(seconds: float, device: str, say: Say) -> None:
    """Bench, then compare; what the time does not suffice for is said. Errors become lines."""
    until, data = time.monotonic() + seconds, synthetic()
    for name, scenario in BENCH:
        say(f"bench: {name}-{scenario}: {attempt(partial(bench, name, scenario, device, min(6.0, seconds / 10)))}")
    missed = []
    for name, compare in comparisons(data, device):
        if time.monotonic() < until:
            say(f"check: {name}: {attempt(compare)}")
        else:
            missed.append(name)
    if missed:
        say(f"check: the time did not suffice for {len(missed)}: {'; '.join(missed)}")


def attempt(task: Callable[[], str]) -> str:
    """What a task says, or its error."""
    try:
        return task()
    except Exception as error:
        return f"FAILED: {one_line(error)}"


# --- bench ---------------------------------------------------------------------------------------------------------


def bench(name: str, scenario: str, device: str, seconds: float) -> str:
    """Seconds a step in the second task with the paper's batches: plain, and recorded where cmlib can."""
    from cmlib.experiment import fresh

    on_cuda = device != "cpu"
    sizes = {"batch_size": 32, "train_per_class": 200} if on_cuda else {"batch_size": 8}
    support = {"support_size": 100} if on_cuda and name == "cm" else {}
    method = fresh(small(name, scenario, **sizes, **support), synthetic(200 if on_cuda else 40), device)
    first, task = method.scenario.tasks[:2]
    method.begin_task(first)
    method.eval()
    method.end_task(first)
    method.begin_task(task)
    method.train()
    optimizer = method.make_optimizer()
    kinds: dict[str, Any] = {"plain": lambda x, y: method.step(optimizer, x, y, task)}
    if on_cuda and has_graphs():
        from cmlib import cudagraph

        kinds["graph"] = cudagraph.stepper(method, optimizer, task)
    times = {kind: seconds_a_step(method, task, step, seconds / len(kinds)) for kind, step in kinds.items()}
    return ", ".join(f"{kind} {1000 * value:.2f} ms a step" for kind, value in times.items())


def seconds_a_step(method: Any, task: Any, step: Any, seconds: float, warm_up: int = 6) -> float:
    """Mean time of a step over a while, batches included; the first ones do not count."""
    import torch

    def batches() -> Iterator[Any]:
        epoch = 0
        while True:
            yield from (pair for pair in method.batches(task, epoch) if len(pair[1]) >= method.option["batch_size"])
            epoch += 1

    def now() -> float:
        if method.scenario.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    source = batches()
    for x, y in islice(source, warm_up):
        step(x, y)
    started, done = now(), 0
    while done < 2 or now() - started < seconds:
        for x, y in islice(source, 2 if seconds < 2 else 20):
            step(x, y)
            done += 1
    return (now() - started) / done


# --- runs ----------------------------------------------------------------------------------------------------------


class Work:
    """What requests are answered with."""

    def __init__(self, store: str, data_root: str | None, device: str) -> None:
        self.store, self.data_root = store, data_root
        from cmlib.machine import choose_device, device_name

        self.device = str(choose_device(device))
        self.name = device_name(choose_device(device))
        self.data: dict[str, Any] = {}

    def load(self, name: str) -> Any:
        """A data set, read once."""
        from cmlib import datasets

        if name not in self.data:
            self.data[name] = datasets.load(name, self.data_root if name != "digits" else None)
        return self.data[name]

    def run(self, cell: dict[str, Any]) -> dict[str, Any]:
        """Make a run, or go on with it."""
        import torch

        from cmlib import engine
        from cmlib.experiment import Experiment
        from cmlib.store import Store

        experiment, data, store = Experiment(**cell), self.load(cell["dataset"]), Store(self.store)
        try:
            made = engine.run(experiment, data, store=store, device=self.device, progress=False)
        except ValueError as error:
            if "checkpoint" in str(error) and "damaged" in str(error):  # the next try starts anew
                store.path(experiment, data.digest).with_suffix(".ckpt").unlink(missing_ok=True)
            raise
        if self.device != "cpu":
            torch.cuda.empty_cache()
        return {"status": made.status, "accuracy": round(made.accuracy, 2), "bwt_final": round(made.bwt_final, 2)}

    def answer(self, request: dict[str, Any], say: Say) -> dict[str, Any]:
        """Carry out one request."""
        if "load" in request:
            return {"part": self.load(request["load"]).part}
        if "check" in request:
            check(request["check"], self.device, say)
            return {}
        return self.run(request["cell"])


def one_line(error: BaseException) -> str:
    """The kind of an error and its last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{error.__class__.__name__}: {lines[-1][:200]}" if lines else error.__class__.__name__


def requests() -> Iterator[dict[str, Any]]:
    """Requests from standard input, read aside: when it is closed this process ends at once, in the middle of a run too."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    return (json.loads(line) for line in iter(lines.get, None))


def main() -> int:
    """Answer requests for ever. Standard output carries answers only; what libraries print goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(**answer: Any) -> None:
        channel.write(json.dumps(answer) + "\n")
        channel.flush()

    waiting = requests()
    import torch

    from cmlib.errors import CmlibError

    work = Work(**json.loads(sys.argv[1]))
    send(kind="ready", device=work.name, torch=torch.__version__)
    for request in waiting:
        # Runs start in a clean process, whatever the comparisons left on a device.
        ends = "check" in request and work.device != "cpu"
        try:
            answer = {"kind": "done", **work.answer(request, lambda text: send(kind="say", text=text))}
        except Exception as error:
            ends = ends or not isinstance(error, CmlibError)
            answer = {"kind": "failed", "error": one_line(error)}
        send(**answer, ends=ends)
        if ends:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
