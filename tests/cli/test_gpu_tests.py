"""scripts/gpu_tests.sh: what is carried to a GPU machine, as far as it can be tried without one."""
import os
import re
import subprocess
from pathlib import Path

import pytest

from conftest import CHECKOUT, PROGRAM

BUILD = Path(PROGRAM).parents[1]
NO_GPU = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}


def script(path, *arguments, **environment):
    return subprocess.run([path, *arguments], env={**NO_GPU, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True)


@pytest.fixture(scope="module")
def gathered(tmp_path_factory):
    if "TRAINOPT_CUDA:BOOL=ON" not in (BUILD / "CMakeCache.txt").read_text():
        pytest.skip("a build without CUDA")
    folder = tmp_path_factory.mktemp("gpu") / "carried"
    done = script(CHECKOUT / "scripts/gpu_tests.sh", "gather", folder, "--build", BUILD)
    assert done.returncode == 0, done.stderr
    return folder, done.stderr


def torch_folder():
    found = re.search(r"^TRAINOPT_SITE_PACKAGES:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    return Path(found[1]) / "torch"


def test_gathered_is_whole_and_stripped(gathered):
    folder, said = gathered
    assert re.search(r"needs torch 2\.\S+ and GLIBC_2\.\d+", said) and re.search(r"\d[KM] in ", said), said
    libraries = {path.name.split(".so")[0] for path in (folder / "lib").iterdir()}
    assert {"libfmt", "libspdlog", "libyaml-cpp", "libstdc++"} <= libraries, libraries
    assert not {"libc", "libm", "libtorch_cpu", "libc10", "libcudart"} & libraries, libraries
    for program in ("trainopt", "test_gpu"):
        sections = subprocess.run(["readelf", "-S", folder / "bin" / program], capture_output=True, text=True, check=True).stdout
        assert ".debug_info" not in sections and ".symtab" not in sections, program
    carried = script("/usr/bin/ldd", folder / "bin/trainopt", LD_LIBRARY_PATH=str(folder / "lib")).stdout
    assert f"{folder}/lib/libfmt" in carried, carried


def test_running_without_a_gpu_says_so_and_is_skipped(gathered, tmp_path):
    folder, _ = gathered
    done = script(folder / "scripts/gpu_tests.sh", "run", tmp_path / "results", TRAINOPT_TORCH=str(torch_folder()))
    assert done.returncode == 77 and "no GPU" in (tmp_path / "results/gpu.txt").read_text(), done
    assert '"gpus": []' in (tmp_path / "results/environment.json").read_text()


def test_what_cannot_work_is_one_sentence(gathered, tmp_path):
    folder, _ = gathered
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_text("__version__ = '1.0'\n")
    (tmp_path / "CMakeCache.txt").write_text("TRAINOPT_CUDA:BOOL=OFF\n")
    ours = CHECKOUT / "scripts/gpu_tests.sh"
    for says, done in {
        "built for another torch": script(folder / "scripts/gpu_tests.sh", "run", tmp_path / "results", TRAINOPT_TORCH=str(tmp_path / "torch")),
        "made by gather": script(ours, "run", tmp_path / "results"),
        "has no CUDA": script(ours, "gather", tmp_path / "out", "--build", tmp_path),
        "new or empty": script(ours, "gather", folder, "--build", BUILD),
    }.items():
        assert done.returncode == 2 and says in done.stderr and len(done.stderr.splitlines()) == 1, (says, done)
