"""One rank fails, is lost or differs from the others: all end with one exit code and one message that names it."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from conftest import CHECKOUT, PROGRAM, checkpoint, losses, records, saved_steps, summary
from ranks import (
    ENDLESS,
    FROM_FILES,
    RECIPE,
    SAVES,
    SOON,
    Ranks,
    free_port,
    check_resume,
    inside,
    launch,
    launched,
    node_of_two,
    kill_leftover_ranks,  # noqa: F401
    one_message,
    process_of,
    readme_section,
    started,
    two_machines,  # noqa: F401
    write_cifar10,
)

LITTLE = 7 << 30  # bytes
PATIENCE = 180  # seconds: parallel.timeout, plus the time that the remaining ranks need to notice and exit


def by_hand(trainopt, *each, port=None, recipe="tiny.yaml"):
    """Starts a rank for each list of arguments; None stands for a rank that is not started."""
    job, port = Ranks(trainopt), port or free_port()
    for rank, arguments in enumerate(each):
        if arguments is not None:
            job.rank(rank, len(each), "run", recipe, *arguments, port=port)
    return job


def all_end(job, code, says, seconds=240):
    """All ranks end with this code and one message, which is returned."""
    results = job.ended(seconds)
    assert [result.code for result in results] == [code] * len(results), results
    message = one_message(*results)
    for words in says:
        assert words in message, (words, results)
    return message


def shape(text):
    """An error message without the parts that vary: how far each rank had come, and whether the others ended by
    themselves."""
    return re.sub(r"after step \d+, [a-z ]+", "after step", text).replace("were ended", "ended too")


# P3
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed(trainopt, rank):
    trainopt.write("tiny.yaml", RECIPE)
    job = launched(trainopt, 2, "--run-dir", "out", ENDLESS, *SAVES, SOON)
    started(job, trainopt.folder / "out")
    os.kill(process_of(job, rank), signal.SIGKILL)
    all_end(job, 7, [f"rank {rank} is gone"])
    if rank == 1:
        shown = re.search(r"```\n(\[0\] trainopt: .*?)```", readme_section("Several ranks"), re.DOTALL)[1]
        assert shape(job.result_of(0).err) == shape(shown)
        got = summary(trainopt.folder / "out")
        assert (got["status"], got["exit_code"]) == ("failed", 7) and "rank 1 is gone" in got["reason"], got
    check_resume(trainopt)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_stopped(trainopt, rank):
    """The other rank waits no longer than the timeout; the stopped rank ends when it is continued."""
    trainopt.write("tiny.yaml", RECIPE)
    job = by_hand(trainopt, *[["--run-dir", "out", ENDLESS, *SAVES, SOON]] * 2)
    started(job, trainopt.folder / "out")
    job.processes[rank].send_signal(signal.SIGSTOP)
    try:
        job.processes[1 - rank].wait(PATIENCE)
    finally:
        job.processes[rank].send_signal(signal.SIGCONT)
    results = job.ended()
    assert [result.code for result in results] == [7, 7] and f"rank {rank} is gone" in one_message(
        results[1 - rank]
    ), results
    check_resume(trainopt)


def test_one_of_several_ranks_is_killed(trainopt):
    """The other ranks wait for one another, not for the lost one, which is still named."""
    trainopt.write("tiny.yaml", RECIPE)
    job = launched(trainopt, 4, "--run-dir", "out", ENDLESS, *SAVES, SOON, "data.batch_size=4")
    started(job, trainopt.folder / "out")
    os.kill(process_of(job, 2), signal.SIGKILL)
    all_end(job, 7, ["rank 2 is gone"])
    check_resume(trainopt, 2)


# P4


def test_ranks_with_different_parents(trainopt):
    """The ranks need no common parent, as on several machines."""
    trainopt.write("tiny.yaml", RECIPE)
    job, port = Ranks(trainopt), free_port()
    for rank in (0, 1):
        job.rank(
            rank,
            2,
            "run",
            "tiny.yaml",
            "--run-dir",
            "out",
            SOON,
            "--quiet",
            port=port,
            under=["sh", "-c", '"$@"; exit $?', "sh"],
        )
    assert [result.code for result in job.ended()] == [0, 0], job.ended()


def test_another_recipe_on_one_rank(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    all_end(by_hand(trainopt, [], ["optimizer.lr=0.02"]), 2, ["recipe", "rank 1 differs from rank 0"])
    assert not (trainopt.folder / "runs").exists()


def test_another_build_on_one_rank(trainopt):
    """As after a rebuild of the same sources: only the linker's build ID differs."""
    trainopt.write("tiny.yaml", RECIPE)
    program = bytearray(Path(PROGRAM).read_bytes())
    note = program.index(bytes.fromhex("04000000 14000000 03000000") + b"GNU\0") + 16
    program[note] ^= 1
    other = trainopt.folder / "other-build"
    other.write_bytes(program)
    other.chmod(0o755)
    job, port = Ranks(trainopt), free_port()
    for rank, name in enumerate([PROGRAM, other]):
        place = {
            "RANK": rank,
            "WORLD_SIZE": 2,
            "LOCAL_RANK": rank,
            "LOCAL_WORLD_SIZE": 2,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        job.start(
            [name, "run", "tiny.yaml", "device=cpu", "--quiet"],
            env={**trainopt.environment(), **{key: str(value) for key, value in place.items()}},
        )
    all_end(job, 2, ["the same program", "rank 1"])


def test_another_number_of_ranks_on_one_rank(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    job, port = Ranks(trainopt), free_port()
    job.rank(0, 2, "run", "tiny.yaml", SOON, port=port)
    job.rank(1, 3, "run", "tiny.yaml", SOON, port=port)
    all_end(job, 2, ["number of ranks", "rank 1"])


def test_two_processes_with_one_rank(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    job, port = Ranks(trainopt), free_port()
    for rank in (0, 1, 1):
        job.rank(rank, 2, "run", "tiny.yaml", ENDLESS, "--run-dir", "out", port=port)
    end = time.monotonic() + 180
    while all(process.poll() is None for process in job.processes) and time.monotonic() < end:
        time.sleep(0.01)
    (twin,) = [job.result_of(number) for number in (1, 2) if job.processes[number].poll() is not None]
    assert twin.code == 7 and "two processes claim to be rank 1" in one_message(twin), twin
    for process in job.processes:
        if process.poll() is None:
            process.terminate()
    assert sorted(result.code for result in job.ended()) == [7, 143, 143]


def test_a_mistake_in_the_recipe_of_one_rank(trainopt):
    """That rank never connects; the other waits no longer than the timeout."""
    trainopt.write("tiny.yaml", RECIPE)
    results = by_hand(trainopt, [SOON], [SOON, "train.max_steps=0"]).ended()
    assert [result.code for result in results] == [7, 2], results
    assert "rank 1 of 2 did not join within 12 s" in one_message(results[0]), results


# P10
def test_a_missing_rank(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    all_end(by_hand(trainopt, [SOON], None), 7, ["rank 1 of 2 did not join within 12 s", "parallel.timeout"])
    all_end(by_hand(trainopt, None, [SOON]), 7, ["rank 0 could not be reached within 12 s", "127.0.0.1"])


def test_several_missing_ranks(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    all_end(by_hand(trainopt, [SOON], None, [SOON], None), 7, ["ranks 1, 3 of 4 did not join"])


def test_a_port_in_use(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        all_end(by_hand(trainopt, [SOON], None, port=port), 7, ["in use", str(port)])


def test_a_port_of_an_unrelated_server(trainopt):
    """Another program accepts the connection and stays silent."""
    trainopt.write("tiny.yaml", RECIPE)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        all_end(by_hand(trainopt, None, [SOON], port=port), 7, ["rank 0", str(port)])


def test_an_unknown_address(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    for rank in (0, 1):
        job = Ranks(trainopt).rank(
            rank, 2, "run", "tiny.yaml", SOON, port=free_port(), address="no-such-machine.invalid"
        )
        all_end(job, 7, ["no-such-machine.invalid"])


# P12
def test_an_open_file_limit(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    result = launch(
        trainopt,
        2,
        "--run-dir",
        "out",
        "data.num_workers=2",
        "--quiet",
        before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    assert result.code == 0, result
    result = launch(
        trainopt, 2, "--run-dir", "none", "--quiet", before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))
    )
    assert result.code == 1 and len(result.err.splitlines()) == 1, result
    assert (
        "for a rank: " in result.err or "cannot start rank " in result.err
    ), result  # which limit is hit first depends on the inherited files


# K7
def test_a_rank_with_little_memory(trainopt):
    """The address space has room for the program but not for the step. One thread, because threads take some of it, one
    per core by default."""
    trainopt.write("tiny.yaml", RECIPE.replace("hidden: [8]", "hidden: [8192]"))  # much memory for little work
    job, port = Ranks(trainopt), free_port()
    for rank in (0, 1):
        limit = (lambda: resource.setrlimit(resource.RLIMIT_AS, (LITTLE, LITTLE))) if rank == 1 else None
        job.rank(
            rank,
            2,
            "run",
            "tiny.yaml",
            "--run-dir",
            "out",
            ENDLESS,
            SOON,
            "num_threads=1",
            "data.batch_size=65536",
            "data.size=1000000",
            port=port,
            before=limit,
        )
    all_end(job, 5, ["rank 1: ", "memory"])


def test_a_rank_that_cannot_write_its_part(trainopt):
    trainopt.write("tiny.yaml", RECIPE.replace("hidden: [8]", "hidden: [8], dropout: 0.5"))
    job, port = Ranks(trainopt), free_port()
    assert launch(trainopt, 2, "--run-dir", "out", "train.max_steps=3", "--quiet").code == 0
    for rank in (0, 1):
        limit = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))) if rank == 1 else None
        job.rank(
            rank,
            2,
            "run",
            "tiny.yaml",
            "--run-dir",
            "out",
            "checkpoint.resume=auto",
            ENDLESS,
            *SAVES,
            SOON,
            port=port,
            before=limit,
        )
    all_end(job, 8, ["rank 1: ", "rank-0001.safetensors", "File too large"])
    assert saved_steps(trainopt.folder / "out") == [3] and summary(trainopt.folder / "out")["exit_code"] == 8
    check_resume(trainopt)


def test_a_run_directory_that_one_rank_does_not_see(trainopt):
    """As on two machines without a shared folder."""
    trainopt.write("tiny.yaml", RECIPE)
    trainopt.write("elsewhere/tiny.yaml", RECIPE)
    job, port = Ranks(trainopt), free_port()
    for rank in (0, 1):
        job.rank(
            rank,
            2,
            "run",
            "tiny.yaml",
            "--run-dir",
            "out",
            *SAVES,
            SOON,
            port=port,
            cwd=trainopt.folder / ("elsewhere" if rank else ""),
        )
    all_end(job, 8, ["rank 1: ", "out"])
    assert launch(trainopt, 2, "--run-dir", "whole", "--quiet").code == 0
    job, port = Ranks(trainopt), free_port()
    for rank in (0, 1):
        job.rank(
            rank,
            2,
            "run",
            "tiny.yaml",
            "--run-dir",
            "whole",
            "checkpoint.resume=auto",
            "train.max_steps=9",
            SOON,
            port=port,
            cwd=trainopt.folder / ("elsewhere" if rank else ""),
        )
    all_end(job, 8, ["rank 1: ", "cannot open the folder whole"])
    check_resume(trainopt, folder="whole")


# D13
@pytest.mark.parametrize(
    "fault, code, says",
    [
        ("missing", 3, ["data"]),
        ("torn", 3, ["data_batch_1.bin", "100 bytes"]),
        ("shorter", 3, ["rank 1"]),
        ("other", 3, ["rank 1"]),
        ("evaluation", 3, ["rank 1", "the evaluation data differs from rank 0's: content"]),
    ],
)
def test_data_that_one_rank_lacks(trainopt, fault, code, says):
    """Each machine has its own data folder, and one of them is wrong."""
    trainopt.write("tiny.yaml", FROM_FILES)
    trainopt.write("elsewhere/tiny.yaml", FROM_FILES)
    write_cifar10(trainopt, data_batch_1=64)
    file = trainopt.folder / "data/data_batch_1.bin"
    if fault == "evaluation":
        trainopt.write("elsewhere/data/data_batch_1.bin", file.read_bytes())
        trainopt.write("data/test_batch.bin", file.read_bytes())
        trainopt.write("elsewhere/data/test_batch.bin", file.read_bytes()[:-3073] + b"\1" * 3073)
    changed = {
        "torn": file.read_bytes()[: 63 * 3073 + 100],
        "shorter": file.read_bytes()[: 48 * 3073],
        "other": file.read_bytes()[:-3073] + b"\1" * 3073,
    }
    if fault in changed:
        trainopt.write("elsewhere/data/data_batch_1.bin", changed[fault])
    job, port = Ranks(trainopt), free_port()
    for rank in (0, 1):
        job.rank(
            rank,
            2,
            "run",
            "tiny.yaml",
            "--run-dir",
            trainopt.folder / "out",
            "--quiet",
            SOON,
            port=port,
            cwd=trainopt.folder / ("elsewhere" if rank else ""),
        )
    all_end(job, code, ["rank 1", *says])
    assert not (trainopt.folder / "out/summary.json").exists(), "the run has not started"


# D15
def test_ranks_without_samples(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    result = launch(trainopt, 2, "data.size=65", "data.drop_last=false")
    assert result.code == 2 and result.out == "", result
    assert "some of 2 ranks would have no sample" in result.err and "65 samples, 16 a batch" in result.err, result
    assert not (trainopt.folder / "runs").exists()


def test_fewer_samples_than_the_ranks_take(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    numbers = "10 samples, 16 a step (ranks 2 × accumulation 1 × batch_size 8)"
    result = launch(trainopt, 2, "data.size=10")
    assert result.code == 2 and numbers in result.err, result
    write_cifar10(trainopt, data_batch_1=10)
    trainopt.write("files.yaml", FROM_FILES)
    job = launched(trainopt, 2, "--run-dir", "out", recipe="files.yaml")
    all_end(job, 3, [numbers])


# K4
def test_a_damaged_part_of_a_checkpoint(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    assert launch(trainopt, 2, "--run-dir", "out", *SAVES, "--quiet").code == 0
    newest = checkpoint(trainopt.folder / "out", 6)
    part = newest / "rank-0001.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"\x7f")
    all_end(
        launched(trainopt, 2, "--run-dir", "out", f"checkpoint.resume={newest}", "train.max_steps=8", *SAVES),
        4,
        ["step-00000006", "rank-0001.safetensors"],
    )
    result = launch(trainopt, 2, "--run-dir", "out", "checkpoint.resume=auto", "train.max_steps=8", *SAVES, "--quiet")
    assert result.code == 0 and summary(trainopt.folder / "out")["resumed_from"] == 4, result
    assert result.err.count("trying the previous one") == 1 and "step-00000006" in result.err, result
    check_resume(trainopt)


# Errors that all ranks hit at the same time


def test_the_same_fault_on_all_ranks(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    all_end(launched(trainopt, 2, "--run-dir", "out", "--inject", "nan@3"), 6, ["step 3"])
    assert summary(trainopt.folder / "out")["exit_code"] == 6
    job = launched(trainopt, 2, "--run-dir", "killed", ENDLESS, *SAVES, "--inject", "kill@6")
    (result,) = job.ended()
    assert result.code == 7 and "was killed by signal 9" in result.err, result
    check_resume(trainopt, folder="killed")


def test_ranks_that_hang(trainopt):
    """Each rank has a watchdog and its own file."""
    trainopt.write("tiny.yaml", RECIPE)
    result = launch(trainopt, 2, "--run-dir", "out", *SAVES, "watchdog.timeout=5s", "--quiet", "--inject", "hang@5+")
    assert result.code == 7 and "watchdog.timeout" in result.err, result
    assert sorted(path.name for path in (trainopt.folder / "out").glob("hang-rank*.json")), result
    check_resume(trainopt)


def test_one_rank_that_hangs(trainopt):
    """Its heartbeat continues, so it is reported as alive but missing from an exchange."""
    trainopt.write("tiny.yaml", RECIPE)
    all_of = ["--run-dir", "out", ENDLESS, SOON]
    job = by_hand(trainopt, all_of, all_of + ["--inject", "hang@3"])
    job.processes[0].wait(PATIENCE)
    job.processes[1].kill()
    first, _ = job.ended()
    assert (
        first.code == 7
        and "rank 1 is alive but did not enter a collective within 12 s" in first.err
        and "rank 1 after step 2, forward and backward" in first.err
    ), first
    assert "gloo" not in first.err, first


# Stragglers


def test_a_straggler_is_named(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    steps = range(1, 41)
    slow = [word for step in steps for word in ("--inject", f"slow@{step}")]
    all_of = ["--run-dir", "out", f"train.max_steps={len(steps)}"]
    job = by_hand(trainopt, all_of, all_of + slow)
    results = job.ended()
    assert [result.code for result in results] == [0, 0], results
    found = summary(trainopt.folder / "out")["straggler"]
    assert found["rank"] == 1 and found["busy_ms"] > 100 > found["others_ms"] and found["steps_pct"] > 90, found
    assert "rank 1 is a straggler: " in results[0].out, results
    alike = by_hand(
        trainopt, ["--run-dir", "alike", *(all_of + slow)[2:]], ["--run-dir", "alike", *(all_of + slow)[2:]]
    ).ended()
    assert [result.code for result in alike] == [0, 0] and summary(trainopt.folder / "alike")[
        "straggler"
    ] is None, alike


def test_an_injected_straggler_changes_no_number(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    for out, more in (("plain", []), ("slower", ["--inject", "straggle@5:1"])):
        result = launch(trainopt, 2, "--run-dir", out, "train.max_steps=12", *more)
        assert result.code == 0, result
    assert losses(trainopt.folder / "plain") == losses(trainopt.folder / "slower")


# Bad samples


def write_two_bad(trainopt):
    source = sorted((CHECKOUT / "tests/unit/image/files").glob("4*.jpg"))[0]
    for i in range(16):  # unshuffled, in pairs: rank 0 gets the first of each pair, rank 1 the second
        target = trainopt.folder / f"images/{i // 8}/{i:02}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"not a picture" if i in (2, 5) else source.read_bytes())
    trainopt.write("tiny.yaml", RECIPE)


def with_bad(allowed, batch_size=1):
    return (
        f"data={{dataset: image_folder, path: images, size: null, batch_size: {batch_size}, shuffle: false, "
        f"on_bad_sample: substitute, max_bad_samples: {allowed}}}",
        "data.transforms=[{resize: [8, 8]}]",
        "train.max_steps=8",
        "checkpoint.every_n_steps=4",
        "--quiet",
    )


def test_bad_samples_of_every_rank_are_recorded(trainopt):
    write_two_bad(trainopt)
    keys = (*with_bad(2), "--run-dir", "out")
    assert launch(trainopt, 2, *keys).code == 0
    lines = [
        json.loads(line)["sample"] for line in (trainopt.folder / "out/bad_samples.jsonl").read_text().splitlines()
    ]
    assert sorted(lines) == [2, 5]
    state = json.loads((checkpoint(trainopt.folder / "out", 4) / "state.json").read_text())
    # One that also was the substitute of another rank's counts for both ranks.
    assert {bad["sample"] for bad in state["bad_samples"]} == {2, 5}
    more = launch(trainopt, 2, *keys, "train.max_steps=12", "checkpoint.resume=auto")
    assert more.code == 0, more  # in the next epoch they are known, and none is counted twice
    lines = [
        json.loads(line)["sample"] for line in (trainopt.folder / "out/bad_samples.jsonl").read_text().splitlines()
    ]
    assert sorted(lines) == [2, 5]


def test_a_resumed_rank_counts_its_own_bad_samples(trainopt):
    """Each rank finds as many as are allowed. With this seed no substitute is bad."""
    write_two_bad(trainopt)
    keys = (*with_bad(1), "seed=1")
    whole = launch(trainopt, 2, *keys, "--run-dir", "whole", "train.max_steps=20")
    assert whole.code == 0, whole
    assert launch(trainopt, 2, *keys, "--run-dir", "cut").code == 0
    rest = launch(trainopt, 2, *keys, "--run-dir", "cut", "train.max_steps=20", "checkpoint.resume=auto")
    assert rest.code == 0 and "takes the place" not in rest.err, rest
    state = json.loads((checkpoint(trainopt.folder / "cut", 20) / "state.json").read_text())
    assert sorted((bad["rank"], bad["sample"]) for bad in state["bad_samples"]) == [(0, 2), (1, 5)]
    assert losses(trainopt.folder / "cut") == losses(trainopt.folder / "whole")
    whole_lines, lines = (
        sorted((trainopt.folder / out / "bad_samples.jsonl").read_text().splitlines()) for out in ("whole", "cut")
    )
    assert lines == whole_lines and len(lines) == 2


def test_the_evaluation_of_several_ranks_leaves_out_bad_samples(trainopt):
    """Two ranks with one sample at a time, of which a rank may have none, find what one rank finds."""
    write_two_bad(trainopt)
    more = ("seed=1", "evaluation={path: images, every_n_steps: 4}", "--run-dir")
    alone = trainopt("run", "tiny.yaml", *with_bad(2, batch_size=2), *more, "alone")
    both = launch(trainopt, 2, *with_bad(2), *more, "both")
    assert (alone.code, both.code) == (0, 0), (alone, both)
    one, two = (
        [json.loads(line) for line in (trainopt.folder / out / "evaluations.jsonl").read_text().splitlines()]
        for out in ("alone", "both")
    )
    for a, b in zip(one, two, strict=True):
        assert (a["samples"], a["left_out_samples"]) == (b["samples"], b["left_out_samples"]) == (14, 2)
        assert abs(a["loss"] - b["loss"]) <= 1e-5 * a["loss"] and a["top1_pct"] == b["top1_pct"]
    lines = [json.loads(line) for line in (trainopt.folder / "both/bad_samples.jsonl").read_text().splitlines()]
    found = sorted((line["set"], line["sample"]) for line in lines)
    assert found == [("evaluation", 2), ("evaluation", 5), ("training", 2), ("training", 5)]


# Two machines


def test_two_machines_without_a_common_loopback(trainopt, two_machines):  # noqa: F811
    trainopt.write("tiny.yaml", RECIPE)
    job = Ranks(trainopt)
    for node, name in enumerate(two_machines):
        words = ["--rendezvous", "10.99.77.1:29511", "--", "run", "tiny.yaml", "--run-dir", "out", "--quiet"]
        job.start([*inside(name, f"machine{node}"), PROGRAM, "launch", *node_of_two(node, 1), *words])
    results = job.ended()
    assert [result.code for result in results] == [0, 0], results
    assert [row["step"] for row in records(trainopt.folder / "out")] == [1, 2, 3, 4, 5, 6]
