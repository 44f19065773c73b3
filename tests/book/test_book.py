"""The book: its sources as they are (unmarked), and the built site (marker `site`, after `make book`)."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from cmlib.experiment import Experiment
from cmlib.plots.story import story_map
from cmlib.randomness import class_order
from cmlib.reproduction import paper
from cmlib.store import committed
from cmlib.teaching import lint, notebooks

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
SITE = ROOT / "_build" / "html"
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text())
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text())
ENTRIES = [chapter for part in TOC["parts"] for chapter in part["chapters"]]
PAGES = [TOC["root"], *(one["file"] for entry in ENTRIES for one in (entry, *entry.get("sections", [])))]
CHAPTERS = notebooks.chapters(folder=BOOK)  # with the pages of a chapter, which stand under it in the contents
NUMBERED = [path for path in CHAPTERS if re.match(r"# \d+ ", lint.title(notebooks.read(path)))]
TEXTS = sorted(BOOK.glob("*.md"))


def source(page: str) -> Path:
    return next(path for path in (ROOT / f"{page}.md", ROOT / f"{page}.ipynb") if path.is_file())


def text_of(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text()
    return "\n".join(cell.source for cell in notebooks.read(path).cells if cell.cell_type == "markdown")


# --- sources -------------------------------------------------------------------------------------------------------


def test_contents_list_every_page_once() -> None:
    assert len(set(PAGES)) == len(PAGES)
    listed = {source(page) for page in PAGES}
    assert listed == {*TEXTS, *CHAPTERS}


def test_chapters_stand_in_order() -> None:
    numbers = [int(Path(page).name[:2]) for page in PAGES if Path(page).name[:2].isdigit()]
    assert numbers == sorted(numbers)


def test_the_configuration_builds_only_what_is_listed_and_runs_nothing() -> None:
    assert CONFIG["only_build_toc_files"] is True
    assert CONFIG["execute"]["execute_notebooks"] == "off"
    assert ".*" in CONFIG["exclude_patterns"]
    options = CONFIG["sphinx"]["config"]
    assert options["html_theme_options"] == {"navbar_persistent": []}
    assert (BOOK / "_static" / options["mathjax_path"]).stat().st_size > 1_000_000
    assert CONFIG["repository"]["url"] == lint.REPOSITORY


def test_mathjax_is_one_file_with_its_licence() -> None:
    assert sorted(path.name for path in (BOOK / "_static" / "mathjax").iterdir()) == ["LICENSE", "tex-svg.js"]


def pages_of(path: Path) -> list[Path]:
    """The pages of a chapter, in the order of the contents."""
    entry = next(entry for entry in ENTRIES if entry["file"] == f"book/{path.stem}")
    return [source(one["file"]) for one in entry.get("sections", [])]


def neighbours(path: Path) -> set[Path]:
    """Of a chapter those before and after it, and its own pages; of a page its chapter and the pages before and after it."""
    if path in NUMBERED:
        k = NUMBERED.index(path)
        return {*NUMBERED[max(0, k - 1) : k + 2], *pages_of(path)} - {path}
    home = next(chapter for chapter in NUMBERED if path in pages_of(chapter))
    order = [*pages_of(home), *NUMBERED[NUMBERED.index(home) + 1 :][:1]]  # the last page leads to the next chapter
    k = order.index(path)
    return {home, *order[max(0, k - 1) : k + 2]} - {path}


def test_the_chapters_stand_above_their_pages() -> None:
    assert [source(entry["file"]) for entry in ENTRIES if re.match(r"book/\d\d_", entry["file"])] == NUMBERED
    for chapter in NUMBERED:
        pages = [path for path in CHAPTERS if path.name[:2] == chapter.name[:2] and path != chapter]
        assert sorted(pages_of(chapter)) == pages
        assert sorted(notebooks.chapters([str(int(chapter.name[:2]))], BOOK)) == sorted([chapter, *pages])


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapters_link_to_their_neighbours(path: Path) -> None:
    linked = set(re.findall(r"\]\((\d\d_\w+\.ipynb)\)", text_of(path)))
    assert {other.name for other in neighbours(path)} - linked == set()
    assert [name for name in linked if not (BOOK / name).is_file()] == []


@pytest.mark.parametrize("path", [*TEXTS, *CHAPTERS], ids=lambda path: path.stem)
def test_nothing_speaks_of_what_is_not_there(path: Path) -> None:
    words = r"not written yet|until it is there|later chapter|will come back|will ask on|to be written|coming soon|TODO|FIXME"
    assert re.findall(words, text_of(path), flags=re.IGNORECASE) == []


@pytest.mark.parametrize("path", [*TEXTS, *CHAPTERS], ids=lambda path: path.stem)
def test_pages_begin_with_one_title(path: Path) -> None:
    outside_code = re.sub(r"^(`{3,}).*?^\1`*$", "", text_of(path), flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^# ", outside_code, flags=re.MULTILINE)) == 1
    text = re.sub(r"\A---\n.*?\n---\n", "", text_of(path), flags=re.DOTALL)  # settings of the page come before it
    assert text.lstrip().startswith("# ")


@pytest.mark.parametrize("path", [*TEXTS, *CHAPTERS], ids=lambda path: path.stem)
def test_citations_are_in_the_bibliography(path: Path) -> None:
    keys = set(re.findall(r"^@\w+\{([^,]+),", (BOOK / "references.bib").read_text(), flags=re.MULTILINE))
    cited = {key for group in re.findall(r"\{cite[:\w]*\}`([^`]+)`", text_of(path)) for key in group.split(",")}
    assert cited - keys == set()


def test_bibliography_entries_say_where_they_appeared() -> None:
    entries = (BOOK / "references.bib").read_text().split("\n\n")
    for entry in entries:
        assert re.search(r"^  (journal|booktitle|eprint|institution|howpublished) +=", entry, flags=re.MULTILINE), entry
        assert all(re.search(rf"^  {field} +=", entry, flags=re.MULTILINE) for field in ("author", "title", "year")), entry


def test_make_commands_and_profiles_of_the_start_page_exist() -> None:
    text = (BOOK / "start.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    goals = {*re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE), *re.findall(r"test-[a-z]+", makefile)}
    asked = {"".join(pair) for pair in re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)$", text, flags=re.MULTILINE)}
    assert len(asked) > 3 and asked <= goals
    from cmlib.teaching.page import PROFILES

    assert re.findall(r"^\| `(\w+)` \| (?:digits|8x8|CIFAR|the paper)", text, flags=re.MULTILINE) == list(PROFILES)


def commands_of(text: str) -> list[str]:
    """The `cmlib ...` calls that a page shows, in blocks and in the text."""
    blocks = re.findall(r"^```(?:bash|console|)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    inline = re.findall(r"(?<!`)`(cmlib [^`\n]+)`", text)
    return [re.sub(r"^\S*cmlib ", "", line) for line in [*lines, *inline] if re.match(r"(?:\.venv/bin/)?cmlib ", line)]


@pytest.mark.parametrize("path", [*TEXTS, ROOT / "README.md", *CHAPTERS], ids=lambda path: path.stem)
def test_the_commands_that_a_page_shows_are_understood(path: Path) -> None:
    import typer

    from cmlib import cli

    known = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    for line in commands_of(text_of(path)):
        name, *words = shlex.split(line)
        assert name in known, line
        if words and "..." not in words:
            known[name].make_context(name, words)  # raises for an option that does not exist or a missing argument


def test_a_command_that_does_not_exist_would_be_found() -> None:
    text = "Try `cmlib rum --method cm` or\n\n```bash\n.venv/bin/cmlib run --methd cm  # fast\n```"
    assert commands_of(text) == ["run --methd cm", "rum --method cm"]


# --- the first page and the glossary -------------------------------------------------------------------------------


def test_the_picture_of_the_first_page_is_that_of_the_committed_runs() -> None:
    from cmlib.teaching import hero

    stored = (BOOK / "_static" / "hero.html").read_text(encoding="utf-8")
    assert stored == hero.page(), "run `python -m cmlib.teaching.hero`"
    assert len(stored.encode()) <= 150_000
    assert lint._pictures(stored) == ([], [])
    assert (BOOK / "_static" / "map.html").read_text(encoding="utf-8") == story_map().html + "\n"
    text = (BOOK / "index.md").read_text()
    assert ":file: _static/hero.html" in text and ":file: _static/map.html" in text


def test_the_picture_can_be_written_anywhere_and_is_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cmlib.errors import StoreError
    from cmlib.store import Store
    from cmlib.teaching import hero

    first, second = (hero.main([str(tmp_path / name)])[0].read_bytes() for name in ("a", "b"))
    assert first == second and first.count(b'id="cm-hero-player"') == 1
    monkeypatch.setattr(hero, "committed", lambda: Store(tmp_path / "nothing"))
    with pytest.raises(StoreError, match="no digits run of cm in cil"):
        hero.page()


def test_the_picture_of_the_first_page_shows_the_median_run() -> None:
    runs = paper.runs_like(committed(), Experiment("digits", "cil", "cm"))
    by_accuracy = sorted(runs, key=lambda run: run.accuracy)
    assert len(runs) == 5 and f"the run of seed {by_accuracy[2].seed}, the median" in (BOOK / "_static" / "hero.html").read_text()


def test_the_picture_of_the_first_page_names_the_digits_in_the_order_of_its_seed() -> None:
    seed = paper.median_run(paper.runs_like(committed(), Experiment("digits", "cil", "cm"))).seed
    drawn = re.findall(r'<text class="cm-t"[^>]*>(\d)</text>', (BOOK / "_static" / "hero.html").read_text(encoding="utf-8"))
    order = [str(digit) for digit in class_order(10, seed).tolist()]
    assert drawn == [*order[:4], *order[:6], *order[:8], *order]


def test_the_first_page_names_every_chapter() -> None:
    text = (BOOK / "index.md").read_text()
    assert [path.name for path in NUMBERED if f"| []({path.name}) |" not in text] == []


# The first name of each entry, which is ours, and what it means; the names below it are those of others.
TERMS = re.findall(
    r"^(\S[^\n]*)\n(?:\S[^\n]*\n)*((?:  [^\n]*\n)+)",
    (BOOK / "glossary.md").read_text().split("{glossary}\n")[1].split("```")[0],
    flags=re.MULTILINE,
)


@pytest.mark.parametrize(("term", "meaning"), TERMS, ids=[term for term, _ in TERMS])
def test_a_term_is_used_in_the_chapter_that_the_glossary_names(term: str, meaning: str) -> None:
    named = re.findall(r"\[(?:[Cc]hapter (\d+)|Start here)\]\(([\w.]+)\)", meaning)
    assert named, f"{term}: no chapter"
    for number, page in named:
        assert not number or int(page[:2]) == int(number)
        words = re.escape(term).replace(r"\ ", r"[\s-]+")
        assert re.search(rf"(?<!\w){words}", text_of(BOOK / page), flags=re.IGNORECASE), f"{page} does not say {term}"


def test_the_glossary_is_in_order() -> None:
    names = [term.lower() for term, _ in TERMS]
    assert len(names) > 30 and names == sorted(names)


def test_the_search_knows_the_words_of_the_glossary() -> None:
    from cmlib.teaching import site as extension

    text = (BOOK / "glossary.md").read_text()
    found = extension.words(text, [*PAGES, "book/07_ewc", "book/10_gem"])
    by_word = {word: one for one in found for word in one["words"]}
    assert len(by_word) == sum(len(one["words"]) for one in found) > 100, "a word stands twice"
    assert {term for term, _ in TERMS} <= set(by_word)
    assert by_word["replay"] == by_word["rehearsal"] and "Training on exemplars" in by_word["replay"]["text"]
    assert (by_word["install"]["page"], by_word["install"]["anchor"]) == ("book/start", "#on-your-machine")
    assert by_word["elastic weight consolidation"]["page"] == "book/07_ewc", "a page named after a term answers for it"
    assert by_word["GEM"]["page"] == "book/10_gem" and by_word["lambda"]["text"].startswith(r"\(\lambda\), in the code lam:")
    assert all(one["page"] in {*PAGES, "book/07_ewc", "book/10_gem"} and "](" not in one["text"] for one in found)


def test_buttons_are_named_as_they_are_seen() -> None:
    from cmlib.teaching.site import named_as_seen

    assert named_as_seen('<summary aria-label="Toggle hidden content">x</summary>') == "<summary>x</summary>"
    icon = '<i class="theme-switch fa-sun  fa-lg" data-mode="light" title="Light"></i>'
    assert named_as_seen(icon) == '<i class="theme-switch fa-sun  fa-lg" data-mode="light"></i>'
    button = '<button class="btn search-button-field x" title="Search" aria-label="Search" data-x="y">'
    assert named_as_seen(button) == '<button class="btn search-button-field x" title="Search" data-x="y">'


def test_a_mean_stays_with_its_deviation_and_a_number_with_its_unit() -> None:
    from cmlib.teaching.site import unbroken

    shown = unbroken("75.9 ± 7.5 (12 runs, 1 stopped), 1 run, 90 % of 20 trees; the runs")
    assert shown.replace("\N{NO-BREAK SPACE}", "~") == "75.9~±~7.5 (12~runs, 1 stopped), 1~run, 90~% of 20 trees; the runs"


def test_notation_names_what_the_package_has() -> None:
    import cmlib as cm

    text = (BOOK / "notation.md").read_text()
    functions = set(re.findall(r"`(\w+)\([^`]*\)`", text)) - {"embed"}
    assert functions == {
        *("class_centroids", "distances", "log_probabilities", "centroid_loss", "drift", "predict"),
        "merged_log_probabilities",
    }
    homes = (cm.centroids, cm.projectors)
    assert [name for name in functions if not any(callable(getattr(home, name, None)) for home in homes)] == []
    assert callable(cm.projectors.ScaleTranslate)
    assert all(callable(getattr(cm.metrics, name)) for name in ("accuracy", "bwt", "bwt_final", "learning_accuracy"))


# --- the built site ------------------------------------------------------------------------------------------------

site = pytest.mark.site
LOADED = ("script", "link", "img", "iframe", "source", "video", "audio", "embed", "object", "use", "image")
OUTSIDE = re.compile(r"^\s*(?:https?:)?//", re.IGNORECASE)
CSS_OUTSIDE = re.compile(r"""(?:url\(\s*['"]?|@import\s+['"])(?:https?:)?//[^)'"]+""", re.IGNORECASE)


def soup_of(page: str) -> Any:
    from bs4 import BeautifulSoup

    path = SITE / f"{page}.html"
    assert path.is_file(), f"{path.relative_to(ROOT)} is missing; run `make book`"
    return BeautifulSoup(path.read_text(), "html.parser")


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    """Every page; pytest runs the tests of one page one after the other, so it is parsed once."""
    return str(request.param)


@pytest.fixture(scope="module")
def soup(page: str) -> Any:
    return soup_of(page)


@site
def test_pages_load_nothing_from_outside(soup: Any) -> None:
    loaded = [
        tag.get(key)
        for tag in soup.find_all(LOADED)
        for key in ("src", "href", "data", "srcset", "xlink:href")
        if tag.get(key) and not {"canonical", "next", "prev", "author", "license"} & set(tag.get("rel", []))
    ]
    assert len(loaded) > 5  # the theme's own style sheets and scripts: the list is not empty by mistake
    assert [address for address in loaded if OUTSIDE.match(address)] == []
    inline = "".join(script.get_text() for script in soup.find_all("script"))
    assert re.findall(r"https?://(?!www\.w3\.org)[^\s'\"]+", inline) == []


@site
def test_style_sheets_load_nothing_from_outside() -> None:
    sheets = list((SITE / "_static").rglob("*.css"))
    assert len(sheets) > 5
    assert [match for path in sheets for match in CSS_OUTSIDE.findall(path.read_text())] == []


@site
def test_images_have_alt_texts_and_nothing_failed(soup: Any) -> None:
    assert [str(image)[:80] for image in soup.find_all("img") if not (image.get("alt") or "").strip()] == []
    assert [str(drawing)[:80] for drawing in soup.select(".cm-figure > svg") if not drawing.get("aria-label", "").strip()] == []
    assert soup.select(".problematic, .system-message") == []
    assert "Traceback (most recent call last)" not in soup.get_text()


@site
def test_chapters_can_be_opened_in_colab(page: str, soup: Any) -> None:
    links = [a["href"] for a in soup.find_all("a", href=True) if "colab.research.google.com" in a["href"]]
    slug = lint.REPOSITORY.removeprefix("https://github.com/")
    here = f"https://colab.research.google.com/github/{slug}/blob/main/{page}.ipynb"
    assert (here in links) == (source(page).suffix == ".ipynb")


@site
def test_ids_are_unique_on_a_page(soup: Any) -> None:
    ids = Counter(tag["id"] for tag in soup.select(".bd-article [id]"))
    twice = {name for name, count in ids.items() if count > 1}
    assert twice - {"exercise-content", "solution-content", "proof-content"} == set()  # written so by the extensions


@site
def test_no_line_ends_between_a_mean_and_its_deviation(page: str) -> None:
    soup = soup_of(page)
    for other in soup.select("code, pre, script, svg, figcaption, .cm-player, .cm-hero"):  # no words, or written by the pictures
        other.decompose()
    assert re.findall(r".* ± .*|.*\d %.*", soup.get_text()) == []


@site
def test_formulas_use_the_mathjax_of_the_site() -> None:
    scripts = [s.get("src") or "" for s in soup_of("book/notation").find_all("script")]
    mine = [src for src in scripts if "mathjax" in src.lower()]
    assert [src.split("?")[0] for src in mine] == ["../_static/mathjax/tex-svg.js"]


@site
def test_there_is_one_search_box() -> None:
    assert len(soup_of("book/start").select(".search-button-field")) == 1
