"""Memory of the loader: (peak resident memory with large batches − with batches of one) ÷ (slots × bytes of a batch);
at most 1.2.

Does not import torch: a child's peak includes the memory that its parent had when it was started.
"""

import argparse
import os
import subprocess
from pathlib import Path

import common

SIDE = 224


def peak_bytes(recipe_file: Path, batches: int) -> int:
    """Peak resident memory of one `trainopt data bench`."""
    command = [
        str(common.trainopt_binary()),
        "data",
        "bench",
        str(recipe_file),
        "--json",
        "--batches",
        str(batches),
        "--seconds",
        "60",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    message = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nexited with code {process.returncode}\n{message[-2000:]}")
    return usage.ru_maxrss * 1024


def recipe(batch: int, workers: int, prefetch: int) -> dict:
    return {
        "device": "cpu",
        "data": {
            "dataset": "fake_cifar10",
            "size": 4096,
            "batch_size": batch,
            "num_workers": workers,
            "prefetch_factor": prefetch,
            "transforms": [{"resize": SIDE}, {"normalize": {"mean": 0.5, "std": 0.5}}],
        },
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batch", type=int, default=256)
    options.add_argument("--repeats", type=int, default=3)
    chosen = options.parse_args()
    rows = []
    with common.temporary_folder() as folder:
        for workers, prefetch in ((0, 2), (1, 2), (2, 2), (2, 4)):
            slots = 2 + workers * prefetch
            batch_bytes = chosen.batch * (3 * SIDE * SIDE * 4 + 8)
            large = common.write_recipe(folder, recipe(chosen.batch, workers, prefetch), "large")
            small = common.write_recipe(folder, recipe(1, workers, prefetch), "small")
            ratios = [
                (peak_bytes(large, slots + 6) - peak_bytes(small, 200)) / (slots * batch_bytes)
                for _ in range(chosen.repeats)
            ]
            rows.append(
                {
                    "workers": workers,
                    "prefetch_factor": prefetch,
                    "slots": slots,
                    "batch_mib": round(batch_bytes / 2**20, 1),
                    "ratio": round(max(ratios), 3),
                    "limit": 1.2,
                    "holds": max(ratios) <= 1.2,
                }
            )
    common.report("memory", rows)


if __name__ == "__main__":
    main()
