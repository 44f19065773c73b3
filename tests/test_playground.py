"""The forgetting playground in Chromium (marker `browser`; no built book is needed): its engine against cmlib in double
precision, against finite differences and against a twin in NumPy; its address; its page, by keyboard and for everyone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playground_twin import Draw, matrix
from test_browser import DESK, Visit, browser
from torch import Tensor, nn

from cmlib import metrics
from cmlib.datasets import load
from cmlib.experiment import Experiment
from cmlib.methods import METHODS
from cmlib.methods.ewc import consolidated, sample_squares
from cmlib.nets import Backbone
from cmlib.plots import playground
from cmlib.scenario import Scenario

__all__ = ["browser"]  # a fixture, found by its name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / playground.PAGE
ADDRESS = PAGE.as_uri()
CASES = [
    *(
        f"method={method}&scenario={scenario}"
        for scenario in ("til", "cil")
        for method in ("naive", "cumulative", "er", "ewc", "cm")
    ),
    "method=cm&scenario=cil&projectors=without",
]


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """The playground alone, opened once: for its engine."""
    with Visit(browser, ADDRESS, viewport=DESK) as visit:
        yield visit.page


# --- files ---------------------------------------------------------------------------------------------------------


def test_the_committed_files_are_what_the_sources_give(tmp_path: Path) -> None:
    assert (ROOT / playground.FOLDER / "digits.js").read_text() == playground.digits_script(), "python -m cmlib.plots.playground"
    assert PAGE.read_text(encoding="utf-8") == playground.page(ROOT / playground.FOLDER), "python -m cmlib.plots.playground"
    assert PAGE.stat().st_size <= playground.MAX_BYTES


def test_the_page_of_the_book_loads_the_same_modules_in_the_same_order() -> None:
    text = (ROOT / "book" / "playground.md").read_text()
    places = [text.index(f"../_static/playground/{name}.js") for name in playground.SCRIPTS]
    assert places == sorted(places) and ":file: _static/playground/body.html" in text


def test_the_digits_are_those_of_scikit_learn_and_of_the_splits_of_cmlib() -> None:
    from sklearn.datasets import load_digits

    pixels, real = playground.digits(), load_digits()
    known = {tuple(row): label for row, label in zip(real.data.astype(int).tolist(), real.target.tolist(), strict=True)}
    assert pixels.shape == (1060, 64)
    assert [known[tuple(row)] for row in pixels.tolist()] == [k for k in range(10) for _ in range(106)]
    test = {tuple(row) for row in (load("digits").x_test.reshape(-1, 64).long() * 16 + 127).floor_divide(255).tolist()}
    assert all((tuple(row) in test) == (k % 106 >= 70) for k, row in enumerate(pixels.tolist()))


def test_no_word_of_the_code_is_the_beginning_of_another_and_frequent_values_have_short_ones() -> None:
    words = playground.code_words({0: 50, 1: 20, 2: 20, 3: 5, 4: 5})
    assert sorted(map(len, words.values())) == [1, 2, 3, 4, 4] and len(words[0]) == 1
    assert not any(a != b and b.startswith(a) for a in words.values() for b in words.values())


# --- the engine against cmlib --------------------------------------------------------------------------------------

# A run in the middle of a task, its next batch, and the loss and gradient there.
STATE = """([hash, task]) => {
  const pg = Playground, run = pg.start(pg.parse(hash).setting);
  while (!(run.learning && run.task === task && run.done === 3 && run.epoch === 1)) pg.step(run);
  const { rows, labels } = run.batches[run.done], x = pg.gather(rows), { loss, gradient } = pg.loss(run, { x, labels });
  const list = (a) => Array.from(a), train = run.tasks[task].train;
  const support = run.tasks[task].support;
  return { layers: Object.values(run.layers).flat().filter((one) => one.name), theta: list(run.theta), past: list(run.past), x: list(x), labels, loss,
    gradient: list(gradient), centroids: run.centroids.map(list), kept: run.kept.map((k) => [list(k.theta), list(k.importance)]),
    support: list(pg.gather(support.rows)), supportLabels: support.labels, setting: run.setting,
    train: { x: list(pg.gather(train.rows)), labels: train.labels },
    importance: run.setting.method === "ewc" ? list(pg.importance(run, { x: pg.gather(train.rows), labels: train.labels })) : [] };
}"""


class Plane(Backbone):
    """The playground's network as a backbone of cmlib: 64 pixels to 32 features, or on to the plane."""

    def __init__(self, plane: bool) -> None:
        super().__init__()
        self.hidden, self.out_features = nn.Linear(64, 32), 2 if plane else 32
        self.embed = nn.Linear(32, 2) if plane else None

    def forward(self, x: Tensor) -> Tensor:
        h = self.hidden(x.flatten(1)).relu()
        return self.embed(h) if self.embed is not None else h


