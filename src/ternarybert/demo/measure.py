"""Measure teacher and student side by side: accuracy on unseen rows, bytes, milliseconds, memory.

The teacher runs in torch and the student in the native engine, as users would run them. For time and memory each has
its own process with one thread, `python -m ternarybert.demo.measure ENGINE FOLDER`; they take turns, so that a slow
moment of the machine affects both. The protocol is in `bench/process.py`. The student's process does not import torch,
as in production, so this module imports little.
"""

from __future__ import annotations

import csv
import math
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.bench.process import Handler, Reply, WorkerProcess, resident_memory, serve
from ternarybert.errors import DemoError

if TYPE_CHECKING:
    from ternarybert.demo.demo import DemoFolder, DemoPlan

OnProgress = Callable[[str], None]  # receives what is being done
RunText = Callable[[str], Any]
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TERNARYBERT_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}


def measure(demo: DemoFolder, plan: DemoPlan, on_progress: OnProgress = lambda _: None) -> dict[str, Any]:
    """Return everything that the final table shows."""
    from ternarybert import packed
    from ternarybert.packed.inspect import inspect_model

    sizes = inspect_model(packed.read(demo.ternary))
    on_progress("scoring both models on unseen rows")
    teacher, student, shared = _scores(demo)
    on_progress("timing both models in turns, one thread each")
    times = time_models({"torch": demo.teacher, "native": demo.ternary}, _sentences(demo.test, plan), plan.rounds)
    return {
        "teacher": teacher | {"bytes": sizes.float32_bytes} | times["torch"],
        "student": student | {"bytes": sizes.bytes} | times["native"],
        **shared,
    }


def time_models(folders: dict[str, Path], sentences: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Time models in turns: milliseconds per sentence and memory, medians over the rounds, by engine."""
    measured: dict[str, list[Reply]] = {engine: [] for engine in folders}
    with ExitStack() as stack:
        workers = {}
        for engine, folder in folders.items():
            arguments = ("ternarybert.demo.measure", engine, str(folder))
            workers[engine] = stack.enter_context(WorkerProcess(*arguments, environment=_ONE_THREAD))
            _checked(engine, workers[engine].receive())
            _checked(engine, workers[engine].request(sentences=sentences))  # warm-up
        for _ in range(rounds):
            for engine, worker in workers.items():
                measured[engine].append(_checked(engine, worker.request(sentences=sentences)))
    return {
        engine: {name: statistics.median(reply[name] for reply in replies) for name in replies[0]}
        for engine, replies in measured.items()
    }


def _checked(engine: str, reply: Reply) -> Reply:
    if "failed" in reply:
        raise DemoError(f"timing the {engine} model failed: {reply['failed']}")
    return reply


def _scores(demo: DemoFolder) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    from ternarybert.data import load_table
    from ternarybert.runtime.evaluate import evaluate as evaluate_native
    from ternarybert.runtime.evaluate import label_names
    from ternarybert.training.evaluate import evaluate as evaluate_torch

    data = load_table(None, demo.test, labels=label_names(demo.ternary))
    teacher, student = evaluate_torch(demo.teacher, data), evaluate_native(demo.ternary, data)
    share = student["scores"]["accuracy"] / 100
    shared = {
        "rows": student["rows"],
        "standard_error": 100 * math.sqrt(share * (1 - share) / student["rows"]),
        "kernel": student["versions"]["kernel"],
        "versions": teacher["versions"],
    }
    return {"accuracy": teacher["scores"]["accuracy"]}, {"accuracy": student["scores"]["accuracy"]}, shared


def _sentences(path: Path, plan: DemoPlan) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)][: plan.sentences]


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


def serve_model(engine: str, folder: str) -> None:
    """Serve a model until the input ends."""

    def prepare() -> tuple[Reply, Handler]:
        run_text = LOADERS[engine](folder)

        def handle(request: dict[str, Any]) -> Reply:
            return {**time_round(run_text, request["sentences"]), "memory": resident_memory()}

        return {"ready": True}, handle

    serve(prepare)


if __name__ == "__main__":
    serve_model(*sys.argv[1:])
