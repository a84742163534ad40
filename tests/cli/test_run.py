"""`trainopt run`: run directory, console, failures and signals."""

import csv
import json
import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest

from conftest import PROGRAM, TINY, losses, records, summary

RECORD = (
    "step epoch samples loss learning_rate grad_norm loss_scale nonfinite step_ms data_wait_ms copy_ms device_ms "
    "forward_ms backward_ms update_ms samples_per_s tokens_per_s mfu_pct comm_exposed_ms all_reduce_mib "
    "reduce_scatter_mib all_gather_mib broadcast_mib send_mib storage_mib cache_hit_pct parameters_mib "
    "gradients_mib optimizer_mib gpu_util_pct gpu_sm_util_pct gpu_tensor_util_pct gpu_memory_used_mib "
    "memory_allocated_mib memory_reserved_mib memory_active_mib memory_peak_pct alloc_retries device_allocs "
    "device_frees gpu_power_w gpu_sm_clock_mhz gpu_throttle cpu_util_pct other_cpu_pct "
    "process_rss_mib energy_j"
).split()
SUMMARY = (
    "status reason exit_code steps samples wall_s time_to_first_step_s samples_per_s tokens_per_s step_ms phases_ms "
    "data_wait_pct mfu_pct mfu_data_sheet_pct limit advice gpu_util_pct cpu_util_pct peak_memory_mib memory_peak_pct "
    "alloc_retries loss evaluation "
    "measured_steps receipts loader samples_per_s_interval warnings energy_j energy_source energy_of samples_per_joule "
    "price_per_million_samples"
).split()


def test_run_directory(tiny_run):
    folder, _ = tiny_run
    for name in (
        "recipe.yaml",
        "plan.json",
        "environment.json",
        "metrics.jsonl",
        "metrics.csv",
        "run.log",
        "summary.json",
        "weights.safetensors",
        "checkpoints/step-00000006",
    ):
        assert (folder / name).exists(), name
    for name in ("plan.json", "environment.json", "summary.json"):
        assert json.loads((folder / name).read_text())["schema_version"] >= 1, name
    assert json.loads((folder / "environment.json").read_text())["commit"]
    assert "step_ms" not in (folder / "recipe.yaml").read_text()


