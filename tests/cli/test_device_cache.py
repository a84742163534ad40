"""data.cache: device from the user's point of view."""

import pytest

from conftest import SHARES, TINY, losses, summary

from PIL import Image

AUGMENTED = TINY.replace("{resize: 8}", "{random_crop: {size: 32, padding: 4}}, random_horizontal_flip")
FOLDER = AUGMENTED.replace("dataset: fake_cifar10, size: 64", "dataset: image_folder, path: images").replace(
    "size: 32", "size: 8"
)


def write_images(trainopt, sides):
    for number, side in enumerate(sides):
        name = trainopt.write(f"images/{number % 2}/{number:04}.png", "")
        image = Image.new("RGB", (side, side), (number * 20 % 256, 0, 0))
        image.putpixel((0, 0), (255, 255, 255))
        image.save(trainopt.folder / name)


def trained(trainopt, recipe, folder, *overrides):
    result = trainopt("run", recipe, "--run-dir", folder, "train.max_steps=14", "logging.every_n_steps=1", *overrides)
    assert result.code == 0, result
    return losses(trainopt.folder / folder)


def test_plan_and_options_say_what_it_does(trainopt):
    trainopt.write("tiny.yaml", AUGMENTED)
    planned = trainopt("plan", "tiny.yaml", "data.cache=device", "data.prefetch_factor=3")
    assert planned.code == 0 and "data set cached on the device: 64 samples, 192.5 KiB" in planned.out, planned
    assert "no effect: data.cache: device reads the data set once" in planned.out, planned
    loader = trainopt("plan", "--json", "tiny.yaml", "data.cache=device").json()["loader"]
    assert loader == {"num_workers": 0, "resident_samples": 64, "resident_bytes": 64 * 3080}
    described = trainopt("options", "data.cache")
    assert described.code == 0 and "on the device and draws batches there" in described.out, described


def test_the_summary_says_where_the_time_of_loading_went(trainopt):
    """Percentages depend on the machine; what they add up to, and what is zero, does not."""
    write_images(trainopt, [8] * 24)
    trainopt.write("files.yaml", FOLDER)
    trainopt.write("tiny.yaml", AUGMENTED)
    loaders = {}
    for name, recipe, *keys in [
        ("files", "files.yaml", "data.num_workers=2"),
        ("here", "files.yaml", "data.num_workers=0"),
        ("memory", "tiny.yaml", "data.num_workers=1"),
        ("device", "tiny.yaml", "data.cache=device"),
        ("synthetic", "tiny.yaml", "data={dataset: synthetic, transforms: null}"),
    ]:
        trained(trainopt, recipe, name, "device=cpu", "train.max_steps=6", *keys)
        loaders[name] = summary(trainopt.folder / name)["loader"]
    assert loaders["device"] is None and loaders["synthetic"] is None, loaders
    for name, workers in [("files", 2), ("here", 0), ("memory", 1)]:
        found = loaders[name]
        assert list(found) == ["samples", "workers", *SHARES] and found["workers"] == workers, found
        assert found["samples"] == 48, "six steps of eight samples; none is loaded beyond the last step"
        assert sum(found[f"{part}_pct"] for part in ("read", "decode", "transform", "other")) == pytest.approx(100)
        assert 0 < found["workers_busy_pct"] <= 100 and found["sample_us"] > 0 and found["transform_pct"] > 0, found
        assert (found["read_pct"] > 0) == (found["decode_pct"] > 0) == (name != "memory"), found


def test_training_is_identical_and_the_receipt_reports_what_was_sent(trainopt):
    trainopt.write("tiny.yaml", AUGMENTED)
    loaded = trained(trainopt, "tiny.yaml", "loaded", "device=cpu")
    assert len(set(loaded)) == 14  # batches differ, so equal losses below are no coincidence
    assert trained(trainopt, "tiny.yaml", "resident", "device=cpu", "data.cache=device") == loaded
    seen = summary(trainopt.folder / "resident")["receipts"]["cache"]
    assert (
        seen["effective"] and "192.5 KiB cached on the device; 256 B of indices and crops per step" in seen["observed"]
    ), seen  # 8 samples × 8 numbers of 4 bytes


def test_reading_stays_within_the_memory_limit(trainopt):
    trainopt.write("tiny.yaml", AUGMENTED)
    result = trainopt(
        "run",
        "tiny.yaml",
        "--run-dir",
        "out",
        "data.cache=device",
        "data.batch_size=64",
        "data.memory_limit=200KiB",
        "train.max_steps=1",
    )
    assert result.code == 0, result  # two batches of 64 would be 385 KiB


