"""Signals and hanging runs: when the run ends, with which exit code, and what it leaves behind."""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import termios
import time

import pytest

from conftest import (
    PROGRAM,
    TINY,
    checkpoint,
    has_taken_signals,
    preloaded,
    records,
    saved_steps,
    summary,
    wait_for_step,
    wait_until,
    wait_until_asleep,
)

ENDLESS = "train.max_steps=100000000"
SAVES = ["checkpoint.every_n_steps=2", "checkpoint.background=false"]
SOON = 20  # seconds, less than the default checkpoint.grace_period; on an idle machine these take one or two


def hung(trainopt, *overrides, inject="hang@5+"):
    """Starts a run and waits until it hangs."""
    trainopt.write("tiny.yaml", TINY)
    process = trainopt.start("run", "tiny.yaml", *SAVES, *overrides, "--inject", inject, "--run-dir", "out")
    wait_until(lambda: checkpoint(trainopt.folder / "out", 4).exists(), process)
    wait_until_asleep(process)  # a signal before step 5 would be an ordinary stop
    return process


def end(process, number):
    """Sends the signal; returns (seconds until the process ended, standard error)."""
    asked = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=180)
    return time.monotonic() - asked, err


def test_a_run_stuck_in_a_step_ends_without_saving(trainopt):
    seconds, err = end(process := hung(trainopt, "checkpoint.grace_period=1s"), signal.SIGTERM)
    assert process.returncode == 143 and 0.5 < seconds < SOON and "checkpoint.grace_period" in err
    got = summary(trainopt.folder / "out")
    assert (got["status"], got["exit_code"]) == ("stopped", 143) and "before saving finished" in got["reason"]
    assert saved_steps(trainopt.folder / "out") == [2, 4] and trainopt("checkpoint", "verify", "out").code == 0


def test_an_injected_hang_outlasts_a_signal(trainopt):
    _, err = end(process := hung(trainopt, "checkpoint.grace_period=1s", inject="hang@5"), signal.SIGTERM)
    assert process.returncode == 143 and "checkpoint.grace_period" in err


