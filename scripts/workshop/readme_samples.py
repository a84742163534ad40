"""The samples of README.md: what they are and how they are made. readme_samples runs this; a test reads it."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PAGE = TOP / "README.md"
CUT = "[…]"

EXPORT = """\
import timm, torch
model = timm.create_model("regnety_004", num_classes=10).train()
batch = torch.export.Dim("batch")
program = torch.export.export(model, (torch.randn(2, 3, 96, 96),), dynamic_shapes=({0: batch},))
torch.export.save(program, "net.pt2")
"""

# Each sample: its command as the page shows it (the run's is not shown), and the lines that are kept of what it prints.
SAMPLES = {
    "tune": (
        "trainopt tune own.yaml --budget 5m",
        r"limited by|  \d+  |     estimated|kept: |against the original",
    ),
    "run": (
        "trainopt run configs/quickstart.yaml",
        r"step +30/30|  samples/s|  step time|  waiting|  peak memory|  time to first|  measured over"
        r"|  (num_workers|pin_memory|host_allocator|fused_kernels|winograd|amp|fused_optimizer) ",
    ),
    "compare": (
        "trainopt compare configs/quickstart.yaml --without winograd "
        "'data.transforms=[{resize: 64}, {normalize: {mean: 0.5, std: 0.5}}]' --budget 60s",
        r"(pays|costs|no effect|inconclusive): |  [AB] {2,}|  measured|  switch +winograd|results are in",
    ),
}


def block_of(page, name):
    """The sample's code block in the page: its begin and end, and its lines."""
    found = re.search(rf"<!-- sample: {name} -->\n+```\n(.*?)```\n", page, re.DOTALL)
    assert found, f"README.md has no sample {name}"
    return found.start(1), found.end(1), found[1].splitlines()


def shortened(output, kept):
    """The lines that are kept, with a mark where others stood between them; a blank line is kept beside kept ones."""
    lines, cut = [], False
    for line in output.splitlines():
        if not line:
            if lines and lines[-1] not in ("", CUT) and not cut:
                lines.append("")
        elif re.match(kept, line):
            if cut and lines:
                lines.append(CUT)
            lines.append(line)
            cut = False
        else:
            cut = True
    while lines and lines[-1] in ("", CUT):
        lines.pop()
    return lines


def printed(*command):
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True).stdout


def main():
    program = TOP / "build/app/trainopt"
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    page = PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "configs").symlink_to(TOP / "configs")
        (folder / "own.yaml").write_text(re.search(r"```yaml\n# own.yaml\n(.*?)```", page, re.DOTALL)[1])
        subprocess.run([sys.executable, "-c", EXPORT], cwd=folder, check=True)
        for name, (command, kept) in SAMPLES.items():
            print(f"readme_samples: {command}", file=sys.stderr)
            done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True)
            assert done.returncode == 0, done
            output = done.stdout.replace(f"{folder}/", "")
            if name == "run":  # what stands before is the plan
                output = output[output.index("step  30/30") :]
            lines = shortened(output, kept)
            if name == "run":
                lines.insert(0, CUT)
            else:
                lines.insert(0, f"$ {command}")
            begin, end, _ = block_of(page, name)
            page = page[:begin] + "\n".join(lines) + "\n" + page[end:]
    commit = printed("git", "rev-parse", "--short=8", "HEAD").strip()
    page, changed = re.subn(r"commit [0-9a-f]{8}\b", f"commit {commit}", page)
    assert changed == len(SAMPLES), "each sample names its commit"
    PAGE.write_text(page)
    cpu = json.loads(printed(program, "env", "--json"))["cpu"]
    print(f"readme_samples: this is {cpu}; correct the machine's name in the page if it is another", file=sys.stderr)


if __name__ == "__main__":
    main()
