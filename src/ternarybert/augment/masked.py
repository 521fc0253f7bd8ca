"""Candidates from a masked-language model: which words would fit here?

For a word of one piece the model reads `[CLS] sentence with a [MASK] [SEP] whole sentence [SEP]`, as in TinyBERT, and
its fifteen best pieces at the mask are the candidates, those left out that are no whole words. Words of several
pieces are not its business. Where a pair of sentences is longer than the model can read, both are cut to the same
window around the word.

Fast: questions about many sentences share a batch; equal questions are asked once; and only masked positions are scored
against the vocabulary, which for a small model is most of the work.

Faster, and no longer TinyBERT: several words of a sentence are masked in one question (`masks`), far from each other.
The whole sentence still stands beside it, so nothing is hidden from the model; but each word is judged beside other
masks, and its candidates may differ.

Repeatable: all questions of a batch are of one length, for some models let padding change what they say. The last
digits of a score still depend on the shape of the batch. The answer is therefore *defined* as that
to the question asked alone. A batch only shows it sooner: where the fifteenth and sixteenth best are clearly apart,
the fifteen are the same alone, and where they are not, the question is asked again, alone.

MERGED-DOCS:
How a masked-language model is asked about a word, as numbers: text in, a batch of piece ids out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ternarybert.augment.source import COUNT, Candidates, digest, ignore
from ternarybert.augment.words import Place, whole_words
from ternarybert.errors import HubError, MissingExtraError, RecipeError, UnsupportedModelError

if TYPE_CHECKING:
    import torch


class Question(NamedTuple):
    """What the model is asked: pieces of a sentence, or of a window of it, and which of them are masked."""

    ids: tuple[int, ...]
    at: tuple[int, ...]


class Asked(NamedTuple):
    """Where a word is asked about: the question, and which of its masks stands for the word."""

    question: Question
    which: int


class Encoder:
    """Turns words in texts into questions."""

    def __init__(self, tokenizer: Any, window: int, masks: int = 1) -> None:
        from tokenizers import Tokenizer

        self.window, self.masks = window, masks
        self._unknown = tokenizer.unk_token_id
        # A copy, because cutting and padding are settings of the tokenizer itself.
        self._tokenizer = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def __call__(self, places: Sequence[Place]) -> list[Asked | None]:
        """A question for each word of one piece, None for the others; several may share one."""
        texts = list(dict.fromkeys(place.text for place in places))
        encoded = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        pieces = {
            text: (tuple(pieces.ids), _by_span(text, pieces.offsets))
            for text, pieces in zip(texts, encoded, strict=True)
        }
        found: list[tuple[str, int] | None] = []  # the text, and which of its pieces is the word
        for place in places:
            ids, spans = pieces[place.text]
            at = spans.get((place.start, place.end))
            found.append(None if at is None or ids[at] == self._unknown else (place.text, at))
        asked = self._share({text: ids for text, (ids, _) in pieces.items()}, {word for word in found if word})
        return [None if word is None else asked[word] for word in found]

    def _share(self, ids: dict[str, tuple[int, ...]], words: set[tuple[str, int]]) -> dict[tuple[str, int], Asked]:
        """Words of a text in questions of at most so many masks."""
        by_text: dict[str, list[int]] = {}
        for text, at in sorted(words):
            by_text.setdefault(text, []).append(at)
        asked = {}
        for text, spots in by_text.items():
            for group in self._groups(len(ids[text]), spots):
                question = self._around(ids[text], group)
                asked.update({(text, at): Asked(question, which) for which, at in enumerate(group)})
        return asked

    def _groups(self, length: int, spots: list[int]) -> list[list[int]]:
        """Words to mask together, as far apart as can be; where a window is needed, each has its own."""
        count = len(spots) if length > self.window else -(-len(spots) // self.masks)
        return [spots[first::count] for first in range(count)]

    def _around(self, ids: tuple[int, ...], spots: Sequence[int]) -> Question:
        """All pieces where they fit, otherwise as many as fit around the word."""
        begin = max(0, min(spots[0] - self.window // 2, len(ids) - self.window))
        return Question(ids[begin : begin + self.window], tuple(at - begin for at in spots))


def _by_span(text: str, offsets: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Pieces by the characters they cover; spaces do not count, which some tokenizers give to the word behind them."""
    spans = [(end - len(text[begin:end].lstrip()), end) for begin, end in offsets]
    # Pieces that are bytes of one character all cover it; none of them is the word.
    repeated = {span for span, times in Counter(spans).items() if times > 1}
    return {span: i for i, span in enumerate(spans) if span not in repeated}


