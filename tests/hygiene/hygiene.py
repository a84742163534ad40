#!/usr/bin/env python3
"""Checks project rules that a compiler does not. Reads the allowed dependencies between modules from lib/README.md.

hygiene.py CHECKOUT      prints `file:line: problem` for each violation; exit code 1 if there is any
hygiene.py --self-test   plants one violation of every rule in a made-up tree; expects exactly these to be found
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from lengths import PLANTED, SOURCES, check_lengths, check_subjects
from rooms import PLANTED as PLANTED_ROOMS
from rooms import check_rooms

TEXTS = SOURCES | {".py", ".sh", ".txt", ".cmake", ".yaml", ".json", ".md", ".supp", ".dict", ".toml", ""}
# Headers under torch/ that are needed and cheap; the umbrella header torch/torch.h and the torch::nn/optim/data API are
# not.
TORCH_HEADERS = ("torch/csrc/autograd/", "torch/csrc/cuda/memory_snapshot.h", "torch/csrc/distributed/c10d/",
                 "torch/library.h", "torch/version.h")
LIBTORCH = ("ATen/", "c10/", "torch/")
CUDA = re.compile(r"(cuda|cublas|cudnn|nvrtc|ATen/cuda/|c10/cuda/|ATen/cudnn/)")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
HARDWARE_IF = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b.*(CUDA|NCCL|GPU|MPI)")
GETENV = re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b")
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|HA" r"CK|XX" r"X)\b")
MACHINE_PATH = re.compile(r"(^|[\s\"'=(])/(wo" r"rk|ro" r"ot|ho" r"me)/")

# Files that may name an optimization, apart from its own folder, its kernel's folder and Markdown pages.
LISTS = {
    "lib/config/leads.txt",  # what other trainers call them
    "lib/optimizations/config.h",
    "lib/optimizations/CMakeLists.txt",
    "lib/recipe/make_plan.cpp",
    "lib/run/rules.cpp",
    "lib/kernels/CMakeLists.txt",  # lists the sources in each kernel's folder
}
# Names that are also ordinary English words: only references in code count.
PLAIN_WORDS = {"attention", "loading", "precision", "sharding"}
# Where settings and classes share a name with an optimization: the beginnings of paths.
SAME_WORD = {
    "lib/device/backend_settings.": {"tf32", "cudnn_benchmark"},
    "lib/device/cuda/graph.cpp": {"cuda_graph"},
    "lib/roofline/": {"tf32"},
}
LIBTORCH_WORDS = re.compile(r"\b(at|aten|c10|torch)::[\w:]+|<(ATen|c10|torch)/[^>]+>")
# A comment that begins with what it lacks: "/// Of one sample.", "///< the same by label".
SUBJECTLESS = re.compile(r"//(/<|/)?\s*(of|the same|that of|those of)\b", re.IGNORECASE)
# A whole comment that only places something: "/// For tests.", "// On the host."
PLACE_ONLY = re.compile(r"^\s*///?\s+(As|At|By|For|From|In|On|To|With|Without)(\s+\S+){1,4}\.$")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


class Module:
    def __init__(self, may_use, libtorch, owns):
        self.may_use, self.libtorch, self.owns = may_use, libtorch, owns


def read_modules(text):
    """The table in lib/README.md as name -> Module, in the table's order."""
    modules = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 5 or cells[0] == "module" or set(cells[0]) == {"-"}:
            continue
        name, _, uses, libtorch, owns = cells
        may_use = set(modules) if uses == "all above" else {word.strip() for word in uses.split(",")} - {"–", ""}
        for used in may_use:
            if used not in modules and not used.endswith(".h"):
                raise SystemExit(f"lib/README.md: {name} may use {used}, which is not above it")
        modules[name] = Module(may_use, libtorch == "yes", re.findall(r"`([^`]+)`", owns))
    return modules


def module_of(path, modules):
    """`data/image` for lib/data/image/resize.cpp or the include data/image/resize.h; None if no module owns it."""
    parts = path.split("/")
    if parts[0] == "lib":
        parts = parts[1:]
    return next(
        (name for name in ("/".join(parts[:2]), parts[0]) if name in modules and len(parts) > name.count("/") + 1), None
    )


