"""Data sets: facts, look-up order, readers, cache, and one clear line for whatever is wrong."""

from __future__ import annotations

import io
import json
import logging
import multiprocessing
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cmlib import datasets, imagefiles
from cmlib.errors import CmlibError, DataError, OptionError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

REAL = os.environ.get("CMLIB_DATA")  # read before the fixture below hides it
COLUMNS = {"cifar10": ("img", "label"), "cifar100": ("img", "fine_label"), "tiny-imagenet": ("image", "label")}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give every test an empty cache and no data root, and no way to the network."""
    monkeypatch.delenv("CMLIB_DATA", raising=False)
    monkeypatch.setenv("CMLIB_CACHE", str(tmp_path / "cache"))

    def no_answer(url: str) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(imagefiles, "probe", no_answer)
    yield
    assert not list((tmp_path / "cache").glob("**/*.part")), "a cache file was left half written"


def picture(seed: int, size: tuple[int, int] = (8, 8), mode: str = "RGB", kind: str = "PNG", **options: Any) -> bytes:
    """Return the bytes of a random picture of `size` (width, height)."""
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **options)
    return stream.getvalue()


def pixels(seed: int, size: tuple[int, int] = (8, 8)) -> np.ndarray:
    """Return the pixels of `picture(seed)` as [3, H, W]."""
    return np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8).transpose(2, 0, 1)


def write_parquet(path: Path, columns: tuple[str, str], labels: list[int], raw: list[bytes], **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    images = pa.array([{"bytes": b, "path": None} for b in raw], pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    pq.write_table(pa.table({columns[0]: images, columns[1]: pa.array(labels, pa.int64()), **more}), path)
    return path


def write_set(folder: Path, name: str, first: int = 0, test: str = "test", **more: Any) -> Path:
    """Write one training and one test image a class in the Hugging Face layout; image k is picture(first + k)."""
    classes = len(datasets.KNOWN[name].class_names)
    for split, start in (("train", first), (test, first + classes)):
        raw = [picture(start + k) for k in range(classes)]
        file = folder / f"{split}-00000-of-00001.parquet"
        write_parquet(file, COLUMNS[name], list(range(classes)), raw, **{k: v(classes) for k, v in more.items()})
    return folder


def write_cifar(folder: Path) -> Path:
    """Write a tiny folder of CIFAR-10's own pickles: ten images a file."""
    folder.mkdir(parents=True)
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        data = np.random.default_rng(number).integers(0, 256, (10, 3072), dtype=np.uint8)
        content = {"batch_label": name, "labels": list(range(10)), "data": data}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return folder


def write_folder(folder: Path, classes: tuple[str, ...] = ("cat", "dog"), n: int = 5, first: int = 0) -> Path:
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for k in range(n):
            (folder / name / f"{k}.png").write_bytes(picture(first + number * n + k))
    return folder


def one_line_error(kind: type[CmlibError], call: Callable[[], Any], *words: str) -> str:
    """Assert that `call` raises exactly `kind` with one line that holds all `words`; return the line."""
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert type(caught.value) is kind
    assert "\n" not in text and len(text) < 700
    for word in words:
        assert word in text, f"{word!r} is not in: {text}"
    return text


