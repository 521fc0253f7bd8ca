"""How a masked-language model is asked about a word, as numbers: text in, a padded batch of piece ids out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ternarybert.augment.words import Place
from ternarybert.errors import UnsupportedModelError

if TYPE_CHECKING:
    import torch


class Question(NamedTuple):
    """What the model is asked: pieces of a sentence, or of a window of it, and which of them is masked."""

    ids: tuple[int, ...]
    at: int


class Encoder:
    """Turns words in texts into questions."""

    def __init__(self, tokenizer: Any, window: int) -> None:
        from tokenizers import Tokenizer

        self.window = window
        self._unknown = tokenizer.unk_token_id
        # A copy, because cutting and padding are settings of the tokenizer itself.
        self._tokenizer = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def __call__(self, places: Sequence[Place]) -> list[Question | None]:
        """A question for each word of one piece, None for the others."""
        texts = list(dict.fromkeys(place.text for place in places))
        encoded = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        pieces = {
            text: (tuple(pieces.ids), _by_span(text, pieces.offsets))
            for text, pieces in zip(texts, encoded, strict=True)
        }
        questions: list[Question | None] = []
        for place in places:
            ids, spans = pieces[place.text]
            at = spans.get((place.start, place.end))
            questions.append(None if at is None or ids[at] == self._unknown else self._around(ids, at))
        return questions

    def _around(self, ids: tuple[int, ...], at: int) -> Question:
        """All pieces where they fit, otherwise as many as fit around the word."""
        begin = max(0, min(at - self.window // 2, len(ids) - self.window))
        return Question(ids[begin : begin + self.window], at - begin)


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
        self.mask, self.pad = tokenizer.mask_token_id, tokenizer.pad_token_id or 0
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

    def inputs(self, batch: Sequence[Question]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """The model's inputs, padded behind, and where the masks are."""
        import torch

        lengths = [len(self._ids) - 2 + 2 * len(question.ids) for question in batch]
        ids = torch.full((len(batch), max(lengths)), self.pad)
        types = torch.zeros_like(ids)
        for i, (sentence, at) in enumerate(batch):
            masked = [*sentence[:at], self.mask, *sentence[at + 1 :]]
            ids[i, : lengths[i]] = torch.tensor(self._filled(self._ids, masked, list(sentence)))
            if self._types is not None:
                types[i, : lengths[i]] = torch.tensor(self._spread(self._types, len(sentence)))
        attention = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
        inputs = {"input_ids": ids, "attention_mask": attention}
        if self._types is not None:
            inputs["token_type_ids"] = types
        return inputs, torch.tensor([self._first + question.at for question in batch])

    def _filled(self, frame: list[int], first: list[int], second: list[int]) -> list[int]:
        between = frame[self._first + 1 : self._second]
        return [*frame[: self._first], *first, *between, *second, *frame[self._second + 1 :]]

    def _spread(self, types: list[int], length: int) -> list[int]:
        return self._filled(types, [types[self._first]] * length, [types[self._second]] * length)
