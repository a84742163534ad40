"""A resumed run is bit-identical to an uninterrupted one, whatever interrupted it."""

import csv
import json
import os
import random
import shutil
import signal
import time

import pytest

from conftest import TINY, Program, checkpoint, records, saved_steps, summary, wait_for_step, wait_until

# Needs random numbers in every step, and more than one order of the samples.
RECIPE = TINY.replace("{resize: 8}", "{resize: 8}, random_horizontal_flip")
ENDLESS = "train.max_steps=100000000"
EXACT = "step epoch samples loss learning_rate grad_norm loss_scale".split()


def exact(folder):
    """The values that must be identical in two equal runs."""
    rows = [[row[name] for name in EXACT] for row in records(folder)]
    with open(folder / "metrics.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [[row["step"], row["loss"]] for row in records(folder)] == [
        [int(cells["step"]), float(cells["loss"])] for cells in table
    ]
    assert [row[0] for row in rows] == list(range(rows[0][0], rows[-1][0] + 1)), "each step is recorded once"
    return rows


def weights(folder):
    return (folder / "weights.safetensors").read_bytes()


def resumed(trainopt, steps, *overrides, folder="out", recipe="tiny.yaml"):
    """Resumes in the folder and checks that the run finishes; returns its summary."""
    result = trainopt(
        "run", recipe, "--run-dir", folder, "checkpoint.resume=auto", f"train.max_steps={steps}", "--quiet", *overrides
    )
    assert result.code == 0, result
    got = summary(trainopt.folder / folder)
    assert (got["status"], got["steps"]) == ("done", steps), got
    return got


def straight(trainopt, steps, *overrides, recipe="tiny.yaml", folder="straight"):
    result = trainopt("run", recipe, "--run-dir", folder, f"train.max_steps={steps}", "--quiet", *overrides)
    assert result.code == 0, result
    return trainopt.folder / folder


def equal(folder, other):
    assert exact(folder) == exact(other)
    assert weights(folder) == weights(other)


