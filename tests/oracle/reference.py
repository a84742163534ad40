"""Runs the same recipe in plain Python PyTorch with torchvision's and Hugging Face's models."""

import contextlib
import math
from dataclasses import dataclass, field

import torch
import torchvision
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from support import Step


IGNORED = -100  # the target of padding


class Mlp(nn.Module):
    def __init__(self, inputs: int, hidden: list[int], num_classes: int):
        super().__init__()
        widths = [inputs, *hidden, num_classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x):
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        return self.layers[-1](x)


class Gpt2(nn.Module):
    """Hugging Face's GPT-2, from tokens to logits."""

    def __init__(self, model: dict):
        super().__init__()
        import transformers  # takes seconds, so only where it is used

        self.language_model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                n_layer=model["layers"],
                n_head=model["heads"],
                n_embd=model["width"],
                n_positions=model["context"],
                vocab_size=model["vocabulary"],
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
            )
        )

    def forward(self, tokens):
        return self.language_model(tokens, use_cache=False).logits

    def state_dict(self, *arguments, **options):
        """As in Hugging Face's files: without the last layer, whose weight is the embedding's."""
        tensors = self.language_model.state_dict(*arguments, **options)
        return {name: tensor for name, tensor in tensors.items() if name != "lm_head.weight"}

    def load_state_dict(self, tensors, **options):
        self.language_model.load_state_dict(tensors, strict=False)
        missing = self.state_dict().keys() ^ tensors.keys()
        assert not missing, missing

    def named_parameters(self, *arguments, **options):
        return self.language_model.named_parameters(*arguments, **options)


VITS = {
    "vit_s_16": {"patch": 16, "layers": 12, "heads": 6, "width": 384},
    "vit_b_16": {"patch": 16, "layers": 12, "heads": 12, "width": 768},
}


def build_model(model: dict) -> nn.Module:
    """`input_side` is not a recipe key; it is the image side of an MLP's or a ViT's input, 32 by default."""
    if model["name"] == "mlp":
        return Mlp(3 * model.get("input_side", 32) ** 2, model["hidden"], model["num_classes"])
    if model["name"] == "gpt2":
        return Gpt2(model)
    if model["name"].startswith("vit"):
        size = VITS.get(model["name"], model)
        return torchvision.models.VisionTransformer(
            image_size=model.get("input_side", 32),
            patch_size=size["patch"],
            num_layers=size["layers"],
            num_heads=size["heads"],
            hidden_dim=size["width"],
            mlp_dim=4 * size["width"],
            num_classes=model["num_classes"],
        )
    options = {"stochastic_depth_prob": model["stochastic_depth"]} if "stochastic_depth" in model else {}
    network = getattr(torchvision.models, model["name"])(num_classes=model["num_classes"], **options)
    if model.get("stem", "imagenet") == "cifar":
        network.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
        nn.init.kaiming_normal_(
            network.conv1.weight, mode="fan_out", nonlinearity="relu"
        )  # as torchvision's other convolutions
        network.maxpool = nn.Identity()
    return network


def save_initial_weights(model: dict, path) -> None:
    """Saves torchvision's own initialisation, with random values in place of the norms' ones and zeros and of other
    tensors that start at zero, so that swapped tensors are noticed.

    Batch-norm's biases are positive, to keep most inputs of a ReLU away from 0. Of a million inputs around 0, some lie
    within float32 rounding of the kink, and a single one on the other side changes a gradient by one per cent. Away
    from 0, PyTorch reproduces its own results to 1e-5 when its input changes by one rounding error.
    """
    torch.manual_seed(11)
    network = build_model(model)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.7, 1.3)
            nn.init.uniform_(module.bias, 1.5, 2.5)
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.running_var, 0.8, 1.2)
        if isinstance(module, nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.7, 1.3)
            nn.init.uniform_(module.bias, -0.2, 0.2)
    for name, parameter in network.named_parameters():
        if not parameter.any() or name.endswith("layer_scale"):
            nn.init.normal_(parameter, std=0.1)
    save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, path)