def check_include(path, quote, header, modules):
    own = module_of(path, modules)
    cuda_file = path.endswith((".cu", ".cuh")) or "/cuda/" in path
    if header == "torch/torch.h":
        yield "includes torch/torch.h: include only the headers that are used"
    elif header.startswith("torch/") and not header.startswith(TORCH_HEADERS):
        yield f"includes {header}, which is not in the short list of torch/ headers"
    if quote == "<" and CUDA.match(header) and not cuda_file and own is not None:
        yield f"includes {header} outside a folder named cuda"
    if own is None:
        return
    if quote == '"':
        target = module_of(header, modules)
        if target and target != own and not {target, header} & modules[own].may_use:
            yield f"{own} may not use {target} (lib/README.md): {header}"
        return
    if path.endswith((".cu", ".cuh")) and header.startswith(LIBTORCH):
        yield f"a .cu file includes libtorch's {header}"
    if header.startswith(LIBTORCH) and not modules[own].libtorch:
        yield f"{own} is free of libtorch (lib/README.md): {header}"
    for name, module in modules.items():
        if name != own and any(header.startswith(prefix) for prefix in module.owns):
            yield f"only {name} may include {header} (lib/README.md)"


def check_private_headers(top, paths):
    """A header under torch/csrc is included by one file of lib/, which scripts/cmake/private_headers.cmake names with
    it, and by one file each of tests/ and scripts/."""
    table = top / "scripts/cmake/private_headers.cmake"
    listed = dict(re.findall(r'^ *"(\S+)" "[^"]+" "(\S+)"', table.read_text(), re.MULTILINE)) if table.exists() else {}
    seen = {}
    for path in sorted(paths):
        if Path(path).suffix not in SOURCES or not (top / path).is_file():
            continue
        for header in re.findall(r"^#include <torch/csrc/([^>]+)>", (top / path).read_text(), re.MULTILINE):
            first = seen.setdefault((path.split("/")[0], header), path)
            if first != path:
                yield f"{path}: includes torch/csrc/{header}, as {first} does; one of them shall include the other"
            elif path.startswith("lib/") and listed.get(header) != path:
                yield f"{path}: torch/csrc/{header} is not listed with it in scripts/cmake/private_headers.cmake"


def check_built(top, paths):
    """A test beside a CMakeLists.txt that lists sources is in a list, or it would never run."""
    for path in sorted(paths):
        lists = top / Path(path).parent / "CMakeLists.txt"
        if not (path.startswith("tests/") and path.endswith(".cpp") and lists.is_file() and (top / path).is_file()):
            continue
        text = lists.read_text()
        if " SOURCES " in text.replace("\n", " ") and Path(path).name not in text:
            yield f"{path}: the CMakeLists.txt beside it does not list it, so it is not built"


def begins_without_subject(line, before):
    """`before`: the line above. The second line of a comment may begin with any word."""
    if PLACE_ONLY.match(line) and "//" not in before:
        return True
    code = STRING.sub('""', line)
    found = SUBJECTLESS.search(code)
    return bool(found) and not ("//" in before and not code[: found.start()].strip())


def check_file(path, text, modules):
    """Yields (line number, problem)."""
    yield from check_lengths(path, text)
    source = Path(path).suffix in SOURCES
    in_library = path.startswith("lib/") and source
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield number, "unfinished: " + line.strip()
        if MACHINE_PATH.search(line):
            yield number, "a path of one machine: " + line.strip()
        if in_library and HARDWARE_IF.match(line):
            yield number, "hardware #if: move the code to a file that CMake selects"
        if in_library and GETENV.search(line):
            yield number, "reads the environment outside app/"
        if source and (include := INCLUDE.match(line)):
            for problem in check_include(path, *include.groups(), modules):
                yield number, problem
        if path.startswith(("lib/", "app/")) and source and begins_without_subject(line, before):
            yield number, "a comment without a subject: " + line.strip()
        before = line


def optimization_names(top, paths):
    """The names of the folders in lib/optimizations and of the switches in its config.h."""
    names = {path.split("/")[2] for path in paths if re.match("lib/optimizations/[^/]+/", path)}
    config = top / "lib/optimizations/config.h"
    return names | set(re.findall(r'v\.(?:field|toggle)\("(\w+)"', config.read_text() if config.is_file() else ""))


def name_pattern(name):
    """Matches a name as a word or as part of one: tf32 in allow_tf32 and kTF32, winograd in winogradTiles."""
    if name in PLAIN_WORDS:
        return re.compile(rf"\b{name}::|optimizations/{name}/")
    camel = "".join(part.capitalize() for part in name.split("_"))
    lower_camel, upper = camel[0].lower() + camel[1:], name.replace("_", "").upper()
    return re.compile(
        rf"(?i:(?<![a-z0-9]){name}(?![a-z0-9]))|{camel}(?![a-z])|(?<![A-Za-z0-9]){lower_camel}(?![a-z])"
        rf"|(?<=[a-z]){upper}(?![a-z])"
    )


