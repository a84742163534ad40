#!/usr/bin/env python3
"""Checks the machine code of the GPU kernels against the table in lib/kernels/machine_code.md.

  machine_code.py BUILD            compiles each kernel as in BUILD, for the architectures of the page, and checks it
  machine_code.py BUILD --table    prints the page's table with the counts of today and N from them

Needs nvdisasm, which is in the test environment, and no GPU.
"""

import argparse
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "lib/kernels/machine_code.md"
ARCHITECTURES = ("sm_80", "sm_90")  # of the table
MOST = 102  # issue slots per 16 bytes; derived in the page
ALSO_WITHOUT_LOCAL_MEMORY = ("sm_120",)  # the build checks sm_75
# Pipes that take half as many instructions per clock as a multiprocessor issues, and one that takes an eighth.
ALU = re.compile(
    r"^(?:FSETP|FSEL|SEL|FMNMX|VIMNMX|IMNMX|ISETP|IADD3|VIADD|LOP3|PLOP3|SHF|PRMT|LEA|F2FP|MOV|P2R|R2P|SGXT|BMSK)\b"
)
INTEGER_MULTIPLY = re.compile(r"^IMAD\b")
SPECIAL = re.compile(r"^(?:MUFU|F2F|F2I|I2F|FRND|POPC|FLO)\b")
ACCESS = re.compile(r"^(?:LDG|STG|LD|ST)[.\s]")
LOCAL = re.compile(r"^(?:LDL|STL)[.\s]")
COLUMNS = ["kernel", "loops", "bytes", "narrow", *ARCHITECTURES, "N"]


def nvdisasm() -> Path:
    for folder in map(Path, sys.path):
        if (found := folder / "nvidia/cu13/bin/nvdisasm").exists():
            found.chmod(0o755)  # the package lets only its owner run it
            return found
    raise SystemExit("machine_code: nvdisasm is missing; run this with scripts/python test")


@dataclass
class Loop:
    """`accesses`: the bytes of each access to global memory."""

    body: list[str]
    accesses: list[int]

    def cost(self) -> int:
        """Instructions, in issue slots of the busiest pipe."""
        pipes = ((ALU, 2), (INTEGER_MULTIPLY, 2), (SPECIAL, 8))
        return max(len(self.body), *(slots * sum(map(bool, map(pipe.match, self.body))) for pipe, slots in pipes))

    def bytes(self) -> int:
        return sum(self.accesses)


@dataclass
class Kernel:
    labels: dict[str, int] = field(default_factory=dict)
    code: list[tuple[int, str]] = field(default_factory=list)  # address, instruction without its predicate

    def uses_local_memory(self) -> bool:
        return any(LOCAL.match(text) for _, text in self.code)

    def loops(self) -> list[Loop]:
        """Every stretch of code that ends with a jump to its beginning."""
        ends = []
        for address, text in self.code:
            target = re.search(r"^BRA[.\w]* .*\((\.L_\w+)\)", text)
            if target and (begin := self.labels.get(target[1], address)) < address:
                ends.append((begin, address))
        return [self.loop(*each) for each in ends]

    def loop(self, begin: int, end: int) -> Loop:
        body = [text for address, text in self.code if begin <= address <= end]
        return Loop(body, [width(text) for text in body if ACCESS.match(text)])


def width(access: str) -> int:
    parts = access.split()[0].split(".")
    sizes = {"8": 1, "U8": 1, "S8": 1, "16": 2, "U16": 2, "S16": 2, "64": 8, "128": 16}
    return next((sizes[part] for part in parts if part in sizes), 4)


def kernels_in(disassembly: str) -> dict[str, Kernel]:
    """By name as in the page: without namespaces and arguments."""
    found, waiting = {}, []
    for line in disassembly.splitlines():
        if section := re.match(r"\.text\.(\S+):", line):
            found[section[1]] = kernel = Kernel()
        elif label := re.match(r"(\.L_\w+):", line):
            waiting.append(label[1])
        elif found and (instruction := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line)):
            address = int(instruction[1], 16)
            kernel.labels.update(dict.fromkeys(waiting, address))
            kernel.code.append((address, re.sub(r"^@!?U?P\w+\s+", "", instruction[2])))
            waiting = []
    names = subprocess.run(["c++filt"], input="\n".join(found), capture_output=True, text=True, check=True).stdout
    return {plain(name): kernel for name, kernel in zip(names.splitlines(), found.values(), strict=True)}


def plain(name: str) -> str:
    bare = re.sub(r"\(anonymous namespace\)::|[a-z_0-9]+::|^void ", "", name)
    return re.sub(r"> (?=>)", ">", bare[: bare.index("(")])


