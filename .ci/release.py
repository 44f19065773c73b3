"""One archive that opens from a stick: release.py [--address-as-is]

It holds the site, the chapters, the wheel, the licence and a page to begin with. The site is built from nothing; links inside it
are followed. The public address must have been set by `make repo SLUG=owner/name`: the one that the sources come with was made
up, and every link to Colab would fail. `--address-as-is` goes on all the same.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # repo.py lies beside this file
import repo

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
OUT = ROOT / "_build" / "release"
MADE_UP = "9571ef85"  # digest of the address that nobody owns; spelled out, `make repo` would have to change it
SET_IT = "set the address of your repository first: make repo SLUG=owner/name (or go on as it is: make release ADDRESS=as-is)"
START = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Centroids Matching</title>
<meta http-equiv="refresh" content="0; url=site/index.html"></head>
<body><p><a href="site/index.html">The book</a></p></body></html>
"""
READ_ME = """Centroids Matching, version {version}

index.html    the book; open it in a browser, no network is needed
notebooks/    the chapters as notebooks
{wheel}
              the package: python -m pip install {wheel}
LICENSE       text and figures CC BY 4.0, code MIT
"""


def digest(slug: str) -> str:
    """Eight hexadecimal digits that stand for an address, whatever its case."""
    return hashlib.sha256(slug.lower().encode()).hexdigest()[:8]


def address_problem(slug: str) -> str | None:
    """Why a release under this address would be of no use, in one line; None when nothing is known against it."""
    return f"github.com/{slug} is made up, so every link to Colab would fail; {SET_IT}" if digest(slug) == MADE_UP else None


# --- the archive ------------------------------------------------------------------------------------------------------


def assemble(site: Path, book: Path, wheel: Path, folder: Path, version: str) -> Path:
    """The content of the archive as a folder. site: a built one; book: the folder of the chapters."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(site, folder / "site", ignore=shutil.ignore_patterns(".buildinfo", "*.doctree"))
    (folder / "notebooks").mkdir()
    for path in sorted(book.glob("[0-9][0-9]_*.ipynb")):
        shutil.copy2(path, folder / "notebooks")
    shutil.copy2(wheel, folder)
    for name in ("LICENSE", "CITATION.cff"):
        shutil.copy2(ROOT / name, folder)
    (folder / "index.html").write_text(START, encoding="utf-8")
    (folder / "READ_ME.txt").write_text(READ_ME.format(version=version, wheel=wheel.name), encoding="utf-8")
    return folder


def release() -> Path:
    """Build everything and write the archive; ValueError says in one line what is wrong."""
    from cmlib import __version__
    from cmlib.teaching import course

    if subprocess.run([sys.executable, str(ROOT / ".ci" / "parts.py"), "build"], cwd=ROOT, check=False).returncode:
        raise ValueError("the site could not be built")
    if broken := course.dead_links(SITE):
        raise ValueError(f"{len(broken)} links are broken, the first: {broken[0]}")
    name = f"cmlib-book-{__version__}"
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        wheel = course.build_wheel(ROOT, Path(folder))
        made = assemble(SITE, ROOT / "book", wheel, Path(folder, "content"), __version__)
        names = sorted(path.name for path in made.iterdir())
        return course.pack(OUT / f"{name}.zip", made, names)


def main(arguments: list[str]) -> int:
    if unknown := [word for word in arguments if word != "--address-as-is"]:
        print(f"unknown option '{unknown[0]}'; allowed: --address-as-is", file=sys.stderr)
        return 2
    try:
        problem = None if arguments else address_problem(repo.slug_of(ROOT))
        if problem:
            raise ValueError(problem)
        archive = release()
    except (ValueError, OSError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    print(f"{archive.relative_to(ROOT)}, {archive.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
