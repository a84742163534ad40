"""PyTorch's side of bench_step.py: ResNet-18 steps on one batch that stays in memory, for ever; a JSON line a step.

Eager in its best setting: a few ways to run are tried first and the fastest is kept, named in the log.
"""

import argparse
import contextlib
import json
import signal
import sys
import time

import torch
import torchvision


def make_step(dtype: str, channels_last: bool, optimizer_options: dict, batch: int, side: int):
    torch.manual_seed(0)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    model = torchvision.models.resnet18(num_classes=10).to(memory_format=memory_format)
    input = torch.randn(batch, 3, side, side).contiguous(memory_format=memory_format)
    target = torch.randint(10, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, **optimizer_options)
    criterion = torch.nn.CrossEntropyLoss()
    autocast = (lambda: torch.autocast("cpu", dtype=torch.bfloat16)) if dtype == "bf16" else contextlib.nullcontext

    def step() -> float:
        with autocast():
            loss = criterion(model(input), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def fastest(dtype: str, batch: int, side: int):
    candidates = {
        f"{'channels_last' if channels_last else 'contiguous'}, {name}": (channels_last, options)
        for channels_last in (True, False)
        for name, options in (("fused", {"fused": True}), ("foreach", {"foreach": True}))
        if channels_last or name == "fused"
    }
    best = None
    for name, (channels_last, options) in candidates.items():
        step = make_step(dtype, channels_last, options, batch, side)
        step()
        took = []
        for _ in range(2):
            start = time.monotonic()
            step()
            took.append(time.monotonic() - start)
        print(f"{name}: {1e3 * min(took):.0f} ms", flush=True)
        if best is None or min(took) < best[0]:
            best = min(took), name, step
    print(f"kept: {best[1]}", flush=True)
    return best[2]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--dtype", choices=["fp32", "bf16"], required=True)
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--side", type=int, required=True)
    options.add_argument("--steps-file", required=True)
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    step = fastest(chosen.dtype, chosen.batch, chosen.side)
    with open(chosen.steps_file, "w") as file:
        before = time.monotonic()
        while True:
            loss = step()
            now = time.monotonic()
            file.write(json.dumps({"step_ms": 1e3 * (now - before), "loss": loss}) + "\n")
            file.flush()
            before = now


if __name__ == "__main__":
    main()
