"""trainopt roofline, what runs make of it, and what limits a run."""

import json
import signal

import pytest

from conftest import TINY, records, summary, wait_until

QUICK = ("roofline", "--seconds", "0.05")


def environment_of(folder):
    return json.loads((folder / "environment.json").read_text())


def test_peaks_are_measured_once(trainopt):
    first = trainopt(*QUICK, "--json").json()
    assert first["products"]["float32"]["flops_per_s"] > 1e6 and first["memory_bytes_per_s"] > 1e6
    assert first["disk_read_bytes_per_s"] > 0 and first["operation_us"] > 0 and first["page_fault_us"] > 0
    assert first["pinned_copy_bytes_per_s"] is None, "a CPU's batches are not copied"
    assert trainopt(*QUICK, "--json").json() == first, "kept"
    assert trainopt(*QUICK, "--json", "--again").json()["wall_s"] != first["wall_s"]
    text = trainopt(*QUICK)
    assert text.code == 0 and "float32 products" in text.out and "kept in" in text.out, text
    assert [path.suffix for path in (trainopt.folder / ".cache/trainopt/roofline").iterdir()] == [".json"]


def test_a_run_compares_itself_with_the_measured_peak(trainopt):
    trainopt.write("tiny.yaml", TINY)
    assert trainopt("run", "tiny.yaml", "--run-dir", "before").code == 0
    assert summary(trainopt.folder / "before")["mfu_pct"] is None
    assert "trainopt roofline" in environment_of(trainopt.folder / "before")["not_measured"]["mfu_pct"]
    peak = trainopt(*QUICK, "--json").json()["products"]["float32"]["flops_per_s"]
    assert trainopt("run", "tiny.yaml", "--run-dir", "after").code == 0
    flops = 3 * trainopt("plan", "tiny.yaml", "--json").json()["model"]["flops_per_sample"]
    for row in records(trainopt.folder / "after"):
        assert row["mfu_pct"] == pytest.approx(100 * flops * row["samples_per_s"] / peak), row
    assert summary(trainopt.folder / "after")["mfu_pct"] > 0
    assert summary(trainopt.folder / "after")["mfu_data_sheet_pct"] is None, "no data sheet of a CPU is known"


def test_samples_of_different_length_have_no_mfu(trainopt):
    for i in range(8):
        trainopt.write(f"texts/{i}.txt", "word " * (i + 1))
    trainopt.write(
        "text.yaml",
        "model: {name: gpt2, layers: 1, heads: 2, width: 8, context: 32, vocabulary: 257}\n"
        "data: {dataset: documents, path: texts, batch_size: 2}\ntrain: {max_steps: 2}\n",
    )
    trainopt(*QUICK)
    result = trainopt("run", "text.yaml", "--run-dir", "out")
    assert result.code == 0, result
    assert summary(trainopt.folder / "out")["mfu_pct"] is None
    assert "differ in length" in environment_of(trainopt.folder / "out")["not_measured"]["mfu_pct"]


def test_with_a_recipe(trainopt):
    trainopt.write("tiny.yaml", TINY)
    found = trainopt(*QUICK, "tiny.yaml", "--json").json()
    assert [(product["operation"], product["shape"], product["calls"]) for product in found["model_products"]] == [
        ("linear", "8 × 192 to 8", 1),
        ("linear", "8 × 8 to 10", 1),
    ]
    plan = trainopt("plan", "tiny.yaml", "--json").json()
    assert sum(product["flops"] for product in found["model_products"]) == 8 * plan["model"]["flops_per_sample"]
    assert sum(unit["flops"] for unit in found["units"]) == 3 * 8 * plan["model"]["flops_per_sample"]
    assert found["loader"]["samples_per_s"] > 0
    text = trainopt(*QUICK, "tiny.yaml")
    assert "forward and backward" in text.out and "the loader alone" in text.out, text


