"""Commands other than training."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from conftest import CHECKOUT, PROGRAM, SHARES, TINY

BUILD = Path(PROGRAM).parents[1]


def test_version_and_help(trainopt):
    version = trainopt("--version")
    number = re.search(r"^project\(trainopt VERSION (\S+)", (CHECKOUT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]
    lines = version.out.splitlines()
    assert version.code == 0 and lines[0] == f"trainopt {number}" and len(lines) == 4, version
    commit = lines[1].split()[-1]
    assert re.fullmatch(r"commit +([0-9a-f]{12}(\+dirty)?|unknown)", lines[1]), version
    assert re.fullmatch(r"libtorch +(2\.\d+\.\d+), compiled for \1", lines[2]), version
    assert re.fullmatch(r"GPU architectures +(none|\d+\.\d+\S*( \d+\.\d+\S*)*)", lines[3]), version
    facts = trainopt("env", "--json").json()
    assert facts["trainopt"] == number and facts["commit"] == commit and facts["recipes"] is None, facts
    shown = trainopt("--help")
    assert shown.code == 0, shown
    for command in ("run", "plan", "check", "options", "data", "env"):
        assert re.search(rf"\b{command}\b", shown.out), (command, shown)


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "name a command"),
        (["trian"], "unknown command: trian"),
        (["data", "bnech"], "unknown command: bnech"),
        (["run"], "name a recipe"),
        (["run", "tiny.yaml", "--no-such-flag"], "--no-such-flag"),
        (["check", "tiny.yaml", "--optimizer.lr", "1"], "--optimizer.lr"),
        (["check", ""], "empty"),
        (["env", "extra"], "extra"),
        (["options", "data", "--no-such-flag"], "--no-such-flag"),
        (["--log-level", "loud", "check", "tiny.yaml"], "loud"),
        (["data", "bench", "tiny.yaml", "--seconds", "nan"], "nan"),
        (["data", "export", "tiny.yaml", "--steps", "0", "x.safetensors"], "above 0"),
        (["plan", "tiny.yaml", "--assume", ""], "--assume"),
    ],
)
def test_wrong_usage(trainopt, arguments, says):
    trainopt.write("tiny.yaml", TINY)
    assert len(trainopt.refused(*arguments, says=[says]).err.splitlines()) == 1


def test_export_does_not_overwrite_a_recipe(trainopt):
    trainopt.write("tiny.yaml", TINY)
    trainopt.write("more.yaml", "seed: 1\n")
    trainopt.refused("data", "export", "tiny.yaml", "--steps", "1", "more.yaml", says=["more.yaml", ".safetensors"])
    assert (trainopt.folder / "more.yaml").read_text() == "seed: 1\n"


@pytest.mark.parametrize("library, ends", [("", False), ("libz.so.1", True)], ids=["alone", "with a library"])
def test_only_libraries_that_a_user_loads_are_told_of_the_end(trainopt, library, ends):
    """A profiler's library writes its results then. Without one, libtorch's end would take half of a short command."""
    asked = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(trainopt.folder / "loader"), "LD_PRELOAD": library}
    environment = {**trainopt.environment(), **asked}
    if not library:
        del environment["LD_PRELOAD"]
    assert trainopt("--version", env=environment).code == 0
    (log,) = trainopt.folder.glob("loader.*")
    text = log.read_text()
    assert "calling init: " in text and ("calling fini: " in text) == ends, text[-2000:]


def test_results_that_cannot_be_written(trainopt):
    trainopt.write("tiny.yaml", TINY)
    with open("/dev/full", "w") as full:
        for arguments in (["options"], ["options", "--schema"], ["plan", "tiny.yaml"]):
            done = subprocess.run(
                [PROGRAM, *arguments], cwd=trainopt.folder, stdout=full, stderr=subprocess.PIPE, text=True
            )
            assert done.returncode == 8 and "standard output" in done.stderr, (arguments, done)


def test_check_is_silent_about_good_recipes(trainopt):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt("check", "tiny.yaml", "data.batch_size=4")
    assert result.code == 0 and "error" not in result.err, result
    assert list(trainopt.folder.iterdir()) == [trainopt.folder / "tiny.yaml"]


def test_options(trainopt):
    everything = trainopt("options")
    assert everything.code == 0
    for key in ("batch_size", "label_smoothing", "channels_last", "sharding_strategy", "warmup_steps"):
        assert key in everything.out, key
    one = trainopt("options", "data.batch_size")
    assert one.code == 0 and "batch_size" in one.out and "32" in one.out and "num_workers" not in one.out, one
    section = trainopt("options", "optimizer")
    assert section.code == 0 and "momentum" in section.out and "betas" in section.out, section
    trainopt.refused("options", "data.bach_size", says=["bach_size"])
    trainopt.refused("options", "data.batch", says=["did you mean 'data.batch_size'"])


def test_options_are_found_by_the_names_that_other_tools_use(trainopt):
    found = trainopt("options", "mixed", "precision")
    assert found.code == 0 and "optimizations.amp " in found.out and "in other tools: " in found.out, found
    assert "data.batch_size" not in found.out
    trainopt.refused("options", "mixup", says=["batches are not mixed"])
    for arguments in (["data", "--yaml"], ["data", "--schema"], ["--yaml", "--schema"]):
        trainopt.refused("options", *arguments, says=["excludes"])


def test_the_page_of_names_lists_every_switch_and_only_keys_that_exist(trainopt):
    page = (CHECKOUT / "app/guide/by-name.md").read_text()
    rows = re.findall(r"^\|[^|]*\|([^|]*)\|[^|]*\|$", page, re.M)
    listed = [key for row in rows for key in re.findall(r"`([\w.]+)`", row)]
    keys = re.findall(r"^[a-z]\S*", trainopt("options").out, re.M)
    for key in listed:
        assert any(one == key or one.startswith(key + ".") for one in keys) or key in ("packed", "tar"), key
    catalogue = (CHECKOUT / "lib/optimizations/README.md").read_text()
    switches = re.findall(r"^\| `\w+` \| `([\w.]+)` \|", catalogue, re.M)
    assert len(switches) > 20
    for switch in switches:
        assert any(switch == key or switch.startswith(key + ".") for key in listed), switch


def test_options_as_a_recipe_and_as_a_schema(trainopt):
    trainopt.write("all.yaml", trainopt("options", "--yaml").out)
    result = trainopt("check", "all.yaml")
    assert result.code == 0, result
    schema = trainopt("options", "--schema").json()
    assert schema["properties"]["data"]["properties"]["batch_size"]["type"] == "integer"
    assert schema["properties"]["data"]["additionalProperties"] is False


def test_plan_text_and_json(trainopt):
    trainopt.write("tiny.yaml", TINY)
    text = trainopt("plan", "tiny.yaml", "optimizations.channels_last=true")
    assert text.code == 0 and "channels_last" in text.out, text
    assert [path.name for path in trainopt.folder.iterdir()] == ["tiny.yaml"], "plan writes nothing"
    plan = trainopt("plan", "--json", "tiny.yaml").json()
    assert plan["schema_version"] >= 1 and plan["recipe"]["train"]["max_steps"] == 6


def test_plan_for_another_machine(trainopt):
    trainopt.write("tiny.yaml", TINY)
    result = trainopt("plan", "tiny.yaml", "--assume", "gpus=8,arch=sm_90,memory_gib=80")
    assert result.code == 0 and "sm_90" in result.out, result
    trainopt.refused("plan", "tiny.yaml", "--assume", "gpus=many", says=["gpus", "many"])
    trainopt.refused("plan", "tiny.yaml", "--assume", "colour=red", says=["colour"])
    for wrong, *says in [
        ("arch=sm_0", "at least 1", "arch=sm_0"),
        ("ranks=0", "at least 1", "ranks=0"),
        ("memory_gib=0", "a number above 0", "memory_gib=0"),
        ("memory_gib=-1", "a number above 0", "memory_gib=-1"),
        ("memory_gib=nan", "a number above 0", "memory_gib=nan"),
        ("memory_gib=80GiB", "such as 80 or 7.5", "memory_gib=80GiB"),
        ("gpus=1,arch=sm_80,gpus=1", "a key twice: gpus"),
        ("ranks=3,machines=2", "as many ranks on every machine", "3 ranks, 2 machines"),
    ]:
        trainopt.refused("plan", "tiny.yaml", "--assume", wrong, says=says)


@pytest.mark.skipif("TRAINOPT_CUDA:BOOL=ON" not in (BUILD / "CMakeCache.txt").read_text(), reason="built without CUDA")
@pytest.mark.parametrize("variable", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_allocator_settings_that_libtorch_cannot_read(trainopt, variable):
    """libtorch reads them while its CUDA half is loaded, so where there is a driver."""
    driver = {**trainopt.environment(), "LD_LIBRARY_PATH": str(BUILD / "tests/support/fake_cuda")}
    for wrong in ("nonsense", "max_split_size_mb:", "expandable_segments=True"):
        done = subprocess.run(
            [PROGRAM, "options", "seed"],
            env={**driver, variable: wrong},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done
        assert done.stderr.startswith("trainopt: ") and f"unset it: {variable}={wrong}\n" in done.stderr, done
    right = {**driver, variable: "expandable_segments:True,roundup_power2_divisions:[64:8,>:1]"}
    done = subprocess.run([PROGRAM, "options", "seed"], env=right, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done


def test_allocator_settings_are_read_without_a_gpu_too(trainopt):
    for wrong in ("nonsense", "max_split_size_mb:", "expandable_segments:maybe", "max_split_size_mb:x", "unheard_of:1"):
        done = subprocess.run(
            [PROGRAM, "options", "seed"],
            env={**trainopt.environment(), "PYTORCH_ALLOC_CONF": wrong},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2 and f"unset it: PYTORCH_ALLOC_CONF={wrong}\n" in done.stderr, done
    for right in ("expandable_segments:True,roundup_power2_divisions:[64:8,>:1]", "backend:native", ""):
        env = {**trainopt.environment(), "PYTORCH_ALLOC_CONF": right}
        done = subprocess.run([PROGRAM, "options", "seed"], env=env, capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == "", done


def test_env(trainopt):
    assert trainopt("env").code == 0
    facts = trainopt("env", "--json").json()
    assert facts["schema_version"] >= 1 and isinstance(facts["gpus"], list)


def test_data_bench_and_export(trainopt):
    trainopt.write("tiny.yaml", TINY)
    bench = trainopt("data", "bench", "tiny.yaml", "data.num_workers=1", "--json")
    assert bench.code == 0 and bench.json()["samples_per_s"] > 0, bench
    assert set(SHARES) <= set(bench.json()), bench
    text = trainopt("data", "bench", "tiny.yaml", "--batches", "2")
    assert re.search(r"us per sample: 0 % reading, 0 % decoding, \d+ % transforming, \d+ % other; 2 buffers", text.out)
    exported = trainopt("data", "export", "tiny.yaml", "--steps", "2", "out.safetensors")
    assert exported.code == 0, exported
    from safetensors.numpy import load_file

    tensors = load_file(trainopt.folder / "out.safetensors")
    assert any(t.shape[-3:] == (3, 8, 8) for t in tensors.values()), {k: t.shape for k, t in tensors.items()}


def test_export_has_float32_whatever_the_step_computes_in(trainopt):
    trainopt.write("tiny.yaml", TINY)
    assert trainopt("data", "export", "tiny.yaml", "device=cpu", "--steps", "2", "plain.safetensors").code == 0
    plan = trainopt("plan", "tiny.yaml", "device=cpu", "optimizations.amp=true", "optimizations.device_preprocess=true")
    assert (
        "converted on the device to bfloat16" in plan.out
        and "scaling and normalisation on the device, giving bfloat16" in plan.out
    ), plan
    for more in (["optimizations.device_preprocess=true"], ["data.cache=device"]):
        assert (
            trainopt(
                "data",
                "export",
                "tiny.yaml",
                "device=cpu",
                "optimizations.amp=true",
                *more,
                "--steps",
                "2",
                "other.safetensors",
            ).code
            == 0
        )
        assert (trainopt.folder / "other.safetensors").read_bytes() == (
            trainopt.folder / "plain.safetensors"
        ).read_bytes(), more


def test_options_with_a_closed_pipe(trainopt):
    """`trainopt options | head -1`"""
    process = trainopt.start("options")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(180) in (0, 8, -13), process.stderr.read()


def test_options_are_readable_without_a_terminal(trainopt):
    assert "\x1b[" not in trainopt("options").out


@pytest.mark.parametrize("folder", ["/", None])
def test_works_from_any_folder(tmp_path, folder):
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(TINY)
    done = subprocess.run([PROGRAM, "check", recipe], cwd=folder or tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_schema_beside_the_recipes_is_this_programs(trainopt):
    beside = CHECKOUT / "configs/recipe.schema.json"
    assert beside.read_text() == trainopt("options", "--schema").out, f"write {beside}: trainopt options --schema"


def test_the_recipes_are_valid_by_the_schema_that_they_name(trainopt):
    """Editors read the schema as draft 7, so that nothing newer may be needed."""
    import jsonschema
    import yaml

    schema = json.loads((CHECKOUT / "configs/recipe.schema.json").read_text())
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    for recipe in (CHECKOUT / "configs").rglob("*.yaml"):
        first = recipe.read_text().splitlines()[0]
        named = re.fullmatch(r"# yaml-language-server: \$schema=(.*)", first)
        assert named and (recipe.parent / named[1]).resolve() == CHECKOUT / "configs/recipe.schema.json", first
        assert not list(validator.iter_errors(yaml.safe_load(recipe.read_text()))), recipe
    assert list(validator.iter_errors({"data": {"batch_sise": 8}}))


def test_other_names_are_marked_as_deprecated_in_the_schema(trainopt):
    schema = json.loads(trainopt("options", "--schema").out)["properties"]
    train = schema["train"]["properties"]
    assert train["max_steps"].get("deprecated") is None and train["max_iters"]["deprecated"] is True
    assert train["max_iters"]["deprecationMessage"] == "another name of max_steps"


def pages():
    """Every Markdown page but those of the results of benches, which name what was run then."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.split() if "results" not in path]


def test_recipes_that_pages_name_exist():
    named = 0
    for page in pages():
        for name in re.findall(r"(?<![\w/])configs/[\w/.-]+\.yaml", (CHECKOUT / page).read_text()):
            assert (CHECKOUT / name).is_file(), f"{page} names {name}"
            named += 1
    assert named > 20
