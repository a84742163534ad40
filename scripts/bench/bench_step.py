"""Training step on CPU, ResNet-18 at 224 px and batch 32, float32 and bfloat16, every switch that applies, against PyTorch eager
at its best.
"""

import argparse
import sys
from pathlib import Path

import common
from alternator import Alternator, Side

SWITCHES = {"channels_last": True, "set_to_none": True, "fused_optimizer": True, "host_allocator": True}


def measure(dtype: str, chosen, folder: Path) -> dict:
    recipe = {
        "name": f"bench-{dtype}",
        "device": "cpu",
        "model": {"name": "resnet18", "num_classes": 10},
        "data": {"dataset": "synthetic", "image_size": chosen.side, "batch_size": chosen.batch},
        "train": {"max_steps": 10**7},
        "optimizer": {"name": "sgd", "lr": 0.001, "momentum": 0.9},
        "optimizations": {**SWITCHES, **({"amp": {"dtype": "bfloat16"}} if dtype == "bf16" else {})},
        "checkpoint": {"at_end": False},
        "logging": {"sinks": ["jsonl"]},
    }
    run_dir = folder / f"run-{dtype}"
    ours = Side(
        "trainopt",
        [
            str(common.trainopt_binary()),
            "run",
            str(common.write_recipe(folder, recipe, dtype)),
            "--run-dir",
            str(run_dir),
            "--quiet",
            *chosen.override,
        ],
        run_dir / "metrics.jsonl",
        folder / f"ours-{dtype}.log",
        chosen.batch,
    )
    steps_file = folder / f"theirs-{dtype}.jsonl"
    theirs = Side(
        "PyTorch",
        [
            sys.executable,
            str(common.HERE / "torch_step.py"),
            "--dtype",
            dtype,
            "--batch",
            str(chosen.batch),
            "--side",
            str(chosen.side),
            "--steps-file",
            str(steps_file),
        ],
        steps_file,
        folder / f"theirs-{dtype}.log",
        chosen.batch,
    )
    turn_s = chosen.turn or (6.0 if dtype == "fp32" else 5.0)
    pairs = Alternator(ours, theirs, turn_s, chosen.seconds).run()
    kept = [line for line in theirs.log_file.read_text().splitlines() if line.startswith("kept: ")]
    return {"dtype": dtype, **common.ratio_interval(pairs), "PyTorch's setting": kept[0].removeprefix("kept: ") if kept else "?"}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--dtype", choices=["fp32", "bf16", "both"], default="both")
    options.add_argument("--seconds", type=float, default=40, help="of turns, for each dtype; start-up comes on top")
    options.add_argument("--turn", type=float, help="length of a turn in seconds")
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--side", type=int, default=224)
    options.add_argument("override", nargs="*", help="key=value for trainopt, such as optimizations.fused_optimizer=false")
    chosen = options.parse_args()
    with common.temporary_folder() as folder:
        common.report(
            "step",
            [measure(dtype, chosen, Path(folder)) for dtype in (("fp32", "bf16") if chosen.dtype == "both" else (chosen.dtype,))],
        )


if __name__ == "__main__":
    main()
