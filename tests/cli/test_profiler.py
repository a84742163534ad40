"""The recipe's `profiler`, its traces, and `trainopt profile`."""

import gzip
import json
import os
import resource
import subprocess

import pytest

from conftest import PROGRAM, losses, summary

# Units with several operations, a loader with threads, and every phase.
RECIPE = """\
name: small
model: {name: mlp, num_classes: 10, hidden: [16, 16]}
data: {dataset: fake_cifar10, size: 64, batch_size: 8, num_workers: 2, transforms: [{resize: 8}]}
train: {max_steps: 8}
optimizer: {name: sgd, lr: 0.01, momentum: 0.9}
"""
ON = "profiler={wait: 1, warmup: 1, active: 2}"


def events(path):
    with gzip.open(path, "rt") as file:
        return json.load(file)


def named(trace, name, category="user_annotation"):
    return [event for event in trace["traceEvents"] if event.get("name") == name and event.get("cat") == category]


def contains(outer, inner):
    return (
        outer["tid"] == inner["tid"]
        and outer["ts"] <= inner["ts"]
        and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 0.01
    )


@pytest.fixture
def small(trainopt):
    trainopt.write("small.yaml", RECIPE)
    return trainopt


def test_a_trace_has_every_label_at_its_place(small):
    run = small("run", "small.yaml", "--run-dir", "out", "device=cpu", ON)
    assert run.code == 0, run
    assert os.listdir(small.folder / "out/trace") == ["rank0-step3.json.gz"]
    trace = events(small.folder / "out/trace/rank0-step3.json.gz")
    assert trace["distributedInfo"] == {"rank": 0, "world_size": 1}
    (first,), (second,) = named(trace, "ProfilerStep#3"), named(trace, "ProfilerStep#4")
    assert not named(trace, "ProfilerStep#2") and not named(trace, "ProfilerStep#5")
    for label in ("loader::wait", "forward", "backward", "update", "optimizer", "record"):
        assert [contains(step, event) for step, event in zip((first, second), named(trace, label), strict=True)] == [
            True,
            True,
        ], label
    (forward, _), (backward, _) = named(trace, "forward"), named(trace, "backward")
    names = {event.get("name", "") for event in trace["traceEvents"]}
    units = {name.removeprefix("unit::") for name in names if name.startswith("unit::")}
    assert len(units) >= 3, units
    for unit in units:
        assert contains(forward, named(trace, f"unit::{unit}")[0]), unit
        assert contains(backward, named(trace, f"unit_backward::{unit}")[0]), unit
    products = [event for event in trace["traceEvents"] if event.get("name") in ("aten::addmm", "aten::linear")]
    assert all(any(contains(step, event) for step in (first, second)) for event in products) and products


def test_the_loaders_threads_are_in_the_picture(small):
    """Six profiled steps take more batches than the three that can be ready before them."""
    few = ("data.num_workers=1", "data.prefetch_factor=1", "data.size=128", "train.max_steps=12")
    run = small("run", "small.yaml", "--run-dir", "out", "device=cpu", *few, "profiler={wait: 1, warmup: 1, active: 6}")
    assert run.code == 0, run
    trace = events(small.folder / "out/trace/rank0-step3.json.gz")
    (first,) = named(trace, "ProfilerStep#3")
    loading = {event["tid"] for event in named(trace, "loader::sample")}
    assert loading and first["tid"] not in loading


def test_profiled_steps_change_no_number_and_stay_out_of_the_summary(small):
    assert small("run", "small.yaml", "--run-dir", "plain", "device=cpu").code == 0
    run = small("run", "small.yaml", "--run-dir", "profiled", "device=cpu", ON)
    assert run.code == 0, run
    assert losses(small.folder / "plain") == losses(small.folder / "profiled")
    end = summary(small.folder / "profiled")
    assert end["profiler"]["steps"] == 3 and end["measured_steps"] + end["left_out_steps"] == 5
    assert "3 steps, not counted above" in run.out
    assert summary(small.folder / "plain")["profiler"] is None


def test_recordings_repeat_and_the_last_may_be_cut_short(small):
    endless = "profiler={wait: 1, warmup: 0, active: 2, repeat: 0}"
    run = small("run", "small.yaml", "--run-dir", "out", "device=cpu", endless)
    assert run.code == 0, run
    assert sorted(os.listdir(small.folder / "out/trace")) == [f"rank0-step{first}.json.gz" for first in (2, 5, 8)]
    assert not named(events(small.folder / "out/trace/rank0-step8.json.gz"), "ProfilerStep#9")
    early = small("run", "small.yaml", "--run-dir", "early", "device=cpu", "profiler={wait: 20}")
    assert early.code == 0 and "before the profiler's first recording, which begins with step 22" in early.err, early


