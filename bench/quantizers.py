"""Measure the throughput of the quantizers on matrices of BERT-base.

Times are medians. They are compared with the time to read the matrix twice from memory, measured in the same rounds,
because a quantizer must read every weight at least twice: for the scale and for the codes.

    python bench/quantizers.py [--threads N] [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from ternarybert.quantize import LAYER, ROW, TENSOR, TOKEN, Granularity
from ternarybert.quantize import quantize_laq as laq
from ternarybert.quantize import quantize_minmax as minmax
from ternarybert.quantize import quantize_symmetric as symmetric
from ternarybert.quantize import ternarize_lat as lat
from ternarybert.quantize import ternarize_twn as twn

SHAPES = {"W1 768x3072": (768, 3072), "embedding 30522x768": (30522, 768)}


def read_twice(w: Tensor) -> None:
    w.sum()
    w.sum()


def jobs(w: Tensor) -> dict[str, Callable[[], object]]:
    v = torch.rand_like(w) * 1e-8

    def both(name: str, run: Callable[[Granularity], object]) -> dict[str, Callable[[], object]]:
        return {f"{name} layer": lambda: run(LAYER), f"{name} row": lambda: run(ROW)}

    return {
        "read twice": lambda: read_twice(w),
        **both("TWN", lambda g: twn(w, g)),
        **both("TWN exact", lambda g: twn(w, g, exact=True)),
        **both("LAT", lambda g: lat(w, v, g)),
        **both("LAT exact", lambda g: lat(w, v, g, exact=True)),
        **both("LAQ 3 bits", lambda g: laq(w, v, 3, g)),
        **both("symmetric 8 bits", lambda g: symmetric(w, 8, g)),
        "min-max 8 bits tensor": lambda: minmax(w, 8, TENSOR),
        "min-max 8 bits token": lambda: minmax(w, 8, TOKEN),
    }


def measure(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each job; jobs take turns, so that a slow moment of the machine affects all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for round_number in range(rounds + 1):
        for name, job in work.items():
            begin = time.perf_counter()
            job()
            if round_number:  # the first round is a warm-up
                seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {options.threads} threads, medians of {options.rounds} rounds, float32")
    for title, shape in SHAPES.items():
        w = torch.randn(shape) * 0.04
        result = measure(jobs(w), options.rounds)
        baseline = result["read twice"]
        print(f"\n{title:24} {'ms':>9} {'M weights/s':>12} {'x read twice':>13}")
        for name, seconds in result.items():
            print(f"{name:24} {seconds * 1e3:9.2f} {w.numel() / seconds / 1e6:12.0f} {seconds / baseline:13.2f}")


if __name__ == "__main__":
    main()
