"""A table in, a file with every row and its variants out. All columns are copied; only the texts change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ternarybert._resumable import ResumableFile
from ternarybert.augment.inputs import Input
from ternarybert.augment.layout import choose_layout
from ternarybert.augment.pipeline import Progress, Settings, Texts, augment_rows
from ternarybert.augment.source import Source, digest


@dataclass(frozen=True)
class Summary:
    """What an augmentation did."""

    path: Path
    rows: int  # in the input
    written: int  # in the output, the originals among them
    resumed: int  # input rows that an earlier run had done


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
    out, settings, rows = Path(out), settings or Settings(), data.rows
    layout = choose_layout(out, data.table.path, data.layout)
    columns = data.table.columns
    layout.check(columns, out)
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
