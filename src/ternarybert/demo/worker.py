"""One model in a process of its own: answers sentences one by one and says how long that took.

Started by `measure.py` as `python -m ternarybert.demo.worker ENGINE FOLDER`. The first line of standard input is the
list of sentences as JSON; every line after that asks for a round. Answers are lines of JSON. The student's process
imports no torch, as it would in use.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

Answer = Callable[[str], Any]


def load_native(folder: str) -> Answer:
    """A packed folder, run by the native engine on one thread."""
    from ternarybert.runtime import load

    return load(folder, num_threads=1).logits


def load_torch(folder: str) -> Answer:
    """A plain folder, run by torch on one thread, as transformers loads it."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()

    def answer(text: str) -> Any:
        with torch.inference_mode():
            return model(**tokenizer(text, return_tensors="pt", truncation=True)).logits

    return answer


ENGINES = {"native": load_native, "torch": load_torch}


def time_round(answer: Answer, sentences: list[str]) -> dict[str, float]:
    """Milliseconds per sentence, from text to scores: by the clock, and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    for sentence in sentences:
        answer(sentence)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"ms": 1e3 * wall / len(sentences), "cpu_ms": 1e3 * cpu / len(sentences)}


def serve(engine: str, folder: str, answers: TextIO) -> None:
    """Answer requests until there are no more."""
    import psutil

    sentences = json.loads(sys.stdin.readline())
    answer = ENGINES[engine](folder)
    time_round(answer, sentences)  # warms up
    _say(answers, {"ready": True})
    for _ in sys.stdin:
        _say(answers, {**time_round(answer, sentences), "memory": psutil.Process().memory_info().rss})


def _say(answers: TextIO, value: dict[str, Any]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


if __name__ == "__main__":
    # What libraries print goes to standard error, not between the answers.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.argv[2], channel)
