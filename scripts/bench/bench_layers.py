"""Each kind of layer of ResNet-18 in a training step with every switch on, 224 px: time forward and backward, as share
of what this machine's measured peaks allow, and which peak that is. Convolutions are counted as direct ones, so
Winograd's may take less time than the arithmetic peak allows for those.

The peaks are those of `trainopt roofline`, which is run first if this machine has none: the fastest product of matrices
in the type, and a copy in memory. A layer's least time is the longer of its arithmetic at the one and its bytes at the
other; its share is that time ÷ the measured one.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import common

WINOGRAD, NORM = "trainopt::winograd_convolution", "trainopt::fused_batch_norm"
# Reads and writes of a tensor of the activations' size: statistics, then the result; two reads of gradient and input,
# then the gradient. A residual adds one of each.
NORM_PASSES = {"forward": 3, "backward": 5}
NORMS = [(64, 112, 1), (64, 56, 4), (128, 28, 5), (256, 14, 5), (512, 7, 5)]  # channels, side, how many
RESIDUALS = [(64, 56, 2), (128, 28, 2), (256, 14, 2), (512, 7, 2)]
# ResNet-18's convolutions at 224 px: input channels and side → output channels, kernel, stride, how many.
LAYERS = [
    (3, 224, 64, 7, 2, 1),
    (64, 56, 64, 3, 1, 4),
    (64, 56, 128, 3, 2, 1),
    (64, 56, 128, 1, 2, 1),
    (128, 28, 128, 3, 1, 3),
    (128, 28, 256, 3, 2, 1),
    (128, 28, 256, 1, 2, 1),
    (256, 14, 256, 3, 1, 3),
    (256, 14, 512, 3, 2, 1),
    (256, 14, 512, 1, 2, 1),
    (512, 7, 512, 3, 1, 3),
]


class Profile:
    """Milliseconds a step by operation and shapes."""

    def __init__(self, recipe: Path, overrides: list[str], folder: Path):
        words = ["profile", str(recipe), *overrides, "--group-by", "shape", "--top", "100000", "--json"]
        result = common.trainopt_json(*words, "--run-dir", str(folder))
        steps = len(result["steps"])
        self.step_ms = result["wall_ms"] / steps
        self.times = defaultdict(float)
        for row in result["operations"]:
            shapes = json.loads(row["shapes"] or "[]")
            self.times[row["name"], tuple(map(tuple, shapes))] += row["cpu_total_ms"] / steps

    def of(self, name: str, *shapes: tuple) -> float:
        """Of the operations whose first shapes are these."""
        return sum(ms for (own, its), ms in self.times.items() if own == name and its[: len(shapes)] == shapes)


def least_ms(flops: float, moved: float, peaks: dict, dtype: str) -> tuple[float, str]:
    arithmetic = 1e3 * flops / peaks["products"][dtype]["flops_per_s"]
    memory = 1e3 * moved / peaks["memory_bytes_per_s"]
    return (arithmetic, "arithmetic") if arithmetic > memory else (memory, "memory")


def row(layer: str, count: int, forward: tuple, backward: tuple) -> dict:
    cells = {"layer": layer, "layers": count}
    for way, (ms, least, bound) in (("forward", forward), ("backward", backward)):
        cells[f"{way}, ms"] = round(ms, 2)
        cells[f"share of the {way} peak"] = round(least / ms, 2) if ms else None
        cells[f"{way} bound"] = bound
    return cells


def convolution_rows(profile: Profile, batch: int, peaks: dict, dtype: str, size: int):
    for channels, side, out, kernel, stride, count in LAYERS:
        image, weight = (batch, channels, side, side), (out, channels, kernel, kernel)
        result = (batch, out, side // stride, side // stride)
        flops = 2.0 * count * batch * out * channels * kernel**2 * (side // stride) ** 2
        moved = size * count * batch * (channels * side**2 + out * (side // stride) ** 2)
        own = kernel == 3 and stride == 1 and profile.of(WINOGRAD, image) > 0
        if own:
            forward, backward = profile.of(WINOGRAD, image), profile.of(f"{WINOGRAD}_backward", image)
        else:
            forward = profile.of("aten::convolution", image, weight)
            backward = profile.of("aten::convolution_backward", result, image, weight)
        first = channels == 3  # its input needs no gradient
        name = f"{kernel}×{kernel}{f', stride {stride}' if stride > 1 else ''}, {channels} → {out} at {side}×{side}"
        yield row(
            name + (", Winograd" if own else ""),
            count,
            (forward, *least_ms(flops, moved, peaks, dtype)),
            (backward, *least_ms(flops * (1 if first else 2), moved * (1 if first else 2), peaks, dtype)),
        )


def norm_row(profile: Profile, batch: int, peaks: dict, dtype: str, size: int) -> dict:
    values, added = (
        size * batch * sum(count * channels * side**2 for channels, side, count in kind) for kind in (NORMS, RESIDUALS)
    )
    times = (profile.of(NORM), profile.of(f"{NORM}_backward"))
    sides = [
        (ms, *least_ms(0, passes * values + added, peaks, dtype)) for ms, passes in zip(times, NORM_PASSES.values())
    ]
    return row("batch-norms, 8 with an addition, 17 with ReLU", sum(count for *_, count in NORMS), *sides)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    options.add_argument("--set", action="append", default=[], metavar="key=value", help="override; may be repeated")
    chosen = options.parse_args()
    peaks = common.trainopt_json("roofline", "--json")
    recipe, size = common.ROOT / "configs/ladder/resnet18/all.yaml", 2 if chosen.dtype == "bfloat16" else 4
    overrides = [
        f"data={{dataset: synthetic, image_size: 224, batch_size: {chosen.batch}, transforms: null}}",
        *(["optimizations.amp=false"] if chosen.dtype == "float32" else []),
        *chosen.set,
    ]
    with common.temporary_folder() as name:
        profile = Profile(recipe, overrides, Path(name) / "profile")
    arguments = (profile, chosen.batch, peaks, chosen.dtype, size)
    rows = [*convolution_rows(*arguments), norm_row(*arguments)]
    ways = ("forward, ms", "backward, ms")
    sums = {way: round(sum(each[way] for each in rows), 1) for way in ways}
    rows.append({"layer": f"these, of a step of {profile.step_ms:.0f} ms", **sums})
    common.report("layers", rows)


if __name__ == "__main__":
    main()
