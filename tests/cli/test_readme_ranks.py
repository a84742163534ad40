"""Runs the commands of app/guide/ranks.md as written."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import CHECKOUT, PROGRAM, losses, summary
from ranks import Ranks, close, free_port, kill_leftover_ranks, readme_section, torch_program  # noqa: F401

# Starts tasks with the variables that srun sets on one machine.
SRUN = """\
#!/bin/sh
[ "$1" = --ntasks ] || exit 64
tasks=$2; shift 2
export SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$tasks SLURM_NTASKS=$tasks
export SLURM_STEP_TASKS_PER_NODE=$tasks SLURM_NODEID=0 SLURM_STEP_NODELIST=here
pids= task=0 code=0
while [ $task -lt $tasks ]; do
  SLURM_PROCID=$task SLURM_LOCALID=$task "$@" & pids="$pids $!"
  task=$((task + 1))
done
for pid in $pids; do wait $pid || code=$?; done
exit $code
"""
# By default Open MPI refuses to run as root or with more ranks than cores; the tests may run as root on one core.
MPIRUN = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}

BLOCKS = [
    [shlex.split(line, comments=True) for line in block.splitlines()]
    for block in re.findall(r"```\n(.*?)```", readme_section("Several ranks"), re.DOTALL)
]
STARTS, MACHINES, _, _, (REHEARSAL,), RESUMES = BLOCKS


@pytest.fixture
def shell(trainopt):
    """Starts a command in a folder with the recipes and with `trainopt`, `torchrun` and `srun` on the PATH."""
    tools = trainopt.folder / "tools"
    tools.mkdir()
    (tools / "trainopt").symlink_to(os.path.abspath(PROGRAM))
    (tools / "torchrun").symlink_to(torch_program("torchrun"))
    (tools / "srun").write_text(SRUN)
    (tools / "srun").chmod(0o755)
    (trainopt.folder / "configs").symlink_to(CHECKOUT / "configs")
    env = {
        **trainopt.environment(),
        **MPIRUN,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PET_MASTER_PORT": str(free_port()),
    }  # torchrun's default port is always the same
    return lambda job, words: job.start([shutil.which(words[0], path=env["PATH"]), *words[1:]], env=env)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of the recipe on one rank, with the global batch of two ranks."""
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run(
        [
            os.path.abspath(PROGRAM),
            "run",
            CHECKOUT / "configs/two_ranks.yaml",
            "--run-dir",
            "out",
            "data.batch_size=32",
            "--quiet",
        ],
        cwd=folder,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        check=True,
    )
    return folder / "out"


def only_run(trainopt):
    (folder,) = (trainopt.folder / "runs").iterdir()
    return folder


def test_the_readme_has_all_commands():
    assert (
        [words[0] for words in STARTS] == ["trainopt", "mpirun", "torchrun", "srun"]
        and len(MACHINES) == 2
        and len(RESUMES) == 3
    )


@pytest.mark.parametrize("words", STARTS, ids=lambda words: words[0])
def test_ways_to_start(trainopt, shell, alone, words):
    if words[0] == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("no mpirun")
    (result,) = shell(Ranks(trainopt), words).ended()
    assert result.code == 0 and result.out.count("plan of two_ranks") == 1, result
    assert close(only_run(trainopt), alone)


def test_several_machines(trainopt, shell, alone):
    """Both machines are this one."""
    job, here = Ranks(trainopt), f"127.0.0.1:{free_port()}"
    for words in MACHINES:
        assert "first-machine:29500" in words
        shell(job, [here if word == "first-machine:29500" else word for word in words])
    assert [result.code for result in job.ended()] == [0, 0], job.ended()
    assert close(only_run(trainopt), alone)


def test_rehearsing_silent_data_corruption(trainopt, shell):
    (result,) = shell(Ranks(trainopt), REHEARSAL).ended()
    assert result.code == 9 and "the weights of rank 2 differ from those of the other 2" in result.err, result


def test_resuming_with_other_numbers_of_ranks(trainopt, shell, alone):
    out = trainopt.folder / "runs/job"
    for words, steps in zip(RESUMES, (100, 150, 200), strict=True):
        (result,) = shell(Ranks(trainopt), words).ended()
        assert (
            result.code == 0
            and summary(out)["steps"] == steps
            and summary(out)["resumed_from"] == (steps - 50 if steps > 100 else None)
        ), result
    assert len(losses(out)) == 21 and all(abs(a - b) <= 1e-5 * b for a, b in zip(losses(out), losses(alone)))
