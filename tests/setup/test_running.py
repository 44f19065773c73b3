"""How the tests run: Ctrl-C reaches what they start, each has a limit, and the numbers are tried as other CPUs compute them.

Some of these start pytest on this file, so it does not import torch at its top.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
THIS = "tests/setup/test_running.py"
LEAN = "-q -p no:cacheprovider -p no:hypothesispytest -p no:anyio -p no:nbval"  # the other plugins are slow to start
SEEN = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"


def parts():
    spec = importlib.util.spec_from_file_location("parts_of_the_tests", ROOT / ".ci" / "parts.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for its dataclass
    spec.loader.exec_module(module)
    return module


def shell(line, **variables):
    """A line of a shell, with this Python as `python`."""
    path = f"{Path(sys.executable).absolute().parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    return subprocess.run(["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


# -- Ctrl-C ---------------------------------------------------------------------------------------------------------------


def test_what_a_test_starts_gets_ctrl_c():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert subprocess.run([sys.executable, "-c", SEEN], capture_output=True, text=True, check=True).stdout == "True\n"


@pytest.mark.parametrize("workers", ["-p no:xdist", "-n 1"])
def test_also_when_the_tests_were_started_in_the_background(workers):
    """There a shell lets them ignore Ctrl-C: `make test &` in a script."""
    assert shell(f"trap '' INT; python -c '{SEEN}'").stdout == "False\n"  # this is what they would hand on
    done = shell(f"trap '' INT; python -m pytest {LEAN} {workers} {THIS}::test_what_a_test_starts_gets_ctrl_c")
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_the_parts_take_ctrl_c_too():
    """Chapters run without tests/conftest.py; their kernels get what the script hands on."""
    code = f'import subprocess, sys, runpy; sys.argv = ["parts.py", "x"]\nsubprocess.run([sys.executable, "-c", "{SEEN}"])'
    start = "try: runpy.run_path('.ci/parts.py', run_name='__main__')\nexcept SystemExit: pass"
    before, after = code.split("\n")
    done = shell(f"trap '' INT; python - <<'END'\n{before}\n{start}\n{after}\nEND")
    assert done.stdout == "True\n" and "unknown part 'x'" in done.stderr


# -- limits ---------------------------------------------------------------------------------------------------------------


def test_a_test_that_hangs_is_named_and_the_next_one_runs(tmp_path):
    (tmp_path / "test_two.py").write_text(
        "import time\n\ndef test_endless():\n    time.sleep(60)\n\ndef test_next():\n    pass\n", encoding="utf-8"
    )
    done = shell(f"python -m pytest {LEAN} -c pyproject.toml {tmp_path} -o timeout=1")
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout
    assert "FAILED" in done.stdout and "test_endless - Failed: Timeout" in done.stdout


def test_every_test_has_a_limit(request):
    assert request.config.getini("timeout") == "180" and request.config.getini("timeout_method") == "signal"


@pytest.mark.faults
def test_tests_that_start_programs_have_more_time(request):
    assert request.node.get_closest_marker("timeout").args == (600,)


# -- other CPUs -----------------------------------------------------------------------------------------------------------


ISA = [("ONEDNN_MAX_CPU_ISA", name) for name in ("SSE41", "AVX2", "AVX512_CORE")]
ATEN = [("ATEN_CPU_CAPABILITY", "default"), ("ATEN_CPU_CAPABILITY", "avx2")]
TWO = ("CMLIB_TEST_THREADS", "2")


@pytest.mark.parametrize(
    ("level", "wanted"),
    [("AVX512", [*ISA[:2], *ATEN, TWO]), ("AVX2", [ISA[0], ATEN[0], TWO]), ("VSX", [*ISA, *ATEN, TWO])],
)
def test_configurations_are_run_one_by_one_and_listed(monkeypatch, capsys, level, wanted):
    """Those that are another one than `make test` runs in: a limit above all that the CPU has is none."""
    script, calls = parts(), []

    def pytest_of(*words, **variables):
        calls.append((words[words.index("-m") + 1], variables))
        return script.Result("FAILED" if variables == {"ATEN_CPU_CAPABILITY": "default"} else "passed", (10, 0, 1))

    monkeypatch.setattr(script, "pytest", pytest_of)
    monkeypatch.setattr(script, "highest_level", lambda: level)
    assert script.main(["cpus"]) == 1
    assert [what for what, _ in calls] == [script.UNITS, "engines"] * len(wanted)
    assert [next(iter(variables.items())) for _, variables in calls[::2]] == wanted
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert ["two", "threads", "passed", "20", "tests", "0", "s"] in lines
    assert ["ATen", "default", "FAILED", "20", "tests", "0", "s"] in lines and f"this CPU: {level}; as in `make test`: " in out
    calls.clear()
    assert script.main(["numbers"]) == 1 and [what for what, _ in calls] == ["numbers"] * 2


@pytest.mark.parametrize("kind", ["engines", "faults", "browser", "site", "numbers", "slow"])
def test_files_with_tests_of_a_kind_are_found(kind):
    """By their text alone, which must find all that pytest finds."""
    *files, _, marker = parts().marked(kind)
    assert marker == kind and 1 <= len(files) < len(list((ROOT / "tests").rglob("test_*.py"))) - 5


def test_the_level_is_that_of_the_cpu_whatever_the_limit(monkeypatch):
    import torch

    script, limited = parts(), "ATEN_CPU_CAPABILITY" in os.environ
    here = torch.backends.cpu.get_cpu_capability()
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    found = script.highest_level()
    assert found in (*script.LEVELS, "NO AVX", "VSX", "Z VECTOR") and found != "DEFAULT" and (limited or found == here)


def test_the_variables_reach_torch():
    code = "import conftest, torch; conftest.pytest_collection_finish(); print(torch.get_num_threads())"
    code += "; print(torch.backends.cpu.get_cpu_capability())"
    done = shell(f"python -c '{code}'", PYTHONPATH="tests", CMLIB_TEST_THREADS="2", ATEN_CPU_CAPABILITY="default")
    assert done.stdout.split() == ["2", "DEFAULT"], done.stderr


# -- double precision -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("double")
def test_all_is_double():
    import torch

    net = torch.nn.Linear(2, 2)
    assert {net.weight.dtype, torch.rand(1).dtype, torch.zeros(1).dtype, torch.tensor(1.0).float().dtype} == {torch.float64}


def test_and_single_again_afterwards():
    import torch

    assert torch.zeros(1).dtype == torch.tensor(1.0).float().dtype == torch.float32
