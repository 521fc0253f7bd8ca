"""Which columns of a table are the texts and the label, when the user says it and when not.

What is named must exist. What is not named is guessed only where a person would not hesitate; a wrong guess would
train a model on the wrong column for an hour.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ternarybert.errors import DataError, suggest
from ternarybert.tasks.files import Table
from ternarybert.tasks.labels import as_number

_TEXT_NAMES = ("text", "sentence", "review", "content", "comment", "message", "document", "tweet", "utterance", "body")
_PAIR_NAMES = (
    ("text", "text_pair"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
)
_LABEL_NAMES = ("label", "labels", "class", "category", "target", "score", "rating")


@dataclass(frozen=True)
class Columns:
    """Names of one or two text columns and maybe a label column."""

    texts: tuple[str, ...]
    label: str | None


def choose_columns(tables: Sequence[Table], text: str | None, text_pair: str | None, label: str | None) -> Columns:
    """Settle the columns for a training and an evaluation table together.

    The first table with named columns decides about the texts. The label may be in any: a student can learn from
    unlabelled text and be judged on a labelled table.
    """
    lead = next((table for table in tables if table.named), tables[0])
    label = _label(tables, lead, label, taken={text, text_pair})
    texts = _texts(lead, text, text_pair, label)
    for table in tables:
        _check_texts(table, texts, lead)
    _check_labels(tables, label)
    return Columns(texts, label)


def _label(tables: Sequence[Table], lead: Table, label: str | None, taken: Collection[str | None]) -> str | None:
    if label is None:
        guesses = (_find(table, _LABEL_NAMES, taken) for table in tables if table.named)
        return next((guess for guess in guesses if guess), None)
    if not any(label in table.columns for table in tables if table.named):
        lead.column(label)  # raises, and names the nearest column
    return label


def _texts(table: Table, text: str | None, text_pair: str | None, label: str | None) -> tuple[str, ...]:
    for name in (text, text_pair):
        if name is not None and table.named:
            table.column(name)
    if text is None and text_pair is None:
        both = next((pair for names in _PAIR_NAMES if (pair := _find_all(table, names, label))), None)
        if both:
            return both
    text = text or _guess_text(table, taken={text_pair, label})
    chosen = (text,) if text_pair is None else (text, text_pair)
    if len({*chosen, label}) <= len(chosen):
        raise DataError(f"the same column of {table.path} is named twice: {', '.join(chosen)}, label {label}")
    return chosen


def _guess_text(table: Table, taken: Collection[str | None]) -> str:
    known = _find(table, _TEXT_NAMES, taken)
    if known:
        return known
    wordy = [name for name, values in table.columns.items() if name not in taken and _has_words(values)]
    if len(wordy) != 1:
        seen = ", ".join(table.columns)
        raise DataError(f"which column of {table.path} is the text? Name it (text=..., --text); columns: {seen}")
    return wordy[0]


def _has_words(values: Sequence[object]) -> bool:
    """Whether a column holds strings, and not only numbers written as strings."""
    present = [value for value in values if value is not None]
    strings = [value for value in present if isinstance(value, str)]
    return len(strings) == len(present) and any(as_number(value.strip() or "0") is None for value in strings)


def _find(table: Table, names: Sequence[str], taken: Collection[str | None]) -> str | None:
    """Give the column with the first of some usual names, in any case."""
    by_name = {name.casefold(): name for name in table.columns if name not in taken}
    return next((by_name[name] for name in names if name in by_name), None)


def _find_all(table: Table, names: tuple[str, str], label: str | None) -> tuple[str, ...] | None:
    found = tuple(column for name in names if (column := _find(table, (name,), {label})))
    return found if len(found) == len(names) else None


def _check_texts(table: Table, texts: tuple[str, ...], lead: Table) -> None:
    if not table.named and len(texts) > 1:
        raise DataError(f"{table.path} holds one text a line; pairs need a table with two columns")
    missing = [name for name in texts if table.named and name not in table.columns]
    if missing:
        raise DataError(
            f"{table.path} has no column '{missing[0]}', {lead.path} has{suggest(missing[0], table.columns)}"
        )


def _check_labels(tables: Sequence[Table], label: str | None) -> None:
    """Refuse an evaluation table without labels beside a training table that has them."""
    train, last = tables[0], tables[-1]
    if label is not None and has_label(train, label) and not has_label(last, label):
        raise DataError(f"{last.path} has no column '{label}', {train.path} has; the labels are needed in both")


def require_label(table: Table, label: str | None) -> None:
    """Refuse a table to learn from that has no label column."""
    if not table.named:
        raise DataError(f"{table.path} holds texts without labels; learning them needs a table with a label column")
    if not has_label(table, label):
        seen = ", ".join(table.columns)
        raise DataError(f"which column of {table.path} is the label? Name it (label=..., --label); columns: {seen}")


def has_label(table: Table, label: str | None) -> bool:
    """Whether a table holds the label column."""
    return table.named and label in table.columns