def test_a_stopped_and_resumed_run_is_bit_identical(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    out, stops = trainopt.folder / "out", []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        process = trainopt.start(
            "run", "tiny.yaml", "--run-dir", "out", ENDLESS, "checkpoint={keep_last: 100, resume: auto}"
        )
        wait_for_step(process, stops[-1] + 2 if stops else 2)
        process.send_signal(number)
        process.communicate(timeout=180)
        got = summary(out)
        assert process.returncode == got["exit_code"] == 128 + number
        assert (
            got["status"] == "stopped"
            and f"signal {number:d}" in got["reason"]
            and got["resumed_from"] == (stops[-1] if stops else None)
        )
        stops.append(got["steps"])
        assert saved_steps(out) == stops, "one new checkpoint, at the step of the stop"
    assert resumed(trainopt, stops[-1] + 13)["resumed_from"] == stops[-1]
    equal(out, straight(trainopt, stops[-1] + 13))


def test_killed_at_random_moments(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    out, moments = trainopt.folder / "out", []
    for _ in range(3):
        before = saved_steps(out)
        process = trainopt.start(
            "run", "tiny.yaml", "--run-dir", "out", ENDLESS, "checkpoint.every_n_steps=3", "checkpoint.resume=auto"
        )
        wait_until(lambda: set(saved_steps(out)) - set(before), process)
        moments.append(random.uniform(0, 0.1))
        time.sleep(moments[-1])
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL and not (out / "summary.json").exists()
    assert trainopt("checkpoint", "verify", "out").code == 0, moments
    steps = saved_steps(out)[-1] + 10
    resumed(trainopt, steps, "checkpoint.every_n_steps=3")
    assert not [
        path for path in (out / "checkpoints").iterdir() if path.name.startswith(".")
    ], "drafts are removed"
    equal(out, straight(trainopt, steps))


@pytest.mark.parametrize(
    "model, precision",
    [
        ("{name: resnet18, num_classes: 10, stem: cifar}", "null"),
        ("{name: mlp, num_classes: 10, hidden: [8]}", "{dtype: float16}"),
    ],
)
def test_a_killed_run_with_much_state_is_bit_identical(trainopt, model, precision):
    """Covers batch-norm, Adam's moments, a loss scale, a schedule, gradient accumulation and loader threads."""
    trainopt.write(
        "much.yaml",
        f"""\
name: much
device: cpu
model: {model}
data: {{dataset: fake_cifar10, size: 8, batch_size: 2, num_workers: 2,
       transforms: [{{random_crop: 8}}, {{normalize: {{mean: 0.5, std: 0.5}}}}]}}
train: {{gradient_accumulation_steps: 2, max_grad_norm: 1, label_smoothing: 0.1}}
optimizer: {{name: adamw, lr: 0.001, weight_decay: 0.01}}
scheduler: {{name: cosine, warmup_steps: 2, total_steps: 6}}
optimizations: {{amp: {precision}}}
checkpoint: {{background: false, at_end: false}}
""",
    )
    result = trainopt(
        "run",
        "much.yaml",
        "--run-dir",
        "out",
        "train.max_steps=4",
        "checkpoint.every_n_steps=2",
        "--quiet",
        "--inject",
        "kill@3",
    )
    assert result.code == -signal.SIGKILL and saved_steps(trainopt.folder / "out") == [2], result
    assert resumed(trainopt, 4, recipe="much.yaml")["resumed_from"] == 2
    equal(trainopt.folder / "out", straight(trainopt, 4, recipe="much.yaml"))
    for file in trainopt.folder.rglob("*.safetensors"):
        file.unlink()  # large


@pytest.fixture
def pictures(trainopt):
    """A recipe that trains and evaluates on files."""
    draw = random.Random(1)
    for name, count in [("data_batch_1.bin", 64), ("test_batch.bin", 16)]:
        trainopt.write(f"data/{name}", b"".join(bytes([number % 10]) + draw.randbytes(3072) for number in range(count)))
    trainopt.write("tiny.yaml", RECIPE.replace("dataset: fake_cifar10, size: 64", "dataset: cifar10, path: data"))
    return trainopt


def evaluations(folder):
    """The evaluations without their durations."""
    lines = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.endswith("_s")} for line in lines]


def test_evaluations_are_written_once(pictures):
    keys = ["evaluation.every_n_steps=2", "checkpoint.every_n_steps=4", "checkpoint.background=false"]
    assert (
        pictures("run", "tiny.yaml", "--run-dir", "out", "train.max_steps=9", *keys, "--inject", "kill@7").code
        == -signal.SIGKILL
    )
    out = pictures.folder / "out"
    assert [line["step"] for line in evaluations(out)] == [2, 4, 6]
    assert resumed(pictures, 9, *keys)["resumed_from"] == 4
    assert [line["step"] for line in evaluations(out)] == [2, 4, 6, 8, 9]
    before = evaluations(out), exact(out), weights(out)
    assert resumed(pictures, 9, *keys)["resumed_from"] == 4  # nothing is left to do, and nothing changes
    assert (evaluations(out), exact(out), weights(out)) == before
    other = straight(pictures, 9, *keys)
    equal(out, other)
    assert evaluations(out) == evaluations(other)


def test_a_stop_during_an_evaluation(pictures):
    keys = ["evaluation.every_n_steps=1", "train.max_steps=4"]
    with open(pictures.folder / "data/test_batch.bin", "wb") as file:
        file.truncate(300 * 3073)
    process = pictures.start(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        *keys,
        "evaluation={batch_size: 1, transforms: [{resize: 3000}, {resize: 8}]}",
    )
    wait_for_step(process, 1)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=180)
    out = pictures.folder / "out"
    got = summary(out)
    assert (process.returncode, got["status"], got["steps"], got["evaluation"], saved_steps(out)) == (
        143,
        "stopped",
        1,
        None,
        [1],
    )
    assert evaluations(out) == []
    assert resumed(pictures, 4, *keys)["resumed_from"] == 1
    other = straight(pictures, 4, *keys)
    equal(out, other)
    assert [line["step"] for line in evaluations(out)] == [1, 2, 3, 4] and evaluations(out) == evaluations(other)