def warned(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Warnings, but for that of the tests' small data sets being a part of the real ones."""
    return [record for record in caplog.records if "tables do not count" not in record.getMessage()]


def same(data: datasets.ImageData, other: datasets.ImageData) -> bool:
    pairs = ((getattr(data, key), getattr(other, key)) for key in imagefiles.KEYS)
    return data.digest == other.digest and all(torch.equal(a, b) for a, b in pairs)


# ---------------------------------------------------------------- digits


def test_digits_are_sklearns_scaled_and_whole() -> None:
    from sklearn.datasets import load_digits

    data = datasets.load()
    assert data.name == "digits" and data.augmentation == "none" and data.part == ""
    assert data.x_train.shape == (1437, 1, 8, 8) and data.x_test.shape == (360, 1, 8, 8)
    assert data.x_train.dtype == torch.uint8 and data.y_train.dtype == torch.int64
    assert data.class_names == tuple("0123456789")
    bunch = load_digits()
    ours = torch.cat([data.x_train, data.x_test]).numpy().reshape(1797, 64)
    scaled = np.floor(bunch.data * 255 / 16 + 0.5).astype(np.uint8)
    assert sorted(map(bytes, ours)) == sorted(map(bytes, scaled))  # each image once, in one of the splits
    assert ours.min() == 0 and ours.max() == 255 and len(np.unique(ours)) == 17


def test_digits_need_no_import_of_sklearn_and_come_from_it_when_its_file_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; from cmlib import datasets; print(datasets.load('digits').digest, 'sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["5e318f648358", "False"]
    monkeypatch.setattr(datasets, "find_spec", lambda name: None)
    assert datasets.load("digits").digest == "5e318f648358"


def test_digits_split_is_stratified_and_fixed() -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # no global seed may move the split
    data = datasets.load("digits")
    assert torch.bincount(data.y_test).tolist() == [36] * 10
    assert torch.bincount(data.y_train).tolist() == [142, 146, 141, 147, 145, 146, 145, 143, 138, 144]
    assert data.digest == "5e318f648358"
    state = np.random.get_state()[1].copy(), torch.get_rng_state()
    assert datasets.load("digits").digest == data.digest
    assert (np.random.get_state()[1] == state[0]).all() and torch.equal(torch.get_rng_state(), state[1])


def test_digits_constants_are_those_of_the_training_images() -> None:
    data = datasets.load("digits")
    values = data.x_train.double() / 255
    assert data.mean == (round(values.mean().item(), 4),)
    assert data.std == (round(values.std(correction=0).item(), 4),)


def test_digits_need_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CMLIB_DATA", str(tmp_path / "absent"))
    assert datasets.load("digits").digest == "5e318f648358"
    assert not (tmp_path / "cache").exists()


# ---------------------------------------------------------------- published facts


def test_names_and_constants() -> None:
    assert datasets.names() == ("digits", "cifar10", "cifar100", "tiny-imagenet")
    known = datasets.KNOWN
    assert known["cifar10"].mean == (0.4914, 0.4822, 0.4465) and known["cifar10"].std == (0.2470, 0.2435, 0.2616)
    assert known["cifar100"].mean == (0.5071, 0.4865, 0.4409) and known["cifar100"].std == (0.2673, 0.2564, 0.2762)
    tiny = known["tiny-imagenet"]  # as in the released code (erratum 32): CIFAR-10's constants, and flips alone
    assert (tiny.mean, tiny.std, tiny.augmentation) == (known["cifar10"].mean, known["cifar10"].std, "flip")
    for name in datasets.names():
        assert len(set(known[name].class_names)) == {"digits": 10, "cifar10": 10, "cifar100": 100, "tiny-imagenet": 200}[name]
    assert datasets.CIFAR10_CLASSES[0] == "airplane" and datasets.CIFAR10_CLASSES[9] == "truck"
    assert list(datasets.CIFAR100_CLASSES) == sorted(datasets.CIFAR100_CLASSES)
    assert datasets.CIFAR100_CLASSES[99] == "worm"


def test_mean_and_deviation() -> None:
    x = np.random.default_rng(0).integers(0, 256, (20, 3, 5, 5), dtype=np.uint8)
    x[:, 2] = 51
    mean, std = datasets.mean_std(x)
    assert mean == pytest.approx((x / 255).mean(axis=(0, 2, 3)), abs=1e-6)
    assert std[:2] == pytest.approx((x[:, :2] / 255).std(axis=(0, 2, 3)), abs=1e-6)
    assert mean[2] == 0.2 and std[2] == 1.0  # a constant channel must not divide by zero


# ---------------------------------------------------------------- parquet files


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tiny-imagenet"])
def test_parquet_of_all_three_layouts(tmp_path: Path, name: str) -> None:
    more = {"coarse_label": lambda n: [0] * n} if name == "cifar100" else {}
    test = "valid" if name == "tiny-imagenet" else "test"
    write_set(tmp_path / name, name, test=test, **more)
    data = datasets.load(name, data_root=tmp_path)
    classes = len(datasets.KNOWN[name].class_names)
    assert data.name == name and data.augmentation == datasets.KNOWN[name].augmentation and len(data.class_names) == classes
    assert data.y_train.tolist() == data.y_test.tolist() == list(range(classes))
    assert data.x_train.shape == (classes, 3, 8, 8) and data.x_train.is_contiguous()
    assert (data.x_train[3].numpy() == pixels(3)).all() and (data.x_test[3].numpy() == pixels(classes + 3)).all()
    assert data.mean == datasets.KNOWN[name].mean
    assert data.part == f"{classes} of {datasets.KNOWN[name].train:,} training images"


def test_shards_png_jpeg_webp_and_greyscale(tmp_path: Path) -> None:
    folder = tmp_path / "cifar10"
    raw = [picture(0), picture(1, kind="JPEG"), picture(2, kind="WEBP", lossless=True), picture(3, mode="L")]
    write_parquet(folder / "train-00000-of-00002.parquet", ("img", "label"), list(range(4)), raw)
    write_parquet(folder / "train-00001-of-00002.parquet", ("img", "label"), list(range(4, 10)), raw[:1] * 6)
    write_parquet(folder / "test-00000-of-00001.parquet", ("img", "label"), list(range(10)), raw[:1] * 10)
    x = datasets.load("cifar10", data_root=tmp_path).x_train.numpy()
    assert (x[0] == pixels(0)).all() and (x[2] == pixels(2)).all() and (x[9] == pixels(0)).all()
    assert (x[3][0] == x[3][1]).all() and (x[3][0] == x[3][2]).all() and x[3].std() > 0
    assert not (x[1] == pixels(1)).all()  # JPEG is lossy, and was decoded all the same
    assert x[1].std() > 0


def test_tiny_class_names_come_from_classes_json(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "tiny-imagenet", "tiny-imagenet", test="validation")
    words = ["crane, bird", "crane, machine", *(f"word{k}, other" for k in range(2, 200))]
    (folder / "classes.json").write_text(json.dumps({"words": words}))
    names = datasets.load("tiny-imagenet", data_root=tmp_path).class_names
    assert names[:3] == ("crane, bird", "crane, machine", "word2") and len(names) == 200
    (folder / "classes.json").write_text(json.dumps({"words": words[:199]}))
    one_line_error(DataError, lambda: datasets.load("tiny-imagenet", data_root=tmp_path), "199 classes", "200")
    (folder / "classes.json").write_text("{")
    one_line_error(DataError, lambda: datasets.load("tiny-imagenet", data_root=tmp_path), "classes.json")


# ---------------------------------------------------------------- where data are looked for


def test_lookup_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    by_env, by_argument = tmp_path / "env", tmp_path / "argument"
    write_set(by_env / "cifar10", "cifar10", first=0)
    write_set(by_argument, "cifar10", first=100)  # the folder itself
    monkeypatch.setenv("CMLIB_DATA", str(by_env))
    first = [lambda: datasets.load("cifar10").x_train[0], lambda: datasets.load("cifar10", by_argument).x_train[0]]
    assert (first[0]().numpy() == pixels(0)).all()
    assert (first[1]().numpy() == pixels(100)).all()
    assert not warned(caplog)
    write_set(by_argument / "cifar10-small", "cifar10", first=200)  # DIR/<name>-*/ comes before DIR itself
    assert (first[1]().numpy() == pixels(200)).all()
    assert [r.getMessage() for r in warned(caplog)] == [
        "cifar10: using the folder cifar10-small, which may be a part of the data set"
    ]
    write_set(by_argument / "cifar10", "cifar10", first=300)  # and DIR/<name>/ before both
    caplog.clear()
    assert (first[1]().numpy() == pixels(300)).all() and not warned(caplog)


def test_files_in_the_root_itself_must_fit(tmp_path: Path) -> None:
    write_set(tmp_path, "cifar10")
    assert datasets.load("cifar10", data_root=tmp_path).name == "cifar10"
    for name in ("cifar100", "tiny-imagenet"):  # other columns, and the same columns with other classes
        one_line_error(DataError, lambda name=name: datasets.load(name, tmp_path), f"{name} was not found in {tmp_path}")


def test_hub_sub_folder_is_found(tmp_path: Path) -> None:
    write_set(tmp_path / "cifar10" / "plain_text", "cifar10")
    assert len(datasets.load("cifar10", tmp_path).y_train) == 10


def test_torchvision_folder(tmp_path: Path) -> None:
    for folder in (tmp_path / "a" / "cifar-10-batches-py", tmp_path / "b" / "cifar10" / "cifar-10-batches-py"):
        write_cifar(folder)
        data = datasets.load("cifar10", data_root=tmp_path / folder.relative_to(tmp_path).parts[0])
        assert data.x_train.shape == (50, 3, 32, 32) and data.y_train.tolist() == list(range(10)) * 5
        raw = np.random.default_rng(1).integers(0, 256, (10, 3072), dtype=np.uint8)
        assert (data.x_train[13].numpy() == raw[3].reshape(3, 32, 32)).all()
    (folder / "data_batch_3").unlink()
    one_line_error(DataError, lambda: datasets.load("cifar10", tmp_path / "b"), "incomplete", "data_batch_3")


def test_cifar100_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test"):
        content = {"data": np.zeros((100, 3072), np.uint8), "fine_labels": list(range(100)), "coarse_labels": [0] * 100}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    assert datasets.load("cifar100", tmp_path).y_test.tolist() == list(range(100))


def test_tiny_imagenet_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-imagenet-200"
    wnids = [f"n{k:08d}" for k in range(200)]
    raw, lines = picture(0), []
    for k, wnid in enumerate(wnids):
        (folder / "train" / wnid / "images").mkdir(parents=True)
        (folder / "train" / wnid / "images" / f"{wnid}_0.JPEG").write_bytes(raw)
        lines.append(f"val_{k}.JPEG\t{wnids[199 - k]}\t0\t0\t8\t8")
    (folder / "val" / "images").mkdir(parents=True)
    for k in range(200):
        (folder / "val" / "images" / f"val_{k}.JPEG").write_bytes(raw)
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines))
    (folder / "wnids.txt").write_text("\n".join(reversed(wnids)))  # the archive's own order is not sorted either
    (folder / "words.txt").write_text("n00000001\tfirst word, second\n")
    data = datasets.load("tiny-imagenet", tmp_path)
    assert data.y_train.tolist() == list(range(200)) and data.y_test.tolist() == list(range(199, -1, -1))
    assert data.class_names[:2] == ("n00000000", "first word")


