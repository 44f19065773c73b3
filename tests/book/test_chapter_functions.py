"""The functions shown in the chapters are defined there, and equal cmlib's: the page and the package cannot drift."""

import ast
import functools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cmlib import centroids as eq
from cmlib import footprint, memory, metrics, projectors
from cmlib.methods import base, cope, emr, ewc, gem, oewc, ssil
from cmlib.plots import drift, geometry

BOOK = Path(__file__).parents[2] / "book"
CHAPTERS = {
    "02_scenarios_and_metrics": {
        name: getattr(metrics, name)
        for name in ("accuracy", "learning_accuracy", "bwt", "bwt_final", "forgetting", "incremental_accuracy")
    },
    "03_classify_by_distance": {
        name: getattr(eq, name) for name in ("class_centroids", "distances", "log_probabilities", "predict")
    },
    "04_task_incremental_cm": {
        name: getattr(eq, name)
        for name in ("safe_norm", "distances", "class_centroids", "log_probabilities", "centroid_loss", "drift", "predict")
    },
    "05_class_incremental_cm": {
        "ScaleTranslate": projectors.ScaleTranslate,
        "merge": projectors.merge,
        "merge_centroids": projectors.merge_centroids,
        "merged_log_probabilities": projectors.merged_log_probabilities,
        "split_batch": base.split_batch,
        "quota": memory.quota,
    },
    "06_inside_the_space": {
        "pca": geometry.pca,
        "nearest_centroid": geometry.nearest_centroid,
        "disagreement": geometry.disagreement,
        "drift_by_class": drift.drift_by_class,
    },
    "07_ewc": {
        "batch_fisher": lambda loss, parameters: base.flat_gradient(loss, parameters).square(),
        "penalty": ewc.penalty,
    },
    "07_oewc": {"add_importance": lambda so_far, new, decay: online_sum(so_far, new, decay)},
    "07_er": {"reservoir": lambda seed, length, size: reservoir_of_the_package(seed, length, size)},
    "07_gem": {"project": gem.project},
    "07_emr": {"safe_norm": eq.safe_norm, "feature_distance": emr.feature_distance},
    "07_ssil": {
        "separated_cross_entropy": ssil.separated_cross_entropy,
        "task_distillation": ssil.task_distillation,
    },
    "07_cope": {
        "class_means": cope.class_means,
        "moved_prototypes": cope.moved_prototypes,
        "pseudo_prototypical_loss": cope.pseudo_prototypical_loss,
    },
    "09_memory": {"in_bytes": footprint.in_bytes},
    "11_merging": {"linear": projectors.Linear, "mlp": projectors.MLP, "scale_translate": projectors.ScaleTranslate},
}
HELPERS = {
    "02_scenarios_and_metrics": (),
    "03_classify_by_distance": (),
    "04_task_incremental_cm": (),
    "05_class_incremental_cm": ("safe_norm", "distances"),
    "06_inside_the_space": (),
    "09_memory": (),
    "11_merging": (),
}
SEVEN = ("07_ewc", "07_oewc", "07_er", "07_gem", "07_emr", "07_ssil", "07_cope")
ROUNDS = range(50)


def definitions(chapter):
    """The last top-level definition of each name in a chapter's code cells."""
    found = {}
    for cell in json.loads((BOOK / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            lines = "".join(cell["source"]).splitlines(keepends=True)
            source = "".join(line for line in lines if not line.startswith(("%", "!")))
            try:
                tree = ast.parse(source)
            except SyntaxError:  # the install cell has a magic inside a block
                continue
            found.update({node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)})
    return found


@functools.cache
def shown(chapter):
    """Run the chapter's own definitions with torch alone at hand."""
    nodes = definitions(chapter)
    wanted = (*HELPERS.get(chapter, ()), *CHAPTERS[chapter])
    missing = [name for name in wanted if name not in nodes]
    assert not missing, f"{chapter} does not define {missing}"
    space = {"np": np, "torch": torch, "F": F, "nn": nn, "Tensor": Tensor}
    for name in wanted:
        exec(compile(ast.Module([nodes[name]], []), chapter, "exec"), space)
    return space


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_nothing_is_imported_or_delegated(chapter):
    nodes = definitions(chapter)
    allowed = {
        "np",
        "torch",
        "F",
        "nn",
        "Tensor",
        *HELPERS.get(chapter, ()),
        *CHAPTERS[chapter],
        *dir(__builtins__),
        *__builtins__,
    }
    for name in (*HELPERS.get(chapter, ()), *CHAPTERS[chapter]):
        tree = nodes[name]
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)], name
        local = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        local |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        assert used - local <= allowed, f"{name} uses {used - local - allowed}"


def compare(ours, theirs, *arguments):
    """Equal values and gradients, within 1e-6, on double-precision inputs."""
    leaves = [leaf for value in arguments for leaf in (value if isinstance(value, list) else [value])]
    leaves = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    a, b = ours(*arguments), theirs(*arguments)
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    if a.requires_grad:
        weights = torch.linspace(0.5, 1.5, a.numel(), dtype=a.dtype).view(a.shape)
        got = torch.autograd.grad((a * weights).sum(), leaves)
        for x, y in zip(got, torch.autograd.grad((b * weights).sum(), leaves), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6)


