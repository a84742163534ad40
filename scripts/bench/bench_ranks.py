"""Training on two ranks on CPUs over Gloo, ResNet-18 in float32, one thread per rank: DDP, ZeRO-3, ZeRO-2 and ZeRO-1
against PyTorch's DistributedDataParallel, fully_shard and ZeroRedundancyOptimizer; and the cost of communication.

A block is a separate job, from start to end, without its first steps. Blocks run A B B A A B …. Each side first tries a
few settings, one after another, and keeps the faster ones; the rows name them.
"""

import argparse
import contextlib
import json
import os
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import common

RANKS = 2
SIDE, CLASSES = 64, 1000
LEAD_STEPS = 5  # skipped at the start of a job, and at its end if a concurrent job may already have finished
JOB_LIMIT_S = 300


class JobFailed(Exception):
    pass


def end(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_concurrently(commands: list[list[str]], log: Path) -> None:
    """Runs all commands at the same time and waits for all of them."""
    with open(log, "w") as output:
        processes = [
            subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            for command in commands
        ]
        limit = time.monotonic() + JOB_LIMIT_S
        try:
            codes = [process.wait(timeout=max(0.0, limit - time.monotonic())) for process in processes]
        except subprocess.TimeoutExpired:
            codes = [f"no exit after {JOB_LIMIT_S} s"]
        finally:
            end(processes)
    if any(codes):
        errors = [line for line in log.read_text().splitlines() if "Error: " in line or line.startswith("trainopt: ")]
        raise JobFailed(
            f"{shlex.join(commands[0])}\nexited with {codes}: {errors[0] if errors else log.read_text()[-1000:]}"
        )


@dataclass
class Arm:
    """One side of a row: its command, its setting, and all measured steps, block by block."""

    name: str
    chosen: argparse.Namespace
    folder: Path
    setting: dict = field(default_factory=dict)
    link: str | None = None  # the network namespace that the ranks run in
    alone: bool = False  # two independent one-rank jobs instead of one two-rank job
    blocks: list[list[dict]] = field(default_factory=list)

    def command(self, steps: int, steps_file: Path) -> list[str]:
        raise NotImplementedError

    def run(self, measured: int) -> list[dict]:
        """Runs one job and returns its measured steps."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        steps = LEAD_STEPS + measured + (LEAD_STEPS if self.alone else 0)
        files = [self.folder / f"job-{number}" / "metrics.jsonl" for number in range(RANKS if self.alone else 1)]
        inside = ["ip", "netns", "exec", self.link] if self.link else []
        run_concurrently([[*inside, *self.command(steps, file)] for file in files], self.folder / "log")
        lines = [json.loads(line) for line in files[0].read_text().splitlines()]
        losses = [line["loss"] for line in lines]
        print(f"    {self.name}: loss {' '.join(f'{loss:.3f}' for loss in losses[:3])} …", file=sys.stderr, flush=True)
        if len(lines) != steps or not all(loss is not None and abs(loss) < 1e4 for loss in losses):
            raise JobFailed(f"{self.name}: {len(lines)} steps instead of {steps}, losses {losses}")
        return lines[LEAD_STEPS : LEAD_STEPS + measured]

    def measure(self) -> float:
        """Measures a block and returns its samples/s."""
        self.blocks.append(self.run(self.chosen.steps))
        return RANKS * self.chosen.batch / median_ms(self.blocks[-1]) * 1e3

    def choose(self, keys: dict[str, list]) -> "Arm":
        """Starts with the first value of each key, then tries the others, key by key, and keeps the faster one."""
        self.setting |= {key: values[0] for key, values in keys.items()}
        best = self._try("initial setting")
        for key, values in keys.items():
            for value in values[1:]:
                before, self.setting = self.setting, self.setting | {key: value}
                try:
                    took = self._try(f"{key}={json.dumps(value)}")
                except JobFailed as failure:
                    print(f"    {self.name}, {key}={json.dumps(value)}: failed: {failure}", file=sys.stderr)
                    took = best
                if took < best:
                    best = took
                else:
                    self.setting = before
        return self

    def _try(self, what: str) -> float:
        took = median_ms(self.run(self.chosen.try_steps))
        print(f"    {self.name}, {what}: {took:.0f} ms", file=sys.stderr, flush=True)
        return took

    def settings_text(self) -> str:
        return ", ".join(f"{key.split('.')[-1]}={json.dumps(value)}" for key, value in self.setting.items())


def recipe(batch: int) -> dict:
    return {
        "name": "bench-ranks",
        "device": "cpu",
        "num_threads": 1,
        "model": {"name": "resnet18", "num_classes": CLASSES},
        "data": {"dataset": "synthetic", "image_size": SIDE, "batch_size": batch},
        "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9},
        "checkpoint": {"at_end": False},
        "logging": {"sinks": ["jsonl"]},
    }


def overrides(setting: dict) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in setting.items()]


class Trainopt(Arm):
    def command(self, steps: int, steps_file: Path) -> list[str]:
        job = recipe(self.chosen.batch) | {"train": {"max_steps": steps}}
        file = common.write_recipe(self.folder, job, "recipe")
        launch = [] if self.alone else ["launch", "-n", str(RANKS), "--"]
        run = ["run", str(file), "--run-dir", str(steps_file.parent), "--quiet"]
        return [str(common.trainopt_binary()), *launch, *run, *overrides(self.setting), *self.chosen.override]


@dataclass
class PyTorch(Arm):
    strategy: str = "ddp"

    def command(self, steps: int, steps_file: Path) -> list[str]:
        steps_file.parent.mkdir(exist_ok=True)
        launch = [] if self.alone else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        options = {
            "strategy": "alone" if self.alone else self.strategy,
            "batch": self.chosen.batch,
            "side": SIDE,
            "classes": CLASSES,
            "steps": steps,
            "steps-file": steps_file,
            "setting": json.dumps(self.setting),
        }
        words = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
        return [sys.executable, *launch, str(common.HERE / "peer_ranks.py"), *words]


# ---- rows ----


def median_ms(steps: list[dict], key: str = "step_ms") -> float:
    return statistics.median(step[key] for step in steps)


def interval(pairs: list[tuple[list[dict], list[dict]]], draws: int = 2000) -> tuple[float, float]:
    """95 % bootstrap interval of the geometric mean over the pairs of median ÷ median; resamples the pairs and, within
    each pair, the steps."""
    source = random.Random(0)

    def again(steps: list[dict]) -> float:
        return median_ms(source.choices(steps, k=len(steps)))

    drawn = sorted(
        statistics.geometric_mean([again(above) / again(below) for above, below in source.choices(pairs, k=len(pairs))])
        for _ in range(draws)
    )
    return drawn[int(0.025 * draws)], drawn[int(0.975 * draws) - 1]


def compare(what: str, above: Arm, below: Arm, chosen) -> dict:
    """The row for the step time of `above` ÷ that of `below`."""
    print(
        f"{what}: {above.name} ({above.settings_text()}) ÷ {below.name} ({below.settings_text()})",
        file=sys.stderr,
        flush=True,
    )
    common.abba(below.measure, above.measure, chosen.pairs)
    pairs = list(zip(above.blocks, below.blocks))
    low, high = interval(pairs)
    steps = [[step for block in arm.blocks for step in block] for arm in (above, below)]
    exposed = [median_ms(own, "comm_exposed_ms") for own in steps if own[0].get("comm_exposed_ms") is not None]
    return {
        "row": what,
        "ratio": f"{statistics.geometric_mean([median_ms(a) / median_ms(b) for a, b in pairs]):.3f}",
        "interval": f"{low:.3f} … {high:.3f}",
        "pairs": chosen.pairs,
        "of step times": f"{above.name} ÷ {below.name}",
        "ms": " ÷ ".join(f"{median_ms(own):.0f}" for own in steps),
        "trainopt waits, ms": " ÷ ".join(f"{value:.1f}" for value in exposed),
        "settings": f"{above.settings_text() or 'none'} ÷ {below.settings_text() or 'none'}",
    }


FORMATS = [False, True]
# What each side tries, starting with the first value of each key.
OUR_LOOP = {"optimizations.channels_last": FORMATS, "optimizations.set_to_none": [True, False]}
OUR_FUSED = {"optimizations.fused_optimizer": [True], **OUR_LOOP}
OUR_ALL = {"optimizations.host_allocator": [True], **OUR_FUSED}
DDP = {
    "channels_last": FORMATS,
    "gradient_as_bucket_view": [True, False],
    "broadcast_buffers": [True, False],
    "static_graph": [False, True],
    "set_to_none": [True, False],
}
LOOPS = {"optimizer": ["foreach", "loop"]}
ANY = {"optimizer": ["fused", "foreach", "loop"]}
SHARDED = {**LOOPS, "channels_last": FORMATS}  # the fused update is not available for sharded parameters
ZERO_REDUNDANCY = {
    **ANY,
    "channels_last": FORMATS,
    "gradient_as_bucket_view": [True, False],
    "parameters_as_bucket_view": [True, False],
}

# row: (parallel.sharding_strategy, what trainopt tries, what PyTorch tries in each equivalent strategy)
AGAINST_PYTORCH = {
    "ddp": ("none", OUR_LOOP, {"ddp": {**LOOPS, **DDP}}),
    "ddp-fused": ("none", OUR_FUSED, {"ddp": {"optimizer": ["fused"], **DDP}}),
    "ddp-all": ("none", OUR_ALL, {"ddp": {**ANY, **DDP}}),
    "zero3": ("zero3", OUR_FUSED, {"fully_shard": SHARDED}),
    "zero2": ("zero2", OUR_FUSED, {"fully_shard_keep": SHARDED, "zero_redundancy": ZERO_REDUNDANCY}),
    "zero1": ("zero1", OUR_FUSED, {"zero_redundancy": ZERO_REDUNDANCY, "fully_shard_keep": SHARDED}),
}


def against_pytorch(row: str, chosen, folder: Path) -> list[dict]:
    strategy, tried, theirs = AGAINST_PYTORCH[row]
    setting = {"parallel.sharding_strategy": strategy}
    ours = Trainopt("trainopt", chosen, folder / "ours", setting).choose(tried)
    rows = []
    for name, keys in theirs.items():
        peer = PyTorch(name, chosen, folder / "theirs", strategy=name).choose(keys)
        rows.append(compare(row, peer, Trainopt("trainopt", chosen, folder / "ours", ours.setting), chosen))
    return rows


def communication(chosen, folder: Path) -> list[dict]:
    """Two ranks against two independent one-rank jobs at the same time: the difference is communication and waiting."""
    ours = Trainopt("trainopt", chosen, folder / "ours", {"parallel.sharding_strategy": "none"}).choose(OUR_FUSED)
    single = {key: value for key, value in ours.setting.items() if not key.startswith("parallel.")}
    rows = [
        compare("communication", ours, Trainopt("two alone", chosen, folder / "single", single, alone=True), chosen)
    ]
    theirs = PyTorch("ddp", chosen, folder / "theirs").choose({"optimizer": ["fused"], **DDP})
    rows.append(
        compare(
            "communication", theirs, PyTorch("two alone", chosen, folder / "single", theirs.setting, alone=True), chosen
        )
    )
    for row in rows:
        row["settings"] = row["settings"].split(" ÷ ")[0]
    return rows


@contextlib.contextmanager
def slow_link(bytes_per_s: float):
    """A network namespace whose loopback carries at most `bytes_per_s`; needs root, ip and tc."""
    name = f"trainopt-{os.getpid()}"
    commands = [
        f"ip netns add {name}",
        f"ip -n {name} link set lo up",
        f"tc -n {name} qdisc add dev lo root tbf rate {8 * bytes_per_s:.0f} burst 1mb latency 1s",
    ]
    try:
        for command in commands:
            if (done := subprocess.run(command.split(), capture_output=True, text=True)).returncode != 0:
                raise JobFailed(f"{command}: {done.stderr}")
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def backward_share(chosen) -> float:
    """The share of a step that backward takes on one core, measured in PyTorch, whose convolutions are the same."""
    code = f"""
import time, torch, torchvision
torch.set_num_threads(1)
model = torchvision.models.resnet18(num_classes={CLASSES})
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
input = torch.randn({chosen.batch}, 3, {SIDE}, {SIDE})
target = torch.randint({CLASSES}, ({chosen.batch},))
shares = []
for step in range(30):
    began = time.monotonic()
    loss = torch.nn.functional.cross_entropy(model(input), target)
    middle = time.monotonic()
    loss.backward()
    after = time.monotonic()
    optimizer.step(); optimizer.zero_grad()
    shares.append((after - middle) / (time.monotonic() - began))
print(sorted(shares[5:])[12])
"""
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


# The job on the slowed link.
SLOWED = {
    "parallel.sharding_strategy": "none",
    "optimizations.fused_optimizer": True,
    "optimizations.set_to_none": True,
}


def slow_rate(chosen, folder: Path) -> tuple[float, float]:
    """The bytes/s of a link on which the exchange takes as long as the rest of the step, and the seconds of that."""
    single = {key: value for key, value in SLOWED.items() if not key.startswith("parallel.")}
    alone = Trainopt("two alone", chosen, folder / "single", single, alone=True).run(chosen.steps)
    step_s = median_ms(alone) / 1e3
    bytes_each = 2**20 * median_ms(
        Trainopt("trainopt", chosen, folder / "ours", SLOWED).run(chosen.try_steps), "all_reduce_mib"
    )
    return RANKS * bytes_each / step_s, step_s  # each rank sends 2(n-1)/n = 1 times the bytes, over one shared loopback


def overlap_on(link: str, chosen, folder: Path) -> tuple[dict, list[Arm]]:
    """The row for the step time without overlap ÷ that with it, on this link."""
    arms = [
        Trainopt(
            f"overlap_comm={word}", chosen, folder / word, SLOWED | {"parallel.overlap_comm": word == "true"}, link=link
        )
        for word in ("false", "true")
    ]
    return compare("slow-link", *arms, chosen), arms


def slowed(chosen, folder: Path) -> list[dict]:
    """Overlap on a link on which the exchange takes as long as the rest of the step."""
    bytes_per_s, step_s = slow_rate(chosen, folder)
    with slow_link(bytes_per_s) as link:
        row, arms = overlap_on(link, chosen, folder)
    exposed = [median_ms([step for block in arm.blocks for step in block], "comm_exposed_ms") for arm in arms]
    backward_ms = 1e3 * step_s * backward_share(chosen)
    hidden = (exposed[0] - exposed[1]) / min(exposed[0], backward_ms)
    return [
        row
        | {
            "settings": f"{8 * bytes_per_s / 1e9:.1f} Gbit/s, a step without communication "
            f"{1e3 * step_s:.0f} ms, backward {backward_ms:.0f} ms: "
            f"hidden {hidden:.0%} of what backward can hide"
        }
    ]


def trainopt_rows(row: str, key: str, above, below, chosen, folder: Path) -> list[dict]:
    ours = Trainopt("trainopt", chosen, folder / "ours", {"parallel.sharding_strategy": "none"}).choose(OUR_FUSED)
    arms = [
        Trainopt(
            f"{key}={json.dumps(value)}", chosen, folder / json.dumps(value), ours.setting | {f"parallel.{key}": value}
        )
        for value in (above, below)
    ]
    return [compare(row, *arms, chosen) | {"settings": ours.settings_text()}]


ROWS = {
    **{row: lambda chosen, folder, row=row: against_pytorch(row, chosen, folder) for row in AGAINST_PYTORCH},
    "communication": communication,
    "slow-link": slowed,
    "overlap": lambda chosen, folder: trainopt_rows("overlap", "overlap_comm", False, True, chosen, folder),
    "wire": lambda chosen, folder: trainopt_rows("wire", "gradient_dtype", None, "bfloat16", chosen, folder),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", choices=list(ROWS), action="append", help="run only this row; may be repeated")
    options.add_argument("--pairs", type=int, default=8, help="pairs of blocks per row")
    options.add_argument("--steps", type=int, default=15, help="measured steps per block")
    options.add_argument("--try-steps", type=int, default=8, help="measured steps for each setting tried")
    options.add_argument("--batch", type=int, default=8, help="batch size of each rank")
    options.add_argument("override", nargs="*", help="key=value for trainopt")
    chosen = options.parse_args()
    rows = []
    with common.temporary_folder() as folder:
        for row in chosen.only or ROWS:
            try:
                rows += ROWS[row](chosen, Path(folder))
            except JobFailed as failure:
                print(f"{row}: {failure}", file=sys.stderr)
                rows.append({"row": row, "ratio": "failed"})
    common.report("ranks", rows)


if __name__ == "__main__":
    main()
