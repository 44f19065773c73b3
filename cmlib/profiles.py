"""Profiles: the options that fit a purpose. Data, not code.

A profile is a list of rules (where it holds, options); later rules win, and what an experiment says itself wins over all.
`smoke` tests in seconds; `digits` the embedded images, chosen on a validation split (chapter 4 shows the table); `mini`
CIFAR-10 in about an hour a seed; `paper` the paper's settings per data set.
"""

from __future__ import annotations

from typing import Any

Rule = tuple[dict[str, str], dict[str, Any]]

# The paper's hyper-parameters per data set (section 5.1; batch sizes and the memories of ER and SS-IL from the released code).
PAPER: list[Rule] = [
    ({}, {"epochs": 10, "batch_size": 32, "lr": 0.01, "momentum": 0.9, "n_tasks": 5}),
    ({"dataset": "cifar100"}, {"batch_size": 16, "n_tasks": 10, "lam": 0.75}),
    ({"dataset": "tiny-imagenet"}, {"epochs": 30, "n_tasks": 10, "lam": 0.75}),
    ({"dataset": "tiny-imagenet", "scenario": "cil", "method": "er"}, {"memory_size": 1000}),
    ({"dataset": "tiny-imagenet", "method": "ssil"}, {"memory_size": 1000}),
    ({"dataset": "cifar100", "method": "gem"}, {"memory_size": 1000}),
    ({"dataset": "tiny-imagenet", "method": "gem"}, {"memory_size": 1000}),
    ({"method": "cope"}, {"epochs": 1}),
]
ONE_PASS: Rule = ({"method": "cope"}, {"epochs": 1, "exemplars_per_class": 30})

PROFILES: dict[str, list[Rule]] = {
    "paper": PAPER,
    "digits": [
        *PAPER,
        ({}, {"epochs": 5, "memory_size": 50, "support_size": 20}),
        ({"method": "emr"}, {"memory_size": 20}),
        ONE_PASS,
    ],
    "mini": [
        *PAPER,
        ({}, {"epochs": 5, "train_per_class": 500, "memory_size": 50, "support_size": 50}),
        ({"method": "er"}, {"memory_size": 100}),
        ({"method": "ssil"}, {"memory_size": 100}),
        ({"method": "emr"}, {"memory_size": 20}),
        ONE_PASS,
    ],
    "smoke": [
        *PAPER,
        ({}, {"epochs": 1, "train_per_class": 30, "memory_size": 20, "support_size": 10}),
        ({"method": "cope"}, {"exemplars_per_class": 10}),
        ({"method": "ewc", "scenario": "cil"}, {"strength": 10}),  # with 100 the loss grows without bound in these few steps
    ],
}


# Presets: readings of the paper, as options over a profile's. `text` follows the text to the letter wherever it speaks; the
# default follows the released code in six points. Sizes and epochs hold at the paper's scale: smaller profiles have their own.
PRESETS: dict[str, list[Rule]] = {
    "default": [],
    "text": [
        ({}, {"augmentation": "resized-crop", "head": "mlp"}),
        ({"scenario": "til", "method": "cm"}, {"batch_norm": "stats"}),
        ({"scenario": "til", "method": "emr"}, {"batch_norm": "shared"}),
        ({"scenario": "cil", "method": "cm"}, {"cil_loss": "both"}),
        ({"profile": "paper", "method": "er"}, {"memory_size": 1000}),
        ({"profile": "paper", "method": "er", "dataset": "cifar100"}, {"memory_size": 500}),
        ({"profile": "paper", "method": "ssil"}, {"memory_size": 1000, "epochs": 100}),
        ({"profile": "paper", "method": "ssil", "dataset": "cifar100"}, {"memory_size": 500}),
    ],
}


def profile_options(profile: str, dataset: str, scenario: str, method: str) -> dict[str, Any]:
    """The options a profile sets for one data set, scenario and method (more than a method may know)."""
    return _settle(PROFILES[profile], {"dataset": dataset, "scenario": scenario, "method": method})


def preset_options(preset: str, profile: str, dataset: str, scenario: str, method: str) -> dict[str, Any]:
    """The options a preset sets over a profile's (more than a method may know)."""
    return _settle(PRESETS[preset], {"profile": profile, "dataset": dataset, "scenario": scenario, "method": method})


def _settle(rules: list[Rule], place: dict[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for where, values in rules:
        if all(place[key] == value for key, value in where.items()):
            options.update(values)
    return options
