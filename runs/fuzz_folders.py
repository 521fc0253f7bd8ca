"""Mutated whole folders through `load` and `predict`: answers or our own errors, in bounded memory and time.

    python runs/fuzz_folders.py 20000 [--seed 0]

A tiny packed folder with tokenizer is made once. Each round damages one file of it (configuration, tokenizer, its
settings, metrics, weights with and without their SHA-256), loads it and predicts three texts. It also reads a damaged
recipe and a damaged archive of questions. Anything but a result or a `TernaryBertError` fails. So does a round that
needs more than 5 s, or more than ten times the size of its files beyond the memory that the process had before it.

Memory is the process's peak in the round (Linux: VmHWM, reset before each). What the allocator keeps for later is given
back first, so that a round cannot hide in it. What libraries keep from their first use is measured apart, in rounds
with undamaged files. A round that is too slow is tried twice more, because another program may have had the processor.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import gzip
import io
import json
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import ternarybert
from ternarybert.data.squad.questions import read_questions
from ternarybert.errors import TernaryBertError
from ternarybert.recipe import Recipe
from ternarybert.recipe_io import read_yaml

TEXTS = ["good film", "", ("a pair", "of texts \u2603")]
SECONDS, TRIES, TIMES, UNDAMAGED = 5.0, 3, 10, 20
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


def questions() -> bytes:
    """A small file in the official layout of SQuAD."""
    context = "The film was made in Rome. " * 20
    asked = [
        {"id": str(i), "question": f"Where, {i}?", "answers": [{"text": "Rome", "answer_start": 21}]} for i in range(20)
    ]
    paragraph = {"context": context, "qas": asked}
    return json.dumps({"version": "1.1", "data": [{"title": "Film", "paragraphs": [paragraph]}]}).encode()


def archive(rng: random.Random | None, content: bytes, folder: Path) -> Path:
    """Write an archive of questions, zip or gzip; with `rng` the content is damaged, or the archive."""
    is_zip = rng is None or rng.random() < 0.7
    if rng is not None and rng.random() < 0.5:
        content, rng = rng.choice([flip, splice, edit])(rng, content), None
    if is_zip:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("train-v1.1.json", content)
        data = buffer.getvalue()
    else:
        data = gzip.compress(content)
    path = folder.with_name(f"questions.json.{'zip' if is_zip else 'gz'}")
    path.write_bytes(data if rng is None else rng.choice([flip, splice])(rng, data))
    return path


def attempt(folder: Path, recipe: bytes, packed: Path) -> bool:
    """Whether the folder gave an answer; errors of ours do not count as failures, nor do those of other files."""
    try:
        data = read_yaml(recipe.decode(errors="replace"), "the recipe")
        Recipe.from_dict(data if isinstance(data, dict) else {})
    except TernaryBertError as error:
        str(error).encode(errors="backslashreplace")
    try:
        assert read_questions(packed)
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


def grown(work: Callable[[], bool]) -> tuple[bool, int]:
    """What `work` returns, and how much memory the process had at most beyond what it had before, in bytes."""
    gc.collect()
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)  # musl has none
        before = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is used now
        result = work()
        return result, max(0, _status("VmHWM") - before)
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = work()
    return result, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def fuzz(original: Path, folder: Path, seeds: range, progress: int = 0) -> dict[str, float]:
    """Try one damaged folder per seed; an AssertionError names the seed of the first that fails."""
    files = {path.name: path.read_bytes() for path in original.iterdir() if path.is_file()}
    recipe, asked = Recipe.load("paper").to_yaml().encode(), questions()
    size = sum(map(len, files.values())) + len(recipe) + len(asked)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    # The first rounds fill caches of libraries; what the last of them still needs is what an honest folder needs.
    whole = archive(None, asked, folder)
    base = [grown(lambda: attempt(folder, recipe, whole))[1] for _ in range(UNDAMAGED)][-1]
    answered, slowest, most = 0, 0.0, 0
    for count, seed in enumerate(seeds, 1):
        rng = random.Random(seed)
        what = damage(rng, files, folder)
        work = partial(attempt, folder, splice(rng, recipe), archive(rng, asked, folder))
        try:
            is_answered, seconds, memory = _measured(work)
        except BaseException as error:
            raise AssertionError(f"seed {seed}, {what}: {type(error).__name__}: {error}") from error
        answered, slowest, most = answered + is_answered, max(slowest, seconds), max(most, memory)
        assert seconds < SECONDS, f"seed {seed}, {what}: {seconds:.1f} s"
        assert memory < TIMES * size, f"seed {seed}, {what}: {memory:,} bytes, the folder has {size:,}"
        if progress and count % progress == 0:
            print(f"{count} of {len(seeds)}: slowest {slowest:.2f} s, most memory {most / size:.2f} times", flush=True)
    found = {"folders": len(seeds), "answered": answered, "slowest": slowest}
    return found | {"size": size, "undamaged": base, "memory": most}


def _measured(work: Callable[[], bool]) -> tuple[bool, float, int]:
    """The result, the seconds of the fastest of some tries, and the memory of the first."""
    seconds, memories = list[float](), list[int]()
    while not seconds or (min(seconds) >= SECONDS and len(seconds) < TRIES):
        start = time.monotonic()
        result, memory = grown(work)
        seconds.append(time.monotonic() - start)
        memories.append(memory)
    return result, min(seconds), memories[0]


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
        print(fuzz(original, copied, range(options.seed, options.seed + options.folders), progress=100))


if __name__ == "__main__":
    main()
