"""One step from the same weights on the same batch: logits, every gradient and every running statistic."""

import pytest

import reference
import support
from support import GRADIENT_TOLERANCE, HALF

DUMP = {"train": {"max_steps": 1}, "logging": {"dump": {"steps": [1], "what": ["outputs", "gradients", "buffers"]}}}
RESIZE = {"transforms": [{"resize": 64}, HALF]}


def resnet(name: str, **options) -> dict:
    return {"name": name, "num_classes": 10, **options}


def vit(name: str = "vit", **options) -> dict:
    return {"name": name, "num_classes": 10, **(options or {"patch": 4, "layers": 3, "heads": 4, "width": 48})}


CASES = {
    "mlp": {},
    "mlp, one hidden layer, 13 classes": {"model": {"hidden": [32], "num_classes": 13}},
    "resnet18": {"model": resnet("resnet18"), "data": RESIZE},
    "resnet18, cifar stem": {"model": resnet("resnet18", stem="cifar")},
    "resnet18, 17 classes": {"model": resnet("resnet18", num_classes=17), "data": RESIZE},
    "resnet34": {"model": resnet("resnet34"), "data": RESIZE},
    "resnet50": {"model": resnet("resnet50"), "data": {**RESIZE, "batch_size": 4}},
    "resnet50, cifar stem": {"model": resnet("resnet50", stem="cifar"), "data": {"batch_size": 2}},
    "convnext_tiny": {
        "model": {"name": "convnext_tiny", "num_classes": 10, "stochastic_depth": 0.0},
        "data": {"batch_size": 4},
    },
    "vit": {"model": vit()},
    "vit, one patch": {"model": vit(patch=32, layers=2, heads=1, width=40)},
    "vit_s_16": {"model": {"name": "vit_s_16", "num_classes": 17}, "data": {"batch_size": 4}},
    "vit, accumulation": {"model": vit(), "train": {"gradient_accumulation_steps": 2, "label_smoothing": 0.1}},
    "odd side": {"model": resnet("resnet18"), "data": {"transforms": [{"resize": [57, 71]}, HALF]}},
    "label smoothing": {"model": resnet("resnet18", stem="cifar"), "train": {"label_smoothing": 0.1}},
    "accumulation": {"model": resnet("resnet18", stem="cifar"), "train": {"gradient_accumulation_steps": 2}},
    "clipping is after the dump": {"train": {"max_grad_norm": 0.01}},
    "channels_last": {"model": resnet("resnet18"), "data": RESIZE, "optimizations": {"channels_last": True}},
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_gradients_and_statistics(case, tmp_path, weights):
    content = support.recipe(DUMP, CASES[case])
    content["model"]["weights"] = weights({key: content["model"][key] for key in content["model"]})
    theirs = reference.run(content, support.export(tmp_path, content, 1))
    run = support.train(tmp_path, content)
    dump = run.dump(1)

    assert support.largest_difference(dump["outputs"], theirs.outputs) <= GRADIENT_TOLERANCE
    assert run.records[0]["loss"] == pytest.approx(theirs.losses[0], rel=GRADIENT_TOLERANCE)

    gradients = {key.removeprefix("gradients."): value for key, value in dump.items() if key.startswith("gradients.")}
    assert gradients.keys() == theirs.gradients.keys()
    # A bias that the next batch-norm cancels has a gradient near zero, which is the rounding of sums that cancel.
    least = 1e-3 * max(gradient.abs().max().item() for gradient in theirs.gradients.values())
    too_far = {
        name: error
        for name, gradient in theirs.gradients.items()
        if (error := support.largest_difference(gradients[name], gradient, least)) > GRADIENT_TOLERANCE
    }
    assert not too_far

    buffers = {key.removeprefix("buffers."): value for key, value in dump.items() if key.startswith("buffers.")}
    assert buffers.keys() == theirs.buffers.keys()
    for name, buffer in theirs.buffers.items():
        assert support.largest_difference(buffers[name], buffer) <= GRADIENT_TOLERANCE, name
