"""check.md, the page that gpu_check writes, from made-up results of a GPU."""

import pytest

from conftest import CHECKOUT

FAILED = """\
-------------------------------------------------------------------------------
losses of [all] models, with and without a schedule, agree with
the CPU's
  with amp
-------------------------------------------------------------------------------
tests/gpu/training.cpp:31
...............................................................................

tests/gpu/training.cpp:44: FAILED:
  CHECK( apart <= 0.01 )
with expansion:
  0.5 <= 0.01

tests/gpu/training.cpp:45: FAILED:
  CHECK( second )

-------------------------------------------------------------------------------
losses of [all] models, with and without a schedule, agree with
the CPU's
  without amp
-------------------------------------------------------------------------------
tests/gpu/training.cpp:31
...............................................................................

tests/gpu/training.cpp:50: FAILED:
  CHECK( third )

-------------------------------------------------------------------------------
a stream waits
-------------------------------------------------------------------------------
tests/gpu/stream.cpp:10
...............................................................................

tests/gpu/stream.cpp:12: FAILED:
due to unexpected exception with message:
  CUDA error: an illegal memory access was encountered

0.201 s: a stream waits
===============================================================================
test cases: 5 | 3 passed | 2 failed
"""


@pytest.fixture
def gpu(monkeypatch):
    for folder in ("scripts", "scripts/bench"):
        monkeypatch.syspath_prepend(str(CHECKOUT / folder))
    from gpu import page, parts, targets

    return page, parts, targets


def ways(ours, **ratios):
    return [
        {
            "PyTorch": f"{family} channels-last bf16",
            "ratio": ratio,
            "low": round(ratio - 0.02, 2),
            "high": round(ratio + 0.02, 2),
            "ours_per_s": ours,
            "theirs_per_s": ours / ratio,
            "first_step_s": 3.5,
            "peak_memory_mib": 8000.0,
        }
        for family, ratio in ratios.items()
    ]


def made_up(gpu):
    """Everything as it should be."""
    page, _, targets = gpu
    every = {"compile": 1.3, "compile max-autotune": 1.28, "graph": 1.2, "eager": 2.0}
    shares = {("statistics", "Half"): 0.9, ("statistics", "Float"): 0.85, ("[torch]", "Half"): 0.3}
    rung = {"status": "done", "numbers_agree": True, "idle": {}}
    results = {
        "date": "2026-11-23 12:00 UTC",
        "commit": "0123456789ab",
        "environment": {
            "schema_version": 1,
            "trainopt": "0.1.0",
            "libtorch": "2.11.0",
            "cpu": {"model": "EPYC", "cores_allowed": 16},
            "gpus": [{"index": 0, "name": "NVIDIA H100", "memory_mib": 80000}],
            "launch_variables": {},
        },
        "on_gpu": True,
        "set": ["seed=3"],
        "gpu_check": "there/gpu_check",
        "folder": "results of today",
        "test_gpu": "there/test_gpu",
        "parts": {
            "tests": {"status": "ok", "seconds": 9.0, "summary": ["All tests passed"], "failed_tests": []},
            "kernels": {
                "status": "ok",
                "rows": [
                    {"pass": name, "type": of, "mib": 98.0, "of_copy": share, "copy_gb_per_s": 2800.0}
                    for (name, of), share in shares.items()
                ],
            },
            "peers-resnet18-1024": {"status": "ok", "case": "resnet18 batch 1024", "rows": ways(26000.0, **every)},
            "peers-resnet18-32": {"status": "ok", "case": "resnet18 batch 32", "rows": ways(16000.0, **every)},
            "peers-resnet50-256": {"status": "ok", "case": "resnet50 batch 256", "rows": ways(8000.0, **every)},
            "curves": {"status": "ok", "within": True},
            "ladder": {
                "status": "ok",
                "table": "run  samples/s\n0-baseline  1",
                "rows": [{"run": "0-baseline", **rung}, {"run": "10-all", **rung}],
            },
        },
    }
    results["targets"] = targets.judged(results)
    return results


def test_a_page_without_anything_to_report(gpu):
    text = gpu[0].markdown(made_up(gpu))
    assert text.startswith("# gpu_check: 7 ok\n") and "commit 0123456789ab · NVIDIA H100" in text
    said = text.split("## What to report\n")[1]
    assert said == "Nothing: no part failed, no target was missed, every switch had its effect.\n"
    assert "| ok | – | 2 of 2 passes reach 75 % of a copy's bandwidth; slowest: statistics, Float, 85 % |" in text
    assert "1.2 × PyTorch's fastest, graph channels-last bf16 (1.18 to 1.22)" in text
    assert "| statistics | 90 % | 85 % |" in text and "| gpus | index 0, name NVIDIA H100, memory_mib 80000 |" in text
    assert "launch_variables" not in text and "resnet50 batch 256 | eager channels-last bf16 | 2 " in text
    assert len(text.splitlines()) < 75


