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
    ({"FAKE_CUDA_INIT": "100"}, ["offers no GPU (no CUDA-capable device is detected)", "nvidia-smi lists a GPU"]),
    ({"CUDA_VISIBLE_DEVICES": "-1"}, ["hides all GPUs", "CUDA_VISIBLE_DEVICES=-1"]),
    ({"FAKE_CUDA_INIT": "304"}, ["offers no GPU", "/dev/nvidia*"]),
    ({"FAKE_CUDA_INIT": "802"}, ["offers no GPU", "Fabric Manager"]),
    ({"FAKE_CUDA_INIT": "803"}, ["offers no GPU", "kernel module differ in version"]),
    ({"FAKE_CUDA_INIT": "999"}, ["offers no GPU", "nvidia-smi"]),
]


def environment(trainopt, libraries, played):
    """Without CUDA_VISIBLE_DEVICES unless `played` has it."""
    own = {name: value for name, value in trainopt.environment().items() if name != "CUDA_VISIBLE_DEVICES"}
    return own | {"LD_LIBRARY_PATH": ":".join(map(str, libraries))} | played


def with_driver(trainopt, played, *words):
    trainopt.write("job.yaml", RECIPE)
    return trainopt(*words, env=environment(trainopt, [DRIVER], played))


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


# What env and plan say of a machine with a GPU that CUDA does not offer, played by tests/support/fake_nvml.
NVML = Path(PROGRAM).parents[1] / "tests/support/fake_nvml/new"
GPU = "gpu0.bus 00000000:1B:00.0\ngpu0.name NVIDIA-H100\ngpu0.uuid GPU-5b0c\n"

SEEN = [
    ({"CUDA_VISIBLE_DEVICES": ""}, GPU, ["hides all GPUs", 'CUDA_VISIBLE_DEVICES=""', "nvidia-smi -L"]),
    ({"CUDA_VISIBLE_DEVICES": "7"}, GPU, ["hides all GPUs", "CUDA_VISIBLE_DEVICES=7"]),
    ({}, GPU + "gpu0.mig 1\n", ["MIG mode and has no instance", "nvidia-smi mig -i 0"]),
    ({"FAKE_CUDA_INIT": "999"}, GPU + "gpu0.error 15\n", ["has lost a GPU", "dmesg", "--gpu-reset -i 0"]),
    ({"FAKE_CUDA_INIT": "101"}, GPU + "gpu0.error 16\n", ["has lost a GPU", "dmesg"]),
    ({}, GPU + "gpu0.compute_mode 2\n", ["compute mode allows no process", "nvidia-smi -i 0 -c DEFAULT"]),
]


def with_gpu(trainopt, played, script, *words):
    trainopt.write("job.yaml", RECIPE)
    trainopt.write("script", script)
    played = {"FAKE_NVML_SCRIPT": str(trainopt.folder / "script"), **played}
    return trainopt(*words, env=environment(trainopt, [DRIVER, NVML], played))


@pytest.mark.parametrize("played, script, expected", SEEN)
def test_a_gpu_that_cuda_does_not_offer(trainopt, played, script, expected):
    """plan, run and env all say why, on one line."""
    plan = with_gpu(trainopt, played, script, "plan", "job.yaml")
    assert plan.code == 0, plan
    run = with_gpu(trainopt, played, script, "run", "job.yaml", "--quiet")
    assert run.code == 0, run
    env = with_gpu(trainopt, played, script, "env")
    assert env.code == 0, env
    refused = with_gpu(trainopt, played, script, "run", "job.yaml", "device=cuda:0")
    assert refused.code == 2, refused
    for where, mark in ((plan.out, "note: this job uses the CPU"), (run.err, "this job uses the CPU"),
                        (env.out, "gpu_trouble"), (refused.err, "device: cuda:0, but")):
        line = next(line for line in where.splitlines() if mark in line)
        for words in expected:
            assert words in line, (mark, line)


@pytest.mark.parametrize("code, expected", [
    ("999", "nvidia-smi works"), ("304", "/dev/nvidia*"), ("46", "nvidia-smi -c DEFAULT"), ("800", "/dev/nvidia*"),
])
def test_a_visible_gpu_is_not_called_hidden(trainopt, code, expected):
    """Batch systems and containers set CUDA_VISIBLE_DEVICES for every job."""
    played = {"FAKE_CUDA_INIT": code, "CUDA_VISIBLE_DEVICES": "0"}
    result = with_gpu(trainopt, played, GPU, "plan", "job.yaml", "device=cuda")
    assert result.code == 2 and len(result.err.strip().splitlines()) == 1, result
    assert expected in result.err and "CUDA_VISIBLE_DEVICES" not in result.err, result


@pytest.mark.parametrize("code, expected", [
    ("34", "stub"), ("46", "nvidia-smi -c DEFAULT"), ("101", "nvidia-smi works"), ("102", "licence"),
    ("800", "/dev/nvidia*"), ("802", "Fabric Manager"), ("804", "cuda-compat"), ("805", "Multi-Process Service"),
])
def test_every_known_error_of_the_driver_says_what_to_do(trainopt, code, expected):
    result = with_driver(trainopt, {"FAKE_CUDA_INIT": code}, "plan", "job.yaml", "device=cuda")
    assert result.code == 2 and len(result.err.strip().splitlines()) == 1, result
    assert expected in result.err, result


def test_env_describes_gpus_that_cuda_does_not_offer(trainopt):
    script = GPU + "gpu0.pcie_generation 1\ngpu0.max_pcie_generation 5\ngpu0.pcie_width 16\ngpu0.nvlinks 18\n" \
        "gpu0.nvlink_version 6\ngpu0.nvlink_mb_per_s 26562\ngpu0.nvlink_to switch\ngpu0.power_limit_mw 700000\n"
    text = with_gpu(trainopt, {}, script, "env").out
    for words in ("NVIDIA-H100", "GPU-5b0c", "00000000:1B:00.0", "max_generation", "an idle GPU lowers"):
        assert words in text, text
    facts = with_gpu(trainopt, {}, script, "env", "--json").json()
    (gpu,) = facts["other_gpus"]
    assert gpu["pcie"]["max_generation"] == 5 and gpu["power_limit_w"] == 700, gpu
    assert gpu["nvlink"]["version"] == "4.0" and gpu["nvlink"]["total_gb_per_s"] == pytest.approx(18 * 26.562), gpu
    assert gpu["ecc"] is None and gpu["not_known"]["ecc"] == "NVML: Not Supported", gpu
    assert facts["driver_cuda"] == "13.0" and facts["gpus"] == [], facts
    assert facts["nccl"].startswith("2."), facts
    assert "offers no GPU" in facts["gpu_trouble"], facts
