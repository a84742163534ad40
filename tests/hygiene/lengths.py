"""Limits on the length of lines, files, functions and commit subjects."""

import re
import subprocess
from pathlib import Path

MAX_COLUMNS = 120
MAX_LINES = 600
MAX_FUNCTION = 60  # lines, in lib/ and app/, from its first line to its closing brace
MAX_SUBJECT = 72
SUBJECTS_SINCE = "efbfeff"  # the rule about subjects applies to commits after this one
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
TYPE = re.compile(r"\b(struct|class|enum|union)\b[^()]*$")
MEMBER = re.compile(r"\)\s*(noexcept\s*)?:.*\w$", re.DOTALL)  # `A(int b) : b_{b}`: the text before the brace
SCOPE = re.compile(r'\s*((inline|export)\s+)*namespace\b|\s*extern\s*"')


TABLES = {"lib/config/leads.txt"}  # data with one thing a line, which is looked up and not read


def is_recorded(path):
    """Files that a program wrote and that are stored unchanged."""
    return path.endswith((".jsonl", ".ptxas", ".schema.json")) or "/corpus/" in path


def check_columns(path, lines):
    """In Markdown, tables, code blocks and lines with a URL may be longer."""
    if is_recorded(path):
        return
    markdown, in_code = path.endswith(".md"), False
    for number, line in enumerate(lines, 1):
        if markdown and line.lstrip().startswith("```"):
            in_code = not in_code
        free = markdown and (in_code or line.lstrip().startswith("|") or "://" in line)
        if len(line) > MAX_COLUMNS and not free:
            yield number, f"{len(line)} columns, at most {MAX_COLUMNS}"


def without_texts(source):
    """C++ source without comments, literals and preprocessor lines; line breaks are preserved."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<!\w)'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*",
        re.DOTALL | re.MULTILINE,
    )
    return pattern.sub(lambda found: "\n" * found[0].count("\n"), source)


def functions(source):
    """Yields (first line, number of lines, name) of each function at file, namespace or type scope."""
    stack, head, line, first = [], "", 1, 1
    for character in without_texts(source):
        if character == "{":
            if head.count("(") != head.count(")") or MEMBER.search(head):
                kind = "value"
            elif SCOPE.match(head) or TYPE.search(head):
                kind = "scope"
            else:
                outside = all(kind == "scope" for kind, _, _ in stack)
                kind = "function" if outside and "(" in head else "block"
            stack.append((kind, first, head))
            head = ""
        elif character == "}":
            kind, began, signature = stack.pop() if stack else ("", 0, "")
            if kind == "value":
                head, first = signature, began
                continue
            if kind == "function":
                name = re.search(r"((?!__)\b[\w:~]+|operator\W+)\s*\(", signature)
                yield began, line - began + 1, name[1] if name else signature.strip()[:40]
            head = ""
        elif character == ";" and head.count("(") == head.count(")"):
            head = ""
        elif head or not character.isspace():
            if not head:
                first = line
            head += character
        line += character == "\n"


def check_lengths(path, text):
    """Yields (line number, problem)."""
    lines = text.splitlines()
    yield from check_columns(path, lines)
    ours = path.startswith(("lib/", "app/")) and Path(path).suffix in SOURCES
    if len(lines) > MAX_LINES and not is_recorded(path) and path not in TABLES:
        yield len(lines), f"{len(lines)} lines, at most {MAX_LINES}"
    for first, length, name in functions(text) if ours else ():
        if length > MAX_FUNCTION:
            yield first, f"{name} has {length} lines, at most {MAX_FUNCTION}"


def check_subjects(top):
    """Checks the commits since SUBJECTS_SINCE; none if git or that part of the history is missing."""
    since = subprocess.run(
        ["git", "-C", top, "log", "--no-merges", "--format=%h %s", f"{SUBJECTS_SINCE}..HEAD"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    for commit, _, subject in (line.partition(" ") for line in since.stdout.splitlines()):
        if len(subject) > MAX_SUBJECT:
            yield f"commit {commit}: a subject of {len(subject)} characters, at most {MAX_SUBJECT}: {subject}"


LONG_FUNCTION = "int short_one() { return 0; }\nint long_one(int a) {\n" + "  a++;\n" * MAX_FUNCTION + "}\n"
# path -> (text, the problem to be found in it); see self_test in hygiene.py.
PLANTED = {
    "lib/data/lines.h": ("\n" * (MAX_LINES + 1), f"at most {MAX_LINES}"),
    "tests/lines.cpp": ("\n" * (MAX_LINES + 1), f"at most {MAX_LINES}"),
    "configs/wide.yaml": ("name: x  # " + "x" * MAX_COLUMNS + "\n", f"at most {MAX_COLUMNS}"),
    "scripts/wide": ("x" * (MAX_COLUMNS + 1) + "\n", f"at most {MAX_COLUMNS}"),
    "docs/wide.md": ("word " * 30 + "\n", f"at most {MAX_COLUMNS}"),
    "lib/config/long.cpp": (LONG_FUNCTION, "long_one has 62 lines"),
    "app/long.cpp": ("namespace a {\nstruct B {\n" + LONG_FUNCTION + "};\n}\n", "long_one has 62 lines"),
    "lib/base/long.cpp": (
        'const char* kText = R"({)";  // {\n#define OPEN {\nA::A(int b) : b_{b}, c_({1}) {\n' + "\n" * 60 + "}\n",
        "A::A has 62 lines",
    ),
    # What must pass:
    "docs/ok.md": (
        "| " + "x" * 130 + " |\n```\n" + "x" * 130 + "\n```\nhttps://" + "x" * 130 + "\n" + "ä" * 120 + "\n",
        None,
    ),
    "tests/fuzz/corpus/recipe/wide": ("x" * 130 + "\n", None),
    "tests/results/a.jsonl": ("x" * 130 + "\n", None),
    "tests/long.cpp": (LONG_FUNCTION, None),
    "lib/base/ok.h": (
        "struct A {\n" + "  int f() { return 0; }\n" * 70 + "};\nconst int kA[] = {\n" + "0,\n" * 70 + "};\n",
        None,
    ),
}
