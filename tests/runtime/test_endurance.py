"""One engine for a long time: nothing leaks, and many callers get what a single one gets."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ternarybert.errors import InputError
from ternarybert.runtime.engine import Engine
from ternarybert.runtime.network import Batch, Output

from .networks import make_batch, make_network

NETWORK = make_network()
LEAK = 3  # MB: in the long test, 16 bytes a call
CALLERS = 8


def memory():
    """Megabytes of the process that lie in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.linux_only("the memory of the process is read from /proc")
@pytest.mark.parametrize(("calls", "models"), [(5_000, 200), pytest.param(100_000, 2_000, marks=pytest.mark.slow)])
def test_nothing_leaks(calls, models):
    batch = make_batch(NETWORK, (3, 9))

    def use(times, engine):
        for _ in range(times):
            engine.run(batch, Output.LOGITS)
            with pytest.raises(InputError):
                engine.run(Batch(batch.lengths, batch.ids + 1000, None), Output.LOGITS)

    def make(times):
        for _ in range(times):
            Engine(NETWORK, num_threads=2).close()

    with Engine(NETWORK, num_threads=2) as engine:
        use(500, engine)
        make(50)
        before = memory()
        use(calls, engine)
        make(models)
        assert memory() < before + LEAK


@pytest.mark.slow
def test_eight_callers_for_a_minute():
    """Sequences alone and together, on a model whose calls take turns at its threads."""
    network = make_network(hidden=96, heads=4, intermediate=200, layers=3)
    batches = [make_batch(network, [seed % 60 + 1] * (seed % 5 + 1), seed) for seed in range(40)]
    with Engine(network, num_threads=1) as alone:
        expected = [alone.run(batch, Output.LOGITS).tobytes() for batch in batches]
    end = time.monotonic() + 60

    def call(first):
        answers = 0
        while time.monotonic() < end:
            which = (first + answers) % len(batches)
            assert engine.run(batches[which], Output.LOGITS).tobytes() == expected[which]
            answers += 1
        return answers

    with Engine(network, num_threads=2) as engine, ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(call, range(CALLERS)))
    assert min(answers) > len(batches)