def schedule_factor(scheduler: dict, n: int) -> float:
    """Hugging Face's get_{constant,linear,cosine}_schedule_with_warmup, written out, at step n, counted from 0."""
    name, warmup, total = (
        scheduler.get("name", "constant"),
        scheduler.get("warmup_steps", 0),
        scheduler.get("total_steps"),
    )
    if n < warmup:
        return n / max(1, warmup)
    if name == "linear":
        return max(0.0, (total - n) / max(1, total - warmup))
    if name == "cosine":
        progress = (n - warmup) / max(1, total - warmup)
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * 2.0 * 0.5 * progress)))
    return 1.0


def one_cycle(scheduler: dict, rate: float, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.OneCycleLR:
    """Moves the optimizer's rate and momentum itself."""
    options = {key: value for key, value in scheduler.items() if key not in ("name", "max_lr")}
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=scheduler.get("max_lr", rate), **options)


def groups_of(network: nn.Module, options: dict) -> list[dict]:
    """Groups of parameters with the same weight decay and the same ratio `scale` to the common learning rate."""
    norms = {id(p) for m in network.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}

    def chosen(words: list[str], name: str, parameter: nn.Parameter) -> bool:
        return (
            ("norm" in words and id(parameter) in norms)
            or ("bias" in words and name.endswith("bias"))
            or any(name == word or name.startswith(word + ".") for word in words)
        )

    decay, layer_decay = options.get("weight_decay", 0.0), options.get("layer_decay", 1.0)
    layers = list(dict.fromkeys(name.rsplit(".", 1)[0] for name, _ in network.named_parameters()))
    members: dict[tuple, list] = {}
    for name, parameter in network.named_parameters():
        own_decay = 0.0 if chosen(options.get("no_decay", []), name, parameter) else decay
        scale = 1.0
        for group in options.get("groups", []):
            if chosen(group["parameters"], name, parameter):
                own_decay = group.get("weight_decay", own_decay)
                scale = group.get("lr", options["lr"]) / options["lr"]
        if layer_decay != 1:  # of an mlp, whose layers are its units
            scale *= layer_decay ** (len(layers) - 1 - layers.index(name.rsplit(".", 1)[0]))
        members.setdefault((scale, own_decay), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": own_decay, "scale": scale, "lr": scale * options["lr"]}
        for (scale, own_decay), parameters in members.items()
    ]


OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}


def timm_optimizer(name: str) -> type:
    import timm.optim  # takes seconds, so only where it is used

    return {"lion": timm.optim.Lion, "lars": timm.optim.Lars, "lamb": timm.optim.Lamb}[name]


class MuonAndAdamW:
    """torch.optim.Muon for matrices, torch.optim.AdamW for everything else."""

    def __init__(self, options: dict, groups: list[dict]):
        matrices, others = [], []
        adamw_scale = options.get("adamw_lr", options["lr"]) / options["lr"]
        for group in groups:
            own = {key: value for key, value in group.items() if key != "params"}
            for parameter in group["params"]:
                if parameter.dim() == 2:
                    matrices.append({**own, "params": [parameter]})
                else:
                    others.append({**own, "params": [parameter], "scale": own["scale"] * adamw_scale})
        named = ("momentum", "nesterov", "ns_coefficients", "ns_steps", "eps", "adjust_lr_fn")
        muon = {"momentum": 0.95, **{key: options[key] for key in named if key in options}}
        adamw = {
            "betas": options.get("adamw_betas", (0.9, 0.999)),
            "eps": options.get("adamw_eps", 1e-8),
        }
        self.parts = [torch.optim.Muon(matrices, **muon), torch.optim.AdamW(others, **adamw)]
        self.in_float32 = options.get("ns_dtype") == "float32"

    @property
    def param_groups(self) -> list[dict]:
        return [group for part in self.parts for group in part.param_groups]

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad()

    def step(self) -> None:
        to_bfloat16, to = torch.Tensor.bfloat16, torch.Tensor.to

        def stays(tensor, *words, **options):
            return tensor.clone() if options.get("dtype") == torch.bfloat16 else to(tensor, *words, **options)

        if self.in_float32:  # Muon of torch 2.11 calls the first, that of 2.15 the second
            torch.Tensor.bfloat16, torch.Tensor.to = torch.Tensor.clone, stays
        try:
            for part in self.parts:
                part.step()
        finally:
            torch.Tensor.bfloat16, torch.Tensor.to = to_bfloat16, to


