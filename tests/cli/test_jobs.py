"""Jobs that went wrong silently: a batch of one sample with batch-norm, ranks that never come, float16 that always
overflows."""

import re
import signal

import pytest

from conftest import PROGRAM, TINY, records, summary
from ranks import Ranks, launch

# 33 samples in batches of 8; in the last layers of a resnet, an image of 8 pixels is one value of each channel.
RESNET = """\
model: {name: resnet18, num_classes: 10}
data: {dataset: fake_cifar10, size: 33, batch_size: 8, drop_last: false, transforms: [{resize: 8}]}
train: {epochs: 2}
checkpoint: {at_end: false}
"""


def test_a_last_batch_of_one_sample_stops_the_plan(trainopt):
    trainopt.write("r.yaml", RESNET)
    for command in ("plan", "run"):
        result = trainopt(command, "r.yaml", "--run-dir", "out") if command == "run" else trainopt(command, "r.yaml")
        assert result.code == 2 and "train.short_batch: batch-norm needs more than one value" in result.err, result
    assert not (trainopt.folder / "out").exists()


@pytest.mark.parametrize("way, of_steps", [("drop", [8] * 4), ("merge", [8, 8, 8, 9])])
def test_a_short_last_batch_is_dropped_or_merged_by_every_loader(trainopt, way, of_steps):
    trainopt.write("r.yaml", RESNET)
    losses = []
    for number, words in enumerate([[], ["data.num_workers=2"], ["data.cache=device"]]):
        out = f"out{number}"
        result = trainopt("run", "r.yaml", f"train.short_batch={way}", "num_threads=1", *words, "--run-dir", out)
        assert result.code == 0 and "note: train.short_batch" in result.out, result
        steps = records(trainopt.folder / out)
        ends = [0] + [step["samples"] for step in steps]
        assert [after - before for before, after in zip(ends, ends[1:])] == of_steps * 2, steps
        losses.append([step["loss"] for step in steps])
        assert all(loss is not None for loss in losses[-1])
        assert summary(trainopt.folder / out)["receipts"]["batch_size"]["effective"] is True
    assert losses[0] == losses[1] == losses[2]


def test_a_comparison_leaves_the_batch_out_that_a_run_would_not_reach(trainopt):
    trainopt.write("r.yaml", RESNET.replace("epochs: 2", "max_steps: 3"))
    compared = trainopt("compare", "r.yaml", "--with", "optimizations.channels_last=true", "--repeats", "4", "--json")
    assert compared.code == 0 and "null" not in str(compared.json().get("numbers", "")), compared


def test_a_resume_with_other_steps_in_an_epoch_is_refused(trainopt):
    """21 samples: with 2 × 4 at once the last 5 are left out, with 8 at once none is too short."""
    trainopt.write("r.yaml", RESNET.replace("size: 33, batch_size: 8", "size: 21, batch_size: 4"))
    words = ["train.short_batch=drop", "train.epochs=3", "checkpoint.at_end=true"]
    first = launch(trainopt, 2, *words, "train.max_steps=2", "--run-dir", "out", recipe="r.yaml")
    assert first.code == 0, first
    again = trainopt("run", "r.yaml", *words, "data.batch_size=8", "--run-dir", "out", "checkpoint.resume=auto")
    assert again.code == 4 and "an epoch has other steps than in the checkpoint" in again.err, again


def srun_variables(trainopt, ranks):
    names = {"SLURM_JOB_ID": 78, "SLURM_STEP_ID": 0, "SLURM_PROCID": 0, "SLURM_LOCALID": 0, "SLURM_NODEID": 0}
    names |= {"SLURM_STEP_NUM_TASKS": ranks, "SLURM_STEP_TASKS_PER_NODE": ranks, "SLURM_STEP_NODELIST": "n01"}
    return {**trainopt.environment(), **{name: str(value) for name, value in names.items()}}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_rank_says_for_whom_it_waits_and_ends_when_asked(trainopt, number):
    trainopt.write("tiny.yaml", TINY)
    job = Ranks(trainopt)
    job.start([PROGRAM, "run", "tiny.yaml", "parallel.timeout=10m"], env=srun_variables(trainopt, 3))
    said = trainopt.folder / "err-0.txt"
    job.until(lambda: said.read_text().endswith("\n"))
    line = said.read_text()
    assert re.search(r"waiting for ranks 1, 2 of 3 since \d\d:\d\d:\d\d, for at most 600 s \(parallel.timeout\)", line)
    assert "SLURM_STEP_NUM_TASKS=3" in line
    job.processes[0].send_signal(number)
    (result,) = job.ended()
    assert result.code == 128 + number and "stopped while waiting for ranks 1, 2 of 3" in result.err, result


def test_the_message_about_missing_ranks_names_the_variables(trainopt):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt("run", "tiny.yaml", "parallel.timeout=1s", env=srun_variables(trainopt, 2))
    assert result.code == 7 and "rank 1 of 2 did not join within 1 s" in result.err, result
    assert "SLURM_STEP_NUM_TASKS=2" in result.err


FLOAT16 = "optimizations.amp={dtype: float16, init_scale: %s}"


def test_a_run_that_never_updates_fails(trainopt):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt("run", "tiny.yaml", FLOAT16 % "1.0e+30", "train.max_steps=12", "--run-dir", "out")
    assert result.code == 6 and "12 of 12 updates" in result.err and "init_scale" in result.err, result
    ended = summary(trainopt.folder / "out")
    assert ended["status"] == "failed" and ended["exit_code"] == 6 and ended["skipped_updates"] == 12, ended


def test_skipped_updates_are_counted(trainopt):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt("run", "tiny.yaml", FLOAT16 % "1.0e+12", "train.max_steps=60", "--run-dir", "out")
    ended = summary(trainopt.folder / "out")
    skipped = ended["skipped_updates"]
    assert result.code == 0 and 0 < skipped < 40, ended
    assert f"done after 60 steps, {skipped} updates skipped because float16 overflowed" in result.out, result
    assert f"{skipped} updates skipped because gradients overflowed" in ended["receipts"]["amp"]["observed"], ended
    whole = trainopt("run", "tiny.yaml", "--run-dir", "whole")
    assert "skipped" not in whole.out and summary(trainopt.folder / "whole")["skipped_updates"] is None, whole


def test_a_missing_average_is_said(trainopt):
    trainopt.write("tiny.yaml", TINY)
    average = ["average.name=swa", "average.start_step=900000", "train.max_steps=1000000", "train.max_time=10ms"]
    result = trainopt("run", "tiny.yaml", *average, "--run-dir", "out")
    assert result.code == 0 and "weights-average.safetensors is not written" in result.err, result
    assert not (trainopt.folder / "out/weights-average.safetensors").exists()