def test_a_profile_holds_each_unit_against_the_roofline(trainopt):
    trainopt.write("tiny.yaml", TINY)
    trainopt(*QUICK)
    steps = ("train.max_steps=20", "bench.warmup_steps=2")
    run = trainopt("profile", "tiny.yaml", "device=cpu", "--run-dir", "out", *steps)
    assert run.code == 0 and "attainable and achieved in GFLOP/s" in run.out, run
    profile = json.loads((trainopt.folder / "out/profile.json").read_text())
    per_sample = trainopt("plan", "tiny.yaml", "--json").json()["model"]["flops_per_sample"]
    units = [unit for unit in profile["units"] if "attained_pct" in unit]
    calls = units[0]["calls"]
    assert sum(unit["step_flops"] for unit in units) == 3 * 8 * calls * per_sample
    for unit in units:
        of_peak = unit["achieved_flops_per_s"] / unit["attainable_flops_per_s"]
        assert of_peak == pytest.approx(unit["attained_pct"] / 100), unit


def test_exchanges_of_two_ranks(trainopt):
    result = trainopt("launch", "-n", "2", "--", *QUICK)
    assert result.code == 0, result
    peaks = trainopt(*QUICK, "--json").json()["exchanges"]["gloo, 2 ranks on 1 machine"]  # one file for the machine
    assert {peak["collective"] for peak in peaks} == {
        "all_reduce",
        "reduce_scatter",
        "all_gather",
        "broadcast",
        "send",
    }, result
    assert all(peak["seconds"] > 0 and peak["sent_bytes_per_s"] > 0 for peak in peaks)


@pytest.mark.parametrize("launcher", [(), ("launch", "-n", "2", "--")], ids=["alone", "two-ranks"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_measurement_keeps_nothing(trainopt, launcher, number):
    process = trainopt.start(*launcher, "roofline", "--seconds", "1", "--json")
    wait_until((trainopt.folder / ".cache/trainopt").exists, process)
    process.send_signal(number)
    out, errors = process.communicate(timeout=180)
    assert (process.returncode, out) == (128 + number, ""), errors
    assert not (trainopt.folder / ".cache/trainopt/roofline").exists(), errors


def test_without_a_place_to_keep_it(trainopt):
    environment = {
        name: value for name, value in trainopt.environment().items() if name not in ("HOME", "XDG_CACHE_HOME")
    }
    result = trainopt("roofline", env=environment)
    assert result.code == 2 and "set HOME or XDG_CACHE_HOME" in result.err, result
    trainopt.refused("roofline", "--seconds", "0", says=["--seconds"])
    trainopt.refused("roofline", "missing.yaml", says=["missing.yaml"])


@pytest.mark.parametrize(
    "change, limit",
    [
        (["checkpoint={every_n_steps: 1, background: false}"], "checkpoints"),
        (["evaluation.every_n_steps=1"], "evaluation"),
        (["data.transforms=[{resize: 2000}, {resize: 8}]"], "loader"),
    ],
    ids=["checkpoints", "evaluation", "loader"],
)
def test_a_run_says_what_limits_it(trainopt, change, limit):
    trainopt.write("tiny.yaml", TINY.replace("dataset: fake_cifar10, size: 64", "dataset: cifar10, path: ."))
    for name, count in [("data_batch_1.bin", 64), ("test_batch.bin", 512)]:
        with open(trainopt.folder / name, "wb") as file:
            file.truncate(count * 3073)
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", "train.max_steps=30", *change)
    assert result.code == 0, result
    found = summary(trainopt.folder / "out")["limit"]
    shares = [part["share_pct"] for part in found["parts"]]
    assert found["text"] in result.out and limit in [part["name"] for part in found["parts"]], found
    # On a busy machine the noise of such short steps can be larger than anything else.
    standing_out = [part["name"] for part in found["parts"] if part["share_pct"] > max(1, found["noise_pct"])]
    needed = ("compute", "memory bandwidth", "update")
    avoidable = [name for name in standing_out if name not in needed]
    assert found["name"] == [*avoidable, *standing_out, "nothing"][0], found
    # Some parts are means over the measured steps, others over all.
    assert shares == sorted(shares, reverse=True) and sum(shares) <= 110, found
