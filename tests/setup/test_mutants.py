"""The list of planted defects (`make stress` plants them): none has rotted, and the harness tells a find from an accident."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from mutants import plant

DEFECTS = plant.load()
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_the_old_text_stands_there_once_and_the_new_one_is_python(defect):
    path = plant.ROOT / "cmlib" / defect.file
    compile(defect.planted(path.read_text(encoding="utf-8")), str(path), "exec")
    assert defect.tests and all((TESTS / line.split()[0].partition("::")[0]).is_file() for line in defect.tests)
    assert defect.wrong.endswith(".")


def test_names_are_unique_and_every_part_has_defects():
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 36
    files = {defect.file for defect in DEFECTS}
    methods = {f"methods/{name}.py" for name in ("cm", "er", "gem", "ewc", "oewc", "emr", "ssil", "cope", "cumulative", "base")}
    ground = ("centroids", "projectors", "scenario", "memory", "loop", "metrics", "nets", "store")
    upstairs = ("tables", "paper", "claim_rules")
    assert files >= methods | {f"{name}.py" for name in ground} | {f"reproduction/{name}.py" for name in upstairs}


@pytest.mark.parametrize(("text", "said"), [("one two", "stands 0 times"), ("a = 1\na = 1\n", "stands 2 times")])
def test_a_text_that_is_gone_is_an_error_that_names_the_defect(text, said):
    defect = plant.Defect("some-name", "some/file.py", "a = 1", "a = 2", "", ())
    with pytest.raises(
        ValueError, match=f"defect 'some-name': its old text {said} in cmlib/some/file.py; it must stand there once"
    ):
        defect.planted(text)
    with pytest.raises(ValueError, match="unchanged"):
        replace(defect, new="a = 1").planted("a = 1\n")


def test_an_unknown_name_is_one_line(capsys):
    assert plant.main(["no-such-defect"]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.startswith("unknown defect 'no-such-defect'; allowed: cm-centroids-detached, ")


TRIALS = """
import sys
from dataclasses import replace
sys.path.insert(0, "tests")
from mutants import plant

plant.prepare()
units = "not slow and not engines"
harm = plant.Defect("x", "metrics.py", "[-1].mean()", "[0].mean()", ".", ["methods/test_equations.py -k metrics_of_a_matrix"])
print(plant.sound([harm], units).word, plant.trial(harm, units).word, sep="\\n")
for change in ({"new": "[-1].mean( )"}, {"new": "[-1].mean("}, {"new": "[-1].nothing()"}, {"tests": ["methods/test_golden.py"]}):
    print(plant.trial(replace(harm, **change), units).word)
"""


@pytest.mark.slow
def test_a_find_is_a_failed_assertion_in_a_unit_test():
    """A change without harm is missed; one that breaks the import, a test that breaks, and no test at all are no finds."""
    made = subprocess.run([sys.executable, "-c", TRIALS], cwd=plant.ROOT, capture_output=True, text=True, check=True)
    assert made.stdout.splitlines() == ["passes", plant.FOUND, plant.MISSED, *[plant.BROKEN] * 3]
