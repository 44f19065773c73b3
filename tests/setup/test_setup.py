"""The set-up: dependency lists, Makefile, the scripts in .ci, the wheel, addresses, and what may stand where."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cmlib as cm

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PARTS = ["lint", "units", "notebooks", "book", "engines", "numbers", "faults", "glance"]
TARGETS = [f"test-{name}" for name in (*PARTS[1:-1], "browser", "cpus")]
TOP_LEVEL = {
    *("book", "cmlib", "tests", "_config.yml", "_toc.yml", "environment.yml", "README.md"),
    *("pyproject.toml", "Makefile", "constraints.txt", "LICENSE", "CITATION.cff", ".ci", ".github", ".gitignore"),
}


def script(name: str) -> ModuleType:
    """A script of .ci as a module."""
    spec = importlib.util.spec_from_file_location(f"ci_{name}", ROOT / ".ci" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


repo = script("repo")
parts = script("parts")


def shell(*words: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command without what an outer `make` left in the environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "CMLIB_NEED"))}
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, env={**kept, **environment}, capture_output=True, text=True, check=False
    )


# --- dependency lists ------------------------------------------------------------------------------------------------


def constraint_lines() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def pins() -> dict[str, str]:
    return dict(line.split("==") for line in constraint_lines())


def requirements() -> list[Requirement]:
    """Every dependency and every extra, but for `cmlib[...]` itself."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    return [need for line in lines if (need := Requirement(line)).name != "cmlib"]


def test_constraints_are_plain_sorted_pins() -> None:
    lines = constraint_lines()
    assert len(lines) > 100
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line)] == []
    names = [line.split("==")[0] for line in lines]
    assert names == sorted(set(names))
    assert [name for name in names if name.startswith(("nvidia-", "cuda-")) or name in {"triton", "cmlib"}] == []


@pytest.mark.parametrize("need", requirements(), ids=lambda need: need.name)
def test_every_requirement_has_a_pin_that_satisfies_it(need: Requirement) -> None:
    pin = pins()[canonicalize_name(need.name)]
    assert need.specifier.contains(pin), f"{need} but {pin}"


def test_only_jupyter_book_has_an_upper_bound() -> None:
    bounds = {need.name: sorted(part.operator for part in need.specifier) for need in requirements()}
    assert bounds.pop("jupyter-book") == ["<", ">="]
    assert {name: found for name, found in bounds.items() if found != [">="]} == {}


def test_all_is_the_other_extras() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert Requirement(everything).extras == set(extras) - {"all"}


def test_avalanche_is_left_out_where_it_cannot_be_installed() -> None:
    (line,) = PROJECT["project"]["optional-dependencies"]["avalanche"]
    marker = Requirement(line).marker
    assert marker is not None
    assert [marker.evaluate({"python_version": version}) for version in ("3.11", "3.12", "3.13")] == [True, True, False]


def test_environment_file_uses_the_same_lists() -> None:
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    python, pip, packages = dependencies
    assert python == "python=3.11" and PROJECT["project"]["requires-python"] == ">=3.11"
    assert pip == "pip"
    assert packages == {"pip": ["-c constraints.txt", "-e .[all]"]}


def test_citation_agrees_with_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == cm.__version__
    assert citation["repository-code"] == PROJECT["project"]["urls"]["Repository"]
    assert [author["family-names"] for author in citation["references"][0]["authors"]] == [*("Pomponi", "Scardapane", "Uncini")]


def test_licence_holds_both_texts() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Permission is hereby granted, free of charge" in text
    assert "Section 8 -- Interpretation." in text
    assert PROJECT["project"]["license"] == "MIT AND CC-BY-4.0"


# --- the package -----------------------------------------------------------------------------------------------------


def test_every_package_is_listed() -> None:
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "cmlib").rglob("__init__.py")}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found | {"cmlib.results"}


