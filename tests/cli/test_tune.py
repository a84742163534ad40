"""trainopt tune: what it tries, keeps, writes and survives."""

import json
import signal

import pytest

from conftest import in_full, wait_until
from ranks import STARTERS, Ranks, kill_leftover_ranks, start_with, with_launchers  # noqa: F401

# Many tiny steps' worth of starting operations: one sample at a time.
BAD = """\
name: bad
model: {name: mlp, num_classes: 10, hidden: [64, 64]}
data:
  dataset: fake_cifar10
  size: 512
  batch_size: 1
  transforms: [{resize: 8}, {normalize: {mean: 0.5, std: 0.5}}]
train: {epochs: 1, gradient_accumulation_steps: 32}
optimizer: {name: sgd, lr: 0.01}
"""
ROOFLINE = ("roofline", "--seconds", "0.05")  # so that tune finds it


def state_of(folder):
    return json.loads((folder / "tuning.json").read_text())


def test_a_bad_recipe(trainopt):
    trainopt.write("bad.yaml", BAD)
    assert trainopt(*ROOFLINE).code == 0
    result = trainopt("tune", "bad.yaml", "--budget", "40s", "--run-dir", "out")
    assert result.code == 0, result
    out = trainopt.folder / "out"
    answer = json.loads((out / "result.json").read_text())
    first = answer["steps"][0]
    assert first["change"] == ["data.batch_size=32", "train.gradient_accumulation_steps=1"], result
    assert "estimated" in result.out and "tuned.yaml" in result.out
    for step in answer["steps"]:
        paid = step["verdict"] == "pays" and step["numbers_agree"] is not False
        assert step["kept"] == paid and step["reason"], step
    kept = [word for step in answer["steps"] if step["kept"] for word in step["change"]]
    assert answer["change"] == kept and answer["limits"][0].startswith("launches")
    tuned = trainopt("plan", "out/tuned.yaml", "--json").json()["recipe"]
    by_hand = trainopt("plan", "bad.yaml", *kept, "--json").json()["recipe"]
    assert tuned == by_hand
    table = (out / "steps.md").read_text().splitlines()
    assert len(table) == 2 + len(answer["steps"]) and all(word in table[2] for word in first["change"]), table
    comments = [line for line in (out / "tuned.yaml").read_text().splitlines() if line.strip().startswith("# ")]
    assert len(comments) == len(kept)


