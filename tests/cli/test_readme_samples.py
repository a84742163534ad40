"""README.md's samples are of this version, and what stands beside them is true of them."""

import re
import subprocess
import sys

import pytest

from conftest import CHECKOUT

sys.path.append(str(CHECKOUT / "scripts/workshop"))
import readme_samples

PAGE = readme_samples.PAGE.read_text()


def lines_of(name):
    return readme_samples.block_of(PAGE, name)[2]


def label(line):
    """The first column of a table's row, or a sentence without its numbers."""
    row = re.match(r"  (\S+(?: \S+)*)  +\S", line)
    return row[1] if row else re.sub(r"[\d.,]+", "#", line)


def test_each_sample_names_the_one_commit_of_all():
    commits = re.findall(r"commit ([0-9a-f]{8})\b", PAGE)
    assert len(commits) == len(readme_samples.SAMPLES) and len(set(commits)) == 1, commits
    here = subprocess.run(["git", "cat-file", "-e", commits[0]], cwd=CHECKOUT, capture_output=True)
    if here.returncode:
        pytest.skip("this clone lacks the commit")
    subprocess.run(["git", "merge-base", "--is-ancestor", commits[0], "HEAD"], cwd=CHECKOUT, check=True)


def test_the_page_shows_the_commands_that_the_script_runs():
    for name in ("tune", "compare"):
        assert lines_of(name)[0] == f"$ {readme_samples.SAMPLES[name][0]}"


def test_the_sample_of_a_run_has_the_labels_of_this_version(trainopt):
    """A run of the same recipe prints each of the sample's rows."""
    small = ["data.transforms=[{resize: 32}, {normalize: {mean: 0.5, std: 0.5}}]", "train.max_steps=4"]
    done = trainopt("run", CHECKOUT / "configs/quickstart.yaml", *small)
    assert done.code == 0, done
    printed = {label(line) for line in done.out.splitlines()}
    rows = [label(line) for line in lines_of("run") if line.startswith("  ")]
    assert len(rows) > 8 and set(rows) <= printed, set(rows) - printed
    # "The lines from num_workers on are the receipts."
    receipts = rows[rows.index("num_workers") :]
    assert {"pin_memory", "winograd", "amp"} <= set(receipts)
    assert not {"samples/s", "step time", "peak memory"} & set(receipts)


def test_the_sample_of_tune_has_what_the_page_says_of_it():
    text = "\n".join(lines_of("tune"))
    assert text.startswith("$ ") and "limited by" in text and "against the original: " in text
    numbered = re.findall(r"^  (\d+)  .*\n     estimated \S+ %, measured .*; (.*)$", text, re.MULTILINE)
    assert numbered and [int(number) for number, _ in numbered] == sorted(int(number) for number, _ in numbered)
    kept = re.search(r"^kept: (.*)$", text, re.MULTILINE)[1].split()
    changes = re.findall(r"^  \d+  [^:]*: (.*)\n     estimated .*; kept$", text, re.MULTILINE)
    assert " ".join(changes).split() == kept, "what is kept at the end is what was kept on the way"


def test_the_sample_of_compare_has_what_the_page_says_of_it():
    first = lines_of("compare")[1]
    found = re.match(r"pays: B is at least ([\d.]+) % faster; measured \+([\d.]+) %, 95 % interval \+([\d.]+) %", first)
    assert found and float(found[1]) == float(found[3]) <= float(found[2]), first
    assert any(re.match(r"  switch +winograd: A off; B ", line) for line in lines_of("compare"))
