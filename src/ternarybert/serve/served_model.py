"""A model behind the server: tokenizes requests in threads, queues them for its engine, and can be loaded again.

`ServedModel` has a name and a current `ModelVersion`. Loading its folder again makes a new version; requests that began
with the old one end with it, and a folder that cannot be loaded changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeAlias

import numpy as np
from tokenizers import Encoding, Tokenizer

from ternarybert.errors import OptionError, suggest
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.load import load
from ternarybert.runtime.model import POOLINGS, Answerer, Classifier, Model, Tagger, unit
from ternarybert.runtime.network import Floats, Output
from ternarybert.runtime.text import Text
from ternarybert.serve.batching import BatchQueue, EngineJob, QueuedRunner
from ternarybert.serve.failures import RequestFailure
from ternarybert.serve.metrics import ServerMetrics
from ternarybert.serve.settings import ServerSettings

TextOrIds: TypeAlias = Text | list[int]

_LONG = 2000  # characters; beyond it tokenizing takes so long that neither the engine nor other threads should wait
_MODEL_KINDS = ((Answerer, "qa"), (Tagger, "ner"), (Classifier, "classifier"))


@dataclass
class RequestRecord:
    """What is known about a request: for the log, the metrics and the headers of the response."""

    model: str = ""
    task: str = ""
    texts: int = 0
    batch: bool = False
    characters: int = 0
    tokens: int = 0
    tokenization: float = 0.0  # seconds, as are the next two
    queue: float = 0.0
    inference: float = 0.0
    cancelled: bool = False
    gone: bool = False  # there is no client to answer
    unread: int = 0  # bytes of a large answer
    cancel: list[Callable[[], None]] = field(default_factory=list)

    def stop(self) -> None:
        """Compute nothing more for it."""
        self.cancelled = True
        for cancel in self.cancel:
            cancel()


@dataclass(frozen=True)
class EngineInput:
    """Texts as an engine reads them; encodings only where offsets are needed."""

    sequences: list[tuple[Any, Any]]
    encodings: list[Encoding]


class ModelVersion:
    """One loading of a model's folder."""

    def __init__(self, model: Model, settings: ServerSettings, metrics: ServerMetrics) -> None:
        self.model, self._settings = model, settings
        self._engine = model.runner
        self.queue = BatchQueue(self._engine.run, settings.max_batch_tokens, metrics, model.num_threads)
        self.runner = QueuedRunner(self.queue, self._engine.sizes, self._engine.kernel)
        if isinstance(model, (Answerer, Tagger)):
            model.runner = self.runner
        self.sizes, self.prompts = self._engine.sizes, _prompts(model)
        self._embedder = model if isinstance(model, Embedder) and settings.pooling is None else None
        self.pooling = settings.pooling or (self._embedder.modules.pooling if self._embedder else "mean")
        self._tokenizers: dict[str, Tokenizer] = {}
        self._lock = threading.Lock()
        self._users, self._retired = 0, False

    @property
    def kind(self) -> str:
        """What it is for: embedding, classifier, reranker, ner or qa."""
        kind = next((name for cls, name in _MODEL_KINDS if isinstance(self.model, cls)), "embedding")
        return "reranker" if kind == "classifier" and self.sizes.head == 1 else kind

    def __enter__(self) -> ModelVersion:
        self._users += 1  # only by the event loop's thread
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        self._close_if_unused()

    def retire(self) -> None:
        """Free the model when the last request that uses it is done."""
        self._retired = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._retired and not self._users:
            self.queue.close()

    @property
    def vector_output(self) -> Output:
        """The engine's output that a text's vector is made of."""
        return self._embedder.state_output if self._embedder else POOLINGS[self.pooling]

    @property
    def width(self) -> int:
        """The number of dimensions of a vector."""
        if self._embedder:
            return self._embedder.width
        return self.sizes.dense if self.pooling == "pooler" else self.sizes.hidden

    def prompt(self, name: str | None) -> str:
        """The prefix of this name; without a name the embedder's own, if it has one."""
        if name is None:
            return self._embedder.modules.prompt() if self._embedder else ""
        if name not in self.prompts:
            known = ", ".join(sorted(self.prompts)) or "none"
            raise RequestFailure("Tokenizer", f"the model has no prompt of this name; it has: {known}")
        return self.prompts[name]

    def vectors(self, rows: list[Floats], prompt: str, dimensions: int | None, normalize: bool) -> Floats:
        """The vectors of texts from their rows of `vector_output`, as `encode` gives them."""
        vectors = self._embedder.vectors(rows, prompt) if self._embedder else np.concatenate(rows)
        if dimensions is not None:
            vectors = np.ascontiguousarray(vectors[:, :dimensions])
        elif self._embedder and self._embedder.modules.normalizes:
            return vectors
        return unit(vectors) if normalize else vectors

    def tokenizer(self, kind: str) -> Tokenizer:
        """A copy of the tokenizer that truncates on the `left`, or with `whole` not at all."""
        with self._lock:
            if kind not in self._tokenizers:
                copy = Tokenizer.from_str(self.model.text.tokenizer.to_str())
                copy.no_truncation()
                if kind == "left":
                    copy.enable_truncation(self.model.max_length, strategy="longest_first", direction="left")
                self._tokenizers[kind] = copy
            return self._tokenizers[kind]

    def encode(self, texts: Sequence[TextOrIds], *, truncate: bool, left: bool = False, limit: int) -> EngineInput:
        """Tokenize, and refuse what is too long."""
        offsets = self.model.needs_offsets
        encodings = self._encode([text for text in texts if not isinstance(text, list)], offsets, left)
        if not truncate and any(map(self.model.text.was_truncated, encodings)):
            raise self._too_long()
        types, given = self.model.text.has_types, iter(encodings)
        sequences: list[tuple[Any, Any]] = []
        for text in texts:
            if isinstance(text, list):
                sequences.append((self._checked_ids(text, truncate, left), None))
            else:
                encoding = next(given)
                ids = np.array(encoding.ids, np.int32)
                sequences.append((ids, np.array(encoding.type_ids, np.int32) if types else None))
        if (tokens := sum(len(ids) for ids, _ in sequences)) > limit:
            raise RequestFailure("Validation", f"a request may have at most {limit} tokens here; this one has {tokens}")
        if not all(len(ids) for ids, _ in sequences):
            raise RequestFailure("Tokenizer", "a text has no tokens")
        return EngineInput(sequences, encodings if offsets else [])

    def _encode(self, texts: list[Text], offsets: bool, left: bool) -> list[Encoding]:
        if not left and characters(texts) <= _LONG:
            return self.model.text.encode(texts, offsets=offsets)
        tokenizer = self.tokenizer("left") if left else self.model.text.tokenizer
        return list((tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast)(texts))

    def _too_long(self) -> RequestFailure:
        limit = self.model.max_length
        return RequestFailure(
            "Validation", f"Input validation error: a text has more than {limit} tokens; shorten it or set truncate"
        )

    def _checked_ids(self, ids: list[int], truncate: bool, left: bool) -> Any:
        if len(ids) > self.model.max_length:
            if not truncate:
                raise self._too_long()
            ids = ids[-self.model.max_length :] if left else ids[: self.model.max_length]
        if not ids or not 0 <= min(ids) <= max(ids) < self.sizes.vocabulary:
            raise RequestFailure("Tokenizer", f"token ids are from 0 to {self.sizes.vocabulary - 1}, at least one")
        return np.array(ids, np.int32)


