"""Limits on folders, and on headers that nobody but one neighbour, or but their own source, includes."""

import re
from collections import defaultdict
from pathlib import Path

MAX_FILES = 40  # in one folder of lib/ or app/, without those in folders below it
KNOWN = "tests/hygiene/neighbours.txt"  # the headers that had one neighbour when the rule was made
MAX_KNOWN = 39  # lower it with each line that goes
QUOTED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
SOURCES = {".h", ".cuh", ".cpp", ".cu"}


def check_folders(paths):
    """Yields a problem for each folder of lib/ and app/ with more than MAX_FILES files."""
    count = defaultdict(int)
    for path in paths:
        if path.startswith(("lib/", "app/")):
            count[str(Path(path).parent)] += 1
    for folder, files in sorted(count.items()):
        if files > MAX_FILES:
            yield f"{folder}: {files} files, at most {MAX_FILES}: give its parts rooms of their own"


def neighbours(texts):
    """Yields (header, client) for each header of lib/ and app/ that one neighbour alone includes. The client is None if
    only the sources of its own name include it.

    texts: path -> contents of the sources in lib/, app/ and tests/. A header and the sources of its name are one file
    here, so a neighbour is another name in the same folder; what tests include has a client outside."""
    clients = defaultdict(set)
    for path, text in texts.items():
        for header in QUOTED.findall(text):
            target = next((each for each in ("lib/" + header, header) if each in texts), None)
            if target and target != "lib/precompiled.h":
                clients[target] |= {stem(path)} - {stem(target)}
    for header, all_clients in sorted(clients.items()):
        if not header.startswith(("lib/", "app/")) or len(all_clients) > 1:
            continue
        client = next(iter(all_clients), None)
        if client is None or Path(client).parent == Path(header).parent:
            yield header, client


def stem(path):
    return path[: -len(Path(path).suffix)]


def check_neighbours(texts, known):
    """known: the headers in KNOWN."""
    found = dict(neighbours(texts))
    if len(known) > MAX_KNOWN:
        yield f"{KNOWN}: {len(known)} headers, at most {MAX_KNOWN}: the list may only shrink"
    for header in sorted(set(found) - set(known)):
        client = f"only {found[header]} beside it" if found[header] else "nobody else"
        yield f"{header}: {client} includes it: write both as one, or test it on its own"
    for header in sorted(set(known) - set(found)):
        yield f"{KNOWN}: {header} is not such a header any more: remove the line"


def check_rooms(top, paths):
    yield from check_folders(paths)
    texts = {
        path: (top / path).read_text(errors="replace")
        for path in paths
        if path.startswith(("lib/", "app/", "tests/")) and Path(path).suffix in SOURCES and (top / path).is_file()
    }
    known = (top / KNOWN).read_text().splitlines() if (top / KNOWN).is_file() else []
    yield from check_neighbours(texts, [line for line in known if line and not line.startswith("#")])


# path -> (text, the problem to be found in it); see self_test in hygiene.py.
PLANTED = {
    **{f"lib/base/room/{i:02}.md": ("", None) for i in range(MAX_FILES)},
    f"lib/base/room/{MAX_FILES}.md": ("", f"{MAX_FILES + 1} files"),
    "lib/config/alone.h": ("", "only lib/config/near beside it"),
    "lib/config/alone.cpp": ('#include "config/alone.h"\n', None),
    "lib/kernels/loops.cuh": ("", "only lib/kernels/device beside it"),
    "lib/kernels/device.cu": ('#include "kernels/loops.cuh"\n', None),
    "app/alone.h": ("", "only app/near beside it"),
    "app/near.cpp": ('#include "app/alone.h"\n', None),
    "lib/base/room/below/a.md": ("", None),
    **{f"tests/room/{i:02}.md": ("", None) for i in range(MAX_FILES + 1)},
    "lib/config/own_alone.h": ("", "nobody else includes it"),
    "lib/config/own_alone.cpp": ('#include "config/own_alone.h"\n', None),
    "lib/config/near.cpp": ('#include "config/alone.h"\n', None),
    KNOWN: ("# Known.\nlib/config/known.h\nlib/config/gone.h\n", "lib/config/gone.h is not such a header"),
    # What must pass:
    "lib/config/known.h": ("", None),
    "lib/config/near.h": ('#include "config/known.h"\n', None),
    "lib/config/tested.h": ("", None),
    "lib/config/beside.cpp": ('#include "config/tested.h"\n#include "config/own.h"\n', None),
    "tests/unit/tested.cpp": ('#include "config/tested.h"\n#include "config/near.h"\n', None),
    "lib/config/own.h": ("", None),
    "lib/config/own.cpp": ('#include "config/own.h"\n', None),
    "app/far.cpp": ('#include "config/own.h"\n', None),
}
