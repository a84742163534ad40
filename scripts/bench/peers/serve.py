"""Runs the job in PyTorch in one of its ways, taking turns on request. Speaks the protocol of `trainopt arm`, one JSON
object per line.

  {"turn": 3}     → {"turn": {"steps": 3, "seconds": 0.1, "losses": [2.3]}}      with the device idle at both ends
  {"facts": true} → {"facts": {"peak_memory_mib": 812.0, "torch": "2.11.0"}}
  on an error     → {"error": "…"}

Losses are read at the end of a turn: the last one, or all of them with --losses.
"""

import argparse
import json
import math
import resource
import socket
import sys
import time
import traceback

import torch

import table
import ways


def batches(chosen, job: ways.Job):
    """The batches of `trainopt data export`; without them one batch that stays on the device, endlessly."""
    if chosen.data:
        from safetensors import safe_open

        with safe_open(chosen.data, "pt") as file:
            for step in range(1, len(file.keys()) // 3 + 1):
                input, target = (file.get_tensor(f"step-{step:08d}.{what}") for what in ("input", "target"))
                yield input.to(job.device, memory_format=job.memory_format), target.to(job.device)
        raise ValueError(f"{chosen.data} has only {step} steps")
    generator = torch.Generator().manual_seed(0)
    if job.context:
        shape = (chosen.batch, job.context)
        tokens = [torch.randint(ways.GPT2["vocabulary"], shape, generator=generator).to(job.device) for _ in range(2)]
        while True:
            yield tokens
    input = torch.randn(chosen.batch, 3, chosen.side, chosen.side, generator=generator)
    target = torch.randint(chosen.classes, (chosen.batch,), generator=generator).to(job.device)
    input = input.to(job.device, memory_format=job.memory_format)
    while True:
        yield input, target


class Server:
    def __init__(self, chosen):
        here = table.ON_GPU if torch.cuda.is_available() else table.ON_CPU
        if chosen.way not in here:
            raise ValueError(
                f"cannot run here; PyTorch {'has a' if here is table.ON_GPU else 'sees no'} GPU and can run: "
                f"{', '.join(here)}"
            )
        function, layout, dtype = here[chosen.way]
        if chosen.threads:
            torch.set_num_threads(chosen.threads)
        self.job = ways.make_job(
            chosen.model, chosen.classes, chosen.side, layout, dtype, chosen.learning_rate, chosen.weights
        )
        self.step, self.batches, self.every_loss = (
            getattr(ways, function)(self.job),
            batches(chosen, self.job),
            chosen.losses,
        )

    def wait(self) -> None:
        if self.job.device.type == "cuda":
            torch.cuda.synchronize()

    def turn(self, steps: int) -> dict:
        self.wait()
        losses, began = [], time.monotonic()
        for _ in range(steps):
            loss = self.step(*next(self.batches))
            if self.every_loss:
                losses.append(loss.clone())
        losses = [each.item() for each in losses or [loss]]
        self.wait()
        seconds = time.monotonic() - began
        if not all(map(math.isfinite, losses)):
            raise ArithmeticError(f"non-finite losses: {losses}")
        return {"steps": steps, "seconds": seconds, "losses": losses}

    def facts(self) -> dict:
        on_gpu = self.job.device.type == "cuda"
        peak = torch.cuda.max_memory_reserved() if on_gpu else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {
            "peak_memory_mib": round(peak / 2**20, 1),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--socket", type=int, required=True, help="descriptor of the socket")
    options.add_argument("--way", required=True)
    options.add_argument("--model", required=True)
    options.add_argument("--classes", type=int, required=True)
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--side", type=int, required=True)
    options.add_argument("--threads", type=int, default=0)
    options.add_argument("--learning-rate", type=float, required=True)
    options.add_argument("--weights", help="safetensors with torchvision's names")
    options.add_argument("--data", help="file that trainopt data export wrote")
    options.add_argument("--losses", action="store_true")
    chosen = options.parse_args()
    with socket.socket(fileno=chosen.socket).makefile("rw") as asked:

        def say(answer: dict) -> None:
            asked.write(json.dumps(answer) + "\n")
            asked.flush()

        try:
            server = Server(chosen)
            say({"ready": True})
            for line in asked:
                request = json.loads(line)
                say({"turn": server.turn(request["turn"])} if "turn" in request else {"facts": server.facts()})
        except Exception as error:  # the client reports the error; the traceback is for the log
            traceback.print_exc()
            say(
                {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"}
            )
            sys.exit(1)


if __name__ == "__main__":
    main()
