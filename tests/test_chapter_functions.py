"""The functions shown in chapters 4 and 5 are defined there, and equal cmlib's: the page and the package cannot drift."""

import ast
import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cmlib import centroids as eq
from cmlib import memory, projectors
from cmlib.methods import base

BOOK = Path(__file__).parents[1] / "book"
CHAPTERS = {
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
}
HELPERS = {"04_task_incremental_cm": (), "05_class_incremental_cm": ("safe_norm", "distances")}
ROUNDS = range(50)


def definitions(chapter):
    """The last top-level definition of each name in a chapter's code cells."""
    found = {}
    for cell in json.loads((BOOK / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(line for line in cell["source"] if not line.startswith(("%", "!")))
            try:
                tree = ast.parse(source)
            except SyntaxError:  # the install cell has a magic inside a block
                continue
            found.update({node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)})
    return found


def shown(chapter):
    """Run the chapter's own definitions with torch alone at hand."""
    nodes = definitions(chapter)
    wanted = (*HELPERS[chapter], *CHAPTERS[chapter])
    missing = [name for name in wanted if name not in nodes]
    assert not missing, f"{chapter} does not define {missing}"
    space = {"torch": torch, "F": F, "nn": nn, "Tensor": Tensor}
    for name in wanted:
        exec(compile(ast.Module([nodes[name]], []), chapter, "exec"), space)
    return space


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_nothing_is_imported_or_delegated(chapter):
    nodes = definitions(chapter)
    allowed = {"torch", "F", "nn", "Tensor", *HELPERS[chapter], *CHAPTERS[chapter], *dir(__builtins__), *__builtins__}
    for name in (*HELPERS[chapter], *CHAPTERS[chapter]):
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
