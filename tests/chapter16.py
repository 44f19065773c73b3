"""What chapter 16 tells its reader to do: the file that its cells make, and the cell that draws."""

from __future__ import annotations

import functools
import json
import sys
import types
from pathlib import Path
from typing import Any

from cmlib.methods import METHODS

PAGE = Path(__file__).resolve().parents[1] / "book" / "16_your_own_method.ipynb"


def cells() -> list[str]:
    """The code of the page, cell by cell."""
    content = json.loads(PAGE.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in content if cell["cell_type"] == "code"]


def file_of_the_page() -> str:
    """What the page puts into `cosine_cm.py`: its cells that say so."""
    return "\n\n\n".join(cell for cell in cells() if cell.startswith("# cosine_cm.py, part ")) + "\n"


def drawing() -> str:
    """The cell that draws the new method beside the others, up to where it shows the figure."""
    (cell,) = [cell for cell in cells() if cell.startswith("found = tables.Found(")]
    return cell[: cell.index("cm.show(")]


@functools.cache
def cosine_cm() -> Any:
    """The class that the page writes, which nothing registers here."""
    before = dict(METHODS)
    module: Any = types.ModuleType("file_of_chapter_16")
    sys.modules[module.__name__] = module
    exec(compile(file_of_the_page(), "cosine_cm.py", "exec"), vars(module))
    METHODS.clear()
    METHODS.update(before)
    return module.CosineCM
