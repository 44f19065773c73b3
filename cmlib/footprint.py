"""What a method keeps between tasks, counted from a few numbers: by the paper's formulas, and every scalar.

The counts are what the methods declare (`Method.keeps`, `Method.paper_memory`), in letters that a reader can set (`LETTERS`);
Python and the script of the calculator on the page read the same text. `formula` is section 5.1 of the paper, `kept` all that
`Method.retained` returns after N tasks, `heads` the part of the network that grows with the tasks, which neither of them counts.
The paper writes I x M x N for every method that keeps images. M is read as images a task there: of a memory that all tasks share
(`SHARED`) each task has M / N. Whoever puts the size of the whole memory for M gets N times too much; `Method.formula` does, and
is what a result file holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from cmlib import datasets, nets
from cmlib.errors import OptionError, check_name
from cmlib.experiment import Experiment
from cmlib.formulas import as_expression, value
from cmlib.methods import METHODS

LETTERS = {
    "N": "tasks so far",
    "k": "classes a task",
    "E": "features of an embedding of CM",
    "I": "scalars of an image",
    "M": "images in a memory that all tasks share",
    "m": "images a task in a memory of its own",
    "n": "training images a task",
    "D": "features of the backbone",
    "B": "parameters of the backbone",
    "V": "scalars of the batch norms of one task",
}
BYTES = {"exemplars": 1, "training images": 1, "labels": 8}  # a scalar, as tensors are kept: uint8, int64; all others float32
FLOAT = 4
SHARED = tuple(name for name, method in METHODS.items() if "memory_kind" in method.options)  # one memory for all tasks
ORDER = ("naive", "cumulative", "ewc", "oewc", "er", "gem", "emr", "ssil", "cope")  # of rows; others follow, CM comes last

_P = "B + N * k * (D + 1)"  # the network with a linear head a task
_HIDDEN = "D * (D + 1)"  # the first of two layers of a head
_OTHER_LETTERS = {  # of the declarations, in those above: usual heads, batch norms and projectors
    "P": _P,
    "W": _P,
    "A": "N * B + k * (D + 1) * N * (N + 1) / 2",
    "Q": "2 * E * (E + 1)",
    "T": "k * N",
}
# Parameters of all heads. Methods without an entry have one linear layer a task; CoPE has none.
HEADS = {
    "cm": f"N * ({_HIDDEN} + (D + 1) * E)",
    "emr": f"N * ({_HIDDEN} + (D + 1) * k)",
    "cope": "0",
}
LINEAR = "N * k * (D + 1)"


def _in_letters(method: str, text: str) -> str:
    """A declaration in `LETTERS` alone."""
    images = "n * N" if method == "cumulative" else "M" if method in SHARED else "m * N"
    words = {**_OTHER_LETTERS, "X": images}

    def spelled(match: re.Match[str]) -> str:
        word = words.get(match[0], match[0])
        return f"({word})" if " + " in word and text != match[0] and match[0] != "Q" else word

    return re.sub(r"\b[A-Za-z]\b", spelled, text)


def _places() -> list[tuple[str, str]]:
    rank = {name: place for place, name in enumerate(ORDER)}
    names = sorted(METHODS, key=lambda name: (name == "cm", rank.get(name, len(ORDER))))
    return [(name, kind) for name in names for kind in METHODS[name].scenarios]


def _kept(method: str, scenario: str) -> dict[str, str]:
    cls = METHODS[method]
    parts = cls.declared(scenario, cls.defaults.get(scenario, {}).get("batch_norm", "shared"))
    return {part: _in_letters(method, text) for part, text in parts.items()}


# (method, scenario) -> what is kept, part by part, by the names of `Method.retained`.
KEPT = {place: _kept(*place) for place in _places() if place[1] in METHODS[place[0]].keeps}
# (method, scenario) -> the paper's formula as printed, and as an expression. Naive and Cumulative have none.
FORMULAS = {
    (method, kind): (printed, _in_letters(method, as_expression(printed.replace("M x N", "X"))))
    for method, kind in _places()
    if (printed := METHODS[method].paper_memory.get(kind))
}


@dataclass(frozen=True)
class Setting:
    """The numbers that the counts depend on; the defaults are the paper's for CIFAR-10 (sections 5.1 and 5.2).

    shared: images in a memory of all tasks (M). a_task: images a task (m). train: training images a task (n), for Cumulative.
    """

    n_tasks: int = 5
    classes: int = 2
    embedding: int = 128
    image: int = 3 * 32 * 32
    shared: int = 500
    a_task: int = 500
    train: int = 10_000
    channels: int = 3

    def __post_init__(self) -> None:
        small = [name for name, value in vars(self).items() if value < 1]
        if small:
            raise OptionError(f"{small[0]}={getattr(self, small[0])} is impossible; allowed: a whole number of at least 1")

    @classmethod
    def of(cls, experiment: Experiment, n_tasks: int = 0) -> Setting:
        """The numbers of an experiment on a known data set, with its method's usual batch norm and projectors.

        n_tasks: after so many tasks (default: after all of them) of as many classes. OptionError for images that are not known.
        """
        options = experiment.options
        known = datasets.KNOWN[check_name("data set", experiment.dataset, datasets.KNOWN)]
        height, width, channels = map(int, known.size.split("x"))
        classes = len(known.class_names) // experiment.n_tasks
        images = options.get("memory_size", options.get("exemplars_per_class", 1) * classes)
        train = classes * min(known.train // len(known.class_names), options["train_per_class"] or known.train)
        return cls(
            n_tasks or experiment.n_tasks, classes, options.get("embedding_size", cls.embedding),
            height * width * channels, images, images, train, channels,
        )  # fmt: skip

    def letters(self) -> dict[str, int]:
        """The value of every letter."""
        return {
            **{"N": self.n_tasks, "k": self.classes, "E": self.embedding, "I": self.image},
            **{"M": self.shared, "m": self.a_task, "n": self.train},
            **constants(self.channels),
        }


@cache
def constants(channels: int) -> dict[str, int]:
    """The letters that the backbone gives, for images of so many channels."""
    backbone = nets.make_backbone(channels, "shared", 0)
    norms = 4 * sum(norm.features for norm in backbone.task_norms())  # mean, variance, scale and shift of each channel
    return {"D": backbone.out_features, "B": sum(one.numel() for one in backbone.parameters()), "V": norms}


def methods(scenario: str) -> list[str]:
    """The methods with a formula in the paper that work in a scenario, CM last."""
    check_name("scenario", scenario, ("til", "cil"))
    return [method for method, kind in FORMULAS if kind == scenario]


def formula(method: str, scenario: str, setting: Setting) -> int:
    """The paper's formula (section 5.1), in scalars; OptionError where it gives none."""
    return value(FORMULAS[_place(method, scenario, FORMULAS)][1], setting.letters())


def kept(method: str, scenario: str, setting: Setting) -> dict[str, int]:
    """Every scalar kept after N tasks beside backbone and heads, by what it is; OptionError for an unknown method."""
    letters = setting.letters()
    return {part: value(text, letters) for part, text in KEPT[_place(method, scenario, KEPT)].items()}


def heads(method: str, setting: Setting) -> int:
    """Parameters of all heads after N tasks: a part of the network, which the paper's definition does not count."""
    return value(HEADS.get(method, LINEAR), setting.letters())


def in_bytes(parts: Mapping[str, int]) -> int:
    """Bytes of what is kept, as tensors hold it. parts: scalars by what they are, as in `kept` or in a result file

    Built in chapter 9.
    """
    return sum(scalars * BYTES.get(part, FLOAT) for part, scalars in parts.items())


def _place(method: str, scenario: str, table: Mapping[tuple[str, str], object]) -> tuple[str, str]:
    check_name("scenario", scenario, ("til", "cil"))
    check_name("method", method, [name for name, kind in table if kind == scenario])
    return method, scenario
