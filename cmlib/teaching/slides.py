"""Slides out of the chapters: cells tagged `slide`, in reveal.js, which lies beside them, so that no network is needed.

A tagged text cell gives a slide for each of its headings. To stand on a wall it is shortened: of a paragraph or a list item the
first sentences and the questions; equations, tables and pictures whole. The whole text goes into the speaker's notes (key S). A
tagged code cell gives what it shows, or its code, where that is no picture and the chapter does not hide it; right below a
tagged text it joins that slide. The first slide is the title of the chapter, the last one names its exercises. Answers and
solutions are on no slide.
"""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cmlib.errors import OptionError
from cmlib.teaching import edition, myst, notebooks
from cmlib.teaching.edition import source_of
from cmlib.teaching.lint import HIDDEN

TAG = "slide"
SHARED = ("reveal", "mathjax")  # folders of book/_static that the slides need beside them
FITS = 220  # letters of a paragraph or an item
LEFT_OUT = ("Next",)  # headings of a chapter that lead on to another page
END = "<!-- end -->"  # of what is seen of a slide
SENTENCE = re.compile(r"(?<=[.!?:])[*_\")]*(?=\s+(?:[A-Z\[(*`$\"]|$))")


# --- Markdown -----------------------------------------------------------------------------------------------------------


def rendered(text: str) -> str:
    """Markdown of a chapter as HTML; of a link inside the book only the words, unless it leads to the playground."""
    return myst.linked(myst.rendered(text), lambda place: f"../student/{place}" if place.startswith("playground.html") else None)


def shortened(text: str) -> str:
    """A text for a slide: the first sentences of each paragraph and item; all else as it is, without what is folded."""
    lines, kept = text.splitlines(), []
    blocks = [token for token in myst.parser().parse(text) if token.map and not token.level]
    for token, end in zip(blocks, [*(token.map[0] for token in blocks[1:]), len(lines)], strict=True):
        block = "\n".join(lines[token.map[0] : end]).strip()
        if "fence" in token.type and ":class: dropdown" in token.content:
            continue
        if token.type == "paragraph_open" and not block.startswith("<"):
            block = _first_sentences(block)
        elif token.type.endswith("list_open"):
            items = re.split(r"^(?=\s{0,3}(?:[-*+]|\d+\.)\s)", block, flags=re.MULTILINE)
            block = "\n".join(_first_sentences(item) for item in items if item.strip())
        kept.append(block)
    return "\n\n".join(kept)


def _first_sentences(text: str) -> str:
    """As many sentences as fit, at least one; questions in any case."""
    flat = " ".join(text.split())
    marker, body = re.match(r"((?:(?:[-*+]|\d+\.)\s)?)(.*)", flat).groups()  # type: ignore[union-attr]
    pieces, start = [], 0
    for end in [found.end() for found in SENTENCE.finditer(body)]:
        piece = body[start:end].strip()
        if len(piece) > 12 and all(piece.count(sign) % 2 == 0 for sign in "*$`") and piece.count("(") == piece.count(")"):
            pieces.append(piece)
            start = end
    pieces += [body[start:].strip()] if body[start:].strip() else []
    room = FITS
    kept = []
    for k, piece in enumerate(pieces):
        room -= len(piece)
        if k == 0 or room >= 0 or piece.rstrip("*").endswith("?"):
            kept.append(piece)
    return marker + " ".join(kept)


# --- cells --------------------------------------------------------------------------------------------------------------


def _tags(cell: Mapping[str, Any]) -> set[str]:
    return set(cell["metadata"].get("tags", []))


