"""The commit that the build writes into the program."""

import subprocess

import pytest

from conftest import CHECKOUT

SCRIPT = CHECKOUT / "scripts/cmake/write_build_facts.cmake"


def git(folder, *words):
    done = subprocess.run(
        ["git", "-C", folder, "-c", "user.name=A", "-c", "user.email=a@b", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done
    return done.stdout.strip()


def facts(source, out, library=""):
    values = {"SOURCE": source, "VERSION": "1.2.3", "ARCHITECTURES": "7.5 12.0+PTX", "OUT": out}
    values |= {"LIBRARY": library, "READELF": "readelf"}
    words = [word for name, value in values.items() for word in ("-D", f"{name}={value}")]
    subprocess.run(["cmake", *words, "-P", SCRIPT], check=True)
    return next(line for line in out.read_text().splitlines() if "kBuild" in line)


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    (folder / "inner").mkdir(parents=True)
    (folder / "file").write_text("first")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    git(folder, "tag", "v9")  # the commit is named even where there is a tag
    return folder


def test_commit_and_uncommitted_changes(checkout, tmp_path):
    commit, out = git(checkout, "rev-parse", "--short=12", "HEAD"), tmp_path / "facts.cpp"
    assert f'{{"1.2.3", "{commit}", "7.5 12.0+PTX", ""}}' in facts(checkout, out)
    written = out.stat().st_mtime_ns
    facts(checkout, out)
    assert out.stat().st_mtime_ns == written  # so that nothing is compiled again
    (checkout / "file").write_text("second")
    assert f'"{commit}+dirty"' in facts(checkout, out)


def test_sources_that_are_no_checkout(checkout, tmp_path):
    (tmp_path / "plain").mkdir()
    for folder in (tmp_path / "plain", checkout / "inner"):  # the second is inside another project's checkout
        assert '"1.2.3", "unknown", "7.5' in facts(folder, tmp_path / "facts.cpp"), folder


def test_the_build_id_of_a_library(checkout, tmp_path):
    source, library, out = tmp_path / "empty.c", tmp_path / "lib.so", tmp_path / "facts.cpp"
    source.touch()
    link = ["gcc", "-shared", "-o", library, source]
    subprocess.run([*link, "-Wl,--build-id=0x0123456789abcdef"], check=True)
    assert '"0123456789abcdef"}' in facts(checkout, out, library)
    subprocess.run([*link, "-Wl,--build-id=none"], check=True)
    with pytest.raises(subprocess.CalledProcessError):
        facts(checkout, out, library)
