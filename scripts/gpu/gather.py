"""Collects the stripped files that a GPU machine without a compiler needs in one folder."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from .place import TOP, Refused, build_here, cached, commit, version_of_torch

LIMIT_MIB = 64
PROGRAMS = ("app/trainopt", "tests/gpu/test_gpu", "scripts/bench/kernel_bandwidth")
SCRIPTS = ("gpu_check", "gpu", "ladder.sh", "summaries.py", "bench/common.py", "bench/peers")
OF_GLIBC = re.compile(r"/(libc|libm|libdl|librt|libpthread|libutil|libresolv)\.so\.\d+$")  # without libstdc++


def output_of(*words) -> str:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout


def own_libraries(programs: list[Path]) -> list[Path]:
    """Shared libraries that are part of neither torch nor glibc."""
    found = {
        Path(path)
        for program in programs
        for path in re.findall(r"^.* => (/\S*) ", output_of("ldd", program), re.MULTILINE)
    }
    return sorted(
        path for path in found if not re.search(r"/(torch|nvidia)/", str(path)) and not OF_GLIBC.search(str(path))
    )


def newest_glibc(files: list[Path]) -> str:
    versions = {
        tuple(map(int, found.split(".")))
        for file in files
        for found in re.findall(r"GLIBC_([\d.]+)", output_of("objdump", "-T", file))
    }
    return "GLIBC_" + ".".join(map(str, max(versions)))


def gather(folder: Path, build: Path | None) -> None:
    build = build or build_here("trainopt", "test_gpu", "kernel_bandwidth")
    if cached(build, "TRAINOPT_CUDA") != "ON":
        raise Refused(
            f"this build has no CUDA, so there is nothing to test on a GPU; configure TRAINOPT_CUDA=ON: {build}"
        )
    if folder.exists() and any(folder.iterdir()):
        raise Refused(f"the folder must be new or empty: {folder}")
    if missing := [path for path in PROGRAMS if not (build / path).exists()]:
        raise Refused(f"not built in {build}: {', '.join(missing)}")
    for name in ("bin", "lib", "scripts/bench", "configs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for path in PROGRAMS:
        shutil.copy(build / path, folder / "bin")
    for library in own_libraries(list((folder / "bin").iterdir())):
        shutil.copy(library, folder / "lib")
    files = [*(folder / "bin").iterdir(), *(folder / "lib").iterdir()]
    output_of("strip", *files)
    for name in SCRIPTS:
        here, there = TOP / "scripts" / name, folder / "scripts" / name
        (
            shutil.copytree(here, there, ignore=shutil.ignore_patterns("__pycache__"))
            if here.is_dir()
            else shutil.copy(here, there)
        )
    shutil.copytree(TOP / "configs/ladder", folder / "configs/ladder")
    version = version_of_torch(Path(cached(build, "TRAINOPT_SITE_PACKAGES")) / "torch")
    (folder / "torch_version").write_text(version + "\n")
    (folder / "commit").write_text(commit() + "\n")
    mib = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
    print(f"gpu_check: the GPU machine needs torch {version} and {newest_glibc(files)} or newer", file=sys.stderr)
    print(f"gpu_check: {mib:.1f} MiB in {folder}", file=sys.stderr)
    if mib > LIMIT_MIB:
        raise Refused(f"{mib:.1f} MiB exceed the {LIMIT_MIB} MiB limit of a gathered folder: {folder}")
