"""Measures `compare` itself: how often a real job seems to differ from itself, in one process and in pairs of
processes; whether a known effect is found with the right size; how many turns a verdict takes on turns recorded on this
machine; and what taking turns costs.

Needs the target verdict_arms. The job is ResNet-18 on small images with one thread, so that a turn of a quarter of a
second has several steps and other programs have a core. Pairs of processes train an MLP, which starts quickly. Turns
are recorded of both jobs and of one that mostly loads data.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import common

JOB = {
    "model": {"name": "resnet18", "num_classes": 10},
    "data": {
        "dataset": "fake_cifar10",
        "batch_size": 16,
        "num_workers": 1,
        "persistent_workers": True,
        "transforms": [{"resize": 64}, {"normalize": {"mean": 0.5, "std": 0.5}}],
    },
    "optimizations": {"set_to_none": True, "channels_last": True},
    "num_threads": 1,
}
MLP = JOB | {"model": {"name": "mlp", "num_classes": 10, "hidden": [512, 512]}}
LOADER = JOB | {"model": {"name": "mlp", "num_classes": 10, "hidden": [64]}}


def verdict_arms(binary: Path, *words) -> dict:
    return json.loads(
        subprocess.run([str(binary), *map(str, words)], capture_output=True, text=True, check=True).stdout
    )


def equal_arms(recipe: Path, count: int, chosen, folder: Path, *options) -> list[dict]:
    """Runs compare RECIPE RECIPE repeatedly, each time with other coins and other data."""
    rows = []
    for number in range(count):
        found = common.trainopt_json(
            "compare",
            recipe,
            recipe,
            f"seed={number}",
            "--coins",
            number,
            "--budget",
            chosen.budget,
            "--json",
            "--quiet",
            "--run-dir",
            folder / f"aa-{len(options)}-{number}",
            *options,
        )
        rows.append(found)
        low, high = found["interval"] or (float("nan"), float("nan"))
        print(
            f"  equal arms {number + 1}/{count}: {found['verdict']}, {found['ratio']:.4f} ({low:.4f} … "
            f"{high:.4f}), {found['blocks']} blocks, "
            f"{found['pairs'] or 'no'} pairs",
            file=sys.stderr,
            flush=True,
        )
    return rows


def equal_row(what: str, equal: list[dict]) -> dict:
    words = [found["verdict"] for found in equal]
    return {
        "what": what,
        "asked": "at most one false verdict in 20",
        "found": f"{sum(word in ('pays', 'costs') for word in words)} of {len(words)} false "
        f"({words.count('no effect')} no effect, {words.count('inconclusive')} inconclusive)",
        "ratios": f"{min(f['ratio'] for f in equal):.4f} … {max(f['ratio'] for f in equal):.4f}",
    }


def recorded_row(name: str, job: dict, chosen, folder: Path) -> dict:
    """Records the turns of a job against itself and repeatedly deals them to two arms, with B's made 2 % faster."""
    recipe = common.write_recipe(folder, job | {"output_dir": str(folder)}, name)
    turns = folder / f"recorded-{name}"
    repeats = ("--repeats", chosen.recorded, "--budget", "1h", "--no-numbers", "--quiet", "--json")
    common.trainopt_json("compare", recipe, recipe, *repeats, "--run-dir", turns)
    found = verdict_arms(chosen.binary, "recorded", turns, 1.02, 300, 400)
    equal = verdict_arms(chosen.binary, "recorded", turns, 1, 300, 400)
    return {
        "what": f"2 % on recorded turns: {name}",
        "asked": "≤ 240 turns",
        "found": f"{found['median_turns']:.0f} turns (median), found in {100 * found['pays']:.0f} % within 1,200; "
        f"false verdicts on equal arms in {100 * (equal['pays'] + equal['costs']):.1f} %",
        "ratios": f"{found['recorded_turns']} turns recorded, {found['trials']} trials",
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=20, help="comparisons of the job with itself")
    options.add_argument("--apart", type=int, default=20, help="comparisons of an MLP, in pairs of processes")
    options.add_argument("--recorded", type=int, default=150, help="blocks to record of each of three jobs")
    options.add_argument("--budget", default="45s", help="time for each comparison")
    options.add_argument("--known", type=int, default=6, help="comparisons with an arm that sleeps")
    options.add_argument("--known-budget", type=float, default=60, help="seconds for each of these comparisons")
    options.add_argument("--share", type=float, default=0.03, help="its sleep, as a share of a step")
    options.add_argument("--blocks", type=int, default=24, help="blocks for the cost of taking turns")
    options.add_argument("--binary", type=Path, default=common.ROOT / "build/scripts/bench/verdict_arms")
    chosen = options.parse_args()
    rows = []
    with common.temporary_folder() as folder:
        folder = Path(folder)
        recipe = common.write_recipe(folder, JOB | {"output_dir": str(folder)}, "job")
        if chosen.repeats:
            rows.append(equal_row("a real job against itself", equal_arms(recipe, chosen.repeats, chosen, folder)))
        if chosen.apart:
            small = common.write_recipe(folder, MLP | {"output_dir": str(folder)}, "small")
            options = ("--own-processes", "--no-numbers", "--turn", "100ms")
            apart = equal_arms(small, chosen.apart, chosen, folder, *options)
            rows.append(equal_row("an MLP against itself in pairs of processes", apart))
        if chosen.recorded:
            for name, job in {"resnet18": JOB, "mlp": MLP, "loader": LOADER}.items():
                rows.append(recorded_row(name, job, chosen, folder))
        # A loader thread would work during the sleep, and the sleep would cost less than its length.
        alone = common.write_recipe(
            folder,
            JOB | {"output_dir": str(folder), "data": JOB["data"] | {"num_workers": 0, "persistent_workers": False}},
            "alone",
        )
        held = decided = 0
        ratios = []
        for number in range(chosen.known):
            found = verdict_arms(
                chosen.binary,
                "known_effect",
                alone,
                folder / f"known-{number}",
                chosen.share,
                chosen.known_budget,
                number,
            )
            low, high = found["interval"] or (0, 9)
            held += low <= found["true_ratio"] <= high
            decided += found["verdict"] == "costs"
            ratios.append(found["ratio"])
            print(
                f"  known effect {number + 1}/{chosen.known}: {found['verdict']}, {found['ratio']:.4f} ({low:.4f} … "
                f"{high:.4f}), true {found['true_ratio']:.4f}, {found['blocks']} blocks",
                file=sys.stderr,
                flush=True,
            )
        if ratios:
            rows.append(
                {
                    "what": f"an arm that sleeps {100 * chosen.share:g} % of a step",
                    "asked": "found, true size in the interval",
                    "found": f"{decided} of {chosen.known} costs, true ratio {1 / (1 + chosen.share):.4f} in {held} of "
                    f"{chosen.known} intervals",
                    "ratios": f"{min(ratios):.4f} … {max(ratios):.4f}",
                }
            )
        if chosen.blocks:
            found = verdict_arms(chosen.binary, "turn_cost", recipe, folder / "turns", chosen.blocks, 0)
            low, high = found["interval"]
            rows.append(
                {
                    "what": "turns alternating with another arm against consecutive turns",
                    "asked": "≤ 1 %",
                    "found": f"{100 * found['cost']:+.2f} % ({100 * low:+.2f} … {100 * high:+.2f})",
                    "ratios": f"{found['blocks']} blocks, {found['steps_a_turn']} steps of {found['step_ms']:.1f} ms "
                    "per turn",
                }
            )
    common.report("verdict", rows)


if __name__ == "__main__":
    main()
