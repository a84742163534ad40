"""The parts of a check. Each takes its settings and its result of an earlier call, and returns its result as it
appears in the JSON file: `status` (ok, failed, skipped, left out), `reason`, the measurements, and `left_out`, the
names of what there was no time for.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ladders
from peers.arms import Sides
from peers.curves import CurveCase, loss_curves
from peers.turns import Case, Pace, compare_with_ways

from .place import TOP, Place

NO_GPU = 77
LADDER = "resnet18"


@dataclass
class Check:
    place: Place
    results: Path
    on_gpu: bool
    deadline: float  # on the monotonic clock
    ways: list[str]
    overrides: list[str]  # for trainopt
    scratch: Path | None = None  # for a part's run directories, data and logs; deleted afterwards

    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def without(self) -> str:
        """The status of a part whose device or program is missing."""
        return "failed" if self.on_gpu else "skipped"

    def sides(self) -> Sides:
        return Sides(
            self.place.trainopt,
            TOP / "configs/ladder/resnet18/all.yaml",
            self.place.python,
            self.place.environment,
            self.deadline,
        )

    def run(self, command: list, log: Path) -> int | None:
        """Returns the exit code, or None if time ran out. Output goes to `log`, its end also to the terminal."""
        with open(log, "w") as file:
            process = subprocess.Popen(
                [str(word) for word in command],
                env=self.place.environment | {"TRAINOPT": str(self.place.trainopt)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout=max(1.0, self.left_s()))
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        sys.stderr.write(log.read_text()[-4000:])
        return code


@dataclass
class Part:
    name: str
    run: Callable[[Check, dict], dict]
    least_s: float  # not started with less time left


def ended(code: int | None, what: str) -> dict:
    if code is None:
        return {"status": "left out", "reason": "time ran out before it finished"}
    return {"status": "ok"} if code == 0 else {"status": "failed", "reason": f"{what} failed with exit code {code}"}


# Catch2's console output: a line of hyphens, the test's name, its indented sections, another such line, the failures.
HEADING = re.compile(r"^-{70,}\n(?P<name>.+?)\n-{70,}\n", re.MULTILINE | re.DOTALL)
FAILURE = re.compile(r"^(?P<where>\S+:\d+): FAILED:\n(?P<what>.*?)(?=^\n|\Z)", re.MULTILINE | re.DOTALL)


def failed_tests(text: str) -> list[dict]:
    """Each failed test case of Catch2's output with its first message."""
    found = {}
    pieces = HEADING.split(text)
    for name, body in zip(pieces[1::2], pieces[2::2]):
        if failure := FAILURE.search(body):
            lines = name.splitlines()
            test = " ".join(line for line in lines if not line.startswith(" "))
            sections = [line.strip() for line in lines if line.startswith(" ")]
            message = " ".join([f"{failure['where']}:", *failure["what"].split()])
            found.setdefault(test, " / ".join([*sections, message]))
    return [{"test": test, "message": message} for test, message in found.items()]


def gpu_tests(check: Check, _: dict) -> dict:
    log = check.results / "gpu.txt"
    code = check.run([check.place.test_gpu, "--durations", "yes"], log)
    if code == NO_GPU:
        return {"status": check.without(), "reason": "test_gpu found no usable GPU"}
    text = log.read_text()
    summary = re.findall(r"^(?:All tests passed|test cases:|assertions:).*$", text, re.MULTILINE)
    return {**ended(code, "test_gpu"), "summary": summary, "failed_tests": failed_tests(text)}


def kernels(check: Check, _: dict) -> dict:
    program, log = check.place.kernel_bandwidth, check.results / "kernels.txt"
    if not program.exists():
        return {"status": check.without(), "reason": "the program kernel_bandwidth is missing"}
    turns_images_device = ["9", "256", "cuda"] if check.on_gpu else ["3", "2", "cpu"]
    code = check.run([program, *turns_images_device], log)
    rows = []
    for line in log.read_text().splitlines():
        if line.startswith("{"):
            found = json.loads(line)
            rows.append({**found, "gb_per_s": found["of_copy"] * found["copy_gb_per_s"]})
    result = {**ended(code, "kernel_bandwidth"), "rows": rows}
    if result["status"] == "ok" and not rows:
        result |= {"status": "failed", "reason": "kernel_bandwidth printed no rows"}
    return result


def profile(check: Check, _: dict) -> dict:
    """Where the time of a few steps of the ladder's last rung goes."""
    folder = check.results / "profile"
    small = [] if check.on_gpu else ["data.batch_size=4", "data.transforms=[]"]
    command = [check.place.trainopt, "profile", TOP / "configs/ladder/resnet18/all.yaml", "--run-dir", folder]
    shutil.rmtree(folder, ignore_errors=True)
    code = check.run([*command, *small, *check.overrides], check.results / "profile.txt")
    result = ended(code, "trainopt profile")
    found = folder / "profile.json"
    return {**result, "breakdown_ms": json.loads(found.read_text())["breakdown_ms"]} if found.exists() else result


