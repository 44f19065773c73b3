"""The equations of Centroids Matching as pure functions (paper, section 4.1). Built in chapter 4.

B samples in a batch, K classes, E embedding features, t past tasks.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from cmlib.errors import CmlibError

DISTANCES = ("euclidean", "squared", "cosine")


def safe_norm(x: Tensor) -> Tensor:
    """Euclidean norm over the last dimension, with gradient 0 (not NaN) at the zero vector. [..., E] -> [...]

    Built in chapter 4.
    """
    squared = x.square().sum(-1)
    zero = squared == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, squared).sqrt())


def distances(e: Tensor, c: Tensor, kind: str = "euclidean") -> Tensor:
    """Distance d of every embedding to every centroid (eq. 2). [B, E], [K, E] -> [B, K]

    `kind`: `euclidean` (the paper's, not squared), `squared`, or `cosine` (one minus the cosine).

    Built in chapter 3, again in chapter 4, before eq. 2.
    """
    if kind == "cosine":
        return 1.0 - F.normalize(e, dim=-1) @ F.normalize(c, dim=-1).T  # [B, K]
    difference = e.unsqueeze(1) - c.unsqueeze(0)  # [B, K, E]
    return difference.square().sum(-1) if kind == "squared" else safe_norm(difference)


def class_centroids(e: Tensor, y: Tensor, classes: int) -> Tensor:
    """Mean embedding of each class of the support set (eq. 1). [S, E], y [S] in 0..K-1 -> [K, E]

    Gradient flows through every support embedding. A class without a sample has no mean: CmlibError (checked on the CPU).

    Built in chapter 3, again in chapter 4, eq. 1.
    """
    one_hot = F.one_hot(y, classes).to(e.dtype)  # [S, K]
    counts = one_hot.sum(0)  # [K]
    if e.device.type == "cpu" and bool((counts == 0).any()):
        missing = [k for k in range(classes) if counts[k] == 0]
        raise CmlibError(f"the support set holds no sample of class {missing[0]} (of {classes} classes)")
    return (one_hot.T @ e) / counts.unsqueeze(1)  # [K, E]


def log_probabilities(e: Tensor, c: Tensor, kind: str = "euclidean") -> Tensor:
    """Log of the softmax over minus the distances (eq. 2). [B, E], [K, E] -> [B, K]

    Built in chapter 3, again in chapter 4, eq. 2.
    """
    return F.log_softmax(-distances(e, c, kind), dim=-1)


def centroid_loss(e: Tensor, c: Tensor, y: Tensor, kind: str = "euclidean") -> Tensor:
    """Minus the log probability of the true class, averaged over the batch (eq. 3). -> scalar

    Built in chapter 4, eq. 3.
    """
    return F.nll_loss(log_probabilities(e, c, kind), y)


def drift(past: Tensor, current: Tensor, of: Tensor | None = None) -> Tensor:
    """How far embeddings have moved (eq. 4): mean over past tasks of the mean Euclidean distance.

    past, current: [t, B, E], the embeddings of one batch by the heads of the t past tasks, before and now. of: bool [B], the
    samples that count; None for all. -> scalar

    Built in chapter 4, eq. 4.
    """
    apart = safe_norm(past - current)  # [t, B]
    return apart.mean() if of is None else (apart * of).sum() / (len(past) * of.sum())


def predict(e: Tensor, c: Tensor, kind: str = "euclidean") -> Tensor:
    """The class with the nearest centroid (eq. 6). [B, E], [K, E] -> [B]

    Built in chapter 3, again in chapter 4, eq. 6.
    """
    return distances(e, c, kind).argmin(-1)
