"""The recipes and scripts in the repository."""

import csv
import io
import json
import math
import os
import signal
import subprocess

import pytest
import yaml

from conftest import CHECKOUT, PROGRAM, TINY, Program, in_full, ladders, summaries, wait_until

RECIPES = sorted((CHECKOUT / "configs").rglob("*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recipe_plans(example_data, recipe):
    program = Program(example_data)
    planned = program("plan", recipe, "--json", "--assume", "gpus=8,arch=sm_90,memory_gib=80")
    assert planned.code == 0, planned
    assert planned.json()["recipe"]["name"] == yaml.safe_load(recipe.read_text())["name"]


def test_the_recipe_for_two_ranks_needs_no_gpus(digits):
    """A machine with one GPU must run it too."""
    planned = Program(digits)("plan", CHECKOUT / "configs/two_ranks.yaml", "--assume", "gpus=1,arch=sm_90")
    assert planned.code == 0 and "  device             cpu" in planned.out, planned


def resolved(program, *words):
    planned = program("plan", *words, "--json", "--assume", "gpus=1,arch=sm_90,memory_gib=80")
    assert planned.code == 0, planned
    return planned.json()["recipe"] | {"name": ""}


def part_keys(before, after, part):
    """The keys of one part of a recipe, such as data.batch_size, whose values differ."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return {part} if before != after else set()
    return {f"{part}.{key}" for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


@pytest.mark.parametrize("ladder", ladders.names())
def test_every_rung_changes_one_setting_and_the_last_one_is_the_top(trainopt, ladder):
    rungs = ladders.rungs(ladder)
    assert len({rung.name for rung in rungs}) == len(rungs) > 8
    recipes = [resolved(trainopt, ladders.baseline(ladder), *rung.words) for rung in rungs]
    assert recipes[-1] == resolved(trainopt, ladders.FOLDER / ladder / "all.yaml")
    for rung, before, after in zip(rungs[1:], recipes, recipes[1:]):
        changed = {key for part in before for key in part_keys(before[part], after[part], part)}
        assert len(changed) == 1 and rung.words[-1].startswith(changed.pop()), (rung.name, changed)


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


def swept(trainopt, *arguments, **environment):
    return subprocess.run(
        [CHECKOUT / "scripts/sweep", *arguments],
        cwd=trainopt.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "TRAINOPT": PROGRAM, **environment},
    )


def test_sweep(trainopt):
    trainopt.write("tiny.yaml", TINY)
    done = swept(trainopt, "--run-root", "sweep", "tiny.yaml", "optimizer.lr=0.1,0.2", "model.hidden=[4],[4, 8]")
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
    "ladder, changes, sizes",
    [
        (
            "resnet18",
            ["model={name: mlp, hidden: [8]}", "data.transforms=[{resize: 8}]", "data.batch_size=4"],
            "batch 4, 8-pixel images, 0 loader threads, 2 steps",
        ),
        (
            "gpt2",
            ["model={name: gpt2, layers: 1, heads: 2, width: 8, context: 6, vocabulary: 20}", "data.size=64"],
            "batch 8, 0 loader threads, 2 steps",
        ),
    ],
    ids=["resnet18", "gpt2"],
)
def test_ladder(trainopt, budget, ladder, changes, sizes):
    """Runs all rungs with a tiny model and tiny samples, in seconds; with a budget, each is compared with the previous
    one."""
    arguments = ["--ladder", ladder, "--steps", "2", "--budget", budget, "--run-root", "ladder"]
    done = swept(trainopt, *arguments, *changes, "debug.find_syncs=true")
    assert done.returncode == 0, done.stderr
    names = [rung.name for rung in ladders.rungs(ladder)]
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["run", *names], done.stdout
    assert "failed" not in done.stdout and "missing" not in done.stdout, done.stdout
    assert f"sweep: 0-baseline: {sizes}\n" in done.stderr, done.stderr  # as overridden
    assert (trainopt.folder / "ladder/report.html").exists()
    waits = [json.loads(file.read_text())["hidden_waits"] for file in trainopt.folder.glob("ladder/*/summary.json")]
    assert waits == [[]] * len(names), waits


@pytest.mark.parametrize(
    "words, says",
    [
        ([], "name one recipe, or a ladder, first"),
        (["a.yaml"], "which values of what: a.yaml key=value,value"),
        (["a.yaml", "b=1", "c"], "not a key=value: c"),
        (["--ladder", "nothing"], "there is no ladder nothing; there are gpt2, resnet18, vit"),
        (["--ladder", "vit", "a.yaml"], "a ladder has its own recipes: a.yaml"),
        (["--ladder", "vit", "--steps", "0"], "--steps must be 1 or more"),
        (["--steps", "3", "a.yaml", "b=1"], "--steps and --budget belong to --ladder"),
    ],
)
def test_a_mistake_in_the_arguments_is_one_sentence(trainopt, words, says):
    done = swept(trainopt, *words)
    assert done.returncode == 2 and done.stderr == f"sweep: {says}; scripts/sweep --help says how\n", done.stderr
    assert not any(trainopt.folder.iterdir())


def test_a_recipe_whose_path_has_an_equals_sign(trainopt):
    (trainopt.folder / "runs/lr=0.1").mkdir(parents=True)
    (trainopt.folder / "runs/lr=0.1/tiny.yaml").write_text(TINY)
    done = swept(trainopt, "--run-root", "out", "runs/lr=0.1/tiny.yaml", "optimizer.lr=0.2")
    assert done.returncode == 0 and (trainopt.folder / "out/000/summary.json").exists(), done.stderr


def test_a_program_that_is_missing_is_one_sentence(trainopt):
    done = swept(trainopt, "--ladder", "vit", TRAINOPT="nothing/here")
    assert (done.returncode, done.stderr) == (127, "sweep: cannot start nothing/here: No such file or directory\n")


def test_a_ladder_is_scaled_down_where_nothing_is_said(trainopt):
    """The sizes of a rung of the shipped ladder on a machine without a GPU; no rung of it is trained here."""
    stand_in = trainopt.folder / "stand_in"
    stand_in.write_text(
        f"#!/bin/sh\ncase $1 in env | plan) exec {PROGRAM} \"$@\" ;; report) exit 0 ;; run) exit 9 ;; esac\n"
    )
    stand_in.chmod(0o755)
    done = swept(trainopt, "--ladder", "resnet18", "--run-root", "out", TRAINOPT=str(stand_in), CUDA_VISIBLE_DEVICES="")
    sizes = dict(line.split(": ")[1:] for line in done.stderr.splitlines() if " steps" in line)
    assert sizes["0-baseline"] == "batch 16, 64-pixel images, 0 loader threads, 20 steps", done.stderr
    assert sizes["6b-batch-1024"].startswith("batch 128, 64-pixel images, "), done.stderr
    assert set(sizes) == {rung.name for rung in ladders.rungs("resnet18")}
    threads = {int(size.split(", ")[2].split()[0]) for size in sizes.values()}
    assert threads <= {0, min(8, len(os.sched_getaffinity(0)))}


def test_an_ignored_hang_up_stays_ignored(trainopt):
    """As under nohup."""
    trainopt.write("tiny.yaml", TINY)
    command = f"trap '' HUP; exec {CHECKOUT}/scripts/sweep --run-root out tiny.yaml train.max_steps=2000,2"
    with subprocess.Popen(
        ["bash", "-c", command],
        cwd=trainopt.folder,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TRAINOPT": PROGRAM},
    ) as running:
        wait_until((trainopt.folder / "out/000/metrics.jsonl").exists, running)
        running.send_signal(signal.SIGHUP)
        err = running.communicate(timeout=100)[1]
    assert running.returncode == 0 and "stopped" not in err, err
    assert (trainopt.folder / "out/sweep.csv").exists()


def test_a_signal_ends_the_run_and_then_the_script(trainopt):
    trainopt.write("long.yaml", TINY)
    with subprocess.Popen(
        [CHECKOUT / "scripts/sweep", "--run-root", "out", "long.yaml", "optimizer.lr=0.1,0.2", "train.max_steps=99999"],
        cwd=trainopt.folder,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TRAINOPT": PROGRAM},
    ) as running:
        wait_until((trainopt.folder / "out/000/metrics.jsonl").exists, running)
        running.terminate()
        err = running.communicate(timeout=60)[1]
    assert running.returncode == 128 + signal.SIGTERM and err.endswith("sweep: stopped\n"), err
    assert json.loads((trainopt.folder / "out/000/summary.json").read_text())["status"] == "stopped"
    assert not (trainopt.folder / "out/001").exists()


def test_a_rung_is_compared_only_if_a_switch_has_an_effect():
    """summaries.changes, by which sweep --ladder decides."""
    switch = {"requested": "true", "effective": True}
    runs = {
        "plain": {},
        "amp": {"amp": switch},
        "idle": {"amp": switch, "tf32": switch | {"effective": False}},
        "larger": {"amp": switch, "batch_size": {"requested": "512", "effective": True}},
        "largest": {"amp": switch, "batch_size": {"requested": "1024", "effective": True}},
    }

    def changes(before, after):
        return summaries.changes({"receipts": runs[before]}, {"receipts": runs[after]})

    assert changes("plain", "amp") and changes("amp", "larger") and changes("larger", "largest")
    assert not changes("amp", "idle") and not changes("amp", "amp")
