"""scripts/package: the wheel, the starter that it installs, and both where nothing of the build machine can be seen."""

import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow
import pytest

from conftest import CHECKOUT, PROGRAM

BUILD = Path(PROGRAM).parents[1]
STARTER = BUILD / "app/starter/starter"
SITE = Path(re.search(r"^TRAINOPT_SITE_PACKAGES:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)[1])
SMALL = ["train.max_steps=2", "data.batch_size=4", "num_threads=1", "data.num_workers=0", "device=cpu"]
SMALL += ["data.transforms=[{resize: 32}, {normalize: {mean: 0.5, std: 0.5}}]"]

pytestmark = pytest.mark.skipif(
    "TRAINOPT_CUDA:BOOL=ON" not in (BUILD / "CMakeCache.txt").read_text(), reason="a build without CUDA"
)


def called(*command, cwd=None, **environment):
    return subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def stand_in(folder):
    """A build folder with this build's programs. kernel_bandwidth is built only on request; any can stand in."""
    shutil.copy(BUILD / "CMakeCache.txt", folder)
    kernels = BUILD / "scripts/bench/kernel_bandwidth"
    for name, program in (
        ("app/trainopt", PROGRAM),
        ("app/starter/starter", STARTER),
        ("tests/gpu/test_gpu", BUILD / "tests/gpu/test_gpu"),
        ("scripts/bench/kernel_bandwidth", kernels if kernels.exists() else PROGRAM),
        ("lib/libtrainopt_cuda.so", BUILD / "lib/libtrainopt_cuda.so"),
        ("lib/libtrainopt_parquet.so", BUILD / "lib/libtrainopt_parquet.so"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(program)
    for log in BUILD.glob("*_kernels.ptxas"):
        (folder / log.name).symlink_to(log)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    build, out = stand_in(tmp_path_factory.mktemp("build")), tmp_path_factory.mktemp("wheel")
    done = called(CHECKOUT / "scripts/package", out, "--build", build)
    assert done.returncode == 0 and re.search(r"\d MiB, needs torch 2\.11: ", done.stderr), done
    (found,) = out.iterdir()
    return found


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():  # like unzip, with the permissions
            path = Path(archive.extract(entry, folder))
            path.chmod(entry.external_attr >> 16 or path.stat().st_mode)
    return folder


def torch_beside(folder):
    """Links libtorch and the CUDA libraries into a folder of packages."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("torch", "nvidia"):
        (folder / name).symlink_to(SITE / name)
    return folder


# ---- the wheel ----


def test_the_wheel_says_what_it_is(wheel, unpacked, trainopt):
    version = re.search(r"^trainopt (\S+)$", trainopt("--version").out, re.MULTILINE)[1]
    version += "+torch2.11"
    tag = re.fullmatch(rf"trainopt-{re.escape(version)}-py3-none-manylinux_2_(\d+)_x86_64\.whl", wheel.name)
    assert tag and int(tag[1]) <= 35, wheel.name
    information = next(unpacked.glob("*.dist-info"))
    metadata = (information / "METADATA").read_text()
    assert f"\nVersion: {version}\n" in metadata and "\nRequires-Dist: torch==2.11.*\n" in metadata, metadata
    for path in ("configs/quickstart.yaml", "configs/ladder/resnet18/rungs.txt", "scripts/gpu_check", "scripts/sweep"):
        assert (unpacked / "trainopt" / path).read_bytes() == (CHECKOUT / path).read_bytes(), path
    assert not list(unpacked.rglob("__pycache__"))
    if (CHECKOUT / ".git").exists():
        tracked = set(called("git", "ls-files", cwd=CHECKOUT).stdout.splitlines())
        for folder in ("scripts", "configs"):
            files = [path for path in (unpacked / "trainopt" / folder).rglob("*") if path.is_file()]
            assert files and {str(path.relative_to(unpacked / "trainopt")) for path in files} <= tracked


def test_the_wheel_carries_what_torch_and_linux_lack(unpacked):
    libraries = {path.name.split("-")[0] for path in (unpacked / "trainopt.libs").iterdir()}
    assert {"libfmt", "libspdlog", "libyaml", "libjpeg", "libpng16"} <= libraries, libraries
    assert not {"libc", "libm", "libstdc++", "libtorch_cpu", "libc10", "libcudart", "libgomp"} & libraries, libraries
    licences = [path.name for path in next(unpacked.glob("*.dist-info/licenses")).iterdir()]
    brotli = {name: "libbrotli" for name in ("libbrotlidec", "libbrotlicommon")}
    packages = {"libcrypto": "libssl", "liblber": "libldap", **brotli}
    for library in libraries:
        package = packages.get(library, library.rstrip("0123456789").replace("_", "-"))
        assert any(name.startswith(package) for name in licences), (library, licences)


def test_programs_are_stripped_and_know_no_path_of_the_build_machine(unpacked):
    programs = [*unpacked.glob("trainopt/lib*/*"), *unpacked.glob("trainopt.libs/*")]
    for library in ("parquet", "cuda"):
        assert unpacked / f"trainopt/lib/libtrainopt_{library}.so" in programs
    assert len(programs) > 6
    for program in programs:
        dynamic = called("readelf", "-d", program).stdout
        for path in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic):
            assert all(part.startswith("$ORIGIN") for part in path.split(":")), (program, path)
        if program.parent.parent.name == "trainopt":
            sections = called("readelf", "-S", program).stdout
            assert ".debug_info" not in sections and ".symtab" not in sections, program
    for starter in unpacked.glob("trainopt/bin/*"):  # static, so that its messages appear on every Linux
        assert "no dynamic section" in called("readelf", "-d", starter).stdout, starter


def test_it_reads_parquet_with_pyarrow_beside_it(unpacked, digits, tmp_path):
    folder = torch_beside(tmp_path / "packages")
    shutil.copytree(unpacked, folder, dirs_exist_ok=True)
    program, source = folder / "trainopt/bin/trainopt", digits / "data/digits/image_folder/train/0"
    shutil.copytree(source, tmp_path / "images/0")
    pack = (program, "data", "pack", tmp_path / "images", tmp_path / "images.parquet")
    refused = called(*pack)
    assert refused.returncode == 3 and "pip install pyarrow==" in refused.stderr, refused
    (folder / "pyarrow").symlink_to(Path(pyarrow.__file__).parent)
    done = called(*pack)
    assert done.returncode == 0, done
    shown = called(program, "data", "show", tmp_path / "images.parquet")
    assert shown.returncode == 0 and "image.bytes (BYTE_ARRAY)" in shown.stdout, shown


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="this machine's driver is loaded")
def test_its_library_for_gpus_opens(unpacked, tmp_path):
    """Stripped and with other search paths, it is still the program's own. tests/support/fake_cuda plays the driver."""
    folder = torch_beside(tmp_path / "packages")
    shutil.copytree(unpacked, folder, dirs_exist_ok=True)
    driver = {"LD_LIBRARY_PATH": str(BUILD / "tests/support/fake_cuda"), "FAKE_CUDA_VERSION": "12080"}
    assert "the NVIDIA driver is too old" in called(folder / "trainopt/bin/trainopt", "env", **driver).stdout
    (folder / "trainopt/lib/libtrainopt_cuda.so").unlink()
    assert "library for GPUs is missing" in called(folder / "trainopt/bin/trainopt", "env", **driver).stdout


def test_pip_installs_it_for_another_python(wheel, tmp_path):
    folder = tmp_path / "packages"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--find-links", wheel.parent]
    done = called(*pip, "--target", folder, "--python-version", "3.13", "--only-binary=:all:", "trainopt")
    assert done.returncode == 0, done
    torch_beside(folder)
    for program in (folder / "bin/trainopt", folder / "trainopt/bin/trainopt"):
        done = called(program, "--version")
        assert done.returncode == 0 and "libtorch           2.11" in done.stdout, done

    # In an environment: bin/ and lib/python3.x/site-packages.
    done = called(*pip, "--prefix", tmp_path / "environment", "trainopt")
    assert done.returncode == 0, done
    packages = torch_beside(next(tmp_path.glob("environment/lib/python3*/site-packages")))
    program = tmp_path / "environment/bin/trainopt"
    done = called(program, "run", "configs/quickstart.yaml", *SMALL, cwd=tmp_path)
    assert done.returncode == 0 and "done after 2 steps" in done.stdout, done
    assert f"recipes              {tmp_path}/environment/lib/python3" in called(program, "env").stdout
    done = called(tmp_path / "environment/bin/trainopt-gpu-check", "--help", cwd=tmp_path, PYTHONPATH=str(packages))
    assert done.returncode == 0 and "usage: gpu_check" in done.stdout, done


HIDE = """
set -e
mkdir "$0/packages"
mount --bind "$1" "$0/packages"; shift
mount -t tmpfs none "$1"; shift
for library in $1; do mount --bind /dev/null "$library"; done; shift
exec "$@"
"""


def hidden(folder, *command, cwd, **environment):
    """Runs a command where the cache of the build, its compiler and its Debian libraries are not to be seen, nor
    libraries that only the loader's cache names, such as a CUDA toolkit's."""
    names = ("yaml-cpp", "spdlog", "fmt", "jpeg", "png16", "xxhash")
    libraries = {path for name in names for path in Path("/usr/lib/x86_64-linux-gnu").glob(f"lib{name}.so.*")}
    compilers = {Path(path) for name in ("g++", "gcc", "cc") if (path := shutil.which(name))}
    loader = {Path("/etc/ld.so.cache")}
    hide = " ".join(str(path) for path in sorted({path.resolve() for path in libraries | compilers | loader}))
    cache = SITE.parents[3]
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", HIDE, folder, SITE, cache, hide, *command]
    return called(*words, cwd=cwd, **environment)


def test_it_runs_where_nothing_of_the_build_machine_is(unpacked, tmp_path):
    if called("unshare", "--map-root-user", "--mount", "true").returncode != 0:
        pytest.skip("this machine permits no mount namespaces")
    for number, (program, torch, code) in enumerate(
        [(PROGRAM, "", 127), (unpacked / "trainopt/bin/trainopt", "packages/torch", 0)]  # the first shows that it hides
    ):
        place = tmp_path / str(number)
        place.mkdir()
        environment = {"TRAINOPT_TORCH": str(place / torch)} if torch else {}
        run = ("run", "configs/quickstart.yaml", "--run-dir", "out", *SMALL)
        ranks = ("launch", "-n", "2", "--", "run", "configs/quickstart.yaml", "--run-dir", "ranks", *SMALL)
        done = hidden(place, program, *run, cwd=place, **environment)
        assert done.returncode == code, done
    assert "done after 2 steps" in done.stdout, done
    (place / "packages").rmdir()
    done = hidden(place, program, *ranks, cwd=place, **environment)
    assert done.returncode == 0 and (place / "ranks/summary.json").exists(), done


def test_gpu_check_runs_in_an_unpacked_wheel(unpacked, tmp_path):
    check = [sys.executable, unpacked / "trainopt/scripts/gpu_check", "run", tmp_path / "results"]
    torch = {"TRAINOPT_TORCH": str(SITE / "torch")}
    done = called(*check, **torch)
    if not any(Path("/dev").glob("nvidia[0-9]*")):  # otherwise the GPU is hidden
        assert done.returncode == 77 and "this machine has no GPU" in done.stderr, done
    done = called(*check, "--cpu", "--only", "tests", **torch)
    assert done.returncode == 0 and "tests: skipped" in done.stdout, done
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_text("__version__ = '1.0'\n")
    done = called(*check, TRAINOPT_TORCH=str(tmp_path / "torch"))
    assert done.returncode == 2 and "1.0 is installed" in done.stderr and len(done.stderr.splitlines()) == 1, done


@pytest.mark.full  # trains for minutes
def test_gpu_check_trains_in_an_unpacked_wheel(unpacked, tmp_path):
    check = [sys.executable, unpacked / "trainopt/scripts/gpu_check", "run", tmp_path / "results"]
    done = called(*check, "--cpu", "--only", "curves", TRAINOPT_TORCH=str(SITE / "torch"))
    assert done.returncode == 0 and "curves: ok" in done.stdout, done


# What ptxas -v says of a kernel `void spills(int)`.
SPILLING = """\
ptxas info    : Compiling entry function '_Z6spillsi' for 'sm_90'
ptxas info    : Function properties for _Z6spillsi
    16 bytes stack frame, 12 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 16 bytes cumulative stack size
"""


def test_only_tracked_files_are_packed(tmp_path):
    package = runpy.run_path(str(CHECKOUT / "scripts/package"))
    for name in ("gpu/a.py", "gpu/own notes.txt", "gpu/__pycache__/a.pyc", "gpu_check"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    def names(name):
        return [str(path) for path in package["sources"](name, tmp_path)]

    assert names("gpu") == ["gpu/a.py", "gpu/own notes.txt"] and names("gpu_check") == ["gpu_check"]
    for words in (("init", "--quiet"), ("add", "gpu/a.py", "gpu_check")):
        assert called("git", "-C", tmp_path, *words).returncode == 0
    assert names("gpu") == ["gpu/a.py"] and names("gpu_check") == ["gpu_check"]
    with pytest.raises(package["Refused"], match="missing, or git does not track them"):
        names("none")


def test_a_wheel_that_cannot_be_made_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/CMakeCache.txt").write_text("TRAINOPT_CUDA:BOOL=OFF\n")
    for name in ("half", "other half", "spilling", "unknown"):
        (tmp_path / name).mkdir()
        stand_in(tmp_path / name)
    (tmp_path / "half/scripts/bench/kernel_bandwidth").unlink()
    (tmp_path / "other half/lib/libtrainopt_cuda.so").unlink()
    for log in [*tmp_path.glob("spilling/*.ptxas"), *tmp_path.glob("unknown/*.ptxas")]:
        log.unlink()
    (tmp_path / "spilling/made_up_kernels.ptxas").write_text(SPILLING)
    for says, folder in {
        "has no CUDA": tmp_path / "cpu",
        "not built in": tmp_path / "half",
        f"not built in {tmp_path}/other half: lib/libtrainopt_cuda.so": tmp_path / "other half",
        "no reports of ptxas": tmp_path / "unknown",
        "in local memory, or its report is damaged: spills for sm_90: stack 16 bytes, spills 24": tmp_path / "spilling",
        "not a build folder": tmp_path / "none",
    }.items():
        done = called(CHECKOUT / "scripts/package", tmp_path / "out", "--build", folder)
        assert done.returncode == 2 and says in done.stderr and len(done.stderr.splitlines()) == 1, (says, done)
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file/in"):
        done = called(CHECKOUT / "scripts/package", out)  # says so before it builds
        assert done.returncode == 2 and done.stderr == f"package: cannot write into the folder for the wheel: {out}\n"


# ---- the starter, in made-up environments with a program that says what it was given ----

SAYS = '#!/bin/sh\necho "$$ $LD_LIBRARY_PATH $*"\n'


def environment(prefix, packages="lib/python3.13/site-packages", program=SAYS):
    """An environment in which trainopt is installed; returns its folder of packages."""
    (prefix / "bin").mkdir(parents=True)
    shutil.copy(STARTER, prefix / "bin/trainopt")
    file = prefix / packages / "trainopt/libexec/trainopt"
    file.parent.mkdir(parents=True)
    file.write_text(program)
    file.chmod(0o755)
    return prefix / packages


def made_up_torch(packages, version="2.11.0+cu130", cuda="'13.0'"):
    (packages / "torch/lib").mkdir(parents=True)
    (packages / "nvidia/cu13/lib").mkdir(parents=True)
    (packages / "torch/version.py").write_text(
        f"from typing import Optional\n\n__version__ = '{version}'\ndebug = False\n"
        f"cuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n"
    )


def start(prefix, *arguments, home=None, path="/nowhere", **variables):
    """Without the torch of this machine's Python."""
    cleared = {name: value for name, value in os.environ.items() if not name.startswith(("LD_LIBRARY", "TRAINOPT"))}
    return subprocess.run(
        [prefix / "bin/trainopt", *arguments],
        env={**cleared, "HOME": str(home or prefix / "nobody"), "PATH": str(path), **variables},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "packages, torch",
    [
        ("lib/python3.10/site-packages", "environment/lib/python3.10/site-packages"),
        ("lib64/python3.14/site-packages", "environment/lib/python3.14/site-packages"),
        ("lib/python3.11/dist-packages", "environment/lib/python3.11/dist-packages"),
        ("", "environment"),  # pip install --target
        ("lib/python3.12/site-packages", "home/.local/lib/python3.12/site-packages"),
        ("lib/python3.12/site-packages", "other/lib/python3.12/site-packages"),  # of python3 in PATH
    ],
)
def test_the_starter_finds_torch(tmp_path, packages, torch):
    environment(tmp_path / "environment", packages)
    made_up_torch(tmp_path / torch)
    (tmp_path / "other/bin").mkdir(parents=True)
    (tmp_path / "other/bin/python3").touch()
    places = {"home": tmp_path / "home", "path": f"/nowhere:{tmp_path}/other/bin"}
    done = start(tmp_path / "environment", "run", "a b", **places)
    folder = tmp_path / torch
    assert done.stdout.split(" ", 1)[1] == f"{folder}/torch/lib:{folder}/nvidia/cu13/lib run a b\n", done

    # A virtual environment has only its own packages, unless it was created otherwise.
    config = tmp_path / "environment/pyvenv.cfg"
    config.write_text(f"home = {tmp_path}/other/bin\ninclude-system-site-packages = false\n")
    done = start(tmp_path / "environment", **places)
    own = torch.startswith("environment")
    assert done.returncode == (0 if own else 2) and ("torch was not found" in done.stderr) != own, done
    config.write_text(f"home = {tmp_path}/other/bin\ninclude-system-site-packages = true\n")
    done = start(tmp_path / "environment", **places)
    assert done.returncode == (2 if torch.startswith("home") else 0), done


def test_the_starter_prefers_a_torch_that_fits(tmp_path):
    for minor, version in ((13, "2.12.0"), (12, "2.11.1+cu130"), (9, "2.11.0")):
        made_up_torch(tmp_path / f"lib/python3.{minor}/site-packages", version)
    environment(tmp_path, "lib/python3.13/site-packages")
    assert "/lib/python3.12/site-packages/torch/lib" in start(tmp_path).stdout
    made_up_torch(tmp_path / "named")
    done = start(tmp_path, TRAINOPT_TORCH=str(tmp_path / "named/torch"), LD_LIBRARY_PATH="/before")
    assert f" {tmp_path}/named/torch/lib:{tmp_path}/named/nvidia/cu13/lib:/before \n" in done.stdout, done


def test_the_starter_takes_a_torch_without_cuda(tmp_path):
    made_up_torch(environment(tmp_path), "2.11.0+cpu", "None")
    assert start(tmp_path).returncode == 0


@pytest.mark.parametrize(
    "torch, says",
    [
        (None, "torch was not found; install it with pip install 'torch==2.11.*' in the same environment"),
        ({"version": "2.10.0"}, "was built for torch 2.11, and 2.10.0 is installed; install the wheel for 2.10"),
        ({"version": "2.110.0"}, "was built for torch 2.11, and 2.110.0 is installed"),
        ({"version": "2.11.0+cu128", "cuda": "'12.8'"}, "for CUDA 13, and the installed torch is for CUDA 12.8"),
    ],
)
def test_the_starter_says_what_is_wrong_with_torch(tmp_path, torch, says):
    packages = environment(tmp_path)
    if torch is not None:
        made_up_torch(packages, **torch)
    done = start(tmp_path, "--version")
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done
    assert done.stderr.startswith("trainopt: ") and says in done.stderr, done
    found = ["pip install --force-reinstall 'torch==2.11.*'", str(packages / "torch")] if torch else [str(packages)]
    assert all(words in done.stderr for words in found), done


def test_the_starter_says_what_else_is_wrong(tmp_path):
    packages = environment(tmp_path / "one")
    for says, variables in {
        "TRAINOPT_TORCH must be the folder of the Python package torch": {"TRAINOPT_TORCH": str(tmp_path)},
        "must not contain ':', ';' or '$'": {"TRAINOPT_TORCH": str(tmp_path / "a:b/torch")},
    }.items():
        if not (tmp_path / "a:b").exists():
            made_up_torch(tmp_path / "a:b")
        done = start(tmp_path / "one", **variables)
        assert done.returncode == 2 and says in done.stderr and len(done.stderr.splitlines()) == 1, done
    made_up_torch(packages)
    (packages / "trainopt/libexec/trainopt").chmod(0o644)
    done = start(tmp_path / "one")
    assert done.returncode == 2 and "cannot start the program: Permission denied" in done.stderr, done
    (packages / "trainopt/libexec/trainopt").unlink()
    assert "the program itself is missing" in start(tmp_path / "one").stderr


def test_signals_and_exit_codes_are_the_programs(tmp_path):
    for program, code in (("exit 7", 7), ("kill -TERM $$", -signal.SIGTERM), ("kill -SEGV $$", -signal.SIGSEGV)):
        prefix = tmp_path / program.replace(" ", "-").replace("$", "")
        made_up_torch(environment(prefix, program=f"#!/bin/sh\n{program}\n"))
        assert start(prefix).returncode == code, program
    made_up_torch(environment(tmp_path / "same"))
    process = subprocess.Popen([tmp_path / "same/bin/trainopt"], stdout=subprocess.PIPE, text=True)
    assert process.communicate()[0].split()[0] == str(process.pid)  # the starter has become the program
