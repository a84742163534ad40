#!/usr/bin/env python3
"""Collects the summary.json files of several runs in one table.

  scripts/summaries.py table RUN_DIR...     a table for reading; ratios are samples/s relative to the first run; the
                                            verdict is from the run's compare.json, if any: against the run before it

A run without a summary.json also has a row, with status `missing`.
"""
import csv
import json
import sys
from pathlib import Path

CSV_COLUMNS = [
    "status",
    "exit_code",
    "steps",
    "measured_steps",
    "samples_per_s",
    "step_ms.mean",
    "step_ms.p50",
    "step_ms.p95",
    "step_ms.p99",
    "data_wait_pct",
    "gpu_util_pct",
    "cpu_util_pct",
    "peak_memory_mib",
    "time_to_first_step_s",
    "wall_s",
    "loss.first",
    "loss.last",
    "evaluation.loss",
    "evaluation.top1_pct",
    "evaluation.perplexity",
    "tokens_per_s",
]


def load(folder, name):
    try:
        return json.loads((Path(folder) / name).read_text())
    except FileNotFoundError:
        return {}


def value(summary, dotted):
    """summary["step_ms"]["p50"] for `step_ms.p50`; None if a key is absent or null."""
    for key in dotted.split("."):
        summary = summary.get(key) if isinstance(summary, dict) else None
    return summary


def show(number, decimals=1):
    return "–" if number is None else f"{number:,.{decimals}f}"


def idle_switches(summary):
    """The switches that were on without an effect. Without a completed step none was observed."""
    receipts = (summary.get("receipts") or {}) if summary.get("steps") else {}
    return [name for name, receipt in receipts.items() if not receipt.get("effective")]


def remark(summary, before):
    """How a run ended if not well, and which switches have no effect in it, without those of the run before."""
    status = summary.get("status", "missing")
    ended = [] if status == "done" else [f"{status}: {summary.get('reason') or 'no summary.json'}"]
    idle = [name for name in idle_switches(summary) if name not in idle_switches(before)]
    return "; ".join(ended + ([f"no effect here: {', '.join(idle)}"] if idle else []))


def changes(before, after):
    """Whether a switch with an effect in `after` was requested otherwise, or not at all, in `before`."""
    earlier = before.get("receipts") or {}
    return any(
        receipt["effective"] and earlier.get(name, {}).get("requested") != receipt["requested"]
        for name, receipt in (after.get("receipts") or {}).items()
    )


def verdict(folder):
    """The folder's comparison with the run before, as "pays +12.3 % (+11.0 to +13.5)"; empty if there is none."""
    comparison = load(folder, "compare.json")
    if not comparison:
        return ""
    low, high = comparison["interval"] or (None, None)
    interval = "" if low is None else f" ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f})"
    wrong = " NUMBERS DIFFER" if (comparison.get("numerics") or {}).get("agree") is False else ""
    return f"{comparison['verdict']} {100 * (comparison['ratio'] - 1):+.1f} %{interval}{wrong}"


def table(folders):
    summaries = [load(folder, "summary.json") for folder in folders]
    # If no run used a GPU, show the CPU instead.
    used = (
        "gpu_util_pct" if any(value(summary, "gpu_util_pct") is not None for summary in summaries) else "cpu_util_pct"
    )
    rows, base = [], None
    for folder, summary, before in zip(folders, summaries, [{}, *summaries]):
        speed = value(summary, "samples_per_s")
        base = base or speed
        rows.append(
            [
                Path(folder).name,
                show(value(summary, "step_ms.p50")),
                show(speed),
                "–" if not (speed and base) else f"{speed / base:.2f}×",
                verdict(folder),
                show(value(summary, "data_wait_pct")),
                show(value(summary, used)),
                show(value(summary, "peak_memory_mib"), 0),
                remark(summary, before),
            ]
        )
    header = [
        "run",
        "step ms (p50)",
        "samples/s",
        "ratio",
        "against previous run",
        "data wait %",
        f"{used[:3]} util %",
        "memory MiB",
        "",
    ]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1])), row[-1]]
        print("  ".join(cells).rstrip())


def write_csv(folders, file):
    """The keys of each run's settings.json, if any, become the first columns."""
    runs = [(str(folder), load(folder, "settings.json"), load(folder, "summary.json")) for folder in folders]
    settings = list(dict.fromkeys(key for _, own, _ in runs for key in own))
    out = csv.writer(file, lineterminator="\n")
    out.writerow([*settings, *CSV_COLUMNS, "run_dir"])
    for folder, own, summary in runs:
        summary.setdefault("status", "missing")
        out.writerow([*(own.get(key) for key in settings), *(value(summary, column) for column in CSV_COLUMNS), folder])


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] != "table":
        raise SystemExit(__doc__)
    table(sys.argv[2:])
