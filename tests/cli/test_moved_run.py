"""Run directories under several names, and ones that are moved, replaced or removed while their run writes to them."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import TINY, preloaded, records, saved_steps, summary, wait_until

# Another run's file appears when the lock is asked for.
OVERTAKEN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
int flock(int descriptor, int operation) {
  close(open(getenv("OTHER"), O_CREAT | O_WRONLY, 0644));
  return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(descriptor, operation);
}
"""
ENDLESS = ["train.max_steps=100000000", "logging.sinks=[jsonl]"]
SAVES = ["checkpoint.every_n_steps=2", "checkpoint.keep_last=10"]


def run_to(trainopt, step, run_dir="r", *overrides):
    trainopt.write("tiny.yaml", TINY)
    done = trainopt("run", "tiny.yaml", "--quiet", "--run-dir", run_dir, f"train.max_steps={step}", *SAVES, *overrides)
    assert done.code == 0, done
    return done


def moved_to_another_disk(folder):
    (folder / "disk").mkdir()
    (folder / "r/checkpoints").rename(folder / "disk/checkpoints")
    (folder / "r/checkpoints").symlink_to("../disk/checkpoints")
    return "r"


def bound(folder):
    moved_to_another_disk(folder)
    (folder / "r/checkpoints").unlink()
    (folder / "r/checkpoints").mkdir()
    mounted = ["mount", "--bind", folder / "disk/checkpoints", folder / "r/checkpoints"]
    if not shutil.which("mount") or subprocess.run(mounted, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount")
    return "r"


def linked_itself(folder):
    (folder / "r").rename(folder / "elsewhere")
    (folder / "r").symlink_to("elsewhere")
    return "r"


def two_dots(folder):
    (folder / "other").mkdir()
    return "other/../r"


def through_a_link(folder):
    (folder / "also-here").symlink_to(".")
    return "also-here/r"


@pytest.fixture
def unmounted(trainopt):
    yield
    subprocess.run(["umount", trainopt.folder / "r/checkpoints"], capture_output=True)


NAMES = [moved_to_another_disk, bound, linked_itself, two_dots, through_a_link]


@pytest.mark.parametrize("rename", NAMES, ids=lambda rename: rename.__name__)
@pytest.mark.parametrize("resume", ["auto", "{}/checkpoints/latest"])
def test_a_run_goes_on_under_any_name_of_its_folder_or_of_its_checkpoints(trainopt, unmounted, rename, resume):
    run_to(trainopt, 4)
    run_dir = rename(trainopt.folder)
    run_to(trainopt, 6, run_dir, "checkpoint.resume=" + resume.format(run_dir))
    folder = trainopt.folder / "r"
    assert [row["step"] for row in records(folder)] == [1, 2, 3, 4, 5, 6], "nothing was removed"
    assert saved_steps(folder) == [2, 4, 6] and not list((folder / "checkpoints").glob("abandoned-*"))
    assert summary(folder)["resumed_from"] == 4


def test_records_that_a_resume_removes_are_kept_in_a_file_of_their_own(trainopt):
    run_to(trainopt, 6, "r", "logging.sinks=[jsonl, csv]")
    folder = trainopt.folder / "r"
    names = ["metrics.jsonl", "metrics.csv"]
    before = {name: (folder / name).read_text() for name in names}
    again = ["r", "checkpoint.resume=r/checkpoints/step-00000002", "logging.sinks=[jsonl, csv]"]
    run_to(trainopt, 4, *again)
    for name in names:
        kept = (folder / f"{name}.before-step-00000002").read_text()
        assert before[name].endswith(kept) and kept.splitlines(), name
        assert (folder / name).read_text().startswith(before[name].removesuffix(kept)), name
    rows = (folder / "metrics.jsonl.before-step-00000002").read_text().splitlines()
    assert len(rows) == 4
    run_to(trainopt, 4, *again)  # from the same step again: nothing is overwritten
    assert (folder / "metrics.jsonl.before-step-00000002").read_text().splitlines()[:4] == rows


def started(trainopt, *overrides):
    trainopt.write("tiny.yaml", TINY)
    process = trainopt.start("run", "tiny.yaml", "--run-dir", "job", *ENDLESS, "--quiet", *overrides)
    metrics = trainopt.folder / "job/metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0, process)
    return process


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_whose_name_another_took_saves_in_its_own_folder_and_ends_with_8(trainopt):
    first = started(trainopt, "seed=1")
    job, old = trainopt.folder / "job", trainopt.folder / "job-old"
    job.rename(old)
    run_to(trainopt, 4, "job", "seed=2")
    other = contents(job)
    _, err = first.communicate(timeout=120)  # nobody stops it: it looks by itself
    assert first.returncode == 8 and "is another folder now" in err and str(old) in err, err
    assert all(line.startswith("warning: ") for line in err.splitlines()), err
    assert contents(job) == other, "nothing of the other job was touched"
    got = summary(old)
    assert (got["status"], got["exit_code"]) == ("stopped", 8) and str(old) in got["reason"]
    assert saved_steps(old) == [got["steps"]] and (old / "weights.safetensors").exists()
    assert trainopt("checkpoint", "verify", "job-old").code == 0
    assert [row["step"] for row in records(old)] == list(range(1, got["steps"] + 1))
    run_to(trainopt, got["steps"] + 2, "job-old", "checkpoint.resume=auto", "seed=1")


def test_a_run_whose_folder_is_renamed_goes_on_in_it(trainopt):
    process = started(trainopt, "checkpoint.every_n_steps=50")
    job, old = trainopt.folder / "job", trainopt.folder / "job-old"
    job.rename(old)
    saved = len(list((old / "checkpoints").glob("step-*")))
    wait_until(lambda: "was renamed" in (old / "run.log").read_text(), process)
    wait_until(lambda: saved_steps(old)[-1:] > [50 * (saved + 2)], process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 143 and len(err.splitlines()) == 1 and str(old) in err, err
    assert not job.exists() and summary(old)["status"] == "stopped"


def test_a_run_whose_folder_is_removed_ends_with_8_and_says_so(trainopt):
    process = started(trainopt)
    job = trainopt.folder / "job"
    job.rename(trainopt.folder / "doomed")  # so that nothing is written while it is removed
    shutil.rmtree(trainopt.folder / "doomed")
    job.mkdir()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 8 and "removed while the run wrote to it" in err, err
    assert not list(job.iterdir())


def test_a_stop_for_a_taken_name_has_no_grace_period(trainopt):
    """Nobody waits for the end of such a run, so its save may take its time."""
    process = started(trainopt, "checkpoint.grace_period=1ms")
    (trainopt.folder / "job").rename(trainopt.folder / "job-old")
    (trainopt.folder / "job").mkdir()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 8 and saved_steps(trainopt.folder / "job-old"), err
    assert "signal" not in summary(trainopt.folder / "job-old")["reason"]


def test_a_resume_changes_nothing_before_it_refuses_a_link(trainopt):
    run_to(trainopt, 6)
    folder = trainopt.folder / "r"
    (folder / "metrics.jsonl").rename(trainopt.folder / "elsewhere")
    (folder / "metrics.jsonl").symlink_to("../elsewhere")
    before = contents(folder)
    words = ["run", "tiny.yaml", "--quiet", "--run-dir", "r", "checkpoint.resume=r/checkpoints/step-00000002"]
    refused = trainopt(*words, *SAVES)
    assert refused.code == 8 and "symbolic link" in refused.err, refused
    after = contents(folder)
    assert {name for name, text in before.items() if after.get(name) != text} <= {Path("run.log"), Path(".lock")}


@pytest.mark.real_program
def test_a_start_that_another_overtook_leaves_its_folder_alone(trainopt):
    """The other run begins and ends between the look at the folder and its lock."""
    trainopt.write("tiny.yaml", TINY)
    env = {**preloaded(trainopt, OVERTAKEN), "OTHER": str(trainopt.folder / "new/summary.json")}
    refused = trainopt("run", "tiny.yaml", "--quiet", "--run-dir", "new", env=env)
    assert refused.code == 2 and "exists and is not empty" in refused.err, refused
    assert {path.name for path in (trainopt.folder / "new").iterdir()} == {".lock", "summary.json"}


@pytest.mark.parametrize("name", [".lock", "run.log", "metrics.jsonl"])
def test_a_symbolic_link_in_the_place_of_a_file_is_refused(trainopt, name):
    trainopt.write("tiny.yaml", TINY)
    victim = trainopt.folder / "victim"
    victim.write_text("precious\n")
    (trainopt.folder / "l").mkdir()
    (trainopt.folder / "l" / name).symlink_to("../victim")
    code = 2 if name == "metrics.jsonl" else 8  # a folder that has records is another run's
    refused = trainopt("run", "tiny.yaml", "--quiet", "--run-dir", "l")
    assert refused.code == code and (code == 2 or "symbolic link" in refused.err), refused
    assert victim.read_text() == "precious\n"
