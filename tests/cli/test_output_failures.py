"""Full disks, and standard streams that are closed or lose their reader: training continues and reports once what was
lost."""

import json
import re
import resource
import subprocess

import pytest

from conftest import PROGRAM, TINY

FILES = ("metrics.jsonl", "metrics.csv", "evaluations.jsonl", "telemetry.jsonl")
RUN_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} \w+: ")


def limit_files(size):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return limit


def whole_lines(path):
    text = path.read_text()
    assert text.endswith("\n"), (path, text[-200:])
    return text.splitlines()


def test_a_full_disk_loses_record_lines_but_does_not_end_the_run(trainopt):
    """A limit of 32 KiB per file stands in for a disk that is full for a while: there is room for the small results at
    the end."""
    trainopt.write("tiny.yaml", TINY.replace("dataset: fake_cifar10, size: 64", "dataset: cifar10, path: files"))
    for name in ("data_batch_1.bin", "test_batch.bin"):
        trainopt.write(f"files/{name}", b"\0" * 8 * 3073)
    # Limited by time, as telemetry lines are: a fast machine takes 800 steps before they fill their file.
    done = subprocess.run(
        [
            PROGRAM,
            "run",
            "tiny.yaml",
            "train.max_steps=1000000",
            "train.max_time=30s",
            "evaluation.every_n_steps=1",
            "telemetry.interval=10ms",
            "--run-dir",
            "out",
        ],
        cwd=trainopt.folder,
        env=trainopt.environment(),
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=limit_files(32 << 10),
    )
    assert done.returncode == 0, done.stderr
    out = trainopt.folder / "out"
    got = json.loads((out / "summary.json").read_text())
    steps = got["steps"]
    assert got["status"] == "done" and steps > 200, got
    messages = done.stderr.splitlines()
    first = [line for line in messages if any(f"{name}: File too large" in line for name in FILES)]
    assert len(first) == 1 and first[0].endswith("records and log lose lines"), done.stderr
    (dropped,) = [
        int(match[1].replace(",", ""))
        for line in messages
        if (match := re.search(r"([\d,]+) record lines could not be written", line))
    ]
    assert sum("report.html was not written: " in line for line in messages) == 1, done.stderr
    assert len(messages) == 3, done.stderr
    lines = {name: whole_lines(out / name) for name in FILES}
    expected = {"metrics.jsonl": steps, "metrics.csv": steps + 1, "evaluations.jsonl": steps}
    missing = sum(count - len(lines[name]) for name, count in expected.items())
    assert missing > 0 and dropped > missing, (dropped, missing)
    for name in ("metrics.jsonl", "evaluations.jsonl", "telemetry.jsonl"):
        for line in lines[name]:
            json.loads(line)


def test_a_disk_that_stays_full_fails_the_run_at_its_final_results(trainopt):
    in_namespace = ["unshare", "--mount", "--map-root-user"]
    if (
        subprocess.run(
            [*in_namespace, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", trainopt.folder], capture_output=True
        ).returncode
        != 0
    ):
        pytest.skip("this user may not mount a file system")
    trainopt.write("tiny.yaml", TINY)
    (trainopt.folder / "small").mkdir()
    script = 'mount -t tmpfs -o size=64k tmpfs small; "$@"; code=$?; cp -r small/out kept; exit $code'
    done = subprocess.run(
        [
            *in_namespace,
            "sh",
            "-c",
            script,
            "sh",
            PROGRAM,
            "run",
            "tiny.yaml",
            "train.max_steps=800",
            "--run-dir",
            "small/out",
        ],
        cwd=trainopt.folder,
        env=trainopt.environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 8, done.stderr
    assert re.search(r"step +800/800 ", done.stdout), "training continued to the end"
    messages = done.stderr.splitlines()
    assert len(messages) == 2 and re.search("No space left on device|no room for", messages[-1]), done.stderr
    for line in whole_lines(trainopt.folder / "kept/metrics.jsonl"):
        json.loads(line)


@pytest.mark.parametrize(
    "streams",
    [">&-", "2>&-", "<&- >&- 2>&-", "| head -1", "2>&1 | head -1", "2> >(exit)", ">/dev/full", ">/dev/full 2>&1"],
)
def test_closed_or_broken_streams_do_not_end_the_run(trainopt, streams):
    """The run is long enough for many console writes; tf32 has no effect on a CPU, which causes a warning."""
    trainopt.write("tiny.yaml", TINY)
    script = f'"$@" {streams}; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        [
            "bash",
            "-c",
            script,
            "bash",
            PROGRAM,
            "run",
            "tiny.yaml",
            "train.max_steps=600",
            "optimizations.tf32=true",
            "device=cpu",
            "--run-dir",
            "out",
        ],
        cwd=trainopt.folder,
        env=trainopt.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    out = trainopt.folder / "out"
    assert json.loads((out / "summary.json").read_text())["status"] == "done"
    # No console line is in a file that got the descriptor of a closed stream.
    assert [json.loads(line)["step"] for line in whole_lines(out / "metrics.jsonl")] == list(range(1, 601))
    assert all("time_s" in json.loads(line) for line in whole_lines(out / "telemetry.jsonl"))
    assert all(RUN_LOG_LINE.match(line) for line in (out / "run.log").read_text().splitlines()), (
        out / "run.log"
    ).read_text()
    assert (out / "evaluations.jsonl").read_text() == ""


def test_failing_to_write_standard_output_is_an_error(trainopt):
    trainopt.write("tiny.yaml", TINY)
    done = subprocess.run(
        ["bash", "-c", '"$0" plan tiny.yaml >&-', PROGRAM],
        cwd=trainopt.folder,
        env=trainopt.environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 8 and "cannot write to standard output" in done.stderr, done
