"""scripts/gpu_check, as far as it can be tested without a GPU."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import CHECKOUT, PROGRAM, ladders

BUILD = Path(PROGRAM).parents[1]
OURS = CHECKOUT / "scripts/gpu_check"
WAYS = ("eager nchw fp32", "eager channels-last bf16")


def script(path, *arguments, **environment):
    return subprocess.run(
        [sys.executable, path, *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def build(tmp_path):
    """A build folder with the real program, GPU tests that are skipped, and a kernel_bandwidth that checks its
    arguments."""
    folder = tmp_path / "build"
    (folder / "app").mkdir(parents=True)
    (folder / "app/trainopt").symlink_to(PROGRAM)
    shutil.copy(BUILD / "CMakeCache.txt", folder)
    executable(folder / "tests/gpu/test_gpu", "#!/bin/sh\necho 'skipped: no GPU'\nexit 77\n")
    row = {"pass": "statistics", "type": "Float", "mib": 98.0, "of_copy": 0.8, "copy_gb_per_s": 30.0}
    executable(
        folder / "scripts/bench/kernel_bandwidth",
        f"#!/bin/sh\n[ \"$*\" = '3 2 cpu' ] || exit 3\necho '{json.dumps(row)}'\n",
    )
    return folder


def checked(results):
    return json.loads((results / "check.json").read_text())


@pytest.mark.full  # takes minutes; each part has a quicker test below, except the ladder, which is in test_configs.py
def test_every_part_on_a_cpu(build, tmp_path):
    results = tmp_path / "results"
    done = script(OURS, "run", results, "--cpu", "--build", build, "--ways", ",".join(WAYS))
    assert done.returncode == 0, done.stderr
    found = checked(results)
    assert found["on_gpu"] is False and found["environment"]["gpus"] == []
    assert {name: part["status"] for name, part in found["parts"].items()} == {
        "tests": "skipped",
        "kernels": "ok",
        "profile": "ok",
        "peers-resnet18-4": "ok",
        "curves": "ok",
        "ladder": "ok",
    }, done.stderr
    assert found["parts"]["kernels"]["rows"][0]["gb_per_s"] == pytest.approx(24)

    peers = found["parts"]["peers-resnet18-4"]
    assert [row["PyTorch"] for row in peers["rows"]] == ["eager channels-last bf16", "eager nchw fp32"]
    for row in peers["rows"]:
        assert (
            row["low"] is None
            and row["high"] is None
            and row["ratio"] > 0
            and row["blocks"] == 3
            and row["theirs_per_s"] > 0
        ), row  # too few blocks for an interval
    assert peers["trainopt"]["effective"]["fused_optimizer"] is True and peers["trainopt"]["first_step_s"] > 0

    curves = found["parts"]["curves"]
    sides = curves["curves"]
    assert {len(losses) for losses in sides.values()} == {12}
    # The same weights and the same first batch give the same first loss to within 16-bit precision; other weights give
    # a different one.
    assert sides["PyTorch"][0] == pytest.approx(sides["trainopt"][0], rel=0.01)
    assert abs(sides["trainopt, other weights"][0] - sides["trainopt"][0]) > 0.001
    assert curves["apart"]["largest"] == max(abs(a - b) for a, b in zip(sides["trainopt"], sides["PyTorch"]))
    assert curves["spread"]["largest"] > 0.05 and curves["within"] is True, curves

    assert [row["status"] for row in found["parts"]["ladder"]["rows"]] == ["done"] * len(ladders.rungs("resnet18"))
    assert all(target["measured"] is None for target in found["targets"])  # a CPU's speeds say nothing about them
    text = (results / "check.md").read_text()
    assert "## Targets" not in text and "× PyTorch's fastest, eager" in text and "too few pairs for an interval" in text
    assert "\n- tf32 had no effect in 9a-tf32: TF32 needs an NVIDIA GPU" in text, text


def test_a_part_that_fails_does_not_stop_the_others(build, tmp_path):
    executable(build / "tests/gpu/test_gpu", "#!/bin/sh\necho 'test cases: 5 | 4 passed | 1 failed'\nexit 1\n")
    executable(build / "scripts/bench/kernel_bandwidth", "#!/bin/sh\nexit 0\n")
    results = tmp_path / "results"
    command = ("run", results, "--cpu", "--build", build, "--ways", WAYS[0], "--set", "model.stem=round")
    done = script(OURS, *command, "--only", "tests,kernels,peers")
    assert done.returncode == 1, done
    parts = checked(results)["parts"]
    assert {name: part["status"] for name, part in parts.items()} == {
        "tests": "failed",
        "kernels": "failed",
        "profile": "left out",
        "peers-resnet18-4": "failed",
        "curves": "left out",
        "ladder": "left out",
    }
    assert (
        parts["tests"]["summary"] == ["test cases: 5 | 4 passed | 1 failed"] and "no rows" in parts["kernels"]["reason"]
    )
    assert "model.stem" in parts["peers-resnet18-4"]["reason"], parts

    # --only repeats a part; the results of the others stay.
    executable(build / "tests/gpu/test_gpu", "#!/bin/sh\necho 'All tests passed (9 assertions in 5 test cases)'\n")
    done = script(OURS, *command, "--only", "tests")
    assert done.returncode == 1 and "tests: ok" in done.stdout and "kernels: failed" in done.stdout, done

    # If there is no time to repeat a part, its earlier result stays.
    done = script(OURS, *command, "--only", "tests", "--minutes", "0")
    assert done.returncode == 1 and "tests: ok" in done.stdout, done
    executable(build / "tests/gpu/test_gpu", "#!/bin/sh\nexec sleep 600\n")
    done = script(OURS, *command, "--only", "tests", "--minutes", "0.25")
    assert "gpu_check: tests, " in done.stderr and "tests: ok" in done.stdout, done
    done = script(OURS, *command[:-2], "--only", "tests")
    assert done.returncode == 2 and "have a different --set; use a new folder" in done.stderr, done


def test_parts_skipped_for_lack_of_time_run_in_the_next_call(build, tmp_path):
    results = tmp_path / "results"
    executable(build / "scripts/bench/kernel_bandwidth", "#!/bin/sh\nexec sleep 600\n")
    done = script(OURS, "run", results, "--cpu", "--build", build, "--minutes", "0.2")
    assert (
        done.returncode == 0
        and "kernels: left out (time ran out" in done.stdout
        and "curves: left out (it needs" in done.stdout
    ), done

    kept = checked(results)
    for name in ("peers-resnet18-4", "curves", "ladder"):
        kept["parts"][name] = {"status": "skipped", "reason": "as a call before said"}
    (results / "check.json").write_text(json.dumps(kept))
    executable(build / "scripts/bench/kernel_bandwidth", "#!/bin/sh\nexit 1\n")
    done = script(OURS, "run", results, "--cpu", "--build", build)
    assert (
        done.returncode == 1
        and "tests: skipped" in done.stdout
        and "kernels: failed" in done.stdout
        and "curves: skipped (as a" in done.stdout
    ), done


def test_targets_are_shown_next_to_gpu_results(build, tmp_path):
    """The program reports a GPU but PyTorch sees none, so the turns fail with a reason."""
    (build / "app/trainopt").unlink()
    executable(
        build / "app/trainopt",
        f"""#!/bin/sh
