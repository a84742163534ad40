"""Jobs of several ranks: under `trainopt launch`, or started one by one with the variables that a launcher sets."""

import contextlib
import importlib.util
import itertools
import os
import random
import re
import socket
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from conftest import CHECKOUT, PROGRAM, TINY, Result, losses, records, saved_steps, summary

# Needs random numbers in every step, and more than one order of the samples.
RECIPE = TINY.replace("{resize: 8}", "{resize: 8}, random_horizontal_flip")
ENDLESS = "train.max_steps=100000000"
SAVES = ["checkpoint.every_n_steps=2", "checkpoint.keep_last=3"]
SOON = "parallel.timeout=12s"  # connecting may take five seconds if name servers do not answer
NOT_FOR_USERS = r"terminate called|what\(\)|broken invariant|Exception raised from|Segmentation|^(\[\d\] )?\[[WE]\d{3}"


# Two ranks of a command that is to follow.
STARTERS = {
    "launch": ["trainopt", "launch", "-n", "2", "--"],
    "mpirun": ["mpirun", "-n", "2", "trainopt"],
    "torchrun": ["torchrun", "--nproc-per-node", "2", "--no-python", "trainopt"],
    "srun": ["srun", "--ntasks", "2", "trainopt"],
}

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


def torch_program(name):
    """A program installed with PyTorch, from the environment of torch."""
    torch = Path(
        importlib.util.find_spec("torch").origin
    )  # <environment>/lib/python3.x/site-packages/torch/__init__.py
    return torch.parents[4] / "bin" / name


PORTS = itertools.cycle(range(10000, 32000))  # below the kernel's ephemeral ports
for _ in range(os.getpid() * 211 % 22000):  # tests in other processes start elsewhere
    next(PORTS)


def free_port():
    """One that this process has not returned before, so that no other test takes it before its use."""
    for port in PORTS:
        with socket.socket() as one:
            try:
                one.bind(("0.0.0.0", port))
                return port
            except OSError:
                continue


class Ranks:
    """Processes whose output goes to files, so that nothing has to read it while they run."""

    started = []

    def __init__(self, program):
        self.program, self.processes, self.files = program, [], []

    def start(self, command, cwd=None, env=None, before=None):
        files = [open(self.program.folder / f"{name}-{len(self.processes)}.txt", "w+") for name in ("out", "err")]
        self.files.append(files)
        self.processes.append(
            subprocess.Popen(
                [*map(str, command)],
                cwd=cwd or self.program.folder,
                env=env or self.program.environment(),
                stdin=subprocess.DEVNULL,
                stdout=files[0],
                stderr=files[1],
                preexec_fn=before,
            )
        )
        Ranks.started.append(self.processes[-1])
        return self

    def rank(self, rank, of, *arguments, port, address="127.0.0.1", under=(), local=None, **how):
        """Starts one rank as a script would; `under` is a command to run it under, `local` its rank on its machine and
        their number there."""
        local = local or (rank, of)
        place = {
            "RANK": rank,
            "WORLD_SIZE": of,
            "LOCAL_RANK": local[0],
            "LOCAL_WORLD_SIZE": local[1],
            "MASTER_ADDR": address,
            "MASTER_PORT": port,
        }
        env = {**self.program.environment(), **{name: str(value) for name, value in place.items()}}
        return self.start([*under, PROGRAM, *arguments], env=env, **how)

    def ended(self, seconds=240):
        """The results, once all have ended; fails if a process is still running after this time."""
        try:
            end = time.monotonic() + seconds
            for process in self.processes:
                process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(self.processes, self.results()) from None
        return self.results()

    def results(self):
        return [self.result_of(number) for number in range(len(self.processes))]

    def result_of(self, number):
        texts = []
        for file in self.files[number]:
            file.seek(0)
            texts.append(file.read())
        return Result(self.processes[number].poll(), *texts)

    def until(self, happened, seconds=180):
        end = time.monotonic() + seconds
        while not (found := happened()):
            assert all(process.poll() is None for process in self.processes) and time.monotonic() < end, self.ended(0)
            time.sleep(0.005)
        return found


def with_launchers(program):
    """An environment in which `trainopt`, `torchrun`, `srun` (a stand-in) and mpirun start two ranks anywhere."""
    tools = program.folder / "tools"
    tools.mkdir()
    (tools / "trainopt").symlink_to(os.path.abspath(PROGRAM))
    (tools / "torchrun").symlink_to(torch_program("torchrun"))
    (tools / "srun").write_text(SRUN)
    (tools / "srun").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    port = str(free_port())  # torchrun's default port is always the same
    return {**program.environment(), **MPIRUN, "PATH": path, "PET_MASTER_PORT": port}


def start_with(job, words, env):
    """Starts a command line, whose first word is looked up in `env`, from with_launchers()."""
    if not (program := shutil.which(words[0], path=env["PATH"])):
        pytest.skip(f"no {words[0]}")
    return job.start([program, *words[1:]], env=env)


