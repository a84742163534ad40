"""Fused Lion, LARS and LAMB on the CPU beside timm's, in each form that timm has or torch.compile makes of it, over
the parameters of ResNet-18. All sides in turn; a ratio is the median of the rounds'.
"""

import argparse
import statistics
import subprocess
import sys
import time

import common
import timm.optim
import torch
import torchvision

BYTES = {"lion": 20, "lars": 28, "lamb": 40}  # that a value's update reads and writes at least
CLASSES = {"lion": timm.optim.Lion, "lars": timm.optim.Lars, "lamb": timm.optim.Lamb}
SETTINGS = {
    "lion": {"lr": 1e-5, "weight_decay": 0.1},
    "lars": {"lr": 1e-3, "weight_decay": 0.1, "momentum": 0.9},
    "lamb": {"lr": 1e-5, "weight_decay": 0.1, "max_grad_norm": None},
}


class Ours:
    def __init__(self, name: str):
        program = common.ROOT / "build/scripts/bench/optimizer_speed"
        if not program.exists():
            sys.exit(f"{program} is missing: build the target optimizer_speed")
        self.process = subprocess.Popen([program, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, what: str, times: int) -> float:
        self.process.stdin.write(f"{what} {times}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline()) / times

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def forms_of(name: str) -> dict:
    """Name → a function that updates once."""
    forms = {}
    for form, more in (("loop", {"foreach": False}), ("foreach", {"foreach": True}), ("compiled", {})):
        torch.manual_seed(0)
        network = torchvision.models.resnet18()
        for parameter in network.parameters():
            parameter.grad = torch.randn_like(parameter)
        try:
            optimizer = CLASSES[name](network.parameters(), **SETTINGS[name], **more)
        except TypeError:
            if form == "foreach":
                continue
            optimizer = CLASSES[name](network.parameters(), **SETTINGS[name])
        update = torch.compile(optimizer.step) if form == "compiled" else optimizer.step
        try:
            for _ in range(3):
                update()
        except Exception as error:  # torch.compile does not take every optimizer
            print(f"{name}, {form}: {type(error).__name__}", file=sys.stderr)
            continue
        forms[form] = update
    return forms


def seconds_of(update, times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        update()
    return (time.perf_counter() - began) / times


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--updates", type=int, default=5, help="of each side in a round")
    chosen = options.parse_args()
    torch.set_num_threads(common.allowed_cores())
    values = sum(parameter.numel() for parameter in torchvision.models.resnet18().parameters())
    rows = []
    for name in BYTES:
        ours, forms = Ours(name), forms_of(name)
        ours.seconds("update", 3)
        ratios, bandwidths = {form: [] for form in forms}, []
        for turn in range(chosen.rounds):
            mine = ours.seconds("update", chosen.updates) if turn % 2 == 0 else 0.0
            theirs = {form: seconds_of(update, chosen.updates) for form, update in forms.items()}
            mine = mine or ours.seconds("update", chosen.updates)
            copy = ours.seconds("copy", 4 * chosen.updates)
            for form in forms:
                ratios[form].append(theirs[form] / mine)
            bandwidths.append((BYTES[name] * values / mine) / (8 * values / copy))
        ours.end()
        medians = {form: statistics.median(each) for form, each in ratios.items()}
        fastest = min(medians, key=medians.get)
        rows.append(
            {
                "optimizer": name,
                **{f"÷ timm, {form}": f"{medians[form]:.2f}" for form in medians},
                "÷ the fastest, by round": f"{min(ratios[fastest]):.2f} to {max(ratios[fastest]):.2f}",
                "required": 2,
                "bandwidth ÷ copy's": f"{statistics.median(bandwidths):.2f}",
                "required there": 0.6,
            }
        )
    common.report("optimizers", rows)


if __name__ == "__main__":
    main()