def test_records(tiny_run):
    folder, _ = tiny_run
    rows = records(folder)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    for row in rows:
        assert set(RECORD) <= set(row), set(RECORD) - set(row)
        assert row["samples"] == row["step"] * 8 and row["epoch"] == pytest.approx(row["step"] / 8)
        assert row["learning_rate"] == 0.01 and row["grad_norm"] is None and row["loss_scale"] is None
        assert 0 < row["loss"] < 20 and row["step_ms"] > 0 and 0 <= row["data_wait_ms"] <= row["step_ms"]
        assert row["samples_per_s"] == pytest.approx(8000 / row["step_ms"], rel=0.01)
    with open(folder / "metrics.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [name for name in table[0] if name in RECORD] == RECORD
    for row, cells in zip(rows, table, strict=True):
        assert float(cells["loss"]) == row["loss"] and cells["grad_norm"] == ""


def not_measured_as_recorded(folder):
    """Checks that environment.json gives reasons for exactly the columns that are null in every row; returns them."""
    rows = records(folder)
    reasons = json.loads((folder / "environment.json").read_text())["not_measured"]
    assert set(reasons) == {name for name in RECORD if all(row[name] is None for row in rows)}
    assert all(reasons.values()), reasons
    return reasons


def test_metrics_not_measured_have_a_reason(trainopt, tiny_run):
    reasons = not_measured_as_recorded(tiny_run[0])
    assert (
        "max_grad_norm" in reasons["grad_norm"] and "float16" in reasons["loss_scale"] and "CPU" in reasons["copy_ms"]
    ), reasons
    trainopt.write("tiny.yaml", TINY)
    for name, overrides in {
        "clipped": ["train.max_grad_norm=1"],
        "scaled": ["optimizations.amp={dtype: float16}"],
        "synthetic": ["data={dataset: synthetic, image_size: 8, transforms: []}"],
        "rare": ["logging.every_n_steps=4"],
        "unsampled": ["telemetry.interval=1h", "train.max_steps=1"],
    }.items():
        assert trainopt("run", "tiny.yaml", "--run-dir", name, "device=cpu", *overrides).code == 0, name
        reasons = not_measured_as_recorded(trainopt.folder / name)
        assert ("grad_norm" in reasons, "loss_scale" in reasons) == (name != "clipped", name != "scaled"), (
            name,
            reasons,
        )


def test_a_run_without_steps_gives_that_reason_for_every_metric(trainopt):
    trainopt.write("tiny.yaml", TINY)
    assert trainopt("run", "tiny.yaml", "--run-dir", "out", "--inject", "oom@1+").code == 5
    assert set(not_measured_as_recorded(trainopt.folder / "out").values()) == {"no step was completed"}


def test_summary(tiny_run):
    folder, result = tiny_run
    got = summary(folder)
    assert set(SUMMARY) <= set(got), set(SUMMARY) - set(got)
    assert (got["status"], got["exit_code"], got["steps"], got["samples"]) == ("done", 0, 6, 48)
    assert {name: np.float32(loss) for name, loss in got["loss"].items()} == {
        "first": np.float32(losses(folder)[0]),
        "last": np.float32(losses(folder)[-1]),
    }
    assert got["measured_steps"] == 3, "half the steps, because there are fewer than twice the 10 warm-up steps"
    assert got["step_ms"]["p50"] <= got["step_ms"]["p95"] <= got["step_ms"]["p99"]
    assert got["samples_per_s_interval"] is None, "too few steps"
    assert got["evaluation"] is None or got["evaluation"]["top1_pct"] is None


def test_the_throughput_has_an_interval_where_there_are_enough_steps(trainopt):
    trainopt.write("tiny.yaml", TINY)
    few = trainopt("run", "tiny.yaml", "--run-dir", "few", "train.max_steps=60")
    assert few.code == 0 and summary(trainopt.folder / "few")["samples_per_s_interval"] is None, few
    assert re.search(r"samples/s +[\d.,]+k?\s*$", few.out, re.M), few
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", "train.max_steps=300", "data.size=4096")
    assert result.code == 0, result
    got = summary(trainopt.folder / "out")
    if interval := got["samples_per_s_interval"]:  # null if the machine's speed drifted too slowly for an interval
        assert 0 < interval["low"] <= got["samples_per_s"] <= interval["high"] and interval["level"] == 0.95, got
        assert re.search(r"samples/s +\S+ \(\S+–\S+, 95 %\)", result.out), result
    assert len(re.findall(r"^  warning  ", result.out, re.M)) == len(got["warnings"]), result


def test_the_price_of_a_million_samples(trainopt, tiny_run):
    assert summary(tiny_run[0])["price_per_million_samples"] is None
    trainopt.write("tiny.yaml", TINY)
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", "bench.price_per_hour=3.6")
    got = summary(trainopt.folder / "out")
    assert got["price_per_million_samples"] == pytest.approx(1e3 / got["samples_per_s"])
    assert re.search(r"^  price +\S+ per million samples, at 3.6 per hour$", result.out, re.M), result
    for price in ("0", "1.1e9"):
        trainopt.refused("plan", "tiny.yaml", f"bench.price_per_hour={price}", says=["bench.price_per_hour"])


def test_energy_is_measured_or_has_a_reason(trainopt):
    trainopt.write("tiny.yaml", TINY)
    run = ["run", "tiny.yaml", "--run-dir", "out", "device=cpu", "train.max_steps=1000000", "train.max_time=4s"]
    assert trainopt(*run).code == 0
    got, reasons = summary(trainopt.folder / "out"), not_measured_as_recorded(trainopt.folder / "out")
    if "energy_j" in reasons:
        assert got["energy_j"] is None and got["energy_source"] is None and got["samples_per_joule"] is None
        assert "/sys/class/powercap" in reasons["energy_j"], reasons
    else:
        assert got["energy_j"] > 0 and got["energy_source"] == "cpu" and got["samples_per_joule"] > 0


def test_console(tiny_run):
    _, result = tiny_run
    lines = [line for line in result.out.splitlines() if re.match(r"\s*step\s+\d+/6\b", line)]
    assert len(lines) == 6, result
    assert re.search(r"loss \d+\.\d+ .*samples/s.*step \d+\.\d+ ms.*data \d+\.\d+ ms", lines[3]), lines[3]
    assert "\x1b" not in result.out and "\r" not in result.out, "only plain lines without a terminal"
    assert "p95" in result.out, "the table at the end"


def test_the_resolved_recipe_reproduces_the_run(trainopt, tiny_run):
    folder, _ = tiny_run
    result = trainopt("run", folder / "recipe.yaml", "--run-dir", "again", "--quiet")
    assert result.code == 0, result
    assert losses(trainopt.folder / "again") == losses(folder)
    assert (trainopt.folder / "again/weights.safetensors").read_bytes() == (folder / "weights.safetensors").read_bytes()


def test_results_depend_on_the_seed_but_not_on_workers(trainopt, tiny_run):
    trainopt.write("tiny.yaml", TINY)
    overrides = {"workers": "data.num_workers=2", "auto": "data.num_workers=auto", "seed": "seed=1"}
    for name, override in overrides.items():
        result = trainopt("run", "tiny.yaml", override, "--run-dir", name)
        assert result.code == 0, result
        assert ("data.num_workers: auto chose " in result.out) == (name == "auto"), result
    assert losses(trainopt.folder / "workers") == losses(trainopt.folder / "auto") == losses(tiny_run[0])
    assert losses(trainopt.folder / "seed") != losses(tiny_run[0])


def test_a_scaled_learning_rate_is_that_rate(trainopt):
    trainopt.write("tiny.yaml", TINY)
    scaling = ["optimizer.lr=0.005", "optimizer.lr_scaling=linear", "optimizer.reference_batch=4"]
    for name, overrides in {"scaled": scaling, "plain": ["optimizer.lr=0.01"]}.items():
        result = trainopt("run", "tiny.yaml", *overrides, "--run-dir", name)
        assert result.code == 0, result
        assert ("lr × 2 for 8 samples per step instead of 4 (linear)" in result.out) == (name == "scaled"), result
    scaled, plain = (records(trainopt.folder / name) for name in ("scaled", "plain"))
    assert [record["learning_rate"] for record in scaled] == [0.01] * 6
    assert [record["loss"] for record in scaled] == [record["loss"] for record in plain]


def test_name_of_the_run_directory(trainopt):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt("run", "tiny.yaml", "output_dir=here", "train.max_steps=1", "--quiet")
    assert result.code == 0 and "step " not in result.out, result
    (folder,) = (trainopt.folder / "here").iterdir()
    assert re.fullmatch(r"tiny-[\d-]*\d{8}[\d-]*|tiny-\d{4}-\d\d-\d\d-[\d-]+", folder.name), folder.name


def test_receipts(trainopt):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        "optimizations={amp: true, set_to_none: true, fused_optimizer: true, tf32: true}",
        "data.pin_memory=true",
        "device=cpu",
    )
    assert result.code == 0, result
    receipts = summary(trainopt.folder / "out")["receipts"]
    for name in ("amp", "set_to_none", "fused_optimizer", "tf32", "pin_memory"):
        (entry,) = [value for key, value in receipts.items() if key.split(".")[-1] == name]
        assert set(entry) >= {"requested", "observed", "effective", "reason"}, (name, entry)
        if name in ("tf32", "pin_memory"):
            assert entry["effective"] is False and entry["reason"], (name, entry)


