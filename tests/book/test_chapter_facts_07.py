"""What the pages of chapter 7 state as facts, decided by the printed table, by code or by the committed runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import cmlib as cm
from cmlib.methods import ewc, gem
from cmlib.store import REPEATS, Store
from cmlib.teaching import notebooks
from cmlib.teaching.measured import Measured

BOOK = Path(__file__).parents[2] / "book"
PAGES = notebooks.chapters(["7"], BOOK)


def words(stem: str) -> str:
    """All that a page says, outputs included, on one line."""
    cells = notebooks.read(BOOK / f"{stem}.ipynb").cells
    shown = [o.get("data", {}).get("text/markdown", "") + o.get("text", "") for c in cells for o in c.get("outputs", [])]
    return " ".join(" ".join([*(cell.source for cell in cells if cell.cell_type == "markdown"), *shown]).split())


# -- Naive is not the lowest row of every table ----------------------------------------------------------------------------


def test_the_paper_prints_methods_below_naive() -> None:
    printed = {key[:3]: value.mean for key, value in cm.paper.table1().items() if key[3] == "accuracy"}
    below = {key for key, value in printed.items() if value < printed[(*key[:2], "naive")]}
    assert {("cifar10", "cil", "ewc"), ("cifar10", "cil", "oewc"), ("tiny-imagenet", "til", "gem")} <= below
    assert printed["tiny-imagenet", "til", "gem"] < printed["tiny-imagenet", "til", "naive"] - 5
    assert "Naive is not the lowest row" in words("07_bounds")


def test_nothing_calls_naive_the_lower_bound_of_every_table() -> None:
    texts = [words(path.stem) for path in PAGES] + [path.read_text() for path in BOOK.glob("*.md")]
    texts += [path.read_text() for path in Path(cm.methods.__file__).parent.glob("*.py")]
    assert [text[:80] for text in texts if re.search(r"(lower|upper) bound of every", text, re.IGNORECASE)] == []
    assert "lower bound" not in cm.METHODS["naive"].summary


def test_with_the_first_images_gem_falls_below_naive_on_the_digits_too() -> None:
    shelf = Measured("digits")
    first = {run.seed: run.accuracy for run in shelf.done("til", "gem", exemplars="first")}
    naive = {run.seed: run.accuracy for run in shelf.done("til", "naive") if run.seed in first}
    assert len(first) >= 2 and sum(first.values()) < sum(naive.values())


# -- which Fisher information ----------------------------------------------------------------------------------------------


def test_the_importances_are_those_of_true_labels() -> None:
    """The squared gradients that are kept follow the labels of the data; those of the Fisher information could not."""
    found = {}
    for swapped in (False, True):
        method = cm.fresh(cm.Experiment("digits", "cil", "ewc", profile="smoke"), cm.datasets.load("digits"))
        task = method.scenario.tasks[0]
        method.begin_task(task)
        method.eval()
        if swapped:
            task.y.copy_(1 - task.y)
        for kind in ewc.FISHERS:
            method.option["fisher"] = kind
            found[kind, swapped] = ewc.fisher(method, task)
    for kind in ewc.FISHERS:
        assert not torch.allclose(found[kind, False], found[kind, True], rtol=1e-3)


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
def test_fisher_and_empirical_fisher_of_one_logit(p: float) -> None:
    z = torch.logit(torch.tensor(p, dtype=torch.float64)).requires_grad_()
    slopes = [torch.autograd.grad(F.logsigmoid(sign * z), z)[0] for sign in (1, -1)]
    fisher, empirical = p * slopes[0] ** 2 + (1 - p) * slopes[1] ** 2, slopes[0] ** 2
    assert fisher == pytest.approx(p * (1 - p)) and empirical == pytest.approx((1 - p) ** 2)


def test_the_page_names_the_empirical_fisher() -> None:
    text = words("07_ewc")
    assert "drawn from the model's own answer" in text and "{cite:p}`kunstner2019limitations`" in text
    assert "(the diagonal of the Fisher information)" not in text


# -- GEM's margin ----------------------------------------------------------------------------------------------------------


def nearest(g: torch.Tensor, G: torch.Tensor) -> torch.Tensor:
    return gem.project(g, G, margin=0.0, ridge=0.0)


def test_with_a_margin_the_result_is_sometimes_the_nearest_and_sometimes_not() -> None:
    g, past = torch.tensor([2.0, -0.5]), torch.tensor([[0.0, 1.0]])
    torch.testing.assert_close(gem.project(g, past, 0.25, ridge=0.0), nearest(g, past))
    torch.testing.assert_close(gem.project(g, past, 1.0, ridge=0.0), torch.tensor([2.0, 0.5]))
    assert not torch.allclose(nearest(g, past), torch.tensor([2.0, 0.5]))
    assert re.search(r"3\. Not always\. ", words("07_baselines"))


# -- DER and DER++ ---------------------------------------------------------------------------------------------------------


def test_the_pages_keep_der_and_der_plus_plus_apart() -> None:
    assert "DER matches these scores alone, DER++ the labels as well" in words("07_baselines")
    assert [path.stem for path in PAGES if "and matches both" in words(path.stem)] == []


# -- SS-IL's batches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learned", [1, 2])
def test_a_batch_of_ssil_has_as_many_old_images_as_current_ones(learned: int) -> None:
    method = cm.fresh(cm.Experiment("digits", "cil", "ssil"), cm.datasets.load("digits"))
    for task in method.scenario.tasks[:learned]:
        method.memory.add_task(task.x, task.y, seed=0, task=task.index)
    task = method.scenario.tasks[learned]
    _, y = next(method.batches(task, epoch=0))
    assert int((y < task.classes.start).sum()) == int((y >= task.classes.start).sum()) == method.option["batch_size"]
    assert "leaves that ratio out, and so do we" in words("07_ssil")


# -- the spring of OEWC ----------------------------------------------------------------------------------------------------


def test_momentum_decides_which_spring_is_too_stiff() -> None:
    """A weight on a spring under the real optimizer: it comes back below 2 (1 + momentum), and not above."""
    for stiffness, comes_back in ((3.7, True), (3.9, False)):
        weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.01, momentum=0.9)
        for _ in range(400):
            optimizer.zero_grad()
            (stiffness / 0.02 * weight**2).sum().backward()  # strength x importance = stiffness / (2 x learning rate)
            optimizer.step()
        assert (abs(weight.item()) < 1) == comes_back


def test_whether_a_seed_of_oewc_stops_is_the_cpu_s_doing() -> None:
    """The page says so: the same run stopped on one CPU and ended on another."""
    here, there = (Store(folder) for folder in (BOOK / "results", BOOK / REPEATS))
    asked = [cm.Experiment("digits", "cil", "oewc", seed=seed, profile="digits") for seed in range(5)]
    pairs = [(a.status, b.status) for one in asked for a, b in zip(here.find(one), there.find(one), strict=False)]
    assert any(a != b for a, b in pairs)
    text = words("07_oewc")
    assert "may well end on another" in text and not re.search(r"seed 2, one importance jumps", text)


# -- the strip that the pages share ----------------------------------------------------------------------------------------


def test_a_page_shows_what_the_store_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Measured("digits", seeds=2)
    runs = shelf.done("cil", "er")
    assert [run.seed for run in runs] == [0, 1] and shelf.runs("til", "ssil") == []
    drawing = shelf.matrices("er").data
    assert 'role="img"' in drawing["text/html"] and "Accuracy matrices of ER" in drawing["text/plain"]
    values: dict[str, Any] = shelf.line("er").metadata["cmlib"]["values"]
    assert values["cil_acc"] == pytest.approx(sum(run.accuracy for run in runs) / 2)
    assert "exemplars 3,200" in shelf.keeps("er").data["text/plain"]
    monkeypatch.setattr(shelf, "find", lambda experiment: None)
    shelf._found.clear()
    assert shelf.matrices("er") is None
    assert "TIL: not run yet · CIL: not run yet" in shelf.line("er").data["text/plain"]
    assert "not run yet" in shelf.keeps("er").data["text/plain"]
