"""CUDA graphs: a training step recorded once a task and replayed, instead of hundreds of small kernels launched anew each time.

The first steps of a task run as usual; then the step is recorded for batches of that size, and the recording is checked against
the step itself on the batch at hand. When recording fails or the check does, the run goes on without it, with a warning. Batches
of another size, such as the last one of an epoch, run as usual. On a CPU nothing is ever recorded.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from cmlib.methods.base import Method
from cmlib.scenario import Task

Step = Callable[[Tensor, Tensor], Tensor]  # images [B, C, H, W], labels [B] -> loss
Recorder = Callable[[Step, Tensor, Tensor], Callable[[], Tensor]]  # a step and its fixed batch -> what replays it

WARM_UP = 3  # steps that run as usual before one is recorded
CHECKED = 2  # steps that the recording and the step itself are compared over
TOLERANCE = 2e-3  # relative, of the losses: TF32 convolutions may pick other algorithms


def record(step: Step, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    """Record a step on fixed tensors as a CUDA graph; what is returned replays it and gives its loss.

    Makes real steps first, on a stream of its own: what is allocated or chosen once must not be recorded.
    """
    with torch.cuda.device(x.device):  # a graph is captured on the current card
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                step(x, y)
        torch.cuda.current_stream().wait_stream(aside)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step(x, y)

    def replay() -> Tensor:
        graph.replay()
        return loss

    return replay


class Stepper:
    """Makes the steps of one task: as they are, or, once it is worth it, from a recording.

    recorder: how a step is recorded; None never does. `reason` says why there is no recording.
    """

    def __init__(self, method: Method, optimizer: torch.optim.Optimizer, task: Task, recorder: Recorder | None) -> None:
        self.method, self.optimizer, self.task = method, optimizer, task
        self.recorder = recorder if method.recordable else None
        self.reason = "" if self.recorder else "steps of this kind are not recorded"
        self.done = 0
        self.shape: torch.Size | None = None
        self.replay: Callable[[], Tensor] | None = None

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """One gradient step; returns the loss, detached, on the device."""
        self.done += 1
        if self.replay is None and self.recorder is not None and self.done > WARM_UP and len(y) >= self.full_size():
            self.prepare(x, y)
        if self.replay is None or x.shape != self.shape:
            return self.step(x, y)
        self.x.copy_(x)
        self.y.copy_(y)
        return self.replay().clone()

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """The step as it is."""
        return self.method.step(self.optimizer, x, y, self.task)

    def full_size(self) -> int:
        """Samples of a batch that is worth recording: the last one of an epoch is smaller."""
        return int(self.method.option["batch_size"])

    def prepare(self, x: Tensor, y: Tensor) -> None:
        """Record the step and compare; on any failure go on without. The state is afterwards what it was before."""
        assert self.recorder is not None
        self.x, self.y, self.shape = x.clone(), y.clone(), x.shape
        before = self.state()
        kept = [tensor.clone() for tensor in before]
        try:
            replay = self.recorder(self.step, self.x, self.y)
            self.restore(before, kept)
            recorded = [float(replay()) for _ in range(CHECKED)]
            self.restore(before, kept)
            wanted = [float(self.step(x, y)) for _ in range(CHECKED)]
            if all(abs(a - b) <= TOLERANCE * max(1.0, abs(b)) for a, b in zip(recorded, wanted, strict=True)):
                self.replay = replay
            else:
                self.give_up(f"recorded losses {recorded} differ from {wanted}")
        except RuntimeError as error:  # what CUDA and torch raise when a step cannot be recorded
            self.give_up(str(error).splitlines()[0])
        self.restore(before, kept)

    def give_up(self, reason: str) -> None:
        """Never record again in this task, and say why."""
        self.recorder, self.reason = None, reason
        warnings.warn(f"steps of {self.method.name} run without CUDA graph: {reason}", RuntimeWarning, stacklevel=4)

    def state(self) -> list[Tensor]:
        """Every tensor that a step changes: parameters, buffers, the optimizer's memory."""
        moments = [value for entry in self.optimizer.state.values() for value in entry.values() if isinstance(value, Tensor)]
        return [*self.method.parameters(), *self.method.buffers(), *moments]

    @staticmethod
    @torch.no_grad()
    def restore(tensors: list[Tensor], values: list[Tensor]) -> None:
        """Put values back in place."""
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)


def stepper(method: Method, optimizer: torch.optim.Optimizer, task: Task, wanted: bool = True) -> Stepper:
    """The stepper of a task: with CUDA graphs on a CUDA device if wanted."""
    on_cuda = method.scenario.device.type == "cuda"
    return Stepper(method, optimizer, task, record if on_cuda and wanted else None)
