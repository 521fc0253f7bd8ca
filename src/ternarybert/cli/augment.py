"""The command `augment`: writes every training row and variants of it to a file like the input."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.console import (
    RERUN,
    STOPPED,
    ProgressDisplay,
    announce_download,
    handle_errors,
    make_console,
    print_json,
    quiet,
)
from ternarybert.cli.options import (
    AUGMENTATION,
    DATA,
    ENGINE,
    OUTPUT,
    WITHOUT_MASKED_MODEL,
    ColumnOptions,
    JsonOption,
    OptionGroup,
    WordOptions,
    option,
    refuse,
    set_threads,
    with_options,
)
from ternarybert.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.augment import AugmentInput, Source

EXAMPLE = (
    "Example: ternarybert augment train_aug.csv --train train.csv --masked-model bert-base-uncased "
    "--glove glove.6B.300d.txt"
)
_SAVE_MEMORY = "try a smaller --batch-size or a smaller --max-length"
_USE_EVAL = "when you train on this file, evaluate on other rows (--eval): held-out rows would have variants in it"


class _AugmentInputOptions(OptionGroup):
    train: Path | None = option(DATA, "Training data: CSV, TSV, JSONL, parquet or .txt.", "FILE")


class AugmentFileOptions(JsonOption, WordOptions, ColumnOptions, _AugmentInputOptions):
    """What is augmented, and how."""

    task: str | None = option(
        DATA, "GLUE task, instead of your own file: cola, sst2, mrpc, stsb, qqp, mnli, qnli or rte.", "NAME"
    )
    data: Path | None = option(
        DATA, "Folder with the files of --task. By default they come from the Hugging Face Hub.", "FOLDER"
    )
    embeddings: str | None = option(
        AUGMENTATION, "Model whose word embeddings are used instead of --masked-model.", "MODEL"
    )
    probability: float = option(AUGMENTATION, "Probability that a word is replaced.", default=0.4, min=0, max=1)
    seed: int = option(AUGMENTATION, "Random seed. The same seed writes the same bytes.", default=42, min=0)
    batch_size: int | None = option(ENGINE, "Batch size of the masked language model. By default 32.", min=1)
    max_length: int | None = option(
        ENGINE, "Tokens that the masked language model reads at most. By default 512.", "TOKENS", min=8
    )
    device: str | None = option(ENGINE, "Device of the masked language model: cpu or cuda. By default cpu.", "NAME")
    threads: int | None = option(ENGINE, "CPU threads of the masked language model. By default chosen by torch.", min=1)
    force: bool = option(OUTPUT, "Replace an existing file and discard an unfinished one.", default=False)

    def check(self) -> None:
        """Refuse options that only a masked language model would use."""
        super().check()
        if self.masked_model is None:
            engine = {name: getattr(self, name) for name in ("batch_size", "max_length", "device", "threads")}
            refuse(WITHOUT_MASKED_MODEL, **engine)

    def open(self) -> AugmentInput:
        """The rows to augment."""
        from ternarybert.augment import open_file, open_task

        if (self.train is None) == (self.task is None):
            raise DataError("name either your own file with --train or a GLUE task with --task")
        if self.task is not None:
            refuse(f"with --task {self.task}, whose columns are known", **self.columns)
            return open_task(self.task, self.data)
        if self.data is not None:
            raise DataError(f"--data {self.data} is the folder of a GLUE task and needs --task")
        return open_file(str(self.train), **self.columns)


@with_options
def augment(
    out: Annotated[Path, typer.Argument(help="File to write: .csv, .tsv, .jsonl or .txt.")],
    *,
    options: AugmentFileOptions,
) -> None:
    """Write every row and variants of it, in which words are replaced by words that fit.

    You can stop at any time: the same command resumes.
    """
    start = time.monotonic()
    console = make_console(errors=True)  # standard output is for --json
    console.soft_wrap = True
    with handle_errors(stopped=STOPPED, resume=RERUN, save_memory=_SAVE_MEMORY), ExitStack() as stack:
        from ternarybert.augment import VariantOptions, augment_table, load_source, read_stop_words
        from ternarybert.augment.table import few_variants, prepare

        options.check()
        rows = options.open()
        words = {"stop_words": read_stop_words(options.stop_words)} if options.stop_words else {}
        variants = _default_variants(rows) if options.variants is None else options.variants
        settings = VariantOptions(variants, options.probability, options.seed, **words)
        prepare(rows, out, force=options.force)  # mistakes are reported before a model is loaded
        for model in filter(None, (options.masked_model, options.embeddings)):
            announce_download(model)
        if options.masked_model is not None:
            stack.enter_context(quiet())
            set_threads(options.threads)
        source = load_source(
            masked_model=options.masked_model,
            embeddings=options.embeddings,
            glove=options.glove,
            batch_size=options.batch_size or 32,
            max_length=options.max_length or 512,
            masks=options.masks or 1,
            device=options.device or "cpu",
        )
        _announce(console, rows, source, variants)
        for line in options.missing():
            console.print(line)
        with ProgressDisplay(console, "augmenting", unit="row") as progress:
            summary = augment_table(rows, out, source, settings, force=options.force, progress=progress.update)
        warning = few_variants(summary.rows, summary.written) if variants else None
    report = asdict(summary) | {"path": str(summary.path), "source": source.description}
    report["seconds"] = round(time.monotonic() - start, 3)
    _show(console, report)
    for line in filter(None, (warning, _USE_EVAL if options.train else None)):
        console.print(line)
    if options.as_json:
        print_json(report)


def _default_variants(rows: AugmentInput) -> int:
    from ternarybert.augment import VariantOptions

    return rows.task.augment_variants if rows.task else VariantOptions().variants


def _announce(console: Console, rows: AugmentInput, source: Source, variants: int) -> None:
    """Print what will be done, before it takes long."""
    texts = " and ".join(f"'{name}'" for name in rows.texts)
    console.print(f"{rows.table.path}: {len(rows.table):,} rows, texts {texts}, up to {variants} variants each")
    console.print(f"words from {source.description}")
    if rows.task is not None and rows.task.augment is False:
        console.print(f"the paper does not augment {rows.task.name}")


def _show(console: Console, report: dict[str, Any]) -> None:
    resumed = f" ({report['resumed']:,} of them by an earlier run)" if report["resumed"] else ""
    console.print(
        f"{report['rows']:,} rows{resumed} became {report['written']:,} in {report['seconds']:.1f} s: {report['path']}"
    )
