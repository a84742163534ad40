"""The job in PyTorch, with torchvision's and Hugging Face's models, and one function for each way to run it that
PyTorch's documentation recommends. A function takes the job and returns its step.

table.py names them. A step trains on a batch that is already on the device and returns its loss without reading it, so
no step waits for the device. Gradients are set to None, and the update is one fused operation, unless a way says
otherwise.
"""

import contextlib
from dataclasses import dataclass

import torch
import torchvision
from torch.nn import functional

LAYOUTS = {"nchw": torch.contiguous_format, "channels-last": torch.channels_last}
DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Job:
    model: torch.nn.Module
    device: torch.device
    learning_rate: float
    memory_format: torch.memory_format
    amp: torch.dtype | None
    update: str = "sgd"  # sgd | adamw
    context: int = 0  # tokens of a sample; 0: images
    rate_on_device: bool = False
    set_to_none: bool = True
    fused: bool = True

    def autocast(self):
        return torch.autocast(self.device.type, self.amp) if self.amp else contextlib.nullcontext()

    def optimizer(self) -> torch.optim.Optimizer:
        # A recorded step would freeze a plain number; a schedule could fill this tensor.
        rate = torch.tensor(self.learning_rate, device=self.device) if self.rate_on_device else self.learning_rate
        if self.update == "adamw":
            return torch.optim.AdamW(self.model.parameters(), lr=rate, weight_decay=0.1, fused=self.fused)
        return torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9, fused=self.fused)

    def loss(self, model, input, target):
        if not self.context:
            return functional.cross_entropy(model(input), target)
        logits = model(input, use_cache=False).logits
        return functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


# As in configs/ladder/gpt2/all.yaml.
GPT2 = {"layers": 6, "heads": 6, "width": 384, "context": 256, "vocabulary": 50257}
VITS = {"vit_s_16": {"num_layers": 12, "num_heads": 6, "hidden_dim": 384, "mlp_dim": 1536}}  # not in torchvision


def make_network(model: str, classes: int, side: int) -> torch.nn.Module:
    if model == "gpt2":
        import transformers

        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                n_layer=GPT2["layers"],
                n_head=GPT2["heads"],
                n_embd=GPT2["width"],
                n_positions=GPT2["context"],
                vocab_size=GPT2["vocabulary"],
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
            )
        )
    if model in VITS:
        return torchvision.models.VisionTransformer(side, 16, num_classes=classes, **VITS[model])
    return getattr(torchvision.models, model)(num_classes=classes)


def make_job(
    model: str, classes: int, side: int, layout: str, dtype: str, learning_rate: float, weights: str | None
) -> Job:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")  # TF32 in matrix products; convolutions use it by default
    torch.manual_seed(0)
    network = make_network(model, classes, side)
    if weights:
        from safetensors.torch import load_file

        network.load_state_dict(load_file(weights))
    network = network.to(device=device, memory_format=LAYOUTS[layout])
    job = Job(network, device, learning_rate, LAYOUTS[layout], DTYPES[dtype])
    if model == "gpt2" or model.startswith("vit"):
        job.update = "adamw"
    if model == "gpt2":
        job.context = GPT2["context"]
    return job


def stepping(job: Job, model, optimizer):
    def step(input, target):
        optimizer.zero_grad(set_to_none=job.set_to_none)
        with job.autocast():
            loss = job.loss(model, input, target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def eager(job: Job):
    return stepping(job, job.model, job.optimizer())


def eager_scaled(job: Job):
    """float16 needs loss scaling. The fused optimizer handles scale and overflow on the device."""
    optimizer, scaler = job.optimizer(), torch.amp.GradScaler(job.device.type)

    def step(input, target):
        optimizer.zero_grad(set_to_none=True)
        with job.autocast():
            loss = job.loss(job.model, input, target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def plain(job: Job):
    """Like eager, with what PyTorch did before its faster ways: gradients are zeroed, and updates loop."""
    job.set_to_none, job.fused = False, False
    return eager(job)


def ipex(job: Job):
    """Intel's extension for PyTorch: its own convolutions, a fused update, and weights stored in 16 bits."""
    import intel_extension_for_pytorch

    job.fused = False  # it brings its own
    model, optimizer = intel_extension_for_pytorch.optimize(
        job.model.train(), optimizer=job.optimizer(), dtype=job.amp or torch.float32
    )
    return stepping(job, model, optimizer)


def compiled(job: Job, mode: str = "default"):
    """Like eager, with the model through torch.compile."""
    return stepping(job, torch.compile(job.model, mode=mode), job.optimizer())


def compiled_max_autotune(job: Job):
    return compiled(job, "max-autotune")


def recorded(job: Job):
    """The whole step, update included, recorded once as a CUDA graph and replayed on the input tensors it was recorded
    with."""
    job.rate_on_device = True
    optimizer, graph, static = job.optimizer(), torch.cuda.CUDAGraph(), {}

    def forward_and_update():
        with job.autocast():
            loss = job.loss(job.model, static["input"], static["target"])
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
