"""Valid and invalid run directories, their lock, and storage failures; pickles are never read."""

import os
import resource
import shutil
import signal
import subprocess

import pytest

from conftest import TINY, checkpoint, records, saved_steps, summary, wait_until, wait_until_asleep

SAVES = ["checkpoint.every_n_steps=2", "checkpoint.background=false"]


def test_one_run_a_directory(trainopt):
    trainopt.write("tiny.yaml", TINY)
    process = trainopt.start("run", "tiny.yaml", *SAVES, "--inject", "hang@3+", "--run-dir", "out")
    wait_until(lambda: checkpoint(trainopt.folder / "out", 2).exists(), process)
    wait_until_asleep(process)  # and it writes nothing more
    before = {
        path: path.read_bytes()
        for path in (trainopt.folder / "out").rglob("*")
        if path.is_file() and path.name != "telemetry.jsonl"
    }
    for path in ("out", "out/../out/"):
        trainopt.refused(
            "run", "tiny.yaml", "--run-dir", path, "checkpoint.resume=auto", says=[f"process {process.pid} "]
        )
    trainopt.refused("run", "tiny.yaml", "--run-dir", "out", says=["out"])
    assert {path: path.read_bytes() for path in before} == before and process.poll() is None
    process.kill()
    process.communicate()
    result = trainopt(
        "run", "tiny.yaml", "--run-dir", "out", "checkpoint.resume=auto", "--quiet"
    )  # the lock is free now
    assert result.code == 0 and summary(trainopt.folder / "out")["resumed_from"] == 2, result


def test_a_folder_that_cannot_be_created(trainopt):
    trainopt.write("tiny.yaml", TINY)
    trainopt.refused("run", "tiny.yaml", "--run-dir", "tiny.yaml/run", code=8, says=["tiny.yaml/run"])


@pytest.mark.parametrize("resume", ["none", "auto"])
def test_a_file_is_no_run_directory(trainopt, resume):
    trainopt.write("tiny.yaml", TINY)
    trainopt.write("file", "mine")
    result = trainopt.refused(
        "run", "tiny.yaml", "--run-dir", "file", f"checkpoint.resume={resume}", code=8, says=["file"]
    )
    assert "not empty" not in result.err, result


def went_on(trainopt, folder, step, steps=6, *keys):
    """The run resumes after the problem has been removed."""
    assert trainopt("checkpoint", "verify", folder).code == 0
    result = trainopt(
        "run", "tiny.yaml", "--run-dir", folder, "checkpoint.resume=auto", f"train.max_steps={steps}", "--quiet", *keys
    )
    assert result.code == 0 and summary(trainopt.folder / folder)["resumed_from"] == step, result
    assert [row["step"] for row in records(trainopt.folder / folder)] == list(range(1, steps + 1))


