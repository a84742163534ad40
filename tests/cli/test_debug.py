"""The recipe's `debug`: hidden waits, and where non-finite values begin."""

import json

import pytest

from conftest import CHECKOUT, TINY, Program, losses, summary

# What makes any shipped recipe finish in a moment, with its own model, data and switches.
SHORT = ["device=cpu", "train.max_steps=2", "data.batch_size=4", "checkpoint.at_end=false"]
FIND = "debug.find_syncs=true"


@pytest.fixture
def tiny(trainopt):
    trainopt.write("tiny.yaml", TINY)
    return trainopt


@pytest.mark.parametrize("name", ["digits", "image_folder", "mlp", "on_device", "quickstart"])
def test_no_shipped_recipe_has_a_hidden_wait(digits, name):
    """Those of the ladder are in test_configs.py."""
    evaluates = [] if name in ("mlp", "on_device", "quickstart") else ["evaluation.at_end=false"]
    run = Program(digits)(
        "run", CHECKOUT / f"configs/{name}.yaml", "--run-dir", f"waits-{name}", *SHORT, *evaluates, FIND
    )
    assert run.code == 0, run
    assert summary(digits / f"waits-{name}")["hidden_waits"] == [], run
    assert "hidden waits: none in step 2" in run.out


@pytest.mark.full
@pytest.mark.parametrize(
    "recipe", sorted((CHECKOUT / "configs").rglob("*.yaml")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_no_shipped_recipe_waits_for_its_batches_on_a_gpu(example_data, recipe):
    """What a run without a GPU cannot observe."""
    planned = Program(example_data)("plan", recipe, "--json", "--assume", "gpus=1,arch=sm_90,memory_gib=80")
    plan = planned.json()
    loader = plan.get("loader", {})  # synthetic batches have none, and a data set on the device copies nothing
    copies = plan["device"]["name"] != "cpu" and "non_blocking" in loader
    waits = copies and not (loader["pinned"] and loader["non_blocking"])
    assert waits == ((recipe.parent.name, recipe.stem) == ("resnet18", "baseline")), loader


def test_no_rank_of_the_shipped_recipe_waits(trainopt):
    two = ("launch", "-n", "2", "--", "run", CHECKOUT / "configs/two_ranks.yaml")
    run = trainopt(*two, "--run-dir", "out", "train.max_steps=2", FIND)
    assert run.code == 0 and summary(trainopt.folder / "out")["hidden_waits"] == [], run


def test_hidden_waits_are_looked_for_on_request_only(tiny):
    plain = tiny("run", "tiny.yaml", "--run-dir", "plain", "device=cpu")
    assert plain.code == 0 and "hidden" not in plain.out, plain
    assert summary(tiny.folder / "plain")["hidden_waits"] is None
    run = tiny("run", "tiny.yaml", "--run-dir", "out", "device=cpu", FIND)
    assert run.code == 0 and "hidden waits: none in step 2 (" in run.out, run
    assert losses(tiny.folder / "plain") == losses(tiny.folder / "out")
    planned = tiny("plan", "tiny.yaml", "device=cpu", FIND)
    assert "finding the hidden waits of one step (debug.find_syncs)" in planned.out, planned


def test_the_message_says_where_a_nan_begins(tiny):
    began = "it began before step 3: 1536 of 1536 values of the batch's input [8, 3, 8, 8]"
    nan = ("run", "tiny.yaml", "device=cpu", "debug.anomaly=true", "--inject", "nan@3")
    ended = tiny(*nan, "--run-dir", "out")
    assert ended.code == 6 and "loss is not finite: step 3" in ended.err and began in ended.err, ended
    (line,) = (tiny.folder / "out/nonfinite.jsonl").read_text().splitlines()
    assert json.loads(line)["began"].startswith(began)
    skipped = tiny(*nan, "--run-dir", "skipped", "train.on_nonfinite=skip")
    assert skipped.code == 0 and began in skipped.err, skipped


def test_anomaly_checks_while_a_profiler_records(tiny):
    both = ("debug={anomaly: true, find_syncs: true}", "profiler={wait: 1, warmup: 0, active: 2}")
    assert tiny("run", "tiny.yaml", "--run-dir", "plain", "device=cpu").code == 0
    run = tiny("run", "tiny.yaml", "--run-dir", "out", "device=cpu", *both)
    assert run.code == 0, run
    assert losses(tiny.folder / "plain") == losses(tiny.folder / "out")
    assert summary(tiny.folder / "out")["hidden_waits"] == []
    assert (tiny.folder / "out/trace/rank0-step2.json.gz").exists()


def test_replayed_steps_are_refused(tiny):
    graph = ("plan", CHECKOUT / "configs/ladder/resnet18/all.yaml", "--assume", "gpus=1,arch=sm_90,memory_gib=80")
    assert tiny(*graph, FIND).code == 0
    tiny.refused(*graph, "debug.anomaly=true", code=2, says=["debug.anomaly", "cuda_graph"])


def test_comparisons_leave_the_checks_out(tiny):
    run = tiny("compare", "tiny.yaml", "--with", "optimizer.lr=0.02", "--budget", "2s", "debug.anomaly=true")
    assert "debug is ignored" in run.err, run
