"""`compare --fail-on`: exit code 10, the line that says why, JSON and Markdown. Verdicts are those of results with
known times."""

import json
import re

import pytest

from conftest import Program
from stored_results import QUICK, RECIPE, retimed, store


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The folder of one real comparison."""
    program = Program(tmp_path_factory.mktemp("real"))
    program.write("job.yaml", RECIPE)
    words = ("--with", "optimizer.momentum=0.5", "--repeats", "2", *QUICK)
    done = program("compare", "job.yaml", *words, "--run-dir", "out")
    assert done.code == 0, done
    return program.folder / "out"


@pytest.fixture
def result(real):
    return json.loads((real / "result.json").read_text())


@pytest.fixture
def stored(trainopt, real, result):
    """Stores a result in which B is `ratio` times as fast as A."""

    def make(ratio, verdict, blocks=60, change=lambda result: None):
        changed = retimed(result, ratio, blocks)
        changed["numerics"] = None
        change(changed)
        return store(trainopt.folder / f"stored-{ratio}-{blocks}", real, changed, verdict)

    return make


def last_line(result):
    return result.out.strip().splitlines()[-1]


def test_a_cost_ends_with_exit_code_10(trainopt, stored):
    folder = stored(0.94, "costs")
    assert trainopt("compare", "--show", folder).code == 0
    failed = trainopt("compare", "--show", folder, "--fail-on", "costs")
    assert failed.code == 10 and failed.err == "", failed
    assert failed.out.startswith("A  job.yaml") and "costs: B is at least" in failed.out  # the result comes first
    assert 5 < float(re.fullmatch(r"gate: failed: B costs at least ([\d.]+) %", last_line(failed))[1]) < 6.5, failed
    assert trainopt("compare", "--show", folder, "--fail-on", "costs:3%").code == 10
    passed = trainopt("compare", "--show", folder, "--fail-on", "costs:7%,inconclusive")
    assert passed.code == 0 and "gate: passed: B costs less than 7 %" in last_line(passed), passed
    assert trainopt("compare", "--show", folder, "--fail-on", "inconclusive").code == 0


def test_the_decision_as_json_and_markdown(trainopt, stored):
    folder = stored(0.94, "costs")
    answer = trainopt("compare", "--show", folder, "--fail-on", "costs:3%,inconclusive", "--json")
    assert answer.code == 10
    gate = answer.json()["gate"]
    assert gate["fail_on"] == ["costs:3%", "inconclusive"] and gate["failed"] is True
    assert gate["reason"].endswith("costs:3% allows less than 3 %")
    assert answer.json()["verdict"] == "costs"
    markdown = trainopt("compare", "--show", folder, "--fail-on", "costs:3%", "--markdown")
    assert markdown.code == 10 and last_line(markdown) == f"**gate: failed: {gate['reason']}**"
    assert "gate" not in trainopt("compare", "--show", folder, "--json").json()
    assert "gate" not in trainopt("compare", "--show", folder, "--markdown").out


@pytest.mark.parametrize("ratio, verdict", [(1.06, "pays"), (1.0, "no effect")])
def test_what_does_not_cost_passes(trainopt, stored, ratio, verdict):
    folder = stored(ratio, verdict)
    passed = trainopt("compare", "--show", folder, "--fail-on", "costs,inconclusive")
    assert passed.code == 0 and last_line(passed) == f"gate: passed: the verdict is {verdict}", passed
    passed = trainopt("compare", "--show", folder, "--fail-on", "costs:3%,inconclusive")
    assert passed.code == 0 and "B costs less than 3 %" in last_line(passed), passed


def test_inconclusive_passes_unless_it_is_named(trainopt, stored):
    folder = stored(0.9, "inconclusive", blocks=3)  # too few blocks for an interval
    passed = trainopt("compare", "--show", folder, "--fail-on", "costs")
    assert passed.code == 0, passed
    assert "gate: passed: inconclusive, and --fail-on does not name that; a --budget of about" in last_line(passed)
    failed = trainopt("compare", "--show", folder, "--fail-on", "costs:3%,inconclusive")
    assert failed.code == 10 and "whether B costs 3 % or more is open" in last_line(failed), failed


def test_numbers_that_disagree(trainopt, stored, result):
    def disagree(changed):
        changed["numerics"] = result["numerics"]
        changed["numerics"]["gradient_norm"]["value"] = 9.0
        changed["numerics"]["gradient_norm_ratio"] = 2.0

    folder = stored(1.06, "pays", change=disagree)
    failed = trainopt("compare", "--show", folder, "--fail-on", "costs,numbers")
    assert failed.code == 10 and "gate: failed: the numbers of B disagree: " in last_line(failed), failed
    passed = trainopt("compare", "--show", folder, "--fail-on", "costs")
    assert passed.code == 0 and "the numbers disagree, and --fail-on does not name that" in last_line(passed), passed


def test_a_measurement_is_judged_after_it_is_written(trainopt):
    trainopt.write("job.yaml", RECIPE)
    words = ("compare", "job.yaml", "--with", "optimizer.momentum=0.5", "--repeats", "2", *QUICK)
    failed = trainopt(*words, "--fail-on", "inconclusive", "--run-dir", "out")  # two blocks have no interval
    assert failed.code == 10 and last_line(failed).startswith("results are in"), failed
    assert "\ngate: failed: inconclusive" in failed.out
    assert json.loads((trainopt.folder / "out/result.json").read_text())["verdict"] == "inconclusive"
    assert "gate" not in (trainopt.folder / "out/report.md").read_text()
    passed = trainopt(*words, "--fail-on", "costs", "--json")
    assert passed.code == 0 and passed.json()["gate"]["failed"] is False, passed
    arms = passed.json()["arms"]
    assert arms["a"]["recipe"]["optimizer"]["momentum"] != arms["b"]["recipe"]["optimizer"]["momentum"] == 0.5


def test_several_arms_are_judged_against_the_first(trainopt):
    trainopt.write("job.yaml", RECIPE)
    each = "optimizer.momentum=0.9,0.5,0.1"
    words = ("compare", "job.yaml", "--each", each, "--repeats", "2", "--no-numbers", *QUICK)
    failed = trainopt(*words, "--fail-on", "costs,inconclusive", "--run-dir", "out")  # two rounds have no interval
    assert failed.code == 10, failed
    assert "\ngate: failed: 0.5 against 0.9: inconclusive; 0.1 against 0.9: inconclusive\n" in failed.out
    assert trainopt("compare", "--show", "out", "--fail-on", "costs,inconclusive").code == 10
    passed = trainopt("compare", "--show", "out", "--fail-on", "costs", "--json")
    assert passed.code == 0 and passed.json()["gate"]["failed"] is False, passed


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--fail-on", "pays"], "--fail-on takes costs, costs:3%, inconclusive and numbers"),
        (["--fail-on", ""], "--fail-on takes"),
        (["--fail-on", "costs:3"], "a fraction such as 3% or 0.03: costs:3"),
        (["--fail-on", "costs,costs:3%"], "the same twice"),
        (["--fail-on", "numbers", "--no-numbers"], "remove --no-numbers"),
    ],
)
def test_rules_that_are_refused(trainopt, words, expected):
    trainopt.write("job.yaml", RECIPE)
    result = trainopt.refused("compare", "job.yaml", "--with", "seed=1", *words, says=[expected])
    assert len(result.err.strip().splitlines()) == 1
    assert not (trainopt.folder / "runs").exists()


def test_what_has_no_verdict_is_refused(trainopt):
    trainopt.write("job.yaml", RECIPE)
    for name in ("one", "two"):
        assert trainopt("run", "job.yaml", "train.max_steps=4", "--quiet", "--run-dir", name).code == 0
    trainopt.refused("compare", "one", "two", "--fail-on", "costs", says=["did not take turns; compare their recipes"])
    ablation = trainopt.folder / "ablation"
    ablation.mkdir()
    (ablation / "result.json").write_text('{"switches": []}')
    (ablation / "report.md").write_text("a table\n")
    assert trainopt("compare", "--show", ablation).out == "a table\n"
    trainopt.refused("compare", "--show", ablation, "--fail-on", "costs", says=["an ablation has many"])
