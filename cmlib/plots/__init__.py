"""Pictures of the book: one style, static figures and players.

Nothing here imports matplotlib before a picture is asked for: names are resolved on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "calculator": ("memory_calculator",),
    "drift": (
        "cells_player",
        "drift_by_class",
        "drift_figure",
        "drift_player",
        "misdrawn",
        "shift_by_class",
        "spaces_of",
        "together",
    ),
    "style": ("PALETTE", "class_colour", "method_colour", "method_look", "task_colour", "use_style"),
    "beside": ("dumbbell", "effect_dots", "verdict_bars"),
    "comparison": ("cost_bars", "diagonal", "pairwise", "whiskers"),
    "figures": ("accuracy_matrix", "embedding_space", "forgetting_curves", "moons_decision"),
    "geometry": ("Projection", "Space", "disagreement", "project", "voronoi_cells"),
    "player": ("space_player",),  # the function `player` itself is cm.player: here the name means the module
    "projection": ("gem_arrows", "gem_widget"),
    "runs": ("Stop", "runs_player"),
    "story": ("story_map",),
    "svg": ("svg_matrix", "svg_scatter"),
    "widgets": ("draggable_space", "matrix_editor", "matrix_presets", "scenario_player", "scenario_svg"),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module 'cmlib.plots' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_WHERE})