[ "$1" = env ] && echo '{{"gpus": [{{"name": "Pretended"}}], "cpu": {{"model": "x", "cores_allowed": 1}},' \\
  '"trainopt": "0", "commit": "c", "libtorch": "2", "cuda": "13", "cudnn": "9"}}' && exit
exec {PROGRAM} "$@"
""",
    )
    rows = [
        {"pass": name, "type": "Half", "mib": 98.0, "of_copy": share, "copy_gb_per_s": 4000.0}
        for name, share in (("apply", 0.9), ("pool", 0.5), ("[torch]", 0.1))
    ]
    executable(
        build / "scripts/bench/kernel_bandwidth",
        "#!/bin/sh\n[ \"$*\" = '9 256 cuda' ] || exit 3\n" + "".join(f"echo '{json.dumps(row)}'\n" for row in rows),
    )
    results = tmp_path / "results"
    done = script(
        OURS,
        "run",
        results,
        "--build",
        build,
        "--only",
        "kernels,peers-resnet18-32",
        "--ways",
        "graph",
        "--set",
        "model={name: mlp, hidden: [8]}",
        "--set",
        "data.image_size=8",
    )
    assert done.returncode == 1, done
    other = script(OURS, "run", results, "--build", build, "--cpu", "--only", "kernels")
    assert other.returncode == 2 and "have a different GPU and --set" in other.stderr, other
    found = checked(results)
    kernels = next(target for target in found["targets"] if "kernel" in target["what"])
    assert found["on_gpu"] and kernels["measured"] == 0.5 and kernels["reached"] == "no: pool, Half"
    ratio = next(
        target for target in found["targets"] if "batch 32" in target["what"] and "best graph" in target["what"]
    )
    assert ratio["measured"] is None and ratio["reached"] == "no: graph channels-last bf16 is missing"
    assert "cannot run here" in found["parts"]["peers-resnet18-32"]["reason"], done.stderr
    assert "--- graph-channels-last-bf16" in (results / "peers-resnet18-32.log").read_text()
    assert (
        "| each CUDA kernel, share of a copy's bandwidth | 0.75 | 0.9 | 0.5 | no: pool, Half |"
        in (results / "check.md").read_text()
    )


def test_a_ratio_is_judged_against_the_fastest_of_its_family(monkeypatch):
    monkeypatch.syspath_prepend(str(CHECKOUT / "scripts"))
    monkeypatch.syspath_prepend(str(CHECKOUT / "scripts/bench"))
    from gpu.targets import judged

    rows = [
        {"PyTorch": way, "ratio": ratio, "low": ratio - 0.02, "high": ratio + 0.02, "ours_per_s": 25000.0}
        for way, ratio in (
            ("compile channels-last bf16", 1.5),
            ("compile max-autotune channels-last bf16", 1.26),
            ("graph channels-last bf16", 1.0),
        )
    ]
    found = {
        row["what"]: row
        for row in judged(
            {"on_gpu": True, "parts": {"peers-resnet18-1024": {"rows": rows}, "peers-resnet18-32": {"rows": rows}}}
        )
    }
    compiled, graph = (
        found[f"ResNet-18, batch {batch}, amp: ratio against the best {family}"]
        for batch, family in ((1024, "compile"), (32, "graph"))
    )
    assert compiled["measured"] == "1.26 (1.24 to 1.28)" and compiled["reached"] == "yes, but the interval starts below"
    assert graph["reached"] == "no" and found["ResNet-18, batch 1024, amp: img/s"]["reached"] == "yes"
    assert found["ResNet-50, batch 256: img/s"]["measured"] is None

    # If one of the family has no result, the fastest is unknown.
    found = {
        row["what"]: row
        for row in judged(
            {"on_gpu": True, "parts": {"peers-resnet18-1024": {"rows": rows[:1], "left_out": [rows[1]["PyTorch"]]}}}
        )
    }
    assert (
        found["ResNet-18, batch 1024, amp: ratio against the best compile"]["reached"]
        == "no: compile max-autotune channels-last bf16 is missing"
    )


def test_parts_that_cannot_run_fail_on_a_gpu(build, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(CHECKOUT / "scripts"))
    monkeypatch.syspath_prepend(str(CHECKOUT / "scripts/bench"))
    from gpu import parts
    from gpu.place import built

    (build / "scripts/bench/kernel_bandwidth").unlink()
    for on_gpu, status in ((True, "failed"), (False, "skipped")):
        check = parts.Check(built(build), tmp_path, on_gpu, float("inf"), [], [])
        assert parts.gpu_tests(check, {})["status"] == parts.kernels(check, {})["status"] == status

    # Curves further apart than those of two seeds, and a rung that was not compared.
    monkeypatch.setattr(parts, "loss_curves", lambda *_: {"within": False})
    assert parts.curves(None)(check, {}) == {
        "status": "failed",
        "reason": "trainopt and PyTorch differ more than two seeds do",
        "within": False,
    }

    def rungs_without_comparison(check, command, _log):
        for rung in ladders.rungs("resnet18"):
            folder = check.scratch / "ladder" / rung.name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "summary.json").write_text('{"status": "done"}')
        return 0

    monkeypatch.setattr(parts.Check, "run", rungs_without_comparison)
    check.scratch = tmp_path / "scratch"
    assert parts.ladder(check, {})["status"] == "ok"
    check.on_gpu = True
    found = parts.ladder(check, {})
    assert (
        found["status"] == "failed"
        and found["reason"].count("not compared") == len(found["rows"]) - 1
        and "0-baseline" not in found["reason"]
    ), found


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="this machine has a GPU, and its driver is loaded")
def test_a_gpu_that_cannot_be_used_is_not_a_machine_without_one(build, tmp_path):
    if "TRAINOPT_CUDA:BOOL=ON" not in (build / "CMakeCache.txt").read_text():
        pytest.skip("a build without CUDA looks for no driver")
    command = ("run", tmp_path / "results", "--build", build)
    done = script(OURS, *command)
    assert done.returncode == 77 and "this machine has no GPU" in done.stderr, done
    done = script(OURS, *command, LD_LIBRARY_PATH=str(BUILD / "tests/support/fake_cuda"), FAKE_CUDA_VERSION="12080")
    assert done.returncode == 2 and "driver is too old" in done.stderr, done
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "results").exists(), done


def test_usage_errors_are_one_sentence(build, tmp_path):
    for says, done in {
        "no part begins with 'ladders'": script(
            OURS, "run", tmp_path / "results", "--cpu", "--build", build, "--only", "ladders"
        ),
        "not a build folder": script(OURS, "run", tmp_path / "results", "--build", tmp_path / "none"),
    }.items():
        assert done.returncode == 2 and says in done.stderr and len(done.stderr.splitlines()) == 1, (says, done)


@pytest.mark.parametrize("content", ["{", "{}", "[]"])
def test_results_that_cannot_be_read_are_refused(build, tmp_path, content):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/check.json").write_text(content)
    done = script(OURS, "run", tmp_path / "results", "--cpu", "--build", build, "--only", "tests")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
    assert "the earlier results cannot be read" in done.stderr, done


def test_a_folder_for_results_that_cannot_be_made_is_refused(build, tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file/in"):
        done = script(OURS, "run", folder, "--cpu", "--build", build, "--only", "tests")
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and str(folder) in done.stderr, done
