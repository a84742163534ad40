"""`trainopt trace`: refusals, output, and Python's own tables of the same traces as an oracle."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys

import pytest

# Records a small training with every feature of the profiler that changes its tables.
RECORD = """
import json
import sys
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

folder, name = sys.argv[1:]
torch.set_num_threads(1)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1, stride=2), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
    torch.nn.Conv2d(8, 8, 3, groups=4), torch.nn.Flatten(), torch.nn.Linear(8 * 6 * 6, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = torch.utils.data.DataLoader([(torch.zeros(3, 16, 16), 1)] * 24, batch_size=4)

def save(profiler):
    profiler.export_chrome_trace(f"{folder}/{name}")
    for table, shapes in (("names", False), ("shapes", True)):
        rows = [
            {"name": row.key, "shapes": str(row.input_shapes) if row.input_shapes else "", "calls": row.count,
             "cpu_self_us": row.self_cpu_time_total, "cpu_total_us": row.cpu_time_total, "flops": row.flops,
             "kind": "user_annotation" if row.is_user_annotation else "cpu_op"}
            for row in profiler.key_averages(group_by_input_shape=shapes)]
        open(f"{folder}/{table}.json", "w").write(json.dumps(rows))

with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_flops=True,
             schedule=schedule(wait=1, warmup=1, active=3), on_trace_ready=save) as profiler:
    for step, (images, labels) in zip(range(5), loader):
        with record_function("unit::net"):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss = loss + 0 * torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        profiler.step()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with trace.json.gz and Python's tables of it, names.json and shapes.json."""
    folder = tmp_path_factory.mktemp("recorded")
    done = subprocess.run(
        [sys.executable, "-c", RECORD, folder, "trace.json.gz"],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    return folder


def event(name, start, duration, category="cpu_op", **arguments):
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 100,
        "tid": 7,
        "ts": start,
        "dur": duration,
        "args": arguments,
    }


def trace(*events, **members):
    return json.dumps({**members, "traceEvents": list(events)})


TWO_STEPS = trace(
    event("ProfilerStep#4", 0, 100, "user_annotation"),
    event("aten::add", 10, 30),
    event("ProfilerStep#5", 100, 50, "user_annotation"),
    event("aten::mul", 110, 10),
)


def without_lists(shapes):
    """Python shows a list of tensors as []."""
    parts = json.loads(shapes or "[]")
    plain = [[] if any(isinstance(size, list) for size in part) else part for part in parts]
    return json.dumps(plain) if plain else ""


def by_key(rows):
    """Adds up the rows that Python does not distinguish."""
    table = {}
    for row in rows:
        key = (row["name"], row["kind"], without_lists(row.get("shapes", "")))
        known = table.setdefault(key, {name: 0 for name, value in row.items() if not isinstance(value, str)})
        for name in known:
            known[name] += row[name]
    return table


@pytest.mark.parametrize("table, options", [("names", []), ("shapes", ["--group-by", "shape"])])
def test_operations_equal_pythons(trainopt, recorded, table, options):
    python = by_key(json.loads((recorded / f"{table}.json").read_text()))
    python = {key: row for key, row in python.items() if key[0] != "[memory]"}
    ours = by_key(trainopt("trace", recorded / "trace.json.gz", "--json", *options).json()["operations"])
    assert set(ours) == set(python)
    assert len(ours) > 50
    for key, row in python.items():
        assert ours[key]["calls"] == row["calls"], key
        assert ours[key]["flops"] == row["flops"], key
        for column in ("cpu_self", "cpu_total"):
            difference = abs(ours[key][f"{column}_ms"] * 1000 - row[f"{column}_us"])
            assert difference <= 0.001 * row["calls"] + 1e-6, (key, column)
    assert sum(row["flops"] for key, row in ours.items() if key[0] == "aten::conv2d") > 0