class ServedModel:
    """A model by the name that requests use."""

    def __init__(self, name: str, folder: str, settings: ServerSettings, metrics: ServerMetrics) -> None:
        self.name, self._folder, self._settings, self._metrics = name, folder, settings, metrics
        self.loaded: Model | None = self.load()  # in the process that forks the workers, no version is made
        self.created = int(time.time())
        self._version: ModelVersion | None = None

    def load(self) -> Model:
        """Read and check the folder."""
        settings = self._settings
        if settings.pooling not in (None, "mean", "cls", "pooler"):
            raise OptionError(
                f"unknown pooling '{settings.pooling}'{suggest(settings.pooling, ('mean', 'cls', 'pooler'))}"
            )
        options = {"num_threads": settings.threads, "kernel": settings.kernel, "max_length": settings.max_length}
        model = load(self._folder, **options)  # type: ignore[arg-type]
        if settings.pooling == "pooler" and model.output is None and not model.runner.sizes.dense:
            raise OptionError(f"the model '{self.name}' has no pooler; use --pooling mean or cls")
        return model

    def start(self, model: Model | None = None) -> None:
        """Serve what was loaded, or another model instead of the current one."""
        model = model or self.loaded or self.load()
        old, self._version = self._version, ModelVersion(model, self._settings, self._metrics)
        self.loaded, self.created = None, int(time.time())
        if old is not None:
            old.retire()

    @property
    def version(self) -> ModelVersion:
        """The current version."""
        assert self._version is not None, "not started"
        return self._version


