"""Augmented data for a training run, generated once and cached by content.

The paper trains one epoch on augmented data and does not augment STS-B, MNLI and QQP, where it saw no gain. The task
determines how many variants a row gets.

The name of a cached file is a hash of everything that determines its rows: the data, the source and the options. Runs
with other bits, other recipes or a resumed run find the file and use it. A run that was interrupted while generating
rows resumes. Processes that need the same rows at the same time wait for the first one.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.augment.neighbors import embedding_neighbors
from ternarybert.augment.sources import Source, digest, load_source
from ternarybert.augment.table import AugmentInput, augment_table, few_variants
from ternarybert.augment.variants import Progress, VariantOptions
from ternarybert.augment.words import STOP_WORDS
from ternarybert.data import ClassificationTask, Task, TaskData
from ternarybert.data.readers import Table
from ternarybert.data.task import import_datasets
from ternarybert.data.writers import TableFormat
from ternarybert.errors import DataError, OutputError, RecipeError

if TYPE_CHECKING:
    from datasets import Dataset
    from filelock import FileLock
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_log = logging.getLogger(__name__)

_BATCH = 10_000  # rows converted at a time

MessageCallback = Callable[[str], None]  # receives a sentence to show


@dataclass(frozen=True)
class Augmentation:
    """Where replacement words come from, and how many variants to generate; the seed is the run's."""

    masked_model: str | None = None
    glove: str | Path | None = None
    variants: int | None = None  # None: the task's
    masks: int = 1  # words of a text masked in one prompt; more is faster, and no longer TinyBERT
    cache: str | Path | None = None  # None: `cache_folder()`
    progress: Progress | None = None
    stop_words: frozenset[str] = STOP_WORDS  # words that are never replaced, in lower case
    on_message: MessageCallback | None = None

    @property
    def from_teacher(self) -> bool:
        """Whether the teacher's own word embeddings are used, because no other source is named."""
        return self.masked_model is None and self.glove is None


def augmented(
    data: TaskData[Any],
    options: Augmentation,
    teacher_source: Callable[[], Source],
    seed: int,
    device: str | None,
) -> tuple[TaskData[Any], dict[str, Any]]:
    """Return the data with variants of every training row, for one epoch, and a summary for the run's report.

    `teacher_source` returns the teacher's word embeddings, for when no other source is named.
    """
    task = check_augmented(data.task)
    variants = task.augment_variants if options.variants is None else options.variants
    if data.train is None:
        raise DataError(f"'{task.name}' has no training rows")
    source = teacher_source() if options.from_teacher else _named_source(options, device)
    _log.info("augmenting with %s", source.description)
    with _interrupt_message():
        result = augment_dataset(
            data,
            source,
            variants=variants,
            seed=seed,
            stop_words=options.stop_words,
            cache=options.cache or cache_folder(),
            progress=options.progress,
            on_message=options.on_message,
        )
    if options.on_message is not None and result.train is not None:
        _report_rows(options.on_message, len(data.train), len(result.train))
    summary = {
        "source": source.description,
        "fingerprint": source.fingerprint,
        "variants": variants,
        "rows_before": len(data.train),
    }
    return replace(result, task=replace(task, epochs=task.epochs_augmented)), summary


def check_augmented(task: Task) -> ClassificationTask:
    """Reject, before any work, tasks that the paper does not augment."""
    if not isinstance(task, ClassificationTask):
        raise RecipeError(
            "question answering data cannot be augmented: replaced words would move or lose the answer; "
            "leave --augment out"
        )
    if task.augment is False:
        raise RecipeError(
            f"the paper does not augment {task.name}, where it saw no gain; leave --augment out, or write the variants "
            "to a file with 'ternarybert augment' and train on that"
        )
    return task


