"""Where gpu_check runs: in a built checkout, or in a package, which needs no compiler."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# Where a build folder has the programs. A package has them in bin/.
PROGRAMS = {
    "trainopt": Path("app/trainopt"),
    "test_gpu": Path("tests/gpu/test_gpu"),
    "kernel_bandwidth": Path("scripts/bench/kernel_bandwidth"),
}


class Refused(Exception):
    """The check cannot run; the message is one sentence for the user."""


@dataclass
class Place:
    trainopt: Path
    test_gpu: Path
    kernel_bandwidth: Path
    python: str  # of an environment that has torch
    environment: dict  # variables for trainopt's programs

    def facts(self) -> dict:
        """What `trainopt env` says of the program and the machine."""
        try:
            done = subprocess.run(
                [self.trainopt, "env", "--json"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
        except OSError as error:
            raise Refused(f"cannot start the program ({error.strerror}): {self.trainopt}") from error
        if done.returncode != 0:
            raise Refused(done.stderr.strip()[-2000:].removeprefix("trainopt: ") or f"{self.trainopt} env failed")
        return json.loads(done.stdout)


def version_of_torch(torch: Path) -> str:
    return re.search(r"^__version__ = '([^']*)'", (torch / "version.py").read_text(), re.MULTILINE)[1]


def cached(build: Path, name: str) -> str:
    """The value of a variable in CMakeCache.txt."""
    cache = build / "CMakeCache.txt"
    if not cache.exists():
        raise Refused(f"not a build folder (it has no CMakeCache.txt): {build}")
    found = re.search(rf"^{name}:\w+=(.*)$", cache.read_text(), re.MULTILINE)
    return found[1] if found else ""


def test_python() -> str:
    """The interpreter of the checkout's test environment (PyTorch, torchvision), which is created if missing."""
    command = [TOP / "scripts/python", "test", "-c", "import sys; print(sys.executable)"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def built(build: Path) -> Place:
    cached(build, "TRAINOPT_SITE_PACKAGES")  # raises if this is not a build folder
    return Place(*(build / path for path in PROGRAMS.values()), test_python(), dict(os.environ))


def python_of(torch: Path) -> str:
    """An interpreter that imports this torch: the current one, or that of <environment>/lib/python3.x/site-packages."""
    found = importlib.util.find_spec("torch")
    if found and Path(found.origin).parent.resolve() == torch.resolve():
        return sys.executable
    own = torch.absolute().parents[3] / "bin/python3"
    return str(own) if own.exists() else sys.executable


def packaged() -> Place:
    """The programs in bin/ find torch themselves; this Python's is preferred, so that both sides use the same."""
    environment, python = dict(os.environ), sys.executable
    if named := environment.get("TRAINOPT_TORCH"):
        python = python_of(Path(named))
    elif found := importlib.util.find_spec("torch"):
        environment["TRAINOPT_TORCH"] = found.submodule_search_locations[0]
    return Place(*(TOP / "bin" / name for name in PROGRAMS), python, environment)


def find(build: Path | None) -> Place:
    if (TOP / "libexec").exists():
        return packaged()
    if not build:
        subprocess.run([TOP / "scripts/build", *PROGRAMS], check=True)
    return built(build or TOP / "build")