def test_an_occupied_run_directory_is_refused(trainopt):
    trainopt.write("tiny.yaml", TINY)
    trainopt.write("out/keep.txt", "mine")
    trainopt.refused("run", "tiny.yaml", "--run-dir", "out", says=["out"])
    assert [path.name for path in (trainopt.folder / "out").iterdir()] == ["keep.txt"]


def test_storage_that_cannot_be_written(trainopt):
    trainopt.write("tiny.yaml", TINY)
    trainopt.write("file", "")
    trainopt.refused("run", "tiny.yaml", "--run-dir", "file/out", code=8, says=["file/out"])
    if os.geteuid() != 0:
        (trainopt.folder / "locked").mkdir(mode=0o555)
        trainopt.refused(
            "run", "tiny.yaml", "--run-dir", "locked/out", code=8, says=["locked/out", "Permission denied"]
        )


def test_missing_or_invalid_data(trainopt):
    trainopt.write("tiny.yaml", TINY.replace("dataset: fake_cifar10, size: 64", "dataset: cifar10, path: nowhere"))
    result = trainopt("run", "tiny.yaml", "--run-dir", "out")
    assert result.code == 3 and "nowhere" in result.err, result
    trainopt.write("short/data_batch_1.bin", b"\0" * 3000)
    result = trainopt("run", "tiny.yaml", "data.path=short", "--run-dir", "out2")
    assert result.code == 3 and "data_batch_1.bin" in result.err, result
    trainopt.write("label/data_batch_1.bin", b"\x0b" + b"\0" * 3072)
    result = trainopt("run", "tiny.yaml", "data.path=label", "data.batch_size=1", "--run-dir", "out3")
    assert result.code == 3 and "11" in result.err, result