def slides_of(book: Mapping[str, Any]) -> list[str]:
    """The slides of a chapter as `<section>` elements; none where no cell is tagged."""
    tagged = [cell for cell in book["cells"] if TAG in _tags(cell)]
    if not tagged:
        return []
    if any(edition.is_solution(cell) for cell in tagged):
        raise OptionError(f"the cell of a solution is tagged '{TAG}'")
    made = [_title(book["cells"][0])]
    joins = False  # whether the cell above is a text on a slide
    for cell in book["cells"]:
        text = cell["cell_type"] == "markdown"
        if TAG not in _tags(cell):
            joins = False
        elif text:
            made += list(_texts(source_of(cell)))
            joins = True
        else:
            content, picture = _shown(cell)
            made[-1:] = [made[-1].replace(END, content + END)] if joins and picture else [made[-1], _section(content, "")]
            joins = False
    return [*made, *_exercises(book)]


def _title(cell: Mapping[str, Any]) -> str:
    title, _, rest = edition.COLAB.sub("", source_of(cell)).partition("\n")
    paragraphs = [block for block in re.split(r"\n\s*\n", rest.strip()) if block and not block.startswith("·")]
    below = "\n\n".join(shortened(block) for block in paragraphs[:2])
    return _section(f"<h1>{html.escape(title.lstrip('# '))}</h1>{rendered(below)}", rest)


def _texts(text: str) -> Iterator[str]:
    """A slide a heading, and one for what stands before the first of them."""
    for part in re.split(r"^(?=##+ )", text, flags=re.MULTILINE):
        heading = re.match(r"##+ (.*)", part)
        if part.strip() and not (heading and heading[1].strip() in LEFT_OUT):
            yield _section(rendered(shortened(re.sub(r"^###+ ", "## ", part, flags=re.MULTILINE))), part)


def _shown(cell: Mapping[str, Any]) -> tuple[str, bool]:
    """What a code cell brings, and whether that is outputs alone: its code stands only where it is seen and makes no picture."""
    lines = source_of(cell).strip().splitlines()
    outputs = "".join(_output(output) for output in cell["outputs"])
    hidden = HIDDEN & _tags(cell) or any("text/html" in output.get("data", {}) for output in cell["outputs"])
    if not outputs and (hidden or not lines):
        raise OptionError(f"a cell tagged '{TAG}' shows nothing: {lines[0][:60] if lines else 'it is empty'}")
    size = "small" if len(lines) > 12 else "plain"
    code = "" if hidden else f'<pre class="code {size}"><code>{html.escape(chr(10).join(lines))}</code></pre>'
    return code + outputs, not code


