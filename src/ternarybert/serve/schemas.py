"""The JSON of requests and responses. Requests are decoded straight into these classes, unknown fields are ignored.

Unions of several kinds of lists are decoded loosely and checked in routes.py; their exact form is in the schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

_STRING: dict[str, Any] = {"type": "string"}
_STRINGS: dict[str, Any] = {"type": "array", "items": _STRING, "minItems": 1}
_IDS: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_BATCH_OF_IDS: dict[str, Any] = {"type": "array", "items": _IDS, "minItems": 1}
_PAIR = _STRINGS | {"minItems": 2, "maxItems": 2}
_SINGLE = _STRINGS | {"maxItems": 1}


def _exactly(*forms: dict[str, Any], text: str) -> Meta:
    return Meta(description=text, extra_json_schema={"type": None, "items": None, "anyOf": list(forms)})


Loose = str | list[str | int | list[str | int]]
Inputs = Annotated[
    Loose, _exactly(_STRING, _STRINGS, _IDS, _BATCH_OF_IDS, text="A text, texts, token ids, or several lists of them.")
]
PredictInputs = Annotated[
    Loose,
    _exactly(
        _STRING,
        _SINGLE,
        _PAIR,
        {"type": "array", "items": {"anyOf": [_SINGLE, _PAIR]}, "minItems": 1},
        text="A text; two texts, which are ONE pair; or a list of [text] and [text, text].",
    ),
]
Texts = Annotated[str | list[str], _exactly(_STRING, _STRINGS, text="A text or a list of texts.")]
ModelName = Annotated[str, Meta(description="The name of a served model. By default the first.")]
Truncate = Annotated[bool, Meta(description="Truncate texts that are too long; otherwise they are refused with 413.")]
Direction = Annotated[
    Literal["Left", "Right", "left", "right"], Meta(description="The side on which too long texts are truncated.")
]
PromptName = Annotated[str, Meta(description="A prompt of the folder's config_sentence_transformers.json.")]
Dimensions = Annotated[int, Meta(ge=1, description="Only so many first dimensions of the vectors.")]


class TextOptions(Struct, kw_only=True):
    """What every request about texts may say."""

    model: ModelName | None = None
    truncate: Truncate | None = None
    truncation_direction: Direction = "Right"


class EmbedBody(TextOptions, kw_only=True):
    """Texts to embed."""

    inputs: Inputs
    normalize: bool = True
    prompt_name: PromptName | None = None
    dimensions: Dimensions | None = None


class EmbedAllBody(TextOptions, kw_only=True):
    """Texts whose tokens to embed."""

    inputs: Inputs
    prompt_name: PromptName | None = None


class PredictBody(TextOptions, kw_only=True):
    """Texts and pairs to classify."""

    inputs: PredictInputs
    raw_scores: bool = False


class RerankBody(TextOptions, kw_only=True):
    """Texts to order by how well they match the query."""

    query: str
    texts: Annotated[list[str], Meta(min_length=1)]
    raw_scores: bool = False
    return_text: bool = False


class SimilarityInputs(Struct):
    """A sentence and those to compare it with."""

    source_sentence: str
    sentences: Annotated[list[str], Meta(min_length=1)]


class SimilarityOptions(Struct):
    """How to compare."""

    truncate: Truncate | None = None
    truncation_direction: Direction = "Right"
    prompt_name: PromptName | None = None


class SimilarityBody(Struct):
    """Sentences to compare."""

    inputs: SimilarityInputs
    parameters: SimilarityOptions | None = None
    model: ModelName | None = None


class TokenizeBody(Struct):
    """Texts to tokenize."""

    inputs: Texts
    add_special_tokens: bool = True
    prompt_name: PromptName | None = None
    model: ModelName | None = None


class NerParameters(Struct):
    """How entities are found."""

    aggregation_strategy: Annotated[
        Literal["none", "simple", "first", "average", "max"],
        Meta(description="none: every word by itself; all others: words joined to entities."),
    ] = "simple"


class NerBody(TextOptions, kw_only=True):
    """Texts in which to find entities."""

    inputs: Texts
    parameters: NerParameters | None = None


class QuestionInput(Struct):
    """A question about a context."""

    question: str
    context: str


class QaBody(Struct):
    """A question, at the top level or as Hugging Face's clients send it, in `inputs`."""

    question: str | None = None
    context: str | None = None
    inputs: QuestionInput | list[QuestionInput] | None = None
    model: ModelName | None = None


class EmbeddingsBody(Struct):
    """OpenAI's request for embeddings."""

    input: Inputs
    model: ModelName | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Dimensions | None = None
    user: str | None = None


class RankedDocument(Struct):
    """A document by its text."""

    text: str


class RerankV1Body(Struct):
    """Cohere's and Jina's request for ranks."""

    query: str
    documents: Annotated[list[str | RankedDocument], Meta(min_length=1)]
    model: ModelName | None = None
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool = False


class ErrorReply(Struct):
    """Why there is no answer."""

    error: str
    error_type: str


class OpenAIError(Struct):
    """What OpenAI's clients read."""

    message: str
    type: str
    param: str | None
    code: int


class OpenAIErrorReply(Struct):
    """Why there is no answer, for OpenAI's clients and TEI's."""

    error: OpenAIError
    message: str
    code: int
    error_type: str


class PredictionReply(Struct):
    """A label and its score."""

    score: float
    label: str


class RankReply(Struct, omit_defaults=True):
    """A text's position in the request and its score."""

    index: int
    score: float
    text: str | None = None


class TokenReply(Struct):
    """A token; special ones have no place in the text."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class EntityReply(Struct):
    """An entity, or with aggregation_strategy none a word; `start` and `end` count characters."""

    entity_group: str
    score: float
    word: str
    start: int
    end: int


class AnswerReply(Struct):
    """An answer; empty, from 0 to 0, if the context has none."""

    answer: str
    score: float
    start: int
    end: int


class EmbeddingReply(Struct):
    """One vector: numbers, or little-endian float32 in base64."""

    object: str
    index: int
    embedding: list[float] | str


class UsageReply(Struct):
    """How many tokens were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsReply(Struct):
    """OpenAI's response."""

    object: str
    data: list[EmbeddingReply]
    model: str
    usage: UsageReply


class RankV1Reply(Struct, omit_defaults=True):
    """A document's position in the request and its relevance."""

    index: int
    relevance_score: float
    document: RankedDocument | None = None


class RerankV1Reply(Struct):
    """Cohere's and Jina's response."""

    id: str
    model: str
    results: list[RankV1Reply]
    usage: UsageReply


class ModelReply(Struct):
    """A served model."""

    id: str
    object: str
    created: int
    owned_by: str


class ModelsReply(Struct):
    """All served models."""

    object: str
    data: list[ModelReply]


class InfoReply(Struct):
    """The model and the limits of the server, as TEI says it; `models` has the kind of each model."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    kernel: str
    needs_key: bool
    models: dict[str, str]
