"""Fixtures shared by the oracle tests."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import support  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def same_threads():
    """Lets PyTorch use every allowed core, as the program does, so that both split sums in the same way."""
    torch.set_num_threads(support.allowed_cores())


@pytest.fixture(scope="session", autouse=True)
def command_server():
    yield
    support.SERVER.close()


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    """weights(model section) -> path of a safetensors file with torchvision's names, created once per model."""
    import reference

    folder = tmp_path_factory.mktemp("weights")
    made = {}

    def make(model: dict) -> str:
        key = repr(sorted(model.items()))
        if key not in made:
            path = folder / f"{len(made)}.safetensors"
            reference.save_initial_weights(model, path)
            made[key] = str(path)
        return made[key]

    return make