class Template:
    """How a model wants two texts: special pieces before, between and after, and segment numbers.

    The tokenizer shows it when it is given a pair of masks, so no family of models needs to be known by name.
    """

    def __init__(self, tokenizer: Any, name: str, segments: int = 2) -> None:
        """`segments` is how many the model tells apart; one that tells none apart is not told of any."""
        self.mask = tokenizer.mask_token_id
        if self.mask is None:
            raise UnsupportedModelError(f"the tokenizer of {name} has no mask; a masked-language model is needed")
        pair = tokenizer(tokenizer.mask_token, tokenizer.mask_token, return_token_type_ids=True)
        ids, types = list(pair["input_ids"]), list(pair["token_type_ids"])
        self._types = types if 0 < max(types) < segments else None
        self._first = ids.index(self.mask)
        self._second = ids.index(self.mask, self._first + 1)
        self._ids = ids

    def room(self, length: int) -> int:
        """How many pieces of a sentence fit when all together may be `length`."""
        room = (length - len(self._ids) + 2) // 2
        if room < 1:
            raise UnsupportedModelError(f"a length of {length} leaves no room for a word")
        return room

    def inputs(self, batch: Sequence[Question]) -> tuple[dict[str, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
        """The model's inputs for questions of one length, and where the masks are: rows and positions."""
        import torch

        ids = torch.tensor([self._pair(question) for question in batch])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if self._types is not None:
            inputs["token_type_ids"] = torch.tensor(self._spread(self._types, len(batch[0].ids))).expand_as(ids)
        masks = [(row, self._first + at) for row, question in enumerate(batch) for at in question.at]
        rows, columns = torch.tensor(masks).T
        return inputs, (rows, columns)

    def _pair(self, question: Question) -> list[int]:
        masked = [self.mask if at in question.at else piece for at, piece in enumerate(question.ids)]
        return self._filled(self._ids, masked, list(question.ids))

    def _filled(self, frame: list[int], first: list[int], second: list[int]) -> list[int]:
        between = frame[self._first + 1 : self._second]
        return [*frame[: self._first], *first, *between, *second, *frame[self._second + 1 :]]

    def _spread(self, types: list[int], length: int) -> list[int]:
        return self._filled(types, [types[self._first]] * length, [types[self._second]] * length)


BATCH_SIZE = 32  # more is slower on processors: activations no longer fit into their caches
MAX_LENGTH = 512

# Scores closer than this share of the largest may change places in another batch. Measured differences are below
# 2e-6 of it.
_CLOSE = 1e-4


class MaskedModel:
    """A source that asks a Hugging Face masked-language model."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str = "",
        *,
        count: int = COUNT,
        batch_size: int = BATCH_SIZE,
        max_length: int = MAX_LENGTH,
        masks: int = 1,
    ) -> None:
        if masks < 1:
            raise RecipeError(f"a question has at least one mask, not {masks}")
        self.model, self.count, self.batch_size = model.eval(), count, batch_size
        self._template = Template(tokenizer, name, getattr(model.config, "type_vocab_size", 0))
        self._encode = Encoder(tokenizer, self._template.room(min(max_length, _longest(model, tokenizer))), masks)
        self._words = whole_words(tokenizer.get_vocab())
        self.description = f"the {count} best words of the masked-language model {name}".rstrip()
        if masks > 1:
            self.description += f" ({masks} masks at a time)"
        numbers = repr((count, self._encode.window, masks))
        self.fingerprint = digest("masked", numbers, tokenizer.backend_tokenizer.to_str(), _state(model))

    @classmethod
    def load(cls, name: str, *, device: str = "cpu", **settings: int) -> MaskedModel:
        """Load a model folder or hub id; one without a trained masked-language-model head is refused."""
        model, tokenizer = _load(name)
        return cls(_move(model, device), tokenizer, name.rstrip("/").split("/")[-1], **settings)

    def candidates(self, places: Sequence[Place], done: Callable[[int], None] = ignore) -> list[Candidates | None]:
        """Candidates of words that are one piece; None for the others."""
        waiting: dict[Asked, list[int]] = {}
        for i, asked in enumerate(self._encode(places)):
            if asked is not None:
                waiting.setdefault(asked, []).append(i)
        answers: list[Candidates | None] = [None] * len(places)
        finished = 0
        for batch in self._batches(list(dict.fromkeys(asked.question for asked in waiting))):
            for asked, best in self._best(batch).items():
                words = tuple(self._words[piece] for piece in best if piece in self._words)
                for i in waiting[asked]:
                    answers[i] = words
                finished += len(waiting[asked])
            done(finished)
        return answers

    def _batches(self, questions: list[Question]) -> Iterator[list[Question]]:
        """Questions of one length together; the longest first, so that memory runs out soon or never."""
        questions.sort(key=lambda question: -len(question.ids))
        for _, group in groupby(questions, key=lambda question: len(question.ids)):
            alike = list(group)
            for begin in range(0, len(alike), self.batch_size):
                yield alike[begin : begin + self.batch_size]

    def _best(self, batch: Sequence[Question]) -> dict[Asked, list[int]]:
        """The best pieces for every mask, in the order of their ids."""
        masks = [Asked(question, which) for question in batch for which in range(len(question.at))]
        scores = self._scores(batch)
        top = scores.topk(min(self.count + 1, scores.shape[1]))
        if not bool(top.values.isfinite().all()):
            raise UnsupportedModelError(f"{self.description}: its scores are not finite; the model is broken")
        best = top.indices[:, : self.count].sort().values.tolist()
        if scores.shape[1] > self.count:
            gap = top.values[:, self.count - 1] - top.values[:, self.count]
            for i in (gap <= _CLOSE * top.values.abs().amax(1)).nonzero()[:, 0].tolist():
                best[i] = self._best_alone(masks[i])
        return dict(zip(masks, best, strict=True))

    def _best_alone(self, asked: Asked) -> list[int]:
        """The answer by definition. Equal scores: the piece with the smaller id wins."""
        order = self._scores([asked.question])[asked.which].sort(descending=True, stable=True).indices
        return sorted(order[: self.count].tolist())

    def _scores(self, batch: Sequence[Question]) -> torch.Tensor:
        """Scores of all pieces at the masks, (masks, vocabulary)."""
        import torch

        inputs, (rows, columns) = self._template.inputs(batch)
        inputs = {name: values.to(self.model.device) for name, values in inputs.items()}
        with torch.inference_mode(), _only(self.model, rows, columns):
            scores: torch.Tensor = self.model(**inputs).logits
        return scores[:, 0].float()


@contextmanager
def _only(model: Any, rows: torch.Tensor, columns: torch.Tensor) -> Iterator[None]:
    """Let only the positions of the masks leave the encoder for the head that scores the vocabulary."""

    def pick(encoder: Any, inputs: Any, output: Any) -> Any:
        output["last_hidden_state"] = output["last_hidden_state"][rows, columns][:, None]
        return output

    hook = model.base_model.register_forward_hook(pick)
    try:
        yield
    finally:
        hook.remove()


def _longest(model: Any, tokenizer: Any) -> int:
    """How many pieces the model can read."""
    longest = int(min(getattr(model.config, "max_position_embeddings", MAX_LENGTH), tokenizer.model_max_length))
    for name, module in model.named_modules():
        # RoBERTa and its relatives count positions from behind that of the padding.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            longest = min(longest, module.num_embeddings - module.padding_idx - 1)
    return longest


def _state(model: Any) -> str:
    """A name for the model's weights."""
    import torch

    tensors = ((name, tensor.detach().cpu().reshape(-1)) for name, tensor in sorted(model.state_dict().items()))
    return digest(*(part for name, tensor in tensors for part in (name, tensor.view(torch.uint8).numpy().data)))


def _load(name: str) -> tuple[Any, Any]:
    try:
        import torch
        from safetensors import SafetensorError
        from transformers import AutoModelForMaskedLM, AutoTokenizer
    except ImportError as error:
        raise MissingExtraError("a masked-language model needs more: pip install 'ternarybert[train]'") from error
    try:
        model, info = AutoModelForMaskedLM.from_pretrained(name, dtype=torch.float32, output_loading_info=True)
        tokenizer = AutoTokenizer.from_pretrained(name)
    except ValueError as error:  # a model that has no such form
        raise UnsupportedModelError(f"{name} is no masked-language model: {_first_line(error)}") from error
    except (OSError, SafetensorError) as error:
        raise HubError(f"cannot load {name} ({_first_line(error)}); give a model folder or a hub id") from error
    _require_head(name, info["missing_keys"])
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):  # transformers makes up an empty one
        raise UnsupportedModelError(f"{name} has no tokenizer; copy tokenizer.json from the model it was made of")
    if not getattr(tokenizer, "is_fast", False):
        raise UnsupportedModelError(f"the tokenizer of {name} does not say where its pieces stand; use another model")
    return model, tokenizer


def _move(model: Any, device: str) -> Any:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:  # torch was built without it, or there is none
        raise RecipeError(f"the device '{device}' cannot be used: {_first_line(error)}") from error


def _require_head(name: str, missing: set[str]) -> None:
    """Refuse a checkpoint without a head, for which transformers would make up a random one."""
    if missing:
        raise UnsupportedModelError(
            f"{name} has no masked-language-model head ({sorted(missing)[0]} is missing); "
            "name a pre-trained model, or use this one's word embeddings (--embeddings)"
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
