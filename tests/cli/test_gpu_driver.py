"""What the program says on a machine whose NVIDIA driver offers no GPU, played by tests/support/fake_cuda."""

from pathlib import Path

import pytest

from conftest import PROGRAM

DRIVER = Path(PROGRAM).parents[1] / "tests/support/fake_cuda"
RECIPE = """\
name: job
model: {name: mlp, num_classes: 10, hidden: [8]}
train: {max_steps: 1}
"""

pytestmark = pytest.mark.skipif(
    any(Path("/dev").glob("nvidia[0-9]*")), reason="this machine has a GPU, and its driver is loaded"
)

CASES = [
    ({"FAKE_CUDA_VERSION": "12080"}, ["driver is too old", "supports CUDA 12.8", "needs 13.0", "580 or newer"]),
    ({"FAKE_CUDA_INIT": "100"}, ["offers no GPU (no CUDA-capable device is detected)", "CUDA_VISIBLE_DEVICES"]),
    ({"FAKE_CUDA_INIT": "304"}, ["offers no GPU", "/dev/nvidia*"]),
    ({"FAKE_CUDA_INIT": "802"}, ["offers no GPU", "Fabric Manager"]),
    ({"FAKE_CUDA_INIT": "803"}, ["offers no GPU", "kernel module differ in version"]),
    ({"FAKE_CUDA_INIT": "999"}, ["offers no GPU", "nvidia-smi"]),
]


def with_driver(trainopt, played, *words):
    trainopt.write("job.yaml", RECIPE)
    return trainopt(*words, env=trainopt.environment() | {"LD_LIBRARY_PATH": str(DRIVER), **played})


@pytest.mark.parametrize("played, expected", CASES)
def test_auto_uses_the_cpu_and_says_why(trainopt, played, expected):
    result = with_driver(trainopt, played, "plan", "job.yaml")
    assert result.code == 0, result
    device = next(line for line in result.out.splitlines() if line.startswith("  device"))
    note = next(line for line in result.out.splitlines() if line.startswith("note: this job uses the CPU"))
    for words in expected:
        assert words in device and words in note, result


@pytest.mark.parametrize("played, expected", CASES)
def test_a_recipe_that_wants_a_gpu_is_refused(trainopt, played, expected):
    result = with_driver(trainopt, played, "plan", "job.yaml", "device=cuda")
    assert result.code == 2 and len(result.err.strip().splitlines()) == 1, result
    for words in expected:
        assert words in result.err, result


def test_a_quiet_run_warns(trainopt):
    result = with_driver(trainopt, {"FAKE_CUDA_VERSION": "12080"}, "run", "job.yaml", "--quiet")
    assert result.code == 0 and "driver is too old" in result.err, result


def test_without_a_driver_auto_is_silent(trainopt):
    trainopt.write("job.yaml", RECIPE)
    result = trainopt("plan", "job.yaml")
    assert "auto: no GPU found" in result.out and "note:" not in result.out, result
    refused = trainopt("plan", "job.yaml", "device=cuda")
    assert refused.code == 2 and "no NVIDIA driver" in refused.err, refused


def test_a_gpu_that_is_too_old(trainopt):
    trainopt.write("job.yaml", RECIPE)
    old = ("--assume", "gpus=1,arch=sm_70")
    result = trainopt("plan", "job.yaml", *old)
    assert "is sm_70, kernels exist from sm_75" in result.out, result
    refused = trainopt("plan", "job.yaml", *old, "device=cuda")
    assert refused.code == 2 and "use device: cpu" in refused.err, refused
