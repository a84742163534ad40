"""JPEG photographs of 500×375 as a folder, a packed, a tar and a Parquet file → shorter side 256, centre 224, uint8
batches of 32, two threads, against DataLoader with torchvision and Pillow, the same with pyarrow, webdataset, DALI on
the CPU and SPDL, in turn.

DALI, SPDL and webdataset are no requirements of this project. Install them where you like (SPDL also needs FFmpeg's
libraries), and name that site-packages folder with --peers; what cannot be imported is left out.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import bench_jpeg
import bench_packed
import common

LOADERS = {"dataloader": "folder", "pyarrow": "parquet", "webdataset": "tar", "dali": "folder", "spdl": "folder"}
OURS = {"folder": "image_folder", "pack": "packed", "tar": "tar", "parquet": "parquet"}


def peer_block(loader: str, path: Path, seconds: float, site_packages: str | None):
    script = Path(__file__).parent / "peers/load_images.py"
    paths = [site_packages or "", *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path), "OMP_NUM_THREADS": "1"}

    def block() -> float:
        command = [sys.executable, script, loader, path, str(seconds)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else str(done.returncode))
        return float(done.stdout.split()[-1])

    return block


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--block", type=float, default=3.0, help="seconds per block")
    options.add_argument("--rounds", type=int, default=4, help="pairs of blocks")
    options.add_argument("--images", type=int, default=1000)
    options.add_argument("--only", nargs="+", choices=LOADERS, default=list(LOADERS), help="these loaders")
    options.add_argument("--peers", help="site-packages with DALI, SPDL and webdataset")
    chosen = options.parse_args()
    with common.temporary_folder() as name:
        folder = Path(name)
        paths = {"folder": folder / "folder", "pack": folder / "images.pack", "tar": folder / "images.tar"}
        paths["parquet"] = folder / "images.parquet"
        size = bench_jpeg.write_photographs(paths["folder"], chosen.images)
        for form in ("pack", "tar", "parquet"):
            words = [common.trainopt_binary(), "data", "pack", paths["folder"], paths[form]]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        cut = [{"resize": 256}, {"center_crop": 224}]
        ours = {
            form: bench_packed.loads(
                common.write_recipe(folder, bench_packed.recipe(dataset, paths[form], cut), form), chosen.block
            )
            for form, dataset in OURS.items()
        }
        rows = []
        for loader in chosen.only:
            form = LOADERS[loader]
            peer = peer_block(loader, paths[form], chosen.block, chosen.peers)
            try:
                peer()
            except RuntimeError as error:
                print(f"{loader} is left out: {error}", file=sys.stderr)
                continue
            for our_form in (form,) if form != "folder" else ("folder", "pack"):
                pairs = common.abba(ours[our_form], peer, chosen.rounds)
                row = {"ours": OURS[our_form], "against": loader, **common.ratio_interval(pairs), "required": 2}
                rows.append({"data": f"jpeg 500×375, {size / 1000:.0f} kB", **row})
                print(rows[-1], file=sys.stderr, flush=True)
    common.report("decoders", rows)


if __name__ == "__main__":
    main()
