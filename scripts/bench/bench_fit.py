"""What it costs to make a model fit: GPT-2 medium with several sets of switches. For each: the forecast of the step's
memory, what a run measures, and its step time ÷ that of the plain run of the same round. A round runs all sets, every
second round backwards.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import common

FULL = ["optimizations.activation_checkpointing=true"]
SELECTIVE = ["optimizations.activation_checkpointing={policy: selective}"]
AMP = ["optimizations.amp=true"]
PRECISION = [*AMP, "optimizations.precision=true"]
FUSED = ["optimizations.fused_kernels=true"]
ARMS = {
    "plain": [],
    "activation_checkpointing, selective": SELECTIVE,
    "activation_checkpointing": FULL,
    "activation_checkpointing, fused_kernels": FULL + FUSED,
    "amp": AMP,
    "amp, precision": PRECISION,
    "amp, precision, selective": PRECISION + SELECTIVE,
    "amp, precision, activation_checkpointing": PRECISION + FULL,
    "amp, precision, activation_checkpointing, fused_kernels": PRECISION + FULL + FUSED,
}


def recipe(size: str, context: int, batch: int, steps: int) -> dict:
    return {
        "name": "gpt2-medium",
        "device": "cpu",
        "model": {"name": "gpt2", "size": size, "context": context},
        "data": {"dataset": "synthetic", "batch_size": batch},
        "train": {"max_steps": steps, "max_grad_norm": 1.0},
        "optimizer": {"name": "adamw", "lr": 3e-4, "weight_decay": 0.1, "no_decay": ["norm", "bias"]},
        "checkpoint": {"at_end": False},
        "logging": {"sinks": ["jsonl"]},
    }


def run(folder: Path, file: Path, arm: str) -> dict:
    out = folder / "run"
    command = [common.trainopt_binary(), "run", file, "--run-dir", out, "--quiet", *ARMS[arm]]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{arm}\n{done.stderr[-2000:]}")
    summary = json.loads((out / "summary.json").read_text())
    subprocess.run(["rm", "-r", str(out)], check=True)
    print(arm, summary["step_ms"]["p50"], summary["memory"]["peak_bytes"], file=sys.stderr, flush=True)
    return summary


def gib(count: float) -> str:
    return f"{count / 2**30:.2f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", default="medium")
    options.add_argument("--context", type=int, default=1024)
    options.add_argument("--batch", type=int, default=2)
    options.add_argument("--steps", type=int, default=2, help="of a run; the first is not timed")
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--arms", type=int, nargs="+", default=range(len(ARMS)), help="numbers of sets; 0 is plain")
    chosen = options.parse_args()
    arms = {name: words for number, (name, words) in enumerate(ARMS.items()) if number in chosen.arms or number == 0}
    with common.temporary_folder() as name:
        folder = Path(name)
        file = common.write_recipe(folder, recipe(chosen.size, chosen.context, chosen.batch, chosen.steps), "recipe")
        plans = {arm: common.trainopt_json("plan", str(file), *words, "--json") for arm, words in arms.items()}
        rounds = []
        for turn in range(chosen.rounds):
            order = list(arms) if turn % 2 == 0 else list(reversed(arms))
            rounds.append({arm: run(folder, file, arm) for arm in order})
    rows = []
    for arm in arms:
        ratios = [one[arm]["step_ms"]["p50"] / one["plain"]["step_ms"]["p50"] for one in rounds]
        rows.append(
            {
                "switches": arm,
                "forecast GiB": gib(plans[arm]["memory"]["forecast_bytes"]),
                "measured GiB": gib(max(one[arm]["memory"]["peak_bytes"] for one in rounds)),
                "process GiB": gib(max(one[arm]["peak_memory_mib"] for one in rounds) * 2**20),
                "step time ÷ plain": f"{statistics.geometric_mean(ratios):.2f}",
                "by round": " ".join(f"{ratio:.2f}" for ratio in ratios),
            }
        )
    common.report("fit", rows)


if __name__ == "__main__":
    main()
