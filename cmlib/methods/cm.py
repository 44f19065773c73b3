"""CM (Centroids Matching): classify by the nearest class centroid in an embedding space, and keep past embeddings in place.

Each class is the mean embedding of its support images, recomputed at every step with gradient (eq. 1); a sample is pulled to
its centroid by a softmax over minus distances (eqs 2 and 3); past heads are held where they were by the drift penalty (eqs 4
and 5). CIL: projectors bring the spaces of all tasks into one (eqs 7 to 9), with exemplars of past tasks in every batch.
TIL keeps the centroids and each past task's batch norm, CIL the centroids, the projectors and the exemplars.
Options: lam 0.1 for CIFAR-10, 0.75 for CIFAR-100 and TinyImageNet; support_size 100; embedding_size 128; memory_size 500. Where
paper and released code part, `cm_readings` has both.
Source: Pomponi, Scardapane and Uncini (2022). Built in chapters 4 and 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cmlib.centroids import DISTANCES, class_centroids, distances, drift, log_probabilities
from cmlib.methods.base import Method, Option
from cmlib.methods.rehearsal import IMAGES, MEMORY_OPTIONS, PAPER_MEMORY, kept_exemplars, make_memory, rehearsal_batches
from cmlib.nets import Backbone, make_head
from cmlib.projectors import PROJECTORS, make_projector, merge, merge_centroids, merged_log_probabilities
from cmlib.randomness import seeded
from cmlib.scenario import Scenario, Task

OPTIONS = {
    "lam": Option(0.1, "weight of the drift penalty (lambda, eq. 5)", float, low=0),
    "support_size": Option(100, "support images a task, for the centroids", int, low=1),
    "embedding_size": Option(128, "features of an embedding (E)", int, low=1),
    "distance": Option("euclidean", "distance between embeddings and centroids", choices=DISTANCES),
    "merging": Option("scale_translate", "kind of the projectors (CIL)", choices=tuple(PROJECTORS), only="cil"),
    **{name: replace(option, only="cil") for name, option in MEMORY_OPTIONS.items()},
}


class CentroidsMatching(Method):
    """Centroids Matching, in both scenarios."""

    options = OPTIONS
    keeps = {
        "til": {"centroids": "E * T"},
        "cil": {"centroids": "E * T", "projectors": "(N > 1) * N * Q", **IMAGES},
    }
    paper_memory = {"til": "E x T", "cil": PAPER_MEMORY}
    shares_hidden_layer = False

    def __init__(self, options: Mapping[str, Any], scenario: Scenario, backbone: Backbone | None = None) -> None:
        super().__init__(options, scenario, backbone)
        self.size, self.distance = int(self.option["embedding_size"]), str(self.option["distance"])
        self.projectors = nn.ModuleList()
        self.memory = make_memory(self.option, scenario.task_sizes) if self.kind == "cil" else None

    # -- hooks ------------------------------------------------------------------------------------------------------------

    def begin_task(self, task: Task) -> None:
        """Snapshot the past model, add a head, room for centroids and, from the second task on, projectors (CIL)."""
        if task.index:
            self.take_snapshot()
            self.backbone.add_task()
        self.heads.append(make_head(self.option["head"], self.size, self.seed, task.index, self.backbone.out_features))
        self.register_buffer(f"centroids_{task.index}", torch.zeros(len(task.classes), self.size))
        if self.kind == "cil" and task.index:
            for i in range(len(self.projectors), task.index + 1):
                self.add_projector(i)
        self.to(self.scenario.device)
        self.take_support(task)

    def loss(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """The loss of the first task (eq. 3), of TIL (eq. 5) or of CIL (eq. 9, with the minus log it means). -> scalar"""
        features = self.backbone.features(x)  # [B, D]
        centroids = self.current_centroids(task)  # [K, E]
        weight = self.drift_weight(task.index) if task.index else 0.0
        if self.kind == "til" or not task.index:
            e = self.heads[task.index](features)  # [B, E]
            loss = self.nll(log_probabilities(e, centroids, self.distance), y - task.classes.start)
            return loss + weight * self.til_drift(x, task.index, features) if weight else loss
        embeddings = torch.stack([head(features) for head in self.heads])  # [t + 1, B, E]
        loss = self.merged_loss(embeddings, [*self.centroids[:-1], centroids], y)
        return loss + weight * self.cil_drift(x, y, embeddings[:-1], task) if weight else loss

    def before_measuring(self, task: Task) -> None:
        """The centroids as they now are."""
        self.keep_centroids(task)

    def end_task(self, task: Task) -> None:
        """Keep the final centroids, computed in eval mode, and (CIL) exemplars."""
        self.keep_centroids(task)
        if self.memory is not None:
            self.memory.add_task(task.x, task.y, self.seed, task.index)

    def scores(self, x: Tensor, task: Task | None = None) -> Tensor:
        """Minus the distances to the centroids (eq. 6). -> [B, classes seen], or [B, classes of the task] when it is known"""
        features = self.backbone.features(x, task.index if task else None)
        if task is not None or len(self.heads) == 1:
            i = task.index if task else 0
            return -distances(self.heads[i](features), self.centroids[i], self.distance)
        return -distances(self.merge(features), self.anchors(), self.distance)

    def retained(self) -> dict[str, list[Tensor]]:
        """Centroids; TIL: past batch norms; CIL: projectors, exemplars and their labels."""
        kept = {**super().retained(), "centroids": self.centroids}
        if self.memory is not None:
            kept["projectors"] = list(self.projectors.parameters())
            kept |= kept_exemplars(self.memory)
        return kept

    def batches(self, task: Task, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """TIL: the current task's images. CIL: shared with exemplars of the past tasks."""
        return super().batches(task, epoch) if self.memory is None else rehearsal_batches(self, self.memory, task, epoch)

    # -- centroids and embeddings -----------------------------------------------------------------------------------------

    def take_support(self, task: Task) -> None:
        """The support set as the network sees it."""
        self.support, self.support_y = self.scenario.prepare(task.support_x), task.support_y  # [S, C, H, W], [S]

    def current_centroids(self, task: Task) -> Tensor:
        """Centroids of the current task from its whole support set (eq. 1), with gradient. -> [K, E]"""
        e = self.heads[task.index](self.support_features())  # [S, E]
        return class_centroids(e, self.support_y - task.classes.start, len(task.classes))

    def support_features(self) -> Tensor:
        """Features of the support images. -> [S, D]"""
        return self.backbone.features(self.support)

    @torch.no_grad()
    def keep_centroids(self, task: Task) -> None:
        """Keep the centroids of a task as they now are."""
        self.centroids[task.index].copy_(self.current_centroids(task))

    @property
    def centroids(self) -> list[Tensor]:
        """Centroids of each task so far in its own space, each [K, E]."""
        return [getattr(self, f"centroids_{i}") for i in range(len(self.heads))]

    def embed(self, x: Tensor, task: int) -> Tensor:
        """Embedding e_i(x) by the head of a task. [B, C, H, W] -> [B, E]"""
        return self.heads[task](self.backbone.features(x, task))

    def nll(self, log_p: Tensor, y: Tensor) -> Tensor:
        """Minus the log probability of the true classes (eq. 3); keeps the scores. [B, K], [B] -> scalar"""
        self.batch_scores = log_p.detach()
        return F.nll_loss(log_p, y)

    # -- the drift --------------------------------------------------------------------------------------------------------

    def drift_weight(self, tasks: int) -> float:
        """What the drift, a mean over the past tasks, is multiplied by in the loss: lambda (eq. 5)."""
        return float(self.option["lam"])

    def past_embeddings(self, x: Tensor, tasks: int) -> Tensor:
        """Embeddings of a batch by the past model's heads, without gradient. -> [t, B, E]"""
        assert self.past is not None
        with torch.no_grad():
            return embed_all(self.past["backbone"], self.past["heads"], x, tasks)

    def til_drift(self, x: Tensor, tasks: int, features: Tensor | None = None) -> Tensor:
        """Drift of the past tasks' embeddings of a batch (eq. 4): all past tasks in one batch. -> scalar

        features [B, D]: of the batch, where it has passed already; with batch norms that tasks share they feed all heads.
        """
        if features is not None and self.backbone.shares_norms():
            now = torch.stack([self.heads[i](features) for i in range(tasks)])  # [t, B, E]
        else:
            now = embed_all(self.backbone, self.heads, x, tasks)
        return drift(self.past_embeddings(x, tasks), now)

    def cil_drift(self, x: Tensor, y: Tensor, embeddings: Tensor, task: Task) -> Tensor:
        """Drift of a batch's embeddings by the past heads (eq. 4), which feed the loss as well. [t, B, E] -> scalar"""
        return drift(self.past_embeddings(x, task.index), embeddings)

    # -- one space for all tasks (CIL) ------------------------------------------------------------------------------------

    def add_projector(self, task: int) -> None:
        """The projector of a task, fresh."""
        with seeded(self.seed, task, "projector"):
            self.projectors.append(make_projector(self.option["merging"], self.size))

    def merged_loss(self, embeddings: Tensor, centroids: list[Tensor], y: Tensor) -> Tensor:
        """Minus the log probability in the merged space (eqs 7 and 9). [t + 1, B, E], t + 1 times [K, E], [B] -> scalar"""
        return self.nll(self.merged(embeddings, centroids), y)

    def merged(self, embeddings: Tensor, centroids: list[Tensor]) -> Tensor:
        """Log probabilities over all classes seen (eq. 7). -> [B, classes seen]"""
        return merged_log_probabilities(embeddings, centroids, self.projectors, None, self.distance)

    def merge(self, features: Tensor) -> Tensor:
        """Merged embedding of features (eq. 7). [B, D] -> [B, E]"""
        return merge([head(features) for head in self.heads], self.projectors)

    def anchors(self) -> Tensor:
        """Kept centroids of all tasks in the shared space. -> [classes seen, E]"""
        return merge_centroids(self.centroids, self.projectors)


def embed_all(backbone: Any, heads: Any, x: Tensor, tasks: int) -> Tensor:
    """Embeddings of a batch by the heads of the first `tasks` tasks. [B, C, H, W] -> [t, B, E]"""
    features = backbone.past_features(x, tasks)  # [t, B, D]
    return torch.stack([heads[i](features[i]) for i in range(tasks)])  # [t, B, E]
