"""Runs the program as a user does. TRAINOPT names it; every test has a folder of its own as the current one."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("TRAINOPT", str(CHECKOUT / "build/app/trainopt"))

# Ends in a moment: 64-byte images, a few hundred parameters.
TINY = """\
name: tiny
model: {name: mlp, num_classes: 10, hidden: [8]}
data: {dataset: fake_cifar10, size: 64, batch_size: 8, transforms: [{resize: 8}, {normalize: {mean: 0.5, std: 0.5}}]}
train: {max_steps: 6}
optimizer: {name: sgd, lr: 0.01, momentum: 0.9}
"""


def pytest_configure(config):
    config.addinivalue_line("markers", "full: slow, and guards nothing that can be lost; scripts/test --full runs it")


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses(folder):
    return [record["loss"] for record in records(folder)]


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def saved_steps(folder):
    """Of the checkpoints of a run directory, oldest first."""
    return sorted(int(path.name.removeprefix("step-")) for path in (folder / "checkpoints").glob("step-*"))


def checkpoint(folder, step):
    return folder / f"checkpoints/step-{step:08}"


def wait_until(happened, process, seconds=180):
    """Of a running process; what `happened` gave."""
    end = time.monotonic() + seconds
    while not (found := happened()):
        if process.poll() is not None or time.monotonic() > end:
            process.kill()  # what it said can be read to its end then
            raise AssertionError(process.communicate())
        time.sleep(0.001)
    return found


def wait_until_asleep(process):
    """Until its main thread waits and goes on waiting, as one that hangs does: writing to a slow disk or being without
    a core is another state."""

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
    """A second signal of the same number before the first was taken would be none; a process that has ended takes no
    more."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return int(re.search(r"^ShdPnd:\s*(\w+)", status, re.M)[1], 16) == 0


def wait_for_step(process, step):
    """Reads the console of a running process up to a step, or one after it."""
    while True:
        found = re.match(r"\s*step\s+(\d+)", process.stdout.readline())
        if found and int(found[1]) >= step:
            return int(found[1])
        assert process.poll() is None, process.stderr.read()


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def json(self):
        """The one JSON object on standard output; anything beside it fails here."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    def __repr__(self):
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Program:
    def __init__(self, folder):
        self.folder, self.started = folder, []

    def environment(self):
        """Without GPUs unless the caller chose some: what is tested here is the same on every machine."""
        return {**os.environ, "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "")}

    def __call__(self, *arguments, timeout=300, env=None, before=None):
        """`before` runs in the new process ahead of the program."""
        done = subprocess.run(
            [PROGRAM, *map(str, arguments)],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=env or self.environment(),
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
        """The command fails with `code` and one readable message that has all of `says`; nothing goes to standard
        output."""
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


@pytest.fixture
def trainopt(tmp_path):
    program = Program(tmp_path)
    yield program
    for process in program.started:  # an endless run of a test that failed would slow down all that follow
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A folder in which `data/digits` is what make_digits.py writes without arguments."""
    folder = tmp_path_factory.mktemp("digits")
    subprocess.run([sys.executable, CHECKOUT / "scripts/data/make_digits.py"], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """One finished run of TINY, to be looked at by many tests: (its folder, the result)."""
    program = Program(tmp_path_factory.mktemp("tiny"))
    program.write("tiny.yaml", TINY)
    result = program("run", "tiny.yaml", "--run-dir", "out")
    assert result.code == 0, result
    return program.folder / "out", result
