"""A run as one value: what `--json` prints and the chart draws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ternarybert import _native, packed
from ternarybert.bench.inputs import lengths_of
from ternarybert.bench.peers import OURS
from ternarybert.bench.run import Plan, Timing, ratios
from ternarybert.bench.shape import Shape, products
from ternarybert.runtime.engine import peak_gmacs


def make_report(timings: Sequence[Timing], folder: Path, plan: Plan) -> dict[str, Any]:
    """Times, ratios, and what share of the machine's peak ours reaches."""
    config = packed.read(folder).config
    shape = Shape(
        *(int(config[key]) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"))
    )
    ours = next((timing.ms for timing in timings if timing.name == OURS), {})
    longest = int(config["max_position_embeddings"])
    return {
        "model": f"{shape.layers} layers x {shape.hidden}",
        "cpu": f"{_native.cpu_name()} ({', '.join(sorted(_native.cpu_features()))})",
        "kernel": plan.kernel,
        "threads": plan.threads,
        "rounds": plan.rounds,
        "batches": list(plan.shapes),
        "engines": [
            {
                **{key: getattr(timing, key) for key in ("name", "ms", "rounds", "error", "memory", "peak", "failed")},
                "ratios": {name: ratios(timings, name).get(timing.name) for name in timing.ms},
            }
            for timing in timings
        ],
        "gmacs": {name: products(shape, lengths_of(name, longest)) / ms / 1e6 for name, ms in ours.items()},
        "peak_gmacs": peak_gmacs(plan.kernel) * plan.threads,
    }
