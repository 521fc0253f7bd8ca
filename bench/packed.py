"""What loading BERT-base costs, packed and as float32: seconds of processor time and peak memory.

Every figure comes from a process of its own, so that nothing is warm but the disk's cache, which serves both alike.
transformers maps a float32 file and reads nothing until a weight is used, so loading is also shown with every weight
used once. Linux only: peak memory is read from /proc.

    python bench/packed.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ternarybert.families import is_quantized, is_word_embedding
from ternarybert.packed import PackedModel, PackedTensor, write
from ternarybert.packed.hf_folder import repack, write_plain
from ternarybert.recipe import PRESETS

CONFIG = {
    "architectures": ["BertForSequenceClassification"],
    "hidden_size": 768,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "vocab_size": 30522,
}
# What is measured: preparation that costs nothing, and the step itself.
STEPS = {
    "packed.read": ("from ternarybert.packed import read", "read(folder)"),
    "safetensors.numpy": (
        "from safetensors.numpy import load_file",
        "load_file(folder + '/model.safetensors')",
    ),
    "transformers": (
        "import ternarybert.hf, transformers; from transformers.models.bert import modeling_bert\n"
        "transformers.utils.logging.disable_progress_bar()",
        "transformers.AutoModelForSequenceClassification.from_pretrained(folder)",
    ),
}
STEPS["transformers, used"] = (
    STEPS["transformers"][0],
    f"[float(weight.sum()) for weight in {STEPS['transformers'][1]}.parameters()]",
)
PROGRAM = """
import json, pathlib, re, sys, time
folder = sys.argv[1]
{prepare}
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) * 1024
before, start, wall = peak(), time.process_time(), time.perf_counter()
kept = {step}
print(json.dumps([time.process_time() - start, time.perf_counter() - wall, peak() - before]))
"""


def bert_base() -> PackedModel:
    """A BERT-base of random codes."""
    rng = np.random.default_rng(0)
    tensors: dict[str, Any] = {}
    for name, shape in shapes().items():
        if is_quantized(name):
            scale = rng.random(shape[0] if is_word_embedding(name) else 1, dtype=np.float32)
            tensors[name] = PackedTensor.pack(rng.integers(-1, 2, shape, np.int8), scale, bits=2)
        else:
            tensors[name] = rng.standard_normal(shape, dtype=np.float32)
    return PackedModel(dict(CONFIG), tensors, "2-2-8", PRESETS["default"].to_dict())


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes, as Hugging Face has them."""
    hidden, wide = 768, 3072
    found: dict[str, tuple[int, ...]] = {
        "bert.embeddings.word_embeddings.weight": (30522, hidden),
        "bert.embeddings.position_embeddings.weight": (512, hidden),
        "bert.embeddings.token_type_embeddings.weight": (2, hidden),
        "bert.pooler.dense.weight": (hidden, hidden),
        "bert.pooler.dense.bias": (hidden,),
        "classifier.weight": (2, hidden),
        "classifier.bias": (2,),
    }
    norms = ["bert.embeddings.LayerNorm"]
    for layer in range(12):
        at = f"bert.encoder.layer.{layer}."
        matrices = {f"attention.{name}": (hidden, hidden) for name in ("self.query", "self.key", "self.value")}
        matrices |= {"attention.output.dense": (hidden, hidden)}
        matrices |= {"intermediate.dense": (wide, hidden), "output.dense": (hidden, wide)}
        for name, shape in matrices.items():
            found |= {f"{at}{name}.weight": shape, f"{at}{name}.bias": shape[:1]}
        norms += [f"{at}attention.output.LayerNorm", f"{at}output.LayerNorm"]
    return found | {f"{norm}.{part}": (hidden,) for norm in norms for part in ("weight", "bias")}


def measure(step: str, folder: Path, runs: int = 5) -> tuple[float, float, float]:
    """Processor seconds, wall seconds and bytes of peak memory above what the imports take; the best of some runs."""
    prepare, action = STEPS[step]
    program = PROGRAM.format(prepare=prepare, step=action)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    results = []
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True, env=environment
        )
        results.append(json.loads(done.stdout.splitlines()[-1]))
    return min(r[0] for r in results), min(r[1] for r in results), min(r[2] for r in results)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folders = {name: Path(place) / name for name in ("plain", "dense", "half", "float32")}
        model = bert_base()
        write(folders["plain"], model)
        write(folders["dense"], repack(model, "dense"))
        write(folders["half"], repack(model, "dense"), half=True)
        write_plain(folders["float32"], model, tokenizer=folders["plain"])
        print(f"{'what':<20}{'folder':<10}{'file MB':>9}{'cpu s':>8}{'wall s':>8}{'peak MB':>9}{'peak / file':>13}")
        for step, folder in [
            *(("packed.read", name) for name in ("plain", "dense", "half")),
            ("safetensors.numpy", "float32"),
            *(("transformers", name) for name in ("plain", "dense", "half", "float32")),
            *(("transformers, used", name) for name in ("plain", "float32")),
        ]:
            size = (folders[folder] / "model.safetensors").stat().st_size
            cpu, wall, peak = measure(step, folders[folder])
            print(f"{step:<20}{folder:<10}{size / 1e6:9.1f}{cpu:8.3f}{wall:8.3f}{peak / 1e6:9.1f}{peak / size:13.2f}")


if __name__ == "__main__":
    main()
