"""The learning rate and momentum of every step of a run's schedule, as PyTorch's and Hugging Face's schedulers compute
them in a loop, 200 steps."""

import json

import pytest
import torch
from torch.optim import lr_scheduler as torch_schedules

import support

STEPS = 200
RATE = 0.4


def transformers_schedule(name: str):
    """A function that makes one of Hugging Face's schedules."""
    import transformers  # takes seconds, so only where it is used

    return getattr(transformers, name)


CASES = {
    "onecycle": (
        {"name": "onecycle"},
        lambda o: torch_schedules.OneCycleLR(o, max_lr=RATE, total_steps=STEPS),
    ),
    "onecycle, every option": (
        {
            "name": "onecycle",
            "max_lr": 0.7,
            "pct_start": 0.2,
            "div_factor": 10.0,
            "final_div_factor": 100.0,
            "anneal_strategy": "linear",
            "base_momentum": 0.7,
            "max_momentum": 0.9,
            "total_steps": 210,
        },
        lambda o: torch_schedules.OneCycleLR(
            o,
            max_lr=0.7,
            pct_start=0.2,
            div_factor=10.0,
            final_div_factor=100.0,
            anneal_strategy="linear",
            base_momentum=0.7,
            max_momentum=0.9,
            total_steps=210,
        ),
    ),
    "onecycle, three phases": (
        {"name": "onecycle", "three_phase": True, "pct_start": 0.4},
        lambda o: torch_schedules.OneCycleLR(o, max_lr=RATE, total_steps=STEPS, three_phase=True, pct_start=0.4),
    ),
    "onecycle, momentum left alone": (
        {"name": "onecycle", "cycle_momentum": False},
        lambda o: torch_schedules.OneCycleLR(o, max_lr=RATE, total_steps=STEPS, cycle_momentum=False),
    ),
    "cyclic, triangular": (
        {"name": "cyclic", "base_lr": 0.05, "step_size_up": 17},
        lambda o: torch_schedules.CyclicLR(o, base_lr=0.05, max_lr=RATE, step_size_up=17),
    ),
    "cyclic, triangular2": (
        {"name": "cyclic", "base_lr": 0.05, "max_lr": 0.9, "step_size_up": 10, "step_size_down": 23}
        | {"mode": "triangular2"},
        lambda o: torch_schedules.CyclicLR(
            o, base_lr=0.05, max_lr=0.9, step_size_up=10, step_size_down=23, mode="triangular2"
        ),
    ),
    "cyclic, exp_range": (
        {"name": "cyclic", "base_lr": 0.05, "step_size_up": 15, "mode": "exp_range", "gamma": 0.99}
        | {"base_momentum": 0.6, "max_momentum": 0.8},
        lambda o: torch_schedules.CyclicLR(
            o,
            base_lr=0.05,
            max_lr=RATE,
            step_size_up=15,
            mode="exp_range",
            gamma=0.99,
            base_momentum=0.6,
            max_momentum=0.8,
        ),
    ),
    "step": (
        {"name": "step", "step_size": 40, "gamma": 0.3},
        lambda o: torch_schedules.StepLR(o, step_size=40, gamma=0.3),
    ),
    "multistep": (
        {"name": "multistep", "milestones": [20, 21, 90], "gamma": 0.5},
        lambda o: torch_schedules.MultiStepLR(o, milestones=[20, 21, 90], gamma=0.5),
    ),
    "exponential": (
        {"name": "exponential", "gamma": 0.97},
        lambda o: torch_schedules.ExponentialLR(o, gamma=0.97),
    ),
    "polynomial": (
        {"name": "polynomial", "power": 2.5, "total_steps": 150},
        lambda o: torch_schedules.PolynomialLR(o, total_iters=150, power=2.5),
    ),
    "cosine_restarts": (
        {"name": "cosine_restarts", "t_0": 13, "eta_min": 0.01},
        lambda o: torch_schedules.CosineAnnealingWarmRestarts(o, T_0=13, eta_min=0.01),
    ),
    "cosine_restarts, longer each time": (
        {"name": "cosine_restarts", "t_0": 13, "t_mult": 3},
        lambda o: torch_schedules.CosineAnnealingWarmRestarts(o, T_0=13, T_mult=3),
    ),
    "cosine with a lowest rate": (
        {"name": "cosine", "eta_min": 0.03},
        lambda o: torch_schedules.CosineAnnealingLR(o, T_max=STEPS, eta_min=0.03),
    ),
    "linear": (
        {"name": "linear", "warmup_steps": 30},
        lambda o: transformers_schedule("get_linear_schedule_with_warmup")(o, 30, STEPS),
    ),
    "cosine": (
        {"name": "cosine", "warmup_steps": 30},
        lambda o: transformers_schedule("get_cosine_schedule_with_warmup")(o, 30, STEPS),
    ),
    "inverse_sqrt": (
        {"name": "inverse_sqrt", "warmup_steps": 25},
        lambda o: transformers_schedule("get_inverse_sqrt_schedule")(o, 25),
    ),
    "inverse_sqrt, timescale": (
        {"name": "inverse_sqrt", "warmup_steps": 10, "timescale": 60},
        lambda o: transformers_schedule("get_inverse_sqrt_schedule")(o, 10, timescale=60),
    ),
}
for decay_type, warmup, ratio in (("cosine", 20, 0.0), ("linear", 0, 0.1), ("1-sqrt", 0, 0.2)):
    CASES[f"wsd, {decay_type}"] = (
        {
            "name": "wsd",
            "warmup_steps": warmup,
            "num_decay_steps": 70,
            "decay_type": decay_type,
            "min_lr_ratio": ratio,
        },
        lambda o, decay_type=decay_type, warmup=warmup, ratio=ratio: transformers_schedule("get_wsd_schedule")(
            o, warmup, 70, num_training_steps=STEPS, decay_type=decay_type, min_lr_ratio=ratio
        ),
    )


def theirs(make_schedule) -> tuple[list[float], list[float]]:
    """Rate and momentum before each step; the optimizer has nothing to update."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE, momentum=0.9)
    schedule = make_schedule(optimizer)
    rates, momenta = [], []
    for _ in range(STEPS):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        momenta.append(float(optimizer.param_groups[0]["momentum"]))
        optimizer.step()
        schedule.step()
    return rates, momenta


def ours(tmp_path, scheduler: dict) -> dict:
    changes = {"scheduler": scheduler, "train": {"max_steps": STEPS}, "optimizer": {"lr": RATE}}
    file = support.write_recipe(tmp_path, support.recipe(changes))
    return json.loads(support.trainopt("plan", file, "--schedule", "--json").stdout)


@pytest.mark.parametrize("case", CASES)
def test_two_hundred_rates(case, tmp_path):
    scheduler, make_schedule = CASES[case]
    rates, momenta = theirs(make_schedule)
    found = ours(tmp_path, scheduler)
    assert found["step"] == list(range(1, STEPS + 1))
    assert found["learning_rate"] == pytest.approx(rates, rel=1e-6, abs=1e-12)
    if found["momentum"] is None:
        assert set(momenta) == {0.9}
    else:
        assert found["momentum"] == pytest.approx(momenta, rel=1e-6)
