"""Embeds every text of a file, for collections that are searched with Faiss, hnswlib, pgvector and the like.

    encode_file("small", "articles.parquet", "vectors.parquet", text="body")

A parquet output has the columns of the input and one more, `vector`; an .npy output only the vectors, a row per text.
Texts are read twice, first to count them, and embedded in chunks, so memory does not grow with their number. The output
is complete or not there at all. int8 and uint8 take the ranges of the first 10,000 texts and keep them beside the
output, as OUTPUT.ranges.npy: queries need the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ternarybert.data.readers import Rows, import_parquet, open_rows, sample
from ternarybert.data.table import choose_columns
from ternarybert.errors import DataError, OptionError, OutputError, TernaryBertError
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.predict_file import NO_TEXT, text_of
from ternarybert.runtime.vectors import calibration_ranges
from ternarybert.storage import check_output_file, lock_output, replace_file

VECTOR = "vector"  # the column of the output
_CHUNK = 2000  # texts
_CALIBRATION = 10_000  # texts

Progress: TypeAlias = Callable[[int, int], None]  # texts done, of how many


@dataclass(frozen=True)
class EncodeFileResult:
    """What `encode_file` has written."""

    texts: int
    empty: int  # of them, those without a text, whose vectors are that of the empty text
    width: int  # of a row of the output
    dtype: str
    seconds: float
    ranges: Path | None  # of 8-bit vectors


def encode_file(
    model: Embedder,
    input: str | Path,
    output: str | Path,
    *,
    text: str | None = None,
    precision: str = "float32",
    truncate_dim: int | None = None,
    prompt_name: str | None = None,
    normalize: bool = False,
    force: bool = False,
    progress: Progress = lambda done, total: None,
) -> EncodeFileResult:
    """Write the vectors of all texts of a table or text file; `output` ends in .parquet or .npy."""
    start, target = time.perf_counter(), Path(output)
    if target.suffix not in (".parquet", ".npy"):
        raise OptionError(f"vectors are written to .parquet or .npy, not to '{target.name}'")
    options: dict[str, Any] = {"truncate_dim": truncate_dim, "prompt_name": prompt_name, "normalize": normalize}
    with lock_output(target):
        check_output_file(target, force=force)
        texts = _Texts.of(input, text)
        ranges = _ranges(model, texts, options) if precision.endswith("int8") else None

        def chunks() -> Iterator[tuple[list[dict[str, Any]], NDArray[Any]]]:
            done, rows = 0, texts.rows()
            while chunk := list(islice(rows, _CHUNK)):
                values = [texts.text(row) for row in chunk]
                yield chunk, model.encode(values, precision=precision, ranges=ranges, **options)
                done += len(chunk)
                progress(done, texts.total)

        try:
            with replace_file(target) as draft:
                write = _write_parquet if target.suffix == ".parquet" else _write_npy
                width, dtype = write(draft, chunks(), texts.total)
                kept = _replace_ranges(target, ranges)
        except TernaryBertError:  # some of ours are OSErrors too
            raise
        except OSError as error:
            raise OutputError(f"{target} cannot be written: {error.strerror or error}") from error
    return EncodeFileResult(texts.total, texts.empty, width, dtype, time.perf_counter() - start, kept)


@dataclass(frozen=True)
class _Texts:
    """The rows of a file, checked, and how many there are."""

    path: str | Path
    column: str
    total: int = 0
    empty: int = 0  # of them, those without a text

    @classmethod
    def of(cls, path: str | Path, column: str | None) -> _Texts:
        texts = cls(path, _column(open_rows(path), column))
        total, empty = 0, 0
        for row in texts.rows():
            total += 1
            empty += not texts.text(row).strip()
        if not total:
            raise DataError(f"{path} has no text to embed")
        return replace(texts, total=total, empty=empty)

    def rows(self) -> Iterator[dict[str, Any]]:
        rows = open_rows(self.path)
        for number, row in rows:
            reason = text_of([row.get(self.column)], [self.column])[1]
            if reason not in (None, NO_TEXT):
                raise DataError(f"{rows.location(number)}: {reason}")
            yield row

    def text(self, row: Mapping[str, Any]) -> str:
        """The text of a row, by the rule of `predict`: 0 and false are texts; a missing one is the empty one."""
        text = text_of([row.get(self.column)], [self.column])[0]
        assert isinstance(text, str)
        return text


def _replace_ranges(target: Path, ranges: NDArray[np.float32] | None) -> Path | None:
    """Write the ranges of vectors that are about to take their place, and return where.

    The older vectors and their ranges go first: after a crash there is no output rather than one with other ranges.
    """
    path = target.with_name(f"{target.name}.ranges.npy")
    if path.exists():
        target.unlink(missing_ok=True)
        path.unlink()
    if ranges is None:
        return None
    with replace_file(path) as draft:
        np.save(draft, ranges)
    return path


def file_texts(input: str | Path, text: str | None = None) -> list[str]:
    """The texts of a table or text file."""
    texts = _Texts.of(input, text)
    return [texts.text(row) for row in texts.rows()]


def _column(rows: Rows, text: str | None) -> str:
    return choose_columns([sample(rows)], text, None, None).texts[0]


def _ranges(model: Embedder, texts: _Texts, options: dict[str, Any]) -> NDArray[np.float32]:
    first = [texts.text(row) for row in islice(texts.rows(), _CALIBRATION)]
    return calibration_ranges(model.encode(first, **options))


def _write_npy(path: Path, chunks: Iterator[tuple[Any, NDArray[Any]]], total: int) -> tuple[int, str]:
    with path.open("wb") as file:
        for number, (_, vectors) in enumerate(chunks):
            if not number:
                header = {"descr": vectors.dtype.str, "fortran_order": False, "shape": (total, vectors.shape[1])}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(np.ascontiguousarray(vectors).tobytes())
    return vectors.shape[1], str(vectors.dtype)


def _write_parquet(
    path: Path, chunks: Iterator[tuple[list[dict[str, Any]], NDArray[Any]]], total: int
) -> tuple[int, str]:
    pyarrow, parquet = import_parquet()
    writer = None
    try:
        for rows, vectors in chunks:
            if VECTOR in rows[0]:
                raise DataError(f"the input already has a column '{VECTOR}'; rename it")
            flat = pyarrow.array(np.ascontiguousarray(vectors).reshape(-1))
            table = pyarrow.Table.from_pylist(rows)
            column = pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
            table = table.append_column(VECTOR, column)
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table.cast(writer.schema))
    finally:
        if writer is not None:
            writer.close()
    return vectors.shape[1], str(vectors.dtype)
