"""Programs that torch.export saved: trained by trainopt as PyTorch trains the model itself."""

import sys
from pathlib import Path

import pytest
import torch

import exported
import support

sys.path.append(str(Path(__file__).parents[1] / "unit/model/files"))
import make_programs  # noqa: E402

CHOSEN = ["resnet18", "efficientnet_b0", "convnext_tiny", "swin_t", "vit_tiny (timm)"]  # bench_exported.py has all


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", CHOSEN)
def test_losses_and_weights_are_those_of_pytorch(name, tmp_path):
    make, side = exported.MODELS[name]
    torch.manual_seed(0)
    model = make().train()
    path = exported.save(model, torch.randn(2, 3, side, side), tmp_path / "net.pt2")
    content = exported.recipe(path, side)
    content["train"]["max_steps"] = 6
    steps = support.export(tmp_path, content, 6)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    changed = make().train()
    changed.load_state_dict(state)
    theirs = exported.train(model, steps, exported.OPTIMIZER)
    exported.train(changed, exported.one_bit_changed(steps), exported.OPTIMIZER)
    allowed = max(1e-5, exported.distance(changed.state_dict(), model.state_dict())[0])
    run = support.train(tmp_path, content)
    support.assert_close_columns(run.column("loss"), theirs, allowed, "loss")
    apart, where = exported.distance(run.weights(), model.state_dict())
    assert apart <= allowed, where


def test_a_language_model_that_shares_its_embedding(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 48, "n_positions": 32, "vocab_size": support.VOCABULARY}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **no_dropout))

        def forward(self, tokens):
            mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()[None, None]
            positions = torch.arange(tokens.shape[1])[None]
            return self.network(tokens, attention_mask=mask, position_ids=positions, use_cache=False).logits

    torch.manual_seed(0)
    model = Logits().train()
    path = exported.save(model, torch.zeros(2, 32, dtype=torch.int64), tmp_path / "net.pt2")
    tokens = str(support.write_tokens(tmp_path / "tokens.bin"))
    content = exported.recipe(path, 0, data={"dataset": "tokens", "path": tokens, "batch_size": 4})
    content["train"]["max_steps"] = 6
    steps = support.export(tmp_path, content, 6)
    theirs = exported.train(model, steps, exported.OPTIMIZER)
    run = support.train(tmp_path, content)
    support.assert_close_columns(run.column("loss"), theirs, 1e-5, "loss")
    ours, state = run.weights(), model.state_dict()
    tied = {"network.lm_head.weight", "network.transformer.wte.weight"}
    assert len(tied & ours.keys()) == 1 and ours.keys() | tied == state.keys()
    apart, where = exported.distance(ours, {name: state[name] for name in ours})
    assert apart <= 1e-5, where


