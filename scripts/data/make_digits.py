#!/usr/bin/env python3
"""Writes scikit-learn's bundled handwritten digits (1,797 real images, no download) in the two formats trainopt reads.

  scripts/data/make_digits.py [OUT]      default: data/digits in the current folder, where configs/digits.yaml looks

  OUT/cifar10/data_batch_1.bin, test_batch.bin        records of 3,073 bytes: the label, then 32x32 red, green and blue
  OUT/image_folder/{train,test}/<digit>/<number>.png  32x32 grey PNG

The 8x8 images are enlarged to 32x32 by repeating pixels, and their 17 grey levels are scaled to 0..255. Every fifth
image of each digit is held out for testing. The output is the same bytes every time.
"""
import os
import subprocess
import sys
from pathlib import Path

try:
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits
except ImportError as missing:
    # This Python lacks scikit-learn: restart with the one that scripts/setup creates for this alone.
    setup = Path(__file__).resolve().parents[1] / "setup"
    settings = subprocess.run([setup, "--print", "digits"], check=True, stdout=subprocess.PIPE, text=True).stdout
    python = dict(line.split("=", 1) for line in settings.splitlines())["TRAINOPT_PYTHON"]
    if os.path.realpath(sys.prefix) == os.path.realpath(Path(python).parents[1]):
        raise SystemExit(f"make_digits: {missing}; remove {Path(python).parents[1]} and run scripts/setup again")
    os.execv(python, [python, *sys.argv])

SIDE, HELD_OUT_EVERY = 32, 5


def held_out(labels):
    """True for the 5th, 10th, 15th ... image of each digit, in scikit-learn's order."""
    seen = [0] * 10
    chosen = np.zeros(len(labels), dtype=bool)
    for i, label in enumerate(labels):
        seen[label] += 1
        chosen[i] = seen[label] % HELD_OUT_EVERY == 0
    return chosen


def write_cifar10(path, images, labels):
    path.parent.mkdir(parents=True, exist_ok=True)
    planes = images.reshape(len(images), 1, SIDE * SIDE).repeat(3, axis=1).reshape(len(images), 3 * SIDE * SIDE)
    path.write_bytes(np.concatenate([labels[:, None].astype(np.uint8), planes], axis=1).tobytes())


def write_image_folder(path, images, labels, numbers):
    for image, label, number in zip(images, labels, numbers):
        folder = path / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number:04d}.png")


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        raise SystemExit(__doc__)
    out = Path(sys.argv[1] if len(sys.argv) == 2 else "data/digits")
    digits = load_digits()
    grey = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    images = grey.repeat(SIDE // 8, axis=1).repeat(SIDE // 8, axis=2)
    test = held_out(digits.target)
    for split, file, chosen in [("train", "data_batch_1.bin", ~test), ("test", "test_batch.bin", test)]:
        write_cifar10(out / "cifar10" / file, images[chosen], digits.target[chosen])
        write_image_folder(out / "image_folder" / split, images[chosen], digits.target[chosen], np.flatnonzero(chosen))
    print(f"{out}: {np.sum(~test)} training images, {np.sum(test)} held out")


if __name__ == "__main__":
    main()