def test_what_a_known_set_lacks_is_named(tmp_path: Path) -> None:
    """A folder that is there but empty, without its main file, or with some of its files."""

    def load(name: str, root: str) -> Callable[[], Any]:
        return lambda: datasets.load(name, data_root=tmp_path / root)

    for name in ("cifar10", "cifar100", "tiny-imagenet"):
        (tmp_path / "empty" / name).mkdir(parents=True)
        one_line_error(DataError, load(name, "empty"), f"{tmp_path / 'empty' / name} is there, but empty")
    (tmp_path / "notes" / "cifar10-old").mkdir(parents=True)
    (tmp_path / "notes" / "cifar10-old" / "readme.txt").write_text("no images")
    one_line_error(DataError, load("cifar10", "notes"), "cifar10-old is there, but without train-*.parquet")
    for place in ("cifar10", "cifar-10-batches-py"):
        write_cifar(tmp_path / place / place)
        (tmp_path / place / place / "data_batch_4").unlink()
        one_line_error(DataError, load("cifar10", place), f"{tmp_path / place / place} is incomplete, data_batch_4 is missing")
    for place in ("tiny-imagenet", "tiny-imagenet-200", "tiny-imagenet-small"):
        for split in ("train", "val"):
            write_folder(tmp_path / place / place / split)
        one_line_error(DataError, load("tiny-imagenet", place), f"{tmp_path / place / place} is incomplete, wnids.txt is missing")
    (tmp_path / "tiny-imagenet" / "tiny-imagenet" / "wnids.txt").write_text("")
    one_line_error(DataError, load("tiny-imagenet", "tiny-imagenet"), "wnids.txt names 0 classes; tiny-imagenet has 200")


