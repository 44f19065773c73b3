"""Double precision, in which one CPU computes what another does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch


@contextmanager
def double_precision() -> Iterator[None]:
    """All that would be drawn or computed in single precision is so in double precision: new tensors, and `.float()`.

    Also the first weights: normal draws in single precision differ in the seventh digit between instruction sets, which makes
    the third digit of a loss after ten steps.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)
