"""PyTorch's side of bench_ranks.py: one rank trains a ResNet-18 on one batch that stays in memory. Rank 0 writes one
JSON line per step.

Started by torch.distributed.run or directly. Sharded parameters must be contiguous, so with them channels_last applies
only to the images.
"""

import argparse
import json
import time

import torch
import torch.distributed as dist
import torchvision
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

LEARNING_RATE, MOMENTUM = 0.01, 0.9


def shard(model: torch.nn.Module, **options) -> torch.nn.Module:
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for module in model.modules():
        if isinstance(module, torchvision.models.resnet.BasicBlock):
            fully_shard(module, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def make(chosen, setting: dict):
    """(model, optimizer) of the strategy."""
    model = torchvision.models.resnet18(num_classes=chosen.classes)
    loop = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[
        setting.get("optimizer", "loop")
    ]
    sgd = {"lr": LEARNING_RATE, "momentum": MOMENTUM, **loop}
    if chosen.strategy in ("fully_shard", "fully_shard_keep"):
        model = shard(model, reshard_after_forward=chosen.strategy == "fully_shard")
        return model, torch.optim.SGD(model.parameters(), **sgd)
    if setting.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
    if chosen.strategy in ("ddp", "zero_redundancy"):
        names = ("gradient_as_bucket_view", "broadcast_buffers", "static_graph")
        model = DistributedDataParallel(model, **{name: setting[name] for name in names if name in setting})
    if chosen.strategy == "zero_redundancy":
        as_view = setting.get("parameters_as_bucket_view", False)
        return model, ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.SGD, parameters_as_bucket_view=as_view, **sgd
        )
    return model, torch.optim.SGD(model.parameters(), **sgd)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument(
        "--strategy", choices=["ddp", "zero_redundancy", "fully_shard", "fully_shard_keep", "alone"], required=True
    )
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--side", type=int, required=True)
    options.add_argument("--classes", type=int, required=True)
    options.add_argument("--steps", type=int, required=True)
    options.add_argument("--steps-file", required=True)
    options.add_argument("--setting", type=json.loads, default={}, help="a JSON object")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if chosen.strategy != "alone":
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    model, optimizer = make(chosen, chosen.setting)
    memory_format = torch.channels_last if chosen.setting.get("channels_last") else torch.contiguous_format
    generator = torch.Generator().manual_seed(rank)
    input = torch.randn(chosen.batch, 3, chosen.side, chosen.side, generator=generator).contiguous(
        memory_format=memory_format
    )
    target = torch.randint(chosen.classes, (chosen.batch,), generator=generator)
    criterion = torch.nn.CrossEntropyLoss()
    set_to_none = chosen.setting.get("set_to_none", True)
    with open(chosen.steps_file if rank == 0 else "/dev/null", "w") as file:
        before = time.monotonic()
        for _ in range(chosen.steps):
            loss = criterion(model(input), target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
            value = loss.item()
            now = time.monotonic()
            file.write(json.dumps({"step_ms": 1e3 * (now - before), "loss": value}) + "\n")
            before = now
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