def check_names(path, text, names):
    """Yields (line number, problem) for each name of an optimization in lib/ and app/ where it is not allowed."""
    if not path.startswith(("lib/", "app/")) or path.endswith(".md") or path in LISTS:
        return
    here = {name for name in names if not path.startswith((f"lib/optimizations/{name}/", f"lib/kernels/{name}/"))}
    for beginning, words in SAME_WORD.items():
        if path.startswith(beginning):
            here -= words
    patterns = [(name, name_pattern(name)) for name in sorted(here)]
    for number, line in enumerate(text.splitlines(), 1):
        if path.startswith("lib/optimizations/"):
            line = line if INCLUDE.match(line) else STRING.sub("", line)  # messages may recommend another switch
        line = LIBTORCH_WORDS.sub("", line)
        for name, pattern in patterns:
            if pattern.search(line):
                yield number, f"names the optimization {name} outside its folder: {line.strip()}"


def check_tree(top, paths):
    modules = read_modules((top / "lib/README.md").read_text())
    names = optimization_names(top, paths)
    folders = {str(p.parent.relative_to(top / "lib")) for p in (top / "lib").glob("*/CMakeLists.txt")}
    for unknown in sorted(folders - set(modules)):
        yield f"lib/README.md: lib/{unknown} is not in the table"
    for path in sorted(paths):
        if Path(path).suffix not in TEXTS or not (top / path).is_file():
            continue
        try:
            text = (top / path).read_text()
        except UnicodeDecodeError:
            continue
        for number, problem in [*check_file(path, text, modules), *check_names(path, text, names)]:
            yield f"{path}:{number}: {problem}"
    yield from check_private_headers(top, paths)
    yield from check_built(top, paths)
    yield from check_rooms(top, paths)


