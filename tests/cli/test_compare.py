"""`trainopt compare` and `ablate`: verdicts, bundles and rejected arguments. Sizes are tiny, and speeds are not
asserted."""

import csv
import io
import json
import math
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

QUICK = ("--repeats", "8", "--turn", "5ms", "bench.warmup_steps=3")
TWO_PAIRS = ("--repeats", "2", *QUICK[2:])
GAIN = {"ratio", "interval", "verdict", "blocks", "pairs", "reason"}


@pytest.fixture
def recipe(trainopt):
    return trainopt.write(
        "job.yaml",
        """\
name: job
model: {name: mlp, num_classes: 10, hidden: [32]}
data: {dataset: fake_cifar10, size: 64, batch_size: 8, transforms: [{resize: 8}, {normalize: {mean: 0.5, std: 0.5}}]}
optimizations: {amp: true, set_to_none: true}
""",
    )


def test_two_recipes(trainopt, recipe):
    other = trainopt.write("other.yaml", (trainopt.folder / recipe).read_text() + "num_threads: 1\n")
    result = trainopt("compare", recipe, other, "num_threads=1", *QUICK, "--json", "--run-dir", "out")
    assert result.code == 0, result
    answer = result.json()
    assert answer["verdict"] in ("pays", "costs", "no effect", "inconclusive")
    assert answer["paired"] is True and answer["blocks"] == 8 and answer["ended"] == "repeats"
    assert answer["interval"][0] <= answer["ratio"] <= answer["interval"][1]
    assert answer["numerics"]["agree"] is True and answer["numerics"]["loss_distance"]["value"] == 0
    assert answer["noise_floor"]["blocks"] == 8
    assert answer["arms"]["a"]["name"] == f"{recipe} num_threads=1 bench.warmup_steps=3"
    assert not answer["own_processes"]

    out = trainopt.folder / "out"
    for name in (
        "result.json",
        "report.md",
        "turns.csv",
        "environment.json",
        "a/recipe.yaml",
        "b/recipe.yaml",
        "a/metrics.jsonl",
    ):
        assert (out / name).exists(), name
    assert len(json.loads((out / "environment.json").read_text())["program_xxh3"]) == 32
    assert not list(out.rglob("*.safetensors"))  # as large as the model, and no longer needed
    turns = list(csv.DictReader((out / "turns.csv").open()))
    assert len(turns) == 32 and {turn["arm"] for turn in turns} == {"a", "b"}

    # The ratio is B's throughput over A's, as recomputed from the turns.
    total = {arm: sum(float(turn["seconds"]) for turn in turns if turn["arm"] == arm) for arm in "ab"}
    assert math.isclose(total["a"] / total["b"], answer["ratio"], rel_tol=1e-6)
    assert "stalls that come less often than once in 7 turns" in answer["unseen"]
    assert answer["pairs"] is None and answer["carry_over"]["interval"]


def test_the_profiler_is_left_off_and_is_no_difference(trainopt, recipe):
    result = trainopt("compare", recipe, recipe, *QUICK, "profiler=true", "--run-dir", "out")
    assert result.code == 0 and "the profiler stays off" in result.err, result
    assert not list((trainopt.folder / "out").rglob("trace"))
    for difference in (["--with", "profiler=true"], ["--each", "profiler=false,true"]):
        trainopt.refused("compare", recipe, *difference, says=["differ only in profiler"])
    text = (trainopt.folder / recipe).read_text()
    trainopt.write("profiled.yaml", text.replace("name: job", "name: profiled") + "profiler: true\n")
    trainopt.refused("compare", recipe, "profiled.yaml", says=["differ only in profiler"])


def test_with_a_price_each_arm_has_the_price_of_its_samples(trainopt, recipe):
    price = "bench.price_per_hour=3.6"
    answer = trainopt("compare", recipe, recipe, *QUICK, price, "--json", "--run-dir", "out").json()
    for arm in answer["arms"].values():
        assert arm["price_per_million_samples"] == pytest.approx(1e3 / arm["samples_per_s"])
    shown = trainopt("compare", "--show", "out")
    assert len(re.findall(r"^  [AB] +\S+ samples/s, \S+ per million samples, mean step", shown.out, re.M)) == 2, shown
    ablated = trainopt("ablate", recipe, "optimizations.amp=false", *TWO_PAIRS, price)
    assert re.search(r"everything off \S+ samples/s \(\S+ per million samples\), everything on", ablated.out), ablated


