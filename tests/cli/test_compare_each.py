"""`trainopt compare RECIPE --each KEY=a,b,c`: several arms in one comparison. Sizes are tiny, and speeds are not
asserted."""

import csv
import itertools
import json
import math
import signal

import pytest

FEW = ("--repeats", "3", "--turn", "5ms")
WIDTHS = "model.hidden=[8],[16, 16],[8, 8]"


@pytest.fixture
def recipe(trainopt):
    return trainopt.write(
        "job.yaml",
        """\
name: job
num_threads: 1
bench: {warmup_steps: 3}
model: {name: mlp, num_classes: 10, hidden: [32]}
data: {dataset: fake_cifar10, size: 64, batch_size: 8, transforms: [{resize: 8}, {normalize: {mean: 0.5, std: 0.5}}]}
""",
    )


def test_several_arms(trainopt, recipe):
    result = trainopt("compare", recipe, "seed=3", "--each", WIDTHS, *FEW, "--json", "--run-dir", "out")
    assert result.code == 0, result
    answer = result.json()
    names = ["[8]", "[16, 16]", "[8, 8]"]
    assert answer["each"] == {"key": "model.hidden", "values": names} and answer["job"] == f"{recipe} seed=3"
    assert [arm["name"] for arm in answer["arms"]] == names
    assert [(pair["a"], pair["b"]) for pair in answer["pairs"]] == list(itertools.combinations(names, 2))
    assert answer["rounds"] == 3 and answer["sets"] is None and answer["ended"] == "repeats"
    assert answer["level"] == 0.95 and math.isclose(answer["pair_level"], 1 - 0.05 / 3)
    assert all(pair["interval"] is None and pair["verdict"] == "inconclusive" for pair in answer["pairs"])
    assert answer["fastest"]["text"].startswith("inconclusive: ") and len(answer["fastest"]["arms"]) == 3
    assert answer["noise_floor"]["blocks"] > 0 and answer["arms"][0]["numerics"] is None
    assert not answer["arms"][1]["numerics"]["comparable"]
    assert all(len(arm["ranks"]) == 1 and arm["ranks"][0]["state_mib"] > 0 for arm in answer["arms"])

    # Ratios are those of total times, and every round is an order of the arms and its reverse.
    turns = list(csv.DictReader((trainopt.folder / "out/turns.csv").open()))
    assert len(turns) == 3 * 6
    for number in range(3):
        arms = [turn["arm"] for turn in turns[6 * number : 6 * number + 6]]
        assert sorted(arms[:3]) == sorted(names) and arms == arms[::-1]
    total = {name: sum(float(turn["seconds"]) for turn in turns if turn["arm"] == name) for name in names}
    for pair in answer["pairs"]:
        assert math.isclose(total[pair["a"]] / total[pair["b"]], pair["ratio"], rel_tol=1e-6)
    for name in ("result.json", "report.md", "environment.json", "arm-1/recipe.yaml", "arm-3/recipe.yaml"):
        assert (trainopt.folder / "out" / name).exists(), name
    assert not list((trainopt.folder / "out").rglob("*.safetensors"))


def test_the_same_numbers_agree(trainopt, recipe):
    """Arms that differ in the loader compute the same; another seed needs another yardstick."""
    workers = trainopt("compare", recipe, "--each", "data.num_workers=0,1,2", *FEW, "--json").json()
    assert [arm["numerics"] and arm["numerics"]["agree"] for arm in workers["arms"]] == [None, True, True]
    seeds = trainopt("compare", recipe, "--each", "seed=1,2", *FEW, "--json").json()
    assert seeds["arms"][1]["numerics"]["yardstick"] == "reseeded"
    none = trainopt("compare", recipe, "--each", "data.num_workers=0,1", *FEW, "--no-numbers", "--json").json()
    assert none["noise_floor"] is None and none["arms"][1]["numerics"] is None
    no_floor = trainopt("compare", recipe, "--each", "data.num_workers=0,1", *FEW, "--no-noise-floor", "--json").json()
    assert no_floor["noise_floor"] is None and no_floor["arms"][1]["numerics"]["agree"] is True


def test_the_table(trainopt, recipe):
    first = trainopt("compare", recipe, "--each", WIDTHS, *FEW, "--run-dir", "out")
    lines = first.out.splitlines()
    assert lines[0] == f"{recipe}, 3 values of model.hidden"
    assert "was measured to be the fastest; too few rounds for intervals" in lines[2]
    assert lines[3].split("  ")[1] == "model.hidden" and "against [8]" in lines[3] and "state" in lines[3]
    assert [line.split("   ")[0].strip() for line in lines[4:7]] == ["[8]", "[16, 16]", "[8, 8]"]
    assert "inconclusive" in lines[5] and "memory" not in lines[3]
    assert sum(line.startswith("  pair  ") for line in lines) == 1 and "[8, 8] against [16, 16]: " in first.out
    assert "3 rounds of 6 turns of " in first.out
    assert "all intervals and verdicts hold together at 95 %, each at 98.33 %" in first.out

    shown = trainopt("compare", "--show", "out")
    assert shown.code == 0 and shown.out.strip() == first.out[: first.out.index("\nresults are in")].strip()
    assert trainopt("compare", "--show", "out", "--markdown").out == (trainopt.folder / "out/report.md").read_text()
    assert trainopt("compare", "--show", "out", "--json").json()["rounds"] == 3


