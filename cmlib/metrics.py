"""Accuracy, backward transfer and forgetting from the accuracy matrix R (paper, section 5.1, "Metrics").

R is [N, N] in percent: row i holds the accuracies after task i, column j those on task j. Entries above the diagonal are not
measured (NaN). Every function takes anything numpy can read and returns a float in percent (or percentage points).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def _matrix(R: ArrayLike) -> NDArray[np.float64]:
    matrix = np.asarray(R, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise ValueError(f"R must be a square matrix [N, N], got shape {list(matrix.shape)}")
    return matrix


def accuracy(R: ArrayLike) -> float:
    """Mean accuracy over all tasks after the last one: the mean of the last row.

    Built in chapter 2 (paper, section 5.1).
    """
    return float(_matrix(R)[-1].mean())


def bwt(R: ArrayLike) -> float:
    """Backward transfer by the paper's formula: the mean of R[i, j] - R[j, j] over ALL i > j. NaN for a single task.

    Built in chapter 2 (paper, section 5.1).
    """
    matrix = _matrix(R)
    i, j = np.tril_indices(len(matrix), k=-1)
    return float((matrix[i, j] - matrix[j, j]).mean()) if len(i) else math.nan


def bwt_final(R: ArrayLike) -> float:
    """Backward transfer after the last task only: the mean of R[N, j] - R[j, j] over j < N. NaN for a single task.

    This is what the paper's tables (and Avalanche's `StreamBWT`) hold, although the paper prints the formula of `bwt`.

    Built in chapter 2.
    """
    matrix = _matrix(R)
    return float((matrix[-1, :-1] - np.diag(matrix)[:-1]).mean()) if len(matrix) > 1 else math.nan


def learning_accuracy(R: ArrayLike) -> float:
    """Mean accuracy on each task right after it was learned: the mean of the diagonal.

    Built in chapter 2.
    """
    return float(np.diag(_matrix(R)).mean())


def forgetting(R: ArrayLike) -> float:
    """How far old tasks end below their best: the mean over j < N of max_{j <= i < N} R[i, j] - R[N, j]. NaN for a single task.

    It is never below -`bwt_final`, and equal to it where every old task was at its best right after it was learned
    (Chaudhry et al., 2018).

    Built in chapter 2.
    """
    matrix = _matrix(R)
    falls = [matrix[j:-1, j].max() - matrix[-1, j] for j in range(len(matrix) - 1)]
    return float(np.mean(falls)) if falls else math.nan


def incremental_accuracy(R: ArrayLike) -> float:
    """Average incremental accuracy: the mean over all moments i of the mean accuracy on the tasks seen so far, R[i, :i + 1].

    Built in chapter 2.
    """
    matrix = _matrix(R)
    return float(np.mean([matrix[i, : i + 1].mean() for i in range(len(matrix))]))
