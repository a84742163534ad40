"""What people type because other programs take it, the help, and the completion of shells."""

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess

import pytest

from conftest import CHECKOUT, PROGRAM, TINY

COMMANDS = "run plan check options profile roofline compare ablate tune launch trace report env completion".split()
INNER = {"data": "bench export pack show", "find": "batch lr", "checkpoint": "verify show diff", "model": "show save"}


@pytest.mark.parametrize(
    "words, lead",
    [
        ("comapre", "did you mean 'compare'?"),
        ("trian", "did you mean 'run'?"),
        ("fit", "did you mean 'run'?"),
        ("train", "did you mean 'run'?"),
        ("data bnech", "did you mean 'bench'?"),
        ("--resume", "write checkpoint.resume=auto"),
        ("run tiny.yaml --resume", "write checkpoint.resume=auto"),
        ("run -c tiny.yaml", "a recipe needs no option before it"),
        ("run --config tiny.yaml", "a recipe needs no option before it"),
        ("run tiny.yaml -m", "trainopt launch -n 2 -- run"),
        ("run tiny.yaml --nproc_per_node 2", "trainopt launch -n 2 -- run"),
        ("run tiny.yaml --lr 0.1", "write optimizer.lr=0.1"),
        ("run tiny.yaml --train.max_steps 3", "write train.max_steps=3"),
        ("run tiny.yaml --quite", "did you mean '--quiet'?"),
        ("run tiny.yaml +train.max_steps=3", "write train.max_steps=3"),
        ("run tiny.yaml ~seed", "write seed=null"),
        ("run tiny.yaml seed = 1", "write seed=1"),
        ("run tiny.yaml seed: 1", "write seed=1"),
        ("run tinny.yaml", "there is no such recipe"),
    ],
)
def test_words_of_other_programs_lead_on(trainopt, words, lead):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt(*words.split())
    assert result.code == 2 and lead in result.err and result.err.count("\n") == 1, result
    assert [path.name for path in trainopt.folder.iterdir()] == ["tiny.yaml"]


def test_one_word_with_spaces_leads_on(trainopt):
    trainopt.write("tiny.yaml", TINY)
    for word in ("seed = 1", "seed: 1", "seed =1"):
        assert "write seed=1" in trainopt("run", "tiny.yaml", word).err


def test_recipes_are_found_by_name(trainopt):
    (trainopt.folder / "configs").mkdir()
    trainopt.write("configs/little.yaml", TINY)
    for name in ("little", "little.yaml", "configs/little.yaml"):
        assert trainopt("plan", name).code == 0
    assert "did you mean 'little'?" in trainopt("plan", "litle").err
    assert trainopt("plan", "../configs/little").code == 2


def pages(trainopt):
    yield trainopt("--help")
    for command in COMMANDS:
        yield trainopt(command, "--help")
    for command, inner in INNER.items():
        yield trainopt(command, "--help")
        for each in inner.split():
            yield trainopt(command, each, "--help")


def test_help_has_an_example_and_breaks_no_word(trainopt):
    for page in pages(trainopt):
        assert page.code == 0 and "\nExample:\n  " in page.out and "Exit codes: 0 done" in page.out, page
        too_long = [line for line in page.out.splitlines() if len(line) > 80]
        # A command's form is one line, as is an option whose own words are longer.
        assert all(line.startswith(("Usage:", "  -", "  trainopt")) for line in too_long), too_long
    assert trainopt("help", "compare").out == trainopt("compare", "--help").out
    assert trainopt("help", "data", "bench").out == trainopt("data", "bench", "--help").out
    assert trainopt("help").out == trainopt("--help").out


def test_examples_are_commands_that_are_taken(trainopt):
    """Their options and keys exist: with --help at the end, every word before it is parsed."""
    for page in pages(trainopt):
        (line,) = re.findall(r"Example:\n  (.*)", page.out)
        if line.startswith("trainopt"):
            assert trainopt(*line.split()[1:], "--help").code == 0, line


def test_an_empty_no_color_is_no_request(trainopt):
    trainopt.write("tiny.yaml", TINY)

    def written(**more):
        """What a run writes to a terminal; its progress line moves the cursor."""
        env = {**trainopt.environment(), "TERM": "xterm-256color", **more}
        ours, theirs = pty.openpty()
        run = subprocess.Popen(
            [PROGRAM, "run", "tiny.yaml"], env=env, cwd=trainopt.folder, stdout=theirs, stderr=theirs, stdin=theirs
        )
        os.close(theirs)
        output = b""
        with contextlib.suppress(OSError):  # the terminal's end
            while piece := os.read(ours, 65536):
                output += piece
        os.close(ours)
        assert run.wait() == 0
        return output

    escape = b"\x1b["
    assert escape in written() and escape in written(NO_COLOR="") and escape not in written(NO_COLOR="1")