def test_a_part_of_a_data_set_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_set(tmp_path / "cifar10", "cifar10")
    assert datasets.load("cifar10", data_root=tmp_path).part == "10 of 50,000 training images"
    assert "cifar10: 10 of 50,000 training images; tables do not count runs on a part of the data" in caplog.text


def test_no_code_in_a_pickle_is_run(tmp_path: Path) -> None:
    class Forged:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "owned"),)

    folder = write_cifar(tmp_path / "cifar-10-batches-py")
    (folder / "data_batch_2").write_bytes(pickle.dumps({"data": Forged(), "labels": [0]}, protocol=2))
    one_line_error(DataError, lambda: datasets.load("cifar10", tmp_path), "data_batch_2", "not allowed")
    assert not (tmp_path / "owned").exists()


# ---------------------------------------------------------------- nothing there


def test_no_data_says_both_ways_on_one_line() -> None:
    call = lambda: datasets.load("cifar10")  # noqa: E731
    text = one_line_error(DataError, call, "cifar10 was not found", "could not be downloaded (no route to host)")
    for way in ("train-*.parquet", "DIR/cifar10/", "--data-root DIR", "CMLIB_DATA", "with internet", "torchvision"):
        assert way in text


def test_tiny_imagenet_has_no_download() -> None:
    text = one_line_error(DataError, lambda: datasets.load("tiny-imagenet"), "valid-*.parquet", "DIR/tiny-imagenet/")
    assert "downloads" not in text


def test_an_explicit_root_is_never_filled_silently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root").mkdir()
    monkeypatch.setattr(imagefiles, "download", lambda *_: pytest.fail("a download was tried"))
    call = lambda: datasets.load("cifar100", data_root=tmp_path / "root")  # noqa: E731
    one_line_error(DataError, call, str(tmp_path / "root"), "cifar100/, cifar100-*/, cifar-100-python/", "CMLIB_DATA")
    assert not list((tmp_path / "root").iterdir())


def test_download_appears_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import CIFAR10

    def fetch(url: str, root: str, filename: str, md5: str) -> None:
        assert (url, md5) == (CIFAR10.url, CIFAR10.tgz_md5)
        write_cifar(Path(root) / "cifar-10-batches-py")

    monkeypatch.setattr(imagefiles, "probe", lambda url: None)
    monkeypatch.setattr("torchvision.datasets.utils.download_and_extract_archive", fetch)
    assert len(datasets.load("cifar10").y_train) == 50
    assert [p.name for p in (tmp_path / "cache" / "downloads").iterdir()] == ["cifar-10-batches-py"]
    monkeypatch.setattr("torchvision.datasets.utils.download_and_extract_archive", None)
    assert len(datasets.load("cifar10").y_train) == 50  # found again, not fetched again
    (tmp_path / "root").mkdir()
    monkeypatch.setenv("CMLIB_DATA", str(tmp_path / "root"))
    assert len(datasets.load("cifar10").y_train) == 50  # and found when the data root has none


def test_broken_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(url: str, root: str, filename: str, md5: str) -> None:
        (Path(root) / filename).write_bytes(b"half")
        raise RuntimeError("File not found or corrupted.\nSecond line")

    (tmp_path / "root").mkdir()
    monkeypatch.setenv("CMLIB_DATA", str(tmp_path / "root"))
    monkeypatch.setattr(imagefiles, "probe", lambda url: None)
    monkeypatch.setattr("torchvision.datasets.utils.download_and_extract_archive", breaks)
    one_line_error(DataError, lambda: datasets.load("cifar10"), "(File not found or corrupted. Second line)")
    assert not list((tmp_path / "root").iterdir())


def download_and_wait(root: str) -> None:
    """In a process of its own: begin a download that never ends."""

    def half(url: str, folder: str, filename: str, md5: str) -> None:
        (Path(folder) / filename).write_bytes(b"half")
        time.sleep(60)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imagefiles, "probe", lambda url: None)
        patch.setattr("torchvision.datasets.utils.download_and_extract_archive", half)
        patch.setenv("CMLIB_DATA", root)
        datasets.load("cifar10")


@pytest.mark.parametrize("then", ["no network", "files"])
def test_a_killed_download_is_cleared_away(tmp_path: Path, then: str) -> None:
    """By the next try, and by a look at data that somebody has put there meanwhile; a living process keeps its own."""
    root = tmp_path / "root"
    root.mkdir()
    child = multiprocessing.get_context("fork").Process(target=download_and_wait, args=(str(root),), daemon=True)
    child.start()
    until = time.monotonic() + 60
    while not list(root.glob(".*/*")) and time.monotonic() < until:
        time.sleep(0.02)
    (begun,) = root.iterdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CMLIB_DATA", str(root))
        one_line_error(DataError, lambda: datasets.load("cifar10"), "no route to host")
        assert begun.is_dir(), "its process lives"
        child.kill()
        child.join()
        if then == "files":
            write_set(root / "cifar10", "cifar10")
            datasets.load("cifar10")
        else:
            one_line_error(DataError, lambda: datasets.load("cifar10"), "no route to host")
    assert not begun.exists() and [path.name for path in root.iterdir()] == ["cifar10"] * (then == "files")


