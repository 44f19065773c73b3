"""What is said can be followed: advice in errors is tried out, and a run says what it was made of."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from handmade import completed
from PIL import Image

import cmlib as cm
from cmlib import cli, datasets, engine, imagefiles
from cmlib.datasets import ImageData
from cmlib.errors import DataError, OptionError
from cmlib.memory import ExemplarMemory, StreamMemory, shortages
from cmlib.methods.rehearsal import make_memory
from cmlib.runfile import form_problems
from cmlib.scenario import Scenario


def images(*counts: int, name: str = "arrays") -> ImageData:
    """As many black images of each class as said, to train and to test."""
    y = torch.cat([torch.full((n,), label) for label, n in enumerate(counts)])
    x, names = torch.zeros(len(y), 1, 8, 8, dtype=torch.uint8), tuple(f"c{label}" for label in range(len(counts)))
    return ImageData(name, x, y, x, y, names, (0.0,), (1.0,), "none", "0" * 12)


def noise(side: int, each: int, classes: int = 4) -> Any:
    """Random images of a size, as a caller's own arrays."""
    y = np.arange(each * classes) % classes
    x = np.random.default_rng(0).integers(0, 256, (len(y), 1, side, side), dtype=np.uint8)
    return (x, y), (x, y)


def refused(call: Any, *words: str, kind: type[Exception] = OptionError) -> str:
    with pytest.raises(kind) as error:
        call()
    text = str(error.value)
    assert "\n" not in text and all(word in text for word in words), text
    return text


def settings(text: str) -> dict[str, Any]:
    """The options that a line advises: as they are typed on the command line, and the same in Python."""
    typed, python = re.findall(r"--set (\w+)=(\w+)", text), re.findall(r"in Python (\w+)=(\w+)", text)
    assert typed and typed == python
    return {name: {"true": True}.get(value, int(value) if value.isdigit() else value) for name, value in typed}


# -- numbers that do not fit ----------------------------------------------------------------------------------------------

UNEVEN = (5, 3, 9, 7)


@pytest.mark.parametrize(
    ("counts", "options", "words"),
    [
        ((20,) * 10, {"n_tasks": 3}, "does not divide the 10 classes; allowed: 1, 2, 5, 10; take"),
        ((20,) * 7, {"n_tasks": 5}, "allowed: 1, 7; take --set n_tasks=7 (in Python n_tasks=7), or leave 2 of the classes out"),
        ((20,) * 7, {"n_tasks": 70}, "allowed: 1, 7; take --set n_tasks=7 (in Python n_tasks=7)"),
        ((20,) * 4, {"n_tasks": 2, "support_size": 39}, "leaves no training image of some class in task 1; the largest"),
        ((20,) * 4, {"n_tasks": 2, "support_size": 1}, "is smaller than the 2 classes of a task; the smallest"),
        (UNEVEN, {"n_tasks": 2, "support_size": 6}, "leaves no training image of some class in task 1; the largest"),
        ((9, 7, 5, 3), {"n_tasks": 2, "support_size": 6}, "leaves no training image of some class in task 2; the largest"),
        ((7, 9, 5, 4), {"n_tasks": 2, "support_size": 99}, "leaves no training image of some class in task 1; the largest"),
        (UNEVEN, {"n_tasks": 2, "support_size": 1, "stratified": False, "seed": 3}, "is without a class of task 1; the smallest"),
        (UNEVEN, {"n_tasks": 2, "support_size": 9, "stratified": False, "seed": 3}, "leaves no training image"),
        ((2, 2, 9, 9), {"n_tasks": 2, "support_size": 2, "stratified": False, "seed": 2}, "no size works: take --set stratified"),
        (UNEVEN, {"n_tasks": 2, "train_per_class": 4}, "class 'c1' has only 3 images; the largest that works"),
        (
            (9, 1, 9, 9),
            {"n_tasks": 2, "eval_split": "val"},
            "no training image of class 'c1', which has one; give it two or more",
        ),
    ],
)
def test_what_is_advised_works(counts: tuple[int, ...], options: dict[str, Any], words: str) -> None:
    """And, where a limit is named, one step beyond it does not."""
    text = refused(lambda: Scenario(images(*counts), **options), words)
    advice = settings(text)
    Scenario(images(*counts), **{**options, **advice})
    step = 1 if "the largest" in text else -1 if "the smallest" in text else 0
    if step:
        ((name, value),) = advice.items()
        refused(lambda: Scenario(images(*counts), **{**options, name: value + step}), f"{name}={value + step}")


