"""Runs the program named by TRAINOPT as a user does; every test has its own current directory. Most commands run in
command_server, the same program in a process that has loaded libtorch already."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("TRAINOPT", str(CHECKOUT / "build/app/trainopt"))

sys.path.append(str(CHECKOUT / "tests/support/command_server"))
from client import CommandServer

sys.path.append(str(CHECKOUT / "scripts"))
import ladders
import summaries

# Finishes in a moment: 64-byte images, a few hundred parameters.
TINY = """\
name: tiny
model: {name: mlp, num_classes: 10, hidden: [8]}
data: {dataset: fake_cifar10, size: 64, batch_size: 8, transforms: [{resize: 8}, {normalize: {mean: 0.5, std: 0.5}}]}
train: {max_steps: 6}
optimizer: {name: sgd, lr: 0.01, momentum: 0.9}
"""


SHARES = "workers_busy_pct read_pct decode_pct transform_pct other_pct sample_us".split()  # of a loader's time


def pytest_configure(config):
    # Ignored signals, as under nohup and in the background of a script, would be ignored by the programs that the tests
    # start, too. A function is not handed on.
    signal.signal(signal.SIGHUP, lambda *_: None)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "full: slow, and covers nothing critical; run by scripts/test --full")
    config.addinivalue_line(
        "markers", "real_program: asks about loading or memory, so that every command is a process that loads libtorch"
    )


def in_full(*values):
    """Parameters with which only scripts/test --full runs a test."""
    return [pytest.param(value, marks=pytest.mark.full) for value in values]


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses(folder):
    return [record["loss"] for record in records(folder)]


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def saved_steps(folder):
    """The steps of the checkpoints in a run directory, oldest first."""
    return sorted(int(path.name.removeprefix("step-")) for path in (folder / "checkpoints").glob("step-*"))


def checkpoint(folder, step):
    return folder / f"checkpoints/step-{step:08}"


def wait_until(happened, process, seconds=180):
    """Polls `happened` while the process runs; returns its first true result."""
    end = time.monotonic() + seconds
    while not (found := happened()):
        if process.poll() is not None or time.monotonic() > end:
            process.kill()  # so that its output can be read to the end
            raise AssertionError(process.communicate())
        time.sleep(0.001)
    return found


def wait_until_asleep(process):
    """Waits until the main thread sleeps and stays asleep, as in a hang; a thread that writes to a slow disk or waits
    for a core is in another state."""

    def looks():
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        return [
            line
            for line in lines
            if line.startswith(("State:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"))
        ]

    def asleep():
        before = looks()
        time.sleep(0.3)
        return "sleeping" in before[0] and looks() == before

    wait_until(asleep, process)


def has_taken_signals(pid):
    """Whether no signal is pending; true for a process that has ended. A second signal with the same number would be
    lost if sent earlier."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return int(re.search(r"^ShdPnd:\s*(\w+)", status, re.M)[1], 16) == 0


def wait_for_step(process, step):
    """Reads the console of a running process until it reports this step or a later one."""
    while True:
        found = re.match(r"\s*step\s+(\d+)", process.stdout.readline())
        if found and int(found[1]) >= step:
            return int(found[1])
        assert process.poll() is None, process.stderr.read()


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def json(self):
        """The one JSON object on standard output; anything else there fails."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    def __repr__(self):
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def preloaded(trainopt, source):
    """Variables with which programs load this C source first; skips without a compiler."""
    if not (compiler := shutil.which("gcc")):
        pytest.skip("no gcc")
    trainopt.write("preloaded.c", source)
    words = [compiler, "-shared", "-fPIC", "-o", "preloaded.so", "preloaded.c", "-ldl"]
    subprocess.run(words, cwd=trainopt.folder, check=True)
    return {**trainopt.environment(), "LD_PRELOAD": str(trainopt.folder / "preloaded.so")}


def without_gpus():
    """Hides GPUs unless the caller chose some, so that the tests behave the same on every machine."""
    return {**os.environ, "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "")}


class Program:
    """Commands run in the server of commands, unless the server would be seen: with `before`, with variables that are
    read at load, and in tests with the mark real_program."""

    server = CommandServer(Path(PROGRAM).with_name("command_server"), without_gpus())

    def __init__(self, folder, real=False):
        self.folder, self.started, self.real = folder, [], real

    def environment(self):
        """Also hides what was measured of this machine."""
        return {**without_gpus(), "XDG_CACHE_HOME": str(self.folder / ".cache")}

    def __call__(self, *arguments, timeout=300, env=None, before=None, program=PROGRAM):
        """`before` runs in the new process before the program starts."""
        words, env = [program, *map(str, arguments)], env or self.environment()
        if program == PROGRAM and not before and not self.real and self.server.serves(env):
            done = self.server.run(words, self.folder, env, timeout)
        else:
            done = subprocess.run(
                words,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                env=env,
                preexec_fn=before,
            )
        return Result(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments, **options):
        self.started.append(
            subprocess.Popen(
                [PROGRAM, *map(str, arguments)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=self.environment(),
                **options,
            )
        )
        return self.started[-1]

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    def refused(self, *arguments, code=2, says=()):
        """The command fails with `code` and one readable message that contains all of `says`; standard output stays
        empty."""
        return self.is_refusal(self(*arguments), code, says)

    @staticmethod
    def is_refusal(result, code=2, says=()):
        assert result.code == code, result
        assert result.out == "", result
        for fragment in says:
            assert fragment in result.err, (fragment, result)
        assert not re.search(
            r"terminate called|what\(\)|broken invariant|Exception raised from|Segmentation", result.err
        ), result
        return result


@pytest.fixture(scope="session", autouse=True)
def command_server():
    yield
    Program.server.close()


@pytest.fixture
def trainopt(tmp_path, request):
    program = Program(tmp_path, real=request.node.get_closest_marker("real_program") is not None)
    yield program
    for process in program.started:  # an endless run of a failed test would slow down the following ones
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A folder in which make_digits.py without arguments has written `data/digits`."""
    folder = tmp_path_factory.mktemp("digits")
    subprocess.run([sys.executable, CHECKOUT / "scripts/data/make_digits.py"], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="session")
def example_data(digits):
    """The same folder, with all that the recipes in configs/ read: make_text.py has written `data/text`, too."""
    script = CHECKOUT / "scripts/data/make_text.py"
    subprocess.run([sys.executable, script, "data/text", "--size", "300kB"], cwd=digits, check=True)
    return digits


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """One finished run of TINY, shared by many tests: (its folder, the result)."""
    program = Program(tmp_path_factory.mktemp("tiny"))
    program.write("tiny.yaml", TINY)
    result = program("run", "tiny.yaml", "--run-dir", "out")
    assert result.code == 0, result
    return program.folder / "out", result
