"""Reads the ladders in configs/ladder: each folder has baseline.yaml, and rungs.txt with what each rung adds to it."""

import shlex
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "configs/ladder"
LOWEST = "0-baseline"


@dataclass(frozen=True)
class Rung:
    name: str
    words: tuple[str, ...]  # the overrides of baseline.yaml, its own and those of all rungs before it


def names() -> list[str]:
    return sorted(file.parent.name for file in FOLDER.glob("*/rungs.txt"))


def baseline(ladder: str) -> Path:
    return FOLDER / ladder / "baseline.yaml"


def rungs(ladder: str) -> list[Rung]:
    """The rungs from the lowest to the highest."""
    found = [Rung(LOWEST, ())]
    for line in (FOLDER / ladder / "rungs.txt").read_text().splitlines():
        if words := shlex.split(line, comments=True):
            found.append(Rung(words[0], (*found[-1].words, *words[1:])))
    return found
