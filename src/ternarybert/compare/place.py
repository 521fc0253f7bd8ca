"""The folder of a comparison: what it was begun with, and a file for every cell that is done.

    comparison.json      teacher, data, recipe and time of a cell; a folder holds one comparison
    cells/KEY.json       what was measured of a student, or why it could not be made
    cells/KEY.work/      a student in the making, from whose last checkpoint the next start goes on
    table.md table.json  all that is there, written anew after every cell
    figure.svg .png      size against score, when all are done

Nothing else in the folder is touched.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ternarybert.compare.cells import Cell
from ternarybert.distill.work import read_json, work_folder, write_json
from ternarybert.errors import OutputError

_PLAN, _TIME = "comparison.json", ".time"


class Place:
    """A comparison's folder by the names of its parts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cells = folder, folder / "cells"

    def begin(self, plan: dict[str, Any], *, force: bool = False) -> None:
        """Take the folder for this comparison, or find it begun by the same; other things in it are never touched."""
        path, wanted = self.folder / _PLAN, json.loads(json.dumps(plan))
        ours = path.is_file()
        if ours and force:
            shutil.rmtree(self.cells, ignore_errors=True)
            path.unlink()
        if path.is_file():
            begun = read_json(path)
            others = [name for name in wanted if begun.get(name) != wanted[name]]
            if others:
                raise OutputError(
                    f"{self.folder} holds a comparison with another {', '.join(others)}; choose another --output, "
                    "or --force to drop it"
                )
            self.cells.mkdir(exist_ok=True)
            return
        if self.folder.is_file():
            raise OutputError(f"{self.folder} is a file; choose another --output")
        if self.folder.is_dir() and not ours and any(self.folder.iterdir()):
            raise OutputError(f"{self.folder} holds something else; choose another --output")
        self.cells.mkdir(parents=True, exist_ok=True)
        write_json(path, wanted)

    @property
    def seconds(self) -> float | None:
        """The time of a cell, fixed by the first start: with another time later cells would not compare."""
        path = self.cells / _TIME
        return float(read_json(path)["seconds"]) if path.is_file() else None

    @seconds.setter
    def seconds(self, value: float) -> None:
        write_json(self.cells / _TIME, {"seconds": value})

    def output(self, cell: Cell) -> Path:
        """Where a cell's work goes, with `.work` behind."""
        return self.cells / cell.key

    def result(self, cell: Cell) -> dict[str, Any] | None:
        """What was found out about a cell; None while it is not done."""
        path = self.cells / f"{cell.key}.json"
        return read_json(path) if path.is_file() else None

    def is_done(self, cell: Cell, source: str | None = None) -> bool:
        """Whether a cell has figures, from that pre-trained model; one that could not be made is tried again."""
        found = self.result(cell)
        return found is not None and "failed" not in found and (source is None or found.get("source") == source)

    def keep(self, cell: Cell, result: dict[str, Any]) -> None:
        """Write down what was found out."""
        write_json(self.cells / f"{cell.key}.json", result | {"cell": asdict(cell)})

    def sweep(self, cell: Cell) -> None:
        """Drop the work of a cell that is done."""
        shutil.rmtree(work_folder(self.output(cell)), ignore_errors=True)

    def with_others(self, cells: Sequence[Cell]) -> list[Cell]:
        """These cells, and after them the others that the folder has figures of."""
        found = {cell.key: cell for cell in cells}
        for path in sorted(self.cells.glob("*.json")):
            said = read_json(path).get("cell")
            if said is not None:
                cell = Cell(**said | {"changes": tuple(map(tuple, said["changes"]))})
                found.setdefault(cell.key, cell)
        return list(found.values())
