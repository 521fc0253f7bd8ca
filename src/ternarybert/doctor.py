"""Check an installation: versions, machine, kernels, extras, and a self-test of the native engine.

Versions come from package metadata, because importing torch takes seconds. The self-test compares every kernel with the
NumPy oracle, bit for bit, on a random model that is written to disk and read back like a user's, so that it needs no
file and no download. It also measures the speed on this machine.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import ternarybert
from ternarybert import native, packed
from ternarybert.bench.random_model import SHAPES, ModelShape, packed_model, random_weights
from ternarybert.errors import TernaryBertError
from ternarybert.native import choose_kernel, kernels
from ternarybert.packed import PackedModel
from ternarybert.runtime.engine import THREADS_VARIABLE, Engine, thread_count
from ternarybert.runtime.load import network_of
from ternarybert.runtime.network import Batch, Network, Output
from ternarybert.runtime.oracle import Oracle

_BASE = ("numpy", "tokenizers", "typer", "rich", "pyyaml")
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+).*?extra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")
_REINSTALL = "reinstall it: pip install --force-reinstall --no-deps ternarybert"

_VOCABULARY = 300
_SMALL = ModelShape(2, 64, 4, 128, vocabulary=_VOCABULARY, positions=128)
_MINILM = replace(SHAPES["mini"], vocabulary=_VOCABULARY, positions=128)
_LENGTHS = (1, 17, 64, 5)  # of sequences; an odd number of tokens tests the ends of vector loops
_SPEED_LENGTHS = (64,) * 8
_OUTPUTS = (Output.HIDDEN, Output.LOGITS)


@dataclass
class DoctorReport:
    """The state of an installation; `problems` is empty if all is well."""

    versions: dict[str, str | None] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, dict[str, str | None]] = field(default_factory=dict)
    selftest: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def examine(*, selftest: bool = True) -> DoctorReport:
    """Examine the installation; anything broken becomes a problem in the report, never an exception."""
    report = DoctorReport(versions(), machine(), extras=extras())
    missing = [name for name, version in report.versions.items() if version is None]
    report.problems += [f"{name} is missing: pip install {name}" for name in missing]
    try:
        report.engine = _engine()
        if selftest:
            report.selftest = _selftest(report)
    except TernaryBertError as error:
        report.problems.append(str(error))
    except Exception as error:  # a broken installation can raise anything
        report.problems.append(f"{type(error).__name__}: {error}; {_REINSTALL}")
    return report


def versions() -> dict[str, str | None]:
    """Versions of the package, Python and the required packages; None for what is missing."""
    here: dict[str, str | None] = {"ternarybert": ternarybert.__version__, "python": platform.python_version()}
    return here | {name: _version(name) for name in _BASE}


def extras() -> dict[str, dict[str, str | None]]:
    """The packages of every extra with their versions; None for what is missing."""
    try:
        required = metadata.requires("ternarybert") or []
    except metadata.PackageNotFoundError:  # the sources are on Python's path, but not installed
        return {}
    packages: dict[str, dict[str, str | None]] = {}
    for line in required:
        if match := _REQUIREMENT.match(line):
            packages.setdefault(match["extra"], {})[match["name"]] = _version(match["name"])
    return packages


def machine() -> dict[str, Any]:
    """The CPU and the operating system."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "cpu": native.cpu_name(),
        "usable cores": usable,
        THREADS_VARIABLE: os.environ.get(THREADS_VARIABLE),
    }


def wrong_kernels() -> Iterator[str]:
    """Describe every kernel whose outputs differ from the oracle's in any bit."""
    batch = _batch(_LENGTHS)
    for packing in ("plain", "dense"):
        network = _through_disk(packing)
        wanted = {output: Oracle(network).run(batch, output) for output in _OUTPUTS}
        for kernel in kernels():
            for threads in (1, 2):
                with Engine(network, num_threads=threads, kernel=kernel) as engine:
                    different = [o for o in _OUTPUTS if not np.array_equal(engine.run(batch, o), wanted[o])]
                if different:
                    names = ", ".join(output.name.casefold() for output in different)
                    yield f"kernel {kernel} with {threads} threads: {names} differ from NumPy ({packing} packing)"


def speed(threads: int, seconds: float = 1.0) -> dict[str, Any]:
    """Tokens per second of a model of MiniLM's shape, eight sequences of 64 tokens at a time."""
    network, batch = network_of(_random_model(_MINILM)), _batch(_SPEED_LENGTHS)
    with Engine(network, num_threads=threads) as engine:
        engine.run(batch, Output.LOGITS)  # warm-up
        runs, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < seconds or not runs:
            engine.run(batch, Output.LOGITS)
            runs += 1
        return {"kernel": engine.kernel, "threads": threads, "tokens per second": round(runs * len(batch.ids) / spent)}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _engine() -> dict[str, Any]:
    return {
        "native library": native.version(),
        "cpu features": sorted(native.cpu_features()),
        "kernels": kernels(),
        "chosen": choose_kernel(),
        "threads": thread_count(),
    }


def _selftest(report: DoctorReport) -> dict[str, Any]:
    begin = time.perf_counter()
    wrong = list(wrong_kernels())
    report.problems += [f"{problem}; please report this, with the output of ternarybert doctor" for problem in wrong]
    measured = [speed(count) for count in sorted({1, report.engine["threads"]})]
    return {"bits": not wrong, "speed": measured, "seconds": round(time.perf_counter() - begin, 1)}


def _random_model(shape: ModelShape, packing: str = "plain") -> PackedModel:
    # LayerNorms that are not the identity, so that mistakes with them show.
    return packed_model(shape, random_weights(shape, norm_deviation=0.1), packing=packing)


def _through_disk(packing: str) -> Network:
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        packed.write(folder, _random_model(_SMALL, packing))
        return network_of(packed.read(folder).in_memory())


def _batch(lengths: tuple[int, ...]) -> Batch:
    rng = np.random.default_rng(1)
    return Batch.of([rng.integers(0, _VOCABULARY, n, dtype=np.int32) for n in lengths])
