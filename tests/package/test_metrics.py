"""Forgetting and the average incremental accuracy: by hand, against slow loops, and beside the backward transfers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cmlib import metrics

NAN = math.nan
BY_HAND = [[90, NAN, NAN], [96, 80, NAN], [30, 50, 100]]  # the first task is at its best after the second


def drawn(seed: int, n: int) -> np.ndarray:
    """An accuracy matrix with nothing above the diagonal."""
    R = np.random.default_rng(seed).uniform(0, 100, (n, n))
    R[np.triu_indices(n, 1)] = NAN
    return R


def test_forgetting_is_measured_from_the_best_earlier_value() -> None:
    assert metrics.forgetting(BY_HAND) == pytest.approx(((96 - 30) + (80 - 50)) / 2)
    assert metrics.bwt_final(BY_HAND) == pytest.approx(((30 - 90) + (50 - 80)) / 2)
    assert metrics.forgetting(BY_HAND) != pytest.approx(-metrics.bwt_final(BY_HAND))


def test_forgetting_can_be_below_zero_but_not_below_minus_the_final_transfer() -> None:
    assert metrics.forgetting([[50, NAN], [80, 90]]) == -30 == -metrics.bwt_final([[50, NAN], [80, 90]])


@pytest.mark.parametrize("seed", range(30))
def test_forgetting_against_loops(seed: int) -> None:
    n = 2 + seed % 7
    R = drawn(seed, n)
    falls = [max(R[i, j] for i in range(j, n - 1)) - R[n - 1, j] for j in range(n - 1)]
    assert metrics.forgetting(R) == pytest.approx(sum(falls) / (n - 1))
    assert metrics.forgetting(R) >= -metrics.bwt_final(R) - 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_both_are_one_where_columns_only_fall(seed: int) -> None:
    R = drawn(seed, 5)
    for j in range(5):
        R[j:, j] = np.sort(R[j:, j])[::-1]
    assert metrics.forgetting(R) == pytest.approx(-metrics.bwt_final(R))


def test_what_was_never_measured_is_left_out() -> None:
    full = np.array([[90, 99, 99], [96, 80, 99], [30, 50, 100.0]])  # numbers above the diagonal count for nothing
    assert metrics.forgetting(full) == metrics.forgetting(BY_HAND)
    assert metrics.incremental_accuracy(full) == metrics.incremental_accuracy(BY_HAND)


def test_incremental_accuracy_by_hand() -> None:
    assert metrics.incremental_accuracy(BY_HAND) == pytest.approx((90 + (96 + 80) / 2 + (30 + 50 + 100) / 3) / 3)


def test_a_single_task_and_nonsense() -> None:
    assert math.isnan(metrics.forgetting([[80.0]])) and metrics.incremental_accuracy([[80.0]]) == 80
    for measure in (metrics.forgetting, metrics.incremental_accuracy):
        with pytest.raises(ValueError, match="square"):
            measure([[1, 2, 3]])
