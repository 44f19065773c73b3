"""Change the public address of this repository wherever it stands: repo.py owner/name

The address is kept in pyproject.toml, [project.urls]; the other files repeat it. The folder that `git clone` makes bears the
name too: it follows in the `cd` after it. Elsewhere the bare name must not stand, for it may be any word. `strays` finds
addresses that fit neither this repository nor one of the third parties below. Runs with any Python from 3.8 on, without packages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SKIPPED_FOLDERS = {"_build", "build", "dist", "runs", "__pycache__", "mathjax", "reveal"}  # the last two are vendored
BINARY = {".png", ".npz", ".parquet", ".ico", ".woff", ".woff2", ".pdf", ".gif", ".jpg", ".pyc", ".pt"}

# Repositories of others that the book may link to.
THIRD_PARTIES = {
    "ContinualAI/avalanche",
    "ContinualAI/continual-learning-baselines",
    "dequelabs/axe-core",
    "jaryP/CentroidsMatching",
    "jaryP/ContinualAI",
    "zloirock/core-js",
}
EXAMPLES = {"owner/name"}

SLUG = re.compile(r"[A-Za-z0-9](?:-?[A-Za-z0-9]){0,38}/[A-Za-z0-9_.-]{1,100}")
OWN_ADDRESS = re.compile(r'^Repository = "https://github\.com/([^"/]+/[^"/]+)"$', re.MULTILINE)
ADDRESS = re.compile(
    r"(?:github\.com(?:/repos)?|githubusercontent\.com|colab\.research\.google\.com/github|mybinder\.org/v2/gh)[/:]"
    r"([A-Za-z0-9-]+/[A-Za-z0-9_.-]*[A-Za-z0-9_-])"
)


def check_slug(slug: str) -> str:
    """Return `slug` when it has the form owner/name that GitHub allows; raise ValueError otherwise."""
    name = slug.partition("/")[2]
    if not SLUG.fullmatch(slug) or name in {".", ".."} or name.endswith(".git"):
        raise ValueError(f"SLUG must be owner/name, for example jane/centroids; got '{slug}'")
    return slug


def slug_of(root: Path = ROOT) -> str:
    """The owner/name that pyproject.toml gives."""
    found = OWN_ADDRESS.findall((root / "pyproject.toml").read_text(encoding="utf-8"))
    if len(found) != 1:
        raise ValueError('pyproject.toml must give the address once, as: Repository = "https://github.com/owner/name"')
    return str(found[0])


def files(root: Path = ROOT) -> list[Path]:
    """All files of the repository that are not ignored; without git, all outside of hidden and built folders."""
    listed = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listed, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return sorted(_walk(root))
    names = {name for name in done.stdout.split("\0") if name}
    return sorted(path for name in names if (path := root / name).is_file())


def _walk(root: Path) -> Iterator[Path]:
    for folder, inner, names in os.walk(root):
        hidden = {name for name in inner if name.startswith(".") and name not in {".ci", ".github"}}
        inner[:] = [name for name in inner if name not in SKIPPED_FOLDERS | hidden and not name.endswith(".egg-info")]
        yield from (Path(folder, name) for name in names)


def texts(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Every text file with its content, without vendored files."""
    for path in files(root):
        if path.suffix in BINARY or SKIPPED_FOLDERS & set(path.relative_to(root).parts):
            continue
        yield path, path.read_bytes().decode("utf-8")


def strays(root: Path = ROOT) -> list[str]:
    """Addresses of repositories that are neither this one nor a known third party: "file: owner/name"."""
    known = {slug.lower() for slug in (slug_of(root), *THIRD_PARTIES, *EXAMPLES)}
    found = []
    for path, text in texts(root):
        slugs = {slug[:-4] if slug.endswith(".git") else slug for slug in ADDRESS.findall(text)}
        found += [f"{path.relative_to(root)}: {slug}" for slug in sorted(slugs) if slug.lower() not in known]
    return found


def rename(new: str, root: Path = ROOT) -> list[str]:
    """Put `new` in place of the present owner/name; return the changed files. pyproject.toml comes last, so that an
    interrupted call can be repeated."""
    check_slug(new)
    old = slug_of(root)
    before = r"(github\.com[/:]|githubusercontent\.com/|/repos/|/github/(?:[\w-]+/)*?|/gh/)"
    address = re.compile(rf"{before}{re.escape(old)}(?![\w-]|\.(?!git\b)\w)")
    pages = re.compile(rf"\b{'/'.join(map(re.escape, _pages(old)))}(?![\w-])")
    entered = re.compile(
        rf"(git clone [^\n]*/{re.escape(new)}(?:\.git)?/?(?:\s|&&|;)+cd ){re.escape(old.split('/')[1])}(?![\w.-])"
    )
    changed = []
    for path, text in sorted(texts(root), key=lambda pair: pair[0].name == "pyproject.toml"):
        fresh = pages.sub("/".join(_pages(new)), address.sub(rf"\g<1>{new}", text))
        fresh = entered.sub(rf"\g<1>{new.split('/')[1]}", fresh)
        if fresh != text:
            path.write_bytes(fresh.encode("utf-8"))
            changed.append(str(path.relative_to(root)))
    return changed


def _pages(slug: str) -> tuple[str, str]:
    owner, name = slug.split("/")
    return f"{owner.lower()}.github.io", name


def main(arguments: list[str]) -> int:
    try:
        if len(arguments) != 1 or not arguments[0]:
            raise ValueError("say the new address: make repo SLUG=owner/name")
        changed = rename(arguments[0])
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"The address is github.com/{arguments[0]}; changed: {', '.join(changed) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
