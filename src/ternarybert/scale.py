"""Scores tables of any size on the engine that holds them: Spark, Ray Data, Dask, DuckDB or Polars.

    scorer = Scorer("my-model-ternary", text="review")
    answered = score_spark(frame, scorer)

A `Scorer` takes Arrow batches and gives them back with the model's answers in columns of their own, those that
`predict --input` writes. It holds the name of a model and not the model, so it is pickled in a few bytes; a process
loads the model once, when its first batch comes. An answer depends on nothing but its own text, so neither the number
of partitions nor a task that runs twice changes the result.

The adapters are a few lines each and import their engine only when they are called. Engines that run one task per core
get one thread per task; in DuckDB and Polars one process has the machine for itself, and the model uses all of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.errors import DataError, MissingExtraError, OptionError, name_missing_extras, suggest
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.load import load
from ternarybert.runtime.model import Answerer, Classifier, Model
from ternarybert.runtime.predict_file import answer_columns, answer_fields, free_columns, text_of

if TYPE_CHECKING:
    from ternarybert.runtime.text import Text

VECTOR = "vector"  # the column of an embedder's answers

_lock = threading.Lock()
_models: dict[Scorer, Model] = {}  # of this process


@dataclass(frozen=True)
class Scorer:
    """A model that answers Arrow batches, in any process.

    `model` is a packed folder that every machine sees under the same path, or the name of an installed model. `text`
    and `text_pair` name the columns of the texts; questions and contexts have columns of these names. `threads` is the
    number of threads per call; None leaves it to the engine's adapter.
    """

    model: str | Path
    text: str | None = None
    text_pair: str | None = None
    all_scores: bool = False
    threads: int | None = None
    max_length: int | None = None

    def __call__(self, batch: Any) -> Any:
        """A record batch or table of Arrow, with the answers in columns behind its own.

        A row without a text has no answer: its fields are null.
        """
        names = batch.schema.names
        texts = [batch.column(name).to_pylist() for name in self.columns(names)]
        added = self.answers(texts, names)
        for field, column in zip(added.schema, added.columns, strict=True):
            batch = batch.append_column(field, column.combine_chunks() if len(column.chunks) == 1 else column)
        return batch

    def columns(self, names: Sequence[str]) -> tuple[str, ...]:
        """The columns of the texts, which must be among `names`."""
        if isinstance(self.loaded, Answerer):
            wanted: tuple[str, ...] = (self.text or "question", self.text_pair or "context")
        else:
            wanted = (self.text or "text", *([self.text_pair] if self.text_pair else []))
        for name in wanted:
            if name not in names:
                raise DataError(f"there is no column '{name}'{suggest(name, names)}")
        return wanted

    def fields(self, taken: Iterable[str] = ()) -> list[Any]:
        """The Arrow fields of the answers; one whose usual name is `taken` gets a number."""
        arrow = import_arrow()
        model = self.loaded
        if isinstance(model, Embedder):
            (name,) = free_columns({VECTOR: None}, list(taken))
            return [arrow.field(name, arrow.list_(arrow.float32()))]
        if model.output is None:
            model.predict([""])  # raises: there is no head
        kinds = free_columns(answer_columns(model, all_scores=self.all_scores), list(taken))
        return [arrow.field(name, _type_named(model, kind)) for name, kind in kinds.items()]

    @property
    def loaded(self) -> Model:
        """The model, loaded once per process."""
        with _lock:
            if self not in _models:
                _models[self] = load(self.model, num_threads=self.threads, max_length=self.max_length)
            return _models[self]

    def with_threads(self, threads: int) -> Scorer:
        """The same with this many threads, unless another number was chosen."""
        return self if self.threads is not None else replace(self, threads=threads)

    def answers(self, columns: Sequence[Sequence[Any]], taken: Iterable[str] = ()) -> Any:
        """An Arrow table of the answers alone. `columns` are those of the texts, `taken` the names of all others."""
        arrow = import_arrow()
        fields = self.fields(taken)
        names = [field.name for field in fields]
        asked = [text_of(row, ("text", "text_pair")[: len(row)]) for row in zip(*columns, strict=True)]
        found = iter(self._answers([text for text, reason in asked if reason is None], names))
        rows = [next(found) if reason is None else {} for _, reason in asked]
        arrays = [arrow.array([row.get(field.name) for row in rows], field.type) for field in fields]
        return arrow.Table.from_arrays(arrays, schema=arrow.schema(fields))

    def _answers(self, texts: Sequence[Text], names: Sequence[str]) -> Iterator[dict[str, Any]]:
        model = self.loaded
        if isinstance(model, Embedder):
            return ({names[0]: vector} for vector in model.encode(texts)) if texts else iter(())
        return (answer_fields(answer, names) for answer in model.stream(texts))


def score_spark(frame: Any, scorer: Scorer) -> Any:
    """A Spark DataFrame with the answers, by `mapInArrow`; a task gets `spark.task.cpus` threads."""
    with name_missing_extras():
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import StructType
    arrow = import_arrow()
    slots = int(frame.sparkSession.sparkContext.getConf().get("spark.task.cpus", "1"))
    scorer = scorer.with_threads(slots)
    scorer.columns(frame.columns)  # an error here and not in the executors
    added = from_arrow_schema(arrow.schema(scorer.fields(frame.columns)))

    def score(batches: Iterator[Any]) -> Iterator[Any]:
        return (scorer(batch) for batch in batches)

    return frame.mapInArrow(score, StructType([*frame.schema.fields, *added.fields]))


def score_ray(dataset: Any, scorer: Scorer, *, workers: int | tuple[int, int] = 2, **options: Any) -> Any:
    """A Ray Dataset with the answers, by `map_batches` with actors; `options` are those of `map_batches`.

    An actor takes `num_cpus` cores (one, if not given) and runs as many threads. `workers` is the largest number of
    actors, or the smallest and the largest.
    """
    with name_missing_extras():
        from ray.data import ActorPoolStrategy
    # One actor at first: a fixed number that takes every core would wait forever for rows that no core is left to read.
    low, high = (1, workers) if isinstance(workers, int) else workers
    scorer = scorer.with_threads(max(1, int(options.get("num_cpus", 1))))
    options = {"num_cpus": 1, "batch_size": 1024, **options}
    return dataset.map_batches(
        RayScorer,
        fn_constructor_args=(scorer,),
        batch_format="pyarrow",
        compute=ActorPoolStrategy(min_size=low, max_size=high),
        **options,
    )


class RayScorer:
    """What an actor of Ray runs: it loads the model when it starts."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        _ = scorer.loaded

    def __call__(self, batch: Any) -> Any:
        """A batch with the answers."""
        return self.scorer(batch)


