"""trainopt find batch, and find lr."""

import json
import signal

import pytest
import yaml
from conftest import TINY, wait_until


def test_the_largest_batch_and_where_growth_ends(trainopt):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt("find", "batch", "tiny.yaml", "data.size=40", "--run-dir", "out", "--budget", "40s")
    assert result.code == 0, result
    answer = json.loads((trainopt.folder / "out/result.json").read_text())
    assert [size["batch_size"] for size in answer["sizes"]] == [1, 2, 4, 8, 16, 32, 40], answer
    assert answer["largest"] == 40, "all samples of the data set"
    assert all(size["failure"] is None and size["samples_per_s"] > 0 for size in answer["sizes"])
    assert answer["enough"] in [size["batch_size"] for size in answer["sizes"]]
    assert "largest that fits  40 samples" in result.out, result


def test_memory_ends_the_search(trainopt):
    """The forecast stops it before a run would be killed."""
    large = TINY.replace("hidden: [8]", "hidden: [8192, 8192]").replace("{resize: 8}", "{resize: 64}")
    trainopt.write("tiny.yaml", large)
    words = ("find", "batch", "tiny.yaml", "data.size=1000000000", "--budget", "10s", "--json")
    answer = trainopt(*words, "--run-dir", "out").json()
    assert answer["sizes"][0]["batch_size"] == 1
    assert answer["largest"] is None, "the time was up"
    forecasts = [size["forecast_bytes"] for size in answer["sizes"]]
    assert forecasts == sorted(forecasts), answer


def test_a_stopped_search_says_so(trainopt):
    """Ctrl-C during the first run, which is then no failure."""
    trainopt.write("tiny.yaml", TINY)
    process = trainopt.start("find", "batch", "tiny.yaml", "--budget", "100s", "--run-dir", "out")
    wait_until((trainopt.folder / "out/batch-1-1/run/metrics.jsonl").exists, process)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=180)
    assert process.returncode == 128 + signal.SIGINT, errors
    assert "not known: the search was stopped" in out and "time was up" not in out and "failed" not in out, out
    answer = json.loads((trainopt.folder / "out/result.json").read_text())
    assert all(size["failure"] is None for size in answer["sizes"]) and answer["largest"] is None, answer


def test_bad_input(trainopt):
    trainopt.write("tiny.yaml", TINY)
    trainopt.refused("find", "batch", "tiny.yaml", "data.global_batch_size=16", says=["global_batch_size", "16"])
    trainopt.refused("find", "batch", "tiny.yaml", "--budget", "soon", says=["--budget"])
    trainopt.refused("find", "batch", says=["name a recipe"])
    trainopt.refused("find", says=["name a command"])
    result = trainopt("find", "batch", "tiny.yaml", "model.hidden=[100000, 10000000]", "--run-dir", "out")
    assert result.code == 5 and "not even a batch of 1 sample fits" in result.err, result


def test_a_rate_from_a_range_test(trainopt):
    """The loss of a small network on random images falls, because it can learn how often each class occurs."""
    trainopt.write("tiny.yaml", TINY)
    words = ("find", "lr", "tiny.yaml", "data.size=64", "data.batch_size=32", "optimizer={name: adamw, lr: 0.001}")
    result = trainopt(*words, "--steps", "60", "--lowest", "1e-5", "--run-dir", "out", "--apply", "found.yaml")
    assert result.code == 0, result
    answer = json.loads((trainopt.folder / "out/result.json").read_text())
    rates, losses, smoothed = answer["rates"], answer["losses"], answer["smoothed"]
    assert len(rates) == len(losses) == len(smoothed) <= 60 and rates[0] == 1e-5
    assert rates[1] / rates[0] == pytest.approx(1e6 ** (1 / 59))
    assert answer["lowest_loss_at"] == rates[smoothed.index(min(smoothed))]
    wanted = smoothed[0] - 0.7 * (smoothed[0] - min(smoothed))
    steep = next(rate for rate, loss in zip(rates, smoothed) if loss <= wanted)
    assert answer["suggestion"] == pytest.approx(steep, rel=0.06)  # two digits
    found = yaml.safe_load((trainopt.folder / "found.yaml").read_text())
    assert found["optimizer"]["lr"] == pytest.approx(answer["suggestion"])
    assert f"optimizer.lr={answer['suggestion']:.3g}" in result.out and "found.yaml" in result.out
    page = (trainopt.folder / "out/report.html").read_text()
    assert "Loss at each learning rate" in page and "suggested learning rate" in page
    records = [json.loads(line) for line in (trainopt.folder / "out/test/metrics.jsonl").read_text().splitlines()]
    assert records[3]["learning_rate"] == pytest.approx(rates[3]) and records[3]["loss"] == losses[3]
    assert not (trainopt.folder / "out/test/weights.safetensors").exists()
    assert trainopt("check", "found.yaml").code == 0


