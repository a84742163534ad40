"""Data sets as their repositories and archives hold them, rebuilt small: each is read, or one sentence says what to
type. Object storage is in test_storage.py."""

import io
import struct
import tarfile

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

IMAGES = """\
name: layout
device: cpu
model: {name: mlp, num_classes: auto, hidden: [4]}
data: {dataset: DATASET, path: PATH, batch_size: 1, transforms: [{resize: [4, 4]}, {normalize: {mean: 0.5, std: 0.5}}]}
train: {max_steps: 1}
optimizer: {name: sgd, lr: 0.01}
"""
TEXT = """\
name: layout
device: cpu
model: {name: gpt2, layers: 1, heads: 1, width: 8, context: 4, vocabulary: 50304}
data: {dataset: DATASET, path: PATH, batch_size: 1}
train: {max_steps: 1}
optimizer: {name: sgd, lr: 0.01}
"""


def encoded(kind: str, value: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (6, 5), (value, 0, 0)).save(file, kind)
    return file.getvalue()


JPEG = encoded("JPEG", 200)
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1234\n"


def parquet_of(**columns) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


def images_and(**labels) -> bytes:
    count = len(next(iter(labels.values())))
    return parquet_of(img=pyarrow.array([{"bytes": JPEG, "path": "1.jpg"}] * count), **labels)


def tar_of(**members) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return file.getvalue()


def shard(label: int) -> bytes:
    return tar_of(**{"0.jpg": JPEG, "0.cls": str(label).encode(), "0.json": b"{}"})


def numpy_of(count: int, kind: str) -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(count).astype(kind))
    return file.getvalue()


def llmc(count: int) -> bytes:
    return struct.pack("<256i", 20240520, 1, count, *[0] * 253) + np.arange(count).astype("<u2").tobytes()


CIFAR = bytes([3]) + bytes(3072)
TOKENS = np.arange(1, 40).astype("<u2").tobytes()

