"""Checks of chapter 14: a sentence judged by runs, a verdict with its number of runs, equation 7 read to the letter."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cmlib.projectors import make_projector
from cmlib.reproduction import claims, tables
from cmlib.reproduction.paper import Printed
from cmlib.teaching.checks.base import Test, exercise

# -- 14.1 -------------------------------------------------------------------------------------------------------------

CASES = ("a", "b", "c", "d", "e")
WORDS = (claims.HOLDS, claims.FAILS, tables.TOO_FEW)
JUDGED = (claims.HOLDS, tables.TOO_FEW, claims.FAILS, claims.FAILS, tables.TOO_FEW)
WHY_NOT = {  # of each case, what a typical wrong word overlooks
    ("a", claims.FAILS): "one seed on the other side does not decide: the rule asks for the mean of the gaps",
    ("b", claims.HOLDS): "B has two seeds only, whatever their gaps say",
    ("c", claims.HOLDS): "subtract within the seeds that both have, and leave A's other seeds out",
    ("d", claims.HOLDS): "a mean gap of 0 is not above 0",
    ("e", claims.HOLDS): "a run that stopped has no accuracy, so one of its seeds is missing",
}


@exercise("14.1", hint="count the seeds that both have; with three or more, look at the sign of the mean of their gaps")
def ch14_1(answer: Callable[[], Sequence[str]], test: Test) -> None:
    """Five verdicts on "A is better than B", a word each."""
    given = answer()
    test.true(isinstance(given, list | tuple), f"the answer must be a list of words, got {type(given).__name__}")
    test.true(len(given) == len(CASES), f"the list must have {len(CASES)} words, one a case, got {len(given)}")
    for case, word in zip(CASES, given, strict=True):
        test.true(word in WORDS, f"case ({case}): {word!r} is no verdict; allowed: {', '.join(WORDS)}")
    for case, word, right in zip(CASES, given, JUDGED, strict=True):
        why = WHY_NOT.get((case, word), f"{word!r} is not the verdict")
        test.true(word == right, f"case ({case}): {why}")


# -- 14.2 -------------------------------------------------------------------------------------------------------------

Verdict = Callable[[float, float | None, list[float]], str]


@exercise("14.2", hint="no run; one run with a printed sd; fewer than three; then the gap of the means against what is allowed")
def ch14_2(answer: Verdict, test: Test) -> None:
    """verdict(printed, sd, values) -> the word that the report prints beside a number."""
    possible = list(SLIPS)
    for mean, sd, values in [*EDGES, *_draws()]:
        given = list(values)
        got = answer(mean, sd, given)
        what = (
            f"printed {mean:g}{'' if sd is None else f' ± {sd:g}'}, ours {', '.join(f'{value:g}' for value in values) or 'none'}"
        )
        test.true(isinstance(got, str), f"{what}: a verdict is a word, got {type(got).__name__}")
        right = tables.verdict(Printed(mean, sd), values, 0, "cifar10", "paper")
        slips = _slips(mean, sd, values, right)
        possible = [name for name in possible if got in slips.get(name, {right})]  # and all before
        looks = f"; it looks as if {possible[0]}" if len(possible) == 1 else ""
        test.true(got == right, f"{what}: {right!r} is expected, got {got!r}{looks}")
        test.true(given == values, "the values that were given must stay as they are")


EDGES: list[tuple[float, float | None, list[float]]] = [
    (80.0, 2.0, []),
    (80.0, 2.0, [83.5]),
    (80.0, 2.0, [84.5]),
    (80.0, 2.0, [75.5]),
    (80.0, 2.0, [84.0]),  # on the border
    (80.0, 0.1, [80.9]),  # within a point
    (80.0, None, [81.0]),
    (80.0, 2.0, [80.0, 80.0]),
    (80.0, 0.1, [80.5, 80.8, 80.9]),  # within a point; from here on each case is wrong by one slip more
    (80.0, 0.1, [78.0, 82.0, 86.0]),  # within our own error
    (80.0, 0.1, [79.0, 83.0, 87.0]),  # within two of them, not one
    (80.0, 0.1, [80.0, 84.0, 88.0]),  # over the root of n - 1, not of n
    (80.0, 4.0, [81.9, 82.0, 82.1]),  # within the printed error
    (80.0, 2.0, [83.0, 84.0, 85.0]),  # inside both deviations, outside both errors
    (80.0, 0.1, [82.3, 82.5, 82.7]),  # within three points, which count without a printed sd alone
    (80.0, 2.0, [81.7, 82.7, 83.7]),  # inside twice the sum, outside twice the root of the squares
    (80.0, 2.0, [81.4, 82.4, 83.4]),  # our sd is that of the population
    (80.0, None, [82.0, 83.0, 83.5]),
    (80.0, None, [76.0, 83.5, 91.0]),  # three points, however wide our own spread
    (80.0, None, [82.0, 84.0, 86.0]),
    (80.0, 0.0, [82.0, 82.1, 82.2]),  # a printed sd of 0 is one, too
    (80.0, 2.0, [81.0, 82.0, 83.0]),
    (80.0, 2.0, [85.0, 86.0, 87.0]),
]


def _draws() -> list[tuple[float, float | None, list[float]]]:
    draws = random.Random(14)
    return [
        (
            round(draws.uniform(20, 90), 2),
            draws.choice((None, round(draws.uniform(0, 5), 2))),
            [round(draws.gauss(60, 12), 2) for _ in range(draws.randint(0, 5))],
        )
        for _ in range(40)
    ]


SLIPS = (
    ONE := "one or two runs were enough to agree or to differ",
    ONE_ALONE := "the point that is always allowed was forgotten for one run",
    NOTHING := "nothing is allowed where no sd is printed",
    WIDE := "our spread counts where no sd is printed; exactly three points are allowed there",
    THREE := "three points are allowed beside a printed sd, too",
    OURS := "our spread was left out",
    THEIRS := "the printed spread was left out",
    WHOLE := "the deviations were not divided by the root of n - 1",
    N := "they were divided by the root of n, not of n - 1",
    SUM := "the two errors were added, not their squares",
    SAMPLE := "our sd is that of a sample, not of the population",
    SINGLE := "one error is allowed, not two",
    POINT := "the point that is always allowed was forgotten",
)


def _slips(mean: float, sd: float | None, values: Sequence[float], right: str) -> dict[str, set[str]]:
    """What typical mistakes may say, where they matter; all others say what is right."""
    n = len(values)
    if not n:
        return {}
    apart, word = abs(statistics.fmean(values) - mean), {True: tables.AGREES, False: tables.DIFFERS}
    if n < tables.ENOUGH:
        alone = {ONE_ALONE: {tables.INSIDE if apart <= 2 * sd else tables.OUTSIDE}} if n == 1 and sd is not None else {}
        return {ONE: {tables.AGREES, tables.DIFFERS, right}, **alone}
    spread, root = statistics.pstdev(values), math.sqrt(n - 1)
    if sd is None:
        allowed = {NOTHING: max(1, 2 * spread / root), WIDE: max(3, 2 * spread / root)}
    else:
        theirs, ours = sd / 2, spread / root
        both = 2 * math.hypot(theirs, ours)
        allowed = {
            THREE: max(3, both),
            OURS: max(1, 2 * theirs),
            THEIRS: max(1, 2 * ours),
            WHOLE: max(1, 2 * math.hypot(sd, spread)),
            N: max(1, 2 * math.hypot(sd / math.sqrt(5), spread / math.sqrt(n))),
            SUM: max(1, 2 * (theirs + ours)),
            SAMPLE: max(1, 2 * math.hypot(theirs, statistics.stdev(values) / root)),
            SINGLE: max(1, both / 2),
            POINT: both,
        }
    return {name: {word[apart <= limit]} for name, limit in allowed.items()}


# -- 14.3 -------------------------------------------------------------------------------------------------------------

Merged = Callable[[list[Tensor], list[Tensor], nn.ModuleList], tuple[Tensor, Tensor]]


@exercise(
    "14.3", hint="projectors[-1] belongs to the current task i; the image goes through e_i and pi_i, every centroid through pi_i"
)
def ch14_3(answer: Merged, test: Test) -> None:
    """to_the_letter(embeddings, centroids, projectors) -> merged [B, E] and anchors [K, E] as eq. 7 is printed."""
    g = torch.Generator().manual_seed(14)
    for tasks, size in itertools.product((2, 3, 5), (2, 6)):
        with torch.random.fork_rng():
            torch.manual_seed(tasks)
            projectors = nn.ModuleList(make_projector("scale_translate", size) for _ in range(tasks))
        embeddings = [torch.randn(4, size, generator=g) for _ in range(tasks)]
        centroids = [torch.randn(2 + i % 2, size, generator=g) for i in range(tasks)]
        _letter(answer, embeddings, centroids, projectors, test, f"{tasks} tasks, E = {size}")


def _letter(
    answer: Merged, embeddings: list[Tensor], centroids: list[Tensor], projectors: nn.ModuleList, test: Test, what: str
) -> None:
    got: Any = answer(list(embeddings), list(centroids), projectors)
    pair = isinstance(got, tuple | list) and len(got) == 2
    test.true(pair, f"{what}: two tensors are wanted, merged and anchors, got {type(got).__name__}")
    E, t = embeddings[0].shape[1], len(projectors)
    merged = test.shape(f"{what}: merged", got[0], (len(embeddings[0]), E))
    anchors = test.shape(f"{what}: anchors", got[1], (sum(map(len, centroids)), E))
    last = projectors[-1]
    own = [project(e) for project, e in zip(projectors, embeddings, strict=True)]
    slips = {
        "each embedding went through its own projector, which is what the code does": torch.stack(own).mean(0),
        "the sum was not divided by the number of tasks": last(embeddings[-1]) * t,
        "all embeddings were averaged; e_j is in no term, for x stands inside p_i": last(torch.stack(embeddings).mean(0)),
        "the terms are p_i of each task's embedding; by eq. 8 p_i contains e_i": torch.stack([last(e) for e in embeddings]).mean(
            0
        ),
        "the first task's projector was taken": projectors[0](embeddings[0]),
        "the embedding was not projected": embeddings[-1],
    }
    wrong = f"{what}: merged is not eq. 7 as printed; it looks as if "
    test.no_slip(slips, lambda slip: torch.allclose(merged, slip, atol=1e-5), wrong)
    test.close(f"{what}: merged", merged, last(embeddings[-1]).detach())
    through_own = torch.cat([project(c) for project, c in zip(projectors, centroids, strict=True)])
    same = torch.allclose(anchors, through_own, atol=1e-5)
    test.true(not same, f"{what}: each centroid went through its own projector; eq. 7 writes p_i for all of them")
    test.close(f"{what}: anchors", anchors, last(torch.cat(centroids)).detach())
    test.gradient(f"{what}: anchors", anchors, next(last.parameters()))
