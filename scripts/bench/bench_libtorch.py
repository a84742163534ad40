"""Programs that one version of torch saved, trained by a build with another libtorch.

  TRAINOPT_BINARY=build/app/trainopt scripts/bench/bench_libtorch.py --built BUILD/app/trainopt ... --python PYTHON ...

Each PYTHON, of an environment with torch and transformers, exports the same networks with the same weights. Each
program BUILD trains them five steps on one thread. A row has the two versions, how many programs were read and trained,
and the largest difference from the losses of the first pair.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import common

sys.path += [str(common.ROOT / "tests/oracle"), str(common.ROOT / "tests/unit/model/files")]

OWN = {"Net": 8, "Residual": 16, "Mixed": 16, "Effects": 8}
OWN_OF_TEXT = ("Text", "Written", "Sides")
FOREIGN = ("Llama", "GPT-2", "BERT", "ViT", "Swin", "ConvNeXt V2")
VOCABULARY = 29  # at most what each of them knows


def made(name: str):
    """(the network, an example of its input)"""
    import make_programs
    import torch

    if name in OWN:
        return getattr(make_programs, name)(), torch.randn(2, 3, OWN[name], OWN[name])
    if name in OWN_OF_TEXT:
        return getattr(make_programs, name)(), torch.zeros(2, 8, dtype=torch.int64)
    import bench_hugging_face as foreign

    model = foreign.make(name)
    images = foreign.takes_images(model)
    return model, torch.randn(2, 3, 32, 32) if images else torch.zeros(2, 32, dtype=torch.int64)


def masks_of(name: str):
    if name not in FOREIGN:
        return contextlib.nullcontext()
    import bench_hugging_face

    return bench_hugging_face.our_masks()


def export(folder: Path) -> None:
    """Runs in each of the environments. Random weights are those of the first one that ran."""
    import exported
    import torch
    from safetensors.torch import load_model, save_model

    facts = {"torch": torch.__version__, "programs": {}}
    for name in [*OWN, *OWN_OF_TEXT, *FOREIGN]:
        try:
            torch.manual_seed(0)
            model, example = made(name)
            weights = folder.parent / f"{name}.safetensors"
            if weights.exists():
                load_model(model, weights)
            else:
                save_model(model, str(weights))
            with masks_of(name):
                exported.save(model.train(), example, folder / f"{name}.pt2")
            facts["programs"][name] = list(example.shape[1:])
        except Exception as error:  # the row says what it was
            facts["programs"][name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    (folder / "facts.json").write_text(json.dumps(facts))


def losses(program: Path, path: Path, shape: list, folder: Path) -> list | str:
    """Of five steps, or what the program said instead."""
    recipe = {
        "name": "libtorch",
        "seed": 3,
        "device": "cpu",
        "num_threads": 1,
        "model": {"name": "exported", "path": str(path)},
        "data": {"dataset": "fake_cifar10", "size": 40, "batch_size": 4, "transforms": [{"resize": shape[-1]}]},
        "optimizer": {"name": "sgd", "lr": 0.005, "momentum": 0.9},
        "train": {"max_steps": 5},
        "checkpoint": {"at_end": False},
        "logging": {"sinks": ["jsonl"]},
    }
    if len(shape) == 1:
        tokens = folder / "tokens.bin"
        tokens.write_bytes(bytes(byte for i in range(4000) for byte in ((i * i + i // 7) % VOCABULARY, 0)))
        recipe["data"] = {"dataset": "tokens", "path": str(tokens), "batch_size": 4}
    run = folder / f"run-{path.stem}"
    command = [program, "run", common.write_recipe(folder, recipe, path.stem), "--run-dir", run, "--quiet"]
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1].replace(str(path), path.name)
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def libtorch_of(program: Path) -> str:
    shown = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True).stdout
    return next(line.split()[1].rstrip(",") for line in shown.splitlines() if line.startswith("libtorch"))


def row_of(program: Path, saved: Path, first: dict) -> dict:
    facts = json.loads((saved / "facts.json").read_text())
    apart, trained, problems = 0.0, 0, []
    with common.temporary_folder() as scratch:
        for name, shape in facts["programs"].items():
            if isinstance(shape, str):
                problems.append(f"{name} was not exported: {shape}")
                continue
            found = losses(program, saved / f"{name}.pt2", shape, Path(scratch))
            if isinstance(found, str):
                problems.append(f"{name}: {found}")
                continue
            trained += 1
            expected = first.setdefault(name, found)
            apart = max(apart, *(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True)))
    return {
        "saved by torch": facts["torch"],
        "libtorch of the build": libtorch_of(program),
        "programs": len(facts["programs"]),
        "read and trained": trained,
        "losses apart, at most": f"{apart:.1e}",
        "problems": "; ".join(problems).replace("|", "\\|") or "–",
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--built", type=Path, nargs="+", default=[common.trainopt_binary()])
    options.add_argument("--python", nargs="+", default=[sys.executable])
    options.add_argument("--export", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.export:
        export(chosen.export)
        return
    rows, first = [], {}
    with common.temporary_folder() as folder:
        for number, python in enumerate(chosen.python):
            saved = Path(folder) / str(number)
            saved.mkdir()
            subprocess.run([python, __file__, "--export", str(saved)], check=True)
            for program in chosen.built:
                rows.append(row_of(program, saved, first))
                print(rows[-1], file=sys.stderr, flush=True)
    common.report("libtorch", rows)


if __name__ == "__main__":
    main()
