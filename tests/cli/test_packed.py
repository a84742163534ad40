"""Packed data: packing, training from it, resuming, showing, and what is refused. D9 is a row of the fault table."""

import json
import shutil
import struct

import pytest

from conftest import losses, wait_until

from PIL import Image

RECIPE = """\
name: digits
model: {name: mlp, num_classes: 10, hidden: [16]}
data: {dataset: image_folder, path: PATH, batch_size: 32, transforms: [{random_crop: {size: 28, padding: 2}}]}
train: {max_steps: 12}
optimizer: {name: sgd, lr: 0.1}
logging: {sinks: [jsonl], report: false}
"""


@pytest.fixture
def packed(trainopt, digits):
    """Packs the digits with these options; returns what `--json` printed."""

    def pack(*arguments, source="train"):
        result = trainopt("data", "pack", digits / "data/digits/image_folder" / source, *arguments, "--json")
        assert result.code == 0, result
        return result.json()

    return pack


def run(trainopt, dataset, path, out, *arguments):
    recipe = RECIPE.replace("image_folder", dataset).replace("PATH", str(path))
    trainopt.write("job.yaml", recipe)
    return trainopt("run", "job.yaml", "--run-dir", out, *arguments)


def test_a_job_on_packed_files_is_the_job_on_the_folder(trainopt, digits, packed):
    folder = digits / "data/digits/image_folder/train"
    assert packed("files.pack") == {
        "schema_version": 1,
        "images": 1442,
        "classes": 10,
        "size": None,
        "bytes": (trainopt.folder / "files.pack").stat().st_size,
        "files": 1,
        "files_found": 0,
        "left_out": [],
    }
    assert packed("shards", "--resize", 32, "--shards", 3)["size"] == [32, 32]
    for dataset, path in (("image_folder", folder), ("packed", "files.pack"), ("packed", "shards")):
        result = run(trainopt, dataset, path, f"out-{dataset}-{path != folder and path}", "data.num_workers=2")
        assert result.code == 0, result
    of_folder, of_files, of_shards = (losses(path) for path in sorted(trainopt.folder.glob("out-*")))
    assert len(of_folder) == 12 and of_folder == of_files == of_shards


def test_a_packing_that_was_killed_goes_on(trainopt, digits, packed):
    source = digits / "data/digits/image_folder/train"
    process = trainopt.start("data", "pack", source, "out", "--shards", 40)
    some = lambda: len(list((trainopt.folder / "out").glob("*.pack"))) >= 3
    wait_until(lambda: some() or process.poll() is not None, process)  # on a fast machine it may be done by now
    process.kill()
    process.wait()
    again = packed("out", "--shards", 40)
    assert again["images"] == 1442 and again["files_found"] >= 3
    packed("whole", "--shards", 40)
    names = sorted(path.name for path in (trainopt.folder / "whole").iterdir())
    assert len(names) == 40 and names[1] == "00001-of-00040.pack"
    for name in names:
        assert (trainopt.folder / "out" / name).read_bytes() == (trainopt.folder / "whole" / name).read_bytes()


def test_a_resumed_run_needs_the_same_packed_data(trainopt, packed):
    packed("data.pack")
    assert run(trainopt, "packed", "data.pack", "whole").code == 0
    assert run(trainopt, "packed", "data.pack", "half", "train.max_steps=5").code == 0
    resumed = trainopt("run", "job.yaml", "--run-dir", "half", "checkpoint.resume=auto")
    assert resumed.code == 0, resumed
    assert losses(trainopt.folder / "half") == losses(trainopt.folder / "whole")
    (trainopt.folder / "data.pack").unlink()
    packed("data.pack", source="test")
    other = trainopt("run", "job.yaml", "--run-dir", "half", "checkpoint.resume=auto", "train.max_steps=14")
    assert other.code == 3 and "samples 1442" in other.err, other


# D9
def test_a_damaged_record_is_named_or_substituted(trainopt, packed):
    packed("data.pack")
    path = trainopt.folder / "data.pack"
    content = bytearray(path.read_bytes())
    content[100] ^= 255
    path.write_bytes(content)
    epoch = ("train.max_steps=45", "train.epochs=null")
    result = run(trainopt, "packed", "data.pack", "out", *epoch)
    assert result.code == 3 and "data.pack, image 0: its" in result.err and "at byte 64 changed" in result.err, result
    substitute = ("data.on_bad_sample=substitute", "data.max_bad_samples=1")
    result = run(trainopt, "packed", "data.pack", "other", *epoch, *substitute)
    assert result.code == 0, result
    bad = [json.loads(line) for line in (trainopt.folder / "other/bad_samples.jsonl").read_text().splitlines()]
    assert len(bad) == 1 and "image 0" in json.dumps(bad[0]), bad
    path.write_bytes(content[:-5])
    trainopt.refused("run", "job.yaml", "--run-dir", "cut", code=3, says=["data.pack", "was cut"])


