"""Augmented training data for a run: where the words come from, and the paper's settings for such data.

The paper trains one epoch on augmented data and does not augment STS-B, MNLI and QQP, where it saw no gain. How many
variants a row gets is the task's business. The rows are kept by content in a folder that all runs share, so that other
bits, recipes or a resumed run find them made.

MERGED-DOCS:
Augmented training data for a run, made once and kept by content.

The name of the kept file is made of everything that decides its rows: the data, the source, the settings. A run that
asks for the same gets the file; one that was stopped while making it goes on. Runs that want the same at the same time,
as the processes of one run do, wait for the one that came first.

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

from ternarybert.augment.load import load_source
from ternarybert.augment.neighbours import embedding_neighbours
from ternarybert.augment.source import Source, digest
from ternarybert.augment.table import Input, augment_table, few_variants
from ternarybert.augment.variants import Progress, Settings
from ternarybert.augment.words import STOP_WORDS
from ternarybert.data import ClassificationTask, Task, TaskData
from ternarybert.data.readers import Table
from ternarybert.data.task import import_datasets
from ternarybert.data.writers import Layout
from ternarybert.errors import DataError, OutputError, RecipeError

if TYPE_CHECKING:
    from datasets import Dataset
    from filelock import FileLock
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_BATCH = 10_000  # rows converted at a time

Say = Callable[[str], None]  # is told in a sentence what happens


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
    say: Say | None = None,
) -> TaskData[ClassificationTask]:
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


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Augmentation:
    """Where words come from, and how many variants to make; the seed is the run's."""

    masked_model: str | None = None
    glove: str | Path | None = None
    variants: int | None = None  # None: as the task says
    masks: int = 1  # words of a text that the model is asked about at once; more is faster, and no longer TinyBERT
    cache: str | Path | None = None  # None: `cache_folder()`
    progress: Progress | None = None
    stop_words: frozenset[str] = STOP_WORDS  # words that stay, in lower case
    say: Say | None = None

    @property
    def from_teacher(self) -> bool:
        """Whether nothing better is at hand than the teacher's own word embeddings."""
        return self.masked_model is None and self.glove is None


def cache_folder() -> Path:
    """Where augmented rows are kept, unless a run says otherwise."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ternarybert" / "augment"


def check_augmented(task: Task) -> ClassificationTask:
    """Refuse, before any work, what the paper does not augment."""
    if not isinstance(task, ClassificationTask):
        raise RecipeError("questions are not augmented: other words would move or lose the answer; leave --augment out")
    if task.augment is False:
        raise RecipeError(
            f"the paper does not augment {task.name}, where it saw no gain; leave --augment out, or write the variants "
            "to a file with 'ternarybert augment' and train on that"
        )
    return task


def own_words(teacher: str, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Source:
    """The word embeddings of a loaded teacher, whatever kind of file it came from."""
    table = network.get_input_embeddings().weight.detach().float().cpu().numpy()
    return embedding_neighbours(tokenizer.get_vocab(), table, teacher)


def augmented(
    data: TaskData[Any], how: Augmentation, own: Callable[[], Source], seed: int, device: str | None
) -> tuple[TaskData[Any], dict[str, Any]]:
    """The data with variants of every training row, to be seen once, and what was done.

    `own` gives the teacher's own words, for when nothing better is at hand.
    """
    task = check_augmented(data.task)
    variants = task.augment_variants if how.variants is None else how.variants
    if data.train is None:
        raise DataError(f"'{task.name}' has no training rows")
    source = own() if how.from_teacher else _named_source(how, device)
    _log.info("augmenting with %s", source.description)
    with _interrupted_in_words():
        made = augment_dataset(
            data,
            source,
            variants=variants,
            seed=seed,
            stop_words=how.stop_words,
            cache=how.cache or cache_folder(),
            progress=how.progress,
            say=how.say,
        )
    if how.say is not None and made.train is not None:
        _tell(how.say, len(data.train), len(made.train))
    note = {
        "source": source.description,
        "fingerprint": source.fingerprint,
        "variants": variants,
        "rows_before": len(data.train),
    }
    return replace(made, task=replace(task, epochs=task.epochs_augmented)), note


@contextmanager
def _interrupted_in_words() -> Iterator[None]:
    """Whoever tells the user of Ctrl-C knows of checkpoints, and not of rows that are kept."""
    try:
        yield
    except KeyboardInterrupt as stop:
        words = "stopped while augmenting; the rows so far are kept, and the same command goes on from there"
        raise KeyboardInterrupt(words) from stop


def _tell(say: Say, before: int, after: int) -> None:
    say(f"{before:,} rows became {after:,}")
    warning = few_variants(before, after)
    if warning is not None:
        say(warning)


def _named_source(how: Augmentation, device: str | None) -> Source:
    import torch

    return load_source(
        masked_model=how.masked_model,
        glove=how.glove,
        masks=how.masks,
        device=device or ("cuda" if torch.cuda.is_available() else "cpu"),
    )