def test_a_page_claims_only_what_was_judged(gpu):
    page, _, targets = gpu
    results = made_up(gpu)
    results["parts"]["peers-resnet50-256"] = {"status": "skipped", "reason": "too little memory"}
    results["targets"] = targets.judged(results)
    said = page.markdown(results).split("## What to report\n")[1]
    count = len(results["targets"])
    assert said == (
        f"Nothing: no part failed, {count - 1} of {count} targets were judged and none was missed, every switch had "
        "its effect.\n\nNot run: peers-resnet50-256 (too little memory).\n"
    )
    results["on_gpu"] = False
    results["parts"]["ladder"] = {"status": "skipped"}
    results["targets"] = targets.judged(results)
    said = page.markdown(results).split("## What to report\n")[1]
    assert said.startswith("Nothing: no part failed, no target was judged, no switch was observed.\n"), said
    assert said.endswith("\n\nNot run: peers-resnet50-256 (too little memory); ladder.\n"), said
    results["parts"]["curves"] = {"status": "left out", "reason": "not requested"}
    said = page.markdown(results).split("## What to report\n")[1]
    assert said.startswith("- curves is not complete: not requested\n\nNot run: peers-resnet50-256"), said


def test_a_page_ends_with_what_to_report(gpu):
    page, parts, targets = gpu
    results = made_up(gpu)
    of = results["parts"]
    failed = {"status": "failed", "reason": "test_gpu failed with exit code 2"}
    of["tests"] |= {**failed, "summary": ["2 failed"], "failed_tests": parts.failed_tests(FAILED)}
    of["kernels"]["rows"][1]["of_copy"] = 0.5
    of["peers-resnet18-1024"]["rows"] = ways(20000.0, compile=1.1)
    of["peers-resnet18-1024"] |= {"status": "left out", "left_out": ["compile max-autotune channels-last bf16"]}
    of["curves"] = {"status": "failed", "reason": "KeyError: 'a|b'\nin two lines " + 100 * "on and on "}
    of["ladder"]["rows"][1] |= {"numbers_agree": False, "idle": {"cuda_graph": "one rank only"}}
    results["targets"] = targets.judged(results)
    text = page.markdown(results)
    assert text.startswith("# gpu_check: 2 failed, 4 ok, 1 left out\n"), text
    assert "| statistics | 90 % | **50 %** |" in text
    listed, commands = text.split("## What to report\n")[1].split("\nTo repeat")
    lines = listed.splitlines()
    long = lines.pop(4)
    assert long.startswith("- curves failed: KeyError: 'a\\|b' in two lines on and on") and long.endswith("on …"), long
    assert 380 < len(long) < 410
    assert lines == [
        "- test failed: losses of [all] models, with and without a schedule, agree with the CPU's: with amp / "
        "tests/gpu/training.cpp:44: CHECK( apart <= 0.01 ) with expansion: 0.5 <= 0.01",
        "- test failed: a stream waits: tests/gpu/stream.cpp:12: due to unexpected exception with message: CUDA error: "
        "an illegal memory access was encountered",
        "- kernel statistics, Float: 50 % of a copy's bandwidth",
        "- peers-resnet18-1024 is not complete: compile max-autotune channels-last bf16",
        "- the numbers of 10-all differ from those of the rung before it",
        "- target missed: ResNet-18, batch 1024, amp: img/s: 20000, at least 24000",
        "- target missed: ResNet-18, batch 1024, amp: ratio against the best compile: 1.1 (1.08 to 1.12), at least "
        "1.25; compile max-autotune channels-last bf16 is missing",
        "- cuda_graph had no effect in 10-all: one rank only",
    ]
    assert commands.splitlines() == [
        " these parts, and the failed tests one by one:",
        "",
        "```",
        "there/gpu_check run 'results of today' --only tests,kernels,peers-resnet18-1024,curves,ladder --set seed=3",
        "there/test_gpu 'losses of \\[all] models\\, with and without a schedule\\, agree with the CPU'\"'\"'s'",
        "there/test_gpu 'a stream waits'",
        "```",
    ]


def test_a_page_of_a_check_that_has_hardly_begun(gpu):
    page, _, targets = gpu
    results = made_up(gpu)
    results["parts"] = {name: {"status": "left out", "reason": "not requested"} for name in results["parts"]}
    results["targets"] = targets.judged(results)
    text = page.markdown(results)
    assert text.startswith("# gpu_check: 7 left out\n") and "- ladder is not complete: not requested" in text


def test_a_program_that_dies_still_has_its_tests_counted(gpu):
    assert gpu[1].failed_tests("no failure\n") == []
    cut = FAILED.split("with expansion")[0]
    assert gpu[1].failed_tests(cut) == [
        {
            "test": "losses of [all] models, with and without a schedule, agree with the CPU's",
            "message": "with amp / tests/gpu/training.cpp:44: CHECK( apart <= 0.01 )",
        }
    ]