def test_wheel_carries_all_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        source.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "cmlib", source / "cmlib", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "book" / "results", source / "book" / "results")
    probe = source / "book" / "results" / "digits" / "digits-til" / "cm-lam=0.5"
    probe.mkdir(parents=True, exist_ok=True)
    (probe / "seed9-00000000.json").write_text("{}", encoding="utf-8")
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet"]
    done = shell(sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", tmp_path, source)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("cmlib-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        sizes = {info.filename: info.compress_size for info in archive.infolist()}
    assert sorted(wanted_in_wheel(source) - sizes.keys()) == []
    assert sum(size for name, size in sizes.items() if name.startswith("cmlib/results/")) <= 2_500_000


def wanted_in_wheel(source: Path) -> set[str]:
    """Every file of the package and every result, under its name in the wheel."""
    package = {path.relative_to(source).as_posix() for path in (source / "cmlib").rglob("*") if path.is_file()}
    results = source / "book" / "results"
    runs = {path.relative_to(results).as_posix() for kind in ("*.json", "*.npz") for path in results.rglob(kind)}
    assert "digits/digits-til/cm-lam=0.5/seed9-00000000.json" in runs
    return package | {f"cmlib/results/{name}" for name in runs}


def test_import_is_light() -> None:
    heavy = ("avalanche", "matplotlib", "pandas", "scipy", "seaborn", "sklearn")
    say = f"print(sorted({{*{heavy!r}, 'torch'}} & set(sys.modules)), cmlib.__file__)"
    done = shell(sys.executable, "-c", f"import sys, cmlib, cmlib.cli; {say}; cmlib.run, cmlib.METHODS; {say}")
    assert done.returncode == 0, done.stderr
    here = ROOT / "cmlib" / "__init__.py"
    assert done.stdout.splitlines() == [f"[] {here}", f"['torch'] {here}"]


def test_every_name_of_the_package_is_what_its_module_gives() -> None:
    known = ["CmlibError", "DataError", "OptionError", "StoreError", "centroids", "datasets", "metrics", "plots", "projectors"]
    listed = [name for names in cm._HOME.values() for name in names]
    assert sorted(listed + known) == sorted(cm.__all__)
    for home, names in cm._HOME.items():
        module = importlib.import_module(home)
        assert all(getattr(cm, name) is getattr(module, name) for name in names)
    code = "import cmlib as cm; print(cm.store.__name__, cm.loop.__name__, cm.methods.cm.__name__)"
    said = shell(sys.executable, "-c", code).stdout  # modules, too, without an import of their own
    assert said.split() == ["cmlib.store", "cmlib.loop", "cmlib.methods.cm"]
    with pytest.raises(AttributeError, match="'cmlib' has no attribute 'trian'"):
        _ = cm.trian


# --- the Makefile and the virtual environment ------------------------------------------------------------------------


def test_help_is_the_default_and_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE)) - {"env", "help"}
    targets |= set(TARGETS)
    done = shell("make")
    assert done.returncode == 0 and done.stdout == shell("make", "help").stdout
    listed = {line.split()[0] for line in done.stdout.splitlines()}
    assert listed - {"Another"} == targets


def test_make_test_runs_every_part() -> None:
    done = shell("make", "-n", "test")
    assert done.returncode == 0, done.stderr
    assert f".ci/parts.py {' '.join(PARTS)}" in done.stdout


def test_every_target_can_be_planned() -> None:
    for target in (
        "reproduce",
        "lint",
        "notebooks",
        "book",
        "course",
        "release",
        "publish-results",
        "clean",
        *TARGETS,
    ):
        done = shell("make", "-n", target)
        assert done.returncode == 0 and done.stdout, f"{target}: {done.stderr}"


