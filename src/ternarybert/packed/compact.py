"""What a packed folder can do without, for models that travel: unused positions, and a tokenizer stored twice.

`trim_positions` drops the positions behind the longest text that will be read: MiniLM has 512 and reads 256, so half of
the largest float table is never used. `compact_tokenizer` replaces BERT's tokenizer.json, which repeats the word list
in JSON, by the word list itself and its settings: 0.23 MB instead of 0.47 to 0.70. Both keep every answer as it is, up
to that length.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ternarybert.errors import OptionError, UnsupportedModelError
from ternarybert.families import family_of
from ternarybert.packed.folder import find_file, load_object, reading
from ternarybert.packed.model import PackedModel
from ternarybert.packed.tensor import PackedTensor

_SPECIAL = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}


def trim_positions(model: PackedModel, tokens: int) -> PackedModel:
    """The model with positions for this many tokens."""
    family = family_of(model.config)
    name = f"{family.prefix(model.tensors)}{family.position_embedding}.weight"
    table, first = model.tensors[name], family.first_position(model.config)
    if isinstance(table, PackedTensor):
        raise UnsupportedModelError(f"'{name}' is packed; its positions cannot be trimmed")
    if not 1 <= tokens <= len(table) - first:
        raise OptionError(
            f"the model has positions for {len(table) - first} tokens; they cannot be trimmed to {tokens}"
        )
    config = {**model.config, "max_position_embeddings": tokens + first}
    return replace(model, config=config, tensors={**model.tensors, name: table[: tokens + first]})


def compact_tokenizer(folder: str | Path) -> dict[str, bytes]:
    """The files of a BERT tokenizer without tokenizer.json; one of another kind is refused."""
    root = Path(folder)
    with reading(root):
        whole = load_object(root, "tokenizer.json")
        settings = load_object(root, "tokenizer_config.json") if find_file(root, "tokenizer_config.json") else {}
    model, normalizer = whole.get("model") or {}, whole.get("normalizer") or {}
    words = sorted(model.get("vocab", {}), key=lambda word: model["vocab"][word])
    usual = (
        model.get("type") == "WordPiece"
        and model.get("continuing_subword_prefix") == "##"
        and model.get("max_input_chars_per_word", 100) == 100
        and normalizer.get("type") == "BertNormalizer"
        and normalizer.get("clean_text", True)
        and (whole.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
        and [model["vocab"][word] for word in words] == list(range(len(words)))
        and all(model["vocab"].get(token["content"]) == token["id"] for token in whole.get("added_tokens", ()))
        and set(_SPECIAL.values()) <= set(words)
    )
    if not usual:
        raise UnsupportedModelError(f"the tokenizer of {folder} is not BERT's, so tokenizer.json has to stay")
    return {"vocab.txt": ("\n".join(words) + "\n").encode(), "tokenizer_config.json": _settings(settings, normalizer)}


def _settings(settings: Mapping[str, Any], normalizer: Mapping[str, Any]) -> bytes:
    kept = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": bool(normalizer.get("lowercase", True)),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": bool(normalizer.get("handle_chinese_chars", True)),
        "model_max_length": settings.get("model_max_length", 512),
    }
    return json.dumps(kept | {f"{kind}_token": token for kind, token in _SPECIAL.items()}).encode()
