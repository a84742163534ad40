"""A job of two ranks that is disturbed for an hour, in all ways that may happen to a job, and ends with the bits of one
that was left alone."""

import os
import random
import resource
import shutil
import signal
import time

import pytest

from conftest import PROGRAM, records, saved_steps, summary
from ranks import ENDLESS, RECIPE, Ranks, process_of, weights

MINUTES = float(os.environ.get("TRAINOPT_SOAK_MINUTES", "60"))
SMALL_FILES = 20_000  # bytes: less than a checkpoint, more than its recipe


class Job:
    """Its folder has several names in turn: `name` is the one by which it is started next."""

    def __init__(self, trainopt, dice):
        self.trainopt, self.dice, self.folder = trainopt, dice, trainopt.folder
        self.name, self.names = "job-0", 1

    @property
    def path(self):
        return self.folder / self.name

    def start(self, *words, before=None):
        self.job = Ranks(self.trainopt).start(
            [PROGRAM, "launch", "-n", 2, "--", "run", "tiny.yaml", "--quiet", "--run-dir", self.name]
            + ["checkpoint={every_n_steps: 7, resume: auto, keep_last: 3}", "parallel.timeout=20s", ENDLESS, *words],
            before=before,
        )
        self.job.until(lambda: process_of(self.job, 1), 60)
        time.sleep(self.dice.uniform(0, 4))

    def end(self):
        launcher = self.job.processes[0]
        launcher.send_signal(signal.SIGKILL)
        launcher.wait(60)

    def new_name(self):
        self.names += 1
        return f"job-{self.names}"

    # What may happen.
    def killed(self):
        self.start()
        for rank in self.dice.sample([0, 1], self.dice.randint(1, 2)):
            if pid := process_of(self.job, rank):
                os.kill(pid, signal.SIGKILL)
        self.job.ended(120)

    def launcher_killed(self):
        self.start()
        self.end()

    def stopped(self):
        self.start()
        self.job.processes[0].send_signal(self.dice.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))
        self.job.ended(120)

    def asked_to_save(self):
        self.start()
        self.job.processes[0].send_signal(signal.SIGUSR2)
        time.sleep(self.dice.uniform(0, 1))
        self.end()

    def renamed(self):
        """While it runs; the name stays free or is taken, and what took it is removed again."""
        self.start()
        if not self.path.exists():
            return self.end()
        old, self.name = self.path, self.new_name()
        old.rename(self.path)
        if self.dice.random() < 0.5:
            old.mkdir()
            (old / "precious").write_text("precious")
            time.sleep(self.dice.uniform(0, 3))
            assert [path.name for path in old.iterdir()] == ["precious"], "another's folder is not touched"
            shutil.rmtree(old)
        self.end()

    def linked(self):
        if self.path.exists() and not self.path.is_symlink():
            moved = self.folder / self.new_name()
            self.path.rename(moved)
            self.path.symlink_to(moved.name)
        self.launcher_killed()

    def checkpoints_moved(self):
        checkpoints = self.path / "checkpoints"
        if checkpoints.exists() and not checkpoints.is_symlink():
            moved = self.folder / f"disk-{self.new_name()}"
            checkpoints.rename(moved)
            checkpoints.symlink_to(moved)
        self.launcher_killed()

    def full_disk(self):
        """No file may become larger: each write beyond fails, as on a full disk."""
        self.start(before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_FILES, SMALL_FILES)))
        self.end()


@pytest.mark.full
def test_a_job_that_is_disturbed_for_an_hour_ends_with_the_bits_of_one_left_alone(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    dice = random.Random(1)
    job = Job(trainopt, dice)
    happenings = [job.killed, job.launcher_killed, job.stopped, job.asked_to_save, job.renamed, job.linked]
    happenings += [job.checkpoints_moved, job.full_disk]
    end, newest, counts = time.monotonic() + 60 * MINUTES, 0, dict.fromkeys((each.__name__ for each in happenings), 0)
    while time.monotonic() < end:
        happening = dice.choice(happenings)
        happening()
        counts[happening.__name__] += 1
        if (job.path / "checkpoints").exists():
            verified = trainopt("checkpoint", "verify", job.name)
            assert verified.code == 0, (happening.__name__, verified)
            now = saved_steps(job.path.resolve())[-1]
            assert now >= newest, (happening.__name__, "no saved step is ever lost")
            newest = now
    assert newest > 0 and (MINUTES < 30 or all(counts.values())), counts
    job.start(f"train.max_steps={newest + 10}")
    (result,) = job.job.ended()
    assert result.code == 0, result
    alone = Ranks(trainopt).start(
        [PROGRAM, "launch", "-n", 2, "--", "run", "tiny.yaml", "--quiet", "--run-dir", "alone"]
        + [f"train.max_steps={newest + 10}"]
    )
    assert alone.ended(3600)[0].code == 0
    assert summary(job.path)["steps"] == newest + 10
    assert weights(job.path) == weights(trainopt.folder / "alone")
    steps = [row["step"] for row in records(job.path)]
    assert steps == sorted(set(steps)), "no step is recorded twice; a full disk has cost some"
