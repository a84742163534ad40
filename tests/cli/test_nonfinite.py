"""Non-finite steps and steps that run out of memory, injected with --inject."""

import json
import math

import pytest

from conftest import TINY, in_full, losses, records, saved_steps, summary
from ranks import kill_leftover_ranks, launch  # noqa: F401

SAVES = ["checkpoint.every_n_steps=2", "checkpoint.background=false"]


def run(trainopt, *faults, keys=(), folder="out"):
    trainopt.write("tiny.yaml", TINY)
    injected = [word for fault in faults for word in ("--inject", fault)]
    return trainopt("run", "tiny.yaml", *SAVES, *keys, *injected, "--run-dir", folder, "--quiet")


def events(folder):
    return [json.loads(line) for line in (folder / "nonfinite.jsonl").read_text().splitlines()]


def ended_badly(trainopt, result, code, step=4):
    """The run failed with one sentence; the checkpoint saved before is valid. Returns the reason."""
    out = trainopt.folder / "out"
    got = summary(out)
    assert (result.code, got["status"], got["exit_code"]) == (code, "failed", code), result
    assert [line for line in result.err.splitlines() if line.startswith("trainopt: ")] == [
        f"trainopt: {got['reason']}"
    ], result
    assert saved_steps(out) == [2] and trainopt("checkpoint", "verify", "out").code == 0
    assert [event["step"] for event in events(out)][-1] == step
    for event in events(out):
        assert len(set(event["sample_ids"])) == 8 and set(event["sample_ids"]) <= set(range(64)), event
    return got["reason"]


@pytest.mark.parametrize("fault, what", [("nan@4", "loss is not finite"), ("gradient@4", "gradients are not finite")])
def test_abort(trainopt, tiny_run, fault, what):
    # Gradients are checked only if their norm is clipped; the gradient fault leaves the loss finite.
    keys = ["train.max_grad_norm=1e6"] if fault.startswith("gradient") else []
    result = run(trainopt, fault, keys=keys)
    assert what in ended_badly(trainopt, result, 6), result
    assert events(trainopt.folder / "out")[0]["action"] == "the run ends"
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", "checkpoint.resume=auto", *keys, "--quiet")
    assert result.code == 0 and losses(trainopt.folder / "out") == losses(tiny_run[0]), result
    assert events(trainopt.folder / "out") == [], "it was removed with the records after step 2"


@pytest.mark.parametrize("fault", ["nan@4+", "gradient@4"])
def test_skip(trainopt, tiny_run, fault):
    result = run(trainopt, fault, keys=["train.on_nonfinite=skip"])
    out = trainopt.folder / "out"
    assert result.code == 0 and summary(out)["skipped_steps"] == 1, result
    rows = records(out)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6] and [row["nonfinite"] for row in rows] == [
        0,
        0,
        0,
        1,
        0,
        0,
    ]
    assert (rows[3]["loss"] == "NaN") == fault.startswith("nan") and all(
        math.isfinite(row["loss"]) for row in rows if row["step"] != 4
    )
    got = losses(out)
    assert got[:3] == losses(tiny_run[0])[:3] and got[4:] != losses(tiny_run[0])[4:]
    (event,) = events(out)
    assert (event["step"], event["action"]) == (4, "the step was skipped") and len(set(event["sample_ids"])) == 8
    assert "nonfinite.jsonl" in result.err, result


def test_a_skipped_step_changes_no_state(trainopt):
    """A skipped step changes neither weights nor momentum: they equal those of a run that stops before it."""
    run(trainopt, "nan@6", keys=["train.on_nonfinite=skip"])
    before, after = "out/checkpoints/step-00000004", "out/checkpoints/step-00000006"
    run(trainopt, keys=["train.max_steps=5", "train.on_nonfinite=skip"], folder="five")
    got = trainopt("checkpoint", "diff", "five/checkpoints/latest", after, "--json").json()
    assert got["tensors"] == {} and set(got["state"]) >= {"step", "samples", "skipped_steps"}, got
    assert trainopt("checkpoint", "diff", before, after, "--json").json()["tensors"] != {}


