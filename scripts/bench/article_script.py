"""PyTorch's side of bench_job.py: the reference job as a user would write it. Trains endlessly and writes one JSON line
per step.

ResNet-18 on random 32×32 uint8 images: Resize(224), ToTensor, Normalize, DataLoader, SGD. Without options it is the
plain script; the options are the usual improvements on a CPU.
"""

import argparse
import contextlib
import json
import signal
import sys
import time

import numpy as np
import torch
import torchvision
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class FakeCifar10(Dataset):
    def __init__(self, size: int, transform):
        random = np.random.default_rng(0)
        self.images = random.integers(0, 256, (size, 32, 32, 3), dtype=np.uint8)
        self.labels = random.integers(0, 10, size)
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.images[index])), int(self.labels[index])


def reference_transform(side: int):
    return transforms.Compose(
        [transforms.Resize(side), transforms.ToTensor(), transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))]
    )


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--steps-file", required=True)
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--side", type=int, default=224)
    options.add_argument("--workers", type=int, default=0)
    options.add_argument("--channels-last", action="store_true")
    options.add_argument("--amp", action="store_true")
    options.add_argument("--fused", action="store_true")
    options.add_argument(
        "--keep-gradients", action="store_true", help="zero gradients instead of setting them to None, as in 2023"
    )
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    loader = DataLoader(
        FakeCifar10(10000, reference_transform(chosen.side)),
        batch_size=chosen.batch,
        shuffle=True,
        drop_last=True,
        num_workers=chosen.workers,
        persistent_workers=chosen.workers > 0,
    )
    memory_format = torch.channels_last if chosen.channels_last else torch.contiguous_format
    model = torchvision.models.resnet18(num_classes=10).to(memory_format=memory_format)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, fused=chosen.fused or None)
    autocast = (lambda: torch.autocast("cpu", dtype=torch.bfloat16)) if chosen.amp else contextlib.nullcontext
    with open(chosen.steps_file, "w") as file:
        before = time.monotonic()
        while True:
            for inputs, targets in loader:
                inputs = inputs.to(memory_format=memory_format)
                optimizer.zero_grad(set_to_none=not chosen.keep_gradients)
                with autocast():
                    loss = criterion(model(inputs), targets)
                loss.backward()
                optimizer.step()
                shown = loss.item()
                now = time.monotonic()
                file.write(json.dumps({"step_ms": 1e3 * (now - before), "loss": shown}) + "\n")
                file.flush()
                before = now


if __name__ == "__main__":
    main()
