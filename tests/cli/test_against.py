"""`compare --against`: a fresh measurement against a stored one. Stored times are about a million times those of this
machine, or a millionth, so that no verdict depends on its speed."""

import csv
import json
import math
import signal

import pytest

from conftest import Program
from stored_results import QUICK, RECIPE, retimed, store

FEW = ("--repeats", "3", *QUICK)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The folder of one real comparison in pairs of processes."""
    program = Program(tmp_path_factory.mktemp("real"))
    program.write("job.yaml", RECIPE)
    words = ("--with", "optimizer.momentum=0.5", "--own-processes", "--repeats", "3", "--no-numbers", *QUICK)
    done = program("compare", "job.yaml", *words, "--run-dir", "out")
    assert done.code == 0, done
    return program.folder / "out"


@pytest.fixture
def stored(trainopt, real):
    """Stores a result of `pairs` pairs of processes, in which A takes this time per sample."""
    trainopt.write("job.yaml", RECIPE)

    def make(seconds_per_sample, name="stored", pairs=4, blocks_per_pair=3, change=lambda result: None):
        result = json.loads((real / "result.json").read_text())
        blocks = pairs * (blocks_per_pair or 3)
        result = retimed(result, 1.0, blocks, blocks_per_pair, seconds_per_sample)
        change(result)
        verdict = "inconclusive" if blocks_per_pair and pairs < 6 else "no effect"
        return store(trainopt.folder / name, real, result, verdict)

    return make


def test_a_slower_job_costs_and_a_faster_one_pays(trainopt, stored):
    fast, slow = stored(1e-9, "fast"), stored(1e3, "slow")
    costs = trainopt("compare", "job.yaml", "--against", fast, *FEW, "--fail-on", "costs:3%", "--run-dir", "out")
    assert costs.code == 10, costs
    assert "\ncosts: B is at least" in costs.out and "\ngate: failed: B costs at least" in costs.out
    assert "A was measured earlier, so what has changed on the machine since counts too; ±" in costs.out
    assert "where 3 pairs of processes that took turns would have ±" in costs.out
    assert f"stored as B of {fast}" in costs.out or f"stored as A of {fast}" in costs.out
    pays = trainopt("compare", "job.yaml", "--against", slow / "result.json", *FEW, "--fail-on", "costs:3%", "--json")
    assert pays.code == 0, pays
    answer = pays.json()
    assert answer["verdict"] == "pays" and answer["gate"]["failed"] is False and answer["paired"] is False
    assert answer["processes"] == 3 and answer["half_width"] > answer["paired_half_width"] > 0
    shown = trainopt("compare", "--show", "out", "--fail-on", "costs:3%")
    assert shown.code == 10 and shown.out.strip() == costs.out[: costs.out.index("\nresults are in")].strip()
    assert trainopt("compare", "--show", "out", "--markdown").out == (trainopt.folder / "out/report.md").read_text()


def test_the_interval_is_welchs_over_processes(trainopt, stored):
    """Recomputed from turns.csv and the stored turns."""
    stats = pytest.importorskip("scipy.stats")
    folder = stored(1e-3)
    done = trainopt("compare", "job.yaml", "--against", folder, *FEW, "--run-dir", "out")
    assert done.code == 0, done
    answer = json.loads((trainopt.folder / "out/result.json").read_text())
    times = {}
    for turn in csv.DictReader((trainopt.folder / "out/turns.csv").open()):
        sums = times.setdefault(turn["process"], [0.0, 0])
        sums[0] += float(turn["seconds"])
        sums[1] += int(turn["samples"])
    now = [math.log(samples / seconds) for seconds, samples in times.values()]
    then = [-math.log(seconds) for seconds in answer["arms"]["a"]["seconds_per_sample"]]
    assert len(now) == 3 and len(then) == 4
    interval = stats.ttest_ind(now, then, equal_var=False).confidence_interval(0.95)
    assert math.isclose(answer["interval"][0], math.exp(interval.low), rel_tol=1e-5)
    assert math.isclose(answer["interval"][1], math.exp(interval.high), rel_tol=1e-5)
    assert math.isclose(answer["ratio"], math.exp(sum(now) / 3 - sum(then) / 4), rel_tol=1e-6)


@pytest.mark.full
def test_the_arm_with_the_same_recipe_is_chosen(trainopt, stored):
    folder = stored(1e-3)
    a = trainopt("compare", "job.yaml", "--against", folder, *FEW, "--json").json()
    assert a["arms"]["a"]["arm"] == "A" and not any("another recipe" in warning for warning in a["warnings"])
    b = trainopt("compare", "job.yaml", "optimizer.momentum=0.5", "--against", folder, *FEW, "--json").json()
    assert b["arms"]["a"]["arm"] == "B" and not any("another recipe" in warning for warning in b["warnings"])
    other = trainopt("compare", "job.yaml", "data.batch_size=16", "--against", folder, *FEW, "--json").json()
    assert other["arms"]["a"]["arm"] == "B"
    warning = next(warning for warning in other["warnings"] if "another recipe" in warning)
    assert "data.batch_size" in warning and "optimizer.momentum" in warning
    assert {"what": "data.batch_size", "then": "8", "now": "16", "of_machine": False} in other["differences"]


def test_a_result_is_the_next_baseline(trainopt, stored):
    """Twice: against a comparison, against that result, and against that one's."""
    before = stored(1e-9)
    codes = []
    for name in ("first", "second", "third"):
        words = ("--against", before, *FEW, "--run-dir", name, "--fail-on", "costs")
        codes.append(trainopt("compare", "job.yaml", *words).code)
        before = name
    assert codes[0] == 10 and set(codes[1:]) <= {0, 10}  # whether one measurement differs from the next is chance
    second = json.loads((trainopt.folder / "second/result.json").read_text())
    third = json.loads((trainopt.folder / "third/result.json").read_text())
    assert third["arms"]["a"]["file"] == "second" and third["arms"]["a"]["arm"] == "B"
    assert third["arms"]["a"]["samples_per_s"] == second["arms"]["b"]["samples_per_s"]
    assert third["arms"]["a"]["pairing"] == second["arms"]["a"]["pairing"]  # of the comparison at the beginning
    assert third["paired_half_width"] and third["differences"] == []


