"""What chapter 13 says, where the paper's numbers or the committed runs can decide it; and its first picture."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cmlib as cm
from cmlib.centroids import log_probabilities
from cmlib.reproduction import paper, snapshots
from cmlib.store import FINISHED, Run, committed

BOOK = Path(__file__).resolve().parents[2] / "book"
LAMS = (0.01, 0.1, 1, 10, 100)
CELLS = json.loads((BOOK / "13_lambda.ipynb").read_text(encoding="utf-8"))["cells"]
TEXT = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")


def printed(scenario: str, lam: float, metric: str = "accuracy") -> float:
    return paper.printed_table(6)[paper.Place("cifar10", scenario, "cm", f"lam={lam:g}", metric)].mean


def runs(scenario: str, **options: Any) -> dict[int, Run]:
    found = committed().find(cm.Experiment("digits", scenario, "cm", **options), any_seed=True)
    return {run.seed: run for run in found if run.seed < 3}


def test_the_first_picture_holds_the_printed_numbers() -> None:
    svg = re.findall(r"<svg.*?</svg>", TEXT, re.DOTALL)[0]
    marks = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="6"/>', svg)]
    wanted = [(lam, printed(scenario, lam)) for scenario in ("til", "cil") for lam in LAMS]
    assert len(marks) == len(wanted)
    for (x, y), (lam, accuracy) in zip(marks, wanted, strict=True):
        assert abs(x - (60 + 120 * (math.log10(lam) + 2))) <= 0.5 and abs(y - (224 - 1.9 * accuracy)) <= 0.5


def test_learning_accuracies_that_follow_from_the_printed_table() -> None:
    assert paper.just_learned(printed("til", 0.1), printed("til", 0.1, "bwt_final"), 5) == pytest.approx(98.542)
    row = [paper.just_learned(printed("cil", lam), printed("cil", lam, "bwt_final"), 5) for lam in LAMS]
    assert row == sorted(row, reverse=True) and round(row[0]) == 94 and round(row[-1]) == 29  # "in CIL plasticity falls"
    til = [paper.just_learned(printed("til", lam), printed("til", lam, "bwt_final"), 5) for lam in LAMS]
    assert [round(one, 1) for one in til[3:]] == [59.6, 59.6]


def test_no_task_pulls_harder_than_two() -> None:
    g = torch.Generator().manual_seed(0)
    for classes in (2, 5, 10):
        for scale in (0.01, 1.0, 30.0):
            e = (scale * torch.randn(500, 6, generator=g, dtype=torch.float64)).requires_grad_()
            c, y = torch.randn(classes, 6, generator=g, dtype=torch.float64), torch.arange(500) % classes
            log_p = log_probabilities(e, c)[torch.arange(500), y]
            (slope,) = torch.autograd.grad(-log_p.sum(), e)
            assert (slope.norm(dim=1) <= 2 * (1 - log_p.exp()) + 1e-12).all()


def test_what_the_runs_show() -> None:
    til, cil = ({lam: runs(scenario, lam=lam) for lam in LAMS} for scenario in ("til", "cil"))
    assert all(len(some) == 3 for some in (*til.values(), *cil.values()))
    for lam in LAMS:
        for run in til[lam].values():
            assert (run.status == FINISHED) == (lam <= 1)
            if run.status == FINISHED:
                assert run.learning_accuracy > 97  # no finished run lost plasticity
            else:
                assert "(task 2, " in run.status  # within task 2
        assert all(run.status == FINISHED for run in cil[lam].values())
    assert all(til[1][seed].bwt_final < til[0.1][seed].bwt_final for seed in range(3))  # a stronger hold forgets more
    learned = [sum(run.learning_accuracy for run in cil[lam].values()) / 3 for lam in (0.1, 1, 10)]
    assert learned[0] > learned[1] + 20 and learned[1] > learned[2] + 10  # in CIL plasticity goes first
    assert sum(run.bwt_final for run in cil[1].values()) > 0


def test_what_the_penalty_is_worth() -> None:
    """With the usual weight against none, seed by seed: much in TIL, nothing to be seen in CIL, a little with both mends."""

    def gains(scenario: str, **options: Any) -> list[float]:
        wanted = cm.Experiment("digits", scenario, "cm", **options)
        found = (committed().find(wanted.but(lam=lam), any_seed=True) for lam in (0.1, 0))
        usual, bare = ({run.seed: run for run in runs} for runs in found)
        return [usual[seed].accuracy - bare[seed].accuracy for seed in sorted(usual.keys() & bare.keys())]

    til, cil, mended = gains("til"), gains("cil"), gains("cil", cil_loss="both", scale_start="near_one")
    assert len(til) == len(cil) == len(mended) == 5
    assert min(til) > 5  # for every seed
    assert sum(cil) < 0 and sum(gain > 0 for gain in cil) == 1  # nothing that these seeds could show
    assert 0 < sum(mended) < sum(til) and sum(gain > 0 for gain in mended) == 4


def test_a_task_can_fall_to_exactly_fifty_with_lambda_one_and_seeds_do_not_agree() -> None:
    ends = {seed: run.R[-1][0] for seed, run in runs("til", lam=1.0).items()}
    assert ends[0] == 50.0 and (ends[1] or 0) > 90
    known = [run.R_task_known for run in runs("cil", lam=100.0).values()]
    assert sum(R is not None and R[-1][:4] == [50.0] * 4 for R in known) >= 1


def test_with_lambda_one_the_images_of_both_classes_lie_in_one_place() -> None:
    found = snapshots.find(cm.Experiment("digits", "til", "cm", seed=0, lam=1.0), "task1", [committed()])
    assert found is not None
    first, last = found[1][0], found[1][-1]
    apart = [float(np.linalg.norm(np.subtract(*(one.points[one.labels == k].mean(0) for k in (0, 1))))) for one in (first, last)]
    assert apart[1] < apart[0] / 4


def test_runs_that_ignore_the_weight_are_those_of_weight_one() -> None:
    for scenario in ("til", "cil"):
        ignored, one = runs(scenario, drift_weight="one"), runs(scenario, lam=1.0)
        assert ignored.keys() == one.keys() and all(ignored[seed].R == one[seed].R for seed in one)
    unused = runs("til", drift_weight="one", drift_sum="sum")
    default = runs("til")
    assert len(unused) == 3 and all(unused[seed].accuracy < default[seed].accuracy for seed in unused)
