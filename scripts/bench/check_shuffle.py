"""How good is the random order of Parquet files? Rows sorted by class are the worst case: 100 classes, each with 1,000
rows one after the other, in row groups of 100. For batches of 256 in the order of `trainopt data export`, by
`data.shuffle_window`: how many classes a batch has, and how uneven they are. Beside it all samples at random, and a
stream of row groups in random order through a buffer of as many samples, of which a random one is taken each time, as
WebDataset and TensorFlow shuffle.
"""

import random
import statistics
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file

import common

CLASSES, ROWS, GROUP, BATCH = 100, 100_000, 100, 256
STEPS = ROWS // BATCH


def of_trainopt(folder: Path, window: int) -> list[int]:
    recipe = {
        "device": "cpu",
        "model": {"name": "mlp", "num_classes": CLASSES},
        "data": {
            "dataset": "parquet",
            "path": str(folder / "sorted.parquet"),
            "batch_size": BATCH,
            "shuffle_window": window,
        },
    }
    out = folder / "steps.safetensors"
    words = ["data", "export", common.write_recipe(folder, recipe, "job"), "--steps", STEPS, out]
    done = common.subprocess.run([common.trainopt_binary(), *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    steps = load_file(out)
    return [int(sample) for step in range(1, STEPS + 1) for sample in steps[f"step-{step:08}.sample_id"]]


def of_buffer(size: int) -> list[int]:
    source = random.Random(0)
    groups = list(range(ROWS // GROUP))
    source.shuffle(groups)
    stream = (group * GROUP + row for group in groups for row in range(GROUP))
    buffer, order = [], []
    for sample in stream:
        if len(buffer) < size:
            buffer.append(sample)
            continue
        place = source.randrange(size)
        order.append(buffer[place])
        buffer[place] = sample
    source.shuffle(buffer)
    return order + buffer


def quality(name: str, order: list[int]) -> dict:
    """Of all batches: the mean number of classes, and the mean chi-square of their classes ÷ its degrees of freedom,
    which is 1 for independent draws."""
    assert len(set(order)) == len(order)
    classes, unevenness = [], []
    expected = BATCH / CLASSES
    for begin in range(0, STEPS * BATCH, BATCH):
        counts = Counter(sample * CLASSES // ROWS for sample in order[begin : begin + BATCH])
        classes.append(len(counts))
        square = sum((counts.get(each, 0) - expected) ** 2 / expected for each in range(CLASSES))
        unevenness.append(square / (CLASSES - 1))
    return {
        "order": name,
        "classes in a batch": round(statistics.fmean(classes), 1),
        "unevenness": round(statistics.fmean(unevenness), 2),
    }


def main() -> None:
    with common.temporary_folder() as name:
        folder = Path(name)
        pixel = pa.array([[[[0, 0, 0]]]] * ROWS, pa.list_(pa.list_(pa.list_(pa.uint8()))))
        table = pa.table({"image": pixel, "label": np.arange(ROWS) * CLASSES // ROWS})
        pq.write_table(table, folder / "sorted.parquet", row_group_size=GROUP)
        everything = list(range(ROWS))
        random.Random(0).shuffle(everything)
        rows = [quality("all samples at random", everything)]
        for window in (1024, 4096, 16384, 65536):
            rows.append(quality(f"trainopt, shuffle_window {window}", of_trainopt(folder, window)))
            rows.append(quality(f"buffer of {window}", of_buffer(window)))
    common.report("shuffle", rows)


if __name__ == "__main__":
    main()
