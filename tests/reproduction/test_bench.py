"""The benches: the literal step agrees with CM, passes are counted, sides take turns, results have their shape."""

import json
import sys
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from tiny import tiny_nets

import cmlib as cm
from cmlib import cli, datasets
from cmlib.errors import OptionError
from cmlib.experiment import fresh
from cmlib.methods.base import METHODS
from cmlib.reproduction import bench
from cmlib.reproduction.literal import LiteralStep
from cmlib.scenario import augment

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


def at_task(digits, scenario, number, nets=tiny_nets, **options):
    """CM at the start of a task, its weights moved away from those of the past model. nets: whose networks it has"""
    experiment = cm.Experiment("digits", scenario, "cm", profile="smoke", lam=0.7, **options)
    with nets():
        method, task = bench.advanced(experiment, digits, CPU, number)
    g = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in method.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * parameter.std(correction=0) * torch.randn(parameter.shape, generator=g))
    x, y = next(iter(method.batches(task, 0)))
    return method, task, x, y


def gradients(method, loss):
    method.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in method.named_parameters() if p.grad is not None}


# -- the literal step -----------------------------------------------------------------------------------------------------


@pytest.mark.numbers
@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("scenario", "number"), [("til", 2), ("til", 3), ("til", 4), ("til", 5), ("cil", 2), ("cil", 5)])
def test_cm_agrees_with_the_literal_step(digits, scenario, number):
    """In the last task on the network of the paper, in the others on a small one."""
    method, task, x, y = at_task(digits, scenario, number, nets=nullcontext if number == 5 else tiny_nets)
    literal = LiteralStep(method, task, chunk=None)
    ours, theirs = method.loss(x, y, task), literal.loss(x, y)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
    assert float(literal.drift(x).detach()) > 0.01
    own, slow = gradients(method, ours), gradients(method, theirs)
    assert set(own) == set(slow) and len(own) > (50 if number == 5 else 8)
    for name in own:
        torch.testing.assert_close(own[name], slow[name], rtol=1e-9, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")


def test_the_literal_step_takes_the_support_set_in_chunks(digits):
    """Each chunk has batch statistics of its own, so the loss is another one; the past model gets gradients, thrown away."""
    method, task, x, y = at_task(digits, "cil", 3)
    whole, chunked = LiteralStep(method, task, chunk=None), LiteralStep(method, task, chunk=4)
    assert abs(float((whole.loss(x, y) - chunked.loss(x, y)).detach())) > 1e-4
    before = [p.clone() for p in chunked.past.parameters()], method.backbone.conv1.weight.clone()
    chunked(x, y)
    assert any(float(p.grad.abs().max()) > 0 for p in chunked.past.parameters() if p.grad is not None)
    assert all(torch.equal(a, b) for a, b in zip(before[0], chunked.past.parameters(), strict=True))
    assert not torch.equal(before[1], method.backbone.conv1.weight)
    assert all(p.grad is None for p in method.past.parameters())


@pytest.mark.parametrize("number", [2, 3, 4, 5])
def test_a_step_of_cm_in_til_calls_the_backbone_four_times(digits, number):
    method, task, x, y = at_task(digits, "til", number)
    optimizer = method.make_optimizer()
    counted = bench.backbone_passes(method, lambda: method.step(optimizer, x, y, task))
    assert counted == {"current": 3, "past": 1}  # the batch, the support set, all past tasks; all past tasks as they were
    literal = LiteralStep(method, task, chunk=4)  # 10 support images: 3 chunks
    counted = bench.backbone_passes(method, lambda: literal(x, y), literal.past)
    assert counted == {"current": 1 + 3 + number - 1, "past": number - 1}


@pytest.mark.parametrize("number", [2, 5])
def test_a_step_of_cm_in_cil_calls_the_backbone_three_times(digits, number):
    method, task, x, y = at_task(digits, "cil", number)
    optimizer = method.make_optimizer()
    counted = bench.backbone_passes(method, lambda: method.step(optimizer, x, y, task))
    assert counted == {"current": 2, "past": 1}  # the batch, the support set; the batch as it was
    literal = LiteralStep(method, task, chunk=None)
    counted = bench.backbone_passes(method, lambda: literal(x, y), literal.past)
    assert counted == {"current": number + 1 + number - 1, "past": number - 1}
    assert not method.backbone._forward_pre_hooks


# -- measuring ------------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that goes only when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def side(self, seconds, log, name):
        """A side that takes these seconds, one after the other."""
        left = iter(seconds)

        def work():
            log.append(name)
            self.now += next(left)

        timer = bench.Timer(CPU, self)
        return lambda: timer(work)


def test_sides_take_turns_and_the_first_round_does_not_count():
    clock, log = Clock(), []
    sides = {"a": clock.side([9, 1, 2, 3], log, "a"), "b": clock.side([90, 10, 10, 60], log, "b")}
    times = bench.interleave(sides, rounds=3)
    assert times == {"a": [1, 2, 3], "b": [10, 10, 60]}
    assert log == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert bench.medians(times) == {"a": 2, "b": 10}
    assert bench.ratio(times, "b", "a") == 10  # the median of 10, 5 and 20: not 10 / 2


def test_a_busy_machine_hardly_changes_a_ratio():
    """Ten times slower in half of the rounds: the medians move, the ratio does not."""
    slow = [1, 10, 1, 10, 1, 10, 1, 10, 10, 10]
    times = {"ours": [2.0 * s for s in slow], "theirs": [6.0 * s for s in slow]}
    assert bench.ratio(times, "theirs", "ours") == 3 and bench.medians(times)["ours"] == 20


def test_one_thread_on_a_cpu_is_measured_in_cpu_time():
    torch.set_num_threads(1)
    timer = bench.Timer(CPU)
    assert timer.kind == "cpu time"
    import time

    assert timer(lambda: time.sleep(0.2)) < 0.1


@pytest.mark.parametrize(
    ("value", "word", "goal", "wanted"),
    [
        (4, "at least", 4.0, True),
        (3.9, "at least", 4.0, False),
        (1.2, "at most", 1.15, False),
        (None, "at most", 1, None),
        ([4, 4, 4, 4], "at most", 4, True),
        ([4, 4, 5, 4], "at most", 4, False),
    ],
)
def test_goals(value, word, goal, wanted):
    assert bench.met(value, word, goal) is wanted


# -- all sides do the same work -------------------------------------------------------------------------------------------


def test_made_up_images_are_always_the_same():
    one, two = bench.made_up("32x32", 3), bench.made_up("32x32", 3)
    assert one.digest == two.digest and one.x_train.shape == (30, 3, 32, 32) and one.augmentation == "crop-flip"
    assert torch.bincount(one.y_train).tolist() == [3] * 10
    small = bench.made_up("8x8", 2)
    assert small.x_train.shape == (20, 1, 8, 8) and small.augmentation == "none"


def test_pil_images_come_out_as_cmlibs_do():
    data = bench.made_up("32x32", 2)
    scenario = cm.scenario.Scenario(data)
    x, y = data.x_train, data.y_train
    plain = bench.PILImages(x, y, bench.pil_transforms(data, augmented=False))
    assert len(plain) == 20 and plain.targets == y.tolist()
    torch.testing.assert_close(torch.stack([plain[i][0] for i in range(20)]), scenario.prepare(x).contiguous(), rtol=0, atol=2e-5)
    shifts = torch.cartesian_prod(torch.arange(9), torch.arange(9), torch.arange(2))  # every crop and flip there is
    all_of_it = scenario.prepare(augment(x[:1].expand(len(shifts), -1, -1, -1), shifts, "crop-flip"))
    cut = bench.PILImages(x, y, bench.pil_transforms(data))
    drawn = torch.stack([cut[0][0] for _ in range(12)])
    nearest = (drawn.unsqueeze(1) - all_of_it.unsqueeze(0)).abs().amax((2, 3, 4))
    assert float(nearest.amin(1).max()) < 2e-5 and len(set(nearest.argmin(1).tolist())) > 6
    gray = bench.made_up("8x8", 2)
    image = bench.PILImages(gray.x_train, gray.y_train, bench.pil_transforms(gray))[3][0]
    torch.testing.assert_close(image, cm.scenario.Scenario(gray).prepare(gray.x_train[3:4])[0], rtol=0, atol=2e-5)


@pytest.mark.usefixtures("double")
def test_all_sides_start_from_the_same_network():
    data = bench.made_up("32x32", 8)
    method = fresh(cm.Experiment("arrays", "til", "naive"), data)
    task = method.scenario.tasks[0]
    method.begin_task(task)
    x, y = method.scenario.prepare(task.x), task.y
    wanted = method.loss(x, y, task)
    for layout in (torch.channels_last, torch.contiguous_format):
        net = bench.plain_net(method.scenario, layout)
        assert net[0].blocks[0].conv1.weight.is_contiguous(memory_format=layout)
        torch.testing.assert_close(F.cross_entropy(net(x), y), wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.engines
def test_avalanche_goes_over_every_image_once_an_epoch():
    pytest.importorskip("avalanche")
    from cmlib.avalanche import benchmark

    scenario = cm.scenario.Scenario(bench.made_up("32x32", 10))
    for on_device, made in ((False, bench.pil_benchmark), (True, benchmark)):
        strategy = bench.avalanche_naive(scenario, 8, bench.Timer(CPU), on_device)
        before = strategy.model[0].conv.weight.clone()
        strategy.train(made(scenario).train_stream[0])
        assert strategy.clock.train_iterations == 3 and strategy.seconds > 0  # 20 images, 8 a batch
        assert not torch.equal(before, strategy.model[0].conv.weight)
    experiment = cm.Experiment("arrays", "til", "naive", batch_size=8)
    data, names = bench.made_up("32x32", 10), ("avalanche", "avalanche_device")
    sides = bench.epoch_sides(experiment, data, bench.Timer(CPU), names, False)
    times = bench.interleave(sides, 2)
    assert set(times) == set(names) and all(seconds > 0 for values in times.values() for seconds in values)


# -- results --------------------------------------------------------------------------------------------------------------


def printed(capsys, name, **settings):
    """The one JSON object on stdout; the methods have small networks."""
    with tiny_nets():
        bench.main(name, as_json=True, **settings)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def without_avalanche(monkeypatch):
    for name in ("avalanche", "avalanche.training.plugins", "avalanche.training.supervised", "avalanche.benchmarks"):
        monkeypatch.setitem(sys.modules, name, None)


SMALL = {"dataset": "digits", "profile": "smoke", "train_per_class": 16, "repeats": 1}


def test_methods_counts_steps(capsys):
    found = printed(capsys, "methods", methods=("cm",), **SMALL)
    assert (found["bench"], found["device"], found["threads"], found["clock"]) == ("methods", "cpu", 1, "cpu time")
    assert found["shape"] == [1, 8, 8] and found["data"] == "digits"
    steps = {(row["scenario"], row["task"]): row["steps"] for row in found["rows"]}
    # 2 x 16 - 10 = 22 images; CIL: 32, 16, 11, 8, 7 of a batch are the current task's
    wanted = {("til", task): 1 for task in range(1, 6)} | {("cil", task): n for task, n in enumerate([1, 2, 2, 3, 4], 1)}
    assert steps == wanted and all(row["method"] == "cm" and row["seconds_per_epoch"] > 0 for row in found["rows"])


def test_step_has_a_row_for_each_task_and_the_literal_step_for_cm(capsys):
    found = printed(capsys, "step", methods=("cope", "cm"), scenario="cil", **SMALL)
    assert {row["method"] for row in found["rows"]} == {"cope", "cm"} and len(found["rows"]) == 10
    assert [row["task"] for row in found["rows"]] == 2 * [1, 2, 3, 4, 5]
    assert {row["method"]: row["samples"] for row in found["rows"]} == {"cm": 32, "cope": 64}
    assert all(row["seconds_per_step"] > 0 for row in found["rows"])
    assert all(("seconds_per_literal_step" in row) == (row["method"] == "cm") for row in found["rows"])


@pytest.mark.slow
def test_step_and_methods_know_every_method(capsys):
    for name in ("step", "methods"):
        found = printed(capsys, name, **SMALL)
        pairs = {(row["method"], row["scenario"]) for row in found["rows"]}
        assert pairs == {(method, scenario) for method, cls in METHODS.items() for scenario in cls.scenarios}
        assert len(found["rows"]) == 5 * len(pairs)


def test_epoch_and_pipeline(capsys, monkeypatch):
    without_avalanche(monkeypatch)
    found = printed(capsys, "epoch", images="8x8", train_per_class=10, repeats=2)
    assert set(found["seconds_per_epoch"]) == {"cmlib", "bare"} == set(found["ratio_to_cmlib"])
    assert found["ratio_to_cmlib"]["cmlib"] == 1.0 and found["train_images"] == 100 and found["repeats"] == 2
    found = printed(capsys, "pipeline", images="32x32", train_per_class=10, repeats=2)
    assert set(found["seconds_per_batch"]) == {"cmlib", "pil"} and set(found["ratio_to_cmlib"]) == {"pil"}
    assert all(value > 0 for value in found["seconds_per_batch"].values())


def test_the_operations_of_an_epoch_by_hand():
    """ResNet20 on 8x8 images: 3 x 3 convolutions, their inputs' and weights' gradients; the first has no input gradient."""
    experiment, data = cm.Experiment("arrays", "til", "naive"), bench.made_up("8x8", 4)  # 8 images in the first task
    first, same = 9 * 1 * 16 * 64, 9 * (16 * 16 * 64 * 6 + 32 * 32 * 16 * 5 + 64 * 64 * 4 * 5)
    down, head = 9 * (16 * 32 * 16 + 32 * 64 * 4), 64 * 2
    assert bench.epoch_operations(experiment, data) == 8 * 2 * (2 * first + 3 * (same + down + head))
    product, operations = bench.large_product(bench.Timer(CPU))
    assert operations == 2 * bench.SQUARE**3 and product() > 0


@pytest.fixture
def tiny(monkeypatch):
    """Ratios of small images, few of them, without Avalanche."""
    without_avalanche(monkeypatch)
    monkeypatch.setattr(bench, "SQUARE", 256)
    monkeypatch.setattr(bench, "IMAGES", {"32x32": (3, 8, 8), "8x8": (1, 8, 8)})
    monkeypatch.setattr(bench, "BLOCKS", {"epoch 32x32": 8, "epoch 8x8": 8, "pipeline": 8, "cm": 60})


def test_ratios(capsys, tiny):
    found = printed(capsys, "ratios", repeats=1)
    shares = {"step_vs_peak", "bare_vs_peak"}  # of the machine's peak: nobody's goal
    assert set(found["ratios"]) == set(bench.GOALS) | shares and set(found["goals"]) == set(bench.GOALS)
    assert "step_vs_peak" in bench.in_words(found)
    assert found["ratios"]["til_passes"] == [4, 4, 4, 4] and found["goals"]["til_passes"] == {"goal": "at most 4", "met": True}
    assert found["ratios"]["epoch_vs_avalanche"] is None and found["goals"]["epoch_vs_avalanche"]["met"] is None
    numbers = [value for name, value in found["ratios"].items() if name not in ("til_passes", "epoch_vs_avalanche")]
    assert len(numbers) == 7 and all(value > 0 for value in numbers)
    seconds = found["seconds"]["CM in CIL"]
    assert set(seconds) == {"task 2", "task 5", "literal, task 5"}
    # made of the same times: the engine's share of the peak is the bare loop's by what the engine costs more
    times = found["seconds"]["epoch, 32x32"]
    assert found["ratios"]["bare_vs_peak"] / found["ratios"]["step_vs_peak"] == pytest.approx(times["cmlib"] / times["bare"], 0.5)
    # one round: the ratio is that of its two times
    assert found["ratios"]["cil_step_growth"] == pytest.approx(seconds["task 5"] / seconds["task 2"])
    assert found["ratios"]["cil_step_vs_literal"] == pytest.approx(seconds["literal, task 5"] / seconds["task 5"])


def test_in_words(capsys, monkeypatch):
    without_avalanche(monkeypatch)
    with tiny_nets():
        bench.main("methods", methods=("cm",), scenario="til", **SMALL)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "methods: cpu, 1 thread(s), cpu time; digits 1x8x8" and err == "cm til\n"
    assert lines[1].split()[-10:] == [word for task in range(1, 6) for word in ("task", str(task))]
    assert lines[4].split() == ["til", "CM", "steps", "1", "1", "1", "1", "1"]
    bench.main("epoch", images="8x8", train_per_class=5, repeats=1)
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()[3:]] == ["cmlib", "bare"] and "without avalanche: " in err


@pytest.mark.slow
def test_ratios_reach_what_does_not_hang_on_the_machine():
    """CM's step neither grows with the tasks nor takes as long as the literal one; the loop itself costs next to nothing."""
    found = bench.measure("ratios", bench.Settings(repeats=10))["goals"]
    for name in ("overhead_vs_bare_8", "cil_step_growth", "cil_step_vs_literal", "til_passes"):
        assert found[name]["met"], found[name]


# -- what is impossible ---------------------------------------------------------------------------------------------------

IMPOSSIBLE = {
    "size": ({"images": "16x16"}, ["16x16", "32x32, 8x8"]),
    "method": ({"methods": ("cmm",)}, ["cmm", "Did you mean 'cm'"]),
    "scenario": ({"scenario": "dil"}, ["dil", "til, cil, both"]),
    "pair": ({"methods": ("ssil",), "scenario": "til"}, ["ssil", "scenario til"]),
    "repeats": ({"repeats": 0}, ["repeats=0", "at least 1"]),
    "threads": ({"threads": 0}, ["threads=0", "at least 1"]),
    "two kinds of data": ({"dataset": "digits", "images": "8x8"}, ["--dataset", "--images"]),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_settings_are_one_line(case):
    settings, words = IMPOSSIBLE[case]
    with pytest.raises(OptionError) as caught:
        bench.Settings(**settings)
    assert all(word in str(caught.value) for word in words) and "\n" not in str(caught.value)


def test_unknown_bench_and_device():
    with pytest.raises(OptionError, match="Did you mean 'epoch'"):
        bench.measure("epochs", bench.Settings())
    with pytest.raises(OptionError, match="tpu"):
        bench.measure("epoch", bench.Settings(device="tpu"))
    with pytest.raises(OptionError, match="support_size=10 leaves no"):
        bench.measure("methods", bench.Settings(**{**SMALL, "methods": ("cm",), "train_per_class": 5}))


def test_the_command_prints_one_object(capsys):
    arguments = ["bench", "methods", "--dataset", "digits", "--profile", "smoke", "--methods", "naive,er", "--scenario", "til"]
    with tiny_nets():
        code = cli.main([*arguments, "--repeats", "1", "--json"])
    out = capsys.readouterr().out
    assert code == 0 and {row["method"] for row in json.loads(out)["rows"]} == {"naive", "er"}