@pytest.mark.parametrize("first, second", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
def test_a_second_signal_ends_at_once(trainopt, first, second):
    process = hung(trainopt)
    process.send_signal(first)
    wait_until(lambda: has_taken_signals(process.pid), process)
    time.sleep(0.2)
    assert process.poll() is None
    seconds, _ = end(process, second)
    assert process.returncode == 128 + second and seconds < SOON
    assert trainopt("checkpoint", "verify", "out/checkpoints/latest").code == 0


def test_the_watchdog_ends_a_run_without_progress(trainopt):
    trainopt.write("tiny.yaml", TINY)
    began = time.monotonic()
    # Longer than a save may take on a busy disk, so that the watchdog ends only the hang in step 5.
    result = trainopt(
        "run", "tiny.yaml", "watchdog.timeout=4s", *SAVES, "--quiet", "--inject", "hang@5+", "--run-dir", "out"
    )
    assert result.code == 7 and time.monotonic() - began < 2 * SOON and len(result.err.splitlines()) == 1, result
    assert "watchdog.timeout" in result.err and "out/hang-rank0.json" in result.err, result
    got, hang = summary(trainopt.folder / "out"), json.loads((trainopt.folder / "out/hang-rank0.json").read_text())
    assert (got["status"], got["exit_code"]) == ("failed", 7) and "no progress for 4s" in got["reason"]
    assert hang["stage"] == "forward and backward" and hang["seconds_without_progress"] >= 4
    assert {"watchdog", "telemetry"} <= {thread["name"] for thread in hang["threads"]}
    assert any("pause" in frame for frame in hang["threads"][0]["stack"]), hang["threads"][0]
    assert trainopt("checkpoint", "verify", "out").code == 0
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", "checkpoint.resume=auto", "--quiet")
    assert result.code == 0 and summary(trainopt.folder / "out")["resumed_from"] == 4, result


# Hangs where data are opened, as a dead network file system does.
HANGING_FILE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
typedef int (*open_t)(int, const char *, int, int);
int openat(int folder, const char *name, int flags, int mode) {
  if (strstr(name, "data_batch_1.bin")) for (;;) pause();
  return ((open_t)dlsym(RTLD_NEXT, "openat"))(folder, name, flags, mode);
}
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_watchdog_ends_a_start_that_hangs(trainopt, ranks):
    trainopt.write("tiny.yaml", TINY.replace("dataset: fake_cifar10, size: 64", "dataset: cifar10, path: files"))
    for name in ("data_batch_1.bin", "test_batch.bin"):
        trainopt.write(f"files/{name}", b"\0" * 8 * 3073)
    launch = ["launch", "-n", ranks, "--"] if ranks > 1 else []
    words = [*launch, "run", "tiny.yaml", "watchdog.timeout=4s", "--quiet", "--run-dir", "out"]
    done = trainopt(*words, env=preloaded(trainopt, HANGING_FILE))
    assert done.code == 7 and "no progress for 4s in opening the data" in done.err, done
    assert "pause" in done.err and not (trainopt.folder / "out").exists(), done


def test_the_watchdog_counts_completed_steps(trainopt):
    trainopt.write("tiny.yaml", TINY)
    trainopt("run", "tiny.yaml", "watchdog.timeout=4s", "--quiet", "--inject", "hang@5", "--run-dir", "out")
    got = summary(trainopt.folder / "out")
    assert got["steps"] == 4 and ("after step 4" in got["reason"] or "in step 5" in got["reason"])


def test_a_paused_run_is_not_a_hung_one(trainopt):
    trainopt.write("tiny.yaml", TINY)
    process = trainopt.start("run", "tiny.yaml", ENDLESS, "watchdog.timeout=3s", "--run-dir", "out")
    wait_for_step(process, 1)
    process.send_signal(signal.SIGSTOP)  # as a scheduler does to run other jobs
    time.sleep(5)
    process.send_signal(signal.SIGCONT)
    time.sleep(0.5)
    assert process.poll() is None
    end(process, signal.SIGTERM)
    assert process.returncode == 143


def recorded_steps(folder):
    """The number of complete step records in the file."""
    metrics = folder / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def test_a_save_on_request(trainopt):
    trainopt.write("tiny.yaml", TINY)
    out = trainopt.folder / "out"
    # No console output: nothing reads it while the test waits for files, and a full pipe would block the training.
    process = trainopt.start(
        "run", "tiny.yaml", "--run-dir", "out", ENDLESS, "checkpoint.keep_last=100", "logging.sinks=[jsonl]"
    )
    wait_until(lambda: recorded_steps(out) >= 1, process)
    for count in (1, 2):
        process.send_signal(signal.SIGUSR2)
        wait_until(lambda: len(saved_steps(out)) == count, process)
    saved = saved_steps(out)[-1]
    wait_until(lambda: recorded_steps(out) >= saved + 2, process)
    end(process, signal.SIGTERM)
    assert (
        process.returncode == 143
        and len(saved_steps(out)) == 3
        and saved_steps(out)[-1] == summary(out)["steps"] == records(out)[-1]["step"]
    )
    assert trainopt("checkpoint", "verify", "out").code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_signal_while_the_network_is_built(trainopt, number):
    """While a network of 50 million weights is built, a stop signal takes effect and a save request does not stop."""
    trainopt.write("tiny.yaml", TINY)
    process = trainopt.start(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        "model.hidden=[5000, 5000, 5000]",
        "train.max_steps=1",
        "optimizer.momentum=0",
        "checkpoint.at_end=false",
    )
    wait_until(lambda: (trainopt.folder / "out/plan.json").exists(), process)
    end(process, number)
    got = summary(trainopt.folder / "out")
    (trainopt.folder / "out/weights.safetensors").unlink()
    if number == signal.SIGUSR2:
        assert (process.returncode, got["status"]) == (0, "done")
        return
    assert (process.returncode, got["status"], got["exit_code"], got["steps"]) == (143, "stopped", 143, 0), got
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", "checkpoint.resume=auto", "--quiet")
    assert (
        result.code == 0
        and summary(trainopt.folder / "out")["resumed_from"] is None
        and len(records(trainopt.folder / "out")) == 6
    ), result


def test_a_signal_at_any_moment_of_the_start(trainopt):
    trainopt.write("tiny.yaml", TINY)
    for number, delay in enumerate([0, 0.05, 0.15, 0.25, 0.4]):
        process = trainopt.start("run", "tiny.yaml", "--run-dir", f"out{number}", ENDLESS)
        time.sleep(delay)
        _, err = end(process, signal.SIGTERM)
        assert process.returncode in (-signal.SIGTERM, 143) and not re.search(
            r"terminate called|what\(\)|Segmentation", err
        ), (delay, err)
        out = trainopt.folder / f"out{number}"
        assert process.returncode != 143 or summary(out)["status"] == "stopped", delay


def hangs_up(out, process):
    """Closing a terminal sends the signal several times."""
    wait_until(lambda: (out / "metrics.jsonl").exists() and records(out), process)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 129, err
    got = summary(out)
    assert got["status"] == "stopped" and saved_steps(out)[-1] == got["steps"], got


@pytest.mark.parametrize("launcher", [[], ["launch", "-n", "2", "--"]], ids=["run", "launch"])
def test_a_closed_terminal_stops_a_run_as_sigterm_does(trainopt, launcher):
    trainopt.write("tiny.yaml", TINY)
    process = trainopt.start(*launcher, "run", "tiny.yaml", ENDLESS, "logging.sinks=[jsonl]", "--run-dir", "out")
    hangs_up(trainopt.folder / "out", process)


def test_under_nohup_a_closed_terminal_changes_nothing(trainopt):
    trainopt.write("tiny.yaml", TINY)
    out = trainopt.folder / "out"
    process = trainopt.start(
        *["run", "tiny.yaml", ENDLESS, "logging.sinks=[jsonl]", "--run-dir", "out"],
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    wait_until(lambda: (out / "metrics.jsonl").exists() and records(out), process)
    process.send_signal(signal.SIGHUP)
    steps = len(records(out))
    wait_until(lambda: len(records(out)) > steps + 10, process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 143


def test_a_run_saves_although_its_terminal_is_gone(trainopt):
    """The console can no longer be written to."""
    trainopt.write("tiny.yaml", TINY)
    out = trainopt.folder / "out"
    ours, theirs = pty.openpty()
    few = "logging.every_n_steps=100000"  # lines: nobody reads them
    words = [PROGRAM, "run", "tiny.yaml", ENDLESS, few, "logging.progress=false", "--run-dir", "out", *SAVES]
    process = subprocess.Popen(
        words,
        cwd=trainopt.folder,
        env=trainopt.environment(),
        start_new_session=True,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    trainopt.started.append(process)
    os.close(theirs)
    wait_until(lambda: saved_steps(out), process)
    os.close(ours)
    assert process.wait(120) == 129
    assert saved_steps(out)[-1] == summary(out)["steps"]