def test_a_slow_arm_costs(trainopt, recipe):
    """B's hidden layers are much wider. A busy machine may leave the verdict inconclusive, but never reverse it."""
    many = ("--repeats", "40", *QUICK[2:])
    answer = trainopt("compare", recipe, "--with", "model.hidden=[1024, 1024]", *many, "--json").json()
    assert answer["verdict"] in ("costs", "inconclusive")
    assert answer["numerics"]["comparable"] is False
    if answer["verdict"] == "costs":
        assert answer["interval"][1] < 1
    out = trainopt("compare", recipe, "--with", "model.hidden=[1024, 1024]", "model.hidden=[16]", *many).out
    assert re.search(
        r"^(costs: B is at least [\d.]+ % slower; measured|inconclusive: B against A is) [-+]", out, re.M
    ), out


def test_without_puts_the_switch_into_b(trainopt, recipe):
    answer = trainopt("compare", recipe, "--without", "amp", *QUICK, "--json", "--run-dir", "out").json()
    assert "amp" not in answer["arms"]["a"]["receipts"] and answer["arms"]["b"]["receipts"]["amp"]["effective"]
    assert answer["arms"]["a"]["name"].endswith("optimizations.amp=null")
    assert answer["numerics"]["agree"] is True and answer["numerics"]["loss_distance"]["value"] > 0
    text = trainopt("compare", "--show", "out").out
    assert "amp: A off; B" in text


def test_different_process_settings_need_two_processes(trainopt, recipe):
    answer = trainopt("compare", recipe, "--with", "optimizations.host_allocator=true", *QUICK, "--json").json()
    assert answer["own_processes"] is True
    assert answer["pairs"] == 8 and answer["blocks"] == 24 and answer["interval"] and answer["noise_floor"] is None
    assert answer["arms"]["a"]["peak_memory_mib"] > 0 and answer["arms"]["b"]["peak_memory_mib"] > 0
    assert (
        "host_allocator" in answer["arms"]["b"]["receipts"] and "host_allocator" not in answer["arms"]["a"]["receipts"]
    )


def test_one_pair_of_processes_decides_nothing(trainopt, recipe):
    one = ("--repeats", "1", "--turn", "5ms", "bench.warmup_steps=3", "--own-processes")
    result = trainopt("compare", recipe, "--with", "model.hidden=[512, 512]", *one)
    assert "inconclusive (one pair): B against A is" in result.out, result
    answer = trainopt("compare", recipe, "--with", "model.hidden=[512, 512]", *one, "--json").json()
    assert answer["verdict"] == "inconclusive" and answer["interval"] is None and answer["pairs"] == 1


def test_show_reads_a_bundle_and_refuses_a_changed_one(trainopt, recipe):
    first = trainopt("compare", recipe, recipe, *QUICK, "--run-dir", "out")
    shown = trainopt("compare", "--show", "out")
    assert shown.code == 0 and shown.out.strip() == first.out[: first.out.index("\nresults are in")].strip()
    assert trainopt("compare", "--show", "out", "--markdown").out == (trainopt.folder / "out/report.md").read_text()
    assert trainopt("compare", "--show", "out", "--json").json()["blocks"] == 8
    path = trainopt.folder / "out/result.json"
    result = json.loads(path.read_text())
    result["verdict"], result["ratio"] = "pays", 2.0
    path.write_text(json.dumps(result))
    changed = trainopt("compare", "--show", "out")
    assert changed.code == 3 and "do not give the recorded result" in changed.err
    for damaged, says in (
        ("{", "it is not JSON"),
        ("[]", "it is not a JSON object"),
        ("3", "it is not a JSON object"),
        ('{"kind": 3}', "its kind is not a word: 3"),
        ('{"kind": null}', "its kind is not a word: null"),
        ('{"kind": "neither"}', "it is not a comparison's result.json"),
    ):
        path.write_text(damaged)
        refused = trainopt.refused("compare", "--show", "out", code=3, says=["out", says])
        assert len(refused.err.strip().splitlines()) == 1 and "json.exception" not in refused.err, refused
    nowhere = trainopt("compare", "--show", "nowhere")
    assert nowhere.code == 3 and "nowhere has no result.json" in nowhere.err


