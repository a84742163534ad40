"""One block of another loader on JPEGs: load_images.py LOADER PATH SECONDS prints how many images a second it delivers
in batches of 32, uint8, decoded, the shorter side resized to 256 and the centre of 224×224 cut out, in random order,
with two threads or processes. Each loader is set up as its documentation says."""

import os
import random
import sys
import time
from pathlib import Path

BATCH, THREADS, RESIZE, SIDE = 32, 2, 256, 224


def files(path: str) -> list[str]:
    return sorted(str(file) for file in Path(path).glob("*/*.jpg"))


def pillow_transform():
    from torchvision import transforms

    return transforms.Compose(
        [transforms.Resize(RESIZE), transforms.CenterCrop(SIDE), transforms.PILToTensor()]
    )


def dataloader(path: str):
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder

    data = ImageFolder(path, pillow_transform())
    loader = DataLoader(data, BATCH, shuffle=True, drop_last=True, num_workers=THREADS, persistent_workers=True)
    while True:
        yield from loader


def webdataset(path: str):
    import torch
    import webdataset as wds

    transform = pillow_transform()
    data = (
        wds.WebDataset(path, shardshuffle=False, empty_check=False, workersplitter=wds.split_by_worker)
        .shuffle(1000)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(transform, int)
        .batched(BATCH, partial=False)
    )
    loader = wds.WebLoader(data, batch_size=None, num_workers=THREADS, persistent_workers=True)
    while True:
        for images, labels in loader:
            yield torch.as_tensor(images), labels


def pyarrow(path: str):
    """Each worker reads its share of the row groups, in random order."""
    import io

    import pyarrow.parquet as parquet
    from PIL import Image
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    transform = pillow_transform()

    class Rows(IterableDataset):
        def __iter__(self):
            worker, chance = get_worker_info(), random.Random()
            file = parquet.ParquetFile(path)
            groups = list(range(file.num_row_groups))[worker.id :: worker.num_workers]
            chance.shuffle(groups)
            for group in groups:
                table = file.read_row_group(group, columns=["image", "label"])
                images = table["image"].combine_chunks().field("bytes")
                rows = list(range(table.num_rows))
                chance.shuffle(rows)
                for row in rows:
                    image = Image.open(io.BytesIO(images[row].as_py())).convert("RGB")
                    yield transform(image), table["label"][row].as_py()

    loader = DataLoader(Rows(), BATCH, drop_last=True, num_workers=THREADS, persistent_workers=True)
    while True:
        yield from loader


def dali(path: str):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=THREADS, device_id=None)
    def load():
        encoded, labels = fn.readers.file(file_root=path, random_shuffle=True, name="files")
        images = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
        images = fn.resize(images, resize_shorter=RESIZE, interp_type=types.INTERP_LINEAR, antialias=True)
        return fn.crop(images, crop=(SIDE, SIDE)), labels

    pipeline = load()
    pipeline.build()
    while True:
        images, labels = pipeline.run()
        yield images.as_array(), labels.as_array()


def spdl(path: str):
    import spdl.io
    import spdl.pipeline

    names, chance = files(path), random.Random(0)
    wanted = spdl.io.get_video_filter_desc(
        filter_desc=f"scale={RESIZE}:{RESIZE}:force_original_aspect_ratio=increase:flags=bilinear,crop={SIDE}:{SIDE},"
        "format=pix_fmts=rgb24"
    )

    def batches():
        while True:
            chance.shuffle(names)
            for first in range(0, len(names) - BATCH + 1, BATCH):
                yield names[first : first + BATCH]

    def load(batch):
        buffer = spdl.io.load_image_batch(batch, width=None, height=None, pix_fmt=None, filter_desc=wanted)
        return spdl.io.to_numpy(buffer)

    builder = spdl.pipeline.PipelineBuilder().add_source(batches()).pipe(load, concurrency=THREADS).add_sink(4)
    pipeline = builder.build(num_threads=THREADS, max_failures=0)
    with pipeline.auto_stop():
        for images in pipeline:
            yield images, None


def main() -> None:
    name, path, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if name in ("dataloader", "pyarrow", "webdataset"):
        import torch

        torch.set_num_threads(1)
    loaders = {"dataloader": dataloader, "pyarrow": pyarrow, "webdataset": webdataset, "dali": dali, "spdl": spdl}
    batches = loaders[name](path)
    for _ in range(8):  # start-up and what was prefetched meanwhile
        images, _ = next(batches)
    assert sorted(images.shape) == sorted((BATCH, 3, SIDE, SIDE)) and str(images.dtype).endswith("uint8"), images.shape
    began, count = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        next(batches)
        count += BATCH
    print(count / (time.monotonic() - began), flush=True)
    os._exit(0)  # without waiting for the loader's threads


if __name__ == "__main__":
    main()
