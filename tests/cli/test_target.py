"""train.target ends a run, and compare --until target compares how soon two recipes reach theirs."""

import json

import pytest
import yaml
from sklearn.datasets import load_digits


def ok(result):
    assert result.code == 0, result
    return result


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Two CIFAR-10 files with scikit-learn's digits, a fifth held out."""
    folder = tmp_path_factory.mktemp("digits")
    data = load_digits()
    images = (data.images * 15.9).astype("uint8").repeat(4, axis=1).repeat(4, axis=2)
    rows = [bytes([label]) + image.tobytes() * 3 for image, label in zip(images, data.target, strict=True)]
    (folder / "data_batch_1.bin").write_bytes(b"".join(row for i, row in enumerate(rows) if i % 5))
    (folder / "test_batch.bin").write_bytes(b"".join(rows[::5]))
    return folder


@pytest.fixture
def recipe(digits, tmp_path):
    content = {
        "name": "digits",
        "device": "cpu",
        "model": {"name": "mlp", "hidden": [64], "num_classes": 10},
        "data": {
            "dataset": "cifar10",
            "path": str(digits),
            "batch_size": 32,
            "transforms": [{"resize": 8}, {"normalize": {"mean": 0.5, "std": 0.5}}],
        },
        "optimizer": {"name": "adamw", "lr": 0.003},
        "train": {"max_steps": 400, "target": {"top1_pct": 90}},
        "evaluation": {"every_n_steps": 20},
    }
    path = tmp_path / "digits.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_run_ends_at_the_evaluation_that_finds_its_target(trainopt, recipe):
    run = ok(trainopt("run", recipe, "--run-dir", "run", "bench.price_per_hour=3.6"))
    summary = json.loads((recipe.parent / "run/summary.json").read_text())
    target = summary["target"]
    assert target["reached"] and target["metric"] == "top1_pct" and target["value"] >= target["goal"] == 90
    assert target["step"] == summary["steps"] < 400 and target["step"] % 20 == 0
    assert target["samples"] == summary["samples"] and target["resolution_steps"] == 20
    evaluations = [json.loads(line) for line in (recipe.parent / "run/evaluations.jsonl").read_text().splitlines()]
    assert [line["top1_pct"] >= 90 for line in evaluations] == [False] * (len(evaluations) - 1) + [True]
    evaluation_s = sum(line["wall_s"] for line in evaluations)
    assert 0 < target["training_s"] <= summary["wall_s"] - 0.9 * evaluation_s
    assert target["price"] == pytest.approx(0.001 * target["training_s"])
    assert "train.target: top1_pct of at least 90" in run.out
    again = ok(trainopt("run", recipe, "--run-dir", "run", "checkpoint.resume=auto"))
    assert f"finished after {summary['steps']} steps" in again.out and "nothing is left to do" in again.out


def test_a_resumed_run_goes_on_to_a_higher_target(trainopt, recipe):
    ok(trainopt("run", recipe, "--run-dir", "run", "train.target.top1_pct=60"))
    first = json.loads((recipe.parent / "run/summary.json").read_text())["target"]
    ok(trainopt("run", recipe, "--run-dir", "run", "checkpoint.resume=auto"))
    second = json.loads((recipe.parent / "run/summary.json").read_text())["target"]
    assert second["reached"] and second["step"] > first["step"] and second["training_s"] > first["training_s"]


def test_a_target_that_is_not_reached_is_no_failure(trainopt, recipe):
    run = ok(trainopt("run", recipe, "--run-dir", "run", "train.max_steps=20", "train.target.top1_pct=100"))
    target = json.loads((recipe.parent / "run/summary.json").read_text())["target"]
    assert not target["reached"] and target["step"] == 20
    summary = json.loads((recipe.parent / "run/summary.json").read_text())
    assert 0 < target["training_s"] <= summary["wall_s"]
    assert "not reached" in run.out


def test_commands_that_do_not_evaluate_ignore_the_target(trainopt, recipe):
    profile = trainopt("profile", recipe, "--run-dir", "profile", "scheduler={name: wsd, warmup_steps: 500}")
    assert profile.code == 0 and "not reached" not in profile.out, profile
    found = ok(trainopt("find", "batch", recipe, "--budget", "10s", "--json", timeout=120)).json()
    assert found["enough"], found


@pytest.mark.parametrize(
    "words, expected",
    [
        (["evaluation.every_n_steps=null"], "no evaluation checks this before the end"),
        (["train.target.loss=1"], "names more than one number"),
        (["train.target={top1_pct: null, perplexity: 5}"], "mlp does not measure this"),
        (["train.target.top1_pct=101"], "train.target.top1_pct"),
    ],
)
def test_targets_that_cannot_be_checked_are_refused(trainopt, recipe, words, expected):
    result = trainopt("check", recipe, *words)
    assert result.code == 2 and expected in result.err, result


def test_compare_until_target(trainopt, recipe):
    run = ok(trainopt(
        *("compare", recipe, "--with", "optimizer.lr=0.0005", "--until", "target", "--seeds", "6", "--run-dir", "out"),
        timeout=300,
    ))
    result = json.loads((recipe.parent / "out/result.json").read_text())
    assert [pair["seed"] for pair in result["pairs"]] == [0, 1, 2, 3, 4, 5]
    assert result["arms"]["a"]["reached"] == 6
    steps = {arm: result["arms"][arm]["median"]["steps"] for arm in "ab"}
    assert steps["b"] is None or steps["b"] > steps["a"]
    assert result["interval"] is not None and "B " in run.out and "evaluated every 20 steps" in run.out
    first = json.loads((recipe.parent / "out/seed-0/a/run/summary.json").read_text())
    assert first["target"]["step"] == result["pairs"][0]["a"]["steps"]
    assert ok(trainopt("compare", "--show", "out")).out == run.out
    assert ok(trainopt("compare", "--show", "out", "--json")).json() == result