def test_without_a_way_out_no_option_is_advised() -> None:
    """Classes of one image have no support set; who left out two of seven classes has five tasks; CIFAR-10's classes stay."""
    for stratified in (True, False):
        call = lambda: Scenario(images(9, 1, 9, 9), n_tasks=2, support_size=4, stratified=stratified)  # noqa: B023, E731
        assert "--set" not in refused(call, "support_size=4 ", "no size works: every class needs two training images")
    uneven = lambda: Scenario(images(*[5] * 10), task_sizes=(1, 1, 8), support_size=8)  # noqa: E731
    assert "--set" not in refused(uneven, "no size works: take more training images a class, or tasks of more equal sizes")
    refused(lambda: Scenario(images(9, 1, 9), n_tasks=3, train_per_class=2), "has only 1 image; take --set train_per_class=none")
    Scenario(images(9, 9, 9, 9, 9), n_tasks=5)
    text = refused(lambda: Scenario(images(*[9] * 10, name="cifar10"), n_tasks=4), "allowed: 1, 2, 5, 10")
    assert "leave" not in text and settings(text) == {"n_tasks": 5}


@pytest.mark.parametrize(
    ("kind", "words"), [("total", "each of the 10 classes;"), ("per_task", "each of the 2 classes of a task;")]
)
def test_the_smallest_memory_is_named(kind: str, words: str) -> None:
    options = {"memory_size": 1, "memory_kind": kind}
    advice = settings(refused(lambda: make_memory(options, (2,) * 5), words))
    assert advice["memory_size"] == (10 if kind == "total" else 2) and make_memory({**options, **advice}, (2,) * 5).size
    refused(lambda: make_memory({**options, "memory_size": advice["memory_size"] - 1}, (2,) * 5))


def test_advice_holds_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "--profile", "smoke", "--store", str(tmp_path), "--set", "train_per_class=4"]
    assert cli.main([*command, "--set", "support_size=7"]) == 2
    advice = settings(capsys.readouterr().err)
    assert advice == {"support_size": 6} and not list(tmp_path.iterdir())
    method = cm.fresh(cm.Experiment(profile="smoke", train_per_class=4, **advice), datasets.load_digits())
    assert [len(task.support_y) for task in method.scenario.tasks] == [6] * 5