def ladder(check: Check, _: dict) -> dict:
    root = check.scratch / "ladder"
    small = (
        []
        if check.on_gpu
        else [
            "--steps",
            "2",
            "num_threads=1",
            "data.batch_size=4",
            "data.transforms=[{resize: 32}, {normalize: {mean: 0.5, std: 0.5}}]",
        ]
    )
    code = check.run(
        [
            TOP / "scripts/sweep",
            "--ladder",
            LADDER,
            "--run-root",
            root,
            "--budget",
            "6s" if check.on_gpu else "0",
            *small,
            *check.overrides,
        ],
        check.results / "ladder.log",
    )
    names = [rung.name for rung in ladders.rungs(LADDER)]
    tried = [root / name for name in names if (root / name).exists()]
    table = (
        subprocess.run(
            [sys.executable, TOP / "scripts/summaries.py", "table", *tried], capture_output=True, text=True
        ).stdout
        if tried
        else ""
    )
    rows, wrong, known = [], [], {}
    for name in names:
        summary, compared = (
            json.loads(file.read_text()) if file.exists() else {}
            for file in (root / name / "summary.json", root / name / "compare.json")
        )
        row = {
            "run": name,
            "status": summary.get("status", "missing"),
            **{key: summary.get(key) for key in ("samples_per_s", "step_ms", "peak_memory_mib", "reason")},
        }
        row |= {key: compared.get(key) for key in ("ratio", "interval", "verdict")}
        row["numbers_agree"] = (compared.get("numerics") or {}).get("agree")
        receipts = summary.get("receipts") or {}
        idle = {switch: own["reason"] or own["observed"] for switch, own in receipts.items() if not own["effective"]}
        row["idle"] = {switch: why for switch, why in idle.items() if switch not in known}
        known |= idle
        rows.append(row)
        if row["status"] != "done":
            wrong.append(f"{name}: {row['status']}")
        elif check.on_gpu and name != names[0] and not compared:
            wrong.append(f"{name}: not compared with the previous rung")
    result = {**ended(code, "sweep --ladder"), "rows": rows, "table": table}
    if result["status"] == "ok" and wrong:
        result |= {"status": "failed", "reason": "; ".join(wrong)}
    return result


def against_pytorch(case: Case, pace: Pace):
    def run(check: Check, earlier: dict) -> dict:
        """Continues with the ways that an earlier call had no time for."""
        rows, failed = earlier.get("rows", []), earlier.get("failed", {})
        known = {row["PyTorch"] for row in rows} | set(failed)
        ways = [way for way in check.ways if way not in known]
        found = compare_with_ways(check.sides(), case, ways, pace, check.scratch, check.overrides)
        found["rows"], found["failed"] = rows + found["rows"], failed | found["failed"]
        status = "failed" if found["failed"] else "left out" if found["left_out"] else "ok"
        reasons = [f"{way}: {why}" for way, why in found["failed"].items()]
        return {"status": status, **({"reason": "; ".join(reasons)} if reasons else {}), **found}

    return run


def curves(case: CurveCase):
    def run(check: Check, _: dict) -> dict:
        found = loss_curves(check.sides(), case, check.scratch, check.overrides)
        judged = (
            {"status": "ok"}
            if found["within"]
            else {"status": "failed", "reason": "trainopt and PyTorch differ more than two seeds do"}
        )
        return {**judged, **found}

    return run


def parts(on_gpu: bool) -> list[Part]:
    if on_gpu:
        pace = Pace(turn_s=1.0, warmup_steps=12, pairs=8)
        peers = [
            Part(name, against_pytorch(Case(model, batch, 224), pace), least_s=60)
            for name, model, batch in (
                ("peers-resnet18-1024", "resnet18", 1024),
                ("peers-resnet18-32", "resnet18", 32),
                ("peers-resnet50-256", "resnet50", 256),
            )
        ]
        compared = CurveCase("resnet18", batch=32, side=128, steps=200)
    else:
        # One thread: at this size several threads wait for each other longer than they compute, above all on a busy
        # machine.
        pace = Pace(turn_s=0.3, warmup_steps=2, pairs=3)
        peers = [Part("peers-resnet18-4", against_pytorch(Case("resnet18", 4, 32, threads=1), pace), least_s=5)]
        # At smaller sizes the last normalizations are over four values, and rounding alone drives two runs as far apart
        # as two seeds.
        compared = CurveCase("resnet18", batch=8, side=64, steps=12, threads=1)
    least_s = 30 if on_gpu else 2
    return [
        Part("tests", gpu_tests, least_s),
        Part("kernels", kernels, least_s),
        Part("profile", profile, least_s),
        *peers,
        Part("curves", curves(compared), least_s),
        Part("ladder", ladder, 2 * least_s),
    ]
