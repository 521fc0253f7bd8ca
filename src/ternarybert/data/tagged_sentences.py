"""Sentences whose words have tags, in one record, whatever file they come in.

Read are the columns of CoNLL (a word a line, its tag in the last column, a blank line between sentences), JSON lines
with `tokens` and `tags`, and JSON lines with a `text` and the character `spans` of its entities. Any table or text file
without tags gives sentences to distill on. An error names the line.
"""

from __future__ import annotations

import json
import logging
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path

from ternarybert.data.entities import OUTSIDE, has_prefix, tag_parts
from ternarybert.data.readers import Table, check_file, import_parquet, open_rows, read_table, sample
from ternarybert.data.table import choose_columns, read_texts
from ternarybert.data.token_windows import WordSpans
from ternarybert.errors import DataError, LabelError

_log = logging.getLogger(__name__)
CONLL = (".conll", ".conll03", ".iob", ".iob2", ".bio", ".bioes")
_WORDS, _TAGS, _SPANS = ("tokens", "words"), ("tags", "ner_tags", "pos_tags"), ("spans", "entities")
_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
# What BERT's tokenizer splits a text into before it looks for pieces: an ideograph is a word of its own.
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W_{_IDEOGRAPHS}]+|[^\w\s]|_")
_DOCUMENT = "-DOCSTART-"  # between the documents of CoNLL-2003
_FEW = 10  # rows that tell whether a file has tags


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text, where its words are, and their tags."""

    text: str
    words: WordSpans
    tags: tuple[str, ...] | None = None  # None: unknown
    source: str = ""  # the file
    line: int = 0  # of the sentence, or of its first word
    unit: str = "line"
    word_a_line: bool = False

    def place(self, word: int = 0) -> str:
        """Where a word is, for a message."""
        return f"{self.source}, {self.unit} {self.line + word if self.word_a_line else self.line}"

    @classmethod
    def of_words(cls, words: Sequence[str], tags: Sequence[str] | None = None, **more: object) -> Sentence:
        """A sentence of words, with a space between each two."""
        spans, at = [], 0
        for word in words:
            spans.append((at, at + len(word)))
            at += len(word) + 1
        return cls(" ".join(words), tuple(spans), None if tags is None else tuple(tags), **more)  # type: ignore[arg-type]


def read_sentences(path: str | Path, text: str | None = None, *, conll: bool = False) -> list[Sentence]:
    """Read a file; `text` names the column of plain texts, `conll` reads columns whatever the suffix is."""
    path = Path(path)
    check_file(path)
    if path.suffix.lower() in CONLL or conll:
        sentences = list(_conll_sentences(path))
    else:
        sentences = _table_sentences(read_table(path), text)
    if not sentences:
        raise DataError(f"{path} holds no sentences")
    return _in_one_scheme(sentences)


def holds_tags(path: str | Path) -> bool:
    """Whether a file looks like sentences with tags: by its suffix, or by the fields of its first rows."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in CONLL:
        return True
    if suffix not in (".jsonl", ".json", ".ndjson", ".parquet") or not path.is_file():
        return False
    names = _first_names(path)
    return bool(names & set(_WORDS)) or ("text" in names and bool(names & set(_SPANS)))


def _first_names(path: Path) -> set[str]:
    if path.suffix.lower() != ".parquet":
        try:
            with path.open(encoding="utf-8-sig", errors="replace") as file:
                rows = [json.loads(line) for line in islice(filter(str.strip, file), _FEW)]
        except ValueError:
            return set()  # not JSON lines; whoever reads the file says so
        return set().union(*(row for row in rows if isinstance(row, dict)))
    return set(sample(open_rows(path)).columns)


# --- CoNLL columns ---


def _conll_sentences(path: Path) -> Iterator[Sentence]:
    group: list[tuple[int, list[str]]] = []
    columns = 0
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    for number, line in enumerate([*lines, ""], 1):
        if not line.strip():
            if group:
                yield _conll_sentence(path, group)
            group = []
            continue
        fields = line.rstrip("\r").split("\t") if "\t" in line else line.split()
        if fields[0] == _DOCUMENT:
            continue
        columns = columns or len(fields)
        _check_fields(f"{path}, line {number}", fields, columns)
        group.append((number, fields))


def _check_fields(place: str, fields: list[str], columns: int) -> None:
    if len(fields) != columns:
        raise DataError(f"{place}: {len(fields)} columns, the lines before have {columns}; every word needs a tag")
    if not fields[0].strip():
        raise DataError(f"{place}: there is a tag but no word")
    if not fields[-1].strip():
        raise DataError(f"{place}: the word '{fields[0]:.40}' has no tag")