@pytest.mark.parametrize("strategy", ["none", *in_full("zero1"), "zero2", "zero3"])
def test_a_gradient_of_several_ranks_is_skipped(trainopt, strategy):
    """With shards, the fault is in what the ranks exchange, not in what the exchange overwrites."""
    trainopt.write("tiny.yaml", TINY)
    keys = [f"parallel.sharding_strategy={strategy}", "train.on_nonfinite=skip", "--inject", "gradient@4"]
    result = launch(trainopt, 2, "--run-dir", "out", *keys, "--quiet")
    out = trainopt.folder / "out"
    assert result.code == 0 and summary(out)["skipped_steps"] == 1, result
    assert [row["nonfinite"] for row in records(out)] == [0, 0, 0, 1, 0, 0]
    assert all(math.isfinite(loss) for loss in losses(out))


def test_the_number_of_skipped_steps_is_limited(trainopt):
    reason = ended_badly(
        trainopt, run(trainopt, "nan@3", "nan@4", keys=["train.on_nonfinite=skip", "train.max_skipped_steps=1"]), 6
    )
    assert "train.max_skipped_steps" in reason
    assert [event["action"] for event in events(trainopt.folder / "out")] == ["the step was skipped", "the run ends"]


@pytest.mark.parametrize(
    "fault, code, what",
    [
        ("nan@4", 9, "suspected hardware fault"),
        ("gradient@4", 9, "suspected hardware fault"),
        ("nan@4+", 6, "suspect data or recipe, not hardware"),
    ],
)
def test_rerun(trainopt, fault, code, what):
    reason = ended_badly(trainopt, run(trainopt, fault, keys=["train.on_nonfinite=rerun"]), code)
    assert what in reason
    steps = events(trainopt.folder / "out")
    assert steps[0]["action"] == "the step is repeated" and all(
        step["sample_ids"] == steps[0]["sample_ids"] for step in steps
    )


def test_a_learning_rate_that_overflows(trainopt):
    for policy in ("abort", "skip", "rerun"):
        result = run(
            trainopt, keys=["optimizer.lr=1e30", "train.max_steps=50", f"train.on_nonfinite={policy}"], folder=policy
        )
        assert result.code == 6 and summary(trainopt.folder / policy)["status"] == "failed", (policy, result)
        if (trainopt.folder / policy / "checkpoints").exists():
            assert trainopt("checkpoint", "verify", policy).code == 0, policy


def test_out_of_memory_once(trainopt, tiny_run):
    result = run(trainopt, "oom@3", keys=["train.max_steps=5"])
    out = trainopt.folder / "out"
    assert (
        result.code == 0
        and "out of memory in step 3" in result.err
        and "4 samples at a time instead of 8" in result.err
    ), result
    assert summary(out)["micro_split"] == 2 and [row["samples"] for row in records(out)] == [8, 16, 24, 32, 40]
    assert losses(out)[:2] == losses(tiny_run[0])[:2] and losses(out) == pytest.approx(
        losses(tiny_run[0])[:5], rel=1e-5
    )
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", "checkpoint.resume=auto", "--quiet")
    assert result.code == 0 and summary(out)["micro_split"] == 2, result


def test_out_of_memory_every_time(trainopt):
    result = run(trainopt, "oom@3+")
    got = summary(trainopt.folder / "out")
    assert (result.code, got["status"], got["exit_code"]) == (5, "failed", 5), result
    for word in ("out of memory with 1 sample", "model", "gradients", "optimizer"):
        assert word in got["reason"], got
    assert result.err.count("out of memory in step 3") == 3, "8, 4 and 2 samples at a time"
    assert saved_steps(trainopt.folder / "out") == [2] and trainopt("checkpoint", "verify", "out").code == 0


def test_invalid_faults_are_rejected(trainopt):
    trainopt.write("tiny.yaml", TINY)
    for text in ("nan@0", "nan@1.5", "nan@3++", "fire@3"):
        trainopt.refused("run", "tiny.yaml", "--run-dir", "out", "--inject", text, says=["--inject"])
    assert not (trainopt.folder / "out").exists()


@pytest.mark.parametrize("words", [["--inject", "nan@4"], ["--inject=nan@4"]])
def test_an_override_may_follow_a_fault(trainopt, words):
    trainopt.write("tiny.yaml", TINY)
    assert trainopt("run", "tiny.yaml", "--run-dir", "out", *words, "train.max_steps=3", "--quiet").code == 0
