"""Programs of torch.export on the command line: what is shown, planned, trained and refused."""

from pathlib import Path

import pytest

from conftest import summary

FILES = Path(__file__).resolve().parents[1] / "unit/model/files"

RECIPE = f"""
name: own
device: cpu
model: {{name: exported, path: {FILES}/net.pt2}}
data:
  dataset: fake_cifar10
  size: 40
  batch_size: 8
  transforms: [{{resize: 8}}, {{normalize: {{mean: 0.5, std: 0.5}}}}]
train: {{max_steps: 3}}
logging: {{sinks: [jsonl]}}
"""


def test_show(trainopt):
    shown = trainopt("model", "show", FILES / "net.pt2")
    assert shown.code == 0
    for words in ("images of 3×8×8", "10 logits", "1,498", "dropout.default in drop", "4 units", "blocks.1"):
        assert words in shown.out
    facts = trainopt("model", "show", FILES / "net.pt2", "--units", "layers", "--json").json()
    assert facts["outputs"] == 10 and len(facts["units"]) > 4
    assert sum(unit["parameters"] for unit in facts["units"]) == facts["parameters"] == 1498
    trainopt.refused("model", "show", FILES / "fixed.pt2", code=4, says=["exactly 2", "torch.export.Dim"])
    trainopt.refused("model", "show", FILES / "text.pt2", "--context", 9, code=2, says=["--context", "is not free"])


def test_train_and_plan(trainopt, tmp_path):
    recipe = trainopt.write("own.yaml", RECIPE)
    plan = trainopt("plan", recipe, "optimizations.winograd=true")
    assert plan.code == 0 and "switches reach 2 of 2 batch-norms, 3 of 3 convolutions" in plan.out
    done = trainopt("run", recipe, "--run-dir", tmp_path / "run", "--quiet")
    assert done.code == 0 and summary(tmp_path / "run")["steps"] == 3
    # Its weights are a file that it starts from.
    again = trainopt("run", recipe, f"model.weights={tmp_path}/run/weights.safetensors", "--quiet")
    assert again.code == 0


def test_buffers_that_are_masks_or_truth_values(trainopt, tmp_path):
    """They neither end a run as weights that have diverged nor a comparison that reads them."""
    text = RECIPE.replace("net.pt2", "sides.pt2").replace("fake_cifar10", "synthetic")
    recipe = trainopt.write("own.yaml", "".join(line for line in text.splitlines(True) if "transforms" not in line))
    done = trainopt("run", recipe, "--run-dir", tmp_path / "run", "--quiet")
    assert done.code == 0 and (tmp_path / "run/weights.safetensors").exists()
    with_switch = ("--with", "optimizations.fused_optimizer=true", "--repeats", 1)
    compared = trainopt("compare", recipe, "train.max_steps=null", "train.epochs=9", *with_switch, "--json")
    assert compared.code == 0 and compared.json()["numerics"]["agree"]


def test_a_program_with_its_own_loss(trainopt, tmp_path):
    recipe = trainopt.write("own.yaml", RECIPE.replace("net.pt2", "own-loss.pt2"))
    shown = trainopt("model", "show", FILES / "own-loss.pt2")
    assert "and the target" in shown.out and "its own loss, and 10 logits" in shown.out
    # It does not matter to a comparison whose loss it is.
    switched = ("--with", "optimizations.activation_checkpointing=true", "--repeats", 1, "--json")
    compared = trainopt("compare", recipe, "train.max_steps=null", "train.epochs=9", *switched)
    assert compared.code == 0 and compared.json()["numerics"]["agree"]


def test_trained_weights_go_back_into_the_program(trainopt, tmp_path):
    recipe = trainopt.write("own.yaml", RECIPE)
    change = ("model.replace_head=true", "model.num_classes=auto", "average={name: ema, decay: 0.5}")
    run = tmp_path / "run"
    assert trainopt("run", recipe, *change, "--run-dir", run, "--quiet").code == 0
    for words, name in ((), "last"), (("--average",), "average"):
        saved = trainopt("model", "save", run, tmp_path / f"{name}.pt2", *words)
        assert saved.code == 0 and "torch.export.load" in saved.out
        # The program starts where the run ended.
        assert trainopt("model", "show", tmp_path / f"{name}.pt2").code == 0
    assert (tmp_path / "last.pt2").read_bytes() != (tmp_path / "average.pt2").read_bytes()
    trainopt.refused("model", "save", run, tmp_path / "last.pt2", code=8, says=["last.pt2 exists"])
    trainopt.refused("model", "save", tmp_path, tmp_path / "n.pt2", code=2, says=["no run directory"])
    trainopt.refused("model", "save", run, tmp_path / "absent/n.pt2", code=8, says=["its folder does not exist"])
    moved = ("model", "save", run, tmp_path / "moved.pt2", "--program")
    assert trainopt(*moved, FILES / "net.pt2").code == 0
    other = ("--program", FILES / "residual.pt2")
    trainopt.refused(*moved[:3], tmp_path / "n.pt2", *other, code=4, says=["not the program that was trained"])
    built_in = RECIPE.replace("name: exported", "name: mlp").replace(f", path: {FILES}/net.pt2", "")
    plain = trainopt.write("mlp.yaml", built_in)
    assert trainopt("run", plain, "--run-dir", tmp_path / "mlp", "--quiet").code == 0
    trainopt.refused("model", "save", tmp_path / "mlp", tmp_path / "n.pt2", code=2, says=["built-in mlp"])
    (run / "weights.safetensors").unlink()
    trainopt.refused("model", "save", run, tmp_path / "n.pt2", code=4, says=["the run has not ended"])
    assert not (tmp_path / "n.pt2").exists()


@pytest.mark.parametrize(
    "change, code, says",
    [
        ("model.path=null", 2, ["model.path", "torch.export.save"]),
        ("model.path=absent.pt2", 4, ["model.path: there is no such file: absent.pt2"]),
        (f"model.path={FILES}/net-eval.pt2", 4, ["after eval()"]),
        (f"model.evaluation_path={FILES}/drop.pt2", 4, ["it is not the model of"]),
        ("data.transforms=[{resize: 16}]", 2, ["takes images of 3×8×8", "3×16×16"]),
        ("model.num_classes=5", 2, ["model.num_classes", "model.replace_head: true"]),
        ("model.num_classes=10", 2, ["model.num_classes", "model.replace_head: true"]),
        ("model.replace_head=true", 2, ["model.replace_head", "needs model.num_classes"]),
        ("model.task=loss", 4, ["takes 1 input", "the images or tokens and the target"]),
        (f"model.path={FILES}/own-loss.pt2 | train.label_smoothing=0.1", 2, ["computes its own loss"]),
        (f"parallel.pipeline.stages=2 | model.evaluation_path={FILES}/net-eval.pt2", 2, ["cannot be combined with"]),
    ],
)
def test_refused(trainopt, change, code, says):
    trainopt.refused("plan", trainopt.write("own.yaml", RECIPE), *change.split(" | "), code=code, says=says)


@pytest.mark.parametrize("words", ["torch.export", "torch.jit", "torch.compile"])
def test_options_know_what_pytorch_calls_it(trainopt, words):
    found = trainopt("options", words)
    assert found.code == 0
    assert ("optimizations.fused_kernels" if "compile" in words else "model.path") in found.out
