"""The vectors of all passages below a folder, in one file beside them, and the search in it.

    .ternarybert-index    int8 codes (passages, dimensions), a float32 scale each; which file and line each is from

A vector is its codes times its scale, the largest number of a vector at 127. A file whose size and time are unchanged,
or else its SHA-256, keeps its vectors; only new text is embedded. Another model makes a new index. The file is written
whole or not at all; where that is not allowed, or it is damaged, the index is made anew, with a warning.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ternarybert.errors import DataError, OutputError, TruncationWarning, UnsupportedModelError
from ternarybert.packed.embedder_modules import unit_length
from ternarybert.packed.hf_folder import deciding_files
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.load import load
from ternarybert.search.passages import TABLES, Passage, ReadingNotes, find_files, read_passages, read_rows
from ternarybert.storage import replace_file

INDEX_FILE = ".ternarybert-index"
DEFAULT_MODEL = "minilm"
_VERSION = 1
_CHUNK = 512  # passages between two progress reports
_BLOCK = 1 << 16  # vectors compared at a time

# What NumPy, zipfile and json raise for a file that is not the one that was written.
_DAMAGED = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)

Codes: TypeAlias = NDArray[np.int8]
Progress: TypeAlias = Callable[[int, int], None]  # passages done, of how many


@dataclass(frozen=True)
class SearchResult:
    """A passage that was found."""

    path: Path
    line: int
    score: float  # the cosine
    text: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"path": str(self.path), "line": self.line, "score": self.score, "text": self.text}


@dataclass
class IndexedFile:
    """A file as it was when it was indexed, and its vectors."""

    size: int
    modified: int  # nanoseconds
    sha256: str
    lines: list[int]  # of each passage
    codes: Codes
    scales: NDArray[np.float32]


@dataclass
class VectorIndex:
    """The vectors of the passages of some files, by path."""

    root: Path
    column: str | None = None
    files: dict[str, IndexedFile] = field(default_factory=dict)
    notes: ReadingNotes = field(default_factory=ReadingNotes)
    messages: list[str] = field(default_factory=list)

    @property
    def passages(self) -> int:
        """How many there are."""
        return sum(len(each.lines) for each in self.files.values())

    def update(self, model: Embedder, progress: Progress = lambda done, total: None) -> int:
        """Embed what is new since the index was written; the number of passages that were."""
        identity = _identity(model, self.column)
        earlier = self._read(identity)
        fresh: dict[str, list[Passage]] = {}
        self.files = {}
        for path in find_files(self.root):
            name = path.relative_to(self.root).as_posix() if path != self.root else path.name
            file, passages = self._file(path, earlier.get(name))
            self.files[name] = file
            if passages is not None:
                fresh[name] = passages
        self._embed(model, fresh, progress)
        if fresh or earlier.keys() != self.files.keys() or self._times(earlier) != self._times(self.files):
            self._write(identity)
        return sum(map(len, fresh.values()))

    def search(self, model: Embedder, question: str, top: int = 5) -> list[SearchResult]:
        """The passages that are most similar to the question, best first."""
        places = [(name, number) for name, file in self.files.items() for number in range(len(file.lines))]
        if not places or top < 1:
            return []
        query = unit_length(np.asarray(model.encode_query([question]), np.float32))[0]
        scores = np.concatenate([_scores(file, query) for file in self.files.values() if file.lines])
        best = np.argsort(-scores, kind="stable")[:top]
        return [self._result(places[i][0], places[i][1], float(scores[i])) for i in best.tolist()]

    def _result(self, name: str, number: int, score: float) -> SearchResult:
        path = self._path(name)
        passages = self._passages(path, ReadingNotes())
        text = passages[number].text if number < len(passages) else ""  # the file may just have changed
        return SearchResult(path, self.files[name].lines[number], score, text)

    def _passages(self, path: Path, notes: ReadingNotes) -> list[Passage]:
        """A table is one if it was named itself; in a folder it is a text like others."""
        is_table = path == self.root and (self.column is not None or path.suffix.lower() in TABLES)
        return read_rows(path, self.column) if is_table else read_passages(path, notes)

    def _path(self, name: str) -> Path:
        return self.root / name if self.root.is_dir() else self.root

    def _file(self, path: Path, known: IndexedFile | None) -> tuple[IndexedFile, list[Passage] | None]:
        """A file, with its passages if they have to be embedded."""
        state = path.stat()
        if known is not None and (known.size, known.modified) == (state.st_size, state.st_mtime_ns):
            return known, None
        try:
            digest = _sha256(path)
        except OSError:
            self.notes.unreadable.append(path)
            return _empty(state, ""), None
        if known is not None and known.sha256 == digest:
            known.size, known.modified = state.st_size, state.st_mtime_ns
            return known, None
        return _empty(state, digest), self._passages(path, self.notes)

    def _embed(self, model: Embedder, fresh: dict[str, list[Passage]], progress: Progress) -> None:
        """All new passages together, so that batches have texts of similar length."""
        texts = [passage.text for passages in fresh.values() for passage in passages]
        vectors = [np.empty((0, model.width), np.float32)]
        for first in range(0, len(texts), _CHUNK):
            progress(first, len(texts))
            with warnings.catch_warnings():
                # A table of 900 characters can have too many tokens: it is found by its beginning, and shown whole.
                warnings.simplefilter("ignore", TruncationWarning)
                vectors.append(model.encode_document(texts[first : first + _CHUNK]))
        codes, scales = quantize_rows(unit_length(np.concatenate(vectors)))
        start = 0
        for name, passages in fresh.items():
            part = slice(start, start + len(passages))
            start += len(passages)
            file = self.files[name]
            file.lines, file.codes, file.scales = [each.line for each in passages], codes[part], scales[part]

    @staticmethod
    def _times(files: dict[str, IndexedFile]) -> list[tuple[int, int]]:
        return [(file.size, file.modified) for file in files.values()]

    @property
    def file(self) -> Path:
        """Where the index is kept."""
        if self.root.is_dir():
            return self.root / INDEX_FILE
        return self.root.with_name(f"{INDEX_FILE}-{self.root.name}")

    def _read(self, identity: str) -> dict[str, IndexedFile]:
        """The files of the index on the disk; none if there is none, or it is of another model or damaged."""
        if not self.file.is_file():
            return {}
        try:
            with np.load(io.BytesIO(self.file.read_bytes()), allow_pickle=False) as stored:
                content = json.loads(bytes(stored["content"]))
                if content["identity"] != identity:
                    self.messages.append(f"{self.file} was made with another model or column; it is made anew")
                    return {}
                return _files(content["files"], stored["codes"], stored["scales"])
        except _DAMAGED as error:
            self.messages.append(f"{self.file} is damaged ({type(error).__name__}); it is made anew")
            return {}

    def _write(self, identity: str) -> None:
        content = {"identity": identity, "files": {name: _entry(file) for name, file in self.files.items()}}
        width = next((file.codes.shape[1] for file in self.files.values() if len(file.codes)), 0)
        codes = [file.codes.reshape(len(file.lines), width) for file in self.files.values()]
        buffer = io.BytesIO()
        np.savez(
            buffer,
            content=np.frombuffer(json.dumps(content).encode(), np.uint8),
            codes=np.concatenate([np.empty((0, width), np.int8), *codes]),
            scales=np.concatenate([np.empty(0, np.float32), *(file.scales for file in self.files.values())]),
        )
        try:
            with replace_file(self.file) as draft:
                draft.write_bytes(buffer.getvalue())
        except (OSError, OutputError) as error:  # a search is answered all the same
            reason = getattr(error, "strerror", None) or error
            self.messages.append(f"the index cannot be kept in {self.file}: {reason}")


def search(
    paths: str | Path | Sequence[str | Path],
    question: str,
    *,
    model: str | Path | Embedder = DEFAULT_MODEL,
    top: int = 5,
    column: str | None = None,
) -> list[SearchResult]:
    """The passages of files and folders that are most similar to a question; indexes are made or updated first.

    `model` is an embedder, its folder, or the name of an installed one. `column` names the texts of a table.
    """
    embedder = load_embedder(model)
    results: list[SearchResult] = []
    for path in [paths] if isinstance(paths, str | Path) else paths:
        index = VectorIndex(Path(path), column)
        index.update(embedder)
        results += index.search(embedder, question, top)
    return sorted(results, key=lambda result: -result.score)[:top]


def load_embedder(model: str | Path | Embedder, **options: Any) -> Embedder:
    """An embedder by folder or name."""
    loaded = model if isinstance(model, Embedder) else load(model, **options)
    if not isinstance(loaded, Embedder):
        raise UnsupportedModelError(f"'{model}' is a {type(loaded).__name__}, not an embedder (no modules.json)")
    return loaded


def quantize_rows(vectors: NDArray[np.float32]) -> tuple[Codes, NDArray[np.float32]]:
    """Vectors as int8 codes and a scale each; the largest number of a vector is at 127."""
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    scales = (np.where(largest > 0, largest, 1.0) / 127).astype(np.float32)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


def _scores(file: IndexedFile, query: NDArray[np.float32]) -> NDArray[np.float32]:
    parts = [
        (file.codes[first : first + _BLOCK].astype(np.float32) @ query) * file.scales[first : first + _BLOCK]
        for first in range(0, len(file.codes), _BLOCK)
    ]
    return np.concatenate(parts)


def _files(entries: dict[str, Any], codes: Codes, scales: NDArray[np.float32]) -> dict[str, IndexedFile]:
    files, start = {}, 0
    for name, (size, modified, digest, lines) in entries.items():
        part = slice(start, start + len(lines))
        start += len(lines)
        files[name] = IndexedFile(size, modified, digest, lines, codes[part], scales[part])
    if start != len(codes) or start != len(scales):
        raise ValueError(f"{len(codes)} vectors of {start} passages")
    return files


def _entry(file: IndexedFile) -> list[Any]:
    return [file.size, file.modified, file.sha256, file.lines]


def _empty(state: os.stat_result, digest: str) -> IndexedFile:
    return IndexedFile(state.st_size, state.st_mtime_ns, digest, [], np.empty((0, 0), np.int8), np.empty(0, np.float32))


def _identity(model: Embedder, column: str | None) -> str:
    """What vectors depend on besides the text."""
    if model.folder is None:
        raise DataError("an index needs a model that was loaded from a folder")
    files = " ".join(_sha256(path) for path in deciding_files(model.folder))
    modules = hashlib.sha256(b"".join(model.modules.files.values())).hexdigest()
    return f"{_VERSION} {files} {modules} {model.max_length} {column}"


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:  # Python 3.10 has no hashlib.file_digest
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
