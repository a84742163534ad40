"""Lets two endless training programs take turns: one is stopped while the other runs, so both see the same state of the
machine.

Each side writes one JSON line per step with `step_ms`, the wall time between two step boundaries on its own monotonic
clock (trainopt: metrics.jsonl; the Python scripts here write the same). The clock runs on while a process is stopped:
the step in which it was stopped lasts as long as the other side's whole turn, so it is recognised by its length and
dropped. That step also ran on caches filled by the other side. The steps between two dropped steps form one block.

A turn must therefore be much longer than a step. Turns go A B A B … A. Every turn except the first and last is compared
with the mean of the other side's turns before and after it, so that drift of the machine cancels.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """The process and all its descendants: DataLoader's workers must be stopped too."""
    found, waiting = [], [pid]
    while waiting:
        each = waiting.pop()
        found.append(each)
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                waiting += map(int, children.read_text().split())
            except OSError:
                pass  # the thread ended meanwhile
    return found


@dataclass
class Side:
    name: str
    command: list[str]
    steps_file: Path  # one JSON line per step, appended while it runs
    log_file: Path
    items_per_step: int
    process: subprocess.Popen = field(default=None, init=False)
    measured_steps: int = field(default=0, init=False)

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdout=open(self.log_file, "w"), stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )

    def signal(self, number: int) -> None:
        for pid in descendants(self.process.pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def steps_done(self) -> int:
        return self.steps_file.read_bytes().count(b"\n") if self.steps_file.exists() else 0

    def check_alive(self) -> None:
        if self.process.poll() is not None:
            sys.exit(
                f"{self.name} exited with code {self.process.returncode} during the measurement:\n"
                f"{self.log_file.read_text()[-3000:]}"
            )

    def step_seconds(self) -> list[float]:
        lines = self.steps_file.read_text().splitlines()[: self.measured_steps]
        return [json.loads(line)["step_ms"] / 1e3 for line in lines]


class Alternator:
    def __init__(
        self, ours: Side, theirs: Side, turn_s: float, seconds: float, warmup_steps: int = 3, start_limit_s: float = 120
    ):
        self.sides, self.turn_s, self.warmup_steps, self.start_limit_s = (
            (ours, theirs),
            turn_s,
            warmup_steps,
            start_limit_s,
        )
        self.turns = max(5, int(seconds / turn_s) // 2 * 2 + 1)  # odd: A B … A

    def run(self) -> list[tuple[float, float]]:
        """(our items/s, their items/s) for each turn except the first and last: the rate of the turn itself, and the
        mean rate of the other side's turns before and after it.
        """
        ours, theirs = self.sides
        try:
            self._warm_up(ours)
            stopped = time.monotonic()
            self._warm_up(theirs)
            time.sleep(max(0.0, stopped + self.turn_s - time.monotonic()))  # a stop is recognised if it lasts a turn
            for turn in range(self.turns):
                side = self.sides[turn % 2]
                side.check_alive()
                side.signal(signal.SIGCONT)
                time.sleep(self.turn_s)
                side.signal(signal.SIGSTOP)
            for side in self.sides:
                side.measured_steps = side.steps_done()  # later steps belong to the shutdown
        finally:
            self._end()
        rates: list[float | None] = [None] * self.turns
        rates[0::2], rates[1::2] = self._rates(ours), self._rates(theirs)
        pairs = []
        for turn in range(1, self.turns - 1):
            before, own, after = rates[turn - 1 : turn + 2]
            if before and own and after:
                around = statistics.fmean((before, after))
                pairs.append((own, around) if turn % 2 == 0 else (around, own))
        for ours_rate, theirs_rate in pairs:
            print(
                f"  {ours.name} {ours_rate:.2f}/s against {theirs.name} {theirs_rate:.2f}/s, "
                f"{ours_rate / theirs_rate:.3f}×",
                file=sys.stderr,
            )
        return pairs

    def _warm_up(self, side: Side) -> None:
        side.start()
        limit = time.monotonic() + self.start_limit_s
        while side.steps_done() < self.warmup_steps:
            side.check_alive()
            if time.monotonic() > limit:
                sys.exit(
                    f"{side.name} completed only {side.steps_done()} steps in {self.start_limit_s:.0f} s:\n"
                    f"{side.log_file.read_text()[-3000:]}"
                )
            time.sleep(0.05)
        side.signal(signal.SIGSTOP)

    def _end(self) -> None:
        for side in self.sides:
            if side.process is None or side.process.poll() is not None:
                continue
            side.signal(signal.SIGCONT)
            side.process.send_signal(signal.SIGTERM)  # trainopt finishes its step, writes its results and exits
            try:
                side.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                side.signal(signal.SIGKILL)
                side.process.wait()

    def _rates(self, side: Side) -> list[float | None]:
        """Items/s of each turn; None for a turn without a complete step. The block before the first stop is warm-up."""
        turns = (self.turns + 1) // 2 if side is self.sides[0] else self.turns // 2
        steps = side.step_seconds()
        stopped = sorted(
            sorted(range(len(steps)), key=steps.__getitem__)[-turns:]
        )  # the longest steps: each lasted at least the other side's turn
        if len(stopped) < turns or any(steps[step] < 0.95 * self.turn_s for step in stopped):
            sys.exit(f"{side.name} has steps too long for turns of {self.turn_s} s: raise --turn")
        blocks = [steps[first + 1 : end] for first, end in zip(stopped, [*stopped[1:], len(steps)])]
        return [side.items_per_step * len(block) / sum(block) if block else None for block in blocks]
