"""Damaged files: every reader answers with one line or with a right object, never with a traceback or a wrong result.

Each input is made from a good file and the number of its seed, so a failure can be made again from its message alone. A quick
part runs with the unit tests, the long one with `make stress`.
"""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import arrays, tiny_nets

import cmlib as cm
from cmlib import datasets, engine, imagefiles, store
from cmlib.checkpoint import Checkpoint, Position
from cmlib.errors import CmlibError, OptionError
from cmlib.experiment import FIELDS, Experiment, fresh, identity
from cmlib.profiles import PROFILES
from cmlib.reproduction import grids, snapshots

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

# Inputs of each reader in the quick part, and 40 times as many in the long one.
SHARES = {
    **{"result": 140, "grid": 80, "checkpoint": 60, "parquet": 60, "snapshots": 40, "cache": 25, "pickles": 30, "image": 25},
    **{"checksums": 15, "class names": 15, "annotations": 10},
}
ODD = [
    "",
    "\x00",
    "\ud7ff",
    "\u202e",
    "\ufeff",
    "é" * 300,
    "😀",
    "a\nb",
    "../../etc/passwd",
    "~",
    "NaN",
    "-0",
    "1e999",
    "x" * 5000,
]
WRONG = [
    *(None, True, False, -1, 0, 3, 101, 1e308, -1e-308, 10**40, 10**400, 2**63, float("nan"), float("inf"), -float("inf")),
    *([], {}, [[]], [None], {"a": 1}, [[[[1.0]]]], [[50.0]], [1, [2]], {"": {}}, ["0"]),
    *ODD,
]


@dataclass
class Reader:
    """A good file, what reads it, and whether what was read is right."""

    name: str  # of the file
    good: bytes
    read: Callable[[Path], Any]
    right: Callable[[Any], bool]
    mutations: tuple[Callable[[random.Random, bytes], bytes], ...] = ()


# -- damage -----------------------------------------------------------------------------------------------------------------


def flip(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(changed))
        changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.choice((0, 1, rng.randrange(len(content)), len(content) - 1))]


def blank(rng: random.Random, content: bytes) -> bytes:
    at, size = rng.randrange(len(content)), rng.choice((1, 16, 512, 4096))
    return content[:at] + bytes(size) + content[at + size :]


