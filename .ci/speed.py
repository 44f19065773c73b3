"""The engine's training speed against a bare loop: same net, same batch size, ready tensors, one process.

    python .ci/speed.py [--data-root DIR] [--rounds 7] [--threads 1]     cifar10 when DIR holds it, else random images

The two take turns, so that a noisy machine disturbs both; the ratio is that of the medians. `ratio` is what matters.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

import cmlib as cm
from cmlib import datasets
from cmlib.engine import Position, fresh, train_epoch
from cmlib.errors import DataError
from cmlib.nets import make_backbone, make_head

STEPS = 60


def images(data_root: str | None) -> datasets.ImageData:
    """CIFAR-10, or random images of its shape."""
    try:
        return datasets.load("cifar10", data_root or "absent")
    except DataError:
        g = torch.Generator().manual_seed(0)
        x = torch.randint(0, 256, (12_000, 3, 32, 32), generator=g, dtype=torch.uint8)
        return datasets.load(((x, torch.arange(12_000) % 10), (x[:100], torch.arange(100) % 10)))


def main() -> None:
    """Print the medians in images a second and their ratio as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    size = 32
    method = fresh(cm.Experiment("cifar10", "til", "naive", train_per_class=STEPS * size // 2), images(asked.data_root))
    task = method.scenario.tasks[0]
    method.begin_task(task)
    optimizer = method.make_optimizer()

    net = torch.nn.Sequential(make_backbone(3, "shared", 0), make_head("linear", 2, 0, 0))
    bare = torch.optim.SGD(net.parameters(), 0.01, 0.9, fused=True)
    ready = [(method.scenario.prepare(task.x[i : i + size]), task.y[i : i + size]) for i in range(0, len(task.y), size)]

    def bare_epoch() -> float:
        started = time.perf_counter()
        net.train()
        for x, y in ready:
            bare.zero_grad()
            F.cross_entropy(net(x), y).backward()
            bare.step()
        return time.perf_counter() - started

    def engine_epoch(epoch: int) -> float:
        position = Position(seconds=[[]], steps=[0])
        train_epoch(method, optimizer, task, epoch, position)
        return position.seconds[0][0]

    times: dict[str, list[float]] = {"engine": [], "bare": []}
    for turn in range(asked.rounds + 1):
        pair = {"engine": engine_epoch(turn), "bare": bare_epoch()}
        if turn:  # the first round warms up
            for name, seconds in pair.items():
                times[name].append(seconds)
    speed = {name: len(task.y) / statistics.median(values) for name, values in times.items()}
    print(
        json.dumps(
            {**{name: round(value, 1) for name, value in speed.items()}, "ratio": round(speed["engine"] / speed["bare"], 3)}
        )
    )


if __name__ == "__main__":
    main()
