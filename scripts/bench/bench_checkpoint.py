"""Checkpoints of ResNet-50 with momentum: the cost of a background checkpoint every ten steps, and the speed of saving
and loading compared with write + fsync and read of the same bytes.

Needs the target checkpoint_speed. `beside`: blocks of ten steps in one process, alternately with and without a
checkpoint taken at the end of the first step. A block's wall time includes the copy that pauses training, and ends when
the checkpoint is on the disk and the one that it replaces is deleted. `save`: CheckpointDraft and commit(), including
hashes, folder and link. `load`: read_checkpoint(), which hashes every byte. Both sides of `load` read from the page
cache into new memory.
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
        sys.exit(f"checkpoint_speed exited with code {process.returncode}")
    return found


def ratio(found: list[dict], above: str, below: str) -> dict:
    value, low, high = common.bootstrap([pair[above] / pair[below] for pair in found], statistics.geometric_mean)
    return {"ratio": f"{value:.3f}", "interval": f"{low:.3f} … {high:.3f}", "pairs": len(found)}


def median(found: list[dict], key: str) -> float:
    return statistics.median(pair[key] for pair in found)


def in_training_row(found: list[dict], chosen) -> dict:
    return {
        "what": f"{chosen.steps} steps with one checkpoint ÷ without",
        "asked": "≤ 1.02",
        **ratio(found, "with_s", "without_s"),
        "beside it": f"step {1e3 * median(found, 'without_s') / chosen.steps:.0f} ms (batch {chosen.batch}, "
        f"{chosen.side} px), "
        f"training paused for {1e3 * median(found, 'pause_s'):.0f} ms, waited at the end for "
        f"{1e3 * median(found, 'waited_s'):.0f} ms",
    }


def disk_row(found: list[dict], what: str, asked: str, plain: str, ours: str) -> dict:
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
    options.add_argument("--pairs", type=int, default=16, help="pairs of blocks of steps; 0: skip this part")
    options.add_argument("--steps", type=int, default=10, help="steps per block, and so per checkpoint")
    options.add_argument("--disk-pairs", type=int, default=24, help="pairs of saves and loads; 0: skip this part")
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
                in_training_row(
                    pairs_of(chosen.binary, "beside", recipe_file, folder, chosen.pairs, chosen.steps), chosen
                )
            )
        if chosen.disk_pairs:
            new_memory = recipe | {"optimizations": {**common.SWITCHES, "host_allocator": False}}
            recipe_file = common.write_recipe(Path(folder), new_memory, "new_memory")
            found = pairs_of(chosen.binary, "disk", recipe_file, folder, chosen.disk_pairs)
            rows.append(disk_row(found, "write + fsync ÷ save", "≥ 0.8", "write_s", "save_s"))
            rows.append(
                disk_row(
                    found,
                    "write + fsync ÷ complete save: weights checked, read back, previous checkpoint removed",
                    "",
                    "write_s",
                    "whole_save_s",
                )
            )
            rows.append(disk_row(found, "read ÷ load", "≥ 0.8", "read_s", "load_s"))
    common.report("checkpoint", rows)


if __name__ == "__main__":
    main()
