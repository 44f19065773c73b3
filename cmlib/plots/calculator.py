"""A calculator of memory for a page: sliders, and a bar a method on a log axis; one piece of HTML, nothing from outside.

Its script counts with the expressions of `cmlib.footprint`, written into it as they are; the first picture is made here, so the
page shows the same without a script.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping
from typing import Any

from cmlib import footprint
from cmlib.errors import OptionError, check_name
from cmlib.footprint import Setting
from cmlib.methods import METHODS
from cmlib.plots.fragment import Fragment, asset, unique_id
from cmlib.plots.style import method_colour, palette_css, themed

LOW, HIGH = 2, 10  # the axis goes from ten to the power of LOW to that of HIGH
IMAGES = (("8 × 8 × 1", 64, 1), ("28 × 28 × 1", 784, 1), ("32 × 32 × 3", 3072, 3), ("64 × 64 × 3", 12_288, 3),
          ("224 × 224 × 3", 150_528, 3))  # fmt: skip
SIZES = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
# Name of a slider: what it says, and the values it steps through.
SLIDERS: dict[str, tuple[str, tuple[int, ...]]] = {
    "n_tasks": ("tasks, N", tuple(range(1, 21))),
    "classes": ("classes a task", (1, 2, 5, 10, 20, 50)),
    "embedding": ("embedding of CM, E", (2, 8, 16, 32, 64, 128, 256, 512)),
    "image": ("image, I", tuple(scalars for _, scalars, _ in IMAGES)),
    "shared": ("shared memory (ER, SS-IL, CM)", SIZES),
    "a_task": ("memory a task (GEM, EmR, CoPE)", SIZES[:7]),
}
KINDS = {"til": "TIL", "cil": "CIL"}
COUNTS = {"formula": "the paper's formula", "kept": "with hidden costs", "bytes": "with hidden costs, in bytes"}
ORDER = ("ewc", "oewc", "er", "gem", "emr", "ssil", "cope", "cm")
COLOURS = {method: method_colour(method) for method in ORDER}


class Calculator(Fragment):
    """What `memory_calculator` returns: shows itself in a notebook; `html` is the page fragment."""

    kind = "calculator"


def memory_calculator(label: str = "Memory of each method", scenario: str = "til", **start: int) -> Calculator:
    """Bars of what each method keeps between tasks, which sliders move: tasks, classes, embedding, image, exemplars.

    start: first values of the sliders by the names of `footprint.Setting` (n_tasks, classes, embedding, image, shared, a_task;
    the paper's for CIFAR-10 where left out); OptionError for a value that its slider does not have. A reader switches between
    the scenarios, and between the paper's formulas, all scalars kept ("hidden costs") and bytes, with and without the heads.
    """
    check_name("scenario", scenario, KINDS)
    setting = setting_of(**start)
    values = {name: getattr(setting, name) for name in SLIDERS}
    name = unique_id(json.dumps([label, scenario, values]))
    said = html.escape(label)
    body = _controls(name, values, scenario) + themed(_bars(scenario, setting))
    css = asset("calculator.css") + palette_css(".cm-calc", body)
    page = f'<div class="cm-calc" id="{name}" role="group" aria-label="{said}"><style>{css}</style>{body}'
    return Calculator(f"{page}<script>{_script(name)}</script></div>", label)


def setting_of(**values: int) -> Setting:
    """A setting whose values the sliders have; OptionError for another name or value."""
    for name, value in values.items():
        check_name("slider", name, SLIDERS)
        if value not in SLIDERS[name][1]:
            raise OptionError(f"{name}={value} is not on its slider; allowed: {', '.join(map(str, SLIDERS[name][1]))}")
    channels = {scalars: count for _, scalars, count in IMAGES}
    setting = Setting(**values)
    return Setting(**values, channels=channels[setting.image])


def counts(method: str, scenario: str, setting: Setting) -> dict[str, int]:
    """What a bar can show: by the formula, scalars kept, bytes kept, and the heads' parameters."""
    parts = footprint.kept(method, scenario, setting)
    return {
        "formula": footprint.formula(method, scenario, setting),
        "kept": sum(parts.values()),
        "bytes": footprint.in_bytes(parts),
        "heads": footprint.heads(method, setting),
    }


# -- pieces of the page ----------------------------------------------------------------------------------------------------


def _steps() -> dict[str, list[tuple[int, str]]]:
    """Of each slider, every value and how it is written."""
    words = {scalars: text for text, scalars, _ in IMAGES}
    return {
        name: [(value, words[value] if name == "image" else f"{value:,}") for value in values]
        for name, (_, values) in SLIDERS.items()
    }


def _controls(name: str, values: Mapping[str, int], scenario: str) -> str:
    parts = [_radios(name, "kind", "Scenario", KINDS, scenario), _radios(name, "count", "Count", COUNTS, "formula")]
    heads = '<label><input type="checkbox" disabled> and the heads, part of the network</label>'
    parts.append(f"<fieldset>{heads}</fieldset>")
    for slider, (says, steps) in SLIDERS.items():
        at = steps.index(values[slider])
        text = html.escape(_steps()[slider][at][1])
        parts.append(
            f'<label class="cm-slide"><span>{html.escape(says)}</span><output data-of="{slider}">{text}</output>'
            f'<input type="range" name="{slider}" min="0" max="{len(steps) - 1}" step="1" value="{at}" '
            f'aria-label="{html.escape(says)}" aria-valuetext="{text}"></label>'
        )
    return f'<div class="cm-in" hidden>{"".join(parts)}</div>'


def _radios(name: str, of: str, says: str, choices: Mapping[str, str], chosen: str) -> str:
    labels = "".join(
        f'<label><input type="radio" name="{name}-{of}" data-of="{of}" value="{value}"{" checked" * (value == chosen)}> '
        f"{html.escape(text)}</label>"
        for value, text in choices.items()
    )
    return f"<fieldset><legend>{says}</legend>{labels}</fieldset>"


def _bars(scenario: str, setting: Setting) -> str:
    """A row a method, by the formula; those that the scenario does not have are hidden."""
    here = [method for method in COLOURS if method in footprint.methods(scenario)]
    found = {method: counts(method, scenario, setting)["formula"] for method in here}
    rows = "".join(_row(method, found.get(method)) for method in COLOURS)
    ticks = "".join(
        f'<span style="left:{100 * (power - LOW) / (HIGH - LOW):g}%">10<sup>{power}</sup></span>'
        for power in range(LOW, HIGH + 1, 2)
    )
    axis = (
        f'<div class="cm-scale" aria-hidden="true"><span></span><div class="cm-ticks">{ticks}</div><span class="cm-unit">scalars'
    )
    return f'<ul role="list">{rows}</ul>{axis}</span></div><p class="cm-said" aria-live="polite">{_said(found)}</p>'


def _row(method: str, count: int | None) -> str:
    width = 0.0 if not count else 100 * max(0.0, min(1.0, (math.log10(count) - LOW) / (HIGH - LOW)))
    bar = f'<span class="cm-bar" style="width:{width:.3f}%;background:{COLOURS[method]}"></span>'
    track = f'<span class="cm-track" aria-hidden="true">{bar}<span class="cm-mark" hidden></span></span>'
    value = f'<span class="cm-value">{count or 0:,}</span>'
    return f'<li data-method="{method}"{" hidden" * (count is None)}><span>{METHODS[method].title}</span>{track}{value}</li>'


def _said(found: Mapping[str, int]) -> str:
    """The finding in a sentence, as the script writes it."""
    least = min(found, key=lambda one: (found[one], one != "cm"))
    other = min((one for one in found if one != "cm"), key=lambda one: found[one])
    if least == "cm":
        return f"CM keeps the least: {found['cm']:,}; the next is {METHODS[other].title} with {found[other]:,}."
    return f"{METHODS[least].title} keeps the least: {found[least]:,}; CM keeps {found['cm']:,}."


def _script(name: str) -> str:
    data: dict[str, Any] = {
        "ID": name,
        "VALUES": _steps(),
        "CONSTANTS": {scalars: footprint.constants(channels) for _, scalars, channels in IMAGES},
        "TITLES": {method: METHODS[method].title for method in COLOURS},
    }
    script = asset("calculator.js")
    for word, value in data.items():
        script = script.replace(word, json.dumps(value, ensure_ascii=False), 1)
    script = script.replace("FUNCTIONS", _functions(), 1)
    return script.replace("LOW", str(LOW)).replace("HIGH", str(HIGH))


def _functions() -> str:
    """The counts of every method as a script's functions, from the expressions of `footprint`."""
    made = []
    for (method, scenario), (_, by_formula) in footprint.FORMULAS.items():
        parts = footprint.KEPT[method, scenario]
        scalars = "+".join(parts.values())
        in_bytes = "+".join(f"{footprint.BYTES.get(part, footprint.FLOAT)}*({text})" for part, text in parts.items())
        heads = footprint.HEADS.get(method, footprint.LINEAR)
        made.append(f'"{method}:{scenario}":function(N,k,E,I,M,m,D,B,V){{return[{by_formula},{scalars},{in_bytes},{heads}]}}')
    return "{" + ",".join(made) + "}"
