"""Mutated whole folders through `load` and `predict`: answers or our own errors, in bounded memory and time.

    python runs/fuzz_folders.py 20000 [--seed 0]

Small packed folders are made once: a classifier, a tagger and a model that answers questions with tokenizer.json, a
classifier with vocab.txt, and an embedder with all its modules. Each round damages one file of one of them
(configuration, tokenizer, settings, modules, metrics, weights with and without their SHA-256), loads it and asks it. It
also reads a damaged recipe, a damaged archive of questions (zip or gzip, inside or outside) and a damaged table.
Anything but a result or a `TernaryBertError` fails. So does a round that needs more than 5 s, or more than ten
times the size of its files beyond the memory that the process had before it.

Memory is the process's peak in the round (Linux: VmHWM, reset before each). What the allocator keeps for later is given
back first, so that a round cannot hide in it. What libraries keep from their first use is measured apart, in rounds
with undamaged files. A round that needs too much is repeated once: what its files cost, they cost again, but a table of
the interpreter that all rounds fill (of its strings, for example) is rebuilt in one of thousands. Time is that of the
processor, because another program may have had it.
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
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import ternarybert
from ternarybert.data.readers import open_rows
from ternarybert.data.squad.questions import read_questions
from ternarybert.errors import TernaryBertError
from ternarybert.recipe import Recipe
from ternarybert.recipe_io import read_yaml
from ternarybert.runtime import Embedder
from ternarybert.runtime.model import Answerer

TEXTS = ["good film", "", ("a pair", "of texts \u2603")]
TABLE = 'text,label\ngood film,1\n"a, b",0\n"two\nlines",\u2603\n'
ROWS = ['{"text": "good film", "label": 1}', '{"text": "a \\ud83d\\ude00 b", "label": [1, {"a": null}]}']
TABLES = {
    "csv": TABLE,
    "tsv": TABLE.replace(",", "\t"),
    "jsonl": "\n".join(ROWS),
    "json": f"[{','.join(ROWS)}]",
}
SECONDS, TIMES, UNDAMAGED = 5.0, 10, 40
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


@dataclass(frozen=True)
class Round:
    """What one round reads: a folder, and files of other kinds."""

    folder: Path
    recipe: bytes
    archive: Path
    table: Path


class Fuzzer:
    """Writes damaged copies of folders and of other files."""

    def __init__(self, originals: Sequence[Path], work: Path) -> None:
        self.originals = [_files(folder) for folder in originals]
        self.work = work
        work.mkdir(exist_ok=True)
        self.recipe, self.questions = Recipe.load("paper").to_yaml().encode(), questions()

    def size(self, number: int) -> int:
        """Bytes of a folder and of the other files."""
        others = self.recipe, self.questions, *(table.encode() for table in TABLES.values())
        return sum(map(len, (*self.originals[number].values(), *others)))

    def whole(self, number: int) -> Round:
        """A round without damage."""
        archive, table = self._archive(None), self._table("csv", TABLES["csv"].encode())
        return Round(self._folder(number, self.originals[number]), self.recipe, archive, table)

    def damaged(self, rng: random.Random, number: int) -> tuple[Round, str]:
        """A round with one damaged file of each kind; which file of the folder, and how."""
        files = dict(self.originals[number])
        name = rng.choice([*sorted(files), *(each for each in ("tokenizer.json", "config.json") * 2 if each in files)])
        ways: list[Callable[[random.Random, bytes], bytes]] = [flip, splice, *([edit] * 3 if ".json" in name else [])]
        way = rng.choice(ways)
        if rng.random() < 0.5:
            files["config.json"] = unhashed(files["config.json"])
        files[name] = way(rng, files[name])
        kind = rng.choice(sorted(TABLES))
        table = self._table(kind, rng.choice([flip, splice])(rng, TABLES[kind].encode()))
        recipe = edited_recipe(rng) if rng.random() < 0.5 else splice(rng, self.recipe)
        return Round(self._folder(number, files), recipe, self._archive(rng), table), f"{way.__name__} of {name}"

    def _folder(self, number: int, files: dict[str, bytes]) -> Path:
        folder = self.work / str(number)
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).unlink(missing_ok=True)  # a new file: the one before may still be mapped
            (folder / name).write_bytes(data)
        return folder

    def _table(self, kind: str, data: bytes) -> Path:
        path = self.work / f"table.{kind}"
        path.write_bytes(data)
        return path

    def _archive(self, rng: random.Random | None) -> Path:
        """Write an archive of questions, zip or gzip; with `rng` the content is damaged, or the archive."""
        content, is_zip = self.questions, rng is None or rng.random() < 0.7
        if rng is not None and rng.random() < 0.5:
            content, rng = rng.choice([flip, splice, edit])(rng, content), None
        data = zipped(content) if is_zip else gzip.compress(content)
        path = self.work / f"questions.json.{'zip' if is_zip else 'gz'}"
        path.write_bytes(data if rng is None else rng.choice([flip, splice])(rng, data))
        return path


def _files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def edited_recipe(rng: random.Random) -> bytes:
    """A recipe with a field changed; JSON is YAML, too."""
    return edit(rng, json.dumps(Recipe.load("paper").to_dict()).encode())


def zipped(content: bytes) -> bytes:
    """An archive of one file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("train-v1.1.json", content)
    return buffer.getvalue()


