"""CM (Centroids Matching): classify by the nearest class centroid in an embedding space, and keep past embeddings in place.

Each class is the mean embedding of its support images, recomputed at every step with gradient (eq. 1); a sample is pulled to
its centroid by a softmax over minus distances (eqs 2 and 3); past heads are held where they were by the drift penalty (eqs 4
and 5). CIL: projectors bring the spaces of all tasks into one (eqs 7 to 9), with exemplars of past tasks in every batch.
TIL keeps the centroids and each past task's batch norm, CIL the centroids, the projectors and the exemplars.
Options: lam 0.1 for CIFAR-10, 0.75 for CIFAR-100 and TinyImageNet; support_size 100; embedding_size 128; memory_size 500. Where
paper and released code differ, an option has both (`cmlib errata`); the presets text, july22 and head set them together.
Source: Pomponi, Scardapane and Uncini (2022). Built in chapters 4 and 5.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cmlib.centroids import DISTANCES, class_centroids, distances, drift, log_probabilities
from cmlib.errors import OptionError
from cmlib.methods.base import Method, Option, register
from cmlib.methods.rehearsal import MEMORY_OPTIONS, exemplar_formula, kept_exemplars, make_memory, rehearsal_batches
from cmlib.nets import Backbone, make_head
from cmlib.projectors import PROJECTORS, SCALE_STARTS, make_projector, merge, merge_centroids, merged_log_probabilities
from cmlib.randomness import generator, seeded
from cmlib.scenario import Scenario, Task

OPTIONS = {
    "lam": Option(0.1, "weight of the drift penalty (lambda, eq. 5)", float, low=0),
    "support_size": Option(100, "support images a task, for the centroids", int, low=1),
    "stratified": Option(True, "the same number of support images of each class", bool),
    "embedding_size": Option(128, "features of an embedding (E)", int, low=1),
    "distance": Option("euclidean", "distance between embeddings and centroids", choices=DISTANCES),
    "merging": Option("scale_translate", "kind of the projectors (CIL)", choices=tuple(PROJECTORS)),
    "centroids_merging": Option(
        "shared",
        "projectors of the centroids: those of the embeddings, or own ones, of the same kind (own) or of another",
        choices=("shared", "own", *PROJECTORS),
    ),
    "scale_start": Option(
        "random", "first values of Scale-Translate's scale: random ones, or those that make it 0.993", choices=SCALE_STARTS
    ),
    "projectors": Option("trained", "frozen: leave the projectors at their first values", choices=("trained", "frozen")),
    "cil_loss": Option(
        "merged", "eq. 9 alone, or with each sample's loss in its own task's space (both)", choices=("merged", "both")
    ),
    "drift_weight": Option("lam", "what the drift is multiplied by: lam, or one whenever lam is above 0", choices=("lam", "one")),
    "drift_sum": Option("mean", "over the past tasks the drift is averaged or summed", choices=("mean", "sum")),
    "drift_space": Option(
        "own", "own: each past task's space; shared: projected, from the third task on (CIL)", choices=("own", "shared")
    ),
    "drift_samples": Option("batch", "drift of the whole batch, or of the current task's images", choices=("batch", "current")),
    "past_batch_norm": Option(
        "running",
        "statistics of a shared batch norm in the past model: running ones, or the batch's",
        choices=("running", "batch"),
    ),
    "kept_centroids": Option(
        "task_end", "recomputed at the end of a task, or those of its last training step", choices=("task_end", "last_step")
    ),
    "support_chunk": Option(None, "support images that go through the network at once; none: all", int, low=1, optional=True),
    "shuffle": Option(
        "epoch", "a new order of a task's images in each epoch, or one for all (without a memory)", choices=("epoch", "once")
    ),
    **MEMORY_OPTIONS,
}


@register("cm")
class CentroidsMatching(Method):
    """Centroids Matching, in both scenarios."""

    title = "CM"
    summary = "match class centroids in an embedding space whose past parts are held in place"
    source = "Pomponi, Scardapane and Uncini (2022)"
    options = OPTIONS
    defaults = {"til": {"head": "mlp", "batch_norm": "private"}, "cil": {"head": "mlp"}}
    shares_hidden_layer = False

    def __init__(self, options: Mapping[str, Any], scenario: Scenario, backbone: Backbone | None = None) -> None:
        super().__init__(options, scenario, backbone)
        kinds = (self.option["merging"], self.option["centroids_merging"])
        if self.option["scale_start"] != "random" and "scale_translate" not in kinds:
            raise OptionError(f"scale_start={self.option['scale_start']} needs a scale; merging={kinds[0]} has none")
        self.size = int(self.option["embedding_size"])
        self.projectors, self.centroid_projectors = nn.ModuleList(), nn.ModuleList()
        self.memory = make_memory(self.option, len(scenario.class_names), scenario.n_tasks) if self.kind == "cil" else None

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
                self._add_projectors(i)
        self.to(self.scenario.device)
        self._take_support(task)

    def _take_support(self, task: Task) -> None:
        """The support set as the network sees it; one that goes through it in chunks is mixed, or a chunk would be one class."""
        x, y = task.support_x, task.support_y
        if self.option["support_chunk"]:
            order = torch.randperm(len(y), generator=generator(self.seed, task.index, 0, "support chunks")).to(y.device)
            x, y = x[order], y[order]
        self.support, self.support_y = self.scenario.prepare(x), y  # [S, C, H, W], [S]

    def take_snapshot(self) -> None:
        """Keep the past model, with its projectors where the drift is measured in the shared space."""
        super().take_snapshot()
        if self.option["drift_space"] == "shared" and self.past is not None:
            self.past["projectors"] = copy.deepcopy(self.projectors).requires_grad_(False)

    def train(self, mode: bool = True) -> CentroidsMatching:
        """As usual; with past_batch_norm=batch the past model takes the statistics of the batch in training."""
        super().train(mode)
        if self.past is not None and self.option["past_batch_norm"] == "batch":
            self.past["backbone"].train(mode)
        return self

    def _add_projectors(self, task: int) -> None:
        kind, start = self.option["centroids_merging"], self.option["scale_start"]
        with seeded(self.seed, task, "projector"):
            self.projectors.append(make_projector(self.option["merging"], self.size, start))
        if kind != "shared":
            with seeded(self.seed, task, "centroid projector"):
                own = make_projector(self.option["merging"] if kind == "own" else kind, self.size, start)
                self.centroid_projectors.append(own)
        learns = self.option["projectors"] == "trained"
        self.projectors.requires_grad_(learns)
        self.centroid_projectors.requires_grad_(learns)

    def loss(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """The loss of the first task (eq. 3), of TIL (eq. 5) or of CIL (eq. 9, with the minus log it means). -> scalar"""
        features = self.backbone.features(x)  # [B, D]
        centroids = self.current_centroids(task)  # [K, E]
        if self.training and self.option["kept_centroids"] == "last_step":
            self.centroids[task.index].copy_(centroids.detach())
        if self.kind == "til" or not task.index:
            e = self.heads[task.index](features)  # [B, E]
            log_p = log_probabilities(e, centroids, self.option["distance"])  # [B, classes of the task]
            loss = self._nll(log_p, y - task.classes.start)
            return loss if not task.index else loss + self.drift_weight(task.index) * self.til_drift(x, task.index)
        embeddings = torch.stack([head(features) for head in self.heads])  # [t + 1, B, E]
        anchors = [*self.centroids[:-1], centroids]
        log_p = self.merged(embeddings, anchors)  # [B, classes seen]
        moved = self.cil_drift(x, y, embeddings[:-1], task)
        loss = self._nll(log_p, y) + self.drift_weight(task.index) * moved
        return loss + self.own_space_loss(embeddings, anchors, y) if self.option["cil_loss"] == "both" else loss

    def _nll(self, log_p: Tensor, y: Tensor) -> Tensor:
        self.batch_scores = log_p.detach()
        return F.nll_loss(log_p, y)

    def end_task(self, task: Task) -> None:
        """Keep the final centroids, computed in eval mode, and (CIL) exemplars."""
        if self.option["kept_centroids"] == "task_end":
            with torch.no_grad():
                self.centroids[task.index].copy_(self.current_centroids(task))
        if self.memory is not None:
            self.memory.add_task(task.x, task.y, self.seed, task.index)

    def scores(self, x: Tensor, task: Task | None = None) -> Tensor:
        """Minus the distances to the centroids. -> [B, classes seen], or [B, classes of the task] when it is known"""
        features = self.backbone.features(x, task.index if task else None)
        kind = self.option["distance"]
        if task is not None or len(self.heads) == 1:
            i = task.index if task else 0
            return -distances(self.heads[i](features), self.centroids[i], kind)
        return -distances(self.merge(features), self.anchors(), kind)

    def retained(self) -> dict[str, list[Tensor]]:
        """Centroids; TIL: past batch norms; CIL: projectors, exemplars and their labels."""
        kept = {**super().retained(), "centroids": self.centroids}
        if self.memory is not None:
            kept["projectors"] = [*self.projectors.parameters(), *self.centroid_projectors.parameters()]
            kept |= kept_exemplars(self.memory)
        return kept

    def formula(self) -> tuple[str, int]:
        """TIL: features of an embedding x classes. CIL: a rehearsal method."""
        if self.kind == "cil":
            return exemplar_formula(self)
        return "E x T", self.size * len(self.scenario.class_names)

    # -- the stream -------------------------------------------------------------------------------------------------------

    def batches(self, task: Task, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """TIL: the current task's images. CIL: shared with exemplars of the past tasks."""
        if self.option["shuffle"] == "once" and not (self.memory is not None and len(self.memory)):
            part = (task.x, task.y, self.option["batch_size"])
            return self.scenario.batches([part], task.index, epoch, one_order=True)
        if self.memory is None:
            return super().batches(task, epoch)
        return rehearsal_batches(self, self.memory, task, epoch)

    # -- pieces -----------------------------------------------------------------------------------------------------------

    @property
    def centroids(self) -> list[Tensor]:
        """Centroids of each task so far in its own space, each [K, E]."""
        return [getattr(self, f"centroids_{i}") for i in range(len(self.heads))]

    def embed(self, x: Tensor, task: int) -> Tensor:
        """Embedding e_i(x) by the head of a task. [B, C, H, W] -> [B, E]"""
        return self.heads[task](self.backbone.features(x, task))

    def current_centroids(self, task: Task) -> Tensor:
        """Centroids of the current task from its whole support set (eq. 1), with gradient. -> [K, E]"""
        chunks = self.support.split(self.option["support_chunk"] or len(self.support))
        e = self.heads[task.index](torch.cat([self.backbone.features(chunk) for chunk in chunks]))  # [S, E]
        return class_centroids(e, self.support_y - task.classes.start, len(task.classes))

    def past_embeddings(self, x: Tensor, tasks: int) -> Tensor:
        """Embeddings of a batch by the past model's heads, without gradient. -> [t, B, E]"""
        assert self.past is not None
        with torch.no_grad():
            return _embed_all(self.past["backbone"], self.past["heads"], x, tasks)

    def til_drift(self, x: Tensor, tasks: int) -> Tensor:
        """Drift of the past tasks' embeddings of a batch (eq. 4): all past tasks in one batch. -> scalar"""
        return drift(self.past_embeddings(x, tasks), _embed_all(self.backbone, self.heads, x, tasks))

    def cil_drift(self, x: Tensor, y: Tensor, embeddings: Tensor, task: Task) -> Tensor:
        """Drift of a batch's embeddings by the past heads, which feed the loss as well. [t, B, E] -> scalar"""
        past, of = self.past_embeddings(x, task.index), None
        if self.option["drift_space"] == "shared" and task.index > 1:
            assert self.past is not None
            before: Any = self.past["projectors"]
            past, embeddings = _project_all(before, past), _project_all(self.projectors, embeddings)
        if self.option["drift_samples"] == "current":
            of = y >= task.classes.start
        return drift(past, embeddings, of)

    def drift_weight(self, tasks: int) -> float:
        """What the drift, a mean over the past tasks, is multiplied by in the loss."""
        lam = float(self.option["lam"])
        weight = lam if self.option["drift_weight"] == "lam" else float(lam > 0)
        return weight * tasks if self.option["drift_sum"] == "sum" else weight

    def own_space_loss(self, embeddings: Tensor, centroids: list[Tensor], y: Tensor) -> Tensor:
        """Loss of each sample in its own task's space (eq. 3). [t + 1, B, E], t + 1 times [K, E], [B] -> scalar"""
        kind = self.option["distance"]
        scores = [-distances(e, c, kind) for e, c in zip(embeddings, centroids, strict=True)]
        return F.cross_entropy(self.own_task_only(torch.cat(scores, dim=1), y), y)

    def merge(self, features: Tensor) -> Tensor:
        """Merged embedding of features (eq. 7). [B, D] -> [B, E]"""
        return merge([head(features) for head in self.heads], self.projectors)

    def anchors(self) -> Tensor:
        """Kept centroids of all tasks in the shared space. -> [classes seen, E]"""
        return merge_centroids(self.centroids, self.centroid_projectors if len(self.centroid_projectors) else self.projectors)

    def merged(self, embeddings: Tensor, centroids: list[Tensor]) -> Tensor:
        """Log probabilities over all classes seen (eq. 7). -> [B, classes seen]"""
        own = self.centroid_projectors if len(self.centroid_projectors) else None
        return merged_log_probabilities(embeddings, centroids, self.projectors, own, self.option["distance"])


def _project_all(projectors: Any, embeddings: Tensor) -> Tensor:
    """Each task's embeddings through its projector. t x module, [t, B, E] -> [t, B, E]"""
    return torch.stack([projectors[i](e) for i, e in enumerate(embeddings)])


def _embed_all(backbone: Any, heads: Any, x: Tensor, tasks: int) -> Tensor:
    features = backbone.past_features(x, tasks)  # [t, B, D]
    return torch.stack([heads[i](features[i]) for i in range(tasks)])  # [t, B, E]
