"""What is measured, on which images, in which mode of the network; what begins anew with a task; what makes another run."""

import math

import pytest
import torch
from small import arrays, tiny_method

import cmlib as cm
from cmlib import engine, footprint, loop
from cmlib.checkpoint import Position
from cmlib.datasets import ImageData
from cmlib.experiment import COMMON, Experiment
from cmlib.loop import EVAL_BATCH, task_accuracy
from cmlib.methods import METHODS
from cmlib.methods.base import Method
from cmlib.methods.naive import Naive
from cmlib.reproduction import claim_rules, claims
from cmlib.scenario import Scenario

# -- accuracy, by a method whose answers stand in the images ----------------------------------------------------------------

TEST_IMAGES = 2 * EVAL_BATCH + 100  # of a task: two whole batches and a part of one
FREE, KNOWN = 10, 1  # a pixel is FREE x the class answered + KNOWN x the class of the task answered when it is known


class Told(torch.nn.Module):
    """Answers what an image's pixels say; notes how it was asked."""

    def __init__(self, scenario):
        super().__init__()
        self.scenario, self.kind, self.asked = scenario, scenario.kind, []

    def scores(self, x, task=None):
        self.asked.append((len(x), self.training, torch.is_grad_enabled(), None if task is None else task.index))
        pixels = (x * self.scenario.std + self.scenario.mean).round().long()[:, 0, 0, 0]
        if task is None:
            return torch.nn.functional.one_hot(pixels // FREE, len(self.scenario.class_names)).float()
        return torch.nn.functional.one_hot(pixels % FREE, len(task.classes)).float()


def told(kind, augmentation="none"):
    """Four classes in two tasks. In training all answers are right. In testing, counted over a task's images from its start:
    free answers are right in 250 of task 1's and 900 of task 2's, answers with the task known in 700 and 30."""
    y = torch.arange(4).repeat_interleave(TEST_IMAGES // 2)
    place = torch.arange(len(y)) % TEST_IMAGES
    right_free = place < torch.where(y < 2, 250, 900)
    right_known = place >= TEST_IMAGES - torch.where(y < 2, 700, 30)
    free = torch.where(right_free, y, (y + 1) % 4)
    known = torch.where(right_known, y % 2, 1 - y % 2)
    test_x = (FREE * free + KNOWN * known).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 4, 4).contiguous()
    train_y = torch.arange(4).repeat_interleave(9)
    train_x = (FREE * train_y + KNOWN * (train_y % 2)).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 4, 4).contiguous()
    names = tuple("abcd")
    data = ImageData("arrays", train_x, train_y, test_x, y, names, (0.0,), (0.5,), augmentation, "0" * 12)
    return Told(Scenario(data, kind, n_tasks=2))


@pytest.mark.parametrize("kind", ["til", "cil"])
def test_accuracy_is_that_of_the_test_images(kind):
    """To the last image: every batch counts, also the last one; labels are the task's own, known or not."""
    made = told(kind, "crop-flip")  # which would shift a pixel to black
    first, second = made.scenario.tasks
    assert task_accuracy(made, first, known=False) == 100 * 250 / TEST_IMAGES
    assert task_accuracy(made, second, known=False) == 100 * 900 / TEST_IMAGES
    assert task_accuracy(made, first, known=True) == 100 * 700 / TEST_IMAGES
    assert task_accuracy(made, second, known=True) == 100 * 30 / TEST_IMAGES


def test_accuracy_is_asked_for_in_eval_mode_and_without_gradient():
    made = told("cil").train()
    task_accuracy(made, made.scenario.tasks[1], known=True)
    task_accuracy(made, made.scenario.tasks[0], known=False)
    sizes = [EVAL_BATCH, EVAL_BATCH, 100]
    assert made.asked == [(n, False, False, 1) for n in sizes] + [(n, False, False, None) for n in sizes]


def test_accuracy_of_the_validation_images():
    """eval_split=val measures on images set apart from the training ones, never on test images."""
    data = arrays(each=10)
    made = Told(Scenario(data, "til", n_tasks=2, eval_split="val"))
    rows = [data.x_train.flatten(1).tolist().index(image) for image in made.scenario.tasks[0].test_x.flatten(1).tolist()]
    assert len(set(rows)) == 4 and set(made.scenario.tasks[0].test_y.tolist()) == {0, 1}
    assert [row % 4 for row in rows] == made.scenario.tasks[0].test_y.tolist()


