"""What the profiler costs, and what it leaves unexplained.

slowdown   how much longer a step takes while it is recorded: trainopt's `profiler` beside torch.profiler, which records
           the same activities of the same model in PyTorch, torchvision's ResNet-18 or an MLP, on one batch. Within
           each process, recorded and other steps alternate; the processes take turns.
other      the share of the wall time that belongs to no category, in `trainopt profile` of every shipped recipe that
           runs on a CPU without data of its own.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import common

WAIT, WARMUP, ACTIVE = 12, 1, 6
SETTLING = 6  # steps after a recording that are not counted: its events have filled the caches
OTHER_LIMIT_PCT = 5
# Recipes that need data which is not in the checkout.
NEEDS_DATA = {"image_folder.yaml", "digits.yaml"}
SMALL = ["data.batch_size=4", "data.size=64", "evaluation.at_end=false"]

PEER = """
import json, sys, time
import torch, torchvision
from torch.profiler import ProfilerActivity, profile, schedule

name, *numbers = sys.argv[1:]
size, batch, cycles, wait, warmup, active = map(int, numbers)
torch.set_num_threads(1)
model = torchvision.models.resnet18(num_classes=10) if name == "resnet18" else torch.nn.Sequential(
    torch.nn.Flatten(), torch.nn.Linear(3 * size * size, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
images, labels = torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,))
steps = []
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=wait, warmup=warmup, active=active)) as profiler:
    for _ in range(cycles * (wait + warmup + active)):
        began = time.perf_counter()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        steps.append(1e3 * (time.perf_counter() - began))
        profiler.step()
print(json.dumps(steps))
"""


def recipe(chosen) -> dict:
    return {
        "device": "cpu",
        "num_threads": 1,
        "model": {"name": chosen.model, "num_classes": 10} | ({"hidden": [16]} if chosen.model == "mlp" else {}),
        "data": {"dataset": "synthetic", "image_size": chosen.size, "batch_size": chosen.batch},
        "train": {"max_steps": chosen.cycles * (WAIT + WARMUP + ACTIVE)},
        "optimizer": {"name": "sgd", "lr": 0.001, "momentum": 0.9},
        "checkpoint": {"at_end": False},
        "logging": {"sinks": ["jsonl"]},
        "profiler": {"wait": WAIT, "warmup": WARMUP, "active": ACTIVE, "repeat": 0},
    }


def our_steps(chosen) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        file = common.write_recipe(Path(folder), recipe(chosen), "profiled")
        command = [common.trainopt_binary(), "run", file, "--run-dir", f"{folder}/run", "--quiet"]
        subprocess.run(command, check=True, capture_output=True)
        lines = Path(folder, "run/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["step_ms"] for line in lines]


def their_steps(chosen) -> list[float]:
    sizes = map(str, (chosen.size, chosen.batch, chosen.cycles, WAIT, WARMUP, ACTIVE))
    command = [sys.executable, "-W", "ignore", "-c", PEER, chosen.model, *sizes]
    done = subprocess.run(command, check=True, capture_output=True)
    return json.loads(done.stdout)


def slowdowns(steps: list[float]) -> list[tuple[float, float]]:
    """Per cycle but the first, from medians: the milliseconds that recording adds to a step, and its ratio to another
    step.
    """
    cycle = WAIT + WARMUP + ACTIVE
    cycles = []
    for begin in range(cycle, len(steps), cycle):
        plain, recorded = steps[begin + SETTLING : begin + WAIT], steps[begin + WAIT + WARMUP : begin + cycle]
        with_it, without = statistics.median(recorded), statistics.median(plain)
        cycles.append((with_it - without, with_it / without))
    return cycles


def slowdown(chosen) -> list[dict]:
    found = {"trainopt": [], "torch.profiler": []}
    measure = {"trainopt": our_steps, "torch.profiler": their_steps}
    for number in range(chosen.rounds):
        for side in sorted(found, reverse=number % 2 == 1):
            found[side] += slowdowns(measure[side](chosen))
        print(f"  {number + 1}/{chosen.rounds}", file=sys.stderr)
    row = {"what": f"{chosen.model}: what recording adds to a step", "asked": "not more than torch.profiler"}
    for side, cycles in found.items():
        added, low, high = (1e3 * ms for ms in common.bootstrap([ms for ms, _ in cycles], statistics.median))
        ratio = statistics.median(ratio for _, ratio in cycles)
        row[side] = f"{added:.0f} µs ({low:.0f} … {high:.0f}), the step × {ratio:.3f}"
    row["cycles"] = len(found["trainopt"])
    return [row]


def other(chosen) -> list[dict]:
    rows = []
    configs = common.ROOT / "configs"
    for path in sorted(configs.glob("*.yaml")) + sorted(configs.glob("ladder/*/*.yaml")):
        if path.name in NEEDS_DATA:
            continue
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["profile", path, "device=cpu", *SMALL, f"run_dir={folder}/run"]
            result = common.trainopt_json(*arguments, "--json")
        share = 100 * result["breakdown_ms"]["other"] / result["wall_ms"]
        rows.append({"what": str(path.relative_to(configs)), "asked": f"other ≤ {OTHER_LIMIT_PCT} %",
                     "found": f"{share:.2f} %"})
        print(rows[-1], file=sys.stderr)
    return rows


ROWS = {"slowdown": slowdown, "other": other}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", choices=list(ROWS), action="append", help="run only this; may be repeated")
    options.add_argument("--model", choices=["resnet18", "mlp"], default="resnet18")
    options.add_argument("--size", type=int, default=64, help="pixels of an image's side")
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--cycles", type=int, default=10, help="recordings per process; the first is not counted")
    options.add_argument("--rounds", type=int, default=4, help="processes per side")
    chosen = options.parse_args()
    for row in chosen.only or ROWS:
        common.report("profiler", ROWS[row](chosen))


if __name__ == "__main__":
    main()
