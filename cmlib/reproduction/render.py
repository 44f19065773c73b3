"""How numbers and tables are written, in one place: mean ± standard deviation; plain text, Markdown, LaTeX and CSV.

± is the standard deviation of the population everywhere (divided by n, as in the released code), with two decimals.
"""

from __future__ import annotations

import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from csv import DictWriter
from typing import Any

NOT_RUN = "not run yet"
DENSE = "dense-table"  # the pages' style for small numbers


def number(value: float | None, sd: float | None = None, sign: str = "") -> str:
    """`75.90 ± 7.50`, the mean alone without a deviation, `-` without a mean. sign: `+` for differences"""
    return "-" if value is None else f"{value:{sign}.2f}" + ("" if sd is None else f" ± {sd:.2f}")


def spread(values: Sequence[float]) -> str:
    """The mean of some values with their standard deviation; the mean alone of one value, `-` of none."""
    return number(mean(values), deviation(values))


def mean(values: Sequence[float]) -> float | None:
    """Their mean; None of none."""
    return statistics.fmean(values) if values else None


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of the population; None with fewer than two values."""
    return statistics.pstdev(values) if len(values) > 1 else None


def mean_and_spread(values: Sequence[float], stopped: int = 0) -> str:
    """`spread` and the number of runs, or `not run yet`; stopped: runs whose loss was not finite."""
    halted = f"{stopped} stopped" if stopped else ""
    if not values:
        return halted or NOT_RUN
    count = ", ".join(word for word in (f"{len(values)} run{'s' * (len(values) > 1)}", halted) if word)
    return f"{spread(values)} ({count})"


def text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of plain text, two spaces apart."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in [header, *rows]]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A Markdown table; the last `numbers` columns are right-aligned."""
    align = ["---"] * (len(header) - numbers) + ["---:"] * numbers
    lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in (header, *rows)]
    return "\n".join([lines[0], "|" + "|".join(align) + "|", *lines[1:]])


def latex(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A `tabular` without packages."""
    head, *body = (" & ".join(map(_escaped, line)) + r" \\" for line in (header, *rows))
    begin = rf"\begin{{tabular}}{{{'l' * len(header)}}}"
    return "\n".join([begin, r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}"])


def csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV: a header with every name in the order of appearance, empty cells where a row has no value."""
    out = io.StringIO()
    writer = DictWriter(out, list(dict.fromkeys(name for row in rows for name in row)), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def dense(table: str) -> str:
    """A Markdown table in the small print of the book's pages."""
    return f"::::{{container}} {DENSE}\n{table}\n::::"


def page(form: str, head: Sequence[str], columns: tuple[Sequence[str], Sequence[Sequence[str]]], foot: Sequence[str]) -> str:
    """A table (header, lines) between what stands above and below it, as `text`, `md` or `latex` (there as comments)."""
    if form == "md":
        return "\n\n".join([*head, markdown(*columns), *foot])
    if form == "text":
        return "\n".join([*head, "", text(*columns), "", *foot]).rstrip()
    return "\n".join([*(f"% {line}" for line in (*head, *foot)), latex(*columns)])


def _escaped(words: str) -> str:
    for sign in "&%$#_":
        words = words.replace(sign, f"\\{sign}")
    return words.replace("±", r"$\pm$")
