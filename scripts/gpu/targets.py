"""The targets of gpu_check, and which of them were reached."""

import statistics

from peers.table import ON_GPU
from peers.turns import fastest

# The share of a copy's bandwidth that every kernel should reach.
LEAST_SHARE = 0.75

# Targets of the step on one H200. A ratio is trainopt's images/s ÷ those of PyTorch's fastest way whose name begins
# with `against`.
TARGETS = [
    {
        "what": "ResNet-18, batch 1024, amp",
        "part": "peers-resnet18-1024",
        "rate": 24000,
        "aim": 30000,
        "against": "compile",
        "ratio": 1.25,
    },
    {
        "what": "ResNet-18, batch 32, amp",
        "part": "peers-resnet18-32",
        "rate": 15000,
        "aim": 20000,
        "against": "graph",
        "ratio": 1.1,
    },
    {"what": "ResNet-50, batch 256", "part": "peers-resnet50-256", "rate": 7900, "aim": 9000},
    {"what": "each CUDA kernel, share of a copy's bandwidth", "part": "kernels", "share": LEAST_SHARE, "aim": 0.9},
]


def missing(part: dict, beginning: str) -> list[str]:
    """Ways without a row in a part that has tried some. With any missing, the fastest is unknown."""
    known = {row["PyTorch"] for row in part.get("rows", [])}
    return (
        [way for way in ON_GPU if way.startswith(beginning) and way not in known] if known or part.get("failed") else []
    )


def interval(row: dict) -> str:
    return "too few pairs for an interval" if row["low"] is None else f"{row['low']} to {row['high']}"


def reached(value: float, low: float, high: float, least: float) -> str:
    return (
        "yes"
        if low >= least
        else (
            "no"
            if high < least
            else "yes, but the interval starts below" if value >= least else "no, but the interval includes it"
        )
    )


def judged(results: dict) -> list[dict]:
    """One row per target number; `measured` is None if it was not measured. Measurements on a CPU do not count."""
    rows = []
    for target in TARGETS:
        part = results["parts"].get(target["part"], {}) if results["on_gpu"] else {}
        measured = part.get("rows", [])
        if "share" in target:
            least = min(
                (row for row in measured if not row["pass"].startswith("[")),
                key=lambda row: row["of_copy"],
                default=None,
            )
            rows.append(
                {
                    "what": target["what"],
                    "part": target["part"],
                    "at_least": target["share"],
                    "aim": target["aim"],
                    "measured": least and round(least["of_copy"], 2),
                    "reached": least
                    and ("yes" if least["of_copy"] >= target["share"] else f"no: {least['pass']}, {least['type']}"),
                }
            )
            continue
        rate = statistics.median(row["ours_per_s"] for row in measured) if measured else None
        rows.append(
            {
                "what": f"{target['what']}: img/s",
                "part": target["part"],
                "at_least": target["rate"],
                "aim": target["aim"],
                "measured": rate and round(rate),
                "reached": rate and ("yes" if rate >= target["rate"] else "no"),
            }
        )
        if "ratio" in target:
            best, lost = fastest(measured, target["against"]), missing(part, target["against"])
            rows.append(
                {
                    "what": f"{target['what']}: ratio against the best {target['against']}",
                    "part": target["part"],
                    "at_least": target["ratio"],
                    "aim": None,
                    "measured": best and f"{best['ratio']} ({interval(best)})",
                    "reached": (
                        "no: " + "; ".join(f"{way} is missing" for way in lost)
                        if lost
                        else best and reached(best["ratio"], best["low"], best["high"], target["ratio"])
                    ),
                }
            )
    return rows
