"""The training step with every switch on (the ladder's last rung) against the same job in PyTorch, in each way that
PyTorch's documentation recommends. On a CPU: eager and torch.compile, in both memory formats, in 32 bits and bfloat16.
On a GPU, channels-last in bfloat16: eager, torch.compile, its max-autotune mode and a hand-written CUDA graph of the
whole step; eager also channels-last in float16 and NCHW in 32 bits.

With --model gpt2 or vit_s_16, the job of configs/ladder/gpt2/all.yaml or configs/ladder/vit/all.yaml against Hugging
Face's or torchvision's model. --dtype takes only PyTorch's ways in that type; fp32 is trainopt's type too then.
--allocators gives PyTorch the allocators that its tuning guide recommends for CPUs, each in turn. --ipex adds Intel's
extension, which is no requirement of this project: name the interpreter of an environment that has it, with the PyTorch
that it wants, torchvision and intel-openmp.
"""

import argparse
import sys
from pathlib import Path

import common
from peers import table
from peers.arms import Sides, ipex_environment, with_allocator
from peers.turns import Case, Pace, TransformerCase, compare_with_ways


RECIPES = {"gpt2": "configs/ladder/gpt2/all.yaml", "vit_s_16": "configs/ladder/vit/all.yaml"}


def row_of(row: dict, fastest: str, on_gpu: bool) -> dict:
    way, _, allocator = row["PyTorch"].partition(" with ")
    marks = {
        "PyTorch's fastest": "yes" if row["PyTorch"] == fastest else "",
        "PyTorch's allocator": "libtorch's own" if on_gpu else allocator,
    }
    return {**row, "PyTorch": way, **marks}


def main() -> None:
    import torch

    on_gpu = torch.cuda.is_available()
    ways = [way for way in (table.ON_GPU if on_gpu else table.ON_CPU) if not way.startswith(("plain", "ipex"))]
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default="resnet18")
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--side", type=int, default=224)
    options.add_argument("--turn", type=float, default=1.0 if on_gpu else 5.0, help="length of a turn in seconds")
    options.add_argument("--pairs", type=int, default=2, help="pairs of turns with each way, to find the fastest")
    options.add_argument("--more-pairs", type=int, default=10, help="with the fastest way; only these make its row")
    options.add_argument("--ways", nargs="*", help="default: all: " + ", ".join(ways))
    options.add_argument("--dtype", choices=("bf16", "fp32"), help="of both sides")
    known = ("glibc", "jemalloc", "tcmalloc")
    options.add_argument("--allocators", nargs="*", default=["glibc"], choices=known, help="of PyTorch on a CPU")
    options.add_argument("--ipex", metavar="PYTHON", help="the interpreter of an environment with Intel's extension")
    options.add_argument("--plain", action="store_true", help="trainopt without any switch: recipe 0-baseline")
    options.add_argument(
        "--set", action="append", default=[], metavar="key=value", help="override for trainopt; may be repeated"
    )
    chosen = options.parse_args()
    threads = None if on_gpu else common.allowed_cores()
    if chosen.dtype:
        ways = [way for way in ways if way.endswith(chosen.dtype)]
    if chosen.model in RECIPES:
        case = TransformerCase(chosen.model, chosen.batch, chosen.side, threads=threads, dtype=chosen.dtype or "bf16")
        # The layout of images is of no account within a transformer.
        ways = [way for way in ways if way.endswith(case.dtype) and ("nchw" in way or on_gpu)]
    else:
        case = Case(chosen.model, chosen.batch, chosen.side, threads=threads)
    recipe = RECIPES.get(chosen.model, "configs/ladder/resnet18/all.yaml")
    if chosen.plain:
        recipe, ways = "configs/ladder/resnet18/baseline.yaml", ["plain nchw fp32"]
    elif chosen.model not in RECIPES and chosen.dtype == "fp32":
        chosen.set.append("optimizations.amp=false")
    sides = Sides(common.trainopt_binary(), common.ROOT / recipe)
    ways = chosen.ways or ways
    if not on_gpu:
        sides.torch_environments = {name: with_allocator(name) for name in chosen.allocators}
        ways = [f"{way} with {allocator}" for way in ways for allocator in chosen.allocators]
    if chosen.ipex:
        sides.ipex_python, sides.torch_environments["its launcher's"] = chosen.ipex, ipex_environment(chosen.ipex)
        ways += [f"{way} with its launcher's" for way in table.ON_CPU if way.startswith("ipex")]
        ways = [way for way in ways if not chosen.dtype or chosen.dtype in way]
    pace = Pace(chosen.turn, warmup_steps=20 if on_gpu else 3, pairs=chosen.pairs, more_pairs=chosen.more_pairs)
    with common.temporary_folder() as folder:
        found = compare_with_ways(sides, case, ways, pace, Path(folder), chosen.set)
    for way, why in found["failed"].items():
        print(f"failed: {way}: {why}")
    if found["rows"]:
        common.report("peers", [row_of(row, found["fastest"], on_gpu) for row in found["rows"]])
    sys.exit(1 if found["failed"] else 0)


if __name__ == "__main__":
    main()
