"""Programs of torch.export: trained by trainopt and by PyTorch itself, from the same weights on the same batches.

Without --speed: the losses and weights after 20 steps on one thread, as distances from PyTorch's, beside the distance
that PyTorch has from itself if one bit of one input changes. With --speed: the rates of the same step in turns. With
--evaluation: the loss of one batch after eval(), by the turned training graph and by a program that was exported so.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

import common

sys.path.append(str(common.ROOT / "tests/oracle"))
import exported  # noqa: E402


class Step:
    def __init__(self, tensors: dict, number: int):
        self.input, self.target = (tensors[f"step-{number:08d}.{what}"] for what in ("input", "target"))


def trainopt(*arguments) -> None:
    done = subprocess.run([common.trainopt_binary(), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{arguments}\n{done.stderr[-2000:]}")


def batches(folder: Path, recipe: dict, count: int) -> list[Step]:
    out = folder / "batches.safetensors"
    trainopt("data", "export", common.write_recipe(folder, recipe, "export"), "--steps", count, out)
    tensors = load_file(out)
    return [Step(tensors, number) for number in range(1, count + 1)]


def run(folder: Path, recipe: dict) -> Path:
    directory = folder / "run"
    shutil.rmtree(directory, ignore_errors=True)
    trainopt("run", common.write_recipe(folder, recipe, "run"), "--run-dir", directory, "--quiet")
    return directory


def numbers(name: str, folder: Path) -> dict:
    torch.set_num_threads(1)
    make, side = exported.MODELS[name]
    torch.manual_seed(0)
    model = make().train()
    recipe = exported.recipe(exported.save(model, torch.randn(2, 3, side, side), folder / "net.pt2"), side)
    steps = batches(folder, recipe, recipe["train"]["max_steps"])
    changed = make().train()
    changed.load_state_dict({key: value.clone() for key, value in model.state_dict().items()})
    theirs = exported.train(model, steps, exported.OPTIMIZER)
    exported.train(changed, exported.one_bit_changed(steps), exported.OPTIMIZER)
    directory = run(folder, recipe)
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    apart = max(abs(row["loss"] - loss) / abs(loss) for row, loss in zip(records, theirs, strict=True))
    ours, where = exported.distance(load_file(directory / "weights.safetensors"), model.state_dict())
    own, _ = exported.distance(changed.state_dict(), model.state_dict())
    return {
        "model": name,
        "losses apart": f"{apart:.1e}",
        "weights apart": f"{ours:.1e}",
        "whose": where if ours else "–",
        "PyTorch, one bit changed": f"{own:.1e}",
    }


def speed(name: str, folder: Path, rounds: int, batch: int) -> dict:
    torch.set_num_threads(common.allowed_cores())
    make, side = exported.MODELS[name]
    torch.manual_seed(0)
    model = make().train()
    recipe = exported.recipe(exported.save(model, torch.randn(2, 3, side, side), folder / "net.pt2"), side)
    recipe |= {"num_threads": common.allowed_cores(), "train": {"max_steps": 20}, "bench": {"warmup_steps": 5}}
    recipe["data"] |= {"batch_size": batch, "size": 40 * batch}
    step = batches(folder, recipe, 1)[0]
    optimizer = torch.optim.SGD(model.parameters(), **exported.OPTIMIZER)

    def theirs() -> float:
        times = []
        for number in range(20):
            began = time.perf_counter()
            optimizer.zero_grad(set_to_none=False)
            torch.nn.functional.cross_entropy(model(step.input), step.target).backward()
            optimizer.step()
            if number >= 5:
                times.append(time.perf_counter() - began)
        return 1 / statistics.median(times)

    def ours() -> float:
        return 1000 / json.loads((run(folder, recipe) / "summary.json").read_text())["step_ms"]["p50"]

    found = common.ratio_interval(common.abba(ours, theirs, rounds))
    return {"model": name, "batch": batch} | found


def evaluation(name: str, folder: Path) -> dict:
    torch.set_num_threads(1)
    make, side = exported.EVALUATED[name]
    torch.manual_seed(0)
    model = make()
    example = torch.randn(2, 3, side, side)
    recipe = exported.recipe(exported.save(model.train(), example, folder / "net.pt2"), side)
    records = torch.randint(0, 256, (30, 3073), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    records[:, 0] %= 10
    for file in ("data_batch_1", "test_batch"):  # trained in order, so that the exported batch is the evaluated one
        (folder / f"{file}.bin").write_bytes(records.numpy().tobytes())
    del recipe["data"]["size"]
    recipe["data"] |= {"dataset": "cifar10", "path": str(folder), "batch_size": 30, "shuffle": False}
    recipe["train"]["max_steps"] = 1
    batch = batches(folder, recipe, 1)[0]
    row = {"model": name}
    for way in ("turned", "exported after eval()"):
        if way != "turned":
            evaluated = exported.save(model.eval(), example, folder / "net-eval.pt2")
            recipe["model"]["evaluation_path"] = str(evaluated)
        directory = run(folder, recipe)
        model.load_state_dict(load_file(directory / "weights.safetensors"))
        with torch.no_grad():
            theirs = torch.nn.functional.cross_entropy(model.eval()(batch.input), batch.target).item()
        ours = json.loads((directory / "summary.json").read_text())["evaluation"]["loss"]
        row |= {f"{way}: loss": ours, f"{way}: apart from PyTorch's": abs(ours - theirs)}
    return row


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="*", help="some of the models")
    options.add_argument("--speed", action="store_true")
    options.add_argument("--evaluation", action="store_true")
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--batch", type=int, default=8)
    chosen = options.parse_args()
    names = chosen.only or list(exported.EVALUATED if chosen.evaluation else exported.MODELS)
    with common.temporary_folder() as folder:
        if chosen.evaluation:
            rows = [evaluation(name, Path(folder)) for name in names]
        elif chosen.speed:
            rows = [speed(name, Path(folder), chosen.rounds, chosen.batch) for name in names]
        else:
            rows = [numbers(name, Path(folder)) for name in names]
    kind = "_speed" if chosen.speed else "_evaluation" if chosen.evaluation else ""
    common.report("exported" + kind, rows)


if __name__ == "__main__":
    main()