def test_parts_of_other_machines_and_programs(tmp_path: Path) -> None:
    """Another machine's part stays for a day; what another program has left is never touched."""
    old, new = (tmp_path / f".download.{k}{k}{k}{k}.elsewhere.1.part" for k in "ab")
    before = tmp_path / ".download-1a2b3c4d"  # as parts were once called
    theirs = tmp_path / ".film.mp4.part"
    for path in (old, new, before, theirs):
        path.write_bytes(b"half")
        if path != new:
            os.utime(path, (0, 0))
    imagefiles.clear_downloads(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([new.name, theirs.name])


def test_a_killed_writer_of_the_cache_is_cleared_away(tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=os._exit, args=(0,))
    child.start()
    child.join()
    cache = tmp_path / "cache"
    datasets.load(write_folder(tmp_path / "pets"))
    (kept,) = cache.iterdir()
    mine = imagefiles.part(kept)
    left = mine.with_name(mine.name.replace(f".{os.getpid()}.", f".{child.pid}."))
    left.write_bytes(b"half")
    (tmp_path / "pets" / "cat" / "9.png").write_bytes(picture(9))
    datasets.load(tmp_path / "pets")
    assert list(cache.iterdir()) == [kept]


def test_probe_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real probe
    monkeypatch.setattr(imagefiles, "PROBE_SECONDS", -1.8)
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: time.sleep(5))
    begin = time.monotonic()
    with pytest.raises(OSError, match="no answer"):
        imagefiles.probe("https://example.invalid/x")
    assert time.monotonic() - begin < 3


# ---------------------------------------------------------------- cache


def test_cache_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set(tmp_path / "cifar10", "cifar10")
    first = datasets.load("cifar10", tmp_path)
    monkeypatch.setattr(imagefiles, "decode", lambda *_: pytest.fail("decoded again"))
    monkeypatch.setattr(imagefiles, "digest_of", lambda *_: pytest.fail("hashed again"))
    again = datasets.load("cifar10", tmp_path)
    assert same(first, again) and again.x_train.dtype == torch.uint8
    assert len(list((tmp_path / "cache").glob("cifar10-*.npz"))) == 1