def test_rates_of_single_parameters_follow(trainopt):
    trainopt.write("tiny.yaml", TINY)
    optimizer = "optimizer={name: muon, lr: 0.1, adamw_lr: 0.01, groups: [{parameters: [bias], lr: 0.2}]}"
    schedule = "scheduler={name: onecycle, max_lr: 0.3}"
    words = ("find", "lr", "tiny.yaml", optimizer, schedule, "data.size=64", "--steps", "60", "--apply", "found.yaml")
    result = trainopt(*words, "--run-dir", "out")
    assert result.code == 0, result
    test = yaml.safe_load((trainopt.folder / "out/test.yaml").read_text())
    assert test["optimizer"]["lr"] == pytest.approx(1e-7) and test["optimizer"]["adamw_lr"] == pytest.approx(1e-8)
    assert test["optimizer"]["groups"][0]["lr"] == pytest.approx(2e-7)
    found = yaml.safe_load((trainopt.folder / "found.yaml").read_text())
    rate = json.loads((trainopt.folder / "out/result.json").read_text())["suggestion"]
    assert found["optimizer"]["adamw_lr"] == pytest.approx(rate / 10)
    assert found["scheduler"]["name"] == "onecycle" and found["scheduler"]["max_lr"] is None


def test_a_rate_for_what_a_checkpoint_holds(trainopt):
    """The test goes on from a copy of its weights and optimizer; the checkpoint stays as it was."""
    trainopt.write("tiny.yaml", TINY)
    words = ("tiny.yaml", "data.size=64", "optimizer={name: adamw, lr: 0.01}", "average={name: ema, decay: 0.9}")
    assert trainopt("run", *words, "train.max_steps=7", "checkpoint.at_end=true", "--run-dir", "run").code == 0
    checkpoint = trainopt.folder / "run/checkpoints/latest"
    before = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    resume = ("checkpoint.resume=run/checkpoints/latest", "--steps", "20")
    result = trainopt("find", "lr", *words, *resume, "--run-dir", "out")
    assert result.code == 0, result
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == before
    records = [json.loads(line) for line in (trainopt.folder / "out/test/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in records] == list(range(8, 28))
    answer = json.loads((trainopt.folder / "out/result.json").read_text())
    assert answer["rates"][0] == pytest.approx(1e-7) and answer["losses"][0] == records[0]["loss"]
    straight = trainopt("run", *words, "train.max_steps=8", "--run-dir", "straight")
    assert straight.code == 0
    last = json.loads((trainopt.folder / "straight/metrics.jsonl").read_text().splitlines()[-1])
    assert records[0]["loss"] == last["loss"], "the first loss is that of the checkpoint's weights"


def test_a_rate_that_is_not_found(trainopt):
    trainopt.write("tiny.yaml", TINY)
    words = ("find", "lr", "tiny.yaml", "--steps", "20", "--lowest", "1e-12", "--highest", "1e-11")
    result = trainopt(*words, "--run-dir", "out")
    assert result.code == 0 and "suggestion  none" in result.out and "fell at no rate" in result.out, result
    result = trainopt(*words, "--run-dir", "again", "--apply", "found.yaml")
    assert result.code == 2 and "--apply has nothing to write" in result.err, result
    assert not (trainopt.folder / "found.yaml").exists()


def test_a_range_test_that_diverges_at_once(trainopt):
    trainopt.write("tiny.yaml", TINY)
    words = ("find", "lr", "tiny.yaml", "--steps", "20", "--lowest", "1e30", "--highest", "1e38", "--json")
    result = trainopt(*words, "--run-dir", "out", "optimizer={name: sgd, lr: 0.1}")
    assert result.code == 0, result
    answer = result.json()
    assert answer["suggestion"] is None and "start at a lower rate" in answer["reason"], answer
    assert len(answer["smoothed"]) < 10, answer


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--lowest", "0"], "--lowest must be above 0"),
        (["--highest", "1e-9"], "--highest above it"),
        (["--steps", "3"], "--steps must be 20"),
        (["--apply", "tiny.yaml"], "exists already"),
        (["optimizer.lr=0"], "optimizer.lr must be above 0"),
        (["checkpoint.resume=auto", "run_dir=run"], "needs the path of a checkpoint"),
        (["checkpoint.resume=somewhere"], "somewhere"),
    ],
)
def test_find_lr_refuses(trainopt, words, expected):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt("find", "lr", "tiny.yaml", *words)
    assert result.code in (2, 4, 8) and expected in result.err, result
    assert [path.name for path in trainopt.folder.iterdir()] == ["tiny.yaml"]
