"""Writes the programs of the tests in this folder, without what names the machine that they were made on.

scripts/python test tests/unit/model/files/make_programs.py
"""

import json
import zipfile
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parent


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x, scale):
        return self.relu(x + self.bn(self.conv(x)) * scale)


class Net(nn.Module):
    """Two blocks that share a value without gradient, and dropout."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        scale = torch.arange(1, 9).view(1, 8, 1, 1) * 0.125
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, scale)
        return self.head(self.drop(x.mean((2, 3))))


class Noisy(nn.Module):
    """Draws also in evaluation."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(192, 10)

    def forward(self, x):
        x = x.flatten(1)
        return self.fc(x + torch.rand_like(x))


class Effects(nn.Module):
    """Writes to its input, through a view, and to a buffer that it also reads."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(192, 16)
        self.b = nn.Linear(32, 16)
        self.head = nn.Linear(16, 10)
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x):
        x = x.mul_(0.5).flatten(1)
        halves = torch.zeros(x.shape[0], 32)
        halves[:, :16] = self.a(x)
        y = self.b(halves).relu() - self.mean
        with torch.no_grad():
            self.mean.lerp_(y.mean(0), 0.25)
        return self.head(y)


class StochasticDepth(nn.Module):
    """Drops samples as torchvision does it."""

    def forward(self, x):
        kept = torch.empty([x.shape[0], 1, 1, 1]).bernoulli_(0.75)
        return x * kept.div_(0.75)


class AttentionDropout(nn.Module):
    """Three heads over eight tokens."""

    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.25 if self.training else 0.0)


class Residual(nn.Module):
    """Stem, residual block and head as torchvision's ResNets have them."""

    def __init__(self, classes=10, width=32):
        super().__init__()
        conv = {"kernel_size": 3, "padding": 1, "bias": False}
        self.stem = nn.Sequential(nn.Conv2d(3, width, **conv), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.conv1, self.bn1 = nn.Conv2d(width, width, **conv), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, **conv), nn.BatchNorm2d(width, eps=0.001, momentum=0.01)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = self.pool(self.stem(x))
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y))
        y += x
        return self.fc(self.mean(y.relu()).flatten(1))


