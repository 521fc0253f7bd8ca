"""One engine in its own process: loads, says that it is ready, and times what it is told to.

Started by `run.py` as `python -m ternarybert.bench.worker ENGINE FOLDER THREADS`. Requests and answers are lines of
JSON; what engines print themselves goes to standard error.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ternarybert.bench.inputs import CHECK, Tokens, read_inputs
from ternarybert.bench.peers import PEERS, Run

_LEAST = 3  # repeats of a batch in a round


def main(name: str, folder: str, threads: str) -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run, peer = Path(folder), PEERS[name]
    batches = read_inputs(run / "inputs.npz")
    try:
        before = _memory()
        call = peer.load(run, int(threads))
        np.save(run / f"answers.{name}.npy", call(batches[CHECK]))
    except Exception as error:  # whatever a foreign engine raises is a line in the table
        _say(answers, {"failed": f"{type(error).__name__}: {error}".split("\n")[0][:300]})
        return
    _say(answers, {"ready": True, "memory": _memory() - before})
    for line in sys.stdin:
        request = json.loads(line)
        _say(
            answers,
            {"ms": time_batch(call, batches[request["shape"]], request["seconds"])} | {"peak": _peak() - before},
        )


def time_batch(call: Run, tokens: Tokens, seconds: float) -> float:
    """The median of as many runs as fit, after one that warms up."""
    call(tokens)
    spent: list[float] = []
    end = time.perf_counter() + seconds
    while len(spent) < _LEAST or time.perf_counter() < end:
        begin = time.perf_counter()
        call(tokens)
        spent.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(spent)


def _say(answers: TextIO, value: dict[str, Any]) -> None:
    print(json.dumps(value), file=answers, flush=True)


def _memory() -> int:
    """Bytes of this process that are in memory, where the system tells."""
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(field: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:")), 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