def draw(seed, *shape):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("seed", ROUNDS)
def test_chapter_02(seed):
    n = 2 + seed % 9
    R = np.random.default_rng(seed).uniform(0, 100, (n, n))
    R[np.triu_indices(n, 1)] = np.nan
    for name, package in CHAPTERS["02_scenarios_and_metrics"].items():
        assert abs(shown("02_scenarios_and_metrics")[name](R) - package(R)) < 1e-6


@pytest.mark.parametrize("seed", ROUNDS)
def test_chapter_03(seed):
    page, package = shown("03_classify_by_distance"), CHAPTERS["03_classify_by_distance"]
    e, c, support = draw(seed, 5 + seed % 4, 6), draw(seed + 100, 3, 6), draw(seed + 200, 9, 6)
    with torch.no_grad():
        e[0] = c[1]  # a distance of exactly zero
    compare(page["class_centroids"], package["class_centroids"], support, torch.arange(9) % 3, 3)
    for kind in ("euclidean", "squared"):
        for name in ("distances", "log_probabilities", "predict"):
            compare(page[name], package[name], e, c, kind)


@pytest.mark.parametrize("seed", ROUNDS)
def test_chapter_04(seed):
    page, package = shown("04_task_incremental_cm"), CHAPTERS["04_task_incremental_cm"]
    e, c, support = draw(seed, 5 + seed % 4, 6), draw(seed + 100, 3, 6), draw(seed + 200, 9, 6)
    y, support_y = torch.arange(len(e)) % 3, torch.arange(9) % 3
    past, now = draw(seed + 300, 1 + seed % 3, 5, 6), draw(seed + 400, 1 + seed % 3, 5, 6)
    with torch.no_grad():
        e[0] = c[1]  # a distance of exactly zero
    cases = {
        "safe_norm": (e,),
        "distances": (e, c),
        "class_centroids": (support, support_y, 3),
        "log_probabilities": (e, c),
        "centroid_loss": (e, c, y),
        "drift": (past, now),
        "predict": (e, c),
    }
    for name, arguments in cases.items():
        compare(page[name], package[name], *arguments)


@pytest.mark.parametrize("seed", ROUNDS)
def test_chapter_05(seed):
    page, package = shown("05_class_incremental_cm"), CHAPTERS["05_class_incremental_cm"]
    tasks = 2 + seed % 3
    embeddings = [draw(seed + i, 5, 6) for i in range(tasks)]
    centroids = [draw(seed + 100 + i, 2, 6) for i in range(tasks)]
    torch.manual_seed(seed)
    theirs = [package["ScaleTranslate"](6).double() for _ in range(tasks)]
    ours = [page["ScaleTranslate"](6).double() for _ in range(tasks)]
    for a, b in zip(ours, theirs, strict=True):
        a.load_state_dict(b.state_dict())
        compare(a, b, embeddings[0])
    for name, arguments in {"merge": (embeddings,), "merge_centroids": (centroids,)}.items():
        compare(lambda *x, name=name: page[name](*x, ours), lambda *x, name=name: package[name](*x, theirs), *arguments)
    compare(
        lambda e, c: page["merged_log_probabilities"](e, c, ours),
        lambda e, c: package["merged_log_probabilities"](e, c, theirs),
        embeddings,
        centroids,
    )
    assert page["split_batch"](seed + 8, tasks) == package["split_batch"](seed + 8, tasks)
    assert page["quota"](seed + 20, [3, 1, 7]) == package["quota"](seed + 20, [3, 1, 7])


