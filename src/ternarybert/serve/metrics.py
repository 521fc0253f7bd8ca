"""Prometheus metrics under the names of text-embeddings-inference, summed over all worker processes.

The values are in memory that the workers share: each writes a row of its own, and whoever is asked for `/metrics` adds
the rows up. So nothing is lost when a worker dies, and no files are needed. (prometheus-client would append `_total` to
the names of counters, and dashboards for TEI would find none of them.)
"""

from __future__ import annotations

import mmap
import threading
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_COUNTS = tuple(float(1 << power) for power in range(15))

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class MetricSpec:
    """One metric: its name, what it is, and the values of its only label."""

    name: str
    kind: Kind
    help: str
    label: str | None = None
    values: tuple[str, ...] = ("",)
    buckets: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """Numbers per label value: one, or the buckets, the rest and the sum."""
        return len(self.buckets) + 2 if self.kind == "histogram" else 1


METHODS = ("single", "batch")
FAILURES = (
    "validation",
    "tokenizer",
    "backend",
    "overloaded",
    "unhealthy",
    "timeout",
    "cancelled",
    "unauthorized",
    "unknown",
)
TASKS = ("embed", "predict", "rerank", "tokenize", "ner", "qa")


def _durations(prefix: str, what: str) -> tuple[MetricSpec, ...]:
    parts = {
        "duration": f"Seconds from the complete {what} to its answer",
        "tokenization_duration": "Seconds of tokenization",
        "queue_duration": "Seconds of waiting for the engine",
        "inference_duration": "Seconds in the engine",
    }
    return tuple(MetricSpec(f"{prefix}_{name}", "histogram", text, buckets=_SECONDS) for name, text in parts.items())


def metric_specs(models: tuple[str, ...] = ()) -> tuple[MetricSpec, ...]:
    """All metrics of a server with these models."""
    return (
        MetricSpec("te_request_count", "counter", "Requests", "method", METHODS),
        MetricSpec("te_request_success", "counter", "Requests that were answered", "method", METHODS),
        MetricSpec("te_request_failure", "counter", "Requests that failed, by cause", "err", FAILURES),
        *_durations("te_request", "request"),
        *(MetricSpec(f"te_{task}_count", "counter", f"Texts for {task}") for task in TASKS),
        *(MetricSpec(f"te_{task}_success", "counter", f"Texts answered by {task}") for task in TASKS),
        *_durations("te_embed", "request for embeddings"),
        *_durations("te_predict", "request for predictions"),
        *_durations("te_rerank", "request for ranks"),
        MetricSpec("te_queue_size", "gauge", "Texts that wait for the engine"),
        MetricSpec("te_batch_next_size", "histogram", "Texts in a batch", buckets=_COUNTS),
        MetricSpec("te_batch_next_tokens", "histogram", "Tokens in a batch", buckets=_COUNTS),
        MetricSpec("tb_reload_success", "counter", "Models that were loaded again", "model", models or ("",)),
        MetricSpec("tb_reload_failure", "counter", "Models that could not be loaded again", "model", models or ("",)),
        MetricSpec("tb_worker_restarts", "counter", "Workers that ended unexpectedly and were started again"),
    )


class ServerMetrics:
    """The numbers of one worker, and the sum over all. Made before the workers are forked."""

    def __init__(self, models: tuple[str, ...] = (), rows: int = 1) -> None:
        self.specs = metric_specs(models)
        self._offsets: dict[tuple[str, str], int] = {}
        self._by_name = {spec.name: spec for spec in self.specs}
        total = 0
        for spec in self.specs:
            for value in spec.values:
                self._offsets[spec.name, value] = total
                total += spec.width
        self._memory = mmap.mmap(-1, rows * total * 8)  # shared with forked processes
        self._all = np.frombuffer(self._memory, np.float64).reshape(rows, total)
        self._row = memoryview(self._memory).cast("d")[:total]
        self._lock = threading.Lock()

    def use_row(self, row: int) -> None:
        """Write to this row from now on. What waited in the queue of the worker that had it is gone."""
        width = self._all.shape[1]
        self._row = memoryview(self._memory).cast("d")[row * width : (row + 1) * width]
        self._row[self._offsets["te_queue_size", ""]] = 0.0

    def add(self, name: str, amount: float = 1.0, label: str = "") -> None:
        """Count something, or change a gauge."""
        offset = self._offsets[name, label]
        with self._lock:
            self._row[offset] += amount

    def observe(self, name: str, value: float) -> None:
        """Add a value to a histogram."""
        buckets = self._by_name[name].buckets
        offset = self._offsets[name, ""]
        with self._lock:
            self._row[offset + bisect_left(buckets, value)] += 1
            self._row[offset + len(buckets) + 1] += value

    def value(self, name: str, label: str = "") -> float:
        """The sum of a counter or gauge over all workers."""
        return float(self._all[:, self._offsets[name, label]].sum())

    def exposition(self) -> str:
        """All metrics in Prometheus' text format."""
        sums = self._all.sum(0)
        lines: list[str] = []
        for spec in self.specs:
            lines += [f"# HELP {spec.name} {spec.help}", f"# TYPE {spec.name} {spec.kind}"]
            for value in spec.values:
                offset = self._offsets[spec.name, value]
                numbers = sums[offset : offset + spec.width].tolist()
                label = f'{{{spec.label}="{value}"}}' if spec.label else ""
                lines += (
                    _histogram(spec, numbers) if spec.kind == "histogram" else [f"{spec.name}{label} {numbers[0]:g}"]
                )
        return "\n".join(lines) + "\n"


def _histogram(spec: MetricSpec, numbers: list[float]) -> list[str]:
    counts = [int(count) for count in accumulate(numbers[:-1])]
    edges = [*(f"{edge:g}" for edge in spec.buckets), "+Inf"]
    lines = [f'{spec.name}_bucket{{le="{edge}"}} {count}' for edge, count in zip(edges, counts, strict=True)]
    return [*lines, f"{spec.name}_sum {numbers[-1]!r}", f"{spec.name}_count {counts[-1]}"]
