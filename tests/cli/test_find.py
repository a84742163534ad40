"""trainopt find batch."""

import json

from conftest import TINY


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


def test_bad_input(trainopt):
    trainopt.write("tiny.yaml", TINY)
    trainopt.refused("find", "batch", "tiny.yaml", "data.global_batch_size=16", says=["global_batch_size", "16"])
    trainopt.refused("find", "batch", "tiny.yaml", "--budget", "soon", says=["--budget"])
    trainopt.refused("find", "batch", says=["name a recipe"])
    trainopt.refused("find", says=["name a command"])
    result = trainopt("find", "batch", "tiny.yaml", "model.hidden=[100000, 10000000]", "--run-dir", "out")
    assert result.code == 5 and "not even a batch of 1 sample fits" in result.err, result
