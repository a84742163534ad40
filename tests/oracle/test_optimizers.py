"""The weights after twenty steps of every update rule, compared with torch.optim and timm."""

import pytest
import torch
from safetensors.torch import load_file

import reference
import support

MIXED_DECAY = {"weight_decay": 0.1, "no_decay": ["bias"]}

CASES = {
    "sgd": {"name": "sgd", "lr": 0.05, "weight_decay": 0.01, "nesterov": True},
    "adam": {"name": "adam", "lr": 0.002, "weight_decay": 0.1},
    "adamw": {"name": "adamw", "lr": 0.002} | MIXED_DECAY,
    "nadam": {"name": "nadam", "lr": 0.002},
    "nadam, every option": {
        "name": "nadam",
        "lr": 0.003,
        "betas": [0.85, 0.98],
        "eps": 1e-6,
        "momentum_decay": 0.05,
        "weight_decay": 0.1,
    },
    "rmsprop": {"name": "rmsprop", "lr": 0.002},
    "rmsprop, every option": {
        "name": "rmsprop",
        "lr": 0.001,
        "alpha": 0.9,
        "eps": 1e-4,
        "momentum": 0.8,
        "centered": True,
        "weight_decay": 0.05,
    },
    "adagrad": {"name": "adagrad", "lr": 0.02},
    "adagrad, every option": {
        "name": "adagrad",
        "lr": 0.03,
        "lr_decay": 0.1,
        "eps": 1e-6,
        "initial_accumulator_value": 0.1,
        "weight_decay": 0.05,
    },
    "lars": {"name": "lars", "lr": 1.0} | MIXED_DECAY,
    "lars, every option": {
        "name": "lars",
        "lr": 0.4,
        "momentum": 0.8,
        "nesterov": True,
        "trust_coeff": 0.5,
        "eps": 1e-4,
        "trust_clip": True,
        "always_adapt": True,
        "weight_decay": 0.05,
    },
    "lars without momentum": {"name": "lars", "lr": 2.0, "momentum": 0.0, "weight_decay": 0.05},
    "lamb": {"name": "lamb", "lr": 0.01} | MIXED_DECAY,
    "lamb, every option": {
        "name": "lamb",
        "lr": 0.005,
        "betas": [0.8, 0.95],
        "eps": 1e-5,
        "bias_correction": False,
        "trust_clip": True,
        "always_adapt": True,
        "weight_decay": 0.3,
    },
    "groups and layer_decay": {
        "name": "adamw",
        "lr": 0.002,
        "weight_decay": 0.1,
        "groups": [{"parameters": ["bias"], "lr": 0.01, "weight_decay": 0.0}],
        "layer_decay": 0.6,
    },
    "muon in float32": {"name": "muon", "lr": 0.01, "ns_dtype": "float32"},
    "muon, every option": {
        "name": "muon",
        "lr": 0.004,
        "momentum": 0.8,
        "nesterov": False,
        "weight_decay": 0.1,
        "ns_coefficients": [2.0, -1.5, 0.5],
        "ns_steps": 4,
        "ns_dtype": "float32",
        "eps": 1e-6,
        "adjust_lr_fn": "match_rms_adamw",
        "adamw_lr": 0.001,
        "adamw_betas": [0.8, 0.95],
        "adamw_eps": 1e-6,
    },
}
LION = {"name": "lion", "lr": 0.001, "weight_decay": 0.1, "betas": [0.8, 0.95]}


def both(changes: dict, tmp_path, weights) -> tuple[dict, dict, dict]:
    """The weights before, and after twenty steps of trainopt and of PyTorch."""
    content = support.recipe(changes)
    content["model"]["weights"] = weights(dict(content["model"]))
    theirs = reference.run(content, support.export(tmp_path, content, 20)).network.state_dict()
    return load_file(content["model"]["weights"]), support.train(tmp_path, content).weights(), theirs


def norm(tensors: list[torch.Tensor]) -> float:
    return float(torch.cat([tensor.flatten().double() for tensor in tensors]).norm())


@pytest.mark.parametrize("case", CASES)
def test_weights_after_twenty_steps(case, tmp_path, weights):
    before, ours, theirs = both({"optimizer": CASES[case]}, tmp_path, weights)
    difference = norm([ours[name] - theirs[name] for name in theirs])
    assert difference <= 1e-5 * norm(list(theirs.values()))
    change = norm([theirs[name] - before[name] for name in theirs])
    assert difference <= 1e-3 * change, "the weights have hardly moved"


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lars", "lamb"])
def test_the_fused_form_is_the_same(name, tmp_path, weights):
    content = {"optimizer": CASES[name], "optimizations": {"fused_optimizer": True}}
    before, ours, theirs = both(content, tmp_path, weights)
    difference = norm([ours[name] - theirs[name] for name in theirs])
    assert difference <= 1e-5 * norm(list(theirs.values()))
    assert difference <= 1e-3 * norm([theirs[name] - before[name] for name in theirs])


def test_muon_with_iterations_in_bfloat16(tmp_path, weights):
    before, ours, theirs = both({"optimizer": {"name": "muon", "lr": 0.003}}, tmp_path, weights)
    difference = norm([ours[name] - theirs[name] for name in theirs])
    assert difference <= 1e-2 * norm(list(theirs.values()))
    assert difference <= 0.2 * norm([theirs[name] - before[name] for name in theirs])


@pytest.mark.parametrize("fused", [False, True])
def test_lion_moves_weights_to_the_same_side(fused, tmp_path, weights):
    """A rounding error may turn the sign of a direction near 0, and with it a whole update."""
    content = {"optimizer": LION, "optimizations": {"fused_optimizer": fused}}
    before, ours, theirs = both(content, tmp_path, weights)
    moved = [(ours[name] - before[name], theirs[name] - before[name]) for name in theirs]
    values = sum(mine.numel() for mine, _ in moved)
    different = sum(int(((mine - other).abs() > LION["lr"] / 2).sum()) for mine, other in moved)
    assert different <= 1e-4 * values
