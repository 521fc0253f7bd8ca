"""Rows in memory with the face of a `datasets.Dataset`, as far as scoring a packed model needs it.

A base install has no `datasets`, which brings hundreds of megabytes; evaluating a model should work there, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class PlainRows:
    """Columns of equal length."""

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self._columns = {name: list(values) for name, values in columns.items()}

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def select(self, rows: Sequence[int]) -> PlainRows:
        """Some of the rows, in the order asked."""
        return PlainRows({name: [values[row] for row in rows] for name, values in self._columns.items()})

    def remove_columns(self, name: str) -> PlainRows:
        """The rows without a column."""
        return PlainRows({other: values for other, values in self._columns.items() if other != name})

    def add_column(self, name: str, values: Sequence[Any]) -> PlainRows:
        """The rows with one more column."""
        return PlainRows({**self._columns, name: values})