def test_arms_that_shared_a_process_decide_nothing(trainopt, stored):
    folder = stored(1e-9, blocks_per_pair=None, pairs=40)
    passed = trainopt("compare", "job.yaml", "--against", folder, *FEW, "--fail-on", "costs:3%")
    assert passed.code == 0, passed
    assert "inconclusive: B against A is -" in passed.out
    assert "shared one process, which is one measurement; store a result taken with --own-processes" in passed.out
    assert "gate: passed: inconclusive" in passed.out
    words = ("--against", folder, *FEW, "--fail-on", "costs:3%,inconclusive")
    assert trainopt("compare", "job.yaml", *words).code == 10


def test_another_machine_decides_nothing(trainopt, stored):
    folder = stored(1e-9)
    environment = json.loads((folder / "environment.json").read_text())
    environment["cpu"]["model"] = "Abacus 9000"
    environment["libtorch"] = "1.0"
    (folder / "environment.json").write_text(json.dumps(environment))
    result = trainopt("compare", "job.yaml", "--against", folder, *FEW, "--fail-on", "costs")
    assert result.code == 0 and "cpu.model: Abacus 9000 then" in result.out, result
    assert "libtorch: 1.0 then" in result.out and "the stored result is of another machine" in result.out
    (folder / "environment.json").unlink()
    result = trainopt("compare", "job.yaml", "--against", folder, *FEW, "--fail-on", "costs")
    assert result.code == 10 and "no environment.json" in result.out, result


def test_a_result_of_an_earlier_version_has_no_recipe(trainopt, stored):
    def forget(result):
        for arm in result["arms"].values():
            del arm["recipe"]

    answer = trainopt("compare", "job.yaml", "--against", stored(1e-9, change=forget), *FEW, "--json").json()
    assert answer["arms"]["a"]["arm"] == "B" and answer["verdict"] == "costs"
    assert any("does not say which recipe" in warning for warning in answer["warnings"])


def test_another_number_of_ranks_is_refused(trainopt, stored):
    def two_ranks(result):
        for arm in result["arms"].values():
            arm["plan"]["data"]["ranks"] = 2

    folder = stored(1e-3, change=two_ranks)
    trainopt.refused("compare", "job.yaml", "--against", folder, *FEW, says=["ran on 2 ranks and this job has 1"])
    assert not (trainopt.folder / "runs").exists()


