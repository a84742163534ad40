"""The report: a Markdown table of targets and measurements, followed by one section per part."""

import statistics

from peers.table import ON_GPU
from peers.turns import fastest

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
    {"what": "each CUDA kernel, share of a copy's bandwidth", "part": "kernels", "share": 0.75, "aim": 0.9},
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


def table(rows: list[dict], columns: list[str]) -> list[str]:
    def show(value) -> str:
        return (
            "–"
            if value is None
            else (
                f"{value:.3g}"
                if isinstance(value, float) and abs(value) < 100
                else f"{value:.0f}" if isinstance(value, float) else str(value)
            )
        )

    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(show(row.get(column)) for column in columns) + " |" for row in rows),
    ]


def section(name: str, part: dict) -> list[str]:
    lines = ["", f"## {name}: {part['status']}" + (f" · {part['seconds']:.0f} s" if "seconds" in part else "")]
    lines += [part["reason"].replace("\n", " ")] if part.get("reason") else []
    lines += [f"Not measured for lack of time: {', '.join(part['left_out'])}."] if part.get("left_out") else []
    rows = part.get("rows") or []
    if name == "tests":
        lines += part.get("summary", [])
    elif name == "kernels" and rows:
        lines += ["", *table(rows, ["pass", "type", "mib", "gb_per_s", "of_copy", "copy_gb_per_s"])]
    elif name.startswith("peers") and rows:
        best = fastest(rows)
        lines += [
            "",
            *table(
                rows,
                [
                    "PyTorch",
                    "ratio",
                    "low",
                    "high",
                    "blocks",
                    "ours_per_s",
                    "theirs_per_s",
                    "first_step_s",
                    "peak_memory_mib",
                ],
            ),
            "",
            f"PyTorch's fastest: {best['PyTorch']}; trainopt ÷ it: **{best['ratio']}** ({interval(best)}).",
        ]
        idle = [switch for switch, effective in part["trainopt"]["effective"].items() if not effective]
        lines += [
            f"trainopt: first step after {part['trainopt']['first_step_s']:.1f} s; switches without effect: "
            f"{', '.join(idle) or 'none'}."
        ]
    elif name == "curves" and "apart" in part:
        named = [
            {"": words, **part[key]}
            for words, key in (
                ("trainopt and PyTorch", "apart"),
                ("trainopt with initial weights from two seeds", "spread"),
            )
        ]
        lines += [
            f"{part['case']}, against {part['PyTorch']}: "
            + ("within" if part["within"] else "**not within**")
            + " the spread of two seeds.",
            "",
            *table(named, ["", "largest", "mean"]),
            "",
            *table(
                [{"side": side, "first": part["first"][side], "last": part["last"][side]} for side in part["last"]],
                ["side", "first", "last"],
            ),
        ]
    elif name == "ladder" and part.get("table"):
        lines += ["", "```", part["table"].rstrip(), "```"]
    return lines


def markdown(results: dict) -> str:
    facts, gpus = results["environment"], results["environment"]["gpus"]
    where = ", ".join(gpu.get("name", "GPU") for gpu in gpus) or "no GPU"
    states = [
        {
            "part": name,
            "status": part["status"],
            "seconds": part.get("seconds"),
            "reason": part.get("reason", "").replace("\n", " "),
        }
        for name, part in results["parts"].items()
    ]
    return (
        "\n".join(
            [
                "# gpu_check",
                f"{results['date']} · commit {results['commit']} · {where} · {facts['cpu']['model']}, "
                f"{facts['cpu']['cores_allowed']} cores · libtorch {facts['libtorch']}, CUDA {facts['cuda']}, cuDNN "
                f"{facts['cudnn']}",
                (
                    ""
                    if results["on_gpu"]
                    else "\nSmall sizes on a CPU: shows that every part runs, but says nothing about a GPU."
                ),
                "",
                *table(results["targets"], ["what", "at_least", "aim", "measured", "reached"]),
                "",
                *table(states, ["part", "status", "seconds", "reason"]),
                *(line for name, part in results["parts"].items() for line in section(name, part)),
            ]
        )
        + "\n"
    )
