"""Teacher and student side by side: accuracy on rows that chose nothing, bytes, milliseconds, memory.

The teacher runs in torch and the student in the native engine, as users would run them. For time and memory each has a
process of its own with one thread; they take turns, so that a slow moment of the machine hits both.
"""

from __future__ import annotations

import csv
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from ternarybert.demo.demo import Place, Plan
from ternarybert.errors import DemoError

Tell = Callable[[str], None]
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TERNARYBERT_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}


def measure(place: Place, plan: Plan, tell: Tell = lambda _: None) -> dict[str, Any]:
    """Everything the closing table shows."""
    from ternarybert import packed
    from ternarybert.packed.inspect import inspect_model

    sizes = inspect_model(packed.read(place.ternary))
    tell("scoring both on rows that neither has seen")
    teacher, student, shared = _scores(place)
    tell("timing both, one thread each, by turns")
    times = _times(place, plan)
    return {
        "teacher": teacher | {"bytes": sizes.float32_bytes} | times["torch"],
        "student": student | {"bytes": sizes.bytes} | times["native"],
        **shared,
    }


def _scores(place: Place) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    from ternarybert.data import load_table
    from ternarybert.runtime.evaluate import evaluate as natively
    from ternarybert.runtime.evaluate import label_names
    from ternarybert.training.evaluate import evaluate as with_torch

    data = load_table(None, place.test, labels=label_names(place.ternary))
    teacher, student = with_torch(place.teacher, data), natively(place.ternary, data)
    share = student["scores"]["accuracy"] / 100
    shared = {
        "rows": student["rows"],
        "standard_error": 100 * math.sqrt(share * (1 - share) / student["rows"]),
        "kernel": student["versions"]["kernel"],
        "versions": teacher["versions"],
    }
    return {"accuracy": teacher["scores"]["accuracy"]}, {"accuracy": student["scores"]["accuracy"]}, shared


def _times(place: Place, plan: Plan) -> dict[str, dict[str, float]]:
    """Medians of the rounds, by engine."""
    sentences = _sentences(place.test, plan.sentences)
    rounds: dict[str, list[dict[str, float]]] = {"torch": [], "native": []}
    with ExitStack() as stack:
        workers = {
            "torch": stack.enter_context(Worker("torch", place.teacher, sentences)),
            "native": stack.enter_context(Worker("native", place.ternary, sentences)),
        }
        for _ in range(plan.rounds):
            for engine, worker in workers.items():
                rounds[engine].append(worker.round())
    return {engine: {name: _median(found, name) for name in found[0]} for engine, found in rounds.items()}


def _median(rounds: list[dict[str, float]], name: str) -> float:
    return statistics.median(one[name] for one in rounds)


def _sentences(path: Path, count: int) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)][:count]


class Worker:
    """A model in its own process, warm when the `with` begins."""

    def __init__(self, engine: str, folder: Path, sentences: list[str]) -> None:
        self.engine, self.sentences = engine, sentences
        self.log = TemporaryFile()  # noqa: SIM115  closed with the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ternarybert.demo.worker", engine, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, **_ONE_THREAD},
        )

    def round(self) -> dict[str, float]:
        """Milliseconds per sentence by the clock and of the processor, and bytes of memory."""
        return self._ask("")

    def _ask(self, line: str) -> dict[str, float]:
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):  # what it said last tells why
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            self.process.wait()
            self.log.seek(0)
            last = self.log.read().decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise DemoError(f"the {self.engine} process ended while it was timed: {last[0]}")
        value: dict[str, float] = json.loads(answer)
        return value

    def __enter__(self) -> Worker:
        try:
            self._ask(json.dumps(self.sentences))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()
        self.log.close()
