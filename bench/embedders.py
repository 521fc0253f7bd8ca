"""Sentence embedders side by side: size, similarity, retrieval, texts per second and memory, as a table and a picture.

| side | what it is |
|---|---|
| teacher | the float32 model in sentence-transformers |
| onnx-int8 | the same as ONNX with dynamic 8-bit weights, run by ONNX Runtime |
| ternarybert | the packed folder, native engine |
| model2vec | static vectors distilled from the same teacher by model2vec, if --static names the folder |

Every side runs in its own process, all with the same threads; sets are those of runs/minilm.py (its folder `sets`).
Static vectors are made once, best in an environment of their own, since `model2vec[distill]` asks for other versions of
transformers:

    python -c "from model2vec.distill import distill; distill('TEACHER', pca_dims=256).save_pretrained('STATIC')"
    pip install 'ternarybert[bench,train,report]' sentence-transformers model2vec
    python bench/embedders.py TEACHER FOLDER SETS [--static STATIC] [--threads 1] [--out build/embedders]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ternarybert.data.retrieval import load_retrieval
from ternarybert.embedding_evaluation import evaluate_embedder

SIDES = ("teacher", "onnx-int8", "ternarybert", "model2vec")
TIMED = 300  # texts whose speed is measured, three times
LENGTH = 256  # tokens


class OnnxEmbedder:
    """Mean pooling and normalization of an ONNX encoder, as fastembed does it."""

    def __init__(self, teacher: Path, folder: Path, threads: int) -> None:
        import onnxruntime
        from transformers import AutoTokenizer

        path = folder / "model.int8.onnx"
        if not path.exists():  # elsewhere, because exporting takes more memory than running
            subprocess.run([sys.executable, __file__, str(teacher), "-", "-", "--export", str(path)], check=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.tokenizer = AutoTokenizer.from_pretrained(teacher)

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Vectors in the order of the texts, computed in batches of similar length."""
        order = np.argsort([len(text) for text in texts], kind="stable")
        rows: list[NDArray[np.float32]] = []
        for start in range(0, len(texts), 32):
            batch = [texts[i] for i in order[start : start + 32]]
            tokens = self.tokenizer(batch, padding=True, truncation=True, max_length=LENGTH, return_tensors="np")
            [states] = self.session.run(None, {name: np.asarray(each, np.int64) for name, each in tokens.items()})
            mask = np.asarray(tokens["attention_mask"])[..., None]
            pooled = (states * mask).sum(1) / mask.sum(1)
            rows.append(pooled / np.linalg.norm(pooled, axis=1, keepdims=True))
        return np.concatenate(rows)[np.argsort(order)]

    encode_query = encode_document = encode


def export(teacher: Path, path: Path) -> None:
    """Write the encoder as ONNX with dynamic 8-bit weights."""
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel

    class States(torch.nn.Module):
        """The last hidden states alone."""

        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(teacher, attn_implementation="eager").eval()

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            """The states of the tokens."""
            inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
            return self.model(**inputs).last_hidden_state

    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = tuple(torch.ones(2, 16, dtype=torch.long) for _ in names)
    axes: Any = {name: {0: "texts", 1: "tokens"} for name in [*names, "last_hidden_state"]}
    plain = path.with_name("model.onnx")
    torch.onnx.export(
        States(),
        example,
        str(plain),
        input_names=names,
        output_names=["last_hidden_state"],  # the name that other tools look for
        dynamic_axes=axes,
        dynamo=False,
    )
    quantize_dynamic(plain, path, per_channel=True, weight_type=QuantType.QInt8)


class StaticEmbedder:
    """A model of model2vec."""

    def __init__(self, folder: Path) -> None:
        from model2vec import StaticModel

        self.model = StaticModel.from_pretrained(folder)

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Vectors of texts."""
        return np.asarray(self.model.encode(texts), np.float32)

    encode_query = encode_document = encode


def make_side(name: str, options: argparse.Namespace) -> tuple[Any, Path]:
    """An encoder, and the file or folder whose size counts."""
    if name == "ternarybert":
        import ternarybert

        return ternarybert.load(options.folder, num_threads=options.threads), options.folder
    if name == "onnx-int8":
        return OnnxEmbedder(options.teacher, options.work, options.threads), options.work / "model.int8.onnx"
    if name == "model2vec":
        return StaticEmbedder(options.static), options.static
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(options.threads)
    return SentenceTransformer(str(options.teacher), device="cpu"), options.teacher / "model.safetensors"


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about one side, in this process."""
    encoder, place = make_side(name, options)
    timed = [text[:600] for text in load_retrieval(options.sets / "squad-dev").documents[:TIMED]]
    encoder.encode(timed[:8])
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        encoder.encode(timed)
        seconds.append(time.perf_counter() - start)
    memory = peak_memory()
    sts, retrieval = [options.sets / "stsb-dev.tsv"], [options.sets / "squad-dev"]
    scores = evaluate_embedder(encoder, sts=sts, retrieval=retrieval)["sets"]
    size = sum(path.stat().st_size for path in ([place] if place.is_file() else place.rglob("*")) if path.is_file())
    return {
        "side": name,
        "mb": size / 1e6,
        "stsb": scores["sts"]["stsb-dev"]["model"]["spearman"],
        "squad": scores["retrieval"]["squad-dev"]["model"]["ndcg@10"],
        "texts_per_second": len(timed) / sorted(seconds)[1],
        "memory_mb": memory,
    }


def peak_memory() -> float:
    """The most memory that this process had so far, in MB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Quality against size, and quality against speed."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, key, label in zip(axes, ("mb", "texts_per_second"), ("size (MB)", "texts per second"), strict=True):
        for row in rows:
            axis.scatter(row[key], row["squad"])
            axis.annotate(row["side"], (row[key], row["squad"]), xytext=(5, 4), textcoords="offset points")
        axis.set_xscale("log")
        axis.set_xlabel(label)
        axis.margins(0.25)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("SQuAD question to paragraph, nDCG@10")
    figure.savefig(path)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("folder", type=Path, help="packed folder")
    parser.add_argument("sets", type=Path, help="folder with stsb-dev.tsv and squad-dev, made by runs/minilm.py")
    parser.add_argument("--static", type=Path, help="folder of model2vec")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/embedders"))
    parser.add_argument("--side", choices=SIDES, help="measure one side in this process and print JSON")
    parser.add_argument("--work", type=Path, help="folder for converted models; by default a temporary one")
    parser.add_argument("--export", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.export:
        export(options.teacher, options.export)
        return
    if options.side:
        print(json.dumps(measure(options.side, options)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as work:
        for side in SIDES:
            if side != "model2vec" or options.static is not None:
                command = [sys.executable, __file__, *sys.argv[1:], "--side", side, "--work", work]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                rows.append(json.loads(done.stdout.splitlines()[-1]))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "embedders.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    draw(rows, options.out / "embedders.svg")
    print("| model | MB | STS-B dev, Spearman | SQuAD, nDCG@10 | texts/s | memory, MB |\n|---|---|---|---|---|---|")
    for row in rows:
        figures = f"{row['mb']:.1f} | {row['stsb']:.1f} | {row['squad']:.1f} | {row['texts_per_second']:.0f}"
        print(f"| {row['side']} | {figures} | {row['memory_mb']:.0f} |")


if __name__ == "__main__":
    main()
