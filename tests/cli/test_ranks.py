"""One job on several ranks: whatever launcher starts it, it trains, saves, resumes and stops as a single rank does."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from conftest import (
    CHECKOUT,
    PROGRAM,
    TINY,
    Program,
    checkpoint,
    has_taken_signals,
    in_full,
    losses,
    records,
    saved_steps,
    summary,
)
from ranks import (
    ENDLESS,
    FROM_FILES,
    RECIPE,
    SAVES,
    SOON,
    Ranks,
    close,
    free_port,
    check_resume,
    launch,
    launched,
    kill_leftover_ranks,  # noqa: F401
    one_message,
    process_of,
    started,
    weights,
    write_cifar10,
    torch_program,
)

STEPS = "train.max_steps=12"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "2"]
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run directory of a single rank that trains on 16 samples per step and evaluates on 19."""
    program = Program(tmp_path_factory.mktemp("alone"))
    write_cifar10(program, data_batch_1=64, test_batch=19)
    program.write("tiny.yaml", FROM_FILES)
    result = program(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        "data.batch_size=16",
        STEPS,
        "evaluation={every_n_steps: 6, batch_size: 8}",
        "--quiet",
    )
    assert result.code == 0, result
    return program.folder / "out"


@pytest.fixture
def job(trainopt, alone):
    """The program in a folder with the data and the recipe of the `alone` run."""
    shutil.copytree(alone.parent / "data", trainopt.folder / "data")
    shutil.copy(alone.parent / "tiny.yaml", trainopt.folder)
    return trainopt


def complete(folder, ranks, steps=12):
    """Checks what only the records of several ranks contain."""
    rows = records(folder)
    assert [row["step"] for row in rows] == list(range(1, steps + 1))
    for row in rows:
        assert set(row["ranks"]) == {"step_ms", "data_wait_ms", "comm_exposed_ms", "busy_ms"}, row
        for spread in row["ranks"].values():
            assert 0 <= spread["min"] <= spread["mean"] <= spread["max"], row
            assert {spread["min_rank"], spread["max_rank"]} <= set(range(ranks)), row
        for name in ("comm_exposed_ms", "all_reduce_mib", "reduce_scatter_mib", "all_gather_mib", "broadcast_mib"):
            assert row[name] is not None and row[name] >= 0, (name, row)
        assert row["all_reduce_mib"] > 0, row
    every_rank(folder, ranks)
    return True


def every_rank(folder, ranks):
    """Checks that ranks.jsonl has a line for each record, and that the record's `ranks` summarizes it."""
    lines = [json.loads(line) for line in (folder / "ranks.jsonl").read_text().splitlines()]
    rows = records(folder)
    assert [line["step"] for line in lines] == [row["step"] for row in rows]
    for line, row in zip(lines, rows, strict=True):
        assert set(line) == {"step", *row["ranks"]}, line
        for name, spread in row["ranks"].items():
            times = line[name]
            assert len(times) == ranks and (min(times), max(times)) == (spread["min"], spread["max"]), (line, row)
            assert times[spread["max_rank"]] == max(times), (line, row)


def only_run(trainopt):
    """The only run directory of a job without --run-dir."""
    (folder,) = (trainopt.folder / "runs").iterdir()
    return folder


@pytest.mark.parametrize("ranks, batch_size, accumulation", [(2, 8, 1), (4, 4, 1), (2, 2, 4)])
def test_any_number_of_ranks_trains_as_one(job, alone, ranks, batch_size, accumulation):
    result = launch(
        job, ranks, f"data.batch_size={batch_size}", f"train.gradient_accumulation_steps={accumulation}", STEPS
    )
    assert result.code == 0 and result.err == "", result
    out = only_run(job)
    assert close(out, alone) and complete(out, ranks)
    assert (
        all(line.startswith("[0] ") for line in result.out.splitlines())
        and len(re.findall(r"step +1/12 ", result.out)) == 1
    ), result
    assert summary(out)["samples"] == 12 * 16


