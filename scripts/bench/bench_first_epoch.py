"""The loader's first epoch, in which every JPEG is read to its end so that damage is found whatever part of it is
needed, and its later epochs, in which only that part is read: both against a build that never reads further than the
part."""

import argparse
import json
import subprocess
from pathlib import Path

import bench_jpeg
import common

WORKERS, BATCH, SIDE, EPOCHS = 2, 32, 224, 6


def recipe(path: Path) -> dict:
    return {
        "device": "cpu",
        "model": {"name": "mlp"},
        "data": {
            "dataset": "image_folder",
            "path": str(path),
            "batch_size": BATCH,
            "num_workers": WORKERS,
            "persistent_workers": True,
            "transforms": [{"random_resized_crop": SIDE}, {"normalize": {"mean": 0.5, "std": 0.5}}],
        },
    }


def seconds(program: Path, file: Path, batches: int) -> float:
    words = [program, "data", "bench", file, "--json", "--seconds", 10**6, "--batches", batches]
    return json.loads(subprocess.run([str(word) for word in words], check=True, capture_output=True).stdout)["seconds"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--before", type=Path, required=True, help="the other build's program")
    options.add_argument("--rounds", type=int, default=8, help="pairs of blocks")
    options.add_argument("--images", type=int, default=2000)
    chosen = options.parse_args()
    with common.temporary_folder() as name:
        size = bench_jpeg.write_photographs(Path(name) / "photographs", chosen.images)
        file = common.write_recipe(Path(name), recipe(Path(name) / "photographs"), "job")
        batches = chosen.images // BATCH

        def first(program: Path):
            return lambda: batches / seconds(program, file, batches)

        def later(program: Path):
            """Batches a second of all epochs but the first."""

            def block() -> float:
                alone = seconds(program, file, batches)
                return (EPOCHS - 1) * batches / (seconds(program, file, EPOCHS * batches) - alone)

            return block

        rows = []
        for epoch, rate, required in [("first", first, 0.85), ("later", later, 0.98)]:
            pairs = common.abba(rate(common.trainopt_binary()), rate(chosen.before), chosen.rounds)
            files = f"JPEGs of 500×375, {size / 1000:.0f} kB"
            rows.append({"epoch": epoch, "files": files, **common.ratio_interval(pairs), "required": required})
    common.report("first_epoch", rows)


if __name__ == "__main__":
    main()
