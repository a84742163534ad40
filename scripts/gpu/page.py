"""check.md: one page that can be sent as it is. What passed, the measurements, and what to report."""

import re
import shlex
import textwrap

from peers.turns import fastest

from .targets import LEAST_SHARE, interval


def shown(value) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value).replace("\n", " ").replace("|", "\\|")


def table(rows: list[dict], columns: list[str]) -> list[str]:
    return [
        "",
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(shown(row.get(column)) for column in columns) + " |" for row in rows),
    ]


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def own_passes(part: dict) -> list[dict]:
    """Without the rows of PyTorch's kernels, which are in brackets."""
    return [row for row in part.get("rows", []) if not row["pass"].startswith("[")]


def in_short(name: str, part: dict) -> str:
    """A part's result in a few words."""
    rows, reason = part.get("rows", []), part.get("reason", "")
    if name == "tests":
        return "; ".join(part.get("summary", [])) or reason
    if name == "kernels" and (passes := own_passes(part)):
        slow = [row for row in passes if row["of_copy"] < LEAST_SHARE]
        worst = min(passes, key=lambda row: row["of_copy"])
        found = f"{len(passes) - len(slow)} of {len(passes)} passes reach {percent(LEAST_SHARE)} of a copy's bandwidth"
        return f"{found}; slowest: {worst['pass']}, {worst['type']}, {percent(worst['of_copy'])}"
    if name.startswith("peers") and rows:
        best = fastest(rows)
        lost = f"; failed: {', '.join(part['failed'])}" if part.get("failed") else ""
        return f"{best['ratio']} × PyTorch's fastest, {best['PyTorch']} ({interval(best)}){lost}"
    if name == "curves" and "within" in part:
        return f"trainopt and PyTorch differ {'no more' if part['within'] else '**more**'} than two seeds do"
    if name == "ladder" and rows:
        done = f"{sum(row['status'] == 'done' for row in rows)} of {len(rows)} rungs done"
        return done + (f"; {reason}" if reason and part["status"] != "ok" else "")
    return reason


def parts_table(results: dict) -> list[str]:
    rows = [
        {
            "part": name,
            "result": "**failed**" if part["status"] == "failed" else part["status"],
            "seconds": part.get("seconds"),
            "in short": in_short(name, part),
        }
        for name, part in results["parts"].items()
    ]
    return table(rows, ["part", "result", "seconds", "in short"])


def peers(results: dict) -> list[str]:
    rows = [
        {
            "job": part["case"],
            "PyTorch": row["PyTorch"],
            "ratio": row["ratio"],
            "95 % interval": interval(row),
            "trainopt img/s": row["ours_per_s"],
            "PyTorch img/s": row["theirs_per_s"],
            "first step s": row["first_step_s"],
            "memory MiB": row["peak_memory_mib"],
        }
        for name, part in results["parts"].items()
        if name.startswith("peers")
        for row in part.get("rows", [])
    ]
    return ["", "## Against PyTorch", *table(rows, list(rows[0]))] if rows else []


def kernels(part: dict) -> list[str]:
    """One row per pass, one column per type: shares of a copy's bandwidth."""
    rows = part.get("rows", [])
    if not rows:
        return []
    types = list(dict.fromkeys(row["type"] for row in rows))
    passes: dict[str, dict] = {}
    for row in rows:
        slow = row["of_copy"] < LEAST_SHARE and not row["pass"].startswith("[")
        cell = percent(row["of_copy"])
        passes.setdefault(row["pass"], {"pass": row["pass"]})[row["type"]] = f"**{cell}**" if slow else cell
    copies = [row["copy_gb_per_s"] for row in rows]
    said = f"Share of a copy's bandwidth ({min(copies):,.0f} to {max(copies):,.0f} GB/s). In [brackets]: PyTorch's."
    return ["", "## Kernels", said, *table(list(passes.values()), ["pass", *types])]


def ladder(part: dict) -> list[str]:
    return ["", "## Ladder", "```", part["table"].rstrip(), "```"] if part.get("table") else []


def flat(value) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {flat(inner)}" for key, inner in value.items() if inner not in (None, "", {}, []))
    if isinstance(value, list):
        return "; ".join(map(flat, value)) or "none"
    return "–" if value is None else str(value)


def environment(facts: dict) -> list[str]:
    left_out = ("schema_version", "not_measured", "recipes")
    rows = [{"": key, "value": flat(value)} for key, value in facts.items() if key not in left_out and flat(value)]
    return ["", "## Environment", *table(rows, ["", "value"])]


def idle_switches(results: dict) -> list[str]:
    """From the ladder, whose last rung is the job that is measured against PyTorch, but with real batches."""
    rows = results["parts"].get("ladder", {}).get("rows", [])
    return [
        f"{switch} had no effect in {row['run']}: {why}" for row in rows for switch, why in row.get("idle", {}).items()
    ]