def lose(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + content[at + rng.choice((1, 16, 512)) :]


def repeat(rng: random.Random, content: bytes) -> bytes:
    at, size = rng.randrange(len(content)), rng.choice((1, 16, 512))
    return content[: at + size] + content[at:]


def insert(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + rng.choice([rng.randbytes(9), b"\xff\xfe", *(one.encode() for one in ODD)]) + content[at:]


def number(rng: random.Random, content: bytes) -> bytes:
    """Another number where digits stand."""
    places = [at for at in range(len(content)) if content[at : at + 1].isdigit()]
    if not places:
        return flip(rng, content)
    at = rng.choice(places)
    end = at + 1
    while content[end : end + 1].isdigit() or content[end : end + 1] == b".":
        end += 1
    new = rng.choice([b"-1", b"0", b"1e999", b"9" * 400, b"9" * 5000, b"NaN", b"101", b"0.5", b"null", b"nan", b"inf"])
    return content[:at] + new + content[end:]


def nested(rng: random.Random, content: bytes) -> bytes:
    depth = rng.choice((50, 5000, 100_000))
    at = rng.randrange(len(content))
    return rng.choice((b"[" * depth, b'{"a":' * depth, content[:at] + b"[" * depth + b"]" * depth + content[at:]))


BYTES = (flip, cut, blank, lose, repeat, insert)
TEXT = (*BYTES, number, nested)


def of_json(rng: random.Random, content: bytes) -> bytes:
    """A key or an entry removed, doubled, renamed or with a value of another type."""
    tree = json.loads(content)
    places = list(walk(tree))
    holder, key = rng.choice(places)
    how = rng.randrange(5)
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(holder, dict):
        holder[rng.choice(["R", "options", "extra", *ODD])] = holder.pop(key)
    elif how == 2 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif how == 3 and isinstance(holder, dict):
        twice = f"{json.dumps(key)}: {json.dumps(rng.choice(WRONG))}, {json.dumps(key)}: {json.dumps(holder[key])}"
        if rng.random() < 0.5:
            twice = f"{json.dumps(key)}: {json.dumps(holder[key])}, {json.dumps(key)}: {json.dumps(rng.choice(WRONG))}"
        holder[key] = "HERE"
        return json.dumps(tree).replace(f'{json.dumps(key)}: "HERE"', twice).encode()
    else:
        holder[key] = rng.choice(WRONG)
    return json.dumps(tree).encode()


def walk(tree: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)):
        yield tree, key
        if isinstance(value, dict | list):
            yield from walk(value)


def of_toml(rng: random.Random, content: bytes) -> bytes:
    """A line removed, doubled, moved, its key renamed or its value of another type."""
    lines = content.decode().splitlines()
    at = rng.randrange(len(lines))
    how = rng.randrange(5)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(rng.randrange(len(lines)), lines[at])
    elif how == 2:
        del lines[at][:0], lines[at : at + rng.randrange(1, 6)]
    elif "=" in lines[at]:
        key, _, value = lines[at].partition("=")
        values = [
            "nan",
            "-inf",
            "-1",
            "0",
            "9" * 50,
            "9" * 400,
            "1e400",
            '"text"',
            '""',
            "[]",
            "{}",
            "true",
            "[[1]]",
            "1979-05-27",
        ]
        values += [
            "1979-05-27",
            '["til"]',
            '["cm", "cm"]',
            "[1, 2]",
            '"\\u202e"',
            "[" * 3000 + "]" * 3000,
            "{ smoke = [] }",
            "{ seed = [1] }",
        ]
        names = ["seed", "preset", "option", "methods", key[:-2], key + "x", f'"{rng.choice(["", "é", "a b"])}"']
        lines[at] = f"{rng.choice(names)}={value}" if how == 3 else f"{key}= {rng.choice(values)}"
    else:
        lines[at] = rng.choice(["[[rows]]", "[rows]", "[datasets]", "[[rows.axes]]", "seed = 1", 'option = "seed"', "= 3"])
    return "\n".join(lines).encode()


# -- good files and their readers --------------------------------------------------------------------------------------------


def result_reader(folder: Path) -> Reader:
    """The file lies where the run of an experiment is looked for; what comes must be a run of this experiment."""
    chosen = sorted(store.committed().folder.rglob("digits-cil/cm/seed0-*.json"))[0]
    found = store.committed().read(chosen)
    content = found.experiment
    experiment = Experiment(**{**content["options"], **{name: content[name] for name in FIELDS}})
    shelf, digest = store.Store(folder), found.data["digest"]

    def read(path: Path) -> Any:
        place = shelf.path(experiment, digest)
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            path.rename(place)
        try:
            if place.is_dir():
                shelf.read(place)
            listed = list(shelf)
            loaded = shelf.load(experiment, digest)
            return loaded, listed, shelf.find(experiment)
        finally:
            place.rename(path)

    def right(made: Any) -> bool:
        loaded, listed, there = made
        assert not there or there == listed == [loaded]
        if loaded is None:
            return True
        run, n = loaded, experiment.n_tasks
        rows = [*run.R, *(run.R_task_known or [])]
        known = all(value is None or (0 <= value <= 100 and not isinstance(value, bool)) for row in rows for value in row)
        json.dumps(run.summary(), allow_nan=False)
        return (
            known
            and identity(run.experiment) == identity(experiment.to_dict())
            and len(run.R) == n
            and all(len(row) == n for row in rows)
            and run.data["digest"] == digest
            and store.Run.from_json(run.to_json()) == run
        )

    return Reader("seed0-00000000.json", chosen.read_bytes(), read, right, (*TEXT, *[of_json] * 8))


def grid_reader(folder: Path) -> Reader:
    def read(path: Path) -> Any:
        grid = grids.read(path)
        return grid, [one for profile in PROFILES for one in grid.experiments(profile, 1)], [grid.exchanged(p) for p in PROFILES]

    def right(made: Any) -> bool:
        grid, _, lines = made
        return {*grid.datasets} == {*PROFILES} and all(isinstance(one, str) for one in [*grid.metrics, *grid.notes, *lines[0]])

    return Reader("table4.toml", (grids.FOLDER / "table4.toml").read_bytes(), read, right, (*TEXT, *[of_toml] * 8))


def checkpoint_reader(folder: Path) -> Reader:
    """What is resumed must be what was saved, bit for bit."""
    data = arrays(3, 10)
    experiment = Experiment("arrays", "cil", "cm", n_tasks=3, epochs=1, support_size=4, memory_size=6, batch_size=4)
    kept, names = [], []
    with tiny_nets() as patch:
        save = Checkpoint.save

        def keep(self: Checkpoint, *state: Any) -> None:
            save(self, *state)
            kept.append(self.path.read_bytes())
            names.append(self.path.name)

        patch.setattr(Checkpoint, "save", keep)
        engine.run(experiment, data, store=folder / "made", progress=False)
    good = folder / "good" / names[1]
    good.parent.mkdir()
    good.write_bytes(kept[1])
    original = resumed(good, experiment, data)

    def read(path: Path) -> Any:
        return resumed(path, experiment, data) if path.is_file() else anew(path, experiment, data)

    return Reader(names[1], kept[1], read, lambda made: made == "anew" or same(made, original), BYTES)


def resumed(path: Path, experiment: Experiment, data: Any) -> Any:
    with tiny_nets():
        method = fresh(experiment, data)
        position, optimizer = Checkpoint(path).resume(method)
    return method.state_dict(), optimizer and optimizer.state_dict(), vars(position)


def anew(path: Path, experiment: Experiment, data: Any) -> Any:
    """What is no file is no checkpoint: the run starts at its beginning."""
    _, optimizer, position = resumed(path, experiment, data)
    assert optimizer is None and position == vars(Position())
    return "anew"


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def picture(seed: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (6, 6, 3), dtype=np.uint8)).save(content, "png")
    return content.getvalue()