def test_a_result_of_a_schema_that_is_not_read_is_refused(trainopt, recipe):
    trainopt("compare", recipe, recipe, *QUICK, "--run-dir", "out")
    path = trainopt.folder / "out/result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"schema_version": 1}))
    trainopt.refused("compare", "--show", "out", code=3, says=["out", "schema_version 1, this build reads 2"])


def test_finished_runs(trainopt, recipe):
    for name in ("one", "two"):
        assert trainopt("run", recipe, "train.max_steps=40", "--quiet", "--run-dir", name).code == 0
    result = trainopt("compare", "one", "two", "--json").json()
    assert result["paired"] is False and result["verdict"] is None and result["ratio"] > 0
    assert result["interval"] is None  # thirty measured steps
    out = trainopt("compare", "one", "two").out
    assert "no verdict" in out and "not paired" in out
    assert trainopt("compare", "one", recipe).code == 2
    wide = trainopt("compare", "one", "two", "--level", "99%", "--json")
    assert wide.code == 0 and wide.json()["level"] == 0.99, wide
    (trainopt.folder / "two/metrics.jsonl").unlink()
    assert trainopt("compare", "one", "two", "--json").json()["ratio"] == result["ratio"]
    (trainopt.folder / "two/step_times.csv").unlink()
    missing = trainopt("compare", "one", "two")
    assert missing.code == 3 and "metrics.jsonl" in missing.err


@pytest.mark.parametrize(
    "words",
    [
        ["--markdown"],
        ["--run-dir", "out"],
        ["--until", "target"],
        ["--budget", "1m"],
        ["--min-effect", "5%"],
        ["--precision", "1%"],
        ["--coins", "1"],
        ["--turn", "1s"],
        ["--repeats", "3"],
        ["--own-processes"],
        ["--no-numbers"],
        ["--no-noise-floor"],
        ["--whole"],
        ["--inject", "oom@3"],
        ["--with", "seed=1"],
        ["--without", "amp"],
    ],
)
def test_finished_runs_do_not_take_what_would_change_nothing(trainopt, words):
    """The folders need not be runs: this is found before they are read."""
    for name in ("one", "two"):
        (trainopt.folder / name).mkdir()
    says = ["name two run directories and nothing else: ", f"; remove {words[0]}"]
    result = trainopt.refused("compare", "one", "two", *words, says=says)
    assert len(result.err.strip().splitlines()) == 1, result
    assert sorted(path.name for path in trainopt.folder.iterdir() if not path.name.startswith(".")) == ["one", "two"]


@pytest.mark.parametrize(
    "words, expected",
    [
        (["job.yaml"], "name two recipes"),
        (["job.yaml", "job.yaml", "job.yaml"], "name two recipes"),
        (["job.yaml", "--without", "ampp"], "did you mean 'amp'"),
        (["job.yaml", "--without", "tf32"], "job.yaml has the default of tf32 already"),
        (["job.yaml", "--with", "data.batch_size=8"], "has these values already"),
        (["job.yaml", "job.yaml", "--with", "seed=1"], "name two recipes"),
        (["job.yaml", "--with", "sead=1"], "sead"),
        (["job.yaml", "nothing.yaml"], "nothing.yaml"),
        (["job.yaml", "job.yaml", "--min-effect", "5"], "--min-effect"),
        (["job.yaml", "job.yaml", "--level", "sure"], "--level"),
        (["job.yaml", "job.yaml", "--level", "1e-20"], "between 50% and 99.995%"),
        (["--show", "x", "--level", "99%"], "--level"),
        (["job.yaml", "job.yaml", "--budget", "soon"], "--budget"),
        (["job.yaml", "job.yaml", "--repeats", "0"], "--repeats"),
        (["job.yaml", "job.yaml", "--show", "x"], "--show"),
        ([], "name two recipes"),
    ],
)
def test_refused(trainopt, recipe, words, expected):
    result = trainopt("compare", *words)
    assert result.code == 2 and expected in result.err, result
    assert len(result.err.strip().splitlines()) == 1
    assert not (trainopt.folder / "runs").exists()


def test_a_failing_arm_ends_the_comparison_with_its_exit_code(trainopt, recipe):
    result = trainopt("compare", recipe, "--with", "optimizer.lr=1e30", *QUICK)
    assert result.code == 6 and "not finite" in result.err
    apart = trainopt("compare", recipe, "--with", "optimizer.lr=1e30", "--own-processes", *QUICK)
    assert apart.code == 6 and "not finite" in apart.err


