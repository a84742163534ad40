"""Measures `compare` on two ranks over Gloo, one thread each: how often a job seems to differ from itself, whether a
rank that is 5 % slower is found with the right size, overlap on a slowed link, the strategies of sharding in one
comparison, what taking turns costs, and whether every launcher gives the same result.

The job is an MLP whose step takes about 15 ms on two cores, a good part of it for the exchange; the strategies train
ResNet-18. All results are read from the folder that rank 0 writes. The slowed link needs root, ip and tc.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import bench_ranks
import check_ranks
import common

RANKS = 2
SLOWER = 0.05  # what the fault straggle adds to a step
STRAGGLES_FROM = 40
STRATEGIES = ["none", "zero1", "zero2", "zero3"]
JOB = {
    "name": "rank-verdict",
    "device": "cpu",
    "num_threads": 1,
    "model": {"name": "mlp", "num_classes": 10, "hidden": [512, 512]},
    "data": {
        "dataset": "fake_cifar10",
        "batch_size": 64,
        "transforms": [{"resize": 32}, {"normalize": {"mean": 0.5, "std": 0.5}}],
    },
    "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9},
    "optimizations": {"set_to_none": True, "fused_optimizer": True},
}
# Where one rank is slower. The delay must be long against the time in which messages are under way between the ranks:
# a rank that comes later than the other finds the other's message already there.
LONG = JOB | {
    "data": JOB["data"] | {"batch_size": 512, "cache": "device"},
    "parallel": {"overlap_comm": False},
    "optimizations": JOB["optimizations"] | {"host_allocator": True},
}
RESNET = JOB | {"model": {"name": "resnet18", "num_classes": 10}, "data": JOB["data"] | {"batch_size": 8}}

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", f"--nproc-per-node={RANKS}"]


class Failed(Exception):
    pass


def launchers() -> dict[str, list[str]]:
    """The words before trainopt's own, for each launcher that is installed."""
    program = str(common.trainopt_binary())
    ways = {"launch": [program, "launch", "-n", str(RANKS), "--"]}
    if mpirun := shutil.which("mpirun"):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        ways["mpirun"] = [mpirun, "--oversubscribe", "--bind-to", "none", *root, "-n", str(RANKS), program]
    ways["torchrun"] = [*TORCHRUN, program]
    return ways


