"""The rate that `trainopt find lr` suggests against the best one of a grid: steps to a target, since a rate does not
change the time of a step. Four jobs, several seeds; each seed has its own range test. No timing.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

import common

# Four rates a decade, around what is usual for such optimizers.
GRID = {"sgd": [10 ** (i / 4) for i in range(-12, 1)], "adamw": [10 ** (i / 4) for i in range(-14, -3)]}
GRID["lamb"] = [rate * 10 for rate in GRID["adamw"]]
NORMALIZE = {"normalize": {"mean": 0.5, "std": 0.5}}


def digits(folder: Path, model: dict, optimizer: dict, batch: int, top1_pct: float, size: int = 8) -> dict:
    return {
        "model": {"num_classes": 10, **model},
        "data": {
            "dataset": "cifar10",
            "path": str(folder / "digits/cifar10"),
            "batch_size": batch,
            "transforms": [{"resize": size}, NORMALIZE],
        },
        "optimizer": optimizer,
        "train": {"max_steps": 600, "target": {"top1_pct": top1_pct}},
    }


def text(folder: Path) -> dict:
    return {
        "model": {"name": "gpt2", "layers": 2, "heads": 4, "width": 64, "context": 64, "vocabulary": 256},
        "data": {"dataset": "tokens", "path": str(folder / "text/train.bin"), "batch_size": 16},
        "optimizer": {"name": "adamw", "lr": 0.001, "betas": [0.9, 0.99]},
        "train": {"max_steps": 600, "max_grad_norm": 1.0, "target": {"loss": 2.9}},
        "evaluation": {"path": str(folder / "text/val.bin"), "batch_size": 64},
        "optimizations": {"fused_kernels": True, "host_allocator": True},
    }


def jobs(folder: Path) -> dict:
    mlp = {"name": "mlp", "hidden": [128, 64]}
    return {
        "mlp, sgd": digits(folder, mlp, {"name": "sgd", "lr": 0.1, "momentum": 0.9}, 32, 96),
        "mlp, adamw": digits(folder, mlp, {"name": "adamw", "lr": 0.001}, 64, 96),
        "mlp, lamb": digits(folder, mlp, {"name": "lamb", "lr": 0.001, "weight_decay": 0.01}, 64, 96),
        "gpt2, adamw": text(folder),
    }


def write_data(folder: Path) -> None:
    scripts = common.ROOT / "scripts/data"
    subprocess.run([sys.executable, scripts / "make_digits.py", folder / "digits"], check=True)
    words = [folder / "text", "--size", "500KB", "--val-share", "0.03"]
    subprocess.run([sys.executable, scripts / "make_text.py", *words], check=True)


def write_job(folder: Path, name: str, content: dict) -> Path:
    content = {
        "name": "find-lr",
        "device": "cpu",
        **content,
        "checkpoint": {"at_end": False},
        "evaluation": {**content.get("evaluation", {}), "every_n_steps": 5},
        "logging": {"sinks": ["jsonl"], "report": False},
    }
    content["optimizations"] = {"fused_optimizer": True, **content.get("optimizations", {})}
    return common.write_recipe(folder, content, name.replace(", ", "-"))


def steps_to_target(recipe: Path, rate: float, seed: int, folder: Path) -> float:
    """Infinite for a run that diverges or does not arrive."""
    out = folder / f"{recipe.stem}-{rate:.3g}-{seed}"
    words = ["run", recipe, f"optimizer.lr={rate}", f"seed={seed}", "--run-dir", out, "--quiet"]
    command = [str(common.trainopt_binary()), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 6:
        return math.inf
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    target = json.loads((out / "summary.json").read_text())["target"]
    return target["step"] if target["reached"] else math.inf


def measure(folder: Path, name: str, recipe: Path, seeds: range) -> dict:
    found = []
    for seed in seeds:
        out = folder / f"found-{recipe.stem}-{seed}"
        found.append(common.trainopt_json("find", "lr", recipe, f"seed={seed}", "--run-dir", out, "--json"))
    rates = [each["suggestion"] or 0.0 for each in found]
    steps = [
        steps_to_target(recipe, rate, seed, folder) if rate > 0 else math.inf
        for rate, seed in zip(rates, seeds, strict=True)
    ]
    grid_rates = GRID[name.split(", ")[1]]
    grid = {
        rate: statistics.median(steps_to_target(recipe, rate, seed, folder) for seed in seeds) for rate in grid_rates
    }
    best = min(grid, key=grid.get)
    row = {
        "job": name,
        "suggestions": " ".join(f"{rate:.2g}" for rate in rates),
        "lowest loss at": " ".join(f"{each['lowest_loss_at']:.2g}" for each in found),
        "steps": statistics.median(steps),
        "best of the grid": f"{best:.2g}",
        "steps there": grid[best],
        "ratio": f"{statistics.median(steps) / grid[best]:.2f}",
        "required": 1.25,
    }
    print(json.dumps(row), file=sys.stderr, flush=True)
    print({f"{rate:.2g}": steps for rate, steps in grid.items()}, file=sys.stderr, flush=True)
    return row


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--only", nargs="+", help="names of jobs")
    chosen = options.parse_args()
    with common.temporary_folder() as name:
        folder = Path(name)
        write_data(folder)
        rows = [
            measure(folder, job, write_job(folder, job, content), range(chosen.seeds))
            for job, content in jobs(folder).items()
            if not chosen.only or job in chosen.only
        ]
    common.report("find_lr", rows)


if __name__ == "__main__":
    main()
