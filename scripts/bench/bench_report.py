#!/usr/bin/env python3
"""Time, memory and size of the page of a run with a million steps.

    scripts/python test scripts/bench/bench_report.py [--steps N]

The records of a short run are repeated with other numbers. What is asked: at most 5 s, 300 MB and a page of 2 MB.
Every command maps libtorch, some 480 MB; `own_mb` is what the report needs beyond a command that only prints.
"""

import argparse
import json
import os
import random
import subprocess
import time
from pathlib import Path

import common

RECIPE = """\
name: long
model: {name: mlp, num_classes: 10, hidden: [8]}
data: {dataset: fake_cifar10, size: 64, batch_size: 8, transforms: [{resize: 8}]}
train: {max_steps: 30}
"""


def write_long_run(folder: Path, steps: int) -> None:
    record = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    chance = random.Random(0)
    with (folder / "metrics.jsonl").open("w") as file:
        for step in range(1, steps + 1):
            milliseconds = 20 + chance.expovariate(0.2)
            record.update(
                step=step,
                loss=2.3 / (1 + step / steps) + 0.1 * chance.random(),
                step_ms=round(milliseconds, 6),
                samples_per_s=round(8000 / milliseconds, 6),
            )
            file.write(json.dumps(record, separators=(",", ":")) + "\n")


def peak_of(command: list[str], folder: str) -> int:
    """The largest resident memory of a command that succeeds, in MB."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, status
    return round(used.ru_maxrss * 1024 / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    steps = parser.parse_args().steps
    program = str(common.trainopt_binary())
    with common.temporary_folder() as scratch:
        folder = Path(scratch) / "run"
        (Path(scratch) / "long.yaml").write_text(RECIPE)
        subprocess.run([program, "run", "long.yaml", "--run-dir", "run", "--quiet"], cwd=scratch, check=True)
        write_long_run(folder, steps)
        began = time.monotonic()
        peak_mb = peak_of([program, "report", "run"], scratch)
        seconds = time.monotonic() - began
        row = {
            "steps": steps,
            "records_mb": round((folder / "metrics.jsonl").stat().st_size / 1e6),
            "seconds": round(seconds, 2),
            "peak_mb": peak_mb,
            "own_mb": peak_mb - peak_of([program, "options", "seed"], scratch),
            "page_kb": round(os.path.getsize(folder / "report.html") / 1e3),
        }
    row["holds"] = row["seconds"] <= 5 and row["own_mb"] <= 300 and row["page_kb"] <= 2000
    common.report("report", [row])


if __name__ == "__main__":
    main()
