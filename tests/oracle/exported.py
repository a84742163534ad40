"""Models that torch.export saves, and their training in PyTorch."""

import copy
from pathlib import Path

import numpy as np
import torch
from torch import nn

BATCH = torch.export.Dim("batch")


def save(model: nn.Module, example: torch.Tensor, path: Path, *target: torch.Tensor) -> Path:
    """As the guide tells users to do it. `target`: of a model that computes its own loss."""
    examples = (example, *target)
    program = torch.export.export(model, examples, dynamic_shapes=tuple({0: BATCH} for _ in examples), strict=False)
    torch.export.save(program, str(path))
    return path


def torchvision_model(name: str, draws: bool = False, **options):
    """`draws`: keep stochastic depth."""

    def make() -> nn.Module:
        import torchvision

        model = torchvision.models.get_model(name, num_classes=10, **options)
        for module in model.modules():
            if isinstance(module, torchvision.ops.StochasticDepth) and not draws:
                module.p = 0.0
        return model

    return make


def timm_model(name: str, **options):
    def make() -> nn.Module:
        import timm

        return timm.create_model(name, num_classes=10, **options)

    return make


# Name → (how it is made, side of its images). Without random draws, so that PyTorch can follow.
MODELS = {
    "resnet18": (torchvision_model("resnet18"), 64),
    "densenet121": (torchvision_model("densenet121"), 64),
    "shufflenet_v2": (torchvision_model("shufflenet_v2_x1_0"), 64),
    "regnet_y_400mf": (torchvision_model("regnet_y_400mf"), 64),
    "efficientnet_b0": (torchvision_model("efficientnet_b0", dropout=0.0), 64),
    "mobilenet_v3_small": (torchvision_model("mobilenet_v3_small", dropout=0.0), 64),
    "convnext_tiny": (torchvision_model("convnext_tiny"), 64),
    "swin_t": (torchvision_model("swin_t"), 64),
    "vit_b_16": (torchvision_model("vit_b_16", image_size=64), 64),
    "coatnet_0 (timm)": (timm_model("coatnet_0_rw_224", img_size=64, drop_path_rate=0.0), 64),
    "vit_tiny (timm)": (timm_model("vit_tiny_patch16_224", img_size=64), 64),
    "deit3_small (timm)": (timm_model("deit3_small_patch16_224", img_size=64), 64),
    "mixer_s32 (timm)": (timm_model("mixer_s32_224", img_size=64), 64),
    "resnet26d (timm)": (timm_model("resnet26d"), 64),
    "poolformer_s12 (timm)": (timm_model("poolformer_s12"), 64),
}

# As above, with their dropout and stochastic depth.
EVALUATED = MODELS | {
    "efficientnet_b0": (torchvision_model("efficientnet_b0", draws=True), 64),
    "mobilenet_v3_small": (torchvision_model("mobilenet_v3_small", draws=True), 64),
    "convnext_tiny": (torchvision_model("convnext_tiny", draws=True), 64),
    "swin_t": (torchvision_model("swin_t", draws=True), 64),
    "vit_b_16": (torchvision_model("vit_b_16", image_size=64, dropout=0.1, attention_dropout=0.1), 64),
    "coatnet_0 (timm)": (timm_model("coatnet_0_rw_224", img_size=64, drop_path_rate=0.1), 64),
    "deit3_small (timm)": (timm_model("deit3_small_patch16_224", img_size=64, drop_path_rate=0.1), 64),
}


def train(model: nn.Module, steps: list, options: dict, own_loss: bool = False) -> list[float]:
    """Losses of SGD on the steps' batches. `own_loss`: the model returns its loss, perhaps with the logits."""
    optimizer = torch.optim.SGD(model.parameters(), **options)
    criterion = nn.functional.cross_entropy
    losses = []
    for step in steps:
        optimizer.zero_grad()
        if own_loss:
            returned = model(step.input, step.target)
            loss = returned[0] if isinstance(returned, tuple) else returned
        else:
            loss = criterion(model(step.input).flatten(0, -2), step.target.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def one_bit_changed(steps: list) -> list:
    changed = copy.deepcopy(steps)
    values = changed[0].input.numpy()
    values.flat[0] = np.nextafter(values.flat[0], np.float32(10))
    return changed


def distance(ours: dict, theirs: dict) -> tuple[float, str]:
    """The largest ‖a − b‖ ÷ ‖b‖ of all tensors, and whose it is."""
    assert ours.keys() == theirs.keys(), sorted(ours.keys() ^ theirs.keys())
    worst = (0.0, "")
    for name, theirs_ in theirs.items():
        assert ours[name].shape == theirs_.shape, name
        if theirs_.is_floating_point() and theirs_.norm() > 0:
            apart = (ours[name].double() - theirs_.double()).norm() / theirs_.double().norm()
            worst = max(worst, (apart.item(), name))
        else:
            assert torch.equal(ours[name], theirs_), name
    return worst


def recipe(path: Path, side: int, **changes) -> dict:
    return {
        "name": "exported",
        "seed": 3,
        "device": "cpu",
        "num_threads": 1,
        "model": {"name": "exported", "path": str(path)},
        "data": {
            "dataset": "fake_cifar10",
            "size": 160,
            "batch_size": 4,
            "transforms": [{"resize": side}, {"normalize": {"mean": 0.5, "std": 0.5}}],
        },
        "train": {"max_steps": 20},
        "optimizer": {"name": "sgd", "lr": 0.005, "momentum": 0.9, "weight_decay": 0.0005},
        "checkpoint": {"at_end": False},
        "logging": {"sinks": ["jsonl"]},
        **changes,
    }


OPTIMIZER = {"lr": 0.005, "momentum": 0.9, "weight_decay": 0.0005}
