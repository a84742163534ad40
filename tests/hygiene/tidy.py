#!/usr/bin/env python3
"""Runs clang-tidy with the checks in .clang-tidy and prints its findings. Exit code 1 if there are any, 77 without
clang 14.

tidy.py CHECKOUT           the modules without libtorch
tidy.py --all BUILD        every file that the build folder BUILD compiles for lib/ and app/
tidy.py --self-test        plants a use after a move and expects it to be found

Each module without libtorch is checked as one file that includes all its sources, so that the headers, which take most
of the time, are parsed only once.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MODULES = ("base", "statistics", "config", "storage", "storage/s3", "checkpoint", "data/image")
FLAGS = ["-std=c++20", "-march=x86-64-v3", "-DFMT_SHARED", "-DSPDLOG_COMPILED_LIB", "-DSPDLOG_FMT_EXTERNAL"]
CLANG_TIDY = Path(sys.executable).with_name("clang-tidy")
CORES = len(os.sched_getaffinity(0))


def resources():
    """The folder of clang's own headers, which the wheel of clang-tidy 14 lacks; None without clang 14."""
    try:
        folder = subprocess.run(["clang++", "-print-resource-dir"], capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return None
    return folder if Path(folder).name.split(".")[0] == "14" else None


def tidy(file, flags, top):
    """(whether nothing was found, output)"""
    command = [CLANG_TIDY, "--quiet", f"--config-file={top}/.clang-tidy", "--header-filter=/(lib|app)/", file]
    done = subprocess.run([*command, "--", *flags], cwd=top, capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


def tidy_module(module, flags, top):
    sources = sorted((top / "lib" / module).glob("*.cpp"))
    with tempfile.TemporaryDirectory() as folder:
        together = Path(folder) / "together.cpp"
        together.write_text("".join(f'#include "{source}"\n' for source in sources))
        well, said = tidy(together, flags, top)
    if "clang-diagnostic-error" in said:  # two files define the same internal name: check one by one
        results = [tidy(source, flags, top) for source in sources]
        well, said = all(result[0] for result in results), "".join(result[1] for result in results)
    return well, said


def sources_of(file):
    """The sources that a file compiles: itself, or those that a batch of CMake's includes."""
    if file.parent.name != "Unity":
        return [file]
    return [Path(line.split('"')[1]) for line in file.read_text().splitlines() if line.startswith('#include "')]


def compiled(build, top):
    """Yields (file, flags) of each source in lib/ and app/ that g++ compiles, without flags unknown to clang."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words, flags = shlex.split(entry["command"]), []
        for before, word in zip(words, words[1:]):
            if before in ("-isystem", "-I"):
                flags += [before, str((Path(entry["directory"]) / word).resolve())]
            elif word.startswith(("-I", "-D", "-std=", "-m", "-f")) and word not in ("-I", "-fpch-preprocess"):
                flags.append(word)
        for file in sources_of(Path(entry["file"])):
            if file.suffix == ".cpp" and file.is_relative_to(top) and file.relative_to(top).parts[0] in ("lib", "app"):
                yield file, flags


def report(results):
    said = [text for well, text in results if not well]
    print("\n".join(said) or "nothing found")
    return 1 if said else 0


def self_test(top, flags):
    with tempfile.TemporaryDirectory() as folder:
        planted = Path(folder) / "lib" / "planted"
        planted.mkdir(parents=True)
        (planted / "good.cpp").write_text("#include <string>\nint good(const std::string& a) { return a.size(); }\n")
        (planted / "bad.cpp").write_text(
            "#include <string>\n#include <utility>\nvoid take(std::string);\n"
            "bool bad(std::string a) { take(std::move(a)); return a.empty(); }\n"
        )
        (Path(folder) / ".clang-tidy").write_text((top / ".clang-tidy").read_text())
        well, said = tidy_module("planted", flags, Path(folder))
    assert not well and said.count("[bugprone-use-after-move") == 1 and "bad.cpp:4" in said, said
    print("the planted fault was found")
    return 0


def main(arguments):
    clang = resources()
    if clang is None:
        print("clang 14 is missing; on Debian 12 install clang")
        return 77
    top = Path(__file__).resolve().parents[2]
    flags = [f"-resource-dir={clang}", *FLAGS, f"-I{top}/lib"]
    if arguments[0] == "--self-test":
        return self_test(top, flags)
    with ThreadPoolExecutor(CORES) as threads:
        if arguments[0] == "--all":
            files = compiled(Path(arguments[1]).resolve(), top)
            return report(threads.map(lambda file: tidy(file[0], [flags[0], *file[1]], top), files))
        return report(threads.map(lambda module: tidy_module(module, flags, top), MODULES))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    sys.exit(main(sys.argv[1:]))
