"""The sink `tensorboard`, read back with TensorBoard's own readers."""

import signal

import pytest
from tensorboard import context
from tensorboard.backend.event_processing import data_provider, event_accumulator, plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import backend_context, metadata

from conftest import TINY, losses, records, saved_steps, summary, wait_until

SINKS = "logging.sinks=[jsonl, tensorboard]"


def reader(folder):
    """What TensorBoard knows of one run; 0: keeps every event."""
    accumulator = event_accumulator.EventAccumulator(
        str(folder), size_guidance={event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0}
    )
    return accumulator.Reload()


def values(accumulator, tag):
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def text(accumulator, tag):
    assert accumulator.SummaryMetadata(tag).plugin_data.plugin_name == "text"
    return accumulator.Tensors(tag)[-1].tensor_proto.string_val[0].decode()


def hparams_of(logdir):
    """What the HPARAMS page is made from: the experiment, and per run the start and end of its session."""
    multiplexer = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={"scalars": 0})
    multiplexer.AddRunsFromDirectory(str(logdir))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(logdir))
    backend = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    request = context.RequestContext()
    tags = backend.hparams_metadata(request, "")
    found = backend.hparams_from_data_provider(request, "", None)
    return backend.experiment_from_metadata(request, "", True, tags, found), tags


def write_images(trainopt):
    """Files of zeros with CIFAR-10's names, so that there is something to evaluate on."""
    for name in ("data_batch_1.bin", "test_batch.bin"):
        trainopt.write(f"files/{name}", b"\0" * 8 * 3073)
    return TINY.replace("dataset: fake_cifar10, size: 64", "dataset: cifar10, path: files")


def test_scalars_evaluations_and_texts(trainopt):
    trainopt.write("tiny.yaml", write_images(trainopt))
    result = trainopt("run", "tiny.yaml", "--run-dir", "out", SINKS, "evaluation.every_n_steps=3", "data.num_workers=1")
    assert result.code == 0, result
    out = trainopt.folder / "out"
    (file,) = out.glob("events.out.tfevents.*")
    seen = reader(out)
    assert seen.file_version == 2
    rows = records(out)
    assert values(seen, "loss/loss") == [(row["step"], pytest.approx(row["loss"])) for row in rows]
    tags = {tag.split("/")[1]: tag for tag in seen.Tags()["scalars"] if tag.split("/")[0] not in ("eval", "at_end")}
    measured = {name for row in rows for name, value in row.items() if value is not None} - {"step"}
    assert set(tags) == measured
    for name, tag in tags.items():
        expected = [(row["step"], pytest.approx(row[name], rel=1e-6)) for row in rows if row[name] is not None]
        assert values(seen, tag) == expected, name
    assert [step for step, _ in values(seen, "eval/top1_pct")] == [3, 6]
    end = summary(out)
    assert values(seen, "at_end/loss") == [(6, pytest.approx(end["loss"]["last"]))]
    assert values(seen, "at_end/samples_per_s") == [(6, pytest.approx(end["samples_per_s"]))]
    assert values(seen, "at_end/top1_pct") == [(6, pytest.approx(end["evaluation"]["top1_pct"]))]
    assert text(seen, "recipe") == f"```yaml\n{(out / 'recipe.yaml').read_text()}```\n"
    assert "| num_workers | 1 | " in text(seen, "receipts")


def test_hparams_compare_run_folders(trainopt):
    trainopt.write("tiny.yaml", TINY)
    assert trainopt("run", "tiny.yaml", "--run-dir", "runs/a", SINKS).code == 0
    other = ["optimizer.lr=0.02", "optimizer.momentum=0"]
    assert trainopt("run", "tiny.yaml", "--run-dir", "runs/b", SINKS, *other).code == 0
    failed = trainopt("run", "tiny.yaml", "--run-dir", "runs/c", SINKS, "optimizer.lr=1e30", "train.max_steps=60")
    assert failed.code == 6, failed
    experiment, tags = hparams_of(trainopt.folder / "runs")
    first = [info.name for info in experiment.hparam_infos if info.differs]
    assert first == ["optimizer.lr", "optimizer.momentum", "train.max_steps"], "what differs between the recipes"
    lr = {info.name: info for info in experiment.hparam_infos}["optimizer.lr"].domain_interval
    assert (lr.min_value, lr.max_value) == (0.01, 1e30)
    assert [metric.name.tag for metric in experiment.metric_infos][:2] == ["at_end/loss", "at_end/samples_per_s"]
    starts = {
        run: metadata.parse_session_start_info_plugin_data(tags[run][metadata.SESSION_START_INFO_TAG]) for run in tags
    }
    assert {run: start.hparams["optimizer.lr"].number_value for run, start in starts.items()} == {
        "a": 0.01,
        "b": 0.02,
        "c": 1e30,
    }
    assert starts["a"].hparams["model.name"].string_value == "mlp"
    assert starts["a"].hparams["data.shuffle"].HasField("bool_value")
    ends = {run: metadata.parse_session_end_info_plugin_data(tags[run][metadata.SESSION_END_INFO_TAG]) for run in tags}
    assert {run: end.status for run, end in ends.items()} == {"a": 1, "b": 1, "c": 2}  # success, failure


def test_steps_that_a_resumed_run_writes_again_appear_once(trainopt):
    trainopt.write("tiny.yaml", TINY)
    run = ["run", "tiny.yaml", "--run-dir", "out", SINKS, "checkpoint.every_n_steps=4", "data.size=4096"]
    endless = trainopt.start(*run, "train.max_steps=1000000")
    out = trainopt.folder / "out"
    wait_until(lambda: len(saved_steps(out)) >= 2 if (out / "checkpoints").exists() else False, endless)
    endless.send_signal(signal.SIGKILL)
    endless.wait()
    kept = saved_steps(out)[-1]
    result = trainopt(*run, f"train.max_steps={kept + 10}", "checkpoint.resume=auto")
    assert result.code == 0, result
    assert len(list(out.glob("events.out.tfevents.*"))) == 2
    seen = reader(out)
    assert [step for step, _ in values(seen, "loss/loss")] == list(range(1, kept + 11))
    assert [loss for _, loss in values(seen, "loss/loss")] == pytest.approx(losses(out))


def test_a_run_continued_after_its_end_has_the_newer_end(trainopt):
    trainopt.write("tiny.yaml", TINY)
    run = ["run", "tiny.yaml", "--run-dir", "runs/a", SINKS, "checkpoint.resume=auto"]
    assert trainopt(*run, "checkpoint.every_n_steps=3").code == 0
    assert trainopt(*run, "train.max_steps=9").code == 0
    seen = reader(trainopt.folder / "runs/a")
    assert [step for step, _ in values(seen, "loss/loss")] == list(range(1, 10))
    assert [step for step, _ in values(seen, "at_end/loss")] == [9]
    _, tags = hparams_of(trainopt.folder / "runs")
    assert metadata.parse_session_end_info_plugin_data(tags["a"][metadata.SESSION_END_INFO_TAG]).status == 1


def test_with_several_ranks_rank_0_writes(trainopt):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt("launch", "-n", 2, "--", "run", "tiny.yaml", "--run-dir", "out", SINKS)
    assert result.code == 0, result
    assert len(list((trainopt.folder / "out").glob("events*"))) == 1
    seen = reader(trainopt.folder / "out")
    assert [step for step, _ in values(seen, "communication/all_reduce_mib")] == [1, 2, 3, 4, 5, 6]


def test_other_runs_have_no_event_file(tiny_run):
    assert not list(tiny_run[0].glob("events*"))
