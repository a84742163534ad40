"""Checkpoints of ResNet-50 with momentum: what one in the background every ten steps costs the training, and how fast
saving and loading are against write + fsync and read of the same bytes.

Needs the target checkpoint_speed. `beside`: blocks of ten steps of one process, in turn with a checkpoint taken at the
first step's end and without; a block's time is the wall clock's, with the copy for which training stands still, and it
ends when the checkpoint is on the disk and the one that it pushes out is gone. `save`: CheckpointDraft and commit(),
hashes, folder and link included. `load`: read_checkpoint(), every byte hashed. Both sides of `load` read what the
kernel still has in memory into memory that is new.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import common


def pairs_of(*command) -> list[dict]:
    found = []
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            found.append(json.loads(line))
            print(
                "  " + ", ".join(f"{key} {value:.3g}" for key, value in found[-1].items()), file=sys.stderr, flush=True
            )
    if process.returncode != 0:
        sys.exit(f"checkpoint_speed ended with {process.returncode}")
    return found


def ratio(found: list[dict], above: str, below: str) -> dict:
    value, low, high = common.bootstrap([pair[above] / pair[below] for pair in found], statistics.geometric_mean)
    return {"ratio": f"{value:.3f}", "interval": f"{low:.3f} … {high:.3f}", "pairs": len(found)}


def median(found: list[dict], key: str) -> float:
    return statistics.median(pair[key] for pair in found)


def beside(found: list[dict], chosen) -> dict:
    return {
        "what": f"{chosen.steps} steps with one checkpoint ÷ without",
        "asked": "≤ 1.02",
        **ratio(found, "with_s", "without_s"),
        "beside it": f"step {1e3 * median(found, 'without_s') / chosen.steps:.0f} ms (batch {chosen.batch}, "
        f"{chosen.side} px), "
        f"training stood still for {1e3 * median(found, 'pause_s'):.0f} ms, waited at the end "
        f"{1e3 * median(found, 'waited_s'):.0f} ms",
    }


def against_disk(found: list[dict], what: str, asked: str, plain: str, ours: str) -> dict:
    gigabytes = found[0]["bytes"] / 1e9
    return {
        "what": what,
        "asked": asked,
        **ratio(found, plain, ours),
        "beside it": f"{1e3 * gigabytes:.0f} MB, {gigabytes / median(found, ours):.2f} GB/s against "
        f"{gigabytes / median(found, plain):.2f}",
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=int, default=16, help="of blocks of steps; 0: leave this part out")
    options.add_argument("--steps", type=int, default=10, help="in a block, and for one checkpoint")
    options.add_argument("--disk-pairs", type=int, default=24, help="of saves and loads; 0: leave this part out")
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--side", type=int, default=96)
    options.add_argument("--binary", type=Path, default=common.ROOT / "build/scripts/bench/checkpoint_speed")
    chosen = options.parse_args()
    if not chosen.binary.exists():
        sys.exit(f"{chosen.binary} is missing: cmake --build build --target checkpoint_speed")
    rows = []
    with common.temporary_folder() as folder:
        recipe = {
            "device": "cpu",
            "model": {"name": "resnet50", "num_classes": 1000},
            "data": {"dataset": "synthetic", "image_size": chosen.side, "batch_size": chosen.batch},
            "train": {"max_steps": 10**7},
            "optimizer": {"name": "sgd", "lr": 0.001, "momentum": 0.9},
            "optimizations": common.SWITCHES,
        }
        recipe_file = common.write_recipe(Path(folder), recipe, "resnet50")
        if chosen.pairs:
            rows.append(
                beside(pairs_of(chosen.binary, "beside", recipe_file, folder, chosen.pairs, chosen.steps), chosen)
            )
        if chosen.disk_pairs:
            new_memory = recipe | {"optimizations": {**common.SWITCHES, "host_allocator": False}}
            recipe_file = common.write_recipe(Path(folder), new_memory, "new_memory")
            found = pairs_of(chosen.binary, "disk", recipe_file, folder, chosen.disk_pairs)
            rows.append(against_disk(found, "write + fsync ÷ save", "≥ 0.8", "write_s", "save_s"))
            rows.append(
                against_disk(
                    found,
                    "write + fsync ÷ the whole save: weights looked at before, read back after, the one before removed",
                    "",
                    "write_s",
                    "whole_save_s",
                )
            )
            rows.append(against_disk(found, "read ÷ load", "≥ 0.8", "read_s", "load_s"))
    common.report("checkpoint", rows)


if __name__ == "__main__":
    main()
