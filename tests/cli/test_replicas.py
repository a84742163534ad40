"""parallel.check_replicas_every: a bit that flips in one rank's weights ends the job, and nothing else does."""

import json

import pytest

from conftest import saved_steps, summary
from ranks import RECIPE, SOON, kill_leftover_ranks, launch, launched, one_message  # noqa: F401

RESNET = [
    "model={name: resnet18, num_classes: 10, stem: cifar, hidden: null}",
    "data.batch_size=4",
    "train.max_steps=4",
]


def fault_of(trainopt, ranks, *arguments):
    """The one message of a job that ends with exit code 9."""
    trainopt.write("tiny.yaml", RECIPE)
    (result,) = launched(trainopt, ranks, "--run-dir", "out", SOON, *arguments).ended()
    assert result.code == 9, result
    got = summary(trainopt.folder / "out")
    message = one_message(result)
    assert (got["status"], got["exit_code"]) == ("failed", 9) and got["reason"] in message, (got, message)
    return message, got


@pytest.mark.parametrize("strategy", ["none", "zero1", "zero2"])
def test_a_flipped_bit_is_found_and_the_rank_named(trainopt, strategy):
    message, got = fault_of(
        trainopt,
        3,
        f"parallel.sharding_strategy={strategy}",
        "parallel.check_replicas_every=1",
        "data.batch_size=4",
        "--inject",
        "bit_flip@3:2",
    )
    assert "the weights of rank 2 differ from those of the other 2 after step 3" in message
    assert "resume from a checkpoint of step 2 or before" in message
    assert "first difference in layers.0.weight, checksums ranks 0, 1 " in message
    assert got["steps"] == 3 and got["replica_checks"]["passed"] == 2, got


def test_two_ranks_are_both_shown_and_no_checkpoint_has_the_difference(trainopt):
    """The weight that was changed stays changed, and the next comparison is two steps later."""
    message, got = fault_of(
        trainopt,
        2,
        "parallel.check_replicas_every=2",
        "checkpoint={every_n_steps: 2, background: false}",
        "train.max_steps=20",
        "--inject",
        "bit_flip@3",
    )
    assert "the weights of 2 ranks differ after step 4, and no majority shows which are right" in message
    assert "checksums rank 0 " in message and "; rank 1 " in message
    assert got["steps"] == 4 and saved_steps(trainopt.folder / "out") == [2]


@pytest.mark.parametrize(
    "keys, step, saved",
    [
        (["parallel.check_replicas_every=100", "checkpoint={every_n_steps: 2, background: false}"], 4, [2]),
        (["parallel.check_replicas_every=2", "train.max_steps=3"], 3, []),
    ],
    ids=["before a checkpoint", "at the end"],
)
def test_checkpoints_and_the_last_step_are_always_compared(trainopt, keys, step, saved):
    message, _ = fault_of(trainopt, 2, *keys, "--inject", "bit_flip@3")
    assert f"the weights of 2 ranks differ after step {step}" in message
    folder = trainopt.folder / "out"
    assert (saved_steps(folder) if (folder / "checkpoints").exists() else []) == saved


def test_only_the_comparison_finds_it(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    result = launch(trainopt, 2, "--run-dir", "out", "--inject", "bit_flip@3")
    assert result.code == 0 and summary(trainopt.folder / "out")["replica_checks"] is None, result


@pytest.mark.parametrize(
    "keys",
    [
        ["optimizations.amp={dtype: float16, init_scale: 1e30}", "checkpoint.every_n_steps=2"],
        ["train.on_nonfinite=skip", "--inject", "nan@3:1"],
        ["train.on_nonfinite=rerun", "train.gradient_accumulation_steps=2", "--inject", "nan@3+:1"],
        ["parallel.async_updates={staleness: 1}", "optimizations.fused_optimizer=true"],
        [*RESNET],
        [*RESNET, "parallel.sync_batch_norm=true", "optimizations.channels_last=true"],
        [*RESNET, "parallel.sharding_strategy=zero2", "parallel.gradient_dtype=bfloat16", "optimizations.amp=true"],
    ],
    ids=["overflows", "skip", "rerun", "stale", "batch-norm", "sync_batch_norm", "zero2"],
)
def test_no_false_alarm(trainopt, keys):
    trainopt.write("tiny.yaml", RECIPE)
    result = launch(trainopt, 2, "--run-dir", "out", "parallel.check_replicas_every=1", *keys)
    got = summary(trainopt.folder / "out")
    if "nan@3+:1" in keys:  # bad data on one rank: the comparison must not call it a hardware fault
        assert result.code == 6 and got["replica_checks"]["passed"] == 2, (result, got)
        return
    never_updates = "init_scale" in keys[0]
    assert result.code == (6 if never_updates else 0), result
    assert got["replica_checks"]["passed"] == got["steps"] and got["replica_checks"]["wall_s"] > 0, got
    assert f"replica checks: {got['steps']} passed in " in result.out, result


def test_resuming_and_evaluating_is_no_false_alarm(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    keys = ["--run-dir", "out", "parallel.check_replicas_every=3", "checkpoint.every_n_steps=2", "--quiet"]
    assert launch(trainopt, 2, *keys).code == 0
    assert launch(trainopt, 2, *keys, "train.max_steps=12", "checkpoint.resume=auto").code == 0
    got = summary(trainopt.folder / "out")
    assert got["resumed_from"] == 6 and got["replica_checks"]["passed"] == 4, got  # 8, 9, 10, 12


def test_a_comparison_that_cannot_find_anything_is_refused_or_reported(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    refused = trainopt("check", "tiny.yaml", "parallel={check_replicas_every: 5, sharding_strategy: zero3}")
    assert refused.code == 2 and "zero3 keeps each weight on one rank only" in refused.err, refused
    one_rank = trainopt("plan", "tiny.yaml", "parallel.check_replicas_every=5")
    assert one_rank.code == 0 and "not compared: there is only one rank" in one_rank.out, one_rank
    strict = trainopt("plan", "tiny.yaml", "parallel.check_replicas_every=5", "strict=true")
    assert strict.code == 2 and "there is only one rank" in strict.err, strict
    several = trainopt("plan", "tiny.yaml", "parallel.check_replicas_every=5", "--assume", "ranks=2", "--json")
    assert several.code == 0 and "every 5 steps" in json.loads(several.out)["replicas"], several


def test_faults_on_one_rank(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    for text in ("nan@3:", "nan@3:x", "nan@3:-1", "nan@3:1+", "bit_flip@0", "flip@3"):
        result = trainopt("run", "tiny.yaml", "--inject", text)
        assert result.code == 2 and f"hang@5:1): {text}" in result.err, result
    result = trainopt("run", "tiny.yaml", "--inject", "nan@3:1")
    assert result.code == 2 and "a rank that this job does not have: 1, ranks 1" in result.err, result
