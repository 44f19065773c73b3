"""The forgetting playground as files: its packed digits, and one page that works alone, from a USB stick.

python -m cmlib.teaching.playground     write `digits.js` and `playground.html` anew (the page's table: `cmlib tables`)

The sources are plain modules of JavaScript in book/_static/playground; the book's page loads them one by one, and
`playground.html` holds them all, one after the other, as they are.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cmlib.reproduction import render
from cmlib.store import write_atomically

FOLDER = Path("book/_static/playground")
PAGE = Path("book/_static/playground.html")
SCRIPTS = ("numbers", "digits", "network", "methods", "engine", "chosen", "address", "picture", "exercises", "page")
MAX_BYTES = 155_000
TRAIN, TEST = 70, 36  # images of each digit
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"  # 64: six bits each


def digits() -> NDArray[np.int64]:
    """Pixels 0 ... 16 of 106 images of each digit: the first 70 training images of cmlib's split, then its 36 test images.

    -> [1060, 64]
    """
    from cmlib import datasets

    data = datasets.load("digits")
    train, test = ((x.numpy(), y.numpy()) for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)))
    chosen = [part for k in range(10) for part in (train[0][train[1] == k][:TRAIN], test[0][test[1] == k][:TEST])]
    return (np.concatenate(chosen).reshape(-1, 64).astype(np.int64) * 16 + 127) // 255


def code_words(counts: Mapping[int, int]) -> dict[int, str]:
    """Huffman's code: a word of 0 and 1 for each value, short ones for frequent values, none the beginning of another."""
    trees: list[tuple[int, int, dict[int, str]]] = [(n, value, {value: ""}) for value, n in sorted(counts.items())]
    while len(trees) > 1:
        (n, _, first), (m, k, second), *trees = sorted(trees, key=lambda tree: tree[:2])
        trees.append((n + m, k, {v: "0" + w for v, w in first.items()} | {v: "1" + w for v, w in second.items()}))
    return trees[0][2]


def packed(pixels: NDArray[np.int64]) -> tuple[str, dict[str, int]]:
    """Pixels as text, six bits a letter, and the code: a word of 0 and 1 for each value."""
    values = pixels.ravel().tolist()
    words = code_words(Counter(values))
    bits = "".join(words[value] for value in values)
    bits += "0" * (-len(bits) % 6)
    text = "".join(LETTERS[int(bits[k : k + 6], 2)] for k in range(0, len(bits), 6))
    return text, {words[value]: value for value in sorted(words)}


def digits_script() -> str:
    """`digits.js`: the images as text, and the function that reads them."""
    text, code = packed(digits())
    table = ", ".join(f'"{word}": {value}' for word, value in code.items())
    return (
        _DIGITS.replace("LETTERS", LETTERS)
        .replace("TABLE", table)
        .replace("TEXT", text)
        .replace("COUNT", str(10 * (TRAIN + TEST)))
    )


_DIGITS = """\
// 70 training and 36 test images of each digit, from scikit-learn. Written by `python -m cmlib.teaching.playground`.
(function (pg) {
  "use strict";

  const letters = "LETTERS"; // of six bits each
  const code = { TABLE }; // of a pixel, 0 to 16
  const text = "TEXT";

  // Bit by bit: as soon as the bits are a word of the code, a pixel is known. -> [COUNT * 64]
  pg.unpackDigits = () => {
    const pixels = new Uint8Array(COUNT * 64), valueOf = [];
    for (const [word, value] of Object.entries(code)) valueOf[parseInt(`1${word}`, 2)] = value;
    let n = 0, word = 1; // the bits so far, behind a 1
    for (const letter of text) {
      for (let bits = letters.indexOf(letter), k = 5; k >= 0; k--) {
        word = 2 * word + ((bits >> k) & 1);
        if (valueOf[word] !== undefined) { pixels[n++] = valueOf[word]; word = 1; }
      }
    }
    return pixels;
  };
})(globalThis.Playground = globalThis.Playground || {});
"""


def page(folder: Path = FOLDER) -> str:
    """The whole playground as one HTML page that asks for nothing."""
    read = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    scripts = "".join(f"<script>\n{read[name + '.js']}</script>\n" for name in SCRIPTS)
    return _PAGE.format(style=read["playground.css"], body=read["still.svg"] + read["body.html"], scripts=scripts)


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The forgetting playground</title>
<style>
body {{ margin: 0; padding: 1rem clamp(.75rem, 2.5vw, 2.5rem) 3rem; background: #fff; font: 16px/1.5 system-ui, sans-serif; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #14181e; }} }}
html[data-theme] body {{ background: #fff; }} html[data-theme="dark"] body {{ background: #14181e; }}
{style}</style>
</head>
<body>
<main class="pg-alone">
<h1>The forgetting playground</h1>
{body}</main>
{scripts}</body>
</html>
"""


# --- what twenty seeds say -------------------------------------------------------------------------------------------

TITLES = {"naive": "Naive", "cumulative": "Cumulative", "er": "ER", "ewc": "EWC", "cm": "CM"}


def table(folder: Path = FOLDER) -> str:
    """Accuracy and final BWT of each method and scenario, mean and population's deviation over the seeds, as Markdown."""
    found = json.loads((folder / "seeds.json").read_text())
    rows: dict[str, dict[str, list[str]]] = {}
    for address, numbers in found.items():
        setting = dict(part.split("=") for part in address.split("&"))
        more = {"with": ", with projectors (CIL)", "without": ", without projectors (CIL)", "": ""}[setting.get("projectors", "")]
        cells = [f"{np.mean(numbers[name]):.1f} ± {np.std(numbers[name]):.1f}" for name in ("accuracy", "bwt")]
        rows.setdefault(TITLES[setting["method"]] + more, {})[setting["scenario"]] = [cell.replace("-", "−") for cell in cells]
    header = ("method", "TIL: Accuracy", "final BWT", "CIL: Accuracy", "final BWT")
    lines = [[name, *row.get("til", ["", ""]), *row.get("cil", ["", ""])] for name, row in rows.items()]
    return render.markdown(header, lines, numbers=4)


def main(arguments: list[str]) -> list[Path]:
    """Write digits and page to their places, or below another folder."""
    root = Path(arguments[0]) if arguments else Path()
    write_atomically(root / FOLDER / "digits.js", digits_script().encode())
    write_atomically(root / PAGE, page(root / FOLDER).encode())
    return [root / FOLDER / "digits.js", root / PAGE]


if __name__ == "__main__":
    for written in main(sys.argv[1:]):
        print(written)
