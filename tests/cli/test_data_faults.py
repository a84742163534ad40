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


def write_images(trainopt, count, side=8, folder="images"):
    """Writes the images, half in each of two classes; returns their names."""
    names = []
    for number in range(count):
        names.append(trainopt.write(f"{folder}/{number % 2}/{number:04}.png", ""))
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


def test_no_image_can_be_used(trainopt):
    """The message does not blame a limit that was not reached."""
    names = write_images(trainopt, 2)
    for name in names:
        trainopt.write(name, b"no picture")
    trainopt.write("bad.yaml", FOLDER)
    result = fails(
        trainopt,
        "data.on_bad_sample=substitute",
        "data.max_bad_samples=10",
        "data.batch_size=1",
        "data.transforms=[{resize: [8, 8]}]",
        says=[f"none of the 2 samples can be used; the first: {names[0]}: ", f"; {names[1]}: "],
    )
    assert "max_bad_samples" not in result.err, result


def lines_of(trainopt, out, name):
    return [json.loads(line) for line in (trainopt.folder / out / name).read_text().splitlines()]


def test_an_evaluation_leaves_out_bad_images(trainopt):
    """Its result is the one over the readable images, and training counts its own bad images apart."""
    trained, held = write_images(trainopt, 8), write_images(trainopt, 16, folder="held")
    write_images(trainopt, 16, folder="fewer")
    bad = [held[1], held[6]]
    for name in bad:
        trainopt.write(name, b"no picture")
        (trainopt.folder / name.replace("held", "fewer")).unlink()
    trainopt.write(trained[3], b"no picture")
    trainopt.write("bad.yaml", FOLDER)
    keys = ["checkpoint.every_n_steps=3", "data.on_bad_sample=substitute"]

    def run(out, *more, folder="held", allowed=2):
        where = f"evaluation={{path: {folder}, every_n_steps: 3, batch_size: 4}}"
        return trainopt("run", "bad.yaml", "--run-dir", out, *keys, where, f"data.max_bad_samples={allowed}", *more)

    whole, fewer = run("whole"), run("fewer-out", folder="fewer")
    assert (whole.code, fewer.code) == (0, 0), (whole, fewer)
    results = [lines_of(trainopt, out, "evaluations.jsonl") for out in ("whole", "fewer-out")]
    for ours, wanted in zip(*results, strict=True):
        assert ours["samples"] == wanted["samples"] == 14
        assert ours["left_out_samples"] == 2 and "left_out_samples" not in wanted
        assert abs(ours["loss"] - wanted["loss"]) <= 1e-5 * wanted["loss"] and ours["top1_pct"] == wanted["top1_pct"]
    for name in bad:
        assert whole.err.count(f"the evaluation leaves out {name}") == 1, whole
    assert whole.err.count("takes the place of") == 1, whole

    listed = sorted([("evaluation", bad[0]), ("evaluation", bad[1]), ("training", trained[3])])
    more = run("whole", "train.max_steps=9", "checkpoint.resume=auto")
    assert more.code == 0 and "leaves out" not in more.err, more  # known from the checkpoint
    assert len(lines_of(trainopt, "whole", "evaluations.jsonl")) == 3
    assert sorted((line["set"], line["name"]) for line in lines_of(trainopt, "whole", "bad_samples.jsonl")) == listed
    other = write_images(trainopt, 16, folder="other")[1]
    trainopt.write(other, b"no picture")
    more = run("whole", "train.max_steps=12", "checkpoint.resume=auto", folder="other")
    assert more.code == 0, more  # those of the old folder do not count in the new one
    assert more.err.count(f"the evaluation leaves out {other}") == 1, more
    names = [line["name"] for line in lines_of(trainopt, "whole", "bad_samples.jsonl")]
    assert sorted(names) == sorted([*bad, trained[3], other])
    few = run("few", allowed=1)
    assert few.code == 3 and "data.max_bad_samples allows (1); 2 so far" in few.err, few
    assert sorted((line["set"], line["name"]) for line in lines_of(trainopt, "few", "bad_samples.jsonl")) == listed


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