class TextRequest:
    """The texts of a request on their way through the tokenizer and the queue; `future` gets rows and encodings."""

    def __init__(
        self,
        record: RequestRecord,
        version: ModelVersion,
        texts: Sequence[TextOrIds],
        output: Output,
        options: Mapping[str, Any],
    ) -> None:
        self._record, self._version, self._texts = record, version, texts
        self._output, self._options = output, options
        self._loop = asyncio.get_running_loop()
        self._encodings: list[Encoding] = []
        self.future: asyncio.Future[tuple[list[Floats], list[Encoding]]] = self._loop.create_future()

    def tokenize(self) -> list[tuple[Any, Any]]:
        """The sequences of the texts; a RequestFailure if there are none."""
        start = time.perf_counter()
        try:
            given = self._version.encode(self._texts, **self._options)
        except Exception as error:
            raise _tokenizer_failure(error) from None
        self._encodings = given.encodings
        self._record.tokens = sum(len(ids) for ids, _ in given.sequences)
        self._record.tokenization = time.perf_counter() - start
        return given.sequences

    def tokenize_first(self) -> None:
        """Tokenize in the calling thread, then queue."""
        try:
            sequences = self.tokenize()
        except RequestFailure as failure:
            self._loop.call_soon_threadsafe(_settle, self.future, None, failure)
        else:
            self.queue(lambda: sequences)

    def queue(self, prepare: Callable[[], list[tuple[Any, Any]]]) -> None:
        """Wait for the engine; `prepare` gives the sequences when it is their turn."""
        job = EngineJob([], self._output, self._finish, self._loop, prepare=prepare, size=len(self._texts))
        self._record.cancel.append(lambda: self._version.queue.cancel(job))
        if not self._record.cancelled:
            self._version.queue.put(job)

    def _finish(self, job: EngineJob) -> None:
        self._record.queue, self._record.inference = job.waited, job.inference
        failure = job.error
        if failure is not None and not isinstance(failure, RequestFailure):
            failure = RequestFailure("Backend", "the engine failed")
        _settle(self.future, (job.rows, self._encodings), failure)


class RequestRunner:
    """Takes requests from the event loop through the tokenizer's threads and a model's queue, and back."""

    def __init__(self, settings: ServerSettings, threads: int = 2) -> None:
        self._settings = settings
        self._tokenizing = ThreadPoolExecutor(threads, "tokenize")
        self._prepare: SimpleQueue[Callable[[], None]] = (
            SimpleQueue()
        )  # quicker than an executor, which counts and waits
        for _ in range(threads):
            threading.Thread(target=self._prepare_all, name="prepare", daemon=True).start()
        self._predicting = ThreadPoolExecutor(4, "predict")

    def _prepare_all(self) -> None:
        while True:
            self._prepare.get()()

    async def compute(
        self,
        record: RequestRecord,
        version: ModelVersion,
        texts: Sequence[TextOrIds],
        output: Output,
        *,
        truncate: bool,
        left: bool = False,
        limit: int | None = None,
    ) -> tuple[list[Floats], list[Encoding]]:
        """The rows of the output for each text, and the encodings of texts whose offsets are needed."""
        options = {"truncate": truncate, "left": left, "limit": limit or self._settings.max_tokens}
        request = TextRequest(record, version, texts, output, options)
        if characters(texts) <= _LONG:  # the engine's thread tokenizes it, with whatever else is waiting
            request.queue(request.tokenize)
        else:
            self._prepare.put(request.tokenize_first)
        return await request.future

    async def call(self, record: RequestRecord, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function returns that runs in a thread for tokenizing."""
        return await _in_thread(self._tokenizing, record, function, *arguments)

    async def predict(self, record: RequestRecord, version: ModelVersion, texts: list[Text]) -> list[Any]:
        """What `predict` gives for texts of any length, read in windows: entities, or answers to questions."""
        limit = self._settings.max_tokens

        def work() -> list[Any]:
            start = time.perf_counter()
            encodings = version.tokenizer("whole").encode_batch_fast(texts)
            record.tokens = sum(len(encoding.ids) for encoding in encodings)
            record.tokenization = time.perf_counter() - start
            if record.tokens > limit:
                raise RequestFailure("Validation", f"a request may have at most {limit} tokens; got {record.tokens}")
            version.runner.watch(lambda: record.cancelled)
            start = time.perf_counter()
            predictions = list(version.model.predict(texts))
            record.inference = time.perf_counter() - start
            return predictions

        return list(await _in_thread(self._predicting, record, work))


def characters(texts: Sequence[TextOrIds]) -> int:
    """The size of a request; a token id counts as one."""
    return sum(len(text[0]) + len(text[1]) if isinstance(text, tuple) else len(text) for text in texts)


async def _in_thread(pool: ThreadPoolExecutor, record: RequestRecord, function: Callable[..., Any], *given: Any) -> Any:
    def guarded() -> Any:
        if record.cancelled:
            return None
        try:
            return function(*given)
        except RequestFailure:
            raise
        except Exception as error:
            raise _tokenizer_failure(error) from None

    return await asyncio.get_running_loop().run_in_executor(pool, guarded)


def _settle(future: asyncio.Future[Any], result: Any, failure: Exception | None) -> None:
    if future.done():  # timed out or cancelled
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)


def _tokenizer_failure(error: Exception) -> RequestFailure:
    # The messages of the library quote the text, so none of them is passed on.
    return error if isinstance(error, RequestFailure) else RequestFailure("Tokenizer", "a text cannot be tokenized")


def _prompts(model: Model) -> dict[str, str]:
    """Prompts of sentence-transformers: prefixes of texts by name."""
    path = None if model.folder is None else model.folder / "config_sentence_transformers.json"
    if path is None or not path.is_file():
        return {}
    try:
        prompts = json.loads(path.read_text(encoding="utf-8")).get("prompts")
    except (ValueError, AttributeError):
        return {}
    return {str(name): str(text) for name, text in prompts.items()} if isinstance(prompts, dict) else {}
