"""The recipes and scripts in the repository."""

import csv
import io
import json
import math
import os
import subprocess
import sys

import pytest
import yaml

from conftest import CHECKOUT, PROGRAM, TINY, Program, in_full

RECIPES = sorted((CHECKOUT / "configs").rglob("*.yaml"))
TRANSFORMERS = {  # the rungs of configs/gpt2 and configs/vit
    "0-baseline": {"optimizations.attention": "math"},
    "1-attention": {"optimizations.attention": "auto"},
    "2-amp": {"optimizations.amp": True},
    "3-fused-kernels": {"optimizations.fused_kernels": True},
    "4-fused-optimizer": {"optimizations.fused_optimizer": True},
    "5-set-to-none": {"optimizations.set_to_none": True},
    "6-host-allocator": {"optimizations.host_allocator": True},
    "7-cuda-graph": {"optimizations.cuda_graph": True},
    "8-tf32": {"optimizations.tf32": True},
}
LADDER = {
    "0-baseline": {},
    "1-workers": {"data.num_workers": 8},
    "2a-pin-memory": {"data.pin_memory": True},
    "2b-non-blocking": {"data.non_blocking": True},
    "3-batch-512": {"data.batch_size": 512},
    "4-uint8-copy": {"optimizations.device_preprocess": True},
    "5-set-to-none": {"optimizations.set_to_none": True},
    "6a-amp": {"optimizations.amp": True},
    "6b-batch-1024": {"data.batch_size": 1024},
    "7-channels-last": {"optimizations.channels_last": True},
    "8a-fused-kernels": {"optimizations.fused_kernels": True},
    "8b-fused-optimizer": {"optimizations.fused_optimizer": True},
    "8c-winograd": {"optimizations.winograd": True},
    "8d-cuda-graph": {"optimizations.cuda_graph": True},
    "9a-tf32": {"optimizations.tf32": True},
    "9b-cudnn-benchmark": {"optimizations.cudnn_benchmark": True},
    "9c-persistent-workers": {"data.persistent_workers": True},
    "9d-host-allocator": {"optimizations.host_allocator": True},
    "10-all": {"optimizations.device_preprocess.resize": True},
}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe_plans(example_data, recipe):
    program = Program(example_data)
    planned = program("plan", recipe, "--json", "--assume", "gpus=8,arch=sm_90,memory_gib=80")
    assert planned.code == 0, planned
    assert planned.json()["recipe"]["name"] == yaml.safe_load(recipe.read_text())["name"]


def test_the_recipe_for_two_ranks_needs_no_gpus(digits):
    """A machine with one GPU must run it too."""
    planned = Program(digits)("plan", CHECKOUT / "configs/two_ranks.yaml", "--assume", "gpus=1,arch=sm_90")
    assert planned.code == 0 and "  device             cpu" in planned.out, planned


def flat(value, prefix=""):
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in flat(inner, f"{prefix}{key}.").items()}
    return {prefix[:-1]: value}


@pytest.mark.parametrize("ladder, names", [("ladder", LADDER), ("gpt2", TRANSFORMERS), ("vit", TRANSFORMERS)])
def test_every_rung_changes_one_setting(ladder, names):
    paths = [CHECKOUT / f"configs/{ladder}/{name}.yaml" for name in names]
    assert set(paths) == set((CHECKOUT / f"configs/{ladder}").glob("[0-9]*.yaml"))
    rungs = [flat(yaml.safe_load(path.read_text())) for path in paths]
    for before, after, change in zip(rungs[:-1], rungs[1:], list(names.values())[1:], strict=True):
        assert {key: value for key, value in after.items() if key != "name" and before.get(key) != value} == change
        assert set(before) - set(after) <= {"optimizations.device_preprocess"}


@pytest.mark.parametrize(
    "name, overrides",
    [
        ("cifar10", []),
        (
            "image_folder",
            [
                "data.dataset=image_folder",
                "data.path=data/digits/image_folder/train",
                "evaluation.path=data/digits/image_folder/test",
            ],
        ),
    ],
)
def test_digits_reach_97_percent(digits, name, overrides):
    program = Program(digits)
    result = program("run", CHECKOUT / "configs/digits.yaml", "--run-dir", f"run-{name}", "--quiet", *overrides)
    assert result.code == 0, result
    evaluation = json.loads((digits / f"run-{name}/summary.json").read_text())["evaluation"]
    assert evaluation["samples"] == 355 and evaluation["top1_pct"] >= 97, evaluation


def test_gpt_bytes_learns_text(example_data):
    """Some steps of the recipe, which in full ends better than the trigram model: from all bytes alike to their
    frequencies and beyond."""
    shorter = ["train.max_steps=60", "scheduler.warmup_steps=10", "evaluation.every_n_steps=30"]
    smaller = "model={layers: 2, width: 64, heads: 2, context: 64}"
    recipe = CHECKOUT / "configs/gpt_bytes.yaml"
    result = Program(example_data)("run", recipe, "--run-dir", "run-text", "--quiet", *shorter, smaller)
    assert result.code == 0, result
    summary = json.loads((example_data / "run-text/summary.json").read_text())
    evaluation = summary["evaluation"]
    assert evaluation["top1_pct"] is None and evaluation["perplexity"] < 30, evaluation
    assert evaluation["perplexity"] == pytest.approx(math.exp(evaluation["loss"]))
    assert summary["tokens_per_s"] == pytest.approx(64 * summary["samples_per_s"], rel=1e-6)
    first, last = (json.loads(line) for line in (example_data / "run-text/evaluations.jsonl").read_text().splitlines())
    assert last["perplexity"] < first["perplexity"] < 256