def _output(output: Mapping[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f'<pre class="said">{html.escape("".join(output["text"]))}</pre>'
    data = {kind: "".join(value) if isinstance(value, list) else value for kind, value in output.get("data", {}).items()}
    if "text/html" in data:
        return f'<div class="shown">{data["text/html"]}</div>'
    if "text/markdown" in data:
        return f'<div class="words">{rendered(data["text/markdown"])}</div>'
    return f'<pre class="said">{html.escape(data.get("text/plain", ""))}</pre>'


def _exercises(book: Mapping[str, Any]) -> list[str]:
    titles = [title for cell in book["cells"] for title in re.findall(r"^### (Exercise [^\n]*)", source_of(cell), re.MULTILINE)]
    if not titles:
        return []
    rows = "".join(f"<li>{html.escape(title)}</li>" for title in titles)
    below = "<p>A check says what is wrong, and from the second try on how to go on.</p>"
    return [_section(f"<h2>Exercises</h2><ul>{rows}</ul>{below}", "")]


def _section(content: str, notes: str) -> str:
    aside = f'<aside class="notes">{rendered(notes)}</aside>' if notes.strip() else ""
    return f"<section>{content}{END}{aside}</section>"


# --- decks --------------------------------------------------------------------------------------------------------------

PAGE = """<!DOCTYPE html>
<html lang="en" data-theme="light"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="reveal/reveal.css"><link rel="stylesheet" href="slides.css">
<script>window.MathJax = {{tex: {{inlineMath: [["\\\\(", "\\\\)"]]}}, svg: {{fontCache: "none"}}}};</script>
<script defer src="mathjax/tex-svg.js"></script></head>
<body><div class="reveal"><div class="slides">
{slides}
</div></div>
<script src="reveal/reveal.js"></script><script src="reveal/notes.js"></script>
<script>Reveal.initialize({{width: 1280, height: 720, margin: 0.03, center: false, hash: true, slideNumber: "c/t",
  transition: "none", plugins: [RevealNotes]}});
// What is too high for a slide is set smaller.
function fit() {{
  const slide = Reveal.getCurrentSlide();
  slide.style.fontSize = "";
  for (let k = 0.95; slide.scrollHeight > 722 && k > 0.4; k -= 0.05) slide.style.fontSize = k + "em";
}}
Reveal.on("ready", fit);
Reveal.on("slidechanged", fit);
addEventListener("load", () => window.MathJax.startup.promise.then(fit));</script>
</body></html>
"""

STYLE = """:root{--ink:#1d2733;--soft:#5b6066;--line:#d5d9de;--blue:#3a4eff}
body{margin:0;background:#fff;color:var(--ink)}
.reveal{font:30px/1.42 "DejaVu Sans",Verdana,"Segoe UI",sans-serif}
.reveal .slides{text-align:left}
.reveal .slides>section{padding:0;height:100%;box-sizing:border-box}
.reveal h1{font-size:1.9em;line-height:1.15;margin:2.2em 0 .6em}
.reveal h2{font-size:1.35em;line-height:1.2;margin:0 0 .7em;color:var(--blue)}
.reveal p,.reveal ul,.reveal ol{margin:.5em 0}
.reveal li{margin:.3em 0}
.reveal a{color:var(--blue)}
.reveal table{border-collapse:collapse;font-size:.82em;margin:.6em 0}
.reveal td,.reveal th{padding:.25em .7em;border-bottom:1px solid var(--line);text-align:left}
.reveal code{font-family:"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:.86em}
.reveal pre{margin:.3em 0;padding:.5em .7em;background:#f4f6f8;border-radius:.3em;font-size:.7em;line-height:1.35;overflow:auto}
.reveal pre code{font-size:1em}
.reveal pre.small{font-size:.6em;line-height:1.3}
.reveal pre.said{background:none;border-left:4px solid var(--line);border-radius:0}
.reveal .formula{margin:.4em 0}
.reveal .box{border-left:6px solid var(--blue);background:#f4f6ff;padding:.3em 1em;margin:.6em 0}
.reveal svg{max-width:100%}
.reveal section>svg,.reveal p>svg{max-height:15em}
.reveal .shown .cm-figure{width:39em;max-width:100%}
.reveal .shown .cm-figure>svg{max-width:none!important}
.reveal .shown .cm-figure,.reveal .shown .cm-player{margin:.3em auto}
.reveal .shown>div{max-width:24em}
.reveal .shown>div.cm-map,.reveal .shown>figure{max-width:none}
.reveal .progress{color:var(--blue)}
"""


def write(root: Path, target: Path, lesson: Sequence[Path] = ()) -> list[Path]:
    """Write a deck for each chapter with tagged cells, and one of the chapters of the lesson; the files that were written.

    lesson: its chapters in order; each must have slides, else `OptionError`.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name in SHARED:
        shutil.copytree(root / "book" / "_static" / name, target / name, dirs_exist_ok=True)
    (target / "slides.css").write_text(STYLE, encoding="utf-8")
    made = {path: slides_of(edition.read(path)) for path in notebooks.chapters(folder=root / "book")}
    bare = [path.name for path in lesson if not made[path]]
    if bare:
        raise OptionError(f"{bare[0]} belongs to the lesson, but none of its cells is tagged '{TAG}'")
    written = []
    for path, sections in made.items():
        if sections:
            written.append(_write(target / f"{path.stem}.html", path.stem, sections))
    if lesson:
        written.append(_write(target / "lesson.html", "Fifty minutes", [one for path in lesson for one in made[path]]))
    return written


def _write(path: Path, title: str, sections: Iterable[str]) -> Path:
    path.write_text(PAGE.format(title=html.escape(title), slides="\n".join(sections)), encoding="utf-8")
    return path