def test_a_recipe_that_never_arrives_costs(trainopt, recipe):
    words = ["compare", recipe, "--with", "optimizer.lr=1e-9", "train.max_steps=100", "train.target.top1_pct=60"]
    result = ok(trainopt(*words, "--until", "target", "--seeds", "6", "--json", timeout=300)).json()
    assert result["arms"]["b"]["reached"] == 0 and result["arms"]["b"]["median"]["steps"] is None
    if result["undecided_pairs"] == 0:  # B may end sooner than A arrives
        assert result["verdict"] == "costs" and result["interval"] == [0, 0]


# Learnt in two steps: black images of one class. A white one makes the weights infinite.
BLACK = """\
name: black
device: cpu
model: {name: mlp, hidden: [8], num_classes: 10}
data: {dataset: cifar10, path: ., batch_size: 4, transforms: [{resize: 8}, {normalize: {mean: 0, std: 1.0e-38}}]}
optimizer: {name: sgd, momentum: 0, lr: 1000}
train: {max_steps: 8, target: {top1_pct: 100}}
evaluation: {every_n_steps: 2}
"""


def test_runs_of_one_seed_that_diverge(trainopt):
    """The white image is in the first batch of the first seed only."""
    black, white = bytes(3073), bytes([0]) + b"\xff" * 3072
    for name in ("data_batch_1.bin", "test_batch.bin"):
        trainopt.write(name, black * 512)
    trainopt.write("black.yaml", BLACK)
    assert trainopt("run", "black.yaml", "--inject", "nan@1", "--run-dir", "run").code == 6
    first = json.loads((trainopt.folder / "run/nonfinite.jsonl").read_text().splitlines()[0])["sample_ids"][0]
    trainopt.write("data_batch_1.bin", black * first + white + black * (511 - first))
    words = ("--with", "optimizer.lr=2000", "--until", "target", "--level", "50%", "--seeds", "2", "--run-dir", "out")
    run = ok(trainopt("compare", "black.yaml", *words))
    pairs = json.loads((trainopt.folder / "out/result.json").read_text())["pairs"]
    assert [(pair["a"]["diverged"], pair["b"]["diverged"]) for pair in pairs] == [(True, True), (False, False)], run
    assert run.out.count("is evaluated every 2 steps") == 2, run
    assert "in 1 pair both runs diverged" in run.out and "train longer" not in run.out, run


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--with", "optimizer.lr=1", "--until", "target", "--seeds", "5"], "needs at least 6: 5"),
        (["--with", "train.target.top1_pct=80", "--until", "target"], "must have the same train.target"),
        (["train.target.top1_pct=null", "--with", "optimizer.lr=1", "--until", "target"], "needs train.target"),
        (["--with", "optimizer.lr=1", "--until", "end"], "--until"),
        (["--with", "optimizer.lr=1", "--until", "target", "--turn", "1s"], "--turn"),
        (["--with", "optimizer.lr=1", "--seeds", "9"], "--until"),
    ],
)
def test_compare_until_refuses(trainopt, recipe, words, expected):
    result = trainopt("compare", recipe, *words)
    assert result.code == 2 and expected in result.err, result


@pytest.mark.full
def test_ablate_until_target(trainopt, recipe):
    """Each part is left out of the recipe; the runs of the whole recipe serve all parts."""
    switches = "optimizations={amp: true, precision: true}"
    words = [switches, "scheduler={name: linear, warmup_steps: 5}", "train.max_steps=200"]
    run = ok(trainopt("ablate", recipe, *words, "--until", "target", "--seeds", "7", "--run-dir", "out", timeout=600))
    result = json.loads((recipe.parent / "out/result.json").read_text())
    parts = {part["name"]: part for part in result["parts"]}
    assert list(parts) == ["precision", "scheduler"]
    assert parts["precision"]["without"].startswith("optimizations.precision=")
    assert all(part["level"] == pytest.approx(0.975) and len(part["pairs"]) == 7 for part in parts.values())
    whole = [[pair["b"]["training_s"] for pair in part["pairs"]] for part in parts.values()]
    assert whole[0] == whole[1]
    folders = sorted(path.name for path in (recipe.parent / "out/seed-0").iterdir())
    assert folders == ["everything", "without-precision", "without-scheduler"]
    left_out = yaml.safe_load((recipe.parent / "out/seed-0/without-scheduler/run/recipe.yaml").read_text())
    assert left_out["scheduler"]["name"] == "constant"
    assert "all intervals together hold at 95 %" in run.out
    assert ok(trainopt("compare", "--show", "out")).out == run.out


@pytest.mark.parametrize(
    "words, expected",
    [
        ([], "none of them on"),
        (["scheduler.name=linear", "average.name=ema", "--seeds", "6"], "about 2 parts that together hold at 95 %"),
        (["scheduler.name=linear", "train.target.top1_pct=null"], "needs train.target"),
        (["scheduler.name=linear", "--budget", "1m"], "--budget"),
    ],
)
def test_ablate_until_refuses(trainopt, recipe, words, expected):
    result = trainopt("ablate", recipe, *words, "--until", "target")
    assert result.code == 2 and expected in result.err, result