def test_a_bad_sample_in_the_middle(trainopt):
    """The summary contains the exit code of the process."""
    from PIL import Image

    for number in range(12):
        trainopt.write(f"images/{number % 2}/{number:02}.png", "no picture")
        if number != 9:
            Image.new("RGB", (8, 8), (number, 0, 0)).save(trainopt.folder / f"images/{number % 2}/{number:02}.png")
    trainopt.write(
        "tiny.yaml",
        TINY.replace(
            "dataset: fake_cifar10, size: 64, batch_size: 8", "dataset: image_folder, path: images, batch_size: 2"
        ),
    )
    for name, workers in [("alone", 0), ("workers", 2)]:
        result = trainopt("run", "tiny.yaml", "--run-dir", name, f"data.num_workers={workers}")
        got = summary(trainopt.folder / name)
        assert (
            (result.code, got["status"], got["exit_code"]) == (3, "failed", 3)
            and "09.png" in got["reason"]
            and "09.png" in result.err
        ), (got, result)
    result = trainopt(
        "run", "tiny.yaml", "--run-dir", "go-on", "data.on_bad_sample=substitute", "data.max_bad_samples=1"
    )
    assert result.code == 0, result


def test_a_network_that_does_not_fit(trainopt):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", "model.hidden=[100000, 10000000]")
    assert result.code == 5 and len(result.err.splitlines()) == 1 and "does not fit into memory" in result.err, result
    assert not (trainopt.folder / "out").exists(), "nothing was allocated or created"


def test_a_run_that_diverges(trainopt):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", "optimizer.lr=1e30", "train.max_steps=50")
    assert result.code == 6, result
    got = summary(trainopt.folder / "out")
    assert got["status"] == "failed" and got["exit_code"] == 6 and got["reason"], got


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_the_run_after_saving(trainopt, number):
    trainopt.write("tiny.yaml", TINY)
    process = trainopt.start("run", "tiny.yaml", "--run-dir", "out", "train.max_steps=100000000")
    while not re.match(r"\s*step\s", process.stdout.readline()):
        assert process.poll() is None, process.stderr.read()
    process.send_signal(number)
    process.communicate(timeout=180)
    assert process.returncode == 128 + number
    got = summary(trainopt.folder / "out")
    assert (got["status"], got["exit_code"]) == ("stopped", 128 + number) and got["steps"] > 0
    assert (trainopt.folder / "out/weights.safetensors").exists()
    assert records(trainopt.folder / "out")[-1]["step"] == got["steps"]


