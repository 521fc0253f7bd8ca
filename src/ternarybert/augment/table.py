"""A table in, a file with every row and its variants out. All columns are copied; only the texts change.

MERGED-DOCS:
What is augmented: the user's own table or the training rows of a GLUE task, with all their columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ternarybert.augment.source import Source, digest
from ternarybert.augment.variants import Progress, Settings, Texts, augment_rows
from ternarybert.data import GLUE, ClassificationTask, glue_task, load_glue
from ternarybert.data.readers import Table, delimiter_of, read_plain_tsv, read_table
from ternarybert.data.table import choose_columns
from ternarybert.data.writers import Layout, choose_layout, layout_by_suffix
from ternarybert.errors import DataError
from ternarybert.storage import ResumableFile, refuse_existing


@dataclass(frozen=True)
class Input:
    """Rows to augment, and how they were written."""

    table: Table
    texts: tuple[str, ...]  # the columns to change
    layout: Layout
    task: ClassificationTask | None = None

    @property
    def rows(self) -> list[Texts]:
        """The texts of each row, checked. Empty ones are fine: they have no words to replace."""
        columns = [self.table.column(name) for name in self.texts]
        return [tuple(self._text(value, i) for value in values) for i, values in enumerate(zip(*columns, strict=True))]

    def _text(self, value: object, row: int) -> str:
        if not isinstance(value, str):
            raise DataError(f"{self.table.place(row)}: the text is {value!r:.40}, not a string; drop the row")
        return value


def open_file(
    path: str | Path, *, text: str | None = None, text_pair: str | None = None, label: str | None = None
) -> Input:
    """Read the user's own table; columns that are not named are guessed where it is obvious."""
    table = read_table(path)
    texts = choose_columns([table], text, text_pair, label).texts if table.named else ("text",)
    return Input(table, texts, _layout(table))


def open_task(name: str, folder: str | Path | None = None) -> Input:
    """Read the training rows of a GLUE task, from its folder, the folder of all tasks, or without one the hub.

    Every column of `train.tsv` is kept. Rows from elsewhere (the hub, Microsoft's own paraphrase file) have the
    columns that `load_glue` reads, in the layout of `train.tsv`.
    """
    task = glue_task(name)
    record = GLUE[task.name]
    layout = Layout("plain", "\t", header=record.header is None)
    folders = (Path(folder), Path(folder) / record.folder) if folder else ()
    path = next((inside / "train.tsv" for inside in folders if (inside / "train.tsv").is_file()), None)
    if path is not None:
        return Input(read_plain_tsv(path, record.header, record.broken_share), task.text_columns, layout, task)
    return Input(_canonical(task, folder, record.header), task.text_columns, layout, task)


def _canonical(task: ClassificationTask, folder: str | Path | None, header: Sequence[str] | None) -> Table:
    """The rows that `load_glue` gives, under the names that `train.tsv` uses."""
    train = load_glue(task.name, folder).train
    if train is None:
        raise DataError(f"{folder} holds no training rows of {task.name}")
    names = (*task.text_columns, task.label_column or "label")
    found = dict(zip(names, (list(train[column]) for column in train.column_names), strict=True))
    columns = {name: found.get(name, [""] * len(train)) for name in header or names}
    return Table(Path("train.tsv"), columns, range(1, len(train) + 1), "row")


def _layout(table: Table) -> Layout:
    """How a file was written, as far as its suffix leaves it open."""
    suffix = table.path.suffix.lower()
    if suffix == ".csv":
        return Layout("csv", delimiter_of(table.path))
    if suffix == ".tsv" and _is_plain(table):
        return Layout("plain", "\t")
    return layout_by_suffix(table.path) if suffix != ".parquet" else Layout("jsonl")


def _is_plain(table: Table) -> bool:
    """Whether a TSV file needs no quotes; its readers may then not know of any."""
    try:
        return read_plain_tsv(table.path).columns == table.columns
    except DataError:
        return False


_FEW = 0.1  # variants per row; texts whose words are known get nearly as many as are asked for


@dataclass(frozen=True)
class Summary:
    """What an augmentation did."""

    path: Path
    rows: int  # in the input
    written: int  # in the output, the originals among them
    resumed: int  # input rows that an earlier run had done


def few_variants(rows: int, written: int) -> str | None:
    """A line to warn with when (nearly) nothing was replaced, such as in another language than the source's."""
    if written - rows > _FEW * rows:
        return None
    what = f"{rows:,} rows got {written - rows:,} variants" if written > rows else "no row got a variant"
    return f"{what}: the texts have hardly a word that may be replaced and is known where words come from"


def prepare(data: Input, out: Path, *, force: bool = False) -> tuple[list[Texts], Layout]:
    """The rows, and how to write them; what could not be written or read again is refused before any work."""
    layout = choose_layout(out, data.table.path, data.layout)
    layout.check(data.table.columns, out)
    refuse_existing(out, force=force)
    return data.rows, layout


def augment_table(
    data: Input,
    out: str | Path,
    source: Source,
    settings: Settings | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Write each row followed by its variants; go on where an earlier run of the same job was stopped."""
    out, settings, columns = Path(out), settings or Settings(), data.table.columns
    rows, layout = prepare(data, out, force=force)
    job = digest(source.fingerprint, settings.fingerprint, repr((layout, data.texts, columns)))
    with ResumableFile(out, job, force=force) as file:
        start = file.state.done
        if not file.state.size:
            file.append(layout.first_line(list(columns)), done=0, written=0)
        for stretch in augment_rows(rows, source, settings, start=start, progress=progress):
            lines = [layout.line(row) for row in _rows(columns, data.texts, file.state.done, stretch)]
            file.append("".join(lines), done=len(stretch), written=len(lines))
        file.finish()
        return Summary(out, len(rows), file.state.written, start)


def _rows(
    columns: Mapping[str, Sequence[object]], names: Sequence[str], first: int, stretch: Sequence[Sequence[Texts]]
) -> Iterator[dict[str, object]]:
    """Rows to write: those of the table from `first` on, each once per variant."""
    for index, variants in enumerate(stretch, first):
        row = {name: values[index] for name, values in columns.items()}
        for texts in variants:
            yield {**row, **dict(zip(names, texts, strict=True))}