def parquet_reader(folder: Path) -> Reader:
    """CIFAR-10 of one image a class, with checksums of pages: what is read is what was written."""
    layout, images = datasets.KNOWN["cifar10"], [picture(k) for k in range(10)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    column = pa.array([{"bytes": raw, "path": None} for raw in images], kind)
    table, content = pa.table({"img": column, "label": list(range(10))}), io.BytesIO()
    pq.write_table(table, content, write_page_checksum=True)
    place = folder / "cifar10"
    place.mkdir()
    (place / "test-00000-of-00001.parquet").write_bytes(content.getvalue())
    target = place / "train-00000-of-00001.parquet"

    def read(path: Path) -> Any:
        path.rename(target)
        try:
            with imagefiles.readable():
                found = imagefiles.find(layout, folder)
            return found and imagefiles.read(found, layout)
        finally:
            target.rename(path)

    def right(made: Any) -> bool:
        return made is None or all(np.array_equal(made[f"{k}_train"], made[f"{k}_test"]) for k in "xy")

    return Reader("file.parquet", content.getvalue(), read, right, BYTES)


def snapshots_reader(folder: Path) -> Reader:
    rng = np.random.default_rng(0)
    made = [
        snapshots.Snapshot(k, rng.random((9, 4), np.float32), np.arange(9) % 3, rng.random((3, 4), np.float32), np.arange(3))
        for k in (1, 2)
    ]
    path = folder / "good.npz"
    path.write_bytes(snapshots.pack(made))
    good = snapshots.read(path)

    def right(found: Any) -> bool:
        return len(found) == 2 and all(
            np.array_equal(vars(a)[name], vars(b)[name]) for a, b in zip(found, good, strict=True) for name in vars(a)
        )

    return Reader("seed0-00000000.task1.npz", path.read_bytes(), snapshots.read, right, BYTES)


def cache_reader(folder: Path) -> Reader:
    """A damaged file of the cache is none: it is made again."""
    made = arrays(3, 10)
    kept = {name: getattr(made, name).numpy() for name in imagefiles.KEYS}
    imagefiles.write_cache(folder / "good.npz", "key", kept, "digest")

    def right(made: Any) -> bool:
        return made is None or (made[1] == "digest" and all(np.array_equal(made[0][k], kept[k]) for k in kept))

    return Reader(
        "name-00000000.npz", (folder / "good.npz").read_bytes(), lambda p: imagefiles.read_cache(p, "key"), right, BYTES
    )


def pickles_reader(folder: Path) -> Reader:
    """CIFAR's own files have no checksum inside: images and labels of the right shape and type is all that can be asked for."""
    content = {"data": np.arange(2 * 3072, dtype=np.int64).astype(np.uint8).reshape(2, 3072), "labels": [0, 9]}

    def right(made: Any) -> bool:
        x, y = made
        return x.dtype == np.uint8 and y.dtype == np.int64 and x.shape == (len(y), 3, 32, 32)

    read: Callable[[Path], Any] = lambda path: imagefiles.read_pickles((path,), "labels")  # noqa: E731
    return Reader("data_batch_1", pickle.dumps(content, 2), read, right, BYTES)


def image_reader(folder: Path) -> Reader:
    def read(path: Path) -> Any:
        return imagefiles.read(imagefiles.Source("images", folder, (path,), (path,), ((0,), (0,))))

    def right(made: Any) -> bool:
        return made["x_train"].dtype == np.uint8 and made["x_train"].shape[:2] == (1, 3)

    return Reader("image.png", picture(0), read, right, BYTES)


def checksums_reader(folder: Path) -> Reader:
    def read(path: Path) -> Any:
        place = path.with_name(store.CHECKSUMS)
        path.rename(place)
        try:
            return store.read_checksums(folder)
        finally:
            place.rename(path)

    good = "".join(f"{k:064x}  digits/cm/seed{k}-00000000.json\n" for k in range(9)).encode()
    return Reader("sums", good, read, lambda made: all(isinstance(one, str) for pair in made.items() for one in pair), TEXT)


def names_reader(folder: Path) -> Reader:
    def read(path: Path) -> Any:
        place = path.with_name("classes.json")
        path.rename(place)
        try:
            return imagefiles.tiny_names(imagefiles.Source("images", folder, (folder / "x.png",), ()))
        finally:
            place.rename(path)

    good = json.dumps({"words": ["goldfish, Carassius", "toad", "toad, tailed"]}).encode()
    right: Callable[[Any], bool] = lambda made: all(isinstance(word, str) for word in made)  # noqa: E731
    return Reader("names", good, read, right, (*TEXT, *[of_json] * 8))


def annotations_reader(folder: Path) -> Reader:
    """The official TinyImageNet folder, in small: the labels of its test images stand in a text file."""
    (folder / "wnids.txt").write_text("n01\nn02\n")
    for name in ("n01", "n02"):
        (folder / "train" / name).mkdir(parents=True)
        (folder / "train" / name / "a.png").write_bytes(picture(1))
    images = folder / "val" / "images"
    images.mkdir(parents=True)
    for k in range(4):
        (images / f"{k}.png").write_bytes(picture(k))

    def read(path: Path) -> Any:
        place = folder / "val" / "val_annotations.txt"
        path.rename(place)
        try:
            with pytest.MonkeyPatch.context() as patch, imagefiles.readable():
                patch.setattr(imagefiles, "TINY_CLASSES", 2)
                return imagefiles.read(imagefiles.list_tiny(folder))
        finally:
            place.rename(path)

    def right(made: Any) -> bool:
        return set(made["y_test"].tolist()) <= {0, 1} and len(made["x_test"]) == len(made["y_test"])

    return Reader("notes", b"".join(b"%d.png\tn0%d\t0\t0\n" % (k, 1 + k % 2) for k in range(4)), read, right, TEXT)


READERS = {
    **{"result": result_reader, "grid": grid_reader, "checkpoint": checkpoint_reader, "parquet": parquet_reader},
    **{"snapshots": snapshots_reader, "cache": cache_reader, "pickles": pickles_reader, "image": image_reader},
    **{"checksums": checksums_reader, "class names": names_reader, "annotations": annotations_reader},
}


# -- the test ---------------------------------------------------------------------------------------------------------------


def put(path: Path, reader: Reader, seed: str) -> str:
    """Write the damaged file of a seed; says what was done."""
    rng = random.Random(seed)
    if rng.random() < 0.01:
        how = rng.choice(("a folder", "a link to itself", "empty"))
        if how == "a folder":
            path.mkdir()
        elif how == "empty":
            path.touch()
        else:
            path.symlink_to(path)
        return how
    content, done = reader.good, []
    for mutate in [rng.choice(reader.mutations)] if rng.random() < 0.8 else rng.choices(reader.mutations, k=2):
        with suppress(ValueError, IndexError, TypeError, RecursionError):  # what is damaged already need not be JSON any more
            content = mutate(rng, content)
            done.append(mutate.__name__)
    path.write_bytes(content)
    return " and ".join(done)


def answer(reader: Reader, path: Path) -> str:
    """How the reader answers: `refused`, `read`, or what is wrong."""
    try:
        made = reader.read(path)
    except CmlibError as error:
        text = str(error)
        return "refused" if text and "\n" not in text and "Traceback" not in text else f"not one line: {text[:200]!r}"
    except Exception as error:
        return f"traceback: {type(error).__name__}: {str(error)[:200]}"
    try:
        return "read" if reader.right(made) else "wrong result"
    except Exception as error:
        return f"wrong result: {type(error).__name__}: {str(error)[:200]}"


def fuzz(name: str, seeds: range, folder: Path) -> tuple[int, dict[str, str]]:
    """Feed a reader with the inputs of these seeds. -> how many were refused; what went wrong, by seed"""
    place = folder / "place"
    place.mkdir()
    reader, refused, bad = READERS[name](place), 0, {}
    for seed in seeds:
        path = place / reader.name
        done = put(path, reader, f"{name} {seed}")
        said = answer(reader, path)
        refused += said == "refused"
        if said not in ("refused", "read"):
            bad[f"{name} {seed} ({done})"] = said
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return refused, bad


def check(name: str, seeds: range, folder: Path, counted: Any) -> None:
    logging.getLogger("cmlib").setLevel(logging.ERROR)
    refused, bad = fuzz(name, seeds, folder)
    print(f"{name}: seeds {seeds.start} to {seeds.stop - 1}, {refused} refused, {len(seeds) - refused - len(bad)} read right")
    counted("inputs fuzzed", len(seeds))
    counted("wrong results", sum(said.startswith("wrong") for said in bad.values()))
    counted("tracebacks", sum(said.startswith(("traceback", "not")) for said in bad.values()))
    assert not bad, "\n".join(f"{seed}: {said}" for seed, said in [*bad.items()][:20])
    assert refused > len(seeds) / 10 or name == "cache"  # the damage reaches the reader; a cache is made again


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    level = logging.getLogger("cmlib").level
    yield
    logging.getLogger("cmlib").setLevel(level)


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_end_in_one_line(name: str, tmp_path: Path, counted: Any) -> None:
    check(name, range(SHARES[name]), tmp_path, counted)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", READERS)
def test_twenty_thousand_damaged_files(name: str, tmp_path: Path, counted: Any) -> None:
    check(name, range(1000, 1000 + 40 * SHARES[name]), tmp_path, counted)


def test_how_many_and_that_good_files_are_read(tmp_path: Path) -> None:
    assert sum(SHARES.values()) == 500 and SHARES.keys() == READERS.keys()
    for name, make in READERS.items():
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        reader = make(folder)
        path = folder / reader.name
        path.write_bytes(reader.good)
        assert answer(reader, path) == "read", name


@pytest.mark.parametrize(
    ("line", "new", "words"),
    [
        ('unit = "percent"', "", "is no grid: it lacks unit"),
        ('unit = "percent"', "unit = 3", "is no grid: unit must be str, not 3"),
        ('metrics = ["accuracy"]', 'metrics = "accuracy"', "metrics must be list, not 'accuracy'"),
        ('methods = ["cm"]', 'method = ["cm"]', "an entry of rows lacks methods"),
        ('methods = ["cm"]', 'methods = ["cm"]\npoold = true', "unknown key 'poold'.*Did you mean 'pooled'"),
        ("mini = [5, 25, 50, 100, 250]", "mini = [5, 25]", "support_size has 2 values in mini beside 5 printed ones"),
        ("mini = [5, 25, 50, 100, 250]", "", "values lacks mini"),
        ('option = "support_size"', 'option = "seed"', "seed is no option"),
        ("printed = [10,", "printed = [[10],", r"an entry of printed? must be str or int or float or bool, not \[10\]"),
        ("[datasets]", "[datasets", "is no grid: "),
    ],
)
def test_what_is_wrong_in_a_grid_is_named(tmp_path: Path, line: str, new: str, words: str) -> None:
    text = (grids.FOLDER / "table4.toml").read_text()
    assert text.count(line) == 1
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(line, new))
    with pytest.raises(cm.DataError, match=f"mine.toml {words}" if words.startswith("is") else words) as error:
        grids.read(path)
    assert "\n" not in str(error.value)


def test_an_option_that_a_grid_gets_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((grids.FOLDER / "table4.toml").read_text().replace("support_size", "suport_size"))
    with pytest.raises(OptionError, match="Did you mean 'support_size'"):
        grids.read(path).experiments("digits", 1)


if os.environ.get("CMLIB_FUZZ"):  # another piece of the seeds: CMLIB_FUZZ=first:last

    @pytest.mark.parametrize("name", READERS)
    def test_more_damaged_files(name: str, tmp_path: Path, counted: Any) -> None:
        check(name, range(*map(int, os.environ["CMLIB_FUZZ"].split(":"))), tmp_path, counted)
