"""`trainopt report`, and the page that every run leaves."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from conftest import CHECKOUT, PROGRAM, TINY, summary, wait_until

sys.path.insert(0, str(CHECKOUT / "scripts/workshop"))
import browser  # noqa: E402

FULL = TINY + (
    "optimizations: {fused_optimizer: true, cuda_graph: true}\nprofiler: {wait: 2, warmup: 1, active: 2}\n"
    "bench: {warmup_steps: 2}\n"
)
VOID = {"meta", "link", "br", "hr", "input", "img", "wbr", "col"}


class Page(HTMLParser):
    """A page whose tags all match, with its figures as {data-key: data-value}."""

    def __init__(self, path):
        super().__init__()
        self.path, self.figures, self.ids, self.text, self.open, self.loads = path, {}, [], "", [], []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert not self.open, self.open
        assert len(self.ids) == len(set(self.ids)), "an id is used twice"
        assert not self.loads, self.loads

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        self.note(attributes)

    def handle_startendtag(self, tag, attributes):
        self.note(attributes)

    def note(self, attributes):
        attributes = dict(attributes)
        if "data-key" in attributes:
            known = self.figures.setdefault(attributes["data-key"], attributes["data-value"])
            assert known == attributes["data-value"], f"two values of {attributes['data-key']}"
        if "id" in attributes:
            self.ids.append(attributes["id"])
        for name in ("src", "href", "xlink:href", "action", "data"):
            if not (attributes.get(name) or "#").startswith(("#", "data:")):
                self.loads.append(attributes[name])

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text += data


def look_at(page, out):
    """In Chromium: nothing overlaps, is cut or too faint, at three widths, light and dark; no error in the console.
    Comes last in a test, because without Chromium the rest of it is skipped."""
    if not browser.program():
        pytest.skip("chromium is not installed")
    command = [sys.executable, CHECKOUT / "scripts/workshop/look_at_report", page, out]
    looked = subprocess.run(command, capture_output=True, text=True)
    assert looked.returncode == 0, looked.stdout + looked.stderr


NOWHERE = object()


def value_at(document, key):
    """The value at a dotted key, whose parts may have dots themselves, as the names of some switches do."""
    if isinstance(document, dict) and key in document:
        return document[key]
    for cut in (at for at, letter in enumerate(key) if letter == "."):
        name, rest = key[:cut], key[cut + 1 :]
        if isinstance(document, dict) and name in document:
            found = value_at(document[name], rest)
        elif isinstance(document, list) and name.isdigit() and int(name) < len(document):
            found = value_at(document[int(name)], rest)
        else:
            continue
        if found is not NOWHERE:
            return found
    if isinstance(document, list) and key.isdigit() and int(key) < len(document):
        return document[int(key)]
    return NOWHERE


def assert_equal_numbers(figures, documents):
    """Each figure is what the JSON says; `documents` by the prefix of their keys."""
    assert figures
    for key, value in figures.items():
        prefix = max((one for one in documents if key.startswith(one)), key=len)
        found = value_at(documents[prefix], key.removeprefix(prefix))
        assert found is not NOWHERE or value == "null", f"{key} is not in the JSON"
        found = None if found is NOWHERE else found
        number = isinstance(found, (int, float)) and not isinstance(found, bool)
        text = found if isinstance(found, str) else json.dumps(found)
        same = value == text or (number and float(value) == found)
        assert same, f"{key}: {value} in the page, {found} in the JSON"


def documents_of(run):
    documents = {"": summary(run)}
    for name in ("plan", "environment", "profile"):
        if (run / f"{name}.json").exists():
            documents[f"{name}."] = json.loads((run / f"{name}.json").read_text())
    return documents


@pytest.fixture
def run(trainopt):
    trainopt.write("full.yaml", FULL)
    done = trainopt("run", "full.yaml", "--run-dir", "out", "device=cpu")
    assert done.code == 0, done
    return trainopt


def operations_of(page):
    """The operations that the page shows: the slowest, which are not always the first ones in profile.json."""
    return [key for key in page.figures if re.fullmatch(r"profile\.operations\.\d+\.cpu_self_ms", key)]


def test_every_run_leaves_a_page_whose_numbers_are_the_summarys(run):
    page = Page(run.folder / "out/report.html")
    documents = documents_of(run.folder / "out")
    figures = {key: value for key, value in page.figures.items() if not key.startswith("profile.")}
    assert_equal_numbers(figures, documents)
    for key in ("samples_per_s", "step_ms.p50", "data_wait_pct", "loss.last", "memory.peak_bytes", "measured_steps"):
        assert key in page.figures, key
    assert page.figures["receipts.fused_optimizer.effective"] == "true"
    assert page.figures["receipts.cuda_graph.effective"] == "false"
    assert operations_of(page)
    assert page.figures["environment.libtorch"] == documents["environment."]["libtorch"]
    for words in ("What limits it", "Which switches did what", "What to try", "Loss and evaluation"):
        assert words in page.text, words
    look_at(page.path, run.folder / "look")


def test_the_command_writes_the_same_page(run):
    before = Page(run.folder / "out/report.html")
    for arguments, place in (((), "out/report.html"), (("--out", "elsewhere.html"), "elsewhere.html")):
        done = run("report", "out", *arguments)
        assert (done.code, done.out, done.err) == (0, f"{place}\n", "")
        assert Page(run.folder / place).figures == before.figures


def test_a_folder_that_cannot_be_written_is_read(run):
    """On a file system mounted for reading; the page goes elsewhere."""
    run.write("elsewhere.sh", 'mount --bind out out && mount -o remount,bind,ro out && exec "$@"')
    command = ["unshare", "--mount", "sh", "elsewhere.sh", PROGRAM, "report", "out/", "--out", "page.html"]
    done = subprocess.run(command, cwd=run.folder, capture_output=True, text=True, env=run.environment())
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stdout, done.stderr) == (0, "page.html\n", "")
    assert Page(run.folder / "page.html").figures["status"] == "done"


def test_a_run_can_do_without_a_page(trainopt):
    trainopt.write("tiny.yaml", TINY)
    assert trainopt("run", "tiny.yaml", "--run-dir", "out", "logging.report=false").code == 0
    assert not (trainopt.folder / "out/report.html").exists()


def test_runs_side_by_side(run):
    assert run("run", "full.yaml", "--run-dir", "other", "device=cpu", "data.batch_size=4").code == 0
    done = run("report", "out", "other")
    assert (done.code, done.out) == (0, "report.html\n")
    page = Page(run.folder / "report.html")
    documents = {}
    for number, name in ((1, "out"), (2, "other")):
        for prefix, document in documents_of(run.folder / name).items():
            documents[f"{number}.{prefix}"] = document
        documents[f"{number}."]["name"] = name
    figures = {key: value for key, value in page.figures.items() if ".profile." not in key}
    assert_equal_numbers(figures, documents)
    assert "data.batch_size" in page.text


def test_two_ranks_have_a_strip_and_their_receipts(trainopt):
    trainopt.write("tiny.yaml", TINY)
    run = ("run", "tiny.yaml", "--run-dir", "out", "device=cpu", "parallel.sharding_strategy=zero1")
    done = trainopt("launch", "-n", "2", "--", *run)
    assert done.code == 0, done
    page = Page(trainopt.folder / "out/report.html")
    assert_equal_numbers(page.figures, documents_of(trainopt.folder / "out"))
    assert page.figures["receipts.parallel.sharding_strategy.effective"] == "true"
    assert "chart-ranks" in page.ids
    assert "trainopt launch -n 2 -- ablate out/recipe.yaml" in page.text


def test_a_resumed_run_is_one_run(trainopt):
    trainopt.write("tiny.yaml", TINY + "bench: {warmup_steps: 2}\n")
    assert trainopt("run", "tiny.yaml", "run_dir=out", "checkpoint.resume=auto", "device=cpu").code == 0
    more = ("run", "tiny.yaml", "run_dir=out", "checkpoint.resume=auto", "train.max_steps=12", "device=cpu")
    assert trainopt(*more).code == 0
    page = Page(trainopt.folder / "out/report.html")
    assert "resumed" in page.text
    assert "end of the warm-up" in page.text


def test_a_profile_has_its_numbers(trainopt):
    trainopt.write("tiny.yaml", TINY)
    done = trainopt("profile", "tiny.yaml", "--run-dir", "out", "device=cpu")
    assert done.code == 0, done
    page = Page(trainopt.folder / "out/report.html")
    assert_equal_numbers(page.figures, documents_of(trainopt.folder / "out"))
    assert operations_of(page)


def test_comparisons_and_ablations(trainopt):
    trainopt.write("job.yaml", TINY + "optimizations: {set_to_none: true, fused_optimizer: true, cuda_graph: true}\n")
    quick = ("--budget", "20s", "--repeats", "2", "--turn", "10ms")
    for name, command in (
        ("comparison", ("compare", "job.yaml", "--without", "set_to_none")),
        ("several", ("compare", "job.yaml", "--each", "data.batch_size=4,8")),
        ("ablation", ("ablate", "job.yaml")),
    ):
        done = trainopt(*command, *quick, "--run-dir", name, "device=cpu")
        assert done.code == 0, done
        page = Page(trainopt.folder / name / "report.html")
        result = json.loads((trainopt.folder / name / "result.json").read_text())
        environment = json.loads((trainopt.folder / name / "environment.json").read_text())
        assert_equal_numbers(page.figures, {"": result, "environment.": environment})
        assert f"{'total.' if name == 'ablation' else 'arms.'}" in " ".join(page.figures)
    done = trainopt("report", "comparison", "several", "ablation", "--out", "all.html")
    assert done.code == 0, done
    page = Page(trainopt.folder / "all.html")
    assert {key.split(".")[0] for key in page.figures} == {"1", "2", "3"}
    look_at(page.path, trainopt.folder / "look")


def test_a_folder_of_runs_is_a_ladder(run):
    (run.folder / "ladder").mkdir()
    shutil.copytree(run.folder / "out", run.folder / "ladder/0-first")
    shutil.copytree(run.folder / "out", run.folder / "ladder/10-last")
    shutil.copytree(run.folder / "out", run.folder / "ladder/2-second")
    verdict = {"ratio": 1.25, "interval": [1.2, 1.3], "verdict": "pays"}
    (run.folder / "ladder/2-second/compare.json").write_text(json.dumps(verdict))
    assert run("report", "ladder").code == 0
    page = Page(run.folder / "ladder/report.html")
    assert [page.figures[f"{i}.name"] for i in (1, 2, 3)] == ["0-first", "2-second", "10-last"]
    assert page.figures["2.against_previous.ratio"] == "1.25"
    assert "1.against_previous.ratio" not in page.figures
    look_at(page.path, run.folder / "look")


def test_text_from_elsewhere_stays_text(trainopt):
    evil = "</script><script>alert(1)</script>\"'&<b>"
    trainopt.write("tiny.yaml", TINY.replace("name: tiny", f"name: {json.dumps(evil)}"))
    done = trainopt("run", "tiny.yaml", "--run-dir", "<i>out", "device=cpu")
    if done.code != 0:  # a name that cannot be a folder's is refused; the summary may still have it
        trainopt.write("tiny.yaml", TINY)
        assert trainopt("run", "tiny.yaml", "--run-dir", "<i>out", "device=cpu").code == 0
    folder = trainopt.folder / "<i>out"
    for name in ("summary.json", "environment.json", "plan.json"):
        text = json.dumps(spoiled(json.loads((folder / name).read_text()), evil))
        (folder / name).write_text(text)
    (folder / "run.log").write_bytes(evil.encode() + b"\xff\x00\x1b[31m\xe2\x80\xae\n")
    assert trainopt("report", "<i>out").code == 0
    page = Page(folder / "report.html")
    assert "alert(1)" in page.text
    assert evil not in page.source
    assert "<script>alert" not in page.source and "<b>" not in page.source
    scripts = page.source.lower().count("<script")
    assert scripts == page.source.lower().count("</script")


def spoiled(document, evil):
    """The same with every text, and every name of a unit, switch or reason, replaced."""
    if isinstance(document, dict):
        names = {"receipts", "not_measured"}
        return {
            key: {f"{evil}{name}": spoiled(one, evil) for name, one in value.items()}
            if key in names and isinstance(value, dict)
            else spoiled(value, evil)
            for key, value in document.items()
        }
    if isinstance(document, list):
        return [spoiled(one, evil) for one in document]
    return evil if isinstance(document, str) and document not in ("done", "failed") else document


def emptied(document):
    if isinstance(document, dict):
        return {key: emptied(value) for key, value in document.items()}
    return None


@pytest.mark.parametrize("how", ["emptied", "removed", "cut"])
def test_what_is_missing_is_said_or_left_out(run, how):
    folder = run.folder / "out"
    for name in ("summary.json", "plan.json", "environment.json", "recipe.yaml", "metrics.jsonl", "telemetry.jsonl"):
        path = folder / name
        if how == "removed" and name != "summary.json":
            path.unlink()
        elif how == "cut":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2].rstrip(b"\n"))
        elif how == "emptied" and name.endswith(".json"):
            path.write_text(json.dumps(emptied(json.loads(path.read_text()))))
        elif how == "emptied" and name.endswith(".jsonl"):
            lines = [json.dumps(emptied(json.loads(line))) for line in path.read_text().splitlines()]
            path.write_text("\n".join(lines) + "\n")
    done = run("report", "out")
    assert (done.code, done.err) == (0, "")
    page = Page(folder / "report.html")
    if how == "cut":
        assert "metrics.jsonl: the last line is cut off and was left out" in page.text
        assert "summary.json cannot be read: parse error" in page.text
    if how == "emptied":
        assert page.figures["samples_per_s"] == "null"
        assert "–" in page.text


def test_a_run_of_one_step(trainopt):
    trainopt.write("tiny.yaml", TINY)
    assert trainopt("run", "tiny.yaml", "--run-dir", "out", "train.max_steps=1", "device=cpu").code == 0
    page = Page(trainopt.folder / "out/report.html")
    assert_equal_numbers(page.figures, documents_of(trainopt.folder / "out"))


def test_a_run_that_failed_says_why(trainopt):
    trainopt.write("tiny.yaml", TINY)
    done = trainopt("run", "tiny.yaml", "--run-dir", "out", "--inject", "nan@3", "device=cpu")
    assert done.code == 6, done
    page = Page(trainopt.folder / "out/report.html")
    assert page.figures["status"] == "failed"
    assert page.figures["reason"] == summary(trainopt.folder / "out")["reason"]
    assert page.figures["reason"] in page.text


def test_watching_rewrites_the_page_until_the_run_has_ended(trainopt):
    trainopt.write("tiny.yaml", TINY)
    running = trainopt.start("run", "tiny.yaml", "--run-dir", "out", "train.max_steps=1000000", "device=cpu")
    wait_until(lambda: (trainopt.folder / "out/metrics.jsonl").exists(), running)
    watching = trainopt.start("report", "out", "--watch", "--interval", "1")
    path = trainopt.folder / "out/report.html"
    wait_until(path.exists, watching)
    first = path.stat().st_mtime_ns
    assert 'data-reload-s="1"' in path.read_text()
    wait_until(lambda: path.stat().st_mtime_ns != first, watching)
    running.send_signal(signal.SIGTERM)
    assert running.wait(120) == 128 + signal.SIGTERM
    assert watching.wait(120) == 0
    page = Page(path)
    assert page.figures["status"] == "stopped"
    assert "data-reload-s=" not in page.source.split("<style>")[0]


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        ((), 2, "folder is required"),
        (("nowhere",), 3, "nowhere is not a folder"),
        (("recipe.yaml",), 3, "recipe.yaml is not a folder"),
        (("empty",), 3, "empty is neither a run directory nor the result of compare, ablate or find lr"),
        (("damaged",), 3, "damaged: result.json is damaged"),
        (("good", "--out", "nowhere/page.html"), 8, "nowhere/page.html"),
        (("good", "--out", "empty"), 8, "empty is not a regular file"),
        (("good", "--out", "/dev/null"), 8, "/dev/null is not a regular file"),
        (("good", "--out", "good/summary.json"), 8, "good/summary.json exists and is not a page"),
        (("good", "--out", ""), 2, "must not be empty"),
        (("good", "--interval", "3"), 2, "--interval"),
        (("good", "--watch", "--interval", "0"), 2, "--interval"),
    ],
)
def test_bad_input_gets_one_sentence(trainopt, arguments, code, message):
    trainopt.write("recipe.yaml", TINY)
    for name in ("empty", "damaged", "good"):
        (trainopt.folder / name).mkdir()
    (trainopt.folder / "damaged/result.json").write_text("{")
    (trainopt.folder / "good/summary.json").write_text("{}")
    done = trainopt("report", *arguments)
    assert done.code == code, done
    assert done.out == "" and message in done.err and done.err.count("\n") == 1, done


@pytest.mark.parametrize(
    "result, command, file",
    [
        ({"kind": "until", "arms": {"a": {}, "b": {}}, "pairs": []}, "compare --until target", "report.txt"),
        ({"kind": "ablate until", "parts": []}, "ablate --until target", "report.txt"),
        ({"change": [], "steps": []}, "tune", "steps.md"),
        ({"largest": None, "sizes": []}, "find batch", "result.json"),
    ],
)
def test_a_result_without_a_page_says_what_it_is(trainopt, result, command, file):
    trainopt.write("out/result.json", json.dumps(result))
    says = [f"out is the result of {command}, which has no page; read out/{file}"]
    trainopt.refused("report", "out", code=3, says=says)
    assert not (trainopt.folder / "out/report.html").exists()


def test_a_page_that_cannot_be_written_does_not_fail_the_run(trainopt):
    trainopt.write("tiny.yaml", TINY)
    blocked = trainopt.folder / "out"
    done = trainopt("run", "tiny.yaml", "--run-dir", "out", "train.max_steps=1", "device=cpu")
    assert done.code == 0
    (blocked / "report.html").unlink()
    (blocked / "report.html").mkdir()
    (blocked / "report.html/file").write_text("")
    done = trainopt("run", "tiny.yaml", "run_dir=out", "checkpoint.resume=auto", "train.max_steps=2", "device=cpu")
    assert done.code == 0, done
    assert "report.html was not written: " in done.err
    assert summary(blocked)["status"] == "done"


def test_a_long_run_is_a_small_page(trainopt):
    """Many lines, in little memory; the same code reads a million."""
    trainopt.write("tiny.yaml", TINY)
    assert trainopt("run", "tiny.yaml", "--run-dir", "out", "device=cpu").code == 0
    path = trainopt.folder / "out/metrics.jsonl"
    line = path.read_text().splitlines()[-1]
    with path.open("w") as file:
        for step in range(1, 30001):
            file.write(re.sub(r'"step":\d+', f'"step":{step}', line).replace('"loss":', f'"loss":{step % 7}') + "\n")
    assert trainopt("report", "out").code == 0
    assert os.path.getsize(trainopt.folder / "out/report.html") < 2_000_000
    Page(trainopt.folder / "out/report.html")