def test_show(trainopt, digits, packed):
    packed("data.pack", "--resize", 16)
    shown = trainopt("data", "show", "data.pack", "--sheet", "sheet.png", "--rows", 2)
    assert shown.code == 0, shown
    for text in ("packed: 1,442 images of 10 classes, 16x16 pixels", "data.pack, image 1: class 0, 16x16", "█"):
        assert text in shown.out, (text, shown)
    sheet = Image.open(trainopt.folder / "sheet.png")
    assert sheet.size == (12 * 96, 8 * 96) and len(sheet.getcolors(1 << 16)) > 10
    of_folder = trainopt("data", "show", digits / "data/digits/image_folder/train", "--json", "--rows", 1).json()
    assert of_folder["kind"] == "image_folder" and of_folder["images"] == 1442 and of_folder["size"] is None
    assert sum(each["images"] for each in of_folder["classes"]) == 1442 and of_folder["classes"][3]["name"] == "3"
    assert of_folder["first"][0]["size"] == [32, 32] and of_folder["first"][0]["name"].endswith(".png")
    of_cifar = trainopt("data", "show", digits / "data/digits/cifar10", "--json").json()
    assert of_cifar["kind"] == "cifar10" and of_cifar["size"] == [32, 32]


def test_show_tokens(trainopt):
    trainopt.write("text.bin", struct.pack("<6H", 5, 6, 7, 50256, 8, 9))
    trainopt.write("text.ends", struct.pack("<2Q", 4, 6))
    shown = trainopt("data", "show", "text.bin", "--rows", 3)
    assert shown.out == "text.bin: 6 tokens of 16 bits, the largest 50,256, 2 documents\n  5 6 7 ...\n", shown
    trainopt.write("folder/a.bin", struct.pack("<256i", 20240801, 7, 2, *[0] * 253) + struct.pack("<2I", 70000, 1))
    (file,) = trainopt("data", "show", "folder", "--json").json()["files"]
    assert (file["tokens"], file["bits"], file["largest"], file["documents"]) == (2, 32, 70000, None)
    trainopt.refused("data", "show", "text.bin", "--sheet", "x.png", says=["only images"])
    trainopt.refused("data", "show", "none.bin", code=3, says=["none.bin"])
    trainopt.refused("data", "show", "text.bin", "--label", "y", says=["only Parquet files have columns", "text.bin"])


def test_show_raw_tokens_of_32_bits(trainopt, packed):
    trainopt.write("wide.bin", struct.pack("<3I", 5, 70000, 6))
    shown = trainopt("data", "show", "wide.bin", "--token-bits", 32)
    assert shown.out == "wide.bin: 3 tokens of 32 bits, the largest 70,000\n  5 70000 6 ...\n", shown
    trainopt.write("header.bin", struct.pack("<256i", 20240520, 1, 2, *[0] * 253) + struct.pack("<2H", 5, 6))
    trainopt.refused("data", "show", "header.bin", "--token-bits", 32, code=3, says=["header.bin", "16 bits"])
    trainopt.refused("data", "show", "wide.bin", "--token-bits", 17, says=["--token-bits"])
    packed("data.pack")
    trainopt.refused("data", "show", "data.pack", "--token-bits", 32, says=["only token files", "data.pack"])
    trainopt.refused("data", "show", "data.pack", "--image", "x", says=["only Parquet files have columns", "data.pack"])


def test_what_is_refused(trainopt, digits, packed):
    source = digits / "data/digits/image_folder/test"
    packed("data.pack", source="test")
    refused = trainopt.refused
    refused("data", "pack", source, "out", says=["must end in .pack, .tar or .parquet: out"])
    refused("data", "pack", source, "out.pack", "--shards", 2, says=["folder", "out.pack"])
    refused("data", "pack", source, "out.pack", "--tar", says=["contradict", "out.pack"])
    refused("data", "pack", source, "out", "--shards", 1000, says=["more files", "1000 and 355"])
    refused("data", "pack", source, "out.pack", "--resize", 0, says=["--resize"])
    refused("data", "pack", "nothing", "out.pack", code=3, says=["does not exist", "nothing"])
    refused("data", "pack", source, "nowhere/out.pack", code=8, says=["nowhere/out.pack"])
    trainopt.write("bad/0/a.png", b"no picture")
    trainopt.write("bad/0/b.png", b"")
    for resize in ([], ["--resize", 8]):
        refused("data", "pack", "bad", "out.pack", *resize, code=3, says=["bad/0/a.png", "neither JPEG nor PNG"])
    assert not (trainopt.folder / "out.pack").exists()
    trainopt.write("out.pack", "mine")
    refused("data", "pack", source, "out.pack", code=3, says=["not of this packing", "out.pack"])
    assert (trainopt.folder / "out.pack").read_text() == "mine"
    refused("data", "show", "data.pack", "--sheet", "sheet.jpg", says=[".png"])
    refused("data", "show", "out.pack", code=3, says=["out.pack"])

    def recipe_refused(*changes, says, code=2):
        recipe = RECIPE.replace("image_folder", "packed").replace("PATH", "data.pack")
        trainopt.write("job.yaml", recipe)
        return refused("run", "job.yaml", "--run-dir", "run", *changes, code=code, says=says)

    recipe_refused("data.path=null", says=["packed needs a file or a folder"])
    recipe_refused("data.cache=memory", says=["data.cache", "system's cache"])
    recipe_refused("evaluation.path=data.pack", "data.path=job.yaml", says=["job.yaml"], code=3)
    shutil.copytree(source, trainopt.folder / "fewer")
    shutil.rmtree(trainopt.folder / "fewer/7")
    assert trainopt("data", "pack", "fewer", "fewer.pack").code == 0
    recipe_refused("evaluation.path=fewer.pack", says=["classes must be those of the training data"], code=3)
