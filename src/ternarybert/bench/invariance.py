"""Does an engine's answer to a text depend on anything but the text? `ternarybert bench --invariance`.

Every engine first runs each text alone, with one thread: these are the answers that all others are compared with. Then
the same texts run in batches of 2 to 64, in other orders, padded, with two threads, and with other kernels. An engine
that takes one range of activations for the whole batch, or that sums in an order that depends on the batch, gives
other numbers for the same text, and sometimes another label.

Each engine runs in its own process, as in `run.py`: `python -m ternarybert.bench.invariance ENGINE FOLDER THREADS`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ternarybert import native
from ternarybert.bench.engines import ENGINES, OURS, BenchEngine
from ternarybert.bench.inputs import (
    CALIBRATION_TEXTS,
    RAGGED_LENGTHS,
    TokenBatch,
    make_tokens,
    pad_tokens,
    read_sequences,
    write_sequences,
)
from ternarybert.bench.process import Handler, Reply, WorkerProcess, serve
from ternarybert.bench.run import OnProgress, check_classifiers, engine_named, missing_modules, prepare_run
from ternarybert.errors import OptionError
from ternarybert.packed.hf_folder import read_config

INVARIANCE_ENGINES = (OURS, "onnxruntime-int8", "openvino-int8", "torch-fp32", "torch-int8")
ALONE = "alone"  # what everything else is compared with
_SIZES = (2, 4, 8, 16, 32, 64)
_USUAL = 32  # the size of a batch where another thing than the size is changed
_TEXTS = 256  # of random words, where no texts are given
_PADDING = 64  # tokens more than the longest text has

# How engines other than ours are kept to AVX2. ONNX Runtime has no such setting.
_AVX2 = {
    "torch-fp32": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "torch-int8": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "openvino-int8": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
}


@dataclass(frozen=True)
class BatchCondition:
    """One way to run all texts."""

    name: str
    batches: tuple[tuple[int, ...], ...]  # which texts run together
    width: int | None = None  # tokens that every text is padded to; None: those of the longest in its batch


@dataclass(frozen=True)
class Deviation:
    """How far the answers under some condition are from those of each text alone."""

    largest: float  # difference of a logit
    texts: int  # whose logits have other bits
    labels: int  # that are others


@dataclass
class EngineInvariance:
    """What was found of one engine."""

    name: str
    deviations: dict[str, Deviation] = field(default_factory=dict)  # by condition
    total: Deviation | None = None  # over all conditions: each text counts once
    failed: str | None = None


@dataclass(frozen=True)
class _Setting:
    """How a process of an engine is started: what cannot be changed while it runs."""

    threads: int
    environment: Mapping[str, str]
    conditions: tuple[BatchCondition, ...]


def measure_invariance(
    model: Path,
    run: Path,
    *,
    engines: Sequence[str] = INVARIANCE_ENGINES,
    texts: Sequence[str] | None = None,
    plain: Path | None = None,
    on_progress: OnProgress = lambda _: None,
) -> dict[str, Any]:
    """Run the same texts in many ways in every engine; the report is a JSON value.

    `model` is a packed classifier, `run` an empty folder for files. Without `texts`, random words are used. The other
    engines get `plain`, normally the teacher, or else the packed model unpacked.
    """
    chosen = [_engine(name) for name in engines]
    check_classifiers(model, plain)
    on_progress("preparing the model")
    prepare_run(model, plain, run, ())
    sequences = _tokens(run, model, texts)
    write_sequences(run / CALIBRATION_TEXTS, sequences)
    found = [_measure(engine, run, sequences, on_progress) for engine in chosen]
    return {
        "texts": len(sequences),
        "real_texts": texts is not None,
        "lengths": [min(map(len, sequences)), max(map(len, sequences))],
        "cpu": f"{native.cpu_name()} ({', '.join(sorted(native.cpu_features()))})",
        "engines": [asdict(one) for one in found],
    }


def invariance_headings(report: Mapping[str, Any]) -> list[str]:
    """The column headings of the table: the conditions."""
    return ["difference (changed labels)", *_condition_names(report), "in all"]


def invariance_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """A table row for each engine that ran: the largest difference of a logit, and how many labels changed."""
    names = _condition_names(report)
    rows = []
    for engine in report["engines"]:
        if engine["failed"] is None:
            deviations = [*(engine["deviations"].get(name) for name in names), engine["total"]]
            rows.append([engine["name"], *map(_cell, deviations)])
    return rows


def _condition_names(report: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for engine in report["engines"] for name in engine["deviations"]))


def _cell(deviation: Mapping[str, Any] | None) -> str:
    if deviation is None:
        return "-"
    return "0" if not deviation["texts"] else f"{deviation['largest']:.2g} ({deviation['labels']})"


def _engine(name: str) -> BenchEngine:
    engine = engine_named(name)
    if engine.output != "logits":
        raise OptionError(f"{name} gives no logits, so its answers cannot be compared")
    return engine


def _tokens(run: Path, model: Path, texts: Sequence[str] | None) -> list[list[int]]:
    """The token ids of the texts, or random ones with the lengths of real texts."""
    if texts is None:
        config = read_config(run / "plain")
        longest = int(config["max_position_embeddings"])
        lengths = [min(n, longest) for n in RAGGED_LENGTHS * (_TEXTS // len(RAGGED_LENGTHS))]
        return make_tokens(lengths, int(config["vocab_size"])).sequences()
    if len(texts) < 2:
        raise OptionError("one text is not enough to see whether texts change each other's answers")
    from ternarybert.runtime.load import load

    with load(model, num_threads=1) as loaded:
        return [encoding.ids for encoding in loaded.text.encode(list(texts))]


def _conditions(sequences: Sequence[Sequence[int]], longest: int) -> tuple[BatchCondition, ...]:
    """What is tried in one process, `ALONE` first."""
    count = len(sequences)
    in_order = np.arange(count)
    shuffled = np.random.default_rng(0).permutation(count)
    width = min(longest, max(map(len, sequences)) + _PADDING)
    return (
        BatchCondition(ALONE, _batches(in_order, 1)),
        *(BatchCondition(f"batches of {size}", _batches(in_order, size)) for size in _SIZES),
        BatchCondition("reversed", _batches(in_order[::-1], _USUAL)),
        BatchCondition("shuffled", _batches(shuffled, _USUAL)),
        BatchCondition("padded", _batches(in_order, 1), width),
    )


def _batches(order: NDArray[np.int64], size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(order[first : first + size].tolist()) for first in range(0, len(order), size))


def _settings(name: str, sequences: Sequence[Sequence[int]], longest: int) -> Iterator[_Setting]:
    """The processes of an engine. The first one has the answers that the others are compared with."""
    yield _Setting(1, {}, _conditions(sequences, longest))
    usual = _batches(np.arange(len(sequences)), _USUAL)
    yield _Setting(2, {}, (BatchCondition("2 threads", usual),))
    if name == OURS:
        for kernel in native.kernels():
            variable = {native.KERNEL_VARIABLE: kernel}
            yield _Setting(1, variable, (BatchCondition(f"kernel {kernel}", usual),))
    elif name in _AVX2 and "avx2" in native.cpu_features():
        yield _Setting(1, _AVX2[name], (BatchCondition("kernel avx2", usual),))


def _measure(
    engine: BenchEngine, run: Path, sequences: Sequence[Sequence[int]], on_progress: OnProgress
) -> EngineInvariance:
    found = EngineInvariance(engine.name)
    missing = missing_modules(engine)
    if missing:
        found.failed = missing
        return found
    longest = int(read_config(run / "plain")["max_position_embeddings"])
    logits: dict[str, NDArray[np.float32]] = {}
    for setting in _settings(engine.name, sequences, longest):
        on_progress(f"{engine.name}: {setting.conditions[-1].name}")
        found.failed = _run_setting(engine, run, setting, logits)
        if found.failed is not None:
            return found
    alone = logits.pop(ALONE)
    found.deviations = {name: _deviation(alone, [rows]) for name, rows in logits.items()}
    found.total = _deviation(alone, list(logits.values()))
    return found


def _run_setting(engine: BenchEngine, run: Path, setting: _Setting, logits: dict[str, Any]) -> str | None:
    """Run the conditions of one process; the reason if that failed."""
    threads = str(setting.threads)
    environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **setting.environment}
    with ExitStack() as stack:
        module = "ternarybert.bench.invariance"
        process = stack.enter_context(WorkerProcess(module, engine.name, str(run), threads, environment=environment))
        reply = process.receive()
        for condition in setting.conditions:
            if "failed" in reply:
                break
            reply = process.request(batches=condition.batches, width=condition.width)
            if "failed" not in reply:
                logits[condition.name] = np.load(reply["file"])
    failed: str | None = reply.get("failed")
    return failed


def _deviation(alone: NDArray[np.float32], others: Sequence[NDArray[np.float32]]) -> Deviation:
    """Differences from the answers alone; a text counts once, however many of the others differ."""
    stacked = np.stack(others)  # (ways, texts, logits)
    bits = (stacked.view(np.uint32) != alone.view(np.uint32)).any((0, 2))
    labels = (stacked.argmax(2) != alone.argmax(1)).any(0)
    largest = np.abs(stacked.astype(np.float64) - alone).max()
    return Deviation(float(largest), int(bits.sum()), int(labels.sum()))


def serve_invariance(name: str, folder: str, threads: str) -> None:
    """Serve an engine until the input ends: each request lists batches of texts, each reply names a file of logits."""
    run = Path(folder)
    sequences = read_sequences(run / CALIBRATION_TEXTS)

    def prepare() -> tuple[Reply, Handler]:
        run_batch = ENGINES[name].load(run, int(threads))

        def handle(request: dict[str, Any]) -> Reply:
            rows: list[Any] = [None] * len(sequences)
            for indices in request["batches"]:
                batch: TokenBatch = pad_tokens([sequences[i] for i in indices], request["width"])
                for i, row in zip(indices, run_batch(batch), strict=True):
                    rows[i] = row
            path = run / f"logits.{name}.npy"
            np.save(path, np.stack(rows).astype(np.float32))
            return {"file": str(path)}

        return {}, handle

    serve(prepare)


if __name__ == "__main__":
    serve_invariance(*sys.argv[1:])
