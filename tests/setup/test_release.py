"""`make release`: the address that must have been set, links that work from a disk, and what the archive holds."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from test_setup import script

from cmlib.teaching import course

ROOT = Path(__file__).resolve().parents[2]
repo = script("repo")
release = script("release")


def test_an_address_that_nobody_has_set_stops_a_release(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(release, "MADE_UP", release.digest("Some-Body/some-book"))
    monkeypatch.setattr(release.repo, "slug_of", lambda root: "some-body/Some-Book")
    monkeypatch.setattr(release, "release", lambda: pytest.fail("built all the same"))
    assert release.main([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("release: github" + ".com/some-body/Some-Book is made up") and "make repo SLUG=owner/name" in line
    assert release.address_problem("jane/centroids") is None


def test_told_so_a_release_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    archive = ROOT / "_build" / "release" / "x.zip"
    monkeypatch.setattr(release, "MADE_UP", release.digest(repo.slug_of()))
    monkeypatch.setattr(release, "release", lambda: Sized(archive))
    assert release.main(["--address-as-is"]) == 0
    assert capsys.readouterr().out == "_build/release/x.zip, 1.5 MB\n"
    assert release.main(["--adress"]) == 2 and "allowed: --address-as-is" in capsys.readouterr().err


class Sized:
    """As much of an archive as is printed."""

    st_size = 1_500_000

    def __init__(self, path: Path) -> None:
        self.path = path

    def relative_to(self, root: Path) -> Path:
        return self.path.relative_to(root)

    def stat(self) -> Sized:
        return self


def test_the_made_up_address_is_the_one_that_the_sources_came_with() -> None:
    """Its words stand apart here, because `make repo` leaves none of them together."""
    name = "-".join(("centroids", "matching"))
    assert release.digest(f"{name}/{name}-book") == release.MADE_UP == release.digest(f"{name.upper()}/{name}-book")
    assert repo.slug_of() not in (ROOT / ".ci" / "release.py").read_text(encoding="utf-8")


def test_the_makefile_hands_on_what_it_was_told() -> None:
    from test_setup import shell

    assert ".ci/release.py --address-as-is" in shell("make", "-n", "release", "ADDRESS=as-is").stdout
    plain = shell("make", "-n", "release").stdout
    assert ".ci/release.py" in plain and "--address-as-is" not in plain
    assert "parts.py build_without_solutions" in shell("make", "-n", "book", "SOLUTIONS=no").stdout
    assert "parts.py build\n" in shell("make", "-n", "book").stdout
    assert "cmlib.cli course" in shell("make", "-n", "course").stdout


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "html" / "book").mkdir(parents=True)
    (tmp_path / "html" / "_static").mkdir()
    (tmp_path / "html" / "_static" / "theme.css").write_text("")
    (tmp_path / "html" / "_static" / "playground.html").write_text('<a href="/nowhere">not looked at</a>')
    (tmp_path / "html" / "index.html").write_text(
        '<link href="_static/theme.css?v=1"><h1 id="top">x</h1><a href="book/a%20b.html#é">a</a>'
    )
    (tmp_path / "html" / "book" / "a b.html").write_text('<p id="é"></p><a href="../index.html#top">i</a><a href="#é">me</a>')
    return tmp_path / "html"


def test_a_whole_site_has_no_broken_links(site: Path) -> None:
    assert course.dead_links(site) == []


@pytest.mark.parametrize(
    ("html", "why"),
    [
        ('<a href="gone.html">', "leads nowhere"),
        ('<img src="gone.png">', "leads nowhere"),
        ('<script src="gone.js"></script>', "leads nowhere"),
        ('<a href="book/">', "is a folder"),
        ('<a href="/book/a.html">', "root of a server"),
        ('<a href="index.html#gone">', "has no such anchor"),
        ('<a href="file:///srv/x.html">', "a file of one machine"),
        ('<a href="../../outside.html">', "leads nowhere"),
    ],
)
def test_a_link_that_a_disk_cannot_follow_is_named(site: Path, html: str, why: str) -> None:
    (site.parent / "outside.html").write_text("")
    (site.parents[0] / "outside.html").write_text("")
    (site / "bad.html").write_text(html)
    (found,) = course.dead_links(site)
    assert found.startswith("bad.html: ") and why in found


def test_links_to_other_servers_and_settings_are_no_matter(site: Path) -> None:
    (site / "fine.html").write_text(
        '<a href="https://example.org/x"><a href="mailto:a@b"><a href="_static/playground.html#method=cm&amp;lam=1">'
        "<script>const a = '<a href=\"gone.html\">';</script><a href=''>"
    )
    assert course.dead_links(site) == []


@pytest.mark.site
def test_the_built_site_can_be_followed_from_a_disk() -> None:
    assert release.SITE.is_dir(), "run `make book`"
    assert course.dead_links(release.SITE) == []
    assert len(list(release.SITE.glob("book/*.html"))) > 30


# --- the archive ------------------------------------------------------------------------------------------------------


def test_the_archive_opens_with_a_page_and_holds_site_chapters_and_wheel(site: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "cmlib-9.9-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    folder = release.assemble(site, ROOT / "book", wheel, tmp_path / "content", "9.9")
    names = {path.name for path in folder.iterdir()}
    assert names == {"index.html", "READ_ME.txt", "LICENSE", "CITATION.cff", "site", "notebooks", wheel.name}
    assert {path.name for path in (folder / "notebooks").iterdir()} == {path.name for path in (ROOT / "book").glob("*.ipynb")}
    start = (folder / "index.html").read_text(encoding="utf-8")
    assert set(re.findall(r'(?:href="|url=)([^"]+)', start)) == {"site/index.html"} and (folder / "site" / "index.html").is_file()
    assert wheel.name in (folder / "READ_ME.txt").read_text(encoding="utf-8")
    archive = course.pack(tmp_path / "book.zip", folder, sorted(names))
    with zipfile.ZipFile(archive) as packed:
        assert packed.testzip() is None and "book/site/book/a b.html" in packed.namelist()
        assert {name.split("/")[0] for name in packed.namelist()} == {"book"}


# --- workflows --------------------------------------------------------------------------------------------------------


def test_workflows_cover_every_python_that_is_promised() -> None:
    import yaml

    flow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    versions = [one for job in flow["jobs"].values() for one in job.get("strategy", {}).get("matrix", {}).get("python", [])]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert content["permissions"]["contents"] == "read", path.name
        for job in content["jobs"].values():
            assert job["timeout-minutes"] <= 90
            assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)
