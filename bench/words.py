"""Milliseconds per sentence, from text to entities: the native engine beside ONNX Runtime.

Both sides read one sentence at a time with the same tokenizer and join the same tags to entities; ONNX Runtime runs
MODEL.onnx as it is. Sides take turns, and medians over the turns are compared.

    pip install 'ternarybert[bench]'
    python bench/words.py FOLDER MODEL.onnx SENTENCES.txt [--sentences 200] [--threads 1] [--rounds 9]

FOLDER is a packed tagger, SENTENCES.txt has a sentence a line.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np

import ternarybert
from ternarybert.runtime.model import Tagger
from ternarybert.runtime.results import Tags

Side: TypeAlias = Callable[[str], Tags]


def onnxruntime_side(path: Path, ours: Tagger, threads: int) -> Side:
    """ONNX Runtime with our tokenizer."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}

    def tag(sentence: str) -> Tags:
        [encoding] = ours.text.encode([sentence], offsets=True)
        ids = np.array([encoding.ids], np.int64)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        [logits] = session.run(None, {name: value for name, value in given.items() if name in names})
        tags: Tags = ours.prediction(sentence, encoding, logits[0])
        return tags

    return tag


def milliseconds(side: Side, sentences: list[str]) -> float:
    """Average time per sentence."""
    begin = time.perf_counter()
    for sentence in sentences:
        side(sentence)
    return 1e3 * (time.perf_counter() - begin) / len(sentences)


def main() -> None:
    """Measure, and print a line for each side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("onnx", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    sentences = options.texts.read_text(encoding="utf-8").splitlines()[: options.sentences]
    with ternarybert.load(options.folder, num_threads=options.threads) as model:
        if not isinstance(model, Tagger):
            raise SystemExit(f"{options.folder} labels no words")
        sides: dict[str, Side] = {
            "ternary, native": model.predict,
            "onnxruntime": onnxruntime_side(options.onnx, model, options.threads),
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(options.rounds + 1):
            for name, side in sides.items():
                took = milliseconds(side, sentences)
                if turn:  # the first one warms up
                    times[name].append(took)
        words = statistics.mean(len(model.predict(sentence).words) for sentence in sentences)
    print(f"{len(sentences)} sentences of {words:.0f} words on average, {options.threads} threads")
    for name, each in times.items():
        print(f"{name}: {statistics.median(each):.2f} ms per sentence ({min(each):.2f} to {max(each):.2f})")
    ours, theirs = times.values()
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    print(f"onnxruntime / ternary: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
