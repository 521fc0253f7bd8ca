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

from ternarybert.errors import InputError, OptionError, PackedConfigError, TernaryBertError
from ternarybert.packed.folder import find_file, read_file, reading

Text: TypeAlias = str | tuple[str, str]

_LONGEST_FILE = 64 << 20  # bytes; XLM-RoBERTa's tokenizer.json takes 17 MB
_MOST_IDS = 1 << 24
_PROBE = ("a \u2603", "b")  # a pair, and something that no vocabulary knows
_SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


class TextEncoder:
    """A tokenizer that truncates to what the model can read."""

    def __init__(
        self,
        folder: Path,
        max_tokens: int,
        *,
        has_types: bool,
        max_length: int | None = None,
        vocabulary: int | None = None,
    ) -> None:
        with reading(folder):
            settings = _settings(folder)
            self.tokenizer = _read_tokenizer(folder, settings, vocabulary)
        self._side = "left" if settings.get("truncation_side") == "left" else "right"
        self.limit(_limit(self.tokenizer, settings, max_tokens, max_length))
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
        except BaseException as error:
            raise _refused(error) from error

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
    name = "tokenizer_config.json"
    path = find_file(folder, name)
    return {} if path is None else _object(name, read_file(path, _LONGEST_FILE))


def _object(name: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise PackedConfigError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise PackedConfigError(f"{name} is not a JSON object")
    return value


def _read_tokenizer(folder: Path, settings: dict[str, Any], vocabulary: int | None) -> Tokenizer:
    whole, words = (find_file(folder, name) for name in ("tokenizer.json", "vocab.txt"))
    path = whole or words
    if path is None:
        raise PackedConfigError("there is no tokenizer.json; copy it from the model that the folder was made from")
    data = read_file(path, _LONGEST_FILE)
    if whole is not None:
        _check_ids(data, vocabulary)
    try:
        tokenizer = Tokenizer.from_buffer(data) if whole is not None else _wordpiece(data.decode("utf-8"), settings)
        # tokenizer.json often stores a truncation and a padding of some earlier use. As the padding may be to 10**9
        # tokens, it ends before anything is encoded.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        probe = tokenizer.encode(*_PROBE)
    except BaseException as error:
        raise _refused(error) from error
    if vocabulary is not None and (largest := max(probe.ids, default=0)) >= vocabulary:
        raise PackedConfigError(f"the tokenizer gives token id {largest}; the model has {vocabulary} tokens")
    if vocabulary is not None and whole is None:  # the ids of tokenizer.json were checked before
        largest = max(tokenizer.get_vocab().values(), default=0)
        if largest >= vocabulary:
            raise PackedConfigError(f"vocab.txt gives token id {largest}; the model has {vocabulary} tokens")
    return tokenizer


def _check_ids(data: bytes, vocabulary: int | None) -> None:
    """Refuse token ids that the model does not have, before the library makes a table up to the largest of them."""
    whole = _object("tokenizer.json", data)
    model, added = whole.get("model"), whole.get("added_tokens")
    words = model.get("vocab") if isinstance(model, dict) else None
    ids = list(words.values()) if isinstance(words, dict) else []
    ids += [token.get("id") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    limit = _MOST_IDS if vocabulary is None else vocabulary
    try:
        largest = max(ids, default=0)
    except TypeError:
        return  # not all of them are numbers, and the library says so
    if isinstance(largest, int) and largest >= limit:
        raise PackedConfigError(f"tokenizer.json has the token id {largest!r:.40}; the model has {limit} tokens")


def _refused(error: BaseException) -> BaseException:
    """The error to raise for one of the tokenizers library, which raises nothing narrower than Exception.

    Where its own code is wrong it panics, and that exception is not even an Exception.
    """
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        return error  # Ctrl-C
    if isinstance(error, (TernaryBertError, MemoryError)):
        return error
    reason = str(error).split("\n")[0]
    return PackedConfigError(f"the tokenizer cannot be used: {reason:.300}")


def _wordpiece(words: str, settings: dict[str, Any]) -> Tokenizer:
    """BERT's tokenizer from its word list, as transformers builds it."""
    names = {kind: _special(settings, kind, usual) for kind, usual in _SPECIAL.items()}
    vocabulary = {word: i for i, word in enumerate(words.rstrip("\n").split("\n"))}
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
        # Anything: many files have 10**30, and some Infinity, which JSON does not have.
        return int(min(max_tokens, longest)) if isinstance(longest, (int, float)) and longest >= 1 else max_tokens
    least = tokenizer.num_special_tokens_to_add(True) + 2  # one token of each of two texts
    if not least <= max_length <= max_tokens:
        raise OptionError(f"max_length is {max_length}; this model supports {least} to {max_tokens} tokens")
    return max_length
