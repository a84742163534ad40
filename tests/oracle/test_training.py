"""Twenty steps from the same weights on the same batches, for each way to compute an update."""

import pytest

import reference
import support
from support import LOSS_TOLERANCE

SMALL_RESNET = {
    "model": {"name": "resnet18", "num_classes": 10},
    "data": {"transforms": [{"resize": 64}, support.HALF]},
    "optimizer": {"lr": 0.002},
}

SMALL_VIT = {
    "model": {"name": "vit", "num_classes": 10, "patch": 4, "layers": 3, "heads": 4, "width": 48},
    "optimizer": {"name": "adamw", "lr": 0.001, "weight_decay": 0.05},
    "scheduler": {"name": "cosine", "warmup_steps": 5},
    "train": {"max_grad_norm": 1.0},
}

CASES = {
    "sgd": {},
    "sgd without momentum": {"optimizer": {"momentum": 0.0, "lr": 0.1}},
    "sgd, weight decay": {"optimizer": {"weight_decay": 0.05}},
    "sgd, nesterov": {"optimizer": {"weight_decay": 0.01, "nesterov": True}},
    "adam": {"optimizer": {"name": "adam", "lr": 0.001}},
    "adam, weight decay": {
        "optimizer": {"name": "adam", "lr": 0.001, "weight_decay": 0.1, "betas": [0.8, 0.95], "eps": 1e-6}
    },
    "adamw": {"optimizer": {"name": "adamw", "lr": 0.001}},
    "adamw, weight decay": {"optimizer": {"name": "adamw", "lr": 0.002, "weight_decay": 0.3, "betas": [0.85, 0.98]}},
    "clipping": {"train": {"max_grad_norm": 0.5}},
    "clipping that rarely applies": {"train": {"max_grad_norm": 3.0}, "optimizer": {"name": "adamw", "lr": 0.001}},
    "clipping by value": {"train": {"clip_value": 0.003}, "optimizer": {"lr": 0.2}},
    "accumulation": {"train": {"gradient_accumulation_steps": 4}, "data": {"batch_size": 2}},
    "global_batch_size": {"data": {"batch_size": 4, "global_batch_size": 12}},
    "label smoothing": {"train": {"label_smoothing": 0.2}},
    "linear": {"scheduler": {"name": "linear", "warmup_steps": 5}},
    "linear, total_steps": {"scheduler": {"name": "linear", "total_steps": 12}},
    "cosine": {"scheduler": {"name": "cosine", "warmup_steps": 4}},
    "cosine, total_steps": {"scheduler": {"name": "cosine", "warmup_steps": 3, "total_steps": 40}},
    "constant, warm-up": {"scheduler": {"warmup_steps": 6}},
    "one cycle": {"scheduler": {"name": "onecycle", "pct_start": 0.4, "base_momentum": 0.6}},
    "one cycle, adamw": {
        "scheduler": {"name": "onecycle", "three_phase": True},
        "optimizer": {"name": "adamw", "lr": 0.004, "weight_decay": 0.1},
    },
    "short last step": {"data": {"size": 45, "drop_last": False}},
    "short last step of micro-batches": {
        "data": {"size": 45, "drop_last": False, "batch_size": 6},
        "train": {"gradient_accumulation_steps": 3, "max_grad_norm": 1.0},
    },
    "drop_last": {"data": {"size": 45, "drop_last": True}},
    "resnet18": support.merge(SMALL_RESNET, {"optimizer": {"weight_decay": 0.01}, "train": {"max_grad_norm": 2.0}}),
    "resnet18, cifar stem": {
        "model": {"name": "resnet18", "num_classes": 10, "stem": "cifar"},
        "optimizer": {"lr": 0.002},
        "data": {"batch_size": 4},
    },
    "resnet18, adamw and cosine": support.merge(
        SMALL_RESNET,
        {
            "optimizer": {"name": "adamw", "lr": 0.0001, "weight_decay": 0.05},
            "scheduler": {"name": "cosine", "warmup_steps": 5},
            "train": {"label_smoothing": 0.1},
        },
    ),
    "vit, adamw, cosine and clipping": SMALL_VIT,
    "vit, sgd": {"model": SMALL_VIT["model"], "optimizer": {"weight_decay": 0.01}},
    "resnet18, accumulation": support.merge(
        SMALL_RESNET, {"train": {"gradient_accumulation_steps": 2}, "data": {"batch_size": 4}}
    ),
}


def with_weights(content: dict, weights) -> dict:
    content["model"]["weights"] = weights(dict(content["model"]))
    return content


def assert_same_training(
    run: support.Run, theirs: reference.Trace, content: dict, tolerance: float = LOSS_TOLERANCE
) -> None:
    support.assert_close_columns(run.column("loss"), theirs.losses, tolerance, "loss")
    support.assert_close_columns(run.column("learning_rate"), theirs.learning_rates, 1e-6, "learning_rate")
    if content["train"].get("max_grad_norm"):
        support.assert_close_columns(run.column("grad_norm"), theirs.grad_norms, 5 * tolerance, "grad_norm")
    else:
        assert run.column("grad_norm") == [None] * len(run.records)


@pytest.mark.parametrize("case", CASES)
def test_twenty_losses(case, tmp_path, weights):
    content = with_weights(support.recipe(CASES[case]), weights)
    steps = support.export(tmp_path, content, 20)
    theirs = reference.run(content, steps)
    run = support.train(tmp_path, content)
    assert_same_training(run, theirs, content)
    final = run.weights()
    for name, tensor in theirs.network.state_dict().items():
        assert support.largest_difference(final[name], tensor) <= 10 * LOSS_TOLERANCE, name