def test_several_ranks(trainopt, stored):
    """The stored arm, too, must be of two ranks."""

    def two_ranks(result):
        for arm in result["arms"].values():
            arm["plan"]["data"]["ranks"] = 2

    folder = stored(1e-9, change=two_ranks)
    words = ("compare", "job.yaml", "--against", folder, *FEW, "--fail-on", "costs", "--run-dir", "out")
    done = trainopt("launch", "-n", "2", "--", *words)
    assert done.code == 10 and done.out.count("gate: failed: B costs at least") == 1, done
    arm = json.loads((trainopt.folder / "out/result.json").read_text())["arms"]["b"]
    assert arm["plan"]["data"]["ranks"] == 2 and len(arm["ranks"]) == 2


def test_damaged_and_foreign_files(trainopt, stored):
    folder = stored(1e-3)
    path = folder / "result.json"
    whole = json.loads(path.read_text())

    def refused(text, says):
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        result = trainopt.refused("compare", "job.yaml", "--against", folder, *FEW, code=3, says=["--against", says])
        assert len(result.err.strip().splitlines()) == 1 and "json.exception" not in result.err, result

    refused("{", "not JSON")
    refused("[]", "result.json: it is not a JSON object")
    refused({"kind": 3}, "result.json: its kind is not a word: 3")
    refused({"steps": 3}, "not a comparison's result.json")
    refused({"switches": []}, "an ablation")
    refused({"each": {}}, "a result of --each")
    refused(whole | {"ratio": 2.0}, "do not give the recorded result")
    refused(whole | {"samples": []}, "no blocks")
    refused(whole | {"schema_version": 99}, "schema_version 99")
    path.unlink()
    trainopt.refused("compare", "job.yaml", "--against", folder, *FEW, code=3, says=["has no result.json"])
    trainopt.refused("compare", "job.yaml", "--against", "gone.json", *FEW, code=3, says=["has no gone.json"])
    assert not (trainopt.folder / "runs").exists()


def test_a_damaged_result_of_against(trainopt, stored):
    assert trainopt("compare", "job.yaml", "--against", stored(1e-9), *FEW, "--run-dir", "out").code == 0
    path = trainopt.folder / "out/result.json"
    whole = json.loads(path.read_text())
    stored_without_time = json.loads(path.read_text())
    stored_without_time["arms"]["a"]["seconds_per_sample"][0] = 0
    for change, says in (
        (whole | {"ratio": 2.0}, "do not give the recorded result"),
        (whole | {"samples": []}, "no processes"),
        (whole | {"schema_version": 1}, "schema_version 1"),
        (whole | {"arms": {}}, "not a result of compare --against"),
        (stored_without_time, "without time"),
    ):
        path.write_text(json.dumps(change))
        trainopt.refused("compare", "--show", "out", code=3, says=["out: ", says])
        trainopt.refused("compare", "job.yaml", "--against", "out", *FEW, code=3, says=["--against out: ", says])


def test_a_budget_and_a_signal_keep_what_was_measured(trainopt, stored):
    folder = stored(1e-9, pairs=40)
    answer = trainopt("compare", "job.yaml", "--against", folder, *QUICK, "--budget", "1ms", "--json").json()
    assert answer["ended"] == "budget" and answer["processes"] == 1 and answer["verdict"] == "inconclusive"
    assert "only one process was measured" in answer["no_verdict"]
    words = ("--against", folder, "--repeats", "100000", *QUICK, "--run-dir", "out")
    process = trainopt.start("compare", "job.yaml", *words)
    for line in process.stderr:
        if "2 processes" in line:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130 and "until it was stopped" in out, err
    assert json.loads((trainopt.folder / "out/result.json").read_text())["ended"] == "stopped"


@pytest.mark.parametrize(
    "words, expected",
    [
        (["job.yaml", "--with", "seed=1"], "--against measures one recipe"),
        (["job.yaml", "--without", "amp"], "--against measures one recipe"),
        (["job.yaml"], "--against measures one recipe"),
        (["--fail-on", "numbers"], "--against compares speed alone"),
        (["--own-processes"], "--own-processes"),
        (["--no-noise-floor"], "--no-noise-floor"),
        (["--precision", "1%"], "--precision"),
        (["--fail-on", "cost"], "--fail-on takes"),
        (["optimizer.lr=fast"], "optimizer.lr"),
    ],
)
def test_refused(trainopt, stored, words, expected):
    folder = stored(1e-3)
    result = trainopt("compare", "job.yaml", "--against", folder, *words)
    assert result.code == 2 and expected in result.err, result
    assert not (trainopt.folder / "runs").exists()