def files_of(top):
    """The files that git tracks or would add; outside a git checkout (an exported archive), all files."""
    listed = subprocess.run(
        ["git", "-C", top, "ls-files", "-co", "--exclude-standard"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    if listed.returncode == 0:
        return listed.stdout.splitlines()
    parts = [p.relative_to(top) for p in top.rglob("*") if p.is_file()]
    return [str(p) for p in parts if not p.parts[0].startswith(("build", ".git", "runs", "data"))]


def self_test():
    table = "\n".join(
        [
            "| module | l | may use | libtorch | only |",
            "|---|---|---|---|---|",
            "| base | b | – | no | |",
            "| config | c | base | no | `yaml-cpp/` |",
            "| data/image | i | base, data/config.h | no | |",
            "| data | d | base, data/image | yes | |",
            "| kernels | k | base | yes | |",
            "| roofline | r | base | yes | |",
            "| app | a | all above | yes | |",
        ]
    )
    tree = {
        "lib/base/a.h": ('#include "data/loader.h"\n', "base may not use data"),
        "lib/config/a.cpp": ('#include "data/image/a.h"\n', "config may not use data/image"),
        "lib/data/image/b.cpp": ('#include "data/loader.h"\n', "data/image may not use data"),
        "lib/base/b.cpp": ("#include <ATen/ATen.h>\n", "free of libtorch"),
        "lib/data/image/a.cpp": ("#include <c10/core/Device.h>\n", "free of libtorch"),
        "lib/data/a.cpp": ("#include <yaml-cpp/yaml.h>\n", "only config may include"),
        "lib/data/b.cpp": ("#include <torch/torch.h>\n", "torch/torch.h"),
        "lib/data/c.cpp": ("#include <torch/nn/module.h>\n", "short list"),
        "lib/data/d.cpp": ("#include <cuda_runtime.h>\n", "folder named cuda"),
        "lib/data/e.cpp": ("#ifdef USE_CUDA\n", "hardware #if"),
        "lib/data/f.cpp": ('auto x = std::getenv("A");\n', "environment"),
        "lib/data/g.cu": ("#include <ATen/ATen.h>\n", ".cu file"),
        "lib/roofline/p1.cpp": ("#include <torch/csrc/autograd/function.h>\n", "is not listed with it"),
        "tests/unit/x/CMakeLists.txt": ("trainopt_test(x SOURCES a.cpp\n  USES x)\n", None),
        "tests/unit/x/a.cpp": ("int a;\n", None),
        "tests/unit/x/b.cpp": ("int b;\n", "is not built"),
        "tests/p2.cpp": ("#include <torch/csrc/autograd/function.h>\n", None),
        "tests/p3.cpp": ("#include <torch/csrc/autograd/function.h>\n", "as tests/p2.cpp does"),
        "scripts/a.sh": ("# TO" "DO\n", "unfinished"),
        "tests/a.py": ("x = '/ro" "ot/x'\n", "machine"),
        "lib/loose/CMakeLists.txt": ("", "not in the table"),
        "lib/data/i.h": ("bool winograd;\n", "names the optimization winograd"),
        "lib/device/o.h": ("bool allow_tf32;\n", "names the optimization tf32"),
        "lib/data/j.h": ("// for tf32\n", "names the optimization tf32"),
        "lib/data/k1.h": ("constexpr bool kTF32 = true;\n", "names the optimization tf32"),
        "lib/data/k2.cpp": ("context.setAllowTF32CuBLAS(true);\n", "names the optimization tf32"),
        "lib/data/k3.cpp": ("int winogradTiles = 4;\n", "names the optimization winograd"),
        "lib/data/k.h": ("struct WinogradTiles;\n", "names the optimization winograd"),
        "lib/data/l.h": ("loading::workers();\n", "names the optimization loading"),
        "lib/optimizations/loading/a.h": ("// after winograd\n", "names the optimization winograd"),
        "lib/data/m.h": ("int a;  ///< of one sample\n", "without a subject"),
        "lib/data/n.h": ("/// The same by label.\nint a;\n", "without a subject"),
        "lib/data/q.h": ("int a;  ///< those of one sample\n", "without a subject"),
        "app/b.cpp": ("// Of one sample.\n", "without a subject"),
        "app/b2.cpp": ("  /// For tests.\n", "without a subject"),
        "app/a.cpp": ('text = "optimizations.tf32";\n', "names the optimization tf32"),
        **PLANTED,
        **PLANTED_ROOMS,
        # What must pass:
        "lib/data/ok.cpp": (
            '#include "data/image/a.h"\n#include "data/ok.h"\n#include "base/a.h"\n#include <ATen/ATen.h>\n',
            None,
        ),
        "lib/data/image/ok.cpp": ('#include "data/config.h"\n', None),
        "lib/data/cuda/ok.cpp": ("#include <cuda_runtime.h>\n#include <c10/cuda/CUDAStream.h>\n", None),
        "lib/config/ok.cpp": ("#include <yaml-cpp/yaml.h>\n", None),
        "lib/optimizations/config.h": ('v.field("tf32", c.tf32);\n', None),
        "lib/optimizations/winograd/winograd.h": ("namespace winograd;\n", None),
        "lib/optimizations/loading/loading.cpp": ('none("switch winograd off");\n', None),
        "lib/optimizations/loading/README.md": ("as in winograd\n", None),
        "lib/kernels/winograd/winograd.h": ("namespace winograd;\n", None),
        "lib/data/ok3.h": ('const char* text = "// of one sample";\n', None),
        "lib/roofline/ok.h": ("bool tf32;\n", None),
        "lib/data/ok2.h": ("/// The sums\n  /// of one sample.\nint a;  ///< the sum\n        ///< of b\n", None),
        "lib/device/backend_settings.h": ("bool allow_tf32; // while loading\n", None),
        "app/main.cpp": ('#include "data/loader.h"\nextern char** environ;\n', None),
    }
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        for path, (text, _) in [*tree.items(), ("lib/README.md", (table, None))]:
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            (top / path).write_text(text)
        found = list(check_tree(top, files_of(top)))
    expected = [(path, text) for path, (_, text) in tree.items() if text]
    for path, text in expected:
        hits = [line for line in found if str(Path(path).parent) in line and text in line]
        assert hits, f"not found: {path}: {text}\n" + "\n".join(found)
    assert len(found) == len(expected), "found more than was planted:\n" + "\n".join(found)
    print(f"each of {len(expected)} planted violations was found")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    elif len(sys.argv) == 2:
        top = Path(sys.argv[1]).resolve()
        problems = [*check_tree(top, files_of(top)), *check_subjects(top)]
        print("\n".join(problems) or "nothing found")
        sys.exit(1 if problems else 0)
    else:
        raise SystemExit(__doc__)
