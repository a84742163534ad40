"""The job in PyTorch, with one function for each way to run it that PyTorch's documentation recommends. A function
takes the job and returns its step.

table.py names them. A step trains on a batch that is already on the device and returns its loss without reading it, so
no step waits for the device. Gradients are set to None, and the update is one fused operation.
"""

import contextlib
from dataclasses import dataclass

import torch
import torchvision

LAYOUTS = {"nchw": torch.contiguous_format, "channels-last": torch.channels_last}
DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Job:
    model: torch.nn.Module
    device: torch.device
    learning_rate: float
    memory_format: torch.memory_format
    amp: torch.dtype | None
    rate_on_device: bool = False

    def autocast(self):
        return torch.autocast(self.device.type, self.amp) if self.amp else contextlib.nullcontext()

    def optimizer(self) -> torch.optim.Optimizer:
        # A recorded step would freeze a plain number; a schedule could fill this tensor.
        rate = torch.tensor(self.learning_rate, device=self.device) if self.rate_on_device else self.learning_rate
        return torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9, fused=True)


def make_job(model: str, classes: int, layout: str, dtype: str, learning_rate: float, weights: str | None) -> Job:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")  # TF32 in matrix products; convolutions use it by default
    torch.manual_seed(0)
    network = getattr(torchvision.models, model)(num_classes=classes)
    if weights:
        from safetensors.torch import load_file

        network.load_state_dict(load_file(weights))
    network = network.to(device=device, memory_format=LAYOUTS[layout])
    return Job(network, device, learning_rate, LAYOUTS[layout], DTYPES[dtype])


def eager(job: Job):
    optimizer, criterion = job.optimizer(), torch.nn.CrossEntropyLoss()

    def step(input, target):
        optimizer.zero_grad(set_to_none=True)
        with job.autocast():
            loss = criterion(job.model(input), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def eager_scaled(job: Job):
    """float16 needs loss scaling. The fused optimizer handles scale and overflow on the device."""
    optimizer, criterion, scaler = job.optimizer(), torch.nn.CrossEntropyLoss(), torch.amp.GradScaler(job.device.type)

    def step(input, target):
        optimizer.zero_grad(set_to_none=True)
        with job.autocast():
            loss = criterion(job.model(input), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def compiled(job: Job, mode: str = "default"):
    """Like eager, with the model through torch.compile."""
    optimizer, criterion, model = job.optimizer(), torch.nn.CrossEntropyLoss(), torch.compile(job.model, mode=mode)

    def step(input, target):
        optimizer.zero_grad(set_to_none=True)
        with job.autocast():
            loss = criterion(model(input), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def compiled_max_autotune(job: Job):
    return compiled(job, "max-autotune")


def recorded(job: Job):
    """The whole step, update included, recorded once as a CUDA graph and replayed on the input tensors it was recorded
    with."""
    job.rate_on_device = True
    optimizer, criterion, graph, static = job.optimizer(), torch.nn.CrossEntropyLoss(), torch.cuda.CUDAGraph(), {}

    def forward_and_update():
        with job.autocast():
            loss = criterion(job.model(static["input"]), static["target"])
        loss.backward()
        optimizer.step()
        return loss.detach()

    def record(input, target):
        static.update(input=input.clone(), target=target.clone())
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                optimizer.zero_grad(set_to_none=True)
                forward_and_update()
        torch.cuda.current_stream().wait_stream(stream)
        optimizer.zero_grad(set_to_none=True)  # so that gradients are allocated in the graph's own memory
        with torch.cuda.graph(graph):
            static["loss"] = forward_and_update()
        static["source"] = input

    def step(input, target):
        if not static:
            record(input, target)
        elif input is not static["source"]:
            static["input"].copy_(input)
            static["target"].copy_(target)
            static["source"] = input
        graph.replay()
        return static["loss"]

    return step