FAKE_PYTHON = """\
#!/usr/bin/env bash
# A Python of version {version} that only knows what .ci/venv.sh asks for.
case "$1 $2" in
    *sys.exit*) exit {unfit} ;;
    *stdout.write*) printf {version} ;;
    *ensurepip*) exit 0 ;;
    "-m venv") mkdir -p .venv/bin; cp "{me}" .venv/bin/python; echo venv >> calls ;;
    "-m pip")
        [ "$3" = --version ] && exit 0
        echo "pip ${{*:3}}" >> calls
        [ ! -e pip-fails ] ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the set-up files and a PATH folder `bin` that holds no Python yet."""
    (tmp_path / ".ci").mkdir()
    for name in ("Makefile", "constraints.txt", "pyproject.toml", ".ci/venv.sh", ".ci/run"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    for name in ("bash", "cat", "cksum", "cp", "cut", "dirname", "env", "make", "mkdir", "rm", "sed", "touch"):
        program = shutil.which(name)
        assert program is not None
        (tmp_path / "bin" / name).symlink_to(program)
    return tmp_path


def add_python(checkout: Path, name: str, version: str) -> None:
    path = checkout / "bin" / name
    unfit = int(tuple(map(int, version.split("."))) < (3, 11))
    path.write_text(FAKE_PYTHON.format(version=version, unfit=unfit, me=path), encoding="utf-8")
    path.chmod(0o755)


def make(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return shell(checkout / "bin" / "make", *words, cwd=checkout, PATH=str(checkout / "bin"))


def calls(checkout: Path) -> list[str]:
    path = checkout / "calls"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


INSTALLED = [
    "pip install --quiet --upgrade --constraint constraints.txt pip",
    "pip install --quiet --constraint constraints.txt --editable .[all]",
]


@pytest.mark.parametrize("target", ["test", "reproduce"])
def test_an_old_python_is_refused_in_one_line(checkout: Path, target: str) -> None:
    add_python(checkout, "python3", "3.9")
    done = make(checkout, target)
    (line,) = done.stderr.splitlines()
    assert done.returncode != 0 and done.stdout == ""
    assert "needs Python 3.11 or newer, and 'python3' is 3.9." in line and "PATH" not in line
    assert not (checkout / ".venv").exists()


def test_the_refusal_names_a_python_that_suits(checkout: Path) -> None:
    add_python(checkout, "python3", "3.10")
    add_python(checkout, "python3.12", "3.12")
    done = make(checkout, "reproduce")
    (line,) = done.stderr.splitlines()
    assert done.returncode != 0 and "make reproduce PYTHON=python3.12" in line
    assert make(checkout, "env", "PYTHON=python3.12").returncode == 0
    assert calls(checkout) == ["venv", *INSTALLED]


def test_a_missing_python_is_refused_in_one_line(checkout: Path) -> None:
    done = make(checkout, "test", "PYTHON=python9")
    (line,) = done.stderr.splitlines()
    assert done.returncode != 0 and "'python9' does not run" in line


def test_a_named_python_is_checked_though_the_environment_exists(checkout: Path) -> None:
    add_python(checkout, "python3", "3.11")
    add_python(checkout, "old", "3.8")
    add_python(checkout, "other", "3.12")
    assert make(checkout, "env").returncode == 0
    assert "'old' is 3.8" in make(checkout, "env", "PYTHON=old").stderr
    assert "'other' is 3.12 but .venv was made with 3.11" in make(checkout, "env", "PYTHON=other").stderr
    assert calls(checkout) == ["venv", *INSTALLED]


def test_nothing_is_installed_twice(checkout: Path) -> None:
    add_python(checkout, "python3", "3.11")
    for _ in range(3):
        assert make(checkout, "env").returncode == 0
    assert calls(checkout) == ["venv", *INSTALLED]
    (checkout / "constraints.txt").write_text("changed==1\n", encoding="utf-8")
    assert make(checkout, "env").returncode == 0
    assert calls(checkout) == ["venv", *INSTALLED, *INSTALLED]
    assert len(list((checkout / ".venv").glob(".stamp-*"))) == 1


def test_an_interrupted_installation_is_completed(checkout: Path) -> None:
    add_python(checkout, "python3", "3.11")
    (checkout / "pip-fails").touch()
    assert make(checkout, "env").returncode != 0
    assert list((checkout / ".venv").glob(".stamp-*")) == []
    packages = checkout / ".venv" / "lib" / "python3.11" / "site-packages"
    (packages / "whole-1.dist-info").mkdir(parents=True)
    (packages / "whole-1.dist-info" / "INSTALLER").touch()
    (packages / "half-1.dist-info").mkdir()
    (packages / "~ld-1.dist-info").mkdir()
    (checkout / "pip-fails").unlink()
    assert make(checkout, "env").returncode == 0
    assert calls(checkout) == ["venv", INSTALLED[0], *INSTALLED]
    assert [path.name for path in packages.iterdir()] == ["whole-1.dist-info"]


def test_a_broken_environment_is_made_anew(checkout: Path) -> None:
    add_python(checkout, "python3", "3.11")
    (checkout / ".venv" / "bin").mkdir(parents=True)  # the folder was made, then the call was interrupted
    assert make(checkout, "env").returncode == 0
    assert calls(checkout) == ["venv", *INSTALLED]


# --- the parts of `make test` ----------------------------------------------------------------------------------------


def test_all_parts_run_and_failures_are_summed_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    answers = {
        "units": [parts.Result("passed", (7, 0, 1))],
        "lint": [parts.Result("passed"), parts.Result("FAILED"), parts.Result("passed")],
        "engines": [parts.Result("none")],
        "faults": [parts.Result("FAILED", (2, 3, 0))],
    }
    monkeypatch.setattr(parts, "PARTS", {name: lambda found=found: found for name, found in answers.items()})
    assert parts.main(list(answers)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[-7:-2]] == [
        *(["units", "passed"], ["lint", "FAILED"], ["engines", "none"], ["faults", "FAILED"], ["all", "0"])
    ]
    assert lines[-2:] == ["tests: 9 passed, 3 failed, 1 skipped", "FAILED: lint, faults"]
    assert parts.main(["units", "engines"]) == 0


def test_an_unknown_part_is_one_line(capsys: pytest.CaptureFixture) -> None:
    assert parts.main(["unitz"]) == 2
    assert capsys.readouterr().err.startswith("unknown part 'unitz'; allowed: lint, units, ")


def test_pytest_counts_and_no_tests(tmp_path: Path) -> None:
    test = tmp_path / "test_three.py"
    test.write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 0\n@pytest.mark.skip\ndef test_c(): pass\n",
        encoding="utf-8",
    )
    quiet = (str(test), "-p", "no:cacheprovider", *parts.SPARED, "-p", "no:nbval", "--override-ini=addopts=")
    assert parts.pytest(*quiet) == parts.Result("FAILED", (1, 1, 1))
    assert parts.pytest(*quiet, "-k", "test_a") == parts.Result("passed", (1, 0, 0))
    assert parts.pytest(*quiet, "-k", "nothing") == parts.Result("none", (0, 0, 0))


def test_browser_tests_without_chromium(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CMLIB_NEED_BROWSER", raising=False)
    assert parts.browser() == [parts.Result("skipped")]
    assert capsys.readouterr().out == "browser tests skipped: no Chromium\n"
    monkeypatch.setenv("CMLIB_NEED_BROWSER", "1")
    assert parts.browser() == [parts.Result("FAILED")]


@pytest.mark.parametrize(("needed", "word"), [("", "passed"), ("1", "FAILED")])
def test_skipped_browser_tests_fail_where_they_are_needed(monkeypatch: pytest.MonkeyPatch, needed: str, word: str) -> None:
    monkeypatch.setenv("CMLIB_NEED_BROWSER", needed)
    monkeypatch.setattr(parts, "chromium", lambda: "chromium")
    asked = []
    monkeypatch.setattr(parts, "pytest", lambda *words: asked.append(words[-1]) or parts.Result("passed", (4, 0, 2)))
    for part in (parts.browser, parts.glance):
        (result,) = part()
        assert (result.word, result.counts) == (word, (4, 0, 2))
    assert asked == ["browser", "browser and not slow"]


def test_the_site_is_built_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("html", "executed"):
        (tmp_path / "_build" / name).mkdir(parents=True)
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    monkeypatch.setattr(parts, "command", lambda *words: ran.append(words[1:]) or parts.Result("passed"))
    parts.build()
    assert [path.name for path in (tmp_path / "_build").iterdir()] == ["executed"]
    assert ran == [("build", ".", "-W", "-n", "--keep-going")]


def test_markers_of_the_parts_are_known() -> None:
    known = {line.split(":")[0] for line in PROJECT["tool"]["pytest"]["ini_options"]["markers"]}
    assert known == {"slow", "faults", "engines", "site", "browser", "numbers"}
    assert set(re.findall(r"not (\w+)", parts.UNITS)) == known - {"numbers"}  # those are among the units and engines too


# --- continuous integration ------------------------------------------------------------------------------------------


def add_program(checkout: Path, name: str, line: str) -> None:
    path = checkout / "bin" / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize("user", [0, 1000])
@pytest.mark.parametrize("browser", [True, False])
@pytest.mark.parametrize("code", [0, 2])
def test_ci_installs_a_browser_and_runs_make_test(checkout: Path, user: int, browser: bool, code: int) -> None:
    add_program(checkout, "make", f'echo "make $* need=$CMLIB_NEED_BROWSER" >> calls; exit {code}')
    add_program(checkout, "apt-get", 'echo "apt-get $1" >> calls')
    add_program(checkout, "id", f"echo {user}")
    if browser:
        add_program(checkout, "google-chrome", "exit 0")
    done = shell(checkout / "bin" / "bash", ".ci/run", cwd=checkout, PATH=str(checkout / "bin"))
    assert done.returncode == code
    installs = ["apt-get update", "apt-get install"] if user == 0 and not browser else []
    assert calls(checkout) == [*installs, "make test need=1"]


def test_workflows_use_the_same_commands() -> None:
    flows = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / ".github").rglob("*.yml")}
    runs = {
        name: [step["run"] for job in flow["jobs"].values() for step in job["steps"] if "run" in step]
        for name, flow in flows.items()
    }
    assert runs == {"ci": ["bash .ci/run", "make test-units test-notebooks", "make course"], "pages": ["make book"]}