def test_a_file_size_limit(trainopt):
    """As with a quota: a checkpoint that does not fit ends the run but leaves earlier checkpoints intact."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    trainopt.write("tiny.yaml", TINY)
    large = "model.hidden=[200]"  # 160 kB of weights and as much momentum
    assert trainopt("run", "tiny.yaml", "--run-dir", "out", large, "train.max_steps=3", "--quiet").code == 0
    for background in ("false", "true"):
        result = trainopt(
            "run",
            "tiny.yaml",
            "--run-dir",
            "out",
            large,
            "checkpoint.resume=auto",
            f"checkpoint.background={background}",
            "--quiet",
            before=limit,
        )
        got = summary(trainopt.folder / "out")
        assert (result.code, got["status"], got["exit_code"]) == (
            8,
            "failed",
            8,
        ) and "rank-0000.safetensors" in result.err, (got, result)
        assert saved_steps(trainopt.folder / "out") == [3] and not list(
            (trainopt.folder / "out/checkpoints").glob(".step-*")
        )
    went_on(trainopt, "out", 3, 6, large)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True).returncode
        != 0
    ):
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("background", ["false", "true"])
def test_a_full_disk(trainopt, small_disk, background):
    trainopt.write("tiny.yaml", TINY)
    large = "model.hidden=[400]"  # 330 kB of weights and as much momentum
    result = trainopt(
        "run",
        "tiny.yaml",
        "--run-dir",
        "disk/out",
        large,
        "checkpoint.every_n_steps=1",
        "checkpoint.keep_last=100",
        f"checkpoint.background={background}",
        "train.max_steps=10",
        "--quiet",
    )
    assert result.code == 8 and "no room" in result.err and "disk/out/checkpoints" in result.err, result
    assert summary(small_disk / "out")["exit_code"] == 8
    saved = saved_steps(small_disk / "out")
    assert saved == list(range(1, len(saved) + 1)) and trainopt("checkpoint", "verify", "disk/out").code == 0
    for step in saved[:-1]:
        shutil.rmtree(checkpoint(small_disk / "out", step))
    went_on(trainopt, "disk/out", saved[-1], 6, large, "checkpoint.keep_last=1")


def test_a_disk_that_becomes_read_only(trainopt, small_disk):
    trainopt.write("tiny.yaml", TINY)
    assert trainopt("run", "tiny.yaml", "--run-dir", "disk/out", "train.max_steps=2", "--quiet").code == 0
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    trainopt.refused(
        "run", "tiny.yaml", "--run-dir", "disk/out", "checkpoint.resume=auto", code=8, says=["disk/out", "Read-only"]
    )
    trainopt.refused("run", "tiny.yaml", "--run-dir", "disk/new", code=8, says=["disk/new", "Read-only"])
    assert trainopt("checkpoint", "verify", "disk/out").code == 0
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    went_on(trainopt, "disk/out", 2)


class Payload:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.fixture(scope="module")
def pickles(tmp_path_factory):
    """Files from torch.save in its new and old format, with a payload that creates a file: (files, that file)."""
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("pickles")
    marker = folder / "payload-was-run"
    for name, new in [("new.pt", True), ("old.pt", False), ("new", True), ("old.safetensors", False)]:
        torch.save(
            {"layers.0.weight": torch.zeros(2), "payload": Payload(marker)},
            folder / name,
            _use_new_zipfile_serialization=new,
        )
    torch.load(folder / "old.pt", weights_only=False)
    assert marker.exists(), "the payload works"
    marker.unlink()
    return [path for path in folder.iterdir()], marker


def test_a_pickle_is_never_read(trainopt, pickles):
    files, marker = pickles
    trainopt.write("tiny.yaml", TINY)
    for number, file in enumerate(files):
        trainopt.refused("checkpoint", "show", file, code=4, says=[file.name])
        trainopt.refused(
            "run", "tiny.yaml", "--run-dir", f"resume{number}", f"checkpoint.resume={file}", code=4, says=[file.name]
        )
        result = trainopt("run", "tiny.yaml", "--run-dir", f"weights{number}", f"model.weights={file}", "--quiet")
        assert result.code == 4 and file.name in result.err and len(result.err.splitlines()) == 1, result
        assert not marker.exists(), file
    assert trainopt("checkpoint", "verify", *files).code == 4
    assert trainopt("run", "tiny.yaml", "--run-dir", "out", "--quiet").code == 0
    rank = checkpoint(trainopt.folder / "out", 6) / "rank-0000.safetensors"
    pickle = next(file for file in files if file.name == "new.pt").read_bytes()
    size = rank.stat().st_size
    rank.write_bytes(pickle[:size] + bytes(max(0, size - len(pickle))))
    trainopt.refused("checkpoint", "show", "out/checkpoints/latest", code=4, says=["rank-0000.safetensors"])
    trainopt.refused(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        "checkpoint.resume=out/checkpoints/latest",
        code=4,
        says=["rank-0000.safetensors"],
    )
    assert not marker.exists()


def test_paths_that_are_not_checkpoints(trainopt):
    trainopt.write("tiny.yaml", TINY)
    trainopt.write("text", "hello")
    (trainopt.folder / "folder").mkdir()
    (trainopt.folder / "loop").symlink_to("loop")
    os.mkfifo(trainopt.folder / "pipe")
    trainopt.write("no.safetensors", "hello")
    names = ["nowhere", "text", "folder", "pipe", "/dev/zero"]
    for name in names:
        trainopt.refused("run", "tiny.yaml", "--run-dir", "out", f"checkpoint.resume={name}", code=4, says=[name])
    for name in ("loop", "no.safetensors", "/dev/zero"):
        trainopt.refused("checkpoint", "show", name, code=4, says=[name])
    result = trainopt("checkpoint", "verify", *names)
    assert (
        result.code == 4
        and result.out.splitlines() == [f"{name}: invalid" for name in names]
        and len(result.err.splitlines()) == 5
    ), result


@pytest.mark.parametrize(
    "words",
    [["checkpoint", "show", "pipe.safetensors"], ["run", "tiny.yaml", "model.weights=pipe.safetensors", "--quiet"]],
)
def test_a_pipe_in_place_of_weights(trainopt, words):
    trainopt.write("tiny.yaml", TINY)
    os.mkfifo(trainopt.folder / "pipe.safetensors")
    result = trainopt(*words, timeout=60)
    assert result.code == 4 and "pipe.safetensors" in result.err, result


def test_verify_of_a_link_to_itself(trainopt):
    (trainopt.folder / "loop").symlink_to("loop")
    result = trainopt("checkpoint", "verify", "loop")
    assert result.code == 4 and result.out == "loop: invalid\n", result
