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


def profile_options(profile: str, dataset: str, scenario: str, method: str) -> dict[str, Any]:
    """The options a profile sets for one data set, scenario and method (more than a method may know)."""
    place = {"dataset": dataset, "scenario": scenario, "method": method}
    options: dict[str, Any] = {}
    for where, values in PROFILES[profile]:
        if all(place[key] == value for key, value in where.items()):
            options.update(values)
    return options