# --- addresses -------------------------------------------------------------------------------------------------------

HUB = "https://github" + ".com/"
OLD = "first-owner/first.book"
PAGES = {
    "pyproject.toml": f'[project.urls]\nRepository = "{HUB}{OLD}"\n',
    "README.md": f"[![ci]({HUB}{OLD}/actions/workflows/ci.yml/badge.svg)]({HUB}{OLD}) and a/b, {HUB}{OLD}-two\n",
    "book/01_x.ipynb": f'{{"source": "https://colab.research.google.com/github/{OLD}/blob/main/book/01_x.ipynb"}}\n',
    "book/start.md": f"pip install git+{HUB}{OLD}.git; https://first-owner.github.io/first.book/a.html\n"
    f"git clone {HUB}{OLD}\ncd first.book\n\ngit clone {HUB}{OLD}.git && cd first.book; cd first.book-two, a first.book\n",
    "CITATION.cff": f"repository-code: {HUB}{OLD}\nurl: {HUB}jaryP/CentroidsMatching\n",
}


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    for name, text in PAGES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def contents(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text(encoding="utf-8") for name in PAGES}


def test_repo_changes_every_address_once(pages: Path) -> None:
    assert sorted(repo.rename("a/b", pages)) == sorted(PAGES)
    text = contents(pages)
    assert text["pyproject.toml"] == f'[project.urls]\nRepository = "{HUB}a/b"\n'
    assert text["README.md"] == f"[![ci]({HUB}a/b/actions/workflows/ci.yml/badge.svg)]({HUB}a/b) and a/b, {HUB}{OLD}-two\n"
    assert "/github/a/b/blob/main/book/01_x.ipynb" in text["book/01_x.ipynb"]
    assert text["book/start.md"] == (
        f"pip install git+{HUB}a/b.git; https://a.github.io/b/a.html\n"
        f"git clone {HUB}a/b\ncd b\n\ngit clone {HUB}a/b.git && cd b; cd first.book-two, a first.book\n"
    )
    assert f"{HUB}jaryP/CentroidsMatching" in text["CITATION.cff"]
    assert repo.rename("a/b", pages) == []
    assert repo.rename(OLD, pages) and contents(pages) == PAGES  # the prose "a/b" is no address