def test_a_signal_ends_the_last_evaluation(trainopt):
    """The evaluation would take hours: one image at a time, each first enlarged to 48 million values."""
    for name, count in [("data_batch_1.bin", 8), ("test_batch.bin", 100000)]:
        with open(trainopt.folder / name, "wb") as file:
            file.truncate(count * 3073)
    trainopt.write("tiny.yaml", TINY.replace("dataset: fake_cifar10, size: 64", "dataset: cifar10, path: ."))
    process = trainopt.start(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        "train.max_steps=1",
        "evaluation={batch_size: 1, transforms: [{resize: 4000}, {resize: 8}]}",
    )
    while not re.match(r"\s*step\s", process.stdout.readline()):
        assert process.poll() is None, process.stderr.read()
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=180)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    got = summary(trainopt.folder / "out")
    assert (got["status"], got["steps"], got.get("evaluation")) == ("stopped", 1, None)
    assert (trainopt.folder / "out/weights.safetensors").exists() and (
        trainopt.folder / "out/evaluations.jsonl"
    ).read_text() == ""


def test_a_closed_console_does_not_end_the_run(trainopt):
    trainopt.write("tiny.yaml", TINY)
    process = trainopt.start("run", "tiny.yaml", "--run-dir", "out", "train.max_steps=300")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(180) == 0, process.stderr.read()
    assert summary(trainopt.folder / "out")["status"] == "done" and len(records(trainopt.folder / "out")) == 300


def test_fewer_samples_than_a_step(trainopt):
    trainopt.write("tiny.yaml", TINY)
    numbers = ["64 samples, 100 a step"]
    trainopt.refused("run", "tiny.yaml", "--run-dir", "out", "data.batch_size=100", code=2, says=numbers)
    trainopt.write("files/data_batch_1.bin", b"\0" * 64 * 3073)  # the number of samples is known only from the files
    files = ["data.dataset=cifar10", "data.path=files", "data.size=null", "data.batch_size=100"]
    assert trainopt("check", "tiny.yaml", *files).code == 0
    for command in (["run", "--run-dir", "out"], ["plan"]):
        trainopt.refused(*command, "tiny.yaml", *files, code=3, says=numbers)
    result = trainopt(
        "run", "tiny.yaml", "--run-dir", "out2", "data.batch_size=100", "data.drop_last=false", "train.max_steps=2"
    )
    assert result.code == 0 and [row["samples"] for row in records(trainopt.folder / "out2")] == [64, 128], result


def test_host_allocator_does_not_change_results(trainopt, tmp_path):
    """With and without it, in separate processes: the losses are the same, and the receipt shows it was effective."""
    recipe = tmp_path / "conv.yaml"
    recipe.write_text(
        "name: conv\ndevice: cpu\nmodel: {name: resnet18, stem: cifar}\n"
        "data: {dataset: synthetic, size: 32, image_size: 16, batch_size: 8}\ntrain: {max_steps: 4}\n"
    )
    folders = {on: tmp_path / on for on in ("false", "true")}
    for on, folder in folders.items():
        assert trainopt("run", recipe, f"optimizations.host_allocator={on}", "--run-dir", folder, "--quiet").code == 0
    assert losses(folders["true"]) == losses(folders["false"])
    receipt = summary(folders["true"])["receipts"]["host_allocator"]
    assert receipt["effective"], receipt


@pytest.mark.parametrize(
    "variables, is_shown", [({}, True), ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, False)]
)
def test_under_a_launcher_a_terminal_gets_plain_lines(trainopt, variables, is_shown):
    """mpirun gives each rank a pseudo-terminal even if its own output is a file."""
    trainopt.write("tiny.yaml", TINY)
    reader, terminal = os.openpty()
    process = subprocess.Popen(
        [PROGRAM, "run", "tiny.yaml"],
        cwd=trainopt.folder,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=subprocess.PIPE,
        env=trainopt.environment() | variables,
    )
    os.close(terminal)
    out = b""
    while True:
        try:
            bytes_read = os.read(reader, 65536)
        except OSError:  # EIO: the terminal has no writer any more
            break
        if not bytes_read:
            break
        out += bytes_read
    os.close(reader)
    assert process.wait(timeout=60) == 0, process.stderr.read()
    assert (b"\x1b[" in out) == is_shown, out