def test_steps_of_a_recorded_trace(trainopt, recorded):
    analysis = trainopt("trace", recorded / "trace.json.gz", "--json").json()
    assert [step["step"] for step in analysis["steps"]] == [2, 3, 4]
    for part in (analysis, *analysis["steps"]):
        assert sum(part["breakdown_ms"].values()) == pytest.approx(part["wall_ms"], abs=1e-9)
        assert part["breakdown_ms"]["cpu"] > 0 and part["breakdown_ms"]["kernel"] == 0
    assert analysis["breakdown_ms"]["loader"] > 0
    assert [unit["name"] for unit in analysis["units"]] == ["net"]
    assert analysis["units"][0]["calls"] == 3 and analysis["units"][0]["flops"] > 0
    assert analysis["device"] is None and analysis["kernels"] == []
    one = trainopt("trace", recorded / "trace.json.gz", "--json", "--step", "3").json()
    assert one["wall_ms"] == analysis["steps"][1]["wall_ms"]


def test_text(trainopt):
    trainopt.write("trace.json", TWO_STEPS)
    result = trainopt("trace", "trace.json")
    assert result.code == 0 and result.err == "", result
    lines = result.out.splitlines()
    assert lines[0] == "2 steps, 4 to 5, 0.150 ms of wall time, 0.075 ms a step"
    assert lines[1].split() == ["cpu", "0.040", "ms", "26.7", "%", "########"]
    assert lines[2].split() == ["other", "0.110", "ms", "73.3", "%", "######################"]
    short = trainopt("trace", "trace.json", "--top", "1", "--sort", "calls").out
    assert "ProfilerStep*" in short and "and 2 more" in short


def test_csv(trainopt):
    trainopt.write("trace.json", TWO_STEPS)
    rows = list(csv.DictReader(io.StringIO(trainopt("trace", "trace.json", "--csv", "--sort", "cpu_total").out)))
    assert [(row["name"], row["calls"], float(row["cpu_total_ms"])) for row in rows] == [
        ("ProfilerStep*", "2", 0.15),
        ("aten::add", "1", 0.03),
        ("aten::mul", "1", 0.01),
    ]


def test_several_ranks(trainopt):
    for rank in (0, 1):
        text = trace(event("aten::add", 0, 10 + rank), distributedInfo={"rank": rank})
        trainopt.write(f"{rank}.json.gz", gzip.compress(text.encode(), mtime=0))
    ranks = trainopt("trace", "1.json.gz", "0.json.gz", "--json").json()["ranks"]
    assert [(rank["rank"], rank["wall_ms"]) for rank in ranks] == [(0, 0.01), (1, 0.011)]


@pytest.mark.parametrize(
    "name, content, says",
    [
        ("absent.json", None, "No such file"),
        ("empty.json", b"", "the trace is empty"),
        ("cut.json", TWO_STEPS[:-20].encode(), "truncated"),
        ("cut.json.gz", gzip.compress(TWO_STEPS.encode(), mtime=0)[:-20], "truncated"),
        ("plain.json.gz", TWO_STEPS.encode(), "not gzip-compressed"),
        ("text.json", b"loss 2.3\n", "neither JSON nor gzip"),
        ("other.json", b'{"loss": 2.3}', "no traceEvents"),
        ("none.json", b'{"traceEvents": []}', "no events"),
    ],
)
def test_files_that_are_no_traces(trainopt, name, content, says):
    if content is not None:
        trainopt.write(name, content)
    result = trainopt.refused("trace", name, code=3, says=[name, says])
    assert len(result.err.splitlines()) == 1, result


def test_a_folder_is_no_trace(trainopt):
    (trainopt.folder / "folder").mkdir()
    trainopt.refused("trace", "folder", code=3, says=["folder"])


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "file"),
        (["trace.json", "--step", "9"], "steps 4 to 5, not step 9"),
        (["trace.json", "--sort", "name"], "cpu_self"),
        (["trace.json", "--group-by", "thread"], "shape"),
        (["trace.json", "--top", "0"], "--top: Value 0 not in range 1 to 1000000"),
        (["trace.json", "--top", "9" * 20], "not in range 1 to 1000000"),
        (["trace.json", "--step", "9" * 20], "not in range 0 to"),
        (["trace.json", "./trace.json"], "named twice; name one file per rank: ./trace.json"),
        (["trace.json", "--json", "--csv"], "--csv"),
    ],
)
def test_wrong_usage_of_trace(trainopt, arguments, says):
    trainopt.write("trace.json", TWO_STEPS)
    trainopt.refused("trace", *arguments, code=2, says=[says])
