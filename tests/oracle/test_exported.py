"""Programs that torch.export saved: trained by trainopt as PyTorch trains the model itself."""

import pytest
import torch

import exported
import support

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
    allowed = max(1e-5, 10 * exported.distance(changed.state_dict(), model.state_dict())[0])
    run = support.train(tmp_path, content)
    support.assert_close_columns(run.column("loss"), theirs, allowed, "loss")
    apart, where = exported.distance(run.weights(), model.state_dict())
    assert apart <= allowed, where
