"""Compares the loader's output with Pillow, torchvision and arithmetic."""

import collections
import io
import json
import os

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets, transforms
from torchvision.transforms import functional

import support
from support import HALF

GREY_LEVELS = 1 + 1e-3  # resizing and decoding may differ from Pillow by one grey level; scaling rounds a little


def folder_recipe(path, *steps, **data) -> dict:
    return support.recipe(
        {
            "data": {
                "dataset": "image_folder",
                "path": str(path),
                "shuffle": False,
                "drop_last": False,
                "batch_size": 4,
                "transforms": [*steps, HALF],
                **data,
            }
        }
    )


def delivered(tmp_path, content: dict, count: int) -> dict[int, np.ndarray]:
    """One epoch as sample id -> pixels [H,W,3]."""
    steps = support.export(tmp_path, content, -(-count // content["data"]["batch_size"]))
    found = {int(i): image for step in steps for i, image in zip(step.sample_id, support.grey_levels(step))}
    assert sorted(found) == list(range(count))
    return found


def pillow(path) -> Image.Image:
    return Image.open(path).convert("RGB")


# ---- pixels ----


def test_cifar10_bytes_and_normalize(tmp_path):
    """Every pixel, label and id of three files of different lengths is right."""
    written = support.write_cifar10(
        tmp_path / "cifar", {"data_batch_1": 7, "data_batch_2": 3, "data_batch_5": 5, "test_batch": 4}
    )
    mean, std = [0.4914, 0.4822, 0.4465], [0.247, 0.2435, 0.2616]
    content = support.recipe(
        {
            "data": {
                "dataset": "cifar10",
                "path": str(tmp_path / "cifar"),
                "shuffle": False,
                "drop_last": False,
                "transforms": [{"normalize": {"mean": mean, "std": std}}],
            }
        }
    )
    steps = support.export(tmp_path, content, 2)
    names = ["data_batch_1", "data_batch_2", "data_batch_5"]
    pixels = torch.from_numpy(np.concatenate([written[name][0] for name in names]))
    labels = torch.from_numpy(np.concatenate([written[name][1] for name in names]))
    assert torch.cat([step.sample_id for step in steps]).tolist() == list(range(15))
    assert torch.equal(torch.cat([step.target for step in steps]), labels)
    expected = functional.normalize(pixels.float() / 255, mean, std)
    assert torch.allclose(torch.cat([step.input for step in steps]), expected, rtol=1e-5, atol=1e-6)


def test_scaling_without_normalize(tmp_path):
    written = support.write_cifar10(tmp_path / "cifar", {"data_batch_1": 8})
    content = support.recipe(
        {"data": {"dataset": "cifar10", "path": str(tmp_path / "cifar"), "shuffle": False, "transforms": None}}
    )
    content["data"]["transforms"] = []
    (step,) = support.export(tmp_path, content, 1)
    assert torch.allclose(step.input, torch.from_numpy(written["data_batch_1"][0]).float() / 255, rtol=1e-6, atol=0)


SIZES = [(50, 37), (37, 50), (64, 64), (31, 96), (200, 150), (7, 9), (333, 500)]  # height, width
GEOMETRY = {
    "resize [24, 52]": ([{"resize": [24, 52]}], transforms.Resize([24, 52])),
    "resize up [400, 300]": ([{"resize": [400, 300]}], transforms.Resize([400, 300])),
    "resize 33, center_crop 24": (
        [{"resize": 33}, {"center_crop": 24}],
        transforms.Compose([transforms.Resize(33), transforms.CenterCrop(24)]),
    ),
    "center_crop 40 pads small images": ([{"center_crop": 40}], transforms.CenterCrop(40)),
    "center_crop [21, 30]": ([{"center_crop": [21, 30]}], transforms.CenterCrop([21, 30])),
    "resize twice": (
        [{"resize": [90, 70]}, {"resize": [32, 32]}],
        transforms.Compose([transforms.Resize([90, 70]), transforms.Resize([32, 32])]),
    ),
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    return folder, support.write_image_folder(
        folder, {f"{'ab'[n % 2]}/{n}.png": support.photograph(*size, seed=n) for n, size in enumerate(SIZES)}
    )


@pytest.mark.parametrize("case", GEOMETRY)
def test_geometry_matches_torchvision(case, tmp_path, pictures):
    folder, files = pictures
    steps, oracle = GEOMETRY[case]
    found = delivered(tmp_path, folder_recipe(folder, *steps), len(files))
    for number, path in enumerate(files):
        expected = np.asarray(oracle(pillow(path)), dtype=np.float64)
        assert found[number].shape == expected.shape, path.name
        difference = np.abs(found[number] - expected)
        assert difference.max() <= GREY_LEVELS, f"{path.name}: {difference.max()} grey levels"
        assert (
            difference > 0.5
        ).mean() < 0.05, f"{path.name}: {100 * (difference > 0.5).mean():.1f} % of the values differ"


@pytest.mark.parametrize("height, width", [(50, 37), (37, 50), (500, 333), (64, 64), (200, 201)])
def test_resize_of_the_shorter_side(height, width, tmp_path):
    (file,) = support.write_image_folder(tmp_path / "p", {"a/1.png": support.photograph(height, width, seed=1)})
    ours = delivered(tmp_path, folder_recipe(tmp_path / "p", {"resize": 40}, batch_size=1), 1)[0]
    expected = np.asarray(functional.resize(pillow(file), 40), dtype=np.float64)
    assert ours.shape == expected.shape
    assert np.abs(ours - expected).max() <= GREY_LEVELS


@pytest.mark.parametrize("side", [224, 48, 17])
def test_fake_cifar10_resize_matches_pillow(side, tmp_path):
    """The resize of the reference job matches Pillow's, applied to the exported 32-pixel images."""
    data = {"size": 8, "shuffle": False}
    (small,) = support.export(tmp_path, support.recipe({"data": data}), 1)
    (large,) = support.export(tmp_path, support.recipe({"data": {**data, "transforms": [{"resize": side}, HALF]}}), 1)
    assert torch.equal(small.target, large.target)
    originals = support.grey_levels(small).round().astype(np.uint8)
    assert originals.min() == 0 and originals.max() == 255 and 100 < originals.mean() < 155
    for original, ours in zip(originals, support.grey_levels(large)):
        assert (
            np.abs(ours - np.asarray(functional.resize(Image.fromarray(original), side), dtype=np.float64)).max()
            <= GREY_LEVELS
        )


# ---- decoding ----


def saved(mode: str, suffix: str, **options):
    def save(path):
        photo = support.photograph(75, 101, seed=5)
        if mode == "RGBA":
            photo.putalpha(support.photograph(75, 101, seed=6).convert("L"))
        elif mode == "LA":
            photo = Image.merge("LA", [photo.convert("L"), support.photograph(75, 101, seed=6).convert("L")])
        elif mode == "exif":
            exif = Image.Exif()
            exif[0x0112] = 6  # "rotate by 90°", which Pillow's open() ignores too
            options["exif"] = exif
        else:
            photo = photo.convert(mode)
        photo.save(path.with_suffix(suffix), **options)

    return save


FILES = {
    "jpeg 4:2:0": saved("RGB", ".jpg", quality=90, subsampling="4:2:0"),
    "jpeg 4:2:2": saved("RGB", ".jpeg", quality=80, subsampling="4:2:2"),
    "jpeg 4:4:4": saved("RGB", ".JPG", quality=95, subsampling="4:4:4"),
    "jpeg low quality": saved("RGB", ".jpg", quality=15),
    "jpeg progressive": saved("RGB", ".jpg", quality=85, progressive=True),
    "jpeg grey": saved("L", ".jpg", quality=90),
    "jpeg cmyk": saved("CMYK", ".jpg", quality=90),
    "jpeg with rotation": saved("exif", ".jpg", quality=90),
    "png": saved("RGB", ".png"),
    "png grey": saved("L", ".png"),
    "png palette": saved("P", ".png"),
    "png bilevel": saved("1", ".png"),
    "png alpha": saved("RGBA", ".png"),
    "png grey alpha": saved("LA", ".png"),
}


@pytest.mark.parametrize("kind", FILES)
def test_decoding_matches_pillow(kind, tmp_path):
    folder = tmp_path / "pictures" / "only"
    folder.mkdir(parents=True)
    FILES[kind](folder / "picture")
    (file,) = folder.iterdir()
    found = delivered(tmp_path, folder_recipe(folder.parent, batch_size=1), 1)[0]
    expected = np.asarray(pillow(file), dtype=np.float64)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= GREY_LEVELS


def test_scaled_decoding_shows_the_same_picture(tmp_path):
    """Scaled decoding differs from exact decoding by definition, but its picture is close on average after the crop."""
    files = support.write_image_folder(tmp_path / "p", {"a/1.jpg": support.photograph(400, 500, seed=1)}, quality=92)
    step = {"random_resized_crop": {"size": 48, "scale": [1.0, 1.0], "ratio": [1.25, 1.25]}}
    exact, scaled = (
        delivered(tmp_path, folder_recipe(tmp_path / "p", step, batch_size=1, decode=decode), 1)[0]
        for decode in ("exact", "scaled")
    )
    expected = np.asarray(pillow(files[0]).resize((48, 48), Image.Resampling.BILINEAR), dtype=np.float64)
    assert np.abs(exact - expected).max() <= GREY_LEVELS
    assert np.abs(scaled - expected).mean() < 8  # a shift of half a pixel would give more than 20


def test_image_folder_classes_are_sorted_bytewise(tmp_path):
    names = ["b", "B", "a10", "a9", "é", "_"]
    support.write_image_folder(
        tmp_path / "p",
        {f"{name}/{n}.png": Image.new("RGB", (8, 8), (20 * c, 0, 0)) for c, name in enumerate(names) for n in range(2)},
    )
    steps = support.export(tmp_path, folder_recipe(tmp_path / "p"), 3)
    order = sorted(names, key=str.encode)
    for step in steps:
        for target, image in zip(step.target, support.grey_levels(step)):
            assert round(image[0, 0, 0]) == 20 * names.index(order[target])


# ---- random transforms ----


def coordinates_image(side: int = 256) -> Image.Image:
    """Red is x, green is y, blue is noise: a crop shows where it came from, and the noise shows whether it was cut and
    resized exactly.
    """
    y, x = np.mgrid[0:side, 0:side]
    noise = np.random.default_rng(2).integers(0, 256, (side, side))
    return Image.fromarray(np.stack([x, y, noise], axis=-1).astype(np.uint8))


def test_random_crop_and_flip(tmp_path):
    """Each result is a window of the padded image, mirrored or not; all offsets and both orientations occur."""
    source = coordinates_image(40)
    support.write_image_folder(tmp_path / "p", {f"a/{n:03d}.png": source for n in range(200)})
    content = folder_recipe(tmp_path / "p", {"random_crop": {"size": 36, "padding": 4}}, "random_horizontal_flip")
    padded = np.pad(np.asarray(source), ((4, 4), (4, 4), (0, 0)))
    seen = collections.Counter()
    for image in delivered(tmp_path, content, 200).values():
        ours = image.round().astype(np.uint8)
        place = next(
            (
                (top, left, flip)
                for flip in (False, True)
                for top in range(13)
                for left in range(13)
                if np.array_equal(padded[top : top + 36, left : left + 36], ours[:, ::-1] if flip else ours)
            ),
            None,
        )
        assert place is not None
        seen[place] += 1
    tops, lefts, flips = (collections.Counter(place[axis] for place in seen.elements()) for axis in range(3))
    assert len(tops) == len(lefts) == 13 and 60 < flips[True] < 140
    assert max(tops.values()) < 40 and max(lefts.values()) < 40


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_flip_with_probability_one(p, tmp_path):
    files = support.write_image_folder(
        tmp_path / "p", {f"a/{n}.png": support.photograph(21, 34, seed=n) for n in range(6)}
    )
    found = delivered(tmp_path, folder_recipe(tmp_path / "p", {"random_horizontal_flip": p}), len(files))
    for number, path in enumerate(files):
        expected = np.asarray(pillow(path))
        assert np.array_equal(found[number].round(), expected[:, ::-1] if p else expected)


def crop_candidates(values: np.ndarray, side: int) -> list[tuple[int, int]]:
    """(first, length) of each piece of 0…255 that, resized to len(values), gives `values` to within a grey level."""
    size = len(values)
    inner = slice(size // 4, -(size // 4))
    slope = np.polyfit(np.arange(size)[inner], values[inner], 1)
    length, first = slope[0] * size, slope[1] - slope[0] / 2 + 0.5
    ramp = np.arange(side, dtype=np.uint8)
    found = []
    for candidate_length in range(max(1, int(length) - 3), min(side, int(length) + 4) + 1):
        for candidate in range(max(0, int(first) - 3), min(side - candidate_length, int(first) + 4) + 1):
            piece = Image.fromarray(ramp[None, candidate : candidate + candidate_length])
            if np.abs(np.asarray(piece.resize((size, 1), Image.Resampling.BILINEAR))[0] - values).max() <= GREY_LEVELS:
                found.append((candidate, candidate_length))
    return found


def test_random_resized_crop(tmp_path):
    """Each result is torchvision's resized_crop of some box; the areas, shapes and positions of the boxes are
    distributed as torchvision's."""
    count, side, size = 240, 256, 64
    source = coordinates_image(side)
    support.write_image_folder(tmp_path / "p", {f"a/{n:03d}.png": source for n in range(count)}, compress_level=1)
    content = folder_recipe(tmp_path / "p", {"random_resized_crop": size}, batch_size=24)
    boxes = []
    for number, image in delivered(tmp_path, content, count).items():
        across, down = crop_candidates(image[:, :, 0].mean(0), side), crop_candidates(image[:, :, 1].mean(1), side)
        if number < 40:
            assert any(
                np.abs(
                    np.asarray(
                        functional.resized_crop(source, top, left, height, width, [size, size]), dtype=np.float64
                    )
                    - image
                ).max()
                <= GREY_LEVELS
                for left, width in across
                for top, height in down
            ), (across, down)
        (left, width), (top, height) = across[len(across) // 2], down[len(down) // 2]
        boxes.append((top, left, height, width))
    torch.manual_seed(0)
    drawn = [transforms.RandomResizedCrop.get_params(source, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(20000)]
    for name, measure in {
        "area": lambda t, l, h, w: h * w / side**2,
        "log shape": lambda t, l, h, w: np.log(w / h),
        "top": lambda t, l, h, w: t,
        "left": lambda t, l, h, w: l,
        "position across": lambda t, l, h, w: l / max(1, side - w),
    }.items():
        ours, theirs = (np.array([measure(*box) for box in boxes]) for boxes in (boxes, drawn))
        assert abs(ours.mean() - theirs.mean()) < 4 * theirs.std() / np.sqrt(count), name
        assert 0.75 < ours.std() / theirs.std() < 1.25, name


# ---- order ----


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [True, False])
def test_each_sample_once_an_epoch(workers, drop_last, tmp_path):
    data = {"size": 61, "batch_size": 4, "num_workers": workers, "drop_last": drop_last}
    content = support.recipe({"data": data, "train": {"gradient_accumulation_steps": 2}})
    per_epoch = 61 // 8 if drop_last else 8
    steps = support.export(tmp_path, content, 3 * per_epoch)
    epochs = [
        torch.cat([step.sample_id for step in steps[n * per_epoch : (n + 1) * per_epoch]]).tolist() for n in range(3)
    ]
    for epoch in epochs:
        assert len(epoch) == (56 if drop_last else 61)
        assert len(set(epoch)) == len(epoch) and set(epoch) <= set(range(61))
        assert epoch != sorted(epoch)
    assert epochs[0] != epochs[1] and epochs[1] != epochs[2]
    labels = {}
    for step in steps:
        for sample, label in zip(step.sample_id.tolist(), step.target.tolist()):
            assert labels.setdefault(sample, label) == label
    assert 0 <= min(labels.values()) and max(labels.values()) <= 9


def test_batches_do_not_depend_on_workers(tmp_path, pictures):
    folder, _ = pictures
    steps = [{"random_resized_crop": 24}, "random_horizontal_flip"]
    one, other = (
        support.export(tmp_path, folder_recipe(folder, *steps, shuffle=True, batch_size=3, num_workers=workers), 6)
        for workers in (0, 3)
    )
    for a, b in zip(one, other):
        assert (
            torch.equal(a.input, b.input) and torch.equal(a.target, b.target) and torch.equal(a.sample_id, b.sample_id)
        )


def test_seed_changes_order_and_images(tmp_path):
    first, second = (support.export(tmp_path, support.recipe({"seed": seed}), 1)[0] for seed in (3, 4))
    assert not torch.equal(first.sample_id, second.sample_id) and not torch.equal(first.input, second.input)


# ---- JPEG files with deviations ----


def saved_jpeg(picture: Image.Image, **options) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90, **options)
    return file.getvalue()


def scan_at(jpeg: bytes) -> int:
    """Where the first scan's coded data begin."""
    scan = jpeg.index(b"\xff\xda")
    return scan + 2 + int.from_bytes(jpeg[scan + 2 : scan + 4], "big")


def with_spectrum(jpeg: bytes, spectrum: bytes) -> bytes:
    coded = scan_at(jpeg)
    return jpeg[: coded - 3] + spectrum + jpeg[coded:]


def deviating(sampling: str) -> dict[str, tuple[bytes, bool]]:
    """By libjpeg's warning: a file that raises it, and whether all its pixels are there."""
    picture = support.photograph(83, 61, seed=5)
    plain = saved_jpeg(picture, subsampling=sampling)
    restarts = saved_jpeg(picture, subsampling=sampling, restart_marker_blocks=3)
    progressive = saved_jpeg(picture, subsampling=sampling, progressive=True)
    coded = scan_at(plain)
    middle = (coded + len(plain)) // 2
    first_refinement = progressive[progressive.rindex(b"\xff\xda") : -2]
    adobe = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x09"
    return {
        "none": (plain, True),
        "unknown JFIF revision number": (plain.replace(b"JFIF\x00\x01", b"JFIF\x00\x07", 1), True),
        "Unknown Adobe color transform code": (plain[:2] + adobe + plain[2:], True),
        "extraneous bytes before marker 0xd9": (plain[:-2] + b"\x55" * 99 + plain[-2:], True),
        "extraneous bytes in a progressive file": (progressive[:-2] + b"\x55" * 99 + progressive[-2:], True),
        "bytes after the end": (plain + b"\x00trailer of a phone" * 50, True),
        "Invalid SOS parameters": (with_spectrum(plain, b"\0\0\0"), True),
        "Invalid SOS parameters, others": (with_spectrum(plain, b"\x01\x3f\x10"), True),
        "premature end of data segment": (plain[:middle] + b"\xff\xd9", False),
        "Premature end of JPEG file": (plain[:middle], False),
        "bad Huffman code": (plain[:middle] + b"\xff\x00" * 200 + b"\xff\xd9", False),
        "0xd5 instead of RST": (restarts.replace(b"\xff\xd1", b"\xff\xd5"), False),
        "extraneous bytes before marker 0xd1": (restarts.replace(b"\xff\xd1", b"\x55" * 9 + b"\xff\xd1"), False),
        "Inconsistent progression sequence": (progressive[:-2] + first_refinement + progressive[-2:], False),
    }


@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:0"])
def test_jpegs_with_deviations(sampling, tmp_path):
    """Those that lose no pixel give Pillow's; those that Pillow fills with guesses are refused, whatever the crop."""
    for number, (warning, (content, is_whole)) in enumerate(deviating(sampling).items()):
        file = tmp_path / str(number) / "a" / "1.jpg"
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
        for step in ({"center_crop": [83, 61]}, {"random_crop": 16}):
            recipe = folder_recipe(tmp_path / str(number), step, batch_size=1)
            if not is_whole:
                path = support.write_recipe(tmp_path, recipe)
                done = support.trainopt("data", "export", path, "--steps", 1, tmp_path / "out.safetensors", expect=3)
                assert f"{file}: JPEG: " in done.stderr and warning in done.stderr, (warning, done.stderr)
            elif "center_crop" in step:
                found = delivered(tmp_path, recipe, 1)[0]
                assert np.abs(found - np.asarray(pillow(file), dtype=np.float64)).max() <= 1e-3, warning
            else:
                delivered(tmp_path, recipe, 1)


def test_folders_below_a_class(tmp_path):
    """The order of samples and their labels are those of torchvision's ImageFolder."""
    names = "b/2.png b/10.png b/2020/1.png b/2019/x/1.png b/2019-x/1.png b/2019/y.png a/z/1.png a/Z/1.png a/é/1.png"
    names = names.split()
    folder = tmp_path / "p"
    support.write_image_folder(folder, {name: support.photograph(9, 7, seed=n) for n, name in enumerate(names)})
    os.symlink(folder / "a", folder / "b" / "2018")
    expected = datasets.ImageFolder(str(folder)).samples
    found = delivered(tmp_path, folder_recipe(folder, {"center_crop": [9, 7]}), len(expected))
    for number, (path, _) in enumerate(expected):
        assert np.abs(found[number] - np.asarray(pillow(path), dtype=np.float64)).max() <= 1e-3, path
    shown = json.loads(support.trainopt("data", "show", folder, "--json", "--rows", 100).stdout)
    assert [(row["name"], row["label"]) for row in shown["first"]] == [tuple(sample) for sample in expected]