def build_optimizer(options: dict, parameters) -> torch.optim.Optimizer:
    """The defaults are those of the recipe: momentum 0.9, and weight decay 0 for every optimizer."""
    if options["name"] == "muon":
        return MuonAndAdamW(options, parameters)
    kind = OPTIMIZERS.get(options["name"]) or timm_optimizer(options["name"])
    defaults = {"weight_decay": 0.0}
    if options["name"] == "lamb":
        defaults["max_grad_norm"] = None  # the recipe has train.max_grad_norm
    if options["name"] in ("sgd", "lars"):
        defaults["momentum"] = 0.9
    rest = {key: value for key, value in options.items() if key not in ("name", "no_decay", "groups", "layer_decay")}
    return kind(parameters, **defaults | rest)


@dataclass
class Trace:
    losses: list[float] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    loss_scales: list[float] = field(default_factory=list)
    outputs: torch.Tensor = None  # this and the next two: of the first step
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    network: nn.Module = None


def run(recipe: dict, steps: list[Step], after_step=lambda step, network: None) -> Trace:
    network = build_model(recipe["model"])
    network.load_state_dict(load_file(recipe["model"]["weights"]))
    network.train()
    options, train = recipe["optimizer"], recipe["train"]
    optimizer = build_optimizer(options, groups_of(network, options))
    scheduler = dict(recipe.get("scheduler", {}))
    scheduler["total_steps"] = scheduler.get("total_steps") or train["max_steps"]
    cycle = one_cycle(scheduler, options["lr"], optimizer) if scheduler.get("name") == "onecycle" else None
    amp = recipe.get("optimizations", {}).get("amp", False)
    amp = {"dtype": "bfloat16"} if amp is True else amp
    scaler = None
    if amp and amp["dtype"] == "float16":
        scaler = torch.amp.GradScaler(
            "cpu", init_scale=amp.get("init_scale", 65536.0), growth_interval=amp.get("growth_interval", 2000)
        )
    autocast = torch.autocast("cpu", dtype=getattr(torch, amp["dtype"])) if amp else contextlib.nullcontext()

    trace = Trace(network=network)
    for n, step in enumerate(steps):
        if cycle:
            rate = optimizer.param_groups[0]["lr"]
        else:
            rate = options["lr"] * schedule_factor(scheduler, n)
            for group in optimizer.param_groups:
                group["lr"] = rate * group["scale"]
        optimizer.zero_grad()
        outputs, loss_sum = [], 0.0
        for input, target in zip(
            step.input.split(recipe["data"]["batch_size"]), step.target.split(recipe["data"]["batch_size"])
        ):
            with autocast:
                output = network(input)
                loss = functional.cross_entropy(
                    output.flatten(0, -2), target.flatten(), label_smoothing=train.get("label_smoothing", 0.0)
                )
            share = loss.float() * ((target != IGNORED).sum() / (step.target != IGNORED).sum())
            (scaler.scale(share) if scaler else share).backward()
            loss_sum += share.item()
            outputs.append(output.detach().float())
        if scaler:
            trace.loss_scales.append(scaler.get_scale())
            scaler.unscale_(optimizer)
        if n == 0:
            trace.outputs = torch.cat(outputs)
            trace.gradients = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
        if train.get("clip_value"):
            torch.nn.utils.clip_grad_value_(network.parameters(), train["clip_value"])
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), train.get("max_grad_norm") or math.inf)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        after_step(n + 1, network)
        if cycle and n + 1 < scheduler["total_steps"]:
            cycle.step()
        if n == 0:
            trace.buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
        trace.losses.append(loss_sum)
        trace.learning_rates.append(rate)
        trace.grad_norms.append(norm.item())
    return trace


@torch.no_grad()
def evaluate(network: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    network.eval()
    logits = torch.cat([network(part) for part in inputs.split(64)])
    top5 = logits.topk(min(5, logits.shape[1]), dim=1).indices
    return {
        "loss": functional.cross_entropy(logits, targets).item(),
        "top1_pct": 100 * (top5[:, 0] == targets).double().mean().item(),
        "top5_pct": 100 * (top5 == targets[:, None]).any(1).double().mean().item(),
    }
