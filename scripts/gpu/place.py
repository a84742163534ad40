"""Where gpu_check runs: in a built checkout, or in a folder created by `gather`, which has bin/ and lib/ and needs no
compiler."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


class Refused(Exception):
    """The check cannot run; the message is one sentence for the user."""


@dataclass
class Place:
    trainopt: Path
    test_gpu: Path
    kernel_bandwidth: Path
    python: str  # of an environment that has torch
    environment: dict  # variables for trainopt's programs
    built_from: str

    def facts(self) -> dict:
        done = subprocess.run(
            [self.trainopt, "env", "--json"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise Refused(f"{self.trainopt} env failed: {done.stderr.strip()[-500:]}")
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


def commit() -> str:
    done = subprocess.run(
        ["git", "-C", TOP, "describe", "--always", "--dirty=+changes", "--abbrev=12"], capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


def python_of(torch: Path) -> str:
    """An interpreter that imports this torch: the current one, or that of <environment>/lib/python3.x/site-packages."""
    found = importlib.util.find_spec("torch")
    if found and Path(found.origin).parent.resolve() == torch.resolve():
        return sys.executable
    own = torch.parents[3] / "bin/python3"
    return str(own) if own.exists() else sys.executable


def test_python() -> str:
    """The interpreter of the checkout's test environment (PyTorch, torchvision), which is created if missing."""
    command = [TOP / "scripts/python", "test", "-c", "import sys; print(sys.executable)"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def build_here(*targets: str) -> Path:
    subprocess.run([TOP / "scripts/build", *targets], check=True)
    return TOP / "build"


def built(build: Path) -> Place:
    cached(build, "TRAINOPT_SITE_PACKAGES")  # raises if this is not a build folder
    return Place(
        build / "app/trainopt",
        build / "tests/gpu/test_gpu",
        build / "scripts/bench/kernel_bandwidth",
        test_python(),
        dict(os.environ),
        commit(),
    )


def carried() -> Place:
    named = os.environ.get("TRAINOPT_TORCH")
    if not named and (found := importlib.util.find_spec("torch")):
        named = found.submodule_search_locations[0]
    if not named or not (torch := Path(named) / "version.py").exists():
        raise Refused(f"torch was not found; set TRAINOPT_TORCH to its folder: '{named or ''}'")
    here, needed = version_of_torch(torch.parent), (TOP / "torch_version").read_text().strip()
    if here != needed:
        raise Refused(f"built for another torch; install the version that is needed: here {here}, needed {needed}")
    libraries = [str(TOP / "lib"), str(torch.parent / "lib"), os.environ.get("LD_LIBRARY_PATH")]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, libraries))}
    programs = TOP / "bin"
    return Place(
        programs / "trainopt",
        programs / "test_gpu",
        programs / "kernel_bandwidth",
        python_of(torch.parent),
        environment,
        (TOP / "commit").read_text().strip(),
    )


def find(build: Path | None) -> Place:
    if (TOP / "bin/trainopt").exists():
        return carried()
    return built(build or build_here("trainopt", "test_gpu", "kernel_bandwidth"))
