"""A killed rank: the launcher starts all ranks again, and the run goes on from its newest checkpoint."""

import shutil
import sys

import pytest

from conftest import PROGRAM, losses, records, saved_steps, summary
from ranks import FROM_FILES, RECIPE, SAVES, Ranks, free_port, kill_leftover_ranks, launch, node_of_two  # noqa: F401

STEPS = "train.max_steps=9"
SYNCHRONOUS = [*SAVES, "checkpoint.background=false"]  # complete before the next step begins


def with_restarts(trainopt, *arguments, launcher="trainopt launch", restarts=1, recipe=RECIPE):
    """Runs a job of two ranks whose launcher may start them again."""
    trainopt.write("tiny.yaml", recipe)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", 2]
    command = {
        "trainopt launch": [PROGRAM, "launch", "-n", 2, "--max-restarts", restarts, "--"],
        "torchrun": [*torchrun, "--master-port", free_port(), "--max-restarts", restarts, PROGRAM],
    }[launcher]
    (result,) = Ranks(trainopt).start([*command, "run", "tiny.yaml", STEPS, *arguments]).ended()
    return result


@pytest.mark.parametrize("launcher", ["trainopt launch", "torchrun"])
def test_goes_on_from_the_newest_checkpoint(trainopt, launcher):
    result = with_restarts(trainopt, "--run-dir", "out", *SYNCHRONOUS, "--inject", "kill@7:1", launcher=launcher)
    assert result.code == 0 and "restart 1 of 1: goes on after step 6" in result.err, result
    if launcher == "trainopt launch":
        assert "trainopt: rank 1 was killed by signal 9 (Killed); the others ended too; restart 1 of 1" in result.err
    out = trainopt.folder / "out"
    got = summary(out)
    assert (got["status"], got["resumed_from"], got["reason"]) == ("done", 6, "after 9 steps, with 1 restart"), got
    assert "done after 9 steps, with 1 restart" in result.out, result
    assert [row["step"] for row in records(out)] == list(range(1, 10))
    assert launch(trainopt, 2, "--run-dir", "uninterrupted", STEPS).code == 0
    assert losses(out) == losses(trainopt.folder / "uninterrupted")


def test_a_pipeline_goes_on_too_and_its_checkpoint_loads_into_one_rank(trainopt):
    stages = "parallel.pipeline={stages: 2, micro_batches: 2}"
    result = with_restarts(trainopt, "--run-dir", "out", *SYNCHRONOUS, stages, "--inject", "kill@7:1")
    assert result.code == 0 and "restart 1 of 1: goes on after step 6" in result.err, result
    assert launch(trainopt, 2, "--run-dir", "uninterrupted", STEPS, stages).code == 0
    assert losses(trainopt.folder / "out") == losses(trainopt.folder / "uninterrupted")
    newest = "checkpoint.resume=out/checkpoints/latest"
    alone = trainopt("run", "tiny.yaml", "train.max_steps=10", newest, "--run-dir", "alone")
    assert alone.code == 0 and "resumes after step 9" in alone.out, alone
    assert len(records(trainopt.folder / "alone")) == 1


def test_several_machines(trainopt):
    """The launcher of each machine starts its own ranks again, whichever machine had the killed one."""
    trainopt.write("tiny.yaml", RECIPE)
    job, here = Ranks(trainopt), f"127.0.0.1:{free_port()}"
    for node in (0, 1):
        options = [*node_of_two(node, 1), "--rendezvous", here, "--max-restarts", 1]
        words = ["run", "tiny.yaml", STEPS, "--run-dir", "out", *SYNCHRONOUS, "--inject", "kill@7:1"]
        job.start([PROGRAM, "launch", *options, "--", *words])
    results = job.ended()
    assert [result.code for result in results] == [0, 0], results
    assert "trainopt: rank 0 ended with exit code 7; restart 1 of 1" in results[0].err, results
    assert "trainopt: rank 1 was killed by signal 9 (Killed); restart 1 of 1" in results[1].err, results
    assert summary(trainopt.folder / "out")["resumed_from"] == 6


def test_begins_again_without_a_checkpoint(trainopt):
    result = with_restarts(trainopt, "--run-dir", "out", "--inject", "kill@3:0")
    assert result.code == 0 and "restart 1 of 1: begins again, because no checkpoint was saved" in result.err, result
    out = trainopt.folder / "out"
    assert summary(out)["resumed_from"] is None and [row["step"] for row in records(out)] == list(range(1, 10))


def test_begins_again_from_the_checkpoint_of_another_run(trainopt):
    """A rank was killed before the run directory had a checkpoint of its own."""
    trainopt.write("tiny.yaml", RECIPE)
    assert trainopt("run", "tiny.yaml", "--run-dir", "first", "train.max_steps=4").code == 0
    words = ["run", "tiny.yaml", STEPS, "--run-dir", "out", "checkpoint.resume=first/checkpoints/step-00000004"]
    assert trainopt(*words).code == 0
    out = trainopt.folder / "out"
    expected = losses(out)
    shutil.rmtree(out / "checkpoints")
    restarted = {"TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_MAX_RESTARTS": "1"}
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    result = trainopt(*words, env={**trainopt.environment(), **alone, **restarted})
    assert result.code == 0 and "restart 1 of 1: goes on after step 4" in result.err, result
    assert summary(out)["resumed_from"] == 4 and losses(out) == expected and saved_steps(out) == [4, 9]


def test_ends_when_no_restart_is_left(trainopt):
    result = with_restarts(trainopt, "--run-dir", "out", *SYNCHRONOUS, "--inject", "kill@7+:1")
    assert result.code == 7 and result.err.count("was killed by signal 9") == 2, result
    assert result.err.splitlines()[-1].endswith("the others ended too"), result


@pytest.mark.parametrize("recipe, code", [(RECIPE + "unknown: 1\n", 2), (FROM_FILES, 3)])
def test_what_would_fail_again_is_not_started_again(trainopt, recipe, code):
    result = with_restarts(trainopt, "--run-dir", "out", recipe=recipe)
    assert result.code == code and "restart" not in result.err, result


def test_needs_a_run_directory(trainopt):
    result = with_restarts(trainopt, restarts=3)
    assert result.code == 2 and "set run_dir (or --run-dir) with --max-restarts 3" in result.err, result
    assert not (trainopt.folder / "runs").exists(), result
