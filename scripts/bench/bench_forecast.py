"""The forecast of a step's memory against what a run measures, on CPUs: all models with and without amp, switches that
change memory, and two ranks with every sharding strategy. With --programs: programs of torch.export, plain and with
everything on. Bytes, so no timing and no noise."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import common

COMMON = {
    "device": "cpu",
    "train": {"max_steps": 2},
    "evaluation": {"at_end": False},
    "checkpoint": {"at_end": False},
    "logging": {"sinks": ["jsonl"]},
}
LIMIT_PCT = 10
AMP = ["optimizations.amp=true"]
SWITCHES = {
    "fused_kernels": ["optimizations.fused_kernels=true"],
    "winograd": ["optimizations.winograd=true"],
    "channels_last": ["optimizations.channels_last=true"],
    "set_to_none": ["optimizations.set_to_none=true"],
    "fused_optimizer, amp": ["optimizations.fused_optimizer=true", *AMP],
    "adam": ["optimizer.name=adam"],
    "accumulation": ["train.gradient_accumulation_steps=2"],
    "on_nonfinite: skip": ["train.on_nonfinite=skip"],
}


def of_data(image: int, batch: int) -> list[str]:
    return [
        *("data.dataset=synthetic", f"data.image_size={image}", f"data.batch_size={batch}"),
        f"data.size={16 * batch}",
    ]


def cases():
    """(name, ranks, overrides)"""
    for model, batch in (("resnet18", 16), ("resnet34", 16), ("resnet50", 8)):
        for amp in ([], AMP):
            name = f"{model}, 224 px, batch {batch}{', amp' if amp else ''}"
            yield name, 1, [f"model.name={model}", *of_data(224, batch), *amp]
    for amp in ([], AMP):
        small = ["model.stem=cifar", *of_data(32, 64), *amp]
        yield f"resnet18, cifar stem, 32 px, batch 64{', amp' if amp else ''}", 1, small
    yield "mlp, batch 256", 1, ["model={name: mlp, hidden: [1024, 1024]}", *of_data(32, 256)]
    for name, words in SWITCHES.items():
        yield f"resnet18, 224 px, batch 16, {name}", 1, [*of_data(224, 16), *words]
    for strategy in ("none", "zero1", "zero2", "zero3"):
        for amp in ([], AMP):
            name = f"resnet18, 64 px, batch 32, {strategy}{', amp' if amp else ''}"
            yield name, 2, [*of_data(64, 32), f"parallel.sharding_strategy={strategy}", *amp]


def program_cases(folder: Path):
    sys.path.append(str(common.ROOT / "tests/oracle"))
    import exported
    import torch

    everything = ["amp", "channels_last", "set_to_none", "fused_kernels", "winograd", "fused_optimizer"]
    for name, (make, side) in exported.MODELS.items():
        path = folder / f"{len(list(folder.iterdir()))}.pt2"
        exported.save(make().train(), torch.randn(2, 3, side, side), path)
        words = [f"model={{name: exported, path: {path}}}", *of_data(side, 8)]
        yield f"{name}, {side} px, batch 8", 1, words
        yield f"{name}, {side} px, batch 8, all on", 1, [*words, *(f"optimizations.{key}=true" for key in everything)]


def measure(name: str, ranks: int, words: list[str], folder: Path) -> dict:
    recipe = common.write_recipe(folder, COMMON, "forecast")
    plan = common.trainopt_json("plan", recipe, "--json", *words, "--assume", f"gpus=0,ranks={ranks}")
    forecast = plan.get("memory")
    if forecast is None:
        return {"plan": name, "ranks": ranks, "forecast_mib": next(n for n in plan["notes"] if "forecast" in n)}
    run_dir = folder / f"run-{len(list(folder.iterdir()))}"
    run = ["run", str(recipe), "--run-dir", str(run_dir), "--quiet", *words]
    command = [str(common.trainopt_binary()), *(["launch", "-n", str(ranks), "--"] if ranks > 1 else []), *run]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    if ranks > 1:
        environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nexited with code {done.returncode}\n{done.stderr[-2000:]}")
    measured = json.loads((run_dir / "summary.json").read_text())["memory"]
    error = 100 * (forecast["forecast_bytes"] / measured["peak_bytes"] - 1)
    return {
        "plan": name,
        "ranks": ranks,
        "forecast_mib": round(forecast["forecast_bytes"] / 2**20, 1),
        "measured_mib": round(measured["peak_bytes"] / 2**20, 1),
        "error_pct": round(error, 1),
        "limit_pct": LIMIT_PCT,
        "holds": abs(error) <= LIMIT_PCT,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only plans whose name contains this")
    parser.add_argument("--programs", action="store_true")
    chosen = parser.parse_args()
    with common.temporary_folder() as folder:
        all_cases = program_cases(Path(folder)) if chosen.programs else cases()
        rows = [measure(*case, Path(folder)) for case in all_cases if chosen.only in case[0]]
    common.report("forecast", rows)


if __name__ == "__main__":
    main()