@pytest.mark.parametrize(("worst", "fine"), [(math.nan, False), (math.inf, False), (-math.inf, True)])
def test_an_image_without_a_best_score_spoils_the_row(worst, fine):
    """A class may be ruled out by a score of minus infinity; where no best one is finite, nothing is measured."""
    made, position = told("cil"), Position()
    answer = made.scores
    made.scores = lambda x, task=None: answer(x, task).index_fill(1, torch.tensor([1]), worst)
    assert loop.measure(made, made.scenario.tasks, position) is fine
    assert [len(position.R), len(position.R_task_known)] == [int(fine)] * 2


def test_rows_of_the_two_matrices():
    """TIL: one matrix, with the task known. CIL: the first without it, the second with it; a row holds the tasks so far."""
    free, known = ([100 * n / TEST_IMAGES for n in counts] for counts in ((250, 900), (700, 30)))
    for kind, wanted in (("til", ([known[:1], known], [])), ("cil", ([free[:1], free], [known[:1], known]))):
        made, position = told(kind), Position()
        for count in (1, 2):
            loop.measure(made, made.scenario.tasks[:count], position)
        assert (position.R, position.R_task_known) == wanted


def test_a_run_holds_a_row_a_time_and_a_column_a_task():
    run = cm.Run("x", {"seed": 0}, [[90.0, None, None], [70.0, 80.0, None], [50.0, 60.0, 95.0]], None, [], [], {})
    assert torch.equal(
        torch.from_numpy(run.matrix).nan_to_num(-1), torch.tensor([[90.0, -1, -1], [70, 80, -1], [50, 60, 95]]).double()
    )
    assert (run.accuracy, run.bwt, run.bwt_final) == pytest.approx((205 / 3, -80 / 3, -30.0))
    assert run.learning_accuracy == pytest.approx(265 / 3)


# -- modes of the network, and what begins anew with a task -------------------------------------------------------------------

QUICK = {"profile": "smoke", "n_tasks": 2, "epochs": 2, "batch_size": 4, "train_per_class": 4}


def watched(monkeypatch, cls):
    """A list that notes (hook, task, are all modules in train mode, are all in eval mode) of a method's steps and task ends."""
    notes = []

    def note(name):
        plain = getattr(cls, name)

        def noted(self, *arguments):
            modes = [module.training for module in (self, *self.backbone.modules(), *self.heads.modules())]
            notes.append((name, arguments[-1].index, all(modes), not any(modes)))
            return plain(self, *arguments)

        monkeypatch.setattr(cls, name, noted)

    note("step")
    note("end_task")
    return notes


def test_modes_of_the_network(monkeypatch):
    """Every step in train mode, also after the first task was measured; the end of a task in eval mode."""
    monkeypatch.setattr(engine, "fresh", lambda experiment, data, device: quick(experiment))
    notes = watched(monkeypatch, Naive)
    cm.run(Experiment("arrays", "til", "naive", **QUICK), arrays())
    steps = [("step", True, False)] * 4  # 8 images a task in batches of 4, two epochs
    per_task = [*steps, ("end_task", False, True)]
    assert [(name, *modes) for name, _, *modes in notes] == per_task * 2
    assert [task for _, task, *_ in notes] == [0] * 5 + [1] * 5


def quick(experiment):
    """The experiment's method on the tiny network and the small arrays."""
    return tiny_method(experiment, arrays())


@pytest.mark.engines
def test_modes_of_the_network_through_avalanche(monkeypatch):
    pytest.importorskip("avalanche")
    from cmlib.methods.emr import EmbeddingRegularization

    notes = []
    plain = EmbeddingRegularization.end_task

    def noted(self, task):
        notes.append((task.index, any(module.training for module in self.modules())))
        plain(self, task)

    monkeypatch.setattr(EmbeddingRegularization, "end_task", noted)
    experiment = Experiment(
        "arrays", "til", "emr", profile="smoke", n_tasks=2, train_per_class=4, memory_size=4, engine="avalanche"
    )
    cm.run(experiment, arrays())
    assert notes == [(0, False), (1, False)]


def test_the_optimizer_starts_anew_with_each_task(monkeypatch):
    """Same learning rate, momentum and weight decay in every task, and no momentum of the last task's gradients."""
    seen = []
    plain = Naive.step

    def noted(self, optimizer, x, y, task):
        (group,) = optimizer.param_groups
        seen.append((task.index, len(optimizer.state), group["lr"], group["momentum"], group["weight_decay"]))
        return plain(self, optimizer, x, y, task)

    monkeypatch.setattr(Naive, "step", noted)
    monkeypatch.setattr(engine, "fresh", lambda experiment, data, device: quick(experiment))
    settings = {"lr": 0.03, "momentum": 0.8, "weight_decay": 0.002}
    cm.run(Experiment("arrays", "til", "naive", **QUICK, **settings), arrays())
    states = (0, 6, 6, 6)  # of the convolution, the norm and the task's head, two tensors each, from the second step on
    assert seen == [(task, n, 0.03, 0.8, 0.002) for task in (0, 1) for n in states]


