"""Where memory is: the summary's breakdown, and snapshots for PyTorch's memory viewer."""

import contextlib
import io
import pickle

import pytest

from conftest import TINY, records, summary

CATEGORIES = ["parameters", "gradients", "optimizer", "activations", "batches", "other"]
SNAPSHOT = "profiler={memory_snapshot: true, activities: []}"


@pytest.fixture
def tiny(trainopt):
    """Runs the tiny recipe in the folder `out`, with more arguments; the exit code must be `code`."""
    trainopt.write("tiny.yaml", TINY)

    def run(*arguments, code=0, launch=()):
        done = trainopt(*launch, "run", "tiny.yaml", "--run-dir", "out", "device=cpu", *arguments)
        assert done.code == code, done
        return done, trainopt.folder / "out"

    return run


def snapshot_of(folder, name="rank0"):
    return pickle.loads((folder / f"memory/{name}.pickle").read_bytes())


def test_the_summary_says_where_memory_is(tiny):
    done, out = tiny()
    memory = summary(out)["memory"]
    assert memory["step"] == 2
    assert memory["peak_bytes"] == sum(memory[f"{category}_bytes"] for category in CATEGORIES)
    # 3·8·8 → 8 → 10, with biases, in float32; SGD with momentum keeps one value per parameter
    parameters = 4 * (192 * 8 + 8 + 8 * 10 + 10)
    assert memory["parameters_bytes"] == memory["gradients_bytes"] == memory["optimizer_bytes"] == parameters
    units = {unit["unit"]: unit["activations_bytes"] for unit in memory["units"]}
    assert set(units) == {"layers.0", "layers.1", "loss"}
    assert sum(units.values()) == memory["activations_bytes"]
    assert abs(memory["forecast_error_pct"]) < 10
    assert f"{abs(memory['forecast_error_pct']):.1f} % " in done.out
    assert memory["leaks"] == memory["spikes"] == []
    assert f"live at the peak of step 2, in {memory['where']}: " in done.out
    assert not (out / "memory").exists()


def test_records_have_the_memory_of_cpu_tensors(tiny):
    _, out = tiny()
    for record in records(out):
        assert record["memory_allocated_mib"] > 0
        assert 0 < record["memory_peak_pct"] < 100
        assert record["memory_reserved_mib"] is None  # only libtorch's allocator on a GPU reserves


def test_pytorch_reads_the_snapshot(tiny):
    viewer = pytest.importorskip("torch.cuda._memory_viz")
    _, out = tiny(SNAPSHOT)
    snapshot = snapshot_of(out)
    [events] = snapshot["device_traces"]
    live = {}
    for event in events:  # replayed, they give what is live at the end
        if event["action"] == "alloc":
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            live.pop(event["addr"], None)
    assert live == {segment["address"]: segment["total_size"] for segment in snapshot["segments"]}
    places = {frame["name"] for event in events for frame in event["frames"]}
    assert {"forward of layers.0", "backward of layers.1", "update", "opening the data"} <= places
    with contextlib.redirect_stdout(io.StringIO()):
        assert f"{len(events)} entries" in viewer.trace(snapshot)
        assert "segments: " in viewer.segsum(snapshot)
        assert viewer.trace_plot(snapshot, device=0)


def test_every_rank_writes_its_snapshot(tiny):
    _, out = tiny(SNAPSHOT, launch=("launch", "-n", 2, "--"))
    for rank in range(2):
        assert snapshot_of(out, f"rank{rank}")["segments"]


def test_running_out_of_memory_writes_a_snapshot(tiny):
    done, out = tiny(SNAPSHOT, "--inject", "oom@4")
    assert "rank0-step4-out-of-memory.pickle" in done.err
    assert snapshot_of(out, "rank0-step4-out-of-memory")["segments"]
    assert snapshot_of(out)["segments"]  # the run went on to its end


def test_a_run_that_ends_out_of_memory_says_where_it_was(tiny):
    done, out = tiny(SNAPSHOT, "--inject", "oom@3+", code=5)
    assert "live at the peak of step 3" in done.err
    assert snapshot_of(out)["segments"]


def test_a_snapshot_that_cannot_be_written_does_not_end_the_run(tiny, trainopt):
    tiny("train.max_steps=3", "checkpoint.resume=auto")
    trainopt.write("out/memory", "a file in the folder's place")
    done, out = tiny(SNAPSHOT, "checkpoint.resume=auto")
    assert "memory" in done.err and "warning" in done.err
    assert summary(out)["status"] == "done"
