#!/usr/bin/env python3
"""Sends SIGKILL at random moments of a save, many times on one run directory. Each time a complete checkpoint must
remain, the old one or the new one, and the run resumed from it must end bit-identical to an undisturbed run.

  kill_saves.py --saver build/tests/faults/saver [--kills 1000] [--seed 1] [--record tests/results/kills.md]

The training run saves after every step. Seven kills in eight come at a random moment of the first three saves, the
others during startup (taking the lock, removing leftovers, reading the checkpoint). After each kill, before anything is
removed, these are checked:
  - every folder with a checkpoint's name is complete and matches its hashes, and so is the target of `latest`;
  - no checkpoint is lost that existed before or was reported as saved; of the saves begun at most the last two are
    missing, one being written and one about to start;
  - the next start resumes from the newest checkpoint.
"""

import argparse
import filecmp
import os
import platform
import random
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
KILLED = 128 + signal.SIGKILL
START_STEPS = 12  # run undisturbed, to measure how long starts and saves take
MOST_STEPS = 10**6


class Failure(Exception):
    pass


class Saver:
    """The program of saver.cpp; the protocol is described there."""

    def __init__(self, binary: Path):
        self.process = subprocess.Popen([str(binary)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pending = b""

    def command(self, *words) -> None:
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()

    def line(self, until: float | None = None) -> list[str] | None:
        """The words of the next answer; None if none arrives before `until`."""
        while b"\n" not in self.pending:
            wait = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([self.process.stdout], [], [], wait)[0]:
                return None
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise Failure(f"the saver itself ended: {self.process.wait()}")
            self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        text = line.decode()
        if text.startswith("broken"):
            raise Failure(text)
        return text.split()

    def check(self, folder: Path) -> tuple[list[int], int, int]:
        """Returns (steps of all checkpoints, step of `latest`, number of drafts)."""
        self.command("check", folder)
        whole, latest, drafts = self.line(), self.line(), self.line()
        return [int(step) for step in whole[1:]], int(latest[1]), int(drafts[1])


class Episode:
    """One start of the training run, and how far it got."""

    def __init__(self, saver: Saver, folder: Path, steps: int, quietly: bool = False):
        self.saver, self.pid, self.ended = saver, None, None
        self.resumed, self.saving, self.saved = None, [], 0
        self.times = []  # of each `saving` answer, in seconds since the start
        saver.command("run", folder, steps, *(["quietly"] if quietly else []))
        self.began = time.monotonic()

    def process_answer(self, until: float | None = None) -> bool:
        """Processes one answer. Returns False at the end of the run, or if no answer arrived in time."""
        words = self.saver.line(until)
        if words is None:
            return False
        what, number = words[0], int(words[1])
        if what == "process":
            self.pid = number
        elif what == "resumed":
            self.resumed = number
        elif what == "saving":
            self.saving.append(number)
            self.times.append(time.monotonic() - self.began)
        elif what == "saved":
            self.saved = number
        elif what == "ended":
            self.ended = number
        else:
            raise Failure(f"unknown answer: {words}")
        return self.ended is None

    def finish(self) -> None:
        while self.process_answer():
            pass
        if self.ended != 0:
            raise Failure(f"ended with {self.ended} although it was not killed")

    def kill_after(self, seconds: float, first_save: bool) -> None:
        """Kills the run `seconds` after its start or, with `first_save`, after its first save began."""
        while self.pid is None or (first_save and not self.saving):
            if not self.process_answer():
                raise Failure(f"ended with {self.ended} before it was killed")
        until = (self.began + self.times[0] if first_save else self.began) + seconds
        while self.process_answer(until):
            pass
        if self.ended is None:
            os.kill(self.pid, signal.SIGKILL)
            while self.process_answer():
                pass
        if self.ended != KILLED:
            raise Failure(f"ended with {self.ended} before it was killed")


class Kills:
    def __init__(self, saver: Saver, folder: Path, seed: int):
        self.saver, self.folder, self.random = saver, folder, random.Random(seed)
        self.old = self.new = self.while_starting = self.with_drafts = self.link_behind = 0
        self.save_s = None  # recent average time of a step with its save
        first = Episode(saver, folder, START_STEPS)
        first.finish()
        self._learn(first)
        second = Episode(saver, folder, START_STEPS + 3)
        second.finish()
        self.start_s = second.times[0]
        self.newest = self._check(START_STEPS + 3, START_STEPS + 3, START_STEPS + 3)

    def _learn(self, episode: Episode) -> None:
        """Updates the average: the speed of a shared disk varies, and the times of kills must follow it."""
        for before, after in zip(episode.times[1:], episode.times[2:]):
            self.save_s = after - before if self.save_s is None else 0.8 * self.save_s + 0.2 * (after - before)

    def _check(self, least: int, most: int, called_saved: int) -> int:
        steps, latest, drafts = self.saver.check(self.folder)
        if not steps:
            raise Failure("no checkpoint is left")
        if not least <= steps[-1] <= most:
            raise Failure(f"the newest checkpoint is of step {steps[-1]}, not from {least} to {most}")
        if latest < called_saved or latest not in steps:
            raise Failure(f"latest points to step {latest}, but step {called_saved} was reported saved; found: {steps}")
        self.with_drafts += drafts > 0
        self.link_behind += latest != steps[-1]
        return steps[-1]

    def kill(self) -> None:
        starting = self.random.random() < 1 / 8
        episode = Episode(self.saver, self.folder, MOST_STEPS)
        episode.kill_after(
            self.random.uniform(0, self.start_s if starting else 3 * self.save_s), first_save=not starting
        )
        if episode.resumed not in (None, self.newest):
            raise Failure(f"resumed from step {episode.resumed}, but the newest checkpoint was of step {self.newest}")
        begun = episode.saving[-1] if episode.saving else self.newest
        now = self._check(max(self.newest, episode.saved, begun - 2), begun, episode.saved)
        self._learn(episode)
        self.while_starting += not episode.saving
        self.old += now == self.newest
        self.new += now > self.newest
        self.newest = now

    def compare_with_undisturbed(self, other: Path) -> int:
        """Trains three more steps and compares all bytes of the state with those of an undisturbed run. Returns the
        number of steps."""
        end = self.newest + 3
        Episode(self.saver, self.folder, end).finish()
        Episode(self.saver, other, end, quietly=True).finish()
        self._check(end, end, end)
        file = f"checkpoints/step-{end:08}/rank-0000.safetensors"
        if not filecmp.cmp(self.folder / file, other / file, shallow=False):
            raise Failure(
                f"after {end} steps the state differs from that of an undisturbed run: {self.folder / file}, "
                f"{other / file}"
            )
        return end


def what_is_tested() -> dict:
    """Read at the start, because the checkout may change meanwhile."""
    git = ["git", "-C", str(HERE)]
    commit = (
        subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True).stdout.strip()
        or "unknown"
    )
    changed = subprocess.run(
        [*git, "status", "--porcelain", "-uno", "--", ":/lib", ":/tests/faults"], capture_output=True, text=True
    ).stdout
    cpu = next(
        (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    return {
        "commit": commit + ("+changes" if changed else ""),
        "machine": f"{cpu}, {len(os.sched_getaffinity(0))} cores",
    }


def record(path: Path, row: dict) -> None:
    path.parent.mkdir(exist_ok=True)
    with open(path, "a") as file:
        if file.tell() == 0:
            file.write(
                "# SIGKILL during saves\nResults of `tests/faults/kill_saves.py`, newest last. Its docstring says "
                "what it checks.\n\n"
            )
            file.write("| " + " | ".join(row) + " |\n" + "|---" * len(row) + "|\n")
        file.write("| " + " | ".join(map(str, row.values())) + " |\n")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--saver", type=Path, required=True, help="the program built from saver.cpp")
    options.add_argument("--kills", type=int, default=1000)
    options.add_argument(
        "--seed", type=int, default=1, help="seed of the kill times; what a kill interrupts also depends on the machine"
    )
    options.add_argument("--record", type=Path, help="append a row to this file")
    chosen = options.parse_args()
    began, tested = time.monotonic(), what_is_tested()
    folder = Path(tempfile.mkdtemp(prefix="trainopt-kills-"))
    for name in ("run", "undisturbed"):
        (folder / name).mkdir()
    saver = Saver(chosen.saver)
    done = 0
    try:
        kills = Kills(saver, folder / "run", chosen.seed)
        print(
            f"initially a start takes {1e3 * kills.start_s:.0f} ms, a step with its save {1e3 * kills.save_s:.0f} ms",
            flush=True,
        )
        while done < chosen.kills:
            kills.kill()
            done += 1
        steps = kills.compare_with_undisturbed(folder / "undisturbed")
    except Failure as failure:
        sys.exit(f"failed after {done} survived kills, seed {chosen.seed}: {failure}\nleft for inspection: {folder}")
    print(
        f"killed during startup: {kills.while_starting}; left a draft: {kills.with_drafts}; `latest` one behind: "
        f"{kills.link_behind}"
    )
    print(
        f"{done} kills: {done} times a complete checkpoint ({kills.old} old, {kills.new} new); after {steps} steps the "
        "state is identical"
    )
    if chosen.record:
        command = shlex.join(["tests/faults/kill_saves.py", "--kills", str(done), "--seed", str(chosen.seed)])
        row = {
            **tested,
            "command": f"`{command}`",
            "kills": done,
            "whole checkpoint left": done,
            "old": kills.old,
            "new": kills.new,
            "while starting": kills.while_starting,
            "left a draft": kills.with_drafts,
            "`latest` one behind": kills.link_behind,
            "state after the last step": f"identical ({steps} steps)",
            "minutes": round((time.monotonic() - began) / 60, 1),
        }
        record(chosen.record, row)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