def test_no_word_of_the_old_name_is_left(tmp_path: Path) -> None:
    """On a copy of what git tracks; back again through a name that is a common word every byte is as before."""
    old = repo.slug_of()
    before = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in repo.files()}
    for name, content in before.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    words = [word.lower().encode() for word in old.split("/")]
    holding = {name for name, content in before.items() if any(word in content.lower() for word in words)}
    assert "book/start.md" in holding and set(repo.rename("me/fork", tmp_path)) == holding
    for name in before:
        content = (tmp_path / name).read_bytes().lower()
        assert not [word for word in words if word in content], name
    start = (tmp_path / "book" / "start.md").read_text(encoding="utf-8")
    assert f"git clone {HUB}me/fork\ncd fork\n" in start and repo.slug_of(tmp_path) == "me/fork"
    for slug in ("jane/book", old):
        repo.rename(slug, tmp_path)
    assert [name for name, content in before.items() if (tmp_path / name).read_bytes() != content] == []


def test_an_interrupted_change_can_be_repeated(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def fails_at_readme(path: Path, content: bytes) -> int:
        if path.name == "README.md":
            raise OSError("disk full")
        return write(path, content)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
        patch.setattr(Path, "write_bytes", fails_at_readme)
        repo.rename("jane/centroids", pages)
    assert repo.slug_of(pages) == OLD
    repo.rename("jane/centroids", pages)
    assert [name for name, text in contents(pages).items() if f"{OLD}" in text.replace(f"{OLD}-two", "")] == []


@pytest.mark.parametrize("slug", ["name", "a/b/c", "-a/b", "a b/c", "a/..", "a/b.git", "a/b;rm", HUB + "a/b"])
def test_a_bad_slug_is_refused_in_one_line(slug: str, capsys: pytest.CaptureFixture) -> None:
    before = (ROOT / "pyproject.toml").read_bytes()
    assert repo.main([slug]) == 2
    assert "SLUG must be owner/name" in capsys.readouterr().err
    assert (ROOT / "pyproject.toml").read_bytes() == before


def test_make_repo_without_slug_says_how() -> None:
    done = shell("make", "repo")
    assert done.returncode != 0
    assert done.stderr.splitlines()[0] == "say the new address: make repo SLUG=owner/name"


def test_strays_are_found(pages: Path) -> None:
    assert repo.strays(pages) == [f"README.md: {OLD}-two"]


def test_no_address_of_another_repository() -> None:
    assert repo.strays() == [], "a repository of others belongs into THIRD_PARTIES in .ci/repo.py"


# --- what may stand where --------------------------------------------------------------------------------------------


def test_top_level_holds_what_is_prescribed() -> None:
    found = {path.relative_to(ROOT).parts[0] for path in repo.files()}
    assert sorted(found - TOP_LEVEL) == []
    assert sorted(TOP_LEVEL - found) == []


def test_no_machine_paths_and_no_registry_hosts() -> None:
    folders = [f"/{name}/" for name in ("work", "root", "home")]
    hosts = [".".join(p) for p in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("debian", "org"))]
    hosts += [".".join(p) for p in (("download", "pytorch", "org"), ("anaconda", "org"))]
    samples = {"test_notebooks_tool.py"}  # its samples are such paths
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path, text in repo.texts()
        for word in (*folders, *hosts)
        if word in text and path.name not in samples and re.search(rf"(?<![\w.]){re.escape(word)}", text)
    ]
    assert found == []


def test_network_is_refused() -> None:
    import socket

    with pytest.raises(RuntimeError, match="tests use no network"):
        socket.create_connection(("198.51.100.1", 9), timeout=1)
    with pytest.raises(RuntimeError, match="tests use no network"):
        socket.getaddrinfo("example.org", 80)


def test_one_thread_and_own_folders() -> None:
    import torch

    assert torch.get_num_threads() == int(os.environ.get("CMLIB_TEST_THREADS", "1"))
    assert "cmlib-tests-" in os.environ["CMLIB_STORE"] and "cmlib-tests-" in os.environ["CMLIB_CACHE"]
