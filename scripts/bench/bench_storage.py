"""Data in object storage over a slow link: packed images of 224×224 pixels in random order, by `trainopt data bench`,
against what the link carries; and read from the cache on a disk, against local files.

The link is the loopback of a network namespace that carries 200 Mbit/s, and the server waits 20 ms before each answer.
Needs root, ip and tc, and `cmake --build build --target range_server`.
"""

import argparse
import contextlib
import shutil
import subprocess
from pathlib import Path

import bench_jpeg
import bench_packed
import bench_ranks
import common

SIDE = 224


@contextlib.contextmanager
def server(folder: Path, delay_ms: int, namespace: str):
    """The URL of a server of `folder`, and what to put before a command that is to reach it."""
    inside = ["ip", "netns", "exec", namespace]
    program = common.trainopt_binary().parent.parent / "scripts/bench/range_server"
    process = subprocess.Popen(
        [*inside, program, folder, str(delay_ms)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}", inside
    finally:
        process.stdin.close()
        process.wait()


def bench(recipe: Path, seconds: float, *words, inside: list = ()) -> dict:
    command = [*inside, common.trainopt_binary(), "data", "bench", recipe, "--json", "--seconds", seconds, *words]
    done = subprocess.run([str(word) for word in [*command, "--batches", 10**8]], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return common.json.loads(done.stdout)


def recipe(path: str, workers: int, **data) -> dict:
    content = bench_packed.recipe("packed", path, [])
    content["data"].update(num_workers=workers, **data)
    return content


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=10, help="of each block")
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--images", type=int, default=4000)
    options.add_argument("--mbit", type=float, default=200)
    options.add_argument("--delay-ms", type=int, default=20)
    options.add_argument("--workers", type=int, default=2)
    chosen = options.parse_args()
    link = chosen.mbit * 1e6 / 8
    rows = []
    with common.temporary_folder() as name, bench_ranks.slow_link(link) as namespace:
        folder = Path(name)
        bench_jpeg.write_photographs(folder / "photographs", chosen.images)
        served = folder / "served/bucket"
        served.mkdir(parents=True)
        pack = [common.trainopt_binary(), "data", "pack", folder / "photographs"]
        subprocess.run([*pack, served / "pixels.pack", "--resize", str(SIDE)], check=True)
        subprocess.run([*pack, served / "files.pack"], check=True)
        with server(folder / "served", chosen.delay_ms, namespace) as (url, inside):
            storage = {"endpoint": url, "anonymous": True}
            for file, bytes_of_image in (
                ("pixels.pack", SIDE * SIDE * 3),
                ("files.pack", (served / "files.pack").stat().st_size / chosen.images),
            ):
                transforms = [] if file == "pixels.pack" else [{"resize": SIDE}, {"center_crop": SIDE}]
                job = recipe(f"s3://bucket/{file}", chosen.workers, storage=storage)
                job["data"]["transforms"] = [*transforms, *job["data"]["transforms"]]
                remote = common.write_recipe(folder, job, f"remote-{file}")
                shares = []
                for _ in range(chosen.rounds):
                    result = bench(remote, chosen.seconds, inside=inside)
                    shares.append(result["samples_per_s"] * bytes_of_image / link)
                mean, low, high = common.bootstrap(shares)
                rows.append(
                    {
                        "data": f"{file}, {bytes_of_image / 1e3:.0f} kB an image",
                        "measured": f"share of a link of {chosen.mbit:.0f} Mbit/s and {chosen.delay_ms} ms",
                        "ratio": round(mean, 3),
                        "interval": [round(low, 3), round(high, 3)],
                        "required": 0.9,
                    }
                )
            rows.append(cached(folder, served, url, inside, chosen))
    common.report("storage", rows)


def cached(folder: Path, served: Path, url: str, inside: list, chosen) -> dict:
    """Files of photographs from the filled cache, in turn with local ones: the second epoch of a job."""
    cache = {"kind": "disk", "path": str(folder / "cache"), "size": "8GiB"}
    transforms = [{"resize": SIDE}, {"center_crop": SIDE}, {"normalize": {"mean": 0.5, "std": 0.5}}]
    storage = {"endpoint": url, "anonymous": True}
    shared = {"transforms": transforms}
    files = {
        "cached": recipe("s3://bucket/files.pack", chosen.workers, storage=storage, cache=cache, **shared),
        "local": recipe(str(served / "files.pack"), chosen.workers, **shared),
    }
    paths = {name: common.write_recipe(folder, content, name) for name, content in files.items()}
    epochs = chosen.images * 150_000 / (chosen.mbit * 1e6 / 8)
    bench(paths["cached"], 3 * epochs, inside=inside)  # fills the cache

    def speed(name: str):
        return lambda: bench(paths[name], chosen.seconds / 2, inside=inside)["samples_per_s"]

    pairs = common.abba(speed("cached"), speed("local"), chosen.rounds)
    shutil.rmtree(folder / "cache")
    return {
        "data": "files.pack",
        "measured": "second epoch from the cache on disk ÷ local",
        **common.ratio_interval(pairs),
        "required": 0.98,
    }


if __name__ == "__main__":
    main()