def test_short_steps_have_the_lengths_of_the_recipe(tmp_path):
    content = support.recipe(CASES["short last step of micro-batches"])
    steps = support.export(tmp_path, content, 4)
    assert [len(step.target) for step in steps] == [18, 18, 9, 18]


SWITCHES = {
    "fused_optimizer": {"optimizations": {"fused_optimizer": True}},
    "channels_last": {"optimizations": {"channels_last": True}},
    "set_to_none": {"optimizations": {"set_to_none": True}},
    "device_preprocess": {"optimizations": {"device_preprocess": True}},
    "workers": {"data": {"num_workers": 3, "prefetch_factor": 3}},
    "persistent_workers": {"data": {"num_workers": 2, "persistent_workers": True}},
    "all": {
        "optimizations": {
            "fused_optimizer": True,
            "channels_last": True,
            "set_to_none": True,
            "device_preprocess": True,
        },
        "data": {"num_workers": 2, "persistent_workers": True},
    },
}
SWITCH_RECIPE = support.merge(
    SMALL_RESNET,
    {"data": {"size": 50}, "train": {"max_steps": 10, "max_grad_norm": 2.0}, "optimizer": {"weight_decay": 0.01}},
)


@pytest.fixture(scope="module")
def plain_trace(tmp_path_factory, weights):
    content = with_weights(support.recipe(SWITCH_RECIPE), weights)
    return reference.run(content, support.export(tmp_path_factory.mktemp("plain"), content, 10))


@pytest.mark.parametrize("switch", SWITCHES)
def test_switches_do_not_change_results(switch, tmp_path, weights, plain_trace):
    content = with_weights(support.recipe(SWITCH_RECIPE, SWITCHES[switch]), weights)
    assert_same_training(support.train(tmp_path, content), plain_trace, content)


@pytest.mark.parametrize(
    "optimizer",
    [
        {"weight_decay": 0.02, "nesterov": True},
        {"name": "adam", "lr": 0.001, "weight_decay": 0.1},
        {"name": "adamw", "lr": 0.002, "weight_decay": 0.3},
    ],
    ids=lambda o: o.get("name", "sgd"),
)
@pytest.mark.parametrize("scheduler", ["constant", "onecycle"])
def test_fused_optimizer_gives_the_same_results(optimizer, scheduler, tmp_path, weights):
    content = with_weights(
        support.recipe(
            {
                "optimizer": optimizer,
                "scheduler": {"name": scheduler},
                "optimizations": {"fused_optimizer": True, "set_to_none": True},
                "train": {"max_grad_norm": 1.0},
            }
        ),
        weights,
    )
    theirs = reference.run(content, support.export(tmp_path, content, 20))
    assert_same_training(support.train(tmp_path, content), theirs, content)


def test_clipping_by_value_is_the_same_after_fused_unscaling(tmp_path, weights):
    content = with_weights(
        support.recipe(
            {
                "optimizations": {"fused_optimizer": True, "amp": {"dtype": "float16", "init_scale": 1024.0}},
                "train": {"clip_value": 0.003, "max_steps": 10},
                "optimizer": {"lr": 0.2},
            }
        ),
        weights,
    )
    theirs = reference.run(content, support.export(tmp_path, content, 10))
    support.assert_close_columns(support.train(tmp_path, content).column("loss"), theirs.losses, 2e-2, "loss")


def test_accumulation_agrees_with_one_large_batch(tmp_path, weights):
    """Without batch-norm, splitting a step into micro-batches does not change the losses."""
    large = with_weights(support.recipe({"data": {"batch_size": 15, "size": 85, "drop_last": False}}), weights)
    small = support.merge(large, {"data": {"batch_size": 5}, "train": {"gradient_accumulation_steps": 3}})
    a, b = support.train(tmp_path, large, "large"), support.train(tmp_path, small, "small")
    support.assert_close_columns(b.column("loss"), a.column("loss"), 1e-5, "loss")


@pytest.mark.parametrize("small", [SMALL_RESNET, SMALL_VIT], ids=["resnet18", "vit"])
def test_bfloat16_is_close_to_autocast(small, tmp_path, weights):
    content = with_weights(
        support.recipe(small, {"optimizations": {"amp": {"dtype": "bfloat16"}}, "train": {"max_steps": 10}}),
        weights,
    )
    theirs = reference.run(content, support.export(tmp_path, content, 10))
    run = support.train(tmp_path, content)
    support.assert_close_columns(run.column("loss"), theirs.losses, 2e-2, "loss")
    plain = reference.run(
        support.merge(content, {"optimizations": {"amp": False}}), support.export(tmp_path, content, 1)
    )
    assert run.records[0]["loss"] != plain.losses[0], "the first loss in bfloat16 is exactly that in float32"


def test_float16_scaler_skips_and_grows_as_pytorch_does(tmp_path, weights):
    """The initial scale overflows, so the first steps are skipped; the schedule still advances during them."""
    amp = {"dtype": "float16", "init_scale": 2.0**30, "growth_interval": 4}
    content = with_weights(
        support.recipe({"optimizations": {"amp": amp}, "scheduler": {"name": "linear", "warmup_steps": 3}}), weights
    )
    theirs = reference.run(content, support.export(tmp_path, content, 20))
    assert theirs.loss_scales[0] > theirs.loss_scales[3] and max(theirs.loss_scales[8:]) > min(
        theirs.loss_scales
    ), "the case must overflow and grow"
    run = support.train(tmp_path, content)
    support.assert_close_columns(run.column("loss"), theirs.losses, 2e-2, "loss")
    support.assert_close_columns(run.column("learning_rate"), theirs.learning_rates, 1e-6, "learning_rate")
    support.assert_close_columns(run.column("loss_scale"), theirs.loss_scales, 1e-7, "loss_scale")
