"""Exported models in the engines that they are for: size, agreement with our answers, milliseconds beside ours.

    pip install 'ternarybert[export]' openvino
    python bench/exports.py TEXTS FOLDER... [--base] [--texts 500] [--rounds 5] [--json exports.json]

Every FOLDER, a packed classifier or embedder, is exported as ONNX (2 bits and int8) and GGUF. Each file answers the
first texts of TEXTS (one a line, of at least 4 words). ONNX Runtime and OpenVINO get our tokens in batches of 8;
llama.cpp reads one text at a time, as its server does. Then all engines run the same texts one by one on one thread,
by turns; the time of a text is the median over the rounds of the mean. `--base` adds an embedder of BERT-base's shape
with random weights and the tokenizer of the first FOLDER.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ternarybert
from ternarybert import packed
from ternarybert.bench.random_model import SHAPES, packed_model, random_weights
from ternarybert.export import agreement, export_model
from ternarybert.families import HeadKind
from ternarybert.packed.hf_folder import tokenizer_files
from ternarybert.runtime.model import Model
from ternarybert.runtime.network import Floats

TIMED = 50  # texts of a round
Run = Callable[[list[str]], Floats]


def openvino_rows(path: Path, model: Model) -> Run:
    """What OpenVINO answers with an ONNX file."""
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_NUM_THREADS": 1})
    request = compiled.create_infer_request()
    names = {name for one in compiled.inputs for name in one.names}
    last = compiled.output(len(compiled.outputs) - 1)

    def run(texts: list[str]) -> Floats:
        parts = []
        for start in range(0, len(texts), 8):
            feed = agreement.padded(model, texts[start : start + 8])
            found = request.infer({name: array for name, array in feed.items() if name in names})
            parts.append(np.array(found[last], np.float32))
        return np.concatenate(parts)

    return run


def sides(folder: Path, model: Model, texts: list[str], out: Path) -> dict[str, tuple[int, Run]]:
    """Every exported file in its engines: its size, and a function from texts to rows."""
    found: dict[str, tuple[int, Run]] = {}
    for one in export_model(folder, "onnx", output=out, texts=texts[:20], force=True):
        variant = one.path.stem.removeprefix("model_")
        session = agreement.OnnxModel(one.path, model)
        found[f"{variant}, ONNX Runtime"] = one.size, session.rows
        found[f"{variant}, OpenVINO"] = one.size, openvino_rows(one.path, model)
    (one,) = export_model(folder, "gguf", output=out, texts=texts[:20], force=True)
    found[f"{one.path.stem.rpartition('-')[2]}, llama.cpp"] = one.size, agreement.LlamaModel(one.path, model).rows
    return found


def measure(folder: Path, texts: list[str], rounds: int, out: Path) -> list[dict[str, Any]]:
    """The rows of a folder's table; ours is the first."""
    with ternarybert.load(folder, num_threads=1) as model:
        others = sides(folder, model, texts, out)
        weights = next(folder.glob("ternarybert.safetensors")).stat().st_size
        rows: list[dict[str, Any]] = [{"side": "ternarybert", "bytes": weights}]
        for side, (size, run) in others.items():
            found = agreement.compare(model, texts, run(texts))
            rows.append({"side": side, "bytes": size, "same": found.same, "cosine": found.cosine, "error": found.error})
        runs: list[Run] = [lambda given: agreement.our_rows(model, given), *(run for _, run in others.values())]
        times = time_by_turns(runs, texts[:TIMED], rounds)
    return [{"model": folder.name, **row, "ms": ms} for row, ms in zip(rows, times, strict=True)]


def time_by_turns(runs: list[Run], texts: list[str], rounds: int) -> list[float]:
    """Milliseconds of a text for each side: the median over rounds of the mean."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds + 1):
        for run, seen in zip(runs, times, strict=True):
            begun = time.perf_counter()
            for text in texts:
                run([text])
            seen.append(1e3 * (time.perf_counter() - begun) / len(texts))
    return [statistics.median(seen[1:]) for seen in times]  # the first round warms up


def write_base(folder: Path, like: Path) -> Path:
    """An embedder of BERT-base's shape: random weights, mean pooling."""
    shape, kind = SHAPES["base"], HeadKind.NONE
    model = packed_model(shape, random_weights(shape, kind), kind)
    pooling = {"word_embedding_dimension": shape.hidden, "pooling_mode_mean_tokens": True}
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate(modules)
    ]
    extra: dict[str, Any] = {
        **tokenizer_files(like),
        "modules.json": json.dumps(listed).encode(),
        "1_Pooling/config.json": json.dumps(pooling).encode(),
    }
    packed.write(folder, model, extra_files=extra)
    return folder


def show(rows: list[dict[str, Any]]) -> None:
    """The measurements as a table."""
    print("\n| model | file, engine | MB | agreement with ours | ms | of ours |\n|---|---|---|---|---|---|")
    ours = {row["model"]: row["ms"] for row in rows if row["side"] == "ternarybert"}
    for row in rows:
        same, cosine = row.get("same"), row.get("cosine")
        agrees = "-" if row["side"] == "ternarybert" else f"{same:.1%} of labels" if cosine is None else f"{cosine:.4f}"
        share = row["ms"] / ours[row["model"]]
        print(
            f"| {row['model']} | {row['side']} | {row['bytes'] / 1e6:.2f} | {agrees} | {row['ms']:.2f} | {share:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--base", action="store_true", help="also a random embedder of BERT-base's shape")
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lines = options.sentences.read_text(encoding="utf-8").splitlines()
    # Spread over the whole file, which may be sorted by where the texts come from.
    known = list(dict.fromkeys(line.strip() for line in lines if len(line.split()) >= 4))
    texts = known[:: max(1, len(known) // options.texts)][: options.texts]
    rows = []
    with tempfile.TemporaryDirectory() as made:
        folders = [*options.folders, *([write_base(Path(made) / "base", options.folders[0])] if options.base else [])]
        for folder in folders:
            rows += measure(folder, texts, options.rounds, Path(made) / f"{folder.name}-exported")
            show(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