# ---- what is left out, and what is trained on ----


def test_what_is_left_out_is_said_once_in_plan_run_and_show(trainopt):
    trainopt.write("bad.yaml", FOLDER)
    write_images(trainopt, 8)
    for name in ("0/a.webp", "0/b.webp", "1/c.TIFF", ".cache/x.png"):
        trainopt.write(f"images/{name}", "x")
    line = "data.path leaves out 2 .webp files (0/"
    hidden = "1 hidden folder (.cache: torchvision counts it as a class)"
    for command in (("plan", "bad.yaml"), ("run", "bad.yaml", "train.max_steps=1")):
        result = trainopt(*command)
        assert result.code == 0
        said = [each for each in (result.out + result.err).splitlines() if "leaves out" in each]
        assert len(said) == 1 and line in said[0] and hidden in said[0] and "1 .tiff file (1/c.TIFF)" in said[0], said
    assert "left out: 2 .webp files (0/" in trainopt("data", "show", "images").out
    shown = trainopt("data", "show", "images", "--json").json()
    assert shown["images"] == 8
    assert [(each["kind"], each["count"]) for each in shown["left_out"]][0] == (".webp file", 2)


def test_evaluation_on_training_data_is_said_wherever_its_results_are(trainopt):
    trainopt.write("bad.yaml", FOLDER)
    write_images(trainopt, 8)
    write_images(trainopt, 2, folder="held")
    os.symlink(trainopt.folder / "images/0/0002.png", trainopt.folder / "held/0/0002.png")
    what = "1 of its 3 files are training files"
    job = ("bad.yaml", "evaluation.path=held", "train.max_steps=2")
    assert f"WARNING: the evaluation data is trained on: {what}" in trainopt("plan", *job).out
    result = trainopt("run", *job, "evaluation.every_n_steps=1", "--run-dir", "out")
    text = result.out + result.err
    assert text.count(f"(this data is trained on: {what})") == 2
    assert text.count("WARNING: the evaluation data is trained on") == 1
    evaluations = (trainopt.folder / "out/evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["trained_on"] for line in evaluations] == [what, what]
    assert json.loads((trainopt.folder / "out/summary.json").read_text())["evaluation"]["trained_on"] == what
    assert f"(this data is trained on: {what})" in trainopt("run", *job, "--run-dir", "quiet", "--quiet").out
    assert trainopt("report", "out", "--out", "page.html").code == 0
    page = (trainopt.folder / "page.html").read_text()
    assert "on data that is trained on" in page and what in page
    (trainopt.folder / "held/0/0002.png").unlink()
    clean = trainopt("run", *job, "--run-dir", "clean")
    assert "trained on" not in clean.out + clean.err
    assert "trained_on" not in json.loads((trainopt.folder / "clean/summary.json").read_text())["evaluation"]


def test_check_looks_at_paths(trainopt):
    trainopt.write("bad.yaml", FOLDER)
    result = trainopt("check", "bad.yaml")
    assert result.code == 3 and "data.path: the data set does not exist" in result.err and "images" in result.err
    write_images(trainopt, 4)
    assert trainopt("check", "bad.yaml").code == 0
    result = trainopt("check", "bad.yaml", "evaluation.path=held")
    assert result.code == 3 and result.err.startswith("trainopt: evaluation.path: ")
    result = trainopt("check", "bad.yaml", "data.dataset=tar", "data.path=*.tar")
    assert result.code == 3 and "data.path: nothing fits the pattern: *.tar" in result.err
    trainopt.write("images/0.tar", "")
    assert trainopt("check", "bad.yaml", "data.dataset=tar", "data.path=images/*.tar").code == 0
    for paths, says in (
        ("[s3://b/x.tar, y.tar]", "data.path: the data set does not exist"),
        ("s3://b/*/x.tar", "data.path: in object storage a pattern must be in a path's last part"),
        ("s3:///x", "data.path: a remote path must be s3://bucket/key"),
    ):
        result = trainopt("check", "bad.yaml", "data.dataset=tar", f"data.path={paths}")
        assert result.code == 3 and says in result.err, result
    os.symlink("loop", trainopt.folder / "loop")
    for dataset in ("image_folder", "tar", "cifar10"):
        for command in ("check", "plan"):
            result = trainopt(command, "bad.yaml", f"data.dataset={dataset}", "data.path=loop")
            assert result.code == 3 and "a link leads to itself: loop" in result.err, result
    result = trainopt("check", "bad.yaml", 'data.path=""')
    assert result.code == 2 and "data.path: must not be empty" in result.err
    result = trainopt("check", "bad.yaml", "data.path=[images, images]")
    assert result.code == 2 and "image_folder reads one file or folder, and 2 are named" in result.err


def test_max_pixels(trainopt):
    trainopt.write("bad.yaml", FOLDER)
    write_images(trainopt, 4, side=20)
    assert trainopt("run", "bad.yaml", "data.max_pixels=400", "train.max_steps=1").code == 0
    fails(trainopt, "data.max_pixels=399", says=["images/", "20x20 pixels", "data.max_pixels", ": 399"])
    result = trainopt("check", "bad.yaml", "data.dataset=fake_cifar10", "data.path=null", "data.max_pixels=9")
    assert result.code == 2 and "data.max_pixels" in result.err and "remove this key" in result.err


@pytest.mark.parametrize("keys", [[], ["data.cache=memory"]])
def test_very_large_images_are_warned_about_once(keys, trainopt):
    trainopt.write("bad.yaml", FOLDER)
    for name in ("images/0/1.png", "images/0/2.png", "held/0/3.png"):
        trainopt.write(name, "")
        Image.new("1", (9460, 9460)).save(trainopt.folder / name)  # more than 89,478,485 pixels
    job = ("bad.yaml", "data.batch_size=1", "evaluation.path=held", "train.max_steps=2", *keys)
    result = trainopt("run", *job)
    assert result.code == 0, result
    said = [line for line in (result.out + result.err).splitlines() if "a very large image" in line]
    assert len(said) == 1 and "9460x9460 pixels" in said[0], said


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_whether_a_large_image_fits_does_not_depend_on_the_workers(workers, trainopt):
    trainopt.write("bad.yaml", FOLDER)
    write_images(trainopt, 8)
    Image.new("RGB", (4805, 4805)).save(trainopt.folder / "images/1/0005.png")  # 66 MiB
    keys = ("data.on_bad_sample=substitute", "data.max_bad_samples=8", f"data.num_workers={workers}", "train.epochs=2")
    for limit, is_bad in (("70MiB", False), ("60MiB", True)):
        result = trainopt("run", "bad.yaml", *keys, f"data.memory_limit={limit}", "train.max_steps=null")
        assert result.code == 0, result
        said = [line for line in (result.out + result.err).splitlines() if "takes the place of" in line]
        assert len(said) == is_bad and all("0005.png: decoding it takes 66.1 MiB" in line for line in said), said


def test_hints_of_the_plan(trainopt):
    trainopt.write("bad.yaml", FOLDER)
    write_images(trainopt, 4)
    keys = ["data.num_workers=999", "data.transforms=[{resize: 8}]", "model.num_classes=null"]
    plan = trainopt("plan", "bad.yaml", *keys)
    assert "data.num_workers is 999 and there " in plan.out
    assert "data.transforms has no normalize" in plan.out
    assert "model.num_classes is 10, the default, and the data has 2 classes" in plan.out
    assert "; 2 classes: 0, 1" in plan.out
    twice = trainopt("check", "bad.yaml", "data.path=held", "data.path=images")
    assert twice.code == 0 and "note: data.path is given 2 times on the command line, and the last counts" in twice.out
    plan = trainopt("plan", "bad.yaml")
    assert "given" not in plan.out
    assert "normalize, so" not in plan.out and "num_workers is" not in plan.out and "num_classes" not in plan.out
