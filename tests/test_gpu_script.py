"""The script that makes a grid of runs on a lent GPU, rehearsed on the CPU."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "gpu"


def call(tmp_path, *arguments):
    line = [sys.executable, SCRIPT, "--store", tmp_path / "store", "--results", tmp_path / "results", "--out", tmp_path / "out"]
    return subprocess.run([*map(str, line), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)


def fake_store(folder, checkpoint_bytes):
    place = folder / "smoke" / "digits-til" / "naive"
    place.mkdir(parents=True)
    (place / "seed1-00000000.ckpt").write_bytes(os.urandom(checkpoint_bytes))
    return place


def test_nothing_is_left_out_and_the_archive_stays_small(tmp_path):
    place = fake_store(tmp_path / "store", 16 * 2**20)  # a checkpoint that does not fit
    (place / "seed2-00000000.ckpt").write_bytes(b"small")
    done = call(tmp_path, "--budget", "0", "--profile", "smoke", "--datasets", "digits")
    assert done.returncode == 0 and "40 runs to make" in done.stdout, done.stderr
    archive = tmp_path / "out" / "grid.tar.gz"
    with tarfile.open(archive) as tar:
        assert tar.getnames() == ["smoke/digits-til/naive/seed2-00000000.ckpt"]
    assert archive.stat().st_size < 16 * 2**20


@pytest.mark.slow
def test_a_grid_goes_on_where_it_stands(tmp_path):
    arguments = ("--profile", "smoke", "--datasets", "digits", "--seeds", "1", "--jobs", "2")
    first = call(tmp_path, "--budget", "200", *arguments)
    assert first.returncode == 0 and "8 runs ended, 0 failed, 0 cut" in first.stdout, first.stdout + first.stderr
    put = call(tmp_path, "--unpack", tmp_path / "out" / "grid.tar.gz")
    files = sorted((tmp_path / "results").rglob("*.json"))
    assert put.returncode == 0 and len(files) == 8
    assert {json.loads(path.read_text())["status"] for path in files} == {"finished"}
    assert "0 runs to make" in call(tmp_path, "--budget", "60", *arguments).stdout
