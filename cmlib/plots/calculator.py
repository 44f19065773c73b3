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
from cmlib.plots.fragment import Fragment, unique_id

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
COLOURS = {"ewc": "#757575", "oewc": "#8594b8", "er": "#b8440b", "gem": "#217f78", "emr": "#8a7f12", "ssil": "#a33ba7",
           "cope": "#d63fd6", "cm": "#3a4eff"}  # fmt: skip

_CSS = """
.cm-calc{--cm-ink:#444;--cm-edge:#888;--cm-track:#88888826;max-width:38rem;margin:1em auto;color:var(--cm-ink)}
html[data-theme=dark] .cm-calc,html[theme=dark] .cm-calc,body[data-jp-theme-light=false] .cm-calc
{--cm-ink:#d0d0d0;--cm-edge:#999;--cm-track:#d0d0d022}
.cm-calc .cm-in{display:grid;grid-template-columns:repeat(auto-fit,minmax(14rem,1fr));gap:.2em 1.4em;margin-bottom:.6em}
.cm-calc fieldset{border:0;padding:0;margin:.2em 0;display:flex;flex-wrap:wrap;gap:.1em 1.2em;grid-column:1/-1}
.cm-calc legend{float:left;padding:0;margin:0 .8em 0 0;font-size:1em;font-weight:600;width:auto;line-height:2rem}
.cm-calc label{font-size:.9em;cursor:pointer;line-height:2rem}
.cm-calc .cm-slide{display:flex;flex-wrap:wrap;justify-content:space-between;align-items:baseline;line-height:1.4}
.cm-calc .cm-slide input{flex-basis:100%;min-width:0;height:2rem;accent-color:#3a4eff}
.cm-calc output{font-weight:600;font-variant-numeric:tabular-nums}
.cm-calc ul{list-style:none;margin:0;padding:0}
.cm-calc li{display:grid;grid-template-columns:4em 1fr 6.6em;gap:.5em;align-items:center;margin:.25em 0;padding:0;line-height:1.3}
.cm-calc .cm-track{position:relative;height:1.1em;background:var(--cm-track);border-radius:2px}
.cm-calc .cm-bar{position:absolute;left:0;top:0;bottom:0;border-radius:2px}
.cm-calc .cm-mark{position:absolute;top:-.15em;bottom:-.15em;width:3px;margin-left:-1px;background:var(--cm-ink)}
.cm-calc .cm-value{text-align:right;font-size:.9em;font-variant-numeric:tabular-nums;white-space:nowrap}
.cm-calc .cm-scale{display:grid;grid-template-columns:4em 1fr 6.6em;gap:.5em;font-size:1em}
.cm-calc .cm-ticks{position:relative;height:1.4em;font-size:.8em}
.cm-calc .cm-ticks span{position:absolute;transform:translateX(-50%)}
.cm-calc .cm-unit{text-align:right;font-size:.8em}
.cm-calc .cm-said{margin:.6em 0 0;font-size:.9em;min-height:4.2em}
.cm-calc input:focus-visible{outline:2px solid #3a4eff;outline-offset:2px}
@media (prefers-reduced-motion:no-preference){.cm-calc .cm-bar,.cm-calc .cm-mark{transition:width .15s,left .15s}}
@media screen{.cm-calc [hidden]{display:none!important}}
@media print{.cm-calc .cm-in{display:none!important}}
"""

# COUNT maps "method:scenario" to a function of the letters: by the formula, scalars kept, bytes kept, parameters of the heads.
_SCRIPT = """
(function(){var box=document.getElementById(ID);if(!box||box.dataset.ready)return;box.dataset.ready="1";
var COUNT=FUNCTIONS,STEPS=VALUES,BACK=CONSTANTS,NAMES=TITLES;
function one(s){return box.querySelector(s)}
function slider(n){return one('input[name="'+n+'"]')}
function chosen(n){return one('input[data-of="'+n+'"]:checked').value}
function whole(v){return v.toLocaleString("en-US")}
function size(v){if(v<1000)return v+" B";var u=["kB","MB","GB","TB"],k=-1;while(v>=1000&&k<3){v/=1000;k++}
var d=v<10?2:v<100?1:0,p=Math.pow(10,d);return(Math.floor(v*p+.5)/p).toFixed(d)+" "+u[k]}
function place(v){return 100*Math.max(0,Math.min(1,(Math.log10(Math.max(v,1))-LOW)/(HIGH-LOW)))}
function draw(){var s={},kind=chosen("kind"),count=chosen("count"),heads=one('input[type=checkbox]'),all=[];
Object.keys(STEPS).forEach(function(n){var at=+slider(n).value;s[n]=STEPS[n][at][0];
one('output[data-of="'+n+'"]').textContent=STEPS[n][at][1];slider(n).setAttribute("aria-valuetext",STEPS[n][at][1])});
var c=BACK[s.image];heads.disabled=count==="formula";
[].forEach.call(box.querySelectorAll("li"),function(row){
var f=COUNT[row.dataset.method+":"+kind];row.hidden=!f;if(!f)return;
var r=f(s.n_tasks,s.classes,s.embedding,s.image,s.shared,s.a_task,c.D,c.B,c.V),more=heads.checked?r[3]:0,
v=count==="formula"?r[0]:count==="kept"?r[1]+more:r[2]+4*more,t=count==="bytes"?size(v):whole(v);
row.querySelector(".cm-bar").style.width=place(v)+"%";row.querySelector(".cm-value").textContent=t;
var mark=row.querySelector(".cm-mark");mark.hidden=count!=="kept";mark.style.left=place(r[0])+"%";
all.push({m:row.dataset.method,v:v,t:t,f:whole(r[0])})});
one(".cm-unit").textContent=count==="bytes"?"bytes":"scalars";
all.sort(function(a,b){return a.v-b.v});var cm=all.filter(function(a){return a.m==="cm"})[0],least=all[0].v<cm.v?all[0]:cm,
next=all.filter(function(a){return a.m!=="cm"})[0],said=least===cm?"CM keeps the least: "+cm.t+"; the next is "+NAMES[next.m]
+" with "+next.t+".":NAMES[least.m]+" keeps the least: "+least.t+"; CM keeps "+cm.t+".";
if(count==="kept")said+=" The formula of CM says "+cm.f+"; thin marks are the formulas.";
one(".cm-said").textContent=said}
box.addEventListener("input",draw);box.addEventListener("change",draw);one(".cm-in").hidden=false;draw()})();
"""


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
    body = _controls(name, values, scenario) + _bars(scenario, setting)
    page = f'<div class="cm-calc" id="{name}" role="group" aria-label="{said}"><style>{_CSS.strip()}</style>{body}'
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


def size_text(count: int) -> str:
    """Bytes in words, with three digits: `12.3 kB`; as the script writes them."""
    if count < 1000:
        return f"{count} B"
    value, unit = float(count), -1
    while value >= 1000 and unit < 3:
        value, unit = value / 1000, unit + 1
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{math.floor(value * 10**digits + 0.5) / 10**digits:.{digits}f} {('kB', 'MB', 'GB', 'TB')[unit]}"


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
    script = _SCRIPT.strip()
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