@pytest.fixture(autouse=True)
def kill_leftover_ranks():
    yield
    for process in Ranks.started:
        if process.poll() is None:
            process.kill()
            process.wait()
    Ranks.started.clear()


def launched(trainopt, ranks, *arguments, recipe="tiny.yaml", command="run", **how):
    """Starts a job that keeps running while the test acts on it."""
    return Ranks(trainopt).start([PROGRAM, "launch", "-n", ranks, "--", command, recipe, *arguments], **how)


def launch(trainopt, ranks, *arguments, **how):
    """Runs a job from start to end."""
    (result,) = launched(trainopt, ranks, *arguments, **how).ended()
    return result


def process_of(job, rank):
    """The process id of a rank under `trainopt launch`; None until it has started, and once it has ended."""
    launcher = job.processes[0].pid
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it ends now
            if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                return int(child)
    return None


def started(job, out, step=4):
    """Waits until the job has saved a checkpoint of that step or a later one; returns its newest step."""
    return job.until(lambda: (steps := saved_steps(out)) and steps[-1] >= step and steps[-1])


def one_message(*results):
    """The only error message of all ranks, not counting the launcher's own line about the rank that ended."""
    lines = [line for result in results for line in result.err.splitlines()]
    assert not re.search(NOT_FOR_USERS, "\n".join(lines), re.MULTILINE), results
    own = [line for line in lines if re.match(r"trainopt: rank \d+ (ended with|was killed by)", line)]
    assert len(own) <= 1, results
    ranks = [line for line in lines if line not in own and "warning: " not in line]
    assert len(ranks) == 1 and re.match(r"(\[\d+\] )?trainopt: ", ranks[0]), results
    return ranks[0]


def check_resume(trainopt, ranks=2, *overrides, folder="out", recipe="tiny.yaml"):
    """Checks that every checkpoint is valid and that the job resumes from the newest."""
    out = trainopt.folder / folder
    newest = saved_steps(out)[-1]
    verified = trainopt("checkpoint", "verify", folder)
    assert verified.code == 0, verified
    result = launch(
        trainopt,
        ranks,
        "--run-dir",
        folder,
        "checkpoint.resume=auto",
        f"train.max_steps={newest + 3}",
        "--quiet",
        *overrides,
        recipe=recipe,
    )
    assert result.code == 0, result
    got = summary(out)
    assert (got["status"], got["steps"], got["resumed_from"]) == ("done", newest + 3, newest), got
    assert [row["step"] for row in records(out)] == list(range(1, newest + 4)), "each step is recorded once"


def weights(folder):
    return (folder / "weights.safetensors").read_bytes()


def close(folder, other, steps=None):
    """Whether the losses are the same except for the order of the additions."""
    ours, theirs = losses(folder), losses(other)
    if steps:
        ours, theirs = ours[-steps:], theirs[-steps:]
    assert len(ours) == len(theirs) and all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(ours, theirs)), (ours, theirs)
    return True


@pytest.fixture
def two_machines():
    """Two network namespaces connected by a virtual cable."""
    names = [f"trainopt-{os.getpid()}-{side}" for side in "ab"]
    if not shutil.which("ip"):
        pytest.skip("no ip")
    try:
        for name in names:
            if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
                pytest.skip("this user may not create network namespaces")
        cable = f"ip link add veth0 netns {names[0]} type veth peer name veth0 netns {names[1]}"
        if (made := subprocess.run(cable.split(), capture_output=True, text=True)).returncode != 0:
            pytest.skip(f"no virtual cable: {made.stderr}")
        for number, name in enumerate(names):
            for words in (f"addr add 10.99.77.{number + 1}/24 dev veth0", "link set veth0 up", "link set lo up"):
                subprocess.run(["ip", "-n", name, *words.split()], check=True)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def inside(namespace, host):
    """A command line that runs the rest of it in a network namespace, under that host name."""
    rename = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', host]
    return ["ip", "netns", "exec", namespace, *rename]


def node_of_two(node, ranks):
    """Options of `trainopt launch` on one of two machines."""
    return ["-n", ranks, "--nnodes", 2, "--node-rank", node]


def write_cifar10(trainopt, folder="data", **counts):
    """Writes files with this many random images each: `data_batch_1=64`."""
    draw = random.Random(1)
    for name, count in counts.items():
        trainopt.write(
            f"{folder}/{name}.bin", b"".join(bytes([number % 10]) + draw.randbytes(3072) for number in range(count))
        )


FROM_FILES = RECIPE.replace("dataset: fake_cifar10, size: 64", "dataset: cifar10, path: data")


def readme_section(title):
    return (CHECKOUT / "app/guide/ranks.md").read_text().split(f"# {title}\n")[1].split("\n# ")[0]
