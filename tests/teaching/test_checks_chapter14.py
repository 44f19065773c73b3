"""The checks of chapter 14: right answers pass, typical wrong ones get the right words, nothing raises."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import pytest
import torch
from answers import not_written, said

from cmlib.reproduction import tables
from cmlib.reproduction.paper import Printed
from cmlib.teaching import checks

Answer = Callable[..., Any]
RIGHT_1 = ["holds", "too few runs", "does not hold", "does not hold", "too few runs"]


def right_2(printed: float, sd: float | None, values: list[float]) -> str:
    return tables.verdict(Printed(printed, sd), values, 0, "cifar10", "paper")


def right_3(embeddings: Any, centroids: Any, projectors: Any) -> Any:
    return projectors[-1](embeddings[-1]), projectors[-1](torch.cat(list(centroids)))


def as_coded(embeddings: Any, centroids: Any, projectors: Any) -> Any:
    through = [project(e) for project, e in zip(projectors, embeddings, strict=True)]
    return torch.stack(through).mean(0), torch.cat([p(c) for p, c in zip(projectors, centroids, strict=True)])


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_stub_is_not_started(capsys: pytest.CaptureFixture[str], k: int) -> None:
    assert said(capsys, getattr(checks, f"ch14_{k}"), not_written) == f"14.{k}: not started"


def test_right_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (RIGHT_1, tuple(RIGHT_1)):
        assert said(capsys, checks.ch14_1, lambda words=words: words) == "OK 14.1 (12 tests)"
    for k, right in ((2, right_2), (3, right_3)):
        line = said(capsys, getattr(checks, f"ch14_{k}"), right)
        assert line.startswith(f"OK 14.{k} (") and int(line.split("(")[1].split()[0]) >= 5


def changed(k: int, word: str) -> Answer:
    return lambda: [*RIGHT_1[:k], word, *RIGHT_1[k + 1 :]]


def by(printed: float, sd: float | None, values: list[float], spread: Answer = statistics.pstdev, **other: Any) -> str:
    """The right verdict with a mistake: another spread of ours, or other limits."""
    rules = {"one": True, "enough": 3, "without": 3.0, "least": 1.0, "alone": 1.0, "times": 2.0, "adds": False, "theirs": 1.0}
    rules |= {"edge": True, "wide": False, "less": 1, "whole": False} | other
    if not values:
        return "not run yet"
    mean, n = statistics.fmean(values), len(values)
    if n == 1 and sd is not None and rules["one"]:
        limit = max(rules["alone"], 2 * sd)
        near = abs(mean - printed) <= limit if rules["edge"] else abs(mean - printed) < limit
        return "inside (one run)" if near else "outside (one run)"
    if n < rules["enough"]:
        return "too few runs"
    ours = spread(values) if n > 1 else 0.0
    theirs = (sd or 0.0) * rules["theirs"]
    if not rules["whole"]:
        ours, theirs = ours / max(n - rules["less"], 1) ** 0.5, theirs / (5 - rules["less"]) ** 0.5
    both = theirs + ours if rules["adds"] else (theirs**2 + ours**2) ** 0.5
    allowed = max(rules["least"], rules["times"] * both)
    if sd is None and rules["without"]:
        allowed = max(rules["without"], allowed) if rules["wide"] else rules["without"]
    return "agrees" if abs(mean - printed) <= allowed else "differs"


def slip(**mistake: Any) -> Answer:
    return lambda printed, sd, values: by(printed, sd, values, **mistake)


def adding(values: list[float]) -> str:
    values.append(0.0)
    return "too few runs"


WRONG: dict[str, list[tuple[Answer, str]]] = {
    "14_1": [
        (changed(0, "does not hold"), "case (a): one seed on the other side does not decide"),
        (changed(0, "too few runs"), "case (a): 'too few runs' is not the verdict"),
        (changed(1, "holds"), "case (b): B has two seeds only"),
        (changed(2, "holds"), "case (c): subtract within the seeds that both have"),
        (changed(3, "holds"), "case (d): a mean gap of 0 is not above 0"),
        (changed(4, "holds"), "case (e): a run that stopped has no accuracy"),
        (changed(4, "stopped"), "case (e): 'stopped' is no verdict; allowed: holds, does not hold, too few runs"),
        (lambda: RIGHT_1[:4], "must have 5 words, one a case, got 4"),
        (lambda: "holds", "must be a list of words, got str"),
        (lambda: 1 // 0, "your answer raised ZeroDivisionError"),
    ],
    "14_2": [
        (lambda p, s, v: None, "a verdict is a word, got NoneType"),
        (lambda p, s, v: "agrees", "ours none: 'not run yet' is expected, got 'agrees'"),
        (slip(one=False), "'inside (one run)' is expected, got 'too few runs'"),
        (slip(edge=False), "ours 84: 'inside (one run)' is expected, got 'outside (one run)'"),
        (slip(alone=0.0), "ours 80.9: 'inside (one run)' is expected, got 'outside (one run)'; it looks as if the point that is"),
        (slip(one=False, enough=1), "'inside (one run)' is expected, got 'differs'; it looks as if one or two runs were enough"),
        (slip(enough=2), "'too few runs' is expected, got 'agrees'; it looks as if one or two runs were enough"),
        (slip(spread=lambda v: 0.0), "it looks as if our spread was left out"),
        (slip(theirs=0.0), "it looks as if the printed spread was left out"),
        (slip(adds=True), "it looks as if the two errors were added"),
        (slip(spread=lambda v: statistics.stdev(v)), "it looks as if our sd is that of a sample"),
        (slip(times=1.0), "it looks as if one error is allowed"),
        (slip(least=0.0), "it looks as if the point that is always allowed was forgotten"),
        (slip(least=3.0), "it looks as if three points are allowed beside a printed sd"),
        (slip(without=0.0), "it looks as if nothing is allowed where no sd is printed"),
        (slip(wide=True), "it looks as if our spread counts where no sd is printed"),
        (slip(whole=True), "it looks as if the deviations were not divided by the root of n - 1"),
        (slip(less=0), "it looks as if they were divided by the root of n, not of n - 1"),
        (lambda p, s, v: right_2(p, s or None, v), "printed 80 ± 0, ours 82, 82.1, 82.2: 'differs' is expected, got 'agrees'"),
        (lambda p, s, v: adding(v) if len(v) == 2 else right_2(p, s, v), "must stay as they are"),
        (lambda p, s, v: v[7], "your answer raised IndexError"),
    ],
    "14_3": [
        (as_coded, "each embedding went through its own projector"),
        (lambda e, c, p: (right_3(e, c, p)[0] * len(p), right_3(e, c, p)[1]), "the sum was not divided by the number of tasks"),
        (lambda e, c, p: (p[-1](torch.stack(e).mean(0)), right_3(e, c, p)[1]), "all embeddings were averaged"),
        (lambda e, c, p: (torch.stack([p[-1](one) for one in e]).mean(0), right_3(e, c, p)[1]), "by eq. 8 p_i contains e_i"),
        (lambda e, c, p: (p[0](e[0]), right_3(e, c, p)[1]), "the first task's projector was taken"),
        (lambda e, c, p: (e[-1], right_3(e, c, p)[1]), "the embedding was not projected"),
        (lambda e, c, p: (right_3(e, c, p)[0], as_coded(e, c, p)[1]), "each centroid went through its own projector"),
        (lambda e, c, p: (right_3(e, c, p)[0], torch.cat(c)), "anchors should be"),
        (lambda e, c, p: tuple(one.detach() for one in right_3(e, c, p)), "has no gradient"),
        (lambda e, c, p: right_3(e, c, p)[0], "two tensors are wanted, merged and anchors, got Tensor"),
        (lambda e, c, p: (right_3(e, c, p)[0], right_3(e, c, p)[1][:2]), "anchors must have shape [5, 2], got [2, 2]"),
        (lambda e, c, p: right_3(e, [], p), "your answer raised"),
    ],
}  # fmt: skip
HINTS = {"14_1": "Hint: count the seeds", "14_2": "Hint: no run; one run", "14_3": "Hint: projectors[-1]"}
