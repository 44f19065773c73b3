"""How a check is written: a function that takes the reader's answer and asserts, test by test.

    @exercise("4.2", hint="...")
    def ch04_2(answer, test):
        test.shape("distances", answer(e, c), (5, 3))
        test.close("distances of the toy case", answer(e, c), expected)

`exercise` turns it into what the reader calls: it runs the tests in order, stops at the first that fails, prints one line and
returns None. The first failure says what is wrong, the second and every later one adds the hint. An answer that raises is
reported like a wrong one; a bare `NotImplementedError` (or `...`) is `not started`: torch's own come with a message. Where a
student has asked for it (`record`), each try is noted in a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from cmlib.teaching import handin

failures: Counter[str] = Counter()  # of each exercise since its last success or since it was begun
LATER = "A hint comes with the next try"


class NotYet(Exception):
    """A test that the answer did not pass, in words."""


class Test:
    """Counts tests and says in words what was expected and what came."""

    def __init__(self) -> None:
        self.count = 0

    def true(self, condition: bool, otherwise: str) -> None:
        """One test; `otherwise` says what is wrong when it fails."""
        if not bool(condition):
            raise NotYet(otherwise)
        self.count += 1

    def shape(self, what: str, value: Any, expected: tuple[int, ...]) -> Tensor:
        """The value is a tensor of this shape."""
        if not isinstance(value, Tensor):
            raise NotYet(f"{what} must be a tensor, got {type(value).__name__}")
        self.true(tuple(value.shape) == expected, f"{what} must have shape {list(expected)}, got {list(value.shape)}")
        return value

    def close(self, what: str, value: Any, expected: Any, tolerance: float = 1e-4) -> None:
        """The value equals the expected one, number or tensor, within a tolerance."""
        wanted = torch.as_tensor(expected, dtype=torch.float64)
        if not isinstance(value, Tensor | int | float):
            raise NotYet(f"{what} must be a number or a tensor, got {type(value).__name__}")
        got = torch.as_tensor(value).detach().to(torch.float64)
        if got.shape != wanted.shape:
            raise NotYet(f"{what} must have shape {list(wanted.shape)}, got {list(got.shape)}")
        good = torch.allclose(got, wanted, rtol=tolerance, atol=tolerance)
        self.true(good, f"{what} should be {_short(wanted)}, got {_short(got)}")

    def listed(self, given: Any, count: int, entries: str = "numbers") -> list[Any]:
        """The answer is a list of so many entries; a tuple, an array and a tensor will do."""
        values = plain(given)
        self.true(isinstance(values, list | tuple), f"the answer must be a list, got {type(given).__name__}")
        self.true(len(values) == count, f"the list must have {count} {entries}, got {len(values)}")
        return [plain(value) for value in values]

    def numbers(self, given: Any, count: int, entries: str = "numbers") -> list[float]:
        """The answer is a list of so many numbers."""
        values = self.listed(given, count, entries)
        good = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        self.true(good, f"the list must hold numbers, got {values}")
        return [float(value) for value in values]

    def whole(self, given: Any, count: int, otherwise: str, entries: str = "numbers") -> list[int]:
        """The answer is a list of so many whole numbers."""
        values = self.listed(given, count, entries)
        good = all(isinstance(value, int | float) and float(value).is_integer() for value in values)
        self.true(good, f"{otherwise}, got {values}")
        return [int(value) for value in values]

    def no_slip(self, slips: Mapping[str, Any], alike: Callable[[Any], Any], words: str = "it looks as if ") -> None:
        """A test for each mistake that is easily made: its result, which stands beside its words, is not `alike` the answer."""
        for slip, result in slips.items():
            self.true(not alike(result), words + slip)

    def equals(self, what: str, got: Tensor, wanted: Tensor, slips: Mapping[str, Tensor], before: str = "") -> None:
        """A test for each mistake that is easily made and gives another tensor, and one for the value itself."""

        def slipped(slip: Tensor) -> bool:
            return torch.allclose(got, slip, atol=1e-5) and not torch.allclose(slip, wanted, atol=1e-4)

        self.no_slip(slips, slipped, f"{before}it looks as if ")
        self.close(what, got, wanted)

    def gradient(self, what: str, value: Any, source: Tensor) -> Tensor:
        """The value has a finite gradient with respect to `source`."""
        if not isinstance(value, Tensor) or not value.requires_grad:
            raise NotYet(f"{what} has no gradient: is something detached?")
        (gradient,) = torch.autograd.grad(value.sum(), source, allow_unused=True)
        self.true(gradient is not None, f"no gradient of {what} reaches the input")
        self.true(bool(torch.isfinite(gradient).all()), f"the gradient of {what} is not finite")
        return gradient


def exercise(number: str, hint: str) -> Callable[[Callable[[Any, Test], None]], Callable[[Any], None]]:
    """Make a check of a function of tests; see the module's text."""

    def wrap(tests: Callable[[Any, Test], None]) -> Callable[[Any], None]:
        def check(answer: Any) -> None:
            print(verdict(answer, tests, number, hint))

        check.__name__, check.__doc__ = tests.__name__, tests.__doc__
        return check

    return wrap


def verdict(answer: Any, tests: Callable[[Any, Test], None], number: str, hint: str) -> str:
    """Run the tests of one exercise and say the outcome in one line: a failure with the hint from the second on."""
    test = Test()
    try:
        if answer is None or answer is ...:
            raise NotImplementedError
        tests(answer, test)
    except NotYet as wrong:
        problem = str(wrong)
    except Exception as error:
        if type(error) is NotImplementedError and not str(error):
            failures.pop(number, None)
            return f"{number}: not started"
        problem = f"your answer raised {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if isinstance(error, TypeError) and "NoneType" in problem:
            problem += "; None is what a function without `return` gives"
    else:
        failures.pop(number, None)
        handin.note(number, True, test.count)
        return f"OK {number} ({test.count} tests)"
    failures[number] += 1
    handin.note(number, False, 0)
    return f"Not yet {number}: {problem}. {f'Hint: {hint}' if failures[number] > 1 else LATER}"


def slip_in(slips: Mapping[str, Any], alike: Callable[[Any], Any], before: str = "") -> str:
    """The words of the first mistake whose result is `alike` the answer; empty when there is none."""
    return next((before + words for words, result in slips.items() if alike(result)), "")


def returned(value: Any, otherwise: str = "is `return` missing?") -> Any:
    """What the reader's function gave back, which is not None; `otherwise` says what to return."""
    if value is None:
        raise NotYet(f"your function returns nothing; {otherwise}")
    return value


def plain(value: Any) -> Any:
    """An array, a tensor or a scalar of one of these as Python's own numbers; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def numbers(what: str, value: Any, count: int) -> list[float]:
    """A tuple, list, array or tensor of `count` numbers."""
    try:
        found = [float(number) for number in value]
    except (TypeError, ValueError):
        raise NotYet(f"{what} must be {count} numbers, got {type(value).__name__}") from None
    if len(found) != count:
        raise NotYet(f"{what} must be {count} numbers, got {len(found)}")
    return found


def _short(value: Tensor) -> str:
    numbers = [f"{number:.4g}" for number in value.flatten()[:6].tolist()]
    return numbers[0] if value.ndim == 0 else "[" + ", ".join(numbers) + (", ...]" if value.numel() > 6 else "]")