def test_what_is_recorded(small):
    for name, options in {
        "plain": "units: false",
        "shapes": "record_shapes: true",
        "memory": "profile_memory: true",
        "stack": "with_stack: true",
    }.items():
        run = small("run", "small.yaml", "--run-dir", name, "device=cpu", f"profiler={{wait: 0, active: 1, {options}}}")
        assert run.code == 0, run
    assert small("run", "small.yaml", "--run-dir", "labels", "device=cpu", "profiler={activities: []}").code == 0
    assert not (small.folder / "labels/trace").exists()
    recorded = ("plain", "shapes", "memory", "stack")
    trace = {name: events(small.folder / name / "trace/rank0-step2.json.gz") for name in recorded}
    product = {name: named(trace[name], "aten::addmm", "cpu_op")[0]["args"] for name in trace}
    assert "Input Dims" not in product["plain"] and product["shapes"]["Input Dims"][1][0] == 8
    assert not named(trace["plain"], "unit::layers.0") and named(trace["shapes"], "unit::layers.0")
    assert any(event["name"] == "[memory]" for event in trace["memory"]["traceEvents"])
    assert not any(event.get("name") == "[memory]" for event in trace["plain"]["traceEvents"])
    stacks = [event["args"]["Call stack"] for event in named(trace["stack"], "aten::addmm", "cpu_op")]
    assert any(stack.startswith("ProfilerStep#2;forward;unit::") for stack in stacks), stacks


def test_mistakes(small):
    contradiction = "profiler={with_stack: true, units: false}"
    small.refused("run", "small.yaml", contradiction, code=2, says=["profiler.with_stack", "units"])
    small.refused("run", "small.yaml", "profiler={active: 0}", code=2, says=["profiler.active"])
    small.refused("run", "small.yaml", "profiler={activities: [tpu]}", code=2, says=["profiler.activities"])
    small.refused("profile", "small.yaml", "profiler={activities: []}", code=2, says=["nothing to show"])
    nothing = "profiler={activities: [], repeat: 2, with_flops: true}"
    small.refused("plan", "small.yaml", nothing, code=2, says=["profiler.repeat: has no effect", "profiler.with_flops"])
    kernels = "profiler={activities: [gpu]}"
    small.refused("run", "small.yaml", "device=cpu", kernels, code=2, says=["its traces would be empty"])
    about_operations = "profiler={activities: [gpu], record_shapes: true}"
    small.refused("plan", "small.yaml", about_operations, code=2, says=["profiler.record_shapes: is about operations"])
    small.refused("profile", "small.yaml", "profiler={active: 1000}", code=2, says=["at most 1,000 steps", "1,011"])
    late = ("profile", "small.yaml", "--step", 6, "--run-dir", "late")
    small.refused(*late, code=2, says=["steps 7 to 9: 6"])
    assert not (small.folder / "late").exists(), "refused before the run"


def test_profile_prints_where_the_time_went(small):
    run = small("profile", "small.yaml", "device=cpu", "--run-dir", "out")
    assert run.code == 0, run
    for word in ("forward", "aten::addmm", "other", "profile.json"):
        assert word in run.out, word
    result = json.loads((small.folder / "out/profile.json").read_text())
    assert sum(result["breakdown_ms"].values()) == pytest.approx(result["wall_ms"])
    assert [step["step"] for step in result["steps"]] == [7, 8, 9]
    assert {unit["name"] for unit in result["units"]} == {"layers.0", "layers.1", "layers.2"}
    assert (small.folder / "out/operations.csv").read_text().count("aten::addmm") >= 1
    assert not (small.folder / "out/checkpoints").exists(), "it only trains"
    assert result["recording"]["steps"] == 3 and result["recording"]["other_steps"] == 5
    assert ", from only 3 recorded and 5 other steps\n" in run.out, run
    assert "GFLOP\n" in run.out, run
    without_shapes = "profiler={record_shapes: false}"
    as_json = small("profile", "small.yaml", "device=cpu", "--run-dir", "json", "--json", without_shapes)
    assert as_json.code == 0 and as_json.json()["wall_ms"] > 0, as_json
    assert not any(operation["flops"] for operation in as_json.json()["operations"]), "as asked"


def test_profile_names_what_it_does_not_use(small):
    unused = ("checkpoint.resume=auto", "profiler={repeat: 0}")
    run = small("profile", "small.yaml", "device=cpu", "--run-dir", "out", *unused)
    assert run.code == 0 and "does not use checkpoint.resume, profiler.repeat\n" in run.err, run
    assert os.listdir(small.folder / "out/trace") == ["rank0-step7.json.gz"]
    off = small("profile", "small.yaml", "device=cpu", "--run-dir", "off", "profiler=false")
    assert off.code == 0 and "does not use profiler: false\n" in off.err, off


