"""Networks of Hugging Face's transformers as programs of torch.export, with small random weights: what works, and how
far 20 steps of trainopt are from those of PyTorch on the same batches, on one thread.

Uses the torch and the transformers of the Python that runs it, and writes down their versions. trainopt runs with the
libtorch that it was built with. One wrapper serves all networks and versions: `Logits`, with `mask_where_needed`.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

import common

sys.path.append(str(common.ROOT / "tests/oracle"))
import exported  # noqa: E402

VOCABULARY, TOKENS, SIDE = 128, 32, 32


def mask_where_needed(*_, mask_function, kv_length, local_size=None, **__):
    """For texts without padding: no mask where SDPA's `is_causal` says as much, and otherwise one without vmap."""
    if local_size is None or kv_length <= local_size:
        return None
    places = torch.arange(kv_length)
    return mask_function(0, 0, places[:, None], places)[None, None]


class Logits(torch.nn.Module):
    def __init__(self, network: torch.nn.Module):
        super().__init__()
        network.config.use_cache = False
        self.network = network

    def forward(self, inputs):
        return self.network(inputs).logits


# ---- networks ----

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = {"vocab_size": VOCABULARY, "max_position_embeddings": 64, **SPECIAL}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
DECODER = {**SIZES, **TEXT, "num_key_value_heads": 2}
ENCODER = {**SIZES, **TEXT, **NO_DROPOUT}
IMAGES = {**SIZES, **NO_DROPOUT, "image_size": SIDE, "patch_size": 8, "num_labels": 10}
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": VOCABULARY}
GPT2_NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": VOCABULARY}
T5_NO_DROPOUT = {"dropout_rate": 0.0, "classifier_dropout": 0.0}
SWIN = {"embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "patch_size": 2}
SWIN_NO_DROPOUT = {"drop_path_rate": 0.0, **NO_DROPOUT}
CONVNEXT = {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1], "drop_path_rate": 0.0}
DISTILBERT = {"dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4, "dropout": 0.0, "attention_dropout": 0.0}
OPT = {"word_embed_proj_dim": 64, "ffn_dim": 128, "dropout": 0.0}
PICTURES = {"image_size": SIDE, "num_labels": 10}

# Name → (class, options of its configuration). A window is shorter than the texts, so that it shows.
MODELS = {
    "Llama": ("LlamaForCausalLM", DECODER),
    "Qwen2": ("Qwen2ForCausalLM", DECODER),
    "GPT-2": ("GPT2LMHeadModel", {**GPT2, **GPT2_NO_DROPOUT}),
    "BERT": ("BertForMaskedLM", ENCODER),
    "ViT": ("ViTForImageClassification", IMAGES),
    "Mistral": ("MistralForCausalLM", {**DECODER, "sliding_window": 16}),
    "Gemma 2": ("Gemma2ForCausalLM", {**DECODER, "head_dim": 16, "sliding_window": 16}),
    "T5, encoder": ("T5ForTokenClassification", {**T5, **T5_NO_DROPOUT, "num_labels": VOCABULARY}),
    "Swin": ("SwinForImageClassification", {**SWIN, **SWIN_NO_DROPOUT, **PICTURES}),
    "ConvNeXt V2": ("ConvNextV2ForImageClassification", {**CONVNEXT, **PICTURES}),
}
MORE = {
    "Phi-3": ("Phi3ForCausalLM", DECODER),
    "RoBERTa": ("RobertaForMaskedLM", ENCODER),
    "DistilBERT": ("DistilBertForMaskedLM", {**DISTILBERT, "vocab_size": VOCABULARY, "max_position_embeddings": 64}),
    "OPT": ("OPTForCausalLM", {**SIZES, **TEXT, **OPT}),
    "GPT-NeoX": ("GPTNeoXForCausalLM", {**SIZES, **TEXT}),
    "DeiT": ("DeiTForImageClassification", IMAGES),
}


def make(name: str) -> Logits:
    kind, options = (MODELS | MORE)[name]
    network = getattr(transformers, kind)
    torch.manual_seed(0)
    return Logits(network(network.config_class(**options))).train()


def takes_images(model: Logits) -> bool:
    return model.network.main_input_name == "pixel_values"


def write_tokens(path: Path) -> Path:
    """16-bit tokens that depend on those before them, so that there is something to learn."""
    tokens = [1]
    for step in np.random.default_rng(5).integers(0, 4, 6000):
        tokens.append(int(tokens[-1] * 31 + step + 7) % VOCABULARY)
    np.asarray(tokens, dtype="<u2").tofile(path)
    return path


# ---- one row ----


class Step:
    def __init__(self, tensors: dict, number: int):
        self.input, self.target = (tensors[f"step-{number:08d}.{what}"] for what in ("input", "target"))


def trainopt(*arguments) -> str:
    command = [str(common.trainopt_binary()), *map(str, arguments)]
    waiting = {"OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | waiting)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def message(error: Exception, folder: Path) -> str:
    """Its first line, or all of a short message, fit for a cell of a table."""
    lines = [line.strip() for line in str(error).replace(f"{folder}/", "").splitlines() if line.strip()] or [""]
    text = " ".join(lines) if len(" ".join(lines)) < 400 else lines[0]
    return f"{type(error).__name__}: {text}".removeprefix("RuntimeError: exit code").replace("|", "\\|")


@contextlib.contextmanager
def our_masks():
    """PyTorch's side trains with the masks of transformers, so that a wrong one of the wrapper would show."""
    theirs = ALL_MASK_ATTENTION_FUNCTIONS["sdpa"]
    ALL_MASK_ATTENTION_FUNCTIONS.register("sdpa", mask_where_needed)
    try:
        yield
    finally:
        ALL_MASK_ATTENTION_FUNCTIONS.register("sdpa", theirs)


def masks_apart(model: Logits, inputs: torch.Tensor) -> float:
    """How far the logits with `mask_where_needed` are from those with transformers' masks, both in PyTorch."""
    with torch.no_grad():
        expected = model(inputs)
        with our_masks():
            return ((model(inputs) - expected).norm() / expected.norm()).item()


def one_bit_changed(model: Logits, name: str) -> Logits:
    """The same network with the first entry of each parameter changed by its last bit."""
    changed = make(name)
    changed.load_state_dict({key: value.clone() for key, value in model.state_dict().items()})
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.view(-1)[:1] = torch.nextafter(parameter.view(-1)[:1], torch.tensor(10.0))
    return changed


def weights_apart(ours: dict, model: Logits) -> tuple[float, str]:
    """As exported.distance. Of weights with several names, files have one."""
    theirs = model.state_dict()
    held = {tensor.data_ptr() for name, tensor in theirs.items() if name in ours}
    missing = [name for name, tensor in theirs.items() if name not in ours and tensor.data_ptr() not in held]
    if missing:
        raise AssertionError(f"weights.safetensors lacks {missing}")
    return exported.distance(ours, {name: theirs[name] for name in ours})


def numbers(name: str, model: Logits, recipe: dict, folder: Path) -> dict:
    steps, count = folder / "batches.safetensors", recipe["train"]["max_steps"]
    trainopt("data", "export", common.write_recipe(folder, recipe, "export"), "--steps", count, steps)
    steps = [Step(load_file(steps), number) for number in range(1, count + 1)]
    changed = one_bit_changed(model, name)
    masks = masks_apart(model, steps[0].input)
    theirs = exported.train(model, steps, exported.OPTIMIZER)
    exported.train(changed, steps, exported.OPTIMIZER)
    directory = folder / "run"
    shutil.rmtree(directory, ignore_errors=True)
    trainopt("run", common.write_recipe(folder, recipe, "run"), "--run-dir", directory, "--quiet")
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    losses = max(abs(row["loss"] - loss) / abs(loss) for row, loss in zip(records, theirs, strict=True))
    ours, where = weights_apart(load_file(directory / "weights.safetensors"), model)
    own, _ = exported.distance(changed.state_dict(), model.state_dict())
    return {
        "loss, first and last": f"{theirs[0]:.3f}, {theirs[-1]:.3f}",
        "losses apart": f"{losses:.1e}",
        "asked": "≤ 1e-5",
        "weights apart": f"{ours:.1e}",
        "whose": where if ours else "–",
        "PyTorch, one bit changed": f"{own:.1e}",
        "logits with either mask apart": f"{masks:.1e}",
    }


def measure(name: str, folder: Path) -> dict:
    row = {"network": name, "transformers": transformers.__version__}
    path = folder / "net.pt2"
    stage = "made"
    try:
        model = make(name)
        images = takes_images(model)
        example = torch.randn(2, 3, SIDE, SIDE) if images else torch.zeros(2, TOKENS, dtype=torch.int64)
        recipe = exported.recipe(path, SIDE)
        if not images:
            tokens = write_tokens(folder / "tokens.bin")
            recipe["data"] = {"dataset": "tokens", "path": str(tokens), "batch_size": 4}
        stage = "exported and saved"
        with our_masks():
            exported.save(model, example, path)
        row[stage] = "yes"
        stage = "plan"
        trainopt("plan", common.write_recipe(folder, recipe, "plan"))
        row[stage] = "yes"
        stage = "20 steps"
        row |= numbers(name, model, recipe, folder)
        row["found"] = json.loads(trainopt("model", "show", "--json", path))["layers"]
    except Exception as error:  # the row says what it was
        row[stage] = "no"
        row["failure"] = message(error, folder)
    return row


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="*", help=f"some of the networks: {', '.join([*MODELS, *MORE])}")
    options.add_argument("--more", action="store_true", help=f"also {', '.join(MORE)}")
    options = options.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    rows = []
    with common.temporary_folder() as folder:
        for name in options.only or list(MODELS | MORE if options.more else MODELS):
            rows.append(measure(name, Path(folder)))
            print(rows[-1], file=sys.stderr, flush=True)
    common.report("hugging_face", rows)


if __name__ == "__main__":
    main()
