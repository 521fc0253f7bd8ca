"""The routes: from a decoded request to the value that becomes its JSON. `ROUTES` lists them all.

Shapes and status codes are those of text-embeddings-inference, of OpenAI (`/v1/embeddings`) and of Cohere and Jina
(`/v1/rerank`); `/ner` and `/qa` answer as Hugging Face's clients expect. Scores are those of `Model.predict`, vectors
those of `Model.encode`, to the last bit.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
from tokenizers import Encoding

from ternarybert import __version__
from ternarybert.runtime.network import Floats, Output
from ternarybert.runtime.results import Label, Labels, sigmoid, softmax_list
from ternarybert.serve import schemas
from ternarybert.serve.failures import RequestFailure
from ternarybert.serve.served_model import ModelVersion, RequestRecord, RequestRunner, ServedModel, TextOrIds
from ternarybert.serve.settings import ServerSettings

TOKENIZER_THREADS = 2
_EMBED_ALL_SHARE = 8  # vectors of tokens take that much more memory, so a request may have that many fewer tokens


class Api:
    """Answers requests. `pick` chooses the model by the one rule: path prefix, else body, else the first."""

    def __init__(self, models: Mapping[str, ServedModel], settings: ServerSettings) -> None:
        self.models, self.settings = models, settings
        self.runner = RequestRunner(settings, TOKENIZER_THREADS)

    def pick(self, name: str | None, record: RequestRecord, *kinds: str) -> ServedModel:
        """The model of this name, if it is of one of these kinds."""
        if record.model and name and name != record.model:
            raise RequestFailure("Tokenizer", "the path and the body name different models")
        chosen = record.model or name or next(iter(self.models))
        if chosen not in self.models:
            raise RequestFailure("NotFound", "there is no model of this name; GET /v1/models lists all")
        model = self.models[chosen]
        record.model = chosen
        if kinds and model.version.kind not in kinds:
            raise RequestFailure(
                "Backend", f"the model is of kind {model.version.kind}; this needs {' or '.join(kinds)}"
            )
        return model

    def _count(self, record: RequestRecord, task: str, texts: Sequence[TextOrIds], batch: bool) -> None:
        record.task, record.texts, record.batch = task, len(texts), batch
        if not texts:
            raise RequestFailure("Empty", "there are no texts")
        if len(texts) > self.settings.max_texts:
            limit = self.settings.max_texts
            raise RequestFailure("Validation", f"batch size {len(texts)} > maximum allowed batch size {limit}")

    def _options(self, body: schemas.TextOptions | schemas.SimilarityOptions) -> dict[str, bool]:
        truncate = self.settings.truncate if body.truncate is None else body.truncate
        return {"truncate": truncate, "left": body.truncation_direction.lower() == "left"}

    async def _vectors(
        self,
        record: RequestRecord,
        model: ServedModel,
        texts: Sequence[TextOrIds],
        options: dict[str, bool],
        dimensions: int | None = None,
        normalize: bool = True,
        prompt_name: str | None = None,
    ) -> Floats:
        with model.version as version:
            if dimensions is not None and dimensions > version.width:
                raise RequestFailure("Tokenizer", f"dimensions is {dimensions}; the vectors have {version.width}")
            prompt = version.prompt(prompt_name)
            if prompt_name is None and any(isinstance(text, list) for text in texts):
                prompt = ""  # token ids are run as they are
            rows, _ = await self.runner.compute(
                record, version, _prompted(texts, prompt), version.vector_output, **options
            )
            return version.vectors(rows, prompt, dimensions, normalize)

    async def embed(self, record: RequestRecord, body: schemas.EmbedBody) -> list[list[float]]:
        """POST /embed."""
        model = self.pick(body.model, record, "embedding")
        texts, batch = as_inputs(body.inputs)
        self._count(record, "embed", texts, batch)
        options = self._options(body)
        vectors = await self._vectors(record, model, texts, options, body.dimensions, body.normalize, body.prompt_name)
        return vectors.tolist()  # type: ignore[no-any-return]

    async def embed_all(self, record: RequestRecord, body: schemas.EmbedAllBody) -> list[list[list[float]]]:
        """POST /embed_all."""
        model = self.pick(body.model, record, "embedding")
        texts, batch = as_inputs(body.inputs)
        self._count(record, "embed", texts, batch)
        limit = self.settings.max_tokens // _EMBED_ALL_SHARE
        with model.version as version:
            texts = _prompted(texts, version.prompt(body.prompt_name))
            options = self._options(body)
            rows, _ = await self.runner.compute(record, version, texts, Output.HIDDEN, limit=limit, **options)
        return [part.tolist() for part in rows]

    async def embeddings(self, record: RequestRecord, body: schemas.EmbeddingsBody) -> schemas.EmbeddingsReply:
        """POST /v1/embeddings."""
        model = self.pick(body.model, record, "embedding")
        texts, batch = as_inputs(body.input)
        self._count(record, "embed", texts, batch)
        options = {"truncate": self.settings.truncate, "left": False}
        vectors = await self._vectors(record, model, texts, options, body.dimensions)
        as_text = body.encoding_format == "base64"
        data = [
            schemas.EmbeddingReply("embedding", index, _base64(vector) if as_text else vector.tolist())
            for index, vector in enumerate(vectors)
        ]
        return schemas.EmbeddingsReply("list", data, model.name, _usage(record))

    async def predict(self, record: RequestRecord, body: schemas.PredictBody) -> Any:
        """POST /predict."""
        model = self.pick(body.model, record, "classifier", "reranker")
        texts, batch = as_pairs(body.inputs)
        self._count(record, "predict", texts, batch)
        with model.version as version:
            rows, _ = await self.runner.compute(record, version, texts, Output.LOGITS, **self._options(body))
            replies = [_predictions(version, row, body.raw_scores) for row in rows]
        return replies if batch else replies[0]

    async def _ranks(
        self,
        record: RequestRecord,
        model: ServedModel,
        query: str,
        texts: list[str],
        raw: bool,
        options: dict[str, bool],
    ) -> list[tuple[int, float]]:
        """Indices and scores of texts, the best first."""
        self._count(record, "rerank", texts, True)
        with model.version as version:
            if version.sizes.head > 2:
                raise RequestFailure("Backend", "the model has more than two classes; ranking needs one output or two")
            pairs: list[TextOrIds] = [(query, text) for text in texts]
            rows, _ = await self.runner.compute(record, version, pairs, Output.LOGITS, **options)
        scores = [relevance(row[0].tolist(), raw) for row in rows]
        return sorted(enumerate(scores), key=lambda one: -one[1])

    async def rerank(self, record: RequestRecord, body: schemas.RerankBody) -> list[schemas.RankReply]:
        """POST /rerank."""
        model = self.pick(body.model, record, "classifier", "reranker")
        options = self._options(body)
        ranks = await self._ranks(record, model, body.query, body.texts, body.raw_scores, options)
        return [schemas.RankReply(i, score, body.texts[i] if body.return_text else None) for i, score in ranks]

    async def rerank_v1(self, record: RequestRecord, body: schemas.RerankV1Body) -> schemas.RerankV1Reply:
        """POST /v1/rerank."""
        model = self.pick(body.model, record, "classifier", "reranker")
        texts = [one if isinstance(one, str) else one.text for one in body.documents]
        options = {"truncate": True, "left": False}  # these clients cannot ask for it
        ranks = (await self._ranks(record, model, body.query, texts, False, options))[: body.top_n]
        results = [
            schemas.RankV1Reply(i, score, schemas.RankedDocument(texts[i]) if body.return_documents else None)
            for i, score in ranks
        ]
        return schemas.RerankV1Reply(uuid4().hex, model.name, results, _usage(record))

    async def similarity(self, record: RequestRecord, body: schemas.SimilarityBody) -> list[float]:
        """POST /similarity."""
        model = self.pick(body.model, record, "embedding")
        options = body.parameters or schemas.SimilarityOptions()
        texts: list[TextOrIds] = [body.inputs.source_sentence, *body.inputs.sentences]
        self._count(record, "embed", texts[1:], True)
        given = await self._vectors(record, model, texts, self._options(options), prompt_name=options.prompt_name)
        vectors = given.astype(np.float64)
        return (vectors[1:] * vectors[0]).sum(-1).tolist()  # type: ignore[no-any-return]

    async def tokenize(self, record: RequestRecord, body: schemas.TokenizeBody) -> list[list[schemas.TokenReply]]:
        """POST /tokenize."""
        model = self.pick(body.model, record)
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        self._count(record, "tokenize", texts, not isinstance(body.inputs, str))
        with model.version as version:
            prompted = _prompted(texts, version.prompt(body.prompt_name) if body.prompt_name else "")
            work = (version, prompted, body.add_special_tokens, self.settings.max_tokens)
            return list(await self.runner.call(record, _tokens, record, *work))

    async def ner(self, record: RequestRecord, body: schemas.NerBody) -> Any:
        """POST /ner."""
        model = self.pick(body.model, record, "ner")
        batch = not isinstance(body.inputs, str)
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        self._count(record, "ner", texts, batch)
        joined = body.parameters is None or body.parameters.aggregation_strategy != "none"
        options = self._options(body)
        with model.version as version:
            if options["truncate"]:
                rows, encodings = await self.runner.compute(record, version, texts, Output.TOKEN_LOGITS, **options)
                found = [version.model.prediction(*each) for each in zip(texts, encodings, rows, strict=True)]
            else:
                found = await self.runner.predict(record, version, list(texts))
        replies = [
            [
                schemas.EntityReply(word.label, word.score, word.text, word.start, word.end)
                for word in (tags.entities if joined else tags.words)
            ]
            for tags in found
        ]
        return replies if batch else replies[0]

    async def qa(self, record: RequestRecord, body: schemas.QaBody) -> Any:
        """POST /qa."""
        model = self.pick(body.model, record, "qa")
        pairs, batch = _questions(body)
        self._count(record, "qa", pairs, batch)
        with model.version as version:
            answers = await self.runner.predict(record, version, list(pairs))
        replies = [schemas.AnswerReply(a.text or "", a.score, a.start or 0, a.end or 0) for a in answers]
        return replies if batch else replies[0]

    async def any(self, record: RequestRecord, body: msgspec.Raw) -> Any:
        """POST /, where some clients send everything: what the model is for."""
        model = self.pick(None, record)
        handler, kind = {
            "embedding": (self.embed, schemas.EmbedBody),
            "classifier": (self.predict, schemas.PredictBody),
            "reranker": (self.rerank, schemas.RerankBody),
            "ner": (self.ner, schemas.NerBody),
            "qa": (self.qa, schemas.QaBody),
        }[model.version.kind]
        return await handler(record, msgspec.json.decode(body, type=kind))  # type: ignore[operator]

    def info(self, record: RequestRecord) -> schemas.InfoReply:
        """GET /info."""
        model = self.pick(None, record)
        version, settings = model.version, self.settings
        labels = version.model.labels
        names = {"id2label": dict(map(_numbered, enumerate(labels))), "label2id": {n: i for i, n in enumerate(labels)}}
        kind = version.kind
        return schemas.InfoReply(
            model_id=model.name,
            model_sha=None,
            model_dtype="ternary",
            model_type={kind: {"pooling": version.pooling} if kind == "embedding" else names},
            max_concurrent_requests=settings.max_requests,
            max_input_length=version.model.max_length,
            max_batch_tokens=settings.max_batch_tokens,
            max_batch_requests=None,
            max_client_batch_size=settings.max_texts,
            auto_truncate=settings.truncate,
            tokenization_workers=TOKENIZER_THREADS,
            version=__version__,
            kernel=version.runner.kernel,
            needs_key=settings.api_key is not None,
            models={name: each.version.kind for name, each in self.models.items()},
        )

    def list_models(self, record: RequestRecord) -> schemas.ModelsReply:
        """GET /v1/models."""
        return schemas.ModelsReply("list", [_model(model) for model in self.models.values()])

    def show_model(self, record: RequestRecord, name: str) -> schemas.ModelReply:
        """GET /v1/models/NAME."""
        return _model(self.pick(name, record))


@dataclass(frozen=True)
class PostRoute:
    """A route with a JSON body."""

    path: str
    summary: str
    body: type
    replies: tuple[Any, ...]  # alternatives
    handler: Callable[..., Awaitable[Any]]


_CLASSES = (list[schemas.PredictionReply], list[list[schemas.PredictionReply]])
_ENTITIES = (list[schemas.EntityReply], list[list[schemas.EntityReply]])
_ANSWERS = (schemas.AnswerReply, list[schemas.AnswerReply])

ROUTES = (
    PostRoute("/embed", "A vector for each text", schemas.EmbedBody, (list[list[float]],), Api.embed),
    PostRoute("/embed_all", "A vector for each token", schemas.EmbedAllBody, (list[list[list[float]]],), Api.embed_all),
    PostRoute("/predict", "Labels and scores of texts or pairs", schemas.PredictBody, _CLASSES, Api.predict),
    PostRoute(
        "/rerank", "Texts by how well they match a query", schemas.RerankBody, (list[schemas.RankReply],), Api.rerank
    ),
    PostRoute("/similarity", "Cosines of sentences", schemas.SimilarityBody, (list[float],), Api.similarity),
    PostRoute("/tokenize", "Tokens of texts", schemas.TokenizeBody, (list[list[schemas.TokenReply]],), Api.tokenize),
    PostRoute("/ner", "Entities in texts", schemas.NerBody, _ENTITIES, Api.ner),
    PostRoute("/qa", "An answer from a context", schemas.QaBody, _ANSWERS, Api.qa),
    PostRoute(
        "/v1/embeddings", "OpenAI's embeddings", schemas.EmbeddingsBody, (schemas.EmbeddingsReply,), Api.embeddings
    ),
    PostRoute("/v1/rerank", "Cohere's and Jina's ranks", schemas.RerankV1Body, (schemas.RerankV1Reply,), Api.rerank_v1),
    PostRoute("/v2/rerank", "The same as /v1/rerank", schemas.RerankV1Body, (schemas.RerankV1Reply,), Api.rerank_v1),
)


def as_inputs(given: schemas.Loose) -> tuple[list[TextOrIds], bool]:
    """Texts and lists of token ids, and whether the request gave several."""
    if isinstance(given, str):
        return [given], False
    kinds = {type(one) for one in given}
    if kinds <= {str}:
        return given, True  # type: ignore[return-value]
    if kinds == {int}:
        return [given], False  # type: ignore[list-item]
    if kinds == {list} and all(type(item) is int for one in given for item in one):  # type: ignore[union-attr]
        return given, True  # type: ignore[return-value]
    raise RequestFailure("Tokenizer", "expected a text, a list of texts, token ids, or a list of lists of token ids")


def as_pairs(given: schemas.Loose) -> tuple[list[TextOrIds], bool]:
    """Texts and pairs, and whether the request gave a batch: a flat list of two texts is one pair."""
    if isinstance(given, str):
        return [given], False
    if all(isinstance(one, str) for one in given):
        return ([_one_or_pair(given)], False) if given else ([], True)
    return [_one_or_pair(one) for one in given], True


def _one_or_pair(given: Any) -> TextOrIds:
    if isinstance(given, list) and all(isinstance(text, str) for text in given):
        if len(given) == 1:
            return str(given[0])
        if len(given) == 2:
            return given[0], given[1]
    raise RequestFailure("Tokenizer", "expected a text, a pair of texts, or a list of [text] and [text, text]")


def _questions(body: schemas.QaBody) -> tuple[list[tuple[str, str]], bool]:
    if body.inputs is not None:
        several = isinstance(body.inputs, list)
        given = body.inputs if isinstance(body.inputs, list) else [body.inputs]
        return [(one.question, one.context) for one in given], several
    if body.question is None or body.context is None:
        raise RequestFailure("Tokenizer", "expected question and context, or inputs with both")
    return [(body.question, body.context)], False


def relevance(logits: list[float], raw: bool) -> float:
    """One output: its sigmoid. Two classes: the probability of the second; raw, by how much its logit is larger."""
    if len(logits) == 1:
        return logits[0] if raw else sigmoid(logits[0])
    return logits[1] - logits[0] if raw else softmax_list(logits)[1]


def _predictions(version: ModelVersion, rows: Floats, raw: bool) -> list[schemas.PredictionReply]:
    """All labels, the best first. A regression has its value as score."""
    model = version.model
    prediction = None if raw else model.prediction("", None, rows)
    if isinstance(prediction, (Label, Labels)):
        scores = prediction.scores
    else:
        scores = dict(zip(model.labels, rows[0].tolist(), strict=True))
    ordered = sorted(scores.items(), key=lambda one: -one[1])
    return [schemas.PredictionReply(score, label) for label, score in ordered]


def _prompted(texts: Sequence[Any], prompt: str) -> list[TextOrIds]:
    if not prompt:
        return list(texts)
    if any(isinstance(text, list) for text in texts):
        raise RequestFailure("Tokenizer", "a prompt cannot be put in front of token ids")
    return [prompt + text for text in texts]


def _tokens(
    record: RequestRecord, version: ModelVersion, texts: list[str], special: bool, limit: int
) -> list[list[schemas.TokenReply]]:
    encodings = version.tokenizer("whole").encode_batch(texts, add_special_tokens=special)
    record.tokens = sum(len(encoding) for encoding in encodings)
    if record.tokens > limit:
        raise RequestFailure("Validation", f"a request may have at most {limit} tokens; this one has {record.tokens}")
    return [_tokens_of(text, encoding) for text, encoding in zip(texts, encodings, strict=True)]


def _tokens_of(text: str, encoding: Encoding) -> list[schemas.TokenReply]:
    fields = zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True)
    return [
        schemas.TokenReply(number, token, True, None, None)
        if special
        else schemas.TokenReply(number, text[start:stop], False, start, stop)
        for number, token, special, (start, stop) in fields
    ]


def _usage(record: RequestRecord) -> schemas.UsageReply:
    return schemas.UsageReply(record.tokens, record.tokens)


def _base64(vector: Floats) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _numbered(one: tuple[int, str]) -> tuple[str, str]:
    return str(one[0]), one[1]


def _model(model: ServedModel) -> schemas.ModelReply:
    return schemas.ModelReply(model.name, "model", model.created, "ternarybert")