def score_dask(frame: Any, scorer: Scorer) -> Any:
    """A Dask DataFrame with the answers, by `map_partitions`; a thread of a worker is a slot, so it gets one thread."""
    scorer = scorer.with_threads(1)
    return frame.map_partitions(score_pandas, scorer, meta=score_pandas(frame._meta, scorer))


def score_pandas(frame: Any, scorer: Scorer) -> Any:
    """A pandas DataFrame with the answers; index and other columns stay as they are."""
    names = [str(name) for name in frame.columns]
    texts = [frame[name].tolist() for name in scorer.columns(names)]
    added = scorer.answers(texts, names).to_pandas()
    return frame.assign(**{name: added[name].set_axis(frame.index) for name in added.columns})


def score_polars(frame: Any, scorer: Scorer) -> Any:
    """A Polars DataFrame or LazyFrame with the answers: `frame.pipe(score_polars, scorer)`."""
    with name_missing_extras():
        import polars

    def score(part: Any) -> Any:
        added = scorer.answers([part[name].to_list() for name in scorer.columns(part.columns)], part.columns)
        return part.hstack(polars.from_arrow(added).get_columns())

    if isinstance(frame, polars.DataFrame):
        return score(frame)
    known = frame.collect_schema()
    empty = import_arrow().schema(scorer.fields(known.names())).empty_table()
    return frame.map_batches(score, schema={**known, **polars.from_arrow(empty).schema})


def add_to_duckdb(connection: Any, scorer: Scorer, name: str = "predict") -> None:
    """Register a model as a function of SQL: one text, or two, in; a struct with the answer out.

    `SELECT predict(review).prediction FROM mails`. An embedder gives the vector itself. Names of columns do not
    matter here: the arguments are the texts.
    """
    arrow = import_arrow()
    fields = scorer.fields()
    single = fields[0].type if isinstance(scorer.loaded, Embedder) else None
    given = 2 if isinstance(scorer.loaded, Answerer) or scorer.text_pair else 1

    def score(*columns: Any) -> Any:
        table = scorer.answers([column.to_pylist() for column in columns])
        arrays = [column.combine_chunks() for column in table.columns]
        return arrays[0] if single is not None else arrow.StructArray.from_arrays(arrays, fields=fields)

    result = _sql_type(single if single is not None else arrow.struct(fields))
    with suppress(Exception):  # there was none
        connection.remove_function(name)
    connection.create_function(name, score, ["VARCHAR"] * given, result, type="arrow", null_handling="special")


def import_arrow() -> Any:
    """Import pyarrow, or say what to install."""
    try:
        import pyarrow  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError("ternarybert.scale needs Arrow: pip install pyarrow") from error
    return pyarrow


def _type_named(model: Model, kind: str | None) -> Any:
    """The Arrow type of a column of answers. Lists hold labels, or entities."""
    arrow = import_arrow()
    if kind is not None:
        return arrow.type_for_alias(kind)
    if isinstance(model, Classifier):
        return arrow.list_(arrow.string())
    parts = {"text": "string", "label": "string", "score": "double", "start": "int64", "end": "int64"}
    return arrow.list_(arrow.struct({name: arrow.type_for_alias(part) for name, part in parts.items()}))


_SQL = {"string": "VARCHAR", "double": "DOUBLE", "float": "FLOAT", "int64": "BIGINT"}


def _sql_type(kind: Any) -> str:
    """The name of an Arrow type in SQL."""
    arrow = import_arrow()
    if arrow.types.is_struct(kind):
        parts = ", ".join(f'"{kind.field(i).name}" {_sql_type(kind.field(i).type)}' for i in range(kind.num_fields))
        return f"STRUCT({parts})"
    if arrow.types.is_list(kind):
        return f"{_sql_type(kind.value_type)}[]"
    if str(kind) not in _SQL:
        raise OptionError(f"Arrow's type {kind} has no name in SQL")
    return _SQL[str(kind)]
