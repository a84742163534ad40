"""Averaged weights compared with torch.optim.swa_utils.AveragedModel, batch-norm's statistics included."""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch.optim import swa_utils

import reference
import support

RESNET = {
    "model": {"name": "resnet18", "num_classes": 10},
    "data": {"transforms": [{"resize": 64}, support.HALF]},
    "optimizer": {"lr": 0.002},
    "train": {"max_steps": 10},
}
CASES = {
    "ema": ({"name": "ema", "decay": 0.8}, swa_utils.get_ema_multi_avg_fn(0.8), range(1, 11)),
    "swa": ({"name": "swa", "start_step": 4, "every_n_steps": 2}, swa_utils.get_swa_multi_avg_fn(), range(4, 11, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_averages(case, tmp_path, weights):
    average, rule, counted = CASES[case]
    content = support.recipe(RESNET, {"average": average})
    content["model"]["weights"] = weights(dict(content["model"]))
    averaged = None

    def after_step(step: int, network: torch.nn.Module) -> None:
        nonlocal averaged
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.num_batches_tracked = None  # a count, of which PyTorch would compute an average
        averaged = averaged or swa_utils.AveragedModel(network, multi_avg_fn=rule, use_buffers=True)
        if step in counted:
            averaged.update_parameters(network)

    reference.run(content, support.export(tmp_path, content, 10), after_step)
    run = support.train(tmp_path, content)
    ours = load_file(run.directory / "weights-average.safetensors")
    for name, tensor in averaged.module.state_dict().items():
        assert support.largest_difference(ours[name], tensor) <= 10 * support.LOSS_TOLERANCE, name
    assert support.largest_difference(ours["fc.weight"], run.weights()["fc.weight"]) > 1e-4, "it is no average"


def test_the_average_is_evaluated_beside_the_weights(tmp_path):
    """A run that starts from the averaged weights and does not change them evaluates to the same loss."""
    data = tmp_path / "data"
    data.mkdir()
    support.write_cifar10(data, {"data_batch_1": 80, "test_batch": 40})
    content = support.recipe(
        {"data": {"dataset": "cifar10", "path": str(data)}, "average": {"name": "ema", "decay": 0.9}}
    )
    content["model"]["weights"] = None
    first = support.train(tmp_path, content, "first")
    evaluated = json.loads((first.directory / "summary.json").read_text())["evaluation"]
    assert evaluated["average"]["loss"] != evaluated["loss"]
    content["model"]["weights"] = str(first.directory / "weights-average.safetensors")
    content["average"] = {"name": "none"}
    content["optimizer"]["lr"] = 0.0
    content["train"]["max_steps"] = 1
    second = support.train(tmp_path, content, "second")
    again = json.loads((second.directory / "summary.json").read_text())["evaluation"]
    assert again["loss"] == pytest.approx(evaluated["average"]["loss"], rel=1e-6)
