"""`compare`, `ablate` and ceilings of jobs with several ranks, under every launcher. Sizes are tiny, and speeds are not
asserted."""

import csv
import json
import os
import signal

import pytest

from conftest import PROGRAM, Program
from ranks import (
    STARTERS,
    Ranks,
    free_port,
    kill_leftover_ranks,  # noqa: F401
    launch,
    one_message,
    process_of,
    start_with,
    with_launchers,
)

FEW = ("--turn", "5ms", "bench.warmup_steps=3")
QUICK = ("--repeats", "4", *FEW)
# One step a turn, so that the number of a step says in which block it is.
STEP_BY_STEP = ("--repeats", "1000000", "--turn", "0.001ms", "bench.warmup_steps=3", "--no-numbers")
CEILINGS = ["data", "optimizer", "logging", "communication"]
TENSORS = 4  # weights and biases of two linear layers

JOB = """\
name: job
device: cpu
num_threads: 1
model: {name: mlp, num_classes: 10, hidden: [32]}
data: {dataset: fake_cifar10, size: 64, batch_size: 8, transforms: [{resize: 8}, {normalize: {mean: 0.5, std: 0.5}}]}
optimizer: {name: sgd, lr: 0.01, momentum: 0.9}
optimizations: {set_to_none: true}
parallel: {timeout: 60s}
"""


@pytest.fixture
def job(trainopt):
    trainopt.write("job.yaml", JOB)
    return trainopt


def stored(trainopt, folder="out"):
    return json.loads((trainopt.folder / folder / "result.json").read_text())


def shown(trainopt, folder="out"):
    """What --show, on one rank, reads from the folder."""
    result = trainopt("compare", "--show", folder, "--json")
    assert result.code == 0, result
    return result.json()


def compare(trainopt, *words, ranks=2, code=0):
    result = launch(trainopt, ranks, *words, "--run-dir", "out", recipe="job.yaml", command="compare")
    assert result.code == code, result
    return result


def shares(answer, arm, name):
    return [rank[name] for rank in answer["arms"][arm]["ranks"]]


# Launchers


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    """The orders of the turns that --coins 7 gives on one rank."""
    program = Program(tmp_path_factory.mktemp("one"))
    program.write("job.yaml", JOB)
    keys = ("--coins", "7", "--no-numbers", *QUICK, "--run-dir", "out")
    result = program("compare", "job.yaml", "--with", "optimizer.lr=0.02", *keys)
    assert result.code == 0, result
    return [block["order"] for block in stored(program)["samples"]]


@pytest.mark.parametrize("launcher", STARTERS)
def test_all_launchers_give_one_result(job, orders, launcher):
    words = ["job.yaml", "--with", "parallel.sharding_strategy=zero2", "--coins", "7", *QUICK, "--run-dir", "out"]
    (result,) = start_with(Ranks(job), [*STARTERS[launcher], "compare", *words], with_launchers(job)).ended()
    assert result.code == 0 and "trainopt: " not in result.err, result
    assert result.out.count("B against A is") + result.out.count("measured") >= 1, result
    assert result.out.count("results are in") == result.out.count("noise floor") == 1, result

    out, answer = job.folder / "out", stored(job)
    assert {path.name for path in out.iterdir()} >= {"result.json", "report.md", "turns.csv", "environment.json"}
    assert not list(out.rglob("*.safetensors")) and not (job.folder / "runs").exists()
    assert len(list(csv.DictReader((out / "turns.csv").open()))) == 16
    assert answer["ended"] == "repeats" and [block["order"] for block in answer["samples"]] == orders
    assert answer["numerics"]["agree"] is True and answer["noise_floor"]["blocks"] == 8
    parameters = (192 * 32 + 32 + 32 * 10 + 10) * 4 / 2**20
    for arm, state in (("a", 3), ("b", 2)):  # parameters, gradients, momentum; the latter two halved
        assert shares(answer, arm, "state_mib") == pytest.approx([state * parameters] * 2, rel=0.05)
        assert shares(answer, arm, "sent_mib") == pytest.approx([parameters] * 2, rel=0.05)
        assert answer["arms"][arm]["step_samples"] == 16
    assert shown(job)["ratio"] == answer["ratio"]


def test_the_answer_of_rank_0_is_one_json_object(job):
    answer = compare(job, "--with", "optimizer.lr=0.02", *QUICK, "--json", "--quiet").json()
    assert answer["blocks"] == 4 and len(answer["arms"]["a"]["ranks"]) == 2 and answer["ratio"] == stored(job)["ratio"]


