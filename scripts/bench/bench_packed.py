"""Packed uint8 images of 224×224 in random order with two threads, against the folder of JPEGs that they were made
from, and against copies of as many bytes by two threads."""

import argparse
import subprocess
import threading
import time
from pathlib import Path

import numpy as np

import bench_jpeg
import common

WORKERS, BATCH, SIDE = 2, 32, 224


def recipe(dataset: str, path: Path, transforms: list) -> dict:
    return {
        "device": "cpu",
        "model": {"name": "mlp"},
        "data": {
            "dataset": dataset,
            "path": str(path),
            "batch_size": BATCH,
            "num_workers": WORKERS,
            "persistent_workers": True,
            "prefetch_factor": 8,  # at tens of thousands of images a second a batch is ready every millisecond
            "transforms": [*transforms, {"normalize": {"mean": 0.5, "std": 0.5}}],
        },
        "optimizations": {"device_preprocess": True},  # batches of uint8
    }


def copies(images: int, seconds: float):
    """Images a second that two threads copy in random order to places that they reuse, as the loader does."""
    source = np.random.default_rng(0).integers(0, 256, (images, SIDE * SIDE * 3), dtype=np.uint8)

    def work(seed: int, counts: list, until: float) -> None:
        order = np.random.default_rng(seed).integers(0, images, 1 << 20)
        places = np.empty((4 * BATCH, SIDE * SIDE * 3), np.uint8)
        count = 0
        while time.monotonic() < until:
            for _ in range(BATCH):
                np.copyto(places[count % len(places)], source[order[count % len(order)]])
                count += 1
        counts.append(count)

    def block() -> float:
        counts: list[int] = []
        began = time.monotonic()
        threads = [threading.Thread(target=work, args=(i, counts, began + seconds)) for i in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.monotonic() - began)

    return block


def loads(file: Path, seconds: float):
    words = ["data", "bench", file, "--json", "--seconds", seconds, "--batches", 10**8]
    return lambda: common.trainopt_json(*words)["samples_per_s"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--block", type=float, default=2.5, help="seconds per block")
    options.add_argument("--rounds", type=int, default=6, help="pairs of blocks")
    options.add_argument("--images", type=int, default=2000)
    chosen = options.parse_args()
    with common.temporary_folder() as name:
        folder = Path(name)
        size = bench_jpeg.write_photographs(folder / "photographs", chosen.images)
        program = str(common.trainopt_binary())
        words = [program, "data", "pack", folder / "photographs", folder / "photographs.pack", "--resize", str(SIDE)]
        subprocess.run(words, check=True)
        cut = [{"resize": SIDE}, {"center_crop": SIDE}]
        files = {
            "packed": common.write_recipe(folder, recipe("packed", folder / "photographs.pack", []), "packed"),
            "folder": common.write_recipe(folder, recipe("image_folder", folder / "photographs", cut), "folder"),
        }
        packed = loads(files["packed"], chosen.block)
        others = {
            f"image_folder, JPEGs of 500×375, {size / 1000:.0f} kB": (loads(files["folder"], chosen.block), 8),
            "copies of the same bytes": (copies(chosen.images, chosen.block), 0.7),
        }
        rows = [
            {"packed ÷": name, **common.ratio_interval(common.abba(packed, other, chosen.rounds)), "required": required}
            for name, (other, required) in others.items()
        ]
    common.report("packed", rows)


if __name__ == "__main__":
    main()
