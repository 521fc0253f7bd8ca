"""The engines that are timed. Each converts the model to its own files, loads them and runs batches.

Ours runs the packed folder. The others get a float32 model, the teacher or the unpacked packed one, and quantize it
with their own tools as their documentation recommends for BERT on CPU.

Each engine is timed in its own process: `run.py` starts `python -m ternarybert.bench.engines ENGINE FOLDER THREADS`,
which loads the engine, reports its memory and times batches on request. The protocol is in `process.py`.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ternarybert.bench.inputs import (
    CALIBRATION_TEXTS,
    CHECK,
    TokenBatch,
    make_tokens,
    pad_tokens,
    read_inputs,
    read_sequences,
)
from ternarybert.bench.process import Handler, Reply, peak_memory, resident_memory, serve
from ternarybert.families import HeadKind
from ternarybert.packed.hf_folder import read_config

Result = NDArray[np.float32]
RunBatch = Callable[[TokenBatch], Result]

PACKED, PLAIN = "packed", "plain"  # folders of a run: the packed model and a float32 one
_CALIBRATION_ROWS = 256  # texts, where there are real ones
CALIBRATION = 8  # random batches for engines with fixed activation ranges; only speed matters
_MIN_REPEATS = 3  # of a batch in a round


@dataclass(frozen=True)
class BenchEngine:
    """An engine that can be timed."""

    name: str
    load: Callable[[Path, int], RunBatch]  # folder of the run, threads
    output: str = "logits"  # or "hidden" for engines that return the encoder's output
    converts: bool = False  # converts the model first, with tools that need more memory than the engine
    modules: tuple[str, ...] = ()  # what must be installed
    # The largest error of its outputs, as a share of their standard deviation; random weights are hard for int8.
    tolerance: float = 0.6


def _ours(run: Path, threads: int) -> RunBatch:
    from ternarybert import packed
    from ternarybert.runtime.engine import Engine
    from ternarybert.runtime.load import network_of
    from ternarybert.runtime.network import Batch, Output

    engine = Engine(network_of(packed.read(run / PACKED)), num_threads=threads)
    return lambda tokens: engine.run(Batch.of(tokens.sequences()), Output.LOGITS)


def _torch_model(run: Path, threads: int) -> Any:
    import torch
    import transformers

    torch.set_num_threads(threads)
    names = read_config(run / PLAIN).get("architectures") or [""]
    answers = names[0].endswith(HeadKind.QUESTION_ANSWERING.value)
    auto = transformers.AutoModelForQuestionAnswering if answers else transformers.AutoModelForSequenceClassification
    return auto.from_pretrained(run / PLAIN).eval()


def _torch_run(model: Any) -> RunBatch:
    import torch

    def call(tokens: TokenBatch) -> Result:
        with torch.inference_mode():
            feed = {name: torch.from_numpy(array) for name, array in tokens.feed().items()}
            return np.asarray(model(**feed).logits.numpy(), np.float32)

    return call


def _torch_fp32(run: Path, threads: int) -> RunBatch:
    return _torch_run(_torch_model(run, threads))


def _torch_int8(run: Path, threads: int) -> RunBatch:
    import torch
    from torch.ao.quantization import quantize_dynamic

    quantize: Any = quantize_dynamic  # untyped
    return _torch_run(quantize(_torch_model(run, threads), {torch.nn.Linear}, dtype=torch.qint8))


def _onnx(run: Path) -> Path:
    """The float32 model as ONNX, exported once for the engines that read it."""
    path = run / "model.onnx"
    if path.exists():
        return path
    import onnx
    import torch

    model = _torch_model(run, 1)
    model.config.use_cache = False
    feed = {name: torch.from_numpy(a) for name, a in make_tokens([9, 7], model.config.vocab_size).feed().items()}
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    program = torch.onnx.export(
        model,
        (),
        kwargs=feed,
        dynamo=True,
        dynamic_shapes={name: {0: batch, 1: length} for name in feed},
        verbose=False,
    )
    assert program is not None  # only without dynamo
    program.save(str(run / "part.onnx"))
    graph = onnx.load(run / "part.onnx")
    del graph.graph.value_info[:]  # left by the exporter; the quantizer fails on it
    onnx.save(graph, run / "whole.onnx")
    (run / "whole.onnx").rename(path)
    return path


def onnxruntime_int8(run: Path, threads: int) -> Callable[[Mapping[str, NDArray[np.int64]]], list[Result]]:
    """ONNX Runtime with the float32 model of a run, quantized dynamically; maps inputs by name to all outputs."""
    import onnxruntime

    path = run / "model.int8.onnx"
    if not path.exists():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(_onnx(run), path, weight_type=QuantType.QInt8, reduce_range=_saturates())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {one.name for one in session.get_inputs()}

    def call(feed: Mapping[str, NDArray[np.int64]]) -> list[Result]:
        return list(session.run(None, {name: array for name, array in feed.items() if name in names}))

    return call


def _onnxruntime(run: Path, threads: int) -> RunBatch:
    call = onnxruntime_int8(run, threads)
    return lambda tokens: call(tokens.feed())[0]


def _openvino(run: Path, threads: int) -> RunBatch:
    import openvino

    path = run / "openvino.int8.xml"
    core = openvino.Core()
    if not path.exists():
        import nncf
        from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, OverflowFix

        fix = OverflowFix.ENABLE if _saturates() else OverflowFix.DISABLE
        model = core.read_model(_onnx(run))
        batches = _calibration(run)
        model = nncf.quantize(
            model,
            nncf.Dataset(batches),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(batches),
            advanced_parameters=AdvancedQuantizationParameters(overflow_fix=fix),
        )
        openvino.save_model(model, path, compress_to_fp16=False)
    compiled = core.compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"})
    request, names = compiled.create_infer_request(), {name for one in compiled.inputs for name in one.names}

    def call(tokens: TokenBatch) -> Result:
        feed = {name: array for name, array in tokens.feed().items() if name in names}
        return np.array(request.infer(feed, share_inputs=True)[0], np.float32)

    return call


def _ctranslate2(run: Path, threads: int) -> RunBatch:
    import ctranslate2

    folder = run / "ctranslate2"
    if not folder.exists():
        source = run / "for ctranslate2"
        shutil.copytree(run / PLAIN, source)
        config = json.loads((source / "config.json").read_text())
        # Its converter needs a field that transformers 5 has dropped.
        (source / "config.json").write_text(json.dumps({**config, "position_embedding_type": "absolute"}))
        ctranslate2.converters.TransformersConverter(str(source)).convert(str(folder), quantization="int8")
    encoder = ctranslate2.Encoder(str(folder), compute_type="int8", inter_threads=1, intra_threads=threads)
    return lambda tokens: np.asarray(encoder.forward_batch(tokens.sequences()).last_hidden_state, np.float32)


def _saturates() -> bool:
    """Whether products of unsigned and signed bytes saturate on this CPU; tools then recommend 7-bit weights."""
    from ternarybert.native import cpu_features

    return not {"avx512vnni", "avx_vnni"} & cpu_features()


def _calibration(run: Path) -> list[dict[str, NDArray[np.int64]]]:
    """Batches with padding, because calibration fixes all ranges, including that of the mask."""
    if (run / CALIBRATION_TEXTS).exists():
        texts = read_sequences(run / CALIBRATION_TEXTS)[:_CALIBRATION_ROWS]
        return [pad_tokens(texts[first : first + 4]).feed() for first in range(0, len(texts), 4)]
    vocabulary = int(read_config(run / PLAIN)["vocab_size"])
    return [make_tokens([64, 128, 17, 90], vocabulary, seed).feed() for seed in range(CALIBRATION)]


OURS = "ternarybert"
ENGINES = {
    engine.name: engine
    for engine in (
        BenchEngine(OURS, _ours, tolerance=1e-3),
        BenchEngine("torch-fp32", _torch_fp32, modules=("torch", "transformers"), tolerance=1e-3),
        BenchEngine("torch-int8", _torch_int8, modules=("torch", "transformers")),
        BenchEngine(
            "onnxruntime-int8",
            _onnxruntime,
            converts=True,
            modules=("onnxruntime", "onnx", "onnxscript", "torch", "transformers"),
        ),
        BenchEngine(
            "openvino-int8",
            _openvino,
            converts=True,
            modules=("openvino", "nncf", "onnx", "onnxscript", "torch", "transformers"),
        ),
        BenchEngine(
            "ctranslate2-int8",
            _ctranslate2,
            output="hidden",
            converts=True,
            modules=("ctranslate2", "torch", "transformers"),
        ),
    )
}


def serve_engine(name: str, folder: str, threads: str) -> None:
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
    serve_engine(*sys.argv[1:])