def test_16_bit_batches_give_the_same_results_and_an_injected_nan_is_detected(trainopt):
    write_images(trainopt, [8] * 24)
    trainopt.write("folder.yaml", FOLDER.replace("mean: 0.5, std: 0.5", "mean: 0.45, std: 0.22"))
    amp = ["device=cpu", "optimizations.amp=true", "evaluation.path=images"]
    loaded = trained(trainopt, "folder.yaml", "loaded", *amp)
    for folder, more in (("resident", "data.cache=device"), ("uint8", "optimizations.device_preprocess=true")):
        assert trained(trainopt, "folder.yaml", folder, *amp, more) == loaded
        assert (
            summary(trainopt.folder / folder)["evaluation"]["loss"]
            == summary(trainopt.folder / "loaded")["evaluation"]["loss"]
        )
    assert "batches built as bfloat16" in summary(trainopt.folder / "resident")["receipts"]["cache"]["observed"]
    assert (
        "the device converted it to bfloat16"
        in summary(trainopt.folder / "uint8")["receipts"]["device_preprocess"]["observed"]
    )
    planted = trainopt("run", "folder.yaml", "--run-dir", "nan", *amp, "data.cache=device", "--inject", "nan@3")
    assert planted.code != 0 and "not finite" in planted.err, planted


def test_a_folder_of_images(trainopt):
    write_images(trainopt, [8] * 24)
    trainopt.write("folder.yaml", FOLDER)
    loaded = trained(trainopt, "folder.yaml", "loaded", "device=cpu")
    assert (
        trained(trainopt, "folder.yaml", "resident", "device=cpu", "data.cache=device", "data.num_workers=2") == loaded
    )


def test_images_of_several_sizes(trainopt):
    write_images(trainopt, [8] * 20 + [9])
    trainopt.write("folder.yaml", FOLDER)
    result = trainopt("run", "folder.yaml", "--run-dir", "out", "data.cache=device")
    assert result.code == 3 and "images of one size" in result.err and "images/0/0020.png" in result.err, result
    trainopt.write("resized.yaml", "data: {transforms: [{resize: [8, 8]}, {random_crop: {size: 8, padding: 1}}]}\n")
    assert trainopt("run", "folder.yaml", "resized.yaml", "--run-dir", "resized", "data.cache=device").code == 0


@pytest.mark.parametrize(
    "transforms, says",
    [
        ("[random_horizontal_flip, {random_resized_crop: 32}]", "resizes after a random transform"),
        ("[random_horizontal_flip, {resize: 16}]", "resizes after a random transform"),
    ],
)
def test_transforms_that_cannot_run_on_the_device(trainopt, transforms, says):
    trainopt.write("tiny.yaml", TINY)
    trainopt.write("more.yaml", f"data: {{cache: device, transforms: {transforms}}}\n")
    for command in ("check", "plan", "run"):
        trainopt.refused(command, "tiny.yaml", "more.yaml", says=["data.cache: device is not possible", says])


def test_a_data_set_that_does_not_fit(trainopt):
    trainopt.write("tiny.yaml", AUGMENTED)
    numbers = "64 samples of 32×32×3 are 192.5 KiB, data.memory_limit is 190.0 KiB"
    trainopt.refused(
        "plan",
        "tiny.yaml",
        "device=cpu",
        "data.cache=device",
        "data.memory_limit=190KiB",
        says=["data.cache: device does not fit", numbers],
    )
    small = ["--assume", "gpus=1,arch=sm_90,memory_gib=1"]
    trainopt.refused(
        "plan",
        "tiny.yaml",
        "data.cache=device",
        "data.size=1000000",
        *small,
        says=["1,000,000 samples of 32×32×3 are 2.9 GiB, the GPU's memory is 1.0 GiB"],
    )


def test_the_bench_draws_batches_instead_of_loading_them(trainopt):
    trainopt.write("tiny.yaml", AUGMENTED)
    bench = ["data", "bench", "tiny.yaml", "device=cpu", "data.cache=device", "--batches", "20"]
    assert {trainopt(*bench, "--json").json()[name] for name in SHARES} == {None}, "there is no loader"
    result = trainopt(*bench)
    assert (
        result.code == 0 and "no loader: batches are drawn by index" in result.out and "buffers" not in result.out
    ), result
