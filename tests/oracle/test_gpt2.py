"""GPT-2 from the same weights on the same tokens as Hugging Face's."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import reference
import support
from support import GRADIENT_TOLERANCE, VOCABULARY
from test_training import assert_same_training

GPT2 = {
    "model": {"name": "gpt2", "layers": 3, "heads": 4, "width": 48, "context": 32, "vocabulary": VOCABULARY},
    "data": {"dataset": "tokens", "batch_size": 8, "transforms": []},
    "optimizer": {"name": "adamw", "lr": 0.003, "weight_decay": 0.05},
    "scheduler": {"name": "cosine", "warmup_steps": 5},
    "train": {"max_grad_norm": 1.0},
}


@pytest.fixture(scope="session")
def tokens(tmp_path_factory):
    return str(support.write_tokens(tmp_path_factory.mktemp("text") / "tokens.bin"))


def gpt2(tokens, weights, *changes: dict) -> dict:
    content = support.recipe(GPT2, {"data": {"path": tokens}}, *changes)
    content["model"]["weights"] = weights(dict(content["model"]))
    return content


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
def test_logits_loss_and_gradients_of_the_first_step(fused, tmp_path, tokens, weights):
    dump = {"train": {"max_steps": 1}, "logging": {"dump": {"steps": [1], "what": ["outputs", "gradients"]}}}
    content = gpt2(tokens, weights, dump, {"optimizations": {"fused_kernels": fused}})
    theirs = reference.run(content, support.export(tmp_path, content, 1))
    run = support.train(tmp_path, content)
    assert run.records[0]["loss"] == pytest.approx(theirs.losses[0], rel=GRADIENT_TOLERANCE)
    dump = run.dump(1)
    assert support.largest_difference(dump.pop("outputs"), theirs.outputs) <= GRADIENT_TOLERANCE
    gradients = {key.removeprefix("gradients."): value for key, value in dump.items()}
    for name, gradient in theirs.gradients.items():
        # Hugging Face's Conv1D stores its matrices as in × out.
        conv1d = gradient.dim() == 2 and any(part in name for part in ("c_attn", "c_proj", "c_fc"))
        ours = gradients.pop(name)
        assert support.largest_difference(ours.T if conv1d else ours, gradient) <= GRADIENT_TOLERANCE, name
    assert not gradients


CASES = {
    "adamw, cosine and clipping": {},
    "sgd": {"optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}},
    "accumulation": {"data": {"batch_size": 2}, "train": {"gradient_accumulation_steps": 4}},
    "attention math": {"optimizations": {"attention": "math"}},
    "everything on": {
        "optimizations": {"fused_kernels": True, "fused_optimizer": True, "set_to_none": True, "host_allocator": True}
    },
    "no_decay": {"optimizer": {"no_decay": ["norm", "bias"]}, "optimizations": {"fused_optimizer": True}},
}


@pytest.mark.parametrize("case", CASES)
def test_twenty_losses(case, tmp_path, tokens, weights):
    content = gpt2(tokens, weights, CASES[case])
    theirs = reference.run(content, support.export(tmp_path, content, 20))
    run = support.train(tmp_path, content)
    assert_same_training(run, theirs, content)
    final = run.weights()  # with Hugging Face's names and shapes
    expected = theirs.network.state_dict()
    assert final.keys() == expected.keys()
    for name, tensor in expected.items():
        assert support.largest_difference(final[name], tensor) <= 10 * support.LOSS_TOLERANCE, name


def test_bfloat16_is_close_to_autocast(tmp_path, tokens, weights):
    content = gpt2(tokens, weights, {"optimizations": {"amp": True}, "train": {"max_steps": 10}})
    theirs = reference.run(content, support.export(tmp_path, content, 10))
    support.assert_close_columns(support.train(tmp_path, content).column("loss"), theirs.losses, 2e-2, "loss")


def test_evaluation_is_the_mean_over_all_tokens(tmp_path, tokens, weights):
    held_out = support.write_tokens(tmp_path / "val.bin", count=700)
    evaluated = {"evaluation": {"path": str(held_out), "batch_size": 5}, "train": {"max_steps": 1}}
    content = gpt2(tokens, weights, evaluated, {"optimizer": {"lr": 0.0}})
    evaluation = support.train(tmp_path, content).summary["evaluation"]

    network = reference.build_model(content["model"])
    network.load_state_dict(load_file(content["model"]["weights"]))
    text = torch.from_numpy(np.fromfile(held_out, "<u2").astype(np.int64))
    windows = torch.stack([text[start : start + 33] for start in range(0, len(text) - 32, 32)])
    with torch.no_grad():
        logits = network.eval()(windows[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).item()
    assert evaluation["samples"] == len(windows) == 21
    assert evaluation["loss"] == pytest.approx(loss, rel=1e-4)
    assert evaluation["perplexity"] == pytest.approx(np.exp(loss), rel=1e-3)
    assert evaluation["top1_pct"] is None