def test_make_digits_matches_scikit_learn(digits):
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    records = {
        name: np.fromfile(digits / f"data/digits/cifar10/{name}.bin", np.uint8).reshape(-1, 3073)
        for name in ("data_batch_1", "test_batch")
    }
    assert sum(map(len, records.values())) == 1797 and 0.19 < len(records["test_batch"]) / 1797 < 0.21
    whole = np.concatenate(list(records.values()))
    images = whole[:, 1:].reshape(-1, 3, 32, 32)
    assert (images[:, 0] == images[:, 1]).all() and (images[:, 0] == images[:, 2]).all()
    small = images[:, 0, ::4, ::4].astype(float) * 16 / 255
    source = load_digits()
    assert np.array_equal(np.bincount(whole[:, 0]), np.bincount(source.target))
    written = sorted(tuple([label, *np.rint(image).astype(int).ravel()]) for label, image in zip(whole[:, 0], small))
    assert written == sorted(
        tuple([label, *image.astype(int).ravel()]) for label, image in zip(source.target, source.images)
    )
    for split, name in [("train", "data_batch_1"), ("test", "test_batch")]:
        for digit in range(10):
            files = sorted((digits / f"data/digits/image_folder/{split}/{digit}").iterdir())
            of_digit = images[: len(records[name])] if split == "train" else images[-len(records[name]) :]
            of_digit = of_digit[records[name][:, 0] == digit]
            assert len(files) == len(of_digit)
            assert all(np.array_equal(np.asarray(Image.open(file)), image[0]) for file, image in zip(files, of_digit))


def test_sweep(trainopt):
    trainopt.write("tiny.yaml", TINY)
    done = subprocess.run(
        [
            CHECKOUT / "scripts/sweep.sh",
            "--run-root",
            "sweep",
            "tiny.yaml",
            "optimizer.lr=0.1,0.2",
            "model.hidden=[4],[4, 8]",
        ],
        cwd=trainopt.folder,
        capture_output=True,
        text=True,
        env={**os.environ, "TRAINOPT": PROGRAM},
    )
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["optimizer.lr"], row["model.hidden"]) for row in rows] == [
        ("0.1", "[4]"),
        ("0.1", "[4, 8]"),
        ("0.2", "[4]"),
        ("0.2", "[4, 8]"),
    ]
    assert all(row["status"] == "done" and float(row["samples_per_s"]) > 0 for row in rows)
    assert len({row["loss.last"] for row in rows}) == 4
    assert (trainopt.folder / "sweep/sweep.csv").read_text() == done.stdout


@pytest.mark.parametrize("budget", ["0", *in_full("500ms")])
@pytest.mark.parametrize(
    "ladder, names, changes",
    [
        (
            "ladder",
            LADDER,
            ["model={name: mlp, hidden: [8]}", "data.transforms=[{resize: 8}]", "data.batch_size=4"],
        ),
        (
            "gpt2",
            TRANSFORMERS,
            ["model={name: gpt2, layers: 1, heads: 2, width: 8, context: 6, vocabulary: 20}", "data.size=64"],
        ),
    ],
    ids=["ladder", "gpt2"],
)
def test_ladder(trainopt, budget, ladder, names, changes):
    """Runs all rungs with a tiny model and tiny samples, in seconds; with a budget, each is compared with the previous
    one."""
    done = subprocess.run(
        [
            CHECKOUT / "scripts/ladder.sh",
            "--ladder",
            ladder,
            "--steps",
            "2",
            "--budget",
            budget,
            "--run-root",
            "ladder",
            *changes,
            "debug.find_syncs=true",
        ],
        cwd=trainopt.folder,
        capture_output=True,
        text=True,
        env={**os.environ, "TRAINOPT": PROGRAM},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["run", *names], done.stdout
    assert "failed" not in done.stdout and "missing" not in done.stdout, done.stdout
    assert (trainopt.folder / "ladder/report.html").exists()
    waits = [json.loads(file.read_text())["hidden_waits"] for file in trainopt.folder.glob("ladder/*/summary.json")]
    assert waits == [[]] * len(names), waits


def test_a_rung_is_compared_only_if_a_switch_has_an_effect(tmp_path):
    """summaries.py changes, by which ladder.sh decides."""
    switch = {"requested": "true", "effective": True}
    runs = {
        "plain": {},
        "amp": {"amp": switch},
        "idle": {"amp": switch, "tf32": switch | {"effective": False}},
        "larger": {"amp": switch, "batch_size": {"requested": "512", "effective": True}},
        "largest": {"amp": switch, "batch_size": {"requested": "1024", "effective": True}},
    }
    for name, receipts in runs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps({"receipts": receipts}))

    def changes(before, after):
        command = [sys.executable, CHECKOUT / "scripts/summaries.py", "changes", tmp_path / before, tmp_path / after]
        return subprocess.run(command, check=False).returncode == 0

    assert changes("plain", "amp") and changes("amp", "larger") and changes("larger", "largest")
    assert not changes("amp", "idle") and not changes("amp", "amp")
