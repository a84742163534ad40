"""trainopt launch: errors reported before any rank starts, and what the ranks receive."""

import os

import pytest

from conftest import TINY


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "nproc-per-node"),
        (["-n", "2"], "launch -n 2 -- run RECIPE"),
        (["-n", "2", "--"], "launch -n 2 -- run RECIPE"),
        (["-n", "two", "--", "run", "tiny.yaml"], "two"),
        (["-n", "0", "--", "run", "tiny.yaml"], "from 1"),
        (["-n", "-1", "--", "run", "tiny.yaml"], "-1"),
        (["-n", "1.5", "--", "run", "tiny.yaml"], "1.5"),
        (["-n", "100000", "--", "run", "tiny.yaml"], "100000"),
        (["-n", "2", "--", "plan", "tiny.yaml"], "plan"),
        (["-n", "2", "--", "tiny.yaml"], "tiny.yaml"),
        (["-n", "2", "run", "tiny.yaml", "--run-dir", "out"], "--run-dir"),
        (["-n", "2", "--no-such-flag", "--", "run", "tiny.yaml"], "--no-such-flag"),
        (["-n", "2", "--nnodes", "0", "--", "run", "tiny.yaml"], "--nnodes"),
        (["-n", "2", "--nnodes", "2", "--", "run", "tiny.yaml"], "--node-rank"),
        (["-n", "2", "--nnodes", "2", "--node-rank", "0", "--", "run", "tiny.yaml"], "--rendezvous"),
        (
            ["-n", "2", "--nnodes", "2", "--node-rank", "2", "--rendezvous", "a:1", "--", "run", "tiny.yaml"],
            "--node-rank must be a whole number from 0 to 1: 2",
        ),
        (["-n", "2", "--node-rank", "1", "--", "run", "tiny.yaml"], "--node-rank"),
        (["-n", "2", "--rendezvous", "host", "--", "run", "tiny.yaml"], "host:port"),
        (["-n", "2", "--rendezvous", ":1", "--", "run", "tiny.yaml"], "host:port"),
        (["-n", "2", "--rendezvous", "host:65536", "--", "run", "tiny.yaml"], "65536"),
        (["-n", "2", "--max-restarts", "some", "--", "run", "tiny.yaml"], "--max-restarts"),
        (["-n", "2", "--max-restarts", "1", "--", "compare", "tiny.yaml"], "--max-restarts is for run"),
        (
            ["-n", "2", "--max-restarts", "3", "--rendezvous", "host:65533", "--", "run", "tiny.yaml"],
            "from 1 to 65532",
        ),
    ],
)
def test_wrong_usage(trainopt, arguments, says):
    trainopt.write("tiny.yaml", TINY)
    assert len(trainopt.refused("launch", *arguments, says=[says]).err.splitlines()) == 1


def test_auto_counts_gpus(trainopt):
    """The test environment hides all GPUs."""
    trainopt.refused("launch", "-n", "auto", "--", "run", "tiny.yaml", says=["-n auto", "GPU", "-n 2"])


def refused_in(trainopt, variables, says):
    result = trainopt("launch", "-n", "2", "--", "run", "absent.yaml", env={**trainopt.environment(), **variables})
    assert result.code == 2 and all(word in result.err for word in says) and "absent" not in result.err, result


def test_ranks_start_no_ranks(trainopt):
    refused_in(
        trainopt,
        {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"},
        ["torchrun", "without trainopt launch", "RANK=0", "WORLD_SIZE=2"],
    )
    refused_in(
        trainopt,
        {
            "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        },
        ["mpirun", "OMPI_COMM_WORLD_SIZE=2"],
    )
    refused_in(trainopt, {"RANK": "0"}, ["WORLD_SIZE", "RANK=0"])


def test_arguments_after_the_dashes_reach_each_rank(trainopt):
    for count, prefix in ((1, [""]), (3, ["[0] ", "[1] ", "[2] "])):
        result = trainopt("launch", "-n", count, "--", "run", "--help")
        assert result.code == 0 and result.err == "", result
        for start in prefix:
            assert any(line.startswith(start) and "--run-dir" in line for line in result.out.splitlines()), (
                start,
                result,
            )


def test_a_rank_that_fails_is_named(trainopt):
    result = trainopt("launch", "-n", "2", "--", "run", "absent.yaml")
    assert result.code == 2 and result.out == "", result
    assert result.err.splitlines()[-1].startswith("trainopt: rank "), result
    assert "ended with exit code 2" in result.err, result


def test_works_from_another_folder_and_through_a_link(trainopt):
    """The ranks run the same program, whatever path it was started by."""
    import subprocess
    from conftest import PROGRAM

    (trainopt.folder / "linked").symlink_to(os.path.abspath(PROGRAM))
    done = subprocess.run(
        ["./linked", "launch", "-n", "1", "--", "run", "--help"], cwd=trainopt.folder, capture_output=True, text=True
    )
    assert done.returncode == 0 and "--run-dir" in done.stdout, done
