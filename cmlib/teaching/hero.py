"""The landing page's pictures: the merged space while tasks arrive (the paper's Figure 4), of the median run, and the map.

python -m cmlib.teaching.hero [book/_static]     write both anew; a test compares the files with what this would write
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

from cmlib.errors import StoreError
from cmlib.experiment import Experiment
from cmlib.plots import geometry
from cmlib.plots.player import player
from cmlib.plots.story import story_map
from cmlib.plots.svg import svg_scatter
from cmlib.randomness import class_order
from cmlib.reproduction import paper, snapshots
from cmlib.store import Run, committed, write_atomically

PLACE = Path("book/_static")
EXPERIMENT = Experiment("digits", "cil", "cm")
LABEL = "The space of Centroids Matching while it learns ten digits, two a task"
STYLE = ".cm-hero{margin:0}.cm-hero>p{font-size:.85em;line-height:1.45;margin:.6em auto 0;max-width:30rem}"
NUMBERS = {2: "two", 4: "four", 6: "six", 8: "eight", 10: "ten"}


def shown_seed() -> int:
    """The seed of the median run, which is the one shown."""
    return int(paper.median_run(_runs(EXPERIMENT)).seed)


def committed_spaces() -> list[geometry.Space]:
    """The merged space of the median run after each task from the second on; StoreError when it was not published."""
    shown = EXPERIMENT.but(seed=shown_seed())
    found = snapshots.find(shown, "merged", [committed()])
    if found is None:
        raise StoreError(f"the committed results hold no snapshots of the merged space of cm, digits, cil, seed {shown.seed}")
    return [
        geometry.Space.of(one.points, one.labels, one.centroids, one.centroid_labels, f"After task {one.after}")
        for one in found[1]
    ]


def page() -> str:
    """The picture as a piece of HTML; the same committed results give the same bytes."""
    spaces = committed_spaces()
    view = geometry.project(spaces)
    pictures = [_picture(spaces, view, k) for k in range(len(spaces))]
    captions = [_caption(space) for space in spaces]
    made = player(pictures, {"start": "last", "seconds": 1.6}, label=LABEL, captions=captions, alt=captions)
    film = re.sub(r"cm-[0-9a-f]{10}(?:-\d+)?", "cm-hero-player", made.html)  # its own number may differ from time to time
    return f'<div class="cm-hero"><style>{STYLE}</style>\n{film}\n<p>{html.escape(_note(view))}</p></div>\n'


def _picture(spaces: list[geometry.Space], view: geometry.Projection, k: int) -> str:
    """One moment; dashed lines lead from where a centroid stood a task earlier."""
    given = (view.points[k], spaces[k].labels, view.centroids[k], spaces[k].classes)
    return svg_scatter(*given, extent=view.extent, trails=geometry.earlier(spaces, view, k), names=_digits())


def _caption(space: geometry.Space) -> str:
    nearest = space.classes[geometry.nearest_centroid(space.points, space.centroids)]  # [n]
    right, count = 100 * (nearest == space.labels).mean(), len(space.classes)
    return f"{space.title}: {NUMBERS.get(count, count)} digits. {right:.0f} % of these images lie nearest to their own centroid."


def _note(view: geometry.Projection) -> str:
    """What one sees, and how it compares with plain training: computed from the committed runs."""
    naive, mine = (_runs(EXPERIMENT.but(method=method)) for method in ("naive", "cm"))
    digits = _digits()
    pairs = ", ".join(map(" and ".join, zip(digits[::2], digits[1::2], strict=True)))
    return (
        f"Points are test images, crosses are centroids, a hue is a task: {pairs}. An image is taken for the digit of the "
        f"nearest centroid in all {view.dimensions} dimensions; for {view.disagreement[-1]:.0f} % of the images in the last "
        f"picture that is not the cell they are drawn in. A dashed line shows how a centroid moved. Over {len(mine)} runs this "
        f"method ends at {_range(mine)} % accuracy, plain training at {_range(naive)} %. (Shown is the run of seed "
        f"{shown_seed()}, the median, recorded anew. The plane holds {view.explained:.0f} % of the variance in "
        f"{view.dimensions} dimensions.)"
    )


def _digits() -> list[str]:
    """The digits as the run shown has learned them: each seed has an order of its own."""
    return [str(digit) for digit in class_order(10, shown_seed()).tolist()]


def _runs(experiment: Experiment) -> list[Run]:
    runs: list[Run] = paper.finished(paper.runs_like(committed(), experiment))
    if not runs:
        raise StoreError(f"the committed results hold no digits run of {experiment.method} in {experiment.scenario}")
    return runs


def _range(runs: list[Run]) -> str:
    values = [run.accuracy for run in runs]
    low, high = round(min(values)), round(max(values))
    return f"{low} to {high}" if low < high else f"{low}"


def main(arguments: list[str]) -> list[Path]:
    """Write both pictures into the folder named, or to their place in the book."""
    folder = Path(arguments[0]) if arguments else PLACE
    pictures = {"hero.html": page(), "map.html": story_map().html + "\n"}
    for name, picture in pictures.items():
        write_atomically(folder / name, picture.encode())
    return [folder / name for name in pictures]


if __name__ == "__main__":
    print(*main(sys.argv[1:]), sep="\n")
