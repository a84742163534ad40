"""Jobs on tar files that `tar` and Python's tarfile wrote: D7 is a row of the fault table."""

import io
import shutil
import subprocess
import tarfile

import pytest

from conftest import losses
from test_packed import run


def write_tar(path, digits, count=64, format=tarfile.PAX_FORMAT, folder="", change=None):
    """A shard of the first images of each class, in turn, in WebDataset's convention."""
    source = digits / "data/digits/image_folder/train"
    classes = [sorted(each.iterdir()) for each in sorted(source.iterdir())]
    with tarfile.open(path, "w", format=format) as tar:
        for number in range(count):
            label = number % 10
            image = classes[label][number // 10].read_bytes()
            for ending, content in (("png", image), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{folder}{number:05}.{ending}")
                member.size = len(content)
                if change is not None:
                    change(member)
                tar.addfile(member, io.BytesIO(content) if member.isreg() else None)


@pytest.mark.parametrize("format", (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
def test_a_job_on_tar_files_is_the_job_on_the_folder(trainopt, digits, format):
    write_tar(trainopt.folder / "a.tar", digits, format=format, folder="some/" * 25 + "é/")
    with tarfile.open(trainopt.folder / "a.tar") as tar:
        images = [member for member in tar if member.name.endswith(".png")]
        for number, member in enumerate(images):
            # Classes one after the other, as the tar file does not have them: the order is that of the sampler.
            trainopt.write(f"folder/{number % 10}/{number:05}.png", tar.extractfile(member).read())
    packed = trainopt("data", "pack", "folder", "sorted.tar", "--json")
    assert packed.code == 0 and packed.json()["images"] == 64, packed
    for dataset, path in (("tar", "sorted.tar"), ("image_folder", "folder")):
        assert run(trainopt, dataset, path, dataset).code == 0
    assert losses(trainopt.folder / "tar") == losses(trainopt.folder / "image_folder")
    result = run(trainopt, "tar", "a.tar", "first", "data.num_workers=1")
    assert result.code == 0 and (trainopt.folder / "a.tar.index").exists(), result
    assert run(trainopt, "tar", "a.tar", "again").code == 0
    assert losses(trainopt.folder / "first") == losses(trainopt.folder / "again")


def test_tar_files_of_gnu_tar_in_a_folder_that_cannot_be_written(trainopt, digits):
    write_tar(trainopt.folder / "all.tar", digits)
    subprocess.run(["tar", "xf", "all.tar"], cwd=trainopt.folder, check=True)
    for shard in range(2):
        names = [f"{number:05}.{ending}" for number in range(shard * 32, shard * 32 + 32) for ending in ("cls", "png")]
        (trainopt.folder / "shards").mkdir(exist_ok=True)
        subprocess.run(["tar", "cf", f"shards/{shard}.tar", *names], cwd=trainopt.folder, check=True)
    (trainopt.folder / "shards/0.tar.index").mkdir()  # an index cannot be written there
    shown = trainopt("data", "show", "shards", "--json")
    assert shown.code == 0, shown
    assert [each["images"] for each in shown.json()["classes"]] == [7, 7, 7, 7] + 6 * [6]
    assert run(trainopt, "tar", "shards", "shards-run").code == 0
    assert run(trainopt, "tar", "all.tar", "all-run").code == 0
    assert losses(trainopt.folder / "shards-run") == losses(trainopt.folder / "all-run")


# D7
def test_tar_files_that_are_refused(trainopt, digits):
    path = trainopt.folder / "bad.tar"

    def refused(*says):
        result = run(trainopt, "tar", "bad.tar", "out", "data.batch_size=8")
        assert result.code == 3 and all(text in result.err for text in ("bad.tar", *says)), result

    write_tar(path, digits)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    refused("was cut")
    path.write_bytes(content[:100] + b"x" + content[101:])
    refused("damaged tar header", "byte 0")
    path.write_bytes(b"")
    refused("the file is empty")

    def link(member):
        if member.name == "00007.cls":
            member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc/passwd", 0

    write_tar(path, digits, change=link)
    refused("a link in a tar file", "00007.cls")
    write_tar(path, digits, folder="../")
    refused("`..`", "../00000.png")
    with tarfile.open(path, "w") as tar:
        for name, data in (("a.png", b"no picture"), ("a.cls", b"0"), ("b.txt", b"")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    refused("no image", "b.txt")
    with tarfile.open(path, "w") as tar:
        for number in range(8):
            for name, data in ((f"{number}.png", b"no picture"), (f"{number}.cls", b"0")):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    refused("member", ".png at byte", "neither JPEG nor PNG")
    shutil.rmtree(trainopt.folder / "out", ignore_errors=True)
    trainopt.write("bad.tar.index", "no index")
    refused("neither JPEG nor PNG")
