"""How a masked-language model is asked about a word, as numbers: text in, a batch of piece ids out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ternarybert.augment.words import Place
from ternarybert.errors import UnsupportedModelError

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
