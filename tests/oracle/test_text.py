"""Compares the batches of text with what nanoGPT's way of reading the same files gives: numpy's memmap and slices."""

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

import support

CONTEXT = 16
GPT = {"name": "gpt2", "layers": 1, "heads": 1, "width": 4, "context": CONTEXT, "vocabulary": 70_000}
LLM_C = {16: (20240520, 1), 32: (20240801, 7)}  # magic number and version of llm.c's header


def text_recipe(dataset: str, path, **data) -> dict:
    data = {"dataset": dataset, "path": str(path), "transforms": [], "drop_last": False, **data}
    return support.recipe({"model": GPT, "data": data})


def write_tokens(path, count: int, bits: int, header: bool, seed: int) -> np.ndarray:
    tokens = np.random.default_rng(seed).integers(0, 50_000 if bits == 16 else 70_000, count)
    tokens = tokens.astype(f"<u{bits // 8}")
    start = np.zeros(256, dtype="<i4")
    start[:3] = *LLM_C[bits], count
    path.write_bytes((start.tobytes() if header else b"") + tokens.tobytes())
    return np.memmap(path, dtype=tokens.dtype, mode="r", offset=1024 if header else 0)


def samples(steps: list[support.Step]) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """Sample id -> (input, target). Each sample is there once."""
    found = {}
    for step in steps:
        for sample, row, target in zip(step.sample_id.tolist(), step.input, step.target):
            assert sample not in found
            found[sample] = row, target
    return found


@pytest.mark.parametrize("bits, header", [(16, False), (16, True), (32, False), (32, True)])
def test_windows_are_slices_of_the_memmap(bits, header, tmp_path):
    files = [
        write_tokens(tmp_path / f"shard_{n}.bin", count, bits, header, seed=n) for n, count in enumerate((500, 321))
    ]
    expected = []
    for data in files:
        for i in range(0, len(data) - CONTEXT, CONTEXT):
            x = torch.from_numpy(data[i : i + CONTEXT].astype(np.int64))
            y = torch.from_numpy(data[i + 1 : i + 1 + CONTEXT].astype(np.int64))
            expected.append((x, y))
    assert len(expected) == 31 + 20
    bits_key = {} if header else {"token_bits": bits}
    for more in ({"shuffle": False}, {"num_workers": 2}):
        found = samples(support.export(tmp_path, text_recipe("tokens", tmp_path, **bits_key, **more), 7))
        assert list(found) == list(range(51)) if "shuffle" in more else sorted(found) == list(range(51)) != list(found)
        for sample, (x, y) in enumerate(expected):
            assert torch.equal(found[sample][0], x) and torch.equal(found[sample][1], y)


@pytest.mark.parametrize("padding", ["longest", "max", "bucket"])
def test_documents_are_padded_as_pad_sequence_does(padding, tmp_path):
    lengths = [2, 3, 5, 4, 9, 16, 17, 18, 40, 7, 3, 2]
    data = write_tokens(tmp_path / "train.bin", sum(lengths), 16, False, seed=1)
    ends = np.cumsum(lengths, dtype="<u8")
    (tmp_path / "train.ends").write_bytes(ends.tobytes())
    documents = [
        torch.from_numpy(data[end - length : end].astype(np.int64))[: CONTEXT + 1]
        for length, end in zip(lengths, ends.tolist())
    ]
    content = text_recipe("documents", tmp_path / "train.bin", padding=padding, batch_size=3, shuffle=False)
    for n, step in enumerate(support.export(tmp_path, content, 4)):
        assert step.sample_id.tolist() == list(range(3 * n, 3 * n + 3))
        batch = documents[3 * n : 3 * n + 3]
        x = pad_sequence([document[:-1] for document in batch], batch_first=True)
        y = pad_sequence([document[1:] for document in batch], batch_first=True, padding_value=-100)
        width = x.shape[1] if padding == "longest" else CONTEXT  # 16 is the smallest bucket too
        assert step.input.shape == step.target.shape == (3, width)
        assert torch.equal(step.input[:, : x.shape[1]], x) and torch.equal(step.target[:, : x.shape[1]], y)
        assert (step.input[:, x.shape[1] :] == 0).all() and (step.target[:, x.shape[1] :] == -100).all()


def test_texts_are_their_bytes(tmp_path):
    texts = {"b.md": "zwölf Boxkämpfer", "a/1.txt": "naïve", "a/10.txt": "two\r\nlines\n", "a.txt": "first"}
    for name, text in texts.items():
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    content = text_recipe("documents", tmp_path / "texts", batch_size=2, shuffle=False)
    found = samples(support.export(tmp_path, content, 2))
    for sample, name in enumerate(sorted(texts, key=str.encode)):
        whole = torch.tensor(list(texts[name].encode()))[: CONTEXT + 1]
        x, y = found[sample]
        assert torch.equal(x[: len(whole) - 1], whole[:-1]) and torch.equal(y[: len(whole) - 1], whole[1:])
        assert (y[len(whole) - 1 :] == -100).all()