# -- scores -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["til", "cil"])
@pytest.mark.parametrize("method", ["naive", "ewc", "er", "emr"])
def test_a_known_task_is_answered_by_its_own_head(method, kind):
    """TIL: the task's head and norm. CIL: all heads, and with the task known only the scores of its classes."""
    if kind not in METHODS[method].scenarios:
        return
    made = quick(Experiment("arrays", kind, method, head="linear", **QUICK))
    for task in made.scenario.tasks:
        made.begin_task(task)
        made.train()
        made.backbone.features(made.scenario.prepare(task.x))  # the norms of the tasks come apart
    made.eval()
    x = made.scenario.prepare(made.scenario.tasks[0].test_x)
    features = [made.backbone.features(x, task) for task in range(2)]
    for task, head in enumerate(made.heads):
        torch.testing.assert_close(made.scores(x, made.scenario.tasks[task]), head(features[task]), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(made.heads[0](features[0]), made.heads[1](features[1]))
    if kind == "cil":
        both = torch.cat([head(features[0]) for head in made.heads], dim=1)
        torch.testing.assert_close(made.scores(x), both, rtol=1e-5, atol=1e-6)


def test_known_tasks_take_scores_of_the_method_itself():
    """No method answers with the plain scores by accident: those that have other scores override them."""
    own = {name for name, cls in METHODS.items() if cls.scores is not Method.scores and cls.__module__.startswith("cmlib.")}
    assert own & {*footprint.ORDER, "cm"} == {"cm", "cope"}


# -- what makes another run -------------------------------------------------------------------------------------------------


def another(option):
    """A possible value of an option other than its default."""
    if option.kind is bool:
        return not option.default
    if option.choices:
        return next(one for one in option.choices if one != option.default)
    if option.default is None:
        return 3
    return option.default / 2 if option.kind is float and option.default else option.default + 1


@pytest.mark.parametrize("method", [name for name, cls in METHODS.items() if cls.__module__.startswith("cmlib.")])
def test_every_option_is_in_the_hash(method):
    cls = METHODS[method]
    plain = Experiment("digits", cls.scenarios[0], method)
    hashes = {plain.hash("d")}
    for name, option in {**COMMON, **cls.options}.items():
        value = another(option)
        if value == plain.options[name] or (name == "batch_norm" and value not in cls.batch_norms):
            continue
        if name in cls.ignores or (name == "batch_norm" and plain.scenario == "cil"):
            continue
        changed = plain.but(**{"scenario": option.only or plain.scenario, name: value}).hash("d")
        assert changed not in hashes, f"{name}={value} has the hash of another experiment"
        hashes.add(changed)
    assert len(hashes) > len(COMMON) - 3


def test_every_field_and_the_data_are_in_the_hash():
    plain = Experiment("cifar10", "cil", "er", profile="digits")
    others = [
        plain.but(seed=1), plain.but(scenario="til", batch_split="half"), plain.but(engine="avalanche"),
        plain.but(dataset="cifar100", profile="digits", batch_size=32, n_tasks=5), plain.but(method="ssil", batch_split="half"),
    ]  # fmt: skip
    hashes = [one.hash("d") for one in others]
    assert len({plain.hash("d"), *hashes, plain.hash("e")}) == len(others) + 2
    assert plain.but(profile="paper", epochs=5, memory_size=50).hash("d") == plain.hash("d")  # a profile only fills options


def test_a_tie_is_no_win():
    """The best is above every other; equals are not better than each other."""
    measures = {"cm": 70.0, "er": 70.0}
    source = lambda claim, dataset, scenario, label, metric: claim_rules.Measure(label, metric, measures[label], None, 5)  # noqa: E731
    view = claim_rules.View(claims.load()[0], "digits", "cil", source)
    assert not claim_rules.best(view, "cm", ["er"]).holds and not claim_rules.clearly_best(view, "cm", ["er"]).holds
    measures["cm"] = 70.01
    view = claim_rules.View(claims.load()[0], "digits", "cil", source)
    assert claim_rules.best(view, "cm", ["er"]).holds