def findings(results: dict) -> list[tuple[str, str]]:
    """What is not as it should be: (the part to repeat, one sentence)."""
    found = []
    for name, part in results["parts"].items():
        failed = part.get("failed_tests", []) if name == "tests" else []
        found += [(name, f"test failed: {test['test']}: {test['message']}") for test in failed]
        if part["status"] == "failed" and not failed:
            found.append((name, f"{name} failed: {part.get('reason', 'no reason was given')}"))
        if part["status"] == "left out" or part.get("left_out"):
            what = ", ".join(part.get("left_out", [])) or part.get("reason", "no time")
            found.append((name, f"{name} is not complete: {what}"))
        if name == "kernels" and results["on_gpu"]:
            found += [
                (name, f"kernel {row['pass']}, {row['type']}: {percent(row['of_copy'])} of a copy's bandwidth")
                for row in own_passes(part)
                if row["of_copy"] < LEAST_SHARE
            ]
        if name == "ladder":
            found += [
                (name, f"the numbers of {row['run']} differ from those of the rung before it")
                for row in part.get("rows", [])
                if row.get("numbers_agree") is False
            ]
    found += [
        (
            target["part"],
            f"target missed: {target['what']}: {shown(target['measured'])}, at least {target['at_least']}"
            + target["reached"].removeprefix("no").replace(": ", "; "),
        )
        for target in results["targets"]
        if target["reached"] and not target["reached"].startswith("yes") and "share" not in target["what"]
    ]
    return found + [("", line) for line in idle_switches(results)]


def nothing(results: dict) -> str:
    """What was judged, if nothing was found."""
    targets = results["targets"]
    judged = sum(bool(target["reached"]) for target in targets)
    about_targets = f"{judged} of {len(targets)} targets were judged and none was missed"
    if judged in (0, len(targets)):
        about_targets = "no target was missed" if judged else "no target was judged"
    observed = results["parts"].get("ladder", {}).get("rows")
    about_switches = "every switch had its effect" if observed else "no switch was observed"
    return f"Nothing: no part failed, {about_targets}, {about_switches}."


def skipped(results: dict) -> list[str]:
    """Parts that cannot run here. Those for which there was no time are findings."""
    parts = [(name, part) for name, part in results["parts"].items() if part["status"] == "skipped"]
    names = "; ".join(f"{name} ({part['reason']})" if part.get("reason") else name for name, part in parts)
    return ["", f"Not run: {shown(names)}."] if names else []


def to_report(results: dict) -> list[str]:
    lines = ["", "## What to report"]
    found = findings(results)
    if not found:
        return [*lines, nothing(results), *skipped(results)]
    lines += [f"- {textwrap.shorten(shown(sentence), 400, placeholder=' …')}" for _, sentence in found]
    lines += skipped(results)
    repeat = list(dict.fromkeys(part for part, _ in found if part))
    if repeat:
        check = [results["gpu_check"], "run", results["folder"]]
        again = [*check, "--only", ",".join(repeat), *([] if results["on_gpu"] else ["--cpu"])]
        again += [word for override in results.get("set") or [] for word in ("--set", override)]
        tests = results["parts"].get("tests", {}).get("failed_tests", [])
        commands = [again, *([results["test_gpu"], re.sub(r"([\\,\[])", r"\\\1", test["test"])] for test in tests)]
        lines += ["", f"To repeat {'this' if len(commands) == 1 else 'these parts, and the failed tests one by one'}:"]
        lines += ["", "```", *map(shlex.join, commands), "```"]
    return lines


def markdown(results: dict) -> str:
    facts, states = results["environment"], [part["status"] for part in results["parts"].values()]
    where = ", ".join(gpu.get("name", "GPU") for gpu in facts["gpus"]) or "no GPU"
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states, key="failed".__ne__)))
    lines = [
        f"# gpu_check: {counts}",
        f"{results['date']} · trainopt {facts.get('trainopt')}, commit {results['commit']} · {where} · "
        f"{facts['cpu']['model']}, {facts['cpu']['cores_allowed']} cores · libtorch {facts['libtorch']}",
    ]
    if not results["on_gpu"]:
        lines += ["", "Small sizes on a CPU: shows that every part runs, but says nothing about a GPU."]
    lines += parts_table(results)
    if results["on_gpu"]:
        lines += ["", "## Targets", *table(results["targets"], ["what", "at_least", "aim", "measured", "reached"])]
    parts = results["parts"]
    lines += peers(results) + kernels(parts.get("kernels", {})) + ladder(parts.get("ladder", {}))
    return "\n".join([*lines, *environment(facts), *to_report(results)]) + "\n"
