"""Augment a table or a GLUE task: every row is written, followed by its variants. Only the text columns change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ternarybert.augment.sources import Source, digest
from ternarybert.augment.variants import Progress, Texts, VariantOptions, augment_rows
from ternarybert.data import GLUE, ClassificationTask, glue_task, load_glue
from ternarybert.data.readers import Table, delimiter_of, read_plain_tsv, read_table
from ternarybert.data.table import choose_columns
from ternarybert.data.writers import TableFormat, format_by_suffix, matching_format
from ternarybert.errors import DataError
from ternarybert.storage import ResumableFile, check_output_file

_FEW = 0.1  # variants per row; texts with known words get nearly as many as requested


@dataclass(frozen=True)
class AugmentInput:
    """Rows to augment, and the layout of the file they came from."""

    table: Table
    texts: tuple[str, ...]  # the columns to change
    layout: TableFormat
    task: ClassificationTask | None = None

    @property
    def rows(self) -> list[Texts]:
        """The texts of each row, checked. Empty texts are allowed: they have no words to replace."""
        columns = [self.table.column(name) for name in self.texts]
        return [tuple(self._text(value, i) for value in values) for i, values in enumerate(zip(*columns, strict=True))]

    def _text(self, value: object, row: int) -> str:
        if not isinstance(value, str):
            raise DataError(f"{self.table.location(row)}: the text is {value!r:.40}, not a string; remove the row")
        return value


@dataclass(frozen=True)
class AugmentSummary:
    """Numbers of rows of an augmentation."""

    path: Path
    rows: int  # in the input
    written: int  # in the output, including the originals
    resumed: int  # input rows done by an earlier run


def open_file(
    path: str | Path, *, text: str | None = None, text_pair: str | None = None, label: str | None = None
) -> AugmentInput:
    """Read a table; columns that are not named are guessed where the choice is obvious."""
    table = read_table(path)
    texts = choose_columns([table], text, text_pair, label).texts if table.named else ("text",)
    return AugmentInput(table, texts, _layout(table))


def open_task(name: str, folder: str | Path | None = None) -> AugmentInput:
    """Read the training rows of a GLUE task from its folder, the folder of all tasks or, without one, the Hub.

    Every column of `train.tsv` is kept. Rows from elsewhere (the Hub, Microsoft's own paraphrase file) have the
    columns that `load_glue` reads, in the layout of `train.tsv`.
    """
    task = glue_task(name)
    record = GLUE[task.name]
    layout = TableFormat("plain", "\t", header=record.header is None)
    folders = (Path(folder), Path(folder) / record.folder) if folder else ()
    path = next((inside / "train.tsv" for inside in folders if (inside / "train.tsv").is_file()), None)
    if path is not None:
        return AugmentInput(read_plain_tsv(path, record.header, record.broken_share), task.text_columns, layout, task)
    return AugmentInput(_loaded_rows(task, folder, record.header), task.text_columns, layout, task)


def augment_table(
    data: AugmentInput,
    out: str | Path,
    source: Source,
    options: VariantOptions | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> AugmentSummary:
    """Write each row followed by its variants; an interrupted run with the same options is resumed."""
    out, options, columns = Path(out), options or VariantOptions(), data.table.columns
    rows, layout = prepare(data, out, force=force)
    job = digest(source.fingerprint, options.fingerprint, repr((layout, data.texts, columns)))
    with ResumableFile(out, job, force=force) as file:
        start = file.progress.done
        if not file.progress.size:
            file.append(layout.first_line(list(columns)), done=0, written=0)
        for chunk in augment_rows(rows, source, options, start=start, progress=progress):
            lines = [layout.line(row) for row in _output_rows(columns, data.texts, file.progress.done, chunk)]
            file.append("".join(lines), done=len(chunk), written=len(lines))
        file.finish()
        return AugmentSummary(out, len(rows), file.progress.written, start)


def prepare(data: AugmentInput, out: Path, *, force: bool = False) -> tuple[list[Texts], TableFormat]:
    """Return the rows and the output layout; rejects, before any work, rows that could not be written or read back."""
    layout = matching_format(out, data.table.path, data.layout)
    layout.check(data.table.columns, out)
    check_output_file(out, force=force)
    return data.rows, layout


def few_variants(rows: int, written: int) -> str | None:
    """Return a warning if (nearly) nothing was replaced, for example because the texts are in another language."""
    if written - rows > _FEW * rows:
        return None
    what = f"{rows:,} rows got {written - rows:,} variants" if written > rows else "no row got a variant"
    return f"{what}: the texts contain hardly any replaceable word that the source knows"


def _loaded_rows(task: ClassificationTask, folder: str | Path | None, header: Sequence[str] | None) -> Table:
    """The rows that `load_glue` returns, with the column names of `train.tsv`."""
    train = load_glue(task.name, folder).train
    if train is None:
        raise DataError(f"{folder} has no training rows of {task.name}")
    names = (*task.text_columns, task.label_column or "label")
    loaded = dict(zip(names, (list(train[column]) for column in train.column_names), strict=True))
    columns = {name: loaded.get(name, [""] * len(train)) for name in header or names}
    return Table(Path("train.tsv"), columns, range(1, len(train) + 1), "row")


def _layout(table: Table) -> TableFormat:
    """The layout of a file, as far as its suffix does not determine it."""
    suffix = table.path.suffix.lower()
    if suffix == ".csv":
        return TableFormat("csv", delimiter_of(table.path))
    if suffix == ".tsv" and _is_plain(table):
        return TableFormat("plain", "\t")
    return format_by_suffix(table.path) if suffix != ".parquet" else TableFormat("jsonl")


def _is_plain(table: Table) -> bool:
    """Whether a TSV file needs no quotes; programs that read it may not support them."""
    try:
        return read_plain_tsv(table.path).columns == table.columns
    except DataError:
        return False


def _output_rows(
    columns: Mapping[str, Sequence[object]], names: Sequence[str], first: int, chunk: Sequence[Sequence[Texts]]
) -> Iterator[dict[str, object]]:
    """The rows to write: those of the table from `first` on, each once per variant."""
    for index, variants in enumerate(chunk, first):
        row = {name: values[index] for name, values in columns.items()}
        for texts in variants:
            yield {**row, **dict(zip(names, texts, strict=True))}
