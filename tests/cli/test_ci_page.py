"""The workflow of app/guide/continuous-integration.md is valid YAML, and its commands run as written, with fewer
measurements."""

import os
import re
import subprocess

import yaml

from conftest import CHECKOUT, PROGRAM
from stored_results import RECIPE

PAGE = (CHECKOUT / "app/guide/continuous-integration.md").read_text()
(WORKFLOW,) = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
(BASELINE,) = re.findall(r"```\n(trainopt compare .*?)\n```", PAGE)

# As the installed program, but with two pairs, or three processes, and short turns.
SHORT = f"""\
#!/bin/bash
words=() next=
for word in "$@"; do
  [ "$next" = --repeats ] && word=2
  words+=("$word") next=$word
done
[[ " $* " == *" --repeats "* ]] || words+=(--repeats 2)
exec {os.path.abspath(PROGRAM)} "${{words[@]}}" --turn 5ms bench.warmup_steps=3
"""


def steps(job):
    return WORKFLOW["jobs"][job]["steps"]


def test_every_action_is_pinned_and_every_job_is_limited():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    for job in WORKFLOW["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            assert "run" in step or re.fullmatch(r"actions/[a-z-]+@v\d+\.\d+\.\d+", step["uses"]), step
            assert "${{" not in step.get("run", ""), "a script must get text of the event through its environment"
    assert "github.repository" in WORKFLOW["jobs"]["gpu-against-baseline"]["if"]


def test_the_commands_run(trainopt):
    tools = trainopt.folder / "tools"
    tools.mkdir()
    (tools / "trainopt").write_text(SHORT)
    (tools / "trainopt").chmod(0o755)
    trainopt.write("job.yaml", RECIPE)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "job.yaml"], ["commit", "-q", "-m", "base"]):
        subprocess.run([*git, *words], cwd=trainopt.folder, check=True)
    trainopt.write("job.yaml", RECIPE + "optimizations: {set_to_none: true}\n")
    env = trainopt.environment() | {"PATH": f"{tools}:{os.environ['PATH']}", "BASE": "HEAD", "BASELINE": "baseline"}

    def run(script, summary):
        """As a runner does: ends at the first failure."""
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=trainopt.folder,
            env=env | {"GITHUB_STEP_SUMMARY": str(trainopt.folder / summary)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stderr

    code, err = run(BASELINE, "none")
    assert code == 0 and (trainopt.folder / "baseline/result.json").exists(), err
    ran = 0
    for job, step in [(job, step) for job in WORKFLOW["jobs"] for step in steps(job)]:
        if "trainopt compare" not in step.get("run", ""):
            continue
        code, err = run(step["run"], job)
        summary = (trainopt.folder / job).read_text()
        assert code in (0, 10), err
        assert f"**gate: {'failed' if code else 'passed'}: " in summary and summary.startswith("**"), summary
        upload = next(step for step in steps(job) if "upload-artifact" in step.get("uses", ""))
        assert (trainopt.folder / upload["with"]["path"] / "result.json").exists()
        (trainopt.folder / upload["with"]["path"]).rename(trainopt.folder / f"{job}-speed")
        ran += 1
    assert ran == 2
