"""Loader on fake CIFAR-10: 32×32 → resize 224 → normalise, batch 32, against DataLoader + torchvision + Pillow with the
same number of workers."""

import argparse
from pathlib import Path

import common
import loader_turns
from article_script import FakeCifar10, reference_transform

RECIPE = {
    "data": {
        "dataset": "fake_cifar10",
        "size": 10000,
        "transforms": [{"resize": 224}, {"normalize": {"mean": 0.5, "std": 0.5}}],
    }
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    loader_turns.add_options(options, block=3.0, rounds=8)
    chosen = options.parse_args()
    dataset = FakeCifar10(10000, reference_transform(224))
    with common.temporary_folder() as folder:
        common.report(
            "loader",
            [
                loader_turns.compare(RECIPE, dataset, workers, chosen, Path(folder), data="fake_cifar10 32→224")
                for workers in chosen.workers
            ],
        )


if __name__ == "__main__":
    main()
