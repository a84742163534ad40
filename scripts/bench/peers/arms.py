"""The client side: runs trainopt (`trainopt arm`) and PyTorch (serve.py) as long-lived processes that take turns on
request, so that both see the same state of the machine. The device is idle at both ends of a turn. Does not need
PyTorch itself.
"""

import ctypes.util
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

SERVE = Path(__file__).resolve().parent / "serve.py"


class ArmFailed(Exception):
    pass


@dataclass
class Sides:
    """The programs and what they run with; `deadline` is on the monotonic clock. `torch_environments`: of a way whose
    name ends in " with NAME"; `ipex_python` runs the ways of IPEX, which needs a PyTorch of its own."""

    trainopt: Path
    recipe: Path
    python: str = sys.executable
    trainopt_environment: dict = field(default_factory=lambda: dict(os.environ))
    deadline: float = float("inf")
    torch_environments: dict[str, dict] = field(default_factory=dict)
    ipex_python: str | None = None


class Arm:
    def __init__(self, name: str, command: list, log: Path, environment: dict, deadline: float):
        """In `command`, {socket} is replaced by the descriptor of its socket."""
        self.name, self.log, self.deadline = name, log, deadline
        ours, its = socket.socketpair()
        began = time.monotonic()
        with its, open(log, "w") as output:
            words = [str(word).replace("{socket}", str(its.fileno())) for word in command]
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[its.fileno()],
                env=environment,
            )
        self.socket, self.lines = ours, ours.makefile("r")
        try:
            self._answer()
            first = self.turn(1)
        except BaseException:
            self.close()
            raise
        self.losses = first["losses"]
        self.first_step_s = time.monotonic() - began

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def turn(self, steps: int) -> dict:
        return self._ask({"turn": steps})["turn"]

    def facts(self) -> dict:
        return self._ask({"facts": True})["facts"]

    def close(self) -> None:
        self.lines.close()
        self.socket.close()  # the process exits when there are no more requests
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _ask(self, request: dict) -> dict:
        try:
            self.socket.sendall((json.dumps(request) + "\n").encode())
        except OSError:
            pass  # _answer() reports why
        return self._answer()

    def _answer(self) -> dict:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise ArmFailed(f"{self.name}: no time left")
        self.socket.settimeout(None if left == float("inf") else left)
        try:
            line = self.lines.readline()
        except TimeoutError:
            self.process.kill()
            raise ArmFailed(f"{self.name}: no answer before the deadline")
        if not line:
            raise ArmFailed(f"{self.name} exited with {self.process.wait()}: {self.log.read_text()[-500:].strip()}")
        answer = json.loads(line)
        if "error" in answer:
            raise ArmFailed(f"{self.name}: {answer['error']}")
        return answer


def trainopt_arm(sides: Sides, folder: Path, overrides: list[str], name: str = "trainopt") -> Arm:
    command = [sides.trainopt, "arm", "--socket", "{socket}", "--folder", folder / name, sides.recipe, *overrides]
    return Arm(name, command, folder / f"{name}.log", sides.trainopt_environment, sides.deadline)


def torch_arm(sides: Sides, folder: Path, name: str, options: dict) -> Arm:
    """`name`: a way, and perhaps " with " and an environment's name. `options` are those of serve.py; True stands for
    an option without a value."""
    way, _, environment = name.partition(" with ")
    words = [
        word
        for key, value in options.items()
        if value is not None
        for word in ([f"--{key}"] if value is True else [f"--{key}", value])
    ]
    python = sides.ipex_python if way.startswith("ipex") else sides.python
    command = [python, SERVE, "--socket", "{socket}", "--way", way, *words]
    variables = sides.torch_environments[environment] if environment else dict(os.environ)
    return Arm(name, command, folder / f"{name.replace(' ', '-')}.log", variables, sides.deadline)


TCMALLOC = "tcmalloc_minimal", "libtcmalloc-minimal4"


def library(name: str, package: str) -> str:
    found = ctypes.util.find_library(name)
    if not found:
        sys.exit(f"lib{name} is missing; Debian has it in the package {package}")
    return found


def with_allocator(name: str) -> dict:
    """glibc's, or what PyTorch's tuning guide recommends for training on CPUs: jemalloc, here without any return of
    memory to the kernel, or tcmalloc."""
    if name == "glibc":
        return dict(os.environ)
    if name == "tcmalloc":
        return {**os.environ, "LD_PRELOAD": library(*TCMALLOC)}
    keeps = "oversize_threshold:1,background_thread:true,metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1"
    return {**os.environ, "LD_PRELOAD": library("jemalloc", "libjemalloc2"), "MALLOC_CONF": keeps}


def ipex_environment(python: str) -> dict:
    """What IPEX's launcher sets: an allocator, Intel's OpenMP bound to cores, and no sleep between parallel regions."""
    openmp = next(Path(python).parent.parent.glob("lib/libiomp5.so"), None)
    if not openmp:
        sys.exit(f"Intel's OpenMP is missing: {python} -m pip install intel-openmp")
    return {
        **os.environ,
        "LD_PRELOAD": f"{library(*TCMALLOC)}:{openmp}",
        "KMP_AFFINITY": "granularity=fine,compact,1,0",
        "KMP_BLOCKTIME": "1",
    }