@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_other_launchers(job, alone, launcher):
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("no mpirun")
    command = [*MPIRUN, "-n", "2"] if launcher == "mpirun" else [*TORCHRUN, "--master-port", free_port()]
    (result,) = Ranks(job).start([*command, PROGRAM, "run", "tiny.yaml", STEPS]).ended()
    assert result.code == 0 and "trainopt: " not in result.err, result
    assert len(re.findall(r"step +1/12 ", result.out)) == 1, result
    assert close(only_run(job), alone) and complete(only_run(job), 2)


@pytest.mark.parametrize("script", ["local.sh", "mpirun.sh", "torchrun.sh"])
def test_launch_scripts(job, alone, script):
    if script == "mpirun.sh" and not shutil.which("mpirun"):
        pytest.skip("no mpirun")
    torchrun = torch_program("torchrun")
    environment = {**job.environment(), "RANKS": "2", "TRAINOPT": os.path.abspath(PROGRAM), "TORCHRUN": torchrun}
    (result,) = Ranks(job).start([CHECKOUT / "scripts/launch" / script, "tiny.yaml", STEPS], env=environment).ended()
    assert result.code == 0 and close(only_run(job), alone), result


# Evaluation


def evaluations(folder):
    return [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("ranks, batch_size", [(2, 8), (4, 5)])
def test_an_evaluation_counts_every_sample_once(job, alone, ranks, batch_size):
    """With 19 samples, the last batches are incomplete and one rank has none."""
    result = launch(
        job,
        ranks,
        f"data.batch_size={16 // ranks}",
        STEPS,
        "--run-dir",
        "out",
        f"evaluation={{every_n_steps: 6, batch_size: {batch_size}}}",
        "--quiet",
    )
    assert result.code == 0, result
    ours, theirs = evaluations(job.folder / "out"), evaluations(alone)
    assert [line["step"] for line in ours] == [6, 12]
    for a, b in zip(ours, theirs, strict=True):
        assert set(a) == set(b) and abs(a["loss"] - b["loss"]) <= 1e-5 * b["loss"], (a, b)
        assert all(a[name] == b[name] for name in b if name != "loss" and not name.endswith("_s")), (a, b)


# Communication


def test_gradients_are_exchanged_as_bfloat16(job, alone):
    sent = {}
    for name, override in [("whole", "null"), ("half", "bfloat16")]:
        result = launch(job, 2, "--run-dir", name, STEPS, f"parallel.gradient_dtype={override}", "--quiet")
        assert result.code == 0, result
        sent[name] = {row["all_reduce_mib"] for row in records(job.folder / name)}
    (whole,), (half,) = sent.values()
    assert half == pytest.approx(whole / 2)
    rounded = losses(job.folder / "half")
    assert rounded != losses(job.folder / "whole") and all(
        abs(a - b) < 0.01 * b for a, b in zip(rounded, losses(alone), strict=True)
    )


def test_overlap_does_not_change_results(job):
    small = ["model.hidden=[32, 32]", "parallel.bucket_cap_mb=0.002"]  # several exchanges per step
    for overlap in ("true", "false"):
        result = launch(job, 2, "--run-dir", overlap, STEPS, f"parallel.overlap_comm={overlap}", "--quiet", *small)
        assert result.code == 0, result
    assert losses(job.folder / "true") == losses(job.folder / "false") and weights(job.folder / "true") == weights(
        job.folder / "false"
    )


# Checkpoints


@pytest.fixture(scope="module")
def saved(tmp_path_factory, alone):
    """The folder of a two-rank job with three checkpoints."""
    program = Program(tmp_path_factory.mktemp("saved"))
    shutil.copytree(alone.parent / "data", program.folder / "data")
    shutil.copy(alone.parent / "tiny.yaml", program.folder)
    result = launch(program, 2, "--run-dir", "out", STEPS, "checkpoint={every_n_steps: 4, keep_last: 10}", "--quiet")
    assert result.code == 0, result
    return program.folder


@pytest.fixture
def again(trainopt, saved):
    shutil.copytree(saved, trainopt.folder, symlinks=True, dirs_exist_ok=True)
    return trainopt


def test_checkpoints_have_a_part_of_each_rank(again):
    verified = again("checkpoint", "verify", "out")
    assert verified.code == 0, verified
    assert saved_steps(again.folder / "out") == [4, 8, 12]
    for step in (4, 8, 12):
        folder = checkpoint(again.folder / "out", step)
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["world_size"] == 2 and {"rank-0000.safetensors", "rank-0001.safetensors"} <= set(
            manifest["files"]
        )
        assert {path.name for path in folder.iterdir()} == {"manifest.json", *manifest["files"]}


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_resume_with_any_number_of_ranks(again, ranks):
    result = launch(
        again,
        ranks,
        "--run-dir",
        "fork",
        "checkpoint.resume=out/checkpoints/step-00000004",
        STEPS,
        f"data.batch_size={16 // ranks}",
        "--quiet",
    )
    assert result.code == 0, result
    out, fork = again.folder / "out", again.folder / "fork"
    assert summary(fork)["resumed_from"] == 4 and [row["step"] for row in records(fork)] == list(range(5, 13))
    assert (fork / "ranks.jsonl").exists() == (ranks > 1)
    assert close(fork, out, steps=8)
    if ranks == 2:
        assert losses(fork) == losses(out)[4:] and weights(fork) == weights(out)


def test_the_times_of_each_rank_continue_after_a_resume(again):
    """The lines after the checkpoint are removed; a single rank adds none. Steps that are not logged have no line."""
    out = again.folder / "out"
    steps = lambda: [json.loads(line)["step"] for line in (out / "ranks.jsonl").read_text().splitlines()]  # noqa: E731
    assert steps() == list(range(1, 13))
    for step in (8, 12):
        shutil.rmtree(checkpoint(out, step))
    (out / "checkpoints/latest").unlink()
    keys = ["--run-dir", "out", "checkpoint={resume: auto, at_end: false}", "--quiet"]
    result = launch(again, 2, *keys, "train.max_steps=9", "logging={every_n_steps: 2, sinks: [jsonl]}")
    assert result.code == 0 and steps() == [1, 2, 3, 4, 6, 8, 9], result
    every_rank(out, 2)
    result = again("run", "tiny.yaml", *keys, "train.max_steps=6", "data.batch_size=16")
    assert result.code == 0 and steps() == [1, 2, 3, 4] and records(out)[-1]["step"] == 6, result


@pytest.mark.parametrize(
    "model", ["name: mlp, num_classes: 10, hidden: [8], dropout: 0.5", "name: resnet18, num_classes: 10, stem: cifar"]
)
def test_the_state_of_each_rank_resumes_bit_exactly(job, model):
    """Dropout's random state, rank 0's batch-norm statistics, Adam's moments, gradient accumulation."""
    job.write(
        "much.yaml",
        FROM_FILES.replace("name: mlp, num_classes: 10, hidden: [8]", model).replace(
            "sgd, lr: 0.01, momentum: 0.9", "adamw, lr: 0.001"
        ),
    )
    much = [
        "data.batch_size=2",
        "train={gradient_accumulation_steps: 2, max_steps: 3, max_grad_norm: 1}",
        "checkpoint={every_n_steps: 2, at_end: false}",
        "--quiet",
    ]
    for folder, resume in [("out", "none"), ("fork", "out/checkpoints/step-00000002")]:
        result = launch(job, 2, "--run-dir", folder, *much, f"checkpoint.resume={resume}", recipe="much.yaml")
        assert result.code == 0, result
    assert losses(job.folder / "fork") == losses(job.folder / "out")[2:] and weights(job.folder / "fork") == weights(
        job.folder / "out"
    )
    for file in job.folder.rglob("*.safetensors"):
        file.unlink()  # large


@pytest.mark.parametrize("strategy", ["none", *in_full("zero1", "zero2"), "zero3"])
def test_a_job_stopped_after_any_step_ends_with_the_bits_of_one_that_was_not(job, strategy):
    """Covers accumulation, clipping, a schedule and the fused optimizer's state, divided among the ranks."""
    keys = [
        f"parallel.sharding_strategy={strategy}",
        "data.batch_size=2",
        "train={gradient_accumulation_steps: 2, max_steps: 6, max_grad_norm: 1}",
        "optimizer={name: adamw, lr: 0.01}",
        "scheduler={name: cosine}",
        "optimizations.fused_optimizer=true",
        "--quiet",
    ]
    assert launch(job, 2, "--run-dir", "out", *keys, "checkpoint={every_n_steps: 1, keep_last: 10}").code == 0
    for step in range(1, 6):
        result = launch(job, 2, "--run-dir", f"from-{step}", *keys, f"checkpoint.resume=out/checkpoints/step-{step:08}")
        assert result.code == 0, result
        assert losses(job.folder / f"from-{step}") == losses(job.folder / "out")[step:] and weights(
            job.folder / f"from-{step}"
        ) == weights(job.folder / "out"), step


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
def test_a_skipped_step_leaves_nothing_in_the_padding(job, strategy):
    """Three ranks do not divide the parameters evenly. Clipping by a norm of NaN must not reach later steps."""
    keys = [
        f"parallel.sharding_strategy={strategy}",
        "data.batch_size=2",
        "train={max_steps: 6, max_grad_norm: 1, on_nonfinite: skip}",
        "--quiet",
    ]
    result = launch(job, 3, "--inject", "nan@3", "--run-dir", "out", *keys)
    assert result.code == 0 and summary(job.folder / "out")["skipped_steps"] == 1, result
    skipped = json.loads((job.folder / "out/nonfinite.jsonl").read_text())["sample_ids"]
    assert len(skipped) == len(set(skipped)) == 6, "the samples of all ranks"
    for row in records(job.folder / "out"):
        assert row["ranks"]["busy_ms"]["min"] >= 0, "no step has the communication of another"


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
def test_resume_with_another_strategy_and_number_of_ranks(again, strategy):
    """A checkpoint does not depend on how its contents were divided among ranks."""
    out, sharded = again.folder / "out", again.folder / "sharded"
    result = launch(
        again,
        2,
        "--run-dir",
        "sharded",
        "checkpoint={resume: out/checkpoints/step-00000004, every_n_steps: 4, keep_last: 10}",
        STEPS,
        f"parallel.sharding_strategy={strategy}",
        "--quiet",
    )
    assert result.code == 0 and close(sharded, out, steps=8), result
    for ranks, keys in [(4, [f"parallel.sharding_strategy={strategy}"]), (1, [])]:
        result = launch(
            again,
            ranks,
            "--run-dir",
            f"on-{ranks}",
            "checkpoint.resume=sharded/checkpoints/step-00000008",
            STEPS,
            f"data.batch_size={16 // ranks}",
            *keys,
            "--quiet",
        )
        assert result.code == 0 and close(again.folder / f"on-{ranks}", out, steps=4), result


@pytest.mark.parametrize(
    "model, samples, key",
    [
        ("{name: resnet18, num_classes: 10, stem: cifar}", 14, "parallel.sync_batch_norm=true"),
        ("{name: mlp, num_classes: 10, hidden: [8]}", 13, "parallel.sharding_strategy=zero3"),
    ],
)
def test_ranks_make_equally_many_pieces_of_a_short_batch(trainopt, model, samples, key):
    """In the last step of each epoch rank 0 has 4 samples, which it could halve, and rank 1 too few."""
    recipe = TINY.replace("{name: mlp, num_classes: 10, hidden: [8]}", model)
    trainopt.write("tiny.yaml", recipe.replace("size: 64", f"size: {samples}, drop_last: false"))
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", "train.max_steps=1", "--inject", "oom@1", "--quiet")
    assert result.code == 0 and "4 samples at a time" in result.err, result
    keys = ["checkpoint.resume=auto", "train.max_steps=4", "data.batch_size=4", SOON, "--quiet"]
    result = launch(trainopt, 2, "--run-dir", "out", *keys, key)
    assert result.code == 0 and summary(trainopt.folder / "out")["steps"] == 4, result
    for file in trainopt.folder.rglob("*.safetensors"):
        file.unlink()  # large


# Signals


def stopped_once(trainopt, code, before):
    """Exactly one new checkpoint, at the step at which all ranks stopped."""
    out = trainopt.folder / "out"
    got = summary(out)
    assert (got["status"], got["exit_code"]) == ("stopped", code) and got["steps"] == records(out)[-1]["step"], got
    new = [step for step in saved_steps(out) if step not in before]
    assert new == [got["steps"]], (new, before, got)
    return True


# P1
@pytest.mark.parametrize("to, number", [("0", signal.SIGTERM), ("1", signal.SIGUSR1), ("launcher", signal.SIGINT)])
def test_a_signal_stops_all_ranks_at_one_step(job, to, number):
    running = launched(
        job,
        2,
        "--run-dir",
        "out",
        ENDLESS,
        "checkpoint={every_n_steps: 20, keep_last: 1000000}",
        "logging.sinks=[jsonl]",
    )
    started(running, job.folder / "out", 20)
    os.kill(running.processes[0].pid if to == "launcher" else process_of(running, int(to)), number)
    (result,) = running.ended()
    assert result.code == 128 + number and "[" not in result.err, result
    steps = summary(job.folder / "out")["steps"]
    assert stopped_once(job, 128 + number, range(20, steps, 20))


def test_a_stopped_and_resumed_job_is_bit_identical(job):
    running = launched(job, 2, "--run-dir", "out", ENDLESS, *SAVES)
    started(running, job.folder / "out")
    os.kill(process_of(running, 1), signal.SIGTERM)
    assert running.ended()[0].code == 143
    check_resume(job)
    steps = summary(job.folder / "out")["steps"]
    assert launch(job, 2, "--run-dir", "straight", f"train.max_steps={steps}", "--quiet").code == 0
    assert losses(job.folder / "straight") == losses(job.folder / "out") and weights(
        job.folder / "straight"
    ) == weights(job.folder / "out")


def last_step(folder):
    """The last recorded step of a running job, whose last line may be incomplete."""
    file = folder / "metrics.jsonl"
    whole = file.read_text().split("\n")[:-1] if file.exists() else []
    return json.loads(whole[-1])["step"] if whole else 0


@pytest.mark.parametrize("to", [0, 1])
def test_a_save_on_request_of_any_rank(job, to):
    out = job.folder / "out"
    running = launched(job, 2, "--run-dir", "out", ENDLESS, "checkpoint.keep_last=100")
    running.until(lambda: last_step(out) > 3)
    os.kill(process_of(running, to), signal.SIGUSR2)
    running.until(lambda: len(saved_steps(out)) == 1)
    (asked,) = saved_steps(out)
    running.until(lambda: last_step(out) > asked + 3)
    running.processes[0].terminate()
    assert running.ended()[0].code == 143 and len(saved_steps(out)) == 2
    assert job("checkpoint", "verify", "out").code == 0


@pytest.mark.parametrize("delay", [0, 0.15, 0.3])
def test_a_signal_at_any_moment_of_the_start_of_ranks(job, delay):
    running = launched(job, 2, "--run-dir", "out", ENDLESS)
    running.until(lambda: process_of(running, 1))
    time.sleep(delay)
    running.processes[0].terminate()
    (result,) = running.ended()
    assert result.code == 143 and "trainopt: " not in result.err, (delay, result)


def test_a_signal_in_an_evaluation(job):
    """All ranks abandon the evaluation; the job stops with a checkpoint, and the resumed run repeats the evaluation."""
    write_cifar10(job, test_batch=10000)
    keys = ["evaluation={every_n_steps: 2, batch_size: 1}", "--run-dir", "out"]
    running = launched(job, 2, ENDLESS, *keys)
    running.until(lambda: last_step(job.folder / "out") >= 3)  # written after step 4 has started
    time.sleep(0.2)  # the rest of the step takes milliseconds, the evaluation after it seconds
    os.kill(process_of(running, 1), signal.SIGTERM)
    (result,) = running.ended()
    assert result.code == 143, result
    assert (
        saved_steps(job.folder / "out") == [4]
        and len((job.folder / "out/evaluations.jsonl").read_text().splitlines()) == 1
    )
    check_resume(job)


# K6
@pytest.mark.parametrize("strategy", [*in_full("none"), "zero3"])
def test_ranks_killed_at_any_moment_of_a_save(job, strategy):
    job.write("large.yaml", FROM_FILES.replace("hidden: [8]", "hidden: [1024, 1024]"))
    out, keys = job.folder / "out", [
        f"parallel.sharding_strategy={strategy}",
        "checkpoint={every_n_steps: 1, resume: auto}",
        "--run-dir",
        "out",
    ]
    dice = random.Random(strategy)
    for _ in range(4):
        newest = max(saved_steps(out)) if out.exists() else 0
        running = launched(job, 2, ENDLESS, *keys, recipe="large.yaml")
        running.until(lambda: out.exists() and max(saved_steps(out), default=0) > newest + 1)
        time.sleep(dice.random() * 0.1)
        ranks = [process_of(running, rank) for rank in (0, 1)]
        for rank in ranks[:: dice.choice([1, -1])]:
            os.kill(rank, signal.SIGKILL)
        assert running.ended()[0].code != 0
        assert job("checkpoint", "verify", "out").code == 0
    done = launch(job, 2, f"train.max_steps={max(saved_steps(out)) + 2}", *keys, recipe="large.yaml")
    assert done.code == 0 and summary(out)["resumed_from"] == max(saved_steps(out)) - 2, done


# P2
def test_a_second_signal_ends_all_ranks_at_once(job):
    out = job.folder / "out"
    running = launched(job, 2, "--run-dir", "out", ENDLESS, *SAVES)
    started(running, out)
    os.kill(process_of(running, 1), signal.SIGSTOP)  # so that the first signal does not end the job
    running.processes[0].terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        running.processes[0].wait(1)
    rank = process_of(running, 1)
    os.kill(rank, signal.SIGCONT)
    for _ in range(60000):
        if has_taken_signals(rank):
            break
        time.sleep(0.001)
    time.sleep(0.2)  # what follows at once would be the same wish
    running.processes[0].terminate()
    (result,) = running.ended()
    assert result.code == 143, result
    check_resume(job)


def test_what_each_rank_computes_can_be_dumped(job):
    from safetensors.numpy import load_file

    assert (
        launch(
            job, 2, "--run-dir", "out", "train.max_steps=2", "logging.dump={steps: [1], what: [outputs]}", "--quiet"
        ).code
        == 0
    )
    first, second = [load_file(job.folder / "out/dump" / of / "step-00000001.safetensors") for of in ("", "rank-1")]
    assert first and set(first) == set(second) and any((first[name] != second[name]).any() for name in first)


def test_sparse_records_keep_every_step_time_of_several_ranks(job):
    """The interval of two finished runs needs all steps, not only the logged ones."""
    keys = ["train.max_steps=90", "bench.warmup_steps=5", "logging.every_n_steps=10"]
    ran = launch(job, 2, *keys, "--run-dir", "sparse")
    assert ran.code == 0, ran
    assert len(records(job.folder / "sparse")) < 20
    lines = (job.folder / "sparse/step_times.csv").read_text().splitlines()
    assert lines[0] == "samples,seconds" and len(lines) == 1 + 85
    assert {line.split(",")[0] for line in lines[1:]} == {"16"}
    compared = job("compare", "sparse", "sparse", "--json").json()
    assert compared["arms"]["a"]["steps"] == 85
    # Steps of this length in a fixed order: whether real ones vary too slowly for an interval is up to the machine.
    steady = "".join(f"16,{0.01 + i % 3 * 1e-4}\n" for i in range(85))
    (job.folder / "sparse/step_times.csv").write_text("samples,seconds\n" + steady)
    low, high = job("compare", "sparse", "sparse", "--json").json()["interval"]
    assert low <= 1 <= high
