"""What a resume restores besides the weights, and what a failed resume must not change."""

import json
import shutil
import signal
import time

from conftest import CHECKOUT, TINY, records, summary

CHECKPOINTS = "checkpoint={every_n_steps: 2, keep_last: 9}"


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("run.log", ".lock")
    }


def test_a_resume_that_fails_changes_nothing(trainopt):
    trainopt.write("tiny.yaml", TINY)
    for name in ("one", "two"):
        trainopt.write(
            f"{name}/data_batch_1.bin",
            b"".join(bytes([i % 10]) + bytes([i + len(name)]) * 3072 for i in range(64 if name == "one" else 72)),
        )
    data = ("data.dataset=cifar10", "data.size=null", "data.path=one")
    assert trainopt("run", "tiny.yaml", *data, "--run-dir", "out", CHECKPOINTS, "--quiet").code == 0
    before = tree(trainopt.folder / "out")
    result = trainopt(
        "run",
        "tiny.yaml",
        *data[:2],
        "data.path=two",
        "--run-dir",
        "out",
        "checkpoint.resume=out/checkpoints/step-00000002",
    )
    assert result.code == 3 and "64" in result.err and "72" in result.err, result
    assert tree(trainopt.folder / "out") == before


def test_auto_falls_back_from_a_damaged_recipe(trainopt):
    trainopt.write("tiny.yaml", TINY)
    assert trainopt("run", "tiny.yaml", "--run-dir", "out", CHECKPOINTS, "--quiet").code == 0
    recipe = trainopt.folder / "out/checkpoints/step-00000006/recipe.yaml"
    recipe.write_bytes(recipe.read_bytes().replace(b"seed: 0", b"seed: 1"))
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", "checkpoint.resume=auto", CHECKPOINTS, "--quiet")
    assert (
        result.code == 0 and "recipe.yaml" in result.err and summary(trainopt.folder / "out")["resumed_from"] == 4
    ), result
    assert "recipe.yaml" in (trainopt.folder / "out/run.log").read_text()


def test_a_killed_fork_resumes_from_its_fork_point(trainopt):
    trainopt.write("tiny.yaml", TINY)
    assert trainopt("run", "tiny.yaml", "--run-dir", "out", CHECKPOINTS, "--quiet").code == 0
    fork = ("run", "tiny.yaml", "--run-dir", "fork", "train.max_steps=12", "--quiet")
    killed = trainopt(*fork, "checkpoint.resume=out/checkpoints/step-00000004", "--inject", "kill@7")
    assert killed.code == -signal.SIGKILL
    assert trainopt(*fork, "checkpoint.resume=auto").code == 0
    assert summary(trainopt.folder / "fork")["resumed_from"] == 4
    assert [row["step"] for row in records(trainopt.folder / "fork")] == list(range(5, 13))


def test_resuming_a_finished_run_changes_nothing(trainopt):
    trainopt.write("tiny.yaml", TINY)
    assert trainopt("run", "tiny.yaml", "--run-dir", "out", "--quiet").code == 0
    before = tree(trainopt.folder / "out")
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", "checkpoint.resume=auto")
    assert result.code == 0 and "nothing is left to do" in result.out, result
    assert tree(trainopt.folder / "out") == before


def test_records_of_every_third_step(trainopt):
    trainopt.write("tiny.yaml", TINY)
    keys = ("logging.every_n_steps=3", "train.max_steps=12", "--quiet")
    for out in ("whole", "cut"):
        first = ("--inject", "kill@12") if out == "cut" else ()
        trainopt("run", "tiny.yaml", "--run-dir", out, *keys, "checkpoint.every_n_steps=7", *first)
    trainopt("run", "tiny.yaml", "--run-dir", "cut", *keys, "checkpoint.resume=auto")
    steps = [[row["step"] for row in records(trainopt.folder / out)] for out in ("whole", "cut")]
    assert steps[0] == steps[1] == [1, 3, 6, 9, 12]