def test_a_killed_tuning_goes_on(trainopt):
    trainopt.write("bad.yaml", BAD)
    assert trainopt(*ROOFLINE).code == 0
    process = trainopt.start("tune", "bad.yaml", "--budget", "100s", "--run-dir", "out")
    state = trainopt.folder / "out/tuning.json"
    wait_until(lambda: state.exists() and state_of(trainopt.folder / "out")["steps"], process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    before = state_of(trainopt.folder / "out")["steps"]
    result = trainopt("tune", "bad.yaml", "--budget", "30s", "--run-dir", "out")
    assert result.code == 0 and "continuing after" in result.out, result
    assert state_of(trainopt.folder / "out")["steps"][: len(before)] == before
    trainopt.refused("tune", "bad.yaml", "seed=5", "--run-dir", "out", says=["another recipe"])


def test_a_stopped_trial_does_not_count(trainopt):
    """Ctrl-C during the first trial."""
    trainopt.write("bad.yaml", BAD)
    assert trainopt(*ROOFLINE).code == 0
    process = trainopt.start("tune", "bad.yaml", "--budget", "100s", "--run-dir", "out")
    trial = trainopt.folder / "out/trial-1/a.yaml"
    wait_until(trial.exists, process)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, errors
    state = state_of(trainopt.folder / "out")
    assert state["steps"] == [] and state["ended"] == "stopped", state
    assert "no trial was completed" in out and "no change paid" not in out, out
    again = ("tune", "bad.yaml", "--run-dir", "out")
    trainopt.refused(*again, "--ranks", "2", says=["is of 1 rank, this one of 2"])
    trainopt.write("out/tuning.json", json.dumps(state | {"ranks": 2}))
    trainopt.refused(*again, says=["is of 2 ranks, this one of 1"])
    del state["steps"]
    trainopt.write("out/tuning.json", json.dumps(state))
    trainopt.refused(*again, code=3, says=["out/tuning.json is damaged", "steps"])


@pytest.mark.full
def test_time_that_is_up_before_the_first_trial(trainopt):
    """Steps of thousands of micro-batches need the long diagnosis, which leaves too little for a trial."""
    trainopt.write("bad.yaml", BAD)
    assert trainopt(*ROOFLINE).code == 0
    words = ("data.size=100000", "train.gradient_accumulation_steps=8000", "--budget", "30s", "--run-dir", "out")
    result = trainopt("tune", "bad.yaml", *words)
    assert result.code == 0 and state_of(trainopt.folder / "out")["steps"] == [], result
    assert "nothing was tried: the time was spent on" in result.out and "raise --budget" in result.out, result


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"recipe": 1', '{"recipe": "", "goal": "speed"'])
def test_a_damaged_state_is_refused(trainopt, text):
    trainopt.write("bad.yaml", BAD)
    trainopt.write("out/tuning.json", text)
    result = trainopt.refused("tune", "bad.yaml", "--run-dir", "out", code=3, says=["out/tuning.json is damaged"])
    assert len(result.err.splitlines()) == 1 and "json.exception" not in result.err, result
    assert (trainopt.folder / "out/tuning.json").read_text() == text


@pytest.mark.full
def test_rare_checkpoints_do_not_end_the_search(trainopt):
    """Whole periods of 100,000 steps fit no trial: turns are then of steps alone."""
    trainopt.write("bad.yaml", BAD)
    assert trainopt(*ROOFLINE).code == 0
    result = trainopt("tune", "bad.yaml", "checkpoint.every_n_steps=100000", "--budget", "40s", "--run-dir", "out")
    assert result.code == 0, result
    first = json.loads((trainopt.folder / "out/result.json").read_text())["steps"][0]
    assert first["ratio"], first


@pytest.mark.parametrize("launcher", ["launch", *in_full("mpirun", "torchrun", "srun")])
def test_under_every_launcher_one_rank_tunes(trainopt, launcher):
    """With as many ranks as the launcher started. The others end at once."""
    trainopt.write("bad.yaml", BAD.replace("accumulation_steps: 32", "accumulation_steps: 16"))
    assert trainopt("launch", "-n", "2", "--", *ROOFLINE).code == 0
    words = [*STARTERS[launcher], "tune", "bad.yaml", "--budget", "30s", "--run-dir", "out"]
    (result,) = start_with(Ranks(trainopt), words, with_launchers(trainopt)).ended()
    assert result.code == 0 and result.out.count("tuned.yaml") == 1, result
    answer = json.loads((trainopt.folder / "out/result.json").read_text())
    assert answer["steps"] and answer["steps"][0]["ratio"], result
    compared = json.loads((trainopt.folder / "out/trial-1/result/result.json").read_text())
    assert compared["arms"]["a"]["step_samples"] == 32, "16 of each rank"


GPT = """\
name: gpt
device: cpu
model: {name: gpt2, layers: 6, heads: 4, width: 128, context: 256, vocabulary: 256}
data: {dataset: synthetic, size: 64, batch_size: 8}
train: {epochs: 1}
optimizer: {name: adamw, lr: 0.001}
"""


@pytest.mark.full
def test_less_memory(trainopt):
    trainopt.write("gpt.yaml", GPT)
    result = trainopt("tune", "gpt.yaml", "--goal", "memory", "--budget", "60s", "--run-dir", "out")
    assert result.code == 0, result
    answer = json.loads((trainopt.folder / "out/result.json").read_text())
    assert answer["goal"] == "memory" and "forecast at the peak" in answer["limits"][0]
    first = answer["steps"][0]
    assert first["estimate"] == max(step["estimate"] for step in answer["steps"])
    assert first["kept"] and first["ratio"] > 1.02 and first["speed"] > 0, answer
    assert answer["before"]["peak_memory_mib"] > answer["after"]["peak_memory_mib"]
    assert "peak memory of a rank" in result.out and "throughput" in result.out, result


def test_bad_input(trainopt):
    trainopt.write("bad.yaml", BAD)
    trainopt.refused("tune", "bad.yaml", "--budget", "soon", says=["--budget", "soon"])
    trainopt.refused("tune", "bad.yaml", "--budget", "1s", says=["at least 30s"])
    trainopt.refused("tune", "bad.yaml", "--allow", "everything", says=["new_math", "everything"])
    trainopt.refused("tune", "bad.yaml", "--goal", "fame", says=["speed, memory or price", "fame"])
    trainopt.refused("tune", "bad.yaml", "--goal", "price", says=["bench.price_per_hour"])
    trainopt.refused("tune", "missing.yaml", says=["missing.yaml"])
    trainopt.refused("tune", says=["name a recipe"])
    assert not (trainopt.folder / "runs").exists()


def failures(result):
    """The lines on standard error but what is about to be done."""
    return [line for line in result.err.splitlines() if not line.startswith("info: tuning ")]


@pytest.mark.parametrize("word", ["data.path=nowhere", "model.hidden=[100000, 10000000]"])
def test_a_recipe_that_does_not_run(trainopt, word):
    trainopt.write("bad.yaml", BAD.replace("fake_cifar10", "cifar10") if "path" in word else BAD)
    assert trainopt(*ROOFLINE).code == 0
    result = trainopt("tune", "bad.yaml", word, "--budget", "30s", "--run-dir", "out")
    assert result.code in (2, 3, 5) and len(failures(result)) == 1, result
