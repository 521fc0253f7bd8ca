"""Everything that `ternarybert doctor` says: facts, and problems with what to do about them.

MERGED-DOCS:
What is installed, and on what: told by the packages' own metadata, because importing torch takes seconds.
---
A BERT with random ternary weights as a packed model, so that the self-test needs no file and no download.
---
The engine against what it must compute, bit for bit, with every kernel; and how fast it is here.

The model goes through a folder on disk, as a user's would, so that reading is tested along.

"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import ternarybert
from ternarybert import packed
from ternarybert.errors import TernaryBertError
from ternarybert.families import is_quantized, is_word_embedding, tensor_shapes
from ternarybert.native import choose_kernel, cpu_name, kernels
from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.recipe import PRESETS
from ternarybert.runtime.engine import Engine
from ternarybert.runtime.load import network_of
from ternarybert.runtime.network import Batch, Network, Output
from ternarybert.runtime.oracle import Oracle

_BASE = ("numpy", "tokenizers", "typer", "rich", "pyyaml")
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+).*?extra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")


def versions() -> dict[str, str | None]:
    """The package, Python, and what every installation needs; None for what is missing."""
    here: dict[str, str | None] = {"ternarybert": ternarybert.__version__, "python": platform.python_version()}
    return here | {name: _version(name) for name in _BASE}


def extras() -> dict[str, dict[str, str | None]]:
    """The packages of every extra with their versions; None for what is missing."""
    try:
        required = metadata.requires("ternarybert") or []
    except metadata.PackageNotFoundError:  # the sources alone, on Python's path
        return {}
    found: dict[str, dict[str, str | None]] = {}
    for line in required:
        if match := _REQUIREMENT.match(line):
            found.setdefault(match["extra"], {})[match["name"]] = _version(match["name"])
    return found


def machine() -> dict[str, Any]:
    """The processor and the system."""
    from ternarybert.runtime.engine import THREADS_VARIABLE

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "cpu": cpu_name(),
        "usable cores": usable,
        THREADS_VARIABLE: os.environ.get(THREADS_VARIABLE),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2}
MINILM = {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 12, "num_hidden_layers": 6}
VOCABULARY, POSITIONS = 300, 128
_CODES = np.array([-1, 0, 1], np.int8)


def random_model(sizes: dict[str, int], packing: str = "plain", seed: int = 0) -> PackedModel:
    """What `packed.read` would give of a classifier of these sizes."""
    rng, recipe = np.random.default_rng(seed), PRESETS["default"]
    config: dict[str, Any] = sizes | {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        "vocab_size": VOCABULARY,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "num_labels": 2,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
    }
    tensors: dict[str, Any] = {}
    for name, shape in tensor_shapes(config).items():
        if is_quantized(name, pooler=True):
            rows = shape[0] if is_word_embedding(name) else 1
            codes, scale = rng.choice(_CODES, shape), 0.05 + 0.1 * rng.random(rows)
            tensors[name] = PackedTensor.pack(codes, scale, bits=2, packing=packing)
        else:
            middle = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            tensors[name] = (middle + 0.1 * rng.standard_normal(shape)).astype(np.float32)
    model = PackedModel(config, tensors, str(recipe.bits), recipe.to_dict())
    model.check()
    return model


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
        return network_of(packed.read(folder).in_memory())


def _batch(lengths: tuple[int, ...]) -> Batch:
    rng = np.random.default_rng(1)
    return Batch.of([rng.integers(0, VOCABULARY, n, dtype=np.int32) for n in lengths])


_REINSTALL = "reinstall it: pip install --force-reinstall --no-deps ternarybert"


@dataclass
class Finding:
    """What was found out; `problems` is empty where all is well."""

    versions: dict[str, str | None] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, dict[str, str | None]] = field(default_factory=dict)
    selftest: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def examine(*, selftest: bool = True) -> Finding:
    """Look at the installation; what is broken becomes a problem, never an exception."""
    found = Finding(versions(), machine(), extras=extras())
    missing = [name for name, version in found.versions.items() if version is None]
    found.problems += [f"{name} is missing: pip install {name}" for name in missing]
    try:
        found.engine = _engine()
        if selftest:
            found.selftest = _selftest(found)
    except TernaryBertError as error:
        found.problems.append(str(error))
    except Exception as error:  # whatever an unsound installation can do
        found.problems.append(f"{type(error).__name__}: {error}; {_REINSTALL}")
    return found


def _engine() -> dict[str, Any]:
    from ternarybert import native
    from ternarybert.runtime.engine import thread_count

    return {
        "native library": native.version(),
        "cpu features": sorted(native.cpu_features()),
        "kernels": kernels(),
        "chosen": choose_kernel(),
        "threads": thread_count(),
    }


def _selftest(found: Finding) -> dict[str, Any]:

    begin = time.perf_counter()
    wrong = list(wrong_kernels())
    found.problems += [f"{problem}; please report it, with this page" for problem in wrong]
    threads = sorted({1, found.engine["threads"]})
    measured = [speed(count) for count in threads]
    return {"bits": not wrong, "speed": measured, "seconds": round(time.perf_counter() - begin, 1)}