def questions() -> bytes:
    """A small file in the official layout of SQuAD."""
    context = "The film was made in Rome. " * 20
    asked = [
        {"id": str(i), "question": f"Where, {i}?", "answers": [{"text": "Rome", "answer_start": 21}]} for i in range(20)
    ]
    paragraph = {"context": context, "qas": asked}
    return json.dumps({"version": "1.1", "data": [{"title": "Film", "paragraphs": [paragraph]}]}).encode()


def attempt(given: Round) -> bool:
    """Whether the folder gave an answer; errors of ours do not count as failures, nor do those of other files."""
    for read in (_read_recipe, _read_archive, _read_table):
        try:
            read(given)
        except TernaryBertError as error:
            str(error).encode(errors="backslashreplace")
    try:
        with ternarybert.load(given.folder, num_threads=1) as model:
            if isinstance(model, Embedder):
                assert len(model.encode([text for text in TEXTS if isinstance(text, str)])) == 2
            else:
                texts = [("where?", "in a good film")] if isinstance(model, Answerer) else TEXTS
                assert len(model.predict(texts)) == len(texts)
    except TernaryBertError as error:
        str(error)
        return False
    return True


def _read_recipe(given: Round) -> None:
    data = read_yaml(given.recipe.decode(errors="replace"), "the recipe")
    Recipe.from_dict(data if isinstance(data, dict) else {})


def _read_archive(given: Round) -> None:
    assert read_questions(given.archive)


def _read_table(given: Round) -> None:
    for _ in open_rows(given.table):
        pass


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


def fuzz(originals: Sequence[Path], work: Path, seeds: range, progress: int = 0) -> dict[str, float]:
    """Try one damaged folder per seed; an AssertionError names the seed of the first that fails."""
    fuzzer = Fuzzer(originals, work)
    gc.freeze()  # what was imported stays; without this each collection takes a quarter of a second
    # The first rounds fill caches of libraries; what the last of them still needs is what an honest folder needs.
    whole = [grown(partial(attempt, fuzzer.whole(i % len(originals))))[1] for i in range(UNDAMAGED)]
    answered, repeated, slowest, most, times = 0, 0, 0.0, 0, 0.0
    for count, seed in enumerate(seeds, 1):
        rng, number = random.Random(seed), seed % len(originals)
        made, how = fuzzer.damaged(rng, number)
        what = f"seed {seed}, {originals[number].name}, {how}"
        start = time.process_time()
        size = fuzzer.size(number)
        try:
            is_answered, memory = grown(partial(attempt, made))
            seconds = time.process_time() - start
            if memory >= TIMES * size:
                repeated, (again, memory) = repeated + 1, grown(partial(attempt, made))
                assert again == is_answered, "another result when it was repeated"
        except BaseException as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        answered, slowest, most = answered + is_answered, max(slowest, seconds), max(most, memory)
        times = max(times, memory / size)
        assert seconds < SECONDS, f"{what}: {seconds:.1f} s"
        assert memory < TIMES * size, f"{what}: {memory:,} bytes, the folder has {size:,}"
        assert repeated <= 1 + count // 1000, f"{what}: too much memory at first, as in {repeated - 1} rounds before"
        if progress and count % progress == 0:
            print(f"{count} of {len(seeds)}: slowest {slowest:.2f} s, most memory {times:.2f} times", flush=True)
    found = {"folders": len(seeds), "answered": answered, "slowest": slowest, "memory": most, "times": times}
    return found | {"undamaged": max(whole[-len(originals) :]), "repeated": repeated}


def main() -> None:
    """Make a folder and fuzz it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    make = import_module("tests.runtime.fuzzed_folders").make_folders  # by the tests' tiny students, with torch

    with tempfile.TemporaryDirectory() as place:
        work = Path(place, "work")
        seeds = range(options.seed, options.seed + options.folders)
        print(fuzz(make(Path(place)), work, seeds, progress=1000))


if __name__ == "__main__":
    main()
