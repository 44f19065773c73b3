"""Chapter 14: what its text says of the committed runs."""

import cmlib as cm
from cmlib.experiment import key
from cmlib.reproduction import paper
from cmlib.store import committed


def test_statistics_taken_apart_are_not_how_the_printed_numbers_of_er_were_made():
    plain = cm.Experiment("cifar10", "cil", "er", 0, "paper")
    ours = cm.paper.runs_like(committed(), plain)
    (apart,) = cm.paper.runs_like(committed(), plain.but(batch_norm_batches="by_task"))
    place = paper.Place("cifar10", "cil", "er", "", "accuracy")
    accuracy, bwt = (paper.printed_table(1)[place._replace(metric=one)].mean for one in ("accuracy", "bwt_final"))
    theirs = paper.just_learned(accuracy, bwt, 5)
    assert len(ours) >= 3 and min(run.accuracy for run in ours) > accuracy  # "with all its seeds"
    assert abs(sum(run.learning_accuracy for run in ours) / len(ours) - theirs) < 0.5  # "stand as high as the paper's"
    assert abs(theirs - 20 - apart.learning_accuracy) < 0.5  # "falls twenty points below"


def test_a_whole_batch_of_each_goes_part_of_the_way_to_the_printed_numbers_of_er():
    plain = cm.Experiment("cifar10", "cil", "er", 0, "paper")
    (ours,) = [run for run in cm.paper.runs_like(committed(), plain) if run.seed == 0]
    (double,) = cm.paper.runs_like(committed(), plain.but(batch_split="double"))
    place = paper.Place("cifar10", "cil", "er", "", "accuracy")
    theirs = {one: paper.printed_table(1)[place._replace(metric=one)].mean for one in ("accuracy", "bwt_final")}
    way = {one: (getattr(double, one) - getattr(ours, one)) / (mean - getattr(ours, one)) for one, mean in theirs.items()}
    assert double.seed == 0 and 0.5 < way["accuracy"] < 1 and 0 < way["bwt_final"] < 0.5
    (shares,) = cm.paper.runs_like(committed(), plain.but(batch_split="tasks"))
    assert abs(shares.accuracy - ours.accuracy) < 1 and abs(shares.bwt_final - ours.bwt_final) < 1


def test_the_gap_of_cm_in_til_is_forgetting_and_no_lambda_epochs_or_norm_accounts_for_it():
    runs = {key(run.experiment): run for run in committed()}
    whole = cm.Experiment("cifar10", "til", "cm", 0, "paper")
    fifth = whole.but(seed=1, train_per_class=1000)
    usual = fifth.but(epochs=5)
    readings = (whole, usual, usual.but(lam=1.0), fifth, usual.but(batch_norm="shared"))
    full, usual, strong, longer, shared = (runs[key(one.to_dict())] for one in readings)
    place = paper.Place("cifar10", "til", "cm", "", "accuracy")
    accuracy, bwt = (paper.printed_table(1)[place._replace(metric=one)].mean for one in ("accuracy", "bwt_final"))
    assert abs(full.learning_accuracy - paper.just_learned(accuracy, bwt, 5)) < 0.5
    assert full.bwt_final < bwt - 5 and full.accuracy < accuracy - 5  # "so it is forgetting that differs"
    assert strong.bwt_final > usual.bwt_final + 2 and strong.learning_accuracy < usual.learning_accuracy - 2
    assert abs(strong.accuracy - usual.accuracy) < 0.5  # "accuracy stays where it was"
    assert longer.learning_accuracy > usual.learning_accuracy + 2 and abs(longer.bwt_final - usual.bwt_final) < 1
    assert 1.5 < shared.bwt_final / usual.bwt_final < 1.8  # "forgets more than half as much again"
    assert max(run.bwt_final for run in (usual, strong, longer, shared)) < bwt - 2  # "none of the three accounts for" it


def test_the_seeds_of_cm_in_til_lie_far_apart():
    runs = {key(run.experiment): run for run in committed()}
    small = cm.Experiment("cifar10", "til", "cm", 0, "mini")
    zero, one, two = (runs[key(small.but(seed=seed).to_dict())] for seed in range(3))
    assert 2.8 < zero.bwt_final / one.bwt_final < 3.4 and zero.bwt_final / two.bwt_final > 5
    shuffled = runs[key(small.but(class_order="shuffled").to_dict())]
    assert 0.7 < shuffled.bwt_final / zero.bwt_final < 0.8  # "a quarter less"
    whole = runs[key(cm.Experiment("cifar10", "til", "cm", 0, "paper").to_dict())]
    for run in (zero, whole):  # "the largest part of that is its first task"
        lost = [run.R[j][j] - run.R[-1][j] for j in range(4)]
        assert lost[0] == max(lost) and 0.4 < lost[0] / sum(lost) < 0.7
        assert run.classes[0] == ["airplane", "automobile"]
    place = paper.Place("cifar10", "til", "cm", "", "bwt_final")
    assert round(paper.printed_table(1)[place].std, 1) == 0.7


def test_the_loss_of_the_text_brings_cm_in_cil_to_the_printed_number():
    runs = {key(run.experiment): run for run in committed()}
    plain = cm.Experiment("cifar10", "cil", "cm", 0, "paper")
    ours, both = (runs[key(one.to_dict())] for one in (plain, plain.but(cil_loss="both")))
    printed = paper.printed_table(1)[paper.Place("cifar10", "cil", "cm", "", "accuracy")]
    assert 4 * printed.std > 50 and 11 <= printed.mean - ours.accuracy < 12  # "a band of fifty points, and eleven below"
    assert abs(both.accuracy - printed.mean) < 2 and 9.5 < both.accuracy - ours.accuracy < 10.5
    er = cm.paper.runs_like(committed(), cm.Experiment("cifar10", "cil", "er", 0, "paper"))
    assert len(er) >= 3 and both.accuracy > max(run.accuracy for run in er)
    assert 11 <= both.learning_accuracy - ours.learning_accuracy < 12
    assert (round(ours.R[-1][-1]), round(both.R[-1][-1])) == (22, 58)
    others = [one for one in cm.METHODS if one not in ("cm", "emr") and "cil" in cm.METHODS[one].scenarios]
    found = {one: cm.paper.runs_like(committed(), plain.but(method=one)) for one in others}
    means = {one: sum(run.accuracy for run in made) / len(made) for one, made in found.items() if made}
    assert [one for one, mean in means.items() if mean > both.accuracy] == ["cumulative"]  # "right behind Cumulative"
