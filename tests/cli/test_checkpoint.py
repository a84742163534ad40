"""`trainopt checkpoint`, and whether other programs can read the files."""

import re

import pytest

from conftest import TINY, Program, checkpoint


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """(The program, a run of four steps with a checkpoint every two steps)"""
    program = Program(tmp_path_factory.mktemp("four"))
    program.write("tiny.yaml", TINY)
    result = program(
        "run", "tiny.yaml", "--run-dir", "out", "train.max_steps=4", "checkpoint.every_n_steps=2", "--quiet"
    )
    assert result.code == 0, result
    return program, program.folder / "out"


FIRST, SECOND, WEIGHTS = "out/checkpoints/step-00000002", "out/checkpoints/step-00000004", "out/weights.safetensors"


def test_verify(four, trainopt):
    program, out = four
    for path in ("out", "out/checkpoints"):
        result = program("checkpoint", "verify", path)
        assert result.code == 0 and [line.split(":")[0] for line in result.out.splitlines()] == [SECOND, FIRST], result
        assert result.out.count("valid; step") == 2 and result.err == "", result
    for path in (FIRST, "out/checkpoints/latest"):
        result = program("checkpoint", "verify", path)
        assert result.code == 0 and len(result.out.splitlines()) == 1, result
    damaged = trainopt.folder / "damaged"
    damaged.mkdir()
    for file in checkpoint(out, 4).iterdir():
        (damaged / file.name).write_bytes(file.read_bytes())
    for file in [damaged / "manifest.json", damaged / "rank-0000.safetensors"]:
        whole = file.read_bytes()
        file.write_bytes(whole[:-3] + bytes([whole[-3] ^ 0x10]) + whole[-2:])
        result = program("checkpoint", "verify", FIRST, damaged, SECOND)
        assert result.code == 4 and result.out.count(": valid") == 2 and result.out.count(": invalid") == 1, result
        assert result.err.startswith("trainopt: ") and len(result.err.splitlines()) == 1, result
        file.write_bytes(whole)
    (damaged / "notes.txt").write_text("mine")
    assert "notes.txt" in program("checkpoint", "verify", damaged).err


def test_show(four):
    program, _ = four
    got = program("checkpoint", "show", SECOND, "--json").json()
    assert (got["state"]["step"], got["state"]["samples"], got["state"]["data"]["kind"]) == (4, 32, "fake_cifar10")
    assert set(got["files"]) == {"rank-0000.safetensors", "recipe.yaml", "state.json"} and set(got["versions"]) == {
        "trainopt",
        "libtorch",
    }
    assert (
        got["groups"]["model"] == {"tensors": 4, "numbers": 1634, "bytes": 6536} == got["groups"]["optimizer.momentum"]
    )
    text = program("checkpoint", "show", SECOND)
    assert (
        text.code == 0 and re.search(r"step +4\b", text.out) and "1,634 numbers" in text.out and "kind" in text.out
    ), text
    got = program("checkpoint", "show", WEIGHTS, "--json").json()
    assert set(got) == {"path", "groups"} and sum(group["numbers"] for group in got["groups"].values()) == 1634
    assert "1,634 numbers" in program("checkpoint", "show", WEIGHTS).out
    result = program.refused("checkpoint", "show", "out", code=4, says=["out/checkpoints/latest"])
    assert len(result.err.splitlines()) == 1


def test_diff(four):
    program, _ = four
    same = program("checkpoint", "diff", SECOND, "out/checkpoints/latest", "--json").json()
    assert same["identical"] is True and same["same_tensors"] == 9 and same["tensors"] == {} == same["state"]
    assert program("checkpoint", "diff", SECOND, SECOND).out == "9 tensors the same, 0 different\n"
    got = program("checkpoint", "diff", FIRST, SECOND, "--json").json()
    assert got["identical"] is False and got["state"]["step"] == [2, 4] and got["state"]["samples"] == [16, 32]
    bias = got["tensors"]["model.layers.1.bias"]
    assert bias["of"] == 10 and 0 < bias["numbers"] <= 10 and 0 < bias["largest"] < 1
    text = program("checkpoint", "diff", FIRST, SECOND)
    assert text.code == 0 and "model.layers.1.bias" in text.out and re.search(r"step +2 and 4\b", text.out), text
    mixed = program("checkpoint", "diff", SECOND, WEIGHTS, "--json").json()
    assert set(mixed["tensors"].values()) == {"only in the first", "only in the second"}
    program.refused("checkpoint", "diff", SECOND)
    program.refused("checkpoint", "diff", SECOND, "nowhere", code=4, says=["nowhere"])


def test_usage(trainopt):
    trainopt.refused("checkpoint", says=["verify", "show", "diff"])
    trainopt.refused("checkpoint", "verifi", "out", says=["verifi"])
    trainopt.refused("checkpoint", "show", says=["path"])


def test_a_run_can_start_from_a_weights_file(four):
    program, out = four
    result = program(
        "run",
        "tiny.yaml",
        "--run-dir",
        "more",
        f"model.weights={WEIGHTS}",
        "optimizer.lr=0",
        "train.max_steps=1",
        "--quiet",
    )
    assert result.code == 0, result
    assert program("checkpoint", "diff", WEIGHTS, "more/weights.safetensors", "--json").json()["identical"] is True


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A resnet18 with torchvision's layout, trained for two steps."""
    pytest.importorskip("torchvision")
    program = Program(tmp_path_factory.mktemp("resnet18"))
    program.write(
        "resnet18.yaml",
        """\
name: resnet18
device: cpu
model: {name: resnet18, num_classes: 10}
data: {dataset: fake_cifar10, size: 8, batch_size: 4, transforms: [{normalize: {mean: 0.5, std: 0.5}}]}
train: {max_steps: 2}
optimizer: {name: sgd, lr: 0.01, momentum: 0.9}
""",
    )
    result = program("run", "resnet18.yaml", "--run-dir", "out", "--quiet")
    assert result.code == 0, result
    return program.folder / "out"


def test_torchvision_reads_the_weights(network):
    import safetensors.torch
    import torch
    import torchvision

    torch.manual_seed(0)
    pictures = torch.randn(2, 3, 32, 32)

    def outputs(tensors):
        model = torchvision.models.resnet18(num_classes=10)
        model.load_state_dict(tensors, strict=True)
        with torch.no_grad():
            return model.eval()(pictures)

    weights = safetensors.torch.load_file(network / "weights.safetensors")
    assert weights["bn1.num_batches_tracked"] == 2 and weights["fc.weight"].dtype == torch.float32
    got = outputs(weights)
    assert got.shape == (2, 10) and torch.isfinite(got).all()
    stored = safetensors.torch.load_file(checkpoint(network, 2) / "rank-0000.safetensors")
    model = {name.removeprefix("model."): tensor for name, tensor in stored.items() if name.startswith("model.")}
    assert torch.equal(outputs(model), got)
    momentum = {name.removeprefix("optimizer.momentum.") for name in stored if name.startswith("optimizer.")}
    assert momentum == {name for name, _ in torchvision.models.resnet18().named_parameters()}
