"""Shared by the benchmarks: the path of trainopt, intervals, facts about the machine, and the results files."""

import datetime
import json
import os
import platform
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = HERE / "results"

# Switches that have an effect on a CPU and leave training results unchanged, or nearly so.
SWITCHES = {"channels_last": True, "set_to_none": True, "fused_optimizer": True, "host_allocator": True}


def trainopt_binary() -> Path:
    path = Path(os.environ.get("TRAINOPT_BINARY") or ROOT / "build/app/trainopt")
    if not path.exists():
        sys.exit(f"{path} is missing: build the target trainopt, or set TRAINOPT_BINARY to the program")
    return path


def allowed_cores() -> int:
    return len(os.sched_getaffinity(0))


def write_recipe(folder: Path, content: dict, name: str) -> Path:
    path = Path(folder) / f"{name}.yaml"
    path.write_text(json.dumps(content, indent=2))  # JSON is YAML
    return path


def trainopt_json(*arguments) -> dict:
    """The JSON object that a command with --json prints."""
    command = [str(trainopt_binary()), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}\nexited with code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def temporary_folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="trainopt-bench-")


# ---- intervals ----


def bootstrap(values: list[float], statistic=statistics.fmean, draws: int = 5000) -> tuple[float, float, float]:
    """(estimate, low, high): the statistic and its 95 % percentile bootstrap interval."""
    source = random.Random(0)
    drawn = sorted(statistic(source.choices(values, k=len(values))) for _ in range(draws))
    return statistic(values), drawn[int(0.025 * draws)], drawn[int(0.975 * draws) - 1]


# Six values all lie on one side of their true median with probability 1/32; with fewer, not even their full range is a
# 95 % interval.
LEAST_FOR_INTERVAL = 6


def ratio_interval(pairs: list[tuple[float, float]]) -> dict:
    """The geometric mean of the ratios and its interval (None if there are too few pairs). `pairs` are (our rate, their
    rate) of neighbouring blocks."""
    if len(pairs) < 2:
        sys.exit("fewer than two pairs of blocks were measured; raise --seconds")
    ratio, low, high = bootstrap([ours / theirs for ours, theirs in pairs], statistics.geometric_mean)
    enough = len(pairs) >= LEAST_FOR_INTERVAL
    return {
        "ratio": round(ratio, 3),
        "low": round(low, 3) if enough else None,
        "high": round(high, 3) if enough else None,
        "blocks": len(pairs),
        "ours_per_s": round(statistics.fmean(pair[0] for pair in pairs), 2),
        "theirs_per_s": round(statistics.fmean(pair[1] for pair in pairs), 2),
    }


def abba(ours, theirs, rounds: int) -> list[tuple[float, float]]:
    """Pairs of rates: ours() and theirs() each measure one block and return its rate. Blocks run A B B A A B B A …, so
    that drift of the machine cancels."""
    pairs = []
    for number in range(rounds):
        if number % 2 == 0:
            a, b = ours(), theirs()
        else:
            b, a = theirs(), ours()
        pairs.append((a, b))
        print(f"  block {number + 1}/{rounds}: {a:.1f} against {b:.1f}, {a / b:.2f}×", file=sys.stderr, flush=True)
    return pairs


# ---- results ----


def machine() -> dict:
    cpu = Path("/proc/cpuinfo").read_text()
    flags = set(re.search(r"^flags\s*:(.*)$", cpu, re.M).group(1).split())
    model = re.search(r"^model name\s*:\s*(.*)$", cpu, re.M)
    memory = int(re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text()).group(1))
    return {
        "cpu": model.group(1).strip() if model else platform.machine(),
        "cores": allowed_cores(),
        "memory_gib": round(memory / 2**20, 1),
        "extensions": [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags],
    }


def commit() -> str:
    def git(*arguments):
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True).stdout.strip()

    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + (
        "+changes" if git("status", "--porcelain", "--untracked-files=no", "--", "lib", "app") else ""
    )


def versions() -> dict:
    from importlib.metadata import version

    found = {"python": platform.python_version()}
    for name in ("torch", "torchvision", "pillow"):
        found[name] = version(name)
    done = subprocess.run([str(trainopt_binary()), "--version"], capture_output=True, text=True)
    found["trainopt"] = done.stdout.strip().splitlines()[0] if done.stdout.strip() else "unknown"
    return found


def report(bench: str, rows: list[dict]) -> None:
    """Prints the rows and appends them to results/<bench>.jsonl (everything) and results/<bench>.md (one section per
    run)."""
    RESULTS.mkdir(exist_ok=True)
    facts = {
        "bench": bench,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        "command": shlex.join([f"scripts/bench/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
    }
    with open(RESULTS / f"{bench}.jsonl", "a") as file:
        for row in rows:
            file.write(json.dumps({**facts, "result": row}) + "\n")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    table += [
        "| " + " | ".join("–" if row.get(column, "") is None else str(row.get(column, "")) for column in columns) + " |"
        for row in rows
    ]
    where = facts["machine"]
    head = [
        f"## {facts['date']} · commit {facts['commit']}",
        f"{where['cpu']}, {where['cores']} cores, {where['memory_gib']} GiB, {' '.join(where['extensions'])} · "
        + ", ".join(f"{name} {number}" for name, number in facts["versions"].items() if name != "trainopt"),
        *textwrap.wrap(f"`{facts['command']}`", 120, break_long_words=False, break_on_hyphens=False),
        "",
    ]
    path = RESULTS / f"{bench}.md"
    with open(path, "a") as file:
        if file.tell() == 0:
            file.write(
                f"# {bench}\nRatios come from alternating blocks of one run; rates only show the order of magnitude. "
                "Newest last.\n"
            )
        file.write("\n" + "\n".join(head + table) + "\n")
    print("\n".join(table))
