"""trainopt's own cost per step: the step time of an MLP of a few thousand multiplications on a synthetic batch, minus
that of the same step as a bare loop of libtorch operations.

Needs the target bare_loop. Neither side writes to a terminal; trainopt records every step, as it does by default
(metrics.jsonl and metrics.csv).
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import common

SIDE, HIDDEN, CLASSES = 4, 16, 10
# Steps with the default logging, and with fewer records.
VARIANTS = {"every step recorded": [], "every 100th recorded": ["logging.every_n_steps=100"]}


def bare_step_ms(binary: Path, steps: int, batch: int) -> dict:
    command = [str(binary), *map(str, (steps, batch, 3 * SIDE * SIDE, HIDDEN, CLASSES, 1))]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def trainopt_step_ms(recipe_file: Path, folder: Path, overrides: list[str]) -> dict:
    run_dir = folder / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    command = [str(common.trainopt_binary()), "run", str(recipe_file), "--run-dir", str(run_dir), "--quiet", *overrides]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nexited with code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads((run_dir / "summary.json").read_text())["step_ms"]


def measure(batch: int, name: str, chosen, folder: Path, binary: Path) -> dict:
    recipe = {
        "device": "cpu",
        "num_threads": 1,
        "model": {"name": "mlp", "hidden": [HIDDEN], "num_classes": CLASSES},
        "data": {"dataset": "synthetic", "image_size": SIDE, "batch_size": batch, "size": batch * chosen.steps},
        "train": {"max_steps": chosen.steps},
        "optimizer": {"name": "sgd", "lr": 0.001, "momentum": 0.9},
        "optimizations": {"set_to_none": True},
        "checkpoint": {"at_end": False},
        "logging": {"sinks": ["jsonl", "csv"]},
        "bench": {"warmup_steps": chosen.steps // 10},
    }
    recipe_file = common.write_recipe(folder, recipe, "overhead")
    overrides = VARIANTS[name] + chosen.override
    rows = []
    for number in range(chosen.rounds):
        order = ("ours", "bare") if number % 2 == 0 else ("bare", "ours")
        found = {
            side: (
                trainopt_step_ms(recipe_file, folder, overrides)
                if side == "ours"
                else bare_step_ms(binary, chosen.steps, batch)
            )
            for side in order
        }
        rows.append(found)
        print(
            f"  batch {batch}, {name}, {number + 1}/{chosen.rounds}: p50 {1e3 * found['ours']['p50']:.1f} µs against "
            f"{1e3 * found['bare']['p50']:.1f} µs",
            file=sys.stderr,
            flush=True,
        )
    result = {"batch": batch, "records": name}
    for statistic in ("mean", "p50"):
        cost, low, high = common.bootstrap([1e3 * (row["ours"][statistic] - row["bare"][statistic]) for row in rows])
        result |= {f"cost_{statistic}_us": round(cost, 1), f"{statistic}_interval": f"{low:.1f} … {high:.1f}"}
    result["bare_p50_us"] = round(1e3 * statistics.fmean(row["bare"]["p50"] for row in rows), 1)
    return result


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batch", type=int, nargs="*", default=[1, 8])
    options.add_argument("--steps", type=int, default=8000)
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument(
        "--bare-loop", default=os.environ.get("BARE_LOOP") or common.ROOT / "build/scripts/bench/bare_loop"
    )
    options.add_argument("override", nargs="*", help="key=value for trainopt")
    chosen = options.parse_args()
    binary = Path(chosen.bare_loop)
    if not binary.exists():
        sys.exit(f"{binary} is missing: cmake --build build --target bare_loop")
    with common.temporary_folder() as folder:
        common.report(
            "overhead",
            [measure(batch, name, chosen, Path(folder), binary) for batch in chosen.batch for name in VARIANTS],
        )


if __name__ == "__main__":
    main()
