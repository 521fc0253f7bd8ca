"""Replacement words from a masked-language model which words fit in a sentence.

For a word of one piece the model reads `[CLS] sentence with a [MASK] [SEP] whole sentence [SEP]`, as in TinyBERT. Its
fifteen best pieces at the mask are the candidates, without those that are not whole words. Words of several pieces are
not covered. Where a pair of sentences is longer than the model allows, both are cut to the same window around the word.

Speed: prompts from many sentences share a batch; equal prompts run once; and only masked positions are scored against
the vocabulary, which for a small model is most of the work. With `masks` above 1 several words of a sentence, far
apart, are masked in one prompt. That is faster but no longer TinyBERT: the whole sentence is still there as the second
text, but each word is predicted next to other masks, and its candidates may differ.

Reproducibility: all prompts of a batch have the same length, because padding changes the output of some models. The
last digits of a score still depend on the shape of the batch. The result is therefore *defined* as that of a prompt run
alone. A batch is a shortcut: where the fifteenth and sixteenth best are clearly apart, the best fifteen are the same
alone, and where they are not, the prompt is run again by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ternarybert.augment.sources import BATCH_SIZE, COUNT, MAX_LENGTH, Candidates, digest, no_progress
from ternarybert.augment.words import WordPosition, whole_words
from ternarybert.data.pair_frame import pair_frame, plain_copy
from ternarybert.errors import HubError, MissingExtraError, RecipeError, UnsupportedModelError
from ternarybert.families import known_family, max_tokens

if TYPE_CHECKING:
    import torch

# Scores closer than this share of the largest score may swap order in another batch. Measured differences are below
# 2e-6 of it.
_CLOSE = 1e-4


class MaskedModel:
    """A Hugging Face masked-language model as a source."""

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
            raise RecipeError(f"masks must be at least 1, not {masks}")
        self.model, self.count, self.batch_size = model.eval(), count, batch_size
        self._template = PromptTemplate(tokenizer, name, getattr(model.config, "type_vocab_size", 0))
        window = self._template.sentence_length(min(max_length, _max_length(model, tokenizer)))
        self._encode = PromptEncoder(tokenizer, window, masks)
        self._words = whole_words(tokenizer.get_vocab())
        self.description = f"the {count} best words of the masked-language model {name}".rstrip()
        if masks > 1:
            self.description += f" ({masks} masks at a time)"
        numbers = repr((count, self._encode.window, masks))
        self.fingerprint = digest("masked", numbers, tokenizer.backend_tokenizer.to_str(), _weights_hash(model))

    @classmethod
    def load(cls, name: str, *, device: str = "cpu", **options: int) -> MaskedModel:
        """Load a model folder or Hub id; a model without a trained masked-language-model head is rejected."""
        model, tokenizer = _load(name)
        return cls(_move(model, device), tokenizer, name.rstrip("/").split("/")[-1], **options)

    def candidates(
        self, positions: Sequence[WordPosition], progress: Callable[[int], None] = no_progress
    ) -> list[Candidates | None]:
        """Return candidates for words of one piece; None for the others."""
        pending: dict[MaskSlot, list[int]] = {}
        for i, slot in enumerate(self._encode(positions)):
            if slot is not None:
                pending.setdefault(slot, []).append(i)
        answers: list[Candidates | None] = [None] * len(positions)
        finished = 0
        for batch in self._batches(list(dict.fromkeys(slot.prompt for slot in pending))):
            for slot, best in self._best(batch).items():
                words = tuple(self._words[piece] for piece in best if piece in self._words)
                for i in pending[slot]:
                    answers[i] = words
                finished += len(pending[slot])
            progress(finished)
        return answers

    def _batches(self, prompts: list[MaskedPrompt]) -> Iterator[list[MaskedPrompt]]:
        """Batches of prompts of one length; the longest first, so that memory runs out at once or never."""
        prompts.sort(key=lambda prompt: -len(prompt.ids))
        for _, group in groupby(prompts, key=lambda prompt: len(prompt.ids)):
            same_length = list(group)
            for begin in range(0, len(same_length), self.batch_size):
                yield same_length[begin : begin + self.batch_size]

    def _best(self, batch: Sequence[MaskedPrompt]) -> dict[MaskSlot, list[int]]:
        """The best pieces for every mask, in the order of their ids."""
        slots = [MaskSlot(prompt, index) for prompt in batch for index in range(len(prompt.masked))]
        scores = self._scores(batch)
        top = scores.topk(min(self.count + 1, scores.shape[1]))
        if not bool(top.values.isfinite().all()):
            raise UnsupportedModelError(f"{self.description}: scores are not finite; the weights are damaged")
        best = top.indices[:, : self.count].sort().values.tolist()
        if scores.shape[1] > self.count:
            gap = top.values[:, self.count - 1] - top.values[:, self.count]
            for i in (gap <= _CLOSE * top.values.abs().amax(1)).nonzero()[:, 0].tolist():
                best[i] = self._best_alone(slots[i])
        return dict(zip(slots, best, strict=True))

    def _best_alone(self, slot: MaskSlot) -> list[int]:
        """The result by definition, from the prompt run alone. Equal scores: the smaller id wins."""
        order = self._scores([slot.prompt])[slot.number].sort(descending=True, stable=True).indices
        return sorted(order[: self.count].tolist())

    def _scores(self, batch: Sequence[MaskedPrompt]) -> torch.Tensor:
        """Scores of all pieces at the masks, (masks, vocabulary)."""
        import torch

        inputs, (rows, columns) = self._template.inputs(batch)
        inputs = {name: values.to(self.model.device) for name, values in inputs.items()}
        with torch.inference_mode(), _select_positions(self.model, rows, columns):
            scores: torch.Tensor = self.model(**inputs).logits
        return scores[:, 0].float()


class MaskedPrompt(NamedTuple):
    """The pieces of a sentence, or of a window of it, and the indices of the masked ones."""

    ids: tuple[int, ...]
    masked: tuple[int, ...]


class MaskSlot(NamedTuple):
    """The mask that stands for a word: the prompt, and which of its masks."""

    prompt: MaskedPrompt
    number: int


class PromptEncoder:
    """Turns words in texts into prompts."""

    def __init__(self, tokenizer: Any, window: int, masks: int = 1) -> None:
        self.window, self.masks = window, masks
        self._unknown = tokenizer.unk_token_id
        self._tokenizer = plain_copy(tokenizer.backend_tokenizer)

    def __call__(self, positions: Sequence[WordPosition]) -> list[MaskSlot | None]:
        """Return a slot for each word of one piece, None for the others; several words may share a prompt."""
        texts = list(dict.fromkeys(position.text for position in positions))
        encoded = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        pieces = {
            text: (tuple(pieces.ids), _by_span(text, pieces.offsets))
            for text, pieces in zip(texts, encoded, strict=True)
        }
        words: list[tuple[str, int] | None] = []  # the text, and the index of the piece that is the word
        for position in positions:
            ids, spans = pieces[position.text]
            index = spans.get((position.start, position.end))
            words.append(None if index is None or ids[index] == self._unknown else (position.text, index))
        slots = self._slots({text: ids for text, (ids, _) in pieces.items()}, {word for word in words if word})
        return [None if word is None else slots[word] for word in words]

    def _slots(self, ids: dict[str, tuple[int, ...]], words: set[tuple[str, int]]) -> dict[tuple[str, int], MaskSlot]:
        """Distribute the words of each text over prompts with at most `masks` masks."""
        by_text: dict[str, list[int]] = {}
        for text, index in sorted(words):
            by_text.setdefault(text, []).append(index)
        slots = {}
        for text, indices in by_text.items():
            for group in self._groups(len(ids[text]), indices):
                prompt = self._prompt(ids[text], group)
                slots.update({(text, index): MaskSlot(prompt, i) for i, index in enumerate(group)})
        return slots

    def _groups(self, length: int, indices: list[int]) -> list[list[int]]:
        """Group words to mask together, as far apart as possible; where a window is needed, each word is alone."""
        count = len(indices) if length > self.window else -(-len(indices) // self.masks)
        return [indices[first::count] for first in range(count)]

    def _prompt(self, ids: tuple[int, ...], indices: Sequence[int]) -> MaskedPrompt:
        """All pieces if they fit, otherwise a window around the word."""
        begin = max(0, min(indices[0] - self.window // 2, len(ids) - self.window))
        return MaskedPrompt(ids[begin : begin + self.window], tuple(index - begin for index in indices))


def _by_span(text: str, offsets: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Map character spans to pieces, without the leading space that some tokenizers include in a piece."""
    spans = [(end - len(text[begin:end].lstrip()), end) for begin, end in offsets]
    # Pieces that are bytes of one character all cover it; none of them is a word.
    repeated = {span for span, times in Counter(spans).items() if times > 1}
    return {span: i for i, span in enumerate(spans) if span not in repeated}


