"""Systems that give less than usual, and input that asks for more than it should."""

import os
import re
import resource
import zlib

import pytest

from conftest import TINY, preloaded

# Refuses to start more threads than MAX_THREADS, as a full process table does.
FEW_THREADS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
typedef int (*start_t)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
  static int started;
  if (__sync_add_and_fetch(&started, 1) > atoi(getenv("MAX_THREADS"))) return EAGAIN;
  return ((start_t)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, run, with);
}
"""


@pytest.fixture
def few_threads(trainopt):
    return preloaded(trainopt, FEW_THREADS)


@pytest.mark.real_program
def test_too_few_threads_are_one_sentence_with_the_limits(trainopt, few_threads):
    trainopt.write("tiny.yaml", TINY)
    words = ["tiny.yaml", "--quiet", "num_threads=1", "data.num_workers=3"]
    trainopt.write("tokens.bin", bytes(range(256)) * 20_000)  # many blocks, whose hashes take threads
    model = "{name: gpt2, layers: 1, heads: 1, width: 8, context: 16, vocabulary: 65536}"
    tokens = re.sub("model: .*", f"model: {model}", TINY)
    tokens = re.sub("data: .*", "data: {dataset: tokens, path: tokens.bin, batch_size: 2}", tokens)
    trainopt.write("tokens.yaml", tokens)
    launch = ["launch", "-n", "2", "--", "run", *words, "parallel.timeout=5s"]
    for command in (["run", *words], launch, ["run", "tokens.yaml", *words[1:]]):
        refused = 0
        for most in (1, 2, 3, 4, 6, 9, 200):
            done = trainopt(*command, env={**few_threads, "MAX_THREADS": str(most)})
            assert done.code in (0, 5) and "terminate" not in done.err, (most, done)
            assert done.code == 0 or ("no more threads can be started" in done.err and "ulimit -u" in done.err), done
            refused += done.code == 5
        assert refused and done.code == 0, "too few are refused, and enough are enough"


@pytest.mark.real_program
def test_a_small_stack_is_raised_or_refused(trainopt):
    trainopt.write("tiny.yaml", TINY)
    words = ["run", "tiny.yaml", "--quiet", "data.num_workers=2"]
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    done = trainopt(*words, before=lambda: resource.setrlimit(resource.RLIMIT_STACK, (64 << 10, hard)))
    assert done.code == 0, done
    if os.geteuid() != 0:  # root may raise the hard limit as well
        done = trainopt(*words, before=lambda: resource.setrlimit(resource.RLIMIT_STACK, (64 << 10, 64 << 10)))
        assert done.code == 5 and "ulimit -s" in done.err, done


def test_a_class_named_by_terminal_commands_is_shown_and_not_obeyed(trainopt):
    chunk = lambda kind, data: len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
    header = bytes.fromhex("00000008 00000008 08 02 00 00 00")
    rows = zlib.compress(bytes(25 * 8))
    image = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    trainopt.write("n/\x1b]0;owned\x07\x1b[31mred/a.png", image)
    shown = trainopt("data", "show", "n")
    assert shown.code == 0 and "\\x1b]0;owned\\x07\\x1b[31mred" in shown.out, shown
    assert "\x1b" not in shown.out + shown.err and "\x07" not in shown.out + shown.err


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_cifar10_files_that_are_no_files_are_refused(trainopt, kind):
    (trainopt.folder / "c").mkdir()
    file = trainopt.folder / "c/data_batch_1.bin"
    os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero")
    trainopt.write("c.yaml", TINY.replace("dataset: fake_cifar10, size: 64", "dataset: cifar10, path: c"))
    trainopt.refused("plan", "c.yaml", code=3, says=["not a regular file", "data_batch_1.bin"])


def test_numbers_beyond_float32_are_refused_by_key(trainopt):
    trainopt.write("tiny.yaml", TINY)
    trainopt.refused("plan", "tiny.yaml", "scheduler={name: exponential, gamma: 1e300}", says=["gamma", "3.4e38"])
    trainopt.refused("plan", "tiny.yaml", "optimizer.lr=1e39", says=["optimizer.lr", "3.4e38"])
    grows = trainopt("run", "tiny.yaml", "--quiet", "scheduler={name: exponential, gamma: 1e30}")
    assert grows.code == 6 and "learning rate of step 3" in grows.err, grows


def test_a_link_that_leads_to_itself_is_a_bad_sample(trainopt):
    test_a_class_named_by_terminal_commands_is_shown_and_not_obeyed(trainopt)
    (trainopt.folder / "n").rename(trainopt.folder / "images")
    (loop := next((trainopt.folder / "images").iterdir()) / "b.jpg").symlink_to("b.jpg")
    trainopt.write("i.yaml", TINY.replace("dataset: fake_cifar10, size: 64", "dataset: image_folder, path: images"))
    words = ["i.yaml", "--quiet", "data.batch_size=1", "model.num_classes=1", "data.num_workers=0"]
    ended = trainopt("run", *words)
    assert ended.code == 3 and loop.name in ended.err, ended
