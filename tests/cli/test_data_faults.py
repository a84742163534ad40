"""Data that is missing, damaged or changes during a run: exit code 3 and the name of the file. Comments such as D1 name
the row of the fault table."""

import json
import os
import time

import pytest

from conftest import TINY

from PIL import Image

FOLDER = TINY.replace(
    "dataset: fake_cifar10, size: 64, batch_size: 8", "dataset: image_folder, path: images, batch_size: 4"
)
RECORD = 3073


def write_images(trainopt, count, side=8):
    """Writes the images, half in each of two classes; returns their names."""
    names = []
    for number in range(count):
        names.append(trainopt.write(f"images/{number % 2}/{number:04}.png", ""))
        Image.new("RGB", (side, side), (number % 256, 0, 0)).save(trainopt.folder / names[-1])
    return names


def fails(trainopt, *arguments, says):
    """The run fails with exit code 3, which is also in its summary if there is one."""
    result = trainopt("run", "bad.yaml", "--run-dir", "out", *arguments)
    assert result.code == 3, result
    for fragment in says:
        assert fragment in result.err, (fragment, result)
    summary = trainopt.folder / "out/summary.json"
    if summary.exists():
        assert json.loads(summary.read_text())["exit_code"] == 3
    return result


# D1
def test_folders_without_images(trainopt):
    trainopt.write("bad.yaml", FOLDER)
    (trainopt.folder / "images").mkdir()
    fails(trainopt, says=["images", "a folder for each class"])
    write_images(trainopt, 4)
    (trainopt.folder / "images/2").mkdir()
    fails(trainopt, says=["images/2", "no image"])


# D2
@pytest.mark.parametrize(
    "name, content, reason",
    [
        ("empty.jpg", b"", "empty"),
        ("text.jpg", b"no picture", "neither JPEG nor PNG"),
        ("ten.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF", "JPEG: "),
        ("cut.png", None, "PNG: "),
        ("pipe.png", "pipe", "not a regular file"),
    ],
)
def test_bad_images(trainopt, name, content, reason):
    names = write_images(trainopt, 8)
    if content is None:
        content = (trainopt.folder / names[0]).read_bytes()[:50]
    if content == "pipe":
        os.mkfifo(trainopt.folder / "images/0" / name)  # nobody ever writes to it
    else:
        trainopt.write(f"images/0/{name}", content)
    trainopt.write("bad.yaml", FOLDER)
    fails(trainopt, "data.shuffle=false", says=[f"images/0/{name}", reason])
    result = trainopt(
        "run", "bad.yaml", "--run-dir", "go-on", "data.on_bad_sample=substitute", "data.max_bad_samples=1"
    )
    assert result.code == 0 and f"another sample takes the place of images/0/{name}" in result.err, result


# D5
def test_more_bad_images_than_allowed(trainopt):
    names = write_images(trainopt, 40)
    for name in names[:15]:
        trainopt.write(name, b"no picture")
    trainopt.write("bad.yaml", FOLDER)
    result = fails(
        trainopt,
        "data.on_bad_sample=substitute",
        "data.max_bad_samples=12",
        "train.max_steps=100",
        says=["max_bad_samples allows (12); 13 so far"],
    )
    assert sum(name in result.err.splitlines()[-1] for name in names[:15]) == 10, result


# D6
def test_cifar10_files(trainopt):
    trainopt.write("bad.yaml", TINY.replace("dataset: fake_cifar10, size: 64", "dataset: cifar10, path: cifar"))
    good = bytes(RECORD)
    trainopt.write("cifar/data_batch_1.bin", good * 9 + b"\x0a" + good[1:])
    fails(trainopt, says=["data_batch_1.bin", "10 in record 9, at byte 27657"])
    trainopt.write("cifar/data_batch_1.bin", good * 9 + b"\0" * 100)
    fails(trainopt, says=["data_batch_1.bin", "9 records and 100 bytes"])


# D12
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("change", ["deleted", "shrunk", "replaced"])
def test_files_that_change_in_mid_epoch(trainopt, workers, change):
    names = write_images(trainopt, 600)
    trainopt.write("bad.yaml", FOLDER)
    process = trainopt.start(
        "run", "bad.yaml", "--run-dir", "out", "train.max_steps=1000000", f"data.num_workers={workers}"
    )
    metrics = trainopt.folder / "out/metrics.jsonl"
    deadline = time.monotonic() + 180
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    for name in names:
        path = trainopt.folder / name
        if change == "deleted":
            path.unlink()
        elif change == "shrunk":
            os.truncate(path, 20)
        else:
            path.unlink()
            path.mkdir()
    out, err = process.communicate(timeout=180)
    assert process.returncode == 3 and "cannot use the sample images/" in err, (process.returncode, out, err)
    # A file may be read before the folder that replaces it exists, and it may shrink while it is read.
    reasons = {
        "deleted": ["No such file"],
        "shrunk": ["PNG: ", "became shorter while it was read"],
        "replaced": ["Is a directory", "No such file"],
    }[change]
    assert any(reason in err for reason in reasons), err
    assert json.loads((trainopt.folder / "out/summary.json").read_text())["exit_code"] == 3


# D15
def test_fewer_samples_than_a_step(trainopt):
    write_images(trainopt, 6)
    trainopt.write("bad.yaml", FOLDER)
    numbers = "6 samples, 8 a step (ranks 1 × accumulation 2 × batch_size 4)"
    fails(trainopt, "train.gradient_accumulation_steps=2", says=[numbers])
    trainopt.write("short.yaml", TINY)
    trainopt.refused("run", "short.yaml", "data.size=6", says=["6 samples, 8 a step"])
    assert (
        trainopt(
            "run", "bad.yaml", "--run-dir", "go-on", "train.gradient_accumulation_steps=2", "data.drop_last=false"
        ).code
        == 0
    )