# -- images too small -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [2, 4])
@pytest.mark.parametrize("method", ["naive", "er", "cm", "cumulative"])
def test_one_tiny_image_alone_in_a_batch(side: int, method: str) -> None:
    """Of 4x4 pixels ResNet20 leaves one: batch norm has no deviation of one value. The line says what helps, and it does."""
    support = 4 if method == "cm" else 0
    data, options = noise(side, 10 + support // 2), {"method": method, "profile": "smoke", "n_tasks": 2, "train_per_class": None}
    options |= {"epochs": 1} | ({"support_size": support} if support else {})
    call = lambda batch: cm.run(cm.Experiment("arrays", batch_size=batch, **options), data, progress=False)  # noqa: E731
    text = refused(lambda: call(19), "4x4 pixels or fewer", "choose a batch_size", "larger images")
    assert "channel" not in text and call(18).status == "finished"


def test_a_larger_image_may_be_alone() -> None:
    experiment = cm.Experiment("arrays", method="naive", profile="smoke", n_tasks=2, train_per_class=None, batch_size=19)
    assert cm.run(experiment, noise(5, 10), progress=False).status == "finished"


# -- data -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def unlike(tmp_path: Path) -> Path:
    """A folder of two classes, whose last image is larger than the others."""
    for k, name in enumerate(("cat", "dog")):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(5):
            side = 20 if (k, i) == (1, 4) else 8
            Image.fromarray(np.full((side, side, 3), 9 * i, np.uint8)).save(tmp_path / "pets" / name / f"{i}.png")
    return tmp_path / "pets"


def test_images_of_unlike_sizes(unlike: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line has no option for it: the line holds the call that does it, and that call works."""
    assert cli.main(["run", "--dataset", str(unlike)]) == 2
    error = capsys.readouterr().err
    assert "differ in size" in error and "is 8x8" in error and "is 20x20" in error and "to load()" not in error
    (call,) = re.findall(r"in Python: (cmlib\.run\(.*\))$", error.strip())
    options = {"method": "naive", "profile": "smoke", "n_tasks": 1, "train_per_class": None}
    names = {"cmlib": cm, "experiment": cm.Experiment(str(unlike), **options), "folder": unlike}
    assert eval(call, names).status == "finished"


def test_a_known_data_set_of_unlike_sizes_is_damaged() -> None:
    def png(side: int) -> bytes:
        content = io.BytesIO()
        Image.fromarray(np.zeros((side, side, 3), np.uint8)).save(content, "png")
        return content.getvalue()

    rows = [("row 0", png(8), 0), ("row 1", png(9), 0)]
    text = refused(lambda: imagefiles.gather(rows, 2, "cifar10 train"), "row 1 is 9x9; copy or download", kind=DataError)
    assert "size=" not in text


def test_data_sets_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = {
        ("arrays",): "on the command line name a folder of images or a data set of `cmlib datasets`",
        ("./none",): "no folder none; a data set is a folder of images or one of: digits, cifar10, cifar100, tiny-imagenet",
        (
            "cifar10",
            "--data-root",
            str(tmp_path / "none"),
        ): "is no folder; name the one that holds the data sets, as in DIR/cifar10/",
        ("tiny-imagenet", "--data-root", str(tmp_path)): "pass --data-root DIR (in Python data_root=DIR) or set CMLIB_DATA=DIR",
    }
    for arguments, words in said.items():
        assert cli.main(["run", "--dataset", *arguments, "--store", str(tmp_path / "store")]) == 2
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1
    refused(lambda: datasets.load("./none"), "a folder of images or one of: digits, cifar10", kind=DataError)
    one = np.zeros((4, 1, 8, 8), np.uint8), np.array([0, 0, 0, 1])
    refused(lambda: datasets.load(one), "give every class two or more, or bring a test set of your own", kind=DataError)
    refused(lambda: datasets.load(noise(3, 5)), "needed: sides of neither 1 nor 3 pixels", kind=DataError)


def test_the_quick_way_is_said_before_a_download(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """When the host has answered and before a byte is fetched; without a network the error alone says it."""
    said: list[str] = []
    monkeypatch.setattr(imagefiles, "probe", lambda url: None)

    def fetch(*_: Any, **__: Any) -> None:
        said.extend(caplog.messages)
        raise RuntimeError("stopped")

    monkeypatch.setattr("torchvision.datasets.utils.download_and_extract_archive", fetch)
    refused(lambda: datasets.load("cifar100"), "could not be downloaded (stopped)", kind=DataError)
    assert len(said) == 1 and "cifar100 was not found (no data root was given): torchvision downloads" in said[0]
    assert "the quick way is to put its Hugging Face files train-*.parquet and test-*.parquet in DIR/cifar100/" in said[0]
    assert "--data-root DIR" in said[0] and "CMLIB_DATA=DIR" in said[0] and "\n" not in said[0]
    caplog.clear()

    def dead(url: str) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(imagefiles, "probe", dead)
    refused(lambda: datasets.load("cifar100"), "no route to host", "DIR/cifar100/", kind=DataError)
    assert caplog.messages == []


# -- what a run says of itself --------------------------------------------------------------------------------------------


def smoke(**options: Any) -> cm.Run:
    """A run of four images a class."""
    return cm.run(cm.Experiment(method="naive", profile="smoke", train_per_class=4, **options), progress=False)


def notes(method: str, scenario: str, **options: Any) -> list[str]:
    """What a run of the digits would note, without making it."""
    experiment = cm.Experiment(method=method, scenario=scenario, profile="smoke", **options)
    return engine._notes(cm.fresh(experiment, datasets.load_digits()))


def test_a_run_names_the_classes_of_its_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the text and in the file, in the order in which they arrived; by their own names."""
    (x, y), test = noise(8, 6)
    names = np.array(["ant", "bee", "a  cat", "dog"])
    data = (x, names[y]), (test[0], names[test[1]])
    experiment = cm.Experiment("arrays", method="naive", profile="smoke", n_tasks=2, train_per_class=None, seed=1)
    made = cm.run(experiment, data, store=tmp_path, progress=False)
    loaded = datasets.load(data)
    order = Scenario(loaded, n_tasks=2, seed=1).class_order.tolist()
    assert order != [0, 1, 2, 3]
    own = [loaded.class_names[label] for label in order]
    assert made.classes == [own[:2], own[2:]] and sorted(own) == sorted(loaded.class_names)
    (path,) = tmp_path.rglob("seed1-*.json")
    assert json.loads(path.read_text(encoding="utf-8"))["classes"] == made.classes == cm.Store(tmp_path).read(path).classes
    settings = ["--profile", "smoke", "--set", "train_per_class=2"]
    assert cli.main(["run", *settings, "--method", "naive", "--seed", "1", "--store", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    arrived = Scenario(datasets.load_digits(), seed=1).class_order.tolist()
    assert [line for line in lines if line.startswith("classes of task ")] == [
        f"classes of task {i + 1}: {arrived[2 * i]}, {arrived[2 * i + 1]}" for i in range(5)
    ]


def test_names_keep_their_spaces_in_a_file() -> None:
    content = cm.Experiment("digits", "til", "naive", 0, "smoke", n_tasks=2, epochs=1).to_dict()
    R = [[1.0, None], [2.0, 3.0]]
    made = completed(cm.Run("x", content, R, None, [[1.0]] * 2, [1] * 2, {}, classes=[["a  [b", "c   d"]]))
    assert cm.Run.from_json(made.to_json()).classes == [["a  [b", "c   d"]] and '"R": [\n  [ 1.0, null ],' in made.to_json()


def test_old_files_have_no_classes_and_new_ones_pass_the_audit() -> None:
    content = json.loads(smoke(n_tasks=2).to_json())
    assert list(form_problems(content)) == [] and content["classes"][1] == list("56789") and content["notes"] == []
    assert list(form_problems({**content, "classes": [["0", 1]], "notes": "none"})) == [
        'classes is [["0", 1]]; it must be lists of class names, one a task', 'notes is "none"; it must be sentences',
    ]  # fmt: skip
    old = {name: value for name, value in content.items() if name not in ("classes", "notes")}
    assert list(form_problems(old)) == []
    read = cm.Run.from_json(json.dumps(old))
    assert read.classes == [] and read.notes == [] and "classes" not in cli._describe(read)


def test_one_class_a_task_is_trivial_when_the_task_is_known() -> None:
    made = smoke(n_tasks=10)
    assert made.notes == ["one class a task, and the task is known: every accuracy is 100, whatever was learned"]
    assert f"note: {made.notes[0]}" in cli._describe(made) and made.accuracy == 100
    assert notes("naive", "cil", n_tasks=10) == notes("naive", "til", n_tasks=5) == []


def test_backward_transfer_of_one_task_is_a_dash() -> None:
    made = smoke(n_tasks=1)
    assert math.isnan(made.bwt) and math.isnan(made.bwt_final)
    assert made.summary()["bwt"] is made.summary()["bwt_final"] is None
    assert f"accuracy {made.accuracy:.2f}  bwt -  bwt_final -  (percent)" in cli._describe(made).splitlines()


def test_a_stopped_run_has_no_numbers_to_show() -> None:
    made = cm.Run("x", {}, [[None, None]] * 2, None, [[1.0]], [1], {}, "stopped: the loss is not finite (task 1, epoch 1)")
    assert "accuracy -  bwt -  bwt_final -  (percent)" in cli._describe(made).splitlines()


def test_a_class_smaller_than_its_share_of_the_memory_is_said() -> None:
    """Places are shared out as each task arrives: 24 in all are 12 a class of the first task, 6 a class of the second."""
    counts = [[12, 11], [6, 5]]
    assert shortages(ExemplarMemory(24), counts) == {1: (11, 12), 3: (5, 6)}
    assert shortages(ExemplarMemory(24, "per_task"), counts) == {1: (11, 12), 2: (6, 12), 3: (5, 12)}
    assert shortages(StreamMemory(6, 4), counts) == {3: (5, 6)}
    assert shortages(ExemplarMemory(22), counts) == {}
    said = ["2 of 10 classes have fewer training images than places in the memory: '0' has 30 for 31"]
    assert notes("er", "cil", memory_size=62) == said and notes("er", "cil", memory_size=60) == []
    one = ["1 of 10 classes has fewer training images than places in the memory: '0' has 30 for 31"]
    assert notes("er", "cil", memory_size=61) == one and notes("cope", "cil", exemplars_per_class=31)[0].startswith("10 of 10")
    assert notes("gem", "til", memory_size=62)[0].startswith("10 of 10") and notes("gem", "til", memory_size=60) == []
    assert notes("gem", "til", memory_size=62, exemplars="first") == []  # takes them as they come, whatever their class


@pytest.mark.parametrize(("threads", "cores", "warned"), [(1, 16, True), (2, 16, False), (1, 2, False)])
def test_doctor_on_one_thread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, threads: int, cores: int, warned: bool
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = SimpleNamespace(data={"train_rows_used": 300}, seconds_per_epoch=[[1.0]])
    monkeypatch.setattr(engine, "run", lambda *_, **__: made)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert cli.main(["doctor", "--store", str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warn")]
    assert len(lines) == warned
    if warned:
        assert lines[0].startswith("warn  one thread on 16 cores: OMP_NUM_THREADS=1 is set; unset it or set OMP_NUM_THREADS=2")
        assert "cmlib sweep table1 --jobs 16" in lines[0]
