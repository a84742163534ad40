"""Recipes made bad on purpose, tuned by `trainopt tune`, which does not know the fault. For each: the limit that it
named, what it kept, and its throughput ÷ that of the recipe tuned by hand, in a comparison of the two.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

import common
from PIL import Image

NORMALIZE = {"normalize": {"mean": 0.5, "std": 0.5}}
SMALL = [{"resize": 8}, NORMALIZE]


def job(model: dict, data: dict, **rest) -> dict:
    return {
        "name": "bad",
        "device": "cpu",
        "model": {"num_classes": 10, **model},
        "data": {"dataset": "fake_cifar10", "size": 4096, **data},
        "train": {"epochs": 100, **rest.pop("train", {})},
        "optimizer": rest.pop("optimizer", {"name": "sgd", "lr": 0.001}),
        "checkpoint": {"at_end": False, **rest.pop("checkpoint", {})},
        **rest,
    }


def mlp(*hidden: int) -> dict:
    return {"name": "mlp", "hidden": list(hidden)}


def cases(folder: Path) -> dict:
    """Name → (recipe, ranks, changes by hand, limits that name the fault)."""
    crop = [{"resize": 96}, {"random_resized_crop": 64}, "random_horizontal_flip", NORMALIZE]
    heavy = {"batch_size": 32, "transforms": crop}
    loaded = {"batch_size": 32, "transforms": [{"resize": 160}, {"random_resized_crop": 32}, NORMALIZE]}
    photos = {"dataset": "image_folder", "path": str(folder / "photos"), "batch_size": 16, "transforms": crop}
    photos["size"] = None
    convolutions = {"batch_size": 16, "transforms": [{"resize": 64}, NORMALIZE]}
    tests = {"evaluation": {"every_n_steps": 10, "path": str(folder / "cifar")}}
    on_cifar = {"dataset": "cifar10", "path": str(folder / "cifar"), "size": None, "transforms": SMALL}
    adamw = {"name": "adamw", "lr": 0.001}
    gpt2 = {"name": "gpt2", "layers": 2, "heads": 4, "width": 128, "context": 512, "vocabulary": 1024}
    text = {"dataset": "synthetic", "size": 4096, "batch_size": 4}
    return {
        "no workers": (job(mlp(64), loaded), 1, ["data.num_workers=2"], {"loader"}),
        "plain convolutions": (
            job({"name": "resnet18", "stem": "cifar"}, {**convolutions, "transforms": [{"resize": 32}, NORMALIZE]}),
            1,
            [f"optimizations.{name}=true" for name in ("winograd", "fused_kernels", "host_allocator")],
            {"compute", "memory bandwidth"},
        ),
        "batch 1, 32 times": (
            job(mlp(64, 64), {"batch_size": 1, "transforms": SMALL}, train={"gradient_accumulation_steps": 32}),
            1,
            ["data.batch_size=32", "train.gradient_accumulation_steps=1"],
            {"launches"},
        ),
        "slow decode": (job(mlp(256), photos), 1, ["data.cache=memory", "data.num_workers=2"], {"loader"}),
        "tiny buckets": (
            job(mlp(*[64] * 48), {"batch_size": 16, "transforms": SMALL}, parallel={"bucket_cap_mb": 0.01}),
            2,
            ["parallel.bucket_cap_mb=25"],
            {"exchange"},
        ),
        "checkpoint every step": (
            job(mlp(512, 512), {"batch_size": 64, "transforms": SMALL}, checkpoint={"every_n_steps": 1}),
            1,
            ["checkpoint.every_n_steps=100"],
            {"checkpoints"},
        ),
        "evaluation every ten steps": (
            job(mlp(256), {**on_cifar, "batch_size": 64}, **tests),
            1,
            ["evaluation.every_n_steps=1000"],
            {"evaluation"},
        ),
        "every record to three sinks": (
            job(mlp(16), {"batch_size": 8, "transforms": SMALL}, logging={"sinks": ["jsonl", "csv", "tensorboard"]}),
            1,
            ["logging.every_n_steps=100", "data.cache=device"],
            {"records", "launches"},
        ),
        "too many threads": (
            job({"name": "resnet18", "stem": "cifar"}, {**heavy, "batch_size": 8, "num_workers": 8}),
            1,
            ["data.num_workers=1", "optimizations.winograd=true", "optimizations.fused_kernels=true"],
            {"compute", "memory bandwidth"},
        ),
        "many small tensors": (
            job(mlp(*[64] * 48), {"batch_size": 16, "transforms": SMALL}, optimizer=adamw),
            1,
            ["optimizations.fused_optimizer=true", "data.cache=device"],
            {"update", "launches"},
        ),
        "checkpointing without need": (
            job(gpt2, text, optimizations={"activation_checkpointing": True}, optimizer=adamw),
            1,
            ["optimizations.activation_checkpointing=false", "optimizations.fused_kernels=true"]
            + ["optimizations.fused_optimizer=true", "optimizations.host_allocator=true"],
            {"compute", "memory bandwidth"},
        ),
        "amp without its arithmetic, NCHW": (
            job(
                {"name": "resnet18", "stem": "cifar"},
                {**convolutions, "batch_size": 8, "transforms": [{"resize": 32}, NORMALIZE]},
                optimizations={"amp": True},
            ),
            1,
            ["optimizations.channels_last=true", "optimizations.winograd=true", "optimizations.fused_kernels=true"]
            + ["optimizations.host_allocator=true"]
            + ([] if sixteen_bits() else ["optimizations.amp=false"]),
            {"compute", "memory bandwidth"},
        ),
    }


def sixteen_bits() -> bool:
    """Whether this processor multiplies 16-bit numbers."""
    return "avx512_bf16" in common.machine()["extensions"] or "amx_bf16" in common.machine()["extensions"]


def write_data(folder: Path) -> None:
    noise = random.Random(0)
    (folder / "cifar").mkdir()
    for name, count in (("data_batch_1.bin", 4096), ("test_batch.bin", 8192)):
        (folder / "cifar" / name).write_bytes(bytes(3073 * count))
    for label in range(2):
        (folder / "photos" / str(label)).mkdir(parents=True)
        for i in range(64):
            small = Image.frombytes("RGB", (16, 12), noise.randbytes(16 * 12 * 3))
            small.resize((800, 600)).save(folder / "photos" / str(label) / f"{i}.jpg", quality=90)


def without_none(value):
    if isinstance(value, dict):
        return {key: without_none(inner) for key, inner in value.items() if inner is not None}
    return value


def run(*words, ranks: int = 1, check: bool = True) -> subprocess.CompletedProcess:
    launch = ["launch", "-n", str(ranks), "--"] if ranks > 1 else []
    command = [str(common.trainopt_binary()), *launch, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    return done


def tune(recipe: Path, out: Path, ranks: int, budget: str) -> dict:
    run("tune", recipe, "--budget", budget, "--ranks", ranks, "--run-dir", out, "--quiet")
    return json.loads((out / "result.json").read_text())


def errors(result: dict) -> list[float]:
    """Of each estimate, in points: estimated − measured gain in percent. Of a change that was compared more than once,
    the last comparison counts."""
    last = {tuple(step["change"]): step for step in result["steps"] if step["ratio"]}
    return [100 * (step["estimate"] - step["ratio"]) for step in last.values()]


def measure(folder: Path, name: str, case: tuple, budget: str) -> dict:
    recipe, ranks, by_hand, limits = case
    file = common.write_recipe(folder, without_none(recipe), "bad")
    out = folder / name.replace(" ", "-").replace(",", "")
    result = tune(file, out, ranks, budget)
    tuned, hand = out / "tuned.yaml", out / "hand.yaml"
    resolved = common.trainopt_json("plan", str(file), *by_hand, "--json")["recipe"]
    hand.write_text(json.dumps(resolved))
    run("compare", hand, tuned, "--whole", "--no-numbers", "--budget", "60s", "--run-dir", out / "against", ranks=ranks)
    against = json.loads((out / "against/result.json").read_text())
    limit = (result["limits"] or ["none"])[0].split(":")[0]
    row = {
        "fault": name,
        "limit": limit,
        "named": limit in limits,
        "kept": " ".join(result["change"]),
        "gain": result["ratio"] and round(result["ratio"], 2),
        "÷ by hand": round(against["ratio"], 2),
        "interval": against["interval"] and [round(end, 2) for end in against["interval"]],
        "errors": [round(error, 1) for error in errors(result)],
        "ended": result["ended"],
    }
    print(json.dumps(row), file=sys.stderr, flush=True)
    estimates = [
        (step["change"], round(step["estimate"], 3), step["ratio"] and round(step["ratio"], 3), step["reason"])
        for step in result["steps"]
    ]
    print(json.dumps(estimates), file=sys.stderr, flush=True)
    return row


def tune_again(folder: Path, name: str, case: tuple, budget: str) -> dict:
    """Tunes until a whole tuning keeps nothing: the recipe is then as good as this program can make it. Another tuning,
    which is the one reported, should leave it alone.
    """
    key = name.replace(" ", "-").replace(",", "")
    best = folder / key / "tuned.yaml"
    if not best.exists():
        best = common.write_recipe(folder, without_none(case[0]), "bad")
    for tunings in range(1, 6):
        out = folder / "again" / f"{key}-{tunings}"
        result = tune(best, out, case[1], budget)
        print(name, tunings, result["ended"], *result["change"], file=sys.stderr, flush=True)
        best = out / "tuned.yaml"
        if not result["change"]:
            break
    result = tune(best, folder / "again" / key, case[1], budget)
    row = {
        "recipe": name,
        "tunings before": tunings,
        "tried": len(result["steps"]),
        "changed": " ".join(result["change"]) or "nothing",
        "gain": result["ratio"] and round(result["ratio"], 2),
        "interval": result["interval"] and [round(end, 2) for end in result["interval"]],
        "ended": result["ended"],
    }
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def run_in(folder: Path, chosen: argparse.Namespace) -> None:
    if not (folder / "cifar").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_data(folder)
    all_cases = cases(folder)
    faults = chosen.only if chosen.only is not None else list(all_cases)
    rows = [measure(folder, fault, all_cases[fault], chosen.budget) for fault in faults]
    again = [tune_again(folder, fault, all_cases[fault], chosen.again_budget) for fault in chosen.again]
    if rows:
        sizes = sorted(abs(error) for row in rows for error in row["errors"])
        print(f"median error of {len(sizes)} estimates: {statistics.median(sizes):.1f} points")
        common.report("tune", rows)
    if again:
        common.report("tune", again)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--budget", default="3m", help="of each tuning")
    options.add_argument("--only", nargs="*", help="names of faults; empty: none")
    options.add_argument("--again", nargs="*", default=[], help="names of faults: tune until nothing is left")
    options.add_argument("--again-budget", default="3m", help="of each of these tunings")
    options.add_argument("--folder", type=Path, help="keep all files here, and use what an earlier bench tuned here")
    chosen = options.parse_args()
    if chosen.folder:
        return run_in(chosen.folder, chosen)
    with common.temporary_folder() as name:
        run_in(Path(name), chosen)


if __name__ == "__main__":
    main()
