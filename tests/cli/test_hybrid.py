"""sharding_strategy hybrid: two machines with two ranks each, as launchers side by side or in two namespaces."""

import json
import subprocess

from conftest import PROGRAM, losses, summary
from ranks import (  # noqa: F401
    RECIPE,
    Ranks,
    close,
    free_port,
    inside,
    kill_leftover_ranks,
    launch,
    node_of_two,
    one_message,
    two_machines,
    weights,
)

HYBRID = ["parallel.sharding_strategy=HYBRID_SHARD", "data.batch_size=4", "--quiet"]


def on_two(trainopt, *arguments, ranks=(2, 2), places=((), ()), address="127.0.0.1", recipe="tiny.yaml"):
    """Runs a job of two launchers, each as on a machine of its own; `places`: the command that each runs under."""
    job, rendezvous = Ranks(trainopt), f"{address}:{free_port()}"
    for node in (0, 1):
        options = [*node_of_two(node, ranks[node]), "--rendezvous", rendezvous]
        job.start([*places[node], PROGRAM, "launch", *options, "--", "run", recipe, *arguments])
    return job.ended()


def receipt(folder):
    return summary(folder)["receipts"]["parallel.sharding_strategy"]


def test_trains_and_resumes_as_one_rank_does(trainopt):
    """Checkpoints hold complete tensors, so that other ranks and strategies go on from them."""
    trainopt.write("tiny.yaml", RECIPE)
    assert trainopt("run", "tiny.yaml", "--run-dir", "alone", "data.batch_size=16").code == 0
    results = on_two(trainopt, "--run-dir", "out", *HYBRID, "checkpoint={every_n_steps: 1, keep_last: 9}")
    assert [result.code for result in results] == [0, 0], results
    alone, out = trainopt.folder / "alone", trainopt.folder / "out"
    assert close(out, alone), results
    assert receipt(out)["reason"] in ("", None) and "to other machines" in receipt(out)["observed"], receipt(out)
    for step in range(1, 6):
        resume = f"checkpoint.resume=out/checkpoints/step-0000000{step}"
        again = trainopt.folder / f"again-{step}"
        results = on_two(trainopt, "--run-dir", again, *HYBRID, resume)
        assert [result.code for result in results] == [0, 0], results
        assert losses(again) == losses(out)[step:] and weights(again) == weights(out), step
    resume = "checkpoint.resume=out/checkpoints/step-00000003"
    for ranks, sharding in ((4, "zero3"), (1, "none")):
        words = [resume, f"data.batch_size={16 // ranks}", f"parallel.sharding_strategy={sharding}", "--quiet"]
        result = launch(trainopt, ranks, "--run-dir", f"on-{ranks}", *words)
        assert result.code == 0 and close(trainopt.folder / f"on-{ranks}", alone, steps=3), result
    # And back: hybrid goes on from the checkpoint of one rank.
    resume = "checkpoint.resume=alone/checkpoints/step-00000006"
    results = on_two(trainopt, "--run-dir", "back", *HYBRID, resume, "train.max_steps=8")
    assert [result.code for result in results] == [0, 0] and summary(trainopt.folder / "back")["resumed_from"] == 6


def test_machines_with_different_numbers_of_ranks(trainopt):
    trainopt.write("tiny.yaml", RECIPE)
    job, port = Ranks(trainopt), free_port()
    places = [(0, 3), (1, 3), (2, 3), (0, 1)]  # rank on its machine, of how many
    for rank, (local, count) in enumerate(places):
        job.rank(rank, 4, "run", "tiny.yaml", *HYBRID, "--run-dir", "out", port=port, local=(local, count))
    results = job.ended()
    assert [result.code for result in results] == [2] * 4, results
    assert "hybrid" in one_message(*results), results


def sent_over_the_cable(namespace):
    counter = "cat /sys/class/net/veth0/statistics/tx_bytes"
    return int(subprocess.check_output(["ip", "netns", "exec", namespace, *counter.split()]))


def test_two_namespaces_send_what_the_formula_says(trainopt, two_machines):  # noqa: F811
    """Bytes on the cable between two machines, as its network interface counts them."""
    trainopt.write("tiny.yaml", RECIPE.replace("hidden: [8]", "hidden: [1024, 1024]"))
    places = [inside(name, f"machine{node}") for node, name in enumerate(two_machines)]
    sent = []
    for steps in (2, 12):
        before = sent_over_the_cable(two_machines[0])
        results = on_two(
            trainopt,
            "--run-dir",
            f"out-{steps}",
            f"train.max_steps={steps}",
            "checkpoint.at_end=false",
            *HYBRID,
            places=places,
            address="10.99.77.1",
        )
        assert [result.code for result in results] == [0, 0], results
        sent.append(sent_over_the_cable(two_machines[0]) - before)
    plan = json.loads((trainopt.folder / "out-12/plan.json").read_text())
    predicted = 2 * plan["sharding"]["hybrid"]["across_bytes"]  # of both ranks on the machine
    assert abs((sent[1] - sent[0]) / 10 / predicted - 1) < 0.05, (sent, predicted)
    assert losses(trainopt.folder / "out-12")[:2] == losses(trainopt.folder / "out-2")
