"""Projectors pi_i: from the embedding space of one task to the space shared by all tasks (paper, section 4.2 and 5.3).

Every projector maps [..., E] -> [..., E]. The paper writes p_i, s_i, t_i; the letters p and t are taken, so the text says
pi_i, a_i (scale) and b_i (shift). Built in chapter 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from cmlib.centroids import distances
from cmlib.errors import check_name

SCALE_STARTS = ("random", "near_one")


def _small_net(size: int, *tail: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), nn.Linear(size, size), *tail)


class ScaleTranslate(nn.Module):
    """pi(e) = e * sigmoid(a(e)) + b(e), with a and b small networks (eq. 8).

    scale_start: the first values of a are random, or such that the scale begins at sigmoid(5) = 0.993 whatever e (near_one).

    Built in chapter 5, eq. 8.
    """

    def __init__(self, size: int, scale_start: str = "random") -> None:
        super().__init__()
        self.scale = _small_net(size, nn.Sigmoid())
        self.shift = _small_net(size)
        if check_name("scale_start", scale_start, SCALE_STARTS) == "near_one":
            for name, values in self.scale[1].named_parameters():
                nn.init.constant_(values, 5.0 if name == "bias" else 0.0)

    def forward(self, e: Tensor) -> Tensor:
        return e * self.scale(e) + self.shift(e)


class Linear(nn.Linear):
    """One linear layer (table 3, "Linear", by the text). Built in chapter 11."""

    def __init__(self, size: int) -> None:
        super().__init__(size, size)


class MLP(nn.Sequential):
    """ReLU, then a linear layer (table 5, "MLP"; what the released code runs for both names). Built in chapter 11."""

    def __init__(self, size: int) -> None:
        super().__init__(nn.ReLU(), nn.Linear(size, size))


class Offset(nn.Module):
    """pi(e) = e + b, with b one learned vector (the released code's "Offset")."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.randn(size))

    def forward(self, e: Tensor) -> Tensor:
        return e + self.offset


class OffsetLinear(nn.Module):
    """pi(e) = e + W e + b: an offset computed by a linear layer on the embedding ("Offset" by the text)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.offset = nn.Linear(size, size)

    def forward(self, e: Tensor) -> Tensor:
        return e + self.offset(e)


class Identity(nn.Identity):
    """pi(e) = e ("None")."""

    def __init__(self, size: int) -> None:
        super().__init__()


PROJECTORS: dict[str, Callable[[int], nn.Module]] = {
    "scale_translate": ScaleTranslate,
    "linear": Linear,
    "mlp": MLP,
    "offset": Offset,
    "offset_linear": OffsetLinear,
    "none": Identity,
}


def make_projector(kind: str, size: int, scale_start: str = "random") -> nn.Module:
    """Return a fresh projector of one of the kinds in `PROJECTORS` for embeddings of `size` features.

    scale_start: see `ScaleTranslate`; the other kinds have no scale.
    """
    made = PROJECTORS[check_name("merging", kind, PROJECTORS)]
    return ScaleTranslate(size, scale_start) if made is ScaleTranslate else made(size)


Projectors = Sequence[nn.Module] | nn.ModuleList


def merge(embeddings: Sequence[Tensor] | Tensor, projectors: Projectors) -> Tensor:
    """Merged embedding: the mean over tasks of the projected embeddings (eq. 7). t x [B, E] -> [B, E]

    Built in chapter 5, eq. 7.
    """
    projected = [project(e) for project, e in zip(projectors, embeddings, strict=True)]
    return torch.stack(projected).mean(0)


def merge_centroids(centroids: Sequence[Tensor], projectors: Projectors) -> Tensor:
    """Centroids of all tasks in the shared space, in label order. t x [K_i, E] -> [sum K_i, E]

    Built in chapter 5, eq. 7.
    """
    return torch.cat([project(c) for project, c in zip(projectors, centroids, strict=True)])


def merged_log_probabilities(
    embeddings: Sequence[Tensor] | Tensor,
    centroids: Sequence[Tensor],
    projectors: Projectors,
    centroid_projectors: Projectors | None = None,
    kind: str = "euclidean",
) -> Tensor:
    """Log probabilities over all classes seen (eq. 7). t x [B, E], t x [K_i, E] -> [B, sum K_i]

    `centroid_projectors`: their own projectors for the centroids; by default they share those of the embeddings.

    Built in chapter 5, eq. 7.
    """
    merged = merge(embeddings, projectors)  # [B, E]
    anchors = merge_centroids(centroids, centroid_projectors or projectors)  # [K, E]
    return torch.log_softmax(-distances(merged, anchors, kind), dim=-1)