def test_a_stop_while_a_checkpoint_is_being_written(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    large = ["model.hidden=[1500, 1500]", "checkpoint.every_n_steps=1"]
    out = trainopt.folder / "out"
    for number, code in [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 128 + signal.SIGTERM)]:
        before = saved_steps(out)
        process = trainopt.start("run", "tiny.yaml", "--run-dir", "out", ENDLESS, *large, "checkpoint.resume=auto")
        wait_until(lambda: set(saved_steps(out)) - set(before), process)
        wait_until(lambda: list(out.glob("checkpoints/.step-*/rank-0000.safetensors")), process)
        process.send_signal(number)
        process.communicate(timeout=180)
        assert process.returncode == code and trainopt("checkpoint", "verify", "out").code == 0
    steps = saved_steps(out)[-1] + 2
    resumed(trainopt, steps, *large)
    assert not list(out.glob("checkpoints/.step-*"))
    equal(out, straight(trainopt, steps, *large))
    for file in trainopt.folder.rglob("*.safetensors"):
        file.unlink()  # large


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """A finished run of 8 steps with four checkpoints."""
    program = Program(tmp_path_factory.mktemp("eight"))
    program.write("tiny.yaml", RECIPE)
    result = program(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        "train.max_steps=8",
        "checkpoint={every_n_steps: 2, keep_last: 10}",
        "--quiet",
    )
    assert result.code == 0 and saved_steps(program.folder / "out") == [2, 4, 6, 8], result
    return program.folder


@pytest.fixture
def again(trainopt, eight):
    """The program in a folder with a copy of that run."""
    shutil.copytree(eight, trainopt.folder, symlinks=True, dirs_exist_ok=True)
    return trainopt


def test_a_fork_does_not_change_the_other_run(again, eight):
    before = {path: path.stat().st_mtime_ns for path in (again.folder / "out").rglob("*")}
    result = again(
        "run",
        "tiny.yaml",
        "--run-dir",
        "fork",
        "checkpoint.resume=out/checkpoints/step-00000004",
        "train.max_steps=8",
        "--quiet",
    )
    assert result.code == 0, result
    fork = again.folder / "fork"
    assert summary(fork)["resumed_from"] == 4 and saved_steps(fork) == [4, 8]
    assert exact(fork) == exact(eight / "out")[4:] and weights(fork) == weights(eight / "out")
    assert {path: path.stat().st_mtime_ns for path in (again.folder / "out").rglob("*")} == before


def rewind(trainopt, *arguments, step=4):
    return trainopt(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        f"checkpoint.resume=out/checkpoints/step-{step:08}",
        "checkpoint.every_n_steps=2",
        "checkpoint.keep_last=10",
        "--quiet",
        *arguments,
    )


def test_an_older_checkpoint_of_the_same_run_rewinds_it(again, eight):
    out = again.folder / "out"
    before = {step: checkpoint(out, step).stat().st_ino for step in saved_steps(out)}
    result = rewind(again, "train.max_steps=8")
    assert result.code == 0 and summary(out)["resumed_from"] == 4, result
    equal(out, eight / "out")
    assert [step for step in saved_steps(out) if checkpoint(out, step).stat().st_ino != before[step]] == [6, 8]
    assert (
        again("checkpoint", "verify", "out").code == 0
        and (out / "checkpoints/latest").readlink().name == "step-00000008"
    )


def test_a_killed_rewound_run_resumes(again, eight):
    out = again.folder / "out"
    assert rewind(again, "train.max_steps=8", "--inject", "kill@6").code == -signal.SIGKILL
    assert len(records(out)) < 6
    resumed(again, 8)
    equal(out, eight / "out")


