"""Invalid recipes: exit code 2 and a message with the location, the key and the reason. Comments such as C1 name the
row of the fault table."""

import os
import re
import subprocess

import pytest

from conftest import PROGRAM, TINY, Result


def places(result):
    """(line, key) of every `file:line:column: key: message`."""
    return [(int(line), key) for line, key in re.findall(r"bad\.yaml:(\d+):\d+: ([\w.\[\]]+): ", result.err)]


# C1
def test_missing_file_and_folder(trainopt):
    trainopt.refused("check", "absent.yaml", says=["there is no such recipe", "absent.yaml"])
    (trainopt.folder / "folder.yaml").mkdir()
    trainopt.refused("check", "folder.yaml", says=["folder.yaml", "Is a directory"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
def test_unreadable_file(trainopt):
    trainopt.write("locked.yaml", TINY)
    (trainopt.folder / "locked.yaml").chmod(0)
    trainopt.refused("check", "locked.yaml", says=["locked.yaml", "Permission denied"])


# C2
@pytest.mark.parametrize(
    "text, line", [("model: {name: mlp\ndata: [", 2), ("seed: 1\n\tname: x\n", 2), ("a: b: c\n", 1)]
)
def test_syntax_error(trainopt, text, line):
    trainopt.write("bad.yaml", text)
    result = trainopt.refused("check", "bad.yaml")
    found = re.search(r"bad\.yaml:(\d+):(\d+): ", result.err)
    assert found and 1 <= int(found[1]) <= line + 1, result


# C3
def test_unknown_key(trainopt):
    trainopt.write("bad.yaml", TINY + "scheduler:\n  name: linear\n  warmup_stps: 3\nfoo_quux: 1\n")
    result = trainopt.refused("check", "bad.yaml", says=["warmup_stps", "did you mean", "warmup_steps", "foo_quux"])
    assert [line for line, _ in places(result)] == [8, 9], result


def test_option_names_of_other_tools(trainopt):
    """An alias is accepted, but giving both the alias and the key is an error."""
    trainopt.write(
        "good.yaml", TINY.replace("lr: 0.01", "learning_rate: 0.01").replace("batch_size", "micro_batch_size")
    )
    assert trainopt("check", "good.yaml").code == 0
    trainopt.write("bad.yaml", TINY.replace("lr: 0.01", "lr: 0.01, learning_rate: 0.01"))
    trainopt.refused("check", "bad.yaml", says=["bad.yaml:5:", "learning_rate", "lr"])


# C4
def test_duplicate_key(trainopt):
    trainopt.write("bad.yaml", "seed: 1\nname: x\n" + "seed: 2\n")
    result = trainopt.refused("check", "bad.yaml", says=["seed"])
    assert "bad.yaml:3:" in result.err and re.search(r"line 1|:1:", result.err), result


# C5
def test_wrong_types(trainopt):
    wrong = [
        "data.batch_size=010",
        "data.num_workers=0x10",
        "train.max_steps=1e3",
        "data.size=1.0",
        "seed=99999999999999999999",
        "train.epochs=.nan",
        "optimizer.lr=.nan",
        "optimizer.momentum=abc",
        "train.label_smoothing=[1]",
        "strict=2",
        "data.dataset=imagenet",
        "model.hidden=[8, x]",
        "train.max_time=5 parsecs",
        "data.memory_limit=4 gigs",
    ]
    trainopt.write("tiny.yaml", TINY)
    result = trainopt.refused("check", "tiny.yaml", *wrong)
    lines = result.err.splitlines()
    for override in wrong:
        key, value = override.split("=", 1)
        assert any(key in line and value.strip("[]") in line for line in lines), (override, result)


def test_expected_type_is_named(trainopt):
    trainopt.write("bad.yaml", TINY.replace("size: 64", "size: many"))
    result = trainopt.refused("check", "bad.yaml", says=["many"])
    assert places(result) == [(3, "data.size")], result


# C6
def test_out_of_bounds(trainopt):
    trainopt.write(
        "bad.yaml", "data:\n  batch_size: 0\n  num_workers: 1025\noptimizer: {name: adam, lr: -1, betas: [0.9, 1.0]}\n"
    )
    result = trainopt.refused("check", "bad.yaml", says=["1024"])
    found = [(line, key.split("[")[0]) for line, key in places(result)]
    assert found == [
        (2, "data.batch_size"),
        (3, "data.num_workers"),
        (4, "optimizer.lr"),
        (4, "optimizer.betas"),
    ], result


# C7
@pytest.mark.parametrize(
    "overrides, names",
    [
        (["data.non_blocking=true"], ["data.non_blocking", "pin_memory"]),
        (["deterministic=true", "optimizations.cudnn_benchmark=true"], ["deterministic", "cudnn_benchmark"]),
        (["optimizer.nesterov=true", "optimizer.momentum=0"], ["nesterov", "momentum"]),
        (["optimizer={name: adamw, nesterov: true}"], ["nesterov", "adamw"]),
        (["data.dataset=cifar10"], ["data.path"]),
        (["data.transforms=[{normalize: {mean: 0.5, std: 1}}, {resize: 8}]"], ["data.transforms", "normalize"]),
        (["optimizer.lr_scaling=linear"], ["optimizer.reference_batch", "lr_scaling needs this"]),
        (["optimizer.groups=[bias]"], ["optimizer.groups[0]", "must be {parameters"]),
        (["optimizer.groups=[{parameters: [bias]}]"], ["optimizer.groups[0]", "changes nothing"]),
        (["optimizer.groups=[{lr: 0.1}]"], ["optimizer.groups[0]", "needs parameters"]),
        (["optimizer.groups=[{parameters: [bias], lr: -1}]"], ["optimizer.groups[0].lr", "-1"]),
        (["optimizer.groups=[{parameters: [bias], rate: 1}]"], ["optimizer.groups[0].rate"]),
        (["optimizer.lr=0", "optimizer.groups=[{parameters: [bias], lr: 1}]"], ["groups[0].lr", "lr above 0"]),
        (["optimizer.layer_decay=0"], ["optimizer.layer_decay"]),
        (["optimizer={name: muon, ns_steps: 0}"], ["optimizer.ns_steps"]),
        (["optimizer={name: muon, nesterov: true, momentum: 0}"], ["optimizer.nesterov"]),
        (["optimizer.reference_batch=8"], ["optimizer.reference_batch", "needs optimizer.lr_scaling"]),
        (["name=../tiny"], ["name", "../tiny"]),
        (['run_dir=""'], ["run_dir", "empty"]),
    ],
)
def test_contradictions(trainopt, overrides, names):
    trainopt.write("tiny.yaml", TINY)
    trainopt.refused("check", "tiny.yaml", *overrides, says=names)


# C8
def test_all_problems_at_once(trainopt):
    trainopt.write(
        "bad.yaml", "seed: x\nmodel: {name: resnet9}\ndata:\n  batch_size: 0\n  what: 1\noptimizer: {lr: -1}\n"
    )
    result = trainopt.refused("check", "bad.yaml", "train.epochs=0")
    assert [line for line, _ in places(result)] == [1, 2, 4, 5, 6], result
    assert "train.epochs" in result.err, result


# C9
@pytest.mark.parametrize(
    "name, content",
    [
        ("empty", b""),
        ("comment", b"# nothing\n"),
        ("list", b"[1, 2]\n"),
        ("two documents", b"seed: 1\n---\nseed: 2\n"),
        ("not UTF-8", b"name: \xff\xfe\n"),
        ("NUL", b"name: a\x00b\n"),
        ("merge key", b"a: &a {seed: 1}\n<<: *a\n"),
        ("tag", b"seed: !!python/object:os.system 1\n"),
        ("cycle", b"data: &d {transforms: *d}\n"),
        ("depth", b"seed: " + b"[" * 10000 + b"]" * 10000),
        ("UTF-16", "seed: 1\n".encode("utf-16")),
        ("100 MB", 100_000_000),
        ("scalar", b"x" * 1_000_000),
        ("wide", b"{" + b",".join(b"k%d: 1" % i for i in range(45_000)) + b"}"),
        ("escape", b'name: "\\N"\n'),
        (
            "bomb",
            b"a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
            + b"".join(b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 10)),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_hostile_files(trainopt, cost_of_a_good_one, name, content):
    trainopt.write("bad.yaml", content if isinstance(content, bytes) else b"")
    if isinstance(content, int):
        os.truncate(trainopt.folder / "bad.yaml", content)
    for _ in range(5):  # a busy machine makes single starts slower; a real problem shows every time
        result, *bad = cost(trainopt.folder, "bad.yaml")
        trainopt.is_refusal(result, says=["bad.yaml"])
        assert len(result.err) < 20000, name
        seconds, mebibytes = (one - other for one, other in zip(bad, cost_of_a_good_one, strict=True))
        if seconds < 1 and mebibytes < 100:
            return
    pytest.fail(f"{name}: {seconds} s, {mebibytes} MiB")


def cost(folder, recipe):
    """The result of `check`, its CPU seconds and its peak MiB, all including libtorch's share."""
    with open(folder / "out.txt", "w+") as out, open(folder / "err.txt", "w+") as err:
        process = subprocess.Popen([PROGRAM, "check", recipe], cwd=folder, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        result = Result(process.returncode, *((folder / file).read_text() for file in ("out.txt", "err.txt")))
    return result, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


@pytest.fixture(scope="module")
def cost_of_a_good_one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    (folder / "tiny.yaml").write_text(TINY)
    result, *good = cost(folder, "tiny.yaml")
    assert result.code == 0, result
    return good


def test_an_endless_file(trainopt):
    trainopt.refused("check", "/dev/zero", says=["/dev/zero", "too large"])


def test_windows_text_is_accepted(trainopt):
    trainopt.write("crlf.yaml", "\ufeff" + TINY.replace("\n", "\r\n"))
    result = trainopt("check", "crlf.yaml")
    assert result.code == 0, result


# C10
def test_bad_overrides_name_themselves(trainopt):
    trainopt.write("tiny.yaml", TINY)
    trainopt.refused("check", "tiny.yaml", "optimizer.lrr=1", says=["optimizer.lrr"])
    trainopt.refused("check", "tiny.yaml", "--train.max_steps=soon", says=["train.max_steps", "soon"])
    trainopt.refused("check", "tiny.yaml", "optimizations.amp={dtype: int3}", says=["optimizations.amp", "int3"])
    trainopt.refused("check", "tiny.yaml", "nothing.at.all=1", says=["nothing"])


# C11
def test_global_batch_that_does_not_divide(trainopt):
    trainopt.write("tiny.yaml", TINY)
    for command in ("check", "plan"):
        trainopt.refused(
            command, "tiny.yaml", "data.global_batch_size=12", says=["data.global_batch_size: ", "12, 1 × 8"]
        )
        trainopt.refused(
            command,
            "tiny.yaml",
            "data.global_batch_size=32",
            "train.gradient_accumulation_steps=2",
            says=["32, 1 × 2 × 8"],
        )


def test_check_reports_impossible_steps_with_all_other_problems(trainopt):
    """Impossible steps are found without reading data and reported with all other problems, each at its line."""
    trainopt.write(
        "bad.yaml", "seed: x\ndata:\n  size: 100\n  batch_size: 64\n  global_batch_size: 100\n  non_blocking: true\n"
    )
    result = trainopt.refused("check", "bad.yaml", says=["100, 1 × 64"])
    assert places(result) == [(1, "seed"), (5, "data.global_batch_size"), (6, "data.non_blocking")], result
    trainopt.write("bad.yaml", "seed: x\ndata:\n  size: 100\n  batch_size: 64\n  global_batch_size: 128\n")
    result = trainopt.refused(
        "check", "bad.yaml", says=["100 samples, 128 a step (ranks 1 × accumulation 2 × batch_size 64)"]
    )
    assert places(result) == [(1, "seed"), (3, "data.size")], result
    trainopt.write("bad.yaml", "data: {dataset: synthetic, batch_size: 20000}\n")
    assert places(trainopt.refused("check", "bad.yaml")) == [(1, "data.batch_size")]
    assert trainopt("check", "bad.yaml", "data.drop_last=false").code == 0


def test_strict_makes_a_switch_without_effect_an_error(trainopt):
    trainopt.write("tiny.yaml", TINY)
    machine = ["--assume", "gpus=0"]
    shown = trainopt("plan", "tiny.yaml", *machine, "data.pin_memory=true")
    assert shown.code == 0 and "pin_memory" in shown.out, shown
    trainopt.refused("plan", "tiny.yaml", *machine, "data.pin_memory=true", "strict=true", says=["pin_memory"])
    trainopt.refused("plan", "tiny.yaml", *machine, "device=cuda", says=["cuda"])


def test_a_missing_weights_file(trainopt):
    """Known before a run; only a resumed run does not need the file."""
    trainopt.write("tiny.yaml", TINY)
    for command in ("check", "plan"):
        trainopt.refused(command, "tiny.yaml", "model.weights=none.safetensors", code=4, says=["none.safetensors"])


def test_merging(trainopt):
    """Later sources win, maps merge, null restores the default, and options of a variant that is no longer selected are
    dropped."""
    trainopt.write("tiny.yaml", TINY)
    trainopt.write("more.yaml", "data: {batch_size: 4}\noptimizer: {nesterov: true}\nseed: 7\n")
    resolved = trainopt("plan", "--json", "tiny.yaml", "more.yaml", "seed=null", "optimizer.name=adamw")
    assert resolved.code == 0, resolved
    recipe = resolved.json()["recipe"]
    assert recipe["seed"] == 0 and recipe["data"]["batch_size"] == 4 and recipe["data"]["size"] == 64
    assert recipe["optimizer"]["name"] == "adamw" and "nesterov" not in recipe["optimizer"]


@pytest.mark.parametrize(
    "keys, says",
    [
        (["parallel.async_updates.staleness=1", "parallel.bucket_cap_mb=5"], "bucket_cap_mb"),
        (["parallel.async_updates.staleness=1", "optimizations.amp={dtype: float16}"], "loss scale"),
        (["parallel.sync_batch_norm=true"], "the mlp has no batch-norm"),
        (["parallel.bucket_cap_mb=1e300"], "bucket_cap_mb"),
        (
            ["model={name: resnet18}", "optimizations.fused_kernels=true", "parallel.sync_batch_norm=true"],
            "fused_kernels",
        ),
    ],
)
def test_incompatible_parallel_settings(trainopt, keys, says):
    trainopt.write("tiny.yaml", TINY)
    trainopt.refused("check", "tiny.yaml", *keys, says=[says])
