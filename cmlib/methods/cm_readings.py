"""CM where its paper and its released code leave a choice: each option has the readings there are (`cmlib errata`).

The defaults are `cm` itself; the presets text, july22 and head set several together. Built in chapter 14.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cmlib.centroids import distances, drift
from cmlib.errors import OptionError
from cmlib.methods.base import Option, register
from cmlib.methods.cm import OPTIONS, CentroidsMatching
from cmlib.nets import Backbone
from cmlib.projectors import PROJECTORS, SCALE_STARTS, make_projector, merge_centroids, merged_log_probabilities
from cmlib.randomness import generator, seeded
from cmlib.scenario import Scenario, Task

READINGS = {
    "stratified": Option(True, "the same number of support images of each class", bool),
    "centroids_merging": Option(
        "shared",
        "projectors of the centroids: those of the embeddings, or own ones, of the same kind (own) or of another",
        choices=("shared", "own", *PROJECTORS),
        only="cil",
    ),
    "scale_start": Option(
        "random",
        "first values of Scale-Translate's scale: random ones, or those that make it 0.993",
        choices=SCALE_STARTS,
        only="cil",
    ),
    "projectors": Option(
        "trained", "frozen: leave the projectors at their first values", choices=("trained", "frozen"), only="cil"
    ),
    "cil_loss": Option(
        "merged", "eq. 9 alone, or with each sample's loss in its own task's space (both)", choices=("merged", "both"), only="cil"
    ),
    "drift_weight": Option("lam", "what the drift is multiplied by: lam, or one whenever lam is above 0", choices=("lam", "one")),
    "drift_sum": Option(
        "mean",
        "over the past tasks of task t the drift is averaged, summed, or summed and divided by t (over_t: eq. 4 to the letter)",
        choices=("mean", "sum", "over_t"),
    ),
    "drift_space": Option(
        "own",
        "own: each past task's space; shared: projected, from the third task on (CIL)",
        choices=("own", "shared"),
        only="cil",
    ),
    "drift_samples": Option(
        "batch", "drift of the whole batch, or of the current task's images", choices=("batch", "current"), only="cil"
    ),
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
}


@register("cm")
class Readings(CentroidsMatching):
    """Centroids Matching, by default as in its paper, with every other reading as an option."""

    title = "CM"
    summary = "match class centroids in an embedding space whose past parts are held in place"
    source = "Pomponi, Scardapane and Uncini (2022)"
    options = {**OPTIONS, **READINGS}
    defaults = {"til": {"head": "mlp", "batch_norm": "private"}, "cil": {"head": "mlp"}}

    def __init__(self, options: Mapping[str, Any], scenario: Scenario, backbone: Backbone | None = None) -> None:
        super().__init__(options, scenario, backbone)
        kinds = (self.option["merging"], self.option["centroids_merging"])
        if self.option["scale_start"] != "random" and "scale_translate" not in kinds:
            raise OptionError(f"scale_start={self.option['scale_start']} needs a scale; merging={kinds[0]} has none")
        if self.option["past_batch_norm"] == "batch" and not self.backbone.shares_norms():
            raise OptionError("past_batch_norm=batch needs a batch norm that all tasks share; take batch_norm=shared")
        self.centroid_projectors = nn.ModuleList()

    # -- the support set and the centroids --------------------------------------------------------------------------------

    def take_support(self, task: Task) -> None:
        """A support set that goes through the network in chunks is mixed, or a chunk would be one class."""
        if not self.option["support_chunk"]:
            super().take_support(task)
            return
        drawn = torch.randperm(len(task.support_y), generator=generator(self.seed, task.index, 0, "support chunks"))
        order = drawn.to(task.support_y.device)
        self.support, self.support_y = self.scenario.prepare(task.support_x[order]), task.support_y[order]

    def support_features(self) -> Tensor:
        """Features of the support images, chunk by chunk. -> [S, D]"""
        chunks = self.support.split(self.option["support_chunk"] or len(self.support))
        return torch.cat([self.backbone.features(chunk) for chunk in chunks])

    def current_centroids(self, task: Task) -> Tensor:
        """As ever; with kept_centroids=last_step those of a training step are kept."""
        centroids = super().current_centroids(task)
        if self.training and self.option["kept_centroids"] == "last_step":
            self.centroids[task.index].copy_(centroids.detach())
        return centroids

    def keep_centroids(self, task: Task) -> None:
        """At the end of a task, unless those of its last step are kept."""
        if self.option["kept_centroids"] == "task_end":
            super().keep_centroids(task)

    def batches(self, task: Task, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """As ever; with shuffle=once in one order, as long as there is no exemplar."""
        if self.option["shuffle"] == "once" and not (self.memory is not None and len(self.memory)):
            part = (task.x, task.y, self.option["batch_size"])
            return self.scenario.batches([part], task.index, epoch, one_order=True)
        return super().batches(task, epoch)

    # -- the drift --------------------------------------------------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Keep the past model, with its projectors where the drift is measured in the shared space."""
        super().take_snapshot()
        if self.option["drift_space"] == "shared" and self.past is not None:
            self.past["projectors"] = copy.deepcopy(self.projectors).requires_grad_(False)

    def train(self, mode: bool = True) -> Readings:
        """As usual; with past_batch_norm=batch the past model takes the statistics of the batch in training."""
        super().train(mode)
        if self.past is not None and self.option["past_batch_norm"] == "batch":
            self.past["backbone"].train(mode)
        return self

    def drift_weight(self, tasks: int) -> float:
        """Lambda, or one; from the mean over the past tasks to their sum, or to their sum divided by the tasks so far."""
        lam = super().drift_weight(tasks)
        weight = lam if self.option["drift_weight"] == "lam" else float(lam > 0)
        return weight * {"mean": 1.0, "sum": tasks, "over_t": tasks / (tasks + 1)}[self.option["drift_sum"]]

    def cil_drift(self, x: Tensor, y: Tensor, embeddings: Tensor, task: Task) -> Tensor:
        """The drift, in the shared space or of the current task's images alone where that is asked for. -> scalar"""
        past, of = self.past_embeddings(x, task.index), None
        if self.option["drift_space"] == "shared" and task.index > 1:
            assert self.past is not None
            before: Any = self.past["projectors"]
            past, embeddings = _project_all(before, past), _project_all(self.projectors, embeddings)
        if self.option["drift_samples"] == "current":
            of = y >= task.classes.start
        return drift(past, embeddings, of)

    # -- one space for all tasks (CIL) ------------------------------------------------------------------------------------

    def add_projector(self, task: int) -> None:
        """The projectors of a task: one, and another for its centroids where these have their own."""
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

    def merged_loss(self, embeddings: Tensor, centroids: list[Tensor], y: Tensor) -> Tensor:
        """Eq. 9; with cil_loss=both each sample's loss in its own task's space beside it. -> scalar"""
        loss = super().merged_loss(embeddings, centroids, y)
        return loss + self.own_space_loss(embeddings, centroids, y) if self.option["cil_loss"] == "both" else loss

    def own_space_loss(self, embeddings: Tensor, centroids: list[Tensor], y: Tensor) -> Tensor:
        """Loss of each sample in its own task's space (eq. 3). [t + 1, B, E], t + 1 times [K, E], [B] -> scalar"""
        scores = [-distances(e, c, self.distance) for e, c in zip(embeddings, centroids, strict=True)]
        return F.cross_entropy(self.own_task_only(torch.cat(scores, dim=1), y), y)

    def merged(self, embeddings: Tensor, centroids: list[Tensor]) -> Tensor:
        """Log probabilities over all classes seen (eq. 7), the centroids by their own projectors where they have some."""
        own = self.centroid_projectors if len(self.centroid_projectors) else None
        return merged_log_probabilities(embeddings, centroids, self.projectors, own, self.distance)

    def anchors(self) -> Tensor:
        """Kept centroids of all tasks in the shared space. -> [classes seen, E]"""
        return merge_centroids(self.centroids, self.centroid_projectors if len(self.centroid_projectors) else self.projectors)

    def retained(self) -> dict[str, list[Tensor]]:
        """Beside what CM keeps, the projectors of the centroids."""
        kept = super().retained()
        if self.memory is not None:
            kept["projectors"] = [*kept["projectors"], *self.centroid_projectors.parameters()]
        return kept


def _project_all(projectors: Any, embeddings: Tensor) -> Tensor:
    """Each task's embeddings through its projector. t x module, [t, B, E] -> [t, B, E]"""
    return torch.stack([projectors[i](e) for i, e in enumerate(embeddings)])
