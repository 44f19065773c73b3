"""What the tests of the exercise checks share: the one line that a check prints, and an answer that is not written yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cmlib as cm


def said(capsys: pytest.CaptureFixture[str], check: Callable[[Any], object], answer: Any) -> str:
    """The one line that a check prints about an answer; it returns nothing that a notebook would show."""
    assert check(answer) is None
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    return lines[0]


def line_of(capsys: pytest.CaptureFixture[str], exercise: str, answer: Any) -> str:
    """The one line about an answer to an exercise, as "09_2"."""
    return said(capsys, getattr(cm.checks, f"ch{exercise}"), answer)


def not_written(*_: Any) -> Any:
    """A stub."""
    raise NotImplementedError
