"""The training step with every switch on (the ladder's last rung) against the same job in PyTorch, in each way that
PyTorch's documentation recommends. On a CPU: eager and torch.compile, in both memory formats, in 32 bits and bfloat16.
On a GPU, channels-last in bfloat16: eager, torch.compile, its max-autotune mode and a hand-written CUDA graph of the
whole step; eager also channels-last in float16 and NCHW in 32 bits.

With --model gpt2 or vit_s_16, the job of configs/gpt2/all.yaml or configs/vit/all.yaml against Hugging Face's or
torchvision's model, each type of number against PyTorch in the same type. --allocator jemalloc gives PyTorch the
allocator that its tuning guide recommends for CPUs.
"""

import argparse
import sys
from pathlib import Path

import common
from peers import table
from peers.arms import Sides, with_jemalloc
from peers.turns import Case, Pace, TransformerCase, compare_with_ways


RECIPES = {"gpt2": "configs/gpt2/all.yaml", "vit_s_16": "configs/vit/all.yaml"}


def main() -> None:
    import torch

    on_gpu = torch.cuda.is_available()
    ways = list(table.ON_GPU if on_gpu else table.ON_CPU)
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default="resnet18")
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--side", type=int, default=224)
    options.add_argument("--turn", type=float, default=1.0 if on_gpu else 5.0, help="length of a turn in seconds")
    options.add_argument("--pairs", type=int, default=2, help="pairs of turns with each way, to find the fastest")
    options.add_argument("--more-pairs", type=int, default=10, help="with the fastest way; only these make its row")
    options.add_argument("--ways", nargs="*", help="default: all: " + ", ".join(ways))
    options.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16", help="of both sides; gpt2 and vit_s_16")
    options.add_argument("--allocator", choices=("glibc", "jemalloc"), default="glibc", help="of PyTorch on a CPU")
    options.add_argument(
        "--set", action="append", default=[], metavar="key=value", help="override for trainopt; may be repeated"
    )
    chosen = options.parse_args()
    threads = None if on_gpu else common.allowed_cores()
    if chosen.model in RECIPES:
        case = TransformerCase(chosen.model, chosen.batch, chosen.side, threads=threads, dtype=chosen.dtype)
        # The layout of images is of no account within a transformer.
        ways = [way for way in ways if way.endswith(chosen.dtype) and ("nchw" in way or on_gpu)]
    else:
        case = Case(chosen.model, chosen.batch, chosen.side, threads=threads)
    recipe = RECIPES.get(chosen.model, "configs/ladder/10-all.yaml")
    sides = Sides(common.trainopt_binary(), common.ROOT / recipe)
    if chosen.allocator == "jemalloc":
        sides.torch_environment = with_jemalloc()
    pace = Pace(chosen.turn, warmup_steps=20 if on_gpu else 3, pairs=chosen.pairs, more_pairs=chosen.more_pairs)
    with common.temporary_folder() as folder:
        found = compare_with_ways(sides, case, chosen.ways or ways, pace, Path(folder), chosen.set)
    for way, why in found["failed"].items():
        print(f"failed: {way}: {why}")
    if found["rows"]:
        common.report(
            "peers",
            [
                {
                    **row,
                    "PyTorch's fastest": "yes" if row["PyTorch"] == found["fastest"] else "",
                    "PyTorch's allocator": "libtorch's own" if on_gpu else chosen.allocator,
                }
                for row in found["rows"]
            ],
        )
    sys.exit(1 if found["failed"] else 0)


if __name__ == "__main__":
    main()
