"""Where ranks meet: who can reach the job's store, what it believes, and what an earlier job has left."""

import datetime
import os
import re
import signal
import stat
import time
from pathlib import Path

import pytest

from conftest import PROGRAM, TINY, records, saved_steps, summary
from ranks import ENDLESS, SOON, Ranks, free_port, launch, launched, process_of, started, with_launchers, start_with

TWO = ["logging.sinks=[jsonl]", "--quiet", "--run-dir", "out"]


def variables_of(pid):
    pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def listening(pid):
    """The addresses at which the process accepts connections, as the kernel writes them."""
    links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    files = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    lines = [line.split() for text in files for line in text.splitlines()]
    return [fields[1].split(":")[0] for fields in lines if fields[3] == "0A" and fields[9] in inodes]


@pytest.fixture
def job(trainopt):
    trainopt.write("tiny.yaml", TINY)
    job = launched(trainopt, 2, ENDLESS, *TWO)
    out = trainopt.folder / "out"
    job.until(lambda: (out / "metrics.jsonl").exists() and records(out))
    return job


def stopped(job):
    job.processes[0].send_signal(signal.SIGTERM)
    (result,) = job.ended()
    assert result.code == 143, result
    return result


def test_ranks_of_one_machine_are_reached_from_this_machine_alone(job):
    addresses = {rank: listening(process_of(job, rank)) for rank in (0, 1)}
    assert addresses[0] and addresses[1], "the store's, and Gloo's"
    assert {address for each in addresses.values() for address in each} == {"0100007F"}, addresses
    stopped(job)


def test_a_job_believes_nobody_who_lacks_its_key(trainopt, job):
    import torch.distributed as dist

    out = trainopt.folder / "out"
    variables = variables_of(process_of(job, 0))
    key = variables["TRAINOPT_JOB_KEY"]
    assert re.fullmatch("[0-9a-f]{32}", key) and key == variables_of(process_of(job, 1))["TRAINOPT_JOB_KEY"]
    store = dist.TCPStore(
        "127.0.0.1", int(variables["MASTER_PORT"]), is_master=False, timeout=datetime.timedelta(seconds=5)
    )
    stolen = trainopt.folder / "stolen"
    stolen.mkdir()
    store.set("trainopt/ranks/failure", '{"rank": 1, "code": 0, "message": "all is well"}')
    for number in range(1, 40):
        store.set(f"trainopt/ranks/text/checkpoint/{number}", str(stolen))
        store.set(f"trainopt/ranks/text/checkpoint/{number}/1", "[1, 1, {}]")
    for count in (1, 2):
        job.processes[0].send_signal(signal.SIGUSR2)
        job.until(lambda: len(saved_steps(out)) >= count)
    result = stopped(job)
    assert 1 <= result.err.count("without the job's key") <= 2, "each rank says it once"
    assert key not in result.err + result.out
    assert not list(stolen.iterdir())
    assert trainopt("checkpoint", "verify", "out").code == 0
    everything = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert key.encode() not in everything, "the key is nowhere but in memory"


def test_the_user_may_choose_the_key(trainopt):
    trainopt.write("tiny.yaml", TINY)
    short = {**trainopt.environment(), "TRAINOPT_JOB_KEY": "short"}
    refused = trainopt("launch", "-n", "2", "--", "run", "tiny.yaml", env=short)
    assert refused.code == 2 and "TRAINOPT_JOB_KEY" in refused.err, refused
    assert "short" not in refused.err.split("KEY")[1], refused
    for keys in (["sixteen-letters-0", "sixteen-letters-1"], ["", "sixteen-letters-1"], ["sixteen-letters-0", ""]):
        results = with_keys(trainopt, keys)
        assert [result.code for result in results] == [7, 2], results  # mpirun and others end rank 0, too
        assert "TRAINOPT_JOB_KEY differs between rank 0 and rank 1" in results[1].err, results
    assert [result.code for result in with_keys(trainopt, ["sixteen-letters-2"] * 2)] == [0, 0]


