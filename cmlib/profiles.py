"""Profiles: the options that fit a purpose. Data, not code.

A profile is a list of rules (where it holds, options); later rules win, and what an experiment says itself wins over all.
`smoke` tests in seconds; `digits` the embedded images, chosen on a validation split (chapter 4 shows the table); `mini`
CIFAR-10 in about an hour a seed, its training images and memories a tenth of the paper's; `paper` the paper's settings
per data set.
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


# What both states of the released code have in common. A chunk of the support set is a batch: a third of the set, in any profile.
RELEASED: list[Rule] = [
    ({"method": "cm"}, {"kept_centroids": "last_step", "stratified": False, "shuffle": "once", "support_chunk": 32}),
    ({"method": "cm", "dataset": "cifar100"}, {"support_chunk": 16}),
    ({"method": "cm", "profile": "mini"}, {"support_chunk": 16}),
    ({"method": "cm", "profile": "digits"}, {"support_chunk": 6}),
    ({"method": "cm", "profile": "smoke"}, {"support_chunk": 3}),
    ({"method": "cm", "scenario": "cil"}, {"projectors": "frozen", "centroids_merging": "own"}),
    ({"method": "cm", "profile": "paper"}, {"lam": 0.1}),
    ({"method": "cm", "profile": "paper", "dataset": "cifar10", "scenario": "til"}, {"epochs": 20}),
    ({"method": "er", "scenario": "til"}, {"batch_norm_batches": "by_task"}),
    ({"method": "cumulative", "scenario": "til"}, {"batch_norm_batches": "by_task", "batch_split": "each"}),
    ({"method": "gem", "dataset": "tiny-imagenet"}, {"exemplars": "first"}),  # stored class by class; CIFAR's files are mixed
    ({"method": "ssil"}, {"batch_norm_batches": "by_task"}),
    ({"method": "ssil", "profile": "paper"}, {"epochs": 100}),
    ({"method": "ssil", "profile": "paper", "dataset": "cifar100"}, {"batch_size": 32}),
    ({"method": "cope"}, {"prototype_init": "random", "prototype_update": "first_task"}),
    ({"method": "cope"}, {"prototype_momentum": 0.9, "temperature": 1.0, "exemplars_per_class": 20}),
    ({"method": "cope", "profile": "smoke"}, {"exemplars_per_class": 7}),
    ({"method": "cope", "profile": "paper", "dataset": "cifar10"}, {"exemplars_per_class": 200}),
    ({"method": "cope", "profile": "paper", "dataset": "cifar100"}, {"batch_size": 32}),
    ({"method": "cope", "profile": "paper", "dataset": "tiny-imagenet"}, {"exemplars_per_class": 10}),
]

# Presets: readings of the paper, as options over a profile's. `text` follows the text to the letter wherever it speaks; the
# default follows the released code in six points. `july22` is the code of July 2022, commit 4e923eb, most likely what made most
# of Table 1 (SS-IL and CoPE as they came in September); `head` the code of November 2022, commit a1650fd, with all its mistakes.
# Sizes and epochs hold at the paper's scale: smaller profiles have their own.
PRESETS: dict[str, list[Rule]] = {
    "default": [],
    "text": [
        ({}, {"augmentation": "resized-crop", "head": "mlp"}),
        ({"scenario": "til", "method": "cm"}, {"batch_norm": "stats"}),
        ({"scenario": "til", "method": "emr"}, {"batch_norm": "shared"}),
        ({"method": "cm"}, {"drift_sum": "over_t"}),
        ({"scenario": "cil", "method": "cm"}, {"cil_loss": "both"}),
        ({"profile": "paper", "method": "er"}, {"memory_size": 1000}),
        ({"profile": "paper", "method": "er", "dataset": "cifar100"}, {"memory_size": 500}),
        ({"profile": "paper", "method": "ssil"}, {"memory_size": 1000, "epochs": 100}),
        ({"profile": "paper", "method": "ssil", "dataset": "cifar100"}, {"memory_size": 500}),
    ],
    "july22": RELEASED,
    "head": [
        *RELEASED,
        ({}, {"class_order": "shuffled"}),
        ({"method": "cm"}, {"drift_weight": "one", "drift_sum": "sum"}),
        ({"method": "cm", "scenario": "cil"}, {"drift_space": "shared"}),
        ({"method": "er"}, {"batch_norm_batches": "by_task", "batch_split": "tasks"}),
        ({"method": "cumulative"}, {"batch_norm_batches": "by_task", "batch_split": "each"}),
        ({"method": "cope"}, {"stream": "first_batch"}),
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