def test_changed_files_are_read_again(tmp_path: Path) -> None:
    write_set(tmp_path / "cifar10", "cifar10")
    before = datasets.load("cifar10", tmp_path)
    write_set(tmp_path / "cifar10", "cifar10", first=500)
    after = datasets.load("cifar10", tmp_path)
    assert (after.x_train[0].numpy() == pixels(500)).all() and after.digest != before.digest
    assert len(list((tmp_path / "cache").glob("*.npz"))) == 1  # the old one is replaced, not kept


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "noise", "forged", "other"])
def test_damaged_cache_is_named_and_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str) -> None:
    write_set(tmp_path / "cifar10", "cifar10")
    good = datasets.load("cifar10", tmp_path)
    file = next((tmp_path / "cache").glob("*.npz"))
    raw = bytearray(file.read_bytes())
    if harm == "flip":
        raw[raw.index(good.x_train.numpy().tobytes()) + 100] ^= 1
    contents = {"flip": raw, "cut": raw[: len(raw) // 2], "empty": b"", "noise": b"x" * 5000}
    if harm in contents:
        file.write_bytes(contents[harm])
    else:
        with np.load(file) as stored:
            arrays = dict(stored)
        # A sound archive with other pixels, or with a pickle inside: the checksum and allow_pickle=False tell.
        arrays["x_test"] = np.array([{"a": 1}]) if harm == "forged" else 255 - arrays["x_test"]
        np.savez(file, **arrays)
    assert same(datasets.load("cifar10", tmp_path), good)
    assert len(warned(caplog)) == 1 and warned(caplog)[0].levelno == logging.WARNING
    message = warned(caplog)[0].getMessage()
    assert str(file) in message and "damaged" in message and "\n" not in message
    caplog.clear()
    assert same(datasets.load("cifar10", tmp_path), good) and not warned(caplog)


def test_unwritable_cache_only_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_set(tmp_path / "cifar10", "cifar10")
    (tmp_path / "file").write_text("in the way")
    data = datasets.load("cifar10", tmp_path, cache=tmp_path / "file" / "cache")
    assert len(data.y_train) == 10
    assert len(warned(caplog)) == 1 and "not kept" in warned(caplog)[0].getMessage()


def test_cache_can_be_switched_off(tmp_path: Path) -> None:
    write_set(tmp_path / "cifar10", "cifar10")
    kept = datasets.load("cifar10", tmp_path, cache=tmp_path / "other")
    assert same(datasets.load("cifar10", tmp_path, cache=False), kept)
    assert not (tmp_path / "cache").exists() and len(list((tmp_path / "other").iterdir())) == 1


def test_cache_folder_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert imagefiles.cache_folder() == tmp_path / "cache"
    assert imagefiles.cache_folder("here") == Path("here")
    monkeypatch.delenv("CMLIB_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert imagefiles.cache_folder() == tmp_path / "xdg" / "cmlib"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert imagefiles.cache_folder() == tmp_path / ".cache" / "cmlib"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert imagefiles.cache_folder() == tmp_path / "local" / "cmlib"


# ---------------------------------------------------------------- damaged and unfit files


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def scramble(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[4:400] = b"\xff" * 396
    path.write_bytes(raw)


@pytest.mark.parametrize("harm", [cut, scramble, lambda path: path.write_bytes(b"")], ids=["cut", "scrambled", "empty"])
def test_damaged_parquet_is_named(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    file = write_set(tmp_path / "cifar10", "cifar10") / "train-00000-of-00001.parquet"
    harm(file)
    one_line_error(DataError, lambda: datasets.load("cifar10", tmp_path), str(file))
    assert not list((tmp_path / "cache").glob("*"))


def set_with(tmp_path: Path, labels: Any = None, raw: Any = None, columns: tuple[str, str] = ("img", "label")) -> Path:
    """Write a cifar10 folder whose training file is as given."""
    folder = write_set(tmp_path / "cifar10", "cifar10")
    labels = list(range(10)) if labels is None else labels
    raw = [picture(k) for k in range(len(labels))] if raw is None else raw
    write_parquet(folder / "train-00000-of-00001.parquet", columns, labels, raw)
    return tmp_path


PICTURES = [picture(k) for k in range(10)]
UNFIT: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"labels": [*range(9), 10]}, ("train label 10", "0..9")),
    ({"labels": [*range(9), -1]}, ("train label -1", "0..9")),
    ({"labels": [*range(9), 8]}, ("train split has no image of class 9 'truck'",)),
    ({"labels": []}, ("cifar10 train: no images",)),
    ({"labels": [*range(9), None]}, ("row 9 of", "has no label")),
    ({"raw": [*PICTURES[:9], None]}, ("row 9 of", "has no image bytes")),
    ({"raw": [*PICTURES[:9], b"no image"]}, ("cannot decode row 9 of", "train-00000")),
    ({"raw": [*PICTURES[:9], PICTURES[9][:-40]]}, ("cannot decode row 9 of", "train-00000")),
    ({"raw": [*PICTURES[:9], picture(9, (8, 6))]}, ("row 0 of", "is 8x8", "row 9 of", "is 8x6")),
    ({"raw": [picture(k, (6, 6)) for k in range(10)]}, ("training images are [3, 6, 6]", "test images [3, 8, 8]")),
    ({"columns": ("picture", "label")}, ("has the columns picture, label", "img or image, and label")),
    ({"columns": ("img", "class")}, ("has the columns img, class",)),
]


@pytest.mark.parametrize(("what", "words"), UNFIT, ids=[words[0][:30] for _, words in UNFIT])
def test_unfit_parquet(tmp_path: Path, what: dict[str, Any], words: tuple[str, ...]) -> None:
    text = one_line_error(DataError, lambda: datasets.load("cifar10", set_with(tmp_path, **what)), *words)
    assert "damaged" not in text


def test_image_column_of_another_type(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "cifar10", "cifar10")
    pq.write_table(pa.table({"img": ["a"] * 10, "label": list(range(10))}), folder / "train-00000-of-00001.parquet")
    one_line_error(DataError, lambda: datasets.load("cifar10", tmp_path), "img is string", "struct<bytes, path>")


def test_missing_parts_are_named(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "cifar10", "cifar10")
    train, test = sorted(folder.iterdir(), reverse=True)
    load = lambda: datasets.load("cifar10", tmp_path)  # noqa: E731
    shutil.copy(train, folder / "train-00001-of-00003.parquet")
    one_line_error(DataError, load, "mixes two sets of train parquet files")
    train.unlink()
    one_line_error(DataError, load, "incomplete", "train-00000-of-00003")
    (folder / "train-00001-of-00003.parquet").rename(train)
    test.unlink()
    one_line_error(DataError, load, str(folder), "lacks a test-*")
    shutil.copy(train, test)
    train.unlink()
    one_line_error(DataError, load, str(folder), "lacks a train-*")


# ---------------------------------------------------------------- arrays


def arrays(n: int = 20, shape: tuple[int, ...] = (8, 8), classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).integers(0, 256, (n, *shape), dtype=np.uint8)
    return x, np.arange(n) % classes


def test_arrays_are_split_in_a_fixed_way() -> None:
    x, y = arrays(50, classes=5)
    data = datasets.load((x, y))
    assert data.name == "arrays" and data.augmentation == "none"
    assert data.x_train.shape == (40, 1, 8, 8) and torch.bincount(data.y_test).tolist() == [2] * 5
    assert same(datasets.load((torch.tensor(x), torch.tensor(y))), data)
    joined = torch.cat([data.x_train, data.x_test]).numpy()
    assert sorted(map(bytes, joined)) == sorted(map(bytes, x))
    assert data.mean == pytest.approx([(data.x_train.double() / 255).mean().item()], abs=1e-6)
    assert data.std == pytest.approx([(data.x_train.double() / 255).std(correction=0).item()], abs=1e-6)
    x[0, 0, 0] ^= 1
    assert datasets.load((x, y)).digest != data.digest


def test_array_layouts_agree() -> None:
    x, y = arrays(20, (3, 16, 18))
    data = datasets.load((x, y))
    assert data.augmentation == "crop-flip" and data.x_train.shape[1:] == (3, 16, 18)
    assert same(datasets.load((x.transpose(0, 2, 3, 1), y)), data)
    assert same(datasets.load([x / 255, y.astype(np.uint8)]), data)
    assert same(datasets.load((torch.tensor(x / 255, dtype=torch.float32, requires_grad=True), y)), data)


def test_floats_are_rounded() -> None:
    x, y = np.full((4, 2, 2), 0.5), [0, 0, 1, 1]
    x[:, 0, 0], x[:, 1, 1] = 1.0, 0.0019  # 0.0019 * 255 = 0.48
    first = datasets.load((x, y)).x_train[0, 0]
    assert first.tolist() == [[255, 128], [128, 0]]


def test_given_test_set_and_strange_labels() -> None:
    x, _ = arrays(6)
    data = datasets.load(((x[:4], [30, -7, 30, 5]), (x[3:], [5, 30, -7])))
    assert data.class_names == ("-7", "5", "30")
    assert data.y_train.tolist() == [2, 0, 2, 1] and data.y_test.tolist() == [1, 2, 0]
    assert (data.x_test.numpy()[:, 0] == x[3:]).all()
    words = datasets.load(((x[:3], ["dog", "ant", "cat"]), (x[3:], np.array(["cat", "dog", "ant"], dtype=object))))
    assert words.class_names == ("ant", "cat", "dog") and words.y_test.tolist() == [1, 2, 0]


def test_image_data_passes_through() -> None:
    data = datasets.load(arrays())
    assert datasets.load(data) is data


X, Y = arrays()
BAD_ARRAYS: list[tuple[Any, tuple[str, ...]]] = [
    ((X.astype(np.int64), Y), ("x has the type int64", "uint8")),
    ((X.astype(float), Y), ("x holds floats from 0 to 255", "0..1")),
    ((np.where(X[0, 0, 0] == X, np.nan, X / 255), Y), ("x holds floats from nan",)),
    ((X / -255, Y), ("x holds floats from -1",)),
    ((X[:, 0, 0], Y), ("x has the shape [20]", "[n, H, W]")),
    ((X[:0], Y[:0]), ("x has the shape [0, 1, 8, 8]", "nothing empty")),
    ((np.zeros((20, 4, 8, 8), np.uint8), Y), ("[20, 4, 8, 8]", "no 1 or 3 channels")),
    ((np.zeros((20, 3, 8, 3), np.uint8), Y), ("[20, 3, 8, 3]", "either end")),
    (([[1], [2, 3]], [0, 1]), ("x is no array",)),
    ((None, Y), ("x has the type object",)),
    ((X, Y[:-1]), ("y has the shape [19]", "[20]")),
    ((X, Y[:, None]), ("y has the shape [20, 1]",)),
    ((X, Y + 0.5), ("y has the type float64", "whole numbers or strings")),
    ((X, None), ("y has the type object",)),
    ((X, Y * 0 + 3), ("y has the one class '3'",)),
    ((X, [7, *[0] * 19]), ("class '7' has 1 image",)),
    (((X, Y), (X, Y + 1)), ("y_test holds the class '2'",)),
    (((X, Y), (X, Y * 0)), ("test split has no image of class 1 '1'",)),
    (((X, Y), (X, Y.astype(str))), ("y and y_test differ in kind",)),
    (((X, Y), (X[:, :4], Y)), ("training images are [1, 8, 8]", "test images [1, 4, 8]")),
    (((X, Y), (X[0, 0, 0], Y)), ("x_test has the shape []",)),
]


@pytest.mark.parametrize(("source", "words"), BAD_ARRAYS, ids=[words[0][:40] for _, words in BAD_ARRAYS])
def test_bad_arrays(source: Any, words: tuple[str, ...]) -> None:
    one_line_error(DataError, lambda: datasets.load(source), *words)


# ---------------------------------------------------------------- folders


def test_folder_with_a_folder_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "My pets", ("dog", "cat"))
    (folder / ".hidden").mkdir()
    (folder / "cat" / "notes.txt").write_text("no image")
    data = datasets.load(folder)
    assert data.name == "my-pets" and data.class_names == ("cat", "dog") and data.augmentation == "none"
    assert torch.bincount(data.y_train).tolist() == [4, 4] and data.y_test.tolist() == [0, 1]
    dogs = [bytes(pixels(k)) for k in range(5)]
    everything = [*zip(data.x_train, data.y_train, strict=True), *zip(data.x_test, data.y_test, strict=True)]
    assert sorted(bytes(x.numpy()) for x, y in everything if y == 1) == sorted(dogs)
    monkeypatch.setattr(imagefiles, "decode", lambda *_: pytest.fail("decoded again"))
    assert same(datasets.load(str(folder)), data)  # a string that is a folder, from the cache


def test_folder_with_train_and_test(tmp_path: Path) -> None:
    write_folder(tmp_path / "train", first=0)
    write_folder(tmp_path / "val", n=2, first=50)
    data = datasets.load(tmp_path)
    assert len(data.y_train) == 10 and data.y_test.tolist() == [0, 0, 1, 1]
    assert (data.x_test[3].numpy() == pixels(53)).all()


def test_folder_of_other_sizes_and_resizing(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "pets")
    (folder / "dog" / "4.png").write_bytes(picture(9, (20, 10)))
    text = one_line_error(DataError, lambda: datasets.load(folder), "8x8", "20x10", "size=32")
    assert "dog" in text and re.search(r"cat.\d\.png", text)
    data = datasets.load(folder, size=16)
    assert data.x_train.shape == (8, 3, 16, 16) and data.augmentation == "crop-flip"
    assert not same(datasets.load(folder, size=8), data)


def test_folder_named_like_a_known_set_is_not_taken_for_it(tmp_path: Path) -> None:
    assert datasets.load(write_folder(tmp_path / "cifar10")).name == "folder-cifar10"


def test_too_many_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagefiles, "LARGEST", 1000)
    one_line_error(DataError, lambda: datasets.load(write_folder(tmp_path / "pets")), "8 images of 8x8", "size=32")


