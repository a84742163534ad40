"""Runs trainopt and reads its results. How PyTorch computes them is in reference.py."""

import copy
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file

sys.path.append(str(Path(__file__).resolve().parents[1] / "support/command_server"))
from client import CommandServer

LOSS_TOLERANCE = 1e-3  # for twenty losses, relative
GRADIENT_TOLERANCE = (
    1e-4  # for outputs, gradients and running statistics of the first step, relative to the largest entry
)

HALF = {"normalize": {"mean": 0.5, "std": 0.5}}

BASE = {
    "name": "oracle",
    "seed": 3,
    "device": "cpu",
    "model": {"name": "mlp", "num_classes": 10, "hidden": [64, 48]},
    "data": {"dataset": "fake_cifar10", "size": 160, "batch_size": 8, "transforms": [HALF]},
    "train": {"max_steps": 20},
    "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9},
    "checkpoint": {"at_end": False},
    "logging": {"sinks": ["jsonl"]},
}


def allowed_cores() -> int:
    return len(os.sched_getaffinity(0))


def merge(base: dict, changes: dict) -> dict:
    """Merges as recipes do: maps are merged deeply; everything else is replaced, and so is an optimizer or model whose
    name changes."""
    result = copy.deepcopy(base)
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and value.get("name", old.get("name")) == old.get("name"):
            result[key] = merge(old, value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def recipe(*changes: dict) -> dict:
    result = BASE
    for change in changes:
        result = merge(result, change)
    if result["data"]["dataset"] in ("cifar10", "image_folder", "tokens", "documents"):
        del result["data"]["size"]  # their files determine the size
    return result


VOCABULARY = 97


def write_tokens(path: Path, count: int = 6000) -> Path:
    """16-bit tokens below VOCABULARY that depend on those before them, so that there is something to learn."""
    random = np.random.default_rng(5)
    tokens = [1]
    for step in random.integers(0, 4, count - 1):
        tokens.append(int(tokens[-1] * 31 + step + 7) % VOCABULARY)
    np.asarray(tokens, dtype="<u2").tofile(path)
    return path


BINARY = Path(os.environ["TRAINOPT_BINARY"])  # of the trainopt program; ctest sets it
SERVER = CommandServer(BINARY.with_name("command_server"), dict(os.environ))


def trainopt(*arguments, expect: int = 0) -> subprocess.CompletedProcess:
    done = SERVER.run([str(BINARY), *map(str, arguments)], os.getcwd(), dict(os.environ), timeout=300)
    ended = f"trainopt {' '.join(map(str, arguments))}\nexited with code {done.returncode}, not {expect}"
    assert done.returncode == expect, f"{ended}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


def write_recipe(folder: Path, content: dict, name: str = "recipe") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


@dataclass
class Step:
    """The input of the model in one step: its micro-batches, concatenated."""

    input: torch.Tensor
    target: torch.Tensor
    sample_id: torch.Tensor


def export(folder: Path, content: dict, steps: int) -> list[Step]:
    out = folder / "export.safetensors"
    trainopt("data", "export", write_recipe(folder, content, "export"), "--steps", steps, out)
    tensors = load_file(out)
    found = [
        Step(*(tensors[f"step-{n:08d}.{what}"] for what in ("input", "target", "sample_id")))
        for n in range(1, steps + 1)
    ]
    for step in found:
        assert step.input.dtype == (torch.float32 if step.input.dim() == 4 else torch.int64)
        assert step.target.dtype == step.sample_id.dtype == torch.int64
        assert len(step.input) == len(step.target) == len(step.sample_id)
    out.unlink()
    return found


class Run:
    """A finished run directory."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
        self.summary = json.loads((directory / "summary.json").read_text())
        assert [record["step"] for record in self.records] == list(range(1, len(self.records) + 1))

    def column(self, name: str) -> list:
        return [record[name] for record in self.records]

    def dump(self, step: int) -> dict[str, torch.Tensor]:
        return load_file(self.directory / "dump" / f"step-{step:08d}.safetensors")

    def weights(self) -> dict[str, torch.Tensor]:
        return load_file(self.directory / "weights.safetensors")


def train(folder: Path, content: dict, name: str = "run") -> Run:
    directory = folder / name
    trainopt("run", write_recipe(folder, content, name), "--run-dir", directory, "--quiet")
    return Run(directory)


def largest_difference(ours: torch.Tensor, theirs: torch.Tensor, least: float = 1e-12) -> float:
    """Largest difference relative to the largest entry of `theirs`, or to `least` if that entry is smaller."""
    assert ours.shape == theirs.shape, f"{tuple(ours.shape)} is not {tuple(theirs.shape)}"
    theirs = theirs.double()
    return ((ours.double() - theirs).abs().max() / theirs.abs().max().clamp_min(least)).item()


def assert_close_columns(ours: list, theirs: list, tolerance: float, what: str) -> None:
    assert len(ours) == len(theirs), f"{what}: {len(ours)} values, not {len(theirs)}"
    for step, (a, b) in enumerate(zip(ours, theirs), start=1):
        assert a is not None and abs(a - b) <= tolerance * max(
            abs(b), 1e-12
        ), f"{what} of step {step}: {a} is not {b}\n{ours}\n{theirs}"


def write_cifar10(folder: Path, sizes: dict[str, int], seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Writes files of 3,073-byte records (label, then 1,024 bytes each of red, green, blue). Returns the pixels
    [n,3,32,32] and labels of each file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    written = {}
    for name, size in sizes.items():
        labels = random.integers(0, 10, size, dtype=np.uint8)
        pixels = random.integers(0, 256, (size, 3, 32, 32), dtype=np.uint8)
        records = np.concatenate([labels[:, None], pixels.reshape(size, -1)], axis=1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
        written[name] = pixels, labels.astype(np.int64)
    return written


def photograph(height: int, width: int, seed: int) -> Image.Image:
    """Smooth shapes with some noise: the image compresses like a photograph, and no two regions look alike."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    layers = [
        np.sin(2 * np.pi * (fx * x + fy * y) + phase)
        for fx, fy, phase in zip(random.uniform(-6, 6, 3), random.uniform(-6, 6, 3), random.uniform(0, 6, 3))
    ]
    pixels = 128 + 90 * np.stack(layers, axis=-1) + random.normal(0, 8, (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def write_image_folder(folder: Path, images: dict[str, Image.Image], **options) -> list[Path]:
    """Writes `images`, "class/file.png" -> image. Returns the files in the order of their sample ids: bytewise by
    class, then by name."""
    for name, image in images.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, **options)
    return image_folder_files(folder)


def image_folder_files(folder: Path) -> list[Path]:
    return sorted(
        (path for path in folder.glob("*/*")), key=lambda path: (os.fsencode(path.parent.name), os.fsencode(path.name))
    )


def grey_levels(step: Step, normalize: dict = HALF["normalize"]) -> np.ndarray:
    """The model's input converted back to grey levels [n,H,W,3]; not rounded, so that scaling errors show."""
    mean, std = (
        torch.tensor(normalize[key], dtype=torch.float64).expand(3).reshape(1, 3, 1, 1) for key in ("mean", "std")
    )
    return ((step.input.double() * std + mean) * 255).permute(0, 2, 3, 1).numpy()