def images(numbers: list[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.double).reshape(-1, 1, 8, 8)


class Side:
    """The same state in cmlib."""

    def __init__(self, state: dict[str, Any], task: int) -> None:
        self.layers, setting = state["layers"], state["setting"]
        name, kind, cm = setting["method"], setting["scenario"], setting["method"] == "cm"
        options: dict[str, Any] = {"head": "linear", "batch_norm": "shared"}
        if cm:
            options |= {"lam": setting["lam"], "embedding_size": 2, "support_size": setting["support"]}
            options |= {"merging": "scale_translate" if setting["projectors"] else "none"}
        if name == "ewc":
            options |= {"strength": setting["strength"], "fisher": "empirical"}
        experiment = Experiment("digits", kind, name, 0, **options)
        scenario = Scenario(load("digits"), kind, 5, 0, support_size=20 if cm else 0)
        self.method = METHODS[name](dict(experiment.options), scenario, Plane(kind == "cil" and not cm))
        self.task = scenario.tasks[task]
        for i in range(task + 1):
            self.method.begin_task(scenario.tasks[i])
        self.method.double()
        self.own = self._places(self.method.backbone, self.method.heads)
        self.fill(self.own, state["theta"])
        if self.method.past is not None:
            self.fill(self._places(self.method.past["backbone"], self.method.past["heads"]), state["past"])
        if cm:
            self.method.support = images(state["support"])
            self.method.support_y = torch.tensor(state["supportLabels"])
            for i, centroids in enumerate(state["centroids"][:task]):
                self.method.centroids[i].copy_(torch.tensor(centroids).reshape(2, 2))
        for i, (theta, importance) in enumerate(state["kept"]):
            for kept, numbers in zip(self.method.kept(i), (theta, importance), strict=True):
                kept.copy_(self.flat(numbers, len(kept)))

    def _places(self, backbone: Any, heads: Any) -> dict[tuple[str, int], nn.Linear]:
        """The linear layers by the playground's names."""
        found = {("hidden", 0): backbone.hidden}
        if backbone.embed is not None:
            found |= {("head", 0): backbone.embed} | {("output", i): head for i, head in enumerate(heads)}
        else:
            found |= {("head", i): head for i, head in enumerate(heads)}
        for i, projector in enumerate(getattr(self.method, "projectors", [])):
            if hasattr(projector, "scale"):
                found |= {("scale", i): projector.scale[1], ("shift", i): projector.shift[1]}
        return found

    def fill(self, places: dict[tuple[str, int], nn.Linear], theta: list[float]) -> None:
        numbers = torch.tensor(theta, dtype=torch.double)
        with torch.no_grad():
            for layer in self.layers:
                if (layer["name"], layer["task"]) in places:
                    module = places[layer["name"], layer["task"]]
                    module.weight.copy_(numbers[layer["at"] : layer["bias"]].reshape(module.weight.shape))
                    module.bias.copy_(numbers[layer["bias"] : layer["bias"] + layer["outputs"]])

    def flat(self, theta: list[float], size: int) -> Tensor:
        """Numbers in the playground's order as cmlib's consolidated vector."""
        places = {id(module): key for key, module in self.own.items()}
        numbers, out = np.array(theta), []
        modules = [
            one for part in (self.method.backbone, self.method.heads) for one in part.modules() if isinstance(one, nn.Linear)
        ]
        for module in modules:
            layer = next(one for one in self.layers if (one["name"], one["task"]) == places[id(module)])
            out.append(numbers[layer["at"] : layer["bias"] + layer["outputs"]])
        return torch.tensor(np.concatenate(out)[:size])

    def gradients(self) -> dict[tuple[str, int], np.ndarray]:
        return {
            key: torch.cat([module.weight.grad.flatten(), module.bias.grad]).numpy()
            for key, module in self.own.items()
            if module.weight.grad is not None
        }


@pytest.mark.browser
@pytest.mark.parametrize("task", [0, 1, 3])
@pytest.mark.parametrize("case", CASES)
def test_losses_and_gradients_are_those_of_cmlib(page: Any, case: str, task: int) -> None:
    state = page.evaluate(STATE, [f"{case}&lr=0.05&epochs=2&lam=0.7&strength=50&support=20&memory=30&seed=3", task])
    side = Side(state, task)
    loss = side.method.loss(images(state["x"]), torch.tensor(state["labels"]), side.task)
    assert loss.item() == pytest.approx(state["loss"], abs=1e-6, rel=1e-9)
    loss.backward()
    found, known = np.array(state["gradient"]), side.gradients()
    touched = 0
    for layer in side.layers:
        mine = found[layer["at"] : layer["bias"] + layer["outputs"]]
        theirs = known.get((layer["name"], layer["task"]), np.zeros_like(mine))
        assert np.abs(mine - theirs).max() <= 1e-6, layer
        touched += bool(np.abs(mine).max() > 1e-5)
    assert touched >= 2  # the comparison is not one of zeros


@pytest.mark.browser
@pytest.mark.parametrize("scenario", ["til", "cil"])
def test_importances_are_those_of_cmlib(page: Any, scenario: str) -> None:
    state = page.evaluate(STATE, [f"method=ewc&scenario={scenario}&lr=0.05&epochs=2", 2])
    side = Side(state, 2)
    labels = torch.tensor(state["train"]["labels"])
    squares = sample_squares(side.method, images(state["train"]["x"]), labels, side.task) / len(labels)
    size = sum(one.numel() for one in consolidated(side.method))
    mine = side.flat(state["importance"], size)
    assert float((squares - mine).abs().max()) <= 1e-9 and float(squares.max()) > 1e-3


@pytest.mark.browser
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_finite_differences(page: Any, case: str) -> None:
    worst, slope = page.evaluate(
        """(hash) => {
      const pg = Playground, run = pg.start(pg.parse(hash).setting), draw = pg.generator(9, 0, 0, "places");
      while (!(run.learning && run.task === 2 && run.done === 3)) pg.step(run);
      const { rows, labels } = run.batches[run.done], batch = { x: pg.gather(rows), labels }, { gradient } = pg.loss(run, batch);
      const moves = [...gradient.keys()].filter((p) => gradient[p] !== 0);
      let worst = 0, slope = 0;
      for (let n = 0; n < 60; n++) {
        const p = n < 30 ? Math.floor(draw() * gradient.length) : moves[Math.floor(draw() * moves.length)], kept = run.theta[p];
        run.theta[p] = kept + 1e-6; const above = pg.loss(run, batch).loss;
        run.theta[p] = kept - 1e-6; const below = pg.loss(run, batch).loss;
        run.theta[p] = kept;
        worst = Math.max(worst, Math.abs((above - below) / 2e-6 - gradient[p]));
        slope = Math.max(slope, Math.abs(gradient[p]));
      }
      return [worst, slope];
    }""",
        f"{case}&lr=0.05&epochs=2&lam=0.7&strength=50",
    )
    assert worst <= 1e-4 and slope > 1e-2


# --- the engine against its twin -----------------------------------------------------------------------------------

SETTINGS = [
    "method=naive&scenario=til&seed=1&lr=0.05",
    "method=naive&scenario=cil&order=seed&seed=5",
    "method=cumulative&scenario=til",
    "method=cumulative&scenario=cil&order=9876543210",
    "method=er&scenario=til&memory=25&seed=2",
    "method=er&scenario=cil&memory=33",
    "method=ewc&scenario=til&strength=200&lr=0.05",
    "method=cm&scenario=til&lam=0.5&support=13&seed=4&lr=0.05",
    "method=cm&scenario=cil&memory=47&lam=0.3&support=21&seed=8",
    "method=cm&scenario=cil&projectors=without&order=seed&seed=6",
]
RUN = """(hash) => {
  const run = Playground.start(Playground.parse(hash).setting);
  while (!run.finished) Playground.step(run);
  return { R: run.R, trouble: run.trouble, setting: run.setting, summary: Playground.summary(run.R) };
}"""


@pytest.mark.browser
@pytest.mark.parametrize("hash", SETTINGS)
def test_the_matrix_is_that_of_the_twin_to_the_last_image(page: Any, hash: str) -> None:
    found = page.evaluate(RUN, f"{hash}&epochs=3")
    assert found["trouble"] == ""
    wanted = matrix(found["setting"], playground.digits())
    right = [[round(v * 72 / 100) for v in row] for row in wanted]
    assert [[round(v * 72 / 100) for v in row] for row in found["R"]] == right
    assert np.abs(np.concatenate(wanted) - np.concatenate(found["R"])).max() < 1e-9
    R = np.full((5, 5), np.nan)
    R[np.tril_indices(5)] = np.concatenate(found["R"])
    assert found["summary"]["accuracy"] == pytest.approx(metrics.accuracy(R))
    assert found["summary"]["bwt"] == pytest.approx(metrics.bwt_final(R))
    assert found["summary"]["learning"] == pytest.approx(metrics.learning_accuracy(R))


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("hash", SETTINGS)
def test_the_matrix_of_a_whole_run_is_that_of_the_twin(page: Any, hash: str) -> None:
    found = page.evaluate(RUN, hash)
    assert np.abs(np.concatenate(matrix(found["setting"], playground.digits())) - np.concatenate(found["R"])).max() < 1e-9


@pytest.mark.browser
def test_random_numbers_and_functions_are_exact(page: Any) -> None:
    drawn = page.evaluate("() => { const d = Playground.generator(7, 2, 3, 'shuffle 0'); return Array.from({ length: 50 }, d); }")
    draw = Draw(7, 2, 3, "shuffle 0")
    assert drawn == [draw() for _ in range(50)]
    x = np.linspace(-60, 20, 400)
    exp, log, sigmoid = page.evaluate(
        "(x) => [x.map(Playground.exp), x.map((v) => Playground.log(Math.abs(v))), x.map(Playground.sigmoid)]", x.tolist()
    )
    assert np.allclose(exp, np.exp(x), rtol=4e-15, atol=0) and np.allclose(log, np.log(np.abs(x)), rtol=1e-13, atol=1e-15)
    assert np.allclose(sigmoid, 1 / (1 + np.exp(-x)), rtol=4e-15, atol=0)


# --- the address ---------------------------------------------------------------------------------------------------


def whole(page: Any, seconds: float = 60) -> list[list[float]]:
    """Wait until the run is over. -> its matrix"""
    page.wait_for_function("Playground.state.sides.every(({ run }) => run.finished)", timeout=1000 * seconds)
    return page.evaluate("Playground.state.sides[0].run.R")


@pytest.mark.browser
@pytest.mark.parametrize(
    "hash", ["method=cm&scenario=cil&epochs=2&seed=3", "method=er&scenario=til&epochs=2&order=seed&compare=naive"]
)
def test_the_same_address_gives_the_same_matrix_in_fresh_browsers(browser: Any, page: Any, hash: str) -> None:
    found = []
    for _ in range(2):
        with Visit(browser, f"{ADDRESS}#{hash}&at=5", viewport=DESK) as visit:
            found.append(whole(visit.page))
            assert (visit.complaints == [] and visit.asked == [f"{ADDRESS}#{hash}&at=5"]) or visit.asked == [ADDRESS]
    assert found[0] == found[1] == page.evaluate(RUN, hash)["R"]


@pytest.mark.browser
def test_back_and_forward_give_the_same_settings_and_matrices(browser: Any) -> None:
    with Visit(browser, f"{ADDRESS}#method=naive&scenario=cil&epochs=2&at=5", viewport=DESK) as visit:
        first = whole(visit.page)
        visit.page.get_by_role("radio", name="CM").check()
        visit.page.locator("input[name=seed]").fill("7")
        visit.page.locator("input[name=seed]").press("Enter")
        address = visit.page.evaluate("location.hash")
        assert address == "#method=cm&scenario=cil&epochs=2&seed=7"
        visit.page.get_by_role("button", name="Run", exact=True).click()
        second = whole(visit.page)
        visit.page.go_back()
        visit.page.go_back()
        assert visit.page.evaluate("location.hash") == "#method=naive&scenario=cil&epochs=2&at=5"
        assert visit.page.get_by_role("radio", name="Naive").is_checked() and whole(visit.page) == first
        visit.page.go_forward()
        visit.page.go_forward()
        assert visit.page.locator("input[name=seed]").input_value() == "7" and whole(visit.page) == second != first
        assert visit.complaints == []


EXTREMES = {
    "method=naive&scenario=cil&lr=10": "far too large",
    "method=cm&scenario=til&lr=10": "far too large",
    "method=cm&scenario=cil&lr=10": "far too large",
    "method=er&scenario=til&lr=10": "far too large",
    "method=cm&scenario=til&lam=1e6": "blew up in task 2",
    "method=cm&scenario=cil&lam=1e6": "blew up in task 2",
    "method=ewc&scenario=til&strength=1e9": "blew up in task 2",
    "method=er&scenario=cil&memory=1": "memory 1 is not possible: one image for each of the ten digits at least",
    "method=cm&scenario=cil&memory=1": "memory 1 is not possible: one image for each of the ten digits at least",
    "method=cm&scenario=til&support=1": "support size 1 is not possible: one image for each of the two digits",
    "method=cm&scenario=cil&support=2&memory=10": "trembles",
    "method=cmm&scenario=cil": "Did you mean cm?",
}


@pytest.mark.browser
def test_extremes_say_what_is_wrong_and_never_show_nan(browser: Any) -> None:
    with Visit(browser, ADDRESS, viewport=DESK) as visit:
        for hash, words in EXTREMES.items():
            visit.page.evaluate("(hash) => { location.hash = hash; }", f"#{hash}&epochs=2&at=5")
            visit.page.wait_for_function(
                "(epochs) => Playground.state.setting.epochs === epochs && location.hash.includes('epochs')", arg=2
            )
            R = whole(visit.page)
            assert words in visit.page.locator(".pg-notes").inner_text(), hash
            shown = visit.page.locator(".pg").inner_text()
            assert not any(word in shown for word in ("NaN", "Infinity", "undefined")), hash
            assert all(np.isfinite(v) for row in R for v in row)
            visit.page.evaluate("location.hash = '#method=naive&epochs=1'")
            visit.page.wait_for_function("Playground.state.setting.epochs === 1")
        assert visit.complaints == []


def random_addresses(count: int) -> list[str]:
    draw = random.Random(0)
    keys = [
        "method",
        "scenario",
        "lam",
        "strength",
        "support",
        "memory",
        "lr",
        "epochs",
        "order",
        "seed",
        "projectors",
        "compare",
        "at",
        "x",
        "",
        "%",
    ]
    values = [
        "cm",
        "er",
        "til",
        "cil",
        "1",
        "0",
        "-1",
        "1e6",
        "1e999",
        "NaN",
        "",
        "%",
        "%E0",
        "=",
        "&",
        "seed",
        "9876543210",
        "with",
        "naive",
        "ü",
        "0.1",
        "5",
    ]
    values += ["__proto__", "constructor", "1e-400", "0x10", " 3 ", "٣", "1" * 400]
    letters = "abcdefghijklmnop=&#%0123456789.-+"
    return [
        "#" + ("".join(draw.choice(letters) for _ in range(draw.randrange(60))) if draw.random() < 0.2
        else "&".join(f"{draw.choice(keys)}={draw.choice(values)}" for _ in range(draw.randrange(1, 9))))
        for _ in range(count)
    ]  # fmt: skip


@pytest.mark.browser
def test_a_thousand_random_addresses_never_throw_and_give_a_run(page: Any) -> None:
    bad = page.evaluate(
        """(all) => all.filter((hash, k) => {
      const { setting, remarks } = Playground.parse(hash), again = Playground.parse(Playground.format(setting));
      if (again.remarks.length || Playground.format(again.setting) !== Playground.format(setting)) return true;
      if (!remarks.every((text) => text.length < 300 && !/undefined|NaN is used/.test(text))) return true;
      const run = Playground.start(setting);
      if (k % 5 === 0) Playground.step(run);
      return !run.theta.every(Number.isFinite) || run.tasks.length !== 5;
    })""",
        random_addresses(1000),
    )
    assert bad == []


@pytest.mark.browser
def test_an_address_says_only_what_is_not_usual(page: Any) -> None:
    format_of = "(hash) => { const { setting, remarks } = Playground.parse(hash); return [Playground.format(setting), remarks]; }"
    usual = page.evaluate("Playground.parse('#method=cm&scenario=til').setting")
    same = f"#method=cm&scenario=til&lr={usual['lr']}&lam={usual['lam']}&seed=0"
    assert page.evaluate(format_of, same) == ["#method=cm&scenario=til", []]
    assert page.evaluate(format_of, "#method=cm&lam=0.25&seed=3&at=4") == ["#method=cm&scenario=til&lam=0.25&seed=3&at=4", []]
    address, remarks = page.evaluate(format_of, "#lamda=3&seed=2.4&order=0012")
    assert address == "#method=naive&scenario=til&seed=2"
    assert remarks[0] == "lamda=3 is no setting. Did you mean lam?" and len(remarks) == 3


def test_the_links_of_the_chapters_are_settings_without_remarks() -> None:
    from cmlib import notebooks

    linked = {}
    for path in notebooks.chapters(folder=ROOT / "book"):
        text = "\n".join(cell.source for cell in notebooks.read(path).cells if cell.cell_type == "markdown")
        for hash in text.split('href="playground.html#')[1:]:
            linked[path.name[:2]] = dict(part.split("=") for part in hash.split('"')[0].replace("&amp;", "&").split("&"))
    assert sorted(linked) == ["01", "03", "04", "05", "07"]
    known = {"method", "scenario", "lam", "lr", "compare"}
    assert all(set(one) <= known and one["scenario"] in ("til", "cil") for one in linked.values())
    assert [linked[chapter]["method"] for chapter in sorted(linked)] == ["naive", "cm", "cm", "cm", "cumulative"]