@pytest.mark.parametrize(
    "where, send",
    [
        ([], os.kill),
        (["--own-processes"], os.kill),
        (["--own-processes"], os.killpg),  # as from a terminal: it also reaches an arm that is being created
    ],
)
def test_a_signal_keeps_the_results_so_far(trainopt, recipe, where, send):
    process = trainopt.start(
        "compare",
        recipe,
        recipe,
        "--repeats",
        "1000000",
        "--turn",
        "5ms",
        "bench.warmup_steps=3",
        "--run-dir",
        "out",
        *where,
        start_new_session=True,
    )
    for line in process.stderr:
        if "8 blocks" in line or "2 pairs" in line:
            break
    send(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    assert "until it was stopped" in out
    assert json.loads((trainopt.folder / "out/result.json").read_text())["ended"] == "stopped"


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def arms_of(process):
    """The child processes of `process`."""
    return [
        int(pid)
        for pid in subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    ]


def started_apart(trainopt, recipe):
    """Starts a comparison with turns so long that its two arms live for a while; returns it and its arms."""
    process = trainopt.start(
        "compare",
        recipe,
        recipe,
        "--repeats",
        "1000000",
        "--turn",
        "5s",
        "--budget",
        "1h",
        "--no-numbers",
        "--own-processes",
        "bench.warmup_steps=3",
        "--run-dir",
        "out",
    )
    for _ in range(1200):
        if len(arms_of(process)) == 2:
            return process, arms_of(process)
        time.sleep(0.05)
    process.kill()
    pytest.fail("the two arms never started")


def test_a_killed_arm_ends_the_comparison(trainopt, recipe):
    process, arms = started_apart(trainopt, recipe)
    os.kill(arms[-1], signal.SIGKILL)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 7 and "was ended by signal 9" in err, err


def test_arms_do_not_outlive_the_comparison(trainopt, recipe):
    process, arms = started_apart(trainopt, recipe)
    process.kill()
    process.communicate(timeout=180)
    for _ in range(1200):
        if not any(is_running(pid) for pid in arms):
            return
        time.sleep(0.05)
    pytest.fail("an arm is still running")


def test_a_small_budget_goes_to_the_total_first(trainopt, recipe):
    answer = trainopt("ablate", recipe, "--budget", "10s", "--turn", "5ms", "bench.warmup_steps=3", "--json").json()
    assert answer["total"]["ratio"] > 0
    assert any(row["in_stack"]["reason"] == "no time was left" for row in answer["switches"])


def test_budget(trainopt, recipe):
    began = time.monotonic()
    answer = trainopt(
        "compare",
        recipe,
        recipe,
        "--budget",
        "8s",
        "--turn",
        "5ms",
        "--min-effect",
        "0.0001%",
        "--level",
        "99.99%",
        "--json",
    ).json()
    assert answer["ended"] in ("budget", "decided")  # equal arms in one process may still differ
    if answer["verdict"] == "inconclusive":
        assert any("takes about" in each["what"] and each["budget_s"] > 8 for each in answer["to_decide"])
    assert time.monotonic() - began < 120


def test_ablate(trainopt, recipe):
    result = trainopt(
        "ablate",
        recipe,
        "data.batch_size=16",
        "optimizations.set_to_none=false",
        *["--only", "amp", "--only", "batch_size"],
        *TWO_PAIRS,
        "--json",
        "--run-dir",
        "out",
        timeout=300,
    )
    assert result.code == 0, result
    answer = result.json()
    assert set(answer["total"]) == GAIN and answer["total"]["ratio"] > 0
    rows = {row["name"]: row for row in answer["switches"]}
    assert {"amp", "batch_size"} == set(rows)
    product = 1.0
    for row in rows.values():
        assert set(row["alone"]) == GAIN and set(row["in_stack"]) == GAIN
        assert {"interaction", "one_off_s", "break_even_step", "memory_mib", "share", "receipt"} <= set(row)
        assert row["alone"]["ratio"] > 0 and row["in_stack"]["ratio"] > 0
        product *= row["share"]["ratio"]
        assert row["share"]["interval"][0] < row["share"]["ratio"] < row["share"]["interval"][1]
        assert row["alone"]["pairs"] == row["in_stack"]["pairs"] == 2
    assert math.isclose(product * answer["rest"]["ratio"], answer["total"]["ratio"], rel_tol=1e-9)
    assert answer["pair_sd_pct"] > 0 and answer["pairs_needed"] >= 2
    assert rows["amp"]["numbers_agree"] is True and rows["batch_size"]["numbers_agree"] is None
    assert rows["amp"]["interaction"]["with"] in rows
    assert rows["amp"]["receipt"]["effective"] is True
    assert answer["ceilings"] == []  # nobody named them
    report = (trainopt.folder / "out/report.md").read_text()
    assert trainopt("compare", "--show", "out").out == report and trainopt("compare", "--show", "out/arm-2").code == 0
    assert "| amp |" in report and "even free loading" not in report
    assert len(list(csv.DictReader(io.StringIO((trainopt.folder / "out/switches.csv").read_text())))) == len(rows)
    assert (trainopt.folder / "out/arm-1/recipe.yaml").exists() and not list(
        (trainopt.folder / "out").rglob("*.safetensors")
    )


def test_ablate_has_a_row_for_a_failing_arm(trainopt, recipe):
    overrides = ("data.batch_size=32", "optimizer.lr=1e30")
    result = trainopt("ablate", recipe, *overrides, *TWO_PAIRS, "--json", "--run-dir", "out", timeout=300)
    assert result.code == 0, result
    answer = result.json()
    assert answer["total"]["ratio"] is None and "not finite" in answer["total"]["reason"]
    for row in answer["switches"]:
        assert "not finite" in row["alone"]["reason"] and row["share"] is None, row
    assert "not finite" in (trainopt.folder / "out/report.md").read_text()


def test_ablate_skips_switches_without_effect(trainopt, recipe):
    """cuda_graph needs fused_optimizer; without a GPU it does nothing and must not block fused_optimizer."""
    switches = "optimizations={amp: false, set_to_none: false, fused_optimizer: true, cuda_graph: true}"
    result = trainopt("ablate", recipe, "device=cpu", switches, *TWO_PAIRS, "--json", timeout=300)
    rows = {row["name"]: row for row in result.json()["switches"]}
    assert [row["without"] for row in result.json()["ceilings"]] == ["data", "optimizer", "logging"]
    assert rows["cuda_graph"]["no_effect"] and rows["fused_optimizer"]["alone"]["ratio"] > 0, result


def test_ablate_refuses_a_recipe_without_switches(trainopt):
    recipe = trainopt.write("plain.yaml", "model: {name: mlp}\ndata: {size: 64}\n")
    result = trainopt("ablate", recipe)
    assert result.code == 2 and "nothing to ablate" in result.err


def test_ablate_only_names_switches_that_are_on(trainopt, recipe):
    trainopt.refused("ablate", recipe, "--only", "winograd", says=["--only must name switches", "amp", "winograd"])


def test_ceilings_of_a_run(trainopt, recipe):
    result = trainopt("run", recipe, "train.max_steps=8", "--ceilings", *QUICK, "--run-dir", "out")
    assert result.code == 0, result
    for words in ("even free loading", "even free updates", "even free logging"):
        assert words in result.out
    ceilings = json.loads((trainopt.folder / "out/ceilings.json").read_text())["ceilings"]
    assert [row["without"] for row in ceilings] == ["data", "optimizer", "logging"]
    assert trainopt("run", recipe, "--budget", "1s").code == 2
    assert trainopt("run", recipe, "--ceilings", "--budget", "soon").code == 2


def test_language_models_of_different_contexts_are_compared_by_tokens(trainopt):
    small = "model: {name: gpt2, layers: 1, heads: 1, width: 8, context: %d, vocabulary: 17}\n"
    rest = "name: %s\ndata: {dataset: synthetic, batch_size: 2}\noptimizer: {name: sgd, lr: 0.1}\n"
    short = trainopt.write("short.yaml", rest % "short" + small % 8)
    long = trainopt.write("long.yaml", rest % "long" + small % 32)
    result = trainopt("compare", short, long, "num_threads=1", *QUICK, "--json", "--run-dir", "out")
    assert result.code == 0, result
    answer = result.json()
    a, b = answer["arms"]["a"], answer["arms"]["b"]
    assert a["tokens_per_s"] == pytest.approx(8 * a["samples_per_s"])
    assert b["tokens_per_s"] == pytest.approx(32 * b["samples_per_s"])
    assert answer["ratio"] == pytest.approx(b["tokens_per_s"] / a["tokens_per_s"])
    console = trainopt("compare", short, long, "num_threads=1", *QUICK)
    assert console.out.count("tokens/s") == 2, console
