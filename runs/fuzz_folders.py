"""Mutated whole folders through `load` and `predict`: answers or our own errors, in bounded memory and time.

    python runs/fuzz_folders.py 20000 [--seed 0]

A tiny packed folder with tokenizer is made once. Each round damages one file of it (configuration, tokenizer, its
settings, metrics, weights with and without their SHA-256), loads it and predicts three texts. Anything but a
prediction or a `TernaryBertError` fails, as do a round of more than 5 s and a process that needs more than ten times
the folder, and 64 MB for the interpreter, beyond what it had after the first hundred rounds (`ru_maxrss`).
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import ternarybert
from ternarybert.errors import TernaryBertError
from ternarybert.recipe import Recipe
from ternarybert.recipe_io import read_yaml

TEXTS = ["good film", "", ("a pair", "of texts \u2603")]
SECONDS, TIMES, SLACK = 5.0, 10, 64 << 20
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1,
    2**31 - 1,
    2**31,
    2**63,
    10**40,
    0.5,
    1e308,
    "",
    "x",
    "\ud800",
    [],
    {},
    [[]],
    "[UNK]",
]
ODD_BYTES = [
    b"",
    b"\0",
    b"\xff",
    b"{",
    b'"',
    b"[" * 5000,
    b"NaN",
    b"Infinity",
    b"\xed\xa0\x80",
    b"9" * 5000,
    b"&a *a <<: ",
]


def flip(rng: random.Random, data: bytes) -> bytes:
    """Change some bits."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def splice(rng: random.Random, data: bytes) -> bytes:
    """Delete, insert or overwrite somewhere, or cut the end off."""
    at, gone = rng.randrange(len(data) + 1), rng.choice([0, 1, 4, 50, len(data)])
    return data[:at] + rng.choice(ODD_BYTES) + data[at + gone :]


def edit(rng: random.Random, data: bytes) -> bytes:
    """Replace, delete, rename or add something at a random place of a JSON document."""
    root = json.loads(data)
    if not root:
        return splice(rng, data)
    node: Any = root
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = rng.choice(keys)
        if not isinstance(node[key], (dict, list)) or not node[key] or rng.random() < 0.1:
            break
        node = node[key]
    action = rng.randrange(4)
    if action == 0:
        del node[key]
    elif action == 1 and isinstance(node, dict):
        node[rng.choice([*keys, "type", "id"])] = node.pop(key)
    elif action == 2 and type(node[key]) is int:
        node[key] += rng.choice([-64, -1, 1, 64, 10**6, 2**31])
    else:
        node[key] = rng.choice(ODD)
    return json.dumps(root).encode()


def unhashed(config: bytes) -> bytes:
    """The configuration without the SHA-256 of the weights, so that damage of them is not found by it."""
    content = json.loads(config)
    del content["quantization_config"]["sha256"]
    return json.dumps(content).encode()


def damage(rng: random.Random, files: dict[str, bytes], folder: Path) -> str:
    """Write the folder with one file damaged; which one and how."""
    name = rng.choice(sorted(files) + ["tokenizer.json", "config.json"] * 2)
    way: Callable[[random.Random, bytes], bytes] = rng.choice([flip, splice, *([edit] * 3 if ".json" in name else [])])
    written = dict(files)
    if rng.random() < 0.5:
        written["config.json"] = unhashed(written["config.json"])
    written[name] = way(rng, written[name])
    for each, data in written.items():
        (folder / each).unlink(missing_ok=True)  # a new file: the one before may still be mapped
        (folder / each).write_bytes(data)
    return f"{way.__name__} of {name}"


def attempt(folder: Path, rng: random.Random, recipe: bytes) -> bool:
    """Whether the folder and a damaged recipe gave an answer; errors of ours do not count as failures."""
    try:
        data = read_yaml(splice(rng, recipe).decode(errors="replace"), "the recipe")
        Recipe.from_dict(data if isinstance(data, dict) else {})
    except TernaryBertError as error:
        str(error).encode(errors="backslashreplace")
    try:
        with ternarybert.load(folder, num_threads=1) as model:
            predictions = model.predict(TEXTS)
            assert len(predictions) == len(TEXTS)
    except TernaryBertError as error:
        str(error)
        return False
    return True


def peak() -> int:
    """The most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def fuzz(original: Path, folder: Path, seeds: range) -> dict[str, float]:
    """Try one damaged folder per seed; an AssertionError names the seed of the first that fails."""
    files = {path.name: path.read_bytes() for path in original.iterdir() if path.is_file()}
    size, recipe = sum(map(len, files.values())), Recipe.load("paper").to_yaml().encode()
    answered, slowest, before = 0, 0.0, 0
    for count, seed in enumerate(seeds):
        rng = random.Random(seed)
        what = damage(rng, files, folder)
        start = time.monotonic()
        try:
            answered += attempt(folder, rng, recipe)
        except BaseException as error:
            raise AssertionError(f"seed {seed}, {what}: {type(error).__name__}: {error}") from error
        slowest = max(slowest, time.monotonic() - start)
        assert slowest < SECONDS, f"seed {seed}, {what}: {slowest:.1f} s"
        before = peak() if count <= 100 else before
        assert peak() - before < TIMES * size + SLACK, f"seed {seed}, {what}: {(peak() - before) >> 20} MiB"
    return {"folders": len(seeds), "answered": answered, "slowest": slowest, "grown": float(peak() - before)}


def main() -> None:
    """Make a folder and fuzz it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    save_student = import_module("tests.runtime.folders").save_student  # the tests' tiny student, with torch

    with tempfile.TemporaryDirectory() as place:
        original = save_student(Path(place, "original"), "ForSequenceClassification")
        copied = Path(shutil.copytree(original, Path(place, "copy")))
        print(fuzz(original, copied, range(options.seed, options.seed + options.folders)))


if __name__ == "__main__":
    main()
