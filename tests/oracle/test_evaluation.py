"""Accuracy and loss on held-out data, and the weights that a run saves."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torchvision import transforms

import reference
import support
from support import HALF


def assert_same_evaluation(ours: dict, theirs: dict, loss_tolerance: float) -> None:
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=loss_tolerance)
    assert ours["top1_pct"] == pytest.approx(theirs["top1_pct"], abs=1e-3)
    assert ours["top5_pct"] == pytest.approx(theirs["top5_pct"], abs=1e-3)


def trained_network(content: dict, run: support.Run) -> torch.nn.Module:
    network = reference.build_model(content["model"])
    network.load_state_dict(run.weights(), strict=True)
    return network


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizations": {"channels_last": True, "set_to_none": True}},
        {"evaluation": {"batch_size": 33}},
        {"train": {"label_smoothing": 0.1}},
        {"model": {"name": "vit", "num_classes": 10, "patch": 4, "layers": 2, "heads": 4, "width": 32}},
    ],
    ids=["plain", "channels_last", "batch_size", "label_smoothing", "vit"],
)
def test_cifar10_finds_its_test_batch(changes, tmp_path):
    """101 samples do not fill the last batch: each counts exactly once. Running statistics are used."""
    written = support.write_cifar10(tmp_path / "cifar", {"data_batch_1": 64, "test_batch": 101})
    content = support.recipe(
        {
            "model": {"name": "resnet18", "num_classes": 10, "stem": "cifar"},
            "train": {"max_steps": 6},
            "data": {
                "dataset": "cifar10",
                "path": str(tmp_path / "cifar"),
                "transforms": [{"random_crop": {"size": 32, "padding": 4}}, "random_horizontal_flip", HALF],
            },
        },
        changes,
    )
    run = support.train(tmp_path, content)
    pixels, labels = written["test_batch"]
    inputs = (torch.from_numpy(pixels).float() / 255 - 0.5) / 0.5
    theirs = reference.evaluate(trained_network(content, run), inputs, torch.from_numpy(labels))
    assert_same_evaluation(run.summary["evaluation"], theirs, 1e-4)


def test_image_folder_evaluation_replaces_random_transforms(tmp_path):
    """Evaluation turns random_resized_crop: 28 into resize round(28·256/224) = 32 and center_crop 28, and drops the
    flip."""
    for part, seed in (("train", 0), ("test", 100)):
        support.write_image_folder(
            tmp_path / part,
            {f"{'abc'[n % 3]}/{n}.png": support.photograph(40 + n, 60 - n, seed=seed + n) for n in range(14)},
        )
    content = support.recipe(
        {
            "model": {"hidden": [32], "num_classes": 7},
            "train": {"max_steps": 4},
            "data": {
                "dataset": "image_folder",
                "path": str(tmp_path / "train"),
                "batch_size": 3,
                "transforms": [{"random_resized_crop": 28}, "random_horizontal_flip", HALF],
            },
            "evaluation": {"path": str(tmp_path / "test"), "every_n_steps": 2},
        }
    )
    run = support.train(tmp_path, content)
    content["model"]["input_side"] = 28
    oracle = transforms.Compose(
        [
            transforms.Resize(32),
            transforms.CenterCrop(28),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )
    files = support.image_folder_files(tmp_path / "test")
    inputs = torch.stack([oracle(Image.open(path).convert("RGB")) for path in files])
    targets = torch.tensor(["abc".index(path.parent.name) for path in files])
    theirs = reference.evaluate(trained_network(content, run), inputs, targets)
    assert_same_evaluation(run.summary["evaluation"], theirs, 5e-3)
    lines = [json.loads(line) for line in (run.directory / "evaluations.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] in ([2, 4], [2, 4, 4])
    assert lines[0]["loss"] != lines[-1]["loss"]
    assert lines[-1]["loss"] == pytest.approx(run.summary["evaluation"]["loss"])


@pytest.mark.parametrize(
    "model",
    [
        {"name": "resnet18", "num_classes": 10},
        {"name": "resnet18", "num_classes": 10, "stem": "cifar"},
        {"name": "resnet34", "num_classes": 12},
        {"name": "resnet50", "num_classes": 10},
        {"name": "mlp", "num_classes": 10, "hidden": [24, 16, 12]},
    ],
    ids=lambda model: f"{model['name']} {model.get('stem', '')}",
)
def test_weights_load_into_torchvision(model, tmp_path):
    """A strict load succeeds: same names, shapes and types, nothing missing or left over. The values are distributed
    as torchvision's."""
    content = support.recipe(
        {
            "model": model,
            "train": {"max_steps": 1},
            "data": {
                "batch_size": 2,
                "num_workers": 0,
                "transforms": [{"resize": 64 if model["name"] != "mlp" else 32}, HALF],
            },
            "optimizer": {"name": "sgd", "lr": 0.0, "momentum": 0.0},
        }
    )
    run = support.train(tmp_path, content)
    network = reference.build_model(content["model"])
    drawn = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    network.load_state_dict(run.weights(), strict=True)
    for name, tensor in run.weights().items():
        assert tensor.dtype == drawn[name].dtype, name
        if name.endswith("weight") and tensor.dim() > 1 and tensor.numel() > 1000:
            ours, theirs = tensor.double(), drawn[name].double()
            assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.1), name
            assert abs(ours.mean().item()) < 5 * theirs.std().item() / np.sqrt(ours.numel()), name


def test_weights_round_trip(tmp_path, weights):
    """With a learning rate of 0, the weights read from model.weights are written to weights.safetensors unchanged."""
    model = {"name": "resnet18", "num_classes": 10, "stem": "cifar"}
    path = weights(model)
    content = support.recipe(
        {
            "model": {**model, "weights": path},
            "train": {"max_steps": 1},
            "optimizer": {"name": "sgd", "lr": 0.0, "momentum": 0.0},
        }
    )
    final, given = support.train(tmp_path, content).weights(), load_file(path)
    assert final.keys() == given.keys()
    for name, tensor in given.items():
        if "running" not in name and "tracked" not in name:
            assert torch.equal(final[name], tensor), name


def test_a_mismatch_of_weights_is_a_user_error(tmp_path, weights):
    path = weights({"name": "resnet18", "num_classes": 10, "stem": "cifar"})
    content = support.recipe(
        {"model": {"name": "resnet18", "num_classes": 11, "stem": "cifar", "weights": path}, "train": {"max_steps": 1}}
    )
    done = support.trainopt(
        "run", support.write_recipe(tmp_path, content), "--run-dir", tmp_path / "run", "--quiet", expect=4
    )
    assert "fc.weight" in done.stderr
