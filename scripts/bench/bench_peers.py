"""The training step with every switch on (the ladder's last rung) against the same job in PyTorch, in each way that
PyTorch's documentation recommends. On a CPU: eager and torch.compile, in both memory formats, in 32 bits and bfloat16.
On a GPU, channels-last in bfloat16: eager, torch.compile, its max-autotune mode and a hand-written CUDA graph of the
whole step; eager also channels-last in float16 and NCHW in 32 bits.
"""

import argparse
import sys
from pathlib import Path

import common
from peers import table
from peers.arms import Sides
from peers.turns import Case, Pace, compare_with_ways


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
    options.add_argument("--ways", nargs="*", default=ways, help="default: all: " + ", ".join(ways))
    options.add_argument(
        "--set", action="append", default=[], metavar="key=value", help="override for trainopt; may be repeated"
    )
    chosen = options.parse_args()
    case = Case(chosen.model, chosen.batch, chosen.side, threads=None if on_gpu else common.allowed_cores())
    sides = Sides(common.trainopt_binary(), common.ROOT / "configs/ladder/10-all.yaml")
    pace = Pace(chosen.turn, warmup_steps=20 if on_gpu else 3, pairs=chosen.pairs, more_pairs=chosen.more_pairs)
    with common.temporary_folder() as folder:
        found = compare_with_ways(sides, case, chosen.ways, pace, Path(folder), chosen.set)
    for way, why in found["failed"].items():
        print(f"failed: {way}: {why}")
    if found["rows"]:
        common.report(
            "peers",
            [
                {**row, "PyTorch's fastest": "yes" if row["PyTorch"] == found["fastest"] else ""}
                for row in found["rows"]
            ],
        )
    sys.exit(1 if found["failed"] else 0)


if __name__ == "__main__":
    main()
