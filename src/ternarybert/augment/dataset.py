"""Augmented training data for a run, made once and kept by content.

The name of the kept file is made of everything that decides its rows: the data, the source, the settings. A run that
asks for the same gets the file; one that was stopped while making it goes on. Runs that want the same at the same time,
as the processes of one run do, wait for the one that came first.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ternarybert.augment.inputs import Input
from ternarybert.augment.layout import Layout
from ternarybert.augment.pipeline import Progress, Settings
from ternarybert.augment.source import Source, digest
from ternarybert.augment.table import augment_table
from ternarybert.augment.words import STOP_WORDS
from ternarybert.errors import DataError, OutputError
from ternarybert.tasks import TaskData
from ternarybert.tasks.files import Table
from ternarybert.tasks.task import import_datasets

if TYPE_CHECKING:
    from datasets import Dataset
    from filelock import FileLock

_BATCH = 10_000  # rows converted at a time

Say = Callable[[str], None]  # is told in a sentence what happens


def augment_dataset(
    data: TaskData,
    source: Source,
    *,
    variants: int | None = None,
    seed: int = 42,
    probability: float = 0.4,
    stop_words: frozenset[str] = STOP_WORDS,
    cache: str | Path | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
) -> TaskData:
    """Give the data with every training row followed by its variants; labels are copied, evaluation rows stay.

    `variants` is by default what the task says. With a `cache` folder the rows are kept there and read from the disk
    as they are needed; without one they are held in memory.
    """
    if data.train is None:
        raise DataError(f"{data.task.name} has no training rows to augment")
    settings = Settings(data.task.augment_variants if variants is None else variants, probability, seed, stop_words)
    name = f"{data.task.name}-augmented"
    if cache is not None:
        return replace(data, train=_make(data.train, name, source, settings, Path(cache), progress, say))
    with tempfile.TemporaryDirectory(prefix="ternarybert-") as folder:
        return replace(data, train=_make(data.train, name, source, settings, Path(folder), progress, in_memory=True))


def _make(
    train: Dataset,
    name: str,
    source: Source,
    settings: Settings,
    folder: Path,
    progress: Progress | None,
    say: Say | None = None,
    *,
    in_memory: bool = False,
) -> Dataset:
    columns = {name: list(train[name]) for name in train.column_names}
    key = digest(source.fingerprint, settings.fingerprint, repr(columns))
    kept = folder / f"{name}-{key}.arrow"
    if not kept.is_file():
        with _alone(kept, say):
            _fill(kept, columns, train.features, source, settings, progress)
    return import_datasets().Dataset.from_file(str(kept), in_memory=in_memory)


@contextmanager
def _alone(kept: Path, say: Say | None) -> Iterator[None]:
    """Let one process at a time make a file; the system frees the lock of one that is killed."""
    import_datasets()  # brings filelock, and says what to install when it is missing
    from filelock import FileLock

    path = kept.with_suffix(".lock")
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _acquire(lock, say)
    except OSError as error:
        raise OutputError(f"cannot keep augmented rows in {kept.parent}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()
    path.unlink(missing_ok=True)  # the file is there: whoever still waits finds it and makes nothing


def _acquire(lock: FileLock, say: Say | None) -> None:
    try:
        lock.acquire(timeout=0)
    except TimeoutError:
        if say is not None:
            say("another process is making the same rows; waiting for it")
        lock.acquire()


def _fill(
    kept: Path,
    columns: Mapping[str, list[object]],
    features: object,
    source: Source,
    settings: Settings,
    progress: Progress | None,
) -> None:
    if kept.is_file():  # made by another process while this one waited
        return
    lines = kept.with_suffix(".jsonl")
    _write_lines(columns, lines, source, settings, progress)
    _convert(lines, kept, features)
    lines.unlink()


def _write_lines(
    columns: Mapping[str, list[object]], path: Path, source: Source, settings: Settings, progress: Progress | None
) -> None:
    if path.is_file():  # finished, and stopped before it was converted
        return
    texts = tuple(name for name in ("text", "text_pair") if name in columns)
    table = Table(path, dict(columns), range(1, len(columns["text"]) + 1), "row")
    # The path names all that decides the rows: what lies there unfinished is continued, or of no use to anyone.
    augment_table(Input(table, texts, Layout("jsonl")), path, source, settings, force=True, progress=progress)


def _convert(lines: Path, kept: Path, features: object) -> None:
    """JSON lines to Arrow, which is read from the disk without being loaded."""
    import_datasets()
    from datasets.arrow_writer import ArrowWriter

    unfinished = kept.with_name(f"{kept.name}.part")
    with lines.open(encoding="utf-8") as file, ArrowWriter(path=str(unfinished), features=features) as writer:
        batch: list[dict[str, object]] = []
        for line in file:
            batch.append(json.loads(line))
            if len(batch) == _BATCH:
                writer.write_batch(_columns(batch))
                batch = []
        if batch:
            writer.write_batch(_columns(batch))
        writer.finalize()
    unfinished.replace(kept)


def _columns(rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
