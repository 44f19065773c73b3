"""Small data and a small network for tests that look at every number."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cmlib.datasets import ImageData
from cmlib.experiment import Experiment
from cmlib.methods import METHODS, Method
from cmlib.nets import Backbone, TaskBatchNorm2d
from cmlib.randomness import seeded
from cmlib.scenario import Scenario


class Tiny(Backbone):
    """One convolution, batch norm, a smooth bend and the mean: 5 features."""

    out_features = 5

    def __init__(self, kind: str = "shared", seed: int = 0) -> None:
        super().__init__()
        with seeded(seed, 0, "tiny"):
            self.conv = nn.Conv2d(1, 5, 3, padding=1)
        self.norm = TaskBatchNorm2d(5, kind)

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(self.norm(self.conv(x))).mean((2, 3))


def arrays(classes: int = 4, each: int = 20, size: int = 8, test_each: int = 6, augmentation: str = "none") -> ImageData:
    """Images of one channel: noise, and every class brighter in another row of pixels. Image n has label n % classes."""
    draws = torch.Generator().manual_seed(3)

    def images(n: int) -> tuple[Tensor, Tensor]:
        y = torch.arange(n) % classes
        x = torch.randint(1, 120, (n, 1, size, size), generator=draws)
        x[torch.arange(n), 0, y % size] += 100
        return x.to(torch.uint8), y

    x, y = images(classes * each)
    test_x, test_y = images(classes * test_each)
    names = tuple(f"c{k}" for k in range(classes))
    return ImageData("arrays", x, y, test_x, test_y, names, (0.4,), (0.2,), augmentation, "0" * 12)


def tiny_method(experiment: Experiment, data: ImageData) -> Method:
    """The untrained method of an experiment on the tiny network."""
    option, seed = experiment.options, experiment.seed
    support = option.get("support_size", 0)
    rest = {name: option[name] for name in ("train_per_class", "augmentation")}
    scenario = Scenario(data, experiment.scenario, option["n_tasks"], seed, support, **rest)
    return METHODS[experiment.method](option, scenario, Tiny(option["batch_norm"], seed))
