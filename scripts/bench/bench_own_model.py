"""Networks as programs of torch.export, compared by `trainopt compare` with the same networks built in, both with
every switch of this machine on. Above 1, the program is faster."""

import argparse
import sys
from pathlib import Path

import common
import torch
from torch import nn

sys.path.append(str(common.ROOT / "tests/oracle"))
import exported  # noqa: E402

SWITCHES = {
    name: True
    for name in ("amp", "channels_last", "set_to_none", "fused_kernels", "winograd", "fused_optimizer")
}
SGD = {"name": "sgd", "lr": 0.01, "momentum": 0.9}


class Gpt2(nn.Module):
    """GPT-2 of nn.Linear and F.gelu, as scripts of language models write it."""

    def __init__(self, layers: int, heads: int, width: int, context: int, vocabulary: int):
        super().__init__()
        self.heads = heads
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.packed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        parts = self.packed(self.before(x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.narrow(nn.functional.gelu(self.wide(self.between(x)), approximate="tanh"))


def images(side: int, batch: int) -> dict:
    transforms = [{"resize": side}, {"normalize": {"mean": 0.5, "std": 0.5}}]
    return {"dataset": "fake_cifar10", "size": 64 * batch, "batch_size": batch, "transforms": transforms}


def cases() -> dict:
    """Name → (network in PyTorch, an example, the built-in network, data, the least ratio)."""
    small = {"layers": 12, "heads": 12, "width": 768, "context": 128, "vocabulary": 50257}
    return {
        "resnet18, 64 px, batch 8": (
            exported.torchvision_model("resnet18"),
            torch.randn(2, 3, 64, 64),
            {"name": "resnet18", "num_classes": 10},
            images(64, 8),
            0.97,
        ),
        "vit_b_16, 224 px, batch 4": (
            exported.torchvision_model("vit_b_16"),
            torch.randn(2, 3, 224, 224),
            {"name": "vit", "patch": 16, "layers": 12, "heads": 12, "width": 768, "num_classes": 10},
            images(224, 4),
            0.9,
        ),
        "gpt2, 128 tokens, batch 4": (
            lambda: Gpt2(**small),
            torch.zeros(2, 128, dtype=torch.int64),
            {"name": "gpt2", **small},
            {"dataset": "synthetic", "size": 256, "batch_size": 4},
            0.9,
        ),
    }


def measure(name: str, case: tuple, folder: Path, options: argparse.Namespace) -> dict:
    make, example, built_in, data, asked = case
    torch.manual_seed(0)
    program = {"name": "exported", "path": str(exported.save(make().train(), example, folder / "net.pt2"))}
    recipes = []
    for model in (built_in, program):
        recipe = {"name": model["name"], "device": "cpu", "model": model, "data": data, "optimizer": SGD}
        switches = {**SWITCHES, "winograd": name.startswith("resnet")}
        recipe |= {"train": {"epochs": 100}, "optimizations": switches, "checkpoint": {"at_end": False}}
        recipes.append(common.write_recipe(folder, recipe, model["name"]))
    verdict = common.trainopt_json(
        *("compare", *recipes, "--json", "--no-numbers", "--repeats", options.repeats, "--budget", "30m")
    )
    low, high = verdict["interval"]
    return {
        "program ÷ built in": name,
        "ratio": f"{verdict['ratio']:.3f}",
        "low": f"{low:.3f}",
        "high": f"{high:.3f}",
        "blocks of four turns": verdict["blocks"],
        "asked": asked,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="*", help="some of the networks")
    options.add_argument("--repeats", type=int, default=16)
    options = options.parse_args()
    with common.temporary_folder() as folder:
        rows = [
            measure(name, case, Path(folder), options)
            for name, case in cases().items()
            if not options.only or any(name.startswith(word) for word in options.only)
        ]
    common.report("own_model", rows)


if __name__ == "__main__":
    main()
