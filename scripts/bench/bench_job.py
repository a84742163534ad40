"""The complete reference job on a CPU, including data loading: rung 0 and the best rung of the ladder against the same
job as a Python script.
"""

import argparse
import sys
from pathlib import Path

import common
from alternator import Alternator, Side

TRANSFORMS = [{"resize": 224}, {"normalize": {"mean": 0.5, "std": 0.5}}]
BEST = {**common.SWITCHES, "amp": {"dtype": "bfloat16"}}
# trainopt's data and optimizations, and the options of article_script.py, which gets every improvement available to it.
RUNGS = {
    "0-baseline": ({"num_workers": 0}, {}, ["--keep-gradients"]),
    "best": (
        {"num_workers": 2, "persistent_workers": True},
        BEST,
        ["--workers", "2", "--channels-last", "--amp", "--fused"],
    ),
}


def measure(rung: str, chosen, folder: Path) -> dict:
    data, optimizations, script_options = RUNGS[rung]
    recipe = {
        "name": f"bench-{rung}",
        "device": "cpu",
        "model": {"name": "resnet18", "num_classes": 10},
        "data": {
            "dataset": "fake_cifar10",
            "size": 10000,
            "batch_size": chosen.batch,
            "transforms": TRANSFORMS,
            **data,
        },
        "train": {"max_steps": 10**7},
        "optimizer": {"name": "sgd", "lr": 0.001, "momentum": 0.9},
        "optimizations": optimizations,
        "checkpoint": {"at_end": False},
        "logging": {"sinks": ["jsonl"]},
    }
    run_dir = folder / f"run-{rung}"
    ours = Side(
        "trainopt",
        [
            str(common.trainopt_binary()),
            "run",
            str(common.write_recipe(folder, recipe, rung)),
            "--run-dir",
            str(run_dir),
            "--quiet",
            *chosen.override,
        ],
        run_dir / "metrics.jsonl",
        folder / f"ours-{rung}.log",
        chosen.batch,
    )
    steps_file = folder / f"theirs-{rung}.jsonl"
    theirs = Side(
        "script",
        [
            sys.executable,
            str(common.HERE / "article_script.py"),
            "--steps-file",
            str(steps_file),
            "--batch",
            str(chosen.batch),
            *script_options,
        ],
        steps_file,
        folder / f"theirs-{rung}.log",
        chosen.batch,
    )
    pairs = Alternator(ours, theirs, chosen.turn or (6.0 if rung == "0-baseline" else 5.0), chosen.seconds).run()
    return {"rung": rung, **common.ratio_interval(pairs), "script": " ".join(script_options)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rung", choices=[*RUNGS, "both"], default="both")
    options.add_argument("--seconds", type=float, default=48, help="seconds of turns per rung, without start-up")
    options.add_argument("--turn", type=float, help="length of a turn in seconds")
    options.add_argument(
        "--batch", type=int, default=32, help="of both sides; the ladder's 1024 would take minutes per step on a CPU"
    )
    options.add_argument("override", nargs="*", help="key=value for trainopt")
    chosen = options.parse_args()
    with common.temporary_folder() as folder:
        common.report(
            "job",
            [measure(rung, chosen, Path(folder)) for rung in (RUNGS if chosen.rung == "both" else (chosen.rung,))],
        )


if __name__ == "__main__":
    main()
