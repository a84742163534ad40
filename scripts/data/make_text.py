#!/usr/bin/env python3
"""Writes text as files of tokens, for data.dataset: tokens, and says how well a simple model predicts it.

  scripts/data/make_text.py OUT [--from PATH ...] [--tokenizer FILE] [--size BYTES] [--val-share SHARE]

  OUT/train.bin, OUT/val.bin   16-bit tokens without a header (32-bit ones if the tokenizer needs them)
  --from PATH ...              files, or folders with all their files; default: the sources of Python's own standard
                               library (*.py, without its tests), which every machine has
  --tokenizer FILE             a tokenizer.json of Hugging Face's tokenizers package; default: every byte is a token
  --size BYTES                 use about this much of the text, such as 4MB; default: all of it
  --val-share SHARE            the share that goes to val.bin; default: 0.1

Files are taken in bytewise order of their paths. --size and --val-share choose whole files, spread evenly over all; a
single file gives its beginning and its end. The output is the same bytes every time.

The figure printed at the end is that of a trigram model: it predicts each byte of val.bin from the two before it, by
interpolated Kneser-Ney smoothing of the counts in train.bin. A network that has learned more than that has a lower one.
"""

import argparse
import math
import os
import sys
import sysconfig
from array import array
from collections import Counter
from pathlib import Path

UNITS = {"": 1, "k": 1e3, "kb": 1e3, "m": 1e6, "mb": 1e6, "g": 1e9, "gb": 1e9}
NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


def fail(sentence):
    sys.exit(f"make_text: {sentence}")


def byte_count(text):
    number = text.rstrip("kKmMgGbB ")
    try:
        count = float(number) * UNITS[text[len(number) :].strip().lower()]
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(f"not a number of bytes: {text}") from None
    if not 0 < count < 1e15:
        raise argparse.ArgumentTypeError(f"must be above 0: {text}")
    return int(count)


def share(text):
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1: {text}")
    return number


def files_in(root, wanted=lambda name: True, skipped=frozenset()):
    if root.is_file():
        return [root]
    if not root.is_dir():
        fail(f"there is no file or folder {root}")
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in skipped]
        found += [Path(folder, name) for name in names if wanted(name)]
    return sorted(found, key=os.fsencode)


def split(texts, part):
    """Divides the texts by whole texts, spread evenly: (a `part` of their bytes, the rest). A single text is cut."""
    if len(texts) == 1:
        cut = round(part * len(texts[0]))
        return [texts[0][len(texts[0]) - cut :]], [texts[0][: len(texts[0]) - cut]]
    chosen, rest, taken, seen = [], [], 0, 0
    for text in texts:
        seen += len(text)
        if taken + len(text) <= part * seen:
            taken += len(text)
            chosen.append(text)
        else:
            rest.append(text)
    return chosen, rest


def limited(texts, size):
    total = sum(map(len, texts))
    if size is None or size >= total:
        return texts
    return [texts[0][:size]] if len(texts) == 1 else split(texts, size / total)[0]


def tokens_of(text, tokenizer):
    if tokenizer is None:
        return array("H", iter(text))  # array(…, text) would take its bytes as they are
    ids = tokenizer.encode(text.decode(errors="replace"), add_special_tokens=False).ids
    return array("H" if tokenizer.get_vocab_size() <= 1 << 16 else "I", ids)


def load_tokenizer(path):
    if path is None:
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError:
        fail("--tokenizer needs the tokenizers package in this Python: pip install tokenizers")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing narrower
        fail(f"cannot read the tokenizer {path}: {error}")


def write(path, tokens):
    """Atomically: a run that has the earlier file mapped goes on reading that one."""
    if sys.byteorder == "big":
        tokens.byteswap()
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        tokens.tofile(file)
    os.replace(temporary, path)


def discount(counts):
    """Of Ney, Essen and Kneser 1994, from how many things were counted once and twice."""
    times = Counter(counts.values())
    return times[1] / (times[1] + 2 * times[2]) if times[1] else 0.5


class Level:
    """Predicts a byte from a context of some length: discounted counts, and what the shorter context says."""

    def __init__(self, counts, shorter):
        self.counts, self.shorter, self.discount = counts, shorter, discount(counts)
        self.total, self.kinds = Counter(), Counter()
        for gram, count in counts.items():
            self.total[gram[:-1]] += count
            self.kinds[gram[:-1]] += 1

    def probability(self, gram):
        shorter = self.shorter(gram[1:])
        total = self.total[gram[:-1]]
        if not total:
            return shorter
        counted = max(self.counts[gram] - self.discount, 0)
        return (counted + self.discount * self.kinds[gram[:-1]] * shorter) / total


def trigram_nats(train, val):
    """Mean of -log p over the bytes of `val` that have two before them. Chen and Goodman 1999, section 2.7."""
    if len(train) < 3 or len(val) < 3:
        fail(f"too little text: {len(train)} and {len(val)} bytes")
    trigrams = Counter(zip(train, train[1:], train[2:]))
    # A shorter context is asked where a longer one knows little, so what counts is in how many contexts a byte appears.
    bigrams = Counter(gram[1:] for gram in trigrams)
    unigrams = Counter(gram[1:] for gram in bigrams)
    model = Level(unigrams, lambda _: 1 / 256)
    for counts in (bigrams, trigrams):
        model = Level(counts, model.probability)
    seen = Counter(zip(val, val[1:], val[2:]))
    return -sum(count * math.log(model.probability(gram)) for gram, count in seen.items()) / (len(val) - 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--from", dest="sources", type=Path, nargs="+", metavar="PATH")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE")
    parser.add_argument("--size", type=byte_count, metavar="BYTES")
    parser.add_argument("--val-share", type=share, default=0.1, metavar="SHARE")
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.tokenizer)
    if options.sources:
        files = [file for source in options.sources for file in files_in(source)]
    else:
        files = files_in(Path(sysconfig.get_path("stdlib")), lambda name: name.endswith(".py"), NOT_LIBRARY)
    texts = limited([text for text in (file.read_bytes() for file in files) if text], options.size)
    val, train = (b"".join(part) for part in split(texts, options.val_share)) if texts else (b"", b"")
    nats = trigram_nats(train, val)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"{options.out} cannot be a folder: {error.strerror}")
    for name, text in (("train", train), ("val", val)):
        tokens = tokens_of(text, tokenizer)
        write(options.out / f"{name}.bin", tokens)
        size = f"{len(tokens):,} tokens of {8 * tokens.itemsize} bits, {len(text):,} bytes of text"
        print(f"{options.out / name}.bin: {size}")
    print(f"vocabulary: {256 if tokenizer is None else tokenizer.get_vocab_size():,}")
    bits = nats / math.log(2)
    print(f"trigram model on val: {nats:.4f} nats or {bits:.4f} bits a byte, perplexity {math.exp(nats):.3f}")
    if tokenizer is not None:
        per_token = nats * len(val) / len(tokens)
        print(f"that is {per_token:.4f} nats a token, perplexity {math.exp(per_token):.3f}")


if __name__ == "__main__":
    main()