def test_a_stopped_rewound_run_resumes_where_it_stopped(again):
    """The steps trained after the rewind are not discarded for an older checkpoint with a larger step number."""
    out = again.folder / "out"
    other = "train.label_smoothing=0.5"
    assert rewind(again, "train.max_steps=5", other).code == 0
    assert resumed(again, 10, other)["resumed_from"] == 5
    assert [row["step"] for row in records(out)] == list(range(1, 11))


def damage(folder, kind):
    file = folder / "rank-0000.safetensors"
    if kind == "byte":
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    elif kind == "short":
        os.truncate(file, file.stat().st_size - 1)
    elif kind == "manifest":
        (folder / "manifest.json").unlink()
    elif kind == "empty":
        (folder / "state.json").write_bytes(b"")


def test_a_path_never_falls_back_and_auto_does(again):
    out = again.folder / "out"
    for step, kind in [(8, "byte"), (6, "short"), (4, "manifest")]:
        damage(checkpoint(out, step), kind)
    for step in (8, 6, 4):
        again.refused(
            "run",
            "tiny.yaml",
            "--run-dir",
            "out",
            f"checkpoint.resume=out/checkpoints/step-{step:08}",
            code=4,
            says=[f"step-{step:08}"],
        )
    result = again(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        "checkpoint.resume=auto",
        "train.max_steps=8",
        "--quiet",
        "checkpoint={every_n_steps: 2, keep_last: 10}",
    )
    assert result.code == 0 and summary(out)["resumed_from"] == 2, result
    for step in (8, 6, 4):
        assert f"step-{step:08}" in result.err and "trying the previous one" in result.err, result
    assert again("checkpoint", "verify", "out").code == 0, "each is replaced when the run reaches its step"


def test_pruning_works_with_a_damaged_checkpoint(again):
    out = again.folder / "out"
    damage(checkpoint(out, 8), "byte")
    result = again(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        "checkpoint.resume=auto",
        "train.max_steps=8",
        "--quiet",
        "checkpoint={every_n_steps: 1, keep_last: 2}",
    )
    assert result.code == 0 and summary(out)["resumed_from"] == 6 and saved_steps(out)[-2:] == [7, 8], result
    assert again("checkpoint", "verify", "out").code == 0


def test_auto_does_not_start_over_if_all_checkpoints_are_damaged(again):
    for step, kind in [(8, "empty"), (6, "byte"), (4, "short"), (2, "manifest")]:
        damage(checkpoint(again.folder / "out", step), kind)
    before = records(again.folder / "out")
    again.refused(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        "checkpoint.resume=auto",
        code=4,
        says=["none of the 4 checkpoints is valid"],
    )
    assert records(again.folder / "out") == before


def test_the_newest_checkpoint_has_the_largest_step(again):
    out = again.folder / "out"
    os.utime(checkpoint(out, 4), (4e9, 4e9))
    os.utime(checkpoint(out, 8), (1, 1))
    assert resumed(again, 9)["resumed_from"] == 8