class Grouped(torch.nn.Module):
    """Four heads of queries that share two of keys and values, as Llama's and Qwen2's do."""

    def __init__(self, vocabulary, width=32):
        super().__init__()
        self.wte, self.head = torch.nn.Embedding(vocabulary, width), torch.nn.Linear(width, vocabulary, bias=False)
        self.query, self.out = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
        self.key, self.value = torch.nn.Linear(width, width // 2), torch.nn.Linear(width, width // 2)

    def forward(self, tokens):
        x = self.wte(tokens)
        heads = [part(x).unflatten(2, (-1, 8)).transpose(1, 2) for part in (self.query, self.key, self.value)]
        attended = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        return self.head(x + self.out(attended.transpose(1, 2).flatten(2)))


REPLACED = {"fused_kernels": True, "attention": "flash"}


@pytest.mark.parametrize("switches", [{}, REPLACED], ids=["as written", "replaced"])
@pytest.mark.parametrize("name", ["Mixed", "Written", "Grouped"])
def test_layers_that_are_written_out(name, switches, tmp_path):
    torch.manual_seed(0)
    if name == "Mixed":
        model = make_programs.Mixed().train()
        example, content = torch.randn(2, 3, 16, 16), exported.recipe(tmp_path / "net.pt2", 16)
    else:
        written = name == "Written"
        model = make_programs.Written(support.VOCABULARY, tokens=32) if written else Grouped(support.VOCABULARY)
        model.train()
        example = torch.zeros(2, 32, dtype=torch.int64)
        text = {"dataset": "tokens", "path": str(support.write_tokens(tmp_path / "tokens.bin")), "batch_size": 4}
        content = exported.recipe(tmp_path / "net.pt2", 0, data=text)
    exported.save(model, example, tmp_path / "net.pt2")
    content["train"]["max_steps"] = 6
    content["optimizations"] = switches
    steps = support.export(tmp_path, content, 6)
    theirs = exported.train(model, steps, exported.OPTIMIZER)
    run = support.train(tmp_path, content)
    support.assert_close_columns(run.column("loss"), theirs, 1e-5, "loss")
    apart, where = exported.distance(run.weights(), model.state_dict())
    assert apart <= 1e-5, where
    if switches:
        assert "attention" in run.summary["receipts"]["attention"]["observed"], run.summary["receipts"]


class OwnLoss(torch.nn.Module):
    """Returns a loss that its network's outputs and the target give, and the logits if it has any."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.network = make_programs.Residual() if kind != "tokens" else make_programs.Text(support.VOCABULARY, 32)

    def forward(self, x, target):
        logits = self.network(x)
        if self.kind == "contrastive":
            first, second = (torch.nn.functional.normalize(each, dim=1) for each in (logits, self.network(x.flip(3))))
            same = (target[:, None] == target[None, :]).float()
            return -((first @ second.t() / 0.2).log_softmax(1) * same).sum(1).div(same.sum(1)).mean()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), target.flatten(), label_smoothing=0.1)
        return loss, logits


@pytest.mark.parametrize("kind", ["logits", "contrastive", "tokens"])
def test_programs_that_compute_their_own_loss(kind, tmp_path):
    torch.manual_seed(0)
    model = OwnLoss(kind).train()
    target, content = torch.zeros(2, dtype=torch.int64), exported.recipe(tmp_path / "net.pt2", 16)
    example = torch.randn(2, 3, 16, 16)
    if kind == "tokens":
        example, target = torch.zeros(2, 32, dtype=torch.int64), torch.ones(2, 32, dtype=torch.int64)
        text = {"dataset": "tokens", "path": str(support.write_tokens(tmp_path / "tokens.bin")), "batch_size": 4}
        content = exported.recipe(tmp_path / "net.pt2", 0, data=text)
    exported.save(model, example, tmp_path / "net.pt2", target)
    content["train"]["max_steps"] = 6
    steps = support.export(tmp_path, content, 6)
    theirs = exported.train(model, steps, exported.OPTIMIZER, own_loss=True)
    run = support.train(tmp_path, content)
    support.assert_close_columns(run.column("loss"), theirs, 1e-5, "loss")
    state = model.state_dict()
    if kind == "tokens":  # tied to the embedding
        del state["network.head.weight"]
    apart, where = exported.distance(run.weights(), state)
    assert apart <= 1e-5, where


@pytest.mark.parametrize("classes", [10, 7])
def test_trained_weights_are_saved_in_the_program(classes, tmp_path):
    """PyTorch computes the same with the saved program as with the model and weights.safetensors."""
    torch.manual_seed(0)
    path = exported.save(make_programs.Residual().train(), torch.randn(2, 3, 16, 16), tmp_path / "net.pt2")
    content = exported.recipe(path, 16)
    content["train"]["max_steps"] = 3
    if classes != 10:
        content["model"] |= {"replace_head": True, "num_classes": classes}
        content["data"] = {"dataset": "synthetic", "size": 32, "batch_size": 4, "image_size": 16}
    run = support.train(tmp_path, content)
    support.trainopt("model", "save", run.directory, tmp_path / "trained.pt2")
    model = make_programs.Residual(classes).train()
    model.load_state_dict(run.weights())
    saved = torch.export.load(str(tmp_path / "trained.pt2")).module()
    images = torch.randn(5, 3, 16, 16)
    assert torch.equal(saved(images), model(images)) and saved(images).shape == (5, classes)


class DropPath(torch.nn.Module):
    """Stochastic depth as Hugging Face's transformers write it."""

    def __init__(self):
        super().__init__()
        self.network = make_programs.Residual(192)
        self.first, self.head = torch.nn.Linear(192, 192), torch.nn.Linear(192, 10)

    def forward(self, x):
        x = self.network(x)
        y = self.first(x)
        if self.training:
            drawn = 0.75 + torch.rand((y.shape[0], 1), dtype=y.dtype)
            y = y.div(0.75) * drawn.floor_()
        return self.head(x + y)


class Drifting(torch.nn.Module):
    """Changes a buffer that its state_dict leaves out, and has a tied weight."""

    def __init__(self):
        super().__init__()
        self.network = make_programs.Residual(16)
        self.first, self.second = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.head = torch.nn.Linear(16, 10)
        self.register_buffer("mean", torch.zeros(16), persistent=False)

    def forward(self, x):
        x = self.second(self.first(self.network(x)))
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return self.head(x - self.mean)


def test_a_saved_program_has_what_the_run_changed(tmp_path):
    torch.manual_seed(0)
    model = Drifting().train()
    path = exported.save(model, torch.randn(2, 3, 16, 16), tmp_path / "net.pt2")
    content = exported.recipe(path, 16)
    content["train"]["max_steps"] = 3
    run = support.train(tmp_path, content)
    support.trainopt("model", "save", run.directory, tmp_path / "trained.pt2")
    weights = run.weights()
    model.mean.copy_(weights.pop("mean"))
    model.load_state_dict(weights, strict=False)  # the tied weight has one of its names
    images = torch.randn(5, 3, 16, 16)
    saved = torch.export.load(str(tmp_path / "trained.pt2")).module()
    assert model.mean.abs().max() > 0 and torch.equal(saved(images), model(images))


@pytest.mark.parametrize("other", [False, True], ids=["turned", "evaluation_path"])
def test_an_evaluation_of_an_own_loss_counts_its_logits(other, tmp_path):
    torch.manual_seed(0)
    model, target = OwnLoss("logits").train(), torch.zeros(2, dtype=torch.int64)
    path = exported.save(model, torch.randn(2, 3, 32, 32), tmp_path / "net.pt2", target)
    folder = tmp_path / "data"
    images, labels = support.write_cifar10(folder, {"data_batch_1": 40, "test_batch": 30})["test_batch"]
    content = exported.recipe(path, 32)
    content["data"] |= {"dataset": "cifar10", "path": str(folder), "transforms": [support.HALF]}
    del content["data"]["size"]
    content["train"]["max_steps"] = 3
    if other:
        example = torch.randn(2, 3, 32, 32)
        content["model"]["evaluation_path"] = str(exported.save(model.eval(), example, tmp_path / "eval.pt2", target))
    run = support.train(tmp_path, content)
    model.load_state_dict(run.weights())
    labels = torch.from_numpy(labels)
    with torch.no_grad():
        batches = range(0, 30, 4)
        inputs = (torch.from_numpy(images).float() / 255 - 0.5) / 0.5
        parts = [(model.eval()(inputs[at : at + 4], labels[at : at + 4]), len(labels[at : at + 4])) for at in batches]
    theirs = sum(loss.item() * count for (loss, _), count in parts) / 30
    correct = (torch.cat([logits for (_, logits), _ in parts]).argmax(1) == labels).sum().item()
    assert run.summary["evaluation"]["loss"] == pytest.approx(theirs, rel=1e-5)
    assert run.summary["evaluation"]["top1_pct"] == pytest.approx(100 * correct / 30)


EVALUATED = {
    "stochastic depth of transformers": (DropPath, {}),
    "stochastic depth, dropout": ("efficientnet_b0", {}),
    "layer norm, stochastic depth": ("convnext_tiny", {}),
    "attention, dropout": ("vit_b_16", {"image_size": 32, "dropout": 0.1, "attention_dropout": 0.1}),
    "windows": ("swin_t", {}),
    "batch-norm": ("resnet18", {}),
}


@pytest.mark.parametrize("name, options", EVALUATED.values(), ids=EVALUATED.keys())
def test_evaluation_is_that_of_eval(name, options, tmp_path):
    """Also after training with dropout, whose draws are trainopt's own: PyTorch evaluates the weights that result."""
    model = (name() if name is DropPath else exported.torchvision_model(name, draws=True, **options)()).train()
    path = exported.save(model, torch.randn(2, 3, 32, 32), tmp_path / "net.pt2")
    folder = tmp_path / "data"
    support.write_cifar10(folder, {"data_batch_1": 40, "test_batch": 30})
    content = exported.recipe(path, 32)
    content["data"] |= {"dataset": "cifar10", "path": str(folder), "transforms": [support.HALF]}
    del content["data"]["size"]
    content["train"]["max_steps"] = 3
    run = support.train(tmp_path, content)
    model.load_state_dict(run.weights())
    images, labels = support.write_cifar10(tmp_path / "again", {"data_batch_1": 40, "test_batch": 30})["test_batch"]
    with torch.no_grad():
        outputs = model.eval()((torch.from_numpy(images).float() / 255 - 0.5) / 0.5)
    theirs = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(labels)).item()
    assert run.summary["evaluation"]["loss"] == pytest.approx(theirs, rel=1e-5)

    evaluated = exported.save(model.eval(), torch.randn(2, 3, 32, 32), tmp_path / "net-eval.pt2")
    content["model"]["evaluation_path"] = str(evaluated)
    again = support.train(tmp_path / "again", content)
    assert again.summary["evaluation"]["loss"] == run.summary["evaluation"]["loss"]
    assert exported.distance(again.weights(), run.weights())[0] == 0
