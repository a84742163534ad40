"""`debug.gradcheck`: what a run says and records, and that it trains the same."""

from conftest import TINY, losses, summary
from ranks import kill_leftover_ranks, launch  # noqa: F401

FUSED = TINY + "optimizations: {fused_kernels: true}\n"


def test_a_checked_run_reports_every_operation_and_trains_the_same(trainopt):
    trainopt.write("fused.yaml", FUSED)
    plain = trainopt("run", "fused.yaml", "--run-dir", "plain")
    checked = trainopt("run", "fused.yaml", "--run-dir", "checked", "debug.gradcheck=true")
    assert plain.code == checked.code == 0, (plain, checked)
    assert "gradcheck" not in plain.out + plain.err
    assert "gradcheck: 1 operation of trainopt's own checked in float32, largest error" in checked.err, checked
    assert "gradients checked before the first step (debug.gradcheck)" in checked.out
    (row,) = summary(trainopt.folder / "checked")["gradcheck"]
    assert row["operation"] == "loss" and row["shapes"] == {"outputs": [8, 10]} and row["type"] == "float32"
    assert row["passed"] and 0 < row["backward_error"] < row["bound"] < 1e-4
    assert 0 < row["directions_error"] < row["directions_bound"] < 1e-6
    assert "gradcheck" not in summary(trainopt.folder / "plain")
    assert losses(trainopt.folder / "checked") == losses(trainopt.folder / "plain")


def test_a_pipeline_is_checked_too_and_trains_the_same(trainopt):
    trainopt.write("fused.yaml", FUSED)
    stages = "parallel.pipeline={stages: 2, micro_batches: 2}"
    for folder, check in (("plain", "false"), ("checked", "true")):
        words = ["--run-dir", folder, stages, f"debug.gradcheck={check}"]
        result = launch(trainopt, 2, *words, recipe="fused.yaml")
        assert result.code == 0, result
    assert losses(trainopt.folder / "checked") == losses(trainopt.folder / "plain")


def test_a_plan_without_a_backward_of_our_own_says_so(trainopt):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", "debug.gradcheck=true")
    assert result.code == 0 and "this plan uses no backward of trainopt's own" in result.err, result
    assert summary(trainopt.folder / "out")["gradcheck"] == []
