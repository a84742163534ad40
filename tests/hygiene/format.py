#!/usr/bin/env python3
"""Checks that clang-format would change no C++ or CUDA file of the checkout: format.py CHECKOUT

`format.py --fix CHECKOUT` formats them.
"""

import subprocess
import sys
from pathlib import Path

from hygiene import files_of
from lengths import SOURCES


def main(arguments):
    how = ["-i"] if arguments[0] == "--fix" else ["--dry-run", "-Werror"]
    top = Path(arguments[-1]).resolve()
    clang_format = Path(sys.executable).with_name("clang-format")
    files = [file for file in files_of(top) if Path(file).suffix in SOURCES and (top / file).is_file()]
    return subprocess.run([clang_format, *how, "--style=file", *files], cwd=top).returncode


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    sys.exit(main(sys.argv[1:]))