# Completion


def completed(trainopt, line, script):
    """What bash offers for a line."""
    test = f"""
    source {script}
    COMP_LINE={json.dumps(line)} COMP_POINT={len(line)}
    compopt() {{ :; }}
    _trainopt
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    run = subprocess.run(["bash", "-c", test], cwd=trainopt.folder, capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_bash_completes_commands_options_recipes_keys_and_values(trainopt):
    (trainopt.folder / "configs").mkdir()
    trainopt.write("configs/little.yaml", TINY)
    trainopt.write("mine.yaml", TINY)
    script = trainopt.folder / "completion.bash"
    script.write_text(trainopt("completion", "bash").out)

    def offers(line):
        return completed(trainopt, line, script)

    assert set(COMMANDS) <= set(offers("trainopt ")) and offers("trainopt comp") == ["compare", "completion"]
    assert "bench" in offers("trainopt data ") and offers("trainopt data b") == ["bench"]
    assert offers("trainopt run --run") == ["--run-dir"] and offers("trainopt run --qui") == ["--quiet"]
    assert {"little", "mine.yaml", "optimizer.lr="} <= set(offers("trainopt run "))
    assert {"optimizer.lr=", "optimizer.lr_scaling="} <= set(offers("trainopt run mine.yaml optimizer.l"))
    assert {"sgd", "adamw"} <= set(offers("trainopt run mine.yaml optimizer.name="))
    assert offers("trainopt compare mine.yaml optimizations.channels_last=t") == ["true"]
    assert "optimizer.lr=" not in offers("trainopt env ")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_of_other_shells_are_valid(trainopt, shell):
    script = trainopt.folder / f"completion.{shell}"
    script.write_text(trainopt("completion", shell).out)
    assert "optimizer.name" in script.read_text() and "min-effect" in script.read_text()
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", script], check=True)


def test_fish_completes(trainopt):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    script = trainopt.folder / "completion.fish"
    script.write_text(trainopt("completion", "fish").out)

    def offers(line):
        run = subprocess.run(
            ["fish", "-c", f"source {script}; complete -C '{line}'"], capture_output=True, text=True, check=True
        )
        return [each.split("\t")[0] for each in run.stdout.splitlines()]
    assert offers("trainopt comp") == ["compare", "completion"]
    names = ("adagrad", "adam", "adamw")
    assert offers("trainopt run optimizer.name=ada") == [f"optimizer.name={name}" for name in names]


def test_completion_of_another_shell(trainopt):
    assert "completion is for bash, zsh and fish: tcsh" in trainopt("completion", "tcsh").err


# Names of the by-name page

PAGE = (CHECKOUT / "app/guide/by-name.md").read_text()


def known_as():
    """Each name in the first column, with the second column's first key or command."""
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("| ") or cells[0] == "known as":
            continue
        here = re.search(r"`(?:trainopt )?([\w. ]+)", cells[1])
        for name in re.split(r", | \(|\)", cells[0]):
            if name := name.replace("`", "").strip():
                yield name, here[1] if here else cells[1].split()[0]


def test_options_finds_every_name_of_the_page(trainopt):
    names = list(known_as())
    assert len(names) > 95
    for name, here in names:
        result = trainopt("options", name)
        is_key = re.search(rf"(^|\.){re.escape(name)}\b", result.out) is not None  # shown first, as it is more exact
        assert result.code == 0 and (here.split(",")[0] in result.out or is_key), (name, here, result)


@pytest.mark.parametrize(
    "words, key",
    [
        (".item()", "debug.find_syncs"),
        ("xformers", "optimizations.attention"),
        ("alluxio", "data.cache"),
        ("memory_viz", "profiler.memory_snapshot"),
        ("nvtx", "profiler"),
        ("EARLY STOPPING", "train.target.top1_pct"),
        ("wandb", "logging.sinks"),
        ("torch.compile", "optimizations.fused_kernels"),
    ],
)
def test_options_finds_words_in_either_case(trainopt, words, key):
    result = trainopt("options", words)
    assert result.code == 0 and key in result.out, result


def test_options_points_to_the_page(trainopt):
    result = trainopt("options", "zzzz")
    assert result.code == 2 and "app/guide/by-name.md" in result.err, result
    assert "ema" in trainopt("options", "ema").out.split("\n")[0].lower(), "whole words come first"