def with_keys(trainopt, keys):
    port, job = free_port(), Ranks(trainopt)
    for rank, key in enumerate(keys):
        place = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2}
        env = {**place, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TRAINOPT_JOB_KEY": key}
        env = {**trainopt.environment(), **{name: str(value) for name, value in env.items()}}
        job.start([PROGRAM, "run", "tiny.yaml", "--quiet", "parallel.timeout=5s"], env=env)
    return job.ended()


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_a_port_file_is_removed_once_all_have_joined(trainopt, launcher):
    trainopt.write("tiny.yaml", TINY)
    env = {**with_launchers(trainopt), "TMPDIR": str(trainopt.folder / "tmp")}
    (trainopt.folder / "tmp").mkdir()
    words = {"mpirun": ["mpirun", "-n", "2", "trainopt"], "srun": ["srun", "--ntasks", "2", "trainopt"]}[launcher]
    result = start_with(Ranks(trainopt), [*words, "run", "tiny.yaml", *TWO], env).ended()[0]
    assert result.code == 0, result
    folder = trainopt.folder / "tmp" / f"trainopt-{os.geteuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and not list(folder.iterdir())


def as_mpirun(trainopt, job, rank, name, *words):
    place = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_RANK": rank}
    place |= {"OMPI_COMM_WORLD_LOCAL_SIZE": 2, "PMIX_NAMESPACE": name, "PMIX_RANK": rank}
    env = {**trainopt.environment(), "TMPDIR": str(trainopt.folder / "tmp")}
    env |= {name: str(value) for name, value in place.items()}
    return job.start([PROGRAM, "run", "tiny.yaml", *TWO, *words], env=env)


def test_a_rank_that_comes_before_rank_0_reads_the_port_file_again(trainopt):
    trainopt.write("tiny.yaml", TINY)
    folder = trainopt.folder / "tmp" / f"trainopt-{os.geteuid()}"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "port-mpirun-ns1").write_text("54321 0123456789abcdef0123456789abcdef\n")
    job = as_mpirun(trainopt, Ranks(trainopt), 1, "ns1")
    time.sleep(1)  # it finds the old file first, most probably
    as_mpirun(trainopt, job, 0, "ns1")
    assert [result.code for result in job.ended()] == [0, 0]


def test_a_rank_without_rank_0_names_the_port_file(trainopt):
    trainopt.write("tiny.yaml", TINY)
    (trainopt.folder / "tmp").mkdir()
    (result,) = as_mpirun(trainopt, Ranks(trainopt), 1, "ns2", "parallel.timeout=1s").ended()
    assert result.code == 7 and "port-mpirun-ns2" in result.err and "MASTER" not in result.err, result


def test_a_folder_for_temporary_files_is_asked_for_only_where_it_is_needed(trainopt):
    trainopt.write("tiny.yaml", TINY)
    (trainopt.folder / "tmp").mkdir()
    env = {**trainopt.environment(), "TMPDIR": "/nonexistent"}
    assert trainopt("run", "tiny.yaml", "--quiet", env=env).code == 0
    assert trainopt("launch", "-n", "2", "--", "run", "tiny.yaml", "--quiet", SOON, env=env).code == 0
    (trainopt.folder / "tmp").rmdir()
    (result,) = as_mpirun(trainopt, Ranks(trainopt), 0, "ns3").ended()
    assert result.code == 8 and f"TMPDIR is not a folder: {trainopt.folder / 'tmp'}" in result.err, result


def test_a_request_to_save_while_ranks_start_does_not_end_them(trainopt):
    trainopt.write("tiny.yaml", TINY)
    job = launched(trainopt, 2, "train.max_steps=200", "checkpoint.at_end=false", *TWO)
    job.until(lambda: process_of(job, 1))
    job.processes[0].send_signal(signal.SIGUSR2)  # they are still loading libraries
    (result,) = job.ended()
    assert result.code == 0 and summary(trainopt.folder / "out")["steps"] == 200, result
    assert saved_steps(trainopt.folder / "out"), "and they saved, as they were asked to"
