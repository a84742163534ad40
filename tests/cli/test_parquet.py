"""Jobs on Parquet files that pyarrow wrote, and ours read by pyarrow; in object storage too. D10 is a row of the fault
table."""

import io
import json
import shutil
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from safetensors.numpy import load_file

from conftest import PROGRAM, checkpoint, losses
from test_packed import RECIPE

NAMES = [f"digit {label}" for label in range(10)]
FEATURES = {"image": {"_type": "Image"}, "label": {"names": NAMES, "_type": "ClassLabel"}}
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def images(digits, count=200):
    """The first images of each class, in turn: PNG files with labels."""
    source = digits / "data/digits/image_folder/train"
    classes = [sorted(each.iterdir()) for each in sorted(source.iterdir())]
    return [(classes[number % 10][number // 10].read_bytes(), number % 10) for number in range(count)]


def table_of(rows, extra=None):
    """As Hugging Face's datasets writes it."""
    columns = {
        "image": pa.array([{"bytes": image, "path": None} for image, _ in rows], IMAGE),
        "label": pa.array([label for _, label in rows], pa.int64()),
        **(extra or {}),
    }
    return pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": FEATURES}})})


def write(path, table, rows=20, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=rows, **options)


def run(trainopt, path, out, *arguments, **options):
    trainopt.write("job.yaml", RECIPE.replace("image_folder", "parquet").replace("PATH", f"'{path}'"))
    return trainopt("run", "job.yaml", "--run-dir", out, "data.batch_size=16", *arguments, **options)


def exported(trainopt, path, steps, *arguments):
    """step → (sample ids, labels, pixels 0 to 1)."""
    trainopt.write("job.yaml", RECIPE.replace("image_folder", "parquet").replace("PATH", f"'{path}'"))
    keys = ["data.batch_size=16", "data.transforms=[]", *arguments]
    done = trainopt("data", "export", "job.yaml", *keys, "--steps", steps, "out.safetensors")
    assert done.code == 0, done
    tensors = load_file(trainopt.folder / "out.safetensors")
    return [
        tuple(tensors[f"step-{step:08}.{name}"] for name in ("sample_id", "target", "input"))
        for step in range(1, steps + 1)
    ]


def check_content(batches, rows):
    for ids, labels, pixels in batches:
        for sample, label, image in zip(ids, labels, pixels, strict=True):
            content, expected = rows[sample]
            decoded = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).transpose(2, 0, 1)
            assert label == expected
            np.testing.assert_array_equal(np.rint(image * 255), decoded)


def test_a_job_in_two_files(trainopt, digits):
    rows = images(digits)
    write(trainopt.folder / "set/a.parquet", table_of(rows[:110]))
    write(trainopt.folder / "set/b.parquet", table_of(rows[110:]))
    batches = exported(trainopt, "set", 12, "data.num_workers=2", "data.shuffle_window=64")
    check_content(batches, rows)
    assert len({sample for ids, _, _ in batches for sample in ids}) == 12 * 16
    for workers in (0, 1, 3):
        assert run(trainopt, "set", f"out-{workers}", f"data.num_workers={workers}").code == 0
        assert losses(trainopt.folder / f"out-{workers}") == losses(trainopt.folder / "out-0")
    shown = trainopt("data", "show", "set", "--json").json()
    assert shown["images"] == 200 and [each["name"] for each in shown["classes"]] == NAMES
    assert [file["row_groups"] for file in shown["files"]] == [6, 5]
    assert {"name": "image.bytes", "type": "BYTE_ARRAY"} in shown["files"][0]["columns"]
    assert "image.bytes (BYTE_ARRAY)" in trainopt("data", "show", "set").out


@pytest.mark.parametrize("ranks", (2, 4))
def test_ranks_train_on_the_same_samples(trainopt, digits, ranks):
    rows = images(digits)
    write(trainopt.folder / "a.parquet", table_of(rows))
    trainopt.write("job.yaml", RECIPE.replace("image_folder", "parquet").replace("PATH", "a.parquet"))
    keys = ["data.shuffle_window=64", "--run-dir"]
    assert trainopt("run", "job.yaml", "data.batch_size=16", *keys, "one").code == 0
    share = f"data.batch_size={16 // ranks}"
    several = trainopt("launch", "-n", ranks, "--", "run", "job.yaml", share, *keys, "several")
    assert several.code == 0, several
    np.testing.assert_allclose(losses(trainopt.folder / "several"), losses(trainopt.folder / "one"), rtol=1e-5)


ENCODINGS = {
    "snappy": {"compression": "snappy"},
    "zstd, version 2 pages": {"compression": "zstd", "data_page_version": "2.0"},
    "gzip, small pages": {"compression": "gzip", "data_page_size": 1000},
    "no dictionary or statistics": {"use_dictionary": False, "write_statistics": False, "compression": "none"},
    "brotli": {"compression": "brotli"},
    "checksums": {"write_page_checksum": True},
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding(trainopt, digits, encoding):
    rows = images(digits, 60)
    write(trainopt.folder / "a.parquet", table_of(rows), **ENCODINGS[encoding])
    check_content(exported(trainopt, "a.parquet", 3), rows)


def test_columns_of_other_names_and_types(trainopt, digits):
    rows = images(digits, 48)
    content = pa.array([image for image, _ in rows], pa.large_binary())
    classes = pa.array([label for _, label in rows], pa.uint8())
    table = pa.table({"id": [str(i) for i in range(48)], "jpg": content, "class": classes})
    write(trainopt.folder / "a.parquet", table)
    two = trainopt("data", "show", "a.parquet")
    says = ["several columns could be the images", "data.parquet.image", "--image", "jpg (BYTE_ARRAY)"]
    trainopt.is_refusal(two, 3, says)
    check_content(exported(trainopt, "a.parquet", 2, "data.parquet.image=jpg"), rows)
    no_others = pa.table({"x": content, "y": classes.cast(pa.int8())})
    write(trainopt.folder / "b.parquet", no_others)
    check_content(exported(trainopt, "b.parquet", 2), rows)


def test_show_and_pack_take_the_names_of_columns(trainopt, digits):
    rows = images(digits, 48)
    content = [image for image, _ in rows]
    classes = [label for _, label in rows]
    table = pa.table({"id": [str(i) for i in range(48)], "jpg": content, "class": classes, "other": [0] * 48})
    write(trainopt.folder / "a.parquet", table)
    columns = ["--image", "jpg", "--label", "class"]
    says = ["several columns could be the labels", "--label of data show"]
    trainopt.refused("data", "show", "a.parquet", *columns[:2], code=3, says=says)
    trainopt.refused("data", "show", "a.parquet", "--image", "none", code=3, says=["there is no column none"])
    shown = trainopt("data", "show", "a.parquet", *columns, "--json")
    assert shown.code == 0, shown
    assert [each["images"] for each in shown.json()["classes"]] == [5] * 8 + [4] * 2
    assert len(shown.json()["files"][0]["columns"]) == 4 and shown.json()["unlabelled"] == 0
    trainopt.refused("data", "pack", "a.parquet", "a.pack", code=3, says=["several columns"])
    packed = trainopt("data", "pack", "a.parquet", "a.pack", *columns, "--json")
    assert packed.code == 0 and packed.json()["images"] == 48, packed
    assert trainopt("data", "show", "a.pack", "--json").json()["classes"][0]["images"] == 5


def test_show_counts_rows_without_a_label(trainopt, digits):
    rows = [(image, label if number % 8 else None) for number, (image, label) in enumerate(images(digits, 32))]
    write(trainopt.folder / "a.parquet", table_of(rows))
    shown = trainopt("data", "show", "a.parquet")
    assert shown.code == 0, shown
    assert "4 rows without a label" in shown.out and "a.parquet, row group 0, row 0: no label, 32x32" in shown.out
    assert "images of each class" in shown.out, shown
    found = trainopt("data", "show", "a.parquet", "--json").json()
    assert found["unlabelled"] == 4 and sum(each["images"] for each in found["classes"]) == 28
    assert [row["label"] for row in found["first"]] == [None, 1, 2, 3, 4]
    trainopt.refused("data", "pack", "a.parquet", "a.pack", code=3, says=["row group 0, row 0", "the label is missing"])


@pytest.mark.parametrize("order", ("height, width, 3", "3, height, width", "height, width"))
def test_lists_of_pixels(trainopt, order):
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (48, 5, 7, 3), dtype=np.uint8)
    if order == "height, width":
        pixels[..., 1:] = pixels[..., :1]
    planes, grey = pixels.transpose(0, 3, 1, 2), pixels[..., 0]
    stored = {"height, width, 3": pixels, "3, height, width": planes, "height, width": grey}
    element = pa.uint8()
    for _ in range(stored[order].ndim - 1):
        element = pa.list_(element)
    table = pa.table({"image": pa.array(stored[order].tolist(), element), "label": np.arange(48) % 10})
    write(trainopt.folder / "a.parquet", table)
    for ids, labels, batch in exported(trainopt, "a.parquet", 3):
        np.testing.assert_array_equal(labels, ids % 10)
        np.testing.assert_array_equal(np.rint(batch * 255), pixels[ids].transpose(0, 3, 1, 2))
    packed = trainopt("data", "pack", "a.parquet", "a.pack", "--json")
    assert packed.code == 0 and packed.json()["size"] == [5, 7], packed


def test_a_filter_leaves_rows_within_limits(trainopt, digits):
    rows = images(digits)
    table = table_of(rows, {"width": pa.array([number / 2 for number in range(200)], pa.float64())})
    write(trainopt.folder / "a.parquet", table)
    keys = ["data.parquet.filter={column: width, min: 24.5, max: 72}"]
    kept = rows[49:145]
    batches = exported(trainopt, "a.parquet", 6, *keys)
    check_content(batches, kept)
    assert sorted(sample for ids, _, _ in batches for sample in ids) == list(range(96))
    none = run(trainopt, "a.parquet", "none", "data.parquet.filter={column: width, min: 1000}")
    trainopt.is_refusal(none, 3, ["no rows whose width is within the limits", "a.parquet"])


def test_other_programs_read_what_is_packed(trainopt, digits):
    source = digits / "data/digits/image_folder/train"
    done = trainopt("data", "pack", source, "out", "--shards", 3, "--parquet", "--json")
    assert done.code == 0 and done.json()["images"] == 1442, done
    table = pq.read_table(trainopt.folder / "out", columns=["image", "label"])
    files = [path for each in sorted(source.iterdir()) for path in sorted(each.iterdir())]
    assert table.num_rows == len(files)
    features = json.loads(pq.read_schema(trainopt.folder / "out/00000-of-00003.parquet").metadata[b"huggingface"])
    names = features["info"]["features"]["label"]["names"]
    found = [(row["image"]["bytes"], names[row["label"]]) for row in table.to_pylist()]
    assert sorted(found) == sorted((path.read_bytes(), path.parent.name) for path in files)
    # Mixed, because readers mix the rows of few row groups only.
    assert all(len({name for _, name in found[begin : begin + 100]}) > 6 for begin in range(0, 1400, 100))
    again = trainopt("data", "pack", source, "out", "--shards", 3, "--parquet", "--json")
    assert again.json()["files_found"] == 3
    resized = trainopt("data", "pack", "out", "small.parquet", "--resize", 16, "--json")
    assert resized.code == 0 and resized.json()["images"] == 1442, resized
    small = pq.read_table(trainopt.folder / "small.parquet").to_pylist()[0]["image"]["bytes"]
    assert Image.open(io.BytesIO(small)).size == (16, 16)
    mixed = trainopt("data", "pack", source, "x.tar", "--parquet")
    trainopt.is_refusal(mixed, 2, ["contradict each other", "x.tar"])


def test_a_resumed_run_needs_the_same_order(trainopt, digits):
    write(trainopt.folder / "a.parquet", table_of(images(digits)))
    keys = ["data.shuffle_window=64"]
    assert run(trainopt, "a.parquet", "whole", *keys).code == 0
    assert run(trainopt, "a.parquet", "half", *keys, "train.max_steps=5").code == 0
    shutil.copytree(trainopt.folder / "half", trainopt.folder / "other")
    resume = "checkpoint.resume=auto"
    for key in ("data.partitions=4", "data.shuffle_window=65"):
        changed = trainopt("run", "job.yaml", "--run-dir", "other", "data.batch_size=16", *keys, key, resume)
        trainopt.is_refusal(changed, 4, [key.split("=")[0]])
    assert run(trainopt, "a.parquet", "half", *keys, resume).code == 0
    assert losses(trainopt.folder / "half") == losses(trainopt.folder / "whole")
    write(trainopt.folder / "a.parquet", table_of(images(digits, 190)))
    check_failure(run(trainopt, "a.parquet", "other", *keys, resume), ["samples 200 → 190"])


def test_row_groups_in_use_must_fit_into_memory(trainopt, digits):
    write(trainopt.folder / "a.parquet", table_of(images(digits)))
    tight = run(trainopt, "a.parquet", "tight", "data.memory_limit=70KiB")
    trainopt.is_refusal(tight, 2, ["data.memory_limit"])


# D10


def check_failure(result, says):
    """Exit code 3 and one readable sentence, perhaps after training began."""
    assert result.code == 3, result
    assert len(result.err.splitlines()) == 1 and all(fragment in result.err for fragment in says), result


def damage(path, row_group):
    """Changes a byte in the middle of the images, whose pages have checksums."""
    images = pq.read_metadata(path).row_group(row_group).column(0)
    content = bytearray(path.read_bytes())
    begin = images.dictionary_page_offset or images.data_page_offset
    content[begin + images.total_compressed_size // 2] ^= 1
    path.write_bytes(content)


BAD_TABLES = {
    "no images": (lambda rows: pa.table({"label": [1, 2]}), ["no column of images", "label (INT64)"]),
    "no labels": (lambda rows: pa.table({"image": [b"1", b"2"]}), ["no column of labels", "image (BYTE_ARRAY)"]),
    "labels are words": (
        lambda rows: pa.table({"image": [b"1", b"2"], "label": ["cat", "dog"]}),
        ["the labels in the column label must be integers"],
    ),
    "images are numbers": (
        lambda rows: pa.table({"image": [1.5, 2.5], "label": [0, 1]}),
        ["the column image holds no images"],
    ),
    "no rows": (lambda rows: table_of([]), ["there are no rows"]),
    "label without a name": (
        lambda rows: table_of([*rows, (rows[0][0], 12)]),
        ["the labels go up to 12", "10 classes"],
    ),
    "negative label": (lambda rows: table_of([(image, -1) for image, _ in rows]), ["the label is missing, negative"]),
    "missing label": (
        lambda rows: table_of([(image, None if n == 7 else label) for n, (image, label) in enumerate(rows)]),
        ["row group 0, row 7", "the label is missing, negative"],
    ),
    "missing image": (
        lambda rows: table_of([(None if n == 7 else image, label) for n, (image, label) in enumerate(rows)]),
        ["row group 0, row 7", "the image is missing"],
    ),
    "not an image": (
        lambda rows: table_of([(b"GIF89a" if n == 7 else image, label) for n, (image, label) in enumerate(rows)]),
        ["row group 0, row 7", "neither JPEG nor PNG"],
    ),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_tables_that_are_refused(trainopt, digits, case):
    table, says = BAD_TABLES[case]
    write(trainopt.folder / "a.parquet", table(images(digits, 32)))
    for workers in (0, 2):
        result = run(trainopt, "a.parquet", f"out-{workers}", f"data.num_workers={workers}")
        check_failure(result, ["a.parquet", *says])


def test_a_damaged_page(trainopt, digits):
    rows = images(digits, 160)
    write(trainopt.folder / "a.parquet", table_of(rows), write_page_checksum=True, compression="none")
    damage(trainopt.folder / "a.parquet", row_group=2)
    result = run(trainopt, "a.parquet", "out")
    check_failure(result, ["a.parquet, row group 2", "image.bytes of row group 2 cannot be read", "CRC"])
    keys = ["data.on_bad_sample=substitute", "data.max_bad_samples=20", "data.num_workers=2"]
    assert run(trainopt, "a.parquet", "without", *keys, "train.max_steps=20").code == 0


def test_changed_bytes_are_no_crash(trainopt):
    random = np.random.default_rng(0)
    lists = pa.array(random.integers(0, 4, (40, 3, 3, 3)).tolist(), pa.list_(pa.list_(pa.list_(pa.uint8()))))
    write(trainopt.folder / "good.parquet", pa.table({"image": lists, "label": np.arange(40) % 10}))
    content = (trainopt.folder / "good.parquet").read_bytes()
    for at in random.integers(4, len(content) - 8, 20):
        changed = bytearray(content)
        changed[at] ^= 1 << int(random.integers(8))
        trainopt.write("bad.parquet", bytes(changed))
        shown = trainopt("data", "show", "bad.parquet", "--rows", 40)
        assert shown.code in (0, 3), (at, shown)
        if shown.code == 3:
            check_failure(shown, ["bad.parquet"])


@pytest.mark.parametrize("label", (2**63 - 1, 2**32 + 5, 2**20, 2**64 - 1))
def test_labels_that_are_too_large(trainopt, digits, label):
    kind = pa.uint64() if label > 2**63 else pa.int64()
    rows = images(digits, 20)
    table = pa.table({"image": [image for image, _ in rows], "label": pa.array([label] * 20, kind)})
    for statistics in (True, False):
        write(trainopt.folder / "a.parquet", table, write_statistics=statistics)
        shown = trainopt("data", "show", "a.parquet")
        if statistics:
            trainopt.is_refusal(shown, 3, ["the labels go up to", "a.parquet"])
        else:
            assert shown.code == 0 and "20 rows without a label (missing, negative or too large)" in shown.out, shown


def test_a_filter_of_unsigned_numbers_and_none_of_dates(trainopt, digits):
    rows = images(digits, 40)
    large = pa.array([4_000_000_000 + number for number in range(40)], pa.uint32())
    table = table_of(rows, {"large": large, "day": pa.array(range(40), pa.date32())})
    write(trainopt.folder / "a.parquet", table, rows=10)
    kept = exported(trainopt, "a.parquet", 1, "data.parquet.filter={column: large, min: 4000000024}")
    check_content(kept, rows[24:])
    dates = run(trainopt, "a.parquet", "dates", "data.parquet.filter={column: day, min: 1}")
    trainopt.is_refusal(dates, 3, ["the column day (data.parquet.filter) holds no numbers"])


def test_what_only_looks_like_images_or_numbers(trainopt, digits):
    rows = images(digits, 20)
    two = pa.struct([("r", pa.uint8()), ("g", pa.uint8())])
    grey = pa.array([[[{"r": 1, "g": 2}] * 3] * 3] * 20, pa.list_(pa.list_(two)))
    write(trainopt.folder / "a.parquet", pa.table({"image": grey, "label": [0] * 20}))
    trainopt.is_refusal(run(trainopt, "a.parquet", "structs"), 3, ["the lists of the column image hold structs"])
    large = pa.array([2**53 + number for number in range(20)], pa.int64())
    write(trainopt.folder / "a.parquet", table_of(rows, {"large": large}))
    exact = run(trainopt, "a.parquet", "large", f"data.parquet.filter={{column: large, min: {2**53 + 7}}}")
    trainopt.is_refusal(exact, 3, ["integers beyond 2^53"])


def test_changed_labels_are_other_data(trainopt, digits):
    """Of the same size, with the same statistics."""
    rows = images(digits, 40)
    plain = {"use_dictionary": False, "compression": "none"}
    write(trainopt.folder / "a.parquet", table_of(rows), **plain)
    assert run(trainopt, "a.parquet", "out", "train.max_steps=2").code == 0
    packed = trainopt("data", "pack", "a.parquet", "b.parquet", "--json")
    assert packed.code == 0, packed
    rows[3], rows[4] = (rows[3][0], rows[4][1]), (rows[4][0], rows[3][1])
    write(trainopt.folder / "a.parquet", table_of(rows), **plain)
    check_failure(run(trainopt, "a.parquet", "out", "train.max_steps=4", "checkpoint.resume=auto"), ["content"])
    again = trainopt("data", "pack", "a.parquet", "b.parquet")
    trainopt.is_refusal(again, 3, ["packed from other images"])


def test_a_damaged_file_of_a_packing_is_refused(trainopt, digits):
    source = digits / "data/digits/image_folder/train"
    assert trainopt("data", "pack", source, "a.parquet").code == 0
    damage(trainopt.folder / "a.parquet", row_group=0)
    trainopt.is_refusal(trainopt("data", "pack", source, "a.parquet"), 3, ["a.parquet", "cannot be read", "remove it"])


def test_what_is_decoded_is_limited(trainopt, digits):
    """A dictionary makes much of few bytes."""
    image = images(digits, 1)[0][0] + bytes(500_000)
    write(trainopt.folder / "a.parquet", table_of([(image, 0)] * 400), rows=400)
    assert (trainopt.folder / "a.parquet").stat().st_size < 1_000_000
    check_failure(run(trainopt, "a.parquet", "out", "data.memory_limit=64MiB"), ["row group 0", "data.memory_limit"])


def test_files_that_are_refused(trainopt, digits):
    rows = images(digits, 32)
    good = trainopt.folder / "good.parquet"
    write(good, table_of(rows))
    content = good.read_bytes()
    for name, changed in (("empty", b""), ("short", content[:-20]), ("text", b"PAR1" * 100), ("zeros", bytes(1000))):
        trainopt.write("bad.parquet", changed)
        says = "the file is empty" if name == "empty" else "no Parquet file, or it is damaged"
        trainopt.is_refusal(run(trainopt, "bad.parquet", name), 3, [says, "bad.parquet"])
    write(trainopt.folder / "set/a.parquet", table_of(rows))
    plain = pa.table({"image": [image for image, _ in rows], "label": [label for _, label in rows]})
    write(trainopt.folder / "set/b.parquet", plain)
    trainopt.is_refusal(run(trainopt, "set", "mixed"), 3, ["are others than in", "set/b.parquet"])
    trainopt.is_refusal(run(trainopt, "nowhere.parquet", "nowhere"), 3, ["nowhere.parquet"])
    huge = run(trainopt, "good.parquet", "huge", "data.memory_limit=1KiB")
    trainopt.is_refusal(huge, 3, ["row group 0", "data.memory_limit", "good.parquet"])


@pytest.mark.parametrize(
    "key, says",
    (
        ("data.parquet.filter.min=1", "needs a column"),
        ("data.parquet.filter={column: label}", "needs min, max or both"),
        ("data.parquet.filter={column: label, min: 2, max: 1}", "min must not be above max"),
        ("data.partitions=0", "data.partitions"),
        ("data.shuffle=false data.partitions=4", "needs data.shuffle: true"),
        ("data.dataset=packed data.shuffle_window=9", "only parquet uses this"),
    ),
)
def test_keys_that_are_refused(trainopt, digits, key, says):
    write(trainopt.folder / "a.parquet", table_of(images(digits, 32)))
    words = key.split(" ") if "{" not in key else [key]
    trainopt.is_refusal(run(trainopt, "a.parquet", "out", *words), 2, [says])


def test_without_arrow(trainopt, digits):
    write(trainopt.folder / "a.parquet", table_of(images(digits, 32)))
    trainopt.write("job.yaml", RECIPE.replace("image_folder", "parquet").replace("PATH", "a.parquet"))
    alone = shutil.copy(PROGRAM, trainopt.folder / "trainopt")
    result = trainopt("run", "job.yaml", "device=cpu", "--run-dir", "out", program=alone)
    trainopt.is_refusal(result, 3, ["built without Parquet", "libtrainopt_parquet.so"])


# In object storage.


@pytest.fixture(scope="module")
def moto(digits, tmp_path_factory):
    storage = pytest.importorskip("object_storage", reason="moto and boto3 are not installed")
    server = storage.Moto()
    folder = tmp_path_factory.mktemp("objects")
    rows = images(digits)
    for number, part in enumerate((rows[:90], rows[90:])):
        write(folder / f"{number}.parquet", table_of(part), write_page_checksum=True)
        server.put(folder / f"{number}.parquet", f"set/{number}.parquet")
    server.folder = folder
    yield server
    server.stop()


def test_a_killed_job_on_remote_files_resumes(trainopt, moto):
    import object_storage as storage

    with storage.proxy_before(moto) as proxy:
        keys = [f"data.storage.endpoint={proxy.url}", "train.max_steps=24", "checkpoint.every_n_steps=4"]
        keys += ["data.shuffle_window=64", "data.num_workers=2", "data.cache={kind: disk, path: c, size: 1GiB}"]

        def remote(out, *more):
            return run(trainopt, "s3://data/set", out, *keys, *more, env=storage.environment(trainopt))

        local = run(trainopt, str(moto.folder), "local", "train.max_steps=24", "data.shuffle_window=64")
        assert local.code == 0, local
        whole = remote("whole")
        assert whole.code == 0, whole
        killed = remote("again", "--inject", "kill@10")
        assert killed.code == -signal.SIGKILL, killed
        assert remote("again", "checkpoint.resume=auto").code == 0
        assert losses(trainopt.folder / "whole") == losses(trainopt.folder / "local")
        assert losses(trainopt.folder / "again") == losses(trainopt.folder / "whole")
        saved = [checkpoint(trainopt.folder / out, 24) / "rank-0000.safetensors" for out in ("whole", "again")]
        assert saved[0].read_bytes() == saved[1].read_bytes()
        assert not proxy.wrong_signatures


def test_row_groups_stay_in_memory(trainopt, moto):
    import object_storage as storage

    with storage.proxy_before(moto) as proxy:
        requests = {}
        for out, cache, steps in (("plain", "none", 72), ("kept", "memory", 72), ("short", "memory", 24)):
            before = proxy.gets
            keys = [f"data.storage.endpoint={proxy.url}", f"data.cache={cache}", f"train.max_steps={steps}"]
            assert run(trainopt, "s3://data/set", out, *keys, env=storage.environment(trainopt)).code == 0
            requests[out] = proxy.gets - before
        assert losses(trainopt.folder / "kept") == losses(trainopt.folder / "plain")
        # Two threads that miss the same bytes at once both fetch them.
        assert abs(requests["short"] - requests["kept"]) <= 8 < requests["plain"] - requests["kept"] - 16, requests