class Text(nn.Module):
    """A transformer's block and a head that is its embedding."""

    def __init__(self, vocabulary=32, tokens=8, width=16):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.block = nn.ModuleDict(
            {"ln_1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width)}
            | {"ln_2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width)}
        )
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight
        parts = self.block["qkv"](self.block["ln_1"](x)).chunk(3, 2)
        heads = [part.unflatten(2, (2, -1)).transpose(1, 2) for part in parts]
        attended = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.block["out"](attended.transpose(1, 2).flatten(2))
        hidden = nn.functional.gelu(self.block["up"](self.block["ln_2"](x)), approximate="tanh")
        return self.head(self.ln(x + self.block["down"](hidden)))


class Sides(nn.Module):
    """Blocks that share what their input does not tell: a mask, angles, a number, and the tokens themselves."""

    def __init__(self, vocabulary=32, width=16, tokens=8):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(SidesBlock(width) for _ in range(3))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("places", torch.arange(tokens), persistent=False)
        self.register_buffer("later", torch.full((tokens, tokens), float("-inf")).triu(1))  # an additive mask
        self.register_buffer("odd", torch.arange(tokens) % 2 == 1)

    def forward(self, tokens):
        seen = (tokens > 3).unsqueeze(2)
        angles = (self.places * 0.1).cos().to(torch.float64).unsqueeze(1)
        rows = tokens.shape[0] * tokens.shape[1]
        x = self.wte(tokens) + self.later.exp().mean(1)[:, None] * self.odd[:, None]
        even = tokens[:, ::2]
        for block in self.blocks:
            x = block(x, seen, angles, rows, tokens) + even.sum(1)[:, None, None] * 0.01
        return self.head(x)


class SidesBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, seen, angles, rows, tokens):
        y = self.up((x * angles).float().reshape(rows, -1)).reshape_as(x)
        return x + self.down(y.masked_fill(seen, 0.25)).relu() * (tokens % 2).unsqueeze(2)


class Transposed(nn.Module):
    """A linear layer whose weight is in × out, as Hugging Face's Conv1D."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.2)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        sizes = x.shape[:-1] + (self.bias.shape[0],)
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(sizes)


class Written(nn.Module):
    """A causal transformer that writes out its attention, its mask and its GELU."""

    def __init__(self, vocabulary=32, width=16, tokens=8, layers=2):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(WrittenBlock(width, tokens) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class WrittenBlock(nn.Module):
    def __init__(self, width, tokens):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.packed, self.out = Transposed(width, 3 * width), Transposed(width, width)
        self.up, self.down = Transposed(width, 4 * width), Transposed(4 * width, width)
        self.register_buffer("mask", torch.ones(1, 1, tokens, tokens).tril())

    def forward(self, x):
        parts = self.packed(self.ln_1(x)).split(x.shape[2], dim=2)
        query, key, value = (part.view(*x.shape[:2], 2, -1).transpose(1, 2) for part in parts)
        scores = (query @ key.transpose(-2, -1)) * (1 / query.shape[-1] ** 0.5)
        scores = scores.masked_fill(self.mask[:, :, : x.shape[1], : x.shape[1]] == 0, float("-inf"))
        x = x + self.out((scores.softmax(-1) @ value).transpose(1, 2).reshape(x.shape))
        y = self.up(self.ln_2(x))
        y = 0.5 * y * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (y + 0.044715 * y.pow(3))))
        return x + self.down(y)


class Mixed(nn.Module):
    """Convolutions with biases, then attention over their pixels, with a scaled query, and GELU by its integral."""

    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.mix = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.fc = nn.Linear(width, 10)

    def forward(self, x):
        x = self.mix(self.stem(x)).flatten(2).transpose(1, 2)
        y = self.ln_1(x)
        heads = [part(y).unflatten(2, (2, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)]
        weights = ((heads[0] * heads[0].shape[-1] ** -0.5) @ heads[1].transpose(2, 3)).softmax(dim=-1)
        x = x + self.out((weights @ heads[2]).transpose(1, 2).flatten(2))
        y = self.up(self.ln_2(x))
        return self.fc((x + self.down(y * 0.5 * (1.0 + torch.erf(y / 2**0.5)))).mean(1))


class OwnLoss(nn.Module):
    """Computes its own loss; uses the target at its start, and a weight of its start, without gradient, at its end."""

    def __init__(self, returns_logits=True):
        super().__init__()
        self.returns_logits = returns_logits
        self.condition = nn.Embedding(10, 8)
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.head = nn.Linear(8, 10)

    def forward(self, x, target):
        x = torch.relu(self.bn(self.stem(x))) + 0.1 * self.condition(target)[:, :, None, None]
        for block in self.blocks:
            x = block(x, 1)
        logits = self.head(x.mean((2, 3)))
        loss = nn.functional.cross_entropy(logits, target, label_smoothing=0.1) + 0.01 * logits.square().mean()
        loss = loss + 0.01 * self.stem.weight.detach().square().sum()
        return (loss, logits) if self.returns_logits else loss


def write(name, model, *examples, dynamic=True):
    shapes = tuple({0: torch.export.Dim("batch")} for _ in examples) if dynamic else None
    whole = HERE / "whole.pt2"
    torch.export.save(torch.export.export(model, examples, dynamic_shapes=shapes), str(whole))
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(HERE / f"{name}.pt2", "w") as out:
        for member in source.namelist():
            content, short = source.read(member), member.split("/", 1)[1]
            if short.startswith(("data/sample_inputs", ".data/serialization_id")):
                continue
            if short == "models/model.json":
                program = json.loads(content)
                for node in program["graph_module"]["graph"]["nodes"]:
                    modules = node["metadata"].get("nn_module_stack")
                    node["metadata"] = {"nn_module_stack": modules} if modules else {}
                program["guards_code"] = []
                content = json.dumps(program)
            out.writestr(zipfile.ZipInfo(f"{name}/{short}"), content)
    whole.unlink()


def main():
    torch.manual_seed(0)
    net, image = Net(), torch.randn(2, 3, 8, 8)
    write("net", net.train(), image)
    write("net-eval", net.eval(), image)
    write("effects", Effects().train(), image)
    write("noisy", Noisy().train(), image)
    drops = [nn.Dropout2d(0.25), nn.Dropout(0.5, inplace=True)]
    write("drop", nn.Sequential(*drops, nn.Flatten(), nn.Linear(192, 192, bias=False)).train(), image)
    write("fixed", nn.Sequential(nn.Flatten(), nn.Linear(192, 10)), image, dynamic=False)
    for name, module in (("depth", StochasticDepth()), ("attention", AttentionDropout())):
        write(name, nn.Sequential(module, nn.Flatten(), nn.Linear(192, 192, bias=False)).train(), image)
    write("residual", Residual().train(), torch.randn(2, 3, 16, 16))
    tokens = torch.zeros(2, 8, dtype=torch.int64)
    write("text", Text().train(), tokens)
    write("sides", Sides().train(), tokens)
    write("written", Written().train(), tokens)
    write("mixed", Mixed().train(), torch.randn(2, 3, 16, 16))
    depthwise = [nn.Conv2d(3, 64, 3, stride=2, padding=1), nn.Conv2d(64, 64, 5, padding=2, groups=64)]
    head = [nn.BatchNorm2d(64), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    write("depthwise", nn.Sequential(*depthwise, *head).train(), torch.randn(2, 3, 16, 16))
    target = torch.zeros(2, dtype=torch.int64)
    write("own-loss", OwnLoss().train(), image, target)
    write("only-loss", OwnLoss(returns_logits=False).train(), image, target)


if __name__ == "__main__":
    main()
