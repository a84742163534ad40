"""Does it learn as fast? One-cycle rates against a constant rate on handwritten digits, and Muon against AdamW on bytes
of text: each side at the best rate of a grid, then `trainopt compare --until target` with several seeds. Whatever comes
out is the result.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import bench_find_lr
import common

GRID = [10 ** (exponent / 3) for exponent in range(-11, 1)]  # three a decade, 2e-4 to 1


def studies(folder: Path) -> dict:
    """Name → (recipe, what A adds, what B adds)."""
    digits = bench_find_lr.digits(
        folder, {"name": "mlp", "hidden": [128, 64]}, {"name": "sgd", "lr": 0.1, "momentum": 0.9}, 32, 97
    )
    digits["train"]["max_steps"] = 600
    text = bench_find_lr.text(folder)
    text["train"]["max_steps"] = 600
    return {
        "digits: constant (A), one-cycle (B)": (digits, {}, {"scheduler": {"name": "onecycle"}}),
        "bytes: adamw (A), muon (B)": (
            text,
            {},
            {"optimizer": {"name": "muon", "lr": 0.02, "momentum": 0.95, "adjust_lr_fn": "match_rms_adamw"}},
        ),
    }


def best_rate(recipe: Path, seeds: range, folder: Path) -> tuple[float, dict]:
    grid = {}
    for rate in GRID:
        steps = [bench_find_lr.steps_to_target(recipe, rate, seed, folder) for seed in seeds]
        grid[rate] = statistics.median(steps)
    print({f"{rate:.2g}": steps for rate, steps in grid.items()}, file=sys.stderr, flush=True)
    return min(grid, key=grid.get), grid


def measure(folder: Path, name: str, study: tuple, grid_seeds: range, seeds: int) -> dict:
    base, *sides = study
    files, rates = [], []
    for side, more in zip("ab", sides, strict=True):
        recipe = bench_find_lr.write_job(folder, f"{name.split(':')[0]}-{side}", {**base, **more})
        rate, _ = best_rate(recipe, grid_seeds, folder)
        content = json.loads(recipe.read_text())
        content["optimizer"]["lr"] = rate
        files.append(common.write_recipe(folder, content, f"{recipe.stem}-best"))
        rates.append(rate)
    words = ["compare", *files, "--until", "target", "--seeds", seeds, "--run-dir", folder / f"{files[0].stem}-out"]
    result = common.trainopt_json(*words, "--json")
    row = {
        "study": name,
        "best rates": " ".join(f"{rate:.2g}" for rate in rates),
        "reached": " ".join(str(result["arms"][arm]["reached"]) for arm in "ab") + f" of {seeds}",
        "median steps": " ".join(str(result["arms"][arm]["median"]["steps"]) for arm in "ab"),
        "time of A ÷ B": result["ratio"] and f"{result['ratio']:.2f}",
        "interval": result["interval"] and [end and round(end, 2) for end in result["interval"]],
        "verdict on B": result["verdict"],
    }
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--grid-seeds", type=int, default=3)
    options.add_argument("--only", choices=("digits", "bytes"), help="one study")
    chosen = options.parse_args()
    with common.temporary_folder() as name:
        folder = Path(name)
        bench_find_lr.write_data(folder)
        # The seeds that choose the rates are others than those that compare.
        grid_seeds = range(1000, 1000 + chosen.grid_seeds)
        rows = [
            measure(folder, each, study, grid_seeds, chosen.seeds)
            for each, study in studies(folder).items()
            if not chosen.only or each.startswith(chosen.only)
        ]
    common.report("learning", rows)


if __name__ == "__main__":
    main()
