"""Errors after which CUDA is lost, injected with --inject: one message, nothing retried, a summary, a checkpoint to
resume from."""

from pathlib import Path

import pytest

from conftest import PROGRAM, TINY, losses, records, saved_steps, summary

CACHE = Path(PROGRAM).parents[1] / "CMakeCache.txt"
pytestmark = pytest.mark.skipif(
    "TRAINOPT_CUDA:BOOL=ON" not in CACHE.read_text(), reason="a build without CUDA does not know its errors"
)
SAVES = ("checkpoint.every_n_steps=2", "checkpoint.keep_last=9")


@pytest.fixture
def tiny(trainopt):
    trainopt.write("tiny.yaml", TINY)
    return trainopt


@pytest.mark.parametrize("fault, code, words", [
    ("gpu", 1, "an illegal memory access was encountered (CUDA error 700)"),
    ("ecc", 9, "uncorrectable ECC error encountered (CUDA error 214)"),
])
def test_a_gpu_fault_ends_the_run(tiny, fault, code, words):
    result = tiny("run", "tiny.yaml", "--run-dir", "out", "--quiet", *SAVES, "--inject", f"{fault}@5+")
    assert result.code == code, result
    # One message: no warning, no second error, no C++ stack.
    (line,) = [line for line in result.err.splitlines() if line]
    for expected in (words, "context is lost", "resume from the checkpoint of step 4, and ",
                     "in step 5, forward and backward, "):
        assert expected in line, line
    assert not line.rstrip().endswith(","), line
    found = summary(tiny.folder / "out")
    assert (found["status"], found["exit_code"], found["steps"]) == ("failed", code, 4), found
    assert words in found["reason"] and found["micro_split"] == 1, found
    assert [record["step"] for record in records(tiny.folder / "out")] == [1, 2, 3, 4]
    assert saved_steps(tiny.folder / "out") == [2, 4]
    assert tiny("checkpoint", "verify", "out/checkpoints/step-00000004").code == 0


def test_a_gpu_fault_before_the_first_checkpoint(tiny):
    result = tiny("run", "tiny.yaml", "--run-dir", "out", "--quiet", *SAVES, "device=cpu", "--inject", "gpu@1")
    assert result.code == 1 and "resume from" not in result.err, result
    assert "in step 1, forward and backward, cpu" in result.err and not result.err.rstrip().endswith(","), result


def test_a_run_resumes_after_a_gpu_fault(tiny):
    assert tiny("run", "tiny.yaml", "--run-dir", "whole").code == 0
    words = ("run", "tiny.yaml", "--run-dir", "out", "checkpoint.resume=auto", *SAVES)
    assert tiny(*words, "--inject", "ecc@5").code == 9
    assert tiny(*words).code == 0
    assert losses(tiny.folder / "out") == losses(tiny.folder / "whole")


def test_one_rank_with_a_gpu_fault_ends_all(tiny):
    result = tiny("launch", "-n", "2", "--", "run", "tiny.yaml", "--run-dir", "out", "--quiet", "--inject", "ecc@3")
    assert result.code == 9, result
    told = [line for line in result.err.splitlines() if "context is lost" in line]
    assert len(told) == 1 and "rank" in told[0] and "step 3" in told[0], result
    assert summary(tiny.folder / "out")["exit_code"] == 9
