"""Runs the commands of app/guide/ranks.md as written."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from conftest import CHECKOUT, PROGRAM, losses, summary
from ranks import (
    Ranks,
    close,
    free_port,
    kill_leftover_ranks,  # noqa: F401
    readme_section,
    start_with,
    with_launchers,
)

BLOCKS = [
    [shlex.split(line, comments=True) for line in block.splitlines()]
    for block in re.findall(r"```\n(.*?)```", readme_section("Several ranks"), re.DOTALL)
]
STARTS, MACHINES, MEASURES, _, _, _, (RESTARTS,), RESTARTED, _, (REHEARSAL,), RESUMES = BLOCKS


@pytest.fixture
def shell(trainopt):
    """Starts a command in a folder with the recipes."""
    (trainopt.folder / "configs").symlink_to(CHECKOUT / "configs")
    env = with_launchers(trainopt)
    return lambda job, words: start_with(job, words, env)


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
        and [words[5] for words in MEASURES] == ["compare", "compare", "ablate", "run"]
        and len(RESUMES) == 3
    )


@pytest.mark.parametrize("words", STARTS, ids=lambda words: words[0])
def test_ways_to_start(trainopt, shell, alone, words):
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


@pytest.mark.full  # test_compare_ranks.py has the same commands
@pytest.mark.parametrize("words", MEASURES, ids=lambda words: " ".join(words[5:9]))
def test_measuring(trainopt, shell, words):
    """With few turns, of a small job."""
    recipe = (CHECKOUT / "configs/two_ranks.yaml").read_text().replace("batch_size: 16", "batch_size: 32")
    trainopt.write("job.yaml", recipe + "optimizations: {set_to_none: true}\nnum_threads: 1\n")
    (result,) = shell(Ranks(trainopt), [*words, "--repeats", "2", "--turn", "5ms"]).ended()
    assert result.code == 0 and "trainopt: " not in result.err, result
    columns = next(line for line in readme_section("Several ranks").splitlines() if "against none" in line)
    shows = {"--each": columns, "--with": "overlap_comm=false", "--ceilings": "free communication"}
    shown = next((shown for word, shown in shows.items() if word in words), "set_to_none")
    assert " ".join(shown.split()) in " ".join(result.out.split()), result


def test_restarting(trainopt, shell):
    (result,) = shell(Ranks(trainopt), RESTARTS).ended()
    died, goes_on = (" ".join(line) for line in RESTARTED)
    assert result.code == 0 and died in result.err.replace("were ended", "ended too"), result
    assert goes_on.split("goes on")[0] in result.err, "from which step depends on the disk"


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
