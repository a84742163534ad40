"""Loader on JPEG photographs of 500×375 → random_resized_crop 224 → flip → normalise, batch 32, against DataLoader +
torchvision + Pillow with the same number of workers.

The rows with `decode: exact` count; those with `decode: scaled` are shown for comparison.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images
from torchvision import transforms
from torchvision.datasets import ImageFolder

import common
import loader_turns

TRANSFORMS = [{"random_resized_crop": 224}, {"random_horizontal_flip": 0.5}, {"normalize": {"mean": 0.5, "std": 0.5}}]


def write_photographs(folder: Path, count: int) -> int:
    """Writes random crops of the two pictures that scikit-learn bundles (640×427), each mirrored with probability 0.5.
    Returns the mean file size in bytes.
    """
    pictures = [Image.fromarray(picture) for picture in load_sample_images().images]
    random = np.random.default_rng(0)
    for number in range(count):
        picture = pictures[number % 2]
        left, top = (int(random.integers(0, spare + 1)) for spare in (picture.width - 500, picture.height - 375))
        crop = picture.crop((left, top, left + 500, top + 375))
        if random.random() < 0.5:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        place = folder / ("temple", "flower")[number % 2] / f"{number:04d}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        crop.save(place, quality=90)
    return sum(file.stat().st_size for file in folder.glob("*/*.jpg")) // count


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    loader_turns.add_options(options, block=2.5, rounds=6)
    options.add_argument("--photographs", type=int, default=200)
    chosen = options.parse_args()
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ]
    )
    with common.temporary_folder() as folder:
        photographs = Path(folder) / "photographs"
        size = write_photographs(photographs, chosen.photographs)
        dataset = ImageFolder(photographs, transform)
        rows = []
        for decode in ("exact", "scaled"):
            recipe = {
                "data": {
                    "dataset": "image_folder",
                    "path": str(photographs),
                    "decode": decode,
                    "transforms": TRANSFORMS,
                }
            }
            rows += [
                loader_turns.compare(
                    recipe,
                    dataset,
                    workers,
                    chosen,
                    Path(folder),
                    data=f"jpeg 500×375, {size / 1000:.0f} kB",
                    decode=decode,
                )
                for workers in chosen.workers
            ]
        common.report("jpeg", rows)


if __name__ == "__main__":
    main()
