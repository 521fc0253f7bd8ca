"""Predicts every row of a file: of any length in constant memory, and written so that a killed run can be resumed.

    result = predict_file("my-model-ternary", "mails.csv", "answers.csv")

The output has the rows and columns of the input, and the answers in columns of their own. The same call resumes where
an earlier one was stopped. Answers do not depend on the batch, so the file is the same to the last byte.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ternarybert.data.readers import Row, Rows, open_rows, sample
from ternarybert.data.table import choose_columns
from ternarybert.data.writers import ArrowTypes, answer_writer
from ternarybert.errors import DataError, OptionError, suggest
from ternarybert.runtime.model import Answerer, Classifier, Model
from ternarybert.runtime.results import Answer, Label, Labels, Number
from ternarybert.storage import ResumableFile

if TYPE_CHECKING:
    from ternarybert.runtime.text import Text

_PREDICTION = "prediction"  # the column that every kind of answer has
_STEP_SECONDS, _STEP_ROWS = 0.5, 10_000  # between two writes


@dataclass(frozen=True)
class PredictFileResult:
    """What `predict_file` has written, while it runs and at the end."""

    rows: int = 0  # in the output
    resumed: int = 0  # rows of them that an earlier run had written
    empty: int = 0  # rows of this run that had no text, and so have no answer
    seconds: float = 0.0  # of this run

    @property
    def rows_per_second(self) -> float:
        """The speed of this run."""
        return (self.rows - self.resumed) / max(self.seconds, 1e-9)


OnProgress: TypeAlias = Callable[[PredictFileResult, float], None]  # what is written, the share of the input read


def predict_file(
    model: Model | str | Path,
    input: str | Path,
    output: str | Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    all_scores: bool = False,
    force: bool = False,
    progress: OnProgress | None = None,
) -> PredictFileResult:
    """Write the rows of a table with a model's answers beside them.

    `model` is a loaded model or a packed folder. `input` is CSV, TSV, JSON, JSON lines, parquet or plain text, `output`
    CSV, TSV, JSON lines or parquet. `text` and `text_pair` name the columns of the texts (for question answering, those
    of the question and the context); by default they are guessed where it is obvious. `all_scores` adds the score of
    every label.

    An output that exists is refused, and an unfinished one of the same call is resumed; `force` replaces the former and
    drops the latter. `progress` is called when the output is opened and after every write.
    """
    rows, output = open_rows(input), Path(output)
    with _opened(model) as loaded:
        columns = _text_columns(loaded, rows, text, text_pair)
        on_progress = progress or (lambda result, share: None)
        return _write(loaded, rows, columns, output, on_progress, all_scores=all_scores, force=force)


def predict_rows(
    model: Model, input: str | Path, *, text: str | None = None, text_pair: str | None = None
) -> Iterator[tuple[dict[str, Any], Text, Any]]:
    """Each row of a table with its text and its answer; options as in `predict_file`."""
    rows = open_rows(input)
    yield from _answered(model, rows, rows, _text_columns(model, rows, text, text_pair))


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


def _write(
    model: Model,
    rows: Rows,
    columns: tuple[str, ...],
    output: Path,
    on_progress: OnProgress,
    *,
    all_scores: bool,
    force: bool,
) -> PredictFileResult:
    started, names, answers = time.monotonic(), list(sample(rows).columns), answer_columns(model, all_scores=all_scores)
    if taken := [name for name in answers if name in names]:
        raise OptionError(f"{rows.path} already has a column '{taken[0]}', where answers would go; rename it")
    writer = answer_writer(output, rows, names, answers)
    with ResumableFile(output, _identity(model, rows, columns, output, answers), force=force) as file:
        result = PredictFileResult(file.progress.done, resumed=file.progress.done)
        on_progress(result, 0.0)
        for step, empty in _steps(model, rows, columns, answers, start=result.resumed):
            writer.append(file, step)
            seconds = time.monotonic() - started
            result = replace(result, rows=file.progress.done, empty=result.empty + empty, seconds=seconds)
            on_progress(result, rows.share)
        writer.finish(file)
    return replace(result, seconds=time.monotonic() - started)


def _steps(
    model: Model, rows: Rows, columns: tuple[str, ...], answers: ArrowTypes, *, start: int
) -> Iterator[tuple[list[tuple[dict[str, Any], dict[str, Any]]], int]]:
    """Rows with the columns of their answers, as many as are written together; and how many of them are empty."""
    step: list[tuple[dict[str, Any], dict[str, Any]]] = []
    empty, since = 0, time.monotonic()
    for row, text, answer in _answered(model, islice(rows, start, None), rows, columns):
        has_text = bool(text if isinstance(text, str) else any(text))
        # A model has an answer to an empty text, too, but it means nothing.
        step.append((row, _fields(answer, answers) if has_text else dict.fromkeys(answers)))
        empty += not has_text
        if time.monotonic() - since > _STEP_SECONDS or len(step) >= _STEP_ROWS:
            yield step, empty
            step, empty, since = [], 0, time.monotonic()
    yield step, empty


def _answered(
    model: Model, rows: Iterable[Row], source: Rows, columns: tuple[str, ...]
) -> Iterator[tuple[dict[str, Any], Text, Any]]:
    """Each row with its text and its answer. The model reads ahead; rows wait until their answers come."""
    waiting: deque[tuple[dict[str, Any], Text]] = deque()

    def texts() -> Iterator[Text]:
        for number, row in rows:
            parts = [_text(row.get(name), source, number, name) for name in columns]
            text: Text = parts[0] if len(parts) == 1 else (parts[0], parts[1])
            waiting.append((row, text))
            yield text

    for answer in model.stream(texts()):
        row, text = waiting.popleft()
        yield row, text, answer


def _text(value: object, source: Rows, number: int, name: str) -> str:
    """A field as a text. One that is missing is an empty one: a single bad row should not end a long run."""
    if value is None:
        return ""
    if isinstance(value, (str, int, float)):
        return str(value)
    raise DataError(f"{source.place(number)}: '{name}' is {value!r:.40} ({type(value).__name__}), not a text")


def _fields(answer: Any, names: Iterable[str]) -> dict[str, Any]:
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
            raise DataError(f"{rows.path} has no column '{name}'{known} (--text: questions, --text-pair: contexts)")
    return columns


def _identity(model: Model, rows: Rows, columns: tuple[str, ...], output: Path, answers: ArrowTypes) -> str:
    """A hash of everything that decides the output: the model, the input, and how one becomes the other."""
    file = rows.path.stat()
    threshold = model.task.null_threshold if isinstance(model, Answerer) else None
    how = [columns, model.max_length, list(answers), threshold, str(output)]
    total = hashlib.sha256(json.dumps([str(rows.path.resolve()), file.st_size, file.st_mtime_ns, *how]).encode())
    total.update(json.dumps(model.config, sort_keys=True, default=str).encode())
    if model.folder is not None:
        for path in _deciding_files(model.folder):
            total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


def _deciding_files(folder: Path) -> list[Path]:
    """The configuration, the tokenizer, and the weights if the configuration does not have their hash."""
    from ternarybert.packed.hf_folder import tokenizer_files
    from ternarybert.packed.manifest import parse

    config = folder / "config.json"
    manifest = parse(json.loads(config.read_text(encoding="utf-8")))
    weights = [] if manifest.sha256 else [folder / manifest.weights_file]
    return [config, *tokenizer_files(folder).values(), *weights]