def small_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, resource.RLIM_INFINITY))


def test_a_full_disk_costs_the_trace_and_nothing_else(small):
    """The trace as libtorch writes it has over 100 KiB. A limit of 64 KiB per file stands in for a full disk."""
    run = small("run", "small.yaml", "--run-dir", "out", "device=cpu", ON, before=small_files)
    assert run.code == 0, run
    assert "rank0-step3.json: File too large; training continues\n" in run.err, run
    assert os.listdir(small.folder / "out/trace") == []
    assert summary(small.folder / "out")["steps"] == 8 and (small.folder / "out/weights.safetensors").exists()
    profile = small("profile", "small.yaml", "--run-dir", "shown", "device=cpu", before=small_files)
    assert profile.code == 8 and "no trace was written" in profile.err, profile


def test_a_disk_that_the_trace_fills_has_room_for_the_results(small):
    """As above on a file system without room for the trace."""
    in_namespace = ["unshare", "--mount", "--map-root-user"]
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", "disk"]
    (small.folder / "disk").mkdir()
    if subprocess.run([*in_namespace, *mount], cwd=small.folder, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a file system")
    script = f'{" ".join(mount)} && "$@"; code=$?; cp -r disk/out kept; exit $code'
    run = ["run", "small.yaml", "device=cpu", "--run-dir", "disk/out", "profiler={wait: 1, active: 6}"]
    done = subprocess.run(
        [*in_namespace, "sh", "-c", script, "sh", PROGRAM, *run, "train.max_steps=12", "checkpoint.at_end=false"],
        cwd=small.folder,
        env=small.environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "rank0-step3.json: No space left on device; training continues" in done.stderr
    assert os.listdir(small.folder / "kept/trace") == []
    assert summary(small.folder / "kept")["steps"] == 12 and (small.folder / "kept/weights.safetensors").exists()


def test_two_ranks_are_merged_into_one_picture(small):
    two = ("launch", "-n", "2", "--", "run", "small.yaml", "device=cpu", "data.batch_size=4")
    run = small(*two, "--run-dir", "out", ON)
    assert run.code == 0, run
    assert sorted(os.listdir(small.folder / "out/trace")) == [
        "all-ranks-step3.json.gz",
        "rank0-step3.json.gz",
        "rank1-step3.json.gz",
    ]
    merged = events(small.folder / "out/trace/all-ranks-step3.json.gz")
    steps = named(merged, "ProfilerStep#3")
    assert len(steps) == 2 and steps[0]["pid"] != steps[1]["pid"]
    for rank in range(2):
        trace = events(small.folder / f"out/trace/rank{rank}-step3.json.gz")
        assert trace["distributedInfo"]["rank"] == rank
        assert named(trace, "comm::wait"), "what the ranks exchange is labelled"


def test_profile_of_two_ranks(small):
    two = ("launch", "-n", "2", "--", "profile", "small.yaml", "device=cpu", "data.batch_size=4")
    run = small(*two, "--run-dir", "out")
    assert run.code == 0 and "rank 1" in run.out, run
    result = json.loads((small.folder / "out/profile.json").read_text())
    assert [rank["rank"] for rank in result["ranks"]] == [0, 1]
    assert all(rank["breakdown_ms"]["communication"] > 0 for rank in result["ranks"])


# Convolutions, norms and matrix products as the dispatcher's outermost names, forward and backward.
COUNTED = (
    "aten::conv2d",
    "aten::convolution_backward",
    "aten::batch_norm",
    "aten::native_batch_norm_backward",
    "aten::addmm",
    "aten::mm",
    "aten::max_pool2d",
)


def test_own_profile_counts_what_torch_profiler_counts(trainopt):
    """ResNet-18 on the same batch: torchvision's model under torch.profiler, and ours."""
    torch = pytest.importorskip("torch")
    torchvision = pytest.importorskip("torchvision")
    trainopt.write(
        "resnet.yaml",
        "model: {name: resnet18, num_classes: 10}\n"
        "data: {dataset: fake_cifar10, size: 64, batch_size: 4, transforms: []}\n"
        "optimizer: {name: sgd, lr: 0.1}\n",
    )
    run = trainopt("profile", "resnet.yaml", "device=cpu", "profiler={active: 1}", "--json")
    assert run.code == 0, run
    ours = {operation["name"]: operation["calls"] for operation in run.json()["operations"]}
    model = torchvision.models.resnet18(num_classes=10)
    images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.nn.functional.cross_entropy(model(images), labels).backward()
    theirs = {event.key: event.count for event in profiler.key_averages()}
    assert {name: ours.get(name, 0) for name in COUNTED} == {name: theirs.get(name, 0) for name in COUNTED}
