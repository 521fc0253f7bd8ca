"""A table in, a file with every row and its variants out. All columns are copied; only the texts change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ternarybert._resumable import ResumableFile, refuse_existing
from ternarybert.augment.inputs import Input
from ternarybert.augment.layout import Layout, choose_layout
from ternarybert.augment.pipeline import Progress, Settings, Texts, augment_rows
from ternarybert.augment.source import Source, digest

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
