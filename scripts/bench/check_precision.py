"""Trains a small GPT-2 on the sources of Python's library, byte by byte, for 2,000 steps: with float32 weights, with
bfloat16 weights rounded stochastically, and with bfloat16 weights rounded to nearest. All compute in bfloat16 (amp).
Each is trained from several seeds; the loss is that of the held-out text at the end. Nothing is timed, so the machine
may be busy.

The learning rate is small and falls to zero, as in fine-tuning and at the end of every training: most updates are then
smaller than half of bfloat16's step.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import common

ARMS = {
    "float32": [],
    "bfloat16, stochastic": ["optimizations.precision=true"],
    "bfloat16, to nearest": ["optimizations.precision={stochastic_rounding: false}"],
}


def recipe(text: Path, steps: int, learning_rate: float) -> dict:
    return {
        "name": "check-precision",
        "device": "cpu",
        "num_threads": 1,
        "model": {"name": "gpt2", "layers": 1, "heads": 2, "width": 64, "context": 32, "vocabulary": 256},
        "data": {"dataset": "tokens", "path": str(text / "train.bin"), "batch_size": 8},
        "train": {"max_steps": steps, "max_grad_norm": 1.0},
        "optimizer": {"name": "adamw", "lr": learning_rate, "betas": [0.9, 0.99]},
        "scheduler": {"name": "cosine", "warmup_steps": 100},
        "optimizations": {"amp": True, "fused_kernels": True},
        "evaluation": {"path": str(text / "val.bin"), "batch_size": 256},
        "checkpoint": {"at_end": False},
        "logging": {"sinks": ["jsonl"]},
    }


def held_out_loss(folder: Path, file: Path, seed: int, settings: list[str]) -> float:
    run = folder / "run"
    command = [str(common.trainopt_binary()), "run", str(file), "--run-dir", str(run), "--quiet", f"seed={seed}"]
    done = subprocess.run(
        [*command, *settings], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    if done.returncode != 0:
        sys.exit(f"{command}\n{done.stderr[-2000:]}")
    loss = json.loads((run / "summary.json").read_text())["evaluation"]["loss"]
    subprocess.run(["rm", "-r", str(run)], check=True)
    return loss


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=2000)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--lr", type=float, default=2e-4)
    chosen = options.parse_args()
    with common.temporary_folder() as name:
        folder = Path(name)
        maker = common.ROOT / "scripts/data/make_text.py"
        subprocess.run([sys.executable, str(maker), str(folder), "--size", "2MB"], check=True, capture_output=True)
        file = common.write_recipe(folder, recipe(folder, chosen.steps, chosen.lr), "recipe")
        losses = {}
        for arm, settings in ARMS.items():
            losses[arm] = [held_out_loss(folder, file, seed, settings) for seed in range(chosen.seeds)]
            print(arm, losses[arm], file=sys.stderr, flush=True)
    plain = losses["float32"]
    rows = []
    for arm, values in losses.items():
        rows.append(
            {
                "weights": arm,
                "learning rate": chosen.lr,
                "held-out loss by seed": " ".join(f"{value:.4f}" for value in values),
                "mean": f"{statistics.fmean(values):.4f}",
                "mean − float32's": f"{statistics.fmean(values) - statistics.fmean(plain):+.4f}",
                "float32's largest − smallest": f"{max(plain) - min(plain):.4f}",
            }
        )
    common.report("precision", rows)


if __name__ == "__main__":
    main()