# By name: files, data.dataset and what is tried. That is data.path, evaluation.path, then samples and classes; or words
# of the message.
LAYOUTS = {
    "ImageNet": (
        {f"{split}/n0144076{n}/{split}_{n}.JPEG": JPEG for split in ("train", "val") for n in range(3)},
        "image_folder",
        [
            (".", None, ["training files are beside others", "data.path=./train evaluation.path=./val"]),
            ("train", "val", 3, 3),
        ],
    ),
    "ImageNet of Kaggle": (
        {
            "CLS-LOC/train/n01440764/n01440764_18.JPEG": JPEG,
            "CLS-LOC/val/ILSVRC2012_val_00000001.JPEG": JPEG,
            "CLS-LOC/test/ILSVRC2012_test_00000001.JPEG": JPEG,
        },
        "image_folder",
        [
            ("CLS-LOC", None, ["data.path=CLS-LOC/train evaluation.path=CLS-LOC/val"]),
            ("CLS-LOC/val", None, ["needs a folder for each class", "1 .jpeg file", "ILSVRC2012_val_00000001.JPEG"]),
        ],
    ),
    "ImageNet in a tar file for each class": (
        {"n01440764.tar": tar_of(**{"n01440764_18.JPEG": JPEG, "n01440764_36.JPEG": JPEG})},
        "tar",
        [(".", None, ["no label (cls)", "member n01440764_18.JPEG"])],
    ),
    "tiny ImageNet": (
        {
            "train/n01443537/images/n01443537_0.JPEG": JPEG,
            "train/n01443537/n01443537_boxes.txt": b"",
            "train/n01629819/images/n01629819_0.JPEG": JPEG,
            "val/images/val_0.JPEG": JPEG,
            "val/val_annotations.txt": b"",
        },
        "image_folder",
        [
            ("train", None, 2, 2),
            ("train", "val", ["1 class of the evaluation data is not in the training data: images"]),
        ],
    ),
    "Places365, by letters": (
        {
            "data_256/a/airfield/00000001.jpg": JPEG,
            "data_256/a/apartment_building/outdoor/00000001.jpg": JPEG,
            "data_256/b/bakery/shop/00000001.jpg": JPEG,
        },
        "image_folder",
        [("data_256", None, 3, 2), ("data_256/a", None, 2, 2)],  # as torchvision reads them
    ),
    "Places365, standard": (
        {f"{split}/{name}/1.jpg": JPEG for split in ("train", "val") for name in ("airfield", "zoo")},
        "image_folder",
        [("train", "val", 2, 2)],
    ),
    "CIFAR-10, binary": (
        {f"cifar-10-batches-bin/{name}.bin": CIFAR * 2 for name in ("data_batch_1", "data_batch_2", "test_batch")},
        "cifar10",
        [("cifar-10-batches-bin", None, 4, 10), (".", None, ["its folder cifar-10-batches-bin has some"])],
    ),
    "CIFAR-10, Python": (
        {"cifar-10-batches-py/data_batch_1": b"\x80\x02}q", "cifar-10-batches-py/batches.meta": b"\x80\x02}q"},
        "cifar10",
        [("cifar-10-batches-py", None, ["this is the Python version", "cifar-10-binary.tar.gz"])],
    ),
    "CIFAR-100, binary": (
        {"train.bin": (b"\0" + CIFAR) * 2, "test.bin": b"\0" + CIFAR},
        "cifar10",
        [("train.bin", None, ["it may be CIFAR-100's"]), (".", None, ["it has 2 .bin files"])],
    ),
    "CIFAR-10 of Hugging Face": (
        {
            "README.md": b"---",
            "plain_text/train-00000-of-00001.parquet": images_and(label=[0, 1, 2]),
            "plain_text/test-00000-of-00001.parquet": images_and(label=[2]),
        },
        "parquet",
        [
            (".", None, ["contains no *.parquet files", "plain_text has 2"]),
            (
                "plain_text",
                None,
                [
                    "data.path=plain_text/train-00000-of-00001.parquet",
                    "evaluation.path=plain_text/test-00000-of-00001.parquet",
                ],
            ),
            ("plain_text/train-*.parquet", "plain_text/test-*.parquet", 3, 3),
        ],
    ),
    "CIFAR-100 of Hugging Face": (
        {"train-00000-of-00001.parquet": images_and(fine_label=[0, 1], coarse_label=[0, 0])},
        "parquet",
        [(".", None, ["several columns could be the labels", "data.parquet.label", "fine_label"])],
    ),
    "a data set of several labels": (
        {"train.parquet": images_and(label=[[0, 1], [2]])},
        "parquet",
        [(".", None, ["the labels in the column", "are lists, and a sample can have one class only"])],
    ),
    "Hugging Face's converted files": (
        {"default/train/0000.parquet": images_and(label=[0]), "default/test/0000.parquet": images_and(label=[0])},
        "parquet",
        [
            ("default", None, ["default/test has 1", "default/train has 1"]),
            ("default/train", "default/test", 1, 1),
            ("default/*", None, ["data.path=default/train evaluation.path=default/test"]),
        ],
    ),
    "Hugging Face's Arrow files": (
        {"data-00000-of-00001.arrow": b"ARROW1", "state.json": b"{}"},
        "parquet",
        [
            (".", None, ["contains no *.parquet files", ".arrow file (data-00000-of-00001.arrow)"]),
            ("data-00000-of-00001.arrow", None, ["is not a Parquet file but an Arrow file"]),
        ],
    ),
    "images with metadata": (
        {"train/0001.png": encoded("PNG", 3), "train/0002.png": encoded("PNG", 4), "train/metadata.csv": b"a,b"},
        "image_folder",
        [
            ("train", None, ["the images are in train itself", "2 .png files"]),
            (".", None, ["the only folder has the name of a split", "data.path=./train"]),
        ],
    ),
    "a repository without its large files": (
        {"train-00000-of-00001.parquet": LFS, "x.tar": LFS, "a/1.jpg": LFS, "train.bin": LFS},
        "parquet",
        [(".", None, ["is not a Parquet file but a Git LFS pointer", "git lfs pull"])],
    ),
    "WebDataset of Hugging Face": (
        {
            **{f"imagenet1k-train-000{n}.tar": shard(n) for n in range(3)},
            **{f"imagenet1k-validation-0{n}.tar": shard(n) for n in range(2)},
            "README.md": b"---",
            "_info.json": b"{}",
        },
        "tar",
        [
            (
                ".",
                None,
                [
                    "data.path=./imagenet1k-train-*.tar",
                    "evaluation.path=./imagenet1k-validation-*.tar",
                ],
            ),
            ("imagenet1k-train-*.tar", "imagenet1k-validation-*.tar", 3, 3),
            ("imagenet1k-train-{0000..0001}.tar", None, 2, 2),
            ("imagenet1k-train-{0000..0009}.tar", None, ["7 of 10 files do not exist", "imagenet1k-train-0003.tar"]),
        ],
    ),
    "dogs and cats of Kaggle": (
        {f"train/{name}.{n}.jpg": JPEG for name in ("cat", "dog") for n in range(2)},
        "image_folder",
        [("train", None, ["the images are in train itself", "4 .jpg files"])],
    ),
    "a data set that was packed twice into folders of one name": (
        {f"seg_{split}/seg_{split}/{name}/1.jpg": JPEG for split in ("train", "test") for name in ("sea", "street")},
        "image_folder",
        [
            (".", None, ["data.path=./seg_train evaluation.path=./seg_test"]),
            ("seg_train", None, ["data.path=seg_train/seg_train"]),
            ("seg_train/seg_train", "seg_test/seg_test", 2, 2),
        ],
    ),
    "an archive of macOS": (
        {
            "flowers/daisy/1.jpg": JPEG,
            "flowers/daisy/._1.jpg": b"Mac OS X",
            "flowers/tulip/1.jpg": JPEG,
            "flowers/.DS_Store": b"",
            "flowers/__MACOSX/daisy/._1.jpg": b"",
        },
        "image_folder",
        [("flowers", None, 2, 2)],
    ),
    "pets of Oxford": (
        {"images/Abyssinian_1.jpg": JPEG, "annotations/list.txt": b"Abyssinian_1 1 1 1"},
        "image_folder",
        [(".", None, ["a class has no images", "./annotations", "1 .txt file"])],
    ),
    "fineweb of llm.c": (
        {"fineweb_train_000001.bin": llmc(40), "fineweb_train_000002.bin": llmc(20), "fineweb_val_000000.bin": llmc(9)},
        "tokens",
        [
            (".", None, ["'data.path=./fineweb_train_*.bin' evaluation.path=./fineweb_val_000000.bin"]),
            ("fineweb_train_*.bin", "fineweb_val_*.bin", 13, None),
        ],
    ),
    "edu_fineweb of NumPy": (
        {"edufineweb_train_000001.npy": numpy_of(40, "<u2"), "edufineweb_val_000000.npy": numpy_of(9, "<u2")},
        "tokens",
        [
            (".", None, ["edufineweb_train_000001.npy", "edufineweb_val_000000.npy"]),
            ("edufineweb_train_*.npy", "edufineweb_val_*.npy", 9, None),
        ],
    ),
    "nanoGPT": (
        {"train.bin": TOKENS, "val.bin": TOKENS, "meta.pkl": b"\x80\x04"},
        "tokens",
        [(".", None, ["data.path=./train.bin evaluation.path=./val.bin"]), ("train.bin", "val.bin", 9, None)],
    ),
    "Megatron": (
        {
            "text_document.bin": np.arange(1, 100).astype("<i4").tobytes(),
            "text_document.idx": b"MMIDIDX\0\0" + struct.pack("<QB", 1, 4) + bytes(50),
        },
        "tokens",
        [(".", None, ["text_document.idx says", "int32", "data.token_bits: 32"])],
    ),
    "WikiText": (
        {f"wiki.{name}.tokens": b"a text" for name in ("train", "valid")} | {"train.txt": b"text", "valid.txt": b"a"},
        "documents",
        [(".", None, ["put the texts of each split in a folder of their own"])],
    ),
    "reviews of IMDb": (
        {f"aclImdb/{split}/{kind}/0_1.txt": b"a review" for split in ("train", "test") for kind in ("pos", "neg")},
        "documents",
        [
            ("aclImdb", None, ["data.path=aclImdb/train evaluation.path=aclImdb/test"]),
            ("aclImdb/train", "aclImdb/test", 2, None),
        ],
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name, trainopt):
    files, dataset, tries = LAYOUTS[name]
    for path, content in files.items():
        (trainopt.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (trainopt.folder / path).write_bytes(content)
    recipe = TEXT if dataset in ("tokens", "documents") else IMAGES
    for path, evaluation, expected, *classes in tries:
        trainopt.write("job.yaml", recipe.replace("DATASET", dataset).replace("PATH", f'"{path}"'))
        override = [f'evaluation.path="{evaluation}"'] if evaluation else []
        result = trainopt("plan", "job.yaml", "--json", *override)
        if isinstance(expected, list):
            assert result.code == 3, (path, result)
            assert len(result.err.strip().splitlines()) == 1, result
            for words in expected:
                assert words in result.err, (path, words, result)
        else:
            assert result.code == 0, (path, result)
            plan = result.json()
            assert plan["data"]["samples"] == expected, path
            if classes[0] is not None:
                assert f"auto is {classes[0]}, the number of classes in the data" in " ".join(plan["notes"])
