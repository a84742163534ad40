"""Types the commands of what-pays.md as a newcomer does: a fresh clone, an empty HOME, images of one's own."""

import os
import re
import resource
import subprocess
from pathlib import Path

import numpy
import pytest
from PIL import Image

from conftest import CHECKOUT


def commands():
    page = (CHECKOUT / "app/guide/what-pays.md").read_text()
    section = page.split("## Three commands on your own images")[1].split("\n## ")[0]
    return re.search(r"```\n(.*?)```", section, re.DOTALL)[1].strip().splitlines()


def write_images(folder, classes=3, of_each=24):
    """Noise around a colour of each class's own, at sizes that differ."""
    random = numpy.random.default_rng(0)
    for label in range(classes):
        (folder / f"class{label}").mkdir(parents=True)
        for number in range(of_each):
            height, width = random.integers(230, 330, 2)
            colour = numpy.array([0, 80, 160])[(label + numpy.arange(3)) % 3]
            pixels = random.integers(0, 80, (height, width, 3)) + colour
            Image.fromarray(pixels.astype(numpy.uint8)).save(folder / f"class{label}/{number}.jpg", quality=85)


def test_the_page_has_three_commands():
    assert [line.split()[0] for line in commands()] == ["git", "scripts/trainopt", "scripts/trainopt"]


@pytest.mark.full
def test_from_clone_to_verdict(tmp_path):
    """Prints the CPU time of all three, set-up and build included."""
    write_images(tmp_path / "photos")
    env = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "HTTPS_PROXY", "https_proxy")}
    env |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    env |= {"HOME": str(tmp_path / "home")}
    (tmp_path / "home").mkdir()
    line = "\n".join(commands()).replace("REPOSITORY", f"file://{CHECKOUT}").replace("PHOTOS", str(tmp_path / "photos"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(["bash", "-ec", line], cwd=tmp_path, env=env, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done
    print(f"{(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 60:.1f} CPU minutes")
    assert re.search(r"^(pays|costs|no effect|inconclusive): B ", done.stdout, re.MULTILINE), done.stdout
    assert "3 classes" in done.stdout and Path(tmp_path / "home/.cache/trainopt").is_dir()