def test_the_count_of_bad_samples_survives_a_resume(trainopt):
    """Four bad files with three allowed: an interrupted run must not be allowed three more."""
    source = sorted((CHECKOUT / "tests/unit/image/files").glob("4*.jpg"))[0]
    for i in range(16):
        target = trainopt.folder / f"images/{'ab'[i % 2]}/{i:02}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"not a picture" if i in (2, 5, 8, 11) else source.read_bytes())
    trainopt.write("tiny.yaml", TINY)
    keys = (
        "data={dataset: image_folder, path: images, size: null, batch_size: 2, shuffle: false, on_bad_sample: "
        "substitute, max_bad_samples: 3}",
        "data.transforms=[{resize: [8, 8]}]",
        "train.max_steps=8",
        "--quiet",
    )
    whole = trainopt("run", "tiny.yaml", *keys, "--run-dir", "whole")
    assert whole.code == 3, whole
    killed = trainopt("run", "tiny.yaml", *keys, "--run-dir", "cut", "checkpoint.every_n_steps=1", "--inject", "kill@4")
    assert killed.code == -signal.SIGKILL
    cut = trainopt("run", "tiny.yaml", *keys, "--run-dir", "cut", "checkpoint.resume=auto")
    assert cut.code == 3, cut
    lines = [
        [json.loads(line)["sample"] for line in (trainopt.folder / out / "bad_samples.jsonl").read_text().splitlines()]
        for out in ("whole", "cut")
    ]
    assert lines[0] == lines[1] and len(lines[0]) == 4


def test_initial_weights_are_not_needed_to_resume(trainopt):
    trainopt.write("tiny.yaml", TINY)
    assert trainopt("run", "tiny.yaml", "--run-dir", "first", "--quiet").code == 0
    shutil.move(trainopt.folder / "first/weights.safetensors", trainopt.folder / "w.safetensors")
    keys = ("model.weights=w.safetensors", "--run-dir", "out", "--quiet")
    assert trainopt("run", "tiny.yaml", *keys).code == 0
    (trainopt.folder / "w.safetensors").unlink()
    assert trainopt("run", "tiny.yaml", *keys, "checkpoint.resume=auto", "train.max_steps=8").code == 0


def test_a_run_with_a_non_finite_evaluation_can_be_resumed(trainopt):
    trainopt.write("tiny.yaml", TINY)
    batch = b"".join(bytes([i % 10]) + bytes([(i * 5) % 256]) * 3072 for i in range(64))
    trainopt.write("c/data_batch_1.bin", batch)
    trainopt.write("c/test_batch.bin", batch)
    keys = (
        "data.dataset=cifar10",
        "data.size=null",
        "data.path=c",
        "evaluation.every_n_steps=1",
        "--run-dir",
        "out",
        "--quiet",
    )
    trainopt("run", "tiny.yaml", *keys, "checkpoint.every_n_steps=1", "optimizer.lr=1e19", "train.max_steps=2")
    result = trainopt("run", "tiny.yaml", *keys, "checkpoint.resume=auto", "optimizer.lr=1e19", "train.max_steps=3")
    assert result.code == 6 and "json.exception" not in result.err, result


def test_usr1_then_term_saves(trainopt):
    """As a scheduler sends them: first a warning, then the order to stop."""
    trainopt.write("tiny.yaml", TINY)
    process = trainopt.start(
        "run", "tiny.yaml", "--run-dir", "out", "train.max_steps=100000000", "--quiet", "checkpoint.background=false"
    )
    file = trainopt.folder / "out/metrics.jsonl"
    deadline = time.monotonic() + 180
    while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGUSR1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=180)
    assert process.returncode in (128 + signal.SIGUSR1, 128 + signal.SIGTERM)
    end = summary(trainopt.folder / "out")
    assert end["status"] == "stopped" and "saved as step-" in end["reason"], end
    assert trainopt("checkpoint", "verify", "out").code == 0