@pytest.mark.parametrize("seed", ROUNDS)
def test_chapter_06(seed):
    page, package = shown("06_inside_the_space"), CHAPTERS["06_inside_the_space"]
    draws = np.random.default_rng(seed)
    first, now, centroids = draws.normal(size=(3, 8 + seed % 5, 3 + seed % 7))
    for ours, theirs in zip(page["pca"](first), package["pca"](first), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    np.testing.assert_array_equal(page["nearest_centroid"](first, centroids), package["nearest_centroid"](first, centroids))
    plane = package["pca"](now)[1]
    assert page["disagreement"](first, centroids, plane) == package["disagreement"](first, centroids, plane)
    labels = np.arange(len(first)) % 3 + seed
    np.testing.assert_allclose(
        page["drift_by_class"](first, now, labels), package["drift_by_class"](first, now, labels), atol=1e-6
    )


def of_chapter_07():
    """The functions of all pages of methods, as the pages show them and as the package has them."""
    page = {name: shown(one)[name] for one in SEVEN for name in CHAPTERS[one]}
    return page, {name: thing for one in SEVEN for name, thing in CHAPTERS[one].items()}


def online_sum(so_far, new, decay):
    """What an OnlineEWC keeps after a task whose importances are `new`; so_far [Q], new [P] with Q <= P."""
    method = SimpleNamespace(
        weights=torch.zeros_like(new),
        importance=torch.cat([so_far, new.new_zeros(len(new) - len(so_far))]),  # as its begin_task makes room
        option={"decay": decay},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oewc, "consolidated", lambda _: [new])
        patch.setattr(oewc, "fisher", lambda *_: new)
        oewc.OnlineEWC.end_task(method, None)
    return method.importance


def reservoir_of_the_package(seed, length, size):
    """Positions of a stream of one class that a StreamMemory holds at its end, in the order of their places."""
    stream = torch.arange(length, dtype=torch.int64).view(-1, 1, 1, 1)
    shelf = memory.StreamMemory(size, 1)
    shelf.make_room(stream, 1)
    shelf.observe(stream, [0] * length, torch.Generator().manual_seed(seed))
    return shelf.x[shelf.y == 0].flatten().tolist()


@pytest.mark.parametrize("seed", ROUNDS)
def test_chapter_07_weights_memory_and_steps(seed):
    page, package = of_chapter_07()
    now, kept, importance = draw(seed, 9), draw(seed + 1, 7), draw(seed + 2, 7)
    compare(page["penalty"], package["penalty"], now, kept, importance)
    w, b, x = draw(seed, 4, 3), draw(seed + 1, 3), draw(seed + 2, 5, 4)
    losses = [(F.relu(x @ w + b).logsumexp(1).mean(), [w, b]) for _ in range(2)]
    torch.testing.assert_close(page["batch_fisher"](*losses[0]), package["batch_fisher"](*losses[1]), rtol=1e-6, atol=1e-6)
    before, new = draw(seed, 6).detach().square(), draw(seed + 1, 8).detach().square()
    for decay in (1.0, 0.3):
        sums = [space["add_importance"](before, new.clone(), decay) for space in (page, package)]
        torch.testing.assert_close(*sums, rtol=1e-6, atol=1e-6)
    draws = torch.rand(30 + seed, generator=torch.Generator().manual_seed(seed)).tolist()
    for size in (1, 5, 40):
        assert page["reservoir"](draws, size) == package["reservoir"](seed, len(draws), size)
    tasks = 1 + seed % 4
    g, past = draw(seed, 12).detach(), draw(seed + 3, tasks, 12).detach()
    for margin in (0.0, 0.5):
        steps = [space["project"](turned, past, margin) for space in (page, package) for turned in (g, g - past.sum(0))]
        torch.testing.assert_close(steps[:2], steps[2:], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", ROUNDS)
def test_chapter_07_losses(seed):
    page, package = of_chapter_07()
    features, kept = draw(seed, 6, 5), draw(seed + 1, 6, 5)
    with torch.no_grad():
        features[0] = kept[0]  # a distance of exactly zero
    compare(page["safe_norm"], package["safe_norm"], kept)
    compare(page["feature_distance"], package["feature_distance"], features, kept)
    logits, taught = draw(seed, 7, 6), draw(seed + 1, 7, 4)
    y = torch.randint(6, (7,), generator=torch.Generator().manual_seed(seed))
    for labels in (y, y % 4, 4 + y % 2):  # mixed, old ones only, new ones only
        compare(page["separated_cross_entropy"], package["separated_cross_entropy"], logits, labels, 4)
    compare(page["task_distillation"], package["task_distillation"], logits, taught, 2, 2.0)
    e, p = (F.normalize(draw(seed + k, n, 5), dim=1).detach().requires_grad_() for k, n in ((0, 8), (1, 4)))
    labels = torch.randint(4, (8,), generator=torch.Generator().manual_seed(seed))
    compare(page["moved_prototypes"], package["moved_prototypes"], p, e, labels, 0.99)
    both = [lambda *x, of=space: torch.cat([part.flatten() for part in of["class_means"](*x)]) for space in (page, package)]
    compare(*both, e, labels, 4)
    known = torch.ones(4, dtype=torch.bool)
    compare(
        lambda e, p: page["pseudo_prototypical_loss"](e, labels, p, 0.5),
        lambda e, p: package["pseudo_prototypical_loss"](e, labels, p, known, 0.5),
        e,
        p,
    )


@pytest.mark.parametrize("seed", ROUNDS)
def test_chapter_09(seed):
    page, package = shown("09_memory"), CHAPTERS["09_memory"]
    g = torch.Generator().manual_seed(seed)
    names = ["exemplars", "labels", "training images", "centroids", "projectors", "past weights"][seed % 4 :]
    parts = dict(zip(names, torch.randint(0, 10**6, (len(names),), generator=g).tolist(), strict=True))
    assert page["in_bytes"](parts) == package["in_bytes"](parts) > 0


@pytest.mark.parametrize("seed", ROUNDS)
def test_chapter_11(seed):
    page, package = shown("11_merging"), CHAPTERS["11_merging"]
    e = draw(seed, 4, 6)
    for name, kind in package.items():
        torch.manual_seed(seed)
        made = kind(6).double()
        weights = [weight.detach().requires_grad_() for weight in made.parameters()]
        keys = [key for key, _ in made.named_parameters()]

        def theirs(e, *given, made=made, keys=keys):
            return torch.func.functional_call(made, dict(zip(keys, given, strict=True)), e)

        compare(page[name], theirs, e, *weights)
