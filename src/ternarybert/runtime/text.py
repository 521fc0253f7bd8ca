"""Texts to token ids with the tokenizer in the folder, without transformers.

Fast tokenizers of Hugging Face save `tokenizer.json`, complete with special tokens. Older folders have only BERT's word
list, `vocab.txt`; the same tokenizer is built from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tokenizers import AddedToken, Encoding, Tokenizer, models, normalizers, pre_tokenizers, processors

from ternarybert.errors import InputError, OptionError, PackedConfigError

Text: TypeAlias = str | tuple[str, str]

_SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


class TextEncoder:
    """A tokenizer that truncates to what the model can read."""

    def __init__(self, folder: Path, max_tokens: int, *, has_types: bool, max_length: int | None = None) -> None:
        settings = _settings(folder)
        self.tokenizer = _read_tokenizer(folder, settings)
        self._side = "left" if settings.get("truncation_side") == "left" else "right"
        # tokenizer.json often stores a truncation and a padding of some earlier use.
        self.limit(_limit(self.tokenizer, settings, max_tokens, max_length))
        self.tokenizer.no_padding()
        self.model_has_types = has_types
        self.has_types = has_types and _gives_types(settings)
        self._process = os.getpid()

    def limit(self, max_length: int) -> None:
        """Truncate texts to this many tokens from now on; call it before threads share the encoder."""
        self.max_length = max_length
        self.tokenizer.enable_truncation(max_length, strategy="longest_first", direction=self._side)

    def encode(self, texts: Sequence[Text], *, offsets: bool = False, parallel: bool = False) -> list[Encoding]:
        """Encode texts and pairs; `parallel` uses the tokenizer's threads, and is faster without `offsets`.

        A forked process has none of these threads and would wait for them.
        """
        encode = self.tokenizer.encode
        try:
            if parallel and len(texts) > 1 and self._process == os.getpid():
                return list((self.tokenizer.encode_batch if offsets else self.tokenizer.encode_batch_fast)(texts))
            # One by one the tokenizer starts no threads; with one thread none are wanted, and they break after a fork.
            return [encode(text) if isinstance(text, str) else encode(*text) for text in texts]
        except TypeError as error:
            raise InputError(_lone_surrogate(texts)) from error

    def was_truncated(self, encoding: Encoding) -> bool:
        """Whether a text was longer than the model can read."""
        return len(encoding.ids) >= self.max_length and bool(encoding.overflowing)


def as_texts(given: object) -> tuple[list[Text], bool]:
    """A list of texts and pairs, and whether the caller passed a single one.

    A string is one text and a tuple of two strings one pair; any other iterable holds several.
    """
    if isinstance(given, str):
        return [given], True
    if isinstance(given, tuple) and (pair := _pair(given)):
        return [pair], True
    if not isinstance(given, Iterable) or isinstance(given, (bytes, bytearray, Mapping)):
        raise InputError(f"expected a text, a pair of texts or a list of them, not {_show(given)}")
    return list(as_stream(given)), False


def as_stream(given: Iterable[object]) -> Iterator[Text]:
    """Texts and pairs one after the other, each checked when it is reached."""
    return (_as_text(one, index) for index, one in enumerate([given] if isinstance(given, str) else given))


def _as_text(one: object, index: int) -> Text:
    if isinstance(one, str):
        return one
    if isinstance(one, (tuple, list)) and (pair := _pair(one)):
        return pair
    raise InputError(f"input {index} is {_show(one)}; expected a text or a pair of texts")


def _pair(one: Sequence[object]) -> tuple[str, str] | None:
    if len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], str):
        return one[0], one[1]
    return None


def _show(value: object) -> str:
    return "None" if value is None else f"{value!r:.40} ({type(value).__name__})"


def _lone_surrogate(texts: Sequence[Text]) -> str:
    for text in texts:  # quoted: its index in this chunk is not its index in the input
        try:
            "".join(text).encode()
        except UnicodeEncodeError:
            return f"{text!r:.60} contains a lone surrogate, as in an emoji cut in two"
    return "the tokenizer does not accept these texts"


def _gives_types(settings: dict[str, Any]) -> bool:
    """Whether transformers' tokenizer of this folder gives token types, as the model saw them in training."""
    names = settings.get("model_input_names")
    if isinstance(names, list):
        return "token_type_ids" in names
    # Without a class it is the family's own; generic ones, such as PreTrainedTokenizerFast, give no types.
    return str(settings.get("tokenizer_class", "Bert")).startswith(("Bert", "Electra"))


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PackedConfigError(f"{path} is not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise PackedConfigError(f"{path} is not a JSON object")
    return settings


def _read_tokenizer(folder: Path, settings: dict[str, Any]) -> Tokenizer:
    whole, words = folder / "tokenizer.json", folder / "vocab.txt"
    try:
        if whole.is_file():
            return Tokenizer.from_file(str(whole))
        if words.is_file():
            return _wordpiece(words, settings)
    except Exception as error:  # the library raises nothing narrower
        reason = str(error).split("\n")[0]
        raise PackedConfigError(f"cannot read the tokenizer of {folder}: {reason}") from error
    raise PackedConfigError(f"{folder} has no tokenizer.json; copy it from the model that the folder was made from")


def _wordpiece(words: Path, settings: dict[str, Any]) -> Tokenizer:
    """BERT's tokenizer from its word list, as transformers builds it."""
    names = {kind: _special(settings, kind, usual) for kind, usual in _SPECIAL.items()}
    vocabulary = {word: i for i, word in enumerate(words.read_text(encoding="utf-8").rstrip("\n").split("\n"))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=names["unk"], max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=bool(settings.get("do_lower_case", True)),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    cls, sep = names["cls"], names["sep"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    known = [AddedToken(name, special=True, normalized=False) for name in names.values() if name in vocabulary]
    tokenizer.add_special_tokens(known)
    return tokenizer


def _special(settings: dict[str, Any], kind: str, usual: str) -> str:
    token = settings.get(f"{kind}_token", usual)
    return str(token.get("content", usual) if isinstance(token, dict) else token)


def _limit(tokenizer: Tokenizer, settings: dict[str, Any], max_tokens: int, max_length: int | None) -> int:
    if max_length is None:
        longest = settings.get("model_max_length")
        return min(max_tokens, int(longest)) if isinstance(longest, (int, float)) and longest >= 1 else max_tokens
    least = tokenizer.num_special_tokens_to_add(True) + 2  # one token of each of two texts
    if not least <= max_length <= max_tokens:
        raise OptionError(f"max_length is {max_length}; this model supports {least} to {max_tokens} tokens")
    return max_length
