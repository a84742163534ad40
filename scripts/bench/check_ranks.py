"""Compares several ranks with one rank and with the formulas: ResNet-18 with sync_batch_norm, float32, 20 steps of the
same global batch on 1, 2 and 4 ranks with every strategy. Losses are compared with those of one rank, bytes held and
sent with the formulas of ZeRO (Rajbhandari et al. 2020). Nothing is timed, so the machine may be busy.

One rank against itself in another memory format shows the effect of rounding alone; a learning rate 1 % larger shows
how an error in the gradients would appear. Learning rates are small on purpose: with one of the usual size, each step
of a freshly initialised ResNet with batch-norm amplifies rounding errors tenfold, even on one rank.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import common

GLOBAL_BATCH, STEPS, SIDE = 16, 20, 16
STRATEGIES = ["none", "zero1", "zero2", "zero3"]


def recipe(learning_rate: float) -> dict:
    return {
        "name": "check-ranks",
        "device": "cpu",
        "num_threads": 1,
        "model": {"name": "resnet18", "num_classes": 10, "stem": "cifar"},
        "data": {
            "dataset": "fake_cifar10",
            "size": 4 * GLOBAL_BATCH,
            "batch_size": GLOBAL_BATCH,
            "transforms": [{"resize": SIDE}, {"normalize": {"mean": 0.5, "std": 0.5}}],
        },
        "train": {"max_steps": STEPS},
        "optimizer": {"name": "sgd", "lr": learning_rate, "momentum": 0.9},
        "checkpoint": {"at_end": False},
        "logging": {"sinks": ["jsonl"], "every_n_steps": 1},
    }


def records(folder: Path, file: Path, ranks: int, *settings: str) -> list[dict]:
    launch = ["launch", "-n", str(ranks), "--"] if ranks > 1 else []
    command = [
        str(common.trainopt_binary()),
        *launch,
        "run",
        str(file),
        "--run-dir",
        str(folder / "run"),
        "--quiet",
        *settings,
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(f"{command}\n{done.stderr[-2000:]}")
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    subprocess.run(["rm", "-r", str(folder / "run")], check=True)
    return rows


def formulas(strategy: str, ranks: int, mib: float) -> dict[str, float]:
    """MiB per rank for parameters of `mib`, all in float32, with one momentum buffer."""
    share = mib / ranks
    return {
        "parameters": share if strategy == "zero3" else mib,
        "gradients": share if strategy in ("zero2", "zero3") else mib,
        "optimizer": mib if strategy == "none" else share,
        "wire": (3 if strategy == "zero3" else 2) * (ranks - 1) * share,
    }


def measured(row: dict, ranks: int) -> dict[str, float]:
    part = (ranks - 1) / ranks
    wire = part * (2 * row["all_reduce_mib"] + row["reduce_scatter_mib"] + row["all_gather_mib"]) + row["broadcast_mib"]
    return {
        "parameters": row["parameters_mib"],
        "gradients": row["gradients_mib"],
        "optimizer": row["optimizer_mib"],
        "wire": wire,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--lr", type=float, default=1e-5)
    chosen = options.parse_args()
    rows = []
    with common.temporary_folder() as name:
        folder = Path(name)
        file = common.write_recipe(folder, recipe(chosen.lr), "recipe")
        one = records(folder, file, 1)
        losses = [row["loss"] for row in one]

        def apart(other):
            return f"{max(abs(row['loss'] - loss) / abs(loss) for row, loss in zip(other, losses, strict=True)):.1e}"

        for what, setting in {
            "channels_last: rounding": "optimizations.channels_last=true",
            "gradients 1 % too large": f"optimizer.lr={1.01 * chosen.lr}",
        }.items():
            rows.append(
                {
                    "ranks": 1,
                    "strategy": what,
                    "loss": "",
                    "largest difference": apart(records(folder, file, 1, setting)),
                }
            )
        for ranks in (2, 4):
            for strategy in STRATEGIES:
                got = records(
                    folder,
                    file,
                    ranks,
                    f"parallel.sharding_strategy={strategy}",
                    "parallel.sync_batch_norm=true",
                    f"data.batch_size={GLOBAL_BATCH // ranks}",
                )
                row = {
                    "ranks": ranks,
                    "strategy": strategy,
                    "loss": f"{got[0]['loss']:.3f} … {got[-1]['loss']:.3f}",
                    "largest difference": apart(got),
                }
                wanted, numbers = formulas(strategy, ranks, one[0]["parameters_mib"]), measured(got[-1], ranks)
                row |= {
                    f"{what}, MiB": f"{numbers[what]:.2f} ({numbers[what] / wanted[what] - 1:+.1%})" for what in wanted
                }
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
    common.report("ranks_exact", rows)


if __name__ == "__main__":
    main()
