"""Does the comparison of numbers tell right from wrong? Correct changes of real models at small batches: how often they
are called wrong; and first gradients scaled by 1.1 and 0.9, one tensor at a time: how many are found. No timing.
"""

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import bench_find_lr
import common

SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.0005}
ADAMW = {"name": "adamw", "lr": 0.001, "weight_decay": 0.05}
CHANGES = ["optimizations.amp=true", "optimizations.fused_kernels=true", "optimizations.activation_checkpointing=true"]
OF_CONVOLUTIONS = ["optimizations.winograd=true", "optimizations.channels_last=true"]
FLOAT16 = ["optimizations.amp.dtype=float16"]


def jobs(folder: Path) -> dict:
    """Name → (recipe without a batch size, further changes)."""

    def images(side: int) -> dict:
        transforms = [{"resize": side}, {"normalize": {"mean": 0.5, "std": 0.5}}]
        return {"dataset": "fake_cifar10", "size": 512, "transforms": transforms}

    def job(model: dict, optimizer: dict, data: dict) -> dict:
        return {"device": "cpu", "model": model, "optimizer": optimizer, "data": data, "train": {"max_steps": 100}}

    vit = {"name": "vit", "num_classes": 10, "patch": 8, "layers": 6, "heads": 3, "width": 96}
    gpt2 = {"name": "gpt2", "layers": 4, "heads": 4, "width": 128, "context": 64, "vocabulary": 256, "dropout": 0}
    mlp = {"name": "mlp", "num_classes": 10, "hidden": [256, 256]}
    text = bench_find_lr.text(folder)["data"]
    return {
        "mlp": (job(mlp, SGD, images(32)), FLOAT16),
        "vit": (job(vit, ADAMW, images(64)), FLOAT16),
        "gpt2": (job(gpt2, ADAMW, {key: text[key] for key in ("dataset", "path")}), FLOAT16),
        "resnet18": (job({"name": "resnet18", "num_classes": 10}, SGD, images(64)), OF_CONVOLUTIONS + FLOAT16),
    }


def measure(tool: Path, folder: Path, recipe: dict, batches: list[int], seeds: range, changes: list[str]) -> dict:
    counts = defaultdict(lambda: dict.fromkeys(("compared", "wrong", "not compared", "faults", "found"), 0))
    for batch in batches:
        recipe["data"]["batch_size"] = batch
        path = common.write_recipe(folder, recipe, "job")
        for seed in seeds:
            words = [tool, path, folder / "arms", str(seed), *changes]
            result = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
            for change, row in result.items():
                count = counts[change, batch]
                count["not compared" if row["agree"] is None else "compared"] += 1
                count["wrong"] += row["agree"] is False
                count["faults"] += row.get("faults", 0)
                count["found"] += row.get("found", 0)
                if row["agree"] is False:
                    print(batch, seed, change, row["disagreements"], file=sys.stderr, flush=True)
    return counts


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--batches", type=int, nargs="+", default=[4, 8, 32])
    options.add_argument("--only", help="one job")
    chosen = options.parse_args()
    tool = common.trainopt_binary().parents[1] / "scripts/bench/numbers_rates"
    rows = []
    with common.temporary_folder() as name:
        folder = Path(name)
        bench_find_lr.write_data(folder)
        for job, (recipe, more) in jobs(folder).items():
            if chosen.only not in (None, job):
                continue
            counts = measure(tool, folder, recipe, chosen.batches, range(1, chosen.seeds + 1), CHANGES + more)
            for (change, batch), count in counts.items():
                found = f"{100 * count['found'] / count['faults']:.0f} %" if count["faults"] else "–"
                rows.append(
                    {
                        "job": job,
                        "change": change.removeprefix("optimizations."),
                        "batch": batch,
                        "called wrong": f"{count['wrong']} of {count['compared']}",
                        "not compared": count["not compared"],
                        "faults of 10 %": count["faults"],
                        "found": found,
                    }
                )
    common.report("numbers", rows)


if __name__ == "__main__":
    main()
