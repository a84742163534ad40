"""What it costs to make a model fit: GPT-2 medium with several sets of switches. For each: the forecast of the step's
memory, what a run measures, and its step time ÷ that of the plain run of the same round. A round runs all sets, every
second round backwards. With --ranks 2 the sets are the ways to divide the model between two processes with one thread
each; a pipeline's batch is twice as large, so that all divide the same step.
"""

import argparse
import json
import os
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
RANK_ARMS = {"plain": []}
RANK_ARMS |= {name: [f"parallel.sharding_strategy={name}"] for name in ("zero1", "zero2", "zero3")}


def rank_arms(batch: int) -> dict:
    pipelines = {
        f"pipeline, {count} micro-batches": [
            f"parallel.pipeline={{stages: 2, micro_batches: {count}}}",
            f"data.batch_size={2 * batch}",
        ]
        for count in (1, 2, 4)
        if 2 * batch % count == 0
    }
    return RANK_ARMS | pipelines


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


def run(folder: Path, file: Path, arm: str, words: list[str], ranks: int) -> dict:
    out = folder / "run"
    launch = ["launch", "-n", ranks, "--"] if ranks > 1 else []
    command = [common.trainopt_binary(), *launch, "run", file, "--run-dir", out, "--quiet", *words]
    threads = {"OMP_NUM_THREADS": "1"} if ranks > 1 else {}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=os.environ | threads)
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
    options.add_argument("--arms", type=int, nargs="+", help="numbers of sets; 0 is plain and always measured")
    options.add_argument("--ranks", type=int, default=1, choices=[1, 2])
    chosen = options.parse_args()
    all_arms = ARMS if chosen.ranks == 1 else rank_arms(chosen.batch)
    wanted = {0, *(chosen.arms or range(len(all_arms)))}
    arms = {name: words for number, (name, words) in enumerate(all_arms.items()) if number in wanted}
    with common.temporary_folder() as name:
        folder = Path(name)
        file = common.write_recipe(folder, recipe(chosen.size, chosen.context, chosen.batch, chosen.steps), "recipe")
        assume = ["--assume", f"ranks={chosen.ranks}"] if chosen.ranks > 1 else []
        plans = {
            arm: common.trainopt_json("plan", str(file), *words, *assume, "--json") for arm, words in arms.items()
        }
        rounds = []
        for turn in range(chosen.rounds):
            order = list(arms) if turn % 2 == 0 else list(reversed(arms))
            rounds.append({arm: run(folder, file, arm, arms[arm], chosen.ranks) for arm in order})
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