def deep(path: Path) -> None:
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(path)


BAD_FOLDERS: list[tuple[Callable[[Path], Any], tuple[str, ...]]] = [
    (lambda f: [(f / "dog" / f"{k}.png").unlink() for k in range(5)], ("dog holds no image",)),
    (lambda f: [(f / "dog" / f"{k}.png").unlink() for k in range(4)], ("class 'dog' has 1 image",)),
    (lambda f: shutil.rmtree(f / "dog"), ("holds 1 class folders", "two or more")),
    (lambda f: (f / "dog" / "2.png").write_bytes(b"no image"), ("cannot decode", "2.png")),
    (lambda f: cut(f / "dog" / "2.png"), ("cannot decode", "2.png")),
    (lambda f: deep(f / "dog" / "2.png"), ("cannot decode", "2.png", "8-bit")),
    (lambda f: (f / "dog" / "2.jpg").write_bytes(picture(1, (32, 32), kind="JPEG")[:-300]), ("cannot decode", "2.jpg")),
    (lambda f: (f / "dog" / "2.png").write_bytes(b""), ("cannot decode", "2.png")),
    (lambda f: write_folder(f / "train"), ("has a train/ folder but none called test/",)),
    (lambda f: [write_folder(f / "train"), write_folder(f / "test", ("cat", "cow"))], ("class 'cow'", "only one of")),
]