def test_a_changed_result_is_refused(trainopt, recipe):
    trainopt("compare", recipe, "--each", "model.hidden=[8],[16]", *FEW, "--run-dir", "out")
    path = trainopt.folder / "out/result.json"
    result = json.loads(path.read_text())
    result["pairs"][0]["ratio"] *= 2
    path.write_text(json.dumps(result))
    trainopt.refused("compare", "--show", "out", code=3, says=["out: ", "do not give the recorded result for [16]"])
    del result["samples"][0]["turns"][3]
    path.write_text(json.dumps(result))
    trainopt.refused("compare", "--show", "out", code=3, says=["a round without a turn of every arm"])
    del result["arms"]
    path.write_text(json.dumps(result))
    trainopt.refused("compare", "--show", "out", code=3, says=["not the result.json of --each"])


@pytest.mark.parametrize(
    "words, each",
    [
        (["--own-processes"], "model.hidden=[8],[16],[4]"),
        ([], "optimizations.host_allocator=null,true"),  # process settings differ
    ],
)
def test_own_processes(trainopt, recipe, words, each):
    two = ("--repeats", "2", "--turn", "5ms")
    answer = trainopt("compare", recipe, "--each", each, *words, *two, "--json", "--run-dir", "out").json()
    assert answer["own_processes"] and answer["sets"] == 2 and answer["rounds"] == 6
    assert answer["noise_floor"] is None and all(arm["peak_memory_mib"] > 0 for arm in answer["arms"])
    assert (trainopt.folder / "out/arm-2-2/recipe.yaml").exists()
    shown = trainopt("compare", "--show", "out").out
    assert "2 sets of processes, 6 rounds" in shown and "memory" in shown and "too few sets of processes" in shown


@pytest.mark.parametrize(
    "words, expected",
    [
        ([WIDTHS.split(",")[0]], "at least two values"),
        (["model.hidden"], "a key and its values"),
        (["model.hidden=[8],[16"], "without its counterpart"),
        (["seed=1,,2"], "an empty value"),
        (["seed=" + ",".join(map(str, range(13)))], "at most 12 values"),
        (["data.batch_size=8,16,8"], "two values of data.batch_size give the same recipe; name one: 8 and 8"),
        (["optimizations.amp=null,false"], "give the same recipe"),
        (["sead=1,2"], "did you mean 'seed'"),
        (["data.batch_size=8,many"], "data.batch_size"),
        (["data.batch_size=8,128"], "128"),  # found before anything is created: more than the data set has
        (["seed=1,2", "--each", "data.num_workers=0,1"], "--each can be given once"),
        (["seed=1,2", "--with", "data.num_workers=1"], "remove --with and --without"),
        (["seed=1,2", "--without", "amp"], "remove --with and --without"),
        (["seed=1,2", "job.yaml"], "--each takes one recipe"),
        (["seed=1,2,3,4", "--level", "99.99%"], "the highest possible is 99.94%"),
    ],
)
def test_refused(trainopt, recipe, words, expected):
    result = trainopt.refused("compare", recipe, "--each", *words, says=[expected])
    assert len(result.err.strip().splitlines()) == 1, result
    assert not (trainopt.folder / "runs").exists()


def test_what_each_does_not_go_with(trainopt, recipe):
    trainopt.refused("compare", "--show", "out", "--each", "seed=1,2", says=["remove the other arguments"])
    (trainopt.folder / "run").mkdir()
    trainopt.refused("compare", "run", "--each", "seed=1,2", says=["--each takes one recipe"])
    trainopt.refused("compare", "--each", "seed=1,2", says=["--each takes one recipe"])


def test_a_failing_arm_leaves_what_was_measured(trainopt, recipe):
    """The fault is injected into the last arm, long after the first round."""
    slow = ("--repeats", "1000", "--turn", "5ms", "--run-dir", "out")
    result = trainopt("compare", recipe, "--each", "seed=1,2,3", "--inject", "oom@2000+", *slow)
    assert result.code == 5 and "until an arm failed" in result.out, result
    shown = trainopt("compare", "--show", "out", "--json").json()
    assert shown["ended"] == "failed" and shown["failure"] and shown["rounds"] >= 1
    at_once = trainopt("compare", recipe, "--each", "optimizer.lr=0.1,1e30", *FEW)
    assert at_once.code == 6 and "not finite" in at_once.err


def test_a_signal_keeps_the_results_so_far(trainopt, recipe):
    process = trainopt.start(
        "compare", recipe, "--each", "seed=1,2,3", "--repeats", "1000000", "--turn", "5ms", "--run-dir", "out"
    )
    for line in process.stderr:
        if "12 rounds" in line:  # the result of eight rounds has been written by then
            break
    assert json.loads((trainopt.folder / "out/result.json").read_text())["ended"] == "unfinished"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    assert "until it was stopped" in out
    assert json.loads((trainopt.folder / "out/result.json").read_text())["ended"] == "stopped"
