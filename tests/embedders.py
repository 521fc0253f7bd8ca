"""Tiny sentence embedders in the layout of sentence-transformers, packed or full-precision."""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import BertModel

from tests import tiny
from tests.runtime.folders import save_student

TEXTS = ["a good film", "the plot was dull and the acting awful", "fun", "i hated it " * 6, ""]
PROMPTS = {"query": "the film: ", "document": ""}
OLD, NEW = "sentence_transformers.models", "sentence_transformers.base.modules"


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def add_modules(
    folder: Path,
    pooling: str = "mean",
    dense: int | None = None,
    normalize: bool = True,
    max_length: int | None = 16,
    activation: str = "torch.nn.modules.activation.Tanh",
    width: int = 32,
    include_prompt: bool = True,
    settings: dict | None = None,
) -> Path:
    """Write the files of the modules, as versions before 5 do."""
    flags = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    modules += [("Dense", "2_Dense")] if dense else []
    modules += [("Normalize", f"{len(modules)}_Normalize")] if normalize else []
    listed = [{"idx": i, "name": str(i), "path": p, "type": f"{OLD}.{kind}"} for i, (kind, p) in enumerate(modules)]
    write_json(folder / "modules.json", listed)
    chosen = {f"pooling_mode_{flag}": name == pooling for name, flag in flags.items()}
    more = {} if include_prompt else {"include_prompt": False}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **chosen, **more})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    if settings is not None:
        write_json(folder / "config_sentence_transformers.json", settings)
    if dense:
        sizes = {"in_features": width, "out_features": dense, "bias": True, "activation_function": activation}
        write_json(folder / "2_Dense" / "config.json", sizes)
        numbers = np.random.default_rng(3)
        weight = numbers.normal(size=(dense, width)).astype(np.float32)
        tensors = {"linear.weight": weight, "linear.bias": numbers.normal(size=dense).astype(np.float32)}
        save_file(tensors, folder / "2_Dense" / "model.safetensors")
    return folder


def packed_embedder(folder: Path, family: str = "Bert", **modules: object) -> Path:
    """A random student without a head, packed, with modules behind it."""
    save_student(folder, "Model", family)
    return add_modules(folder, **modules)


def float_embedder(folder: Path, seed: int = 0, **modules: object) -> Path:
    """A random full-precision embedder."""
    known = tiny.tokenizer()
    torch.manual_seed(seed)
    tiny.enlarged(BertModel(tiny.config(vocab_size=len(known))), 4.0).save_pretrained(folder)
    known.save_pretrained(folder)
    return add_modules(folder, **modules)
