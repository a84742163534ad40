"""Measures alternating blocks of data loading in trainopt and PyTorch, for bench_loader.py and bench_jpeg.py."""

import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import common

BATCH = 32


def trainopt_block(recipe_file: Path, seconds: float, overrides: list[str]):
    """Returns a function that measures one block with `trainopt data bench`, which itself skips its first batches."""

    def block() -> float:
        return common.trainopt_json(
            "data", "bench", recipe_file, *overrides, "--json", "--seconds", seconds, "--batches", 10**8
        )["samples_per_s"]

    return block


def torch_block(dataset: Dataset, workers: int, seconds: float):
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=workers)

    def endless():
        while True:
            yield from loader

    def block() -> float:
        batches = endless()
        for _ in range(2 + 2 * workers):  # start-up and prefetched batches are not counted
            next(batches)
        start, count = time.monotonic(), 0
        while time.monotonic() - start < seconds:
            images, _ = next(batches)
            count += len(images)
        took = time.monotonic() - start
        batches.close()
        return count / took

    return block


def compare(recipe: dict, dataset: Dataset, workers: int, chosen, folder: Path, **labels) -> dict:
    print(f"{labels} workers {workers}", flush=True)
    # Without workers, PyTorch's small operations would use every core and wait for each other, which made it many times
    # slower on a machine that was not idle. One loading thread on both sides is the fair comparison.
    torch.set_num_threads(1)
    recipe = {**recipe, "device": "cpu", "data": {**recipe["data"], "batch_size": BATCH, "num_workers": workers}}
    ours = trainopt_block(common.write_recipe(folder, recipe, "loader"), chosen.block, chosen.override)
    pairs = common.abba(ours, torch_block(dataset, workers, chosen.block), chosen.rounds)
    return {**labels, "workers": workers, **common.ratio_interval(pairs)}


def add_options(options, block: float, rounds: int) -> None:
    options.add_argument("--workers", type=int, nargs="*", default=[0, 2], help="numbers of workers, of both sides")
    options.add_argument("--block", type=float, default=block, help="seconds per block")
    options.add_argument("--rounds", type=int, default=rounds, help="pairs of blocks")
    options.add_argument("override", nargs="*", help="key=value for trainopt")