def run(words: list) -> str:
    """Standard output of a command."""
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failed(f"{shlex.join(words)}\nexited with {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def compare(folder: Path, *words, way: str = "launch", link: str | None = None) -> dict:
    """Runs compare on all ranks; `folder` gets the result, which is returned."""
    inside = ["ip", "netns", "exec", link] if link else []
    run([*inside, *launchers()[way], "compare", *words, "--quiet", "--run-dir", folder])
    return json.loads((folder / "result.json").read_text())


def ends(found: dict) -> tuple[float, float]:
    return tuple(found["interval"] or (float("nan"), float("nan")))


def say(what: str, found: dict) -> None:
    low, high = ends(found)
    print(
        f"  {what}: {found['verdict']}, {found['ratio']:.4f} ({low:.4f} … {high:.4f}), {found['blocks']} blocks",
        file=sys.stderr,
        flush=True,
    )


def spread(found: list[dict]) -> str:
    return f"{min(each['ratio'] for each in found):.4f} … {max(each['ratio'] for each in found):.4f}"


def steps_before(found: dict) -> int:
    """Steps of each arm before the first block: warm-up and A's turns against its twin."""
    return 10 + 2 * found["noise_floor"]["blocks"] * found["samples"][0]["turns"][0]["steps"]


# ---- rows ----


def equal(chosen, folder: Path, recipe: Path) -> list[dict]:
    """The job against itself, each time with other coins and other data."""
    found = []
    for number in range(chosen.equal):
        keys = (f"seed={number}", "--coins", number, "--budget", chosen.budget)
        found.append(compare(folder / f"equal-{number}", recipe, recipe, *keys))
        say(f"two ranks against themselves {number + 1}/{chosen.equal}", found[-1])
    words = [each["verdict"] for each in found]
    return [
        {
            "what": "two ranks: a job against itself",
            "asked": "none called pays or costs",
            "found": f"{sum(word in ('pays', 'costs') for word in words)} of {len(words)} false "
            f"({words.count('no effect')} no effect, {words.count('inconclusive')} inconclusive)",
            "ratios": spread(found),
        }
    ]


def true_ratio(folder: Path) -> float:
    """From the arms' records: B's rank 1 adds 5 % of its median time after the wait for data, in the steps before the
    fault, to every step, and rank 0 waits as long.
    """

    def rank_1(arm: str, name: str) -> list[float]:
        rows = [json.loads(line)["ranks"][name] for line in (folder / arm / "metrics.jsonl").read_text().splitlines()]
        return [row["max" if row["max_rank"] else "min"] for row in rows]

    taken = [step - wait for step, wait in zip(rank_1("b", "step_ms"), rank_1("b", "data_wait_ms"), strict=True)]
    delay = SLOWER * statistics.median(taken[: STRAGGLES_FROM - 1])
    step = statistics.mean(rank_1("a", "step_ms")[STRAGGLES_FROM:])
    return step / (step + delay)


def known(chosen, folder: Path, _: Path) -> list[dict]:
    """The job against itself with a rank that takes 5 % longer than its own median step."""
    recipe = common.write_recipe(folder, LONG | {"output_dir": str(folder)}, "long")
    found, true = [], []
    for number in range(chosen.known):
        keys = (f"seed={number}", "--coins", number, "--budget", chosen.known_budget)
        out = folder / f"known-{number}"
        found.append(compare(out, recipe, recipe, *keys, "--inject", f"straggle@{STRAGGLES_FROM}:1"))
        if steps_before(found[-1]) < STRAGGLES_FROM:
            raise Failed(f"the effect began during the turns: {steps_before(found[-1])} steps came before them")
        true.append(true_ratio(out))
        say(f"one rank sleeps 5 % {number + 1}/{chosen.known}, true {true[-1]:.4f}", found[-1])
    words = [each["verdict"] for each in found]
    held = sum(low <= ratio <= high for ratio, (low, high) in zip(true, map(ends, found), strict=True))
    return [
        {
            "what": f"two ranks: one sleeps {100 * SLOWER:g} % of each step",
            "asked": f"costs in all, true ratio in at least {len(found) - len(found) // 10} intervals",
            "found": f"{words.count('costs')} of {len(words)} costs ({words.count('inconclusive')} inconclusive, "
            f"{sum(word in ('pays', 'no effect') for word in words)} wrong), true ratio in {held} of {len(words)} "
            "intervals",
            "ratios": f"{spread(found)}; true {min(true):.4f} … {max(true):.4f}",
        }
    ]


def slow_link(chosen, folder: Path, _: Path) -> list[dict]:
    """Overlap on a link on which the exchange takes as long as the rest of the step, by compare and by bench_ranks."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        print("slow-link: skipped; it needs root, ip and tc", file=sys.stderr)
        return []
    of_bench = argparse.Namespace(
        pairs=chosen.link_pairs, steps=chosen.link_steps, try_steps=8, batch=RESNET["data"]["batch_size"], override=[]
    )
    job = bench_ranks.recipe(of_bench.batch) | {"output_dir": str(folder)}
    recipe = common.write_recipe(folder, job, "slowed")
    keys = [f"{key}={json.dumps(value)}" for key, value in bench_ranks.SLOWED.items()]
    bytes_per_s, step_s = bench_ranks.slow_rate(of_bench, folder)
    with bench_ranks.slow_link(bytes_per_s) as link:
        found = compare(
            folder / "slow-link",
            *(recipe, *keys, "parallel.overlap_comm=false", "--with", "parallel.overlap_comm=true"),
            *("--budget", chosen.link_budget, "--coins", 0),
            link=link,
        )
        say("overlap on the slowed link", found)
        theirs, _ = bench_ranks.overlap_on(link, of_bench, folder)
    low, high = ends(found)
    return [
        {
            "what": f"two ranks: overlap_comm on a link of {8 * bytes_per_s / 1e9:.1f} Gbit/s, a step without "
            f"communication {1e3 * step_s:.0f} ms",
            "asked": "pays, by as much as bench_ranks.py finds",
            "found": f"{found['verdict']}, {found['ratio']:.3f} ({low:.3f} … {high:.3f}); bench_ranks.py "
            f"{theirs['ratio']} ({theirs['interval']})",
            "ratios": f"{found['blocks']} blocks; {theirs['pairs']} pairs of jobs, {theirs['ms']} ms",
        }
    ]


def strategies(chosen, folder: Path, _: Path) -> list[dict]:
    """Bytes sent and held against the formulas, and speed, of every strategy."""
    import torchvision

    recipe = common.write_recipe(folder, RESNET | {"output_dir": str(folder)}, "resnet18")
    model = torchvision.models.resnet18(num_classes=RESNET["model"]["num_classes"])
    mib = sum(parameter.numel() for parameter in model.parameters()) * 4 / 2**20
    key = f"parallel.sharding_strategy={','.join(STRATEGIES)}"
    found = compare(folder / "each", recipe, "--each", key, "--budget", chosen.each_budget, "--coins", 0)
    apart = ("--own-processes", "--no-numbers", "--repeats", chosen.each_sets)  # arms that share a process share memory
    memory = compare(folder / "memory", recipe, "--each", key, *apart)["arms"]
    rows = []
    for strategy, arm, in_process in zip(STRATEGIES, found["arms"], memory, strict=True):
        wanted = check_ranks.formulas(strategy, RANKS, mib)
        state = wanted["parameters"] + wanted["gradients"] + wanted["optimizer"]
        off = [
            (
                rank[name] / formula - 1,
                f"{name.removesuffix('_mib')} {rank[name]:.2f} MiB ({rank[name] / formula - 1:+.1%})",
            )
            for rank in arm["ranks"]
            for name, formula in (("state_mib", state), ("sent_mib", wanted["wire"]))
        ]
        worst = max(abs(error) for error, _ in off)
        (pair,) = [pair for pair in found["pairs"] if (pair["a"], pair["b"]) == ("none", strategy)] or [None]
        against = f", {pair['ratio']:.3f} × none: {pair['verdict']}" if pair else ""
        rows.append(
            {
                "what": f"--each parallel.sharding_strategy: {strategy}",
                "asked": "bytes as the formulas within 5 %",
                "found": f"{'yes' if worst <= 0.05 else 'NO'}: rank 0 {', '.join(text for _, text in off[:2])}",
                "ratios": f"{arm['samples_per_s']:.1f} samples/s{against}; memory per rank "
                + ", ".join(f"{rank['peak_memory_mib']:.0f} MiB" for rank in in_process["ranks"]),
            }
        )
    return rows


def turn_cost(chosen, folder: Path, recipe: Path) -> list[dict]:
    """Turns between another arm's against turns in a row; rank 0 tells both ranks to take each turn."""
    words = [*TORCHRUN, chosen.binary, "turn_cost", recipe, folder / "turns", chosen.blocks, 0]
    found = json.loads(run(words))
    low, high = found["interval"] or (float("nan"), float("nan"))
    return [
        {
            "what": "two ranks: turns alternating with another arm against consecutive turns",
            "asked": "≤ 1 %",
            "found": f"{100 * found['cost']:+.2f} % ({100 * low:+.2f} … {100 * high:+.2f})",
            "ratios": f"{found['blocks']} blocks, {found['steps_a_turn']} steps of {found['step_ms']:.1f} ms per turn",
        }
    ]


def every_launcher(chosen, folder: Path, recipe: Path) -> list[dict]:
    """The same comparison with the same coins under each launcher."""

    def facts(found: dict) -> dict:
        """All that must not depend on the launcher."""
        arms = {
            name: [arm["name"], arm["step_samples"]]
            + [(round(rank["state_mib"], 3), round(rank["sent_mib"], 3)) for rank in arm["ranks"]]
            for name, arm in found["arms"].items()
        }
        return {
            "columns": sorted(found) + sorted(found["arms"]["a"]),
            "arms": arms,
            "turns": [block["order"] for block in found["samples"]],
            "numbers": found["numerics"]["agree"],
            "losses": found["numerics"]["losses"],
        }

    keys = ("--with", "parallel.sharding_strategy=zero2", "--coins", 7, "--repeats", chosen.launcher_blocks)
    every = {}
    for way in launchers():
        found = compare(folder / way, recipe, *keys, way=way)
        say(f"under {way}", found)
        every[way] = found
    first = facts(every["launch"])
    rows = []
    for way, found in every.items():
        other = [name for name, value in facts(found).items() if value != first[name]]
        (sent,) = {round(rank["sent_mib"], 1) for rank in found["arms"]["b"]["ranks"]}
        rows.append(
            {
                "what": f"two ranks under {way}: zero2 against none",
                "asked": "as under launch",
                "found": f"{'other ' + ', '.join(other) if other else 'the same'}: {len(found['samples'])} blocks, "
                f"{sent} MiB sent per step by each rank, numbers {'agree' if found['numerics']['agree'] else 'DIFFER'}",
                "ratios": f"{found['verdict']}, {found['ratio']:.3f}",
            }
        )
    return rows


ROWS = {
    "equal": equal,
    "known": known,
    "slow-link": slow_link,
    "each": strategies,
    "turn-cost": turn_cost,
    "launchers": every_launcher,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", choices=list(ROWS), action="append", help="run only this row; may be repeated")
    options.add_argument("--equal", type=int, default=20, help="comparisons of the job with itself")
    options.add_argument("--budget", default="60s", help="time for each of these comparisons")
    options.add_argument("--known", type=int, default=10, help="comparisons with a rank that is slower")
    options.add_argument("--known-budget", default="150s", help="time for each of these comparisons")
    options.add_argument("--link-budget", default="90s", help="time for the comparison on the slowed link")
    options.add_argument("--link-pairs", type=int, default=6, help="pairs of jobs of bench_ranks.py on that link")
    options.add_argument("--link-steps", type=int, default=12, help="measured steps of each of these jobs")
    options.add_argument("--each-budget", default="4m", help="time for the strategies of sharding")
    options.add_argument("--each-sets", type=int, default=2, help="sets of processes for their memory")
    options.add_argument("--blocks", type=int, default=30, help="blocks for the cost of taking turns")
    options.add_argument("--launcher-blocks", type=int, default=8, help="blocks under each launcher")
    options.add_argument("--binary", type=Path, default=common.ROOT / "build/scripts/bench/verdict_arms")
    chosen = options.parse_args()
    rows = []
    with common.temporary_folder() as name:
        folder = Path(name)
        recipe = common.write_recipe(folder, JOB | {"output_dir": name}, "job")
        for row in chosen.only or ROWS:
            try:
                rows += ROWS[row](chosen, folder, recipe)
            except (Failed, bench_ranks.JobFailed) as failure:
                print(f"{row}: {failure}", file=sys.stderr)
                rows.append({"what": row, "found": "failed"})
    common.report("verdict", rows)


if __name__ == "__main__":
    main()
