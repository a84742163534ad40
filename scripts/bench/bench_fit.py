"""What it costs to make a model fit: GPT-2 medium with one switch after another. For each: the forecast of the step's
memory, what a run measures, and its step time ÷ that of the plain run of the same round. Rounds run all of them in
turn, every second one backwards.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import common

CHECKPOINTING = "optimizations.activation_checkpointing"
LADDER = [
    ("plain", []),
    ("activation_checkpointing: {policy: selective}", [f"{CHECKPOINTING}={{policy: selective}}"]),
    ("activation_checkpointing: true", [f"{CHECKPOINTING}=true"]),
    ("+ fused_kernels", ["optimizations.fused_kernels=true"]),
    ("+ set_to_none", ["optimizations.set_to_none=true"]),
    ("+ fused_optimizer", ["optimizations.fused_optimizer=true"]),
    ("+ amp", ["optimizations.amp=true"]),
    (
        "+ precision instead of fused_optimizer",
        ["optimizations.fused_optimizer=false", "optimizations.precision=true"],
    ),
]
FIRST_CUMULATIVE = 3  # the two policies replace each other; what follows is added to what stands before it


def settings_of(rung: int) -> list[str]:
    first = min(rung, FIRST_CUMULATIVE - 1)
    return [word for _, words in LADDER[first : rung + 1] for word in words]


def recipe(size: str, batch: int, steps: int) -> dict:
    return {
        "name": "gpt2-medium",
        "device": "cpu",
        "model": {"name": "gpt2", "size": size},
        "data": {"dataset": "synthetic", "batch_size": batch},
        "train": {"max_steps": steps, "max_grad_norm": 1.0},
        "optimizer": {"name": "adamw", "lr": 3e-4, "weight_decay": 0.1, "no_decay": ["norm", "bias"]},
        "checkpoint": {"at_end": False},
        "logging": {"sinks": ["jsonl"]},
    }


def run(folder: Path, file: Path, rung: int) -> dict:
    out = folder / "run"
    command = [common.trainopt_binary(), "run", file, "--run-dir", out, "--quiet", *settings_of(rung)]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{LADDER[rung][0]}\n{done.stderr[-2000:]}")
    summary = json.loads((out / "summary.json").read_text())
    subprocess.run(["rm", "-r", str(out)], check=True)
    print(LADDER[rung][0], summary["step_ms"], file=sys.stderr, flush=True)
    return summary


def gib(count: float) -> str:
    return f"{count / 2**30:.2f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", default="medium")
    options.add_argument("--batch", type=int, default=2)
    options.add_argument("--steps", type=int, default=3, help="of a run; the first is not timed")
    options.add_argument("--rounds", type=int, default=2)
    chosen = options.parse_args()
    rungs = range(len(LADDER))
    with common.temporary_folder() as name:
        folder = Path(name)
        file = common.write_recipe(folder, recipe(chosen.size, chosen.batch, chosen.steps), "recipe")
        plans = [common.trainopt_json("plan", str(file), *settings_of(rung), "--json") for rung in rungs]
        rounds = []
        for turn in range(chosen.rounds):
            order = rungs if turn % 2 == 0 else reversed(rungs)
            rounds.append({rung: run(folder, file, rung) for rung in order})
    rows = []
    for rung in rungs:
        ratios = [one[rung]["step_ms"]["p50"] / one[0]["step_ms"]["p50"] for one in rounds]
        peaks = [one[rung] for one in rounds]
        rows.append(
            {
                "switches": LADDER[rung][0],
                "forecast GiB": gib(plans[rung]["memory"]["forecast_bytes"]),
                "measured GiB": gib(max(one["memory"]["peak_bytes"] for one in peaks)),
                "process GiB": gib(max(one["peak_memory_mib"] for one in peaks) * 2**20),
                "time of a step ÷ plain": f"{statistics.geometric_mean(ratios):.2f}",
                "by round": " ".join(f"{ratio:.2f}" for ratio in ratios),
            }
        )
    common.report("fit", rows)


if __name__ == "__main__":
    main()