def _conll_sentence(path: Path, group: list[tuple[int, list[str]]]) -> Sentence:
    words = [fields[0].strip() for _, fields in group]
    tags = [fields[-1].strip() for _, fields in group] if len(group[0][1]) > 1 else None
    return Sentence.of_words(words, tags, source=str(path), line=group[0][0], word_a_line=True)


# --- tables ---


def _table_sentences(table: Table, text: str | None) -> list[Sentence]:
    words, tags, spans = (_found(table, names) for names in (_WORDS, _TAGS, _SPANS))
    if words is not None:
        return list(_word_lists(table, words, tags))
    if spans is not None:
        return list(_span_lists(table, text or "text", spans))
    chosen = choose_columns([table], text, None, None)
    texts = read_texts(table, chosen.texts[:1])[0]
    return [_sentence(table, row, each, split_words(each), None) for row, each in enumerate(texts)]


def _found(table: Table, names: Iterable[str]) -> str | None:
    return next((name for name in names if table.named and name in table.columns), None)


def split_words(text: str) -> list[tuple[int, int]]:
    """Where the words of a plain text are; signs of punctuation are words of their own."""
    return [match.span() for match in _WORD.finditer(text)]


def _sentence(table: Table, row: int, text: str, words: WordSpans, tags: Sequence[str] | None) -> Sentence:
    marks = None if tags is None else tuple(tags)
    return Sentence(text, tuple(words), marks, str(table.path), table.lines[row], table.unit)


def _word_lists(table: Table, words: str, tags: str | None) -> Iterator[Sentence]:
    names = None if tags is None else _hub_names(table.path, tags)
    for row, value in enumerate(table.column(words)):
        place = table.location(row)
        given = _strings(value, words, place)
        if not given:
            raise DataError(f"{place}: the sentence has no words; drop the row")
        marks = None if tags is None else _tag_list(table.column(tags)[row], tags, names, place)
        if marks is not None and len(marks) != len(given):
            raise DataError(f"{place}: {len(given)} words but {len(marks)} tags")
        made = Sentence.of_words(given, marks)
        yield _sentence(table, row, made.text, made.words, made.tags)


def _strings(value: object, name: str, place: str) -> list[str]:
    if isinstance(value, str):
        raise DataError(f'{place}: \'{name}\' is the string {value!r:.40}; write a list, such as ["a", "word"]')
    if not isinstance(value, list):
        raise DataError(f"{place}: '{name}' is {value!r:.40}, not a list")
    for i, one in enumerate(value, 1):
        if not isinstance(one, str) or not one.strip():
            raise DataError(f"{place}: item {i} of '{name}' is {one!r:.40}, not a word")
    return [one.strip() for one in value]


def _tag_list(value: object, name: str, names: Sequence[str] | None, place: str) -> list[str]:
    """Tags as strings; numbers stand for names in the files of hub data sets."""
    if names is None or not isinstance(value, list):
        if isinstance(value, list) and value and all(type(one) is int for one in value):
            raise LabelError(f"{place}: '{name}' are numbers; write the names of the tags, such as B-person")
        return _strings(value, name, place)
    for one in value:
        if type(one) is not int or not 0 <= one < len(names):
            raise LabelError(f"{place}: the tag {one!r:.40} is not a number from 0 to {len(names) - 1}")
    return [names[one] for one in value]


def _hub_names(path: Path, column: str) -> list[str] | None:
    """The names of tags that a parquet file of the hub has as numbers; they are in its metadata."""
    if path.suffix.lower() != ".parquet":
        return None
    _, parquet = import_parquet()
    written = (parquet.read_schema(path).metadata or {}).get(b"huggingface")
    if written is None:
        return None
    feature = json.loads(written).get("info", {}).get("features", {}).get(column, {})
    inner = feature.get("feature", feature) if isinstance(feature, Mapping) else {}
    names = inner.get("names") if isinstance(inner, Mapping) else None
    return [str(name) for name in names] if isinstance(names, list) else None


def _span_lists(table: Table, text: str, spans: str) -> Iterator[Sentence]:
    widened: list[str] = []
    for row, given in enumerate(read_texts(table, (text,))[0]):
        place, value = table.location(row), table.column(spans)[row]
        if not isinstance(value, list):
            kind = "the string" if isinstance(value, str) else "not a list:"
            raise DataError(f"{place}: '{spans}' is {kind} {value!r:.40}; write a list, empty without entities")
        found = sorted(_span(one, given, place) for one in value)
        for (_, end, _), (start, _, _) in pairwise(found):
            if start < end:
                raise DataError(f"{place}: two entities overlap at character {start}")
        words = split_words(given)
        tags, inside = _tags_of_spans(words, found, place)
        widened += [f"{place}, '{given[start:end]:.40}'" for start, end in inside]
        yield _sentence(table, row, given, words, tags)
    if widened:
        _log.warning(
            "%d entities begin or end inside a word, which then belongs to them as a whole; the first: %s",
            len(widened),
            widened[0],
        )


