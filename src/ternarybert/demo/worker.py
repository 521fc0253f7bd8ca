"""One model in its own process: runs sentences one by one and measures the time.

Started by `measure.py` as `python -m ternarybert.demo.worker ENGINE FOLDER`; the protocol is in `bench/process.py`. The
student's process does not import torch, as in production.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from ternarybert.bench.process import Handler, Reply, resident_memory, serve

RunText = Callable[[str], Any]


def load_native(folder: str) -> RunText:
    """Load a packed folder into the native engine, with one thread."""
    from ternarybert.runtime import load

    return load(folder, num_threads=1).logits


def load_torch(folder: str) -> RunText:
    """Load a plain folder into torch as transformers does, with one thread."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()

    def run_text(text: str) -> Any:
        with torch.inference_mode():
            return model(**tokenizer(text, return_tensors="pt", truncation=True)).logits

    return run_text


LOADERS = {"native": load_native, "torch": load_torch}


def time_round(run_text: RunText, sentences: list[str]) -> dict[str, float]:
    """Milliseconds per sentence, from text to scores: wall time and CPU time."""
    wall, cpu = time.perf_counter(), time.process_time()
    for sentence in sentences:
        run_text(sentence)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"ms": 1e3 * wall / len(sentences), "cpu_ms": 1e3 * cpu / len(sentences)}


def main(engine: str, folder: str) -> None:
    """Serve a model until the input ends."""

    def prepare() -> tuple[Reply, Handler]:
        run_text = LOADERS[engine](folder)

        def handle(request: dict[str, Any]) -> Reply:
            return {**time_round(run_text, request["sentences"]), "memory": resident_memory()}

        return {"ready": True}, handle

    serve(prepare)


if __name__ == "__main__":
    main(*sys.argv[1:])