def test_more_ranks(job):
    compare(job, "--with", "parallel.sharding_strategy=zero3", *QUICK, "data.batch_size=4", "--quiet", ranks=3)
    answer = stored(job)
    assert len(shares(answer, "b", "state_mib")) == 3 and answer["numerics"]["agree"] is True
    assert sum(shares(answer, "b", "state_mib")) == pytest.approx(shares(answer, "a", "state_mib")[0], rel=0.05)


# Arms


@pytest.mark.parametrize(
    "change",
    [
        ["parallel.sharding_strategy=zero1"],
        ["parallel.sharding_strategy=zero3"],
        ["parallel.overlap_comm=false"],
        ["parallel.gradient_dtype=bfloat16"],
        ["data.batch_size=4", "train.gradient_accumulation_steps=2"],
    ],
    ids=lambda change: change[0],
)
def test_correct_changes_agree(job, change):
    with_each = [word for key in change for word in ("--with", key)]
    compare(job, *with_each, *QUICK, "--quiet")
    answer = stored(job)
    assert answer["numerics"]["agree"] is True, answer["numerics"]
    assert answer["numerics"]["gradient_cosine"] > 0.99 and answer["numerics"]["update_cosine"] > 0.99
    assert all(mib > 0 for arm in "ab" for mib in shares(answer, arm, "sent_mib"))


@pytest.mark.parametrize("strategy", ["none", "zero1", "zero2", "zero3"])
def test_a_wrong_rate_is_seen_with_every_strategy(job, strategy):
    """Gradients and updates are those of the complete model, whichever rank holds them."""
    compare(
        job,
        *("--with", "optimizer.lr=0.02", "--with", f"parallel.sharding_strategy={strategy}"),
        *QUICK,
        "--quiet",
    )
    found = stored(job)["numerics"]
    assert found["agree"] is False and found["tensors"]["gradients"]["tensors"] == TENSORS, found
    assert found["gradient_norm_ratio"] == pytest.approx(1, abs=1e-3) and found["gradient_cosine"] > 0.9999, found
    assert found["update_norm_ratio"] == pytest.approx(2, rel=0.05), found
    assert found["tensors"]["updates"]["beyond"] >= TENSORS, found


def test_stale_updates_are_an_arm(job):
    """Gradients of the step before are another algorithm, and the numbers say so."""
    compare(job, "--with", "parallel.async_updates.staleness=1", *QUICK, "--quiet")
    answer = stored(job)
    assert answer["numerics"]["agree"] is False and answer["arms"]["b"]["samples_per_s"] > 0


def test_arms_in_processes_of_their_own(job):
    compare(job, "--with", "parallel.sharding_strategy=zero3", "--own-processes", "--repeats", "2", *FEW, "--quiet")
    answer = stored(job)
    assert answer["own_processes"] is True and answer["pairs"] == 2 and answer["numerics"]["agree"] is True
    for arm in "ab":
        memory = shares(answer, arm, "peak_memory_mib")
        assert len(memory) == 2 and all(mib > 0 for mib in memory)
        assert answer["arms"][arm]["peak_memory_mib"] == pytest.approx(max(memory))


def test_each_strategy_in_one_comparison(job):
    compare(job, "--each", "parallel.sharding_strategy=none,zero1,zero2,zero3", *QUICK, "--quiet")
    answer = stored(job)
    arms = answer["arms"]
    assert len(arms) == 4 and all(len(arm["ranks"]) == 2 for arm in arms), arms
    state = [arm["ranks"][0]["state_mib"] for arm in arms]
    assert state == sorted(state, reverse=True) and state[3] == pytest.approx(state[0] / 2, rel=0.05)
    sent = [arm["ranks"][0]["sent_mib"] for arm in arms]
    assert sent[1:3] == pytest.approx([sent[0]] * 2, rel=0.05) and sent[3] == pytest.approx(1.5 * sent[0], rel=0.05)


def test_ablate_has_a_row_for_the_strategy(job):
    keys = ("data.batch_size=32", "optimizations.set_to_none=false", "parallel.sharding_strategy=zero2")
    how = ("--repeats", "2", *FEW, "--json", "--quiet", "--run-dir", "out")
    result = launch(job, 2, *keys, *how, recipe="job.yaml", command="ablate")
    assert result.code == 0, result
    answer = result.json()
    assert answer["total"]["ratio"] > 0 and answer["total"]["pairs"] == 2
    (row,) = answer["switches"]
    assert row["name"] == "parallel.sharding_strategy" and row["numbers_agree"] is True and row["memory_mib"], row
    assert [ceiling["without"] for ceiling in answer["ceilings"]] == CEILINGS
    assert all(ceiling["ratio"] for ceiling in answer["ceilings"])
    assert "free communication" in (job.folder / "out/report.md").read_text()