@pytest.mark.parametrize(("harm", "words"), BAD_FOLDERS, ids=[words[0][:30] for _, words in BAD_FOLDERS])
def test_bad_folders(tmp_path: Path, harm: Callable[[Path], Any], words: tuple[str, ...]) -> None:
    folder = write_folder(tmp_path / "pets")
    harm(folder)
    one_line_error(DataError, lambda: datasets.load(folder), *words)
    assert not list((tmp_path / "cache").glob("*"))


# ---------------------------------------------------------------- what was typed


BAD_REQUESTS: list[tuple[type[CmlibError], dict[str, Any], tuple[str, ...]]] = [
    (OptionError, {"source": "cifar11"}, ("unknown data set 'cifar11'", "tiny-imagenet", "Did you mean 'cifar1")),
    (OptionError, {"source": ""}, ("unknown data set ''",)),
    (OptionError, {"source": "a\nb"}, ("unknown data set 'a b'",)),
    (OptionError, {"source": 7}, ("not int",)),
    (OptionError, {"source": (X, Y, Y)}, ("not a tuple of 3",)),
    (OptionError, {"source": X}, ("not ndarray",)),
    (OptionError, {"source": "digits", "size": 8}, ("size=8", "'digits'")),
    (OptionError, {"source": os.path.dirname(__file__), "size": 0}, ("from 1 to 1024, not 0",)),
    (OptionError, {"source": os.path.dirname(__file__), "size": "32"}, ("not '32'",)),
    (DataError, {"source": "./absent/folder"}, ("no folder absent/folder".replace("/", os.sep),)),
    (DataError, {"source": Path("absent")}, ("no folder absent",)),
    (DataError, {"source": __file__}, ("test_datasets.py is a file",)),
    (DataError, {"source": "cifar10", "data_root": "absent"}, ("the data root absent is no folder",)),
    (OptionError, {"source": "cifar10", "data_root": 5}, ("data_root must be a folder, not int",)),
    (OptionError, {"source": "cifar10", "cache": 5}, ("cache must be a folder", "not 5")),
]


@pytest.mark.parametrize(("kind", "request_", "words"), BAD_REQUESTS, ids=[words[0][:30] for *_, words in BAD_REQUESTS])
def test_bad_requests(kind: type[CmlibError], request_: dict[str, Any], words: tuple[str, ...]) -> None:
    one_line_error(kind, lambda: datasets.load(**request_), *words)


def test_variable_that_names_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CMLIB_DATA", str(tmp_path / "absent"))
    one_line_error(DataError, lambda: datasets.load("cifar10"), f"CMLIB_DATA: {tmp_path / 'absent'} is no folder")


# ---------------------------------------------------------------- describe


def test_describe_reads_no_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set(tmp_path / "tiny-imagenet-125", "tiny-imagenet", test="valid")
    cut(write_set(tmp_path / "cifar100", "cifar100") / "train-00000-of-00001.parquet")
    monkeypatch.setattr(imagefiles, "decode", lambda *_: pytest.fail("an image was read"))
    rows = {row["name"]: row for row in datasets.describe(tmp_path)}
    assert tuple(rows) == datasets.names()
    assert rows["digits"]["where"] == "inside scikit-learn" and rows["digits"]["train"] == 1437
    tiny = rows["tiny-imagenet"]
    assert (tiny["classes"], tiny["train"], tiny["test"], tiny["size"]) == (200, 200, 200, "64x64x3")
    assert tiny["where"] == str(tmp_path / "tiny-imagenet-125")
    assert tiny["note"] == "a part: 200 of 100,000 training images"
    assert rows["cifar10"]["where"] == "not found" and rows["cifar10"]["train"] == 50_000
    assert "DIR/cifar10/" in rows["cifar10"]["how"]
    assert rows["cifar100"]["where"].startswith("unusable: ") and "\n" not in rows["cifar100"]["where"]


# ---------------------------------------------------------------- the real thing, where it is there


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="CMLIB_DATA is not set")
@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tiny-imagenet"])
def test_real_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where = {row["name"]: row["where"] for row in datasets.describe(REAL)}[name]
    if where == "not found":
        pytest.skip(f"{name} is not in CMLIB_DATA")
    data = datasets.load(name, data_root=REAL)
    classes = len(datasets.KNOWN[name].class_names)
    assert len(data.y_test) == 10_000 and torch.bincount(data.y_test).tolist() == [10_000 // classes] * classes
    mean, std = datasets.mean_std(data.x_train.numpy())
    assert mean == pytest.approx(data.mean, abs=1e-3) and std == pytest.approx(data.std, abs=1e-3)
    monkeypatch.setattr(imagefiles, "decode", lambda *_: pytest.fail("decoded again"))
    begin = time.monotonic()
    assert datasets.load(name, data_root=REAL).digest == data.digest
    assert time.monotonic() - begin < 5
