"""Text as data, and the script that makes it. Comments such as D11 name the row of the fault table."""

import hashlib
import math
import struct
import subprocess
import sys

import pytest

from conftest import CHECKOUT

TEXT = """\
name: text
model: {name: gpt2, layers: 1, heads: 1, width: 4, context: 8, vocabulary: 100}
data: {dataset: tokens, path: text.bin, batch_size: 2, drop_last: false}
train: {max_steps: 2}
optimizer: {name: sgd, lr: 0.1}
"""
DOCUMENTS = TEXT.replace("tokens, path", "documents, path")
GPT2 = struct.pack("<256i", 20240520, 1, 41, *[0] * 253)


def tokens(*values):
    return struct.pack(f"<{len(values)}H", *values)


def ends(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def write(trainopt, recipe=TEXT, **files):
    trainopt.write("text.yaml", recipe)
    for name, content in files.items():
        trainopt.write(name.replace("_", "."), content)


# D11
@pytest.mark.parametrize(
    "content, says",
    [
        (tokens(*range(40)) + b"x", ["text.bin", "81 bytes"]),
        (tokens(*range(8)), ["text.bin", "shorter than one sample", "8 tokens, 9"]),
        (b"", ["text.bin", "0 tokens, 9"]),
        (GPT2 + tokens(*range(40)), ["text.bin", "41 tokens of 16 bits", "1104 bytes"]),
        (GPT2[:1000], ["text.bin", "ends within llm.c's header", "1000 bytes"]),
    ],
    ids=["odd length", "one token short", "empty", "cut after the header", "cut in the header"],
)
def test_token_files_that_are_cut(content, says, trainopt):
    write(trainopt, text_bin=content)
    trainopt.refused("plan", "text.yaml", code=3, says=says)


# D11
def test_a_token_outside_the_vocabulary(trainopt):
    write(trainopt, text_bin=tokens(*range(30), 100, *range(20)))
    assert trainopt("plan", "text.yaml").code == 0, "what is not read cannot be known"
    says = ["text.bin", "not below model.vocabulary (100): 100, token 30 of the file, at byte 60"]
    export = ["data", "export", "text.yaml", "data.shuffle=false", "--steps", 3, "out.safetensors"]
    trainopt.refused(*export, code=3, says=says)
    assert not (trainopt.folder / "out.safetensors").exists()


# D11
@pytest.mark.parametrize(
    "found, says",
    [
        (ends(5, 4, 20), ["text.ends", "must ascend", "document 1 ends at 4, after 5"]),
        (ends(5, 21), ["text.ends", "document 1 ends beyond the 20 tokens of its file: 21"]),
        (ends(5, 6, 20), ["text.ends", "document 1 has nothing to predict", "5 to 6"]),
        (ends(5, 19), ["text.ends", "19, 20 tokens"]),
        (ends(5, 20)[:-1], ["text.ends", "15 bytes"]),
        (None, ["text.ends", "No such file"]),
    ],
    ids=["descending", "beyond the file", "one token", "before the file's end", "odd length", "missing"],
)
def test_documents_whose_ends_are_wrong(found, says, trainopt):
    write(trainopt, DOCUMENTS, text_bin=tokens(*range(20)))
    if found is not None:
        trainopt.write("text.ends", found)
    trainopt.refused("plan", "text.yaml", code=3, says=says)


def test_the_plan_describes_text(trainopt):
    write(trainopt, text_bin=tokens(*range(41)), text_ends=ends(3, 20, 22, 41))
    (trainopt.folder / "more").mkdir()
    trainopt.write("more/1.bin", GPT2 + tokens(*range(41)))
    trainopt.write("more/2.bin", tokens(*range(17)))
    found = trainopt("plan", "text.yaml", "data.path=more")
    assert "tokens, 7 samples of 8 tokens, 2 files, 16-bit" in found.out, found
    assert "buffers of 272 B (int64)" in found.out, found
    data = trainopt("plan", "--json", "text.yaml").json()["data"]
    assert (data["dataset"], data["samples"], data["context"]) == ("tokens", 5, 8), data

    trainopt.write("text.yaml", DOCUMENTS)
    found = trainopt("plan", "text.yaml", "data.padding=bucket")
    assert "documents, 4 samples of up to 8 tokens, 1 file, 16-bit" in found.out, found
    assert "padding: bucket" in found.out, found
    assert "note: 2 of 4 documents are longer than model.context and are cut: 8 tokens" in found.out, found


def test_bench_counts_tokens(trainopt):
    write(trainopt, text_bin=tokens(*range(41)))
    found = trainopt("data", "bench", "--json", "text.yaml", "--batches", 6).json()
    assert found["tokens"] == 8 * found["samples"] > 0 and found["tokens_per_s"] > found["samples_per_s"], found
    shown = trainopt("data", "bench", "text.yaml", "--batches", 6)
    assert " tokens/s over " in shown.out, shown


# ---- make_text.py ----


def make_text(folder, *arguments, code=0):
    done = subprocess.run(
        [sys.executable, CHECKOUT / "scripts/data/make_text.py", folder, *map(str, arguments)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done
    return done.stdout + done.stderr


def contents(folder):
    return {name: struct.iter_unpack("<H", (folder / name).read_bytes()) for name in ("train.bin", "val.bin")}


def test_make_text_writes_the_library_as_bytes(tmp_path):
    shown = make_text(tmp_path / "a", "--size", "300kb")
    written = {name: bytes(token for (token,) in tokens) for name, tokens in contents(tmp_path / "a").items()}
    sizes = {name: len(text) for name, text in written.items()}
    assert 250_000 < sum(sizes.values()) <= 300_000 and 0.05 < sizes["val.bin"] / sum(sizes.values()) <= 0.1, sizes
    assert all(f"{sizes[name]:,} bytes of text" in shown for name in sizes), shown
    assert b"import " in written["train.bin"] and b"def " in written["val.bin"]
    perplexity = float(shown.rsplit("perplexity ", 1)[1])
    assert 5 < perplexity < 15, shown
    make_text(tmp_path / "b", "--size", "300kb")
    digests = {
        hashlib.sha256((tmp_path / folder / "train.bin").read_bytes()).hexdigest() for folder in ("a", "b")
    }
    assert len(digests) == 1


def test_the_figure_of_the_trigram_model(tmp_path):
    """A text in which two bytes determine the third, and one in which four values are equally likely: 0 and log 4."""
    (tmp_path / "cycle").write_bytes(bytes(range(100)) * 200)
    noise = b"".join(hashlib.sha256(bytes([n % 256, n // 256])).digest() for n in range(3000))
    (tmp_path / "noise").write_bytes(bytes(byte % 4 for byte in noise))

    def nats(name):
        shown = make_text(tmp_path / "out", "--from", tmp_path / name)
        return float(shown.split("on val: ")[1].split()[0])

    assert nats("cycle") < 0.03
    assert abs(nats("noise") - math.log(4)) < 0.01


def test_make_text_refuses_in_one_sentence(tmp_path):
    (tmp_path / "tokenizer.json").write_text("not a tokenizer")
    source = ["--from", CHECKOUT / "README.md"]
    for arguments, says in [
        (["--from", tmp_path / "nowhere"], "there is no file or folder"),
        (["--size", "2"], "too little text"),
        ([*source, "--size", "many"], "not a number of bytes: many"),
        ([*source, "--val-share", "1"], "must be between 0 and 1: 1"),
        ([*source, "--tokenizer", tmp_path / "tokenizer.json"], "tokenizer"),
    ]:
        shown = make_text(tmp_path / "out", *arguments, code=2 if "be" in says or "number" in says else 1)
        assert says in shown and "Traceback" not in shown, shown
    assert not (tmp_path / "out").exists()
