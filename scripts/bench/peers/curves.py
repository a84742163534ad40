"""Loss curves of trainopt and PyTorch: same initial weights, same batches in the same order. The two may differ by as
much as trainopt differs from itself with initial weights from another seed and all else equal.

The data have random labels and repeat every few steps, so the loss falls by memorising them.
"""

import json
import shlex
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from .arms import ArmFailed, Sides, torch_arm, trainopt_arm


@dataclass
class CurveCase:
    model: str
    batch: int
    side: int
    steps: int
    way: str = "eager channels-last bf16"
    classes: int = 10
    threads: int | None = None
    learning_rate: float = 0.01
    batches: int = 8  # per epoch

    def overrides(self) -> list[str]:
        return [
            "seed=0",
            f"model={{name: {self.model}, num_classes: {self.classes}}}",
            f"data={{dataset: fake_cifar10, size: {self.batch * self.batches}, "
            f"batch_size: {self.batch}, num_workers: 1}}",
            f"data.transforms=[{{resize: {self.side}}}, {{normalize: {{mean: 0.5, std: 0.5}}}}]",
            f"optimizer={{name: sgd, lr: {self.learning_rate}, momentum: 0.9}}",
            f"train.max_steps={self.steps}",
            *([f"num_threads={self.threads}"] if self.threads else []),
        ]


def checked(command: list, deadline: float, **options) -> None:
    left, words = max(0.0, deadline - time.monotonic()), [str(word) for word in command]
    named = f"{shlex.join(words[:4])} …"
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=None if left == float("inf") else left,
            **options,
        )
    except subprocess.TimeoutExpired:
        raise ArmFailed(f"{named} did not finish before the deadline") from None
    if done.returncode != 0:
        raise ArmFailed(f"{named} exited with code {done.returncode}: {done.stderr.strip()[-500:]}")


def write_weights(sides: Sides, case: CurveCase, seed: int, file: Path) -> None:
    """Writes torchvision's own initial weights."""
    text = (
        "import sys, torch, torchvision\nfrom safetensors.torch import save_file\ntorch.manual_seed(int(sys.argv[4]))\n"
        "save_file(getattr(torchvision.models, sys.argv[1])(num_classes=int(sys.argv[2])).state_dict(), sys.argv[3])\n"
    )
    checked([sides.python, "-c", text, case.model, case.classes, file, seed], sides.deadline)


def curve(arm, steps: int) -> list[float]:
    """The losses of all steps; the arm has already taken its first one."""
    with arm:
        return arm.losses + arm.turn(steps - 1)["losses"]


def distances(a: list[float], b: list[float]) -> dict:
    apart = [abs(x - y) for x, y in zip(a, b, strict=True)]
    return {"largest": max(apart), "mean": statistics.fmean(apart)}


def loss_curves(sides: Sides, case: CurveCase, folder: Path, overrides: list[str]) -> dict:
    folder.mkdir(parents=True, exist_ok=True)
    weights, other, data = (folder / f"{name}.safetensors" for name in ("weights", "other-weights", "data"))
    mine = [*case.overrides(), *overrides]
    write_weights(sides, case, 7, weights)  # not 0, the seed of the peers without a weights file
    write_weights(sides, case, 8, other)
    checked(
        [sides.trainopt, "data", "export", sides.recipe, *mine, "--steps", case.steps, data],
        sides.deadline,
        env=sides.trainopt_environment,
    )

    def own(name: str, file: Path) -> list[float]:
        return curve(trainopt_arm(sides, folder, [*mine, f"model.weights={json.dumps(str(file))}"], name), case.steps)

    options = {
        "model": case.model,
        "classes": case.classes,
        "batch": case.batch,
        "side": case.side,
        "threads": case.threads,
    }
    options |= {"learning-rate": case.learning_rate, "weights": weights, "data": data, "losses": True}
    curves = {
        "trainopt": own("weights", weights),
        "PyTorch": curve(torch_arm(sides, folder, case.way, options), case.steps),
        "trainopt, other weights": own("other-weights", other),
    }
    data.unlink()
    apart = distances(curves["trainopt"], curves["PyTorch"])
    spread = distances(curves["trainopt"], curves["trainopt, other weights"])
    return {
        "case": f"{case.model} batch {case.batch} {case.side} px, {case.steps} steps",
        "PyTorch": case.way,
        "apart": apart,
        "spread": spread,
        "within": apart["largest"] <= spread["largest"] and apart["mean"] <= spread["mean"],
        "first": {name: losses[0] for name, losses in curves.items()},
        "last": {name: losses[-1] for name, losses in curves.items()},
        "curves": curves,
    }
