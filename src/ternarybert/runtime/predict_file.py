"""Predicts every row of a file: of any length in constant memory, and written so that a killed run can be resumed.

    result = predict_file("my-model-ternary", "mails.csv", "answers.csv")

The output has the rows and columns of the input, and the answers in columns of their own. A row without a text, or one
that cannot be read, has no answer and is counted. The same call resumes where an earlier one was stopped. Answers do
not depend on the batch, so the file is the same to the last byte.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ternarybert.data.locations import open_location
from ternarybert.data.readers import BadRow, Row, Rows, sample
from ternarybert.data.table import choose_columns
from ternarybert.data.writers import Answered, ArrowTypes, answer_writer, format_by_suffix
from ternarybert.errors import DataError, OutputError, suggest
from ternarybert.runtime.model import Answerer, Classifier, Model
from ternarybert.runtime.results import Answer, Label, Labels, Number
from ternarybert.storage import ResumableFile, check_output_file, replace_file

if TYPE_CHECKING:
    from ternarybert.runtime.text import Text

_PREDICTION = "prediction"  # the column that every kind of answer has
NO_TEXT = "no text"
_STEP_SECONDS, _STEP_ROWS = 0.5, 10_000  # between two writes


@dataclass(frozen=True)
class NoAnswer:
    """What a row has instead of an answer: the reason."""

    reason: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"error": self.reason}


@dataclass(frozen=True)
class PredictFileResult:
    """What `predict_file` has written, while it runs and at the end."""

    rows: int = 0  # in the output
    resumed: int = 0  # rows of them that an earlier run had written
    empty: int = 0  # rows that have no text, and so no answer
    bad: int = 0  # rows that could not be read, and so have no answer
    seconds: float = 0.0  # of this run
    renamed: Mapping[str, str] = field(default_factory=dict)  # columns of answers whose usual names the input has

    @property
    def rows_per_second(self) -> float:
        """The speed of this run."""
        return (self.rows - self.resumed) / max(self.seconds, 1e-9)


OnProgress: TypeAlias = Callable[[PredictFileResult, float], None]  # what is written, the share of the input read
OnBadRow: TypeAlias = Callable[[int, str], None]  # the line, and what is wrong with it


def predict_file(
    model: Model | str | Path,
    input: str | Path,
    output: str | Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    all_scores: bool = False,
    force: bool = False,
    strict: bool = False,
    bad_rows: str | Path | None = None,
    progress: OnProgress | None = None,
) -> PredictFileResult:
    """Write the rows of a table with a model's answers beside them.

    `model` is a loaded model or a packed folder. `input` is a CSV, TSV, JSON, JSON lines, parquet or plain text file,
    or a folder, pattern or URL of such (data/locations.py); `output` is CSV, TSV, JSON lines or parquet. `text` and
    `text_pair` name the columns of the texts (for question answering, those of the question and the context); by
    default they are guessed where it is obvious. `all_scores` adds the score of every label.

    A row that cannot be read, such as one with too many fields, is written without an answer. The file `bad_rows` (CSV,
    TSV or JSON lines) lists all of them; with `strict` the first one is an error.

    An output that exists is refused, and an unfinished one of the same call is resumed; `force` replaces the former and
    drops the latter. A file `bad_rows` that exists is refused, too. `progress` is called when the output is opened and
    after every write.
    """
    rows, output = replace(open_location(input), strict=strict), Path(output)
    with _opened(model) as loaded, ExitStack() as stack:
        columns = _text_columns(loaded, rows, text, text_pair)
        note = None
        if bad_rows is not None:
            # An interrupted run with `force` is resumed without it, and may still replace what it was told to.
            resumes = not force and output.exists()
            if resumes:
                check_output_file(output, force=False)
            check_bad_rows_file(Path(bad_rows), rows, output, force=force or resumes)
            note = stack.enter_context(bad_rows_file(Path(bad_rows)))
        on_progress = progress or (lambda result, share: None)
        run = _FilePrediction(loaded, rows, columns, note)
        return run.write(output, on_progress, all_scores=all_scores, force=force)


def predict_rows(
    model: Model,
    input: str | Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    strict: bool = False,
    on_bad_row: OnBadRow | None = None,
) -> Iterator[tuple[dict[str, Any], Text, Any]]:
    """Each row of a table with its text and its answer, or a `NoAnswer`; options as in `predict_file`."""
    rows = replace(open_location(input), strict=strict)
    run = _FilePrediction(model, rows, _text_columns(model, rows, text, text_pair), on_bad_row)
    for number, row, given, answer in run.answered(iter(rows)):
        run.count(number, row, answer)
        yield row, given, answer


def answer_columns(model: Model, *, all_scores: bool = False) -> dict[str, str | None]:
    """The columns that a model's answers take, with Arrow's name of their type; None: a list."""
    if isinstance(model, Answerer):
        return {_PREDICTION: "string", "score": "double", "start": "int64", "end": "int64"}
    if not isinstance(model, Classifier):
        return {_PREDICTION: None}
    if model.problem == "regression":
        return {_PREDICTION: "double"}
    scores = {f"score {name}": "double" for name in model.labels} if all_scores else {}
    if model.problem.startswith("multi"):
        return {_PREDICTION: None, **scores}
    return {_PREDICTION: "string", "score": "double", **scores}


def _opened(model: Model | str | Path) -> Any:
    """A model as a context; one that the caller has loaded stays open."""
    if isinstance(model, Model):
        return nullcontext(model)
    from ternarybert.runtime.load import load

    return load(model)


def check_bad_rows_file(path: Path, rows: Rows, output: Path | None = None, *, force: bool) -> None:
    """Refuse a list of bad rows that would replace what is read, the output or, without `force`, any other file."""
    place = path.resolve()
    if place in [one.path.resolve() for one in (rows, *(part.rows for part in rows.parts))]:
        raise OutputError(f"{path} is the input; choose another --bad-rows")
    if output is not None and place == output.resolve():
        raise OutputError(f"{path} is the output, too; choose another --bad-rows")
    if path.exists() and not force:
        raise OutputError(f"{path} exists; choose another --bad-rows, or use --force to replace it")


@contextmanager
def bad_rows_file(path: Path) -> Iterator[OnBadRow]:
    """Write the list of bad rows while all rows are read; it is in place when they are done."""
    form = format_by_suffix(path)
    form.check({"line": (), "reason": ()}, path)
    with replace_file(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        file.write(form.first_line(["line", "reason"]))

        def write(number: int, reason: str) -> None:
            file.write(form.line({"line": number, "reason": reason}))

        yield write


class _FilePrediction:
    """A model, the rows that it answers, and what is known of the rows so far."""

    def __init__(self, model: Model, rows: Rows, columns: tuple[str, ...], on_bad_row: OnBadRow | None) -> None:
        self.model, self.rows, self.columns, self.on_bad_row = model, rows, columns, on_bad_row
        self.empty, self.bad, self.hash = 0, 0, ""

    def write(self, output: Path, on_progress: OnProgress, *, all_scores: bool, force: bool) -> PredictFileResult:
        """Write all rows with their answers, or those that an earlier run did not come to."""
        started, rows, names = time.monotonic(), self.rows, list(sample(self.rows).columns)
        usual = answer_columns(self.model, all_scores=all_scores)
        answers = free_columns(usual, names)
        renamed = {name: free for name, free in zip(usual, answers, strict=True) if name != free}
        writer = answer_writer(output, rows, names, answers)
        identity = _identity(self.model, rows, [*self.columns, *names], output, answers)
        with ResumableFile(output, identity, force=force) as file:
            result = PredictFileResult(file.progress.done, resumed=file.progress.done, renamed=renamed)
            on_progress(result, 0.0)
            numbered = iter(rows)
            self._skip(numbered, file)
            for step in self._steps(numbered, answers):
                writer.append(file, step, self.hash)
                seconds = time.monotonic() - started
                result = replace(result, rows=file.progress.done, empty=self.empty, bad=self.bad, seconds=seconds)
                on_progress(result, rows.share)
            writer.finish(file)
        return replace(result, seconds=time.monotonic() - started)

    def _skip(self, numbered: Iterator[Row], file: ResumableFile) -> None:
        """Read the rows that are done; they must be those that were read then."""
        done = 0
        for number, row in islice(numbered, file.progress.done):
            done += 1
            self.count(number, row, self._question(number, row)[1])
        if (done, self.hash) != (file.progress.done, file.progress.input_hash):
            raise OutputError(
                f"{file.part} has answers to other rows than those in {self.rows}; remove it, or use --force to "
                "start over"
            )

    def _steps(self, numbered: Iterator[Row], answers: ArrowTypes) -> Iterator[list[Answered]]:
        """Rows with the columns of their answers, as many as are written together."""
        step: list[Answered] = []
        since = time.monotonic()
        for number, row, _, answer in self.answered(numbered):
            self.count(number, row, answer)
            none = isinstance(answer, NoAnswer)
            step.append((row, dict.fromkeys(answers) if none else answer_fields(answer, answers)))
            if time.monotonic() - since > _STEP_SECONDS or len(step) >= _STEP_ROWS:
                yield step
                step, since = [], time.monotonic()
        yield step

    def answered(self, numbered: Iterator[Row]) -> Iterator[tuple[int, dict[str, Any], Text, Any]]:
        """Each row with its number, text and answer. The model reads ahead; rows wait until their answers come."""
        waiting: deque[tuple[int, dict[str, Any], Text, NoAnswer | None]] = deque()

        def texts() -> Iterator[Text]:
            for number, row in numbered:
                text, none = self._question(number, row)
                waiting.append((number, row, text, none))
                yield text

        # A model has an answer to an empty text, too, but it means nothing.
        for answer in self.model.stream(texts()):
            number, row, text, none = waiting.popleft()
            yield number, row, text, none or answer

    def count(self, number: int, row: Mapping[str, Any], answer: object) -> None:
        """Add a row to what is known of the rows so far."""
        self.hash = hashlib.blake2b(f"{self.hash}{row!r}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        if not isinstance(answer, NoAnswer):
            return
        if answer.reason == NO_TEXT:
            self.empty += 1
            return
        self.bad += 1
        if self.on_bad_row is not None:
            self.on_bad_row(number, answer.reason)

    def _question(self, number: int, row: Mapping[str, Any]) -> tuple[Text, NoAnswer | None]:
        """The text of a row, and why it gets no answer, if so."""
        values = [row.get(name) for name in self.columns]
        bad = row.reason if isinstance(row, BadRow) else None
        text, reason = text_of(values, self.columns, bad)
        if reason is not None and reason != NO_TEXT and bad is None:
            self.rows.bad(number, reason)  # an error if the rows are read strictly
        return text, None if reason is None else NoAnswer(reason)


def text_of(values: Sequence[object], columns: Sequence[str], bad: str | None = None) -> tuple[Text, str | None]:
    """The text, or the pair, in the fields of a row, and why it gets no answer, if so: it is `bad`, or has no text."""
    reason = bad or _fault(values, columns)
    parts = ["" if reason is not None else _text(value) for value in values]
    return parts[0] if len(parts) == 1 else (parts[0], parts[1]), reason


def _fault(values: Sequence[object], columns: Sequence[str]) -> str | None:
    """Why the fields of a row are not a text."""
    for name, value in zip(columns, values, strict=True):
        if value is not None and not isinstance(value, (str, int, float)):
            return f"'{name}' is {value!r:.40} ({type(value).__name__}), not a text"
    return None if any(_text(value).strip() for value in values) else NO_TEXT


def _text(value: object) -> str:
    """A field as a text; 0 and False are texts, too. One that is missing is an empty one."""
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def free_columns(answers: ArrowTypes, taken: Sequence[str]) -> dict[str, str | None]:
    """The columns of the answers; one whose name the input has gets a number."""
    free: dict[str, str | None] = {}
    for name, kind in answers.items():
        names = chain([name], (f"{name} {number}" for number in count(2)))
        free[next(each for each in names if each not in taken and each not in free)] = kind
    return free


def answer_fields(answer: Any, names: Iterable[str]) -> dict[str, Any]:
    """An answer as the fields of a row that `answer_columns` names."""
    if isinstance(answer, Number):
        values: list[Any] = [answer.value]
    elif isinstance(answer, Answer):
        values = [answer.text, answer.score, answer.start, answer.end]
    elif isinstance(answer, Label):
        values = [answer.label, answer.score, *answer.scores.values()]
    elif isinstance(answer, Labels):
        values = [list(answer.labels), *answer.scores.values()]
    else:
        values = [[entity.as_dict() for entity in answer.entities]]
    return dict(zip(names, values, strict=False))


def _text_columns(model: Model, rows: Rows, text: str | None, text_pair: str | None) -> tuple[str, ...]:
    first = sample(rows)
    if not isinstance(model, Answerer):
        return choose_columns([first], text, text_pair, None).texts
    columns = (text or "question", text_pair or "context")
    for name in columns:
        if name not in first.columns:
            known = suggest(name, first.columns)
            raise DataError(f"{rows} has no column '{name}'{known} (--text: questions, --text-pair: contexts)")
    return columns


def _identity(model: Model, rows: Rows, columns: Sequence[str], output: Path, answers: ArrowTypes) -> str:
    """A hash of what decides the output: the model, the columns, and how one becomes the other.

    The rows are not part of it: those that are done are compared when a run is resumed, and the others may be mended.
    """
    threshold = model.task.null_threshold if isinstance(model, Answerer) else None
    how = [columns, model.max_length, list(answers), threshold, str(output)]
    total = hashlib.sha256(json.dumps([rows.name or str(rows.path.resolve()), *how]).encode())
    total.update(json.dumps(model.config, sort_keys=True, default=str).encode())
    if model.folder is not None:
        from ternarybert.packed.hf_folder import deciding_files

        for path in deciding_files(model.folder):
            total.update(path.name.encode())
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    total.update(block)
    return total.hexdigest()
