"""Measures trainopt against each way to run the same job in PyTorch, in pairs of turns A B B A; the fastest way then
gets more pairs."""

import contextlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import common

from .arms import Arm, ArmFailed, Sides, torch_arm, trainopt_arm


@dataclass
class Case:
    """A job for both sides, on one random batch that stays on the device."""

    model: str
    batch: int
    side: int
    classes: int = 10
    threads: int | None = None  # of both sides; None, for jobs on a GPU: each side chooses

    @property
    def name(self) -> str:
        return f"{self.model} batch {self.batch} {self.side} px"

    def overrides(self) -> list[str]:
        return [
            f"model={{name: {self.model}, num_classes: {self.classes}}}",
            f"data={{dataset: synthetic, image_size: {self.side}, batch_size: {self.batch}, transforms: null}}",
            *([f"num_threads={self.threads}"] if self.threads else []),
        ]

    def options(self) -> dict:
        return {
            "model": self.model,
            "classes": self.classes,
            "batch": self.batch,
            "side": self.side,
            "threads": self.threads,
            "learning-rate": 0.001,
        }


@dataclass
class TransformerCase(Case):
    """gpt2 as in configs/ladder/gpt2/all.yaml, or vit_s_16; every switch on, in one type of number."""

    dtype: str = "bf16"

    @property
    def name(self) -> str:
        size = "256 tokens" if self.model == "gpt2" else f"{self.side} px"
        return f"{self.model} batch {self.batch} {size} {self.dtype}"

    def overrides(self) -> list[str]:
        data = f"dataset: synthetic, batch_size: {self.batch}"
        if self.model != "gpt2":
            data += f", image_size: {self.side}, transforms: null"
        return [
            f"data={{{data}}}",
            "optimizer={name: adamw, lr: 0.001, weight_decay: 0.1, no_decay: null}",
            "train.max_grad_norm=null",
            "scheduler=null",
            *(["optimizations.amp=null"] if self.dtype == "fp32" else []),
            *([f"num_threads={self.threads}"] if self.threads else []),
        ]


@dataclass
class Pace:
    turn_s: float
    warmup_steps: int  # of each side; they include cuDNN's trials, compilation and graph recording
    pairs: int  # with each way
    more_pairs: int = 0  # with the fastest; they replace its first pairs


class Runner:
    """Turns of one arm, each about `turn_s` long."""

    def __init__(self, arm: Arm, pace: Pace, batch: int):
        self.arm, self.batch = arm, batch
        arm.turn(pace.warmup_steps)
        trial = arm.turn(max(1, pace.warmup_steps // 2))
        self.steps = max(1, round(pace.turn_s * trial["steps"] / trial["seconds"]))

    def __call__(self) -> float:
        """Runs a turn and returns its images/s."""
        return self.batch * self.steps / self.arm.turn(self.steps)["seconds"]


def row(case: Case, way: str, pairs: list, arm: Arm) -> dict:
    return {
        "case": case.name,
        "PyTorch": way,
        **common.ratio_interval(pairs),
        "first_step_s": round(arm.first_step_s, 1),
        "peak_memory_mib": arm.facts()["peak_memory_mib"],
    }


def compare_with_ways(
    sides: Sides, case: Case, ways: list[str], pace: Pace, folder: Path, overrides: list[str]
) -> dict:
    """{"rows": one per way, "fastest": way, "failed": {name: why}, "left_out": [way], "trainopt": its own facts}. Ways
    are left out if time runs out; the first pairs determine the fastest."""
    rows, failed, left_out, kept = {}, {}, [], None
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as open_arms:
        ours = open_arms.enter_context(trainopt_arm(sides, folder, [*case.overrides(), *overrides]))
        our_turn, facts = Runner(ours, pace, case.batch), ours.facts()

        def take_pairs(way: str, theirs: Arm, their_turn: Runner, pairs: int) -> None:
            rows[way] = row(case, way, common.abba(our_turn, their_turn, pairs), theirs)

        def has_time(pairs: int) -> bool:
            return time.monotonic() + 2.5 * pace.turn_s * pairs < sides.deadline

        def lost(way: str, failure: ArmFailed) -> None:
            if time.monotonic() > sides.deadline:
                left_out.append(way)
            else:
                failed[way if ours.process.poll() is None else "trainopt"] = str(failure)

        for way in ways:
            if not has_time(pace.pairs):
                left_out.append(way)
                continue
            print(f"{case.name}: against {way}", file=sys.stderr, flush=True)
            try:
                with contextlib.ExitStack() as own:
                    theirs = own.enter_context(torch_arm(sides, folder, way, case.options()))
                    their_turn = Runner(theirs, pace, case.batch)
                    take_pairs(way, theirs, their_turn, pace.pairs)
                    if pace.more_pairs and (kept is None or rows[way]["ratio"] < rows[kept[0]]["ratio"]):
                        if kept:
                            kept[1].close()
                        kept = way, open_arms.enter_context(own.pop_all()), theirs, their_turn
            except ArmFailed as failure:
                lost(way, failure)
                if "trainopt" in failed:
                    break
        best = fastest(list(rows.values()))
        if kept and "trainopt" not in failed and has_time(pace.more_pairs):
            way, _, theirs, their_turn = kept
            print(f"{case.name}: more pairs against {way}", file=sys.stderr, flush=True)
            try:
                take_pairs(way, theirs, their_turn, pace.more_pairs)
            except ArmFailed as failure:
                lost(way, failure)  # it keeps the row of its first pairs
    switches = {name: receipt["effective"] for name, receipt in facts["receipts"].items()}
    said = {"first_step_s": round(ours.first_step_s, 1), "peak_memory_mib": facts["peak_memory_mib"]}
    return {
        "case": case.name,
        "rows": list(rows.values()),
        "fastest": best and best["PyTorch"],
        "failed": failed,
        "left_out": left_out,
        "trainopt": {**said, "effective": switches},
    }


def fastest(rows: list[dict], beginning: str = "") -> dict | None:
    """The row with the smallest ratio among the ways whose name starts with `beginning`."""
    return min(
        (row for row in rows if row["PyTorch"].startswith(beginning)), key=lambda row: row["ratio"], default=None
    )
