"""The peaks that `trainopt roofline` measures ÷ those of torch.mm in Python and of STREAM's copy, compiled with gcc.
All sides in turn. The ratio is the median of the rounds': on a shared machine one undisturbed round of either side
would decide the ratio of the best ones.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

import common
import torch


def torch_peak(seconds: float) -> float:
    best, end = 0.0, time.perf_counter() + seconds
    for size in (512, 1024, 2048, 4096):
        a, b = torch.randn(size, size), torch.randn(size, size)
        out = torch.empty(size, size)
        torch.mm(a, b, out=out)
        while time.perf_counter() < end:
            began = time.perf_counter()
            torch.mm(a, b, out=out)
            took = time.perf_counter() - began
            best = max(best, 2.0 * size**3 / took)
            if took * 8 > end - time.perf_counter() or took > seconds / 20:
                break
    return best


def measured(cache: Path) -> dict:
    command = [common.trainopt_binary(), "roofline", "--again", "--json", "device=cpu"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=9)
    rounds = options.parse_args().rounds
    with common.temporary_folder() as name:
        folder = Path(name)
        stream = folder / "stream"
        source = Path(__file__).with_name("stream_copy.c")
        subprocess.run(["gcc", "-O3", "-march=native", "-fopenmp", str(source), "-o", str(stream)], check=True)
        ours, theirs = [], []
        for turn in range(rounds):
            sides = [
                lambda: ours.append(measured(folder)),
                lambda: theirs.append((torch_peak(3), float(subprocess.check_output([str(stream)])))),
            ]
            for side in sides if turn % 2 == 0 else reversed(sides):
                side()
    rows = []
    for what, mine, other in (
        ("float32 products ÷ torch.mm", [one["products"]["float32"]["flops_per_s"] for one in ours], 0),
        ("memory copy ÷ STREAM's", [one["memory_bytes_per_s"] for one in ours], 1),
    ):
        ratios = [a / b[other] for a, b in zip(mine, theirs, strict=True)]
        rows.append(
            {
                "peak": what,
                "ratio": f"{statistics.median(ratios):.2f}",
                "required": 0.9,
                "by round": " ".join(f"{ratio:.2f}" for ratio in ratios),
            }
        )
    common.report("roofline", rows)


if __name__ == "__main__":
    main()