def test_ablate_leaves_out_how_gradients_are_exchanged_by_default(job):
    """Every job with several ranks has an entry for it in its plan."""
    keys = ("data.batch_size=32", "optimizations.set_to_none=false", "--budget", "5s")
    result = launch(job, 2, *keys, recipe="job.yaml", command="ablate")
    assert result.code == 2 and "nothing to ablate" in one_message(result), result


def test_ceilings_include_communication(job):
    keys = ("train.max_steps=8", "--ceilings", *QUICK, "--run-dir", "out")
    result = launch(job, 2, *keys, recipe="job.yaml")
    assert result.code == 0 and result.out.count("free communication") == 1, result
    ceilings = json.loads((job.folder / "out/ceilings.json").read_text())["ceilings"]
    assert [row["without"] for row in ceilings] == CEILINGS
    assert all(row["ratio"] for row in ceilings)


# Signals and failures


# The job against itself with another name, until something ends it.
ENDLESS = ["job.yaml", "--with", "name=other", *STEP_BY_STEP, "--run-dir", "out", "--quiet"]


def endless(job, *words):
    return Ranks(job).start([PROGRAM, "launch", "-n", "2", "--", "compare", *ENDLESS, *words])


def blocks_so_far(job):
    """The blocks in the folder of a comparison that is being measured."""
    try:
        return len(stored(job)["samples"])
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("apart", [[], ["--own-processes"]], ids=["together", "apart"])
def test_a_signal_keeps_what_was_measured(job, apart):
    running = endless(job, *apart)
    running.until(lambda: blocks_so_far(job) >= 1)
    running.processes[0].send_signal(signal.SIGINT)
    (result,) = running.ended()
    assert result.code == 130 and result.out.count("until it was stopped") == 1, result
    assert stored(job)["ended"] == "stopped" and shown(job)["blocks"] == stored(job)["blocks"] >= 1


def failed_with(job, results, code, says):
    """All ranks end with the code and the one message of such a run, and what was measured is kept."""
    assert {result.code for result in results} == {code} and says in one_message(*results), results
    answer = shown(job)
    assert answer["ended"] == "failed" and answer["blocks"] == stored(job)["blocks"] >= 1, answer
    assert says.removeprefix("rank 1: ") in stored(job)["failure"]
    assert results[0].out.count("until an arm failed") == results[0].out.count("results are in") == 1, results


@pytest.mark.parametrize(
    "fault, code, says", [("kill@30:1", 7, "rank 1 is gone"), ("oom@30+:1", 5, "rank 1: out of memory")]
)
def test_a_failing_rank_leaves_what_was_measured(job, fault, code, says):
    failed_with(job, endless(job, "--inject", fault).ended(), code, says)


def test_a_rank_that_hangs_leaves_what_was_measured(job):
    """Started one by one, so that the other rank's end does not end it."""
    ranks, port = Ranks(job), free_port()
    for rank in (0, 1):
        ranks.rank(rank, 2, "compare", *ENDLESS, "--inject", "hang@30:1", "parallel.timeout=12s", port=port)
    ranks.processes[0].wait(180)
    ranks.processes[1].kill()
    first, _ = ranks.ended()
    failed_with(job, [first], 7, "rank 1 is alive but did not enter a collective within 12 s")


def test_a_killed_rank_0_leaves_what_the_last_look_wrote(job):
    running = endless(job)
    running.until(lambda: blocks_so_far(job) >= 1)
    os.kill(process_of(running, 0), signal.SIGKILL)
    (result,) = running.ended()
    assert result.code == 7 and "rank 0 was killed by signal 9" in result.err, result
    assert shown(job)["blocks"] >= 1


@pytest.mark.parametrize(
    "words, says",
    [
        (["--with", "sead=1"], "did you mean 'seed'"),
        (["--with", "parallel.sharding_strategy=zero4"], "zero3"),
        (["--with", "optimizations.set_to_none=true"], "has these values already"),
        (["--with", "optimizer.lr=1", "--inject", "kill@3:2"], "rank"),
        (["--with", "data.size=8"], "8 samples, 16 a step"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_mistake_is_found_before_anything_is_created(job, words, says):
    """Each rank says so at most once, as in a run."""
    result = compare(job, *words, code=2)
    messages = [line for line in result.err.splitlines() if line.startswith("[")]
    assert 1 <= len(messages) <= 2 and all(says in message for message in messages), result
    assert result.out == "" and not (job.folder / "out").exists()


def test_finished_results_are_read_by_one_rank(job):
    result = launch(job, 2, "--show", "out", recipe="--quiet", command="compare")
    assert result.code == 2 and "--show" in result.err and result.out == "", result
