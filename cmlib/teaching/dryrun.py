"""The dry run of the lesson: how long its spoken text takes, and what else is in each part, beside the minutes of the plan.

`cmlib tables` writes the table into book/lesson.md.

Spoken are the block quotes, at `PACE` words a minute. A time in brackets counts, as `(2 minutes)` or `(30 seconds)`; a paragraph
of directions without one counts half a minute.
"""

from __future__ import annotations

import re

from cmlib.errors import OptionError
from cmlib.reproduction import render

PACE = 120  # words a minute
UNTIMED = 0.5  # minutes of a direction
PART = re.compile(r"^## (\d+) to (\d+): ([^\n]*)\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
TIME = re.compile(r"\((\d+) (minute|second)s?\)")


def parts(text: str) -> list[tuple[str, int, int, float, float]]:
    """Of each part of a lesson: its name, first and last minute, minutes that are spoken, minutes of everything else."""
    found = []
    for first, last, name, body in PART.findall(text):
        paragraphs = [block for block in re.split(r"\n\s*\n", body.strip()) if block.strip()]
        spoken = [re.sub(r"^> ?", "", block, flags=re.MULTILINE) for block in paragraphs if block.startswith(">")]
        other = sum(_minutes(block) for block in paragraphs if not block.startswith(">"))
        found.append((name, int(first), int(last), len(" ".join(spoken).split()) / PACE, other))
    if not found:
        raise OptionError("the lesson has no parts, which begin like '## 0 to 4: the camera'")
    return found


def _minutes(block: str) -> float:
    times = [int(number) / (60 if unit == "second" else 1) for number, unit in TIME.findall(block)]
    if block.startswith("- ") and not times:
        return 0.0  # the time of a list stands above it
    return sum(times) if times else UNTIMED


def table(text: str) -> str:
    """The parts as a Markdown table; the last row is the sum."""
    found = [(name, last - first, spoken, other) for name, first, last, spoken, other in parts(text)]
    rows = [(name, [plan, spoken, other, plan - spoken - other]) for name, plan, spoken, other in found]
    rows.append(("**all**", [sum(minutes[k] for _, minutes in rows) for k in range(4)]))
    lines = [[name, f"{plan:.0f}", *(f"{one:.1f}" for one in rest)] for name, (plan, *rest) in rows]
    return render.markdown(("part", "planned, minutes", "spoken", "everything else", "reserve"), lines, numbers=4)
