"""What commands that take minutes say meanwhile: a line at the bottom of a terminal, a line every ten seconds
elsewhere, and an answer to Ctrl-C."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import pytest

from conftest import PROGRAM

pytestmark = pytest.mark.real_program
ERASE = "\r\x1b[2K"
TINY = """\
name: job
model: {name: mlp, num_classes: 10, hidden: [32]}
data: {dataset: fake_cifar10, size: 64, batch_size: 8, transforms: [{resize: 8}, {normalize: {mean: 0.5, std: 0.5}}]}
optimizations: {amp: true}
"""
COMPARE = ["compare", "job.yaml", "--with", "optimizations.amp=false"]
# No verdict that ends it: an interval as narrow as this is never reached.
ENDLESS = [*COMPARE, "--precision", "0.0001%", "--no-numbers"]


@pytest.fixture
def job(trainopt):
    trainopt.write("job.yaml", TINY)
    return trainopt


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, job, *arguments, columns=80, **variables):
        self.end, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {"TERM": "xterm", **variables}
        self.process = subprocess.Popen(
            [PROGRAM, *arguments],
            cwd=job.folder,
            stdin=other,
            stdout=other,
            stderr=other,
            env={**job.environment(), **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C reaches who has it as its terminal
        )
        job.started.append(self.process)
        os.close(other)
        self.output = ""

    def read_until(self, text):
        while text is None or text not in self.output:
            assert select.select([self.end], [], [], 120)[0], self.output
            try:
                data = os.read(self.end, 65536)
            except OSError:  # the command has closed the terminal
                data = b""
            if not data:
                assert text is None, self.output
                break
            self.output += data.decode()
        return self.output

    def to_the_end(self):
        self.read_until(None)
        return self.process.wait()

    def drawn(self):
        """Every state of the line at the bottom."""
        return [re.split(r"[\r\n]", piece)[0] for piece in self.output.split(ERASE)[1:]]


def test_a_terminal_has_a_line_at_the_bottom_that_is_gone_at_the_end(job):
    terminal = Terminal(job, *COMPARE, "--repeats", "4")
    assert terminal.to_the_end() == 0, terminal.output
    first, last = terminal.output.index("A is job.yaml"), terminal.output.rindex(ERASE)
    assert first < last, terminal.output
    assert "results are in" in terminal.output[last:], terminal.output
    lines = [line for line in terminal.drawn() if re.match(r"\d+ s: ", line)]  # repeats have no time limit
    assert lines and any("block" in line for line in lines), lines


@pytest.mark.parametrize("columns", [20, 1])
def test_what_does_not_fit_into_a_line_is_cut_off(job, columns):
    terminal = Terminal(job, *COMPARE, "--repeats", "2", columns=columns)
    assert terminal.to_the_end() == 0, terminal.output
    states = [line for line in terminal.drawn() if re.match(r"\d+ s", line)]
    assert all(len(line) < columns for line in states), states
    assert states or columns == 1


@pytest.mark.parametrize("how", [{"TERM": "dumb"}, {"NO_COLOR": "1"}, "--no-color"])
def test_a_terminal_that_obeys_no_escape_sequences_gets_lines(job, how):
    words, variables = ([how], {}) if isinstance(how, str) else ([], how)
    terminal = Terminal(job, *COMPARE, "--repeats", "2", *words, **variables)
    assert terminal.to_the_end() == 0, terminal.output
    assert "\x1b" not in terminal.output and "info: A is job.yaml" in terminal.output, terminal.output


def test_ctrl_c_is_acknowledged_and_the_end_names_the_command(job):
    terminal = Terminal(job, *ENDLESS, "--run-dir", "it's")
    terminal.read_until("so far")
    os.write(terminal.end, b"\x03")
    assert terminal.to_the_end() == 128 + signal.SIGINT, terminal.output
    acknowledged = terminal.output.index("stopping after what is in progress; a second Ctrl-C")
    assert acknowledged < terminal.output.index("until it was stopped"), terminal.output
    again = f"to measure it again: trainopt {' '.join(ENDLESS)}\r\n"
    assert again in terminal.output, terminal.output
    assert (job.folder / "it's" / "result.json").exists()


def test_elsewhere_a_line_every_ten_seconds_says_what_is_done(job):
    process = job.start(*ENDLESS, "--budget", "50s", "--run-dir", "out")
    for line in process.stderr:
        if found := re.match(r"info: (\d+) s of at most 50 s: block \d+, B [+-]\d", line):
            assert int(found[1]) >= 10
            break
    else:
        pytest.fail("no line of progress")
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGINT and "until it was stopped" in out, errors


def test_a_quiet_command_says_nothing_of_it(job):
    result = job(*COMPARE, "--repeats", "2", "--quiet", "--run-dir", "out")
    assert result.code == 0 and result.err == "", result


def test_find_and_tune_say_what_they_do(job):
    terminal = Terminal(job, "find", "lr", "job.yaml", "--steps", "40", "--run-dir", "out")
    assert terminal.to_the_end() == 0, terminal.output
    assert "training 40 steps with growing rates" in terminal.output, terminal.output
    terminal = Terminal(job, "tune", "job.yaml", "--budget", "30s", "--goal", "memory", "--run-dir", "tuned")
    terminal.read_until("a run of")
    os.write(terminal.end, b"\x03")
    assert terminal.to_the_end() == 128 + signal.SIGINT, terminal.output
    folder = job.folder / "tuned"
    again = f"to continue: trainopt tune job.yaml --budget 30s --goal memory --run-dir {folder}"
    assert again in terminal.output, terminal.output


def test_a_quiet_run_prints_its_result_and_its_folder(job):
    run = ("run", "job.yaml", "device=cpu", "train.max_steps=4", "--run-dir")
    result = job(*run, "quiet", "--quiet")
    assert result.code == 0 and result.out.count("\n") == 1, result
    assert re.match(r"done after 4 steps, .*last loss [\d.]+; the run directory is quiet\n", result.out), result

    answer = job(*run, "json", "--json").json()
    assert answer["run_dir"] == "json" and answer["steps"] == 4 and answer["status"] == "done"
    summary = json.loads((job.folder / "json" / "summary.json").read_text())
    assert {key: answer[key] for key in summary} == summary


def test_a_document_under_launch_has_no_ranks_in_front(job):
    run = ("run", "job.yaml", "device=cpu", "train.max_steps=2", "data.batch_size=2", "optimizations=null")
    launched = job("launch", "-n", "2", "--", *run, "--run-dir", "json", "--json")
    assert launched.code == 0, launched
    assert launched.json()["run_dir"] == "json"
    plain = job("launch", "-n", "2", "--", *run, "--run-dir", "plain", "--quiet")
    assert plain.code == 0 and plain.out.startswith("[0] done after 2 steps"), plain


def test_a_report_as_json(job):
    assert job("run", "job.yaml", "device=cpu", "train.max_steps=2", "--run-dir", "run", "--quiet").code == 0
    assert job(*COMPARE, "--repeats", "2", "--no-numbers", "--run-dir", "result", "--quiet").code == 0
    answer = job("report", "run", "result", "--out", "both.html", "--json").json()
    assert answer["page"] == "both.html" and (job.folder / "both.html").exists()
    run, result = answer["folders"]
    assert run["kind"] == "run" and run["summary"]["steps"] == 2
    assert result["kind"] == "comparison" and result["result"]["verdict"] == "inconclusive"


def test_an_inconclusive_result_says_what_would_decide_it(job):
    few = ("--no-numbers", "--repeats", "3", "--min-effect", "0.1%", "--budget", "50s")
    result = job(*COMPARE, *few, "--run-dir", "out")
    assert result.code == 0 and "inconclusive" in result.out, result
    again = "trainopt compare job.yaml --with optimizations.amp=false --no-numbers --min-effect 0.1% --budget "
    assert "to find or rule out a difference of 0.1 % takes about" in result.out and again in result.out, result
    answer = json.loads((job.folder / "out" / "result.json").read_text())
    assert all(each["command"] is None or each["command"].startswith(again) for each in answer["to_decide"])
    assert any(each["budget_s"] for each in answer["to_decide"])
    assert job("compare", "--show", "out").out in result.out  # the same, without where the results are