def teacher_embeddings(teacher: str, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Source:
    """The word embeddings of a loaded teacher as a source, whatever file format it was loaded from."""
    table = network.get_input_embeddings().weight.detach().float().cpu().numpy()
    return embedding_neighbors(tokenizer.get_vocab(), table, teacher)


def cache_folder() -> Path:
    """The default folder of cached rows."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ternarybert" / "augment"


def augment_dataset(
    data: TaskData[ClassificationTask],
    source: Source,
    *,
    variants: int | None = None,
    seed: int = 42,
    probability: float = 0.4,
    stop_words: frozenset[str] = STOP_WORDS,
    cache: str | Path | None = None,
    progress: Progress | None = None,
    on_message: MessageCallback | None = None,
) -> TaskData[ClassificationTask]:
    """Return the data with every training row followed by its variants; labels are copied, evaluation rows unchanged.

    `variants` defaults to the task's. With a `cache` folder the rows are stored there and memory-mapped; without one
    they are held in memory.
    """
    if data.train is None:
        raise DataError(f"{data.task.name} has no training rows to augment")
    count = data.task.augment_variants if variants is None else variants
    options = VariantOptions(count, probability, seed, stop_words)
    name = f"{data.task.name}-augmented"
    if cache is not None:
        return replace(data, train=_augment(data.train, name, source, options, Path(cache), progress, on_message))
    with tempfile.TemporaryDirectory(prefix="ternarybert-") as folder:
        return replace(data, train=_augment(data.train, name, source, options, Path(folder), progress, in_memory=True))


def _augment(
    train: Dataset,
    name: str,
    source: Source,
    options: VariantOptions,
    folder: Path,
    progress: Progress | None,
    on_message: MessageCallback | None = None,
    *,
    in_memory: bool = False,
) -> Dataset:
    columns = {name: list(train[name]) for name in train.column_names}
    key = digest(source.fingerprint, options.fingerprint, repr(columns))
    cached = folder / f"{name}-{key}.arrow"
    if not cached.is_file():
        with _locked(cached, on_message):
            _fill(cached, columns, train.features, source, options, progress)
    return import_datasets().Dataset.from_file(str(cached), in_memory=in_memory)


@contextmanager
def _locked(cached: Path, on_message: MessageCallback | None) -> Iterator[None]:
    """Let one process at a time write a file; the system releases the lock of a killed process."""
    import_datasets()  # installs filelock too; its error names the extra to install
    from filelock import FileLock

    path = cached.with_suffix(".lock")
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _acquire(lock, on_message)
    except OSError as error:
        raise OutputError(f"cannot write augmented rows to {cached.parent}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()
    path.unlink(missing_ok=True)  # processes that still wait will find the cached file


def _acquire(lock: FileLock, on_message: MessageCallback | None) -> None:
    try:
        lock.acquire(timeout=0)
    except TimeoutError:
        if on_message is not None:
            on_message("another process is generating the same rows; waiting for it")
        lock.acquire()


def _fill(
    cached: Path,
    columns: Mapping[str, list[object]],
    features: object,
    source: Source,
    options: VariantOptions,
    progress: Progress | None,
) -> None:
    if cached.is_file():  # written by another process while this one waited
        return
    lines = cached.with_suffix(".jsonl")
    _write_lines(columns, lines, source, options, progress)
    _convert(lines, cached, features)
    lines.unlink()


def _write_lines(
    columns: Mapping[str, list[object]], path: Path, source: Source, options: VariantOptions, progress: Progress | None
) -> None:
    if path.is_file():  # finished, and interrupted before the conversion
        return
    texts = tuple(name for name in ("text", "text_pair") if name in columns)
    table = Table(path, dict(columns), range(1, len(columns["text"]) + 1), "row")
    data = AugmentInput(table, texts, TableFormat("jsonl"))
    try:
        augment_table(data, path, source, options, progress=progress)
    except OutputError:
        # The path is a hash of everything that determines the rows, so an unfinished file that cannot be resumed is
        # of no use to any other run.
        augment_table(data, path, source, options, force=True, progress=progress)


def _convert(lines: Path, cached: Path, features: object) -> None:
    """Convert JSON lines to Arrow, which can be memory-mapped."""
    import_datasets()
    from datasets.arrow_writer import ArrowWriter

    unfinished = cached.with_name(f"{cached.name}.part")
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
    unfinished.replace(cached)


def _columns(rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


@contextmanager
def _interrupt_message() -> Iterator[None]:
    """Say what Ctrl-C leaves behind; the caller only knows about checkpoints."""
    try:
        yield
    except KeyboardInterrupt as stop:
        message = "stopped while augmenting; the rows so far are saved, and the same command resumes from there"
        raise KeyboardInterrupt(message) from stop


def _report_rows(on_message: MessageCallback, before: int, after: int) -> None:
    on_message(f"{before:,} rows became {after:,}")
    warning = few_variants(before, after)
    if warning is not None:
        on_message(warning)


def _named_source(options: Augmentation, device: str | None) -> Source:
    import torch

    return load_source(
        masked_model=options.masked_model,
        glove=options.glove,
        masks=options.masks,
        device=device or ("cuda" if torch.cuda.is_available() else "cpu"),
    )