def test_auto_without_a_checkpoint_starts_from_scratch(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    assert trainopt("run", "tiny.yaml", "--run-dir", "out", "--quiet", "--inject", "kill@4").code == -signal.SIGKILL
    assert resumed(trainopt, 6)["resumed_from"] is None
    assert len(exact(trainopt.folder / "out")) == 6
    shutil.rmtree(trainopt.folder / "out")
    assert resumed(trainopt, 6)["resumed_from"] is None


def test_auto_needs_a_run_directory(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    trainopt.refused("run", "tiny.yaml", "checkpoint.resume=auto", says=["checkpoint.resume", "run_dir"])
    trainopt.write("photos/cat.txt", "mine")
    trainopt.refused(
        "run", "tiny.yaml", "--run-dir", "photos", "checkpoint.resume=auto", says=["photos", "recipe.yaml"]
    )
    assert [path.name for path in (trainopt.folder / "photos").iterdir()] == ["cat.txt"]


def test_what_may_change(again, eight):
    assert (
        resumed(
            again, 12, "data.num_workers=2", "logging.progress=false", "checkpoint={keep_last: 3, background: false}"
        )["resumed_from"]
        == 8
    )
    equal(again.folder / "out", straight(again, 12))
    assert saved_steps(again.folder / "out") == [6, 8, 12]
    result = again(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        "checkpoint.resume=auto",
        "train.max_steps=16",
        "data.batch_size=4",
        "train.gradient_accumulation_steps=2",
        "logging.every_n_steps=4",
    )
    assert result.code == 0 and "the same global batch" in result.err, result
    assert [row["step"] for row in records(again.folder / "out")][12:] in ([13, 16], [16]) and summary(
        again.folder / "out"
    )["samples"] == 128


@pytest.mark.parametrize(
    "key, overrides",
    [
        ("model.hidden", ["model.hidden=[9]"]),
        ("seed", ["seed=1"]),
        ("data.size", ["data.size=72"]),
        ("data.transforms", ["data.transforms=[{resize: 8}]"]),
        ("optimizer.momentum", ["optimizer.momentum=0.5"]),
        ("optimizer.name", ["optimizer={name: adam}"]),
        ("global batch", ["data.batch_size=4"]),
    ],
)
def test_what_may_not_change(again, key, overrides):
    before = {
        path: path.read_bytes() for path in (again.folder / "out").rglob("*") if path.is_file() and path.name != ".lock"
    }
    again.refused(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        "checkpoint.resume=auto",
        "train.max_steps=9",
        *overrides,
        code=4,
        says=[key],
    )
    after = {
        path: path.read_bytes() for path in (again.folder / "out").rglob("*") if path.is_file() and path.name != ".lock"
    }
    assert after == before


def test_the_rate_may_change_with_a_note(again):
    result = again(
        "run", "tiny.yaml", "--run-dir", "out", "checkpoint.resume=auto", "train.max_steps=9", "optimizer.lr=0.02"
    )
    assert result.code == 0 and "numbers may change from now on: optimizer.lr: 0.02" in result.out + result.err, result
    assert records(again.folder / "out")[-1]["learning_rate"] == 0.02


# D20
def test_data_overwritten_in_place_is_refused_and_a_copy_is_not(trainopt):
    model = "{name: gpt2, layers: 1, heads: 1, width: 4, context: 8, vocabulary: 256}"
    data = "{dataset: tokens, path: text.bin, batch_size: 2}"
    trainopt.write("tiny.yaml", f"name: text\nmodel: {model}\ndata: {data}\noptimizer: {{name: sgd, lr: 0.1}}\n")
    file = trainopt.folder / "text.bin"
    whole = bytes([1, 0]) * 150_000
    file.write_bytes(whole)
    straight(trainopt, 2, folder="out")
    file.write_bytes(whole[:150_000] + bytes([2, 0]) + whole[150_002:])
    command = ["run", "tiny.yaml", "--run-dir", "out", "checkpoint.resume=auto", "train.max_steps=4"]
    result = trainopt(*command)
    assert result.code == 3 and "the data is not what the checkpoint was trained on: bytes in its files" in result.err
    assert summary(trainopt.folder / "out")["steps"] == 2
    file.write_bytes(whole)
    os.utime(file, (1e9, 1e9))
    result = trainopt(*command)
    assert result.code == 0 and "the files of the data set were written anew" in result.out + result.err, result


def test_other_data_is_refused(pictures):
    file = pictures.folder / "data/data_batch_1.bin"
    straight(pictures, 2, folder="out")
    whole = file.read_bytes()
    for field, data in [("content", whole[:-1] + bytes([whole[-1] ^ 1])), ("samples", whole + whole[:3073])]:
        file.write_bytes(data)
        result = pictures(
            "run", "tiny.yaml", "--run-dir", "out", "checkpoint.resume=auto", "train.max_steps=4", "--quiet"
        )
        assert (
            result.code == 3 and field in result.err and summary(pictures.folder / "out")["exit_code"] == 0
        ), result  # unchanged
    file.write_bytes(whole)
    file.parent.rename(pictures.folder / "moved")
    assert resumed(pictures, 4, "data.path=moved")["resumed_from"] == 2