class PromptTemplate:
    """Builds model inputs from prompts: special pieces around the masked and the whole sentence, and token types."""

    def __init__(self, tokenizer: Any, name: str, segments: int = 2) -> None:
        """`segments` is the number of token types of the model; without several, no token types are passed."""
        self.mask = tokenizer.mask_token_id
        if self.mask is None:
            raise UnsupportedModelError(f"the tokenizer of {name} has no mask token; use a masked-language model")
        self._frame = pair_frame(plain_copy(tokenizer.backend_tokenizer), tokenizer.mask_token)
        self._has_types = 0 < max(self._frame.types) < segments

    def sentence_length(self, max_length: int) -> int:
        """How many pieces of a sentence fit into a prompt of `max_length` pieces."""
        length = (max_length - len(self._frame)) // 2
        if length < 1:
            raise UnsupportedModelError(f"a maximum length of {max_length} is too short for a single word")
        return length

    def inputs(
        self, batch: Sequence[MaskedPrompt]
    ) -> tuple[dict[str, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
        """Model inputs for prompts of one length, and the masked positions as rows and columns."""
        import torch

        parts = [self._parts(prompt) for prompt in batch]
        ids = torch.tensor([[piece for part in prompt for piece in part] for prompt in parts])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if self._has_types:
            lengths = torch.tensor([len(part) for part in parts[0]])
            inputs["token_type_ids"] = torch.tensor(self._frame.types).repeat_interleave(lengths).expand_as(ids)
        masks = [(row, len(self._frame.before) + index) for row, prompt in enumerate(batch) for index in prompt.masked]
        rows, columns = torch.tensor(masks).T
        return inputs, (rows, columns)

    def _parts(self, prompt: MaskedPrompt) -> list[list[int]]:
        """The five parts of a prompt: the masked and the whole sentence, with special pieces around and between."""
        masked = [self.mask if i in prompt.masked else piece for i, piece in enumerate(prompt.ids)]
        before, between, after = (
            part.tolist() for part in (self._frame.before, self._frame.between, self._frame.after)
        )
        return [before, masked, between, list(prompt.ids), after]


@contextmanager
def _select_positions(model: Any, rows: torch.Tensor, columns: torch.Tensor) -> Iterator[None]:
    """Pass only the masked positions from the encoder to the head that scores the vocabulary."""

    def pick(encoder: Any, inputs: Any, output: Any) -> Any:
        output["last_hidden_state"] = output["last_hidden_state"][rows, columns][:, None]
        return output

    hook = model.base_model.register_forward_hook(pick)
    try:
        yield
    finally:
        hook.remove()


def _max_length(model: Any, tokenizer: Any) -> int:
    """The longest input of the model, in pieces; families without a record are asked for their embedding table."""
    if known_family(model.config) is not None:
        return int(min(max_tokens(model.config) or MAX_LENGTH, tokenizer.model_max_length))
    length = int(min(getattr(model.config, "max_position_embeddings", MAX_LENGTH), tokenizer.model_max_length))
    for name, module in model.named_modules():
        # RoBERTa and its relatives number positions from after the padding index.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            length = min(length, module.num_embeddings - module.padding_idx - 1)
    return length


def _weights_hash(model: Any) -> str:
    """A hash of the weights."""
    import torch

    tensors = ((name, tensor.detach().cpu().reshape(-1)) for name, tensor in sorted(model.state_dict().items()))
    return digest(*(part for name, tensor in tensors for part in (name, tensor.view(torch.uint8).numpy().data)))


def _load(name: str) -> tuple[Any, Any]:
    try:
        import torch
        from safetensors import SafetensorError
        from transformers import AutoModelForMaskedLM, AutoTokenizer
    except ImportError as error:
        raise MissingExtraError("masked-language models need: pip install 'ternarybert[train]'") from error
    try:
        model, info = AutoModelForMaskedLM.from_pretrained(name, dtype=torch.float32, output_loading_info=True)
        tokenizer = AutoTokenizer.from_pretrained(name)
    except ValueError as error:  # an architecture without a masked-language-model head
        raise UnsupportedModelError(f"{name} is not a masked-language model: {_first_line(error)}") from error
    except (OSError, SafetensorError) as error:
        raise HubError(f"cannot load {name} ({_first_line(error)}); give a model folder or a Hub id") from error
    _require_head(name, info["missing_keys"])
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):  # transformers makes up an empty tokenizer
        raise UnsupportedModelError(f"{name} has no tokenizer; copy tokenizer.json from the model it was trained from")
    if not getattr(tokenizer, "is_fast", False):
        raise UnsupportedModelError(f"the tokenizer of {name} does not report character offsets; use another model")
    return model, tokenizer


def _move(model: Any, device: str) -> Any:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:  # torch was built without it, or there is no such device
        raise RecipeError(f"cannot use device '{device}': {_first_line(error)}") from error


def _require_head(name: str, missing: set[str]) -> None:
    """Reject a checkpoint without a head; transformers would initialize a random one."""
    if missing:
        raise UnsupportedModelError(
            f"{name} has no masked-language-model head ({sorted(missing)[0]} is missing); "
            "use a pre-trained model, or the word embeddings of this one (--embeddings)"
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
