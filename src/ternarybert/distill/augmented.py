"""Augmented training data for a run: where the words come from, and the paper's settings for such data.

The paper trains one epoch on augmented data and does not augment STS-B, MNLI and QQP, where it saw no gain. How many
variants a row gets is the task's business. The rows are kept by content in a folder that all runs share, so that other
bits, recipes or a resumed run find them made.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.augment import STOP_WORDS, Source, augment_dataset, embedding_neighbours, load_source
from ternarybert.augment.dataset import Say
from ternarybert.augment.pipeline import Progress
from ternarybert.augment.table import few_variants
from ternarybert.errors import DataError, RecipeError
from ternarybert.tasks import SquadData, SquadTask, Task, TaskData

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


def check_augmented(task: Task | SquadTask) -> Task:
    """Refuse, before any work, what the paper does not augment."""
    if isinstance(task, SquadTask):
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
    data: TaskData | SquadData, how: Augmentation, own: Callable[[], Source], seed: int, device: str | None
) -> tuple[TaskData, dict[str, Any]]:
    """The data with variants of every training row, to be seen once, and what was done.

    `own` gives the teacher's own words, for when nothing better is at hand.
    """
    assert isinstance(data, TaskData)  # check_augmented says so
    task = data.task
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
    return load_source(
        masked_model=how.masked_model,
        glove=how.glove,
        masks=how.masks,
        device=device or ("cuda" if torch.cuda.is_available() else "cpu"),
    )
