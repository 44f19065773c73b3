"""Unfinished runs kept in the repository: no images in them, and the run goes on as if nothing had been."""

import importlib.util
from pathlib import Path

import pytest
import torch

import cmlib as cm
from cmlib import datasets
from cmlib.checkpoint import unsealed
from cmlib.engine import train

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("ci_unfinished", ROOT / ".ci" / "unfinished.py")
unfinished = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(unfinished)
RUN = cm.Experiment("digits", "cil", "cm", 0, "smoke", train_per_class=16)


class Interrupted(Exception):
    """What ends a run on its way."""


def interrupt(method, task):
    if task.index == 1:
        raise Interrupted


@pytest.fixture
def begun(tmp_path):
    """A store with a run that ended after its second task: exemplars of the first are in its memory."""
    with pytest.raises(Interrupted):
        train(RUN, store=tmp_path / "begun", after_task=interrupt)
    return tmp_path / "begun"


def test_a_run_goes_on_elsewhere_from_what_the_repository_kept(tmp_path, begun):
    kept, other = tmp_path / "kept", tmp_path / "other"
    (line,) = unfinished.keep(begun, None, kept)
    (file,) = kept.rglob("seed0-*.pt")
    state = unsealed(file.read_bytes(), torch.device("cpu"))
    assert line.endswith(file.name) and not any(value.dtype == torch.uint8 for value in state["method"].values())
    assert len(state["method"]["positions of memory.x"]) == RUN.options["memory_size"]
    assert not any(name.startswith("past.") for name in state["method"]) and not state["optimizer"]["state"]

    unfinished.restore(other, None, kept)
    (before,), (after,) = begun.rglob("*.ckpt"), other.rglob("*.ckpt")
    assert after.relative_to(other) == before.relative_to(begun)
    there, here = (unsealed(path.read_bytes(), torch.device("cpu")) for path in (before, after))
    assert set(there["method"]) == set(here["method"]) and there["position"] == here["position"]
    same = [torch.equal(value, here["method"][name]) for name, value in there["method"].items() if not name.startswith("past.")]
    assert all(same) and len(same) > 20
    assert unfinished.restore(other, None, kept) == []  # one that is there stays

    assert cm.run(RUN, store=other).R == cm.run(RUN).R
    assert unfinished.restore(other, None, kept) == []  # nor does it come back once the run has ended
    assert unfinished.keep(other, None, kept) == [f"removed {file.relative_to(kept)}"] and not file.exists()


def test_in_the_middle_of_a_task_nothing_but_the_images_is_left_out(tmp_path, begun):
    (path,) = begun.rglob("*.ckpt")
    state = unsealed(path.read_bytes(), torch.device("cpu"))
    state["position"]["seconds"][0].append(1.0)  # as if the first task had had one epoch more
    kept = unfinished.smaller(state, datasets.load("digits"))
    assert kept["optimizer"] == state["optimizer"] and "made anew" not in kept
    assert {name.removeprefix("positions of ") for name in kept["method"]} == set(state["method"])
    back = unfinished.whole(kept, datasets.load("digits"))
    assert all(torch.equal(value, back["method"][name]) for name, value in state["method"].items())


def test_an_image_from_elsewhere_is_refused(begun):
    (path,) = begun.rglob("*.ckpt")
    method = unsealed(path.read_bytes(), torch.device("cpu"))["method"]
    method["memory.x"][0] += 1
    with pytest.raises(cm.StoreError, match="an image that is not among the training images of digits"):
        unfinished.without_images(method, datasets.load("digits"))


def test_the_command_line_is_explained(capsys):
    assert unfinished.main(["kept"]) == 2 and "unfinished.py keep STORE DATA_ROOT" in capsys.readouterr().err