def compiled(command: list[str], architecture: str, folder: Path) -> dict[str, Kernel]:
    """`command`: how the build compiles a file of kernels; its architectures and outputs are replaced."""
    compiler = next(i for i, word in enumerate(command) if word.endswith("/nvcc"))
    kept, words = [command[compiler]], iter(command[compiler + 1 :])
    for word in words:
        if word in ("-gencode", "-o", "-MF", "-MT", "-x"):
            next(words)
        elif not re.match(r"-gencode|--generate-code|-arch|-Xptxas|-Xfatbin|-MD|-c$", word):
            kept.append(word)
    cubin = folder / f"{architecture}-{Path(command[-1]).parent.name}.cubin"
    ran = subprocess.run([*kept, "-cubin", f"-arch={architecture}", "-o", cubin], capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"machine_code: {' '.join(kept)} failed:\n{ran.stderr}")
    return kernels_in(subprocess.run([nvdisasm(), "-c", cubin], capture_output=True, text=True, check=True).stdout)


def all_kernels(build: Path) -> dict[str, dict[str, Kernel]]:
    """By architecture and name."""
    entries = json.loads((build / "compile_commands.json").read_text())
    commands = [shlex.split(each["command"]) for each in entries if each["file"].endswith("/cuda.cu")]
    if not commands:
        raise SystemExit(f"machine_code: this build has no GPU kernels: {build}")
    architectures = (*ARCHITECTURES, *ALSO_WITHOUT_LOCAL_MEMORY)
    found = {architecture: {} for architecture in architectures}
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        work = [(command, architecture) for command in commands for architecture in architectures]
        for (_, architecture), part in zip(work, pool.map(lambda each: compiled(*each, Path(scratch)), work)):
            found[architecture].update(part)
    return found


def contract() -> dict[str, dict[str, str]]:
    """The rows of the page's table, by kernel."""
    rows = [line.strip("| \n").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): dict(zip(COLUMNS, row, strict=True)) for row in rows}


def chosen(kernel: Kernel, row: dict[str, str]) -> list[Loop]:
    by_size = sorted(kernel.loops(), key=lambda loop: (-loop.bytes(), len(loop.body)))
    return by_size[: int(row["loops"])]


def per_16_bytes(loops: list[Loop], row: dict[str, str]) -> float:
    accessed = sum(loop.bytes() for loop in loops)
    return sum(loop.cost() for loop in loops) * 16 / (accessed if row["bytes"] == "all" else int(row["bytes"]))


def problems(name: str, kernel: Kernel, row: dict[str, str] | None) -> list[str]:
    found = ["keeps variables in local memory"] if kernel.uses_local_memory() else []
    if row is None:
        return found
    loops = chosen(kernel, row)
    if len(loops) < int(row["loops"]):
        return [*found, f"has {len(loops)} loops, and the page counts {row['loops']}"]
    narrow = sum(size != 16 for loop in loops for size in loop.accesses)
    if narrow > int(row["narrow"]):
        found.append(f"has {narrow} accesses of less than 128 bits in its loop, and the page allows {row['narrow']}")
    if (count := per_16_bytes(loops, row)) > float(row["N"]):
        found.append(f"takes {count:.1f} issue slots per 16 bytes, and the page allows {row['N']}")
    if float(row["N"]) > MOST:
        found.append(f"is allowed {row['N']} issue slots per 16 bytes, and no kernel may have more than {MOST}")
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build", type=Path)
    options.add_argument("--table", action="store_true")
    arguments = options.parse_args()
    rows, found = contract(), all_kernels(arguments.build)
    if arguments.table:
        print("| " + " | ".join(COLUMNS) + " |\n|---" + "|--:" * (len(COLUMNS) - 1) + "|")
        for name, row in rows.items():
            counts = [per_16_bytes(chosen(found[architecture][name], row), row) for architecture in ARCHITECTURES]
            row |= {architecture: f"{count:.0f}" for architecture, count in zip(ARCHITECTURES, counts)}
            row["N"] = str(min(MOST, math.ceil(1.1 * max(counts))))
            print("| " + " | ".join([f"`{name}`", *(row[column] for column in COLUMNS[1:])]) + " |")
        return 0
    bad = [f"no such kernel, but a row of the page: {name}" for name in rows if name not in found["sm_90"]]
    for architecture, kernels in found.items():
        for name, kernel in kernels.items():
            row = rows.get(name) if architecture in ARCHITECTURES else None
            bad += [f"{architecture}: {name} {problem}" for problem in problems(name, kernel, row)]
            if name not in rows and re.search(r"(BFloat16|Float16|float|short|int), [48]\b", name):
                bad.append(f"{architecture}: {name} takes 16 bytes at a time and has no row in the page")
    print("\n".join(bad or [f"{sum(map(len, found.values()))} kernels, {len(rows)} rows: all as in the page"]))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
