"""What CMake says of a libtorch that lacks a declaration, before anything is compiled."""

import re
import subprocess

import pytest

from conftest import CHECKOUT

TABLE = CHECKOUT / "scripts/cmake/private_headers.cmake"
ROWS = re.findall(r'^ *"(\S+)" "([^"]+)" "(\S+)"', TABLE.read_text(), re.MULTILINE)


def checked(folder, version="2.15"):
    """CMake's message about a made-up libtorch that declares what the table says, once a test has changed it."""
    script = folder / "check.cmake"
    script.write_text(f'set(torch_version {version})\nset(torch_folder "{folder}")\ninclude("{TABLE}")\n')
    done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True)
    return done.returncode, " ".join(done.stderr.split())


@pytest.fixture
def made_up(tmp_path):
    for header, declaration, _ in ROWS:
        path = tmp_path / "include/torch/csrc" / header
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"{declaration} {{}}\n")
    return tmp_path


def test_a_libtorch_with_all_of_them_is_taken(made_up):
    assert len(ROWS) > 10 and checked(made_up) == (0, "")


@pytest.mark.parametrize("header, declaration, user", ROWS, ids=[row[0] for row in ROWS])
def test_what_is_missing_is_named(made_up, header, declaration, user):
    path = made_up / "include/torch/csrc" / header
    for change in (lambda: path.write_text("// nothing\n"), path.unlink):
        change()
        code, message = checked(made_up)
        assert code != 0 and all(words in message for words in (declaration, header, user, "2.11 to 2.15")), message


def test_other_versions(made_up):
    code, message = checked(made_up, "2.10")
    assert code != 0 and "libtorch 2.11 or newer is needed; found 2.10" in message, message
    code, message = checked(made_up, "2.16")
    assert code == 0 and "libtorch 2.16 was not tried" in message, message