def _span(value: object, text: str, place: str) -> tuple[int, int, str]:
    """The first character, the one after the last, and the type of an entity: an object, or a list of three."""
    parts: list[object] = list(value) if isinstance(value, list) else []
    if isinstance(value, Mapping):
        parts = [value.get("start"), value.get("end"), value.get("label", value.get("type"))]
    if len(parts) != 3:
        raise DataError(f"{place}: the entity {value!r:.60} needs start, end and label")
    start, end, label = parts
    if not isinstance(label, str) or not label.strip():
        raise DataError(f"{place}: the entity {value!r:.60} has no label")
    if type(start) is not int or type(end) is not int or not 0 <= start < end <= len(text):
        raise DataError(f"{place}: the entity {value!r:.60} is not within the {len(text)} characters of the text")
    return start, end, label.strip()


def _tags_of_spans(
    words: WordSpans, spans: Sequence[tuple[int, int, str]], place: str
) -> tuple[list[str], list[tuple[int, int]]]:
    """BIO tags, and the spans that begin or end inside a word: a word has one tag, so they become wider."""
    tags = [OUTSIDE] * len(words)
    starts, ends = [start for start, _ in words], [end for _, end in words]
    widened = []
    for start, end, kind in spans:
        first, last = bisect_right(ends, start), bisect_left(starts, end) - 1
        if first > last:
            raise DataError(f"{place}: there is no word in the entity at characters {start} to {end}")
        if tags[first] != OUTSIDE:
            raise DataError(f"{place}: two entities are in one word, at characters {starts[first]} to {ends[first]}")
        tags[first : last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
        if starts[first] < start or ends[last] > end:
            widened.append((start, end))
    return tags, widened


# --- the scheme of the tags ---


def _in_one_scheme(sentences: list[Sentence]) -> list[Sentence]:
    """Check that tags belong to one scheme; the old IOB, where B- only stands between neighbors, becomes BIO."""
    tagged = [sentence for sentence in sentences if sentence.tags is not None]
    if tagged and len(tagged) < len(sentences):
        lacking = next(sentence for sentence in sentences if sentence.tags is None)
        raise DataError(f"{lacking.place()}: no tags, other sentences have some")
    if not any(has_prefix(tag) for sentence in tagged for tag in sentence.tags or ()):
        return sentences
    _check_prefixes(tagged)
    loose = next(((s, word) for s in tagged for word in _without_beginning(s.tags or ())), None)
    if loose is None:
        return sentences
    if _is_old_iob(sentences):
        _log.warning("%s has the old IOB tags, in which B- only parts neighbors; read as BIO", sentences[0].source)
        return [replace(sentence, tags=_from_old_iob(sentence.tags or ())) for sentence in sentences]
    sentence, word = loose
    tag = (sentence.tags or ())[word]
    raise LabelError(f"{sentence.place(word)}: '{tag}' follows no 'B-{tag_parts(tag)[1]}'; an entity begins with B-")


def _check_prefixes(sentences: Iterable[Sentence]) -> None:
    for sentence in sentences:
        for word, tag in enumerate(sentence.tags or ()):
            if tag != OUTSIDE and not has_prefix(tag):
                raise LabelError(f"{sentence.place(word)}: the tag '{tag}' has no B- or I- before it, as others have")


def _without_beginning(tags: Sequence[str]) -> Iterator[int]:
    """The words with I- or E- that continue nothing."""
    before = (OUTSIDE, "")
    for word, tag in enumerate(tags):
        prefix, kind = tag_parts(tag)
        if prefix in "IE" and (before[0] not in "BI" or before[1] != kind):
            yield word
        before = prefix, kind


def _is_old_iob(sentences: Iterable[Sentence]) -> bool:
    """Whether there are B- tags, each directly after an entity of the same type."""
    seen = False
    for sentence in sentences:
        before = (OUTSIDE, "")
        for tag in sentence.tags or ():
            part = tag_parts(tag)
            if part[0] in "ES" or (part[0] == "B" and (before[0] == OUTSIDE or before[1] != part[1])):
                return False
            seen = seen or part[0] == "B"
            before = part
    return seen


def _from_old_iob(tags: Sequence[str]) -> tuple[str, ...]:
    first = set(_without_beginning(tags))
    return tuple(f"B-{tag_parts(tag)[1]}" if word in first else tag for word, tag in enumerate(tags))
