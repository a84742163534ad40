"""How long a pipeline's first stage waits for the second: two ranks with one thread each, on an MLP that divides into
equal halves and on a small GPT-2 that does not, beside what the shares of the operations predict. Run it on an idle
machine.

With m micro-batches, of which the stages compute s0 and s1 of the operations, a step takes m · max(s0, s1) +
min(s0, s1), and the first stage computes m · s0 of that. For equal stages this leaves the formula 1 ÷ (m + 1).
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import common

SIZES = {"width": 1024, "batch": 1024}  # of the MLP; 18 pixels squared in three colours are nearly as wide
JOBS = {
    "mlp, equal stages": {
        "model": {"name": "mlp", "num_classes": 10, "hidden": [SIZES["width"]] * 8},
        "data": {
            "dataset": "fake_cifar10",
            "batch_size": SIZES["batch"],
            "transforms": [{"resize": 18}, {"normalize": {"mean": 0.5, "std": 0.5}}],
            "cache": "device",
        },
        "optimizer": {"name": "sgd", "lr": 0.001},
    },
    "gpt2, 6 layers of 384": {
        "model": {"name": "gpt2", "layers": 6, "heads": 6, "width": 384, "context": 256},
        "data": {"dataset": "synthetic", "batch_size": 8},
        "optimizer": {"name": "adamw", "lr": 0.0003},
    },
}


def recipe(job: dict, steps: int) -> dict:
    fixed = {"device": "cpu", "num_threads": 1, "train": {"max_steps": steps}, "checkpoint": {"at_end": False}}
    return {**job, **fixed, "logging": {"sinks": ["jsonl"]}}


def run(folder: Path, file: Path, micro_batches: int, schedule: str) -> tuple[float, float, float]:
    """(first stage's share of the operations, second's, share of the time that the first waited)."""
    out = folder / "run"
    pipeline = f"parallel.pipeline={{stages: 2, micro_batches: {micro_batches}, schedule: {schedule}}}"
    command = [common.trainopt_binary(), "launch", "-n", "2", "--", "run", file, "--run-dir", out, pipeline]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    shares = re.search(r"2 stages of (\d+) and (\d+) % of the operations", done.stdout)
    receipts = json.loads((out / "summary.json").read_text())["receipts"].values()
    waited = re.search(r"waited (\d+) % of the time", " ".join(receipt["observed"] for receipt in receipts))
    subprocess.run(["rm", "-r", str(out)], check=True)
    return int(shares[1]) / 100, int(shares[2]) / 100, int(waited[1]) / 100


def expected(first: float, second: float, micro_batches: int) -> float:
    return 1 - micro_batches * first / (micro_batches * max(first, second) + min(first, second))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=8, help="of a run; the first is not timed")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--micro-batches", type=int, nargs="+", default=[1, 2, 4, 8])
    chosen = options.parse_args()
    rows = []
    with common.temporary_folder() as name:
        folder = Path(name)
        for job, content in JOBS.items():
            file = common.write_recipe(folder, recipe(content, chosen.steps), "recipe")
            found = {}
            for _ in range(chosen.rounds):
                for count in chosen.micro_batches:
                    for schedule in ("gpipe", "1f1b"):
                        one = run(folder, file, count, schedule)
                        print(job, count, schedule, one, file=sys.stderr, flush=True)
                        found.setdefault((count, schedule), []).append(one)
            for (count, schedule), results in found.items():
                waits = [result[2] for result in results]
                rows.append(
                    {
                        "job": job,
                        "micro-batches": count,
                        "schedule": schedule,
                        "formula for equal stages": f"{1 / (count + 1):.0%}",
                        "expected from the shares": f"{expected(*results[0][:2], count):.0%}",
                        "first stage waited": f"{statistics.median(waits):.0%}",
                        "by round": " ".join(f"{wait:.0%}" for wait in waits),
                    }
                )
    common.report("pipeline", rows)


if __name__ == "__main__":
    main()
