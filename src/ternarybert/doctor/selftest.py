"""The engine against what it must compute, bit for bit, with every kernel; and how fast it is here.

The model goes through a folder on disk, as a user's would, so that reading is tested along.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ternarybert import packed
from ternarybert.doctor.model import MINILM, SMALL, VOCABULARY, random_model
from ternarybert.runtime.build import network_of
from ternarybert.runtime.engine import Engine, kernels
from ternarybert.runtime.network import Batch, Network, Output
from ternarybert.runtime.oracle import Oracle

LENGTHS = (1, 17, 64, 5)  # of sequences; an odd number of tokens meets the ends of vector loops
_SPEED_LENGTHS = (64,) * 8
_OUTPUTS = (Output.HIDDEN, Output.LOGITS)


def wrong_kernels() -> Iterator[str]:
    """Name every kernel whose bits are not the oracle's, and say what differs."""
    batch = _batch(LENGTHS)
    for packing in ("plain", "dense"):
        network = _through_disk(packing)
        wanted = {output: Oracle(network).run(batch, output) for output in _OUTPUTS}
        for kernel in kernels():
            for threads in (1, 2):
                with Engine(network, num_threads=threads, kernel=kernel) as engine:
                    different = [o for o in _OUTPUTS if not np.array_equal(engine.run(batch, o), wanted[o])]
                if different:
                    names = ", ".join(output.name.casefold() for output in different)
                    yield f"kernel {kernel} with {threads} threads gives other {names} than NumPy ({packing} packing)"


def speed(threads: int, seconds: float = 1.0) -> dict[str, Any]:
    """Tokens a second of a model of MiniLM's shape, eight sequences of 64 tokens at a time."""
    network, batch = network_of(random_model(MINILM)), _batch(_SPEED_LENGTHS)
    with Engine(network, num_threads=threads) as engine:
        engine.run(batch, Output.LOGITS)  # warms up
        runs, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < seconds or not runs:
            engine.run(batch, Output.LOGITS)
            runs += 1
        return {"kernel": engine.kernel, "threads": threads, "tokens per second": round(runs * len(batch.ids) / spent)}


def _through_disk(packing: str) -> Network:
    with TemporaryDirectory() as place:
        folder = Path(place) / "model"
        packed.write(folder, random_model(SMALL, packing))
        return network_of(_in_memory(packed.read(folder)))


def _in_memory(model: packed.PackedModel) -> packed.PackedModel:
    """Copies in place of views of the file, which is about to go (where files in use cannot be removed: at all)."""
    from dataclasses import replace

    tensors: dict[str, Any] = {
        name: replace(t, codes=t.codes.copy(), scale=t.scale.copy()) if isinstance(t, packed.PackedTensor) else t.copy()
        for name, t in model.tensors.items()
    }
    return replace(model, tensors=tensors)


def _batch(lengths: tuple[int, ...]) -> Batch:
    rng = np.random.default_rng(1)
    return Batch.of([rng.integers(0, VOCABULARY, n, dtype=np.int32) for n in lengths])
