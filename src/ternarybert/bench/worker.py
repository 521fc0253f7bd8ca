"""One engine in its own process: loads it, reports its memory, then times batches on request.

Started by `run.py` as `python -m ternarybert.bench.worker ENGINE FOLDER THREADS`; the protocol is in `process.py`.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from ternarybert.bench.engines import ENGINES, RunBatch
from ternarybert.bench.inputs import CHECK, TokenBatch, read_inputs
from ternarybert.bench.process import Handler, Reply, peak_memory, resident_memory, serve

_MIN_REPEATS = 3  # of a batch in a round


def main(name: str, folder: str, threads: str) -> None:
    """Serve an engine until the input ends."""
    run, engine = Path(folder), ENGINES[name]
    batches = read_inputs(run / "inputs.npz")

    def prepare() -> tuple[Reply, Handler]:
        before = resident_memory()
        run_batch = engine.load(run, int(threads))
        np.save(run / f"answers.{name}.npy", run_batch(batches[CHECK]))

        def handle(request: dict[str, Any]) -> Reply:
            milliseconds = time_batch(run_batch, batches[request["shape"]], request["seconds"])
            return {"ms": milliseconds, "peak": peak_memory() - before}

        return {"memory": resident_memory() - before}, handle

    serve(prepare)


def time_batch(run_batch: RunBatch, batch: TokenBatch, seconds: float) -> float:
    """Median milliseconds of as many runs as fit into `seconds`, after a warm-up run."""
    run_batch(batch)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < _MIN_REPEATS or time.perf_counter() < end:
        begin = time.perf_counter()
        run_batch(batch)
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


if __name__ == "__main__":
    main(*sys.argv[1:])
