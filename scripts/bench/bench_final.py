"""The figure that `trainopt tune` ends with, and an independent repetition of it: each the original against a changed
recipe over pairs of fresh processes. How often does the 95 % interval of the ratio of the two figures contain 1?
"""

import argparse
import json
import math
import statistics
import sys
from pathlib import Path

import common

RECIPE = {
    "name": "final",
    "device": "cpu",
    "model": {"name": "mlp", "num_classes": 10, "hidden": [256, 256]},
    "data": {
        "dataset": "fake_cifar10",
        "size": 4096,
        "batch_size": 32,
        "transforms": [{"resize": 16}, {"normalize": {"mean": 0.5, "std": 0.5}}],
    },
    "optimizer": {"name": "adamw", "lr": 0.001},
    "checkpoint": {"at_end": False},
    "bench": {"warmup_steps": 2},
}
CHANGES = ["optimizations.fused_optimizer=true", "data.num_workers=1"]
T_975 = {4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179, 14: 2.145, 18: 2.101}


def pair_logs(recipe: Path, changed: Path, out: Path, pairs: int) -> list[float]:
    """The log of B ÷ A of each pair of processes."""
    command = ["compare", recipe, changed, "--own-processes", "--repeats", pairs, "--whole", "--no-noise-floor"]
    common.trainopt_json(*command, "--no-numbers", "--turn", "50ms", "--budget", "5m", "--json", "--run-dir", out)
    result = json.loads((out / "result.json").read_text())
    rates: dict[int, dict[str, list[float]]] = {}
    for block in result["samples"]:
        for turn in block["turns"]:
            arms = rates.setdefault(block["pair"], {"a": [0, 0], "b": [0, 0]})
            arms[turn["arm"]][0] += turn["samples"]
            arms[turn["arm"]][1] += turn["seconds"]
    return [math.log((arms["b"][0] / arms["b"][1]) / (arms["a"][0] / arms["a"][1])) for arms in rates.values()]


def difference(one: list[float], other: list[float]) -> tuple[float, float, float]:
    """(ratio, low, high) of two figures, by Welch's interval of the difference of their means."""
    errors = [statistics.variance(values) / len(values) for values in (one, other)]
    freedom = sum(errors) ** 2 / sum(error**2 / (len(one) - 1) for error in errors)
    quantile = T_975[max(key for key in T_975 if key <= max(4, freedom))]
    middle, half = statistics.fmean(one) - statistics.fmean(other), quantile * math.sqrt(sum(errors))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--times", type=int, default=40)
    options.add_argument("--pairs", type=int, default=5)
    chosen = options.parse_args()
    found = []
    with common.temporary_folder() as name:
        folder = Path(name)
        recipe = common.write_recipe(folder, RECIPE, "original")
        resolved = common.trainopt_json("plan", str(recipe), *CHANGES, "--json")["recipe"]
        changed = common.write_recipe(folder, resolved, "changed")
        for turn in range(chosen.times):
            one, other = (pair_logs(recipe, changed, folder / f"{turn}-{side}", chosen.pairs) for side in "ab")
            ratio, low, high = difference(one, other)
            found.append((statistics.fmean(one + other), ratio, low <= 1 <= high))
            print(f"{turn + 1}: {ratio:.3f} ({low:.3f} to {high:.3f})", file=sys.stderr, flush=True)
    row = {
        "gain of the change": round(math.exp(statistics.fmean(each[0] for each in found)), 3),
        "times": len(found),
        "pairs of each figure": chosen.pairs,
        "intervals with 1": sum(each[2] for each in found),
        "figure ÷ repetition, lowest": round(min(each[1] for each in found), 3),
        "highest": round(max(each[1] for each in found), 3),
    }
    common.report("tune", [row])


if __name__ == "__main__":
    main()
