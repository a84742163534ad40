"""Results of comparisons with known times, made from one real result: what a gate decides must not depend on speed."""

import copy
import json
import shutil

QUICK = ("--turn", "5ms", "bench.warmup_steps=3")
RECIPE = """\
name: job
model: {name: mlp, num_classes: 10, hidden: [32]}
data: {dataset: fake_cifar10, size: 64, batch_size: 8, transforms: [{resize: 8}, {normalize: {mean: 0.5, std: 0.5}}]}
"""


def jitter(turn, pair, arm):
    """Within ±0.4 %, and the same every time. The processes of a pair also differ for life."""
    return 1 + 0.001 * ((turn * 7) % 5 - 2) + 0.001 * ((pair * 3 + (arm == "b")) % 4 - 1.5)


def retimed(result, ratio, blocks, blocks_per_pair=None, seconds_per_sample=1e-3):
    """`result` with this many blocks, in which B is `ratio` times as fast as A; `blocks_per_pair`: in pairs of
    processes."""
    result = copy.deepcopy(result)
    template = result["samples"][0]
    result["samples"], totals = [], {}
    for number in range(blocks):
        pair = number // blocks_per_pair if blocks_per_pair else 0
        block = copy.deepcopy(template)
        block |= {"order": "baab" if number % 3 == 1 else "abba", "pair": pair, "other_load_pct": 0.0}
        for place, turn in enumerate(block["turns"]):
            turn["arm"] = block["order"][place]
            per_sample = seconds_per_sample / (ratio if turn["arm"] == "b" else 1)
            turn["seconds"] = turn["samples"] * per_sample * jitter(number * 4 + place, pair, turn["arm"])
            unit = pair if blocks_per_pair else number
            sums = totals.setdefault((unit, turn["arm"]), [0.0, 0])
            sums[0] += turn["seconds"]
            sums[1] += turn["samples"]
        result["samples"].append(block)
    of = {arm: sum(s / n for (_, one), (s, n) in totals.items() if one == arm) for arm in "ab"}
    result |= {"ended": "repeats", "own_processes": bool(blocks_per_pair), "ratio": of["a"] / of["b"]}
    result |= {"level": 0.95, "min_effect": 0.01, "longest_stall_turns": 9.0}
    return result


def store(folder, like, result, verdict):
    """Writes `result` into a copy of the folder `like`."""
    if folder != like:
        shutil.copytree(like, folder)
    (folder / "result.json").write_text(json.dumps(result | {"verdict": verdict}))
    return folder
